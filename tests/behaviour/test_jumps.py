"""Jumps of likelihoods are found in the data flow: random programs against their numbers, and every agent."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import EpsilonGreedyQ
from bayes_mdp.behaviour import LearnerChoices, Parameter, PlannerChoices, TwoStep, fit, log_likelihood, simulate
from bayes_mdp.behaviour.jumps import jumping_parameters, refuse_jumps
from bayes_mdp.inference import SamplingWarning
from bayes_mdp.mdp import Problem
from tests.behaviour.bandits import MODEL, environment
from tests.behaviour.own_parameters import OWN, model_of

LEAVES = ("a", "b", "s", "r")


def _pick(xp, x, y, p, q):
    """p, q or .2 by the largest of x, y and .1."""
    scores, values = (xp.stack([x, y, xp.full_like(x, c)]) for x, y, c in ((x, y, 0.1), (p, q, 0.2)))
    return xp.take_along_axis(values, xp.argmax(scores, 0)[None], 0)[0]


CONTINUOUS: dict[str, Any] = {
    "sum": lambda xp, x, y: x + y,
    "product": lambda xp, x, y: xp.tanh(x) * y,
    "max": lambda xp, x, y: xp.maximum(x, y),
    "min by where": lambda xp, x, y: xp.where(x < y, x, y),
    "max by where": lambda xp, x, y: xp.where(y >= x, y, x),
    "modulus": lambda xp, x, y: xp.abs(x - y),
    "modulus by where": lambda xp, x, y: xp.where(x > 0, x, -x) + y,
    "ramp": lambda xp, x, y: xp.where(x > 0.3, (x - 0.3) * xp.tanh(y), 0.0),
    "pieces": lambda xp, x, y: xp.where(x > 1.0, 2.0 * x - 1.0, x * x) - y,
    "logistic": lambda xp, x, y: 1.0 / (1.0 + xp.exp(-x)) + y,
    "guard": lambda xp, x, y: xp.where(x > 0, xp.log1p(xp.where(x > 0, x, 1.0)), 0.0) + y,
    "finite": lambda xp, x, y: xp.where(xp.isfinite(x), x, 0.0) + y,
    "sorted": lambda xp, x, y: xp.sort(xp.stack([x, y]), axis=0)[1],
    "two rates": lambda xp, x, y: xp.where(x >= 0, 0.7, y) * x,
    "two rates of a difference": lambda xp, x, y: xp.where(x > y, 2.0, xp.tanh(x)) * (y - x) + y,
    "mask of itself": lambda xp, x, y: (x > 0) * x + y,
    "sign of itself": lambda xp, x, y: xp.sign(x) * x * y,
    "both halves": lambda xp, x, y: xp.where(x >= 0, y, 0.0) * x + xp.where(x < 0, 2.0, 0.0) * x,
}
JUMPING: dict[str, Any] = {
    "step": lambda xp, x, y, p, q: xp.where(x > y, p, q),
    "mask": lambda xp, x, y, p, q: (x > y) * p + q,
    "floor": lambda xp, x, y, p, q: xp.floor(3.0 * x) + p,
    "sign": lambda xp, x, y, p, q: xp.sign(x) + q,
    "argmax": _pick,
    "greedy": lambda xp, x, y, p, q: xp.where(xp.maximum(x, y) == x, p, q + 1.0),
    "both": lambda xp, x, y, p, q: xp.where((x > 0.2) & (y < 1.0), p, q),
}


def grown(rng, depth, jumps):
    """A random program of the leaves: (namespace, values) -> value. `jumps`: the share of nodes that may jump."""
    if depth == 0:
        leaf = LEAVES[rng.integers(len(LEAVES))]
        return lambda xp, v: v[leaf]
    table, size = (JUMPING, 4) if rng.random() < jumps else (CONTINUOUS, 2)
    node = table[list(table)[rng.integers(len(table))]]
    children = [grown(rng, int(rng.integers(depth)), jumps) for _ in range(size)]
    return lambda xp, v: node(xp, *(child(xp, v) for child in children))


class Grown:
    """A model of three random programs."""

    parameters = {"a": Parameter("real"), "b": Parameter("real")}  # noqa: RUF012

    def __init__(self, rng, jumps):
        self.first, self.change, self.value = (grown(rng, 4, jumps) for _ in range(3))

    def _init(self, xp, v):
        return self.first(xp, {**v, "s": xp.full_like(v["a"], 0.4), "r": xp.full_like(v["a"], 0.7)})

    def _update(self, xp, v, s, r):
        return xp.tanh(self.change(xp, {**v, "s": s, "r": xp.full_like(s, r)}))

    def _value(self, xp, v, s):
        return xp.tanh(self.value(xp, {**v, "s": s, "r": xp.full_like(s, -0.3)}))

    def init(self, params):
        return self._init(jnp, params)

    def update(self, params, state, transition):
        return self._update(jnp, params, state, transition.reward)

    def policy(self, params, state, observation):
        value = self._value(jnp, dict(params), state)
        return jax.nn.log_softmax(jnp.stack([value, jnp.zeros_like(value)]))

    def numbers(self, a, b):
        """Values after 0, 1 and 2 records, by NumPy: shares no tracing with the package."""
        v = {"a": np.asarray(a, float), "b": np.asarray(b, float)}
        state, found = self._init(np, v), []
        for reward in (0.9, -0.4, 0.1):
            found.append(self._value(np, v, state))
            state = self._update(np, v, state, reward)
        return np.stack(found)


def jumps_of(function):
    """Whether a function [3 G] of a line jumps: the largest steps of a fine grid do not shrink under bisection."""
    grid = np.linspace(-2.03, 2.01, 1501)
    steps = np.abs(np.diff(function(grid)))
    row, at = np.repeat(np.arange(3), 4), np.argsort(-steps, axis=1)[:, :4].ravel()
    low, high = grid[at], grid[at + 1]
    look = lambda x: function(x)[row, np.arange(len(row))]  # noqa: E731
    for _ in range(48):
        middle = 0.5 * (low + high)
        left, mid, right = look(low), look(middle), look(high)
        nearer = np.abs(mid - left) > np.abs(right - mid)
        low, high = np.where(nearer, low, middle), np.where(nearer, middle, high)
    return bool(np.any(np.abs(look(low) - look(high)) > 1e-5))


def programs(number, jumps, seed):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        yield Grown(rng, jumps), rng.normal(size=2)


def check_sound(number, seed):
    """Every jump that the numbers show is found; returns how many there were, and how many parameters were flagged."""
    jumped = flagged = 0
    with np.errstate(all="ignore"):
        for model, (a, b) in programs(number, 0.12, seed):
            found = jumping_parameters(model)
            lines = {
                "a": lambda x, b=b, m=model: m.numbers(x, b + 0 * x),
                "b": lambda x, a=a, m=model: m.numbers(a + 0 * x, x),
            }
            for name, line in lines.items():
                jumps = jumps_of(line)
                assert name in found or not jumps, f"{name} jumps and was not found"
                jumped, flagged = jumped + jumps, flagged + (name in found)
    return jumped, flagged


def test_jumps_of_random_programs_are_found():
    jumped, flagged = check_sound(5, 0)
    assert jumped >= 3 and flagged <= 2 * jumped


@pytest.mark.slow
def test_jumps_of_many_random_programs_are_found():
    """1,200 lines of 600 programs. Some are flagged that do not jump: the jump lies off the line, or is taken back."""
    jumped, flagged = check_sound(600, 1)
    print(jumped, flagged)
    assert jumped >= 240 and flagged <= 2 * jumped


class Idiom(Grown):
    """A model that uses one node of the table."""

    def __init__(self, node):
        self.first = self.change = lambda xp, v: v["s"]
        self.value = lambda xp, v: node(xp, v["a"], v["b"])


@pytest.mark.parametrize("name", CONTINUOUS)
def test_a_continuous_selection_is_not_refused(name):
    assert jumping_parameters(Idiom(CONTINUOUS[name])) == {}


@pytest.mark.parametrize("number", [10, pytest.param(500, marks=pytest.mark.slow)])
def test_few_continuous_random_programs_are_refused(number):
    """Those whose two sides are the same by more than the rules of the proof."""
    refused = sum(jumping_parameters(model) != {} for model, _ in programs(number, 0.0, 2))
    assert refused <= 0.2 * number


class Errors(type(MODEL)):
    """A value that moves by a rule of the prediction error and of two rates."""

    parameters = {"up": Parameter("unit"), "down": Parameter("unit"), "beta": Parameter("positive")}  # noqa: RUF012

    def __init__(self, rule):
        self.rule = rule

    def update(self, params, q, transition):
        a = transition.action
        return q.at[a].add(self.rule(transition.reward - q[a], params["up"], params["down"], q[1 - a]))


STOP = jax.lax.stop_gradient
SAME_AT_ZERO: dict[str, Any] = {
    "where": lambda e, u, d, o: jnp.where(e >= 0, u, d) * e,
    "open": lambda e, u, d, o: e * jnp.where(e > 0, u, d),
    "products": lambda e, u, d, o: jnp.where(e < 0, d * e, u * e),
    "below": lambda e, u, d, o: jnp.where(jnp.greater(0, e), d, u) * e,
    "not": lambda e, u, d, o: jnp.where(~(e >= 0), d, u) * e,
    "negative": lambda e, u, d, o: jnp.where(-e <= 0, u, d) * e,
    "cond": lambda e, u, d, o: jax.lax.cond(e >= 0, lambda: u * e, lambda: d * e),
    "rate by cond": lambda e, u, d, o: jax.lax.cond(e >= 0, lambda: u, lambda: d) * e,
    "select": lambda e, u, d, o: jax.lax.select(e >= 0, u, d) * e,
    "maximum": lambda e, u, d, o: u * jnp.maximum(e, 0) + d * jnp.minimum(e, 0),
    "clip": lambda e, u, d, o: u * jnp.clip(e, 0, 1) + d * jnp.clip(e, -1, 0),
    "modulus": lambda e, u, d, o: u * (e + jnp.abs(e)) + d * (e - jnp.abs(e)),
    "sign": lambda e, u, d, o: u * jnp.sign(e) * e + d * e,
    "masks": lambda e, u, d, o: u * (e > 0) * e + d * (e <= 0).astype(float) * e,
    "stopped": lambda e, u, d, o: jnp.where(STOP(e) >= 0, u, d) * e,
    "rates of more": lambda e, u, d, o: jnp.tanh(jnp.where(e >= 0, u + o, d)) * jnp.sin(o) * e,
    "spread": lambda e, u, d, o: jnp.sum(jnp.where(e >= 0, u, d) * (jnp.array([0.2, 0.3]) * e)),
    "far": lambda e, u, d, o: jnp.where(e >= 0.1, u, d) * (e - 0.1),
    "square": lambda e, u, d, o: jnp.where(e >= 0, u, -d) * e**2 / (1.0 + e**2),
    "both": lambda e, u, d, o: jnp.where((e >= 0) & (e < 0.5), u * e * (0.5 - e), 0.0),
}  # fmt: skip
OTHER_AT_ZERO: dict[str, Any] = {
    "rate alone": lambda e, u, d, o: jnp.where(e >= 0, u, d),
    "shifted": lambda e, u, d, o: jnp.where(e >= 0.1, u, d) * e,
    "of another": lambda e, u, d, o: jnp.where(o >= 0, u, d) * e,
    "and of another": lambda e, u, d, o: jnp.where((e >= 0) & (o > 0.2), u, d) * e,
    "rate of a sum": lambda e, u, d, o: (jnp.where(e >= 0, u, d) + 1.0) * (e + o),
    "pole": lambda e, u, d, o: jnp.where(e >= 0, u, d) * e / jnp.abs(e),
    "pole before": lambda e, u, d, o: jnp.where(e >= 0, u, d) * e * (1.0 / e),
    "power": lambda e, u, d, o: jnp.where(e >= 0, u, d) * e * e**-1,
    "sign": lambda e, u, d, o: jnp.sign(e) * u,
    "sign of another": lambda e, u, d, o: jnp.sign(o) * u * e,
    "two signs": lambda e, u, d, o: jnp.where(e >= 0, u, d) * jnp.sign(e),
    "step": lambda e, u, d, o: jnp.floor(jnp.where(e >= 0, 2.5, 0.5)) * u + d * e,
    "rounded": lambda e, u, d, o: jnp.where(jnp.floor(e) >= 0, u, d) * e * jnp.floor(4.0 * e),
    "cond": lambda e, u, d, o: jax.lax.cond(e >= 0, lambda: u * e, lambda: d * e + 0.01),
    "three": lambda e, u, d, o: jnp.where(e >= 0, jnp.where(o >= 0, u, d), u) * e,
    "steps of a step": lambda e, u, d, o: jnp.where(jnp.where(o >= 0, e, e + 1.0) >= 0, u, d) * e,
    "each of two": lambda e, u, d, o: jnp.sum(jnp.where(jnp.stack([e, o]) >= 0, u, d)) * e,
    "reversed": lambda e, u, d, o: jnp.sum(jnp.where(jnp.stack([e, o]) >= 0, u, d) * jnp.stack([e, o])[::-1]),
    "guard that holds": lambda e, u, d, o: jnp.where(jnp.maximum(e, 100.0) == 100.0, u, d),
    "best action": lambda e, u, d, o: jnp.where(jnp.argmax(jnp.stack([e, o])) == 7, u, d) * e,
    "infinite": lambda e, u, d, o: jnp.where(e >= 0, jnp.exp(-1.0 / jnp.maximum(e, 0.0)), -jnp.inf) + d * e,
}  # fmt: skip


@pytest.mark.parametrize("name", SAME_AT_ZERO)
def test_rates_of_the_sign_of_an_error_are_continuous_times_the_error(name):
    """`where(e >= 0, up, down) * e` was refused."""
    assert jumping_parameters(Errors(SAME_AT_ZERO[name])) == {}


@pytest.mark.parametrize("name", OTHER_AT_ZERO)
def test_what_differs_where_it_switches_is_refused(name):
    """Poles, other variables, other thresholds, other elements, roundings: the proof must not reach them."""
    assert jumping_parameters(Errors(OTHER_AT_ZERO[name])) != {}


def test_the_refusal_says_how_to_write_two_rates():
    with pytest.raises(ValueError, match=r"two rates of an error e as up \* jnp\.maximum\(e, 0\) \+ down \* jnp\.min"):
        refuse_jumps(Errors(OTHER_AT_ZERO["shifted"]))


class Looped(type(MODEL)):
    """A loop whose turns depend on the rate."""

    def update(self, params, q, transition):
        return jax.lax.while_loop(lambda x: jnp.sum(x) < params["rate"], lambda x: x + 0.3, q)


class Branched(type(MODEL)):
    """A branch by the rate."""

    def update(self, params, q, transition):
        return jax.lax.cond(params["rate"] > 0.5, lambda: q + 1.0, lambda: q)


class Renamed(type(MODEL)):
    """One of two numbers by the data, compared with the first of them."""

    def policy(self, params, q, state):
        either = jax.lax.cond(state == 0, lambda: q[0], lambda: q[1])
        return jax.nn.log_softmax(jnp.stack([jnp.where(either > q[0], 1.0, 0.0), 0.0]))


class Rounded(type(MODEL)):
    """A choice by rounded values, hidden from the gradient."""

    def policy(self, params, q, state):
        return super().policy(params, jax.lax.stop_gradient(jnp.round(q)), state)


def test_loops_branches_and_roundings_are_found():
    assert jumping_parameters(MODEL) == {} and jumping_parameters(TwoStep(), ends=True) == {}
    for model in (Looped(), Branched(), Renamed()):
        assert jumping_parameters(model)["rate"] == "a comparison"
    assert jumping_parameters(Rounded()) == {"rate": "a rounding"}


QUICK = ("boltzmann_q", "epsilon_greedy_q", "soft_q")
CLOSED = {
    "ube", "moment_matching", "covariance_thompson", "soft_q", "soft_q_mean", "boltzmann_q", "epsilon_greedy_mean",
    "epsilon_greedy_model",
}  # fmt: skip
SAFE = {
    "epsilon_greedy_q": {"epsilon"},
    "sarsa_lambda": {"epsilon"},
    "td_bma": {"epsilon"},
    "annealed_q": {"epsilon", "half_life"},
    "ieql_plus": {"max_reward"},
}
"""Parameters of agents that choose by an argmax which do not decide it."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in ("boltzmann_q", "epsilon_greedy_q", "soft_q") else pytest.mark.slow)
        for n in OWN
    ],
)
def test_of_an_agent_what_reaches_its_argmax_jumps(name):
    """The lapse never does. BQL's target is the belief of the best next action, whichever that is: it jumps."""
    found, own = jumping_parameters(model_of(name)), set(OWN[name].ranges)
    assert set(found) == (set() if name in CLOSED else own - SAFE.get(name, set()))


def test_a_planner_is_continuous_in_reward_and_temperature():
    def make(p):
        return bm.MDP(np.full((2, 2, 2), 0.5), jnp.stack([jnp.array([0.0, 1.0]), p["pay"] * jnp.ones(2)]))

    parameters = {"pay": Parameter("real"), "temperature": Parameter("positive")}
    for objective in (bm.Discounted(0.9), bm.Episodic(3), bm.AverageReward()):
        assert jumping_parameters(PlannerChoices(make, parameters, objective)) == {}


def test_fit_refuses_a_jump_by_name_and_takes_a_kernel_without_gradients():
    greedy = LearnerChoices(
        lambda p: EpsilonGreedyQ(p["rate"], 0.3),
        {"rate": Parameter("unit")},
        Problem(bm.StateActionSpace(1, 2), bm.Discounted(0.5)),
    )
    log = simulate(jax.random.key(0), greedy, {"rate": [0.3]}, environment(), 60)
    with pytest.raises(ValueError, match=r"model may jump in its parameter 'rate' \(a comparison of what .*infer\.SA"):
        fit(jax.random.key(0), greedy, log)
    sampler = bm.inference.NUTS(500, 4000, 2, kernel=numpyro.infer.SA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # r-hat 1.02
        found = np.asarray(fit(jax.random.key(0), greedy, log, pooling="complete", sampler=sampler).params["rate"])
    grid = (np.arange(400) + 0.5) / 400  # the prior is uniform
    each = jax.jit(jax.vmap(lambda r: log_likelihood(greedy, {"rate": r}, log).sum()))(grid)
    weight = np.exp(np.asarray(each, float))
    mean = (grid * weight).sum() / weight.sum()
    sd = np.sqrt(((grid - mean) ** 2 * weight).sum() / weight.sum())
    # At least 100 effective draws of 8000: six standard errors, false alarm 2e-9; sees a shift of .6 sd.
    assert abs(found.mean() - mean) < 6 * sd / np.sqrt(100)
