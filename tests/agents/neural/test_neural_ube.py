# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Neural UBE: its targets beside plain loops, Sigma_a beside the inverse, the tabular fixed point, the noise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.agents.neural import MLP, NeuralUBE, QLearning, Spec, UncertaintyHead
from bayes_mdp.agents.neural.networks import Dense
from bayes_mdp.agents.neural.neural_ube import variance_of_action
from bayes_mdp.agents.neural.replay import Row, add, empty_replay
from bayes_mdp.agents.value_uncertainty import ube
from bayes_mdp.experiments.training.training_loop import begin, iterate
from bayes_mdp.inference.value import LinearGaussianPrior
from bayes_mdp.mdp import Discounted, Transitions
from tests.agents.neural.walk import ACTIONS, PLACES, Walk
from tests.agents.value_problems import belief
from tests.tf32 import MEASURED

FALSE_ALARM = 1e-6
ENVS = 3


def _agent(beta: float = 0.5, **head: Any) -> NeuralUBE:
    """Small, with a trunk that learns from the fourth iteration on."""
    learning = QLearning(discount=0.9, batch_size=8, learning_starts=10, learning_rate=1e-2, target_every=5)
    return NeuralUBE(MLP((6,)), learning, UncertaintyHead(**{"width": 4, **head}), LinearGaussianPrior(2.0), beta)


def _by_loop(agent: NeuralUBE, u: Any, features: Any, action: Any, local: Any, terminated: Any, truncated: Any) -> Any:
    """[UBE18]'s n-step target: local terms forward in time until an end, a cut or the last step, then u itself."""
    n, envs = local.shape
    target, weight = np.zeros(envs), np.ones(envs)
    for e in range(envs):
        factor = 1.0
        for k in range(n + 1):
            if k == n or truncated[k, e]:
                beyond = float(agent.head.apply(u, features[k, e][None])[0, action[k, e]])
                target[e] += factor * max(beyond, 0.0)
                weight[e] = k > 0
                break
            target[e] += factor * local[k, e]
            if terminated[k, e]:
                break
            factor *= agent.learning.discount**2
    return target, weight


@pytest.mark.parametrize("n", [1, 5, 150])
def test_targets(key, n):
    """Beside a plain loop, with ends and cuts everywhere; 40 environments at once, u of either sign."""
    agent, envs = _agent(num_steps=n, width=0), 40
    rng = np.random.default_rng(n)
    u = agent.head.init(key, 6, ACTIONS)
    features = rng.normal(size=(n + 1, envs, 6)).astype(np.float32)
    action = rng.integers(0, ACTIONS, (n + 1, envs))
    local = rng.random((n, envs)).astype(np.float32)
    fate = rng.random((n, envs)) * np.array([0.4, 2.0, 40.0, np.inf])[np.arange(envs) % 4]
    terminated, truncated = fate < 0.15, (fate >= 0.15) & (fate < 0.3)
    found = jax.jit(agent.targets)(u, features, action, local, terminated, truncated)
    expected = _by_loop(agent, u, features, action, local, terminated, truncated)
    np.testing.assert_allclose(found[0][expected[1] > 0], expected[0][expected[1] > 0], rtol=2e-5, atol=1e-6)
    np.testing.assert_array_equal(found[1], expected[1])
    assert {0.0, 1.0} == set(expected[1])


N, STEPS = 5, 60


@jax.jit
def _run(agent: NeuralUBE) -> tuple[Any, Any]:
    """The state after 60 iterations on the walk, and learner, memory and actions after every one of them."""

    def step(now: Any, i: Any) -> Any:
        later, _ = iterate(jax.random.key(4), agent, Walk(), now, i)
        return later, (later.learner, later.memory, later.replay.rows.action[i])

    return jax.lax.scan(step, begin(jax.random.key(3), agent, Walk(), ENVS, 64), jnp.arange(STEPS))


@pytest.fixture(scope="module")
def history() -> tuple[Any, Any]:
    """With targets of five steps."""
    return jax.device_get(_run(_agent(num_steps=N)))


def test_sigma_is_the_inverse(history):
    """(I / mu + sum of phi phi')^-1 over the features with which an action was taken, in float64; error below 1e-5."""
    _, (learner, memory, action) = history
    covariance = _at(jax.device_put(learner.belief), -1).covariance
    features = memory[:, -1].astype(float)  # of the parameters that acted, which moved meanwhile
    for a in range(ACTIONS):
        taken = features[action == a]
        exact = np.linalg.inv(np.eye(6) / 2.0 + taken.T @ taken)
        np.testing.assert_allclose(covariance[a], exact, atol=1e-5)
    moved = learner.q.parameters["trunk"][0].weight
    assert np.any(moved[-1] != moved[0])


def test_u_learns_what_the_loop_says(history):
    """Each gradient step on u, from the rows of the replay, its target by a plain loop, RMSProp by hand."""
    final, (learner, memory, action) = history
    agent, rows, n = _agent(num_steps=N), final.replay.rows, N
    before = _belief_before(learner)
    variance = jax.jit(lambda b, f: b.variance(f))
    local = np.zeros((STEPS, ENVS))
    for i in range(STEPS):
        each = variance(_at(before, i), memory[i, -1])
        local[i] = np.asarray(each)[np.arange(ENVS), action[i]]
    moments = jax.tree.map(lambda x: np.zeros_like(x[0], float), (learner.u, learner.u))

    def loss(u: Any, features: Any, action: Any, target: Any, weight: Any) -> Any:
        return jnp.mean(weight * (target - agent.head.apply(u, features)[jnp.arange(ENVS), action]) ** 2)

    slopes = jax.jit(jax.grad(loss))
    for i in range(n, STEPS):
        u = _at(learner.u, i - 1)
        window = slice(i - n, i + 1)
        ended, cut = rows.terminated[window][:-1], rows.truncated[window][:-1]
        args = (memory[i], action[window], local[window][:-1])
        target, weight = _by_loop(agent, u, *args, ended, cut)

        slope = slopes(u, memory[i, 0], action[i - n], target, weight)
        moments = (
            jax.tree.map(lambda m, g: 0.95 * m + 0.05 * g, moments[0], slope),
            jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g**2, moments[1], slope),
        )
        step = jax.tree.map(lambda m, v, g: 1e-3 * g / np.sqrt(v - m**2 + 0.01), *moments, slope)
        after = _at(learner.u, i)
        expected = jax.tree.map(lambda x, d: x - d, u, step)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-7), after, expected)


def _at(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda x: x[i], tree)


def _belief_before(learner: Any) -> Any:
    """Sigma_a before every iteration."""
    prior = LinearGaussianPrior(2.0).belief(ACTIONS, 6)
    return jax.tree.map(lambda x, first: np.concatenate([np.asarray(first)[None], x[:-1]]), learner.belief, prior)


def test_no_slope_of_u_reaches_the_trunk():
    """Whether the head learns or not (beta 0, so that the same is done): trunk, Q and Adam are the same to the bit."""
    learns, rests = (jax.device_get(_run(_agent(0.0, learning_rate=rate, num_steps=N)))[1][0] for rate in (1e-2, 0.0))
    jax.tree.map(np.testing.assert_array_equal, learns.q, rests.q)
    assert np.any(learns.q.parameters["trunk"][0].weight[-1] != learns.q.parameters["trunk"][0].weight[0])
    assert np.any(learns.u[0].weight[-1] != learns.u[0].weight[0])
    assert np.all(rests.u[0].weight[-1] == rests.u[0].weight[0])


def test_values_are_what_act_uses(key):
    """Without noise the best Q; sd is the root of u; u is never below zero."""
    agent = _agent()
    spec = Spec((PLACES,), np.dtype(np.uint8), ACTIONS, PLACES)
    learner = agent.init(key, spec)
    seen = jnp.eye(PLACES, dtype=jnp.uint8)
    values = agent.values(learner, seen)
    features = agent.trunk.apply(learner.q.parameters["trunk"], seen)
    raw = agent.head.apply(learner.u, features)
    assert np.any(raw < 0)
    np.testing.assert_allclose(values.u, np.maximum(raw, 0), rtol=1e-6)
    np.testing.assert_allclose(values.sd, np.sqrt(np.maximum(raw, 0)), rtol=1e-6)
    still = NeuralUBE(agent.trunk, agent.learning, agent.head, agent.posterior, beta=0.0)
    choice = still.act(key, learner, still.begin(key, spec), seen, jnp.zeros(PLACES, bool), jnp.int32(0))
    np.testing.assert_array_equal(choice.action, np.argmax(values.q, 1))
    np.testing.assert_array_equal(choice.memory[-1], features)


STATES, PAIRS, LANES, TIME, DISCOUNT = 4, 2, 16, 12_000, 0.8


def _tabular_step(agent: NeuralUBE, rows: Any, key: Any, carry: Any, i: Any) -> Any:
    """One step of 16 random walkers on a table; the features are the states, one-hot."""
    learner, memory, replay, state = carry
    key_action, key_state = jax.random.split(jax.random.fold_in(key, i))
    action = jax.random.randint(key_action, (LANES,), 0, PAIRS)
    following = jax.random.categorical(key_state, jnp.log(rows[state, action]))
    seen, no = jax.nn.one_hot(state, STATES), jnp.zeros(LANES, bool)
    replay = add(replay, i, Row(seen, action, jnp.zeros(LANES), no, no))
    memory = jnp.concatenate([memory[1:], seen[None]])
    learner, _ = agent.learn(key, learner, memory, replay, i)
    return (learner, memory, replay, following), (state, action, following)


def test_fixed_point_is_the_tabular_one(key):
    """One-hot features: nu is 1 / n, and u that of `agents.ube` (form "count"), within 5 %, largest to smallest 1.5.

    192,000 steps of a uniform policy on four states, the last third with a tenth of the learning rate.
    Without the square of the discount, or with u of another action than the one that was taken, it is missed by far.
    """
    _check_fixed_point(key)


def test_fixed_point_on_a_gpu(key, gpu_products):
    """The same. With a head in TF32 the ratios were .35 to 2.2: targets begin at 1e6, and leave weights behind that
    cancel the bias."""
    _check_fixed_point(key)


def _check_fixed_point(key: Any) -> None:
    rng = np.random.default_rng(6)
    rows = rng.dirichlet(np.full(STATES, 0.3), (STATES, PAIRS))
    spec = Spec((STATES,), np.dtype(np.float32), PAIRS, LANES)
    learning = QLearning(discount=DISCOUNT, batch_size=1, learning_starts=10**9)

    @jax.jit
    def run(key: Any) -> Any:
        def phase(carry: Any, rate: Any, times: Any) -> Any:
            agent = NeuralUBE(MLP(()), learning, UncertaintyHead(0, rate), LinearGaussianPrior(1e6))
            return jax.lax.scan(lambda c, i: _tabular_step(agent, jnp.asarray(rows), key, c, i), carry, times)

        agent = NeuralUBE(MLP(()), learning, UncertaintyHead(0), LinearGaussianPrior(1e6))
        no = jnp.zeros(LANES, bool)
        state = jnp.zeros(LANES, int)
        row = Row(jnp.zeros((LANES, STATES)), state, jnp.zeros(LANES), no, no)
        carry = (agent.init(key, spec), agent.begin(key, spec), empty_replay(4, row), state)
        times = jnp.arange(TIME)
        carry, early = phase(carry, 0.05, times[:8000])
        carry, late = phase(carry, 0.005, times[8000:])
        return carry[0], jax.tree.map(lambda *x: jnp.concatenate(x), early, late)

    learner, seen = jax.device_get(run(key))
    s, a, z = (x.ravel() for x in seen)
    counts = np.zeros((STATES, PAIRS))
    np.add.at(counts, (s, a), 1)
    eye = jnp.eye(STATES)
    np.testing.assert_allclose(learner.belief.variance(eye), 1 / counts, rtol=1e-3)
    data = Transitions(s, a, np.zeros(len(s)), z, np.zeros(len(s), bool))
    posterior = belief(np.full((STATES, PAIRS, STATES), 1e-3), np.zeros((STATES, PAIRS)), np.zeros((STATES, PAIRS)))
    policy = np.full((STATES, PAIRS), 1 / PAIRS)
    table = ube.solve(posterior.update(data), policy, Discounted(DISCOUNT), q_max=1 / DISCOUNT, form="count").q_variance
    ratio = UncertaintyHead(0).apply(learner.u, eye) / table
    MEASURED.append(float(np.max(np.abs(ratio - 1))))
    np.testing.assert_allclose(ratio, 1.0, atol=0.05)
    assert np.max(table) / np.min(table) > 1.5


def _chosen(key: Any, *, held: bool) -> np.ndarray:
    """First actions [steps, environments] where Q = (0, .3), u = (1, .25), beta = .8, everywhere."""
    agent = NeuralUBE(MLP(()), QLearning(), UncertaintyHead(0), beta=0.8)
    spec = Spec((1,), np.dtype(np.float32), 2, 4)
    learner = agent.init(key, spec)
    q = Dense(jnp.zeros((1, 2)), jnp.array([0.0, 0.3]))
    learner = learner._replace(
        q=learner.q._replace(parameters={"trunk": (), "q": q}), u=(Dense(jnp.zeros((1, 2)), jnp.array([1.0, 0.25])),)
    )
    memory, seen = agent.begin(key, spec), jnp.zeros((4, 1))

    def act(k: Any) -> Any:
        return agent.act(k, learner, memory, seen, jnp.zeros(4, bool), jnp.int32(0)).action

    keys = jax.random.split(key, 8192)
    return np.asarray(jax.jit(jax.vmap(act))(jnp.repeat(keys[::8], 8) if held else keys))


def _faults(actions: np.ndarray) -> tuple[float, float]:
    """p-values: how often the first action is taken; whether a step, or an environment, tells about the next."""
    first = np.array(actions == 0)
    chance = stats.norm.cdf(-0.3 / (0.8 * np.sqrt(1.25)))
    share = stats.binomtest(int(first.sum()), first.size, chance).pvalue
    steps = stats.fisher_exact(_table(first[:-1], first[1:])).pvalue
    lanes = stats.fisher_exact(_table(first[:, :-1], first[:, 1:])).pvalue
    return float(share), float(min(steps, lanes))


def _table(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.histogram2d(x.ravel(), y.ravel(), 2)[0].astype(int)


def test_noise(key):
    """Normal, of scale beta sqrt(u), its own for every action, step and environment (false alarm 1e-6 each).

    32,768 choices: one noise for both actions, or a scale 10 % off, is caught. The twin holds its noise for 8 steps.
    """
    share, together = _faults(_chosen(key, held=False))
    assert share > FALSE_ALARM
    assert together > FALSE_ALARM
    assert _faults(_chosen(key, held=True))[1] < FALSE_ALARM


@pytest.mark.parametrize("envs", [1, 3])
def test_variance_of_what_was_taken(key, envs):
    """The short cut of one environment says what the belief says."""
    features = jax.random.normal(key, (2, envs, 6))
    action = jnp.arange(envs) + 1 - envs // 3
    learnt = LinearGaussianPrior(2.0, 0.5).belief(ACTIONS, 6).update(features[0], action)
    found = variance_of_action(learnt, features[1], action)
    np.testing.assert_allclose(found, learnt.variance(features[1])[np.arange(envs), action], rtol=1e-5)


def test_a_replay_that_is_too_short(key):
    """n steps and the one that follows must fit."""
    agent, env = _agent(num_steps=8), Walk()
    now = jax.eval_shape(lambda: begin(key, agent, env, ENVS, 8))
    with pytest.raises(ValueError, match="the replay holds 8 rows, expected more than num_steps = 8"):
        jax.eval_shape(lambda now: iterate(key, agent, env, now, jnp.int32(0)), now)
    with pytest.raises(ValueError, match="num_steps is 0"):
        UncertaintyHead(num_steps=0)
