"""Predictive checks: test statistics of the data against those of replicated data. NumPy in float64, host-side.

A replicate repeats the transitions from the same pairs (fixed visits, as in `to_arviz`) under one draw. What the
p-values are: see `comparisons`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float, Int, PRNGKeyArray

from bayes_mdp.calibration.belief import replicates as predictive
from bayes_mdp.calibration.belief.draws import key_or_first
from bayes_mdp.calibration.belief.observed_data import Data
from bayes_mdp.calibration.predictive.comparisons import (
    Comparison,
    compare_statistic,
    comparison_table,
    lay_out_comparisons,
    stack_statistic,
    surprises,
)
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.mdp import Log, StateActionSpace, Transitions
from bayes_mdp.mdp.labels import pair_axes
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.layout import Section, as_html, as_text
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.validation import check_functions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pairs = Float[np.ndarray, "*H S A"]


class Sample(NamedTuple):
    """T transitions in the order of the data, and a draw of the posterior.

    Args:
        space: sizes and names.
        cell: index of each (step,) state and action.
        outcome: observed or replicated index of the next state, S for the end.
        reward: observed or replicated; nan where none was observed.
        previous: the state before `cell`'s, -1 at the start of an episode or where the log has a gap.
        transition_probs: [*H S A O], of the draw.
    """

    space: StateActionSpace
    cell: tuple[Int[np.ndarray, " T"], ...]
    outcome: Int[np.ndarray, " T"]
    reward: Float[np.ndarray, " T"]
    previous: Int[np.ndarray, " T"]
    transition_probs: Float[np.ndarray, "*H S A O"]

    @property
    def pair(self) -> Int[np.ndarray, " T"]:
        """Number of the (step, state, action), row-major."""
        return np.ravel_multi_index(self.cell, self.space.shape)

    def transition_counts(self) -> Float[np.ndarray, "*H S A O"]:
        """How often each outcome followed each pair."""
        shape = (*self.space.shape, self.space.n_outcomes)
        index = np.ravel_multi_index((*self.cell, self.outcome), shape)
        return np.bincount(index, minlength=int(np.prod(shape))).reshape(shape).astype(float)


Statistic = Callable[[Sample], float | Float[np.ndarray, "..."]]


def previous_states(data: Transitions) -> Int[np.ndarray, " T"]:
    """The state that each transition's state was reached from, -1 where the one before it does not lead to it.

    Of the transitions alone of which it was observed what followed.
    """
    state, next_state = np.asarray(data.state), np.asarray(data.next_state)
    ended = np.zeros(state.shape, bool)
    for flag in (data.terminated, data.truncated):
        ended |= False if flag is None else np.asarray(flag)
    seen = np.ones(state.shape, bool) if data.next_observed is None else np.asarray(data.next_observed)
    ended |= ~seen
    # Rows follow one another in a log: one leads to the next where its next state is that one's state, and nothing
    # ended in between.
    joined = (next_state[:-1] == state[1:]) & ~ended[:-1]
    # -1: nothing is known of what came before the first one.
    return np.concatenate([[-1], np.where(joined, state[:-1], -1)])[: state.size][seen]


def row_discrepancy(sample: Sample) -> Pairs:
    """Freeman-Tukey distance of counts from the draw's row, 4 sum (sqrt(n) - sqrt(N p))^2; nan where never visited.

    It is distributed like chi-square with one degree of freedom less than there are possible outcomes, and stays finite
    if p is tiny (Gelman,
    Meng and Stern 1996, *Posterior predictive assessment of model fitness via realized discrepancies*).
    """
    counts = sample.transition_counts()
    # Freeman-Tukey: root transformed counts have equal variance.
    visits = counts.sum(-1)
    distance = 4 * ((np.sqrt(counts) - np.sqrt(visits[..., None] * sample.transition_probs)) ** 2).sum(-1)
    return np.where(visits > 0, distance, np.nan)


def transition_discrepancy(sample: Sample) -> float:
    """Sum of `row_discrepancy` over the visited pairs."""
    return float(np.nansum(row_discrepancy(sample)))


def serial_dependence(sample: Sample) -> float:
    """Dependence of the outcome on the previous state given the pair: the G statistic of their independence.

    2 sum n log(n N / (row total * column total)) over the table (previous state, outcome) of each pair (Anderson and
    Goodman 1957, *Statistical inference about Markov chains*). Large if the process is not Markov.
    """
    # Four sums of n log n, over (pair, before, outcome), pair, (pair, before), (pair, outcome).
    known = sample.previous >= 0
    pair, before, outcome = sample.pair[known], sample.previous[known], sample.outcome[known]
    n_states, n_outcomes = sample.space.n_states, sample.space.n_outcomes
    origin = pair * n_states + before
    parts = (origin * n_outcomes + outcome, pair, origin, pair * n_outcomes + outcome)
    whole, pairs, origins, outcomes = map(_sum_n_log_n, parts)
    # G = 2 (sum over the table - over its rows - over its columns + over the whole).
    return 2.0 * (whole + pairs - origins - outcomes)


def reward_mean(sample: Sample) -> Pairs:
    """Mean of the rewards of each pair; nan where none was observed."""
    count, total, _ = _sums(sample)
    return np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)


def reward_sd(sample: Sample) -> Pairs:
    """Standard deviation of the rewards of each pair; nan where fewer than two were observed."""
    count, _, deviations = _sums(sample)
    return np.sqrt(np.divide(deviations, count - 1, out=np.full(count.shape, np.nan), where=count > 1))


def reward_extreme(sample: Sample, function: np.ufunc) -> Pairs:
    """Smallest or largest reward of each pair (`np.fmin`, `np.fmax`); nan where none was observed."""
    # fmin and fmax pass over nan, of what was not observed.
    extremes = np.full(int(np.prod(sample.space.shape)), np.nan)
    function.at(extremes, sample.pair, sample.reward)
    return extremes.reshape(sample.space.shape)


TRANSITIONS: dict[str, Statistic] = {
    "transition_discrepancy": transition_discrepancy,
    "row_discrepancy": row_discrepancy,
    "serial_dependence": serial_dependence,
}
REWARDS: dict[str, Statistic] = {
    "reward_mean": reward_mean,
    "reward_sd": reward_sd,
    "reward_min": partial(reward_extreme, function=np.fmin),
    "reward_max": partial(reward_extreme, function=np.fmax),
}
SHARED = (
    "rows of their own where pairs share one, a weaker or a learnt concentration, possible outcomes alone (support=; "
    "in the shell --support FILE)"
)
TWICE = "the rows follow the data more closely than chance allows: are data counted twice, or in the prior as well?"
SPREAD_OUT = (
    "a smaller or a learnt concentration, or possible outcomes alone (support=; in the shell --support FILE): the "
    "belief spreads rows too far"
)
NOISIER = "heavier tails, or a spread of its own for each pair (of real rewards dist.StudentT, dirichlet_normal_gamma)"
QUIETER = "less noise, noise that is learnt (of real rewards dirichlet_normal_gamma), or a weaker prior of the rewards"
CENTRE = "a mean of its own for each pair, a wider prior of the means, or a prior mean where rewards lie"
NEXT_STEPS: dict[str, tuple[str, str]] = {
    "transition_discrepancy": (SHARED, TWICE),
    "row_discrepancy": (SHARED, TWICE),
    "serial_dependence": (
        "put what else matters into the state, such as the state before: the process is not Markov in this one",
        SPREAD_OUT,
    ),
    "reward_mean": (CENTRE, CENTRE),
    "reward_sd": (NOISIER, QUIETER),
    "reward_min": (QUIETER, NOISIER),
    "reward_max": (NOISIER, QUIETER),
}
"""Statistic -> what to try where it is larger in the data than in replicates, and where it is smaller."""


def _sum_n_log_n(code: Int[np.ndarray, " T"]) -> float:
    """sum n log n over how often each code occurs."""
    n = np.unique(code, return_counts=True)[1]
    return float((n * np.log(n)).sum())


def _sums(sample: Sample) -> tuple[Pairs, Pairs, Pairs]:
    """Number, sum, and sum of squared deviations of the rewards of each pair."""
    pair, reward = sample.pair, np.nan_to_num(sample.reward)
    size, observed = int(np.prod(sample.space.shape)), ~np.isnan(sample.reward)
    count, total = (np.bincount(pair, weights, size) for weights in (observed, reward))
    # Two passes: squares around the mean of each pair.
    mean = total / np.maximum(count, 1)
    deviations = np.bincount(pair, np.where(observed, (reward - mean[pair]) ** 2, 0.0), size)
    return tuple(x.reshape(sample.space.shape) for x in (count, total, deviations))  # pyright: ignore[reportReturnType]


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
        return surprises(self.comparisons)

    def table(self) -> xr.Dataset:
        """Per statistic: `{name}` (dims of the statistic): observed, replicated mean and sd, p along `quantity`."""
        return comparison_table(
            self.comparisons, lambda shape: pair_axes(shape, self.space) if shape == self.space.shape else None
        )

    def plot(self) -> "Figure":
        """A histogram of the replicates of every statistic (of its worst pair), and the data as a line."""
        from bayes_mdp.utils.figures import NotebookFigure

        figure = NotebookFigure(figsize=(3 * len(self.comparisons), 2.6), layout="constrained")
        axes = figure.subplots(1, len(self.comparisons), squeeze=False)
        for axis, (name, comparison) in zip(axes[0], self.comparisons.items(), strict=True):
            worst_cell = (slice(None), *comparison.worst)
            axis.hist(comparison.replicated[worst_cell], bins=30, color="0.7")
            axis.axvline(comparison.observed[worst_cell].mean(), color="C1")
            axis.set_title(f"{name}\n{self._where(comparison.worst)} p = {comparison.p_overall:.3f}", fontsize=8)
            axis.set_yticks([])
        return figure

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """A line for each statistic, and those that are surprising."""
        number = len(next(iter(self.comparisons.values())).replicated)
        title = (
            f"{self.group.capitalize()} predictive check: {number} replicates of "
            f"{count_of(self.num_transitions, 'transition')}, visits held fixed; "
            "of pairs the most surprising one, its p-value allowing for their number"
        )
        verdict = "The data are not what this model would yield."
        return lay_out_comparisons(title, self.comparisons, self._where, verdict, NEXT_STEPS)

    def _where(self, index: tuple[int, ...]) -> str:
        """The pair in words."""
        if not index:
            return ""
        if len(index) != len(self.space.shape):
            return f" at {index}"
        *step, s, a = index
        step_words = f"step {step[0]}, " if step else ""
        return f" at {step_words}{self.space.state_names[s]}, {self.space.action_names[a]}"


def predictive_check(
    posterior: Fitted,
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

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 1)
        >>> data = bm.Transitions([0] * 20, [0] * 20, [0.0, 1.0] * 10, [0] * 20)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> print(bm.calibration.predictive_check(posterior, data, num_draws=100))
        Posterior predictive check: 100 replicates of 20 transitions, visits held fixed; ...
    """
    check_functions("statistics", statistics)
    key_draws, key_replicates = jax.random.split(key_or_first(key))
    draws, rows = predictive.draws_and_rows(key_draws, posterior, data, num_draws, group)
    # A replicate of every draw: the same pairs, fresh outcomes and rewards.
    made = predictive.replicate_rows(host_generator(key_replicates), draws, rows)
    transitions = data.transitions if isinstance(data, Log) else data
    assert isinstance(transitions, Transitions)  # there are rows
    # A reward that the data lack is missing in the replicate too.
    missing = np.isnan(rows.reward)
    previous = previous_states(transitions)
    if statistics is None:
        statistics = {**TRANSITIONS, **(REWARDS if draws.rewards.law is not None and not missing.all() else {})}

    def sample(n: int, outcome: np.ndarray, reward: np.ndarray) -> Sample:
        reward = np.where(missing, np.nan, reward).astype(float)
        return Sample(posterior.space, rows.cell, outcome, reward, previous, draws.transition_probs[n])

    # Known rewards are the same in all replicates.
    replicated = made.get("observed_reward", np.broadcast_to(rows.reward, (len(draws.transition_probs), missing.size)))
    numbers = range(len(draws.transition_probs))
    # A statistic may look at the draw too (a realised discrepancy): data and replicate of one draw are compared.
    replicates = [sample(n, made["observed_next_state"][n], replicated[n]) for n in numbers]
    observed = [sample(n, rows.outcome, rows.reward) for n in numbers]
    comparisons = {}
    for name, function in statistics.items():
        seen, drawn = (stack_statistic(name, [function(x) for x in samples]) for samples in (observed, replicates))
        comparisons[name] = compare_statistic(seen, drawn, draws.run.markov_chains)
    return PredictiveCheck(comparisons, group, missing.size, posterior.space)
