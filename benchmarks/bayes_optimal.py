"""Speed of the Bayes-optimal value beside a plain recursion, in one run: `python -m benchmarks.bayes_optimal`.

Wall time, median over repeats after a warm-up; the prior is inferred beforehand (its proof is kept by `infer`). The
plain recursion memoises over tuples of counts in Python, at a smaller horizon: compare the time of one hyper-state.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import bayes_mdp as bm
from bayes_mdp.models import MDPSpec
from benchmarks.record.turns import Measured, Size, in_turns

PAY = ((0.0, 0.1), (0.2, 1.0))


def two_state(space: bm.StateActionSpace) -> MDPSpec:
    """Two states, two actions, four unknown rows, known rewards."""
    with space.plates():
        rows = numpyro.sample("transition", dist.Dirichlet(jnp.ones(2)))
    return MDPSpec(jnp.asarray(rows), reward=jnp.array(PAY))


def bandit(space: bm.StateActionSpace) -> MDPSpec:
    """Two Bernoulli arms."""
    with space.plates():
        probs: Any = numpyro.sample("arm", dist.Beta(1.0, 1.0))
    return MDPSpec(jnp.ones((1, 2, 1)), reward=dist.Bernoulli(probs))


def plain_two_state(horizon: int) -> tuple[float, int]:
    """Value from state 0 and the number of hyper-states."""

    @cache
    def value(step: int, state: int, n: tuple[int, ...]) -> float:
        best = -1.0
        for action in (0, 1):
            i, q = 4 * state + 2 * action, PAY[state][action]
            if step < horizon - 1:
                total = n[i] + n[i + 1] + 2
                for o in (0, 1):
                    after = (*n[: i + o], n[i + o] + 1, *n[i + o + 1 :])
                    q += (n[i + o] + 1) / total * value(step + 1, o, after)
            best = max(best, q)
        return best

    return value(0, 0, (0,) * 8), value.cache_info().currsize


def plain_bandit(horizon: int) -> tuple[float, int]:
    """Value and the number of hyper-states."""

    @cache
    def value(step: int, n: tuple[int, ...]) -> float:
        best = -1.0
        for i in (0, 2):
            q = (n[i + 1] + 1) / (n[i] + n[i + 1] + 2)
            if step < horizon - 1:
                failed = value(step + 1, (*n[:i], n[i] + 1, *n[i + 1 :]))
                paid = value(step + 1, (*n[: i + 1], n[i + 1] + 1, *n[i + 2 :]))
                q = q * (1 + paid) + (1 - q) * failed
            best = max(best, q)
        return best

    return value(0, (0,) * 4), value.cache_info().currsize


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Median wall seconds of a call, the first one left out."""
    call()
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def compare(
    task: str, prior: Any, space: bm.StateActionSpace, horizons: tuple[int, int], plain: Callable[[int], Any]
) -> None:
    """Two lines of the table; `horizons` of the library and of the plain recursion, which must agree at the latter."""
    long, short = horizons
    belief, start = bm.infer(jax.random.key(0), prior, space=space), np.eye(space.n_states)[0]

    def ours(horizon: int) -> Any:
        return bm.decisions.bayes_optimal(belief, objective=bm.Episodic(horizon), initial=start)

    answer, (value, states) = ours(long), plain(short)
    assert abs(ours(short).value - value) < 1e-12 * value and ours(short).num_hyperstates == states
    for who, horizon, num, taken in (
        ("bayes_mdp", long, answer.num_hyperstates, seconds(lambda: ours(long), 7)),
        ("plain Python recursion", short, states, seconds(lambda: plain(short), 3)),
    ):
        print(
            f"{task:28s} {who:24s} H = {horizon:<4d} {num:>8d} hyper-states {taken:8.4f} s {1e9 * taken / num:8.1f} ns"
        )
    print(f"{'':28s} value at H = {long}: {answer.value:.9g}")


CASES: tuple[tuple[str, Any, bm.StateActionSpace, tuple[int, int], Callable[[int], tuple[float, int]]], ...] = (
    ("two states, four rows", two_state, bm.StateActionSpace(2, 2), (25, 12), plain_two_state),
    ("two-armed bandit", bandit, bm.StateActionSpace(1, 2), (100, 30), plain_bandit),
)


def measure(size: Size) -> Iterator[Measured]:
    """Lines of the record: a hyper-state."""
    for task, prior, space, (long, short), plain in CASES:
        belief, start = bm.infer(jax.random.key(0), prior, space=space), np.eye(space.n_states)[0]
        ours = lambda b=belief, s=start, h=long: bm.decisions.bayes_optimal(b, objective=bm.Episodic(h), initial=s)  # noqa: E731
        units = ours().num_hyperstates, plain(short)[1]
        peer = f"plain Python recursion (horizon {short})"
        name = f"{task}, horizon {long}"
        yield in_turns(name, "hyper-state", lambda ours=ours: ours().value, peer,
                       lambda plain=plain, short=short: plain(short), size, units=units)  # fmt: skip


if __name__ == "__main__":
    for one in CASES:
        compare(*one)
