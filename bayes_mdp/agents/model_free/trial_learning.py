"""SARSA(lambda) and TD-BMA: tables of values learnt from whole trials in backward sweeps ([TDBMA10]).

[TDBMA10] Downey and Sanner, *Temporal Difference Bayesian Model Averaging*, ICML 2010. A trial is a sequence of steps
that ends where the episode ends or is cut after `trial_steps`. Learning happens only then: one sweep from the last
step to the first. The policy is epsilon-greedy for the table, hence the same during a trial.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.learner import first_table, move_towards, place_of
from bayes_mdp.agents.common.replan import EveryLearnedEpisode, ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import EpsilonGreedy
from bayes_mdp.mdp import Episodic, Problem, Transitions
from bayes_mdp.utils.typing import BoolScalar, Index, RealLike, Scalar
from bayes_mdp.utils.validation import check_bool, check_count, check_finite, check_fraction


class Tables(eqx.Module):
    """What is learnt. R: the axes [*H S], or the rows of a hash table.

    Args:
        q: Float[R A], values.
        statistics: Float[R A 3] of the returns of every pair: count, mean, sum of squared deviations; None: not needed.
    """

    q: Float[Array, "*R A"]
    statistics: Float[Array, "*R A 3"] | None = None


Carry = tuple[Tables, Float[Array, ""], Float[Array, ""], Bool[Array, ""]]
"""Of a sweep: the tables, R_{t+1}, Q(s_{t+1}, a_{t+1}), whether no step of the trial has been met yet."""
SweepInput = tuple[Index, Float[Array, ""], Bool[Array, ""], Float[Array, ""], Float[Array, ""], Float[Array, ""]]
"""Of a step: its pair, reward, whether nothing follows, the value beyond, Q of the pair before the sweep, weight."""


Weights = RealLike | Bool[Array, " T"]
"""Of the steps of a trial: one number for all, or one for each; false or 0 after its end."""


class Step(NamedTuple):
    """A step of a trial, as the sweep visits it.

    Args:
        pair: its index in the tables.
        reward: r_{t+1}.
        discount: the factor of what follows.
        next_value: Q(s_{t+1}, a_{t+1}).
        ret: R_{t+1}, the return that the sweep found at the step after it.
        last: the sweep has visited no later step: `next_value` is then the value beyond the trial (0 beyond an end).
    """

    pair: Index
    reward: Scalar
    discount: Scalar
    next_value: Scalar
    ret: Scalar
    last: BoolScalar


class Swept(NamedTuple):
    """What is known after a step of the sweep.

    Args:
        tables: what is learned.
        ret: R_t, the return.
        value: the new Q(s_t, a_t).
        trace_decay: lambda, the weight of R_{t+1} against Q.
    """

    tables: Tables
    ret: Float[Array, ""]
    value: Float[Array, ""]
    trace_decay: Scalar


class Trial(eqx.Module):
    """The steps of a trial so far, kept until it ends; entries beyond `length` are not used.

    Args:
        steps: Transitions[T].
        length: how many.
    """

    steps: Transitions
    length: Int[Array, ""]


class EpisodeLearnerState(eqx.Module):
    """The state of a trial learner.

    Args:
        tables: what was learnt.
        trial: the trial in progress.
    """

    tables: Tables
    trial: Trial


def sweep(
    agent: "EpisodeLearner",
    problem: Problem,
    tables: Tables,
    trial: Transitions,
    weight: Weights = 1.0,
) -> tuple[Tables, Float[Array, " T"], Float[Array, " T"]]:
    """One backward sweep over a trial ([TDBMA10] Algorithms 2 and 3). Traceable.

    Args:
        agent: `SarsaLambda` or `TDBMA`.
        problem: sizes and objective; under `Episodic` the tables have a row for every step.
        tables: before the trial.
        trial: Transitions[T], in order; what ends it is its last step of weight 1.
        weight: scalar or Float[T], 1 up to the end of the trial and 0 from there on.

    Returns:
        The tables after it; R_t and the weight lambda of R_{t+1} in it, Float[T] each (lambda is nan at the last step,
        which bootstraps from nothing; both are nan where `weight` is 0).
    """
    # Indices of all steps at once: the sweep gathers its rows by them.
    place = place_of(problem, trial)
    weight = jnp.broadcast_to(jnp.asarray(weight, float), trial.state.shape)
    before = tables.q[place.pair]  # Q during the trial, for frozen sweeps
    # A trial that was cut did not end: what follows is the best value, or nothing.
    beyond = jnp.max(tables.q[place.next_row], axis=-1) if agent.bootstrap else jnp.zeros_like(before)
    reward = jnp.asarray(trial.reward, tables.q.dtype)
    # Zero stands for the return and value after the trial until the first live step is met.
    nothing = jnp.zeros((), tables.q.dtype)

    def back(loop: Carry, x: SweepInput) -> tuple[Carry, tuple[Float[Array, ""], Float[Array, ""]]]:
        tables, ret, next_value, last = loop
        pair, reward, ended, beyond, before, weight = x
        # The last step of the trial bootstraps from what is beyond it; earlier ones from the step after them.
        next_value = jnp.where(last, jnp.where(ended, 0.0, beyond), next_value)
        # One line of the algorithm for SARSA(lambda) and TD-BMA alike: only the weight lambda differs.
        swept = agent.sweep_step(tables, Step(pair, reward, place.discount, next_value, ret, last), weight)
        # Steps of weight 0 are after the end of the trial: the sweep passes over them.
        live = weight != 0
        ret = jnp.where(live, swept.ret, ret)
        next_value = jnp.where(live, before if agent.frozen else swept.value, next_value)
        outputs = jnp.where(live, swept.ret, jnp.nan), jnp.where(live & ~last, swept.trace_decay, jnp.nan)
        return (swept.tables, ret, next_value, last & ~live), outputs

    ended = jnp.broadcast_to(place.ended, weight.shape)
    steps = (place.pair, reward, ended, beyond, before, weight)
    # From the last step to the first: R_t needs R_{t+1}.
    loop, (returns, decays) = lax.scan(back, (tables, nothing, nothing, jnp.bool_(True)), steps, reverse=True)
    return loop[0], returns, decays


class EpisodeLearner(eqx.Module):
    """Base of `SarsaLambda` and `TDBMA`: all but the weight of the return that the sweep found.

    Args:
        learning_rate: in [0, 1].
        initial_q: initial value of every entry.
        frozen: whether a sweep bootstraps from Q as it was during the trial.
        bootstrap: whether the value beyond a trial that is cut is max_a Q and not 0.
        trial_steps: a trial is cut after so many steps (not under `Episodic`).

    Raises:
        ValueError: a number outside its range. TypeError: another type.
    """

    learning_rate: float | Array = eqx.field(default=0.15, kw_only=True)
    epsilon: float | Array = eqx.field(default=0.05, kw_only=True)
    initial_q: float | Array = eqx.field(default=0.0, kw_only=True)
    frozen: bool = eqx.field(default=False, static=True, kw_only=True)
    bootstrap: bool = eqx.field(default=False, static=True, kw_only=True)
    trial_steps: int = eqx.field(default=200, static=True, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EveryLearnedEpisode(), converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_fraction("learning_rate", self.learning_rate)
        check_fraction("epsilon", self.epsilon)
        check_finite("initial_q", self.initial_q)
        check_count("trial_steps", self.trial_steps)
        check_bool("frozen", self.frozen)
        check_bool("bootstrap", self.bootstrap)

    @abc.abstractmethod
    def trace_decay_at(self, statistics: Float[Array, " 3"] | None, q_mc: Scalar, q_td: Scalar) -> Scalar:
        """The weight lambda of the Monte-Carlo estimate `q_mc` against `q_td`, from the `statistics` of the pair."""

    def tables(self, problem: Problem) -> Tables:
        """The initial tables; q is -inf where an action is illegal.

        Args:
            problem: what is known of the MDP before any data.

        Raises:
            ValueError: the objective is the average reward, for which returns are not defined.
        """
        return Tables(first_table(problem, self.initial_q, type(self).__name__), None)

    def init(self, key: PRNGKeyArray, problem: Problem) -> EpisodeLearnerState:
        """Initial tables, and an empty buffer for a trial.

        Raises:
            ValueError: the objective is the average reward, for which returns are not defined.
        """
        del key
        objective = problem.objective
        size = objective.horizon if isinstance(objective, Episodic) else self.trial_steps
        index, number, no = jnp.zeros(size, jnp.int32), jnp.zeros(size), jnp.zeros(size, bool)
        return EpisodeLearnerState(
            self.tables(problem), Trial(Transitions(index, index, number, index, no, None, index), index[0])
        )

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: EpisodeLearnerState, belief: object = None
    ) -> tuple[EpsilonGreedy, EpisodeLearnerState]:
        """Epsilon-greedy for the table."""
        del key, problem, belief
        return EpsilonGreedy(state.tables.q, self.epsilon), state

    def sweep_step(self, tables: Tables, step: Step, weight: Scalar | BoolScalar = 1.0) -> Swept:
        """One step of a sweep ([TDBMA10] Algorithms 2 and 3); where `weight` is 0 the tables are unchanged."""
        pair, statistics = step.pair, tables.statistics
        entry = None if statistics is None else statistics[pair]
        # One-step bootstrapped target, Monte Carlo target, and their lambda-weighted mean.
        q_td = step.reward + step.discount * step.next_value
        q_mc = step.reward + step.discount * step.ret
        decay = self.trace_decay_at(entry, q_mc, q_td)
        ret = jnp.where(step.last, q_td, q_td + decay * (q_mc - q_td))
        # Q(s_t, a_t) += alpha (R_t - Q(s_t, a_t)); the step before it sees the new value, unless the sweep is frozen.
        old = tables.q[pair]
        value = old + self.learning_rate * (ret - old)
        q = move_towards(tables.q, pair, ret, self.learning_rate, weight)
        # Moments of the returns, for the weight of TD-BMA.
        if statistics is not None and entry is not None:
            statistics = statistics.at[pair].set(jnp.where(jnp.asarray(weight) != 0, _one_more(entry, ret), entry))
        return Swept(Tables(q, statistics), ret, value, decay)

    def observe_trial(
        self,
        problem: Problem,
        state: EpisodeLearnerState,
        trial: Transitions,
        weight: Weights = 1.0,
    ) -> EpisodeLearnerState:
        """The state after a whole trial; `weight` is 0 from its end on."""
        # The buffer stays as it is: the trial was passed whole.
        return EpisodeLearnerState(sweep(self, problem, state.tables, trial, weight)[0], state.trial)

    def observe(
        self, problem: Problem, state: EpisodeLearnerState, transition: Transitions, weight: Scalar = 1.0
    ) -> EpisodeLearnerState:
        """The state after one transition: it is stored, and the sweep is made where it ends the trial."""
        buffer, live = state.trial, jnp.asarray(weight) != 0
        size = buffer.steps.state.shape[0]
        slot = jnp.where(live, buffer.length, size)  # beyond the buffer: dropped
        new = jax.tree.map(lambda x, column: jnp.asarray(x, column.dtype), _whole(transition), buffer.steps)
        # All columns of the trial grow by one entry.
        steps = jax.tree.map(lambda column, x: column.at[slot].set(x, mode="drop"), buffer.steps, new)
        length = buffer.length + live
        # The buffer is full: the trial is cut there.
        ended = place_of(problem, transition).ended | (length >= size)
        if transition.truncated is not None:
            ended = ended | transition.truncated
        trial = Trial(steps, length)

        # A branch, not a select: the sweep over the buffer is made once a trial ([TDBMA10] Algorithm 1).
        def learn() -> EpisodeLearnerState:
            used = jnp.arange(size) < length
            swept = sweep(self, problem, state.tables, steps, used)[0]
            # The buffer is emptied by its length alone.
            return EpisodeLearnerState(swept, Trial(steps, jnp.zeros_like(length)))

        return lax.cond(live & ended, learn, lambda: EpisodeLearnerState(state.tables, trial))


def _whole(transition: Transitions) -> Transitions:
    """The fields that a trial stores; missing ones are filled in."""
    no = jnp.zeros((), bool) if transition.terminated is None else transition.terminated
    step = jnp.zeros((), jnp.int32) if transition.step is None else transition.step
    fields = (transition.state, transition.action, transition.reward, transition.next_state)
    return Transitions(*fields, no, None, step)


def _one_more(entry: Float[Array, " 3"], ret: Scalar) -> Float[Array, " 3"]:
    """Count, mean and sum of squared deviations after one more return (Welford)."""
    count = entry[0] + 1.0
    # M2 += (R - mean before) (R - mean after).
    gap = ret - entry[1]
    mean = entry[1] + gap / count
    return jnp.stack([count, mean, entry[2] + gap * (ret - mean)])


LearnsFromEpisodes = EpisodeLearner
"""Its name in 0.2."""


class SarsaLambda(EpisodeLearner):
    """SARSA(lambda) after [TDBMA10], Algorithm 2, inside generalised policy iteration (Algorithm 1).

    A sweep from the last step of a trial to the first: R_T = r_{T+1},

        R_t = r_{t+1} + discount ((1 - lambda) Q(s_{t+1}, a_{t+1}) + lambda R_{t+1}),

    and Q(s_t, a_t) moves by learning_rate (R_t - Q(s_t, a_t)). lambda = 0: TD; 1: Monte Carlo. Actions are
    epsilon-greedy; the policy is updated after each trial. Under `Episodic(H)` a trial is an episode and the
    table has a row for every step.

    Args:
        trace_decay: lambda, in [0, 1].
        learning_rate: in [0, 1].
        epsilon: in [0, 1].
        initial_q: initial value of every entry.
        frozen: False, as printed: Q(s_{t+1}, a_{t+1}) is its value after the same sweep. True: it is Q as it
            was during the trial, and R_t the true lambda-return; each step still moves from the present entry.
        bootstrap: a trial that is cut (by `trial_steps`, or truncated) and does not end: False, as printed: the value
            beyond it is 0; True: max_a Q(s_{T+1}, a).
        trial_steps: a trial is cut after so many steps (not under `Episodic`).
        replan: when the policy is updated; nothing is learnt inside a trial.

    Raises:
        ValueError, TypeError: a number outside its range.
    """

    trace_decay: float | Array = 0.8

    def __check_init__(self) -> None:
        check_fraction("trace_decay", self.trace_decay)

    def trace_decay_at(self, statistics: Float[Array, " 3"] | None, q_mc: Scalar, q_td: Scalar) -> Scalar:
        """lambda, the same everywhere."""
        del statistics, q_mc, q_td
        return self.trace_decay


def weight(
    q_mc: RealLike, q_td: RealLike, mean: RealLike, variance: RealLike, count: RealLike
) -> Float[Array, "*shape"]:
    """The posterior probability of the Monte-Carlo estimate against the bootstrapped one ([TDBMA10] equation 14).

    lambda = f(q_mc)^N / (f(q_mc)^N + f(q_td)^N), f the density of a normal law with this mean and variance. It is
    computed in log space, where the normalisers cancel: sigmoid(N ((q_td - mean)^2 - (q_mc - mean)^2) / (2 variance)).

    Args:
        q_mc, q_td: the two estimates of a return.
        mean, variance: of the earlier returns; the variance may be infinite (nothing is known) or 0.
        count: N, the number of these.

    Returns:
        In [0, 1]. 1/2 where N = 0, where the variance is infinite and where both are as near to the mean; with
        variance 0 it is 1 or 0, for the nearer one.
    """
    q_mc, q_td, mean, variance, count = (jnp.asarray(x, float) for x in (q_mc, q_td, mean, variance, count))
    # A variance of zero is a point: whichever target lies nearer to the mean gets all the weight.
    certain = variance <= 0
    sd = jnp.sqrt(jnp.where(certain, 1.0, variance))
    # a^2 - b^2 as a product of numbers of size one: the squares would cancel, or leave the range.
    difference, middle = q_td - q_mc, 0.5 * (q_td - mean) + 0.5 * (q_mc - mean)
    nearer = jnp.sign(difference) * jnp.sign(middle)
    evidence = count * (difference / sd) * (middle / sd)
    unknown = (count <= 0) | jnp.isinf(variance) | (nearer == 0)
    # Half where nothing is known; 0 or 1 where the law is a point; else the logistic of the evidence.
    return jnp.where(unknown, 0.5, jnp.where(certain, 0.5 + 0.5 * nearer, jax.nn.sigmoid(evidence)))


class TDBMA(EpisodeLearner):
    """TD-BMA ([TDBMA10] Algorithm 3): a backward sweep over each trial with a lambda for every step.

    lambda of a step is the posterior probability (`weight`) that its return is better predicted by the return R_{t+1}
    that followed than by Q(s_{t+1}, a_{t+1}), under a normal law fitted to the earlier returns of the pair (count, mean
    and variance of every pair are learnt in the same sweep; fewer than two returns: 1/2). The rest is `SarsaLambda`, of
    which this is the version without a lambda to tune.

    Args:
        learning_rate, epsilon, initial_q, frozen, bootstrap, trial_steps, replan: as in `SarsaLambda`.

    Raises:
        ValueError, TypeError: a number outside its range.
    """

    def tables(self, problem: Problem) -> Tables:
        """The initial tables, and count, mean and squared deviations of the returns of a pair. Raises as `init`."""
        q = super().tables(problem).q
        return Tables(q, jnp.zeros((*q.shape, 3), q.dtype))

    def trace_decay_at(self, statistics: Float[Array, " 3"] | None, q_mc: Scalar, q_td: Scalar) -> Float[Array, ""]:
        """`weight`, from the returns of the pair so far."""
        assert statistics is not None
        # Equation 14 with the moments of the earlier returns; one return has no variance: nothing is known (1/2).
        count, mean, squares = (statistics[..., i] for i in range(3))
        variance = jnp.where(count > 1, squares / jnp.maximum(count, 1.0), jnp.inf)
        return weight(q_mc, q_td, mean, variance, count)
