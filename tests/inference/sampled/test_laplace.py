"""Laplace's approximation: near the exact posterior, one compilation, and the same when it is vmapped."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false

import jax
import numpy as np
import pytest
from scipy import special

from bayes_mdp.inference.draws.methods import Laplace
from bayes_mdp.inference.sampled.sampled_fit import sampled_fit


@pytest.mark.slow
def test_laplace_is_the_normal_at_the_mode(small, key):
    """With two outcomes the unconstrained row is the logit of its first probability, whose mode and curvature are
    log(a / b) and a b / (a + b) for Dirichlet(a, b): 24 moments at six standard errors of 20,000 independent draws,
    false-alarm rate 5e-8. The rewards are exact. It must catch the mode of the row itself, (a - 1) / (a + b - 2).
    """
    data = small.transitions(40, 5)
    posterior = sampled_fit(small.prior, small.space, Laplace(num_samples=20_000)).on_host(key, data)
    assert posterior.problems() == []
    exact, counts = small.normal_oracle(data), np.ones((2, 2, 2))
    np.add.at(counts, (data.state, data.action, data.next_state), 1)
    a, b = counts[..., 0], counts[..., 1]
    logit = special.logit(np.asarray(posterior.sites["transition"], np.float64)[None, ..., 0])
    deviation = np.sqrt((a + b) / (a * b))
    assert small.worst_error(logit, np.log(a / b), deviation) < 6.0
    assert small.worst_error(logit, np.log((a - 1) / (b - 1)), deviation) > 10.0
    rewards = np.asarray(posterior.sites["reward"], np.float64)[None]
    assert small.worst_error(rewards, exact["reward"], exact["reward_sd"]) < 6.0


@pytest.mark.slow
def test_many_data_sets_at_once_are_one_by_one(small, key):
    """No chain is chaotic here: vmapped and alone agree draw by draw."""
    fit = sampled_fit(small.prior, small.space, Laplace(num_samples=50))
    data = jax.tree.map(lambda *x: np.stack(x), *(fit.summarise(small.transitions(20, seed)) for seed in (1, 2, 3)))
    keys = jax.random.split(key, 3)
    together = jax.jit(jax.vmap(fit))(keys, data)
    one = jax.jit(fit)
    for i in range(3):
        alone = one(keys[i], jax.tree.map(lambda x, i=i: x[i], data))
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-3, atol=1e-3)
    assert one._cache_size() == 1
