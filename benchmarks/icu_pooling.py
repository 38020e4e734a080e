"""How often intervals of policies hold the truth on ICU-Sepsis logs under partial pooling, by the library's own draws.

`python -m benchmarks.icu_pooling [logs a size] [draws] [sizes, comma separated] [file] [first log]`. Needs the extra
`health`. Prior: `partial_pooling` with known rewards; logs by the expert. Each log: the behaviour (as counted), the
expert, the greedy policy (optimum of the posterior's mean) and the cautious one (it follows the behaviour where an
action was seen less than 20 times), all chosen and judged by the posterior of the whole log. "chosen" is the greedy
policy where it is better than the behaviour with probability .95 (of a normal distribution with the draws' mean and
sd), else the behaviour. Intervals are the central 90 % of normal distributions: of the posterior alone, and anchored
(`bm.decisions.anchored_values`). One line a policy goes to the file (CSV), which is resumed.
"""

import csv
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from scipy.stats import norm

import bayes_mdp as bm
from bayes_mdp.decisions.behaviour import AnchoredValue
from bayes_mdp.decisions.choosing.common_draws import draws_of
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, best_in, policy_set
from bayes_mdp.envs.sepsis import ICUSepsis
from bayes_mdp.inference import Gibbs, fit_for
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.pooled_posterior import PooledPosterior
from bayes_mdp.mdp.data.log_split import returns_of
from bayes_mdp.numerics.array_forms import to_float64

Z, BELOW, CONFIDENCE = 1.645, 20, 0.95
COLUMNS = ["episodes", "log", "policy", "mean", "sd", "anchored", "anchored_sd", "no_worse", "truth", "returns", "cpu"]
OBJECTIVE = bm.FirstExit()


def true_value(env: ICUSepsis, policy: np.ndarray) -> float:
    """start' (I - P)^-1 r of the policy's chain."""
    rows = np.einsum("sa,sak->sk", policy, np.asarray(env.mdp.transition_probs, np.float64))
    reward = (policy * np.asarray(env.mdp.reward, np.float64)).sum(-1)
    return float(np.asarray(env.mdp.initial) @ np.linalg.solve(np.eye(len(rows)) - rows, reward))


def one_log(env: ICUSepsis, fit: Fit[PooledPosterior], episodes: int, number: int, draws: int) -> list[list[object]]:
    """A row for each policy."""
    began = time.process_time()
    keys = jax.random.split(jax.random.fold_in(jax.random.key(episodes), number), 3)
    space, start = env.space, np.asarray(env.mdp.initial)
    log = env.log(keys[0], episodes, env.expert)
    with jax.enable_x64(True):
        posterior = fit.on_host(keys[1], log.transitions)
        mean = to_float64(posterior.mean_mdp())
    behaviour, legal = bm.behaviour_policy(log, space=space), np.asarray(space.legal)
    seen = np.asarray(posterior.visit_counts())
    policies = {"behaviour": behaviour, "expert": env.expert}
    for name, limits in (("greedy", PolicyLimits()), ("cautious", PolicyLimits(bootstrap_below=BELOW))):
        chosen = policy_set(limits, legal, seen.shape, seen, behaviour)
        policies[name] = chosen.policy(best_in(mean, OBJECTIVE, chosen))
    some = np.stack(list(policies.values()))
    values = draws_of(keys[2], posterior, OBJECTIVE, draws, initial=start, needed=some.any(0)).values(some)
    returns = returns_of(log, OBJECTIVE)
    assert not isinstance(returns, str)
    spent, rows = time.process_time() - began, []
    for i, (name, policy) in enumerate(policies.items()):
        gain = values[:, i] - values[:, 0]
        anchored = AnchoredValue.of(gain, returns)
        # Few draws show no share of .95: that of a normal distribution of the gain stands for it.
        surely = float(norm.cdf(gain.mean() / max(gain.std(ddof=1), 1e-300)))
        truth = true_value(env, policy)
        numbers = (values[:, i].mean(), values[:, i].std(ddof=1), anchored.mean, anchored.sd, surely, truth)
        rows.append([episodes, number, name, *numbers, returns.mean(), spent])
    return rows


def table(results: pd.DataFrame) -> pd.DataFrame:
    """Coverage, bias and width of both intervals, true values, and how often a policy was recommended."""
    wide = results.set_index(["episodes", "log", "policy"])
    base = wide.xs("behaviour", level="policy")
    greedy = wide.xs("greedy", level="policy")
    taken = greedy["no_worse"] >= CONFIDENCE
    chosen = greedy.where(taken, base).assign(policy="chosen", recommended=taken).set_index("policy", append=True)
    harm = (taken & (greedy["truth"] < base["truth"])).rename("harm")
    every = pd.concat([wide, chosen])
    for name, value, sd in (("plain", "mean", "sd"), ("anchored", "anchored", "anchored_sd")):
        error = every[value] - every["truth"]
        every[f"{name} covers"] = (error.abs() <= Z * every[sd]).astype(float)
        every[f"{name} bias"], every[f"{name} width"] = error, 2 * Z * every[sd]
    shown = [f"{kind} {what}" for kind in ("plain", "anchored") for what in ("covers", "bias", "width")]
    grouped = every.reset_index().groupby(["policy", "episodes"])
    answer = grouped[[*shown, "truth", "cpu"]].mean().assign(logs=grouped.size())
    print(pd.DataFrame({"recommended": taken, "recommended and worse": harm}).groupby("episodes").mean().to_string())
    return answer


def main(logs: int, draws: int, sizes: list[int], path: Path, first: int) -> None:
    """Run what the file does not have, and print the table."""
    warnings.simplefilter("ignore")  # a single short chain has few effective ones: said once, here
    env = bm.envs.icu_sepsis()
    prior = bm.models.partial_pooling(partial(bm.models.known_rewards, np.asarray(env.mdp.reward)))
    fit = fit_for(prior, env.space, Gibbs(num_warmup=50, num_samples=draws, num_chains=1))
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    done = set(map(tuple, pd.read_csv(path)[["episodes", "log"]].drop_duplicates().to_numpy()))
    for number in range(first, logs):
        for size in sizes:
            if (size, number) not in done:
                rows = one_log(env, fit, size, number, draws)  # type: ignore[arg-type]
                with path.open("a", newline="") as file:
                    csv.writer(file).writerows(rows)
    print(table(pd.read_csv(path)).to_string(float_format="{:.4f}".format))


if __name__ == "__main__":
    given = sys.argv[1:] + ["200", "24", "500,2000,10000,50000", "icu_pooling.csv", "0"][len(sys.argv) - 1 :]
    main(int(given[0]), int(given[1]), [int(x) for x in given[2].split(",")], Path(given[3]), int(given[4]))
