"""Which draws are shown: chains thinned evenly, weights by systematic resampling."""

from dataclasses import replace

import numpy as np

from bayes_mdp.calibration.belief.draws import choose
from tests.calibration.beliefs import CHAINS, SAMPLES, collapsed


def test_chains_are_kept_and_thinned_evenly():
    posterior = collapsed()
    index, run = choose(np.random.default_rng(0), posterior, 20)
    np.testing.assert_array_equal(index.reshape(CHAINS, 10), [[*range(0, 40, 4)], [*range(40, 80, 4)]])
    assert run.num_chains == CHAINS and not run.attributes
    assert set(run.stats) == {"diverging", "acceptance_rate", "n_steps", "lp", "energy", "tree_depth"}
    np.testing.assert_array_equal(run.stats["diverging"], index < 3)
    np.testing.assert_array_equal(run.sites["scale"], np.asarray(posterior.hyperparameters["scale"])[index])


def test_more_draws_than_the_chains_have_are_not_made_up():
    posterior = collapsed()
    index, _ = choose(np.random.default_rng(0), posterior, 10_000)
    np.testing.assert_array_equal(index, np.arange(CHAINS * SAMPLES))


def test_weights_become_numbers_of_copies():
    """Systematic resampling: every component its expected number of times, rounded up or down."""
    weights = np.random.default_rng(2).dirichlet(np.full(80, 0.3))
    posterior = replace(collapsed(), log_weights=np.log(weights) + 7.0)
    index, run = choose(np.random.default_rng(0), posterior, 500)
    copies = np.bincount(index, minlength=80)
    assert np.all(np.abs(copies - 500 * weights) < 1.0 + 1e-6)
    assert run.num_chains == 4 and run.markov_chains == 1 and not run.stats
    assert str(run.attributes["no_markov_chains"]).startswith("draws resampled by weight: ")
    np.testing.assert_allclose(float(run.attributes["weights_ess"]), 1 / (weights**2).sum())
    assert run.attributes["weighted_draws"] == "resampled by weight from 80"
    # Copies of one component do not stand side by side.
    assert np.mean(index[1:] == index[:-1]) < 0.5


def test_other_draws_than_those_of_the_chains_are_not_called_chains():
    posterior = collapsed()
    moved = replace(posterior, hyperparameters={"scale": posterior.hyperparameters["scale"] + 1.0})
    _, run = choose(np.random.default_rng(0), moved, 20)
    assert run.markov_chains == 1 and "weighted_draws" in run.attributes and not run.stats
