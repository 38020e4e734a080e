"""Predictive checks of a model of behaviour: would persons with these parameters choose as they did? NumPy, host-side.

Each statistic is a function of a log and of actions [P T]: those of the log itself, or actions drawn one step ahead in
the place of each, whose past is that of the log.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.behaviour import ChoiceLog, Task, predict_freely
from bayes_mdp.behaviour.fit_behaviour import BehaviourPosterior
from bayes_mdp.behaviour.simulate_choices import one_step_fit
from bayes_mdp.calibration.predictive.comparisons import (
    Comparison,
    compare_statistic,
    comparison_table,
    lay_out_comparisons,
    stack_statistic,
    surprises,
)
from bayes_mdp.mdp import Environment
from bayes_mdp.utils.layout import Section, as_html, as_text
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.validation import check_count, check_functions, check_key, check_type

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
    # The last record in the same state before each record: running maxima of its times, shifted by one.
    for s in range(num_states):
        in_state = seen & (state == s)
        last = np.maximum.accumulate(np.where(in_state, np.arange(times), -1), axis=1)
        # Shifted by one: of the record itself nothing counts.
        before = np.concatenate([np.full((persons, 1), -1), last[:, :-1]], axis=1)
        previous = np.where(in_state, before, previous)
    # Rewards from a record on, to the end of the episode or the next record in its state: backwards over time.
    outcome, running = np.zeros(state.shape), np.zeros((persons, num_states))
    reward = np.where(seen, np.asarray(log.reward, float), 0.0)
    rows = np.arange(persons)
    for t in range(times - 1, -1, -1):
        # What came before an end does not reach beyond it.
        running[ends[:, t] & seen[:, t]] = 0.0
        running += reward[:, t, None]
        outcome[:, t] = running[rows, state[:, t]]
        # A record of the state starts its own count anew.
        running[rows[seen[:, t]], state[seen[:, t], t]] = 0.0
    # Won: more than the mean of what follows from that state.
    count, total = (np.bincount(state[seen], w, num_states) for w in (None, outcome[seen]))
    won = outcome > (total / np.maximum(count, 1))[state]
    following = np.where(ends, num_states, following)
    index = (state[seen], action[seen], following[seen])
    # Rare: not the most frequent outcome of the pair, over all persons.
    counts = np.zeros((num_states, num_actions, num_states + 1))
    np.add.at(counts, index, 1.0)
    return History(previous, won, following != counts.argmax(-1)[state, action])


def stays(log: ChoiceLog, action: Int[np.ndarray, "P T"]) -> Float[np.ndarray, "S 2 2"]:
    """How often the last action in a state is repeated: [state, lost / won, common / rare]; nan where never asked."""
    past = history(log)
    has_previous = past.previous >= 0
    previous = np.where(has_previous, past.previous, 0)
    before = np.take_along_axis(np.asarray(log.action), previous, axis=1)
    state = np.where(log.observed, log.state, 0)
    # Lost or won, common or rare, of the record before.
    cell = (state, *(np.take_along_axis(x, previous, axis=1).astype(int) for x in (past.won, past.rare)))
    shape = (len(log.states), 2, 2)
    # One number for each cell of the table.
    number = np.ravel_multi_index(cell, shape)[has_previous]
    count = np.bincount(number, minlength=4 * len(log.states)).astype(float)
    stayed = np.bincount(number, (action == before)[has_previous], 4 * len(log.states))
    with np.errstate(invalid="ignore"):
        return (stayed / np.where(count > 0, count, np.nan)).reshape(shape)


def stay_spread(log: ChoiceLog, action: Int[np.ndarray, "P T"]) -> float:
    """Standard deviation over persons of the share of repeated actions."""
    past = history(log)
    has_previous = past.previous >= 0
    before = np.take_along_axis(np.asarray(log.action), np.where(has_previous, past.previous, 0), axis=1)
    # The share of each person among those who could repeat.
    share = ((action == before) & has_previous).sum(1) / np.maximum(has_previous.sum(1), 1)
    return float(share[has_previous.any(1)].std())


def action_shares(log: ChoiceLog, action: Int[np.ndarray, "P T"]) -> Float[np.ndarray, "B S A"]:
    """Share of each action in each state, in four blocks of time; nan where a state was not seen."""
    # Four blocks of equal time.
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


class ChoiceCheck(NamedTuple):
    """Result of `check_choices`; print it.

    Args:
        comparisons: by name of the statistic.
        num_draws: replicates.
        log: the data.
        free: whether replicates ran freely.
    """

    comparisons: dict[str, Comparison]
    num_draws: int
    log: ChoiceLog
    free: bool

    @property
    def surprises(self) -> list[str]:
        """Names of the statistics with a two-sided p-value below 1 %."""
        return surprises(self.comparisons)

    def table(self) -> xr.Dataset:
        """Per statistic, along `quantity`: observed, mean and sd of the replicates, p."""
        return comparison_table(self.comparisons)

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """A line for each statistic, and those that are surprising."""
        manner = "running freely" if self.free else "one step ahead, the past as observed"
        title = f"Predictive check: {self.num_draws} replicates of {count_of(self.log.num_choices, 'choice')}, {manner}"
        place_words = lambda index: f" at {index}" if index else ""  # noqa: E731
        verdict = "These choices are not what this model would make."
        return lay_out_comparisons(title, self.comparisons, place_words, verdict, NEXT_STEPS)


def check_choices(
    key: PRNGKeyArray,
    posterior: BehaviourPosterior,
    *,
    environment: Environment | Task | None = None,
    horizon: int | None = None,
    statistics: Mapping[str, ChoiceStatistic] | None = None,
    num_draws: int = 200,
) -> ChoiceCheck:
    """Compare statistics of the choices with those of choices that the fitted model makes.

    The p-value of a statistic is that of `bm.calibration.predictive_check`: the share of draws whose replicate exceeds
    the data, two-sided for a number, by the largest standardised deviation for an array; below 1 % it is surprising.
    That bounds how often a true model is flagged only for replicates that are exchangeable with the data. One step
    ahead they are not: they share the past of the data, which holds its luck. Of 400 simulated groups of the two-step
    task (6 persons, 80 choices) with the true parameters known, `log_likelihood`, `stay`, `stay_spread`, `action_share`
    fell below 1 % in 2, 3, 4 and 4 %, one of the four in 12 %; of 64 with fitted parameters, which have seen the data,
    in 0, 0, 2 and 1 (counted by shares of the replicates alone; here the data count among them). One surprise among
    four is weak evidence. A model can pass and predict badly: the check asks whether choices look right, LOO compares
    how well models predict.

    Args:
        key: a typed key.
        posterior: as `bayes_mdp.behaviour.fit` returns it.
        environment, horizon: as for `simulate`; replicates then run freely in it. None: they are one step ahead.
        statistics: name -> function of a log and of actions [P T]. None: `stay` (repeats of the last action in a state,
            by what followed and by common or rare transition), `stay_spread` (between persons), `action_share` (by
            block of time and state), and, one step ahead, `log_likelihood`.
        num_draws: replicates.

    Raises:
        ValueError, TypeError: an argument of another type; a statistic whose shape is not fixed.
    """
    check_key("key", key)
    check_type("posterior", posterior, BehaviourPosterior, "what bayes_mdp.behaviour.fit returns")
    check_functions("statistics", statistics)
    check_count("num_draws", num_draws)
    log, chains = posterior.log, 1
    comparisons: dict[str, Comparison] = {}
    key, key_free = jax.random.split(key)
    if environment is None:
        # The past as observed: also the likelihood of what was drawn can be compared.
        drawn, of_data, of_drawn = one_step_fit(key, posterior, num_draws)
        replicates = [(log, actions) for actions in drawn]
        if statistics is None:
            comparisons[LIKELIHOOD] = compare_statistic(of_data.astype(float), of_drawn.astype(float), chains)
    else:
        # Free runs meet rewards of their own.
        runs = predict_freely(key_free, posterior, environment, num_draws=num_draws, horizon=horizon)
        replicates = [(run, np.asarray(run.action)) for run in runs]
    for name, function in (CHOICE_STATISTICS if statistics is None else statistics).items():
        # The data first: their statistic has the shape of the replicates'.
        stacked = stack_statistic(name, [function(*x) for x in ((log, np.asarray(log.action)), *replicates)])
        comparisons[name] = compare_statistic(np.broadcast_to(stacked[0], stacked[1:].shape), stacked[1:], chains)
    return ChoiceCheck(comparisons, len(replicates), log, environment is not None)
