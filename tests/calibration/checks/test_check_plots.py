"""Pictures of a check: what they draw is what the dataset holds."""

from typing import Any

import numpy as np
import pytest

from bayes_mdp.calibration.checks import check_result
from bayes_mdp.calibration.checks.check_result import Check
from bayes_mdp.calibration.simulation_based.ecdf import simultaneous_band
from tests.calibration.simulated import checked


@pytest.fixture(scope="module")
def found():
    return checked(50)


def test_all_pictures_are_drawn_and_say_the_verdict(found):
    figure = check_result.plot_check(found)
    assert len(figure.axes) == 6 and "50 truths from the prior: calibrated" in figure.get_suptitle()


def test_the_ecdf_leaves_its_band_where_the_test_rejects():
    for result in (checked(), checked(scale=0.6)):
        axes = check_result.plot_ecdf(result).axes[0]
        lines = {line.get_label(): np.asarray(line.get_ydata()) for line in axes.lines}
        x = np.arange(1, 101) / 100
        low, high = simultaneous_band(200, 99, 0.01 / 6)
        for name, p in result.p_values.items():
            if name in lines:
                inside = (lines[name] >= low / 200 - x - 1e-9).all() and (lines[name] <= high / 200 - x + 1e-9).all()
                assert inside == (p >= 0.01 / 6)


def test_lines_are_those_of_the_dataset(found):
    axes = check_result.plot_coverage(found).axes[0]
    for line in axes.lines[:4]:
        expected = found.dataset["coverage"].sel(quantity=line.get_label())
        np.testing.assert_allclose(np.asarray(line.get_ydata()), expected)
    bars: Any = check_result.plot_joint(found).axes[0].patches[-10:]
    heights = [bar.get_height() for bar in bars]
    counts = np.histogram((found.dataset["joint_rank"] + 0.5) / 100, 10, (0, 1))[0]
    np.testing.assert_allclose(heights, counts / 50)


def test_a_picture_of_what_is_not_there_is_refused(found):
    without = Check(found.dataset.drop_vars(["joint_rank", "joint_p_value", "optimal", "brier_p_value", "brier_score"]))
    with pytest.raises(ValueError, match="expected at least two"):
        check_result.plot_joint(without)
    with pytest.raises(ValueError, match="probabilities of optimal actions"):
        check_result.plot_reliability(without)
    assert len(check_result.plot_check(without).axes) == 4
