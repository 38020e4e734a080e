"""`check(quantity="chosen policy")`: intervals of a policy that the data chose."""

import jax
import numpy as np
import pytest

from bayes_mdp.calibration.checks.checking import CheckOptions, check
from bayes_mdp.calibration.simulation_based.prior_sbc import run_simulations
from bayes_mdp.calibration.simulation_based.quantities import CHOSEN_POLICY, value_of_chosen_policy
from bayes_mdp.calibration.simulation_based.ranks import Design
from bayes_mdp.inference.route import fit_for
from bayes_mdp.mdp import Discounted, Episodic, StateActionSpace
from bayes_mdp.models.priors import dirichlet_bernoulli, known_rewards

SPACE = StateActionSpace(4, 3)
PAID = np.eye(4)[0][:, None] * np.ones(3)


def z_scores(fitted, *, truths):
    """(truth - mean) / sd of the chosen policy's value in 200 simulations, inferred under `fitted`."""
    design = Design(truths, SPACE, 100, 36, value_of_chosen_policy(SPACE), None, Discounted(0.9), chooses=True)
    found = run_simulations(jax.random.key(0), design, fit_for(fitted, SPACE, "exact"), 200, {}, None)
    truth, draws = (found[name].to_numpy().astype(float)[..., 0] for name in ("truth", "draws"))
    return (truth - draws.mean(-1)) / draws.std(-1)


def test_the_right_prior_is_calibrated_for_the_policy_that_the_data_choose():
    """An exact test with false alarms of 1e-6."""
    space = StateActionSpace(3, 2)
    answer = check(
        jax.random.key(0),
        dirichlet_bernoulli(),
        space,
        options=CheckOptions(quantities=CHOSEN_POLICY, num_transitions=24, false_alarm=1e-6),
    )
    assert answer.calibrated
    assert list(answer.dataset["quantity"].to_numpy()) == [CHOSEN_POLICY]


def test_a_prior_that_learns_too_fast_claims_too_much_for_what_it_chooses():
    """200 z-scores have a mean of 0 +- .08 under the right prior (bound .4: 5 sd), far below under the wrong one."""
    right, wrong = known_rewards(PAID, 1.0), known_rewards(PAID, 0.05)
    assert abs(z_scores(right, truths=right).mean()) < 0.4
    assert z_scores(wrong, truths=right).mean() < -0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"quantities": "chosen"}, "quantities is 'chosen', expected one of chosen policy, a mapping of functions"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        CheckOptions(**arguments)


def test_episodes_have_their_policy_for_each_step():
    space = StateActionSpace(2, 2, horizon=3)
    answer = check(
        jax.random.key(1),
        dirichlet_bernoulli(),
        space,
        objective=Episodic(3),
        num_simulations=20,
        options=CheckOptions(quantities=CHOSEN_POLICY, num_draws=20),
    )
    assert np.isfinite(answer.dataset["truth"]).all()
