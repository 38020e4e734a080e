"""Running a NumPyro kernel, several chains side by side, and saying what is wrong with them.

Diagnosed are the scalars of the sites, and transition probabilities and mean rewards as functions of the draws. Of a
sampled posterior these are the tables of each draw; of a collapsed one, what the conjugate sites are expected to be
given the hyperparameters. Elements that are the same function of the draws (rows without data under one prior, say) are
there once. Host side.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Bool, Float, Int, PRNGKeyArray, PyTree, Shaped
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import HMC, MCMC, NUTS, DiscreteHMCGibbs, HMCGibbs, init_to_sample
from numpyro.infer.mcmc import MCMCKernel

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.detection.trace import unique_names
from bayes_mdp.inference.draws import methods
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.utils.messages import count_of, see
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_bool, first_index

NUMBERS_AT_ONCE = 2**22
CONSTANT = 1e-5  # relative range below which an element is a constant but for rounding


class Scalars(NamedTuple):
    """Some of the elements of one table, a few at a time.

    Args:
        places: [E], place of each different element.
        block: places [e] -> Float64[C N e], their values in the draws of the chains.
        element: place -> index in the table over (step,) state, action (, outcome).
    """

    places: Int[np.ndarray, " E"]
    block: Callable[[Int[np.ndarray, " e"]], Float[np.ndarray, "C N e"]]
    element: Callable[[int], tuple[int, ...]]

    def measure(
        self, statistic: Callable[[Float[np.ndarray, "C N e"]], Float[np.ndarray, " e"]], num_draws: int
    ) -> Float[np.ndarray, " E"]:
        """A statistic [C N e] -> [e] of every element; nan for those that are constant."""
        size = max(1, NUMBERS_AT_ONCE // num_draws)
        # A few elements at a time: the tables of all draws would be S A O times the draws.
        parts = [statistic(self.steady(self.places[i : i + size])) for i in range(0, len(self.places), size)]
        return np.concatenate([np.zeros(0), *parts])

    def steady(self, places: Int[np.ndarray, " e"]) -> Float[np.ndarray, "C N e"]:
        """The values at flat places; what moves by rounding alone, or is no number in some draw, is made constant."""
        values = np.array(self.block(places), np.float64)
        finite = np.isfinite(values).all((0, 1))
        size = np.abs(values).max((0, 1), initial=0.0)
        with np.errstate(invalid="ignore"):
            extent = values.max((0, 1)) - values.min((0, 1))
            # A number that moves by rounding alone would have an r-hat of its rounding errors.
            constant = ~finite | ~(extent > CONSTANT * size)
        values[..., constant] = 0.0
        return values


def of_array(values: Float[np.ndarray, "M ..."], split: tuple[int, int]) -> Scalars:
    """Of draws [C * N ...], one chain after the other."""
    flat = values.reshape(*split, -1)
    return Scalars(
        np.arange(flat.shape[-1]),
        lambda places: flat[..., places],
        lambda place: tuple(int(i) for i in np.unravel_index(place, values.shape[1:])),
    )


def of_conjugate_sites(
    data_statistics: ConjugatePosterior, prior: Sequence[tuple[AnyArray, AnyArray]], split: tuple[int, int]
) -> Iterator[tuple[str, Scalars]]:
    """Conjugate rows [M K] and rewards [L] integrated out of a model: their means given each draw of the rest.

    Args:
        data_statistics: the statistics of all data.
        prior: for each prior parameter array, its values [C * N G] and the index into G of each entry.
        split: (C, N), chains and draws of each.
    """
    rows, rewards = data_statistics.transition_probs, data_statistics.reward_cells
    values, index = [np.asarray(v, np.float64) for v, _ in prior], [np.asarray(i) for _, i in prior]
    # Conjugate rows given a draw of their prior: (concentration + counts) / sum.
    counts = np.asarray(rows.dense_counts, np.float64)
    columns = counts.shape[-1]

    def probs(places: Int[np.ndarray, " e"]) -> Float[np.ndarray, "C N e"]:
        row, column = np.divmod(places, columns)
        # Concentrations are normalised once for each different row.
        different, row_number = np.unique(row, return_inverse=True)
        concentration = values[0][:, index[0][different]] + counts[different]
        mean = concentration / concentration.sum(-1, keepdims=True)
        return mean[:, row_number, column].reshape(*split, -1)

    # Rows of the same prior parameters and the same counts are one function of the draws: they are kept once.
    classes = np.concatenate([index[0].reshape(counts.shape), counts], axis=-1)
    first = np.sort(np.unique(classes, axis=0, return_index=True)[1])
    places = (first[:, None] * columns + np.arange(columns)).ravel()
    # An element of the table back to the first pair and outcome that reads it.
    row_table = np.arange(len(counts)).reshape(rows.shape[:-1]) if rows.row is None else np.asarray(rows.row)

    def outcome(place: int) -> tuple[int, ...]:
        pair = _first(row_table, place // columns)
        column = np.arange(columns) if rows.column is None else np.broadcast_to(rows.column, rows.shape)[pair]
        return (*pair, *_first(column, place % columns))

    yield "transition_probs", Scalars(places, probs, outcome)
    if not isinstance(rewards, RewardCells):
        return
    data = np.asarray(rewards.data, np.float64)

    def means(places: Int[np.ndarray, " e"]) -> Float[np.ndarray, "C N e"]:
        # Leaves of the prior belief at these cells for each draw, [C N e ...]; data are the same for all of them.
        leaves = [v[:, i[places]] for v, i in zip(values[1:], index[1:], strict=True)]
        belief = jax.tree.unflatten(jax.tree.structure(rewards.prior), leaves)
        with jax.enable_x64(True):
            return np.asarray(belief.after(data[places]).mean()).reshape(*split, -1)

    # Rewards of one prior and one set of statistics are one function of the draws too.
    classes = np.concatenate([*(i.reshape(len(data), -1) for i in index[1:]), data], axis=-1)
    cells = np.arange(len(data)).reshape(rewards.shape) if rewards.cell is None else np.asarray(rewards.cell)
    places = np.sort(np.unique(classes, axis=0, return_index=True)[1])
    yield "reward_mean", Scalars(places, means, lambda place: _first(cells, place))


def _first(table: Int[np.ndarray, "*cells"], element: int | np.integer) -> tuple[int, ...]:
    """Where an element is used first."""
    index = first_index(table == element)
    return () if index is None else index


MAX_R_HAT = 1.01
"""Vehtari et al. 2021, *Rank-normalization, folding, and localization: an improved R-hat*."""
SETTLED_R_HAT = 1.1
"""Above this chains disagree beyond doubt; a chain whose two halves agree to this has settled somewhere."""
MIN_ESS = 100.0
"""Below this the Monte Carlo error of a mean exceeds a tenth of the posterior standard deviation."""

MOST_VALUES = 16
"""A discrete site with more of them is looked at as a number."""

Model: TypeAlias = Callable[..., object]
"""A NumPyro program of one argument, the data."""
Site: TypeAlias = dict[str, Any]
"""One entry of a NumPyro trace."""
Statistic: TypeAlias = Callable[[Float[np.ndarray, "C N ..."]], Float[np.ndarray, "..."]]
"""A diagnostic of every element of an array of draws."""
NO_TABLES: Mapping[str, Scalars] = MappingProxyType({})


class SamplingWarning(UserWarning):
    """Draws that may not be draws of the posterior: what was found, and what to do."""


class Chains(eqx.Module):
    """Draws of C chains, N of each (made by `run_chains`). The methods are for one run, on the host.

    Args:
        draws: site -> [C N ...], constrained draws of every latent site.
        diverging: whether the trajectory of a draw diverged; None where the kernel does not report it.
        accept_prob: its acceptance probability; None likewise.
        num_steps: its leapfrog steps; None likewise.
        log_density: of its unconstrained values, up to a constant; None likewise.
        energy: the Hamiltonian of the trajectory at the draw (potential and kinetic energy), up to a constant; None
            likewise.
        discrete: names of the sites with a discrete support of several values.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(2, 1)
        >>> data = bm.Transitions([0, 1, 1], [0, 0, 0], [1.0, 0.0, 1.0], [1, 0, 1])
        >>> chains = bm.infer(jax.random.key(0), prior, data, space=space, method=bm.inference.NUTS(200, 300, 4)).mcmc
        >>> {name: x.shape for name, x in chains.get_samples().items()}
        {'reward': (1200, 2, 1), 'transition': (1200, 2, 1, 2)}
        >>> chains.get_samples(group_by_chain=True)["reward"].shape
        (4, 300, 2, 1)
    """

    draws: dict[str, AnyArray]
    diverging: Bool[AnyArray, "C N"] | None = None
    accept_prob: Float[AnyArray, "C N"] | None = None
    num_steps: Int[AnyArray, "C N"] | None = None
    log_density: Float[AnyArray, "C N"] | None = None
    energy: Float[AnyArray, "C N"] | None = None
    discrete: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def num_chains(self) -> int:
        """C."""
        return next(iter(self.draws.values())).shape[0]

    @property
    def num_samples(self) -> int:
        """N, of one chain."""
        return next(iter(self.draws.values())).shape[1]

    def get_samples(self, group_by_chain: bool = False) -> dict[str, Shaped[np.ndarray, "..."]]:
        """The draws as numpy arrays, as `get_samples` of NumPyro's `MCMC` has them.

        Args:
            group_by_chain: whether the chains keep an axis of their own.

        Returns:
            Site -> [C*N ...], one chain after the other, or [C N ...].

        Raises:
            TypeError: `group_by_chain` is no bool.
        """
        check_bool("group_by_chain", group_by_chain)
        draws = {name: np.asarray(x) for name, x in self.draws.items()}
        return draws if group_by_chain else {name: x.reshape(-1, *x.shape[2:]) for name, x in draws.items()}

    def are_those_of(self, sites: Mapping[str, AnyArray], number: int) -> bool:
        """Whether the draws of these sites are those of the chains, one chain after the other.

        Args:
            sites: name -> draws [N ...].
            number: N.
        """
        if self.num_chains * self.num_samples != number:
            # By value: posteriors that were thinned or reweighted have other draws than their chains.
            return False
        return all(np.array_equal(np.ravel(self.draws[name]), np.ravel(x)) for name, x in sites.items())

    def described(self) -> str:
        """How many there are, in words."""
        return f"{count_of(self.num_chains, 'chain')} of {count_of(self.num_samples, 'draw')}"

    def r_hat(self) -> dict[str, Float[np.ndarray, "..."]]:
        """Split r-hat of every element of every site; nan where it does not vary, or with under 4 draws.

        Of a discrete site: the largest of those of the indicators of its values, which are labels (as numbers, where
        there are more than 16); infinite where no chain moves and they differ.

        Returns:
            Site -> an array of the shape of one draw of the site.
        """
        return self._each(split_r_hat, np.fmax)

    def ess(self) -> dict[str, Float[np.ndarray, "..."]]:
        """Effective sample size of every element of every site; nan where it does not vary. Of a discrete site: the
        least of those of its indicators.

        Returns:
            Site -> an array of the shape of one draw of the site.
        """
        return self._each(effective_size, np.fmin)

    def problems(self, tables: Mapping[str, Scalars] = NO_TABLES) -> list[str]:
        """Problems to know of before these draws are used, one sentence each; empty: none found.

        Args:
            tables: what else follows from the draws, and must have mixed (`derived_tables` of a posterior).
        """
        # Impossible chains make every other diagnostic meaningless: they are reported alone.
        # In the order of their gravity: stuck chains explain a bad r-hat, and divergences a low effective size.
        return _impossible(self) or [
            *_stuck_chains(self),
            *_divergences(self),
            *_disagreement(self, tables),
            *_too_few(self, tables),
        ]

    def notes(self, *, whole: bool = False) -> list[str]:
        """What the draws cannot show: discrete sites that had one value in all draws of all chains. One sentence each.

        Where the data leave no doubt about the value that is as it should be; chains that cannot leave the value that
        they started from look the same. An element that is always the same but for the chain is in `problems`.

        Args:
            whole: only sites none of whose elements moved: there a branch of the program may have gone unseen.
        """
        sentences = []
        for name in self.discrete:
            values = np.asarray(self.draws[name]) if name in self.draws else np.zeros((1, 0))
            # An element that has one value in all draws of all chains.
            still = ~_varies(values)
            if still.all() if whole else still.any():
                index = tuple(int(i) for i in np.argwhere(still)[0])
                sentences.append(
                    f"discrete site {_element(name, index)} did not move: it is {values[(0, 0, *index)]} in all "
                    f"{self.num_chains * self.num_samples} draws ({still.sum()} of {still.size} elements did not); "
                    "right where the data leave no doubt, which these draws cannot show"
                )
        return sentences

    def _each(self, statistic: Statistic, worst: np.ufunc) -> dict[str, Float[np.ndarray, "..."]]:
        answers = {}
        for name, draws in self.draws.items():
            values = np.asarray(draws, np.float64)
            levels = np.unique(values) if name in self.discrete else None
            if levels is None or len(levels) > MOST_VALUES:
                answers[name] = statistic(values)
            else:
                # Labels have no order: indicators of each value are looked at, and the worst one counts.
                each = [statistic((values == level).astype(np.float64)) for level in levels]
                answers[name] = np.asarray(worst.reduce(each))
        return answers

    def _continuous(self) -> dict[str, np.ndarray]:
        """Whole numbers of a site that is not discrete are a constant: the site can have one value only."""
        sites = {k: np.asarray(x) for k, x in self.draws.items() if k not in self.discrete}
        return {k: x.astype(np.float64) for k, x in sites.items() if not np.issubdtype(x.dtype, np.integer)}


@traced_alone
def run_chains(key: PRNGKeyArray, model: Model, data: PyTree, method: methods.NUTS) -> Chains:
    """Draws from the posterior of `model(data)`. Traceable: jit it, vmap it over keys and data.

    Discrete latent sites are updated by `DiscreteHMCGibbs` (Metropolised Gibbs, Liu 1996), alone or around NUTS, unless
    they are marked `infer={"enumerate": "parallel"}`, which needs funsor.

    Args:
        key: a typed key.
        model: a NumPyro program of one argument.
        data: any pytree of arrays.
        method: how long, how many chains, which kernel.

    Raises:
        ValueError: the program has no latent site, two sites of one name, or a discrete site that cannot be enumerated.
        TypeError: `method.kernel` does not return a kernel.
    """
    # Discrete sites are updated by Gibbs steps around NUTS, but for those that funsor sums out.
    discrete, continuous, fixed = latent_sites(model, data)
    # The proper kernel by what the program holds: NUTS, Gibbs around NUTS, or the user's own.
    if not discrete and not continuous:
        raise ValueError("the program has no latent site, expected something to sample")
    kernel = _kernel(model, method, bool([site for site, enumerated in discrete.items() if not enumerated]))
    mcmc = MCMC(
        kernel,
        num_warmup=method.num_warmup,
        num_samples=method.num_samples,
        num_chains=method.num_chains,
        chain_method=_side_by_side(kernel),
        progress_bar=False,
    )
    fields = _fields(kernel)
    # Warm-up adapts step size and mass matrix; its draws are thrown away.
    mcmc.run(key, data, extra_fields=tuple(fields.values()))
    samples = mcmc.get_samples(group_by_chain=True)
    extra = mcmc.get_extra_fields(group_by_chain=True)
    seen = {name: extra.get(field) for name, field in fields.items()}
    # Potential energy is minus the log density of the unconstrained values.
    potential = seen.pop("potential_energy", None)
    return Chains(
        {name: samples[name] for name in (*discrete, *continuous) if name in samples},
        **{name: seen.get(name, extra.get(name)) for name in ("diverging", "accept_prob", "num_steps", "energy")},
        log_density=None if potential is None else -potential,
        discrete=tuple(name for name in discrete if name not in fixed),
    )


@traced_alone
def latent_sites(model: Model, data: PyTree) -> tuple[dict[str, bool], tuple[str, ...], frozenset[str]]:
    """The latent sites of `model(data)`: {discrete site: whether it is to be enumerated}, the continuous ones, and the
    discrete ones that have one value only.

    Raises:
        ValueError: two sites have one name, a discrete site has no finite list of values.
    """
    discrete, continuous, fixed = {}, [], set()
    # A fixed discrete site has one value: it cannot move, and is not judged.
    for site in trace_latents(model, data):
        if not site["fn"].support.is_discrete:
            continuous.append(site["name"])
            continue
        if not site["fn"].has_enumerate_support:
            family = type(site["fn"]).__name__
            raise ValueError(
                f"site {site['name']!r} is discrete ({family}) and has no finite list of values, expected a family "
                "that has one (Categorical, Bernoulli, DiscreteUniform), or a kernel of your own"
            )
        discrete[site["name"]] = site["infer"].get("enumerate") == "parallel"
        if _num_values(site["fn"]) == 1:
            fixed.add(site["name"])
    return discrete, tuple(continuous), frozenset(fixed)


@traced_alone
def trace_latents(model: Model, data: PyTree) -> list[Site]:
    """The latent sites of `model(data)`, traced on shapes: nothing is drawn or compiled.

    Raises:
        ValueError: two sites have one name.
    """
    sites: list[Site] = []

    # Shapes suffice: under eval_shape the program runs without a number being drawn.
    def program(key: PRNGKeyArray) -> None:
        drawn = handlers.substitute(handlers.seed(model, key), substitute_fn=init_to_sample)
        sites.extend(unique_trace(drawn, data).values())

    jax.eval_shape(program, jax.random.key(0))
    return [site for site in sites if site["type"] == "sample" and not site["is_observed"]]


def _num_values(law: dist.Distribution) -> int | None:
    """How many values a discrete law has; None: that depends on what is traced."""
    try:
        return law.enumerate_support(expand=False).shape[0]
    except NotImplementedError:
        return None


def unique_trace(program: Callable[..., object], *args: object) -> dict[str, Site]:
    """The NumPyro trace of `program(*args)`.

    Raises:
        ValueError: two sites have one name.
    """
    with unique_names():
        return handlers.trace(program).get_trace(*args)


def warn_of(problems: Sequence[str], chains: Chains | None, stacklevel: int = 3) -> None:
    """One `SamplingWarning` for each problem and each discrete site that never moved. Host side.

    Args:
        problems: of a posterior, one sentence each.
        chains: behind its draws; None: there are none.
        stacklevel: frames from here to the user's call.
    """
    stuck = [] if chains is None else chains.notes(whole=True)
    for problem in (*problems, *stuck):
        warnings.warn(f"{problem} {see('how-to/check-a-posterior')}", SamplingWarning, stacklevel=stacklevel)


def _kernel(model: Model, method: methods.NUTS, discrete: bool) -> MCMCKernel:
    if method.kernel is None:
        return DiscreteHMCGibbs(NUTS(model), modified=True) if discrete else NUTS(model)
    # Metropolised Gibbs proposes another value than the present one, which mixes faster (Liu 1996).
    kernel = method.kernel(model)
    if not isinstance(kernel, MCMCKernel):
        raise TypeError(
            f"method.kernel returned a {type(kernel).__name__}, expected a NumPyro MCMCKernel, "
            "as in NUTS(kernel=lambda model: numpyro.infer.HMC(model))"
        )
    return kernel


def _side_by_side(kernel: MCMCKernel) -> PyTree:
    """NumPyro's Gibbs kernels take one key: they are mapped from outside. HMC compiles faster from inside."""
    return "vectorized" if isinstance(kernel, HMC) or kernel.is_ensemble_kernel else jax.vmap


def _fields(kernel: MCMCKernel) -> dict[str, str]:
    """Where the state of a kernel keeps what `Chains` stores beyond the kernel's default fields."""
    # Where the discrete sites are moved by Gibbs steps, HMC's numbers lie in an inner state.
    names = ("diverging", "accept_prob", "num_steps", "potential_energy", "energy")
    if isinstance(kernel, HMC):
        return {name: name for name in names}
    if isinstance(kernel, DiscreteHMCGibbs | HMCGibbs):
        return {name: f"hmc_state.{name}" for name in names}
    return {}


def split_r_hat(values: Float[np.ndarray, "C N ..."]) -> Float[np.ndarray, "..."]:
    """Split r-hat of every element, by NumPyro; nan where it does not vary, or with under 4 draws a chain."""
    if values.shape[1] < 4:
        return np.full(values.shape[2:], np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Halves of chains compared (Gelman and Rubin 1992): a chain that drifts disagrees with itself.
        return np.where(_varies(values), split_gelman_rubin(values), np.nan)


def effective_size(values: Float[np.ndarray, "C N ..."]) -> Float[np.ndarray, "..."]:
    """Effective sample size of every element, by NumPyro; nan where no chain moves, or with one draw a chain."""
    if values.shape[1] < 2:
        return np.full(values.shape[2:], np.nan)
    # A constant element has no autocorrelation: nan instead of a division by zero.
    moves = (values != values[:, :1]).any((0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(moves, effective_sample_size(values), np.nan)


def _varies(values: Shaped[np.ndarray, "C N ..."]) -> Bool[np.ndarray, "..."] | np.bool_:
    return (values != values[:1, :1]).any((0, 1))


def _impossible(chains: Chains) -> list[str]:
    """Chains that never saw a finite log density, or whose draws are no numbers."""
    bad = np.zeros(chains.num_chains, bool)
    if chains.log_density is not None:
        # A chain without one finite density started, and stayed, where the data are impossible.
        bad = ~np.isfinite(np.asarray(chains.log_density)).any(1)
    if not bad.any():
        lost = [name for name, values in chains._continuous().items() if not np.isfinite(values).all()]
        return [f"site {name!r} has draws that are not finite: reparametrise, or start elsewhere" for name in lost]
    which_chains = "every chain" if bad.all() else f"chains {np.flatnonzero(bad).tolist()}"
    return [
        f"the log density is not finite at any draw of {which_chains}: the data are impossible under the prior "
        "wherever it looked; compare the rewards with the support of the reward law, the transitions with rows "
        "that hold zeros, or start elsewhere (a kernel of your own with init_strategy=)"
    ]


def _stuck_chains(chains: Chains) -> list[str]:
    sites = chains._continuous()
    still = np.full(chains.num_chains, bool(sites) and chains.num_samples > 1)
    # A chain stands still if every element of every site has the value of its first draw.
    for values in sites.values():
        flat = values.reshape(*values.shape[:2], -1)
        still &= (flat == flat[:, :1]).all((1, 2))
    if not still.any():
        return _stuck_labels(chains)
    return [
        f"{still.sum()} of {chains.num_chains} chains did not move (chains {np.flatnonzero(still).tolist()}): their "
        "draws are one point; give more warm-up (num_warmup=), or a kernel of your own with a smaller step_size"
    ]


def _stuck_labels(chains: Chains) -> list[str]:
    """Discrete sites that no chain ever changed, and that differ between chains."""
    for name in chains.discrete:
        values = np.asarray(chains.draws.get(name, np.zeros((1, 1))))
        # Constant within each chain, different between them: the Gibbs steps never left where they began.
        stuck = (values == values[:, :1]).all((0, 1)) & (values != values[:1, :1]).any((0, 1))
        if stuck.any():
            index = tuple(int(i) for i in np.argwhere(stuck)[0])
            first = values[(slice(None), 0, *index)].tolist()
            return [
                f"discrete site {_element(name, index)} never changed within a chain and differs between them "
                f"({first}, {stuck.sum()} of {stuck.size} elements): the draws do not show how probable these values "
                'are; sum it out (infer={"enumerate": "parallel"}, needs funsor), or give each value a posterior of '
                "its own and join them by bayes_mdp.inference.mixture"
            ]
    return []


def _divergences(chains: Chains) -> list[str]:
    if chains.diverging is None or not np.any(np.asarray(chains.diverging)):
        return []
    diverging = np.asarray(chains.diverging)
    return [
        f"{diverging.sum()} of {diverging.size} draws diverged ({diverging.mean():.1%}): the draws miss the narrow "
        "parts of the posterior; reparametrise (a scale above its sites: numpyro.infer.reparam.LocScaleReparam), or "
        "take smaller steps: NUTS(kernel=lambda model: numpyro.infer.NUTS(model, target_accept_prob=0.95))"
    ]


def _disagreement(chains: Chains, tables: Mapping[str, Scalars]) -> list[str]:
    # Where no chain moves an infinite r-hat has been reported already.
    r_hat = {name: np.where(np.isinf(draws), np.nan, draws) for name, draws in chains.r_hat().items()}
    # The worst of sites and of what follows from them; sites first, since those can be reparametrised.
    worst, high, total = _worst(r_hat, _measure(chains, tables, split_r_hat), MAX_R_HAT)
    if worst is None:
        return []
    name, index, value = worst
    label, draws = _values_of(chains, tables, name, index)
    text = f"r-hat of {label} is {value:.3f} ({high} of {total} elements above {MAX_R_HAT}): "
    means = ", ".join(f"{mean:.3g}" for mean in draws.mean(1))
    if name in chains.discrete:
        return [
            text + f"the chains disagree on how probable its values are (means {means}); give more draws "
            "(num_samples=), or give each value a posterior of its own and join them by bayes_mdp.inference.mixture"
        ]
    # Each chain by itself is stationary but they disagree: several modes, which no longer run will join.
    # The same diagnostic on one chain alone compares its two halves.
    settled = [split_r_hat(chain[None]) for chain in draws]
    if value > SETTLED_R_HAT and not np.any(np.asarray(settled) > SETTLED_R_HAT):
        return [
            text + f"each chain has settled, on another value (means {means}): the posterior has several modes, which "
            "more warm-up will not join; where labels can be swapped (components of a mixture), order them in the "
            "prior, or read only what does not depend on the labels"
        ]
    return [
        text + "the chains have not yet mixed; give more warm-up and more draws (num_warmup=, num_samples=), or "
        "reparametrise"
    ]


def _too_few(chains: Chains, tables: Mapping[str, Scalars]) -> list[str]:
    sizes = chains.ess(), _measure(chains, tables, effective_size)
    # Negated, so that the largest is the worst, as of r-hat.
    sites, of_tables = ({name: np.asarray(-size) for name, size in sizes_by_name.items()} for sizes_by_name in sizes)
    worst, low, total = _worst(sites, of_tables, -MIN_ESS)
    if worst is None:
        return []
    name, index, value = worst
    return [
        f"the effective sample size of {_values_of(chains, tables, name, index)[0]} is {max(-value, 1.0):.0f} of "
        f"{chains.num_chains * chains.num_samples} draws ({low} of {total} elements below {MIN_ESS:.0f}): give more "
        "draws (num_samples=), or reparametrise"
    ]


def _measure(
    chains: Chains, tables: Mapping[str, Scalars], statistic: Statistic
) -> dict[str, Float[np.ndarray, "..."]]:
    number = chains.num_chains * chains.num_samples
    # A table under the name of a site would be counted twice.
    return {name: table.measure(statistic, number) for name, table in tables.items() if name not in chains.draws}


def _values_of(
    chains: Chains, tables: Mapping[str, Scalars], name: str, index: tuple[int, ...]
) -> tuple[str, Float[np.ndarray, "C N"]]:
    """A scalar in words, and its draws."""
    if name in chains.draws:
        values = np.asarray(chains.draws[name], np.float64)[(slice(None), slice(None), *index)]
        return f"site {_element(name, index)}", values
    place = tables[name].places[index]
    return f"{name}{list(tables[name].element(int(place)))}", tables[name].steady(np.array([place]))[..., 0]


def _worst(
    sites: dict[str, np.ndarray], tables: dict[str, np.ndarray], limit: float
) -> tuple[tuple[str, tuple[int, ...], float] | None, int, int]:
    """(name, index, value) of the largest element if it exceeds `limit`, how many do, of how many.

    That of a site, where one does: what follows from it need not be named.
    """
    worst, num_above, total = None, 0, 0
    for values in (sites, tables):
        known = worst is not None
        for name, array in values.items():
            num_above, total = num_above + int((array > limit).sum()), total + array.size
            if known or not (array > limit).any():
                continue
            index = tuple(int(i) for i in np.unravel_index(np.nanargmax(array), array.shape))
            if worst is None or array[index] > worst[2]:
                worst = (name, index, float(array[index]))
    return worst, num_above, total


def _element(name: str, index: tuple[int, ...]) -> str:
    return f"{name!r}{list(index) if index else ''}"
