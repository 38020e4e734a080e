import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.behaviour import ChoiceLog, Parameter, PlannerChoices, log_likelihood
from bayes_mdp.behaviour.likelihood import choice_log_probs
from bayes_mdp.behaviour.planner_choices import Planned

pytestmark = pytest.mark.usefixtures("x64")
DEMONSTRATIONS = ["21", "31", "41", "21", "11", "31", "20", "41", "30", "11", "21", "40"]
STATE, ACTION = (np.array([[int(x[i]) for x in DEMONSTRATIONS]]) for i in (0, 1))
LOG = ChoiceLog(STATE, ACTION, np.zeros(STATE.shape), STATE, states=range(5), actions=("left", "right"))


def corridor(params):
    """Five cells, slip .1, rewards u and v at the ends."""
    rows = np.zeros((5, 2, 5))
    for s in range(5):
        for a, to in enumerate((max(s - 1, 0), min(s + 1, 4))):
            rows[s, a, to] += 0.9
            rows[s, a, (min(s + 1, 4), max(s - 1, 0))[a]] += 0.1
    reward = jnp.zeros(5).at[0].set(params["u"]).at[4].set(params["v"])
    return bm.MDP(jnp.asarray(rows), jnp.broadcast_to(reward[:, None], (5, 2)))


ENDS = {"u": Parameter("real"), "v": Parameter("real")}
MODEL = PlannerChoices(corridor, ENDS, bm.Discounted(0.9), temperature=0.5)


def test_the_corridor_has_its_golden_likelihoods():
    value = lambda u, v: float(log_likelihood(MODEL, {"u": u, "v": v}, LOG).sum())  # noqa: E731
    assert value(0.0, 0.0) == pytest.approx(-12 * np.log(2), abs=1e-12)
    assert value(0.0, 1.0) == pytest.approx(-8.577879, abs=6e-7)


def test_probabilities_are_those_of_plain_sweeps():
    params = {"u": -0.4, "v": 0.7}
    mdp = corridor(params)
    rows, reward = np.asarray(mdp.transition_probs), np.asarray(mdp.reward)
    v, q = np.zeros(5), np.zeros((5, 2))
    for _ in range(600):
        q = reward + 0.9 * rows @ v
        v = 0.5 * np.log(np.exp(q / 0.5).sum(1))
    expected = (q - v[:, None]) / 0.5
    np.testing.assert_allclose(choice_log_probs(MODEL, params, LOG)[0], expected[STATE[0]], atol=1e-12)


def test_a_discounted_episode_is_planned_backwards():
    params = {"u": -0.4, "v": 0.7}
    mdp = corridor(params)
    rows, reward, v = np.asarray(mdp.transition_probs), np.asarray(mdp.reward), np.zeros(5)
    plan = PlannerChoices(corridor, ENDS, bm.Episodic(3, 0.6), temperature=0.5).init(params).log_policy
    for step in (2, 1, 0):
        q = reward + 0.6 * rows @ v
        v = 0.5 * np.log(np.exp(q / 0.5).sum(1))
        np.testing.assert_allclose(plan[step], (q - v[:, None]) / 0.5, atol=1e-12)


def test_gradient_goes_through_the_plan():
    total = lambda v, t: log_likelihood(  # noqa: E731
        PlannerChoices(corridor, ENDS | {"temperature": Parameter("positive")}, bm.Discounted(0.9)),
        {"u": -0.4, "v": v, "temperature": t},
        LOG,
    ).sum()
    found = jax.grad(total, (0, 1))(0.7, 0.5)
    h = 1e-5
    numeric = [
        (total(0.7 + h, 0.5) - total(0.7 - h, 0.5)) / (2 * h),
        (total(0.7, 0.5 + h) - total(0.7, 0.5 - h)) / (2 * h),
    ]
    np.testing.assert_allclose(found, numeric, rtol=1e-7)


def test_episodes_are_counted():
    model = PlannerChoices(corridor, ENDS, bm.Episodic(3), temperature=0.5)
    params = {"u": 0.0, "v": 1.0}
    plan = bm.planning.solve_soft(corridor(params), bm.Episodic(3), 0.5).log_policy
    steps = np.arange(12) % 3
    np.testing.assert_allclose(choice_log_probs(model, params, LOG)[0], plan[steps, STATE[0]], atol=1e-12)
    ends = np.zeros((1, 12), bool)
    ends[0, 4] = True  # in the middle of the second episode
    steps = np.concatenate([[0, 1, 2, 0, 1], np.arange(7) % 3])
    log = ChoiceLog(STATE, ACTION, np.zeros(STATE.shape), STATE, ends, states=range(5), actions=range(2))
    np.testing.assert_allclose(choice_log_probs(model, params, log)[0], plan[steps, STATE[0]], atol=1e-12)


def test_an_episode_begins_anew_after_its_last_step_or_an_end():
    model = PlannerChoices(corridor, ENDS, bm.Episodic(3))
    for step, ended, after in ((0, False, 1), (1, False, 2), (2, False, 0), (1, True, 0)):
        record = bm.Transitions(0, 0, 0.0, 0, terminated=ended)
        assert int(model.update({}, Planned(jnp.zeros((3, 5, 2)), jnp.int32(step)), record).step) == after
