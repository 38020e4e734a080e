# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`check`: calibration of a posterior for decisions in an MDP. Host-side; it compiles its own program.

With a log it is posterior SBC, calibration conditional on the log (Säilynoja, Schmitt, Bürkner and Vehtari 2025,
*Posterior SBC: simulation-based calibration checking conditional on data*): truths are drawn from the posterior given
the log, and new data from each truth. A truth is then distributed as a draw of the posterior given log and new data
together. This checks inference near the log, not all over the prior.

Below it the scores of a check, from truths, draws and ranks, in NumPy and float64: there are N simulations, L draws of
each posterior, K quantities. A posterior is calibrated if the truth and its draws are exchangeable given the data.
"""

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float, Int, PRNGKeyArray
from scipy import optimize
from scipy.special import logsumexp

from bayes_mdp.calibration.checks.check_result import FORMAT, Check
from bayes_mdp.calibration.simulation_based.ecdf import p_value
from bayes_mdp.calibration.simulation_based.prior_sbc import identity_of, options_of, run_simulations, sampler
from bayes_mdp.calibration.simulation_based.quantities import (
    CHOSEN_POLICY,
    Quantity,
    optimal_actions,
    value_of_chosen_policy,
    values,
    varying,
)
from bayes_mdp.calibration.simulation_based.ranks import Behaviour, Design, Truth, look_at_draws
from bayes_mdp.decisions.policy_evaluation import describe_objective
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.draws.methods import Method
from bayes_mdp.inference.fitted import Fitted, Law
from bayes_mdp.inference.route import METHODS, fit_for, infer
from bayes_mdp.mdp import (
    AverageReward,
    Discounted,
    Environment,
    Episodic,
    Log,
    Objective,
    StateActionSpace,
    Transitions,
)
from bayes_mdp.mdp.contexts import refuse_contexts
from bayes_mdp.mdp.data.transitions import check_log_labels
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.mdp_spec import Prior, RewardTable, reward_law
from bayes_mdp.models.reward_laws import law_of_first
from bayes_mdp.parallel import ExecutorLike, check_executor
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.files import check_file
from bayes_mdp.utils.validation import (
    check_count,
    check_functions,
    check_key,
    check_name,
    check_number,
    check_type,
)

INTERVAL = 0.9  # probability of the intervals in the dataset
Variables = dict[str, tuple[Any, ...]]  # name -> (dims, values) or (dims, values, attributes)
LEVELS = np.linspace(0.05, 0.95, 19)
NUM_BINS = 10


class Simulated(NamedTuple):
    """Results of N simulations with L draws of each posterior.

    Args:
        names: of the K quantities.
        truth, draws: their values.
        rank: number of draws below the truth, ties broken at random.
        pairs: names of the E pairs (step, state and action) whose action may be optimal.
        event, happened: whether it is, in the truth and in each draw; fractions where actions tie.
    """

    names: Sequence[str]
    truth: Float[np.ndarray, "N K"]
    draws: Float[np.ndarray, "N L K"]
    rank: Int[np.ndarray, "N K"]
    pairs: Sequence[str]
    event: Float[np.ndarray, "N E"]
    happened: Float[np.ndarray, "N L E"]


def numbers(rng: np.random.Generator, simulated: Simulated) -> xr.Dataset:
    """The dataset of a check: variables and dims as `check` describes them.

    Raises:
        ValueError: a quantity that is not finite, or no quantity that differs between truths.
    """
    # Constant quantities are kept, without a p-value.
    varies = _varying_quantities(simulated)
    data = {**_marginal(simulated, varies), **_joint(rng, simulated, varies)}
    if len(simulated.pairs):
        data.update(_optimal(simulated))
    coords = {"simulation": np.arange(len(simulated.truth)), "quantity": list(simulated.names)}
    levels, covered = coverage(simulated.rank, simulated.draws.shape[1])
    data["coverage"] = (("quantity", "level"), covered)
    if len(simulated.pairs):
        coords["pair"] = list(simulated.pairs)
    return xr.Dataset(data, {**coords, "level": levels})


def _varying_quantities(simulated: Simulated) -> np.ndarray:
    """Which quantities differ between truths by more than rounding."""
    for name, truth, draws in zip(simulated.names, simulated.truth.T, np.moveaxis(simulated.draws, -1, 0), strict=True):
        if not (np.isfinite(truth).all() and np.isfinite(draws).all()):
            raise ValueError(f"quantities: {name} is not finite in some draw, expected finite numbers")
    # Rounding alone makes no quantity vary.
    varies = varying(simulated.truth)
    if not varies.any():
        raise ValueError("quantities: none differs between truths, expected at least one that the prior leaves open")
    return varies


def _marginal(simulated: Simulated, varies: np.ndarray) -> Variables:
    num_draws = simulated.draws.shape[1]
    moments = posterior_moments(simulated.truth, simulated.draws)
    # Central intervals of the draws, one a simulation and quantity.
    low, high = np.quantile(simulated.draws, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2], axis=1)
    dims = ("simulation", "quantity")
    # A rank test for each quantity that varies.
    ranks = zip(simulated.rank.T, varies, strict=True)
    return {
        "truth": (dims, simulated.truth),
        "rank": (dims, simulated.rank),
        "posterior_mean": (dims, moments.mean),
        "posterior_sd": (dims, moments.sd),
        "interval_low": (dims, low, {"probability": INTERVAL}),
        "interval_high": (dims, high, {"probability": INTERVAL}),
        "z_score": (dims, moments.z_score),
        "contraction": (dims, moments.contraction),
        "varies": ("quantity", varies),
        "p_value": ("quantity", np.array([p_value(r, num_draws) if v else np.nan for r, v in ranks])),
    }


def _joint(rng: np.random.Generator, simulated: Simulated, varies: np.ndarray) -> Variables:
    """All quantities together, if there are at least two that vary."""
    if varies.sum() < 2:
        return {}
    score, expected, rank = energy_scores(rng, simulated.truth[:, varies], simulated.draws[..., varies])
    return {
        "energy_score": ("simulation", score),
        "energy_score_draws": ("simulation", expected),
        "joint_rank": ("simulation", rank),
        "joint_p_value": ((), p_value(rank, simulated.draws.shape[1])),
    }


def _optimal(simulated: Simulated) -> Variables:
    scored = brier(simulated.happened, simulated.event)
    bins = reliability(simulated.happened, simulated.event)
    dims = ("simulation", "pair")
    return {
        "optimal": (dims, simulated.event),
        "forecast": (dims, simulated.happened.mean(1)),
        **{f"brier_{name}": ((), value) for name, value in scored._asdict().items()},
        **{f"reliability_{name}": ("bin", value) for name, value in bins._asdict().items()},
    }


class Moments(NamedTuple):
    """Of each posterior and quantity. `z_score` has mean 0 and standard deviation 1 if the posterior is calibrated."""

    mean: Float[np.ndarray, "N K"]
    sd: Float[np.ndarray, "N K"]
    z_score: Float[np.ndarray, "N K"]
    contraction: Float[np.ndarray, "N K"]


class Brier(NamedTuple):
    """The Brier score of forecasts (smaller is better), and its distribution under calibration.

    Args:
        score: mean of (forecast - event)^2.
        expected: its mean under calibration, given the draws.
        z: their difference in standard deviations under calibration; positive if forecasts are overconfident.
        p_value: two-sided, by Chernoff's bound: at least the exact p-value.
    """

    score: float
    expected: float
    z: float
    p_value: float


class Reliability(NamedTuple):
    """Per bin of forecasts: mean forecast, frequency of the event, standard error of their difference, number.

    nan where a bin is empty.
    """

    forecast: Float[np.ndarray, " bin"]
    frequency: Float[np.ndarray, " bin"]
    error: Float[np.ndarray, " bin"]
    count: Int[np.ndarray, " bin"]  # pyright: ignore[reportIncompatibleMethodOverride]


def coverage(rank: Int[np.ndarray, "N K"], num_draws: int) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, "K P"]]:
    """Nominal levels, and the share of simulations whose truth lies in the central interval of that level.

    The interval runs from the j-th smallest draw to the j-th largest, and holds the truth with probability exactly
    1 - 2 j / (L + 1) under calibration: these are the levels, those nearest to .05, .1, ..., .95.

    Args:
        rank: number of draws below the truth, ties broken at random.
        num_draws: L.
    """
    # j for each level: the truth falls below the j-th draw with probability j / (L + 1), and above as often.
    cut = np.unique(np.clip(np.round((1 - LEVELS) * (num_draws + 1) / 2), 1, num_draws // 2).astype(int))[::-1]
    inside = (rank[..., None] >= cut) & (rank[..., None] <= num_draws - cut)
    return 1 - 2 * cut / (num_draws + 1), inside.mean(0)


def posterior_moments(truth: Float[np.ndarray, "N K"], draws: Float[np.ndarray, "N L K"]) -> Moments:
    """Moments of the draws; the prior variance of the contraction is that of the truths over simulations.

    nan where the prior variance (contraction) or the posterior variance (z-score) is zero.
    """
    mean, variance = draws.mean(1), draws.var(1, ddof=1)
    prior = truth.var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        contraction = np.where(prior > 0, 1 - variance / prior, np.nan)
        z = np.where(variance > 0, (truth - mean) / np.sqrt(variance), np.nan)
    return Moments(mean, np.sqrt(variance), z, contraction)


def energy_scores(
    rng: np.random.Generator, truth: Float[np.ndarray, "N K"], draws: Float[np.ndarray, "N L K"]
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"], Int[np.ndarray, "N"]]:
    """Energy score of all quantities together: of the truth, mean of the draws in its place, rank of the truth's.

    The score of one point x against the others is E|x - X| - E|X - X'| / 2 (Gneiting and Raftery 2007), each quantity
    in units of its standard deviation over truths and draws. With the truth among L + 1 exchangeable points its rank is
    uniform on 0..L: a rank histogram by the energy-score pre-rank (Gneiting et al. 2008). It depends
    on the joint distribution of the quantities, which their single ranks do not.
    """
    everyone = np.concatenate([truth[:, None], draws], axis=1)
    scale = everyone.std((0, 1))
    # Every point takes the place of the truth once: the scores are exchangeable under calibration.
    scores = np.stack([_energy(points / np.where(scale > 0, scale, 1.0)) for points in everyone])
    first, rest = scores[:, :1], scores[:, 1:]
    # Ties are broken at random.
    tied = (rest == first).sum(1)
    return scores[:, 0], rest.mean(1), (rest < first).sum(1) + rng.integers(tied + 1)


def _energy(points: Float[np.ndarray, "M K"]) -> Float[np.ndarray, " M"]:
    """Energy score of each of M points against the M - 1 others."""
    num_others = len(points) - 1
    # |x - y|^2 = |x|^2 + |y|^2 - 2 x.y by one matrix product; centring keeps the cancellation small.
    # Distances do not change with the centre.
    centred = points - points.mean(0)
    square = (centred**2).sum(-1)
    # Equal points are at distance zero: the root of a rounding error would be large.
    squared = square[:, None] + square - 2 * centred @ centred.T
    distance = np.sqrt(np.where(squared > 1e-12 * square.max(initial=1e-300), squared, 0.0))
    # Of each point x: E|x - X| over the others, minus half of E|X - X'| over pairs of the others.
    # The distance of a point to itself is zero, and does not count.
    total_distance = distance.sum(1)
    return total_distance / num_others - (total_distance.sum() - 2 * total_distance) / (2 * num_others**2)


def brier(happened: Float[np.ndarray, "N L E"], event: Float[np.ndarray, "N E"]) -> Brier:
    """Brier score of E forecasts per simulation, each the fraction of the L draws in which the event occurs.

    Under calibration each of the L + 1 points (truth and draws) is equally likely to be the truth. So the scores of all
    points, each forecast by the others, are the exact null distribution of the score of a simulation, and simulations
    are independent. Events of one simulation may depend on each other, and forecasts may be near 0 and 1.

    Args:
        happened: whether the event occurs in each draw, 0 or 1 (a fraction where optimal actions tie).
        event: the same of the truth.
    """
    everyone = np.concatenate([event[:, None], happened], axis=1)
    # The forecast for each point is made of all others.
    leave_one_out = (everyone.sum(1, keepdims=True) - everyone) / happened.shape[1]
    scores = ((leave_one_out - everyone) ** 2).mean(-1)
    # Given the draws of a simulation, the truth's score is one of its L + 1 at random: mean and variance are known.
    excess = scores - scores.mean(1, keepdims=True)
    error = np.sqrt(excess.var(1).sum())
    # All forecasts and events alike: no deviation can be seen.
    if error == 0:
        return Brier(float(scores[:, 0].mean()), float(scores.mean()), 0.0, 1.0)
    excess /= error
    return Brier(float(scores[:, 0].mean()), float(scores.mean()), float(excess[:, 0].sum()), _chernoff(excess))


def _chernoff(excess: Float[np.ndarray, "N M"]) -> float:
    """Chernoff's bound: two-sided p-value of the sum of the first column of `excess`.

    Under the null hypothesis the sum takes one number of each row, uniformly and independently; its tail probability is
    at most E exp(t (sum - total)), for every t of the right sign.
    """
    total = excess[:, 0].sum()

    def log_bound(t: float) -> float:
        # log E exp(t x) of each simulation, added; less t times the sum that was observed.
        return float((logsumexp(t * excess, axis=1) - np.log(excess.shape[1])).sum() - t * total)

    # Every t gives a valid bound: the minimum need not be exact.
    side = (0.0, 100.0) if total > 0 else (-100.0, 0.0)
    least = optimize.minimize_scalar(log_bound, bounds=side, method="bounded").fun  # pyright: ignore[reportAttributeAccessIssue]
    return float(min(1.0, 2 * np.exp(min(0.0, least))))


def reliability(happened: Float[np.ndarray, "N L E"], event: Float[np.ndarray, "N E"]) -> Reliability:
    """Forecasts against frequencies, by bins.

    A forecast is binned by one half of its draws and averaged over the other half, and vice versa: binning by the
    averaged forecast itself would move every point off the diagonal (regression to the mean), calibrated or not.

    Args:
        happened, event: as for `brier`.
    """
    halves = happened[:, 0::2].mean(1), happened[:, 1::2].mean(1)
    forecasts = np.stack([halves[0], halves[1]], axis=1)
    forecast = np.stack([halves[1], halves[0]], axis=1)
    # A forecast of one belongs to the last bin.
    bins = np.minimum((forecasts * NUM_BINS).astype(int), NUM_BINS - 1)
    columns = [_bin(bins == b, forecast, event[:, None]) for b in range(NUM_BINS)]
    return Reliability(*(np.array(column) for column in zip(*columns, strict=True)))


def _bin(
    inside: np.ndarray, forecast: Float[np.ndarray, "N 2 E"], event: Float[np.ndarray, "N 1 E"]
) -> tuple[float, float, float, int]:
    """Mean forecast, frequency, standard error of their difference (simulations are independent), and how many."""
    count = int(inside.sum())
    if count == 0:
        return np.nan, np.nan, np.nan, 0
    # Events of one simulation depend on each other: the variance is that of sums over simulations.
    gap = np.where(inside, event - forecast, 0.0).sum((1, 2)) / count
    mean = float(np.where(inside, forecast, 0.0).sum() / count)
    frequency = float(np.where(inside, np.broadcast_to(event, forecast.shape), 0.0).sum() / count)
    # Each event was counted by both halves.
    return mean, frequency, float(np.sqrt((gap**2).sum())), count // 2


PER_PAIR = 10


class _Source(NamedTuple):
    """Where truths and data come from: the log, if there is one, and descriptions for the report."""

    log: Transitions | None
    name: str
    num_transitions: int
    behaviour: str


@dataclass(frozen=True)
class CheckOptions:
    """Options of `check` that seldom change.

    Args:
        num_draws: of each posterior, as of `SbcOptions`.
        num_transitions: of each truth; None: ten for each pair. With `data`: as many as it holds.
        method: of the inference, as of `SbcOptions`.
        quantities: name -> function of a `Drawn` (its `mdp`, `solution`, ...) that gives a number. None: the optimal
            value of every state and of every pair (of the first step of an episode), and the probability that an
            action is optimal. "chosen policy": the value (mean over first states) of the policy that is optimal in the
            mean of each simulated posterior. This tests whether its interval contains the true value as often as
            stated, although the policy was chosen with the same data. For posteriors of draws, whose mean is made of
            the draws that are ranked, the test is approximate.
        behaviour: None: pairs at random; or a policy, as of `SbcOptions`. With `data`: the pairs of the log.
        executor: where the simulations are computed, as of `SbcOptions`.
        false_alarm: probability that a calibrated posterior is called not calibrated.

    Raises:
        TypeError, ValueError: one sentence about the option at fault.
        ImportError: `executor` is a Dask cluster, and Dask is not installed.

    Example:
        >>> bm.calibration.CheckOptions(quantities="chosen policy").num_draws
        200
    """

    num_draws: int = 200
    num_transitions: int | None = None
    method: str | Method = "auto"
    quantities: Mapping[str, Quantity] | Literal["chosen policy"] | None = None
    behaviour: Behaviour = None
    executor: ExecutorLike = None
    false_alarm: float = 0.01

    def __post_init__(self) -> None:
        check_count("num_draws", self.num_draws, 10)
        if self.num_transitions is not None:
            check_count("num_transitions", self.num_transitions)
        if isinstance(self.quantities, str):
            check_name("quantities", self.quantities, (CHOSEN_POLICY,), ", a mapping of functions or None")
        else:
            check_functions("quantities", self.quantities)
        if not isinstance(self.method, Method):
            check_name("method", self.method, METHODS, ", or a record NUTS(...), SVI(...), Laplace(...)")
        check_executor(self.executor)
        check_number("false_alarm", self.false_alarm, lambda x: 0 < x < 1, "a probability between 0 and 1")


@accepts_moved("check")
def check(
    key: PRNGKeyArray,
    prior: Prior,
    space: StateActionSpace,
    *,
    data: Log | Transitions | None = None,
    objective: Objective | None = None,
    num_simulations: int = 200,
    path: str | Path | None = None,
    options: CheckOptions = CheckOptions(),
) -> Check:
    """Whether a prior is calibrated for decisions: coverage, contraction, z-scores by simulation, and a verdict.

    Truths are drawn from the prior, or near `data` (see `truths_near`), and inferred from simulated transitions, all in
    one compiled program (see `sbc`). For every quantity the truth is compared with the draws of its posterior: ranks,
    coverage of intervals, z-scores. All quantities together are tested by the ranks of an energy score. Whether an
    action is optimal is an event, of which the posterior gives a probability forecast; it is tested by its Brier score
    (against that of every draw in the place of the truth), and shown as a reliability diagram.

    The verdict: exact tests of uniform ranks (see `ecdf`) of each quantity and of the joint score,
    and a bound on the tails of the Brier score; Bonferroni over all: a calibrated posterior is rejected with
    probability `options.false_alarm` at most. `Check.at` tests the same simulations at another one.

    The dataset of the result, with dims simulation, quantity, level, pair and bin: `truth`, `rank`, `posterior_mean`,
    `posterior_sd`, `interval_low`, `interval_high` (central 90 %), `z_score`, `contraction` [simulation, quantity];
    `coverage` [quantity, level]; `p_value`, `varies` [quantity]; `energy_score` (of the truth), `energy_score_draws`
    (mean of the draws in its place), `joint_rank` [simulation] and `joint_p_value`; `optimal`, `forecast`
    [simulation, pair]; `brier_score`, `brier_expected`, `brier_z`, `brier_p_value`; `reliability_forecast`,
    `reliability_frequency`, `reliability_error`, `reliability_count` [bin]. Attributes: the configuration, the key and
    the versions.

    Args:
        key: of all simulations.
        prior: a NumPyro program, space -> `MDPSpec`.
        space: of the prior.
        data: a log to check around; None: all over the prior.
        objective: of the values; None: `Discounted(0.9)`, or `Episodic(H)` in a space with a horizon.
        num_simulations: number of truths.
        path: NetCDF file for the dataset (`bm.load` reads it). Finished chunks are kept beside it: the same call
            resumes from them.
        options: sizes of data sets and posteriors, the inference, what is compared, where it is computed, the level of
            the tests (see `CheckOptions`).

    Raises:
        ValueError, TypeError: an argument that cannot be used (as `infer`, `sbc`); a quantity that is not finite in
            some draw; no quantity that varies under the prior.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> options = bm.calibration.CheckOptions(num_transitions=10)
        >>> result = bm.check(jax.random.key(0), prior, space, num_simulations=20, options=options)
        >>> result.calibrated
        True
    """
    check_key("key", key)
    chunk_file = None if path is None else _chunk_path(path)
    check_count("num_simulations", num_simulations, 10)
    check_space(space)
    refuse_contexts(space, "check")
    check_type("options", options, CheckOptions, "CheckOptions")
    method, behaviour, num_draws = options.method, options.behaviour, options.num_draws
    # The value of the policy that each posterior chooses, or functions of a draw.
    quantities, quantity = options.quantities, None
    # One word asks for the value of the chosen policy.
    if isinstance(quantities, str):
        quantities, quantity = None, quantities
    if objective is not None:
        check_objective(objective)
    fit = fit_for(prior, space, method, sampler=sampler(num_draws))
    objective = _objective(objective, space)
    # What is judged as a number, and what as an event.
    source = _source(data, space, options.num_transitions, behaviour)
    judged = values(space, objective) if quantities is None else dict(quantities)
    events = optimal_actions(space, objective) if quantities is None else {}
    if quantity is not None:
        judged, events = value_of_chosen_policy(space), {}
    design = Design(prior, space, num_draws, source.num_transitions, {**judged, **events}, behaviour, objective)
    design = design._replace(chooses=quantity is not None)
    # Posterior of the log, simulations, ties: each has its own key.
    key_posterior, key_simulations, key_ties = jax.random.split(key, 3)
    if source.log is not None:
        posterior = infer(key_posterior, prior, data, space=space, method=method)
        design = design._replace(draw_truth=truths_near(posterior, source.log, design))
    attributes = _configuration(key, prior, fit, objective, source, num_draws)
    # Only simulations of the same call may be resumed.
    program = identity_of((prior, space, quantities, quantity, behaviour, objective, method, source.log))
    shared = _common_attributes(attributes, method) | {"program": program}
    simulated = run_simulations(key_simulations, design, fit, num_simulations, shared, chunk_file, options.executor)
    rng = host_generator(key_ties)
    dataset = numbers(rng, _split(simulated, list(judged), list(events)))
    answer = Check(dataset.assign_attrs(attributes, false_alarm=options.false_alarm))
    if path is not None and chunk_file is not None:
        # The chunks were needed to resume; the answer holds all of them.
        answer.to_netcdf(path)
        chunk_file.unlink(missing_ok=True)
    return answer


def _chunk_path(path: str | Path) -> Path:
    """The file of finished chunks. Both files are checked before any work.

    Raises:
        ValueError, OSError: one of them cannot be written.
    """
    check_file(path)
    return check_file(f"{path}.partial")


def _objective(objective: Objective | None, space: StateActionSpace) -> Objective:
    if objective is None:
        return Discounted(0.9) if space.horizon is None else Episodic(space.horizon)
    if isinstance(objective, AverageReward) and space.ends:
        raise ValueError("objective is AverageReward() and episodes can end, expected another objective")
    return objective


def _source(
    data: Log | Transitions | None, space: StateActionSpace, num_transitions: int | None, behaviour: Behaviour
) -> _Source:
    if data is None:
        cells = int(np.prod(space.shape)) if space.legal is None else int(np.sum(space.legal)) * (space.horizon or 1)
        number = PER_PAIR * cells if num_transitions is None else num_transitions
        check_count("num_transitions", number)
        return _Source(None, "the prior", number, "pairs at random" if behaviour is None else "a given policy")
    # Given data say how many transitions there are, and from where.
    for name, value in (("num_transitions", num_transitions), ("behaviour", behaviour)):
        if value is not None:
            raise ValueError(f"{name} is given with data, expected None: the new data have the pairs of the log")
    check_type("data", data, (Log, Transitions), "Transitions or a Log")
    if isinstance(data, Log):
        check_log_labels("data", data, space)
    log = data.transitions if isinstance(data, Log) else data
    name = f"the posterior of {data.source}" if isinstance(data, Log) else "the posterior of the data"
    return _Source(log, name, int(np.size(log.state)), "the pairs of the log once more")


def _split(simulated: xr.Dataset, asked: list[str], events: list[str]) -> Simulated:
    """The quantities, and the events of which action is optimal."""
    # Quantities and events were ranked together.
    numbers, chances = simulated.sel(quantity=asked), simulated.sel(quantity=events)
    truth, draws = (numbers[name].to_numpy().astype(np.float64) for name in ("truth", "draws"))
    event, happened = (chances[name].to_numpy().astype(np.float64) for name in ("truth", "draws"))
    pairs = [name.removeprefix("optimal(").removesuffix(")") for name in events]
    return Simulated(asked, truth, draws, numbers["rank"].to_numpy(), pairs, event, happened)


def _configuration(
    key: PRNGKeyArray, prior: Prior, fit: Fit[Any], objective: Objective, source: _Source, num_draws: int
) -> dict[str, str | int]:
    """The configuration of the check, as NetCDF attributes."""
    packages = ("bayes-mdp", "jax", "numpyro", "numpy")
    return {
        "format": FORMAT,
        "prior": getattr(prior, "__qualname__", type(prior).__name__).split(".")[0],
        "method": fit.method,
        "objective": describe_objective(objective),
        "source": source.name,
        "behaviour": source.behaviour,
        "num_draws": num_draws,
        "num_transitions": source.num_transitions,
        "precision": str(jax.dtypes.canonicalize_dtype(float)),
        "key": json.dumps([str(jax.random.key_impl(key)), np.asarray(jax.random.key_data(key)).tolist()]),
        "versions": json.dumps({"python": platform.python_version(), **{name: version(name) for name in packages}}),
        "created_at": datetime.now(UTC).isoformat(),
    }


def _common_attributes(attributes: dict[str, str | int], method: str | Method) -> dict[str, str]:
    """The attributes that finished chunks must have in common with the call that resumes from them."""
    names = ("prior", "method", "objective", "source", "precision", "key", "versions")
    return {**{name: str(attributes[name]) for name in names}, "options": options_of(method)}


def truths_near(posterior: Fitted, log: Transitions, design: Design) -> Callable[[PRNGKeyArray, PRNGKeyArray], Truth]:
    """(key of the truth, key of the data) -> a draw of `posterior`, and the log followed by as many new transitions.

    The new transitions start from the pairs of the log, in its order, and their rewards are observed where its are. The
    likelihood is conditional on states and actions, so any choice of them is valid.
    """
    observed = _fill_columns(log, design.space)

    def draw_truth(key_truth: PRNGKeyArray, key_data: PRNGKeyArray) -> Truth:
        # One draw of the posterior is the truth.
        single_draw = design._replace(num_draws=1)
        laws, sites = look_at_draws(key_truth, posterior, single_draw, lambda law: law)
        rewards = laws.rewards
        known = None if rewards.known is None else rewards.known[0]
        of_one = None if rewards.law is None else law_of_first(rewards.law)
        law = Law(laws.rows[0], RewardTable(of_one, known, rewards.by_outcome))
        sites = {name: values[0] for name, values in sites.items()}
        new = _again(key_data, law, observed, design.space)
        # Old data and new: the posterior is inferred from both.
        return Truth(law, sites, jax.tree.map(lambda *parts: jnp.concatenate(parts), observed, new))

    return draw_truth


def _fill_columns(log: Transitions, space: StateActionSpace) -> Transitions:
    """The log with all columns that its replicates have."""
    number = np.size(log.state)
    zero, no = np.zeros(number, np.int32), np.zeros(number, bool)
    return Transitions(
        np.array(log.state, np.int32),
        np.array(log.action, np.int32),
        np.zeros(number) if log.reward is None else np.array(log.reward, np.float64),
        np.array(log.next_state, np.int32),
        (no if log.terminated is None else np.array(log.terminated)) if space.ends else None,
        step=None if space.horizon is None else (zero if log.step is None else np.array(log.step, np.int32)),
        reward_observed=no if log.reward is None else log.reward_observed,
        next_observed=log.next_observed,
    )


def _again(key: PRNGKeyArray, law: Law, log: Transitions, space: StateActionSpace) -> Transitions:
    """A new outcome and reward from the pair of every transition."""
    # Only single steps are taken: any first state will do.
    initial = jnp.full(space.n_states, 1.0 / space.n_states)
    environment = Environment(replace(law.mdp(space), initial=initial), reward_law(law.rewards, space))
    step = jnp.zeros_like(log.state) if log.step is None else log.step
    keys = jax.random.split(key, len(log.state))
    next_state, reward, terminated = jax.vmap(environment.step)(keys, log.state, log.action, step)
    # Of a transition whose outcome is not known, no end is known either.
    if log.next_observed is not None:
        terminated = terminated & jnp.asarray(log.next_observed)
    return replace(log, next_state=next_state, reward=reward, terminated=terminated if space.ends else None)
