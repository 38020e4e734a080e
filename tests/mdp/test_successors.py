"""A space that lists its successors is the dense space with that support: every answer is the same, on every route."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.conjugate.conjugate_posterior import LayeredPosterior
from bayes_mdp.inference.summary import table
from bayes_mdp.mdp import SparseMDP

S, A, K = 6, 2, 3


def lists(rng, *, ends=True, horizon=None):
    """Successors [*H S A K], some lists short; the mask that says the same."""
    shape = (*(() if horizon is None else (horizon,)), S, A)
    listed = np.argsort(rng.random((*shape, S + ends)), -1)[..., :K]
    listed[..., 0, 0, 2:], listed[..., 1, 1, 1:] = -1, -1
    support = np.zeros((*shape, S + ends), bool)
    place = np.argwhere(listed >= 0)
    support[(*place[:, :-1].T, listed[listed >= 0])] = True
    return listed, support


def inferred(key, prior, data, space) -> Any:
    """The exact posterior."""
    return bm.infer(key, prior, data, space=space, method="exact")


def spaces(*, ends=True, horizon=None, legal=None) -> Any:
    """The same knowledge, listed and as a mask."""
    listed, support = lists(np.random.default_rng(3), ends=ends, horizon=horizon)
    make = lambda **known: bm.StateActionSpace(S, A, ends=ends, horizon=horizon, legal=legal, **known)  # noqa: E731
    return make(successors=listed), make(support=support)


def transitions(space, number=80):
    """Transitions to listed successors."""
    rng = np.random.default_rng(5)
    state, action = rng.integers(S, size=number), rng.integers(A, size=number)
    step = None if space.horizon is None else rng.integers(space.horizon, size=number)
    if space.legal is not None:
        action = np.where(space.legal[state, action], action, 0)
    cell = (state, action) if step is None else (step, state, action)
    place = rng.integers((space.successors[cell] >= 0).sum(-1))
    next_state, ended = space.reached(cell, place)
    reward = rng.integers(2, size=number).astype(float)
    return bm.Transitions(state, action, reward, next_state, ended if space.ends else None, step=step)


def as_rows(mdp):
    """The dense form."""
    return mdp.to_dense() if isinstance(mdp, SparseMDP) else mdp


def same(one, other, **tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, **{"rtol": 1e-4, "atol": 1e-5, **tolerance})


PRIORS = {
    "bernoulli": bm.models.dirichlet_bernoulli(concentration=0.7),
    "by outcome": bm.models.dirichlet_normal_gamma(rewards_on="outcome", reward_concentration=3.0),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", PRIORS)
def test_exact_posteriors_agree(name, key):
    listed, dense = spaces()
    data = transitions(listed)
    one, other = (inferred(key, PRIORS[name], data, space) for space in (listed, dense))
    assert one.method == other.method == "exact"
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-9)
    assert isinstance(one.mean_mdp(), SparseMDP)
    same(as_rows(one.mean_mdp()), other.mean_mdp())
    values = np.random.default_rng(1).normal(size=S)
    for method in ("bellman_variance", "transition_variance", "predictive_variance", "row_bound"):
        same(getattr(one, method)(values, 0.9), getattr(other, method)(values, 0.9))
    for method in ("expected_information", "visit_counts", "reward_variance"):
        same(getattr(one, method)(), getattr(other, method)())
    shown, expected = (table(posterior) for posterior in (one, other))
    assert shown["likeliest"].tolist() == expected["likeliest"].tolist()
    # Half of the data at first, the other half later; as counts; in a trace.
    first, second = (jax.tree.map(lambda x, part=part: x[part], data) for part in (slice(0, 40), slice(40, None)))
    again = inferred(key, PRIORS[name], first, listed).update(second)
    assert again.log_evidence == pytest.approx(one.log_evidence, abs=1e-4)
    traced = jax.jit(lambda data: bm.infer(key, PRIORS[name], None, space=listed).update(data).mean_mdp())(data)
    same(traced, one.mean_mdp())


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_draws_are_those_of_the_same_law(horizon, key):
    """Means of 2,000 draws within five and a half standard errors (72 means or fewer: false alarm 3e-6 * 1e-1 < 1e-6)
    of the closed form of the dense space; a shift of an eighth of a standard deviation is caught."""
    listed, dense = spaces(horizon=horizon)
    data = transitions(listed)
    one, other = (inferred(key, PRIORS["bernoulli"], data, space) for space in (listed, dense))
    rows = np.asarray(jax.vmap(as_rows)(one.sample(key, (2000,))).transition_probs)
    error = 5.5 * rows.std(0) / np.sqrt(2000) + 1e-6
    assert (abs(rows.mean(0) - other.mean_mdp().transition_probs) <= error).all()
    values = np.arange(S, dtype=float)
    drawn = np.asarray(jax.vmap(lambda k: one.sample_next(k, values, 1))(jax.random.split(key, 2000)))
    mean = np.asarray(as_rows(other.mean_mdp()).transition_probs) @ values
    mean = mean if horizon is None else mean[1]
    assert (abs(drawn.mean(0) - mean) <= 5.5 * drawn.std(0) / np.sqrt(2000) + 1e-4).all()
    if horizon is not None:
        assert isinstance(one, LayeredPosterior) and isinstance(other, LayeredPosterior)
        same(one.expected_next(values, 1), other.expected_next(values, 1))


def test_a_program_over_places(key):
    """Plates over the K places, no mask: exact, with the closed form of a Dirichlet row of K outcomes."""
    listed = np.sort(np.stack([np.random.default_rng(i).permutation(S + 1)[:K] for i in range(S * A)]).reshape(S, A, K))
    space = bm.StateActionSpace(S, A, ends=True, successors=listed)

    def program(space):
        with space.plates():
            rows = numpyro.sample("rows", dist.Dirichlet(jnp.array([0.5, 1.0, 2.0])))
            mean = numpyro.sample("mean", dist.Beta(1.0, 1.0))
        return bm.models.MDPSpec(rows, dist.BernoulliProbs(mean))

    data = transitions(space)
    posterior = bm.infer(key, program, data, space=space, method="exact")
    counts = np.zeros((S, A, K))
    np.add.at(counts, (data.state, data.action, np.asarray(data.outcome(space))), 1.0)
    after = counts + np.array([0.5, 1.0, 2.0])
    mean = posterior.mean_mdp()
    expected = np.zeros((S, A, S + 1))
    np.put_along_axis(expected, listed, after / after.sum(-1, keepdims=True), -1)
    same(as_rows(mean).transition_probs, expected[..., :-1])
    same(mean.end_probs, expected[..., -1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayes_mdp.inference.draws.chains.SamplingWarning")  # enough for the tolerance
@pytest.mark.parametrize("method", ["collapsed", "factorised", "nuts"])
def test_routes_with_chains_agree(method, key):
    """Means of draws agree with those of the dense space (chains of 2 x 500; four percent of a probability is seen)."""
    listed, dense = spaces()
    priors = {
        "collapsed": bm.models.unknown_concentration(dist.Gamma(2.0, 1.0), rewards=bm.models.dirichlet_bernoulli),
        "factorised": weibull,
        "nuts": PRIORS["bernoulli"],
    }
    data, chains = transitions(listed), bm.inference.NUTS(500, 1000, 2)
    chosen = chains if method == "nuts" else method
    one, other = (
        bm.infer(key, priors[method], data, space=space, method=chosen, sampler=chains) for space in (listed, dense)
    )
    same(as_rows(one.mean_mdp()), other.mean_mdp(), atol=0.04, rtol=0)
    values = np.arange(S, dtype=float)
    np.testing.assert_allclose(one.bellman_variance(values, 0.9), other.bellman_variance(values, 0.9), rtol=0.4)


def weibull(space):
    """Rewards without a closed form beside Dirichlet rows."""
    rows = bm.models.supported_dirichlet(1.0, space)
    with space.plates():
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    return bm.models.MDPSpec(rows, dist.Laplace(scale, 1.0))


@pytest.mark.slow
def test_planning_and_judging(key):
    listed, dense = spaces()
    data = transitions(listed)
    one, other = (inferred(key, PRIORS["bernoulli"], data, space) for space in (listed, dense))
    objective = bm.Discounted(0.9)
    plans = [bm.solve(posterior.mean_mdp(), objective) for posterior in (one, other)]
    np.testing.assert_allclose(plans[0].v, plans[1].v, rtol=1e-5)
    found = [bm.policy_value(key, posterior, plans[1].policy, objective, num_draws=400) for posterior in (one, other)]
    error = np.hypot(np.std(found[0].draws), np.std(found[1].draws)) / 20
    assert abs(found[0].mean - found[1].mean) <= 5.5 * error


def test_wrong_lists_are_refused():
    good = np.array([[[0, 1], [1, -1]], [[0, 2], [1, 0]]])
    bm.StateActionSpace(2, 2, ends=True, successors=good)

    def refused(sentence, successors=good, **options):
        with pytest.raises(ValueError) as caught:
            bm.StateActionSpace(2, 2, **{"ends": True, "successors": successors, **options})
        assert sentence in str(caught.value)

    refused("successors[1, 0, 1] is 2, expected a state from 0 to 1, or -1 (none)", ends=False)
    refused("successors[0, 0", np.where(good == 1, 0, good))
    refused("successors[0, 1] is False, expected at least one possible outcome", np.where(good == 1, -1, good))
    refused("support and successors are both given", support=np.ones((2, 2, 3), bool))
    refused("successors has shape (2, 2), expected (2, 2) and one more axis", good[..., 0])
    with pytest.raises(TypeError, match="successors has dtype float64, expected integers"):
        bm.StateActionSpace(2, 2, ends=True, successors=good + 0.0)


def test_data_outside_the_lists_are_refused(key):
    listed, _ = spaces()
    data = transitions(listed)
    absent = next(s for s in range(S) if s not in listed.successors[data.state[3], data.action[3]])
    bad = bm.Transitions(
        data.state, data.action, data.reward, np.asarray(data.next_state).copy(), np.asarray(data.terminated).copy()
    )
    assert bad.terminated is not None
    bad.next_state[3], bad.terminated[3] = absent, False
    with pytest.raises(ValueError) as caught:
        bm.infer(key, PRIORS["bernoulli"], bad, space=listed)
    assert str(caught.value) == (
        f"transitions.next_state[3] is {absent}, expected a listed successor of state {data.state[3]}, "
        f"action {data.action[3]} (see how-to/read-a-log in the documentation)"
    )


def test_places_and_what_they_stand_for_are_inverse():
    listed, _ = spaces(horizon=2)
    cell = np.indices(listed.successors.shape)[:3].reshape(3, -1)
    place = np.indices(listed.successors.shape)[3].ravel()
    kept = listed.successors.ravel() >= 0
    cell, place = tuple(cell[:, kept]), place[kept]
    next_state, ended = listed.reached(cell, place)
    np.testing.assert_array_equal(listed.place(cell, np.where(ended, S, next_state)), place)
    np.testing.assert_array_equal(
        jax.jit(lambda space, *x: space.place(*x))(listed, cell, np.where(ended, S, next_state)), place
    )
    np.testing.assert_array_equal(jax.jit(lambda space, *x: space.reached(*x))(listed, cell, place)[0], next_state)


def test_places_in_long_lists_are_found_by_bisection():
    """Of many transitions on the host; as the look at every place, also of what is not listed."""
    rng = np.random.default_rng(0)
    listed = np.full((3, 2, 40), -1)
    for pair in np.ndindex(3, 2):
        listed[(*pair, slice(0, 33))] = rng.choice(61, size=33, replace=False)
    listed = np.concatenate([listed, np.full((57, 2, 40), -1)])
    listed[3:, :, 0] = 60
    space = bm.StateActionSpace(60, 2, ends=True, successors=listed)
    cell, reached = (rng.integers(3, size=500), rng.integers(2, size=500)), rng.integers(-1, 62, size=500)
    hit = listed[cell] == reached[:, None]
    expected = np.where(hit.any(-1) & (reached >= 0), hit.argmax(-1), 40)
    np.testing.assert_array_equal(space.place(cell, reached), expected)
    assert (expected < 40).any() and (expected == 40).any()
    assert space._lists_are_long(500) and not space._lists_are_long(10)
