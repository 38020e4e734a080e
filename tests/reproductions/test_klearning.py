"""The reproductions of [KL21]: DeepSea's facts, cells that resume, the table of figure 2, the strips."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from bayes_mdp.experiments import run
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.inference import infer
from bayes_mdp.mdp import StateActionSpace
from reproductions.klearning import deep_sea_facts, deep_sea_methods, film_strip, solve_times
from reproductions.klearning.frames import frames
from reproductions.reproduce import reproduce
from reproductions.verdicts import expected_verdicts

pytestmark = pytest.mark.numerics

TINY = {"ucb_h": {3: 300}, "ucb_h_scaled": {3: 300}, "soft_q": {}}
"""Two cells that are compiled once, and a method that is not tried."""


def test_every_method_makes_its_agent_and_every_plan_knows_its_methods():
    for method in deep_sea_methods.METHODS.values():
        assert hasattr(method.agent(7), "replan")
    assert set(solve_times.QUICK) == set(solve_times.FULL) == set(deep_sea_methods.METHODS)
    assert {*solve_times.QUICK["k_optimal_known"]} == {5, 10, 20, 50}
    assert all({*range(5, 55, 5)} <= {*budgets} for budgets in solve_times.FULL.values())


def test_the_belief_of_unknown_transitions(key):
    """Total concentration 1 over the row + 2 cells that the next layer has; mean rewards of variance 1."""
    space = StateActionSpace(4, 2, horizon=4, support=deep_sea_methods.next_layer(4))
    posterior = infer(key, deep_sea_methods.unknown_transitions(4), space=space)
    mean = np.asarray(posterior.mean_mdp().transition_probs)
    for row, cells in enumerate((2, 3, 4, 4)):
        np.testing.assert_allclose(mean[row], np.broadcast_to((np.arange(4) < cells) / cells, (4, 2, 4)), rtol=1e-6)
    np.testing.assert_allclose(posterior.reward_variance(), 1.0)


def test_the_facts_of_figure_1_agree(key):
    """At another size than the figure's."""
    result = deep_sea_facts.facts(key=key, size=5)
    table = deep_sea_facts.rows(result)
    assert {row.quantity: row.verdict for row in table} == expected_verdicts("klearning-fig1")
    assert len(deep_sea_facts.figure(result).axes) == 1


class Killed(Exception):
    """Stands for a kill signal."""


def test_solving_times_resume_from_cells(key, tmp_path, monkeypatch):
    """Killed in the second cell: the same Dataset, and nothing is computed twice."""
    options = {"key": key, "plan": TINY, "num_seeds": 2}
    whole = solve_times.solving_times(**options)
    assert whole["budget"].to_numpy().tolist() == [[300], [300], [0]]
    assert np.isnan(whole["literal"].sel(agent="soft_q")).all()
    assert (whole["played"] <= whole["budget"]).all() and np.isfinite(whole["first_visit"].to_numpy()[1]).all()
    play, names = solve_times.play_until_solved, []

    def counted(case, path):
        names.append(path.name)
        if len(names) == 2:
            raise Killed
        return play(case, path)

    monkeypatch.setattr(solve_times, "play_until_solved", counted)
    with pytest.raises(Killed):
        solve_times.solving_times(**options, cells=Cells(tmp_path / "cells", {"plan": 1}))
    resumed = solve_times.solving_times(**options, cells=Cells(tmp_path / "cells", {"plan": 1}))
    assert names == ["ucb_h-3.npz", "ucb_h_scaled-3.npz", "ucb_h_scaled-3.npz"]
    xr.testing.assert_identical(resumed, whole)
    with pytest.raises(ValueError, match="holds cells of another run: plan is 1 there and 2 here"):
        Cells(tmp_path / "cells", {"plan": 2})
    assert len(solve_times.figure(whole).axes) == 2


def test_an_unknown_method_is_refused(key):
    with pytest.raises(ValueError, match="did you mean 'soft_q'"):
        solve_times.solving_times(key=key, plan={"sofft_q": {3: 10}})


def _times(values):
    """A Dataset of figure 2: (method, depth) -> (literal times, budget)."""
    methods, depths = (sorted({cell[i] for cell in values}) for i in (0, 1))
    shape = (len(methods), len(depths))
    literal, budget = np.full((*shape, 5), np.nan), np.zeros(shape, int)
    for (method, depth), (times, most) in values.items():
        at = methods.index(method), depths.index(depth)
        literal[at], budget[at] = times, most
    cells = ("agent", "depth", "seed")
    variables = {"literal": (cells, literal), "sustained": (cells, literal + 1), "budget": (cells[:2], budget)}
    return xr.Dataset(variables, coords={"agent": methods, "depth": depths})


def test_the_table_of_figure_2():
    """Levels, the largest depth solved, the grey line, ratios: from times that were made up."""
    nan = float("nan")
    made_up = {
        ("k_optimal_known", 10): ([30, 34, 36, 40, 44], 5000),
        ("k_schedule_known", 10): ([60, 68, 72, 80, 88], 5000),
        ("k_optimal", 10): ([600, nan, nan, nan, nan], 5000),
        ("psrl", 10): ([50, 50, 60, 70, 70], 5000),
        ("rlsvi", 10): ([30, 30, 30, 30, 30], 5000),
        ("ucrl2", 5): ([nan] * 5, 3000),
        ("epsilon_greedy_q", 5): ([2000] * 5, 100_000),
        ("epsilon_greedy_q", 6): ([900] * 5, 100_000),
        ("epsilon_greedy_q", 10): ([9000, nan, 1, 2, 3], 100_000),
        ("soft_q", 5): ([1, 1, 1, 1, 1], 100_000),
        ("soft_q", 10): ([9, 9, 9, 9, 9], 100_000),
        ("soft_q", 14): ([nan] * 5, 5000),
    }
    table = {row.quantity: row for row in solve_times.rows(_times(made_up))}
    level = table["k_optimal_known, L = 10"]
    assert (level.ours, level.half, level.band, level.verdict) == (36.0, 7.0, (18.0, 72.0), "agrees")
    assert table["epsilon_greedy_q, L = 5"].verdict == "differs"
    largest = table["epsilon_greedy_q: largest L solved within 1e5"]
    assert (largest.ours, largest.half, largest.verdict) == (7.5, 1.5, "undecided")  # 6 to 9
    undecided = table["soft_q: largest L solved within 1e5"]
    assert (undecided.ours, undecided.half, undecided.verdict) == (10.0, np.inf, "undecided")
    growth = "growth of episodes per unit of L, L = 5 to 10"
    assert table[f"soft_q: {growth}"].ours == pytest.approx(9**0.2) and table[f"soft_q: {growth}"].half < 1e-9
    assert table[f"epsilon_greedy_q: {growth}"].ours == np.inf
    assert table[f"epsilon_greedy_q: {growth}"].verdict == "agrees"
    assert table["psrl: episodes over 2^(L - 1), L = 10"].ours == pytest.approx(60 / 512)
    unsolved = table["k_optimal: episodes over 2^(L - 1), L = 10"]
    assert (unsolved.ours, unsolved.half, unsolved.verdict) == (np.inf, np.inf, "differs")
    ratio = table["K-learning, known: schedule / optimal, L = 10"]
    assert ratio.ours == pytest.approx(2.0) and ratio.half < 1e-9 and ratio.verdict == "agrees"
    assert table["fastest rival / psrl, L = 10"].ours == 0.5
    assert table["fastest rival / psrl, L = 10"].verdict == "differs"
    assert table["UCRL2 / epsilon-greedy Q, L = 5"].verdict == "agrees"
    assert table["psrl, L = 10: mean"].ours == 60.0
    assert table["psrl, L = 10: mean, sustained rule"].ours == 61.0
    assert table["psrl, L = 10: mean, sustained rule"].verdict is None


@pytest.mark.slow
def test_frames_are_the_visits_of_a_run(key):
    """The same numbers as a run that ends there, and the values of the plan that follows."""
    seen = frames(deep_sea_methods.case("soft_q", 3, key, 20, 2), (5, 20))
    assert seen.hits.shape == (2, 20) and seen.visits.shape == (2, 2, 3, 3, 2)
    assert seen.visits.sum((2, 3, 4)).tolist() == [[15, 15], [60, 60]]
    assert np.array_equal(seen.visits[:, :, -1, -1, 1], [seen.hits[:, :5].sum(1), seen.hits.sum(1)])
    case = deep_sea_methods.case("soft_q", 3, key, 20, 2)
    whole = run(
        case.agent,
        case.env,
        objective=case.objective,
        key=key,
        num_episodes=20,
        num_seeds=2,
        options=replace(case.options, regret="average"),
    )
    assert np.array_equal(whole["visits"], seen.visits[1])
    with pytest.raises(ValueError, match=r"times\[1\] is 3, expected increasing numbers"):
        frames(case, (3, 3, 20))
    with pytest.raises(ValueError, match="case has 20 episodes"):
        frames(case, (3, 10))


@pytest.mark.slow
def test_the_strips_and_their_tables(key):
    """Of a toy that stands for every reading: the figure has two pictures for every time, each with a bar."""
    toy = dict.fromkeys((*film_strip.READINGS, *film_strip.SOFT_Q), "soft_q")
    result = film_strip.strips(key=key, methods=toy, size=3, times=(5, 20), num_seeds=2)
    assert result["value"].shape == (2, 2, 3, 3) and result["temperature"].to_numpy() == pytest.approx(0.05)
    assert np.all(result["value"].to_numpy()[0] > -0.5)
    first = {row.quantity: row for row in film_strip.rows(result)}
    for name in film_strip.NAMES.values():
        assert first[f"{name}visits of the goal, t = 20"].ours == result["hit"].to_numpy().sum(1).mean()
    assert len(film_strip.figure(result).axes) == 2 * 2 * 2
    second = {row.quantity: row for row in film_strip.soft_q_rows(result)}
    end = "furthest column, share of L, t = 20"
    assert second[f"no model: {end}"].ours == second[f"mean model: {end}"].ours == 1.0
    assert second[f"no model: {end}"].verdict == "differs"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["klearning-fig2", "klearning-fig3", "klearning-fig4"])
def test_klearning_has_its_verdicts(name):
    found, _ = reproduce(name)
    assert json.loads(found.attrs["unexpected"]) == []
