"""Experiments: agents in environments, and what came out.

Start with `run` (one agent) and `compare` (several, ranked over problems, which are a `Task` each); their options are
`RunOptions`. `Actor` is an agent in a loop of your own. Grids of runs: `bm.sweeps`; pictures: `bm.plots`.
"""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used. No file here has the name of what is listed: Python would bind the
# module in its place.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
