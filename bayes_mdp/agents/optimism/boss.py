"""BOSS: best of sampled set, the best plan that picks one of a few draws of the posterior at every step.

Asmuth, Li, Littman, Nouri and Wingate, *A Bayesian Sampling Approach to Exploration in Reinforcement Learning*, UAI
2009 [BOSS09].
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from bayes_mdp.agents.common.replan import Reached, ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.mdp import MDP, CanSample, Episodic, Problem, SparseMDP
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.numerics.fusion import computed_once
from bayes_mdp.planning import solve
from bayes_mdp.planning.solution import Solution
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_count


def merged(draws: MDP | SparseMDP) -> MDP | SparseMDP:
    """One MDP whose actions are pairs of an action and a draw: action a * K + k is action a in draw k. Traceable.

    Its optimal value (or gain) is at least that of every draw, in every state: "the best action of draw k, in draw k"
    is one of its policies and has there the optimal value of draw k, and the optimum is a maximum over all policies.

    Args:
        draws: K of them: every array has a leading axis K.

    Returns:
        With A * K actions; legal where the action is.
    """

    def merge(table: Shaped[Array, "K ..."], after: int) -> Shaped[Array, "..."]:
        # [K *H S A *after] -> [*H S A K *after] -> [*H S A*K *after]
        place = table.ndim - 1 - after
        moved = jnp.moveaxis(table, 0, place)
        return moved.reshape(*moved.shape[: place - 1], -1, *moved.shape[place + 1 :])

    ends = None if draws.end_probs is None else merge(draws.end_probs, 0)
    legal = None if draws.legal is None else merge(draws.legal, 0)
    initial = None if draws.initial is None else draws.initial[0]
    reward = merge(draws.reward, 0)
    if isinstance(draws, SparseMDP):
        rows = merge(draws.successor, 1), merge(draws.probability, 1)
        return SparseMDP(*rows, reward, end_probs=ends, legal=legal, initial=initial)
    return MDP(merge(draws.transition_probs, 1), reward, end_probs=ends, legal=legal, initial=initial)


def _best_draw(q: Float[Array, "*H S AK"], num_draws: int) -> Float[Array, "*H S A"]:
    return q.reshape(*q.shape[:-1], -1, num_draws).max(-1)


class BOSS(eqx.Module):
    """Draw K MDPs, plan optimally in the MDP whose actions are pairs (action, draw), take the action of the pair.

    From [BOSS09]. The value of an action is that of the draw that suits it best, in every state anew (`merged`): at
    least the optimal value of every draw. New MDPs are drawn when a pair has been visited B times for the first
    time, so at most once for every pair: with all of them known the plan is final. K times the memory of one draw
    is needed.

    Args:
        num_draws: K (5 is our choice).
        replan: when to draw anew; the default is the paper's rule with B = 100 (our choice), `Reached(100)`. Others as
            in `PSRL`. A plan made from few visits can be final and wrong, one from many comes late. Where the space has
            a horizon, the pairs of every step are counted apart.

    Raises:
        ValueError, TypeError: `num_draws` is no integer of at least 1.
    """

    num_draws: int = eqx.field(default=5, static=True)
    replan: ReplanRule | None = eqx.field(default=Reached(100), converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_count("num_draws", self.num_draws)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan in a merged MDP, for a warm start (none is needed for episodes)."""
        del key
        if isinstance(problem.objective, Episodic):
            return None
        *lead, n_actions = problem.space.shape
        return Solution.blank((*lead, n_actions * self.num_draws), legal=self._legal(problem.space.legal))

    def _legal(self, legal: Bool[AnyArray, "S A"] | None) -> Bool[Array, "S AK"] | None:
        return None if legal is None else jnp.repeat(jnp.asarray(legal), self.num_draws, axis=-1)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CanSample
    ) -> tuple[Greedy, Solution | None]:
        """Greedy for K draws; its q is the optimistic value.

        Raises:
            TypeError: `belief` cannot be sampled. ValueError: as `planning.solve`.
        """
        require_ability(belief, CanSample, "BOSS")
        # Planners read the draws many times: they are kept in memory.
        mdp = computed_once(merged(belief.sample(key, (self.num_draws,))))
        solution = solve(mdp, problem.objective, start=state)
        q = _best_draw(solution.q, self.num_draws)
        if isinstance(problem.objective, Episodic):
            return Greedy(q, problem.space.legal), None
        # Pair a * K + k: its action is a.
        return Greedy(q, problem.space.legal, best=solution.policy // self.num_draws), solution
