"""`solve_soft` against long iterations in plain numpy, published numbers, its limits and its refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from scipy.special import log_softmax, logsumexp

from bayes_mdp import planning
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit
from bayes_mdp.planning.bellman import SoftMax
from bayes_mdp.planning.policy_arrays import action_values
from tests.planning.gradient_problems import river
from tests.planning.planning_problems import KINDS, arrays, listed, make_mdp
from tests.planning.test_derivatives import AT, close, river_exit

solve_soft = jax.jit(planning.solve_soft)


def soft(q, legal, temperature):
    """temperature log sum exp(q / temperature) over legal actions."""
    return temperature * logsumexp(np.where(legal, q / temperature, -np.inf), axis=1)


def long_iteration(rows, reward, legal, discount, temperature, sweeps=20_000):
    """Plain value iteration."""
    v = np.zeros(len(reward))
    for _ in range(sweeps):
        new = soft(reward + discount * rows @ v, legal, temperature)
        if np.array_equal(new, v):
            break
        v = new
    return v


def test_river(x64):
    def value(x):
        return planning.solve_soft(river(x[0], x[1], x[2]), Discounted(x[3]), 0.1).v[0]

    v, gradient, hessian = jax.jit(lambda x: (value(x), jax.grad(value)(x), jax.hessian(value)(x)))(AT)
    close(v, 8.1366386875)
    close(gradient, [20.6603331988, -34.1596389806, 0.0845191040, 279.0092875703])
    close([hessian[0, 0], hessian[2, 2]], [-61.6293227638, 0.8623846852])


@pytest.mark.few(1)
@pytest.mark.parametrize("sparse", [False, True])
def test_discounted_against_long_iteration(sparse, x64):
    for kind in KINDS:
        rows, reward, _, legal = data = arrays(kind, 6)
        mdp = listed(make_mdp(*data)) if sparse else make_mdp(*data)
        for discount, temperature in ((0.0, 1.0), (0.9, 0.05), (0.99, 3.0)):
            found = solve_soft(mdp, Discounted(discount), temperature)
            v = long_iteration(rows, reward, legal, discount, temperature)
            q = np.where(legal, reward + discount * rows @ v, -np.inf)
            assert found.converged
            assert np.abs(found.v - v).max() <= found.gap + 1e-12 * (1 + np.abs(v).max())
            assert np.abs(found.q - q)[legal].max() <= found.gap + 1e-12 * (1 + np.abs(v).max())
            assert found.gap <= 1e-9 * max(1.0, np.abs(v).max())
            np.testing.assert_allclose(found.log_policy, log_softmax(q / temperature, axis=1), atol=1e-9)
            np.testing.assert_allclose(np.sum(found.policy, -1), 1.0, atol=1e-14)
            assert np.all(np.asarray(found.policy)[~legal] == 0)


def test_patience_of_econometrics(x64):
    """Discount .9999: a few Newton steps and a proven bound, where sweeps would take a hundred thousand."""
    rows, reward, _, legal = data = arrays("masked", 6)
    found = solve_soft(make_mdp(*data), Discounted(0.9999), 1.0)
    assert found.converged and found.iterations <= 12 and found.gap <= 1e-6
    q = reward + 0.9999 * rows @ np.asarray(found.v)
    assert np.abs(soft(q, legal, 1.0) - found.v).max() <= 1e-10
    again = jax.jit(lambda s: planning.solve_soft(make_mdp(*data), Discounted(0.9999), 1.0, start=s))(found)
    assert again.iterations <= 2
    np.testing.assert_allclose(again.v, found.v, rtol=1e-12)


def test_bus_engines(x64):
    """Rust 1987, group 4: discount .9999, 90 bins of mileage, from his estimates (which have four digits)."""
    n, rc, cost, increments = 90, 10.0749422, 2.2930, np.array([0.3919, 0.5953, 0.0128])
    keep = np.zeros((n, n))
    for step, chance in enumerate(increments):
        np.add.at(keep, (np.arange(n), np.minimum(np.arange(n) + step, n - 1)), chance)
    rows = np.stack([keep, np.broadcast_to(keep[0], (n, n))], 1)
    reward = np.stack([-0.001 * cost * np.arange(n), np.full(n, -rc)], 1)
    found = solve_soft(MDP(rows, reward), Discounted(0.9999), 1.0)
    assert found.converged and found.iterations <= 10
    expected = keep @ np.asarray(found.v)
    np.testing.assert_allclose([expected[0], expected[0] - expected[-1]], [-1278.656, 7.3258], rtol=1e-4)
    replaced = [0.00004212, 0.00130847, 0.01075539, 0.03452315, 0.06494604, 0.07270831]
    np.testing.assert_allclose(found.policy[np.array([0, 20, 40, 60, 80, 89]), 1], replaced, rtol=1e-4)


def test_other_objectives_against_long_iteration(x64):
    temperature = 0.3
    rows, reward, _, legal = arrays("masked", 6)
    mdp = make_mdp(rows, reward, np.zeros_like(reward), legal)
    # Average reward: lazy sweeps, whose fixed points are the same.
    v = change = np.zeros(6)
    for _ in range(5000):
        change = soft(reward + rows @ v, legal, temperature) - v
        v = v + change / 2
        v -= v[0]
    found = solve_soft(mdp, AverageReward(), temperature)
    assert found.converged and abs(found.gain - change.mean()) <= found.gap + 1e-13
    np.testing.assert_allclose(found.v, v, atol=1e-11)
    # Episodes, from the last step.
    found = solve_soft(mdp, Episodic(4), temperature)
    v = np.zeros(6)
    for step in reversed(range(4)):
        v = soft(reward + rows @ v, legal, temperature)
        assert np.abs(found.v[step] - v).max() <= found.gap <= 1e-12
    assert found.policy.shape == found.log_policy.shape == (4, 6, 2)
    # Until the end.
    rows, reward, ends, legal = arrays("ending", 6)
    ends, rows = ends / 2 + 0.3, rows / rows.sum(-1, keepdims=True)
    rows = rows * (1 - ends[..., None])
    for sparse in (False, True):
        mdp = make_mdp(rows, reward, ends, legal)
        found = solve_soft(listed(mdp) if sparse else mdp, FirstExit(), temperature)
        v = long_iteration(rows, reward, legal, 1.0, temperature)
        assert found.converged and np.abs(found.v - v).max() <= found.gap <= 1e-10


def test_it_comes_down_to_solve(x64):
    data, size = arrays("masked", 6), np.log(2)
    mdp, legal = make_mdp(*data), data[-1]
    found = None
    for discount in (0.5, 0.95):
        hard = planning.solve(mdp, Discounted(discount))
        for temperature in (1.0, 1e-2, 1e-5):
            found = solve_soft(mdp, Discounted(discount), temperature)
            above = np.asarray(found.v - hard.v)
            assert above.min() >= -1e-11 and above.max() <= temperature * size / (1 - discount) + 1e-11
    # Probabilities below the least float still have a logarithm.
    assert found is not None
    log_policy = np.asarray(found.log_policy)[legal]
    assert np.isfinite(log_policy).all() and log_policy.min() < -1000 and np.asarray(found.policy)[legal].min() == 0


def test_entropy_is_what_evaluate_leaves_out(x64):
    mdp, temperature, discount = make_mdp(*arrays("random", 6)), 0.7, 0.9
    found = solve_soft(mdp, Discounted(discount), temperature)
    entropy = -np.sum(found.policy * found.log_policy, -1)
    chain = np.einsum("sa,saz->sz", found.policy, mdp.transition_probs)
    worth = np.linalg.solve(np.eye(6) - discount * chain, temperature * entropy)
    plain = planning.evaluate(mdp, found.policy, Discounted(discount)).v
    np.testing.assert_allclose(found.v, plain + worth, rtol=1e-12)


def test_float32_is_honest():
    rows, reward, _, legal = data = arrays("masked", 6)
    v = long_iteration(rows, reward, legal, 0.99, 0.5)
    found = solve_soft(make_mdp(*data), Discounted(0.99), 0.5)
    assert np.abs(np.asarray(found.v, float) - v).max() <= found.gap < 0.05


def test_an_exit_that_wandering_outweighs(x64):
    mdp = river_exit(0.35, 0.05)
    assert planning.solve_soft(mdp, FirstExit(), 1.0).converged
    with pytest.raises(ValueError, match=r"temperature is 2, expected a lower one: no finite soft values"):
        planning.solve_soft(mdp, FirstExit(), 2.0)
    found = solve_soft(mdp, FirstExit(), 2.0)
    assert not found.converged and np.isposinf(found.gap)
    # One state, go on or leave, no reward: z = z + 1 for z = exp(v / temperature) has no solution at any temperature.
    loop = MDP(np.array([[[1.0], [0.0]]]), np.zeros((1, 2)), end_probs=np.array([[0.0, 1.0]]))
    assert not solve_soft(loop, FirstExit(), 0.01).converged
    # At a cost of 1 a round z = z exp(-1 / temperature) + 1.
    costs = MDP(loop.transition_probs, np.array([[-1.0, 0.0]]), end_probs=loop.end_probs)
    found = solve_soft(costs, FirstExit(), 2.0)
    assert abs(found.v[0] - 2 * -np.log1p(-np.exp(-0.5))) <= found.gap <= 1e-12
    trapped = MDP(np.array([[[1.0]]]), np.array([[-1.0]]), end_probs=np.array([[0.0]]))
    with pytest.raises(ValueError, match="every policy never ends from state 0"):
        planning.solve_soft(trapped, FirstExit(), 1.0)


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf])
def test_temperatures_that_are_none(temperature):
    with pytest.raises(ValueError, match=r"temperature is .*, expected a finite number greater than zero"):
        planning.solve_soft(make_mdp(*arrays("random", 6)), Discounted(0.9), temperature)


def test_an_array_of_temperatures():
    with pytest.raises(ValueError, match=r"temperature has shape \(2,\), expected"):
        planning.solve_soft(make_mdp(*arrays("random", 6)), Discounted(0.9), np.ones(2))
    with pytest.raises(ValueError, match=r"temperature has shape \(2,\), expected one number"):
        solve_soft(make_mdp(*arrays("random", 6)), Discounted(0.9), np.ones(2))


@pytest.mark.slow
def test_nuts_on_soft_values_agrees_with_a_grid(x64):
    """Two rewards of the river from 150 choices. Means to .3 and widths to .4 of a posterior standard deviation.

    With 300 effective draws of 2,000 that is over 5 of their errors: false alarm below 1e-6.
    """
    rng = np.random.default_rng(0)
    states = rng.integers(0, 6, 150)

    def log_policy(left, right):
        mdp = river(0.35, 0.05, left)
        mdp = MDP(mdp.transition_probs, mdp.reward.at[5, 1].set(right))
        return planning.solve_soft(mdp, Discounted(0.9), 0.5).log_policy

    choices = (rng.uniform(size=150) < np.exp(log_policy(0.3, 1.0))[states, 1]).astype(int)

    def model():
        left = numpyro.sample("left", dist.Normal(0.0, 1.0))
        right = numpyro.sample("right", dist.Normal(0.0, 2.0))
        table = numpyro.deterministic("log_policy", log_policy(left, right))
        of_choices = dist.Categorical(logits=jnp.asarray(table)[states])
        numpyro.sample("choice", of_choices, obs=choices)  # pyright: ignore[reportArgumentType]

    mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=2000, progress_bar=False)
    mcmc.run(jax.random.key(1))
    assert mcmc.get_samples()["log_policy"].shape == (2000, 6, 2)
    grid = np.meshgrid(np.linspace(-2.5, 2.5, 121), np.linspace(-3, 6, 121), indexing="ij")
    left, right = (x.ravel() for x in grid)
    likelihood = jax.jit(jax.vmap(lambda a, b: jnp.sum(log_policy(a, b)[states, choices])))(left, right)
    weights = np.exp(likelihood - np.max(likelihood) - left**2 / 2 - right**2 / 8)
    weights /= weights.sum()
    for name, x in (("left", left), ("right", right)):
        mean = np.sum(weights * x)
        sd = np.sqrt(np.sum(weights * (x - mean) ** 2))
        draws = np.asarray(mcmc.get_samples()[name])
        assert abs(draws.mean() - mean) < 0.3 * sd and abs(draws.std() - sd) < 0.4 * sd


def test_discounted_episodes_are_the_soft_recursion(x64):
    for kind in KINDS:
        rows, reward, _, legal = data = arrays(kind, 6)
        found = solve_soft(make_mdp(*data), Episodic(5, 0.8), 0.3)
        v = np.zeros(6)
        for h in reversed(range(5)):
            q = reward + 0.8 * rows @ v
            v = soft(q, legal, 0.3)
            assert np.abs(found.v[h] - v).max() <= found.gap + 1e-14
            assert np.abs(found.q[h] - q)[legal].max() <= found.gap + 1e-14
        assert found.gap < 1e-11


def test_the_soft_maximum_and_its_chain(x64):
    """By scipy; a sweep of the chain of its policy, entropy in the reward, is the maximum of a sweep."""
    rows, reward, ends, legal = arrays("masked", 6)
    mdp, v, maximum = make_mdp(rows, reward, ends, legal), np.linspace(-1.0, 2.0, 6), SoftMax(jnp.asarray(0.3))
    q = action_values(mdp, jnp.asarray(v), 0.9)
    value = soft(np.asarray(q), legal, 0.3)
    np.testing.assert_allclose(maximum.value(q), value, rtol=1e-12)
    chain = maximum.chain(mdp, q)
    np.testing.assert_allclose(chain.reward[:, 0] + 0.9 * chain.transition_probs[:, 0] @ v, value, rtol=1e-12)
