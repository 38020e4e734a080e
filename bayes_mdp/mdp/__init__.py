"""Nouns: hypotheses, spaces, objectives, data, environments, and the protocols between packages. No algorithms.

Start with the file `bayes_mdp.mdp.protocols`, which says what a posterior, a policy, an agent and a reward law are. A
log is a `Log` of `Transitions`; an environment of your own is an `Environment`, a `SimulatedEnvironment` (too many
states to list) or an `ObservedEnvironment` (observations in place of states).
"""

from typing import TYPE_CHECKING

from bayes_mdp.mdp.agent import Problem, ReplanContext, ReplanLike
from bayes_mdp.mdp.data.folded_log import FoldedLog
from bayes_mdp.mdp.data.log_split import split_log
from bayes_mdp.mdp.data.transitions import Counts, Log, Transitions
from bayes_mdp.mdp.environment import (
    Environment,
    NormalReward,
    ObservedEnvironment,
    Picture,
    SimulatedEnvironment,
    TimeStep,
)
from bayes_mdp.mdp.hypothesis import MDP, SparseMDP, restart_at_ends, unroll
from bayes_mdp.mdp.objectives import AverageReward, Discounted, Episodic, FirstExit, Objective
from bayes_mdp.mdp.protocols import (
    Agent,
    CanCount,
    CanMean,
    CanSample,
    CanUpdate,
    HasVariances,
    KeepsAccount,
    Learner,
    PlansFromState,
    Policy,
    PolicyLike,
    PolicyOrLabels,
    Posterior,
    RewardLaw,
)
from bayes_mdp.mdp.space import StateActionSpace
from bayes_mdp.renamed import with_old_names

__all__ = [
    "MDP",
    "Agent",
    "AverageReward",
    "CanCount",
    "CanMean",
    "CanSample",
    "CanUpdate",
    "Counts",
    "Discounted",
    "Environment",
    "Episodic",
    "FirstExit",
    "FoldedLog",
    "HasVariances",
    "KeepsAccount",
    "Learner",
    "Log",
    "NormalReward",
    "Objective",
    "ObservedEnvironment",
    "Picture",
    "PlansFromState",
    "Policy",
    "PolicyLike",
    "PolicyOrLabels",
    "Posterior",
    "Problem",
    "ReplanContext",
    "ReplanLike",
    "RewardLaw",
    "SimulatedEnvironment",
    "SparseMDP",
    "StateActionSpace",
    "TimeStep",
    "Transitions",
    "restart_at_ends",
    "split_log",
    "unroll",
]

if not TYPE_CHECKING:  # a type checker takes no name of 0.2
    __getattr__ = with_old_names(__name__)
