"""Pictures, each of one result, drawn into given axes or new ones (matplotlib).

Start with `plot_posterior` (a belief), `plot_policies` (`compare_policies`), `plot_check` (`check`), `plot_regret`
(`run`) and `plot_compare` (`compare`).
"""

from bayes_mdp.calibration.checks.check_result import plot_check
from bayes_mdp.experiments.plots.decision_plots import (
    plot_acceptability,
    plot_cohort,
    plot_cost_effectiveness,
    plot_expected_loss,
    plot_learning_curve,
    plot_pareto,
    plot_policies,
    plot_shrinkage,
)
from bayes_mdp.experiments.plots.plot_environment import plot_env, plot_trajectory
from bayes_mdp.experiments.plots.result_plots import (
    plot_posterior,
    plot_regret,
    plot_training,
    plot_values,
    plot_visits,
)
from bayes_mdp.experiments.ranking import plot_compare

__all__ = [
    "plot_acceptability",
    "plot_check",
    "plot_cohort",
    "plot_compare",
    "plot_cost_effectiveness",
    "plot_env",
    "plot_expected_loss",
    "plot_learning_curve",
    "plot_pareto",
    "plot_policies",
    "plot_posterior",
    "plot_regret",
    "plot_shrinkage",
    "plot_training",
    "plot_trajectory",
    "plot_values",
    "plot_visits",
]
