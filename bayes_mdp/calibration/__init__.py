"""Calibration of posteriors, and their export to ArviZ.

`check` and `sbc` sample MDPs from a prior, simulate data, infer, and compare with the truth; `predictive_check`,
`loo_pit`, `prior_sensitivity` and `diagnose` examine one posterior and its data; `to_arviz` and `dataset` export it.
"""

from bayes_mdp.calibration.arviz.diagnostics import (
    Diagnosis,
    Loo,
    diagnose,
    load_draws,
    predictive_loo,
    save_draws,
    summary,
)
from bayes_mdp.calibration.arviz.export import dataset, to_arviz
from bayes_mdp.calibration.arviz.sensitivity import PriorSensitivity, prior_sensitivity
from bayes_mdp.calibration.checks.check_plots import plot_check
from bayes_mdp.calibration.checks.check_result import Check, load_check
from bayes_mdp.calibration.checks.checking import check
from bayes_mdp.calibration.predictive.loo_pit import LooPit, loo_pit
from bayes_mdp.calibration.predictive.predictive_check import PredictiveCheck, predictive_check
from bayes_mdp.calibration.simulation_based.prior_sbc import sbc
from bayes_mdp.calibration.simulation_based.sbc_result import SBC

__all__ = [
    "SBC",
    "Check",
    "Diagnosis",
    "Loo",
    "LooPit",
    "PredictiveCheck",
    "PriorSensitivity",
    "check",
    "dataset",
    "diagnose",
    "load_check",
    "load_draws",
    "loo_pit",
    "plot_check",
    "predictive_check",
    "predictive_loo",
    "prior_sensitivity",
    "save_draws",
    "sbc",
    "summary",
    "to_arviz",
]
