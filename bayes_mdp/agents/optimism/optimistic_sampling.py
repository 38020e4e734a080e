"""Optimism by draws of the posterior: BOSS (the best of a few models), Bayes-UCBVI (a quantile), OPSRL (the best).

BOSS plans for the best of the sampled MDPs at every step: Asmuth, Li, Littman, Nouri and Wingate, *A Bayesian Sampling
Approach to Exploration in Reinforcement Learning*, UAI 2009 [BOSS09].

In Bayes-UCBVI and OPSRL every unknown row has one more outcome with a small pseudo-count, never observed: a state in
which every step pays the largest reward. [TBM22a] Tiapkin et al., *From Dirichlet to Rubin: Optimistic Exploration in
RL without Bonuses*, ICML 2022; [TBC22b] Tiapkin et al., *Optimistic Posterior Sampling for Reinforcement Learning with
Few Samples and Tight Guarantees*, NeurIPS 2022.
"""

import abc
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from bayes_mdp.agents.common.mean_model import mean_model, mean_reward_variance
from bayes_mdp.agents.common.replan import Reached, ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.agents.common.variance_equation import require_variances
from bayes_mdp.mdp import MDP, CanMean, CanSample, Episodic, HasVariances, Objective, Problem, SparseMDP
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.mdp.protocols import CanSampleNext
from bayes_mdp.numerics.fusion import materialise
from bayes_mdp.planning import solve
from bayes_mdp.planning.solution import Solution
from bayes_mdp.utils.typing import IntScalar, Scalar
from bayes_mdp.utils.validation import check_count, check_finite, check_inside, check_not_negative, check_positive


def merge_draws(draws: MDP | SparseMDP) -> MDP | SparseMDP:
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


class BOSS(eqx.Module):
    """Draw K MDPs, plan optimally in the MDP whose actions are pairs (action, draw), take the action of the pair.

    From [BOSS09]. The value of an action is that of the draw that suits it best, in every state anew (`merge_draws`).
    It is at least the optimal value of every draw. New MDPs are drawn when a pair has been visited B times for the
    first time, so at most once for every pair: with all of them known the plan is final. K times the memory of one draw
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
        # The merged MDP has A K actions: the plan has as many columns. Every copy of an illegal action is illegal.
        legal = problem.space.legal
        copies = None if legal is None else jnp.repeat(jnp.asarray(legal), self.num_draws, axis=-1)
        return Solution.blank((*lead, n_actions * self.num_draws), legal=copies)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CanSample
    ) -> tuple[Greedy, Solution | None]:
        """Greedy for K draws; its q is the optimistic value.

        Raises:
            TypeError: `belief` cannot be sampled. ValueError: as `planning.solve`.
        """
        require_ability(belief, CanSample, "BOSS")
        # Planners read the draws many times: they are kept in memory.
        mdp = materialise(merge_draws(belief.sample(key, (self.num_draws,))))
        solution = solve(mdp, problem.objective, start=state)
        # Optimistic: of the K copies of each action the one that suits it best.
        q = solution.q.reshape(*solution.q.shape[:-1], -1, self.num_draws).max(-1)
        if isinstance(problem.objective, Episodic):
            return Greedy(q, problem.space.legal), None
        # Pair a * K + k: its action is a.
        return Greedy(q, problem.space.legal, best=solution.policy // self.num_draws), solution


@runtime_checkable
class SampledBelief(CanMean, HasVariances, CanSampleNext, Protocol):
    """A posterior that draws its rows layer by layer, with a mean MDP and variances of its rewards."""


class DrawsForEpisodes(eqx.Module):
    """Base of both agents: greedy for optimistic values from draws, for episodes; there is no state.

    Args:
        num_draws: J, draws of every pair (static: it decides a shape).
        pseudo_count: n0, prior pseudo-transitions of every unknown row to the pseudo state; 0: there is none.
        pseudo_reward: r0, what a step in the pseudo state pays, units of the reward: the largest reward, or more.
        replan: as in `PSRL`.

    Raises:
        ValueError: a number outside its range. TypeError: no number.
    """

    num_draws: eqx.AbstractVar[int]
    pseudo_count: float | Array = eqx.field(default=1.0, kw_only=True)
    pseudo_reward: float | Array = eqx.field(default=1.0, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_count("num_draws", self.num_draws)
        check_not_negative("pseudo_count", self.pseudo_count)
        check_finite("pseudo_reward", self.pseudo_reward)

    @abc.abstractmethod
    def values(self, key: PRNGKeyArray, belief: SampledBelief, objective: Objective) -> Float[Array, "H S A"]:
        """The optimistic values.

        Args:
            key: of all draws.
            belief: with mean, variances and `sample_next`.
            objective: `Episodic`.

        Raises:
            TypeError: an ability is missing. ValueError: another objective.
        """

    def _values(
        self,
        key: PRNGKeyArray,
        belief: SampledBelief,
        objective: Objective,
        best: Callable[[Float[Array, "J S A"]], Float[Array, "S A"]],
        inflation: Scalar = 1.0,
    ) -> Float[Array, "H S A"]:
        """q of every step: best over J draws of r + sum_s' p(s') V(s'), V(pseudo state) = r0 times the steps to go.

        Where every step has its own rows they are drawn at every step; rows that all steps share are drawn once, J
        times (as in the authors' code). Rewards are drawn too, pair by pair, normal with posterior mean and variance;
        the papers' are known, and have variance 0. Traceable.

        Args:
            key, belief, objective: as of `values`.
            best: J draws -> one optimistic value.
            inflation: kappa; every concentration is divided by it. The number 1 costs nothing.
        """
        who = type(self).__name__
        require_ability(belief, CanSampleNext, who, instead="PSRL")
        model = mean_model(belief, objective, who)
        # Inflation divides concentrations, so it multiplies the variances of the rewards.
        deviation = jnp.sqrt(inflation * mean_reward_variance(belief)).astype(model.reward.dtype)
        key_rows, key_rewards = jax.random.split(key)
        keys, own_steps = jax.random.split(key_rows, self.num_draws), model.reward.ndim == 3

        def backup(layer: IntScalar, values: Float[Array, " S"]) -> Float[Array, "S A"]:
            # The pseudo state pays r0 at every step that is left after this one.
            pseudo = (self.pseudo_count, self.pseudo_reward * (model.horizon - 1.0 - layer))
            # J draws of every row at this step, under the values of the next.
            rows = jax.vmap(lambda one: belief.sample_next(one, values, layer, inflation, pseudo))(keys)
            # Rewards that all steps share have one draw, the same at every step; rows by their key likewise.
            key_now = jax.random.fold_in(key_rewards, layer) if own_steps else key_rewards
            noise = jax.random.normal(key_now, rows.shape, model.reward.dtype)
            # Gaussian draws of the mean rewards, with the posterior's own mean and variance.
            reward = model.at(model.reward, layer) + model.at(deviation, layer) * noise
            return best(reward + rows).astype(values.dtype)

        return model.backward(backup)

    def init(self, key: PRNGKeyArray, problem: Problem) -> None:
        """No state.

        Args:
            key: not used.
            problem: what is known of the MDP before any data.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        del key
        require_objective(problem.objective, type(self).__name__, Episodic)

    def check_belief(self, belief: object) -> None:
        """Refuse a belief without mean, variances or `sample_next`: mixtures and draws.

        Raises:
            TypeError: an ability is missing. ValueError: the variance of a mean reward does not exist.
        """
        for ability in (CanSampleNext, CanMean, HasVariances):
            require_ability(belief, ability, type(self).__name__, instead="PSRL")
        require_variances(belief)

    def plan(self, key: PRNGKeyArray, problem: Problem, state: None, belief: SampledBelief) -> tuple[Greedy, None]:
        """Greedy for the optimistic values.

        Args:
            key: of all draws.
            problem: what is known of the MDP before any data.
            state: None.
            belief: with mean, variances and `sample_next`.

        Raises:
            TypeError: the belief has no `sample_next`.
        """
        del state
        return Greedy(self.values(key, belief, problem.objective), problem.space.legal), None


class BayesUCBVI(DrawsForEpisodes):
    """Bayes-UCBVI ([TBM22a]): greedy for an upper quantile of the posterior of the next value.

    The paper's prior is the pseudo state alone; here the prior concentrations of the belief are added (near 0
    they are the paper's). Its theory lets the level of the quantile tend to 1 with the counts and the number of
    episodes; few Monte Carlo draws allow a constant level only.

    Args:
        num_draws: J (16 is our default).
        quantile: the level, between 0 and 1 (a leaf of the pytree: parameter sweeps can vmap over it; 0.9 is our
            default).
        pseudo_count: n0.
        pseudo_reward: r0, units of the reward; the largest reward, or more.
        replan: as in `PSRL`.

    Raises:
        ValueError, TypeError: an option out of its range.
    """

    num_draws: int = eqx.field(default=16, static=True)
    quantile: float | Array = eqx.field(default=0.9, kw_only=True)

    def __check_init__(self) -> None:
        check_inside("quantile", self.quantile)

    def values(self, key: PRNGKeyArray, belief: SampledBelief, objective: Objective) -> Float[Array, "H S A"]:
        """q_h = the quantile of r + sum_s' p(s') V_{h+1}(s'), p ~ Dirichlet(n0 delta_{s0} + c), V = max_a q.

        By Monte Carlo, interpolated between the order statistics of J draws: it cannot exceed the largest draw.
        """
        return self._values(key, belief, objective, lambda drawn: jnp.quantile(drawn, self.quantile, axis=0))


class OPSRL(DrawsForEpisodes):
    """OPSRL ([TBC22b]): greedy for the best of a few posterior draws of every pair.

    The paper's prior is the pseudo state alone, and the authors' code has n0 = 1, r0 = 1 and no inflation; here the
    belief's own prior concentrations count beside it (near 0 they are the paper's).

    Args:
        num_draws: J; of the order log(S A H / delta) in the theory (8 is our default).
        pseudo_count: n0.
        pseudo_reward: r0, units of the reward; the largest reward.
        inflation: kappa, a factor without unit, a logarithm in the theory; None: 1, and faster.
        replan: as in `PSRL`.

    Raises:
        ValueError, TypeError: an option out of its range.
    """

    num_draws: int = eqx.field(default=8, static=True)
    inflation: float | Array | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        if self.inflation is not None:
            check_positive("inflation", self.inflation)

    def values(self, key: PRNGKeyArray, belief: SampledBelief, objective: Objective) -> Float[Array, "H S A"]:
        """q_h = max_{j <= J} (r_j + sum_s' p_j(s') V_{h+1}(s')), p_j ~ Dirichlet((n0 delta_{s0} + c) / kappa).

        V = max_a q. With one draw and `pseudo_count` 0 it is PSRL.
        """
        inflation = 1.0 if self.inflation is None else self.inflation
        return self._values(key, belief, objective, lambda drawn: jnp.max(drawn, 0), inflation)
