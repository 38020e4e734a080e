"""Histories that an agent of the library makes by itself, with the probabilities of its actions as it took them."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS, Learner
from bayes_mdp.behaviour import ChoiceLog, LearnerChoices
from bayes_mdp.mdp import Objective, Problem
from tests import matrix

START = np.eye(3)[0]
OBJECTIVE = bm.Episodic(3)
RANDOM = (
    "psrl",
    "exact_ube",
    "monte_carlo_thompson",
    "variance_optimism",
    "bayes_ucbvi",
    "opsrl",
    "rlsvi",
    "gaussian_psrl",
    "rand_ql",
    "bayesian_dp",
    "bamcp",
    "boss",
    "lmc_lsvi",
    "tsde",
)
"""Agents that plan from random draws, whatever their options."""
REPLAYED = tuple(name for name in AGENTS if name not in RANDOM)


def agent_of(name, **options):
    """An agent; one that draws its noise once for a plan draws it at every step instead."""
    agent: Any = AGENTS[name](**options)
    return dataclasses.replace(agent, noise="per_step") if getattr(agent, "noise", None) == "per_plan" else agent


def prior_of(agent):
    return None if isinstance(agent, Learner) else matrix.KINDS["exact"].posterior


def model_of(agent, *, space=matrix.SPACE, objective: Objective = OBJECTIVE, prior=None, **options):
    return LearnerChoices(lambda params: agent, {}, Problem(space, objective, START), prior=prior, **options)


def history(agent, *, space=matrix.SPACE, objective=OBJECTIVE, prior=None, num_choices=14, seed=0):
    """(log, log-probability of each action) of an `Actor` in a random world: code that shares nothing with replays."""
    actor = bm.Actor(agent, space, objective=objective, key=jax.random.key(seed), prior=prior, initial=START)
    rng = np.random.default_rng(seed)
    state, step, begins, rows, found = 0, 0, True, [], []
    for _ in range(num_choices):
        if begins:
            state, step = int(rng.integers(3)), 0
            actor.reset(state)
        action = actor.act(state)
        assert actor.policy is not None
        found.append(float(actor.policy.log_prob(jnp.int32(state), jnp.int32(action), jnp.int32(step))))
        reward, following = float(rng.integers(2)), int(rng.integers(3))
        ended = bool(space.ends and rng.random() < 0.25)
        actor.observe(state, action, reward, following, ended, False)
        rows.append((state, action, reward, following, ended))
        step += 1
        begins = ended or (isinstance(objective, bm.Episodic) and step == objective.horizon)
        state = following
    columns: list[Any] = [np.array(x)[None] for x in zip(*rows, strict=True)]
    flags = columns.pop() if space.ends else None
    state, action, reward, following = columns[:4]
    log = ChoiceLog(state, action, reward, following, flags, states=range(3), actions=range(2))
    return log, np.array(found)
