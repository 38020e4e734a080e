"""Calibration of posteriors, and their export to ArviZ.

`check` and `sbc` sample MDPs from a prior, simulate data, infer, and compare with the truth; `predictive_check`,
`loo_pit`, `prior_sensitivity` and `diagnose` examine one posterior and its data; `to_arviz` and `dataset` export it.
"""

from bayes_mdp.calibration.check_plots import plot_check
from bayes_mdp.calibration.check_result import Check, load_check
from bayes_mdp.calibration.checking import check
from bayes_mdp.calibration.diagnostics import Diagnosis, Loo, diagnose, load_draws, predictive_loo, save_draws, summary
from bayes_mdp.calibration.export import dataset, to_arviz
from bayes_mdp.calibration.pit import LooPit, loo_pit
from bayes_mdp.calibration.ppc import PredictiveCheck, predictive_check
from bayes_mdp.calibration.prior_sbc import sbc
from bayes_mdp.calibration.sbc_result import SBC
from bayes_mdp.calibration.sensitivity import PriorSensitivity, prior_sensitivity

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
