"""`ConjugatePosterior`: the exact posterior of a conjugate prior, as plain arrays that learn inside a compiled loop.

It remembers which logs it has learnt from, by the SHA-256 of the content of each, so that none is counted twice.

`conjugate_posterior` builds it; where steps are independent a `LayeredPosterior`, which can be drawn while it is
planned with, layer by layer.

The draws of pairs that NumPy makes (`conjugate_pair_draws`) come last: from a posterior, or from a mixture of such.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from bayes_mdp.inference.conjugate.closed_form_draws import draw_components
from bayes_mdp.inference.conjugate.dirichlet_rows import (
    DirichletRows,
    average_over_rows,
    bellman_variance,
    dirichlet_factor,
    expected_information,
    predictive_variance,
    row_bound,
    transition_variance,
)
from bayes_mdp.inference.conjugate.lazy_arrays import lazy_rewards, lazy_rows
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import ComponentPrior, Rewards, SiteDraws, known_rewards
from bayes_mdp.inference.conjugate.site_table import SiteTable
from bayes_mdp.inference.families.family import RewardBelief
from bayes_mdp.inference.families.normal import MIN_CONCENTRATION, NormalGammaBelief
from bayes_mdp.inference.fitted import Fitted, Law, LawDraws, draw_batch
from bayes_mdp.inference.pair_draws import Drawn, PairDraws, PairRows, key_of_outcome
from bayes_mdp.inference.summary import PairMoments
from bayes_mdp.mdp import MDP, Counts, FoldedLog, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.data.folded_log import Source
from bayes_mdp.mdp.data.transitions import check_transitions, check_weighted, without_masked_rows
from bayes_mdp.mdp.lazy_belief import LazyBelief
from bayes_mdp.mdp.protocols import PriorWeight, RowIntervals
from bayes_mdp.models.mdp_spec import Prior, RewardTable
from bayes_mdp.models.reward_support import RewardSupport
from bayes_mdp.models.sufficient_statistics import RewardSums, fit_counts
from bayes_mdp.numerics.array_forms import to_host_float64
from bayes_mdp.numerics.numpy_or_jax import add_at, concrete_in_numpy, in_numpy, xp
from bayes_mdp.random.host_generator import SMALL, ElementStreams
from bayes_mdp.random.wide_dirichlet import WideRows, suits_jumps
from bayes_mdp.renamed import old_attribute
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index, IntScalar, RealLike, RealScalar
from bayes_mdp.utils.validation import (
    at,
    check_bool,
    check_finite,
    check_number,
    check_shape,
    first_index,
    is_concrete,
    require,
)

Digests = UInt8[AnyArray, "... 32"]


def digests_of(sources: Sequence[Source]) -> UInt8[np.ndarray, "N 32"]:
    """One row for each source."""
    return np.array([list(bytes.fromhex(source.digest)) for source in sources], np.uint8).reshape(-1, 32)


def after_sources(known: Digests | None, sources: Sequence[Source], *, allow_duplicates: bool) -> Digests:
    """The digests after more sources.

    Raises:
        ValueError: one of them is known (names it), and duplicates are not allowed.
    """
    # Compared by content: a log that was renamed is still the same log.
    new = digests_of(sources)
    if known is None:
        return new
    if not allow_duplicates:
        seen = {bytes(row) for row in np.asarray(known)}
        for source, row in zip(sources, new, strict=True):
            if bytes(row) in seen:
                raise ValueError(
                    f"{source.name} was learnt from already (SHA-256 {source.digest[:12]}...), expected every log once "
                    "(allow_duplicates=True counts it again; in the shell --allow-duplicates)"
                )
    return np.concatenate([np.asarray(known), new])


def merge_sources(parts: Sequence[Digests | None], *, allow_duplicates: bool) -> Digests | None:
    """The digests of all posteriors; None: none knows of any.

    Raises:
        ValueError: two of them learnt from one log (names both), and duplicates are not allowed.
    """
    first: dict[bytes, int] = {}
    # The first posterior that knows of a log keeps it; a second one with the same digest has counted it too.
    known = [(i, bytes(row)) for i, part in enumerate(parts) if part is not None for row in np.asarray(part)]
    for i, row in known:
        earlier = first.setdefault(row, i)
        if earlier != i and not allow_duplicates:
            raise ValueError(
                f"posteriors[{i}] and posteriors[{earlier}] learnt from the same log (SHA-256 {row.hex()[:12]}...), "
                "expected disjoint data (allow_duplicates=True counts it again; in the shell --allow-duplicates)"
            )
    if all(part is None for part in parts):
        return None
    return np.array([list(row) for _, row in known], np.uint8).reshape(-1, 32)


Pairs = Float[AnyArray, "*H S A"]
BLOCK = 2**21  # concentrations of components that are held at once
ROWS, WIDE_ROWS = 1, 16
"""Purpose of the random numbers of rows (see `ElementStreams`)."""
FLAT = 1.0 + 1e-4
"""A prior of at most so many flat ones is empty; but for rounding in float32, one."""
_LEAST_ROWS = 64  # of a buffer for a log
_draw_batch_in_jit = eqx.filter_jit(draw_batch)


class ConjugatePosterior(Fitted):
    """Dirichlet rows and conjugate rewards (built by `conjugate_posterior` or `bayes_mdp.infer`).

    As `infer` makes it its arrays are numpy float64, so that counts and the log evidence are exact, and so are those
    after `update`; inside `jit` they have JAX's default width. Where they are concrete NumPy computes what its methods
    answer, in that width: the answers are arrays of JAX, of its default width.

    Args:
        transition_probs: the belief about the rows.
        reward_cells: the belief about the rewards, by element of their sites (`reward`: by cell of the law).
        space: sizes, names, masks.
        visits: [*H S A], kept only where they do not follow from the counts (shared or known rows), else None.
        constant: the part of the log evidence without unknowns: known rows, log factorials of Poisson rewards.
        sites: where the sites of the program lie in these arrays; None: it was built without a program.
        sources: SHA-256 of the content of the logs that it has learnt from; None: of none that has one.
    """

    transition_probs: DirichletRows
    reward_cells: Rewards
    space: StateActionSpace  # type: ignore[override]
    visits: Float[AnyArray, "*H S A"] | None
    constant: RealScalar
    sites: SiteTable | None = eqx.field(static=True, default=None)
    sources: Digests | None = None

    num_components: ClassVar[int] = 1
    """It is its only component."""

    @property
    def method(self) -> str:
        """How it was inferred."""
        return "exact"

    @property
    def reward(self) -> RewardBelief | Float[AnyArray, "*cells"]:
        """The belief about the rewards after data, `.loc`, ... by family, [*H S A] or [*H S A O].

        Where they are known, or no belief of one family in each cell: the array of mean rewards.
        """
        return self.reward_cells.belief if isinstance(self.reward_cells, RewardCells) else self.reward_cells.mean()

    @property
    def program(self) -> Prior | None:
        """The prior program; None: built without one, or loaded."""
        return None if self.sites is None else self.sites.program

    def without_program(self) -> "ConjugatePosterior":
        """The same belief, without its way back to the sites of its program."""
        return replace(self, sites=None)

    def component(self, k: IntScalar) -> "ConjugatePosterior":
        """This posterior, which is its only component.

        Args:
            k: 0, the index of that component.
        """
        return self

    @property
    def log_weights(self) -> Float[AnyArray, " N"] | None:
        """None: there is nothing to be weighted."""
        return None

    @property
    def in_closed_form(self) -> bool:
        """True; but where rewards are draws."""
        return self.reward_cells.in_closed_form

    @property
    def exact_part(self) -> "ConjugatePosterior | None":
        """Itself; where rewards are draws, its rows with known rewards of zero."""
        if self.in_closed_form:
            return self
        nothing = known_rewards(np.zeros(self.space.shape))
        return ConjugatePosterior(self.transition_probs, nothing, self.space, self.visits, self.constant)

    def before_data(self) -> "ConjugatePosterior":
        """The belief before any data."""
        # The prior belief is this one with all that data add to at zero.
        rows = self.transition_probs.unlisted()
        rows = eqx.tree_at(lambda r: r.counts, rows, np.zeros(rows.prior.shape, rows.prior.dtype))
        visits = None if self.visits is None else np.zeros(np.shape(self.visits))
        rewards = self.reward_cells.before_data()
        return replace(self, transition_probs=rows, reward_cells=rewards, visits=visits, constant=np.zeros(()))

    def with_sources(self, sources: Digests) -> "ConjugatePosterior":
        """The same belief, which remembers the logs that it has learnt from.

        Args:
            sources: digests of the logs.
        """
        return replace(self, sources=sources)

    def law_at(self, key: PRNGKeyArray, k: IntScalar) -> Law:
        """One draw of rows and reward laws. Traceable.

        Args:
            key: of both.
            k: 0.
        """
        del k
        # Two keys: rows and rewards are independent a posteriori, and neither must change when the other is drawn
        # otherwise.
        key_rows, key_rewards = jax.random.split(key)
        return self.law_of(self.transition_probs.sample(key_rows), self.reward_cells.sample_sites(key_rewards))

    def law_of(self, rows: Float[AnyArray, "*H S A O"], drawn: SiteDraws) -> Law:
        """The law for one draw of the rows and of the parameters of the rewards.

        Args:
            rows: of all pairs.
            drawn: as `reward_cells.sample_sites` draws them.
        """
        cells = self.reward_cells
        if isinstance(cells, RewardCells) and cells.known is not None and cells.known_law is None:
            # Known numbers beside unknown laws: normal ones have no variance.
            mean, noise = cells.gather_from_draw(drawn)
            law = dist.Normal(mean, jnp.sqrt(noise)) if cells.law is dist.Normal else cells.law(mean)
            return Law(rows, RewardTable(law, None, cells.by_outcome))
        return Law(rows, cells.table_of(drawn))

    def draw_laws(self, key: PRNGKeyArray, index: Int[np.ndarray, " N"]) -> LawDraws:
        """As many draws of the law as `index` has entries, by NumPy.

        Args:
            key: of all draws.
            index: zeros.
        """
        return draw_components(key, self, index)

    @property
    def reward_law(self) -> type[dist.Distribution] | None:
        """The type of the law of one reward; None: rewards are known numbers."""
        return self.reward_cells.law

    @property
    def known_reward(self) -> Float[np.ndarray, "*cells"] | None:
        """Mean rewards, where they are known; None: they are not."""
        return None if self.reward_cells.learns else np.asarray(self.reward_cells.mean())

    @property
    def site_tables(self) -> tuple[SiteTable, ...]:
        """Where the elements of the program's sites lie in the arrays; (): not known."""
        return () if self.sites is None else (self.sites,)

    legal = old_attribute("posterior.legal is posterior.space.legal", lambda self: self.space.legal)

    @property
    def independent_rows(self) -> bool:
        """Whether rows and rewards of different pairs are independent, as the uncertainty theorems assume."""
        return self.transition_probs.independent and self.reward_cells.independent

    @property
    def shared_parameters(self) -> str | None:
        """The first two pairs that are not independent, in words; None: all are."""
        if self.independent_rows:
            return None
        if not is_concrete(self):
            return "some rows or rewards share parameters"
        return self.transition_probs.shared_parameters(self.space) or self.reward_cells.shared_parameters(self.space)

    @property
    def rewards_by_outcome(self) -> bool:
        """Whether rewards depend on the outcome, not on state and action alone."""
        return self.reward_cells.by_outcome

    @property
    def log_evidence(self) -> RealScalar:
        """log p(next states, rewards | states, actions) of the data as a sequence, known rows included.

        A Python float computed in float64; inside a trace an array. nan after `Counts` of Poisson rewards, which do not
        hold the factorials.
        """
        if not is_concrete(self):
            return _log_evidence(self)
        # In float64 on the host: differences of log gamma at large counts lose eight digits in float32.
        return float(in_numpy(_log_evidence, to_host_float64(self)))

    @property
    def relative_log_evidence(self) -> RealScalar:
        """The log evidence, less what no `Counts` hold: the factorials of Poisson rewards, the same for every prior."""
        known = xp.where(xp.isnan(self.constant), 0.0, self.constant)
        return replace(self, constant=known).log_evidence

    @property
    def known_log_evidence(self) -> float | None:
        """The log evidence; None: rewards are draws."""
        return float(self.log_evidence) if self.in_closed_form else None

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> MDP | SparseMDP:
        """Draw hypotheses: one, or a batch with leading axes `sample_shape` on every array."""
        # One program, of which the posterior is an argument: eagerly its arrays would be constants of some.
        batch = _draw_batch_in_jit if is_concrete(self, key) else draw_batch
        return batch(self._draw, key, sample_shape)

    def _draw(self, key: PRNGKeyArray) -> MDP | SparseMDP:
        key_rows, key_rewards = jax.random.split(key)
        rows = self.transition_probs.sample(key_rows)
        return self.space.mdp(rows, self._of_pairs(rows, self.reward_cells.sample(key_rewards)))

    # P(s' | s, a) first, then rewards given the outcome; the space turns rows over outcomes into an MDP.
    def pair_draws(self, key: PRNGKeyArray, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """A stream of draws of the needed pairs, by NumPy (`CanDrawPairs`).

        Args:
            key: of the draws.
            needed: which pairs.
        """
        return conjugate_pair_draws(key, self, needed)

    def outcome_draws(self, key: PRNGKeyArray, name: str, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """The rows of `pair_draws` under this key, with rewards of random numbers of their own (`CanDrawOutcome`).

        Args:
            key: of the rows.
            name: of the outcome, which seeds the rewards.
            needed: which pairs.
        """
        return conjugate_pair_draws(key, self, needed, reward_key=key_of_outcome(key, name))

    def sample_next(
        self,
        key: PRNGKeyArray,
        values: Float[AnyArray, " S"],
        layer: IntScalar,
        inflation: RealScalar = 1,
        pseudo: tuple[RealScalar, RealScalar] | None = None,
    ) -> Float[Array, "S A"]:
        """One draw of sum_s' P(s' | s, a) values(s') at a step, see `CanSampleNext`; shared rows are drawn as one."""
        # Without a horizon there is one layer, whatever number the planner is at.
        step = None if self.space.horizon is None else layer
        return self.transition_probs.sample_next(key, self.space.values_after(values, layer), step, inflation, pseudo)

    def lazy_belief(self, key: PRNGKeyArray, num_draws: int, reward_bins: int) -> LazyBelief:
        """Rows as urns, exact; rewards as urns, as known numbers, or by draws (`CanSampleLazily`)."""
        rows = lazy_rows(self.transition_probs, self.space)
        rewards = lazy_rewards(self.reward_cells, key, num_draws, reward_bins)
        # A draw of the mixture over reward draws; known rewards and urns have one entry each.
        number = max(rewards.cumulative.shape[0], rewards.value.shape[0])
        return LazyBelief(jnp.full(number, 1.0 / number), rows, rewards)

    def mean_mdp(self) -> MDP | SparseMDP:
        """Posterior mean of the transition probabilities and of the expected rewards.

        Raises:
            ValueError: that of a reward does not exist (normal-gamma concentration <= 1/2); inside a trace it is nan.
        """
        return self.space.mdp(*self.mean_rows())

    @concrete_in_numpy
    def mean_rows(self) -> tuple[Float[AnyArray, "*H S A O"], Pairs]:
        """The posterior means of `mean_mdp`: probabilities of the outcomes, and expected rewards of the pairs.

        Raises:
            ValueError: a mean reward that does not exist (not inside a trace).
        """
        # Outside a trace a mean that does not exist is refused, with the first cell; inside it stays nan.
        rows, mean, reward = self._means()
        if is_concrete(mean, self.transition_probs, self.space) and np.isnan(mean).any():
            self._refuse(np.isnan(mean), MIN_CONCENTRATION, "expectation")
            # Of illegal pairs, and of outcomes that cannot be.
            reward = self._of_pairs(rows, xp.nan_to_num(mean))
        return rows, reward

    def _means(self) -> tuple[Float[AnyArray, "*H S A O"], Float[AnyArray, "*cells"], Pairs]:
        """Means of the rows, of the rewards in their cells, and of the rewards of the pairs."""
        rows, mean = self.transition_probs.mean(), self.reward_cells.mean()
        return rows, mean, self._of_pairs(rows, mean)

    def _of_pairs(self, rows: Float[AnyArray, "*H S A O"], reward: Float[AnyArray, "*cells"]) -> Pairs:
        """Expected rewards of the pairs. A cell matters only where its outcome has positive probability."""
        if not self.reward_cells.by_outcome:
            return xp.asarray(reward)
        # An outcome of probability zero adds nothing, even where its reward has no mean.
        return xp.where(rows > 0, rows * reward, 0.0).sum(-1)

    @concrete_in_numpy
    def visit_counts(self) -> Pairs:
        """Number of observed transitions from every pair."""
        return self.transition_probs.visits() if self.visits is None else xp.asarray(self.visits)

    @concrete_in_numpy
    def prior_share(self) -> Pairs:
        """The prior's part in the belief about each pair (`CanWeighPrior`)."""
        return self.share_with_rewards(self.transition_probs.prior_share())

    @concrete_in_numpy
    def reward_share(self) -> Pairs | None:
        """The prior's part in the mean reward of each pair (`CanWeighRewards`)."""
        # By outcome: the share of each outcome weighted by its mean probability; outcomes that cannot be are left
        # out.
        of_cells = self.reward_cells.prior_share()
        if of_cells is None:
            return None
        share = xp.asarray(of_cells)
        if not self.rewards_by_outcome:
            return share
        rows = self.transition_probs.mean()
        unknown = ~xp.isnan(share) & (rows > 0)
        return xp.where(unknown.any(-1), xp.where(unknown, rows * share, 0.0).sum(-1), np.nan)

    @concrete_in_numpy
    def data_reward(self) -> Pairs | None:
        """The mean reward of each pair by data alone (`CanWeighRewards`); rows at their posterior means."""
        mean = self.reward_cells.data_mean()
        return None if mean is None else self._of_pairs(self.transition_probs.mean(), mean)

    @concrete_in_numpy
    def prior_weight(self) -> PriorWeight:
        """What the prior of each pair weighs (`CanCountPrior`)."""
        rows, rewards = self.transition_probs, self.reward_cells
        weight = rows.prior_total()
        # How many flat priors it weighs.
        # The less informed of rows and rewards decides: the smaller number of flat priors.
        ratio = weight / rows.num_possible()
        if rewards.learns:
            paid, paid_ratio = self._least_known_reward()
            weight = xp.where(paid_ratio < ratio, paid, weight)
            ratio = xp.minimum(paid_ratio, ratio)
            weight = xp.where(xp.isnan(ratio), np.nan, weight)
        return PriorWeight(weight, ~(ratio > FLAT))

    def _least_known_reward(self) -> tuple[Pairs, Pairs]:
        """Weight of the prior of the reward of each pair, and over that of a flat one; of outcomes the least."""
        rewards = self.reward_cells
        weight = xp.asarray(rewards.prior_weight())
        ratio = weight / xp.asarray(rewards.flat_weight())
        known = xp.asarray(rewards.variance()) == 0
        if not rewards.by_outcome:
            return xp.where(known, np.inf, weight), xp.where(known, np.inf, ratio)
        known |= xp.asarray(self.transition_probs.mean()) == 0
        weight, ratio = (xp.where(known, np.inf, x) for x in (weight, ratio))
        # The outcome of which the prior says least stands for the pair.
        least = xp.argmin(ratio, -1, keepdims=True)  # nan counts as the least
        weight, ratio = (xp.take_along_axis(x, least, -1)[..., 0] for x in (weight, ratio))
        return weight, ratio

    def share_with_rewards(self, share: Pairs) -> Pairs:
        """The prior's part in the belief about each pair, from that in its row: 1 where no reward was seen.

        Args:
            share: the prior's part in each row, from 0 to 1.
        """
        if not self.reward_cells.learns:
            return share
        # Not "> 0": a variance that does not exist belongs to an unknown reward.
        unknown = ~(xp.asarray(self.reward_cells.variance()) == 0)
        unknown = unknown.any(-1) if self.rewards_by_outcome else unknown
        known_row = xp.where(xp.isnan(share) & unknown, 0.0, share)
        return xp.where(unknown & (self.visit_counts() == 0), 1.0, known_row)

    @concrete_in_numpy
    def reward_variance(self) -> Pairs:
        """Epistemic variance of the expected reward sum_o P(o | s, a) r(s, a, o) of one step.

        Raises:
            ValueError: it does not exist (normal-gamma concentration <= 1); inside a trace it is inf.
        """
        return self._reward_variance(self._variance())

    def _reward_variance(self, of_cells: Float[AnyArray, "*cells"]) -> Pairs:
        # Var(R) is the backup of V = 0, so that one formula serves rewards and values.
        # The Bellman backup of V = 0 is the expected reward alone.
        zero = self._discount(np.zeros(self.space.n_states), 0.0)
        rows, rewards = self.transition_probs, self.reward_cells
        return bellman_variance(rows, rewards, zero, of_cells) if rewards.by_outcome else of_cells

    @concrete_in_numpy
    def expected_reward_variance(self) -> Pairs:
        """Epistemic variance of the mean reward given the outcome, averaged over outcomes.

        It is pbar . v, v the variances given the outcome; `reward_variance` where rewards do not depend on the outcome.

        Raises:
            ValueError: as `reward_variance`.
        """
        return average_over_rows(self.transition_probs, self.reward_cells, self._variance())

    def _variance(self) -> Float[AnyArray, "*cells"]:
        variance = xp.asarray(self.reward_cells.variance())
        if is_concrete(variance, self.space):
            self._refuse(np.isinf(variance), 1, "variance")
        return variance

    def _refuse(self, missing: Bool[np.ndarray, "*cells"], least: float, moment: str) -> None:
        """Refuse normal-gamma beliefs about the rewards of legal pairs that have no such moment."""
        # By outcome: a moment is missing where an outcome that can happen lacks it.
        if self.reward_cells.by_outcome:
            missing = np.any(missing & (np.asarray(self.transition_probs.mean()) > 0), axis=-1)
        legal = True if self.space.legal is None else self.space.legal
        index = first_index(missing & legal)
        if index is None:
            return
        condition = (
            f"the {moment} of the mean reward of state {self.space.state_names[index[-2]]!r}, "
            f"action {self.space.action_names[index[-1]]!r} does not exist"
        )
        belief = self.reward
        if type(belief) is NormalGammaBelief:
            concentration = np.asarray(belief.concentration)[index]
            raise ValueError(
                f"{at('posterior.reward.concentration', index)} is {concentration}, expected a number greater than "
                f"{least}: {condition}"
            )
        law = self.reward_cells.law
        raise ValueError(
            f"posterior.reward is a belief about {law.__name__ if law else 'known'} rewards under which {condition}, "
            "expected a prior with lighter tails, or more data"
        )

    @concrete_in_numpy
    def bellman_variance(self, values: Float[AnyArray, "*steps S"], discount: RealScalar) -> Pairs:
        """Variance over the posterior of sum_o P(o | s, a) (r(s, a, o) + discount values(o)), covariances included.

        Args:
            values: [S] or, where there is a horizon, [H S]: `values[h]` is the target of the states that step h leads
                *to* (of step h + 1). The value of an end is 0.
            discount: a number.

        The variance is exact for fixed `values`: with pbar the mean row and c0 its concentration,
        Var_pbar(m + discount values) / (c0 + 1) + E[p' Cov(reward) p].

        Raises:
            ValueError: as `reward_variance`; not inside a trace: a value that is not finite, a discount outside [0, 1].
        """
        target = self._discount(values, discount)
        return bellman_variance(self.transition_probs, self.reward_cells, target, self._variance())

    @concrete_in_numpy
    def transition_variance(self, values: Float[AnyArray, "*steps S"], discount: RealScalar) -> Pairs:
        """The part of `bellman_variance` that unknown rows alone cause: every mean reward at its expectation.

        Var_pbar(m + discount values) / (c0 + 1), m where it depends on the outcome. Arguments, errors: as there.
        """
        return transition_variance(self.transition_probs, self.reward_cells, self._discount(values, discount))

    @concrete_in_numpy
    def predictive_variance(self, values: Float[AnyArray, "*steps S"], discount: RealScalar) -> Pairs:
        """Variance of one observed reward + discount values(outcome) under the posterior predictive.

        Var_pbar(m + discount values) + pbar . (v + noise): epistemic and aleatoric together, the noise of rewards
        included. Arguments and errors: as `bellman_variance`.
        """
        target = self._discount(values, discount)
        return predictive_variance(self.transition_probs, self.reward_cells, target, self._variance())

    @concrete_in_numpy
    def row_bound(self, values: Float[AnyArray, "*steps S"], discount: RealScalar) -> Pairs:
        """The largest |x(o)| over possible outcomes o, where x is what the row multiplies in the Bellman equation.

        x = values, or m + discount values where rewards depend on the outcome: what q_max of the uncertainty Bellman
        equation must bound. Arguments: as `bellman_variance`.
        """
        target = self._discount(values, discount if self.rewards_by_outcome else 1.0)
        return row_bound(self.transition_probs, self.reward_cells, target)

    def _discount(self, values: Float[AnyArray, "*steps S"], discount: RealScalar) -> Float[AnyArray, "..."]:
        """discount values, an end target nothing, to be broadcast against rows."""
        if is_concrete(values, discount):
            check_finite("values", values)
            gamma = np.asarray(discount)
            require(~((gamma >= 0) & (gamma <= 1)), "discount", gamma, "a number from 0 to 1")
        values = xp.asarray(values, float)
        return self.space.outcome_values(discount * values)

    @concrete_in_numpy
    def variance_factor(self, form: str) -> Pairs:
        """The factor by which an unknown row enters the uncertainty Bellman equation.

        Its term there is discount^2 q_max^2 factor (q_max^2 factor where rewards depend on the outcome), for values
        between -q_max and q_max. With K possible outcomes, mean row p, and c0 the total concentration:

        * "ratio" (K - 1) / (c0 + 1): a bound.
        * "dirichlet" 1 / (c0 + 1): a bound, never above "ratio".
        * "twice" 2 (1 - sum p^2) / (c0 + 1): a bound.
        * "printed" (1 - sum p^2) / (c0 + 1), the lemma of [UBE18]: **no** bound, up to a factor of two short; it is one
          only where the values lie in an interval of length q_max (rewards of one sign, say).
        * "count" 1 / visits (without data, "ratio"): a bound, never below "dirichlet".

        "Bound": of the epistemic variance that the row adds. The solution of the equation bounds the variance of the
        value, with any of the bounds, only where rows are independent (`independent_rows`) and no state is visited
        twice (acyclic MDPs, rows of their own at every step); on cycles it can be far too small.

        Raises:
            ValueError: another form.
        """
        if form == "dirichlet":  # asked for at every plan: it builds no rows
            return self.transition_probs.inverse_total()
        if form == "ratio":  # the default of the equation: no rows either
            return (self.transition_probs.num_possible() - 1.0) * self.transition_probs.inverse_total()
        return dirichlet_factor(form, self.transition_probs.concentration, self.visit_counts())

    @concrete_in_numpy
    def expected_information(self) -> Pairs:
        """Expected information of one more transition about its row, in nats; rewards are not included."""
        return expected_information(self.transition_probs)

    def update(
        self,
        transitions: Transitions | Counts | FoldedLog,
        weight: ArrayLike = 1.0,
        *,
        discount_data: RealScalar | None = None,
        allow_duplicates: bool = False,
    ) -> "ConjugatePosterior":
        """The posterior after one transition (scalars: an in-place scatter under vmap), a block, or statistics.

        Args:
            transitions: data; a reward of None, or not observed, carries no information about rewards. They are
                counted in the width of the arrays of this posterior, inside a trace in JAX's default width: in float32
                a count of 2^24 no longer grows by one. A log read in chunks is counted in float64, and its
                content is remembered in `sources`.
            weight: scalar or [N]; zero masks a transition of a fixed buffer, another number raises its likelihood to
                that power.
            discount_data: factor by which earlier data count from now on, see the method of that name; None: fully.
            allow_duplicates: whether a folded log that was learnt from already is counted again.

        Raises:
            ValueError, TypeError: data that the space or the prior cannot hold (not inside a trace), a log that was
                learnt from already.
        """
        if discount_data is not None:
            return self.discount_data(discount_data).update(transitions, weight, allow_duplicates=allow_duplicates)
        if self.outcomes is not None:
            learnt = self._outcomes_after(transitions, weight, allow_duplicates=allow_duplicates)
            alone = replace(self, outcomes=None).update(transitions, weight, allow_duplicates=allow_duplicates)
            return replace(alone, outcomes=learnt)
        if isinstance(transitions, FoldedLog):
            return self._update_from_sums(transitions, weight, allow_duplicates)
        check_weighted(transitions, weight)
        if is_concrete(self, transitions, weight):
            return in_numpy(ConjugatePosterior._add, self, transitions, np.asarray(weight, float))
        return self._add(transitions, jnp.asarray(weight, float))

    def _add(self, data: Transitions | Counts, weight: AnyArray) -> "ConjugatePosterior":
        if isinstance(data, Counts):
            return self._add_counts(data, weight)
        if is_concrete(data, weight, self.transition_probs.prior):
            # What cannot have happened is refused here; inside a trace nothing can be raised.
            self.check(data, weight)
        # Rows first, then rewards: both are sums of sufficient statistics, so that a block is one scatter each.
        # A conjugate update in two scatters: counts of (pair, outcome), sums of rewards by cell.
        cell, outcome = data.cell(self.space), data.outcome(self.space)
        weights: AnyArray = xp.broadcast_to(xp.asarray(weight, float), np.shape(data.state))
        posterior = self._observe_outcomes(cell, outcome, data.row_weight(weights))
        return posterior if data.reward is None else posterior._observe_rewards(data, cell, outcome, weights)

    def discount_data(self, factor: RealScalar) -> "ConjugatePosterior":
        """The posterior for which each transition so far counts as `factor` transitions: forgetting.

        The likelihood of the data so far is raised to the power `factor`, the prior is as it was: a power prior, the
        discounting of West and Harrison (1997, *Bayesian Forecasting and Dynamic Models*) with the prior as its floor.
        With `update(log, discount_data=0.9)` every week, a log of k weeks ago counts 0.9^k. What is uncertain becomes
        more so; means move towards the prior where data were few. It says nothing of whether, or how fast, the MDP
        changes: the factor is an assumption. `log_evidence` is then the log of the integral of these powers, no
        probability of the data, and must not be compared with others. `sources` are kept.

        Args:
            factor: in (0, 1]; 1 changes nothing.

        Raises:
            ValueError: the factor lies outside (not inside a trace); rewards that are draws.
            TypeError: no number.
        """
        if is_concrete(factor):
            check_number("factor", factor, lambda x: (x > 0) & (x <= 1), "a number greater than 0, at most 1")
        # A power prior: statistics scale, prior parameters do not; c = c_prior + factor n.
        rows = eqx.tree_at(lambda r: r.counts, self.transition_probs, self.transition_probs.counts * factor)
        visits = None if self.visits is None else self.visits * factor
        rewards, constant = self.reward_cells.discount_data(factor), self.constant * factor
        after = replace(self, transition_probs=rows, reward_cells=rewards, visits=visits, constant=constant)
        if self.outcomes is None:
            return after
        return replace(after, outcomes={name: outcome.discount_data(factor) for name, outcome in self.outcomes.items()})

    def _update_from_sums(self, folded: FoldedLog, weight: ArrayLike, allow_duplicates: bool) -> "ConjugatePosterior":
        if not is_concrete(self, weight):
            raise TypeError("transitions is a FoldedLog, expected Transitions or Counts inside a compiled function")
        check_bool("allow_duplicates", allow_duplicates)
        sources = after_sources(self.sources, folded.sources, allow_duplicates=allow_duplicates)
        self._require_moments(folded)
        counts = folded.counts(self.space, by_outcome=self.rewards_by_outcome)
        check_weighted(counts, weight)
        # Sums of a long log in float64: float32 stops counting at 2^24.
        belief, counts = to_host_float64((self, counts))
        after = in_numpy(ConjugatePosterior._add_counts, belief, counts, np.asarray(weight, float))
        return replace(after, sources=sources)

    def _require_moments(self, data: Counts | FoldedLog) -> None:
        rewards = self.reward_cells
        if rewards.learns and not rewards.has_moments:
            raise TypeError(
                f"transitions is a {type(data).__name__}, expected Transitions: a "
                f"{rewards.law.__name__ if rewards.law else ''} law needs every reward"
            )

    def check(self, transitions: Transitions, weight: ArrayLike = 1.0) -> None:
        """Refuse transitions that the space or this belief cannot hold, but for those of weight zero. Host side.

        Raises:
            ValueError, TypeError: one sentence that names the first one (see `check_transitions`), an outcome of
                probability zero, a reward that the law cannot give.
        """
        check_transitions(transitions, self.space, weight)
        counted_rows = without_masked_rows(transitions, weight)
        if counted_rows is None:
            return
        # Numbers that are known inside a trace are looked at there.
        with jax.ensure_compile_time_eval():
            complete = (
                counted_rows
                if counted_rows.next_observed is None
                else without_masked_rows(counted_rows, counted_rows.next_observed)
            )
            if complete is not None:
                self.transition_probs.check(complete.cell(self.space), np.asarray(complete.outcome(self.space)))
            if counted_rows.reward is None:
                return
            # Where there is no outcome, a reward whose law needs one is not looked at.
            outcome = np.asarray(np.minimum(counted_rows.outcome(self.space), self.space.n_outcomes - 1))
            counted, _ = counted_rows.observed_rewards(np.ones(outcome.shape), by_outcome=self.rewards_by_outcome)
            reward, seen = np.asarray(counted_rows.reward, float), np.asarray(np.asarray(counted) != 0)
            self.reward_cells.check_rewards("transitions.reward", counted_rows.cell(self.space), outcome, reward, seen)

    def reward_support(self) -> RewardSupport:
        """Which rewards the law of every cell can give, whatever is unknown. Host side."""
        return self.reward_cells.support()

    def _observe_outcomes(
        self, cell: Index, outcome: IntScalar | Int[AnyArray, "*N"], weight: Float[AnyArray, "*N"]
    ) -> "ConjugatePosterior":
        rows, visits, constant = self.transition_probs, self.visits, self.constant
        # Visits are kept apart where counts of rows cannot tell them: some rows are shared or known.
        if visits is not None:
            visits = add_at(visits, cell, weight)
        # Known rows learn nothing; their log-probabilities still belong to the evidence.
        if rows.known is not None:
            constant = constant + xp.where(weight != 0, weight * rows.log_known(cell, outcome), 0.0).sum()
        rows = rows.update(cell, outcome, weight)
        return replace(self, transition_probs=rows, visits=visits, constant=constant)

    def _observe_rewards(
        self,
        transitions: Transitions,
        cell: Index,
        outcome: IntScalar | Int[AnyArray, "*N"],
        weight: Float[AnyArray, "*N"],
    ) -> "ConjugatePosterior":
        rewards = self.reward_cells
        if not rewards.learns and not rewards.has_constant:
            return self
        weight, reward = transitions.observed_rewards(weight, by_outcome=self.rewards_by_outcome)
        has_constant = rewards.has_constant
        rewards, term = rewards.observe(cell, outcome, reward, weight)
        # A leaf that nothing changes stays the same one: compiled loops do not carry it.
        return replace(self, reward_cells=rewards, constant=self.constant + term if has_constant else self.constant)

    def _add_counts(self, counts: Counts, weight: RealLike) -> "ConjugatePosterior":
        rewards, shape = self.reward_cells, self.transition_probs.shape
        self._require_moments(counts)
        counts = fit_counts(counts, self.space, rewards.law, rewards.by_outcome, "counts")
        # Counts are one weighted transition for every (cell, outcome), of weight zero where there is none.
        # Every cell of the table [*H S A O] at once, weighted by its number.
        *pair_index, outcome = xp.indices(shape)
        if is_concrete(counts, self.transition_probs.prior):
            seen = np.nonzero(np.asarray(counts.transitions))
            self.transition_probs.check(seen[:-1], seen[-1])
            self.reward_support().check_moments("counts", counts)
        posterior = self._observe_outcomes(tuple(pair_index), outcome, xp.asarray(counts.transitions, float) * weight)
        rewards, term = rewards.observe_counts(counts, xp.asarray(weight))
        return replace(posterior, reward_cells=rewards, constant=posterior.constant + term)

    def listed(self, successor: Int[AnyArray, "*H S A L"]) -> "ConjugatePosterior":
        """The same posterior, whose counts are kept for the outcomes `successor` [*H S A L] (S is the end) only.

        Exact, and cheaper to update and to draw from, for data of a simulator with listed
        successors. Later counts outside the list are lost. Host side. Itself where the space lists them already.
        """
        if self.space.successors is not None:
            return self
        return eqx.tree_at(lambda p: p.transition_probs, self, self.transition_probs.listed(np.asarray(successor)))

    def unlisted(self) -> "ConjugatePosterior":
        """The same posterior with the counts of every outcome."""
        return eqx.tree_at(lambda p: p.transition_probs, self, self.transition_probs.unlisted())

    @property
    def is_batch(self) -> bool:
        """Whether the arrays have extra leading axes (under `vmap`)."""
        return np.ndim(self.transition_probs.prior) > 2

    def row_intervals(self, probability: float, floor: float) -> RowIntervals:
        """Intervals that hold all rows at once with at least this posterior probability (`CanBoundRows`)."""
        return in_numpy(self.transition_probs.intervals, probability, floor)

    @concrete_in_numpy
    def pair_moments(self) -> PairMoments:
        """What `table` shows of every pair. A mean that does not exist is nan, a variance inf: neither is refused."""
        rows = self.transition_probs
        # share = prior concentration / posterior concentration; Var p_o = mean (1 - mean) / (c0 + 1).
        prior = eqx.tree_at(lambda r: r.counts, rows, xp.zeros_like(rows.counts)).concentration.sum(-1)
        after, (probs, _, reward) = rows.concentration.sum(-1), self._means()
        # Dirichlet moments, entry by entry.
        share = xp.where(after > 0, prior / xp.where(after > 0, after, 1.0), np.nan)
        variance = probs * (1 - probs) * rows.inverse_total()[..., None]
        reward_variance = self._reward_variance(xp.asarray(self.reward_cells.variance()))
        return PairMoments(probs, variance, reward, reward_variance, share, self.visit_counts(), self.reward_share())

    def reward_sums(self) -> RewardSums | None:
        """The law of one reward, and sums of all of them (see `wide_law`); None: they are not kept. Host side."""
        return self.reward_cells.reward_sums()

    def num_rewards_observed(self) -> float | None:
        """Number of observed rewards; None where all rewards are known."""
        return self.reward_cells.num_rewards_observed()

    def method_lines(self) -> dict[str, str]:
        """How it was inferred, and the log evidence, for `print`."""
        return {
            "method": f"{self.method} (closed form, no Monte Carlo error)",
            "log evidence": f"{float(self.log_evidence):.6g} = log p(next states, rewards | states, actions)",
        }

    def problems(self) -> list[str]:
        """Problems to know of before it is used, one sentence each; empty: none found. Host side."""
        sentences = self.reward_cells.problems()
        if not np.isfinite(self.log_evidence):
            sentences.append(
                "the log evidence is not finite: impossible data, or sums that do not determine it; compare the data "
                "with what the prior allows, and give transitions in place of sums (Counts)"
            )
        arrays = [np.asarray(x) for x in jax.tree.leaves(self.transition_probs)]
        # float32 has 24 bits: above 2^24 adding one changes nothing.
        if any(x.dtype == np.float32 and x.max(initial=0.0) > 2.0**24 for x in arrays):
            sentences.append(
                "concentrations above 2^24 in float32: one more transition no longer changes them; keep the posterior "
                "in float64, as infer returns it"
            )
        return sentences


def _log_evidence(posterior: ConjugatePosterior) -> RealScalar:
    rows, rewards = posterior.transition_probs, posterior.reward_cells
    return rows.log_evidence() + rewards.log_evidence() + posterior.constant


def refit(posterior: ConjugatePosterior, data: Transitions | Counts) -> ConjugatePosterior:
    """`posterior` after `data`, its arrays numpy float64 and its own.

    Raises:
        ValueError, TypeError: data that the space or the prior cannot hold.
    """
    # Copies: the arrays of the prior are shared by all that infer with it.
    posterior = jax.tree.map(np.array, posterior)
    return posterior.update(jax.tree.map(np.ravel, data) if isinstance(data, Transitions) else data)


def pad_log(transitions: Transitions) -> tuple[Transitions, Float[np.ndarray, " M"]]:
    """A log [N] in a buffer whose size M is a power of two, and the weights of its rows: one, and zero for padding.

    Logs of many lengths then share a few compilations.
    """
    # Padding repeats the first row with weight zero: every index stays valid, nothing is counted.
    size = np.size(transitions.state)
    place = np.arange(max(_LEAST_ROWS, 1 << (size - 1).bit_length()))
    padded = jax.tree.map(lambda column: np.ravel(column)[np.where(place < size, place, 0)], transitions)
    return padded, (place < size).astype(np.float64)


class LayeredPosterior(ConjugatePosterior):
    """A `ConjugatePosterior` whose steps are independent: it can also be sampled and averaged one step at a time."""

    def sample_backup(self, key: PRNGKeyArray, values: Float[AnyArray, " S"], layer: IntScalar) -> Float[Array, "S A"]:
        """Step `layer` of a fresh draw, applied to the `values` of the states that it leads to.

        sum_s' P(s' | s, a) (r(s, a, s') + values(s')); the value of an end is 0. Each layer needs its own key.
        """
        # Randomised value iteration draws layer h while it plans it: no draw of all H layers is ever held.
        key_rows, key_rewards = jax.random.split(key)
        rows, rewards = self.transition_probs.at_step(layer), self.reward_cells.at_step(layer)
        value = self.space.values_after(values, layer)
        reward = rewards.sample(key_rewards)
        if rewards.by_outcome:
            # With rewards by outcome the row is needed itself; otherwise only its product with the values.
            return (rows.sample(key_rows) * (reward + value)).sum(-1)
        return jnp.asarray(reward) + rows.sample_expectation(key_rows, value)

    def expected_next(self, values: Float[AnyArray, " S"], layer: IntScalar) -> Float[Array, "S A"]:
        """sum_s' E[P(s' | s, a)] values(s') at step `layer`; the value of an end is 0. Listed counts build no rows."""
        return self.transition_probs.at_step(layer).expectation(self.space.values_after(values, layer))


def conjugate_posterior(
    transition_probs: DirichletRows, rewards: Rewards, space: StateActionSpace, sites: SiteTable | None = None
) -> ConjugatePosterior:
    """The belief before any data; a `LayeredPosterior` where the space has a horizon and all rows are independent.

    Args: see `ConjugatePosterior`.

    Raises:
        ValueError: rows or rewards do not have the shape of `space`.
    """
    size = (*space.shape, space.n_outcomes)
    check_shape("transition_probs", transition_probs, size, "(step,) state, action, outcome")
    check_shape("rewards", rewards, size if rewards.by_outcome else space.shape, "the cells of the reward law")
    # Independent unknown rows count their own visits, as the sum of their counts.
    counted = transition_probs.independent and transition_probs.known is None
    visits = None if counted else np.zeros(space.shape)
    constant = np.zeros(())
    layered = space.horizon is not None and transition_probs.independent and rewards.independent
    kind = LayeredPosterior if layered else ConjugatePosterior
    return kind(transition_probs, rewards, space, visits, constant, sites)


@dataclass(frozen=True, eq=False)
class Components:
    """The priors of K components that share their data, and a stream of draws of these.

    Args:
        choose: number -> the components of so many draws.
        row_prior: (components [N], elements [U] of the stacked site rows) -> concentrations before data.
        reward_prior: (components [N], elements [M] of the reward sites) -> the beliefs before data; None: they are
            the same in all components.
        number: K.
        likely: the components that a draw may be of; None: any.
    """

    choose: Callable[[int], Int[np.ndarray, " N"]]
    row_prior: Callable[[Int[np.ndarray, " N"], Int[np.ndarray, " U"]], Float[np.ndarray, "N U"]]
    reward_prior: ComponentPrior | None
    number: int
    likely: Int[np.ndarray, " L"] | None = None

    def range_of(self, element: Int[np.ndarray, " U"]) -> tuple[Float[np.ndarray, " U"], Float[np.ndarray, " U"]]:
        """The smallest and largest concentrations of elements over these components."""
        # In blocks: there may be a thousand components with a million elements.
        step = max(1, BLOCK // max(len(element), 1))
        likely = np.arange(self.number) if self.likely is None else self.likely
        parts = [self.row_prior(likely[k : k + step], element) for k in range(0, len(likely), step)]
        return np.min([x.min(0) for x in parts], 0), np.max([x.max(0) for x in parts], 0)


def conjugate_pair_draws(
    key: PRNGKeyArray,
    posterior: "ConjugatePosterior",
    needed: Bool[np.ndarray, "*H S A"],
    components: Components | None = None,
    *,
    reward_key: PRNGKeyArray | None = None,
    reward_components: Components | None = None,
) -> PairDraws:
    """A stream of draws of the needed pairs.

    Args:
        key: of the draws.
        posterior: the belief; with `components` its data, and what all components share.
        needed: which pairs.
        components: of a mixture; None: the belief itself.
        reward_key: of the rewards; None: `key`.
        reward_components: the same components, drawn anew, for rewards that do not share theirs with the rows.
    """
    rows, draw_rows = _rows(key, posterior.transition_probs, posterior.space, needed, components)
    prior = None if components is None else components.reward_prior
    # Rewards are drawn for the cells that the rows can reach, and no others.
    place = rows.cells(posterior.rewards_by_outcome)
    draw_rewards = posterior.reward_cells.drawer(key if reward_key is None else reward_key, place, prior)

    def draw(num: int) -> Drawn:
        component = None if components is None else components.choose(num)
        # Rows and rewards of one component belong together; an outcome learnt apart has components of its own.
        of_rewards = component if reward_components is None else reward_components.choose(num)
        probs, reward = draw_rows(num, component), draw_rewards(num, of_rewards)
        if posterior.rewards_by_outcome:
            # E[r | s, a] of a draw, by its own probabilities.
            reward = rows.expectation(probs, reward)
        return Drawn(probs, reward)

    return PairDraws(rows, draw)


def row_concentrations(
    belief: DirichletRows, space: StateActionSpace, needed: Bool[np.ndarray, "*H S A"]
) -> tuple[PairRows, Float[np.ndarray, " E"]]:
    """The possible outcomes of needed rows of which none is known, and their concentrations after data.

    Args:
        belief: about the rows.
        space: its space.
        needed: which pairs.
    """
    index = np.nonzero(needed)
    # A concentration of zero is an outcome that cannot be: rows are kept sparse, in order of the pairs.
    concentration = np.asarray(belief.concentration, np.float64)[index]
    pair, outcome = np.nonzero(concentration)
    return pair_rows(space, index, pair, outcome), concentration[pair, outcome]


def pair_rows(
    space: StateActionSpace,
    index: tuple[Int[np.ndarray, " R"], ...],
    pair: Int[np.ndarray, " E"],
    outcome: Int[np.ndarray, " E"],
) -> PairRows:
    """The possible outcomes of some pairs, pair by pair.

    Args:
        space: of the MDP.
        index: (step,) state and action of each pair.
        pair, outcome: of each possible outcome, in the order of the pairs: the number of its pair, and its own.
    """
    # Compressed rows: entries first[i] to first[i + 1] are the outcomes of pair i.
    first = np.searchsorted(pair, np.arange(len(index[0]) + 1))
    step = index[0] if len(index) == 3 else None
    next_state = outcome
    if space.successors is not None:
        listed = np.asarray(space.successors)
        reached = listed[(*(i[pair] for i in (index if listed.ndim == 4 else index[-2:])), outcome)]
        # An illegal pair without a successor stays where it is.
        next_state = np.where(reached < 0, index[-2][pair], reached)
    return PairRows(step, index[-2], index[-1], first, outcome, next_state, space.n_states)


def _rows(
    key: PRNGKeyArray,
    belief: DirichletRows,
    space: StateActionSpace,
    needed: Bool[np.ndarray, "*H S A"],
    components: Components | None,
) -> tuple[PairRows, Callable[[int, Int[np.ndarray, " N"] | None], Float[np.ndarray, "N E"]]]:
    """The possible outcomes of the needed rows, and (number, components) -> draws of their probabilities."""
    index = np.nonzero(needed)
    size = belief.shape[-1]
    # Which site row each pair reads, and which column of it each outcome is; -1: the entry is known, or impossible.
    site_row = (
        np.arange(needed.size).reshape(needed.shape)[index] if belief.row is None else np.asarray(belief.row)[index]
    )
    column = np.broadcast_to(np.arange(size), (len(site_row), size))
    column = column if belief.column is None else np.asarray(belief.column)[index]
    inside = (site_row >= 0)[:, None] & (column >= 0)
    # Whole site rows are drawn, once for all pairs that share them.
    used, place = np.unique(site_row[site_row >= 0], return_inverse=True)
    concentration, largest, elements = _concentrations(belief, used, components)
    slot = np.zeros(len(site_row), int)
    slot[site_row >= 0] = place
    possible = np.zeros(column.shape, bool)
    # An outcome is possible where its concentration is positive in some component.
    possible[inside] = (largest > 0)[np.broadcast_to(slot[:, None], column.shape)[inside], column[inside]]
    known = None
    if belief.known is not None:
        known = np.where((site_row < 0)[:, None], np.asarray(belief.known)[index], 0.0).astype(np.float64)
        possible |= known > 0
    pair, outcome = np.nonzero(possible)
    rows = pair_rows(space, index, pair, outcome)
    # Where each entry lies among the positive elements of the used site rows.
    taken, position = largest > 0, np.full(largest.shape, -1)
    position[taken] = np.arange(taken.sum())
    chosen = inside[pair, outcome]
    source = np.zeros(len(pair), int)
    source[chosen] = position[slot[pair[chosen]], column[pair[chosen], outcome[chosen]]]
    fixed = None if known is None else known[pair, outcome]
    # Where every pair has a row of its own in order, the draws are the answer: no gather.
    in_order = fixed is None and len(source) == taken.sum() and bool((source == np.arange(len(source))).all())
    draw_sites = _site_rows(key, belief, used, taken, concentration, elements, components)

    def draw(num: int, component: Int[np.ndarray, " N"] | None) -> Float[np.ndarray, "N E"]:
        drawn = draw_sites(num, component)
        if in_order:
            return drawn
        if fixed is None:
            return drawn[:, source]
        # Known probabilities are the same in all draws; only the entries of unknown rows are filled in.
        filled = np.broadcast_to(fixed, (num, len(fixed))).copy()
        filled[:, chosen] = drawn[:, source[chosen]]
        return filled

    return rows, draw


def _site_rows(
    key: PRNGKeyArray,
    belief: DirichletRows,
    used: Int[np.ndarray, " R"],
    taken: Bool[np.ndarray, "R K"],
    least: Float[np.ndarray, "R K"],
    elements: Int[np.ndarray, "R K"],
    components: Components | None,
) -> Callable[[int, Int[np.ndarray, " N"] | None], Float[np.ndarray, "N U"]]:
    """(number, components) -> draws of the possible elements of some site rows, one row beside the other.

    Args:
        key, belief, components: of the draws.
        used: the site rows.
        taken: which of their elements are possible.
        least: least concentrations after data.
        elements: numbers of the elements.
    """
    width, counts = taken.sum(-1), np.where(taken, _counts(belief, used), 0.0)
    least = np.where(taken, least, 0.0)
    # By the belief, not by a draw: which numbers a row is made from must not depend on blocks.
    wide = suits_jumps(width, (least - counts).sum(-1), counts)
    small = least.max(-1) < SMALL
    is_wide, flat = np.repeat(wide, width), elements[taken]
    flat_counts, flat_least = counts[taken], least[taken]

    def prior(component: Int[np.ndarray, " N"], chosen: Bool[np.ndarray, " U"]) -> Float[np.ndarray, "N F"]:
        if components is None:
            return belief.prior_rows.at(*np.divmod(flat[chosen], belief.prior.shape[1]))[None]
        return components.row_prior(component, flat[chosen])

    def first(rows: Bool[np.ndarray, " R"]) -> Int[np.ndarray, " R1"]:
        return np.concatenate([[0], np.cumsum(width[rows])])

    streams, first_plain = ElementStreams(key, ROWS, used[~wide]), first(~wide)
    by_jumps = WideRows(
        key, WIDE_ROWS, used[wide], first(wide), flat_counts[is_wide], lambda k: prior(np.array([k]), is_wide)[0]
    )

    def draw_plain(num: int, component: Int[np.ndarray, " N"] | None) -> Float[np.ndarray, "N F"]:
        alpha = flat_least[~is_wide]
        if component is not None:
            # Posterior concentrations of each component: its prior plus the common counts.
            alpha = prior(component, ~is_wide) + flat_counts[~is_wide]
        return streams.dirichlets(num, alpha, first_plain, small[~wide])

    def draw(num: int, component: Int[np.ndarray, " N"] | None) -> Float[np.ndarray, "N U"]:
        if not wide.any():
            return draw_plain(num, component)
        likely = by_jumps.draw(np.zeros(num, int) if component is None else component)
        if wide.all():
            return likely
        drawn = np.empty((num, len(flat)))
        drawn[:, is_wide], drawn[:, ~is_wide] = likely, draw_plain(num, component)
        return drawn

    return draw


def _counts(belief: DirichletRows, used: Int[np.ndarray, " R"]) -> Float[np.ndarray, "R K"]:
    """Counts of every column of some site rows."""
    counts = np.asarray(belief.counts, np.float64)[used]
    if belief.successor is None:
        return counts
    # Listed counts go back to the columns of the site row; a successor that is listed twice adds up.
    dense = np.zeros((len(used), belief.prior.shape[1]))
    np.add.at(dense, (np.arange(len(used))[:, None], np.asarray(belief.successor)[used]), counts)
    return dense


def _concentrations(
    belief: DirichletRows, used: Int[np.ndarray, " R"], components: Components | None
) -> tuple[Float[np.ndarray, "R K"], Float[np.ndarray, "R K"], Int[np.ndarray, "R K"]]:
    """Least and largest concentrations after data of some site rows, and the numbers of their elements."""
    width = belief.prior.shape[1]
    elements = used[:, None] * width + np.arange(width)
    counts = _counts(belief, used)
    if components is None:
        after = np.asarray(belief.prior, np.float64)[used] + counts
        return after, after, elements
    least, largest = (x.reshape(elements.shape) for x in components.range_of(elements.ravel()))
    return least + counts, largest + counts, elements
