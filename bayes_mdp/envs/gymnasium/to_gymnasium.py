"""`to_gymnasium`: an `Environment` as a Gymnasium environment. Gymnasium is loaded when one is made."""

from typing import TYPE_CHECKING

from bayes_mdp.mdp import Environment
from bayes_mdp.utils.validation import check_count

if TYPE_CHECKING:
    from bayes_mdp.envs.gymnasium.tabular_env import TabularEnv


def to_gymnasium(env: Environment, *, seed: int | None = None, max_episode_steps: int | None = None) -> "TabularEnv":
    """`env` as a Gymnasium environment, simulated on the host in numpy: about two microseconds a step.

    Observations and actions are indices (`Discrete`). An end of the MDP terminates; so does the last of the H steps of
    an MDP whose rows depend on the step, since nothing lies beyond. Where some actions are illegal,
    `info["action_mask"]` (int8 [A]) marks the legal ones of the state, and an illegal action is an error.
    `.environment` keeps `env`. Rewards of other laws than `NormalReward` are drawn with JAX, in batches.

    Args:
        env: what is simulated.
        seed: of the first `reset` that has none; None: of the operating system.
        max_episode_steps: episodes are truncated after so many steps; None: never.

    Raises:
        TypeError: `env` is no Environment.
        ValueError: `max_episode_steps` or `seed` is out of range.

    Example:
        >>> env = bm.to_gymnasium(bm.envs.chain(), seed=0)
        >>> env.reset()[0]
        0
    """
    from bayes_mdp.envs.gymnasium.tabular_env import TabularEnv

    if not isinstance(env, Environment):
        raise TypeError(f"env is a {type(env).__name__}, expected an Environment")
    if max_episode_steps is not None:
        check_count("max_episode_steps", max_episode_steps)
    if seed is not None:
        check_count("seed", seed, 0)
    return TabularEnv(env, seed=seed, max_episode_steps=max_episode_steps)
