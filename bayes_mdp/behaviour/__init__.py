"""Behaviour as data: which learner, with which parameters, made these choices?

A `BehaviourModel` (a learner of the library, a planner, the two-step task's hybrid, or one of your own) is filtered
through every person's history (`log_likelihood`); `fit` infers its parameters over persons, `simulate` makes persons,
`check_choices` compares them with those that were seen.
"""

import lazy_loader

# Listed in __init__.pyi, loaded when first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
