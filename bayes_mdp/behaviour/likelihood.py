"""The likelihood of choices: every person's history filtered through a model, all persons in one compiled scan."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from bayes_mdp.behaviour.behaviour_model import BehaviourModel, Params, check_model, person_params
from bayes_mdp.behaviour.choice_log import ChoiceLog
from bayes_mdp.mdp import Transitions
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_type, is_concrete, require_alike


def log_likelihood(model: BehaviourModel, params: Params, log: ChoiceLog) -> Float[Array, "P T"]:
    """Log-probability of every choice given the person's past and parameters; 0 where none was observed.

    The sum over a row is the likelihood of a person, exact: the model is filtered through the observed history, whose
    states and rewards are taken as they were and not counted. Traceable, and differentiable where the model is; in
    JAX's default width.

    Args:
        model: see `BehaviourModel`.
        params: name -> one number, or [P].
        log: the choices.

    Raises:
        ValueError: parameters that are not those of the model, or outside their support; a choice of probability 0
            (named; under tracing it is -inf).
        TypeError: no model, no log; a state that changes its structure, shapes or dtypes.
    """
    check_model(model)
    check_type("log", log, ChoiceLog, "a ChoiceLog")
    log_probs = action_log_likelihood(model, person_params(model, params, log.num_subjects), log)
    if is_concrete(log_probs):
        check_possible(log_probs, log)
    return log_probs


def choice_log_probs(model: BehaviourModel, params: Params, log: ChoiceLog) -> Float[Array, "P T A"]:
    """Log-probability of every action before each choice (one step ahead, given the observed past).

    Where no choice was observed the entries have no meaning.

    Args:
        model, params, log: as of `log_likelihood`.

    Raises:
        TypeError: no model, no `ChoiceLog`.
    """
    check_model(model)
    check_type("log", log, ChoiceLog, "a ChoiceLog")
    return policy_log_probs(model, person_params(model, params, log.num_subjects), log)


def check_possible(found: Float[Array, "P T"], log: ChoiceLog) -> None:
    """Refuse a log with a choice that the model cannot make. Host side.

    Raises:
        ValueError: names the first.
    """
    values = np.asarray(found)
    bad = np.argwhere(~np.isfinite(values))
    if not len(bad):
        return
    person, record = (int(i) for i in bad[0])
    action, state = (names[int(np.asarray(x)[person, record])] for names, x in
                     ((log.actions, log.action), (log.states, log.state)))  # fmt: skip
    problem = "has probability 0" if np.isneginf(values[person, record]) else "has a probability that is no number"
    raise ValueError(
        f"action {action!r} in state {state!r} ({log.place(person, record)}) {problem} under the model, expected "
        "choices that it can make: give it a temperature or a lapse (LearnerChoices(lapse=True))"
    )


def action_log_likelihood(
    model: BehaviourModel, params: dict[str, Float[Array, " P"]], log: ChoiceLog
) -> Float[Array, "P T"]:
    """As `log_likelihood`, without checks of values. Traceable."""
    # In JAX's default widths: a program in float32 cannot hold float64 arrays of the host as constants.
    return _log_likelihood(model, params, jax.tree.map(jnp.asarray, log))


def policy_log_probs(
    model: BehaviourModel, params: dict[str, Float[Array, " P"]], log: ChoiceLog
) -> Float[Array, "P T A"]:
    """As `choice_log_probs`, without checks of values. Traceable."""
    return _filter(model, params, jax.tree.map(jnp.asarray, log))


@eqx.filter_jit
def _log_likelihood(
    model: BehaviourModel, params: dict[str, Float[Array, " P"]], log: ChoiceLog
) -> Float[Array, "P T"]:
    return of_choices(_filter(model, params, log), log.action, log.observed)


def of_choices(
    log_probs: Float[Array, "P T A"], action: Int[AnyArray, "*sample P T"], observed: Bool[AnyArray, "P T"]
) -> Float[Array, "*sample P T"]:
    """The entries of the actions taken; 0 where no choice was observed. Traceable."""
    taken = jnp.asarray(action)[..., None] == jnp.arange(log_probs.shape[-1])
    # `where`, not a product: 0 * -inf of an action not taken is no number. A sum over a mask is no scatter backwards.
    of_action = jnp.sum(jnp.where(taken, log_probs, 0.0), axis=-1)
    return jnp.where(observed, of_action, 0.0)


@eqx.filter_jit
def _filter(model: BehaviourModel, params: dict[str, Float[Array, " P"]], log: ChoiceLog) -> Float[Array, "P T A"]:
    """Log-probabilities of all actions.

    One scan over time of the update, vmapped over persons; then the policies of all records at once where the numbers
    that takes fit into `_MOST_BYTES` (a quarter faster), else inside the scan.
    """
    # Records that were not observed repeat another of the person: what is computed from them is finite.
    full = log.fill_missing()
    by_time = lambda x: None if x is None else jnp.swapaxes(jnp.asarray(x), 0, 1)  # noqa: E731
    reward = jnp.swapaxes(jnp.asarray(full.reward, float), 0, 1)
    seen_states = jnp.swapaxes(jnp.asarray(full.state), 0, 1)
    index = (seen_states, by_time(full.action))
    records = Transitions(*index, reward, by_time(full.next_state), by_time(full.terminated))  # type: ignore[arg-type]
    all_observed = is_concrete(log.observed) and bool(np.all(log.observed))
    first = jax.tree.map(jnp.asarray, jax.vmap(model.init, axis_size=log.num_subjects)(params))
    policies = jax.vmap(model.policy)
    # The states are sequential, the policies are not: one batched call for all records where it fits into memory.
    together = _bytes(model, params, first, records) * records.state.size <= _MOST_BYTES

    def step(state: PyTree, x: tuple[Transitions, Bool[Array, " P"] | None]) -> tuple[PyTree, PyTree]:
        record, seen = x
        out = state if together else policies(params, state, jnp.asarray(record.state))
        new = jax.vmap(model.update)(params, state, record)
        require_alike("model.update", state, new, "model.init", batch_axes=1)
        if seen is not None:
            # A record that was not observed leaves the state as it is.
            keep = lambda a, b: jnp.where(seen.reshape(-1, *(1,) * (jnp.ndim(b) - 1)), a, b)  # noqa: E731
            new = jax.tree.map(keep, new, state)
        return new, out

    _, out = lax.scan(step, first, (records, None if all_observed else by_time(log.observed)))
    log_probs = jax.vmap(policies, in_axes=(None, 0, 0))(params, out, seen_states) if together else out
    return jnp.swapaxes(log_probs, 0, 1)


_MOST_BYTES = 2**28


def _bytes(model: BehaviourModel, params: dict[str, Float[Array, " P"]], first: PyTree, records: Transitions) -> int:
    """Memory that the state and the policy of one record take, every number on the way to it counted."""
    first_row = lambda tree: jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), tree)  # noqa: E731
    place = jax.ShapeDtypeStruct((), records.state.dtype)
    jaxpr = jax.make_jaxpr(model.policy)(first_row(params), first_row(first), place).jaxpr
    shapes = [v.aval for eqn in jaxpr.eqns for v in eqn.outvars] + [v.aval for v in jaxpr.invars]
    return sum(8 * int(np.prod(getattr(aval, "shape", ()))) for aval in shapes)
