"""Is the promise of `choose(..., baseline=...)` kept? Random problems that are drawn from the prior.

`python -m benchmarks.safe_improvement [problems] [confidence] [file]`. Each problem: 5 or 8 states, 3 actions, an MDP
drawn from the prior (rows Dirichlet(1, ..., 1), rewards Bernoulli(uniform)), a log of 20 to 300 transitions by a random
policy, and a baseline: that policy, or the optimum of the mean MDP after 20 transitions, or after half of the log. The
promise, P(value >= baseline) >= confidence wherever a change is recommended, is of the posterior. The MDPs are really
drawn from the prior, so it holds for true values on average over problems: harm among the recommended is binomial of at
most 1 - confidence. The twin is broken: it searches all deterministic policies on 5 draws for the highest mean among
those that are no worse than the baseline in the asked share of these same draws, and recommends what it finds. One line
a problem goes to the file (CSV), which is resumed.
"""

import csv
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from scipy.stats import beta, binom

import bayes_mdp as bm
from bayes_mdp.decisions.choosing.common_draws import draws_of
from bayes_mdp.decisions.choosing.criteria import ExpectedValue, no_worse
from bayes_mdp.decisions.choosing.policy_search import ENUMERATED, Problem, ascend, enumerate_policies
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, best_in, policy_set

SIZES, ACTIONS, DRAWS, TWIN_DRAWS, EARLY = (5, 8), 3, 200, 5, 20
OBJECTIVE = bm.Discounted(0.9)
BASELINES = ("behaviour", "optimum after 20", "optimum after half")
COLUMNS = ["problem", "states", "transitions", "baseline", "abstained", "prob", "gain", "twin_abstained", "twin_gain"]
COLUMNS += ["cpu"]


class Drawn(NamedTuple):
    """A problem: the true rows and rewards, the policy in use and its kind, the belief, the size of its log, keys."""

    rows: np.ndarray
    reward: np.ndarray
    today: np.ndarray
    kind: str
    posterior: bm.inference.ConjugatePosterior
    start: np.ndarray
    size: int
    keys: jax.Array

    def gain(self, policy: np.ndarray) -> float:
        """True value minus that of the baseline."""
        chosen, today = (value(self.rows, self.reward, each, self.start) for each in (policy, self.today))
        return chosen - today


def drawn(number: int, beliefs: dict[int, bm.inference.ConjugatePosterior]) -> Drawn:
    """The problem of this number."""
    rng = np.random.default_rng(number)
    keys = jax.random.split(jax.random.key(number), 4)
    states = SIZES[number % 2]
    nothing = beliefs[states]
    mdp = nothing.sample(keys[0])
    rows = np.asarray(mdp.transition_probs, np.float64)
    rows, reward = rows / rows.sum(-1, keepdims=True), np.asarray(mdp.reward, np.float64)
    policy = rng.dirichlet(np.ones(ACTIONS), states)
    size = int(np.exp(rng.uniform(np.log(20), np.log(300))))
    log = walk(rng, rows, reward, policy, size)

    def belief(first: int) -> bm.inference.ConjugatePosterior:
        data = bm.Transitions(*(column[:first] for column in log))
        return nothing.update(bm.Counts.of(data, nothing.space))

    kind = BASELINES[number % 3]
    if kind != "behaviour":
        policy = np.eye(ACTIONS)[np.asarray(bm.greedy(belief(EARLY if "20" in kind else size // 2), OBJECTIVE))]
    return Drawn(rows, reward, policy, kind, belief(size), np.full(states, 1 / states), size, keys)


def one_problem(number: int, beliefs: dict[int, bm.inference.ConjugatePosterior], confidence: float) -> list[object]:
    """A line of the file; gains are true values minus that of the baseline, of what is returned."""
    began = time.process_time()
    here = drawn(number, beliefs)
    chosen = bm.choose(
        here.keys[1],
        here.posterior,
        OBJECTIVE,
        baseline=here.today,
        initial=here.start,
        options=bm.decisions.ChooseOptions(num_draws=DRAWS, confidence=confidence),
    )
    twin = careless(here, confidence)
    returned = np.asarray(chosen.policy)
    returned = returned if returned.ndim == 2 else np.eye(ACTIONS)[returned]
    assert chosen.improvement is not None
    answer = [chosen.abstained, chosen.improvement.prob, here.gain(returned), twin is None]
    answer += [0.0 if twin is None else here.gain(twin), time.process_time() - began]
    return [number, len(here.rows), here.size, here.kind, *answer]


def walk(
    rng: np.random.Generator, rows: np.ndarray, reward: np.ndarray, policy: np.ndarray, size: int
) -> tuple[np.ndarray, ...]:
    """States, actions, rewards of 0 or 1, next states."""
    state, steps = int(rng.integers(len(rows))), []
    for _ in range(size):
        action = int(rng.choice(ACTIONS, p=policy[state]))
        after = int(rng.choice(len(rows), p=rows[state, action]))
        steps.append((state, action, float(rng.random() < reward[state, action]), after))
        state = after
    return tuple(map(np.array, zip(*steps, strict=True)))


def careless(here: Drawn, confidence: float) -> np.ndarray | None:
    """The broken twin: few draws, the same ones for the search and for the judgement. None: it abstains."""
    draws = draws_of(here.keys[2], here.posterior, OBJECTIVE, TWIN_DRAWS, initial=here.start)
    base = draws.values(here.today[None])[:, 0]
    every = policy_set(PolicyLimits(), None, here.today.shape, None, here.today)
    feasible = lambda values: no_worse(values, base, 0.0, confidence)  # noqa: E731
    problem = Problem(draws, ExpectedValue().form, every, None, feasible)
    found = enumerate_policies(problem)
    if found is None and every.count > ENUMERATED:
        found = ascend(problem, best_in(here.posterior.mean_mdp(), OBJECTIVE, every), "the optimum of the mean MDP")
    return None if found is None or found.score <= base.mean() else found.policy


def value(rows: np.ndarray, reward: np.ndarray, policy: np.ndarray, start: np.ndarray) -> float:
    """Exact, in the true MDP."""
    chain, paid = np.einsum("sa,sak->sk", policy, rows), (policy * reward).sum(-1)
    return float(start @ np.linalg.solve(np.eye(len(rows)) - OBJECTIVE.discount * chain, paid))


def table(results: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """Abstentions; harm among what was recommended, its 99 % bound, and how likely so much is at 1 - confidence."""
    lines = []
    for who, abstained, gain in (("choose", "abstained", "gain"), ("twin", "twin_abstained", "twin_gain")):
        for kind in ("all", *BASELINES):
            some = results if kind == "all" else results[results["baseline"] == kind]
            given = some[~some[abstained]]
            harm, number = int(np.sum(np.asarray(given[gain]) < -1e-9)), len(given)
            upper = beta.ppf(0.99, harm + 1, number - harm) if harm < number else 1.0
            surprise = binom.sf(harm - 1, number, 1 - confidence)
            lines.append((who, kind, len(some), len(some) - number, harm, harm / max(number, 1), upper, surprise))
            lines[-1] += (some[gain].mean(), float(np.mean(np.asarray(some["cpu"]))))
    names = [
        "who",
        "baseline",
        "problems",
        "abstained",
        "harm",
        "harm share",
        "99 % upper",
        "p of promise",
        "mean gain",
        "cpu",
    ]
    return pd.DataFrame(lines, columns=names)


def main(problems: int, confidence: float, path: Path) -> None:
    """Run what the file does not have, and print the table."""
    beliefs = {}
    for states in SIZES:
        space = bm.StateActionSpace(states, ACTIONS)
        beliefs[states] = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), space=space)
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    done = set(pd.read_csv(path)["problem"])
    for number in sorted(set(range(problems)) - done):
        row = one_problem(number, beliefs, confidence)
        with path.open("a", newline="") as file:
            csv.writer(file).writerow(row)
    print(table(pd.read_csv(path), confidence).to_string(index=False, float_format="{:.4g}".format))


if __name__ == "__main__":
    given = sys.argv[1:] + ["1000", "0.95", "safe_improvement.csv"][len(sys.argv) - 1 :]
    main(int(given[0]), float(given[1]), Path(given[2]))
