"""K-learning with mixtures: the cumulant generating function of draws, the temperature against Brent's method.

Monte Carlo: fixed keys, 6 standard errors (false-alarm rate 2e-9 an entry, 1e-7 a test). The smallest fault to catch is
the weighted mean of the components' K in place of their exponential utility: it is shown to be caught.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.optimize import brentq

import bayes_mdp as bm
from bayes_mdp.agents import KLearning
from bayes_mdp.agents.common.mean_model import MeanModel
from bayes_mdp.agents.optimism.k_learning import derivatives, k_values, minimise, optimal_temperature
from bayes_mdp.agents.optimism.k_model import KMixture, KModel
from bayes_mdp.mdp import MDP, Problem
from bayes_mdp.models import MDPSpec
from tests.agents.k_reference import Plain, plain

Z, DRAWS, STEP = 6.0, 100_000, 1e-30
SPACE, HORIZON = bm.StateActionSpace(3, 2), 3
START = np.eye(3)[0]


def regimes(space):
    """Exact mixture: rewards of one of two levels, rows of one of two strengths."""
    high = numpyro.sample("high", dist.Bernoulli(0.3))
    with space.plates():
        strength = jnp.where(high, 4.0, 0.5) * jnp.ones(space.n_outcomes)
        probs = numpyro.sample("transition", dist.Dirichlet(strength))
        level = numpyro.sample("level", dist.Normal(jnp.where(high, 1.0, -0.5), jnp.where(high, 0.2, 0.6)))
    return MDPSpec(probs, dist.Normal(level, 0.5))


def paid(space):
    """Exact mixture: mean rewards in [0, 1], as [KL21] assumes."""
    calm = numpyro.sample("calm", dist.Bernoulli(0.4))
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(jnp.where(calm, 3.0, 0.5) * jnp.ones(space.n_outcomes)))
        share = numpyro.sample("share", dist.Beta(jnp.where(calm, 3.0, 1.0), 1.0))
    return MDPSpec(probs, dist.Bernoulli(share))


def uncertain_level(space):
    """Collapsed: the prior mean of the rewards is shared."""
    centre = numpyro.sample("centre", dist.StudentT(5.0, 0.0, 1.0))
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(jnp.ones(space.n_outcomes)))
        level = numpyro.sample("level", dist.Normal(centre, 0.4))
    return MDPSpec(probs, dist.Normal(level, 0.5))


def _data() -> Any:
    rng = np.random.default_rng(0)
    state, action, following = (rng.integers(n, size=12) for n in (3, 2, 3))
    return bm.Transitions(state, action, rng.integers(2, size=12).astype(np.float32), following)


@lru_cache
def belief(prior: Any) -> Any:
    tiny = bm.inference.NUTS(num_warmup=100, num_samples=40, num_chains=1)
    found = bm.infer(jax.random.key(0), prior, _data(), space=SPACE, sampler=tiny)
    assert found.method == {uncertain_level: "collapsed"}.get(prior, "mixture")
    return found


def utility(draws: np.ndarray, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """tau log E exp(x / tau) of draws [N ...], and its standard error."""
    top = draws.max(0)
    exponential = np.exp((draws - top) / tau)
    mean = exponential.mean(0)
    return top + tau * np.log(mean), tau * exponential.std(0) / mean / len(draws) ** 0.5


@pytest.mark.filterwarnings("ignore::bayes_mdp.inference.SamplingWarning")
@pytest.mark.parametrize("prior", [regimes, pytest.param(uncertain_level, marks=pytest.mark.slow)])
def test_one_step_is_the_cumulant_generating_function_of_the_mean_reward(prior):
    """Gaussian mean rewards given the component: tau log E exp(r / tau) exactly, by draws of the posterior."""
    posterior, tau = belief(prior), 0.8
    k = np.asarray(k_values(posterior, tau, bonus="posterior", horizon=1))[0]
    sample = jax.jit(lambda key: posterior.sample(key, (DRAWS,)).reward)
    expected, error = utility(np.asarray(sample(jax.random.key(1)), np.float64), tau)
    assert (np.abs(k - expected) < Z * error).all()
    parts = jax.vmap(lambda part: k_values(part, tau, bonus="posterior", horizon=1)[0])(posterior.components)
    averaged = np.tensordot(posterior.weights, parts, axes=1)
    assert (expected - averaged > Z * error).any(), "the weighted mean of K would be caught"


@pytest.mark.slow
def test_values_of_an_episode_are_upper_bounds():
    """K_l >= tau log E exp(Q*_l / tau) for rewards in [0, 1], by draws; J bounds the expected optimal value."""
    posterior, tau = belief(paid), 0.6
    k = np.asarray(k_values(posterior, tau, noise=0.5, horizon=HORIZON))
    mdps = jax.jit(lambda key: posterior.sample(key, (20_000,)))(jax.random.key(2))
    rows, reward = np.asarray(mdps.transition_probs, np.float64), np.asarray(mdps.reward, np.float64)
    values = np.zeros(rows.shape[:2])
    for step in reversed(range(HORIZON)):
        q = reward + np.einsum("nsaz,nz->nsa", rows, values)
        values = q.max(-1)
        expected, error = utility(q, tau)
        assert (k[step] >= expected - Z * error).all(), step
    best = optimal_temperature(posterior, START, noise=0.5, horizon=HORIZON)
    assert best.objective >= values[:, 0].mean() - Z * values[:, 0].std() / 20_000**0.5


def stacked(problems: list[Plain], weights: np.ndarray) -> KMixture:
    """The problems as components."""

    def model(problem: Plain) -> KModel:
        ends = np.maximum(1 - problem.rows.sum(-1), 0.0)
        mdp = MDP(problem.rows, problem.reward, end_probs=ends, legal=problem.legal)
        mean = MeanModel(jnp.asarray(problem.reward), mdp, jnp.asarray(problem.legal), len(problem.reward))
        return KModel(mean, jnp.asarray(problem.numerator))

    parts = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(model, problems))
    return KMixture(parts, jnp.maximum(jnp.log(jnp.asarray(weights)), -1e20))


class Mixed:
    """In plain numpy: K by components, J and its derivatives by complex steps."""

    def __init__(self, problems: list[Plain], weights: np.ndarray) -> None:
        self.problems = [problem for problem, weight in zip(problems, weights, strict=True) if weight > 0]
        self.weights = weights[weights > 0]

    def k(self, tau: Any) -> Any:
        """tau log sum_k w_k exp(K_k / tau)."""
        each = np.stack([problem.k(tau) for problem in self.problems])
        top = np.real(each).max(0)
        finite = np.isfinite(top)
        x = np.where(finite, each - np.where(finite, top, 0.0), 0.0) / tau
        total = np.tensordot(self.weights, np.exp(x), axes=1)
        return np.where(finite, top + tau * np.log(total), -np.inf)

    def objective(self, tau: Any) -> Any:
        """J."""
        k = self.k(tau)[0]
        top = k.real.max(-1, keepdims=True)
        weight = np.where(np.isfinite(k.real), np.exp((k - top) / tau), 0.0)
        return self.problems[0].initial @ (top[:, 0] + tau * np.log(weight.sum(-1)))

    def gradient(self, tau: Any) -> Any:
        """J'."""
        return self.objective(tau + 1j * STEP).imag / STEP

    def brent(self) -> float:
        """Where J' is zero."""
        root: Any = brentq(lambda x: self.gradient(np.exp(x)) * np.exp(x), -12.0, 10.0, xtol=1e-14)
        return float(np.exp(root))


WEIGHTS = [np.array([0.2, 0.5, 0.3]), np.array([1.0, 0.0, 0.0]), np.array([1e-9, 0.5, 0.5])]


def case(number: int, *, known: bool = False) -> tuple[Mixed, Any, Any]:
    """Three random problems with the mask and the start of the first; `known`: without bonus."""
    first = plain(number)
    problems = [plain(number + 10 * i)._replace(legal=first.legal, initial=first.initial) for i in range(3)]
    if known:
        problems = [problem._replace(numerator=0.0 * problem.numerator) for problem in problems]
    weights = WEIGHTS[number % 3]
    return Mixed(problems, weights), stacked(problems, weights), jnp.asarray(first.initial)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("number", range(3))
def test_derivatives_and_values(number):
    """Against plain numpy; J'' by central differences of J'."""
    right, model, initial = case(number)
    for tau in (0.05, 0.4, 3.0):
        value, first, second = jax.jit(derivatives)(model, initial, tau)
        np.testing.assert_allclose(value, right.objective(tau), rtol=1e-11)
        np.testing.assert_allclose(first, tau * right.gradient(tau), rtol=1e-8, atol=1e-10)
        change = (right.gradient(tau * (1 + 1e-6)) - right.gradient(tau * (1 - 1e-6))) / (2e-6 * tau)
        np.testing.assert_allclose(second, tau**2 * change, rtol=1e-4, atol=1e-7)
        assert second > 0, "J is convex"
        np.testing.assert_allclose(jax.jit(lambda m, t: m.k_values(t))(model, tau), right.k(tau), rtol=1e-10)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("number", range(3))
def test_the_temperature_is_that_of_brent(number, known):
    """With and without bonuses: what the components differ by is enough for a temperature above zero."""
    right, model, initial = case(number, known=known)
    answer = jax.jit(minimise)(model, initial, 0.0)
    assert bool(answer.converged) and 0 <= float(answer.gap) < 1e-12 * max(1.0, abs(float(answer.objective)))
    if known and number == 1:  # one component has all the weight: nothing is unknown, J is least at 0
        np.testing.assert_allclose(answer.objective, initial @ right.problems[0].bellman()[0].max(-1), rtol=1e-12)
        return
    np.testing.assert_allclose(answer.tau, right.brent(), rtol=1e-8)
    np.testing.assert_allclose(answer.objective, right.objective(right.brent()), rtol=1e-12)
    np.testing.assert_allclose(answer.k, right.k(float(answer.tau)), rtol=1e-8)


@pytest.mark.usefixtures("x64")
def test_one_component_is_the_component():
    """Alone, thrice, or with others of weight zero."""
    problem, other = plain(0), plain(5)._replace(legal=plain(0).legal, initial=plain(0).initial)
    initial = jnp.asarray(problem.initial)
    tau = problem.brent()
    for problems, weights in (([problem], [1.0]), ([problem] * 3, [0.2, 0.5, 0.3]), ([problem, other], [1.0, 0.0])):
        answer = jax.jit(minimise)(stacked(problems, np.array(weights)), initial, 0.0)
        np.testing.assert_allclose(answer.tau, tau, rtol=1e-8)
        np.testing.assert_allclose(answer.k, problem.k(tau), rtol=1e-7)


@pytest.mark.filterwarnings("ignore::bayes_mdp.inference.SamplingWarning")
@pytest.mark.parametrize(
    "temperature", ["optimal", *[pytest.param(x, marks=pytest.mark.slow) for x in ("schedule", 0.3)]]
)
@pytest.mark.parametrize("prior", [regimes, pytest.param(uncertain_level, marks=pytest.mark.slow)])
def test_the_agent_plans(prior, temperature):
    """Finite K; the policy is proportional to exp(K / tau); the plan of a compiled call is that of the functions."""
    agent, problem = KLearning(temperature, bonus="posterior"), Problem(SPACE, bm.Episodic(HORIZON), START)
    agent.check_belief(belief(prior))
    state = agent.init(jax.random.key(0), problem)
    policy, after = jax.jit(agent.plan)(jax.random.key(0), problem, state, belief(prior))
    expected = k_values(belief(prior), policy.temperature, bonus="posterior", horizon=HORIZON)
    np.testing.assert_allclose(policy.q, expected, rtol=2e-5)
    assert np.isfinite(policy.q).all() and after.num_plans == 1
    if temperature == "optimal":
        best = optimal_temperature(belief(prior), START, bonus="posterior", horizon=HORIZON)
        assert bool(best.converged) and best.gap < 1e-10 * abs(best.objective)
        np.testing.assert_allclose(policy.temperature, best.tau, rtol=1e-2)
        np.testing.assert_allclose(policy.q, best.k, rtol=1e-2)
