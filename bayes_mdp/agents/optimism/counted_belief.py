"""The abilities that optimism by counts needs of a posterior."""

from typing import Protocol, runtime_checkable

from bayes_mdp.mdp import CanCount, CanMean


@runtime_checkable
class CountedBelief(CanMean, CanCount, Protocol):
    """A posterior with a mean MDP and with the visits of every pair."""
