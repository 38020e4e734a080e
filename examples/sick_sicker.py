"""The Sick-Sicker model: four strategies, sixteen uncertain numbers, and which of them are worth a study.

    python examples/sick_sicker.py [folder for figures]

States: H (healthy), S1 (sick), S2 (sicker), D (dead); yearly cycles from age 25 to 100. Treatment A lifts the quality
of life in S1, treatment B slows the way from S1 to S2; both are paid in S1 and S2, as nobody can tell who is in which.
`sick_sicker` has mortality that does not depend on age; `sick_sicker_by_age` takes it from the life table of the United
States in 2015 and adds what it costs to fall sick and to die. Dollars and QALYs are discounted by 3 %.

Sources: Alarid-Escudero et al. (2023), *An introductory tutorial on cohort state-transition models in R using a
cost-effectiveness analysis example*, and *A tutorial on time-dependent cohort state-transition models in R using a
cost-effectiveness analysis example*, both in Medical Decision Making 43(1). Treatment B costs 13,000 as in their text
and results (their table of parameters says 12,000).
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
from bayes_mdp.decisions.strategies.decision_model import DecisionModel

STATES = ("H", "S1", "S2", "D")
STRATEGIES = {"SoC": (False, False), "A": (True, False), "B": (False, True), "AB": (True, True)}  # which treatments
YEARS = 75
MORTALITY = np.loadtxt(Path(__file__).with_name("lifetable_2015.csv"), delimiter=",", skiprows=3)[:, 1]  # rates
# Within a cycle as in the tutorials, moves too; no Simpson's rule, which has 4/3 in odd years and needs an even number.
WEIGHTS = 1.03 ** -np.arange(YEARS + 1) * np.where(np.arange(YEARS + 1) % 2, 2 / 3, 4 / 3)
WEIGHTS[[0, -1]] /= [4, 2]
# A site each. Rates a year: shape and rate of a gamma law. Ratios of rates: median, sd of the logarithm.
RATES, DEATH = {"r_HS1": (30.0, 200.0), "r_S1H": (60.0, 120.0), "r_S1S2": (84.0, 800.0)}, {"r_HD": (20.0, 10_000.0)}
RATIOS = {"hr_S1": (3.0, 0.01), "hr_S2": (10.0, 0.02), "hr_trtB": (0.6, 0.02)}
# Costs: shape and scale of a gamma law. Utilities: a beta law. Of falling sick (H to S1) and of dying, once: the same.
COSTS = {"c_H": (100, 20), "c_S1": (177.8, 22.5), "c_S2": (225, 66.7), "c_trtA": (73.5, 163.3), "c_trtB": (86.2, 150.8)}
UTILITIES = {"u_H": (200.0, 3.0), "u_S1": (130.0, 45.0), "u_S2": (230.0, 230.0), "u_trtA": (300.0, 15.0)}
EVENT_COSTS, EVENT_LOSS = {"c_falling_sick": (25, 40), "c_dying": (100, 20)}, {"u_falling_sick": (11.0, 1088.0)}
FALLING_SICK, DYING = np.outer([1.0, 0, 0, 0], [0, 1, 0, 0]), np.outer([1.0, 1, 1, 0], [0, 0, 0, 1])  # moves


def sample(kind: str, sites: dict[str, Any]) -> dict[str, Array]:
    """Draw sites of one kind."""
    law: Any = {
        "rate": dist.Gamma,
        "ratio": lambda median, sd: dist.LogNormal(np.log(median), sd),
        "cost": lambda shape, scale: dist.Gamma(shape, 1 / scale),
        "utility": dist.Beta,
    }[kind]
    return {name: numpyro.sample(name, law(*parameters)) for name, parameters in sites.items()}


def matrices(site: dict[str, Array], deaths: Array, treated: bool) -> Float[Array, "75 4 4"]:
    """The matrix of each year, from the rate of the healthy to die in it; `treated` with B."""
    to_sicker = site["r_S1S2"] * (site["hr_trtB"] if treated else 1.0)
    sick, well, sicker = (-jnp.expm1(-rate) for rate in (site["r_HS1"], site["r_S1H"], to_sicker))
    moves = jnp.array([[1 - sick, sick, 0], [well, 1 - well - sicker, sicker], [0, 0, 1]])  # of those who live
    die = -jnp.expm1(-deaths[:, None] * jnp.array([1.0, site["hr_S1"], site["hr_S2"]]))[..., None]
    living = jnp.concatenate([(1 - die) * moves, die], axis=-1)
    return jnp.concatenate([living, jnp.broadcast_to(np.eye(4)[3:], (YEARS, 1, 4))], axis=1)


def outcomes(by_age: bool) -> dict[str, dict[str, Float[Array, ""]]]:
    """Costs and QALYs of the four strategies."""
    site = sample("rate", RATES if by_age else RATES | DEATH) | sample("ratio", RATIOS)
    site |= sample("cost", COSTS) | sample("utility", UTILITIES)
    event = sample("cost", EVENT_COSTS) | sample("utility", EVENT_LOSS) if by_age else {}
    deaths = jnp.asarray(MORTALITY) if by_age else jnp.broadcast_to(site["r_HD"], (YEARS,))
    ways = {treated: matrices(site, deaths, treated) for treated in (False, True)}
    traces = {treated: bm.strategies.cohort_trace(way, np.eye(4)[0]) for treated, way in ways.items()}
    paid = event["c_falling_sick"] * FALLING_SICK + event["c_dying"] * DYING if by_age else np.zeros((4, 4))
    lost = event["u_falling_sick"] * FALLING_SICK if by_age else np.zeros((4, 4))
    found = {}
    for name, (a, b) in STRATEGIES.items():
        drugs = a * site["c_trtA"] + b * site["c_trtB"]
        cost = jnp.array([site["c_H"], site["c_S1"] + drugs, site["c_S2"] + drugs, 0])
        utility = jnp.array([site["u_H"], site["u_trtA" if a else "u_S1"], site["u_S2"], 0])
        of_moves = {"transition": ways[b], "event_weights": WEIGHTS}
        found[name] = {
            "cost": bm.strategies.cohort_total(traces[b], cost, WEIGHTS, per_transition=paid, **of_moves),
            "effect": bm.strategies.cohort_total(traces[b], utility, WEIGHTS, per_transition=-lost, **of_moves),
        }
    return found


def sick_sicker() -> dict[str, dict[str, Float[Array, ""]]]:
    """The decision model with one mortality for all ages."""
    return outcomes(by_age=False)


def sick_sicker_by_age() -> dict[str, dict[str, Float[Array, ""]]]:
    """The decision model with the mortality of the life table, and with costs of falling sick and of dying."""
    return outcomes(by_age=True)


BASE: dict[str, Any] = {
    **{"r_HS1": 0.15, "r_S1H": 0.5, "r_S1S2": 0.105, "r_HD": 0.002, "hr_S1": 3.0, "hr_S2": 10.0, "hr_trtB": 0.6},
    **{"c_H": 2000.0, "c_S1": 4000.0, "c_S2": 15_000.0, "c_trtA": 12_000.0, "c_trtB": 13_000.0},
    **{"u_H": 1.0, "u_S1": 0.75, "u_S2": 0.5, "u_trtA": 0.95},
}
"""The base case. It is not the prior mean: that of `u_H` is .985."""
BASE_BY_AGE = {n: x for n, x in BASE.items() if n != "r_HD"} | {
    "c_falling_sick": 1000.0,
    "c_dying": 2000.0,
    "u_falling_sick": 0.01,
}
PUBLISHED = {"SoC": (151_580, 20.711), "A": (284_805, 21.499), "B": (259_100, 22.184), "AB": (378_875, 23.137)}
PUBLISHED_BY_AGE = {"SoC": (116_374, 18.879), "A": (218_789, 19.636), "B": (202_536, 20.199), "AB": (296_300, 21.097)}
PUBLISHED_ICERS, PUBLISHED_ICERS_BY_AGE = {"B": 72_988, "AB": 125_764}, {"B": 65_288, "AB": 104_461}
PUBLISHED_EVPI_BY_AGE = 7836
"""At 100,000 a QALY, from 1,000 draws."""


def traces(by_age: bool) -> dict[str, np.ndarray]:
    """Where the cohort is in the base case, without and with treatment B."""
    with jax.enable_x64(True):
        deaths = jnp.asarray(MORTALITY) if by_age else jnp.full(YEARS, BASE["r_HD"])
        site = {name: jnp.asarray(x) for name, x in BASE.items()}
        ways = {name: matrices(site, deaths, treated) for name, treated in (("SoC, A", False), ("B, AB", True))}
        return {name: np.asarray(bm.strategies.cohort_trace(way, np.eye(4)[0])) for name, way in ways.items()}


def figures(folder: Path, name: str, draws: bm.strategies.StrategyDraws, by_age: bool) -> None:
    """Cost-effectiveness plane, acceptability curves with the frontier, and cohort traces, a picture each."""
    pictures = {
        "plane": bm.plots.plot_cost_effectiveness(draws),
        "acceptability": bm.plots.plot_acceptability(bm.strategies.acceptability(draws, np.linspace(0, 200_000, 101))),
        "cohort": bm.plots.plot_cohort(bm.strategies.trace_dataset(traces(by_age), STATES)),
    }
    for kind, figure in pictures.items():
        figure.savefig(folder / f"{name}_{kind}.png", dpi=120)


def show(by_age: bool, folder: Path | None) -> DecisionModel:
    """Print the base case beside the published one and the probabilistic analysis."""
    program = sick_sicker_by_age if by_age else sick_sicker
    belief = bm.strategies.decision_model(program)
    published, icers = (PUBLISHED_BY_AGE, PUBLISHED_ICERS_BY_AGE) if by_age else (PUBLISHED, PUBLISHED_ICERS)
    print(f"{'Mortality by age' if by_age else 'One mortality for all ages'}\n\nBase case")
    print(bm.strategies.cost_effectiveness(belief.at(BASE_BY_AGE if by_age else BASE)))
    print(", ".join(f"{n} {c} / {e}" for n, (c, e) in published.items()), f"ICERs {icers} (published)\n")
    draws = belief.sample(jax.random.key(0), 20_000)
    print(f"Means of {draws.num_draws} draws\n{bm.strategies.cost_effectiveness(draws)}\n")
    print(bm.strategies.acceptability(draws, [75_000, 100_000, 120_000])["prob_best"].to_dataframe().unstack(), "\n")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        figures(folder, program.__name__, draws, by_age)
    return belief


def main(folder: Path | None = None) -> None:
    """Both models: base case beside the published one, probabilistic analysis, and values of information."""
    key, wtp = jax.random.key(1), 120_000
    belief = show(False, folder)
    print(bm.information.evpi(key, belief, wtp))
    for sites in (RATES | DEATH | RATIOS, COSTS | UTILITIES, ("u_S1", "u_trtA"), "u_S1", "c_trtA", "r_S1S2"):
        print(bm.information.evppi(key, belief, sites, wtp, num_draws=1 << 10, num_inner=64))
    print("\nA study of the quality of life in S1: so many people, of whom each is well or not")
    for number in (20, 100, 500):
        study = bm.information.Study({"u_S1": number, "u_trtA": number})
        print(bm.information.evsi(key, belief, study, wtp, num_draws=1 << 10, num_inner=64))
    belief = show(True, folder)
    print(bm.information.evpi(key, belief, 100_000), f"\n  published, from 1,000 draws: {PUBLISHED_EVPI_BY_AGE}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
