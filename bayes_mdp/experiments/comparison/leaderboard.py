"""Which agent is better, from few seeds on few problems: aggregates of normalised scores with intervals.

After Agarwal, Schwarzer, Castro, Courville and Bellemare, "Deep reinforcement learning at the edge of the statistical
precipice" (2021): runs of all problems are pooled; the interquartile mean is less noisy than the median and less
sensitive to a few runs than the mean; intervals by a bootstrap that resamples the seeds of each problem. Plain numpy.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.validation import as_real, check_count, check_dataset, check_key, check_number, require

if TYPE_CHECKING:
    import xarray as xr

NUM_RESAMPLES, LEVEL = 2000, 0.95
STATISTICS = ("iqm", "mean", "median", "optimality_gap")
THRESHOLDS = np.linspace(-0.25, 1.05, 131)


class Sorted(NamedTuple):
    """The runs of an agent in order: `values` [M], and the rank of each in its table of problems and seeds, `order`."""

    values: Float[np.ndarray, " M"]
    order: Int[np.ndarray, " M"]


def interquartile_mean(scores: Float[np.ndarray, "..."]) -> float:
    """The mean of all but the lowest and the highest quarter of M scores: floor(M / 4) are left out on either side.

    It has the unit of `scores`.

    Args:
        scores: M numbers of one unit, in an array of any shape.

    Raises:
        ValueError: no scores, or one that is not finite.
        TypeError: scores that are no numbers.
    """
    flat = np.asarray(as_real("scores", scores), np.float64).ravel()
    require(~np.isfinite(flat), "scores", flat, "a finite number")
    if not flat.size:
        raise ValueError("scores is empty, expected at least one")
    return float(_trimmed(_sorted(flat), np.ones((1, flat.size)), flat.size // 4)[0])


def resamples(
    generator: np.random.Generator, num_resamples: int, num_envs: int, num_seeds: int
) -> Float[np.ndarray, "R E N"]:
    """How often each seed of each problem is in each bootstrap sample, which has N seeds of every problem."""
    drawn = generator.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), (num_resamples, num_envs))
    return drawn.astype(np.float64)


def aggregates(scores: Float[np.ndarray, "E N"], weights: Float[np.ndarray, "R E N"]) -> Float[np.ndarray, "R 4"]:
    """The `STATISTICS` of bootstrap samples: interquartile mean, mean, median, mean of 1 - min(score, 1)."""
    flat, by_run = scores.ravel(), weights.reshape(len(weights), -1)
    runs, size = _sorted(flat), flat.size
    mean = by_run @ flat / size
    gap = by_run @ (1.0 - np.minimum(flat, 1.0)) / size
    return np.stack([_trimmed(runs, by_run, size // 4), mean, _trimmed(runs, by_run, (size - 1) // 2), gap], 1)


def _sorted(flat: Float[np.ndarray, " M"]) -> Sorted:
    order = np.argsort(flat, kind="stable")
    return Sorted(flat[order], order)


def _trimmed(runs: Sorted, weights: Float[np.ndarray, "R M"], cut: int) -> Float[np.ndarray, " R"]:
    """Means without the `cut` lowest and highest, of samples that hold each run `weights` times (M runs in all)."""
    size = len(runs.values)
    # Runs below each place of the pooled order, clipped: their differences are the runs kept of each value.
    upto = np.clip(np.cumsum(weights[:, runs.order], 1), cut, size - cut)
    inside = np.diff(upto, axis=1, prepend=cut)
    return inside @ runs.values / (size - 2 * cut)


def mean_ranks(means: Float[np.ndarray, "R A E"]) -> Float[np.ndarray, "R A"]:
    """The rank of each agent by its mean score, 1 the best, ties shared, averaged over the problems."""
    # Rank = 1 + number of better agents + half the number of other agents that are equal.
    other, own = means[:, None, :, :], means[:, :, None, :]
    better, equal = (other > own).sum(2), (other == own).sum(2)
    return (1.0 + better + (equal - 1) / 2).mean(-1)


def improvement(ours: Float[np.ndarray, "E N"], theirs: Float[np.ndarray, "E N"]) -> Float[np.ndarray, "E N N"]:
    """1 where a run of ours is better than one of theirs on the same problem, 1/2 where they are equal, else 0.

    Its mean over a problem is the statistic of Mann and Whitney, an estimate of P(X > Y) + P(X = Y) / 2.
    """
    one, other = ours[:, :, None], theirs[:, None, :]
    return (one > other) + 0.5 * (one == other)


def performance_profile(
    scores: Float[np.ndarray, "E N"], weights: Float[np.ndarray, "R E N"], thresholds: Float[np.ndarray, " T"]
) -> Float[np.ndarray, "R T"]:
    """The fraction of runs with a score above each threshold, of bootstrap samples."""
    above = scores.reshape(-1, 1) > thresholds
    return weights.reshape(len(weights), -1) @ above / scores.size


def leaderboard(
    result: "xr.Dataset", *, key: PRNGKeyArray, num_resamples: int = NUM_RESAMPLES, level: float = LEVEL
) -> "xr.Dataset":
    """The statistics of scores, with percentile intervals of a stratified bootstrap. Host side.

    Problems whose scores are unknown for all agents do not count. An agent that did not play every problem that counts
    is not ranked: its statistics are nan. A bootstrap sample has the same seeds for all agents, as the agents of
    `compare` get the same random numbers.

    Args:
        result: with `score` [agent, env, seed].
        key: a typed key, of the bootstrap.
        num_resamples: of the bootstrap.
        level: of the intervals; with few seeds they cover the truth less often (.95 and 10 seeds: about .90).

    Returns:
        A Dataset, everything with `_low` and `_high` but for `best` and `improvement`:

        * `aggregate` [agent, statistic]: see `STATISTICS`;
        * `rank` [agent]: by the mean score on a problem, 1 the best, averaged over problems;
        * `best` [agent]: in how many bootstrap samples its interquartile mean is the largest (ties shared);
        * `improvement` [agent, other]: P(X > Y) + P(X = Y) / 2 for runs X, Y on a problem, averaged over problems;
        * `profile` [agent, threshold]: the fraction of runs with a score above the threshold, bands pointwise.

    Raises:
        ValueError, TypeError: no typed key, a count below 1, a level outside (0, 1).
    """
    import xarray as xr

    check_dataset("result", result, "score")
    check_key("key", key)
    check_count("num_resamples", num_resamples)
    check_number("level", level, lambda x: 0.0 < x < 1.0, "a number between 0 and 1")
    scores = result["score"].to_numpy().astype(np.float64)
    counts = np.isfinite(scores).any((0, 2))
    ranked = np.asarray(np.isfinite(scores[:, counts]).all((1, 2)) & counts.any())
    weights = resamples(host_generator(key), num_resamples, int(counts.sum()), scores.shape[2])
    tables = _tables(scores[np.ix_(ranked, counts)], weights, level) if ranked.any() else {}
    found = {}
    for name, (axes, shape) in _axes(len(ranked)).items():
        whole = np.full(shape, np.nan)
        if name in tables:
            whole[np.ix_(ranked, ranked) if "other" in axes else ranked] = tables[name]
        found[name] = (axes, whole)
    return xr.Dataset(
        found,
        {
            "agent": result["agent"],
            "other": ("other", result["agent"].to_numpy()),
            "statistic": list(STATISTICS),
            "threshold": THRESHOLDS,
        },
        {"num_resamples": num_resamples, "level": level},
    )


def _axes(num_agents: int) -> dict[str, tuple[tuple[str, ...], tuple[int, ...]]]:
    """Dimensions and shape of every variable."""
    kept = {"aggregate": ("statistic", len(STATISTICS)), "profile": ("threshold", len(THRESHOLDS))}
    found: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {}
    for ending in ("", "_low", "_high"):
        found["rank" + ending] = ("agent",), (num_agents,)
        found |= {name + ending: (("agent", axis), (num_agents, size)) for name, (axis, size) in kept.items()}
    return found | {"best": (("agent",), (num_agents,)), "improvement": (("agent", "other"), (num_agents,) * 2)}


def _tables(
    scores: Float[np.ndarray, "A E N"], weights: Float[np.ndarray, "R E N"], level: float
) -> dict[str, np.ndarray]:
    """The variables of `leaderboard` for agents that are ranked. One agent at a time: samples of all are large."""
    once = np.ones((1, *weights.shape[1:]))
    tails = (1 - level) / 2, (1 + level) / 2
    found: dict[str, list[np.ndarray]] = {}
    drawn, means = [], []

    def keep(name: str, one: np.ndarray, samples: np.ndarray) -> None:
        low, high = np.quantile(samples, tails, axis=0)
        for ending, value in (("", one[0]), ("_low", low), ("_high", high)):
            found.setdefault(name + ending, []).append(value)

    # `ones` as weights gives the statistic itself, the resamples its bootstrap distribution.
    for own in scores:
        samples = aggregates(own, weights)
        drawn.append(samples[:, 0])
        means.append(np.einsum("en,ren->re", own, weights) / own.shape[1])
        keep("aggregate", aggregates(own, once), samples)
        keep("profile", *(performance_profile(own, w, THRESHOLDS) for w in (once, weights)))
    # One index of resamples for all agents: ranks and the share of wins compare the same samples.
    iqm, exact = np.stack(drawn, 1), scores.mean(-1)
    largest = iqm == iqm.max(1, keepdims=True)
    parts = np.array_split(np.stack(means, 1), max(1, len(weights) // 100))  # of all at once the tables are large
    ranks = np.concatenate([mean_ranks(part) for part in parts])
    low, high = np.quantile(ranks, tails, axis=0)
    pairs = [[improvement(own, other).mean() for other in scores] for own in scores]
    return {name: np.stack(values) for name, values in found.items()} | {
        "rank": mean_ranks(exact[None])[0],
        "rank_low": low,
        "rank_high": high,
        "best": (largest / largest.sum(1, keepdims=True)).mean(0),
        "improvement": np.array(pairs),
    }
