# pyright: reportArgumentType=false
"""Ties by name: the pairs, the step, the site."""

import jax
import numpy as np
import pytest

from bayes_mdp.inference import infer
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.mdp import StateActionSpace
from tests.inference.programs import ACCEPTED

pytestmark = pytest.mark.numerics


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("renamed", None),
        ("scattered", None),
        ("tied", "the row of state 0, action 0 is that of state 0, action 1 (site 'transition')"),
        ("gathered", "the row of state 0, action 1 is that of state 1, action 0 (site 'road')"),
        (
            "layered",
            "the mean reward of state 0, action 0, step 0 is that of state 0, action 0, step 1 (site 'reward')",
        ),
    ],
)
def test_programs_name_their_ties(name, sentence):
    program = ACCEPTED[name]
    posterior = infer(jax.random.key(0), program.prior, None, space=program.space)
    assert posterior.independent_rows == program.independent
    assert posterior.shared_parameters == sentence


def _rewards(table, **options):
    """One state row, two actions, rewards on the outcome, leaves by `table` [1 2 2]."""
    size = int(np.max(table)) + 1
    belief = NormalBelief(np.zeros(size), np.ones(size), np.ones(size))
    cells = reward_cells(belief, (2, 2, 2), by_outcome=True, cell=np.asarray(table), **options)
    space = StateActionSpace(2, 2, states=("left", "right"), actions=("go", "stay"))
    return conjugate_posterior(dirichlet_rows(np.ones((4, 2)), (2, 2, 2)), cells, space)


def test_a_reward_leaf_of_two_pairs_is_named_with_its_site():
    """Leaves 0 and 1 are of the first site, 2 and up of the second; the shared one is leaf 4."""
    table = [[[0, 1], [2, 3]], [[4, 4], [5, 4]]]
    posterior = _rewards(table, sites=(("first", (2,)), ("second", (4,))))
    assert posterior.shared_parameters == (
        "the mean reward of state 'right', action 'go' is that of state 'right', action 'stay' (site 'second')"
    )


def test_a_leaf_shared_within_a_pair_ties_nothing():
    posterior = _rewards([[[0, 0], [1, 2]], [[3, 4], [5, 6]]])
    assert posterior.independent_rows and posterior.shared_parameters is None
    assert posterior.reward_cells.shared_parameters(posterior.space) is None


def test_known_cells_are_no_ties():
    """-1 is no leaf, however often it occurs; what is shared beside it is still found."""
    known = np.zeros((2, 2, 2))
    assert _rewards([[[-1, 0], [-1, 1]], [[-1, -1], [2, 3]]], known=known).shared_parameters is None
    tied = _rewards([[[-1, 0], [-1, 1]], [[-1, -1], [2, 1]]], known=known).shared_parameters
    assert tied == "the mean reward of state 'left', action 'stay' is that of state 'right', action 'stay'"


def test_inside_a_trace_nothing_is_looked_into(cases):
    prior, said = cases("tied").prior, []
    jax.jit(lambda p: said.append(p.shared_parameters) or p.visit_counts())(prior)
    assert said == ["some rows or rewards share parameters"]
