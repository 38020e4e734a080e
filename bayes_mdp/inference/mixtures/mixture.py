"""`Mixture`: a weighted mixture of conjugate posteriors, as a discrete hyperparameter of finite support gives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.inference.conjugate.conjugate_draws import Components
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.predictive_density import log_gain
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.site_table import SiteTable
from bayes_mdp.inference.families.family import RewardBelief
from bayes_mdp.inference.mixtures.mixture_posterior import MixturePosterior, Tree
from bayes_mdp.inference.pair_draws import PairDraws, draw_by_weight, sampled_pair_draws
from bayes_mdp.inference.summary import LatentSites, Observed, describe, program_data
from bayes_mdp.mdp import PriorWeight, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import check_weighted
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.models.reward_support import RewardSupport, union
from bayes_mdp.numerics.numpy_or_jax import concrete_in_numpy, in_numpy, pick, xp
from bayes_mdp.utils.html_text import shown_as_html
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar
from bayes_mdp.utils.validation import as_real, check_shape, check_type, is_concrete, require


class Mixture(MixturePosterior):
    """A mixture of posteriors of one kind (built by `mixture` and `infer`); see `MixturePosterior` for what it can do.

    Args:
        components: a `ConjugatePosterior` whose arrays have a leading axis K.
        log_weights: [K], of the components, up to a constant.
        space: sizes, names, masks.
        log_prior: [K], log probabilities of the components before any data; None: not known.
        hyperparameters: {site: [K ...]}, the values of the discrete latent sites that make the components.
        program: the prior program; None after `load`, and of `mixture`.
        site_tables: for each component, where the sites of the program lie in its arrays; (): not known.
        observed: (name, number of values) of the sites that the program observes itself.
    """

    components: ConjugatePosterior
    log_weights: Float[AnyArray, " K"]
    space: StateActionSpace
    log_prior: Float[AnyArray, " K"] | None = None
    hyperparameters: dict[str, AnyArray] = eqx.field(default_factory=dict)
    program: Prior | None = eqx.field(static=True, default=None)
    site_tables: tuple[SiteTable, ...] = eqx.field(static=True, default=())  # type: ignore[override]
    observed: Observed | None = eqx.field(static=True, default=())

    @property
    def method(self) -> str:
        """How it was inferred: "mixture"."""
        return "mixture"

    @property
    def log_evidence(self) -> float | Float[Array, ""]:
        """log p(next states, rewards | states, actions) of all data, the components summed out: exact.

        Raises:
            ValueError: the probabilities of the components before any data are not known.
        """
        if self.log_prior is None:
            raise ValueError("the mixture has no log_prior, expected one from infer to state its evidence")
        if is_concrete(self):
            each = [float(self.component(k).log_evidence) for k in range(self.num_components)]
            return float(
                np.logaddexp.reduce(np.asarray(self.log_prior, float) + np.where(self._possible, each, -np.inf))
            )
        each = jax.vmap(lambda component: component.log_evidence)(self.components)
        return jax.nn.logsumexp(self.log_prior + jnp.where(self._possible, each, -jnp.inf))

    @property
    def _possible(self) -> Bool[AnyArray, " K"]:
        """Components that the data have not ruled out."""
        return self.log_weights > -jnp.inf if not is_concrete(self) else np.asarray(self.log_weights) > -np.inf

    @property
    def in_closed_form(self) -> bool:
        """True."""
        return True

    @property
    def site_draws(self) -> Mapping[str, AnyArray]:
        """The values of the discrete sites."""
        return self.hyperparameters

    def why_no_prior(self) -> str | None:
        """Why its prior cannot be drawn from, in words; None: it can."""
        if self.log_prior is not None:
            return None
        possible = np.flatnonzero(np.isfinite(np.asarray(self.log_weights))).tolist()
        known = np.isfinite([float(self.component(k).log_evidence) for k in possible]).all()
        return None if known else "the evidence of a component is not known, nor the weights before the data"

    def problems(self) -> list[str]:
        """Problems to know of before this is used: nothing, it is exact."""
        return []

    _repr_html_ = shown_as_html

    def __str__(self) -> str:
        return describe(self)

    def notes(self) -> list[str]:
        """Nothing: there are no chains."""
        return []

    def method_lines(self) -> dict[str, str]:
        """How it was inferred, and how many components carry the weight, for `describe`."""
        of = f", exact, over the values of {', '.join(map(repr, self.hyperparameters))}" if self.hyperparameters else ""
        size = float(self.effective_sample_size())
        return {
            "method": f"mixture of {self.num_components} posteriors in closed form{of}",
            "weights": f"effective sample size {size:.4g} of {self.num_components}",
            **program_data(self.observed),
        }

    def latent_sites(self) -> LatentSites:
        """The enumerated values of the discrete sites, by weight: they are no draws, and have no sample size."""
        return LatentSites(self.hyperparameters, self.weights, False, {}, {})

    def reward_support(self) -> RewardSupport:
        """Which rewards the law of every cell can give in some component. Host side."""
        each = np.flatnonzero(self._possible).tolist()
        return union([self.component(k).reward_support() for k in each])

    @concrete_in_numpy
    def prior_weight(self) -> PriorWeight:
        """What the prior of each pair weighs in the component in which it weighs least (`CanCountPrior`)."""
        each = self._each(lambda component: component.prior_weight())
        return PriorWeight(each.transitions.min(0), xp.any(each.is_empty, 0))

    def pair_draws(self, key: PRNGKeyArray, needed: Bool[np.ndarray, "*H S A"]) -> PairDraws:
        """A stream of draws of the needed pairs (`CanDrawPairs`): a component by weight, then its pairs.

        Components that differ in more than their priors are drawn whole.

        Args:
            key: of the draws.
            needed: which pairs.
        """
        return super().pair_draws(key, needed) if self._share_all_but_priors else sampled_pair_draws(key, self, needed)

    @property
    def _share_all_but_priors(self) -> bool:
        """Whether components have the same data, tables and known numbers."""
        rows, rewards = self.components.transition_probs, self.components.reward_cells
        priors = {id(x) for x in (rows.prior, *jax.tree.leaves(getattr(rewards, "prior", None)))}
        others = [np.asarray(x) for x in jax.tree.leaves((rows, rewards)) if id(x) not in priors]
        return all(bool((x == x[:1]).all()) for x in others)

    def component_priors(self, key: PRNGKeyArray) -> Components:
        """The priors of all components, and a stream of draws of these. Host side.

        Args:
            key: of the draws.
        """
        rows = np.asarray(self.components.transition_probs.prior, np.float64).reshape(self.num_components, -1)
        rewards = self.components.reward_cells

        def row_prior(k: Int[np.ndarray, " N"], element: Int[np.ndarray, " U"]) -> Float[np.ndarray, "N U"]:
            return rows[k[:, None], element]

        def reward_prior(k: Int[np.ndarray, " N"], element: Int[np.ndarray, " M"]) -> RewardBelief:
            assert isinstance(rewards, RewardCells)
            return jax.tree.map(lambda x: np.asarray(x, np.float64)[k[:, None], element], rewards.prior)

        varied = reward_prior if isinstance(rewards, RewardCells) else None
        return Components.of(draw_by_weight(key, np.asarray(self.weights)), row_prior, varied, self.num_components)

    # Components are few, and each is in closed form: one after the other in NumPy.

    bellman_variance = concrete_in_numpy(MixturePosterior.bellman_variance)
    expected_information = concrete_in_numpy(MixturePosterior.expected_information)
    pair_moments = concrete_in_numpy(MixturePosterior.pair_moments)

    def _each(self, function: Callable[[ConjugatePosterior], Tree]) -> Tree:
        if not is_concrete(self):
            return super()._each(function)
        answers = [in_numpy(function, self.component(k)) for k in range(self.num_components)]
        return jax.tree.map(lambda *each: np.stack(each), *answers)

    @concrete_in_numpy
    def average(self, function: Callable[[ConjugatePosterior], Tree]) -> Tree:
        """The weighted mean over the components of a function with arrays as answer.

        Args:
            function: of a component.
        """
        if not is_concrete(self):
            return super().average(function)
        first = function(self.component(0))
        # About the first component: what all agree on (a known reward) is exact, however many there are.
        centre = jax.tree.map(lambda x: np.where(np.isfinite(x), x, 0.0), first)
        total = jax.tree.map(lambda x, c: c + self.weights[0] * (x - c), first, centre)
        for k in range(1, self.num_components):
            answer = function(self.component(k))
            total = jax.tree.map(lambda t, x, c, k=k: t + self.weights[k] * (x - c), total, answer, centre)
        return total

    def component(self, k: IntScalar) -> ConjugatePosterior:
        """Component `k`."""
        return jax.tree.map(lambda x: pick(x, k), self.components)

    def update(self, transitions: Transitions, weight: ArrayLike = 1.0) -> "Mixture":
        """The mixture after one transition or a block: components by conjugacy, weights by predictive likelihood.

        Args:
            transitions: data; a block is taken one transition after the other.
            weight: scalar or [N]; zero masks a transition of a fixed buffer, another number raises its likelihood to
                that power.

        Raises:
            ValueError, TypeError: data that the space or the prior cannot hold (not inside a trace).
        """
        check_weighted(transitions, weight)
        if is_concrete(transitions, weight, self.log_weights):
            self.check(transitions, weight)
        if jnp.ndim(transitions.state) == 0:
            return self._observe(transitions, weight)
        # One transition after the other: the predictive of each is conditional on those before.
        weights = jnp.broadcast_to(jnp.asarray(weight, float), jnp.shape(transitions.state))
        start, block = jax.tree.map(jnp.asarray, (self, transitions))
        return lax.scan(lambda belief, x: (belief._observe(*x), None), start, (block, weights))[0]

    def _observe(self, transition: Transitions, weight: ArrayLike) -> "Mixture":
        def one(component: ConjugatePosterior) -> tuple[ConjugatePosterior, Float[Array, ""]]:
            return component.update(transition, weight), log_gain(component, transition, weight)

        # Bayes' rule for the component: w_k' = w_k p(transition | data, k); each component learns by conjugacy.
        components, gain = jax.vmap(one)(jax.tree.map(jnp.asarray, self.components))
        log_weights = self.log_weights + gain
        return replace(self, components=components, log_weights=log_weights - jnp.max(log_weights))


def mixture(posteriors: Sequence[ConjugatePosterior], *, weights: ArrayLike | None = None) -> Mixture:
    """A mixture of posteriors over one space. Host side.

    Args:
        posteriors: of one kind, one for each value of the discrete hyperparameter.
        weights: [K], positive; normalised here. None: by `log_evidence` (Bayes' rule, values equally likely at first).

    Raises:
        ValueError: no posterior, posteriors that differ in space, structure or shapes, weights that are not positive, a
            log evidence that is not finite.
        TypeError: no list of posteriors in closed form, a weight that is no number.
    """
    if not isinstance(posteriors, Sequence):
        kind = type(posteriors).__name__
        raise TypeError(f"posteriors is a {kind}, expected a list of posteriors, one for each component")
    for i, posterior in enumerate(posteriors):
        check_type(f"posteriors[{i}]", posterior, ConjugatePosterior, "a ConjugatePosterior")
    if not posteriors:
        raise ValueError("posteriors is empty, expected at least one posterior")
    # Tables of sites may differ between the components, and so may their programs.
    tables = tuple(replace(p.sites, program=None) for p in posteriors if p.sites is not None)
    posteriors = [replace(posterior, sites=None) for posterior in posteriors]
    first = posteriors[0]
    _require_alike(posteriors)
    if weights is None:
        log_weights = np.array([posterior.log_evidence for posterior in posteriors])
        require(
            ~np.isfinite(log_weights), "log_evidence", log_weights, "a finite number for each posterior, or weights"
        )
    else:
        array = as_real("weights", weights, "a finite number greater than 0")
        check_shape("weights", array, (len(posteriors),), "posterior")
        require(~(np.isfinite(array) & (array > 0)), "weights", array, "a finite number greater than 0")
        log_weights = np.log(array)
    # w_k is proportional to p(k) p(data | k). As logarithms: evidences differ by hundreds of nats.
    components = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *posteriors)
    log_weights = log_weights - np.logaddexp.reduce(log_weights)
    known = tables if len(tables) == len(posteriors) else ()
    return Mixture(components, log_weights, first.space, site_tables=known)


def _require_alike(posteriors: Sequence[ConjugatePosterior]) -> None:
    outlines = [
        (jax.tree.structure(posterior), [np.shape(leaf) for leaf in jax.tree.leaves(posterior)])
        for posterior in posteriors
    ]
    for index, outline in enumerate(outlines):
        if outline != outlines[0]:
            raise ValueError(
                f"posteriors[{index}] differs from posteriors[0] in its space, laws or shapes, "
                "expected posteriors of one kind (the same program with other numbers)"
            )
