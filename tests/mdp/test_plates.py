"""Plates that are open already are used as they are; another plate on their axis is refused by name."""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportIndexIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import bayes_mdp as bm
from bayes_mdp.models import MDPSpec, supported_dirichlet

SPACE = bm.StateActionSpace(3, 2)
SUPPORTED = bm.StateActionSpace(3, 2, support=np.array([True, True, False]) & np.ones((3, 2, 1), bool))
STEPS = bm.StateActionSpace(3, 2, horizon=4)
MATRIX = np.arange(1.0, 19.0).reshape(3, 2, 3)


def frames(program):
    """Site -> (value, plates around it)."""
    trace = handlers.trace(handlers.seed(program, 0)).get_trace()
    return {
        name: (site["value"], sorted((frame.name, frame.dim, frame.size) for frame in site["cond_indep_stack"]))
        for name, site in trace.items()
        if site["type"] == "sample"
    }


@pytest.mark.parametrize("space", [SPACE, SUPPORTED, STEPS])
@pytest.mark.parametrize("names", [(), ("state",), ("action",)])
def test_rows_inside_open_plates_are_those_outside(space, names):
    """The same draws in the same plates, whether all, some or none of the plates are open."""

    def inside():
        with space.plates(*names):
            supported_dirichlet(MATRIX, space)

    found, expected = frames(inside), frames(lambda: supported_dirichlet(MATRIX, space))
    assert found["transition"][1] == expected["transition"][1] and len(expected["transition"][1]) == len(space.shape)
    np.testing.assert_array_equal(found["transition"][0], expected["transition"][0])


def test_a_prior_that_calls_it_inside_is_exact():
    def prior(space):
        with space.plates():
            strength = numpyro.sample("strength", dist.Gamma(2.0, 1.0))
            probs = supported_dirichlet(strength[..., None] * MATRIX, space)
        return MDPSpec(probs, np.zeros((3, 2)))

    def fixed(space):
        with space.plates():
            return MDPSpec(supported_dirichlet(MATRIX, space), np.zeros((3, 2)))

    assert bm.explain(prior, SPACE).route == "importance"
    posterior = bm.infer(jax.random.key(0), fixed, bm.Transitions([0], [1], None, [2]), space=SPACE)
    assert posterior.method == "exact"
    expected = (MATRIX[0, 1] + [0, 0, 1]) / (MATRIX[0, 1].sum() + 1)
    np.testing.assert_allclose(posterior.mean_mdp().transition_probs[0, 1], expected, rtol=1e-6)


def test_the_plates_are_closed_again():
    def program():
        with SPACE.plates("state"):
            with SPACE.plates():
                numpyro.sample("all", dist.Normal())
            numpyro.sample("states", dist.Normal())
        numpyro.sample("none", dist.Normal())

    found = {name: jnp.shape(value) for name, (value, _) in frames(program).items()}
    assert found == {"all": (3, 2), "states": (3, 1), "none": ()}


@pytest.mark.parametrize("plate", [("group", 5, -1), ("action", 2, -2), ("state", 4, -2)])
def test_another_plate_there_is_refused(plate):
    name, size, dim = plate

    def program():
        with numpyro.plate(name, size, dim=dim):
            supported_dirichlet(1.0, SPACE)

    said = (
        rf"plate '{name}' \(size {size}, dim {dim}\) is open where space.plates\(\) opens plate .*, expected no other"
    )
    with pytest.raises(ValueError, match=said):
        frames(program)


def test_a_plate_of_an_axis_further_left_is_kept():
    def program():
        with numpyro.plate("draw", 5, dim=-3):
            supported_dirichlet(1.0, SPACE)

    assert frames(program)["transition"][0].shape == (5, 3, 2, 3)
