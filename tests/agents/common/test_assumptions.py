# pyright: reportArgumentType=false
"""The assumptions of the variance equations: checked, refused by name, or handled component by component."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents.common.variance_equation import (
    cycle_reason,
    require_rows,
    total_variance,
    unknown_pairs,
    validity,
)
from bayes_mdp.inference import mixture
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.mdp import MDP, StateActionSpace


def chain(*, tied=False, loc=0.0, known=False):
    """0 -> {0, 1} by action 0, 0 -> 1 by action 1 (known); 1 is absorbing. Unknown reward of (0, 1), or of none."""
    column = np.array([[[0, 1], [-1, 0]], [[-1, 0], [-1, 0]]])
    prior = np.array([[1.0, 2.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    row = np.array([[0, 1], [0, 3]]) if tied else None
    rows = dirichlet_rows(prior, (2, 2, 2), row=row, column=column)
    belief = NormalBelief(np.array([loc]), np.ones(1), np.ones(1))
    cell = np.array([[-1, 0], [-1, -1]])
    rewards = (
        known_rewards(np.zeros((2, 2))) if known else reward_cells(belief, (2, 2), cell=cell, known=np.zeros((2, 2)))
    )
    return conjugate_posterior(rows, rewards, StateActionSpace(2, 2))


def test_independent_rows_and_mixtures_of_them_pass():
    assert chain().independent_rows
    require_rows(chain(), "UBE")
    require_rows(mixture([chain(), chain(loc=1.0)], weights=[1, 1]), "UBE")


@pytest.mark.parametrize("mixed", [False, True])
def test_ties_are_refused_by_name_and_draws_are_offered(mixed):
    posterior = chain(tied=True)
    posterior = mixture([posterior, posterior], weights=[1, 1]) if mixed else posterior
    with pytest.raises(ValueError) as error:
        require_rows(posterior, "UBE")
    assert str(error.value) == (
        "posterior has rows that are not independent (the row of state 0, action 0 is that of state 1, action 0), "
        "expected independent rows, or a mixture of posteriors with such, for UBE: sampled MDPs work for any belief "
        "(exact.by_draws) (see explanation/validity-of-variances in the documentation)"
    )


def test_what_does_not_name_its_ties_is_refused_too():
    mdps = MDP(np.ones((2, 1, 1, 1)), np.zeros((2, 1, 1)))
    with pytest.raises(ValueError, match="draws do not show which rows are independent"):
        require_rows(bm.inference.posterior_samples(mdps), "UBE")
    with pytest.raises(TypeError, match="UBE needs a posterior that has mean_mdp"):
        require_rows(object(), "UBE")


def test_ties_are_refused_inside_a_trace():
    with pytest.raises(ValueError, match=r"not independent \(some rows or rewards share parameters\)"):
        jax.jit(lambda p: require_rows(p, "UBE") or p.visit_counts())(chain(tied=True))


def test_unknown_pairs_are_those_with_an_unknown_row_or_reward():
    np.testing.assert_array_equal(unknown_pairs(chain()), [[True, True], [False, False]])
    np.testing.assert_array_equal(unknown_pairs(chain(known=True)), [[True, False], [False, False]])


def test_met_again_says_where():
    """The loop of state 0 by action 0; action 1 and the known loop of state 1 meet nothing unknown twice."""
    posterior = chain()
    mdp, unknown = posterior.mean_mdp(), unknown_pairs(posterior)
    loop, through = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    assert cycle_reason(mdp, loop, unknown) == "cyclic: the unknown rows of states 0 -> 0 can be visited again"
    assert cycle_reason(mdp, through, unknown) is None
    assert cycle_reason(mdp, np.stack([through, loop]), unknown) is not None, "any step of a policy counts"
    layered = MDP(jnp.ones((2, 1, 1, 1)), jnp.zeros((2, 1, 1)))
    assert cycle_reason(layered, np.ones((2, 1, 1)), np.ones((2, 1, 1), bool)) is None, "a row of its own at every step"


def test_inside_a_trace_the_structure_is_not_claimed():
    reasons = []
    posterior = chain()

    def look(p):
        reasons.append(cycle_reason(p.mean_mdp(), jnp.ones((2, 2)) / 2, unknown_pairs(p)))
        return p.visit_counts()

    jax.jit(look)(posterior)
    assert reasons == ["inside a trace the structure cannot be inspected"]


def test_validity_is_heuristic_once_a_pair_is_met_again():
    kept = validity("upper bound", "every row is visited once", None)
    assert (kept.kind, str(kept)) == ("upper bound", "upper bound: every row is visited once")
    lost = validity(
        "exact", "every row is visited once", "cyclic: the unknown rows of states 0 -> 0 can be visited again"
    )
    assert lost.kind == "heuristic" and lost.reason.startswith("cyclic")


def test_total_variance_is_that_of_the_pooled_sample():
    rng = np.random.default_rng(0)
    groups, weights = rng.normal(size=(3, 2, 50)), np.array([0.2, 0.5, 0.3])
    mean, variance = total_variance(weights, groups.mean(-1), groups.var(-1))
    pooled = np.repeat(weights[:, None, None] / 50, 50, -1)
    expected = (pooled * groups).sum((0, 2))
    np.testing.assert_allclose(mean, expected, rtol=1e-5)
    np.testing.assert_allclose(variance, (pooled * (groups - expected[:, None]) ** 2).sum((0, 2)), rtol=1e-5)


def test_an_illegal_value_stays_and_has_no_variance():
    means = np.array([[1.0, -np.inf], [3.0, -np.inf]])
    mean, variance = total_variance(np.array([0.5, 0.5]), means, np.array([[2.0, 7.0], [4.0, np.nan]]))
    np.testing.assert_allclose(mean, [2.0, -np.inf])
    np.testing.assert_allclose(variance, [4.0, 0.0])
