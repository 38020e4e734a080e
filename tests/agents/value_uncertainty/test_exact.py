# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
"""The covariance recursion against plain numpy draws of the values, and against twins with one step done wrong.

Statistical tests compare every entry with its own standard error at Z = 6: false-alarm rate below 1e-6 a test (at most
100 entries, 2e-9 each). With 100,000 draws a relative error of a variance of 6 sqrt(2 / N) = 2.7 % is caught.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.value_uncertainty import exact
from bayes_mdp.agents.value_uncertainty import exact as covariance
from bayes_mdp.agents.value_uncertainty.exact import value_covariance
from bayes_mdp.inference import mixture
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit, StateActionSpace
from bayes_mdp.utils import memory
from tests.agents.believed import Z, layered, moments, not_levelled, with_known_cycles, worst

NUMBER = 100_000
CASES = {
    "layered": lambda: (layered(), Episodic(4)),
    "layered, by outcome, ends": lambda: (layered(1, by_outcome=True, ends=True), Episodic(4)),
    "acyclic": lambda: (not_levelled(), Discounted(0.9)),
    "acyclic, by outcome": lambda: (not_levelled(2, by_outcome=True), Discounted(0.9)),
    "known cycles": lambda: (with_known_cycles(), Discounted(0.9)),
    "until the end": lambda: (not_levelled()._replace(discount=1.0), FirstExit()),
}
SLOW = ("acyclic, by outcome", "until the end")


@pytest.fixture(scope="module")
def drawn():
    """Name -> (q, v) in draws, made once."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = CASES[name]()[0].values(1, NUMBER)
        return made[name]

    return get


def _errors(answer, drawn):
    """Worst entry in standard errors: covariance of q, of v, means of q."""
    q, v = drawn
    mean = worst(answer.q_mean, q.mean(0), q.std(0) / len(q) ** 0.5)
    return worst(answer.q_covariance, *moments(q)), worst(answer.v_covariance, *moments(v)), mean


@pytest.mark.few(1)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CASES])
def test_it_is_the_covariance_of_draws(name, drawn):
    """Means and covariances of q and v; all variances together within 1.5 %."""
    case, objective = CASES[name]()
    answer = value_covariance(case.posterior, case.policy, objective)
    assert answer.validity.kind == "exact" and bool(answer.converged) and answer.gap < 1e-9
    assert max(_errors(answer, drawn(name))) < Z
    estimate = drawn(name)[0].var(0)
    assert abs(np.sum(answer.q_variance) / np.sum(estimate) - 1) < 0.015


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("fault", ["pbar for E[p^2]", "two-sided", "no memory of own row"])
def test_the_draws_catch_a_wrong_step(fault, drawn, monkeypatch):
    """The twins differ from the recursion in one step, and fail the test above by far."""
    name = "layered" if fault == "pbar for E[p^2]" else "acyclic"
    case, objective = CASES[name]()
    monkeypatch.setattr(
        "bayes_mdp.agents.value_uncertainty.exact._parts", exact._all_parts
    )  # what is compiled would not see the fault
    if fault == "pbar for E[p^2]":
        real = covariance.covariance_by_layer
        jensen = lambda rows, g: real(rows._replace(factor=jnp.ones_like(rows.factor)), g)  # noqa: E731
        monkeypatch.setattr("bayes_mdp.agents.value_uncertainty.exact.covariance_by_layer", jensen)
    elif fault == "two-sided":
        monkeypatch.setattr(
            "bayes_mdp.agents.value_uncertainty.exact.acyclic", lambda rows, _, g: covariance.unroll_covariance(rows, g)
        )
    else:
        real = covariance.acyclic
        no_pair = lambda s: eqx.tree_at(lambda s: s.unknown_taken, s, jnp.zeros_like(s.unknown_taken))  # noqa: E731
        forgets = lambda rows, s, g: real(rows, no_pair(s), g)  # noqa: E731
        monkeypatch.setattr("bayes_mdp.agents.value_uncertainty.exact.acyclic", forgets)
    assert max(_errors(value_covariance(case.posterior, case.policy, objective), drawn(name))) > 2 * Z


@pytest.mark.usefixtures("x64")
def test_four_layers_by_hand():
    """Var Q of four layers is that of the formula applied by plain loops, layer after layer."""
    case = layered(3)
    answer = value_covariance(case.posterior, case.policy, Episodic(4))
    c, mean, pi = np.zeros((3, 3)), np.zeros(3), case.policy
    for h in reversed(range(4)):
        q_mean, q_cov = np.zeros((3, 2)), np.zeros((3, 2, 3, 2))
        for s, a, t, b in np.ndindex(3, 2, 3, 2):
            p, p2 = (x / x.sum() for x in (case.concentration[h, s, a], case.concentration[h, t, b]))
            q_mean[s, a] = case.loc[h, s, a] + p @ mean
            second = np.outer(p, p2)
            if (s, a) == (t, b):
                total = case.concentration[h, s, a].sum()
                second = (total * second + np.diag(p)) / (total + 1)
            shift = mean @ (second - np.outer(p, p2)) @ mean + np.sum(second * c)
            q_cov[s, a, t, b] = shift + (case.variance[h, s, a] if (s, a) == (t, b) else 0.0)
        np.testing.assert_allclose(answer.q_mean[h], q_mean, rtol=1e-10)
        np.testing.assert_allclose(answer.q_covariance[h], np.einsum("saxb,sx->sab", q_cov, np.eye(3)), rtol=1e-9)
        c, mean = np.einsum("sa,satb,tb->st", pi[h], q_cov, pi[h]), (pi[h] * q_mean).sum(-1)
        np.testing.assert_allclose(answer.v_covariance[h], c, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_a_mixture_by_total_covariance():
    """A chain of two layers under a latent shift: E[Cov] + Cov[E], and it is far from either component."""
    one = layered(4, horizon=2)
    two = one._replace(loc=one.loc + 2.0)
    posterior = mixture([one.posterior, two.posterior], weights=[0.3, 0.7])
    answer = value_covariance(posterior, one.policy, Episodic(2))
    assert answer.validity.kind == "exact" and "component" in answer.validity.reason
    draws = [case.values(seed, NUMBER) for seed, case in enumerate([one, two])]
    number = int(0.3 * NUMBER)
    # stratified by component: a variance of draws is then a little too well estimated, never worse
    joined = tuple(np.concatenate([a[:number], b[number:]]) for a, b in zip(*draws, strict=True))
    assert max(_errors(answer, joined)) < Z
    assert np.all(answer.q_variance > 1.5 * value_covariance(one.posterior, one.policy, Episodic(2)).q_variance)


def _ring():
    case = not_levelled()
    case.concentration[4, 0, 2] = 1.0
    return case


def test_cycles_are_refused_by_name_and_allowed_on_request():
    """The message names the cycle and what to use; the heuristic is marked as one."""
    case = _ring()
    sentence = (
        r"states 3 -> 4 -> 2 -> 3 can be visited again.*expected no unknown pair.*horizon.*exact.by_draws.*allow_cycles"
    )
    with pytest.raises(ValueError, match=sentence):
        value_covariance(case.posterior, case.policy, Discounted(0.9))
    answer = value_covariance(case.posterior, case.policy, Discounted(0.9), allow_cycles=True)
    assert answer.validity.kind == "heuristic" and "3 -> 4 -> 2 -> 3" in answer.validity.reason and answer.converged
    with pytest.raises(ValueError, match="objective is FirstExit, expected Discounted or Episodic with cycles"):
        value_covariance(case.posterior, case.policy, FirstExit(), allow_cycles=True)
    with pytest.raises(ValueError, match="stationary: all 5 steps share their rows"):
        value_covariance(case.posterior, case.policy, Episodic(5))
    with pytest.raises(ValueError, match="objective is AverageReward"):
        value_covariance(case.posterior, case.policy, AverageReward())


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_heuristic_is_the_infinite_unrolling():
    """The fixed point on a cycle is the first layer of a long layered belief whose steps are copies."""
    case, horizon, g = _ring(), 60, 0.6
    answer = value_covariance(case.posterior, case.policy, Discounted(g), allow_cycles=True)
    rows = covariance.Rows(*(jnp.asarray(x) for x in _copies(case, answer, g)))
    long = covariance.covariance_by_layer(
        rows._replace(**{k: jnp.stack([v] * horizon) for k, v in rows._asdict().items()}), g
    )
    np.testing.assert_allclose(answer.q_covariance, long.q[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(answer.v_covariance, long.v[0], rtol=1e-9, atol=1e-12)


def _copies(case, answer, g):
    posterior = case.posterior
    local = posterior.bellman_variance(answer.v_mean, g)
    return posterior.mean_mdp().transition_probs, posterior.variance_factor("dirichlet"), local, case.policy


def test_under_a_trace():
    """Layered, or cycles allowed: the same numbers as outside; else an error. The discount is an array leaf."""
    case, objective = CASES["layered"]()
    posterior = jax.tree.map(jnp.asarray, case.posterior)
    outside = value_covariance(posterior, case.policy, objective)
    inside = jax.jit(lambda p: value_covariance(p, case.policy, objective))(posterior)
    np.testing.assert_allclose(inside.q_covariance, outside.q_covariance, rtol=2e-4, atol=1e-5)
    assert inside.validity.kind == "exact"
    stationary = jax.tree.map(jnp.asarray, _ring().posterior)
    with pytest.raises(ValueError, match="inside a trace the structure cannot be inspected"):
        jax.jit(lambda p: value_covariance(p, _ring().policy, Discounted(0.9)))(stationary)
    solve = lambda g: value_covariance(stationary, _ring().policy, Discounted(g), allow_cycles=True)  # noqa: E731
    several = jax.jit(jax.vmap(lambda g: solve(g).q_covariance))(jnp.array([0.5, 0.9]))
    np.testing.assert_allclose(several[1], solve(0.9).q_covariance, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_vmapped_discount_keeps_the_structure():
    """vmap over the discount alone does not hide the structure of a concrete belief."""
    case = not_levelled()
    solve = lambda g: value_covariance(case.posterior, case.policy, Discounted(g))  # noqa: E731
    several = jax.vmap(solve)(jnp.array([0.5, 0.9]))
    assert several.validity.kind == "exact"
    np.testing.assert_allclose(several.v_covariance[1], solve(0.9).v_covariance, rtol=1e-3, atol=1e-4)


def test_tied_rows_are_refused_by_name():
    """One row for two states."""
    from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
    from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
    from bayes_mdp.inference.conjugate.rewards import known_rewards

    rows = dirichlet_rows(np.ones((1, 3)), (2, 1, 3), row=np.zeros((2, 1), int))
    posterior = conjugate_posterior(rows, known_rewards(np.zeros((2, 1))), StateActionSpace(2, 1, ends=True))
    with pytest.raises(ValueError, match=r"rows that are not independent .*expected independent rows.*exact\.by_draws"):
        value_covariance(posterior, np.zeros(2, int), Discounted(0.9))


def test_illegal_actions_and_the_dataset(key):
    """Mean -inf and no covariance where illegal; draws, factor and table of the answer."""
    legal = np.array([[True, True], [True, False], [True, True]])
    case = layered()
    policy = np.where(legal, case.policy, 0.0)
    case = case._replace(legal=legal, policy=policy / policy.sum(-1, keepdims=True))
    answer = value_covariance(case.posterior, case.policy, Episodic(4))
    assert np.all(np.isneginf(answer.q_mean[:, 1, 1])) and np.all(answer.q_covariance[:, 1, 1] == 0)
    assert np.all(np.isfinite(answer.v_covariance)) and np.all(np.isneginf(answer.sample(key)[:, 1, 1]))
    table = answer.to_dataset(case.posterior.space)
    assert table.q_variance.dims == ("step", "state", "action") and table.attrs["validity"] == "exact"
    assert "sd of V" in str(answer)


def test_samples_are_joint(key):
    """Cov of 20,000 draws of q(s, .), Z = 6 (false-alarm rate below 1e-6)."""
    case, objective = CASES["layered"]()
    answer = value_covariance(case.posterior, case.policy, objective)
    draws = np.asarray(jax.jit(jax.vmap(eqx.Partial(type(answer).sample, answer)))(jax.random.split(key, 20_000)))
    assert worst(answer.q_covariance, *moments(draws)) < Z
    diagonal = np.asarray(answer.q_covariance) * np.eye(2)
    assert worst(diagonal, *moments(draws)) > 2 * Z


def test_covariances_that_would_not_fit_in_memory_are_refused(monkeypatch):
    case, objective = CASES["acyclic"]()
    monkeypatch.setattr(memory, "NEGLIGIBLE", 0)
    monkeypatch.setattr(memory, "free_bytes", lambda: 2**10)
    with pytest.raises(ValueError, match=r"^posterior has \d+ states, .*sampled MDPs need less \(exact.by_draws\)"):
        value_covariance(case.posterior, case.policy, objective)
