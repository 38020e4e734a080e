"""How often 90 % intervals of regressions of rows hold the truth, and where the truth ranks among the draws.

`python -m benchmarks.rows_coverage [logs] [route,...] [rows,...] [folder]`. A run goes on from the logs that the folder
has, also after it was killed; with 0 logs it makes the table alone.

A clinic of two states and death, two actions, eight types of patients (age 0 to 3, frail or not). Coefficients of (1,
ill, age, frail, action) for two outcomes are drawn from their prior, Normal(0, 2.5); a log of so many rows in random
cells is drawn from them; `infer` has the same prior. So the truth of every quantity is one more draw of the posterior:
intervals of probability .9 hold it in 90 % of logs, and its rank among the draws is uniform (simulation-based
calibration [TBSCG18]). Quantities: the ten coefficients, and the values of the drug always, the drug if ill, and the
drug for the old and frail.

Routes: chains (`nuts`), draws about the mode (`laplace`, which may refuse a log: its weights then have a heavy tail),
both of `logit_rows`; Polya-Gamma variables (`gibbs`) of `stick_rows`, whose truths come from its own law.
"""

import itertools
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import expit
from scipy.stats import binom, chi2

import bayes_mdp as bm
from bayes_mdp.inference import NUTS, Gibbs, Laplace
from bayes_mdp.mdp.contexts import ContextSpace

SD, BINS = 2.5, 10
TYPES = list(itertools.product(range(4), range(2)))
CELLS = list(itertools.product(range(8), range(2), range(2)))
COLUMNS = np.array([[1.0, ill, *TYPES[c], drug] for c, ill, drug in CELLS])
"""[cell, column]: constant, ill, age, frail, drug."""
REWARD = np.array([[[1.0, 0.5, 0.0], [0.95, 0.45, -0.05]]])
"""[1, action, outcome]: well, ill, dead; the drug costs .05."""
AS_READ = bm.models.RegressionOptions(standardise=False)
START = [0.7, 0.3]
POLICIES = {"drug": [1, 1], "drug if ill": [0, 1]}
ROUTES = {
    "nuts": NUTS(num_warmup=400, num_samples=500, num_chains=2),
    "laplace": Laplace(num_samples=1000),
    "gibbs": Gibbs(num_warmup=200, num_samples=1000, num_chains=1),
}
SIZES = (40, 150, 600)
QUANTITIES = [
    *(f"{column}, {outcome}" for column in ("constant", "ill", "age", "frail", "drug") for outcome in ("1", "2")),
    *(f"value of {name}" for name in (*POLICIES, "the drug, old and frail")),
]


def prior_of_chains(space: ContextSpace) -> bm.models.MDPSpec:
    """A softmax whose reference is to be well."""
    terms = "state + age + frail + action"
    return bm.models.MDPSpec(bm.models.logit_rows(space, terms, reference="well", options=AS_READ), REWARD)


def prior_of_sticks(space: ContextSpace) -> bm.models.MDPSpec:
    """First whether one is well, then whether one is ill, else one is dead."""
    return bm.models.MDPSpec(bm.models.stick_rows(space, "state + age + frail + action", options=AS_READ), REWARD)


PRIORS: dict[str, Any] = {"nuts": prior_of_chains, "laplace": prior_of_chains, "gibbs": prior_of_sticks}


def rows_of(route: str, coefficients: Float[np.ndarray, "... 5 2"]) -> Float[np.ndarray, "... cell outcome"]:
    """Rows of the law of a route in all cells."""
    eta = COLUMNS @ coefficients
    if route == "gibbs":
        first, second = expit(eta[..., 0]), expit(eta[..., 1])
        return np.stack([first, (1 - first) * second, (1 - first) * (1 - second)], -1)
    full = np.concatenate([np.zeros((*eta.shape[:-1], 1)), eta], -1)
    odds = np.exp(full - full.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


def log_of(cells: list[int], outcomes: list[int]) -> bm.mdp.Log:
    """A log as a user reads it."""
    places = [CELLS[i] for i in cells]
    frame = pd.DataFrame(
        {
            "s": [("well", "ill")[s] for _, s, _ in places],
            "a": [a for _, _, a in places],
            "t": [("well", "ill", "well")[k] for k in outcomes],
            "dead": [k == 2 for k in outcomes],
            "age": [TYPES[c][0] for c, _, _ in places],
            "frail": [TYPES[c][1] for c, _, _ in places],
        }
    )
    roles = {"state": "s", "action": "a", "next_state": "t", "terminated": "dead"}
    names = {"states": ["well", "ill"], "actions": [0, 1]}
    return bm.read_log(frame, **roles, **names, covariates=["age", "frail"])  # pyright: ignore[reportReturnType]


def whole_space() -> ContextSpace:
    """Of a log with every cell: all types in order, so that one compiled program serves all logs."""
    space = bm.StateActionSpace.from_log(log_of(list(range(32)), [0] * 32), ends=True)
    assert isinstance(space, ContextSpace)
    return space


def values_of(rows: Float[np.ndarray, "N 8 2 2 3"]) -> Float[np.ndarray, "N 3"]:
    """The values of the three policies, every type of patient as frequent, by the equations of two states."""
    paid = (rows * REWARD).sum(-1)
    start, types = np.array(START), []
    for policy in POLICIES.values():
        chain = np.stack([rows[:, :, s, policy[s], :2] for s in range(2)], 2)
        reward = np.stack([paid[:, :, s, policy[s]] for s in range(2)], 2)
        types.append(np.linalg.solve(np.eye(2) - 0.95 * chain, reward[..., None])[..., 0] @ start)
    return np.stack([types[0].mean(1), types[1].mean(1), types[0][:, 7]], 1)


def simulated(route: str, size: int, seed: int) -> tuple[Float[np.ndarray, " 13"], bm.mdp.Log]:
    """True quantities, and a log."""
    rng = np.random.default_rng([50, size, list(ROUTES).index(route), seed])
    b = rng.normal(0.0, SD, (5, 2))
    rows = rows_of(route, b)
    cells = rng.integers(32, size=size)
    outcomes = [int(rng.choice(3, p=rows[i])) for i in cells]
    return np.append(b.ravel(), values_of(rows.reshape(1, 8, 2, 2, 3))[0]), log_of(list(cells), outcomes)


def row(route: str, size: int, seed: int, space: ContextSpace) -> dict[str, Any]:
    """Where the truth of every quantity ranks among the draws of one log, in [0, 1]."""
    truth, log = simulated(route, size, seed)
    began = time.process_time()
    told: dict[str, Any] = {"seed": seed}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            key = jax.random.key(seed)
            posterior = bm.infer(key, PRIORS[route], log, space=space, method=ROUTES[route])
        except ValueError as error:
            return told | {"refused": str(error), "cpu": time.process_time() - began}
    draws = posterior.coefficient_draws()
    values = values_of(posterior.tables.rows)
    drawn = np.concatenate([draws.reshape(len(draws), -1), values], 1)
    # The rank of the truth among the draws; ties cannot happen, but for rounding at the ends of a value.
    below = ((drawn < truth).mean(0) + (drawn <= truth).mean(0)) / 2
    told |= {"u": [round(float(u), 4) for u in below], "problems": list(posterior.problems())}
    if posterior.laplace is not None:
        told |= {"pareto_k": posterior.laplace.pareto_k, "effective": posterior.laplace.effective}
    return told | {"cpu": time.process_time() - began, "warned": len(warned)}


def main(logs: int, routes: list[str], sizes: list[int], folder: Path) -> None:
    """Logs of every route and size, log by log, so that all cells grow together; then the table.

    Args:
        logs: of a cell.
        routes: "nuts", "laplace", "gibbs".
        sizes: rows of a log.
        folder: a file for each cell, a line for each log, and `rows_coverage.json`, a record for each cell.
    """
    folder.mkdir(parents=True, exist_ok=True)
    space, cells = whole_space(), list(itertools.product(routes, sizes))
    done = {cell: _number_of_logs(_file(folder, *cell)) for cell in cells}
    for seed in range(logs):
        for route, size in cells:
            if seed < done[route, size]:
                continue
            said = json.dumps(row(route, size, seed, space), default=float)
            with _file(folder, route, size).open("a") as file:
                file.write(f"{said}\n")
    table = [summary(route, size, folder) for route, size in itertools.product(ROUTES, SIZES)]
    table = [each for each in table if each is not None]
    (folder / "rows_coverage.json").write_text(json.dumps(table, indent=1) + "\n")
    print(pd.DataFrame(table).drop(columns="bins").to_string(index=False, float_format="{:.3f}".format))


def _file(folder: Path, route: str, size: int) -> Path:
    return folder / f"{route}_{size}.jsonl"


def _number_of_logs(kept: Path) -> int:
    """How many logs a file has; a line that a killed run did not end is taken away."""
    if not kept.exists():
        return 0
    lines = kept.read_text().splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        kept.write_text("".join(lines))
    return len(lines)


def summary(route: str, size: int, folder: Path) -> dict[str, Any] | None:
    """The record of a cell: coverage of coefficients and values with their intervals, ranks, refusals, seconds.

    `low` and `high`: the 95 % interval of the coverage of values of one policy by Clopper and Pearson's bounds would be
    of logs alone; quantities of one log depend on each other, so that standard errors are over logs.

    Args:
        route: of the cell.
        size: rows of a log.
        folder: with the file of the cell.
    """
    kept = _file(folder, route, size)
    if not _number_of_logs(kept):
        return None
    said = [json.loads(line) for line in kept.read_text().splitlines()]
    used = [each for each in said if "u" in each]
    u = np.array([each["u"] for each in used])
    held = (u > 0.05) & (u < 0.95)
    told: dict[str, Any] = {"route": route, "rows": size, "logs": len(said), "refused": len(said) - len(used)}
    for name, columns in (("coefficients", slice(0, 10)), ("values", slice(10, 13))):
        each = held[:, columns].mean(1)
        told |= {name: round(each.mean(), 3), f"{name}_error": round(each.std() / len(each) ** 0.5, 3)}
    lowest, highest = held.mean(0).min(), held.mean(0).max()
    # Ranks: a chi-square of ten bins for every quantity, and the least p-value times their number (Bonferroni).
    bins = np.array([np.bincount(np.minimum((x * BINS).astype(int), BINS - 1), minlength=BINS) for x in u.T])
    expected = len(used) / BINS
    p = chi2.sf(((bins - expected) ** 2 / expected).sum(1), BINS - 1)
    told |= {"least": round(lowest, 3), "most": round(highest, 3), "sbc_p": round(min(1.0, p.min() * len(p)), 4)}
    told |= {"problems": sum(bool(each["problems"]) for each in used)}
    if "pareto_k" in used[0]:
        told |= {"worst_k": round(max(each["pareto_k"] for each in used), 3)}
    told |= {"seconds": round(float(np.median([each["cpu"] for each in said])), 3), "bins": bins.tolist()}
    return told


def chance_of_coverage(logs: int, coverage: float = 0.9) -> tuple[float, float]:
    """Between which shares one quantity of a right method stays in 99 of 100 experiments.

    Args:
        logs: of a cell.
        coverage: of a right method.
    """
    low, high = binom.interval(0.99, logs, coverage)
    return low / logs, high / logs


if __name__ == "__main__":
    given = sys.argv[1:] + [""] * 4
    main(
        int(given[0] or 200),
        given[1].split(",") if given[1] else list(ROUTES),
        [int(x) for x in given[2].split(",")] if given[2] else list(SIZES),
        Path(given[3] or "rows_coverage"),
    )
