"""The library may be used from several threads: the handlers of NumPyro, one stack for all, are never shared."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.models import MDPSpec

SPACE = bm.StateActionSpace(2, 1)
DATA_BINARY = bm.Transitions([0, 1, 1], [0, 0, 0], [0.0, 1.0, 0.0], [1, 1, 0])


def prior_of(scale):
    """A program of its own for each thread, with an array of its own."""
    table = np.full((2, 1, 2), float(scale))

    def prior(space):
        with space.plates():
            probs = numpyro.sample("transition", dist.Dirichlet(jnp.asarray(table)))
            mean = numpyro.sample("mean", dist.Beta(1.0 * scale, 1.0))
        return MDPSpec(probs, dist.Bernoulli(mean))

    return prior


def test_eight_threads_infer_what_one_does():
    def infer(scale):
        posterior = bm.infer(jax.random.key(0), prior_of(scale), DATA_BINARY, space=SPACE)
        assert isinstance(posterior, bm.inference.ConjugatePosterior)
        return posterior.method, float(posterior.log_evidence)

    scales = [1 + i % 4 for i in range(16)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(infer, scales))
    assert found == [infer(scale) for scale in scales]
    assert len({evidence for _, evidence in found}) == 4


@pytest.mark.slow
def test_eight_threads_run_what_one_does():
    env = bm.models.environment(
        MDPSpec(np.full((2, 1, 2), 0.5), dist.Bernoulli(np.array([[0.2], [0.8]]))), SPACE, np.array([1.0, 0.0])
    )

    def run(scale):
        result = bm.run(
            bm.agents.PSRL(),
            env,
            prior=prior_of(scale),
            objective=bm.Discounted(0.9),
            num_steps=20,
            num_seeds=1,
            key=jax.random.key(0),
        )
        return {name: result[name].to_numpy().tolist() for name in ("reward", "regret") if name in result}

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, [1, 2] * 4))
    assert found[0] and all(each == found[i % 2] for i, each in enumerate(found))
