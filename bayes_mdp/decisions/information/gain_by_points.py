"""Expected gains over scrambled Sobol points, outer and inner, in independent replicates that give the error."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy import stats

from bayes_mdp.decisions.information.closed_form_gain import best_at_means, expected_maximum_of_lines
from bayes_mdp.decisions.information.learning_problem import Gain, LearningProblem
from bayes_mdp.decisions.strategies.site_law import SiteLaw
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.progress import bar_of

if TYPE_CHECKING:
    from tqdm import tqdm

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
    work = sizes.inner * (1 + _learned_size(problem) if problem.affine else sizes.outer)
    found = []
    with bar_of(REPLICATES * work, " net benefits") as bar:
        for number in range(REPLICATES):
            found.append(_replicate(rng, jax.random.fold_in(key, number), problem, sizes, bar))
    top, mean, centre = (np.array(x) for x in zip(*found, strict=True))
    best, open_ = _best_and_sure(problem, centre)
    gain = top - mean[:, [best]]
    # Inner noise lifts the maximum by order 1/inner: 2 V(N) - V(N/2) takes that order away (halves of the same points).
    final = 2 * gain[:, 0] - (gain[:, 1] + gain[:, 2]) / 2 if problem.nested else gain[:, 0]
    value, error = float(final.mean()), float(final.std(ddof=1) / np.sqrt(REPLICATES))
    how = _described(problem, sizes)
    if np.max(np.abs(gain[:, 0])) <= ROUNDING * np.max(np.abs(mean)):
        # Not proven to be nothing: the points may have missed where another strategy is best.
        return Gain(0.0, 0.0, 0.0, best, "estimate", f"{how}: another strategy is nowhere better" + open_)
    if problem.nested:
        lift = float((gain[:, 0] - final).mean())
        how += f"; a bias of {lift:.2g} (order 1/inner) was removed by half samples"
    elif problem.model.chains:
        how += "; sites by NUTS"
    unbiased = not (problem.nested or problem.model.chains or open_)
    return Gain(max(value, 0.0), error, 0.0, best, "unbiased" if unbiased else "estimate", how + open_)


def _sizes(problem: LearningProblem, num_draws: int, num_inner: int) -> _Sizes:
    """Powers of two, for which Sobol points are balanced."""
    outer = _power(num_draws / REPLICATES)
    if not problem.nested:
        return _Sizes(outer, 1, None)
    inner = _power(num_inner)
    return _Sizes(outer, max(inner, outer), _single(problem)) if problem.affine else _Sizes(outer, inner, None)


def _power(number: float) -> int:
    """The least power of two that is no less, and at least two."""
    return 1 << (max(math.ceil(number), 2) - 1).bit_length()


def _described(problem: LearningProblem, sizes: _Sizes) -> str:
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
    u, z = _points(rng, _outer_size(problem), sizes.outer), _points(rng, _inner_size(problem), sizes.inner)
    if problem.affine:
        plane = _plane(problem, _inner_values(problem, z, key, sizes.inner), sizes.inner)
        bar.update(sizes.inner * (1 + _learned_size(problem)))
        if sizes.single is not None:
            lines = expected_maximum_of_lines(sizes.single, plane.start, plane.slopes[:, 0])
            return _Replicate(lines, plane.middle, plane.middle)
        benefit = plane.at(problem, _learned_values(problem, u))
        return _Replicate(benefit.max(-1).mean(1), benefit[0].mean(0), plane.middle)
    # What all batches share is drawn once.
    common = _inner_values(problem, z, key, sizes.inner)
    outside = problem.model.sample_sites(key, sizes.outer) if problem.drawn_outside else {}
    parts = []
    for rows in _batches(sizes):
        parts.append(_averaged(problem, u[rows], z, common, {name: outside[name][rows] for name in outside}))
        bar.update(len(rows) * sizes.inner)
    benefit = np.concatenate(parts, axis=1)  # [whole, half, half][outer][strategies]
    mean = benefit[0].mean(0)
    return _Replicate(benefit.max(-1).mean(1), mean, mean)


def _best_and_sure(problem: LearningProblem, means: Float[np.ndarray, "replicates D"]) -> tuple[int, str]:
    """The best mean, and a warning where draws leave open which it is."""
    if problem.best_is_known:
        return best_at_means(problem), ""
    best = int(np.argmax(means.mean(0)))
    gap = means[:, [best]] - np.delete(means, best, axis=1)
    error = gap.std(0, ddof=1) / np.sqrt(len(gap))
    if np.all(gap.mean(0) > DECIDED * error):
        return best, ""
    return best, f"; which strategy is best now is not decided by them: it may be too low by {float(error.max()):.2g}"


def _batches(sizes: _Sizes) -> Iterator[np.ndarray]:
    """Outer points that are held at once with their inner ones."""
    step = max(BATCH // sizes.inner, 1)
    for start in range(0, sizes.outer, step):
        yield np.arange(start, min(start + step, sizes.outer))


def _averaged(
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
    given = _learned_values(problem, u) | {name: outside[name] for name in problem.drawn if name in outside}
    column = sum(law.size for law in problem.perfect.values()) + sum(s.n_uniforms for s in problem.means.values())
    after = {}
    for name, studied in problem.data.items():
        after[name] = studied.simulated(u[:, column : column + studied.n_uniforms])
        column += studied.n_uniforms
    if not problem.nested:
        return problem.net_benefits(given, number)[None].repeat(3, axis=0)
    # Outer points as they are, inner ones in turn: all pairs.
    pairs = {name: np.repeat(x, inner, axis=0) for name, x in given.items()}
    column = 0
    for name, law in after.items():
        rows_of = {k: np.repeat(x, inner, axis=0) if x.ndim > len(law.shape) else x for k, x in law.parameters.items()}
        uniforms = np.tile(z[:, column : column + law.size], (number, 1))
        pairs[name] = SiteLaw(law.family, rows_of, law.shape).quantiles(uniforms)
        column += law.size
    pairs |= {n: np.tile(x, (number, *[1] * (x.ndim - 1))) for n, x in common.items()}
    benefit = problem.net_benefits(pairs, number * inner).reshape(number, inner, -1)
    half = inner // 2
    first, second = benefit[:, :half].mean(1), benefit[:, half:].mean(1)
    return np.stack([(first + second) / 2, first, second])


def _learned_values(problem: LearningProblem, u: Float[np.ndarray, "number dims"]) -> dict[str, np.ndarray]:
    """Values of sites that are known, and posterior means that are, at outer points."""
    given, column = {}, 0
    for name, law in problem.perfect.items():
        given[name] = law.quantiles(u[:, column : column + law.size])
        column += law.size
    for name, studied in problem.means.items():
        given[name] = studied.simulated(u[:, column : column + studied.n_uniforms]).mean()
        column += studied.n_uniforms
    return given


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
        return self.start[:, None] + x @ self.slopes


def _plane(problem: LearningProblem, common: Mapping[str, np.ndarray], inner: int) -> _Plane:
    """By a step in each element from the means; exact but for the average over inner points."""
    laws = {**problem.perfect, **{name: studied.law for name, studied in problem.means.items()}}
    mean = np.concatenate([law.mean().ravel() for law in laws.values()])
    step = np.where(mean == 0, 1.0, np.abs(mean))
    cuts = np.cumsum([law.size for law in laws.values()])[:-1]

    def averages(point: Float[np.ndarray, " elements"]) -> Float[np.ndarray, "3 D"]:
        parts = zip(laws.items(), np.split(point, cuts), strict=True)
        values = {name: np.broadcast_to(part.reshape(law.shape), (inner, *law.shape)) for (name, law), part in parts}
        benefit = problem.net_benefits({**common, **values}, inner)
        first, second = benefit[: inner // 2].mean(0), benefit[inner // 2 :].mean(0)
        return np.stack([(first + second) / 2, first, second])

    here = averages(mean)
    moved = [averages(mean + step[i] * np.eye(len(mean))[i]) for i in range(len(mean))]
    slopes = np.stack([(there - here) / h for there, h in zip(moved, step, strict=True)], axis=1)
    return _Plane(here - mean @ slopes, slopes, here[0])


def _single(problem: LearningProblem) -> SiteLaw | None:
    """The law of what is learned, if that is one number with a law of closed form."""
    laws = [*problem.perfect.values(), *(studied.mean_law() for studied in problem.means.values())]
    (first, *more) = laws
    if more or first is None or first.size != 1 or first.family in ("Dirichlet", "MultivariateNormal"):
        return None
    return first if first.family != "Normal" or np.all(first.parameters["scale"] > 0) else None


def _learned_size(problem: LearningProblem) -> int:
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
