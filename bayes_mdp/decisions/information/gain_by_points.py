"""Expected gains over scrambled Sobol points, outer and inner, in independent replicates that give the error."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy import stats
from tqdm import tqdm

from bayes_mdp.decisions.information.closed_form_gain import best_at_means, expected_maximum_of_lines
from bayes_mdp.decisions.information.learning_problem import Gain, LearningProblem
from bayes_mdp.decisions.strategies.site_law import SiteLaw
from bayes_mdp.mdp.memory import check_memory

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


def gain_by_points(
    rng: np.random.Generator, key: PRNGKeyArray, problem: LearningProblem, num_draws: int, num_inner: int
) -> Gain:
    """Scrambled Sobol points, outer and inner, in replicates."""
    outer = 1 << max(int(np.ceil(np.log2(max(num_draws / REPLICATES, 2)))), 1)
    inner = 1 << max(int(np.ceil(np.log2(max(num_inner, 2)))), 1) if problem.nested else 1
    inner = max(inner, outer) if problem.affine else inner
    single = _single(problem) if problem.affine else None
    work = (1 + _learned_size(problem)) * inner if problem.affine else outer * inner
    strategies = len(problem.model.strategies)
    rows, columns = (outer, _outer_size(problem)), (inner, _inner_size(problem) + strategies)
    needed = 8.0 * COPIES * (rows[0] * (rows[1] + 3 * strategies) + columns[0] * columns[1])
    check_memory(f"num_draws is {num_draws}, num_inner {num_inner}", needed, "fewer points take less")
    # Per replicate: [whole, half, half] of E max; the mean of each strategy over the outer points; the best such mean.
    tops, means, centres = [], [], []
    with tqdm(
        total=REPLICATES * work, unit=" net benefits", unit_scale=True, delay=2, leave=False, disable=None
    ) as bar:
        for replicate in range(REPLICATES):
            u = _points(rng, _outer_size(problem), outer)
            z = _points(rng, _inner_size(problem), inner)
            if problem.affine:
                plane = _plane(problem, _inner_values(problem, z, key, replicate, inner), inner)
                bar.update(work)
                centres.append(plane.middle)
                if single is not None:
                    tops.append(expected_maximum_of_lines(single, plane.start, plane.slopes[:, 0]))
                    means.append(plane.middle)
                    continue
                benefit = plane.at(problem, _learned_values(problem, u))
            else:
                parts = []
                for rows in _batches(outer, inner):
                    parts.append(_averaged(problem, u, z, rows, key, (replicate, outer)))
                    bar.update(len(rows) * inner)
                benefit = np.concatenate(parts, axis=1)  # [whole, half, half][outer][strategies]
            tops.append(benefit.max(-1).mean(1))
            means.append(benefit[0].mean(0))
            if not problem.affine:
                centres.append(means[-1])
    top, mean = np.array(tops), np.array(means)
    best, decided = _best_and_sure(problem, np.array(centres))
    gain = top - mean[:, [best]]
    # Inner noise lifts the maximum by order 1/inner: 2 V(N) - V(N/2) takes that order away (halves of the same points).
    final = 2 * gain[:, 0] - (gain[:, 1] + gain[:, 2]) / 2 if problem.nested else gain[:, 0]
    value, error = float(final.mean()), float(final.std(ddof=1) / np.sqrt(REPLICATES))
    how = f"{REPLICATES * outer} scrambled Sobol points"
    if np.max(np.abs(gain[:, 0])) <= ROUNDING * np.max(np.abs(mean)):
        # Not proven to be nothing: the points may have missed where another strategy is best.
        reason = f"{how}, in none of which another strategy is better"
        return Gain(0.0, 0.0, 0.0, best, "estimate", reason + decided)
    if problem.nested:
        lift = float((gain[:, 0] - final).mean())
        how = f"{how}, {inner} inner ones each"
        if problem.affine:
            outside = "closed form of lines" if single is not None else f"{REPLICATES * outer} scrambled Sobol points"
            how = f"{outside}, whose slopes are averages over {REPLICATES * inner} inner points"
        reason = f"{how}; a bias of {lift:.2g} (order 1/inner) was removed by half samples"
        return Gain(max(value, 0.0), error, 0.0, best, "estimate", reason + decided)
    exactly = problem.model.exact or not problem.model.chains
    if not exactly:
        return Gain(max(value, 0.0), error, 0.0, best, "estimate", f"{how}; sites by NUTS" + decided)
    return Gain(max(value, 0.0), error, 0.0, best, "estimate" if decided else "unbiased", how + decided)


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


def _batches(outer: int, inner: int) -> Iterator[np.ndarray]:
    step = max(BATCH // inner, 1)
    for start in range(0, outer, step):
        yield np.arange(start, min(start + step, outer))


def _averaged(
    problem: LearningProblem,
    u: Float[np.ndarray, "outer outer_dims"],
    z: Float[np.ndarray, "inner inner_dims"],
    rows: np.ndarray,
    key: PRNGKeyArray,
    draw: tuple[int, int],
) -> Float[np.ndarray, "3 rows D"]:
    """Net benefits of some outer points, averaged over the inner ones: over all, over either half."""
    replicate, outer = draw
    number, inner = len(rows), len(z)
    given = _learned_values(problem, u[rows])
    column = sum(law.size for law in problem.perfect.values()) + sum(s.n_uniforms for s in problem.means.values())
    after = {}
    for name, studied in problem.data.items():
        after[name] = studied.simulated(u[rows, column : column + studied.n_uniforms])
        column += studied.n_uniforms
    if problem.drawn_outside:
        sites = problem.model.sample_sites(_fold(key, replicate), outer)
        given |= {name: sites[name][rows] for name in problem.drawn}
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
    common = _inner_values(problem, z, key, replicate, inner)
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
    problem: LearningProblem, z: Float[np.ndarray, "inner inner_dims"], key: PRNGKeyArray, replicate: int, inner: int
) -> dict[str, np.ndarray]:
    """Values of the sites of which nothing is learned, at the inner points."""
    column = sum(studied.law.size for studied in problem.data.values())
    values = {}
    for name, law in problem.averaged.items():
        values[name] = law.quantiles(z[:, column : column + law.size])
        column += law.size
    if problem.drawn_inside:
        sites = problem.model.sample_sites(_fold(key, replicate), inner)
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


def _fold(key: PRNGKeyArray, number: int) -> PRNGKeyArray:
    return jax.random.fold_in(key, number)


def best_of_means(
    rng: np.random.Generator, key: PRNGKeyArray, problem: LearningProblem, num_draws: int, num_inner: int
) -> tuple[int, str]:
    """The best strategy where nothing is learned."""
    if not problem.nested:
        return int(np.argmax(problem.net_benefits({}, 1)[0])), ""
    number = max(num_inner, min(num_draws, BATCH))
    inner = _inner_values(problem, _points(rng, _inner_size(problem), number), key, 0, number)
    return int(np.argmax(problem.net_benefits(inner, number).mean(0))), " (the best strategy by draws)"
