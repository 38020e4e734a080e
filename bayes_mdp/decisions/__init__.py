"""Policies under a posterior: values, comparisons, choices, budgets, and what hidden causes could change.

Start with `policy_value` (one policy), `compare_policies` (several) and `choose` (the best by a criterion, such as
`CVaR`, within `PolicyLimits`). `pareto_front` and `budget_plan` are about budgets, `tipping_point` and `value_bounds`
about hidden confounders, `plan_bayes_adaptive` about a decision that the next steps teach about. What more data are
worth: `bm.information`.
"""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
