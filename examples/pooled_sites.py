"""Eight plants, one kind of machine: what does one plant's log say about the others, and what is it worth?

    python examples/pooled_sites.py [--full] [picture.png]

Every month a machine of a plant runs, is serviced or is replaced. Its wear is new, worn, poor or broken. A month of
running makes it one level worse with a probability that depends on plant and wear; a service makes it one level better
with another. These 48 numbers are unknown; output and costs are known. Three priors, all over the same joint MDP of
plants and wear:

* `no_pooling`: every plant for itself;
* `full_pooling`: all plants have the same probabilities;
* `partial_pooling`: the probabilities of the plants scatter around typical ones; what is typical, and how much plants
  scatter, is unknown too.

They are compared by what they predict, by the values of policies that they claim, and by what posterior sampling loses
while it learns. Without `--full`: few worlds and seeds, about three minutes of one core.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.figure import Figure

import bayes_mdp as bm

if TYPE_CHECKING:
    import xarray as xr

Prior = Callable[[bm.StateActionSpace], bm.models.MDPSpec]

WEAR, ACTIONS = ("new", "worn", "poor", "broken"), ("run", "service", "replace")
PLANTS, LEVELS = 8, len(WEAR)
OUTPUT, SERVICE, REPLACEMENT = np.array([10.0, 8.0, 4.0, -20.0]), 8.0, 30.0  # a month; broken: a rented machine
TWO_YEARS = bm.Episodic(24)
# Beta(a, b) of the probability of a change: by running (one level worse), by a service (one level better).
BEFORE = np.array([[1.0], [1.0]]), np.array([[2.0], [1.0]])
ALIKE = dist.LogNormal(np.log(10.0), 1.0)
"""How alike plants are: one plant's log counts for another as much as so many months of its own."""
POLICIES = {
    "replace when broken": (0, 0, 0, 2),
    "replace when poor": (0, 0, 2, 2),
    "service when poor": (0, 0, 1, 2),
    "service when worn": (0, 1, 1, 2),
}
"""By wear, for every plant."""
MONTHS = (240, 120, 120, 60, 60, 24, 12, 0)
"""How long the log of each plant is."""
TRIAL = np.array([0.7, 0.2, 0.1])
"""Shares of the actions in the log, whatever the wear is."""


# The joint MDP and the three priors.


def plants(number: int = PLANTS) -> bm.StateActionSpace:
    """States (plant, wear), listed plant by plant. A pair has two outcomes at most: wear as it is, and one other.

    Args:
        number: of plants.
    """
    level = np.arange(LEVELS)
    worse, better = np.where(level < LEVELS - 1, level + 1, -1), level - 1  # -1: there is none
    follows = np.stack([[level, worse], [level, better], [0 * level, 0 * level - 1]]).transpose(2, 0, 1)
    listed = [np.where(follows < 0, -1, follows + LEVELS * plant) for plant in range(number)]
    names = [f"plant {plant + 1}, {wear}" for plant in range(number) for wear in WEAR]
    return bm.StateActionSpace(
        number * LEVELS, len(ACTIONS), states=names, actions=ACTIONS, successors=np.concatenate(listed)
    )


def rewards(number: int = PLANTS) -> Float[np.ndarray, "S 3"]:
    """What a month brings, by state and action."""
    by_wear = np.stack([OUTPUT, OUTPUT - SERVICE, np.full(LEVELS, -REPLACEMENT)], axis=1)
    return np.tile(by_wear, (number, 1))


def spec(change: Float[Array, "n 2 3"]) -> bm.models.MDPSpec:
    """The law of a month.

    Args:
        change: [plant, run or service, wear], the probability that the wear changes: by running from new, worn, poor;
            by a service of worn, poor, broken.
    """
    number = len(change)
    moves = jnp.zeros((number, LEVELS, len(ACTIONS)))
    moves = moves.at[:, :-1, 0].set(change[:, 0]).at[:, 1:, 1].set(change[:, 1])
    rows = jnp.stack([1 - moves, moves], axis=-1)  # wear as it is, the other
    return bm.models.MDPSpec(rows.reshape(-1, len(ACTIONS), 2), rewards(number))


def before() -> dist.Distribution:
    """Law of the probabilities of one plant [2, 3] where nothing is known."""
    return dist.Beta(*(np.broadcast_to(x, (2, LEVELS - 1)) for x in BEFORE))


def no_pooling(space: bm.StateActionSpace) -> bm.models.MDPSpec:
    """Every plant for itself."""
    with numpyro.plate("plant", space.n_states // LEVELS, dim=-3):
        return spec(jnp.asarray(numpyro.sample("change", before())))


def full_pooling(space: bm.StateActionSpace) -> bm.models.MDPSpec:
    """All plants alike."""
    change = jnp.asarray(numpyro.sample("change", before().to_event(2)))
    return spec(jnp.broadcast_to(change, (space.n_states // LEVELS, *change.shape)))


def partial_pooling(space: bm.StateActionSpace) -> bm.models.MDPSpec:
    """Probabilities of the plants scatter around typical ones, as much as `alike` says."""
    typical = jnp.asarray(numpyro.sample("typical", before().to_event(2)))
    alike = jnp.asarray(numpyro.sample("alike", ALIKE))
    return around(typical, alike, space)


def around(
    typical: Float[Array, "2 3"], alike: Float[Array, ""] | float, space: bm.StateActionSpace
) -> bm.models.MDPSpec:
    """Probabilities ~ Beta(alike typical, alike (1 - typical)) in every plant."""
    with numpyro.plate("plant", space.n_states // LEVELS, dim=-3):
        return spec(jnp.asarray(numpyro.sample("change", dist.Beta(alike * typical, alike * (1 - typical)))))


PRIORS: dict[str, Prior] = {f.__name__: f for f in (no_pooling, full_pooling, partial_pooling)}


def plugged_in(posterior: object) -> Prior:
    """The prior in which an estimate stands for what is typical and how alike plants are, as if it were known.

    Args:
        posterior: of `partial_pooling`; its mean and its geometric mean are the estimate.
    """
    assert isinstance(posterior, bm.inference.CollapsedPosterior)
    drawn, weights = posterior.hyperparameters, np.asarray(posterior.weights, float)
    typical = jnp.asarray(np.average(drawn["typical"], axis=0, weights=weights))
    alike = float(np.exp(weights @ np.log(drawn["alike"])))
    return lambda space: around(typical, alike, space)


# Logs, predictions, values.


def world(key: PRNGKeyArray, truth: Prior, space: bm.StateActionSpace) -> bm.SparseMDP:
    """Plants drawn from a prior."""
    return listed(bm.models.random_environment(key, truth, space).mdp)


def listed(mdp: bm.MDP | bm.SparseMDP) -> bm.SparseMDP:
    """The same: an MDP of a space that lists its successors does so too."""
    assert isinstance(mdp, bm.SparseMDP)
    return mdp


def log_of(rng: np.random.Generator, mdp: bm.SparseMDP, months: Sequence[int]) -> bm.Transitions:
    """A log of so many months of each plant, from a new machine; actions are drawn by `TRIAL`."""
    probability, successor = np.asarray(mdp.probability), np.asarray(mdp.successor)
    rows: list[tuple[int, int, int]] = []
    for plant, number in enumerate(months):
        state = plant * LEVELS
        for action in rng.choice(len(TRIAL), size=number, p=TRIAL):
            row = probability[state, action] / probability[state, action].sum()
            rows.append((state, int(action), int(rng.choice(successor[state, action], p=row))))
            state = rows[-1][-1]
    state, action, then = np.array(rows, int).reshape(-1, 3).T
    return bm.Transitions(state, action, rewards(len(months))[state, action], then)


def log_predictive(posterior: bm.mdp.CanMean, log: bm.Transitions) -> Float[np.ndarray, " N"]:
    """Log-probability of each next state, each by itself: that of the mean row, whatever the prior is.

    Args:
        posterior: of any of the priors.
        log: transitions that the posterior has not seen.
    """
    mean = listed(posterior.mean_mdp())
    follows = np.asarray(mean.successor)[log.state, log.action] == np.asarray(log.next_state)[:, None]
    chances = np.asarray(mean.probability)[log.state, log.action]
    return np.log((chances * follows).sum(-1))


def new_machine(plant: int, number: int = PLANTS) -> Float[np.ndarray, " S"]:
    """The distribution of the first state: a new machine in this plant (from 0)."""
    return np.eye(number * LEVELS)[plant * LEVELS]


def by_plants(policy: Sequence[int], number: int = PLANTS) -> np.ndarray:
    """A policy by wear as one by state."""
    return np.tile(policy, number)


def values(mdp: bm.SparseMDP) -> Float[Array, "policy plant"]:
    """What the policies are worth in two years, from a new machine. Traceable."""
    return jnp.stack([bm.evaluate(mdp, by_plants(p), TWO_YEARS).v[0, ::LEVELS] for p in POLICIES.values()])


@eqx.filter_jit
def draws(key: PRNGKeyArray, posterior: bm.mdp.CanSample, number: int) -> bm.SparseMDP:
    """Draws of a posterior, compiled once for each program."""
    return listed(posterior.sample(key, (number,)))


values_of_draws = jax.jit(jax.vmap(values))
"""[draw, policy, plant], of MDPs with a leading axis."""


def from_log(key: PRNGKeyArray) -> None:
    """One log of eight plants: what each prior predicts, and what it says of the policies in plants with few data."""
    space, rng = plants(), np.random.default_rng(0)
    truth = world(key, partial_pooling, space)
    log, later = log_of(rng, truth, MONTHS), log_of(rng, truth, [200] * PLANTS)
    few = later.state // LEVELS >= PLANTS - 3
    true = dict(zip(POLICIES, np.asarray(values(truth)), strict=True))
    for name, prior in PRIORS.items():
        posterior = bm.infer(key, prior, log, space=space)
        score = log_predictive(posterior, later)
        print(f"\n{name}: {posterior.method}, {bm.calibration.predictive_loo(posterior, log)}")
        print(f"  later months: {score.mean():.4f} nats a month, {score[few].mean():.4f} in the plants 6 to 8")
        for plant in (0, 6, 7):
            found = bm.compare_policies(
                key,
                posterior,
                {n: by_plants(p) for n, p in POLICIES.items()},
                TWO_YEARS,
                initial=new_machine(plant),
                num_draws=1000,
            )
            best = max(found.values, key=lambda n: found.values[n].mean)
            (low, high), truly = found.values[best].interval, max(true, key=lambda n: true[n][plant])
            print(
                f"  plant {plant + 1} ({MONTHS[plant]} months): {best}, value {found.values[best].mean:.0f} "
                f"[{low:.0f}, {high:.0f}], true {true[best][plant]:.0f}; truly the best: {truly}"
            )
        if isinstance(posterior, bm.inference.CollapsedPosterior):
            print(f"  plants are alike as {float(posterior.weights @ posterior.hyperparameters['alike']):.1f} months")


def calibration(
    key: PRNGKeyArray, truth: Prior, num_worlds: int, sampler: bm.inference.NUTS = bm.inference.NUTS(300, 400, 2)
) -> "xr.Dataset":
    """Worlds drawn from `truth`, a log of each: are the values that a belief claims those of the world?

    Returns:
        By belief (the three priors, and "plugged in") and world: `score`, the mean log-probability of a month of a
        later log, in nats; for the plants 6, 7 and 8 (24, 12 and no months) `inside`, whether the central 90 % interval
        of the value of "replace when poor" holds the true one, `width` of the interval, and `loss`, by how much the
        policy with the largest mean is worse than the best of the four.
    """
    import xarray as xr

    space, names = plants(), [*PRIORS, "plugged in"]
    small = (PLANTS - 3, PLANTS - 2, PLANTS - 1)
    table = {n: np.zeros((len(names), num_worlds, len(small))) for n in ("inside", "width", "loss")}
    score = np.zeros((len(names), num_worlds))

    for w in range(num_worlds):
        own = jax.random.fold_in(key, w)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(own)))
        real = world(own, truth, space)
        log, later = log_of(rng, real, MONTHS), log_of(rng, real, [100] * PLANTS)
        posteriors = {n: bm.infer(own, p, log, space=space, sampler=sampler) for n, p in PRIORS.items()}
        plugged = bm.infer(own, plugged_in(posteriors["partial_pooling"]), log, space=space)
        posteriors["plugged in"] = plugged
        true = np.asarray(values(real))[:, small]
        for b, name in enumerate(names):
            score[b, w] = log_predictive(posteriors[name], later).mean()
            # An estimate makes a new program of every world: compiling its draws would not pay.
            sampled = listed(plugged.sample(own, (400,))) if name == "plugged in" else draws(own, posteriors[name], 400)
            drawn = np.asarray(values_of_draws(sampled))[:, :, small]
            chosen, mine = drawn.mean(0).argmax(0), list(POLICIES).index("replace when poor")
            low, high = np.quantile(drawn[:, mine], [0.05, 0.95], axis=0)
            table["inside"][b, w] = (low <= true[mine]) & (true[mine] <= high)
            table["width"][b, w] = high - low
            table["loss"][b, w] = true.max(0) - np.take_along_axis(true, chosen[None], 0)[0]
    return xr.Dataset(
        {"score": (("belief", "world"), score)} | {n: (("belief", "world", "plant"), x) for n, x in table.items()},
        coords={"belief": names, "plant": [p + 1 for p in small]},
    )


# Exploration.


def agents() -> dict[str, bm.mdp.Agent]:
    """Who explores."""
    return {"PSRL": bm.agents.PSRL()}


def explore(
    key: PRNGKeyArray, truth: Prior, agent: bm.mdp.Agent, num_episodes: int, num_seeds: int
) -> "dict[str, xr.Dataset]":
    """Two years each at a plant drawn at random, again and again: cumulative regret of the agent, by its prior.

    Every seed has plants of its own, drawn from `truth`, the same for all priors.
    """
    space = plants()
    start = np.mean([new_machine(plant) for plant in range(PLANTS)], axis=0)
    outline = bm.models.random_environment(key, truth, space, initial=start)
    options = bm.experiments.RunOptions(space=space, env_prior=truth, num_particles=32, progress=False, regret="bayes")
    more = {"objective": TWO_YEARS, "num_episodes": num_episodes, "num_seeds": num_seeds}
    return {n: bm.run(agent, outline, key=key, prior=p, options=options, **more) for n, p in PRIORS.items()}


def interval(x: Float[np.ndarray, " N"]) -> str:
    """Mean over seeds and 95 % interval, in words."""
    half = 1.96 * x.std(ddof=1) / np.sqrt(len(x))
    return f"{x.mean():6.0f} +- {half:3.0f}"


def picture(results: "Mapping[str, Mapping[str, xr.Dataset]]") -> Figure:
    """Cumulative regret, a panel for each truth and agent."""
    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    panels = figure.subplots(1, len(results), sharey=True)
    for axes, (name, runs) in zip(np.atleast_1d(panels), results.items(), strict=True):
        bm.plots.plot_regret(dict(runs), axes=axes)
        axes.set(title=f"plants drawn from {name}", xlabel="episode of two years")
    return figure


TRUTHS = {"partial_pooling": partial_pooling, "full_pooling": full_pooling, "no_pooling": no_pooling}


def main(path: str | Path = "pooled_sites.png", *, full: bool = False) -> None:
    """The three comparisons, printed; a picture of the regrets."""
    space = plants()
    for name, prior in PRIORS.items():
        print(f"{name}: {bm.explain(prior, space).route}")
    from_log(jax.random.key(3))
    worlds, episodes, seeds = (100, 160, 100) if full else (8, 48, 12)
    for name in TRUTHS if full else ["partial_pooling"]:
        found = calibration(jax.random.key(1), TRUTHS[name], worlds).mean("world")
        print(f"\n{worlds} worlds drawn from {name}; 90 % intervals of values in plants 6, 7, 8 (24, 12, 0 months)")
        for belief in found.belief.values:
            row = found.sel(belief=belief)
            print(
                f"  {belief:16}{row.score.item():8.4f} nats   inside {np.round(row.inside.values, 2)}   "
                f"width {np.round(row.width.values)}   loss {np.round(row.loss.values, 1)}"
            )
    results = {}
    for truth, law in TRUTHS.items():
        for agent, player in agents().items():
            print(f"\nRegret of {agent} after {episodes // 4}, {episodes} episodes; plants drawn from {truth}")
            runs = explore(jax.random.key(0), law, player, episodes, seeds)
            regret = {n: r["regret"].values[:, [episodes // 4 - 1, -1]] for n, r in runs.items()}
            for name, x in regret.items():
                behind = (x - regret["partial_pooling"])[:, 1]
                print(
                    f"  {name:16}{interval(x[:, 0])}   {interval(x[:, 1])}   more than partial: {interval(behind)}"
                    if name != "partial_pooling"
                    else f"  {name:16}{interval(x[:, 0])}   {interval(x[:, 1])}"
                )
            results[f"{truth}, {agent}"] = runs
    picture(results).savefig(path, dpi=120)


if __name__ == "__main__":
    rest = [x for x in sys.argv[1:] if x != "--full"]
    main(*rest, full="--full" in sys.argv)
