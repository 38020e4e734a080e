import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

from bayes_mdp.behaviour import Parameter

pytestmark = pytest.mark.usefixtures("x64")
LINE = np.linspace(-3, 3, 7)


@pytest.mark.parametrize(
    ("support", "expected"),
    [("unit", norm.cdf(LINE)), ("positive", np.exp(LINE)), ("real", LINE), ((-1.0, 5.0), -1 + 6 * norm.cdf(LINE))],
)
def test_maps_and_their_inverses(support, expected):
    parameter = Parameter(support)
    np.testing.assert_allclose(parameter.constrain(LINE), expected, rtol=1e-12)
    np.testing.assert_allclose(parameter.unconstrain(expected), LINE, rtol=1e-9, atol=1e-12)
    parameter.check("x", expected)


def test_values_outside_and_wrong_options_are_refused():
    with pytest.raises(ValueError, match=r"rate\[1\] is 1.2, expected a number from 0 to 1"):
        Parameter("unit").check("rate", [0.5, 1.2])
    with pytest.raises(ValueError, match=r"beta is -1\.0, expected a finite number of at least 0"):
        Parameter("positive").check("beta", -1.0)
    with pytest.raises(ValueError, match=r"support is \(2.0, 1.0\), expected \(low, high\) with low below high"):
        Parameter((2.0, 1.0))
    with pytest.raises(ValueError, match="support is 'half'"):
        Parameter("half")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="group_mean is"):
        Parameter(group_mean=dist.Normal(np.zeros(2), 1.0))
