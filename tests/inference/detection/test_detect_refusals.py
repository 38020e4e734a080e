"""More programs that are almost conjugate: each is refused by a sentence that names what is in the way."""

# `numpyro.sample` is typed to return any ArrayLike, and records as JAX arrays: too narrow for tests.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from bayes_mdp.inference.conjugate.regression import RegressionRewards
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import KnownRewards
from bayes_mdp.inference.route import infer
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models import MDPSpec, NormalGamma, normal
from tests.inference.programs import SPACE

KEY = jax.random.key(0)
KNOWN = np.zeros((3, 2))


def rows(concentration=1.0, name="transition", size=3):
    with SPACE.plates():
        return numpyro.sample(name, dist.Dirichlet(concentration * jnp.ones(size)))


def cells(name, law):
    with SPACE.plates():
        return numpyro.sample(name, law)


def clipped(space):
    return MDPSpec(jnp.maximum(rows(), 1e-10), KNOWN)


def softmax(space):
    logits = cells("logits", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    return MDPSpec(jax.nn.softmax(logits), KNOWN)


def mixed_with_a_constant(space):
    return MDPSpec(0.5 * rows() + 0.5 / 3, KNOWN)


def stitched(space):
    probs = rows()
    return MDPSpec(probs.at[0, 0].set(jnp.concatenate([probs[0, 0, :1], probs[1, 0, 1:]])), KNOWN)


def cut(space):
    return MDPSpec(rows(name="wide", size=4)[..., :3], KNOWN)


def folded(space):
    probs = rows(name="wide", size=4)
    return MDPSpec(probs[..., :3].at[..., 0].add(probs[..., 3]), KNOWN)


def masked(space):
    with handlers.mask(mask=np.array([[True, False]] * 3)):
        return MDPSpec(rows(), KNOWN)


def observed(space):
    probs = rows()
    numpyro.sample("survey", dist.MultinomialProbs(probs[0, 0], total_count=3), obs=jnp.ones(3))
    return MDPSpec(probs, KNOWN)


def idle(space):
    numpyro.sample("nuisance", dist.Normal(0.0, 1.0))
    return MDPSpec(rows(), KNOWN)


def parameter(space):
    return MDPSpec(rows(numpyro.param("alpha", 1.0)), KNOWN)


def parent_behind_jit(space):
    drift = numpyro.sample("drift", dist.Normal(0.0, 1.0))
    bent = jax.jit(lambda x: jax.lax.cond(x > 9.0, lambda y: 1.0 + y, jnp.ones_like, x))
    return MDPSpec(rows(bent(drift)), KNOWN)


class Halved(dist.Dirichlet):
    """A Dirichlet in name only."""

    def log_prob(self, value, intermediates=None):
        return 0.5 * super().log_prob(value)


def subclass(space):
    return MDPSpec(cells("transition", Halved(jnp.ones(3))), KNOWN)


def shared_noise(space):
    noise = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    return MDPSpec(rows(), dist.Normal(cells("mu", dist.Normal(0.0, noise**-0.5)), noise**-0.5))


def hyper_mean(space):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    return MDPSpec(rows(), dist.Normal(cells("mu", dist.Normal(level, 1.0)), 1.0))


def mean_as_noise(space):
    reward = cells("reward", NormalGamma())
    return MDPSpec(rows(), dist.Normal(reward[..., 1], reward[..., 1] ** -0.5))


def sum_of_effects(space):
    with space.plates("state"):
        place = numpyro.sample("place", dist.Normal(0.0, 1.0))
    with space.plates("action"):
        choice = numpyro.sample("choice", dist.Normal(0.0, 1.0))
    return MDPSpec(rows(), dist.Normal(place + choice, 1.0))


def doubled_mean(space):
    return MDPSpec(rows(), dist.Normal(2.0 * cells("mu", dist.Normal(0.0, 1.0)), 1.0))


def tied_mean_other_noise(space):
    with space.plates("state"):
        mean = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    return MDPSpec(rows(), dist.Normal(mean, jnp.array([1.0, 2.0])))


def known_mean(space):
    return MDPSpec(rows(), dist.Normal(KNOWN, cells("tau", dist.Gamma(2.0, 1.0)) ** -0.5))


def student(space):
    return MDPSpec(rows(), dist.StudentT(4.0, cells("mu", dist.Normal(0.0, 1.0)), 1.0))


def latent_array(space):
    return MDPSpec(rows(), cells("mu", dist.Normal(0.0, 1.0)))


@pytest.mark.parametrize(
    ("program", "site", "reason"),
    [
        (clipped, "transition", "neither one element of it nor free of it"),
        (softmax, "logits", "the transition law depends on it"),
        (mixed_with_a_constant, "transition", "state 0, action 0"),
        (stitched, "transition", "state 0, action 0 mixes two of its rows"),
        (cut, "wide", "leaves out an element"),
        (folded, "wide", "neither one element"),
        (masked, "transition", "mask"),
        (observed, "survey", "observed inside the prior"),
        (idle, "nuisance", "neither the transition law nor the reward law"),
        (parent_behind_jit, "drift", "concentration of site 'transition' depends on it"),
        (subclass, "transition", "Dirichlet or Beta sites only"),
        (hyper_mean, "level", "loc of site 'mu' depends on it"),
        (mean_as_noise, "reward", "mean and precision do not belong"),
        (student, "mu", "StudentT"),
    ],
)
def test_refuses_and_names_the_site(program, site, reason):
    with pytest.raises(ValueError, match=f"site '{site}' .*does not allow.*{reason}"):
        infer(KEY, program, space=SPACE, method="exact")


@pytest.mark.parametrize("method", ["exact", "auto", "nuts"])
def test_refuses_a_parameter_without_a_prior(method):
    """No route has a posterior of it."""
    with pytest.raises(ValueError, match=r"param 'alpha' has no prior, expected numpyro\.sample in its place"):
        infer(KEY, parameter, space=SPACE, method=method)


@pytest.mark.parametrize("method", ["exact", "auto", "nuts"])
def test_refuses_a_known_reward_that_is_drawn(method):
    """Its rewards would not be learnt from, on any route."""
    with pytest.raises(ValueError, match="the reward is an array that depends on site 'mu', so that nothing would be"):
        infer(KEY, latent_array, space=SPACE, method=method)


def known_law(space):
    return MDPSpec(rows(), dist.Normal(KNOWN, 1.0))


def known_beside_unknown(space):
    mean = cells("mu", dist.Normal(0.0, 1.0))
    return MDPSpec(rows(), dist.Normal(mean.at[1, 1].set(0.0), 1.0))


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (shared_noise, RegressionRewards),
        (sum_of_effects, RegressionRewards),
        (doubled_mean, RewardCells),
        (tied_mean_other_noise, RegressionRewards),
        (known_mean, RewardCells),
        (known_law, KnownRewards),
        (known_beside_unknown, RewardCells),
    ],
)
def test_takes_what_is_conjugate_all_the_same(program, kind):
    assert isinstance(infer(KEY, program, space=SPACE, method="exact").reward_cells, kind)


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (
            lambda space: MDPSpec(rows(jnp.array([1.0, -1.0, 1.0])), KNOWN),
            r"transition.concentration\[0, 0, 1\] is -1.0",
        ),
        (
            lambda space: MDPSpec(rows(jnp.array([1.0, 1.0, np.nan])), KNOWN),
            r"transition.concentration\[0, 0, 2\] is nan",
        ),
        (
            lambda space: MDPSpec(rows(), normal(cells("reward", NormalGamma(pseudo_count=jnp.array([1.0, 0.0]))))),
            r"reward.pseudo_count\[0, 1\] is 0.0",
        ),
        (
            lambda space: MDPSpec(jnp.zeros((3, 2, 3)).at[..., 0].set(0.9).at[0].set(rows()[0]), KNOWN),
            r"transition_probs\[1, 0\] sums to 0.9",
        ),
        (lambda space: MDPSpec(rows(), dist.Normal(jnp.zeros((5, 2)), 1.0)), "batch shape"),
    ],
)
def test_bad_numbers_are_named_by_site_and_index(program, sentence):
    with pytest.raises(ValueError, match=sentence):
        infer(KEY, program, space=SPACE, method="exact")


def test_what_is_no_world_is_refused():
    with pytest.raises(TypeError, match="expected a MDPSpec"):
        infer(KEY, lambda space: rows(), space=SPACE, method="exact")


def test_a_distribution_of_the_users_own_with_a_known_name_is_refused(key):
    class Dirichlet(dist.Dirichlet):
        def log_prob(self, value):
            return 2.0 * super().log_prob(value)

    def prior(space):
        with space.plates():
            probs = numpyro.sample("rows", Dirichlet(jnp.ones(space.n_outcomes)))
        return MDPSpec(probs, jnp.zeros(space.shape))

    with pytest.raises(ValueError, match="'rows'"):
        infer(key, prior, space=StateActionSpace(2, 2), method="exact")
