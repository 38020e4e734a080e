"""Numbers of tables and slice sampling against their exact laws."""

import numpy as np
import pytest
from scipy.stats import kstest, norm

from bayes_mdp.inference import pooled_posterior as module
from bayes_mdp.inference.pooled_posterior import table_numbers
from bayes_mdp.random.slice_sampling import slice_step

pytestmark = pytest.mark.numerics


def exact_law(concentration: float, customers: int) -> np.ndarray:
    """Probabilities of 0, 1, ... tables, customer by customer."""
    law = np.zeros(customers + 1)
    law[0] = 1.0
    for i in range(customers):
        new = concentration / (concentration + i)
        law[1:] = law[1:] * (1 - new) + law[:-1] * new
        law[0] *= 1 - new
    return law


@pytest.mark.parametrize("early", [4096, 5])
@pytest.mark.parametrize(("concentration", "customers"), [(0.3, 40), (4.0, 40), (1e-30, 7), (50.0, 3)])
def test_tables_have_their_law(monkeypatch, early, concentration, customers):
    """20,000 draws: a probability is off by 5.5 standard errors with probability 4e-8 each; it catches .02."""
    monkeypatch.setattr(module, "EARLY", early)
    number = 20_000
    drawn = table_numbers(np.random.default_rng(1), np.full(number, customers), np.full(number, concentration))
    law = exact_law(concentration, customers)
    share = np.bincount(drawn, minlength=customers + 1) / number
    assert np.all(np.abs(share - law) <= 5.5 * np.sqrt(law * (1 - law) / number) + 3 / number)


def test_millions_of_customers():
    """The expectation is c (digamma(c + n) - digamma(c)); 2,000 draws, 5.5 standard errors."""
    concentration, customers = 2.0, 3_000_000_000
    drawn = table_numbers(np.random.default_rng(2), np.full(2000, customers), np.full(2000, concentration))
    expected = concentration * (np.log(customers) - (1 - np.euler_gamma))  # digamma(2) = 1 - gamma
    assert abs(drawn.mean() - expected) < 5.5 * drawn.std() / 2000**0.5


def test_a_slice_keeps_a_normal_density():
    """3,000 steps, each tenth kept; p below 1e-6 is a false alarm."""
    rng, x, kept = np.random.default_rng(3), 0.0, []
    for i in range(6000):
        x = slice_step(rng, x, lambda y: -0.5 * ((y - 1.0) / 2.0) ** 2, 1.0)
        kept += [x] if i % 10 == 0 else []
    assert kstest(kept, norm(1.0, 2.0).cdf).pvalue > 1e-6
