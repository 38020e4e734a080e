"""A million rows, 20 covariates, three outcomes: CPU seconds and memory from a table to weighted draws.

`python -m benchmarks.covariates_size [rows] [draws]`. Every row is a patient of its own, so that there are as many
contexts as rows: the worst case. States well, ill and the end (death), two actions; a softmax on (1, ill, action, 20
covariates): 46 coefficients, whose truths are known. `infer(method="laplace")` finds the mode, draws about it, and
weighs (the check: Pareto k, and how many independent draws they are worth). Then 10,000 draws are standardised over
eight contexts. Each line: CPU seconds of the process, and its peak memory so far.
"""

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pandas as pd

import bayes_mdp as bm
from bayes_mdp.inference import Laplace

COVARIATES = 20
NAMES = [f"x{i}" for i in range(COVARIATES)]
TERMS = " + ".join(["state", "action", *NAMES])


def table(rows: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A log, and the coefficients [23, 2] (outcomes ill, dead; reference well) that it was drawn from."""
    rng = np.random.default_rng(seed)
    b = rng.normal(0.0, 0.3, (COVARIATES + 3, 2))
    b[0] = -1.0, -2.5
    x, ill, drug = rng.normal(size=(rows, COVARIATES)), rng.integers(2, size=rows), rng.integers(2, size=rows)
    eta = b[0] + ill[:, None] * b[1] + drug[:, None] * b[2] + x @ b[3:]
    # The largest of three predictors plus a Gumbel variable is a draw of the softmax.
    outcome = (np.column_stack([np.zeros(rows), eta]) + rng.gumbel(size=(rows, 3))).argmax(1)
    frame = pd.DataFrame(x, columns=NAMES)  # pyright: ignore[reportArgumentType]
    labels = np.array(["well", "ill", "well"])
    return frame.assign(s=labels[ill], a=drug, t=labels[outcome], dead=outcome == 2), b


def prior(space: Any) -> bm.models.MDPSpec:
    """A softmax that shares its coefficients over states."""
    reward = np.array([[[1.0, 0.5, 0.0]]])
    options = bm.models.RegressionOptions(standardise=False)
    return bm.models.MDPSpec(bm.models.logit_rows(space, TERMS, reference="well", options=options), reward)


def timed(name: str, function: Callable[[], Any]) -> Any:
    """The answer, and a line with CPU seconds and peak memory."""
    cpu, wall = time.process_time(), time.perf_counter()
    answer = function()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"  {name:<40} {cpu:7.2f} CPU-s {wall:7.2f} s   peak {peak:5.2f} GB", flush=True)
    return answer


def main(rows: int, draws: int) -> None:
    """From a table to weighted draws, then standardised values.

    Args:
        rows: of the log.
        draws: of equal weight.
    """
    frame, truth = table(rows)
    timed("the table alone", lambda: None)
    roles: dict[str, Any] = {"state": "s", "action": "a", "next_state": "t", "terminated": "dead"}
    log = timed(
        "read_log", lambda: bm.read_log(frame, **roles, states=["well", "ill"], actions=[0, 1], covariates=NAMES)
    )
    space: Any = timed("StateActionSpace.from_log", lambda: bm.StateActionSpace.from_log(log, ends=True))
    method = Laplace(num_samples=draws)
    posterior = timed(
        f"infer, {draws} draws", lambda: bm.infer(jax.random.key(0), prior, log, space=space, method=method)
    )
    made = posterior.laplace
    print(f"  Pareto k {made.pareto_k:.3f}, {made.proposals} proposals worth {made.effective:.0f}")
    estimated = posterior.coefficient_draws()
    off = np.abs(estimated.mean(0) - truth) / estimated.std(0)
    print(
        f"  {truth.size} coefficients: {(off < 1.645).mean():.2f} within 1.645 sd, the furthest {off.max():.2f} sd off"
    )
    people = posterior.at(frame[NAMES].iloc[:8])
    many = {name: np.resize(x, (10_000, *x.shape[1:])) for name, x in posterior.sites.items()}
    wide = type(people)(people.space, prior, "laplace", sites=many, laws=people.laws)
    options = {"initial": [0.7, 0.3], "num_draws": 10_000, "population": np.ones(8)}
    objective = bm.Discounted(0.95)
    for turn in ("first", "again"):
        name = f"10,000 draws x 8 contexts, {turn}"
        timed(name, lambda: bm.policy_value(jax.random.key(1), wide, [1, 1], objective, **options))


if __name__ == "__main__":
    given = [int(x) for x in sys.argv[1:]] + [1_000_000, 1000][len(sys.argv) - 1 :]
    main(given[0], given[1])
