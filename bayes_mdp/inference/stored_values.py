"""What the numbers of a saved posterior must be: one check for each kind of posterior, which `load` calls.

A checksum tells that a file is as it was written, not who wrote it. A number that no posterior can have (a negative
concentration, counts of nan, an index beyond its table) is refused here, by name and first place.
Components of a mixture have one leading axis more; the checks look at the last axes.
"""

import math
from collections.abc import Callable, Mapping

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Bool, Int

from bayes_mdp.inference.collapsed.collapsed_posterior import CollapsedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.regression import RegressionRewards
from bayes_mdp.inference.conjugate.reward_cells import RewardCells, unshared
from bayes_mdp.inference.conjugate.rewards import KnownRewards, Rewards
from bayes_mdp.inference.conjugate.site_table import Sites, SiteTable, is_injective
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.draws.weighted_samples import CountedSamples, PosteriorSamples
from bayes_mdp.inference.factorised.sampled_rewards import SampledRewards
from bayes_mdp.inference.mixtures.mixture import Mixture
from bayes_mdp.inference.pooled.pooled_posterior import PooledPosterior
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics, Rows
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
from bayes_mdp.mdp import Counts, StateActionSpace
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.utils.typing import AnyArray, ArrayLike
from bayes_mdp.utils.validation import (
    ROW_SUM_TOLERANCE,
    check_count,
    check_finite,
    check_fraction,
    check_initial,
    check_not_negative,
    check_positive,
    check_shape,
    require,
)


def check_stored(posterior: object) -> None:
    """Refuse a posterior whose arrays hold what no posterior of its class can hold. Host side.

    Raises:
        ValueError, TypeError: one sentence: the array, its first place, what is there, what is expected.
    """
    if isinstance(posterior, ConjugatePosterior):
        check_conjugate(posterior, posterior.space)
    elif isinstance(posterior, Mixture):
        check_mixture(posterior)
    elif isinstance(posterior, CollapsedPosterior):
        check_collapsed(posterior)
    elif isinstance(posterior, PooledPosterior):
        check_pooled(posterior)
    elif isinstance(posterior, SampledPosterior):
        check_sampled(posterior)
    elif isinstance(posterior, PosteriorSamples):
        check_samples(posterior)


def check_conjugate(posterior: ConjugatePosterior, space: StateActionSpace, *, prior: bool = True) -> None:
    """Rows, rewards, visits and evidence of a closed form, or of the components of a mixture.

    Args:
        posterior: to be checked.
        space: with masks that have no axis of components.
        prior: False: its prior parameters are not read, and may be anything.
    """
    _check_rows(posterior.transition_probs, space, prior)
    _check_rewards(posterior.reward_cells, space, prior)
    if posterior.visits is not None:
        check_not_negative("visits", posterior.visits)
        _check_ends("visits", posterior.visits, space.shape)
    constant = np.asarray(posterior.constant)
    require(~np.isfinite(constant), "constant", constant, "a finite number")
    _check_share(posterior)
    if posterior.sites is not None:
        _check_sites(posterior.sites, posterior.reward_cells)


def check_mixture(posterior: Mixture) -> None:
    """Weights, and the components."""
    size = len(_weights("log_weights", posterior.log_weights))
    if posterior.log_prior is not None:
        check_shape("log_prior", posterior.log_prior, (size,), "components")
        _weights("log_prior", posterior.log_prior)
    _check_lead("hyperparameters", posterior.hyperparameters, (size,))
    for field in ("n_states", "n_actions", "horizon", "ends", "states", "actions", "unseen"):
        one, whole = getattr(posterior.components.space, field), getattr(posterior.space, field)
        if one != whole or type(one) is not type(whole):
            raise ValueError(f"components.space.{field} is {one!r:.40}, expected {whole!r:.40}, that of the mixture")
    check_conjugate(posterior.components, posterior.space)
    for leaf in jax.tree.leaves(posterior.components):
        if np.shape(leaf)[:1] != (size,):
            raise ValueError(f"components has an array of shape {np.shape(leaf)}, expected a first axis of {size}")
    for table in posterior.site_tables:
        _check_sites(table, posterior.components.reward_cells)


def check_collapsed(posterior: CollapsedPosterior) -> None:
    """Weights, the statistics that components share, and the parameters in which they differ."""
    size = len(_weights("log_weights", posterior.log_weights))
    data = posterior.data_statistics
    check_conjugate(data, data.space, prior=False)
    rows, *beliefs = jax.tree.leaves((data.transition_probs.prior, _belief(data.reward_cells)))
    if not len(posterior.values) == len(posterior.index) == 1 + len(beliefs):
        raise ValueError(f"values has {len(posterior.values)} arrays, expected {1 + len(beliefs)}, as index")
    free = _free_fields(data.reward_cells)
    for i, (values, index) in enumerate(zip(posterior.values, posterior.index, strict=True)):
        check_shape(f"index[{i}]", index, np.shape(rows if i == 0 else beliefs[i - 1]), "as the prior parameters")
        if np.ndim(values) != 2 or len(values) != size:
            raise ValueError(f"values[{i}] has shape {np.shape(values)}, expected ({size}, classes)")
        _check_indices(f"index[{i}]", index, values.shape[1], least=0)
        check = check_not_negative if i == 0 else check_finite if free[i - 1] else check_positive
        check(f"values[{i}]", values)
    mass = posterior.values[0][:, posterior.index[0]].sum(-1)
    require(mass <= 0, "values[0] of the rows", mass, "at least one positive concentration in every row")
    _check_lead("hyperparameters", posterior.hyperparameters, (size,))
    check_shape("stream", posterior.stream, (2,), "bits of a key")
    check_count("moves", posterior.moves, 0)
    _check_share(posterior)
    _check_chains(posterior.mcmc, posterior.hyperparameters)


def check_pooled(posterior: PooledPosterior) -> None:
    """Weights, the data, and the rows and totals of the draws."""
    size, space = len(_weights("log_weights", posterior.log_weights)), posterior.space
    check_conjugate(posterior.data_statistics, space)
    check_shape("state_rows", posterior.state_rows, (size, space.n_states, space.n_outcomes), "draw, state, outcome")
    check_not_negative("state_rows", posterior.state_rows)
    mass = np.asarray(posterior.state_rows).sum(-1)
    require(mass <= 0, "state_rows", mass, "at least one positive probability in every row")
    check_shape("totals", posterior.totals, (size, space.n_states, space.n_actions), "draw, state, action")
    check_positive("totals", posterior.totals)
    if posterior.base_shares is not None:
        check_shape("base_shares", posterior.base_shares, (size, space.n_states), "draw, state")
        check_fraction("base_shares", posterior.base_shares)
    _check_lead("hyperparameters", posterior.hyperparameters, (size,))
    _check_chains(posterior.mcmc, posterior.hyperparameters)


def check_sampled(posterior: SampledPosterior) -> None:
    """Weights, the rows and the reward laws of the draws, and the data."""
    size, space = len(_weights("log_weights", posterior.log_weights)), posterior.space
    _check_lead("sites", posterior.sites, (size,))
    missing = set(posterior.recipe.latents) - set(posterior.sites)
    if missing:
        raise ValueError(f"sites has no {sorted(missing)[0]!r}, expected draws of every latent site of the recipe")
    check_shape("transition_probs", posterior.transition_probs, (size, *space.shape, space.n_outcomes), "draw, ...")
    _check_sums("transition_probs", posterior.transition_probs, space)
    _check_table(posterior.rewards, size, space)
    _check_data(posterior.data_statistics, space)
    _check_share(posterior)
    _check_chains(posterior.mcmc, posterior.sites)


def check_samples(posterior: PosteriorSamples) -> None:
    """Weights and hypotheses."""
    mdps, weights = posterior.mdps, np.asarray(posterior.weights)
    check_not_negative("weights", weights)
    if weights.ndim != 1 or not np.isclose(weights.sum(), 1.0, atol=1e-4):
        raise ValueError(f"weights has shape {weights.shape} and sum {weights.sum():.6g}, expected [N] that sums to 1")
    check_finite("mdps.reward", mdps.reward)
    rows = np.asarray(mdps.row_probs, np.float64)
    check_not_negative("mdps.transition_probs", rows)
    total = rows.sum(-1)
    if mdps.end_probs is not None:
        check_fraction("mdps.end_probs", mdps.end_probs)
        total = total + np.asarray(mdps.end_probs)
    legal = np.True_ if mdps.legal is None else _legal(np.asarray(mdps.legal), total.ndim)
    off = (np.abs(total - 1) > ROW_SUM_TOLERANCE["float32"]) & legal
    require(off, "the sum of mdps.transition_probs", total, "rows that sum to 1")
    if mdps.initial is not None:
        for i, one in enumerate(np.asarray(mdps.initial).reshape(-1, np.shape(mdps.initial)[-1])):
            check_initial(one, mdps.n_states, f"mdps.initial[{i}]")
    if isinstance(posterior, CountedSamples):
        check_not_negative("visits", posterior.visits)


def _legal(legal: Bool[np.ndarray, "*N S A"], ndim: int) -> Bool[np.ndarray, "..."]:
    """A mask of pairs, [N S A] or [S A], to be broadcast against [N *H S A]."""
    if legal.ndim in (2, ndim):
        return legal
    return np.expand_dims(legal, tuple(range(1, 1 + ndim - legal.ndim)))


def _check_rows(rows: DirichletRows, space: StateActionSpace, prior: bool) -> None:
    cells, name = tuple(rows.shape[:-1]), "transition_probs"
    if cells != tuple(space.shape) or rows.shape[-1] != space.n_outcomes:
        raise ValueError(f"{name}.shape is {rows.shape}, expected {(*space.shape, space.n_outcomes)}")
    if np.ndim(rows.prior) < 2 or 0 in np.shape(rows.prior):
        raise ValueError(f"{name}.prior has shape {np.shape(rows.prior)}, expected [M K] with M and K of at least 1")
    (size, width), concentration = rows.prior.shape[-2:], np.asarray(rows.prior)
    if prior:
        check_not_negative(f"{name}.prior", concentration)
        mass = concentration.sum(-1)
        require(mass <= 0, f"the sum of {name}.prior", mass, "a row with at least one positive entry")
        if rows.unit_prior:
            require(concentration != 1, f"{name}.prior", concentration, "1, as unit_prior is True")
    check_not_negative(f"{name}.counts", rows.counts)
    listed = width if rows.successor is None else np.shape(rows.successor)[-1]
    _check_ends(f"{name}.counts", rows.counts, (size, listed))
    if rows.successor is not None:
        _check_ends(f"{name}.successor", rows.successor, (size, listed))
        _check_indices(f"{name}.successor", rows.successor, width, least=0)
    _check_selection(f"{name}.row", rows.row, cells, size)
    _check_selection(f"{name}.column", rows.column, rows.shape, width, whole=width == rows.shape[-1])
    if rows.independent and rows.row is not None and not _injective(rows.row, len(cells)):
        raise ValueError(f"{name}.row uses a site row twice, expected each once, as independent is True")
    _check_batches(f"{name}.sites", rows.sites, size)
    if rows.known is None:
        if rows.row is not None:
            require(rows.row < 0, f"{name}.row", rows.row, f"an index from 0 to {size - 1}: no row is known")
        return
    known = np.asarray(rows.known)
    _check_ends(f"{name}.known", known, rows.shape)
    used = np.ones(known.shape[:-1], bool) if rows.row is None else np.asarray(rows.row) < 0
    where_used = np.where(used[..., None], known, 0.0)
    check_not_negative(f"{name}.known", where_used)
    _check_sums(f"{name}.known", known, space, used)
    if rows.known_listed is not None:
        outcome, share = rows.known_listed
        _check_indices(f"{name}.known_listed[0]", outcome, rows.shape[-1], least=0)
        check_shape(f"{name}.known_listed[1]", share, np.shape(outcome), "as known_listed[0]")
        wrong = np.asarray(share) != np.take_along_axis(known, np.asarray(outcome), -1)
        require(wrong & used[..., None], f"{name}.known_listed[1]", share, "the probability of `known`")


def _check_rewards(rewards: Rewards, space: StateActionSpace, prior: bool) -> None:
    cells, name = (*space.shape, space.n_outcomes) if rewards.by_outcome else tuple(space.shape), "reward_cells"
    if isinstance(rewards, KnownRewards):
        _check_ends(f"{name}.known", rewards.known, cells)
        check_finite(f"{name}.known", rewards.known)
        _check_law(f"{name}.known_law", rewards.known_law)
    elif isinstance(rewards, RewardCells):
        _check_cells(rewards, cells, name, prior)
    elif isinstance(rewards, RegressionRewards):
        for field in ("loc", "precision"):
            check_finite(f"{name}.prior.{field}", getattr(rewards.prior, field))
        for field in ("concentration", "rate"):
            if getattr(rewards.prior, field) is not None:
                check_positive(f"{name}.prior.{field}", getattr(rewards.prior, field))
        _check_definite(f"{name}.prior.precision", rewards.prior.precision)
        for field in ("features", "offset", "gram", "moment"):
            check_finite(f"{name}.{field}", getattr(rewards, field))
        for field in ("noise_precision", "square", "count"):
            check_not_negative(f"{name}.{field}", getattr(rewards, field))
        require(np.diagonal(rewards.gram, axis1=-2, axis2=-1) < 0, f"the diagonal of {name}.gram",
                np.diagonal(rewards.gram, axis1=-2, axis2=-1), "a number of at least 0")  # fmt: skip
    elif isinstance(rewards, SampledRewards):
        size = len(_weights(f"{name}.log_weights", rewards.log_weights))
        _check_lead(f"{name}.sites", rewards.sites, (size,))
        _check_table(rewards.table, size, space)
        _check_data(rewards.data_statistics, space)
        _check_chains(rewards.mcmc, rewards.sites)


def _check_cells(rewards: RewardCells, cells: tuple[int, ...], name: str, prior: bool) -> None:
    if tuple(rewards.shape) != cells:
        raise ValueError(f"{name}.shape is {rewards.shape}, expected {cells}")
    if prior:
        rewards.prior.check(f"{name}.prior")
    arrays, data = jax.tree.leaves(rewards.prior), np.asarray(rewards.data)
    check_finite(f"{name}.data", data)
    if data.ndim < 2:
        raise ValueError(f"{name}.data has shape {data.shape}, expected [M D]")
    # Count, mean and squared deviations; of other families at least a first column that counts.
    require(data[..., 0] < 0, f"{name}.data[..., 0]", data[..., 0], "a count of at least 0")
    if rewards.has_moments:
        require(data[..., -1] < 0, f"{name}.data[..., -1]", data[..., -1], "a sum of squares of at least 0")
    size = data.shape[-2]
    for array in arrays:
        if size not in np.shape(array)[-2:]:
            raise ValueError(f"{name}.prior has an array of shape {np.shape(array)}, expected {size} elements")
    empty = np.shape(rewards.prior.empty())
    if data.shape[-1] != empty[-1]:
        raise ValueError(f"{name}.data has shape {data.shape}, expected {empty[-1]} statistics of each element")
    _check_cell_tables(rewards, cells, name, size)


def _check_cell_tables(rewards: RewardCells, cells: tuple[int, ...], name: str, size: int) -> None:
    """What has an entry for every cell of the law: the table, known rewards, affine coefficients."""
    _check_selection(f"{name}.cell", rewards.cell, cells, size)
    flags = [unshared(one, rewards.by_outcome) for one in _one_by_one(rewards.cell, len(cells))]
    for flag, found in (("independent", all(f[0] for f in flags)), ("distinct", all(f[1] for f in flags))):
        if getattr(rewards, flag) and not found:
            raise ValueError(f"{name}.cell uses an element twice, expected each once, as {flag} is True")
    _check_batches(f"{name}.sites", rewards.sites, size)
    fixed = np.False_ if rewards.cell is None else np.asarray(rewards.cell) < 0
    if rewards.known is not None:
        _check_ends(f"{name}.known", rewards.known, cells)
        check_finite(f"{name}.known", np.where(fixed, rewards.known, 0.0))
    elif rewards.cell is not None:
        require(fixed, f"{name}.cell", rewards.cell, f"an index from 0 to {size - 1}: no reward is known")
    for field in ("coefficient", "offset"):
        if getattr(rewards, field) is not None:
            _check_ends(f"{name}.{field}", getattr(rewards, field), cells)
            check_finite(f"{name}.{field}", getattr(rewards, field))
    _check_law(f"{name}.known_law", rewards.known_law)


def _belief(rewards: Rewards) -> object:
    return rewards.prior if isinstance(rewards, RewardCells) else None


def _free_fields(rewards: Rewards) -> list[bool]:
    """Of each parameter array of the rewards: whether it may be any number."""
    return (
        [field in rewards.prior.free_fields for field in vars(rewards.prior)]
        if isinstance(rewards, RewardCells)
        else []
    )


def _check_data(data: DataStatistics, space: StateActionSpace) -> None:
    """Statistics of the data, or single rewards."""
    if isinstance(data, Rows):
        check_not_negative("data_statistics.transitions", data.transitions)
        _check_ends("data_statistics.transitions", data.transitions, (*space.shape, space.n_outcomes))
        size, number = len(data.reward), int(np.asarray(data.used))
        require(number < 0, "data_statistics.used", number, "a number of rewards")
        check_shape("data_statistics.weight", data.weight, (size,), "rewards")
        check_shape("data_statistics.where", data.where, (size, len(space.shape) + 1), "rewards, (step,) state, ...")
        check_finite("data_statistics.reward", data.reward)
        check_not_negative("data_statistics.weight", data.weight)
        for axis, length in enumerate((*space.shape, space.n_outcomes)):
            _check_indices(f"data_statistics.where[:, {axis}]", np.asarray(data.where)[:, axis], length, least=0)
        return
    counts: Counts = data.counts
    for field in ("transitions", "reward_count", "reward_ss"):
        check_not_negative(f"data_statistics.counts.{field}", getattr(counts, field))
    check_finite("data_statistics.counts.reward_mean", counts.reward_mean)
    check_finite("data_statistics.log_base", data.log_base)
    _check_ends("data_statistics.counts.transitions", counts.transitions, (*space.shape, space.n_outcomes))
    counts.__check_init__()


def _check_table(rewards: RewardTable, size: int, space: StateActionSpace) -> None:
    """A law, or known rewards, of every draw."""
    cells = (*space.shape, space.n_outcomes) if rewards.by_outcome else space.shape
    if rewards.known is not None:
        check_finite("rewards.known", rewards.known)
    _check_law("rewards.law", rewards.law)
    # A law that was built for each draw under `vmap` states the batch shape of one draw: its parameters are looked at.
    arrays = [np.shape(x) for x in jax.tree.leaves((rewards.known, rewards.law))]
    expected, longest = (size, *cells), max(arrays, key=len, default=())
    if longest[: len(expected)] != expected:
        raise ValueError(f"rewards has an array of shape {longest}, expected {expected} as its first axes")


def _check_law(name: str, law: dist.Distribution | None) -> None:
    """Every parameter of a distribution lies in its support."""
    if law is None:
        return
    for parameter, constraint in law.arg_constraints.items():
        values = law.__dict__.get(parameter)
        if values is None or getattr(constraint, "is_dependent", False) or type(constraint).__name__ == "_Dependent":
            continue
        good = np.asarray(constraint(np.asarray(values)))
        shown = np.asarray(values)[..., 0] if good.ndim < np.ndim(values) else np.asarray(values)
        require(~np.broadcast_to(good, shown.shape), f"{name}.{parameter}", shown, "a value that the law can have")


def _check_chains(chains: Chains | None, sites: Mapping[str, AnyArray]) -> None:
    """All arrays of chains are [C N ...], draws are numbers, and each is of the size of that site of the posterior."""
    if chains is None:
        return
    shapes = {np.shape(x)[:2] for x in chains.draws.values()}
    lead = next(iter(shapes), None)
    if lead is None or len(lead) != 2 or 0 in lead:
        raise ValueError("mcmc.draws has no array of chains, expected [C N ...] with C and N of at least 1")
    _check_lead("mcmc.draws", chains.draws, lead)
    for name in sorted(set(sites) & set(chains.draws)):
        one, other = np.shape(sites[name])[1:], np.shape(chains.draws[name])[2:]
        if one != other:
            raise ValueError(f"a draw of site {name!r} has shape {one}, in the chains {other}, expected the same")
    for field in ("diverging", "accept_prob", "num_steps", "log_density", "energy"):
        if getattr(chains, field) is not None:
            check_shape(f"mcmc.{field}", getattr(chains, field), lead, "chain, draw")
    if chains.num_steps is not None:
        check_not_negative("mcmc.num_steps", chains.num_steps)
    if chains.accept_prob is not None:
        share = np.asarray(chains.accept_prob)
        require(~((share >= 0) & (share <= 1 + 1e-6)), "mcmc.accept_prob", share, "a number from 0 to 1")


def _check_sites(table: SiteTable, rewards: Rewards) -> None:
    """Elements of the sites of a program, -1 for none."""
    if isinstance(rewards, RewardCells) and len(table.cells) != len(rewards.prior.parameters):
        raise ValueError(f"sites.cells has {len(table.cells)} arrays, expected {len(rewards.prior.parameters)}")
    total = 0
    for name, shape in table.shapes:
        if not all(size >= 0 for size in shape):
            raise ValueError(f"sites.shapes holds {shape} of {name!r}, expected sizes of at least 0")
        total += math.prod(shape)
    for name, indices in (("sites.rows", table.rows), *((f"sites.cells[{i}]", x) for i, x in enumerate(table.cells))):
        if indices is not None:
            _check_indices(name, indices, total, least=-1)
    if table.stretch is not None:
        check_positive("sites.stretch", table.stretch)


def _check_share(posterior: object) -> None:
    share = getattr(posterior, "share", None)
    if share is not None:
        check_fraction("share", share)


def _check_sums(name: str, rows: ArrayLike, space: StateActionSpace, used: ArrayLike = True) -> None:
    """Rows [..., *H S A O] that are used and legal are probabilities that sum to one."""
    array = np.asarray(rows)
    array = np.where(np.broadcast_to(used, array.shape[:-1])[..., None], array, 0.0)
    check_not_negative(name, array)
    total, legal = array.sum(-1, dtype=np.float64), np.True_ if space.legal is None else np.asarray(space.legal)
    off = (np.abs(total - 1) > 1e-3) & legal & used
    require(off, f"the sum of {name}", total, "a row that sums to 1")


def _weights(name: str, log_weights: AnyArray) -> np.ndarray:
    """Logarithms of weights: numbers or -inf, not all of them -inf."""
    array = np.asarray(log_weights)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name} has shape {array.shape}, expected one number for each component or draw")
    require(np.isnan(array) | (array == np.inf), name, array, "a finite number, or -inf")
    if np.all(array == -np.inf):
        raise ValueError(f"{name} is -inf everywhere, expected at least one finite number")
    return array


def _check_lead(name: str, arrays: Mapping[str, AnyArray], lead: tuple[int, ...]) -> None:
    """Arrays of finite numbers whose first axes are `lead`."""
    for site, array in arrays.items():
        if np.shape(array)[: len(lead)] != lead:
            raise ValueError(f"{name}[{site!r}] has shape {np.shape(array)}, expected {lead} as its first axes")
        check_finite(f"{name}[{site!r}]", array)


def _check_ends(name: str, array: AnyArray, expected: tuple[int, ...]) -> None:
    """The last axes of `array` are `expected`; at most one comes before them."""
    shape = np.shape(array)
    if shape[-len(expected) :] != tuple(expected) or len(shape) > len(expected) + 1:
        raise ValueError(f"{name} has shape {shape}, expected {tuple(expected)}")


def _check_selection(
    name: str, table: Int[AnyArray, "..."] | None, cells: tuple[int, ...], size: int, whole: bool | None = None
) -> None:
    """A table of indices of `size` elements, -1 for none; where there is no table the elements are the cells."""
    if table is None:
        if not (size == math.prod(cells) if whole is None else whole):
            raise ValueError(f"{name} is None with {size} elements, expected a table, or one element for each cell")
        return
    _check_ends(name, table, cells)
    _check_indices(name, table, size, least=-1)


def _check_indices(name: str, table: AnyArray, size: int, *, least: int) -> None:
    array = np.asarray(table)
    expected = f"an index from 0 to {size - 1}" + (", or -1 (none)" if least < 0 else "")
    require((array < least) | (array >= size), name, array, expected)


def _check_batches(name: str, sites: Sites, size: int) -> None:
    """(name, batch shape) of stacked sites, which hold all elements."""
    if sites and sum(math.prod(shape) for _, shape in sites) != size:
        raise ValueError(f"{name} holds {sites!r:.60}, expected batch shapes with {size} elements")


def _check_definite(name: str, matrix: AnyArray) -> None:
    """Symmetric, no negative eigenvalue beyond rounding."""
    array = np.asarray(matrix, np.float64)
    require(~np.isclose(array, np.swapaxes(array, -1, -2)), name, array, "a symmetric matrix")
    lowest = np.linalg.eigvalsh(array)[..., 0]
    require(lowest < -1e-6 * np.abs(array).max(), f"the smallest eigenvalue of {name}", lowest, "at least 0")


def _one_by_one(table: AnyArray | None, ndim: int) -> list[np.ndarray | None]:
    """The tables of all components, or the only one."""
    if table is None:
        return [None]
    array = np.asarray(table)
    return list(array) if array.ndim > ndim else [array]


def _injective(table: AnyArray, ndim: int) -> bool:
    check: Callable[[np.ndarray | None], bool] = is_injective
    return all(check(one) for one in _one_by_one(table, ndim))
