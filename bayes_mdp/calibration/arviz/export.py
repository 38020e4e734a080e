"""A posterior for ArviZ, as the groups of the InferenceData schema: `to_arviz`, `dataset`. Host-side."""

from collections.abc import Sequence

import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.behaviour import BehaviourPosterior
from bayes_mdp.calibration.arviz.behaviour_export import GROUPS as BEHAVIOUR_GROUPS
from bayes_mdp.calibration.arviz.behaviour_export import behaviour_groups
from bayes_mdp.calibration.arviz.generation import Tree, as_tree
from bayes_mdp.calibration.arviz.groups import GROUPS, Contents, GroupBuilder, contents
from bayes_mdp.calibration.belief.draws import check_posterior, key_or_first
from bayes_mdp.calibration.belief.observed_data import Data
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.utils.validation import check_name

OPTIONAL = ("prior_predictive", "posterior_predictive", "log_likelihood", "prior", "log_prior")
"""Groups that are left out, in this order, where all together would not fit in memory."""


def to_arviz(
    posterior: Fitted | BehaviourPosterior,
    *,
    num_draws: int = 1000,
    key: PRNGKeyArray | None = None,
    log_likelihood: str | None = None,
    data: Data = None,
) -> Tree:
    """The posterior as `InferenceData` (ArviZ 0.x) or `xarray.DataTree` (1.x), groups as in the InferenceData schema.

    The same variables come out however the posterior was inferred (exact, mixture, over hyperparameters, factorised,
    sampled). Their dims, beside chain and draw:

    | group | variables |
    |---|---|
    | posterior, prior | `transition_probs` (state, action, next_state); `reward_mean` and, of normal rewards, |
    | | `reward_precision` (state, action), where they are unknown; every latent and deterministic site of the program |
    | log_prior | log density of every latent site given its parents (the plates of the site) |
    | posterior_predictive, | with transitions: `observed_next_state` (the index of the outcome), `observed_reward` |
    | prior_predictive, | (transition); with sums: `transition_counts` (state, action, next_state), `reward_total` |
    | observed_data | (state, action) |
    | log_likelihood | `observed_transition` (transition), or `observed_cell` (cell) |
    | sample_stats | `diverging`, `acceptance_rate`, `n_steps`, `tree_depth`, `lp`, `energy` (), where NUTS was run |
    | constant_data | `visit_counts`, `reward_count` (state, action), fixed in all replicates; a known `reward_mean` |

    In a space with a horizon, `step` comes first; rewards that depend on the outcome have `next_state` last; if
    episodes can end, the last `next_state` is "end". Coordinates are the names of the space, as text if NetCDF cannot
    hold them (tuples, mixed kinds). `reward_mean` is the expected reward: a probability for Bernoulli rewards, a rate
    for Poisson; it is left out where the law has no mean.

    **Sites** have the names of the program ("." in place of "/"), with "_site" behind a name that is taken. Axes in
    plates have the names of the plates (those of the space with its coordinates), others are `{site}_dim_{i}`. A site
    of a closed form is drawn from its conjugate posterior. Of a posterior without a program (built by hand, or loaded)
    deterministics are missing, and axes have no names.

    **What is left out is said**: the attribute `left_out` of the posterior group has a line for each group that is
    missing, with the reason (a prior that is improper, data that the posterior does not keep pair by pair and that are
    not given as `data`, memory).

    **Draws of an exact posterior or a mixture are independent**: they are cut into four chains (three, two or one
    where `num_draws` does not divide by four), as plots and statistics ask for several; the effective sample size is
    about the number of draws, and r-hat is near one by construction. Draws of chains (of a collapsed, factorised or
    sampled posterior) keep them, thinned evenly to `num_draws` in all, one of each chain at least (each draw of the
    hyperparameters, or of the rewards, with one exact draw of what is in closed form). Values with weights of their own
    (of importance sampling, or as new data have changed them) are resampled by weight, and the attributes
    `weighted_draws` and `weights_ess` are set; of quadrature they are drawn between the nodes of the grid. These, and
    the draws of SVI and Laplace, are cut into chains like exact ones. The attribute `no_markov_chains` of a group says
    where that is so.

    **A replicate** repeats the transitions from the same pairs: every pair is visited as often as in the data, and
    every observed reward is drawn again (given its observed outcome, if rewards depend on it). It is not a new
    trajectory: the visits are fixed.

    **The log-likelihood** is log p(next state, reward | state, action, draw), one number per transition, or per
    visited pair ("cell": the sum over its transitions). `az.loo` on transitions compares priors; on cells it predicts
    each row from the other rows, and a large Pareto k shows where that approximation fails.

    **The log prior** is that of all latent sites. Power-scaling (`az.psense`) of a hierarchy should scale only those
    without latent parents, which the attribute `without_parents` of the group names (`group_var_names=` of `psense`).

    **Parameters of persons** (`bayes_mdp.behaviour.fit`): posterior and prior have each parameter in its support
    (subject), the sites of the program, and `{name}_group`, the group's mean in the support; posterior_predictive the
    `chosen_action` drawn one step ahead; observed_data has it too. The log-likelihood is `chosen_action` (choice: the
    observed ones, with coordinates `choice_subject` and `choice_trial`), each given the person's past and parameters;
    or, if `log_likelihood` is "subject", `subject_integrated` (subject): all choices of a person, with the person's
    parameters integrated out. `az.loo` of the one predicts further choices of the same persons, of the other new
    persons: their numbers are not to be compared.

    **The log-likelihood** of what does not depend on the parameters (a pair without data, a first choice before
    anything is learnt) varies by 1e-10 over the draws: ArviZ cannot smooth equal weights.

    Args:
        posterior: as `infer` returns it, or a mixture; or as `bayes_mdp.behaviour.fit` returns it.
        num_draws: draws per group.
        key: of all draws; None: `jax.random.key(0)`.
        log_likelihood: "transition" (needs the transitions), "cell", or "none" (no such group). None: by transition
            where they are known, else by cell where the law allows it, else none.
        data: the `Transitions`, `Log` or `Counts` that the posterior was inferred from. None: what it keeps (sums, or
            single transitions where the reward law has no sums).

    Raises:
        ValueError: an option out of range, other data than those of the posterior, draws that do not fit in memory.
        TypeError: `data` of another type, no posterior of this package.

    Example:
        >>> prior, space = bm.models.dirichlet_normal(), bm.StateActionSpace(2, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> bm.to_arviz(posterior, num_draws=10)["posterior"]["transition"].dims
        ('chain', 'draw', 'state', 'action', 'next_state')
    """
    if isinstance(posterior, BehaviourPosterior):
        return as_tree(_of_behaviour(posterior, num_draws, key, log_likelihood, data))
    check_posterior(posterior, num_draws)
    key = key_or_first(key)
    there = contents(posterior, data, log_likelihood)
    builder, wanted = _builder_that_fits(posterior, num_draws, key, there, log_likelihood)
    made = {name: getattr(builder, name)() for name in wanted}
    return as_tree(made)


def _of_behaviour(
    posterior: BehaviourPosterior,
    num_draws: int,
    key: PRNGKeyArray | None,
    log_likelihood: str | None,
    data: Data,
    wanted: Sequence[str] = BEHAVIOUR_GROUPS,
) -> dict[str, xr.Dataset]:
    if data is not None:
        raise ValueError("data is given, expected None: the posterior of a behaviour model keeps its choices")
    key = key_or_first(key)
    return behaviour_groups(posterior, num_draws=num_draws, key=key, log_likelihood=log_likelihood, wanted=wanted)


def _builder_that_fits(
    posterior: Fitted, num_draws: int, key: PRNGKeyArray, there: Contents, log_likelihood: str | None
) -> tuple[GroupBuilder, list[str]]:
    """The builder and the groups that it makes: all that there are, but for those that do not fit in memory.

    Raises:
        ValueError: not even the draws fit.
    """
    # A log-likelihood that was asked for is not dropped in silence.
    droppable = [name for name in OPTIONAL if log_likelihood is None or name != "log_likelihood"]
    while True:
        wanted = [name for name in GROUPS if name not in there.left_out]
        builder = GroupBuilder(posterior, num_draws, key, there)
        try:
            builder.check_size(wanted)
        except ValueError:
            name = next((name for name in droppable if name in wanted), None)
            if name is None:
                raise
            why = f"{num_draws} draws of it would not fit in memory beside the other groups"
            there = there._replace(left_out={**there.left_out, name: why})
        else:
            return builder, wanted


def dataset(
    posterior: Fitted | BehaviourPosterior,
    group: str = "posterior",
    *,
    num_draws: int = 1000,
    key: PRNGKeyArray | None = None,
    log_likelihood: str | None = None,
    data: Data = None,
) -> xr.Dataset:
    """One group of `to_arviz`, with the same draws, as a Dataset: input to ArviZ's statistics in 0.x and 1.x.

    Args:
        posterior, num_draws, key, log_likelihood, data: as for `to_arviz`.
        group: name of the group.

    Raises:
        ValueError, TypeError: as `to_arviz`; a group that does not exist, or not for this posterior.

    Example:
        >>> prior, space = bm.models.dirichlet_normal(), bm.StateActionSpace(2, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> bm.dataset(posterior, num_draws=10)["transition"].dims
        ('chain', 'draw', 'state', 'action', 'next_state')
    """
    if isinstance(posterior, BehaviourPosterior):
        check_name("group", group, BEHAVIOUR_GROUPS)
        groups = _of_behaviour(posterior, num_draws, key, log_likelihood, data, (group,))
        if group not in groups:
            raise ValueError(f"group is {group!r}, expected another: log_likelihood is 'none'")
        return groups[group]
    check_name("group", group, GROUPS)
    check_posterior(posterior, num_draws)
    key = key_or_first(key)
    there = contents(posterior, data, log_likelihood)
    if group in there.left_out:
        raise ValueError(f"group is {group!r}, expected another: {there.left_out[group]}")
    builder = GroupBuilder(posterior, num_draws, key, there)
    builder.check_size((group,))
    made: xr.Dataset = getattr(builder, group)()
    return made
