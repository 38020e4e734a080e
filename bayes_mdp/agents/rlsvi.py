"""Randomised least-squares value iteration: RLSVI, tabular ([RLSVI16], [RLSVI19]), and LMC-LSVI.

Ishfaq, Lan, Xu, Mahmood, Precup, Anandkumar and Azizzadenesheli, *Provable and Practical: Efficient Exploration in
Reinforcement Learning via Langevin Monte Carlo*, ICLR 2024 [LMCLSVI24]: weights are drawn by Langevin Monte Carlo. With
Q linear in features; one feature a pair is the tabular case.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.mdp import Episodic, Problem, Transitions
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.numerics.products import einsum, matmul
from bayes_mdp.planning.episodic import backward_induction
from bayes_mdp.planning.solution import where_legal
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar, Scalar
from bayes_mdp.utils.validation import (
    as_floats,
    check_count,
    check_finite,
    check_inside,
    check_positive,
    check_shape,
    if_given,
)


class RegressionData(eqx.Module):
    """Data statistics of every pair; with axis H where the space has a horizon, else all steps share their data.

    Args:
        successors: Float[*H S A S], count of each next state (ends excluded).
        visits: Float[*H S A].
        reward: Float[*H S A], the sum of the rewards.
    """

    successors: Float[Array, "*H S A S"]
    visits: Float[Array, "*H S A"]
    reward: Float[Array, "*H S A"]

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> "RegressionData":
        """No data yet; `shape` is [*H S A]."""
        return cls(jnp.zeros((*shape, shape[-2])), jnp.zeros(shape), jnp.zeros(shape))

    def add_transition(self, problem: Problem, transition: Transitions, weight: Scalar = 1.0) -> "RegressionData":
        """The data with one transition more; unchanged where `weight` is 0.

        Args:
            problem: whose space is looked at.
            transition: one.
        """
        cell, counted = transition.cell(problem.space), jnp.asarray(weight) != 0
        # A transition that ends counts as a visit with a reward, but leads nowhere: its y is the reward.
        continues = weight if transition.terminated is None else jnp.where(transition.terminated, 0.0, weight)
        return RegressionData(
            self.successors.at[(*cell, transition.next_state)].add(continues),
            self.visits.at[cell].add(weight),
            self.reward.at[cell].add(jnp.where(counted, weight * jnp.asarray(transition.reward), 0.0)),
        )


def draw_values(
    key: PRNGKeyArray,
    data: RegressionData,
    horizon: int,
    *,
    noise: Scalar = 1.0,
    regularization: Scalar = 1.0,
    legal: Bool[AnyArray, "S A"] | None = None,
) -> Float[Array, "H S A"]:
    """One draw of the values of RLSVI, from the last step of an episode to the first. Traceable.

    Q_h(s, a) ~ N((sum_i y_i / noise^2) / (n / noise^2 + regularization), 1 / (n / noise^2 + regularization)), with
    y_i = r_i + max_a' Q_{h+1}(s'_i, a') over the n transitions from (s, a): Bayesian linear regression with one feature
    per pair. Nothing follows an end or the last step.

    Args:
        key: of the draw.
        data: its statistics.
        horizon: H.
        noise: standard deviation that the regression assumes of y given its mean, in units of the reward.
        regularization: precision of the prior N(0, 1 / regularization) of every value.
        legal: Bool[S A], or None; the others get -inf.
    """
    layered = data.visits.ndim == 3

    # One feature per pair: the regression is diagonal, so the posterior of each Q(s, a) is a scalar normal law.
    def backup(values: Float[Array, " S"], layer: IntScalar) -> Float[Array, "S A"]:
        now = jax.tree.map(lambda x: x[layer], data) if layered else data
        # sum_i y_i, from sufficient statistics: sum of rewards + sum_s' count(s') V(s').
        total = now.reward + matmul(now.successors, values)
        # Mean and variance, both multiplied by noise^2 / noise^2: weight = n + regularization noise^2.
        weight = now.visits + regularization * noise**2
        z = jax.random.normal(jax.random.fold_in(key, layer), total.shape, total.dtype)
        # Mean total / weight, standard deviation noise / sqrt(weight).
        return total / weight + noise / jnp.sqrt(weight) * z

    return backward_induction(backup, horizon, data.visits.shape[-2], legal=legal)


class RLSVI(eqx.Module):
    """Greedy for values drawn anew for every plan (`draw_values`). The agent keeps its own data statistics.

    From [RLSVI16].

    Args:
        noise, regularization: as in `draw_values`. The prior is N(0, 1 / regularization): it makes an unseen pair
            attractive only where 1 / sqrt(regularization) is not small beside the returns.
        replan: as in `PSRL`.

    Raises:
        ValueError: `noise` or `regularization` is not greater than zero.
        TypeError: no number, no rule of replanning.

    Example:
        >>> result = bm.run(
        ...     bm.agents.RLSVI(noise=0.1),
        ...     bm.envs.riverswim_episodic(),
        ...     objective=bm.Episodic(20),
        ...     num_episodes=3,
        ...     key=jax.random.key(0),
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> float(result.visits.sum())
        60.0
    """

    noise: float | Array = 1.0
    regularization: float | Array = 1.0
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        for name in ("noise", "regularization"):
            check_positive(name, getattr(self, name))

    def init(self, key: PRNGKeyArray, problem: Problem) -> RegressionData:
        """No data.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        del key
        require_objective(problem.objective, "RLSVI", Episodic)
        return RegressionData.empty(problem.space.shape)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: RegressionData, belief: object = None
    ) -> tuple[Greedy, RegressionData]:
        """Greedy for a new draw; the data are unchanged.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        del belief
        q = draw_values(
            key,
            state,
            require_objective(problem.objective, "RLSVI", Episodic).horizon,
            noise=self.noise,
            regularization=self.regularization,
            legal=problem.space.legal,
        )
        return Greedy(q), state

    def observe(
        self, problem: Problem, state: RegressionData, transition: Transitions, weight: Scalar = 1.0
    ) -> RegressionData:
        """The data with one transition more; unchanged where `weight` is 0."""
        return state.add_transition(problem, transition, weight)


class LangevinState(eqx.Module):
    """The state of `LMCLSVI`.

    Args:
        data: statistics of every pair.
        weights: w of every step, where the next gradient steps start; [H d], or [H S*A] with one feature a pair.
        plans: how many were made.
    """

    data: RegressionData
    weights: Float[Array, "H d"]
    plans: Int[Array, ""]


class Spectrum(NamedTuple):
    """Lambda = sum_i phi_i phi_i^T + regularization I = U diag(values) U^T.

    Args:
        values: [*H d], at least the regularization.
        vectors: U, [*H d d], orthonormal, no unit; None: the identity.
    """

    values: Float[Array, "*H d"]
    vectors: Float[Array, "*H d d"] | None

    def at(self, layer: IntScalar) -> "Spectrum":
        """That of one step (itself where all steps share their data).

        Args:
            layer: step of the episode, from 0.
        """
        return self if self.values.ndim == 1 else jax.tree.map(lambda x: x[layer], self)

    def rotate(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """U^T `x`, in the unit of `x`."""
        return x if self.vectors is None else matmul(self.vectors.T, x)

    def rotate_back(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """U `x`, in the unit of `x`."""
        return x if self.vectors is None else matmul(self.vectors, x)


def spectrum(
    visits: Float[Array, "*H S A"], features: Float[Array, "S A d"] | None, regularization: RealScalar
) -> Spectrum:
    """Of the data that `visits` count. Traceable.

    Args:
        visits: of every pair.
        features: phi; None: one feature a pair, for which Lambda is diagonal.
        regularization: lambda of the paper.
    """
    if features is None:
        # One feature a pair: Lambda is diagonal, its spectrum the visits.
        return Spectrum(visits.reshape(*visits.shape[:-2], -1) + regularization, None)
    # sum_i phi_i phi_i^T over transitions: visits of the pairs times their features.
    gram = einsum("...sa,sai,saj->...ij", visits, features, features)
    values, vectors = jnp.linalg.eigh(gram)
    # eigh of a positive semidefinite matrix may give tiny negative eigenvalues.
    return Spectrum(jnp.maximum(values, 0.0) + regularization, vectors)


def langevin_law(
    start: Float[Array, " d"],
    centre: Float[Array, " d"],
    curvature: Float[Array, " d"],
    *,
    step_size: RealScalar,
    num_steps: RealScalar,
    inverse_temperature: RealScalar,
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Mean and standard deviation of w after J steps of w <- w - eta grad L(w) + sqrt(2 eta / beta) xi. Traceable.

    L(w) = curvature (w - centre)^2 + constant, coordinate by coordinate. The recursion is an autoregression,
    w - centre <- rho (w - centre) + sqrt(2 eta / beta) xi, rho = 1 - 2 eta curvature: after J steps w is normal with
    mean centre + rho^J (start - centre) and variance (1 - rho^{2J}) / (2 beta curvature (1 - eta curvature)). For
    J -> infinity and eta -> 0 that is N(centre, 1 / (2 beta curvature)).

    Args:
        start: w before, in units of the reward for features without unit.
        centre, curvature: of the loss: a weight like `start`, and a number without unit > 0.
        step_size: eta, with eta curvature < 1.
        num_steps: J, a whole number.
        inverse_temperature: beta.
    """
    # 2 eta curvature: the share of the distance to the centre that a step takes away.
    slope = 2.0 * step_size * curvature
    # log |rho|, without the rounding of 1 - slope where that is small.
    decay = jnp.where(slope < 0.5, jnp.log1p(-jnp.minimum(slope, 0.5)), jnp.log(jnp.abs(1.0 - slope)))
    # rho^J, with the sign of a negative rho to an odd power.
    odd = jnp.asarray(num_steps) % 2 == 1
    memory = jnp.where((slope > 1.0) & odd, -1.0, 1.0) * jnp.exp(num_steps * decay)
    # The variance after infinitely many steps; after J of them the share 1 - rho^(2J) is there.
    stationary = 1.0 / (2.0 * inverse_temperature * curvature * (1.0 - step_size * curvature))
    return centre + memory * (start - centre), jnp.sqrt(-jnp.expm1(2.0 * num_steps * decay) * stationary)


def _paper_steps(values: Float[Array, " d"], horizon: int, plans: Int[Array, ""]) -> Float[Array, ""]:
    # J = ceil(2 kappa log(4 H k)), kappa the condition number of Lambda.
    condition = jnp.max(values) / jnp.min(values)
    return jnp.ceil(2.0 * condition * jnp.log(4.0 * horizon * plans))


class LMCLSVI(eqx.Module):
    """Greedy for Q_h(s, a) = min(phi(s, a)^T w_h, (H - h) max_reward), w_h from J steps of Langevin Monte Carlo.

    From [LMCLSVI24]. From the last step of an episode to the first, with y_i = r_i + max_a Q_{h+1}(s'_i, a) over
    the transitions seen: L_h(w) = sum_i (y_i - phi_i^T w)^2 + regularization |w|^2, and J times w <- w - eta grad
    L_h(w) + sqrt(2 eta / inverse_temperature) xi, from the w_h of the plan before (the first: 0). The recursion is
    linear, so its law after J steps is normal and known: w is drawn from that law (`langevin_law`), at a cost that
    does not depend on J. With many steps w is near N(w_hat, Lambda^{-1} / (2 inverse_temperature)), w_hat the
    least-squares solution and Lambda = sum_i phi_i phi_i^T + regularization I, with variances up to 1 / (1 -
    step_size) times larger: but for the upper limit of Q, and for one feature a pair, that is `RLSVI` with noise^2
    = 1 / (2 inverse_temperature) and the regularization 2 inverse_temperature regularization.

    Where the space has no horizon, all steps share their data, as in `RLSVI`; the paper has data for every step. Q is
    not cut below.

    Args:
        features: phi, Float[S A d]; None: one feature a pair (tabular).
        inverse_temperature: beta, in units of 1 / reward^2; 1/2 (our choice) is the `noise` 1 of `RLSVI`.
        regularization: lambda. The weight of a feature that was never seen has about the law
            N(0, 1 / (2 inverse_temperature regularization)), which explores only where its standard deviation is not
            small beside the returns.
        step_size: eta times the largest eigenvalue of Lambda_h, between 0 and 1: the recursion is stable below 1 and
            diverges above. eta changes with the data. 1/4 is recalled from the theorem of the paper.
        num_steps: J; None: ceil(2 kappa log(4 H k)) at plan k, kappa the condition number of Lambda_h: recalled from
            the theorem, with the plans so far for the number of episodes.
        max_reward: rewards are at most this; units of the reward.
        replan: as in `PSRL`.

    Raises:
        ValueError, TypeError: a number outside its range; `features` that are no finite array [S A d].
    """

    features: Float[Array, "S A d"] | None = eqx.field(default=None, converter=if_given(as_floats, "features"))
    inverse_temperature: float | Array = eqx.field(default=0.5, kw_only=True)
    regularization: float | Array = eqx.field(default=1.0, kw_only=True)
    step_size: float | Array = eqx.field(default=0.25, kw_only=True)
    num_steps: int | None = eqx.field(default=None, static=True, kw_only=True)
    max_reward: float | Array = eqx.field(default=1.0, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        for name in ("inverse_temperature", "regularization", "max_reward"):
            check_positive(name, getattr(self, name))
        check_inside("step_size", self.step_size)
        if self.num_steps is not None:
            check_count("num_steps", self.num_steps)
        if self.features is not None:
            if self.features.ndim != 3 or 0 in self.features.shape:
                expected = "[state, action, feature] with at least one of each"
                raise ValueError(f"features has shape {self.features.shape}, expected {expected}")
            check_finite("features", self.features)

    def init(self, key: PRNGKeyArray, problem: Problem) -> LangevinState:
        """No data, all weights zero.

        Raises:
            ValueError: an objective other than `Episodic`; features of other states or actions.
        """
        del key
        horizon = require_objective(problem.objective, "LMCLSVI", Episodic).horizon
        *_, n_states, n_actions = problem.space.shape
        size = n_states * n_actions
        if self.features is not None:
            size = self.features.shape[-1]
            check_shape("features", self.features, (n_states, n_actions, size), "state, action, feature")
        data = RegressionData.empty(problem.space.shape)
        return LangevinState(data, jnp.zeros((horizon, size)), jnp.zeros((), jnp.int32))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: LangevinState, belief: object = None
    ) -> tuple[Greedy, LangevinState]:
        """Greedy for a new draw, which is kept as the start of the next; the data are unchanged.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        del belief
        horizon, legal = require_objective(problem.objective, "LMCLSVI", Episodic).horizon, problem.space.legal
        started = LangevinState(state.data, state.weights, state.plans + 1)
        # The law of the weights starts where the last plan left them.
        q, weights = self._draw(key, started, horizon, legal)
        return Greedy(q), LangevinState(state.data, weights, started.plans)

    def _draw(
        self, key: PRNGKeyArray, state: LangevinState, horizon: int, legal: Bool[AnyArray, "S A"] | None
    ) -> tuple[Float[Array, "H S A"], Float[Array, "H d"]]:
        """Q and w of every step."""
        data = state.data
        layered, pairs = data.visits.ndim == 3, data.visits.shape[-2:]
        whole = spectrum(data.visits, self.features, self.regularization)

        def backup(
            values: Float[Array, " S"], layer: Int[Array, ""]
        ) -> tuple[Float[Array, " S"], tuple[Float[Array, "S A"], Float[Array, " d"]]]:
            now = jax.tree.map(lambda x: x[layer], data) if layered else data
            # sum_i phi_i y_i, from sufficient statistics: sum_i y_i of a pair is its rewards + sum_s' count(s') V(s').
            total = now.reward + matmul(now.successors, values)
            score = total.reshape(-1) if self.features is None else einsum("sa,sad->d", total, self.features)
            # In the coordinates of the eigenvectors of Lambda the recursion is one of scalars.
            layer_spectrum = whole.at(layer)
            mean, sd = langevin_law(
                layer_spectrum.rotate(state.weights[layer]),
                layer_spectrum.rotate(score) / layer_spectrum.values,
                layer_spectrum.values,
                # eta of the paper is this one over the largest eigenvalue: the recursion is stable for every Lambda.
                step_size=self.step_size / jnp.max(layer_spectrum.values),
                num_steps=_paper_steps(layer_spectrum.values, horizon, state.plans)
                if self.num_steps is None
                else self.num_steps,
                inverse_temperature=self.inverse_temperature,
            )
            z = jax.random.normal(jax.random.fold_in(key, layer), mean.shape, mean.dtype)
            weights = layer_spectrum.rotate_back(mean + sd * z)
            linear = weights.reshape(pairs) if self.features is None else matmul(self.features, weights)
            # Q_h cannot exceed what the remaining steps pay.
            q = jnp.minimum(linear, (horizon - layer) * jnp.asarray(self.max_reward, linear.dtype))
            q = where_legal(q, legal)
            # v_h = max_a Q_h over legal actions.
            return jnp.max(q, -1), (q, weights)

        end = jnp.zeros(pairs[0], data.reward.dtype)
        return lax.scan(backup, end, jnp.arange(horizon), reverse=True)[1]

    def observe(
        self, problem: Problem, state: LangevinState, transition: Transitions, weight: Scalar = 1.0
    ) -> LangevinState:
        """The data with one transition more; unchanged where `weight` is 0."""
        return LangevinState(state.data.add_transition(problem, transition, weight), state.weights, state.plans)
