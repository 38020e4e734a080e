"""`CollapsedPosterior`: hyperparameters by weighted draws, the conjugate sites below them in closed form.

p(h, sites | data) = p(h | data) p(sites | h, data). The first factor is given by values h_k with weights: nodes of a
grid, weighted draws, or draws by NUTS, the sites integrated out. The second is a `ConjugatePosterior` for each of them.
New data d multiply the weight of h_k by p(d | h_k, data so far), a ratio of conjugate evidences. At the end its routes
(`fit_of`): statistics of the data, an integral or chains.
"""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt32

from bayes_mdp.inference.collapsed.collapse import (
    Classes,
    compress,
    find_classes,
    grouped,
    hyperparameter_model,
    moved,
    prior_arrays,
    with_prior_arrays,
)
from bayes_mdp.inference.collapsed.hierarchy import Hierarchy, draw_sites, recheck
from bayes_mdp.inference.collapsed.integrate import QUADRATURE, Integrated, integrate, missing_means
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.conjugate_posterior import Components, ConjugatePosterior, refit
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import KnownRewards, SiteDraws
from bayes_mdp.inference.draws.chains import Chains, Model, Scalars, of_conjugate_sites, run_chains
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.families.family import RewardBelief, RewardStreams, log_rising
from bayes_mdp.inference.fitted import BENT, NO_PROGRAM, DensityFacts, Law
from bayes_mdp.inference.integrals.importance import HEAVY_MEAN, Integration, effective_size, tail_shapes
from bayes_mdp.inference.integrals.quadrature import NotIntegrableError
from bayes_mdp.inference.mixtures import HyperparameterMixture
from bayes_mdp.inference.pair_draws import draw_by_weight, varies
from bayes_mdp.inference.summary import LatentSites, Observed, program_data
from bayes_mdp.mdp import MDP, Counts, SparseMDP, Transitions
from bayes_mdp.mdp.data.transitions import check_weighted
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.numerics.host_program import quick_jit, small_jit
from bayes_mdp.numerics.numpy_or_jax import in_numpy
from bayes_mdp.random.host_generator import draw_dirichlet_rows, host_generator
from bayes_mdp.random.resampling import systematic
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar
from bayes_mdp.utils.validation import check_count, first_index, is_concrete

COLLAPSED = "collapsed"
"""The route by chains."""
DENSE, FEW = 2**14, 64
"""Concentrations above which a transition is weighed by its own row alone; in a trace, also up to so many transitions:
that is a third of the program, which is compiled a second sooner and runs five times as fast."""
SHARE, MOVES = 0.5, 2
LEAST_COMPONENTS = 8
"""Of a thinned posterior: Metropolis steps take differences of draws."""
LOOKED_AT = 8
"""Values of largest weight, about which a new integral is looked for first."""
LOW_SHARE = 0.5
"""Effective sample size, as a share of the components, below which `problems` reports it."""

Loop: TypeAlias = tuple[ConjugatePosterior, Float[Array, " K"]]
"""Statistics of the data so far, and log p(data so far | component)."""


class ComponentDraws(NamedTuple):
    """One draw of the conjugate sites of each component of a posterior.

    Args:
        rows: [K M O], of the rows.
        rewards: each parameter of the rewards [K M ...].
    """

    rows: Float[AnyArray, "K M O"]
    rewards: SiteDraws

    def law(self, component: ConjugatePosterior, k: IntScalar) -> Law:
        """The law that was drawn from component `k`. Traceable."""
        rows = component.transition_probs.gather(jnp.asarray(self.rows)[k])
        return component.law_of(jnp.asarray(rows), tuple(jnp.asarray(x)[k] for x in self.rewards))


class CollapsedPosterior(HyperparameterMixture):
    """A weighted mixture of conjugate posteriors that share the statistics of the data (built by `infer`).

    Each component is the exact posterior of rows and rewards given one value of their hyperparameters: a node of a
    grid, or a draw. Where the values were integrated over (`integration`), an `update` on the host does so anew, from
    where they are. Otherwise data move the components by conjugacy and the weights by predictive likelihood: the
    mixture stays exact for the values it has; when few of them carry the weight, `refit` draws anew.
    `bayes_mdp.evidence` states its log evidence.

    Args:
        data_statistics: the statistics of all data; its prior parameters are not read.
        values: for each prior parameter array [K G], the parameters of K components, one for each class.
        index: for each of these arrays, the class (below G) of each entry, an array of the shape of the prior
            parameter.
        log_weights: [K], up to a constant.
        hyperparameters: {site: [K ...]}, the values of the hyperparameters.
        stream: [2], bits of the key of resampling and Metropolis steps inside a compiled loop, and of integrals.
        mcmc: the chains behind the draws; None: draws from the prior, thinned ones, or none.
        integration: how well the hyperparameters were integrated over; None: they were not, or the draws are thinned.
        hierarchy: the program; None after `load`: such a posterior updates, and cannot be refitted.
        options: of NUTS when it is refitted.
        share: the effective sample size, as a share of K, below which `needs_refit` is true.
        moves: Metropolis steps of every component after each update (resampled first where `needs_refit` is true);
            0: none, weights alone.
        observed: (name, number of values) of the sites that the program observes itself.
        route: "quadrature", "importance" or "collapsed" (by chains): how it is inferred anew.
    """

    data_statistics: ConjugatePosterior
    values: tuple[Float[AnyArray, "K _"], ...]
    index: tuple[Int[AnyArray, "..."], ...]
    log_weights: Float[AnyArray, " K"]
    hyperparameters: dict[str, AnyArray]
    stream: UInt32[AnyArray, " 2"]
    mcmc: Chains | None = None
    integration: Integration | None = None  # type: ignore[override]
    hierarchy: Hierarchy | None = eqx.field(static=True, default=None)
    options: NUTS = eqx.field(static=True, default=NUTS())
    share: float = eqx.field(static=True, default=SHARE)
    moves: int = eqx.field(static=True, default=0)
    observed: Observed | None = eqx.field(static=True, default=())
    route: str = eqx.field(static=True, default=COLLAPSED)

    @property
    def method(self) -> str:
        """How it was inferred: "quadrature", "importance", or "collapsed" (by chains)."""
        return self.route

    def component_priors(self, key: PRNGKeyArray) -> Components:
        """The priors of all components, and a stream of draws of these. Host side.

        Args:
            key: of the draws.
        """
        values = [np.asarray(x, np.float64) for x in self.values]
        # The value of element i in component k is values[k, index[i]]: equal hyperparameters are stored once a class.
        index = [np.asarray(x) for x in self.index]
        rewards = self.data_statistics.reward_cells

        def row_prior(k: Int[np.ndarray, " N"], element: Int[np.ndarray, " U"]) -> Float[np.ndarray, "N U"]:
            return values[0][k[:, None], index[0].reshape(-1)[element]]

        def reward_prior(k: Int[np.ndarray, " N"], element: Int[np.ndarray, " M"]) -> RewardBelief:
            assert isinstance(rewards, RewardCells)
            leaves = [x[k][:, i[element]] for x, i in zip(values[1:], index[1:], strict=True)]
            return jax.tree.unflatten(jax.tree.structure(rewards.prior), leaves)

        varied = reward_prior if isinstance(rewards, RewardCells) else None
        return Components(draw_by_weight(key, np.asarray(self.weights)), row_prior, varied, self.num_components)

    @property
    def rows_vary(self) -> bool:
        """Whether the priors of the rows differ from component to component. Host side."""
        return varies(np.asarray(self.values[0]))

    def component(self, k: IntScalar) -> ConjugatePosterior:
        """Component `k`, an integer or a traced one."""
        leaves = [jnp.asarray(v)[k][jnp.asarray(i)] for v, i in zip(self.values, self.index, strict=True)]
        return with_prior_arrays(self.data_statistics, leaves)

    def mean_mdp(self) -> MDP | SparseMDP:
        """Posterior mean of the transition probabilities and of the expected rewards.

        Raises:
            ValueError: that of a reward does not exist, in a component or over the hyperparameters; inside a trace the
                former is nan, and the latter a number.
        """
        # A mean over hyperparameters may be infinite though each component has one: shown from the program, not from
        # draws.
        index = first_index(self.missing_means())
        if index is not None:
            pair = f"state {self.space.state_names[index[-2]]!r}, action {self.space.action_names[index[-1]]!r}"
            raise ValueError(
                f"the expectation of the mean reward of {pair} does not exist: it is infinite over the "
                "hyperparameters, expected a prior of these with lighter tails, or more data"
            )
        return super().mean_mdp()

    def missing_means(self) -> Bool[np.ndarray, "*H S A"]:
        """Of which legal pairs it is shown that the mean reward has no expectation over the hyperparameters.

        Host side: inside a trace, or without the program (after `load`), none.
        """
        data = self.data_statistics
        if self.hierarchy is None or not is_concrete(self) or not self._learns_means():
            return np.zeros(self.space.shape, bool)
        log_weights = np.asarray(self.log_weights, np.float64)
        missing = missing_means(self.hierarchy, jax.tree.map(np.asarray, data), self.hyperparameters, log_weights)
        return self._largest_of_pairs(missing.astype(np.float64)) > 0

    def _learns_means(self) -> bool:
        """Whether hyperparameters enter rewards. Host side."""
        return any((np.asarray(x) != np.asarray(x)[:1]).any() for x in self.values[1:])

    def _largest_of_pairs(self, elements: Float[np.ndarray, " M"]) -> Float[np.ndarray, "*H S A"]:
        """Of numbers of the elements of the rewards, the largest one in each legal pair; minus infinity: there is none.

        Host side.
        """
        rewards = self.data_statistics.reward_cells
        assert isinstance(rewards, RewardCells)
        cells = np.asarray(rewards.select(elements, -np.inf))
        if rewards.by_outcome:
            possible = np.asarray(self.component(0).transition_probs.mean()) > 0
            # An outcome that cannot be has no cell that matters.
            cells = np.where(possible, cells, -np.inf).max(-1)
        return cells if self.space.legal is None else np.where(np.asarray(self.space.legal), cells, -np.inf)

    def _heavy_means(self) -> list[str]:
        """Which mean rewards rest on few of the draws, or on none that are enough, in words. Host side."""
        rewards = self.data_statistics.reward_cells
        if not isinstance(rewards, RewardCells) or self.on_grid or not self._learns_means():
            return []
        index, data = [np.asarray(i) for i in self.index[1:]], np.asarray(rewards.data, np.float64)
        # Elements of one class and with the same data are one.
        columns = [x.reshape(len(data), -1) for x in (*index, data)]
        _, first, element = np.unique(np.concatenate(columns, 1), axis=0, return_index=True, return_inverse=True)
        leaves = [np.asarray(x, np.float64)[:, i[first]] for x, i in zip(self.values[1:], index, strict=True)]
        belief: RewardBelief = jax.tree.unflatten(jax.tree.structure(rewards.prior), leaves)
        means = np.asarray(in_numpy(lambda prior: prior.after(data[first]).mean(), belief))
        # The k of a generalised Pareto fitted to weight times |mean|: k >= 1 means that the mean does not exist.
        shapes = tail_shapes(np.asarray(self.log_weights, np.float64), means.reshape(self.num_components, -1))
        k = self._largest_of_pairs(shapes[element.reshape(-1)])
        first_heavy = first_index(k >= HEAVY_MEAN)
        if first_heavy is None:
            return []
        states, actions = self.space.state_names, self.space.action_names
        return [
            f"the mean rewards of {int((k >= HEAVY_MEAN).sum())} pairs (state {states[first_heavy[-2]]!r}, action "
            f"{actions[first_heavy[-1]]!r} is the first) rest on few draws of the hyperparameters, if they exist "
            f"(Pareto k {k[first_heavy]:.2f}, expected below {HEAVY_MEAN}): give the hyperparameters a prior with "
            "lighter tails"
        ]

    @property
    def program(self) -> Prior | None:
        """The prior program; None after `load`."""
        return None if self.hierarchy is None else self.hierarchy.program.prior

    @property
    def chain_options(self) -> NUTS:
        """How chains are run."""
        return self.options

    def why_no_prior(self) -> str | None:
        """Why its prior cannot be drawn from, in words; None: it can."""
        if self.hierarchy is None:
            return NO_PROGRAM
        return None if self.hierarchy.draws_prior else BENT

    @property
    def density_facts(self) -> DensityFacts:
        """What the densities of its prior and of its data lack, or hold beside what is believed."""
        lacks_factorials = bool(np.isnan(self.data_statistics.constant))
        if self.hierarchy is None:
            return DensityFacts(lacks_factorials=lacks_factorials)
        return DensityFacts(not self.hierarchy.draws_prior, self.hierarchy.log_constant, lacks_factorials)

    def without_nodes(self, key: PRNGKeyArray, num: int) -> "CollapsedPosterior":
        """The same belief by draws of equal weight, between the nodes too, where hyperparameters were integrated over.

        Args:
            key: of the draws.
            num: how many, at least.
        """
        return self if self.integration is None else self.thinned(key, max(num, LEAST_COMPONENTS))

    def density_of_draws(self) -> tuple[Model, PyTree]:
        """The density of the hyperparameters, and the statistics of the data.

        Raises:
            ValueError: the program is not at hand (after `load`).
        """
        if self.hierarchy is None:
            raise ValueError(f"posterior has no density of its draws: {NO_PROGRAM}")
        with jax.enable_x64(True):
            data = grouped(jax.tree.map(np.array, self.data_statistics), find_classes(self.hierarchy))
        return hyperparameter_model(self.hierarchy), data

    def draw_below(self, key: PRNGKeyArray) -> "ComponentDraws | None":
        """One draw of the conjugate sites of each component, by NumPy; None: its rewards are of a kind that JAX draws.

        Compiling a sampler takes longer than many such draws.

        Args:
            key: of all draws.
        """
        data = self.data_statistics
        rewards, values = data.reward_cells, [np.asarray(x, np.float64) for x in self.values]
        if not isinstance(rewards, RewardCells | KnownRewards):
            return None
        rng = host_generator(key)
        leaves = [x[:, np.asarray(i)] for x, i in zip(values, self.index, strict=True)]
        # Dirichlet of every component: its prior plus the counts that all share.
        concentration = leaves[0] + np.asarray(data.transition_probs.dense_counts, np.float64)
        rows = draw_dirichlet_rows(rng, concentration)
        if not isinstance(rewards, RewardCells):
            return ComponentDraws(rows, ())
        prior = jax.tree.unflatten(jax.tree.structure(rewards.prior), leaves[1:])
        # The same statistics update the reward belief of each component.
        after = prior.after(np.asarray(rewards.data, np.float64))
        streams = RewardStreams(jax.random.fold_in(key, 1), np.arange(len(rewards.data)))
        return ComponentDraws(rows, after.draw(streams, len(rows)))

    def derived_tables(self) -> dict[str, Scalars]:
        """`transition_probs` and `reward_mean`: the means of the conjugate sites given each draw of its chains.

        Empty where the draws are not those of its chains. Host side.
        """
        if self.mcmc is None or not self.mcmc.are_those_of(self.hyperparameters, self.num_components):
            return {}
        prior = list(zip(self.values, self.index, strict=True))
        return dict(of_conjugate_sites(self.data_statistics, prior, (self.mcmc.num_chains, self.mcmc.num_samples)))

    def problems(self) -> list[str]:
        """Problems to know of before this is used, one sentence each; empty: none found. Host side."""
        problems = [] if self.mcmc is None else self.mcmc.problems(self.derived_tables())
        problems += self._heavy_means()
        if self.is_integrated:
            return problems
        size = float(self.effective_sample_size())
        # 1 / sum of w^2: how many equally weighted draws the mixture is worth.
        if not size >= LOW_SHARE * self.num_components:
            problems.append(
                f"the weights have an effective sample size of {size:.3g} of {self.num_components} components: new "
                "data moved the posterior away from the draws of the hyperparameters; call refit(key)"
            )
        return problems

    @property
    def is_integrated(self) -> bool:
        """Whether the weights are those of an integral over the hyperparameters, not changed since."""
        return self.integration is not None and bool(np.isfinite(self.integration.error))

    def method_lines(self) -> dict[str, str]:
        """How it was inferred, and how many draws carry the weight, for `print`."""
        if self.integration is not None and self.is_integrated:
            return {**_method_words(self.integration, self.route, self.num_components), **program_data(self.observed)}
        chains = self.mcmc
        drawn = "draws" if chains is None else chains.described()
        size = float(self.effective_sample_size())
        return {
            "method": f"{self.route} (hyperparameters by {drawn}, the rest in closed form)",
            "weights": f"effective sample size {size:.4g} of {self.num_components}",
            **program_data(self.observed),
        }

    def latent_sites(self) -> LatentSites | None:
        """The weighted values of the hyperparameters."""
        if self.integration is not None:
            return LatentSites(self.hyperparameters, self.weights, False, {}, {})
        return super().latent_sites()

    def needs_refit(self) -> Bool[Array, ""]:
        """Whether the effective sample size is below `share` of the number of components."""
        return jnp.asarray(self.effective_sample_size() < self.share * self.num_components)

    def update(self, transitions: Transitions | Counts, weight: ArrayLike = 1.0) -> "CollapsedPosterior":
        """The posterior after one transition, a block, or `Counts`.

        Hyperparameters that were integrated over are so anew given all data (on the host, with the program at hand),
        and those of a prior without data, if that is its route, once it has some. Otherwise components by conjugacy,
        weights by the predictive likelihood of the data: exact. With `moves`, components are then rejuvenated:
        resampled where the effective sample size is low, and moved by Metropolis steps on the collapsed density.

        Args:
            transitions: data.
            weight: scalar or [N]; zero masks a transition of a fixed buffer, another number raises its likelihood to
                that power.

        Raises:
            ValueError, TypeError: data that the space or the prior cannot hold (not inside a trace).
        """
        check_weighted(transitions, weight)
        if isinstance(transitions, Transitions) and is_concrete(transitions, weight, self.log_weights):
            self.check(transitions, weight)
        # An integral is worked out anew with all data: no degeneracy of weights can build up.
        if self._integrates() and is_concrete(transitions, weight, self):
            return self._integrate_after(self.data_statistics.update(transitions, weight))
        # Bayes' rule on the components: w_k becomes w_k p(new data | earlier data, h_k).
        gain = self._gain(transitions, weight)
        log_weights = jnp.asarray(self.log_weights) + gain
        after = replace(
            self,
            data_statistics=self.data_statistics.update(transitions, weight),
            # The largest is zero, so that exponentials neither over- nor underflow after many updates.
            log_weights=log_weights - jnp.max(log_weights),
            integration=None if self.integration is None else self.integration.after(self.log_weights, log_weights),
        )
        return after._rejuvenate(jnp.any(jnp.asarray(weight) != 0)) if self.moves else after

    def _integrates(self) -> bool:
        if self.hierarchy is None:
            return False
        if self.integration is not None:
            return True
        # The draws of a prior without data stand for no integral yet.
        unused = is_concrete(self.data_statistics) and self.num_components > 1 and not self.moves
        return unused and self.refits_on_host and not np.any(self.visit_counts())

    def _integrate_after(self, data_statistics: ConjugatePosterior) -> "CollapsedPosterior":
        """The posterior given other data of the same program: an integral that starts at this one, else chains."""
        assert self.hierarchy is not None
        data_statistics = jax.tree.map(np.asarray, data_statistics)
        try:
            integrated = self._integrate(self._rng(), data_statistics)
        except NotIntegrableError as error:
            sys.stderr.write(f"update: chains draw the hyperparameters, not {self.route}: {error}\n")
            return replace(self, data_statistics=data_statistics, route=COLLAPSED, integration=None).refit(
                jax.random.wrap_key_data(jnp.asarray(self.stream))
            )
        after = from_integral(self.hierarchy, integrated, data_statistics, find_classes(self.hierarchy), self.options)
        return replace(after, stream=self.stream, share=self.share)

    def _rng(self) -> np.random.Generator:
        """For draws given the data that it has: the same data, the same draws."""
        seen = np.asarray(self.visit_counts(), np.float64).sum()
        return np.random.default_rng([*np.asarray(self.stream).tolist(), int(seen)])

    def _integrate(
        self, rng: np.random.Generator, data_statistics: ConjugatePosterior, draws: int | None = None
    ) -> Integrated:
        """The integral of its route given these data, which looks first where the weight is now. Host side.

        Raises:
            NotIntegrableError: as `integrate`.
        """
        assert self.hierarchy is not None
        # The mode moves little with new data: the search starts from the heaviest values.
        heaviest = np.argsort(-np.asarray(self.log_weights))[:LOOKED_AT]
        starts = {name: np.asarray(x)[heaviest] for name, x in self.hyperparameters.items()}
        data = jax.tree.map(np.asarray, data_statistics)
        return integrate(self.hierarchy, data, rng, method=self.route, near=starts, draws=draws, strict=False)

    def _rejuvenate(self, learnt: Bool[Array, ""]) -> "CollapsedPosterior":
        """Components resampled where the effective sample size is low, then each moved `moves` times. Traceable.

        Resampling and the steps keep the posterior: resampled weights are equal because each draw is repeated in
        proportion to its weight, and the steps leave p(hyperparameters | data) invariant.

        Args:
            learnt: whether the last update had any weight; where it had none, nothing moves.
        """
        assert self.hierarchy is not None
        # The weights depend on the data: seeds with different data get different random numbers.
        stream = jax.random.wrap_key_data(jnp.asarray(self.stream))
        key = jax.random.fold_in(stream, jnp.sum(self.visit_counts()).astype(jnp.int32))
        salt = jax.lax.bitcast_convert_type(jnp.asarray(self.log_weights, jnp.float32).sum(), jnp.int32)
        key_resample, key_move = jax.random.split(jax.random.fold_in(key, salt))
        # Resample-move: systematic resampling only where the weights have degenerated, then Metropolis steps.
        low, number = learnt & self.needs_refit(), self.num_components
        chosen = jnp.where(low, systematic(key_resample, jnp.asarray(self.weights), number), jnp.arange(number))
        log_weights = jnp.where(low, 0.0, self.log_weights)
        resampled = {name: jnp.asarray(x)[chosen] for name, x in self.hyperparameters.items()}
        # Each move leaves p(h | all data) invariant, the conjugate sites integrated out.
        hyperparameters = moved(key_move, self.hierarchy, self.data_statistics, resampled, self.moves)
        values = compress(self.hierarchy, find_classes(self.hierarchy), hyperparameters)
        hyperparameters, values = jax.tree.map(
            lambda new, old: jnp.where(learnt, new.astype(old.dtype), old),
            (hyperparameters, values),
            (self.hyperparameters, self.values),
        )
        return replace(self, hyperparameters=hyperparameters, values=values, log_weights=log_weights)

    def _gain(self, transitions: Transitions | Counts, weight: ArrayLike) -> Float[Array, " K"]:
        """log p(data | earlier data, component), up to a constant."""
        if isinstance(transitions, Transitions):
            traced = not is_concrete(transitions, weight, self.log_weights, self.data_statistics)
            if np.size(self.index[0]) > DENSE or (traced and np.size(transitions.state) <= FEW):
                return self._gain_by_rows(transitions, weight)
        # The data alone, under the component's belief so far as the prior: their evidence is the predictive density.
        block = forgotten(self.data_statistics).update(transitions, weight)

        def evidence(k: Int[Array, ""]) -> Float[Array, ""]:
            believed = with_prior_arrays(block, prior_arrays(as_prior(self.component(k))))
            return jnp.asarray(believed.relative_log_evidence)

        return jax.vmap(evidence)(jnp.arange(self.num_components))

    def _gain_by_rows(self, transitions: Transitions, weight: ArrayLike) -> Float[Array, " K"]:
        """The same, one transition after the other, each by its own row and cell."""
        if np.ndim(transitions.state) == 0:  # no loop: a step of an agent compiles in half the time
            return self._gain_of_one(transitions, jnp.asarray(weight, float))
        block = jax.tree.map(jnp.atleast_1d, transitions)
        weights = jnp.broadcast_to(jnp.asarray(weight, float), block.state.shape)

        # The chain rule: log p(d_1, ..., d_n) is the sum of log p(d_i | d_1, ..., d_i-1), so that statistics grow in
        # the scan.
        def see(loop: Loop, x: tuple[Transitions, Float[Array, ""]]) -> tuple[Loop, None]:
            data_statistics, total = loop
            return (
                data_statistics.update(*x),
                total + replace(self, data_statistics=data_statistics)._gain_of_one(*x),
            ), None

        start = jax.tree.map(jnp.asarray, self.data_statistics), jnp.zeros(self.num_components)
        return lax.scan(see, start, (block, weights))[0][1]

    def _gain_of_one(self, transition: Transitions, weight: Float[Array, ""]) -> Float[Array, " K"]:
        rows, rewards = self.data_statistics.transition_probs, self.data_statistics.reward_cells
        cell, outcome = transition.cell(self.space), transition.outcome(self.space)
        # Only the site row that the transition touches is looked at: O(K O), not all K S A O concentrations.
        row, column = rows.place(cell, outcome)
        prior = jnp.asarray(self.values[0])[:, jnp.asarray(self.index[0]).at[row].get(mode="clip")]
        concentration = prior + jnp.asarray(rows.counts).at[row].get(mode="clip")
        chosen, total = jnp.take(concentration, column, axis=-1, mode="clip"), concentration.sum(-1)
        row_weight = transition.row_weight(weight)
        # Known rows, and places beyond the table, believe nothing: their density is the same in every component.
        believed = (row < len(rows.prior)) & (column < prior.shape[-1]) & (row_weight > 0)
        # Pólya urn: log E[p_o^w] = log rising(c_o, w) - log rising(c0, w) for each component.
        rising = log_rising(jnp.where(chosen > 0, chosen, 1.0), row_weight) - log_rising(total, row_weight)
        gain = jnp.where(believed, rising, 0.0)
        if transition.reward is None or not isinstance(rewards, RewardCells):
            return gain
        # The reward of the cell: its belief after earlier data, then the marginal density of one more.
        weight, reward = map(jnp.asarray, transition.observed_rewards(weight, by_outcome=rewards.by_outcome))
        element = rewards.element(cell, outcome)
        parameters = zip(map(jnp.asarray, self.values[1:]), map(jnp.asarray, self.index[1:]), strict=True)
        leaves = [v[:, i.at[element].get(mode="clip")] for v, i in parameters]
        belief = jax.tree.unflatten(jax.tree.structure(rewards.prior), leaves)
        belief = belief.after(jnp.asarray(rewards.data).at[element].get(mode="clip"))
        density = belief.log_marginal(belief.statistics(weight, rewards.standardised(cell, outcome, reward)))
        return gain + jnp.where((element < len(rewards.data)) & (weight > 0), density, 0.0)

    @property
    def refits_on_host(self) -> bool:
        """Whether `refit` is an integral in NumPy, which cannot be traced."""
        return self.route != COLLAPSED and self.hierarchy is not None

    def refit(self, key: PRNGKeyArray) -> "CollapsedPosterior":
        """The same posterior with new values of the hyperparameters given all data: as many, and of equal weight.

        By the integral of its route (on the host); by NUTS where that is its route, or where the integral fails: this
        is traceable, and slow.

        Raises:
            ValueError: the program is not at hand (after `load`).
        """
        if self.hierarchy is None:
            raise ValueError("the posterior was loaded and has no program, expected one from infer to refit")
        if not is_concrete(key, self.log_weights, self.data_statistics):
            return self._refit(key)
        if self.refits_on_host and self.mcmc is None:
            try:
                # As many draws as before, because the arrays of a compiled loop keep their shapes.
                integrated = self._integrate(host_generator(key), self.data_statistics, self.num_components)
            except NotIntegrableError:
                pass  # chains, below
            else:
                new = integrated.hyperparameters, integrated.parameters, np.zeros(self.num_components)
                # Equal weights: log weights of zero.
                old = dict(self.hyperparameters), self.values, self.log_weights
                draws, values, weights = jax.tree.map(lambda x, like: np.asarray(x, like.dtype), new, old)
                return replace(self, hyperparameters=draws, values=values, log_weights=weights, integration=None)
        in_double = np.asarray(self.log_weights).dtype == np.float64
        with jax.enable_x64(True) if in_double else nullcontext():
            # Copies: JAX may hold 32-bit versions of the arrays themselves.
            return jax.tree.map(np.asarray, _refit_compiled(jax.tree.map(np.array, self), key))

    def _refit(self, key: PRNGKeyArray) -> "CollapsedPosterior":
        assert self.hierarchy is not None
        # NUTS on p(h | all data), conjugate sites integrated out, from scratch: the old draws are not used.
        chains = run_chains(key, hyperparameter_model(self.hierarchy), self.data_statistics, self.options)
        fitted = from_draws(
            self.hierarchy, chains.draws, self.data_statistics, find_classes(self.hierarchy), self.num_components
        )
        settings = {"options": self.options, "share": self.share, "moves": self.moves}
        fitted = replace(fitted, stream=self.stream, mcmc=None if self.mcmc is None else chains, **settings)
        # The carry of a loop keeps its types.
        return jax.tree.map(lambda new, old: new.astype(old.dtype), fitted, self)

    def thinned(self, key: PRNGKeyArray, num: int, *, moves: int | None = None) -> "CollapsedPosterior":
        """The same posterior with `num` equally weighted components, to be carried through a compiled loop.

        Nodes of a grid become draws of a continuous posterior (on the host, with the program at hand).

        Args:
            key: chooses among the components, by weight.
            num: components kept, at least 8.
            moves: see the class; None: 2 where a refit takes chains, else 0.

        Raises:
            ValueError: `num` is below 8. TypeError: no integer.
        """
        check_count("num", num, LEAST_COMPONENTS)
        moves = (0 if self.refits_on_host else MOVES) if moves is None else moves
        hyperparameters: Mapping[str, AnyArray]
        thin = self
        smooth = self.integration is not None and self.hierarchy is not None and is_concrete(key, self)
        if self.route == QUADRATURE and smooth:
            # Between the nodes too: as many draws of the continuous posterior, of its own route and share.
            integrated, dtype = self._integrate(host_generator(key), self.data_statistics, num), self.values[0].dtype
            hyperparameters = integrated.hyperparameters
            values = tuple(x.astype(dtype) for x in integrated.parameters)
            weights = np.zeros(num, dtype)
            thin = replace(self, route=integrated.method, share=SHARE)
        else:
            chosen = systematic(key, jnp.asarray(self.weights), num)
            draws = dict(self.hyperparameters), self.values
            # On the host nothing is compiled for a gather.
            xp = np if is_concrete(chosen, draws) else jnp
            hyperparameters, values = jax.tree.map(lambda x: xp.asarray(x)[xp.asarray(chosen)], draws)
            weights = np.zeros(num, values[0].dtype)
        # NUTS options are cut down for refits inside compiled loops.
        options = NUTS(min(self.options.num_warmup, 300), max(2 * num, 200), 1, self.options.kernel)
        return replace(
            thin,
            values=values,
            hyperparameters=hyperparameters,
            log_weights=weights,
            stream=jax.random.key_data(jax.random.fold_in(key, 1)),
            mcmc=None,
            integration=None,
            options=options,
            moves=moves,
        )


def from_draws(
    hierarchy: Hierarchy,
    draws: Mapping[str, AnyArray],
    data_statistics: ConjugatePosterior,
    classes: Classes,
    num_components: int | None = None,
) -> CollapsedPosterior:
    """The mixture of the draws of all chains (or of `num_components` of them, evenly spaced), weighted alike."""
    flat = {name: draws[name].reshape(-1, *draws[name].shape[2:]) for name in hierarchy.hyperparameters}
    total = len(next(iter(flat.values())))
    if num_components is not None:
        # Evenly spaced over all chains: neighbouring draws are correlated.
        # A row of `flat` for each draw; chains lie one after the other.
        chosen = np.linspace(0, total - 1, num_components).astype(int)
        flat, total = {name: x[chosen] for name, x in flat.items()}, num_components
    values = compress(hierarchy, classes, flat)
    return CollapsedPosterior(  # pyright: ignore[reportCallIssue] (it takes abstract variables for fields)
        data_statistics=data_statistics,
        values=values,
        index=classes.number,
        log_weights=jnp.zeros(total),
        hyperparameters=flat,
        stream=jnp.zeros(2, jnp.uint32),
        hierarchy=hierarchy,
        observed=hierarchy.program.observed,
    )


def from_integral(
    hierarchy: Hierarchy,
    integrated: Integrated,
    data_statistics: ConjugatePosterior,
    classes: Classes,
    options: NUTS,
) -> CollapsedPosterior:
    """The mixture over the nodes, or the weighted draws, of an integral. Host side."""
    # The prior alone must be normalised for the evidence to be one: factors and observations of the program divide
    # out.
    number, integration = len(integrated.log_weights), integrated.integration
    # Of the data given what the program observes itself; nan: the integral over the prior alone is not known, or the
    # data are sums that do not hold a part of their density.
    constant = hierarchy.log_constant if hierarchy.draws_prior else np.nan
    constant = np.nan if np.isnan(data_statistics.constant) else constant
    integration = replace(integration, log_evidence=np.asarray(integration.log_evidence - constant))
    worth = effective_size(integrated.log_weights)
    return CollapsedPosterior(  # pyright: ignore[reportCallIssue] (it takes abstract variables for fields)
        data_statistics=data_statistics,
        values=integrated.parameters,
        index=classes.number,
        log_weights=integrated.log_weights,
        hyperparameters=integrated.hyperparameters,
        stream=np.zeros(2, np.uint32),
        integration=integration,
        hierarchy=hierarchy,
        options=options,
        # Refit below half of what the weights are worth now, not of their number: nodes of a grid never weigh alike.
        share=float(SHARE * worth / number),
        observed=hierarchy.program.observed,
        route=integrated.method,
    )


def _method_words(integration: Integration, route: str, number: int) -> dict[str, str]:
    size = integration.numbers
    names = (
        "no continuous hyperparameter" if not size else "1 hyperparameter" if size == 1 else f"{size} hyperparameters"
    )
    value, error = float(integration.log_evidence), float(integration.error)
    if route == QUADRATURE:
        method = f"{number} nodes over {names}, the rest in closed form"
        evidence = f"{value:.8g}, changed by {error:.1g} at the last halving of the grid"
    else:
        worth, k = float(integration.effective), float(integration.pareto_k)
        method = (
            f"{number} weighted draws of {names}, worth {worth:.0f} independent ones, Pareto k {k:.2f}; the rest in "
            "closed form"
        )
        evidence = f"{value:.6g}, standard error {error:.2g}"
    return {"method": f"{route} ({method})"} | ({"log evidence": evidence} if np.isfinite(value) else {})


_refit_compiled = jax.jit(CollapsedPosterior._refit)


def as_prior(posterior: ConjugatePosterior) -> ConjugatePosterior:
    """What `posterior` believes, as a belief before any data."""
    # Concentrations after data become the prior; sums of rewards likewise.
    rows, rewards = posterior.transition_probs, posterior.reward_cells
    posterior = replace(posterior, transition_probs=rows.with_prior(rows.site_concentration))
    if isinstance(rewards, RewardCells):
        posterior = eqx.tree_at(lambda p: p.reward_cells.prior, posterior, rewards.site_belief)
    return forgotten(posterior)


def forgotten(posterior: ConjugatePosterior) -> ConjugatePosterior:
    """`posterior` before any data."""
    rows, rewards = posterior.transition_probs, posterior.reward_cells
    # Statistics are zeroed, prior parameters and tables stay.
    rows = replace(rows, counts=jnp.zeros(jnp.shape(rows.counts)))
    rewards = rewards.before_data()
    visits = None if posterior.visits is None else jnp.zeros(jnp.shape(posterior.visits))
    return replace(posterior, transition_probs=rows, reward_cells=rewards, visits=visits, constant=jnp.zeros(()))


NUM_RECHECKED = 2
"""Draws of the posterior at which the closed form is compared with the program once more."""


@lru_cache(maxsize=64)
def fit_of(
    hierarchy: Hierarchy, options: NUTS = NUTS(), method: str = COLLAPSED, *, asked: bool = True
) -> Fit[CollapsedPosterior]:
    """Inference of a hierarchy as a function of the data statistics (held by a `ConjugatePosterior`).

    Args:
        hierarchy: proven.
        options: of the chains.
        method: "quadrature", "importance" or "collapsed" (chains).
        asked: whether it was asked for by name: then chains do not take the place of an integral that fails.
    """
    # Everything that depends on the program alone is made once; data are arguments of what follows.
    before, model = jax.tree.map(np.array, hierarchy.prior), hyperparameter_model(hierarchy)
    classes, drawable = find_classes(hierarchy), hierarchy.draws_prior
    rechecked = list[bool]()
    # Chains times samples: the prior's draws are as many as the posterior's, so that shapes agree.
    number = options.num_chains * options.num_samples
    draw_one = partial(draw_sites, hierarchy.program, hierarchy.hyperparameters)
    draw = quick_jit(lambda key: jax.vmap(draw_one)(jax.random.split(key, number)))
    chains_of = jax.jit(lambda key, data_statistics: run_chains(key, model, data_statistics, options))
    mix = small_jit(lambda draws, data_statistics, classes: from_draws(hierarchy, draws, data_statistics, classes))

    def by_chains(key: PRNGKeyArray, data_statistics: ConjugatePosterior) -> CollapsedPosterior:
        chains = run_chains(key, model, data_statistics, options)
        return replace(from_draws(hierarchy, chains.draws, data_statistics, classes), mcmc=chains, options=options)

    def by_integral(
        key: PRNGKeyArray, data_statistics: ConjugatePosterior, draws: int | None = None
    ) -> CollapsedPosterior:
        rng = host_generator(key)
        integrated = integrate(hierarchy, data_statistics, rng, method=method, draws=draws, strict=asked)
        return from_integral(hierarchy, integrated, data_statistics, classes, options)

    def draws_on_host(key: PRNGKeyArray, data_statistics: ConjugatePosterior, num: int) -> CollapsedPosterior:
        try:
            drawn = by_integral(key, data_statistics, num)
        except NotIntegrableError:
            drawn = chains_on_host(key, data_statistics).thinned(jax.random.fold_in(key, 1), num)
        # Whatever drew them, what is static is the same: simulations are stacked.
        drawn = replace(drawn, mcmc=None, integration=None, options=options, route=method, share=SHARE, moves=0)
        return jax.tree.map(np.asarray, drawn)

    def chains_on_host(key: PRNGKeyArray, data_statistics: ConjugatePosterior) -> CollapsedPosterior:
        # Equal rows are merged by class before the chains: the density is summed over classes, not over pairs.
        chains = chains_of(key, grouped(data_statistics, classes))
        return replace(mix(chains.draws, data_statistics, classes), mcmc=chains, options=options)

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> CollapsedPosterior:
        data_statistics = before if data is None else refit(before, data)
        # Without data, and where running the program draws from the prior, nothing has to be integrated.
        if data is None and drawable:
            draws = {name: np.asarray(x)[None] for name, x in draw(key).items()}
            posterior = mix(draws, data_statistics, classes)
            posterior = replace(posterior, options=options, route=method)
        elif method == COLLAPSED:
            posterior = chains_on_host(key, data_statistics)
        else:
            try:
                posterior = by_integral(key, data_statistics)
            except NotIntegrableError as error:
                if asked:
                    raise ValueError(
                        f"method is {method!r}, and {error}, expected {COLLAPSED!r}: chains draw the hyperparameters"
                    ) from error
                sys.stderr.write(f"infer: chains draw the hyperparameters, as an integral fails: {error}\n")
                posterior = chains_on_host(key, data_statistics)
        # The proof was numerical at random points; once more at points that matter.
        if data is not None and not rechecked:
            _recheck(hierarchy, posterior)
            rechecked.append(True)
        return jax.tree.map(np.asarray, posterior)

    def summarise(transitions: Transitions) -> ConjugatePosterior:
        return jax.tree.map(np.array, before).update(transitions)

    return Fit(method, before.space, summarise, by_chains, on_host, None if method == COLLAPSED else draws_on_host)


def _recheck(hierarchy: Hierarchy, posterior: CollapsedPosterior) -> None:
    """The certificate once more where the first result is used: at values from the posterior."""
    heaviest = np.argsort(-np.asarray(posterior.log_weights), kind="stable")
    # Values within e^-20 of the heaviest: others may lie where the program overflows.
    heaviest = heaviest[np.asarray(posterior.log_weights)[heaviest] > -20.0 + np.max(posterior.log_weights)]
    chosen = heaviest[np.linspace(0, len(heaviest) - 1, NUM_RECHECKED).astype(int)]
    draws = {name: np.asarray(x)[chosen] for name, x in posterior.hyperparameters.items()}
    if all(np.isfinite(x).all() for x in draws.values()):  # otherwise `Chains.problems` reports it
        recheck(hierarchy, draws, np.random.default_rng(0))
