"""K-learning: values that are optimistic by an exponential utility, a Boltzmann policy, one temperature for both.

Source: [KL21] O'Donoghue, *Variational Bayesian Reinforcement Learning with Regret Bounds*, NeurIPS 2021. Its theorem 1
assumes mean rewards in [0, 1], sigma-sub-Gaussian noise, independent priors, a row of its own for every step.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.optimism_terms import check_above_zero
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Boltzmann
from bayes_mdp.agents.common.variance_equation import require_variances
from bayes_mdp.agents.k_learning.k_mixture import KOperator, k_operator, require_k_abilities
from bayes_mdp.agents.k_learning.k_model import check_options, least_temperature, soften
from bayes_mdp.agents.k_learning.temperature import minimise, require_choice, schedule
from bayes_mdp.mdp import CanMean, Episodic, Problem
from bayes_mdp.utils.typing import ArrayLike, RealLike, RealScalar
from bayes_mdp.utils.validation import check_count

TEMPERATURES = ("optimal", "schedule")


def k_values(
    posterior: CanMean,
    tau: RealScalar,
    *,
    bonus: str = "paper",
    span: RealLike | None = None,
    noise: RealScalar = 1.0,
    horizon: int | None = None,
) -> Float[Array, "H S A"]:
    """K of every step: equation (6) of [KL21], K = 0 after the last step. Traceable; compiles itself.

    K_l(s, a) = E mu + (noise^2 + span_l^2) / (2 tau max(n, 1)) + sum_s' E P(s' | s, a) tau logsumexp(K_l+1(s') / tau).

    Args:
        posterior: with a mean, visit counts n and the variances of `HasVariances`, or a mixture of such: K is then
            tau log sum_k w_k exp(K_k / tau) over its components (see `k_mixture`: the values stay optimistic, the
            theorem on the regret does not hold).
        tau: temperature, greater than 0.
        bonus: "paper"; or "posterior": the posterior variance of the mean reward in place of noise^2 / max(n, 1). The
            paper's needs a prior variance of at most noise^2 to be optimistic.
        span: bound on the difference of values of the next step. None: L - l, the paper's for rewards in [0, 1]. Where
            a row is known there is no such term.
        noise: sigma, the rewards are sigma-sub-Gaussian around their mean ("paper" only).
        horizon: L, where the posterior does not depend on the step.

    Returns:
        [H S A], in units of the reward; -inf where the action is illegal.

    Raises:
        ValueError: `tau` is not positive; another `bonus`; a negative `span` or `noise`; the horizon is
            missing or does not fit; a variance of a mean reward does not exist. TypeError: an ability is missing.
    """
    check_above_zero("tau", tau)
    check_options(bonus, span, noise)
    _require_abilities(posterior, bonus, "k_values")
    return _k_values(posterior, tau, bonus=bonus, span=span, noise=noise, horizon=horizon)


@partial(jax.jit, static_argnames=("bonus", "horizon"))
def _k_values(
    posterior: CanMean, tau: RealScalar, *, bonus: str, span: RealLike | None, noise: RealScalar, horizon: int | None
) -> Float[Array, "H S A"]:
    return k_operator(posterior, bonus=bonus, span=span, noise=noise, horizon=horizon, who="k_values").k_values(tau)


def value(k: ArrayLike, tau: RealScalar) -> Float[Array, "*H S"]:
    """tau logsumexp(k / tau) over actions: the bound on the expected optimal value in (13) of [KL21].

    Args:
        k: [*H S A], -inf where illegal.
        tau: greater than 0.

    Raises:
        ValueError: `tau` is not positive.
        TypeError: no number.
    """
    check_above_zero("tau", tau)
    return soften(jnp.asarray(k), tau)[0]


class KPolicy(Boltzmann):
    """The policy of K-learning: actions with probability proportional to exp(K / tau), (9) of [KL21].

    Args:
        k: Float[*H S A], -inf where illegal.
        tau: temperature, greater than 0.
    """

    def __init__(self, k: ArrayLike, tau: RealScalar) -> None:
        super().__init__(k, tau)

    @property
    def k(self) -> Float[Array, "*H S A"]:
        """K."""
        return self.q

    @property
    def tau(self) -> RealScalar:
        """The temperature."""
        return self.temperature

    @property
    def values(self) -> Float[Array, "*H S"]:
        """tau logsumexp(K / tau): upper bounds of the expected optimal values."""
        return soften(self.q, self.temperature)[0]


def policy(k: ArrayLike, tau: RealScalar) -> KPolicy:
    """The policy (9) of K at a temperature; it has K, tau and the values as attributes.

    Args:
        k: [*H S A].

    Raises:
        ValueError: `tau` is not positive.
    """
    return KPolicy(k, tau)


class TemperatureRule(eqx.Module):
    """A temperature that depends on the belief or the time: see `name`.

    Args:
        name: "optimal", the solution of problem (11), or "schedule", equation (10).

    Raises:
        ValueError: another name.
    """

    name: str = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.name not in TEMPERATURES:
            words = ", ".join(map(repr, TEMPERATURES))
            raise ValueError(f"temperature is {self.name!r}, expected {words} or a number greater than 0")


def _as_temperature(
    temperature: str | TemperatureRule | RealScalar,
) -> TemperatureRule | RealScalar:
    if isinstance(temperature, str):
        return TemperatureRule(temperature)
    if not isinstance(temperature, TemperatureRule):
        check_above_zero("temperature", temperature)
    return temperature


class KLearningState(eqx.Module):
    """The state of `KLearning`.

    Args:
        temperature: of the last plan, in units of the reward; 0: none.
        num_plans: so far.
    """

    temperature: Float[Array, ""]
    num_plans: Int[Array, ""]


class KLearning(eqx.Module):
    """K-learning, algorithm 1 of [KL21], for `Episodic` objectives.

    The theorem on its regret assumes independent rows. For a mixture (a collapsed posterior too) K joins those of the
    components by their exponential utilities (see `k_mixture`), and for draws it has the moments of the draws: both are
    heuristics.

    Args:
        temperature: "optimal": that of problem (11), solved before every plan; "schedule": (10), t the number of this
            plan from 1 on; or a number (an array leaf, so that sweeps vmap over it).
        bonus, span, noise: as in `k_values`. `span`, where given, also replaces L in the L^2 of the schedule.
        num_states: S of the schedule, the states of all steps together; None: steps times states.
        replan: as in `PSRL`.

    Raises:
        ValueError: an unknown option, a temperature that is not positive, a negative `span` or `noise`.
        TypeError: no number, no rule of replanning.

    Example:
        >>> result = bm.run(
        ...     bm.agents.KLearning(),
        ...     bm.envs.riverswim_episodic(),
        ...     prior=bm.models.dirichlet_normal(),
        ...     objective=bm.Episodic(20),
        ...     num_episodes=3,
        ...     key=jax.random.key(0),
        ...     options=bm.RunOptions(progress=False),
        ... )
        >>> float(result.visits.sum())
        60.0
    """

    temperature: TemperatureRule | RealScalar = eqx.field(default="optimal", converter=_as_temperature)
    bonus: str = eqx.field(default="paper", static=True, kw_only=True)
    span: float | Array | None = eqx.field(default=None, kw_only=True)
    noise: float | Array = eqx.field(default=1.0, kw_only=True)
    num_states: int | None = eqx.field(default=None, static=True, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_options(self.bonus, self.span, self.noise)
        if self.num_states is not None:
            check_count("num_states", self.num_states)

    def init(self, key: PRNGKeyArray, problem: Problem) -> KLearningState:
        """No plan yet.

        Raises:
            ValueError: an objective other than `Episodic`; a single action, unless the temperature is a number; with
                "optimal", no initial distribution.
        """
        del key
        if not isinstance(problem.objective, Episodic):
            raise ValueError(f"objective is {type(problem.objective).__name__}, expected Episodic for KLearning")
        if isinstance(self.temperature, TemperatureRule):
            require_choice(problem.space.n_actions)
            if self.temperature.name == "optimal" and problem.initial is None:
                raise ValueError("initial is None, expected a distribution over the first state for KLearning")
        return KLearningState(jnp.zeros(()), jnp.zeros((), jnp.int32))

    def check_belief(self, belief: object) -> None:
        """Refuse a belief that a plan cannot use (inside a trace: by its methods alone).

        Raises:
            ValueError: with bonus="posterior", a variance of a mean reward does not exist. TypeError: no mean, counts
                or variances.
        """
        _require_abilities(belief, self.bonus, "KLearning")

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: KLearningState, belief: CanMean
    ) -> tuple[KPolicy, KLearningState]:
        """The policy (9) at the temperature of this plan. No random number is used.

        Where no bonus is left the optimal temperature is 0: the policy is then greedy in the mean MDP.

        Raises:
            TypeError: an ability is missing.
        """
        del key
        objective, number = problem.objective, state.num_plans + 1
        steps = objective.horizon if isinstance(objective, Episodic) else None
        model = k_operator(belief, bonus=self.bonus, span=self.span, noise=self.noise, horizon=steps, who="KLearning")
        tau, k = self._choose(model, problem, state.temperature, number)
        state = KLearningState(jnp.asarray(tau, state.temperature.dtype), number)
        return KPolicy(k, jnp.maximum(tau, least_temperature(k.dtype))), state

    def _choose(
        self, model: KOperator, problem: Problem, last: Float[Array, ""], number: Int[Array, ""]
    ) -> tuple[RealScalar, Float[Array, "H S A"]]:
        """The temperature of a plan, and K there."""
        if not isinstance(self.temperature, TemperatureRule):
            return self.temperature, model.k_values(self.temperature)
        if self.temperature.name == "optimal":
            # From the last temperature: a few Newton steps where the belief has changed little.
            best = minimise(model, jnp.asarray(problem.initial), last)
            return best.tau, best.k
        space, horizon = problem.space, model.sizes[0]
        tau = schedule(
            number.astype(model.dtype),
            noise=self.noise,
            horizon=horizon,
            num_states=self.num_states or horizon * space.n_states,
            num_actions=space.n_actions,
            span=self.span,
        )
        tau = jnp.maximum(tau, least_temperature(model.dtype))  # 0 without noise and span
        return tau, model.k_values(tau)


def _require_abilities(posterior: object, bonus: str, who: str) -> None:
    require_k_abilities(posterior, who)
    if bonus == "posterior":
        require_variances(posterior)
