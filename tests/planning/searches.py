"""Searches of small problems, for the tests."""

import numpy as np

from bayes_mdp.mdp.lazy_belief import LazyBelief, LazyRewards, LazyRows
from bayes_mdp.planning.tree_search import Decision, Search, new_tree


def dirichlet_belief(concentration, reward, learns=True):
    """Dirichlet rows [S A S+1] (the end last) and known rewards [S A]; with a leading axis: components."""
    concentration, reward = np.asarray(concentration, float), np.asarray(reward, float)
    if concentration.ndim == 3:
        concentration, reward = concentration[None], reward[None]
    number, n_states, n_actions = reward.shape
    pairs = n_states * n_actions
    table = np.arange(pairs).reshape(1, n_states, n_actions)
    rows = LazyRows(np.cumsum(concentration.reshape(number, pairs, -1), -1), np.full(pairs, learns), table)
    paid = LazyRewards(
        np.ones((1, pairs, 1)), np.zeros(pairs, bool), reward.reshape(number, pairs, 1), table[..., None]
    )
    return LazyBelief(np.full(number, 1 / number), rows, paid)


def search(  # noqa: PLR0913 - the arguments of a search, and of its belief
    belief, *, sims, seed=0, state=0, step=0, horizon=None, discount=1.0, exploration=1.0, legal=None, initial=None,
    episodes=1, max_depth=None, random_rollouts=1.0, rollout_q=None, nodes=None, tree=None,
):  # fmt: skip
    """A `Search` after so many simulations."""
    _, n_states, n_actions = belief.rows.row.shape
    found = Search(
        belief,
        legal,
        initial,
        Decision(state, step, horizon, discount, episodes),
        exploration=exploration,
        random_rollouts=random_rollouts,
        rollout_q=np.zeros((n_states, n_actions)) if rollout_q is None else rollout_q,
        max_depth=max_depth,
        rng=np.random.default_rng(seed),
        tree=new_tree(nodes or sims + 1, n_actions) if tree is None else tree,
    )
    found.run(sims)
    return found
