"""Many sweeps of one policy over listed successors: rows picked once, successors first, so that sums are vectors.

XLA on CPU reduces a short last axis by a scalar loop. With the successor axis first a sweep is K gathers and products
of whole vectors: 3 times as fast at 10^5 states, as fast at 10^6, where memory decides.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.planning.policy_chain import UNROLLED, follow
from bayes_mdp.utils.typing import RealScalar


class PolicySweeps(eqx.Module):
    """The sweeps v -> reward + discount * P v of a deterministic policy.

    Args:
        chain: of the policy; None where `successor` and `weight` hold it.
        successor: [K S].
        weight: [K S], discount * probability.
        reward: [S].
        discount: of `chain`.
    """

    chain: MDP | SparseMDP | None
    successor: Int[Array, "K S"] | None
    weight: Float[Array, "K S"] | None
    reward: Float[Array, " S"]
    discount: Float[Array, ""]

    @classmethod
    def of(cls, mdp: MDP | SparseMDP, policy: Int[Array, " S"], discount: RealScalar) -> "PolicySweeps":
        """The rows of the policy."""
        discount = jnp.asarray(discount, mdp.reward.dtype)
        if isinstance(mdp, MDP) or mdp.successor.shape[-1] > UNROLLED:
            chain = follow(mdp, policy)
            return cls(chain, None, None, chain.reward[:, 0], discount)
        pair = jnp.arange(mdp.n_states) * mdp.n_actions + policy
        pick = lambda x: x.reshape(-1, x.shape[-1])[pair].T  # noqa: E731
        successor, weight = pick(mdp.successor), discount * pick(mdp.probability)
        return cls(None, successor, weight, mdp.reward.reshape(-1)[pair], discount)

    def for_changes(self, residual: Float[Array, " S"]) -> "PolicySweeps | None":
        """The sweeps d -> residual + discount * P d of what is added to values, in single precision; None: of no use.

        As in iterative refinement: the residual, T v - v, is of the values' own precision, a correction needs few
        digits, and half of the memory is read. None for dense rows, and where single precision is what there is.
        """
        if self.successor is None or self.weight is None or self.weight.dtype == jnp.float32:
            return None
        return PolicySweeps(
            None, self.successor, self.weight.astype(jnp.float32), residual.astype(jnp.float32), self.discount
        )

    def __call__(self, values: Float[Array, " S"]) -> Float[Array, " S"]:
        """One sweep."""
        if self.chain is not None:
            return self.reward + self.discount * self.chain.expected_next(values)[:, 0]
        assert self.successor is not None and self.weight is not None
        terms = (w * values[s] for s, w in zip(self.successor, self.weight, strict=True))
        return sum(terms, self.reward)
