"""The reproductions of [EUBE23]: the stationary grid, the belief with repeated data, tables of made-up numbers."""

import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from bayes_mdp.agents import PSRL
from bayes_mdp.mdp import Problem, Transitions
from reproductions.luis import deep_sea_times, seven_rooms_regret
from reproductions.luis.discounted_episodes import METHODS, PUBLISHED, discounted_episodes
from reproductions.reproduce import reproduce

pytestmark = pytest.mark.numerics
INFINITE = float("inf")


@pytest.mark.parametrize("size", [2, 4])
def test_the_grid_is_deep_sea_with_the_row_in_the_state(size):
    """Rows, ends and rewards of every cell by a plain loop; always right is worth .99."""
    env: Any = deep_sea_times.grid(size)
    mdp = env.mdp
    assert mdp.horizon is None and mdp.n_states == size**2 and np.argmax(mdp.initial) == 0
    for row, column in np.ndindex(size, size):
        for action in range(2):
            cell = size * row + column, action
            there = min(column + 1, size - 1) if action else max(column - 1, 0)
            last = row == size - 1
            pays = (-0.01 / size if action else 0.0) + (action == 1 and last and column == size - 1)
            assert mdp.reward[cell] == pytest.approx(pays)
            assert mdp.end_probs[cell] == last and mdp.probability[(*cell, 0)] == 1.0 - last
            if not last:
                assert mdp.successor[(*cell, 0)] == size * (row + 1) + there
    state, total = 0, 0.0
    for _ in range(size):
        total += float(mdp.reward[state, 1])
        state = int(mdp.successor[state, 1, 0])
    assert total == pytest.approx(0.99) == env.optimum


def test_a_transition_counts_as_often_as_it_is_told(key):
    """Rows Dirichlet(1 / sqrt(S)) over S states and an end, by counting: three transitions, four times each."""
    env = deep_sea_times.grid(3)
    agent, space = discounted_episodes("psrl", env, repeats=4.0)
    problem = Problem(space, deep_sea_times.Episodic(3))
    state = agent.init(key, problem)
    after, ended = 4, np.array([False, False, True])
    for end in ended:
        pair, reward, following = (jnp.asarray(0), jnp.asarray(1)), jnp.asarray(0.5), jnp.asarray(after)
        seen = Transitions(*pair, reward, following, jnp.asarray(end), None, jnp.asarray(1))
        state = agent.observe(problem, state, seen)
    mean: Any = state[0].mean_mdp()  # type: ignore[attr-defined]
    expected = np.full(10, 1 / 3)
    expected[after] += 4 * 2
    expected[9] += 4 * 1
    np.testing.assert_allclose(mean.transition_probs[0, 1], expected[:9] / expected.sum(), rtol=1e-5)
    np.testing.assert_allclose(mean.end_probs[0, 1], expected[9] / expected.sum(), rtol=1e-5)
    # Prior precision 1, that of an observation 1 / .001^2.
    np.testing.assert_allclose(mean.reward[0, 1], 0.5 * 12e6 / (12e6 + 1), rtol=1e-6)
    np.testing.assert_allclose(mean.transition_probs[1, 0], 0.1, rtol=1e-5)
    assert isinstance(agent.agent, PSRL) and space.ends and set(PUBLISHED) < set(METHODS)


@pytest.mark.slow
def test_small_runs(key, tmp_path, capsys):
    """Both experiments with two methods: complete Datasets, the same numbers again, figures."""
    plan = {"psrl": {3: 30}, "bound": {3: 30}}
    times = deep_sea_times.deep_sea_times(key=key, plan=plan, num_seeds=2)
    assert np.isfinite(times["time"]).all() and (times["misses"] < 30).all()
    xr.testing.assert_identical(times, deep_sea_times.deep_sea_times(key=key, plan=plan, num_seeds=2))
    assert len(deep_sea_times.figure(times).axes) == 2
    options = {"agents": ("psrl", "ube_thompson"), "room_size": 1, "num_episodes": 5, "num_seeds": 2}
    result, figure = reproduce("luis-sevenrooms", key=key, path=tmp_path / "rooms.nc", options=options)
    regret = result["regret"].to_numpy()
    assert regret.shape == (2, 2, 5) and np.all(np.diff(regret) >= -1e-4) and len(figure.axes) == 1
    assert "psrl: total regret" in capsys.readouterr().out
    assert json.loads(result.attrs["configuration"])["options"]["room_size"] == 1


def made_up(values):
    """A Dataset of DeepSea times: {method: times at L = 10}."""
    time = np.array(list(values.values()), float)[:, None]
    episodes = np.full((len(values), 1), 200)
    by = ("agent", "depth", "seed")
    variables = {"time": (by, time), "misses": (by, time), "episodes": (by[:2], episodes)}
    return xr.Dataset(variables, coords={"agent": list(values), "depth": [10]})


def test_the_table_of_times():
    """Bands of a factor of 2 around what is published; ratios of means; an unsolved rival is infinitely slower."""
    nan = float("nan")
    times = {"psrl": [70, 80], "exact": [30, 40], "bound": [60, 80], "ensemble": [60, nan]}
    table = {row.quantity: row for row in deep_sea_times.rows(made_up(times))}
    assert (table["exact, L = 10"].ours, table["exact, L = 10"].band) == (35.0, (16.5, 66.0))
    assert table["psrl, L = 10"].verdict == table["exact, L = 10"].verdict == "agrees"
    ratio = table["bound / exact, L = 10: episodes"]
    assert ratio.ours == 2.0 and ratio.half == pytest.approx(0.0, abs=1e-9) and ratio.verdict == "agrees"
    assert table["ensemble / exact, L = 10: episodes"].ours == INFINITE
    assert table["ensemble, L = 10"].verdict is None
    slow = {row.quantity: row for row in deep_sea_times.rows(made_up({"exact": [90, 92], "bound": [45, 46]}))}
    assert {row.verdict for row in slow.values()} == {None, "differs"}


def test_the_table_of_regrets():
    """Total regret, late reward, ratios of paired seeds."""
    regret = np.cumsum(np.broadcast_to([[[2.0]], [[1.0]]], (2, 3, 20)), -1) * np.array([1.0, 2.0, 3.0])[:, None]
    reward = np.arange(20.0) * np.ones((2, 3, 1))
    coords = {"agent": ["bound", "exact"], "seed": [0, 1, 2], "episode": np.arange(1, 21)}
    by = tuple(coords)
    result = xr.Dataset({"regret": (by, regret), "reward": (by, reward)}, coords=coords)
    table = {row.quantity: row for row in seven_rooms_regret.rows(result)}
    assert table["bound: total regret"].ours == 80.0 and table["exact: total regret"].ours == 40.0
    assert table["exact: reward of a late episode"].ours == 18.5
    ratio = table["bound / exact: total regret"]
    assert ratio.ours == 2.0 and ratio.half == pytest.approx(0.0, abs=1e-9) and ratio.verdict == "agrees"
    assert len(seven_rooms_regret.figure(result).axes) == 1
    renamed = result.assign_coords(agent=["psrl", "exact"])
    assert seven_rooms_regret.rows(renamed)[-1].verdict is None


def test_an_unknown_method_is_refused(key):
    with pytest.raises(ValueError, match="method is 'exakt', expected one of"):
        deep_sea_times.deep_sea_times(key=key, plan={"exakt": {10: 5}})
    with pytest.raises(ValueError, match="episodes is 0, expected an integer of at least 1"):
        deep_sea_times.deep_sea_times(key=key, plan={"exact": {10: 0}})
    with pytest.raises(ValueError, match="agent is 'exakt', expected one of"):
        seven_rooms_regret.seven_rooms_regret(key=key, agents=("exakt",))
