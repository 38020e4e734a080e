"""Experiments: run agents in environments, keep and draw what came out."""

from bayes_mdp.experiments.case import RunOptions
from bayes_mdp.experiments.levels import learning_levels
from bayes_mdp.experiments.plots import plot_posterior, plot_regret, plot_values
from bayes_mdp.experiments.results import load_result, save_result
from bayes_mdp.experiments.run import run

__all__ = [
    "RunOptions",
    "learning_levels",
    "load_result",
    "plot_posterior",
    "plot_regret",
    "plot_values",
    "run",
    "save_result",
]
