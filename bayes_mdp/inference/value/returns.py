"""Normal-gamma beliefs about the mean and the precision of the return of every pair [BQL98].

With it: the law of a one-step target, moment updating (section 5.1 of the paper; `mixture_update` has section 5.2) and
the myopic value of perfect information (section 4.3).
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Real

from bayes_mdp.inference.value.student_t import StudentT, expected_excess

Number = float | Real[Array, "..."]
Flag = bool | Bool[Array, "..."]


class ReturnBelief(eqx.Module):
    """precision ~ Gamma(concentration, rate); mean return | precision ~ Normal(loc, 1 / (pseudo_count precision)).

    The belief of [BQL98].
    Elementwise on arrays of one shape, [*H S A] in an agent. All but `loc` are positive. An illegal action has loc
    -inf.

    Args:
        loc: expected return, in units of the reward.
        pseudo_count: weight of `loc`, in returns.
        concentration: of the Gamma law of the precision.
        rate: of that law, in squared units of the reward.
    """

    loc: Float[Array | np.ndarray, "*shape"]
    pseudo_count: Float[Array | np.ndarray, "*shape"]
    concentration: Float[Array | np.ndarray, "*shape"]
    rate: Float[Array | np.ndarray, "*shape"]

    def of_mean(self) -> StudentT:
        """The law of the mean return."""
        scale = jnp.sqrt(self.rate / (self.pseudo_count * self.concentration))
        return StudentT(self.loc, scale, 2.0 * self.concentration)

    def of_next(self) -> StudentT:
        """The predictive law of one return."""
        law = self.of_mean()
        return StudentT(law.loc, law.scale * jnp.sqrt(self.pseudo_count + 1.0), law.dof)

    def mean(self) -> Float[Array | np.ndarray, "*shape"]:
        """Expected mean return."""
        return self.loc

    def variance(self) -> Float[Array, "*shape"]:
        """Variance of the mean return; inf where concentration <= 1."""
        return self.of_mean().variance()

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*shape"]:
        """A draw of the mean returns."""
        return self.of_mean().sample(key)


def target(reward: Number, discount: Number, next_belief: ReturnBelief, over: Flag = False) -> StudentT:
    """The law of reward + discount (next return), elementwise [BQL98].

    Where `over`, nothing follows: the reward itself, with scale 0.

    Args:
        reward: of the step.
        discount: of the next return, from 0 to 1.
        next_belief: of the next pair.
    """
    law, discount = next_belief.of_next(), jnp.where(over, 0.0, discount)
    # loc may be -inf where nothing follows: masked before the product, 0 * inf is nan.
    loc = reward + jnp.where(over, 0.0, discount * jnp.where(over, 0.0, law.loc))
    return StudentT(loc, discount * law.scale, law.dof)


def moment_update(own: ReturnBelief, target: StudentT) -> ReturnBelief:
    """`own` after one return whose first two moments are those of `target` ([BQL98] section 5.1).

    The expected return counts as an observation, so the precision grows too quickly (a known flaw of the rule).
    The rate is inf where the target has no variance (its dof <= 2: the next belief has concentration <= 1).
    """
    count = own.pseudo_count + 1.0
    shift = target.loc - own.loc
    rate = own.rate + 0.5 * (target.variance() + own.pseudo_count / count * shift**2)
    return ReturnBelief(own.loc + shift / count, count, own.concentration + 0.5, rate)


def value_of_perfect_information(belief: ReturnBelief) -> Float[Array, "*lead A"]:
    """Expected gain per decision from knowing the mean return of one action exactly before choosing.

    From [BQL98] section 4.3. Actions are the last axis. With a1, a2 the best and the second best by loc:
    E[(mu_a - loc(a1))^+] for a other than a1, E[(loc(a2) - mu_a1)^+] for a1. Never negative; unchanged when all loc
    are shifted. inf where concentration is at most 1/2 (the mean return has no mean), 0 for an illegal action (loc
    -inf) and for the only one.

    Args:
        belief: about the returns of the actions, [... A].
    """
    loc = belief.loc
    best = jnp.arange(loc.shape[-1]) == jnp.argmax(loc, -1, keepdims=True)
    largest = jnp.max(loc, -1, keepdims=True)
    second = jnp.max(jnp.where(best, -jnp.inf, loc), -1, keepdims=True)
    # Knowledge helps if another action turns out better than a1, or a1 worse than a2.
    gap = largest - jnp.where(best, second, loc)
    return expected_excess(gap, belief.of_mean())
