"""A decision does not depend on the unit of rewards, nor on their zero: the same draws, scaled and shifted."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from tests.options import fold


def decided(unit, zero, believed=None):
    """(decision, its value in the first unit) for rewards `unit * r + zero`, prior in that unit (or `believed`).

    NormalGamma(zero, 1, 2, unit^2) is the law of `zero + unit * mean` and `precision / unit^2` where (mean, precision)
    have NormalGamma(0, 1, 2, 1); a stream of `zero` is worth zero / (1 - 0.8).
    """
    rng = np.random.default_rng(4)
    action = rng.integers(0, 2, 60)
    reached = np.where(rng.random(60) < 0.7, action, 1 - action)
    state = np.where(np.arange(60) % 5, np.append(0, reached[:-1]), 0)  # an episode begins in 0
    frame = pd.DataFrame({"s": state, "a": action, "t": reached})
    frame["r"] = unit * (state * (1 + action) + 0.5 * rng.normal(size=60).round(2)) + zero
    log = bm.read_log(
        frame.assign(p=np.arange(60) // 5), state="s", action="a", reward="r", next_state="t", episode="p"
    )
    prior = bm.models.dirichlet_normal_gamma(1.0, zero, 1.0, 2.0, (believed or unit) ** 2)
    aim = bm.Discounted(0.8)
    options: dict[str, Any] = {"criterion": "cvar:0.3", "num_draws": 100, "confidence": 0.8, "checks": False}
    decision: Any = bm.decide(
        jax.random.key(5), prior, log, aim, **fold(bm.recommend.DecideOptions, {"slack": 0.1 * unit, **options})
    )
    values = {name: (value.draws - 5 * zero) / unit for name, value in decision.comparison.values.items()}
    return decision, values


@pytest.mark.slow
def test_scale_and_shift():
    first, values = decided(1.0, 0.0)
    assert np.ptp(first.improvement.gain) > 0  # another policy than the baseline was chosen
    for unit, zero in ((1e-5, 0.0), (1e5, 0.0), (1.0, -100.0)):
        same, scaled = decided(unit, zero)
        np.testing.assert_array_equal(same.candidate, first.candidate)
        assert (same.recommended, same.improvement.prob) == (first.recommended, first.improvement.prob)
        assert len(same.reasons) == len(first.reasons)
        for name, draws in values.items():
            np.testing.assert_allclose(scaled[name], draws, rtol=1e-3, atol=1e-2 if zero else 1e-4)
    _, wrong = decided(1e5, 0.0, believed=1.0)  # what a prior that keeps the old unit does
    assert np.abs(wrong["chosen"] - values["chosen"]).max() > 0.01
