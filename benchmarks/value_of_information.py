"""Error at equal CPU time of EVPPI and EVSI: here, `heormodel`'s regression, and nested Monte Carlo in numpy.

`pip install heormodel`, then `python -m benchmarks.value_of_information [repeats]`. The problems are conjugate. Each
rival gets the CPU time that the call takes here (a model traced and compiled before, as one that is asked for several
numbers is) and as many draws as fit in: the number that takes 1, 2, 4, ... times as long is printed too. Draws of the
rivals are numpy's, all at once; simulated summaries are arrays, not a loop over rows. The error is the root mean square
over the repeats, against a value by sums, quadrature, or 2^22 Sobol points.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from heormodel.models import Outcomes
from heormodel.voi import evppi, evsi_regression

import bayes_mdp as bm
from bayes_mdp.decisions.strategies.decision_model import DecisionModel
from benchmarks.record.turns import Measured, Size, in_turns

WTP = 1.0
TIMES = (1, 10)
"""CPU time of the rivals, in units of ours."""
INNER = 200


class Case(NamedTuple):
    """A number that is wanted.

    Args:
        name: of the problem and the number.
        program: for us.
        sites, study: what is learned.
        draw: (rng, number) -> site -> draws.
        benefit: sites -> [number, strategies].
        summaries: (rng, draws) -> summaries of data, for EVSI.
        inner: (rng, draws, number of inner ones) -> sites with an axis more: values of all sites given what is learned.
    """

    name: str
    program: Callable[[], dict[str, object]]
    sites: tuple[str, ...]
    study: bm.information.Study | None
    draw: Callable[[np.random.Generator, int], dict[str, np.ndarray]]
    benefit: Callable[[dict[str, np.ndarray]], np.ndarray]
    summaries: Callable[[np.random.Generator, dict[str, np.ndarray]], dict[str, np.ndarray]]
    inner: Callable[[np.random.Generator, dict[str, np.ndarray], int], dict[str, np.ndarray]]


def betas() -> dict[str, object]:
    """Two arms of unknown success."""
    p1, p2 = numpyro.sample("p1", dist.Beta(2.0, 3.0)), numpyro.sample("p2", dist.Beta(5.0, 6.0))
    return {"one": 1000 * p1, "two": 1000 * p2}


def draw_betas(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """For the rivals."""
    return {"p1": rng.beta(2, 3, n), "p2": rng.beta(5, 6, n)}


def costs_and_rates() -> dict[str, object]:
    """Three strategies: a rate of events, a risk, a cost and a utility, of degree one in each."""
    rate = numpyro.sample("rate", dist.Gamma(30.0, 200.0))
    risk = numpyro.sample("risk", dist.Beta(12.0, 28.0))
    cost = numpyro.sample("cost", dist.Gamma(16.0, 0.004))
    utility = numpyro.sample("utility", dist.Beta(30.0, 10.0))
    value = 30_000 * utility
    return {
        "none": -rate * cost * 5 + value * (1 - 0.2 * risk),
        "drug": -0.6 * rate * cost * 5 - 900 + value * (1 - 0.2 * risk),
        "screen": -0.8 * rate * cost * 5 - 700 + value * (1 - 0.13 * risk),
    }


def draw_rates(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """For the rivals."""
    return {
        "rate": rng.gamma(30, 1 / 200, n),
        "risk": rng.beta(12, 28, n),
        "cost": rng.gamma(16, 250, n),
        "utility": rng.beta(30, 10, n),
    }


def benefit_rates(x: dict[str, np.ndarray]) -> np.ndarray:
    """For the rivals."""
    value, events = 30_000 * x["utility"], x["rate"] * x["cost"] * 5
    none = -events + value * (1 - 0.2 * x["risk"])
    drug = -0.6 * events - 900 + value * (1 - 0.2 * x["risk"])
    screen = -0.8 * events - 700 + value * (1 - 0.13 * x["risk"])
    return np.stack([none, drug, screen], axis=-1)


def given(*names: str) -> Callable[[np.random.Generator, dict[str, np.ndarray], int], dict[str, np.ndarray]]:
    """Inner draws of the sites that are not learned."""

    def inner(rng: np.random.Generator, x: dict[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
        number = len(next(iter(x.values())))
        fresh = (draw_betas if "p1" in x else draw_rates)(rng, number * n)
        return {k: x[k][:, None] if k in names else fresh[k].reshape(number, n) for k in x}

    return inner


def after_trials(rng: np.random.Generator, x: dict[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    """Both arms given 20 trials each."""
    s1, s2 = rng.binomial(20, x["p1"])[:, None], rng.binomial(20, x["p2"])[:, None]
    size = (len(s1), n)
    return {"p1": rng.beta(2 + s1, 23 - s1, size), "p2": rng.beta(5 + s2, 26 - s2, size)}


def after_years(rng: np.random.Generator, x: dict[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    """Rate and risk given 100 years and 60 people."""
    events, cases = rng.poisson(100 * x["rate"])[:, None], rng.binomial(60, x["risk"])[:, None]
    size = (len(events), n)
    fresh = draw_rates(rng, size[0] * n)
    rate, risk = rng.gamma(30 + events, 1 / 300, size), rng.beta(12 + cases, 88 - cases, size)
    return {"rate": rate, "risk": risk, "cost": fresh["cost"].reshape(size), "utility": fresh["utility"].reshape(size)}


def benefit_betas(x: dict[str, np.ndarray]) -> np.ndarray:
    """For the rivals."""
    return 1000 * np.stack(np.broadcast_arrays(x["p1"], x["p2"]), axis=-1)


def no_summaries(rng: np.random.Generator, x: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """EVPPI needs none."""
    del rng
    return x


CASES = (
    Case("two arms, EVPPI p1", betas, ("p1",), None, draw_betas, benefit_betas, no_summaries, given("p1")),
    Case(
        "two arms, EVSI 20 each",
        betas,
        (),
        bm.information.Study({"p1": 20, "p2": 20}),
        draw_betas,
        benefit_betas,
        lambda rng, x: {"x1": rng.binomial(20, x["p1"]), "x2": rng.binomial(20, x["p2"])},
        after_trials,
    ),
    Case("rates, EVPPI rate", costs_and_rates, ("rate",), None, draw_rates, benefit_rates, no_summaries, given("rate")),
    Case(
        "rates, EVPPI rate, risk, cost",
        costs_and_rates,
        ("rate", "risk", "cost"),
        None,
        draw_rates,
        benefit_rates,
        no_summaries,
        given("rate", "risk", "cost"),
    ),
    Case(
        "rates, EVSI 100 years, 60 people",
        costs_and_rates,
        (),
        bm.information.Study({"rate": 100, "risk": 60}),
        draw_rates,
        benefit_rates,
        lambda rng, x: {"events": rng.poisson(100 * x["rate"]), "cases": rng.binomial(60, x["risk"])},
        after_years,
    ),
)


def ours(case: Case, model: DecisionModel, seed: int, points: int | None = None) -> float:
    """The number by this library."""
    key = jax.random.key(seed)
    if case.study is None:
        return bm.information.evppi(key, model, case.sites, num_draws=points).value
    return bm.information.evsi(key, model, case.study, num_draws=points).value


def regression(case: Case, seed: int, number: int) -> float:
    """The same by `heormodel`."""
    rng = np.random.default_rng(seed)
    draws = case.draw(rng, number)
    benefit = case.benefit(draws)
    index = pd.RangeIndex(number, name="iteration")
    names = [f"s{i}" for i in range(benefit.shape[1])]
    effects = pd.DataFrame(benefit, index=index, columns=names)
    outcomes = Outcomes.from_wide(pd.DataFrame(0.0, index=index, columns=names), effects)
    if case.study is None:
        return float(evppi(outcomes, pd.DataFrame(draws, index=index), list(case.sites), WTP))
    return float(evsi_regression(outcomes, pd.DataFrame(case.summaries(rng, draws), index=index), WTP))


def nested(case: Case, seed: int, number: int) -> float:
    """The same by nested Monte Carlo, `INNER` draws inside."""
    rng = np.random.default_rng(seed)
    benefit = case.benefit(case.inner(rng, case.draw(rng, number), INNER)).mean(1)
    return float(benefit.max(1).mean() - benefit.mean(0).max())


def seconds(call: Callable[..., object], *args: object) -> float:
    """CPU seconds."""
    start = time.process_time()
    call(*args)
    return time.process_time() - start


def number_for(rival: Callable[[Case, int, int], float], case: Case, budget: float) -> int:
    """The largest power of two of draws whose CPU time is within the budget; at least 64."""
    number = 64
    while number < 1 << 20 and min(seconds(rival, case, 0, 2 * number) for _ in range(3)) <= budget:
        number *= 2
    return number


def measure(size: Size) -> Iterator[Measured]:
    """Lines of the record: one value, ours at its defaults, which are exact or at least as exact (see `main`)."""
    for case in CASES:
        model = bm.strategies.decision_model(case.program)
        mine = lambda case=case, model=model: ours(case, model, 0)  # noqa: E731
        theirs = lambda case=case: regression(case, 0, 10_000)  # noqa: E731
        yield in_turns(case.name, "value", mine, "heormodel, 10,000 draws", theirs, size)


def main(repeats: int) -> None:
    """A table."""
    heads = f"{'value':>10} {'how':>9} {'ms':>7} {'error':>9}"
    print(f"{'':34} {heads}   rivals in 1 and 10 times the CPU time: draws, error")
    for case in CASES:
        model = bm.strategies.decision_model(case.program)
        truth = ours(case, model, 10_000, 1 << 22)
        ours(case, model, 0)
        spent = float(np.median([seconds(ours, case, model, s) for s in range(5)]))
        errors = [ours(case, model, 1 + s) - truth for s in range(repeats)]
        mine = float(np.sqrt(np.mean(np.square(errors))))
        exact = "exact" if mine < 1e-9 * truth else "sampled"
        print(f"{case.name:34} {truth:>10.4f} {exact:>9} {1e3 * spent:>7.1f} {mine:>9.2g}")
        for name, rival in (("heormodel", regression), ("nested", nested)):
            cells = []
            for times in TIMES:
                number = number_for(rival, case, times * spent)
                off = [rival(case, 100 + s, number) - truth for s in range(repeats)]
                cells.append(f"{number:>8} {np.sqrt(np.mean(np.square(off))):>8.3g}")
            print(f"  {name:32} {'':>10} {'':>9} {'':>7} {'':>9}   {'  '.join(cells)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
