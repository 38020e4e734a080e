"""Names of 0.2 that stand elsewhere in 0.3. Each works until 0.4 and warns (docs: "From 0.2 to 0.3")."""

import warnings
from importlib import import_module

RENAMED = {
    "acceptability": "strategies.acceptability",
    "anchored_values": "decisions.anchored_values",
    "bayes_factors": "inference.bayes_factors",
    "bayes_optimal": "decisions.bayes_optimal",
    "BayesAdaptivePlan": "decisions.BayesAdaptivePlan",
    "BayesOptimal": "decisions.BayesOptimal",
    "cohort_total": "strategies.cohort_total",
    "cohort_trace": "strategies.cohort_trace",
    "cost_effectiveness": "strategies.cost_effectiveness",
    "cycle_weights": "strategies.cycle_weights",
    "dataset": "calibration.dataset",
    "decision_model": "strategies.decision_model",
    "default_prior": "models.default_prior",
    "describe_compare": "experiments.describe_compare",
    "diagnose": "calibration.diagnose",
    "evaluate_agent": "deep.evaluate_agent",
    "Evaluation": "deep.Evaluation",
    "evpi": "information.evpi",
    "evppi": "information.evppi",
    "evsi": "information.evsi",
    "expected_value_of_perfect_information": "information.expected_regret",
    "fold_log": "envs.fold_log",
    "FoldedLog": "mdp.FoldedLog",
    "from_gymnasium": "envs.from_gymnasium",
    "Laplace": "inference.Laplace",
    "load_result": "load",
    "load_sweep": "load",
    "load_training": "deep.load_training",
    "loo_pit": "calibration.loo_pit",
    "merge": "inference.merge",
    "net_benefit_of_sampling": "information.net_benefit_of_sampling",
    "next_experiment": "information.next_experiment",
    "NextExperiment": "information.NextExperiment",
    "NUTS": "inference.NUTS",
    "Outcome": "decisions.Outcome",
    "plan_bayes_adaptive": "decisions.plan_bayes_adaptive",
    "plot_acceptability": "plots.plot_acceptability",
    "plot_check": "plots.plot_check",
    "plot_cohort": "plots.plot_cohort",
    "plot_compare": "plots.plot_compare",
    "plot_cost_effectiveness": "plots.plot_cost_effectiveness",
    "plot_env": "plots.plot_env",
    "plot_expected_loss": "plots.plot_expected_loss",
    "plot_policies": "plots.plot_policies",
    "plot_posterior": "plots.plot_posterior",
    "plot_regret": "plots.plot_regret",
    "plot_training": "plots.plot_training",
    "plot_trajectory": "plots.plot_trajectory",
    "plot_values": "plots.plot_values",
    "plot_visits": "plots.plot_visits",
    "PolicyStudy": "information.PolicyStudy",
    "Posterior": "mdp.Posterior",
    "predictive_check": "calibration.predictive_check",
    "prior_sensitivity": "calibration.prior_sensitivity",
    "probability_optimal": "information.probability_optimal",
    "RunOptions": "experiments.RunOptions",
    "sbc": "calibration.sbc",
    "show_versions": "experiments.show_versions",
    "SoftSolution": "planning.SoftSolution",
    "solve_soft": "planning.solve_soft",
    "split_log": "mdp.split_log",
    "split_return_variance": "decisions.split_return_variance",
    "Study": "information.Study",
    "SVI": "inference.SVI",
    "sweep": "sweeps.sweep",
    "sweep_status": "sweeps.sweep_status",
    "to_gymnasium": "envs.to_gymnasium",
    "train": "deep.train",
    "Training": "deep.Training",
    "TrainOptions": "deep.TrainOptions",
    "unroll": "mdp.unroll",
}
"""Name in `bayes_mdp` of 0.2 -> its place below `bayes_mdp` now."""


def old_name(name: str) -> object:
    """What `bayes_mdp.NAME` was in 0.2, with a warning that says where it stands now.

    Raises:
        AttributeError: no such name then either.
    """
    if name not in RENAMED:
        raise AttributeError(f"module 'bayes_mdp' has no attribute {name!r}")
    module, _, attribute = f"bayes_mdp.{RENAMED[name]}".rpartition(".")
    message = f"bm.{name} is bm.{RENAMED[name]} since 0.3; the old name goes in 0.4"
    warnings.warn(message, FutureWarning, stacklevel=3)
    return getattr(import_module(module), attribute)
