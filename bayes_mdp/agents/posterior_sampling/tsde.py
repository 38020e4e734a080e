"""TSDE: posterior sampling for the average reward, with dynamic episodes.

Ouyang, Gagrani, Nayyar and Jain, *Learning Unknown Markov Decision Processes: A Thompson Sampling Approach*, NIPS 2017
[TSDE17].
"""

import equinox as eqx
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents.common.replan import DynamicEpisodes, ReplanRule, as_rule
from bayes_mdp.agents.posterior_sampling.psrl import PSRL
from bayes_mdp.mdp import AverageReward, Problem
from bayes_mdp.planning.solution import Solution


class TSDE(PSRL):
    """`PSRL` for `AverageReward`, with a new draw by the rule of [TSDE17] (`DynamicEpisodes`).

    A draw is followed by a policy that is optimal for the average reward in it. The episodes are those of the agent: a
    draw is kept for at most one step more than the one before, and until the visits of a pair have more than doubled.

    Args:
        replan: when to draw anew; the default is the rule of the paper. Others as in `PSRL`.
    """

    replan: ReplanRule | None = eqx.field(default=DynamicEpisodes(), converter=as_rule)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start.

        Raises:
            ValueError: an objective other than `AverageReward`, or a space with ends.
        """
        objective = problem.objective
        if not isinstance(objective, AverageReward):
            raise ValueError(f"objective is {type(objective).__name__}, expected AverageReward for TSDE")
        if problem.space.ends:
            raise ValueError(
                "space.ends is True, expected False for TSDE: the average reward is one of a run without end"
            )
        return super().init(key, problem)
