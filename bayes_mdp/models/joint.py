"""`joint`: a prior program with the data observed; `predictive`: the same with new transitions drawn."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Int, PRNGKeyArray

from bayes_mdp.mdp import Counts, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import check_transitions
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, RewardTable, check_spec, reward_table, transition_table
from bayes_mdp.models.reward_laws import unwrap
from bayes_mdp.models.sufficient_statistics import (
    CategoricalCounts,
    RewardStatistics,
    Statistics,
    check_rewards,
    fit_counts,
    has_statistics,
)
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_labels, described, is_concrete, require

Data = Counts | Statistics | Transitions | Log

OBSERVED_NEXT_STATE = "observed_next_state"
OBSERVED_REWARD = "observed_reward"


def joint(prior: Prior, space: StateActionSpace) -> Callable[..., MDPSpec]:
    """The conditioned model, for those who want to call NumPyro themselves: `model(data=None) -> MDPSpec`.

    To the sites of `prior` it adds `observed_next_state`, and `observed_reward` unless rewards are known. The log
    density that they add is log p(next states, rewards | states, actions) of the sequence of transitions. Both are
    sites on sufficient statistics, in the plates of the space (plates of their own: `row`, for rewards whose law has
    none). Without data it is the prior program alone.

    Data are an argument, of fixed shape where they are `Counts` or `Statistics`: nothing recompiles when they change.
    Transitions are summarised at every call; `summarise` does it once.

    Args:
        prior: a NumPyro program, space -> MDPSpec.
        space: what is known before any data.

    Raises (the model):
        TypeError, ValueError: the program does not return a MDPSpec of this space, or the data do not fit.

    Example:
        >>> import numpyro
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(2, 1)
        >>> data = bm.Transitions([0, 1], [0, 0], [0.0, 1.0], [1, 1])
        >>> program = numpyro.handlers.seed(bm.models.joint(prior, space), jax.random.key(0))
        >>> sorted(site for site in numpyro.handlers.trace(program).get_trace(data) if "observed" in site)
        ['observed_next_state', 'observed_reward']
    """

    _check_program(prior, space)

    def model(data: Data | None = None) -> MDPSpec:
        # The prior draws the parameters; the sites below say what was seen of them.
        spec = prior(space)
        check_spec(spec, space)
        if data is not None:
            observe(spec, space, data)
        return spec

    return model


def _check_program(prior: object, space: object) -> None:
    if not callable(prior):
        raise TypeError(f"prior is {described(prior)}, expected a function space -> MDPSpec")
    check_space(space)


def observe(spec: MDPSpec, space: StateActionSpace, data: Data, *, rewards_only: bool = False) -> None:
    """Add the observed sites of `joint` for a spec that is already there (inside a NumPyro program).

    Args:
        spec: what the program returned.
        space: of the spec.
        data: the observations.
        rewards_only: leave out `observed_next_state`: the density is that of the rewards given the outcomes.

    Example:
        >>> from bayes_mdp.models.joint import observe
        >>> import numpyro
        >>> space = bm.StateActionSpace(2, 1)
        >>> data = bm.Transitions([0, 1], [0, 0], [0.0, 1.0], [1, 1])
        >>> def program():
        ...     spec = bm.models.dirichlet_bernoulli()(space)
        ...     observe(spec, space, data)
        >>> trace = numpyro.handlers.trace(numpyro.handlers.seed(program, jax.random.key(0))).get_trace()
        >>> sorted(site for site in trace if "observed" in site)
        ['observed_next_state', 'observed_reward']
    """
    rewards = reward_table(spec, space)
    prepared = _prepare(rewards.law, rewards.by_outcome, space, data)
    if not rewards_only:
        # Counts of outcomes suffice for the rows, whatever the law of the rewards.
        counts = prepared.counts if isinstance(prepared, Statistics) else Counts.of(prepared, space)
        with space.plates():
            # The density is that of the sequence: no multinomial coefficient.
            law_of_counts = CategoricalCounts(transition_table(spec, space))
            numpyro.sample(OBSERVED_NEXT_STATE, law_of_counts, obs=jnp.asarray(counts.transitions, dtype=float))
    # Known rewards: what was paid tells nothing.
    if rewards.law is None:
        return
    if isinstance(prepared, Statistics):
        with space.plates():
            law_of_sums = RewardStatistics(rewards.law)
            # Rewards by outcome: the last axis of cells is an event, as in the law itself.
            event_law = law_of_sums.to_event(1) if rewards.by_outcome else law_of_sums
            numpyro.sample(OBSERVED_REWARD, event_law, obs=prepared.reward_value)
    elif prepared.reward is not None:
        _observe_rows(rewards, space, prepared)


@traced_alone
def summarise(prior: Prior, space: StateActionSpace, data: Data) -> Statistics | Transitions:
    """What `joint` needs of `data`, computed once: `Statistics`, or the transitions where the reward law has none.

    Args:
        prior: the program.
        space: that it is called with.
        data: transitions, counts, statistics or a log.

    Raises:
        TypeError, ValueError: as `joint`.

    Example:
        >>> from bayes_mdp.models.joint import summarise
        >>> space = bm.StateActionSpace(2, 1)
        >>> data = bm.Transitions([0, 1], [0, 0], [0.0, 1.0], [1, 1])
        >>> statistics = summarise(bm.models.dirichlet_bernoulli(), space, data)
        >>> statistics.counts.transitions[:, 0].tolist()
        [[0.0, 1.0], [0.0, 1.0]]
    """

    _check_program(prior, space)

    def program(key: PRNGKeyArray) -> MDPSpec:
        spec: Any = numpyro.handlers.seed(prior, key)(space)
        check_spec(spec, space)
        return spec

    # By shape alone: no number of the program is needed to know the family of its rewards.
    spec = jax.eval_shape(program, jax.random.key(0))
    if isinstance(spec.reward, dist.Distribution):
        return _prepare(unwrap(spec.reward), len(spec.reward.event_shape) == 1, space, data)
    return _prepare(None, False, space, data)


def predictive(prior: Prior, space: StateActionSpace) -> Callable[..., MDPSpec]:
    """`model(state, action, step=None) -> MDPSpec`: the prior program, then one new transition from each given pair.

    `state`, `action` and `step` (needed where the space has a horizon) are Int[N].

    Its sites `observed_next_state` (index of the outcome, the last being the end where episodes can end) and
    `observed_reward` lie in the plate `row`. For `numpyro.infer.Predictive`.

    Args:
        prior: the program.
        space: that it is called with.

    Raises:
        TypeError, ValueError: no program, no space, a program that returns no valid `MDPSpec` (see `check_spec`).

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(2, 1)
        >>> from numpyro.infer import Predictive
        >>> model = bm.models.predictive(prior, space)
        >>> new = Predictive(model, num_samples=5)(jax.random.key(0), jnp.array([0, 1]), jnp.array([0, 0]))
        >>> new["observed_reward"].shape  # five draws of two transitions
        (5, 2)
    """

    _check_program(prior, space)

    def model(
        state: Int[AnyArray, " N"], action: Int[AnyArray, " N"], step: Int[AnyArray, " N"] | None = None
    ) -> MDPSpec:
        spec = prior(space)
        check_spec(spec, space)
        # The cell of a pair does not depend on what follows it: any next state will do.
        cell = Transitions(state, action, None, state, step=step).cell(space)
        rewards = reward_table(spec, space)
        with numpyro.plate("row", jnp.shape(state)[0]):
            # [N O]: one row for each given pair.
            rows = transition_table(spec, space)[cell]
            outcome = jnp.asarray(numpyro.sample(OBSERVED_NEXT_STATE, dist.CategoricalProbs(rows)))
            # The reward given the outcome that was drawn.
            law: Any = rewards.at(cell, outcome)
            if rewards.law is None:
                numpyro.deterministic(OBSERVED_REWARD, law)
            else:
                numpyro.sample(OBSERVED_REWARD, law)
        return spec

    return model


def _prepare(
    law: dist.Distribution | None, by_outcome: bool, space: StateActionSpace, data: Data
) -> Statistics | Transitions:
    """Check `data` and summarise them for this reward law (None: known)."""
    # A law is known here by its type: parameters come with the program.
    kind = None if law is None else type(law)
    by_outcome = by_outcome and law is not None  # known rewards add no density: statistics of pairs will do
    if isinstance(data, Log):
        # A space without names takes the numbers of any log.
        if space.states is not None:
            check_labels("data.states", data.states, space.logged_states)
        if space.actions is not None:
            check_labels("data.actions", data.actions, space.action_names)
        data = data.transitions
    if isinstance(data, Transitions):
        if law is None or has_statistics(law):
            return Statistics.of(data, space, kind, by_outcome)
        check_transitions(data, space)
        check_rewards(kind, data)
        _check_whole(law, data)
        return data
    if kind is not None and not has_statistics(kind):
        raise TypeError(
            f"data is a {type(data).__name__}, expected Transitions or a Log: a {kind.__name__} law needs every reward"
        )
    if not isinstance(data, Counts | Statistics):
        raise TypeError(f"data is {described(data)}, expected Transitions, a Log, Counts or Statistics")
    return _fit_statistics(kind, by_outcome, space, data)


def _fit_statistics(
    kind: type[dist.Distribution] | None, by_outcome: bool, space: StateActionSpace, data: Counts | Statistics
) -> Statistics:
    """Statistics for the cells of the reward law; those by outcome are pooled where it does not look at the outcome."""
    if isinstance(data, Counts):
        counts = fit_counts(data, space, kind, by_outcome)
        if kind is dist.Poisson and is_concrete(counts) and np.any(np.asarray(counts.reward_count) > 0):
            raise ValueError(
                "data is a Counts, expected Transitions, a Log or Statistics: "
                "the density of Poisson rewards needs the factorial of every reward"
            )
        return Statistics(counts, jnp.zeros_like(counts.reward_count))
    counts = fit_counts(data.counts, space, kind, by_outcome)
    # Base measures of outcomes that the law does not look at add up.
    pooled = counts.reward_count.ndim < data.log_base.ndim
    return Statistics(counts, data.log_base.sum(-1) if pooled else data.log_base)


def _check_whole(law: dist.Distribution, transitions: Transitions) -> None:
    if law.is_discrete and transitions.reward is not None and is_concrete(transitions):
        # The density of a discrete law at a fraction would be that of its floor.
        reward = np.asarray(transitions.reward, float)
        observed = True if transitions.reward_observed is None else np.asarray(transitions.reward_observed)
        name = type(law).__name__
        require(observed & (reward != np.floor(reward)), "transitions.reward", reward, f"an integer (a {name} law)")


def _observe_rows(rewards: RewardTable, space: StateActionSpace, transitions: Transitions) -> None:
    """One observed reward per transition, for laws without sufficient statistics."""
    # A single transition is a batch of one.
    transitions = jax.tree.map(jnp.atleast_1d, transitions)
    law = rewards.at(transitions.cell(space), transitions.outcome(space))
    assert isinstance(law, dist.Distribution) and law.support is not None  # known rewards are not observed
    reward = jnp.asarray(transitions.reward, dtype=int if law.is_discrete else float)  # some laws index by the value
    counted, _ = transitions.observed_rewards(jnp.ones(reward.shape), by_outcome=rewards.by_outcome)
    if transitions.reward_observed is not None or transitions.next_observed is not None:
        # a missing reward is replaced by a possible one: a masked nan would still poison the gradient
        observed = counted != 0
        reward = jnp.where(observed, reward, law.support.feasible_like(reward))
        law = law.mask(observed)
    with numpyro.plate("row", reward.shape[0]):
        numpyro.sample(OBSERVED_REWARD, law, obs=reward)
