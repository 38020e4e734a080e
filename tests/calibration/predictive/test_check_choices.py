"""The check accepts persons of the model and flags one that learns otherwise."""

import warnings

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.behaviour import ChoiceLog, fit
from bayes_mdp.calibration import check_choices
from bayes_mdp.inference import SamplingWarning
from tests.behaviour.bandits import MODEL, environment, play
from tests.text import unwrapped


def fitted(log, sampler=bm.inference.NUTS(100, 100, 2), **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        return fit(jax.random.key(1), MODEL, log, sampler=sampler, **options)


@pytest.fixture(scope="module")
def own():
    return fitted(play())


def alternating():
    """Two lefts, two rights, with a slip now and then: whatever the reward."""
    rng = np.random.default_rng(0)
    action = (np.arange(40)[None] // 2 + np.arange(6)[:, None]) % 2
    action = np.where(rng.random((6, 40)) < 0.05, 1 - action, action)
    return ChoiceLog(np.zeros((6, 40), int), action, (rng.random((6, 40)) < 0.5).astype(float))


def test_persons_of_the_model_pass(own):
    found = check_choices(jax.random.key(0), own)
    assert set(found.comparisons) == {"log_likelihood", "stay", "stay_spread", "action_share"}
    # One fixed key; under the model each p is conservative.
    assert found.surprises == [] and "No statistic is surprising" in str(found)
    assert found.table()["stay"].sizes == {"quantity": 4, "stay_dim_0": 1, "stay_dim_1": 2, "stay_dim_2": 2}


def test_free_runs_pass_too(own):
    found = check_choices(jax.random.key(0), own, environment=environment(), num_draws=60)
    assert set(found.comparisons) == {"stay", "stay_spread", "action_share"} and found.surprises == []


def test_a_stranger_is_flagged():
    """Repeats every second choice and alternates between: a statistic of one's own sees it."""

    def second_order(log, action):
        before = np.asarray(log.action)
        return float((action[:, 2:] == before[:, :-2]).mean())

    found = check_choices(jax.random.key(0), fitted(alternating()), statistics={"same_as_two_before": second_order})
    assert found.surprises == ["same_as_two_before"] and "not what this model would make" in unwrapped(found)


def test_wrong_arguments_are_refused():
    own = fitted(play(10), bm.inference.NUTS(10, 20, 1), pooling="complete")
    with pytest.raises(TypeError, match=r"posterior is 3, expected what bayes_mdp\.behaviour\.fit returns"):
        check_choices(jax.random.key(0), 3)  # type: ignore[arg-type]
    sizes = iter(range(1, 10))
    with pytest.raises(ValueError, match=r"statistics\['many'\] has shapes .*, expected one shape"):
        check_choices(jax.random.key(0), own, num_draws=3, statistics={"many": lambda log, a: np.zeros(next(sizes))})
