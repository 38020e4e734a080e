"""Extended value iteration against plain loops, brute force over all vertices, and MDPs inside the set."""

import itertools

import jax
import numpy as np
import pytest

from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit
from bayes_mdp.planning.extended_mdp import Box, ExtendedMDP, L1Ball, solve_extended
from tests.planning.test_transition_sets import vertices

S, A, H, DISCOUNT = 3, 2, 4, 0.9
LEGAL = np.array([[True, True], [True, False], [True, True]])
solve = jax.jit(solve_extended)


def problem(seed, lead=(), *, ends=False):
    """Rows, radii, optimistic rewards; rows are positive."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(S + ends, 2.0), (*lead, S, A))
    return rows, rng.uniform(0.05, 0.6, (*lead, S, A)), rng.normal(size=(*lead, S, A))


def best_row(row, radius, worth, support=None):
    """Figure 2 of Jaksch et al. (2010), word for word, among the possible outcomes."""
    possible = range(len(worth)) if support is None else np.flatnonzero(support)
    ranked = sorted(possible, key=lambda z: -worth[z])
    row = row.copy()
    row[ranked[0]] = min(1.0, row[ranked[0]] + radius / 2)
    for z in reversed(ranked):
        if row.sum() <= 1:
            break
        row[z] = max(0.0, 1 - (row.sum() - row[z]))
    return row @ worth


def poured(lower, upper, worth):
    """Lower limits first, the rest in the order of worth (Dann and Brunskill 2015, algorithm 2)."""
    row = lower.copy()
    for z in sorted(range(len(worth)), key=lambda z: -worth[z]):
        row[z] += min(upper[z] - row[z], 1 - row.sum())
    return row @ worth


def sweep(sets, reward, values, discount=1.0):
    """One optimistic sweep by loops; `sets(s, a, worth)` is the worth of the best row."""
    q = np.full(reward.shape, -np.inf)
    for s, a in np.argwhere(LEGAL):
        q[s, a] = reward[s, a] + discount * sets(s, a, values)
    return q


@pytest.mark.usefixtures("x64")
def test_discounted_episodes_are_backward_induction_by_loops():
    rows, radius, reward = problem(0)
    answer, v = solve(ExtendedMDP(L1Ball(rows, radius), reward, LEGAL), Episodic(H, 0.7)), np.zeros(S)
    for h in reversed(range(H)):
        q = sweep(lambda s, a, w: best_row(rows[s, a], radius[s, a], w), reward, v, 0.7)
        v = q.max(-1)
        np.testing.assert_allclose(answer.q[h], q, atol=float(answer.gap))
    assert answer.converged and answer.gap < 1e-12


@pytest.mark.usefixtures("x64")
def test_episodes_are_backward_induction_by_loops():
    """A ball that does not depend on the step, and boxes with an end that do."""
    rows, radius, reward = problem(0)
    answer, v = solve(ExtendedMDP(L1Ball(rows, radius), reward, LEGAL), Episodic(H)), np.zeros(S)
    for h in reversed(range(H)):
        q = sweep(lambda s, a, w: best_row(rows[s, a], radius[s, a], w), reward, v)
        v = q.max(-1)
        np.testing.assert_allclose(answer.q[h], q, atol=float(answer.gap))
        np.testing.assert_array_equal(answer.policy[h], q.argmax(-1))
    assert answer.converged and answer.gap < 1e-12

    rows, radius, reward = problem(1, (H,), ends=True)
    lower, upper = np.maximum(rows - radius[..., None] / 2, 0), np.minimum(rows + radius[..., None], 1)
    answer, v = solve(ExtendedMDP(Box(lower, upper), reward, LEGAL), Episodic(H)), np.zeros(S)
    for h in reversed(range(H)):
        now = lower[h], upper[h]
        q = sweep(lambda s, a, w, now=now: poured(now[0][s, a], now[1][s, a], np.r_[w, 0]), reward[h], v)
        v = q.max(-1)
        np.testing.assert_allclose(answer.q[h], q, atol=float(answer.gap))


def discounted_by_loops(rows, radius, reward):
    v = np.zeros(S)
    for _ in range(300):
        v = sweep(lambda s, a, w: best_row(rows[s, a], radius[s, a], np.r_[w, 0]), reward, v, DISCOUNT).max(-1)
    return v


@pytest.mark.parametrize("shift", [-2.0, 0.0, 2.0])
def test_discounted_values_and_their_bound_in_float32(shift):
    """Rewards of one sign and of both: where rows can end the two bounds have factors of their own."""
    rows, radius, reward = problem(2, ends=True)
    reward = reward + shift
    truth = discounted_by_loops(rows, radius, reward)
    mdp = ExtendedMDP(L1Ball(rows, radius), reward, LEGAL)
    gaps = []
    for tolerance in (0.5, 0.0):
        answer = solve(mdp, Discounted(DISCOUNT), tolerance=tolerance)
        assert answer.converged and np.abs(answer.v - truth).max() <= answer.gap
        gaps.append(float(answer.gap))
    assert gaps[1] < 4e-3 < gaps[0] < 0.26
    again = solve(mdp, Discounted(DISCOUNT), tolerance=0.0, start=answer)
    assert again.iterations < answer.iterations and np.abs(again.v - truth).max() <= again.gap


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", range(2))
def test_the_gain_is_that_of_brute_force(seed):
    """Every policy with every choice of vertices: the best row of a set is one of them."""
    rows, radius, reward = problem(seed)
    radius = np.minimum(radius, rows.min(-1))  # every chain keeps all rows positive: one recurrent class
    corners = {(s, a): vertices(rows[s, a], radius[s, a]) for s, a in np.argwhere(LEGAL)}
    best = -np.inf
    for policy in itertools.product(range(A), repeat=S):
        if LEGAL[np.arange(S), policy].all():
            chains = np.array(list(itertools.product(*(corners[s, a] for s, a in enumerate(policy)))))
            system = np.concatenate([np.swapaxes(np.eye(S) - chains, 1, 2)[:, 1:], np.ones((len(chains), 1, S))], 1)
            law = np.linalg.solve(system, np.eye(S)[-1][:, None])[..., 0]
            best = max(best, (law @ reward[np.arange(S), policy]).max())
    mdp = ExtendedMDP(L1Ball(rows, radius), reward, LEGAL)
    answer = solve(mdp, AverageReward(), tolerance=0.0)
    assert abs(answer.gain - best) <= answer.gap < 1e-11
    assert answer.converged and answer.v[0] == 0
    early = solve(mdp, AverageReward(), tolerance=0.1)
    assert abs(early.gain - best) <= early.gap <= 0.05 + 1e-9
    assert early.iterations < answer.iterations


@pytest.mark.usefixtures("x64")
def test_known_rows_that_form_a_cycle_converge():
    """Plain value iteration oscillates: gain (1 + 2 + 6) / 3. Rows that part the states have no single gain."""
    rows, reward = np.roll(np.eye(S), 1, 1)[:, None].repeat(A, 1), np.array([[1.0, 0], [2, 0], [6, 0]])
    cycle = solve(ExtendedMDP(L1Ball(rows, np.zeros((S, A))), reward, LEGAL), AverageReward(), tolerance=0.0)
    assert cycle.converged and abs(cycle.gain - 3) <= cycle.gap < 1e-12
    parted = np.eye(S)[:, None].repeat(A, 1)
    parted = solve(ExtendedMDP(L1Ball(parted, np.zeros((S, A))), reward, LEGAL), AverageReward(), tolerance=0.0)
    assert not parted.converged and np.isinf(parted.gap)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("objective", [AverageReward(), Discounted(DISCOUNT), Episodic(H)])
def test_no_mdp_of_the_set_is_better(objective):
    """Five MDPs of the set: none is worth more than the optimistic plan, but some more than the plan without radii."""
    rows, radius, reward = problem(4)
    worth = lambda plan: np.asarray(plan.gain if isinstance(objective, AverageReward) else plan.v)  # noqa: E731

    def optimum(rows, radius, reward):
        return solve(ExtendedMDP(L1Ball(rows, radius), reward, LEGAL), objective, tolerance=0.0)

    plan, without = optimum(rows, radius, reward), optimum(rows, 0 * radius, reward)
    rng, beaten = np.random.default_rng(0), 0
    for _ in range(5):
        other = rng.dirichlet(np.full(S, 0.3), (S, A))
        share = np.minimum(1.0, radius / np.abs(other - rows).sum(-1))[..., None]
        truth = optimum(rows + share * (other - rows), 0 * radius, reward - rng.uniform(0, 0.02, reward.shape))
        assert np.all(worth(truth) <= worth(plan) + float(truth.gap + plan.gap))
        beaten += np.any(worth(truth) > worth(without) + 1e-6)
    assert beaten > 0


@pytest.mark.usefixtures("x64")
def test_the_estimate_is_left_as_it_was():
    """TabulaRL's version edits it. With radius 0 the plan is optimal in the estimate, its policy's value the same."""
    rows, radius, reward = problem(5)
    before = rows.copy()
    sets = L1Ball(rows, radius)
    solve(ExtendedMDP(sets, reward, LEGAL), Discounted(DISCOUNT), tolerance=0.0)
    np.testing.assert_array_equal(sets.probs, before)
    plain = solve(ExtendedMDP(L1Ball(rows, 0 * radius), reward, LEGAL), Discounted(DISCOUNT), tolerance=0.0)
    at = np.arange(S), np.asarray(plain.policy)
    exact = np.linalg.solve(np.eye(S) - DISCOUNT * rows[at], reward[at])
    np.testing.assert_allclose(plain.v, exact, atol=float(plain.gap) + 1e-12)
    assert np.all(np.where(LEGAL, reward + DISCOUNT * rows @ exact, -np.inf).max(-1) <= exact + 1e-12)


FIFTHS = np.full((S, A, 5), 0.2)


def made(lead=(), *, ends=False, legal=None):
    rows, radius, reward = problem(0, lead, ends=ends)
    return ExtendedMDP(L1Ball(rows, radius), reward, legal)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: solve_extended(made(), FirstExit()), "objective is FirstExit, expected Discounted, Episodic or Aver"),
        (lambda: solve_extended(made((H,)), Episodic(2)), "objective has horizon 2, expected 4, that of the sets"),
        (lambda: solve_extended(made((H,)), Discounted(0.9)), r"the sets have 4 steps, expected Episodic\(4\)"),
        (lambda: solve_extended(made(ends=True), AverageReward()), "rows have an end, expected none"),
        (lambda: solve_extended(made(), Discounted(0.9), tolerance=-1.0), r"tolerance is -1\.0, expected a number"),
        (lambda: made(legal=LEGAL[0]), r"legal has shape \(2,\), expected \(3, 2\)"),
        (lambda: ExtendedMDP(made().rows, np.zeros(S)), r"reward has shape \(3,\), expected \(3, 2\)"),
        (
            lambda: ExtendedMDP(Box(*[np.full((S, A, 5), 0.2)] * 2), np.zeros((S, A))),
            "rows have 5 outcomes, expected 3",
        ),
    ],
)
def test_what_cannot_be_solved_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
