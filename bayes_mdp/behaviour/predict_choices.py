"""Choices that a fitted model predicts: one step ahead given the observed past, or running freely in the task."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from bayes_mdp.behaviour.choice_log import ChoiceLog
from bayes_mdp.behaviour.fit_behaviour import BehaviourPosterior
from bayes_mdp.behaviour.likelihood import filtered_log_probs, of_choices
from bayes_mdp.behaviour.simulate_choices import Task, simulate
from bayes_mdp.mdp import Environment
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_count, check_key, check_type


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
    for i, one in enumerate(jax.random.split(key, len(posterior.thinned(num_draws)))):
        each = {name: x[i] for name, x in params.items()}
        run = simulate(
            one, posterior.model, each, environment, log.state.shape[1], num_persons=log.num_subjects, horizon=horizon
        )
        sizes = (len(run.states), len(run.actions))
        if sizes != (len(log.states), len(log.actions)):
            raise ValueError(
                f"environment has {sizes[0]} states and {sizes[1]} actions, expected {len(log.states)} and "
                f"{len(log.actions)} as in the log"
            )
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
        key, each = x
        log_probs = filtered_log_probs(posterior.model, each, log)
        drawn = jax.random.categorical(key, log_probs)
        taken = drawn[..., None] == jnp.arange(log_probs.shape[-1])
        of_drawn = jnp.sum(jnp.where(log.observed, jnp.sum(jnp.where(taken, log_probs, 0.0), -1), 0.0))
        return drawn, jnp.sum(of_choices(log_probs, log)), of_drawn

    return jax.lax.map(one, (keys, jax.tree.map(lambda x: jnp.asarray(x, float), params)))
