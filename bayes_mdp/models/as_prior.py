"""`as_prior`: what NumPyro's handlers around a user's program mean for a posterior, the same for every route.

A program is read as a density over its latent sites, in the space in which they are drawn:

* a site whose value a `substitute` handler gives is known, as under `condition`;
* a `Delta` site is known too: a number, or a function of other sites;
* a key of a site's own (`sample(..., rng_key=)`, `seed` inside the program) does not make it a constant;
* `scale` around a latent site raises its density to a power, and `mask` leaves it out. NumPyro's samplers move on an
  unconstrained scale and add the log Jacobian of the transform as a factor, which the handlers of the user would scale
  and mask too: Dirichlet(2, 3) under a scale of 2 became Beta(4, 6), where the square of its density is Beta(3, 5);
* what no posterior can be made of is refused: plates that draw a part of their data, sites in a branch of `cond`,
  params without a prior.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import constraints
from numpyro.primitives import Message, Messenger

from bayes_mdp.models.reward_laws import unwrap
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import is_concrete

JACOBIAN = "_log_det"
"""How the factor ends that NumPyro's samplers add for the transform of a site."""
_PAGE = see("how-to/write-a-prior")


class PoweredDensity(dist.Distribution):
    """A law whose density is raised to a power; it is drawn from as the law itself.

    Args:
        base_dist: the law.
        power: broadcastable to its batch shape.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - as NumPyro declares it
    pytree_data_fields = ("base_dist", "power")

    def __init__(self, base_dist: dist.Distribution, power: ArrayLike, *, validate_args: bool | None = None) -> None:
        # Outside its support a power of the density means nothing: the law keeps its own.
        self.base_dist, self.power = base_dist, power
        super().__init__(base_dist.batch_shape, base_dist.event_shape, validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        """That of the law."""
        support = self.base_dist.support
        assert support is not None
        return support

    def sample(self, key: PRNGKeyArray | None, sample_shape: tuple[int, ...] = ()) -> Array:
        """A draw from the law, not from the power of its density."""
        return jnp.asarray(self.base_dist(rng_key=key, sample_shape=sample_shape))

    def log_prob(self, value: ArrayLike, intermediates: object = None) -> Float[Array, "..."]:
        """The power times the log density of the law."""
        del intermediates
        return jnp.asarray(self.power) * jnp.asarray(self.base_dist.log_prob(jnp.asarray(value)))


class as_prior(Messenger):
    """A handler, outermost around a program of the user's: see this file.

    Args:
        fn: the program.

    Raises (the program):
        ValueError: what has no posterior, one sentence that names the site and what to write in its place.
    """

    def process_message(self, msg: Message) -> None:
        """After the user's handlers, before the library's."""
        kind, name = msg["type"], msg.get("name")
        if kind == "plate":
            _refuse_subsampling(msg)
        elif kind == "param":
            raise ValueError(
                f"prior: param {name!r} has no prior, expected numpyro.sample in its place, or a prior for it: "
                f"numpyro.handlers.lift(program, prior={{{name!r}: ...}}) {_PAGE}"
            )
        elif kind == "control_flow":
            # What the user substitutes inside scan and cond is known there too.
            stack = msg["kwargs"].get("substitute_stack", [])
            # A value that is substituted counts as observed: the density keeps its site.
            msg["kwargs"]["substitute_stack"] = [
                ("condition" if handler == "substitute" else handler, data) for handler, data in stack
            ]
            if msg["fn"].__name__ == "cond_wrapper":
                _without_sites(msg)
        # NumPyro's own factor for the transform: its scale and its mask are taken off.
        elif kind == "sample" and _is_jacobian(msg):
            msg["scale"], msg["fn"] = None, _inner_law(msg["fn"])
        elif kind == "sample" and not msg["is_observed"]:
            self._process_latent(msg)

    def _process_latent(self, msg: Message) -> None:
        # Sites of a `scan` come by twice; what the first pass did to them stays.
        if not msg.get("_control_flow_done", False):
            if msg["value"] is not None:
                msg["is_observed"] = True
                return
            # Without a key the handlers of the library draw, as everywhere else.
            msg["kwargs"]["rng_key"] = None
            if _fix_delta(msg):
                return
        # A discrete site is enumerated by its probabilities, to which a scale may stay.
        if msg["scale"] is not None and not msg["fn"].support.is_discrete:
            msg["fn"], msg["scale"] = PoweredDensity(msg["fn"], msg["scale"]), None


class _refuse_sites(Messenger):
    """A handler around a branch of `cond`: what only one branch samples has no density in the other."""

    def process_message(self, msg: Message) -> None:
        """Refuse a sample site."""
        if msg["type"] == "sample":
            raise ValueError(
                f"prior: site {msg['name']!r} is sampled in a branch of cond, so that whether it exists depends on "
                f"other sites, expected it in front of cond, and its value used in the branch {_PAGE}"
            )


def _without_sites(msg: Message) -> None:
    """A `cond` whose branches hold no site: they need no random numbers, and get none."""
    condition, true_fun, false_fun, operand = msg["args"]
    msg["args"] = (condition, _refuse_sites(true_fun), _refuse_sites(false_fun), operand)
    run = msg["fn"]

    def without_key(*args: object, rng_key: object, **kwargs: object) -> object:
        del rng_key
        return run(*args, **kwargs)

    # The branches run, without the key that `cond` would split for them.
    msg["fn"] = without_key


def _refuse_subsampling(msg: Message) -> None:
    size, subsample = msg["args"]
    if subsample is not None and subsample != size:
        raise ValueError(
            f"prior: plate {msg['name']!r} draws {subsample} of its {size} elements (subsample_size), which gives an "
            f"estimate of the density and no posterior, expected all of them: numpyro.plate({msg['name']!r}, {size}) "
            f"{_PAGE}"
        )


def _is_jacobian(msg: Message) -> bool:
    name = msg["name"]
    # Named "_<site>_log_det" by NumPyro, with a law of unit density.
    return name.startswith("_") and name.endswith(JACOBIAN) and isinstance(_inner_law(msg["fn"]), dist.Unit)


def _inner_law(law: Any) -> dist.Distribution:
    """The law inside masked, expanded and independent ones."""
    law = unwrap(law)
    while isinstance(law, dist.MaskedDistribution):
        law = unwrap(law.base_dist)
    return law


def _fix_delta(msg: Message) -> bool:
    """Whether the site is a Delta; it is then a number: deterministic, or observed where it has a density."""
    law = _inner_law(msg["fn"])
    if not isinstance(law, dist.Delta):
        return False
    fn, shape = msg["fn"], tuple(msg["kwargs"].get("sample_shape", ()))
    # The value is known; its shape is that of a draw.
    msg["value"] = jnp.broadcast_to(jnp.asarray(law.v), (*shape, *fn.shape()))
    if is_concrete(law.log_density) and not np.any(np.asarray(law.log_density)):
        for field in [field for field in msg if field not in ("type", "name", "value")]:
            del msg[field]  # as `handlers.reparam` makes a site deterministic
        msg["type"] = "deterministic"
    # With a density of its own: it adds that, at its one value.
    else:
        msg["is_observed"] = True
    return True
