"""`next_experiment`: which pair to observe next, by the expected value of sample information. Host-side.

Source: Raiffa and Schlaifer (1961), *Applied Statistical Decision Theory* (the value of sample information); Frazier,
Powell and Dayanik (2008), *A knowledge-gradient policy for sequential information collection* (one step ahead).
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations, combinations_with_replacement
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray
from scipy.special import gammaln

from bayes_mdp.decisions.perfect_information import validity_of
from bayes_mdp.decisions.policy_evaluation import (
    COPIES,
    MOST_AT_ONCE,
    NUMBERS_AT_ONCE,
    describe_objective,
    read_start,
    to_float64,
)
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.counting_families import BetaBinomialBelief, DirichletCategoricalBelief
from bayes_mdp.inference.conjugate.families import BetaBelief
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.reward_statistics import log_rising
from bayes_mdp.inference.conjugate.rewards import KnownRewards
from bayes_mdp.inference.mixtures.mixture import Mixture
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    Episodic,
    Objective,
    Posterior,
    SparseMDP,
    StateActionSpace,
    Transitions,
    Validity,
)
from bayes_mdp.mdp.labels import labels
from bayes_mdp.mdp.memory import check_memory
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.typing import AnyArray, ArrayLike
from bayes_mdp.mdp.validation import as_real, check_count, check_key, check_positive, check_shape
from bayes_mdp.planning import PolicyEvaluation, Solution, evaluate, solve
from bayes_mdp.random import dirichlet

if TYPE_CHECKING:
    import xarray as xr

NUM_DATA_SETS = 1000
SHOWN = 20  # candidates that are printed
KNOWN, ENDLESS = -1, -2  # in place of the largest reward
BYTES_OF_ENTRY = 64  # of one observation of one data set, while the data sets are put together

Pair: TypeAlias = Sequence[Hashable]
"""(State, action), by label or index; (step, state, action) where the space has a horizon."""

Updatable: TypeAlias = ConjugatePosterior | Mixture
"""The posteriors whose update is exact and cheap."""


class NextExperiment(eqx.Module):
    """What observing each candidate would add to the value of the best policy; `print` shows a table.

    All arrays have one entry for each candidate, best first: by `per_cost`.

    Args:
        pairs: labels, (state, action) or (step, state, action).
        index: Int[C d], the same as indices.
        value: Float64[C], what `n` observations are expected to add, in units of the value (AverageReward: per step):
            the expected value of sample information (EVSI) where `validity` is "exact".
        standard_error: Float64[C], Monte Carlo error of `value`; 0 where all data sets were enumerated.
        enumerated: Bool[C], whether they were.
        num_data_sets: Int[C], data sets enumerated or simulated.
        cost: Float64[C], of the `n` observations together.
        n: observations of one candidate.
        value_now: the value of the present plan in the mean MDP: what an experiment adds to.
        gap: the largest numerical error of a planned value; a smaller difference counts as none.
        validity: what `value` is: "exact" (the EVSI, but for `standard_error`), or "heuristic" (see there why).
        objective: of the policies.
        initial: Float64[S], distribution of the first state.
        initial_given: whether it was given; if not it is uniform.
    """

    pairs: tuple[tuple[Hashable, ...], ...] = eqx.field(static=True)
    index: Int[np.ndarray, "C d"]
    value: Float[np.ndarray, " C"]
    standard_error: Float[np.ndarray, " C"]
    enumerated: Bool[np.ndarray, " C"]
    num_data_sets: Int[np.ndarray, " C"]
    cost: Float[np.ndarray, " C"]
    n: int = eqx.field(static=True)
    value_now: float
    gap: float
    validity: Validity
    objective: Objective
    initial: Float[np.ndarray, " S"]
    initial_given: bool

    @property
    def per_cost(self) -> Float[np.ndarray, " C"]:
        """Value for each unit of cost."""
        return self.value / self.cost

    @property
    def best(self) -> tuple[Hashable, ...]:
        """The labels of the candidate of the largest `per_cost`; the first of several."""
        return self.pairs[0]

    def __str__(self) -> str:
        """A table for a person, best first."""
        times = "one observation" if self.n == 1 else f"{self.n} observations"
        start = "the given start" if self.initial_given else f"a uniform start ({len(self.initial)} states)"
        lines = [
            f"Where to look next: {times} of one pair, {describe_objective(self.objective)}, from {start}",
            f"  value of the present plan {self.value_now:.6g}",
            f"  {self.validity}",
        ]
        what = "EVSI" if self.validity.kind == "exact" else "gain"
        rows = [("pair", what, "error", "cost", f"{what} / cost")]
        for i in range(min(len(self.pairs), SHOWN)):
            error = "none" if self.enumerated[i] else f"{self.standard_error[i]:.2g}"
            numbers = (f"{self.value[i]:.6g}", error, f"{self.cost[i]:.6g}", f"{self.per_cost[i]:.6g}")
            rows.append((", ".join(map(str, self.pairs[i])), *numbers))
        width = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for first, *rest in rows:
            cells = [first.ljust(width[0]), *(x.rjust(w) for x, w in zip(rest, width[1:], strict=True))]
            lines.append("  " + "  ".join(cells))
        if len(self.pairs) > SHOWN:
            lines.append(f"  and {len(self.pairs) - SHOWN} more candidates")
        if not self.value.any():
            lines.append("  no candidate is worth anything: no data that were looked at change the plan for the better")
        return "\n".join(lines)

    def to_dataset(self) -> "xr.Dataset":
        """The table as xarray, along `candidate`, best first; labels are coordinates."""
        import xarray as xr

        columns_of_labels = zip(*self.pairs, strict=True)
        along = ("step", "state", "action")[-self.index.shape[1] :]
        names = {name: ("candidate", labels(column)) for name, column in zip(along, columns_of_labels, strict=True)}
        columns = ("value", "standard_error", "cost", "per_cost", "enumerated", "num_data_sets")
        data = {name: ("candidate", np.asarray(getattr(self, name))) for name in columns}
        attrs = {"n": self.n, "value_now": self.value_now, "validity": str(self.validity), "gap": self.gap}
        attrs["objective"] = describe_objective(self.objective)
        return xr.Dataset(data, names, attrs)


def next_experiment(
    key: PRNGKeyArray,
    posterior: Posterior,
    objective: Objective,
    candidates: Sequence[Pair] | Int[np.ndarray, "C d"] | None = None,
    *,
    n: int = 1,
    cost: ArrayLike = 1.0,
    initial: ArrayLike | None = None,
    num_data_sets: int = NUM_DATA_SETS,
) -> NextExperiment:
    """Where to look next: the expected value of sample information of observing a pair, for the choice of a policy.

    EVSI = E_data[max_pi E(V^pi | data)] - max_pi E V^pi, over policies that do not learn, data = `n` transitions and
    rewards of the pair as the posterior predicts them. The posterior is updated with each data set, its mean MDP is
    planned, and the answer is the mean over the data sets of V*(mean MDP | data) - V^pi(mean MDP | data), pi the plan
    of the present mean MDP: never negative, and 0 for all data that leave pi optimal. It is the EVSI where the mean
    value of every policy is its value in the mean MDP: no unknown row can be met twice and rows are independent, or
    rewards alone are unknown. Elsewhere it is a heuristic: what planning in the mean MDP would gain. See `validity`.

    Where few different data sets are possible (discrete outcomes; rewards known, Bernoulli, binomial or categorical)
    all are enumerated with their probabilities: no Monte Carlo error. `bayes_optimal` looks further ahead than one
    experiment; for it observing costs steps of the episode.

    Host-side: compiles itself, works in float64.

    Args:
        key: of the simulated data; candidates that are simulated have common random numbers.
        posterior: in closed form (infer with method='exact'), or a mixture of such.
        objective: Discounted, Episodic, AverageReward or FirstExit.
        candidates: pairs (state, action), each by its label or else its index; (step, state, action) where the space
            has a horizon. None: all legal pairs whose row or reward is not known.
        n: observations of the pair, at least 1.
        cost: of the `n` observations together, positive: a number, or [C], one for each candidate.
        initial: distribution of the first state; None: uniform (see `initial_given`).
        num_data_sets: data sets that are simulated for each candidate, at least 2; if no more different ones are
            possible all are enumerated.

    Raises:
        ValueError, TypeError: one sentence on the argument that cannot be used: a posterior without an exact update, a
            pair that the space does not have or that is illegal, nothing that is unknown, a cost that is not positive;
            an objective that does not fit the mean MDP (see `solve`); data sets that do not fit in memory.
    """
    check_key("key", key)
    belief = _require_exact(posterior)
    check_objective(objective)
    check_count("n", n)
    check_count("num_data_sets", num_data_sets, 2)
    unknown = _unknown_pairs(belief)
    index = _read_candidates(candidates, belief.space, unknown)
    costs = _read_cost(cost, len(index))
    # What is known already is worth nothing: it is not looked at.
    asked = np.flatnonzero(unknown[tuple(index.T)])
    kinds = _enumerable(belief, index[asked], n, num_data_sets)
    number, width = _size(kinds, n, num_data_sets)
    with jax.enable_x64(True):
        wide, aim = to_float64(belief), to_float64(objective)
        plan, mean = _present_plan(wide, aim)
        start, given = read_start(mean, initial)
        value_now = float(_value(plan, aim, start))
        chunk = _chunk(mean, wide, number, width)
        keys = jax.random.split(key, num_data_sets if None in kinds else 1)
        data = [
            _simulated(keys, wide, cell, n, width, chunk) if kind is None else _enumerate(cell, kind, n, width)
            for cell, kind in zip(index[asked], kinds, strict=True)
        ]
        gains, probabilities, gap = _gains(data, wide, aim, plan, start, chunk)
    values, errors = np.zeros((2, len(index)))
    enumerated, counts = np.ones(len(index), bool), np.ones(len(index), int)
    for place, kind, gain, probability in zip(asked, kinds, gains, probabilities, strict=True):
        # All data sets with their probabilities, or equally likely draws.
        values[place] = gain.mean() if kind is None else gain @ probability
        errors[place] = gain.std(ddof=1) / math.sqrt(len(gain)) if kind is None else 0.0
        enumerated[place], counts[place] = kind is not None, len(gain)
    best_first = np.argsort(-values / costs, kind="stable")
    names = (belief.space.state_names, belief.space.action_names)
    return NextExperiment(
        pairs=tuple((*i[:-2], names[0][i[-2]], names[1][i[-1]]) for i in index[best_first].tolist()),
        index=index[best_first],
        value=values[best_first],
        standard_error=errors[best_first],
        enumerated=enumerated[best_first],
        num_data_sets=counts[best_first],
        cost=costs[best_first],
        n=int(n),
        value_now=value_now,
        gap=gap,
        validity=_validity(belief),
        objective=objective,
        initial=start,
        initial_given=given,
    )


def _require_exact(posterior: Posterior) -> Updatable:
    if isinstance(posterior, Mixture):
        return posterior
    if isinstance(posterior, ConjugatePosterior) and posterior.reward_cells.in_closed_form:
        return posterior
    raise TypeError(
        f"next_experiment needs a posterior whose update is exact, got a {type(posterior).__name__}: use a posterior "
        "in closed form (infer with method='exact'), or a mixture of such"
    )


def _validity(posterior: Updatable) -> Validity:
    # Data change neither which rows are unknown nor their independence: what holds now holds after every data set.
    proven = validity_of(posterior, True)
    if proven.kind == "exact":
        return Validity("exact", "the EVSI over fixed policies (but for Monte Carlo error)")
    return Validity("heuristic", f"the gain in the value of the mean MDP; {proven.reason}")


def _unknown_pairs(posterior: Updatable) -> Bool[np.ndarray, "*H S A"]:
    """Legal pairs whose row or reward is not known."""
    parts, space = _components(posterior), posterior.space
    legal = np.ones(space.shape, bool) if space.legal is None else np.broadcast_to(space.legal, space.shape)
    unknown = np.zeros(space.shape, bool)
    for part in parts:
        rewards = part.reward_cells
        # Not "> 0": a variance that does not exist belongs to an unknown reward.
        paid = ~(np.asarray(rewards.variance()) == 0) if rewards.learns else np.zeros(rewards.shape, bool)
        if part.rewards_by_outcome:
            paid = (paid & (np.asarray(part.transition_probs.mean()) > 0)).any(-1)
        unknown |= (np.asarray(part.transition_probs.inverse_total()) > 0) | paid
    if _laws_tell(posterior):
        return legal
    if len(parts) > 1:
        # Data of a pair that differs between the components say which one holds.
        rows, reward = zip(*(part.mean_rows() for part in parts), strict=True)
        unknown |= np.ptp(np.nan_to_num(np.asarray(rows)), 0).any(-1) | (np.ptp(np.asarray(reward), 0) > 0)
    return legal & unknown


def _laws_tell(posterior: Updatable) -> bool:
    """Whether rewards of a known law can say which component of a mixture holds."""
    rewards = posterior.components.reward_cells if isinstance(posterior, Mixture) else None
    return isinstance(rewards, RewardCells | KnownRewards) and rewards.known_law is not None


def _components(posterior: Updatable) -> list[ConjugatePosterior]:
    """The components of a mixture, or the posterior itself."""
    if isinstance(posterior, ConjugatePosterior):
        return [posterior]
    return [posterior.component(k) for k in range(posterior.num_components)]


def _read_candidates(
    candidates: Sequence[Pair] | Int[np.ndarray, "C d"] | None,
    space: StateActionSpace,
    unknown: Bool[np.ndarray, "*H S A"],
) -> Int[np.ndarray, "C d"]:
    """Indices of the candidates: (step,) state, action."""
    if candidates is None:
        found = np.argwhere(unknown)
        if not len(found):
            raise ValueError("posterior leaves no row and no reward unknown, expected something that data can change")
        return found
    if isinstance(candidates, str) or not isinstance(candidates, Sequence | np.ndarray) or not len(candidates):
        raise TypeError(f"candidates is {candidates!r}, expected a list of pairs (state, action), or None")
    axes = ("step", "state", "action")[-len(space.shape) :]
    names = {"step": tuple(range(space.horizon or 0)), "state": space.state_names, "action": space.action_names}
    index = []
    for i, pair in enumerate(candidates):
        if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray) or len(pair) != len(axes):
            raise TypeError(f"candidates[{i}] is {pair!r}, expected ({', '.join(axes)})")
        where = tuple(_place(i, axis, names[axis], x) for axis, x in zip(axes, pair, strict=True))
        if space.legal is not None and not space.legal[where[-2:]]:
            raise ValueError(
                f"candidates[{i}] is {tuple(pair)!r}, expected an action that is legal in state "
                f"{space.state_names[where[-2]]!r}"
            )
        index.append(where)
    return np.array(index)


def _place(i: int, axis: str, names: tuple[Hashable, ...], wanted: object) -> int:
    """The index of a label, or an index."""
    flag = isinstance(wanted, bool | np.bool_)
    if isinstance(wanted, Hashable) and not flag and wanted in names:
        return names.index(wanted)
    if isinstance(wanted, int | np.integer) and not flag and 0 <= wanted < len(names):
        return int(wanted)
    raise ValueError(
        f"candidates[{i}] has the {axis} {wanted!r}, expected a label, or an index from 0 to {len(names) - 1}"
    )


def _read_cost(cost: ArrayLike, number: int) -> Float[np.ndarray, " C"]:
    array = np.asarray(as_real("cost", cost, "a number greater than 0"), np.float64)
    check_positive("cost", array)
    if array.ndim:
        check_shape("cost", array, (number,), "candidate")
    return np.array(np.broadcast_to(array, number))


def _present_plan(posterior: Updatable, objective: Objective) -> tuple[Solution, MDP | SparseMDP]:
    """The plan of the mean MDP, and that MDP."""
    mean = posterior.mean_mdp()
    plan = solve(mean, objective)
    if not np.isfinite(float(plan.gap)):
        raise ValueError(
            f"objective is {describe_objective(objective)}, expected one for which the mean MDP has a best policy of "
            "finite value"
        )
    return plan, mean


def _value(found: Solution | PolicyEvaluation, objective: Objective, start: Float[AnyArray, " S"]) -> Float[Array, ""]:
    if isinstance(objective, AverageReward):
        return found.gain
    first = found.v[0] if found.v.ndim == 2 else found.v
    return first @ jnp.asarray(start)


class DataSets(NamedTuple):
    """Data sets of one candidate, or of several one after the other.

    Args:
        cell: Int[N d], the pair that is observed.
        outcome: Int[N W], outcomes of its row.
        reward: Float64[N W].
        seen: Bool[N W], false: the reward is known beforehand.
        weight: Float64[N W], how often; 0: no observation.
        log_orders: Float64[N], log number of orders in which the same observations can come.
    """

    cell: Int[AnyArray, "*N d"]
    outcome: Int[AnyArray, "*N W"]
    reward: Float[AnyArray, "*N W"]
    seen: Bool[AnyArray, "*N W"]
    weight: Float[AnyArray, "*N W"]
    log_orders: Float[AnyArray, "*N"]


class Observation(NamedTuple):
    """What one observation of a pair can show: an outcome, a reward, and whether the reward says anything."""

    outcome: int
    reward: float
    seen: bool


def _enumerable(
    posterior: Updatable, index: Int[np.ndarray, "C d"], n: int, num_data_sets: int
) -> list[list[Observation] | None]:
    """All that one observation of each candidate can show; None: `n` of them give too many different data sets."""
    parts = _components(posterior)
    possible = np.any([np.asarray(part.transition_probs.mean()) > 0 for part in parts], 0)[tuple(index.T)]
    # Components are of one kind: the first has the laws of all.
    most = _largest_rewards(parts[0], index)
    most = np.full(most.shape, ENDLESS) if _laws_tell(posterior) else most
    found: list[list[Observation] | None] = []
    for outcomes, largest in zip(possible, most, strict=True):
        kinds: list[Observation] | None = []
        for outcome in np.flatnonzero(outcomes).tolist():
            if largest[outcome] == ENDLESS or kinds is None:
                kinds = None
            elif largest[outcome] == KNOWN:
                kinds.append(Observation(outcome, 0.0, False))
            else:
                kinds += [Observation(outcome, float(x), True) for x in range(largest[outcome] + 1)]
        found.append(kinds if kinds is not None and _num_multisets(len(kinds), n) <= num_data_sets else None)
    return found


def _largest_rewards(part: ConjugatePosterior, index: Int[np.ndarray, "C d"]) -> Int[np.ndarray, "C O"]:
    """The largest of the rewards 0, 1, ... that each outcome of each candidate can bring; or KNOWN, or ENDLESS."""
    rewards, shape = part.reward_cells, (len(index), part.space.n_outcomes)
    if not rewards.learns:
        return np.full(shape, KNOWN)
    if not isinstance(rewards, RewardCells):
        return np.full(shape, ENDLESS)
    size, prior = len(rewards.data), rewards.prior
    if isinstance(prior, BetaBelief):
        most = np.ones(size, int)
    elif isinstance(prior, BetaBinomialBelief):
        most = np.broadcast_to(np.asarray(prior.total_count), size).astype(int)
    elif isinstance(prior, DirichletCategoricalBelief):
        most = np.full(size, np.shape(prior.concentration)[-1] - 1)
    else:
        most = np.full(size, ENDLESS)
    # The last entry is for cells without an element: their reward is known.
    cells = tuple(i[:, None] for i in index.T)
    element = np.asarray(rewards.element(cells, np.arange(shape[1])[None]))
    return np.broadcast_to(np.append(most, KNOWN)[element], shape)


def _num_multisets(kinds: int, n: int) -> int:
    return math.comb(n + kinds - 1, n)


def _size(kinds: list[list[Observation] | None], n: int, num_data_sets: int) -> tuple[int, int]:
    """Number of data sets of all candidates, and the most different observations of one.

    Raises:
        ValueError: they do not fit in memory.
    """
    number = sum(num_data_sets if each is None else _num_multisets(len(each), n) for each in kinds)
    width = max((n if each is None else min(n, len(each)) for each in kinds), default=1)
    check_memory(
        f"n is {n} and num_data_sets is {num_data_sets}: {number} data sets of {len(kinds)} candidates",
        float(BYTES_OF_ENTRY) * number * width,
        "fewer data sets, candidates or observations take less",
    )
    return number, width


def _chunk(mean: MDP | SparseMDP, posterior: Updatable, number: int, width: int) -> int:
    """How many data sets are planned at once: a power of two, as many as memory allows. Host side.

    Raises:
        ValueError: one would not fit in memory.
    """
    n_states, n_actions = mean.reward.shape[-2:]
    size = sum(np.size(x) for x in jax.tree.leaves((mean, posterior))) + n_states**2 + width
    what = f"posterior has mean MDPs of {n_states} states and {n_actions} actions"
    check_memory(what, 8.0 * COPIES * size, "listed successors take less")
    most = max(1, min(MOST_AT_ONCE, NUMBERS_AT_ONCE // size))
    return min(1 << (most.bit_length() - 1), 1 << (max(number, 1) - 1).bit_length())


def _enumerate(cell: Int[np.ndarray, " d"], kinds: list[Observation], n: int, width: int) -> DataSets:
    """All multisets of `n` observations."""
    # n! / prod of count! orders of one multiset are equally likely.
    if n <= len(kinds):
        which = np.array(list(combinations_with_replacement(range(len(kinds)), n)))
        weight, run = np.ones(which.shape), np.ones(which.shape)
        for j in range(1, n):  # rows are sorted: prod of count! is the product of places in runs of equals
            run[:, j] = np.where(which[:, j] == which[:, j - 1], run[:, j - 1] + 1, 1)
        log_orders = math.lgamma(n + 1) - np.log(run).sum(-1)
    else:
        # Counts are shorter than lists: n stars, and bars between them.
        bars = np.array(list(combinations(range(n + len(kinds) - 1), len(kinds) - 1)), int)
        weight = np.diff(bars, axis=1, prepend=-1, append=n + len(kinds) - 1) - 1.0
        which = np.broadcast_to(np.arange(len(kinds)), weight.shape)
        log_orders = math.lgamma(n + 1) - gammaln(weight + 1).sum(-1)
    number = len(which)
    outcome, reward, seen = (_filled(np.array(column)[which], width) for column in zip(*kinds, strict=True))
    return DataSets(np.tile(cell, (number, 1)), outcome, reward, seen, _filled(weight, width), log_orders)


def _filled(column: np.ndarray, width: int) -> np.ndarray:
    """The same with zeros up to `width`: observations of weight zero."""
    return np.pad(column, ((0, 0), (0, width - column.shape[1])))


def _simulated(
    keys: Key[Array, " D"], posterior: Updatable, cell: Int[np.ndarray, " d"], n: int, width: int, chunk: int
) -> DataSets:
    """A data set for each key, in chunks; every candidate has the same compiled program."""
    number, drawn = len(keys), []
    for first in range(0, number, chunk):
        here = keys[(first + np.arange(chunk)) % number]
        drawn.append(jax.tree.map(np.asarray, _simulate(here, posterior, tuple(map(jnp.asarray, cell)), n)))
    columns = (np.concatenate(column)[:number] for column in zip(*drawn, strict=True))
    outcome, reward, seen = (_filled(column, width) for column in columns)
    weight = _filled(np.ones((number, n)), width)
    return DataSets(np.tile(cell, (number, 1)), outcome, reward, seen, weight, np.zeros(number))


@eqx.filter_jit
def _simulate(
    keys: Key[Array, " D"], posterior: Updatable, cell: tuple[Int[Array, ""], ...], n: int
) -> tuple[Int[Array, "D n"], Float[Array, "D n"], Bool[Array, "D n"]]:
    """Outcomes and rewards of `n` transitions from one pair, as the posterior predicts them."""

    def one(key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        key_part, key_row, key_outcome, key_sites, key_reward = jax.random.split(key, 5)
        part = posterior.draw_component(key_part) if isinstance(posterior, Mixture) else posterior
        # What is unknown of the pair is drawn once, and then n observations given it.
        concentration = part.transition_probs.concentration[cell]
        drawn = dirichlet(key_row, concentration)
        row = jnp.where(concentration.sum() > 0, drawn, part.transition_probs.mean()[cell])
        outcome = jax.random.categorical(key_outcome, jnp.log(row), shape=(n,))
        if not (part.reward_cells.learns or _laws_tell(posterior)):
            return outcome, jnp.zeros(n), jnp.zeros(n, bool)
        table = part.reward_cells.table_of(part.reward_cells.sample_sites(key_sites))
        law = table.at(tuple(jnp.broadcast_to(i, (n,)) for i in cell), outcome)
        reward = law if isinstance(law, jax.Array) else law.sample(key_reward)
        return outcome, jnp.asarray(reward, float), jnp.ones(n, bool)

    return jax.vmap(one)(keys)


def _gains(
    data: list[DataSets],
    posterior: Updatable,
    objective: Objective,
    plan: Solution,
    start: Float[np.ndarray, " S"],
    chunk: int,
) -> tuple[list[np.ndarray], list[np.ndarray], float]:
    """Of each candidate what the best policy gains over the present plan after each data set, and the probabilities.

    Last, the largest numerical error.
    """
    if not data:
        return [], [], float(plan.gap)
    columns = DataSets(*map(np.concatenate, zip(*data, strict=True)))
    number, ends = len(columns.cell), np.cumsum([len(each.cell) for each in data])[:-1]
    gain, probability, gap = np.zeros(number), np.zeros(number), 0.0
    with _counter(number) as report:
        for first in range(0, number, chunk):
            here = np.arange(first, first + chunk) % number
            taken = jax.tree.map(lambda column, rows=here: jnp.asarray(column[rows]), columns)
            # Two programs: in one, with independent linear systems, XLA's thread pool on few cores can deadlock.
            best, best_gap, log_prob = map(np.asarray, _best_after(taken, posterior, objective, plan, start))
            kept, kept_gap = map(np.asarray, _kept_after(taken, posterior, objective, plan.policy, start))
            error = best_gap + kept_gap
            if not np.isfinite(error).all():
                raise ValueError(
                    f"objective is {describe_objective(objective)}, expected one for which the present plan and the "
                    "best policy have a finite value after all data sets"
                )
            size = min(chunk, number - first)
            # The best policy is no worse: what lies within the numerical error is nothing.
            gain[first : first + size] = np.where(best - kept > error, best - kept, 0.0)[:size]
            probability[first : first + size] = np.exp(log_prob)[:size]
            gap = max(gap, float(error.max()))
            report(size)
    return np.split(gain, ends), np.split(probability, ends), gap


@contextmanager
def _counter(total: int) -> Iterator[Callable[[int], object]]:
    """A progress bar: on a terminal, and only for what takes longer than two seconds."""
    from tqdm import tqdm

    with tqdm(total=total, desc="planning", unit=" data sets", delay=2.0, leave=False, disable=None) as bar:
        yield bar.update


@eqx.filter_jit
def _best_after(
    data: DataSets, posterior: Updatable, objective: Objective, plan: Solution, start: Float[AnyArray, " S"]
) -> tuple[Float[Array, " D"], Float[Array, " D"], Float[Array, " D"]]:
    """V* of the mean MDP after each data set, its error bound, and the log probability of the data."""

    def one(columns: DataSets) -> tuple[Array, Array, Array]:
        near = None if isinstance(objective, Episodic) else plan
        found = solve(_mean_after(posterior, columns), objective, start=near)
        return _value(found, objective, start), found.gap, _log_prob(posterior, columns)

    return jax.vmap(one)(data)


@eqx.filter_jit
def _kept_after(
    data: DataSets,
    posterior: Updatable,
    objective: Objective,
    policy: Int[Array, "*H S"],
    start: Float[AnyArray, " S"],
) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    """The value of the present plan in the mean MDP after each data set, and its error bound."""

    def one(columns: DataSets) -> tuple[Array, Array]:
        found = evaluate(_mean_after(posterior, columns), policy, objective)
        return _value(found, objective, start), found.gap

    return jax.vmap(one)(data)


def _mean_after(posterior: Updatable, columns: DataSets) -> MDP | SparseMDP:
    """The mean MDP after one data set."""
    cell, outcome, reward, seen, weight, _ = columns
    space, shape = posterior.space, outcome.shape
    where = tuple(jnp.broadcast_to(i, shape) for i in cell)
    next_state, ended = space.reached(where, outcome)
    transitions = Transitions(
        where[-2],
        where[-1],
        reward,
        next_state,
        ended if space.ends else None,
        step=None if space.horizon is None else where[0],
        reward_observed=seen,
    )
    mean = posterior.update(transitions, weight).mean_mdp()
    if space.legal is None:
        return mean
    # The mean reward of an illegal pair need not exist.
    return eqx.tree_at(lambda m: m.reward, mean, jnp.where(jnp.asarray(space.legal), mean.reward, 0.0))


def _log_prob(posterior: Updatable, columns: DataSets) -> Float[Array, ""]:
    """Log predictive probability of the observations of one data set, in any order (0 of densities: not used)."""
    if isinstance(posterior, Mixture):
        each = jax.vmap(lambda part: _log_sequence(part, columns))(posterior.components)
        log_weights = jnp.asarray(posterior.log_weights)
        sequence = jax.nn.logsumexp(log_weights + each) - jax.nn.logsumexp(log_weights)
    else:
        sequence = _log_sequence(posterior, columns)
    return sequence + columns.log_orders


def _log_sequence(part: ConjugatePosterior, columns: DataSets) -> Float[Array, ""]:
    cell, outcome, reward, seen, weight, _ = columns
    rows, rewards = part.transition_probs, part.reward_cells
    # Dirichlet-multinomial: prod_o rising(c_o, n_o) / rising(sum c, n); of a known row prod_o p_o^n_o.
    concentration, known = rows.concentration[tuple(cell)], rows.mean()[tuple(cell)]
    counts = jnp.zeros(known.shape).at[outcome].add(weight)
    possible = concentration > 0
    rising = jnp.where(possible, log_rising(jnp.where(possible, concentration, 1.0), counts), 0.0).sum()
    total = jnp.where(possible.any(), concentration.sum(), 1.0)
    unknown = rising - log_rising(total, counts.sum())
    certain = jnp.where(counts > 0, counts * jnp.log(known), 0.0).sum()
    of_row = jnp.where(possible.any(), unknown, certain)
    if not rewards.learns or not isinstance(rewards, RewardCells):
        return of_row
    where = tuple(jnp.broadcast_to(i, outcome.shape) for i in cell)
    after, constant = rewards.observe(where, outcome, jnp.where(seen, reward, 0.0), jnp.where(seen, weight, 0.0))
    # Element by element: where nothing was observed the difference is zero, and nothing cancels.
    prior = rewards.prior
    gain = jnp.asarray(prior.log_marginal(after.data)) - jnp.asarray(prior.log_marginal(jnp.asarray(rewards.data)))
    return of_row + gain.sum() + constant
