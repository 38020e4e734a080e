"""The values of a policy in draws of a belief, many at a time but never all: moments are merged chunk by chunk."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.propagated import horizon_of
from bayes_mdp.mdp import CanSample, Objective
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.validation import check_count, check_key, is_concrete
from bayes_mdp.planning import evaluate, policy_probs
from bayes_mdp.planning.memory import computed_once
from bayes_mdp.planning.outline import outline

MOST_AT_ONCE = 1000  # draws in a chunk
NUMBERS_AT_ONCE = 2**22  # of all draws in a chunk


class DrawMoments(NamedTuple):
    """count draws; mean of q [*H S A] (0 where illegal); sum of products of deviations [*H S A A]; the planner's word.

    `illegal`: q is -inf.
    """

    count: Float[Array, ""]
    mean: Float[Array, "*H S A"]
    products: Float[Array, "*H S A A"]
    illegal: Bool[Array, "*H S A"]
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    gap: Float[Array, ""]

    @property
    def covariance(self) -> Float[Array, "*H S A A"]:
        """Between the values of the actions of a state; unbiased."""
        return self.products / (self.count - 1.0)


def check_draws(key: Any, posterior: Any, num_draws: Any, who: str) -> None:
    """Refuse what is no key, cannot be sampled, or is no number of draws.

    Raises:
        ValueError, TypeError: as said.
    """
    check_key("key", key)
    require_ability(posterior, CanSample, who)
    check_count("num_draws", num_draws, 2)


def read_probs(posterior: CanSample, policy: Any, objective: Objective) -> Float[Array, "*H S A"]:
    """The policy as probabilities, checked against what the draws of the belief have in common. Host side."""
    key = jax.random.key(0)
    shape = jax.eval_shape(posterior.sample, key).reward.shape
    return policy_probs(policy, outline(key, posterior, shape), horizon=horizon_of(objective))


def chunk_size(posterior: CanSample, num_draws: int) -> int:
    """How many draws are evaluated at once."""
    outline = jax.eval_shape(posterior.sample, jax.random.key(0))
    numbers = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(outline))
    return min(num_draws, MOST_AT_ONCE, max(1, NUMBERS_AT_ONCE // numbers))


def over_draws(
    statistics: Callable[[Any, Bool[Array, " B"]], Any],
    merge: Callable[[Any, Any], Any],
    key: PRNGKeyArray,
    posterior: CanSample,
    num_draws: Any,
    chunk: int,
) -> Any:
    """`statistics(draws, real)` of chunks of draws, merged; `real` masks what only fills up the last chunk.

    Statistics of all zeros must be neutral in `merge`. `num_draws` may be traced: one program serves any number.
    """

    def one(index: Any) -> Any:
        keys = jax.random.split(jax.random.fold_in(key, index), chunk)
        draws = computed_once(jax.vmap(posterior.sample)(keys))
        return statistics(draws, index * chunk + jnp.arange(chunk) < num_draws)

    if is_concrete(num_draws) and num_draws <= chunk:
        return one(0)
    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(one, 0))
    return lax.fori_loop(0, -(-num_draws // chunk), lambda index, total: merge(total, one(index)), start)


def draw_moments(
    key: PRNGKeyArray,
    posterior: CanSample,
    probs: Float[Array, "*H S A"],
    objective: Objective,
    number: tuple[Any, int],
) -> DrawMoments:
    """Mean and covariance of the values of a policy over draws; `number`: of all, and at once. Traceable."""

    def statistics(draws: Any, real: Bool[Array, " B"]) -> DrawMoments:
        value = jax.vmap(lambda mdp: evaluate(mdp, probs, objective))(draws)
        illegal = jnp.isneginf(value.q[0])
        weight = real.astype(value.q.dtype)
        count = weight.sum()
        q = jnp.where(illegal, 0.0, value.q)
        mean = jnp.tensordot(weight, q, axes=1) / count
        off = q - mean
        products = jnp.einsum("n,n...a,n...b->...ab", weight, off, off)
        gap = jnp.max(jnp.where(real, value.gap, 0.0))
        unfinished = jnp.any(real & ~value.converged)
        return DrawMoments(count, mean, products, illegal, unfinished, jnp.max(value.iterations), gap)

    moments = over_draws(statistics, _merge, key, posterior, *number)
    return moments._replace(converged=~moments.converged)


def _merge(one: DrawMoments, other: DrawMoments) -> DrawMoments:
    """Chan, Golub and LeVeque (1983). While chunks are merged, `converged` holds its opposite."""
    count = one.count + other.count
    share, shift = other.count / count, other.mean - one.mean
    products = one.products + other.products + one.count * share * shift[..., :, None] * shift[..., None, :]
    return DrawMoments(
        count,
        one.mean + share * shift,
        products,
        one.illegal | other.illegal,
        one.converged | other.converged,
        jnp.maximum(one.iterations, other.iterations),
        jnp.maximum(one.gap, other.gap),
    )
