"""Speed of value uncertainty beside numpy: `OPENBLAS_NUM_THREADS=1 python -m benchmarks.value_uncertainty`.

(Threads of OpenBLAS that wait spin, which would count as the CPU time of numpy. At S = 1000 most of the time of either
side can be page faults: glibc gives buffers of more than 32 MB back after every call. MALLOC_MMAP_THRESHOLD_=4294967296
MALLOC_TRIM_THRESHOLD_=8589934592 keeps them: moment matching then took 10.5 ms in place of 38.)

Dense random Dirichlet posteriors, A = 4, discount .99. CPU time of the process, median over repeats after a warm-up,
compilation apart. Three tasks at every size and width:

* fixed point: u = local + discount^2 P u, given the mean rows and the policy;
* UBE, moment matching: from the posterior's counts to mean and variance of Q and V.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.agents.value_uncertainty import moment_matching, ube
from bayes_mdp.experiments.rollout.run_beliefs import on_device
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.families.normal import NormalGammaBelief
from bayes_mdp.mdp import Discounted, StateActionSpace
from bayes_mdp.planning.solve import propagate
from benchmarks.planning import compiled, cpu, show
from benchmarks.record.turns import Measured, Size, in_turns

SIZES, ACTIONS, DISCOUNT, Q_MAX = (50, 500, 1000), 4, 0.99, 100.0
OBJECTIVE = Discounted(DISCOUNT)


def problem(size: int) -> tuple[Any, np.ndarray]:
    """A posterior and a policy."""
    rng = np.random.default_rng(size)
    space, pairs = StateActionSpace(size, ACTIONS), size * ACTIONS
    rows = dirichlet_rows(rng.gamma(0.5, 2.0, (pairs, size)) + 1e-3, (size, ACTIONS, size))
    prior = NormalGammaBelief(*(jnp.asarray(x) for x in (rng.normal(size=pairs), 2.0, 4.0, 3.0)))
    cells = reward_cells(prior, (size, ACTIONS))
    return conjugate_posterior(rows, cells, space), rng.integers(0, ACTIONS, size).astype(np.int32)


class Plain:
    """The numpy peer: LU for the two linear systems, no temporaries of the size of the rows but their mean."""

    def __init__(self, posterior: Any, policy: np.ndarray, dtype: Any) -> None:
        size = len(policy)
        self.concentration = np.asarray(posterior.transition_probs.concentration).astype(dtype)
        self.reward = np.asarray(posterior.reward_cells.mean()).astype(dtype)
        self.variance = np.asarray(posterior.reward_cells.variance()).astype(dtype)
        self.policy, self.states, self.eye = policy, np.arange(size), np.eye(size, dtype=dtype)

    def evaluate(self, rows: np.ndarray, reward: np.ndarray, discount: float) -> tuple[np.ndarray, np.ndarray]:
        """q and v of the policy."""
        chain = rows[self.states, self.policy]
        v = np.linalg.solve(self.eye - discount * chain, reward[self.states, self.policy])
        return reward + discount * (rows @ v), v

    def ube(self) -> Any:
        """Mean and bound, form "ratio"."""
        total = self.concentration.sum(-1)
        rows = self.concentration / total[..., None]
        factor = ((self.concentration > 0).sum(-1) - 1) / (total + 1)
        mean = self.evaluate(rows, self.reward, DISCOUNT)
        local = self.variance + ((DISCOUNT * Q_MAX) ** 2 * factor).astype(rows.dtype)
        return mean, self.evaluate(rows, local, DISCOUNT**2)

    def moment_matching(self) -> Any:
        """Mean and variance."""
        total = self.concentration.sum(-1)
        rows = self.concentration / total[..., None]
        mean = self.evaluate(rows, self.reward, DISCOUNT)
        x = mean[1] - mean[1].mean()
        local = self.variance + DISCOUNT**2 * (rows @ (x * x) - (rows @ x) ** 2) / (total + 1)
        return mean, self.evaluate(rows, local, DISCOUNT**2)


def tasks(size: int, dtype: Any) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], Callable[[], Any]]]:
    """By name: a function and its arguments, and the peer's call."""
    posterior, policy = problem(size)
    plain, belief = Plain(posterior, policy, dtype), on_device(posterior)
    mean = jax.jit(lambda p: p.mean_mdp())(belief)
    local = jax.jit(lambda p: ube.local_uncertainty(p, OBJECTIVE, q_max=Q_MAX))(belief)
    rows, added = np.asarray(mean.transition_probs), np.asarray(local)
    solved = lambda p, a: ube.solve(p, a, OBJECTIVE, q_max=Q_MAX)  # noqa: E731
    matched = lambda p, a: moment_matching.value_variance(p, a, OBJECTIVE)  # noqa: E731
    fixed = lambda m, u, a: propagate(m, u, a, OBJECTIVE)  # noqa: E731
    return {
        "fixed point": (fixed, (mean, local, policy), lambda: plain.evaluate(rows, added, DISCOUNT**2)),
        "UBE": (solved, (belief, policy), plain.ube),
        "moment matching": (matched, (belief, policy), plain.moment_matching),
    }


def compare(size: int, dtype: Any) -> None:
    """One size in one width."""
    for name, (function, arguments, peer) in tasks(size, dtype).items():
        task = f"{name}, S = {size}, {np.dtype(dtype).name}"
        call, compile_s = compiled(function, *(jax.tree.map(jnp.asarray, x) for x in arguments))
        check(call(), peer())
        show(task, "bayes_mdp", cpu(call, 21), "ms", 1e3, compile_s)
        show(task, "numpy", cpu(peer, 9), "ms", 1e3)


def lines(states: int, dtype: Any, names: tuple[str, ...], size: Size) -> list[Measured]:
    """Lines of the record, of one size in one width."""
    found = []
    for name in names:
        function, arguments, peer = tasks(states, dtype)[name]
        call, _ = compiled(function, *(jax.tree.map(jnp.asarray, x) for x in arguments))
        check(call(), peer())
        task = f"{name}, S = {states}, {np.dtype(dtype).name}"
        found.append(in_turns(task, "solve", call, "numpy", peer, size))
    return found


def measure(size: Size) -> Iterator[Measured]:
    """Lines of the record; float64 in a full run alone."""
    for states in (500,) if size == "check" else SIZES:
        yield from lines(states, np.float32, ("UBE", "moment matching"), size)
    if size == "full":
        with jax.enable_x64(True):
            wide = [line for states in SIZES for line in lines(states, np.float64, ("UBE", "moment matching"), size)]
        yield from wide


def check(ours: Any, theirs: Any) -> None:
    """Both solve the same equation."""
    expected = theirs[0] if not isinstance(theirs[0], tuple) else theirs[1][0]
    found = ours.q if hasattr(ours, "q") else ours.q_variance
    tolerance = 2e-3 if expected.dtype == np.float32 else 1e-8
    np.testing.assert_allclose(np.asarray(found), expected, rtol=tolerance)


if __name__ == "__main__":
    for size in SIZES:
        compare(size, np.float32)
    with jax.enable_x64(True):
        for size in SIZES:
            compare(size, np.float64)
