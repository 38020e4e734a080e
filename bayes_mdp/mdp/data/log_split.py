"""Episodes of a log: where they begin, what they return, and a split of a log in two by whole episodes. Host-side."""

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.mdp.data.transitions import Log, Transitions
from bayes_mdp.mdp.objectives import AverageReward, Episodic, Objective
from bayes_mdp.utils.typing import AnyArray, RealLike
from bayes_mdp.utils.validation import check_key, check_number, check_type

LEAST_EPISODES = 20
MOST_CUT = 0.05  # share of the episodes that may be cut before their end

NO_EPISODES, NO_END = "an average reward has no episodes", "no episode of the log ends"


def episode_numbers(transitions: Transitions) -> Int[np.ndarray, " N"]:
    """The episode of each transition, counted from zero: a new one begins after `terminated` or `truncated`.

    Also where it was not observed what followed, and where the state is not the one that the row before led to: the
    rows are in the order of time.
    """
    state, reached = (np.asarray(x) for x in (transitions.state, transitions.next_state))
    after = np.zeros(len(state), bool)
    for flag in (transitions.terminated, transitions.truncated):
        if flag is not None:
            after |= np.asarray(flag)
    if transitions.next_observed is not None:
        after |= ~np.asarray(transitions.next_observed)
    # A row begins an episode after a flag, or where the chain of states breaks.
    begins = np.zeros(len(state), bool)
    begins[1:] = after[:-1] | (reached[:-1] != state[1:])
    return np.cumsum(begins)


def first_states(log: Log) -> Float[np.ndarray, " S"]:
    """How often episodes of the log begin in each state, as probabilities; of a log without rows zeros."""
    first = first_rows(log.transitions)
    counts = np.bincount(np.asarray(log.transitions.state)[first], minlength=len(log.states))
    return counts / max(counts.sum(), 1)


def first_rows(transitions: Transitions) -> Int[np.ndarray, " episodes"]:
    """The rows in which episodes begin: not those after a gap, where one goes on."""
    # A change of the number of the episode.
    first = np.flatnonzero(np.diff(episode_numbers(transitions), prepend=-1))
    return first[_are_starts(transitions, first)]


def _whole_episodes(transitions: Transitions) -> Int[np.ndarray, " N"]:
    """The episode of each transition, counted from zero, where one that goes on after a gap is one."""
    begins = np.zeros(np.shape(transitions.state), bool)
    begins[first_rows(transitions)] = True
    return np.cumsum(begins) - begins[:1].sum()


def _are_starts(transitions: Transitions, rows: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Whether an episode begins in these rows, and does not go on after a gap: what its first step is says so."""
    if transitions.step is None:
        return np.ones(len(rows), bool)
    return np.asarray(transitions.step)[rows] == first_step(transitions.step)


def first_step(step: Int[AnyArray, " N"]) -> int:
    """The smallest step of a log, where its episodes begin: 0, or 1 where visits are counted from 1; 0 without rows."""
    return int(np.min(step)) if np.size(step) else 0


def check_first_step(step: Int[AnyArray, " N"]) -> None:
    """Refuse a log whose steps do not begin at 0, where what is by step counts from there.

    Raises:
        ValueError: which step they begin at.
    """
    begin = first_step(step)
    if begin:
        raise ValueError(
            f"log has steps from {begin}, expected 0 at the first step of an episode, since rows and policies by step "
            f"count from there: subtract {begin} from its column of steps"
        )


def has_episodes(log: Log | Transitions) -> bool:
    """Whether a log says where episodes begin: it has several, or one that ends.

    One stretch does not, though its recording stopped somewhere (truncated).
    """
    transitions = log.transitions if isinstance(log, Log) else log
    if not np.size(transitions.state):
        return False
    return bool(np.any(transitions.terminated)) or int(_whole_episodes(transitions)[-1]) > 0


def split_log(key: PRNGKeyArray, log: Log, share: RealLike = 0.5) -> tuple[Log, Log]:
    """Two parts of a log, by episodes drawn at random; by single transitions where no episode ends.

    Both are data of one MDP, given the pairs that were tried: what one part chose, the other can judge.

    Args:
        key: of the draw.
        log: as a whole.
        share: of the episodes in the first part, between 0 and 1; at least one episode is in each.

    Raises:
        ValueError: a log of one episode (that ends), or of one transition; a share outside (0, 1).
        TypeError: no `Log`.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": "a", "a": "x", "r": [0.0, 1.0, 2.0, 3.0], "t": "a", "end": True})
        >>> log = bm.read_log(table, state="s", action="a", reward="r", next_state="t", terminated="end")
        >>> [len(part.transitions.state) for part in bm.mdp.split_log(jax.random.key(0), log)]
        [2, 2]
    """
    check_key("key", key)
    check_type("log", log, Log, "a Log (see read_log)")
    check_number("share", share, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")
    transitions = log.transitions
    # Whole episodes: the rows of one are dependent.
    number = _whole_episodes(transitions)
    episodes = int(number[-1]) + 1 if len(number) else 0
    ended = bool(np.any(transitions.terminated))
    if episodes < 2 and (ended or len(number) < 2):
        unit = "episode" if ended else "transition"
        raise ValueError(f"log has {max(episodes, len(number) and 1)} {unit}, expected at least 2 to split it")
    if episodes < 2:
        # One stretch without an end: transitions are exchangeable, given their pairs.
        number, episodes = np.arange(len(number)), len(number)
    # Drawn without replacement.
    draw = np.asarray(jax.random.permutation(key, episodes))
    first = int(np.clip(round(float(share) * episodes), 1, episodes - 1))
    chosen = np.zeros(episodes, bool)
    chosen[draw[:first]] = True
    chosen = chosen[number]
    return _part(log, chosen, "first part"), _part(log, ~chosen, "second part")


def halves_in_time(log: Log) -> tuple[Log, Log]:
    """The earlier and the later half of the episodes of a log, in the order of its rows; of one stretch, its halves.

    Args:
        log: as a whole, of two rows at least.
    """
    # Halves by the number of the episode.
    number = _whole_episodes(log.transitions)
    if number[-1] == 0:
        number = np.arange(len(number))
    earlier = number < (number[-1] + 1) // 2
    return _part(log, earlier, "earlier half"), _part(log, ~earlier, "later half")


def _part(log: Log, rows: Bool[np.ndarray, " N"], name: str) -> Log:
    part, outcomes = jax.tree.map(lambda x: np.asarray(x)[rows], (log.transitions, log.outcomes))
    covariates = None if log.covariates is None else log.covariates.part(rows)
    source = f"{log.source}, {name}"
    return Log(part, log.states, log.actions, source, columns=log.columns, outcomes=outcomes, covariates=covariates)


def returns_of(log: Log, objective: Objective) -> Float[np.ndarray, " episodes"] | str:
    """The return of every whole episode; a reason, in words, where there are too few of them."""
    transitions = log.transitions
    if isinstance(objective, AverageReward):
        return NO_EPISODES
    if transitions.reward is None:
        return "the log has no rewards"
    if transitions.reward_observed is not None:
        return "the log misses some rewards"
    number = episode_numbers(transitions)
    count = int(number[-1]) + 1
    # Steps from the beginning of each episode.
    begin = np.flatnonzero(np.diff(number, prepend=-1))
    step = np.arange(len(number)) - begin[number]
    last = np.append(begin[1:], len(number)) - 1
    # Whole: it ended, or had all of its steps.
    ended = np.zeros(count, bool) if transitions.terminated is None else np.asarray(transitions.terminated)[last]
    ended &= _are_starts(transitions, begin)
    # Under a horizon an episode is whole after so many steps too.
    if isinstance(objective, Episodic):
        ended = ended | (_are_starts(transitions, begin) & (step[last] + 1 >= objective.horizon))
    whole = int(ended.sum())
    if not whole:
        long = f", none has {objective.horizon} steps" if isinstance(objective, Episodic) else ""
        return f"{NO_END}{long}, so that none has a return"
    if whole < LEAST_EPISODES or whole < (1 - MOST_CUT) * count:
        return f"{whole} of {count} episodes are whole, at least {LEAST_EPISODES} and {1 - MOST_CUT:.0%} are needed"
    rate = float(objective.discount)
    # discount^step, from the beginning of the episode.
    weight = rate**step
    if isinstance(objective, Episodic):
        weight = weight * (step < objective.horizon)
    return np.bincount(number, weight * np.asarray(transitions.reward, np.float64))[ended]
