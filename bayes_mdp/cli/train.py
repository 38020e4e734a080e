"""`bayes-mdp train`, `evaluate`: deep agents."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from bayes_mdp.cli.options import Commands, add_command, check_outputs, count, save_figure, seed
from bayes_mdp.utils.messages import count_of

if TYPE_CHECKING:
    import xarray as xr

    from bayes_mdp.experiments.training.training_loop import Evaluation
    from bayes_mdp.experiments.training.vector_env import HostEnv
    from bayes_mdp.mdp import ObservedEnvironment

Environments: TypeAlias = "tuple[ObservedEnvironment | HostEnv, HostEnv | None]"
"""The one to train in; on the host, the one to evaluate in."""


class Note(TypedDict):
    """The arguments of a training from which `evaluate` makes agent and environment again."""

    agent: str
    set: list[str]
    env: str
    envs: int


_COMMAND = "command.json"
_NOTED = tuple(Note.__annotations__)
_FILES = ("configuration.json", "curves.nc")
_ENV_HELP = "deep_sea:20, cartpole, another name of `list`, gymnax:NAME, atari:GAME or gymnasium:ID"


def add_train(commands: Commands) -> None:
    """The parser of `train`."""
    parser = add_command(
        commands, "train", _train, "a deep agent, many seeds; checkpoints, learning curves", resumes=True
    )
    parser.add_argument("agent", help="a deep agent of `list`")
    parser.add_argument("env", metavar="ENV[:ARGUMENT]", help=_ENV_HELP)
    parser.add_argument("--steps", type=count, required=True, help="environment steps of each seed")
    parser.add_argument("--seeds", type=count, default=1, help="number of seeds, trained side by side")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the key")
    parser.add_argument("--envs", type=count, default=1, help="environments of each seed, side by side")
    parser.add_argument("--replay", type=count, default=100_000, help="transitions remembered, of each seed")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of the agent, e.g. beta=0.1, "
        "learning.batch_size=32, trunk=mlp:64,64 | minatar | nature; may be repeated"
    )  # fmt: skip
    _add_evaluation(parser)
    parser.add_argument("--evaluate-every", type=count, help="environment steps between evaluations (default: none)")
    parser.add_argument("--device", choices=("cpu", "gpu"), help="where to run (default: what JAX finds)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="checkpoints and curves; the same command resumes")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the learning curve")
    parser.add_argument("--film", type=Path, metavar="FILE", help="draw where the agent went (deep_sea)")


def _add_evaluation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--evaluate-steps", type=count, default=10_000, help="environment steps of one evaluation")
    parser.add_argument("--evaluate-epsilon", type=float, default=0.05, help="share of random actions in it")
    parser.add_argument("--evaluate-envs", type=count, default=8, help="environments side by side in it")


def _evaluation(arguments: argparse.Namespace, every: int) -> "Evaluation":
    from bayes_mdp.experiments.training.training_loop import Evaluation

    return Evaluation(every, arguments.evaluate_steps, arguments.evaluate_epsilon, arguments.evaluate_envs)


def _train(arguments: argparse.Namespace) -> int | None:
    import jax

    from bayes_mdp.experiments.plots.result_plots import plot_training, plot_visits
    from bayes_mdp.experiments.training.train import train
    from bayes_mdp.experiments.training.training_loop import TrainOptions
    from bayes_mdp.experiments.training.vector_env import find_neural_agent
    from bayes_mdp.utils.files import check_folder

    check_outputs(arguments, "figure", "film")
    if arguments.out is not None:
        check_folder(arguments.out, "--out")
        if not arguments.out.parent.is_dir():
            raise FileNotFoundError(f"--out is {str(arguments.out)!r}, expected a folder in a folder that exists")
    agent = find_neural_agent(arguments.agent, arguments.set)
    env, evaluation_env = _environments(arguments.env, arguments.envs, import_module=True)
    _check_film(arguments, env)
    interval = arguments.evaluate_every
    options = TrainOptions(
        num_envs=arguments.envs,
        replay_size=arguments.replay,
        evaluation=None if interval is None else _evaluation(arguments, interval),
        device=arguments.device,
        evaluation_env=evaluation_env,
    )
    training = train(
        agent,
        env,
        num_steps=arguments.steps,
        num_seeds=arguments.seeds,
        key=jax.random.key(arguments.seed),
        path=arguments.out,
        options=options,
    )
    if arguments.out:
        _note(arguments)
        print(f"checkpoints and curves: {arguments.out}")
    if not training.finished:
        print("stopped; the same command resumes from here")
        return None
    print(_summary(arguments, training.dataset))
    if arguments.figure:
        save_figure(plot_training({arguments.agent: training.dataset}), arguments.figure)
    if arguments.film:
        save_figure(plot_visits(training.dataset), arguments.film)
    return None


def _check_film(arguments: argparse.Namespace, env: "ObservedEnvironment | HostEnv") -> None:
    from bayes_mdp.mdp.environment import HasCells

    if arguments.film is not None and not isinstance(env, HasCells):
        raise ValueError(f"--film is given for {arguments.env}, which has no map, expected it for one such as deep_sea")


def _environments(name: str, num_envs: int, *, import_module: bool) -> Environments:
    """The environment to train in, and that to evaluate in if it is another one (on the host).

    `import_module`: whether a user, not a file, names it, so that it may import a module.
    """
    from bayes_mdp.experiments.training.vector_env import HOSTED, find_hosted, find_observed

    if name.partition(":")[0] in HOSTED:
        return find_hosted(name, num_envs, import_module=import_module)
    return find_observed(name), None


def _note(arguments: argparse.Namespace) -> None:
    """What `evaluate` needs to make agent and environment again."""
    from bayes_mdp.utils.files import write_json

    write_json(arguments.out / _COMMAND, {name: getattr(arguments, name) for name in _NOTED})


def _read_note(folder: Path) -> Note:
    """What `_note` wrote."""
    from bayes_mdp.utils.files import read_json

    if not (folder / _COMMAND).is_file():
        raise FileNotFoundError(f"{folder} was not written by `bayes-mdp train --out` (no {_COMMAND})")
    expected = "the note of `bayes-mdp train --out`, as this version writes it"
    named = read_json(folder / _COMMAND, expected)
    missing = next((name for name in _NOTED if name not in named), None)
    if missing is not None:
        raise ValueError(f"{folder / _COMMAND} has no {missing!r}, expected {expected}")
    return Note(agent=named["agent"], set=named["set"], env=named["env"], envs=named["envs"])


def _same_environments(arguments: argparse.Namespace, named: Note) -> Environments:
    """The environments that a training was made in: a name in a file must not run code."""
    if arguments.env not in (None, named["env"]):
        raise ValueError(
            f"--env is {arguments.env!r}, expected {named['env']!r}, in which {arguments.folder} was trained"
        )
    kind, _, argument = named["env"].partition(":")
    if arguments.env is None and kind == "gymnasium" and ":" in argument:
        raise ValueError(
            f"{arguments.folder} names the environment {named['env']!r}, which imports a module, expected it to be "
            f"named here as well: --env {named['env']}"
        )
    return _environments(named["env"], named["envs"], import_module=arguments.env is not None)


def _summary(arguments: argparse.Namespace, dataset: "xr.Dataset") -> str:
    """Mean score of the last tenth of the episodes, over seeds."""
    import numpy as np

    scores = dataset["episode_score"].to_numpy()
    finished = [x[np.isfinite(x)] for x in scores]
    last = np.array([x[-max(len(x) // 10, 1) :].mean() if x.size else np.nan for x in finished])
    seeds, episodes = count_of(len(last), "seed"), count_of(sum(map(len, finished)), "episode")
    return (
        f"{arguments.agent} in {arguments.env}, {seeds}: mean score of the last tenth of {episodes} "
        f"{np.nanmean(last):.6g}" + (f" ({np.nanmin(last):.6g} to {np.nanmax(last):.6g})" if len(last) > 1 else "")
    )


def add_evaluate(commands: Commands) -> None:
    """The parser of `evaluate`."""
    parser = add_command(commands, "evaluate", _evaluate, "play a trained agent, without learning")
    parser.add_argument("folder", type=Path, help="the folder that `train --out` wrote")
    parser.add_argument(
        "--env", metavar="ENV[:ARGUMENT]", help="the environment that was trained in: needed where it imports a module"
    )
    _add_evaluation(parser)
    parser.add_argument("--seed", type=seed, default=0, help="seed of the key")
    parser.add_argument("--out", type=Path, metavar="FILE", help="NetCDF file of the scores")


def _evaluate(arguments: argparse.Namespace) -> None:
    import jax

    from bayes_mdp.experiments.training.train import evaluate_agent, load_training
    from bayes_mdp.experiments.training.vector_env import find_neural_agent
    from bayes_mdp.utils.files import write_netcdf

    folder = arguments.folder
    written = [*(folder / name for name in (_COMMAND, *_FILES)), *(folder / "checkpoints").rglob("*")]
    check_outputs(arguments, "out", inputs=written)
    named = _read_note(arguments.folder)
    agent = find_neural_agent(named["agent"], named["set"])
    env, evaluation_env = _same_environments(arguments, named)
    training = load_training(arguments.folder, agent, env)
    result = evaluate_agent(
        training,
        env if evaluation_env is None else evaluation_env,
        how=_evaluation(arguments, 1),
        key=jax.random.key(arguments.seed),
    )
    scores = zip(result["mean_score"].values, result["episodes"].values, strict=True)
    for i, (mean, number) in enumerate(scores):
        print(f"seed {i}: mean score {mean:.6g} of {count_of(number, 'episode')}")
    if arguments.out:
        write_netcdf(result, arguments.out)
        print(f"result: {arguments.out}")
