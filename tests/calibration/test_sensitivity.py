# pyright: reportGeneralTypeIssues=false
"""What depends on the prior: in closed form where there is one, and in words."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.calibration.draws import draw
from bayes_mdp.calibration.priors import log_prior_of, top_sites
from bayes_mdp.calibration.sensitivity import prior_sensitivity
from bayes_mdp.inference import mixture
from bayes_mdp.mdp import Discounted
from tests.calibration.beliefs import SPACE, collapsed, sampled, student, transitions

NUM_DRAWS = 40


@pytest.mark.slow
def test_log_prior_of_leaves_is_that_of_scipy(cases):
    """Up to a constant; a shared leaf counts once."""
    case = cases("normal_gamma")
    draws = draw(jax.random.key(0), case.posterior, NUM_DRAWS)
    terms = log_prior_of(case.posterior, draws)
    probs = draws.transition_probs.astype(float)
    probs /= probs.sum(-1, keepdims=True)
    rows = sum(stats.dirichlet.logpdf(probs[:, s, a].T, np.full(4, 0.8)) for s in range(3) for a in range(2))
    _assert_equal_but_for_a_constant(terms["transition_probs"], rows)
    mean, precision = (p.reshape(NUM_DRAWS, -1) for p in draws.parameters)
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
    rates = draws.parameters[0][:, [0, 1, 2], 0]
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
    assert "more draws (num_draws=) show smaller ones" in text
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
    with pytest.raises(TypeError, match="posterior is a Mixture, expected one as infer returns it"):
        prior_sensitivity(mixture([one, one], weights=[1, 1]))
    with pytest.raises(ValueError, match="was loaded and has no program"):
        prior_sensitivity(collapsed())
