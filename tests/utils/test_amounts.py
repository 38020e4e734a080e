"""Values as people write them."""

import pytest

from bayes_mdp.utils.amounts import amount, amounts


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [
        (0.0, 4, "0"),
        (0.123456, 4, "0.1235"),
        (-12.3456, 4, "-12.35"),
        (149.6, 2, "150"),
        (999.4, 2, "999"),
        (999.7, 4, "999.7"),
        (999.97, 4, "1,000"),
        (15434.4, 4, "15,434"),
        (-15434.6, 2, "-15,435"),
        (9999000.0, 4, "9,999,000"),
        (9999999.9, 4, "1e+07"),
        (1e7, 4, "1e+07"),
        (float("nan"), 4, "nan"),
        (float("-inf"), 4, "-inf"),
        (1e-9, 4, "1e-09"),
    ],
)
def test_how_a_number_is_written(number, digits, text):
    assert amount(number, digits) == text


def test_an_interval():
    assert amounts(8907.7, 21400.2) == "[8,908, 21,400]" and amounts(-0.25, 12.3456, 3) == "[-0.25, 12.3]"
