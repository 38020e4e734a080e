"""Marginal likelihoods and posterior means of the hierarchical ready priors, cell by cell: numpy and scipy alone.

S = 3, A = 2, one data set. Leaves are integrated out: Dirichlet-multinomial rows, Student-t or normal rewards.
"""

# scipy types a frozen law as any: discrete, continuous.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import itertools
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.special import gammaln

from bayes_mdp.mdp import StateActionSpace, Transitions

S, A = 3, 2
SPACE = StateActionSpace(S, A)
PAIRS = list(itertools.product(range(S), range(A)))
REWARD = {"loc": 0.0, "pseudo_count": 1.0, "concentration": 2.0, "rate": 1.0}  # the defaults of the priors


def make_data() -> Transitions:
    """90 transitions: sticky rows, rewards high in states 0 and 2."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(S), (S, A)) * 0.5 + 0.5 * np.eye(S)[:, None, :]
    state, action = rng.integers(S, size=90), rng.integers(A, size=90)
    next_state = np.array([rng.choice(S, p=rows[s, a]) for s, a in zip(state, action, strict=True)])
    reward = np.array([2.0, -1.0, 2.5])[state] + 0.5 * action + rng.normal(size=90)
    return Transitions(state, action, reward, next_state)


DATA: Any = make_data()


class Seen(NamedTuple):
    """Counts [S A S] and the rewards of every pair."""

    counts: np.ndarray
    rewards: dict[tuple[int, int], np.ndarray]


def see(data: Any) -> Seen:
    """What the marginals need of transitions."""
    counts = np.zeros((S, A, S))
    np.add.at(counts, (data.state, data.action, data.next_state), 1.0)
    return Seen(counts, {(s, a): data.reward[(data.state == s) & (data.action == a)] for s, a in PAIRS})


SEEN = see(DATA)
COUNTS, REWARDS = SEEN


def dirichlet_multinomial(concentration: Any, counts: np.ndarray) -> Any:
    """Log-probability of one sequence of outcomes with these counts; axes before the last are a batch."""
    total, number = np.sum(concentration, -1), counts.sum(-1)
    rising = gammaln(concentration + counts) - gammaln(concentration)
    return gammaln(total) - gammaln(total + number) + np.sum(rising, -1)


def normal_gamma_rewards(rewards: np.ndarray, loc: Any) -> Any:
    """Log density of rewards whose mean and precision are normal-gamma around `loc` (one, or [G]): a Student-t."""
    size, alpha, beta, weight = len(rewards), REWARD["concentration"], REWARD["rate"], REWARD["pseudo_count"]
    shape = beta / alpha * (np.eye(size) + np.ones((size, size)) / weight)
    return stats.multivariate_t(np.zeros(size), shape, df=2 * alpha).logpdf(rewards - np.asarray(loc)[..., None])


def normal_rewards(rewards: np.ndarray, loc: float, scale: float, noise: float) -> float:
    """Log density of rewards of one mean ~ Normal(loc, scale^2), with independent noise: a multivariate normal."""
    size = len(rewards)
    covariance = scale**2 * np.ones((size, size)) + noise**2 * np.eye(size)
    return stats.multivariate_normal(np.full(size, loc), covariance).logpdf(rewards)


def normal_rewards_by_moments(rewards: np.ndarray, loc: Any, scale: Any, noise: Any) -> Any:
    """The same on grids, from the eigenvalues noise^2 (size - 1 times) and noise^2 + size scale^2."""
    size, mean = len(rewards), rewards.mean()
    along = noise**2 + size * scale**2
    squares = ((rewards - mean) ** 2).sum() / noise**2 + size * (mean - loc) ** 2 / along
    return -0.5 * (size * np.log(2 * np.pi) + (size - 1) * np.log(noise**2) + np.log(along) + squares)


def all_rows(seen: Seen, concentration: Any) -> float:
    """Log-probability of all next states given [S A S] concentrations."""
    return float(dirichlet_multinomial(np.broadcast_to(concentration, (S, A, S)), seen.counts).sum())


def all_normal_gamma_rewards(seen: Seen, loc: Any = 0.0) -> float:
    """Log density of all rewards given the location of each state, [S] or one."""
    loc = np.broadcast_to(loc, S)
    return float(sum(normal_gamma_rewards(seen.rewards[s, a], loc[s]) for s, a in PAIRS))


def all_normal_rewards(seen: Seen, v: dict[str, Any]) -> float:
    """Log density of all rewards under `shared_rewards`."""
    scales = v["reward_scale"], v["noise_scale"]
    return sum(normal_rewards(rewards, v["reward_loc"], *scales) for rewards in seen.rewards.values())


# --- posterior means of one cell -------------------------------------------------------------------------------------


def mean_rows(concentration: Any) -> Any:
    """[... S A S] of concentrations of that shape."""
    after = concentration + COUNTS
    return after / after.sum(-1, keepdims=True)


def mean_normal_gamma(loc: Any) -> Any:
    """[... S A] of locations [... S]."""
    number = COUNTS.sum(-1)
    total = np.array([[REWARDS[s, a].sum() for a in range(A)] for s in range(S)])
    weight = REWARD["pseudo_count"]
    return (weight * np.asarray(loc)[..., None] + total) / (weight + number)


def mean_normal(rewards: np.ndarray, loc: Any, scale: Any, noise: Any) -> Any:
    """Of one cell of `shared_rewards`."""
    prior, seen = scale**-2.0, len(rewards) * noise**-2.0
    return (prior * loc + seen * rewards.mean()) / (prior + seen)
