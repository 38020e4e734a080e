"""Choices that a model makes: persons that choose in an environment (`simulate`), and predictions of a fitted model,
one step ahead given the observed past (`predict_choices`) or running freely in the task (`predict_freely`).
"""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from bayes_mdp.behaviour.behaviour_model import BehaviourModel, Params, check_model, person_params
from bayes_mdp.behaviour.choice_log import ChoiceLog
from bayes_mdp.behaviour.fit_behaviour import BehaviourPosterior
from bayes_mdp.behaviour.likelihood import of_choices, policy_log_probs
from bayes_mdp.mdp import Environment, Transitions
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.typing import AnyArray, IntScalar
from bayes_mdp.utils.validation import check_count, check_key, check_type, described, require_alike

Records = tuple[Array, Array, Array, Array, Array]
"""State, action, reward, next state, terminated."""


@runtime_checkable
class Task(Protocol):
    """An environment whose law changes over time, such as `TwoStepTask`. Pure functions, traced by JAX."""

    @property
    def states(self) -> Sequence[Hashable]:
        """Labels of the states, in the order of their indices."""
        ...

    @property
    def actions(self) -> Sequence[Hashable]:
        """Labels of the actions, in the order of their indices."""
        ...

    def reset(self, key: PRNGKeyArray) -> PyTree:
        """What the task is like for one person before the first trial: any tree of arrays.

        Args:
            key: of what the task is like for this person.
        """
        ...

    def begin(self, key: PRNGKeyArray, task_state: PyTree) -> Int[Array, ""]:
        """The first state of a trial.

        Args:
            key: of the first state.
            task_state: from `reset` or the last `step`.
        """
        ...

    def step(
        self, key: PRNGKeyArray, task_state: PyTree, state: Int[Array, ""], action: Int[Array, ""]
    ) -> tuple[PyTree, Int[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """One choice: (task state, next state, reward, terminated).

        Args:
            key: of the transition and of what changes.
            task_state: from `reset` or the last `step`.
            state: index of the state.
            action: index of the action.
        """
        ...


class _EnvironmentTask(eqx.Module):
    """An `Environment` as a task: it does not change; its state is the step of the episode."""

    environment: Environment
    horizon: int | None = eqx.field(static=True)

    @property
    def states(self) -> tuple[Hashable, ...]:
        return tuple(range(self.environment.mdp.n_states))

    @property
    def actions(self) -> tuple[Hashable, ...]:
        return tuple(range(self.environment.mdp.n_actions))

    def reset(self, key: PRNGKeyArray) -> Int[Array, ""]:
        del key
        return jnp.int32(0)

    def begin(self, key: PRNGKeyArray, task_state: Int[Array, ""]) -> Int[Array, ""]:
        del task_state
        return self.environment.reset(key).astype(jnp.int32)

    def step(
        self, key: PRNGKeyArray, task_state: Int[Array, ""], state: IntScalar, action: IntScalar
    ) -> tuple[Int[Array, ""], Int[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        # The state of the task is the step: rows may depend on it.
        following, reward, ended = self.environment.step(key, state, action, task_state)
        return (task_state + 1).astype(jnp.int32), following.astype(jnp.int32), reward.astype(float), ended


@accepts_moved("behaviour.simulate")
def simulate(
    key: PRNGKeyArray,
    model: BehaviourModel,
    params: Params,
    environment: Environment | Task,
    num_choices: int,
    *,
    horizon: int | None = None,
    subjects: int | Sequence[Hashable] | None = None,
) -> ChoiceLog:
    """Choices of simulated persons, all at once.

    Args:
        key: a typed key.
        model: how they choose and learn.
        params: name -> one number, or [P].
        environment: an `Environment`, or a `Task`. After an end, and after `horizon` choices, an episode begins.
        num_choices: of each person (of the two-step task: twice the number of trials).
        horizon: choices of an episode (of `Episodic(horizon)`); None: an episode goes on until it ends.
        subjects: P, where all parameters are numbers, or labels of the P persons; None: as many as the parameters say,
            else 1.

    Raises:
        ValueError, TypeError: as `log_likelihood`; an environment that is neither.
    """
    check_model(model)
    check_key("key", key)
    check_count("num_choices", num_choices)
    if horizon is not None:
        check_count("horizon", horizon)
    # How many persons the parameters are of.
    sizes = {np.shape(x)[0] for x in params.values() if np.ndim(x)}
    if subjects is None or (isinstance(subjects, Sequence) and not isinstance(subjects, str)):
        labels, persons = subjects, max(sizes, default=1 if subjects is None else len(subjects))
    else:
        check_count("subjects", subjects)
        labels, persons = None, int(subjects)
    task, ends = as_task(environment, horizon)
    by_person = person_params(model, params, persons)
    # One key each: more persons leave the choices of the first ones as they are.
    keys = jax.random.split(key, persons)
    columns = simulate_records(keys, model, by_person, task, num_choices, horizon)
    state, action, reward, following, ended = (np.asarray(x) for x in columns)
    # Without ends there is no column of them.
    flags = ended if ends else None
    names: dict[str, Any] = {"states": task.states, "actions": task.actions, "subjects": labels}
    return ChoiceLog(state, action, reward, following, flags, **names)


def as_task(environment: Environment | Task, horizon: int | None) -> tuple[Task, bool]:
    """The environment as a task, and whether its episodes can end.

    Raises:
        TypeError: it is neither an `Environment` nor a `Task`.
    """
    if isinstance(environment, Environment):
        # What ends depends on the rows of the environment.
        return cast(Task, _EnvironmentTask(environment, horizon)), environment.mdp.end_probs is not None
    if isinstance(environment, Task) and not isinstance(environment, type):
        return environment, True
    raise TypeError(f"environment is {described(environment)}, expected an Environment or a Task")


@eqx.filter_jit
def simulate_records(
    keys: Key[Array, " P"],
    model: BehaviourModel,
    params: dict[str, Float[Array, " P"]],
    task: Task,
    num_choices: int,
    horizon: int | None,
) -> Records:
    """The columns of `simulate`, [P T] each. Traceable."""

    def person(key: PRNGKeyArray, params: dict[str, Float[Array, ""]]) -> Records:
        key_task, key_first, key_rest = jax.random.split(key, 3)
        # What the task is like for this person, kept over all choices.
        start = task.reset(key_task)

        def step(
            carry: tuple[PyTree, PyTree, Array], t: Int[Array, ""]
        ) -> tuple[tuple[PyTree, PyTree, Array], Records]:
            learnt, task_state, state = carry
            # By the number of the choice: a longer run begins with the same choices.
            key_action, key_step, key_begin = jax.random.split(jax.random.fold_in(key_rest, t), 3)
            action = jax.random.categorical(key_action, model.policy(params, learnt, state)).astype(jnp.int32)  # type: ignore[arg-type]
            task_state, following, reward, ended = task.step(key_step, task_state, state, action)
            record = Transitions(state, action, reward, following, ended)
            new = model.update(params, learnt, record)  # type: ignore[arg-type]
            require_alike("model.update", learnt, new, "model.init")
            episode_over = ended if horizon is None else ended | ((t + 1) % horizon == 0)
            # The step of an episode starts again; what a `Task` keeps lives on from episode to episode.
            if horizon is not None and isinstance(task, _EnvironmentTask):
                task_state = jnp.where(episode_over, 0, task_state)
            # After an episode a new first state, else where the choice led.
            begun = jnp.where(episode_over, task.begin(key_begin, task_state), following)
            return (new, task_state, begun), (state, action, reward, following, ended)

        learnt = jax.tree.map(jnp.asarray, model.init(params))  # type: ignore[arg-type]
        first = (learnt, start, task.begin(key_first, start))
        return lax.scan(step, first, jnp.arange(num_choices))[1]

    return jax.vmap(person)(keys, params)


def predict_choices(
    key: PRNGKeyArray, posterior: BehaviourPosterior, *, num_draws: int = 100
) -> Int[np.ndarray, "D P T"]:
    """Actions drawn one step ahead: each given the person's observed past, under one draw of the posterior.

    Args:
        key: a typed key.
        posterior: as `fit` returns it.
        num_draws: D, thinned evenly.

    Raises:
        TypeError, ValueError: an argument of another type.
    """
    check_key("key", key)
    check_type("posterior", posterior, BehaviourPosterior, "what bayes_mdp.behaviour.fit returns")
    check_count("num_draws", num_draws)
    params: dict[str, AnyArray] = dict(posterior.each_person(num_draws))
    # One key a draw, all persons in it.
    keys = jax.random.split(key, len(posterior.thinned(num_draws)))
    return np.asarray(_one_step(keys, posterior, params)[0])


def predict_freely(
    key: PRNGKeyArray,
    posterior: BehaviourPosterior,
    environment: Environment | Task,
    *,
    num_draws: int = 100,
    horizon: int | None = None,
) -> list[ChoiceLog]:
    """Persons with the parameters of draws of the posterior, in the task from the start: one log for each draw.

    Each history is as long as that of the person in the data, with the same missed choices.

    Args:
        key: a typed key.
        posterior: as `fit` returns it.
        environment, horizon: as for `simulate`; its states and actions are those of the log, in their order.
        num_draws: thinned evenly.

    Raises:
        TypeError, ValueError: as `simulate`; an environment with other numbers of states or actions.
    """
    check_key("key", key)
    check_type("posterior", posterior, BehaviourPosterior, "what bayes_mdp.behaviour.fit returns")
    check_count("num_draws", num_draws)
    log, made = posterior.log, []
    params = posterior.each_person(num_draws)
    for i, draw_key in enumerate(jax.random.split(key, len(posterior.thinned(num_draws)))):
        # Parameters [P] of this draw.
        params_of_draw = {name: x[i] for name, x in params.items()}
        run = simulate(
            draw_key,
            posterior.model,
            params_of_draw,
            environment,
            log.state.shape[1],
            subjects=log.num_subjects,
            horizon=horizon,
        )
        sizes = (len(run.states), len(run.actions))
        if sizes != (len(log.states), len(log.actions)):
            raise ValueError(
                f"environment has {sizes[0]} states and {sizes[1]} actions, expected {len(log.states)} and "
                f"{len(log.actions)} as in the log"
            )
        # Choices that the person missed are missing here too.
        columns = (run.state, run.action, run.reward, run.next_state, run.terminated, np.asarray(log.observed))
        made.append(ChoiceLog(*columns, subjects=log.subjects, states=log.states, actions=log.actions))
    return made


def one_step_fit(
    key: PRNGKeyArray, posterior: BehaviourPosterior, num_draws: int
) -> tuple[Int[np.ndarray, "D P T"], Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
    """Actions one step ahead, and the log-likelihood of the data and of these actions under each draw."""
    keys = jax.random.split(key, len(posterior.thinned(num_draws)))
    actions, of_data, of_drawn = _one_step(keys, posterior, dict(posterior.each_person(num_draws)))
    return np.asarray(actions), np.asarray(of_data), np.asarray(of_drawn)


@eqx.filter_jit
def _one_step(
    keys: Key[Array, " D"], posterior: BehaviourPosterior, params: dict[str, Float[AnyArray, "D P"]]
) -> tuple[Int[Array, "D P T"], Float[Array, " D"], Float[Array, " D"]]:
    log = posterior.log

    def one(x: tuple[PRNGKeyArray, dict[str, Float[Array, " P"]]]) -> tuple[Array, Array, Array]:
        key, params_of_draw = x
        log_probs = policy_log_probs(posterior.model, params_of_draw, log)
        # The policy before every choice, given the observed past.
        # Actions do not enter the state of the next choice: the past is the observed one, so all are drawn at once.
        drawn = jax.random.categorical(key, log_probs)
        # The log-likelihood of what was chosen, and of what was drawn, on the records that were observed.
        of_data, of_drawn = (jnp.sum(of_choices(log_probs, x, log.observed)) for x in (log.action, drawn))
        return drawn, of_data, of_drawn

    return jax.lax.map(one, (keys, jax.tree.map(lambda x: jnp.asarray(x, float), params)))
