"""Experiments: run agents in environments, keep and draw what came out."""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used. No file here has the name of what is listed: Python would bind the
# module in its place.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
