"""The grid of a sweep: agents, environments and priors, each by name with arguments, and the cells of their product.

An argument with a list of values is an axis: {"deep_sea": {"size": [5, 10, 20]}} is three environments. The cells are
counted before any of them is made. `read_sweep_config` reads the grid, and what else `sweep` takes, from a TOML file.
"""

import json
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import jax
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents import AGENTS, Learner
from bayes_mdp.envs import ENVS, SIMULATED
from bayes_mdp.experiments.describe import Json, describe
from bayes_mdp.experiments.registry_names import find_environment, find_prior, import_function
from bayes_mdp.experiments.run_config import SweepOptions, check_agent
from bayes_mdp.mdp import (
    Agent,
    AverageReward,
    CanUpdate,
    Discounted,
    Environment,
    Episodic,
    FirstExit,
    Objective,
    SimulatedEnvironment,
)
from bayes_mdp.models import PRIORS
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils.files import read_bytes
from bayes_mdp.utils.validation import check_name, check_seed, check_type, described

Argument: TypeAlias = "bool | int | float | str | list[Argument]"
"""An argument of a factory, as TOML has them."""
Arguments: TypeAlias = Mapping[str, Argument]
Part: TypeAlias = Agent | Environment | SimulatedEnvironment | Prior | CanUpdate
"""An agent, an environment or a prior."""
PartsLike: TypeAlias = Mapping[str, Arguments | Part] | Iterable[str] | str
"""By name: arguments of the factory of that name, or the object itself; or names alone."""

MAX_CELLS = 100_000
_EXPECTED = "a function or a class"
_FACTORIES: dict[str, Mapping[str, Callable[..., Any]]] = {
    "agents": AGENTS,
    "envs": {**ENVS, **SIMULATED},
    "priors": PRIORS,
}


@dataclass(frozen=True)
class Variant:
    """One agent, environment or prior with one value for each argument.

    Args:
        kind: "agents", "envs" or "priors".
        name: its name in the grid.
        arguments: of the factory of that name.
        axes: those of the arguments that the grid varies.
        given: the object itself, in place of a name of a factory.
    """

    kind: str
    name: str
    arguments: tuple[tuple[str, Argument], ...] = ()
    axes: tuple[str, ...] = ()
    given: Part | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """Name and arguments, the same for the same variant in every process."""
        return f"{self.name}{json.dumps(dict(self.arguments), sort_keys=True)}"

    @property
    def description(self) -> Json:
        """JSON values that identify it."""
        if self.given is not None:
            return {"name": self.name, "given": describe(self.given, f"{self.kind}[{self.name!r}]")}
        entry: dict[str, Json] = {"name": self.name, "arguments": dict(self.arguments)}
        # What comes with the package is known by its version, a function of the user by its code.
        if self.name in _FACTORIES[self.kind] or (self.kind != "priors" and _factory(self.kind, self.name) is None):
            return entry
        return entry | {"factory": describe(import_function(self.kind, self.name, _EXPECTED), self.name)}

    def build(self) -> Any:
        """The agent, the environment or the prior.

        Raises:
            ValueError, TypeError: no such name, argument or value; the sentence names the variant.
        """
        if self.given is not None:
            return self.given
        label = f"{self.kind}.{self.name}"
        factory = _factory(self.kind, self.name)
        if factory is None:
            if self.arguments:
                raise ValueError(f"{label} has the argument {self.arguments[0][0]!r}, expected none for this name")
            return find_environment(self.name) if self.kind == "envs" else find_prior(self.name)
        _check_arguments(label, factory, dict(self.arguments))
        try:
            return factory(**{name: _tuples(value) for name, value in self.arguments})
        except (ValueError, TypeError) as error:
            raise type(error)(f"{label}: {error}") from error


class Cell(NamedTuple):
    """One run of the grid: an agent, an environment, a prior (None: the agent needs none), a block of seeds."""

    agent: Variant
    env: Variant
    prior: Variant | None
    block: int

    @property
    def description(self) -> dict[str, Json]:
        """Labels, as JSON values."""
        prior = None if self.prior is None else self.prior.label
        return {"agent": self.agent.label, "env": self.env.label, "prior": prior, "block": self.block}

    @property
    def coordinates(self) -> dict[str, Json]:
        """Names, block, and the value of every axis, `env_size` for the argument `size` of `envs`."""
        parts = {"agent": self.agent, "env": self.env, "prior": self.prior}
        values: dict[str, Json] = {kind: "" if part is None else part.name for kind, part in parts.items()}
        values["block"] = self.block
        for kind, part in parts.items():
            if part is not None:
                values |= {f"{kind}_{axis}": value for axis, value in part.arguments if axis in part.axes}
        return values

    def key(self, key: PRNGKeyArray) -> PRNGKeyArray:
        """The key of the cell: by environment and block, the same for all agents and priors."""
        # Common random numbers: agents differ by what they do, not by the environments they met. CRC, as Python's
        # `hash` of a text differs between processes.
        return jax.random.fold_in(jax.random.fold_in(key, crc32(self.env.label.encode())), self.block)

    def file_name(self, number: int) -> str:
        """A name for a file, by the place of the cell in the grid."""
        names = (self.agent.name, self.env.name, "" if self.prior is None else self.prior.name)
        plain = "-".join("".join(c if c.isalnum() else "_" for c in name)[:32] for name in names if name)
        return f"{number:06d}-{plain}-{self.block}"


def make_cells(
    agents: PartsLike, envs: PartsLike, priors: PartsLike | None, num_blocks: int, *, all_priors: bool
) -> list[Cell]:
    """The cells of the grid, agents outermost: neighbours share compiled programs.

    Agents that learn by themselves do not use a prior, and are not crossed with them.

    Args:
        agents, envs, priors: see `PartsLike`.
        num_blocks: blocks of seeds.
        all_priors: cross such agents with them too: environments are drawn from the prior.

    Raises:
        ValueError, TypeError: no cell, more than `MAX_CELLS`, an unknown name or argument, a value that is refused.
    """
    listed = {"agents": _by_name("agents", agents), "envs": _by_name("envs", envs)}
    listed["priors"] = {} if priors is None else _by_name("priors", priors)
    _check_size(listed, num_blocks)
    made = {
        kind: [variant for name, part in parts.items() for variant in _variants(kind, name, part)]
        for kind, parts in listed.items()
    }
    # Every variant is made once: what is wrong is refused before the first cell is run.
    learners = {agent: isinstance(_build(agent), Learner) for agent in made["agents"]}
    for variant in (*made["envs"], *made["priors"]):
        _build(variant)
    cells = [
        Cell(agent, env, prior, block)
        for agent in made["agents"]
        for env, prior in product(made["envs"], _priors_of(agent, learners[agent] and not all_priors, made["priors"]))
        for block in range(num_blocks)
    ]
    return cells


def _priors_of(agent: Variant, without: bool, priors: list[Variant]) -> list[Variant | None]:
    if without:
        return [None]
    if not priors:
        raise ValueError(f"priors is empty, expected at least one: the agent {agent.name!r} needs a prior")
    return list(priors)


def _by_name(kind: str, parts: PartsLike) -> dict[str, Arguments | Part]:
    if isinstance(parts, Mapping):
        named = dict(parts)
    else:
        names = [parts] if isinstance(parts, str) else parts
        if not isinstance(names, Iterable):
            raise TypeError(f"{kind} is {described(parts)}, expected names, or a mapping from names to arguments")
        named = {}
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"{kind} holds {described(name)}, expected names, or a mapping from names to arguments")
            if name in named:
                raise ValueError(f"{kind} holds {name!r} twice, expected each name once")
            named[name] = {}
    for name, part in named.items():
        if not isinstance(name, str):
            raise TypeError(f"{kind} has the name {described(name)}, expected a text")
        if isinstance(part, Mapping):
            for argument, value in part.items():
                _check_argument(f"{kind}.{name}.{argument}", value)
            _factory(kind, name)  # refuses an unknown name
        elif part is None or isinstance(part, (bool, int, float, str, list, tuple)):
            raise TypeError(f"{kind}.{name} is {described(part)}, expected arguments by name, or the object itself")
    return named


def _check_argument(where: str, value: object) -> None:
    for item in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(item, (list, tuple)):
            _check_argument(where, item)
        elif not isinstance(item, (bool, int, float, str)):
            raise TypeError(
                f"{where} is {described(item)}, expected a number, a text, True or False, or a list of them"
            )
        elif isinstance(item, float) and math.isnan(item):
            raise ValueError(f"{where} is nan, expected a number")


def _check_size(listed: Mapping[str, Mapping[str, Arguments | Part]], num_blocks: int) -> None:
    """Counted, not made: a grid of a billion cells is refused at once."""
    sizes = {}
    for kind, parts in listed.items():
        sizes[kind] = sum(_number(part) for part in parts.values())
        for name, part in parts.items():
            for argument, value in part.items() if isinstance(part, Mapping) else ():
                if isinstance(value, (list, tuple)) and not value:
                    raise ValueError(f"the grid has 0 cells, as {kind}.{name}.{argument} is empty, expected a value")
    for kind in ("agents", "envs"):
        if not sizes[kind]:
            raise ValueError(f"the grid has 0 cells, as {kind} is empty, expected at least one")
    total = sizes["agents"] * sizes["envs"] * max(sizes["priors"], 1) * num_blocks
    if total > MAX_CELLS:
        factors = " x ".join(f"{number} {kind}" for kind, number in sizes.items() if number)
        raise ValueError(f"the grid has {total} cells ({factors} x {num_blocks} blocks), expected at most {MAX_CELLS}")


def _number(part: Arguments | Part) -> int:
    if not isinstance(part, Mapping):
        return 1
    return math.prod(len(value) for value in part.values() if isinstance(value, (list, tuple)))


def _variants(kind: str, name: str, part: Arguments | Part) -> list[Variant]:
    if not isinstance(part, Mapping):
        return [Variant(kind, name, given=part)]
    axes = tuple(argument for argument, value in part.items() if isinstance(value, (list, tuple)))
    lists = [value if isinstance(value, (list, tuple)) else (value,) for value in part.values()]
    return [
        Variant(kind, name, tuple(zip(part, map(_tuples, values), strict=True)), axes) for values in product(*lists)
    ]


def _tuples(value: Any) -> Any:
    """Lists as tuples, which can be static arguments of compiled programs."""
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value


def _factory(kind: str, name: str) -> Callable[..., Any] | None:
    """What makes it from arguments; None: a name that has none (an environment with its size, a prior program).

    Raises:
        ValueError: no such name.
    """
    known = _FACTORIES[kind]
    if name in known:
        return known[name]
    if kind == "priors" and ":" in name:
        return None
    if kind == "envs" and ("-v" in name or name.partition(":")[0] in known):
        return None
    if ":" in name:
        return import_function(kind, name, _EXPECTED)
    check_name(kind, name, known, ", or MODULE:FUNCTION")
    return None


def _check_arguments(where: str, factory: Callable[..., Any], arguments: Mapping[str, Argument]) -> None:
    parameters = signature(factory).parameters
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in arguments:
        check_name(f"an argument of {where}", name, list(parameters))


def _build(variant: Variant) -> Any:
    """What it describes, refused where that is no agent, environment or prior."""
    built, label = variant.build(), f"{variant.kind}.{variant.name}"
    if variant.kind == "agents":
        check_agent(built, label)
    elif variant.kind == "envs":
        check_type(label, built, (Environment, SimulatedEnvironment), "an Environment or a SimulatedEnvironment")
    elif not callable(built) and not isinstance(built, CanUpdate):
        raise TypeError(f"{label} is {described(built)}, expected a NumPyro program or a posterior that can update")
    return built


_OBJECTIVES: dict[str, Callable[[Any], Objective]] = {
    "horizon": Episodic,
    "discount": Discounted,
    "first_exit": lambda _: FirstExit(),
    "average_reward": lambda _: AverageReward(),
}
_PARTS = ("agents", "envs", "priors")
_PLAIN = ("num_steps", "num_episodes", "num_seeds")
_OF_ALL_CELLS = ("num_blocks", "regret", "executor", "retries")
_OPTIONS = ("num_checkpoints", "method", "num_particles", "refit_every", "table_rows")
KEYS = (*_PARTS, *_PLAIN, *_OF_ALL_CELLS, *_OBJECTIVES, "seed", "options")
"""What a file may hold: arguments of `sweep` and fields of its options, one of the objectives, `seed` of the key,
`options` of each run."""


def read_sweep_config(path: str | Path) -> dict[str, Any]:
    """The arguments of `sweep` that a file holds, but for `path`.

    Args:
        path: of a TOML file with entries of `KEYS`.

    Raises:
        ValueError, TypeError: no TOML, an unknown entry (the nearest known one is named), a value of another type.
        OSError: it cannot be read.
    """
    try:
        config = tomllib.loads(read_bytes(path, "a configuration in TOML").decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"path is {str(path)!r}, which is no TOML ({error}), expected a configuration") from error
    for name in config:
        check_name(f"an entry of {path}", name, KEYS)
    for name in ("agents", "envs"):
        if name not in config:
            raise ValueError(f"{path} has no entry {name!r}, expected names of {name} with their arguments")
    seed = config.pop("seed", 0)
    check_seed("seed", seed)
    arguments = {name: config[name] for name in (*_PARTS, *_PLAIN) if name in config}
    arguments |= {"key": jax.random.key(seed), "objective": _objective(config, path)}
    of_all_cells = {name: config[name] for name in _OF_ALL_CELLS if name in config}
    return arguments | {"options": _options(config.get("options", {}), of_all_cells)}


def _objective(config: Mapping[str, Any], path: str | Path) -> Objective | None:
    names = [name for name in _OBJECTIVES if name in config]
    if len(names) > 1:
        raise ValueError(f"{path} has {names[0]!r} and {names[1]!r}, expected one objective")
    if not names:
        return None
    name, value = names[0], config[names[0]]
    if name in ("first_exit", "average_reward") and value is not True:
        raise ValueError(f"{name} is {described(value)}, expected true, or no such entry")
    return _OBJECTIVES[name](value)


def _options(options: object, of_all_cells: Mapping[str, Any]) -> SweepOptions:
    check_type("options", options, dict, "a table of options")
    assert isinstance(options, dict)
    for name in options:
        check_name("an entry of options", name, _OPTIONS)
    return SweepOptions(**options, **of_all_cells)
