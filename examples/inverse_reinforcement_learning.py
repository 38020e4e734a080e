"""Infer a person's rewards: a prior, a few observed choices, and what they imply for another environment.

    python examples/inverse_reinforcement_learning.py

Bayesian inverse reinforcement learning (Ramachandran and Amir 2007): whoever was seen plans in a known MDP and chooses
action a in state s with probability softmax(rationality q(s, .))[a], q the optimal values, hard (`bm.solve`) or soft
(`bm.planning.solve_soft`, temperature 1 / rationality). The planner is a part of the program like any other, so that
NUTS finds the posterior of the rewards, and every draw of it can be planned with in a *changed* environment (transfer).

Choices never tell everything. The potential of a state may be added to rewards, R(s, a) + discount E phi(s') - phi(s),
and rationality divided while rewards are multiplied: every choice is as likely as before. In those directions the
posterior is the prior, and what one says of rewards there is what one said beforehand. The last part shows it.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpyro.infer import MCMC, NUTS

import bayes_mdp as bm

LEFT, RIGHT = 0, 1
OBJECTIVE = bm.Discounted(0.9)

Rows = Float[Array, "S A S"]
Rewards = Float[Array, "S A"]


class Demonstrations(NamedTuple):
    """Choices that were seen, in any order."""

    state: Int[np.ndarray, " N"]
    action: Int[np.ndarray, " N"]


SEEN = Demonstrations(*np.array([divmod(x, 10) for x in (21, 31, 41, 21, 11, 31, 20, 41, 30, 11, 21, 40)]).T)
"""Twelve choices in a corridor of five: mostly to the right."""


def corridor(size: int = 5, slip: float = 0.1) -> np.ndarray:
    """One step left or right; a step slips to the other side with a probability; walls hold."""
    state = np.arange(size)
    left = np.eye(size)[np.maximum(state - 1, 0)]
    right = np.eye(size)[np.minimum(state + 1, size - 1)]
    return np.stack([(1 - slip) * left + slip * right, slip * left + (1 - slip) * right], axis=1)


# The parts of the program.


def choice_log_probs(
    reward: Rewards,
    rows: Rows,
    rationality: float | Float[Array, ""],
    soft: bool,
    objective: bm.mdp.Objective = OBJECTIVE,
) -> Float[Array, "S A"]:
    """Log-probabilities of the actions of somebody who plans with these rewards."""
    mdp = bm.MDP(rows, reward)
    if soft:
        return bm.planning.solve_soft(mdp, objective, 1.0 / rationality).log_policy
    return jax.nn.log_softmax(rationality * bm.solve(mdp, objective).q)


def linear(features: Float[np.ndarray, "S A F"]) -> Callable[[], Rewards]:
    """A prior on rewards: features times weights, which are standard normal. Any NumPyro program may stand here."""

    def prior() -> Rewards:
        weights = numpyro.sample("weights", dist.Normal().expand([features.shape[-1]]).to_event(1))
        return features @ weights

    return prior


def program(
    seen: Demonstrations,
    rows: Rows,
    prior: Callable[[], Rewards],
    rationality: Callable[[], Float[Array, ""]] | float = 2.0,
    soft: bool = False,
) -> None:
    """Rewards from their prior; every choice that was seen is a draw from the planner's policy.

    The rows are known. Were they not, the choices would inform them as well: sample them here (joint), or infer them
    from the transitions alone and plan with draws of those (cut); the answers differ.

    Args:
        seen: the choices.
        rows: of the environment where they were seen.
        prior: a NumPyro program that returns rewards.
        rationality: a number, or a program that returns one.
        soft: plan softly, at the temperature 1 / rationality.
    """
    reward = numpyro.deterministic("reward", prior())
    rationality = rationality() if callable(rationality) else rationality
    logits = choice_log_probs(reward, rows, rationality, soft)
    numpyro.sample("action", dist.Categorical(logits=logits[seen.state]), obs=seen.action)


def program_in_values(seen: Demonstrations, rows: Rows, rationality: float = 2.0, soft: bool = True) -> None:
    """The same for rewards of pairs that are independent standard normal, with the values as unknowns: no planning.

    R = q - discount P v(q) is one to one, and p(q) = p_R(R(q)) |det(I - discount P_policy)|, with the policy of v at q:
    greedy, or soft. The determinant belongs there: without it the posterior is of another prior (ValueWalk, Bajgar and
    others 2024, samples so). With the hard maximum it jumps where the best action changes, and NUTS mixes badly.
    """
    q = numpyro.sample("q", dist.ImproperUniform(dist.constraints.real_matrix, (), rows.shape[:2]))
    reward, log_det = reward_of_values(q, rows, rationality, soft)
    numpyro.factor("prior", dist.Normal().log_prob(reward).sum() + log_det)
    numpyro.deterministic("reward", reward)
    numpyro.sample("action", dist.Categorical(logits=rationality * q[seen.state]), obs=seen.action)


def reward_of_values(
    q: Float[Array, "S A"], rows: Rows, rationality: float, soft: bool
) -> tuple[Rewards, Float[Array, ""]]:
    """The rewards whose optimal values are q, and the log-determinant of their derivative by q."""
    discount = OBJECTIVE.discount
    policy = jax.nn.softmax(rationality * q) if soft else jax.nn.one_hot(jnp.argmax(q, -1), q.shape[-1])
    v = jax.nn.logsumexp(rationality * q, axis=-1) / rationality if soft else jnp.max(q, -1)
    chain = jnp.einsum("sa,sat->st", policy, rows)
    return q - discount * rows @ v, jnp.linalg.slogdet(jnp.eye(len(q)) - discount * chain)[1]


# What is asked of it.


def infer(key: PRNGKeyArray, model: Callable[[], None], num_samples: int = 1000) -> dict[str, np.ndarray]:
    """Draws of every site by NUTS, four chains [4 num_samples ...]. The hard maximum has kinks: short steps."""
    kernel = NUTS(model, target_accept_prob=0.9)
    chains = {"num_chains": 4, "chain_method": "vectorized", "progress_bar": False}
    mcmc = MCMC(kernel, num_warmup=500, num_samples=num_samples, **chains)
    mcmc.run(key)
    return jax.tree.map(np.asarray, mcmc.get_samples(group_by_chain=True))


def transfer(rewards: Float[Array, "*N S A"], rows: Rows) -> Float[Array, "*N S"]:
    """Optimal values in another environment, for every draw of the rewards."""
    plan = lambda reward: bm.solve(bm.MDP(rows, reward), OBJECTIVE).v  # noqa: E731
    flat = jnp.reshape(rewards, (-1, *rewards.shape[-2:]))
    return jax.jit(jax.vmap(plan))(flat).reshape(*rewards.shape[:-2], -1)


def shaping_directions(rows: Float[np.ndarray, "S A S"], discount: float) -> Float[np.ndarray, "K S A"]:
    """An orthonormal basis of the rewards discount E phi(s') - phi(s), which no choice can tell from none."""
    size = rows.shape[0]
    potentials = discount * rows - np.eye(size)[:, None]  # [S A phi]
    basis, _ = np.linalg.qr(potentials.reshape(-1, size))
    return basis.T.reshape(-1, *rows.shape[:2])


def ends_only(size: int = 5) -> Float[np.ndarray, "S A 2"]:
    """Features of rewards (u, 0, ..., 0, v), of the state one is in."""
    return np.repeat(np.eye(size)[:, None, [0, -1]], 2, axis=1)


def sized(features: Float[np.ndarray, "S A F"]) -> tuple[Callable[[], Rewards], Callable[[], Float[Array, ""]]]:
    """Priors of rewards and of rationality that both have an unknown size, each log-normal."""

    def prior() -> Rewards:
        return jnp.exp(numpyro.sample("log_size", dist.Normal())) * linear(features)()

    def rationality() -> Float[Array, ""]:
        return 2.0 * jnp.exp(numpyro.sample("log_rationality", dist.Normal()))

    return prior, rationality


def main() -> None:
    """Posterior of two rewards, values and policies elsewhere, and two directions in which nothing is learned."""
    with jax.enable_x64(True):
        rows, elsewhere = corridor(), corridor(slip=0.4)
        for soft in (False, True):
            draws = infer(jax.random.key(0), partial(program, SEEN, rows, linear(ends_only()), soft=soft))
            u, v = np.moveaxis(draws["weights"], -1, 0)
            print(f"{'soft' if soft else 'hard'}: u {u.mean():.3f} +- {u.std():.3f}, v {v.mean():.3f} +- {v.std():.3f}")
            print(f"  correlation {np.corrcoef(u.ravel(), v.ravel())[0, 1]:.3f}, P(v > u) {(v > u).mean():.3f}")
            low, high = np.quantile(transfer(draws["reward"], elsewhere)[..., 2], [0.05, 0.95])
            print(f"  value of state 2 in a slippery corridor: 90 % {low:.2f} to {high:.2f}")
        # A reward of its own for every pair.
        draws = infer(jax.random.key(1), partial(program, SEEN, rows, linear(np.eye(10).reshape(5, 2, 10))))
        along = np.einsum("cnsa,ksa->kcn", draws["reward"], shaping_directions(rows, OBJECTIVE.discount))
        print(f"along shaping (prior 0 +- 1): means {along.mean((1, 2)).round(2)}, sd {along.std((1, 2)).round(2)}")
        prior, rationality = sized(ends_only())
        draws = infer(jax.random.key(2), partial(program, SEEN, rows, prior, rationality))
        difference = (draws["log_size"] - draws["log_rationality"]) / np.sqrt(2)
        total = (draws["log_size"] + draws["log_rationality"]) / np.sqrt(2)
        print(f"size over rationality (prior 0 +- 1): {difference.mean():.2f} +- {difference.std():.2f}")
        print(f"size times rationality (prior 0 +- 1): {total.mean():.2f} +- {total.std():.2f}")


if __name__ == "__main__":
    main()
