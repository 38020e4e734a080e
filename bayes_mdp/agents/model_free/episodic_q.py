"""Q-learning in episodes with the rate (H + 1) / (H + n): `UCBH`, by a bonus, and `RandQL`, by random learning rates.

UCB-H is optimistic Q-learning with a Hoeffding bonus ([UCBH18] algorithm 1). RandQL draws the rates of an ensemble from
a Beta law of about that mean, posterior sampling without a model: Tiapkin, Belomestny, Calandriello, Moulines, Munos,
Naumov, Perrault, Valko and Menard, *Model-free Posterior Sampling via Learning Rate Randomization*, NeurIPS 2023
[RANDQL23]. RandQL and Sampled-RandQL, as in the public code of the first author; the staged variant, for which the
regret bound is proven, is not here.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from bayes_mdp.agents.common.learner import first_table, place_of
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.mdp import Episodic, Problem, Transitions
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.utils.typing import IntScalar, Numbers, Scalar
from bayes_mdp.utils.validation import (
    check_bool,
    check_count,
    check_inside,
    check_not_negative,
    check_positive,
)


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
        check_positive("max_reward", self.max_reward)
        if self.num_episodes is not None:
            check_count("num_episodes", self.num_episodes)

    def init(self, key: PRNGKeyArray, problem: Problem) -> OptimisticTable:
        """Every value at its ceiling.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        del key
        # Optimism by the start: H max_reward, the largest return of an episode.
        horizon = require_objective(problem.objective, "UCBH", Episodic).horizon
        q = first_table(problem, horizon * jnp.asarray(self.max_reward, float), "UCBH")
        return OptimisticTable(q, jnp.zeros(q.shape), jnp.zeros((), jnp.int32))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: OptimisticTable, belief: object = None
    ) -> tuple[Greedy, OptimisticTable]:
        """Greedy for the table."""
        del key, problem, belief
        return Greedy(state.q), state

    def observe(
        self, problem: Problem, state: OptimisticTable, transition: Transitions, weight: Scalar = 1.0
    ) -> OptimisticTable:
        """The table after one transition; unchanged where `weight` is 0 (another weight counts as one).

        Raises:
            ValueError, TypeError: an objective other than `Episodic`.
        """
        horizon, counted = require_objective(problem.objective, "UCBH", Episodic).horizon, jnp.asarray(weight) != 0
        pair, next_row, ended, _ = place_of(problem, transition)
        # V is clipped at its largest possible value; Q itself is not (algorithm 1).
        next_value = jnp.minimum(horizon * self.max_reward, jnp.max(state.q[next_row]))
        target = jnp.asarray(transition.reward) + jnp.where(ended, 0.0, next_value)
        # Visits and steps count this transition.
        old, visits, time = state.q[pair], state.visits[pair] + 1.0, state.time + counted
        steps = time.astype(old.dtype) if self.num_episodes is None else float(self.num_episodes * horizon)
        # iota = log(S A T / p)
        log_term = math.log(math.prod(state.q.shape[-2:])) + jnp.log(steps / self.delta)
        new = hoeffding_update(
            old, visits, target, horizon, bonus_scale=self.scale * self.max_reward, log_term=log_term
        )
        return OptimisticTable(
            state.q.at[pair].set(jnp.where(counted, new, old)),
            state.visits.at[pair].add(counted),
            time,
        )


def learning_rates(
    key: PRNGKeyArray,
    visits: Scalar,
    horizon: int,
    num: int,
    *,
    inflation: Scalar = 1.0,
    prior_transitions: Scalar,
) -> tuple[Float[Array, " J"], Float[Array, " J"]]:
    """The random numbers of one update: learning rates, and the weights of the observed target against the prior.

    rate ~ Beta((H + 1) / inflation, (n + n0) / inflation), weight ~ Beta(n + n0, n0 / inflation). Traceable.

    Args:
        key: of the draws.
        visits: n, of the pair, from 1 on (this one included, as in the public code).
        horizon: H.
        num: J.
        inflation: kappa.
        prior_transitions: n0, number of optimistic prior transitions.
    """
    # n + n0: visits, and the prior's transitions.
    total = visits + prior_transitions
    rate_key, weight_key = jax.random.split(key)
    rates = jax.random.beta(rate_key, (horizon + 1.0) / inflation, total / inflation, (num,))
    return rates, jax.random.beta(weight_key, total, prior_transitions / inflation, (num,))


def update_with_random_rates(
    temporary: Float[Array, " J"],
    target: Scalar,
    rate: Float[Array, " J"],
    weight: Float[Array, " J"],
    ceiling: Scalar,
) -> Float[Array, " J"]:
    """The temporary values of a pair after a visit: (1 - rate) q + rate (weight target + (1 - weight) ceiling).

    Args:
        temporary: q, the values before.
        target: r + V_{h+1}(s'), a number or [J].
        rate, weight: shares, as of `learning_rates`.
        ceiling: the optimistic value of the prior transition.
    """
    # The prior transition leads to the ceiling: `weight` is the share of the observed target.
    return (1.0 - rate) * temporary + rate * (weight * target + (1.0 - weight) * ceiling)


class Ensemble(eqx.Module):
    """The state of `RandQL`.

    Args:
        temporary: Float[H S A J], the ensemble of values; -inf where an action is illegal.
        acting: Float[H S A], what the greedy policy and the targets use: the smallest value
            that the maximum of the ensemble has had.
        visits: Float[H S A].
        words: [2], the key of the learning rates as two integers.
        time: updates so far.
    """

    temporary: Float[Array, "H S A J"]
    acting: Float[Array, "H S A"]
    visits: Float[Array, "H S A"]
    words: UInt32[Array, "2"]
    time: Int[Array, ""]


class RandQL(eqx.Module):
    """Q-learning with an ensemble of tables whose learning rates are random, and no bonus [RANDQL23]. Episodes only.

    After (s, a, r, s') at step h, each of J tables takes `update_with_random_rates` with the target
    r + V_{h+1}(s'), V the best acting value, and with rates of its own. The ceiling is (H - h) `max_reward`, where all
    tables start. Every (step, state, action) is visited at most once an episode: to replan every episode loses nothing.

    Args:
        num_tables: J.
        inflation: kappa; larger values spread the learning rates more.
        prior_transitions: n0, a number of transitions (that of the public code is n0 / kappa); None: 1 / S.
        max_reward: rewards lie in [0, max_reward]; r0 of the prior transitions.
        sampled: Sampled-RandQL: greedy for one table, drawn for every plan, and every table learns from its own values.
            Otherwise greedy for the largest table (RandQL).
        replan: as in `PSRL`.

    Raises:
        ValueError, TypeError: a number outside its range.
    """

    num_tables: int = eqx.field(default=10, static=True)
    inflation: float | Array = eqx.field(default=1.0, kw_only=True)
    prior_transitions: float | Array | None = eqx.field(default=None, kw_only=True)
    max_reward: float | Array = eqx.field(default=1.0, kw_only=True)
    sampled: bool = eqx.field(default=False, static=True, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_count("num_tables", self.num_tables)
        check_bool("sampled", self.sampled)
        check_positive("inflation", self.inflation)
        check_positive("max_reward", self.max_reward)
        if self.prior_transitions is not None:
            check_positive("prior_transitions", self.prior_transitions)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Ensemble:
        """Every value at its ceiling.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        horizon = require_objective(problem.objective, "RandQL", Episodic).horizon
        acting = first_table(problem, self._ceiling(horizon, jnp.arange(horizon)[:, None, None]), "RandQL")
        temporary = jnp.broadcast_to(acting[..., None], (*acting.shape, self.num_tables))
        # The seed of all updates: two words of random bits.
        words = jax.random.bits(key, (2,), jnp.uint32)
        return Ensemble(temporary, acting, jnp.zeros(acting.shape), words, jnp.zeros((), jnp.int32))

    def _ceiling(self, horizon: int, step: IntScalar | Int[Array, "..."]) -> Float[Array, "..."]:
        return jnp.asarray(self.max_reward, float) * (horizon - step)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Ensemble, belief: object = None
    ) -> tuple[Greedy, Ensemble]:
        """Greedy for the acting values, or for a table drawn at random."""
        del problem, belief
        if not self.sampled:
            return Greedy(state.acting), state
        # Sampled-RandQL acts on one table of the ensemble, drawn for the plan.
        return Greedy(state.temporary[..., jax.random.randint(key, (), 0, self.num_tables)]), state

    def observe(self, problem: Problem, state: Ensemble, transition: Transitions, weight: Scalar = 1.0) -> Ensemble:
        """The ensemble after one transition; unchanged where `weight` is 0 (another weight counts as one).

        Raises:
            ValueError, TypeError: an objective other than `Episodic`.
        """
        horizon, counted = require_objective(problem.objective, "RandQL", Episodic).horizon, jnp.asarray(weight) != 0
        pair, next_row, ended, _ = place_of(problem, transition)
        # Sampled-RandQL: every table bootstraps from its own values [J]; RandQL: all from the acting values.
        next_value = jnp.max(state.temporary[next_row], 0) if self.sampled else jnp.max(state.acting[next_row])
        target = jnp.asarray(transition.reward) + jnp.where(ended, 0.0, next_value)
        prior = 1.0 / problem.space.n_states if self.prior_transitions is None else self.prior_transitions
        # Time folded into the key makes every update independent of the others.
        rates = learning_rates(
            jax.random.fold_in(jax.random.wrap_key_data(state.words, impl="threefry2x32"), state.time),
            state.visits[pair] + 1.0,
            horizon,
            self.num_tables,
            inflation=self.inflation,
            prior_transitions=prior,
        )
        # Acting values only fall: min over time of the maximum of the ensemble.
        old, acting = state.temporary[pair], state.acting[pair]
        new = update_with_random_rates(old, target, *rates, self._ceiling(horizon, pair[0]))
        return Ensemble(
            state.temporary.at[pair].set(jnp.where(counted, new, old)),
            state.acting.at[pair].set(jnp.where(counted, jnp.minimum(acting, jnp.max(new)), acting)),
            state.visits.at[pair].add(counted),
            state.words,
            state.time + counted,
        )
