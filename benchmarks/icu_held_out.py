"""How well gains are judged by the half of an ICU-Sepsis log that did not choose the policy, under partial pooling.

`python -m benchmarks.icu_held_out [logs a size] [draws] [sizes, comma separated] [file]`. Needs the extra `health`. As
`bm.decide` does it: the posterior of one half chooses (the greedy policy: optimum of its mean), the posterior of the
other half judges the gain over the behaviour, as counted in the whole log. Prior and chains as in
`benchmarks.icu_pooling`. One line a log goes to the file (CSV), which is resumed; the table has, by size, the mean of
the gain as judged, its true value, the coverage of central 90 % intervals, and the mean of (judged - true) / sd.
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

import bayes_mdp as bm
from bayes_mdp.decisions.choosing.common_draws import draws_of
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, best_in, policy_set
from bayes_mdp.envs.sepsis import ICUSepsis
from bayes_mdp.inference import Gibbs, fit_for
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.pooled_posterior import PooledPosterior
from bayes_mdp.numerics.array_forms import to_float64
from benchmarks.icu_pooling import OBJECTIVE, Z, true_value

COLUMNS = ["episodes", "log", "gain", "sd", "truth", "same_half", "same_half_sd", "cpu"]


def one_log(env: ICUSepsis, fit: Fit[PooledPosterior], episodes: int, number: int, draws: int) -> list[object]:
    """The gain of the policy that one half chose: by the other half, in truth, and by the half that chose it."""
    began = time.process_time()
    keys = jax.random.split(jax.random.fold_in(jax.random.key(episodes), number), 6)
    space, start = env.space, np.asarray(env.mdp.initial)
    log = env.log(keys[0], episodes, env.expert)
    first, second = bm.mdp.split_log(keys[1], log, 0.5)
    behaviour, legal = bm.behaviour_policy(log, space=space), np.asarray(space.legal)
    with jax.enable_x64(True):
        chooser, judge = (
            fit.on_host(key, part.transitions) for key, part in zip(keys[2:4], (first, second), strict=True)
        )
        mean = to_float64(chooser.mean_mdp())
    seen = np.asarray(chooser.visit_counts())
    chosen = policy_set(PolicyLimits(), legal, seen.shape, seen, behaviour)
    some = np.stack([behaviour, chosen.policy(best_in(mean, OBJECTIVE, chosen))])
    gains = []
    for key, posterior in zip(keys[4:], (judge, chooser), strict=True):
        values = draws_of(key, posterior, OBJECTIVE, draws, initial=start, needed=some.any(0)).values(some)
        gains += [(values[:, 1] - values[:, 0]).mean(), (values[:, 1] - values[:, 0]).std(ddof=1)]
    truth = true_value(env, some[1]) - true_value(env, behaviour)
    return [episodes, number, *gains[:2], truth, *gains[2:], time.process_time() - began]


def main(logs: int, draws: int, sizes: list[int], path: Path) -> None:
    """Run what the file does not have, and print the table."""
    warnings.simplefilter("ignore")  # a single short chain has few effective ones
    env = bm.envs.icu_sepsis()
    prior = bm.models.partial_pooling(partial(bm.models.known_rewards, np.asarray(env.mdp.reward)))
    fit = fit_for(prior, env.space, Gibbs(num_warmup=50, num_samples=draws, num_chains=1))
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    done = set(map(tuple, pd.read_csv(path)[["episodes", "log"]].to_numpy()))
    for number in range(logs):
        for size in sizes:
            if (size, number) not in done:
                row = one_log(env, fit, size, number, draws)  # type: ignore[arg-type]
                with path.open("a", newline="") as file:
                    csv.writer(file).writerow(row)
    found = pd.read_csv(path)
    for name, gain, sd in (("other half", "gain", "sd"), ("same half", "same_half", "same_half_sd")):
        score = (found[gain] - found["truth"]) / found[sd]
        shown = found.assign(judged=found[gain], covers=(score.abs() <= Z).astype(float), score=score)
        print(name, shown.groupby("episodes")[["judged", "truth", "covers", "score"]].mean().to_string(), sep="\n")


if __name__ == "__main__":
    given = sys.argv[1:] + ["40", "24", "2000,10000", "icu_held_out.csv"][len(sys.argv) - 1 :]
    main(int(given[0]), int(given[1]), [int(x) for x in given[2].split(",")], Path(given[3]))
