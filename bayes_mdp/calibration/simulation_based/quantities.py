"""Test quantities: the numbers whose ranks simulation-based calibration examines.

The ranks of parameters alone do not distinguish the posterior from the prior. The joint log-likelihood of the data
does, and it is sensitive to most faults (Modrák et al. 2023, *Simulation-based calibration checking for Bayesian
computation: the choice of test quantities shapes sensitivity*, section 4).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.decisions.perfect_information import share_among_best
from bayes_mdp.mdp import MDP, AverageReward, Objective, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.protocols import Policy
from bayes_mdp.planning import evaluate, solve
from bayes_mdp.planning.solution import PolicyEvaluation, Solution


@dataclass(frozen=True, eq=False)
class Drawn:
    """One MDP, the truth or a draw of the posterior, and the data.

    Args:
        mdp: transition probabilities and mean rewards.
        reward_noise: variance of one reward around the mean of its cell, averaged over outcomes.
        log_likelihood: log p(next states, rewards | states, actions, MDP) of the data.
        sites: latent sites that the posterior holds by name (hyperparameters; all of them, if it is sampled).
        transitions: the data.
        policy: to be evaluated.
        objective: of the values.
        chosen: the optimal policy of the posterior's mean MDP, where it was asked for.
    """

    mdp: MDP | SparseMDP
    reward_noise: Float[Array, "*H S A"]
    log_likelihood: Float[Array, ""]
    sites: dict[str, Array]
    transitions: Transitions
    policy: Policy | Array | np.ndarray
    objective: Objective
    chosen: Int[Array, "*H S"] | None = None

    @cached_property
    def evaluation(self) -> PolicyEvaluation:
        """Values of the policy in `mdp`."""
        return evaluate(self.mdp, self.policy, self.objective)

    @cached_property
    def solution(self) -> Solution:
        """An optimal plan of `mdp`."""
        return solve(self.mdp, self.objective)


Quantity = Callable[[Drawn], Float[Array, ""]]
CHOSEN_POLICY = "chosen policy"
CONSTANT = 1e-5  # standard deviation over size below which a quantity is the same in every truth, but for rounding


def default_quantities(space: StateActionSpace) -> dict[str, Quantity]:
    """The default quantities of `sbc`: name -> function of one `Drawn`.

    `transition`, `reward`: projections of all transition probabilities and of all mean rewards on a fixed random
    direction; `reward_noise`: mean over pairs; `log_likelihood`; `policy_value`, `optimal_value`: mean over states (the
    gain, for the average reward); `optimal_q`: of the first legal pair. In a space with a horizon: of the first step.
    """
    # A fixed seed: every call has the same direction.
    rng = np.random.default_rng(0)
    legal = np.ones(space.shape[-2:], bool) if space.legal is None else np.asarray(space.legal)
    pair = np.argwhere(legal)[0]
    first = () if space.horizon is None else (0,)
    legal = np.broadcast_to(legal, space.shape)
    width = space.n_states if space.successors is None else space.n_outcomes
    # Illegal rows do not count.
    rows = rng.normal(size=(*space.shape, width)) * legal[..., None]
    reward = rng.normal(size=space.shape)
    return {
        "transition": lambda drawn: (rows * drawn.mdp.row_probs).sum(),
        "reward": lambda drawn: (reward * jnp.where(legal, drawn.mdp.reward, 0.0)).sum(),
        "reward_noise": lambda drawn: jnp.where(legal, drawn.reward_noise, 0.0).mean(),
        "log_likelihood": lambda drawn: drawn.log_likelihood,
        "policy_value": lambda drawn: _value(drawn.evaluation, first),
        "optimal_value": lambda drawn: _value(drawn.solution, first),
        "optimal_q": lambda drawn: drawn.solution.q[(*first, *pair)],
    }


def _value(answer: PolicyEvaluation | Solution, first: tuple[int, ...]) -> Float[Array, ""]:
    # Only the average reward has a gain.
    return jnp.where(jnp.isnan(answer.gain), answer.v[first].mean(), answer.gain)


def values(space: StateActionSpace, objective: Objective) -> dict[str, Quantity]:
    """The default quantities of `check`: optimal values.

    `V(state)`, and `Q(state, action)` where there is a choice; the `gain`, for the average reward. In a space with a
    horizon: of the first step.
    """
    if isinstance(objective, AverageReward):
        return {"gain": lambda drawn: drawn.solution.gain}
    quantities: dict[str, Quantity] = {
        f"V({name})": lambda drawn, s=s: _first(drawn.solution.v, 1)[s] for s, name in enumerate(space.state_names)
    }
    for name, pair in _choices(space).items():
        quantities[f"Q({name})"] = lambda drawn, pair=pair: _first(drawn.solution.q, 2)[pair]
    return quantities


def value_of_chosen_policy(space: StateActionSpace) -> dict[str, Quantity]:
    """The value of the policy that each posterior's mean MDP chooses, by the name `CHOSEN_POLICY`: mean over states."""
    first = () if space.horizon is None else (0,)
    return {CHOSEN_POLICY: lambda drawn: _value(evaluate(drawn.mdp, _known(drawn.chosen), drawn.objective), first)}


def _known(policy: Int[Array, "*H S"] | None) -> Int[Array, "*H S"]:
    assert policy is not None  # a `Design` with this quantity chooses
    return policy


def optimal_actions(space: StateActionSpace, objective: Objective) -> dict[str, Quantity]:
    """The events of `check`: `optimal(state, action)`, where there is a choice.

    1 if the action is optimal (1 / n for each of n that tie), else 0. Empty for the average reward: its differential
    values do not determine optimal actions in states that no optimal policy returns to.
    """
    if isinstance(objective, AverageReward):
        return {}
    return {
        f"optimal({name})": lambda drawn, pair=pair: share_among_best(_first(drawn.solution.q, 2)[None])[(0, *pair)]
        for name, pair in _choices(space).items()
    }


def _choices(space: StateActionSpace) -> dict[str, tuple[int, int]]:
    """Name -> legal pair, of the states with two actions or more."""
    legal = np.ones(space.shape[-2:], bool) if space.legal is None else np.asarray(space.legal)
    pairs = np.argwhere(legal & (legal.sum(-1, keepdims=True) > 1))
    return {f"{space.state_names[s]}, {space.action_names[a]}": (int(s), int(a)) for s, a in pairs}


def _first(array: Float[Array, "..."], ndim: int) -> Float[Array, "*first"]:
    """The array of the first step, in a space with a horizon."""
    return jnp.asarray(array) if jnp.ndim(array) == ndim else array[0]


def varying(truth: Float[np.ndarray, "N K"]) -> Bool[np.ndarray, " K"]:
    """Which quantities differ between truths by more than rounding; those with a value that is not finite count."""
    finite = np.isfinite(truth)
    known = np.where(finite, truth, 0.0)
    # Relative to the size: rounding scales with it.
    return (known.std(0) > CONSTANT * np.abs(known).max(0)) | ~finite.all(0)
