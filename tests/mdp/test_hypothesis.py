"""MDPs: what they refuse, unrolling, restarts, dense and sparse forms of one hypothesis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.mdp import MDP, SparseMDP, restart_at_ends, unroll

ROWS = np.array([[[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]] * 3)
REWARD = np.arange(6.0).reshape(3, 2)


def with_(array, index, value):
    changed = np.array(array)
    changed[index] = value
    return changed


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((with_(ROWS, (1, 0, 0), 0.4), REWARD), {}, r"transition_probs\[1, 0\] sums to 0.9.*, expected a row"),
        ((with_(ROWS, (2, 1, 0), -0.1), REWARD), {}, r"transition_probs\[2, 1, 0\] is -0.1.*, expected a probability"),
        ((with_(ROWS, (0, 0, 0), np.nan), REWARD), {}, r"transition_probs\[0, 0, 0\] is nan, expected a probability"),
        ((ROWS, with_(REWARD, (2, 1), np.inf)), {}, r"reward\[2, 1\] is inf, expected a finite number"),
        ((ROWS, REWARD[:2]), {}, r"transition_probs has shape \(3, 2, 3\), expected \(2, 2, 2\)"),
        ((ROWS, REWARD[0]), {}, r"reward has shape \(2,\), expected \[state, action\] or \[step, state, action\]"),
        ((ROWS, REWARD), {"end_probs": np.full((3, 2), 0.1)}, r"transition_probs\[0, 0\] sums to 1.1.* together with"),
        ((ROWS, REWARD), {"end_probs": np.zeros(3)}, r"end_probs has shape \(3,\), expected \(3, 2\)"),
        ((ROWS, REWARD), {"legal": np.array([[1, 1], [0, 0], [1, 1]])}, r"legal\[1\] is False, expected at least one"),
        ((ROWS, REWARD), {"legal": np.ones((2, 2))}, r"legal has shape \(2, 2\), expected \(3, 2\)"),
        ((ROWS, REWARD), {"initial": np.full(3, 0.5)}, r"initial sums to 1.5, expected a row that sums to 1"),
        ((ROWS, REWARD), {"initial": np.full(2, 0.5)}, r"initial has shape \(2,\), expected \(3,\)"),
    ],
)
def test_dense_refuses(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        MDP(*arguments, **options)


def test_negative_end_probabilities_are_refused():
    rows = ROWS * 1.5
    with pytest.raises(ValueError, match=r"end_probs\[0, 0\] is -0.5, expected a probability"):
        MDP(rows, REWARD, end_probs=np.full((3, 2), -0.5))


def test_sparse_refuses():
    successor, probability = np.array([[[0, 1], [2, 2]]] * 3), np.array([[[0.5, 0.5], [1.0, 0.0]]] * 3)
    with pytest.raises(ValueError, match=r"successor\[1, 0, 1\] is 3, expected a state index from 0 to 2"):
        SparseMDP(with_(successor, (1, 0, 1), 3), probability, REWARD)
    with pytest.raises(TypeError, match="successor has dtype float"):
        SparseMDP(successor.astype(np.float32), probability, REWARD)
    with pytest.raises(ValueError, match=r"probability\[2, 1\] sums to 0.5"):
        SparseMDP(successor, with_(probability, (2, 1, 0), 0.5), REWARD)
    with pytest.raises(ValueError, match=r"successor has shape \(2, 2, 2\), expected \(3, 2, 2\)"):
        SparseMDP(successor[:2], probability, REWARD)


def test_dtypes_are_kept(x64):
    assert MDP(jnp.asarray(ROWS, jnp.float32), jnp.asarray(REWARD, jnp.float32)).reward.dtype == jnp.float32
    assert MDP(ROWS, np.ones((3, 2), int)).reward.dtype == jnp.float64


def test_it_is_a_pytree_that_batches():
    """Transformations rebuild it with batched or abstract leaves without looking into them."""
    mdp = MDP(ROWS, REWARD)
    batch = jax.vmap(lambda c: MDP(mdp.transition_probs, mdp.reward * c))(jnp.arange(4.0))
    assert batch.reward.shape == (4, 3, 2)
    assert jax.eval_shape(lambda: mdp).reward.shape == (3, 2)
    assert jax.tree.map(lambda x: x[None], mdp).transition_probs.shape == (1, 3, 2, 3)


def test_sparse_and_dense_are_one_hypothesis():
    rng = np.random.default_rng(0)
    successor = rng.integers(0, 4, (5, 4, 2, 3))  # repeated successors are added
    ends = rng.uniform(0, 0.5, (5, 4, 2))
    probability = rng.dirichlet(np.ones(3), (5, 4, 2)) * (1 - ends[..., None])
    sparse = SparseMDP(successor, probability, rng.normal(size=(5, 4, 2)), end_probs=ends)
    dense, values = sparse.to_dense(), jnp.arange(4.0)
    assert sparse.horizon == dense.horizon == 5
    for h in range(5):
        np.testing.assert_allclose(sparse.at(h).expected_next(values), dense.at(h).expected_next(values), rtol=1e-6)
        np.testing.assert_allclose(np.sum(dense.transition_probs[h], -1) + ends[h], 1.0, rtol=1e-6)


@pytest.mark.parametrize("steps", [None, 3])
def test_unroll_is_the_same_episode(steps):
    """Values of the unrolled MDP by repeated sweeps are the values of the episode."""
    rng = np.random.default_rng(1)
    lead = (3, 2) if steps is None else (steps, 3, 2)
    successor = rng.integers(0, 3, (*lead, 2))
    ends = rng.uniform(0, 0.5, lead)
    probability = rng.dirichlet(np.ones(2), lead) * (1 - ends[..., None])
    sparse = SparseMDP(successor, probability, rng.normal(size=lead), end_probs=ends, initial=np.array([0, 1.0, 0]))
    dense = sparse.to_dense()
    v = jnp.zeros(3)
    for h in reversed(range(3)):
        v = jnp.max(dense.at(h).reward + dense.at(h).expected_next(v), -1)
    for flat in (unroll(sparse, 3), unroll(dense, 3)):
        w = jnp.zeros(9)
        for _ in range(4):
            w = jnp.max(flat.reward + flat.expected_next(w), -1)
        np.testing.assert_allclose(w[:3], v, rtol=1e-5)
        np.testing.assert_array_equal(flat.initial, np.eye(9)[1])
        assert flat.horizon is None
    listed, flat = unroll(sparse, 3), unroll(dense, 3)
    assert isinstance(listed, SparseMDP)
    assert isinstance(flat, MDP)
    np.testing.assert_allclose(listed.to_dense().transition_probs, flat.transition_probs, atol=1e-6)


def test_unroll_refuses_another_horizon():
    mdp = MDP(ROWS, REWARD, legal=np.array([[1, 0]] * 3))
    with pytest.raises(ValueError, match="horizon is 0, expected an integer of at least 1"):
        unroll(mdp, 0)
    stepped = MDP(np.stack([ROWS] * 4), np.stack([REWARD] * 4))
    with pytest.raises(ValueError, match="horizon is 3, expected 4"):
        unroll(stepped, 3)
    np.testing.assert_array_equal(unroll(mdp, 2).legal, [[True, False]] * 6)


def test_unroll_keeps_the_dtype(x64):
    mdp = MDP(jnp.asarray(ROWS, jnp.float32), jnp.asarray(REWARD, jnp.float32))
    assert {x.dtype for x in jax.tree.leaves(unroll(mdp, 2))} == {jnp.dtype(jnp.float32)}


def random_sparse(seed, lead=(3, 2)):
    rng = np.random.default_rng(seed)
    ends = rng.uniform(0, 0.5, lead)
    probability = rng.dirichlet(np.ones(2), lead) * (1 - ends[..., None])
    successor, reward = rng.integers(0, 3, (*lead, 2)), rng.normal(size=lead)
    initial, legal = np.array([0.0, 0.25, 0.75]), np.array([[1, 0], [1, 1], [1, 1]])
    return SparseMDP(successor, probability, reward, end_probs=ends, legal=legal, initial=initial)


@pytest.mark.few(1)
@pytest.mark.parametrize("lead", [(3, 2), (4, 3, 2)])
def test_a_sparse_restart_is_the_dense_one(lead):
    sparse = random_sparse(0, lead)
    restarted, dense = restart_at_ends(sparse), restart_at_ends(sparse.to_dense())
    assert restarted.end_probs is None
    assert restarted.successor.shape == (*lead, 2 + 2)  # the two possible first states
    np.testing.assert_allclose(restarted.to_dense().transition_probs, dense.transition_probs, atol=1e-6)
    np.testing.assert_array_equal(restarted.legal, dense.legal)
    traced = jax.jit(restart_at_ends)(sparse)
    assert traced.successor.shape == (*lead, 2 + 3)
    np.testing.assert_allclose(traced.to_dense().transition_probs, dense.transition_probs, atol=1e-6)
    assert restart_at_ends(restarted) is restarted


def test_restarts_and_dense_forms_batch():
    """A batch of hypotheses (every leaf batched) goes through vmap as each alone."""
    each = [random_sparse(seed) for seed in range(4)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    expected = np.stack([restart_at_ends(one.to_dense()).transition_probs for one in each])
    dense = jax.vmap(lambda mdp: restart_at_ends(mdp.to_dense()))(batch)
    np.testing.assert_allclose(dense.transition_probs, expected, atol=1e-6)
    listed = jax.vmap(lambda mdp: restart_at_ends(mdp).to_dense())(batch)
    np.testing.assert_allclose(listed.transition_probs, expected, atol=1e-6)


def test_restart_at_ends():
    ends = np.full((3, 2), 0.25)
    mdp = MDP(ROWS * 0.75, REWARD, end_probs=ends, initial=np.array([0.0, 0.0, 1.0]))
    restarted = restart_at_ends(mdp)
    assert restarted.end_probs is None
    np.testing.assert_allclose(restarted.transition_probs[0, 0], [0.375, 0.375, 0.25])
    assert restart_at_ends(restarted) is restarted
    with pytest.raises(ValueError, match="initial is None, expected a distribution"):
        restart_at_ends(MDP(ROWS * 0.75, REWARD, end_probs=ends))
    rows, reward, ends = (np.stack([x] * 2) for x in (ROWS * 0.75, REWARD, ends))
    stepped = MDP(rows, reward, end_probs=ends, initial=np.eye(3)[0])
    assert restart_at_ends(stepped).transition_probs.shape == (2, 3, 2, 3)
