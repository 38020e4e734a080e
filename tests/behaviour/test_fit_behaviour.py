import warnings

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.behaviour import fit, log_likelihood
from bayes_mdp.inference import SamplingWarning
from tests.behaviour.bandits import MODEL, play
from tests.text import unwrapped

NODES = np.linspace(-4.0, 4.0, 81)


@pytest.mark.slow
def test_complete_pooling_is_the_posterior_of_a_grid():
    """Two parameters: means and spreads by quadrature on the line, the likelihood of the same log."""
    log = play()
    posterior = fit(jax.random.key(2), MODEL, log, pooling="complete", sampler=bm.inference.NUTS(200, 500, 2))
    rate, beta = (np.asarray(MODEL.parameters[name].constrain(NODES), float) for name in ("rate", "beta"))
    total = jax.jit(jax.vmap(lambda r, b: log_likelihood(MODEL, {"rate": r, "beta": b}, log).sum()))
    grid = np.stack(np.meshgrid(rate, beta, indexing="ij")).reshape(2, -1)
    log_weight = np.asarray(total(*grid), float).reshape(81, 81) - 0.5 * NODES[:, None] ** 2 - 0.5 * NODES**2
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    for name, values, share in (("rate", rate, weight.sum(1)), ("beta", beta, weight.sum(0))):
        mean = (share * values).sum()
        sd = np.sqrt((share * values**2).sum() - mean**2)
        draws = np.asarray(posterior.params[name], float)
        # At least 150 effective draws: five standard errors, false alarm 6e-7 each.
        assert float(np.min(posterior.mcmc.ess()[f"{name}_line"])) > 150
        assert abs(draws.mean() - mean) < 5 * sd / np.sqrt(150)
        assert abs(np.log(draws.std() / sd)) < 5 / np.sqrt(2 * 150)


def test_draws_table_and_text_agree(fitted):
    site = fitted.mcmc.draws
    line = site["rate_mean"][..., None] + site["rate_sd"][..., None] * site["rate_z"]
    np.testing.assert_allclose(fitted.params["rate"], MODEL.parameters["rate"].constrain(line), rtol=1e-5)
    assert fitted.each_person()["beta"].shape == (600, 6) and fitted.each_person(20)["beta"].shape == (20, 6)
    frame = fitted.table()
    assert len(frame) == 2 + 2 * 6
    row = frame[(frame.parameter == "beta") & (frame.subject == 3)].iloc[0]
    assert row["mean"] == pytest.approx(np.asarray(fitted.params["beta"])[..., 3].mean(), rel=1e-5)
    text = str(fitted)
    head = "Parameters of 6 subjects from 240 choices (Learner, pooling partial, 2 chains of 300 draws)"
    assert unwrapped(text).startswith(head)
    assert "rate of 0" in text and "and 1 more subject (table())" in text


def test_persons_of_one_group_are_shrunk_towards_it(fitted):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        alone = fit(jax.random.key(1), MODEL, fitted.log, pooling="none", sampler=bm.inference.NUTS(100, 150, 2))
    assert alone.group() == {} and "group" not in str(alone).splitlines()[1]
    spread = [np.asarray(x.params["rate"]).mean((0, 1)).std() for x in (fitted, alone)]
    assert spread[0] < spread[1]


def test_few_draws_warn_and_wrong_arguments_are_refused(fitted):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(jax.random.key(0), MODEL, fitted.log, pooling="complete", sampler=bm.inference.NUTS(20, 20, 2))
    assert any(isinstance(x.message, SamplingWarning) and "effective sample size" in str(x.message) for x in caught)
    with pytest.raises(TypeError, match="sampler is 3, expected NUTS"):
        fit(jax.random.key(0), MODEL, fitted.log, sampler=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pooling is 'some'"):
        fit(jax.random.key(0), MODEL, fitted.log, pooling="some")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key is 3, expected a typed key"):
        fit(3, MODEL, fitted.log)  # type: ignore[arg-type]
