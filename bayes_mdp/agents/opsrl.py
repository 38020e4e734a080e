"""OPSRL: optimistic posterior sampling, the best of a few draws of every pair.

Tiapkin et al., *Optimistic Posterior Sampling for Reinforcement Learning with Few Samples and Tight Guarantees*,
NeurIPS 2022.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.policies import Greedy
from bayes_mdp.agents.pseudo_state import DrawsForEpisodes, PseudoDraws, drawn_values
from bayes_mdp.agents.replan import ReplanRule, as_rule
from bayes_mdp.mdp import Objective, Problem


def best_of_draws(key: PRNGKeyArray, belief: Any, objective: Objective, draws: PseudoDraws) -> Float[Array, "H S A"]:
    """q_h = max_{j <= J} (r_j + sum_s' p_j(s') V_{h+1}(s')), p_j ~ Dirichlet((n0 delta_{s0} + c) / kappa), V = max_a q.

    With one draw and `pseudo_count` 0 it is PSRL. Arguments and errors: as `pseudo_state.drawn_values`.
    """
    return drawn_values(key, belief, objective, draws, lambda drawn: jnp.max(drawn, 0), "OPSRL")


class OPSRL(DrawsForEpisodes):
    """OPSRL: greedy for the best of a few posterior draws of every pair (`best_of_draws`).

    The paper's prior is the pseudo state alone, and the authors' code has n0 = 1, r0 = 1 and no inflation; here the
    belief's own prior concentrations count beside it (near 0 they are the paper's).

    Args:
        num_draws: J; the theory asks for a number of the order log(S A H / delta) (8 is our default).
        pseudo_count: n0.
        pseudo_reward: r0, units of the reward; the largest reward.
        inflation: kappa, which the theory makes a logarithm; None: 1, and faster.
        replan: as in `PSRL`.

    Raises:
        ValueError, TypeError: an option out of its range.
    """

    num_draws: int = eqx.field(default=8, static=True)
    pseudo_count: float | Array = eqx.field(default=1.0, kw_only=True)
    pseudo_reward: float | Array = eqx.field(default=1.0, kw_only=True)
    inflation: float | Array | None = eqx.field(default=None, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    @property
    def _draws(self) -> PseudoDraws:
        return PseudoDraws(self.num_draws, self.pseudo_count, self.pseudo_reward, self.inflation)

    def __check_init__(self) -> None:
        _ = self._draws

    def plan(self, key: PRNGKeyArray, problem: Problem, state: None, belief: Any) -> tuple[Greedy, None]:
        """Greedy for the best of the draws.

        Raises:
            TypeError: the belief has no `sample_next`.
        """
        del state
        return Greedy(best_of_draws(key, belief, problem.objective, self._draws), problem.space.legal), None
