"""`bayes-mdp explain`: how a prior would be inferred, and what prevents a better method; how a stored one was."""

import argparse

from bayes_mdp.cli.options import Commands, add_command, is_stored


def add_explain(commands: Commands) -> None:
    """The parser."""
    parser = add_command(commands, "explain", _explain, "say how a prior would be inferred, without data")
    parser.add_argument(
        "prior", help="a name of `list`, or MODULE:FUNCTION; or a stored posterior: how it was inferred, and from what"
    )
    parser.add_argument("--states", type=int, help="number of states of the space (default: 3)")
    parser.add_argument("--actions", type=int, help="number of actions of the space (default: 2)")
    parser.add_argument("--horizon", type=int, help="steps of an episode")
    parser.add_argument("--ends", action="store_true", help="episodes can end")


def _explain(arguments: argparse.Namespace) -> None:
    import bayes_mdp as bm
    from bayes_mdp.experiments.registry_names import find_prior

    if is_stored(arguments.prior):
        given = next((name for name in ("states", "actions", "horizon", "ends") if getattr(arguments, name)), None)
        if given is not None:
            raise ValueError(
                f"--{given} is given with {arguments.prior}, a stored posterior, expected it with a prior alone"
            )
        print(bm.load(arguments.prior))
        return
    sizes = (default if size is None else size for size, default in ((arguments.states, 3), (arguments.actions, 2)))
    space = bm.StateActionSpace(*sizes, horizon=arguments.horizon, ends=arguments.ends)
    print(bm.explain(find_prior(arguments.prior), space))
