# pyright: reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
"""A small problem with an exact posterior, written without the library, and a program without one."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from scipy import stats

from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec, dirichlet_normal

SPACE = StateActionSpace(2, 2)
DEGREES, SCALE = 3.0, 0.5


def transitions(number, seed, spread=1.0):
    rng = np.random.default_rng(seed)
    state, action, next_state = rng.integers(2, size=(3, number))
    return Transitions(state, action, spread * rng.standard_t(3, size=number) + state, next_state)


def student(space):
    """Rewards with heavy tails: no sufficient statistics."""
    with space.plates():
        probs = numpyro.sample("probs", dist.Dirichlet(jnp.ones(space.n_outcomes)))
        loc = numpyro.sample("loc", dist.Normal(0.0, 1.0))
    return MDPSpec(probs, dist.StudentT(DEGREES, loc, SCALE))


def normal_oracle(data):
    """Mean and standard deviation of rows and mean rewards: Dirichlet(1), Normal(0, 1) prior, unit noise."""
    answer = {name: np.zeros((2, 2, 2)) for name in ("transition", "transition_sd")}
    answer |= {name: np.zeros((2, 2)) for name in ("reward", "reward_sd")}
    for s, a in np.ndindex(2, 2):
        here = (data.state == s) & (data.action == a)
        rows = stats.dirichlet(1 + np.bincount(data.next_state[here], minlength=2))
        answer["transition"][s, a], answer["transition_sd"][s, a] = rows.mean(), np.sqrt(rows.var())
        precision = 1 + here.sum()
        answer["reward"][s, a] = data.reward[here].sum() / precision
        answer["reward_sd"][s, a] = precision**-0.5
    return answer


def student_oracle(data):
    """Posterior mean and standard deviation of the location of every pair, by quadrature on a grid."""
    grid = np.linspace(-6, 6, 4001)
    mean, deviation = np.zeros((2, 2)), np.zeros((2, 2))
    for s, a in np.ndindex(2, 2):
        here = (data.state == s) & (data.action == a)
        log = stats.norm.logpdf(grid)
        log = log + stats.t.logpdf(data.reward[here, None], DEGREES, grid, SCALE).sum(0)
        weight = np.exp(log - log.max())
        mean[s, a] = np.average(grid, weights=weight)
        deviation[s, a] = np.sqrt(np.average((grid - mean[s, a]) ** 2, weights=weight))
    return mean, deviation


def worst_error(chains, mean, deviation):
    """The largest error of a first or second moment, in Monte Carlo standard errors.

    Args:
        chains: [C N ...], draws.
        mean, deviation: [...], what they should have.
    """
    worst = 0.0
    for values, expected in ((chains, mean), ((chains - mean) ** 2, deviation**2)):
        size = np.minimum(effective_sample_size(np.asarray(values, np.float64)), values.shape[0] * values.shape[1])
        error = np.abs(values.mean((0, 1)) - expected) / (values.std((0, 1)) / np.sqrt(size))
        worst = max(worst, float(error.max()))
    return worst


class Traced:
    """A prior that counts how often it is traced: once or more for each compilation, never without one."""

    def __init__(self, prior):
        self.prior, self.traces = prior, 0

    def __call__(self, space):
        self.traces += 1
        return self.prior(space)


@pytest.fixture(scope="session")
def small():
    """The problem and its oracles."""
    return SimpleNamespace(
        space=SPACE,
        prior=dirichlet_normal(),
        student=student,
        transitions=transitions,
        normal_oracle=normal_oracle,
        student_oracle=student_oracle,
        worst_error=worst_error,
        Traced=Traced,
        first=lambda data, n: jax.tree.map(lambda x: x[:n], data),
    )
