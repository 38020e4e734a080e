"""[UBE18] (O'Donoghue et al. 2018) figure 2: Thompson sampling by variances against a bonus by counts.

The two-action chain of figure 1, played as the two-armed bandit that it is: a pull of the chain is its discounted sum.
How uncertain each action is after n pulls comes from `ube.solve` and `mean_mdp_plans.bonus_values` on the chain itself.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.agents.optimism import mean_mdp_plans
from bayes_mdp.agents.value_uncertainty import ube
from bayes_mdp.envs import two_action_chain
from bayes_mdp.experiments.results import half_width
from bayes_mdp.inference.route import infer
from bayes_mdp.mdp import Discounted, Environment, StateActionSpace, Transitions
from bayes_mdp.utils.progress import Progress
from bayes_mdp.utils.validation import check_count, check_key, require
from reproductions.reproduction import Reproduction, Row

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from bayes_mdp.models import MDPSpec

MEAN_STOP, MEAN_CHAIN, SCALE, DISCOUNT = 1.0, 0.0, 1.0, 0.9
BETAS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
TIMES = (10, 50, 100, 500, 1000)
PUBLISHED = {"UBE": (2.07, 4.81, 6.12, 9.87, 11.36), "bonus": (4.31, 17.2, 24.9, 46.8, 58.1)}
BANDS = {"UBE": (8.0, 14.0), "bonus": (45.0, float("inf")), "ratio": (3.0, float("inf"))}
SEEDS_AT_ONCE = 100


def known_chain(env: Environment, *, width: float = 1e3) -> Any:
    """The belief of figure 1 as a prior program: known transitions and noise, unknown mean rewards.

    Args:
        env: a `two_action_chain`.
        width: standard deviation of a mean reward, in units of the noise of its pair; the larger, the nearer to the
            improper prior of the paper: the posterior variance is noise^2 / (n + width^-2).
    """
    mdp: Any = env.mdp
    law: Any = env.reward_law
    rows = np.concatenate([np.asarray(mdp.transition_probs), np.asarray(mdp.end_probs)[..., None]], -1)
    noise = np.asarray(law.scale)

    def prior(space: StateActionSpace) -> "MDPSpec":
        import numpyro
        import numpyro.distributions as dist

        from bayes_mdp.models import MDPSpec

        with space.plates():
            mean = numpyro.sample("reward", dist.Normal(0.0, width * noise))
        return MDPSpec(rows, dist.Normal(mean, noise))

    return prior


def unit_spreads(depth: int = 100) -> Float[np.ndarray, "2 2"]:
    """Uncertainty of both actions of the root after one trial of each, in units of the reward: rows UBE, bonus.

    After n trials it is this over sqrt(n). By UBE the standard deviation of the value, sigma for both actions; by
    counts the propagated bonus, sigma and sigma sqrt((1 + g) / (1 - g)). Host side.

    Args:
        depth: of the truncated chain.

    Raises:
        ArithmeticError: the library does not find these numbers, to 1e-4 and the truncation.
    """
    env = two_action_chain(depth, discount=DISCOUNT, mean_stop=MEAN_STOP, mean_chain=MEAN_CHAIN, scale=SCALE)
    space = StateActionSpace(depth, 2, ends=True, legal=np.asarray(env.mdp.legal))
    posterior: Any = infer(jax.random.key(0), known_chain(env), _one_trial_of_each(depth), space=space)
    objective, policy = Discounted(DISCOUNT), np.zeros(depth, int)
    law: Any = env.reward_law

    @jax.jit
    def of_root(posterior: Any) -> Array:
        mean = posterior.mean_mdp()
        local = mean_mdp_plans.local_bonus(mean, posterior.visit_counts(), objective, reward_sd=law.scale)
        bonus = mean_mdp_plans.bonus_values(mean, local, policy, objective)
        return jnp.stack([ube.solve(posterior, policy, objective).q_sd[0], bonus.q[0]])

    found = np.asarray(of_root(posterior))
    expected = SCALE * np.array([[1.0, 1.0], [1.0, np.sqrt((1 + DISCOUNT) / (1 - DISCOUNT))]])
    if np.any(np.abs(found / expected - 1) > 1e-4 + DISCOUNT**depth):
        raise ArithmeticError(f"uncertainties of the root are {found.tolist()}, expected {expected.tolist()}")
    return found


def _one_trial_of_each(depth: int) -> Transitions:
    """An episode of each action; the rewards do not matter for how uncertain the values are."""
    state = np.concatenate([[0], np.arange(depth)])
    action = np.eye(depth + 1, dtype=int)[1]
    next_state = np.concatenate([[0], np.minimum(np.arange(depth) + 1, depth - 1)])
    ended = np.isin(np.arange(depth + 1), (0, depth))
    return Transitions(state, action, np.zeros(depth + 1), next_state, ended)


class Rule(NamedTuple):
    """An agent of the bandit: index of an arm = mean + (noise * N(0, 1) + beta * log t) * spread / sqrt(n + prior).

    Args:
        noise: 1 for Thompson sampling, 0 for a bonus.
        beta: of the bonus.
        spread: Float[2], uncertainty of each arm after one pull.
        prior_visits: of each arm, at mean 0. With none, an arm without a pull comes first.
    """

    noise: Any
    beta: Any
    spread: Any
    prior_visits: Any = 0.0


def pulls(
    key: PRNGKeyArray, rule: Rule, means: Float[Array, " 2"], scale: Any, num_episodes: int
) -> Bool[Array, " num_episodes"]:
    """Whether each episode pulls arm 1, the chain. Pure and traceable; one agent, one seed.

    Args:
        key: of the noise of rewards and of the agent.
        rule: the agent.
        means: expected reward of a pull.
        scale: standard deviation of a pull, a number or [2].
        num_episodes: length.
    """

    def episode(carry: tuple[Array, Array], t: Any) -> tuple[tuple[Array, Array], Array]:
        n, total = carry
        z = jax.random.normal(jax.random.fold_in(key, t), (3,))
        weight = n + rule.prior_visits
        safe = jnp.where(weight > 0, weight, 1.0)
        index = total / safe + (rule.noise * z[:2] + rule.beta * jnp.log(t)) * rule.spread / jnp.sqrt(safe)
        index = jnp.where(weight > 0, index, jnp.inf)
        chain = index[1] > index[0]
        pulled = jnp.stack([~chain, chain])
        return (n + pulled, total + pulled * (means + scale * z[2])), chain

    times = jnp.arange(1, num_episodes + 1, dtype=float)
    return lax.scan(episode, (jnp.zeros(2), jnp.zeros(2)), times)[1]


def ube_fig2(
    *,
    key: PRNGKeyArray,
    num_episodes: int = 1000,
    num_seeds: int = 500,
    betas: Sequence[float] = BETAS,
    depth: int = 100,
) -> "xr.Dataset":
    """Cumulative regret of Thompson sampling by UBE and of bonuses by counts, mu = (1, 0), sigma 1, discount .9.

    An episode is one decision at the root; it costs 1 to choose the chain. All agents meet the same random numbers;
    seed i has a key of its own.

    Args:
        key: a typed key.
        num_episodes, num_seeds: 1000 and 500 for the published numbers.
        betas: scales of the bonus beta log(t) sd / sqrt(n).
        depth: of the chain from which the uncertainties come.

    Returns:
        A Dataset: `regret` [agent, seed, checkpoint], cumulative, with the coordinates `beta` (NaN for UBE) and `time`
        (episodes so far); `spread` [rule, arm], see `unit_spreads`.

    Raises:
        ValueError, TypeError: a count below 1, no beta, a beta that is negative or not finite, no typed key.
    """
    check_key("key", key)
    check_count("num_episodes", num_episodes)
    check_count("num_seeds", num_seeds)
    sizes = np.asarray(betas, float)
    if not sizes.size:
        raise ValueError("betas is empty, expected at least one scale of the bonus")
    require(~(np.isfinite(sizes) & (sizes >= 0)), "betas", sizes, "a finite number, zero or greater")
    spread = unit_spreads(depth)
    which = np.array([0] + [1] * len(sizes))
    rules = Rule(*(jnp.asarray(x, float) for x in (1 - which, [0.0, *sizes], spread[which], np.zeros(len(which)))))
    chosen = _play(key, rules, num_episodes, num_seeds)
    lost = (MEAN_STOP - MEAN_CHAIN / (1 - DISCOUNT)) * np.cumsum(chosen, -1, dtype=float)
    return _dataset(lost, sizes, spread)


def _play(key: PRNGKeyArray, rules: Rule, num_episodes: int, num_seeds: int) -> Bool[np.ndarray, "N seeds episodes"]:
    """All agents and seeds, some seeds at a time, one compiled program."""
    means = jnp.array([MEAN_STOP, MEAN_CHAIN / (1 - DISCOUNT)])

    @jax.jit
    def some(seeds: Array) -> Array:
        keys = jax.vmap(partial(jax.random.fold_in, key))(seeds)
        one = lambda key, rule: pulls(key, rule, means, SCALE, num_episodes)  # noqa: E731
        return jax.vmap(jax.vmap(one, (0, None)), (None, 0))(keys, rules)

    at_once = min(num_seeds, SEEDS_AT_ONCE)
    chunks = -(-num_seeds // at_once)
    played = []
    with Progress(len(rules.beta) * at_once * num_episodes, chunks) as progress:
        for i in range(chunks):
            played.append(np.asarray(some(i * at_once + jnp.arange(at_once))))
            progress.advance(i + 1)
    return np.concatenate(played, 1)[:, :num_seeds]


def _dataset(lost: Float[np.ndarray, "N seeds episodes"], betas: np.ndarray, spread: np.ndarray) -> "xr.Dataset":
    import xarray as xr

    num_episodes = lost.shape[-1]
    spaced = np.geomspace(1, num_episodes, 60).round().astype(int)
    times = np.unique([*spaced, *(t for t in TIMES if t <= num_episodes)])
    return xr.Dataset(
        {
            "regret": (("agent", "seed", "checkpoint"), lost[..., times - 1], {"long_name": "cumulative regret"}),
            "spread": (("rule", "arm"), spread, {"long_name": "uncertainty after one pull"}),
        },
        coords={
            "agent": ["UBE", *(f"bonus, beta {beta:g}" for beta in betas)],
            "beta": ("agent", [np.nan, *betas]),
            "seed": np.arange(lost.shape[1]),
            "time": ("checkpoint", times),
            "rule": ["UBE", "bonus"],
            "arm": ["stop", "chain"],
        },
    )


def best_bonus(result: "xr.Dataset") -> int:
    """Index of the bonus of the smallest mean regret at the end."""
    return 1 + int(result["regret"].to_numpy()[1:, :, -1].mean(1).argmin())


def rows(result: "xr.Dataset") -> list[Row]:
    """The table: uncertainties of the chain, regret of UBE and of the best bonus, and their ratio at the end."""
    regret, times = result["regret"].to_numpy(), result["time"].to_numpy().tolist()
    (_, by_ube), (_, by_counts) = (result["spread"].to_numpy() / SCALE).tolist()
    exact = float(np.sqrt((1 + DISCOUNT) / (1 - DISCOUNT)))
    table = [
        Row("UBE: sd of the chain, times sqrt(n) / sigma", 1.0, by_ube, band=(1 - 1e-4, 1 + 1e-4)),
        Row("bonus of the chain, times sqrt(n) / sigma", exact, by_counts, band=(exact - 1e-3, exact + 1e-3)),
    ]
    by_name = {"UBE": regret[0], "bonus": regret[best_bonus(result)]}
    for name, samples in by_name.items():
        label = "UBE" if name == "UBE" else "best bonus"
        for time, published in zip(TIMES, PUBLISHED[name], strict=True):
            if time in times:
                at = samples[:, times.index(time)]
                band = BANDS[name] if time == TIMES[-1] else None
                table.append(Row(f"{label}, t = {time}", published, float(at.mean()), _half(at), band))
    if TIMES[-1] in times:
        at = times.index(TIMES[-1])
        table.append(_ratio(by_name["bonus"][:, at], by_name["UBE"][:, at]))
    return table


def _ratio(above: np.ndarray, below: np.ndarray) -> Row:
    """The ratio of two means over the same seeds, its interval by linearisation."""
    ratio = float(above.mean() / below.mean())
    published = PUBLISHED["bonus"][-1] / PUBLISHED["UBE"][-1]
    half = _half((above - ratio * below) / below.mean())
    return Row(f"best bonus / UBE, t = {TIMES[-1]}", published, ratio, half, BANDS["ratio"])


def _half(samples: np.ndarray) -> float:
    return float(half_width(samples)) if len(samples) > 1 else float("inf")


def figure(result: "xr.Dataset") -> "Figure":
    """Mean cumulative regret over episodes with 95 % intervals, logarithmic axes, as [UBE18] figure 2."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = drawing.subplots()
    time, regret, best = result["time"].to_numpy(), result["regret"].to_numpy(), best_bonus(result)
    shown = time > 1
    for i, name in enumerate(result["agent"].to_numpy()):
        mean = regret[i].mean(0)[shown]
        half = half_width(regret[i])[shown] if regret.shape[1] > 1 else np.zeros_like(mean)
        wide = i in (0, best)
        (line,) = axes.plot(time[shown], mean, linewidth=2.2 if wide else 1.0, label=name + " (best)" * (i == best))
        low = np.maximum(mean - half, 0.5 * mean)  # below zero there is no logarithm
        axes.fill_between(time[shown], low, mean + half, alpha=0.2, linewidth=0, color=line.get_color())
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("episode")
    axes.set_ylabel("cumulative regret")
    axes.set_title(f"Two-action chain: mean of {result.sizes['seed']} seeds, 95 % interval")
    axes.legend()
    return drawing


REPRODUCTION = Reproduction(
    source="[UBE18] figure 2: Thompson sampling by variances, bonuses by counts",
    run=ube_fig2,
    rows=rows,
    figure=figure,
    quick={"num_seeds": 200},
    seconds={"quick": 9.0, "full": 10.0},
)
