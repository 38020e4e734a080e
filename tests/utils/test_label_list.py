"""Labels in a message."""

import pytest

from bayes_mdp.utils.label_list import MOST, label_list


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ((), ""),
        (("idle",), "'idle'"),
        ([0, "0"], "0, '0'"),
        (range(MOST), "0, 1, 2, 3, 4, 5"),
        (tuple(range(MOST + 1)), "0, 1, 2, 3, 4, 5, ... (7 in all)"),
    ],
)
def test_few_are_listed_whole_and_many_counted(labels, text):
    assert label_list(labels) == text
