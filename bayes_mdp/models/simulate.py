"""`environment`: a world, drawn from a prior or written down, as something that can be simulated."""

from typing import Any

from bayes_mdp.mdp import Environment, StateActionSpace
from bayes_mdp.models.world import World, check_world, reward_table, to_mdp


def environment(world: World, space: StateActionSpace, initial: Any, *, name: str = "environment") -> Environment:
    """The environment that `world` states: its rows, and its reward law whatever its family. Traceable, vmappable.

    Args:
        world: what a prior program returned, for instance under `numpyro.handlers.seed`.
        space: the space it was written for.
        initial: Float[S], distribution of the first state.
        name: for tables and files.

    Raises:
        TypeError, ValueError: not a `World` of this space; `initial` is no distribution over states.
    """
    check_world(world, space)
    law: Any = reward_table(world, space)
    return Environment(to_mdp(world, space, initial), law, name=name)
