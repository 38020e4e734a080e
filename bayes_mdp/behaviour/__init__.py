"""Behaviour as data: which learner, with which parameters, made these choices?

Start with `read_choices` (a table of choices), then `ready_model` (a model by its name) and `fit` (its parameters, of
all persons). A model of your own is a `BehaviourModel`: a learner of the library (`LearnerChoices`), a planner
(`PlannerChoices`), the two-step task's hybrid (`TwoStep`), or a class with four members. `simulate` makes persons;
`bm.calibration.check_choices` compares them with those that were seen.
"""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
