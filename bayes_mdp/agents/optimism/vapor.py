"""VAPOR: the policy of an occupancy that approximates the posterior probability that a pair is on the optimal path.

[VAPOR23] Tarbouriech, Lattimore and O'Donoghue, *Probabilistic Inference in Reinforcement Learning Done Right*, NeurIPS
2023. Over the occupancies d of the posterior-mean MDP it maximises sum d r + sum sigma d sqrt(-2 log d), r the mean
reward and sigma the sub-Gaussian scale of the mean reward of a pair, into which the uncertainty of its row is moved
(`planning.vapor_occupancy` solves the program). Where only rewards are unknown, and sigma is right for them,
the optimum is at least the posterior mean of the optimal value.

Here sigma^2 is twice temperature times bonus of K-learning (`k_learning`): the two agents differ in one temperature for
all pairs (K-learning) and one for each (VAPOR), and in the entropy that it multiplies, that of the actions in a state
(K-learning) and that of the pairs of a step (VAPOR). The constant of the transition term was not compared with the
paper's text; `span` can express a larger one.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.common.mean_model import check_above_zero
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Boltzmann
from bayes_mdp.agents.common.variance_equation import require_variances
from bayes_mdp.agents.optimism.k_model import check_options, k_model
from bayes_mdp.mdp import CanCount, CanMean, Episodic, HasVariances, Problem
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.planning.vapor_occupancy import ExpectedNext, VaporPlan, VaporProblem, solve_vapor
from bayes_mdp.utils.typing import ArrayLike, RealLike, RealScalar
from bayes_mdp.utils.validation import check_count


def vapor_problem(
    posterior: CanMean,
    initial: ArrayLike,
    *,
    bonus: str = "paper",
    span: RealLike | None = None,
    noise: RealScalar = 1.0,
    horizon: int | None = None,
) -> tuple[VaporProblem, ExpectedNext]:
    """VAPOR's program for a belief: mean rewards and sigma, and the mean rows as a function. Traceable.

    sigma^2 = (noise^2 + span_l^2) / max(n, 1) with bonus="paper", n the visits: posterior means and visit counts
    replace the paper's estimates, and a Dirichlet prior with concentration -> 0 gives the empirical ones.

    Args:
        posterior: with a mean, visit counts and the variances of `HasVariances`.
        initial: [S], distribution of the first state.
        bonus, span, noise, horizon: as in `k_learning.k_values`.

    Raises:
        ValueError, TypeError: as `k_learning.k_values`; `initial` is no distribution.
    """
    model = k_model(posterior, bonus=bonus, span=span, noise=noise, horizon=horizon, who="VAPOR")
    # K-learning's bonus is sigma^2 / (2 tau): the same sub-Gaussian scale of a pair, without the temperature.
    sigma = jnp.sqrt(2.0 * model.numerator)
    reward = jnp.broadcast_to(model.mean.reward, sigma.shape)
    problem = VaporProblem(reward, sigma, jnp.asarray(initial, reward.dtype), model.mean.legal)
    return problem, model.mean.expected_next


class VaporPolicy(Boltzmann):
    """Actions with probability proportional to the occupancy of their pairs; `q` are log-probabilities.

    Args:
        plan: occupancy, objective, bound of the optimum.
    """

    plan: VaporPlan

    def __init__(self, plan: VaporPlan) -> None:
        self.plan = plan
        super().__init__(jnp.log(plan.policy), jnp.ones((), plan.policy.dtype))

    @property
    def occupancy(self) -> Float[Array, "H S A"]:
        """d: approximately the posterior probability that a pair is on the optimal path."""
        return self.plan.occupancy


class VAPOR(eqx.Module):
    """VAPOR [VAPOR23] for `Episodic` objectives: solve the program before every plan, act by its occupancy.

    Args:
        bonus, span, noise: as in `k_learning.k_values`.
        num_iterations: largest number of passes of the solver per plan; it starts from the policy of the last plan.
        tolerance: the gap of the objective at which the solver stops (see `solve_vapor`).
        replan: as in `PSRL`.

    Raises:
        ValueError, TypeError: another bonus, a negative `span` or `noise`, no iterations, a tolerance that is not
            positive.
    """

    bonus: str = eqx.field(default="paper", static=True)
    span: float | Array | None = eqx.field(default=None, kw_only=True)
    noise: float | Array = eqx.field(default=1.0, kw_only=True)
    num_iterations: int = eqx.field(default=30, static=True, kw_only=True)
    tolerance: float | Array = eqx.field(default=1e-3, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_options(self.bonus, self.span, self.noise)
        check_count("num_iterations", self.num_iterations)
        check_above_zero("tolerance", self.tolerance)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Float[Array, "H S A"]:
        """The state is the last policy: uniform over legal actions before any plan.

        Raises:
            ValueError: an objective other than `Episodic`; no initial distribution.
        """
        del key
        objective, space = problem.objective, problem.space
        if not isinstance(objective, Episodic):
            raise ValueError(f"objective is {type(objective).__name__}, expected Episodic for VAPOR")
        if problem.initial is None:
            raise ValueError("initial is None, expected a distribution over the first state for VAPOR")
        pairs = jnp.ones(space.shape[-2:]) if space.legal is None else jnp.asarray(space.legal, float)
        return jnp.broadcast_to(pairs / pairs.sum(-1, keepdims=True), (objective.horizon, *pairs.shape))

    def check_belief(self, belief: object) -> None:
        """Refuse a belief that a plan cannot use (inside a trace: by its methods alone).

        Raises:
            ValueError: with bonus="posterior", a variance of a mean reward does not exist. TypeError: no mean, counts
                or variances.
        """
        for ability in (CanMean, CanCount, HasVariances):
            require_ability(belief, ability, "VAPOR", instead="KLearning")
        if self.bonus == "posterior":
            require_variances(belief)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Float[Array, "H S A"], belief: CanMean
    ) -> tuple[VaporPolicy, Float[Array, "H S A"]]:
        """The policy of the occupancy, and its probabilities. No random number is used.

        Raises:
            TypeError: an ability is missing.
        """
        del key
        objective = problem.objective
        assert isinstance(objective, Episodic) and problem.initial is not None  # as `init` checks
        # One temperature a pair, all of them inside the program: none is chosen here.
        program, expected_next = vapor_problem(
            belief,
            problem.initial,
            bonus=self.bonus,
            span=self.span,
            noise=self.noise,
            horizon=objective.horizon,
        )
        # A warm start from the last policy; the solver stops at a proven gap, or after so many passes.
        plan = solve_vapor(
            program, expected_next, start=state, num_iterations=self.num_iterations, tolerance=self.tolerance
        )
        return VaporPolicy(plan), plan.policy.astype(state.dtype)
