"""Which learner predicts the choices best: ArviZ's leave-one-out comparison of several fits."""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np

from bayes_mdp.behaviour import BehaviourPosterior
from bayes_mdp.calibration.arviz.behaviour_export import behaviour_groups
from bayes_mdp.calibration.arviz.generation import arviz, as_tree
from bayes_mdp.utils.validation import check_name, check_type

if TYPE_CHECKING:
    import pandas as pd


def compare_behaviour(
    posteriors: Mapping[str, BehaviourPosterior], *, unit: str = "choice", num_draws: int = 1000
) -> "pd.DataFrame":
    """`az.compare` of fits to one log by Pareto-smoothed importance sampling: the best model in the first row.

    Args:
        posteriors: name -> what `behaviour.fit` returned; at least two.
        unit: what is left out. "choice": one choice, given the person's past (the terms are those of one-step
            predictions; later choices that learnt from it are not predicted anew). "subject": a person, parameters
            integrated out under the group: how well somebody new is predicted.
        num_draws: of each posterior, thinned evenly.

    Returns:
        The table of ArviZ; a warning column is true where its approximation fails (a Pareto k above .7).

    Raises:
        ValueError, TypeError: fewer than two, fits to different choices, another unit.
    """
    check_name("unit", unit, ("choice", "subject"))
    check_type("posteriors", posteriors, Mapping, "fits by name")
    if len(posteriors) < 2:
        raise ValueError(f"posteriors holds {len(posteriors)}, expected at least two by their names")
    first = next(iter(posteriors.values()))
    for name, posterior in posteriors.items():
        check_type(f"posteriors[{name!r}]", posterior, BehaviourPosterior, "what bayes_mdp.behaviour.fit returns")
        same = all(
            np.array_equal(np.asarray(getattr(first.log, field)), np.asarray(getattr(posterior.log, field)))
            for field in ("action", "observed", "state")
        )
        if not same:
            raise ValueError(f"posteriors[{name!r}] was fitted to another log, expected one log for all")
    trees = {}
    for name, posterior in posteriors.items():
        needed, key = ("posterior", "log_likelihood"), jax.random.key(0)
        trees[name] = as_tree(
            behaviour_groups(posterior, num_draws=num_draws, key=key, log_likelihood=unit, wanted=needed)
        )
    with warnings.catch_warnings():
        # The table has a column for it; and what ArviZ asks of pandas is not the user's business.
        warnings.filterwarnings("ignore", "Estimated shape parameter", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        return arviz().compare(trees)
