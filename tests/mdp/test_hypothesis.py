"""MDPs: what they refuse, unrolling, restarts, dense and sparse forms of one hypothesis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

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


# As other tools hold them.


def by_action(array):
    """[S A S'] as one sparse matrix for each action."""
    return [scipy.sparse.csr_array(array[:, a]) for a in range(array.shape[1])]


def test_rewards_of_outcomes_are_averaged(x64):
    rng = np.random.default_rng(0)
    rows, paid = rng.dirichlet(np.ones(4), size=(3, 2)), rng.normal(size=(3, 2, 4))
    rows, ends = rows[..., :3], rows[..., 3]
    mean = [[sum(rows[s, a, z] * paid[s, a, z] for z in range(3)) for a in range(2)] for s in range(3)]
    made = MDP(rows / rows.sum(-1, keepdims=True), reward_by_outcome=paid[..., :3])
    np.testing.assert_allclose(made.reward, mean / rows.sum(-1), rtol=1e-12)
    with_end = MDP(rows, end_probs=ends, reward_by_outcome=paid)
    np.testing.assert_allclose(with_end.reward, mean + ends * paid[..., 3], rtol=1e-12)
    successor = np.broadcast_to(np.arange(3), (3, 2, 3))
    sparse = SparseMDP(successor, rows, end_probs=ends, reward_by_outcome=paid)
    np.testing.assert_allclose(sparse.reward, with_end.reward, rtol=1e-12)
    # What cannot happen may be -inf.
    certain = MDP(ROWS, reward_by_outcome=np.where(ROWS > 0, 2.0, -np.inf))
    np.testing.assert_array_equal(certain.reward, np.full((3, 2), 2.0))
    np.testing.assert_array_equal(
        jax.jit(lambda x: MDP(x, reward_by_outcome=2 * x).reward)(ROWS), (2 * ROWS**2).sum(-1)
    )


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({}, TypeError, "reward is None, expected .* reward_by_outcome"),
        ({"reward": REWARD, "reward_by_outcome": ROWS}, ValueError, "reward and reward_by_outcome are both given"),
        ({"reward_by_outcome": REWARD}, ValueError, r"reward_by_outcome has shape \(3, 2\), expected \(3, 2, 3\)"),
        (
            {"reward_by_outcome": ROWS, "end_probs": np.zeros((3, 2))},
            ValueError,
            r"expected \(3, 2, 4\).*last, the end",
        ),
    ],
)
def test_rewards_that_are_not_clear_are_refused(options, kind, message):
    with pytest.raises(kind, match=message):
        MDP(ROWS, **options)


def test_sparse_matrices_of_actions(x64):
    rng = np.random.default_rng(1)
    rows = rng.dirichlet(np.full(6, 0.3), size=(6, 2))
    rows = np.where(rows > 0.2, rows, 0.0)
    rows[..., 0] += 1 - rows.sum(-1)
    paid = np.where(rows > 0, rng.normal(size=rows.shape), 0.0)
    reward = (rows * paid).sum(-1)
    dense = MDP(by_action(rows), reward)
    np.testing.assert_array_equal(dense.transition_probs, rows)
    for made in (
        SparseMDP.from_matrices(by_action(rows), reward),
        SparseMDP.from_matrices(by_action(rows), reward_by_outcome=by_action(paid)),
        MDP(by_action(rows), reward_by_outcome=by_action(paid)),
    ):
        np.testing.assert_allclose(made.transition_probs, rows, rtol=1e-12)
        np.testing.assert_allclose(made.reward, reward, rtol=1e-12)
    assert SparseMDP.from_matrices(by_action(rows), reward).successor.shape[-1] == (rows > 0).sum(-1).max()
    with pytest.raises(ValueError, match=r"matrices have the shapes \[\(2, 2\), \(6, 6\)\]"):
        SparseMDP.from_matrices([*by_action(rows), scipy.sparse.eye(2).tocsr()], reward)
    with pytest.raises(ValueError, match="expected a sparse one per action"):
        MDP([by_action(rows)[0], rows[:, 1]], reward)
    with pytest.raises(TypeError, match=r"successor is a list of sparse matrices, .*SparseMDP\.from_matrices takes"):
        SparseMDP(by_action(rows), rows, reward)
    with pytest.raises(ValueError, match=r"reward has shape \(6, 2, 6\), that of the rows, .* are reward_by_outcome="):
        MDP(rows, paid)


def test_pairs_as_quantecon_lists_them(x64):
    """The example of its page on the state-action formulation: action 1 does not exist in state 1."""
    s, a, reward = [0, 0, 1], [0, 1, 0], [5.0, 10.0, -1.0]
    rows = np.array([[0.5, 0.5], [0.0, 1.0], [0.0, 1.0]])
    for probs in (rows, scipy.sparse.csr_matrix(rows)):
        mdp = SparseMDP.from_pairs(s, a, probs, reward, initial=[1.0, 0.0])
        np.testing.assert_array_equal(mdp.legal, [[True, True], [True, False]])
        np.testing.assert_array_equal(mdp.reward, [[5.0, 10.0], [-1.0, 0.0]])
        np.testing.assert_array_equal(mdp.transition_probs[np.array(s), np.array(a)], rows)
    product = np.full((2, 2, 2), 0.0)
    product[s, a] = rows
    infinite = np.full((2, 2), -np.inf)
    infinite[s, a] = reward
    for made in (MDP(product, infinite, legal=infinite > -np.inf), mdp):
        # Policy 0 in both states, discount .95: v1 = -20, v0 = (5 + .475 v1) / .525.
        value = np.linalg.solve(
            np.eye(2) - 0.95 * np.asarray(made.transition_probs[:, 0]), np.asarray(made.reward[:, 0])
        )
        np.testing.assert_allclose(value, [(5 - 0.475 * 20) / 0.525, -20.0], rtol=1e-12)
    with pytest.raises(ValueError, match="a pair twice"):
        SparseMDP.from_pairs([0, 0], [0, 0], rows[:2], [0.0, 0.0])
    with pytest.raises(ValueError, match=r"state\[2\] is 2, expected a state index"):
        SparseMDP.from_pairs([0, 0, 2], a, rows, reward)


def test_illegal_pairs_may_be_empty():
    rows, reward = with_(ROWS, (1, 1), 0.0), with_(REWARD, (1, 1), -np.inf)
    with pytest.raises(ValueError, match=r"reward\[1, 1\] is -inf, .* is False in legal="):
        MDP(ROWS, reward)
    with pytest.raises(ValueError, match=r"transition_probs\[1, 1\] sums to 0, .* is False in legal="):
        MDP(rows, REWARD)
    legal = with_(np.ones((3, 2), bool), (1, 1), False)
    mdp = MDP(rows, reward, legal=legal)
    np.testing.assert_array_equal(mdp.transition_probs[1, 1], [0.0, 1.0, 0.0])  # it stays
    np.testing.assert_array_equal(mdp.reward, with_(REWARD, (1, 1), 0.0))
    with pytest.raises(ValueError, match=r"reward\[0, 0\] is -inf"):
        MDP(rows, with_(reward, (0, 0), -np.inf), legal=legal)
    np.testing.assert_array_equal(MDP(ROWS, REWARD, legal=legal).transition_probs, ROWS)


def test_absent_places_are_minus_one():
    successor = np.array([[[0, 1], [2, -1]]] * 3)
    probability = np.array([[[0.5, 0.5], [1.0, 0.0]]] * 3)
    np.testing.assert_array_equal(SparseMDP(successor, probability, REWARD).transition_probs, ROWS)
    with pytest.raises(ValueError, match=r"probability\[0, 1, 1\] is 0.1.*, expected 0 where successor is -1"):
        SparseMDP(successor, with_(probability, (0, 1), [0.9, 0.1]), REWARD)
    with pytest.raises(ValueError, match=r"successor\[0, 0, 0\] is -2"):
        SparseMDP(with_(successor, (0, 0, 0), -2), probability, REWARD)
    # An empty row of an illegal pair leads to its own state.
    legal = with_(np.ones((3, 2), bool), (1, 1), False)
    empty = SparseMDP(with_(successor, (1, 1), -1), with_(probability, (1, 1), 0.0), REWARD, legal=legal)
    np.testing.assert_array_equal(empty.transition_probs[1, 1], [0.0, 1.0, 0.0])
