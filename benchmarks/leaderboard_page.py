"""The tables and pictures of docs/measured/leaderboard.md, from docs/measured/leaderboard.json.

    python -m benchmarks.leaderboard_page

It writes the tables into the page, and makes docs/images/leaderboard.png and leaderboard_cost.png. A claim of a paper
is judged by 30 differences, one a seed: the mean over the problems of the claim, of the agent's score less its rival's.
It is *kept* where the 95 % interval of their mean lies above 0 (above -.05, where the claim is that the agent is as
good), *not kept* where it lies below, else *open*.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float

from bayes_mdp.agents import AGENTS
from bayes_mdp.experiments.ranking import leaderboard, order_of, plot_compare
from bayes_mdp.experiments.results import half_width
from benchmarks.decide_grid_picture import with_table
from benchmarks.leaderboard import ONE_SHAPE, Cell, read_cells

if TYPE_CHECKING:
    import xarray as xr

DOCS = Path(__file__).parents[1] / "docs"
PAGE, IMAGES = DOCS / "measured" / "leaderboard.md", DOCS / "images"
BOARD_HEAD, BEST_HEAD, CLAIMS_HEAD = "| | agent | score |", "| problem | episodes |", "| paper | claim |"
REFUSED_HEAD = "| not ranked | why |"
AS_GOOD = 0.05
DEEP = ("deep_sea", "deep_sea_16")
SMALL = ("riverswim", "chain", "osband_chain", "garnet", "wide_narrow")
EVERYWHERE = (*SMALL, *DEEP)


@dataclass(frozen=True)
class Claim:
    """What a paper says of an agent and a rival.

    Args:
        paper: key of the bibliography.
        text: the claim, on these problems.
        agent, rival: names.
        problems: on which it is judged.
        margin: by which the agent may be worse: 0 where it is to be better.
    """

    paper: str
    text: str
    agent: str
    rival: str
    problems: tuple[str, ...]
    margin: float = 0.0


CLAIMS = (
    Claim("UBE18", "explores better than dithering", "ube", "epsilon_greedy_q", EVERYWHERE),
    Claim("BMRL19", "PSRL has less regret than Bayesian Q-learning", "psrl", "bql", DEEP),
    Claim("BMRL19", "Bayesian Q-learning has less than moment matching", "bql", "moment_matching", DEEP),
    Claim("BMRL19", "moment matching has less than the uncertainty Bellman equation", "moment_matching", "ube", DEEP),
    Claim("BMRL19", "that equation has less than Q-learning", "ube", "epsilon_greedy_q", DEEP),
    Claim("KL21", "K-learning is as good as PSRL", "k_learning", "psrl", DEEP, AS_GOOD),
    Claim("KL21", "K-learning is ahead of soft Q-learning", "k_learning", "soft_q", DEEP),
    Claim("KL21", "PSRL is ahead of optimistic bonuses", "psrl", "ucbvi", DEEP),
    Claim("KL21", "K-learning is ahead of optimistic bonuses", "k_learning", "ucbvi", DEEP),
    Claim("TDBMA10", "an average over lambda is better than one lambda", "td_bma", "sarsa_lambda", EVERYWHERE),
    Claim("OIM08", "optimism in the model earns as much as R-max", "oim", "r_max", SMALL, AS_GOOD),
    Claim("OIM08", "the same, E3", "oim", "e3", SMALL, AS_GOOD),
    Claim("OIM08", "the same, MBIE", "oim", "mbie", SMALL, AS_GOOD),
    Claim("OIM08", "the same, MBIE-EB", "oim", "mbie_eb", SMALL, AS_GOOD),
)


def scores_of(cell: Cell) -> Float[np.ndarray, " seeds"]:
    """Of its seeds; empty where it was refused."""
    return np.array([float(score) for score in cell.scores.split()])


def board_of(cells: list[Cell]) -> "xr.Dataset":
    """What `bm.compare` returns, as far as the page needs it: scores, seconds and refusals.

    Args:
        cells: every problem of each of their agents.
    """
    import xarray as xr

    agents = list(dict.fromkeys(cell.agent for cell in cells))
    problems = list(dict.fromkeys(cell.problem for cell in cells))
    by_name = {(cell.agent, cell.problem): cell for cell in cells}
    seeds = max(len(scores_of(cell)) for cell in cells)
    score = np.full((len(agents), len(problems), seeds), np.nan)
    for (agent, problem), cell in by_name.items():
        if cell.scores:
            score[agents.index(agent), problems.index(problem)] = scores_of(cell)

    def table(name: str, kind: type) -> np.ndarray:
        return np.array([[getattr(by_name[agent, problem], name) for problem in problems] for agent in agents], kind)

    pairs = ("agent", "env")
    return xr.Dataset(
        {
            "score": ((*pairs, "seed"), score),
            "seconds": (pairs, table("seconds", float)),
            "refused": (pairs, table("refused", object)),
            "unscored": ("env", np.full(len(problems), "", object)),
        },
        {"agent": agents, "env": problems},
    )


def with_statistics(board: "xr.Dataset") -> "xr.Dataset":
    """The board with interquartile means, ranks and the intervals of both."""
    return board.merge(leaderboard(board, key=jax.random.key(0)))


def microseconds(cells: list[Cell], agent: str) -> float:
    """A step of one seed, planning included: the fastest of the problems whose program was compiled before them."""
    return min(
        1e6 * cell.seconds / (cell.episodes * cell.horizon * len(scores_of(cell)))
        for cell in cells
        if cell.agent == agent and cell.problem in ONE_SHAPE and cell.scores
    )


def ranked(board: "xr.Dataset") -> list[str]:
    """The agents that were played everywhere, best first."""
    return [name for name in order_of(board) if np.isfinite(board["rank"].sel(agent=name).item())]


def board_lines(board: "xr.Dataset", cells: list[Cell]) -> list[str]:
    """A line an agent: interquartile mean with its interval, rank, cost of a step, mean score of each problem."""
    lines = []
    for place, name in enumerate(ranked(board), 1):
        row = board.sel(agent=name)
        middle, low, high = (row[f"aggregate{end}"].sel(statistic="iqm").item() for end in ("", "_low", "_high"))
        scores = " | ".join(f"{score:.2f}" for score in row["score"].mean("seed").to_numpy())
        lines.append(
            f"| {place} | `{name}` | {middle:.3f} ({low:.3f} to {high:.3f}) | {row['rank'].item():.1f} "
            f"| {_two_digits(microseconds(cells, name))} | {scores} |"
        )
    return lines


def best_lines(board: "xr.Dataset", cells: list[Cell]) -> list[str]:
    """A line a problem: its best agent, those that are within its interval, and what they lose in all."""
    lines = []
    for problem in map(str, board["env"].to_numpy()):
        cell = next(cell for cell in cells if cell.problem == problem)
        scores = board["score"].sel(env=problem).dropna("agent")
        order = scores["agent"].to_numpy()[np.argsort(-scores.mean("seed").to_numpy())]
        first = scores.sel(agent=order[0]).to_numpy()
        # Seeds are paired: all agents meet the same random numbers.
        as_good = [
            str(name)
            for name in order[1:]
            if abs(np.mean(gaps := first - scores.sel(agent=name).to_numpy())) <= half_width(gaps)
        ]
        regret = (1 - first) * (cell.optimal - cell.random) * cell.episodes
        beside = ", ".join(f"`{name}`" for name in as_good[:5]) + (f" and {len(as_good) - 5} more" * (len(as_good) > 5))
        lines.append(
            f"| `{problem}` | {cell.episodes:,} of {cell.horizon} steps | `{order[0]}` | {first.mean():.3f} "
            f"± {half_width(first):.3f} | {regret.mean():,.0f} of {cell.optimal * cell.episodes:,.0f} "
            f"| {beside or 'none'} |"
        )
    return lines


def judge(board: "xr.Dataset", claim: Claim) -> tuple[float, float, str]:
    """The mean difference, half its 95 % interval, and the verdict."""
    score = board["score"].sel(env=list(claim.problems))
    gaps = (score.sel(agent=claim.agent) - score.sel(agent=claim.rival)).mean("env").to_numpy()
    middle, half = float(gaps.mean()), float(half_width(gaps))
    low, high = middle - half + claim.margin, middle + half + claim.margin
    return middle, half, "kept" if low > 0 else "**not kept**" if high < 0 else "open"


def claim_lines(board: "xr.Dataset") -> list[str]:
    """A line a claim, of those whose agents were played."""
    played, lines = board["score"].dropna("agent")["agent"].to_numpy(), []
    for claim in CLAIMS:
        if claim.agent in played and claim.rival in played:
            middle, half, verdict = judge(board, claim)
            where = {EVERYWHERE: "all", DEEP: "DeepSea", SMALL: "all but DeepSea"}[claim.problems]
            asked = "above 0" if claim.margin == 0 else f"above -{claim.margin:.2f}".replace("-0.", "-.")
            lines.append(
                f"| [{claim.paper}] | {claim.text} | `{claim.agent}`, `{claim.rival}` | {where} "
                f"| {middle:+.3f} ± {half:.3f} | {asked} | {verdict} |"
            )
    return lines


def refused_lines(board: "xr.Dataset") -> list[str]:
    """A line an agent that is not ranked: refused, or not stored."""
    lines = []
    for name in order_of(board)[len(ranked(board)) :]:
        sentences = dict.fromkeys(str(text) for text in board["refused"].sel(agent=name).to_numpy() if text)
        lines.append(f"| `{name}` | {'; '.join(sentences)} |")
    stored = board["agent"].to_numpy()
    return [*lines, *(f"| `{name}` | not played yet |" for name in AGENTS if name not in stored)]


def _two_digits(number: float) -> str:
    return f"{float(f'{number:.2g}'):g}"


def draw_cost(board: "xr.Dataset", cells: list[Cell], path: Path) -> None:
    """Cost of a step beside what of the possible reward is lost; named are those that nothing cheaper beats."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = ranked(board)
    cost = np.array([microseconds(cells, name) for name in names])
    lost = np.array([board["aggregate"].sel(agent=name, statistic="optimality_gap").item() for name in names])
    low, high = (
        np.array([board[f"aggregate_{end}"].sel(agent=name, statistic="optimality_gap").item() for name in names])
        for end in ("low", "high")
    )
    best_so_far = np.minimum.accumulate(lost[(by_cost := np.argsort(cost))])
    front = {int(i) for i, best in zip(by_cost, best_so_far, strict=True) if lost[i] <= best}
    figure, axes = plt.subplots(figsize=(9, 5.2), dpi=110, layout="constrained")
    axes.vlines(cost, low, high, color="0.8", linewidth=1)
    colours = ["#d1772e" if i in front else "#1f5f8b" for i in range(len(names))]
    axes.scatter(cost, lost, s=20, color=colours, zorder=3)
    for i, name in enumerate(names):
        axes.annotate(name, (cost[i], lost[i]), xytext=(4, 2), textcoords="offset points", fontsize=6.5,
                      color="black" if i in front else "0.45")  # fmt: skip
    axes.set_xscale("log")
    for each in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        each(lambda value, _: f"{value:g}" if f"{value:g}".strip("0.")[0] in "125" else "")
    axes.set_xlabel("microseconds a step and seed, planning included")
    axes.set_ylabel("regret, share of the possible reward")
    axes.grid(color="0.93")
    axes.set_axisbelow(True)
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    """Write the page and the pictures."""
    cells = read_cells()
    board = with_statistics(board_of(cells))
    text = PAGE.read_text(encoding="utf-8")
    tables = {
        BOARD_HEAD: board_lines(board, cells),
        BEST_HEAD: best_lines(board, cells),
        CLAIMS_HEAD: claim_lines(board),
        REFUSED_HEAD: refused_lines(board),
    }
    for head, lines in tables.items():
        text = with_table(text, head, lines)
    PAGE.write_text(text, encoding="utf-8")
    plot_compare(board.sel(agent=ranked(board))).savefig(IMAGES / "leaderboard.png", dpi=75)
    draw_cost(board, cells, IMAGES / "leaderboard_cost.png")
    sys.stdout.write("docs/measured/leaderboard.md, docs/images/leaderboard.png, leaderboard_cost.png\n")


if __name__ == "__main__":
    main()
