"""Bayesian Q-learning (Dearden, Friedman and Russell 1998; [BMRL19]): a normal-gamma belief about every return.

Its policies: Q-value sampling, myopic value of perfect information, greedy. Each has the belief, `q`, its standard
deviation `sd`, and `vpi`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.learner import place_of, table_shape
from bayes_mdp.agents.common.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import TablePolicy, lookup
from bayes_mdp.inference.value.returns import (
    ReturnBelief,
    mixture_update,
    moment_update,
    target,
    value_of_perfect_information,
)
from bayes_mdp.inference.value.student_t import (
    StudentT,
    cdf_from_table,
    standard_draws,
    standard_pdf,
    tail_edge,
    tail_table,
)
from bayes_mdp.mdp import Problem, Transitions
from bayes_mdp.planning.solution import best_action, where_legal
from bayes_mdp.renamed import old_attribute
from bayes_mdp.utils.typing import IntScalar, RealLike, Scalar
from bayes_mdp.utils.validation import check_finite, check_name, check_positive, check_that

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
            (check_finite if name == "loc" else check_positive)(name, getattr(self, name))
        # Moments of the normal-gamma law that the update or the policy needs exist from these concentrations on.
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
        return eqx.tree_at(lambda b: b.loc, prior, where_legal(jnp.asarray(prior.loc), problem.space.legal))

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
        # Three rules for one belief: its mean, its mean plus VPI, a draw.
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
        pair, next_row, ended, discount = place_of(problem, transition)
        best = (*next_row, best_action(state.loc[next_row]))
        # R' is the predictive return of the pair of the largest expected return in the next state.
        pair_belief, next_belief = (
            jax.tree.map(lambda table, index=index: table[index], state) for index in (pair, best)
        )
        # The projection of the mixed posterior back to a normal-gamma law ([BMRL19]; `update`).
        updated = _UPDATES[self.update](
            pair_belief, target(jnp.asarray(transition.reward), discount, next_belief, ended)
        )
        return jax.tree.map(
            lambda table, old, new: table.at[pair].set(jnp.where(weight == 0, old, new).astype(table.dtype)),
            state,
            pair_belief,
            updated,
        )


_RULES = {"float32": np.polynomial.legendre.leggauss(8), "float64": np.polynomial.legendre.leggauss(24)}
_KINKS = np.array([0.0, 1.0, 2.0, 4.0, 8.0, 64.0, 4096.0])
_NUM_PIECES = 16


class _OverReturns(TablePolicy):
    """Base of the policies: a belief [*H S A] about the mean returns, loc -inf where an action is illegal."""

    belief: ReturnBelief

    @property
    def q(self) -> Float[Array, "*H S A"]:
        """Expected mean return."""
        return jnp.asarray(self.belief.mean())

    @property
    def sd(self) -> Float[Array, "*H S A"]:
        """Standard deviation of the mean return; inf where it does not exist."""
        return jnp.sqrt(self.belief.variance())

    vpi = old_attribute(
        "policy.vpi is value_of_perfect_information(policy.belief)",
        lambda self: value_of_perfect_information(self.belief),
    )

    def _here(self, state: IntScalar, step: IntScalar) -> ReturnBelief:
        return jax.tree.map(lambda table: lookup(table, 1, state, step), self.belief)


class GreedyReturn(_OverReturns):
    """The action of the largest expected return; ties go to the first."""

    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar = 0) -> Int[Array, ""]:
        """The best action (no random number is used)."""
        del key
        return best_action(self._here(state, step).loc)

    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar = 0) -> Float[Array, ""]:
        """0 for the best action, else -inf."""
        return _certain(action, best_action(self._here(state, step).loc), self.belief.loc.dtype)


class MyopicVPI(_OverReturns):
    """The action of the largest expected return plus value of perfect information; ties go to the first."""

    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar = 0) -> Int[Array, ""]:
        """The best action (no random number is used)."""
        del key
        return self._best(state, step)

    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar = 0) -> Float[Array, ""]:
        """0 for the best action, else -inf."""
        return _certain(action, self._best(state, step), self.belief.loc.dtype)

    def _best(self, state: IntScalar, step: IntScalar) -> Int[Array, ""]:
        belief = self._here(state, step)
        return best_action(belief.loc + value_of_perfect_information(belief))


class StudentTThompson(_OverReturns):
    """The best action of a draw of the mean returns of a state: a new draw each step, or one per plan (`hold`).

    Given the object, `act` draws from exp(log_prob): with `noise` the policy is deterministic.

    Args:
        belief: [*H S A].
        noise: Float[*H S A], standard Student-t draws kept for the plan, or None: new ones each step.
    """

    noise: Float[Array, "*H S A"] | None = None

    def hold(self, key: PRNGKeyArray) -> "StudentTThompson":
        """The same policy with one draw of every mean return, kept from now on.

        Args:
            key: of the draw.
        """
        # One standard draw for each pair, scaled by the belief when it is asked for.
        return StudentTThompson(self.belief, standard_draws(key, self.belief.of_mean().dof))

    def draw(self, key: PRNGKeyArray | None, state: IntScalar, step: IntScalar = 0) -> Float[Array, " A"]:
        """A draw of the mean returns of the actions in `state` at `step`, or the kept one.

        Args:
            key: of the draw; not used where one is kept.
        """
        # The marginal of a normal-gamma law for the mean is a Student-t.
        law = self._here(state, step).of_mean()
        if self.noise is not None:
            return jnp.asarray(law.loc + law.scale * lookup(self.noise, 1, state, step))
        assert key is not None  # only a policy with noise is called without a key
        return law.sample(key)

    def act(self, key: PRNGKeyArray, state: IntScalar, step: IntScalar = 0) -> Int[Array, ""]:
        """The best action of the draw; ties go to the first."""
        return best_action(self.draw(key, state, step))

    def log_prob(self, state: IntScalar, action: IntScalar, step: IntScalar = 0) -> Float[Array, ""]:
        """Log-probability that `action` is the best of a draw. With `noise`: 0 or -inf.

        Quadrature, absolute error of the probability below 1e-5 in float32 and 1e-8 in float64, for concentrations of
        1/2 or more (`BQL` refuses others).
        """
        if self.noise is not None:
            return _certain(action, best_action(self.draw(None, state, step)), self.noise.dtype)
        return jnp.log(prob_best_student_t(self._here(state, step).of_mean(), action))


def _certain(action: IntScalar, best: IntScalar, dtype: DTypeLike) -> Float[Array, ""]:
    return jnp.where(action == best, 0.0, -jnp.inf).astype(dtype)


def prob_best_student_t(law: StudentT, action: IntScalar) -> Float[Array, ""]:
    """P(argmax = action) of independent Student-t numbers [A]: int f_a(x) prod_b P(X_b <= x) dx.

    Gauss-Legendre in the arsinh of the own standard draw, on pieces that resolve every factor. An action of scale 0 is
    a known number (the first of equal ones wins), one of loc -inf never wins.

    Args:
        law: of every action; degrees of freedom of 1 or more.
        action: index of the action.
    """
    number = jnp.arange(law.loc.shape[-1])
    is_other = (number != action) & (law.loc > -jnp.inf)
    known, width = law.scale == 0, jnp.where(law.scale == 0, 1.0, law.scale)
    loc, scale, dof = law.loc[action], width[action], law.dof[action]
    unit, dtype = scale * jnp.sqrt(dof), law.loc.dtype
    nodes, weights, kink = (x.astype(dtype) for x in (*_RULES[dtype.name], _KINKS))
    # Substitution x = loc + own sinh(s): Student-t tails fall exponentially in s, so a short interval holds the mass.
    edge = tail_edge(dof)
    around = jnp.concatenate([-kink[:0:-1], kink])
    # Every other action's distribution function changes quickly around its own loc: break the interval there.
    kinks = jnp.where(is_other[:, None], law.loc[:, None] + law.scale[:, None] * around, loc).ravel()
    # What lies beyond the ends counts as the ends: no quotient is infinite, which compilers treat differently.
    reach = unit * jnp.sinh(edge)
    inner = jnp.where(loc > -jnp.inf, jnp.arcsinh(jnp.clip(kinks - loc, -reach, reach) / unit), 0.0)
    pieces = jnp.concatenate([inner, edge * jnp.linspace(-1.0, 1.0, _NUM_PIECES + 1)])
    edges = jnp.sort(jnp.clip(pieces, -edge, edge))
    # Half the length of each piece; the nodes lie around its middle.
    half = 0.5 * jnp.diff(edges)[:, None]
    # Gauss-Legendre nodes of all pieces, [pieces, nodes]; pieces of length 0 have weight 0.
    z = jnp.sqrt(dof) * jnp.sinh(0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes)
    # dx = unit cosh(s) ds, and sqrt(dof + z^2) = sqrt(dof) cosh(s): the weight of the substitution.
    weight = half * weights * standard_pdf(z, dof) * jnp.sqrt(dof + z * z)
    shift = jnp.where(is_other, loc - law.loc, 0.0)
    reaches = width * jnp.sqrt(law.dof) * jnp.sinh(tail_edge(law.dof))
    # One table for each action, read at all nodes: the incomplete beta function would take nearly all of the time.
    tables = jax.vmap(tail_table)(law.dof)

    def chance(x: Float[Array, "*N"]) -> Float[Array, "*N"]:
        """prod_b P(X_b <= loc_a + x)."""
        scaled = jnp.clip(shift + x[..., None], -reaches, reaches) / width
        cdf = jax.vmap(cdf_from_table, in_axes=(-1, 0, 0), out_axes=-1)(scaled, law.dof, tables)
        cdf = jnp.where(known, (scaled > 0) | ((scaled == 0) & (number > action)), cdf)
        return jnp.prod(jnp.where(is_other, cdf, 1.0), axis=-1)

    inside = jnp.sum(weight * chance(scale * z))
    # A known value has no density: the probability that all others are below it is the answer.
    inside = jnp.where(known[action], chance(jnp.zeros((), dtype)), inside)
    return jnp.where(loc > -jnp.inf, jnp.clip(inside, 0.0, 1.0), 0.0)
