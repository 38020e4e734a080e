"""The route of `PartialPooling` priors: counts of the data, Gibbs sampling of what rows share, a `PooledPosterior`."""

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray, PyTree
from numpyro import handlers

from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.draws.methods import Gibbs
from bayes_mdp.inference.pooled.pooled_gibbs import PairCounts, draw_chains
from bayes_mdp.inference.pooled.pooled_posterior import PooledPosterior
from bayes_mdp.mdp import Counts, StateActionSpace, Transitions
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.partial_pooling import PartialPooling, PooledOutcomes, pooled_outcomes, state_rows
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import first_index


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
    space, number = statistics.space, options.num_chains * options.num_samples
    _check_size(space, number)
    rows = np.asarray(statistics.transition_probs.dense_counts).reshape(space.n_states, space.n_actions, -1)
    usage = prior.usage_of(space, rows.sum(-1))
    bits = np.asarray(jax.random.key_data(key)).ravel()
    rngs = [np.random.default_rng(seed) for seed in np.random.SeedSequence(bits.tolist()).spawn(options.num_chains)]
    data = _pair_counts(groups, space, rows, usage)
    drawn = draw_chains(rngs, prior, groups, data, rows.shape[-1], options.num_warmup, options.num_samples)
    flat = {name: x.reshape(number) for name, x in drawn.scalars.items()}
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
        latent = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
        levels = {name: latent[f"state_{name}"] for name in groups.levels}
        scalars = {name: x for name, x in latent.items() if name.startswith(("concentration", "usage", "state_conc"))}
        return {**scalars, "rows": state_rows(groups, levels, space.n_states, space.n_outcomes)}

    draws = [jax.tree.map(np.asarray, draw(each)) for each in jax.random.split(key, number)]
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
    legal = np.ones(usage.shape, bool) if space.legal is None else np.asarray(space.legal)
    inside = np.zeros(usage.shape, bool)
    inside[groups.open] = legal[groups.open]
    state, action = np.nonzero(inside)
    counts = rows[state, action]
    index = first_index(counts != np.round(counts))
    if index is not None:
        raise ValueError(
            f"data has {counts[index]:g} transitions of state {space.state_names[state[index[0]]]!r}, action "
            f"{space.action_names[action[index[0]]]!r} to one outcome, expected whole numbers: partial_pooling takes "
            "no weighted data"
        )
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
    what = f"space has {space.n_states} states, in {draws} draws of their rows"
    check_memory(
        what, 4.0 * 3 * draws * space.n_states * space.n_outcomes, "fewer draws (Gibbs(num_samples=)) take less"
    )
