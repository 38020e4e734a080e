"""Bayes-UCBVI: optimism by an upper quantile of the posterior of the next value.

Tiapkin et al., *From Dirichlet to Rubin: Optimistic Exploration in RL without Bonuses*, ICML 2022.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.optimism import check_inside
from bayes_mdp.agents.policies import Greedy
from bayes_mdp.agents.pseudo_state import DrawsForEpisodes, PseudoDraws, drawn_values
from bayes_mdp.agents.replan import ReplanRule, as_rule
from bayes_mdp.mdp import Objective, Problem


def quantile_values(
    key: PRNGKeyArray, belief: Any, objective: Objective, draws: PseudoDraws, quantile: Any
) -> Float[Array, "H S A"]:
    """q_h = the quantile of r + sum_s' p(s') V_{h+1}(s'), p ~ Dirichlet(n0 delta_{s0} + c), V = max_a q.

    By Monte Carlo, interpolated between the order statistics of J draws: the largest of them is the most it can be.
    Arguments and errors: as `pseudo_state.drawn_values`; `quantile` between 0 and 1.
    """
    return drawn_values(
        key, belief, objective, draws, lambda drawn: jnp.quantile(drawn, quantile, axis=0), "BayesUCBVI"
    )


class BayesUCBVI(DrawsForEpisodes):
    """Bayes-UCBVI: greedy for an upper quantile of the posterior of the next value (`quantile_values`).

    The paper's prior is the pseudo state alone; here the belief's own prior concentrations count beside it (near 0
    they are the paper's). Its theory lets the level of the quantile tend to 1 with the counts and the number of
    episodes; a constant level is what Monte Carlo with few draws can serve.

    Args:
        num_draws: J (16 is our default).
        quantile: the level, between 0 and 1 (a leaf, so that sweeps vmap over it; 0.9 is our default).
        pseudo_count: n0.
        pseudo_reward: r0, units of the reward; the largest reward, or more.
        replan: as in `PSRL`.

    Raises:
        ValueError, TypeError: an option out of its range.
    """

    num_draws: int = eqx.field(default=16, static=True)
    quantile: float | Array = eqx.field(default=0.9, kw_only=True)
    pseudo_count: float | Array = eqx.field(default=1.0, kw_only=True)
    pseudo_reward: float | Array = eqx.field(default=1.0, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    @property
    def _draws(self) -> PseudoDraws:
        return PseudoDraws(self.num_draws, self.pseudo_count, self.pseudo_reward)

    def __check_init__(self) -> None:
        _ = self._draws
        check_inside("quantile", self.quantile)

    def plan(self, key: PRNGKeyArray, problem: Problem, state: None, belief: Any) -> tuple[Greedy, None]:
        """Greedy for the quantiles.

        Raises:
            TypeError: the belief has no `sample_next`.
        """
        del state
        q = quantile_values(key, belief, problem.objective, self._draws, self.quantile)
        return Greedy(q, problem.space.legal), None
