"""Chains of policies drawn alone against whole MDPs drawn with the same keys."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions import policy_chains as module
from bayes_mdp.decisions.policy_chains import policy_chains

KEY = jax.random.key(0)
S, A, K = 6, 3, 4
LEGAL = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, 1], [1, 1, 1]], bool)


def lists(rng, ends):
    found = np.full((S, A, K), -1)
    for pair in np.argwhere(LEGAL):
        number = rng.integers(1, K + 1)
        found[(*pair, slice(0, number))] = rng.choice(S + ends, size=number, replace=False)
    return found


def shared_rows(space):
    """One row for all states of an action, and rows of state 0 that are known."""
    import numpyro
    import numpyro.distributions as dist

    with space.plates("action"):
        drawn = numpyro.sample("row", dist.Dirichlet(jnp.ones(space.n_outcomes)))
    known = jnp.full((space.n_actions, space.n_outcomes), 1 / space.n_outcomes)
    rows = jnp.broadcast_to(drawn, (*space.shape, space.n_outcomes)).at[0].set(known)
    return bm.models.MDPSpec(rows, reward=jnp.arange(float(S * A)).reshape(S, A))


def case(name):
    """(posterior, objective) of one kind."""
    rng = np.random.default_rng(sum(map(ord, name)))
    ends = name in ("ends", "exit", "listed ends")
    listed = {"successors": lists(rng, ends)} if "listed" in name else {}
    support = {}
    if name == "support":
        support["support"] = (rng.random((S, A, S)) < 0.5) | np.eye(S, dtype=bool)[:, None]
    space = bm.StateActionSpace(S, A, ends=ends, legal=None if name == "shared" else LEGAL, **listed, **support)
    prior = shared_rows if name == "shared" else bm.models.dirichlet_normal(0.3)
    objective = {"exit": bm.FirstExit(), "average": bm.AverageReward()}.get(name, bm.Discounted(0.9))
    return bm.infer(KEY, prior, space=space, method="exact"), objective


CASES = ("dense", "ends", "support", "listed", "listed ends", "shared", "exit", "average")
QUICK = ("listed ends", "shared", "exit", "average")


def policies(rng):
    """Deterministic, uniform and mixed ones, all legal."""
    uniform = LEGAL / LEGAL.sum(-1, keepdims=True)
    first = np.eye(A)[LEGAL.argmax(-1)]
    return {"first": LEGAL.argmax(-1), "uniform": uniform, "mixed": 0.3 * first + 0.7 * uniform}


@pytest.mark.some(2)
@pytest.mark.parametrize("small", [pytest.param(True, marks=pytest.mark.slow), False], ids=["dense", "listed"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_values_are_those_of_whole_draws(name, small, monkeypatch):
    """Draw by draw, with all of the errors that are reported; small chains are dense unless told otherwise."""
    if not small:
        monkeypatch.setattr(module, "SMALL", 0)
        monkeypatch.setattr(module, "DENSE_SHARE", 2.0)
    posterior, objective = case(name)
    found = bm.compare_policies(KEY, posterior, policies(KEY), objective, num_draws=5)
    with monkeypatch.context() as whole:
        whole.setattr("bayes_mdp.decisions.policy_evaluation.policy_chains", lambda *args, **kwargs: None)
        expected = bm.compare_policies(KEY, posterior, policies(KEY), objective, num_draws=5)
    for policy, value in expected.values.items():
        scale = np.abs(value.draws).max()
        np.testing.assert_allclose(found.values[policy].draws, value.draws, rtol=0, atol=1e-9 * scale)
        assert found.values[policy].gap <= 1e-9 * scale


@pytest.mark.some(2)
@pytest.mark.parametrize("inverse", ["of the mean", "wrong"])
@pytest.mark.parametrize("name", ["ends", "exit"])
def test_draws_near_the_mean_are_solved_by_its_inverse(name, inverse, monkeypatch):
    """Values and bounds are those without it; a wrong inverse is noticed, and costs time alone."""
    posterior, objective = case(name)
    expected = bm.compare_policies(KEY, posterior, policies(KEY), objective, num_draws=5)
    given = []

    def spy(chains, *args):
        found: Any = with_inverses(chains, *args)
        found = found if inverse == "of the mean" else eqx.tree_at(lambda c: c.inverse, found, 0 * found.inverse)
        given.append(found.inverse)
        return found

    with_inverses = module.PolicyChains.with_inverses
    monkeypatch.setattr(module.PolicyChains, "with_inverses", spy)
    monkeypatch.setattr(module, "DIRECT", 2)
    monkeypatch.setattr("bayes_mdp.planning.linear.systems.DIRECT", 2)
    monkeypatch.setattr("bayes_mdp.decisions.policy_evaluation.MANY_DRAWS", 2)
    found = bm.compare_policies(KEY, posterior, policies(KEY), objective, num_draws=5)
    assert given[0].shape == (3, S, S)
    for policy, value in expected.values.items():
        scale = np.abs(value.draws).max()
        np.testing.assert_allclose(found.values[policy].draws, value.draws, rtol=0, atol=1e-11 * scale)
        assert found.values[policy].gap <= 1e-9 * scale


def test_only_what_is_needed_is_drawn():
    posterior, objective = case("listed ends")
    rows = np.eye(A)[LEGAL.argmax(-1)][None]
    chains = policy_chains(posterior, rows, objective, ends=True)
    assert chains is not None
    listed = np.asarray(posterior.space.successors)
    pairs = np.arange(S), LEGAL.argmax(-1)
    assert len(chains.entries.pair) == (listed[pairs] >= 0).sum()
    np.testing.assert_array_equal(chains.entries.next_state, listed[pairs][listed[pairs] >= 0])


def test_a_posterior_that_is_drawn_whole_is_left_alone():
    space = bm.StateActionSpace(3, 2, horizon=2)
    posterior = bm.infer(KEY, bm.models.dirichlet_normal(), space=space)
    assert policy_chains(posterior, np.full((1, 3, 2), 0.5), bm.Discounted(0.9), ends=False) is None
    by_outcome = bm.infer(
        KEY, bm.models.dirichlet_normal(rewards_on="outcome"), space=bm.StateActionSpace(3, 2), method="exact"
    )
    assert policy_chains(by_outcome, np.full((1, 3, 2), 0.5), bm.Discounted(0.9), ends=False) is None
    assert policy_chains(object(), np.full((1, 3, 2), 0.5), bm.Discounted(0.9), ends=False) is None


def test_a_row_that_does_not_sum_to_one_is_seen():
    posterior, objective = case("dense")
    uniform = np.asarray(LEGAL / LEGAL.sum(-1, keepdims=True))
    chains: Any = policy_chains(posterior, uniform[None], objective, ends=False)
    probs, _ = eqx.filter_jit(lambda p, c: p.sample_entries(KEY, c.entries))(posterior, chains)
    excess, ended = chains.faults(probs)
    assert float(excess[0]) < 1e-5 and float(ended[0]) == 0
    assert float(chains.faults(probs.at[3].add(0.1))[0][0]) > 0.05


def test_random_numbers_of_single_precision(monkeypatch):
    """The draws are those that `sample` makes in single precision, their values exact to double precision."""
    monkeypatch.setattr("bayes_mdp.decisions.policy_evaluation.MANY_ENTRIES", 0)
    reward = np.arange(float(S * A)).reshape(S, A)
    space = bm.StateActionSpace(S, A, legal=LEGAL)
    posterior = bm.infer(KEY, bm.models.known_rewards(reward, 0.3), space=space, method="exact")
    policy = LEGAL.argmax(-1)
    found = bm.policy_value(KEY, posterior, policy, bm.Discounted(0.9), num_draws=8)
    rows = np.asarray(jax.vmap(posterior.sample)(jax.random.split(KEY, 8)).transition_probs, float)
    rows = rows[:, np.arange(S), policy]
    paid = np.broadcast_to(reward[np.arange(S), policy][:, None], (8, S, 1))
    expected = np.linalg.solve(np.eye(S) - 0.9 * rows / rows.sum(-1, keepdims=True), paid)[..., 0].mean(-1)
    np.testing.assert_allclose(found.draws, expected, rtol=1e-5)
    assert found.gap < 1e-10
