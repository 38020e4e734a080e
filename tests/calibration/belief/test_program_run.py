"""A program at given values: its own densities, deterministics, and what its axes are."""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportReturnType=false

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from bayes_mdp.calibration.belief.program_run import run_program, site_facts, top_sites
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models import MDPSpec

SPACE = StateActionSpace(2, 3)


def program(space: StateActionSpace) -> MDPSpec:
    """Sites in plates of the space, in one of its own, in none; one that is scaled, one with a named event axis."""
    width = numpyro.sample("width", dist.Gamma(2.0, 1.0))
    with numpyro.plate("group", 4):
        level = numpyro.sample("level", dist.Normal(0.0, width))
    with space.plates():
        rows = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)), infer={"event_dims": ["next_state"]})
        mean = numpyro.sample("m", dist.Normal(level.sum(), 1.0))
        numpyro.deterministic("lead", mean - mean.max())
    with numpyro.handlers.scale(scale=3.0):
        numpyro.sample("tempered", dist.Normal(0.0, 1.0))
    numpyro.deterministic("total", level.sum())
    return MDPSpec(rows, reward=dist.Normal(mean, 1.0))


def values(number: int) -> dict[str, np.ndarray]:
    """Of all latent sites."""
    rng = np.random.default_rng(0)
    return {
        "width": rng.gamma(2.0, size=number),
        "level": rng.normal(size=(number, 4)).astype(np.float32),
        "p": rng.dirichlet(np.ones(2), (number, 2, 3)),
        "m": rng.normal(size=(number, 2, 3)),
        "tempered": rng.normal(size=number),
    }


@pytest.mark.parametrize("number", [3, 120])
def test_deterministics_and_densities(number):
    """Fewer draws than a block, and a block that is not full."""
    given = values(number)
    run = run_program(program, SPACE, given, number)
    assert set(run.deterministic) == {"lead", "total"} and set(run.log_density) == set(given)
    largest = given["m"].max((1, 2), keepdims=True)
    np.testing.assert_allclose(run.deterministic["lead"], given["m"] - largest, rtol=1e-12)
    total = given["level"].astype(float).sum(1)
    np.testing.assert_allclose(run.deterministic["total"], total, rtol=1e-12)
    level = stats.norm.logpdf(given["level"], 0.0, given["width"][:, None])
    np.testing.assert_allclose(run.log_density["level"], level, rtol=1e-7)
    mean = stats.norm.logpdf(given["m"], total[:, None, None], 1.0)
    np.testing.assert_allclose(run.log_density["m"], mean, rtol=1e-9)
    assert run.log_density["p"].shape == (number, 2, 3) and run.log_density["width"].shape == (number,)
    np.testing.assert_allclose(run.log_density["tempered"], 3 * stats.norm.logpdf(given["tempered"]), rtol=1e-12)


def test_a_draw_that_rounding_put_on_the_boundary_has_a_density():
    given = values(2)
    given["p"][0, 0, 0] = (1.0, 0.0)
    assert np.isfinite(run_program(program, SPACE, given, 2).log_density["p"]).all()


def test_a_site_without_a_value_is_not_made_up():
    """Data may inform about it: a draw given its parents would be a draw of the prior."""
    given = values(2)
    del given["m"]
    with pytest.raises(ValueError, match="sites has no values of 'm', expected those of every latent site"):
        run_program(program, SPACE, given, 2)


def test_axes_are_plates_and_named_events():
    found = site_facts(program, SPACE)
    assert {name: site.axes for name, site in found.items()} == {
        "width": (),
        "level": ("group",),
        "p": ("state", "action", "next_state"),
        "m": ("state", "action"),
        "lead": ("state", "action"),
        "tempered": (),
        "total": (),
    }
    assert found["p"].batch == 2 and found["lead"].kind == "deterministic" and found["m"].kind == "latent"
    assert top_sites(program, SPACE) == {"width", "p", "tempered"}
