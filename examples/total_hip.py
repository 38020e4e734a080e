"""Which hip prosthesis? A cohort whose risks change with time, with jointly normal regression coefficients.

    python examples/total_hip.py [folder for figures]

States: primary operation, success, revision (another operation), revised, dead; 60 yearly cycles from age 60. The
hazard of a first revision grows with the time since the operation (Weibull, fitted to a registry); the new prosthesis
lowers it and costs more. Everyone enters `success` in the first year, so that time in the state is time: the matrix
depends on the cycle and no tunnel states are needed. Costs in pounds are discounted by 6 %, QALYs by 1.5 %.

Sources: Briggs, Claxton and Sculpher (2006), *Decision Modelling for Health Economic Evaluation*, exercises 3.5 (the
base case, women) and 4.8 (laws of the parameters). Mortality: life tables of England and Wales, in bands of ten years.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

import bayes_mdp as bm

STATES = ("primary", "success", "revision", "revised", "dead")
YEARS, AGE, MALE = 60, 60, 0
COEFFICIENTS = np.array([0.3740968, -5.490935, -0.0367022, 0.768536, -1.344474])
"""Of the hazard of a revision: log shape, constant, age, male, new prosthesis."""
COVARIANCE = np.diag(np.array([0.0474501, 0.207892, 0.0052112, 0.109066, 0.3825815]) ** 2 / 2)
COVARIANCE[np.triu_indices(5, 1)] = [
    *(-0.005691, 2.8e-8, 5.1e-6, 0.000259),
    *(-0.000783, -0.007247, -0.000642),
    *(0.000033, -0.000111),
    0.000184,
]
COVARIANCE = COVARIANCE + COVARIANCE.T
DEATHS = [1.51, 3.93, 10.9, 31.6, 80.1, 187.9] if MALE else [0.99, 2.6, 6.7, 19.3, 53.5, 154.8]  # of 1,000 a year
MORTALITY = np.array(DEATHS)[np.minimum((AGE + np.arange(1, YEARS + 1) - 35) // 10, 5)] / 1000
UTILITY, UTILITY_SE = np.array([0.85, 0.30, 0.75]), np.array([0.03, 0.03, 0.04])  # success, revision, revised
REVISION, REVISION_SE = 5294.0, 1487.0
PROSTHESIS = {"standard": 394.0, "NP1": 579.0}
MONEY, HEALTH = bm.strategies.cycle_weights(YEARS, 0.06), bm.strategies.cycle_weights(YEARS, 0.015)


def matrices(hazard: Array, shape: Array, operative: Array, later: Array, again: Array) -> Float[Array, "60 5 5"]:
    """The matrix of each year. The first revision has the cumulative hazard `hazard` t^shape after t years; `operative`
    and `later`: deaths from the first operation and from a revision; `again`: another revision in a year."""
    year, death = np.arange(YEARS + 1.0), MORTALITY
    fail = -jnp.expm1(-hazard * jnp.diff(year**shape))
    none, one = np.zeros(YEARS), np.ones(YEARS)
    rows = [
        [none, one * (1 - operative), none, none, one * operative],
        [none, 1 - fail - death, fail, none, death],
        [none, none, none, 1 - later - death, later + death],
        [none, none, one * again, 1 - again - death, death],
        [none, none, none, none, one],
    ]
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2)


def total_hip() -> dict[str, dict[str, Float[Array, ""]]]:
    """The decision model: costs and QALYs with either prosthesis."""
    law = dist.MultivariateNormal(COEFFICIENTS, COVARIANCE)
    log_shape, constant, age, male, new = numpyro.sample("coefficients", law)
    operative = numpyro.sample("operative_mortality", dist.Beta(2.0, 98.0))
    later = numpyro.sample("revision_mortality", dist.Beta(2.0, 98.0))
    again = numpyro.sample("re_revision", dist.Beta(4.0, 96.0))
    weight = UTILITY * (1 - UTILITY) / UTILITY_SE**2 - 1
    utility = numpyro.sample("utility", dist.Beta(UTILITY * weight, (1 - UTILITY) * weight))
    price = numpyro.sample("revision_cost", dist.Gamma((REVISION / REVISION_SE) ** 2, REVISION / REVISION_SE**2))
    outcomes = {}
    for name, prosthesis in PROSTHESIS.items():
        hazard = jnp.exp(constant + age * AGE + male * MALE + (new if name == "NP1" else 0.0))
        trace = bm.strategies.cohort_trace(matrices(hazard, jnp.exp(log_shape), operative, later, again), np.eye(5)[0])
        cost = prosthesis + bm.strategies.cohort_total(trace, price * np.eye(5)[2], MONEY)
        qaly = bm.strategies.cohort_total(trace, jnp.concatenate([jnp.zeros(1), utility, jnp.zeros(1)]), HEALTH)
        outcomes[name] = {"cost": cost, "effect": qaly}
    return outcomes


BASE: dict[str, Any] = {
    "coefficients": COEFFICIENTS,
    "operative_mortality": 0.02,
    "revision_mortality": 0.02,
    "re_revision": 0.04,
    "utility": UTILITY,
    "revision_cost": REVISION,
}
"""The base case; it is the mean of every site."""
PUBLISHED = {"standard": (512.434658, 14.6531896), "NP1": (610.311818, 14.69770986)}
PUBLISHED_ICER = 2198.486665


def traces() -> dict[str, np.ndarray]:
    """Where the cohort is in the base case, by strategy."""
    with jax.enable_x64(True):
        log_shape, constant, age, male, new = jnp.asarray(COEFFICIENTS)
        found = {}
        for name in PROSTHESIS:
            hazard = jnp.exp(constant + age * AGE + male * MALE + (new if name == "NP1" else 0.0))
            risks = (jnp.asarray(BASE[n]) for n in ("operative_mortality", "revision_mortality", "re_revision"))
            found[name] = np.asarray(
                bm.strategies.cohort_trace(matrices(hazard, jnp.exp(log_shape), *risks), np.eye(5)[0])
            )
        return found


def figures(folder: Path, draws: bm.strategies.StrategyDraws) -> None:
    """Cost-effectiveness plane, acceptability curves and cohort traces, a picture each."""
    cohort = bm.strategies.trace_dataset(traces(), STATES)
    pictures = {
        "plane": bm.plots.plot_cost_effectiveness(draws, reference=next(iter(PROSTHESIS)), wtp=2200),
        "acceptability": bm.plots.plot_acceptability(bm.strategies.acceptability(draws, np.linspace(0, 20_000, 81))),
        "cohort": bm.plots.plot_cohort(cohort),
    }
    for name, figure in pictures.items():
        figure.savefig(folder / f"total_hip_{name}.png", dpi=120)


def main(folder: Path | None = None) -> None:
    """Print the base case beside the published one, the probabilistic analysis, and values of information."""
    model = bm.strategies.decision_model(total_hip)
    print(model, end="\n\nBase case\n")
    print(bm.strategies.cost_effectiveness(model.at(BASE)))
    print(", ".join(f"{n} {c} / {e}" for n, (c, e) in PUBLISHED.items()), f"ICER {PUBLISHED_ICER} (published)\n")
    draws = model.sample(jax.random.key(0), 20_000)
    print(f"Means of {draws.num_draws} draws\n{bm.strategies.cost_effectiveness(draws)}\n")
    print(
        bm.strategies.acceptability(draws, [2000, 2200, 5000, 10_000])[["prob_best", "evpi"]].to_dataframe().unstack(),
        "\n",
    )
    print(bm.information.evpi(jax.random.key(1), model, 2200))
    settings = {"num_draws": 1 << 10, "num_inner": 64}
    for site in ("coefficients", "revision_cost", "re_revision"):
        print(bm.information.evppi(jax.random.key(1), model, site, 2200, **settings))
    study = bm.information.Study({"revision_mortality": 500, "re_revision": 500})
    print(bm.information.evsi(jax.random.key(2), model, study, 2200, **settings))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        figures(folder, draws)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
