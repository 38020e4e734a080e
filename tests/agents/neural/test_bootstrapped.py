"""Bootstrapped DQN: members apart from each other, priors never trained, masks, a member for a whole episode."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.agents.neural import MLP, BootstrappedDQN, QLearning, Spec
from bayes_mdp.agents.neural.dqn import Kept
from bayes_mdp.agents.neural.replay import Batch
from bayes_mdp.experiments.training.training_loop import begin, iterate
from tests.agents.neural.walk import PLACES, Walk
from tests.tf32 import assert_network

MEMBERS, FALSE_ALARM = 4, 1e-6
AGENT = BootstrappedDQN(
    MLP((6,)),
    QLearning(discount=0.9, batch_size=8, learning_starts=4, learning_rate=1e-2, target_every=3),
    num_members=MEMBERS,
    prior_scale=3.0,
    mask_probability=0.5,
)
PLACE: Any = np.eye(PLACES, dtype=np.uint8)


@pytest.fixture(scope="module")
def run():
    """20 iterations of two walks: everything before, and after each."""
    key, env = jax.random.key(1), Walk()
    now = begin(key, AGENT, env, 2, 30)

    def step(now: Any, i: Any) -> Any:
        later, seen = iterate(key, AGENT, env, now, i)
        return later, (now.started, later.memory, seen.ended)

    return now, jax.jit(lambda now: jax.lax.scan(step, now, jnp.arange(20)))(now)


def _forward(parameters: Any, member: int) -> np.ndarray:
    """Q of one member's network at every place."""
    (hidden,), head = jax.tree.map(lambda p: np.asarray(p[member], float), (parameters["trunk"], parameters["q"]))
    return np.maximum(PLACE @ hidden.weight + hidden.bias, 0.0) @ head.weight + head.bias


def _batch(learner: Any) -> Any:
    rng = np.random.default_rng(2)
    place, following = rng.integers(0, PLACES, (2, 8))
    mask = (rng.random((8, MEMBERS)) < 0.5).astype(np.float32)
    mask[:, 3] = 0
    prior = np.stack([_forward(learner.prior, m) for m in range(MEMBERS)], 1)
    extra, next_extra = Kept(mask, prior[place]), Kept(mask, prior[following])  # pyright: ignore
    rest = rng.integers(0, 3, 8), rng.normal(size=8), rng.random(8) < 0.3, PLACE[following], place
    return place, following, Batch(PLACE[place], *rest, np.arange(8) % 3 > 0, extra, next_extra, ())  # pyright: ignore


def test_loss_by_a_loop(run):
    """The sum over the members of each one's masked mean; a member that the mask leaves out has no slope."""
    learner = run[1][0].learner
    place, following, batch = _batch(learner)
    parameters, target, expected = learner.nets.parameters, run[0].learner.nets.target, 0.0
    for m in range(MEMBERS):
        prior = 3 * _forward(learner.prior, m)
        q, q_next = _forward(parameters, m) + prior, _forward(target, m) + prior
        for b in range(8):
            aim = batch.reward[b] + (0 if batch.terminated[b] else 0.9 * q_next[following[b]].max())
            miss = q[place[b], batch.action[b]] - aim
            expected += batch.weight[b] * batch.extra.mask[b, m] * miss**2 / 16
    (loss, _), slope = jax.value_and_grad(AGENT.loss, has_aux=True)(parameters, target, batch)
    assert_network(loss, expected, rtol=1e-5)
    sizes = np.sum([np.abs(np.asarray(x).reshape(MEMBERS, -1)).sum(1) for x in jax.tree.leaves(slope)], 0)
    assert np.all(sizes[:3] > 0)
    assert sizes[3] == 0


def test_priors_are_never_trained(run):
    """They are as they were drawn, unlike members; all differ from each other; the replay keeps their values."""
    before, (later, _) = run
    jax.tree.map(np.testing.assert_array_equal, before.learner.prior, later.learner.prior)
    for old, new in zip(*(jax.tree.leaves(x.learner.nets.parameters) for x in (before, later)), strict=True):
        assert np.all(np.any((np.asarray(old) != np.asarray(new)).reshape(MEMBERS, -1), 1))
    heads = np.concatenate([x["q"].weight for x in (before.learner.prior, before.learner.nets.parameters)])
    assert len(np.unique(heads.reshape(2 * MEMBERS, -1), axis=0)) == 2 * MEMBERS
    rows = later.replay.rows
    prior = np.stack([_forward(later.learner.prior, m) for m in range(MEMBERS)], 1)
    place = np.asarray(rows.observation)[:20].argmax(-1)
    assert_network(np.asarray(rows.extra.prior)[:20], prior[place], rtol=1e-4, atol=1e-6)


def test_how_networks_begin(key):
    """Weights of variance 1 / inputs, biases 0: of 20 x 6,000 weights the variance is known to 1.3 % (six sd: 1e-9)."""
    agent = BootstrappedDQN(MLP((60,)))
    prior = agent.init(key, Spec((100,), np.dtype(np.uint8), 2, 1)).prior
    (hidden,) = prior["trunk"]
    assert float(jnp.var(hidden.weight)) == pytest.approx(0.01, rel=0.013)
    assert not np.any(hidden.bias)
    assert not np.any(prior["q"].bias)


def test_a_member_acts_for_an_episode(run):
    """It changes where an episode starts and nowhere else; all members get their turn; it is the one that is asked."""
    later, (started, member, ended) = run[1]
    started, member = np.asarray(started), np.asarray(member)
    np.testing.assert_array_equal(started[1:], np.asarray(ended)[:-1])
    assert np.all((member[1:] == member[:-1]) | started[1:])
    assert started[1:].sum() >= 2
    learner = later.learner
    everyone = jnp.arange(MEMBERS)
    for m in range(MEMBERS):
        choice = AGENT.act(
            jax.random.key(0), learner, jnp.full(PLACES, m), PLACE, jnp.zeros(PLACES, bool), jnp.zeros((), int)
        )
        best = np.argmax(_forward(learner.nets.parameters, m) + 3 * _forward(learner.prior, m), 1)
        np.testing.assert_array_equal(choice.action, best)
    drawn = AGENT.begin(jax.random.key(5), Spec((PLACES,), np.dtype(np.uint8), 3, 400))
    assert stats.chisquare(np.bincount(drawn, minlength=len(everyone))).pvalue > FALSE_ALARM


def test_masks(key):
    """Drawn with the probability: of 2,000 x 4 a share wrong by 0.04 is found."""
    envs = 2_000
    spec = Spec((PLACES,), np.dtype(np.uint8), 3, envs)
    learner = AGENT.init(key, spec)
    no = jnp.zeros(envs, bool)
    seen = jnp.broadcast_to(PLACE[0], (envs, PLACES))
    mask = AGENT.act(key, learner, jnp.zeros(envs, int), seen, no, jnp.zeros((), int)).extra.mask
    assert stats.binomtest(int(mask.sum()), envs * MEMBERS, 0.5).pvalue > FALSE_ALARM
    assert set(np.unique(mask)) == {0.0, 1.0}


def test_values(run):
    """Mean and standard deviation of the members."""
    learner = run[1][0].learner
    q = np.stack([_forward(learner.nets.parameters, m) + 3 * _forward(learner.prior, m) for m in range(MEMBERS)])
    values: Any = AGENT.values(learner, PLACE)
    assert_network(values.q, q.mean(0), rtol=1e-4, atol=1e-5)
    assert_network(values.sd, q.std(0), rtol=1e-4, atol=1e-5)
    assert values.u is None


def test_what_is_refused():
    """One sentence about the argument at fault."""
    with pytest.raises(ValueError, match="num_members is 0"):
        BootstrappedDQN(num_members=0)
