"""Gaussian PSRL: Gaussian noise on the mean model in place of a draw of the posterior.

The agent of that name in TabulaRL, the public code of Osband. Unlike RLSVI it adds noise to the model, not to values.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.common.learner import episode_length
from bayes_mdp.agents.common.mean_model import MeanModel, mean_model, row_variance_factor
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.agents.common.variance_equation import RowPosterior, require_variances
from bayes_mdp.mdp import CanMean, HasVariances, Problem
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.utils.typing import IntScalar
from bayes_mdp.utils.validation import check_not_negative

Pairs = Float[Array, "*H S A"]


def perturbed_values(model: MeanModel, reward_noise: Pairs, transition_noise: Pairs) -> Float[Array, "H S A"]:
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
    """Greedy for `perturbed_values`, with one draw of the noise for every pair and plan.

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
        episode_length(problem, "GaussianPSRL")

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
        return Greedy(perturbed_values(model, *noise), problem.space.legal), state
