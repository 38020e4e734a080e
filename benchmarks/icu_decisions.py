"""How often intervals of policies hold the truth on ICU-Sepsis logs, by the library's own draws.

`python -m benchmarks.icu_decisions [logs a size] [draws] [sizes, comma separated] [file]`. Needs the extra `health`.
Prior: Dirichlet rows of total concentration one, known rewards; logs by the expert. Each log: the behaviour, the expert
and the greedy policy under the posterior of the whole log; the greedy policy of one half, and the one that follows the
behaviour where actions were seen less than 20 times, under the posterior of the other half. Intervals are the central
90 % of a normal distribution with the draws' mean and sd. One line a log goes to the file (CSV), which is resumed.
"""

import csv
import sys
import time
from pathlib import Path

import jax
import numpy as np

import bayes_mdp as bm
from bayes_mdp.decisions.choosing.common_draws import draws_of
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, best_in, policy_set
from bayes_mdp.envs.sepsis import ICUSepsis
from bayes_mdp.numerics.array_forms import to_float64

Z, BELOW = 1.645, 20
COLUMNS = ["episodes", "log", "policy", "mean", "sd", "truth", "cpu"]
OBJECTIVE = bm.FirstExit()


def one_log(env: ICUSepsis, nothing: object, episodes: int, number: int, draws: int) -> list[list[object]]:
    """A row for each policy."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(episodes), number), 4)
    space, start = env.space, np.asarray(env.mdp.initial)
    log = env.log(keys[0], episodes, env.expert)
    halves = bm.mdp.split_log(keys[1], log)
    whole, first, second = (
        nothing.update(bm.Counts.of(part.transitions, space))  # type: ignore[attr-defined] - a posterior
        for part in (log, *halves)
    )
    behaviour = bm.behaviour_policy(log, space=space)
    probs = lambda policy: np.eye(space.n_actions)[np.asarray(policy)]  # noqa: E731
    with jax.enable_x64(True):
        mean = to_float64(first.mean_mdp())
    seen = np.asarray(first.visit_counts())
    near = policy_set(PolicyLimits(bootstrap_below=BELOW), np.asarray(space.legal), seen.shape, seen, behaviour)
    cautious = near.policy(best_in(mean, OBJECTIVE, near))
    parts = [
        (whole, keys[2], {"behaviour": behaviour, "expert": env.expert, "greedy": probs(bm.greedy(whole, OBJECTIVE))}),
        (second, keys[3], {"split greedy": probs(bm.greedy(first, OBJECTIVE)), "split cautious": cautious}),
    ]
    rows = []
    for posterior, key, policies in parts:
        began = time.process_time()
        some = np.stack(list(policies.values()))
        values = draws_of(key, posterior, OBJECTIVE, draws, initial=start, needed=some.any(0)).values(some)
        spent = time.process_time() - began
        for (name, policy), column in zip(policies.items(), values.T, strict=True):
            truth = float(bm.evaluate(env.mdp, policy, OBJECTIVE).v @ start)
            rows.append([episodes, number, name, column.mean(), column.std(ddof=1), truth, spent])
    return rows


def main(logs: int, draws: int, sizes: list[int], path: Path) -> None:
    """Run what the file does not have, and print the table."""
    import pandas as pd

    env = bm.envs.icu_sepsis()
    prior = bm.models.known_rewards(np.asarray(env.mdp.reward), 1 / env.space.n_outcomes)
    nothing = bm.infer(jax.random.key(0), prior, space=env.space)
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    done = set(map(tuple, pd.read_csv(path)[["episodes", "log"]].drop_duplicates().to_numpy()))
    for number in range(logs):
        for size in sizes:
            if (size, number) not in done:
                rows = one_log(env, nothing, size, number, draws)
                with path.open("a", newline="") as file:
                    csv.writer(file).writerows(rows)
    table = pd.read_csv(path)
    table["covers"] = (table["mean"] - table["truth"]).abs() <= Z * table["sd"]
    table["bias"], table["width"] = table["mean"] - table["truth"], 2 * Z * table["sd"]
    grouped = table.groupby(["policy", "episodes"])[["covers", "bias", "width", "truth", "cpu"]].mean()
    print(grouped.assign(logs=table.groupby(["policy", "episodes"]).size()).to_string(float_format="{:.3f}".format))


if __name__ == "__main__":
    given = sys.argv[1:] + ["200", "100", "500,2000,10000,50000", "icu_decisions.csv"][len(sys.argv) - 1 :]
    main(int(given[0]), int(given[1]), [int(x) for x in given[2].split(",")], Path(given[3]))
