"""Policies to judge: `greedy` (the best in the mean MDP) and `behaviour_policy` (what the log did). Host-side."""

import logging

import jax
import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.decisions.choosing.mean_plan import best_in, optimum
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, policy_set
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    CanCount,
    CanMean,
    Episodic,
    FirstExit,
    FoldedLog,
    Log,
    Objective,
    SparseMDP,
    StateActionSpace,
    Transitions,
    check_transitions,
)
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.labels import labels_of
from bayes_mdp.mdp.space import check_space
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.planning import Solution
from bayes_mdp.planning.solve import check_problem, refuse_improper
from bayes_mdp.utils.typing import Names
from bayes_mdp.utils.validation import check_labels, check_type, first_index

SHOWN = 10

logger = logging.getLogger(__name__)


def greedy(posterior: CanMean, objective: Objective, *, limits: PolicyLimits | None = None) -> Int[np.ndarray, "*H S"]:
    """The optimal policy of the posterior mean MDP (certainty equivalence), of equal actions the first. Host-side, in
    float64.

    Args:
        posterior: with a mean.
        objective: of the policy.
        limits: which policies may be taken; those that need no baseline.

    Raises:
        TypeError: the posterior has no `mean_mdp`.
        ValueError: the objective does not fit the mean MDP (see `solve`): an MDP that can end with `AverageReward`
            (see `restart_at_ends`), one without a proper policy with `FirstExit`; no optimal policy was found.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> data = bm.Transitions([0] * 4, [0, 1, 0, 1], [0.0, 1.0, 0.0, 1.0], [0] * 4)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> bm.greedy(posterior, bm.Discounted(0.9)).tolist()
        [1]
    """
    require_ability(posterior, CanMean, "greedy")
    with jax.enable_x64(True):
        mdp = to_float64(posterior.mean_mdp())
    check_problem(mdp, objective)
    if limits is not None:
        return _within(posterior, mdp, objective, limits)
    actions, solution = optimum(mdp, objective)
    if solution is not None:
        with jax.enable_x64(True):
            _require_solved(mdp, solution, objective)
    return actions


def _within(
    posterior: CanMean, mdp: MDP | SparseMDP, objective: Objective, limits: PolicyLimits
) -> Int[np.ndarray, "*H S"]:
    check_type("limits", limits, PolicyLimits, "PolicyLimits")
    pairs = mdp.reward.shape[-2:]
    shape = (objective.horizon, *pairs) if isinstance(objective, Episodic) else mdp.reward.shape
    counts = np.asarray(posterior.visit_counts()) if isinstance(posterior, CanCount) else None
    legal = None if mdp.legal is None else np.asarray(mdp.legal)
    return best_in(mdp, objective, policy_set(limits, legal, shape, counts, None))


def behaviour_policy(
    log: Log | FoldedLog | Transitions | CanCount, *, space: StateActionSpace | None = None
) -> Float[np.ndarray, "S A"]:
    """How often each action was taken in each state of the log: Float64[S A], rows sum to one.

    A state that the log never left gets all (legal) actions equally, and is named in a warning of the logger.

    Args:
        log: see `read_log`, `fold_log`; or transitions, with `space`; or a posterior, whose counts of the logs that it
            has learnt from are taken (earlier ones count less after `discount_data`).
        space: for its legal actions, and its state "unseen" if it has one; of transitions also for the numbers of
            states and actions. None: that of the posterior; of a log all actions are legal.

    Raises:
        TypeError: `log` is no `Log` and no posterior with counts and a space, or transitions without `space`.
        ValueError: `space` has other states or actions than the log, or cannot hold the transitions; the log has an
            action that is illegal there.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": ["a", "a", "a", "b"], "a": ["x", "x", "y", "y"], "t": ["a", "a", "b", "b"]})
        >>> log = bm.read_log(table, state="s", action="a", next_state="t")
        >>> print(bm.behaviour_policy(log).round(3))
        [[0.667 0.333]
         [0.    1.   ]]
    """
    if space is None and isinstance(log, CanCount):
        space = labels_of(log)
    states, actions = _names(log, space)
    names = states if space is None else space.state_names  # with "unseen", where the space has it
    counts = np.zeros((len(names), len(actions)))
    if isinstance(log, FoldedLog):
        np.add.at(counts, (log.cells.where.state, log.cells.where.action), log.cells.count)
    elif isinstance(log, CanCount):
        counts += np.asarray(log.visit_counts(), np.float64).reshape(-1, *counts.shape).sum(0)
    else:
        data = log.transitions if isinstance(log, Log) else log
        np.add.at(counts, (np.asarray(data.state), np.asarray(data.action)), 1.0)
    left = counts.sum(-1) == 0
    counts[left] = 1.0 if space is None or space.legal is None else space.legal[left]
    if left[: len(states)].any():
        never = [str(names[s]) for s in np.flatnonzero(left[: len(states)])]
        more = f" and {len(never) - SHOWN} more" if len(never) > SHOWN else ""
        logger.warning(
            "behaviour_policy: all actions equally likely in states never visited: %s%s", ", ".join(never[:SHOWN]), more
        )
    return counts / counts.sum(-1, keepdims=True)


def _names(log: object, space: StateActionSpace | None) -> tuple[Names, Names]:
    """The states and actions of a log, which must be those of the space, or those of the space of transitions."""
    if space is not None:
        check_space(space)
    if isinstance(log, Transitions):
        if space is None:
            raise TypeError(
                "log is Transitions without space, expected space=, which says how many states and actions there are, "
                "or a Log (see read_log)"
            )
        check_transitions(log, space)
        return space.logged_states, space.action_names
    if isinstance(log, CanCount) and space is not None:
        own = labels_of(log)
        if own is not None:
            check_labels("log.states", own.state_names, space.state_names)
            check_labels("log.actions", own.action_names, space.action_names)
        return space.logged_states, space.action_names
    if not isinstance(log, (Log, FoldedLog)):
        raise TypeError(f"log is a {type(log).__name__}, expected a Log (see read_log), or Transitions with space=")
    if space is not None:
        check_labels("log.states", log.states, space.logged_states)
        check_labels("log.actions", log.actions, space.action_names)
        log.check(space) if isinstance(log, FoldedLog) else _refuse_illegal(log, space)
    return log.states, log.actions


def _require_solved(mdp: MDP | SparseMDP, solution: Solution, objective: Objective) -> None:
    """The checks that `solve` leaves out in a compiled program."""
    if isinstance(objective, FirstExit):
        refuse_improper(mdp, solution)
        # A proper policy that nothing improves is an answer, though cycles without reward leave its `gap` infinite.
        if not solution.converged:
            raise ValueError("greedy: policy iteration did not settle in the mean MDP, expected a best proper policy")
    if isinstance(objective, AverageReward) and not np.isfinite(solution.gap):
        raise ValueError(
            "greedy: no single gain was found in the mean MDP, expected one that does not depend on the start "
            "(AverageReward)"
        )


def _refuse_illegal(log: Log, space: StateActionSpace) -> None:
    state, action = np.asarray(log.transitions.state), np.asarray(log.transitions.action)
    row = None if space.legal is None else first_index(~space.legal[state, action])
    if row is not None:
        name, where = log.actions[action[row]], log.states[state[row]]
        raise ValueError(
            f"log.transitions.action[{row[0]}] is {name!r}, expected an action that is legal in state {where!r}"
        )
