"""Random MDPs: Garnet, of a given branching ([GARNET95], [GARNET09]), and PriorMDP of [BMRL19] (Markou and Rasmussen
2019), drawn from the prior that its agents hold.
"""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from bayes_mdp.mdp import MDP, Environment, NormalReward, SparseMDP
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_count, check_name, check_number, require

COPIES = 8  # of the lists, at the peak
MOST_ORDERED = 2**29  # numbers: beyond, next states are not drawn by orders of all states
BLOCK = 2**24  # numbers in memory at a time


def garnet(
    n_states: int = 10, n_actions: int = 2, branching: int = 3, *, seed: int = 0, noise: float = 0.1
) -> Environment:
    """Garnet(n, m, b): n = `n_states`, m = `n_actions`, b = `branching` possible next states of every pair; continuing.

    From [GARNET09]. They are distinct, drawn uniformly (by a random order of all states; above 2^29 numbers, as for
    12,000 states and 4 actions, one by one, which needs n m b numbers only); their probabilities are the lengths
    into which b - 1 uniform points cut [0, 1]. As in Bhatnagar, Sutton, Ghavamzadeh and Lee (2009, without their
    drift), a mean reward is drawn from N(0, 1), here one for every pair, and rewards are N(mean, noise^2). The
    first state is 0. A `SparseMDP` where b < n. Nothing sees to it that all states communicate; `optimum` is None
    (see `planning.solve`).

    Args:
        n_states, n_actions, branching: n, m, b.
        seed: of numpy's default generator; the same numbers for the same seed.
        noise: standard deviation of a reward, sigma.

    Raises:
        ValueError: a count below 1, `branching` above `n_states`, `seed` negative, `noise` negative or not finite.
        TypeError: a count or the seed is no integer.

    Example:
        >>> env = bm.envs.garnet(6, 2, 3, seed=1)
        >>> env.mdp.n_states, env.mdp.n_actions
        (6, 2)
    """
    for name, count in {"n_states": n_states, "n_actions": n_actions, "branching": branching}.items():
        check_count(name, count)
    check_memory(f"n_states is {n_states}", COPIES * 8.0 * n_states * n_actions * branching)
    require(branching > n_states, "branching", branching, f"at most {n_states}, the number of states")
    check_count("seed", seed, 0)
    check_number("noise", noise, lambda x: 0.0 <= x < np.inf, "a finite number, zero or greater")
    rng = np.random.default_rng(seed)
    pairs = (n_states, n_actions)
    draw = _by_order if n_states**2 * n_actions <= MOST_ORDERED else _one_by_one
    successor = draw(rng, pairs, branching)
    cuts = np.sort(rng.random((*pairs, branching - 1)), -1)
    probability = np.diff(cuts, axis=-1, prepend=0.0, append=1.0)
    reward, initial = rng.standard_normal(pairs), np.eye(1, n_states)[0]
    dense = branching == n_states
    mdp = (
        MDP(probability, reward, initial=initial)
        if dense
        else SparseMDP(successor, probability, reward, initial=initial)
    )
    law = NormalReward(mdp.reward, None if noise == 0 else jnp.asarray(noise, mdp.reward.dtype))
    return Environment(mdp, law, name=f"garnet_{n_states}_{n_actions}_{branching}_seed_{seed}")


def _by_order(rng: np.random.Generator, pairs: tuple[int, int], branching: int) -> np.ndarray:
    """Int[S A b]: the order of uniform numbers is a random permutation; its first b entries are distinct states.

    Block by block: the numbers are those of one draw of all.
    """
    n_states, n_actions = pairs
    rows = max(1, BLOCK // (n_states * n_actions))
    blocks = []
    for first in range(0, n_states, rows):
        numbers = rng.random((min(rows, n_states - first), n_actions, n_states))
        blocks.append(np.sort(numbers.argsort(-1)[..., :branching], -1))
    return np.concatenate(blocks)


def _one_by_one(rng: np.random.Generator, pairs: tuple[int, int], branching: int) -> np.ndarray:
    """Int[S A b]: the k-th next state is drawn from the n - k states that are left (Floyd's algorithm)."""
    n_states, _ = pairs
    chosen = np.full((*pairs, branching), -1)
    for place, last in enumerate(range(n_states - branching, n_states)):
        # A number from 0 to `last`; where it was drawn before, `last` itself, which cannot have been.
        drawn = rng.integers(last, size=pairs, endpoint=True)
        drawn_before = (chosen == drawn[..., None]).any(-1)
        chosen[..., place] = np.where(drawn_before, last, drawn)
    return np.sort(chosen, -1)


SHAPE = RATE = 4.0
_MOST_SWEEPS = 1000


def prior_mdp(
    seed: int = 0,
    n_states: int = 4,
    n_actions: int = 2,
    *,
    pseudo_count: float = 1.0,
    rewards_on: Literal["outcome", "state_action"] = "outcome",
) -> Environment:
    """PriorMDP: rows drawn from Dirichlet(1, .., 1), laws of the rewards from a normal-gamma; continuing, from state 0.

    From [BMRL19]. A reward is N(mu, 1 / tau), where tau ~ Gamma(4, rate 4) and mu ~ N(0, 1 / (pseudo_count tau)).
    The paper's text and its code disagree twice. `pseudo_count`: 300 in the text (mean rewards of standard
    deviation 0.07), 1 in the code (1.15), to which its plots belong. `rewards_on`: a law for every (state, action)
    in the text, for every (state, action, next state), "outcome", in the code. The defaults are the code's; the
    paper's environments are seeds 0 to 3. `optimum` is the optimal gain (every row is positive, so that it is the
    same from every state).

    An environment of any other prior is `models.random_environment`.

    Args:
        seed: of numpy's legacy generator, drawn from in the order of the paper's code: for every (state, action) its
            row, then tau and mu of each of its laws. The same numbers for the same seed.
        n_states, n_actions: S, A.
        pseudo_count: lambda of the normal-gamma.
        rewards_on: see above.

    Raises:
        ValueError: a count below 1, `seed` negative or above 2^32 - 1, `pseudo_count` not positive, an unknown
            `rewards_on`.
        TypeError: a count or the seed is no integer.

    Example:
        >>> env = bm.envs.prior_mdp(seed=0)
        >>> env.mdp.n_states, env.mdp.n_actions
        (4, 2)
    """
    check_count("seed", seed, 0)
    if seed >= 2**32:
        raise ValueError(f"seed is {seed}, expected at most {2**32 - 1}")
    for name, count in {"n_states": n_states, "n_actions": n_actions}.items():
        check_count(name, count)
    check_memory(f"n_states is {n_states}", 40.0 * n_states**2 * n_actions)
    check_number("pseudo_count", pseudo_count, lambda x: 0.0 < x < np.inf, "a finite number greater than zero")
    check_name("rewards_on", rewards_on, ("outcome", "state_action"))
    rng = np.random.RandomState(seed)
    by_outcome = rewards_on == "outcome"
    rows = np.zeros((n_states, n_actions, n_states))
    mean, precision = np.zeros((2, n_states, n_actions, n_states if by_outcome else 1))
    for s, a in np.ndindex(n_states, n_actions):
        rows[s, a] = rng.dirichlet(np.ones(n_states))
        for law in range(mean.shape[-1]):
            precision[s, a, law] = tau = rng.gamma(SHAPE, 1.0 / RATE)
            mean[s, a, law] = rng.normal(0.0, 1.0 / np.sqrt(pseudo_count * tau))
    reward = (rows * mean).sum(-1)
    mdp = MDP(rows, reward, initial=np.eye(n_states)[0])
    laws = (jnp.asarray(x if by_outcome else x[..., 0], float) for x in (mean, precision**-0.5))
    name = f"prior_mdp_{n_states}_{n_actions}_seed_{seed}"
    return Environment(mdp, NormalReward(*laws, by_outcome=by_outcome), name=name, optimum=_gain(rows, reward))


def _gain(rows: np.ndarray, reward: np.ndarray) -> float:
    """Optimal gain of positive rows [S A S'], float64: policy iteration, with the bias of state 0 at zero."""
    n = len(rows)
    state, policy, solved = np.arange(n), np.zeros(n, int), np.zeros(n)
    for _ in range(_MOST_SWEEPS):
        bellman = np.eye(n) - rows[state, policy]
        bellman[:, 0] = 1.0  # the place of the bias of state 0 is that of the gain
        solved = np.linalg.solve(bellman, reward[state, policy])
        q = reward + rows @ np.append(0.0, solved[1:])
        better = q.max(1) > q[state, policy] + 1e-12
        if not better.any():
            break
        policy = np.where(better, q.argmax(1), policy)
    return float(solved[0])
