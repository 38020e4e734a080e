"""Deep agents and environments by their names on the command line: settings, observations."""

import dataclasses
import json
from collections.abc import Sequence
from typing import TypeVar

import equinox as eqx

from bayes_mdp.agents.neural import MLP, NEURAL_AGENTS, Trunk
from bayes_mdp.agents.neural.contract import NeuralAgent
from bayes_mdp.agents.neural.convolutions import MinAtarConv, NatureConv
from bayes_mdp.envs import ENVS, OBSERVED
from bayes_mdp.envs.observed.gymnax_env import gymnax_env
from bayes_mdp.envs.observed.one_hot_observations import one_hot
from bayes_mdp.experiments.registry_names import find_environment
from bayes_mdp.experiments.training.vector_env import HostEnv, host_env
from bayes_mdp.mdp import Environment, ObservedEnvironment
from bayes_mdp.utils.messages import did_you_mean
from bayes_mdp.utils.validation import check_name

TRUNKS = {"minatar": MinAtarConv, "nature": NatureConv}
Record = TypeVar("Record")

HOSTED = ("atari", "gymnasium")
"""Environments that are stepped on the host, by the word before the colon."""


def find_neural_agent(name: str, settings: Sequence[str] = ()) -> NeuralAgent:
    """A deep agent; `settings` are "field=value", fields of fields with dots: "learning.batch_size=32".

    A value is JSON, or the name of a trunk: "mlp:64,64", "minatar", "nature".

    Raises:
        ValueError: no such agent, field or value.
    """
    check_name("agent", name, NEURAL_AGENTS)
    agent = NEURAL_AGENTS[name]()
    for setting in settings:
        field, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"setting is {setting!r}, expected FIELD=VALUE")
        agent = _with(agent, field.split("."), text, field)
    return agent


def find_trunk(text: str) -> Trunk:
    """ "mlp:64,64", "minatar" or "nature".

    Raises:
        ValueError: none of them.
    """
    kind, _, widths = text.partition(":")
    if kind == "mlp" and all(width.isdigit() and int(width) for width in widths.split(",")):
        return MLP(tuple(int(width) for width in widths.split(",")))
    check_name("trunk", text, TRUNKS, ", or mlp:WIDTH,WIDTH,...")
    return TRUNKS[text]()


def find_observed(name: str) -> ObservedEnvironment:
    """An environment for a deep agent.

    "deep_sea:20" and other names of `OBSERVED`; a tabular environment of `ENVS`, observed one-hot; "gymnax:NAME".
    What is stepped on the host ("atari:GAME", "gymnasium:ID") is made by `find_hosted`.

    Raises:
        ValueError: no such environment, or an argument that it does not take. ImportError: gymnax is missing.
    """
    base, _, argument = name.partition(":")
    if base == "gymnax":
        return gymnax_env(argument)
    if base in OBSERVED:
        if argument and not (base.startswith("deep_sea") and argument.isdigit()):
            expected = f"{base}:SIZE, a whole number" if base.startswith("deep_sea") else base
            raise ValueError(f"env is {name!r}, expected {expected}")
        return OBSERVED[base](*([int(argument)] if argument else []))
    also = ", gymnax:NAME, atari:GAME, or gymnasium:ID"
    check_name("env", base, {**OBSERVED, **ENVS}, also)
    found = find_environment(name)
    assert isinstance(found, Environment)
    return one_hot(found)


def is_hosted(name: str) -> bool:
    """Whether it is "atari:GAME" or "gymnasium:ID"."""
    return name.partition(":")[0] in HOSTED


def find_hosted(name: str, num_envs: int, *, import_module: bool = False) -> tuple[HostEnv, HostEnv]:
    """Environments on the host: one for training and one for evaluation.

    Args:
        name: "atari:GAME" or "gymnasium:ID".
        num_envs: side by side.
        import_module: whether "gymnasium:module:Env-v0" may import the module.

    Raises:
        ValueError: no such game or id; an id that would import a module. ImportError: ale-py is missing.
    """
    base, _, argument = name.partition(":")
    if base == "atari":
        from bayes_mdp.experiments.training.atari import atari

        return atari(argument, num_envs), atari(argument, num_envs, evaluation=True)
    training, evaluation = (host_env(argument, num_envs, import_module=import_module) for _ in range(2))
    return training, evaluation


def _with(record: Record, path: list[str], text: str, whole: str) -> Record:
    """The record with one field changed, through its constructor, which checks it."""
    names = [field.name for field in dataclasses.fields(record)] if isinstance(record, eqx.Module) else []
    if not isinstance(record, eqx.Module) or path[0] not in names:
        kind = type(record).__name__
        raise ValueError(
            f"setting {whole!r}: {kind} has no field {path[0]!r}, expected one of {', '.join(names)}"
            f"{did_you_mean(path[0], names)}"
        )
    old = getattr(record, path[0])
    new = _with(old, path[1:], text, whole) if path[1:] else _value(old, text, whole)
    return dataclasses.replace(record, **{path[0]: new})


def _value(old: object, text: str, whole: str) -> object:
    if hasattr(type(old), "num_features"):
        return find_trunk(text)
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    value = tuple(value) if isinstance(value, list) else value
    numbers = (int, float)
    if (
        isinstance(old, numbers)
        and not isinstance(old, bool)
        and (not isinstance(value, numbers) or isinstance(value, bool))
    ):
        raise ValueError(f"setting {whole!r} is {text!r}, expected a number")
    return value
