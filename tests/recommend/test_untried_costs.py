"""`decide` on costs under a prior centred at zero: what nobody tried looks free, and is not recommended."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions import PolicyLimits
from bayes_mdp.mdp import Log
from tests.text import unwrapped

KEY = jax.random.key(0)
SENTENCE = "pairs never tried, whose mean reward (0) lies above that of every pair that was tried (at most -"


@pytest.fixture(scope="module")
def log() -> Log:
    """Two states, three actions, of which each state has had two; rewards are costs of about -1."""
    rng = np.random.default_rng(0)
    number = 400
    state = rng.integers(2, size=number)
    action = (state + rng.integers(2, size=number)) % 3
    reached = rng.integers(2, size=number)
    table = pd.DataFrame(
        {"s": np.array(["a", "b"])[state], "a": np.array(["x", "y", "z"])[action], "t": np.array(["a", "b"])[reached]}
    )
    table["r"], table["end"] = -1.0 - 0.1 * rng.random(number), True
    return bm.read_log(table, state="s", action="a", reward="r", next_state="t", terminated="end")


def decided(log, limits=PolicyLimits(bootstrap_below=0), **options):
    space = bm.StateActionSpace.from_log(log, **options)
    prior = bm.models.dirichlet_normal(loc=0.0, scale=0.3, noise_scale=0.1)
    return bm.decide(
        KEY,
        prior,
        log,
        bm.Episodic(1),
        options=bm.recommend.DecideOptions(space=space, num_draws=100, checks=False, limits=limits),
    )


def test_it_says_so_and_keeps_the_baseline(log):
    found: Any = decided(log)
    assert not found.recommended
    assert any(reason.startswith("chosen: ") and f"2 {SENTENCE}" in reason for reason in found.reasons)
    assert f"2 {SENTENCE}" in unwrapped(found.choice) and f"2 {SENTENCE}" in unwrapped(found.belief)


def test_what_was_hardly_tried_is_not_chosen_by_default(log):
    found: Any = decided(log, PolicyLimits())
    assert not any(SENTENCE in reason for reason in found.reasons) and SENTENCE not in str(found)
    assert found.candidates["chosen"].fewest >= 5


@pytest.mark.slow
def test_what_the_remedy_asks_for_removes_it(log):
    logged = decided(log, legal="logged")
    assert not any(SENTENCE in reason for reason in logged.reasons) and SENTENCE not in str(logged)
