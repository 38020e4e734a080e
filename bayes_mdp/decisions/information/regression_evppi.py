"""EVPPI by regression: net benefits on the sites' values over one set of draws, by splines of scikit-learn.

It needs no structure, and so it is the way for sites that depend on others, and for draws that somebody else made. It
is an estimate of no known direction: a useless site gets a positive value. The value of the same sites in random order,
which is 0 in truth, is computed beside it.

Source: Strong, Oakley and Brennan (2014), *Estimating multiparameter partial expected value of perfect information*.
"""

import importlib.util
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from bayes_mdp.utils.messages import install

MOST_INTERACTING = 4
"""Elements up to which pairs of splines are multiplied; more enter as a sum of splines."""
KNOTS = 6
FOLDS = 10
"""Parts of the draws; the error is that of the mean over them."""


class Fit(NamedTuple):
    """What the regression found.

    Args:
        value: mean over draws of the largest fitted net benefit, minus that of the best strategy.
        standard_error: by `FOLDS` parts of the draws.
        useless: the value for the sites in random order.
    """

    value: float
    standard_error: float
    useless: float


def regression_value(
    rng: np.random.Generator, sites: Float[np.ndarray, "draws elements"], benefit: Float[np.ndarray, "draws strategies"]
) -> Fit:
    """EVPPI of the sites.

    Args:
        rng: for the random order.
        sites: values of all elements of the sites.
        benefit: net benefits.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    best = int(np.argmax(benefit.mean(0)))
    gain = benefit - benefit[:, [best]]
    fitted = _fitted(sites, gain)
    useless = _fitted(sites[rng.permutation(len(sites))], gain)
    top = fitted.max(1) - fitted[:, best]
    parts = np.array([part.mean() for part in np.array_split(top[rng.permutation(len(top))], FOLDS)])
    floor = useless.max(1) - useless[:, best]
    return Fit(float(top.mean()), float(parts.std(ddof=1) / np.sqrt(FOLDS)), float(floor.mean()))


def _fitted(x: Float[np.ndarray, "draws elements"], y: Float[np.ndarray, "draws strategies"]) -> np.ndarray:
    """E[y | x] by cubic splines and a ridge whose weight is chosen by leave-one-out error."""
    if importlib.util.find_spec("sklearn") is None:
        raise ImportError(f"regression needs scikit-learn: {install('regression')}")
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

    varying = x[:, x.std(0) > 0]
    if not varying.shape[1]:
        return np.broadcast_to(y.mean(0), y.shape)
    steps: list[object] = [SplineTransformer(KNOTS, knots="quantile", extrapolation="linear", include_bias=False)]
    if 1 < varying.shape[1] <= MOST_INTERACTING:
        steps.append(PolynomialFeatures(2, interaction_only=True, include_bias=False))
    model = make_pipeline(*steps, StandardScaler(), RidgeCV(np.logspace(-6, 3, 10)))
    scale = np.where(y.std(0) > 0, y.std(0), 1.0)
    return np.asarray(model.fit(varying, y / scale).predict(varying)).reshape(y.shape) * scale
