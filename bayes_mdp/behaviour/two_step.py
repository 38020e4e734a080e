"""The two-step task and its hybrid model-based and model-free learner (Daw and others 2011).

State 0 is the first stage, with two actions: action a leads to its common second-stage state, 1 + a, with a known
probability, else to the other. States 1 and 2 have two actions each, with rewards whose probabilities drift. A choice
at each stage is a record; the second one ends the trial.

`TwoStepTask` is the environment, and `two_step_log` puts data of trials into records.
"""

from collections.abc import Hashable, Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.behaviour.behaviour_model import Parameter, Values
from bayes_mdp.behaviour.choice_log import ChoiceLog
from bayes_mdp.mdp import Transitions
from bayes_mdp.utils.typing import ArrayLike, RealScalar
from bayes_mdp.utils.validation import as_indices, as_mask, check_name, check_number, check_shape, check_type, require

_FORMS = {
    4: ("a", "beta", "pi", "w"),
    6: ("a1", "beta1", "a2", "beta2", "pi", "w"),
    7: ("a1", "beta1", "a2", "beta2", "pi", "w", "lambda"),
}
_SUPPORTS = {"beta": "positive", "beta1": "positive", "beta2": "positive", "pi": (0.0, 5.0)}
STATES = ("first stage", "second stage 1", "second stage 2")
Number = Float[Array, ""]


class TwoStepValues(eqx.Module):
    """What a person has learnt, as single numbers: over many persons each is one vector, which compiles to fast loops.

    Args:
        first: Q1 of the first and of the second action.
        second: Q2 of (state 1, action 0), (1, 1), (2, 0), (2, 1).
        last: +1 if the last first-stage choice was the second action, -1 if the first, 0 before any.
        pending: the same of the trial in progress, 0 before its first choice (or where that was missed).
    """

    first: tuple[Number, Number]
    second: tuple[Number, Number, Number, Number]
    last: Number
    pending: Number


class TwoStep(eqx.Module):
    """Choices of the two-step task by a mixture of planning and temporal differences.

    P(second action at stage 1) = logistic(beta1 (w D_MB + (1 - w) D_MF) + pi last), D the value of the second action
    minus that of the first: by the known transitions and the best second-stage values (MB), or Q1 (MF). P(j at stage
    2) is proportional to exp(beta2 Q2(j)). After a trial with reward r, in this order and with the old Q2(j):

        Q1(a) += a1 (Q2(j) - Q1(a));  Q1(a) += lambda a1 d';  Q2(j) += a2 d,  d = r - Q2(j)

    Values begin at 0. Parameters and default priors are those of hBayesDM's ts_par7, ts_par6 (lambda = 1) and ts_par4
    (also a1 = a2 = a, beta1 = beta2 = beta): pi lies between 0 and 5, rates, w and lambda between 0 and 1.

    Args:
        num_parameters: 7, 6 or 4.
        reward_error: d' of the first stage: "before_update", d' = d [Daw 2011]; "after_update", d' = (1 - a2) d, what
            is left of the error after Q2 has moved (hBayesDM's programs).
        common: known probability of the common transition.
        priors: name -> `Parameter` in place of the default one.

    Raises:
        ValueError: another number of parameters, another word, a probability outside [0, 1], an unknown name.
        TypeError: a probability that is no number, a prior that is no `Parameter`.
    """

    num_parameters: int = eqx.field(default=7, static=True)
    reward_error: str = eqx.field(default="before_update", static=True)
    common: RealScalar = 0.7
    priors: dict[str, Parameter] = eqx.field(default_factory=dict, converter=dict)

    def __check_init__(self) -> None:
        if self.num_parameters not in _FORMS:
            raise ValueError(f"num_parameters is {self.num_parameters!r}, expected 7, 6 or 4")
        check_name("reward_error", self.reward_error, ("before_update", "after_update"))
        check_number("common", self.common, lambda x: (x >= 0) & (x <= 1), "a number from 0 to 1")
        for name, parameter in self.priors.items():
            check_name("priors", name, _FORMS[self.num_parameters])
            check_type(f"priors[{name!r}]", parameter, Parameter, "a Parameter")

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Rates a, sensitivities beta, perseveration pi, weight of planning w, trace decay lambda."""
        return {name: self.priors.get(name, _PARAMETERS[name]) for name in _FORMS[self.num_parameters]}

    def _values(self, params: Values) -> tuple[Float[Array, ""], ...]:
        """(a1, beta1, a2, beta2, pi, w, lambda)."""
        if self.num_parameters == 4:
            a, beta, pi, w = (jnp.asarray(params[name]) for name in _FORMS[4])
            return a, beta, a, beta, pi, w, jnp.ones_like(a)
        values = tuple(jnp.asarray(params[name]) for name in _FORMS[self.num_parameters])
        return values if len(values) == 7 else (*values, jnp.ones_like(values[0]))

    def init(self, params: Values) -> TwoStepValues:
        """Nothing learnt."""
        del params
        zero = jnp.zeros(())
        return TwoStepValues((zero, zero), (zero, zero, zero, zero), zero, zero)

    def policy(self, params: Values, state: TwoStepValues, observation: Int[Array, ""]) -> Float[Array, " 2"]:
        """Log-probabilities of the two actions of a stage."""
        _, beta1, _, beta2, pi, w, _ = self._values(params)
        q10, q11, q20, q21 = state.second
        # D_MB: with p common, (p - (1 - p)) times the difference of the best values of the two second stages.
        planned = (2.0 * self.common - 1.0) * (jnp.maximum(q20, q21) - jnp.maximum(q10, q11))
        learnt = state.first[1] - state.first[0]
        first = beta1 * (w * planned + (1.0 - w) * learnt) + pi * state.last
        # A softmax over two actions is a logistic function of the difference of their values.
        second = beta2 * jnp.where(observation == 2, q21 - q20, q11 - q10)
        logit = jnp.where(observation == 0, first, second)
        # log(1 + exp(logit)) once for both.
        log_sum = jnp.maximum(logit, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(logit)))
        return jnp.stack([-log_sum, logit - log_sum])

    def update(self, params: Values, state: TwoStepValues, transition: Transitions) -> TwoStepValues:
        """After the first stage the choice is remembered; after the second all values move."""
        a1, _, a2, _, _, _, trace = self._values(params)
        stage, action = jnp.asarray(transition.state), jnp.asarray(transition.action)
        at_first, second_action = stage == 0, action == 1
        # The value of the chosen pair of the second stage, before it moves.
        q10, q11, q20, q21 = state.second
        old = jnp.where(stage == 2, jnp.where(second_action, q21, q20), jnp.where(second_action, q11, q10))
        error = jnp.asarray(transition.reward) - old
        # The d' of the class docstring: what the trace of the first stage is moved by.
        left = error if self.reward_error == "before_update" else (1.0 - a2) * error
        # Q1 of the action that led to this stage.
        moved = tuple(
            q + jnp.where(~at_first & (state.pending == sign), a1 * (old - q) + trace * a1 * left, 0.0)
            for q, sign in zip(state.first, (-1.0, 1.0), strict=True)
        )
        # Q2 of the chosen pair alone; masks instead of a scatter keep single numbers as vectors over persons.
        pairs = ((1, 0), (1, 1), (2, 0), (2, 1))
        second = tuple(
            q + jnp.where((stage == s) & (action == j), a2 * error, 0.0)
            for q, (s, j) in zip(state.second, pairs, strict=True)
        )
        # `last` is what perseveration repeats, `pending` the choice of this trial until its reward comes.
        sign = jnp.where(second_action, 1.0, -1.0).astype(state.last.dtype)
        last, pending = jnp.where(at_first, sign, state.last), jnp.where(at_first, sign, 0.0)
        return TwoStepValues(moved, second, last, pending)  # type: ignore[arg-type]


_PARAMETERS = {name: Parameter(_SUPPORTS.get(name, "unit")) for form in _FORMS.values() for name in form}  # type: ignore[arg-type]


class TwoStepTask(eqx.Module):
    """Choose one of two actions, go to one of two states, choose again, get a reward of 0 or 1.

    The four reward probabilities do a Gaussian random walk, one step a trial, reflected at both bounds; they begin
    uniform between the bounds. A trial is two records; see `TwoStep` for states and actions.

    Args:
        common: probability of the common transition.
        drift: standard deviation of a step of the walk.
        low, high: bounds of the reward probabilities.

    Raises:
        ValueError: a number outside its range.
        TypeError: no number.
    """

    common: RealScalar = 0.7
    drift: RealScalar = 0.025
    low: RealScalar = 0.25
    high: RealScalar = 0.75
    states = STATES
    actions = (0, 1)

    def __check_init__(self) -> None:
        for name in ("common", "low", "high"):
            check_number(name, getattr(self, name), lambda x: (x >= 0) & (x <= 1), "a number from 0 to 1")
        check_number("drift", self.drift, lambda x: (x >= 0) & np.isfinite(x), "a finite number of at least 0")

    def reset(self, key: PRNGKeyArray) -> Float[Array, "2 2"]:
        """The reward probabilities of the first trial, by second-stage state and action."""
        return jax.random.uniform(key, (2, 2), minval=self.low, maxval=self.high)

    def begin(self, key: PRNGKeyArray, task_state: Float[Array, "2 2"]) -> Int[Array, ""]:
        """The first state of a trial: 0."""
        del key, task_state
        return jnp.int32(0)

    def step(
        self, key: PRNGKeyArray, task_state: Float[Array, "2 2"], state: Int[Array, ""], action: Int[Array, ""]
    ) -> tuple[Float[Array, "2 2"], Int[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """One record: (task state, next state, reward, terminated)."""
        key_move, key_reward, key_walk = jax.random.split(key, 3)
        at_first = state == 0
        # First stage: action a leads to state 1 + a, rarely to the other one. Second stage: the pair's own coin, and
        # the trial ends.
        rare = jax.random.uniform(key_move) >= self.common
        following = 1 + jnp.where(rare, 1 - action, action)
        chance = task_state[jnp.maximum(state - 1, 0), action]
        paid = jax.random.uniform(key_reward) < chance
        reward = jnp.where(at_first, 0.0, paid).astype(float)
        # Reward probabilities move once a trial, after its second record.
        walked = _reflect(task_state + self.drift * jax.random.normal(key_walk, (2, 2)), self.low, self.high)
        task_state = jnp.where(at_first, task_state, walked)
        return task_state, jnp.where(at_first, following, state).astype(jnp.int32), reward, ~at_first


def _reflect(x: Float[Array, "2 2"], low: RealScalar, high: RealScalar) -> Float[Array, "2 2"]:
    """`x` folded back into [low, high] at both ends, however far it is outside."""
    width = jnp.asarray(high) - low
    phase = jnp.mod(x - low, 2.0 * jnp.maximum(width, jnp.finfo(x.dtype).tiny))
    return jnp.asarray(low + jnp.where(phase > width, 2.0 * width - phase, phase))


def two_step_log(
    first: ArrayLike,
    second_state: ArrayLike,
    second: ArrayLike,
    reward: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    subjects: Sequence[Hashable] | None = None,
) -> ChoiceLog:
    """Trials of the two-step task, one entry each, as a `ChoiceLog` of two records a trial.

    Args:
        first: Int[P N], first-stage action, 0 or 1.
        second_state: Int[P N], 1 or 2; action a of the first stage leads to 1 + a commonly.
        second: Int[P N], second-stage action, 0 or 1.
        reward: Float[P N].
        observed: Bool[P N], false for padding and missed trials; None: all were observed.
        subjects: labels of the persons.

    Raises:
        ValueError, TypeError: as `ChoiceLog`; a second-stage state that is neither 1 nor 2.
    """
    first, second_states, second = (
        np.asarray(as_indices(name, x, kind))
        for name, x, kind in (("first", first, "action"), ("second_state", second_state, "state"),
                              ("second", second, "action"))
    )  # fmt: skip
    seen = np.ones(first.shape, bool) if observed is None else np.asarray(as_mask("observed", observed))
    reward = np.asarray(reward, np.float64)
    for name, x in (("second_state", second_states), ("second", second), ("reward", reward), ("observed", seen)):
        check_shape(name, x, first.shape, "as first")
    require(seen & (second_states != 1) & (second_states != 2), "second_state", second_states, "1 or 2")
    # Two records a trial, one after the other.
    pairs = lambda one, two: np.stack([one, two], axis=-1).reshape(len(first), -1)  # noqa: E731
    zero = np.zeros_like(first)
    return ChoiceLog(
        pairs(zero, second_states),
        pairs(first, second),
        pairs(0.0 * reward, reward),
        pairs(second_states, second_states),
        pairs(zero == 1, zero == 0),
        pairs(seen, seen),
        subjects=subjects,
        states=STATES,
        actions=(0, 1),
    )
