"""The tour of clinics: exact values by a recursion of its own, routes as claimed, a search that finds the trial."""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln

import bayes_mdp as bm

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tour():
    spec: Any = importlib.util.spec_from_file_location("site_tour", ROOT / "examples" / "site_tour.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exact(tour, nodes=400):
    """{action: its value at the first patient}: what is typical on a grid, the rest by sums over what was seen."""
    typical = (np.arange(nodes) + 0.5) / nodes
    # Midpoints of a density that is infinite at zero: cells by the distribution function.
    prior = np.diff(stats.beta.cdf(np.linspace(0, 1, nodes + 1), *tour.TYPICAL))
    a, b = tour.ALIKE * typical, tour.ALIKE * (1 - typical)

    @cache
    def likelihood(s, f):
        return np.exp(betaln(a + s, b + f) - betaln(a, b))

    @cache
    def weights(seen):
        found = prior * np.prod([likelihood(*one) for one in seen], axis=0)
        return found / found.sum()

    @cache
    def chance(seen, s, f):
        w = weights(seen) * likelihood(s, f)
        return float(w / w.sum() @ ((a + s) / (tour.ALIKE + s + f)))

    @cache
    def value(clinic, patient, seen, s, f):
        if patient == tour.PATIENTS:
            clinic, patient, seen, s, f = clinic + 1, 0, tuple(sorted((*seen, (s, f)))) if s + f else seen, 0, 0
        return 0.0 if clinic == tour.CLINICS else max(actions(clinic, patient, seen, s, f))

    def actions(clinic, patient, seen, s, f):
        p = chance(seen, s, f)
        old = tour.SUCCESS + value(clinic, patient + 1, seen, s, f)
        after = value(clinic, patient + 1, seen, s + 1, f), value(clinic, patient + 1, seen, s, f + 1)
        return old, p * (1 + after[0]) + (1 - p) * after[1]

    return actions(0, 0, (), 0, 0)


def test_numbers_of_the_docstring(tour):
    old, new = exact(tour)
    assert new == pytest.approx(tour.OPTIMUM, abs=1e-3)
    assert new - old == pytest.approx(0.061, abs=1e-3)
    assert tour.NEVER == tour.STEPS * tour.SUCCESS

    def better(typical):  # E[max(success, .5)] of a clinic
        law = stats.beta(tour.ALIKE * typical, tour.ALIKE * (1 - typical))
        above = stats.beta(tour.ALIKE * typical + 1, tour.ALIKE * (1 - typical))
        return tour.SUCCESS * law.cdf(tour.SUCCESS) + typical * above.sf(tour.SUCCESS)

    known = stats.beta(*tour.TYPICAL).expect(better)
    assert tour.STEPS * known == pytest.approx(tour.PERFECT, abs=1e-3)


def test_routes(tour):
    assert tour.belief(tour.sharing).method == "quadrature"
    assert tour.belief(tour.separate).method == "exact"


def test_a_search_of_the_tour_tries_at_once(tour):
    """With c of the whole return; the hierarchy is draws of its prior, a component before each simulation."""
    plan = bm.decisions.plan_bayes_adaptive(
        jax.random.key(0),
        tour.belief(tour.sharing),
        "clinic 1, patient 1",
        tour.TOUR,
        num_simulations=100_000,
        options=bm.decisions.SearchOptions(exploration=tour.STEPS),
    )
    assert plan.space.action_names[plan.action] == "new"
    alone = bm.decisions.plan_bayes_adaptive(
        jax.random.key(0), tour.belief(tour.separate), "clinic 1, patient 1", tour.TOUR, num_simulations=100_000
    )
    assert alone.space.action_names[alone.action] == "old"


@pytest.mark.slow
def test_sharing_gains(tour):
    """400 tours: the search under the hierarchy is ahead of that under separate clinics by more than four standard
    errors of the paired difference (.57 at .2 with 100 tours)."""
    found = tour.successes(400, 2000)
    gain = found["BAMCP, sharing"] - found["BAMCP, separate"]
    assert gain.mean() > 4 * gain.std(ddof=1) / np.sqrt(len(gain))
