# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`StateActionSpace`: sizes, names, masks and known successors of an MDP whose dynamics are unknown.

`program_cache` keeps what was found out about programs of a space, of large spaces no more than fits.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp.by_label import ProductLabel, initial_array, initial_labels, policy_array, policy_labels
from bayes_mdp.mdp.data.folded_log import FoldedLog, observed_successors
from bayes_mdp.mdp.data.log_split import check_first_step, first_states
from bayes_mdp.mdp.data.transitions import Log
from bayes_mdp.mdp.hypothesis import MDP, SparseMDP, at_successors
from bayes_mdp.mdp.labelled_tables import refuse_labels
from bayes_mdp.mdp.objectives import Objective
from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.modules import Module
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index, InitialLike, IntScalar, PolicyLabels, PolicyNames
from bayes_mdp.utils.validation import (
    as_indices,
    as_mask,
    as_names,
    as_python,
    check_bool,
    check_count,
    check_labels,
    check_name,
    check_names,
    check_shape,
    check_type,
    if_given,
    is_concrete,
    require,
)

END = "end"
UNSEEN = "unseen"
LOGGED = "logged"
LONG = 32  # places of a list: from here on bisection beats a look at every place
DENSE_REMEDY = (
    "a row has a number for every state; list the possible successors, StateActionSpace(successors=Int[S A K]) "
    + see("how-to/many-states")
)
PLATE_NAMES = ("step", "state", "action")


def check_space(space: object, name: str = "space") -> None:
    """Raise a TypeError unless it is a `StateActionSpace`."""
    check_type(name, space, StateActionSpace, "a StateActionSpace")


def check_horizon(space: "StateActionSpace", objective: Objective) -> None:
    """Refuse an objective of another number of steps than the rows of a space.

    Raises:
        ValueError: one sentence.
    """
    horizon = objective.horizon
    if space.horizon not in (None, horizon):
        raise ValueError(
            f"objective is {objective}, expected Episodic({space.horizon}): space has {space.horizon} steps"
        )


def check_dense_rows(space: "StateActionSpace", bytes_each: float) -> None:
    """Refuse rows over all states that would take more than half of the memory that is free, before they are made.

    Args:
        space: one that lists its successors has no such rows, and passes.
        bytes_each: at the peak, for every probability.

    Raises:
        ValueError: they would.
    """
    if space.successors is None:
        numbers = float(np.prod([*space.shape, space.n_outcomes], dtype=float))
        size_words = f"space has {space.n_states} states and {space.n_actions} actions"
        check_memory(size_words, bytes_each * numbers, DENSE_REMEDY)


def _mask(name: str, values: object) -> np.ndarray:
    refuse_labels(name, values)
    return np.asarray(as_mask(name, values))


def _indices(name: str, what: str, values: object) -> np.ndarray:
    return np.asarray(as_indices(name, values, what), np.int32)


class StateActionSpace(Module):
    """What is known of an MDP before any data: S, A, a horizon, whether episodes can end, names, masks.

    Args:
        n_states, n_actions: S and A.
        horizon: H where rows depend on the step of an episode; None for a stationary MDP.
        ends: whether a transition can end an episode. "end" is then one more outcome, the last, of every row.
        states, actions: names (any hashable); they become coordinates. None: 0, 1, ...
        legal: Bool[S A], which actions exist in which state; None: all.
        support: Bool[S A O] (or [H S A O]), which outcomes (next states, then the end where `ends`) are possible;
            None: all.
        successors: Int[S A K] (or [H S A K]), the few outcomes that are possible, for spaces too large for a mask: each
            pair lists its next states, `n_states` for the end, each once, then -1 up to K. An outcome is then a *place*
            in that list: every array of rows is [*H S A K] in place of [*H S A O]. Given in place of `support`.
        multiplicity: Int[S A K] (or [H S A K]), how many outcomes each place of `successors` stands for; None: one.
            Outcomes of a Dirichlet row that are put together are one outcome of a Dirichlet row, of the sum of their
            concentrations: the priors of the library multiply theirs by it.
        unseen: the state of `successors`, the last, that stands for all outcomes that are not listed: a transition to
            one of them counts there. None: such a transition is refused. See `from_log`.

    Raises:
        ValueError: a size below 1, names that repeat or do not fit, a state called "end" where episodes can end, masks
            of another shape, a state without a legal action, a legal pair without a possible outcome, a successor that
            is listed twice or does not exist, both `support` and `successors`.
        TypeError: a size that is no integer, `ends` that is no bool, a name that cannot be hashed, a mask that does
            not consist of booleans.

    Example:
        >>> space = bm.StateActionSpace(3, 2, ends=True, states=("new", "worn", "broken"))
        >>> space.shape, space.outcome_names
        ((3, 2), ('new', 'worn', 'broken', 'end'))
    """

    n_states: int = eqx.field(static=True, converter=as_python)
    n_actions: int = eqx.field(static=True, converter=as_python)
    horizon: int | None = eqx.field(default=None, static=True, kw_only=True, converter=as_python)
    ends: bool = eqx.field(default=False, static=True, kw_only=True, converter=as_python)
    states: tuple[Hashable, ...] | None = eqx.field(default=None, static=True, kw_only=True, converter=as_names)
    actions: tuple[Hashable, ...] | None = eqx.field(default=None, static=True, kw_only=True, converter=as_names)
    legal: Bool[np.ndarray, "S A"] | None = eqx.field(default=None, kw_only=True, converter=if_given(_mask, "legal"))
    support: Bool[np.ndarray, "*H S A O"] | None = eqx.field(
        default=None, kw_only=True, converter=if_given(_mask, "support")
    )

    successors: Int[np.ndarray, "*H S A K"] | None = eqx.field(
        default=None, kw_only=True, converter=if_given(_indices, "successors", "state")
    )
    multiplicity: Int[np.ndarray, "*H S A K"] | None = eqx.field(
        default=None, kw_only=True, converter=if_given(_indices, "multiplicity", "outcome")
    )
    unseen: int | None = eqx.field(default=None, static=True, kw_only=True, converter=as_python)

    def __check_init__(self) -> None:
        for name in ("n_states", "n_actions", "horizon"):
            size = getattr(self, name)
            if size is not None or name != "horizon":
                check_count(name, size)
        check_bool("ends", self.ends)
        for name, size in (("states", self.n_states), ("actions", self.n_actions)):
            labels = getattr(self, name)
            if labels is None:
                continue
            check_names(name, labels)
            if len(labels) != size:
                raise ValueError(f"{name} has {len(labels)} names, expected {size}")
        if self.ends and END in (self.states or ()):
            raise ValueError(f"states holds {END!r}, the name of the end of an episode, expected another name")
        self._check_masks()

    def _check_masks(self) -> None:
        if self.support is not None and self.successors is not None:
            raise ValueError("support and successors are both given, expected one of them")
        if self.legal is not None:
            check_shape("legal", self.legal, (self.n_states, self.n_actions), "state, action")
            require(~self.legal.any(-1), "legal", self.legal.any(-1), "at least one legal action in every state")
        if self.support is not None:
            lead = self.shape if self.support.ndim == 4 else self.shape[-2:]
            check_shape("support", self.support, (*lead, self.n_outcomes), "state, action, outcome")
            possible = self.support.any(-1)
            empty = ~possible if self.legal is None else ~possible & self.legal
            require(empty, "support", possible, "at least one possible outcome")
        if self.successors is not None and is_concrete(self.successors):
            self._check_successors(np.asarray(self.successors))
        for name in ("multiplicity", "unseen"):
            if getattr(self, name) is not None and self.successors is None:
                raise ValueError(f"{name} is given without successors, expected both or neither")
        if self.multiplicity is not None and self.successors is not None:
            check_shape("multiplicity", self.multiplicity, self.successors.shape, "as successors")
            if is_concrete(self.multiplicity):
                require(self.multiplicity < 1, "multiplicity", self.multiplicity, "at least 1")
        if self.unseen is not None and self.unseen != self.n_states - 1:
            raise ValueError(f"unseen is {self.unseen}, expected the last state, {self.n_states - 1}")

    def _check_successors(self, listed: Int[np.ndarray, "*H S A K"]) -> None:
        lead = self.shape if listed.ndim == 4 else self.shape[-2:]
        if listed.ndim not in (3, len(self.shape) + 1) or listed.shape[:-1] != lead or not listed.shape[-1]:
            raise ValueError(
                f"successors has shape {listed.shape}, expected {lead} and one more axis of at least one successor"
            )
        largest = self.n_states - 1 + self.ends
        wrong = (listed < -1) | (listed > largest)
        # Sorted, an outcome that is listed twice has itself as neighbour; padding comes first.
        ordered = np.sort(listed, axis=-1)
        twice = ((ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)).any(-1)
        words = f"a state from 0 to {self.n_states - 1}" + (f", {self.n_states} (the end)" if self.ends else "")
        require(wrong, "successors", listed, f"{words}, or -1 (none)")
        require(twice, "successors", ~twice, "every successor once")
        empty = (listed < 0).all(-1)
        empty = empty if self.legal is None else empty & self.legal
        require(empty, "successors", ~empty, "at least one possible outcome")

    @property
    def n_outcomes(self) -> int:
        """O: the number of outcomes of a row, S and, where episodes can end, the end; K where successors are listed."""
        return self.n_states + self.ends if self.successors is None else self.successors.shape[-1]

    @property
    def possible(self) -> Bool[np.ndarray, "*H S A O"] | None:
        """Which outcomes are possible: `support`, or the places of `successors` that are filled; None: all."""
        return self.support if self.successors is None else self.successors >= 0

    def support_mask(self) -> Bool[AnyArray, "*H S A O"] | None:
        """The possible outcomes as a mask over all states (and the end), also where they are listed; None: all.

        S numbers a row: for algorithms that are dense anyway.

        Raises:
            ValueError: they do not fit in memory.
        """
        if self.successors is None:
            return self.support
        size_words = f"space has {self.n_states} states and {self.n_actions} actions, as a mask over all states"
        check_memory(size_words, float(self.n_states) ** 2 * self.n_actions, "an agent that reads lists takes less")
        listed = jnp.asarray(self.successors)
        width = self.n_states + self.ends
        cell = jnp.indices(listed.shape, sparse=True)[:-1]
        # Places that are not filled are written beyond the last outcome, which drops them.
        return jnp.zeros((*listed.shape[:-1], width), bool).at[(*cell, jnp.where(listed < 0, width, listed))].set(True)

    @property
    def stays(self) -> Bool[np.ndarray, "*#H S #A O"]:
        """Which outcome is the state itself; broadcasts to the rows."""
        if self.successors is not None:
            return self.successors == np.arange(self.n_states)[:, None, None]
        return np.eye(self.n_states, self.n_outcomes, dtype=bool)[:, None, :]

    @property
    def shape(self) -> tuple[int, ...]:
        """(S, A), or (H, S, A) where there is a horizon."""
        pair = (self.n_states, self.n_actions)
        return pair if self.horizon is None else (self.horizon, *pair)

    @property
    def state_names(self) -> tuple[Hashable, ...]:
        """The names of the states."""
        return self.states or tuple(range(self.n_states))

    @property
    def logged_states(self) -> tuple[Hashable, ...]:
        """The names that a log can hold: those of all states but `unseen`."""
        return self.state_names if self.unseen is None else self.state_names[: self.unseen]

    @property
    def factors(self) -> tuple[str, ...] | None:
        """The names of the parts of a state, where a log has states of several columns; else None."""
        first = self.state_names[0]
        return first.names if isinstance(first, ProductLabel) else None

    @property
    def action_names(self) -> tuple[Hashable, ...]:
        """The names of the actions."""
        return self.actions or tuple(range(self.n_actions))

    @property
    def outcome_names(self) -> tuple[Hashable, ...]:
        """The names of the outcomes of a row: the states and, where episodes can end, "end".

        Where successors are listed the places 0, 1, ..., whose meaning differs from pair to pair.
        """
        if self.successors is not None:
            return tuple(range(self.n_outcomes))
        return self.state_names + ((END,) if self.ends else ())

    @classmethod
    def from_log(
        cls,
        log: Log | FoldedLog,
        *,
        horizon: int | None = None,
        ends: bool | None = None,
        legal: ArrayLike | Literal["logged"] | None = None,
        support: ArrayLike | None = None,
        successors: Int[AnyArray, "*H S A K"] | Literal["observed"] | None = None,
    ) -> "StateActionSpace":
        """The space of a log: its labels, and what else is known (see the class).

        With `successors="observed"` every pair lists the outcomes that the log has of it, and one state more, the last,
        called "unseen", which stands for all others: under a symmetric Dirichlet prior this is the exact posterior of
        the observed outcomes and of the total of the rest, however many states there are. From "unseen" an episode
        ends, or, where none can end, stays there for ever; what that is worth is for the prior to say, as the reward of
        the state "unseen". A pair without data leads there with certainty.

        With `legal="logged"` the legal actions of a state are those that the log has there, be it once: no policy then
        does what nobody ever did, and a later log that has another action is refused, with its row. A state that the
        log never left (and "unseen") keeps all actions, since every state needs one.

        Args:
            log: as `read_log` returns it.
            horizon: H where rows depend on the step; None: they do not.
            ends: None: whether an episode of the log terminated.
            legal: "logged", or a mask [S A] as in the class, over the states of the log.
            support: [*H S A O], as in the class.
            successors: "observed", or lists as in the class.

        Raises:
            TypeError: `log` is no `Log`.
            ValueError: as the class; a horizon for a log whose steps do not begin at 0; a word in place of `legal` or
                `successors` that is not the one above.
        """
        check_type("log", log, (Log, FoldedLog), "a Log, which has the labels (see read_log)")
        steps = log.transitions.step if isinstance(log, Log) else log.cells.where.step if log.by_step else None
        if horizon is not None and steps is not None:
            check_first_step(steps)
        if isinstance(legal, str):
            check_name("legal", legal, (LOGGED,), ", an array of True and False [state, action], None")
            legal = _actions_in_log(log)
        ends = log.ends if ends is None else ends
        known: dict[str, Any] = {"horizon": horizon, "ends": ends, "actions": log.actions}
        if isinstance(successors, str):
            if successors != "observed" or horizon is not None or support is not None:
                raise ValueError(
                    f'successors is {successors!r}, expected "observed" (without horizon and support), lists or None'
                )
            table = observed_successors(log, ends=bool(ends))
            known |= {"successors": table.successors, "multiplicity": table.multiplicity, "unseen": len(log.states)}
            legal = None if legal is None else np.append(np.asarray(legal), np.ones((1, len(log.actions)), bool), 0)
            space = cls(len(log.states) + 1, len(log.actions), states=(*log.states, UNSEEN), legal=legal, **known)
        else:
            known |= {"legal": legal, "support": support, "successors": successors}
            space = cls(len(log.states), len(log.actions), states=log.states, **known)
        about = log.covariates if isinstance(log, Log) else None
        return space if about is None else about.space(space)

    def policy(
        self, by_label: PolicyLabels | Sequence[PolicyLabels]
    ) -> Int[np.ndarray, "*H S"] | Float[np.ndarray, "*H S A"]:
        """A policy by the labels of this space, as the array that the library computes with.

        Every state needs an action. In a space with the state "unseen" (see `from_log`) that one may be left out: its
        actions are then equally likely, as in `behaviour_policy`.

        Args:
            by_label: state -> action, or state -> {action: probability}; a list of H such mappings, one for each step,
                for a policy that depends on it (`Episodic(H)`).

        Returns:
            Int64[*H S], an action for every state, or Float64[*H S A], probabilities, where some action is random; H
            where a list was given.

        Raises:
            TypeError: no mapping; what cannot be a label; a probability that is no number.
            ValueError: a label that the space does not have, a state without an action, an illegal action,
                probabilities that do not sum to one.

        Example:
            >>> space = bm.StateActionSpace(2, 2, states=("new", "worn"), actions=("run", "service"))
            >>> space.policy({"worn": "service", "new": "run"})
            array([0, 1])
            >>> print(space.policy({"worn": "service", "new": {"run": 0.75, "service": 0.25}}))
            [[0.75 0.25]
             [0.   1.  ]]
        """
        optional = () if self.unseen is None else (self.state_names[self.unseen],)
        return policy_array(by_label, self.state_names, self.action_names, self.legal, optional=optional)

    def describe_policy(self, policy: ArrayLike) -> PolicyNames:
        """A policy by the labels of this space; `policy` reads it back.

        Args:
            policy: Int[*H S] (actions) or Float[*H S A] (probabilities).

        Returns:
            State -> action, or state -> {action: probability} where it is random; a list of these, one for each step,
            where the policy has steps.

        Raises:
            TypeError, ValueError: another shape or type, an action out of range, rows that do not sum to one.

        Example:
            >>> space = bm.StateActionSpace(2, 2, states=("new", "worn"), actions=("run", "service"))
            >>> space.describe_policy([0, 1])
            {'new': 'run', 'worn': 'service'}
        """
        return policy_labels(policy, self.state_names, self.action_names)

    def initial_probs(self, initial: InitialLike) -> Float[np.ndarray, " S"]:
        """A distribution of the first state as probabilities.

        Args:
            initial: the label of a state; label -> probability (the states that are left out: 0); a log: as often as
                its episodes begin in each state; or the probabilities [S] themselves.

        Returns:
            Float64[S].

        Raises:
            TypeError, ValueError: a label that the space does not have, probabilities that do not sum to one, a log of
                other states or without rows, a folded log (it has no episodes), an array of another shape; a tuple
                that is a label and could be probabilities.

        Example:
            >>> space = bm.StateActionSpace(3, 2, states=("new", "worn", "broken"))
            >>> print(space.initial_probs("new"), space.initial_probs({"new": 0.9, "worn": 0.1}))
            [1. 0. 0.] [0.9 0.1 0. ]
        """
        if isinstance(initial, FoldedLog):
            raise TypeError("initial is a FoldedLog, which has no episodes, expected a Log (see read_log)")
        if not isinstance(initial, Log):
            return initial_array(initial, self.state_names)
        check_labels("initial.states", initial.states, self.logged_states)
        if not np.size(initial.transitions.state):
            raise ValueError("initial is a log without rows, expected one in which an episode begins")
        logged = first_states(initial)
        return np.concatenate([logged, np.zeros(self.n_states - len(logged))])  # no episode begins in "unseen"

    def describe_initial(self, initial: ArrayLike) -> dict[Hashable, float]:
        """A distribution of the first state by label: state -> probability, where that is positive.

        Args:
            initial: [S].

        Raises:
            TypeError, ValueError: no probabilities of the states of this space.

        Example:
            >>> bm.StateActionSpace(3, 2, states=("new", "worn", "broken")).describe_initial([0.5, 0.0, 0.5])
            {'new': 0.5, 'broken': 0.5}
        """
        return initial_labels(initial, self.state_names)

    def place(self, cell: Index, reached: Int[AnyArray, "*N"]) -> Int[AnyArray, "*N"]:
        """The place of each reached outcome (a state, or `n_states`: the end) in the list of its cell; K: not listed.

        Args:
            cell: index of the (step,) state, action of each.
            reached: as many.
        """
        if is_concrete(self.successors, cell, reached) and self._lists_are_long(np.size(reached)):
            return self._place_by_bisection(tuple(np.asarray(i) for i in cell), np.asarray(reached))
        listed = self._lists(cell)
        reached = (
            np.asarray(reached) if isinstance(listed, np.ndarray) and is_concrete(reached) else jnp.asarray(reached)
        )
        place = _first_place(listed, reached)
        if self.unseen is None:
            return place
        # What is not listed counts as the state that stands for it, where that one is listed.
        rest = _first_place(listed, 0 * reached + self.unseen)
        xp = np if isinstance(place, np.ndarray) else jnp
        return xp.where(place < listed.shape[-1], place, rest)

    def _lists_are_long(self, number: int) -> bool:
        """Whether the lists of so many cells together are many more numbers than all lists of the space."""
        size = 0 if self.successors is None else np.size(self.successors)
        return self.n_outcomes >= LONG and self.unseen is None and number * self.n_outcomes > size

    def _place_by_bisection(self, cell: Index, reached: Int[np.ndarray, "*N"]) -> Int[np.ndarray, "*N"]:
        """`place` on the host, by bisection in all lists, sorted: (cell, outcome) as one number."""
        listed = np.asarray(self.successors)
        lead, width = listed.shape[:-1], self.n_states + 1
        filled = np.flatnonzero(listed.ravel() >= 0)
        row = filled // listed.shape[-1]
        keys = row * width + listed.ravel()[filled]
        order = np.argsort(keys, kind="stable")
        target = np.ravel_multi_index(cell if listed.ndim == 4 else cell[-2:], lead) * width + reached
        position = order[np.minimum(np.searchsorted(keys, target, sorter=order), len(keys) - 1)]
        listed_there = (keys[position] == target) & (reached >= 0) & (reached < width)
        return np.where(listed_there, filled[position] % listed.shape[-1], listed.shape[-1])

    def reached(self, cell: Index, outcome: Int[AnyArray, "*N"]) -> tuple[Int[AnyArray, "*N"], Bool[AnyArray, "*N"]]:
        """(next state, whether the episode ended) for each index of an outcome; the inverse of `Transitions.outcome`.

        Where it ended, the next state is the state that was left.

        Args:
            cell: (step,) state, action of each: indices.
            outcome: index of the outcome of each.
        """
        if self.successors is not None:
            # By numpy where everything is concrete (eager JAX would compile every operation).
            of_pair = cell if jnp.ndim(self.successors) == 4 else cell[-2:]
            if is_concrete(self.successors, cell, outcome):
                outcome = np.asarray(self.successors)[(*map(np.asarray, of_pair), np.asarray(outcome))]
            else:
                entry = jnp.asarray(self.successors).at[(*of_pair, outcome)]
                outcome = entry.get(mode="fill", fill_value=-1)  # a place that is not listed is no state
        xp = np if is_concrete(cell, outcome) else jnp
        ended = xp.asarray(outcome == self.n_states)
        return xp.where(ended, cell[-2], outcome), ended

    def _lists(self, cell: Index) -> Int[AnyArray, "*N K"]:
        """The lists of cells: by numpy where everything is concrete (eager JAX would compile every operation)."""
        assert self.successors is not None
        if is_concrete(self.successors, cell):
            listed, cell = np.asarray(self.successors), tuple(np.asarray(i) for i in cell)
        else:
            listed = jnp.asarray(self.successors)
        return listed[cell if listed.ndim == 4 else cell[-2:]]

    def outcome_values(self, values: Float[AnyArray, "*H S"]) -> Float[AnyArray, "..."]:
        """`values` of the states as values of outcomes, zero for the end, to be broadcast against rows [*H S A O]."""
        values = self._with_end(values)
        if self.successors is None:
            return xp.expand_dims(values, (-3, -2))
        # At a place that is not filled (-1) stands any value: its probability is zero.
        return at_successors(values, self.successors)

    def values_after(self, values: Float[AnyArray, " S"], step: IntScalar = 0) -> Float[Array, "*#S O"]:
        """`values` of the states as values of the outcomes of one step: [O], or [S A K] where successors are listed.

        Args:
            step: of the episode, where lists depend on it.
        """
        values = jnp.asarray(self._with_end(values))
        if self.successors is None:
            return values
        listed = jnp.asarray(self.successors)
        return values[listed if listed.ndim == 3 else listed[step]]

    def _with_end(self, values: Float[AnyArray, "*H S"]) -> Float[AnyArray, "*H O"]:
        values = xp.asarray(values)
        return xp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, 1)]) if self.ends else values

    def mdp(
        self, rows: Float[AnyArray, "*H S A O"], reward: Float[AnyArray, "*H S A"], initial: ArrayLike | None = None
    ) -> MDP | SparseMDP:
        """The hypothesis with these probabilities of outcomes: an `MDP`, or a `SparseMDP` where successors are listed.

        Args:
            rows: [*H S A O].
            reward: [*H S A], expected rewards.
            initial: [S], distribution over the first state; None: none.
        """
        if self.successors is None:
            # The last outcome is the end of the episode: it is no state of the MDP.
            probs, ends = (rows[..., :-1], rows[..., -1]) if self.ends else (rows, None)
            return MDP(probs, reward, end_probs=ends, legal=self.legal, initial=initial)
        listed = jnp.broadcast_to(self.successors, jnp.shape(rows))
        if self.legal is not None:
            # An illegal pair without a successor stays where it is.
            empty, first = (listed < 0).all(-1, keepdims=True), jnp.arange(listed.shape[-1]) == 0
            listed = jnp.where(empty & first, jnp.arange(self.n_states)[:, None, None], listed)
            rows = jnp.where(empty, first.astype(jnp.result_type(rows)), rows)
        states = (listed >= 0) & (listed < self.n_states)
        probs = jnp.where(states, rows, 0.0)
        ends = jnp.where(listed == self.n_states, rows, 0.0).sum(-1) if self.ends else None
        successor = jnp.where(states, listed, 0)
        return SparseMDP(successor, probs, reward, end_probs=ends, legal=self.legal, initial=initial)

    @contextmanager
    def plates(self, *names: str) -> Generator[None, None, None]:
        """Open the NumPyro plates `step` (-3, if there is a horizon), `state` (-2) and `action` (-1), or those named.

        A site in fewer plates has size 1 along the others: it is shared there, and broadcasts. Plates of the space that
        are open already are used as they are: calls may be nested.

        Args:
            names: of the plates; none: all of them.

        Returns:
            A context, in which sites get these plates.

        Raises:
            ValueError: a name that is no plate of this space; another plate is open on the axis of one of these.
        """
        sizes = dict(zip(PLATE_NAMES[-len(self.shape) :], self.shape, strict=True))
        unknown = [name for name in names if name not in sizes]
        if unknown:
            raise ValueError(f"plates got {unknown[0]!r}, expected one of {', '.join(sizes)}")
        dims = dict(zip(PLATE_NAMES, (-3, -2, -1), strict=True))
        with open_plates({name: Plate(size, dims[name]) for name, size in sizes.items() if name in (names or sizes)}):
            yield


def mdps_of_tables(
    space: StateActionSpace,
    rows: Float[AnyArray, "N *H S A O"],
    reward: Float[AnyArray, "N *H S A"],
    initial: Float[np.ndarray, " S"] | None = None,
) -> MDP | SparseMDP:
    """Hypotheses with an axis N, one for each table, as arrays of NumPy that keep float64. Host side.

    Args:
        space: of all of them.
        rows, reward, initial: as of `StateActionSpace.mdp`, the tables with an axis N in front.
    """
    with jax.enable_x64(True):
        mdps = jax.vmap(lambda *table: space.mdp(table[0], table[1], initial))(jnp.asarray(rows), jnp.asarray(reward))
        return jax.tree.map(np.asarray, mdps)


def _actions_in_log(log: Log | FoldedLog) -> Bool[np.ndarray, "S A"]:
    """Which actions the log has in each state; all in a state that it never left. Host side."""
    columns = log.cells.where if isinstance(log, FoldedLog) else log.transitions
    taken = np.zeros((len(log.states), len(log.actions)), bool)
    taken[np.asarray(columns.state), np.asarray(columns.action)] = True
    taken[~taken.any(-1)] = True
    return taken


def _first_place(listed: Int[AnyArray, "*N K"], reached: Int[AnyArray, "*N"]) -> Int[AnyArray, "*N"]:
    """The place of each outcome in its list; K: none."""
    xp = np if isinstance(listed, np.ndarray) and isinstance(reached, np.ndarray) else jnp
    hit = listed == reached[..., None]
    return xp.where(hit.any(-1), hit.argmax(-1), hit.shape[-1])


class Plate(NamedTuple):
    """One plate: its size, and its axis from the right (negative)."""

    size: int
    dim: int


@contextmanager
def open_plates(wanted: Mapping[str, Plate]) -> Generator[None, None, None]:
    """Open these plates; one that is open already, of the same name, size and axis, is used as it is.

    Args:
        wanted: name -> plate.

    Returns:
        A context, in which sites get these plates.

    Raises:
        ValueError: another plate is open on the same axis, or one of the same name that differs.
    """
    import numpyro
    from numpyro.primitives import _PYRO_STACK  # pyright: ignore[reportPrivateUsage] (no public list of the handlers in force)

    around = [handler for handler in _PYRO_STACK if isinstance(handler, numpyro.plate)]
    open_now = {handler.name: Plate(handler.size, handler.dim) for handler in around}
    for name, plate in wanted.items():
        for open_name, opened in open_now.items():
            if (open_name == name) != (opened.dim == plate.dim) or (open_name == name and opened.size != plate.size):
                raise ValueError(
                    f"plate {open_name!r} (size {opened.size}, dim {opened.dim}) is open where space.plates() opens "
                    f"plate {name!r} (size {plate.size}, dim {plate.dim}), expected no other plate there: open it "
                    "inside space.plates(), or leave it before"
                )
    with ExitStack() as stack:
        for name, plate in wanted.items():
            if name not in open_now:
                stack.enter_context(numpyro.plate(name, plate.size, dim=plate.dim))
        yield


@runtime_checkable
class OfSpace(Protocol):
    """Has a space: a posterior, a program, a prior."""

    @property
    def space(self) -> StateActionSpace:
        """Sizes, names, masks."""
        ...


Key = TypeVar("Key", bound=OfSpace)  # hashable, and equal where it computes the same
Result = TypeVar("Result")

PROGRAMS = 64
CELLS = 2**25  # outcomes of all pairs, of the kept programs together: proofs hold a few tables of that size each


def program_cache(function: Callable[[Key], Result]) -> Callable[[Key], Result]:
    """`functools.lru_cache` by the size of programs: the last 64 results, and so many that their cells are 2^25.

    The last result is kept whatever its size. Safe under threads; two that ask for the same result at once may both
    compute it.
    """
    results: OrderedDict[Key, Result] = OrderedDict()
    lock = threading.Lock()

    @wraps(function)
    def cached(program: Key) -> Result:
        with lock:
            if program in results:
                results.move_to_end(program)
                return results[program]
        result = function(program)
        with lock:
            results[program] = result
            results.move_to_end(program)
            while len(results) > 1 and (len(results) > PROGRAMS or sum(map(_cells, results)) > CELLS):
                results.popitem(last=False)
        return result

    return cached


def _cells(program: OfSpace) -> int:
    space = program.space
    return (space.horizon or 1) * space.n_states * space.n_actions * space.n_outcomes
