"""`partial_pooling`: the program that it is, and what it refuses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers

import bayes_mdp as bm
from bayes_mdp.models.partial_pooling import pooled_outcomes, state_rows
from tests.inference.hospitals import N_ACTIONS, N_STATES, hospital

KEY = jax.random.key(0)


def test_sites_and_rows_of_the_program():
    """Rows are distributions over what can follow; the sites are those that the docstring lists."""
    program = bm.models.partial_pooling(bm.models.dirichlet_bernoulli)
    with handlers.trace() as trace, handlers.seed(rng_seed=KEY):
        spec = program(hospital())
    levels = ("end", "which", "stay", "move")
    names = {f"{kind}_{name}" for kind in ("state_concentration", "common", "state") for name in levels}
    names |= {"concentration", "usage_power", "transition", "reward"}
    assert {name for name, site in trace.items() if site["type"] == "sample"} == names
    rows = np.asarray(spec.transition_probs)
    np.testing.assert_allclose(rows[:3].sum(-1), 1.0, rtol=1e-5)
    assert (rows[:3, :, -1] == 0).all()


def test_a_row_of_a_state_is_made_of_its_levels():
    """By hand: end .5, of that death .2; else stay .3, else to the others as 1 : 3."""
    groups = pooled_outcomes(hospital())
    assert list(groups.open) == [0, 1, 2] and list(groups.closed) == [3, 4]
    one = {"end": [0.5, 0.5], "which": [0.2, 0.8], "stay": [0.3, 0.7], "move": [0.2, 0.2, 0.6]}
    rows = state_rows(groups, {name: jnp.array([x] * 3) for name, x in one.items()}, N_STATES, N_STATES + 1)
    np.testing.assert_allclose(rows[0], [0.15, 0.0875, 0.2625, 0.1, 0.4, 0.0], atol=1e-6)
    np.testing.assert_allclose(rows[2], [0.175, 0.175, 0.15, 0.1, 0.4, 0.0], atol=1e-6)


def test_usage_is_relative_to_its_geometric_mean():
    program = bm.models.partial_pooling()
    counts = np.zeros((N_STATES, N_ACTIONS))
    counts[0, 0] = 63.0
    usage = program.usage_of(hospital(), counts)
    assert usage[0, 0] == pytest.approx(64 / 64 ** (1 / 6)) and usage[1, 1] == pytest.approx(64 ** (-1 / 6))
    assert (usage[3:] == 1).all() and (program.usage_of(hospital(), None) == 1).all()
    assert (bm.models.partial_pooling(usage=None).usage_of(hospital(), counts) == 1).all()


def _listed() -> bm.StateActionSpace:
    return bm.StateActionSpace(2, 1, successors=np.array([[[0, 1]], [[0, 1]]]))


def _differing() -> bm.StateActionSpace:
    support = np.ones((3, 1, 3), bool)
    support[1, 0, 2] = False
    return bm.StateActionSpace(3, 1, support=support)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (_listed(), "space has listed successors, expected rows over all states"),
        (bm.StateActionSpace(2, 1, horizon=3), "space has rows for each of 3 steps"),
        (_differing(), r"space.support\[1, 0\] differs from that of other pairs"),
        (bm.StateActionSpace(1, 2), "space has 0 states with unknown rows, expected at least two to pool"),
    ],
)
def test_spaces_that_cannot_be_pooled_are_refused(space, message):
    program = bm.models.partial_pooling()
    with pytest.raises(ValueError, match=message), handlers.seed(rng_seed=KEY):
        program(space)
    with pytest.raises(ValueError, match=message):
        bm.infer(KEY, program, space=space)


@pytest.mark.parametrize(
    ("usage", "message"),
    [
        ("often", "usage is 'often', expected \"data\", an array"),
        ([[0.0, 1.0]], r"usage\[0, 0\] is 0"),
        ([["a"]], "usage"),
    ],
)
def test_usage_is_positive_numbers(usage: Any, message):
    with pytest.raises((TypeError, ValueError), match=message):
        bm.models.partial_pooling(usage=usage)
    with pytest.raises(ValueError, match="usage has shape"), handlers.seed(rng_seed=KEY):
        bm.models.partial_pooling(usage=np.ones((2, 2)))(hospital())


class Told(Exception):
    """The concentrations that a program hands to the prior of its rewards."""


def test_a_pair_weighs_by_a_power_of_its_usage():
    """c usage^b, whatever the row of its state is."""

    def rewards(concentration: Any) -> Any:
        raise Told(np.asarray(concentration))

    usage = np.ones((N_STATES, N_ACTIONS))
    usage[1, 0] = 8.0
    sites: dict[str, Any] = {"concentration": 10.0, "usage_power": 2.0}
    for name, size in pooled_outcomes(hospital()).levels.items():
        row = np.full(size, 1 / size)
        sites |= {f"state_concentration_{name}": 1.0, f"common_{name}": row, f"state_{name}": np.tile(row, (3, 1))}
    with handlers.seed(rng_seed=KEY), handlers.substitute(data=sites), pytest.raises(Told) as told:
        bm.models.partial_pooling(rewards, usage=usage)(hospital())
    expected = 10.0 * (usage[:3] / 8.0 ** (1 / 6)) ** 2
    np.testing.assert_allclose(told.value.args[0].sum(-1)[:3], expected, rtol=1e-5)
