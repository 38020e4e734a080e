"""Does `criticise` sound where the prior misleads, and stay silent where it is right? ICU-Sepsis, logs by the expert.

`python -m benchmarks.icu_criticism [logs a cell] [sizes, comma separated] [file] [priors, comma separated]`. Needs the
extra `health`. Rewards are known. Priors: "1/S", rows of total concentration one; "flat", one for each outcome;
"learnt", one number for each outcome, of the highest evidence of the log; "right", rows ~ Dirichlet(20 times the
benchmark's row), from which the MDP of its log is really drawn. One line a log goes to the file (CSV), which is
resumed: p-values of the checks, whether any fails at the false-alarm rate of .05, CPU seconds, peak memory of the
process so far. Printed with central 95 % binomial intervals (Clopper-Pearson).
"""

import csv
import resource
import sys
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from scipy.stats import beta

import bayes_mdp as bm
from bayes_mdp.calibration.criticism.criticise import CHECKS
from bayes_mdp.envs.sepsis import ICUSepsis

REPLICATES, WEIGHT = 159, 20.0
PRIORS = ("1/S", "flat", "learnt", "right")
COLUMNS = ["prior", "episodes", "log", "concentration", *CHECKS, "sounds", "first", "cpu", "peak_gb"]
OBJECTIVE = bm.FirstExit()


def rows_of(env: ICUSepsis) -> np.ndarray:
    """The true rows, the end last: [S A S + 1]."""
    ends = np.asarray(env.mdp.end_probs)[..., None]
    return np.concatenate([np.asarray(env.mdp.row_probs), ends], -1).astype(np.float64)


def drawn(env: ICUSepsis, rng: np.random.Generator) -> ICUSepsis:
    """The environment with rows ~ Dirichlet(WEIGHT times the true ones)."""
    weights = rng.standard_gamma(WEIGHT * rows_of(env))
    rows = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    probs, ends = jnp.asarray(rows[..., :-1], jnp.float32), jnp.asarray(rows[..., -1], jnp.float32)
    return eqx.tree_at(lambda e: (e.mdp.transition_probs, e.mdp.end_probs), env, (probs, ends))


def best_concentration(log: bm.mdp.Log, space: bm.StateActionSpace) -> float:
    """Of each outcome, the same for all: where the evidence of the log's rows is highest."""
    data = log.transitions
    inside = np.asarray(data.state) < space.n_states - 2  # the last two states end at once: known
    pair = (np.asarray(data.state) * space.n_actions + np.asarray(data.action))[inside]
    cells = np.unique(pair * (space.n_states + 1) + np.asarray(data.next_state)[inside], return_counts=True)[1]
    totals, outcomes = np.unique(pair, return_counts=True)[1], space.n_states

    def minus(log_c: float) -> float:
        c = np.exp(log_c)
        rows = gammaln(outcomes * c) - gammaln(outcomes * c + totals)
        return -float(rows.sum() + (gammaln(c + cells) - gammaln(c)).sum())

    best: Any = minimize_scalar(minus, bounds=(-9, 2), method="bounded")
    return float(np.exp(best.x))


def one_log(env: ICUSepsis, prior: str, episodes: int, number: int) -> list[object]:
    """A line of the file."""
    key = jax.random.fold_in(jax.random.key(episodes), number)
    world = drawn(env, np.random.default_rng([episodes, number])) if prior == "right" else env
    log, space = world.log(key, episodes, env.expert), env.space
    began = time.process_time()
    if prior == "right":
        concentration = WEIGHT * rows_of(env)
    else:
        concentration = {"1/S": 1 / space.n_outcomes, "flat": 1.0}.get(prior) or best_concentration(log, space)
    belief = bm.models.known_rewards(np.asarray(env.mdp.reward), concentration)
    posterior = bm.infer(key, belief, log, space=space)
    found = bm.criticise(
        jax.random.fold_in(key, 1),
        posterior,
        log,
        OBJECTIVE,
        options=bm.calibration.CriticiseOptions(num_replicates=REPLICATES),
    )
    values = [found.findings[name].p_value if name in found.findings else np.nan for name in CHECKS]
    first = found.alarms[0] if found.alarms else ""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    size = WEIGHT if prior == "right" else float(np.asarray(concentration))
    return [prior, episodes, number, size, *values, bool(found.alarms), first, time.process_time() - began, peak]


def table(results: pd.DataFrame) -> pd.DataFrame:
    """How often each check fails by itself (p <= .05 / 4), and any of them, with its interval."""
    lines = []
    for cell, some in results.groupby(["prior", "episodes"], sort=False):
        prior, episodes = tuple(cell)  # type: ignore[arg-type] - two columns
        each = [float(np.mean(some[name].to_numpy() <= 0.05 / len(CHECKS))) for name in CHECKS]
        number, count = len(some), int(np.sum(some["sounds"].to_numpy()))
        low = beta.ppf(0.025, count, number - count + 1) if count else 0.0
        high = beta.ppf(0.975, count + 1, number - count) if count < number else 1.0
        lines.append((prior, episodes, number, *each, count / number, low, high, some["cpu"].median()))
        lines[-1] += (some["peak_gb"].max(),)
    names = ["prior", "episodes", "logs", *CHECKS, "any", "low", "high", "cpu", "peak GB"]
    return pd.DataFrame(lines, columns=names).sort_values(["prior", "episodes"])


def main(logs: int, sizes: list[int], path: Path, priors: list[str]) -> None:
    """Run what the file does not have, and print the table."""
    env = bm.envs.icu_sepsis()
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    done = set(map(tuple, pd.read_csv(path)[["prior", "episodes", "log"]].to_numpy()))
    for number in range(logs):
        for size in sizes:
            for prior in priors:
                if (prior, size, number) not in done:
                    row = one_log(env, prior, size, number)
                    with path.open("a", newline="") as file:
                        csv.writer(file).writerow(row)
    print(table(pd.read_csv(path)).to_string(index=False, float_format="{:.3g}".format))


if __name__ == "__main__":
    given = sys.argv[1:] + ["20", "500,2000,10000,50000", "icu_criticism.csv", ",".join(PRIORS)][len(sys.argv) - 1 :]
    main(int(given[0]), [int(x) for x in given[1].split(",")], Path(given[2]), given[3].split(","))
