"""The program's own sites behind draws of mixtures of closed forms."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportReturnType=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayes_mdp.calibration import to_arviz
from bayes_mdp.calibration.belief.draws import draw
from bayes_mdp.inference import infer, mixture
from bayes_mdp.inference.conjugate.closed_form_draws import known_sites
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec, dirichlet_normal

SPACE = StateActionSpace(2, 2)


def _data() -> Transitions:
    rng = np.random.default_rng(0)
    state, action, next_state = (rng.integers(0, 2, 12) for _ in range(3))
    return Transitions(state, action, rng.normal(0.5, 1.0, 12), next_state)


def _shared_or_not(space: StateActionSpace) -> MDPSpec:
    """One mean reward for both actions of a state, or one for each."""
    shared = numpyro.sample("shared", dist.Bernoulli(0.5))
    with space.plates():
        rows = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
        mean = numpyro.sample("m", dist.Normal(0.0, 2.0))
    return MDPSpec(rows, reward=dist.Normal(jnp.where(shared, mean[:, :1], mean), 1.0))


def test_sites_of_a_mixture_whose_branches_use_different_ones():
    """Draw by draw, the sites give the standard variables; what a branch does not use keeps its prior.

    Its mean and variance, from about 2,000 draws: six standard errors, a false-alarm rate below 1e-8.
    """
    posterior = infer(jax.random.key(0), _shared_or_not, _data(), space=SPACE, method="mixture")
    assert isinstance(posterior, Mixture) and len(posterior.site_tables) == 2
    assert known_sites(posterior) == {"shared": (), "p": (2, 2, 2), "m": (2, 2)}
    draws = draw(jax.random.key(1), posterior, 4000)
    sites = draws.run.sites
    shared = np.asarray(sites["shared"], bool)[:, None, None]
    assert 500 < shared.sum() < 3500
    np.testing.assert_allclose(draws.rewards.mean, np.where(shared, sites["m"][..., :1], sites["m"]), rtol=1e-9)
    np.testing.assert_allclose(draws.transition_probs, sites["p"], atol=1e-6)
    unused = sites["m"][shared.ravel()][..., 1]
    assert np.abs(unused.mean(0)).max() < 6 * 2 / np.sqrt(len(unused))
    assert np.abs(unused.var(0) - 4).max() < 6 * 4 * np.sqrt(2 / len(unused))


def test_a_mixture_by_hand_of_two_programs():
    """The sites have one name in both; which program they are of has no answer."""
    pair = [infer(jax.random.key(0), dirichlet_normal(c), _data(), space=SPACE) for c in (0.5, 2.0)]
    posterior = mixture(pair, weights=[1.0, 3.0])
    assert posterior.program is None and known_sites(posterior) == known_sites(pair[0])
    tree = to_arviz(posterior, num_draws=40)
    group = tree["posterior"]
    assert {"transition", "reward"} <= set(group.data_vars)
    np.testing.assert_allclose(group["transition"], group["transition_probs"], atol=1e-6)
    left_out = " ".join(group.attrs["left_out"])
    assert "deterministics: the posterior was built without a program" in left_out and "log_prior: " in left_out
    assert dict(group.sizes)["chain"] == 4
