"""Calibration of posteriors, and their export to ArviZ.

`check` and `sbc` sample MDPs from a prior, simulate data, infer, and compare with the truth; `predictive_check`,
`loo_pit`, `prior_sensitivity` and `diagnose` examine one posterior and its data; `to_arviz` and `dataset` export it.
"""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
