"""The certificate: the tables of a closed form against the program itself, by numbers, site by site.

The proof is the data flow (`detect`). This is the second line, against faults of the reader of that flow: at random
points, the density of every conjugate site as NumPyro computes it is that of the tables, and so is the likelihood of
invented data under `bayes_mdp.models.joint`. Both sides are written independently: NumPyro's `log_prob` there, numpy
and scipy here. Sites are compared one by one, each by the size of the terms that make it up: a concentration of 1e8
does not hide what another site does, and its rounding is no fault.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpyro import handlers
from scipy.special import gammaln, xlogy

from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.families import BetaBelief, GammaBelief, NormalBelief, NormalGammaBelief
from bayes_mdp.inference.conjugate.reward_cells import KnownRewards
from bayes_mdp.inference.detection.detect import Detected
from bayes_mdp.inference.detection.probe import NotConjugate
from bayes_mdp.inference.detection.trace import Message, Program, density
from bayes_mdp.mdp import Transitions
from bayes_mdp.mdp.typing import AnyArray, ArrayLike
from bayes_mdp.models import joint
from bayes_mdp.models.joint import OBSERVED_NEXT_STATE, OBSERVED_REWARD
from bayes_mdp.models.tracing import traced_alone

Numbers: TypeAlias = Float[AnyArray, "..."] | np.floating
Parts: TypeAlias = tuple[ArrayLike, ...]
"""The numbers that add up to a log density."""

MANY = 2**17
TOLERANCE = 1e-9
SCALES = (1.0, 30.0)
"""Of the points: well inside the support of every site, and far out."""


def certify(
    program: Program, detected: Detected, rng: np.random.Generator, *, held: Mapping[str, ArrayLike] | None = None
) -> None:
    """Compare `detected` with the program on invented transitions to the possible outcomes of all legal pairs.

    Host side, float64.

    Args:
        program: the program.
        detected: its closed form, at `held` values of the other sites.
        rng: draws points and transitions.
        held: values of the latent sites that are not conjugate.

    Raises:
        NotConjugate: the closed form is not that of the program.
    """
    # Every possible outcome of every legal pair is observed (of very many, a random part): every entry is used.
    transitions = invent(detected, rng)
    for scale in SCALES:
        check_at(program, detected, transitions, _draw(detected, rng, scale), held or {})


def check_at(
    program: Program,
    detected: Detected,
    transitions: Transitions,
    point: Float[np.ndarray, " N"],
    held: Mapping[str, ArrayLike],
) -> None:
    """The comparison at one point, a vector of all elements of the conjugate sites.

    Raises:
        NotConjugate: the density of a site differs.
    """
    # Density by density: NumPyro's log_prob of each site of the conditioned model against that of the tables.
    found = site_densities(program, {**held, **detected.layout.split(point)}, transitions)
    terms = _terms(detected, transitions, point)
    for term in terms:
        actual = sum(found[name] for name in term.sites)
        if not abs(actual - term.value) <= _tolerance(program) * (1.0 + term.size):
            names = ", ".join(repr(name) for name in term.sites)
            raise NotConjugate(
                f"prior: its density is not that of conjugate sites: {names} {actual:.12g} at a random point, expected "
                f"{term.value:.12g}; a handler or a distribution of the program changes the density"
            )
    # A density that the tables do not contain must not exist: it would change the posterior.
    above = {*held, *(site.name for site in program.sites if site.observed and held)}
    others = set(found) - above - {name for term in terms for name in term.sites}
    # A site that a branch does not use has nothing to be compared with: it keeps its prior.
    others -= {name for name in detected.layout.shapes if held}
    if others:
        raise NotConjugate(f"prior: its density is not that of conjugate sites: {min(others)!r} is none of them")


def site_densities(program: Program, values: Mapping[str, ArrayLike], transitions: Transitions) -> dict[str, float]:
    """The log density of every sample site of the conditioned model at `values`, as NumPyro computes it."""
    found = _compiled_densities(program)(dict(values), transitions)
    return {name: float(value) for name, value in found.items()}


@lru_cache(maxsize=64)
def _compiled_densities(
    program: Program,
) -> Callable[[dict[str, ArrayLike], Transitions], dict[str, Float[Array, ""]]]:
    model = joint(program.prior, program.space)

    @traced_alone
    def densities(values: dict[str, ArrayLike], data: Transitions) -> dict[str, Float[Array, ""]]:
        data_of: Any = values  # numpy arrays too
        given = handlers.substitute(data=data_of)
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0), given:
            model(data)
        return {name: _total(message) for name, message in trace.items() if message["type"] == "sample"}

    return jax.jit(densities)


def _total(message: Message) -> Float[Array, ""]:
    log_prob, scale, _ = density(message)
    return jnp.sum(log_prob if scale is None else scale * log_prob)


class Term(NamedTuple):
    """A log density by the tables.

    Args:
        sites: the sites of the program whose sum it is.
        value: the log density.
        size: sum of the sizes of all numbers that were added up: what rounding is relative to.
    """

    sites: tuple[str, ...]
    value: float
    size: float


def _term(sites: Iterable[str], *parts: ArrayLike) -> Term:
    values = [np.asarray(part, np.float64) for part in parts]
    return Term(tuple(sites), float(sum(x.sum() for x in values)), float(sum(np.abs(x).sum() for x in values)))


def _terms(detected: Detected, transitions: Transitions, point: Float[np.ndarray, " N"]) -> list[Term]:
    """Every log density of the tables, at `point`."""
    posterior, assembly = detected.posterior, detected.assembly
    prior = np.asarray(posterior.transition_probs.prior)
    drawn_rows = np.append(point, 1.0)[detected.rows]  # padding is 1
    # The prior density of the Dirichlet rows, site by site.
    terms, start = [], 0
    for site in assembly.rows:
        rows = slice(start, start := start + int(np.prod(site.shape[:-1])))
        terms.append(_term([site.name], *_log_dirichlet(drawn_rows[rows], prior[rows], detected.rows[rows] >= 0)))
    # The likelihood of the outcomes: the law that the tables select from the rows.
    # (step,) state, action, outcome index the law.
    place = (*(() if transitions.step is None else (transitions.step,)), transitions.state, transitions.action)
    outcome = np.asarray(transitions.outcome(posterior.space.n_states))
    probs = _law(posterior.transition_probs, drawn_rows)[(*place, outcome)]
    terms.append(_term([OBSERVED_NEXT_STATE], np.log(probs)))
    rewards = posterior.reward_cells
    if isinstance(rewards, KnownRewards):
        return terms
    # The prior density of the reward cells; pairs of plain sites make one normal-gamma, so that their sum is compared.
    names = [site.name for site in (*assembly.joint, *assembly.plain, *assembly.gammas)]
    drawn = [point[elements] for elements in detected.cells]
    terms.append(_term(names, *_DENSITY[type(rewards.prior)](rewards.prior, *drawn)))
    # The likelihood of the rewards, each under the cell that the tables give it.
    cell = np.arange(math.prod(rewards.shape)).reshape(rewards.shape) if rewards.cell is None else rewards.cell
    index = np.asarray(cell)[(*place, outcome) if rewards.by_outcome else place]
    reward = np.asarray(transitions.reward)
    terms.append(_term([OBSERVED_REWARD], *_LIKELIHOOD[type(rewards.prior)](rewards.prior, reward, index, *drawn)))
    return terms


def _law(rows: DirichletRows, drawn: Float[np.ndarray, "M K"]) -> Float[np.ndarray, "*H S A O"]:
    """The rows of the law for the values `drawn` of the stacked rows, in numpy."""
    if rows.row is None and rows.column is None:
        return drawn.reshape(rows.shape)
    row = np.arange(math.prod(rows.shape[:-1])).reshape(rows.shape[:-1]) if rows.row is None else np.asarray(rows.row)
    if rows.column is None:
        law = drawn[row]
    else:
        column = np.asarray(rows.column)
        law = np.where(column < 0, 0.0, drawn[row[..., None], column])
    return law if rows.known is None else np.where((row < 0)[..., None], rows.known, law)


def invent(detected: Detected, rng: np.random.Generator) -> Transitions:
    """Transitions to every possible outcome of every legal pair (of very many: to `MANY` of them, at random), a third
    of them twice, with possible rewards."""
    posterior, space = detected.posterior, detected.posterior.space
    possible = detected.possible
    if (number := possible.sum()) > MANY:
        possible = possible & (rng.random(possible.shape) < MANY / number)
    place = np.argwhere(possible)
    place = place[np.concatenate([np.arange(len(place)), rng.integers(len(place), size=len(place) // 3)])]
    *step, state, action, outcome = place.T
    ended = outcome == space.n_states
    prior = None if isinstance(posterior.reward_cells, KnownRewards) else posterior.reward_cells.prior
    if isinstance(prior, BetaBelief):
        reward = rng.integers(2, size=len(place)).astype(float)
    elif isinstance(prior, GammaBelief):
        reward = rng.poisson(3.0, size=len(place)).astype(float)
    else:
        reward = rng.normal(size=len(place))
    return Transitions(
        state, action, reward, np.where(ended, state, outcome), terminated=ended, step=step[0] if step else None
    )


def _draw(detected: Detected, rng: np.random.Generator, scale: float) -> Float[np.ndarray, " N"]:
    """A point inside the support of every conjugate site: central where `scale` is one, far out where it is large."""
    used, point = detected.rows >= 0, np.empty(detected.layout.size)
    # Normalised exponentials are a flat draw from the simplex; a power spreads them towards its corners, the constant
    # keeps them off its edges.
    rows = np.where(used, rng.standard_exponential(used.shape) ** np.sqrt(scale) + 0.1 / scale, 0.0)
    point[:] = 0.5
    point[detected.rows[used]] = (rows / np.maximum(rows.sum(-1, keepdims=True), 1e-9))[used]
    rewards = detected.posterior.reward_cells
    family = None if isinstance(rewards, KnownRewards) else type(rewards.prior)
    for k, elements in enumerate(detected.cells):
        if family in (NormalGammaBelief, NormalBelief) and k == 0:
            point[elements] = scale * rng.normal(size=elements.shape)
        elif family is BetaBelief:
            point[elements] = 0.5 + rng.uniform(-0.5, 0.5, size=elements.shape) * (1.0 - 0.4 / scale)
        else:
            point[elements] = scale ** rng.uniform(-1.0, 1.0, size=elements.shape) * rng.uniform(
                0.2, 0.8, size=elements.shape
            )
    return point


def _tolerance(program: Program) -> float:
    """float64 rounding, or that of the narrowest array of the program (a float32 constant in its laws)."""
    dtypes = (x.dtype for x in jax.tree.leaves(program.outputs.laws) if np.issubdtype(x.dtype, np.inexact))
    return max(TOLERANCE, *(1e2 * float(np.finfo(dtype).eps) for dtype in dtypes), 0.0)


def _log_dirichlet(x: Numbers, concentration: Numbers, used: Bool[np.ndarray, "..."]) -> Parts:
    concentration = np.where(used, concentration, 0.0)
    return xlogy(concentration - 1.0, x)[used], gammaln(concentration.sum(-1)), -gammaln(concentration[used])


def _log_gamma(x: Numbers, concentration: Numbers, rate: Numbers) -> Parts:
    return concentration * np.log(rate), -gammaln(concentration), (concentration - 1.0) * np.log(x), -rate * x


def _log_normal(x: Numbers, loc: Numbers, scale: Numbers) -> Parts:
    # The size of a difference of large numbers is theirs.
    rounding = 1e-16 * (x**2 + loc**2) / scale**2
    return -0.5 * ((x - loc) / scale) ** 2, -np.log(scale) - 0.5 * np.log(2.0 * np.pi), rounding, -rounding


def _log_normal_gamma(belief: NormalGammaBelief, mean: Numbers, precision: Numbers) -> Parts:
    scale = (belief.pseudo_count * precision) ** -0.5
    return *_log_gamma(precision, belief.concentration, belief.rate), *_log_normal(mean, belief.loc, scale)


def _log_beta(belief: BetaBelief, x: Numbers) -> Parts:
    one, zero = np.asarray(belief.concentration1), np.asarray(belief.concentration0)
    kernel = (one - 1.0) * np.log(x), (zero - 1.0) * np.log1p(-x)
    return *kernel, gammaln(one + zero), -gammaln(one), -gammaln(zero)


_DENSITY: dict[type, Callable[..., Parts]] = {
    NormalGammaBelief: _log_normal_gamma,
    NormalBelief: lambda belief, x: _log_normal(x, belief.loc, belief.scale),
    BetaBelief: _log_beta,
    GammaBelief: lambda belief, x: _log_gamma(x, belief.concentration, belief.rate),
}
"""Log density of the reward cells, term by term."""

_LIKELIHOOD: dict[type, Callable[..., Parts]] = {
    NormalGammaBelief: lambda belief, r, index, mean, precision: _log_normal(r, mean[index], precision[index] ** -0.5),
    NormalBelief: lambda belief, r, index, mean: _log_normal(r, mean[index], np.asarray(belief.noise_scale)[index]),
    BetaBelief: lambda belief, r, index, mean: (xlogy(r, mean[index]), xlogy(1.0 - r, 1.0 - mean[index])),
    GammaBelief: lambda belief, r, index, mean: (xlogy(r, mean[index]), -mean[index], -gammaln(r + 1.0)),
}
"""Log density of rewards given the cell that each belongs to, term by term."""
