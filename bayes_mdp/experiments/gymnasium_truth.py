"""What is known of a Gymnasium environment beforehand: its MDP, where a table or our own `Environment` shows it."""

from typing import Any, NamedTuple

from bayes_mdp.envs import from_gymnasium
from bayes_mdp.experiments.describe import describe
from bayes_mdp.experiments.gymnasium_envs import describe_source
from bayes_mdp.mdp import MDP, Environment, SparseMDP

# Wrappers of Gymnasium that leave transitions and rewards as they are (a time limit is no part of the MDP).
_TRANSPARENT = (
    "TimeLimit",
    "OrderEnforcing",
    "PassiveEnvChecker",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "HumanRendering",
)


class Known(NamedTuple):
    """The true MDP, or None and why it is not known; `ours`: it is what is simulated, not a table beside it."""

    mdp: MDP | SparseMDP | None
    why: str = ""
    ours: bool = False


def known_mdp(env: Any) -> Known:
    """The MDP of an environment, or of all environments of a vector environment if they show the same."""
    if not hasattr(env, "num_envs"):
        return _known(env)
    inner = getattr(env, "envs", None)
    if not inner:
        return Known(None, f"{type(env).__name__} does not show its environments")
    if env.unwrapped is not env:
        return Known(None, f"the wrapper {type(env).__name__} may change what is shown")
    first = inner[0].unwrapped
    same = all(
        getattr(e.unwrapped, "environment", None) is getattr(first, "environment", None)
        and getattr(e.unwrapped, "P", None) == getattr(first, "P", None)
        for e in inner
    )
    return _known(inner[0]) if same else Known(None, "the parallel environments differ")


def _known(env: Any) -> Known:
    inner = env.unwrapped
    while env is not inner:
        name = type(env).__name__
        if name not in _TRANSPARENT or not type(env).__module__.startswith("gymnasium."):
            return Known(None, f"the wrapper {name} may change what the table of the environment says")
        env = env.env
    ours = getattr(inner, "environment", None)
    if isinstance(ours, Environment):
        return Known(ours.mdp, ours=True)
    try:
        return Known(from_gymnasium(inner).mdp)
    except ValueError as error:
        return Known(None, str(error))


def describe_env(asked: Any, env: Any, lanes: int | None) -> dict[str, Any]:
    """JSON values: what was asked for, what the environment is called, how it was made, what it is wrapped in."""
    inner = env.unwrapped
    wrappers, outer = [], env
    while outer is not inner:
        wrappers.append(type(outer).__name__)
        outer = outer.env
    spec = env.spec
    return {
        "asked": describe_source(asked),
        "code": None if spec is None else describe(type(inner), "env"),
        "type": f"{type(inner).__module__}.{type(inner).__qualname__}",
        "id": None if spec is None else spec.id,
        "arguments": None if spec is None else describe(dict(spec.kwargs)),
        "max_episode_steps": None if spec is None else spec.max_episode_steps,
        "wrappers": wrappers,
        "environment": describe(getattr(inner, "environment", None)),
        "lanes": lanes,
        "autoreset_mode": str(env.metadata.get("autoreset_mode")) if lanes else None,
    }
