"""One sweep of the Bellman operator: its maximum, hard or soft, and a bound on what rounding costs.

How the values of actions become the value of a state: by the best action (`HardMax`) or softly (`SoftMax`). `Rounding`
makes the planners' bounds proofs in floating-point arithmetic: a dot product of n terms in any order of summation is
off by at most n u / (1 - n u) times the sum of the absolute products, u = eps / 2 (Higham 2002, *Accuracy and Stability
of Numerical Algorithms*, section 3.1).
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.planning.policy_arrays import at_policy, follow, mix
from bayes_mdp.planning.solution import best_action, best_value, where_legal

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
        # gamma_n = n u / (1 - n u) bounds the relative error of a sum of n terms (Higham 2002, section 3.1).
        u = terms * float(info.eps) / 2
        factor = u / (1 - u) if u < 0.5 else float("inf")
        # A mixed reward is at most the largest of the rewards that were mixed.
        size = largest_reward(mixed or mdp)
        return cls(factor, size, terms * float(info.tiny))

    def of_sweep(self, values: Float[Array, "..."]) -> Float[Array, ""]:
        """Bound on the error of reward + discount * E values, for every pair."""
        return self.factor * (self.reward + jnp.max(jnp.abs(values))) + self.floor


def largest_reward(mdp: MDP | SparseMDP) -> Float[Array, ""]:
    """The largest absolute reward of a legal pair."""
    return jnp.max(where_legal(jnp.abs(mdp.reward), mdp.legal, 0))


def total_probability(mdp: MDP | SparseMDP, rounding: Rounding) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Proven lower and upper bounds on the probability that a legal pair does not end the episode."""
    mass = jnp.sum(mdp.row_probs, -1)
    # Illegal pairs must not decide the extremes.
    low, high = where_legal(mass, mdp.legal, jnp.inf), where_legal(mass, mdp.legal)
    return jnp.min(low) * (1 - rounding.factor), jnp.max(high) * (1 + rounding.factor) + rounding.floor


class HardMax(eqx.Module):
    """v = max_a q.

    Args:
        policy: actions that attain the maximum, where they are known: derivatives are then those of this policy.
    """

    policy: Int[Array, " S"] | None = None

    def value(self, q: Float[Array, "*H S A"]) -> Float[Array, "*H S"]:
        """Values of states."""
        return best_value(q) if self.policy is None else at_policy(q, self.policy)

    def chain(self, mdp: MDP | SparseMDP, q: Float[Array, "S A"]) -> MDP | SparseMDP:
        """The chain of the policy, whose sweep of v is `value(q)` if q is a sweep of v."""
        return follow(mdp, best_action(q) if self.policy is None else self.policy)

    def uncertainty(self, n_actions: int) -> float:
        """What the rounding of `value` adds to that of q: a comparison does not round."""
        return 0.0

    excess = uncertainty  # nor is `value` more than the largest q


class SoftMax(eqx.Module):
    """v = temperature log sum_a exp(q / temperature) = max over policies of E q + temperature * entropy.

    It is monotone, adds a constant where q has one more, and its gradient is the policy softmax(q / temperature): what
    the bounds of the planners ask of a maximum.
    """

    temperature: Float[Array, ""]

    def value(self, q: Float[Array, "*H S A"]) -> Float[Array, "*H S"]:
        """Values of states."""
        top, _, log_sum = self._parts(q)
        return top + self.temperature * log_sum

    def log_policy(self, q: Float[Array, "*H S A"]) -> Float[Array, "*H S A"]:
        """Log-probabilities, finite for legal actions however small; -inf for illegal ones."""
        _, z, log_sum = self._parts(q)
        return jnp.where(jnp.isneginf(q), -jnp.inf, z - log_sum[..., None])

    def chain(self, mdp: MDP | SparseMDP, q: Float[Array, "S A"]) -> MDP | SparseMDP:
        """The chain of the soft policy, entropy in the reward: its sweep of v is `value(q)` if q is a sweep of v."""
        _, z, log_sum = self._parts(q)
        # log pi of legal actions only: an illegal one gets probability 0 before its log could make 0 * -inf.
        log_probs = z - log_sum[:, None]
        probs = jnp.where(jnp.isneginf(q), 0.0, jnp.exp(log_probs))
        # The soft maximum is the best E q + temperature * entropy: as a chain, the entropy is part of the reward.
        chain = mix(mdp, probs)
        entropy = -jnp.sum(probs * log_probs, -1, keepdims=True)
        return eqx.tree_at(lambda m: m.reward, chain, chain.reward + self.temperature * entropy)

    def uncertainty(self, n_actions: int) -> Float[Array, ""]:
        """What the rounding of `value` adds to that of q, but for the last sum, which `Rounding` counts.

        Of z = (q - top) / temperature, two roundings: they change the sum of exp(z), which is at least 1, by at most
        2 u |z| exp(z) <= 2 u / e a term. exp and log: 8 units each. The sum: A units. All times the temperature.
        """
        units = 2 * n_actions + 16 + 8 * math.log(n_actions)
        return self.temperature * (units * float(jnp.finfo(self.temperature.dtype).eps))

    def excess(self, n_actions: int) -> Float[Array, ""]:
        """By how much `value` can be more than the largest q."""
        return self.temperature * math.log(n_actions)

    def _parts(
        self, q: Float[Array, "*H S A"]
    ) -> tuple[Float[Array, "*H S"], Float[Array, "*H S A"], Float[Array, "*H S"]]:
        """Largest q, (q - largest) / temperature with 0 where illegal, log of the sum of its exponentials."""
        illegal = jnp.isneginf(q)
        # The shift cancels in every derivative; illegal entries are finite before anything is differentiated.
        top = jax.lax.stop_gradient(jnp.max(q, -1))
        z = (jnp.where(illegal, top[..., None], q) - top[..., None]) / self.temperature
        return top, z, jnp.log(jnp.sum(jnp.where(illegal, 0.0, jnp.exp(z)), -1))


Max = HardMax | SoftMax
