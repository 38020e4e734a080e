"""The leaderboard of all agents: its page is that of the stored cells, claims are judged by their intervals."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import leaderboard as plays
from benchmarks import leaderboard_page as page

SEEDS = 30
CELL = plays.Cell("psrl", "chain", 500, 10, 2.0, 1.0, "", 0.9, 0.3, "")


def _cells(means, noise=0.01):
    """[agent][problem] -> cells with scores about these means, the noise shared by the agents."""
    rng = np.random.default_rng(0)
    cells = []
    shared = rng.normal(0, noise, (len(means["psrl"]), SEEDS))
    for agent, row in means.items():
        for problem, mean, errors in zip(page.EVERYWHERE, row, shared, strict=False):
            scores = mean + errors + rng.normal(0, noise, SEEDS)
            cells.append(replace(CELL, agent=agent, problem=problem, scores=" ".join(f"{x:.4f}" for x in scores)))
    return cells


@pytest.mark.parametrize(
    ("agent", "margin", "verdict"),
    [
        (0.6, 0.0, "kept"),
        (0.4, 0.0, "**not kept**"),
        (0.5, 0.0, "open"),
        (0.48, 0.05, "kept"),
        (0.4, 0.05, "**not kept**"),
    ],
)
def test_a_claim_is_judged_by_the_interval_of_its_differences(agent, margin, verdict):
    cells = _cells({"psrl": [agent] * 7, "ucbvi": [0.5] * 7})
    claim = page.Claim("KL21", "is ahead", "psrl", "ucbvi", page.DEEP, margin)
    middle, half, judged = page.judge(page.board_of(cells), claim)
    # By hand: the mean over both problems seed by seed, its standard error over 30 seeds.
    by_name = {(cell.agent, cell.problem): page.scores_of(cell) for cell in cells}
    gaps = np.mean([by_name["psrl", name] - by_name["ucbvi", name] for name in page.DEEP], 0)
    assert np.isclose(middle, gaps.mean())
    assert np.isclose(half, 1.96 * gaps.std(ddof=1) / np.sqrt(SEEDS), rtol=1e-3)
    assert judged == verdict


def test_an_agent_that_was_refused_is_not_ranked():
    cells = _cells({"psrl": [0.9] * 7, "ucbvi": [0.5] * 7})
    cells += [replace(CELL, agent="tsde", problem=name, refused="no episodes") for name in page.EVERYWHERE]
    board = page.with_statistics(page.board_of(cells))
    assert page.ranked(board) == ["psrl", "ucbvi"]
    refused, *missing = page.refused_lines(board)
    assert refused == "| `tsde` | no episodes |"
    assert "| `bql` | not played yet |" in missing
    assert len(missing) == len(page.AGENTS) - 3
    assert [line.split("|")[2].strip() for line in page.board_lines(board, cells)] == ["`psrl`", "`ucbvi`"]
    # 500 episodes of 10 steps, 30 seeds, .3 seconds: 2 microseconds a step.
    assert np.isclose(page.microseconds(cells, "psrl"), 2.0)


def test_agents_as_good_as_the_best_are_those_whose_interval_holds_zero():
    cells = _cells({"psrl": [0.9] * 7, "rlsvi": [0.9] * 7, "ucbvi": [0.8] * 7}, noise=1e-3)
    lines = page.best_lines(page.board_of(cells), cells)
    for line in lines:
        assert "`psrl`" in line or "`rlsvi`" in line
        assert "`ucbvi`" not in line
    # Optimal 2 and random 1 an episode, score .9: a tenth of 500 is lost, of 1,000.
    assert "| 50 of 1,000 |" in lines[0]


def test_the_page_has_the_tables_of_the_stored_cells():
    cells = plays.read_cells()
    text = page.PAGE.read_text(encoding="utf-8")
    board = page.with_statistics(page.board_of(cells))
    tables = {
        page.BEST_HEAD: page.best_lines(board, cells),
        page.BOARD_HEAD: page.board_lines(board, cells),
        page.CLAIMS_HEAD: page.claim_lines(board),
        page.REFUSED_HEAD: page.refused_lines(board),
    }
    for head, lines in tables.items():
        assert page.with_table(text, head, lines) == text
        # With a line fewer the page would be another.
        assert page.with_table(text, head, lines[1:]) != text
    # Every stored cell is of 30 seeds, or says why it has none.
    assert all((len(page.scores_of(cell)) == plays.NUM_SEEDS) != bool(cell.refused) for cell in cells)


def test_a_stored_agent_is_not_played_again(tmp_path, monkeypatch):
    monkeypatch.setattr(plays, "STORED", tmp_path / "board.json")
    monkeypatch.setattr(plays, "tasks", dict)
    played = []
    monkeypatch.setattr(plays, "play_within_budget", lambda agent: played.append(agent) or [replace(CELL, agent=agent)])
    plays.main(["ucbvi"])
    plays.main(["psrl", "ucbvi"])
    assert played == ["ucbvi", "psrl"]
    # In the order of the package's table of agents.
    assert [cell.agent for cell in plays.read_cells()] == ["psrl", "ucbvi"]
    stored = json.loads(plays.STORED.read_text())
    plays.STORED.write_text(json.dumps(stored | {"seed": 1}))
    with pytest.raises(ValueError, match="checksum"):
        plays.read_cells()


def test_an_agent_is_played_as_compare_plays_it(monkeypatch):
    monkeypatch.setattr(plays, "NUM_SEEDS", 2)
    task = replace(plays.tasks()["chain"], length=40)
    cell = plays.play("sarsa_lambda", {"chain": task})[0]
    board = plays.bm.compare(
        plays.comparison_agents(["sarsa_lambda"]), {"chain": task}, key=plays.jax.random.key(0), num_seeds=2
    )
    assert np.allclose(page.scores_of(cell), board["score"].to_numpy().ravel(), atol=6e-5)
    assert (cell.episodes, cell.horizon, cell.refused) == (40, 10, "")
    assert cell.last is not None
    assert np.isclose(cell.last, board["curve"].to_numpy()[..., -2:].mean(), atol=6e-5)
    refused = plays.play("tsde", {"chain": task})[0]
    assert refused.scores == ""
    assert "TSDE" in refused.refused
