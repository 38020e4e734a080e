"""The agents of `compare`: what a person named, and constants with which the agents of theory learn in short runs."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bayes_mdp.agents import AGENTS
from bayes_mdp.experiments.case import check_agent
from bayes_mdp.experiments.compare_problems import NOISE
from bayes_mdp.mdp.validation import check_name, described

CONSTANTS = ("scaled", "default")

SCALED: dict[str, dict[str, Any]] = {
    "beb": {"scale": 1.0},
    "bolt": {"eta": 1.0, "max_reward": 1.0},
    "boltzmann_q": {"temperature": 0.2, "learning_rate": 0.5},
    "count_bonus": {"reward_sd": NOISE},
    "epsilon_greedy_q": {"learning_rate": 0.5},
    "k_learning": {"noise": NOISE},
    "rlsvi": {"noise": NOISE},
    "soft_q": {"temperature": 0.2, "learning_rate": 0.5},
    "soft_q_mean": {"temperature": 0.1},
    "ube": {"scale": 0.1},
    "ucb_h": {"scale": 0.01},
    "ucbvi": {"bonus_scale": 0.03},
    "ucfh": {"scale": 0.1},
    "ucrl2": {"scale": 0.1},
    "vapor": {"noise": NOISE},
}
"""Arguments that differ from the defaults with constants="scaled"; agents that are not named keep their defaults.

`noise` and `reward_sd` are what the problems of the package have. The others are round numbers of ours from other small
problems, not tuned on these: bonuses of theorems are so wide that runs of this length show no learning with them.
"""

QUICK_AGENTS = ("psrl", "bql", "ube", "moment_matching", "k_learning", "ucbvi", "epsilon_greedy_q")


def comparison_agents(names: Iterable[str] | None = None, *, constants: str = "scaled") -> dict[str, Any]:
    """Agents of the package by name, for `compare`.

    Args:
        names: of `AGENTS`; None: all.
        constants: "scaled", those of `SCALED`; "default", what each agent has without arguments.

    Raises:
        ValueError: no such agent, or other constants.
    """
    check_name("constants", constants, CONSTANTS)
    names = AGENTS if names is None else names
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"names is {described(names)}, expected a list of names of agents")
    names = tuple(names)
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"agents holds {name!r} twice, expected each agent once")
    for name in names:
        check_name("agent", name, AGENTS)
    return {name: AGENTS[name](**(SCALED.get(name, {}) if constants == "scaled" else {})) for name in names}


def named_agents(agents: Any) -> dict[str, Any]:
    """The agents by name: a mapping as it is; of a sequence names of `AGENTS` with their defaults, objects by class.

    Raises:
        ValueError: none, an unknown name, a name twice. TypeError: something that is no agent.
    """
    named = dict(agents) if isinstance(agents, Mapping) else listed_by_name("agents", agents, _agent)
    if not named:
        raise ValueError("agents is empty, expected at least one")
    for name, agent in named.items():
        check_agent(agent, f"agents[{name!r}]")
    return {str(name): agent for name, agent in named.items()}


def _agent(item: Any) -> tuple[str, Any]:
    if isinstance(item, str):
        check_name("agent", item, AGENTS)
        return item, AGENTS[item]()
    return type(item).__name__, item


def listed_by_name(what: str, items: Any, named: Callable[[Any], tuple[str, Any]]) -> dict[str, Any]:
    """By name; one item alone is a sequence of one."""
    sequence = items if isinstance(items, (list, tuple, set, frozenset)) else [items]
    found: dict[str, Any] = {}
    for item in sequence:
        name, thing = named(item)
        if name in found:
            raise ValueError(f"{what} holds {name!r} twice, expected a mapping that gives each a name of its own")
        found[name] = thing
    return found
