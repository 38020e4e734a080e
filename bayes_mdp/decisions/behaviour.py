# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""Policies to judge: `greedy` (the best in the mean MDP) and `behaviour_policy` (what the log did). Host-side.

`anchored_values` is the mean return of the log, plus what the posterior says that a policy gains over the behaviour.

What the behaviour is worth is known from its returns without any model. A prior that pulls values up or down does so
for the policy and for the behaviour alike, so that much of it cancels in the gain. Heuristic: the returns and the gain
are taken as independent, although both come from one log.
"""

import logging
from collections.abc import Mapping

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray
from scipy.special import ndtri

from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, best_in, optimum, policy_set
from bayes_mdp.decisions.policy_evaluation import policy_values
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    CanCount,
    CanMean,
    CanSample,
    Episodic,
    FirstExit,
    FoldedLog,
    Log,
    Objective,
    PolicyOrLabels,
    SparseMDP,
    StateActionSpace,
    Transitions,
)
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.data.log_split import returns_of
from bayes_mdp.mdp.labels import AS_LOGGED, STEP_LEVEL, LoggedPolicy, labels_of, logged_actions, policy_of, step_p_value
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.protocols import Posterior
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.planning.solution import Solution
from bayes_mdp.planning.solve import check_problem, refuse_improper
from bayes_mdp.utils.messages import amount, amounts, first_names
from bayes_mdp.utils.typing import InitialLike, IntScalar
from bayes_mdp.utils.validation import check_count, check_type

logger = logging.getLogger(__name__)


def greedy(posterior: CanMean, objective: Objective, *, limits: PolicyLimits | None = None) -> Int[np.ndarray, "*H S"]:
    """The optimal policy of the posterior mean MDP (certainty equivalence); of equal actions the first. Host-side.

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
        # Certainty equivalence: the posterior mean as if it were known.
        mdp = to_float64(posterior.mean_mdp())
    check_problem(mdp, objective)
    # Limits change the set of policies, not the MDP.
    if limits is not None:
        return _within(posterior, mdp, objective, limits)
    actions, solution = optimum(mdp, objective)
    if solution is not None:
        with jax.enable_x64(True):
            _require_solution(mdp, solution, objective)
    return actions


def _within(
    posterior: CanMean, mdp: MDP | SparseMDP, objective: Objective, limits: PolicyLimits
) -> Int[np.ndarray, "*H S"]:
    check_type("limits", limits, PolicyLimits, "PolicyLimits")
    pairs = mdp.reward.shape[-2:]
    # Under a horizon a policy has steps even if rows have none.
    shape = (objective.horizon, *pairs) if isinstance(objective, Episodic) else mdp.reward.shape
    counts = np.asarray(posterior.visit_counts()) if isinstance(posterior, CanCount) else None
    legal = None if mdp.legal is None else np.asarray(mdp.legal)
    return best_in(mdp, objective, policy_set(limits, legal, shape, counts, None))


def behaviour_policy(
    log: Log | FoldedLog | Transitions | CanCount,
    *,
    space: StateActionSpace | None = None,
    by_step: bool | IntScalar | None = None,
) -> Float[np.ndarray, "*H S A"]:
    """How often each action was taken in each state of the log: Float64[S A], or [H S A] by step; rows sum to one.

    A state that the log never left gets all (legal) actions equally, and is named in a warning of the logger. By step,
    a state that was not left at a step has there the actions of all steps.

    Where actions depend on the step of the episode, given the state (a score test of a linear trend, at level .01), one
    policy of all steps is a mixture that nobody followed. There is then another warning, and unless `by_step` is False
    what is returned is an array that knows its log: `policy_value`, `compare_policies` and `decide` follow the log
    by step under `Episodic`, and say so. A log in place of a policy does the same, and its frequencies are drawn (see
    `policy_value`); those of an array count as known.

    Args:
        log: see `read_log`; or transitions, with `space`; or a posterior, whose counts of the logs that it
            has learnt from are taken (earlier ones count less after `discount_data`).
        space: for its legal actions, its horizon, and its state "unseen" if it has one; of transitions also for the
            numbers of states and actions. None: that of the posterior; of a log all actions are legal.
        by_step: whether there is a policy for each step: as many as the horizon of the space, or else as the log has;
            or their number, that of `Episodic`. None: where the space has a horizon.

    Raises:
        TypeError: `log` is no `Log` and no posterior with counts and a space, or transitions without `space`.
        ValueError: `space` has other states or actions than the log, or cannot hold the transitions; the log has an
            action that is illegal there; it was folded without steps, or the posterior has none, and `by_step`.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": ["a", "a", "a", "b"], "a": ["x", "x", "y", "y"], "t": ["a", "a", "b", "b"]})
        >>> log = bm.read_log(table, state="s", action="a", next_state="t")
        >>> print(bm.behaviour_policy(log).round(3))
        [[0.667 0.333]
         [0.    1.   ]]
    """
    # A posterior that counts knows its space.
    space = labels_of(log) if space is None and isinstance(log, CanCount) else space
    if by_step is not None and not isinstance(by_step, bool):
        check_count("by_step", by_step)
    # Without a word about steps: stationary, but the answer remembers the log.
    remembers = by_step is None
    if by_step is None:
        by_step = space is not None and space.horizon is not None
    number: int | None = None if by_step is False else int(by_step)
    # By step as the space has steps, or as the episodes were.
    if by_step is True:
        number = AS_LOGGED if space is None or space.horizon is None else space.horizon
    probs, never = logged_actions(log, space, number)
    if never:
        states = first_names(never)
        logger.warning("behaviour_policy: all actions equally likely in states never visited: %s", states)
    # A score test of a trend in steps, given the state.
    p_value = 1.0 if probs.ndim == 3 or isinstance(log, CanCount) else step_p_value(log)
    if p_value > STEP_LEVEL:
        return probs
    logger.warning(
        "behaviour_policy: actions depend on the step of the episode, given the state (p = %.2g); a policy without "
        "steps is their mixture, not what the log did (by_step=True, for Episodic)",
        p_value,
    )
    # The caller said how; the warning is all.
    if not remembers:
        return probs
    # Labels for bare transitions, so that a policy knows its log.
    if isinstance(log, Transitions):
        assert space is not None  # `logged_actions` has looked
        log = Log(log, space.logged_states, space.action_names)
    assert isinstance(log, (Log, FoldedLog))
    return LoggedPolicy.of(probs, log)


def _require_solution(mdp: MDP | SparseMDP, solution: Solution, objective: Objective) -> None:
    """The checks that `solve` leaves out in a compiled program."""
    if isinstance(objective, FirstExit):
        # Values under an improper policy are infinite.
        refuse_improper(mdp, solution)
        # A proper policy that nothing improves is an answer, though cycles without reward leave its `gap` infinite.
        if not solution.converged:
            raise ValueError("greedy: policy iteration did not settle in the mean MDP, expected a best proper policy")
    if isinstance(objective, AverageReward) and not np.isfinite(solution.gap):
        raise ValueError(
            "greedy: no single gain was found in the mean MDP, expected one that does not depend on the start "
            "(AverageReward)"
        )


_BEHAVIOUR = "behaviour of the log"


class AnchoredValue(eqx.Module):
    """The value of a policy, anchored at the mean return of a log.

    Args:
        returns: mean return of the log's episodes.
        error: its standard error.
        num_episodes: whole episodes behind it.
        gain: Float64[num_draws], value of the policy less that of the behaviour, in the same draw.
    """

    returns: float
    error: float
    num_episodes: int = eqx.field(static=True)
    gain: Float[np.ndarray, " num_draws"]

    @classmethod
    def of(cls, gain: Float[np.ndarray, " num_draws"], returns: Float[np.ndarray, " episodes"]) -> "AnchoredValue":
        """From draws of the gain and the returns of the episodes.

        Args:
            gain: of each draw, over the behaviour of the log.
            returns: of each whole episode of the log.
        """
        # Episodes are independent: sd / sqrt(n).
        error = float(returns.std(ddof=1) / len(returns) ** 0.5)
        return cls(float(returns.mean()), error, len(returns), np.asarray(gain, np.float64))

    @property
    def mean(self) -> float:
        """Mean return plus mean gain."""
        return self.returns + float(self.gain.mean())

    @property
    def sd(self) -> float:
        """The root of the sum of the variances of both."""
        # Two independent parts: variances add.
        return float(np.hypot(self.error, self.gain.std(ddof=1)))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Central interval of a normal distribution with this mean and standard deviation.

        Args:
            level: probability inside, between 0 and 1.
        """
        # Normal quantile: half the width at this level.
        half = float(ndtri(0.5 + level / 2)) * self.sd
        return self.mean - half, self.mean + half

    def __str__(self) -> str:
        """One line."""
        low, high = self.interval()
        return (
            f"{amount(self.mean)}, 95 % interval {amounts(low, high)}: mean return {amount(self.returns)} "
            f"+- {amount(self.error, 2)} of {self.num_episodes:,} episodes, gain {amount(self.gain.mean(), 3)} "
            f"+- {amount(self.gain.std(ddof=1), 2)}"
        )


def anchored_values(
    key: PRNGKeyArray,
    posterior: Posterior,
    policies: Mapping[str, PolicyOrLabels],
    log: Log,
    objective: Objective,
    *,
    initial: InitialLike | None = None,
    num_draws: int = 400,
) -> dict[str, AnchoredValue]:
    """Values of policies as the mean return of the log plus the gain over what was done there. Host-side.

    Beside `policy_value`, not in its place: where the prior is right that one is the better answer; this one does not
    depend on what the prior does to the value of the behaviour. On ICU-Sepsis logs its 90 % intervals held the truth
    about as often as stated under `models.partial_pooling` (docs, "Decisions measured"), and not under priors that are
    far off.

    Args:
        key: of the draws.
        posterior: of the log, or of another part of it.
        policies: name -> policy, each as in `policy_value`.
        log: whole episodes, of one behaviour.
        objective: `Discounted`, `Episodic` or `FirstExit`.
        initial: distribution of the first state, as in `policy_value`; None: that of the log's episodes.
        num_draws: as in `policy_value`.

    Raises:
        ValueError: too few whole episodes, rewards that are missing, an objective without episodes; as `policy_value`.
        TypeError: as `policy_value`.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": "a", "a": ["x", "y"] * 10, "r": [0.0, 1.0] * 10, "t": "a", "end": True})
        >>> log = bm.read_log(table, state="s", action="a", reward="r", next_state="t", terminated="end")
        >>> space, prior = bm.StateActionSpace.from_log(log), bm.models.dirichlet_bernoulli()
        >>> posterior = bm.infer(jax.random.key(0), prior, log, space=space)
        >>> values = bm.decisions.anchored_values(
        ...     jax.random.key(1), posterior, {"always y": [1]}, log, bm.Episodic(1), num_draws=100
        ... )
        >>> values["always y"].returns  # mean return of the log: of x 0, of y 1
        0.5
    """
    check_type("log", log, Log, "a Log (see read_log)")
    check_type("policies", policies, Mapping, "name -> policy")
    check_objective(objective)
    require_ability(posterior, CanSample, "anchored_values")
    # Whole episodes only: a censored return is no return.
    returns = returns_of(log, objective)
    if isinstance(returns, str):
        raise ValueError(f"log has no mean return to anchor values at: {returns}")
    # What was done, not what staff would do again: the mean return has the same luck in its actions.
    compared = {_BEHAVIOUR: policy_of(log, labels_of(posterior), objective), **policies}
    values = policy_values(key, posterior, compared, objective, log if initial is None else initial, num_draws)
    # Draw by draw: what the prior does to both cancels in the difference.
    base = values[_BEHAVIOUR].draws
    return {name: AnchoredValue.of(values[name].draws - base, returns) for name in policies}
