"""Predictive checks: test statistics of the data against those of replicated data. Host-side.

A replicate repeats the transitions from the same pairs (fixed visits, as in `to_arviz`) under one draw. The p-value of
a statistic T is P(T(replicate, draw) >= T(data, draw)) over draws and replicates, ties counted half (Gelman, Meng and
Stern 1996). It is close to 1/2 if the model fits, close to 0 or 1 if it does not. Under a true model it is not uniform
but concentrated around 1/2: the check is conservative.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.calibration.belief import replicates as predictive
from bayes_mdp.calibration.belief.observed_data import Data
from bayes_mdp.calibration.belief.parameter_draws import generator
from bayes_mdp.calibration.belief.posterior_views import FittedPosterior, key_or_first
from bayes_mdp.calibration.predictive.check_statistics import REWARDS, TRANSITIONS, Sample, Statistic, previous_states
from bayes_mdp.mdp import Log, StateActionSpace, Transitions
from bayes_mdp.mdp.labels import pair_axes
from bayes_mdp.mdp.validation import check_functions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = 0.01
"""Two-sided p-values below this are called surprising."""


class Comparison(NamedTuple):
    """One statistic. Its shape `cells` is () for a number, [*H S A] for one per pair; nan where it is undefined.

    Args:
        observed: [N *cells], of the data with each draw (all equal unless the statistic depends on the draw).
        replicated: [N *cells], of the replicate of each draw.
        p: [*cells], P(replicated >= observed), ties counted half.
        p_overall: two-sided p-value of the whole statistic: of the number, or of the largest standardised deviation
            over pairs, compared with the same maximum in the replicates.
        error: Monte Carlo standard error of `p_overall`.
    """

    observed: Float[np.ndarray, "N *cells"]
    replicated: Float[np.ndarray, "N *cells"]
    p: Float[np.ndarray, "*cells"]
    p_overall: float
    error: float

    @property
    def worst(self) -> tuple[int, ...]:
        """Index of the cell with the largest standardised deviation; () for a number."""
        if self.p.ndim == 0:
            return ()
        far = np.abs(_standardised(self.observed, self.replicated)).mean(0)
        return tuple(int(i) for i in np.unravel_index(np.nanargmax(np.nan_to_num(far)), far.shape))


class PredictiveCheck(NamedTuple):
    """Result of `predictive_check`; print it.

    Args:
        comparisons: by name of the statistic.
        group: "posterior" or "prior", the source of the draws.
        num_transitions: T.
        space: of the posterior.
    """

    comparisons: dict[str, Comparison]
    group: str
    num_transitions: int
    space: StateActionSpace

    @property
    def surprises(self) -> list[str]:
        """Names of the statistics with a two-sided p-value below 1 %."""
        return [name for name, each in self.comparisons.items() if each.p_overall < LEVEL]

    def table(self) -> xr.Dataset:
        """Per statistic: `{name}` (dims of the statistic): observed, replicated mean and sd, p along `quantity`."""
        made = {}
        for name, each in self.comparisons.items():
            stack = [each.observed.mean(0), each.replicated.mean(0), each.replicated.std(0), each.p]
            dims, coords = pair_axes(each.p.shape, self.space) if each.p.shape == self.space.shape else (None, {})
            dims = dims or tuple(f"{name}_dim_{i}" for i in range(each.p.ndim))
            coords = {**coords, "quantity": ["observed", "replicated_mean", "replicated_sd", "p"]}
            attributes = {"p_overall": each.p_overall, "p_overall_error": each.error}
            made[name] = xr.DataArray(np.stack(stack), coords, ("quantity", *dims), attrs=attributes)
        return xr.Dataset(made)

    def plot(self) -> "Figure":
        """A histogram of the replicates of every statistic (of its worst pair), and the data as a line."""
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(1, len(self.comparisons), figsize=(3 * len(self.comparisons), 2.6), squeeze=False)
        for axis, (name, each) in zip(axes[0], self.comparisons.items(), strict=True):
            here = (slice(None), *each.worst)
            axis.hist(each.replicated[here], bins=30, color="0.7")
            axis.axvline(each.observed[here].mean(), color="C1")
            axis.set_title(f"{name}\n{self._where(each.worst)} p = {each.p_overall:.3f}", fontsize=8)
            axis.set_yticks([])
        figure.tight_layout()
        return figure

    def __str__(self) -> str:
        """A line for each statistic, and those that are surprising."""
        number = len(next(iter(self.comparisons.values())).replicated)
        lines = [
            f"{self.group.capitalize()} predictive check: {number} replicates of {self.num_transitions} transitions, "
            "visits held fixed"
        ]
        for name, each in self.comparisons.items():
            here = (slice(None), *each.worst)
            low, high = np.quantile(each.replicated[here], [0.05, 0.95])
            lines.append(
                f"  {name:<23} observed {each.observed[here].mean():.4g}, replicates {low:.4g} to {high:.4g} (90 %), "
                f"p {each.p_overall:.3f} +- {each.error:.3f}{self._where(each.worst)}"
            )
        found = ", ".join(self.surprises)
        lines.append(
            f"Surprising at the 1 % level: {found}. The data are not what this model would yield."
            if found
            else "No statistic is surprising at the 1 % level."
        )
        return "\n".join(lines)

    def _where(self, index: tuple[int, ...]) -> str:
        """The pair in words."""
        if not index:
            return ""
        if len(index) != len(self.space.shape):
            return f" at {index}"
        *step, s, a = index
        at = f"step {step[0]}, " if step else ""
        return f" at {at}{self.space.state_names[s]}, {self.space.action_names[a]}"


def predictive_check(
    posterior: FittedPosterior,
    data: Data,
    *,
    statistics: Mapping[str, Statistic] | None = None,
    num_draws: int = 1000,
    key: PRNGKeyArray | None = None,
    group: str = "posterior",
) -> PredictiveCheck:
    """Compare test statistics of the data with those of replicated data.

    Args:
        posterior: as `infer` returns it, or a mixture.
        data: the `Transitions` or `Log` that it was inferred from, in the order of time.
        statistics: name -> function of one `Sample`: a number, or an array of any fixed shape. None:
            `transition_discrepancy`, `row_discrepancy` (fit of the counts to the rows), `serial_dependence` (Markov
            property), `reward_mean`, `_sd`, `_min`, `_max` of each pair (if rewards are unknown).
        num_draws: number of replicates.
        key: of draws and replicates; None: `jax.random.key(0)`.
        group: "posterior", or "prior" for prior predictions.

    Raises:
        ValueError, TypeError: as `to_arviz`; data that are sums; a statistic whose shape is not fixed.
    """
    check_functions("statistics", statistics)
    key_draws, key_replicates = jax.random.split(key_or_first(key))
    draws, rows = predictive.draws_and_rows(key_draws, posterior, data, num_draws, group)
    made = predictive.replicate_rows(generator(key_replicates), draws, rows)
    transitions = data.transitions if isinstance(data, Log) else data
    assert isinstance(transitions, Transitions)  # there are rows
    missing = np.isnan(rows.reward)
    previous = previous_states(transitions)
    if statistics is None:
        statistics = {**TRANSITIONS, **(REWARDS if draws.law is not None and not missing.all() else {})}

    def sample(n: int, outcome: np.ndarray, reward: np.ndarray) -> Sample:
        reward = np.where(missing, np.nan, reward).astype(float)
        return Sample(posterior.space, rows.cell, outcome, reward, previous, draws.transition_probs[n])

    again = made.get("observed_reward", np.broadcast_to(rows.reward, (len(draws.transition_probs), missing.size)))
    numbers = range(len(draws.transition_probs))
    replicates = [sample(n, made["observed_next_state"][n], again[n]) for n in numbers]
    observed = [sample(n, rows.outcome, rows.reward) for n in numbers]
    found = {
        name: _compare(_stack(name, function, observed), _stack(name, function, replicates), draws.run.num_chains)
        for name, function in statistics.items()
    }
    return PredictiveCheck(found, group, missing.size, posterior.space)


def _stack(name: str, function: Statistic, samples: list[Sample]) -> Float[np.ndarray, "N *cells"]:
    values = [np.asarray(function(each), float) for each in samples]
    shapes = {value.shape for value in values}
    if len(shapes) > 1:
        raise ValueError(f"statistics[{name!r}] has shapes {', '.join(map(str, sorted(shapes)))}, expected one shape")
    return np.stack(values)


def _compare(observed: np.ndarray, replicated: np.ndarray, num_chains: int) -> Comparison:
    exists = ~np.isnan(observed).any(0)
    p = np.where(exists, _exceeds(replicated, observed).mean(0), np.nan)
    if p.ndim == 0:
        hits = _exceeds(replicated, observed)
        overall = 2.0 * min(hits.mean(), 1.0 - hits.mean())
        return Comparison(observed, replicated, p, overall, 2.0 * _error(hits, num_chains))
    # Several cells: the largest deviation from the mean of the replicates, in their standard deviations.
    largest, of_data = (
        np.nan_to_num(np.abs(_standardised(x, replicated))).reshape(len(x), -1).max(1, initial=0.0)
        for x in (replicated, observed)
    )
    hits = _exceeds(largest, of_data)
    return Comparison(observed, replicated, p, float(hits.mean()), _error(hits, num_chains))


def _exceeds(one: np.ndarray, other: np.ndarray) -> Float[np.ndarray, "N *cells"]:
    """1 where greater, 1/2 where equal."""
    close = np.isclose(one, other, rtol=1e-9, atol=1e-12)
    return np.where(close, 0.5, one > other)


def _standardised(values: np.ndarray, replicated: np.ndarray) -> Float[np.ndarray, "N *cells"]:
    """In standard deviations of the replicates from their mean; infinite if the replicates never vary."""
    mean, sd = replicated.mean(0), replicated.std(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (values - mean) / sd


def _error(hits: Float[np.ndarray, " N"], num_chains: int) -> float:
    """Standard error of the mean: binomial, or that between the chains if it is larger."""
    p = (hits.sum() + 0.5) / (len(hits) + 1)
    binomial = np.sqrt(p * (1 - p) / len(hits))
    if num_chains == 1:
        return float(binomial)
    between = hits.reshape(num_chains, -1).mean(1).std(ddof=1) / np.sqrt(num_chains)
    return float(max(binomial, between))
