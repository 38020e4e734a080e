# pyright: reportArgumentType=false
"""Tables of the rewards: ties, known cells, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from bayes_mdp.inference import infer
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.normal import NormalGammaBelief
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models import MDPSpec

pytestmark = pytest.mark.numerics


def _beta(size):
    return BetaBelief(np.full(size, 2.0), np.full(size, 1.0))


@pytest.mark.parametrize(
    ("cell", "by_outcome", "independent", "distinct"),
    [
        (np.arange(4).reshape(2, 2), False, True, True),
        (np.array([[0, 0], [1, 2]]), False, False, False),
        (np.arange(4).reshape(1, 2, 2), True, True, True),
        (np.array([[[0, 0], [1, 1]]]), True, True, False),
        (np.array([[[0, 1], [0, 1]]]), True, False, False),
    ],
)
def test_ties_are_seen(cell, by_outcome, independent, distinct):
    cells = reward_cells(_beta(cell.max() + 1), cell.shape, by_outcome=by_outcome, cell=cell)
    assert (cells.independent, cells.distinct) == (independent, distinct)
    assert (cells.cell is None) == distinct


def test_known_cells_keep_their_reward_and_have_no_belief(x64):
    cells = reward_cells(_beta(3), (2, 2), cell=[[0, -1], [1, 2]], known=[[0.0, 7.0], [0.0, 0.0]])
    np.testing.assert_allclose(cells.mean(), [[2 / 3, 7.0], [2 / 3, 2 / 3]])
    np.testing.assert_allclose(cells.variance(), [[1 / 18, 0.0], [1 / 18, 1 / 18]])
    assert isinstance(cells.belief, BetaBelief)
    np.testing.assert_array_equal(np.isnan(cells.belief.concentration1), [[False, True], [False, False]])


def test_draws_beside_known_rewards_do_not_warn_of_number_types():
    """A chain with one unknown reward; its noise is a number of the host, float64, which JAX does not have here."""

    def chain(space):
        goal = numpyro.sample("goal", dist.Normal(0.0, 1.0))
        return MDPSpec(jnp.full((2, 2, 2), 0.5), dist.Normal(jnp.zeros((2, 2)).at[1, 1].set(goal), 1.0))

    belief = infer(jax.random.key(0), chain, space=StateActionSpace(2, 2))
    draws = jax.jit(jax.vmap(belief.sample))(jax.random.split(jax.random.key(1), 3))  # a warning is an error here
    assert draws.reward.dtype == jnp.float32 and np.unique(draws.reward).size == 4


def test_parameters_broadcast():
    belief = NormalGammaBelief(*(np.asarray(x) for x in (np.zeros((2, 3)), 1.0, 2.0, 1.0)))
    broadcast = reward_cells(belief, (2, 3)).belief
    assert isinstance(broadcast, NormalGammaBelief) and broadcast.rate.shape == (2, 3)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: reward_cells(BetaBelief(np.ones(2), np.array([1.0, 0.0])), (1, 2)), r"concentration0\[1\] is 0"),
        (lambda: reward_cells(_beta(2), (1, 2), cell=[[0, 2]]), "cell holds the index 2"),
        (lambda: reward_cells(_beta(2), (1, 2), cell=[0, 1]), r"cell has shape \(2,\), expected \(1, 2\)"),
        (lambda: reward_cells(_beta(3), (1, 2)), r"prior has 3 elements, expected 2"),
        (lambda: reward_cells(_beta(0), (1, 2), cell=[[-1, -1]], known=[[0.0, 0.0]]), "prior has 0 elements, expected"),
        (lambda: known_rewards([[np.inf]]), r"reward\[0, 0\] is inf"),
    ],
)
def test_what_cannot_be_is_refused(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()
