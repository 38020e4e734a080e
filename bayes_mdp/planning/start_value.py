"""The value of a plan from where it starts."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_mdp.mdp import AverageReward, Episodic, Objective
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning.solution import PolicyEvaluation, Solution
from bayes_mdp.utils.typing import AnyArray


def value_at_start(
    found: Solution | PolicyEvaluation, objective: Objective, start: Float[AnyArray, " S"]
) -> Float[Array, "*B"]:
    """The value of one plan, or of each of a batch, from the given start; `AverageReward`: per step. Traceable.

    Args:
        found: the solution, or a batch of them, v [*B *H S].
        objective: which it solves.
        start: probabilities of the first state.
    """
    if isinstance(objective, AverageReward):
        return found.gain
    first = found.v[..., 0, :] if isinstance(objective, Episodic) else found.v
    return matmul(first, jnp.asarray(start))
