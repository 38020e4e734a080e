"""The mean MDP of a belief, one step (layer) of an episode at a time: the model in which optimistic agents plan."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, CanExpectNext, CanMean, Episodic, Objective, Problem, SparseMDP
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.objectives import require_undiscounted
from bayes_mdp.planning import solve
from bayes_mdp.planning.solution import Solution
from bayes_mdp.utils.typing import IntScalar

Layer = Callable[[IntScalar, Float[Array, " S"]], Float[Array, "S A"]]
"""One backup: (step, values [S] of the next states) -> q [S A] of the step."""


class MeanModel(eqx.Module):
    """Posterior means of an episode of `horizon` steps, layer by layer.

    Args:
        reward: [*H S A], mean rewards.
        source: what applies the mean rows to values: a belief with `expected_next`, or its mean MDP.
        legal: Bool[S A], or None.
        horizon: H, number of steps.
    """

    reward: Float[Array, "*H S A"]
    source: CanExpectNext | MDP | SparseMDP
    legal: Bool[Array, "S A"] | None
    horizon: int = eqx.field(static=True)

    def at(self, table: Float[Array, "*H S A"], layer: IntScalar) -> Float[Array, "S A"]:
        """A table of pairs at one step (itself where it does not depend on the step).

        Args:
            table: of pairs, in any unit.
            layer: step of the episode, from 0.
        """
        return table if table.ndim == 2 else table[layer]

    def expected_next(self, values: Float[Array, " S"], layer: IntScalar) -> Float[Array, "S A"]:
        """sum_s' E[P(s' | s, a)] values(s') at one step; the value after an end is zero."""
        if isinstance(self.source, (MDP, SparseMDP)):
            return self.source.at(layer).expected_next(values)
        return self.source.expected_next(values, layer)

    def action_values(self, layer: IntScalar, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """reward + E values(next) at one step.

        Args:
            layer: step of the episode, from 0.
            values: of the next states.
        """
        return self.at(self.reward, layer) + self.expected_next(values, layer)

    def backward(
        self, backup: Layer, value: Callable[[Float[Array, "S A"]], Float[Array, " S"]] | None = None
    ) -> Float[Array, "H S A"]:
        """q of every step, from the last to the first: q_h = backup(h, v_{h+1}), v_h = value(q_h), v_H = 0.

        Args:
            backup: (step, values of the next states) -> q of the step; illegal actions become -inf afterwards.
            value: q [S A] -> v [S]; None: the maximum over actions.
        """
        value_of = value or (lambda q: jnp.max(q, -1))

        def step(values: Float[Array, " S"], layer: IntScalar) -> tuple[Float[Array, " S"], Float[Array, "S A"]]:
            q = backup(layer, values)
            q = q if self.legal is None else jnp.where(self.legal, q, -jnp.inf)
            return value_of(q), q

        end = jnp.zeros(self.reward.shape[-2], self.reward.dtype)
        return lax.scan(step, end, jnp.arange(self.horizon), reverse=True)[1]


def mean_model(belief: CanMean, objective: Objective, who: str) -> MeanModel:
    """The mean model of a belief for episodes. Traceable; mean rows are not built where the belief can apply them.

    Args:
        belief: with a mean; with a step axis or without (rows shared by all steps).
        objective: `Episodic`.
        who: the caller, for the messages: "UCBVI".

    Raises:
        TypeError: the belief has no mean. ValueError: another objective, or discounted episodes.
    """
    require_ability(belief, CanMean, who)
    if not isinstance(objective, Episodic):
        raise ValueError(f"objective is {type(objective).__name__}, expected Episodic for {who}")
    require_undiscounted(objective, who)
    mean = belief.mean_mdp()  # under `jit` only the rewards of it are computed where `source` is the belief
    source = belief if isinstance(belief, CanExpectNext) else mean
    legal = None if mean.legal is None else jnp.asarray(mean.legal)
    return MeanModel(mean.reward, source, legal, objective.horizon)


def no_plan(problem: Problem) -> Solution | None:
    """The state before any plan: None for episodes, which need no warm start.

    Args:
        problem: sizes, legal actions and objective.
    """
    if isinstance(problem.objective, Episodic):
        return None
    return Solution.blank(problem.space.shape, legal=problem.space.legal)


def plan_for_rewards(
    belief: CanMean,
    problem: Problem,
    rewards: Callable[[Float[Array, "*H S A"]], Float[Array, "*H S A"]],
    start: Solution | None,
    who: str,
) -> tuple[Float[Array, "*H S A"], Int[Array, "*H S"] | None, Solution | None]:
    """The optimal plan of the mean MDP with other rewards: q, its actions (None: the best of q), the state to keep.

    Args:
        belief: with a mean.
        problem: episodes are planned for layer by layer, other objectives by `planning.solve`.
        rewards: the mean rewards -> those to plan for, [*H S A].
        start: the last plan.
        who: the caller, for the messages.

    Raises:
        TypeError: the belief has no mean. ValueError: as `planning.solve`.
    """
    objective = problem.objective
    if isinstance(objective, Episodic):
        # Backward induction is exact: no plan to start from, no state to keep.
        model = mean_model(belief, objective, who)
        model = eqx.tree_at(lambda m: m.reward, model, jnp.asarray(rewards(model.reward), model.reward.dtype))
        return model.backward(model.action_values), None, None
    mean = belief.mean_mdp()
    changed = eqx.tree_at(lambda m: m.reward, mean, jnp.asarray(rewards(mean.reward), mean.reward.dtype))
    solution = solve(changed, objective, start=start)
    return solution.q, solution.policy, solution
