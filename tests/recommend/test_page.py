"""What reports are made of: every gain on its side of zero, words for who cannot see it, policies by label."""

import re
from typing import Any

import numpy as np
import pytest

from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import PolicyValue
from bayes_mdp.decisions.verdict import Verdict
from bayes_mdp.mdp import Discounted, StateActionSpace
from bayes_mdp.recommend import page
from bayes_mdp.recommend.page import NO_WORSE, OPEN, WORSE, gains_figure, gains_of, policy_table, values_figure
from tests.utils.test_axis_labels import overlaps

GAINS = {
    "better": (2.0, (1.0, 3.0)),
    "worse": (-2.0, (-3.0, -1.0)),
    "open": (0.5, (-1.0, 2.0)),
}


def colors(drawing: str) -> dict[str, int]:
    """How many lines of an interval each colour has."""
    return {name: len(re.findall(rf"stroke: {color}; stroke-width: 3", drawing)) for name, color in COLORS.items()}


COLORS = {"better": NO_WORSE, "worse": WORSE, "open": OPEN}


def test_the_forest_shows_every_gain_on_its_side_of_zero():
    drawing = gains_figure(GAINS, "gain")
    words = drawing.split(">", 1)[0]
    assert words.startswith(
        '<svg role="img" aria-label="95 % intervals of the gains over the baseline: better 1 to 3; '
    )
    assert words.index("better") < words.index("open") < words.index("worse")  # by mean
    assert colors(drawing) == {"better": 1, "worse": 1, "open": 1}
    for name, gain in GAINS.items():
        assert colors(gains_figure({name: gain}, "gain")) == {other: int(other == name) for other in GAINS}


def test_zero_is_in_the_picture_whatever_the_gain(monkeypatch):
    made = figures_made(monkeypatch)
    for low, high in ((5.0, 6.0), (-6.0, -5.0), (0.0, 0.0)):
        gains_figure({"a": ((low + high) / 2, (low, high))}, "gain")
        left, right = made[-1].axes[0].get_xlim()
        assert left <= 0 <= right


def test_gains_are_those_of_common_draws():
    """Against the draws themselves."""
    rng = np.random.default_rng(0)
    draws = {name: rng.normal(size=50) for name in ("today", "a", "b")}
    values = {
        name: PolicyValue(x, x.mean().item(), 1.0, (0.0, 1.0), 0.0, np.ones(2) / 2, False, None, Discounted(0.9))
        for name, x in draws.items()
    }
    gains = gains_of(PolicyComparison(values, {}, Verdict((), ())), "today")
    assert set(gains) == {"a", "b"}
    for name, (mean, interval) in gains.items():
        assert mean == pytest.approx((draws[name] - draws["today"]).mean())
        assert interval == pytest.approx(tuple(np.quantile(draws[name] - draws["today"], (0.025, 0.975))))


RANGES = [
    (-63_000.0, -12_000.0),
    (-60_000.0, -30_000.0),
    (-1.23e9, 1e9),
    (0.001, 0.002),
    (1e6 + 0.1, 1e6 + 0.3),
    (5.0, 5.0),
    (-1e-7, 2e-7),
]


def drawn(monkeypatch, low, high, count=2) -> Any:
    """The figure of candidates whose intervals are all the same."""
    made = figures_made(monkeypatch)
    draws = np.array([low, high])
    value = PolicyValue(draws, draws.mean().item(), 1.0, (low, high), 0.0, np.ones(2) / 2, False, None, Discounted(0.9))
    values_figure({f"candidate {i}": value for i in range(count)}, "value: mean and 95 % interval")
    return made[-1]


def figures_made(monkeypatch) -> list[Any]:
    """The figures that are made from now on."""
    made, make = [], page._figure
    monkeypatch.setattr(page, "_figure", lambda height: made.append(make(height)) or made[-1])
    return made


@pytest.mark.parametrize("width", [2.4, page.WIDTH, 8.0])
@pytest.mark.parametrize("place", RANGES)
def test_numbers_under_the_candidates_do_not_overlap(width, place, monkeypatch):
    monkeypatch.setattr(page, "WIDTH", width)
    figure = drawn(monkeypatch, *place)
    assert overlaps(figure) == 0
    labels = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert labels and len(set(labels)) == len(labels)
    low, high = figure.axes[0].get_xlim()
    assert all(low <= float(x.replace(",", "").replace("\N{MINUS SIGN}", "-")) <= high for x in labels)


def test_thousands_are_apart_and_many_candidates_have_room(monkeypatch):
    labels = [text.get_text() for text in drawn(monkeypatch, -63_000.0, -12_000.0).axes[0].get_xticklabels()]
    assert labels[0] == "\N{MINUS SIGN}60,000" and len(labels) >= 3
    assert overlaps(drawn(monkeypatch, 0.0, 1.0, count=9)) == 0


def test_numbers_as_matplotlib_places_them_do_overlap(monkeypatch):
    """What the check must catch."""
    monkeypatch.setattr(page, "number_x", lambda axes: None)
    assert overlaps(drawn(monkeypatch, -60_000.0, -30_000.0)) > 0


def test_numbers_under_the_gains_do_not_overlap(monkeypatch):
    made = figures_made(monkeypatch)
    gains_figure({"a": (5e5, (-1.5e6, 2.5e6)), "b": (1e5, (-1e6, 1e6))}, "gain")
    assert overlaps(made[-1]) == 0 and made[-1].axes[0].get_xticklabels()[-1].get_text().endswith(",000")


SPACE = StateActionSpace(2, 2, states=("new", "worn"), actions=("run", "service"))


def test_a_row_for_each_state():
    table = policy_table(SPACE, {"today": [[0.25, 0.75], [1.0, 0.0]], "chosen": np.array([0, 1])}, "wear")
    assert table.columns.tolist() == ["wear", "today", "chosen"]
    assert table.to_numpy().tolist() == [["new", "service 0.75, run 0.25", "run"], ["worn", "run", "service"]]


def test_a_row_for_each_step():
    """Where a policy depends on it; the other is repeated. One that says the same at every step has none."""
    both = {"today": [0, 1], "chosen": [[0, 0], [1, 0], [1, 1]]}
    table = policy_table(SPACE, both, "wear")
    assert table.columns.tolist() == ["step", "wear", "today", "chosen"]
    assert table["step"].tolist() == [0, 0, 1, 1, 2, 2]
    assert table["today"].tolist() == ["run", "service"] * 3
    assert table["chosen"].tolist() == ["run", "run", "service", "run", "service", "service"]
    same = policy_table(SPACE, {"chosen": [[0, 1]] * 5}, "wear")
    assert same.columns.tolist() == ["wear", "chosen"] and len(same) == 2


def test_a_policy_object_has_no_column():
    class Runs:
        def act(self, key, state, step):
            return 0

        def log_prob(self, state, action, step):
            return 0.0

    runs: Any = Runs()
    assert policy_table(SPACE, {"today": runs, "chosen": [0, 1]}, "wear").columns.tolist() == ["wear", "chosen"]
