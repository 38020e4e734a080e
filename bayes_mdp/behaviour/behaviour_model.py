"""The contract of a model of behaviour: what one must have, and the parameters that it is called with."""

from collections.abc import Mapping
from typing import Protocol, TypeAlias, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from bayes_mdp.behaviour.parameter import Parameter
from bayes_mdp.mdp import Transitions
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Scalar
from bayes_mdp.utils.validation import check_type, described, is_concrete

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
    for name in (*model.parameters, *params):
        if name not in params or name not in model.parameters:
            what = "missing" if name not in params else "no parameter of the model"
            raise ValueError(f"params[{name!r}] is {what}, expected {expected}")
    made = {}
    for name, parameter in model.parameters.items():
        values: AnyArray | ArrayLike = params[name]
        if np.shape(values) not in ((), (num_persons,)):
            raise ValueError(
                f"params[{name!r}] has shape {np.shape(values)}, expected () or ({num_persons},) (persons)"
            )
        if is_concrete(values):
            parameter.check(f"params[{name!r}]", values)
        made[name] = jnp.broadcast_to(jnp.asarray(values, float), (num_persons,))
    return made
