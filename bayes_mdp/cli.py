"""The command `bayes-mdp`: demo, fit, run, levels, reproduce, list. Wrong input: one sentence on stderr, code 2."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ERRORS = (ValueError, TypeError, OSError, ImportError)
UNEXPECTED, USER_ERROR, INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code.

    0; 1 for a verdict of `reproduce` or `list --claims` that is not the expected one; 2 for wrong input (one sentence
    on stderr); 130 after Ctrl-C.
    """
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(format="%(message)s", level=logging.INFO if arguments.verbose else logging.WARNING)
    try:
        return arguments.command(arguments) or 0
    except ERRORS as error:
        if arguments.verbose:
            logging.getLogger(__name__).exception("traceback")
        print(f"bayes-mdp: error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        kept = arguments.command is _run and arguments.out is not None
        rest = "; the same command goes on from what was finished" if kept else ""
        print(f"bayes-mdp: interrupted{rest}", file=sys.stderr)
        return INTERRUPTED


class _Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Help with the defaults, where there are any."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


def build_parser() -> argparse.ArgumentParser:
    """The argument parser, help with defaults."""
    parser = argparse.ArgumentParser(prog="bayes-mdp", description="Bayesian reinforcement learning in MDPs.")
    parser.add_argument("--verbose", action="store_true", help="show log messages, and the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_fit(commands)
    _add_run(commands)
    _add_levels(commands)
    _add_reproduce(commands)
    _add_list(commands)
    return parser


def _add(
    commands: Any, name: str, command: Callable[[argparse.Namespace], int | None], text: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text, formatter_class=_Defaults)
    parser.set_defaults(command=command)
    return parser


def _add_demo(commands: Any) -> None:
    parser = _add(commands, "demo", _demo, "the whole sentence on FrozenLake: log, prior, posterior, policies, agents")
    parser.add_argument("--out", type=Path, default=Path("bayes-mdp-demo"), help="folder for what it writes")
    parser.add_argument("--seed", type=int, default=0, help="seed of every random number")


def _demo(arguments: argparse.Namespace) -> None:
    from bayes_mdp.experiments.demo import demo

    demo(arguments.out, seed=arguments.seed)


def _add_objective(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--discount", type=float, help="judge by the discounted sum of rewards")
    group.add_argument("--horizon", type=int, help="judge by the sum of rewards over episodes of so many steps")


def _objective(arguments: argparse.Namespace) -> Any:
    from bayes_mdp.mdp import Discounted, Episodic

    if arguments.discount is not None:
        return Discounted(arguments.discount)
    return None if arguments.horizon is None else Episodic(arguments.horizon)


def _add_fit(commands: Any) -> None:
    parser = _add(commands, "fit", _fit, "infer the posterior of a prior from a log, print it, judge policies")
    parser.add_argument("log", help="CSV or Parquet file, one transition per row")
    for column, required in (("state", True), ("action", True), ("reward", False), ("next-state", False)):
        parser.add_argument(f"--{column}", required=required, metavar="COLUMN", help=f"column of the {column}")
    for column in ("terminated", "truncated", "episode", "step"):
        parser.add_argument(f"--{column}", metavar="COLUMN", help=f"column of {column}")
    parser.add_argument("--prior", default="dirichlet_normal_gamma", help="a name of `list`, or MODULE:FUNCTION")
    _add_objective(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws")
    parser.add_argument("--draws", type=int, default=2000, help="number of posterior draws for the policies' values")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the posterior (bayes_mdp.load reads it)")
    parser.add_argument("--netcdf", type=Path, metavar="FILE", help="write draws and data for ArviZ")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the posterior")


def _fit(arguments: argparse.Namespace) -> None:
    import jax

    import bayes_mdp as bm
    from bayes_mdp.experiments.named import find_prior

    _check_folders(arguments.save, arguments.netcdf, arguments.figure)
    objective = _objective(arguments)
    names = ("state", "action", "reward", "next_state", "terminated", "truncated", "episode", "step")
    log = bm.read_log(arguments.log, **{name: getattr(arguments, name) for name in names})
    space = bm.StateActionSpace.from_log(log)
    key = jax.random.key(arguments.seed)
    posterior = bm.infer(key, find_prior(arguments.prior), log, space=space)
    print(posterior)
    if objective is not None:
        policies = {"logged": bm.behaviour_policy(log, space=space), "greedy": bm.greedy(posterior, objective)}
        print()
        print(bm.compare_policies(key, posterior, policies, objective, num_draws=arguments.draws))
    if arguments.save:
        bm.save(posterior, arguments.save)
        print(f"posterior: {arguments.save}")
    if arguments.netcdf:
        from bayes_mdp.calibration import save_draws

        save_draws(bm.to_arviz(posterior, key=key, data=log), arguments.netcdf)
        print(f"draws: {arguments.netcdf}")
    if arguments.figure:
        _save_figure(bm.plot_posterior(posterior), arguments.figure)


def _check_folders(*paths: Path | None) -> None:
    """Refuse to begin what could not be kept."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise FileNotFoundError(f"{path} lies in no folder that exists")


def _save_figure(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=150)
    print(f"figure: {path}")


def _add_run(commands: Any) -> None:
    parser = _add(commands, "run", _run, "an agent in an environment, many seeds in one compiled program")
    parser.add_argument("agent", help="a name of `list`")
    parser.add_argument("env", metavar="ENV[:SIZE]", help="a name of `list`, or a Gymnasium id with a table P")
    parser.add_argument("--prior", default="dirichlet_normal_gamma", help="a name of `list`, or MODULE:FUNCTION")
    _add_objective(parser)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int, help="number of steps")
    length.add_argument("--episodes", type=int, help="number of episodes")
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds")
    parser.add_argument("--seed", type=int, default=0, help="seed of the key")
    parser.add_argument("--replan", help="a number of steps, 'episode' or 'doubling' (default: the agent's)")
    parser.add_argument("--regret", choices=("objective", "average", "oracle_run", "bayes"), help="which regret")
    parser.add_argument("--out", type=Path, metavar="FILE", help="NetCDF file; a killed run resumes from beside it")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the regret")


def _run(arguments: argparse.Namespace) -> None:
    import jax

    import bayes_mdp as bm
    from bayes_mdp.experiments.named import find_agent, find_environment, find_prior

    _check_folders(arguments.out, arguments.figure)
    env = find_environment(arguments.env)
    agent = find_agent(arguments.agent, arguments.replan)
    objective = _objective(arguments)
    if objective is None:
        objective = bm.Discounted(0.95) if env.mdp.horizon is None else bm.Episodic(env.mdp.horizon)
    result = bm.run(
        agent,
        env,
        prior=find_prior(arguments.prior),
        objective=objective,
        num_steps=arguments.steps,
        num_episodes=arguments.episodes,
        num_seeds=arguments.seeds,
        key=jax.random.key(arguments.seed),
        regret=arguments.regret,
        path=arguments.out,
    )
    print(summary_of_run(arguments.agent, env.name, result))
    if arguments.out:
        print(f"result: {arguments.out}")
    if arguments.figure:
        _save_figure(bm.plot_regret({arguments.agent: result}), arguments.figure)


def summary_of_run(agent: str, env: str, result: Any) -> str:
    """Total reward and final regret over the seeds, mean +- 95 % interval of the mean, as one line."""
    from bayes_mdp.experiments.intervals import half_width

    totals = result["reward"].sum(result["reward"].dims[1]).to_numpy()
    regret = result["regret"].to_numpy()[:, -1]
    return (
        f"{agent} in {env}, {len(totals)} seeds: total reward {totals.mean():.6g} +- {half_width(totals):.3g}, "
        f"regret {regret.mean():.6g} +- {half_width(regret):.3g}"
        if len(totals) > 1
        else f"{agent} in {env}, 1 seed: total reward {totals[0]:.6g}, regret {regret[0]:.6g}"
    )


def _add_levels(commands: Any) -> None:
    parser = _add(commands, "levels", _levels, "agents on RiverSwim and Chain beside the learning levels to expect")
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds")


def _levels(arguments: argparse.Namespace) -> None:
    from bayes_mdp.experiments.levels import learning_levels

    learning_levels(num_seeds=arguments.seeds)


def _add_reproduce(commands: Any) -> None:
    parser = _add(commands, "reproduce", _reproduce, "a published experiment, its numbers beside the published ones")
    parser.add_argument("name", help="a name of `list`")
    parser.add_argument("--full", action="store_true", help="at the scale of the paper")
    parser.add_argument("--seed", type=int, default=0, help="seed of the key")
    parser.add_argument("--out", type=Path, default=Path("bayes-mdp-reproduce"), help="folder for NetCDF and figure")


def _reproduce(arguments: argparse.Namespace) -> int:
    import json

    import jax

    from bayes_mdp.experiments.reproduce import figure_path, find_reproduction, reproduce

    find_reproduction(arguments.name)
    arguments.out.mkdir(parents=True, exist_ok=True)
    scale = "full" if arguments.full else "quick"
    path = arguments.out / f"{arguments.name}-{scale}.nc"
    result, _ = reproduce(arguments.name, scale=scale, key=jax.random.key(arguments.seed), path=path)
    print(f"result: {path}")
    print(f"figure: {figure_path(path)}")
    return UNEXPECTED if json.loads(result.attrs["unexpected"]) else 0


def _add_list(commands: Any) -> None:
    parser = _add(
        commands,
        "list",
        _list,
        "name the agents, environments, priors and reproductions that come with the package",
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
    from bayes_mdp.envs import ENVS
    from bayes_mdp.experiments.reproduce import REPRODUCTIONS
    from bayes_mdp.models import PRIORS

    papers = {name: import_module(module) for name, module in REPRODUCTIONS.items()}
    for title, registry in {"agents": AGENTS, "environments": ENVS, "priors": PRIORS, "reproductions": papers}.items():
        print(f"{title}:")
        for name, described in registry.items():
            print(f"  {name:<24} {(described.__doc__ or '').strip().splitlines()[0]}")
    return None


if __name__ == "__main__":
    sys.exit(main())
