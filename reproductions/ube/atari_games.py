"""[UBE18] Table 1 and figure 5: four agents on Atari.

Table 1: the 57 games, 200M frames each; figure 5: Montezuma's Revenge for 500M frames, Thompson noise of scale .016.
Weeks on a GPU; a smoke test on a CPU. A cell for every agent and game, each training with checkpoints.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.experiments.resume import Cells
from bayes_mdp.experiments.training.train import train
from bayes_mdp.experiments.training.training_loop import Evaluation, TrainOptions
from bayes_mdp.experiments.training.vector_env import FRAME_SKIP, atari
from bayes_mdp.utils.validation import check_count, check_name
from reproductions.reproduction import Reproduction, Row
from reproductions.ube.atari_agents import ATARI_AGENTS, atari_agent
from reproductions.ube.atari_reference_scores import GAMES, NORMALISERS, human_normalised

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


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
    computes = {}
    for number, (agent, game) in enumerate(pairs):
        own = jax.random.fold_in(key, number)
        computes[f"{game}-{agent}"] = lambda path, a=agent, g=game, k=own: _train(k, a, g, protocol, path)
    played = cells.get_all(computes)
    found = {(agent, game): played[f"{game}-{agent}"] for agent, game in pairs}
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
        options=replace(protocol.options, evaluation_env=atari(game, 1, evaluation=True)),
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


PUBLISHED = {
    "dqn": (688.60, 79.41, 21),
    "bonus_dqn": (472.93, 76.73, 24),
    "ube_1_step": (776.40, 94.54, 26),
    "ube_n_step": (439.88, 126.41, 35),
}
"""Agent -> mean and median human-normalised score (percent), games above human."""


def train_in_all_games(
    *,
    key: PRNGKeyArray,
    games: tuple[str, ...] = GAMES,
    frames: int = 200_000_000,
    agents: tuple[str, ...] = ATARI_AGENTS,
    evaluate_every: int = 1_000_000,
    evaluate_frames: int = 500_000,
    replay_size: int = 1_000_000,
    learning_starts: int = 50_000,
    cells: Cells | None = None,
) -> "xr.Dataset":
    """Train every agent in every game; one seed, as in [UBE18].

    A game's score is the best of its evaluations (Mnih et al. 2015; [UBE18] does not say), epsilon .05. Returns
    `evaluation_score` [agent, game, evaluation], `score` and `human_normalised` (percent) [agent, game], and the
    normalisers `random_score`, `human_score` [game].

    Raises:
        ValueError: no such game or agent, too few frames. ImportError: ale-py is missing.
    """
    for game in games:
        check_name("game", game, GAMES)
    for agent in agents:
        check_name("agent", agent, ATARI_AGENTS)
    every = min(evaluate_every, frames)
    protocol = Protocol(frames, every, evaluate_frames, replay_size, learning_starts, 0.01)
    result = play_games(key, agents, games, protocol, Cells() if cells is None else cells)
    score = result["evaluation_score"].max("evaluation")
    percent = [[human_normalised(game, score.sel(agent=a, game=game).item()) for game in games] for a in agents]
    return result.assign(
        score=score,
        human_normalised=(("agent", "game"), np.array(percent)),
        random_score=("game", [NORMALISERS[game][0] for game in games]),
        human_score=("game", [NORMALISERS[game][1] for game in games]),
    ).assign_coords(trained_frames=frames)


def table_rows(result: "xr.Dataset") -> list[Row]:
    """Mean, median, games above human; beside the published numbers where all games were played to the end.

    One run without an interval on either side judges nothing: no row has a verdict.
    """
    complete = result.sizes["game"] == len(GAMES) and result["trained_frames"].item() >= 200_000_000
    found = []
    for agent in result["agent"].to_numpy():
        percent = result["human_normalised"].sel(agent=agent).to_numpy()
        ours = (float(np.nanmean(percent)), float(np.nanmedian(percent)), float((percent > 100).sum()))
        published = PUBLISHED[agent] if complete else (None, None, None)
        names = ("mean score (%)", "median score (%)", f"games above human, of {percent.size}")
        found += [Row(f"{agent}: {name}", p, o) for name, p, o in zip(names, published, ours, strict=True)]
    return found


def draw_games(result: "xr.Dataset") -> "Figure":
    """Human-normalised scores of every game, and the median over frames ([UBE18] figures 3 and 4)."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    games = result["game"].to_numpy()
    order = np.argsort(result["human_normalised"].max("agent").to_numpy())
    for agent in result["agent"].to_numpy():
        percent = result["human_normalised"].sel(agent=agent).to_numpy()
        left.plot(percent[order], np.arange(len(games)), "o", markersize=4, label=agent)
        curves = result["evaluation_score"].sel(agent=agent).to_numpy()
        normalised = np.array([human_normalised(game, curve) for game, curve in zip(games, curves, strict=True)])
        shown = np.isfinite(normalised).all(0)
        right.plot(
            result["frames"].to_numpy()[shown], np.median(normalised[:, shown], 0), "o-", markersize=3, label=agent
        )
    left.set_yticks(np.arange(len(games)), games[order], fontsize=6)
    left.axvline(100, color="0.7", linewidth=1)
    left.set_xscale("symlog", linthresh=100)
    left.set_xlabel("score, % of human")
    right.set_xlabel("frames")
    right.set_ylabel("median over games, % of human")
    left.legend()
    return figure


TABLE1 = Reproduction(
    source="[UBE18] Table 1, figures 3 and 4: Atari",
    run=train_in_all_games,
    rows=table_rows,
    figure=draw_games,
    quick={"games": ("pong", "montezuma_revenge"), **QUICK},
    seconds={"quick": 600.0, "full": 3e7},
)


MONTEZUMA = "montezuma_revenge"
_AT_END = {"ube_n_step": (500_000_000, 3000.0), "ube_1_step": (200_000_000, 500.0)}
"""Agent -> frames, and about what it scores then."""


def train_in_montezuma(
    *,
    key: PRNGKeyArray,
    frames: int = 500_000_000,
    agents: tuple[str, ...] = ATARI_AGENTS,
    beta: float = 0.016,
    evaluate_every: int = 1_000_000,
    evaluate_frames: int = 500_000,
    replay_size: int = 1_000_000,
    learning_starts: int = 50_000,
    cells: Cells | None = None,
) -> "xr.Dataset":
    """Train the agents in Montezuma's Revenge, one seed; `evaluation_score` [agent, game, evaluation] over `frames`.

    Raises:
        ValueError: no such agent, too few frames. ImportError: ale-py is missing.
    """
    for agent in agents:
        check_name("agent", agent, ATARI_AGENTS)
    protocol = Protocol(frames, min(evaluate_every, frames), evaluate_frames, replay_size, learning_starts, beta)
    return play_games(key, agents, (MONTEZUMA,), protocol, Cells() if cells is None else cells)


def montezuma_rows(result: "xr.Dataset") -> list[Row]:
    """The last evaluation of every agent; beside the published number where it was trained as long. No verdicts."""
    frames = result["frames"].to_numpy()
    found = []
    for agent in result["agent"].to_numpy():
        scores = result["evaluation_score"].sel(agent=agent, game=MONTEZUMA).to_numpy()
        when, published = _AT_END.get(agent, (np.inf, None))
        reached = frames >= when
        ours, known = (scores[np.argmax(reached)], published) if reached.any() else (scores[-1], None)
        at = frames[np.argmax(reached)] if reached.any() else frames[-1]
        found.append(Row(f"{agent}: score after {at / 1e6:g}M frames", known, float(ours)))
    return found


def draw_montezuma(result: "xr.Dataset") -> "Figure":
    """Evaluations over frames."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(layout="constrained")
    for agent in result["agent"].to_numpy():
        scores = result["evaluation_score"].sel(agent=agent, game=MONTEZUMA).to_numpy()
        axes.plot(result["frames"].to_numpy(), scores, "o-", markersize=3, label=agent)
    axes.set_xlabel("frames")
    axes.set_ylabel("score in Montezuma's Revenge")
    axes.legend()
    return figure


FIGURE5 = Reproduction(
    source="[UBE18] figure 5: Montezuma's Revenge",
    run=train_in_montezuma,
    rows=montezuma_rows,
    figure=draw_montezuma,
    quick=QUICK,
    seconds={"quick": 300.0, "full": 2e6},
)
