"""Does the belief expect the returns that the log has? The behaviour's value beside the mean return of its episodes."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.stats import norm

from bayes_mdp.decisions.behaviour import behaviour_policy
from bayes_mdp.decisions.policy_evaluation import policy_value
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Log, Objective, StateActionSpace
from bayes_mdp.mdp.log_split import episode_numbers
from bayes_mdp.mdp.protocols import Posterior

LEAST_EPISODES = 20
MOST_CUT = 0.05  # share of the episodes that may be cut before their end
DRAWS = 100


class ReturnCheck(NamedTuple):
    """The mean return of the log's episodes, and what the belief says that it is.

    The p-value takes errors of both as independent and normal; as the belief has learnt from the same episodes it is
    conservative, and a heuristic in small logs.

    Args:
        observed, error: mean return and its standard error.
        expected, sd: mean and standard deviation over the posterior of the value of the behaviour.
    """

    observed: float
    error: float
    expected: float
    sd: float

    @property
    def p_value(self) -> float:
        """Two-sided."""
        spread = np.hypot(self.error, self.sd)
        return float(2 * norm.sf(abs(self.observed - self.expected) / max(spread, 1e-300)))


def returns_of(log: Log, objective: Objective) -> Float[np.ndarray, " episodes"] | str:
    """The return of every whole episode; a reason, in words, where there are too few of them."""
    transitions = log.transitions
    if isinstance(objective, AverageReward):
        return "no episodes in the average reward"
    if transitions.reward is None or transitions.reward_observed is not None:
        return "the log has no rewards, or misses some"
    number = episode_numbers(transitions)
    count = int(number[-1]) + 1
    begin = np.flatnonzero(np.diff(number, prepend=-1))
    step = np.arange(len(number)) - begin[number]
    last = np.append(begin[1:], len(number)) - 1
    ended = np.zeros(count, bool) if transitions.terminated is None else np.asarray(transitions.terminated)[last]
    if isinstance(objective, Episodic):
        ended = ended | (step[last] + 1 >= objective.horizon)
    whole = int(ended.sum())
    if whole < LEAST_EPISODES or whole < (1 - MOST_CUT) * count:
        return f"{whole} of {count} episodes are whole, at least {LEAST_EPISODES} and {1 - MOST_CUT:.0%} are needed"
    rate = float(objective.discount) if isinstance(objective, Discounted) else 1.0
    weight = rate**step
    if isinstance(objective, Episodic):
        weight = weight * (step < objective.horizon)
    return np.bincount(number, weight * np.asarray(transitions.reward, np.float64))[ended]


def return_check(
    key: PRNGKeyArray,
    posterior: Posterior,
    log: Log,
    space: StateActionSpace,
    objective: Objective,
    start: Float[np.ndarray, " S"],
) -> ReturnCheck | str:
    """The check; a reason, in words, where it cannot be made."""
    returns = returns_of(log, objective)
    if isinstance(returns, str):
        return returns
    policy = behaviour_policy(log, space=space)
    value = policy_value(key, posterior, policy, objective, initial=start, num_draws=DRAWS)
    error = returns.std(ddof=1) / len(returns) ** 0.5
    return ReturnCheck(float(returns.mean()), float(error), value.mean, value.sd)
