"""The host-stepped loop: the compiled loop's numbers, bit-equal resume, anchors, frames kept once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation

from bayes_mdp.agents.neural import DQN, MLP, Epsilon, NeuralUBE, QLearning, UncertaintyHead
from bayes_mdp.agents.neural.replay import Stack, replay_bytes
from bayes_mdp.experiments.training.host_training import anchor_seed, begin_host, restore_host, row_of, run_chunk_host
from bayes_mdp.experiments.training.training_loop import begin, run_chunk
from bayes_mdp.experiments.training.vector_env import Rules, host_env
from tests.experiments.training.worlds import Counter, SeaVector, counters

LEARNING = QLearning(batch_size=8, learning_starts=8, train_every=2, learning_rate=1e-2, target_every=5)
AGENT = DQN(trunk=MLP((8,)), learning=LEARNING, epsilon=Epsilon(0.5, 0.5, 1))
UBE = NeuralUBE(trunk=MLP((8,)), learning=LEARNING, head=UncertaintyHead(width=4, num_steps=2), beta=0.1)
KEY = jax.random.key(4)


def same(ours, theirs):
    """Bit for bit."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path))


def kept(now):
    """A copy on the host, as a checkpoint keeps it."""
    return jax.tree.map(np.array, now)


def test_it_does_what_the_compiled_loop_does():
    """DeepSea without noise needs none of the loop's own random numbers: what is drawn is drawn by the agent."""
    ours = host_env(SeaVector(4, 3))
    now = begin_host(KEY, UBE, ours, 16)
    now, seen = run_chunk_host(KEY, UBE, ours, now, range(40))
    env = ours.env.ours  # pyright: ignore[reportAttributeAccessIssue]
    start = jax.jit(begin, static_argnums=(3, 4))(KEY, UBE, env, 3, 16)
    theirs, expected = jax.jit(run_chunk)(KEY, UBE, env, start, jnp.arange(40))
    for name in ("action", "terminated", "truncated", "observation", "reward"):
        np.testing.assert_array_equal(getattr(now.replay.rows, name), getattr(theirs.replay.rows, name))
    for x, y in zip(jax.tree.leaves(now.learner), jax.tree.leaves(theirs.learner), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(seen.ended, expected.ended)
    np.testing.assert_array_equal(seen.length, expected.length)
    assert seen.watched.keys() == expected.watched.keys() and np.asarray(seen.ended).sum() == 30
    np.testing.assert_allclose(seen.watched["loss"], expected.watched["loss"], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_restored_run_goes_on_bit_for_bit(mode):
    def world():
        return host_env(counters(mode))

    whole, straight = world(), []
    now = begin_host(KEY, AGENT, whole, 32, anchor_every=17)
    now, _ = run_chunk_host(KEY, AGENT, whole, now, range(23))
    half = kept(now)
    now, seen = run_chunk_host(KEY, AGENT, whole, now, range(23, 60))
    straight = kept(now)
    again = world()
    restore_host(again, half)
    later, seen_again = run_chunk_host(KEY, AGENT, again, half, range(23, 60))
    same(kept(later), straight)
    same(seen_again, seen)
    assert half.env_state.actions.dtype == np.uint8 and half.env_state.actions.shape == (17, 2)


def test_restoring_elsewhere_is_refused():
    def world():
        return host_env([lambda: Counter(9), lambda: Counter(9, bug="random")])

    env = world()
    now, _ = run_chunk_host(KEY, AGENT, env, begin_host(KEY, AGENT, env, 32), range(4))
    with pytest.raises(
        ValueError, match=r"environment 1 of .* reaches another state after the same seed and 4 actions: it is not"
    ):
        restore_host(world(), now)
    with pytest.raises(ValueError, match=r"iteration is 3, expected 4, the next one of this state"):
        run_chunk_host(KEY, AGENT, env, now, range(3, 5))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_an_anchor_cuts_the_episodes_off_and_reports_nothing(mode):
    env = host_env(counters(mode))  # episodes of 3 and 4 steps
    now = begin_host(KEY, AGENT, env, 32, anchor_every=5)
    now, seen = run_chunk_host(KEY, AGENT, env, now, range(20))
    rows = jax.tree.map(np.asarray, now.replay.rows)
    last = np.arange(4, 20, 5)
    assert (rows.truncated[last] | rows.terminated[last]).all()
    assert not np.asarray(seen.ended)[last].any()  # none of them is over after its fifth step
    first = rows.observation[last[:-1] + 1]
    assert (first[..., 1] == 0).all() and (now.observation[..., 1] == 0).all()
    for number, start in enumerate(first, 1):
        np.testing.assert_array_equal(start, env.reset(anchor_seed(now.env_state.seed, number)))
    assert len(np.unique(first[..., 0])) == 6
    lengths = np.asarray(seen.length)[np.asarray(seen.ended)]
    assert set(lengths.tolist()) == {3, 4} and (now.episode.length == 0).all()


@pytest.mark.few(1)
@pytest.mark.parametrize(("fill", "padding"), [("zeros", "zero"), ("first", "reset")])
def test_frames_kept_once_teach_the_same(fill, padding):
    """Replays that are not full draw the same places, so every bit that is learnt must agree."""

    def learnt(stack):
        makers = [lambda i=i: FrameStackObservation(Counter(3 + i), 4, padding_type=padding) for i in range(2)]
        env = host_env(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP), rules=Rules(stack=stack))
        assert replay_bytes(64, row_of(AGENT, env.spec, stack), stack) == 64 * 2 * (
            8 * (4 if stack is None else 1) + 10 + (stack is not None)
        )
        now = begin_host(KEY, AGENT, env, 64, anchor_every=13)
        now, _ = run_chunk_host(KEY, AGENT, env, now, range(50))
        return now

    whole, once = learnt(None), learnt(Stack(4, fill))
    assert once.replay.rows.observation.shape == (64, 2, 2)
    same(once.learner, whole.learner)
    np.testing.assert_array_equal(once.replay.rows.action, whole.replay.rows.action)
