"""Returns of the episodes of a log."""

import numpy as np
from jaxtyping import Float

from bayes_mdp.mdp.data.log_split import episode_numbers
from bayes_mdp.mdp.data.transitions import Log
from bayes_mdp.mdp.objectives import AverageReward, Episodic, Objective, step_discount

LEAST_EPISODES = 20
MOST_CUT = 0.05  # share of the episodes that may be cut before their end

NO_EPISODES, NO_END = "an average reward has no episodes", "no episode of the log ends"


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
    begin = np.flatnonzero(np.diff(number, prepend=-1))
    step = np.arange(len(number)) - begin[number]
    last = np.append(begin[1:], len(number)) - 1
    ended = np.zeros(count, bool) if transitions.terminated is None else np.asarray(transitions.terminated)[last]
    if isinstance(objective, Episodic):
        ended = ended | (step[last] + 1 >= objective.horizon)
    whole = int(ended.sum())
    if not whole:
        long = f", none has {objective.horizon} steps" if isinstance(objective, Episodic) else ""
        return f"{NO_END}{long}, so that none has a return"
    if whole < LEAST_EPISODES or whole < (1 - MOST_CUT) * count:
        return f"{whole} of {count} episodes are whole, at least {LEAST_EPISODES} and {1 - MOST_CUT:.0%} are needed"
    rate = float(step_discount(objective))
    weight = rate**step
    if isinstance(objective, Episodic):
        weight = weight * (step < objective.horizon)
    return np.bincount(number, weight * np.asarray(transitions.reward, np.float64))[ended]
