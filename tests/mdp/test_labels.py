"""Labels that NetCDF can hold."""

import numpy as np
import pytest

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.labels import coordinates, labels


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((3, 1), [3, 1]),
        ((np.int64(3), 1), [3, 1]),
        ((0.5, 1.5), [0.5, 1.5]),
        (("b", "a"), ["b", "a"]),
        ((True, False), ["True", "False"]),
        (((0, 1), (0, 2)), ["(0, 1)", "(0, 2)"]),
        ((1, "1"), ["1", "'1'"]),
    ],
)
def test_labels(names, expected):
    made = labels(names)
    assert made.dtype != object
    assert list(made) == expected


def test_coordinates():
    made = coordinates(StateActionSpace(2, 1, horizon=3, ends=True, states=("a", "b")))
    assert {name: list(values) for name, values in made.items()} == {
        "step": [0, 1, 2],
        "state": ["a", "b"],
        "action": [0],
        "next_state": ["a", "b", "end"],
    }
