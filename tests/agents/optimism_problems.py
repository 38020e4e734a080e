# pyright: reportArgumentType=false
"""Small beliefs for the optimistic agents: concentrations, counts and rewards in numpy, and their posterior."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.mdp import MDP, Episodic, Problem, StateActionSpace, Transitions
from tests.agents.believed import Case

H, S, A = 3, 4, 2
LEGAL = np.ones((S, A), bool)
LEGAL[1, 1] = False


class World(NamedTuple):
    """A belief in numbers; rows [*H S A O], the last outcome is the end.

    Args:
        posterior: the belief of the agents.
        concentration: after data.
        visits, loc, variance: [*H S A].
        known: [*H S A], rows with one possible outcome.
        space: with the support.
    """

    posterior: Any
    concentration: np.ndarray
    visits: np.ndarray
    loc: np.ndarray
    variance: np.ndarray
    known: np.ndarray
    space: StateActionSpace

    @property
    def rows(self):
        """Mean rows."""
        return self.concentration / self.concentration.sum(-1, keepdims=True)

    @property
    def support(self):
        """The possible outcomes."""
        return self.concentration > 0

    def at(self, table, step):
        """A table at a step."""
        return table[step] if self.loc.ndim == 3 else table

    def problem(self, objective: Any = Episodic(H)):
        """The problem that an agent gets."""
        return Problem(self.space, objective)


def world(seed=0, *, steps=True) -> World:
    """Ends, an illegal pair, a known row, known and unknown rewards in [0, 1], and 60 transitions."""
    rng = np.random.default_rng(seed)
    lead = (H, S, A) if steps else (S, A)
    support = rng.random((*lead, S + 1)) < 0.6
    support[..., 0] = support[..., -1] = True
    support[..., 2, 0, :] = np.arange(S + 1) == 3
    prior = np.where(support, rng.uniform(0.3, 2.0, support.shape), 0.0)
    loc = rng.uniform(size=lead)
    variance = np.where(rng.random(lead) < 0.5, rng.uniform(0.1, 0.5, lead), 0.0)
    variance[..., 2, 0] = 0.3
    visits, counts = np.zeros(lead), np.zeros(support.shape)
    pairs = np.argwhere(np.broadcast_to(LEGAL, lead))
    chosen = pairs[rng.integers(0, len(pairs) - 1, 60)]  # the last pair is never visited
    outcome = np.array([rng.choice(np.flatnonzero(support[tuple(pair)])) for pair in chosen])
    np.add.at(visits, tuple(chosen.T), 1.0)
    np.add.at(counts, (*chosen.T, outcome), 1.0)
    ended, step = outcome == S, chosen[:, 0] if steps else np.zeros(60, int)
    state, action = chosen[:, -2], chosen[:, -1]
    data = Transitions(state, action, None, np.where(ended, 0, outcome), ended, np.zeros(60, bool), step)
    posterior = Case(prior, loc, variance, np.zeros(lead), legal=LEGAL).posterior.update(data)
    known = support.sum(-1) == 1
    concentration = np.where(known[..., None], prior, prior + counts)
    horizon = H if steps else None
    space = StateActionSpace(S, A, horizon=horizon, ends=True, legal=LEGAL, support=support)
    return World(posterior, concentration, visits, loc, variance, known, space)


class Belief(eqx.Module):
    """A mean and counts, and nothing else."""

    mdp: MDP
    visits: Any

    def mean_mdp(self):
        """The mean."""
        return self.mdp

    def visit_counts(self):
        """The counts."""
        return self.visits


@jax.jit
def first_plan(agent, problem, belief, key):
    """The first policy of an agent, and its state."""
    return agent.plan(key, problem, agent.init(key, problem), belief)


def legal_only(q):
    """q without the illegal pairs."""
    return np.asarray(q)[..., LEGAL]


SD = 0.5


class Uniform(eqx.Module):
    """Two states, one action: P(s' = 1) is uniform. A draw adds its arguments: 100 worth + count + inflation."""

    mdp: MDP
    independent_rows: Any = True
    rewards_by_outcome: Any = False

    def sample_next(self, key, values, layer, inflation=1.0, pseudo=None):
        """One draw."""
        count, worth = pseudo or (0.0, 0.0)
        p = jax.random.uniform(key, (2, 1))
        return values[0] + p * (values[1] - values[0]) + 100.0 * worth + count + 10.0 * inflation

    def mean_mdp(self):
        """The mean."""
        return self.mdp

    def expected_reward_variance(self):
        """State 1 pays a normal reward."""
        return jnp.broadcast_to(jnp.array([[0.0], [SD**2]]), self.mdp.reward.shape)

    def _unused(self, *args):
        raise AssertionError("not to be called")

    reward_variance = bellman_variance = transition_variance = variance_factor = row_bound = _unused


def uniform_belief(steps):
    """Rewards 0 and 1, of steps of their own or shared."""
    shape = (3, 2, 1) if steps else (2, 1)
    return Uniform(MDP(np.full((*shape, 2), 0.5), np.broadcast_to([[0.0], [1.0]], shape)))


@jax.jit
def largest(keys, belief, agent):
    """q of OPSRL for every key."""
    return jax.vmap(lambda key: agent.values(key, belief, Episodic(3)))(keys)[..., 0]
