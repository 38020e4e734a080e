"""Training of deep agents: the compiled loop, the host-stepped one, evaluation, checkpoints, curves."""

from bayes_mdp.experiments.plots.result_plots import plot_training, plot_visits
from bayes_mdp.experiments.training.train import Training, evaluate_agent, load_training, train
from bayes_mdp.experiments.training.training_loop import Evaluation, TrainOptions
from bayes_mdp.experiments.training.vector_env import HostEnv, host_env

__all__ = [
    "Evaluation",
    "HostEnv",
    "TrainOptions",
    "Training",
    "evaluate_agent",
    "host_env",
    "load_training",
    "plot_training",
    "plot_visits",
    "train",
]
