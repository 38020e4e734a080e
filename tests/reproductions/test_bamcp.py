"""The reproduction of [BAMCP12]: what agents are told of the worlds, a small run, the table of made-up numbers."""

import json
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from numpyro.handlers import seed

import bayes_mdp as bm
from reproductions.bamcp import worlds
from reproductions.reproduce import reproduce

pytestmark = pytest.mark.numerics


def test_what_is_known_of_the_maze():
    """The cells around each cell with the flags that follow, and what each step pays, by the map alone."""
    lines = ["S#f.#.G", ".#..#..", ".......", "##...##", "......f", "f.....#"]
    cells = [(r, c) for r, line in enumerate(lines) for c, kind in enumerate(line) if kind != "#"]
    flags = [cell for cell in cells if lines[cell[0]][cell[1]] == "f"]
    prior, space = worlds.belief(worlds.WORLDS["maze"].env())
    mean: Any = bm.infer(jax.random.key(0), prior, None, space=space).mean_mdp()
    rows, reward = np.asarray(mean.probability), np.asarray(mean.reward)
    for state in range(264):
        (r, c), held = cells[state // 8], state % 8
        pays = {}
        for i, j in ((-1, 0), (0, 1), (1, 0), (0, -1)):
            there = (r + i, c + j) if (r + i, c + j) in cells else (r, c)
            if lines[there[0]][there[1]] == "G":
                pays[0] = bin(held).count("1")
            else:
                taken = 1 << flags.index(there) if there in flags else 0
                pays[8 * cells.index(there) + (held | taken)] = 0
        for action in range(4):
            listed = np.asarray(space.successors)[state, action]
            assert set(listed[listed >= 0].tolist()) == set(pays)
            # Of K states each has probability 1 / K.
            np.testing.assert_allclose(rows[state, action][listed >= 0], 1 / len(pays), rtol=1e-5)
            assert reward[state, action] == pytest.approx(sum(pays.values()) / len(pays), rel=1e-5)


def test_every_transition_of_the_maze_is_listed_with_what_it_pays():
    """A transition with its probability and reward in the environment, and the reward that the prior knows."""
    env: Any = worlds.WORLDS["maze"].env()
    prior, space = worlds.belief(env)
    spec: Any = seed(prior, jax.random.key(0))(space)
    reward = np.asarray(spec.reward)
    listed = np.asarray(space.successors)
    after, value = np.asarray(env.mdp.successor), np.asarray(env.reward_law.value)
    for state, action, i in np.ndindex(after.shape):
        (place,) = np.flatnonzero(listed[state, action] == after[state, action, i])
        assert reward[state, action, place] == value[state, action, i]


@pytest.mark.parametrize("world", ["loop", "grid5", "grid10"])
def test_what_is_known_of_the_others(world):
    """Rewards; rows Dirichlet(1 / S): after one transition to a state its mean is (1 + 1 / S) / 2."""
    env: Any = worlds.WORLDS[world].env()
    prior, space = worlds.belief(env)
    n = env.mdp.n_states
    data = bm.Transitions([0], [1], [0.0], [3])
    mean: Any = bm.infer(jax.random.key(0), prior, data, space=space).mean_mdp()
    expected = np.full(n, 0.5 / n)
    expected[3] += 0.5
    np.testing.assert_allclose(mean.transition_probs[0, 1], expected, rtol=1e-5)
    np.testing.assert_allclose(mean.transition_probs[1, 0], 1 / n, rtol=1e-5)
    np.testing.assert_array_equal(mean.reward, env.mdp.reward)


def test_the_settings_of_the_searches():
    agents: dict[str, Any] = {name: make(worlds.WORLDS["maze"], 7) for name, (_, make) in worlds.METHODS.items()}
    for name in ("bamcp", "bamcp_greedy", "bamcp_kept"):
        assert (agents[name].num_simulations, agents[name].max_depth, agents[name].exploration) == (7, 100, 3.0)
    assert [agents[name].random_rollouts for name in ("bamcp", "bamcp_greedy", "bamcp_kept")] == [1.0, 0.5, 1.0]
    assert [agents[name].keep_tree for name in ("bamcp", "bamcp_greedy", "bamcp_kept")] == [False, False, True]


@pytest.mark.slow
def test_a_small_run(key, tmp_path, capsys):
    """Complete Datasets, the same numbers again, no verdict, a figure; the maze runs with listed successors."""
    options = {
        "plan": {"loop": ("bamcp", "beb"), "maze": ("bamcp",)},
        "num_seeds": {"loop": 3, "maze": 2},
        "num_simulations": {"loop": 20, "maze": 5},
        "num_steps": {"loop": 100, "maze": 20},
    }
    result, figure = reproduce("bamcp-worlds", key=key, path=tmp_path / "worlds.nc", options=options)
    total = result["total"].to_numpy()
    assert total.shape == (2, 2, 3) and np.isnan(total).sum() == 1 + 3
    assert (worlds.totals(result, "loop", "beb") > 20).all() and len(worlds.totals(result, "maze", "bamcp")) == 2
    xr.testing.assert_identical(worlds.play(key=key, **options), result.drop_attrs(deep=False))
    assert len(figure.axes) == 2 and "double loop: BAMCP" in capsys.readouterr().out
    assert {row["verdict"] for row in json.loads(result.attrs["verdicts"])} == {None}
    assert json.loads(result.attrs["unexpected"]) == []


def made_up(steps=1000):
    """Two worlds: three totals of BAMCP in the loop, two of PSRL, one run in the grid."""
    nan = float("nan")
    total = np.array([[[380.0, 390.0, 394.0], [350.0, 354.0, nan]], [[70.0, nan, nan], [nan, nan, nan]]])
    variables = {"total": (("world", "method", "seed"), total), "steps": (("world",), [steps, steps])}
    return xr.Dataset(variables, coords={"world": ["loop", "grid5"], "method": ["bamcp", "psrl"]})


def test_the_table():
    """Means of the runs there are, recalled numbers beside those of runs of the paper's length, never a verdict."""
    table = {row.quantity: row for row in worlds.rows(made_up())}
    ours = table["double loop: BAMCP (recalled)"]
    assert ours.published == 387.6 and ours.ours == pytest.approx(388.0) and ours.half > 0
    assert table["double loop: PSRL, every 20 steps"].ours == 352.0
    assert table["double loop: optimal gain times 1000"].ours == pytest.approx(400.0)
    assert table["Grid5: optimal gain times 1000"].ours == pytest.approx(92.53, abs=0.01)
    assert table["Grid5: BAMCP (recalled)"].half == float("inf") and len(table) == 5
    assert all(row.verdict is None for row in table.values())
    shorter = {row.quantity: row for row in worlds.rows(made_up(500))}
    assert shorter["double loop: BAMCP"].published is None
    assert len(worlds.figure(made_up()).axes) == 2


def test_unknown_names_are_refused(key):
    with pytest.raises(ValueError, match="world is 'lop', expected one of"):
        worlds.play(key=key, plan={"lop": ("bamcp",)})
    with pytest.raises(ValueError, match="method is 'bamc', expected one of"):
        worlds.play(key=key, plan={"loop": ("bamc",)})
    with pytest.raises(ValueError, match="world of num_seeds is 'loop', expected one of"):
        worlds.play(key=key, plan={"loop": ("bamcp",)}, num_seeds={"maze": 3})
    with pytest.raises(ValueError, match="num_steps is 0, expected an integer of at least 1"):
        worlds.play(key=key, plan={"loop": ("bamcp",)}, num_steps={"loop": 0})
