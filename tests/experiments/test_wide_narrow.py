"""The comparison on WideNarrow: what comes out, and that the agents see the same worlds."""

import numpy as np

from bayes_mdp.agents import ThompsonByDraws
from bayes_mdp.experiments.wide_narrow import joint_against_factored


def test_shapes_and_intervals():
    """Two names of one agent get the same regret; mean and half-width are those of the seeds."""
    agent = ThompsonByDraws(4, replan=3)
    result = joint_against_factored(3, widths=(3,), agents={"one": agent, "again": agent}, steps_per_action=10)
    assert result["regret"].dims == ("agent", "width", "seed") and result["regret"].shape == (2, 1, 3)
    assert np.array_equal(result["regret"].sel(agent="one"), result["regret"].sel(agent="again"))
    sd = result["regret"].std("seed", ddof=1)
    np.testing.assert_allclose(result["half_width"], 1.959964 * sd / 3**0.5, rtol=1e-6)
    np.testing.assert_allclose(result["mean"], result["regret"].mean("seed"))
