"""Which groups a posterior has for ArviZ, and why others are left out."""

from typing import NamedTuple

import numpy as np

from bayes_mdp.calibration.belief.closed_form_draws import known_sites
from bayes_mdp.calibration.belief.draws import has_sums
from bayes_mdp.calibration.belief.observed_data import Cells, Data, Rows, observe, why_no_kept_data
from bayes_mdp.calibration.belief.parameter_draws import kept_chains
from bayes_mdp.calibration.belief.posterior_views import (
    NO_PROGRAM,
    FittedPosterior,
    Reference,
    chains_of,
    law_of_one_reward,
    program_of,
    reference,
    why_no_prior,
)
from bayes_mdp.calibration.belief.program_run import site_facts, why_no_log_prior
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior

GROUPS = (
    "posterior",
    "posterior_predictive",
    "log_likelihood",
    "log_prior",
    "prior",
    "prior_predictive",
    "observed_data",
    "constant_data",
    "sample_stats",
)
OF_DATA = ("posterior_predictive", "prior_predictive", "log_likelihood", "observed_data", "constant_data")
UNITS = ("transition", "cell", "none")
NO_DATA = "no transition has been observed"


class Contents(NamedTuple):
    """What there is.

    Args:
        rows: the transitions one by one; None: there are sums alone, or nothing.
        cells: their sums; None: they are not known pair by pair.
        unit: of the log-likelihood, "transition" or "cell"; None: there is none.
        left_out: group (or "deterministics") -> why it is left out.
    """

    rows: Rows | None
    cells: Cells | None
    unit: str | None
    left_out: dict[str, str]


def contents(posterior: FittedPosterior, data: Data, log_likelihood: str | None) -> Contents:
    """What there is for a posterior and the `data` that are at hand. Arguments and errors: as `to_arviz`."""
    if log_likelihood is not None and log_likelihood not in UNITS:
        raise ValueError(f"log_likelihood is {log_likelihood!r}, expected 'transition', 'cell', 'none' or None")
    of = reference(posterior)
    left_out = _of_the_model(posterior)
    rows = cells = None
    without = why_no_kept_data(of) if data is None else None
    if without is None:
        rows, cells = observe(of, data)
        without = None if cells.transition_counts.any() else NO_DATA
    elif log_likelihood in ("transition", "cell"):
        observe(of, data)  # raises why
    else:
        without = f"it needs `data`: {without}"
    if log_likelihood == "transition" and rows is None:
        raise ValueError("data holds no transitions, expected those that the posterior was inferred from")
    if without is not None:
        return Contents(None, None, None, {**left_out, **dict.fromkeys(OF_DATA, without)})
    law = law_of_one_reward(of)
    unit = log_likelihood or ("transition" if rows is not None else "cell")
    if unit == "none":
        unit, left_out["log_likelihood"] = None, "log_likelihood is 'none'"
    elif unit == "cell" and log_likelihood is None and not has_sums(law):
        name = "" if law is None else law.__name__
        unit, left_out["log_likelihood"] = None, f"it needs the transitions as `data`: {name} rewards have no sums"
    return Contents(rows, cells, unit, left_out)


def known_mean(of: Reference) -> np.ndarray | None:
    """Mean rewards [*cells], where they are known; None: they are not."""
    if not isinstance(of, SampledPosterior):
        return None if of.reward_cells.learns else np.asarray(of.reward_cells.mean())
    if of.rewards.law is not None:
        return None
    each = np.asarray(of.rewards.known)
    return None if (each != each[:1]).any() else each[0]


def _of_the_model(posterior: FittedPosterior) -> dict[str, str]:
    """What is left out whatever the data."""
    found: dict[str, str] = {}
    prior, density = why_no_prior(posterior), why_no_log_prior(posterior)
    if prior is not None:
        found |= {"prior": prior, "prior_predictive": prior}
    if density is not None:
        found["log_prior"] = density
    program = program_of(posterior)
    if program is None:
        found["deterministics"] = NO_PROGRAM
    else:
        known, sites = known_sites(posterior), site_facts(program, posterior.space)
        missing = [name for name, site in sites.items() if site.kind == "latent" and name not in known]
        if missing:
            why = f"the values of site {missing[0]!r} are not known in every draw"
            found |= {"deterministics": why, "log_prior": why}
    if kept_chains(posterior) is None:
        ran = chains_of(posterior) is not None
        found["sample_stats"] = "the draws were resampled by weight" if ran else "no chains were run"
    return found
