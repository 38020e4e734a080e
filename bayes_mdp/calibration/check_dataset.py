"""The numbers of a check as one `xarray.Dataset`, from what the simulations gave. Host-side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.calibration import check_scores
from bayes_mdp.calibration.ecdf import p_value

if TYPE_CHECKING:
    import xarray as xr

INTERVAL = 0.9


class Simulated(NamedTuple):
    """N simulations, L draws of each posterior.

    Args:
        names: of the K quantities.
        truth, draws: their values.
        rank: number of draws below the truth, ties broken at random.
        pairs: names of the E pairs (step, state and action) of which one asks whether the action is optimal.
        event, happened: whether it is, in the truth and in each draw; shares where actions tie.
    """

    names: Sequence[str]
    truth: Float[np.ndarray, "N K"]
    draws: Float[np.ndarray, "N L K"]
    rank: Int[np.ndarray, "N K"]
    pairs: Sequence[str]
    event: Float[np.ndarray, "N E"]
    happened: Float[np.ndarray, "N L E"]


def numbers(rng: np.random.Generator, simulated: Simulated) -> "xr.Dataset":
    """Variables and dims as `check` describes them.

    Raises:
        ValueError: a quantity that is not finite, or no quantity that differs between truths.
    """
    import xarray as xr

    varies = _varying(simulated)
    data = {**_marginal(simulated, varies), **_joint(rng, simulated, varies)}
    if len(simulated.pairs):
        data.update(_optimal(simulated))
    coords = {"simulation": np.arange(len(simulated.truth)), "quantity": list(simulated.names)}
    levels, covered = check_scores.coverage(simulated.rank, simulated.draws.shape[1])
    data["coverage"] = (("quantity", "level"), covered)
    if len(simulated.pairs):
        coords["pair"] = list(simulated.pairs)
    return xr.Dataset(data, {**coords, "level": levels})


def _varying(simulated: Simulated) -> np.ndarray:
    """Which quantities differ between truths by more than rounding."""
    for name, truth, draws in zip(simulated.names, simulated.truth.T, np.moveaxis(simulated.draws, -1, 0), strict=True):
        if not (np.isfinite(truth).all() and np.isfinite(draws).all()):
            raise ValueError(f"quantities: {name} is not finite in some draw, expected finite numbers")
    varies = check_scores.varying(simulated.truth)
    if not varies.any():
        raise ValueError("quantities: none differs between truths, expected at least one that the prior leaves open")
    return varies


def _marginal(simulated: Simulated, varies: np.ndarray) -> dict[str, tuple]:
    num_draws = simulated.draws.shape[1]
    moments = check_scores.posterior_moments(simulated.truth, simulated.draws)
    low, high = np.quantile(simulated.draws, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2], axis=1)
    each = ("simulation", "quantity")
    ranks = zip(simulated.rank.T, varies, strict=True)
    return {
        "truth": (each, simulated.truth),
        "rank": (each, simulated.rank),
        "posterior_mean": (each, moments.mean),
        "posterior_sd": (each, moments.sd),
        "interval_low": (each, low, {"probability": INTERVAL}),
        "interval_high": (each, high, {"probability": INTERVAL}),
        "z_score": (each, moments.z_score),
        "contraction": (each, moments.contraction),
        "varies": ("quantity", varies),
        "p_value": ("quantity", np.array([p_value(r, num_draws) if v else np.nan for r, v in ranks])),
    }


def _joint(rng: np.random.Generator, simulated: Simulated, varies: np.ndarray) -> dict[str, tuple]:
    """The quantities together; of one alone its ranks have said it."""
    if varies.sum() < 2:
        return {}
    score, expected, rank = check_scores.energy_scores(rng, simulated.truth[:, varies], simulated.draws[..., varies])
    return {
        "energy_score": ("simulation", score),
        "energy_score_draws": ("simulation", expected),
        "joint_rank": ("simulation", rank),
        "joint_p_value": ((), p_value(rank, simulated.draws.shape[1])),
    }


def _optimal(simulated: Simulated) -> dict[str, tuple]:
    brier = check_scores.brier(simulated.happened, simulated.event)
    bins = check_scores.reliability(simulated.happened, simulated.event)
    each = ("simulation", "pair")
    return {
        "optimal": (each, simulated.event),
        "forecast": (each, simulated.happened.mean(1)),
        **{f"brier_{name}": ((), value) for name, value in brier._asdict().items()},
        **{f"reliability_{name}": ("bin", value) for name, value in bins._asdict().items()},
    }
