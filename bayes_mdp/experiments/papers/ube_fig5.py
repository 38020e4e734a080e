"""[UBE18] figure 5: Montezuma's Revenge for 500M frames, Thompson noise of scale .016."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.experiments.deep.presets import ATARI_AGENTS
from bayes_mdp.experiments.papers.atari_runs import QUICK, Protocol, play_games
from bayes_mdp.experiments.reproduction import Reproduction, Row
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.mdp.validation import check_name

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

GAME = "montezuma_revenge"
_AT_END = {"ube_n_step": (500_000_000, 3000.0), "ube_1_step": (200_000_000, 500.0)}
"""Agent -> frames, and about what it scores then."""


def run(
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
    return play_games(key, agents, (GAME,), protocol, Cells() if cells is None else cells)


def rows(result: "xr.Dataset") -> list[Row]:
    """The last evaluation of every agent; beside the published number where it was trained as long. No verdicts."""
    frames = result["frames"].to_numpy()
    found = []
    for agent in result["agent"].to_numpy():
        scores = result["evaluation_score"].sel(agent=agent, game=GAME).to_numpy()
        when, published = _AT_END.get(agent, (np.inf, None))
        reached = frames >= when
        ours, known = (scores[np.argmax(reached)], published) if reached.any() else (scores[-1], None)
        at = frames[np.argmax(reached)] if reached.any() else frames[-1]
        found.append(Row(f"{agent}: score after {at / 1e6:g}M frames", known, float(ours)))
    return found


def figure(result: "xr.Dataset") -> "Figure":
    """Evaluations over frames."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(layout="constrained")
    for agent in result["agent"].to_numpy():
        scores = result["evaluation_score"].sel(agent=agent, game=GAME).to_numpy()
        axes.plot(result["frames"].to_numpy(), scores, "o-", markersize=3, label=agent)
    axes.set_xlabel("frames")
    axes.set_ylabel("score in Montezuma's Revenge")
    axes.legend()
    return figure


REPRODUCTION = Reproduction(
    source="[UBE18] figure 5",
    run=run,
    rows=rows,
    figure=figure,
    quick=QUICK,
    seconds={"quick": 300.0, "full": 2e6},
)
