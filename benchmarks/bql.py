"""Speed and accuracy of Bayesian Q-learning's updates beside Monte Carlo in numpy: `python -m benchmarks.bql`.

10,000 updates at once. CPU time of the process (all threads), median over repeats after a warm-up, compilation apart.
Errors are the largest of loc (in posterior standard deviations), pseudo-count, concentration and rate (relative),
against 1024 nodes in float64: their 99 % quantile and their maximum. float32: of inputs that float32 holds exactly.

* learning: own predictive scale 1, that of the target .1 to 10, returns around the own loc with standard deviation 3,
  concentrations 1.001 to 300, pseudo-counts .5 to 1000;
* extreme: targets up to 1000 scales away and a million times as wide or as narrow, concentrations .55 to 100,000.

The peer draws 1000 returns for every update, and solves for the concentration by Newton steps on SciPy's digamma.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import digamma, polygamma

from bayes_mdp.inference.value.returns import (
    ACCURATE,
    FAST,
    Quadrature,
    ReturnBelief,
    inverse_log_minus_digamma,
    mixture_update,
    moment_update,
)
from bayes_mdp.inference.value.student_t import StudentT
from benchmarks.planning import compiled, cpu, show
from benchmarks.record.turns import Measured, Size, in_turns

SIZE, DRAWS, REFERENCE = 10_000, 1000, Quadrature(1024, 60.0)


def cases(kind: str) -> tuple[ReturnBelief, StudentT]:
    """Beliefs and targets."""
    rng = np.random.default_rng(0)

    def log_uniform(low: float, high: float) -> np.ndarray:
        return np.exp(rng.uniform(np.log(low), np.log(high), SIZE))

    far = kind == "extreme"
    concentration, other = (log_uniform(0.55, 1e5) if far else log_uniform(1.001, 300.0) for _ in range(2))
    pseudo = log_uniform(1e-2, 1e5) if far else log_uniform(0.5, 1e3)
    scale = log_uniform(1e-6, 1e6) if far else log_uniform(0.1, 10.0)
    distance = rng.choice([-1.0, 1.0], SIZE) * log_uniform(1e-3, 1e3) if far else rng.normal(0.0, 3.0, SIZE)
    own = ReturnBelief(rng.normal(size=SIZE), pseudo, concentration, concentration * pseudo / (pseudo + 1.0))  # pyright: ignore
    return own, StudentT(own.loc + distance, scale, 2.0 * other)  # pyright: ignore


def monte_carlo(own: ReturnBelief, law: StudentT, rng: np.random.Generator) -> list[np.ndarray]:
    """The update from draws of the return, in blocks that stay in the cache; given a draw, moments are closed form."""
    blocks = []
    for start in range(0, SIZE, 100):
        m, lam, al, be = (np.asarray(x)[start : start + 100, None] for x in jax.tree.leaves(own))
        loc, scale, dof = (np.asarray(x)[start : start + 100, None] for x in jax.tree.leaves(law))
        x = loc + scale * rng.standard_t(np.broadcast_to(dof, (len(dof), DRAWS)))
        tau = (al + 0.5) / (be + lam / (2.0 * (lam + 1.0)) * (x - m) ** 2)
        centre = (lam * m + x) / (lam + 1.0)
        mean_tau = tau.mean(-1)
        mu = (tau * centre).mean(-1) / mean_tau
        deviation = 1.0 / (lam[:, 0] + 1.0) + (tau * (centre - mu[:, None]) ** 2).mean(-1)
        gap = np.log(mean_tau) - (digamma(al[:, 0] + 0.5) + np.log(tau / (al + 0.5)).mean(-1))
        shape = np.maximum(1.001, inverse(gap))
        blocks.append((mu, 1.0 / deviation, shape, shape / mean_tau))
    return [np.concatenate(part) for part in zip(*blocks, strict=True)]


def inverse(y: np.ndarray) -> np.ndarray:
    """log x - digamma(x) = y by four Newton steps in 1 / x."""
    x = (3.0 - y + np.sqrt((y - 3.0) ** 2 + 24.0 * y)) / (12.0 * y)
    for _ in range(4):
        x = x / (1.0 + (np.log(x) - digamma(x) - y) / (1.0 - x * polygamma(1, x)))
    return x


def errors(found: Any, exact: Any) -> str:
    """99 % quantile and maximum of the largest of the four errors."""
    a, b = ([np.asarray(x, float) for x in jax.tree.leaves(tree)] for tree in (found, exact))
    sd = np.sqrt(b[3] / (b[1] * b[2]))
    worst = np.max(
        [np.abs(a[0] - b[0]) / sd, *(np.abs(x / y - 1.0) for x, y in zip(a[1:], b[1:], strict=True))], axis=0
    )
    return f"error {np.quantile(worst, 0.99):.0e}, at most {np.max(worst):.0e}"


def report(kind: str, dtype: Any) -> None:
    """One set of cases in one width."""
    own, law = jax.tree.map(lambda x: x.astype(dtype), cases(kind))
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), (own, law))
        exact = jax.device_get(jax.jit(mixture_update, static_argnums=2)(*wide, REFERENCE))
    with jax.enable_x64(dtype == np.float64):
        arguments = jax.tree.map(lambda x: jnp.asarray(x.copy()), (own, law))
        task = f"{kind}, {np.dtype(dtype).name}"
        for name, quadrature in (("mixture, 44 nodes", FAST), ("mixture, 256 nodes", ACCURATE)):
            call, compile_s = compiled(lambda o, t, q=quadrature: mixture_update(o, t, q), *arguments)
            show(task, name, cpu(call, 9), "us an update", 1e6 / SIZE, compile_s)
            print(f"{'':72s}{errors(call(), exact)}")
        call, compile_s = compiled(moment_update, *arguments)
        show(task, "moment (another update)", cpu(call, 9), "us an update", 1e6 / SIZE, compile_s)
    rng = np.random.default_rng(1)
    show(task, "numpy, 1000 draws", cpu(lambda: monte_carlo(own, law, rng), 3), "us an update", 1e6 / SIZE)
    print(f"{'':72s}{errors(monte_carlo(own, law, rng), exact)}")


def report_inverse(dtype: Any) -> None:
    """The inverse of log x - digamma(x)."""
    y = np.random.default_rng(0).uniform(0.01, 5.0, 100_000).astype(dtype)
    with jax.enable_x64(dtype == np.float64):
        call, compile_s = compiled(inverse_log_minus_digamma, jnp.asarray(y))
        show(f"inverse, {np.dtype(dtype).name}", "bayes_mdp", cpu(call, 21), "ns an element", 1e9 / len(y), compile_s)
    show(f"inverse, {np.dtype(dtype).name}", "scipy", cpu(lambda: inverse(y), 5), "ns an element", 1e9 / len(y))


def lines(dtype: Any, size: Size) -> list[Measured]:
    """Lines of the record, in one width."""
    width = np.dtype(dtype).name
    own, law = jax.tree.map(lambda x: x.astype(dtype), cases("learning"))
    y, rng = np.random.default_rng(0).uniform(0.01, 5.0, 100_000).astype(dtype), np.random.default_rng(1)
    with jax.enable_x64(dtype == np.float64):
        arguments = jax.tree.map(lambda x: jnp.asarray(x.copy()), (own, law))
        update, _ = compiled(lambda o, t: mixture_update(o, t, FAST), *arguments)
        inverted, _ = compiled(inverse_log_minus_digamma, jnp.asarray(y))
        return [
            in_turns(f"mixture update, 44 nodes, {width}", "update", update, f"numpy, {DRAWS} draws (less exact)",
                     lambda: monte_carlo(own, law, rng), size, units=SIZE),
            in_turns(f"inverse of log x - digamma(x), {width}", "element", inverted, "Newton on scipy",
                     lambda: inverse(y), size, units=len(y)),
        ]  # fmt: skip


def measure(size: Size) -> Iterator[Measured]:
    """Lines of the record."""
    for dtype in (np.float64, np.float32):
        yield from lines(dtype, size)


if __name__ == "__main__":
    for dtype in (np.float64, np.float32):
        report("learning", dtype)
    report("extreme", np.float64)
    for dtype in (np.float64, np.float32):
        report_inverse(dtype)
