"""The models that have a name: their likelihoods against loops over choices, and rivals that recover who made them."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.behaviour import log_likelihood, ready_model
from bayes_mdp.behaviour.fit_behaviour import BehaviourPosterior
from bayes_mdp.behaviour.jumps import refuse_jumps
from bayes_mdp.behaviour.models_by_name import DESCRIPTIONS, MODELS
from bayes_mdp.inference.draws.chains import Chains

STATES, ACTIONS = 2, 3


@pytest.fixture
def log():
    rng = np.random.default_rng(0)
    state, action = rng.integers(STATES, size=(4, 30)), rng.integers(ACTIONS, size=(4, 30))
    state[0, :2], action[0, :3] = (0, 1), (0, 1, 2)
    return bm.behaviour.ChoiceLog(state, action, rng.integers(2, size=(4, 30)).astype(float))


def softmax(odds):
    return np.exp(odds) / np.exp(odds).sum()


def win_stay(params, state, action, reward):
    """Wilson and Collins: after a win the same with probability 1 - noise, the rest of the time at random."""
    last: dict[int, tuple[int, float]] = {}
    total = 0.0
    for s, a, r in zip(state, action, reward, strict=True):
        rule = np.full(ACTIONS, 1 / ACTIONS)
        if s in last and last[s][1] > 0.5:
            rule = np.eye(ACTIONS)[last[s][0]]
        elif s in last:
            rule = (1 - np.eye(ACTIONS)[last[s][0]]) / (ACTIONS - 1)
        total += np.log((1 - params["noise"]) * rule[a] + params["noise"] / ACTIONS)
        last[s] = (a, r)
    return total


def habit(params, state, action, reward, learns=False):
    kernel, q, total = np.zeros((STATES, ACTIONS)), np.zeros((STATES, ACTIONS)), 0.0
    for s, a, r in zip(state, action, reward, strict=True):
        total += np.log(softmax(params["habit_sensitivity"] * kernel[s] + params.get("sensitivity", 0.0) * q[s])[a])
        kernel[s] += params["habit_rate"] * (np.eye(ACTIONS)[a] - kernel[s])
        q[s, a] += params.get("learning_rate", 0.0) * (r - q[s, a])
    return total


@pytest.mark.parametrize(
    ("name", "params", "by_hand"),
    [
        ("win_stay_lose_shift", {"noise": 0.3}, win_stay),
        ("habit", {"habit_rate": 0.4, "habit_sensitivity": 2.0}, habit),
        (
            "q_learning_habit",
            {"habit_rate": 0.4, "habit_sensitivity": 2.0, "learning_rate": 0.6, "sensitivity": 3.0},
            habit,
        ),
    ],
)
def test_the_likelihood_is_that_of_a_loop(log, name, params, by_hand):
    model = ready_model(name, log, bm.Discounted(0.0))
    refuse_jumps(model, ends=False)
    with jax.enable_x64(True):
        shown = log_likelihood(model, params, log).sum(1)
    columns = (np.asarray(x) for x in (log.state, log.action, log.reward))
    expected = [by_hand(params, *rows) for rows in zip(*columns, strict=True)]
    np.testing.assert_allclose(shown, expected, rtol=1e-9)
    changed = params | {next(iter(params)): 0.9}  # the loop follows its parameters
    assert not np.allclose([by_hand(changed, np.asarray(log.state)[0], np.asarray(log.action)[0],
                                    np.asarray(log.reward)[0])], expected[:1])  # fmt: skip


def test_every_name_has_a_model_of_the_log(log):
    assert list(MODELS) == list(DESCRIPTIONS)
    for name in MODELS:
        if name.startswith("two_step"):
            with pytest.raises(ValueError, match="log has 2 states and 3 actions, expected 3 and 2"):
                ready_model(name, log)
        else:
            params = {key: parameter.constrain(0.0) for key, parameter in ready_model(name, log).parameters.items()}
            assert jnp.isfinite(log_likelihood(ready_model(name, log), params, log)).all()
    with pytest.raises(ValueError, match="name is 'q_learner', expected one of"):
        ready_model("q_learner", log)


def test_good_is_half_way_between_the_worst_and_the_best_reward():
    log = bm.behaviour.ChoiceLog([[0, 0, 0]], [[0, 1, 1]], [[-2.0, 4.0, 1.5]])
    model = ready_model("win_stay_lose_shift", log)
    total = log_likelihood(model, {"noise": 0.5}, log).sum().item()
    assert total == pytest.approx(np.log(0.5) + np.log(0.75) + np.log(0.75), rel=1e-5)  # -2: shift; 4: stay


def test_the_learning_curve_of_the_better_action():
    """The share is counted by hand; states that are not named are left out."""
    state, action = [[0, 1, 0, 1, 0, 0], [0, 0, 1, 0, 1, 0]], [[0, 1, 1, 0, 1, 1], [0, 1, 0, 1, 1, 1]]
    reward = np.asarray(action, float)
    log = bm.behaviour.ChoiceLog(state, action, reward, states=("cue", "rest"), actions=("left", "right"))
    params: dict[str, Any] = {"noise": np.full((2, 10, 2), 0.5)}
    model = ready_model("win_stay_lose_shift", log)
    chains = Chains({"noise_line": np.zeros((2, 10, 2))})
    fitted = BehaviourPosterior(params, chains, model, log, "none")
    figure = bm.plots.plot_learning_curve(fitted, better={"cue": "right"}, num_blocks=4, num_draws=5)
    lines: Any = figure.axes[0].get_lines()
    share, chance = lines
    np.testing.assert_allclose(share.get_ydata(), [0.0, 1.0, 1.0, 1.0])  # choices 1 to 4 of both in the state "cue"
    assert share.get_label() == "the better action" and chance.get_ydata()[0] == 0.5
    both = bm.plots.plot_learning_curve(fitted, better={"cue": "right", "rest": "left"}, num_blocks=1, num_draws=5)
    (share, *_) = cast(Any, both.axes[0].get_lines())
    assert share.get_ydata()[0] == pytest.approx(8 / 12)
    with pytest.raises(ValueError, match=r"better\['cue'\] is 'up', expected one of 'left', 'right'"):
        bm.plots.plot_learning_curve(fitted, better={"cue": "up"})
