"""Test quantities: the numbers whose ranks simulation-based calibration looks at.

Ranks of parameters alone cannot tell the posterior from the prior. The joint log-likelihood of the data can, and it is
sensitive to most faults (Modrák et al. 2023, *Simulation-based calibration checking for Bayesian computation: the
choice of test quantities shapes sensitivity*, section 4).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_mdp.mdp import MDP, Objective, StateActionSpace, Transitions
from bayes_mdp.planning import PolicyEvaluation, Solution, evaluate, solve


@dataclass(frozen=True, eq=False)
class Drawn:
    """One hypothesis, the truth or a draw of the posterior, and the data.

    Args:
        mdp: transition probabilities and mean rewards.
        reward_noise: variance of one reward around the mean of its cell, averaged over outcomes.
        log_likelihood: log p(next states, rewards | states, actions, hypothesis) of the data.
        sites: latent sites that the posterior draws by name (hyper-parameters; all, where it is sampled).
        transitions: the data.
        policy: whose value is looked at.
        objective: of the values.
    """

    mdp: MDP
    reward_noise: Float[Array, "*H S A"]
    log_likelihood: Float[Array, ""]
    sites: dict[str, Array]
    transitions: Transitions
    policy: Any
    objective: Objective

    @cached_property
    def evaluation(self) -> PolicyEvaluation:
        """Values of the policy in `mdp`."""
        return evaluate(self.mdp, self.policy, self.objective)

    @cached_property
    def solution(self) -> Solution:
        """An optimal plan of `mdp`."""
        return solve(self.mdp, self.objective)


Quantity = Callable[[Drawn], Any]


def default_quantities(space: StateActionSpace) -> dict[str, Quantity]:
    """What is looked at unless told otherwise: name -> function of one `Drawn`, to be added to or left out of.

    `transition`, `reward`: projections of all transition probabilities and of all mean rewards on a fixed random
    direction; `reward_noise`: mean over pairs; `log_likelihood`; `policy_value`, `optimal_value`: mean over states (the
    gain, for the average reward); `optimal_q`: of the first legal pair. In a space with a horizon: of the first step.
    """
    rng = np.random.default_rng(0)
    legal = np.ones(space.shape[-2:], bool) if space.legal is None else np.asarray(space.legal)
    pair = np.argwhere(legal)[0]
    first = () if space.horizon is None else (0,)
    legal = np.broadcast_to(legal, space.shape)
    rows = rng.normal(size=(*space.shape, space.n_states)) * legal[..., None]
    reward = rng.normal(size=space.shape)
    return {
        "transition": lambda drawn: (rows * drawn.mdp.transition_probs).sum(),
        "reward": lambda drawn: (reward * jnp.where(legal, drawn.mdp.reward, 0.0)).sum(),
        "reward_noise": lambda drawn: jnp.where(legal, drawn.reward_noise, 0.0).mean(),
        "log_likelihood": lambda drawn: drawn.log_likelihood,
        "policy_value": lambda drawn: _value(drawn.evaluation, first),
        "optimal_value": lambda drawn: _value(drawn.solution, first),
        "optimal_q": lambda drawn: drawn.solution.q[(*first, *pair)],
    }


def _value(answer: PolicyEvaluation | Solution, first: tuple[int, ...]) -> Float[Array, ""]:
    return jnp.where(jnp.isnan(answer.gain), answer.v[first].mean(), answer.gain)
