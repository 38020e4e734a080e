"""The likelihood of an agent's own choices is the product of the probabilities with which it took them."""

import os
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS, PSRL, UBE, BoltzmannQ, EpsilonGreedyQ, SarsaLambda, SoftQ
from bayes_mdp.agents.common.replan import Doubling
from bayes_mdp.behaviour import LearnerChoices, Parameter, log_likelihood
from bayes_mdp.behaviour.likelihood import choice_log_probs
from bayes_mdp.mdp import Problem
from tests import matrix
from tests.behaviour.replays import OBJECTIVE, RANDOM, REPLAYED, START, agent_of, history, model_of, prior_of

QUICK = ("soft_q", "ube", "td_bma", "k_learning")
ENDING = bm.StateActionSpace(3, 2, ends=True)


def own_choices(agent, **options):
    log, expected = history(agent, **options)
    options.pop("num_choices", None)
    found = np.asarray(log_likelihood(model_of(agent, **options), {}, log))[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    assert np.exp(found.sum()) == pytest.approx(np.exp(expected.sum()), rel=1e-10)
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in REPLAYED]
)
def test_likelihood_of_own_choices_is_the_product_of_their_probabilities(name, x64):
    agent = agent_of(name)
    own_choices(agent, prior=prior_of(agent))


@pytest.mark.some(2)
@pytest.mark.parametrize("name", RANDOM)
def test_an_agent_with_random_plans_is_refused_with_what_to_use(name):
    agent = agent_of(name)
    who = type(agent).__name__
    with pytest.raises(ValueError, match=rf"agent is {who}, whose action probabilities depend .* such as UBE\("):
        model_of(agent, prior=prior_of(agent), objective=matrix.objective_for(name))


@pytest.mark.parametrize("name", ["ube", "moment_matching", "covariance_thompson"])
def test_noise_of_a_plan_is_refused_with_the_option_that_draws_at_every_step(name):
    agent = AGENTS[name]()
    with pytest.raises(ValueError, match=rf"expected {type(agent).__name__}\(noise='per_step'\)"):
        model_of(agent, prior=prior_of(agent))


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("agent", "objective"),
    [
        (SoftQ(0.5, replan=Doubling()), bm.Episodic(3)),
        (SarsaLambda(epsilon=0.3, trial_steps=40), bm.Discounted(0.9)),
        (SarsaLambda(epsilon=0.3, trial_steps=4), bm.Discounted(0.9)),
        (BoltzmannQ(0.5, replan="episode"), bm.FirstExit()),
        (EpsilonGreedyQ(replan=4), bm.Episodic(3)),
    ],
    ids=["doubling", "trials", "cut trials", "episode", "period"],
)
def test_ends_and_rules_of_replanning_are_followed(agent, objective, x64):
    found = own_choices(agent, space=ENDING, objective=objective, num_choices=30)
    assert len(np.unique(found.round(9))) > 1


def soft_q():
    parameters = {"temperature": Parameter("positive"), "rate": Parameter("unit")}
    return LearnerChoices(
        lambda p: SoftQ(p["temperature"], p["rate"]), parameters, Problem(matrix.SPACE, OBJECTIVE, START)
    )


def test_parameters_are_traced_and_differentiable(x64):
    log, expected = history(SoftQ(0.3, 0.2), num_choices=20)
    model = soft_q()
    total = lambda t, r: log_likelihood(model, {"temperature": t, "rate": r}, log).sum()  # noqa: E731
    assert float(total(0.3, 0.2)) == pytest.approx(expected.sum(), abs=1e-10)
    found = jax.grad(total, (0, 1))(0.3, 0.2)
    h = 1e-6
    numeric = (
        (total(0.3 + h, 0.2) - total(0.3 - h, 0.2)) / (2 * h),
        (total(0.3, 0.2 + h) - total(0.3, 0.2 - h)) / (2 * h),
    )
    np.testing.assert_allclose(found, numeric, rtol=1e-6)


def test_a_greedy_agent_has_impossible_choices_unless_it_lapses(x64):
    agent = EpsilonGreedyQ(epsilon=0.0)
    log, _ = history(EpsilonGreedyQ(epsilon=1.0), num_choices=20)
    with pytest.raises(ValueError, match=r"action 1 in state \d \(subject 0, choice \d+\) has probability 0 under"):
        log_likelihood(model_of(agent), {}, log)
    lapsing = model_of(agent, lapse=True)
    greedy = np.exp(np.asarray(choice_log_probs(model_of(agent), {}, log)))
    found = np.exp(np.asarray(choice_log_probs(lapsing, {"lapse": 0.2}, log)))
    np.testing.assert_allclose(found, 0.8 * greedy + 0.1, atol=1e-12)
    assert np.isfinite(jax.grad(lambda x: log_likelihood(lapsing, {"lapse": x}, log).sum())(jnp.asarray(0.2)))


def test_wrong_arguments_are_refused():
    problem = Problem(matrix.SPACE, OBJECTIVE, START)
    with pytest.raises(TypeError, match="prior is None, expected a posterior: UBE plans from one"):
        model_of(UBE(noise="per_step"))
    with pytest.raises(TypeError, match="make returned a int, expected an agent"):
        LearnerChoices(lambda p: 3, {}, problem)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="parameters has 'lapse'"):
        LearnerChoices(lambda p: PSRL(), {"lapse": Parameter()}, problem, lapse=True)


@pytest.mark.skipif(os.environ.get("BAYES_MDP_TYPES", "off") != "off", reason="its stand-ins have no types")
def test_a_lapse_takes_any_action_that_exists():
    """Of three actions two: a lapse of 0.2 on top of a plan that is certain of the first."""
    problem = SimpleNamespace(space=SimpleNamespace(legal=np.array([[True, True, False]])))
    plan: Any = SimpleNamespace(_log_probs=lambda *_: jnp.array([0.0, -jnp.inf, -jnp.inf]), lapse=True, problem=problem)
    state: Any = SimpleNamespace(policy=None, step=0)
    log_probs = LearnerChoices.policy(plan, {"lapse": jnp.asarray(0.2)}, state, jnp.int32(0))
    np.testing.assert_allclose(np.exp(log_probs), [0.9, 0.1, 0.0], rtol=1e-6)
