"""The configuration of a sweep as a TOML file: the arguments of `sweep`."""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit, Objective
from bayes_mdp.utils.files import read_bytes
from bayes_mdp.utils.validation import check_name, check_seed, check_type, described

_OBJECTIVES: dict[str, Callable[[Any], Objective]] = {
    "horizon": Episodic,
    "discount": Discounted,
    "first_exit": lambda _: FirstExit(),
    "average_reward": lambda _: AverageReward(),
}
_PARTS = ("agents", "envs", "priors")
_PLAIN = ("num_steps", "num_episodes", "num_seeds", "num_blocks", "regret", "executor", "retries")
_OPTIONS = ("num_checkpoints", "method", "num_particles", "refit_every", "table_rows")
KEYS = (*_PARTS, *_PLAIN, *_OBJECTIVES, "seed", "options")
"""What a file may hold: arguments of `sweep`, one of the objectives, `seed` of the key, `options` of `RunOptions`."""


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
    return arguments | {"options": _options(config.get("options", {}))}


def _objective(config: Mapping[str, Any], path: str | Path) -> Objective | None:
    given = [name for name in _OBJECTIVES if name in config]
    if len(given) > 1:
        raise ValueError(f"{path} has {given[0]!r} and {given[1]!r}, expected one objective")
    if not given:
        return None
    name, value = given[0], config[given[0]]
    if name in ("first_exit", "average_reward") and value is not True:
        raise ValueError(f"{name} is {described(value)}, expected true, or no such entry")
    return _OBJECTIVES[name](value)


def _options(options: object) -> RunOptions:
    check_type("options", options, dict, "a table of options")
    assert isinstance(options, dict)
    for name in options:
        check_name("an entry of options", name, _OPTIONS)
    return RunOptions(**options)
