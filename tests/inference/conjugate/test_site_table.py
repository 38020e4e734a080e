"""Draws of a closed form as values of the program's own sites: the program returns the same law at them."""

# pyright: reportIndexIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import bayes_mdp as bm
from bayes_mdp.models.mdp_spec import reward_table
from bayes_mdp.models.reward_laws import law_mean, law_variance

SPACE = bm.StateActionSpace(4, 2)
FEATURES = np.random.default_rng(0).normal(size=(4, 2, 3))


def cells(name, law):
    with SPACE.plates():
        return numpyro.sample(name, law)


def stretched_normal_gamma():
    reward = cells("reward", bm.models.NormalGamma(0.0, 1.0, 2.0, 1.0))
    return dist.Normal(2.0 * reward[..., 0] + 1.0, reward[..., 1] ** -0.5)


def pairs():
    tau = cells("tau", dist.Gamma(3.0, 2.0))
    return dist.Normal(cells("mean", dist.Normal(0.0, (2.0 * tau) ** -0.5)), tau**-0.5)


def regression():
    tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
    weights = numpyro.sample("w", dist.Normal(jnp.zeros(3), tau**-0.5).to_event(1))
    return dist.Normal(FEATURES @ weights, tau**-0.5)


def categorical():
    return dist.Categorical(cells("probs", dist.Dirichlet(jnp.ones(3))))


def dirichlet_rows():
    return cells("transition", dist.Dirichlet(jnp.ones(4)))


def shared_rows():
    """Rows of states alone, in another order."""
    with SPACE.plates("state"):
        probs = numpyro.sample("transition", dist.Dirichlet(jnp.ones(4)))
    return probs[np.array([2, 0, 3, 1])]


def advance():
    move = cells("advance", dist.Beta(2.0, 1.0))[..., None]
    ahead = jax.nn.one_hot(jnp.minimum(jnp.arange(4) + 1, 3), 4)[:, None, :]
    return move * ahead + (1 - move) * jnp.eye(4)[:, None, :]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("rows", "reward"),
    [
        pytest.param(dirichlet_rows, stretched_normal_gamma, marks=pytest.mark.slow),
        (shared_rows, pairs),
        (advance, regression),
        pytest.param(dirichlet_rows, categorical, marks=pytest.mark.slow),
    ],
)
def test_the_program_gives_the_same_law_at_these_values(rows, reward):
    def program(space):
        return bm.models.MDPSpec(rows(), reward())

    posterior = bm.infer(jax.random.key(0), program, space=SPACE, method="exact")
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(1))
        drawn = posterior.transition_probs.sample_sites(keys[0])
        parameters = posterior.reward_cells.sample_sites(keys[1])
        values = posterior.site_tables[0].values(drawn, parameters)
        spec = handlers.seed(handlers.substitute(program, data=dict(values)), 0)(SPACE)
        ours, theirs = posterior.reward_cells.table_of(parameters).law, reward_table(spec, SPACE).law
        expected = np.broadcast_to(spec.transition_probs, (4, 2, 4))
        np.testing.assert_allclose(posterior.transition_probs.gather(drawn), expected, atol=1e-12)
        np.testing.assert_allclose(law_mean(ours), law_mean(theirs), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(law_variance(ours), law_variance(theirs), rtol=1e-12)
