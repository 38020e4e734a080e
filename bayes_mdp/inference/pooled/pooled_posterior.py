"""`PooledPosterior`: draws of what is behind the rows of a `PartialPooling` prior; given them, rows in closed form.

`fit_of` is its route: counts of the data, Gibbs sampling of what rows share (`pooled_gibbs`), the posterior.
"""

from collections.abc import Mapping
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from numpyro import handlers

from bayes_mdp.inference.collapsed.collapsed_posterior import as_prior, forgotten
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.conjugate_posterior import Components, ConjugatePosterior
from bayes_mdp.inference.draws.chains import Chains, Scalars, summarise_sites
from bayes_mdp.inference.draws.methods import Gibbs
from bayes_mdp.inference.fitted import NO_PROGRAM
from bayes_mdp.inference.mixtures import MixturePosterior
from bayes_mdp.inference.pair_draws import draw_by_weight
from bayes_mdp.inference.pooled.pooled_gibbs import PairCounts, draw_chains
from bayes_mdp.inference.summary import LatentSites, PairMoments
from bayes_mdp.mdp import MDP, Counts, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import check_weighted
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.models.partial_pooling import PartialPooling, PooledOutcomes, pooled_outcomes, state_rows
from bayes_mdp.models.reward_support import RewardSupport
from bayes_mdp.numerics.products import einsum
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar
from bayes_mdp.utils.validation import first_index, is_concrete

Pairs = Float[AnyArray, "*H S A"]


class PooledPosterior(MixturePosterior):
    """A mixture of conjugate posteriors, one for each draw of what their rows share (built by `infer`).

    Given the row m_s of every state and the totals c_sa, row (s, a) is Dirichlet(c_sa m_s + counts): exact. New data
    move the rows by conjugacy and the weights of the draws by predictive likelihood.

    Args:
        data_statistics: counts of all data, and the belief about rewards; the prior of its rows is not read.
        state_rows: [K S O], m_s in each draw.
        totals: [K S A], c_sa, concentrations.
        log_weights: [K], up to a constant.
        hyperparameters: {site: [K]}, draws of the sites that are numbers.
        mcmc: the chains behind the draws; None: draws from the prior.
        prior: the program.
        options: of the chains.
        base_shares: [K S], the prior's part of m_s: what it has from no data of any state, at some level (by the tables
            of the same sweep, see `pooled_gibbs`); None: all of it, as before data.
    """

    data_statistics: ConjugatePosterior
    state_rows: Float[AnyArray, "K S O"]
    totals: Float[AnyArray, "K S A"]
    log_weights: Float[AnyArray, " K"]
    hyperparameters: dict[str, AnyArray]
    mcmc: Chains | None = None
    prior: PartialPooling | None = eqx.field(static=True, default=None)
    options: Gibbs = eqx.field(static=True, default=Gibbs())
    base_shares: Float[AnyArray, "K S"] | None = None

    @property
    def method(self) -> str:
        """How it was inferred: "gibbs"."""
        return "gibbs"

    @property
    def space(self) -> StateActionSpace:  # type: ignore[override]
        """Sizes, names, masks."""
        return self.data_statistics.space

    @property
    def program(self) -> Prior | None:
        """The prior program."""
        return self.prior

    @property
    def keeps_density(self) -> bool:
        """False: Gibbs chains keep no density of what they draw."""
        return False

    @property
    def site_draws(self) -> Mapping[str, AnyArray]:
        """The draws of the hyperparameters."""
        return self.hyperparameters

    @property
    def chains(self) -> Chains | None:
        """Those of the hyperparameters; None: draws from the prior."""
        return self.mcmc

    @property
    def rewards_by_outcome(self) -> bool:
        """Whether rewards depend on the outcome, not on state and action alone."""
        return self.data_statistics.rewards_by_outcome

    @property
    def components(self) -> ConjugatePosterior:  # type: ignore[override]
        """One posterior whose arrays have a leading axis K (K times all concentrations)."""
        return jax.vmap(self.component)(jnp.arange(self.num_components))

    def component_priors(self, key: PRNGKeyArray) -> Components:
        """The priors of all components, and a stream of draws of these. Host side.

        Args:
            key: of the draws.
        """
        totals, state_rows = (np.asarray(x, np.float64) for x in (self.totals, self.state_rows))
        known, outcomes = np.asarray(self.data_statistics.transition_probs.prior), state_rows.shape[-1]

        def places(element: Int[np.ndarray, " U"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            # An element of the flattened table [S A O] back to its state, action and outcome.
            pair, outcome = np.divmod(element, outcomes)
            state, action = np.divmod(pair, totals.shape[-1])
            return state, action, outcome

        def row_prior(k: Int[np.ndarray, " N"], element: Int[np.ndarray, " U"]) -> Float[np.ndarray, "N U"]:
            state, action, outcome = places(element)
            # Concentrations c_sa m_s of draw k; outcomes that the known prior excludes stay excluded.
            prior = totals[k[:, None], state, action] * state_rows[k[:, None], state, outcome]
            return np.where(known.reshape(-1)[element] > 0, prior, 0.0)

        return Components.of(draw_by_weight(key, np.asarray(self.weights)), row_prior, None, self.num_components)

    @property
    def rows_vary(self) -> bool:
        """True: what is pooled are the rows."""
        return True

    def component(self, k: IntScalar) -> ConjugatePosterior:
        """Component `k`, an integer or a traced one."""
        rows = self.data_statistics.transition_probs
        known = jnp.asarray(rows.prior)
        # Dirichlet(c_sa m_s): the row of the state, as strong as the total of the pair.
        prior = jnp.asarray(self.totals)[k][..., None] * jnp.asarray(self.state_rows)[k][:, None, :]
        prior = jnp.where(known > 0, prior.reshape(known.shape), 0.0).astype(known.dtype)
        return replace(self.data_statistics, transition_probs=rows.with_prior(prior))

    def mean_mdp(self) -> MDP | SparseMDP:
        """Posterior mean of the transition probabilities and of the expected rewards.

        Raises:
            ValueError: that of a reward does not exist (normal-gamma concentration <= 1/2); inside a trace it is nan.
        """
        if self.rewards_by_outcome:
            return super().mean_mdp()
        # With rewards by outcome means of rewards and rows multiply: the general way over components.
        # Rewards do not depend on the component: those of any one are those of all.
        reward = self.component(0).mean_rows()[1]
        return self.space.mdp(self._mean_probs(), reward)

    def _mean_probs(self) -> Float[Array, "S A O"]:
        """Means of the rows over all components, without making the rows of any.

        The mean of row (s, a) in component k is (c m_s + n) / (c + N): in m_s a product of matrices over k, state by
        state.
        """
        rows = self.data_statistics.transition_probs
        known = jnp.asarray(rows.prior).reshape(*self.totals.shape[1:], -1)
        counts = jnp.asarray(rows.dense_counts).reshape(known.shape)
        possible = known > 0
        total = jnp.asarray(self.totals, counts.dtype)
        m = jnp.asarray(self.state_rows, counts.dtype)
        # Impossible outcomes are left out of a row's total, which differs from c where m_s has them.
        inside = einsum("kso,sao->ksa", m, possible.astype(m.dtype))
        # weight_k / (c inside + N): common to all outcomes of a pair.
        share = self.weights.astype(m.dtype)[:, None, None] / (total * inside + counts.sum(-1))
        # sum_k share_k c_k m_k: the part of the prior; the counts' part needs the sum of the shares alone.
        prior = einsum("ksa,kso->sao", share * total, m)
        mean = jnp.where(possible, prior, 0.0) + counts * share.sum(0)[..., None]
        return mean / mean.sum(-1, keepdims=True)

    def derived_tables(self) -> dict[str, Scalars]:
        """None: of the rows of many states some r-hat is always large. The sites that are numbers are examined."""
        return {}

    def why_no_prior(self) -> str | None:
        """Why its prior cannot be drawn from, in words; None: it can."""
        if self.prior is None:
            return NO_PROGRAM
        by_data = isinstance(self.prior.usage, str)
        return 'usage is "data": the prior is conditioned on how often pairs were used' if by_data else None

    def problems(self) -> list[str]:
        """Problems to know of before this is used, one sentence each; empty: none found. Host side."""
        return [] if self.mcmc is None else self.mcmc.problems()

    def notes(self) -> list[str]:
        """What the draws of the chains cannot show, one sentence each (`Chains.notes`)."""
        return [] if self.mcmc is None else self.mcmc.notes()

    def method_lines(self) -> dict[str, str]:
        """How it was inferred, and how many draws carry the weight, for `describe`."""
        drawn = "draws from the prior" if self.mcmc is None else self.mcmc.described()
        size = float(self.effective_sample_size())
        return {
            "method": f"gibbs (rows of the states by {drawn}, those of the pairs in closed form)",
            "weights": f"effective sample size {size:.4g} of {self.num_components}",
        }

    def latent_sites(self) -> LatentSites:
        """The weighted draws of the sites that are numbers."""
        return summarise_sites(self.hyperparameters, self.weights, self.mcmc)

    def visit_counts(self) -> Pairs:
        """Number of observed transitions from every pair."""
        return self.data_statistics.visit_counts()

    def prior_share(self) -> Pairs:
        """The part of each row's mean that comes from the prior and from no data (`CanWeighPrior`).

        In draw k the mean of row (s, a) is (c m_s + n) / (c + N): a share c / (c + N) of it is m_s, and of that one the
        part `base_shares` is the prior's. What is left is borrowed: data of other actions and of other states.
        """
        return self._shares()[0]

    def borrowed_share(self) -> Pairs:
        """The part of each row's mean that data have put there through the row of its state (`CanBorrow`).

        At most that much is from other pairs, which the prior takes to be alike: data of the pair itself are among
        those of its state. With `prior_share` and N / (c + N) it sums to one; nan where nothing about the
        row is unknown.
        """
        return self._shares()[1]

    def reward_share(self) -> Pairs | None:
        """The prior's part in the mean reward of each pair (`CanWeighRewards`)."""
        return super().reward_share() if self.rewards_by_outcome else self.data_statistics.reward_share()

    def data_reward(self) -> Pairs | None:
        """The mean reward of each pair by data alone (`CanWeighRewards`)."""
        return super().data_reward() if self.rewards_by_outcome else self.data_statistics.data_reward()

    def _shares(self) -> tuple[Pairs, Pairs]:
        known = jnp.isnan(self.data_statistics.transition_probs.prior_share())
        # Share c / (c + N) of a row is its state's, and of that base_shares the prior's.
        total = jnp.asarray(self.totals)
        weighted = self.weights.astype(total.dtype)[:, None, None] * total
        of_state = weighted / (total + self.visit_counts())
        base = jnp.ones(total.shape[:2]) if self.base_shares is None else jnp.asarray(self.base_shares)
        prior = einsum("ksa,ks->sa", of_state, base.astype(total.dtype))
        borrowed = einsum("ksa,ks->sa", of_state, 1.0 - base.astype(total.dtype))
        share = self.data_statistics.share_with_rewards(jnp.where(known, jnp.nan, prior))
        return share, jnp.where(known, jnp.nan, borrowed)

    def pair_moments(self) -> PairMoments:
        """As that of every mixture; `prior_share` is that of this posterior, not the mean over components."""
        return super().pair_moments()._replace(prior_share=self.prior_share())

    def check(self, transitions: Transitions, weight: ArrayLike = 1.0) -> None:
        """Refuse transitions that the prior cannot hold, as `ConjugatePosterior.check`. Host side."""
        self.data_statistics.check(transitions, weight)

    def reward_support(self) -> RewardSupport:
        """Which rewards the law of every cell can give, whatever is unknown. Host side."""
        return self.data_statistics.reward_support()

    def update(self, transitions: Transitions | Counts, weight: ArrayLike = 1.0) -> "PooledPosterior":
        """The posterior after one transition, a block, or `Counts`: components by conjugacy, weights by likelihood.

        The usage that the prior was conditioned on stays that of the data that `infer` saw.

        Args:
            transitions: data.
            weight: scalar or [N]; zero masks a transition of a fixed buffer.

        Raises:
            ValueError, TypeError: data that the space or the prior cannot hold (not inside a trace).
        """
        check_weighted(transitions, weight)
        if isinstance(transitions, Transitions) and is_concrete(transitions, weight, self.log_weights):
            self.check(transitions, weight)
        # Under the belief of a component so far as the prior, the evidence of new data is their predictive density.
        # Rewards do not depend on the component, and change no weight.
        block = forgotten(self.data_statistics).update(transitions, weight)

        def gain(k: Int[Array, ""]) -> Float[Array, ""]:
            before = as_prior(self.component(k)).transition_probs.prior
            rows = block.transition_probs.with_prior(before)
            return jnp.asarray(rows.log_evidence())

        log_weights = jnp.asarray(self.log_weights) + jax.lax.map(gain, jnp.arange(self.num_components))
        return replace(
            self,
            data_statistics=self.data_statistics.update(transitions, weight),
            log_weights=log_weights - jnp.max(log_weights),
        )


def fit_of(
    prior: PartialPooling, space: StateActionSpace, rewards: Fit[ConjugatePosterior], options: Gibbs
) -> Fit[PooledPosterior]:
    """Inference of the prior, as a function of the data; on the host alone.

    Args:
        prior: the program.
        space: of the prior.
        rewards: inference of the rewards, beside rows in closed form that are only counted.
        options: of the chains.

    Raises:
        ValueError: a space that cannot be pooled (see `pooled_outcomes`).
    """
    # States with more than one possible outcome for some action: the rows that can be pooled.
    groups = pooled_outcomes(space)

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> PooledPosterior:
        statistics = rewards.on_host(key, data)
        if data is None:
            return _from_prior(key, prior, groups, statistics, options)
        return _from_data(key, prior, groups, statistics, options)

    def infer(key: PRNGKeyArray, data: PyTree) -> PooledPosterior:
        raise TypeError(
            "partial_pooling is inferred on the host (infer), expected another prior inside a compiled program: one "
            "of a factory with fixed or learnt concentrations"
        )

    return Fit("gibbs", space, rewards.summarise, infer, on_host)


def _from_data(
    key: PRNGKeyArray,
    prior: PartialPooling,
    groups: PooledOutcomes,
    statistics: ConjugatePosterior,
    options: Gibbs,
) -> PooledPosterior:
    # Draws of whole rows are held for all states: refused before memory runs out.
    space, number = statistics.space, options.num_chains * options.num_samples
    _check_size(space, number)
    rows = np.asarray(statistics.transition_probs.dense_counts).reshape(space.n_states, space.n_actions, -1)
    usage = prior.usage_of(space, rows.sum(-1))
    # Chains run in NumPy: an independent stream for each, seeded by the bits of the JAX key.
    bits = np.asarray(jax.random.key_data(key)).ravel()
    rngs = [np.random.default_rng(seed) for seed in np.random.SeedSequence(bits.tolist()).spawn(options.num_chains)]
    data = _pair_counts(groups, space, rows, usage)
    drawn = draw_chains(rngs, prior, groups, data, rows.shape[-1], options.num_warmup, options.num_samples)
    # Chains one after the other, as everywhere.
    flat = {name: x.reshape(number) for name, x in drawn.scalars.items()}
    # States that are not open have known rows, and ones say nothing there: `component` masks what is impossible.
    full = np.ones((number, *rows.shape[::2]), np.float32)
    full[:, groups.open] = drawn.rows.reshape(number, len(groups.open), -1)
    base = np.ones((number, len(full[0])), np.float32)
    base[:, groups.open] = drawn.base.reshape(number, -1)
    return _posterior(prior, statistics, options, full, flat, usage, Chains(dict(drawn.scalars)), base)


def _from_prior(
    key: PRNGKeyArray,
    prior: PartialPooling,
    groups: PooledOutcomes,
    statistics: ConjugatePosterior,
    options: Gibbs,
) -> PooledPosterior:
    """Draws of the program's sites, without data."""
    space, number = statistics.space, options.num_chains * options.num_samples
    _check_size(space, number)

    @jax.jit
    @traced_alone
    def draw(key: PRNGKeyArray) -> dict[str, jax.Array]:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=key):
            prior(space)
        # Levels (to end or not, to stay or move, to which state) make up the rows of the states; scalars are diagnosed.
        latent = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
        levels = {name: latent[f"state_{name}"] for name in groups.levels}
        scalars = {name: x for name, x in latent.items() if name.startswith(("concentration", "usage", "state_conc"))}
        return {**scalars, "rows": state_rows(groups, levels, space.n_states, space.n_outcomes)}

    # One at a time: vmap would hold all levels of all draws at once.
    draws = [jax.tree.map(np.asarray, draw(draw_key)) for draw_key in jax.random.split(key, number)]
    flat = {name: np.stack([x[name] for x in draws]) for name in draws[0]}
    rows = flat.pop("rows").astype(np.float32)
    return _posterior(prior, statistics, options, rows, flat, prior.usage_of(space, None), None)


def _posterior(
    prior: PartialPooling,
    statistics: ConjugatePosterior,
    options: Gibbs,
    state_rows: Float[np.ndarray, "K S O"],
    drawn: dict[str, np.ndarray],
    usage: Float[np.ndarray, "S A"],
    chains: Chains | None,
    base: Float[np.ndarray, "K S"] | None = None,
) -> PooledPosterior:
    """The posterior of K draws, equally weighted."""
    # c_sa = concentration usage_sa^power: pairs that are used more may vary less, or more, about their state's row.
    power = drawn.get("usage_power", np.zeros(len(state_rows)))[:, None, None]
    return PooledPosterior(  # pyright: ignore[reportCallIssue] (it takes abstract variables for fields)
        data_statistics=statistics,
        state_rows=state_rows,
        totals=(drawn["concentration"][:, None, None] * usage**power).astype(np.float32),
        log_weights=np.zeros(len(state_rows)),
        hyperparameters=drawn,
        mcmc=chains,
        prior=prior,
        options=options,
        base_shares=base,
    )


def _pair_counts(
    groups: PooledOutcomes, space: StateActionSpace, rows: Float[np.ndarray, "S A O"], usage: Float[np.ndarray, "S A"]
) -> PairCounts:
    """The counts of legal pairs of open states.

    Raises:
        ValueError: counts that are no whole numbers.
    """
    # Pairs that are legal, in states that are open: all other rows are known.
    legal = np.ones(usage.shape, bool) if space.legal is None else np.asarray(space.legal)
    inside = np.zeros(usage.shape, bool)
    inside[groups.open] = legal[groups.open]
    state, action = np.nonzero(inside)
    counts = rows[state, action]
    # Gibbs draws numbers of tables, which are whole: weighted data have none.
    index = first_index(counts != np.round(counts))
    if index is not None:
        raise ValueError(
            f"data has {counts[index]:g} transitions of state {space.state_names[state[index[0]]]!r}, action "
            f"{space.action_names[action[index[0]]]!r} to one outcome, expected whole numbers: partial_pooling takes "
            "no weighted data"
        )
    # Sparse: most counts of a row are zero.
    pair, outcome = np.nonzero(counts)
    number = np.full(space.n_states, -1)
    number[groups.open] = np.arange(len(groups.open))
    return PairCounts(
        number[state],
        np.log(usage[state, action]),
        counts.sum(-1),
        pair,
        outcome,
        counts[pair, outcome].astype(np.int64),
    )


def _check_size(space: StateActionSpace, draws: int) -> None:
    label = f"space has {space.n_states} states, in {draws} draws of their rows"
    check_memory(
        label, 4.0 * 3 * draws * space.n_states * space.n_outcomes, "fewer draws (Gibbs(num_samples=)) take less"
    )
