"""The count bonus: its formula, its propagation against dense solves, the agent's plan, published totals."""

from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import CountBonus
from bayes_mdp.agents.optimism.mean_mdp_plans import bonus_values, local_bonus
from bayes_mdp.envs import chain, riverswim, two_action_chain
from bayes_mdp.experiments.results import NORMAL_QUANTILE, half_width
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Environment, Episodic, Problem, StateActionSpace
from bayes_mdp.models import dirichlet_normal
from bayes_mdp.planning import solve
from benchmarks.scaled_rewards import scaled

S, A, H, DISCOUNT = 5, 3, 4, 0.9
LEGAL = np.ones((S, A), bool)
LEGAL[1, 2] = LEGAL[3, 0] = LEGAL[3, 1] = False


class Belief(eqx.Module):
    """A mean and counts, and nothing else."""

    mdp: MDP
    visits: Any

    def mean_mdp(self):
        """The mean."""
        return self.mdp

    def visit_counts(self):
        """The counts."""
        return self.visits


def world(seed, *, unvisited=0) -> tuple[MDP, Any]:
    """A random MDP with illegal actions, and counts of which `unvisited` legal ones are zero."""
    rng = np.random.default_rng(seed)
    mdp = MDP(rng.dirichlet(np.ones(S), size=(S, A)), rng.normal(size=(S, A)), legal=LEGAL)
    visits = rng.integers(1, 50, size=(S, A)).astype(float)
    legal = np.argwhere(LEGAL)
    visits[tuple(legal[rng.choice(len(legal), unvisited, replace=False)].T)] = 0
    return mdp, visits


def optimal(mdp, bonus, horizon=None):
    """q* of the optimistic MDP, by sweeps in numpy: discounted, or of the first of `horizon` steps."""
    rows, reward = np.asarray(mdp.transition_probs, float), np.where(LEGAL, np.asarray(mdp.reward) + bonus, -np.inf)
    v, q = np.zeros(S), reward
    for _ in range(horizon or 400):
        q = reward + (1.0 if horizon else DISCOUNT) * rows @ v
        v = q.max(-1)
    return q


def problem(objective):
    return Problem(StateActionSpace(S, A, legal=LEGAL), objective)


propagate = jax.jit(bonus_values)


@jax.jit
def first_plan(agent, objective, belief):
    key, task = jax.random.key(0), problem(objective)
    return agent.plan(key, task, agent.init(key, task), belief)[0]


@pytest.mark.usefixtures("x64")
def test_the_bonus_is_the_formula_where_a_pair_was_visited():
    mdp, visits = world(0)
    sd = np.arange(1.0, S * A + 1).reshape(S, A)
    bonus = local_bonus(mdp, visits, Discounted(DISCOUNT), scale=0.3, reward_sd=sd)
    np.testing.assert_allclose(bonus, 0.3 * sd / np.sqrt(visits), rtol=1e-14)
    given = local_bonus(mdp, 0 * visits, Discounted(DISCOUNT), scale=0.3, unvisited=7.0)
    np.testing.assert_array_equal(given, 7.0)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", range(3))
def test_the_propagated_bonus_is_that_of_a_dense_solve(seed):
    mdp, visits = world(seed)
    policy = np.array([0, 1, 2, 2, 0])
    local = local_bonus(mdp, visits, Discounted(DISCOUNT))
    at = np.arange(S), policy
    rows, added = np.asarray(mdp.transition_probs), np.asarray(local)
    v = np.linalg.solve(np.eye(S) - DISCOUNT * rows[at], added[at])
    answer = propagate(mdp, local, policy, Discounted(DISCOUNT))
    np.testing.assert_allclose(answer.v, v, rtol=1e-10)
    np.testing.assert_allclose(
        np.where(LEGAL, answer.q, 0), np.where(LEGAL, added + DISCOUNT * rows @ v, 0), rtol=1e-10
    )
    episodic = propagate(mdp, local, policy, Episodic(2)).q
    np.testing.assert_allclose(
        np.where(LEGAL, episodic[0], 0), np.where(LEGAL, added + rows @ added[at], 0), rtol=1e-10
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("discount", [0.5, 0.9])
def test_the_bonus_of_a_chain_is_the_known_factor_too_large(discount):
    """sigma (1 - g^D) sqrt((1 + g) / (1 - g)) in place of sigma: deviations are added where variances should be."""
    depth, n = 40, 9.0
    env = two_action_chain(depth, discount=discount, scale=2.0)
    law: Any = env.reward_law
    sd, policy = np.asarray(law.scale, float), np.zeros(depth, int)
    visits: Any = np.full((depth, 2), n)
    local = local_bonus(env.mdp, visits, Discounted(discount), reward_sd=sd)
    factor = (1 - discount**depth) * np.sqrt((1 + discount) / (1 - discount))
    root = propagate(env.mdp, local, policy, Discounted(discount)).q[0]
    np.testing.assert_allclose(root, [2 / 3, 2 / 3 * factor], rtol=1e-6)


@pytest.mark.few(1)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("horizon", [None, H])
def test_the_plan_is_optimal_in_the_optimistic_mdp(horizon, key):
    """Also from a warm start, and with beta log t in the t-th plan."""
    mdp, visits = world(4)
    objective = Episodic(H) if horizon else Discounted(DISCOUNT)
    agent, belief = CountBonus(2.0, "log", reward_sd=0.5), Belief(mdp, visits)
    state = agent.init(key, problem(objective))
    for t in (1, 2, 3):
        policy, state = agent.plan(key, problem(objective), state, belief)
        q = policy.q[0] if horizon else policy.q
        expected = optimal(mdp, 2.0 * np.log(t) * 0.5 / np.sqrt(visits), horizon)
        np.testing.assert_allclose(q, expected, rtol=1e-8)
        np.testing.assert_array_equal(policy.best[0] if horizon else policy.best, expected.argmax(-1))
        assert int(state.num_plans) == t
    policy, _ = CountBonus(2.0).plan(key, problem(objective), agent.init(key, problem(objective)), belief)
    q = policy.q[0] if horizon else policy.q
    np.testing.assert_allclose(q, optimal(mdp, 2.0 / np.sqrt(visits), horizon), rtol=1e-8)


@pytest.mark.parametrize("objective", [Discounted(DISCOUNT), Discounted(0.0), Episodic(H)])
@pytest.mark.parametrize("scale", [0.0, 0.1, 30.0])
def test_what_was_never_tried_comes_first_and_is_finite(objective, scale):
    """20 random worlds: a state with a legal action never tried takes one; nothing is NaN or infinite but -inf."""
    missed = 0
    for seed in range(20):
        mdp, visits = world(seed, unvisited=1)
        policy = first_plan(CountBonus(scale), objective, Belief(mdp, visits))
        q, best = (x[0] if isinstance(objective, Episodic) else x for x in (policy.q, policy.best))
        assert np.all(np.isfinite(q) == LEGAL)
        state, action = np.argwhere((visits == 0) & LEGAL)[0]
        assert best[state] == action
        assert np.all(LEGAL[np.arange(S), best])
        without = first_plan(CountBonus(scale, unvisited=0.0), objective, Belief(mdp, visits)).best
        missed += (without[0] if isinstance(objective, Episodic) else without)[state] != action
    assert missed > 0  # a bonus that does not dominate is caught


def test_nothing_visited_at_all_is_finite():
    mdp, visits = world(0)
    policy = first_plan(CountBonus(1.0), Discounted(DISCOUNT), Belief(mdp, 0 * visits))
    assert np.all(np.isfinite(policy.q) == LEGAL)


def test_a_sweep_over_scales_is_one_vmap(key):
    mdp, visits = world(1)
    task, belief = problem(Discounted(DISCOUNT)), Belief(mdp, visits)

    def optimistic(scale):
        agent = CountBonus(scale)
        return agent.plan(key, task, agent.init(key, task), belief)[0].q

    scales = np.array([0.1, 1.0])
    together = jax.jit(jax.vmap(optimistic))(scales)
    for i, scale in enumerate(scales):
        np.testing.assert_allclose(together[i], optimal(mdp, scale / np.sqrt(visits)), rtol=1e-4)


PRIOR = dirichlet_normal(concentration=1e-3, scale=1e3, noise_scale=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [Discounted(0.95), pytest.param(Episodic(10), marks=pytest.mark.slow)])
def test_it_learns_the_chain_under_run(objective, key):
    """Silent rewards of Chain over 10: at least 80 % of the optimal gain after 1500 steps (uniform play: 38 %)."""
    env: Environment = scaled(chain(), 0.1)
    length: Any = {"num_episodes": 150} if isinstance(objective, Episodic) else {"num_steps": 1500}
    result = bm.run(CountBonus(0.3, replan=10), env, prior=PRIOR, objective=objective, num_seeds=10, key=key, **length)
    reward = result["reward"].to_numpy()
    late = reward[:, reward.shape[1] // 2 :].sum(1).mean() / 750
    if isinstance(objective, Episodic):
        assert late > 0.8 * float(solve(env.mdp, objective).v[0, 0]) / 10
    else:
        assert late > 0.8 * float(env.optimum or np.nan)
    assert np.all(result["visits"].sum("seed") > 0)


@pytest.mark.slow
def test_mbie_eb_on_riverswim_has_its_published_total(key):
    """C = .4, gamma .95: 3.119e6 +- .028e6 of 5000 steps over 300 runs (SPEC Part 5); 100 seeds of ours.

    4.9 sd of the difference of two means: false alarm 1e-6. Catches a shift of 0.16e6; beta 2 is shown to fail.
    """
    total, half = riverswim_total(0.4, key)
    error = np.hypot(half, 0.028) / NORMAL_QUANTILE[0.95]
    assert abs(total - 3.119) < 4.9 * error
    assert abs(riverswim_total(2.0, key)[0] - 3.119) > 4.9 * error


def riverswim_total(scale, key):
    """Mean total of 5000 steps in 1e6 and its 95 % half-width; rewards over 1e4, a plan at every step."""
    result = bm.run(
        CountBonus(scale, replan=1),
        scaled(riverswim(), 1e-4),
        prior=PRIOR,
        objective=Discounted(0.95),
        num_steps=5000,
        num_seeds=100,
        key=key,
    )
    totals = result["reward"].to_numpy().sum(1) / 100
    return totals.mean(), half_width(totals)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CountBonus(-1.0), r"scale is -1\.0, expected a finite number, zero or greater"),
        (lambda: CountBonus(np.nan), "scale is nan, expected a finite number"),
        (
            lambda: CountBonus(reward_sd=np.array([[1.0, -2.0]])),
            r"reward_sd\[0, 1\] is -2\.0, expected a finite number",
        ),
        (lambda: CountBonus(unvisited=np.inf), "unvisited is inf, expected a finite number"),
        (lambda: CountBonus(1.0, "sqrt"), "schedule is 'sqrt', expected one of constant, log"),
        (
            lambda: CountBonus().init(jax.random.key(0), problem(AverageReward())),
            "objective is AverageReward, expected",
        ),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_it_needs_counts(key):
    class Mean(eqx.Module):
        def mean_mdp(self):
            """Never asked."""

    task, agent = problem(Discounted(DISCOUNT)), CountBonus()
    with pytest.raises(TypeError, match="CountBonus needs a posterior that has visit_counts, got a Mean"):
        agent.plan(key, task, agent.init(key, task), cast(Any, Mean()))
