"""Normal-gamma beliefs about the mean and the precision of the return of every pair (Dearden et al. 1998)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.inference.value.student_t import StudentT


class ReturnBelief(eqx.Module):
    """precision ~ Gamma(concentration, rate); mean return | precision ~ Normal(loc, 1 / (pseudo_count precision)).

    Elementwise on arrays of one shape, [*H S A] in an agent. `loc` in units of the reward, `rate` in their square; all
    but `loc` positive. An illegal action has loc -inf.
    """

    loc: Float[Array, "*shape"]
    pseudo_count: Float[Array, "*shape"]
    concentration: Float[Array, "*shape"]
    rate: Float[Array, "*shape"]

    def of_mean(self) -> StudentT:
        """The law of the mean return."""
        scale = jnp.sqrt(self.rate / (self.pseudo_count * self.concentration))
        return StudentT(self.loc, scale, 2.0 * self.concentration)

    def of_next(self) -> StudentT:
        """The predictive law of one return."""
        law = self.of_mean()
        return StudentT(law.loc, law.scale * jnp.sqrt(self.pseudo_count + 1.0), law.dof)

    def mean(self) -> Float[Array, "*shape"]:
        """Expected mean return."""
        return self.loc

    def variance(self) -> Float[Array, "*shape"]:
        """Variance of the mean return; inf where concentration <= 1."""
        return self.of_mean().variance()

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*shape"]:
        """A draw of the mean returns."""
        return self.of_mean().sample(key)


def target(reward: Any, discount: Any, following: ReturnBelief, over: Any = False) -> StudentT:
    """The law of reward + discount (next return), elementwise; `following`: the pair that comes next.

    Where `over`, nothing follows: the reward itself, with scale 0.
    """
    law, discount = following.of_next(), jnp.where(over, 0.0, discount)
    loc = reward + jnp.where(over, 0.0, discount * jnp.where(over, 0.0, law.loc))
    return StudentT(loc, discount * law.scale, law.dof)
