"""Does `decide` recommend what is better, never what is worse, and say how sure it is? Worlds whose truth is known.

`python -m benchmarks.decide_grid [logs] [episodes,...] [family,...]`; all defaults of `decide`, the prior among them.
Of each log: whether a policy is recommended; whether it is truly worse than what the log did (harm); whether the 90 %
interval of the candidate's gain, as `decide` widens it, holds the truth, and the posterior's own; the share of the
possible gain that is realised; whether a check failed, and whether one stopped the decision. Families: a machine that
wears; random rows and rewards; those with staff who are nearly as good as can be; those with actions that are rarely
tried; an inventory.
"""

import sys
import time

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float

import bayes_mdp as bm
from bayes_mdp.recommend.decision import BASELINE, CHOSEN

DISCOUNT, STEPS = 0.95, 30
Array = np.ndarray
World = tuple[Float[Array, "S A S"], Float[Array, "S A"], Float[Array, "S A"], float]
"""Rows, mean rewards, the behaviour, standard deviation of a reward."""


def maintenance(rng: np.random.Generator) -> World:
    """Four states of wear, three actions; hardly anyone services a broken machine."""
    rows = np.zeros((4, 3, 4))
    rows[:, 0] = [[0.80, 0.17, 0.02, 0.01], [0, 0.75, 0.20, 0.05], [0, 0, 0.70, 0.30], [0, 0, 0, 1]]
    rows[:, 1] = [[0.95, 0.05, 0, 0], [0.50, 0.45, 0.05, 0], [0.10, 0.40, 0.45, 0.05], [0, 0, 0, 1]]
    rows[:, 2] = [0.99, 0.01, 0, 0]
    rows += rng.uniform(0, 0.04, rows.shape)
    reward = np.array([[20, 14, -30], [16, 10, -34], [8, 2, -40], [-40, -45, -90.0]]) + rng.normal(0, 4, (4, 3))
    behaviour = np.array([[0.85, 0.10, 0.05], [0.60, 0.30, 0.10], [0.30, 0.40, 0.30], [0.10, 0.10, 0.80]])
    return rows / rows.sum(-1, keepdims=True), reward, behaviour, 6.0


def random_rows(rng: np.random.Generator) -> World:
    """Six states, three actions, each to three states; the behaviour is anything."""
    rows = np.zeros((6, 3, 6))
    for s, a in np.ndindex(6, 3):
        rows[s, a, rng.choice(6, 3, replace=False)] = rng.dirichlet(np.ones(3))
    return rows, rng.normal(size=(6, 3)), 0.9 * rng.dirichlet(np.ones(3), 6) + 0.1 / 3, 1.0


def near_best(rng: np.random.Generator) -> World:
    """The same, and the staff act by a softmax of the true values: little can be gained, much lost."""
    rows, reward, _, noise = random_rows(rng)
    q = np.zeros((6, 3))
    for _ in range(500):
        q = reward + DISCOUNT * rows @ q.max(-1)
    behaviour = np.exp(2 * (q - q.max(-1, keepdims=True)))
    return rows, reward, 0.97 * behaviour / behaviour.sum(-1, keepdims=True) + 0.01, noise


def rarely_tried(rng: np.random.Generator) -> World:
    """Random rows, and one action in each state is taken 92 times in a hundred."""
    rows, reward, _, noise = random_rows(rng)
    behaviour = np.full((6, 3), 0.04)
    behaviour[np.arange(6), rng.integers(0, 3, 6)] = 0.92
    return rows, reward, behaviour, noise


def inventory(rng: np.random.Generator) -> World:
    """Up to seven in stock, orders of 0, 2, 4 or 6, Poisson demand, costs of holding and of ordering."""
    demand, price, holding, fee = rng.uniform(1.5, 3.5), rng.uniform(4, 8), rng.uniform(0.3, 1.0), rng.uniform(1, 3)
    chances = np.cumprod(np.append(1.0, demand / np.arange(1, 30)))
    chances /= chances.sum()
    rows, reward, wanted = np.zeros((8, 4, 8)), np.zeros((8, 4)), np.arange(30)
    for s, a in np.ndindex(8, 4):
        stock = min(s + 2 * a, 7)
        np.add.at(rows[s, a], np.maximum(stock - wanted, 0), chances)
        sold = price * np.minimum(stock, wanted) - 2 * np.maximum(wanted - stock, 0)
        reward[s, a] = chances @ sold - holding * stock - fee * (a > 0) - 3.0 * a
    behaviour = np.where(np.arange(8)[:, None] < 3, [[0.2, 0.4, 0.3, 0.1]], [[0.7, 0.2, 0.07, 0.03]])
    return rows, reward, behaviour, 2.0


FAMILIES = {each.__name__: each for each in (maintenance, random_rows, near_best, rarely_tried, inventory)}


def log_of(world: World, episodes: int, rng: np.random.Generator) -> bm.mdp.Log:
    """Episodes of 30 steps from the first state."""
    rows, reward, behaviour, noise = world
    state = np.zeros(episodes, int)
    steps = []
    for t in range(STEPS):
        action = (rng.random((episodes, 1)) > behaviour[state].cumsum(-1)).sum(-1).clip(0, behaviour.shape[1] - 1)
        reached = (rng.random((episodes, 1)) > rows[state, action].cumsum(-1)).sum(-1).clip(0, len(rows) - 1)
        paid = reward[state, action] + noise * rng.normal(size=episodes)
        steps.append(pd.DataFrame({"e": range(episodes), "n": t, "s": state, "a": action, "r": paid, "t": reached}))
        state = reached
    frame = pd.concat(steps).sort_values(["e", "n"])
    names = {"states": range(len(rows)), "actions": range(behaviour.shape[1])}
    return bm.read_log(frame, state="s", action="a", reward="r", next_state="t", episode="e", **names)


def value(world: World, policy: Float[Array, "S A"]) -> float:
    """In the true world, from the first state."""
    rows, reward, _, _ = world
    chain = np.einsum("sa,sat->st", policy, rows)
    return float(np.linalg.solve(np.eye(len(rows)) - DISCOUNT * chain, (policy * reward).sum(-1))[0])


def best(world: World) -> Float[Array, "S A"]:
    """The true optimum."""
    rows, reward, _, _ = world
    q = np.zeros_like(reward)
    for _ in range(1000):
        q = reward + DISCOUNT * rows @ q.max(-1)
    return np.eye(q.shape[-1])[q.argmax(-1)]


def row(world: World, log: bm.mdp.Log, seed: int) -> dict[str, float]:
    """What `decide` says of one log, beside the truth."""
    began = time.process_time()
    decision = bm.decide(jax.random.key(seed), "default", log, bm.Discounted(DISCOUNT))
    seconds = time.process_time() - began
    today = np.asarray(decision.baseline, float)
    possible = value(world, best(world)) - value(world, today)
    candidate = decision.candidates.get(CHOSEN)
    found = {"recommended": 0.0, "harm": 0.0, "realised": 0.0, "cpu": seconds}
    if candidate is None:
        return found
    policy = np.asarray(candidate.policy)
    policy = np.eye(today.shape[-1])[policy] if policy.ndim == 1 else policy
    gain = candidate.improvement.gain
    true = value(world, policy) - value(world, today)
    low, high = np.quantile(gain, (0.05, 0.95))
    mean, spread, recommended = candidate.mean, candidate.spread, decision.recommended
    assert decision.criticism is not None and BASELINE in decision.comparison.values
    return found | {
        "recommended": float(recommended),
        "harm": float(recommended and true < -1e-9),
        "realised": true / possible if recommended else 0.0,
        "better": float(true > gain.std()),
        "recommended_better": float(recommended and true > gain.std()),
        "covered": float(mean + spread * (low - mean) - 1e-9 <= true <= mean + spread * (high - mean) + 1e-9),
        "covered_posterior": float(low - 1e-9 <= true <= high + 1e-9),
        "alarm": float(bool(decision.criticism.alarms)),
        "stopped": float(any(each.stops for each in candidate.consequences)),
    }


def main(logs: int, sizes: list[int], families: list[str]) -> None:
    """A line for each family and size."""
    for family in families:
        for episodes in sizes:
            rng = np.random.default_rng([8, episodes, len(family)])
            rows = []
            for seed in range(logs):
                world = FAMILIES[family](rng)
                rows.append(row(world, log_of(world, episodes, rng), seed))
            mean = pd.DataFrame(rows).mean()
            mean["of the better"] = mean["recommended_better"] / max(mean["better"], 1e-9)
            print(f"{family} {episodes} ({logs} logs): " + ", ".join(f"{name} {x:.3g}" for name, x in mean.items()))
            sys.stdout.flush()


if __name__ == "__main__":
    given = [*sys.argv[1:], *["100", "20,60", ",".join(FAMILIES)][len(sys.argv) - 1 :]]
    main(int(given[0]), [int(x) for x in given[1].split(",")], given[2].split(","))
