"""Training of deep agents: the compiled loop, the host-stepped one, evaluation, checkpoints, curves."""

from bayes_mdp.experiments.deep.loading import evaluate_agent, load_training
from bayes_mdp.experiments.deep.options import Evaluation, TrainOptions
from bayes_mdp.experiments.deep.plots import plot_training, plot_visits
from bayes_mdp.experiments.deep.train import Training, train

__all__ = [
    "Evaluation",
    "TrainOptions",
    "Training",
    "evaluate_agent",
    "load_training",
    "plot_training",
    "plot_visits",
    "train",
]
