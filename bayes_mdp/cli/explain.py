"""`bayes-mdp explain`: how a prior would be inferred, and what prevents a better method."""

import argparse

from bayes_mdp.cli.options import Commands, add_command


def add_explain(commands: Commands) -> None:
    """The parser."""
    parser = add_command(commands, "explain", _explain, "say how a prior would be inferred, without data")
    parser.add_argument("prior", help="a name of `list`, or MODULE:FUNCTION")
    parser.add_argument("--states", type=int, default=3, help="number of states of the space")
    parser.add_argument("--actions", type=int, default=2, help="number of actions of the space")
    parser.add_argument("--horizon", type=int, help="steps of an episode")
    parser.add_argument("--ends", action="store_true", help="episodes can end")


def _explain(arguments: argparse.Namespace) -> None:
    import bayes_mdp as bm
    from bayes_mdp.experiments.registry_names import find_prior

    space = bm.StateActionSpace(arguments.states, arguments.actions, horizon=arguments.horizon, ends=arguments.ends)
    print(bm.explain(find_prior(arguments.prior), space))
