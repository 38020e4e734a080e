"""What more data are worth: value of information about policies, strategies and single parameters.

Start with `evpi` (no study can be worth more), then `evppi` (of some parameters or rows) and `evsi` (of a `Study` of a
given size); `next_experiment` ranks what could be tried next. All are in the units of the objective.
"""

from bayes_mdp.decisions.information.gain_over_plan import PolicyStudy
from bayes_mdp.decisions.information.next_experiment import next_experiment
from bayes_mdp.decisions.information.site_information import (
    Study,
    StudyEconomics,
    discounted_population,
    evpi,
    evppi,
    evsi,
    net_benefit_of_sampling,
)
from bayes_mdp.decisions.perfect_information import expected_regret, probability_optimal, value_of_covariates

__all__ = [
    "PolicyStudy",
    "Study",
    "StudyEconomics",
    "discounted_population",
    "evpi",
    "evppi",
    "evsi",
    "expected_regret",
    "net_benefit_of_sampling",
    "next_experiment",
    "probability_optimal",
    "value_of_covariates",
]
