"""Detection on twelve programs from outside the package: six are conjugate, six are not."""

# `numpyro.sample` is typed to return any ArrayLike, and records as JAX arrays: too narrow for tests.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from bayes_mdp.inference.route import infer
from bayes_mdp.models import MDPSpec, NormalGamma, normal
from tests.inference.programs import ACCEPTED, IMPOSTORS, SPACE

KEY = jax.random.key(0)


@pytest.mark.some(3)
@pytest.mark.parametrize("name", ACCEPTED)
def test_accepts_a_conjugate_program_and_finds_its_rows(name):
    program = ACCEPTED[name]
    posterior = infer(KEY, program.prior, space=program.space)
    assert posterior.method == "exact"
    assert posterior.independent_rows == program.independent
    assert posterior.log_evidence == 0.0
    rows = np.asarray(posterior.transition_probs.concentration)
    mean = np.asarray(posterior.transition_probs.mean())
    for place in np.ndindex(*program.space.shape):
        _, alpha = program.row(*(place if len(place) == 3 else (0, *place)))
        expected = np.array([alpha.get(outcome, 0.0) for outcome in range(program.space.n_outcomes)])
        known = len(alpha) == 1
        np.testing.assert_allclose(rows[place], 0.0 if known else expected, rtol=1e-6)
        np.testing.assert_allclose(mean[place], expected / expected.sum(), rtol=1e-6)


@pytest.mark.parametrize("name", ACCEPTED)
def test_ties_are_the_programs_ties(name):
    program = ACCEPTED[name]
    posterior = infer(KEY, program.prior, space=program.space)
    places = [place if len(place) == 3 else (0, *place) for place in np.ndindex(*program.space.shape)]
    leaves = [program.row(*place)[0] for place in places if len(program.row(*place)[1]) > 1]
    table = posterior.transition_probs.row
    found = np.arange(len(places)) if table is None else np.ravel(table)
    assert len(set(found[found >= 0])) == len(set(leaves))
    cells = [program.cell(*place) for place in places]
    table = posterior.reward_cells.cell
    found = np.arange(len(places)) if table is None else np.ravel(table)
    same = np.equal.outer(found, found)
    assert np.array_equal(same, [[one == other for other in cells] for one in cells])


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_sites_behind_the_leaves_keep_their_names(name):
    program = ACCEPTED[name]
    posterior = infer(KEY, program.prior, space=program.space)
    names = [site for site, _ in (*posterior.transition_probs.sites, *posterior.reward_cells.sites)]
    assert set(names) <= set(program.sites)


@pytest.mark.parametrize("name", IMPOSTORS)
def test_refuses_an_impostor_by_a_sentence_that_names_the_site(name):
    impostor = IMPOSTORS[name]
    with pytest.raises(
        ValueError, match=f"site '{impostor.site}' .*does not allow an exact posterior.*{impostor.reason}"
    ):
        infer(KEY, impostor.prior, space=SPACE, method="exact")


def test_the_designs_example_is_refused_for_its_stickiness():
    def sticky(space):
        stickiness = numpyro.sample("stickiness", dist.HalfNormal(5.0))
        with space.plates():
            probs = numpyro.sample("transition", dist.Dirichlet(0.5 + stickiness * jnp.eye(space.n_states)[:, None, :]))
            reward = numpyro.sample("reward", NormalGamma(loc=0.0, pseudo_count=1.0, concentration=2.0, rate=1.0))
        return MDPSpec(probs, reward=normal(reward))

    with pytest.raises(ValueError, match=r"site 'stickiness' \(HalfNormal\) does not allow an exact posterior"):
        infer(KEY, sticky, space=SPACE, method="exact")
