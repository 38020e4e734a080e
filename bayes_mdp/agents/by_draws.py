"""Variances of values by draws of the belief, and Gaussian Thompson sampling from them: serves any belief."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.draws import DrawMoments, check_draws, chunk_size, draw_moments, read_probs
from bayes_mdp.agents.factor import correlated_policy
from bayes_mdp.agents.policies import GaussianThompson
from bayes_mdp.agents.propagated import discount_of, require_variances
from bayes_mdp.agents.replan import ReplanRule, as_rule
from bayes_mdp.agents.thompson import UsesDraws, check_thompson, plan_for_mean
from bayes_mdp.agents.uncertainty import ValueUncertainty
from bayes_mdp.mdp import CanSample, Objective, Problem, Validity
from bayes_mdp.mdp.validation import check_bool, check_count
from bayes_mdp.planning.episodic import policy_values
from bayes_mdp.planning.solution import Solution


def by_draws(
    key: PRNGKeyArray, posterior: CanSample, policy: Any, objective: Objective, *, num_draws: int = 1000
) -> ValueUncertainty:
    """Mean and variance of the values of a policy over draws of the belief: right for any belief, cycles and ties too.

    Exact up to Monte Carlo error: with Gaussian values the relative standard error of a variance is
    sqrt(2 / num_draws), more where their tails are heavy (cycles with a discount near one). Host-side: compiles itself;
    draws are evaluated in chunks, so that memory does not grow with their number.

    Args:
        key: a typed key.
        posterior: whatever can sample.
        policy: Int[*H S], Float[*H S A] or a `Policy`, as in `planning.evaluate`.
        objective: `Discounted`, `Episodic` or `FirstExit`.
        num_draws: 2 or more.

    Raises:
        ValueError, TypeError: as `planning.evaluate`; `AverageReward`; a belief that cannot sample, or that knows that
            the variance of a mean reward does not exist.
    """
    moments, probs = _door(key, posterior, policy, objective, num_draws, "exact.by_draws")
    covariance = moments.covariance
    q_variance = jnp.diagonal(covariance, axis1=-2, axis2=-1)
    v_variance = jnp.einsum("...a,...ab,...b->...", probs, covariance, probs)
    error = (2.0 / num_draws) ** 0.5
    validity = Validity("exact", f"up to Monte Carlo error: {num_draws} draws, about {error:.1%} of a variance")
    q_mean = jnp.where(moments.illegal, -jnp.inf, moments.mean)
    v_mean = policy_values(q_mean, probs)
    status = moments.converged, moments.iterations, moments.gap
    return ValueUncertainty(q_mean, v_mean, q_variance, v_variance, None, None, *status, validity)


def action_covariance(
    key: PRNGKeyArray, posterior: CanSample, policy: Any, objective: Objective, *, num_draws: int = 1000
) -> Float[Array, "*H S A A"]:
    """Covariance between the values of the actions of each state, over the draws of `by_draws` with this key.

    Host-side. Zero where an action is illegal. Arguments and errors: as `by_draws`.
    """
    return _door(key, posterior, policy, objective, num_draws, "exact.action_covariance")[0].covariance


def _door(
    key: PRNGKeyArray, posterior: CanSample, policy: Any, objective: Objective, num_draws: int, who: str
) -> tuple[DrawMoments, Float[Array, "*H S A"]]:
    check_draws(key, posterior, num_draws, who)
    require_variances(posterior)
    discount_of(objective)
    probs = read_probs(posterior, policy, objective)
    chunk = chunk_size(posterior, num_draws)
    return _moments(key, posterior, probs, objective, num_draws, chunk=chunk), probs


@partial(jax.jit, static_argnames="chunk")
def _moments(
    key: PRNGKeyArray, posterior: Any, probs: Any, objective: Objective, num_draws: Any, *, chunk: int
) -> DrawMoments:
    return draw_moments(key, posterior, probs, objective, (num_draws, chunk))


class ThompsonByDraws(UsesDraws):
    """Gaussian Thompson sampling with mean and covariance of the values of the plan over draws of the belief.

    The plan is optimal in the mean MDP; its values are worked out in `num_draws` draws, and a Gaussian of their mean
    and covariance is drawn: joint over the actions of a state, or factored. Any belief that can sample and has a mean
    serves: tied rows, mixtures, draws.

    Args:
        num_draws: 2 or more. The covariance has rank num_draws - 1 at most.
        joint: with the covariances between the actions of a state, else with their variances alone.
        scale: zeta, of the noise (a leaf, so that sweeps vmap over it).
        noise: "held" for the length of a plan, or "fresh" at every step (see `thompson.gaussian_policy`).
        replan: as in `PSRL`.

    Raises:
        ValueError, TypeError: a number of draws below 2; `scale` is negative or not finite; another noise.
    """

    num_draws: int = eqx.field(default=30, static=True)
    joint: bool = eqx.field(default=True, static=True)
    scale: float | Array = 1.0
    noise: str = eqx.field(default="held", static=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_count("num_draws", self.num_draws, 2)
        check_bool("joint", self.joint)
        check_thompson(self.scale, self.noise)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: Any
    ) -> tuple[GaussianThompson, Solution | None]:
        """The policy, and the plan of the mean MDP.

        Raises:
            ValueError, TypeError: as `check_belief`.
        """
        self.check_belief(belief)
        key_draws, key_noise = jax.random.split(key)
        _, solution = plan_for_mean(problem, state, belief)
        probs = jax.nn.one_hot(solution.policy, problem.space.n_actions, dtype=solution.q.dtype)
        number = self.num_draws, chunk_size(belief, self.num_draws)
        moments = draw_moments(key_draws, belief, probs, problem.objective, number)
        policy = correlated_policy(key_noise, moments.mean, moments.covariance, problem, self)
        return policy, None if state is None else solution
