"""Frontiers against a convex hull by brute force, curves against loops over draws."""

import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.strategies import StrategyDraws


def draws_of(cost, effect, names=None):
    values = np.stack([np.atleast_2d(cost), np.atleast_2d(effect)], axis=-1)
    names = tuple(f"s{i}" for i in range(values.shape[1])) if names is None else names
    return StrategyDraws(names, ("cost", "effect"), values)


def on_hull(cost, effect):
    """Strategies that are best at some willingness to pay of a fine grid of slopes between all pairs."""
    slopes = [(cost[i] - cost[j]) / (effect[i] - effect[j]) for i in range(len(cost)) for j in range(i)]
    slopes = np.sort([s for s in slopes if s > 0])
    edges = np.concatenate([[0.0], slopes, [2 * slopes[-1] if len(slopes) else 1.0]])
    grid = (edges[:-1] + edges[1:]) / 2
    return {int(np.argmax(k * effect - cost)) for k in grid}


@pytest.mark.parametrize("seed", range(100))
def test_the_frontier_is_what_some_willingness_to_pay_chooses(seed):
    rng = np.random.default_rng(seed)
    cost, effect = rng.normal(size=(2, rng.integers(1, 8)))
    table = bm.strategies.cost_effectiveness(draws_of(cost, effect)).table
    frontier = {int(str(name)[1:]) for name in table["strategy"].values[table["status"].values == "frontier"]}
    assert frontier == on_hull(cost, effect)
    ratios = table["icer"].values[np.isfinite(table["icer"].values)]
    assert np.all(np.diff(ratios) > 0) and np.all(ratios > 0) and len(ratios) == len(frontier) - 1


def test_dominance_has_two_kinds():
    found = bm.strategies.cost_effectiveness(
        draws_of([0, 10, 5, 20], [0, 1, 0.1, 0.9], ("none", "good", "between", "worse"))
    )
    status = dict(zip(found.table["strategy"].values, found.table["status"].values, strict=True))
    assert status == {
        "none": "frontier",
        "between": "extendedly dominated",
        "good": "frontier",
        "worse": "dominated",
    }
    assert found.icer("good") == 10 and np.isnan(found.icer("worse"))
    assert "extendedly dominated" in str(found) and "10.00" in str(found)


def test_the_same_twice():
    found = bm.strategies.cost_effectiveness(draws_of([1.0, 1.0, 3.0], [2.0, 2.0, 3.0])).table
    assert list(found["status"].values) == ["frontier"] * 3
    assert found["icer"].values[2] == 2


def test_curves():
    rng = np.random.default_rng(0)
    draws = draws_of(rng.normal(size=(500, 3)), rng.normal(size=(500, 3)))
    table = bm.strategies.acceptability(draws, [0.0, 1.0, 5.0])
    np.testing.assert_allclose(table["prob_best"].sum("strategy"), 1)
    for k in (0.0, 1.0, 5.0):
        at = table.sel(wtp=k)
        benefit = k * draws.outcome("effect") - draws.outcome("cost")
        best = int(np.argmax(benefit.mean(0)))
        shares = np.bincount(benefit.argmax(1), minlength=3) / 500
        np.testing.assert_allclose(at["prob_best"], shares)
        np.testing.assert_allclose(at["expected_loss"], (benefit.max(1, keepdims=True) - benefit).mean(0))
        assert str(at["best"].values) == f"s{best}" and float(at["frontier"]) == shares[best]
        # The least expected loss is the expected value of perfect information.
        assert float(at["evpi"]) == pytest.approx(float(at["expected_loss"].min()))


def test_ties_share_a_draw():
    table = bm.strategies.acceptability(draws_of([[1.0, 1.0, 2.0]], [[1.0, 1.0, 1.0]]), 3.0)
    np.testing.assert_allclose(table["prob_best"], [[0.5, 0.5, 0]])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda d: bm.strategies.acceptability(d, []), "wtp is empty"),
        (lambda d: bm.strategies.acceptability(d, [1.0, -2.0]), r"wtp\[1\] is -2.0"),
        (lambda d: d.net_benefit(), "wtp is None, expected the willingness to pay"),
        (lambda d: d.outcome("effects"), "outcome is 'effects', expected one of cost, effect; did you mean 'effect'"),
        (
            lambda d: StrategyDraws(("a",), ("value",), np.ones((4, 1, 1))).net_benefit(3.0),
            "wtp is 3.0 without",
        ),
        (
            lambda d: StrategyDraws(("a",), ("x", "y"), np.ones((4, 1, 2))).net_benefit(3.0),
            "expected 'cost' and 'effect'",
        ),
        (lambda d: StrategyDraws(("a", "a"), ("value",), np.ones((4, 2, 1))), "'a' again"),
        (lambda d: StrategyDraws(("a",), ("value",), np.full((4, 1, 1), np.nan)), r"values\[0, 0, 0\] is nan"),
        (lambda d: StrategyDraws(("a",), ("value",), np.ones((4, 2, 1))), "values has shape"),
        (lambda d: StrategyDraws(("a",), ("value",), np.ones((4, 1, 1)), {"x": np.ones(3)}), "expected 4 draws"),
        (lambda d: StrategyDraws(("a",), ("value",), np.ones((0, 1, 1))), "no draws"),
    ],
)
def test_wrong_input(call, says):
    with pytest.raises(ValueError, match=says):
        call(draws_of([1.0, 2.0], [1.0, 2.0]))


def test_as_a_dataset():
    draws = StrategyDraws(
        ("a", "b"), ("cost", "effect"), np.ones((4, 2, 2)), {"cost": np.ones(4), "x": np.ones((4, 3))}
    )
    table = draws.to_dataset()
    assert table["cost"].dims == ("draw", "strategy") and table["x"].dims == ("draw", "x_dim_0")
    assert table["site_cost"].dims == ("draw",)
