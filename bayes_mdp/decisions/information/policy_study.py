"""`PolicyStudy`: data from episodes under a policy; what they would change, by simulation from the posterior itself."""

from collections.abc import Mapping
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray
from numpyro.distributions import Distribution

from bayes_mdp.decisions.information.gain_over_plan import best_value, counter, gain_of, kept_value, without_illegal
from bayes_mdp.decisions.information.updatable import Updatable, laws_tell
from bayes_mdp.decisions.policy_evaluation import describe_objective, read_action_probs
from bayes_mdp.inference.mixtures.mixture import Mixture
from bayes_mdp.mdp import MDP, Episodic, Objective, Policy, PolicyOrLabels, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.by_label import is_by_label
from bayes_mdp.planning import Solution
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import as_array, check_count, described

MOST_TRANSITIONS = 10**9  # of one study: more would take days

Tree = TypeVar("Tree")


def _readable(policy: object) -> PolicyOrLabels:
    """A policy object, or one by label, as it is, anything else as an array."""
    if isinstance(policy, Policy | jax.Array) or is_by_label(policy):
        return policy  # type: ignore[return-value] - a list of mappings is a sequence
    return as_array("policy", policy, "a Policy, integers (actions) or floats (probabilities)")


class PolicyStudy(eqx.Module):
    """A proposed study: episodes under a policy, a candidate of `next_experiment`.

    Args:
        policy: as in `policy_value`: Int[*H S], Float[*H S A], a `Policy`, or by the labels of the posterior's space.
        num_episodes: at least 1, all from the given start.
        max_steps: of one episode, at least 1. None: the horizon, under `Episodic`; the other objectives need a number
            (FirstExit: episodes stop there if they have not ended).

    Raises:
        ValueError, TypeError: a number below 1 or none; a policy that is no array (its shape and its values are looked
            into by `next_experiment`).

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> studies = {"try action 1": bm.PolicyStudy([1], num_episodes=5)}
        >>> answer = bm.next_experiment(
        ...     jax.random.key(1), posterior, bm.Episodic(1), studies, num_data_sets=50
        ... )
        >>> bool(answer.value[0] > 0)
        True
    """

    policy: PolicyOrLabels = eqx.field(converter=_readable)
    num_episodes: int = eqx.field(static=True)
    max_steps: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_count("num_episodes", self.num_episodes)
        if self.max_steps is not None:
            check_count("max_steps", self.max_steps)


class Design(eqx.Module):
    """A study as arrays.

    Args:
        probs: Float[*H S A], action probabilities.
        num_episodes, max_steps: Int[], traced: one compiled program serves all numbers.
    """

    probs: Float[Array, "*H S A"]
    num_episodes: Int[AnyArray, ""]
    max_steps: Int[AnyArray, ""]


def check_studies(candidates: Mapping[str, PolicyStudy]) -> dict[str, PolicyStudy]:
    """The studies by their names.

    Raises:
        ValueError: there is none. TypeError: a candidate of another kind.
    """
    if not candidates:
        raise ValueError("candidates is empty, expected at least one study by its name")
    for name, study in candidates.items():
        if not isinstance(study, PolicyStudy):
            raise TypeError(
                f"candidates[{name!r}] is {described(study)}, expected a PolicyStudy (all candidates are of one kind)"
            )
    return {str(name): study for name, study in candidates.items()}


def read_studies(
    studies: Mapping[str, PolicyStudy], mean: MDP | SparseMDP, objective: Objective, space: StateActionSpace
) -> dict[str, Design]:
    """The studies as arrays.

    Raises:
        ValueError, TypeError: one sentence: a policy that does not fit, no `max_steps` where it is needed, or one
            beyond the horizon.
    """
    designs = {}
    for name, study in studies.items():
        where = f"candidates[{name!r}]"
        probs = read_action_probs(where, study.policy, mean, objective, space)
        steps = _steps(where, study, objective)
        if study.num_episodes * steps > MOST_TRANSITIONS:
            raise ValueError(
                f"{where} has {study.num_episodes} episodes of up to {steps} steps, expected at most "
                f"{MOST_TRANSITIONS:,} transitions in all: they are simulated one after the other"
            )
        designs[name] = Design(probs, jnp.asarray(study.num_episodes), jnp.asarray(steps))
    return designs


def _steps(where: str, study: PolicyStudy, objective: Objective) -> int:
    if not isinstance(objective, Episodic):
        if study.max_steps is None:
            raise ValueError(
                f"{where} has max_steps None, expected a number of steps after which an episode stops "
                f"({describe_objective(objective)})"
            )
        return study.max_steps
    if study.max_steps is not None and study.max_steps > objective.horizon:
        raise ValueError(f"{where} has max_steps {study.max_steps}, expected at most {objective.horizon}, the horizon")
    return study.max_steps or objective.horizon


def study_gains(
    keys: Key[Array, " D"],
    posterior: Updatable,
    objective: Objective,
    plan: Solution,
    start: Float[np.ndarray, " S"],
    designs: Mapping[str, Design],
    chunk: int,
) -> tuple[list[Float[np.ndarray, " D"]], float]:
    """Of each study what the best policy gains over the present plan after each of D data sets; the largest error."""
    number, gap, gains = len(keys), float(plan.gap), []
    with counter(number * len(designs)) as report:
        for design in designs.values():
            gain = np.zeros(number)
            for first in range(0, number, chunk):
                here = keys[(first + np.arange(chunk)) % number]
                means = _means_after(here, posterior, design, jnp.asarray(start))
                best, best_gap = map(np.asarray, _best_of(means, objective, plan, start))
                kept, kept_gap = map(np.asarray, _kept_of(means, objective, plan.policy, start))
                size, error = min(chunk, number - first), best_gap + kept_gap
                gain[first : first + size] = gain_of(best, kept, error, objective)[:size]
                gap = max(gap, float(error.max()))
                report(size)
            gains.append(gain)
    return gains, gap


@eqx.filter_jit
def _means_after(
    keys: Key[Array, " D"], posterior: Updatable, design: Design, start: Float[Array, " S"]
) -> MDP | SparseMDP:
    """The mean MDP after each data set; of the data themselves the sufficient statistics alone are held."""

    def one(key: PRNGKeyArray) -> MDP | SparseMDP:
        return without_illegal(_after_study(key, posterior, design, start).mean_mdp(), posterior.space)

    return jax.vmap(one, axis_name="data sets")(keys)


@eqx.filter_jit
def _best_of(
    means: MDP | SparseMDP, objective: Objective, plan: Solution, start: Float[AnyArray, " S"]
) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    return jax.vmap(lambda mean: best_value(mean, objective, plan, start))(means)


@eqx.filter_jit
def _kept_of(
    means: MDP | SparseMDP, objective: Objective, policy: Int[Array, "*H S"], start: Float[AnyArray, " S"]
) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    return jax.vmap(lambda mean: kept_value(mean, objective, policy, start))(means)


class _Run(eqx.Module):
    """Where the simulation of one data set stands: the posterior learns while the policy acts."""

    posterior: Updatable
    episode: Int[Array, ""]
    step: Int[Array, ""]
    state: Int[Array, ""]
    going: Int[Array, ""]
    """How many data sets are not complete."""


def _after_study(key: PRNGKeyArray, posterior: Updatable, design: Design, start: Float[Array, " S"]) -> Updatable:
    """The posterior after the data of one study. Traceable, inside a `vmap` over "data sets"."""
    key_part, key_rows, key_sites, key_steps = jax.random.split(key, 4)
    # The environment is one draw of the posterior, and all episodes take place in it.
    part = posterior.draw_component(key_part) if isinstance(posterior, Mixture) else posterior
    rows, rewards = part.transition_probs.sample(key_rows), part.reward_cells
    table = rewards.table_of(rewards.sample_sites(key_sites))
    learns, space = rewards.learns or laws_tell(posterior), posterior.space

    def first_state(episode: Array) -> Array:
        return jax.random.categorical(jax.random.fold_in(jax.random.fold_in(key_steps, episode), 0), jnp.log(start))

    def move(run: _Run) -> _Run:
        # Step t of episode e has the same random numbers in every study.
        key_now = jax.random.fold_in(jax.random.fold_in(key_steps, run.episode), run.step + 1)
        key_action, key_outcome, key_reward = jax.random.split(key_now, 3)
        probs = design.probs[run.step] if design.probs.ndim == 3 else design.probs
        action = jax.random.categorical(key_action, jnp.log(probs[run.state]))
        pair = (run.state, action)
        cell = pair if space.horizon is None else (run.step, *pair)
        outcome = jax.random.categorical(key_outcome, jnp.log(rows[cell]))
        next_state, ended = space.reached(cell, outcome)
        law = table.at(cell, outcome) if learns else jnp.zeros(())
        reward = law.sample(key_reward) if isinstance(law, Distribution) else law
        observed = Transitions(
            *pair,
            jnp.asarray(reward, float),
            next_state,
            ended if space.ends else None,
            step=None if space.horizon is None else run.step,
            reward_observed=jnp.asarray(learns),
        )
        # A data set that is complete goes on without learning, until all are.
        weight = jnp.where(run.episode < design.num_episodes, 1.0, 0.0)
        learnt = _like(run.posterior.update(observed, weight), run.posterior)
        over = (run.step + 1 >= design.max_steps) | ended
        episode = run.episode + over
        return _Run(
            learnt,
            episode,
            jnp.where(over, 0, run.step + 1),
            jnp.where(over, first_state(episode), next_state),
            # The same number for all data sets: the loop stays one loop, without a copy of what it carries.
            jax.lax.psum(jnp.where(episode < design.num_episodes, 1, 0), "data sets"),
        )

    zero = jnp.zeros((), int)
    begun = _Run(jax.tree.map(jnp.asarray, posterior), zero, zero, first_state(zero), jnp.ones((), int))
    return jax.lax.while_loop(lambda run: run.going > 0, move, begun).posterior


def _like(tree: Tree, other: Tree) -> Tree:
    """`tree` with the dtypes of `other`, as a loop must keep them; a leaf that is the same stays the same."""
    return jax.tree.map(lambda x, y: x if x is y else jnp.asarray(x, jnp.asarray(y).dtype), tree, other)
