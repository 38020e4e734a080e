"""`expected_gain`: E max_d NB_d - max_d E NB_d, where what is learned about each site is stated.

Each site is in one of four states after the information has come:

- *perfect*: its value is known;
- *mean*: its posterior mean is known, and no more matters: net benefits are of degree one in it;
- *data*: its law has been updated by data of a study, and net benefits are averaged over it;
- *nothing*: it keeps its law. Of degree one, it is at its mean; else net benefits are averaged over its law.

"Averaged" is by inner points that are common to all outer ones, so that their errors cancel in differences. Averages
that are affine in all that is learned are a value and slopes: these alone are averaged, not one number for each outer
point, and with one number that is learned the rest is a closed form. Where no inner points are needed the answer is an
integral over the outer laws alone, and small ones are computed without random points: normal differences, lines in one
site, sums over data sets, quadrature. All others are over scrambled Sobol points, in independent replicates that give
the error.

Sources: Raiffa and Schlaifer (1961), *Applied Statistical Decision Theory*; Madan et al. (2014), *Strategies for
efficient computation of the expected value of partial perfect information*; Owen (1997), *Scrambled net variance*.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy import stats

from bayes_mdp.decisions.information.learning_problem import Gain, InformationValue, Kind, Learned, LearningProblem
from bayes_mdp.decisions.strategies.cost_effectiveness import net_benefit_weights
from bayes_mdp.decisions.strategies.decision_model import DecisionModel
from bayes_mdp.decisions.strategies.site_law import SiteLaw
from bayes_mdp.inference.detection.degrees import HIGHER
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.validation import check_count

if TYPE_CHECKING:
    from tqdm import tqdm


PLAIN_POINTS, SLOPE_POINTS, NESTED_POINTS, INNER_POINTS = 1 << 16, 1 << 14, 1 << 12, 64
"""Outer points without inner ones, where slopes are averaged, and with inner points for each; and these."""


def check_sizes(num_draws: int | None, num_inner: int | None) -> None:
    """Numbers of points, or None for the default.

    Raises:
        ValueError: fewer than two, or more than fit in memory. TypeError: no integer.
    """
    for name, number in (("num_draws", num_draws), ("num_inner", num_inner)):
        if number is not None:
            check_count(name, number, 2)
            check_memory(f"{name} is {number}", 8.0 * COPIES * number, "fewer points take less")


def value_of_learning(
    key: PRNGKeyArray,
    model: DecisionModel,
    learned: Learned,
    kind: Kind,
    about: str,
    wtp: float | None,
    sizes: tuple[int | None, int | None],
) -> InformationValue:
    """The gain of what is learned about a model, with its name.

    Args:
        key: of the points.
        model: the belief.
        learned: what information comes.
        kind, about: what the value is called.
        wtp: willingness to pay.
        sizes: outer and inner points, see `expected_gain`.

    Raises:
        ValueError: see `net_benefit_weights`; points that do not fit in memory.
    """
    problem = LearningProblem(model, net_benefit_weights(model.outcomes, wtp), learned)
    gain = expected_gain(host_generator(key), key, problem, *sizes)
    names = model.strategies
    errors = gain.standard_error, gain.numerical_error
    return InformationValue(kind, about, gain.value, *errors, names, names[gain.best], wtp, gain.standing, gain.reason)


def expected_gain(
    rng: np.random.Generator,
    key: PRNGKeyArray,
    problem: LearningProblem,
    num_draws: int | None,
    num_inner: int | None,
) -> Gain:
    """See the module.

    Args:
        rng, key: random numbers of the Sobol points, and of sites without a closed form.
        problem: the model with what is learned.
        num_draws: outer points in all replicates together; None: `PLAIN_POINTS`, `SLOPE_POINTS` or
            `NESTED_POINTS`.
        num_inner: inner points for each outer one, where some are needed; None: `INNER_POINTS`.
    """
    # Fewer outer points where each takes inner ones; a model affine in what is learned averages slopes instead.
    num_draws = num_draws or (PLAIN_POINTS if not problem.nested else SLOPE_POINTS if problem.affine else NESTED_POINTS)
    num_inner = num_inner or INNER_POINTS
    # Nothing to choose between: no information is worth anything.
    if len(problem.model.strategies) == 1:
        return Gain(0.0, 0.0, 0.0, 0, "exact", "there is one strategy")
    # What is learned touches no net benefit.
    if not (problem.perfect or problem.means or problem.data or problem.drawn_outside):
        best, sure = best_of_means(rng, key, problem, num_draws, num_inner)
        return Gain(0.0, 0.0, 0.0, best, "exact", "no net benefit depends on it" + sure)
    closed = None if problem.nested or problem.drawn_outside else gain_in_closed_form(problem)
    return gain_by_points(rng, key, problem, num_draws, num_inner) if closed is None else closed


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


def gain_in_closed_form(problem: LearningProblem) -> Gain | None:
    """Exact sums, normal differences, lines and quadrature; None: the integral has too many dimensions."""
    atoms, enumerated = {}, 1
    # Perfect sites keep their law: it is integrated over.
    continuous: dict[str, SiteLaw] = dict(problem.perfect)
    for name, studied in problem.means.items():
        # A normal site is learned as its posterior mean, normal itself; others by summing over all possible data sets.
        normal = studied.mean_law()
        data_sets = None if normal is not None else studied.enumerate_laws(MOST_DATA_SETS)
        if data_sets is not None:
            after, chances = data_sets
            atoms[name] = (after.mean(), chances)
            enumerated *= len(chances)
        elif normal is not None:
            continuous[name] = normal
        else:
            # Too many data sets to sum, and no normal mean: points.
            return None
    # A law without width (a study of size 0) is its mean.
    for name, law in list(continuous.items()):
        if law.family == "Normal" and not np.any(law.parameters["scale"]):
            atoms[name] = (law.mean()[None], np.ones(1))
            del continuous[name]
    if enumerated > MOST_DATA_SETS:
        return None
    normal = all(law.family in ("Normal", "MultivariateNormal") for law in continuous.values())
    # E max(X, 0) of one normal difference X is known: two strategies, all sites normal.
    if continuous and normal and not atoms and len(problem.model.strategies) == 2:
        gain = _of_normals(problem, continuous)
        if gain is not None:
            return gain
    # One curved site by quadrature, one more as lines: no further dimensions.
    if any(law.size > 1 for law in continuous.values()) or len(continuous) > 2:
        return None
    # The last site is integrated in closed form, where net benefits are lines in it; the other one by quadrature.
    lines = [name for name in continuous if problem.degrees[name] < HIGHER]
    line = lines[-1] if lines else None
    integrated = [name for name in continuous if name != line]
    if len(integrated) > 1 or (integrated and enumerated > MOST_WITH_QUADRATURE):
        return None
    return _by_sums(
        problem, atoms, {n: continuous[n] for n in integrated}, None if line is None else (line, continuous[line])
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
        # Benefits at the means, and after a unit step in each element.
        benefit = problem.net_benefits(values, law.size + 1)
        gap = benefit[:, 0] - benefit[:, 1]
        difference, slopes = float(gap[0]), (gap[1:] - gap[0]).reshape(law.shape)
        if law.family == "Normal":
            variance += float(np.sum((slopes * law.parameters["scale"]) ** 2))
        # Var(b' x) = |L' b|^2 with x = m + L z.
        else:
            spread = np.einsum("...ij,...i->...j", law.parameters["scale_tril"], slopes)
            variance += float(np.sum(spread**2))
    sd, best = np.sqrt(variance), int(difference < 0)
    if not sd:
        return Gain(0.0, 0.0, 0.0, best, "exact", "no net benefit depends on it")
    # E max(X, 0) - max(E X, 0) = sd (phi(z) - z Phi(-z)) with z = |mean| / sd: the unit normal loss.
    z = abs(difference) / sd
    value = sd * (stats.norm.pdf(z) - z * stats.norm.sf(z))
    return Gain(float(value), 0.0, 0.0, best, "exact", "the difference of the two net benefits is normal, closed form")


def _by_sums(
    problem: LearningProblem,
    atoms: Mapping[str, tuple[np.ndarray, np.ndarray]],
    integrated: Mapping[str, SiteLaw],
    line: tuple[str, SiteLaw] | None,
) -> Gain:
    """A sum over data sets, quadrature over at most one site, and lines in at most one more."""
    best = best_at_means(problem)
    names = list(atoms)
    # All combinations of the possible data sets of the sites, with their probabilities.
    pairs = list(itertools.product(*(range(len(chances)) for _, chances in atoms.values())))
    index = np.array(pairs, int).reshape(len(pairs), len(names))
    chance = np.ones(len(pairs))
    points: dict[str, np.ndarray] = {}
    for k, name in enumerate(names):
        values, chances = atoms[name]
        points[name] = values[index[:, k]]
        chance = chance * chances[index[:, k]]
    sum_words = f"sum over {len(pairs)} data sets" if names else ""
    if not integrated:
        gain = _mean_gain(problem, best, points, chance, line)
        reason = ", ".join(filter(None, [sum_words, line and "closed form of lines"]))
        return Gain(max(gain, 0.0), 0.0, 0.0, best, "exact", reason)
    ((name, law),) = integrated.items()
    last, change, gain = np.inf, np.inf, 0.0
    for level in LEVELS:
        nodes, shares = _nodes(1 << level)
        site_values = law.quantiles(nodes[:, None])
        grid = {n: np.repeat(x, len(nodes), axis=0) for n, x in points.items()}
        # Every data set with every node: a product grid.
        grid[name] = np.concatenate([site_values] * len(chance))
        gain = _mean_gain(problem, best, grid, np.outer(chance, shares).ravel(), line)
        # Twice as many nodes at each level; the change is the error that is reported.
        change, last = abs(gain - last), gain
        # Two rules that agree by chance at few nodes are not believed: at least three are compared.
        if level > LEVELS[2] and change <= PRECISE * max(gain, 1e-300):
            break
    reason = ", ".join(filter(None, [sum_words, f"quadrature over {name}", line and "closed form of lines"]))
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
    ends = law.quantiles(np.full((2, law.size), [[0.25], [0.75]]))
    low, high = (problem.net_benefits({**points, name: np.broadcast_to(x, (number, *law.shape))}, number) for x in ends)
    # Line through the two points of each strategy, less that of the best one.
    width = float((ends[1] - ends[0]).reshape(()))
    slope = (high - low) / width
    start = low - slope * float(ends[0].reshape(()))
    slope, start = slope - slope[:, [best]], start - start[:, [best]]
    # Weighted by the probability of the data sets.
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
    # Which line is on top between two crossings.
    top = np.argmax(start[:, None] + slope[:, None] * between[..., None], axis=-1)
    cdf, moment = law.partial_moments(edges)
    # Sum over intervals of start P(interval) + slope E[x; interval], the moments by differences.
    chosen_start, chosen_slope = (np.take_along_axis(x, top, axis=1) for x in (start, slope))
    return np.sum(chosen_start * np.diff(cdf) + chosen_slope * np.diff(moment), axis=1)


def _nodes(number: int) -> tuple[Float[np.ndarray, " number"], Float[np.ndarray, " number"]]:
    """Nodes and weights on (0, 1) by the tanh-sinh rule, which stands singular ends (Takahasi and Mori, 1974)."""
    t = np.linspace(-3.6, 3.6, number)
    inner = np.pi / 2 * np.sinh(t)
    # x = tanh(pi/2 sinh t), moved from (-1, 1) to (0, 1).
    nodes = 1 / (1 + np.exp(-2 * inner))
    # The derivative of the map from t, times the spacing.
    weights = np.pi / 4 * np.cosh(t) / np.cosh(inner) ** 2 * (t[1] - t[0])
    return nodes, weights / weights.sum()


def best_at_means(problem: LearningProblem) -> int:
    """The best strategy where mean net benefits are integrals over at most one site of higher degree."""
    curved = [n for n in problem.perfect if problem.degrees[n] >= HIGHER]
    means = {n: law.mean() for n, law in problem.perfect.items()} | {n: s.law.mean() for n, s in problem.means.items()}
    # A mean of a net benefit is the net benefit at the means, unless some site enters with a higher degree.
    if not curved:
        return int(np.argmax(problem.net_benefits({n: m[None] for n, m in means.items()}, 1)[0]))
    (name,) = curved
    nodes, weights = _nodes(1 << LEVELS[-1])
    values = {n: np.broadcast_to(m, (len(nodes), *m.shape)) for n, m in means.items()}
    values = {**values, name: problem.perfect[name].quantiles(nodes[:, None])}
    return int(np.argmax(weights @ problem.net_benefits(values, len(nodes))))


REPLICATES = 16
"""Independent scrambles of the Sobol points."""
BATCH = 1 << 16
"""Points (outer times inner) that are held at once."""
COPIES = 4
"""Of all points, in memory at the peak."""
ROUNDING = 1e-12
"""Of the largest net benefit: what rounding makes of no gain."""
DECIDED = 6.0
"""Standard errors between the best two means at which the best strategy counts as known (false alarm 1e-9)."""


class _Sizes(NamedTuple):
    """Points of a replicate.

    Args:
        outer, inner: how many.
        single: the law of what is learned, where net benefits are affine in it and it is one number: no outer points.
    """

    outer: int
    inner: int
    single: SiteLaw | None


class _Replicate(NamedTuple):
    """What one scramble of the points gives.

    Args:
        top: E max_d over all inner points, over either half.
        mean: of each strategy, over the same outer points as `top`.
        centre: of each strategy, as precisely as the replicate knows it.
    """

    top: Float[np.ndarray, "3"]
    mean: Float[np.ndarray, " D"]
    centre: Float[np.ndarray, " D"]


def gain_by_points(
    rng: np.random.Generator, key: PRNGKeyArray, problem: LearningProblem, num_draws: int, num_inner: int
) -> Gain:
    """Scrambled Sobol points, outer and inner, in replicates.

    Raises:
        ValueError: the points do not fit in memory.
    """
    sizes = _sizes(problem, num_draws, num_inner)
    strategies = len(problem.model.strategies)
    numbers = sizes.outer * (_outer_size(problem) + 3 * strategies) + sizes.inner * (_inner_size(problem) + strategies)
    check_memory(f"num_draws is {num_draws}, num_inner {num_inner}", 8.0 * COPIES * numbers, "fewer points take less")
    # Work in net benefits: a bar that moves evenly.
    work = sizes.inner * (1 + _num_elements(problem) if problem.affine else sizes.outer)
    replicates = []
    with bar_of(REPLICATES * work, " net benefits") as bar:
        for number in range(REPLICATES):
            replicates.append(_replicate(rng, jax.random.fold_in(key, number), problem, sizes, bar))
    top, mean, centre = (np.array(x) for x in zip(*replicates, strict=True))
    best, open_ = _best_and_sure(problem, centre)
    # Common points for all strategies: the difference to the best one has far less noise.
    gain = top - mean[:, [best]]
    # Inner noise lifts the maximum by order 1/inner: 2 V(N) - V(N/2) takes that order away (halves of the same points).
    final = 2 * gain[:, 0] - (gain[:, 1] + gain[:, 2]) / 2 if problem.nested else gain[:, 0]
    value, error = float(final.mean()), float(final.std(ddof=1) / np.sqrt(REPLICATES))
    method = _describe(problem, sizes)
    if np.max(np.abs(gain[:, 0])) <= ROUNDING * np.max(np.abs(mean)):
        # Not proven to be nothing: the points may have missed where another strategy is best.
        return Gain(0.0, 0.0, 0.0, best, "estimate", f"{method}: another strategy is nowhere better" + open_)
    if problem.nested:
        lift = float((gain[:, 0] - final).mean())
        method += f"; a bias of {lift:.2g} (order 1/inner) was removed by half samples"
    elif problem.model.chains:
        method += "; sites by NUTS"
    # Nested averages have a bias, chains are dependent, an open best makes it too low.
    unbiased = not (problem.nested or problem.model.chains or open_)
    return Gain(max(value, 0.0), error, 0.0, best, "unbiased" if unbiased else "estimate", method + open_)


def _sizes(problem: LearningProblem, num_draws: int, num_inner: int) -> _Sizes:
    """Powers of two, for which Sobol points are balanced."""
    # A replicate is one scramble: their spread gives a standard error, which one Sobol sequence lacks.
    outer = _power(num_draws / REPLICATES)
    if not problem.nested:
        return _Sizes(outer, 1, None)
    inner = _power(num_inner)
    return _Sizes(outer, max(inner, outer), _single(problem)) if problem.affine else _Sizes(outer, inner, None)


def _power(number: float) -> int:
    """The least power of two that is no less, and at least two."""
    return 1 << (max(math.ceil(number), 2) - 1).bit_length()


def _describe(problem: LearningProblem, sizes: _Sizes) -> str:
    points = f"{REPLICATES * sizes.outer} scrambled Sobol points"
    if not problem.nested:
        return points
    if not problem.affine:
        return f"{points}, {sizes.inner} inner ones each"
    outside = points if sizes.single is None else "closed form of lines"
    return f"{outside}, whose slopes are averages over {REPLICATES * sizes.inner} inner points"


def _replicate(
    rng: np.random.Generator, key: PRNGKeyArray, problem: LearningProblem, sizes: _Sizes, bar: "tqdm[NoReturn]"
) -> _Replicate:
    # Outer points carry what is learned, inner ones what is averaged over.
    u, z = _points(rng, _outer_size(problem), sizes.outer), _points(rng, _inner_size(problem), sizes.inner)
    if problem.affine:
        plane = _plane(problem, _inner_values(problem, z, key, sizes.inner), sizes.inner)
        bar.update(sizes.inner * (1 + _num_elements(problem)))
        if sizes.single is not None:
            lines = expected_maximum_of_lines(sizes.single, plane.start, plane.slopes[:, 0])
            return _Replicate(lines, plane.middle, plane.middle)
        benefit = plane.at(problem, _outer_values(problem, u))
        return _Replicate(benefit.max(-1).mean(1), benefit[0].mean(0), plane.middle)
    # What all batches share is drawn once.
    common = _inner_values(problem, z, key, sizes.inner)
    outside = problem.model.sample_sites(key, sizes.outer) if problem.drawn_outside else {}
    parts = []
    for rows in _batches(sizes):
        parts.append(_average(problem, u[rows], z, common, {name: outside[name][rows] for name in outside}))
        bar.update(len(rows) * sizes.inner)
    benefit = np.concatenate(parts, axis=1)  # [whole, half, half][outer][strategies]
    mean = benefit[0].mean(0)
    return _Replicate(benefit.max(-1).mean(1), mean, mean)


def _best_and_sure(problem: LearningProblem, means: Float[np.ndarray, "replicates D"]) -> tuple[int, str]:
    """The best mean, and a warning where draws leave open which it is."""
    # Where everything enters by its mean, known or fixed, mean net benefits are net benefits at means.
    if not problem.drawn_outside and not problem.nested and all(problem.degrees[n] < HIGHER for n in problem.perfect):
        return best_at_means(problem), ""
    best = int(np.argmax(means.mean(0)))
    gap = means[:, [best]] - np.delete(means, best, axis=1)
    # Differences of common draws: their error, not that of each mean, decides.
    error = gap.std(0, ddof=1) / np.sqrt(len(gap))
    if np.all(gap.mean(0) > DECIDED * error):
        return best, ""
    return best, f"; which strategy is best now is not decided by them: it may be too low by {float(error.max()):.2g}"


def _batches(sizes: _Sizes) -> Iterator[np.ndarray]:
    """Outer points that are held at once with their inner ones."""
    step = max(BATCH // sizes.inner, 1)
    for start in range(0, sizes.outer, step):
        yield np.arange(start, min(start + step, sizes.outer))


def _average(
    problem: LearningProblem,
    u: Float[np.ndarray, "outer outer_dims"],
    z: Float[np.ndarray, "inner inner_dims"],
    common: Mapping[str, np.ndarray],
    outside: Mapping[str, np.ndarray],
) -> Float[np.ndarray, "3 outer D"]:
    """Net benefits of some outer points, averaged over the inner ones: over all, over either half.

    Args:
        problem: what is learned.
        u, z: the outer and the inner points.
        common: values of sites at the inner points.
        outside: values of sites without a closed form at the outer points.
    """
    number, inner = len(u), len(z)
    outer_values = _outer_values(problem, u) | {name: outside[name] for name in problem.drawn if name in outside}
    column = sum(law.size for law in problem.perfect.values()) + sum(s.n_uniforms for s in problem.means.values())
    after = {}
    for name, studied in problem.data.items():
        after[name] = studied.simulate_law(u[:, column : column + studied.n_uniforms])
        column += studied.n_uniforms
    if not problem.nested:
        return problem.net_benefits(outer_values, number)[None].repeat(3, axis=0)
    # Outer points as they are, inner ones in turn: all pairs.
    # Outer values repeat for each inner point; inner ones are tiled over outer ones.
    pairs = {name: np.repeat(x, inner, axis=0) for name, x in outer_values.items()}
    column = 0
    # Each outer point has its own posterior, at which the inner uniforms are transformed.
    for name, law in after.items():
        rows_of = {k: np.repeat(x, inner, axis=0) if x.ndim > len(law.shape) else x for k, x in law.parameters.items()}
        uniforms = np.tile(z[:, column : column + law.size], (number, 1))
        pairs[name] = SiteLaw(law.family, rows_of, law.shape).quantiles(uniforms)
        column += law.size
    pairs |= {n: np.tile(x, (number, *[1] * (x.ndim - 1))) for n, x in common.items()}
    benefit = problem.net_benefits(pairs, number * inner).reshape(number, inner, -1)
    half = inner // 2
    # The halves serve to remove the bias of order 1 / inner (see `gain_by_points`).
    first, second = benefit[:, :half].mean(1), benefit[:, half:].mean(1)
    return np.stack([(first + second) / 2, first, second])


def _outer_values(problem: LearningProblem, u: Float[np.ndarray, "number dims"]) -> dict[str, np.ndarray]:
    """Values of sites that are known, and posterior means that are, at outer points."""
    values, column = {}, 0
    for name, law in problem.perfect.items():
        values[name] = law.quantiles(u[:, column : column + law.size])
        column += law.size
    for name, studied in problem.means.items():
        values[name] = studied.simulate_law(u[:, column : column + studied.n_uniforms]).mean()
        column += studied.n_uniforms
    return values


@dataclass(frozen=True)
class _Plane:
    """Averaged net benefits as affine functions of the elements of what is learned: over all inner points, either half.

    Args:
        start: where all elements are 0.
        slopes: by element.
        middle: over all inner points, where all elements are at their means.
    """

    start: Float[np.ndarray, "3 D"]
    slopes: Float[np.ndarray, "3 elements D"]
    middle: Float[np.ndarray, " D"]

    def at(self, problem: LearningProblem, values: Mapping[str, np.ndarray]) -> Float[np.ndarray, "3 number D"]:
        """At values [number, ...] of all that is learned."""
        number = len(next(iter(values.values())))
        x = np.concatenate([values[n].reshape(number, -1) for n in (*problem.perfect, *problem.means)], axis=1)
        # Affine: start + x slopes, all outer points in one product.
        return self.start[:, None] + x @ self.slopes


def _plane(problem: LearningProblem, common: Mapping[str, np.ndarray], inner: int) -> _Plane:
    """By a step in each element from the means; exact but for the average over inner points."""
    laws = {**problem.perfect, **{name: studied.law for name, studied in problem.means.items()}}
    mean = np.concatenate([law.mean().ravel() for law in laws.values()])
    # A step of the size of the mean: the difference keeps all its digits.
    step = np.where(mean == 0, 1.0, np.abs(mean))
    cuts = np.cumsum([law.size for law in laws.values()])[:-1]

    def averages(point: Float[np.ndarray, " elements"]) -> Float[np.ndarray, "3 D"]:
        parts = zip(laws.items(), np.split(point, cuts), strict=True)
        values = {name: np.broadcast_to(part.reshape(law.shape), (inner, *law.shape)) for (name, law), part in parts}
        benefit = problem.net_benefits({**common, **values}, inner)
        first, second = benefit[: inner // 2].mean(0), benefit[inner // 2 :].mean(0)
        return np.stack([(first + second) / 2, first, second])

    base = averages(mean)
    # One element at a time.
    moved = [averages(mean + step[i] * np.eye(len(mean))[i]) for i in range(len(mean))]
    slopes = np.stack([(shifted - base) / h for shifted, h in zip(moved, step, strict=True)], axis=1)
    # start + slopes x, anchored at the means.
    return _Plane(base - mean @ slopes, slopes, base[0])


def _single(problem: LearningProblem) -> SiteLaw | None:
    """The law of what is learned, if that is one number with a law of closed form."""
    laws = [*problem.perfect.values(), *(studied.mean_law() for studied in problem.means.values())]
    (first, *rest) = laws
    if rest or first is None or first.size != 1 or first.family in ("Dirichlet", "MultivariateNormal"):
        return None
    return first if first.family != "Normal" or np.all(first.parameters["scale"] > 0) else None


def _num_elements(problem: LearningProblem) -> int:
    return sum(law.size for law in problem.perfect.values()) + sum(s.law.size for s in problem.means.values())


def _inner_values(
    problem: LearningProblem, z: Float[np.ndarray, "inner inner_dims"], key: PRNGKeyArray, inner: int
) -> dict[str, np.ndarray]:
    """Values of the sites of which nothing is learned, at the inner points."""
    column = sum(studied.law.size for studied in problem.data.values())
    values = {}
    for name, law in problem.averaged.items():
        values[name] = law.quantiles(z[:, column : column + law.size])
        column += law.size
    if problem.drawn_inside:
        sites = problem.model.sample_sites(key, inner)
        values |= {name: sites[name] for name in problem.drawn}
    return values


def _outer_size(problem: LearningProblem) -> int:
    perfect = sum(law.size for law in problem.perfect.values())
    return perfect + sum(s.n_uniforms for s in (*problem.means.values(), *problem.data.values()))


def _inner_size(problem: LearningProblem) -> int:
    return sum(s.law.size for s in problem.data.values()) + sum(law.size for law in problem.averaged.values())


def _points(rng: np.random.Generator, dims: int, number: int) -> Float[np.ndarray, "number dims"]:
    if not dims:
        return np.zeros((number, 0))
    # Scrambled: each replicate is an independent draw of the rule (Owen 1997).
    engine = stats.qmc.Sobol(dims, rng=rng)
    return engine.random(number)


def best_of_means(
    rng: np.random.Generator, key: PRNGKeyArray, problem: LearningProblem, num_draws: int, num_inner: int
) -> tuple[int, str]:
    """The best strategy where nothing is learned."""
    if not problem.nested:
        return int(np.argmax(problem.net_benefits({}, 1)[0])), ""
    number = max(num_inner, min(num_draws, BATCH))
    inner = _inner_values(problem, _points(rng, _inner_size(problem), number), key, number)
    return int(np.argmax(problem.net_benefits(inner, number).mean(0))), " (the best strategy by draws)"
