"""Posteriors by chains, run once for all tests."""

from functools import lru_cache

import jax
import pytest

from bayes_mdp.inference import NUTS, infer
from tests.inference.model_evidence.evidence_problems import PROBLEMS, SPACE, data

SAMPLER = NUTS(num_warmup=300, num_samples=500, num_chains=4)


@lru_cache
def run(name):
    """The posterior of a problem."""
    problem = PROBLEMS[name]
    key = jax.random.key(sum(map(ord, name)))
    return infer(key, problem.prior, data(problem.reward), space=SPACE, method=problem.method, sampler=SAMPLER)


@pytest.fixture(scope="session")
def posterior_of():
    """Name of a problem -> its posterior."""
    return run
