"""The certificate: the tables of a closed form against the program itself, by numbers, site by site.

The proof is the data flow (`detect`). This is the second line, against faults of the reader of that flow: at random
points, the density of every conjugate site as NumPyro computes it is that of the tables, and so is the likelihood of
invented data under `bayes_mdp.models.joint`. Both sides are written independently: NumPyro's `log_prob` there, numpy
and scipy here. Sites are compared one by one, each by the size of the terms that make it up: a concentration of 1e8
does not hide what another site does, and its rounding is no fault.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int
from scipy.special import gammaln

from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.regression import RegressionRewards
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import KnownRewards, Rewards
from bayes_mdp.inference.detection.detect import Detected
from bayes_mdp.inference.detection.detect_rows import batch_shape
from bayes_mdp.inference.detection.probe import NotConjugate
from bayes_mdp.inference.detection.trace import KNOWN, Message, Program, density, dtypes, run_program
from bayes_mdp.inference.families.family import check_conjugacy, gamma_terms, normal_terms, reward_laws
from bayes_mdp.mdp import Transitions
from bayes_mdp.mdp.space import program_cache
from bayes_mdp.models import joint
from bayes_mdp.models.joint import OBSERVED_NEXT_STATE, OBSERVED_REWARD
from bayes_mdp.models.reward_laws import law_at
from bayes_mdp.models.sufficient_statistics import Statistics, has_statistics
from bayes_mdp.numerics.host_program import small_jit
from bayes_mdp.utils.typing import AnyArray, ArrayLike

Numbers: TypeAlias = Float[AnyArray, "..."] | np.floating
Parts: TypeAlias = tuple[ArrayLike, ...]
"""The numbers that add up to a log density."""

MANY = 2**17
BLOCK = 2**16
"""Numbers of a large table that are worked on at once."""
TOLERANCE = 1e-9
LEAST = 1e-4
"""Size of a number that is zero: 1e-13 of rounding is allowed for each."""
SCALES = (1.0, 30.0)
"""Of the points: well inside the support of every site, and far out."""


def certify(
    program: Program,
    detected: Detected,
    rng: np.random.Generator,
    *,
    held: Mapping[str, ArrayLike] | None = None,
    rewards: bool = True,
) -> None:
    """Compare `detected` with the program on invented transitions to the possible outcomes of all legal pairs.

    Host side, float64.

    Args:
        program: the program.
        detected: its closed form, at `held` values of the other sites.
        rng: draws points and transitions.
        held: values of the latent sites that are not conjugate.
        rewards: whether the closed form is that of the rewards too; False: of the rows alone.

    Raises:
        NotConjugate: the closed form is not that of the program.
    """
    # Every possible outcome of every legal pair is observed (of very many, a random part): every entry is used.
    # Counts above one as well: powers of a density show more than the density.
    transitions = invent(detected, rng)
    data = summarise_for_program(program, transitions, rewards=rewards)
    for scale in SCALES:
        check_at(program, detected, transitions, data, _draw(detected, rng, scale), held or {}, rewards=rewards)


def check_at(
    program: Program,
    detected: Detected,
    transitions: Transitions,
    data: Statistics | Transitions,
    point: Float[np.ndarray, " N"],
    held: Mapping[str, ArrayLike],
    *,
    rewards: bool = True,
) -> None:
    """The comparison at one point, a vector of all elements of the conjugate sites; `data` summarise the transitions.

    Raises:
        NotConjugate: the density of a site differs.
    """
    # Density by density: NumPyro's log_prob of each site of the conditioned model against that of the tables.
    densities = site_densities(program, {**held, **detected.layout.split(point)}, data)
    terms = _terms(detected, transitions, point)
    for term in terms:
        actual = sum(densities[name] for name in term.sites)
        # Rounding in units of the largest numbers that were added.
        if not abs(actual - term.value) <= tolerance(program) * (1.0 + term.size):
            names = ", ".join(repr(name) for name in term.sites)
            raise NotConjugate(
                f"prior: its density is not that of conjugate sites: {names} {actual:.12g} at a random point, expected "
                f"{term.value:.12g}; a handler or a distribution of the program changes the density"
            )
    # A density that the tables do not contain must not exist: it would change the posterior.
    parents = {*held, *(site.name for site in program.sites if site.observed and held)}
    unexplained = set(densities) - parents - {name for term in terms for name in term.sites}
    unexplained -= set() if rewards else {OBSERVED_REWARD}
    # A site that a branch does not use has nothing to be compared with: it keeps its prior.
    unexplained -= {name for name in detected.layout.shapes if held}
    unexplained -= detected.constants.keys()
    if unexplained:
        raise NotConjugate(f"prior: its density is not that of conjugate sites: {min(unexplained)!r} is none of them")


def summarise_for_program(
    program: Program, transitions: Transitions, *, rewards: bool = True
) -> Statistics | Transitions:
    """Invented transitions in the form in which the conditioned model is called with them.

    Statistics where the law of rewards has them, added up on the host: so the compiled model does not count.

    Args:
        program: whose law of rewards it is.
        transitions: with rewards that this law can give, if `rewards`.
        rewards: False: the rewards are not compared, and left out.
    """
    if not rewards:
        transitions = eqx.tree_at(lambda t: t.reward, transitions, None)
    # The conditioned model takes sums where its law has them.
    kinds = {KNOWN: None} | {kind.__name__: kind for kind in reward_laws() if has_statistics(kind)}
    if program.law.family not in kinds:
        return transitions
    kind = kinds[program.law.family]
    return Statistics.of(transitions, program.space, kind, program.law.by_outcome and kind is not None)


def site_densities(
    program: Program, values: Mapping[str, ArrayLike], data: Statistics | Transitions
) -> dict[str, float]:
    """The log density of every sample site of the conditioned model at `values`, as NumPyro computes it."""
    densities = _densities_in_jit(program)(dict(values), data)
    return {name: float(value) for name, value in densities.items()}


@program_cache
def _densities_in_jit(
    program: Program,
) -> Callable[[dict[str, ArrayLike], Statistics | Transitions], dict[str, Float[Array, ""]]]:
    model = joint(program.prior, program.space)

    def densities(values: dict[str, ArrayLike], data: Statistics | Transitions) -> dict[str, Float[Array, ""]]:
        # NumPyro's own trace of the conditioned program.
        _, trace = run_program(model, data, values)
        return {name: _total(message) for name, message in trace.items() if message["type"] == "sample"}

    return small_jit(densities)


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
    # A density of one is a difference of log gammas to NumPyro: what is zero here has their rounding there.
    size = sum(np.abs(x).sum() + LEAST * x.size for x in values)
    return Term(tuple(sites), float(sum(x.sum() for x in values)), float(size))


def _dirichlet_term(name: str, x: Float[np.ndarray, "M K"], concentration: Float[np.ndarray, "M K"]) -> Term:
    """The density of rows, some rows at a time: a table of 10^7 numbers costs most by the memory of its temporaries."""
    value, size, rows = 0.0, 0.0, max(1, BLOCK // x.shape[1])
    # Rows of a block fit into a cache.
    for i in range(0, len(x), rows):
        alpha = concentration[i : i + rows]
        term = _term([name], *_log_dirichlet(x[i : i + rows], alpha, alpha > 0))
        value, size = value + term.value, size + term.size
    return Term((name,), value, size)


def _terms(detected: Detected, transitions: Transitions, point: Float[np.ndarray, " N"]) -> list[Term]:
    """Every log density of the tables, at `point`."""
    posterior, assembly = detected.posterior, detected.assembly
    # Every density is written out here in NumPy and SciPy, not by NumPyro: the two sides share no code.
    prior = np.asarray(posterior.transition_probs.prior)
    # An element e, its complement N + e (of a Beta site), or padding: 1.
    drawn_rows = _at_elements(point, detected.rows)
    # The prior density of the Dirichlet rows, site by site.
    terms, start = [], 0
    for site in assembly.rows:
        rows = slice(start, start := start + int(np.prod(batch_shape(site))))
        terms.append(_dirichlet_term(site.name, drawn_rows[rows], prior[rows]))
    # The likelihood of the outcomes: the law that the tables select from the rows.
    # (step,) state, action, outcome index the law.
    place = (*(() if transitions.step is None else (transitions.step,)), transitions.state, transitions.action)
    outcome = np.asarray(transitions.outcome(posterior.space))
    probs = _law(posterior.transition_probs, drawn_rows)[(*place, outcome)]
    terms.append(_term([OBSERVED_NEXT_STATE], np.log(probs)))
    rewards = posterior.reward_cells
    reward_cell = (*place, outcome) if rewards.by_outcome else place
    reward = np.asarray(transitions.reward)
    if isinstance(rewards, KnownRewards):
        if rewards.known_law is not None:
            terms.append(_term([OBSERVED_REWARD], _log_law(rewards.known_law, reward, reward_cell)))
        return terms
    drawn = [point[elements] for elements in detected.cells]
    if isinstance(rewards, RegressionRewards):
        return [*terms, *_regression_terms(detected, rewards, reward, reward_cell, drawn)]
    assert isinstance(rewards, RewardCells)
    # The prior density of the reward cells; pairs of plain sites make one normal-gamma, so that their sum is compared.
    names = [site.name for site in (*assembly.joint, *assembly.plain, *assembly.gammas)]
    stretch = assembly.stretch
    if len(drawn) == 2 and stretch is not None:
        # The tables hold stretch * precision, whose density is that of the precision, over stretch.
        drawn[1] = drawn[1] * stretch
        terms.append(_term(names, *rewards.prior.prior_terms(tuple(drawn)), np.log(stretch)))
    else:
        terms.append(_term(names, *rewards.prior.prior_terms(tuple(drawn))))
    # The likelihood of the rewards, each under the cell that the tables give it.
    cell = np.arange(math.prod(rewards.shape)).reshape(rewards.shape) if rewards.cell is None else rewards.cell
    index = np.asarray(cell)[reward_cell]
    from_site = index >= 0
    of_own = tuple(axis[from_site] for axis in reward_cell)
    parts: list[ArrayLike] = []
    if rewards.coefficient is not None and rewards.offset is not None:
        coefficient, offset = (np.asarray(x)[of_own] for x in (rewards.coefficient, rewards.offset))
        parts.append(-np.log(np.abs(coefficient)))
        standardised = (reward[from_site] - offset) / coefficient
    else:
        standardised = reward[from_site]
    belief, *values = jax.tree.map(lambda x: np.asarray(x)[index[from_site]], (rewards.prior, *drawn))
    parts.extend(belief.log_density(standardised, tuple(values)))
    if not rewards.prior.is_own():
        check_conjugacy(rewards.prior, standardised, index[from_site], tuple(drawn))
    if rewards.known_law is not None:
        parts.append(_log_law(rewards.known_law, reward[~from_site], tuple(axis[~from_site] for axis in reward_cell)))
    terms.append(_term([OBSERVED_REWARD], *parts))
    return terms


def _regression_terms(
    detected: Detected,
    rewards: RegressionRewards,
    reward: Float[np.ndarray, " T"],
    where: tuple[AnyArray, ...],
    drawn: list[np.ndarray],
) -> list[Term]:
    """Prior density of the weights (and of the precision), and likelihood of rewards with a linear mean."""
    prior, weights = rewards.prior, drawn[0]
    tau = np.asarray(drawn[1][0] if len(drawn) > 1 else 1.0)
    # With R'R the precision: log N(w) = sum log diag R - |R (w - m)|^2 / 2 - D log(2 pi) / 2.
    root = np.linalg.cholesky(np.asarray(prior.precision) * tau).T
    # Half of the squared length, whitened.
    deviation = root @ (weights - prior.loc)
    parts: list[ArrayLike] = [
        -0.5 * deviation**2,
        np.log(np.diag(root)),
        np.full(len(weights), -0.5 * np.log(2.0 * np.pi)),
    ]
    if prior.concentration is not None and prior.rate is not None:
        parts.extend(gamma_terms(tau, np.asarray(prior.concentration), np.asarray(prior.rate)))
    terms = [_term([name for name, _ in rewards.sites], *parts)]
    # Mean offset + features . w, and precision noise_precision times tau.
    mean = np.asarray(rewards.offset)[where] + np.asarray(rewards.features)[where] @ weights
    scale = (np.asarray(rewards.noise_precision)[where] * tau) ** -0.5
    terms.append(_term([OBSERVED_REWARD], *normal_terms(reward, mean, scale)))
    return terms


def _log_law(
    law: dist.Distribution, reward: Float[np.ndarray, " T"], where: tuple[AnyArray, ...]
) -> Float[np.ndarray, " T"]:
    """Log density of rewards under a law without unknowns."""
    cell_law = law_at(law, tuple(map(jnp.asarray, where)))
    return np.asarray(cell_law.log_prob(jnp.asarray(reward, int if law.is_discrete else float)))


def _at_elements(point: Float[np.ndarray, " N"], elements: Int[np.ndarray, "M K"]) -> Float[np.ndarray, "M K"]:
    """The values of elements e, complements N + e (one less them) and padding (one)."""
    if _are_all(elements, len(point)):
        return point.reshape(elements.shape)
    return np.concatenate([point, 1.0 - point, [1.0]])[elements]


def _are_all(elements: Int[np.ndarray, "M K"], size: int) -> bool:
    """The common case: the rows hold all elements in their order."""
    flat = elements.ravel()
    blocks = range(0, size, BLOCK)
    return len(flat) == size and all(
        np.array_equal(flat[i : i + BLOCK], np.arange(i, min(i + BLOCK, size))) for i in blocks
    )


def _law(rows: DirichletRows, drawn: Float[np.ndarray, "M K"]) -> Float[np.ndarray, "*H S A O"]:
    """The rows of the law for the values `drawn` of the stacked rows, in numpy."""
    if rows.row is None and rows.column is None:
        return drawn.reshape(rows.shape)
    row = np.arange(math.prod(rows.shape[:-1])).reshape(rows.shape[:-1]) if rows.row is None else np.asarray(rows.row)
    if rows.column is None:
        law = drawn[row]
    else:
        column = np.asarray(rows.column)
        # A negative column: an outcome that the row does not have.
        law = np.where(column < 0, 0.0, drawn[row[..., None], column])
    return law if rows.known is None else np.where((row < 0)[..., None], rows.known, law)


def invent(detected: Detected, rng: np.random.Generator) -> Transitions:
    """Transitions to every possible outcome of every legal pair (of very many: to `MANY` of them, at random), a third
    of them twice, with possible rewards."""
    posterior, space = detected.posterior, detected.posterior.space
    possible = detected.possible
    if (number := possible.sum()) > MANY:
        possible = possible & (rng.random(possible.shape) < MANY / number)
    # Each possible outcome once, so that every entry is used; some twice, so that counts above one are too.
    place = np.argwhere(possible)
    place = place[np.concatenate([np.arange(len(place)), rng.integers(len(place), size=len(place) // 3)])]
    *step, state, action, outcome = place.T
    next_state, ended = (np.asarray(x) for x in space.reached((*step, state, action), outcome))
    reward_cell = (*step, state, action, outcome) if posterior.reward_cells.by_outcome else (*step, state, action)
    reward = _possible_rewards(posterior.reward_cells, reward_cell, rng)
    return Transitions(state, action, reward, next_state, terminated=ended, step=step[0] if step else None)


def _possible_rewards(
    rewards: Rewards, where: tuple[AnyArray, ...], rng: np.random.Generator
) -> Float[np.ndarray, " T"]:
    """Rewards that the law can give at the cells `where`."""
    size = len(where[0])
    if isinstance(rewards, KnownRewards) and rewards.known_law is not None:
        # A known law is sampled by NumPyro itself.
        cell_law = law_at(rewards.known_law, tuple(map(jnp.asarray, where)))
        return np.asarray(cell_law.sample(jax.random.key(int(rng.integers(2**31)))), np.float64)
    law = rewards.support().at(where if not rewards.by_outcome else where[:-1], where[-1])
    low, high = (np.broadcast_to(x, size) for x in (law.low, law.high))
    share, positive = rng.random(size), rng.gamma(2.0, size=size)
    # By which ends the support has.
    bounded_below, bounded_above = np.isfinite(low), np.isfinite(high)
    with np.errstate(invalid="ignore"):  # an end that is infinite is not used
        between = np.where(law.whole, low + np.floor(share * (high - low + 1.0)), low + share * (high - low))
        beyond = low + np.where(law.whole, rng.poisson(3.0, size=size), positive)
    return np.select(
        [bounded_below & bounded_above, bounded_below, bounded_above],
        [between, beyond, high - positive],
        rng.normal(size=size),
    )


def _draw(detected: Detected, rng: np.random.Generator, scale: float) -> Float[np.ndarray, " N"]:
    """A point inside the support of every conjugate site: central where `scale` is one, far out where it is large."""
    # Elements of impossible outcomes (a concentration of zero) are zero.
    used = np.asarray(detected.posterior.transition_probs.prior) > 0
    point = np.empty(detected.layout.size)
    # Normalised exponentials are a flat draw from the simplex; a power spreads them towards its corners, the constant
    # keeps them off its edges.
    rows = _spread(rng, used.shape, scale)
    rows *= used
    rows /= np.maximum(rows.sum(-1, keepdims=True), 1e-9)
    if _are_all(detected.rows, len(point)):
        point = rows.ravel()
    else:
        point[:] = 0.5
        # Complements (N + e) are no elements: they follow.
        from_site = (detected.rows >= 0) & (detected.rows < detected.layout.size)
        point[detected.rows[from_site]] = rows[from_site]
    of_site = {site.name: site.family for site in detected.assembly.joint}
    for k, elements in enumerate(detected.cells):
        family = of_site.get(detected.layout.site(int(elements.flat[0])), "Normal")
        if family == "Dirichlet":
            drawn = rng.standard_exponential(elements.shape) ** np.sqrt(scale) + 0.1 / scale
            point[elements] = drawn / drawn.sum(-1, keepdims=True)
        elif family in ("Normal", "NormalGamma") and k == 0:  # means; precisions come second
            point[elements] = scale * rng.normal(size=elements.shape)
        elif family == "Beta":
            point[elements] = 0.5 + rng.uniform(-0.5, 0.5, size=elements.shape) * (1.0 - 0.4 / scale)
        else:
            point[elements] = scale ** rng.uniform(-1.0, 1.0, size=elements.shape) * rng.uniform(
                0.2, 0.8, size=elements.shape
            )
    return point


def _spread(rng: np.random.Generator, shape: tuple[int, ...], scale: float) -> Float[np.ndarray, "..."]:
    """Powers of exponentials and a constant; of very many the same numbers again and again, out of step with rows."""
    size = math.prod(shape)
    # A length that no row divides: equal numbers do not line up.
    drawn = rng.standard_exponential(shape if size <= MANY else MANY - 1) ** np.sqrt(scale) + 0.1 / scale
    return drawn if size <= MANY else np.resize(drawn, shape)


def tolerance(program: Program) -> float:
    """float64 rounding, or that of float32 where any array of the program is one (a constant of the user's)."""
    return 1e2 * float(np.finfo(np.float32).eps) if np.dtype(np.float32) in dtypes(program.closed) else TOLERANCE


def _log_dirichlet(x: Numbers, concentration: Numbers, used: Bool[np.ndarray, "..."]) -> Parts:
    total = gammaln((concentration * used).sum(-1))
    # What is possible alone: lists of successors are padded to the longest. No number there is zero (see `_draw`).
    alpha, x = (np.ravel(part) if used.all() else np.asarray(part)[used] for part in (concentration, x))
    return (alpha - 1.0) * np.log(x), total, -_log_gamma_of(alpha)


def _log_gamma_of(alpha: Float[np.ndarray, " E"]) -> Float[np.ndarray, " E"]:
    """gammaln; of one number that repeats once."""
    if alpha.size and (alpha == alpha[0]).all():
        return np.broadcast_to(gammaln(alpha[0]), alpha.shape)
    return gammaln(alpha)
