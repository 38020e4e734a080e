"""PSRL, posterior sampling for reinforcement learning [PSRL00] [PSRL13]; Bayesian DP [PSRL00]; TSDE [TSDE17].

All three follow a policy that is optimal in one draw; they differ in when they draw anew, and in what they refuse.
TSDE: Ouyang, Gagrani, Nayyar and Jain, *Learning Unknown Markov Decision Processes: A Thompson Sampling Approach*, NIPS
2017.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents.common.mean_model import no_plan
from bayes_mdp.agents.common.replan import DynamicEpisodes, ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.mdp import AverageReward, CanSample, CanSampleBackup, Episodic, Problem
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.numerics.fusion import computed_once
from bayes_mdp.planning import backward_induction, solve
from bayes_mdp.planning.solution import Solution

# Number of probabilities of a draw; below it, sampling all layers at once is faster (DeepSea: L = 10 is, 20 is not).
_LAYERED_ABOVE = 4096


class PSRL(eqx.Module):
    """Draw one MDP from the posterior, follow a policy that is optimal in it until the next plan [PSRL13].

    Args:
        replan: when to draw anew: a rule of `agents.replan`, a number of steps, "episode", "doubling", a function of
            the `ReplanContext`; None: every episode under `Episodic`, every 20 steps otherwise.

    Example:
        >>> result = bm.run(
        ...     bm.agents.PSRL(replan="doubling"),
        ...     bm.envs.chain(),
        ...     prior=bm.models.dirichlet_normal(),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=50,
        ...     key=jax.random.key(0),
        ...     options=bm.RunOptions(progress=False),
        ... )
        >>> float(result.visits.sum())
        50.0
    """

    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes)."""
        del key
        return no_plan(problem)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CanSample
    ) -> tuple[Greedy, Solution | None]:
        """Greedy for one draw. Under `Episodic`, a large posterior with `sample_backup` is sampled layer by layer.

        Raises:
            TypeError: `belief` cannot be sampled.
        """
        objective, space = problem.objective, problem.space
        large = math.prod(space.shape) * space.n_outcomes > _LAYERED_ABOVE
        if large and isinstance(objective, Episodic) and isinstance(belief, CanSampleBackup):
            # Each layer is sampled inside the backward pass: the whole MDP is never in memory. A step is backed up
            # once, so a key folded with the step makes one draw of it.
            q = backward_induction(
                lambda values, layer: belief.sample_backup(jax.random.fold_in(key, layer), values, layer),
                objective.horizon,
                space.n_states,
                legal=None if space.legal is None else jnp.asarray(space.legal),
            )
            return Greedy(q), None
        require_ability(belief, CanSample, type(self).__name__)
        if isinstance(objective, Episodic):
            return Greedy(solve(belief.sample(key), objective).q, space.legal), None
        # Iterative planners read the draw many times: keep it in memory, and start from the last plan.
        solution = solve(computed_once(belief.sample(key)), objective, start=state)
        return Greedy(solution.q, space.legal, best=solution.policy), solution


class BayesianDP(PSRL):
    """Bayesian DP (Strens 2000): `PSRL` where the possible successors of every pair are given, as in [OIM08].

    Rows are Dirichlet on the support of the space: the priors of the package respect it, a program of your own should
    (`models.supported_dirichlet`). Pass a space with its support to a run as `RunOptions(space=...)`. The interval
    and the discount of the original experiments were not available; choose both.

    Args:
        replan: when to draw anew, `resample_every`: a number of steps, "episode", or as in `PSRL`.
    """

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet, as in `PSRL`.

        Raises:
            ValueError: the space has no `support` and no `successors`.
        """
        if problem.space.possible is None:
            raise ValueError(
                "space.support is None, expected the possible successors of every pair (Bool[S A O], or a space with "
                "successors) for BayesianDP; PSRL needs none"
            )
        return super().init(key, problem)


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
