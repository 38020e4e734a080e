"""A fit that several files look at."""

import warnings

import jax
import pytest

import bayes_mdp as bm
from bayes_mdp.behaviour import fit
from bayes_mdp.inference import SamplingWarning
from tests.behaviour.bandits import MODEL, play


@pytest.fixture(scope="package")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # as many draws as these tests need
        return fit(jax.random.key(1), MODEL, play(), sampler=bm.inference.NUTS(150, 300, 2))
