"""A conjugate normal model whose simulations cost nothing, in the form that `run_simulations` gives them."""

import numpy as np
import xarray as xr

from bayes_mdp.calibration.checks.check_result import Check
from bayes_mdp.calibration.checks.checking import Simulated, numbers

ATTRIBUTES = {
    "prior": "sticky",
    "method": "exact",
    "source": "the prior",
    "num_transitions": 40,
    "behaviour": "pairs at random",
    "objective": "discount 0.9",
    "num_draws": 99,
    "false_alarm": 0.01,
}
ROOT = np.linalg.cholesky(0.5 * np.eye(4) + 0.5)  # of the prior covariance
NOISE = 0.5


def draw(num, *, num_draws=99, scale=1.0, shift=0.0, seed=0):
    """Truths [N 4] and draws [N L 4] of their posteriors after one noisy look; wrong by `scale` and `shift`."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(num, 4)) @ ROOT.T
    look = truth + NOISE * rng.normal(size=truth.shape)
    prior = ROOT @ ROOT.T
    gain = prior @ np.linalg.inv(prior + NOISE**2 * np.eye(4))
    root = np.linalg.cholesky(prior - gain @ prior)
    mean = look @ gain.T + shift
    return truth, mean[:, None] + scale * rng.normal(size=(num, num_draws, 4)) @ root.T


def best(values):
    """Which of quantities 0 and 1 is larger, and which of 2 and 3."""
    first, second = values[..., 0] >= values[..., 1], values[..., 2] >= values[..., 3]
    return np.stack([first, ~first, second, ~second], axis=-1).astype(float)


def checked(num=200, **wrong):
    """A check of these simulations."""
    truth, draws = draw(num, **wrong)
    names = [f"Q({s}, {a})" for s in "xy" for a in (0, 1)]
    pairs = [name[2:-1] for name in names]
    rank = (draws < truth[:, None]).sum(1)
    simulated = Simulated(names, truth, draws, rank, pairs, best(truth), best(draws))
    return Check(numbers(np.random.default_rng(1), simulated).assign_attrs(ATTRIBUTES))


def simulations(names, num, **wrong):
    """The same as `run_simulations` gives it, under the names of a check of two states and two actions."""
    truth, draws = draw(num, **wrong)

    def columns(x):
        states = np.stack([x[..., :2].max(-1), x[..., 2:].max(-1)], axis=-1)
        return np.concatenate([states, x, best(x)], axis=-1)

    truth, draws = columns(truth), columns(draws)
    rank = (draws < truth[:, None]).sum(1)
    each = ("simulation", "quantity")
    data = {"truth": (each, truth), "rank": (each, rank), "draws": (("simulation", "draw", "quantity"), draws)}
    return xr.Dataset(data, {"quantity": list(names)})
