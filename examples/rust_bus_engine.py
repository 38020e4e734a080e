"""Why was a bus engine replaced? Rust's structural model: estimated, inferred, and asked what a dearer engine would do.

    python examples/rust_bus_engine.py path/to/bus_engine_replacement.csv [picture.png]

Every month Harold Zurcher kept a bus's engine or replaced it, as if he solved an MDP whose costs only he knew, with
shocks to both choices that only he saw (Rust, "Optimal Replacement of GMC Bus Engines", Econometrica 55(5), 1987).
State: mileage since the last replacement in bins 0, 1, ...; keeping costs .001 theta11 a bin, replacing RC, and it
starts again from bin 0; a month adds 0, 1, ... bins with probabilities theta3. With shocks that are centred Gumbel of
scale 1 the probabilities of the choices are the policy of `bm.planning.solve_soft`: its derivatives are all that a
likelihood needs. (`bus_engine.py` asks the other question of these data: given the costs, how good is a policy?)
"""

import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jaxtyping import Array, Float, Int, PRNGKeyArray
from matplotlib.figure import Figure
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, init_to_value
from scipy import optimize

import bayes_mdp as bm
from bayes_mdp.planning.solution import SoftSolution

GROUPS = {1: "g870", 2: "rt50", 3: "t8h203", 4: "a530875", 5: "a530874", 6: "a452374", 7: "a530872", 8: "a452372"}
FULL_MILEAGE = 450_000
MONTHLY = 0.9999
COSTS = ("RC", "theta11")
TYPICAL = np.array([10.0, 2.0])  # where searches start and the prior has its median

LogProbs = tuple[Float[Array, "n 2 *K"], Float[Array, " J *K"]]
"""Of the choices (keep, replace) by bin, and of the increments of a month; with a last axis: their derivatives."""


class Sample(NamedTuple):
    """One entry a bus and month: bin, whether the engine was replaced, and what the month before added to the bin."""

    bin: Int[np.ndarray, " N"]
    replaced: Int[np.ndarray, " N"]
    increment: Int[np.ndarray, " N"]
    n_bins: int

    @property
    def choices(self) -> Float[np.ndarray, "n 2"]:
        """Numbers of months by bin and choice."""
        return np.bincount(2 * self.bin + self.replaced, minlength=2 * self.n_bins).reshape(-1, 2).astype(float)

    @property
    def increments(self) -> Float[np.ndarray, " J"]:
        """Numbers of months that added 0, 1, ... bins."""
        return np.bincount(self.increment).astype(float)

    @property
    def frequencies(self) -> Float[np.ndarray, " J"]:
        """Estimate of theta3 by the mileages alone."""
        return self.increments / self.increments.sum()


def read(path: str | Path, groups: tuple[int, ...], n_bins: int = 90) -> Sample:
    """The published sample of some groups of buses.

    As Rust made it: bins count from 1 and a replacement puts the bus at 0, so that such a month adds a bin at least;
    choices are those of the month after each transition (none of a bus's first month; its last month is a "keep").
    """
    log = pd.read_csv(path).query("model in @models", local_dict={"models": [GROUPS[g] for g in groups]})
    number = lambda miles: np.maximum(np.ceil(miles.to_numpy() * n_bins / FULL_MILEAGE).astype(int), 1)  # noqa: E731
    now, then = number(log.mileage), number(log.next_mileage)
    replaced_later = log.groupby("bus").action.shift(-1, fill_value=0).to_numpy()
    return Sample(then - 1, replaced_later, np.where(log.action == 1, then, then - now), n_bins)


# The model.


def bus_mdp(costs: Float[Array, " 2"], theta3: Float[Array, " J"], n_bins: int) -> bm.MDP:
    """A month of keeping moves a bus on from its bin, a month of replacing from bin 0; the last bin is the end."""
    bins = jnp.arange(n_bins)
    to = jnp.minimum(bins[:, None] + jnp.arange(len(theta3)), n_bins - 1)
    keep = jnp.einsum("sjt,j->st", jax.nn.one_hot(to, n_bins), theta3)
    reward = -jnp.stack([0.001 * costs[1] * bins, jnp.full(n_bins, costs[0])], axis=1)
    return bm.MDP(jnp.stack([keep, jnp.broadcast_to(keep[0], keep.shape)], axis=1), reward)


def log_probs(theta: Float[Array, " K"], n_bins: int, discount: float, start: SoftSolution | None = None) -> LogProbs:
    """Of choices and increments at theta = (RC, theta11, theta30, theta31, ...); the last increment has what is left.

    `start`: a plan nearby, to save time.
    """
    theta3 = jnp.append(theta[2:], 1 - jnp.sum(theta[2:]))
    plan = bm.planning.solve_soft(bus_mdp(theta[:2], theta3, n_bins), bm.Discounted(discount), 1.0, start=start)
    return plan.log_policy, jnp.log(theta3)


def log_likelihoods(
    theta: Float[Array, " K"], choices: Float[Array, "n 2"], increments: Float[Array, " J"], discount: float = MONTHLY
) -> Float[Array, " 2"]:
    """Of the choices given the mileages, and of the mileages given the choices: two partial ones, together the full.

    Args:
        theta: see `log_probs`.
        choices, increments: of a `Sample`.
        discount: a month.
    """
    of_choice, of_increment = log_probs(theta, len(choices), discount)
    return jnp.stack([jnp.sum(choices * of_choice), jnp.sum(increments * of_increment)])


def program(
    choices: Float[Array, "n 2"],
    increments: Float[Array, " J"],
    start: SoftSolution | None = None,
    discount: float = MONTHLY,
    full: bool = False,
) -> None:
    """RC and theta11 are independent and log-normal, with their logarithms known to 1.

    Args:
        choices, increments: of a `Sample`.
        start: a plan nearby, to save time.
        discount: a month.
        full: theta3 is unknown too, uniform, and learns from increments and choices; else it is their frequencies.
    """
    costs = [numpyro.sample(name, dist.LogNormal(np.log(x), 1.0)) for name, x in zip(COSTS, TYPICAL, strict=True)]
    known = increments / jnp.sum(increments)
    theta3 = numpyro.sample("theta3", dist.Dirichlet(jnp.ones_like(known))) if full else known
    of_choice, of_increment = log_probs(jnp.append(jnp.stack(costs), theta3[:-1]), len(choices), discount, start)
    numpyro.factor("choices", jnp.sum(choices * of_choice))
    if full:
        numpyro.factor("increments", jnp.sum(increments * of_increment))


def replacements(costs: Float[Array, " 2"], theta3: Float[Array, " J"], n_bins: int) -> Float[Array, ""]:
    """Expected replacements a year of 37 buses in the long run: the gain of a reward of 1 a replacement."""
    mdp = bus_mdp(costs, theta3, n_bins)
    policy = bm.planning.solve_soft(mdp, bm.Discounted(MONTHLY), 1.0).policy
    one = jnp.zeros_like(mdp.reward).at[:, 1].set(1.0)
    return 12 * 37 * bm.evaluate(bm.MDP(mdp.transition_probs, one), policy, bm.AverageReward()).gain


# What is asked of it.


class Estimate(NamedTuple):
    """The most likely theta, log-likelihoods there (choices, mileages), and standard errors of two kinds.

    `se_bhhh` rests on the outer product of the scores (as published), `se_hessian` on the second derivatives.
    """

    theta: Float[np.ndarray, " K"]
    log_likelihoods: Float[np.ndarray, " 2"]
    se_bhhh: Float[np.ndarray, " free"]
    se_hessian: Float[np.ndarray, " free"]


second_derivatives = jax.jit(jax.jacfwd(jax.jacfwd(log_likelihoods)))
"""Of `log_likelihoods` by theta: [2 K K]."""


@partial(jax.jit, static_argnames="n_bins")
def with_scores(theta: Float[Array, " K"], n_bins: int, discount: float) -> tuple[LogProbs, LogProbs]:
    """`log_probs` and their derivatives by theta: one MDP solved, and a linear system for each parameter."""
    twice = lambda theta: (log_probs(theta, n_bins, discount),) * 2  # noqa: E731
    derivatives, values = jax.jacfwd(twice, has_aux=True)(theta)
    return values, derivatives


def estimate(sample: Sample, discount: float = MONTHLY, *, full: bool = True) -> Estimate:
    """Rust's nested fixed point: the likelihood is climbed, and the MDP solved anew at every step.

    Args:
        sample: made by `read`.
        discount: a month.
        full: else theta3 stays at the frequencies and the choices alone count: the cheap estimate in two steps.
    """
    if not sample.replaced.any():
        raise ValueError("no engine was replaced in the sample, expected one at least: RC has no estimate (see infer)")
    first = np.concatenate([TYPICAL, sample.frequencies[:-1]])
    free = len(first) if full else 2

    def entries(theta: np.ndarray) -> list[np.ndarray]:
        """Log-likelihood of every bus and month, and its scores by the free parameters."""
        both = jax.tree.map(np.asarray, with_scores(theta, sample.n_bins, discount))
        terms = [c[sample.bin, sample.replaced] + (i[sample.increment] if full else 0.0) for c, i in both]
        return [terms[0], terms[1][:, :free]]

    def spread(theta: np.ndarray) -> np.ndarray:
        """Covariance of the estimate by the outer product of the scores."""
        scores = entries(theta)[1]
        return np.linalg.inv(scores.T @ scores)

    def loss(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, scores = entries(at(z))
        return -value.sum(), -scores.sum(0) @ scale

    # In standard errors of the first guess the problem is nearly round, whatever the units of theta.
    scale = np.linalg.cholesky(spread(first))
    at = lambda z: first + np.pad(scale @ z, (0, len(first) - free))  # noqa: E731
    theta = at(optimize.minimize(loss, np.zeros(free), jac=True, method="BFGS").x)
    counts = (sample.choices, sample.increments)
    curvature = -np.asarray(second_derivatives(theta, *counts, discount))[: 2 if full else 1, :free, :free].sum(0)
    # One step of Newton's method for the digits that BFGS leaves.
    theta[:free] += np.linalg.solve(curvature, entries(theta)[1].sum(0))
    errors = (np.sqrt(np.diag(covariance)) for covariance in (spread(theta), np.linalg.inv(curvature)))
    terms = with_scores(theta, sample.n_bins, discount)[0]
    totals = np.array([np.sum(count * np.asarray(term)) for count, term in zip(counts, terms, strict=True)])
    return Estimate(theta, totals, *errors)


def infer(
    key: PRNGKeyArray, sample: Sample, *, discount: float = MONTHLY, full: bool = False, num_samples: int = 400
) -> dict[str, np.ndarray]:
    """Draws of RC and theta11 (and theta3) from their posterior by NUTS, two chains: [2 num_samples ...]."""
    typical = bus_mdp(jnp.asarray(TYPICAL), jnp.asarray(sample.frequencies), sample.n_bins)
    start = bm.planning.solve_soft(typical, bm.Discounted(discount), 1.0)
    # The likelihood ties RC to theta11: steps follow the information of choices and prior about their logarithms.
    theta = np.concatenate([TYPICAL, sample.frequencies[:-1]])
    scores = np.asarray(with_scores(theta, sample.n_bins, discount)[1][0])[..., :2] * TYPICAL
    information = np.eye(2) + np.einsum("xa,xai,xaj->ij", sample.choices, scores, scores)
    mass = None if full else {COSTS: np.linalg.inv(information)}
    first = init_to_value(values=dict(zip(COSTS, TYPICAL, strict=True)))
    model = partial(program, discount=discount, full=full)
    kernel = NUTS(model, dense_mass=True, inverse_mass_matrix=mass, init_strategy=first)
    chains = {"num_chains": 2, "chain_method": "sequential", "progress_bar": False}
    mcmc = MCMC(kernel, num_warmup=300 if full else 120, num_samples=num_samples, **chains)
    mcmc.run(key, sample.choices, sample.increments, start)
    return jax.tree.map(np.asarray, mcmc.get_samples(group_by_chain=True))


def demand(prices: np.ndarray, draws: dict[str, np.ndarray], theta3: np.ndarray, n_bins: int) -> np.ndarray:
    """Replacements a year of 37 buses at other prices of an engine, a row a draw of theta11."""
    costs = jnp.stack(jnp.broadcast_arrays(jnp.asarray(prices), draws["theta11"][:, None]), -1)
    at = partial(replacements, theta3=jnp.asarray(theta3), n_bins=n_bins)
    return np.asarray(jax.jit(partial(jax.lax.map, jax.vmap(at)))(costs))


def plot_demand(prices: np.ndarray, yearly: np.ndarray, now: np.ndarray) -> Figure:
    """Median and 90 % band of `demand`, and where the estimated price `now` (draws) lies."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    low, median, high = np.quantile(yearly, [0.05, 0.5, 0.95], axis=0)
    axes.fill_between(prices, low, high, alpha=0.3, label="90 % credible band")
    axes.plot(prices, median, label="median")
    axes.axvspan(*np.quantile(now, [0.05, 0.95]), color="grey", alpha=0.2, label="RC today, 90 %")
    axes.set(xlabel="replacement cost RC", ylabel="replacements a year, 37 buses", ylim=(0, None))
    axes.legend()
    return figure


def main(path: str | Path, picture: str | Path | None = None) -> None:
    """Estimate, posterior and demand for group 4, printed."""
    with jax.enable_x64(True):
        sample = read(path, (4,))
        found, draws = estimate(sample), infer(jax.random.key(0), sample)
        print(f"{len(sample.bin)} months, {sample.replaced.sum()} replacements")
        for name, value, se in zip(COSTS, found.theta, found.se_bhhh, strict=False):
            x = draws[name]
            ess = effective_sample_size(x)
            print(f"{name:8}{value:9.4f} ({se:.4f})   posterior {x.mean():.3f} +- {x.std():.3f}, ess {ess:.0f}")
        prices = np.linspace(3.0, 16.0, 14)
        some = {name: x.ravel()[:: x.size // 100] for name, x in draws.items()}
        yearly = demand(prices, some, sample.frequencies, sample.n_bins)
        for price, column in zip(prices, yearly.T, strict=True):
            low, high = np.quantile(column, [0.05, 0.95])
            print(f"RC {price:5.1f}: {np.median(column):6.2f} replacements a year, 90 % {low:6.2f} to {high:6.2f}")
    if picture is not None:
        plot_demand(prices, yearly, draws["RC"]).savefig(picture, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
