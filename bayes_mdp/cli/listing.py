"""`bayes-mdp list`: what comes with the package."""

import argparse
from typing import Any

from bayes_mdp.cli.options import METHODS, UNEXPECTED, add_command


def add_list(commands: Any) -> None:
    """The parser."""
    parser = add_command(
        commands,
        "list",
        _list,
        "name the agents, environments, priors, inference methods and reproductions that come with the package",
    )
    parser.add_argument("--claims", action="store_true", help="show what each variance of a value is worth instead")
    parser.add_argument("--measure", action="store_true", help="with --claims: measure again, compare with the stored")


def _claims(measure: bool) -> int:
    from bayes_mdp.experiments import claims

    stored = claims.stored_claims()
    shown = claims.measure_claims() if measure else stored
    print(claims.describe_claims(shown))
    changed = claims.changed_verdicts(shown, stored)
    for sentence in changed:
        print(sentence)
    return UNEXPECTED if changed else 0


def _list(arguments: argparse.Namespace) -> int | None:
    if arguments.claims:
        return _claims(arguments.measure)
    if arguments.measure:
        raise ValueError("--measure measures the claims, expected it with --claims")
    from importlib import import_module

    from bayes_mdp.agents import AGENTS
    from bayes_mdp.agents.neural import NEURAL_AGENTS
    from bayes_mdp.envs import ENVS, OBSERVED, SIMULATED
    from bayes_mdp.experiments.reproduce import REPRODUCTIONS
    from bayes_mdp.models import PRIORS

    papers = {name: import_module(module) for name, module in REPRODUCTIONS.items()}
    environments = ENVS | SIMULATED
    registries = {
        "agents": AGENTS,
        "environments": environments,
        "priors": PRIORS,
        "deep agents (train)": NEURAL_AGENTS,
        "environments of deep agents (train)": OBSERVED,
        "reproductions": papers,
    }
    for title, registry in registries.items():
        print(f"{title}:")
        for name, described in registry.items():
            print(f"  {name:<24} {(described.__doc__ or '').strip().splitlines()[0]}")
    print("methods:")
    for name, description in METHODS.items():
        print(f"  {name:<24} {description}")
    return None
