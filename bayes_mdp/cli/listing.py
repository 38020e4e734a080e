"""`bayes-mdp list`: what comes with the package."""

import argparse

from bayes_mdp.cli.options import METHODS, Commands, add_command


def add_list(commands: Commands) -> None:
    """The parser."""
    add_command(
        commands,
        "list",
        _list,
        "name the agents, environments, priors, behaviour models and inference methods that come with the package",
    )


def _list(arguments: argparse.Namespace) -> None:
    from bayes_mdp.agents import AGENTS
    from bayes_mdp.agents.neural import NEURAL_AGENTS
    from bayes_mdp.behaviour.models_by_name import DESCRIPTIONS
    from bayes_mdp.envs import ENVS, OBSERVED, SIMULATED
    from bayes_mdp.models import PRIORS

    environments = ENVS | SIMULATED
    registries = {
        "agents": AGENTS,
        "environments": environments,
        "priors": PRIORS,
        "deep agents (train)": NEURAL_AGENTS,
        "environments of deep agents (train)": OBSERVED,
    }
    for title, registry in registries.items():
        print(f"{title}:")
        for name, described in registry.items():
            print(f"  {name:<24} {(described.__doc__ or '').strip().splitlines()[0]}")
    for title, words in (("behaviour models", DESCRIPTIONS), ("methods", METHODS)):
        print(f"{title}:")
        for name, description in words.items():
            print(f"  {name:<24} {description}")
