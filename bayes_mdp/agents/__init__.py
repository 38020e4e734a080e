"""Exploration agents: a belief goes in, a policy comes out. A file is an algorithm of a paper, or a family of them.

Start with `PSRL` (a belief, and no constant to tune) or `EpsilonGreedyQ` (no belief). `AGENTS` has all by name. When
an agent plans is its `replan`: a number of steps, "episode", "doubling", a function, or a rule such as `Geometric`.
"""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
