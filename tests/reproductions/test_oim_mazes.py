"""The mazes of [OIM08] table 3: exact optima by dense routes, simulated tests against expectations, what was learnt."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import EpsilonGreedyModel
from bayes_mdp.agents.model_based.empirical_planning import ListedTally, PrioritizedSweeping
from bayes_mdp.envs import garnet, maze_with_subgoals
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Problem, StateActionSpace
from bayes_mdp.planning import solve
from bayes_mdp.planning.prioritized_sweeping import predecessors_of
from reproductions.oim import mazes as oim_maze
from reproductions.oim.maze_times import DISCOUNT, PLANNER
from reproductions.oim.mazes import learn, optimal_totals, solved_totals, stack_mazes, totals_of_tests

pytestmark = pytest.mark.numerics

SIZE, START = 6, 7
ENVS: Any = [maze_with_subgoals(seed, SIZE) for seed in range(2)]
MAZES = stack_mazes(ENVS)
PROBLEM = Problem(StateActionSpace(SIZE**2, 4), Discounted(DISCOUNT))


def dense(env):
    """Float64 rows, which sum to one, and mean rewards."""
    mdp = env.mdp.to_dense()
    rows = np.asarray(mdp.transition_probs, np.float64)
    return rows / rows.sum(-1, keepdims=True), np.asarray(mdp.reward, np.float64)


def expected_total(env, policy, num_steps):
    """The expected total of a policy, by the law of the state at each step, from dense rows."""
    rows, reward = (x[np.arange(SIZE**2), policy] for x in dense(env))
    law, total = np.eye(SIZE**2)[START], 0.0
    for _ in range(num_steps):
        total, law = total + law @ reward, law @ rows
    return total


def test_the_optimum_by_dense_backward_induction_and_by_the_gain():
    short, long = (optimal_totals(MAZES, n) for n in (300, 600))
    for n, env in enumerate(ENVS):
        rows, reward = dense(env)
        v = np.zeros(SIZE**2)
        for _ in range(300):
            v = (reward + rows @ v).max(-1)
        assert short[n] == pytest.approx(v[START], rel=1e-6)  # the tables that it is held against are float32
        occurs = np.linalg.matrix_power(rows.mean(1) + np.eye(SIZE**2), 2 * SIZE**2)[START] > 0
        inside = rows[occurs][:, :, occurs]
        with jax.enable_x64(True):
            best = solve(MDP(inside, reward[occurs]), AverageReward())
        assert bool(best.converged) and long[n] - short[n] == pytest.approx(300 * float(best.gain), rel=1e-6)


def test_what_the_optimal_policy_of_the_discount_earns():
    found = solved_totals(MAZES, DISCOUNT, 300)
    for n, env in enumerate(ENVS):
        with jax.enable_x64(True):
            policy = np.asarray(solve(env.mdp, Discounted(DISCOUNT)).policy)
        assert found[n] == pytest.approx(expected_total(env, policy, 300), rel=1e-6)
        assert found[n] <= optimal_totals(MAZES, 300)[n] * (1 + 1e-12)


NUM_RUNS, LENGTH = 2000, 200


def deviations(totals, envs, policies):
    """How many standard errors simulated means lie from expectations: [tests N]."""
    found = np.zeros(totals.shape[:2])
    for t, n in np.ndindex(*found.shape):
        mean = expected_total(envs[n], policies[t, n], LENGTH)
        found[t, n] = (totals[t, n].mean() - mean) / (totals[t, n].std() / np.sqrt(NUM_RUNS))
    return found


def test_simulated_tests_have_the_right_means(key, monkeypatch):
    """Six policies in batches of four; false alarms at 6 sd < 2e-8. The same runs of mazes with slip .15 are told."""
    monkeypatch.setattr(oim_maze, "TESTED_TOGETHER", 4)
    policies = np.random.default_rng(0).integers(0, 4, (3, 2, SIZE**2)).astype(np.int8)
    with jax.enable_x64(True):
        policies[0] = [np.asarray(solve(env.mdp, Discounted(DISCOUNT)).policy) for env in ENVS]
    totals = totals_of_tests(MAZES, policies, key=key, num_runs=NUM_RUNS, num_steps=LENGTH)
    assert totals.shape == (3, 2, NUM_RUNS)
    assert np.abs(deviations(totals, ENVS, policies)).max() < 6
    others = [maze_with_subgoals(seed, SIZE, slip=0.15) for seed in range(2)]
    assert np.abs(deviations(totals, others, policies))[0].max() > 12
    assert len(np.unique(totals[0, 0])) > 50  # every run has numbers of its own
    assert not np.array_equal(totals[0], totals[2])


@pytest.mark.slow
def test_learning_finds_the_way(key):
    """A policy as good as the optimum's within a percent after 4000 steps; a maze learns the same beside any other."""
    agent = EpsilonGreedyModel(epsilon=0.4, planner=PLANNER)
    policies, reward = learn(agent, PROBLEM, MAZES, key=key, num_steps=4000, test_every=500)
    assert policies.shape == (8, 2, SIZE**2) and reward.shape == (8, 2)
    solved = solved_totals(MAZES, DISCOUNT, 300)
    for n, env in enumerate(ENVS):
        assert expected_total(env, policies[-1, n], 300) > 0.98 * solved[n]
    swapped = stack_mazes([ENVS[0], maze_with_subgoals(9, SIZE)])
    others, others_reward = learn(agent, PROBLEM, swapped, key=key, num_steps=1000, test_every=500)
    np.testing.assert_array_equal(others[:, 0], policies[:2, 0])
    np.testing.assert_array_equal(others_reward[:, 0], reward[:2, 0])
    assert not np.array_equal(others_reward[:, 1], reward[:2, 1])


def test_the_policy_of_the_agent_can_be_tested_instead(key):
    """An agent that counts nothing: its policy is asked for, and what is paid while it learns is the maze's."""

    class Rightwards:
        def init(self, key, problem):
            return jnp.zeros(())

        def plan(self, key, problem, state, belief=None) -> Any:
            return SimpleNamespace(act=lambda key, state, step: jnp.int32(1)), state

        def observe(self, problem, state, transition, weight=1.0):
            return state + transition.reward

        def greedy(self, problem, state) -> Any:
            return SimpleNamespace(best=jnp.full(SIZE**2, 1, jnp.int32))

    jax.tree_util.register_static(Rightwards)
    policies, reward = learn(Rightwards(), PROBLEM, MAZES, key=key, num_steps=400, test_every=400, tested="agent")
    assert np.all(policies == 1)
    for n, env in enumerate(ENVS):
        mean = expected_total(env, np.ones(SIZE**2, int), 400) / 400
        assert reward[0, n] == pytest.approx(mean, abs=60)


def test_the_best_policy_of_a_model():
    """Against dense policy iteration of the same model, in which what was never tried is left out."""
    rng, n = np.random.default_rng(1), 12
    visits = rng.integers(0, 4, (n, 3)).astype(float)
    visits[5] = 0.0
    successor = rng.integers(0, n, (n, 3, 2))
    first = rng.binomial(visits.astype(int), 0.6)
    counts = np.stack([first, visits - first], -1)
    total = visits * rng.normal(size=(n, 3))
    zero = jnp.int32(0)
    tally = ListedTally(
        jnp.asarray(visits, jnp.float32),
        jnp.asarray(total, jnp.float32),
        jnp.zeros((n, 3), jnp.int32),
        zero,
        jnp.asarray(successor, jnp.int32),
        jnp.asarray(counts, jnp.float32),
        jnp.zeros((n, 1), jnp.int32),
        zero,
    )
    policy, values = jax.jit(oim_maze.best_in_model)(tally, 0.9, jnp.zeros(n))
    tried = visits > 0
    rows = np.zeros((n, 3, n))
    for s, a, k in np.ndindex(n, 3, 2):
        rows[s, a, successor[s, a, k]] += counts[s, a, k] / max(visits[s, a], 1)
    mean = total / np.maximum(visits, 1)
    v, q = np.zeros(n), mean
    for _ in range(400):
        q = np.where(tried, mean + 0.9 * rows @ v, -np.inf)
        v = np.where(tried.any(-1), q.max(-1), 0.0)
    known = tried.any(-1)
    np.testing.assert_array_equal(np.asarray(policy)[known], q.argmax(-1)[known])
    np.testing.assert_allclose(
        values, v, atol=0.1
    )  # it stops where nothing moves by .05, .5 at most from the end, and 16 sweeps later
    assert v[5] == values[5] == 0.0 and known.sum() == n - 1


def test_the_lists_of_the_planner_are_long_enough():
    for seed in range(3):
        env: Any = maze_with_subgoals(seed)
        cells = np.array([list(line) for line in env.picture.cells]).ravel()
        occurs = ~np.isin(cells, ["#", "G", "g"])  # one never stands in a wall or on a goal
        successor, probability = np.asarray(env.mdp.successor), np.asarray(env.mdp.probability) * occurs[:, None, None]
        assert successor.shape[-1] == PLANNER.max_successors
        lists = predecessors_of(successor, probability > 0)
        assert np.diff(lists.first).max() <= (PLANNER.max_predecessors or 0)


def test_lists_that_are_too_short_are_told(key):
    agent = EpsilonGreedyModel(epsilon=0.4, planner=PrioritizedSweeping(1, max_successors=4, max_predecessors=2))
    with pytest.raises(ValueError, match=r"\d+ transitions found no place in the lists of the planner"):
        learn(agent, PROBLEM, MAZES, key=key, num_steps=500, test_every=500)


def test_other_tables_are_refused():
    with pytest.raises(ValueError, match="garnet_10_2_3_seed_0 has other tables, expected those of a maze"):
        stack_mazes([garnet()])
