"""Bounds of K-learning: Bayes regret, the pigeonhole lemma, and the Gaussian bandit in closed form.

Source: [KL21] O'Donoghue, *Variational Bayesian Reinforcement Learning with Regret Bounds*, NeurIPS 2021, (12), lemma
6, section 3.1.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_mdp.agents.common.mean_model import MeanModel
from bayes_mdp.agents.k_learning.k_model import KModel, soften
from bayes_mdp.agents.k_learning.temperature import minimise, require_choice
from bayes_mdp.mdp import MDP
from bayes_mdp.utils.typing import ArrayLike, RealScalar
from bayes_mdp.utils.validation import check_finite, check_not_negative, check_positive, check_shape, require


def bayes_regret_bound(
    num_episodes: ArrayLike,
    *,
    noise: float,
    horizon: int,
    num_states: int,
    num_actions: int,
    printed: bool = False,
    mean_rewards: ArrayLike | None = None,
) -> Float[np.ndarray, "*n"] | np.floating:
    """A bound on the Bayes regret of K-learning after T = L N steps, theorem 1 of [KL21].

    With X = (noise^2 + L^2) S A T log A and l = log N the theorem prints 2 sqrt(X (1 + l)), (12). Its proof counts
    visits by n + 1 where the algorithm has max(n, 1), for which m (2 + log N) is true in place of lemma 6 (see
    `pigeonhole_bound`). What then holds is sqrt(X) (sqrt(1 + l) + (2 + l) / sqrt(1 + l)).

    For the schedule (10) and the optimal temperature, bonus "paper" with span None, under assumption 1: mean rewards
    in [0, 1], independent priors, sigma-sub-Gaussian noise, Dirichlet rows, independent steps; and beliefs about mean
    rewards that are sigma / sqrt(max(n, 1))-sub-Gaussian (a wide prior with little noise is not, at n = 0).

    Args:
        num_episodes: N, a number or an array, 1 or greater.
        noise: sigma, standard deviation of the rewards.
        horizon: L.
        num_states: S, the states of all steps together.
        num_actions: A.
        printed: the bound as printed.
        mean_rewards: mean rewards to check assumption 1 on, any shape; None: not checked.

    Returns:
        Of the shape of `num_episodes`, in units of the reward.

    Raises:
        ValueError: an argument out of its range; a mean reward outside [0, 1] (names the first one).
        TypeError: no number.
    """
    episodes = np.asarray(num_episodes, float)
    require(~(episodes >= 1), "num_episodes", episodes, "a number of episodes, 1 or greater")
    check_not_negative("noise", noise)
    require_choice(num_actions)
    for name, size in (("horizon", horizon), ("num_states", num_states)):
        require(size < 1, name, size, "an integer of at least 1")
    if mean_rewards is not None:
        rewards = np.asarray(mean_rewards)
        require(~((rewards >= 0) & (rewards <= 1)), "mean_rewards", rewards, "a number from 0 to 1 (assumption 1)")
    # X = (sigma^2 + L^2) S A T log A with T = L N.
    square = (noise**2 + horizon**2) * num_states * num_actions * episodes * horizon * np.log(num_actions)
    root = np.sqrt(1.0 + np.log(episodes))
    return np.sqrt(square) * (2.0 * root if printed else root + (root**2 + 1.0) / root)


def pigeonhole_bound(
    num_indices: int, num_rounds: ArrayLike, *, printed: bool = False
) -> Float[np.ndarray, "*n"] | np.floating:
    """A bound on E sum_t sum_i p_i^t / max(n_i^t, 1), over rounds that each pick an index i by p^t: lemma 6 of [KL21].

    It has no unit.

    m (1 + log N) as printed, which one index and two rounds break (2 against 1.69) and which holds for 1 / (n + 1);
    m (2 + log N) is true.

    Args:
        num_indices: m, at least 1.
        num_rounds: N, at least 1: one number or an array [*n].
        printed: whether the bound is that of the paper.

    Raises:
        ValueError: a number below 1.
    """
    rounds = np.asarray(num_rounds, float)
    require(num_indices < 1, "num_indices", num_indices, "an integer of at least 1")
    require(~(rounds >= 1), "num_rounds", rounds, "a number of rounds, 1 or greater")
    return num_indices * ((1.0 if printed else 2.0) + np.log(rounds))


class GaussianBandit(eqx.Module):
    """K-learning in a bandit with independent Gaussian beliefs.

    Args:
        tau: temperature.
        certainty_equivalent: [A], mean + variance / (2 tau): tau log E exp(Q / tau), here equal to K.
        policy: [A], proportional to exp(certainty_equivalent / tau).
        bound: tau logsumexp(certainty_equivalent / tau), at least E max Q.
    """

    tau: Float[Array, ""]
    certainty_equivalent: Float[Array, " A"]
    policy: Float[Array, " A"]
    bound: Float[Array, ""]


def gaussian_bandit(mean: ArrayLike, variance: ArrayLike, tau: RealScalar | None = None) -> GaussianBandit:
    """Section 3.1 of [KL21] in closed form; None: the temperature of the least bound. Host-side, works in float64.

    Equal arms have the optimum sd / sqrt(2 log A).

    Args:
        mean, variance: [A], of the belief about the mean reward of every arm; variances not all zero where `tau` is
            None.
        tau: greater than 0.

    Raises:
        ValueError: shapes that disagree, a number out of its range, a single arm or no variance where `tau` is None.
        TypeError: no number.
    """
    mean, variance = np.array(mean, np.float64), np.array(variance, np.float64)
    if mean.ndim != 1:
        raise ValueError(f"mean has shape {mean.shape}, expected [arm]")
    check_shape("variance", variance, mean.shape, "as mean")
    check_finite("mean", mean)
    check_not_negative("variance", variance)
    if tau is not None:
        check_positive("tau", tau)
    elif not variance.any():
        raise ValueError("variance is zero for every arm, expected a positive one: the optimal temperature is 0")
    with jax.enable_x64(True):
        return jax.device_get(_bandit(jnp.asarray(mean), jnp.asarray(variance), tau))


@jax.jit
def _bandit(mean: Float[Array, " A"], variance: Float[Array, " A"], tau: RealScalar | None) -> GaussianBandit:
    if tau is None:
        # A bandit is an episode of one step from one state: its temperature is that of problem (11).
        one = MeanModel(mean[None, None], MDP(jnp.ones((1, len(mean), 1)), mean[None]), None, 1)
        tau = minimise(KModel(one, 0.5 * variance[None, None]), jnp.ones(1)).tau
    k = mean + variance / (2.0 * tau)
    bound, policy, _ = soften(k, tau)
    return GaussianBandit(jnp.asarray(tau, k.dtype), k, policy, bound)
