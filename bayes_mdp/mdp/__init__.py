"""Nouns: hypotheses, spaces, objectives, data, environments, and the protocols between the rooms. No algorithms."""

from bayes_mdp.mdp.agent import Agent, Learner, Problem, ReplanContext, ReplanLike, ReplanRule
from bayes_mdp.mdp.data import Counts, Log, Transitions, check_transitions
from bayes_mdp.mdp.environment import Environment, NormalReward, RewardLaw
from bayes_mdp.mdp.folded_log import FoldedLog, Source
from bayes_mdp.mdp.hypothesis import MDP, SparseMDP, restart_at_ends, unroll
from bayes_mdp.mdp.objectives import AverageReward, Discounted, Episodic, FirstExit, Objective
from bayes_mdp.mdp.observed import HasCells, ObservedEnvironment, TimeStep
from bayes_mdp.mdp.picture import Picture
from bayes_mdp.mdp.prior_weight import PriorWeight
from bayes_mdp.mdp.protocols import (
    CanBorrow,
    CanCount,
    CanCountPrior,
    CanExpectNext,
    CanInform,
    CanMean,
    CanPredict,
    CanRefit,
    CanSample,
    CanSampleBackup,
    CanSampleNext,
    CanSplit,
    CanThin,
    CanUpdate,
    CanWeighPrior,
    HasVariances,
    NamesSharedParameters,
    Policy,
    PolicyLike,
    Posterior,
)
from bayes_mdp.mdp.simulated import SimulatedEnvironment
from bayes_mdp.mdp.space import StateActionSpace
from bayes_mdp.mdp.validity import Validity

__all__ = [
    "MDP",
    "Agent",
    "AverageReward",
    "CanBorrow",
    "CanCount",
    "CanCountPrior",
    "CanExpectNext",
    "CanInform",
    "CanMean",
    "CanPredict",
    "CanRefit",
    "CanSample",
    "CanSampleBackup",
    "CanSampleNext",
    "CanSplit",
    "CanThin",
    "CanUpdate",
    "CanWeighPrior",
    "Counts",
    "Discounted",
    "Environment",
    "Episodic",
    "FirstExit",
    "FoldedLog",
    "HasCells",
    "HasVariances",
    "Learner",
    "Log",
    "NamesSharedParameters",
    "NormalReward",
    "Objective",
    "ObservedEnvironment",
    "Picture",
    "Policy",
    "PolicyLike",
    "Posterior",
    "PriorWeight",
    "Problem",
    "ReplanContext",
    "ReplanLike",
    "ReplanRule",
    "RewardLaw",
    "SimulatedEnvironment",
    "Source",
    "SparseMDP",
    "StateActionSpace",
    "TimeStep",
    "Transitions",
    "Validity",
    "check_transitions",
    "restart_at_ends",
    "unroll",
]
