"""Bayesian Q-learning (Dearden, Friedman and Russell 1998; [BMRL19])."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.common.learner import place_of, table_shape
from bayes_mdp.agents.common.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import TablePolicy
from bayes_mdp.agents.model_free.return_policies import GreedyReturn, MyopicVPI, StudentTThompson
from bayes_mdp.inference.value import ReturnBelief, mixture_update, moment_update, target
from bayes_mdp.mdp import Problem, Transitions
from bayes_mdp.planning.solution import best_action
from bayes_mdp.utils.typing import RealLike, Scalar
from bayes_mdp.utils.validation import check_finite, check_name, check_positive, check_that, is_concrete

_UPDATES = {"mixture": mixture_update, "moment": moment_update}
_CHOICES = ("thompson", "per_plan", "vpi", "greedy")


class BQL(eqx.Module):
    """Bayesian Q-learning. It carries its own belief: a normal-gamma law of the optimal return of every pair.

    The law is that of the mean and the precision of the return.

    After (s, a, r, s') the return is r + discount R', R' the predictive return of the pair (s', a') whose expected
    return is the largest; nothing follows an end. Under `Episodic(H)` the tables have a step axis, R' of step h is
    taken from step h + 1, and nothing follows step H. A policy has `q`, `sd` (the standard deviation of q) and `vpi`.

    The probabilities of "thompson" are integrals, about .1 ms for a state of two actions: regret "objective" in a run
    computes them for all states and steps at every plan. Long runs ask for regret "average", or for
    `replan="episode"`.

    Args:
        update: "mixture", the normal-gamma law nearest to the mixture over R'; "moment", the first two moments of R'
            count as one observed return (overconfident; the concentration must exceed 1).
        choose: "thompson", the best action of a draw of the mean returns, drawn anew at every step; "per_plan", the
            same, drawn once per plan (with `replan` of many steps); "vpi", expected return plus myopic value
            of perfect information; "greedy", the largest expected return.
        loc, pseudo_count, concentration, rate: of the prior, numbers or arrays that broadcast to [*H S A]; `loc` in
            units of the reward, `rate` in their square. The default is that of [BMRL19].
        replan: when the policy is updated; every step by default.

    Raises:
        ValueError: an unknown option, parameters that are no prior (or too wide for `update` or `choose`).
        TypeError: no number, no rule of replanning.
    """

    update: str = eqx.field(default="mixture", static=True)
    choose: str = eqx.field(default="thompson", static=True)
    loc: RealLike = 0.0
    pseudo_count: RealLike = 4.0
    concentration: RealLike = 3.0
    rate: RealLike = 3.0
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule)

    def __check_init__(self) -> None:
        for name, words in (("update", tuple(_UPDATES)), ("choose", _CHOICES)):
            check_name(name, getattr(self, name), words)
        for name in ("loc", "pseudo_count", "concentration", "rate"):
            if is_concrete(getattr(self, name)):
                (check_finite if name == "loc" else check_positive)(name, getattr(self, name))
        least = max(1.0 if self.update == "moment" else 0.0, 0.5 if self.choose in ("vpi", "thompson") else 0.0)
        # The probabilities of "thompson" are right from 1/2 on, the worth of "vpi" is finite beyond 1/2.
        included = least == 0.5 and self.choose == "thompson"
        expected = f"{'at least' if included else 'more than'} {least} for {self.update!r} and {self.choose!r}"
        holds = (lambda x: x >= least) if included else (lambda x: x > least)
        check_that("concentration", self.concentration, holds, expected)

    def init(self, key: PRNGKeyArray, problem: Problem) -> ReturnBelief:
        """The prior of every pair; loc is -inf where an action is illegal.

        Raises:
            ValueError: the objective is the average reward, for which a return is not defined; a prior whose shape
                does not broadcast to that of the pairs.
        """
        del key
        shape = table_shape(problem, "BQL")
        prior = ReturnBelief(
            *(self._prior_table(name, shape) for name in ("loc", "pseudo_count", "concentration", "rate"))
        )
        legal = problem.space.legal
        return prior if legal is None else eqx.tree_at(lambda b: b.loc, prior, jnp.where(legal, prior.loc, -jnp.inf))

    def _prior_table(self, name: str, shape: tuple[int, ...]) -> Float[Array, "*H S A"]:
        value = jnp.asarray(getattr(self, name), dtype=float)
        if value.ndim > len(shape) or any(
            a not in (1, b) for a, b in zip(value.shape[::-1], shape[::-1], strict=False)
        ):
            raise ValueError(f"{name} has shape {value.shape}, expected one that broadcasts to {shape} (pairs)")
        return jnp.broadcast_to(value, shape)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: ReturnBelief, belief: object = None
    ) -> tuple[TablePolicy, ReturnBelief]:
        """The policy for the belief in `state`, which is unchanged."""
        del problem, belief
        if self.choose == "greedy":
            return GreedyReturn(state), state
        if self.choose == "vpi":
            return MyopicVPI(state), state
        policy = StudentTThompson(state)
        return policy.hold(key) if self.choose == "per_plan" else policy, state

    def observe(
        self, problem: Problem, state: ReturnBelief, transition: Transitions, weight: Scalar = 1.0
    ) -> ReturnBelief:
        """The belief after one transition; unchanged where `weight` is 0 (another weight counts as one)."""
        here, there, over, discount = place_of(problem, transition)
        best = (*there, best_action(state.loc[there]))
        # R' is the predictive return of the pair of the largest expected return in the next state.
        own, next_belief = (jax.tree.map(lambda table, at=at: table[at], state) for at in (here, best))
        updated = _UPDATES[self.update](own, target(jnp.asarray(transition.reward), discount, next_belief, over))
        return jax.tree.map(
            lambda table, old, new: table.at[here].set(jnp.where(weight == 0, old, new).astype(table.dtype)),
            state,
            own,
            updated,
        )
