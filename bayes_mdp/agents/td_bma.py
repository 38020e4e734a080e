"""TD-BMA: SARSA(lambda) with a lambda that is the posterior probability of the Monte-Carlo return ([TDBMA10])."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_mdp.agents.trial import TrialLearner


def weight(q_mc: Any, q_td: Any, mean: Any, variance: Any, count: Any) -> Float[Array, "*shape"]:
    """The posterior probability of the Monte-Carlo estimate against the bootstrapped one ([TDBMA10] equation 14).

    lambda = f(q_mc)^N / (f(q_mc)^N + f(q_td)^N), f the density of a normal law with this mean and variance. It is
    computed in log space, where the normalisers cancel: sigmoid(N ((q_td - mean)^2 - (q_mc - mean)^2) / (2 variance)).

    Args:
        q_mc, q_td: the two estimates of a return.
        mean, variance: of the returns seen before; the variance may be infinite (nothing is known) or 0.
        count: N, how many were seen.

    Returns:
        In [0, 1]. 1/2 where N = 0, where the variance is infinite and where both are as near to the mean; with
        variance 0 it is 1 or 0, for the nearer one.
    """
    q_mc, q_td, mean, variance, count = (jnp.asarray(x, float) for x in (q_mc, q_td, mean, variance, count))
    certain = variance <= 0
    sd = jnp.sqrt(jnp.where(certain, 1.0, variance))
    # a^2 - b^2 as a product of numbers of size one: the squares would cancel, or leave the range.
    difference, middle = q_td - q_mc, 0.5 * (q_td - mean) + 0.5 * (q_mc - mean)
    nearer = jnp.sign(difference) * jnp.sign(middle)
    evidence = count * (difference / sd) * (middle / sd)
    unknown = (count <= 0) | jnp.isinf(variance) | (nearer == 0)
    return jnp.where(unknown, 0.5, jnp.where(certain, 0.5 + 0.5 * nearer, jax.nn.sigmoid(evidence)))


class TDBMA(TrialLearner):
    """TD-BMA (Downey and Sanner 2010, Algorithm 3): a backward sweep over each trial with a lambda for every step.

    lambda of a step is the posterior probability (`weight`) that its return is better predicted by the return R_{t+1}
    that followed than by Q(s_{t+1}, a_{t+1}), under a normal law fitted to the returns that were seen from the pair
    before (count, mean and variance of every pair are learnt in the same sweep; fewer than two returns: 1/2). The rest
    is `SarsaLambda`, of which this is the version without a lambda to tune.

    Args:
        learning_rate, epsilon, initial_q, frozen, bootstrap, trial_steps, replan: as in `SarsaLambda`.

    Raises:
        ValueError, TypeError: a number outside its range.
    """

    @property
    def keeps_statistics(self) -> bool:
        """Yes."""
        return True

    def trace_decay_at(self, statistics: Float[Array, " 3"], q_mc: Any, q_td: Any) -> Float[Array, ""]:
        """`weight`, from the returns of the pair so far."""
        count, mean, squares = (statistics[..., i] for i in range(3))
        variance = jnp.where(count > 1, squares / jnp.maximum(count, 1.0), jnp.inf)
        return weight(q_mc, q_td, mean, variance, count)
