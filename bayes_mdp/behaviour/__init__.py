"""Behaviour as data: which learner, with which parameters, made these choices?

A `BehaviourModel` (a learner of the library, a planner, the two-step task's hybrid, or one of your own) is filtered
through every person's history (`log_likelihood`); `fit` infers its parameters over persons, `simulate` makes persons,
`check_choices` compares them with those that were seen.
"""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
