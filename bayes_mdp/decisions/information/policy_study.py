"""`PolicyStudy`: data from episodes under a policy; what they would change, by simulation from the posterior itself."""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.decisions.information.data_sets import (
    Environment,
    Environments,
    Learning,
    MeanMDPs,
    Observations,
    joined,
)
from bayes_mdp.decisions.information.gain_over_plan import PresentPlan, chunk_of, counter
from bayes_mdp.decisions.policy_evaluation import describe_objective, read_action_probs
from bayes_mdp.inference.families.categorical import pick_category
from bayes_mdp.mdp import MDP, Episodic, Objective, Policy, PolicyOrLabels, SparseMDP, StateActionSpace
from bayes_mdp.mdp.by_label import is_by_label
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.validation import as_array, check_count, described

MOST_TRANSITIONS = 10**9  # of one study: more would take days
AT_ONCE = 2**17  # observations of all data sets that are held until they are learnt from


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


class Design(NamedTuple):
    """A study as numbers.

    Args:
        probs: action probabilities.
        num_episodes, max_steps: at most so many steps of each.
    """

    probs: Float[np.ndarray, "*H S A"]
    num_episodes: int
    max_steps: int


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
        designs[name] = Design(np.asarray(probs, np.float64), study.num_episodes, steps)
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
    key: PRNGKeyArray, means: MeanMDPs, plan: PresentPlan, designs: Mapping[str, Design], number: int
) -> tuple[list[Float[np.ndarray, " D"]], float]:
    """Of each study what the best policy gains over the present plan after each data set; the largest error.

    Args:
        key: of the data; studies have common random numbers.
        means: the mean MDPs.
        plan: the present one.
        designs: the studies.
        number: of data sets.
    """
    # Beside the mean MDP, statistics and an environment of the size of the posterior are held for each data set.
    width = sum(2 * group.concentration.size + 8 * group.reward_size for group in means.groups)
    chunk, gap, gains = chunk_of(means, number, width), 0.0, []
    with counter(number * len(designs)) as report:
        for design in designs.values():
            environments, gain = Environments(key, means, None), np.zeros(number)
            for first in range(0, number, chunk):
                part = slice(first, min(first + chunk, number))
                after = after_study(key, means, design, plan.start, environments.draw(part.stop - first), part, number)
                gain[part], error = plan.gain(after.drawn())
                gap = max(gap, error)
                report(part.stop - first)
            gains.append(gain)
    return gains, gap


def after_study(
    key: PRNGKeyArray,
    means: MeanMDPs,
    design: Design,
    start: Float[np.ndarray, " S"],
    environment: Environment,
    part: slice,
    number: int,
) -> Learning:
    """What is learnt from the data of one study, all episodes of a data set in one environment.

    Args:
        key: of the data.
        means: the mean MDPs.
        design: the study.
        start: distribution of the first state.
        environment: of the data sets.
        part: which these are, of all.
        number: of all data sets.
    """
    space, size = means.space, part.stop - part.start
    learning, waiting = Learning(means, None, size), list[Observations]()
    begin = np.broadcast_to(start, (size, len(start)))
    for episode in range(design.num_episodes):
        # Step t of episode e has the same random numbers in every study, and a data set in every block.
        uniforms = host_generator(jax.random.fold_in(key, episode))
        state, alive = pick_category(begin, uniforms.random(number)[part]), np.ones(size, bool)
        for step in range(design.max_steps):
            of_action, of_outcome, of_reward = uniforms.random((3, number))[:, part]
            policy = design.probs[step] if design.probs.ndim == 3 else design.probs
            pair = (state, pick_category(policy[state], of_action))
            cell = pair if space.horizon is None else (np.full(size, step), *pair)
            outcome = pick_category(environment.outcome_probs(cell), of_outcome)
            reward, seen = environment.rewards(
                cell, outcome[:, None], of_reward[:, None], episode * design.max_steps + step
            )
            observed = Observations(
                tuple(i[:, None] for i in cell), outcome[:, None], reward, seen, alive[:, None].astype(np.float64)
            )
            waiting.append(observed)
            if len(waiting) * size >= AT_ONCE:
                learning.observe(joined(waiting))
                waiting.clear()
            state, ended = map(np.asarray, space.reached(cell, outcome))
            # An episode that has ended goes on without being observed, until all have.
            alive &= ~ended
            if not alive.any():
                break
    if waiting:
        learning.observe(joined(waiting))
    return learning
