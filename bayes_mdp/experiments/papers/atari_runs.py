"""Trainings on Atari for `ube-table1` and `ube-fig5`: a cell for every agent and game, each with checkpoints."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.experiments.deep.atari import FRAME_SKIP, atari
from bayes_mdp.experiments.deep.options import Evaluation, TrainOptions
from bayes_mdp.experiments.deep.presets import atari_agent
from bayes_mdp.experiments.deep.train import train
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.mdp.validation import check_count

if TYPE_CHECKING:
    import xarray as xr


QUICK = {
    "frames": 20_000,
    "evaluate_every": 10_000,
    "evaluate_frames": 8_000,
    "replay_size": 10_000,
    "learning_starts": 1_000,
}
"""Options of a smoke test on a CPU."""


@dataclass(frozen=True)
class Protocol:
    """How long, and how it is judged, in frames of the emulator.

    Args:
        frames: of a training.
        evaluate_every, evaluate_frames: frames of training between evaluations, and frames of one.
        replay_size, learning_starts: in steps of the agent.
        beta: scale of the noise of UBE.
    """

    frames: int
    evaluate_every: int
    evaluate_frames: int
    replay_size: int
    learning_starts: int
    beta: float

    def __post_init__(self) -> None:
        for name in ("frames", "evaluate_every", "evaluate_frames"):
            check_count(name, getattr(self, name), FRAME_SKIP)

    @property
    def options(self) -> TrainOptions:
        """Of `train`."""
        every, steps = self.evaluate_every // FRAME_SKIP, self.evaluate_frames // FRAME_SKIP
        return TrainOptions(replay_size=self.replay_size, evaluation=Evaluation(every, steps, 0.05), chunk=500)


def play_games(
    key: PRNGKeyArray, agents: Sequence[str], games: Sequence[str], protocol: Protocol, cells: Cells
) -> "xr.Dataset":
    """Evaluations of every agent in every game.

    Returns:
        `evaluation_score`, `evaluation_episodes` [agent, game, evaluation], coordinate `frames` of an evaluation;
        `training_score` [agent, game], the mean score of the last tenth of the training's episodes.
    """
    import xarray as xr

    pairs = [(agent, game) for game in games for agent in agents]
    found = {}
    with cells.expect(len(pairs)) as kept:
        for number, (agent, game) in enumerate(pairs):
            own = jax.random.fold_in(key, number)
            found[agent, game] = kept.get(
                f"{game}-{agent}", lambda path, a=agent, g=game, k=own: _train(k, a, g, protocol, path)
            )
    grid = [[found[agent, game] for game in games] for agent in agents]
    first = grid[0][0]
    dims = ("agent", "game", "evaluation")
    stacked = {name: np.array([[cell[name] for cell in row] for row in grid]) for name in first if name != "frames"}
    return xr.Dataset(
        {name: (dims[: x.ndim], x) for name, x in stacked.items()},
        coords={"agent": list(agents), "game": list(games), "frames": ("evaluation", first["frames"])},
    )


def _train(key: PRNGKeyArray, agent: str, game: str, protocol: Protocol, path: Path | None) -> Mapping[str, Any]:
    """One training; its checkpoints lie beside the cell until that is finished."""
    folder = None if path is None else path.with_suffix(".training")
    training = train(
        atari_agent(agent, beta=protocol.beta, learning_starts=protocol.learning_starts),
        atari(game, 1),
        num_steps=protocol.frames // FRAME_SKIP,
        key=key,
        path=folder,
        options=protocol.options,
        evaluation_env=atari(game, 1, evaluation=True),
    )
    if not training.finished:
        print("stopped; the same command goes on from here", flush=True)
        raise SystemExit(0)
    found = training.dataset
    scores = found["episode_score"].to_numpy()[0]
    scores = scores[np.isfinite(scores)]
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "frames": found["evaluation_step"].to_numpy() * FRAME_SKIP,
        "evaluation_score": found["evaluation_score"].to_numpy()[0],
        "evaluation_episodes": found["evaluation_episodes"].to_numpy()[0],
        "training_score": scores[-max(len(scores) // 10, 1) :].mean() if scores.size else np.nan,
    }
