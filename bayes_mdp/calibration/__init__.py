"""A posterior for ArviZ: groups with the names of the space, as one tree (`to_arviz`) or one by one (`dataset`)."""

from bayes_mdp.calibration.diagnostics import Loo, predictive_loo, save_draws, summary
from bayes_mdp.calibration.export import dataset, to_arviz

__all__ = ["Loo", "dataset", "predictive_loo", "save_draws", "summary", "to_arviz"]
