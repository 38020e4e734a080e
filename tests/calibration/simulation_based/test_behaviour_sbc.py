"""Simulation-based calibration of the inference about people: it passes what is right and catches broken twins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.behaviour import Parameter, TwoStep, TwoStepTask, log_likelihood
from bayes_mdp.calibration import sbc_behaviour
from bayes_mdp.calibration.simulation_based.behaviour_sbc import BehaviourDesign, simulation_of_behaviour
from bayes_mdp.calibration.simulation_based.prior_sbc import run_in_chunks
from bayes_mdp.calibration.simulation_based.sbc_result import SBC
from tests.behaviour.bandits import MODEL, Learner, environment
from tests.text import unwrapped

KEY = jax.random.key(0)


class Rate(Learner):
    """Its only parameter is the learning rate."""

    parameters = {"rate": Parameter("unit")}  # noqa: RUF012

    def policy(self, params, q, state):
        return jax.nn.log_softmax(4.0 * q)


class CountsTwice(Rate):
    """Every choice is counted twice."""

    def policy(self, params, q, state):
        return 2.0 * super().policy(params, q, state)


class LearnsTwice(Rate):
    """Every reward is learnt from twice."""

    def update(self, params, q, transition):
        return super().update(params, super().update(params, q, transition), transition)


def test_ranks_are_of_the_parameters_and_of_the_likelihood_of_the_choices():
    def of_truth_and_draws(drawn):
        again = log_likelihood(Rate(), {"rate": drawn.params["rate"]}, drawn.log).sum()
        return again - drawn.log_likelihood.sum()

    quantities = {"rate": lambda drawn: drawn.params["rate"][0], "difference": of_truth_and_draws}
    found = sbc_behaviour(
        KEY,
        Rate(),
        environment(),
        num_simulations=10,
        options=bm.calibration.SbcBehaviourOptions(
            num_subjects=2,
            num_choices=12,
            num_draws=20,
            pooling="none",
            sampler=bm.inference.NUTS(60, 60, 1),
            quantities=quantities,
        ),
    )
    data = found.dataset
    assert isinstance(found, SBC) and data.sizes == {"simulation": 10, "quantity": 2, "draw": 20}
    assert np.abs(data.draws.sel(quantity="difference")).max() < 1e-4
    draws, truth = (data[name].sel(quantity="rate") for name in ("draws", "truth"))
    np.testing.assert_array_equal(data["rank"].sel(quantity="rate"), (draws < truth).sum("draw"))
    assert (truth > 0).all() and (truth < 1).all() and len(np.unique(truth)) == 10
    assert "10 simulations of 12 choices of 2 subjects (pooling none), 20 draws each" in unwrapped(found)
    assert len([panel for panel in found.plot_ecdf().axes if panel.get_visible()]) == 1


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="sampler makes 20 draws, expected at least num_draws, 30"):
        sbc_behaviour(
            KEY,
            MODEL,
            environment(),
            options=bm.calibration.SbcBehaviourOptions(num_draws=30, sampler=bm.inference.NUTS(10, 10, 2)),
        )
    with pytest.raises(TypeError, match="environment is 3, expected an Environment or a Task"):
        sbc_behaviour(KEY, MODEL, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="model has no parameters"):
        sbc_behaviour(KEY, type("Fixed", (Learner,), {"parameters": {}})(), environment())


def verdict(fitted, num=1024):
    """Of `num` persons by themselves, 60 choices each, with this model fitted to them."""
    design = BehaviourDesign(
        Rate(), fitted, environment(), 1, 60, 60, "none", None, bm.inference.NUTS(200, 240, 1), None
    )
    attributes = {"method": "nuts", "data": "60 choices", "num_draws": "60", "program": ""}
    return SBC(run_in_chunks(KEY, lambda: simulation_of_behaviour(design), num, 64, attributes, None))


@pytest.mark.slow
def test_the_right_program_passes_and_broken_twins_fail():
    """False alarm 1e-6 over both quantities; finds draws narrower than .79 or wider than 1.29 times the right standard
    deviation, or shifted by .26 of it, with probability .95 (`detectable`)."""
    right = verdict(Rate())
    print(right)
    assert right.passed, str(right)
    assert right.detectable.narrow > 0.75 and right.detectable.shift < 0.3
    for twin in (CountsTwice(), LearnsTwice()):
        wrong = verdict(twin)
        print(wrong)
        assert "rate of subject 0" in wrong.failures, str(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["partial", "complete"])
def test_groups_pass(pooling):
    """The bandit learner. False alarm 1e-6; 256 simulations find draws narrower than .62 or wider than 1.8 times the
    right standard deviation, or shifted by .52 of it, with probability .95."""
    found = sbc_behaviour(
        KEY,
        MODEL,
        environment(),
        options=bm.calibration.SbcBehaviourOptions(num_choices=40, num_draws=60, pooling=pooling, num_subjects=5),
    )
    assert found.passed, str(found)
    assert jnp.isfinite(found.dataset.draws.values).all()


@pytest.mark.slow
def test_groups_of_the_two_step_task_pass():
    """The hybrid of four parameters. False alarm 1e-6; 64 simulations find a shift of one and a half
    standard deviations."""
    found = sbc_behaviour(
        KEY,
        TwoStep(4),
        TwoStepTask(),
        options=bm.calibration.SbcBehaviourOptions(num_choices=40, num_draws=40, num_subjects=3),
        num_simulations=64,
    )
    assert found.passed, str(found)
