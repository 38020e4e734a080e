"""Recipes: equal for equal computations alone, and what they refuse."""

# pyright: reportArgumentType=false, reportCallIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.draws.methods import NUTS, SVI, Laplace
from bayes_mdp.inference.sampled.recipe import recipe_for
from bayes_mdp.inference.sampled.sampled_fit import sampled_fit
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models import MDPSpec, known_rewards

SPACE = StateActionSpace(2, 2)


def sticky(scale=1.0, table=None):
    """A latent parent of a family that is no conjugate leaf, an array held by the program."""
    table = np.ones(2) if table is None else table

    def prior(space):
        stickiness = numpyro.sample("stickiness", dist.HalfNormal(scale))
        with space.plates():
            probs = numpyro.sample("probs", dist.Dirichlet(table + stickiness * jnp.eye(2)[:, None]))
        return MDPSpec(probs, jax.scipy.special.logsumexp(table) * jnp.ones(()))

    return prior


def test_equal_computations_are_equal_recipes():
    """Another function, the same program: one compilation serves both."""
    recipe = recipe_for(sticky(), SPACE, NUTS())
    same = recipe_for(sticky(), StateActionSpace(2, 2), NUTS())
    assert recipe == same and hash(recipe) == hash(same)
    assert sampled_fit(sticky(), SPACE, NUTS()) is sampled_fit(sticky(), SPACE, NUTS())


@pytest.mark.parametrize(
    "other",
    [
        (sticky(2.0), SPACE, NUTS()),
        (sticky(1.0, np.array([1.0, 1.5])), SPACE, NUTS()),
        (sticky(), StateActionSpace(2, 2, states=("a", "b")), NUTS()),
        (sticky(), SPACE, NUTS(num_samples=7)),
        (sticky(), SPACE, SVI()),
    ],
    ids=["a hyper-parameter", "an array", "the space", "an option", "the method"],
)
def test_what_differs_is_another_recipe(other):
    assert recipe_for(sticky(), SPACE, NUTS()) != recipe_for(*other)


def test_names():
    for method, name, number in ((NUTS(5, 10, 3), "nuts", 30), (SVI(), "svi", 1000), (Laplace(), "laplace", 1000)):
        recipe = recipe_for(sticky(), SPACE, method)
        assert (recipe.name, recipe.num_draws, recipe.latents) == (name, number, ("stickiness", "probs"))


def _site(*sites):
    def prior(space):
        for name, law, infer in sites:
            numpyro.sample(name, law, infer=infer)
        return MDPSpec(np.full((2, 2, 2), 0.5), dist.Normal(0.0, 1.0))

    return prior


UNIT = dist.Normal(0.0, 1.0)


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (_site(("x", UNIT, None), ("x", UNIT, None)), "two sites called 'x'"),
        (_site(("observed_next_state", UNIT, None)), "'observed_next_state' has a name of the library's own"),
        (_site(("z", dist.Categorical(logits=np.zeros(2)), {"enumerate": "parallel"})), "'z' is marked to be enum"),
        (_site(), "no latent site"),
    ],
)
def test_refused_programs(prior, words):
    with pytest.raises(ValueError, match=words):
        recipe_for(prior, SPACE, NUTS())


def test_refused_types():
    with pytest.raises(TypeError, match="method is a str"):
        recipe_for(sticky(), SPACE, "nuts")
    with pytest.raises(TypeError, match="returned a float"):
        recipe_for(lambda space: 1.0, SPACE, NUTS())


def test_an_improper_prior_needs_data(small):
    """Without data it is no distribution; with data it may be."""
    fit = sampled_fit(_site(("free", dist.ImproperUniform(dist.constraints.real, (), ()), None)), SPACE, NUTS())
    with pytest.raises(ValueError, match="'free' is ImproperUniform"):
        fit.on_host(jax.random.key(0), None)
    with pytest.raises(ValueError, match="'free' is ImproperUniform"):
        fit.summarise(small.first(small.transitions(3, 0), 0))
    assert jax.eval_shape(lambda: fit.summarise(small.transitions(3, 0))).counts.transitions.shape == (2, 2, 2)


@pytest.mark.parametrize("method", [SVI(num_steps=2), Laplace(num_steps=2)])
def test_discrete_sites_need_mcmc(small, method):
    fit = sampled_fit(_site(("z", dist.Categorical(logits=np.zeros(2)), None)), SPACE, method)
    with pytest.raises(ValueError, match="'z' is discrete"):
        jax.eval_shape(lambda key: fit.infer(key, fit.summarise(small.transitions(3, 0))), jax.random.key(0))


def test_guides_that_are_none(small):
    """A guide that misses a site, and what is no guide."""

    def guide(data=None):
        numpyro.sample("stickiness", dist.LogNormal(numpyro.param("m", 0.0), 1.0))

    for bad, error, words in ((guide, ValueError, "site 'probs' of the program is missing"), (3, TypeError, "a int")):
        fit = sampled_fit(sticky(), SPACE, SVI(guide=lambda model, bad=bad: bad, num_steps=2))
        with pytest.raises(error, match=words):
            jax.eval_shape(
                lambda key, fit=fit: fit.infer(key, fit.summarise(small.transitions(3, 0))), jax.random.key(0)
            )


def test_known_rewards_and_counts(small):
    """Rewards that are known are not looked at; counts serve where the law has statistics."""
    recipe = recipe_for(known_rewards(np.zeros((2, 2))), SPACE, NUTS())
    assert recipe.law is None and recipe.statistics_law is None
    assert recipe_for(small.student, SPACE, NUTS()).statistics_law is None
    assert recipe_for(small.prior, SPACE, NUTS()).statistics_law is dist.Normal


@pytest.mark.parametrize("method", ["auto", "nuts", "svi"])
def test_rows_that_do_not_sum_to_one_are_refused(method):
    """A density does not notice them: the chains would fit the forgotten factor, with too large an evidence."""

    def forgotten(space):
        wear = numpyro.sample("wear", dist.Beta(2.0, 2.0))  # 1 - wear is missing
        steps = wear**2 * jnp.eye(3, k=1) + jnp.eye(3)
        return bm.models.MDPSpec(steps[:, None], reward=jnp.zeros((3, 1)))

    def negative(space):
        wear = numpyro.sample("wear", dist.Normal(5.0, 1.0))
        rows = jnp.stack([wear**2, 1 - wear**2, jnp.zeros(())])
        return bm.models.MDPSpec(rows, reward=jnp.zeros((3, 1)))

    log = bm.Transitions(np.array([0, 1]), np.array([0, 0]), None, np.array([1, 2]))
    space = bm.StateActionSpace(3, 1, states=["new", "worn", "broken"], actions=["run"])
    sums = (
        r"prior: in a draw of the prior the row transition_probs\[0, 0\] \(state 'new', action 'run'\) sums to 1\.\d+, "
        r"expected probabilities that sum to 1 \(2 of 3 rows are wrong\)"
    )
    holds = r"the row transition_probs\[0, 0\] \(state 'new', action 'run'\) holds -\d+.*\(3 of 3 rows are wrong\)"
    for prior, said in ((forgotten, sums), (negative, holds)):
        with pytest.raises(ValueError, match=said):
            bm.infer(jax.random.key(0), prior, log, space=space, method=method)
        with pytest.raises(ValueError, match=said):
            bm.explain(prior, space)
