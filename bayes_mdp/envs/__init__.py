"""Environments of the papers as arrays, Gymnasium's tables in and out, logs in (CSV, Parquet, DataFrame).

Start with `riverswim`, `deep_sea` or `chain` for a problem to explore, with `from_gymnasium` for one of Gymnasium,
and with `read_log` for data. `ENVS`, `SIMULATED` and `OBSERVED` have all environments by name.
"""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
