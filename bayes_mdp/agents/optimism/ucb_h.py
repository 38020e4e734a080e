"""UCB-H: optimistic Q-learning with a Hoeffding bonus ([UCBH18] algorithm 1)."""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.learner import episode_length, place_of
from bayes_mdp.agents.common.mean_model import check_above_zero, check_inside
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.mdp import Problem, Transitions
from bayes_mdp.utils.typing import Numbers, Scalar
from bayes_mdp.utils.validation import check_count, check_not_negative


class OptimisticTable(eqx.Module):
    """The state of `UCBH`.

    Args:
        q: Float[H S A], -inf where an action is illegal.
        visits: Float[H S A].
        time: steps so far.
    """

    q: Float[Array, "H S A"]
    visits: Float[Array, "H S A"]
    time: Int[Array, ""]


def hoeffding_update(
    q: Numbers, visits: Numbers, target: Numbers, horizon: int, *, bonus_scale: Scalar, log_term: Scalar
) -> Float[Array, "..."]:
    """The value of a pair after its `visits`-th visit: (1 - alpha) q + alpha (target + b) (algorithm 1).

    alpha = (H + 1) / (H + t) and b = bonus_scale sqrt(H^3 log_term / t), t = `visits`, from 1 on. Elementwise: arrays
    broadcast.

    Args:
        q: value before; it has no weight at the first visit (alpha = 1).
        target: r + V_{h+1}(s'), a value.
        horizon: H, steps of an episode.
        bonus_scale: c; times the largest reward where that is not 1.
        log_term: iota = log(S A T / p).
    """
    # alpha_t weighs the last visits of a pair, about a share 1 / H of them, most.
    rate = (horizon + 1.0) / (horizon + visits)
    bonus = bonus_scale * jnp.sqrt(horizon**3 * log_term / visits)
    return (1.0 - rate) * q + rate * (target + bonus)


class UCBH(eqx.Module):
    """Optimistic Q-learning with bonus b = scale sqrt(H^3 iota / t), iota = log(S A T / delta) [UCBH18]. Episodes only.

    Q starts at H `max_reward`, actions are greedy, and the value of a state is min(H max_reward, max_a Q). Every (step,
    state, action) is visited at most once an episode: replanning every episode loses nothing.

    Args:
        scale: c of the bonus. The theorem has an unnamed constant; 1 explores for very long in small problems (0.05 is
            our default).
        delta: p, the probability that the regret bound may fail.
        num_episodes: K, of T = K H in iota; None: T is the number of steps so far, this one included, and the theorem,
            which fixes T beforehand, does not apply.
        max_reward: rewards lie in [0, max_reward]; a mean reward below 0 is allowed where returns stay in
            [0, H max_reward].
        replan: as in `PSRL`.

    Raises:
        ValueError: a number outside its range. TypeError: `num_episodes` is no integer.
    """

    scale: float | Array = 0.05
    delta: float | Array = eqx.field(default=0.05, kw_only=True)
    num_episodes: int | None = eqx.field(default=None, static=True, kw_only=True)
    max_reward: float | Array = eqx.field(default=1.0, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_not_negative("scale", self.scale)
        check_inside("delta", self.delta)
        check_above_zero("max_reward", self.max_reward)
        if self.num_episodes is not None:
            check_count("num_episodes", self.num_episodes)

    def init(self, key: PRNGKeyArray, problem: Problem) -> OptimisticTable:
        """Every value at its ceiling.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        del key
        horizon = episode_length(problem, "UCBH")
        visits = jnp.zeros((horizon, *problem.space.shape[-2:]))
        q, legal = visits + horizon * jnp.asarray(self.max_reward, visits.dtype), problem.space.legal
        return OptimisticTable(q if legal is None else jnp.where(legal, q, -jnp.inf), visits, jnp.zeros((), jnp.int32))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: OptimisticTable, belief: object = None
    ) -> tuple[Greedy, OptimisticTable]:
        """Greedy for the table."""
        del key, problem, belief
        return Greedy(state.q), state

    def observe(
        self, problem: Problem, state: OptimisticTable, transition: Transitions, weight: Scalar = 1.0
    ) -> OptimisticTable:
        """The table after one transition; unchanged where `weight` is 0 (another weight counts as one)."""
        horizon, counted = episode_length(problem, "UCBH"), jnp.asarray(weight) != 0
        here, there, over, _ = place_of(problem, transition)
        # V is clipped at its largest possible value; Q itself is not (algorithm 1).
        next_value = jnp.minimum(horizon * self.max_reward, jnp.max(state.q[there]))
        target = jnp.asarray(transition.reward) + jnp.where(over, 0.0, next_value)
        old, visits, time = state.q[here], state.visits[here] + 1.0, state.time + counted
        steps = time.astype(old.dtype) if self.num_episodes is None else float(self.num_episodes * horizon)
        # iota = log(S A T / p)
        log_term = math.log(math.prod(state.q.shape[-2:])) + jnp.log(steps / self.delta)
        new = hoeffding_update(
            old, visits, target, horizon, bonus_scale=self.scale * self.max_reward, log_term=log_term
        )
        return OptimisticTable(
            state.q.at[here].set(jnp.where(counted, new, old)),
            state.visits.at[here].add(counted),
            time,
        )
