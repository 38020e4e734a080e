"""Environments and reward laws, each with an independent statement of the rewards that it gives, in plain Python.

An environment states its rewards as `paid`: for every transition that can happen, numbers that decide: all values where
they are few, else the ends of the interval, numbers near them and fractions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import bayes_mdp as bm
from bayes_mdp.mdp import MDP, Environment, NormalReward, SparseMDP
from bayes_mdp.models.dirichlet_prior import supported_dirichlet
from bayes_mdp.models.mdp_spec import MDPSpec

ROWS = np.full((2, 1, 2), 0.5)
REAL = [-1e6, -0.5, 0.0, 0.5, 1e6]
POSITIVE = [1e-9, 0.5, 1.0, 1e6]
COUNTS = [0.0, 1.0, 2.0, 7.0, 1e6]


class World(NamedTuple):
    """An environment, and (state, action, next state) -> rewards that it can pay there; next state S: the end."""

    env: Environment
    paid: dict[tuple[int, int, int], list[float]]


def small(reward_law: Any, mean: Any, values: list[float] | list[list[float]], **changes: Any) -> World:
    """Two states, one action; `values` of both states, or of each."""
    each: Any = values if isinstance(values[0], list) else [values, values]
    env = Environment(MDP(ROWS, mean, initial=[1.0, 0.0], **changes), reward_law)
    return World(env, {(s, 0, y): each[s] for s in range(2) for y in range(2)})


def numbers(first: float, second: float) -> World:
    """A known reward in each state."""
    mean = np.array([[first], [second]], float)
    return small(NormalReward(mean), mean, [[first], [second]])


def by_outcome(first: float, second: float) -> World:
    """A known reward for each next state."""
    table = np.broadcast_to(np.array([first, second], float), (2, 1, 2))
    env = Environment(MDP(ROWS, table.mean(-1), initial=[1.0, 0.0]), NormalReward(table, by_outcome=True))
    return World(env, {(s, 0, y): [(first, second)[y]] for s in range(2) for y in range(2)})


def drawn(law: Any, values: list[float], mean: float | None = None) -> World:
    """Rewards with one law in both states."""
    mean = float(law.mean) if mean is None else mean
    return small(law, np.full((2, 1), mean), values)


def noisy(scale: list[list[float]]) -> World:
    """Rewards normal where the scale is positive, else 1."""
    values = [REAL if row[0] else [1.0] for row in scale]
    return small(NormalReward(np.ones((2, 1)), np.array(scale)), np.ones((2, 1)), values)


def illegal() -> World:
    """-1 is the reward of an action that is illegal alone."""
    mean, legal = np.array([[0.0, -1.0], [1.0, 0.0]]), np.array([[True, False], [True, True]])
    env = Environment(MDP(np.full((2, 2, 2), 0.5), mean, legal=legal, initial=[1.0, 0.0]), NormalReward(mean))
    return World(env, {(s, a, y): [mean[s, a]] for s, a in np.argwhere(legal).tolist() for y in range(2)})


def unreachable() -> World:
    """-1 is the reward of a state alone that no episode comes to."""
    mean = np.array([[0.0], [-1.0]])
    env = Environment(MDP([[[1.0, 0.0]], [[1.0, 0.0]]], mean, initial=[1.0, 0.0]), NormalReward(mean))
    return World(env, {(0, 0, 0): [0.0]})


def table(env: Environment, values: Callable[[int, int, int], list[float]]) -> World:
    """A ready environment: `values` of every transition that has a probability."""
    dense = env.mdp.to_dense() if isinstance(env.mdp, SparseMDP) else env.mdp
    rows = np.asarray(dense.transition_probs)
    if dense.end_probs is not None:
        rows = np.concatenate([rows, np.asarray(dense.end_probs)[..., None]], -1)
    rows = rows if dense.legal is None else rows * np.asarray(dense.legal)[..., None]
    return World(env, {(s, a, y): values(s, a, y) for s, a, y in np.argwhere(rows > 0).tolist()})


def gym_table(name: str) -> World:
    """That of a Gymnasium environment, read by hand, without states that no episode comes to."""
    import gymnasium

    env, inner = bm.envs.from_gymnasium(name), gymnasium.make(name).unwrapped
    rows: Any = inner.P  # pyright: ignore[reportAttributeAccessIssue]
    seen, new = set(), {int(s) for s in np.flatnonzero(inner.initial_state_distrib)}  # pyright: ignore
    values: dict[tuple[int, int, int], set[float]] = {}
    while new:
        seen |= new
        after = set()
        for s in new:
            for a, entries in rows[s].items():
                for p, y, r, done in entries:
                    if p > 0:
                        values.setdefault((s, a, len(rows) if done else y), set()).add(float(r))
                        after |= set() if done else {y}
        new = after - seen
    return World(env, {key: sorted(rewards) for key, rewards in values.items()})


def mean_of(env: Environment) -> Callable[[int, int, int], list[float]]:
    """Rewards that are the mean of their pair."""
    return lambda s, a, y: [float(np.asarray(env.mdp.reward)[s, a])]


def riverswim() -> World:
    """[SL08]: 5 for staying at the left bank, 10,000 for staying at the right one, else nothing."""
    left, right = {(0, 0, 0): [5.0]}, {(5, 1, 5): [10000.0]}
    return table(bm.envs.riverswim(), lambda *t: left.get(t) or right.get(t) or [0.0])


WORLDS: dict[str, Callable[[], World]] = {
    "zeros and ones": lambda: numbers(0, 1),
    "zeros": lambda: numbers(0, 0),
    "ones": lambda: numbers(1, 1),
    "a cost": lambda: numbers(0, -1),
    "a half": lambda: numbers(0, 0.5),
    "two and three": lambda: numbers(2, 3),
    "four": lambda: numbers(0, 4),
    "a thousandth": lambda: numbers(1e-3, 1),
    "hundreds": lambda: numbers(100, 300),
    "0 and 1 by outcome": lambda: by_outcome(0, 1),
    "1 and 2.5 by outcome": lambda: by_outcome(1, 2.5),
    "noise": lambda: noisy([[0.1], [0.1]]),
    "noise in one state": lambda: noisy([[0.0], [0.1]]),
    "no noise": lambda: noisy([[0.0], [0.0]]),
    "Bernoulli": lambda: drawn(dist.Bernoulli(0.25), [0.0, 1.0]),
    "Bernoulli, always 1": lambda: drawn(dist.Bernoulli(1.0), [1.0]),
    "Poisson": lambda: drawn(dist.Poisson(2.0), COUNTS),
    "binomial of 2": lambda: drawn(dist.Binomial(2, probs=0.5), [0.0, 1.0, 2.0]),
    "binomial of 5": lambda: drawn(dist.Binomial(5, probs=0.5), [0.0, 1.0, 5.0]),
    "geometric": lambda: drawn(dist.Geometric(0.5), COUNTS),
    "categories 0 and 2": lambda: drawn(dist.Categorical(np.array([0.5, 0.0, 0.5])), [0.0, 2.0], 1.0),
    "1, 2 or 3": lambda: drawn(dist.DiscreteUniform(1, 3), [1.0, 2.0, 3.0]),
    "beta": lambda: drawn(dist.Beta(2.0, 2.0), [0.0, 1e-9, 0.5, 1.0]),  # NumPyro has the ends in the support
    "uniform to 2": lambda: drawn(dist.Uniform(0.0, 2.0), [0.0, 0.5, 1.5, 2.0]),
    "uniform around 0": lambda: drawn(dist.Uniform(-1.0, 1.0), [-1.0, -0.5, 0.5, 1.0]),
    "gamma": lambda: drawn(dist.Gamma(2.0, 1.0), POSITIVE),
    "log-normal": lambda: drawn(dist.LogNormal(0.0, 1.0), POSITIVE),
    "Laplace": lambda: drawn(dist.Laplace(0.0, 1.0), REAL),
    "truncated": lambda: drawn(dist.TruncatedNormal(1.0, 1.0, low=0.5, high=1.5), [0.5, 0.7, 1.5]),
    "an illegal cost": illegal,
    "a cost out of reach": unreachable,
    "riverswim": riverswim,
    "six arms": lambda: table(bm.envs.six_arms(), mean_of(bm.envs.six_arms())),
    "two action chain": lambda: table(bm.envs.two_action_chain(4), lambda *_: REAL),
    "frozen lake": lambda: gym_table("FrozenLake-v1"),
    "cliff walking": lambda: gym_table("CliffWalking-v1"),
}


class Law(NamedTuple):
    """A prior of a space, and whether its reward law can give a number, whatever is unknown."""

    prior: Callable[[], Any]
    gives: Callable[[float], bool]


def _program(law: Callable[[Any], dist.Distribution], site: dist.Distribution | None = None) -> Any:
    def program(space):
        rows = supported_dirichlet(1.0, space)
        value = None
        if site is not None:
            with space.plates():
                value = numpyro.sample("reward", site)
        reward = law(value)
        return MDPSpec(rows, reward.expand(space.shape) if site is None else reward)

    return program


def _two_kinds(space):
    """Bernoulli rewards, more often 1 or more often 0: a mixture of two posteriors."""
    kind = numpyro.sample("kind", dist.CategoricalProbs(np.array([0.5, 0.5])))
    rows = supported_dirichlet(1.0, space)
    with space.plates():
        probs = numpyro.sample("reward", dist.Beta(jnp.array([1.0, 3.0])[kind], jnp.array([3.0, 1.0])[kind]))
    return MDPSpec(rows, dist.Bernoulli(probs))


def _whole(x: float) -> bool:
    return float(x).is_integer()


LAWS: dict[str, Law] = {
    "normal": Law(bm.models.dirichlet_normal, lambda x: True),
    "normal, unknown variance": Law(bm.models.dirichlet_normal_gamma, lambda x: True),
    "Bernoulli": Law(bm.models.dirichlet_bernoulli, lambda x: x in (0, 1)),
    "Poisson": Law(bm.models.dirichlet_poisson, lambda x: x >= 0 and _whole(x)),
    "exponential": Law(lambda: _program(dist.Exponential, dist.Gamma(3.0, 1.0)), lambda x: x > 0),
    "log-normal": Law(lambda: _program(lambda m: dist.LogNormal(m, 1.0), dist.Normal(0.0, 1.0)), lambda x: x > 0),
    "binomial of 3": Law(
        lambda: _program(lambda p: dist.Binomial(3, probs=p), dist.Beta(1.0, 1.0)), lambda x: x in (0, 1, 2, 3)
    ),
    "geometric": Law(
        lambda: _program(lambda p: dist.Geometric(probs=p), dist.Beta(3.0, 1.0)), lambda x: x >= 0 and _whole(x)
    ),
    "categories 0 to 3": Law(
        lambda: _program(dist.CategoricalProbs, dist.Dirichlet(np.ones(4))), lambda x: x in (0, 1, 2, 3)
    ),
    "known": Law(lambda: bm.models.known_rewards(1.0), lambda x: x == 1),
    "known law": Law(lambda: _program(lambda _: dist.Uniform(0.0, 2.0)), lambda x: 0 <= x <= 2),
    "mixture": Law(lambda: _two_kinds, lambda x: x in (0, 1)),
}


def fits(world: World, law: Law) -> bool:
    """Whether the law can give everything that the environment pays."""
    return all(law.gives(x) for values in world.paid.values() for x in values)


def transitions(world: World) -> bm.Transitions:
    """Each transition once with each reward of `paid`."""
    rows = [(s, a, y, r) for (s, a, y), values in world.paid.items() for r in values]
    state, action, outcome, reward = (np.array(column) for column in zip(*rows, strict=True))
    size = world.env.mdp.n_states
    ended = outcome == size if world.env.mdp.end_probs is not None else None
    return bm.Transitions(state, action, reward, np.minimum(outcome, size - 1), ended)
