"""Optimism by draws of the posterior with a pseudo state: what Bayes-UCBVI and OPSRL share.

Every unknown row has one more outcome, of a small pseudo count, that no transition leads to: a state in which every
step pays the most. [TBM22a] Tiapkin et al., *From Dirichlet to Rubin: Optimistic Exploration in RL without Bonuses*,
ICML 2022; [TBC22b] Tiapkin et al., *Optimistic Posterior Sampling for Reinforcement Learning with Few Samples and Tight
Guarantees*, NeurIPS 2022.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.learner import episode_length
from bayes_mdp.agents.mean_model import mean_model
from bayes_mdp.agents.optimism import reward_spread
from bayes_mdp.agents.propagated import require_variances
from bayes_mdp.mdp import CanMean, CanSampleNext, CanSpread, Objective, Problem
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.validation import check_count, check_finite, check_not_negative, check_positive, is_concrete


class PseudoDraws(eqx.Module):
    """How many draws, and what the pseudo state is.

    Args:
        num_draws: J, draws of every pair (static: it decides a shape).
        pseudo_count: n0, prior pseudo-transitions of every unknown row to the pseudo state; 0: there is none.
        pseudo_reward: r0, what a step in the pseudo state pays, units of the reward: the largest reward, or more.
        inflation: kappa, what every concentration is divided by; None: 1, without the cost of it.
    """

    num_draws: int = eqx.field(static=True)
    pseudo_count: Any
    pseudo_reward: Any
    inflation: Any = None

    def __check_init__(self) -> None:
        check_count("num_draws", self.num_draws)
        check_not_negative("pseudo_count", self.pseudo_count)
        if is_concrete(self.pseudo_reward):
            check_finite("pseudo_reward", self.pseudo_reward)
        if self.inflation is not None and is_concrete(self.inflation):
            check_positive("inflation", self.inflation)


def drawn_values(
    key: PRNGKeyArray,
    belief: Any,
    objective: Objective,
    draws: PseudoDraws,
    best: Callable[[Float[Array, "J S A"]], Float[Array, "S A"]],
    who: str,
) -> Float[Array, "H S A"]:
    """q of every step: best over J draws of r + sum_s' p(s') V(s'), V(pseudo state) = r0 times the steps to go.

    Rows of their own at every step are drawn afresh at every step; rows that all steps share are drawn once, J times
    (as the authors' code does it). Rewards are drawn too, pair by pair, normal with posterior mean and variance; the
    papers' are known, and have variance 0. Traceable.

    Args:
        key: of all draws.
        belief: with mean, variances and `sample_next`.
        objective: `Episodic`.
        draws: J and the pseudo state.
        best: J draws -> one optimistic value.
        who: who asks, for the sentences.

    Raises:
        TypeError: an ability is missing. ValueError: another objective.
    """
    require_ability(belief, CanSampleNext, who)
    model = mean_model(belief, objective, who)
    inflation = 1.0 if draws.inflation is None else draws.inflation
    deviation = jnp.sqrt(inflation * reward_spread(belief)).astype(model.reward.dtype)
    key_rows, key_rewards = jax.random.split(key)
    keys, own_steps = jax.random.split(key_rows, draws.num_draws), model.reward.ndim == 3

    def backup(layer: Any, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        pseudo = (draws.pseudo_count, draws.pseudo_reward * (model.horizon - 1.0 - layer))
        rows = jax.vmap(lambda one: belief.sample_next(one, values, layer, inflation, pseudo))(keys)
        key_now = jax.random.fold_in(key_rewards, layer) if own_steps else key_rewards
        noise = jax.random.normal(key_now, rows.shape, model.reward.dtype)
        reward = model.at(model.reward, layer) + model.at(deviation, layer) * noise
        return best(reward + rows).astype(values.dtype)

    return model.backward(backup)


class DrawsForEpisodes(eqx.Module):
    """An agent of episodes that has no state and needs draws of rows."""

    def init(self, key: PRNGKeyArray, problem: Problem) -> None:
        """No state.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        del key
        episode_length(problem, type(self).__name__)

    def check_belief(self, belief: Any) -> None:
        """Refuse a belief without mean, variances or `sample_next`: mixtures and draws.

        Raises:
            TypeError: an ability is missing. ValueError: the variance of a mean reward does not exist.
        """
        for ability in (CanSampleNext, CanMean, CanSpread):
            require_ability(belief, ability, type(self).__name__)
        require_variances(belief)
