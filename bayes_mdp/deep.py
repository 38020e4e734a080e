"""Training of deep agents (`bm.agents.neural`): the compiled loop, the loop around a host's environment, evaluation.

Start with `train`; `TrainOptions` says how long and how often to evaluate and to save, `load_training` reads a stored
training, `evaluate_agent` plays without learning, `host_env` takes Gymnasium's environments. Curves: `bm.plots`.
"""

from bayes_mdp.experiments.training.train import evaluate_agent, load_training, train
from bayes_mdp.experiments.training.training_loop import Evaluation, TrainOptions
from bayes_mdp.experiments.training.vector_env import host_env

__all__ = [
    "Evaluation",
    "TrainOptions",
    "evaluate_agent",
    "host_env",
    "load_training",
    "train",
]
