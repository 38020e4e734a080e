"""The summaries of regret of [BMRL19]: settings, normalisation, the table, the laws of Q that are kept, the figure."""

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr

import bayes_mdp as bm
from bayes_mdp.agents import EpsilonGreedyQ
from bayes_mdp.envs.papers.chain_mdps import wide_narrow
from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.mdp import Discounted
from reproductions.bmrl import published_regret as published
from reproductions.bmrl import regret_summaries
from reproductions.bmrl import summary_runs as bmrl
from reproductions.bmrl.summary_tables import Table, band_of, draw_summary, summary_rows
from reproductions.reproduce import reproduce
from reproductions.verdicts import expected_verdicts

pytestmark = pytest.mark.numerics

EXPERIMENTS = {
    "bmrl-deepsea": (regret_summaries.DEEP_SEA, published.DEEP_SEA, "n_states"),
    "bmrl-widenarrow": (regret_summaries.WIDE_NARROW, published.WIDE_NARROW, "width"),
    "bmrl-priormdp": (regret_summaries.PRIOR_MDP, published.PRIOR_MDP, "env_seed"),
}


def made_up(table, size_name, sizes, *, shift=0.0):
    """A Dataset of the quick methods whose means are the published ones, moved by `shift`; standard deviation .001."""
    noise = 0.001 * np.tile([-1.0, 1.0], 5)
    regret = [[table[bmrl.METHODS[name].beside][size][0] + shift + noise for size in sizes] for name in bmrl.QUICK]
    coords = {"agent": list(bmrl.QUICK), size_name: list(sizes), "seed": np.arange(10)}
    return xr.Dataset({"regret": (("agent", size_name, "seed"), np.array(regret))}, coords=coords)


def test_the_narrowed_space_is_that_of_a_narrower_environment():
    space, narrow = regret_summaries.narrowed(4, 6), wide_narrow(4).mdp
    legal = np.asarray(space.legal)
    assert np.array_equal(legal[:, :4], np.asarray(narrow.legal)) and not legal[:, 4:].any()
    wide = wide_narrow(6)
    for field in ("transition_probs", "reward"):
        assert np.array_equal(np.asarray(getattr(wide.mdp, field))[:, :4], np.asarray(getattr(narrow, field)))
    law: Any = wide.reward_law
    assert np.array_equal(np.asarray(law.scale)[:, :4], np.asarray(wide_narrow(4).reward_law.scale))  # pyright: ignore[reportAttributeAccessIssue]


def test_the_settings_of_the_published_code():
    """The largest true mean reward, 1 and .5, over 1 - .9; plans as often as there."""
    deep = bmrl.Task(bm.envs.deep_sea_continuing(4, noise="delta"), bm.StateActionSpace(4, 2), 5, 5000)
    assert deep.q_max == pytest.approx(10.0)
    wide = bmrl.Task(wide_narrow(6), regret_summaries.narrowed(6, 6), 3, 6000)
    assert wide.q_max == pytest.approx(5.0)
    ube, mm = bmrl.METHODS["ube_error"].agent(deep), bmrl.METHODS["mm"].agent(deep)
    assert (ube.scale, ube.noise, ube.form, ube.replan.period) == (0.1, "per_step", "ratio", 5)
    assert (mm.scale, mm.noise, mm.replan.period) == (pytest.approx(1 / 0.9), "per_step", 5)
    assert [bmrl.METHODS[name].agent(deep).noise for name in ("ube_held", "mm_held")] == ["per_plan", "per_plan"]
    assert all({*table} == {method.beside for method in bmrl.METHODS.values()} for _, table, _ in EXPERIMENTS.values())


@pytest.mark.slow
def test_regret_is_that_of_an_oracle_run_over_its_reward(key):
    """The same numbers as `run`, and what is believed of Q at first: the table of zeros, the prior of BQL."""
    sizes = {"key": key, "sizes": (4,), "methods": ("q_learning", "bql"), "num_seeds": 2, "steps_per_state": 25}
    found = regret_summaries.regret_in_deep_sea(**sizes)
    env = bm.envs.deep_sea_continuing(4, noise="delta")
    agent = EpsilonGreedyQ(0.1, 0.5)
    options = {"objective": Discounted(0.9), "key": key, "num_steps": 100, "num_seeds": 2}
    whole = bm.run(agent, env, options=RunOptions(num_checkpoints=20, regret="oracle_run"), **options)
    reward, regret = whole["reward"].to_numpy().sum(1), whole["regret"].to_numpy()[:, -1]
    ours = found.sel(agent="q_learning", n_states=4)
    np.testing.assert_allclose(ours["agent_reward"], reward, rtol=1e-5)
    np.testing.assert_allclose(ours["regret"], regret / (regret + reward), rtol=1e-4)
    assert found["time"].to_numpy().tolist() == list(range(0, 101, 5))
    assert found["q_mean"].shape == found["q_sd"].shape == (2, 21, 4, 2)
    first = found.isel(time=0)
    assert not first["q_mean"].to_numpy().any() and np.isnan(found["q_sd"].sel(agent="q_learning")).all()
    np.testing.assert_allclose(first["q_sd"].sel(agent="bql"), np.sqrt(3 / (4 * 2)), rtol=1e-5)
    assert found["q_mean"].isel(time=-1).to_numpy().any(axis=(1, 2)).all()
    np.testing.assert_allclose(found["q_optimal"].max("action")[0], 0.809073, atol=1e-5)
    drawing = draw_summary(found, Table(published.DEEP_SEA, "n_states", "N", (4,), "N"), [(0, 0), (3, 1)])
    assert sum(len(part.axes) for part in drawing.subfigs) == 2 + 2


def test_a_band_is_the_interval_of_a_difference():
    """Published .2 with sd .03, ours with sd .04, 10 seeds each: 2.576 * .05 / sqrt(10) + .005."""
    samples = 0.04 * np.sqrt(0.9) * np.tile([-1.0, 1.0], 5)
    low, high = band_of((0.2, 0.03), samples)
    assert high - 0.2 == pytest.approx(0.2 - low) == pytest.approx(2.5758 * 0.05 / np.sqrt(10) + 0.005, rel=1e-3)


def test_the_table_counts_what_agrees():
    """Published values agree; moved by .3 they differ; sizes that were not played leave the count open."""
    table, deep_sea_rows = published.DEEP_SEA, regret_summaries.DEEP_SEA.rows
    rows = {row.quantity: row for row in deep_sea_rows(made_up(table, "n_states", table["bql"]))}
    assert {row.verdict for row in rows.values() if row.band is not None} == {"agrees"}
    assert rows["BQL, N = 8"].band is None and rows["BQL, N = 8"].published == 0.281
    assert rows["PSRL: sizes that agree"].ours == 5.0 and rows["PSRL: sizes that agree"].half == 0.0
    assert rows["MM: added by the error, N = 4"].ours == 0.0
    moved = {row.quantity: row for row in deep_sea_rows(made_up(table, "n_states", table["bql"], shift=0.3))}
    assert {row.verdict for row in moved.values() if row.band is not None} == {"differs"}
    quick = {row.quantity: row for row in deep_sea_rows(made_up(table, "n_states", (4,)))}
    count = quick["UBE: sizes that agree"]
    assert (count.ours, count.half, count.verdict) == (3.0, 2.0, "undecided")
    lost = {row.quantity: row for row in deep_sea_rows(made_up(table, "n_states", (4,), shift=0.3))}
    assert lost["UBE: sizes that agree"].verdict == "differs"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_both_scales_have_the_rows_whose_verdicts_are_expected(name):
    experiment, table, size_name = EXPERIMENTS[name]
    quick = experiment.quick.get("sizes", tuple(table["bql"]))
    for sizes in (quick, tuple(table["bql"])):
        rows = experiment.rows(made_up(table, size_name, sizes))
        assert {row.quantity for row in rows if row.band is not None} == {*expected_verdicts(name)}


def test_one_seed_has_no_interval():
    result = made_up(published.WIDE_NARROW, "width", (6,)).isel(seed=[0])
    rows = summary_rows(result, Table(published.WIDE_NARROW, "width", "W", (6,), "W"))
    assert rows[0].half == np.inf and rows[0].verdict == "agrees"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_seeds": 0}, "num_seeds is 0, expected an integer of at least 1"),
        ({"methods": ("sarsa",)}, "method is 'sarsa', expected one of"),
        ({"widths": (1,)}, "width is 1, expected an integer of at least 2"),
        ({"steps_per_action": 0}, "steps_per_action is 0, expected"),
    ],
)
def test_bad_settings_are_refused(change, message, key):
    arguments: dict[str, Any] = {"key": key, **change}
    with pytest.raises(ValueError, match=message):
        regret_summaries.regret_in_wide_narrow(**arguments)


@pytest.mark.slow
def test_the_error_changes_nothing_in_wide_narrow(key):
    """A batch holds no reward twice: the same regret to the bit; in PriorMDP another one."""
    methods = ("psrl", "psrl_error", "mm", "mm_error")
    wide = regret_summaries.regret_in_wide_narrow(
        key=key, widths=(3, 4), methods=methods, num_seeds=3, steps_per_action=20
    )
    prior = regret_summaries.regret_in_prior_mdp(
        key=key, env_seeds=(0, 1), methods=methods, num_seeds=3, steps_per_state=50
    )
    for name in ("psrl", "mm"):
        same, other = (x["regret"].sel(agent=name) - x["regret"].sel(agent=f"{name}_error") for x in (wide, prior))
        assert not same.to_numpy().any() and other.to_numpy().any()
    assert (prior["q_sd"].isel(time=0) > 0).all() and np.isfinite(prior["q_mean"]).all()
    assert len(regret_summaries.WIDE_NARROW.figure(wide).axes) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_bmrl_has_its_verdicts(name):
    found, _ = reproduce(name)
    assert json.loads(found.attrs["unexpected"]) == []
