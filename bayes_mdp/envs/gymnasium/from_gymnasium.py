"""`from_gymnasium`: an `Environment` from the transition table `unwrapped.P` of a Gymnasium environment."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.mdp import Environment, NormalReward, RewardLaw, SparseMDP
from bayes_mdp.utils.typing import ArrayLike, Index, IntScalar
from bayes_mdp.utils.validation import as_mask, check_initial, check_number, described

if TYPE_CHECKING:
    import gymnasium

Made = TypeVar("Made")


class ListedReward(eqx.Module):
    """Rewards listed by entry: given the outcome, the reward of an entry with that outcome, by its probability.

    Args:
        outcome: Int[S A E], next state of each entry, S where it ends the episode.
        probability: Float[S A E], its probability (zero pads short lists).
        value: Float[S A E], its reward.

    Example:
        >>> from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
        >>> one = jnp.ones((1, 1, 1))  # of the one pair one outcome is listed: state 1, which pays 2
        >>> law = ListedReward(one.astype(int), one, 2.0 * one)
        >>> float(law.sample(jax.random.key(0), (0, 0), 1))
        2.0
    """

    outcome: Int[Array, "S A E"]
    probability: Float[Array, "S A E"]
    value: Float[Array, "S A E"]

    def sample(self, key: PRNGKeyArray, cell: Index, outcome: IntScalar) -> Float[Array, ""]:
        """One reward (see `RewardLaw`)."""
        # Inversion, among the entries with this outcome alone; the total need not be one.
        weight = jnp.cumsum(jnp.where(self.outcome[cell] == outcome, self.probability[cell], 0.0))
        u = jax.random.uniform(key, dtype=weight.dtype)
        return self.value[cell][jnp.sum(u * weight[-1] >= weight[:-1], dtype=int)]


def from_gymnasium(
    id_or_env: "str | gymnasium.Env", *, initial: ArrayLike | None = None, import_module: bool = False
) -> Environment:
    """A Gymnasium environment by its table `unwrapped.P[s][a] = [(probability, next_state, reward, terminated), ...]`.

    Repeated entries are added; `terminated` entries become the end of the episode, whatever next state they list (a
    time limit of a wrapper is no part of it). Rows are a `SparseMDP`. The mean reward is that of the table, and so
    is the law: a reward that is the same for all entries of a pair is paid as it is; otherwise it is drawn given
    the outcome (entries with one outcome and several rewards keep their probabilities). An action without entries
    is illegal.

    Args:
        id_or_env: an id such as "Taxi-v4", or an environment.
        initial: Float[S], distribution of the first state; None: the environment's `initial_state_distrib`.
        import_module: whether an id of the form "module:Env-v0" may import the module, which runs its code.

    Raises:
        ValueError: an id that Gymnasium cannot make or that would import a module, no table, no initial distribution
            or one of another length, a next state out of range, a row that does not sum to one.
        TypeError: neither an id nor a Gymnasium environment, an initial distribution that holds no numbers.

    Example:
        >>> env = bm.envs.from_gymnasium("FrozenLake-v1")
        >>> env.mdp.n_states, env.mdp.n_actions
        (16, 4)
    """
    if not isinstance(id_or_env, str) and not hasattr(id_or_env, "unwrapped"):
        raise TypeError(f"id_or_env is {described(id_or_env)}, expected an id or a Gymnasium environment")
    made = id_or_env
    if isinstance(id_or_env, str):
        import gymnasium

        made = make_by_id(gymnasium.make, "id_or_env", id_or_env, import_module=import_module)
    assert not isinstance(made, str)
    inner = made.unwrapped
    name = type(inner).__name__ if inner.spec is None else inner.spec.id
    table = getattr(inner, "P", None)
    if table is None:
        raise ValueError(
            f"{name} has no table unwrapped.P, expected one (as FrozenLake-v1, Taxi-v4, CliffWalking-v1 have)"
        )
    initial = getattr(inner, "initial_state_distrib", None) if initial is None else initial
    if initial is None:
        raise ValueError(
            f"initial is None and {name} has no initial_state_distrib, expected a distribution over states"
        )
    check_initial(initial, len(table))
    initial = np.asarray(initial)
    probability, outcome, value = _entries(table)
    # An action without an entry of positive probability is illegal.
    used = probability > 0
    legal = np.asarray(used.any(-1))
    mdp = _mdp(probability, outcome, value, None if legal.all() else legal, initial)
    # A law of its own is only needed where the entries of a pair pay different rewards.
    low, high = (f(np.where(used, value, fill), -1) for f, fill in ((np.min, np.inf), (np.max, -np.inf)))
    law: RewardLaw = NormalReward(mdp.reward)
    if np.any((low < high) & legal):
        law = ListedReward(jnp.asarray(outcome), jnp.asarray(probability, float), jnp.asarray(value, float))
    return Environment(mdp, law, name=name)


def _entries(table: Mapping[int, Mapping[int, Sequence[object]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probability, outcome (next state, S for an end), reward of every entry: [S A E], padded with probability zero."""
    n_states, n_actions = len(table), len(table[0])
    lists = [[table[s][a] for a in range(n_actions)] for s in range(n_states)]
    length = max(1, *(len(entries) for row in lists for entries in row))
    probability, value = (np.zeros((n_states, n_actions, length)) for _ in range(2))
    outcome = np.zeros((n_states, n_actions, length), int)
    for s, row in enumerate(lists):
        for a, entries in enumerate(row):
            for e, entry in enumerate(entries):
                p, next_state, reward, terminated = _entry(f"P[{s}][{a}]", entry, n_states)
                probability[s, a, e], value[s, a, e] = p, reward
                outcome[s, a, e] = n_states if terminated else next_state
    return probability, outcome, value


def _entry(where: str, entry: object, n_states: int) -> tuple[float, int, float, bool]:
    """An entry of the table, each of its parts checked."""
    if not isinstance(entry, Sequence) or len(entry) != 4:
        raise ValueError(f"{where} lists {entry!r}, expected (probability, next_state, reward, terminated)")
    p, next_state, reward, terminated = entry
    check_number(f"{where}: probability", p, lambda x: 0.0 <= x <= 1.0, "a number from 0 to 1")
    if not isinstance(next_state, (int, np.integer)) or not 0 <= next_state < n_states:
        raise ValueError(f"{where} lists next state {next_state!r}, expected 0 to {n_states - 1}")
    check_number(f"{where}: reward", reward, np.isfinite, "a finite number")
    return float(p), int(next_state), float(reward), bool(as_mask(f"{where}: terminated", terminated))


def _mdp(
    probability: np.ndarray, outcome: np.ndarray, value: np.ndarray, legal: np.ndarray | None, initial: np.ndarray
) -> SparseMDP:
    """Rows with the entries of one next state added; an illegal action stays where it is."""
    n_states, n_actions, _ = probability.shape
    rows = []
    for s, a in np.ndindex(n_states, n_actions):
        row: dict[int, float] = {}
        for p, z in zip(probability[s, a], outcome[s, a], strict=True):
            if p > 0 and z < n_states:
                row[z] = row.get(z, 0.0) + p
        rows.append(row if legal is None or legal[s, a] else {s: 1.0})
    # Padded with successor 0 of probability zero.
    length = max(1, *map(len, rows))
    successor = np.array([[*row, *[0] * (length - len(row))] for row in rows], int)
    listed = np.array([[*row.values(), *[0.0] * (length - len(row))] for row in rows], float)
    ends = np.sum(probability * (outcome == n_states), -1)
    return SparseMDP(
        successor.reshape(n_states, n_actions, length),
        listed.reshape(n_states, n_actions, length),
        np.sum(probability * value, -1),
        end_probs=ends if ends.any() else None,
        legal=legal,
        initial=initial,
    )


def make_by_id(
    make: Callable[[str], Made],
    name: str,
    value: str,
    *,
    import_module: bool,
    otherwise: str = "import_module=True",
) -> Made:
    """What `make` of Gymnasium makes of an id, unless that would import a module without being requested.

    Args:
        make: `gymnasium.make`, or `gymnasium.make_vec` with its arguments.
        name: of the argument, for the sentence.
        value: the id.
        import_module: whether an import was requested.
        otherwise: how it can be, for the sentence.

    Raises:
        ValueError: the id names a module, and that was not requested; Gymnasium cannot make it.
    """
    import gymnasium

    module, colon, _ = value.partition(":")
    if colon and not import_module:
        raise ValueError(
            f"{name} is {value!r}, which would import the module {module!r}, expected a registered id, or {otherwise}"
        )
    try:
        return make(value)
    except (gymnasium.error.Error, ImportError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{name} is {value!r}, expected an id that Gymnasium can make ({why})") from error
