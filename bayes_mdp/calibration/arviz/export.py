"""A posterior for ArviZ, as the groups of the InferenceData schema: `to_arviz`, `dataset`. Host-side."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import cached_property

import jax
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

import bayes_mdp
from bayes_mdp.calibration.arviz.generation import Tree, arviz, generation
from bayes_mdp.calibration.belief import replicates as predictive
from bayes_mdp.calibration.belief.observed_data import Data, Rows, known_rewards, observe, rewards_by_outcome
from bayes_mdp.calibration.belief.parameter_draws import (
    NO_ATTRIBUTES,
    Attributes,
    Draws,
    Run,
    check_draws,
    draw,
    generator,
)
from bayes_mdp.calibration.belief.posterior_views import (
    FittedPosterior,
    chains_of,
    check_posterior,
    has_prior,
    key_or_first,
    program_of,
    reference,
)
from bayes_mdp.calibration.belief.prior_density import draw_prior, site_dims
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.mixtures.mixture import Mixture
from bayes_mdp.mdp.labels import OUTCOME, coordinates
from bayes_mdp.mdp.space import PLATE_NAMES
from bayes_mdp.mdp.validation import check_name

GROUPS = (
    "posterior",
    "posterior_predictive",
    "log_likelihood",
    "prior",
    "prior_predictive",
    "observed_data",
    "constant_data",
    "sample_stats",
)
Coordinate = np.ndarray | tuple[str, np.ndarray]  # values, or (dimension, values)
UNITS = ("transition", "cell")
SAMPLE_DIMS = ("chain", "draw")


def to_arviz(
    posterior: FittedPosterior,
    *,
    num_draws: int = 1000,
    key: PRNGKeyArray | None = None,
    log_likelihood: str | None = None,
    data: Data = None,
) -> Tree:
    """The posterior as `InferenceData` (ArviZ 0.x) or `xarray.DataTree` (1.x), groups as in the InferenceData schema.

    Variables, and their dims beside chain and draw:

    * posterior, prior: `transition_probs` (state, action, next_state), `reward_mean` (state, action), and
      `reward_precision` if the noise of the rewards is unknown; and, by name, the hyperparameters of a collapsed
      posterior or every latent site of a sampled one (axes that are plates of the space have their names);
    * posterior_predictive, prior_predictive, observed_data: `transition_counts` (state, action, next_state) and
      `reward_total` (state, action); with the transitions themselves as `data`, `observed_next_state` (index of the
      outcome) and `observed_reward` (transition) instead;
    * log_likelihood: `observed_transition` (transition) or `observed_cell` (cell);
    * sample_stats: `diverging`, `acceptance_rate`, `n_steps`, `lp` (chain, draw), if chains were run;
    * constant_data: fixed in all replicates, `visit_counts` and `reward_count` (state, action); known rewards.

    In a space with a horizon, `step` comes first; rewards that depend on the outcome have `next_state` last; if
    episodes can end, the last `next_state` is "end". Coordinates are the names of the space, as text if NetCDF cannot
    hold them (tuples, mixed kinds). `reward_mean` is the expected reward: a probability for Bernoulli rewards, a rate
    for Poisson.

    **Draws of an exact posterior are independent**, in one chain: the effective sample size is about the number of
    draws, r-hat is not informative, and LOO uses a relative efficiency of 1. Draws of a collapsed or sampled posterior
    keep their chains, thinned evenly to `num_draws` in all (each draw of the hyperparameters with one exact draw of
    rows and rewards). If new data have changed the weights of the draws, they are resampled by weight into one chain,
    and the attributes `weighted_draws` and `weights_ess` are set.

    **A replicate** repeats the transitions from the same pairs: every pair is visited as often as in the data, and
    every observed reward is drawn again (given its observed outcome, if rewards depend on it). It is not a new
    trajectory: the visits are fixed.

    **The log-likelihood** is log p(next state, reward | state, action, draw), one number per transition, or per
    visited pair ("cell": the sum over its transitions). `az.loo` on transitions compares priors; on cells it predicts
    each row from the other rows, and a large Pareto k shows where that approximation fails.

    Args:
        posterior: as `infer` returns it, or a mixture.
        num_draws: draws per group.
        key: of all draws; None: `jax.random.key(0)`.
        log_likelihood: None (no such group), "transition" (needs `data`) or "cell".
        data: the `Transitions`, `Log` or `Counts` that the posterior was inferred from. None: the sums that it keeps.

    Raises:
        ValueError: an option out of range, other data than those of the posterior, groups that do not fit in memory.
        TypeError: `data` of another type, no posterior of this package.
    """
    check_posterior(posterior, num_draws)
    wanted = [g for g in GROUPS if g != "log_likelihood" or log_likelihood is not None]
    wanted = [g for g in wanted if has_prior(posterior) or g not in ("prior", "prior_predictive")]
    wanted = [g for g in wanted if chains_of(posterior) is not None or g != "sample_stats"]
    made = groups(posterior, wanted, num_draws=num_draws, key=key, log_likelihood=log_likelihood, data=data)
    return _tree(made)


def dataset(
    posterior: FittedPosterior,
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
        ValueError, TypeError: as `to_arviz`; a group that does not exist.
    """
    check_name("group", group, GROUPS)
    if group == "sample_stats" and chains_of(posterior) is None:
        raise ValueError("group is 'sample_stats', expected another: no chains were run for this posterior")
    made = groups(posterior, (group,), num_draws=num_draws, key=key, log_likelihood=log_likelihood, data=data)
    return made[group]


def _tree(made: dict[str, xr.Dataset]) -> Tree:
    """The groups in the container of the installed ArviZ."""
    if generation() >= 1:
        return xr.DataTree.from_dict({f"/{name}": group for name, group in made.items()})
    return arviz().InferenceData(**made)


def groups(
    posterior: FittedPosterior,
    wanted: Collection[str],
    *,
    num_draws: int,
    key: PRNGKeyArray | None,
    log_likelihood: str | None,
    data: Data,
) -> dict[str, xr.Dataset]:
    """The `wanted` groups (of `GROUPS`). Arguments and errors: as `to_arviz`."""
    check_posterior(posterior, num_draws)
    if log_likelihood not in UNITS and ("log_likelihood" in wanted or log_likelihood is not None):
        raise ValueError(f"log_likelihood is {log_likelihood!r}, expected 'transition' or 'cell'")
    builder = _Builder(posterior, num_draws, key_or_first(key), log_likelihood, data)
    builder.check_size(wanted)
    return {name: getattr(builder, name)() for name in wanted}


class _Builder:
    """Makes the groups of one posterior; draws are made once, when a group first needs them."""

    def __init__(
        self, posterior: FittedPosterior, num_draws: int, key: PRNGKeyArray, unit: str | None, data: Data
    ) -> None:
        self._posterior, self._num_draws, self._unit = posterior, num_draws, unit
        self._reference = reference(posterior)
        self._rows, self._cells = observe(self._reference, data)
        if unit == "transition" and self._rows is None:
            raise ValueError("data holds no transitions, expected those that the posterior was inferred from")
        names = ("posterior", "prior", "posterior_predictive", "prior_predictive")
        self._keys: dict[str, PRNGKeyArray] = dict(zip(names, jax.random.split(key, len(names)), strict=True))
        self._axes = coordinates(posterior.space)
        pair = PLATE_NAMES[-len(posterior.space.shape) :]
        reward = (*pair, OUTCOME) if rewards_by_outcome(self._reference) else pair
        self._dims = {
            **dict.fromkeys(("transition_probs", "transition_counts"), (*pair, OUTCOME)),
            **dict.fromkeys(("reward_mean", "reward_precision", "reward_total", "reward_count"), reward),
            **dict.fromkeys(("observed_next_state", "observed_reward", "observed_transition"), ("transition",)),
            "observed_cell": ("cell",),
            "visit_counts": pair,
        }
        self._taken = frozenset(self._dims)

    @cached_property
    def _draws(self) -> Draws:
        return draw(self._keys["posterior"], self._posterior, self._num_draws)

    @cached_property
    def _prior_draws(self) -> Draws:
        return draw_prior(self._keys["prior"], self._posterior, self._num_draws)

    @cached_property
    def _own_attributes(self) -> dict[str, str | float]:
        """How the posterior was inferred."""
        posterior = self._posterior
        found: dict[str, str | float] = {"inference_method": posterior.method}
        if isinstance(posterior, ConjugatePosterior) or (
            isinstance(posterior, Mixture) and posterior.log_prior is not None
        ):
            found["log_evidence"] = float(posterior.log_evidence)
        return found

    def posterior(self) -> xr.Dataset:
        return self._sampled(self._parameters(self._draws), self._draws.run)

    def prior(self) -> xr.Dataset:
        return self._sampled(self._parameters(self._prior_draws), self._prior_draws.run)

    def posterior_predictive(self) -> xr.Dataset:
        return self._sampled(self._replicates("posterior_predictive", self._draws), self._draws.run)

    def prior_predictive(self) -> xr.Dataset:
        return self._sampled(self._replicates("prior_predictive", self._prior_draws), self._prior_draws.run)

    def log_likelihood(self) -> xr.Dataset:
        draws = self._draws
        if self._unit == "transition":
            return self._sampled(
                {"observed_transition": predictive.log_likelihood_rows(draws, self._transitions)}, draws.run
            )
        return self._sampled({"observed_cell": predictive.log_likelihood_cells(draws, self._cells)}, draws.run)

    @property
    def _transitions(self) -> Rows:
        assert self._rows is not None  # checked in __init__
        return self._rows

    def sample_stats(self) -> xr.Dataset:
        return self._sampled(dict(self._draws.run.stats), self._draws.run)

    def observed_data(self) -> xr.Dataset:
        has_rewards = known_rewards(self._reference) is None
        if self._rows is not None:
            return self._dataset(predictive.observed_rows(self._rows, has_rewards), ())
        return self._dataset(predictive.observed_cells(self._cells, has_rewards), ())

    def constant_data(self) -> xr.Dataset:
        known, counts = known_rewards(self._reference), self._cells.transition_counts
        held = {"reward_count": self._cells.rewards.count} if known is None else {"reward_mean": known}
        return self._dataset({"visit_counts": counts.sum(-1), **held}, ())

    def check_size(self, wanted: Collection[str]) -> None:
        """Refuse groups that would not fit in memory, before a draw is made."""
        probs = self._cells.transition_counts.size
        reward = 16 * self._cells.rewards.count.size
        number = 0 if self._rows is None else self._rows.outcome.size
        replicate = 4 * probs + reward if self._rows is None else 8 * number
        unit = 8 * self._cells.tried[0].size if self._unit == "cell" else replicate
        sizes = {"posterior_predictive": replicate, "log_likelihood": unit, "prior_predictive": replicate}
        # The prior has draws of its own.
        sizes["prior"] = 2 * 4 * probs + reward
        of_rows = number if {"posterior_predictive", "prior_predictive", "log_likelihood"} & set(wanted) else 0
        beside = float(sum(sizes.get(name, 0) for name in wanted))
        check_draws(self._posterior, self._num_draws, of_rows, beside)

    def _replicates(self, group: str, draws: Draws) -> dict[str, np.ndarray]:
        rng = generator(self._keys[group])
        if self._rows is not None:
            return predictive.replicate_rows(rng, draws, self._rows)
        return predictive.replicate_cells(rng, draws, self._cells)

    def _parameters(self, draws: Draws) -> dict[str, np.ndarray]:
        """Unknown quantities as variables: rows and rewards, then the sites of the program."""
        named = zip(draws.names, draws.parameters[: len(draws.names)], strict=True)
        shown = {"transition_probs": draws.transition_probs, **dict(named)}
        for name, values in draws.run.sites.items():
            variable = f"{name}_site" if name in self._taken else name
            shown[variable] = values
            self._dims[variable] = self._site_dims(name, values.shape[1:])
        return shown

    def _site_dims(self, name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Plates of the space by their names; any other axis as ArviZ calls it."""
        axes = self._plates.get(name, (None,) * len(shape))
        return tuple(axis or f"{name}_dim_{i}" for i, axis in enumerate(axes))

    @cached_property
    def _plates(self) -> dict[str, tuple[str | None, ...]]:
        program = program_of(self._posterior)
        return {} if program is None else site_dims(program, self._posterior.space)

    def _sampled(self, variables: dict[str, np.ndarray], run: Run) -> xr.Dataset:
        """Arrays [N ...] by chain and draw."""
        split = {name: x.reshape(run.num_chains, -1, *x.shape[1:]) for name, x in variables.items()}
        return self._dataset(split, SAMPLE_DIMS, run.attributes)

    def _dataset(
        self, variables: Mapping[str, np.ndarray], lead: tuple[str, ...], attributes: Attributes = NO_ATTRIBUTES
    ) -> xr.Dataset:
        arrays = {name: ((*lead, *self._dims.get(name, ())), values) for name, values in variables.items()}
        sizes = {dim: size for dims, x in arrays.values() for dim, size in zip(dims, x.shape, strict=True)}
        axes = {**{dim: np.arange(size) for dim, size in sizes.items()}, **self._axes}
        coords: dict[str, Coordinate] = {name: axis for name, axis in axes.items() if name in sizes}
        if "transition" in sizes:
            coords.update(item_coordinates("transition", self._transitions.cell, self._axes))
        if "cell" in sizes:
            coords.update(item_coordinates("cell", self._cells.tried, self._axes))
        return xr.Dataset(arrays, coords=coords, attrs={**self._attributes(lead), **attributes})

    def _attributes(self, lead: tuple[str, ...]) -> dict[str, str | float | list[str]]:
        """The attributes of a group that the schema requires."""
        return {
            "created_at": datetime.now(UTC).isoformat(),
            "creation_library": "bayes_mdp",
            "creation_library_version": bayes_mdp.__version__,
            "inference_library": "bayes_mdp",
            "inference_library_version": bayes_mdp.__version__,
            **self._own_attributes,
            "sample_dims": list(lead),
        }


def item_coordinates(unit: str, cell: tuple[np.ndarray, ...], axes: dict[str, np.ndarray]) -> dict[str, Coordinate]:
    """Labels along the dimension `unit`, and the (step,) state and action of each as `{unit}_state`, `{unit}_action`.

    Transitions are numbered; a "cell" is called "state, action".
    """
    parts = {name: axes[name][index] for name, index in zip(PLATE_NAMES[-len(cell) :], cell, strict=True)}
    number = np.arange(cell[0].size)
    text = np.asarray([", ".join(map(str, each)) for each in zip(*parts.values(), strict=True)], dtype=str)
    return {unit: number if unit == "transition" else text, **{f"{unit}_{n}": (unit, x) for n, x in parts.items()}}
