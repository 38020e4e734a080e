"""To ArviZ, both generations: `to_arviz`, `dataset`. Host-side; the one place that knows ArviZ and its version."""

from typing import TYPE_CHECKING, Any

from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.beliefs import chains_of, check_posterior, has_prior
from bayes_mdp.calibration.generation import arviz, generation
from bayes_mdp.calibration.groups import GROUPS, groups
from bayes_mdp.calibration.observed import Data
from bayes_mdp.mdp.validation import check_name

if TYPE_CHECKING:
    import xarray as xr


def to_arviz(
    posterior: Any,
    *,
    num_draws: int = 1000,
    key: PRNGKeyArray | None = None,
    log_likelihood: str | None = None,
    data: Data = None,
) -> Any:
    """What ArviZ reads: `InferenceData` (ArviZ 0.x) or `xarray.DataTree` (1.x), groups as in the InferenceData schema.

    Variables, and their dims beside chain and draw:

    * posterior, prior: `transition_probs` (state, action, next_state), `reward_mean` (state, action), and
      `reward_precision` where the noise of the rewards is unknown; and, by name, the latent parents of a collapsed
      posterior or every latent site of a sampled one (axes that are plates of the space have their names);
    * posterior_predictive, prior_predictive, observed_data: `transition_counts` (state, action, next_state) and
      `reward_total` (state, action); with the transitions themselves as `data`, `observed_next_state` (index of the
      outcome) and `observed_reward` (transition) instead;
    * log_likelihood: `observed_transition` (transition) or `observed_cell` (cell);
    * sample_stats: `diverging`, `acceptance_rate`, `n_steps`, `lp` (chain, draw), where chains were run;
    * constant_data: what replicates hold fixed, `visit_counts` and `reward_count` (state, action); known rewards.

    `step` comes first in a space with a horizon; rewards that depend on the outcome have `next_state` last; where
    episodes can end, the last `next_state` is "end". Coordinates are the names of the space, as text where NetCDF
    cannot hold them (tuples, mixed kinds). `reward_mean` is the expected reward of the pair's law: a probability for
    Bernoulli rewards, a rate for Poisson.

    **Draws of an exact posterior are independent**, in one chain: the effective sample size is about the number of
    draws, r-hat says nothing, and LOO takes a relative efficiency of 1. Draws of a collapsed or sampled posterior keep
    their chains, thinned evenly to `num_draws` in all (each draw of the parents with one exact draw of the leaves).
    Where new data have changed the weights of the draws they are resampled by weight into one chain, and the
    attributes `weighted_draws` and `weights_ess` say so.

    **A replicate** answers: what else could these pairs have yielded? Every pair is tried as often as in the data, and
    every reward that was observed is drawn again (under its observed outcome, where rewards depend on it). It is not a
    new trajectory: the visits are held fixed.

    **The log-likelihood** is log p(next state, reward | state, action, draw), one number per transition, or per pair
    that was tried ("cell": the sum over its transitions). `az.loo` on transitions compares priors; on cells it asks
    each row to be predicted from the other rows, and its Pareto k says where that is too much to ask.

    Args:
        posterior: as `infer` returns it, or a mixture.
        num_draws: draws per group.
        key: of all draws; None: `jax.random.key(0)`.
        log_likelihood: None (no such group), "transition" (needs `data`) or "cell".
        data: the `Transitions`, `Log` or `Counts` that the posterior was inferred from (it keeps sums only). None: its
            own sums.

    Raises:
        ValueError: an option out of range, data that this posterior has not seen, groups that would not fit in memory.
        TypeError: `data` of another type, what is no posterior of this package.
    """
    check_posterior(posterior, num_draws)
    wanted = [g for g in GROUPS if g != "log_likelihood" or log_likelihood is not None]
    wanted = [g for g in wanted if has_prior(posterior) or g not in ("prior", "prior_predictive")]
    wanted = [g for g in wanted if chains_of(posterior) is not None or g != "sample_stats"]
    made = groups(posterior, wanted, num_draws=num_draws, key=key, log_likelihood=log_likelihood, data=data)
    return _tree(made)


def dataset(
    posterior: Any,
    group: str = "posterior",
    *,
    num_draws: int = 1000,
    key: PRNGKeyArray | None = None,
    log_likelihood: str | None = None,
    data: Data = None,
) -> "xr.Dataset":
    """One group of `to_arviz` (same options, same draws) as a Dataset, which ArviZ's statistics take in 0.x and 1.x.

    Raises:
        ValueError, TypeError: as `to_arviz`; a group that does not exist.
    """
    check_name("group", group, GROUPS)
    if group == "sample_stats" and chains_of(posterior) is None:
        raise ValueError("group is 'sample_stats', expected another: no chains were run for this posterior")
    made = groups(posterior, (group,), num_draws=num_draws, key=key, log_likelihood=log_likelihood, data=data)
    return made[group]


def _tree(made: "dict[str, Any]") -> Any:
    """The groups in the container of the installed ArviZ: the one version branch."""
    if generation() >= 1:
        import xarray as xr

        return xr.DataTree.from_dict({f"/{name}": group for name, group in made.items()})
    return arviz().InferenceData(**made)
