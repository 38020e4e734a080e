"""What the collapsed posterior of the hierarchical ready priors must be: numpy and scipy alone, S = 3, A = 2.

For each prior: the log density of its hyperparameters and of the data given them; and the posterior of the
hyperparameters by the trapezoidal rule on a grid (exponentially accurate for smooth integrands that vanish at the
ends), or over all clusterings of the states.
"""

# scipy types a frozen law as any: discrete, continuous.
# pyright: reportAttributeAccessIssue=false

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.special import log_softmax, logsumexp

from bayes_mdp.models import clustered_states, feature_dynamics, shared_rewards, sticky, unknown_concentration
from tests.inference.collapsed_marginals import (
    COUNTS,
    PAIRS,
    REWARDS,
    SEEN,
    A,
    S,
    Seen,
    all_normal_gamma_rewards,
    all_normal_rewards,
    all_rows,
    dirichlet_multinomial,
    mean_normal,
    mean_normal_gamma,
    mean_rows,
    normal_gamma_rewards,
    normal_rewards_by_moments,
)

DISTANCE = np.arange(S)[None, :] - np.arange(S)[:, None]
FEATURES = np.stack([np.abs(DISTANCE), DISTANCE], -1)[:, None].astype(float)  # [S 1 S 2]


class Moments(NamedTuple):
    """Posterior expectations.

    Args:
        log_evidence: log p(data).
        mean, variance: of each functional of the hyperparameters (see `functionals`).
        rows: [S A S], mean transition probabilities.
        reward: [S A], mean of the mean rewards.
    """

    log_evidence: float
    mean: dict[str, Any]
    variance: dict[str, Any]
    rows: np.ndarray
    reward: np.ndarray


class Case(NamedTuple):
    """A prior and its oracle.

    Args:
        prior: the program.
        shapes: {site: shape} of its hyperparameters.
        log_prior: values -> log density of the hyperparameters.
        log_marginal: (values, what was seen) -> log density of the data given them.
        functionals: values -> label-free numbers, positive hyperparameters as logarithms.
        means: values -> [S A S] mean transition probabilities and [S A] mean rewards after `DATA`.
        moments: the posterior.
    """

    prior: Any
    shapes: dict[str, tuple[int, ...]]
    log_prior: Callable[[dict[str, Any]], float]
    log_marginal: Callable[[dict[str, Any], Seen], float]
    functionals: Callable[[dict[str, Any]], dict[str, Any]]
    means: Callable[[dict[str, Any]], tuple[np.ndarray, np.ndarray]]
    moments: Callable[[], Moments]


def weigh(log_weights: np.ndarray, cell: float) -> tuple[float, np.ndarray]:
    """Log integral over a grid whose points stand for a volume `cell` each, and the weights of the points."""
    total = logsumexp(log_weights)
    return float(total + np.log(cell)), np.exp(log_weights - total)


def spread(weights: np.ndarray, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Mean and variance of numbers on a grid."""
    mean = {name: float(np.sum(weights * x)) for name, x in values.items()}
    return mean, {name: float(np.sum(weights * (x - mean[name]) ** 2)) for name, x in values.items()}


def average(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean of arrays on a flat grid [G]."""
    return np.tensordot(weights, values, axes=1)


# --- unknown_concentration, sticky: one dimension --------------------------------------------------------------------

LINE = np.linspace(-24.0, 6.0, 6001)


def one_dimension(name: str, law: Any, rows: Callable[[Any], np.ndarray]) -> Moments:
    """Posterior of a positive hyperparameter `name` with hyperprior `law` and concentrations `rows` of it."""
    value = np.exp(LINE)
    concentration = rows(value[:, None, None, None])
    log_weights = law.logpdf(value) + LINE + dirichlet_multinomial(concentration, COUNTS).sum((-2, -1))
    log_evidence, weights = weigh(log_weights, LINE[1] - LINE[0])
    mean, variance = spread(weights, {f"log_{name}": LINE})
    reward = mean_normal_gamma(np.zeros(S))
    return Moments(
        log_evidence + all_normal_gamma_rewards(SEEN),
        mean,
        variance,
        average(weights, mean_rows(concentration)),
        reward,
    )


def equal_rows(value: Any) -> np.ndarray:
    """Concentrations [... S A S] of `unknown_concentration`."""
    return value * np.ones((S, A, S))


def sticky_rows(value: Any) -> np.ndarray:
    """Concentrations [... S A S] of `sticky`."""
    return 0.5 + value * np.broadcast_to(np.eye(S)[:, None, :], (S, A, S))


# --- shared_rewards: three dimensions --------------------------------------------------------------------------------


def _shared_moments() -> Moments:
    axes = [np.linspace(-25.0, 25.0, 161), np.linspace(-12.0, 4.5, 111), np.linspace(-2.0, 2.0, 81)]
    loc, log_scale, log_noise = np.meshgrid(*axes, indexing="ij", sparse=True)
    scale, noise = np.exp(log_scale), np.exp(log_noise)
    log_weights = stats.norm(0, 5).logpdf(loc) + stats.halfnorm(scale=5).logpdf(scale) + log_scale
    log_weights = log_weights + stats.halfnorm(scale=5).logpdf(noise) + log_noise
    for rewards in REWARDS.values():
        log_weights = log_weights + normal_rewards_by_moments(rewards, loc, scale, noise)
    log_evidence, weights = weigh(log_weights, float(np.prod([axis[1] - axis[0] for axis in axes])))
    mean, variance = spread(weights, {"reward_loc": loc, "log_reward_scale": log_scale, "log_noise_scale": log_noise})

    cells = [np.sum(weights * mean_normal(REWARDS[pair], loc, scale, noise)) for pair in PAIRS]
    reward = np.reshape(cells, (S, A))
    return Moments(log_evidence + all_rows(SEEN, 1.0), mean, variance, mean_rows(np.ones((S, A, S))), reward)


# --- feature_dynamics: three dimensions ------------------------------------------------------------------------------


def feature_rows(coefficients: Any, strength: Any) -> np.ndarray:
    """Concentrations [... S A S]."""
    mean = np.exp(log_softmax(np.einsum("saof,...f->...sao", FEATURES, np.asarray(coefficients)), axis=-1))
    return np.broadcast_to(np.asarray(strength)[..., None, None, None] * mean, (*mean.shape[:-3], S, A, S))


def _feature_moments() -> Moments:
    slope, line = np.linspace(-4.5, 4.5, 46), np.linspace(-4.0, 5.0, 46)
    first, second, log_strength = (x.ravel() for x in np.meshgrid(slope, slope, line, indexing="ij"))
    concentration = feature_rows(np.stack([first, second], -1), np.exp(log_strength))
    log_weights = stats.norm.logpdf(first) + stats.norm.logpdf(second)
    log_weights += stats.norm.logpdf(log_strength) + dirichlet_multinomial(concentration, COUNTS).sum((-2, -1))
    log_evidence, weights = weigh(log_weights, (slope[1] - slope[0]) ** 2 * (line[1] - line[0]))
    mean, variance = spread(weights, {"slope_0": first, "slope_1": second, "log_strength": log_strength})
    rows, reward = average(weights, mean_rows(concentration)), mean_normal_gamma(np.zeros(S))
    return Moments(log_evidence + all_normal_gamma_rewards(SEEN), mean, variance, rows, reward)


# --- clustered_states: 2^S clusterings, two independent lines in each cluster ----------------------------------------

PLACE = np.linspace(-25.0, 25.0, 2001)


def _cluster_moments() -> Moments:
    """Given the clustering the integrals over concentrations and locations are apart, cluster by cluster."""
    value = np.exp(LINE)
    rows = dirichlet_multinomial(equal_rows(value[:, None, None, None]), COUNTS).sum(-1)  # [G S]
    rewards = np.stack([sum(normal_gamma_rewards(REWARDS[s, a], PLACE) for a in range(A)) for s in range(S)], -1)
    prior = stats.norm.logpdf(LINE), stats.norm(0, 5).logpdf(PLACE)
    functionals, log_weights, means_of_rows, means_of_rewards = [], [], [], []
    for labels in itertools.product(range(2), repeat=S):
        label, total = np.array(labels), S * np.log(0.5)
        line, place = np.zeros((S, len(LINE))), np.zeros((S, len(PLACE)))
        for k in range(2):
            of_rows, line[label == k] = weigh(prior[0] + rows[:, label == k].sum(-1), LINE[1] - LINE[0])
            of_rewards, place[label == k] = weigh(prior[1] + rewards[:, label == k].sum(-1), PLACE[1] - PLACE[0])
            total += of_rows + of_rewards
        log_weights.append(total)
        together = {f"together_{s}{t}": float(label[s] == label[t]) for s, t in ((0, 1), (0, 2), (1, 2))}
        # mean and mean square of what a state's own cluster has
        own = {f"log_concentration_{s}": (line[s] @ LINE, line[s] @ LINE**2) for s in range(S)}
        own |= {f"loc_{s}": (place[s] @ PLACE, place[s] @ PLACE**2) for s in range(S)}
        functionals.append({name: (x, x) for name, x in together.items()} | own)
        after = mean_rows(equal_rows(value[:, None, None, None]))
        means_of_rows.append(np.stack([average(line[s], after[:, s]) for s in range(S)]))
        means_of_rewards.append(mean_normal_gamma(place @ PLACE))
    log_evidence, weights = weigh(np.array(log_weights), 1.0)
    mean = {name: float(weights @ [f[name][0] for f in functionals]) for name in functionals[0]}
    square = {name: float(weights @ [f[name][1] for f in functionals]) for name in functionals[0]}
    variance = {name: square[name] - mean[name] ** 2 for name in mean}
    return Moments(
        log_evidence,
        mean,
        variance,
        average(weights, np.array(means_of_rows)),
        average(weights, np.array(means_of_rewards)),
    )


def _cluster_functionals(v: dict[str, Any]) -> dict[str, Any]:
    label = np.ravel(v["cluster"])
    found = {f"together_{s}{t}": float(label[s] == label[t]) for s, t in ((0, 1), (0, 2), (1, 2))}
    found |= {f"log_concentration_{s}": float(np.log(v["cluster_concentration"][label[s]])) for s in range(S)}
    return found | {f"loc_{s}": float(v["cluster_loc"][label[s]]) for s in range(S)}


# --- the five cases --------------------------------------------------------------------------------------------------

WIDE, WEIGHT, POSITIVE = stats.norm(0, 5), stats.lognorm(1.0), stats.halfnorm(scale=5)


def mean_normal_rewards(v: dict[str, Any]) -> np.ndarray:
    """Of all cells of `shared_rewards`."""
    cells = [mean_normal(REWARDS[pair], v["reward_loc"], v["reward_scale"], v["noise_scale"]) for pair in PAIRS]
    return np.reshape(cells, (S, A))


def cluster_rows(v: dict[str, Any]) -> np.ndarray:
    """Concentrations [S A S] of `clustered_states`."""
    return np.asarray(v["cluster_concentration"])[np.ravel(v["cluster"])][:, None, None] * np.ones((S, A, S))


def cluster_locs(v: dict[str, Any]) -> np.ndarray:
    """Locations [S] of `clustered_states`."""
    return np.asarray(v["cluster_loc"])[np.ravel(v["cluster"])]


CASES: dict[str, Case] = {
    "unknown_concentration": Case(
        unknown_concentration(),
        {"concentration": ()},
        lambda v: WEIGHT.logpdf(v["concentration"]),
        lambda v, seen: all_rows(seen, equal_rows(v["concentration"])) + all_normal_gamma_rewards(seen),
        lambda v: {"log_concentration": np.log(v["concentration"])},
        lambda v: (mean_rows(equal_rows(v["concentration"])), mean_normal_gamma(np.zeros(S))),
        lambda: one_dimension("concentration", WEIGHT, equal_rows),
    ),
    "sticky": Case(
        sticky(),
        {"stickiness": ()},
        lambda v: POSITIVE.logpdf(v["stickiness"]),
        lambda v, seen: all_rows(seen, sticky_rows(v["stickiness"])) + all_normal_gamma_rewards(seen),
        lambda v: {"log_stickiness": np.log(v["stickiness"])},
        lambda v: (mean_rows(sticky_rows(v["stickiness"])), mean_normal_gamma(np.zeros(S))),
        lambda: one_dimension("stickiness", POSITIVE, sticky_rows),
    ),
    "shared_rewards": Case(
        shared_rewards(),
        {"reward_loc": (), "reward_scale": (), "noise_scale": ()},
        lambda v: WIDE.logpdf(v["reward_loc"]) + POSITIVE.logpdf(v["reward_scale"]) + POSITIVE.logpdf(v["noise_scale"]),
        lambda v, seen: all_rows(seen, 1.0) + all_normal_rewards(seen, v),
        lambda v: {
            "reward_loc": v["reward_loc"],
            "log_reward_scale": np.log(v["reward_scale"]),
            "log_noise_scale": np.log(v["noise_scale"]),
        },
        lambda v: (mean_rows(np.ones((S, A, S))), mean_normal_rewards(v)),
        _shared_moments,
    ),
    "clustered_states": Case(
        clustered_states(),
        {"cluster_concentration": (2,), "cluster_loc": (2,), "cluster": (S, 1)},
        lambda v: WEIGHT.logpdf(v["cluster_concentration"]).sum() + WIDE.logpdf(v["cluster_loc"]).sum() - S * np.log(2),
        lambda v, seen: all_rows(seen, cluster_rows(v)) + all_normal_gamma_rewards(seen, cluster_locs(v)),
        _cluster_functionals,
        lambda v: (mean_rows(cluster_rows(v)), mean_normal_gamma(cluster_locs(v))),
        _cluster_moments,
    ),
    "feature_dynamics": Case(
        feature_dynamics(FEATURES),
        {"coefficients": (2,), "strength": ()},
        lambda v: stats.norm.logpdf(v["coefficients"]).sum() + WEIGHT.logpdf(v["strength"]),
        lambda v, seen: all_rows(seen, feature_rows(v["coefficients"], v["strength"])) + all_normal_gamma_rewards(seen),
        lambda v: {
            "slope_0": v["coefficients"][0],
            "slope_1": v["coefficients"][1],
            "log_strength": np.log(v["strength"]),
        },
        lambda v: (mean_rows(feature_rows(v["coefficients"], v["strength"])), mean_normal_gamma(np.zeros(S))),
        _feature_moments,
    ),
}


def draw(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """Random values of the hyperparameters of a case, away from the edges of their supports."""
    real = ("reward_loc", "cluster_loc", "coefficients")
    values: dict[str, Any] = {}
    for site, shape in CASES[name].shapes.items():
        if site == "cluster":
            values[site] = rng.integers(2, size=shape)
        else:
            values[site] = rng.normal(size=shape) if site in real else rng.uniform(0.2, 4.0, shape)
    return values
