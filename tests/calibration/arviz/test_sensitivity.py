# pyright: reportGeneralTypeIssues=false
"""What depends on the prior: in closed form where there is one, and in words."""

from functools import cache
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from bayes_mdp.calibration.arviz.sensitivity import by_formula, prior_sensitivity, sensitivity
from bayes_mdp.calibration.belief.draws import draw
from bayes_mdp.calibration.belief.program_run import log_prior_of, top_sites
from bayes_mdp.inference import mixture
from bayes_mdp.mdp import Discounted
from tests.calibration.beliefs import SPACE, collapsed, sampled, student, transitions

NUM_DRAWS = 40


@pytest.mark.slow
def test_log_prior_of_leaves_is_that_of_scipy(cases):
    """Up to a constant; a shared parameter counts once."""
    case = cases("normal_gamma")
    draws = draw(jax.random.key(0), case.posterior, NUM_DRAWS)
    terms = log_prior_of(case.posterior, draws)
    probs = draws.transition_probs.astype(float)
    probs /= probs.sum(-1, keepdims=True)
    rows = sum(stats.dirichlet.logpdf(probs[:, s, a].T, np.full(4, 0.8)) for s in range(3) for a in range(2))
    _assert_equal_but_for_a_constant(terms["transition_probs"], rows)
    mean, precision = (draws.variables()[f"reward_{p}"].reshape(NUM_DRAWS, -1) for p in ("mean", "precision"))
    loc = np.linspace(-1.0, 1.0, 6)
    rewards = stats.gamma.logpdf(precision, 4.0, scale=0.5) + stats.norm.logpdf(mean, loc, precision**-0.5)
    _assert_equal_but_for_a_constant(terms["rewards"], rewards.sum(1))


@pytest.mark.slow
def test_log_prior_of_tied_leaves(cases):
    case = cases("tied")
    draws = draw(jax.random.key(0), case.posterior, NUM_DRAWS)
    terms = log_prior_of(case.posterior, draws)
    probs = draws.transition_probs[:, 1:, 0].astype(float)
    probs /= probs.sum(-1, keepdims=True)
    rows = sum(stats.dirichlet.logpdf(probs[:, s].T, np.full(3, 0.8)) for s in range(2))
    _assert_equal_but_for_a_constant(terms["transition_probs"], rows)
    rates = draws.rewards.mean[:, [0, 1, 2], 0]
    _assert_equal_but_for_a_constant(terms["rewards"], stats.gamma.logpdf(rates, 2.0).sum(1))


def _assert_equal_but_for_a_constant(one, other):
    # Rows are drawn in float32; their logarithms have its precision.
    np.testing.assert_allclose(one - one.mean(), other - other.mean(), atol=2e-3)


def test_the_top_of_a_hierarchy_is_what_has_no_parents():
    assert top_sites(student, SPACE) == {"width", "drift", "transition"}
    posterior = sampled()
    draws = draw(jax.random.key(0), posterior, NUM_DRAWS)
    terms = log_prior_of(posterior, draws)
    assert set(terms) == {"width", "drift", "transition"}
    expected = stats.norm.logpdf(draws.run.sites["drift"]).sum((1, 2))
    np.testing.assert_allclose(terms["drift"], expected, rtol=1e-5)


@cache
def _found(**options) -> Any:
    return prior_sensitivity(sampled(), transitions(), num_draws=80, **options)


def test_table_and_words_of_a_sampled_posterior():
    found = _found()
    names = list(found.table["quantity"])
    assert {"width", "drift[0, 0]", "m[low, go]", "transition_probs[low, go, high]", "reward_mean[high, stay]"} <= {
        *names
    }
    assert min(found.thresholds) >= 0.05 and found.num_draws == 80
    assert sorted(found.scaled) == ["drift", "transition", "width"]
    text = str(found)
    assert text.startswith("Power-scaling sensitivity: 80 draws, prior of ")
    assert "more draws (num_draws=) show smaller ones" in " ".join(text.split())
    wide = found.table.set_index("quantity").loc["width"]
    # exp(-width) width, of draws from that very prior: raised to a power it moves by .3 of a sd per doubling.
    assert wide["prior"] > 0.1


@pytest.mark.slow
def test_quantities_of_the_mdp():
    found = _found(objective=Discounted(0.9))
    names = set(found.table["quantity"])
    assert {"value[low]", "q[high, go]", "width"} <= names and "reward_mean[low, go]" not in names
    own = prior_sensitivity(
        sampled(), transitions(), quantities={"spread": lambda mdp: jnp.ptp(mdp.reward)}, num_draws=40
    )
    assert "spread" in set(own.table["quantity"])


@pytest.mark.slow
def test_a_row_that_was_never_tried_rests_on_the_prior(cases):
    """State 2 of this case is never tried; its rewards have a prior sensitivity and no likelihood's."""
    case = cases("by_outcome")
    found = prior_sensitivity(case.posterior, num_draws=1000)
    table = found.table.set_index("quantity")
    never = table[[name.startswith("reward_mean[2") for name in table.index]]
    assert (never["likelihood"] < found.thresholds[1]).mean() > 0.8
    tried = table[[name.startswith("reward_mean[0, 0, 0") for name in table.index]]
    assert (tried["verdict"] == "rests on the data").all()


@pytest.mark.slow
def test_what_has_no_prior_to_scale_is_refused(cases):
    one = cases("known").posterior
    with pytest.raises(ValueError, match="no density of its prior, expected one from infer"):
        prior_sensitivity(mixture([one, one], weights=[1, 1]))
    with pytest.raises(
        ValueError, match="no density of its prior, expected one from infer: the posterior was built without"
    ):
        prior_sensitivity(collapsed())


def _exact(shift: float) -> float:
    """Of x ~ N(0, 1) to the density exp(shift x): at power alpha, x ~ N((alpha - 1) shift, 1)."""
    grid = np.linspace(-3.4, 3.4, 20001)
    rates = []
    for alpha in (0.99, 1.01):
        both = []
        for sign in (1.0, -1.0):
            p, q = stats.norm.cdf(grid), stats.norm.cdf(grid - sign * (alpha - 1) * shift)
            m = (p + q) / 2
            divergence = integrate.trapezoid(p * np.log2(p / m) + q * np.log2(q / m), grid)
            both.append(np.sqrt(max(divergence, 0.0) / integrate.trapezoid(p + q, grid)))
        rates.append(max(both) / abs(np.log2(alpha)))
    return float(np.mean(rates))


def test_a_normal_mean_that_a_power_shifts():
    """Quantiles in place of draws: no Monte Carlo error. Half the shift gives half the sensitivity (a broken twin)."""
    x = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)[:, None]
    x = np.random.default_rng(0).permutation(x)
    found = by_formula(x, 2.0 * x[:, 0])[0]
    assert found == pytest.approx(_exact(2.0), rel=0.02)
    assert by_formula(x, x[:, 0])[0] == pytest.approx(found / 2, rel=0.05)


def test_what_has_nothing_to_do_with_the_density_does_not_move():
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.normal(size=(2000, 2)), np.ones(2000)])
    found = sensitivity(x, 2.0 * x[:, 0])
    assert found[0] > 0.3 and found[1] < 0.05 and np.isnan(found[2])
    # A scale and a shift of the quantity change nothing.
    np.testing.assert_allclose(sensitivity(3.0 - 5.0 * x[:, :1], 2.0 * x[:, 0]), found[:1], rtol=1e-3)


@pytest.mark.skipif(version("arviz").startswith("0."), reason="ArviZ 0.x has no psense")
def test_arviz_says_the_same():
    x = np.random.default_rng(2).normal(size=(1000, 3))
    x[:, 1] = np.exp(x[:, 0])
    density = -0.5 * (x[:, 0] - 2.0) ** 2
    # It smooths the tail of the weights with a tail length of its own.
    np.testing.assert_allclose(sensitivity(x, density, 2), by_formula(x, density), rtol=0.01)
