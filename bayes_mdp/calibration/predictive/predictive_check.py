"""Predictive checks: test statistics of the data against those of replicated data. Host-side.

A replicate repeats the transitions from the same pairs (fixed visits, as in `to_arviz`) under one draw. What the
p-values are: see `comparisons`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.belief import replicates as predictive
from bayes_mdp.calibration.belief.observed_data import Data
from bayes_mdp.calibration.belief.posterior_views import FittedPosterior, key_or_first
from bayes_mdp.calibration.predictive.check_statistics import (
    NEXT_STEPS,
    REWARDS,
    TRANSITIONS,
    Sample,
    Statistic,
    previous_states,
)
from bayes_mdp.calibration.predictive.comparisons import (
    Comparison,
    compare_statistic,
    comparison_table,
    describe_comparisons,
    stack_statistic,
    surprises,
)
from bayes_mdp.mdp import Log, StateActionSpace, Transitions
from bayes_mdp.mdp.labels import pair_axes
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.html_text import shown_as_html
from bayes_mdp.utils.validation import check_functions

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        for axis, (name, each) in zip(axes[0], self.comparisons.items(), strict=True):
            here = (slice(None), *each.worst)
            axis.hist(each.replicated[here], bins=30, color="0.7")
            axis.axvline(each.observed[here].mean(), color="C1")
            axis.set_title(f"{name}\n{self._where(each.worst)} p = {each.p_overall:.3f}", fontsize=8)
            axis.set_yticks([])
        return figure

    _repr_html_ = shown_as_html

    def __str__(self) -> str:
        """A line for each statistic, and those that are surprising."""
        number = len(next(iter(self.comparisons.values())).replicated)
        title = (
            f"{self.group.capitalize()} predictive check: {number} replicates of {self.num_transitions} transitions, "
            "visits held fixed; of pairs the most surprising one, its p-value allowing for their number"
        )
        verdict = "The data are not what this model would yield."
        return describe_comparisons(title, self.comparisons, self._where, verdict, NEXT_STEPS, 23)

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

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 1)
        >>> data = bm.Transitions([0] * 20, [0] * 20, [0.0, 1.0] * 10, [0] * 20)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> print(bm.predictive_check(posterior, data, num_draws=100))
        Posterior predictive check: 100 replicates of 20 transitions, visits held fixed; ...
    """
    check_functions("statistics", statistics)
    key_draws, key_replicates = jax.random.split(key_or_first(key))
    draws, rows = predictive.draws_and_rows(key_draws, posterior, data, num_draws, group)
    made = predictive.replicate_rows(host_generator(key_replicates), draws, rows)
    transitions = data.transitions if isinstance(data, Log) else data
    assert isinstance(transitions, Transitions)  # there are rows
    missing = np.isnan(rows.reward)
    previous = previous_states(transitions)
    if statistics is None:
        statistics = {**TRANSITIONS, **(REWARDS if draws.rewards.law is not None and not missing.all() else {})}

    def sample(n: int, outcome: np.ndarray, reward: np.ndarray) -> Sample:
        reward = np.where(missing, np.nan, reward).astype(float)
        return Sample(posterior.space, rows.cell, outcome, reward, previous, draws.transition_probs[n])

    again = made.get("observed_reward", np.broadcast_to(rows.reward, (len(draws.transition_probs), missing.size)))
    numbers = range(len(draws.transition_probs))
    replicates = [sample(n, made["observed_next_state"][n], again[n]) for n in numbers]
    observed = [sample(n, rows.outcome, rows.reward) for n in numbers]
    found = {}
    for name, function in statistics.items():
        seen, drawn = (stack_statistic(name, [function(x) for x in samples]) for samples in (observed, replicates))
        found[name] = compare_statistic(seen, drawn, draws.run.markov_chains)
    return PredictiveCheck(found, group, missing.size, posterior.space)
