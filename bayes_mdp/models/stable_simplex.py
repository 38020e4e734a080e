"""`stable_simplex`: Dirichlet sites whose smallest probabilities are not rounded on the unconstrained scale.

NumPyro's stick breaking keeps at least the machine epsilon of what is left of the stick. Many draws of a Dirichlet law
of a small concentration a lie beyond: of two outcomes about epsilon^a / 2 at either end, a twelfth in float64 for
a = 0.05. Chains and integrals miss them. Here every step is on the log scale, down to the smallest normal number
(1e-308 in float64).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, PyTree
from numpyro.distributions import constraints, transforms
from numpyro.distributions.transforms import biject_to
from numpyro.primitives import Message, Messenger

from bayes_mdp.models.as_prior import PoweredDensity
from bayes_mdp.utils.typing import AnyArray, BoolScalar


class StableSimplex(constraints.Constraint):
    """Probability rows, as NumPyro's simplex, with a transform of its own."""

    event_dim = 1

    def __call__(self, x: Float[AnyArray, "*batch K"]) -> BoolScalar | Bool[AnyArray, "*batch"]:
        inside: Any = constraints.simplex(x)
        return inside

    def feasible_like(self, prototype: Float[AnyArray, "*batch K"]) -> Float[Array, "*batch K"]:
        """Equal probabilities."""
        return jnp.full_like(prototype, 1.0 / jnp.shape(prototype)[-1])

    def __hash__(self) -> int:
        return hash(StableSimplex)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StableSimplex)

    def tree_flatten(self) -> tuple[tuple[()], tuple[tuple[()], dict[str, object]]]:
        """No leaves, in the form of NumPyro's constraints."""
        return (), ((), {})


class StableStickBreaking(transforms.StickBreakingTransform):
    """NumPyro's stick breaking, [*batch K-1] -> [*batch K], the same numbers but for its rounding near the corners."""

    codomain = StableSimplex()

    def __call__(self, x: Float[AnyArray, "*batch L"]) -> Float[Array, "*batch K"]:
        share, left = self._logs(x)
        pad = [(0, 0)] * (share.ndim - 1)
        # entry = what is left before it * its share; the last entry takes all that is left.
        before = jnp.pad(left, [*pad, (1, 0)])
        rows = jnp.exp(before + jnp.pad(share, [*pad, (0, 1)]))
        return jnp.maximum(rows, jnp.finfo(rows.dtype).tiny)

    def _logs(self, x: Float[AnyArray, "*batch L"]) -> tuple[Float[Array, "*batch L"], Float[Array, "*batch L"]]:
        """log of the share of each break, and of what is left after it."""
        logits = self._logits(x)
        return jax.nn.log_sigmoid(logits), jnp.cumsum(jax.nn.log_sigmoid(-logits), axis=-1)

    def _logits(self, x: Float[AnyArray, "*batch L"]) -> Float[Array, "*batch L"]:
        """Balanced: at zero a break takes 1 / (how many entries are left)."""
        number = jnp.shape(x)[-1]
        return jnp.asarray(x) - jnp.log(number - jnp.arange(number))

    def _inverse(self, y: Float[AnyArray, "*batch K"]) -> Float[Array, "*batch L"]:
        y = jnp.asarray(y)
        number = y.shape[-1] - 1
        # What is left after an entry is the sum of the later ones, from the end: nothing cancels.
        left = jnp.flip(jnp.cumsum(jnp.flip(y, -1), axis=-1), -1)[..., 1:]
        tiny = jnp.finfo(y.dtype).tiny
        logits = jnp.log(jnp.maximum(y[..., :-1], tiny)) - jnp.log(jnp.maximum(left, tiny))
        return logits + jnp.log(number - jnp.arange(number))

    def log_abs_det_jacobian(
        self, x: Float[AnyArray, "*batch L"], y: Float[AnyArray, "*batch K"], intermediates: PyTree | None = None
    ) -> Float[Array, "*batch"]:
        """Sum over breaks of log(left before) + log(share) + log(1 - share)."""
        del y, intermediates
        share, left = self._logs(x)
        # Left before the break, times 1 - share, is what is left after it.
        return (share + left).sum(-1)


@biject_to.register(StableSimplex)
def _to_rows(constraint: StableSimplex) -> StableStickBreaking:
    del constraint
    return StableStickBreaking()


class StableDirichlet(dist.Dirichlet):
    """NumPyro's Dirichlet law with the support `StableSimplex`."""

    support = StableSimplex()


class stable_simplex(Messenger):
    """A handler: latent Dirichlet sites have the support `StableSimplex`; all else stays as it is.

    Args:
        fn: a program; None: used as a context.
    """

    def process_message(self, msg: Message) -> None:
        """Replace the law of a latent Dirichlet site."""
        if msg["type"] == "sample" and not msg["is_observed"]:
            msg["fn"] = _stable(msg["fn"])


def _stable(law: Any) -> Any:
    """The law with a stable support where it is Dirichlet, what is around it kept; else itself."""
    if type(law) is dist.Dirichlet:
        return StableDirichlet(law.concentration)
    if isinstance(law, dist.ExpandedDistribution):
        inner = _stable(law.base_dist)
        return law if inner is law.base_dist else inner.expand(law.batch_shape)
    if isinstance(law, PoweredDensity):
        inner = _stable(law.base_dist)
        return law if inner is law.base_dist else PoweredDensity(inner, law.power)
    if isinstance(law, dist.MaskedDistribution):
        inner = _stable(law.base_dist)
        return law if inner is law.base_dist else inner.mask(law._mask)
    if isinstance(law, dist.Independent):
        inner = _stable(law.base_dist)
        return law if inner is law.base_dist else inner.to_event(law.reinterpreted_batch_ndims)
    return law
