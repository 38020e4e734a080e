"""Regularised information-directed sampling: the plan of the largest expected value and information together.

Hao and Lattimore, *Regret Bounds for Information-Directed Reinforcement Learning*, NeurIPS 2022 [IDS22].
"""

import equinox as eqx

from bayes_mdp.agents.optimism.information_gain import InformationGain


class RegularisedIDS(InformationGain):
    """argmax over policies of E[V] + scale * information, by dynamic programming in the mean MDP: `InformationGain`.

    From [IDS22]. The reward of a pair is its mean reward + scale * E_theta KL(P_theta || Pbar). With Dirichlet rows
    of concentrations c, total c0, mean p: sum_j p_j (psi(c_j + 1) - psi(c0 + 1) - log p_j). That is the expected
    information of one transition about its row, so this is `InformationGain` under the name of the paper. The
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

    # Without rewards the plan is no trade-off, so it is no option here.
    rewards: bool = eqx.field(default=True, static=True, init=False)
