"""[UBE18] Table 1: four agents in the 57 games of Atari, 200M frames each; weeks on a GPU, a smoke test on a CPU."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.experiments.deep.presets import ATARI_AGENTS
from bayes_mdp.experiments.papers.atari_runs import QUICK, Protocol, play_games
from bayes_mdp.experiments.papers.atari_scores import GAMES, NORMALISERS, human_normalised
from bayes_mdp.experiments.reproduction import Reproduction, Row
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.mdp.validation import check_name

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

PUBLISHED = {
    "dqn": (688.60, 79.41, 21),
    "bonus_dqn": (472.93, 76.73, 24),
    "ube_1_step": (776.40, 94.54, 26),
    "ube_n_step": (439.88, 126.41, 35),
}
"""Agent -> mean and median human-normalised score (percent), games above human."""


def run(
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


def rows(result: "xr.Dataset") -> list[Row]:
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


def figure(result: "xr.Dataset") -> "Figure":
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


REPRODUCTION = Reproduction(
    source="[UBE18] Table 1, figures 3 and 4",
    run=run,
    rows=rows,
    figure=figure,
    quick={"games": ("pong", "montezuma_revenge"), **QUICK},
    seconds={"quick": 600.0, "full": 3e7},
)
