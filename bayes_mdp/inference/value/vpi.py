"""Myopic value of perfect information about the mean return of an action (Dearden et al. 1998, section 4.3)."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_mdp.inference.value.returns import ReturnBelief
from bayes_mdp.inference.value.student_t import expected_excess


def value_of_perfect_information(belief: ReturnBelief) -> Float[Array, "*lead A"]:
    """What it would be worth to know the mean return of an action, and only of it, before choosing, per decision.

    Actions are the last axis. With a1, a2 the best and the second best by loc: E[(mu_a - loc(a1))^+] for a other than
    a1, E[(loc(a2) - mu_a1)^+] for a1. Never negative; unchanged when all loc are shifted. inf where concentration is at
    most 1/2 (the mean return has no mean), 0 for an illegal action (loc -inf) and for the only one.
    """
    loc = belief.loc
    best = jnp.arange(loc.shape[-1]) == jnp.argmax(loc, -1, keepdims=True)
    largest = jnp.max(loc, -1, keepdims=True)
    second = jnp.max(jnp.where(best, -jnp.inf, loc), -1, keepdims=True)
    gap = largest - jnp.where(best, second, loc)
    return expected_excess(gap, belief.of_mean())
