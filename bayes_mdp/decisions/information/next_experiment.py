"""`next_experiment`: what to observe next, by the expected value of sample information. Host-side.

Source: Raiffa and Schlaifer (1961), *Applied Statistical Decision Theory* (the value of sample information); Frazier,
Powell and Dayanik (2008), *A knowledge-gradient policy for sequential information collection* (one step ahead).
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.decisions.information.data_sets import MeanMDPs
from bayes_mdp.decisions.information.gain_over_plan import (
    PolicyStudy,
    PresentPlan,
    check_studies,
    chunk_of,
    enumerable,
    enumerate_data,
    gains_after,
    present_plan,
    read_studies,
    simulate_data,
    size_of_data,
    study_gains,
    validity_after_data,
)
from bayes_mdp.decisions.information.updatable import Updatable, require_exact, unknown_pairs
from bayes_mdp.decisions.policy_evaluation import describe_objective, describe_unit, read_start
from bayes_mdp.decisions.value_basis import value_bases
from bayes_mdp.inference.untried_rewards import UntriedRewards, untried_rewards
from bayes_mdp.mdp import MDP, Objective, Posterior, SparseMDP, StateActionSpace
from bayes_mdp.mdp.labelled_tables import refuse_labels
from bayes_mdp.mdp.labels import labels
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.validity import Validity
from bayes_mdp.numerics.array_forms import to_host_float64
from bayes_mdp.utils.layout import Part, Section, Table, as_html, as_text
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.progress import stage
from bayes_mdp.utils.typing import ArrayLike, InitialLike
from bayes_mdp.utils.validation import as_real, check_count, check_key, check_positive, check_shape

if TYPE_CHECKING:
    import xarray as xr

NUM_DATA_SETS = 1000
SHOWN = 20  # candidates that are printed

Pair: TypeAlias = Sequence[Hashable]
"""(State, action), by label or index; (step, state, action) where the space has a horizon."""


class NextExperiment(eqx.Module):
    """What observing each candidate would add to the value of the best policy; `print` shows a table.

    All arrays have one entry for each candidate, best first: by `per_cost`.

    Args:
        pairs: labels, (state, action) or (step, state, action); of studies (name,).
        index: Int[C d], the same as indices; of studies the places in `candidates`.
        value: Float64[C], what `n` observations, or the study, are expected to add, in units of the value
            (AverageReward: per step): the expected value of sample information (EVSI) where `validity` is "exact".
        standard_error: Float64[C], Monte Carlo error of `value`; 0 where all data sets were enumerated.
        enumerated: Bool[C], whether they were.
        num_data_sets: Int[C], data sets enumerated or simulated.
        cost: Float64[C], of the `n` observations together, or of the study.
        n: observations of one pair; of studies 1.
        value_now: the value of the present plan in the mean MDP: what an experiment adds to.
        gap: the largest numerical error of a planned value; a smaller difference counts as none.
        validity: what `value` is: "exact" (the EVSI, but for `standard_error`), or "heuristic" (see there why).
        objective: of the policies.
        initial: Float64[S], distribution of the first state.
        initial_given: whether it was given; if not it is uniform.
        start: where `initial` is from, in words.
        num_episodes: Int[C], of the studies; None: candidates are pairs.
        untried: the pairs that were never tried and whose mean reward, the prior's, lies above that of every pair that
            was (see `untried_rewards`): `value` of these, and of what leads there, is the prior's. None: there are
            none, or it is not known.
        from_prior: Bool[C], which candidates are such pairs, or studies whose policy may try one.
        untried_share: share of its time that the present plan spends in such pairs, from 0 to 1.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> experiment = bm.information.next_experiment(jax.random.key(1), posterior, bm.Episodic(1))
        >>> experiment.pairs, experiment.value.round(3).tolist()  # E max(1/2, 1/3 or 2/3) - 1/2
        (((0, 0), (0, 1)), [0.083, 0.083])
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
    start: str = eqx.field(static=True)
    num_episodes: Int[np.ndarray, " C"] | None = None
    untried: UntriedRewards | None = None
    from_prior: Bool[np.ndarray, " C"] | None = None
    untried_share: float = 0.0

    @property
    def per_cost(self) -> Float[np.ndarray, " C"]:
        """Value for each unit of cost."""
        return self.value / self.cost

    @property
    def best(self) -> Hashable:
        """The labels of the pair of the largest `per_cost`, or the name of the study; the first of several."""
        return self.pairs[0] if self.num_episodes is None else self.pairs[0][0]

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """A table of the candidates, best first."""
        times = "one observation" if self.n == 1 else f"{self.n} observations"
        title = f"Where to look next: {times} of one pair" if self.num_episodes is None else "Which study to make next"
        measure = "EVSI" if self.validity.kind == "exact" else "gain"
        parts: list[Part] = [
            f"value of the present plan {self.value_now:.6g}; {measure} {describe_unit(self.objective)}",
            str(self.validity),
        ]
        if self.untried is not None:
            parts.append(self.untried.warning(f"the {measure} of observing them is the prior's"))
        # A table whose values rest on the prior says so before the numbers.
        if self.untried_share > 0:
            share = f"{100 * self.untried_share:.3g} % of its time"
            parts.append(f"the present plan spends {share} in these: its value is the prior's too")
        marked = np.zeros(len(self.pairs), bool) if self.from_prior is None else self.from_prior
        rows: list[tuple[str, ...]] = []
        for i in range(min(len(self.pairs), SHOWN)):
            # All data sets with their probabilities leave no Monte Carlo error.
            error = "none" if self.enumerated[i] else f"{self.standard_error[i]:.2g}"
            numbers = (f"{self.value[i]:.6g}", error, f"{self.cost[i]:.6g}", f"{self.per_cost[i]:.6g}")
            episodes = () if self.num_episodes is None else (str(self.num_episodes[i]),)
            rows.append((", ".join(map(str, self.pairs[i])), *episodes, *numbers, "the prior's" if marked[i] else ""))
        label_columns = ("pair",) if self.num_episodes is None else ("study", "episodes")
        head = (*label_columns, measure, "error", "cost", f"{measure} / cost", "")
        parts.append(Table(head, rows, (0, len(head) - 1)))
        if len(self.pairs) > SHOWN:
            parts.append(f"and {count_of(len(self.pairs) - SHOWN, 'more candidate')}")
        if not self.value.any():
            parts.append("every candidate is worth zero: no data that were looked at change the plan for the better")
        return Section(f"{title}, {describe_objective(self.objective)}, start: {self.start}", parts)

    def to_dataset(self) -> "xr.Dataset":
        """The table as xarray, along `candidate`, best first; labels are coordinates."""
        import xarray as xr

        # The labels are coordinates of the candidates: as many columns as the index has.
        columns_of_labels = zip(*self.pairs, strict=True)
        axes = ("study",) if self.num_episodes is not None else ("step", "state", "action")[-self.index.shape[1] :]
        names = {name: ("candidate", labels(column)) for name, column in zip(axes, columns_of_labels, strict=True)}
        columns = ("value", "standard_error", "cost", "per_cost", "enumerated", "num_data_sets")
        data = {name: ("candidate", np.asarray(getattr(self, name))) for name in columns}
        if self.num_episodes is not None:
            data["num_episodes"] = ("candidate", self.num_episodes)
        if self.from_prior is not None:
            data["from_prior"] = ("candidate", self.from_prior)
        attrs = {"n": self.n, "value_now": self.value_now, "validity": str(self.validity), "gap": self.gap}
        attrs["objective"] = describe_objective(self.objective)
        attrs |= {} if self.untried is None else {"untried": str(self.untried), "untried_share": self.untried_share}
        return xr.Dataset(data, names, attrs)


def next_experiment(
    key: PRNGKeyArray,
    posterior: Posterior,
    objective: Objective,
    candidates: Sequence[Pair] | Int[np.ndarray, "C d"] | Mapping[str, PolicyStudy] | None = None,
    *,
    n: int = 1,
    cost: ArrayLike = 1.0,
    initial: InitialLike | None = None,
    num_data_sets: int = NUM_DATA_SETS,
) -> NextExperiment:
    """What observing one pair, or one more episode (`PolicyStudy`), is worth for the choice of a policy: where to look.

    EVSI = E_data[max_pi E(V^pi | data)] - max_pi E V^pi, over policies that do not learn, data = `n` transitions and
    rewards of the pair as the posterior predicts them. The posterior is updated with each data set, its mean MDP is
    planned, and the answer is the mean over the data sets of V*(mean MDP | data) - V^pi(mean MDP | data), pi the plan
    of the present mean MDP: never negative, and 0 for all data that leave pi optimal. It is the EVSI where the mean
    value of every policy is its value in the mean MDP: no unknown row can be met twice and rows are independent, or
    rewards alone are unknown. Elsewhere it is a heuristic: what planning in the mean MDP would gain. See `validity`.

    Where few different data sets are possible (discrete outcomes; rewards known, Bernoulli, binomial or categorical)
    all are enumerated with their probabilities: no Monte Carlo error. `bayes_optimal` looks further ahead than one
    experiment; for it observing costs steps of the episode.

    Where rewards are costs and the prior of their mean is centred at zero, a pair that nobody tried looks free, and
    comes first: such pairs are named, and their values marked as the prior's (see `untried`).

    A candidate can also be a study: episodes under a policy (`PolicyStudy`). Its data are simulated: an MDP is drawn
    from the posterior, the policy plays the episodes in it from the start given here, and all that follows is the same.

    Host-side, by NumPy in float64 (rewards of linear regression learn in JAX, which compiles itself).

    Args:
        key: of the simulated data; candidates that are simulated have common random numbers.
        posterior: in closed form (infer with method='exact'), or a mixture of such.
        objective: Discounted, Episodic, AverageReward or FirstExit.
        candidates: pairs (state, action), each by its label or else its index; (step, state, action) where the space
            has a horizon. None: all legal pairs whose row or reward is not known. Or studies: name -> `PolicyStudy`.
        n: observations of the pair, at least 1; the value is that of all `n` of this pair together. With studies 1.
        cost: of the `n` observations together, or of the study, positive: a number, or [C], one for each candidate.
        initial: distribution of the first state, as in `policy_value`; None: uniform (see `initial_given`).
        num_data_sets: data sets that are simulated for each candidate, at least 2; if no more different ones are
            possible (of a pair) all are enumerated.

    Raises:
        ValueError, TypeError: one sentence on the argument that cannot be used: a posterior without an exact update, a
            pair that the space does not have or that is illegal, nothing that is unknown, a policy that does not fit,
            a study without the `max_steps` that it needs, pairs and studies together, a cost that is not positive;
            an objective that does not fit the mean MDP (see `solve`); data sets that do not fit in memory.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> data = bm.Transitions([0] * 20, [0] * 20, [0.0, 1.0] * 10, [0] * 20)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> bm.information.next_experiment(jax.random.key(1), posterior, bm.Episodic(1)).best  # action 1 is untried
        (0, 1)
    """
    check_key("key", key)
    # An exact belief is needed: it is updated with every simulated data set.
    belief = require_exact(posterior)
    check_objective(objective)
    check_count("n", n)
    check_count("num_data_sets", num_data_sets, 2)
    if isinstance(candidates, Mapping):
        if n != 1:
            raise ValueError(f"n is {n}, expected 1 where candidates are studies (each has its own num_episodes)")
        # Studies are policies followed for some episodes, pairs are looked at n times.
        options = _Studies(check_studies(candidates))
    else:
        unknown = unknown_pairs(belief)
        options = _Pairs(_read_candidates(candidates, belief.space, unknown), unknown, int(n))
    costs = _read_cost(cost, len(options.index))
    # Gains are small differences of large values: float64.
    with stage("next_experiment"), jax.enable_x64(True):
        belief64 = to_host_float64(belief)
        mean, means = belief64.mean_mdp(), MeanMDPs(belief64)
        start, is_given, words = read_start(mean, initial, belief.space)
        # What would be done without further data, and what that is worth.
        plan, value_now, gap = present_plan(means, mean, objective, start)
        present = _Present(belief, means, mean, plan)
        # E over data sets of V*(mean | data) - V^plan(mean | data), candidate by candidate.
        answer = options.gains(key, present, num_data_sets)
        untried = untried_rewards(belief)
        from_prior, share = np.zeros(len(options.index), bool), 0.0
        # Pairs that only the prior makes attractive are marked.
        if untried is not None:
            from_prior = options.tries(untried.pairs, present)
            basis = value_bases(belief, plan.probs[None], objective, start)[0]
            share = 0.0 if basis is None else basis.untried_share
    # By value for each unit of cost; of equals the first candidate.
    best_first = np.argsort(-answer.value / costs, kind="stable")
    return NextExperiment(
        pairs=tuple(options.names(belief.space)[i] for i in best_first),
        index=options.index[best_first],
        value=answer.value[best_first],
        standard_error=answer.standard_error[best_first],
        enumerated=answer.enumerated[best_first],
        num_data_sets=answer.num_data_sets[best_first],
        cost=costs[best_first],
        n=int(n),
        value_now=value_now,
        gap=max(gap, answer.gap),
        validity=validity_after_data(belief),
        objective=objective,
        initial=start,
        initial_given=is_given,
        num_episodes=None if options.num_episodes is None else options.num_episodes[best_first],
        start=words,
        untried=untried,
        from_prior=from_prior[best_first],
        untried_share=share,
    )


class _Present(NamedTuple):
    """What is known before the experiment: the belief, its mean MDPs and mean, and the plan."""

    belief: Updatable
    means: MeanMDPs
    mean: MDP | SparseMDP
    plan: PresentPlan


class _Gains(NamedTuple):
    """The columns of the table, in the order of the candidates, and the largest numerical error."""

    value: Float[np.ndarray, " C"]
    standard_error: Float[np.ndarray, " C"]
    enumerated: Bool[np.ndarray, " C"]
    num_data_sets: Int[np.ndarray, " C"]
    gap: float


@dataclass(frozen=True)
class _Pairs:
    """Candidates that are pairs, each observed `n` times."""

    index: Int[np.ndarray, "C d"]
    unknown: Bool[np.ndarray, "*H S A"]
    n: int
    num_episodes: ClassVar[None] = None

    def names(self, space: StateActionSpace) -> list[tuple[Hashable, ...]]:
        """Labels of the pairs."""
        states, actions = space.state_names, space.action_names
        # Labels where there are some; a step is a number.
        return [(*i[:-2], states[i[-2]], actions[i[-1]]) for i in self.index.tolist()]

    def tries(self, pairs: Bool[np.ndarray, "*H S A"], present: _Present) -> Bool[np.ndarray, " C"]:
        """Whether each candidate is one of `pairs`."""
        del present
        return pairs[tuple(self.index.T)]

    def gains(self, key: PRNGKeyArray, present: _Present, num_data_sets: int) -> _Gains:
        """What each pair is worth; what is known already is worth nothing: it is not looked at."""
        # Data about a known row change nothing.
        belief, means, _, plan = present
        # Only pairs that data can change are planned for.
        open_candidates = np.flatnonzero(self.unknown[tuple(self.index.T)])
        # Few possible data sets are enumerated, else they are drawn.
        kinds = enumerable(belief, self.index[open_candidates], self.n, num_data_sets)
        number, width = size_of_data(kinds, self.n, num_data_sets)
        # As many mean MDPs at once as fit into memory.
        chunk = chunk_of(means, number, width)
        # One key for all candidates: common random numbers, so that their order has less noise.
        data = [
            simulate_data(key, means, tuple(cell), self.n, num_data_sets)
            if kind is None
            else enumerate_data(tuple(cell), kind, self.n)
            for cell, kind in zip(self.index[open_candidates].tolist(), kinds, strict=True)
        ]
        gains, probabilities, gap = gains_after(data, means, plan, chunk)
        # Known candidates keep value zero, error zero.
        values, errors = np.zeros((2, len(self.index)))
        enumerated, counts = np.ones(len(self.index), bool), np.ones(len(self.index), int)
        for place, kind, gain, probability in zip(open_candidates, kinds, gains, probabilities, strict=True):
            # All data sets with their probabilities, or equally likely draws.
            values[place] = gain @ probability
            errors[place] = _error(gain) if kind is None else 0.0
            enumerated[place], counts[place] = kind is not None, len(gain)
        return _Gains(values, errors, enumerated, counts, gap)


@dataclass(frozen=True)
class _Studies:
    """Candidates that are episodes under a policy, by name."""

    studies: dict[str, PolicyStudy]

    @property
    def index(self) -> Int[np.ndarray, "C 1"]:
        """Places of the studies."""
        return np.arange(len(self.studies))[:, None]

    @property
    def num_episodes(self) -> Int[np.ndarray, " C"]:
        """Of each study."""
        return np.array([study.num_episodes for study in self.studies.values()])

    def names(self, space: StateActionSpace) -> list[tuple[Hashable, ...]]:
        """Names of the studies."""
        del space
        return [(name,) for name in self.studies]

    def tries(self, pairs: Bool[np.ndarray, "*H S A"], present: _Present) -> Bool[np.ndarray, " C"]:
        """Whether the policy of each study may try one of `pairs`."""
        designs = read_studies(self.studies, present.mean, present.plan.objective, present.belief.space)
        # A study tries a pair if its policy gives it any probability.
        return np.array([(pairs & (np.asarray(design.probs) > 0)).any() for design in designs.values()])

    def gains(self, key: PRNGKeyArray, present: _Present, num_data_sets: int) -> _Gains:
        """What each study is worth, by simulated data."""
        belief, means, mean, plan = present
        designs = read_studies(self.studies, mean, plan.objective, belief.space)
        gains, gap = study_gains(key, means, plan, designs, num_data_sets)
        values, errors = np.array([gain.mean() for gain in gains]), np.array([_error(gain) for gain in gains])
        number = len(gains)
        return _Gains(values, errors, np.zeros(number, bool), np.full(number, num_data_sets), gap)


def _error(gain: Float[np.ndarray, " D"]) -> float:
    """Monte Carlo error of the mean over equally likely data sets."""
    # Standard error of a mean of equally likely draws.
    return float(gain.std(ddof=1) / math.sqrt(len(gain)))


def _read_candidates(
    candidates: Sequence[Pair] | Int[np.ndarray, "C d"] | None,
    space: StateActionSpace,
    unknown: Bool[np.ndarray, "*H S A"],
) -> Int[np.ndarray, "C d"]:
    """Indices of the candidates: (step,) state, action."""
    if candidates is None:
        # None: everything that data can change.
        unknown_index = np.argwhere(unknown)
        if not len(unknown_index):
            raise ValueError("posterior leaves no row and no reward unknown, expected something that data can change")
        return unknown_index
    if isinstance(candidates, str) or not isinstance(candidates, Sequence | np.ndarray) or not len(candidates):
        raise TypeError(f"candidates is {candidates!r}, expected a list of pairs (state, action), or None")
    # Axes as the space has them: a step only where there is a horizon.
    axes = ("step", "state", "action")[-len(space.shape) :]
    names = {"step": tuple(range(space.horizon or 0)), "state": space.state_names, "action": space.action_names}
    index = []
    for i, pair in enumerate(candidates):
        if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray) or len(pair) != len(axes):
            hint = "; studies are given by name, {name: PolicyStudy(...)}" if isinstance(pair, PolicyStudy) else ""
            shown = "a PolicyStudy" if hint else repr(pair)
            raise TypeError(f"candidates[{i}] is {shown}, expected ({', '.join(axes)}){hint}")
        cell = tuple(_place(i, axis, names[axis], x) for axis, x in zip(axes, pair, strict=True))
        if space.legal is not None and not space.legal[cell[-2:]]:
            raise ValueError(
                f"candidates[{i}] is {tuple(pair)!r}, expected an action that is legal in state "
                f"{space.state_names[cell[-2]]!r}"
            )
        index.append(cell)
    return np.array(index)


def _place(i: int, axis: str, names: tuple[Hashable, ...], label: object) -> int:
    """The index of a label, or an index. True is no 1, neither as a label nor as an index."""
    # In Python True == 1: a flag is looked up among flags alone.
    flag = isinstance(label, bool | np.bool_)
    if isinstance(label, Hashable):
        matches = [i for i, name in enumerate(names) if name == label and isinstance(name, bool | np.bool_) == flag]
        if matches:
            return matches[0]
    # A label goes before an index.
    if isinstance(label, int | np.integer) and not flag and 0 <= label < len(names):
        return int(label)
    raise ValueError(
        f"candidates[{i}] has the {axis} {label!r}, expected a label, or an index from 0 to {len(names) - 1}"
    )


def _read_cost(cost: ArrayLike, number: int) -> Float[np.ndarray, " C"]:
    refuse_labels("cost", cost, "the candidates")
    array = np.asarray(as_real("cost", cost, "a number greater than 0"), np.float64)
    check_positive("cost", array)
    if array.ndim:
        check_shape("cost", array, (number,), "candidate")
    # One cost for all, or one for each candidate.
    return np.array(np.broadcast_to(array, number))
