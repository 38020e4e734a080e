"""Is lamivudine beside zidovudine worth its price? The HIV model of Chancellor, and what are more data worth?

    python examples/hiv.py [folder for figures]

States: A (CD4 200-500), B (CD4 below 200), C (AIDS), dead; yearly cycles, no way back to a milder state. What is known
of monotherapy is a table of transitions seen in patients: data of the program. The combination multiplies the
probability of getting worse by a relative risk, in the first two cycles; then lamivudine stops. Money is counted in
pounds of 1995 at the end of each cycle and discounted by 6 %, life-years are not discounted.

Sources: Chancellor et al. (1997), *Modelling the cost effectiveness of lamivudine/zidovudine combination therapy in HIV
infection*; Briggs, Claxton and Sculpher (2006), *Decision Modelling for Health Economic Evaluation*, exercise 2.5 (the
base case) and chapter 4 (laws of the parameters).
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

import bayes_mdp as bm

STATES = ("A", "B", "C", "dead")
YEARS = 20
SEEN = {"from_A": [1251, 350, 116, 17], "from_B": [731, 512, 15], "from_C": [1312, 437]}  # to the state, and to worse
WEIGHT = 1e-6  # of the prior, in transitions
DIRECT, COMMUNITY = np.array([1701.0, 1774, 6948]), np.array([1055.0, 1278, 2059])  # a year in A, B, C
ZIDOVUDINE, LAMIVUDINE = 2278.0, 2086.5  # a year
RELATIVE_RISK, LOW, HIGH = 0.509, 0.365, 0.710  # with its 95 % interval
LOG_RR_SD = float(np.log(HIGH / LOW)) / (2 * 1.959963984540054)
COSTS_BY_YEAR, LIFE_YEARS_BY_YEAR = bm.strategies.cycle_weights(YEARS, 0.06), bm.strategies.cycle_weights(YEARS)


def row(name: str) -> Float[Array, "4"]:
    """Probabilities of monotherapy from a state: a prior of almost no weight, given the transitions seen."""
    seen = np.array(SEEN[name])
    probs = numpyro.sample(name, dist.Dirichlet(np.full(len(seen), WEIGHT)))
    numpyro.sample(f"{name}_seen", dist.Multinomial(int(seen.sum()), probs), obs=seen)
    return jnp.concatenate([jnp.zeros(len(STATES) - len(seen)), probs])


def by_year(
    mono: Float[Array, "4 4"], log_rr: Float[Array, ""], duration: int
) -> tuple[Float[Array, "21 4"], Float[Array, "20 4 4"]]:
    """Where the cohort is after 0..20 years with `duration` years of the combination, and the matrix of each year."""
    worse = jnp.exp(log_rr) * mono * (1 - np.eye(4))
    combination = worse + jnp.diag(1 - worse.sum(1))
    matrices = jnp.where((np.arange(YEARS) < duration)[:, None, None], combination, mono)
    return bm.strategies.cohort_trace(matrices, [1, 0, 0, 0]), matrices


def hiv(durations: Mapping[str, int] | None = None) -> dict[str, dict[str, Float[Array, ""]]]:
    """The decision model: costs and life-years of each strategy, by its years of the combination."""
    mono = jnp.stack([*map(row, SEEN), np.eye(4)[-1]])
    log_rr = numpyro.sample("log_rr", dist.Normal(np.log(RELATIVE_RISK), LOG_RR_SD))
    direct = numpyro.sample("direct", dist.Gamma(1.0, 1 / DIRECT))  # standard deviations as large as the means
    community = numpyro.sample("community", dist.Gamma(1.0, 1 / COMMUNITY))
    alive, year = np.array([1.0, 1, 1, 0]), np.arange(YEARS + 1)
    outcomes = {}
    for name, duration in (durations or {"mono": 0, "comb": 2}).items():
        trace, _ = by_year(mono, log_rr, duration)
        drugs = alive * (ZIDOVUDINE + LAMIVUDINE * (year <= duration)[:, None])
        cost = bm.strategies.cohort_total(trace, jnp.append(direct + community, 0.0) + drugs, COSTS_BY_YEAR)
        outcomes[name] = {"cost": cost, "effect": bm.strategies.cohort_total(trace, alive, LIFE_YEARS_BY_YEAR)}
    return outcomes


def hiv_durations() -> dict[str, dict[str, Float[Array, ""]]]:
    """The same for 0, 1, ..., 20 years of the combination, if it keeps its effect."""
    return hiv({f"{years} years": years for years in range(YEARS + 1)})


BASE: dict[str, Any] = {
    **{name: np.array(seen) / sum(seen) for name, seen in SEEN.items()},
    "log_rr": float(np.log(RELATIVE_RISK)),
    "direct": DIRECT,
    "community": COMMUNITY,
}
"""The base case: frequencies, and means of the costs."""
PUBLISHED = {"mono": (44663.4535637, 7.9912066), "comb": (50601.6513312, 8.9373889)}
PUBLISHED_ICER = 6275.95560
TRIAL = bm.information.Study({"log_rr": 1}, sd={"log_rr": 2.0})
"""A trial of one event: it measures the logarithm of the relative risk with variance 4 / events."""
ROWS, COSTS = tuple(SEEN), ("direct", "community")


def traces() -> dict[str, np.ndarray]:
    """Where the cohort is in the base case, by strategy."""
    with jax.enable_x64(True):
        rows = [np.concatenate([np.zeros(4 - len(BASE[name])), BASE[name]]) for name in SEEN]
        mono, log_rr = jnp.array([*rows, np.eye(4)[-1]]), jnp.asarray(BASE["log_rr"])
        return {name: np.asarray(by_year(mono, log_rr, years)[0]) for name, years in (("mono", 0), ("comb", 2))}


def figures(folder: Path, draws: bm.strategies.StrategyDraws) -> None:
    """Cost-effectiveness plane, acceptability curves and cohort traces, a picture each."""
    cohort = bm.strategies.trace_dataset(traces(), STATES)
    pictures = {
        "plane": bm.plots.plot_cost_effectiveness(draws, reference="mono", wtp=6000),
        "acceptability": bm.plots.plot_acceptability(bm.strategies.acceptability(draws, np.linspace(0, 20_000, 81))),
        "cohort": bm.plots.plot_cohort(cohort),
    }
    for name, figure in pictures.items():
        figure.savefig(folder / f"hiv_{name}.png", dpi=120)


def main(folder: Path | None = None) -> None:
    """Print the base case beside the published one, the probabilistic analysis, and values of information."""
    model = bm.strategies.decision_model(hiv)
    print(model, end="\n\nBase case\n")
    base = bm.strategies.cost_effectiveness(model.at(BASE))
    print(base)
    print(", ".join(f"{n} {c} / {e}" for n, (c, e) in PUBLISHED.items()), f"ICER {PUBLISHED_ICER} (published)\n")
    draws = model.sample(jax.random.key(0), 20_000)
    print(f"Means of {draws.num_draws} draws\n{bm.strategies.cost_effectiveness(draws)}\n")
    print(
        bm.strategies.acceptability(draws, [5000, 6000, 7000, 10_000])[["prob_best", "evpi"]].to_dataframe().unstack(),
        "\n",
    )
    for sites in (("log_rr",), COSTS, ROWS):
        print(bm.information.evppi(jax.random.key(1), model, sites, 6000, num_draws=1 << 12, num_inner=128))
    print(bm.information.evpi(jax.random.key(1), model, 6000))
    print(
        bm.information.evpi(jax.random.key(1), bm.strategies.decision_model(hiv_durations), 6000, num_draws=1 << 13),
        "\n",
    )
    print("Trials by their number of events, if 2,000 people a year fall ill for ten years and an event costs £2,000")
    population = bm.information.discounted_population(2000, 10, 0.06)
    economics = bm.information.StudyEconomics(population, fixed_cost=1e5, cost_per_size=2000)
    settings = {"economics": economics, "num_draws": 1 << 11}
    sizes = (25, 50, 100, 200, 400, 1600)
    print(
        bm.information.net_benefit_of_sampling(jax.random.key(2), model, TRIAL, sizes, 6000, num_inner=64, **settings)
    )
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        figures(folder, draws)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
