"""The overall p-value of data that are exchangeable with their replicates, and of data that are not."""

import numpy as np
import pytest

from bayes_mdp.calibration.predictive.comparisons import LEVEL, compare_statistic

NUMBER = 3000


def p_values(draw, num_replicates, shift=0.0, number=NUMBER):
    """Of `NUMBER` data sets, each the first of 1 + N equal draws."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(number):
        every = draw(rng, 1 + num_replicates)
        observed = np.broadcast_to(every[0] + shift, every[1:].shape)
        found.append(compare_statistic(observed, every[1:], 1).p_overall)
    return np.array(found)


LAWS = {
    "number": lambda rng, n: rng.normal(size=n),
    "cells": lambda rng, n: rng.normal(size=(n, 6)),
    "rare events": lambda rng, n: (rng.random((n, 24)) < 0.002).astype(float),
}


@pytest.mark.some(3)
@pytest.mark.parametrize("num_replicates", [30, 100])
@pytest.mark.parametrize("law", LAWS)
def test_exchangeable_data_are_surprising_no_more_often_than_the_level(law, num_replicates):
    """Exact by exchangeability; five standard errors of 3,000 data sets (false alarm 3e-7): sees a rate of .02."""
    found = p_values(LAWS[law], num_replicates)
    for level in (LEVEL, 0.05, 0.2):
        assert (found < level).mean() <= level + 5 * np.sqrt(level * (1 - level) / NUMBER)


def test_data_that_are_off_are_surprising():
    assert (p_values(LAWS["number"], 300, shift=6.0, number=50) < LEVEL).all()
    assert (p_values(LAWS["cells"], 300, shift=6.0, number=50) < LEVEL).all()


def test_data_outside_of_replicates_that_never_vary_are_surprising():
    found = compare_statistic(np.ones((200, 3)), np.zeros((200, 3)), 1)
    assert found.p_overall == pytest.approx(1 / 201)
    assert compare_statistic(np.zeros((200, 3)), np.zeros((200, 3)), 1).p_overall > 0.4
