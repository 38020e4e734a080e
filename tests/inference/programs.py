"""Twelve prior programs as a user would write them: six that are conjugate, six impostors.

Each accepted one carries its own oracle, written without the library: which site row a pair uses, what each outcome of
it is called there, and which reward element a pair uses.
"""

# `numpyro.sample` is typed to return any ArrayLike, and records as JAX arrays: too narrow for tests.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from scipy import stats

from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec, NormalGamma, normal

NORMAL_GAMMA = {"loc": 0.3, "pseudo_count": 2.0, "concentration": 1.5, "rate": 0.7}


class Accepted(NamedTuple):
    """A conjugate program and its oracle.

    Args:
        prior, space: the program.
        row: (step, state, action) -> (site row, {outcome: concentration}).
        cell: (step, state, action) -> reward element.
        law: family of the reward law.
        sites: names of its latent sites.
        independent: whether no element serves two pairs.
    """

    prior: Callable[[StateActionSpace], MDPSpec]
    space: StateActionSpace
    row: Callable[[int, int, int], tuple[Hashable, dict[int, float]]]
    cell: Callable[[int, int, int], Hashable]
    law: str
    sites: tuple[str, ...]
    independent: bool = True


class Impostor(NamedTuple):
    """A program without a closed form, the site that must be named, and a word of the reason."""

    prior: Callable[[StateActionSpace], MDPSpec]
    site: str
    reason: str


SPACE = StateActionSpace(3, 2)
LAYERED = StateActionSpace(3, 2, horizon=4)
LINE = StateActionSpace(4, 2, ends=True)


def renamed(space):
    """Other names, and other words: a Dirichlet with event dims, a normal-gamma from two plain sites."""
    alpha = 0.5 + jnp.arange(3.0)
    with space.plates():
        where = numpyro.sample("wohin", dist.Dirichlet(alpha))
        noise = numpyro.sample("tau", dist.Gamma(NORMAL_GAMMA["concentration"], NORMAL_GAMMA["rate"]))
        mean = numpyro.sample("mu", dist.Normal(NORMAL_GAMMA["loc"], (NORMAL_GAMMA["pseudo_count"] * noise) ** -0.5))
    return MDPSpec(where, reward=dist.Normal(mean, noise**-0.5))


def swapped(space):
    """Actions before states in the sites, turned round in the law."""
    with numpyro.plate("a", 2, dim=-2), numpyro.plate("s", 3, dim=-1):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.array([2.0, 1.0, 0.5])))
        reward = numpyro.sample("reward", NormalGamma(**NORMAL_GAMMA))
    return MDPSpec(jnp.swapaxes(rows, 0, 1), reward=normal(jnp.swapaxes(reward, 0, 1)))


def tied(space):
    """One row, and one probability of a reward, for both actions of a state."""
    with space.plates("state"):
        rows = numpyro.sample("transition", dist.Dirichlet(jnp.ones(3)))
        paid = numpyro.sample("paid", dist.Beta(1.5, 0.5))
    return MDPSpec(rows, reward=dist.Bernoulli(logits=jnp.log(paid) - jnp.log1p(-paid)))


KIND = np.array([[0, 1], [1, 1], [2, 0]])


def gathered(space):
    """Three kinds of road, six pairs; Poisson rewards by kind."""
    with numpyro.plate("kind", 3):
        table = numpyro.sample("road", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
        rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))
    return MDPSpec(table[KIND], reward=dist.Poisson(rate[KIND]))


def scattered(space):
    """Stay or step right from states 0 to 2; state 3 ends (known). Rewards are known up to their mean."""
    with numpyro.plate("place", 3, dim=-2), numpyro.plate("move", 2, dim=-1):
        step = numpyro.sample("step", dist.Dirichlet(jnp.array([0.4, 0.6])))
    rows = jnp.zeros((4, 2, 5)).at[3, :, 4].set(1.0)
    for s in range(3):
        rows = rows.at[s, :, s].set(step[s, :, 0]).at[s, :, s + 1].set(step[s, :, 1])
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(1.0, 2.0))
    return MDPSpec(rows, reward=dist.Normal(mean, 0.5))


def layered(space):
    """Its own row at every step; rewards tied over steps."""
    with space.plates():
        rows = numpyro.sample("transition", dist.Dirichlet(0.7 * jnp.ones(3)))
    with space.plates("state", "action"):
        reward = numpyro.sample("reward", NormalGamma(**NORMAL_GAMMA))
    return MDPSpec(rows, reward=normal(reward))


def _row(*alpha):
    return dict(enumerate(alpha))


ACCEPTED = {
    "renamed": Accepted(
        renamed,
        SPACE,
        lambda h, s, a: ((s, a), _row(0.5, 1.5, 2.5)),
        lambda h, s, a: (s, a),
        "normal_gamma",
        ("wohin", "tau", "mu"),
    ),
    "swapped": Accepted(
        swapped,
        SPACE,
        lambda h, s, a: ((s, a), _row(2.0, 1.0, 0.5)),
        lambda h, s, a: (s, a),
        "normal_gamma",
        ("rows", "reward"),
    ),
    "tied": Accepted(
        tied,
        SPACE,
        lambda h, s, a: (s, _row(1.0, 1.0, 1.0)),
        lambda h, s, a: s,
        "bernoulli",
        ("transition", "paid"),
        False,
    ),
    "gathered": Accepted(
        gathered,
        SPACE,
        lambda h, s, a: (int(KIND[s, a]), _row(1.0, 2.0, 3.0)),
        lambda h, s, a: int(KIND[s, a]),
        "poisson",
        ("road", "rate"),
        False,
    ),
    "scattered": Accepted(
        scattered,
        LINE,
        lambda h, s, a: ((s, a), {s: 0.4, s + 1: 0.6} if s < 3 else {4: 1.0}),
        lambda h, s, a: (s, a),
        "normal",
        ("step", "mean"),
    ),
    "layered": Accepted(
        layered,
        LAYERED,
        lambda h, s, a: ((h, s, a), _row(0.7, 0.7, 0.7)),
        lambda h, s, a: (s, a),
        "normal_gamma",
        ("transition", "reward"),
        False,
    ),
}


def _rewards(space):
    with space.plates():
        return normal(numpyro.sample("reward", NormalGamma(**NORMAL_GAMMA)))


def _rows(space, concentration=1.0):
    with space.plates():
        return numpyro.sample("transition", dist.Dirichlet(concentration * jnp.ones(space.n_outcomes)))


def faint_parent(space):
    """The concentration depends on a latent site, with weight 1e-3."""
    drift = numpyro.sample("drift", dist.Normal(0.0, 1.0))
    return MDPSpec(_rows(space, 1.0 + 1e-3 * drift), reward=_rewards(space))


def mean_twice(space):
    """The mean reward of a state, used once by each action, each with a precision of its own: no tie."""
    rows = _rows(space)
    with space.plates():
        noise = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
        mean = numpyro.sample("mu", dist.Normal(0.0, noise**-0.5))
    return MDPSpec(rows, reward=dist.Normal(mean[:, :1], noise**-0.5))


def bare_factor(space):
    """A preference for staying, by a factor."""
    rows = _rows(space)
    numpyro.factor("laziness", jnp.log(rows[0, 0, 0]))
    return MDPSpec(rows, reward=_rewards(space))


def tempered(space):
    """Half a Dirichlet."""
    with handlers.scale(scale=0.5):
        rows = _rows(space)
    return MDPSpec(rows, reward=_rewards(space))


def hidden(space):
    """Two MDPs, and a coin that selects one."""
    rows = _rows(space)
    coin = numpyro.sample("regime", dist.Bernoulli(0.5))
    return MDPSpec(jnp.where(coin, rows, rows[::-1]), reward=_rewards(space))


def reward_of_row(space):
    """The mean reward moves with a transition probability."""
    rows = _rows(space)
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    return MDPSpec(rows, reward=dist.Normal(mean + rows[..., 0], 1.0))


IMPOSTORS: dict[str, Impostor] = {
    "faint_parent": Impostor(faint_parent, "drift", "concentration of site 'transition' depends on it"),
    "mean_twice": Impostor(mean_twice, "mu", "one normal-gamma site"),
    "bare_factor": Impostor(bare_factor, "laziness", "factor"),
    "tempered": Impostor(tempered, "transition", "scale"),
    "hidden": Impostor(hidden, "regime", "the transition law depends on it"),
    "reward_of_row": Impostor(reward_of_row, "transition", "law of the reward depends on it"),
}


def draw_transitions(program: Accepted, size: int, seed: int) -> dict[str, Any]:
    """Invented data that the program can explain: state, action, outcome, reward, step."""
    rng, space = np.random.default_rng(seed), program.space
    step = rng.integers(space.horizon or 1, size=size)
    state, action = rng.integers(space.n_states, size=size), rng.integers(space.n_actions, size=size)
    outcome = np.array([rng.choice(list(program.row(*place)[1])) for place in zip(step, state, action, strict=True)])
    if program.law == "bernoulli":
        reward = rng.integers(2, size=size).astype(float)
    else:
        reward = rng.poisson(2.0, size=size).astype(float) if program.law == "poisson" else rng.normal(size=size)
    return {"state": state, "action": action, "outcome": outcome, "reward": reward, "step": step}


def transitions_of(program: Accepted, data: dict[str, Any]) -> Transitions:
    """The same data as the library takes them; the last outcome of a space with ends is the end."""
    ended = data["outcome"] >= program.space.n_states
    next_state = np.where(ended, data["state"], data["outcome"])
    step = None if program.space.horizon is None else data["step"]
    terminated = ended if program.space.ends else None
    return Transitions(data["state"], data["action"], data["reward"], next_state, terminated=terminated, step=step)


def sequential_evidence(program: Accepted, data: dict[str, Any]) -> float:
    """log p(outcomes, rewards | states, actions) by the chain rule: one predictive density after the other."""
    seen: dict[Any, list[int]] = {}
    paid: dict[Any, list[float]] = {}
    total = 0.0
    for step, state, action, outcome, reward in zip(
        *(data[name] for name in ("step", "state", "action", "outcome", "reward")), strict=True
    ):
        leaf, alpha = program.row(step, state, action)
        # A tied leaf calls an outcome by its position, which may differ from pair to pair.
        place, before = list(alpha).index(outcome), seen.setdefault(leaf, [])
        total += np.log((alpha[outcome] + before.count(place)) / (sum(alpha.values()) + len(before)))
        before.append(place)
        rewards = paid.setdefault(program.cell(step, state, action), [])
        total += _PREDICTIVE[program.law](np.array(rewards), reward)
        rewards.append(reward)
    return float(total)


def _student(rewards: np.ndarray, reward: float) -> float:
    loc, k, a, b = NORMAL_GAMMA.values()
    for x in rewards:
        loc, k, a, b = (k * loc + x) / (k + 1), k + 1, a + 0.5, b + 0.5 * k * (x - loc) ** 2 / (k + 1)
    return stats.t.logpdf(reward, 2 * a, loc, np.sqrt(b * (k + 1) / (a * k)))


def _gaussian(rewards: np.ndarray, reward: float) -> float:
    precision = 1 / 4 + len(rewards) / 0.25
    mean = (1.0 / 4 + rewards.sum() / 0.25) / precision
    return stats.norm.logpdf(reward, mean, np.sqrt(1 / precision + 0.25))


def _coin(rewards: np.ndarray, reward: float) -> float:
    p = (1.5 + rewards.sum()) / (2.0 + len(rewards))
    return np.log(p if reward else 1 - p)


def _negative_binomial(rewards: np.ndarray, reward: float) -> float:
    rate = 0.5 + len(rewards)
    return stats.nbinom.logpmf(reward, 2.0 + rewards.sum(), rate / (rate + 1))


_PREDICTIVE = {"normal_gamma": _student, "normal": _gaussian, "bernoulli": _coin, "poisson": _negative_binomial}
