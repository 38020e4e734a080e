"""`warn_counted_twice`: data that a program observes itself and that look like the log that it is given. Host-side."""

import math
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from bayes_mdp.inference.detection.probe import Probe
from bayes_mdp.inference.detection.trace import Program, run_program
from bayes_mdp.mdp import Counts, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import check_transitions
from bayes_mdp.models.reward_laws import unwrap
from bayes_mdp.utils.messages import see, warn_user

SLICE = 20
"""Values of a site that are looked for among the rewards of the data, at least."""
CHANCE = 1e-6
PLACES = 100
"""Places where the first `SLICE` values fit that are looked at in full."""


def warn_counted_twice(program: Program, data: Transitions | Counts) -> None:
    """A UserWarning for each site of the program whose observed values may be the data that are given besides.

    Looked at are their number (that of the rows or of the rewards) and, where sizes allow, the values: rewards, next
    states, counts of outcomes, numbers of visits; and at least 20 rewards that follow each other. It is a heuristic:
    other parts of the log inside the program go unseen, and other data can be as many.

    Args:
        program: the prior.
        data: what it is conditioned on besides.

    Raises:
        ValueError, TypeError: data that the space cannot hold.
    """
    if not program.observed:
        return
    if isinstance(data, Transitions):
        check_transitions(data, program.space)
    # Values of the program's observations, by running it once.
    for name, (values, rows) in _data_of_program(program).items():
        like = _likeness(np.asarray(values), rows, data, program.space)
        # What is known, and tells nothing of a site (conditioned, substituted), is no observation.
        if like and name not in Probe(program).constants:
            warn_user(
                f"prior: site {name!r} is observed in the program, and {like}: observations of the program count on "
                "top of data, so that the same data may be counted twice; leave the site out where it holds the log "
                + see("how-to/write-a-prior")
            )


def _likeness(values: np.ndarray, rows: int, data: Transitions | Counts, space: StateActionSpace) -> str:
    """In what the values of a site are like the data, in words; empty: in nothing."""
    # Whole columns first, then runs of rewards, then numbers alone: from strong to weak evidence.
    for column_name, column in _columns(data, space, values.size).items():
        if values.size == column.size and np.allclose(values.ravel(), column.ravel(), rtol=1e-6, atol=1e-9):
            return f"its values are the {column_name} of data"
    if _is_slice(values.ravel(), data):
        return f"its {values.size} values are rewards of data that follow each other"
    number, rewards = _sizes(data)
    # One value is no evidence: a log of one row is too common in examples.
    if rows > 1 and rows in (number, rewards):
        return f"it has {rows} values, as many as data has {'rows' if rows == number else 'rewards'}"
    return ""


def _is_slice(values: np.ndarray, data: Transitions | Counts) -> bool:
    """Whether the values are a run of the rewards of the data, row by row, and are so beyond chance.

    Beyond chance: rewards drawn one by one with the frequencies of the log would hold such a run with a probability of
    at most `CHANCE`. A run of zeros in a log of zeros is none.
    """
    if not isinstance(data, Transitions) or data.reward is None or values.size < SLICE:
        return False
    rewards = _rewards(data)
    places = np.arange(rewards.size - values.size + 1)
    # The first values leave few places; there all values are compared.
    for k in range(SLICE):
        places = places[np.isclose(rewards[places + k], values[k], rtol=1e-6, atol=1e-9)]
    for place in places[:PLACES]:
        run = rewards[place : place + values.size]
        if np.allclose(values, run, rtol=1e-6, atol=1e-9):
            # The probability that such a run occurs somewhere by chance: frequencies multiplied, times the number of
            # places.
            _, kind, count = np.unique(rewards, return_inverse=True, return_counts=True)
            chance = np.log(count / rewards.size)[kind[place : place + values.size]].sum() + np.log(rewards.size)
            return bool(chance <= np.log(CHANCE))
    return False


def _rewards(data: Transitions) -> np.ndarray:
    """The observed rewards, in the order of the rows."""
    reward = np.asarray(data.reward, float)
    return reward if data.reward_observed is None else reward[np.asarray(data.reward_observed, bool)]


def _sizes(data: Transitions | Counts) -> tuple[float, float]:
    """Numbers of transitions and of observed rewards."""
    if isinstance(data, Counts):
        return float(np.sum(data.transitions)), float(np.sum(data.reward_count))
    number = int(np.size(data.state))
    if data.reward is None:
        return number, 0
    return number, number if data.reward_observed is None else int(np.sum(data.reward_observed))


def _columns(data: Transitions | Counts, space: StateActionSpace, size: int) -> dict[str, np.ndarray]:
    """What values of a site are compared with; tables of counts only where they have its size."""
    columns: dict[str, np.ndarray] = {}
    if isinstance(data, Transitions):
        if data.reward is not None:
            columns["rewards"] = _rewards(data)
        columns["next states"] = np.asarray(data.with_next_state().next_state, float)
    pairs = math.prod(space.shape)
    # Tables of counts only where the sizes agree: they are costly.
    if size in (pairs, pairs * space.n_outcomes):
        counts = data if isinstance(data, Counts) else Counts.of(data, space)
        transitions = np.asarray(counts.transitions, float)
        columns["counts"] = transitions
        columns["numbers of visits"] = transitions.sum(-1)
    return columns


@lru_cache(maxsize=64)
def _data_of_program(program: Program) -> dict[str, tuple[np.ndarray, int]]:
    """{site that the program observes: (its values, in how many rows)}."""
    rows: dict[str, int] = {}

    def run(key: PRNGKeyArray) -> dict[str, Array]:
        _, trace = run_program(program.prior, program.space, key=key)
        for name, _ in program.observed:
            # A vector or a matrix is one value of a multivariate law, and many of a law made of independent ones.
            shape, law = np.shape(trace[name]["value"]), unwrap(trace[name]["fn"])
            rows[name] = math.prod(shape[: len(shape) - law.event_dim])
        return {name: jnp.asarray(trace[name]["value"]) for name, _ in program.observed}

    values = jax.tree.map(np.asarray, jax.jit(run)(jax.random.key(0)))
    return {name: (values[name], rows[name]) for name in values}
