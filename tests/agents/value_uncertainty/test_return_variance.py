# pyright: reportArgumentType=false, reportOptionalSubscript=false, reportAttributeAccessIssue=false
"""The variance of a return and its split, against simulated returns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.value_uncertainty import exact
from bayes_mdp.agents.value_uncertainty.moment_matching import return_variance
from bayes_mdp.inference import mixture
from bayes_mdp.mdp import Discounted, Episodic
from bayes_mdp.mdp.validity import Validity
from tests.agents.value_problems import belief, chain, off_by, variance_and_error

H, S, A = 3, 3, 2
NUMBER = 30_000
split = jax.jit(return_variance)


def _belief(by_outcome):
    rng = np.random.default_rng(7)
    shape = (H, S, A, S) if by_outcome else (H, S, A)
    loc, variance = rng.normal(size=shape), rng.uniform(0.1, 0.5, shape)
    loc[:, :, 1] += 3.0  # which action is taken matters
    return belief(rng.uniform(0.5, 3, (H, S, A, S)), loc, variance, by_outcome=by_outcome, horizon=H)


def _returns(key, posterior, probs, number):
    """[number S A] returns from the first step: an MDP is drawn, its rewards with their noise, states and actions."""

    def from_pair(key, rows, mean, precision, state, action):
        total = 0.0
        for h in range(H):
            row_key, reward_key, act_key = jax.random.split(jax.random.fold_in(key, h), 3)
            following = jax.random.choice(row_key, S, p=rows[h, state, action])
            cell = (h, state, action, following)[: mean.ndim]
            total += mean[cell] + jax.random.normal(reward_key) * precision[cell] ** -0.5
            state, action = following, jax.random.choice(act_key, A, p=probs[following])
        return total

    def one(key):
        row_key, reward_key, key = jax.random.split(key, 3)
        rows = posterior.transition_probs.sample(row_key)
        mean, precision = (
            x.reshape(posterior.reward_cells.shape) for x in posterior.reward_cells.sample_sites(reward_key)
        )
        states, actions = jnp.meshgrid(jnp.arange(S), jnp.arange(A), indexing="ij")
        each = jax.vmap(jax.vmap(from_pair, (0, None, None, None, 0, 0)), (0, None, None, None, 0, 0))
        return each(jax.random.split(key, (S, A)), rows, mean, precision, states, actions)

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(key, number)))


@pytest.mark.slow
@pytest.mark.parametrize("by_outcome", [pytest.param(False, marks=pytest.mark.slow), True])
def test_total_against_simulated_returns(by_outcome, key):
    """Six standard errors over 30,000 returns from each of 6 pairs: chance 2e-8, catches an error of 6 %.

    The twins without the noise of rewards, and without the choice of the action, are caught.
    """
    posterior, probs = _belief(by_outcome), np.array([[0.3, 0.7], [0.5, 0.5], [0.9, 0.1]])
    answer = split(posterior, probs, Episodic(H))
    returns = _returns(key, posterior, jnp.asarray(probs), NUMBER)
    assert np.max(np.abs(returns.mean(0) - answer.q_mean[0]) / (returns.std(0) / NUMBER**0.5)) < 6
    assert off_by(returns, answer.total[0]) < 6
    assert off_by(returns, answer.epistemic[0]) > 6
    greedy = split(posterior, np.argmax(probs, -1), Episodic(H))
    assert off_by(returns, greedy.total[0]) > 6
    # From a state: the first action is drawn too.
    chosen = np.random.default_rng(0).random(NUMBER)[:, None] >= probs[:, 0]
    from_state = np.where(chosen, returns[..., 1], returns[..., 0])
    assert off_by(from_state, answer.v_total[0]) < 6
    assert off_by(from_state, (probs * answer.total[0]).sum(-1)) > 6


@pytest.mark.slow
def test_the_split_is_that_of_the_law_of_total_variance(x64, key):
    """With the exact epistemic variance: aleatoric = E Var[return | MDP], each MDP's by its own recursion."""
    posterior, policy, objective = _belief(False), np.array([0, 1, 0]), Episodic(H)
    known = jax.jit(exact.value_covariance)(posterior, policy, objective)
    answer = split(posterior, policy, objective, epistemic=known)
    assert [v.kind for v in (answer.validity, answer.epistemic_validity, answer.aleatoric_validity)] == ["exact"] * 3
    np.testing.assert_allclose(answer.epistemic + answer.aleatoric, answer.total, rtol=1e-12)
    np.testing.assert_allclose(answer.v_epistemic + answer.v_aleatoric, answer.v_total, rtol=1e-12)
    assert np.all(np.asarray(answer.aleatoric) >= 0)
    number = 20_000
    row_key, reward_key = jax.random.split(key)
    rows = np.asarray(jax.jit(jax.vmap(posterior.transition_probs.sample))(jax.random.split(row_key, number)))
    draws = jax.jit(jax.vmap(posterior.reward_cells.sample_sites))(jax.random.split(reward_key, number))
    mean, precision = (np.asarray(x).reshape(number, H, S, A) for x in draws)
    v, within = np.zeros((2, number, S))
    q, var = np.zeros((2, number, S, A))
    for h in reversed(range(H)):
        q = mean[:, h] + np.einsum("nsaz,nz->nsa", rows[:, h], v)
        transitions = np.einsum("nsaz,nz->nsa", rows[:, h], v**2) - np.einsum("nsaz,nz->nsa", rows[:, h], v) ** 2
        var = 1 / precision[:, h] + transitions + np.einsum("nsaz,nz->nsa", rows[:, h], within)
        v, within = q[:, np.arange(S), policy], var[:, np.arange(S), policy]
    error = var.std(0) / number**0.5
    assert np.max(np.abs(var.mean(0) - answer.aleatoric[0]) / error) < 6  # chance 1e-8, catches 3 %
    assert off_by(q, answer.epistemic[0]) < 6
    rough = split(posterior, policy, objective)
    assert rough.epistemic_validity.kind == "upper bound" and "lower bound" in rough.aleatoric_validity.reason
    assert np.all(rough.epistemic >= answer.epistemic - 1e-9) and np.all(rough.aleatoric >= 0)
    assert "total: sd from" in str(rough)


@pytest.mark.slow
def test_a_chain_by_hand_and_a_mixture(x64):
    """Deterministic moves: epistemic sum g^2h v, aleatoric sum g^2h noise (twice v); an offset of +-1 is epistemic."""
    length, discount, objective = 2, 0.9, Discounted(0.9)
    both = mixture([chain(length, 1.0, 0.1), chain(length, -1.0, 0.1)], weights=[0.5, 0.5])
    answer = return_variance(both, np.zeros(length + 1, int), objective)
    powers = discount ** np.arange(length)
    np.testing.assert_allclose(answer.v_epistemic[0], powers.sum() ** 2 + 0.1 * (powers**2).sum(), rtol=1e-9)
    np.testing.assert_allclose(answer.v_aleatoric[0], 0.2 * (powers**2).sum(), rtol=1e-9)
    assert answer.validity.kind == "exact"


def test_on_cycles_it_is_a_heuristic(x64):
    """The split still adds up, and its validity is right; an epistemic part above the total is cut."""
    posterior = belief(np.ones((S, A, S)), np.ones((S, A)), 1.0)
    policy, objective = np.zeros(S, int), Discounted(0.8)
    answer = return_variance(posterior, policy, objective)
    assert {v.kind for v in (answer.validity, answer.epistemic_validity, answer.aleatoric_validity)} == {"heuristic"}

    class Huge:
        q_variance, v_variance, validity = np.full((S, A), 1e6), np.full(S, 1e6), answer.validity

    cut = return_variance(posterior, policy, objective, epistemic=Huge())
    np.testing.assert_allclose(cut.epistemic, cut.total)
    np.testing.assert_allclose(cut.aleatoric, 0.0)
    Huge.validity = Validity("exact", "claimed")
    cut = return_variance(posterior, policy, objective, epistemic=Huge())
    assert cut.epistemic_validity.kind == "heuristic" and "cut to a total" in cut.epistemic_validity.reason
    Huge.q_variance, Huge.v_variance = np.full((S, A), 1e-6), np.full(S, 1e-6)
    assert return_variance(posterior, policy, objective, epistemic=Huge()).epistemic_validity.kind == "exact"
    table = cut.to_dataset(posterior.space)
    assert table["total"].dims == ("state", "action") and table["v_aleatoric"].dims == ("state",)
    assert table.attrs["validity"] == str(cut.validity)


def test_bad_input():
    """One sentence each."""
    posterior, policy = _belief(False), np.zeros(S, int)
    with pytest.raises(TypeError, match="return_variance needs a posterior that has"):
        return_variance(object(), policy, Episodic(H))

    class Other:
        q_variance, v_variance, validity = np.ones((S, A)), np.ones(S), Validity("exact", "claimed")

    with pytest.raises(ValueError, match=r"epistemic.q_variance has shape \(3, 2\), expected \(3, 3, 2\)"):
        return_variance(posterior, policy, Episodic(H), epistemic=Other())


def test_variance_and_error_of_a_known_law():
    """The oracle itself: normal draws of variance 4, standard error 4 sqrt(2 / N)."""
    draws = 2 * np.random.default_rng(0).normal(size=200_000)
    variance, error = variance_and_error(draws)
    assert abs(variance - 4) < 6 * error and error == pytest.approx(4 * (2 / 200_000) ** 0.5, rel=0.05)
