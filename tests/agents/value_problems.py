# pyright: reportArgumentType=false
"""Beliefs whose values have known variances, and plain numpy oracles (a covariance recursion, draws, errors)."""

import jax
import numpy as np

from bayes_mdp.agents.value_uncertainty import moment_matching, ube
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.normal import NormalGammaBelief
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.planning import evaluate

# One cache for the session. What is compiled cannot be proven a bound: tests of validity call the functions themselves.
solve_ube = jax.jit(ube.solve, static_argnames="form")
match_moments = jax.jit(moment_matching.value_variance)

_ALPHA = 6.0  # of the normal-gamma: the mean reward then has moments up to the eleventh


def belief(concentration, loc, variance, *, known=None, by_outcome=False, legal=None, horizon=None):
    """A `ConjugatePosterior` with given moments.

    Args:
        concentration: [*H S A S]; a row of zeros is known (`known`).
        loc, variance: of the mean rewards, [*H S A] or, `by_outcome`, [*H S A S]; variance 0: a known reward.
        known: [*H S A S], the known rows.
    """
    shape = concentration.shape
    space = StateActionSpace(shape[-1], shape[-2], horizon=horizon, legal=legal)
    sure = concentration.sum(-1) == 0
    row = np.full(sure.shape, -1)
    row[~sure] = np.arange((~sure).sum())
    prior = concentration[~sure] if (~sure).any() else np.ones((1, shape[-1]))
    rows = dirichlet_rows(prior, shape, row=row, known=known)
    loc, variance = (np.broadcast_to(x, shape if by_outcome else shape[:-1]) for x in (loc, variance))
    learnt = variance > 0
    if not learnt.any():
        return conjugate_posterior(rows, known_rewards(loc, by_outcome=by_outcome), space)
    cell = np.full(loc.shape, -1)
    cell[learnt] = np.arange(learnt.sum())
    # Variance rate / (pseudo_count (alpha - 1)), noise pseudo_count times as much.
    number = learnt.sum()
    pseudo_count, alpha = np.full(number, 2.0), np.full(number, _ALPHA)
    prior = NormalGammaBelief(loc[learnt], pseudo_count, alpha, 2.0 * (_ALPHA - 1) * variance[learnt])
    cells = reward_cells(prior, loc.shape, by_outcome=by_outcome, cell=cell, known=np.where(learnt, np.nan, loc))
    return conjugate_posterior(rows, cells, space)


def small(by_outcome=False, **options):
    """Three states, two actions, everything unknown."""
    rng = np.random.default_rng(3)
    shape = (3, 2, 3) if by_outcome else (3, 2)
    return belief(
        rng.uniform(0.5, 4, (3, 2, 3)),
        rng.normal(size=shape),
        rng.uniform(0.1, 1, shape),
        by_outcome=by_outcome,
        **options,
    )


def absorbing(rows, state):
    """`rows` [S A S] (known ones) with `state` absorbing."""
    rows = np.array(rows, float)
    rows[state] = np.eye(len(rows))[state]
    return rows


def chain(length, loc, variance):
    """Deterministic known moves 0 -> 1 -> .. -> length (absorbing, reward 0), one action, unknown rewards."""
    rows = absorbing(np.eye(length + 1, k=1), length)[:, None]
    learnt = (np.arange(length + 1) < length)[:, None]
    return belief(np.zeros_like(rows), np.where(learnt, loc, 0.0), np.where(learnt, variance, 0.0), known=rows)


LAYERS, WIDTH, ACTIONS = 3, 2, 2
STATES = LAYERS * WIDTH + 1


def layered_arrays(rng, number):
    """(concentration [N S A S], loc [N S A], variance [N S A], probs [N S A]) of random layered MDPs.

    States of a layer lead to the next one, or to the absorbing last state, whose row and reward are known.
    """
    concentration = np.zeros((number, STATES, ACTIONS, STATES))
    for layer in range(LAYERS):
        here = slice(layer * WIDTH, (layer + 1) * WIDTH)
        following = [*range((layer + 1) * WIDTH, (layer + 2) * WIDTH)] if layer < LAYERS - 1 else []
        for j in [*following, STATES - 1]:
            concentration[:, here, :, j] = np.exp(rng.normal(size=(number, WIDTH, ACTIONS)))
    loc, variance = rng.normal(size=(2, number, STATES, ACTIONS))
    loc[:, -1], variance = 0.0, np.exp(variance)
    probs = rng.dirichlet(np.full(ACTIONS, 0.5), (number, STATES))
    return concentration, loc, variance, probs


def layered(concentration, loc, variance):
    """The belief of one entry of `layered_arrays`."""
    known = np.broadcast_to(absorbing(np.zeros((STATES, STATES)), STATES - 1)[:, None], (STATES, ACTIONS, STATES))
    unknown = np.arange(STATES)[:, None] < STATES - 1
    return belief(concentration, np.where(unknown, loc, 0.0), np.where(unknown, variance, 0.0), known=known)


def exact_layered(concentration, loc, variance, probs, discount):
    """(mean and variance of q [N S A], of v [N S]) by the covariance recursion over layers, plain numpy.

    E[p_i p_j] = (1 - k) pbar_i pbar_j + k pbar_i [i = j], k = 1 / (c0 + 1): so E[p' C p] is two terms.
    """
    number = len(concentration)
    total = concentration.sum(-1)
    k = 1 / (total + 1)
    pbar = concentration / np.where(total > 0, total, 1)[..., None]
    q, q_var = np.zeros((2, number, STATES, ACTIONS))
    v, cov = np.zeros((number, STATES)), np.zeros((number, STATES, STATES))
    for s in reversed(range(STATES - 1)):
        p, w = pbar[:, s], probs[:, s]
        mean = np.einsum("naz,nz->na", p, v)
        q[:, s] = loc[:, s] + discount * mean
        row = k[:, s] * (np.einsum("naz,nz->na", p, v**2) - mean**2)
        among = np.einsum("naz,nzy,nby->nab", p, cov, p)
        each = np.einsum("naz,nzz->na", p, cov)
        own = row + (1 - k[:, s]) * np.einsum("naa->na", among) + k[:, s] * each
        q_var[:, s] = variance[:, s] + discount**2 * own
        both = discount**2 * among
        both[:, np.arange(ACTIONS), np.arange(ACTIONS)] = q_var[:, s]
        v[:, s] = (w * q[:, s]).sum(-1)
        cov[:, s] = cov[:, :, s] = discount * np.einsum("na,naz,nzy->ny", w, p, cov)
        cov[:, s, s] = np.einsum("na,nab,nb->n", w, both, w)
    return q, q_var, v, np.einsum("nss->ns", cov)


def drawn_values(key, posterior, policy, objective, number):
    """q [N *H S A] and v [N *H S] of a policy in draws of a posterior."""

    def one(key):
        answer = evaluate(posterior.sample(key), policy, objective)
        return answer.q, answer.v

    return jax.jit(lambda key: jax.lax.map(one, jax.random.split(key, number), batch_size=4096))(key)


def variance_and_error(samples):
    """Variance over the first axis, and its standard error."""
    samples = np.asarray(samples, np.float64)
    centred = samples - samples.mean(0)
    square = (centred**2).mean(0)
    return square, np.sqrt(np.maximum((centred**4).mean(0) - square**2, 0) / len(samples))


def off_by(samples, claimed):
    """Standard errors between the variance of `samples` and a claim; the largest. Above 6: chance 1e-8 or so."""
    variance, error = variance_and_error(samples)
    return float(np.max(np.abs(variance - np.asarray(claimed)) / np.maximum(error, 1e-9)))
