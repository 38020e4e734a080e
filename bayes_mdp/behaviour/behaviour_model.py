"""The contract of a model of behaviour, `BehaviourModel`, and its parameters: supports, and priors over persons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float, Int, PyTree

from bayes_mdp.mdp import Transitions
from bayes_mdp.utils.typing import AnyArray, ArrayLike, RealLike, Scalar
from bayes_mdp.utils.validation import as_real, check_type, described, is_concrete, require

Support: TypeAlias = Literal["unit", "positive", "real"] | tuple[float, float]
"""(0, 1), above 0, any number, or between two numbers."""


@dataclass(frozen=True, eq=False)
class Parameter:
    """One parameter: its support, and what is believed about it before data.

    On the real line a person's value is normal around the group's mean; from there it is mapped to the support: by the
    normal distribution function (scaled) to an interval, by exp to positive numbers. With the default prior (that of
    hBayesDM, Ahn, Haines and Zhang 2017) a value in an interval whose group has no spread is uniform there.

    Args:
        support: "unit", "positive", "real", or an interval (low, high).
        group_mean: prior of the group's mean on the line, a NumPyro distribution. Where persons are not pooled, or
            pooled completely, it is the prior of each value on the line.
        group_sd: prior of the standard deviation between persons on the line.

    Raises:
        ValueError, TypeError: another support, a prior that is no distribution of one number.
    """

    support: Support = "unit"
    group_mean: dist.Distribution = field(default_factory=lambda: dist.Normal(0.0, 1.0))
    group_sd: dist.Distribution = field(default_factory=lambda: dist.HalfNormal(0.2))

    def __post_init__(self) -> None:
        words = ("unit", "positive", "real")
        # Two numbers are an interval; all else is one of the words.
        pair = isinstance(self.support, tuple) and len(self.support) == 2
        if not (pair or (isinstance(self.support, str) and self.support in words)):
            raise ValueError(
                f"support is {described(self.support)}, expected one of {', '.join(words)}, or (low, high)"
            )
        if pair:
            low, high = as_real("support", self.support)
            if not (np.isfinite(low) and np.isfinite(high) and low < high):
                raise ValueError(f"support is {self.support}, expected (low, high) with low below high")
        for name in ("group_mean", "group_sd"):
            law = getattr(self, name)
            if not isinstance(law, dist.Distribution) or law.batch_shape or law.event_shape:
                raise TypeError(f"{name} is {described(law)}, expected a NumPyro distribution of one number")

    @property
    def bounds(self) -> tuple[float, float]:
        """The ends of the support, in the unit of the parameter."""
        if isinstance(self.support, tuple):
            return self.support
        return {"unit": (0.0, 1.0), "positive": (0.0, np.inf), "real": (-np.inf, np.inf)}[self.support]

    def constrain(self, line: RealLike) -> Float[Array, "..."]:
        """From the real line to the support, elementwise: of the shape of `line`. Traceable.

        Args:
            line: on the real line (no unit), one number or an array.
        """
        x = jnp.asarray(line, float)
        if self.support == "real":
            return x
        if self.support == "positive":
            return jnp.exp(x)
        low, high = self.bounds
        # Phi(x) is uniform where x is standard normal.
        return low + (high - low) * ndtr(x)

    def unconstrain(self, value: RealLike) -> Float[Array, "..."]:
        """The inverse of `constrain`, from the support to the real line, of the shape of `value`. Traceable.

        Args:
            value: in the support, one number or an array.
        """
        x = jnp.asarray(value, float)
        if self.support == "real":
            return x
        if self.support == "positive":
            return jnp.log(x)
        low, high = self.bounds
        # The inverse of the normal distribution function, on the scaled value.
        return ndtri((x - low) / (high - low))

    def check(self, name: str, values: ArrayLike) -> None:
        """Refuse a value outside the support (its ends are allowed). Host side.

        Args:
            name: of the argument, for the message.
            values: one number or an array of any shape.

        Raises:
            ValueError, TypeError: names the first.
        """
        low, high = self.bounds
        array = as_real(name, values)
        # What a support is called in the message.
        expected = f"a number from {low:g} to {high:g}" if np.isfinite(high) else "a finite number"
        expected = "a finite number of at least 0" if self.support == "positive" else expected
        require(~(np.isfinite(array) & (array >= low) & (array <= high)), name, array, expected)


Values: TypeAlias = Mapping[str, Scalar]
"""Parameters of one person: name -> one number."""

Params: TypeAlias = Mapping[str, ArrayLike]
"""Parameters of persons: name -> one number for all, or [P]."""


@runtime_checkable
class BehaviourModel(Protocol):
    """How a person with given parameters chooses and learns. Four members; no base class.

    All three functions are for one person and one choice, pure and traced by JAX: arrays in, arrays out. A complete
    model, a bandit learner (a test runs it)::

        class Bandit:
            parameters = {"rate": Parameter("unit"), "sensitivity": Parameter("positive")}

            def init(self, params):
                return jnp.zeros(2)

            def policy(self, params, q, state):
                return jax.nn.log_softmax(params["sensitivity"] * q)

            def update(self, params, q, transition):
                chosen = jnp.arange(2) == transition.action
                return q + params["rate"] * chosen * (transition.reward - q)

    Writing with a mask of the chosen entry, as here, is several times faster on a CPU than `q.at[action].add(...)`.
    """

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Name -> where it lives, and its prior."""
        ...

    def init(self, params: Values, /) -> PyTree:
        """What the person believes before the first choice: any tree of arrays.

        Args:
            params: of one person.
        """
        ...

    def policy(self, params: Values, state: PyTree, observation: Int[Array, ""], /) -> Float[Array, " A"]:
        """Log-probability of every action where the person sees `observation`; -inf: cannot be taken.

        Args:
            params: of one person.
            state: from `init` or the last `update`.
        """
        ...

    def update(self, params: Values, state: PyTree, transition: Transitions, /) -> PyTree:
        """The state after a choice, like the one before in structure, shapes and dtypes.

        `transition` has `state`, `action`, `next_state` Int[""], `reward` Float[""], `terminated` Bool[""] (None where
        no record of the log can end an episode).

        Args:
            params: of one person.
            state: from `init` or the last `update`.
        """
        ...


def check_function(name: str, value: object) -> None:
    """Refuse what cannot be called.

    Raises:
        TypeError: names it.
    """
    if not callable(value):
        raise TypeError(f"{name} is {described(value)}, expected a function of the parameters")


def check_model(model: object) -> None:
    """Refuse what is no model of behaviour.

    Raises:
        TypeError: names what is missing.
    """
    missing = [name for name in ("parameters", "init", "policy", "update") if not hasattr(model, name)]
    if missing or isinstance(model, type):
        lack = "a class" if isinstance(model, type) else f"without {missing[0]}"
        raise TypeError(
            f"model is {described(model)} ({lack}), expected an object with parameters, init, policy, update"
        )
    # A `Protocol` sees names only: what they hold is checked here.
    parameters = model.parameters  # type: ignore[attr-defined]
    check_type("model.parameters", parameters, Mapping, "a mapping of names to Parameter")  # type: ignore[type-abstract]
    for name, parameter in parameters.items():
        check_type(f"model.parameters[{name!r}]", parameter, Parameter, "a Parameter")


def person_params(model: BehaviourModel, params: Params, num_persons: int) -> dict[str, Float[Array, " P"]]:
    """The parameters of every person, [P] each, in JAX's default width.

    Raises:
        ValueError: a name that is missing or unknown, another shape, a value outside its support.
    """
    expected = ", ".join(model.parameters)
    # One pass over what is expected and what was given finds both kinds of mistake.
    for name in (*model.parameters, *params):
        if name not in params or name not in model.parameters:
            problem = "missing" if name not in params else "no parameter of the model"
            raise ValueError(f"params[{name!r}] is {problem}, expected {expected}")
    made = {}
    for name, parameter in model.parameters.items():
        values: AnyArray | ArrayLike = params[name]
        if np.shape(values) not in ((), (num_persons,)):
            raise ValueError(
                f"params[{name!r}] has shape {np.shape(values)}, expected () or ({num_persons},) (persons)"
            )
        if is_concrete(values):
            parameter.check(f"params[{name!r}]", values)
        # One number stands for all persons.
        made[name] = jnp.broadcast_to(jnp.asarray(values, float), (num_persons,))
    return made
