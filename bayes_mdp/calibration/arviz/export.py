# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""A posterior for ArviZ, as the groups of the InferenceData schema: `to_arviz`, `dataset`. Host-side.

First which groups there are, and why others are left out (`contents`); then each as a Dataset (`GroupBuilder`). Sites
of a program become variables whose names collide with nothing (`SiteVariables`).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.behaviour.fit_behaviour import BehaviourPosterior
from bayes_mdp.calibration.arviz.behaviour_export import GROUPS as BEHAVIOUR_GROUPS
from bayes_mdp.calibration.arviz.behaviour_export import behaviour_groups
from bayes_mdp.calibration.arviz.generation import Tree, as_tree, break_ties, schema_attributes
from bayes_mdp.calibration.belief import replicates as predictive
from bayes_mdp.calibration.belief.draws import (
    Draws,
    Run,
    chains_of_draws,
    check_draws,
    check_posterior,
    draw,
    draw_prior,
    has_sums,
    key_or_first,
)
from bayes_mdp.calibration.belief.observed_data import Cells, Data, Rows, observe, why_no_kept_data
from bayes_mdp.calibration.belief.program_run import (
    ProgramRun,
    SiteFacts,
    log_prior_of_closed_form,
    run_program,
    site_facts,
    top_sites,
    why_no_log_prior,
)
from bayes_mdp.inference.conjugate.closed_form_draws import known_sites
from bayes_mdp.inference.context_posterior import ContextPosterior
from bayes_mdp.inference.fitted import NO_PROGRAM, Fitted
from bayes_mdp.inference.pair_draws import HoldsDraws
from bayes_mdp.mdp.labels import OUTCOME, PLACE, coordinates, names_of_lists, outcome_axis
from bayes_mdp.mdp.labels import labels as coordinate_labels
from bayes_mdp.mdp.space import PLATE_NAMES
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.progress import stage
from bayes_mdp.utils.validation import check_count, check_name

GROUPS = (
    "posterior",
    "posterior_predictive",
    "log_likelihood",
    "log_prior",
    "prior",
    "prior_predictive",
    "observed_data",
    "constant_data",
    "sample_stats",
)
OF_DATA = ("posterior_predictive", "prior_predictive", "log_likelihood", "observed_data", "constant_data")
UNITS = ("transition", "cell", "none")
NO_DATA = "no transition has been observed"
Coordinate = np.ndarray | tuple[str | tuple[str, ...], np.ndarray]  # values, or (dimension, values)
SAMPLE_DIMS = ("chain", "draw")
STACKED = "sample"  # what ArviZ calls chain and draw together
NO_SITES = ProgramRun({}, {})
NO_RUN = Run()
SUFFIX = "_site"


class Contents(NamedTuple):
    """What there is.

    Args:
        rows: the transitions one by one; None: there are sums alone, or nothing.
        cells: their sums; None: they are not known pair by pair.
        unit: of the log-likelihood, "transition" or "cell"; None: there is none.
        left_out: group (or "deterministics") -> why it is left out.
    """

    rows: Rows | None
    cells: Cells | None
    unit: str | None
    left_out: dict[str, str]


def contents(posterior: Fitted, data: Data, log_likelihood: str | None) -> Contents:
    """What there is for a posterior and the `data` that are at hand. Arguments and errors: as `to_arviz`."""
    if log_likelihood is not None and log_likelihood not in UNITS:
        raise ValueError(f"log_likelihood is {log_likelihood!r}, expected 'transition', 'cell', 'none' or None")
    reference = posterior.reference
    left_out = _of_the_model(posterior)
    # Transitions where they are given or kept, sums where the posterior kept no more.
    rows = cells = None
    without = why_no_kept_data(reference) if data is None else None
    if without is None:
        rows, cells = observe(reference, data)
        without = None if cells.transition_counts.any() else NO_DATA
    elif log_likelihood in ("transition", "cell"):
        observe(reference, data)  # raises why
    else:
        without = f"it needs `data`: {without}"
    # It was asked for by name: no other unit takes its place.
    if log_likelihood == "transition" and rows is None:
        raise ValueError("data holds no transitions, expected those that the posterior was inferred from")
    if without is not None:
        return Contents(None, None, None, {**left_out, **dict.fromkeys(OF_DATA, without)})
    law = reference.reward_law
    unit = log_likelihood or ("transition" if rows is not None else "cell")
    if unit == "none":
        unit, left_out["log_likelihood"] = None, "log_likelihood is 'none'"
    elif unit == "cell" and log_likelihood is None and not has_sums(law):
        name = "" if law is None else law.__name__
        unit, left_out["log_likelihood"] = None, f"it needs the transitions as `data`: {name} rewards have no sums"
    return Contents(rows, cells, unit, left_out)


def _of_the_model(posterior: Fitted) -> dict[str, str]:
    """What is left out whatever the data."""
    left_out: dict[str, str] = {}
    prior, density = posterior.why_no_prior(), why_no_log_prior(posterior)
    if prior is not None:
        left_out |= {"prior": prior, "prior_predictive": prior}
    if density is not None:
        left_out["log_prior"] = density
    program = posterior.program
    if program is None:
        left_out["deterministics"] = NO_PROGRAM
    else:
        known, sites = known_sites(posterior), site_facts(program, posterior.space)
        # Deterministic sites and densities need the values of all latent sites.
        missing = [name for name, site in sites.items() if site.kind == "latent" and name not in known]
        if missing:
            why = f"the values of site {missing[0]!r} are not known in every draw"
            left_out |= {"deterministics": why, "log_prior": why}
    # Resampled draws have no order in which a sampler made them.
    if chains_of_draws(posterior) is None:
        ran = posterior.chains is not None
        left_out["sample_stats"] = "the draws were resampled by weight" if ran else "no chains were run"
    return left_out


class GroupBuilder:
    """Makes the groups of one posterior; draws are made once, when a group first needs them.

    Args:
        posterior: as `infer` returns it, or a mixture.
        num_draws: draws per group.
        key: of all draws.
        contents: which groups there are.
    """

    def __init__(self, posterior: Fitted, num_draws: int, key: PRNGKeyArray, contents: Contents) -> None:
        self._posterior, self._num_draws, self._contents = posterior, num_draws, contents
        self._reference, self._program = posterior.reference, posterior.program
        names = ("posterior", "prior", "posterior_predictive", "prior_predictive")
        # One key a group: what is asked for beside it changes no group.
        self._keys: dict[str, PRNGKeyArray] = dict(zip(names, jax.random.split(key, len(names)), strict=True))
        self._axes = coordinates(posterior.space)
        pair = PLATE_NAMES[-len(posterior.space.shape) :]
        row = (*pair, outcome_axis(posterior.space))
        reward = row if self._reference.rewards_by_outcome else pair
        self._dims = {
            **dict.fromkeys(("transition_probs", "transition_counts"), row),
            **dict.fromkeys(("reward_mean", "reward_precision", "reward_total", "reward_count"), reward),
            **dict.fromkeys(("observed_next_state", "observed_reward", "observed_transition"), ("transition",)),
            "observed_cell": ("cell",),
            "visit_counts": pair,
        }
        sizes = {name: len(axis) for name, axis in self._axes.items()}
        self._facts = _facts(posterior, runs="deterministics" not in contents.left_out)
        self._variables = SiteVariables(self._dims, sizes, (*SAMPLE_DIMS, STACKED), self._facts)
        self._site_dims = {self._variables.names[site]: self._variables.dims[site] for site in self._facts}

    def check_size(self, wanted: Collection[str]) -> None:
        """Refuse groups that would not fit in memory, before a draw is made.

        Raises:
            ValueError: they would not.
        """
        cells, rows = self._contents.cells, self._contents.rows
        space = self._posterior.space
        # Numbers in float32 but for rewards, in bytes.
        probs = math.prod((*space.shape, space.n_outcomes))
        reward = 16 * (probs if self._reference.rewards_by_outcome else math.prod(space.shape))
        # Transitions that are known one by one; sums have a replicate for each cell.
        number = 0 if rows is None else rows.outcome.size
        replicate = 4 * probs + reward if rows is None else 8 * number
        # The values of the sites beside the tables, in float64.
        site_bytes = 8 * sum(math.prod(x.shape) for x in self._facts.values())
        unit = 8 * (number if self._contents.unit == "transition" or cells is None else cells.pairs_with_data[0].size)
        sizes = {
            "posterior": site_bytes,
            "posterior_predictive": replicate,
            "log_likelihood": unit,
            "log_prior": 8 * sum(math.prod(x.shape[: x.batch]) for x in self._facts.values()),
            # The prior has draws of its own.
            "prior": 2 * 4 * probs + reward + site_bytes,
            "prior_predictive": replicate,
        }
        of_rows = number if set(wanted) & set(OF_DATA) else 0
        check_draws(self._posterior, self._num_draws, of_rows, float(sum(sizes.get(name, 0) for name in wanted)))

    @cached_property
    def _draws(self) -> Draws:
        return draw(self._keys["posterior"], self._posterior, self._num_draws)

    @cached_property
    def _prior_draws(self) -> Draws:
        return draw_prior(self._keys["prior"], self._posterior, self._num_draws)

    @cached_property
    def _run(self) -> ProgramRun:
        return self._run_at(self._draws)

    def _run_at(self, draws: Draws) -> ProgramRun:
        """The program at the sites of these draws."""
        if self._program is None or "deterministics" in self._contents.left_out:
            return NO_SITES
        # The draws fix every latent site: the program repeats what follows from them.
        return run_program(self._program, self._posterior.space, draws.run.sites, len(draws.transition_probs))

    @cached_property
    def _own_attributes(self) -> dict[str, str | float]:
        """How the posterior was inferred."""
        posterior = self._posterior
        # The evidence goes along where the route knows it.
        attributes: dict[str, str | float] = {"inference_method": posterior.method}
        if posterior.known_log_evidence is not None:
            attributes["log_evidence"] = posterior.known_log_evidence
        return attributes

    def posterior(self) -> xr.Dataset:
        # What is missing, and why, goes along as attributes.
        made = self._sample_dataset(self._parameters(self._draws, self._run), self._draws.run)
        left_out = [f"{name}: {why}" for name, why in self._contents.left_out.items()]
        return made.assign_attrs(left_out=left_out) if left_out else made

    def prior(self) -> xr.Dataset:
        draws = self._prior_draws
        return self._sample_dataset(self._parameters(draws, self._run_at(draws)), draws.run)

    def log_prior(self) -> xr.Dataset:
        draws = self._draws
        if self._program is None:
            # Without a program, rows and rewards are one term each.
            sums = log_prior_of_closed_form(self._posterior, draws)
            return self._sample_dataset(sums, draws.run, dict.fromkeys(sums, ()))
        # Which of the densities have no parents, for sensitivity to the prior.
        top = top_sites(self._program, self._posterior.space)
        latent = {site: self._variables.names[site] for site, facts in self._facts.items() if facts.kind == "latent"}
        densities = {name: np.asarray(self._run.log_density[site]) for site, name in latent.items()}
        dims = {name: self._variables.dims[site][: self._facts[site].batch] for site, name in latent.items()}
        made = self._sample_dataset(densities, draws.run, dims)
        return made.assign_attrs(without_parents=[name for site, name in latent.items() if site in top])

    def posterior_predictive(self) -> xr.Dataset:
        return self._sample_dataset(self._replicates("posterior_predictive", self._draws), self._draws.run)

    def prior_predictive(self) -> xr.Dataset:
        return self._sample_dataset(self._replicates("prior_predictive", self._prior_draws), self._prior_draws.run)

    def log_likelihood(self) -> xr.Dataset:
        draws, rows = self._draws, self._contents.rows
        # Single transitions where they are known.
        if self._contents.unit == "transition" and rows is not None:
            values = {"observed_transition": predictive.log_likelihood_rows(draws, rows)}
        else:
            values = {"observed_cell": predictive.log_likelihood_cells(draws, self._cells)}
        return self._sample_dataset({name: break_ties(x) for name, x in values.items()}, draws.run)

    def sample_stats(self) -> xr.Dataset:
        return self._sample_dataset(dict(self._draws.run.stats), self._draws.run)

    def observed_data(self) -> xr.Dataset:
        has_rewards = self._reference.reward_law is not None
        if self._contents.rows is not None:
            return self._dataset(predictive.rows_by_name(self._contents.rows, has_rewards), (), self._dims)
        return self._dataset(predictive.cells_by_name(self._cells, has_rewards), (), self._dims)

    def constant_data(self) -> xr.Dataset:
        constants = {"visit_counts": self._cells.transition_counts.sum(-1)}
        if self._reference.reward_law is not None:
            constants["reward_count"] = self._cells.rewards.count
        # Rewards that the prior fixes are constants of the analysis.
        known = self._reference.known_reward
        return self._dataset(constants if known is None else {**constants, "reward_mean": known}, (), self._dims)

    @property
    def _cells(self) -> Cells:
        assert self._contents.cells is not None  # else the groups that need data are left out
        return self._contents.cells

    # Replicates have their own generator, not that of the draws.
    def _replicates(self, group: str, draws: Draws) -> dict[str, np.ndarray]:
        rng = host_generator(self._keys[group])
        if self._contents.rows is not None:
            return predictive.replicate_rows(rng, draws, self._contents.rows)
        return predictive.replicate_cells(rng, draws, self._cells)

    def _parameters(self, draws: Draws, run: ProgramRun) -> dict[str, np.ndarray]:
        """The standard variables, then the sites of the program in its order."""
        values = {**draws.run.sites, **run.deterministic}
        return draws.variables() | {self._variables.names[site]: np.asarray(values[site]) for site in self._facts}

    def _sample_dataset(
        self, variables: Mapping[str, np.ndarray], run: Run, dims: Mapping[str, tuple[str, ...]] | None = None
    ) -> xr.Dataset:
        """Arrays [N ...] by chain and draw."""
        # Draws stand chain after chain: a reshape separates them.
        split = {name: x.reshape(run.num_chains, -1, *x.shape[1:]) for name, x in variables.items()}
        return self._dataset(split, SAMPLE_DIMS, {**self._dims, **self._site_dims} if dims is None else dims, run)

    def _dataset(
        self,
        variables: Mapping[str, np.ndarray],
        lead: tuple[str, ...],
        dims: Mapping[str, tuple[str, ...]],
        run: Run = NO_RUN,
    ) -> xr.Dataset:
        arrays = {name: ((*lead, *dims.get(name, ())), values) for name, values in variables.items()}
        sizes = {dim: size for dims, x in arrays.values() for dim, size in zip(dims, x.shape, strict=True)}
        axes = {**{dim: np.arange(size) for dim, size in sizes.items()}, **self._axes}
        # Only axes that some variable has become coordinates.
        coords: dict[str, Coordinate] = {name: axis for name, axis in axes.items() if name in sizes}
        if PLACE in sizes:
            space = self._posterior.space
            coords[OUTCOME] = ((*PLATE_NAMES[-len(space.shape) :], PLACE), names_of_lists(space))
        if "transition" in sizes and self._contents.rows is not None:
            coords.update(item_coordinates("transition", self._contents.rows.cell, self._axes))
        if "cell" in sizes:
            coords.update(item_coordinates("cell", self._cells.pairs_with_data, self._axes))
        attributes = schema_attributes(lead) | self._own_attributes | dict(run.attributes)
        return xr.Dataset(arrays, coords=coords, attrs=attributes)


def _facts(posterior: Fitted, *, runs: bool) -> dict[str, SiteFacts]:
    """The sites to show, in the order of the program: deterministic ones if it `runs` at the values of all latents."""
    program, known = posterior.program, known_sites(posterior)
    if program is None:
        # What the axes are is not known.
        return {name: SiteFacts("latent", shape, (None,) * len(shape), 0) for name, shape in known.items()}
    facts = site_facts(program, posterior.space)
    return {name: site for name, site in facts.items() if name in known or (runs and site.kind == "deterministic")}


def item_coordinates(unit: str, cell: tuple[np.ndarray, ...], axes: dict[str, np.ndarray]) -> dict[str, Coordinate]:
    """Labels along the dimension `unit`, and the (step,) state and action of each as `{unit}_state`, `{unit}_action`.

    Transitions are numbered; a "cell" is called "state, action".
    """
    parts = {name: axes[name][index] for name, index in zip(PLATE_NAMES[-len(cell) :], cell, strict=True)}
    number = np.arange(cell[0].size)
    text = np.asarray([", ".join(map(str, words)) for words in zip(*parts.values(), strict=True)], dtype=str)
    return {unit: number if unit == "transition" else text, **{f"{unit}_{n}": (unit, x) for n, x in parts.items()}}


class SiteVariables:
    """The names and dimensions of sites among other variables.

    A site keeps its name, but for "/", which names no variable ("." takes its place), and for a name that is taken,
    which gets the suffix "_site". An axis has the name of its plate (or event) where that is free, else
    `{variable}_dim_{i}`.

    Args:
        taken: names of the other variables.
        sizes: of the coordinates that there are, by name; a plate of such a name is that coordinate, if it has its
            size.
        reserved: names that no variable and no plate of the user can have.
        sites: to be named.

    Attributes:
        names: site -> its variable.
        dims: site -> the dimensions of its value.
    """

    def __init__(
        self,
        taken: Collection[str],
        sizes: Mapping[str, int],
        reserved: Collection[str],
        sites: Mapping[str, SiteFacts],
    ) -> None:
        self._sizes = dict(sizes)
        self._used = {*taken, *reserved}
        self.names: dict[str, str] = {}
        for site in sites:
            # A slash would open a group of the tree.
            name = site.replace("/", ".")
            while name in self._used or name in sizes:
                name += SUFFIX
            self._used.add(name)
            self.names[site] = name
        # Dimensions after all names, as a plate must not have the name of a variable.
        self.dims = {site: self._dims_of(self.names[site], facts) for site, facts in sites.items()}

    def _dims_of(self, name: str, facts: SiteFacts) -> tuple[str, ...]:
        dims: list[str] = []
        for i, (plate, size) in enumerate(zip(facts.axes, facts.shape, strict=True)):
            # A name that stands for two axes of one site serves the first only.
            is_named = plate is not None and plate not in dims and self._is_free(plate, size)
            dims.append(plate if is_named and plate is not None else f"{name}_dim_{i}")
        return tuple(dims)

    def _is_free(self, plate: str, size: int) -> bool:
        """Whether a plate can be a dimension; the size that it is first seen with is kept."""
        if plate in self._used or "/" in plate:
            return False
        # A plate of the same name and another size is another axis.
        return self._sizes.setdefault(plate, size) == size


OPTIONAL = ("prior_predictive", "posterior_predictive", "log_likelihood", "prior", "log_prior")
"""Groups that are left out, in this order, where all together would not fit in memory."""


def to_arviz(
    posterior: Fitted | BehaviourPosterior | HoldsDraws | ContextPosterior,
    *,
    num_draws: int = 1000,
    key: PRNGKeyArray | None = None,
    log_likelihood: str | None = None,
    data: Data = None,
) -> Tree:
    """The posterior as `InferenceData` (ArviZ 0.x) or `xarray.DataTree` (1.x), groups as in the InferenceData schema.

    The same variables come out however the posterior was inferred (exact, mixture, over hyperparameters, factorised,
    sampled). Their dims, beside chain and draw:

    | group | variables |
    |---|---|
    | posterior, prior | `transition_probs` (state, action, next_state); `reward_mean` and, of normal rewards, |
    | | `reward_precision` (state, action), where they are unknown; every latent and deterministic site of the program |
    | log_prior | log density of every latent site given its parents (the plates of the site) |
    | posterior_predictive, | with transitions: `observed_next_state` (the index of the outcome), `observed_reward` |
    | prior_predictive, | (transition); with sums: `transition_counts` (state, action, next_state), `reward_total` |
    | observed_data | (state, action) |
    | log_likelihood | `observed_transition` (transition), or `observed_cell` (cell) |
    | sample_stats | `diverging`, `acceptance_rate`, `n_steps`, `tree_depth`, `lp`, `energy` (), where NUTS was run |
    | constant_data | `visit_counts`, `reward_count` (state, action), fixed in all replicates; a known `reward_mean` |

    In a space with a horizon, `step` comes first; rewards that depend on the outcome have `next_state` last; if
    episodes can end, the last `next_state` is "end". Coordinates are the names of the space, as text if NetCDF cannot
    hold them (tuples, mixed kinds). `reward_mean` is the expected reward: a probability for Bernoulli rewards, a rate
    for Poisson; it is left out where the law has no mean.

    **Sites** have the names of the program ("." in place of "/"), with "_site" behind a name that is taken. Axes in
    plates have the names of the plates (those of the space with its coordinates), others are `{site}_dim_{i}`. A site
    of a closed form is drawn from its conjugate posterior. Of a posterior without a program (built by hand, or loaded)
    deterministics are missing, and axes have no names.

    **What is left out is said**: the attribute `left_out` of the posterior group has a line for each group that is
    missing, with the reason (a prior that is improper, data that the posterior does not keep pair by pair and that are
    not given as `data`, memory).

    **Draws of an exact posterior or a mixture are independent**: they are cut into four chains (three, two or one
    where `num_draws` does not divide by four), as plots and statistics ask for several; the effective sample size is
    about the number of draws, and r-hat is near one by construction. Draws of chains (of a collapsed, factorised or
    sampled posterior) keep them, thinned evenly to `num_draws` in all, one of each chain at least (each draw of the
    hyperparameters, or of the rewards, with one exact draw of what is in closed form). Values with weights of their own
    (of importance sampling, or as new data have changed them) are resampled by weight, and the attributes
    `weighted_draws` and `weights_ess` are set; of quadrature they are drawn between the nodes of the grid. These, and
    the draws of SVI and Laplace, are cut into chains like exact ones. The attribute `no_markov_chains` of a group says
    where that is so.

    **A replicate** repeats the transitions from the same pairs: every pair is visited as often as in the data, and
    every observed reward is drawn again (given its observed outcome, if rewards depend on it). It is not a new
    trajectory: the visits are fixed.

    **The log-likelihood** is log p(next state, reward | state, action, draw), one number per transition, or per
    visited pair ("cell": the sum over its transitions). `az.loo` on transitions compares priors; on cells it predicts
    each row from the other rows, and a large Pareto k shows where that approximation fails.

    **The log prior** is that of all latent sites. Power-scaling (`az.psense`) of a hierarchy should scale only those
    without latent parents, which the attribute `without_parents` of the group names (`group_var_names=` of `psense`).

    **Parameters of persons** (`bayes_mdp.behaviour.fit`): posterior and prior have each parameter in its support
    (subject), the sites of the program, and `{name}_group`, the group's mean in the support; posterior_predictive the
    `chosen_action` drawn one step ahead; observed_data has it too. The log-likelihood is `chosen_action` (choice: the
    observed ones, with coordinates `choice_subject` and `choice_trial`), each given the person's past and parameters;
    or, if `log_likelihood` is "subject", `subject_integrated` (subject): all choices of a person, with the person's
    parameters integrated out. `az.loo` of the one predicts further choices of the same persons, of the other new
    persons: their numbers are not to be compared.

    **Equal weights**: the log-likelihood of what does not depend on the parameters (a pair without data, a first choice
    before anything is learnt) varies by 1e-10 over the draws: ArviZ cannot smooth equal weights.

    **Of posteriors in contexts** the group posterior alone is made: `transition_probs` and `reward_mean` with a dim
    `context` in front of the state, whose coordinates are the covariates; the sites; `{name}_columns` [column,
    outcome], the coefficients of a law on the scale of its columns. The other groups are those of `posterior.base`, the
    posterior of all contexts side by side, where chains drew it.

    Args:
        posterior: as `infer` returns it, or a mixture; or as `bayes_mdp.behaviour.fit` returns it.
        num_draws: draws per group.
        key: of all draws; None: `jax.random.key(0)`.
        log_likelihood: "transition" (needs the transitions), "cell", or "none" (no such group). None: by transition
            where they are known, else by cell where the law allows it, else none.
        data: the `Transitions`, `Log` or `Counts` that the posterior was inferred from. None: what it keeps (sums, or
            single transitions where the reward law has no sums).

    Raises:
        ValueError: an option out of range, other data than those of the posterior, draws that do not fit in memory.
        TypeError: `data` of another type, no posterior of this package.

    Example:
        >>> prior, space = bm.models.dirichlet_normal(), bm.StateActionSpace(2, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> bm.to_arviz(posterior, num_draws=10)["posterior"]["transition_probs"].dims
        ('chain', 'draw', 'state', 'action', 'next_state')
    """
    if isinstance(posterior, BehaviourPosterior):
        return as_tree(_of_behaviour(posterior, num_draws, key, log_likelihood, data))
    if isinstance(posterior, HoldsDraws):
        return as_tree({"posterior": _draws_dataset(posterior, num_draws)})
    if isinstance(posterior, ContextPosterior):
        return as_tree({"posterior": _contexts_dataset(posterior, num_draws, key_or_first(key))})
    check_posterior(posterior, num_draws)
    key = key_or_first(key)
    present = contents(posterior, data, log_likelihood)
    builder, groups = _builder_that_fits(posterior, num_draws, key, present, log_likelihood)
    with stage("to_arviz"):
        made = {name: getattr(builder, name)() for name in groups}
    return as_tree(made)


def _draws_dataset(posterior: HoldsDraws, num_draws: int) -> xr.Dataset:
    """Draws of another program as they are, the same number of each chain, evenly spaced."""
    check_count("num_draws", num_draws)
    space = posterior.space
    axes = {**coordinates(space)}
    pair = PLATE_NAMES[-len(space.shape) :]
    dims = {"transition_probs": (*pair, outcome_axis(space)), "reward_mean": pair}
    made = {}
    for name, values in posterior.by_chain().items():
        chains, num_held = values.shape[:2]
        number = min(num_held, max(1, num_draws // chains))
        axes |= {"chain": np.arange(chains), "draw": np.arange(number)}
        # Evenly spaced within every chain.
        made[name] = (("chain", "draw", *dims[name]), values[:, np.arange(number) * num_held // number])
    attributes = {"method": "given draws", "left_out": "all other groups: draws of another program hold no data"}
    return xr.Dataset(made, axes, attributes)


def _contexts_dataset(posterior: ContextPosterior, num_draws: int, key: PRNGKeyArray) -> xr.Dataset:
    """Draws in every context; of beliefs by context as many draws of each."""
    check_count("num_draws", num_draws)
    space, contexts = posterior.space, posterior.contexts
    drawn, index = posterior.draw_tables(key, num_draws)
    # Draws that no chain made are one chain, which an attribute says.
    chains = posterior.num_chains
    number = len(drawn.rows) // chains
    pair = ("context", "state", "action")
    axes: dict[str, Coordinate] = dict(coordinates(space.alone))
    axes |= {"chain": np.arange(chains), "draw": np.arange(number)}
    axes["context"] = np.array([str(label) for label in contexts.labels])
    axes |= {column.name: ("context", coordinate_labels(list(column.labels))) for column in contexts.columns}

    def by_chain(values: np.ndarray) -> np.ndarray:
        return values.reshape(chains, number, *values.shape[1:])

    made: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        "transition_probs": ((*SAMPLE_DIMS, *pair, outcome_axis(space)), by_chain(drawn.rows)),
        "reward_mean": ((*SAMPLE_DIMS, *pair), by_chain(drawn.reward)),
    }
    for name, values in (posterior.sites or {}).items():
        by_draw = by_chain(np.asarray(values)[index])
        taken = name in made or name in axes
        # A site must not take the name of a table or of an axis.
        variable = name + SUFFIX if taken else name
        made[variable] = ((*SAMPLE_DIMS, *(f"{variable}_dim_{i}" for i in range(by_draw.ndim - 2))), by_draw)
    for law in posterior.laws:
        # The draws of sites are those of the tables.
        if posterior.sites is not None and law.sites[0] in posterior.sites:
            dims = (f"{law.name}_column", f"{law.name}_outcome")
            axes |= {dims[0]: np.array(law.design.names), dims[1]: np.array(law.outcomes)}
            by_draw = by_chain(posterior.coefficient_draws(law.name)[index])
            # Coefficients by the names of their columns, in the units of these.
            made[f"{law.name}_columns"] = ((*SAMPLE_DIMS, *dims), by_draw)
    attributes = {"method": posterior.method, "left_out": "all other groups: to_arviz(posterior.base) has them"}
    if chains == 1:
        attributes["no_markov_chains"] = "draws of equal weight, cut from no chain"
    return xr.Dataset(made, axes, attributes)


def _of_behaviour(
    posterior: BehaviourPosterior,
    num_draws: int,
    key: PRNGKeyArray | None,
    log_likelihood: str | None,
    data: Data,
    wanted: Sequence[str] = BEHAVIOUR_GROUPS,
) -> dict[str, xr.Dataset]:
    if data is not None:
        raise ValueError("data is given, expected None: the posterior of a behaviour model keeps its choices")
    key = key_or_first(key)
    return behaviour_groups(posterior, num_draws=num_draws, key=key, log_likelihood=log_likelihood, wanted=wanted)


def _builder_that_fits(
    posterior: Fitted, num_draws: int, key: PRNGKeyArray, available: Contents, log_likelihood: str | None
) -> tuple[GroupBuilder, list[str]]:
    """The builder and the groups that it makes: all that there are, but for those that do not fit in memory.

    Raises:
        ValueError: not even the draws fit.
    """
    # One group after the other is dropped, the least missed first, until the rest fits; not a log-likelihood that was
    # asked for.
    droppable = [name for name in OPTIONAL if log_likelihood is None or name != "log_likelihood"]
    while True:
        groups = [name for name in GROUPS if name not in available.left_out]
        builder = GroupBuilder(posterior, num_draws, key, available)
        try:
            builder.check_size(groups)
        except ValueError:
            name = next((name for name in droppable if name in groups), None)
            if name is None:
                raise
            why = f"{num_draws} draws of it would not fit in memory beside the other groups"
            available = available._replace(left_out={**available.left_out, name: why})
        else:
            return builder, groups


def dataset(
    posterior: Fitted | BehaviourPosterior,
    group: str = "posterior",
    *,
    num_draws: int = 1000,
    key: PRNGKeyArray | None = None,
    log_likelihood: str | None = None,
    data: Data = None,
) -> xr.Dataset:
    """One group of `to_arviz`, with the same draws, as a Dataset: input to ArviZ's statistics in 0.x and 1.x.

    Args:
        posterior, num_draws, key, log_likelihood, data: as for `to_arviz`.
        group: name of the group.

    Raises:
        ValueError, TypeError: as `to_arviz`; a group that does not exist, or not for this posterior.

    Example:
        >>> from bayes_mdp.calibration.arviz.export import dataset
        >>> prior, space = bm.models.dirichlet_normal(), bm.StateActionSpace(2, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> dataset(posterior, num_draws=10)["transition"].dims
        ('chain', 'draw', 'state', 'action', 'next_state')
    """
    if isinstance(posterior, BehaviourPosterior):
        check_name("group", group, BEHAVIOUR_GROUPS)
        groups = _of_behaviour(posterior, num_draws, key, log_likelihood, data, (group,))
        if group not in groups:
            raise ValueError(f"group is {group!r}, expected another: log_likelihood is 'none'")
        return groups[group]
    check_name("group", group, GROUPS)
    check_posterior(posterior, num_draws)
    key = key_or_first(key)
    present = contents(posterior, data, log_likelihood)
    if group in present.left_out:
        raise ValueError(f"group is {group!r}, expected another: {present.left_out[group]}")
    # Only what this group takes is checked: the whole tree may be too large.
    builder = GroupBuilder(posterior, num_draws, key, present)
    builder.check_size((group,))
    made: xr.Dataset = getattr(builder, group)()
    return made
