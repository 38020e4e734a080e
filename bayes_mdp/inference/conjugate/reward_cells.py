"""`RewardCells`: the belief about rewards whose parameters are elements of stacked conjugate sites of one family."""

import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.rewards import (
    Cells,
    ComponentPrior,
    Drawer,
    Outcome,
    Rewards,
    SiteDraws,
    Weight,
    density_by_weight,
)
from bayes_mdp.inference.conjugate.site_table import (
    Sites,
    first_pairs_in_common,
    is_injective,
    unless_identity,
)
from bayes_mdp.inference.families.family import RewardBelief, RewardStreams, statistics
from bayes_mdp.mdp import Counts, StateActionSpace
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.models.reward_laws import law_at, law_variance, tabulate
from bayes_mdp.models.reward_support import RewardSupport, anything, support_of
from bayes_mdp.models.sufficient_statistics import RewardSums
from bayes_mdp.numerics.numpy_or_jax import add_at, has_jax_array, index_of_entry, pick, xp
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index, IntScalar, LogDensity, RealLike, RealScalar
from bayes_mdp.utils.validation import check_shape


class RewardCells(Rewards):
    """Independent beliefs about M site elements, and the table by which the law selects from them.

    Built by `reward_cells`.

    The cells of the law are [*H S A], or [*H S A O] where the reward depends on the outcome (`by_outcome`).

    Args:
        prior: a belief of one family (`bayes_mdp.inference.families`), arrays [M].
        data: [M D], the statistics of the observed rewards that the family keeps; of most families count, mean and
            sum of squared deviations.
        cell: the site element of each cell of the law, -1 for a known reward; None: row-major, one each.
        known: the known mean rewards (read where `cell` is -1); None: there is none.
        shape: shape of the cells of the law.
        by_outcome: whether the last axis of `shape` is the outcome.
        independent: no element is used by two pairs.
        distinct: no element is used by two cells.
        sites: (name, batch shape) of the stacked sites, in order.
        known_law: the law of the known rewards, a table of the family's own law, read where `cell` is -1; None:
            they are numbers, or there is none.
        coefficient, offset: [*cells], the law is that of coefficient * x + offset, x a reward of the family (normal
            rewards only); None: of x itself.
    """

    prior: RewardBelief
    data: Float[AnyArray, "M D"]
    cell: Int[AnyArray, "*cells"] | None
    known: Cells | None
    shape: tuple[int, ...] = eqx.field(static=True)
    by_outcome: bool = eqx.field(static=True)
    independent: bool = eqx.field(static=True)
    distinct: bool = eqx.field(static=True)
    sites: Sites = eqx.field(static=True, default=())
    known_law: dist.Distribution | None = None  # type: ignore[override]
    coefficient: Cells | None = None
    offset: Cells | None = None

    @property
    def law(self) -> type[dist.Distribution]:  # type: ignore[override]
        """The family of the law of one reward."""
        return self.prior.law

    @property
    def has_moments(self) -> bool:  # type: ignore[override]
        """Whether count, mean and squared deviations of the rewards are sufficient."""
        return self.prior.takes_counts

    @property
    def site_belief(self) -> RewardBelief:
        """The belief after data, arrays [M]."""
        return self.prior.after(self.data)

    @property
    def belief(self) -> RewardBelief:
        """The belief after data with the cells of the law as shape; nan where the reward is known.

        Of affine rewards (`coefficient`, `offset`) it is that of the elements behind them.
        """
        return jax.tree.map(lambda values: self.select(values, np.nan), self.site_belief)

    def select(self, element: Float[AnyArray, "M *event"], otherwise: RealLike) -> Float[AnyArray, "..."]:
        """Numbers of the site elements in the cells of the law; `otherwise` where the reward is known."""
        event = element.shape[1:]
        if self.cell is None:
            # Row-major, an element for each cell: a reshape, no gather.
            return element.reshape(*self.shape, *event)
        cells = pick(element, self.cell)
        if self.known is None:
            return cells
        known = xp.reshape(self.cell < 0, (*self.shape, *(1 for _ in event)))
        return _in_type_of(element, xp.where(known, otherwise, cells))

    def _affine(self, cells: Cells, power: int = 1) -> Cells:
        """coefficient^power * cells, and the offset where the power is one."""
        if self.coefficient is None or self.offset is None:
            return cells
        # r = coefficient x + offset: means are mapped, variances only scaled by the square.
        scaled = xp.asarray(self.coefficient) ** power * cells
        return scaled + self.offset if power == 1 else scaled

    def gather(self, mean: Float[AnyArray, " M"]) -> Cells:
        """Mean rewards in the cells of the law for the values `mean` of the site elements, known rewards filled in."""
        # Known rewards overwrite what index -1 picked.
        cells = self._affine(self.select(mean, 0.0))
        if self.known is None or self.cell is None:
            return cells
        return _in_type_of(cells, xp.where(self.cell < 0, self.known, cells))

    def _gather_noise(self, noise: Float[AnyArray, " M"]) -> Cells:
        cells = self._affine(self.select(noise, 0.0), 2)
        if self.known_law is None or self.cell is None:
            return cells
        return _in_type_of(cells, xp.where(self.cell < 0, law_variance(self.known_law), cells))

    def mean(self) -> Cells:
        """Expected mean reward."""
        return self.gather(xp.asarray(self.site_belief.mean()))

    def variance(self) -> Cells:
        """Epistemic variance of the mean reward; inf where it does not exist, zero where the reward is known."""
        return self._affine(self.select(xp.asarray(self.site_belief.variance()), 0.0), 2)

    def noise(self) -> Cells:
        """Expected variance of one reward around its mean; zero where the reward is a known number."""
        return self._gather_noise(xp.asarray(self.site_belief.noise()))

    def prior_share(self) -> Cells:
        """Pseudo-observations over these and the observed rewards; nan where the mean reward is known."""
        before, after = (xp.asarray(x.pseudo_observations) for x in (self.prior, self.site_belief))
        # A prior of weight zero and no data: nothing but the prior decides, share one.
        has_weight = (after > 0) & xp.isfinite(after)
        share = xp.where(has_weight, before / xp.where(has_weight, after, 1.0), 1.0)
        return xp.where(self.variance() == 0, np.nan, self.select(share, np.nan))

    def data_mean(self) -> Cells:
        """Mean rewards by data alone; the mean of all rewards where none was seen."""
        data = xp.asarray(self.data)
        size, number = len(data), xp.asarray(self.prior.num_observed(data))
        cells = self.gather(xp.asarray(self.prior.data_mean(data)))
        if self.cell is not None:
            # The rewards of an element are those of all its cells: each has its part of them.
            uses = add_at(np.zeros(size), xp.where(self.cell < 0, size, self.cell), 1.0)
            number = number / xp.maximum(uses, 1.0)
        weight = xp.where(xp.isnan(cells), 0.0, self.select(number, 0.0))
        total = weight.sum()
        # The mean over all rewards, weighted by how many were seen, stands in where a cell has none.
        overall_mean = xp.where(weight > 0, weight * cells, 0.0).sum() / xp.where(total > 0, total, 1.0)
        return xp.where(xp.isnan(cells), xp.where(total > 0, overall_mean, self.mean()), cells)

    def flat_weight(self) -> Cells:
        """Number of rewards that a prior without a preference weighs; one where the reward is known."""
        return self.select(xp.broadcast_to(xp.asarray(self.prior.flat_weight, float), self.data.shape[:1]), 1.0)

    def sample_sites(self, key: PRNGKeyArray) -> SiteDraws:
        """One draw of the parameters (named by `prior.parameters`) of the site elements."""
        return tuple(map(jnp.asarray, self.site_belief.sample(key)))

    def gather_from_draw(self, drawn: SiteDraws) -> tuple[Cells, Cells]:
        """Mean and variance of one reward in every cell for such a draw."""
        belief = self.site_belief
        mean, noise = belief.conditional_mean(drawn), belief.conditional_noise(drawn)
        return self.gather(xp.asarray(mean)), self._gather_noise(xp.asarray(noise))

    def drawer(self, key: PRNGKeyArray, place: Index, prior: ComponentPrior | None = None) -> Drawer:
        """A stream of draws of the mean rewards of some cells, by NumPy (see `Rewards.drawer`)."""
        number = np.arange(math.prod(self.shape)).reshape(self.shape) if self.cell is None else np.asarray(self.cell)
        element = number[place]
        # Elements of the needed cells, each drawn once however many cells share it.
        used, slot = np.unique(element[element >= 0], return_inverse=True)
        streams = RewardStreams(key, used)
        data = np.asarray(self.data, np.float64)[used]
        before: RewardBelief = jax.tree.map(lambda x: np.asarray(x, np.float64)[used], self.prior)
        after = None if prior is not None else before.after(data)
        scale, shift = (
            None if x is None else np.asarray(x, np.float64)[place] for x in (self.coefficient, self.offset)
        )
        fixed = np.zeros(len(element)) if self.known is None else np.asarray(self.known, np.float64)[place]
        unknown = element >= 0

        def draw(num: int, component: Int[np.ndarray, " N"] | None) -> Float[np.ndarray, "N cells"]:
            # With components the belief differs from draw to draw; without, it was made once.
            belief = after
            if prior is not None and component is not None:
                belief = prior(component, used).after(data)
            assert belief is not None
            mean = np.asarray(belief.conditional_mean(belief.draw(streams, num)))
            reward = np.broadcast_to(fixed, (num, len(fixed))).copy()
            reward[:, unknown] = mean[:, slot]
            if scale is not None and shift is not None:
                reward[:, unknown] = scale[unknown] * reward[:, unknown] + shift[unknown]
            return reward

        return draw

    def table_of(self, drawn: SiteDraws) -> RewardTable:
        """The law of one reward in every cell for such a draw. Known numbers are laws too: normal of variance zero."""
        law = self.site_belief.law_of(drawn)
        number = jnp.arange(math.prod(self.shape)).reshape(self.shape) if self.cell is None else jnp.asarray(self.cell)
        # A known cell points anywhere: what it picks there is overwritten.
        table = law_at(tabulate(law, (self.data.shape[0],)), (jnp.maximum(number, 0),))
        # A normal law under r = c x + d: location c loc + d, scale |c| scale.
        if self.coefficient is not None and isinstance(table, dist.Normal):
            scale = jnp.abs(jnp.asarray(self.coefficient)) * table.scale
            table = dist.Normal(self._affine(jnp.asarray(table.loc)), scale)
        if self.known_law is not None:
            table = jax.tree.map(lambda x, y: _fill(number < 0, y, x), table, self.known_law)
        return RewardTable(table, None, self.by_outcome)

    def variance_of_average(self, probs: Float[AnyArray, "*H S A O"]) -> Float[AnyArray, "*H S A"]:
        """Var[sum_o probs_o r_o]: outcomes of one element share one unknown mean, their weights add up."""
        probs = xp.asarray(probs)
        # An outcome of probability zero contributes nothing, even where its variance is infinite.
        variance = xp.where(probs > 0, self.variance(), 0.0)
        if self.cell is None or self.distinct:
            # Independent outcomes: variances add with squared weights, sum p_o^2 Var r_o.
            return (probs**2 * variance).sum(-1)
        cell = xp.asarray(self.cell)
        # Cov(c_i x, c_j x) = c_i c_j Var x: each outcome's own deviation, with its sign.
        # sum_ij p_i p_j Cov_ij over outcomes that share an element: every outcome's deviation times the sum of its
        # partners'.
        deviation = probs * xp.sqrt(variance) * (1.0 if self.coefficient is None else xp.sign(self.coefficient))
        shares_cell = cell[..., :, None] == cell[..., None, :]
        return (deviation * xp.where(shares_cell, deviation[..., None, :], 0.0).sum(-1)).sum(-1)

    def shared_parameters(self, space: StateActionSpace) -> str | None:
        """The first two pairs that share a mean reward, and its site, in words; None: no two do. Host side."""
        if self.independent or self.cell is None:
            return None
        return first_pairs_in_common("the mean reward", self.cell, self.sites, space)

    def at_step(self, step: IntScalar) -> "RewardCells":
        """The cells of one step, each with an element of its own (right for independent cells only: see `layered`)."""
        shape = self.shape[1:]
        # Cells of one step lie together in row-major order: a contiguous block.
        if self.cell is None:
            chosen = jnp.arange(math.prod(shape)) + step * math.prod(shape)
            table = None
        else:
            chosen = jnp.ravel(jnp.asarray(self.cell)[step])
            # A known cell points anywhere: what is drawn there is overwritten.
            table = jnp.where(chosen < 0, -1, jnp.arange(chosen.size)).reshape(shape)
        prior, data = jax.tree.map(lambda values: jnp.asarray(values)[chosen], (self.prior, self.data))
        known, coefficient, offset = (
            None if x is None else jnp.asarray(x)[step] for x in (self.known, self.coefficient, self.offset)
        )
        law = None if self.known_law is None else law_at(self.known_law, (step, *jnp.indices(shape)))
        return replace(
            self,
            prior=prior,
            data=data,
            cell=table,
            known=known,
            shape=shape,
            sites=(),
            known_law=law,
            coefficient=coefficient,
            offset=offset,
        )

    def element(self, cell: Index, outcome: Outcome) -> Int[AnyArray, "..."]:
        """Index of the site element of (step,) state, action `cell` and outcome; M where the reward is known."""
        return index_of_entry(self.cell, self.place(cell, outcome), self.shape, self.data.shape[0])

    def standardised(self, cell: Index, outcome: Outcome, reward: Weight) -> Weight:
        """x of rewards coefficient * x + offset: what the family is a belief about."""
        if self.coefficient is None or self.offset is None:
            return reward
        place = self.place(cell, outcome)
        return (reward - pick(self.offset, place)) / pick(self.coefficient, place)

    def log_constant(self, cell: Index, outcome: Outcome, reward: Weight, weight: Weight) -> LogDensity:
        """weight times what no unknown parameter enters of the log density of each reward; all of it, where known."""
        total = xp.zeros(np.shape(weight))
        taken = xp.asarray(weight) != 0
        # The part of the density without unknowns (a base measure): it enters the evidence, not the belief.
        if self.prior.has_constant:
            belief = jax.tree.map(lambda x: pick(x, self.element(cell, outcome)), self.prior)
            total = total + xp.where(taken, weight * belief.log_constant(self.standardised(cell, outcome, reward)), 0.0)
        if self.coefficient is not None:
            # The density of r is that of x over |coefficient|.
            stretch = xp.log(xp.abs(pick(self.coefficient, self.place(cell, outcome))))
            total = total - xp.where(taken, weight * stretch, 0.0)
        if self.known is None:
            return total
        density = xp.zeros(())
        if self.known_law is not None:
            density = density_by_weight(law_at(self.known_law, self.place(cell, outcome)), reward, weight)
        # Known cells have all of their density here, since there is no belief about them.
        return xp.where(self.element(cell, outcome) < self.data.shape[0], total, density)

    @property
    def has_constant(self) -> bool:  # type: ignore[override]
        """Whether `log_constant` is not zero."""
        return self.prior.has_constant or self.coefficient is not None or self.known_law is not None

    def observe(
        self, cell: Index, outcome: Outcome, reward: Weight, weight: Weight
    ) -> tuple["RewardCells", RealScalar]:
        """The belief after rewards at cells; see `Rewards.observe`."""
        constant = self.log_constant(cell, outcome, reward, weight).sum() if self.has_constant else xp.zeros(())
        # One scatter of sufficient statistics, whatever the number of rewards.
        element, prior = self.element(cell, outcome), self.prior
        if prior.known:  # what is kept of a reward depends on its element
            prior = jax.tree.map(lambda x: pick(x, element), prior)
        data = prior.statistics(xp.asarray(weight), self.standardised(cell, outcome, reward))
        return replace(self, data=self.prior.absorb(self.data, element, data)), constant

    def observe_counts(self, counts: Counts, weight: RealScalar) -> tuple["RewardCells", RealScalar]:
        """The belief after moments of rewards in every cell; the constant is nan where it needs each reward."""
        count, mean, ss = (xp.asarray(x) for x in counts.reward_moments)
        stretch = xp.zeros(())
        if self.coefficient is not None and self.offset is not None:
            # Moments of x from those of r: mean and squared deviations under the affine map, with the log Jacobian.
            mean, ss = (mean - self.offset) / self.coefficient, ss / xp.asarray(self.coefficient) ** 2
            stretch = -xp.sum(weight * count * xp.log(xp.abs(xp.asarray(self.coefficient))))
        *cell, outcome = xp.indices(self.shape) if self.by_outcome else (*xp.indices(self.shape), 0)
        data = statistics(count * weight, mean, ss * weight)
        data = self.prior.absorb(self.data, self.element(tuple(cell), outcome), data)
        # What needs each reward (a base measure, a known law) is lost in sums.
        unknown = self.prior.has_constant or self.known_law is not None
        return replace(self, data=data), xp.where(unknown, np.nan, stretch)

    def log_predictive(self, cell: Index, outcome: Outcome, reward: Weight, weight: Weight) -> LogDensity:
        """The marginal of one more reward under the belief after data."""
        element, weight = self.element(cell, outcome), xp.asarray(weight)
        prior, data = jax.tree.map(lambda x: pick(x, element), (self.prior, self.data))
        belief = prior.after(data)
        # One more reward has statistics of its own: their marginal under the belief after data is its predictive.
        density = belief.log_marginal(belief.statistics(weight, self.standardised(cell, outcome, reward)))
        constant = self.log_constant(cell, outcome, reward, weight) if self.has_constant else 0.0
        # The element M stands for a known reward, of which nothing is believed.
        return xp.where((element < self.data.shape[0]) & (weight != 0), density, 0.0) + constant

    def log_evidence(self) -> RealScalar:
        """Log density of the observed rewards, as a sequence, less the data's own constants."""
        return self.prior.log_marginal(xp.asarray(self.data)).sum()

    def support(self) -> RewardSupport:
        """What the family can give; where the reward is known, what that law can (None: nothing is asked of it)."""
        family = self.prior.support()
        # Bounds that differ by element (a binomial's number of trials) are gathered into the cells.
        if np.ndim(family.low):
            element = np.arange(len(family.low)).reshape(self.shape) if self.cell is None else np.maximum(self.cell, 0)
            family = family.map_arrays(lambda values: values[element])
        if self.known is None or self.cell is None:
            return replace(family, by_outcome=self.by_outcome)
        known = (None if self.known_law is None else support_of(self.known_law)) or anything()
        is_known = np.asarray(self.cell) < 0
        return replace(
            jax.tree.map(lambda x, y: np.where(is_known, x, y), replace(known, law=family.law), family),
            by_outcome=self.by_outcome,
        )

    def before_data(self) -> "RewardCells":
        """The belief before any data."""
        return replace(self, data=xp.zeros_like(xp.asarray(self.data)))

    def merge(self, other: Rewards) -> "RewardCells":
        """The belief after the data of both."""
        assert isinstance(other, RewardCells)  # `merge` has compared the priors
        data = self.prior.merge(xp.asarray(self.data), xp.asarray(other.data))
        return replace(self, data=data)

    def discount_data(self, factor: RealScalar) -> "RewardCells":
        """The belief after the same data, each reward counted `factor` times."""
        return replace(self, data=self.prior.discount_data(self.data, factor))

    def reward_sums(self) -> RewardSums | None:
        """Those of each element; None where the family keeps others, or of other numbers."""
        has_sums = self.prior.takes_counts and self.coefficient is None
        return (self.law, np.asarray(self.data)) if has_sums else None

    def num_rewards_observed(self) -> float:
        """Number of observed rewards."""
        return float(self.prior.num_observed(np.asarray(self.data)).sum())


def _in_type_of(like: AnyArray, values: AnyArray) -> AnyArray:
    """The values in the number type of `like`; where they are JAX's, as JAX counts types (float32 without x64)."""
    return values.astype((jnp if has_jax_array(values) else np).result_type(like))


def _fill(where: Bool[AnyArray, "*cells"], yes: AnyArray, no: AnyArray) -> Array:
    """Parameters of a law in every cell, of which some have event axes."""
    axes = tuple(range(jnp.ndim(where), jnp.ndim(no)))
    return jnp.where(jnp.expand_dims(where, axes), yes, no)


def no_element_twice(table: Int[np.ndarray, "*cells"] | None, by_outcome: bool) -> tuple[bool, bool]:
    """Whether no element is used by two pairs, and whether none is used by two cells."""
    distinct = is_injective(table)
    if distinct or table is None or not by_outcome:
        return distinct, distinct
    # Rewards by outcome: a pair may repeat an element among its outcomes and stay independent of others.
    # Each element once a pair: an element that then occurs twice is used by two pairs.
    per_pair = [np.unique(cells[cells >= 0]) for cells in table.reshape(-1, table.shape[-1])]
    used = np.concatenate(per_pair)
    return np.unique(used).size == used.size, False


def reward_cells(
    prior: RewardBelief,
    shape: tuple[int, ...],
    *,
    by_outcome: bool = False,
    cell: ArrayLike | None = None,
    known: ArrayLike | None = None,
    sites: Sites = (),
    known_law: dist.Distribution | None = None,
    affine: tuple[ArrayLike, ArrayLike] | None = None,
) -> RewardCells:
    """Cells before any data (arguments: see `RewardCells`; the arrays of `prior` broadcast). Host side.

    Args:
        affine: (coefficient, offset), each [*cells]; dropped where they change nothing.

    Raises:
        ValueError: no element, a parameter that is not positive or finite, a table that points outside them.
    """
    prior.check("reward")
    prior = _stack(prior)
    data = prior.empty()
    size = len(data)
    if size == 0:
        raise ValueError("prior has 0 elements, expected at least 1 (`known_rewards` where every reward is known)")
    if cell is None and size != math.prod(shape):
        raise ValueError(f"prior has {size} elements, expected {math.prod(shape)}, one for each cell of {tuple(shape)}")
    cells = np.arange(size).reshape(shape) if cell is None else np.asarray(cell)
    check_shape("cell", cells, shape, "the cells of the reward law")
    table = unless_identity(cells, size, "cell")
    known = None if table is None or not (table < 0).any() else np.asarray(known, float)
    if known is not None:
        check_shape("known", known, shape, "the cells of the reward law")
    independent, distinct = no_element_twice(table, by_outcome)
    coefficient = offset = None
    # x = r where coefficient is one and offset zero: no table is kept.
    if affine is not None and not (np.all(np.equal(affine[0], 1.0)) and np.all(np.equal(affine[1], 0.0))):
        coefficient, offset = (np.array(np.broadcast_to(np.asarray(x, float), shape)) for x in affine)
    return RewardCells(
        prior=prior,
        data=data,
        cell=table,
        known=known,
        shape=tuple(shape),
        by_outcome=by_outcome,
        independent=independent,
        distinct=distinct,
        sites=sites,
        known_law=None if known is None else known_law,
        coefficient=coefficient,
        offset=offset,
    )


def _stack(prior: RewardBelief) -> RewardBelief:
    """The arrays of `prior` as numpy arrays [M] (of a vector parameter: [M K])."""
    # Several parameters broadcast against each other; one vector parameter keeps its last axis.
    arrays = [np.asarray(values, float) for values in jax.tree.leaves(prior)]
    # Scalars and tables broadcast to one number for each element.
    if len(arrays) > 1:
        arrays = [np.ravel(array) for array in np.broadcast_arrays(*arrays)]
    else:
        arrays = [array.reshape(-1, array.shape[-1]) if prior.is_vector() else np.ravel(array) for array in arrays]
    return jax.tree.unflatten(jax.tree.structure(prior), arrays)
