"""`plan_bayes_adaptive`: exact values as the judge, budgets, refusals, words."""

import time

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from benchmarks.next_experiment import as_posterior, mines, two_arms_posterior
from tests.options import fold

MINES = as_posterior(mines())
NAMED = bm.StateActionSpace(2, 2, states=("here", "there"), actions=("go", "wait"))


@pytest.mark.parametrize("horizon", [8, 12])
def test_finds_the_bayes_optimal_action(horizon):
    """In every state of the mines where the first action matters, with 20,000 simulations."""
    objective = bm.Episodic(horizon)
    for state in range(5):
        q = bm.decisions.bayes_optimal(MINES, objective=objective, initial=np.eye(5)[state]).q[state]
        plan = bm.decisions.plan_bayes_adaptive(
            jax.random.key(state),
            MINES,
            state,
            objective,
            num_simulations=20_000,
            options=bm.decisions.SearchOptions(exploration=4.0),
        )
        assert q[plan.action] > q.max() - 1e-6
        assert plan.q.max() < q.max() + 6 * plan.standard_error[plan.action]


def test_root_values_approach_the_optimum_from_below(x64):
    """One and two steps to go: with so many simulations the root's mean is within 2 % of the exact value."""
    arms = two_arms_posterior()
    for horizon in (1, 2, 3):
        best = bm.decisions.bayes_optimal(arms, objective=bm.Episodic(horizon), initial=[1.0]).value
        plan = bm.decisions.plan_bayes_adaptive(
            jax.random.key(0),
            arms,
            0,
            bm.Episodic(horizon),
            num_simulations=100_000,
            options=bm.decisions.SearchOptions(exploration=1.0),
        )
        assert 0.97 * best < plan.q.max() < best + 5 * plan.standard_error[plan.action]


def test_one_key_one_plan():
    args = MINES, 0, bm.Discounted(0.9)
    one, two, other = (
        bm.decisions.plan_bayes_adaptive(jax.random.key(k), *args, num_simulations=500) for k in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.q, two.q)
    assert not np.array_equal(one.q, other.q)


def test_a_budget_of_time():
    began = time.perf_counter()
    plan = bm.decisions.plan_bayes_adaptive(
        jax.random.key(0), MINES, 0, bm.Discounted(0.9), options=bm.decisions.SearchOptions(max_seconds=0.3)
    )
    assert plan.num_simulations == plan.visits.sum() > 0
    assert plan.seconds < 0.3 + (time.perf_counter() - began)
    both = bm.decisions.plan_bayes_adaptive(
        jax.random.key(0),
        MINES,
        0,
        bm.Discounted(0.9),
        options=bm.decisions.SearchOptions(max_seconds=60.0),
        num_simulations=70,
    )
    assert both.num_simulations == 70


def test_words_and_dataset():
    named = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), None, space=NAMED)
    plan = bm.decisions.plan_bayes_adaptive(
        jax.random.key(0), named, "there", bm.Episodic(4), step=1, num_simulations=300
    )
    assert "state 'there'" in str(plan) and "300 simulations" in str(plan) and "biased low" in str(plan)
    data = plan.to_dataset()
    assert dict(data.sizes) == {"action": 2} and data.attrs["chosen"] in ("go", "wait")
    assert data.visits.sum() == 300 and data.attrs["state"] == "there"


def test_draws_without_a_space():
    rng = np.random.default_rng(0)
    draws = bm.inference.posterior_samples(bm.MDP(rng.dirichlet(np.ones(3), (20, 3, 2)), rng.normal(size=(20, 3, 2))))
    plan = bm.decisions.plan_bayes_adaptive(jax.random.key(0), draws, 2, bm.Discounted(0.8), num_simulations=200)
    assert plan.visits.sum() == 200 and plan.depth > 1


def test_a_full_tree_says_so():
    plan = bm.decisions.plan_bayes_adaptive(
        jax.random.key(0),
        MINES,
        0,
        bm.Episodic(12),
        num_simulations=500,
        options=bm.decisions.SearchOptions(max_nodes=20),
    )
    assert plan.full and plan.num_nodes == 20 and "the tree is full" in str(plan)


class NotLazy:
    """A belief that can be sampled as a whole only."""

    space = NAMED

    def sample(self, key, sample_shape=()):
        raise NotImplementedError


BAD = [
    ({"num_simulations": 0}, ValueError, r"num_simulations is 0, expected an integer of at least 1"),
    ({"max_seconds": 0}, ValueError, r"max_seconds is 0, expected a finite number greater than zero"),
    ({"state": 5}, ValueError, r"state is 5, expected one of 0, 1, 2, 3, 4"),
    ({"step": 1}, ValueError, r"step is 1, expected 0: steps count under Episodic alone"),
    ({"objective": bm.Episodic(3), "step": 3}, ValueError, r"step is 3, expected at most 2"),
    ({"objective": bm.AverageReward()}, ValueError, r"objective is AverageReward, expected Discounted, Episodic or"),
    (
        {"belief": NotLazy()},
        TypeError,
        r"needs a posterior that has lazy_belief.*posterior_samples",
    ),
    ({"max_nodes": 10**12}, ValueError, r"a tree has 1000000000000 nodes, about .* of memory"),
    ({"exploration": -1.0}, ValueError, r"exploration is -1.0, expected a finite number, zero or greater"),
    ({"reward_bins": 0}, ValueError, r"reward_bins is 0"),
]


@pytest.mark.parametrize("change, kind, message", BAD, ids=lambda x: "-".join(x) if isinstance(x, dict) else "")
def test_refusals(change, kind, message):
    given = {"belief": MINES, "state": 0, "objective": bm.Discounted(0.9), **change}
    with pytest.raises(kind, match=message):
        bm.decisions.plan_bayes_adaptive(jax.random.key(0), **fold(bm.decisions.SearchOptions, given))


@pytest.mark.parametrize("objective", [bm.Episodic(5), bm.Discounted(0.9)])
def test_the_horizon_is_that_of_the_space(objective):
    space = bm.StateActionSpace(2, 2, horizon=3)
    belief = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), None, space=space)
    draws = bm.inference.posterior_samples(belief.sample(jax.random.key(1), (5,)))
    for given in (belief, draws):
        with pytest.raises(ValueError, match=r"objective is .*, expected Episodic\(3\): space has 3 steps"):
            bm.decisions.plan_bayes_adaptive(jax.random.key(0), given, 0, objective, num_simulations=10)
    assert bm.decisions.plan_bayes_adaptive(jax.random.key(0), draws, 0, bm.Episodic(3), num_simulations=10).action in (
        0,
        1,
    )


def test_numba_is_asked_for(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    with pytest.raises(ImportError, match=r"plan_bayes_adaptive needs numba, .* pip install 'numba.*the extra 'fast'"):
        bm.decisions.plan_bayes_adaptive(jax.random.key(0), MINES, 0, bm.Discounted(0.9))
