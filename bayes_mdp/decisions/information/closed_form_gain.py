"""Expected gains without random points: normal differences, lines in one site, sums over data sets, quadrature."""

import itertools
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from scipy import stats

from bayes_mdp.decisions.information.learning_problem import Gain, LearningProblem
from bayes_mdp.decisions.strategies.site_law import SiteLaw
from bayes_mdp.inference.detection.degrees import HIGHER

MOST_DATA_SETS = 200_000
"""Data sets that are summed over one by one."""
MOST_WITH_QUADRATURE = 256
"""The same, with a quadrature for each."""
LEVELS = range(5, 14)
"""Powers of two of the nodes that quadrature tries."""
PRECISE = 1e-9
"""Relative change at which quadrature stops."""
CALLED_EXACT = 1e-6
"""Relative change up to which its result is called exact."""


def closed_form_gain(problem: LearningProblem) -> Gain | None:
    """Exact sums, normal differences, lines and quadrature; None: the integral has too many dimensions."""
    atoms, enumerated = {}, 1
    continuous: dict[str, SiteLaw] = dict(problem.perfect)
    for name, studied in problem.means.items():
        normal = studied.mean_law()
        found = None if normal is not None else studied.enumerated(MOST_DATA_SETS)
        if found is not None:
            after, chances = found
            atoms[name] = (after.mean(), chances)
            enumerated *= len(chances)
        elif normal is not None:
            continuous[name] = normal
        else:
            return None
    # A law without width (a study of size 0) is its mean.
    for name, law in list(continuous.items()):
        if law.family == "Normal" and not np.any(law.parameters["scale"]):
            atoms[name] = (law.mean()[None], np.ones(1))
            del continuous[name]
    if enumerated > MOST_DATA_SETS:
        return None
    normal = all(law.family in ("Normal", "MultivariateNormal") for law in continuous.values())
    if continuous and normal and not atoms and len(problem.model.strategies) == 2:
        gain = _of_normals(problem, continuous)
        if gain is not None:
            return gain
    if any(law.size > 1 for law in continuous.values()) or len(continuous) > 2:
        return None
    # The last site is integrated in closed form, where net benefits are lines in it; the other one by quadrature.
    lines = [name for name in continuous if problem.degrees[name] < HIGHER]
    line = lines[-1] if lines else None
    others = [name for name in continuous if name != line]
    if len(others) > 1 or (others and enumerated > MOST_WITH_QUADRATURE):
        return None
    return _by_sums(
        problem, atoms, {n: continuous[n] for n in others}, None if line is None else (line, continuous[line])
    )


def _of_normals(problem: LearningProblem, laws: Mapping[str, SiteLaw]) -> Gain | None:
    """Two strategies whose difference is affine in normal sites: it is normal."""
    if not problem.model.jointly_affine(laws):
        return None
    means = {name: law.mean() for name, law in laws.items()}
    variance, difference = 0.0, 0.0
    for name, law in laws.items():
        # Slopes by unit steps: exact, as the difference is affine.
        steps = np.eye(law.size).reshape(law.size, *law.shape)
        values = {n: np.broadcast_to(m, (law.size + 1, *m.shape)) for n, m in means.items()}
        values = {**values, name: np.concatenate([means[name][None], means[name] + steps])}
        benefit = problem.net_benefits(values, law.size + 1)
        gap = benefit[:, 0] - benefit[:, 1]
        difference, slopes = float(gap[0]), (gap[1:] - gap[0]).reshape(law.shape)
        if law.family == "Normal":
            variance += float(np.sum((slopes * law.parameters["scale"]) ** 2))
        else:
            spread = np.einsum("...ij,...i->...j", law.parameters["scale_tril"], slopes)
            variance += float(np.sum(spread**2))
    sd, best = np.sqrt(variance), int(difference < 0)
    if not sd:
        return Gain(0.0, 0.0, 0.0, best, "exact", "no net benefit depends on it")
    z = abs(difference) / sd
    value = sd * (stats.norm.pdf(z) - z * stats.norm.sf(z))
    return Gain(float(value), 0.0, 0.0, best, "exact", "the difference of the two net benefits is normal, closed form")


def _by_sums(
    problem: LearningProblem,
    atoms: Mapping[str, tuple[np.ndarray, np.ndarray]],
    others: Mapping[str, SiteLaw],
    line: tuple[str, SiteLaw] | None,
) -> Gain:
    """A sum over data sets, quadrature over at most one site, and lines in at most one more."""
    best = best_at_means(problem)
    names = list(atoms)
    pairs = list(itertools.product(*(range(len(chances)) for _, chances in atoms.values())))
    index = np.array(pairs, int).reshape(len(pairs), len(names))
    chance = np.ones(len(pairs))
    points: dict[str, np.ndarray] = {}
    for k, name in enumerate(names):
        values, chances = atoms[name]
        points[name] = values[index[:, k]]
        chance = chance * chances[index[:, k]]
    what = f"sum over {len(pairs)} data sets" if names else ""
    if not others:
        gain = _mean_gain(problem, best, points, chance, line)
        reason = ", ".join(filter(None, [what, line and "closed form of lines"]))
        return Gain(max(gain, 0.0), 0.0, 0.0, best, "exact", reason)
    ((name, law),) = others.items()
    last, change, gain = np.inf, np.inf, 0.0
    for level in LEVELS:
        nodes, shares = _nodes(1 << level)
        at = law.quantiles(nodes[:, None])
        grid = {n: np.repeat(x, len(nodes), axis=0) for n, x in points.items()}
        grid[name] = np.concatenate([at] * len(chance))
        gain = _mean_gain(problem, best, grid, np.outer(chance, shares).ravel(), line)
        change, last = abs(gain - last), gain
        # Two rules that agree by chance at few nodes are not believed: at least three are compared.
        if level > LEVELS[2] and change <= PRECISE * max(gain, 1e-300):
            break
    reason = ", ".join(filter(None, [what, f"quadrature over {name}", line and "closed form of lines"]))
    standing = "exact" if change <= CALLED_EXACT * gain else "estimate"
    return Gain(max(gain, 0.0), 0.0, float(change), best, standing, f"{reason}; two rules differ by {change:.2g}")


def _mean_gain(
    problem: LearningProblem,
    best: int,
    points: Mapping[str, np.ndarray],
    chance: Float[np.ndarray, " number"],
    line: tuple[str, SiteLaw] | None,
) -> float:
    """sum of chance * (E over the line's site of max_d NB_d - NB_best)."""
    number = len(chance)
    if line is None:
        benefit = problem.net_benefits(points, number)
        return float(chance @ (benefit.max(1) - benefit[:, best]))
    name, law = line
    # Two points of each line.
    at = law.quantiles(np.full((2, law.size), [[0.25], [0.75]]))
    low, high = (problem.net_benefits({**points, name: np.broadcast_to(x, (number, *law.shape))}, number) for x in at)
    width = float((at[1] - at[0]).reshape(()))
    slope = (high - low) / width
    start = low - slope * float(at[0].reshape(()))
    slope, start = slope - slope[:, [best]], start - start[:, [best]]
    return float(chance @ expected_maximum_of_lines(law, start, slope))


def expected_maximum_of_lines(
    law: SiteLaw, start: Float[np.ndarray, "number D"], slope: Float[np.ndarray, "number D"]
) -> Float[np.ndarray, " number"]:
    """E max_d (start_d + slope_d x) for x of a law of one element, row by row."""
    # Between neighbouring crossings of lines one line is on top: the one that is at a point between.
    first, second = np.triu_indices(start.shape[1], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = (start[:, first] - start[:, second]) / (slope[:, second] - slope[:, first])
    crossing = np.sort(np.where(np.isfinite(crossing), crossing, np.inf), axis=1)
    edges = np.concatenate([np.full((len(start), 1), -np.inf), crossing, np.full((len(start), 1), np.inf)], axis=1)
    low, high = edges[:, :-1], edges[:, 1:]
    with np.errstate(invalid="ignore"):
        between = np.where(
            np.isinf(low), np.where(np.isinf(high), 0.0, high - 1), np.where(np.isinf(high), low + 1, (low + high) / 2)
        )
    top = np.argmax(start[:, None] + slope[:, None] * between[..., None], axis=-1)
    below, moment = law.partial_moments(edges)
    chosen_start, chosen_slope = (np.take_along_axis(x, top, axis=1) for x in (start, slope))
    return np.sum(chosen_start * np.diff(below) + chosen_slope * np.diff(moment), axis=1)


def _nodes(number: int) -> tuple[Float[np.ndarray, " number"], Float[np.ndarray, " number"]]:
    """Nodes and weights on (0, 1) by the tanh-sinh rule, which stands singular ends (Takahasi and Mori, 1974)."""
    t = np.linspace(-3.6, 3.6, number)
    inner = np.pi / 2 * np.sinh(t)
    nodes = 1 / (1 + np.exp(-2 * inner))
    weights = np.pi / 4 * np.cosh(t) / np.cosh(inner) ** 2 * (t[1] - t[0])
    return nodes, weights / weights.sum()


def best_at_means(problem: LearningProblem) -> int:
    """The best strategy where mean net benefits are integrals over at most one site of higher degree."""
    curved = [n for n in problem.perfect if problem.degrees[n] >= HIGHER]
    means = {n: law.mean() for n, law in problem.perfect.items()} | {n: s.law.mean() for n, s in problem.means.items()}
    if not curved:
        return int(np.argmax(problem.net_benefits({n: m[None] for n, m in means.items()}, 1)[0]))
    (name,) = curved
    nodes, weights = _nodes(1 << LEVELS[-1])
    values = {n: np.broadcast_to(m, (len(nodes), *m.shape)) for n, m in means.items()}
    values = {**values, name: problem.perfect[name].quantiles(nodes[:, None])}
    return int(np.argmax(weights @ problem.net_benefits(values, len(nodes))))
