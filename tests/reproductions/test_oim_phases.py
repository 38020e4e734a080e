"""[OIM08] tables 4 to 6: what the methods are, phases of a run, bands, the table, the figure, ties at random."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import bayes_mdp as bm
from bayes_mdp.agents import OIM, AnnealedQ, BayesianDP, BoltzmannQ, EpsilonGreedyQ
from bayes_mdp.agents.model_based.empirical_planning import ExactPlanner, PrioritizedSweeping
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.mdp import Discounted, Problem, StateActionSpace, Transitions
from reproductions.oim import phase_tables
from reproductions.oim import phases as oim_phases
from reproductions.oim.phase_methods import GRIDS, METHODS, TUNING_KEY, Scales, build
from reproductions.oim.phases import OBJECTIVE, PHASES, band_of, phase_rows, play, rewards
from reproductions.oim.random_ties import RandomTies
from reproductions.reproduce import reproduce
from reproductions.reproduction import Reproduction
from reproductions.verdicts import expected_verdicts

pytestmark = pytest.mark.numerics


class Table(NamedTuple):
    """A table: where, the constants of its methods, the experiment."""

    task: oim_phases.Task
    constants: Mapping[str, Mapping[str, Any]]
    reproduction: Reproduction


CHAIN = Table(phase_tables.CHAIN, phase_tables.CHAIN_CONSTANTS, phase_tables.TABLE4)
LOOP = Table(phase_tables.LOOP, phase_tables.LOOP_CONSTANTS, phase_tables.TABLE5)
FLAG_MAZE = Table(phase_tables.FLAG_MAZE, phase_tables.FLAG_MAZE_CONSTANTS, phase_tables.TABLE6)
TABLES = {"oim-table4": CHAIN, "oim-table5": LOOP, "oim-table6": FLAG_MAZE}
SCALES = Scales(reward=2.0, value=10.0, phase=50)


def made_up(table: Table, *, shift: float = 0.0, runs: int = 20) -> xr.Dataset:
    """A Dataset whose means are the published ones (500 where nothing is), moved by `shift`; standard deviation 10."""
    noise = 10.0 * np.sqrt((runs - 1) / runs) * np.resize([-1.0, 1.0], runs)
    found = {}
    for name in table.constants:
        printed = table.task.published[METHODS[name].row]
        mean = np.array([printed.get(phase, 500.0) for phase in range(1, PHASES + 1)])
        found[name] = mean + shift + noise[:, None]
    return oim_phases._dataset(table.task, table.constants, found)


@pytest.mark.parametrize("name", TABLES)
def test_every_method_has_constants_that_were_tried(name):
    """Tuned and nearest ones come from the grids; the printed R_max and the largest optimal value are given."""
    module = TABLES[name]
    rows = {METHODS[method].row for method in module.constants}
    assert rows == {*module.task.published} and TUNING_KEY != 0
    by_hand = [("oim-table6", "bayesian_dp")]
    for method, (constants, discount) in {m: _without_discount(c) for m, c in module.constants.items()}.items():
        assert discount in module.task.discounts or (name, method) in by_hand
        if METHODS[method].choice == "given":
            assert constants == ({"v_max": 1.0} if method == "oim_optimistic" else constants)
        elif (name, method) not in by_hand:
            assert constants in GRIDS[METHODS[method].kind]
    printed = {"oim-table4": 0.5, "oim-table5": 10.0, "oim-table6": 0.005}
    assert module.constants["oim_literal"] == {"r_max": printed[name]}


def _without_discount(constants):
    return {name: x for name, x in constants.items() if name != "discount"}, constants.get("discount", 0.95)


def test_a_discount_among_the_constants_is_planned_with(key):
    """It counts in the unit of values too: in Loop, 2 at once and 2 every five steps."""
    task = replace(LOOP.task, phase_steps=50)
    assert task.scales_at(0.5).value == pytest.approx(2 / (1 - 0.5**5), rel=1e-5)
    greedy = {"initial_q": 1.0, "learning_rate": 1.0, "epsilon": 0.1, "half_life": 1.0}
    far, near = (rewards(task, ("epsilon_greedy", c), key, 20, 2).sum() for c in (greedy, {**greedy, "discount": 0.1}))
    assert far != near


def test_constants_are_in_the_units_of_the_task():
    """2 is the largest reward, 10 the largest optimal value, 50 the steps of a phase."""
    first = {kind: build(kind, grid[0], SCALES)[0] for kind, grid in GRIDS.items()}
    epsilon, boltzmann, bql = (first[kind].agent for kind in ("epsilon_greedy", "boltzmann", "bql"))
    assert isinstance(epsilon, AnnealedQ) and isinstance(boltzmann, BoltzmannQ)
    assert boltzmann.temperature == 0.02 * 2.0
    optimistic, _ = build("epsilon_greedy", {**GRIDS["epsilon_greedy"][0], "initial_q": 1.0, "half_life": 0.5}, SCALES)
    assert (optimistic.agent.initial_q, optimistic.agent.half_life) == (10.0, 25.0)
    assert (bql.loc, bql.rate) == (0.0, 4.0)
    agent, prior = build("bayesian_dp", {"every": 0.1, "loc": 0.5, "rate": 0.1}, SCALES)
    assert isinstance(agent, BayesianDP) and prior is not None and agent.replan.period == 5  # pyright: ignore
    tuned, literal = (build("oim", c, SCALES)[0].agent for c in ({"v_max": 0.7}, {"r_max": 0.5}))
    assert isinstance(tuned, OIM) and isinstance(tuned.planner, ExactPlanner)
    assert (tuned.v_max, literal.v_max) == (7.0, pytest.approx(0.5 / (1 - 0.95)))
    swept = build("oim", {"v_max": 0.7}, replace(SCALES, sweeping=True))[0].agent
    assert isinstance(swept.planner, PrioritizedSweeping)


def test_the_tasks_are_those_of_the_paper():
    """Steps of a phase, runs, the optimum; the list of successors of Chain is what happens there; V*."""
    assert [t.task.phase_steps for t in TABLES.values()] == [1000, 1000, 20_000]
    assert [t.task.published_runs for t in TABLES.values()] == [256, 256, 20]
    assert oim_phases.optimum_of(CHAIN.task) == pytest.approx(3676.8)
    assert oim_phases.optimum_of(FLAG_MAZE.task) == pytest.approx(1884.4, abs=0.05)
    chain, loop = CHAIN.task, LOOP.task
    assert chain.scales.value == pytest.approx(83.59, abs=0.01) and loop.scales.value == pytest.approx(8.84, abs=0.01)
    assert np.asarray(chain.given.support).sum(-1).tolist() == [[2, 2]] * 5
    assert np.asarray(loop.given.support).sum(-1).tolist() == [[1, 1]] * 9
    assert np.asarray(FLAG_MAZE.task.given.support).sum(-1).max() == 3


def test_rewards_are_those_of_a_run_and_cells_are_kept(key, tmp_path, monkeypatch):
    """Eight phases of five steps of Boltzmann Q-learning; what is kept is not played again."""
    task = replace(CHAIN.task, phase_steps=5)
    constants: Mapping[str, Any] = {"boltzmann": {"learning_rate": 0.1, "temperature": 0.1}}
    options: dict[str, Any] = {"key": key, "num_runs": 3, "methods": ("boltzmann",)}
    found = play(task=task, constants=constants, cells=Cells(tmp_path / "cells", {}), **options)
    agent = RandomTies(BoltzmannQ(1.0, 0.1))
    alone = bm.run(
        agent, task.env, objective=OBJECTIVE, num_steps=40, num_seeds=3, key=key, options=RunOptions(num_checkpoints=8)
    )
    assert found["reward"].dims == ("method", "run", "phase") and found["phase"].to_numpy().tolist() == [*range(1, 9)]
    np.testing.assert_array_equal(found["reward"][0], alone["reward"])
    assert (
        found["published"][0].to_numpy()[:2].tolist() == [1606.0, 1623.0] and np.isnan(found["published"][0, 2:]).all()
    )
    assert found["constants"].item() == "learning_rate=0.1, temperature=0.1"
    assert float(found["optimum"]) == pytest.approx(3.6768 * 5)
    monkeypatch.setattr(oim_phases, "run", None)
    again = play(task=task, constants=constants, cells=Cells(tmp_path / "cells", {}), **options)
    xr.testing.assert_identical(again, found)


def test_a_band_is_the_interval_of_a_difference():
    """Standard deviation 8, 64 runs: 2.6561 * 8 * sqrt(1 / 256 + 1 / 64) + .5 on both sides; one run has no band."""
    samples = 8.0 * np.sqrt(63 / 64) * np.resize([-1.0, 1.0], 64)
    band = band_of(400.0, 256, samples)
    assert band is not None
    half = 2.656145 * 8.0 * np.sqrt(1 / 256 + 1 / 64) + 0.5
    assert band == pytest.approx((400.0 - half, 400.0 + half), rel=1e-7)
    assert band_of(400.0, 256, samples[:1]) is None


@pytest.mark.parametrize("name", TABLES)
def test_the_table_judges_what_is_known(name):
    """Published values agree; moved by 100 they differ; OIM as printed and what was reconstructed have no verdict."""
    module = TABLES[name]
    table = phase_rows(made_up(module), module.task)
    assert table[0].quantity == "optimal policy" and table[0].verdict == "agrees"
    assert {row.quantity for row in table if row.verdict} == {*expected_verdicts(name)}
    judged = [row for row in table[1:] if row.verdict]
    assert {row.verdict for row in judged} == {"agrees"} and all(
        row.published == pytest.approx(row.ours) for row in judged
    )
    moved = phase_rows(made_up(module, shift=100.0), module.task)
    assert {row.verdict for row in moved[1:] if row.verdict} == {"differs"}
    words = ("bonus", "IEQL+", "Bayesian DP", "printed R_max", "optimistic")
    assert not [row for row in judged if any(word in row.quantity for word in words)]
    shown = {row.quantity for row in table}
    assert "OIM, printed R_max, phase 8" in shown and "OIM, phase 3" not in shown
    assert ("QL + variance bonus, phase 5" in shown) == (name != "oim-table6")


def test_one_run_has_no_interval():
    table = phase_rows(made_up(LOOP, runs=1), LOOP.task)
    assert all(row.half == np.inf and row.verdict is None for row in table[1:])


def test_the_figure_has_a_panel_for_every_method():
    drawing = CHAIN.reproduction.figure(made_up(CHAIN))
    titles = [panel.get_title() for panel in drawing.axes if panel.get_title()]
    assert titles == [METHODS[name].label for name in CHAIN.constants]


def test_tuning_takes_the_middle_of_the_best_and_the_nearest(monkeypatch, capsys):
    """Three settings are equal within .1 %, the first is nearest to the paper; nothing is as near as an equal one."""
    level = dict(zip((0.2, 0.4, 0.5, 0.6, 0.7), (393.0, 200.0, 500.0, 499.9, 500.1), strict=True))
    monkeypatch.setitem(GRIDS, "oim", tuple({"v_max": v} for v in level))
    monkeypatch.setattr(
        oim_phases,
        "rewards",
        lambda task, settings, key, runs, phases: np.full((runs, phases), level[settings[1]["v_max"]]),
    )
    assert oim_phases.tune(LOOP.task, ("oim",)) == {
        "oim": {"v_max": 0.6},
        "oim_nearest": {"v_max": 0.2},
    }
    assert "oim {'v_max': 0.4}: 0.500" in capsys.readouterr().out
    level.update({0.6: 393.0, 0.5: 393.0, 0.7: 393.0})
    assert oim_phases.tune(LOOP.task, ("oim",))["oim_nearest"] == {"v_max": 0.6}  # that of "tuned"


def test_ties_are_broken_at_random():
    """A greedy table of zeros takes each of two actions in about half of the states (400 of them; 6 sd: 2e-9)."""
    agent, problem = RandomTies(EpsilonGreedyQ(0.5, 0.0)), Problem(StateActionSpace(400, 2), Discounted(0.9))
    state = agent.init(jax.random.key(0), problem)
    policy, _ = agent.plan(jax.random.key(1), problem, state)
    taken = jax.vmap(lambda s: policy.act(jax.random.key(2), s))(jnp.arange(400))
    assert abs(int(taken.sum()) - 200) < 6 * 10
    np.testing.assert_array_equal(jax.vmap(policy.log_prob)(jnp.arange(400), taken), np.zeros(400))
    assert sorted(np.unique(state.order[:, 0] + state.order[:, 1])) == [1]


def test_a_shuffled_learner_learns_of_the_action_that_it_took():
    """After a reward the action that earned it is taken, whatever its number is to the learner; weight 0: no change."""
    agent, problem = RandomTies(EpsilonGreedyQ(0.5, 0.0)), Problem(StateActionSpace(2, 3), Discounted(0.9))
    before = agent.init(jax.random.key(3), problem)
    for action in range(3):
        seen = Transitions(0, action, 1.0, 1, False, None, 0)
        masked = agent.observe(problem, before, seen, 0.0)
        np.testing.assert_array_equal(masked.inner, before.inner)
        policy, _ = agent.plan(jax.random.key(0), problem, agent.observe(problem, before, seen))
        assert int(policy.act(jax.random.key(0), 0)) == action


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_runs": 0}, "num_runs is 0, expected an integer of at least 1"),
        ({"methods": ("sarsa",)}, "method is 'sarsa', expected one of"),
    ],
)
def test_bad_settings_are_refused(change, message, key):
    with pytest.raises(ValueError, match=message):
        CHAIN.reproduction.run(key=key, **change)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_oim_has_its_verdicts(name):
    found, _ = reproduce(name)
    assert json.loads(found.attrs["unexpected"]) == []
