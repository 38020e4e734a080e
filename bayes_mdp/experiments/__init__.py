"""Experiments: run agents in environments, keep and draw what came out."""

from bayes_mdp.experiments.actor.actor import Actor
from bayes_mdp.experiments.bayes_values import bayes_values, describe_bayes_values
from bayes_mdp.experiments.comparison.compare import compare, comparison_agents
from bayes_mdp.experiments.comparison.compare_problems import Task
from bayes_mdp.experiments.comparison.compare_report import describe_compare, plot_compare
from bayes_mdp.experiments.comparison.leaderboard import interquartile_mean, leaderboard
from bayes_mdp.experiments.plots.behaviour_plots import plot_learning_curve, plot_shrinkage
from bayes_mdp.experiments.plots.decision_plots import (
    plot_acceptability,
    plot_cohort,
    plot_cost_effectiveness,
    plot_expected_loss,
    plot_policies,
)
from bayes_mdp.experiments.plots.plot_environment import plot_env, plot_trajectory
from bayes_mdp.experiments.plots.result_plots import plot_posterior, plot_regret, plot_values
from bayes_mdp.experiments.results import load_result, save_result
from bayes_mdp.experiments.run import run
from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.experiments.show_versions import show_versions
from bayes_mdp.experiments.sweeps.sweep import sweep
from bayes_mdp.experiments.sweeps.sweep_results import load_sweep, sweep_status

__all__ = [
    "Actor",
    "RunOptions",
    "Task",
    "bayes_values",
    "compare",
    "comparison_agents",
    "describe_bayes_values",
    "describe_compare",
    "interquartile_mean",
    "leaderboard",
    "load_result",
    "load_sweep",
    "plot_acceptability",
    "plot_cohort",
    "plot_compare",
    "plot_cost_effectiveness",
    "plot_env",
    "plot_expected_loss",
    "plot_learning_curve",
    "plot_policies",
    "plot_posterior",
    "plot_regret",
    "plot_shrinkage",
    "plot_trajectory",
    "plot_values",
    "run",
    "save_result",
    "show_versions",
    "sweep",
    "sweep_status",
]
