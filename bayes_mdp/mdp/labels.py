"""Labels of a space at the border of the library. Host-side.

As coordinates, which xarray indexes and NetCDF can hold; and policies that a caller gave by label, or as the log that
followed them (`logged_actions`), as the arrays that the library computes with.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Float, Int, PRNGKeyArray
from scipy.special import chdtrc

from bayes_mdp.mdp import labelled_tables
from bayes_mdp.mdp.by_label import is_by_label
from bayes_mdp.mdp.data.folded_log import FoldedLog
from bayes_mdp.mdp.data.log_split import check_first_step, episode_numbers, has_episodes
from bayes_mdp.mdp.data.transitions import Log, Transitions, check_log_labels, check_transitions
from bayes_mdp.mdp.objectives import Episodic, Objective
from bayes_mdp.mdp.protocols import CanCount
from bayes_mdp.mdp.space import END, StateActionSpace, check_space
from bayes_mdp.utils.messages import count_of, first_names
from bayes_mdp.utils.typing import Names
from bayes_mdp.utils.validation import check_labels, first_index

OUTCOME = "next_state"
PLACE = "successor"
"""Of the axis of outcomes where successors are listed: which state a place means differs from pair to pair."""
_KINDS: tuple[type | tuple[type, ...], ...] = ((int, np.integer), (float, np.floating), str)


def labels(names: Sequence[Hashable]) -> np.ndarray:
    """Integers, floats and strings as they are; anything else (tuples, mixed kinds) as text."""
    for kind in _KINDS:
        if all(isinstance(name, kind) and not isinstance(name, bool) for name in names):
            return np.asarray(list(names))
    text = [str(name) for name in names]
    # 1 and "1" are two names.
    return np.asarray(text if len(set(text)) == len(text) else [repr(name) for name in names])


def outcome_axis(space: StateActionSpace) -> str:
    """The name of the axis of outcomes: "next_state", or "successor" where they are listed."""
    return OUTCOME if space.successors is None else PLACE


def names_of_lists(space: StateActionSpace) -> np.ndarray:
    """The label of each listed successor, [*H S A K] as text; empty where a list is shorter than the axis."""
    names = np.asarray([*map(str, space.state_names), *([END] if space.ends else []), ""], dtype=str)
    assert space.successors is not None
    return names[np.broadcast_to(space.successors, (*space.shape, space.n_outcomes))]


def coordinates(space: StateActionSpace) -> dict[str, np.ndarray]:
    """Labels along `step` (where there is a horizon), `state`, `action` and the outcomes."""
    axes = {"state": labels(space.state_names), "action": labels(space.action_names)}
    if space.horizon is not None:
        axes = {"step": np.arange(space.horizon), **axes}
    return {**axes, outcome_axis(space): labels(space.outcome_names)}


def pair_axes(shape: tuple[int, ...], space: StateActionSpace | None) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Dims and coordinates of an array [*H S A] by its shape; the names of `space`, where there is one."""
    names = (range(shape[-2]), range(shape[-1])) if space is None else (space.state_names, space.action_names)
    coords = {"state": labels(names[0]), "action": labels(names[1])}
    if len(shape) == 2:
        return ("state", "action"), coords
    return ("step", "state", "action"), {"step": np.arange(shape[0]), **coords}


def labels_of(posterior: object) -> StateActionSpace | None:
    """The space of a posterior; None: it has none, only sizes."""
    space = getattr(posterior, "space", None)
    return space if isinstance(space, StateActionSpace) else None


def policy_of(policy: Any, space: StateActionSpace | None, objective: Objective | None) -> Any:
    """The array of a policy by label or as a table, or of what a log did; anything else (Any) as it is.

    Args:
        policy: what a caller gave for a `PolicyOrLabels`.
        space: whose labels are meant; None: there are none.
        objective: whose steps a list of mappings has; None: not known here.

    Raises:
        TypeError, ValueError: one sentence: as `StateActionSpace.policy`; a policy by label where there is no space; a
            mapping for each step where the objective has none, or another number of them.
    """
    log = log_behind(policy)
    if log is not None:
        return logged_actions(log, space, logged_steps(log, space, objective))[0]
    policy = labelled_tables.by_label("policy", policy)
    if not is_by_label(policy):
        if space is None:
            labelled_tables.refuse_labels("policy", policy)
            return policy
        return labelled_tables.in_order("policy", policy, state=space.state_names, action=space.action_names)
    if space is None:
        raise TypeError(
            "policy is a mapping, expected an array or a Policy: there is no space here, whose labels it could mean "
            "(see StateActionSpace.policy)"
        )
    if not isinstance(policy, Mapping) and objective is not None:
        _check_steps(len(policy), objective)
    return space.policy(policy)


def _check_steps(number: int, objective: Objective) -> None:
    """One mapping for each step: only episodes have steps, and each needs one."""
    if not isinstance(objective, Episodic):
        raise ValueError(f"policy is a list of {number} mappings, expected one: {objective} has no steps")
    if number != objective.horizon:
        raise ValueError(
            f"policy is a list of {number} mappings, expected {objective.horizon}, one for each step, or one mapping"
        )


# What a log did, as a policy.

STEP_LEVEL = 0.01
"""Probability that actions are said to depend on the step although they do not."""
AS_LOGGED = -1
"""In place of a number of steps."""
LEAST_TAKEN = 5
"""Actions that were taken less often in a state say nothing about it."""


class _Visits(NamedTuple):
    """How often each action was taken in each state at each step: entries, of which several may have one cell."""

    state: Int[np.ndarray, " N"]
    action: Int[np.ndarray, " N"]
    step: Int[np.ndarray, " N"]
    times: Float[np.ndarray, " N"]


class LoggedPolicy(np.ndarray):
    """What a log did, as one policy of all steps, where its actions depend on the step: it remembers the log.

    Where a policy is named it is followed as the log is, by step under `Episodic`. What is computed from it (a copy, a
    part, a product), and itself once it was changed, are arrays like any other.
    """

    _log: Log | FoldedLog | None
    _as_made: bytes

    @classmethod
    def of(cls, probs: Float[np.ndarray, "S A"], log: Log | FoldedLog) -> "LoggedPolicy":
        """From action probabilities.

        Args:
            probs: of the log, over all its steps.
            log: that is remembered.
        """
        policy = probs.view(cls)
        policy._log, policy._as_made = log, probs.tobytes()
        return policy

    def __array_finalize__(self, parent: object) -> None:
        self._log, self._as_made = None, b""

    @property
    def log(self) -> Log | FoldedLog | None:
        """The log; None where the numbers are no longer those that it gave."""
        return self._log if self.tobytes() == self._as_made else None


def log_behind(policy: object) -> Log | FoldedLog | None:
    """The log that a policy stands for: itself, or what a `LoggedPolicy` remembers; None: any other policy."""
    if isinstance(policy, LoggedPolicy):
        return policy.log
    return policy if isinstance(policy, (Log, FoldedLog)) else None


def frequencies(counts: Float[np.ndarray, "*lead A"]) -> Float[np.ndarray, "*lead A"]:
    """The share of each action in its row.

    Args:
        counts: how many times each action was taken; every row has some.
    """
    return counts / counts.sum(-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class CountedPolicy:
    """A policy that is known only from how often each action was taken, as that of a log.

    NumPy reads it as its action probabilities on average.

    Args:
        counts: Float64[*H S A], of actions; every state has some.
        key: of the draws of its frequencies (see `bayes_mdp.decisions.policy_evaluation.BehaviourDraws`): those of two
            policies with one key, and the same counts, are the same.
    """

    counts: Float[np.ndarray, "*H S A"]
    key: PRNGKeyArray

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """The frequencies."""
        del copy  # they are made anew each time
        return np.asarray(frequencies(self.counts), dtype)


def logged_actions(
    log: Log | FoldedLog | Transitions | CanCount, space: StateActionSpace | None, steps: int | None = None
) -> tuple[Float[np.ndarray, "*H S A"], list[str]]:
    """How often each action was taken in each state, and the names of the states that the log never left.

    Args:
        log: of what was done.
        space: as of `behaviour_policy`.
        steps: of how many steps, each its own; `AS_LOGGED`: as many as the log has; None: over all steps.

    Raises:
        TypeError, ValueError: as `behaviour_policy`.
    """
    counts, never = logged_counts(log, space, steps)
    return frequencies(counts), never


def logged_counts(
    log: Log | FoldedLog | Transitions | CanCount, space: StateActionSpace | None, steps: int | None = None
) -> tuple[Float[np.ndarray, "*H S A"], list[str]]:
    """How many times each action was taken in each state, for `logged_actions` (arguments, errors: as there).

    A state that was never left has one of each (legal) action; one that was not left at a step has the numbers of all
    steps there.
    """
    states, actions = _names(log, space)
    names = states if space is None else space.state_names  # with "unseen", where the space has it
    counts = np.zeros((len(names), len(actions)))
    visits = _visits(log)
    np.add.at(counts, (visits.state, visits.action), visits.times)
    left = counts.sum(-1) == 0
    counts[left] = 1.0 if space is None or space.legal is None else space.legal[left]
    never = [str(names[s]) for s in np.flatnonzero(left[: len(states)])]
    if steps is None:
        return counts, never
    if isinstance(log, FoldedLog) and not log.by_step:
        raise ValueError("log is folded without steps, expected one folded with by_step=True")
    if isinstance(log, CanCount) and (space is None or space.horizon is None):
        raise ValueError("log is a posterior without steps, expected the log, or a space with a horizon")
    number = int(visits.step.max(initial=0)) + 1 if steps == AS_LOGGED else steps
    if not isinstance(log, CanCount) and (space is None or space.horizon is None):
        check_first_step(visits.step)
    by_step, inside = np.zeros((number, *counts.shape)), visits.step < number
    np.add.at(by_step, tuple(x[inside] for x in (visits.step, visits.state, visits.action)), visits.times[inside])
    return np.where(by_step.sum(-1, keepdims=True) > 0, by_step, counts), never


def logged_steps(
    log: Log | FoldedLog, space: StateActionSpace | None, objective: Objective | None, p_value: float | None = None
) -> int | None:
    """By how many steps what a log did is to be told; None: as one policy of all steps.

    By step where the objective has steps, and the rows of the space have, or the actions depend on it.

    Args:
        log: of what was done.
        space: of its labels; None: not known.
        objective: of the values.
        p_value: that of `step_p_value`; None: not worked out yet.
    """
    if not isinstance(objective, Episodic) or (isinstance(log, FoldedLog) and not log.by_step):
        return None
    if space is None or space.horizon is None:
        p_value = step_p_value(log) if p_value is None else p_value
        if p_value > STEP_LEVEL:
            return None
    return objective.horizon


def log_in_words(
    log: Log | FoldedLog, space: StateActionSpace | None, objective: Objective, *, mixed: bool = False
) -> str:
    """What a log in place of a policy stands for.

    Args:
        log, space, objective: as of `logged_steps`.
        mixed: whether it is the policy of all its steps, whatever the objective.
    """
    p_value = step_p_value(log)
    why = f", given the state (p = {p_value:.2g})"
    never = logged_counts(log, space)[1]
    # What staff do there the log does not say.
    states = f"{count_of(len(never), 'state')} that it never left: {first_names(never)}"
    uniform = f" (all actions alike in {states})" if never else ""
    if not mixed and logged_steps(log, space, objective, p_value) is not None:
        depends = f": its actions depend on the step{why}" if p_value <= STEP_LEVEL else ""
        return f"what the log did{uniform}, by step of the episode{depends}"
    if p_value <= STEP_LEVEL:
        return (
            f"what the log did{uniform}, as one policy of all steps; but its actions depend on the step{why}, so that "
            "this is not what was done (Episodic can follow the steps)"
        )
    return f"what the log did{uniform}"


def step_p_value(log: Log | FoldedLog | Transitions) -> float:
    """That actions depend on the step of the episode as little as this log shows, given the state; 1: it cannot say.

    The score test of a multinomial logit with a linear trend in the step, added over the states: with x_i the step of
    a visit less the state's mean and U_a the sum of x_i over the visits that took a, (n - 1) / (n sum x_i^2)
    sum_a U_a^2 / p_a is chi-square with one degree less than there are actions (its mean exactly so if the actions
    are permuted). Steps may depend on earlier actions: the sum is a martingale at the true policy. The level is
    asymptotic in the number of episodes. A dependence that is no trend, as on even steps, is not seen.

    Args:
        log: as a whole, or folded with its steps.
    """
    if not isinstance(log, FoldedLog) and not has_episodes(log):
        return 1.0
    state, action, step, count = _visits(log)
    if not len(state):
        return 1.0
    shape = (int(state.max()) + 1, int(action.max()) + 1)
    cell = state * shape[1] + action
    taken = np.bincount(cell, count, shape[0] * shape[1])
    enough = taken[cell] >= LEAST_TAKEN
    state, step, count, cell = state[enough], step[enough], count[enough], cell[enough]
    taken = np.where(taken < LEAST_TAKEN, 0, taken).reshape(shape)
    visits = taken.sum(-1)
    deviation = step - (np.bincount(state, count * step, shape[0]) / np.maximum(visits, 1))[state]
    squares = np.bincount(state, count * deviation**2, shape[0])
    score = np.bincount(cell, count * deviation, taken.size).reshape(shape)
    # U_a^2 / p_a (n - 1) / n = U_a^2 / taken_a (n - 1)
    statistic = (score**2 / np.maximum(taken, 1)).sum(-1) * (visits - 1) / np.maximum(squares, 1e-300)
    used = (squares > 1e-9 * visits) & ((taken > 0).sum(-1) > 1)
    degrees = ((taken > 0).sum(-1) - 1)[used].sum()
    return float(chdtrc(degrees, statistic[used].sum())) if degrees else 1.0


def behaviour_in_halves(log: Log, whole: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "2 S A"]:
    """How often each action was taken at the earlier and at the later steps (up to the median of all rows, and after).

    Args:
        log: as a whole.
        whole: action probabilities at all steps, for states that one of the halves does not have.
    """
    visits = _visits(log)
    counts = np.zeros((2, *whole.shape))
    later = visits.step > np.median(visits.step)
    np.add.at(counts, (later.astype(int), visits.state, visits.action), 1.0)
    total = counts.sum(-1, keepdims=True)
    return np.where(total > 0, counts / np.maximum(total, 1.0), whole)


def _visits(log: Log | FoldedLog | Transitions | CanCount) -> _Visits:
    if isinstance(log, FoldedLog):
        index = log.cells.where
        state, action, step = (np.asarray(x, np.int64) for x in (index.state, index.action, index.step))
        return _Visits(state, action, step, log.cells.count.astype(float))
    if isinstance(log, CanCount):
        counts = np.asarray(log.visit_counts(), np.float64)
        counts = counts.reshape(-1, *counts.shape[-2:])
        step, state, action = np.nonzero(counts)
        return _Visits(state, action, step, counts[step, state, action])
    data = log.transitions if isinstance(log, Log) else log
    number = episode_numbers(data)
    begin = np.flatnonzero(np.diff(number, prepend=-1))
    step = np.arange(len(number)) - begin[number] if data.step is None else np.asarray(data.step)
    state, action, step = (np.asarray(x).astype(np.int64) for x in (data.state, data.action, step))
    return _Visits(state, action, step, np.ones(len(number)))


def _names(log: object, space: StateActionSpace | None) -> tuple[Names, Names]:
    """The states and actions of a log, which must be those of the space, or those of the space of transitions."""
    if space is not None:
        check_space(space)
    if isinstance(log, Transitions):
        if space is None:
            raise TypeError(
                "log is Transitions without space, expected space=, which says how many states and actions there are, "
                "or a Log (see read_log)"
            )
        check_transitions(log, space)
        return space.logged_states, space.action_names
    if isinstance(log, CanCount) and space is not None:
        log_labels = labels_of(log)
        if log_labels is not None:
            check_labels("log.states", log_labels.state_names, space.state_names)
            check_labels("log.actions", log_labels.action_names, space.action_names)
        return space.logged_states, space.action_names
    if not isinstance(log, (Log, FoldedLog)):
        raise TypeError(f"log is a {type(log).__name__}, expected a Log (see read_log), or Transitions with space=")
    if space is not None:
        check_log_labels("log", log, space)
        log.check(space) if isinstance(log, FoldedLog) else _refuse_illegal(log, space)
    return log.states, log.actions


def _refuse_illegal(log: Log, space: StateActionSpace) -> None:
    state, action = np.asarray(log.transitions.state), np.asarray(log.transitions.action)
    row = None if space.legal is None else first_index(~space.legal[state, action])
    if row is not None:
        name, state_name = log.actions[action[row]], log.states[state[row]]
        raise ValueError(
            f"log.transitions.action[{row[0]}] is {name!r}, expected an action that is legal in state {state_name!r}"
        )
