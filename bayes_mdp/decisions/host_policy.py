"""A policy in one MDP, by NumPy: its time in each pair, and the values of all pairs."""

import numpy as np
from jaxtyping import Float

from bayes_mdp.decisions.backward_recursion import backward, episodic_occupancy, expected_values
from bayes_mdp.decisions.host_values import PolicyPairs, occupancy, solve
from bayes_mdp.inference.pair_draws import Drawn, PairRows
from bayes_mdp.mdp import AverageReward, Episodic, Objective
from bayes_mdp.mdp.objectives import step_discount


def pair_time(
    rows: PairRows,
    drawn: Drawn,
    policy: Float[np.ndarray, "*H S A"],
    objective: Objective,
    start: Float[np.ndarray, " S"],
) -> Float[np.ndarray, "*steps S A"]:
    """The time of a policy in each pair of one MDP, as `bayes_mdp.planning.occupancy`.

    Args:
        rows, drawn: its pairs, as one draw.
        policy: action probabilities.
        objective: of the values.
        start: distribution of the first state.
    """
    if isinstance(objective, Episodic):
        return episodic_occupancy(rows, drawn, policy, objective, start)[0]
    chains = PolicyPairs(rows, policy).chains(drawn)
    return occupancy(chains, objective, start)[0][:, None] * policy


def action_values(
    rows: PairRows, drawn: Drawn, policy: Float[np.ndarray, "*H S A"], objective: Objective
) -> Float[np.ndarray, "*steps S A"]:
    """The values of all pairs of one MDP under a policy (`AverageReward`: but for a constant); nan: there is no pair.

    Args:
        rows, drawn: its pairs, as one draw.
        policy: action probabilities.
        objective: of the values.
    """
    if isinstance(objective, Episodic):
        q = np.full((objective.horizon, *policy.shape[-2:]), np.nan)
        for i, step in enumerate(backward(rows, drawn, policy, objective)):
            q[objective.horizon - 1 - i, step.rows.state, step.rows.action] = step.q[0]
        return q
    chains = PolicyPairs(rows, policy).chains(drawn)
    rate = float(step_discount(objective))
    values = solve(chains, rate, chains.reward, anchored=isinstance(objective, AverageReward))
    q = np.full(policy.shape, np.nan)
    later = np.append(values, np.zeros((1, 1)), -1)
    q[rows.state, rows.action] = (drawn.reward + rate * expected_values(rows, drawn.probs, later))[0]
    return q


def policy_mean(
    policy: Float[np.ndarray, "*H S A"], q: Float[np.ndarray, "*steps S A"]
) -> Float[np.ndarray, "*steps S"]:
    """sum over the actions that a policy takes of probability times value."""
    return np.where(policy > 0, policy * np.where(policy > 0, q, 0.0), 0.0).sum(-1)
