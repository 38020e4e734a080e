"""From a log to a recommendation: a policy is chosen and judged, and checks run before it is believed.

Start with `decide`; `DecideOptions` has what seldom changes. `decide_by_subgroup` has a verdict for each subgroup,
`write_report` makes a page of either.
"""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
