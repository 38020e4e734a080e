"""Cohort traces and totals against loops in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm

RNG = np.random.default_rng(0)
MATRICES = RNG.dirichlet(np.ones(3), (6, 3))
START = np.array([0.7, 0.3, 0.0])


def loop(matrices):
    rows = [START]
    for matrix in matrices:
        rows.append(rows[-1] @ matrix)
    return np.array(rows)


def test_trace():
    np.testing.assert_allclose(bm.strategies.cohort_trace(MATRICES, START), loop(MATRICES), rtol=1e-5)
    np.testing.assert_allclose(bm.strategies.cohort_trace(MATRICES, START, 4), loop(MATRICES[:4]), rtol=1e-5)
    np.testing.assert_allclose(bm.strategies.cohort_trace(MATRICES[0], START, 4), loop([MATRICES[0]] * 4), rtol=1e-5)
    np.testing.assert_allclose(bm.strategies.cohort_trace(MATRICES[0], START, 0), [START])


def test_totals_by_state_and_by_move():
    with jax.enable_x64(True):
        trace = np.asarray(bm.strategies.cohort_trace(MATRICES, START))
        weights = bm.strategies.cycle_weights(6, 0.05)
        by_time, moves = RNG.normal(size=(7, 3)), RNG.normal(size=(3, 3))
        total = bm.strategies.cohort_total(trace, by_time, weights, per_transition=moves, transition=MATRICES)
        wanted = 0.0
        for t in range(7):
            wanted += (1.05**-t if t else 0.0) * trace[t] @ by_time[t]
            if t:
                wanted += 1.05**-t * sum(trace[t - 1, i] * MATRICES[t - 1, i] @ moves[i] for i in range(3))
        assert float(total) == pytest.approx(wanted, rel=1e-12)
        same = bm.strategies.cohort_trace(MATRICES[0], START, 6)
        of_moves = {"per_transition": np.ones((3, 3)), "transition": MATRICES[0], "event_weights": np.ones(7)}
        assert float(bm.strategies.cohort_total(same, np.zeros(3), np.ones(7), **of_moves)) == pytest.approx(6)


COUNTINGS = ("start", "end", "half-cycle", "simpson")


@pytest.mark.parametrize("counting", COUNTINGS)
def test_events_count_in_full_under_every_counting(counting):
    """It was 10 under half-cycle, 0 under start: one cycle, 20 % die, 100 each. 500 at the start were 250, and 0."""
    cycles = 2 if counting == "simpson" else 1
    matrix = np.array([[0.8, 0.2], [0.0, 1.0]]) if cycles == 1 else np.array([[[0.8, 0.2], [0, 1]], [[1, 0], [0, 1]]])
    trace, weights = (
        bm.strategies.cohort_trace(matrix, [1.0, 0.0], cycles),
        bm.strategies.cycle_weights(cycles, counting=counting),
    )
    dying = [[0.0, 100.0], [0.0, 0.0]]
    total = bm.strategies.cohort_total(trace, [0.0, 0.0], weights, per_transition=dying, transition=matrix)
    assert float(total) == pytest.approx(20, rel=1e-6)
    assert float(bm.strategies.cohort_total(trace, [0.0, 0.0], weights, once=[500.0, 0.0])) == pytest.approx(
        500, rel=1e-6
    )


def walked(matrices, counting, rate, per_state, per_move, once):
    """The costs of a cohort, cycle by cycle in a plain loop, from what each counting says of a cycle."""
    total, cohort = 0.0, START
    at = lambda t: (1 + rate) ** -t  # noqa: E731
    for t in range(len(matrices) + 1):
        total += at(t) * cohort @ once[t]
        if t == len(matrices):
            return total
        moved = cohort[:, None] * matrices[t]
        total += at(t + 1) * (moved * per_move).sum()
        begin, end = at(t) * cohort @ per_state[t], at(t + 1) * moved.sum(0) @ per_state[t + 1]
        total += {"start": begin, "end": end, "half-cycle": (begin + end) / 2}[counting]
        cohort = moved.sum(0)


@pytest.mark.parametrize("counting", COUNTINGS[:3])
@pytest.mark.parametrize("rate", [0.0, 0.05])
def test_states_moves_and_payments_against_a_cohort_that_is_walked(counting, rate, x64):
    by_time, moves, once = RNG.normal(size=(7, 3)), RNG.normal(size=(3, 3)), RNG.normal(size=(7, 3))
    weights = bm.strategies.cycle_weights(6, rate, counting)
    of_moves = {"per_transition": moves, "transition": MATRICES}
    total = jax.jit(
        lambda x: bm.strategies.cohort_total(
            bm.strategies.cohort_trace(MATRICES, START), x, weights, once=once, **of_moves
        )
    )
    assert float(total(by_time)) == pytest.approx(walked(MATRICES, counting, rate, by_time, moves, once), rel=1e-12)
    given = bm.strategies.cohort_total(
        loop(MATRICES), by_time, np.asarray(weights), once=once, event_weights=1.05 ** -np.arange(7.0), **of_moves
    )
    if rate == 0.05:
        assert float(given) == pytest.approx(float(total(by_time)), rel=1e-12)
    start = bm.strategies.cohort_total(loop(MATRICES), np.zeros(3), weights, once=once[0])
    assert float(start) == pytest.approx(START @ once[0], rel=1e-12)


def test_what_the_weights_do_not_say_of_events_is_refused():
    of_moves = {"per_transition": np.ones((3, 3)), "transition": MATRICES}
    for weights in (
        np.ones(7),
        bm.strategies.cycle_weights(6) * 2,
        bm.strategies.cycle_weights(7)[1:],
        jnp.asarray(bm.strategies.cycle_weights(6)),
    ):
        for event in (of_moves, {"once": np.ones(3)}):
            with pytest.raises(ValueError, match=r"event_weights is None, and the weights are not .*arange\(T \+ 1\)"):
                bm.strategies.cohort_total(loop(MATRICES), np.zeros(3), weights, **event)
    with pytest.raises(ValueError, match="event_weights is None"):
        jax.jit(
            lambda r: bm.strategies.cohort_total(
                loop(MATRICES), np.zeros(3), bm.strategies.cycle_weights(6, r), **of_moves
            )
        )(0.1)


@pytest.mark.parametrize(("counting", "t", "part"), [("half-cycle", 0, "0.5"), ("end", 0, "0"), ("start", 6, "0"),
                                                     ("simpson", 3, "1.33")])  # fmt: skip
def test_values_of_one_time_alone_of_which_the_counting_takes_a_part_are_refused(counting, t, part):
    """A payment written into the row of its cycle: half of it was counted."""
    paid = np.zeros((7, 3))
    paid[t] = 100.0
    weights = bm.strategies.cycle_weights(6, 0.03, counting)
    with pytest.raises(
        ValueError, match=rf"per_state is 0 but at t = {t}, of which these weights count {part}, .*once"
    ):
        bm.strategies.cohort_total(loop(MATRICES), paid, weights)
    wanted = 1.03**-t * loop(MATRICES)[t].sum() * 100
    assert float(bm.strategies.cohort_total(loop(MATRICES), np.zeros(3), weights, once=paid)) == pytest.approx(
        wanted, rel=1e-5
    )
    if counting in ("end", "start"):
        full = bm.strategies.cycle_weights(6, 0.03, "start" if counting == "end" else "end")
        assert float(bm.strategies.cohort_total(loop(MATRICES), paid, full)) == pytest.approx(wanted, rel=1e-5)


def test_weights():
    np.testing.assert_allclose(bm.strategies.cycle_weights(3, 0.1), [0, 1 / 1.1, 1.1**-2, 1.1**-3], rtol=1e-6)
    np.testing.assert_allclose(bm.strategies.cycle_weights(3, counting="start"), [1, 1, 1, 0])
    np.testing.assert_allclose(bm.strategies.cycle_weights(3, counting="half-cycle"), [0.5, 1, 1, 0.5])
    np.testing.assert_allclose(
        bm.strategies.cycle_weights(4, counting="simpson"), [1 / 3, 4 / 3, 2 / 3, 4 / 3, 1 / 3], rtol=1e-6
    )
    # Simpson's rule is exact for cubics.
    with jax.enable_x64(True):
        t = np.arange(7)
        assert float(bm.strategies.cycle_weights(6, counting="simpson") @ t**3) == pytest.approx(6**4 / 4)


def test_weights_have_all_digits_outside_a_program():
    """A constant of a module is made before float64 is switched on."""
    assert bm.strategies.cycle_weights(20, 0.06)[20] == pytest.approx(1.06**-20, rel=1e-14)
    assert float(jax.jit(lambda rate: bm.strategies.cycle_weights(20, rate))(0.06)[20]) == pytest.approx(
        1.06**-20, rel=1e-5
    )


def test_gradients_and_batches():
    def cost(rate):
        matrix = jnp.array([[1 - rate, rate], [0.0, 1.0]])
        return bm.strategies.cohort_total(
            bm.strategies.cohort_trace(matrix, jnp.array([1.0, 0.0]), 5), np.array([1.0, 0.0]), np.ones(6)
        )

    rates = jnp.array([0.1, 0.3])
    wanted = [sum((1 - r) ** t for t in range(6)) for r in (0.1, 0.3)]
    np.testing.assert_allclose(jax.vmap(cost)(rates), wanted, rtol=1e-5)
    slope = sum(-t * 0.9 ** (t - 1) for t in range(1, 6))
    assert float(jax.grad(cost)(0.1)) == pytest.approx(slope, rel=1e-5)


def test_dataset():
    table = bm.strategies.trace_dataset({"a": loop(MATRICES), "b": loop(MATRICES[::-1])}, ("x", "y", "z"))
    assert dict(table.sizes) == {"strategy": 2, "cycle": 7, "state": 3}
    assert float(table["occupancy"].sel(strategy="a", cycle=0, state="y")) == 0.3


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: bm.strategies.cohort_trace(MATRICES[0], START), TypeError, "n_cycles is None"),
        (lambda: bm.strategies.cohort_trace(MATRICES, START, 7), ValueError, "n_cycles is 7, expected at most the 6"),
        (lambda: bm.strategies.cohort_trace(MATRICES[:, :2], START), ValueError, "transition has shape"),
        (lambda: bm.strategies.cohort_trace(MATRICES, START[:2]), ValueError, "initial has shape"),
        (lambda: bm.strategies.cohort_trace(START, START, 3), ValueError, r"expected \(S, S\)"),
        (lambda: bm.strategies.cycle_weights(3, counting="simpson"), ValueError, "expected an even number"),
        (lambda: bm.strategies.cycle_weights(3, -1.0), ValueError, "rate is -1.0, expected a number above -1"),
        (lambda: bm.strategies.cycle_weights(0), ValueError, "n_cycles is 0"),
        (lambda: bm.strategies.cohort_total(loop(MATRICES), np.ones(3), np.ones(6)), ValueError, "weights has shape"),
        (lambda: bm.strategies.cohort_total(loop(MATRICES), np.ones(2), np.ones(7)), ValueError, "per_state has shape"),
        (
            lambda: bm.strategies.cohort_total(loop(MATRICES), np.ones(3), np.ones(7), per_transition=np.ones((3, 3))),
            ValueError,
            "transition is None",
        ),
        (lambda: bm.strategies.trace_dataset({}, ("x",)), ValueError, "traces is empty"),
    ],
)
def test_wrong_input(call, error, says):
    with pytest.raises(error, match=says):
        call()
