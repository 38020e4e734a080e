"""A hypothesis about the MDP: `MDP` (dense rows), `SparseMDP` (listed successors), `unroll`, `restart_at_ends`."""

from functools import partial
from typing import overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.numerics.numpy_or_jax import has_jax_array, pick
from bayes_mdp.numerics.products import einsum
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import AnyArray, IntScalar
from bayes_mdp.utils.validation import (
    as_floats,
    as_indices,
    as_mask,
    check_count,
    check_finite,
    check_index,
    check_initial,
    check_probabilities,
    check_probability_rows,
    check_shape,
    check_type,
    is_concrete,
    require,
)


def _floats_or_none(name: str, values: object) -> Array | None:
    return None if values is None else as_floats(name, values)


def _legal(values: object) -> Array | None:
    return None if values is None else jnp.asarray(as_mask("legal", values), dtype=bool)


def _successor(values: object) -> Array:
    return jnp.asarray(as_indices("successor", values, "state"))


_ENDS, _INITIAL = partial(_floats_or_none, "end_probs"), partial(_floats_or_none, "initial")


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
            check_finite("reward", self.reward)


class MDP(_Hypothesis):
    """A Markov decision process with dense transition rows.

    Args:
        transition_probs: [*H S A S'], probability of each next state; with `end_probs` a row sums to one.
        reward: [*H S A], expected reward of one step.
        end_probs: [*H S A], probability that the transition ends the episode; values beyond are zero. None: never.
        legal: [S A], which actions exist in which state; None: all.
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
    legal: Bool[Array, "S A"] | None = eqx.field(default=None, kw_only=True, converter=_legal)
    initial: Float[Array, " S"] | None = eqx.field(default=None, kw_only=True, converter=_INITIAL)

    def __check_init__(self) -> None:
        size = self.reward.shape
        self._check_common(size)
        check_shape("transition_probs", self.transition_probs, (*size, size[-2]), "as reward, then next state")
        if is_concrete(self.transition_probs, self.end_probs):
            check_probability_rows("transition_probs", self.transition_probs, self.end_probs)

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


class SparseMDP(_Hypothesis):
    """A Markov decision process whose rows list their successors.

    Args:
        successor: [*H S A K], index of the k-th listed next state (entries of probability zero pad short lists).
        probability: [*H S A K], its probability; with `end_probs` a row sums to one.
        reward, end_probs, legal, initial: as in `MDP`.

    Raises:
        ValueError: as `MDP`, or a successor is no state index.
        TypeError: as `MDP`, or `successor` is not of an integer type.

    Example:
        >>> mdp = bm.SparseMDP([[[1]], [[0]]], [[[1.0]], [[1.0]]], reward=[[0.0], [1.0]])
        >>> mdp.to_dense().transition_probs[:, 0].tolist()  # state 0 leads to 1, and 1 to 0
        [[0.0, 1.0], [1.0, 0.0]]
    """

    successor: Int[Array, "*H S A K"] = eqx.field(converter=_successor)
    probability: Float[Array, "*H S A K"] = eqx.field(converter=partial(as_floats, "probability"))
    reward: Float[Array, "*H S A"] = eqx.field(converter=partial(as_floats, "reward"))
    end_probs: Float[Array, "*H S A"] | None = eqx.field(default=None, kw_only=True, converter=_ENDS)
    legal: Bool[Array, "S A"] | None = eqx.field(default=None, kw_only=True, converter=_legal)
    initial: Float[Array, " S"] | None = eqx.field(default=None, kw_only=True, converter=_INITIAL)

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
        if is_concrete(self.probability, self.end_probs):
            check_probability_rows("probability", self.probability, self.end_probs)

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
        >>> bm.unroll(mdp, 3).n_states  # a state for every step, of the three
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
