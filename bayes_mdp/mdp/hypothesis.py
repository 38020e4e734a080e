# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""A hypothesis about the MDP: `MDP` (dense rows), `SparseMDP` (listed successors), `unroll`, `restart_at_ends`."""

from collections.abc import Sequence
from functools import partial
from typing import Any, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.numerics.numpy_or_jax import has_jax_array, pick
from bayes_mdp.numerics.products import einsum
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar
from bayes_mdp.utils.validation import (
    as_floats,
    as_indices,
    as_mask,
    as_real,
    at,
    check_count,
    check_finite,
    check_index,
    check_initial,
    check_probabilities,
    check_probability_rows,
    check_shape,
    check_type,
    first_index,
    if_given,
    is_concrete,
    require,
)


def _mask(name: str, values: object) -> Array:
    return jnp.asarray(as_mask(name, values), dtype=bool)


_NAMES_LEGAL = " (an action that a state does not have is False in legal=[state, action])"
_ENDS, _INITIAL = if_given(as_floats, "end_probs"), if_given(as_floats, "initial")


def _is_sparse(matrix: object) -> bool:
    """Whether it is a sparse matrix or array of SciPy, which need not be loaded for that."""
    return type(matrix).__module__.partition(".")[0] == "scipy" and hasattr(matrix, "tocoo")


def _dense(name: str, values: Any) -> Any:
    """A list of one sparse matrix [S S'] for each action as an array [S A S']; anything else as it is."""
    if not isinstance(values, (list, tuple)) or not any(map(_is_sparse, values)):
        return values
    shapes = {np.shape(matrix) for matrix in values}
    if not all(map(_is_sparse, values)) or len(shapes) > 1:
        raise ValueError(f"{name} is a list of matrices of shapes {sorted(shapes)}, expected a sparse one per action")
    return np.stack([matrix.toarray() for matrix in values], axis=-2)


def _csr(name: str, matrix: Any) -> Any:
    """A matrix [L S'], sparse or not, as a sparse one by rows, each entry once."""
    from scipy.sparse import csr_array

    made = csr_array(matrix if _is_sparse(matrix) else as_real(name, matrix))
    made.sum_duplicates()
    return made


def _rows_as_lists(
    size: int, n_actions: int, pairs: list[tuple[np.ndarray, np.ndarray, Any]]
) -> tuple[Int[np.ndarray, "S A K"], Float[np.ndarray, "S A K"]]:
    """Successors (-1: none) and their probabilities.

    Args:
        pairs: (state, action, sparse matrix) of rows.
    """
    longest = max((int(np.diff(rows.indptr).max(initial=0)) for *_, rows in pairs), default=0)
    shape = (size, n_actions, max(longest, 1))
    successor, probability = np.full(shape, -1), np.zeros(shape)
    for state, action, rows in pairs:
        row = np.repeat(np.arange(len(state)), np.diff(rows.indptr))
        place = np.arange(len(row)) - rows.indptr[row]
        successor[state[row], action[row], place] = rows.indices
        probability[state[row], action[row], place] = rows.data
    return successor, probability


def _mean_reward(reward: Any, by_outcome: Any, probs: Any, end_probs: Any) -> Any:
    """The reward, or the mean over outcomes of rewards that depend on them."""
    if by_outcome is None:
        if reward is None:
            raise TypeError("reward is None, expected [state, action], or reward_by_outcome, [state, action, outcome]")
        if np.ndim(reward) >= 3 and np.shape(reward) == np.shape(probs):
            raise ValueError(
                f"reward has shape {np.shape(reward)}, that of the rows, expected [state, action]; rewards of next "
                "states are reward_by_outcome="
            )
        return reward
    if reward is not None:
        raise ValueError("reward and reward_by_outcome are both given, expected one of them")
    xp: Any = np if is_concrete(probs, end_probs, by_outcome) else jnp
    next_probs = xp.asarray(probs, float)
    if end_probs is not None:
        next_probs = xp.concatenate([next_probs, xp.asarray(end_probs, float)[..., None]], -1)
    paid = xp.asarray(_dense("reward_by_outcome", by_outcome), float)
    last = "" if end_probs is None else " and, last, the end"
    check_shape("reward_by_outcome", paid, next_probs.shape, f"as the probabilities of the next states{last}")
    # What cannot happen may have any reward, -inf too.
    return xp.sum(xp.where(next_probs > 0, paid, 0.0) * next_probs, -1)


def _without_illegal(probs: Any, reward: Any, legal: Any, end_probs: Any) -> tuple[Any, Bool[np.ndarray, "..."] | None]:
    """The reward, zero where a pair is illegal and it is not finite; and which illegal pairs have an empty row."""
    if legal is None or not is_concrete(probs, reward, legal, end_probs):
        return reward, None
    try:
        rows, paid, exists = np.asarray(probs, float), np.asarray(reward, float), np.asarray(legal, bool)
        infinite = ~exists & ~np.isfinite(paid)
        empty = ~exists & (rows == 0).all(-1)
        if end_probs is not None:
            empty = empty & (np.asarray(end_probs, float) == 0)
    except (TypeError, ValueError):  # what does not fit is refused where it is checked
        return reward, None
    return np.where(infinite, 0.0, paid) if infinite.any() else reward, empty if empty.any() else None


class _Hypothesis(eqx.Module):
    """What dense and sparse hypotheses share. The leading axis H, where there is one, is the step of an episode."""

    reward: eqx.AbstractVar[Float[Array, "*H S A"]]
    end_probs: eqx.AbstractVar[Float[Array, "*H S A"] | None]
    legal: eqx.AbstractVar[Bool[Array, "S A"] | None]
    initial: eqx.AbstractVar[Float[Array, " S"] | None]

    @property
    def n_states(self) -> int:
        """S."""
        return self.reward.shape[-2]

    @property
    def n_actions(self) -> int:
        """A."""
        return self.reward.shape[-1]

    @property
    def horizon(self) -> int | None:
        """H where the hypothesis is time-inhomogeneous, else None."""
        return self.reward.shape[0] if self.reward.ndim == 3 else None

    def _check_common(self, size: tuple[int, ...]) -> None:
        if len(size) not in (2, 3):
            raise ValueError(f"reward has shape {size}, expected [state, action] or [step, state, action]")
        if 0 in size:
            raise ValueError(f"reward has shape {size}, expected at least one step, state and action")
        if self.end_probs is not None:
            check_shape("end_probs", self.end_probs, size, "as reward")
            if is_concrete(self.end_probs):
                check_probabilities("end_probs", self.end_probs)
        if self.legal is not None:
            check_shape("legal", self.legal, size[-2:], "state, action")
            if is_concrete(self.legal):
                exists = np.asarray(self.legal).any(-1)  # numpy: the mask of a layer is looked at inside a scan
                require(~exists, "legal", exists, "at least one legal action in every state")
        check_initial(self.initial, size[-2])
        if is_concrete(self.reward):
            require(np.asarray(self.reward) == -np.inf, "reward", self.reward, f"a finite number{_NAMES_LEGAL}")
            check_finite("reward", self.reward)

    def _check_rows(self, name: str, rows: Array) -> None:
        if is_concrete(rows, self.end_probs):
            empty = (np.asarray(rows) == 0).all(-1)
            index = first_index(empty if self.end_probs is None else empty & (np.asarray(self.end_probs) == 0))
            if index is not None:
                raise ValueError(f"{at(name, index)} sums to 0, expected a row that sums to 1{_NAMES_LEGAL}")
            check_probability_rows(name, rows, self.end_probs)


class MDP(_Hypothesis):
    """A Markov decision process with dense transition rows.

    Args:
        transition_probs: [*H S A S'], probability of each next state; with `end_probs` a row sums to one. Or a list of
            one sparse matrix [S S'] of SciPy for each action.
        reward: [*H S A], expected reward of one step.
        reward_by_outcome: in place of `reward`, [*H S A S'], the reward of each next state (with `end_probs` one more,
            the last, that of the end; or a list of sparse matrices): the mean over them is kept.
        end_probs: [*H S A], probability that the transition ends the episode; values beyond are zero. None: never.
        legal: [S A], which actions exist in which state; None: all. A pair that does not exist may have a row of zeros
            and a reward of -inf: it then stays where it is, for nothing.
        initial: [S], distribution of the first state; None: not stated.

    A leading axis H makes it time-inhomogeneous.

    Raises:
        ValueError: shapes disagree, an axis of length 0, a row that does not sum to one, a reward that is not finite
            (or not in JAX's float width), a state without legal action, lists of unequal lengths.
        TypeError: an argument that does not consist of real numbers; `legal` not of booleans.

    Example:
        >>> rows = [[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.2, 0.8]]]  # state, action, next state
        >>> mdp = bm.MDP(rows, reward=[[0.0, 1.0], [2.0, 3.0]])
        >>> mdp.n_states, mdp.n_actions
        (2, 2)
    """

    transition_probs: Float[Array, "*H S A S"] = eqx.field(converter=partial(as_floats, "transition_probs"))
    reward: Float[Array, "*H S A"] = eqx.field(converter=partial(as_floats, "reward"))
    end_probs: Float[Array, "*H S A"] | None = eqx.field(default=None, kw_only=True, converter=_ENDS)
    legal: Bool[Array, "S A"] | None = eqx.field(default=None, kw_only=True, converter=if_given(_mask, "legal"))
    initial: Float[Array, " S"] | None = eqx.field(default=None, kw_only=True, converter=_INITIAL)

    def __init__(
        self,
        transition_probs: Any,
        reward: Any = None,
        *,
        end_probs: Any = None,
        legal: Any = None,
        initial: Any = None,
        reward_by_outcome: Any = None,
    ) -> None:
        probs: Any = _dense("transition_probs", transition_probs)
        reward = _mean_reward(reward, reward_by_outcome, probs, end_probs)
        self.reward, empty = _without_illegal(probs, reward, legal, end_probs)
        if empty is not None:
            probs = jnp.where(empty[..., None], np.eye(empty.shape[-2])[:, None], jnp.asarray(probs, float))
        self.transition_probs = probs
        self.end_probs, self.legal, self.initial = end_probs, legal, initial

    def __check_init__(self) -> None:
        size = self.reward.shape
        self._check_common(size)
        check_shape("transition_probs", self.transition_probs, (*size, size[-2]), "as reward, then next state")
        self._check_rows("transition_probs", self.transition_probs)

    @property
    def row_probs(self) -> Float[AnyArray, "*H S A S"]:
        """Probabilities of the next states, as they are stored."""
        return self.transition_probs

    def expected_next(self, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """sum_s' P(s' | s, a) values(s'), for a hypothesis without a step axis; an end contributes nothing."""
        return einsum("saz,z->sa", self.transition_probs, values)

    def at(self, step: IntScalar) -> "MDP":
        """The hypothesis at one step (itself where it does not depend on the step).

        Args:
            step: of the episode, from 0.
        """
        if self.horizon is None:
            return self
        ends = None if self.end_probs is None else self.end_probs[step]
        probs, reward = self.transition_probs[step], self.reward[step]
        return MDP(probs, reward, end_probs=ends, legal=self.legal, initial=self.initial)

    def to_dense(self) -> "MDP":
        """Itself, as `SparseMDP.to_dense` makes one."""
        return self


class SparseMDP(_Hypothesis):
    """A Markov decision process whose rows list their successors.

    Args:
        successor: [*H S A K], index of the k-th listed next state; short lists are padded by entries of probability
            zero, of any state or -1.
        probability: [*H S A K], its probability; with `end_probs` a row sums to one.
        reward, end_probs, legal, initial: as in `MDP`.
        reward_by_outcome: in place of `reward`, [*H S A K], the reward of each listed next state (and of the end).

    Raises:
        ValueError: as `MDP`, or a successor is no state index.
        TypeError: as `MDP`, or `successor` is not of an integer type.

    Example:
        >>> mdp = bm.SparseMDP([[[1]], [[0]]], [[[1.0]], [[1.0]]], reward=[[0.0], [1.0]])
        >>> mdp.to_dense().transition_probs[:, 0].tolist()  # state 0 leads to 1, and 1 to 0
        [[0.0, 1.0], [1.0, 0.0]]
    """

    successor: Int[Array, "*H S A K"] = eqx.field(converter=lambda x: jnp.asarray(as_indices("successor", x, "state")))
    probability: Float[Array, "*H S A K"] = eqx.field(converter=partial(as_floats, "probability"))
    reward: Float[Array, "*H S A"] = eqx.field(converter=partial(as_floats, "reward"))
    end_probs: Float[Array, "*H S A"] | None = eqx.field(default=None, kw_only=True, converter=_ENDS)
    legal: Bool[Array, "S A"] | None = eqx.field(default=None, kw_only=True, converter=if_given(_mask, "legal"))
    initial: Float[Array, " S"] | None = eqx.field(default=None, kw_only=True, converter=_INITIAL)

    def __init__(
        self,
        successor: Any,
        probability: Any,
        reward: Any = None,
        *,
        end_probs: Any = None,
        legal: Any = None,
        initial: Any = None,
        reward_by_outcome: Any = None,
    ) -> None:
        listed: object = successor
        if isinstance(listed, list | tuple) and any(map(_is_sparse, listed)):
            raise TypeError(
                "successor is a list of sparse matrices, expected the numbers of states; SparseMDP.from_matrices takes "
                "one matrix for each action"
            )
        reward = _mean_reward(reward, reward_by_outcome, probability, end_probs)
        self.reward, empty = _without_illegal(probability, reward, legal, end_probs)
        if is_concrete(successor) and not isinstance(successor, jax.Array):
            successor = as_indices("successor", successor, "state")
            none = successor == -1
            if none.any() and is_concrete(probability):
                chances = as_real("probability", probability)
                check_shape("successor", successor, chances.shape, "as probability")
                require(none & (chances != 0), "probability", chances, "0 where successor is -1 (none)")
                successor = np.where(none, 0, successor)
        if empty is not None:
            successor = np.where(empty[..., None], np.arange(empty.shape[-2])[:, None, None], np.asarray(successor))
            first = np.arange(successor.shape[-1]) == 0
            probability = np.where(empty[..., None], first, np.asarray(probability, float))
        self.successor, self.probability = successor, probability
        self.end_probs, self.legal, self.initial = end_probs, legal, initial

    @classmethod
    def from_matrices(
        cls,
        matrices: Sequence[Any],
        reward: ArrayLike | None = None,
        *,
        legal: ArrayLike | None = None,
        initial: ArrayLike | None = None,
        reward_by_outcome: Sequence[Any] | None = None,
    ) -> "SparseMDP":
        """From one sparse matrix of SciPy for each action, [S S'].

        Args:
            matrices: of the probabilities of next states.
            reward: [S A], expected rewards.
            legal: [S A], which actions exist in which state; None: all.
            initial: [S], distribution of the first state; None: not stated.
            reward_by_outcome: in place of `reward`, one matrix for each action, of the rewards of next states.

        Raises:
            ValueError: matrices of several shapes. Others: as the class.

        Example:
            >>> import scipy.sparse
            >>> swap = scipy.sparse.csr_matrix([[0.0, 1.0], [1.0, 0.0]])
            >>> bm.SparseMDP.from_matrices([swap], [[0.0], [1.0]]).to_dense().transition_probs[:, 0].tolist()
            [[0.0, 1.0], [1.0, 0.0]]
        """
        rows = [_csr("matrices", matrix) for matrix in matrices]
        shapes = {matrix.shape for matrix in rows}
        if len(shapes) != 1 or len(set(*shapes)) != 1:
            raise ValueError(f"matrices have the shapes {sorted(shapes)}, expected [S, S] for each action")
        size, n_actions = rows[0].shape[0], len(rows)
        pairs = [(np.arange(size), np.full(size, a), matrix) for a, matrix in enumerate(rows)]
        successor, probability = _rows_as_lists(size, n_actions, pairs)
        paid = None
        if reward_by_outcome is not None:
            if len(reward_by_outcome) != n_actions:
                raise ValueError(f"reward_by_outcome has {len(reward_by_outcome)} matrices, expected {n_actions}")
            paid, place = np.zeros(probability.shape), np.maximum(successor, 0)
            for a, matrix in enumerate(reward_by_outcome):
                table = _csr("reward_by_outcome", matrix)
                check_shape(f"reward_by_outcome[{a}]", table, (size, size), "state, next state")
                paid[:, a] = table[np.arange(size)[:, None], place[:, a]].toarray()
        return cls(successor, probability, reward, legal=legal, initial=initial, reward_by_outcome=paid)

    @classmethod
    def from_pairs(
        cls, state: ArrayLike, action: ArrayLike, probs: Any, reward: ArrayLike, *, initial: ArrayLike | None = None
    ) -> "SparseMDP":
        """From a list of the legal pairs of a state and an action, as QuantEcon's `DiscreteDP` takes them.

        Args:
            state, action: [L], of each pair (QuantEcon: s_indices, a_indices).
            probs: [L S'], a matrix, or a sparse one of SciPy (Q).
            reward: [L] (R).
            initial: [S], as in the class.

        Raises:
            ValueError: lists of other lengths, an index that is none, a pair twice, and as the class.
            TypeError: indices that are no integers, rewards that are no numbers.

        Example:
            >>> mdp = bm.SparseMDP.from_pairs([0, 0, 1], [0, 1, 0], [[1, 0], [0, 1], [1, 0]], [0.0, -1.0, 2.0])
            >>> mdp.legal.tolist(), mdp.reward.tolist()
            ([[True, True], [True, False]], [[0.0, -1.0], [2.0, 0.0]])
        """
        rows, paid = _csr("probs", probs), as_real("reward", reward)
        number, size = rows.shape
        s, a = (np.asarray(as_indices(name, x, name)) for name, x in (("state", state), ("action", action)))
        for name, column in (("state", s), ("action", a), ("reward", paid)):
            check_shape(name, column, (number,), "as the rows of probs")
        check_index("state", s, size, "state")
        require(a < 0, "action", a, "an action index from 0")
        n_actions = int(a.max(initial=-1)) + 1
        legal = np.zeros((size, n_actions), bool)
        legal[s, a] = True
        if legal.sum() < number:
            raise ValueError("state and action have a pair twice, expected each pair once")
        successor, probability = _rows_as_lists(size, n_actions, [(s, a, rows)])
        rewards = np.zeros(legal.shape)
        rewards[s, a] = paid
        return cls(successor, probability, rewards, legal=legal, initial=initial)

    def __check_init__(self) -> None:
        size = self.reward.shape
        self._check_common(size)
        if self.successor.ndim != len(size) + 1 or not self.successor.shape[-1]:
            expected = f"{size} and one more axis of at least one successor"
            raise ValueError(f"successor has shape {self.successor.shape}, expected {expected}")
        check_shape("probability", self.probability, (*size, self.successor.shape[-1]), "as reward, then successor")
        check_shape("successor", self.successor, self.probability.shape, "as probability")
        if is_concrete(self.successor):
            check_index("successor", self.successor, size[-2], "state")
        self._check_rows("probability", self.probability)

    def expected_next(self, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """sum_s' P(s' | s, a) values(s'), for a hypothesis without a step axis; an end contributes nothing."""
        return jnp.sum(self.probability * values[self.successor], axis=-1)

    def at(self, step: IntScalar) -> "SparseMDP":
        """The hypothesis at one step (itself where it does not depend on the step).

        Args:
            step: of the episode, from 0.
        """
        if self.horizon is None:
            return self
        ends = None if self.end_probs is None else self.end_probs[step]
        successor, probability = self.successor[step], self.probability[step]
        return SparseMDP(
            successor, probability, self.reward[step], end_probs=ends, legal=self.legal, initial=self.initial
        )

    @property
    def row_probs(self) -> Float[AnyArray, "*H S A K"]:
        """Probabilities of the listed next states, as they are stored."""
        return self.probability

    @property
    def transition_probs(self) -> Float[Array, "*H S A S"]:
        """Dense rows, as those of `MDP`; built anew at every call. ValueError: they do not fit in memory."""
        return self.to_dense().transition_probs

    def to_dense(self) -> MDP:
        """The same hypothesis with dense rows; repeated successors are added.

        Raises:
            ValueError: S numbers a row do not fit in memory.
        """
        shape = self.reward.shape
        check_memory(
            f"mdp has {self.n_states} states and {self.n_actions} actions",
            float(np.prod(shape)) * self.n_states * self.probability.dtype.itemsize,
            "dense rows hold a number for every next state; stay with listed successors",
        )
        rows = jnp.zeros((*shape, self.n_states), self.probability.dtype)
        lead = jnp.indices((*shape, self.successor.shape[-1]), sparse=True)[:-1]
        rows = rows.at[(*lead, self.successor)].add(self.probability)
        return MDP(rows, self.reward, end_probs=self.end_probs, legal=self.legal, initial=self.initial)


def at_successors(values: Float[AnyArray, "*steps O"], listed: Int[AnyArray, "*H S A K"]) -> Float[AnyArray, "..."]:
    """`values` of the listed outcomes; step by step where both have an axis of steps."""
    if values.ndim == 1 or listed.ndim == 3:
        return pick(values, (..., listed))
    if not has_jax_array(values, listed):
        return np.stack([step[lists] for step, lists in zip(values, listed, strict=True)])
    return jax.vmap(lambda step, lists: step[lists])(jnp.asarray(values), jnp.asarray(listed))


def check_mdp(mdp: object, name: str = "mdp") -> None:
    """Raise a TypeError unless it is an `MDP` or a `SparseMDP`."""
    check_type(name, mdp, (MDP, SparseMDP), "an MDP or a SparseMDP")


def unroll(mdp: MDP | SparseMDP, horizon: int) -> MDP | SparseMDP:
    """The first `horizon` steps of `mdp` as an acyclic MDP: state `h * S + s` is state s at step h, the last step ends.

    Its discounted or first-exit value at `s` is the `horizon`-step value of `mdp`. Rows that were one row of `mdp` are
    shared, not independent, under any belief about `mdp`.

    Raises:
        ValueError: `horizon` is below 1, differs from the horizon that `mdp` already has, or needs more memory than
            there is.
        TypeError: no MDP, or a horizon that is no integer.

    Example:
        >>> mdp = bm.MDP([[[0.5, 0.5]], [[1.0, 0.0]]], [[0.0], [1.0]])
        >>> bm.mdp.unroll(mdp, 3).n_states  # a state for every step, of the three
        6
    """
    check_mdp(mdp)
    check_count("horizon", horizon)
    if mdp.horizon not in (None, horizon):
        raise ValueError(f"horizon is {horizon}, expected {mdp.horizon}, that of the MDP")
    horizon = int(horizon)
    row = mdp.successor.shape[-1] if isinstance(mdp, SparseMDP) else float(horizon) * mdp.n_states
    numbers = float(horizon) * mdp.n_states * mdp.n_actions * row
    check_memory(f"horizon is {horizon}", numbers * mdp.reward.dtype.itemsize)
    size, (s, a) = horizon * mdp.n_states, (mdp.n_states, mdp.n_actions)
    inside = jnp.arange(horizon)[:, None, None] < horizon - 1
    ends = jnp.zeros((horizon, s, a), mdp.reward.dtype) if mdp.end_probs is None else mdp.end_probs
    ends = jnp.where(inside, ends, 1.0).reshape(size, a)
    reward = jnp.broadcast_to(mdp.reward, (horizon, s, a)).reshape(size, a)
    legal = None if mdp.legal is None else jnp.tile(mdp.legal, (horizon, 1))
    initial = None if mdp.initial is None else jnp.pad(mdp.initial, (0, size - s))
    step = jnp.arange(horizon)[:, None, None, None]
    if isinstance(mdp, SparseMDP):
        successor = jnp.minimum((step + 1) * s + mdp.successor, size - 1).reshape(size, a, -1)
        probability = jnp.where(inside[..., None], mdp.probability, 0.0).reshape(size, a, -1)
        return SparseMDP(successor, probability, reward, end_probs=ends, legal=legal, initial=initial)
    rows = jnp.where(inside[..., None], mdp.transition_probs, 0.0)
    next_step = jax.nn.one_hot(jnp.arange(horizon) + 1, horizon, dtype=rows.dtype)
    dense = einsum("hsaz,hg->hsagz", jnp.broadcast_to(rows, (horizon, s, a, s)), next_step)
    return MDP(dense.reshape(size, a, size), reward, end_probs=ends, legal=legal, initial=initial)


@overload
def restart_at_ends(mdp: MDP) -> MDP: ...
@overload
def restart_at_ends(mdp: SparseMDP) -> SparseMDP: ...
def restart_at_ends(mdp: MDP | SparseMDP) -> MDP | SparseMDP:
    """`mdp` with every end replaced by a restart from `mdp.initial`: a continuing MDP, for the average reward.

    A sparse one lists the possible first states as further successors of every pair (all states, where `initial` is
    traced and cannot be looked into).

    Raises:
        ValueError: `mdp` has ends but no initial distribution. TypeError: no MDP.
    """
    check_mdp(mdp)
    if mdp.end_probs is None:
        return mdp
    if mdp.initial is None:
        raise ValueError("initial is None, expected a distribution over states to restart from")
    restart = mdp.end_probs[..., None]
    if isinstance(mdp, SparseMDP):
        first = np.flatnonzero(mdp.initial) if is_concrete(mdp.initial) else np.arange(mdp.n_states)
        listed = jnp.broadcast_to(jnp.asarray(first, mdp.successor.dtype), (*mdp.reward.shape, len(first)))
        successor = jnp.concatenate([mdp.successor, listed], -1)
        probability = jnp.concatenate([mdp.probability, restart * mdp.initial[first]], -1)
        return SparseMDP(successor, probability, mdp.reward, legal=mdp.legal, initial=mdp.initial)
    rows = mdp.transition_probs + restart * mdp.initial
    return MDP(rows, mdp.reward, legal=mdp.legal, initial=mdp.initial)
