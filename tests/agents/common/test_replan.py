"""Replanning rules against a plain Python reading of them."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import PSRL, DynamicEpisodes, Geometric, Reached
from bayes_mdp.agents.common.replan import Doubling, EveryEpisode, EverySteps, When, as_rule, period_of, rule_for
from bayes_mdp.mdp import Discounted, Episodic, ReplanContext


def _context(time: int = 0, step: int = 0, visits: Any = 0.0, planned: Any = 0.0, plans: tuple[int, int] = (0, 0)):
    visits, planned = jnp.asarray(visits), jnp.asarray(planned)
    return ReplanContext(
        jnp.int32(time), jnp.int32(step), jnp.asarray(step == 0), visits, planned, *(jnp.int32(x) for x in plans)
    )


def test_every_steps_and_geometric_times():
    """The times at which they are due."""
    due = [t for t in range(40) if EverySteps(7).due(_context(t))]
    assert due == [0, 7, 14, 21, 28, 35]
    due = [t for t in range(100) if Geometric(1.5).due(_context(t))]
    assert due == sorted({0, *(int(np.ceil(1.5**j)) for j in range(12) if 1.5**j < 99)})


def test_doubling():
    """Due when the new visits of some pair reach max(1, old ones)."""
    rule = Doubling()
    assert not rule.due(_context(5, visits=[[3.0, 0.0]], planned=[[2.0, 0.0]]))
    assert rule.due(_context(5, visits=[[4.0, 0.0]], planned=[[2.0, 0.0]]))
    assert rule.due(_context(5, visits=[[2.0, 1.0]], planned=[[2.0, 0.0]]))


def test_reached():
    """Due when a pair has as many visits for the first time since the plan."""
    rule = Reached(3)
    assert rule.due(_context(5, visits=[[3.0, 0.0]], planned=[[2.0, 0.0]]))
    assert rule.due(_context(5, visits=[[7.0, 4.0]], planned=[[3.0, 2.0]]))
    assert not rule.due(_context(5, visits=[[9.0, 2.0]], planned=[[3.0, 0.0]]))


def test_dynamic_episodes():
    """Due after one step more than the last plan had, or where the visits of a pair have more than doubled."""
    same: Any = {"visits": [[8.0, 4.0]], "planned": [[5.0, 2.0]]}
    rule = DynamicEpisodes()
    assert not rule.due(_context(12, plans=(7, 2), **same)) and rule.due(_context(13, plans=(7, 2), **same))
    assert rule.due(_context(12, visits=[[7.0, 5.0]], planned=[[5.0, 2.0]], plans=(7, 2)))
    assert rule.due(_context(1, visits=[[1.0, 0.0]], planned=[[0.0, 0.0]]))


def test_episode_and_function():
    """Where an episode begins; where a function is true."""
    assert EveryEpisode().due(_context(30, step=0)) and not EveryEpisode().due(_context(30, step=4))
    assert When(lambda context: context.time > 3).due(_context(4))


def test_what_a_person_writes():
    """Numbers, words, functions; the default depends on the objective; periods that are known beforehand."""
    assert as_rule(5) == EverySteps(5) and as_rule("doubling") == Doubling() and as_rule("episode") == EveryEpisode()
    assert isinstance(PSRL(lambda context: context.starts).replan, When)
    assert rule_for(None, Episodic(4)) == EveryEpisode() and rule_for(None, Discounted(0.9)) == EverySteps(20)
    assert period_of(EveryEpisode(), Episodic(4)) == 4 and period_of(EveryEpisode(), Discounted(0.9)) is None


@pytest.mark.parametrize("bad", [0, -3, "weekly", 1.5, True])
def test_bad_rules(bad):
    """One sentence each."""
    with pytest.raises((ValueError, TypeError), match="expected"):
        PSRL(bad)
    with pytest.raises(ValueError, match=r"factor is 1\.0"):
        Geometric(1.0)
    with pytest.raises(ValueError, match=r"num_visits is 0, expected an integer of at least 1"):
        Reached(0)
