"""PSRL, posterior sampling for reinforcement learning [PSRL00] [PSRL13]; Bayesian DP [PSRL00]; TSDE [TSDE17].

All three follow a policy that is optimal in one draw; they differ in when they draw anew, and in which problems they
take. TSDE: Ouyang, Gagrani, Nayyar and Jain, *Learning Unknown Markov Decision Processes: A Thompson Sampling
Approach*, NIPS 2017. `GaussianPSRL` adds Gaussian noise to the mean model in place of a draw of the posterior: the
agent of that name in TabulaRL, the public code of Osband. Unlike RLSVI it adds noise to the model, not to values.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.common.mean_model import MeanModel, mean_model, row_variance_factor
from bayes_mdp.agents.common.replan import DynamicEpisodes, ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.agents.common.variance_equation import RowPosterior, require_variances
from bayes_mdp.mdp import AverageReward, CanMean, CanSample, Episodic, HasVariances, Problem
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.mdp.protocols import CanSampleBackup
from bayes_mdp.numerics.fusion import materialise
from bayes_mdp.planning import solve
from bayes_mdp.planning.episodic import backward_induction
from bayes_mdp.planning.solution import Solution, no_plan
from bayes_mdp.utils.typing import IntScalar
from bayes_mdp.utils.validation import check_not_negative

# Number of probabilities of a draw; below it, sampling all layers at once is faster (DeepSea: L = 10 is, 20 is not).
_LAYERED_ABOVE = 4096


class PSRL(eqx.Module):
    """Draw one MDP from the posterior, follow a policy that is optimal in it until the next plan [PSRL13].

    Args:
        replan: when to draw anew: a rule of `agents.replan`, a number of steps, "episode", "doubling", a function of
            the `ReplanContext`; None: every episode under `Episodic`, every 20 steps otherwise.

    Example:
        >>> result = bm.run(
        ...     bm.agents.PSRL(replan="doubling"),
        ...     bm.envs.chain(),
        ...     prior=bm.models.dirichlet_normal(),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=50,
        ...     key=jax.random.key(0),
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> float(result.visits.sum())
        50.0
    """

    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes)."""
        del key
        return no_plan(problem)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CanSample
    ) -> tuple[Greedy, Solution | None]:
        """Greedy for one draw. Under `Episodic`, a large posterior with `sample_backup` is sampled layer by layer.

        Raises:
            TypeError: `belief` cannot be sampled.
        """
        objective, space = problem.objective, problem.space
        large = math.prod(space.shape) * space.n_outcomes > _LAYERED_ABOVE
        if large and isinstance(objective, Episodic) and isinstance(belief, CanSampleBackup):
            # Each layer is sampled inside the backward pass: the whole MDP is never in memory. A step is backed up
            # once, so a key folded with the step makes one draw of it.
            q = backward_induction(
                lambda values, layer: belief.sample_backup(jax.random.fold_in(key, layer), values, layer),
                objective.horizon,
                space.n_states,
                legal=space.legal,
            )
            return Greedy(q), None
        require_ability(belief, CanSample, type(self).__name__)
        if isinstance(objective, Episodic):
            return Greedy(solve(belief.sample(key), objective).q, space.legal), None
        # Iterative planners read the draw many times: keep it in memory, and start from the last plan.
        solution = solve(materialise(belief.sample(key)), objective, start=state)
        return Greedy(solution.q, space.legal, best=solution.policy), solution


class BayesianDP(PSRL):
    """Bayesian DP (Strens 2000): `PSRL` where the possible successors of every pair are given, as in [OIM08].

    Rows are Dirichlet on the support of the space: the priors of the package respect it, a program of your own should
    (`models.supported_dirichlet`). Pass a space with its support to a run as `RunOptions(space=...)`. The interval and
    the discount of the original experiments were not available; choose both. Its plans are those of `PSRL`; it is a
    class of its own because it refuses a problem without that list, and a problem is first seen by `init`.

    Args:
        replan: when to draw anew, `resample_every`: a number of steps, "episode", or as in `PSRL`.
    """

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet, as in `PSRL`.

        Raises:
            ValueError: the space has no `support` and no `successors`.
        """
        if problem.space.possible is None:
            raise ValueError(
                "space.support is None, expected the possible successors of every pair (Bool[S A O], or a space with "
                "successors) for BayesianDP; PSRL needs none"
            )
        return super().init(key, problem)


class TSDE(PSRL):
    """`PSRL` for `AverageReward`, with a new draw by the rule of [TSDE17] (`DynamicEpisodes`).

    A draw is followed by a policy that is optimal for the average reward in it. The episodes are those of the agent: a
    draw is kept for at most one step more than the one before, and until the visits of a pair have more than doubled.
    Its plans are those of `PSRL(replan=DynamicEpisodes())`; it is a class of its own because it refuses problems of
    which the paper's theorem says nothing, and a problem is first seen by `init`.

    Args:
        replan: when to draw anew; the default is the rule of the paper. Others as in `PSRL`.
    """

    replan: ReplanRule | None = eqx.field(default=DynamicEpisodes(), converter=as_rule)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start.

        Raises:
            ValueError: an objective other than `AverageReward`, or a space with ends.
        """
        require_objective(problem.objective, "TSDE", AverageReward)
        if problem.space.ends:
            raise ValueError(
                "space.ends is True, expected False for TSDE: the average reward is one of a run without end"
            )
        return super().init(key, problem)


Pairs = Float[Array, "*H S A"]


def values_with_noise(model: MeanModel, reward_noise: Pairs, transition_noise: Pairs) -> Float[Array, "H S A"]:
    """q of an episode whose mean model has noise added. Traceable.

    Q_h = E[r] + w_R + E[P] max Q_{h+1} + (H - h - 1) w_P, h = 0 .. H - 1: the last step has no noise of transitions.

    Args:
        model: the mean model.
        reward_noise: w_R, [*H S A], units of the reward.
        transition_noise: w_P, [*H S A], without a unit: an error of E[P] V over V, V about the steps to go.
    """

    def backup(layer: IntScalar, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        # Noise of a row models the error of E[P] V, of the size of V: about the number of steps to go.
        ahead = model.horizon - layer - 1
        reward = model.at(model.reward, layer) + model.at(reward_noise, layer)
        return reward + model.expected_next(values, layer) + ahead * model.at(transition_noise, layer)

    return model.backward(backup)


def noise_scales(belief: HasVariances) -> tuple[Pairs, Pairs]:
    """Standard deviations of the noise of mean rewards and of transitions, [*H S A] each. Traceable.

    The first is that of the mean reward under the belief; the second 1 / sqrt(c0), c0 the total of the concentrations
    of a row. A known reward or row has none.

    Args:
        belief: with variances.
    """
    factor = belief.variance_factor("dirichlet")  # 1 / (c0 + 1)
    # factor / (1 - factor) = 1 / c0; a known row has factor 0, and so no noise.
    return jnp.sqrt(belief.reward_variance()), jnp.sqrt(factor / (1.0 - factor))


class GaussianPSRL(eqx.Module):
    """Greedy for `values_with_noise`, with one draw of the noise for every pair and plan.

    The noise of a pair is the same at all steps where the space is stationary, and drawn for every step where it has a
    horizon (there a state at a step is what a state is in TabulaRL). Rewards are meant to lie in [0, 1].

    Args:
        scale: factor of both kinds of noise; 1 in TabulaRL.
        replan: as in `PSRL`.

    Raises:
        ValueError: `scale` is negative or not finite.
        TypeError: no number, no rule of replanning.
    """

    scale: float | Array = 1.0
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_not_negative("scale", self.scale)

    def check_belief(self, belief: object) -> None:
        """Refuse a belief without a mean, variances and concentrations (inside a trace: by its structure alone).

        Raises:
            ValueError: a variance of a mean reward does not exist; it is represented by samples. TypeError: an ability
                is missing.
        """
        require_ability(belief, CanMean, "GaussianPSRL")
        require_ability(belief, HasVariances, "GaussianPSRL", instead="PSRL")
        row_variance_factor(belief, "GaussianPSRL")
        require_variances(belief)

    def init(self, key: PRNGKeyArray, problem: Problem) -> None:
        """No state is needed.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        del key
        require_objective(problem.objective, "GaussianPSRL", Episodic)

    def plan(self, key: PRNGKeyArray, problem: Problem, state: None, belief: RowPosterior) -> tuple[Greedy, None]:
        """Greedy for a new draw of the noise.

        Raises:
            ValueError, TypeError: as `init` and `check_belief`.
        """
        self.check_belief(belief)
        model = mean_model(belief, problem.objective, "GaussianPSRL")
        # One key for rewards and one for rows; one draw for every pair of the model.
        draws = zip(jax.random.split(key), noise_scales(belief), strict=True)
        noise = [self.scale * sd * jax.random.normal(k, sd.shape, sd.dtype) for k, sd in draws]
        return Greedy(values_with_noise(model, *noise), problem.space.legal), state
