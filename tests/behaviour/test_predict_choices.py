import jax
import numpy as np
import pytest

from bayes_mdp.behaviour import TwoStepTask, predict_choices, predict_freely
from bayes_mdp.behaviour.likelihood import choice_log_probs
from tests.behaviour.bandits import MODEL, environment

KEY = jax.random.key(3)


def test_one_step_predictions_have_the_probabilities_of_the_draws(fitted):
    drawn = predict_choices(KEY, fitted, num_draws=300)
    params = fitted.each_person(300)
    right = np.mean(
        [np.exp(choice_log_probs(MODEL, {k: x[i] for k, x in params.items()}, fitted.log))[..., 1] for i in range(300)],
        axis=0,
    )
    z = (drawn.sum(0) - 300 * right) / np.sqrt(300 * right * (1 - right))
    # Binomial or narrower (probabilities vary between draws): 240 cells, each beyond 6 with probability 2e-9.
    assert drawn.shape == (300, 6, 40) and np.abs(z).max() < 6


def test_free_runs_are_of_the_same_persons_and_lengths(fitted):
    runs = predict_freely(KEY, fitted, environment(), num_draws=4)
    assert len(runs) == 4 and runs[0].subjects == fitted.log.subjects
    assert runs[0].action.shape == (6, 40) and (runs[0].action != runs[1].action).any()
    with pytest.raises(ValueError, match="environment has 3 states and 2 actions, expected 1 and 2 as in the log"):
        predict_freely(KEY, fitted, TwoStepTask(), num_draws=1)
