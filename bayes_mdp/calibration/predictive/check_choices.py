"""Predictive checks of a model of behaviour: would persons with these parameters choose as they did? Host-side."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.behaviour import BehaviourPosterior, ChoiceLog, Task, predict_freely
from bayes_mdp.behaviour.simulate_choices import one_step_fit
from bayes_mdp.calibration.predictive.choice_statistics import (
    CHOICE_STATISTICS,
    LIKELIHOOD,
    NEXT_STEPS,
    ChoiceStatistic,
)
from bayes_mdp.calibration.predictive.comparisons import (
    Comparison,
    compare_statistic,
    comparison_table,
    describe_comparisons,
    stack_statistic,
    surprises,
)
from bayes_mdp.mdp import Environment
from bayes_mdp.utils.html_text import shown_as_html
from bayes_mdp.utils.validation import check_count, check_functions, check_key, check_type


class ChoiceCheck(NamedTuple):
    """Result of `check_choices`; print it.

    Args:
        comparisons: by name of the statistic.
        num_draws: replicates.
        log: the data.
        free: whether replicates ran freely.
    """

    comparisons: dict[str, Comparison]
    num_draws: int
    log: ChoiceLog
    free: bool

    @property
    def surprises(self) -> list[str]:
        """Names of the statistics with a two-sided p-value below 1 %."""
        return surprises(self.comparisons)

    def table(self) -> xr.Dataset:
        """Per statistic, along `quantity`: observed, mean and sd of the replicates, p."""
        return comparison_table(self.comparisons)

    _repr_html_ = shown_as_html

    def __str__(self) -> str:
        """A line for each statistic, and those that are surprising."""
        how = "running freely" if self.free else "one step ahead, the past as observed"
        title = f"Predictive check: {self.num_draws} replicates of {self.log.num_choices} choices, {how}"
        where = lambda index: f" at {index}" if index else ""  # noqa: E731
        verdict = "These choices are not what this model would make."
        return describe_comparisons(title, self.comparisons, where, verdict, NEXT_STEPS, 16)


def check_choices(
    key: PRNGKeyArray,
    posterior: BehaviourPosterior,
    *,
    environment: Environment | Task | None = None,
    horizon: int | None = None,
    statistics: Mapping[str, ChoiceStatistic] | None = None,
    num_draws: int = 200,
) -> ChoiceCheck:
    """Compare statistics of the choices with those of choices that the fitted model makes.

    The p-value of a statistic is that of `bayes_mdp.predictive_check`: the share of draws whose replicate exceeds the
    data, two-sided for a number, by the largest standardised deviation for an array; below 1 % it is surprising. That
    bounds how often a true model is flagged only for replicates that are exchangeable with the data. One step ahead
    they are not: they share the past of the data, which holds its luck. Of 400 simulated groups of the two-step task
    (6 persons, 80 choices) with the true parameters known, `log_likelihood`, `stay`, `stay_spread`, `action_share`
    fell below 1 % in 2, 3, 4 and 4 %, one of the four in 12 %; of 64 with fitted parameters, which have seen the data,
    in 0, 0, 2 and 1 (counted by shares of the replicates alone; here the data count among them). One surprise among
    four is weak evidence. A model can pass and predict badly: the check asks whether choices look right, LOO compares
    how well models predict.

    Args:
        key: a typed key.
        posterior: as `bayes_mdp.behaviour.fit` returns it.
        environment, horizon: as for `simulate`; replicates then run freely in it. None: they are one step ahead.
        statistics: name -> function of a log and of actions [P T]. None: `stay` (repeats of the last action in a state,
            by what followed and by common or rare transition), `stay_spread` (between persons), `action_share` (by
            block of time and state), and, one step ahead, `log_likelihood`.
        num_draws: replicates.

    Raises:
        ValueError, TypeError: an argument of another type; a statistic whose shape is not fixed.
    """
    check_key("key", key)
    check_type("posterior", posterior, BehaviourPosterior, "what bayes_mdp.behaviour.fit returns")
    check_functions("statistics", statistics)
    check_count("num_draws", num_draws)
    log, chains = posterior.log, 1
    found: dict[str, Comparison] = {}
    key, key_free = jax.random.split(key)
    if environment is None:
        drawn, of_data, of_drawn = one_step_fit(key, posterior, num_draws)
        replicates = [(log, actions) for actions in drawn]
        if statistics is None:
            found[LIKELIHOOD] = compare_statistic(of_data.astype(float), of_drawn.astype(float), chains)
    else:
        runs = predict_freely(key_free, posterior, environment, num_draws=num_draws, horizon=horizon)
        replicates = [(run, np.asarray(run.action)) for run in runs]
    for name, function in (CHOICE_STATISTICS if statistics is None else statistics).items():
        # The data first: their statistic has the shape of the replicates'.
        both = stack_statistic(name, [function(*x) for x in ((log, np.asarray(log.action)), *replicates)])
        found[name] = compare_statistic(np.broadcast_to(both[0], both[1:].shape), both[1:], chains)
    return ChoiceCheck(found, len(replicates), log, environment is not None)
