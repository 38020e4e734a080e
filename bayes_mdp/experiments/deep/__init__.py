"""Training of deep agents: the compiled loop, the host-stepped one, evaluation, checkpoints, curves."""

from bayes_mdp.experiments.deep.loading import evaluate_agent, load_training
from bayes_mdp.experiments.deep.options import Evaluation, TrainOptions
from bayes_mdp.experiments.deep.train import Training, train
from bayes_mdp.experiments.deep.vector_env import HostEnv, host_env
from bayes_mdp.experiments.plots import plot_training, plot_visits

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
