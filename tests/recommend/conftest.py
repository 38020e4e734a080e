"""Decisions from the easy log: made once."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import pytest

import bayes_mdp as bm
from bayes_mdp.mdp import Discounted
from tests.options import fold
from tests.recommend.shops import easy_log, right_prior


@cache
def _decide(concentration: float, episodes: int, **more: Any) -> Any:
    prior, log = right_prior(concentration), easy_log(episodes)
    return bm.decide(
        jax.random.key(0), prior, log, Discounted(0.5), **fold(bm.recommend.DecideOptions, {"num_draws": 100, **more})
    )


@pytest.fixture(scope="session")
def decided() -> Callable[..., Any]:
    """concentration, options -> Decision."""
    return lambda concentration=1.0, episodes=60, **more: _decide(concentration, episodes, **more)
