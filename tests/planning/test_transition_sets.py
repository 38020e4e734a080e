"""The best row of a set against linear programming and against the vertices of the set."""

import itertools

import jax
import numpy as np
import pytest
from scipy.optimize import linprog

from bayes_mdp.mdp import MDP
from bayes_mdp.planning.extended_mdp import Box, L1Ball, outcome_probs

S, A = 4, 2
best = jax.jit(lambda rows, values: rows.best_value(values))


def centres(seed, n_outcomes=S):
    """Rows with some zeros, radii from 0 to beyond 2, and values with a tie."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(n_outcomes, 0.5), (S, A))
    probs[0, 0] = np.eye(n_outcomes)[1]
    probs[1, 1, 0], probs[1, 1, 1] = 0.0, probs[1, 1, 0] + probs[1, 1, 1]
    radius = rng.uniform(0, 1.2, (S, A))
    radius[2, 0], radius[2, 1], radius[0, 0] = 0.0, 2.5, 0.3
    values = rng.normal(size=S)
    values[3] = values[1]
    return probs, radius, values


def by_program(worth, lower, upper, *, centre=None, radius=None):
    """max p . worth over a box, and where there is a centre within its L1 ball: variables p and t >= |p - centre|."""
    n = len(worth)
    if centre is None:
        answer = linprog(-worth, A_eq=np.ones((1, n)), b_eq=[1], bounds=list(zip(lower, upper, strict=True)))
    else:
        eye, none = np.eye(n), np.zeros(n)
        above = np.vstack([np.hstack([eye, -eye]), np.hstack([-eye, -eye]), np.r_[none, np.ones(n)]])
        answer = linprog(
            np.r_[-worth, none],
            A_ub=above,
            b_ub=np.r_[centre, -centre, radius],
            A_eq=np.r_[np.ones(n), none][None],
            b_eq=[1],
            bounds=[*zip(lower, upper, strict=True), *[(0, None)] * n],
        )
    assert answer.status == 0
    return -answer.fun


def vertices(centre, radius):
    """All vertices of {p in the simplex: ||p - centre||_1 <= radius}: feasible points where n - 1 faces meet."""
    n = len(centre)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=n)))
    normals, offsets = np.vstack([-np.eye(n), signs]), np.r_[np.zeros(n), signs @ centre + radius]
    chosen = np.array(list(itertools.combinations(range(len(normals)), n - 1)))
    systems = np.concatenate([np.ones((len(chosen), 1, n)), normals[chosen]], 1)
    sides = np.concatenate([np.ones((len(chosen), 1)), offsets[chosen]], 1)
    regular = np.abs(np.linalg.det(systems)) > 1e-9
    points = np.linalg.solve(systems[regular], sides[regular][..., None])[..., 0]
    return points[(points @ normals.T <= offsets + 1e-12).all(1)]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", range(2))
def test_the_ball_is_that_of_a_linear_program_and_of_its_vertices(seed):
    probs, radius, values = centres(seed)
    answer = best(L1Ball(probs, radius), values)
    for pair in np.ndindex(S, A):
        program = by_program(values, np.zeros(S), np.ones(S), centre=probs[pair], radius=radius[pair])
        assert answer[pair] == pytest.approx(program, abs=1e-9)
        assert answer[pair] == pytest.approx((vertices(probs[pair], radius[pair]) @ values).max(), abs=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", range(2))
def test_the_ball_keeps_to_the_possible_outcomes_and_an_end_is_worth_nothing(seed):
    probs, radius, values = centres(seed, S + 1)
    support = np.random.default_rng(seed).uniform(size=probs.shape) < 0.5
    support[..., 0] |= ~support.any(-1)
    probs = np.where(support, probs + 0.1, 0.0)
    probs /= probs.sum(-1, keepdims=True)
    worth = np.r_[values, 0.0]
    answer = best(L1Ball(probs, radius, support), values)
    for pair in np.ndindex(S, A):
        upper = support[pair].astype(float)
        program = by_program(worth, np.zeros(S + 1), upper, centre=probs[pair], radius=radius[pair])
        assert answer[pair] == pytest.approx(program, abs=1e-9)
    assert np.any(answer < best(L1Ball(probs, radius, np.ones_like(support)), values) - 1e-3)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", range(2))
def test_the_box_is_that_of_a_linear_program(seed):
    probs, _, values = centres(seed, S + 1)
    rng = np.random.default_rng(seed)
    lower, upper = probs * rng.uniform(0, 1, probs.shape), probs + rng.uniform(0, 0.5, probs.shape) * (1 - probs)
    lower[3, 0], upper[3, 0] = 0.0, 1.0
    lower[3, 1] = upper[3, 1] = probs[3, 1]
    answer = best(Box(lower, upper), values)
    for pair in np.ndindex(S, A):
        program = by_program(np.r_[values, 0.0], lower[pair], upper[pair])
        assert answer[pair] == pytest.approx(program, abs=1e-9)
    assert answer[3, 0] == pytest.approx(max(*values, 0.0), abs=1e-12)
    assert answer[3, 1] == pytest.approx(probs[3, 1, :S] @ values, abs=1e-12)


def test_rows_of_an_mdp_have_the_end_last():
    mdp = MDP(np.full((S, A, S), 0.2), np.zeros((S, A)), end_probs=np.full((S, A), 0.2))
    np.testing.assert_allclose(outcome_probs(mdp), np.full((S, A, S + 1), 0.2), rtol=1e-6)


ROWS, ONES = np.full((S, A, S), 0.25), np.ones((S, A))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: L1Ball(ROWS, ONES[0]), r"radius has shape \(2,\), expected \(4, 2\)"),
        (lambda: L1Ball(ROWS, -ONES), r"radius\[0, 0\] is -1\.0, expected a number, zero or greater"),
        (lambda: L1Ball(ROWS, ONES, ONES), r"support has shape \(4, 2\), expected \(4, 2, 4\)"),
        (lambda: L1Ball(ROWS, ONES, np.eye(S)[:, None] * ONES[..., None]), r"probs\[0, 0, 1\] is 0\.25, expected 0"),
        (lambda: Box(ROWS, ROWS[0]), r"upper has shape \(2, 4\), expected \(4, 2, 4\)"),
        (lambda: Box(ROWS, ROWS / 2), r"lower\[0, 0, 0\] is 0\.25, expected a number from 0 to upper"),
        (lambda: Box(2 * ROWS, 3 * ROWS), r"sum of lower\[0, 0\] is 2\.0, expected at most 1"),
        (lambda: Box(0 * ROWS, ROWS / 2), r"sum of upper\[0, 0\] is 0\.5, expected at least 1"),
    ],
)
def test_sets_that_are_none_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
