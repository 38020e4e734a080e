"""Whether inference is right, and whether the model fits; draws for ArviZ.

Start with `check` (a prior, in numbers that people read) and `criticise` (a fitted model, by what it would make you
choose). `sbc` has rank tests of each unknown of a prior; `predictive_check`, `loo_pit`, `prior_sensitivity` and
`diagnose` examine one posterior and its data; `to_arviz` exports it. The how-to guide "Which check?" has them in
order.
"""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
