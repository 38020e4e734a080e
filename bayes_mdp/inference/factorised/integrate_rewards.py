"""The posterior of what is behind the rewards by importance sampling, where it has no closed form: no chains.

Where the cells of the rewards are independent given what they share, there is one integral over one number for each:

    p(shared, x_1, ..., x_E, data) = p(shared) prod_e p(x_e | shared) p(data of e | x_e, shared),

e the elements of sites such as a mean for each pair. For values of what is shared all the integrals over x_e are taken
at once, by the trapezoid rule on nodes about the mode of each. That gives the marginal density of what is shared, and
draws of all x_e given it. The draws are weighted by the density of the whole program, so that what the rule has off is
corrected, and said by the weights. First these integrals (`CellModel`, `integrate_cells`), then `integrate_rewards`.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, PyTree
from scipy.spatial import KDTree
from scipy.special import gammaln, logsumexp

from bayes_mdp.inference.detection.entries import NONE, OPAQUE
from bayes_mdp.inference.detection.probe import Probe
from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.inference.factorised.sampled_rewards import SampledRewards
from bayes_mdp.inference.integrals.importance import (
    MOST_NUMBERS,
    Draws,
    Integration,
    effective_size,
    integrate_by_draws,
    integration_of,
    rate,
    smooth_tail,
    standard_error,
)
from bayes_mdp.inference.integrals.quadrature import (
    STRETCH,
    LogDensity,
    Mode,
    NotIntegrableError,
    Search,
    find_modes,
    integrate_by_grid,
    search,
)
from bayes_mdp.inference.integrals.unconstrained_model import UnconstrainedModel, Values
from bayes_mdp.inference.sampled.conditioned_program import DataStatistics, Rows
from bayes_mdp.inference.sampled.recipe import Recipe, unconstrained_model
from bayes_mdp.models.joint import OBSERVED_REWARD
from bayes_mdp.models.mdp_spec import reward_table
from bayes_mdp.numerics.host_program import HostProgram
from bayes_mdp.random.resampling import systematic_on_host

SCALARS = ("Normal", "Gamma", "Beta")
"""Families of sites whose elements are numbers."""
FURTHEST = 8.0
"""Where the nodes of an element end, in t: 30 widths."""
NODES, FINE = 17, 4
"""Nodes of an integral; for draws so many times as many, between which the density is taken as linear."""
NEGLIGIBLE = -15.0
"""Log density at the ends, less that at the mode."""
ZOOMS = 12
"""Ranges in which the mode of an element is looked for, ever narrower."""
LOOKED_AT, STARTS = 32, 4
"""Values of what is shared at which the marginal density is looked at, and from which its modes are climbed to."""
STRIP = 16
"""Rewards of one element that are added up before others are: adding by index is slow."""
FEW_REWARDS = 512
"""Up to which the traced program runs for less time than it takes to compile well."""
BLOCK = 8
"""Of values of what is shared, in one call of the traced program."""
ROWS, NUMBERS_AT_ONCE = 2048, 2**15
"""Where the density is closed: values of all sites in one call of the program without data, and densities of rewards
that NumPy takes at once."""
MOST_AXES = 2
"""Numbers that are shared of which there is a grid."""
TOLERANCE = 1e-3
"""Of the grid: its nodes are where draws are made about, which the weights correct."""
NUM_DRAWS, GIVEN = 4000, 512
"""Draws; values of what is shared at which the laws of the elements are computed, where there is no grid."""


class Cells(NamedTuple):
    """Which elements of which sites are independent given all other sites.

    Args:
        sites: their names, in order.
        element: [*cells], the number of the element in each cell of the reward law; -1: none.
    """

    sites: tuple[str, ...]
    element: Int[np.ndarray, "*cells"]


def find_cells(recipe: Recipe) -> Cells | None:
    """Sites with a known prior of which every cell of the reward law sees one element; None: there are none.

    All of it is read from the data flow of the program.

    Args:
        recipe: of the rewards.
    """
    assert recipe.prior is not None
    with jax.enable_x64(True):
        program = trace_program(recipe.prior, recipe.space)
        vectors = {s.name for s in program.latents if s.family in SCALARS and np.prod(s.shape) > 1}
        if not vectors:
            return None
        # Sites of one number are shared; vectors are candidates for elements of the cells.
        probe = Probe(program, tuple(site.name for site in program.latents if site.name not in vectors))
        if not program.draws_prior(probe.constants):
            return None
        # Nothing but the rewards sees them, and no site is above them.
        parents = [x for parameters in probe.parameters_of.values() for x in parameters.values()]
        densities = [x for parts in probe.densities.values() for x in parts if x is not None]
        # Two conditions for independence: no parameter of a site depends on the elements, and no density but the
        # rewards'.
        if any(probe.depends(x) for x in parents if x.shape) or any(probe.depends(x) & vectors for x in densities):
            return None
        return _select(probe)


def _select(probe: Probe) -> Cells | None:
    """What the reward law selects, where every cell selects at most one element."""
    law, space = probe.program.law, probe.program.space
    shape = (*space.shape, space.n_outcomes) if law.by_outcome else space.shape
    cells = np.full(shape, NONE)
    for entries in probe.reward.values():
        # Parameters of an event (the parts of a mixture) have further axes.
        element = entries.element.reshape(*shape, -1)
        highest = element.max(-1)
        several = (element != NONE) & (element != highest[..., None])
        differs = (cells != NONE) & (highest != NONE) & (cells != highest)
        if several.any() or differs.any():  # an opaque entry differs from the others, or is the highest
            return None
        cells = np.where(highest == NONE, cells, highest)
    return Cells(tuple(probe.layout.shapes), cells) if (cells >= 0).any() and not (cells == OPAQUE).any() else None


class Profiles(NamedTuple):
    """For every element the nodes about its mode: z = centre + width sinh(a t) / a, t equally spaced.

    Args:
        centre, width: [E].
    """

    centre: Float[np.ndarray, " E"]
    width: Float[np.ndarray, " E"]

    def at(self, t: Float[np.ndarray, "N _"]) -> tuple[Float[np.ndarray, "N E"], Float[np.ndarray, "N E"]]:
        """The values of the elements at t, and log of the length that a unit of t takes there."""
        return self.centre + self.width * np.sinh(STRETCH * t) / STRETCH, np.log(np.cosh(STRETCH * t) * self.width)

    def nodes(self, number: int) -> tuple[Float[np.ndarray, "Q E"], Float[np.ndarray, "Q E"]]:
        """So many nodes, and log of the length that each stands for."""
        t = np.linspace(-FURTHEST, FURTHEST, number)
        points, lengths = self.at(t[:, None])
        return points, lengths + np.log(t[1] - t[0])


class Closed(NamedTuple):
    """A reward law whose density NumPy takes an eighth of the time for that a compiled program does.

    Args:
        names: of its parameters.
        log_density: rewards [M] of one cell, their weights [M], parameters [B] each -> weighted sums [B].
    """

    names: tuple[str, ...]
    log_density: Callable[..., Float[np.ndarray, " B"]]


def _student_t(
    reward: Float[np.ndarray, " M"],
    weight: Float[np.ndarray, " M"],
    # log Gamma((df + 1) / 2) - log Gamma(df / 2) - log(pi df) / 2 - log scale - (df + 1) / 2 log(1 + z^2 / df).
    df: Float[np.ndarray, " B"],
    loc: Float[np.ndarray, " B"],
    scale: Float[np.ndarray, " B"],
) -> Float[np.ndarray, " B"]:
    z = (reward - loc[:, None]) / (np.sqrt(df) * scale)[:, None]
    height = gammaln((df + 1.0) / 2.0) - gammaln(df / 2.0) - 0.5 * np.log(np.pi * df) - np.log(scale)
    return weight.sum() * height - 0.5 * (df + 1.0) * (np.log1p(z * z) @ weight)


def _laplace(
    reward: Float[np.ndarray, " M"],
    weight: Float[np.ndarray, " M"],
    loc: Float[np.ndarray, " B"],
    scale: Float[np.ndarray, " B"],
) -> Float[np.ndarray, " B"]:
    return -weight.sum() * np.log(2.0 * scale) - (np.abs(reward - loc[:, None]) @ weight) / scale


CLOSED: Mapping[type[dist.Distribution], Closed] = MappingProxyType(
    {dist.StudentT: Closed(("df", "loc", "scale"), _student_t), dist.Laplace: Closed(("loc", "scale"), _laplace)}
)


class CellModel:
    """The density of a program whose cells are independent, given data.

    Args:
        recipe: of the rewards.
        cells: what is independent in it.
        data: rewards one by one.
    """

    def __init__(self, recipe: Recipe, cells: Cells, data: Rows) -> None:
        model = unconstrained_model(recipe)
        self.model, self.data = model, data
        self.elements = np.concatenate([model.places[name].ravel() for name in cells.sites])
        self.shared = np.setdiff1d(np.arange(model.dimension), self.elements)
        row = cells.element[tuple(np.asarray(data.where)[:, : cells.element.ndim].T)]
        row = np.where((row < 0) | (np.asarray(data.weight) == 0), len(self.elements), row)
        self.seen = np.bincount(row, minlength=len(self.elements) + 1)[:-1] > 0
        self._closed = None if recipe.law is None else CLOSED.get(recipe.law)
        if self._closed is not None:
            # Closed laws are summed in NumPy, cell by cell; a compiled program has the parameters alone to compute.
            # The parameters of the law in every cell, by the traced program, and the density of the rewards by NumPy.
            self._prior_terms = _prior_terms_of(recipe, cells.sites, self._closed.names)
            self._cells = _rewards_by_cell(cells.element.shape, row, data)
            return
        # Rewards of one element lie together, filled up to whole strips with others of weight zero.
        strips = -(-np.bincount(row) // STRIP)
        place = np.full((strips.sum(), STRIP), -1)
        order = np.argsort(row, kind="stable")
        start = STRIP * np.concatenate([[0], strips.cumsum()[:-1]])
        # The rank of each reward among those of its element, and from it the place in the element's strips.
        rank = np.arange(len(row)) - np.searchsorted(row[order], row[order])
        place.reshape(-1)[start[row[order]] + rank] = order
        self._of_strip = np.repeat(np.arange(len(strips)), strips)
        taken = place.reshape(-1)
        self._rows = replace(
            data,
            where=np.asarray(data.where)[taken],
            reward=np.asarray(data.reward)[taken],
            weight=np.where(taken < 0, 0.0, np.asarray(data.weight)[taken]),
        )
        self._quick = len(row) <= FEW_REWARDS
        self._terms = _terms_of(model, cells.sites, self._quick)

    def terms(
        self, shared: Float[np.ndarray, "N D"], elements: Float[np.ndarray, "N Q E"]
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N Q E"]]:
        """Log density of what is shared, and of each element with its rewards for Q values, a multiple of `NODES`."""
        number, num_elements, size = elements.shape
        if self._closed is not None:
            flat = np.repeat(shared, num_elements, axis=0), elements.reshape(number * num_elements, size)
            rest, of_elements, parameters = self._prior_terms.in_blocks(ROWS, flat)
            sums = self._log_rewards(self._closed, parameters)
            rest, of_elements = rest + sums[:, -1], of_elements + sums[:, :-1]
            return rest[::num_elements], of_elements.reshape(number, num_elements, size)
        parts = num_elements // NODES
        rows = np.repeat(shared, parts, axis=0), elements.reshape(number * parts, NODES, size)
        # Q values of each element are cut into pieces of NODES, so that one compiled shape serves any multiple of
        # these.
        rest, of_elements = self._terms.in_blocks(BLOCK, rows, self._of_strip, self._rows)
        return rest[::parts], of_elements.reshape(number, num_elements, size)

    def _log_rewards(
        self, closed: Closed, parameters: tuple[Float[np.ndarray, "B *cells"], ...]
    ) -> Float[np.ndarray, "B E1"]:
        """Log densities of the rewards of each element, of those of none last."""
        number = len(parameters[0])
        sums = np.zeros((number, len(self.elements) + 1))
        for cell, element, reward, weight in self._cells:
            of_cell = [x.reshape(number, -1)[:, cell] for x in parameters]
            size = max(1, NUMBERS_AT_ONCE // len(reward))
            for part in (slice(i, i + size) for i in range(0, number, size)):
                with np.errstate(all="ignore"):
                    sums[part, element] += closed.log_density(reward, weight, *(x[part] for x in of_cell))
        return sums

    def place(self, points: Float[np.ndarray, "N D"]) -> tuple[Float[np.ndarray, " N"], dict[str, np.ndarray]]:
        """Log densities of the whole program at points, and the values of its sites."""
        if self._closed is None:
            placed = self.model.place(points, {}, self.data, quick=self._quick)
            return placed.log_density, placed.values
        rest, of_elements = self.terms(points[:, self.shared], points[:, None, self.elements])
        return rest + of_elements.sum((1, 2)), self.model.place(points, {}).values

    def marginal(self, profiles: Profiles) -> LogDensity:
        """Values of what is shared -> log densities of these and of the data."""
        # p(shared) prod_e int p(x_e) p(rewards of e | x_e, shared) dx_e: given what is shared, every element is an
        # integral of its own, in one dimension.
        nodes, lengths = profiles.nodes(NODES)

        def density(shared: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
            rest, of_elements = self.terms(shared, np.broadcast_to(nodes, (len(shared), *nodes.shape)))
            with np.errstate(all="ignore"):
                integrals = np.asarray(logsumexp(of_elements + lengths, axis=1))
            # Of an element without data the prior alone is left, which integrates to one.
            # Only elements with rewards are integrated: the others' integral is one, but for the error of the rule.
            total = rest + integrals[:, self.seen].sum(-1)
            return np.where(np.isnan(total), -np.inf, total)

        return density

    def find_profiles(self, shared: Float[np.ndarray, "N D"], draws: Float[np.ndarray, "M E"]) -> list[Profiles]:
        """For values of what is shared the modes of all elements given it, and the widths there; those that are found.

        Args:
            shared: the values.
            draws: from the prior of the elements: where to look.
        """
        size = draws.shape[1]
        low, high = draws.min(0), draws.max(0)
        # The prior's range is the first window of every element.
        centre, half = (np.tile(x, (len(shared), 1)) for x in (0.5 * (low + high), 0.5 * (high - low)))
        width, steps = np.full(centre.shape, np.nan), np.linspace(-1.0, 1.0, NODES)
        grid_index = np.ix_(range(len(shared)), range(size))
        # Zoom in on all modes at once: the best of a few nodes is the next centre; at an end the window widens.
        for _ in range(ZOOMS):
            with np.errstate(all="ignore"):
                _, of_elements = self.terms(shared, centre[:, None] + half[:, None] * steps[:, None])
                logs = np.where(np.isnan(of_elements), -np.inf, of_elements)
                best = logs.argmax(1)
                inner = np.clip(best, 1, NODES - 2)
                before, middle, after = (logs[grid_index[0], inner + step, grid_index[1]] for step in (-1, 0, 1))
                # Half the second difference at the mode: (width of a node)^2 / 2 sigma^2 for a normal density.
                fall = middle - 0.5 * (before + after)
            spacing = half * 2.0 / (NODES - 1)
            # Where the density falls by less than a half over a step, the step measures its width.
            at_mode = (best == inner) & (fall < 0.5) & (fall > 1e-6)
            width = np.where(np.isnan(width) & at_mode, spacing / np.sqrt(2.0 * np.where(at_mode, fall, 1.0)), width)
            centre = centre + half * steps[best]
            half = np.where(best == inner, np.where(at_mode, half, 3.0 * spacing), 2.0 * half)
            if at_mode.all():
                break
        return [Profiles(c, w) for c, w in zip(centre, width, strict=True) if np.isfinite(w).all()]

    def draw_elements(
        self,
        rng: np.random.Generator,
        profiles: Profiles,
        shared: Float[np.ndarray, "K D"],
        which: Int[np.ndarray, " N"],
    ) -> tuple[Float[np.ndarray, "N E"], Float[np.ndarray, " N"]]:
        """Draws of the elements given some of the values of what is shared, and the log densities of these draws.

        Between two nodes the density is taken as linear in t.
        """
        nodes, lengths = profiles.nodes(FINE * NODES)
        _, of_elements = self.terms(shared, np.broadcast_to(nodes, (len(shared), *nodes.shape)))
        logs = of_elements + lengths
        logs = logs - logs.max(1, keepdims=True)
        # Truncation would be silent: the ends of the nodes must hold nothing of the mass.
        if not (logs[:, (0, -1)] < NEGLIGIBLE).all():
            raise NotIntegrableError("the density of a cell does not vanish far from its mode")
        height = np.exp(logs)
        # Trapezoids between neighbouring nodes, added up: the distribution function at the nodes.
        cumulative = np.cumsum(0.5 * (height[:, 1:] + height[:, :-1]), axis=1)
        total = cumulative[which, -1]
        # The inverse of the cumulative distribution: first the piece between two nodes, then the place within it.
        level = rng.random(total.shape) * total
        piece = np.minimum((cumulative[which] < level[:, None]).sum(1), cumulative.shape[1] - 1)
        segment = which[:, None], piece, np.arange(len(self.elements))
        left, right = height[segment], height[which[:, None], piece + 1, segment[2]]
        # Within the piece: left s + (right - left) s^2 / 2 = what the pieces before it leave of the level.
        rest, slope = np.maximum(level - cumulative[segment] + 0.5 * (left + right), 0.0), right - left
        root = np.sqrt(np.maximum(left**2 + 2.0 * slope * rest, 0.0))
        s = np.clip(2.0 * rest / np.maximum(left + root, 1e-300), 0.0, 1.0)
        spacing = 2.0 * FURTHEST / (len(nodes) - 1)
        points, length = profiles.at(-FURTHEST + spacing * (piece + s))
        # log density of x: that in t over the length of a unit of t, normalised by the whole area.
        return points, (np.log(np.maximum(left + slope * s, 1e-300)) - np.log(total * spacing) - length).sum(-1)


def _rewards_by_cell(
    shape: tuple[int, ...], row: Int[np.ndarray, " M"], data: Rows
) -> list[tuple[int, int, Float[np.ndarray, " m"], Float[np.ndarray, " m"]]]:
    """(cell, element, rewards, weights) of all cells with rewards."""
    weight, reward = np.asarray(data.weight, np.float64), np.asarray(data.reward, np.float64)
    seen = np.flatnonzero(weight != 0)
    # One group of rewards for each cell, in the order of the cells.
    cell = np.ravel_multi_index(tuple(np.asarray(data.where)[seen, : len(shape)].T), shape)
    seen, cell = seen[np.argsort(cell, kind="stable")], np.sort(cell)
    number, first = np.unique(cell, return_index=True)
    groups = np.split(seen, first[1:]) if len(seen) else []
    return [(int(c), int(row[i[0]]), reward[i], weight[i]) for c, i in zip(number, groups, strict=True)]


def _free(
    model: UnconstrainedModel, sites: tuple[str, ...], shared: Float[Array, " D"], x: Float[Array, " E"]
) -> dict[str, Array]:
    """The unconstrained values of all sites: of those of the elements, and of the others."""
    shared_sites = [name for name in model.places if name not in sites]
    rest = np.sort(np.concatenate([np.zeros(0, int), *(model.places[name].ravel() for name in shared_sites)]))
    sizes = np.cumsum([model.places[name].size for name in sites])[:-1]
    parts = dict(zip(sites, jnp.split(x, sizes), strict=True))
    free = {name: part.reshape(model.places[name].shape) for name, part in parts.items()}
    return free | {name: shared[np.searchsorted(rest, model.places[name])] for name in shared_sites}


@lru_cache(maxsize=64)
def _prior_terms_of(recipe: Recipe, sites: tuple[str, ...], names: tuple[str, ...]) -> HostProgram:
    """(shared [D], elements [E]) -> log densities without data, these parameters of the law in each cell; mapped."""
    model = unconstrained_model(recipe)

    def at(rows: tuple[Array, Array]) -> tuple[Array, Array, tuple[Array, ...]]:
        densities, spec = model.densities(_free(model, sites, *rows), None)
        # Densities of the elements apart from the rest: the rest is the same for all their values.
        of_elements = jnp.concatenate([jnp.ravel(sum(densities.pop(name))) for name in sites])  # pyright: ignore
        total = sum((jnp.sum(logs) + jnp.sum(slope) for logs, slope in densities.values()), jnp.zeros(()))
        law = reward_table(spec, recipe.space).law
        return jnp.asarray(total), of_elements, tuple(getattr(law, name) for name in names)

    return HostProgram(jax.vmap(at), quick=None)


@lru_cache(maxsize=64)
def _terms_of(model: UnconstrainedModel, sites: tuple[str, ...], quick: bool) -> HostProgram:
    """(shared [D], elements [Q E]), element of each strip of rewards, data -> terms; mapped over the former."""

    def at(shared: Array, x: Array, of_strip: Array, data: PyTree) -> tuple[Array, Array]:
        # What is shared and what is not are kept apart: the former is computed once for all values of the latter.
        densities, _ = model.densities(_free(model, sites, shared, x), data)
        rewards = densities.pop(OBSERVED_REWARD)[0]
        of_elements = jnp.concatenate([jnp.ravel(sum(densities.pop(name))) for name in sites])  # pyright: ignore
        # Sum within strips first, then strips by element; the last segment holds rewards of no element.
        by_element = jax.ops.segment_sum(rewards.reshape(-1, STRIP).sum(-1), of_strip, len(of_elements) + 1)
        total = sum((jnp.sum(logs) + jnp.sum(slope) for logs, slope in densities.values()), by_element[-1])
        return jnp.asarray(total), of_elements + by_element[:-1]

    def each(rows: tuple[Array, Array], of_strip: Array, data: PyTree) -> tuple[Array, Array]:
        shared, elements = rows
        rest, terms = jax.vmap(at, in_axes=(None, 0, None, None))(shared, elements, of_strip, data)
        return rest[0], terms

    return HostProgram(jax.vmap(each, in_axes=(0, None, None)), quick=quick)


def integrate_cells(
    model: CellModel,
    rng: np.random.Generator,
    draws: Float[np.ndarray, "N U"],
    near: Float[np.ndarray, "M U"] | None = None,
) -> tuple[Draws, dict[str, np.ndarray]]:
    """Weighted draws of all numbers, by what is shared first and the elements given it; and the values of the sites.

    Args:
        model: the density.
        rng: of the draws.
        draws: from the prior, all numbers.
        near: about which the posterior is expected; None: nothing is known.

    Raises:
        NotIntegrableError: the weights are not to be relied on; says why.
    """
    # Two rounds: profiles about a rough place to find the mode of what is shared, then those about it to integrate.
    shared, elements = draws[:, model.shared], draws[:, model.elements]
    expected = (shared if near is None else near[:, model.shared])[:BLOCK]
    # Of several values of what is shared the best is where the search begins.
    densities = [model.marginal(profiles) for profiles in model.find_profiles(expected, elements)]
    if not densities:
        raise NotIntegrableError("the density of a cell has no mode that can be found")
    density = max(densities, key=lambda profiles: profiles(expected).max())
    modes_of_shared = search(density, shared[:LOOKED_AT], expected[:1], STARTS)
    if modes_of_shared is None:
        raise NotIntegrableError("no draw of the prior has a finite density")
    # The nodes of the elements follow the mode.
    profile = model.find_profiles(modes_of_shared.modes[0].point[None], elements)
    if not profile:
        raise NotIntegrableError("the density of a cell has no mode that can be found")
    density = model.marginal(profile[0])
    size = len(model.shared)
    modes = _modes_again(density, modes_of_shared) if size else []
    # Few shared numbers are integrated by a grid, whose error is seen; more of them by weighted draws.
    if not size:  # the one point of no dimension, whose density is 1
        points, logs = np.zeros((NUM_DRAWS, 0)), np.zeros(NUM_DRAWS)
        shared_points, nearest = points[:1], np.zeros(NUM_DRAWS, int)
    elif size <= MOST_AXES:
        # No means have to converge: there are none.
        grid = integrate_by_grid(density, modes, modes_of_shared.cover, lambda x: x[:, :0], tolerance=TOLERANCE)
        points, logs, node = grid.propose(rng, NUM_DRAWS)
        used, nearest = np.unique(node, return_inverse=True)
        shared_points = grid.points[used]
    else:
        drawn = integrate_by_draws(rng, density, modes)
        points = drawn.points
        logs = drawn.log_weights + np.log(len(points)) + drawn.log_evidence - drawn.log_density
        # Elements are drawn given a value nearby, which the weights correct.
        shared_points = points[systematic_on_host(rng, np.exp(drawn.log_weights), GIVEN)]
        nearest = np.asarray(KDTree(modes[0].standardise(shared_points)).query(modes[0].standardise(points))[1])
    x, log_density = model.draw_elements(rng, profile[0], shared_points, nearest)
    # The elements were drawn under a nearby value of what is shared, so all numbers are weighed once more, together.
    together = np.zeros((len(points), model.model.dimension))
    together[:, model.shared], together[:, model.elements] = points, x
    heights, values = model.place(together)
    drawn = rate(together, logs - log_density + heights, heights)
    # Hardly ever a draw has no weight.
    whole = len(drawn.points) == len(together)
    return drawn, values if whole else model.place(drawn.points)[1]


def _modes_again(density: LogDensity, rough: Search) -> list[Mode]:
    """The modes of a density near those of a rougher one."""
    starts = np.stack([mode.point for mode in rough.modes])
    return find_modes(density, starts, np.linalg.norm(rough.modes[0].root, axis=1))


def allows_integral(recipe: Recipe) -> bool:
    """Whether its sites are proper, continuous and not too many for importance sampling."""
    model = unconstrained_model(recipe)
    return not recipe.improper and not model.held and model.dimension <= MOST_NUMBERS


DRAWS = 1000
"""Whose reward laws are computed at once."""


cells_of = lru_cache(maxsize=64)(find_cells)


def integrate_rewards(
    recipe: Recipe, data: DataStatistics, rng: np.random.Generator, near: Values | None = None
) -> tuple[dict[str, np.ndarray], Float[np.ndarray, " N"], Integration]:
    """Draws of the sites {site: [N ...]}, their log weights, and how good they are. Host side.

    Args:
        recipe: of the rewards.
        data: all data.
        rng: of the draws.
        near: values [n ...] of the sites about which the posterior is expected; None: nothing is known.

    Raises:
        NotIntegrableError: the weights are not to be relied on; says why.
    """
    model = unconstrained_model(recipe)
    expected = None if near is None else model.unconstrained(near, {}, data)
    # Draws of the prior show the scale of every number.
    points, cells, integral = model.points(rng, {}), cells_of(recipe), None
    if points is None:
        raise NotIntegrableError("no place where the sites have a positive density was found")
    draws = rng.permutation(points)
    # Cells of their own make the integral much easier; where there are none, or it fails, all numbers go in at once.
    if cells is not None and isinstance(data, Rows):
        with suppress(NotIntegrableError):  # all numbers at once, below
            integral = integrate_cells(CellModel(recipe, cells, data), rng, draws, expected)
    if integral is None:
        density = model.log_density({}, data)
        looked = search(density, draws, expected)
        if looked is None:
            raise NotIntegrableError("no draw of the prior has a finite density")
        drawn = integrate_by_draws(rng, density, looked.modes)
        integral = drawn, model.place(drawn.points, {}, data).values
    drawn, values = integral
    log_evidence = drawn.log_evidence - recipe.log_constant
    integration = integration_of(log_evidence, drawn.error, drawn.effective, drawn.pareto_k, model.dimension)
    return values, drawn.log_weights, integration


def weigh_rewards(
    recipe: Recipe, data: DataStatistics, rng: np.random.Generator, near: Values | None = None
) -> SampledRewards:
    """The belief about the rewards by importance sampling. Host side.

    Raises:
        NotIntegrableError: as `integrate_rewards`, whose arguments these are.
    """
    sites, log_weights, integration = integrate_rewards(recipe, data, rng, near)
    table = _tables(recipe).in_blocks(DRAWS, sites)
    return SampledRewards(  # pyright: ignore[reportCallIssue] (it takes abstract variables for fields)
        sites, table, log_weights, data, None, recipe, integration
    )


@lru_cache(maxsize=64)
def _tables(recipe: Recipe) -> HostProgram:
    # Of values of the sites the laws alone, not the rows.
    return HostProgram(lambda sites: recipe.tables(sites)[1], quick=None)


def rate_weights(log_weights: Float[np.ndarray, " N"], log_evidence: float, numbers: int) -> Integration:
    """The record of an integral whose draws have these weights.

    Args:
        log_weights: of the draws, up to a constant.
        log_evidence: log of the integral.
        numbers: continuous numbers that were integrated over.
    """
    smoothed, k = smooth_tail(log_weights)
    error = standard_error(log_weights)
    return integration_of(log_evidence, error, effective_size(smoothed), k, numbers)
