"""Bayesian Q-learning: the rule step by step, its policies, and that it learns."""

from itertools import pairwise, product
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from bayes_mdp.agents import AGENTS, BQL, Learner
from bayes_mdp.agents.model_free import bql
from bayes_mdp.agents.model_free.bql import (
    GreedyReturn,
    MyopicVPI,
    StudentTThompson,
    prob_best_student_t,
)
from bayes_mdp.envs import chain, deep_sea
from bayes_mdp.experiments import Actor, RunOptions, run
from bayes_mdp.inference.value.returns import (
    ReturnBelief,
    mixture_update,
    moment_update,
    target,
    value_of_perfect_information,
)
from bayes_mdp.inference.value.student_t import StudentT
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    Discounted,
    Environment,
    Episodic,
    FirstExit,
    Problem,
    StateActionSpace,
    Transitions,
)
from tests.experiments.toy import two_states, walk_that_ends
from tests.tf32 import MEASURED

LEGAL = [[True, True, True], [True, False, True]]
SPACE = StateActionSpace(2, 3, ends=True, legal=LEGAL)
QUIET = RunOptions(progress=False)
KEY = jax.random.key(0)
CHOICES = ("thompson", "per_plan", "vpi", "greedy")
UPDATES = {"mixture": mixture_update, "moment": moment_update}


def _problem(objective):
    return Problem(SPACE, objective)


def _seen(problem, agent, fields):
    """The belief before, and after one transition, out of a table of unequal beliefs."""
    start = agent.init(KEY, problem)
    rng = np.random.default_rng(3)
    before = jax.tree.map(lambda x: x + jnp.asarray(rng.uniform(0.0, 2.0, x.shape), x.dtype), start)
    observe = jax.jit(lambda b, t, w: agent.observe(problem, b, t, w))
    seen = Transitions(0, 1, 0.7, 1, **{"terminated": np.array(False), "step": np.array(0), **fields})
    return before, lambda weight=1.0: observe(before, seen, weight)


def _cell(belief, *index):
    return jax.tree.map(lambda x: x[index], belief)


def _only(before, after, index):
    """Nothing but the cell `index` changed."""
    changed = np.zeros(before.loc.shape, bool)
    changed[index] = True
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return all(np.array_equal(np.asarray(x)[~changed], np.asarray(y)[~changed]) for x, y in pairs)


@pytest.mark.parametrize("update", ["moment", pytest.param("mixture", marks=pytest.mark.slow)])
def test_discounted_update(update):
    """The pair learns from the best legal pair that follows; weight 0 changes nothing."""
    problem, agent = _problem(Discounted(0.9)), BQL(update)
    before, after = _seen(problem, agent, {})
    assert np.isneginf(before.loc[1, 1]), "the illegal action"
    best = int(np.argmax(before.loc[1]))
    expected = jax.jit(UPDATES[update])(_cell(before, 0, 1), target(0.7, 0.9, _cell(before, 1, best)))
    learnt = after()
    assert all(
        np.allclose(*x, rtol=1e-5) for x in zip(*map(jax.tree.leaves, (_cell(learnt, 0, 1), expected)), strict=True)
    )
    assert _only(before, learnt, (0, 1)) and not np.isclose(learnt.loc[0, 1], before.loc[0, 1])
    assert all(np.array_equal(*x) for x in zip(*map(jax.tree.leaves, (before, after(0.0))), strict=True))


@pytest.mark.parametrize(("step", "terminated", "over"), [(0, False, False), (1, False, True), (0, True, True)])
def test_episodic_update(step, terminated, over):
    """The return of step h is taken from step h + 1; nothing follows the last step, nor an end."""
    problem, agent = _problem(Episodic(2)), BQL("moment")
    before, after = _seen(problem, agent, {"terminated": np.array(terminated), "step": np.array(step)})
    following = _cell(before, 1, 1, int(np.argmax(before.loc[1, 1])))
    expected = moment_update(_cell(before, step, 0, 1), target(0.7, 1.0, following, over))
    learnt = after()
    assert all(np.allclose(*x) for x in zip(*map(jax.tree.leaves, (_cell(learnt, step, 0, 1), expected)), strict=True))
    assert _only(before, learnt, (step, 0, 1))


BELIEF = ReturnBelief(
    *(
        jnp.asarray(x)
        for x in (
            [[0.3, 0.9, 0.7], [0.0, -np.inf, 0.1]],
            [[1.0, 5.0, 2.0], [1.0, 1.0, 4.0]],
            [[1.2, 3.0, 40.0], [2.0, 3.0, 1.5]],
            [[1.0, 3.0, 80.0], [2.0, 3.0, 1.0]],
        )
    )
)
NUM_DRAWS = 20_000


def _exact(state, action):
    """P(action is the best of a draw), by SciPy."""
    law = jax.tree.map(lambda x: np.asarray(x[state], float), BELIEF.of_mean())
    legal = np.isfinite(law.loc)
    if not legal[action]:
        return 0.0
    others = [b for b in range(3) if b != action and legal[b]]

    def density(x):
        below = [stats.t.cdf(x, law.dof[b], law.loc[b], law.scale[b]) for b in others]
        return stats.t.pdf(x, law.dof[action], law.loc[action], law.scale[action]) * np.prod(below)

    ends = [-np.inf, -30.0, -3.0, 0.0, 1.0, 3.0, 30.0, np.inf]
    return sum(integrate.quad(density, *piece, epsabs=1e-12)[0] for piece in pairwise(ends))


def test_thompson_log_prob_and_draws(key):
    """Against SciPy; each of 6 frequencies within 6 standard deviations (false alarms 1e-8). A shift of .02 is seen, as
    the twin with one wrong scale shows."""
    policy = StudentTThompson(BELIEF)
    probs = np.exp(jax.jit(jax.vmap(jax.vmap(policy.log_prob, (None, 0)), (0, None)))(jnp.arange(2), jnp.arange(3)))
    assert np.allclose(probs, [[_exact(s, a) for a in range(3)] for s in range(2)], atol=1e-5)
    keys = jax.random.split(key, NUM_DRAWS)
    act = jax.jit(lambda policy: jax.vmap(lambda k: jax.vmap(lambda s: policy.act(k, s))(jnp.arange(2)))(keys))

    def far(policy):
        actions = np.asarray(act(policy))
        found = np.stack([np.bincount(actions[:, s], minlength=3) / NUM_DRAWS for s in range(2)])
        return np.abs(found - probs) > 6 * np.sqrt(probs * (1 - probs) / NUM_DRAWS) + 1e-5

    assert not far(policy).any()
    twin = eqx.tree_at(lambda p: p.belief.rate, policy, BELIEF.rate * jnp.array([1.5, 1.0, 1.0]))
    assert far(twin).any()


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-8), (np.float32, 1e-5)])
def test_probabilities_of_extreme_laws(monkeypatch, dtype, error):
    """Of two actions by SciPy: scales a million apart, means far apart, one degree of freedom to thousands; a rule of
    four nodes is seen."""
    rng = np.random.default_rng(3)
    loc, scale = rng.normal(size=(25, 2)) * 10.0 ** rng.uniform(-2, 2, (25, 1)), 10.0 ** rng.uniform(-3, 2, (25, 2))
    dof = np.where(
        rng.random((25, 2)) < 0.4, 1.0 + 10.0 ** rng.uniform(-3, 0, (25, 2)), 10.0 ** rng.uniform(0.3, 4, (25, 2))
    )
    law = StudentT(*(x.astype(dtype) for x in (loc, scale, dof)))
    loc, scale, dof = (np.asarray(x, float) for x in (law.loc, law.scale, law.dof))
    expected = [_beats(*numbers) for numbers in zip(loc, scale, dof, strict=True)]
    with jax.enable_x64(dtype == np.float64):
        found = jax.jit(jax.vmap(lambda law: prob_best_student_t(law, 0)))
        off = np.abs(np.asarray(found(law), float) - expected).max()
        MEASURED.append(float(off))
        assert off < error
        monkeypatch.setitem(bql._RULES, np.dtype(dtype).name, np.polynomial.legendre.leggauss(4))
        coarse = jax.jit(jax.vmap(lambda law: prob_best_student_t(law, 0)))
        assert np.abs(np.asarray(coarse(law), float) - expected).max() > error


def test_probabilities_where_numbers_end():
    """In float32: of any scales, distances and degrees of freedom they are finite and sum to one; where one of two
    scales is nothing beside the other, its law is a step (SciPy). Before, a scale of 0 gave nan, and with JAX 0.12 and
    these compiler flags so did scales of 1e-30 beside 1e30 (a quotient that is infinite)."""
    scales, dofs, locs = (0.0, 1e-30, 1e-5, 1.0, 1e30), (1.0, 1.001, 6.0, 1e4, 1e12), (0.0, 1.0, -1e5, 1e30, -1e37)
    grid = np.array(list(product(scales, scales, dofs, dofs, locs, locs)), np.float32)[::7]
    scale, dof, loc = grid[:, :2], grid[:, 2:4], grid[:, 4:]
    both = jax.jit(jax.vmap(lambda law: jnp.stack([prob_best_student_t(law, a) for a in range(2)])))
    found = np.asarray(both(StudentT(loc, scale, dof)), float)
    MEASURED.append(float(np.max(np.abs(found.sum(1) - 1))))
    np.testing.assert_allclose(found.sum(1), 1.0, atol=2e-5)
    for a in range(2):
        step = (scale[:, a] > 0) & (scale[:, 1 - a] < 1e-20 * scale[:, a])
        z = (loc.astype(float)[:, 1 - a] - loc[:, a])[step] / scale[step, a]
        assert step.sum() > 500
        np.testing.assert_allclose(found[step, a], stats.t.sf(z, dof[step, a]), atol=1e-5)
    known = np.all(scale == 0, 1)
    np.testing.assert_array_equal(found[known, 0], loc[known, 0] >= loc[known, 1])


def test_known_returns_among_others():
    """Of three: the first of equal ones; beside an unknown one its distribution function; an illegal one never."""
    zero, probability = [0.0, 0.0, 0.0], jax.jit(prob_best_student_t)
    for loc, scale, expected in (
        ([1.0, 1.0, 0.0], zero, [1, 0, 0]),
        ([0.0, 1.0, 1.0], zero, [0, 1, 0]),
        ([-np.inf, 1.0, 1.0], [1.0, 0.0, 0.0], [0, 1, 0]),
        ([0.0, 0.5, 0.5], [2.0, 0.0, 0.0], [stats.t.sf(0.25, 3), stats.t.cdf(0.25, 3), 0]),
        ([0.0, 0.0, 0.0], [1e-30, 1e-30, 0.0], [3 / 8, 3 / 8, 1 / 4]),
    ):
        law = StudentT(jnp.array(loc), jnp.array(scale), jnp.full(3, 3.0))
        np.testing.assert_allclose([probability(law, a) for a in range(3)], expected, atol=1e-5)


def _beats(loc, scale, dof):
    """P(X_0 > X_1), by SciPy's adaptive quadrature over u = P(X_0 <= x) on pieces around where the other law turns."""

    def below(u):
        return stats.t.cdf(stats.t.ppf(u, dof[0], loc[0], scale[0]), dof[1], loc[1], scale[1])

    turns = loc[1] + scale[1] * np.array([-1e5, -1e3, -30, -5, -1, 0, 1, 5, 30, 1e3, 1e5])
    ends = np.unique(np.concatenate([[0.0], stats.t.cdf(turns, dof[0], loc[0], scale[0]), [1.0]]))
    return sum(integrate.quad(below, *piece, epsabs=1e-12, limit=200)[0] for piece in pairwise(ends))


def test_policies_show_what_they_know(key):
    """q, its standard deviation, VPI; the two rules without chance; a held draw."""
    greedy, vpi, held = GreedyReturn(BELIEF), MyopicVPI(BELIEF), StudentTThompson(BELIEF).hold(key)
    assert greedy.shape == (2, 3)
    with pytest.warns(FutureWarning, match="policy.vpi is value_of_perfect_information"):  # of 0.2
        np.testing.assert_array_equal(vpi.vpi, value_of_perfect_information(BELIEF))
    assert np.array_equal(greedy.q, BELIEF.loc) and np.allclose(greedy.sd**2, BELIEF.variance(), rtol=1e-5)

    def tell(policy, key):
        states = jnp.arange(2)
        actions = jax.vmap(policy.act, (None, 0))(key, states)
        return actions, jax.vmap(lambda s: jax.vmap(lambda a: policy.log_prob(s, a))(jnp.arange(3)))(states)

    best, log_probs = jax.jit(lambda k: tell(greedy, k))(key)
    assert np.array_equal(best, np.argmax(BELIEF.loc, -1)) and np.array_equal(np.exp(log_probs), np.eye(3)[best])
    (best, log_probs), worth = jax.jit(lambda k: (tell(vpi, k), value_of_perfect_information(vpi.belief)))(key)
    assert np.array_equal(best, np.argmax(BELIEF.loc + worth, -1))
    assert best[1] != np.argmax(BELIEF.loc[1]), "worth a look although its expected return is less"
    assert np.array_equal(np.exp(log_probs), np.eye(3)[best])
    again = jax.jit(lambda k: tell(held, k))
    (best, log_probs), (other, _) = again(jax.random.key(1)), again(jax.random.key(2))
    assert np.array_equal(best, other) and np.array_equal(np.exp(log_probs), np.eye(3)[best])


def test_the_choice_decides_the_policy(key):
    """Four words, three policies; "per_plan" keeps one draw for every pair."""
    plans = {word: BQL(choose=word).plan(key, _problem(FirstExit()), BELIEF)[0] for word in CHOICES}
    assert [type(p) for p in plans.values()] == [StudentTThompson, StudentTThompson, MyopicVPI, GreedyReturn]
    fresh, held = plans["thompson"], plans["per_plan"]
    assert isinstance(fresh, StudentTThompson) and fresh.noise is None
    assert isinstance(held, StudentTThompson) and held.noise is not None and held.noise.shape == (2, 3)


def test_prior_registry_and_bad_input():
    """The default prior, one per pair, words and numbers that are refused."""
    assert isinstance(AGENTS["bql"](), Learner)
    start = BQL().init(KEY, _problem(Episodic(4)))
    assert start.loc.shape == (4, 2, 3) and np.isneginf(start.loc[:, 1, 1]).all()
    assert [float(x[0, 0, 0]) for x in jax.tree.leaves(start)] == [0.0, 4.0, 3.0, 3.0]
    per_action = BQL(loc=np.array([1.0, 2.0, 3.0])).init(KEY, _problem(FirstExit()))
    assert np.array_equal(per_action.loc[0], [1.0, 2.0, 3.0])
    for make, message in (
        (lambda: BQL("mean"), "update is 'mean'"),
        (lambda: BQL(choose="best"), "choose is 'best'"),
        (lambda: BQL(rate=0.0), "rate is 0.0"),
        (lambda: BQL("moment", concentration=1.0), "concentration is 1.0"),
        (lambda: BQL(choose="vpi", concentration=np.array([1.0, 0.5])), r"concentration\[1\] is 0.5"),
        (lambda: BQL(concentration=0.1), "concentration is 0.1, expected at least 0.5 for 'mixture' and 'thompson'"),
        (lambda: BQL(loc=np.zeros(2)).init(KEY, _problem(FirstExit())), r"loc has shape \(2,\)"),
        (lambda: BQL().init(KEY, _problem(AverageReward())), "AverageReward"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_regret_is_a_number():
    """Of 20 episodes, whose probabilities are integrals: none is nan, none outside what an episode can lose."""
    given: Any = {"num_episodes": 20, "num_seeds": 2, "key": KEY, "options": QUIET}
    regret = run(BQL(), deep_sea(5), objective=Episodic(5), **given)["regret"].values
    each = np.diff(regret, axis=-1, prepend=0.0)
    assert regret.shape == (2, 20)
    assert np.all(each > -1e-5) and np.all(each < 1.0)


@pytest.mark.slow
def test_learns_a_small_mdp():
    """Three states, 8 seeds: the last 500 of 2000 steps earn at least .9 of the optimal gain, .9.

    The key is fixed; no policy but the optimal earns more than half of that gain.
    """
    agent, env = BQL(pseudo_count=1.0, concentration=2.0, rate=1.0), two_states()
    problem = Problem(StateActionSpace(3, 2), Discounted(0.9))

    def step(carry, key):
        belief, state = carry
        key_act, key_env = jax.random.split(key)
        action = agent.plan(key, problem, belief)[0].act(key_act, state)
        following, reward, _ = env.step(key_env, state, action)
        return (agent.observe(problem, belief, Transitions(state, action, reward, following)), following), reward

    def play(key):
        start = agent.init(key, problem), jnp.zeros((), jnp.int32)
        return jax.lax.scan(step, start, jax.random.split(key, 2000))[1]

    rewards = np.asarray(jax.jit(jax.vmap(play))(jax.random.split(KEY, 8))).mean(0)
    assert rewards[-500:].mean() > 0.9 * 0.9


@pytest.mark.slow
def test_runs():
    """The same in `run`: the regret per step of the last 500 steps is under a third of that of the first 100."""
    agent, options = BQL(pseudo_count=1.0, concentration=2.0, rate=1.0), RunOptions(num_checkpoints=20, progress=False)
    result = run(agent, two_states(), objective=Discounted(0.9), num_steps=2000, num_seeds=8, key=KEY, options=options)
    regret = result["regret"].values.mean(0)
    assert regret[0] > 5 and (regret[-1] - regret[-6]) / 5 < regret[0] / 3


def test_actor():
    """Step by step, in an environment that ends: an action that costs is left for another."""
    actor = Actor(BQL("moment", "greedy"), StateActionSpace(2, 2, ends=True), objective=FirstExit(), key=KEY)
    actor.reset(0)
    assert actor.act(0) == 0
    actor.observe(0, 0, -1.0, 0, False, False)
    assert actor.act(0) == 1
    assert float(actor.belief.loc[0, 0]) == pytest.approx(-1 / 5)


@pytest.mark.slow
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("choose", CHOICES)
def test_runs_episodes_that_end(update, choose):
    """Under Episodic with regret of the policies (their log_prob, which is dear), and FirstExit.

    Greedy explores only where it is too hopeful: before it has seen a reward, it would stay where it is.
    """
    agent = BQL(update, choose, loc=float(choose == "greedy"), replan=4 if choose == "per_plan" else 1)
    result = run(agent, walk_that_ends(), objective=Episodic(6), num_episodes=300, num_seeds=4, key=KEY, options=QUIET)
    assert result["reward"].values[:, -100:].mean() > 0.6
    result = run(agent, walk_that_ends(), objective=FirstExit(), num_steps=60, num_seeds=4, key=KEY, options=QUIET)
    assert np.isfinite(result["regret"].values).all()


def _tenth_of_chain():
    """Chain, rewards divided by 10."""
    env = chain()
    law: Any = env.reward_law
    law = eqx.tree_at(lambda law: law.mean, law, np.asarray(law.mean) / 10)
    mdp = env.mdp
    assert isinstance(mdp, MDP)
    return Environment(MDP(mdp.transition_probs, mdp.reward / 10, initial=mdp.initial), law, name="chain / 10")


@pytest.mark.slow
def test_chain():
    """Eight phases of 1000 steps, 100 seeds, wide bounds around SPEC Part 7 of the project: 1857 / 2384 / 2669 in
    phases 1 / 2 / 8 (measured with this prior: 1657 / 1935 / 2503, each +- 150)."""
    agent = BQL("mixture", "thompson", 0.0, 1.0, 2.0, 1.0)
    options = RunOptions(num_checkpoints=8, progress=False)
    result = run(
        agent, _tenth_of_chain(), objective=Discounted(0.95), num_steps=8000, num_seeds=100, key=KEY, options=options
    )
    phases = 10 * result["reward"].values.mean(0)
    assert phases.shape == (8,)
    assert 1300 < phases[0] < 2200 and 1550 < phases[1] < 2700 and 2100 < phases[7] < 3300
