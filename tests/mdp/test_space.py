"""Spaces: sizes, names, masks, plates."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from bayes_mdp.mdp import Log, StateActionSpace, Transitions


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 2), {}, "n_states is 0, expected an integer of at least 1"),
        ((2, -1), {}, "n_actions is -1, expected an integer of at least 1"),
        ((2, 2), {"horizon": 0}, "horizon is 0, expected an integer of at least 1"),
        ((2, 2), {"states": ["a", "a"]}, r"states\[1\] is 'a' again, expected each name once"),
        ((2, 2), {"actions": ["a", "b", "c"]}, r"actions has 3 names, expected 2"),
        ((2, 2), {"states": ["a", "end"], "ends": True}, "states holds 'end', the name of the end of an episode"),
        ((2, 2), {"legal": np.array([[1, 1], [0, 0]])}, r"legal\[1\] is False, expected at least one legal action"),
        ((2, 2), {"legal": np.ones((3, 2))}, r"legal has shape \(3, 2\), expected \(2, 2\)"),
        ((2, 2), {"support": np.ones((2, 2, 3))}, r"support has shape \(2, 2, 3\), expected \(2, 2, 2\)"),
        (
            (2, 2),
            {"support": np.eye(2)[:, None] * np.array([[1], [0]])},
            r"support\[0, 1\] is False, expected at least one",
        ),
    ],
)
def test_refusals(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        StateActionSpace(*arguments, **options)


@pytest.mark.parametrize(("name", "sizes"), [("n_states", (2.0, 2)), ("n_actions", (2, "2")), ("n_states", (True, 2))])
def test_sizes_that_are_no_integers(name, sizes):
    with pytest.raises(TypeError, match=f"{name} is .*, expected an integer of at least 1"):
        StateActionSpace(*sizes)


def test_shapes_and_names():
    space = StateActionSpace(np.int64(3), 2, horizon=5, ends=True, actions=["left", "right"])
    assert space.shape == (5, 3, 2)
    assert space.n_outcomes == 4
    assert space.outcome_names == (0, 1, 2, "end")
    assert space.action_names == ("left", "right")
    assert type(space.n_states) is int


def test_an_illegal_pair_needs_no_outcome():
    support = np.ones((2, 2, 2), bool)
    support[0, 1] = False
    legal = np.array([[1, 0], [1, 1]])
    assert StateActionSpace(2, 2, legal=legal, support=support).support is not None


def test_support_by_step():
    np.testing.assert_array_equal(StateActionSpace(2, 1, horizon=3, support=np.ones((3, 2, 1, 2))).support, True)
    with pytest.raises(ValueError, match=r"support has shape \(4, 2, 1, 2\), expected \(3, 2, 1, 2\)"):
        StateActionSpace(2, 1, horizon=3, support=np.ones((4, 2, 1, 2)))


def test_from_log():
    rows = Transitions(np.array([0, 1]), np.array([0, 0]), None, np.array([1, 0]), terminated=np.array([False, True]))
    space = StateActionSpace.from_log(Log(rows, states=("x", "y"), actions=("go",)))
    assert space.shape == (2, 1)
    assert space.ends
    never = Transitions(np.array([0]), np.array([0]), None, np.array([1]))
    log = Log(never, states=("x", "y"), actions=("go",))
    assert not StateActionSpace.from_log(log).ends
    legal, support = np.ones((2, 1), bool), np.ones((4, 2, 1, 3), bool)
    more = StateActionSpace.from_log(log, horizon=4, ends=True, legal=legal, support=support)
    assert (more.shape, more.n_outcomes, more.state_names) == ((4, 2, 1), 3, ("x", "y"))
    np.testing.assert_array_equal(more.legal, legal)
    np.testing.assert_array_equal(more.support, support)
    assert not StateActionSpace.from_log(Log(rows, states=("x", "y"), actions=("go",)), ends=False).ends
    assert StateActionSpace(2, 1, states=("end", "x")).state_names == ("end", "x")
    with pytest.raises(TypeError, match="log is a Transitions, expected a Log"):
        StateActionSpace.from_log(rows)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("horizon", "names", "shape"),
    [(None, (), (3, 2)), (4, (), (4, 3, 2)), (None, ("state",), (3, 1)), (4, ("step", "action"), (4, 1, 2))],
)
def test_plates(horizon, names, shape):
    space = StateActionSpace(3, 2, horizon=horizon)

    def program():
        with space.plates(*names):
            return numpyro.sample("x", dist.Normal())

    site = handlers.trace(handlers.seed(program, 0)).get_trace()["x"]
    assert site["value"].shape == shape


def test_plates_refuse_other_names():
    with (
        pytest.raises(ValueError, match="plates got 'step', expected one of state, action"),
        StateActionSpace(3, 2).plates("step"),
    ):
        pass
