# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Targets, losses, optimisers and the timetable of Q-learning beside plain loops and, where it is there, rlax."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.neural import QLearning
from bayes_mdp.agents.neural.replay import Replay, Row, empty_replay
from bayes_mdp.agents.neural.replay_learning import descend, scale

B, A = 11, 4


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    """Of a batch."""
    rng = np.random.default_rng(0)
    draw = {name: rng.normal(size=(B, A)).astype(np.float32) for name in ("q", "next_q", "online")}
    small = {"reward": rng.normal(size=B).astype(np.float32), "terminated": rng.random(B) < 0.4}
    return draw | small | {"action": rng.integers(0, A, B)}


@pytest.mark.parametrize("double", [False, True])
def test_targets(numbers, double):
    """r + gamma max_a Q, of the action that the online network likes best if double; nothing beyond an end."""
    learning = QLearning(discount=0.9, double=double)
    found = learning.target(numbers["reward"], numbers["terminated"], numbers["next_q"], numbers["online"])
    for b in range(B):
        best = int(np.argmax((numbers["online"] if double else numbers["next_q"])[b]))
        beyond = 0.0 if numbers["terminated"][b] else 0.9 * numbers["next_q"][b, best]
        assert found[b] == pytest.approx(numbers["reward"][b] + beyond, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("double", [False, True])
def test_targets_are_those_of_rlax(numbers, double):
    """DeepMind's library says the same."""
    try:
        import rlax  # pyright: ignore[reportMissingImports]
    except (ImportError, AttributeError) as error:  # what it needs lags behind JAX
        pytest.skip(f"rlax: {error}")
    n = numbers
    discount = jnp.where(n["terminated"], 0.0, 0.9)
    rule, extra = (rlax.double_q_learning, (n["online"],)) if double else (rlax.q_learning, ())
    error = jax.vmap(rule)(n["q"], n["action"], n["reward"], discount, n["next_q"], *extra)
    found = QLearning(discount=0.9, double=double).target(n["reward"], n["terminated"], n["next_q"], n["online"])
    np.testing.assert_allclose(found - n["q"][np.arange(B), n["action"]], error, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("huber", [False, True])
def test_error(huber):
    """Half a square, a line beyond 1; weight 0 takes a row out; no slope with respect to the target."""
    learning = QLearning(huber=huber)
    predicted, target = np.float32([0.0, 0.5, 3.0, -2.5]), np.float32([0.25, 2.0, 0.0, -2.0])
    weight = np.float32([1.0, 1.0, 1.0, 0.0])
    miss = np.abs(predicted - target)
    each = np.where(miss > 1, miss - 0.5, 0.5 * miss**2) if huber else 0.5 * miss**2
    assert learning.error(predicted, target, weight) == pytest.approx(np.mean(weight * each), rel=1e-6)
    slope, none = jax.grad(learning.error, (0, 1))(predicted, target, weight)
    expected = predicted - target
    expected = (np.clip(expected, -1, 1) if huber else expected) * weight / 4
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    assert not np.any(none)


def _by_hand(optimizer: str, slopes: np.ndarray, rate: float) -> np.ndarray:
    """Where a number that starts at 0 is after these gradients (Kingma and Ba 2015; Mnih et al. 2015)."""
    x, m, v = np.zeros(slopes.shape[1]), np.zeros(slopes.shape[1]), np.zeros(slopes.shape[1])
    for t, g in enumerate(slopes, 1):
        if optimizer == "adam":
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            x -= rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        else:
            m, v = 0.95 * m + 0.05 * g, 0.95 * v + 0.05 * g**2
            x -= rate * g / np.sqrt(v - m**2 + 0.01)
    return x


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_optimisers(optimizer):
    """Adam, and Mnih's centred RMSProp, beside their formulas."""
    slopes = np.random.default_rng(1).normal(size=(12, 5)) * [1e-3, 0.1, 1.0, 10.0, 1e3]
    parameters = jnp.zeros(5)
    moments = scale(optimizer).init(parameters)
    step = jax.jit(descend, static_argnums=0)
    for g in slopes:
        parameters, moments = step(optimizer, 0.01, parameters, jnp.asarray(g, jnp.float32), moments)
    np.testing.assert_allclose(parameters, _by_hand(optimizer, slopes, 0.01), rtol=1e-4, atol=1e-7)


ROWS, ENVS, LAST = 16, 2, 60


def _nothing() -> Replay:
    no = jnp.zeros(ENVS, bool)
    return empty_replay(ROWS, Row(jnp.zeros((ENVS, 1)), jnp.zeros(ENVS, int), jnp.zeros(ENVS), no, no))


def _timetable(learning: QLearning) -> tuple[list[int], list[int]]:
    """Gradient steps after every iteration, and the one that the target network is of."""
    steps, copied, all_steps, all_copied = 0, 0, [], []
    first = next(i for i in range(1, LAST) if i * ENVS >= learning.learning_starts)
    for i in range(LAST):
        if i >= first and (i - first) % learning.train_every == 0:
            for _ in range(learning.gradient_steps):
                steps += 1
                copied = steps if steps % learning.target_every == 0 else copied
        all_steps.append(steps)
        all_copied.append(copied)
    return all_steps, all_copied


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "learning",
    [
        QLearning(learning_starts=7, train_every=3, gradient_steps=2, target_every=4),
        QLearning(learning_starts=1, train_every=1, gradient_steps=1, target_every=1),
        QLearning(learning_starts=16, train_every=4, gradient_steps=3, target_every=5),
        QLearning(learning_starts=20, train_every=5, gradient_steps=1, target_every=3),
    ],
)
def test_timetable(key, learning):
    """When gradient steps are taken, how many, and which one the target is a copy of, beside plain loops.

    The loss is the number of the step itself: a slope of 1 moves Adam by its learning rate each time.
    """
    learning = QLearning(1.0, 1.0, "adam", 2, *(getattr(learning, n) for n in _TIMES))
    replay = _nothing()

    def loss(parameters: Any, target: Any, batch: Any) -> Any:
        del target, batch
        return -jnp.sum(parameters), {"before": parameters[0]}

    def step(trained: Any, i: Any) -> Any:
        trained, watched = learning.learn(jax.random.fold_in(key, i), trained, replay, i, loss)
        return trained, (trained.parameters[0], trained.target[0], watched["before"])

    seen = jax.jit(lambda: jax.lax.scan(step, learning.begin(jnp.zeros(1)), jnp.arange(LAST)))()[1]
    steps, copied, before = (np.round(x) for x in seen)
    expected = _timetable(learning)
    assert (steps.tolist(), copied.tolist()) == expected
    turns = np.diff(expected[0], prepend=0) > 0
    assert before[turns].tolist() == (steps[turns] - 1).tolist()
    assert np.all(np.isnan(before[~turns]))


_TIMES = ("learning_starts", "train_every", "gradient_steps", "target_every")


def test_every_gradient_step_draws_its_own_batch(key):
    """Places that were drawn are counted by the slope: two steps of 64 draws from 30 places are not twice the same."""
    learning = QLearning(batch_size=64, learning_starts=1, gradient_steps=2, target_every=3)
    replay = _nothing()

    def loss(parameters: Any, target: Any, batch: Any) -> Any:
        del target
        return jnp.sum(parameters[batch.place[0], batch.place[1]]), {}

    @jax.jit
    def opt_state(key: Any) -> Any:
        return learning.learn(key, learning.begin(jnp.zeros((ROWS, ENVS))), replay, jnp.int32(40), loss)[0].opt_state.mu

    first, other = (np.asarray(opt_state(jax.random.fold_in(key, i))) for i in range(2))
    assert first.sum() == pytest.approx(64 * (0.1 + 0.09), rel=1e-5)
    assert not np.allclose(first, other)
    steps = np.round(first / 0.01)  # 10 times the count of the second step plus 9 times that of the first
    assert np.any(steps % 19 != 0)


def test_wrong_settings():
    """Named, with what was expected."""
    with pytest.raises(ValueError, match=r"optimizer is 'adma'.*did you mean 'adam'"):
        QLearning(optimizer="adma")
    with pytest.raises(ValueError, match="train_every is 0, expected an integer of at least 1"):
        QLearning(train_every=0)
    with pytest.raises(TypeError, match=r"batch_size is 2\.5"):
        QLearning(batch_size=2.5)  # pyright: ignore[reportArgumentType]
