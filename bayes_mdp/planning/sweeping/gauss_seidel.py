"""Bellman sweeps in the order of the states: news travels along a line of states in one sweep.

A sweep that updates all states at once moves news by one transition, and so does an improvement of a policy. In
Gauss-Seidel order (Puterman 1994, section 6.3.3), once up and once down, it moves on as long as transitions lead to
states that come next in the order. States are cut into 128 segments that are swept side by side: vectors instead of
scalars, and within a sweep news ends at the end of its segment.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import IntScalar

_LANES = 128  # segments


class OrderedSweeps(eqx.Module):
    """An MDP laid out for sweeps in order, with L states a segment in N segments.

    State s is place s % L of segment s // L, and is stored at L-major position place * N + segment. The chance to stay
    is solved for: v = max_a (r + discount sum_{s' != s} p v) / (1 - discount p_stay), which has the same solution.

    Args:
        successor: [L, K A, N], positions, successors before actions. None for dense rows: their positions are the
            states, N = 1.
        weight: [L, K A, N], or [S, A, S]: discount * probability / (1 - discount * probability to stay), zero for
            staying.
        reward: reward / (1 - discount * probability to stay); -inf where illegal.
        n_states: S.
    """

    successor: Int[Array, "L KA N"] | None
    weight: Float[Array, "L I J"]
    reward: Float[Array, "L A N"]
    n_states: int = eqx.field(static=True)

    @classmethod
    def of(cls, mdp: MDP | SparseMDP, discount: Float[Array, ""]) -> "OrderedSweeps":
        """The layout: one copy of the rows."""
        states = jnp.arange(mdp.n_states)
        rows = mdp.row_probs
        next_state = mdp.successor if isinstance(mdp, SparseMDP) else states
        stays = next_state == states[:, None, None]
        leave = 1 - discount * jnp.sum(jnp.where(stays, rows, 0.0), -1)
        # Positive but for rounding of rows and discount.
        leave = jnp.maximum(leave, float(jnp.finfo(leave.dtype).eps))
        weight = jnp.where(stays, 0.0, rows) * (discount / leave)[..., None]
        reward = mdp.reward / leave
        reward = reward if mdp.legal is None else jnp.where(mdp.legal, reward, -jnp.inf)
        n = mdp.n_states
        if isinstance(mdp, MDP):
            return cls(None, weight, reward[..., None], n)
        length = -(-n // min(_LANES, n))
        lanes = -(-n // length)
        position = mdp.successor % length * lanes + mdp.successor // length

        def cut(x: Array) -> Array:
            """[S A *K] -> [L *K A N]; states that fill the last segment earn nothing."""
            x = jnp.pad(x, [(0, length * lanes - n)] + [(0, 0)] * (x.ndim - 1))
            x = jnp.moveaxis(x.reshape(lanes, length, *x.shape[1:]), 0, -1)
            return x if x.ndim == 3 else jnp.swapaxes(x, 1, 2).reshape(length, -1, lanes)

        return cls(cut(position), cut(weight), cut(reward), n)

    def __call__(self, values: Float[Array, " S"], times: IntScalar) -> Float[Array, " S"]:
        """`values` after `times` sweeps from the last state to the first and back."""
        length, _, lanes = self.reward.shape
        spare = length * lanes - self.n_states
        x = jnp.pad(values, (0, spare)).reshape(lanes, length).T.reshape(-1)
        x = lax.fori_loop(0, times, lambda _, x: self._sweep(self._sweep(x, True), False), x)
        return x.reshape(length, lanes).T.reshape(-1)[: self.n_states]

    def _sweep(self, x: Float[Array, " LN"], down: bool) -> Float[Array, " LN"]:
        length, n_actions, lanes = self.reward.shape

        def step(
            x: Float[Array, " LN"], row: tuple[Int[Array, ""], Array | None, Array, Array]
        ) -> tuple[Float[Array, " LN"], None]:
            place, successor, weight, reward = row
            if successor is None:
                q = reward + matmul(weight, x)[:, None]
            else:
                # One gather of all, then products: vectors over the segments.
                terms = weight * x[successor]
                q = reward + jnp.sum(terms.reshape(-1, n_actions, lanes), 0)
            return lax.dynamic_update_slice(x, jnp.max(q, 0), (place * lanes,)), None

        rows = (jnp.arange(length), self.successor, self.weight, self.reward)
        return lax.scan(step, x, rows, reverse=down)[0]
