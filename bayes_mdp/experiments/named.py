"""What a person names on the command line: agents, environments and priors, by registry name or import path."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

import equinox as eqx

from bayes_mdp.agents import AGENTS
from bayes_mdp.agents.replan import as_rule
from bayes_mdp.envs import ENVS, from_gymnasium
from bayes_mdp.mdp import Environment
from bayes_mdp.mdp.validation import check_name


def find_prior(name: str) -> Callable[..., Any]:
    """A ready prior with its default hyper-parameters, or the function of "module:function" (also of this folder).

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
    module_name, _, function_name = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        prior = getattr(import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"prior is {name!r}, expected MODULE:FUNCTION that can be imported ({error})") from error
    if not callable(prior):
        raise ValueError(f"prior is {name!r}, a {type(prior).__name__}, expected a function space -> World")
    return prior


def find_agent(name: str, replan: str | None = None) -> Any:
    """An agent with its defaults; `replan` is a number of steps, "episode", "doubling" or None.

    Raises:
        ValueError: no such agent or rule.
    """
    check_name("agent", name, AGENTS)
    agent = AGENTS[name]()
    if replan is None:
        return agent
    rule = as_rule(int(replan) if replan.lstrip("-").isdigit() else replan)
    return eqx.tree_at(lambda a: a.replan, agent, rule, is_leaf=lambda x: x is None)


def find_environment(name: str) -> Environment:
    """An environment of the registry, "name:size", or a Gymnasium id whose environment has a table P.

    Raises:
        ValueError: no such environment, or a size that is no number.
    """
    base, _, size = name.partition(":")
    if base in ENVS:
        sized = next(iter(signature(ENVS[base]).parameters), None) in ("size", "n_states", "width", "depth")
        if size and not (sized and size.isdigit()):
            raise ValueError(
                f"env is {name!r}, expected {base}{':SIZE, a whole number' if sized else ', which has no size'}"
            )
        return ENVS[base](int(size)) if size else ENVS[base]()
    if "-v" not in name:
        check_name("env", base, ENVS, ", or a Gymnasium id")
    return from_gymnasium(name)
