"""The comparison on WideNarrow: the same worlds for all agents, the table, the figure."""

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr

from bayes_mdp.agents import EpsilonGreedyQ
from reproductions.bmrl import joint_sampling as paper
from reproductions.reproduce import reproduce

EXACT = {"gain": ("width", [paper.GAIN] * 2), "value": (("width", "state"), [paper.VALUE] * 2)}
NAMES = [f"{way}, {kind}" for way in paper.BANDS for kind in ("factored", "joint")]


@pytest.fixture
def result():
    """Regret of two widths and 40 seeds, factored three times (W = 4: twice) the joint one on average."""
    regret = np.random.default_rng(0).normal(30.0, 6.0, (4, 2, 40))
    regret[::2] *= np.array([3.0, 2.0])[:, None]
    coords = {"agent": NAMES, "width": [3, 4], "seed": np.arange(40)}
    return xr.Dataset({"regret": (("agent", "width", "seed"), regret), **EXACT}, coords=coords)


def test_agents_meet_the_same_worlds(key):
    """Two names of one agent get the same regret; gain and values are those of the specification."""
    agent = EpsilonGreedyQ(0.5, 0.3, replan=3)
    agents = dict.fromkeys(["one", "again"], agent)
    found = paper.joint_against_factored(key=key, num_seeds=3, widths=(3,), agents=agents, steps_per_action=10)
    assert found["regret"].dims == ("agent", "width", "seed") and found["regret"].shape == (2, 1, 3)
    assert np.array_equal(found["regret"].sel(agent="one"), found["regret"].sel(agent="again"))
    assert found["regret"].values.std() > 0
    np.testing.assert_allclose(found["gain"], [1 / 6])
    np.testing.assert_allclose(found["value"], [paper.VALUE], atol=1e-6)


def test_the_table_has_the_least_ratio_of_every_way(result):
    """Intervals: relative variances of both means add (independent here), 40 seeds, 3 widths of the least."""
    table = {row.quantity: row for row in paper.rows(result)}
    regret = result["regret"].values
    ratio = regret[2, :, :].mean(-1) / regret[3].mean(-1)
    for width, expected in zip((3, 4), ratio, strict=True):
        row = table[f"draws: factored / joint, W = {width}"]
        assert row.ours == pytest.approx(expected) and row.verdict is None and row.published is None
    least = table["draws: factored / joint, the least"]
    assert least.ours == pytest.approx(ratio.min()) and least.verdict == "agrees"
    parts = [regret[i, 1].std(ddof=1) / regret[i, 1].mean() / np.sqrt(40) for i in (2, 3)]
    assert least.half == pytest.approx(1.96 * ratio.min() * np.hypot(*parts), rel=0.3)
    assert [table[f"V*, state {s}"].verdict for s in range(3)] == ["agrees"] * 3
    swapped = result.assign_coords(agent=[NAMES[i] for i in (1, 0, 3, 2)])
    assert paper.rows(swapped)[-1].verdict == "differs"


def test_one_seed_has_no_interval(result):
    assert paper.rows(result.isel(seed=[0]))[-1].half == np.inf


def test_the_figure_shows_every_agent(result):
    axes = paper.figure(result).axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == NAMES  # pyright: ignore[reportOptionalMemberAccess]
    assert len(axes.containers) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_seeds": 0}, "num_seeds is 0, expected an integer of at least 1"),
        ({"steps_per_action": 0}, "steps_per_action is 0, expected"),
        ({"widths": (1,)}, "width is 1, expected an integer of at least 2"),
    ],
)
def test_bad_settings_are_refused(change, message, key):
    arguments: dict[str, Any] = {"key": key, **change}
    with pytest.raises(ValueError, match=message):
        paper.joint_against_factored(**arguments)


@pytest.mark.slow
def test_wide_narrow_has_its_verdicts():
    found, _ = reproduce("wide-narrow")
    assert json.loads(found.attrs["unexpected"]) == []
