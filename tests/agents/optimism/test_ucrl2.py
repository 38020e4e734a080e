"""UCRL2: the radii, the set that is planned over, learning under `run`."""

import math
from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import UCRL2
from bayes_mdp.agents.common.replan import Doubling
from bayes_mdp.agents.optimism.ucrl2 import confidence_set, reward_radius, transition_radius
from bayes_mdp.envs import riverswim_episodic
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit, Problem, StateActionSpace
from bayes_mdp.models import dirichlet_normal
from tests.agents.believed import Case
from tests.planning.test_extended import best_row, sweep

S, A, H = 3, 2, 4
LEGAL = np.array([[True, True], [True, False], [True, True]])


ONES: Any = np.ones((S, A))


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


def world(lead=(), *, ends=False, seed=0) -> tuple[Any, Any]:
    """A belief with illegal actions and impossible outcomes; visits from 0 to 40."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(S + ends), (*lead, S, A))
    rows[..., 0, 0, :] = np.eye(S + ends)[1] / 2 + np.eye(S + ends)[2] / 2
    visits = rng.integers(0, 40, (*lead, S, A)).astype(float) * LEGAL
    end_probs = rows[..., -1] if ends else None
    reward = rng.uniform(-0.5, 1, (*lead, S, A))
    return Belief(MDP(rows[..., :S], reward, end_probs=end_probs, legal=LEGAL), visits), rows


def problem(objective, **space):
    return Problem(StateActionSpace(S, A, legal=LEGAL, **space), objective)


def paper(visits, outcomes, delta=0.05):
    """Equations 3 and 4 of Jaksch et al. (2010), t the steps begun."""
    t = 1 + sum(visits.ravel())
    radii = np.array(
        [
            (
                math.sqrt(7 * math.log(2 * S * A * t / delta) / (2 * max(1, n))),
                math.sqrt(14 * outcomes * math.log(2 * A * t / delta) / max(1, n)),
            )
            for n in visits.ravel()
        ]
    )
    return radii[:, 0].reshape(visits.shape), radii[:, 1].reshape(visits.shape)


def tabularl(visits, outcomes, episode, delta=0.05):
    """`UCRL2.get_slack` of TabulaRL."""
    log, n = math.log(2 * S * A * (episode + 1) / delta), np.maximum(visits, 1)
    return np.sqrt(4 * log / n), np.sqrt(4 * outcomes * log / n)


@pytest.mark.usefixtures("x64")
def test_the_radii_are_those_of_the_paper_and_of_tabularl():
    visits: Any = world()[0].visits
    t = 1 + visits.sum()
    for ours, theirs in zip(radii(visits, t), paper(visits, S), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    ours = reward_radius(visits, 7, constants="tabularl"), transition_radius(visits, 7, constants="tabularl")
    for mine, theirs in zip(ours, tabularl(visits, S, 7), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    assert np.all(transition_radius(visits, t, 0.01, n_outcomes=5) > transition_radius(visits, t, n_outcomes=5))


confidence: Any = jax.jit(confidence_set)
radii: Any = jax.jit(lambda n, t: (reward_radius(n, t), transition_radius(n, t)))


@jax.jit
def planned(agent, objective, belief) -> Any:
    """The first plan, and its set."""
    task, key = problem(objective, horizon=belief.mdp.horizon), jax.random.key(0)
    policy, _ = agent.plan(key, task, agent.init(key, task), belief)
    options = {"delta": agent.delta, "scale": agent.scale, "max_reward": agent.max_reward}
    return policy, confidence_set(belief, objective, **options)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", ["discounted", "episodic", "layered"])
def test_the_set_has_the_radii_of_its_objective(kind):
    """Ends are one more outcome; impossible outcomes stay so; optimistic rewards are clipped."""
    layered = kind == "layered"
    belief, rows = world((H,) if layered else (), ends=True)
    n = belief.visits
    objective = Discounted(0.9) if kind == "discounted" else Episodic(H)
    episodes = 1 + (n[0].sum() if layered else n.sum() // H)
    slack, radius = paper(n, S + 1) if kind == "discounted" else tabularl(n, S + 1, episodes)
    sets = confidence(belief, objective, delta=0.05, scale=0.1, max_reward=0.8)
    np.testing.assert_allclose(sets.rows.probs, rows, rtol=1e-12)
    np.testing.assert_allclose(sets.rows.radius, 0.1 * radius, rtol=1e-12)
    np.testing.assert_array_equal(sets.rows.support, rows > 0)
    np.testing.assert_allclose(sets.reward, np.minimum(np.asarray(belief.mdp.reward) + 0.1 * slack, 0.8), rtol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("objective", [AverageReward(), Episodic(H)])
def test_the_plan_is_optimal_in_its_set(objective):
    """By loops: q is one sweep over the next values; under the average reward but for a constant and 1 / sqrt(t)."""
    average = isinstance(objective, AverageReward)
    belief, _ = world(() if average else (H,))
    policy, sets = planned(UCRL2(scale=0.1), objective, belief)
    steps = [sets] if average else [sets.at(h) for h in range(H)]
    q = np.asarray(policy.q)[None] if average else np.asarray(policy.q)
    later = q.max(-1) if average else np.r_[q[1:].max(-1), np.zeros((1, S))]
    for now, here, values in zip(steps, q, later, strict=True):
        rows, radius, support = (np.asarray(x) for x in (now.rows.probs, now.rows.radius, now.rows.support))

        def best(s, a, worth, *, rows=rows, radius=radius, support=support):
            return best_row(rows[s, a], radius[s, a], worth, support[s, a])

        off = sweep(best, np.asarray(now.reward), values)[LEGAL] - here[LEGAL]
        assert np.ptp(off) <= (1 / math.sqrt(1 + belief.visits.sum()) if average else 1e-9)
        assert average or np.abs(off).max() < 1e-9
    np.testing.assert_array_equal(policy.best, np.asarray(policy.q).argmax(-1))


def test_what_is_known_has_no_radius():
    """A posterior with a known row and a known reward: all others have radii."""
    concentration = np.ones((S, A, S))
    concentration[0, 1] = [0, 1, 0]
    variance = np.ones((S, A))
    variance[2, 0] = 0
    posterior = Case(concentration, np.full((S, A), 0.25), variance, np.ones((S, A))).posterior
    sets = confidence(posterior, AverageReward(), delta=0.05, scale=1.0, max_reward=10.0)
    assert np.array_equal(np.argwhere(np.asarray(sets.rows.radius) == 0), [[0, 1]])
    assert sets.reward[2, 0] == 0.25 and np.all(np.delete(np.asarray(sets.reward).ravel(), 4) > 1)


PRIOR = dirichlet_normal(concentration=1e-3, scale=1e3, noise_scale=0.1)


def late_reward(agent, objective, key, **length):
    """Mean reward of a step in the second half of a run of ten seeds."""
    env = riverswim_episodic()
    reward = bm.run(agent, env, prior=PRIOR, objective=objective, num_seeds=10, key=key, **length)["reward"].to_numpy()
    steps = length["num_steps"] if "num_steps" in length else length["num_episodes"] * objective.horizon
    return reward[:, reward.shape[1] // 2 :].sum(1).mean() / (steps / 2)


@pytest.mark.slow
def test_it_learns_riverswim_under_run(key):
    """Radii over 20: at least 90 % of the optimal gain .4286 in the end; without radii the left bank's .005."""
    assert UCRL2().replan == Doubling()
    assert late_reward(UCRL2(scale=0.05), AverageReward(), key, num_steps=4000) > 0.9 * 0.42862
    assert late_reward(UCRL2(scale=0.0), AverageReward(), key, num_steps=4000) < 0.1 * 0.42862


@pytest.mark.slow
def test_it_learns_riverswim_under_the_other_objectives(key):
    """Optimal: .4286 a step of an endless run, 3.3973 an episode of 20 steps."""
    assert late_reward(UCRL2(scale=0.05), Discounted(0.95), key, num_steps=4000) > 0.85 * 0.42862
    assert late_reward(UCRL2(scale=0.05), Episodic(20), key, num_episodes=200) > 0.9 * 3.3973 / 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UCRL2(0.0), r"delta is 0\.0, expected a number between 0 and 1"),
        (lambda: UCRL2(1.0), r"delta is 1\.0, expected a number between 0 and 1"),
        (lambda: UCRL2(scale=-1.0), r"scale is -1\.0, expected a finite number, zero or greater"),
        (lambda: UCRL2(max_reward=np.inf), "max_reward is inf, expected a finite number"),
        (lambda: reward_radius(ONES, 1, 2.0), r"delta is 2\.0, expected a number between 0 and 1"),
        (
            lambda: transition_radius(ONES, 1, constants="own"),
            "constants is 'own', expected one of paper, ta",
        ),
        (lambda: started(FirstExit()), "objective is FirstExit, expected AverageReward, Discounted or Episodic"),
        (lambda: started(AverageReward(), ends=True), "space.ends is True, expected False for UCRL2 under AverageRew"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def started(objective, **space):
    return UCRL2().init(jax.random.key(0), problem(objective, **space))


def test_it_needs_a_mean(key):
    task = problem(AverageReward())
    with pytest.raises(TypeError, match="UCRL2 needs a posterior that has mean_mdp, got a object"):
        UCRL2().plan(key, task, None, cast(Any, object()))
