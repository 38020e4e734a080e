"""The hierarchical model of a group of persons, as a NumPyro program."""

from collections.abc import Callable
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpyro.distributions import constraints

from bayes_mdp.behaviour.behaviour_model import BehaviourModel, check_model
from bayes_mdp.behaviour.choice_log import ChoiceLog
from bayes_mdp.behaviour.likelihood import filtered_log_probs
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_name, check_type

Pooling: TypeAlias = Literal["partial", "none", "complete"]
"""What persons share: a normal law on the line, nothing, or everything."""
POOLINGS = ("partial", "none", "complete")


class Choices(dist.Distribution):
    """The actions of a log: `log_probs` [P T A] of each, given the person's past.

    `observed` [P T]: where it is false an action has log-probability 0.
    """

    pytree_data_fields = ("log_probs", "observed")

    def __init__(self, log_probs: Float[Array, "P T A"], observed: Bool[Array, "P T"]) -> None:
        self.log_probs, self.observed = log_probs, observed
        super().__init__(batch_shape=log_probs.shape[:-1], validate_args=False)

    @property
    def support(self) -> constraints.Constraint:  # type: ignore[override]
        """Indices of actions."""
        return constraints.nonnegative_integer  # type: ignore[return-value]

    def sample(  # type: ignore[override]
        self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()
    ) -> Int[Array, "*sample P T"]:
        """One action of each choice, one step ahead."""
        return jax.random.categorical(key, self.log_probs, shape=(*sample_shape, *self.batch_shape))

    def log_prob(self, value: Int[AnyArray, "*sample P T"]) -> Float[Array, "*sample P T"]:  # type: ignore[override]
        """Of the actions `value`. Sums over masks: they are no scatter backwards, which is slow on a CPU."""
        taken = jnp.asarray(value)[..., None] == jnp.arange(self.log_probs.shape[-1])
        found = jnp.sum(jnp.where(taken, self.log_probs, 0.0), axis=-1)
        return jnp.where(self.observed, found, 0.0)


def numpyro_model(model: BehaviourModel, log: ChoiceLog, pooling: Pooling = "partial") -> Callable[..., None]:
    """The joint law of the parameters of all persons and their choices, as a NumPyro program.

    Sites, for each parameter `name` of the model (see `Parameter` for the map from the line and for the priors):

    | pooling | sites |
    |---|---|
    | "partial" | `name_mean`, `name_sd`: of the group, on the line; `name_z` [P]: standard normal (non-centred) |
    | "none" | `name_line` [P]: each person's own value on the line |
    | "complete" | `name_line`: one value for all |

    `name` is deterministic, in its support: [P], or one number under "complete". The plate of the persons is "subject";
    "choice" are the observed actions, [P T] in the plates "subject" and "record".

    Args:
        model: see `BehaviourModel`.
        log: the choices.
        pooling: what persons share.

    Returns:
        A program of one optional argument, a `ChoiceLog` of the same shape in place of `log`, and of the keyword
        `predict`: True draws the choices anew, one step ahead (for `numpyro.infer.Predictive`).

    Raises:
        ValueError, TypeError: an argument that is none of these.
    """
    check_model(model)
    check_type("log", log, ChoiceLog, "a ChoiceLog")
    check_name("pooling", pooling, POOLINGS)
    default = log

    def program(log: ChoiceLog = default, *, predict: bool = False) -> None:
        persons, records = log.state.shape
        values = {}
        for name, parameter in model.parameters.items():
            line = _line(name, parameter.group_mean, parameter.group_sd, persons, pooling)
            values[name] = numpyro.deterministic(name, parameter.constrain(line))
        each = {name: jnp.broadcast_to(x, (persons,)) for name, x in values.items()}
        law = Choices(filtered_log_probs(model, each, log), jnp.asarray(log.observed))
        with numpyro.plate("subject", persons, dim=-2), numpyro.plate("record", records, dim=-1):
            numpyro.sample("choice", law, obs=None if predict else jnp.asarray(log.action))

    return program


def _line(name: str, mean: dist.Distribution, sd: dist.Distribution, persons: int, pooling: str) -> Float[Array, "*P"]:
    """The values of the persons on the line."""
    if pooling == "complete":
        return numpyro.sample(f"{name}_line", mean)  # type: ignore[return-value]
    if pooling == "none":
        with numpyro.plate("subject", persons, dim=-1):
            return numpyro.sample(f"{name}_line", mean)  # type: ignore[return-value]
    # Non-centred: the group's mean and spread are nearly independent of z.
    centre = jnp.asarray(numpyro.sample(f"{name}_mean", mean))
    spread = jnp.asarray(numpyro.sample(f"{name}_sd", sd))
    with numpyro.plate("subject", persons, dim=-1):
        z = jnp.asarray(numpyro.sample(f"{name}_z", dist.Normal(0.0, 1.0)))
    return centre + spread * z
