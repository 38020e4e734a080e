"""Agents learn in many states: a ring of 100,000, the maze of 2,500. One seed, a fixed key; minutes each."""

import resource

import pytest

from benchmarks.many_state_agents import TASKS, agents, played, uniform_play

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:v_max is")]

SHARES = {
    ("ring", "PSRL"): (200_000, 0.6),
    ("ring", "OIM"): (200_000, 0.6),
    ("ring", "MomentMatching"): (200_000, 0.6),
    ("maze", "PSRL"): (100_000, 0.6),
    ("maze", "OIM"): (60_000, 0.4),
    ("maze", "MomentMatching"): (100_000, 0.4),
}
"""Steps, and the least of what is gained over uniform play in the last tenth, as a share of what an optimum gains."""


@pytest.mark.parametrize(("name", "agent"), SHARES)
def test_they_learn(name, agent):
    """Uniform play varies by .02 (ring) and .1 (maze) between seeds; the runs of the benchmark have larger shares."""
    number, least = SHARES[name, agent]
    rewards, optimal = played(name, agents(TASKS[name])[agent], num_steps=number)
    chance = uniform_play(TASKS[name].make(), 50_000)
    assert (rewards[-1] - chance) / (optimal - chance) > least
    assert rewards[-1] > rewards[0]
    # GB: rows over all states would be 160 for one table of the ring. (Of the whole process, other tests included.)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6 < 8
