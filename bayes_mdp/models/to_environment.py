"""`environment`: the environment of an `MDPSpec`, drawn from a prior or written down."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray
from numpyro import handlers

from bayes_mdp.mdp import Environment, StateActionSpace
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.mdp_spec import MDPSpec, check_spec, reward_law, reward_table, to_mdp
from bayes_mdp.models.tracing import traced_alone
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import check_key, described


def environment(
    spec: MDPSpec, space: StateActionSpace, initial: ArrayLike, *, name: str = "environment"
) -> Environment:
    """The environment that `spec` states: its rows, and its reward law whatever its family. Traceable, vmappable.

    Args:
        spec: what a prior program returned, for instance under `numpyro.handlers.seed`.
        space: the space it was written for.
        initial: Float[S], distribution of the first state.
        name: for tables and files.

    Raises:
        TypeError, ValueError: not a `MDPSpec` of this space; `initial` is no distribution over states.

    Example:
        >>> space = bm.StateActionSpace(2, 1)
        >>> spec = bm.models.MDPSpec(np.full((2, 1, 2), 0.5), np.array([[0.0], [1.0]]))
        >>> env = bm.models.environment(spec, space, [1.0, 0.0], name="coin")
        >>> env.name, env.mdp.n_states
        ('coin', 2)
    """
    check_spec(spec, space)
    law = reward_law(reward_table(spec, space), space)
    return Environment(to_mdp(spec, space, initial), law, name=name)


@traced_alone
def random_environment(
    key: PRNGKeyArray,
    prior: Callable[[StateActionSpace], MDPSpec],
    space: StateActionSpace,
    *,
    initial: ArrayLike | None = None,
) -> Environment:
    """An environment drawn from a prior program. Traceable, vmappable.

    PriorMDP of [BMRL19] is `random_environment(key,
    dirichlet_normal_gamma(reward_concentration=4, rate=4, rewards_on="outcome"), StateActionSpace(4, 2))`.

    Args:
        key: a typed key; the same draw for the same key.
        prior: space -> MDPSpec, for instance one of `bayes_mdp.models`.
        space: its sizes, masks and ends.
        initial: Float[S], distribution of the first state; None: state 0.

    Raises:
        TypeError, ValueError: no typed key; `prior` is no program, or returns no `MDPSpec` of this space; `initial` is
            no distribution over states.

    Example:
        >>> prior, space = bm.models.dirichlet_normal_gamma(), bm.StateActionSpace(4, 2)
        >>> env = bm.models.random_environment(jax.random.key(0), prior, space)
        >>> env.mdp.transition_probs.shape
        (4, 2, 4)
    """
    check_key("key", key)
    check_space(space)
    if not callable(prior):
        raise TypeError(f"prior is {described(prior)}, expected a function space -> MDPSpec")
    spec: Any = handlers.seed(prior, key)(space)
    return environment(spec, space, np.eye(1, space.n_states)[0] if initial is None else initial, name="random")
