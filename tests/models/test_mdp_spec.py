"""What a prior may return, what it may not, and the MDP that follows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models.mdp_spec import MDPSpec, check_spec, reward_table, to_mdp, transition_table

SPACE = StateActionSpace(3, 2, ends=True)
ROWS = np.random.default_rng(0).dirichlet(np.ones(4), (3, 2))
UNIFORM = np.full((1, 1, 4), 0.25)
NORMAL = dist.Normal(np.zeros((3, 2)), 1.0)


def bad_row():
    rows = ROWS.copy()
    rows[2, 0, 1] += 0.1
    return rows


@pytest.mark.parametrize(
    ("spec", "error", "sentence"),
    [
        ((ROWS, NORMAL), TypeError, r"the prior returned a tuple, expected a MDPSpec\(transition_probs, reward\)"),
        (MDPSpec(None, NORMAL), TypeError, "transition_probs is a NoneType, expected an array"),
        (
            MDPSpec(ROWS[..., :3], NORMAL),
            ValueError,
            r"transition_probs has shape \(3, 2, 3\), expected one that broadcasts to \(3, 2, 4\) \(state, action, o",
        ),
        (MDPSpec(ROWS[..., :1], NORMAL), ValueError, r"transition_probs has shape \(3, 2, 1\), expected one that"),
        (MDPSpec(ROWS[None], NORMAL), ValueError, r"transition_probs has shape \(1, 3, 2, 4\), expected one that"),
        (
            MDPSpec(bad_row(), NORMAL),
            ValueError,
            r"transition_probs\[2, 0\] sums to 1.1, expected a row that sums to 1",
        ),
        (MDPSpec(-ROWS, NORMAL), ValueError, r"transition_probs\[0, 0, 0\] is -.*, expected a probability"),
        (
            MDPSpec(ROWS, "normal"),
            TypeError,
            r"reward is a str, expected a NumPyro distribution over \(state, action\)",
        ),
        (MDPSpec(ROWS, dist.Normal(np.zeros((3, 3)), 1.0)), ValueError, r"reward has batch shape \(3, 3\)"),
        (
            MDPSpec(ROWS, dist.Normal(np.zeros((3, 2, 4)), 1.0)),
            ValueError,
            r"batch shape \(3, 2, 4\) and event shape \(\), .* call .to_event\(1\)",
        ),
        (
            MDPSpec(ROWS, dist.Normal(np.zeros((3, 2, 3)), 1.0).to_event(1)),
            ValueError,
            r"reward has event shape \(3,\), expected \(\) or \(4,\) \(outcome\)",
        ),
        (MDPSpec(ROWS, dist.Dirichlet(np.ones((3, 2, 4)))), ValueError, "expected a law of one number"),
        (
            MDPSpec(ROWS, np.zeros((3, 3))),
            ValueError,
            r"reward has shape \(3, 3\), expected one that broadcasts to \(3, 2",
        ),
        (MDPSpec(ROWS, np.zeros(2)), ValueError, r"reward has shape \(2,\), expected one that broadcasts to \(3, 2\)"),
        (MDPSpec(ROWS, np.full((3, 2), np.nan)), ValueError, r"reward\[0, 0\] is nan, expected a finite number"),
    ],
)
def test_a_wrong_return_gets_one_sentence(spec, error, sentence):
    with pytest.raises(error, match=sentence):
        check_spec(spec, SPACE)


@pytest.mark.parametrize(
    "reward",
    [
        NORMAL,
        dist.Normal(0.0, 1.0),
        dist.Normal(np.zeros((3, 1)), 1.0),
        dist.Normal(0.0, np.ones(4)).to_event(1),
        1.5,
        np.zeros((3, 1)),
        np.zeros((1, 1, 4)),
    ],
)
def test_whatever_broadcasts_is_a_world(reward):
    for rows in (ROWS, ROWS.tolist(), UNIFORM, UNIFORM[0, 0]):
        check_spec(MDPSpec(rows, reward), SPACE)


def test_values_of_a_trace_are_not_looked_into():
    jax.eval_shape(lambda rows: check_spec(MDPSpec(rows, NORMAL), SPACE), bad_row())
    with pytest.raises(TypeError, match="expected a MDPSpec"):
        jax.eval_shape(lambda rows: check_spec(rows, SPACE), ROWS)


def test_illegal_rows_are_not_looked_at():
    legal = np.ones((3, 2), bool)
    legal[2, 0] = False
    check_spec(MDPSpec(bad_row(), NORMAL), StateActionSpace(3, 2, ends=True, legal=legal))


def test_known_rewards_are_read_by_their_axes():
    steps = StateActionSpace(3, 2, horizon=5, ends=True)
    for shape, by_outcome in (
        ((), False),
        ((3, 2), False),
        ((5, 3, 2), False),
        ((3, 2, 4), True),
        ((5, 1, 2, 4), True),
        ((1, 3, 2, 1), True),
    ):
        table = reward_table(MDPSpec(UNIFORM, np.ones(shape)), steps)
        assert table.known is not None
        assert table.by_outcome == by_outcome and table.known.shape == (5, 3, 2) + (4,) * by_outcome
    cube = StateActionSpace(3, 3, horizon=3)
    with pytest.raises(ValueError, match=r"reward has shape \(3, 3, 3\), which fits both"):
        check_spec(MDPSpec(np.full((3, 3, 3), 1 / 3), np.zeros((3, 3, 3))), cube)
    assert reward_table(MDPSpec(np.full(3, 1 / 3), np.zeros((1, 3, 3, 3))), cube).by_outcome


def test_the_mdp_has_the_mean_reward_of_each_pair():
    by_pair = to_mdp(MDPSpec(UNIFORM, dist.Poisson(jnp.array([1.0, 3.0]))), SPACE)
    np.testing.assert_allclose(by_pair.reward, np.broadcast_to([1.0, 3.0], (3, 2)))
    means = np.arange(4.0)
    spec = MDPSpec(ROWS, dist.Normal(jnp.asarray(means), 2.0).to_event(1))
    mdp: Any = to_mdp(spec, SPACE, jnp.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(mdp.reward, ROWS @ means, rtol=1e-6)
    np.testing.assert_allclose(mdp.transition_probs, ROWS[..., :3], rtol=1e-6)
    np.testing.assert_allclose(mdp.end_probs, ROWS[..., 3], rtol=1e-6)
    assert mdp.initial.shape == (3,)
    steps = StateActionSpace(3, 2, horizon=5, ends=True)
    assert to_mdp(spec, steps).reward.shape == (5, 3, 2)
    np.testing.assert_allclose(transition_table(spec, steps)[4], ROWS)


def test_a_law_without_a_mean_is_no_mdp():
    """The law and the pair are named, also where the mean that NumPyro gives is infinite (df <= 1) or not there."""
    with pytest.raises(ValueError, match=r"^reward of state 0, action 0 has a Cauchy law whose mean does not exist"):
        to_mdp(MDPSpec(UNIFORM, dist.Cauchy(jnp.zeros((3, 2)), 1.0)), SPACE)
    df = jnp.array([[3.0, 2.0], [1.5, 1.0], [0.5, 4.0]])
    with pytest.raises(
        ValueError, match=r"^reward of state 1, action 1 has a StudentT law .*expected a law that has one"
    ):
        to_mdp(MDPSpec(UNIFORM, dist.StudentT(df, 0.0, 1.0)), SPACE)
    with pytest.raises(ValueError, match=r"^reward of state 0, action 0 has a FoldedDistribution law"):
        to_mdp(MDPSpec(UNIFORM, dist.FoldedDistribution(dist.Normal(jnp.zeros((3, 2)), 1.0))), SPACE)
    legal = StateActionSpace(3, 2, ends=True, legal=np.array(df > 1))
    assert jnp.isfinite(to_mdp(MDPSpec(UNIFORM, dist.StudentT(jnp.maximum(df, 1.1), 0.0, 1.0)), legal).reward).all()
    with pytest.raises(ValueError, match="has a Cauchy law"):
        jax.jit(lambda loc: to_mdp(MDPSpec(UNIFORM, dist.Cauchy(loc, 1.0)), SPACE).reward)(jnp.zeros((3, 2)))


def test_a_world_passes_transformations():
    spec = MDPSpec(jnp.asarray(ROWS), dist.Normal(jnp.zeros((3, 2)), 2.0).to_event(0))
    again = jax.jit(lambda spec: spec)(spec)
    assert type(again.reward) is dist.Normal and again.reward.batch_shape == (3, 2)
    shapes = jax.eval_shape(lambda: spec)
    assert shapes.transition_probs.shape == (3, 2, 4)
