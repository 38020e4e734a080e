"""Decision models of health economics: strategies with costs and effects, cohorts, cost-effectiveness.

Start with `decision_model` (strategies as a NumPyro program) or `StrategyDraws` (draws of another tool), then
`cost_effectiveness` and `acceptability`; `cohort_trace` and `cohort_total` follow a cohort through a Markov model. What
further research is worth: `bm.information`.
"""

from bayes_mdp.decisions.strategies.cohort import cohort_total, cohort_trace, cycle_weights, trace_dataset
from bayes_mdp.decisions.strategies.cost_effectiveness import StrategyDraws, acceptability, cost_effectiveness
from bayes_mdp.decisions.strategies.decision_model import decision_model

__all__ = [
    "StrategyDraws",
    "acceptability",
    "cohort_total",
    "cohort_trace",
    "cost_effectiveness",
    "cycle_weights",
    "decision_model",
    "trace_dataset",
]
