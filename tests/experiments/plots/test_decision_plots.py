"""Figures of strategies: what is drawn, by the artists' own data."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from matplotlib import pyplot

import bayes_mdp as bm
from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import PolicyValue
from bayes_mdp.decisions.verdict import Verdict
from bayes_mdp.recommend.page import NO_WORSE, OPEN, WORSE
from bayes_mdp.strategies import StrategyDraws, trace_dataset
from tests.utils.test_axis_labels import overlaps


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


@pytest.fixture
def draws():
    values = np.random.default_rng(0).normal(size=(50, 3, 2))
    return StrategyDraws(("a", "b", "c"), ("cost", "effect"), values)


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_plane(draws):
    axes = bm.plots.plot_cost_effectiveness(draws, reference="b", wtp=2.0).axes[0]
    assert legend(axes) == ["a", "c", "willingness to pay 2"]
    cloud, mean = axes.collections[:2]
    points = draws.values[:, 0] - draws.values[:, 1]
    np.testing.assert_allclose(np.asarray(cloud.get_offsets()), points[:, ::-1])
    np.testing.assert_allclose(np.asarray(mean.get_offsets()), points[:, ::-1].mean(0)[None])
    assert axes.get_xlabel() == "effect more than b"
    assert legend(bm.plots.plot_cost_effectiveness(draws).axes[0]) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="reference is 'd', expected one of a, b, c"):
        bm.plots.plot_cost_effectiveness(draws, reference="d")


def test_curves(draws):
    table = bm.strategies.acceptability(draws, [0.0, 1.0, 2.0])
    axes = bm.plots.plot_acceptability(table).axes[0]
    assert legend(axes) == ["a", "b", "c", "frontier"]
    np.testing.assert_allclose(np.asarray(axes.lines[1].get_ydata()), table["prob_best"].sel(strategy="b"))
    np.testing.assert_allclose(np.asarray(axes.lines[3].get_ydata()), table["frontier"])
    axes = bm.plots.plot_expected_loss(table).axes[0]
    assert legend(axes) == ["a", "b", "c", "EVPI"]
    np.testing.assert_allclose(np.asarray(axes.lines[3].get_ydata()), table["evpi"])
    with pytest.raises(ValueError, match="table has no variable 'expected_loss'"):
        bm.plots.plot_expected_loss(table.drop_vars("expected_loss"))


def test_cohort():
    trace = np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]])
    table = trace_dataset({"a": trace, "b": trace[::-1]}, ("well", "dead"))
    axes = bm.plots.plot_cohort(table).axes[0]
    assert legend(axes) == ["well", "dead", "a", "b"]
    np.testing.assert_allclose(np.asarray(axes.lines[3].get_ydata()), trace[::-1, 1])
    assert legend(bm.plots.plot_cohort(table, strategy="b").axes[0]) == ["well", "dead"]
    with pytest.raises(ValueError, match="strategy is 'c'"):
        bm.plots.plot_cohort(table, strategy="c")


def test_values_of_policies():
    rows, reward = np.full((2, 2, 2), 0.5), np.array([[0.0, 1.0], [0.0, 1.0]])
    posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), None, space=bm.StateActionSpace(2, 2))
    policies = {"first": np.array([0, 0]), "second": np.array([1, 1])}
    compared = bm.compare_policies(jax.random.key(1), posterior, policies, bm.Discounted(0.5), num_draws=64)
    true = {name: float(bm.evaluate(bm.MDP(rows, reward), x, bm.Discounted(0.5)).v[0]) for name, x in policies.items()}
    axes = bm.plots.plot_policies(compared, truth=true).axes[0]
    assert sorted(legend(axes)) == ["first", "first: true value", "second", "second: true value"]
    at = [float(np.asarray(line.get_xdata())[0]) for line in axes.lines]
    np.testing.assert_allclose(at, [compared.values["first"].mean, 0.0, compared.values["second"].mean, 2.0], atol=1e-6)
    # Every draw is in a bin: each histogram has area one.
    areas = [sum(bar.get_height() * bar.get_width() for bar in bars) for bars in axes.containers]
    np.testing.assert_allclose(areas, 1.0)
    with pytest.raises(ValueError, match="truth is 'third', expected one of"):
        bm.plots.plot_policies(compared, truth={"third": 1.0})
    with pytest.raises(ValueError, match=r"truth\['first'\] is nan"):
        bm.plots.plot_policies(compared, truth={"first": np.nan})


def comparison_of(names, objective, mean=0.0, scale=1.0):
    """Of policies whose values are normal draws."""
    rng, values = np.random.default_rng(0), {}
    for name in names:
        draws = mean + scale * rng.normal(size=200)
        interval = (float(draws.min()), float(draws.max()))
        values[name] = PolicyValue(
            draws, float(draws.mean()), 1.0, interval, 0.0, np.ones(2) / 2, False, None, objective
        )
    return PolicyComparison(values, dict.fromkeys(names, 1 / len(names)), Verdict((), ()))


def test_gains_over_a_baseline():
    """By the draws: means and quantiles of differences, the largest mean on top, and the line of no difference."""
    rng, names = np.random.default_rng(1), ["old", "worse", "better", "open"]
    compared = comparison_of(names, bm.Discounted(0.9))
    common = compared.values["old"].draws
    moved = {"old": common, "worse": common - 2, "better": common + 3 + 0.1 * rng.normal(size=200), "open": -common}
    values = {name: replace(value, draws=moved[name]) for name, value in compared.values.items()}
    compared = replace(compared, values=values)
    figure = bm.plots.plot_policies(compared, baseline="old", truth={"old": 1.0, "better": 3.5})
    axes = figure.axes[1]
    assert axes.get_xlabel() == "gain over old: discounted sum of rewards"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["worse", "open", "better"]
    at = [np.asarray(line.get_xdata(), float) for line in axes.lines]
    np.testing.assert_array_equal(at[0], [0.0, 0.0])
    for place, name in enumerate(["worse", "open", "better"]):
        gain = moved[name] - common
        np.testing.assert_allclose(at[1 + 2 * place], np.quantile(gain, [0.025, 0.975]))
        np.testing.assert_allclose(at[2 + 2 * place], [gain.mean()])
    np.testing.assert_allclose(at[7], [2.5])
    assert [axes.lines[i].get_color() for i in (1, 3, 5)] == [WORSE, OPEN, NO_WORSE]
    assert overlaps(figure) == 0 and hidden(figure.axes[0]) == 0
    both = pyplot.figure(layout="constrained").subplots(2)
    assert bm.plots.plot_policies(compared, baseline="old", axes=both) is both[0].figure and both[1].lines
    with pytest.raises(ValueError, match="baseline is 'new', expected one of"):
        bm.plots.plot_policies(compared, baseline="new")
    with pytest.raises(TypeError, match=r"axes is .*, expected two axes where a baseline is named"):
        bm.plots.plot_policies(compared, baseline="old", axes=both[0])
    with pytest.raises(ValueError, match="baseline is 'one', the only policy"):
        bm.plots.plot_policies(comparison_of(["one"], bm.Discounted(0.9)), baseline="one")


def hidden(axes):
    """How many bars of the histograms the legend lies on."""
    axes.figure.draw_without_rendering()
    box = axes.get_legend().get_window_extent()
    bars = [bar for bars in axes.containers for bar in bars if bar.get_height() > 0]
    return sum(box.overlaps(bar.get_window_extent()) for bar in bars)


@pytest.mark.parametrize("size", [(6.4, 4.0), (3.2, 3.0)])
@pytest.mark.parametrize(
    ("names", "mean", "scale"),
    [
        (["run until it fails", "service when worn"], -40_000.0, 9_000.0),
        ([f"policy with a long name, number {i}" for i in range(6)], 1e9, 1e8),
        (["one"], 0.0, 1e-7),
    ],
)
def test_legend_and_numbers_hide_nothing(size, names, mean, scale):
    axes = pyplot.figure(figsize=size, layout="constrained").subplots()
    bm.plots.plot_policies(comparison_of(names, bm.Discounted(0.9), mean, scale), axes=axes)
    assert hidden(axes) == 0 and overlaps(axes.figure) == 0
    box = axes.get_legend().get_window_extent()  # pyright: ignore[reportOptionalMemberAccess]
    assert len(legend(axes)) == len(names) and box.y1 <= axes.get_window_extent().y1
    # What the check must catch: the same legend where the axes end with the histograms.
    axes.set_ylim(0.0, axes.dataLim.y1)
    assert hidden(axes) > 0


@pytest.mark.parametrize(
    ("objective", "label"),
    [
        (bm.Discounted(0.9), "value: discounted sum of rewards"),
        (bm.Episodic(5), "value: sum of rewards of an episode"),
        (bm.Episodic(5, 0.9), "value: discounted sum of rewards of an episode"),
        (bm.AverageReward(), "reward per step"),
        (bm.FirstExit(), "value: sum of rewards until the end"),
    ],
)
def test_the_axis_says_what_a_value_is(objective, label):
    assert bm.plots.plot_policies(comparison_of(["a", "b"], objective)).axes[0].get_xlabel() == label
