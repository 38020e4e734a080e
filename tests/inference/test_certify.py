"""The certificate: three routes to one log evidence, and a closed form that is wrong does not pass."""

# `numpyro.sample` is typed to return any ArrayLike, and records as JAX arrays: too narrow for tests.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from programs import ACCEPTED, SPACE, draw_transitions, sequential_evidence, transitions_of

from bayes_mdp.inference.certify import certify, log_evidences
from bayes_mdp.inference.detect import detect
from bayes_mdp.inference.refit import refit
from bayes_mdp.inference.route import infer
from bayes_mdp.inference.trace import trace_program
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models import PRIORS, World

KEY = jax.random.key(0)


@pytest.mark.parametrize("name", ACCEPTED)
def test_three_routes_to_the_evidence(name, x64):
    program = ACCEPTED[name]
    data = draw_transitions(program, 60, seed=1)
    transitions, rng = transitions_of(program, data), np.random.default_rng(2)
    posterior = infer(KEY, program.prior, transitions, space=program.space)
    expected = sequential_evidence(program, data)
    assert abs(posterior.log_evidence - expected) < 1e-9 * abs(expected)
    traced = trace_program(program.prior, program.space)
    constants = log_evidences(traced, detect(traced, rng), posterior, transitions, rng)
    np.testing.assert_allclose(constants, expected, rtol=1e-9)


SUPPORT = np.ones((3, 2, 4), bool)
SUPPORT[0, 0, 1:] = SUPPORT[1, :, 0] = SUPPORT[2, 1, 2:] = False
LEGAL = np.array([[True, True], [True, True], [True, False]])


@pytest.mark.parametrize(
    ("name", "rewards_on"),
    [
        ("dirichlet_normal_gamma", "state_action"),
        ("dirichlet_bernoulli", "outcome"),
        *(
            pytest.param(name, on, marks=pytest.mark.slow)
            for name in PRIORS
            for on in ("state_action", "outcome")
            if name.startswith("dirichlet_")
        ),
    ],
)
def test_ready_priors_are_certified_with_support_masks_and_horizon(name, rewards_on):
    space = StateActionSpace(3, 2, horizon=2, ends=True, support=SUPPORT, legal=LEGAL)
    posterior = infer(KEY, PRIORS[name](0.7, rewards_on=rewards_on), space=space)
    assert posterior.reward_cells.by_outcome == (rewards_on == "outcome")
    assert np.array_equal(np.asarray(posterior.transition_probs.mean())[:, LEGAL] > 0, np.stack([SUPPORT[LEGAL]] * 2))


def test_a_wholly_known_world_has_evidence_zero_or_none():
    known = np.broadcast_to(np.array([0.25, 0.5, 0.25]), (3, 2, 3))
    posterior = infer(KEY, lambda space: World(known, np.zeros((3, 2))), space=SPACE)
    data = draw_transitions(ACCEPTED["renamed"], 10, seed=0)
    after = refit(posterior, transitions_of(ACCEPTED["renamed"], data))
    np.testing.assert_allclose(after.log_evidence, np.log(known[0, 0])[data["outcome"]].sum(), rtol=1e-12)


def _rows(space):
    with space.plates():
        return numpyro.sample("transition", dist.Dirichlet(jnp.ones(3)))


def _clean(space):
    return World(_rows(space), np.zeros((3, 2)))


def _tempered(space):
    with handlers.scale(scale=0.9):
        return World(_rows(space), np.zeros((3, 2)))


def _other_concentration(space):
    with space.plates():
        rows = numpyro.sample("transition", dist.Dirichlet(jnp.array([1.0, 1.0, 1.001])))
    return World(rows, np.zeros((3, 2)))


def _turned(space):
    return World(_rows(space)[::-1], np.zeros((3, 2)))


def _factor(space):
    numpyro.factor("constant", 1e-6)
    return World(_rows(space), np.zeros((3, 2)))


@pytest.mark.parametrize("other", [_tempered, _other_concentration, _turned, _factor])
def test_a_closed_form_of_another_program_does_not_pass(other, x64):
    rng = np.random.default_rng(0)
    detected = detect(trace_program(_clean, SPACE), rng)
    with pytest.raises(ValueError, match="density is not that of conjugate leaves"):
        certify(trace_program(other, SPACE), detected, rng)
