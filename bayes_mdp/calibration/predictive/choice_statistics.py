"""Statistics of choices for predictive checks. NumPy, host-side.

Each is a function of a log and of actions [P T]: those of the log itself, or actions drawn one step ahead in the place
of each, whose past is that of the log.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.behaviour import ChoiceLog

ChoiceStatistic = Callable[[ChoiceLog, Int[np.ndarray, "P T"]], float | Float[np.ndarray, "..."]]
_BLOCKS = 4


class History(NamedTuple):
    """What went before each record of a log.

    Args:
        previous: [P T], the person's last record in the same state; -1 where there is none.
        won: [P T], whether what followed a record was above the mean of its state: the rewards up to the end of the
            episode, or until the state came again.
        rare: [P T], whether it led to another state than is most frequent after its state and action.
    """

    previous: Int[np.ndarray, "P T"]
    won: Bool[np.ndarray, "P T"]
    rare: Bool[np.ndarray, "P T"]


def history(log: ChoiceLog) -> History:
    """What went before each record."""
    seen = np.asarray(log.observed)
    # What was not observed may hold anything.
    state, action, following = (np.where(seen, x, 0) for x in (log.state, log.action, log.next_state))
    persons, times = state.shape
    num_states, num_actions = len(log.states), len(log.actions)
    ends = np.zeros(state.shape, bool) if log.terminated is None else np.asarray(log.terminated)
    previous = np.full(state.shape, -1)
    for s in range(num_states):
        here = seen & (state == s)
        last = np.maximum.accumulate(np.where(here, np.arange(times), -1), axis=1)
        before = np.concatenate([np.full((persons, 1), -1), last[:, :-1]], axis=1)
        previous = np.where(here, before, previous)
    # Rewards from a record on, to the end of the episode or the next record in its state: backwards over time.
    outcome, running = np.zeros(state.shape), np.zeros((persons, num_states))
    reward = np.where(seen, np.asarray(log.reward, float), 0.0)
    rows = np.arange(persons)
    for t in range(times - 1, -1, -1):
        running[ends[:, t] & seen[:, t]] = 0.0
        running += reward[:, t, None]
        outcome[:, t] = running[rows, state[:, t]]
        running[rows[seen[:, t]], state[seen[:, t], t]] = 0.0
    count, total = (np.bincount(state[seen], w, num_states) for w in (None, outcome[seen]))
    won = outcome > (total / np.maximum(count, 1))[state]
    following = np.where(ends, num_states, following)
    index = (state[seen], action[seen], following[seen])
    counts = np.zeros((num_states, num_actions, num_states + 1))
    np.add.at(counts, index, 1.0)
    return History(previous, won, following != counts.argmax(-1)[state, action])


def stays(log: ChoiceLog, action: Int[np.ndarray, "P T"]) -> Float[np.ndarray, "S 2 2"]:
    """How often the last action in a state is repeated: [state, lost / won, common / rare]; nan where never asked."""
    past = history(log)
    asked = past.previous >= 0
    at = np.where(asked, past.previous, 0)
    before = np.take_along_axis(np.asarray(log.action), at, axis=1)
    state = np.where(log.observed, log.state, 0)
    cell = (state, *(np.take_along_axis(x, at, axis=1).astype(int) for x in (past.won, past.rare)))
    shape = (len(log.states), 2, 2)
    number = np.ravel_multi_index(cell, shape)[asked]
    count = np.bincount(number, minlength=4 * len(log.states)).astype(float)
    stayed = np.bincount(number, (action == before)[asked], 4 * len(log.states))
    with np.errstate(invalid="ignore"):
        return (stayed / np.where(count > 0, count, np.nan)).reshape(shape)


def stay_spread(log: ChoiceLog, action: Int[np.ndarray, "P T"]) -> float:
    """Standard deviation over persons of the share of repeated actions."""
    past = history(log)
    asked = past.previous >= 0
    before = np.take_along_axis(np.asarray(log.action), np.where(asked, past.previous, 0), axis=1)
    share = ((action == before) & asked).sum(1) / np.maximum(asked.sum(1), 1)
    return float(share[asked.any(1)].std())


def action_shares(log: ChoiceLog, action: Int[np.ndarray, "P T"]) -> Float[np.ndarray, "B S A"]:
    """Share of each action in each state, in four blocks of time; nan where a state was not seen."""
    seen, state = np.asarray(log.observed), np.asarray(log.state)
    block = np.broadcast_to(np.arange(state.shape[1]) * _BLOCKS // state.shape[1], state.shape)
    shape = (_BLOCKS, len(log.states), len(log.actions))
    number = np.ravel_multi_index((block[seen], state[seen], action[seen]), shape)
    counts = np.bincount(number, minlength=int(np.prod(shape))).reshape(shape).astype(float)
    with np.errstate(invalid="ignore"):
        total = counts.sum(-1, keepdims=True)
        return counts / np.where(total > 0, total, np.nan)


CHOICE_STATISTICS: dict[str, ChoiceStatistic] = {
    "stay": stays,
    "stay_spread": stay_spread,
    "action_share": action_shares,
}
"""By name: what `check_choices` compares by default."""
LIKELIHOOD = "log_likelihood"
_STAY = "a learner that repeats choices more or less (perseveration), or learns otherwise from what was won or rare"
_DRIFT = "a bias for actions, or a learning rate that changes with time"
_BETTER = "another model: compare several by bm.calibration.compare_behaviour"
NEXT_STEPS: dict[str, tuple[str, str]] = {
    "stay": (_STAY, _STAY),
    "stay_spread": (
        'parameters of each person, or a wider prior of how persons differ (pooling="partial" or "none")',
        'parameters that persons share (pooling="complete"), or a narrower prior of how they differ',
    ),
    "action_share": (_DRIFT, _DRIFT),
    LIKELIHOOD: (_BETTER, _BETTER),
}
"""Statistic -> what to try where it is larger for the persons than in replicates, and where it is smaller."""
