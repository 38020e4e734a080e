"""Experiments: run agents in environments, keep and draw what came out."""

from bayes_mdp.experiments.case import RunOptions
from bayes_mdp.experiments.run import run

__all__ = ["RunOptions", "run"]
