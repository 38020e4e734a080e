"""What floating-point arithmetic may have cost: allowances that make the planners' bounds proofs.

A dot product of n terms in any order of summation is off by at most n u / (1 - n u) times the sum of the absolute
products, u = eps / 2 (Higham 2002, *Accuracy and Stability of Numerical Algorithms*, section 3.1).
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_mdp.mdp import MDP, SparseMDP

_SPARE = 8  # discount, sum with the reward, difference from v, and one rounding of each input to its dtype


class Rounding(eqx.Module):
    """Bound on the rounding error of one sweep over an MDP.

    Args:
        factor: relative error of a sweep (n u / (1 - n u)).
        reward: largest absolute reward of a legal pair.
        floor: absolute error by underflow.
    """

    factor: float = eqx.field(static=True)
    reward: Float[Array, ""]
    floor: float = eqx.field(static=True)

    @classmethod
    def of(cls, mdp: MDP | SparseMDP, *, mixed: MDP | SparseMDP | None = None) -> "Rounding":
        """The allowance for `mdp`, or for a chain `mdp` that was mixed from the actions of `mixed`."""
        listed = mdp.probability.shape[-1] if isinstance(mdp, SparseMDP) else mdp.n_states
        # Terms of the longest sum in a sweep: successors, the fixed operations, and the mixture over actions.
        terms = listed + _SPARE + (0 if mixed is None else mixed.n_actions + 2)
        info = jnp.finfo(mdp.reward.dtype)
        u = terms * float(info.eps) / 2
        factor = u / (1 - u) if u < 0.5 else float("inf")
        size = largest_reward(mixed or mdp)
        return cls(factor, size, terms * float(info.tiny))

    def of_sweep(self, values: Float[Array, "..."]) -> Float[Array, ""]:
        """Bound on the error of reward + discount * E values, for every pair."""
        return self.factor * (self.reward + jnp.max(jnp.abs(values))) + self.floor


def largest_reward(mdp: MDP | SparseMDP) -> Float[Array, ""]:
    """The largest absolute reward of a legal pair."""
    size = jnp.abs(mdp.reward)
    return jnp.max(size if mdp.legal is None else jnp.where(mdp.legal, size, 0))


def total_probability(mdp: MDP | SparseMDP, rounding: Rounding) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Proven lower and upper bounds on the probability that a legal pair does not end the episode."""
    mass = row_sums(mdp)
    low = mass if mdp.legal is None else jnp.where(mdp.legal, mass, jnp.inf)
    high = mass if mdp.legal is None else jnp.where(mdp.legal, mass, -jnp.inf)
    return jnp.min(low) * (1 - rounding.factor), jnp.max(high) * (1 + rounding.factor) + rounding.floor


def row_sums(mdp: MDP | SparseMDP) -> Float[Array, "S A"]:
    """The probability that a pair does not end the episode, as computed."""
    return jnp.sum(mdp.row_probs, -1)
