"""What is kept of a tree for the next decision, and what is read at its root."""

import jax
import numpy as np
import pytest

from bayes_mdp.planning.kept_tree import ACTION_BYTES, NODE_BYTES, check_tree, empty_tree, search_depth
from bayes_mdp.planning.tree_search import RootAnswer, new_tree, resume, slot_of, store_tree, subtree_below
from tests.planning.searches import dirichlet_belief, search

RNG = np.random.default_rng(0)
BELIEF = dirichlet_belief(RNG.gamma(1.0, size=(3, 2, 4)), RNG.normal(size=(3, 2)))


def searched(**more):
    return search(BELIEF, sims=2000, horizon=5, exploration=2.0, **more).tree


def below(tree, root):
    """{path of edges from `root`: (visits, q, squares)} of all nodes below it, by walking up from each of them."""
    found = {}
    for node in range(tree.used[0]):
        path, at = [], node
        while at not in (root, -1):
            path.append(int(tree.edge[at]))
            at = int(tree.parent[at])
        if at == root:
            found[tuple(path[::-1])] = tree.visits[node], tree.q[node], tree.squares[node]
    return found


def child(tree, action, outcome):
    return int(tree.slots[slot_of(tree, 0, action * 4 + outcome)])


@pytest.mark.parametrize("outcome", [0, 1, 2])
def test_what_is_below_the_transition_is_kept(outcome):
    tree = searched()
    action = int(tree.visits[0].argmax())
    root = child(tree, action, outcome)
    kept = subtree_below(tree, BELIEF, 0, 0, action, outcome, 0.0, 10**6)
    assert kept is not None
    old, new = below(tree, root), below(kept, 0)
    assert old.keys() == new.keys() and len(old) == kept.used[0] > 10
    for path, numbers in old.items():
        for one, other in zip(numbers, new[path], strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(kept.depth[: kept.used[0]].max(), max(map(len, new)))
    # It goes on from there.
    after = search(BELIEF, sims=100, horizon=5, step=1, state=outcome, tree=kept)
    assert after.tree.visits[0].sum() == tree.visits[root].sum() + 100


def test_what_never_happened_is_not_kept():
    assert subtree_below(searched(), BELIEF, 0, 0, 1, 3, 0.0, 10**6) is None  # the end has no node


def test_through_the_arrays_of_a_run():
    """Stored and resumed: the same as kept directly; of another state or step, nothing."""
    tree = searched()
    like = jax.tree.map(np.asarray, empty_tree(len(tree.parent), 2))
    kept = store_tree(tree, like)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), kept) == jax.tree.map(lambda x: (x.shape, x.dtype), like)
    happened = kept._replace(state=np.int32(0), step=np.int32(0), action=np.int32(1), outcome=np.int32(2))
    again = resume(happened, BELIEF, 2, 1, 0)
    direct = subtree_below(tree, BELIEF, 0, 0, 1, 2, 0.0, 10**6)
    assert again is not None and direct is not None
    used = direct.used[0]
    assert again.used[0] == used
    np.testing.assert_array_equal(again.visits[:used], direct.visits[:used])
    np.testing.assert_allclose(again.q[:used], direct.q[:used], rtol=1e-6)
    few = resume(happened, BELIEF, 2, 1, len(tree.parent) - 5)  # the oldest ones, so that the tree can grow
    assert few is not None and few.used[0] == min(5, used)
    np.testing.assert_array_equal(few.visits[: few.used[0]], direct.visits[: few.used[0]])
    assert resume(happened, BELIEF, 1, 1, 0) is None
    assert resume(happened, BELIEF, 2, 3, 0) is None
    assert resume(like, BELIEF, 0, None, 0) is None


def test_the_action_of_an_answer():
    """The largest mean; of several the one taken most often; never one that was not tried."""

    def action(q, visits):
        return RootAnswer(np.array(q), np.array(visits), np.zeros(3), 1, 0).action

    assert action([1.0, 3.0, 2.0], [5, 1, 9]) == 1
    assert action([3.0, 3.0, 2.0], [5, 7, 9]) == 1
    assert action([-np.inf, -2.0, -np.inf], [0, 3, 0]) == 1


DEPTHS = [
    ((None, 0, None, 0.95, 1), 100),
    ((None, 0, 30, 0.95, 1), 30),
    ((None, 0, None, 0.5, None), 20),  # .5^20 < 1e-6
    ((None, 0, None, 0.0, 1), 1),
    ((None, 0, None, 1.0, 1), 100),
    ((20, 0, None, 1.0, 1), 20),
    ((20, 15, None, 1.0, 1), 5),
    ((20, 15, None, 1.0, 3), 45),
    ((20, 15, None, 1.0, None), 100),
    ((200, 10, None, 1.0, 1), 190),
    ((200, 10, None, 1.0, None), 190),
    ((200, 10, 50, 1.0, 1), 50),
]


@pytest.mark.parametrize("arguments, depth", DEPTHS)
def test_depths(arguments, depth):
    assert search_depth(*arguments) == depth


def test_memory_is_estimated_before_it_is_taken():
    made = new_tree(1000, 3)
    size = sum(x.nbytes for x in made)
    assert 0.6 < size / (1000 * (NODE_BYTES + ACTION_BYTES * 3)) <= 1.05
    with pytest.raises(ValueError, match=r"a tree has 1000000000000 nodes, about .* of memory, expected at most"):
        check_tree(10**12, 3)
