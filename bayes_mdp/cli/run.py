"""`bayes-mdp demo` and `run`: agents in environments."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bayes_mdp.cli.options import (
    Commands,
    add_command,
    add_objective,
    check_outputs,
    count,
    objective_of,
    save_figure,
    seed,
)

if TYPE_CHECKING:
    import xarray as xr


def add_demo(commands: Commands) -> None:
    """The parser of `demo`."""
    parser = add_command(
        commands, "demo", _demo, "the whole workflow on FrozenLake: log, prior, posterior, policies, agents"
    )
    parser.add_argument("--out", type=Path, default=Path("bayes-mdp-demo"), help="folder for what it writes")
    parser.add_argument("--seed", type=seed, default=0, help="seed of every random number")


def _demo(arguments: argparse.Namespace) -> None:
    from bayes_mdp.experiments.demo import demo

    demo(arguments.out, seed=arguments.seed)


def add_run(commands: Commands) -> None:
    """The parser of `run`."""
    parser = add_command(
        commands, "run", _run, "an agent in an environment, many seeds in one compiled program", resumes=True
    )
    parser.add_argument("agent", help="a name of `list`")
    parser.add_argument("env", metavar="ENV[:SIZE]", help="a name of `list`, or a Gymnasium id with a table P")
    parser.add_argument("--prior", default="dirichlet_normal_gamma", help="a name of `list`, or MODULE:FUNCTION")
    add_objective(parser)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=count, help="number of steps")
    length.add_argument("--episodes", type=count, help="number of episodes")
    parser.add_argument("--seeds", type=count, default=20, help="number of seeds")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the key")
    parser.add_argument("--replan", help="a number of steps, 'episode' or 'doubling' (default: the agent's)")
    parser.add_argument("--regret", choices=("objective", "average", "oracle_run", "bayes"), help="which regret")
    parser.add_argument("--out", type=Path, metavar="FILE", help="NetCDF file; a killed run resumes from beside it")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the regret")


def _run(arguments: argparse.Namespace) -> None:
    import jax

    import bayes_mdp as bm
    from bayes_mdp.experiments.registry_names import find_agent, find_environment, find_prior

    check_outputs(arguments, "out", "figure")
    env = find_environment(arguments.env)
    agent = find_agent(arguments.agent, arguments.replan)
    objective = objective_of(arguments)
    if objective is None:
        horizon = env.mdp.horizon if isinstance(env, bm.Environment) else None
        objective = bm.Discounted(0.95) if horizon is None else bm.Episodic(horizon)
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
        save_figure(bm.plot_regret({arguments.agent: result}), arguments.figure)


def summary_of_run(agent: str, env: str, result: "xr.Dataset") -> str:
    """Total reward and final regret over the seeds, mean +- 95 % interval of the mean, as one line.

    Of a run measured in trials [TDBMA10]: the mean return of the trials of the last checkpoint.
    """
    from bayes_mdp.experiments.results import half_width

    if "trace_decay" in result:
        returns = result["reward"].to_numpy()[:, -1]
        interval = f" +- {half_width(returns):.3g}" if len(returns) > 1 else ""
        seeds = f"{len(returns)} seed{'s' if len(returns) > 1 else ''}"
        return f"{agent} in {env}, {seeds}: mean return of the last trials {returns.mean():.6g}{interval}"
    totals = result["reward"].sum(str(result["reward"].dims[1])).to_numpy()
    regret = result["regret"].to_numpy()[:, -1]
    return (
        f"{agent} in {env}, {len(totals)} seeds: total reward {totals.mean():.6g} +- {half_width(totals):.3g}, "
        f"regret {regret.mean():.6g} +- {half_width(regret):.3g}"
        if len(totals) > 1
        else f"{agent} in {env}, 1 seed: total reward {totals[0]:.6g}, regret {regret[0]:.6g}"
    )
