"""[UBE18] Table 1 and figure 5: normalisers, tables from made-up scores, protocol, refusals; no emulator is run."""

import csv
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

from bayes_mdp.agents.neural import DQN, BonusDQN, NeuralUBE
from reproductions.__main__ import main
from reproductions.reproduce import reproduce
from reproductions.ube import atari_games
from reproductions.ube.atari_agents import ATARI_AGENTS, atari_agent
from reproductions.ube.atari_reference_scores import GAMES, human_normalised

TABLE = Path(__file__).parents[3] / "shared" / "paper_tables.csv"


@pytest.fixture
def played(monkeypatch):
    """Trainings that are not: the score of an evaluation is frames / 1e6 times the number of the pair."""
    calls = []

    def train(key, agent, game, protocol, path):
        calls.append((agent, game, protocol))
        frames = np.arange(1, protocol.frames // protocol.evaluate_every + 1) * protocol.evaluate_every
        number = len(calls)
        score = np.where(np.arange(frames.size) == frames.size - 1, 0.0, number * frames / 1e6)
        return {
            "frames": frames,
            "evaluation_score": score,
            "evaluation_episodes": np.ones(frames.size),
            "training_score": 1.0,
        }

    monkeypatch.setattr(atari_games, "_train", train)
    return calls


def test_normalisers():
    assert len(GAMES) == len(set(GAMES)) == 57
    assert human_normalised("pong", -20.7) == 0 and human_normalised("pong", 14.6) == pytest.approx(100)
    assert human_normalised("skiing", -4336.9) == pytest.approx(100), "a human above random below zero"


def test_the_score_of_a_game_is_that_of_its_best_evaluation(played):
    games, agents = ("pong", "freeway"), ("dqn", "ube_n_step")
    result = atari_games.train_in_all_games(key=jax.random.key(0), games=games, agents=agents, frames=3_000_000)
    assert [call[:2] for call in played] == [
        ("dqn", "pong"),
        ("ube_n_step", "pong"),
        ("dqn", "freeway"),
        ("ube_n_step", "freeway"),
    ]
    np.testing.assert_allclose(result["score"], [[2.0, 6.0], [4.0, 8.0]])
    expected = human_normalised("freeway", 8.0)
    assert result["human_normalised"].sel(agent="ube_n_step", game="freeway").item() == pytest.approx(expected)
    rows = {row.quantity: row for row in atari_games.table_rows(result)}
    both = [human_normalised("pong", 2.0), human_normalised("freeway", 6.0)]
    assert rows["dqn: mean score (%)"].ours == pytest.approx(np.mean(both))
    assert rows["dqn: mean score (%)"].published is None, "two games are not Table 1"
    assert all(row.verdict is None for row in rows.values())
    atari_games.draw_games(result)
    plt.close("all")


def test_the_whole_table_stands_beside_the_published_one(played):
    result = atari_games.train_in_all_games(key=jax.random.key(0), evaluate_every=100_000_000)
    rows = {row.quantity: row.published for row in atari_games.table_rows(result)}
    assert rows["ube_n_step: median score (%)"] == 126.41 and rows["dqn: games above human, of 57"] == 21
    assert len(played) == 4 * 57 and played[0][2].options.replay_size == 10**6
    if not TABLE.exists():
        pytest.skip("the table of published results is not here")
    methods = ("DQN", "DQN Intrinsic Motivation", "DQN UBE 1-step", "DQN UBE n-step")
    names = {str(method): agent for method, agent in zip(methods, ATARI_AGENTS, strict=True)}
    with TABLE.open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["table"] == "Table 1" and line["method"] in names]
    published = {(names[line["method"]], line["metric"].split()[0]): float(line["value"]) for line in lines}
    words = ("mean", "median", "games")
    ours = {(agent, word): row[i] for agent, row in atari_games.PUBLISHED.items() for i, word in enumerate(words)}
    assert published == ours


def test_figure_5(played):
    result = atari_games.train_in_montezuma(
        key=jax.random.key(0), frames=500_000_000, agents=("ube_n_step", "ube_1_step"), evaluate_every=100_000_000
    )
    assert played[0][2].beta == 0.016 and played[0][1] == "montezuma_revenge"
    rows = {row.quantity: (row.published, row.ours) for row in atari_games.montezuma_rows(result)}
    assert rows == {
        "ube_n_step: score after 500M frames": (3000.0, 0.0),
        "ube_1_step: score after 200M frames": (500.0, 400.0),
    }
    short = atari_games.train_in_montezuma(key=jax.random.key(0), frames=4_000_000, agents=("ube_n_step",))
    assert atari_games.montezuma_rows(short)[0].published is None
    atari_games.draw_montezuma(result)
    plt.close("all")


def test_agents_have_the_settings_of_the_paper():
    dqn, bonus, one, many = (atari_agent(name) for name in ATARI_AGENTS)
    assert isinstance(dqn, DQN) and isinstance(bonus, BonusDQN)
    assert isinstance(one, NeuralUBE) and isinstance(many, NeuralUBE)
    assert dqn.learning == one.learning and dqn.learning.optimizer == "rmsprop" and dqn.learning.batch_size == 32
    assert dqn.trunk.num_features((4, 84, 84)) == 512 and bonus.scale == 0.1
    assert (one.head.num_steps, many.head.num_steps, one.head.width, one.beta) == (1, 150, 512, 0.01)


def test_wrong_input(tmp_path, capsys):
    with pytest.raises(ValueError, match=r"game is 'pongg', expected one of .*; did you mean 'pong'"):
        atari_games.train_in_all_games(key=jax.random.key(0), games=("pongg",))
    with pytest.raises(ValueError, match="agent is 'ube', expected one of dqn"):
        atari_games.train_in_montezuma(key=jax.random.key(0), agents=("ube",))
    with pytest.raises(ValueError, match="options of klearning-fig1 is 'games', expected one of"):
        reproduce("klearning-fig1", options={"games": ("pong",)})
    assert main(["ube-table1", "--frames", "2", "--out", str(tmp_path)]) == 2
    assert "frames is 2, expected an integer of at least 4" in capsys.readouterr().err
