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
    np.testing.assert_allclose(bm.cohort_trace(MATRICES, START), loop(MATRICES), rtol=1e-5)
    np.testing.assert_allclose(bm.cohort_trace(MATRICES, START, 4), loop(MATRICES[:4]), rtol=1e-5)
    np.testing.assert_allclose(bm.cohort_trace(MATRICES[0], START, 4), loop([MATRICES[0]] * 4), rtol=1e-5)
    np.testing.assert_allclose(bm.cohort_trace(MATRICES[0], START, 0), [START])


def test_totals_by_state_and_by_move():
    with jax.enable_x64(True):
        trace = np.asarray(bm.cohort_trace(MATRICES, START))
        weights = np.asarray(bm.cycle_weights(6, 0.05))
        by_time, moves = RNG.normal(size=(7, 3)), RNG.normal(size=(3, 3))
        total = bm.cohort_total(trace, by_time, weights, per_transition=moves, transition=MATRICES)
        wanted = 0.0
        for t in range(7):
            wanted += (1.05**-t if t else 0.0) * trace[t] @ by_time[t]
            if t:
                wanted += 1.05**-t * sum(trace[t - 1, i] * MATRICES[t - 1, i] @ moves[i] for i in range(3))
        assert float(total) == pytest.approx(wanted, rel=1e-12)
        same = bm.cohort_trace(MATRICES[0], START, 6)
        once = bm.cohort_total(same, np.zeros(3), np.ones(7), per_transition=np.ones((3, 3)), transition=MATRICES[0])
        assert float(once) == pytest.approx(6)


def test_weights():
    np.testing.assert_allclose(bm.cycle_weights(3, 0.1), [0, 1 / 1.1, 1.1**-2, 1.1**-3], rtol=1e-6)
    np.testing.assert_allclose(bm.cycle_weights(3, counting="start"), [1, 1, 1, 0])
    np.testing.assert_allclose(bm.cycle_weights(3, counting="half-cycle"), [0.5, 1, 1, 0.5])
    np.testing.assert_allclose(bm.cycle_weights(4, counting="simpson"), [1 / 3, 4 / 3, 2 / 3, 4 / 3, 1 / 3], rtol=1e-6)
    # Simpson's rule is exact for cubics.
    with jax.enable_x64(True):
        t = np.arange(7)
        assert float(bm.cycle_weights(6, counting="simpson") @ t**3) == pytest.approx(6**4 / 4)


def test_weights_have_all_digits_outside_a_program():
    """A constant of a module is made before float64 is switched on."""
    assert bm.cycle_weights(20, 0.06)[20] == pytest.approx(1.06**-20, rel=1e-14)
    assert float(jax.jit(lambda rate: bm.cycle_weights(20, rate))(0.06)[20]) == pytest.approx(1.06**-20, rel=1e-5)


def test_gradients_and_batches():
    def cost(rate):
        matrix = jnp.array([[1 - rate, rate], [0.0, 1.0]])
        return bm.cohort_total(bm.cohort_trace(matrix, jnp.array([1.0, 0.0]), 5), np.array([1.0, 0.0]), np.ones(6))

    rates = jnp.array([0.1, 0.3])
    wanted = [sum((1 - r) ** t for t in range(6)) for r in (0.1, 0.3)]
    np.testing.assert_allclose(jax.vmap(cost)(rates), wanted, rtol=1e-5)
    slope = sum(-t * 0.9 ** (t - 1) for t in range(1, 6))
    assert float(jax.grad(cost)(0.1)) == pytest.approx(slope, rel=1e-5)


def test_dataset():
    table = bm.decisions.trace_dataset({"a": loop(MATRICES), "b": loop(MATRICES[::-1])}, ("x", "y", "z"))
    assert dict(table.sizes) == {"strategy": 2, "cycle": 7, "state": 3}
    assert float(table["occupancy"].sel(strategy="a", cycle=0, state="y")) == 0.3


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: bm.cohort_trace(MATRICES[0], START), TypeError, "n_cycles is None"),
        (lambda: bm.cohort_trace(MATRICES, START, 7), ValueError, "n_cycles is 7, expected at most the 6"),
        (lambda: bm.cohort_trace(MATRICES[:, :2], START), ValueError, "transition has shape"),
        (lambda: bm.cohort_trace(MATRICES, START[:2]), ValueError, "initial has shape"),
        (lambda: bm.cohort_trace(START, START, 3), ValueError, r"expected \(S, S\)"),
        (lambda: bm.cycle_weights(3, counting="simpson"), ValueError, "expected an even number"),
        (lambda: bm.cycle_weights(3, -1.0), ValueError, "rate is -1.0, expected a number above -1"),
        (lambda: bm.cycle_weights(0), ValueError, "n_cycles is 0"),
        (lambda: bm.cohort_total(loop(MATRICES), np.ones(3), np.ones(6)), ValueError, "weights has shape"),
        (lambda: bm.cohort_total(loop(MATRICES), np.ones(2), np.ones(7)), ValueError, "per_state has shape"),
        (
            lambda: bm.cohort_total(loop(MATRICES), np.ones(3), np.ones(7), per_transition=np.ones((3, 3))),
            ValueError,
            "transition is None",
        ),
        (lambda: bm.decisions.trace_dataset({}, ("x",)), ValueError, "traces is empty"),
    ],
)
def test_wrong_input(call, error, says):
    with pytest.raises(error, match=says):
        call()
