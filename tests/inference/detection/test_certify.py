"""The certificate: site by site the density of the program, at any scale, and a wrong closed form does not pass."""

# `numpyro.sample` is typed to return any ArrayLike, and records as JAX arrays: too narrow for tests.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

from bayes_mdp.inference.collapsed.collapsed_posterior import as_prior
from bayes_mdp.inference.conjugate.conjugate_posterior import refit
from bayes_mdp.inference.detection import certify as certificate
from bayes_mdp.inference.detection.certify import certify
from bayes_mdp.inference.detection.detect import detect
from bayes_mdp.inference.detection.probe import Probe
from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.inference.route import infer
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models import (
    PRIORS,
    MDPSpec,
    dirichlet_bernoulli,
    dirichlet_normal,
    dirichlet_normal_gamma,
    dirichlet_poisson,
    joint,
)
from bayes_mdp.models.joint import OBSERVED_NEXT_STATE, OBSERVED_REWARD
from tests.inference.programs import ACCEPTED, SPACE, draw_transitions, sequential_evidence, transitions_of

KEY = jax.random.key(0)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ACCEPTED)
def test_the_evidence_is_that_of_one_transition_after_the_other(name):
    program = ACCEPTED[name]
    data = draw_transitions(program, 60, seed=1)
    posterior = infer(KEY, program.prior, transitions_of(program, data), space=program.space)
    expected = sequential_evidence(program, data)
    assert abs(posterior.log_evidence - expected) < 1e-9 * abs(expected)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ACCEPTED)
def test_bayes_theorem_holds_on_the_conditioned_model(name, x64):
    """log joint - log posterior is the log evidence at any point: NumPyro's densities on one side, ours on the other.

    The evidence comes from a third route, the closed form of the marginal."""
    program = ACCEPTED[name]
    transitions = transitions_of(program, draw_transitions(program, 60, seed=1))
    traced, rng = trace_program(program.prior, program.space), np.random.default_rng(2)
    detected = detect(Probe(traced))
    posterior = refit(detected.posterior, transitions)
    for spread in (1.0, 5.0):
        point = certificate._draw(detected, rng, spread)
        model = handlers.seed(joint(program.prior, program.space), 0)
        log_joint = log_density(model, (transitions,), {}, detected.layout.split(point))[0]
        after = certificate._terms(detected._replace(posterior=_as_prior(posterior)), transitions, point)
        leaves = [term.value for term in after if not set(term.sites) & {OBSERVED_NEXT_STATE, OBSERVED_REWARD}]
        np.testing.assert_allclose(log_joint - sum(leaves), posterior.log_evidence, rtol=1e-9)


def _as_prior(posterior):
    return jax.tree.map(np.asarray, as_prior(posterior))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "prior",
    [
        dirichlet_normal_gamma(loc=1e5),
        dirichlet_normal_gamma(1e7),
        dirichlet_normal_gamma(1e12),
        dirichlet_normal_gamma(pseudo_count=1e9),
        dirichlet_normal_gamma(pseudo_count=1e-9, rate=1e-9),
        dirichlet_normal_gamma(reward_concentration=1e9, rate=1e9),
        dirichlet_bernoulli(1e8),
        dirichlet_bernoulli(1.0, 1e8, 1e-8),
        dirichlet_normal(1e8, loc=-1e6, scale=1e-4, noise_scale=1e3),
        dirichlet_poisson(1e-8, 1e7, 1e-7),
    ],
)
def test_large_numbers_are_no_obstacle(prior):
    """Each was refused, or took minutes of chains: sums of large terms that cancel are rounded by their own size."""
    assert infer(KEY, prior, space=SPACE).method == "exact"


SUPPORT = np.ones((3, 2, 4), bool)
SUPPORT[0, 0, 1:] = SUPPORT[1, :, 0] = SUPPORT[2, 1, 2:] = False
LEGAL = np.array([[True, True], [True, True], [True, False]])


@pytest.mark.few(1)
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
    posterior = infer(KEY, lambda space: MDPSpec(known, np.zeros((3, 2))), space=SPACE)
    data = draw_transitions(ACCEPTED["renamed"], 10, seed=0)
    after = refit(posterior, replace(transitions_of(ACCEPTED["renamed"], data), reward=None))
    np.testing.assert_allclose(after.log_evidence, np.log(known[0, 0])[data["outcome"]].sum(), rtol=1e-12)


def _rows(space):
    with space.plates():
        return numpyro.sample("transition", dist.Dirichlet(jnp.ones(3)))


def _clean(space):
    return MDPSpec(_rows(space), np.zeros((3, 2)))


def _tempered(space):
    with handlers.scale(scale=0.9):
        return MDPSpec(_rows(space), np.zeros((3, 2)))


def _other_concentration(space):
    with space.plates():
        rows = numpyro.sample("transition", dist.Dirichlet(jnp.array([1.0, 1.0, 1.001])))
    return MDPSpec(rows, np.zeros((3, 2)))


def _turned(space):
    return MDPSpec(_rows(space)[::-1], np.zeros((3, 2)))


def _factor(space):
    numpyro.factor("constant", 1e-6)
    return MDPSpec(_rows(space), np.zeros((3, 2)))


@pytest.mark.parametrize("other", [_tempered, _other_concentration, _turned, _factor])
def test_a_closed_form_of_another_program_does_not_pass(other, x64):
    rng = np.random.default_rng(0)
    detected = detect(Probe(trace_program(_clean, SPACE)))
    with pytest.raises(ValueError, match="density is not that of conjugate sites"):
        certify(trace_program(other, SPACE), detected, rng)
