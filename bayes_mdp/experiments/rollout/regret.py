"""Regret: what is lost against an optimal policy of the true MDP, in the four definitions of `run`."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bayes_mdp.agents import Greedy
from bayes_mdp.decisions.host_optima import improved_policies
from bayes_mdp.experiments.rollout.simulator import Segment
from bayes_mdp.inference.pair_draws import pairs_of_mdp
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    Discounted,
    Episodic,
    Objective,
    PolicyLike,
    SparseMDP,
    restart_at_ends,
)
from bayes_mdp.mdp.objectives import check_fit
from bayes_mdp.numerics.array_forms import place_as, to_float64
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning import evaluate, solve
from bayes_mdp.planning.solution import Solution
from bayes_mdp.utils.typing import AnyArray


class Truth(eqx.Module):
    """The true MDP for the regret; nothing but None where no plan is evaluated.

    Args:
        mdp: the true MDP (or a batch of them, an axis N in front).
        optimal: Float[*H S], optimal values.
        initial: Float[S], distribution of the first state.
        advantage: Float[*H S A], Q* - V*: what is lost by one action (-inf: it is illegal).
    """

    mdp: MDP | SparseMDP | None = None
    optimal: Float[Array, "*H S"] | None = None
    initial: Float[AnyArray, "*N S"] | None = None
    advantage: Float[AnyArray, "*H S A"] | None = None

    def value(self, policy: PolicyLike, objective: Objective) -> Float[Array, "*H S"]:
        """The value of a policy in the true MDP, exact."""
        # A greedy policy is given by its table of actions, which is evaluated without a row of probabilities.
        assert self.mdp is not None
        followed = policy.best if isinstance(policy, Greedy) else policy
        return evaluate(self.mdp, followed, objective).v

    def regret(
        self, old: Float[AnyArray, "*H S"], new: Float[AnyArray, "*H S"], block: Segment, episodic: bool
    ) -> Float[Array, ""]:
        """The regret of a segment played under a policy of value `new`, after one of value `old`.

        Discounted: the sum over its steps of V*(s) - V(s). Episodic: V* - V at the initial distribution where the
        segment begins an episode; later, what the change of policy lost at the state where it happened: summed over an
        episode the differences telescope to the regret of the mixed policy, in expectation.

        Args:
            old, new: Float[*H S], values of the policies in the true MDP.
            block: the steps of the segment.
            episodic: whether rows are episodes.
        """
        assert self.optimal is not None and self.initial is not None
        if not episodic:
            # sum over steps of V*(s_t) - V_pi(s_t): the regret of the policy in the states that were met.
            gap = (self.optimal - new)[block.state]
            return jnp.sum(gap if block.live is None else jnp.where(block.live, gap, 0.0))
        step, state = block.step[0], block.state[0]
        # What remains of the episode is worth, under the old plan, less what it is worth under the new one.
        lost = (old - new)[step, state]
        if block.live is not None:
            lost = jnp.where(block.live[0], lost, 0.0)
        # A change of plan within an episode counts from the present state on; the first plan from the first state.
        return jnp.where(step == 0, matmul(self.initial, (self.optimal - new)[0]), lost)

    def lost_by_actions(self, block: Segment) -> Float[Array, ""]:
        """The sum over the steps of a segment of V*(s) - Q*(s, a), a the action taken.

        Under `Episodic` its expectation over an episode is V* - V of what was played, whatever it depends on (Kakade
        and Langford 2002, lemma 6.1).
        """
        assert self.advantage is not None
        cell = (block.step, block.state, block.action)[-self.advantage.ndim :]
        lost = -self.advantage[cell]
        return jnp.sum(lost if block.live is None else jnp.where(block.live, lost, 0.0))


class Plan(NamedTuple):
    """An optimal plan of the true MDP, or one of each of a batch, as NumPy arrays.

    Args:
        q, v: values of the pairs (-inf: illegal) and of the states; `AverageReward`: but for a constant.
        policy: the best actions.
        gain: of `AverageReward`.
        gap: bound on the numerical error; infinite where nothing is proven.
    """

    q: Float[np.ndarray, "... S A"]
    v: Float[np.ndarray, "... S"]
    policy: Int[np.ndarray, "... S"]
    gain: Float[np.ndarray, "*N"]
    gap: Float[np.ndarray, "*N"]


def optimal_plan(mdp: MDP | SparseMDP, objective: Objective, *, batched: bool = False) -> Plan:
    """An optimal plan of the true MDP, in float64: by NumPy; of a batch, or where that does not settle it, by JAX."""
    if not batched and isinstance(objective, (Discounted, Episodic, AverageReward)):
        check_fit(objective, mdp.reward.shape)
        rows, drawn = pairs_of_mdp(mdp)
        best = improved_policies(rows, drawn, objective)
        if np.isfinite(best.values.gap[0]):
            q = best.table(rows, mdp.n_actions)[0]
            gain = best.values.first[0, 0] if isinstance(objective, AverageReward) else np.nan
            return Plan(q, q.max(-1), q.argmax(-1), np.asarray(gain), np.asarray(best.values.gap[0]))
    answer = solve_in_float64(mdp, objective, batched=batched)
    return Plan(*map(np.asarray, (answer.q, answer.v, answer.policy, answer.gain, answer.gap)))


def solve_in_float64(mdp: MDP | SparseMDP, objective: Objective, *, batched: bool = False) -> Solution:
    """What `solve` says of the true MDP (of each of a batch), computed in float64, as NumPy arrays."""
    with jax.enable_x64(True):
        exact = to_float64((mdp, objective))
        return jax.device_get((_solve_all if batched else _solve_one)(*exact))


_solve_one = jax.jit(solve)
_solve_all = jax.jit(jax.vmap(solve, in_axes=(0, None)))


def truth_of(mdp: MDP | SparseMDP, objective: Objective, *, batched: bool = False, by_action: bool = False) -> Truth:
    """The truth, for the loop to evaluate plans with; `by_action`: to judge single actions with."""
    best = optimal_plan(mdp, objective, batched=batched)
    optimal = place_as(best.v, float)
    # Q* - V* is 0 for the best action and negative for the others.
    advantage = place_as(np.asarray(best.q) - np.asarray(best.v)[..., None], float) if by_action else None
    return Truth(mdp, optimal, mdp.initial, advantage)


def optimal_rate(mdp: MDP | SparseMDP, objective: Objective, *, batched: bool = False) -> Float[np.ndarray, "*N"]:
    """Expected reward of an optimal policy: of an episode under `Episodic`, else of a step in the long run (the gain).

    Raises:
        ValueError: the gain depends on the first state.
    """
    initial = np.asarray(mdp.initial, np.float64)
    if isinstance(objective, Episodic):
        values = optimal_plan(mdp, objective, batched=batched).v[..., 0, :]
        return np.asarray(np.einsum("...s,...s->...", values, initial))
    # In the long run an end is a transition to a new first state; the gain of that MDP is the optimal rate.
    restart = jax.vmap(restart_at_ends) if batched else restart_at_ends
    best = optimal_plan(restart(mdp), AverageReward(), batched=batched)
    if not np.all(np.isfinite(best.gap)):
        raise ValueError("regret needs the optimal gain, which depends on the first state here: expected 'oracle_run'")
    return np.asarray(best.gain)
