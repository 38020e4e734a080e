"""Tables with labels in place of arrays: their numbers go to the states and actions that they name, never by place."""

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bayes_mdp as bm
from bayes_mdp.mdp.labelled_tables import in_order
from bayes_mdp.mdp.protocols import PolicyOrLabels
from bayes_mdp.utils.typing import ArrayLike, InitialLike

KEY, OBJECTIVE = jax.random.key(0), bm.Discounted(0.9)
STATES, ACTIONS = ("well", "ill", "worse"), ("wait", "treat", "operate")
RNG = np.random.default_rng(0)
ROWS = RNG.dirichlet(np.ones(3), (1, 20, 3, 3))
PAID = RNG.normal(size=(3, 3))
PROBS = RNG.dirichlet(np.ones(3), 3)
START = np.array([0.5, 0.2, 0.3])
SPACE = bm.StateActionSpace(3, 3, states=STATES, actions=ACTIONS)


def posterior(reward: ArrayLike = PAID):
    return bm.posterior_from_draws({"P": ROWS}, reward=reward, space=SPACE)


def value(policy: PolicyOrLabels = PROBS, initial: InitialLike = START, reward: ArrayLike = PAID):
    return bm.policy_value(KEY, posterior(reward), policy, OBJECTIVE, initial=initial).mean


def frame(array, seed):
    """The array as a DataFrame whose rows and columns are shuffled."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(array, STATES, ACTIONS).iloc[rng.permutation(3), rng.permutation(3)]


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_a_table_gives_the_numbers_of_the_array(seed):
    expected = value()
    start = pd.Series(START, STATES).sample(frac=1.0, random_state=seed)
    table, paid = frame(PROBS, seed), frame(PAID, seed + 100)
    assert value(initial=start) == expected
    assert value(initial=start.to_xarray()) == expected
    assert value(initial=start.set_axis(pd.CategoricalIndex(start.index))) == expected
    assert value(table) == value(xr.DataArray(table, dims=("state", "action"))) == expected
    assert value(xr.DataArray(table.T, dims=("action", "state"))) == expected
    assert value(reward=paid) == value(reward=xr.DataArray(paid)) == expected
    taken = pd.Series(["treat", "operate", "wait"], STATES).sample(frac=1.0, random_state=seed)
    assert value(taken) == value([1, 2, 0])


def test_shares_of_a_column_are_by_label():
    """`value_counts` has the commonest first."""
    share = pd.Series(["worse"] * 3 + ["well"] * 5 + ["ill"] * 2).value_counts(normalize=True)
    assert list(share.index) == ["well", "worse", "ill"]
    assert value(initial=share) == value()
    # A state that is not there has probability zero, as in a mapping.
    assert value(initial=share[["well"]] / share["well"]) == value(initial="well")


def test_tables_without_labels_are_by_place():
    expected = value()
    assert value(pd.DataFrame(PROBS), pd.Series(START), pd.DataFrame(PAID)) == expected
    assert value(xr.DataArray(PROBS, dims=("state", "action")), xr.DataArray(START)) == expected
    assert value(pd.Series([1, 2, 0])) == value([1, 2, 0])


def test_states_that_are_numbers_are_labels():
    """States 2, 0, 1 in this order: 0 is the second."""
    space = bm.StateActionSpace(3, 1, states=(2, 0, 1))
    assert space.initial_probs(pd.Series([0.2, 0.3, 0.5], [0, 1, 2])).tolist() == [0.2, 0.3, 0.5]  # by place
    assert in_order("x", pd.Series([0.2, 0.3, 0.5], [1, 2, 0]), state=(2, 0, 1)).tolist() == [0.3, 0.5, 0.2]


WRONG = {
    "turned": (lambda: value(pd.DataFrame(PROBS, ACTIONS, STATES)), "policy has the state 'wait', expected those of"),
    "misspelt": (lambda: value(initial=pd.Series(START, ["well", "Ill", "worse"])), "initial has 'Ill'.*'ill'"),
    "missing": (lambda: value(pd.DataFrame(PROBS, STATES, ACTIONS)[:2]), "policy has no state 'worse'"),
    "twice": (lambda: value(initial=pd.Series(START, ["well", "ill", "ill"])), "initial has the label 'ill' twice"),
    "rewards": (lambda: value(reward=pd.DataFrame(PAID, ACTIONS, STATES)), "reward has the state 'wait'"),
    "illegal": (lambda: value(pd.Series(["treat", "cut", "wait"], STATES)), "is 'cut', expected an action"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_named(case):
    make, says = WRONG[case]
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize(
    ("name", "make"),
    {
        "reward": lambda: bm.models.known_rewards(frame(PAID, 0)),
        "concentration": lambda: bm.models.dirichlet_bernoulli(frame(PROBS, 0)),
        "loc": lambda: bm.models.dirichlet_normal_gamma(loc=frame(PAID, 0)),
        "transition_probs": lambda: bm.models.MDPSpec(xr.DataArray(pd.DataFrame(PROBS, STATES, STATES)), 0.0),
        "legal": lambda: bm.StateActionSpace(3, 3, states=STATES, actions=ACTIONS, legal=frame(PAID > 0, 0)),
        "allowed": lambda: bm.decisions.PolicyLimits(allowed=pd.crosstab(list(STATES), list(ACTIONS)) > 0),
        "policy": lambda: bm.evaluate(bm.MDP(ROWS[0, 0], PAID), frame(PROBS, 0), OBJECTIVE),
    }.items(),
)
def test_a_door_that_does_not_know_the_labels_refuses_them(name, make):
    with pytest.raises(TypeError, match=f"{name} is a (DataFrame|DataArray) with the labels .* order of the space"):
        make()
    # The array itself is taken.
    bm.decisions.Outcome(pd.Series([1.0, 2.0]))
    with pytest.raises(TypeError, match=r"reward is a Series with the labels 'ill', 'well', expected .*reward\.loc"):
        bm.decisions.Outcome(pd.Series({"ill": 1.0, "well": 2.0}))
