"""The table of `docs/reference/units.md`: what `tools/units.py` reads in it, and that rewards scale as it says."""

import ast
from functools import partial

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents.value_uncertainty.exact_ube import exact_ube
from bayes_mdp.agents.value_uncertainty.moment_matching import value_variance
from tools.docstrings import documented
from tools.public_names import find
from tools.units import needs_unit, says_unit, units

FACTOR = 4.0
"""A power of two: multiplied by it, no float is rounded."""


def test_words_and_names_are_read():
    assert says_unit("Standard errors of it.") and says_unit("as in `plan`") and says_unit("log-likelihoods")
    assert says_unit("lies in (0, 1]") and says_unit("in squared units of it") and says_unit("how often")
    assert not says_unit("of the reviewer") and not says_unit("of each") and not says_unit("1 for each member")
    assert {"reward", "discount", "seconds", "wtp"} <= units().names
    assert not {"scale", "x", "noise", "target", "rate"} & units().names


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("float", True),
        ("float | None", True),
        ("'float | None'", True),
        ("Float[Array, ' S A']", True),
        ("dict[str, Float[Array, 'N']]", True),
        ("RealLike", True),
        ("Int[Array, ' S']", False),
        ("Int[Array, ' S'] | Float[Array, 'S A']", True),
        ("Callable[[float], float]", False),
        ("Literal['float']", False),
        ("int", False),
        ("str", False),
    ],
)
def test_real_numbers_need_a_unit(annotation, expected):
    assert needs_unit(ast.parse(annotation, mode="eval").body) == expected


def test_every_name_of_the_table_is_a_parameter():
    known = set()
    for name in documented():
        thing = find(name)
        known |= set(getattr(thing, "__annotations__", {}))
        for member in [thing, *(vars(thing).values() if isinstance(thing, type) else ())]:
            member = getattr(member, "fget", getattr(member, "__func__", member))
            known |= {getattr(member, "__name__", "")}
            known |= set(getattr(member, "__annotations__", {}))
    assert units().names <= known, units().names - known


@pytest.fixture(scope="module")
def scaled():
    """A posterior of rewards, and the same of rewards, prior and data, times `FACTOR`."""
    rng = np.random.default_rng(0)
    state, action, following = rng.integers(4, size=(3, 200)) % np.array([[4], [2], [4]])
    reward = rng.normal(size=200).round(2)

    def posterior(factor):
        prior = bm.models.dirichlet_normal_gamma(loc=0.5 * factor, rate=factor**2)
        data = bm.Transitions(state, action, reward * factor, following)
        return bm.infer(jax.random.key(0), prior, data, space=bm.StateActionSpace(4, 2))

    return posterior(1.0), posterior(FACTOR)


@pytest.mark.parametrize("objective", [bm.Discounted(0.9), bm.Episodic(5)], ids=["discounted", "episodic"])
def test_values_scale_as_rewards_and_policies_do_not(scaled, objective):
    one, other = (bm.solve(belief.mean_mdp(), objective) for belief in scaled)
    np.testing.assert_allclose(other.q, FACTOR * one.q, rtol=1e-5)
    np.testing.assert_array_equal(other.policy, one.policy)


def test_variances_scale_as_squares(scaled):
    objective = bm.Discounted(0.9)
    policy = bm.solve(scaled[0].mean_mdp(), objective).policy
    for method in (value_variance, partial(exact_ube, jax.random.key(1), num_draws=50)):
        one, other = (method(belief, policy, objective) for belief in scaled)
        np.testing.assert_allclose(other.mean(), FACTOR * one.mean(), rtol=1e-4)
        np.testing.assert_allclose(other.q_variance, FACTOR**2 * one.q_variance, rtol=1e-3)


def test_soft_values_scale_with_their_temperature(scaled):
    objective = bm.Discounted(0.9)
    one, other = (
        bm.planning.solve_soft(belief.mean_mdp(), objective, 0.5 * factor)
        for belief, factor in zip(scaled, (1.0, FACTOR), strict=True)
    )
    np.testing.assert_allclose(other.q, FACTOR * one.q, rtol=1e-5)
    np.testing.assert_allclose(other.log_policy, one.log_policy, atol=1e-4)
