"""The doors: dispatch, refusals, evaluation of policies, carries of compiled loops."""

from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp import planning
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit
from bayes_mdp.planning.solution import Solution
from tests.planning.planning_problems import KINDS, arrays, evaluate, listed, make_mdp

pytestmark = pytest.mark.optimised

MDP6 = make_mdp(*arrays("random", 6))
STEPS = MDP(np.full((3, 2, 1, 2), 0.5), np.zeros((3, 2, 1)))


@pytest.mark.parametrize("sparse", [False, True])
def test_evaluate_agrees_with_dense_solves(sparse, x64):
    rng = np.random.default_rng(0)
    for kind in KINDS:
        rows, reward, _, legal = data = arrays(kind, 6)
        probs = np.where(legal, rng.dirichlet(np.ones(2), 6), 0.0)
        probs /= probs.sum(-1, keepdims=True)
        mdp = listed(make_mdp(*data)) if sparse else make_mdp(*data)
        for discount in (0.0, 0.9, 0.999):
            value = evaluate(mdp, probs, Discounted(discount))
            chain = np.einsum("sa,saz->sz", probs, rows)
            v = np.linalg.solve(np.eye(6) - discount * chain, (probs * np.where(legal, reward, 0)).sum(-1))
            q = reward + discount * rows @ v
            assert np.abs(value.v - v).max() <= value.gap
            assert np.abs(value.q - q)[legal].max() <= value.gap
            assert value.gap <= 1e-9 * (1 + np.abs(v).max()) * max(1.0, np.abs(reward).max())
            assert np.isneginf(np.asarray(value.q)[~legal]).all()


def test_evaluate_in_float32_is_honest():
    rows, reward, *_ = data = arrays("ending", 6)
    probs = np.random.default_rng(0).dirichlet(np.ones(2), 6)
    v = np.linalg.solve(np.eye(6) - 0.999 * np.einsum("sa,saz->sz", probs, rows), (probs * reward).sum(-1))
    value = evaluate(make_mdp(*data), probs, Discounted(0.999))
    assert np.abs(np.asarray(value.v, float) - v).max() <= value.gap < 0.1


@pytest.mark.parametrize("objective", [Discounted(0.9), Episodic(3), AverageReward(), FirstExit()])
def test_answers_keep_their_types_in_a_loop(objective):
    """A plan is the carry of a scan: same structure, shapes and dtypes as the blank one, in both widths."""
    for x64 in (False, True):
        with jax.enable_x64(x64):
            mdp = make_mdp(*arrays("random", 6))
            shape = (3, 6, 2) if isinstance(objective, Episodic) else (6, 2)
            blank = Solution.blank(shape, dtype=mdp.reward.dtype)
            solve = lambda s: planning.solve(mdp, objective, start=s)  # noqa: E731, B023
            assert jax.eval_shape(solve, blank) == jax.eval_shape(lambda: blank)  # noqa: B023


@pytest.mark.parametrize(
    ("mdp", "objective", "message"),
    [
        (STEPS, Discounted(0.9), r"objective is Discounted and the MDP has 3 steps, expected Episodic\(3\)"),
        (STEPS, AverageReward(), "objective is AverageReward and the MDP has 3 steps"),
        (STEPS, Episodic(4), "objective has horizon 4, expected 3"),
        (make_mdp(*arrays("ending", 6)), AverageReward(), r"end_probs\[.*expected 0: the average reward needs"),
    ],
)
def test_refusals(mdp, objective, message):
    with pytest.raises(ValueError, match=message):
        planning.solve(mdp, objective)
    with pytest.raises(ValueError, match=message):
        planning.evaluate(mdp, np.zeros(mdp.n_states, int), objective)


def test_a_discount_array_is_checked_too():
    with pytest.raises(ValueError, match=r"discount is 1\.0, expected a number from 0 up to"):
        planning.solve(MDP6, Discounted(jnp.asarray(1.0)))
    with pytest.raises(ValueError, match=r"discount has shape \(2,\), expected one number"):
        planning.solve(MDP6, Discounted(jnp.array([0.5, 0.9])))


def test_no_objective():
    with pytest.raises(TypeError, match=r"objective is 0\.9, expected Discounted"):
        planning.solve(MDP6, 0.9)  # pyright: ignore[reportArgumentType]


def test_a_start_of_another_size():
    with pytest.raises(ValueError, match=r"start has values of shape \(5, 2\), expected \(6, 2\)"):
        planning.solve(MDP6, Discounted(0.9), start=Solution.blank((5, 2)))


@pytest.mark.parametrize(
    ("env_id", "mean", "without_ends"),
    [pytest.param("Taxi-v4", 5.4522, 117.05, marks=pytest.mark.slow), ("CliffWalking-v1", -6.1050, -20.0)],
)
def test_gymnasium_tables(env_id, mean, without_ends, x64):
    """Mean optimal values of published tables; a planner that forgets ends gets the wrong ones."""
    gymnasium = pytest.importorskip("gymnasium")
    table = gymnasium.make(env_id).unwrapped.P
    n, n_actions = len(table), len(table[0])
    rows, reward, ends = np.zeros((n, n_actions, n)), np.zeros((n, n_actions)), np.zeros((n, n_actions))
    for s, actions in table.items():
        for a, outcomes in actions.items():
            for p, z, r, done in outcomes:
                reward[s, a] += p * r
                ends[s, a] += p * done
                rows[s, a, z] += p * (not done)
    solve = jax.jit(planning.solve)
    v = solve(MDP(rows, reward, end_probs=ends), Discounted(0.95)).v
    assert abs(np.mean(v) - mean) < 6e-5
    for s, actions in table.items():
        for a, outcomes in actions.items():
            for p, z, _, done in outcomes:
                rows[s, a, z] += p * done
    v = solve(MDP(rows, reward, end_probs=0 * ends), Discounted(0.95)).v
    assert abs(np.mean(v) - without_ends) < 6e-3


@pytest.mark.few(1)
@pytest.mark.parametrize("objective", [Discounted(0.9), Episodic(3)])
def test_numbers_of_two_widths_are_planned_in_the_wider(objective, x64):
    """Rewards in float32 beside rows in float64."""
    rows = jnp.array([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.3, 0.7]]])
    reward = jnp.array([[0.0, 1.0], [0.5, 0.25]])
    mixed = MDP(rows, reward.astype(jnp.float32))
    assert mixed.reward.dtype == jnp.float32
    for plan in (
        lambda mdp: planning.solve(mdp, objective),
        lambda mdp: planning.evaluate(mdp, jnp.array([0, 1]), objective),
    ):
        found = plan(mixed)
        assert found.v.dtype == jnp.float64
        np.testing.assert_array_equal(found.v, plan(MDP(rows, reward)).v)
    np.testing.assert_array_equal(
        planning.solve_soft(mixed, objective, 0.3).v, planning.solve_soft(MDP(rows, reward), objective, 0.3).v
    )


@pytest.mark.parametrize("objective", [Discounted(0.9), Episodic(5), AverageReward()], ids=lambda o: type(o).__name__)
def test_a_second_call_runs_the_program_of_the_first(objective, monkeypatch):
    """With other numbers and another discount too: the loops of an eager call would be compiled anew each time."""
    mdps = [make_mdp(*arrays("random", 5, seed=seed)) for seed in (0, 1)]
    planning.evaluate(mdps[0], planning.solve(mdps[0], objective).policy, objective)
    module = import_module("bayes_mdp.planning.solve")
    for planner in ("_solve_stationary", "induce"):
        monkeypatch.setattr(module, planner, None)  # no Python is run again
    other = Discounted(0.8) if isinstance(objective, Discounted) else objective
    found = planning.solve(mdps[1], other)
    again = planning.evaluate(mdps[1], found.policy, other)
    np.testing.assert_allclose(again.v - again.v[..., :1], found.v - found.v[..., :1], rtol=1e-4, atol=1e-4)
    with pytest.raises(TypeError):
        jax.make_jaxpr(planning.solve, static_argnums=1)(mdps[1], other)
