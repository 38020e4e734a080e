"""The simulations: urns have the law of rows that are drawn and kept; the tree adds up; components are drawn once."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from bayes_mdp.planning.tree_search import Urns, draw
from benchmarks.numba_peers.bamcp import search as peer
from tests.planning.searches import dirichlet_belief, search

ALPHA = 1e-6


def urn(concentration, steps, learns=True):
    sums = np.cumsum(np.asarray(concentration, float))[None, None]
    return Urns(sums, np.array([learns]), np.zeros(1, int), np.zeros(1, int), np.zeros((1, steps), np.int32))


def drawn_words(concentration, steps, number, learns=True, seed=0):
    """How often each sequence of outcomes came."""
    made, rng = urn(concentration, steps, learns), np.random.default_rng(seed)
    words = np.array([[draw(made, 0, 0, i + 1, rng) for _ in range(steps)] for i in range(number)])
    size = len(concentration)
    return np.bincount(words @ size ** np.arange(steps), minlength=size**steps)


def word_probs(concentration, steps):
    """Their probabilities where a Dirichlet row is drawn first: ratios of gamma functions of the counts."""
    total = sum(concentration)
    probs = np.zeros(len(concentration) ** steps)
    for word in itertools.product(range(len(concentration)), repeat=steps):
        counts = np.bincount(word, minlength=len(concentration))
        if any(n and not a for a, n in zip(concentration, counts, strict=True)):
            continue
        log = math.lgamma(total) - math.lgamma(total + steps)
        log += sum(math.lgamma(a + n) - math.lgamma(a) for a, n in zip(concentration, counts, strict=True) if n)
        probs[sum(k * len(concentration) ** i for i, k in enumerate(word))] = math.exp(log)
    return probs


@pytest.mark.parametrize("concentration", [(0.5, 1.0, 2.0), (0.05, 0.05), (3.0, 0.0, 1.0)])
def test_an_urn_has_the_law_of_a_row_that_is_kept(concentration):
    """Chi-square over all words of four outcomes, 40,000 simulations: false alarm 1e-6.

    An urn that forgets (rows drawn anew at every step) is caught at the same level.
    """
    probs = word_probs(concentration, 4)
    possible = probs > 0

    def p_value(learns):
        counts = drawn_words(concentration, 4, 40_000, learns)
        assert counts[~possible].sum() == 0
        return stats.chisquare(counts[possible], probs[possible] * counts.sum()).pvalue

    assert p_value(True) > ALPHA
    assert p_value(False) < ALPHA


def test_visits_and_nodes_add_up():
    """Every simulation counts once at the root; a child is visited once less than its edge; depths agree."""
    rng = np.random.default_rng(0)
    found = search(
        dirichlet_belief(rng.gamma(1.0, size=(4, 2, 5)), rng.normal(size=(4, 2))), sims=3000, horizon=6, exploration=2.0
    )
    tree, used = found.tree, int(found.tree.used[0])
    assert tree.visits[0].sum() == 3000
    inner = tree.visits[:used].sum(1)
    ends = np.zeros((used, 2), int)
    for node in range(1, used):
        parent, action = tree.parent[node], tree.edge[node] // 5
        assert parent < node and tree.depth[node] == tree.depth[parent] + 1
        ends[parent, action] += inner[node] + 1  # the first simulation that came here was a rollout
    # What is not below a child ended the episode, or was at the last step.
    assert (ends <= tree.visits[:used]).all()
    assert found.answer().depth < 6 and found.answer().num_nodes == used


def test_last_step_is_the_mean_reward():
    """With one step to go q is the mean reward, exactly where it is known, and the standard error zero."""
    reward = np.array([[0.25, -1.0, 0.5]])
    found = search(dirichlet_belief(np.ones((1, 3, 2)), reward), sims=500, horizon=1).answer()
    np.testing.assert_allclose(found.q, reward[0], atol=1e-15)
    np.testing.assert_allclose(found.standard_error, 0.0, atol=1e-15)
    assert found.action == 2 and found.depth == 0 and found.num_nodes == 1


def test_running_means_and_errors():
    """q and its standard error at the root are those of the returns: of the length of an episode, one action."""
    belief = dirichlet_belief(np.array([[[3.0, 2.0]]]), np.array([[1.0]]))
    found = search(belief, sims=2000, horizon=50).answer()
    # A reward of 1 a step until the end: E = sum over t of P(no end in t steps), a product of rising factors.
    alive = np.cumprod([1.0] + [(3.0 + t) / (5.0 + t) for t in range(49)])
    assert abs(found.q[0] - alive.sum()) < 6 * found.standard_error[0]  # false alarm 2e-9
    steps = np.arange(1, 51)
    chance = np.append(alive[:-1] - alive[1:], alive[-1])
    sd = np.sqrt(chance @ steps**2 - (chance @ steps) ** 2)
    assert abs(found.standard_error[0] / (sd / np.sqrt(2000)) - 1) < 0.15


CASES = {
    "two states": (np.full((2, 2, 2), 0.3), np.array([[0.2, 0.0], [0.0, 1.0]]), 3.0),
    "sparse": (np.full((3, 2, 3), 0.2), np.array([[0.1, 0.0], [0.0, 0.4], [1.0, 0.3]]), 1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_same_laws_as_rows_that_are_drawn(name):
    """Visits and mean returns at the root beside a plain BAMCP with explicit rows: 3,000 searches of 40 simulations.

    Differences of means in standard errors: 5.5, false alarm 4e-8 each, 4 each. A search that forgets what it drew
    is caught.
    """
    concentration, reward, exploration = CASES[name]
    padded = np.concatenate([concentration, np.zeros((*reward.shape, 1))], -1)
    number, sims, depth = 3000, 40, 12

    def theirs(seed):
        rng = np.random.default_rng((1, seed))
        return peer(concentration, reward, 0, depth, 0.95, exploration, sims, rng)

    def ours(seed, learns=True):
        one = search(
            dirichlet_belief(padded, reward, learns), sims=sims, seed=10**6 + seed, discount=0.95,
            exploration=exploration, max_depth=depth,
        ).answer()  # fmt: skip
        return one.visits, one.q

    def statistics(run):
        return np.array([np.concatenate(run(seed)) for seed in range(number)], float)

    one, other, broken = statistics(theirs), statistics(ours), statistics(lambda seed: ours(seed, learns=False))

    def distance(a, b):
        error = np.sqrt((a.var(0) + b.var(0)) / number)
        return np.abs(a.mean(0) - b.mean(0)) / error

    assert distance(one, other).max() < 5.5
    assert distance(one, broken).max() > 5.5


def test_a_component_is_drawn_once():
    """Two equally likely MDPs without randomness: every simulation is in one of them from its first step to its last.

    State 0 leads to 1 or 2 by MDP, and the reward after it is 1 in the state that the MDP favours: a return is 0 or 3.
    """
    rows, reward = np.zeros((2, 3, 2, 4)), np.zeros((2, 3, 2))
    for world in range(2):
        rows[world, 0, :, 1 + world] = 1.0
        rows[world, 1:, :, 0] = 1.0
        reward[world, 1 + world] = [3.0, 0.0]
    found = search(dirichlet_belief(rows, reward), sims=4000, horizon=2, exploration=5.0)
    answer, tree = found.answer(), found.tree
    # After the first step the world is known, and action 0 is best in both: the value is 3 in either case.
    children = np.flatnonzero(tree.parent[: tree.used[0]] == 0)
    assert len(children) == 4  # two actions, two outcomes
    np.testing.assert_allclose(tree.q[children, 0][tree.visits[children, 0] > 0], 3.0)
    np.testing.assert_allclose(tree.q[children, 1][tree.visits[children, 1] > 0], 0.0)
    assert answer.q.max() > 2.7


def test_illegal_actions_are_never_taken():
    legal = np.array([[True, False, True], [False, False, True]])
    rng = np.random.default_rng(0)
    belief = dirichlet_belief(rng.gamma(1.0, size=(2, 3, 3)), rng.normal(size=(2, 3)))
    found = search(belief, sims=500, horizon=5, legal=legal)
    used = found.tree.used[0]
    assert found.answer().q[1] == -np.inf and (found.tree.visits[:used, 1] == 0).all()
    tree = found.tree
    for node in range(1, used):
        if tree.edge[node] % 3 == 1:  # a node in state 1
            assert (tree.visits[node, :2] == 0).all()


def test_greedy_rollouts():
    """Below the tree, actions are greedy in the given values: with no tree to speak of, returns are theirs."""
    rows = np.zeros((2, 2, 3))
    rows[0, :, 1], rows[1, :, 1] = 1.0, 1.0
    reward = np.array([[0.0, 0.0], [0.0, 1.0]])
    good, bad = np.array([[0.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 0.0], [1.0, 0.0]])
    means = [
        search(
            dirichlet_belief(rows, reward), sims=2, horizon=9, random_rollouts=0.0, rollout_q=q
        ).answer().q
        for q in (good, bad)
    ]  # fmt: skip
    np.testing.assert_allclose(means, [[8.0, 8.0], [0.0, 0.0]])


def test_the_next_episode_counts():
    """Two arms of an episode of one step, one known to pay .45: what the other pays is worth learning only if episodes
    follow. The Bayes-optimal first action with many to come is the unknown arm, with one it is the known one."""
    # State 0: arm 0 pays .5; arm 1 leads to state 1 or 2 with a Beta row, of which 1 pays 1 at once: a step more.
    rows, reward = np.zeros((3, 2, 4)), np.zeros((3, 2))
    rows[0, 0, 3] = 1.0
    rows[0, 1, 1:3] = 1.0, 1.3
    rows[1:, :, 3] = 1.0
    reward[0, 0], reward[1] = 0.45, 1.0
    belief, start = dirichlet_belief(rows, reward), np.array([1.0, 0.0, 0.0])
    once = search(belief, sims=20_000, episodes=1, initial=start, exploration=1.0).answer()
    often = search(belief, sims=20_000, episodes=15, initial=start, exploration=4.0, max_depth=100).answer()
    assert (once.action, often.action) == (0, 1)
    np.testing.assert_allclose(once.q, [0.45, 1 / 2.3], atol=0.05)


def test_a_full_tree_goes_on_by_rollouts():
    rng = np.random.default_rng(0)
    belief = dirichlet_belief(rng.gamma(1.0, size=(4, 2, 5)), rng.normal(size=(4, 2)))
    found = search(belief, sims=2000, horizon=6, nodes=50)
    assert found.answer().num_nodes == 50 and found.tree.visits[0].sum() == 2000


def test_same_generator_same_tree():
    rng = np.random.default_rng(0)
    belief = dirichlet_belief(rng.gamma(1.0, size=(4, 2, 5)), rng.normal(size=(4, 2)))
    one, two, other = (search(belief, sims=300, horizon=6, seed=seed).answer() for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.q, two.q)
    assert not np.array_equal(one.q, other.q)
