"""The names of the command line: agents, environments and priors, by registry name or import path."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bayes_mdp.utils.validation import check_name

# Each function loads the registry that it looks into: who names a prior loads no agents.
if TYPE_CHECKING:
    from bayes_mdp.mdp import Agent, Environment, SimulatedEnvironment
    from bayes_mdp.models.mdp_spec import Prior

_COUNTS = ("size", "n_states", "width", "depth", "seed")


def find_prior(name: str) -> "Prior":
    """A ready prior with its default hyperparameters, or the function of "module:function" (also of this folder).

    Raises:
        ValueError: no such prior, module or function.
    """
    from bayes_mdp.models import PRIORS

    if ":" not in name:
        check_name("prior", name, PRIORS, ", or MODULE:FUNCTION")
        try:
            return PRIORS[name]()
        except TypeError as error:
            raise ValueError(f"prior is {name!r}, which needs arguments: expected MODULE:FUNCTION ({error})") from error
    return import_function("prior", name, "a function space -> MDPSpec")


def import_function(argument: str, name: str, what: str) -> Callable[..., Any]:
    """The function of "MODULE:FUNCTION" or "FILE.py:FUNCTION", whose code is run.

    Args:
        argument: whose value it is, for messages.
        name: where the function is.
        what: it should be, for messages.

    Raises:
        ValueError: it cannot be imported, or is no function.
    """
    module_name, _, function_name = name.rpartition(":")
    expected = "FILE.py:FUNCTION or MODULE:FUNCTION that can be imported"
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        is_file = module_name.endswith(".py")
        module = _module_of(module_name) if is_file else import_module(module_name or ".")
        function = getattr(module, function_name)
    except (ImportError, AttributeError, OSError, TypeError, ValueError, SyntaxError) as error:
        raise ValueError(f"{argument} is {name!r}, expected {expected} ({error})") from error
    if not callable(function):
        raise ValueError(f"{argument} is {name!r}, a {type(function).__name__}, expected {what}")
    return function


def _module_of(path: str) -> ModuleType:
    """A file as a module of its own name; what it imports from its folder is found."""
    place = Path(path).resolve()
    spec = spec_from_file_location(place.stem, place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = module_from_spec(spec)
    if str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))
    spec.loader.exec_module(module)
    return module


def find_agent(name: str, replan: str | None = None) -> "Agent":
    """An agent with its defaults; `replan` is a number of steps, "episode", "doubling" or None.

    Raises:
        ValueError: no such agent or rule.
    """
    import equinox as eqx

    from bayes_mdp.agents import AGENTS
    from bayes_mdp.agents.common.replan import as_rule

    check_name("agent", name, AGENTS)
    agent = AGENTS[name]()
    if replan is None:
        return agent
    rule = as_rule(int(replan) if replan.lstrip("-").isdecimal() else replan)
    return eqx.tree_at(lambda a: a.replan, agent, rule, is_leaf=lambda x: x is None)


def find_environment(name: str) -> "Environment | SimulatedEnvironment":
    """An environment of a registry, "name:argument", or a Gymnasium id whose environment has a table P.

    The argument is the first one of the factory: a size, a seed, or the name of a track. An id "module:Env-v0" imports
    the module, which runs its code.

    Raises:
        ValueError: no such environment, or an argument that the factory does not take.
    """
    from bayes_mdp.envs import ENVS, SIMULATED, from_gymnasium

    base, _, argument = name.partition(":")
    factories = {**ENVS, **SIMULATED}
    if base in factories:
        return factories[base](*_arguments(name, base, argument, factories[base]))
    if "-v" not in name:
        check_name("env", base, factories, ", or a Gymnasium id")
    return from_gymnasium(name, import_module=True)


def _arguments(
    name: str, base: str, argument: str, factory: "Callable[..., Environment | SimulatedEnvironment]"
) -> tuple[str | int, ...]:
    """The first argument of a factory of environments from the text after the colon; empty where there is none."""
    if not argument:
        return ()
    first = next(iter(signature(factory).parameters), None)
    if first == "track":
        from bayes_mdp.envs.papers.racetrack import TRACKS

        check_name(f"track of {base}", argument, TRACKS)
        return (argument,)
    counted = first in _COUNTS
    if not (counted and argument.isdecimal()):
        expected = f":{str(first).upper()}, a whole number" if counted else ", which has no size"
        raise ValueError(f"env is {name!r}, expected {base}{expected}")
    return (int(argument),)
