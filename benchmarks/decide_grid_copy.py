"""The grid of `decide_grid` by a copy of the method in plain NumPy: an independent route, and many times faster.

`python -m benchmarks.decide_grid_copy [logs] [episodes,...] [family,...] [first seed]`. The same logs, with the same
prior, choice, promise and widened interval; no checks of the belief, so nothing that these would stop. The search is
shorter than that of `choose`: the optimum of the mean MDP that leaves pairs seen less than 5, 10, 20, 50 or 100 times
to the staff.
"""

import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy.special import gammaln

from benchmarks.decide_grid import DISCOUNT, FAMILIES

Array = np.ndarray
LARGEST, LEAST_TOTAL, DECAYS, ANYWHERE, DEGREES = 4.0, 0.125, (0.1, 0.5), 0.1, 2.5


def concentrations(states: int, outcomes: int) -> list[Float[Array, "S 1 O"]]:
    """Those of the default prior: a list of sizes, for a base alike for all and for two that fall with the distance."""
    ratio = LARGEST * outcomes / LEAST_TOTAL
    number = 1 + int(np.ceil(np.log2(ratio)))
    sizes = LARGEST * ratio ** (-np.arange(number) / (number - 1))
    distance = np.ones((states, outcomes))  # the end is a neighbour
    distance[:, :states] = np.abs(np.subtract.outer(np.arange(states), np.arange(states)))
    falling = [decay**distance for decay in DECAYS]
    near = [ANYWHERE + (1 - ANYWHERE) * outcomes * x / x.sum(-1, keepdims=True) for x in falling]
    return [size * base[:, None] for base in (np.ones((states, outcomes)), *near) for size in sizes]


@dataclass
class Belief:
    """The posterior of a log under the default prior.

    Args:
        counts: of outcomes.
        alphas: posterior concentrations of each component.
        weights: of the components.
        rewards: parameters of the beliefs about mean rewards: Beta's two, or the normal-gamma's four.
        by_outcome: whether rewards are those of a pair and an outcome.
    """

    counts: Float[Array, "S A O"]
    alphas: Float[Array, "K S A O"]
    weights: Float[Array, " K"]
    rewards: tuple[Array, ...]
    by_outcome: bool

    @property
    def mean(self) -> tuple[Float[Array, "1 S A S"], Float[Array, "1 S A"]]:
        """Rows and rewards of the mean MDP."""
        rows = np.tensordot(self.weights, self.alphas / self.alphas.sum(-1, keepdims=True), 1)
        paid = self.rewards[0] if len(self.rewards) == 4 else self.rewards[0] / sum(self.rewards)
        return rows[None, ..., : len(rows)], ((rows * paid).sum(-1) if self.by_outcome else paid)[None]

    def draw(self, rng: np.random.Generator, number: int) -> tuple[Float[Array, "N S A S"], Float[Array, "N S A"]]:
        """Rows and rewards of MDPs."""
        rows = rng.standard_gamma(self.alphas[rng.choice(len(self.weights), number, p=self.weights)]) + 1e-300
        rows /= rows.sum(-1, keepdims=True)
        shape = (number, *self.rewards[0].shape)
        if len(self.rewards) == 2:
            paid = rng.beta(*(np.broadcast_to(x, shape) for x in self.rewards))
        else:
            loc, weight, degrees, rate = (np.broadcast_to(x, shape) for x in self.rewards)
            paid = loc + rng.normal(size=shape) / np.sqrt(weight * rng.standard_gamma(degrees) / rate)
        return rows[..., : rows.shape[1]], (rows * paid).sum(-1) if self.by_outcome else paid


def belief(table: pd.DataFrame, shape: tuple[int, int, int]) -> Belief:
    """By conjugacy; the weights of the components by their evidence, the rewards' prior by their moments."""
    states, outcomes = shape[0], shape[2]
    pair = table["s"].to_numpy(), table["a"].to_numpy()
    cell = (*pair, np.where(table["z"], states, table["t"]))
    counts = np.zeros(shape)
    np.add.at(counts, cell, 1.0)
    prior = np.stack([np.broadcast_to(x, shape) for x in concentrations(states, outcomes)])
    alphas = prior + counts
    evidence = gammaln(prior.sum(-1)) - gammaln(alphas.sum(-1)) + (gammaln(alphas) - gammaln(prior)).sum(-1)
    weights = np.exp((total := evidence.sum((1, 2))) - total.max())
    reward = table["r"].to_numpy(float)
    assert not np.isnan(reward).any(), "rewards that are missing: ask decide_grid"

    def moments(index: tuple[Array, ...], size: tuple[int, ...]) -> tuple[Array, Array, Array, float, int]:
        number, paid, square = np.zeros(size), np.zeros(size), np.zeros(size)
        np.add.at(number, index, 1.0)
        np.add.at(paid, index, reward)
        average = paid / np.maximum(number, 1)
        np.add.at(square, index, (reward - average[index]) ** 2)
        free = int((number - 1)[number > 0].sum())
        return number, average, square, square.sum() / max(free, 1), free

    by_pair, by_outcome = moments(pair, shape[:2]), moments(cell, shape)
    whether = by_outcome[4] >= 20 and by_outcome[3] < 0.5 * by_pair[3]
    number, average, square, within, _ = by_outcome if whether else by_pair
    least = 1e-6 * reward.var()
    within, between = max(within, least), max(average[number > 0].var(), least)
    weight = within / between
    if np.isin(reward, (0.0, 1.0)).all():
        weight = np.clip(weight, 0.05, 100.0)
        middle = (len(reward) * average[number > 0].mean() + 0.5) / (len(reward) + 1)
        rewards = (weight * middle + number * average, weight * (1 - middle) + number * (1 - average))
    else:
        middle, sure = average[number > 0].mean(), weight + number
        gap = weight * number * (average - middle) ** 2 / (2 * sure)
        rate = (DEGREES - 1) * within + square / 2 + gap
        rewards = ((weight * middle + number * average) / sure, sure, DEGREES + number / 2, rate)
    return Belief(counts, alphas, weights / weights.sum(), rewards, bool(whether))


def values(
    rows: Float[Array, "N S A S"], reward: Float[Array, "N S A"], policy: Float[Array, "S A"], start: Float[Array, " S"]
) -> Float[Array, " N"]:
    """Of a policy in each MDP."""
    chain = np.einsum("sa,nsat->nst", policy, rows)
    return np.linalg.solve(np.eye(len(start)) - DISCOUNT * chain, (policy * reward).sum(-1)[..., None])[..., 0] @ start


def improved(
    rows: Float[Array, "N S A S"], reward: Float[Array, "N S A"], staff: Float[Array, "S A"], free: Bool[Array, "S A"]
) -> Float[Array, "N S A"]:
    """The best policy of each MDP that acts as the staff do where a pair is not free, by policy iteration."""
    fixed = np.where(free, 0.0, staff)
    rest, eye = 1 - fixed.sum(-1, keepdims=True), np.eye(len(staff))
    policy = np.broadcast_to(staff, reward.shape)
    for _ in range(30):
        chain = np.einsum("nsa,nsat->nst", policy, rows)
        v = np.linalg.solve(eye - DISCOUNT * chain, (policy * reward).sum(-1)[..., None])[..., 0]
        q = np.where(free, reward + DISCOUNT * np.einsum("nsat,nt->nsa", rows, v), -np.inf)
        better = fixed + rest * np.eye(staff.shape[1])[q.argmax(-1)]
        if np.allclose(better, policy):
            break
        policy = better
    return policy


def variance_of_staff(
    rows: Float[Array, "1 S A S"], reward: Float[Array, "1 S A"], seen: Float[Array, "S A"], start: Float[Array, " S"]
) -> float:
    """Of the value of what the staff do, to first order: their probabilities are Dirichlet(counts) in each state."""
    here = seen.sum(-1)
    staff = seen[here > 0] / here[here > 0, None]
    policy = np.full(seen.shape, 1 / seen.shape[1])
    policy[here > 0] = staff
    system = np.eye(len(start)) - DISCOUNT * np.einsum("sa,sat->st", policy, rows[0])
    time, v = np.linalg.solve(system.T, start), np.linalg.solve(system, (policy * reward[0]).sum(-1))
    q = (reward[0] + DISCOUNT * rows[0] @ v)[here > 0]
    variance = (staff * (q - (staff * q).sum(-1, keepdims=True)) ** 2).sum(-1) / (here[here > 0] + 1)
    return float((time[here > 0] ** 2 * variance).sum())


def row(family: str, episodes: int, seed: int) -> dict[str, float]:
    """What the method says of one log, beside the truth."""
    generator = np.random.default_rng([9, episodes, [*FAMILIES].index(family), seed])
    world, rng = FAMILIES[family](generator), np.random.default_rng(seed)
    post, start = belief(world.columns(episodes, generator), world.rows.shape), world.initial
    seen = post.counts.sum(-1)
    here = seen.sum(-1, keepdims=True)
    staff = np.where(here > 0, seen / np.maximum(here, 1), 1 / seen.shape[1])
    # 1. The best in the mean MDP of what was tried often enough; of those that are sure, else of the likely ones.
    policies = [
        improved(*post.mean, staff, seen >= least)[0] for least in (5, 10, 20, 50, 100) if (seen >= least).any()
    ]
    drawn = post.draw(rng, 400)
    gains = [values(*drawn, policy, start) - values(*drawn, staff, start) for policy in policies]
    none = {"recommended": 0.0, "harm": 0.0, "realised": 0.0, "better": 0.0}
    for least in (0.975, 0.51):
        sure = [i for i, gain in enumerate(gains) if (gain >= -1e-9).mean() >= least and gain.mean() > 1e-9]
        if sure:
            break
    else:
        return none
    policy = policies[max(sure, key=lambda i: gains[i].mean())]
    # 2. Judged in fresh draws; its interval widened by the variance of the optimism, or by that of the frequencies.
    drawn = post.draw(rng, 2000)
    gain = values(*drawn, policy, start) - values(*drawn, staff, start)
    drawn = post.draw(rng, 40)
    ahead = np.stack([values(*drawn, each, start) for each in improved(*drawn, staff, seen >= 5)], 1)
    ahead -= values(*drawn, policy, start)[:, None]
    added = max((np.diag(ahead) - ahead.mean(0)).var(), variance_of_staff(*post.mean, seen, start))
    spread = np.sqrt(1 + added / gain.var())
    true, possible = (world.value(each) - world.value_of_staff() for each in (policy, world.best()))
    recommended, mean = bool((gain >= -1e-9).mean() >= 0.95), gain.mean()
    low, high = np.quantile(gain, (0.05, 0.95))
    better = true > gain.std()
    # By which factor the posterior's interval has to be widened about its mean to hold the truth.
    needed = (mean - true) / (mean - low) if true < mean else (true - mean) / (high - mean)
    return {
        "recommended": float(recommended and better),
        "harm": float(recommended and true < -1e-9),
        "realised": true / possible if recommended else 0.0,
        "better": float(better),
        "coverage": float(low <= true <= high),
        "coverage_decide": float(mean + spread * (low - mean) <= true <= mean + spread * (high - mean)),
        "needed": needed,
        "over": (mean - true) / gain.std(),
        "kept_if_widened": float(recommended and better and mean + spread * (np.quantile(gain, 0.05) - mean) >= 0),
    }


def main(logs: int, sizes: list[int], families: list[str], first: int) -> None:
    """A line for each family and size; below it the factors by which intervals hold .86 and .94 of truths.

    Args:
        logs: of a line.
        sizes: numbers of episodes.
        families: names of worlds.
        first: seed.
    """
    for family in families:
        for episodes in sizes:
            rows = pd.DataFrame([row(family, episodes, seed) for seed in range(first, first + logs)])
            mean = rows.drop(columns="needed").mean()
            mean[["recommended", "kept_if_widened"]] /= max(mean["better"], 1e-9)
            print(f"{family} {episodes} ({logs} logs): " + ", ".join(f"{name} {x:.3f}" for name, x in mean.items()))
            print(
                "    .86 and .94 of the truths by factors of {:.2f} and {:.2f}".format(
                    *rows["needed"].quantile([0.86, 0.94])
                )
            )
            sys.stdout.flush()


if __name__ == "__main__":
    ordinary = "maintenance,random_rows,near_best,rarely_tried,inventory,queue,triage"
    given = [*sys.argv[1:], *["200", "20,60", ordinary, "0"][len(sys.argv) - 1 :]]
    main(int(given[0]), [int(x) for x in given[1].split(",")], given[2].split(","), int(given[3]))
