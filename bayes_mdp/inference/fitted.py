"""`Fitted`: what every posterior of `infer` says of itself, so that nobody has to ask of which class it is.

There are two ideas: K closed forms with weights (an exact posterior is one; mixtures, collapsed and pooled ones are
several), and N weighted draws of a program (`SampledPosterior`; of the rewards alone, beside a closed form of the rows:
`FactorisedPosterior`). Each has the abilities of `bayes_mdp.mdp.Posterior` and the members below; a class that does not
override one has the answer that stands here.

A class of one's own is a subclass: its arrays, `space`, `method`, `log_weights` (None: nothing is weighted), `law_at`,
and what `bayes_mdp.mdp.Posterior` asks for beyond these. All else follows. Shapes: K components or draws, N of what is
asked for, the pairs [*H S A] and the outcomes O of the space; `cells` are the pairs, or [*H S A O] where rewards depend
on the outcome.
"""

import abc
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, Shaped
from scipy.special import softmax

from bayes_mdp.inference.integrals.importance import effective_size
from bayes_mdp.inference.summary import LatentSites, PairMoments, layout_of
from bayes_mdp.mdp import MDP, Counts, FoldedLog, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.abilities import Sizes
from bayes_mdp.mdp.data.transitions import without_rewards
from bayes_mdp.models.mdp_spec import Prior, RewardTable
from bayes_mdp.utils.layout import Section, as_html, as_text
from bayes_mdp.utils.modules import Module
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar
from bayes_mdp.utils.validation import check_name, described

if TYPE_CHECKING:
    from bayes_mdp.inference.collapsed.collapsed_posterior import ComponentDraws
    from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, Digests
    from bayes_mdp.inference.conjugate.site_table import SiteTable
    from bayes_mdp.inference.draws.chains import Chains, Model, Scalars
    from bayes_mdp.inference.draws.methods import NUTS
    from bayes_mdp.inference.integrals.importance import Integration
    from bayes_mdp.inference.sampled.conditioned_program import DataStatistics
    from bayes_mdp.inference.sampled.recipe import Recipe


NO_PROGRAM = "the posterior was built without a program, or loaded from a file, which holds none"
BENT = "the program has a factor, an observation, a scale or a mask: running it does not draw from the prior"
BLOCK = 50
NUMBERS_AT_ONCE = 2**24  # probabilities that are drawn at once
MOMENT_DRAWS = 1000
"""Draws behind the moments of a posterior that has no formula for them."""
MEAN_DRAWS = 400
"""Draws behind the mean rewards of outcomes."""
NOTHING: Mapping[str, np.ndarray] = MappingProxyType({})


class Law(NamedTuple):
    """The law of one transition of a space.

    Args:
        rows: probabilities of the outcomes.
        rewards: the law of one reward in every cell.
    """

    rows: Float[AnyArray, "*H S A O"]
    rewards: RewardTable

    def mdp(self, space: StateActionSpace) -> MDP | SparseMDP:
        """Its rows and the mean of its rewards."""
        rows, mean = self.rows, self.rewards.mean
        # By outcome: E[r | s, a] = sum_o p(o) r(o).
        if self.rewards.by_outcome:
            mean = (rows * mean).sum(-1)
        return space.mdp(rows, mean)

    def noise(self) -> Float[Array, "*H S A"]:
        """Variance of one reward around the mean of its cell, averaged over outcomes; zero where rewards are known."""
        law = self.rewards.law
        noise = jnp.zeros_like(self.rewards.mean) if law is None else law.variance
        return (self.rows * noise).sum(-1) if self.rewards.by_outcome else noise

    def log_likelihood(self, transitions: Transitions, space: StateActionSpace) -> Float[Array, ""]:
        """log p(next states, rewards | states, actions) of the transitions; what was not observed adds nothing."""
        cell, outcome = transitions.cell(space), transitions.outcome(space)
        # Next states first; a weight of zero drops what was not observed, whatever its row says.
        total = transitions.row_weight(jnp.log(self.rows[(*cell, outcome)])).sum()
        law = self.rewards.at(cell, outcome)
        if transitions.reward is None or not isinstance(law, dist.Distribution):
            return total
        density = jnp.asarray(law.log_prob(transitions.reward))
        # Rewards that were not seen count for nothing, although their density has been computed.
        counted, _ = transitions.observed_rewards(jnp.ones(density.shape), by_outcome=self.rewards.by_outcome)
        return total + jnp.where(counted != 0, density, 0.0).sum()


class LawDraws(NamedTuple):
    """N draws of the law of one transition. Host side, NumPy.

    Args:
        rows: probabilities of the outcomes.
        rewards: the law of one reward in every cell; its arrays have a leading axis N.
        mean: the mean reward of every cell, in float64; nan where it does not exist.
        known: whether the reward of a cell is a known number, so that no density is owed.
        sites: values of sites of the program that are drawn with it: {site: [N ...]}.
    """

    rows: Float[np.ndarray, "N *H S A O"]
    rewards: RewardTable
    mean: Float[np.ndarray, "N *cells"]
    known: Bool[np.ndarray, "*cells"]
    sites: Mapping[str, Shaped[np.ndarray, "N ..."]] = NOTHING

    @classmethod
    def of_tables(cls, rows: Float[AnyArray, "N *H S A O"], rewards: RewardTable) -> "LawDraws":
        """Of existing tables: rows, and a reward law whose arrays have a leading axis N."""
        rewards = jax.tree.map(np.asarray, rewards)
        cells = rows.shape[1:] if rewards.by_outcome else rows.shape[1:-1]
        return cls(np.asarray(rows), rewards, mean_of(rewards), np.full(cells, rewards.law is None))


class DensityFacts(NamedTuple):
    """What the evidence has to know of the densities of prior and data.

    Args:
        is_bent: a factor, an observation, a scale or a mask bends the prior, whose constant is then not known.
        log_constant: log density of what the prior observes and tells of nothing, which is no part of the evidence.
        lacks_factorials: the data are sums of rewards that do not hold all of their density (Poisson: no factorials).
    """

    is_bent: bool = False
    log_constant: float = 0.0
    lacks_factorials: bool = False


def mean_of(rewards: RewardTable) -> Float[np.ndarray, "N *cells"]:
    """The mean reward of every draw and cell, in float64."""
    with jax.enable_x64(True):
        copied = jax.tree.map(np.array, rewards)
        return np.asarray(jax.vmap(lambda each: each.mean)(copied), np.float64)


def block_size(table: int) -> int:
    """How many draws of `table` probabilities are made at once."""
    # As many as fit, at most BLOCK: one compiled program for all blocks.
    return max(1, min(BLOCK, NUMBERS_AT_ONCE // table))


def draw_batch(
    draw: Callable[[PRNGKeyArray], MDP | SparseMDP], key: PRNGKeyArray, sample_shape: tuple[int, ...]
) -> MDP | SparseMDP:
    """One draw, or a batch with leading axes `sample_shape` on every array."""
    # One `vmap` for each axis of the batch.
    for _ in sample_shape:
        draw = jax.vmap(draw)
    return draw(jax.random.split(key, sample_shape) if sample_shape else key)


if TYPE_CHECKING:
    # Its subclasses have these members, as fields or as properties: a base at run time would stand before them.
    from bayes_mdp.mdp import Posterior as HasAbilities
else:
    HasAbilities = object


class Fitted(Module, HasAbilities):
    """A belief about an MDP, with its origin. Host side, but for `law_at`, `sample_law` and `sample`."""

    if TYPE_CHECKING:  # each class has a field or a property

        @property
        def log_weights(self) -> Float[AnyArray, " K"] | None:
            """Of its components or draws, up to a constant; None: there is one alone, and nothing to be weighted."""
            ...

    outcomes: dict[str, Any] | None = eqx.field(default=None, kw_only=True)
    """Name -> posterior whose rewards are that outcome, learnt from the same log; None: there is none."""
    keeps_density: ClassVar[bool] = True
    """Whether its draws have a density that is known up to a constant; False: as by Gibbs chains."""

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """What `print` and a notebook show of it."""
        shown = layout_of(self)
        if not self.outcomes:
            return shown
        return replace(shown, parts=(*shown.parts, f"outcomes learnt beside the reward: {', '.join(self.outcomes)}"))

    def with_outcomes(self, outcomes: "Mapping[str, Fitted]") -> Self:
        """The same belief, with other outcomes learnt beside its reward. Host side.

        A draw of an outcome belongs to a draw of the rows, so that both have to draw the same rows under one key: as
        posteriors of one prior of the rows do, by one log. Who draws them looks.

        Args:
            outcomes: name -> posterior whose rewards are that outcome.

        Raises:
            TypeError: one is no posterior of `infer`. ValueError: one is of another space.
        """
        for name, outcome in outcomes.items():
            if not isinstance(outcome, Fitted):
                raise TypeError(f"outcomes[{name!r}] is {described(outcome)}, expected a posterior as infer returns it")
            if outcome.space.shape != self.space.shape:
                raise ValueError(f"outcomes[{name!r}] is of pairs {outcome.space.shape}, expected {self.space.shape}")
        return replace(self, outcomes=dict(outcomes) or None)

    def _outcomes_after(
        self, data: Transitions | Counts | FoldedLog, weight: ArrayLike, **options: Any
    ) -> dict[str, Any] | None:
        """The outcomes after further data: what these say of them, and rows alone where they say nothing."""
        if self.outcomes is None:
            return None
        # The rows of an outcome are those of the reward: they learn the transitions, and nothing of the reward
        # itself.
        if not isinstance(data, FoldedLog):
            data = without_rewards(data)
            return {name: outcome.update(data, weight, **options) for name, outcome in self.outcomes.items()}
        # A log in chunks brings sums of its outcomes along.
        for name in self.outcomes:
            check_name(f"transitions has no outcome {name!r}; an outcome", name, data.outcomes)
        return {
            name: outcome.update(data.of_outcome(name), weight, **options) for name, outcome in self.outcomes.items()
        }

    # Draws of what it believes.

    def sizes(self) -> Sizes:
        """What all draws have in common (`CanDrawPairs`)."""
        return Sizes.of(self.space)

    @abc.abstractmethod
    def law_at(self, key: PRNGKeyArray, k: IntScalar) -> Law:
        """One draw of rows and reward laws, given component (or draw) `k`. Traceable.

        Args:
            key: of what is drawn.
            k: 0 where there is one alone.
        """

    def sample_law(self, key: PRNGKeyArray) -> Law:
        """One draw of rows and reward laws; a component by weight first. Traceable."""
        if self.log_weights is None:
            return self.law_at(key, 0)
        # A component first, then the law within it: two keys, so that neither choice shifts the other.
        # Without weights there is one component.
        key_component, key = jax.random.split(key)
        return self.law_at(key, jax.random.categorical(key_component, jnp.asarray(self.log_weights)))

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> MDP | SparseMDP:
        """Draw hypotheses: one, or a batch with leading axes `sample_shape` on every array."""
        return draw_batch(lambda key: self.sample_law(key).mdp(self.space), key, sample_shape)

    def draw_laws(self, key: PRNGKeyArray, index: Int[np.ndarray, " N"]) -> LawDraws:
        """One draw of the law for each entry of `index`, and the values of sites of the program that belong to it.

        Args:
            key: of all draws.
            index: components or draws; zeros where there is one alone.
        """
        with jax.enable_x64(True):
            # Copies: JAX may hold float32 versions of the arrays themselves.
            posterior, keys = jax.tree.map(np.array, self), jax.random.split(key, len(index))
            # As many in each block: shapes, and so the compiled program, do not change with N.
            size = min(len(index), block_size(int(np.prod((*self.space.shape, self.space.n_outcomes)))))
            # The last block is filled up, by repeating draws: one compiled program for any N.
            places = np.resize(np.arange(len(index)), (-(-len(index) // size), size))
            blocks = [jax.tree.map(np.asarray, _laws_at(posterior, keys[block], index[block])) for block in places]
            law: Law = jax.tree.map(lambda *parts: np.concatenate(parts)[: len(index)], *blocks)
        return LawDraws.of_tables(np.asarray(law.rows, np.float32), law.rewards)

    @property
    def most_draws(self) -> int | None:
        """How many draws of the law it holds, beyond which they would repeat; None: each draw is a fresh one."""
        # Draws of the rewards alone meet fresh rows.
        whole = self.drawn_by is not None and not self.drawn_by.rewards_only
        return len(self.log_weights) if whole and self.log_weights is not None else None

    def worth_of_picks(self) -> float:
        """How many independent draws of the posterior any number of its draws is worth at most; inf: each is fresh.

        What it holds is worth 1 / sum of the squared weights, less by what its chains are worth of their length, and no
        more than the draws that an integral was made of. Weights that are known (closed forms, a grid) are no draws.
        """
        if self.log_weights is None or self.in_closed_form or self.on_grid:
            return np.inf
        worth = effective_size(np.asarray(self.log_weights, np.float64))
        if self.chains is not None:
            length = self.chains.num_chains * self.chains.num_samples
            slowest = min(float(np.nanmin(x, initial=np.inf)) for x in map(np.asarray, self.chains.ess().values()))
            worth *= min(1.0, slowest / length)
        record = self.integration
        if record is not None and np.isfinite(float(record.pareto_k)):
            worth = min(worth, float(record.effective))
        # Lost weights are nan: they are worth nothing that could be counted.
        return max(worth, 1.0) if np.isfinite(worth) else 1.0

    def picks(self, key: PRNGKeyArray, num: int) -> Int[np.ndarray, " N"] | None:
        """Which component each of the first draws of pairs under a key is of; None: not known, or a draw is no more
        than what is held.

        Args:
            key: of the draws.
            num: how many.
        """
        del key, num
        return None

    def without_nodes(self, key: PRNGKeyArray, num: int) -> Self:
        """The same belief by draws of equal weight, where it is a sum over the nodes of an integral; else itself.

        Args:
            key: of the draws.
            num: how many.
        """
        del key, num
        return self

    def draw_below(self, key: PRNGKeyArray) -> "ComponentDraws | None":
        """One draw of what lies below each component, made on the host; None: it is drawn where it is needed.

        Args:
            key: of the draws.
        """
        del key
        return None

    # Moments of it, and how it is shown.

    @property
    def is_batch(self) -> bool:
        """Whether the arrays have extra leading axes (under `vmap`)."""
        return self.log_weights is not None and np.ndim(self.log_weights) > 1

    def pair_moments(self) -> PairMoments:
        """What `table` shows of every pair: moments of draws, where a class has no formula for them."""
        laws, visits = self._moment_laws(), np.asarray(self.visit_counts(), np.float64)
        # By outcome: averaged over the row of the same draw.
        reward = laws.mean if not laws.rewards.by_outcome else (laws.rows * laws.mean).sum(-1)
        nothing = np.full(visits.shape, np.nan)
        return PairMoments(laws.rows.mean(0), laws.rows.var(0), reward.mean(0), reward.var(0), nothing, visits)

    def _moment_laws(self) -> LawDraws:
        # A fixed key: the same posterior prints the same numbers each time.
        key_choice, key = jax.random.split(jax.random.key(0))
        index = np.zeros(MOMENT_DRAWS, np.int32)
        if self.log_weights is not None:
            weights = jnp.asarray(self.log_weights)
            index = np.asarray(jax.random.categorical(key_choice, weights, shape=index.shape), np.int32)
        return self.draw_laws(key, index)

    @abc.abstractmethod
    def visit_counts(self) -> Float[AnyArray, "*H S A"]:
        """Number of observed transitions from every pair."""

    def num_rewards_observed(self) -> float | None:
        """Number of observed rewards (of every transition, unless a class knows better); None: all are known."""
        if self.reference is not self:
            return self.reference.num_rewards_observed()
        return None if self.reward_law is None else float(np.sum(np.asarray(self.visit_counts())))

    def method_lines(self) -> dict[str, str]:
        """{heading: text}: how it was inferred, and how well."""
        return {"method": self.method}

    def latent_sites(self) -> LatentSites | None:
        """The latent sites beside rows and rewards, by weight, with the diagnostics of chains; None: there are none."""
        if self.log_weights is None or not self.site_draws:
            return None
        weights = softmax(np.asarray(self.log_weights, np.float64))
        ess, r_hat = ({}, {}) if self.chains is None else (self.chains.ess(), self.chains.r_hat())
        return LatentSites(self.site_draws, weights, not self.in_closed_form, ess, r_hat)

    def problems(self) -> list[str]:
        """Problems to know of before it is used, one sentence each; empty: none is known."""
        return []

    def notes(self) -> list[str]:
        """What the draws of its chains cannot show, one sentence each."""
        return [] if self.chains is None else self.chains.notes()

    # What of it is exact.

    @property
    def reference(self) -> "Fitted":
        """What stands for all components in what they share (data, laws, tables): of K closed forms the first."""
        # A mixture looks at its first component for what all share.
        return self

    @property
    def in_closed_form(self) -> bool:
        """Whether it is a closed form, or finitely many of known weights: exact, its prior one of the same kind."""
        return False

    @property
    def exact_part(self) -> "ConjugatePosterior | None":
        """The one closed form in it: itself; where rewards are draws, its rows with rewards of zero; None: none."""
        return None

    def before_data(self) -> Self:
        """What it was before any data, where it is in closed form.

        Raises:
            ValueError: it is not.
        """
        raise ValueError(f"posterior is a {type(self).__name__}, expected one in closed form, whose prior is too")

    def with_sources(self, sources: "Digests") -> Self:
        """The same belief, which remembers the logs that it has learnt from where it can learn from more.

        Args:
            sources: digests of the logs.
        """
        del sources
        return self

    # Its rewards.

    def _outline(self) -> Law:
        """Shapes and types of its laws; nothing is computed."""
        # eval_shape traces `law_at` without running it.
        return jax.eval_shape(lambda: self.law_at(jax.random.key(0), 0))

    @property
    def reward_law(self) -> type[dist.Distribution] | None:
        """The type of the law of one reward; None: rewards are known numbers."""
        if self.reference is not self:
            return self.reference.reward_law
        law = self._outline().rewards.law
        return None if law is None else type(law)

    @property
    def rewards_by_outcome(self) -> bool:
        """Whether rewards depend on the outcome, not on state and action alone."""
        return self._outline().rewards.by_outcome if self.reference is self else self.reference.rewards_by_outcome

    @property
    def rewards_are(self) -> str:
        """What a density holds of a reward: nothing ("known"), a probability ("discrete"), a density ("continuous")."""
        law = self._outline().rewards.law
        if law is None:
            return "known"
        assert law.support is not None
        return "discrete" if law.support.is_discrete else "continuous"

    @property
    def known_reward(self) -> Float[np.ndarray, "*cells"] | None:
        """Mean rewards, [*H S A] or [*H S A O], where they are known; None: they are not."""
        return None if self.reference is self else self.reference.known_reward

    def mean_outcome_reward(self, key: PRNGKeyArray) -> Float[np.ndarray, "*H S A O"] | None:
        """The mean reward of every outcome, where no number is known by draws; None: it does not depend on the outcome.

        Args:
            key: of the draws.
        """
        if not self.rewards_by_outcome:
            return None
        if self.known_reward is not None:
            return self.known_reward
        index = np.zeros(MEAN_DRAWS, np.int32)
        # A component for each draw, by weight.
        if self.log_weights is not None:
            index = np.asarray(jax.random.categorical(key, jnp.asarray(self.log_weights), shape=index.shape))
        # Outcomes that are impossible have no mean.
        return np.nan_to_num(self.draw_laws(key, index).mean.mean(0))

    # The program and its sites.

    @property
    def program(self) -> Prior | None:
        """The prior program; None: it is not at hand."""
        return None if self.drawn_by is None else self.drawn_by.prior

    @property
    def site_tables(self) -> "tuple[SiteTable, ...]":
        """Where the elements of the program's sites lie in the arrays of the closed forms; (): not known."""
        return () if self.reference is self else self.reference.site_tables

    @property
    def site_draws(self) -> Mapping[str, Shaped[AnyArray, "K ..."]]:
        """Draws of latent sites of the program that it holds: {site: [K ...]}."""
        return {}

    def why_no_prior(self) -> str | None:
        """Why its prior cannot be drawn from, in words; None: it can."""
        if self.drawn_by is not None:
            return self.drawn_by.why_no_prior()
        return NO_PROGRAM if self.program is None and not self.in_closed_form else None

    # How its draws were made.

    @property
    def chains(self) -> "Chains | None":
        """The Markov chains behind its draws, [C N ...] (its field `mcmc`); None: there are none."""
        return getattr(self, "mcmc", None)

    def derived_tables(self) -> "dict[str, Scalars]":
        """Tables that follow from the draws of its chains, to be diagnosed as these: {name: scalars [C N e]}."""
        return {}

    @property
    def chain_options(self) -> "NUTS | None":
        """How its chains were run; None: there are none."""
        return None if self.drawn_by is None else self.drawn_by.nuts

    @property
    def drawn_by(self) -> "Recipe | None":
        """How its draws were made, of a whole program or of the rewards; None: by no such recipe."""
        return None

    @property
    def reward_data(self) -> "DataStatistics | None":
        """What it keeps of the observed rewards beside a closed form; None: they are in the closed form."""
        return None

    # Its evidence.

    @property
    def known_log_evidence(self) -> float | None:
        """log p(next states, rewards | states, actions) of all data where it is a formula; None: it is not, or nan."""
        return None

    @property
    def integration(self) -> "Integration | None":
        """How well an integral over what has no closed form is known; None: there was none."""
        return None

    @property
    def on_grid(self) -> bool:
        """Whether its weights are those of the nodes of a grid, which have no effective sample size."""
        record = self.integration
        # An integral that holds still, and was not made of draws.
        return record is not None and bool(np.isfinite(record.error)) and not np.isfinite(record.pareto_k)

    @property
    def density_facts(self) -> DensityFacts:
        """What the densities of its prior and of its data lack, or hold beside what is believed."""
        recipe = self.drawn_by
        return DensityFacts() if recipe is None else DensityFacts(not recipe.drawable, recipe.log_constant)

    def density_of_draws(self) -> "tuple[Model, PyTree]":
        """The density that its chains draw from, and the data that enter it.

        Raises:
            ValueError: there is none, or it is none that a bridge could use, or data were lost.
        """
        if self.drawn_by is not None and self.reward_data is not None:
            return self.drawn_by.density_for(self.reward_data), self.reward_data
        raise ValueError(
            f"posterior is a {type(self).__name__}, which was not inferred by chains, expected one by NUTS"
        )


@jax.jit
def _laws_at(posterior: Fitted, keys: Key[Array, " B"], index: Int[AnyArray, " B"]) -> Law:
    return jax.vmap(posterior.law_at)(keys, index)
