"""MBIE against extended value iteration and linear programs, on fixed histories."""

from math import comb, log, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from bayes_mdp.agents import MBIE, MBIEEB
from bayes_mdp.agents.model_based.empirical_planning import OnePolicy, PrioritizedSweeping, Stats
from bayes_mdp.agents.model_based.mbie import theory_widths
from bayes_mdp.planning.extended_mdp import ExtendedMDP, L1Ball, solve_extended
from tests.agents.empirical_models import (
    DISCOUNTED,
    EPISODIC,
    FEW,
    GAMMA,
    SEEN,
    counted,
    look,
    optima,
    optimum,
)
from tests.agents.histories import LEGAL, A, S

WIDTH, REWARD_WIDTH, V_MAX = 0.8, 0.3, 20.0
TASKS = pytest.mark.parametrize("task", [DISCOUNTED, EPISODIC], ids=["discounted", "episodic"])
extended = jax.jit(solve_extended)


def as_sets(seen: Any, width: float) -> ExtendedMDP:
    """The set of MDPs by hand. A pair that was never tried pays v_max and ends, in a row that is known."""
    count = counted(seen)
    n = np.maximum(count.n, 1)
    ended = np.where(count.n > 0, 1 - count.rows.sum(-1), 1.0)
    ended = np.where(ended > 1e-9, ended, 0.0)
    centre = np.concatenate([count.rows, ended[..., None]], -1)
    support = np.ones(centre.shape, bool)
    support[..., -1] = ended > 0
    never = count.n == 0
    radius = np.where(never, 0.0, width / np.sqrt(n))
    reward = np.where(never, V_MAX, count.reward + REWARD_WIDTH / np.sqrt(n))
    return ExtendedMDP(L1Ball(centre, radius, support), reward, LEGAL)


@pytest.mark.few(1)
@pytest.mark.usefixtures("x64")
@TASKS
@pytest.mark.parametrize("seen", [SEEN, FEW], ids=["long", "few"])
def test_the_plan_is_that_of_extended_value_iteration(task, seen):
    """Radii up to .8: of the rows of the long history none is the one seen. Qr is the empirical optimum."""
    found = look(MBIE(REWARD_WIDTH, WIDTH, V_MAX), task, seen)
    expected = extended(as_sets(seen, WIDTH), task.objective)
    np.testing.assert_allclose(found.policy.q, expected.q, rtol=1e-7)
    chosen = np.take_along_axis(np.asarray(expected.q), np.asarray(found.policy.best)[..., None], -1)[..., 0]
    np.testing.assert_allclose(chosen, expected.v, rtol=1e-7)
    count = counted(seen)
    alone = optimum(count.reward, count.rows, GAMMA) if task is DISCOUNTED else optima(count.reward, count.rows)
    np.testing.assert_allclose(found.split.qr, alone, rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(found.greedy.best, alone.argmax(-1))


def by_program(worth: np.ndarray, centre: np.ndarray, radius: float, upper: np.ndarray) -> float:
    """max p . worth over an L1 ball in the simplex: variables p and t >= |p - centre|."""
    n = len(worth)
    eye, none = np.eye(n), np.zeros(n)
    near = np.vstack([np.hstack([eye, -eye]), np.hstack([-eye, -eye]), np.r_[none, np.ones(n)]])
    answer = linprog(
        np.r_[-worth, none],
        A_ub=near,
        b_ub=np.r_[centre, -centre, radius],
        A_eq=np.r_[np.ones(n), none][None],
        b_eq=[1],
        bounds=[*zip(none, upper, strict=True), *[(0, None)] * n],
    )
    assert answer.status == 0
    return -answer.fun


@pytest.mark.usefixtures("x64")
def test_the_rows_are_those_of_linear_programs():
    """12 draws of 8 pairs: ties of values, radii from .1 to beyond 2, rows that end, rows on one state, n = 0."""
    rng = np.random.default_rng(0)
    best_rows = jax.jit(lambda agent, stats, values: agent.best_rows(stats, values))
    ended = whole = 0
    for draw in range(12):
        n = rng.choice([0.0, 1.0, 4.0, 30.0], (S, A), p=[0.1, 0.3, 0.3, 0.3])
        following = np.stack([rng.multinomial(int(x), rng.dirichlet(np.full(S + 1, 0.5))) for x in n.flat])
        counts, width = following.reshape(S, A, S + 1)[..., :S].astype(float), rng.choice([0.5, 1.0, 2.5])
        values = rng.integers(-2, 3, S).astype(float) if draw % 2 else rng.normal(size=S)
        stats = Stats(*(jnp.asarray(x) for x in (n, np.zeros((S, A)), counts, np.zeros((S, A), int))))
        rows = np.asarray(best_rows(MBIE(0.0, width, 1.0), stats, np.broadcast_to(values, (S, A, S))))
        assert (rows >= 0).all()
        for pair in np.ndindex(S, A):
            if n[pair] == 0:
                assert (rows[pair] == 0).all()
                continue
            centre = np.r_[counts[pair], n[pair] - counts[pair].sum()] / n[pair]
            possible = np.r_[np.ones(S), centre[-1] > 0]
            best = by_program(np.r_[values, 0.0], centre, width / sqrt(n[pair]), possible)
            assert rows[pair] @ values == pytest.approx(best, abs=1e-9)
            own = np.r_[rows[pair], 1 - rows[pair].sum()]
            assert np.abs(own - centre).sum() <= width / sqrt(n[pair]) + 1e-12
            ended, whole = ended + (centre[-1] > 0), whole + (width >= 2 * sqrt(n[pair]))
    assert min(ended, whole) >= 5


@pytest.mark.usefixtures("x64")
@TASKS
def test_without_a_radius_it_is_mbie_eb(task):
    """The same numbers; a radius of almost nothing is almost it. Zero and None are one choice, made before tracing."""
    same = look(MBIEEB(REWARD_WIDTH, V_MAX), task, FEW)
    widths: list[Any] = [None, 0.0, np.float32(0)]
    for width in widths:
        agent = MBIE(REWARD_WIDTH, width, V_MAX)
        assert isinstance(agent.equations, OnePolicy)
        np.testing.assert_array_equal(look(agent, task, FEW).policy.q, same.policy.q)
    near = look(MBIE(REWARD_WIDTH, 1e-9, V_MAX), task, FEW)
    np.testing.assert_allclose(near.policy.q, same.policy.q, rtol=1e-6)
    far = look(MBIE(REWARD_WIDTH, WIDTH, V_MAX), task, FEW)
    assert np.abs(far.policy.q - same.policy.q)[..., LEGAL].max() > 0.05


def test_a_radius_beyond_two_reaches_the_best_state():
    """Of every pair that was tried; one that was not is worth v_max."""
    q = np.asarray(look(MBIE(0.0, 1e3, V_MAX), DISCOUNTED, FEW).policy.q)
    count = counted(FEW)
    tried = LEGAL & (count.n > 0)
    np.testing.assert_allclose(q[tried], (count.reward + GAMMA * V_MAX)[tried], rtol=1e-5)


@pytest.mark.parametrize("n_states", [1, 2, 6, 60])
def test_the_widths_of_the_theorem(n_states):
    """2^S - 2 subsets, counted; the rewards reach up to 10."""
    reward, transition = theory_widths(n_states, max_reward=10.0, reward_delta=0.1, transition_delta=0.02)
    assert float(reward) == pytest.approx(10 * sqrt(log(2 / 0.1) / 2), rel=1e-6)
    subsets = sum(comb(n_states, k) for k in range(1, n_states))
    expected = sqrt(2 * (log(subsets) - log(0.02))) if subsets else 0.0
    assert float(transition) == pytest.approx(expected, rel=1e-6)


def test_lost_optimism_is_warned_of():
    with pytest.warns(UserWarning, match="v_max is 100, below the largest reward 3000: optimism is lost"):
        MBIE().check_optimism(3000.0)
    MBIE(v_max=3000.0).check_optimism(3000.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MBIE(-1.0), r"reward_width is -1\.0, expected a finite number, zero or greater"),
        (lambda: MBIE(1.0, -0.5), r"transition_width is -0\.5, expected a finite number, zero or greater"),
        (lambda: MBIE(v_max=np.nan), "v_max is nan, expected a finite number"),
        (
            lambda: MBIE(1.0, 0.5, planner=PrioritizedSweeping()),
            "planner is PrioritizedSweeping, expected ExactPlanner for MBIE",
        ),
        (lambda: theory_widths(0), "n_states is 0, expected an integer of at least 1"),
        (lambda: theory_widths(3, reward_delta=1.0), r"reward_delta is 1\.0, expected a number between 0 and 1"),
        (lambda: theory_widths(3, transition_delta=0.0), r"transition_delta is 0\.0, expected"),
        (lambda: theory_widths(3, max_reward=-1.0), r"max_reward is -1\.0, expected"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
