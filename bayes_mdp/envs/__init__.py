"""Environments of the papers as arrays, Gymnasium's transition tables in, logs in (CSV, Parquet, DataFrame)."""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
