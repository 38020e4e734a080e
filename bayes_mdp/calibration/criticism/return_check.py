"""Does the belief expect the returns that the log has? The behaviour's value beside the mean return of its episodes."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.stats import norm

from bayes_mdp.decisions.behaviour import behaviour_policy
from bayes_mdp.decisions.policy_evaluation import policy_value
from bayes_mdp.mdp import Log, Objective, StateActionSpace
from bayes_mdp.mdp.episode_returns import returns_of
from bayes_mdp.mdp.protocols import Posterior

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
