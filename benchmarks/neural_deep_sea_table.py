"""The rule of `DeepUBE` on a table: what makes DeepSea hard at N = 100, one inexact step at a time.

    python benchmarks/neural_deep_sea_table.py [--sizes 10 20 50 100] [--seeds 3] [--episodes 1500] [--rows NAME ...]

No network: Q(s, a) and w(s, a) are a table each, in numpy. "exact" backs both up to convergence before every episode;
"replay" learns them as `DeepUBE` does, four batches of 128 a step from a replay of 50,000, target copied every fourth,
but a table takes its target as it is (or a step of .1 towards it). Other rows change one number of the rule. Stochastic
rows move and pay as bsuite's stochastic DeepSea, with the frequencies observed so far in the backup.

A cell: median first episode that found the treasure / median episode by which a tenth of all had found it (range over
seeds; how many seeds where not all). "visits" is a heuristic for the visits of every pair that are needed before the
farthest unvisited pair stands out: see `visits_needed`.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bayes_mdp.envs.papers.chain_mdps import COST
from bayes_mdp.experiments.rollout.execute import first_visit, time_to_solve

BATCH, STEPS, LAG, REPLAY, STARTS = 128, 4, 4, 50_000, 16  # as `DeepUBE` and `neural_deep_sea.py` have them


@dataclass(frozen=True)
class Rule:
    """Numbers of `DeepUBE` and `UnitPrior`; U = q_max^2 = 1.

    Args:
        noise, reward_noise, threshold: of the belief (`UnitPrior`).
        local_scale, discount, beta: of `DeepUBE`.
        step: None: exact backups. Else learnt from replay, by this share of the error.
        stochastic: bsuite's stochastic DeepSea, by exact backups.
    """

    noise: float = 0.005
    reward_noise: float = 1.0
    threshold: float = 0.001
    local_scale: float = 0.1
    discount: float = 0.99
    beta: float = 1.5
    step: float | None = None
    stochastic: bool = False

    def share(self, count: np.ndarray, mean_square: np.ndarray) -> np.ndarray:
        """kappa after so many visits with rewards of this mean square."""
        noise = self.noise + self.reward_noise * mean_square / (mean_square + self.threshold)
        return noise / (noise + count)

    def uncertainty(self, kappa: np.ndarray, w: np.ndarray) -> np.ndarray:
        """u = min(nu + gamma^2 (kappa + (1 - kappa) w), 1)."""
        future = kappa + (1 - kappa) * np.clip(w, 0.0, 1.0)
        return np.minimum(self.local_scale * kappa + self.discount**2 * future, 1.0)

    def visits_needed(self, size: int) -> float:
        """n at which u of visited pairs along an episode is that of one unvisited pair at its end. A heuristic.

        N pairs with n visits each, kappa about noise / n, have u about kappa (1 - gamma^2N) / (1 - gamma^2); an
        unvisited pair after N steps has gamma^2N. They are equal at n = noise (gamma^-2N - 1) / (1 - gamma^2).
        """
        square = self.discount**2
        steps = size if square == 1 else (square**-size - 1) / (1 - square)
        return self.noise * steps


def visits_of(rule: Rule, size: int, seed: int, finds: int) -> np.ndarray:
    """The pairs that `exact` visits until it has found the treasure so often, or in a tenth of all episodes.

    A pair is 2 (row N + column) + action.
    """
    pairs: list[int] = []
    exact(rule, size, seed, 10_000, lambda row, column, action: pairs.append(2 * (row * size + column) + action))
    # Whole episodes, up to the one of that find.
    ends = np.array(pairs).reshape(-1, size)[:, -1] == 2 * size**2 - 1
    last = np.searchsorted(np.cumsum(ends), finds)
    return np.array(pairs[: size * (int(last) + 1)])


def exact(
    rule: Rule, size: int, seed: int, episodes: int, seen: Callable[[int, int, int], object] = lambda *_: None
) -> np.ndarray:
    """Which episodes found the treasure; Q and w backed up to convergence before each. `seen` is told every step."""
    rng = np.random.default_rng(seed)
    column = np.arange(size)
    left, right = np.maximum(column - 1, 0), np.minimum(column + 1, size - 1)
    count, total, square = np.zeros((3, size, size, 2))
    slips = np.zeros((size, size))
    start = 1e-3 * rng.normal(size=(size, size, 2))  # Q of what was never tried: breaks ties
    hits = np.zeros(episodes, bool)
    for episode in range(episodes):
        tried = np.maximum(count, 1)
        kappa, slip = rule.share(count, square / tried), slips / tried[..., 1]
        reward = (1 - kappa) * total / tried
        value = np.empty((size, size, 2))
        # Backwards over rows: the rows below are final, so one sweep is the fixed point.
        q_next = u_next = np.zeros(size)
        for row in reversed(range(size)):
            q_later, u_later = (
                np.stack([v[left], (1 - slip[row]) * v[right] + slip[row] * v], 1) for v in (q_next, u_next)
            )
            q = np.where(count[row] > 0, reward[row] + rule.discount * q_later, start[row])
            u = rule.uncertainty(kappa[row], u_later)
            value[row] = q + rule.beta * np.sqrt(u)
            # Q is the maximum over actions, u that of the optimistic one.
            q_next, u_next = q.max(1), u[column, value[row].argmax(1)]
        at = 0
        for row in range(size):
            action = int(value[row, at].argmax())
            slipped = rule.stochastic and action == 1 and rng.random() < 1 / size
            treasure = row == at == size - 1 and action == 1
            pay = treasure - action * COST / size
            if rule.stochastic and row == size - 1 and at in (0, size - 1):
                pay += rng.normal()
            seen(row, at, action)
            count[row, at, action] += 1
            total[row, at, action] += pay
            square[row, at, action] += pay**2
            slips[row, at] += slipped
            hits[episode] |= treasure
            at = at if slipped else int(right[at] if action else left[at])
        if hits.sum() >= 0.1 * (episode + 1):
            return hits[: episode + 1]
    return hits


def replayed(rule: Rule, size: int, seed: int, episodes: int) -> np.ndarray:
    """The same with Q and w learnt from replay, deterministic DeepSea. A pair is 2 (row N + column) + action."""
    assert rule.step is not None
    rng = np.random.default_rng(seed)
    row, column = np.divmod(np.arange(size**2), size)
    below = np.stack([np.maximum(column - 1, 0), np.minimum(column + 1, size - 1)], 1) + (size * (row + 1))[:, None]
    last = np.repeat(row == size - 1, 2)
    following = np.where(last, 0, below.reshape(-1))
    pay = np.tile([0.0, -COST / size], size**2)
    pay[-1] += 1
    count, kappa = np.zeros(2 * size**2), np.ones(2 * size**2)
    by_cell = kappa.reshape(-1, 2)  # the same memory
    q, w = 1e-3 * rng.normal(size=2 * size**2), np.ones(2 * size**2)
    q_target, w_target = q.copy(), w.copy()
    memory, hits, made, descents = np.zeros(REPLAY, int), np.zeros(episodes, bool), 0, 0
    for episode in range(episodes):
        at = 0
        for _ in range(size):
            own = slice(2 * at, 2 * at + 2)
            pair = 2 * at + int(np.argmax(q[own] + rule.beta * np.sqrt(rule.uncertainty(kappa[own], w[own]))))
            count[pair] += 1
            kappa[pair] = rule.share(count[pair], pay[pair] ** 2)
            memory[made % REPLAY] = pair
            made += 1
            hits[episode] |= pair == 2 * size**2 - 1
            at = following[pair]
            if made <= STARTS:
                continue
            ages = rng.integers(0, min(made - 1, REPLAY - 1), (STEPS, BATCH))
            for batch in memory[(made - 2 - ages) % REPLAY]:
                later = following[batch]
                q_next, u_next = (
                    q_target.reshape(-1, 2)[later],
                    rule.uncertainty(by_cell[later], w_target.reshape(-1, 2)[later]),
                )
                best = np.argmax(q_next + rule.beta * np.sqrt(u_next), 1)
                goes_on = ~last[batch]
                aim_q = (1 - kappa[batch]) * pay[batch] + rule.discount * goes_on * q_next.max(1)
                aim_w = goes_on * u_next[np.arange(BATCH), best]
                # A pair that was drawn twice has the same target and takes one step.
                q[batch] += rule.step * (aim_q - q[batch])
                w[batch] += rule.step * (aim_w - w[batch])
                descents += 1
                if descents % LAG == 0:
                    q_target, w_target = q.copy(), w.copy()
        if hits[: episode + 1].sum() >= 0.1 * (episode + 1):
            return hits[: episode + 1]
    return hits


BASE = Rule()
ROWS: dict[str, Rule] = {
    "exact, noise .02": replace(BASE, noise=0.02),
    "exact, noise .005": BASE,
    "exact, noise .0031": replace(BASE, noise=0.0031),
    "exact, noise .001": replace(BASE, noise=0.001),
    "exact, .02, discount .995": replace(BASE, noise=0.02, discount=0.995),
    "exact, .02, beta .5": replace(BASE, noise=0.02, beta=0.5),
    "exact, .0031, beta .5": replace(BASE, noise=0.0031, beta=0.5),
    "replay, noise .02": replace(BASE, noise=0.02, step=1.0),
    "replay, noise .005": replace(BASE, step=1.0),
    "replay, .02, steps of .1": replace(BASE, noise=0.02, step=0.1),
    "replay, .005, steps of .1": replace(BASE, step=0.1),
    "replay, .0031, steps of .1": replace(BASE, noise=0.0031, step=0.1),
    "stochastic, noise .02": replace(BASE, noise=0.02, stochastic=True),
    "stochastic, noise .005": replace(BASE, stochastic=True),
    "stochastic, noise .001": replace(BASE, noise=0.001, stochastic=True),
}


def cell(rule: Rule, size: int, seeds: int, episodes: int) -> str:
    """Of the table."""
    play = exact if rule.step is None else replayed
    runs = [play(rule, size, seed, episodes) for seed in range(seeds)]
    first, solved = (np.array([float(f(run)) for run in runs]) for f in (first_visit, time_to_solve))
    low, high = (_number(f(np.nan_to_num(solved, nan=np.inf))) for f in (np.min, np.max))
    found = int(np.isfinite(solved).sum())
    return f"{_median(first)} / {_median(solved)} ({low}-{high}{'' if found == seeds else f'; {found} of {seeds}'})"


def _median(episodes: np.ndarray) -> str:
    return _number(float(np.median(np.nan_to_num(episodes, nan=np.inf))))


def _number(x: float) -> str:
    return f"{x:.0f}" if np.isfinite(x) else "-"


def main(write: Callable[[str], object] = print) -> None:
    """Row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 20, 50, 100])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=1_500, help="of a seed, at most")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME", help=", ".join(ROWS))
    args = parser.parse_args()
    for name in args.rows:
        for size in args.sizes:
            rule = ROWS[name]
            text = cell(rule, size, args.seeds, args.episodes)
            write(f"{name:<28} N = {size:<4} visits {rule.visits_needed(size):<6.2f} {text}")


if __name__ == "__main__":
    main()
