"""Optimal plans of the posterior-mean MDP: with dithering (`EpsilonGreedyMean`), or for rewards with information added.

The first is undirected exploration, the epsilon-greedy agent of TabulaRL. `InformationGain` plans to be surprised: the
expected information about the transition rows is a reward, maximised by planning. Sun, Gomez and Schmidhuber, *Planning
to be surprised: optimal Bayesian exploration in dynamic environments*, AGI 2011 [INFO11] (the expected information of a
plan, by value iteration in the mean MDP); Houthooft et al., *VIME: variational information maximizing exploration*,
NeurIPS 2016 [VIME16] (reward + eta * information); Hao and Lattimore, *Regret Bounds for Information-Directed
Reinforcement Learning*, NeurIPS 2022 [IDS22] (the same plan).

The information of one transition is exact (`CanInform`). That of a plan is the sum over its transitions: by the chain
rule exact where rows are independent and none is visited twice (always so where every step has its own rows), too large
where a row is visited again, because the belief is not updated inside the plan. Information about rewards is not
counted: where all rows are known (a bandit, say) the agent is greedy.
"""

from functools import partial
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.common.mean_model import blank_plan, plan_for_rewards
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import EpsilonGreedy, Greedy
from bayes_mdp.mdp import CanMean, Problem
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.agent import ReplanLike
from bayes_mdp.mdp.protocols import CanInform
from bayes_mdp.planning.solution import Solution, no_plan
from bayes_mdp.utils.validation import check_bool, check_fraction, check_not_negative


class EpsilonGreedyMean(eqx.Module):
    """Epsilon-greedy for the optimal plan of the posterior-mean MDP, under any objective.

    Args:
        epsilon: in [0, 1].
        replan: as in `PSRL`.

    Raises:
        ValueError: `epsilon` lies outside [0, 1].
        TypeError: no number, no rule of replanning.
    """

    epsilon: float | Array = 0.1
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_fraction("epsilon", self.epsilon)

    def check_belief(self, belief: object) -> None:
        """Refuse a belief without a mean.

        Raises:
            TypeError: no mean.
        """
        require_ability(belief, CanMean, "EpsilonGreedyMean")

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes)."""
        del key
        return no_plan(problem)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CanMean
    ) -> tuple[EpsilonGreedy, Solution | None]:
        """Epsilon-greedy for the plan. No random number is used.

        Raises:
            TypeError: `belief` has no mean. ValueError: as `planning.solve`.
        """
        del key
        self.check_belief(belief)
        # The mean rewards as they are: all exploration is in the policy.
        q, _, state = plan_for_rewards(belief, problem, lambda reward: reward, state, "EpsilonGreedyMean")
        return EpsilonGreedy(q, self.epsilon, problem.space.legal), state


@runtime_checkable
class InformedBelief(CanMean, CanInform, Protocol):
    """A posterior with a mean MDP and the expected information of a transition."""


class InformationGain(eqx.Module):
    """Greedy for the optimal plan of the mean MDP with rewards: mean reward + scale * expected information [INFO11].

    Where rewards are known it is regularised information-directed sampling [IDS22], number for number: with Dirichlet
    rows of concentrations c, total c0, mean p, the information of a pair, E_theta KL(P_theta || Pbar), is
    sum_j p_j (psi(c_j + 1) - psi(c0 + 1) - log p_j). That paper has rows of their own for every step of an episode.
    Where steps share rows, the values of the mean MDP are not E[V], and information is counted anew at every visit
    inside an episode, so it is overestimated.

    Args:
        scale: units of the reward per nat, zero or greater (a leaf of the pytree: parameter sweeps can vmap over it).
        rewards: False: exploration only, the information alone is planned for.
        replan: as in `PSRL`.

    Raises:
        ValueError, TypeError: `scale` is negative or not finite; `rewards` is no bool.
    """

    scale: float | Array = 1.0
    rewards: bool = eqx.field(default=True, static=True, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_not_negative("scale", self.scale)
        check_bool("rewards", self.rewards)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes).

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        return blank_plan(problem, "InformationGain")

    def check_belief(self, belief: object) -> None:
        """Refuse a belief without a mean or without `expected_information`.

        Raises:
            TypeError: an ability is missing.
        """
        require_ability(belief, CanMean, "InformationGain")
        require_ability(belief, CanInform, "InformationGain", instead="CountBonus")

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: InformedBelief
    ) -> tuple[Greedy, Solution | None]:
        """Greedy for the plan; its q is reward and information together. No random number is used.

        Raises:
            TypeError: as `check_belief`.
        """
        del key
        self.check_belief(belief)
        rewards = partial(self._add_information, belief=belief)
        q, best, state = plan_for_rewards(belief, problem, rewards, state, "InformationGain")
        return Greedy(q, problem.space.legal, best=best), state

    def _add_information(self, reward: Float[Array, "*H S A"], belief: InformedBelief) -> Float[Array, "*H S A"]:
        # Nats times units of reward per nat: from here on information is a reward like any other.
        information = (jnp.asarray(self.scale) * belief.expected_information()).astype(reward.dtype)
        return reward + information if self.rewards else information


def RegularisedIDS(scale: float | Array = 1.0, *, replan: ReplanLike | None = None) -> InformationGain:
    """argmax over policies of E[V] + scale * information, by dynamic programming in the mean MDP [IDS22].

    The reward of a pair is its mean reward + scale * E_theta KL(P_theta || Pbar). With Dirichlet rows of concentrations
    c, total c0, mean p: sum_j p_j (psi(c_j + 1) - psi(c0 + 1) - log p_j). That is the expected information of one
    transition about its row, so this is `InformationGain(scale)` under the name of the paper, number for number. The
    paper's problem is episodes in which every step has its own rows, independent under the posterior, and rewards
    are known: there the values of the mean MDP are E[V], and the sum over an episode is the information that it
    gives. Beyond it:

    * Rows that steps share: the values of the mean MDP are not E[V], and information is counted anew at every visit
      inside an episode, so it is overestimated.
    * Unknown rewards: their posterior mean is planned for. What a transition tells about its mean reward is not in the
      information: the bonus is that of the row alone, and zero where the row is known.

    Args:
        scale: lambda, units of the reward per nat, zero or greater (a leaf of the pytree: parameter sweeps can vmap
            over it). That of the theory depends on the number of episodes; 1 is our choice.
        replan: as in `PSRL`.

    Raises:
        ValueError: `scale` is negative or not finite.
    """
    return InformationGain(scale, replan=as_rule(replan))
