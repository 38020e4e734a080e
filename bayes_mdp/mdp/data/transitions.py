# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""Data: `Transitions`, the `Log` they were read from, and their sufficient statistics `Counts`."""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Real

from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.utils.messages import count_of, see
from bayes_mdp.utils.modules import Module
from bayes_mdp.utils.typing import AnyArray, ArrayLike
from bayes_mdp.utils.validation import (
    as_array,
    as_indices,
    as_mask,
    as_names,
    as_real,
    check_finite,
    check_index,
    check_labels,
    check_name,
    check_names,
    check_not_negative,
    check_shape,
    check_type,
    check_width,
    described,
    first_index,
    if_given,
    is_concrete,
    label_list,
    require,
)

if TYPE_CHECKING:
    import pandas as pd

    from bayes_mdp.mdp.data.folded_log import FoldedLog
    from bayes_mdp.mdp.space import StateActionSpace


def _index(name: str, what: str, values: object) -> Any:
    return as_indices(f"transitions.{name}", values, what)


def _reward(values: object) -> Any:
    """Real numbers; of what is traced the dtype alone is known."""
    if values is None or not is_concrete(values):
        return values
    array = values if isinstance(values, jax.Array) else as_real("transitions.reward", values)
    if array.dtype == bool or not jnp.issubdtype(array.dtype, jnp.number) or array.dtype.kind == "c":
        array = as_real("transitions.reward", array)
    check_width("transitions.reward", array)
    return array


class Transitions(Module):
    """Observed transitions, one (scalars) or a batch of N.

    Args:
        state, action, next_state: Int[N], indices. `next_state` is not looked at where `terminated`.
        reward: Float[N], or None for data without rewards (they are then known to the user, or not needed).
        terminated: Bool[N], the transition ended the episode: no value beyond. None: never.
        truncated: Bool[N], the episode was cut here: bootstrap. None: never.
        step: Int[N], step of the episode; needed where rows depend on it. None: all zero.
        reward_observed: Bool[N], false where the reward of a transition is missing. None: all were observed.
        next_observed: Bool[N], false where it is not known what followed: the last row of an episode that did not
            terminate, a row before a gap. The action and the reward count, `next_state` is not looked at, and the row
            of the pair learns nothing. A reward whose law depends on the outcome says nothing without it and is left
            out. None: all were observed.

    Raises:
        ValueError: columns of other lengths, an index too large for JAX's integers, a reward too large for its floats
            or for the squares that their statistics need, a flag that is neither true nor false (or 1 or 0).
        TypeError: indices that are no integers, rewards that are no real numbers.

    Example:
        >>> data = bm.Transitions([0, 1], [0, 0], [0.0, 1.0], [1, 1], terminated=[False, True])
        >>> data.outcome(bm.StateActionSpace(2, 1, ends=True)).tolist()  # the end is outcome 2
        [1, 2]
    """

    state: Int[AnyArray, "*N"] = eqx.field(converter=partial(_index, "state", "state"))
    action: Int[AnyArray, "*N"] = eqx.field(converter=partial(_index, "action", "action"))
    reward: Real[AnyArray, "*N"] | None = eqx.field(converter=_reward)
    next_state: Int[AnyArray, "*N"] = eqx.field(converter=partial(_index, "next_state", "state"))
    terminated: Bool[AnyArray, "*N"] | None = eqx.field(
        default=None, converter=if_given(as_mask, "transitions.terminated")
    )
    truncated: Bool[AnyArray, "*N"] | None = eqx.field(
        default=None, converter=if_given(as_mask, "transitions.truncated")
    )
    step: Int[AnyArray, "*N"] | None = eqx.field(default=None, converter=if_given(_index, "step", "step"))
    reward_observed: Bool[AnyArray, "*N"] | None = eqx.field(
        default=None, kw_only=True, converter=if_given(as_mask, "transitions.reward_observed")
    )
    next_observed: Bool[AnyArray, "*N"] | None = eqx.field(
        default=None, kw_only=True, converter=if_given(as_mask, "transitions.next_observed")
    )

    def __check_init__(self) -> None:
        for name, column in vars(self).items():
            if column is not None:
                check_shape(f"transitions.{name}", column, jnp.shape(self.state), "as transitions.state")
        if self.reward is not None and is_concrete(self.reward, self.reward_observed):
            # Squares of rewards are added to variances, in JAX's default width: here, since posteriors are inferred in
            # float64 and used in that width.
            reward = np.abs(np.asarray(self.reward).astype(np.float64))
            limit = (float(np.finfo(jax.dtypes.canonicalize_dtype(float)).max) / max(reward.size, 1)) ** 0.5 / 4
            large = np.isfinite(reward) & (reward > limit)
            large = large if self.reward_observed is None else large & np.asarray(self.reward_observed)
            expected = f"a number of at most {limit:.1g}: squares of rewards are added"
            require(large, "abs(transitions.reward)", reward, expected)
        # An end that was not observed would be a contradiction.
        if self.terminated is not None and is_concrete(self.terminated, self.next_observed):
            conflict = self.terminated & ~np.asarray(True if self.next_observed is None else self.next_observed)
            row = first_index(np.asarray(conflict))
            if row is not None:
                raise ValueError(
                    f"transitions.terminated{list(row)} is True and next_observed{list(row)} is False, expected one of "
                    "them: that an episode ended there is an observation"
                )

    def outcome(self, space: "StateActionSpace | int") -> Int[AnyArray, "*N"]:
        """Index of the outcome in a row of `space`: the next state, or the number of states ("end") where terminated.

        In a space with `successors` the place in the list of the pair; K (there is no such place) where it is not
        listed. For a belief that has no space, the number of states is enough. Where what followed was not
        observed, the number of outcomes: no index of a row, so that what forgets `row_weight` fails.
        """
        reached = self.next_state
        # By numpy where everything is concrete: eager JAX would compile it.
        xp = np if is_concrete(reached, self.terminated, self.next_observed) else jnp
        if self.terminated is not None:
            end = space if isinstance(space, int) else space.n_states
            reached = xp.where(self.terminated, end, reached)
        if not isinstance(space, int) and space.successors is not None:
            reached = space.place(self.cell(space), reached)
        if self.next_observed is None:
            return reached
        # Beyond all outcomes: an index that forgets the weight fails.
        return xp.where(self.next_observed, reached, space + 1 if isinstance(space, int) else space.n_outcomes)

    def row_weight(self, weight: Float[AnyArray, "*N"]) -> Float[AnyArray, "*N"]:
        """With which weight the row of the pair learns from each transition: zero where `next_observed` is false.

        Args:
            weight: of each transition, a factor without unit.
        """
        if self.next_observed is None:
            return weight
        xp = np if isinstance(weight, np.ndarray) and is_concrete(self.next_observed) else jnp
        return xp.where(self.next_observed, weight, 0.0)

    def with_next_state(self) -> "Transitions":
        """The transitions of which it was observed what followed. Host side."""
        if self.next_observed is None:
            return self
        seen = np.asarray(self.next_observed)
        # Rows of which nothing followed are dropped.
        return replace(jax.tree.map(lambda x: np.asarray(x)[seen], self), next_observed=None)

    def observed_rewards(
        self, weight: Float[AnyArray, "*N"], *, by_outcome: bool
    ) -> tuple[Float[AnyArray, "*N"], Float[AnyArray, "*N"]]:
        """(weight, reward) of every transition, both zero where the weight is zero or the reward says nothing.

        That is where it was not observed, or where its law needs the outcome and that was not. By numpy, and numpy
        arrays, where the weight is one.

        Args:
            weight: of each transition, a factor without unit.
            by_outcome: whether the law of a reward depends on the outcome.
        """
        xp = np if isinstance(weight, np.ndarray) and is_concrete(self) else jnp
        # Masks are factors of the weight.
        count = weight if self.reward_observed is None else xp.where(self.reward_observed, weight, 0.0)
        count = self.row_weight(count) if by_outcome else count
        return count, xp.where(count != 0, xp.asarray(self.reward, count.dtype), 0.0)

    def cell(self, space: "StateActionSpace") -> tuple[Int[AnyArray, "*N"], ...]:
        """Index of the (step,) state, action of each transition into an array of shape `space.shape`."""
        if space.horizon is None:
            return (self.state, self.action)
        xp = np if is_concrete(self.state) else jnp
        # Without steps all rows are of step 0.
        step = xp.zeros_like(self.state) if self.step is None else self.step
        return (step, self.state, self.action)


def _drop_missing(columns: object) -> Any:
    """The pairs of a mapping from roles to columns that has a column."""
    if not isinstance(columns, Mapping):
        return columns
    return tuple((role, name) for role, name in columns.items() if name is not None)


@runtime_checkable
class HasContexts(Protocol):
    """The covariates of the transitions of a log, as `bayes_mdp.mdp.contexts` has them."""

    @property
    def contexts(self) -> object:
        """The distinct patterns."""
        ...

    def part(self, rows: np.ndarray) -> "HasContexts":
        """Those of some transitions."""
        ...

    def space(self, space: "StateActionSpace") -> "StateActionSpace":
        """A space with these contexts."""
        ...


class Log(eqx.Module):
    """A log as read: transitions, the labels behind the indices, and where it came from.

    Args:
        transitions: of the log.
        states, actions: the labels of all states and actions.
        source: name of the file, or what else it was.
        digest: SHA-256 of the file, as hexadecimal digits; None: it was none, or a part of one.
        columns: role ("state", "action", "reward", ...) -> name of its column, as pairs or a mapping; for what is
            printed. Roles without a column are left out.
        notes: what of the source is no transition, one sentence each, for what is printed.
        outcomes: name -> Float[N], other numbers of the transitions beside the reward, such as costs, in their own
            units; nan where one was not observed.
        covariates: of each transition (see `bayes_mdp.mdp.contexts`); None: there are none.

    Raises:
        TypeError: no transitions, labels that are no sequence of hashable values. ValueError: a label twice, an index
            without label, an outcome of another length.
    """

    transitions: Transitions
    states: tuple[Hashable, ...] = eqx.field(static=True, converter=as_names)
    actions: tuple[Hashable, ...] = eqx.field(static=True, converter=as_names)
    source: str = eqx.field(default="log", static=True)
    digest: str | None = eqx.field(default=None, static=True)
    columns: tuple[tuple[str, Hashable], ...] = eqx.field(
        default=(), static=True, kw_only=True, converter=_drop_missing
    )
    notes: tuple[str, ...] = eqx.field(default=(), static=True, kw_only=True)
    outcomes: Mapping[str, Float[AnyArray, "*N"]] = eqx.field(default_factory=dict, kw_only=True)
    covariates: HasContexts | None = eqx.field(default=None, static=True, kw_only=True)

    def of_outcome(self, name: str) -> "Log":
        """The same log with an outcome in place of the reward, and no others. Host side.

        Args:
            name: of the outcome.

        Raises:
            ValueError: it has no such outcome.

        Example:
            >>> import pandas as pd
            >>> table = pd.DataFrame({"s": ["a", "b"], "a": "go", "r": [0, 1], "days": [3.0, 4.0], "t": ["b", "a"]})
            >>> log = bm.read_log(table, state="s", action="a", reward="r", outcomes=["days"], next_state="t")
            >>> log.of_outcome("days").transitions.reward.tolist()
            [3.0, 4.0]
        """
        check_name("name", name, self.outcomes)
        # nan: the outcome was not measured there.
        numbers = np.asarray(self.outcomes[name], np.float64)
        seen = ~np.isnan(numbers)
        data = replace(
            self.transitions,
            reward=np.where(seen, numbers, 0.0),
            reward_observed=None if seen.all() else seen,
        )
        columns = {role: column for role, column in self.columns if role != "cost"} | {"reward": name}
        return replace(self, transitions=data, columns=columns, outcomes={})

    def column(self, role: str) -> Hashable:
        """The name of the column of a role; the role itself where it is not known.

        Args:
            role: "state", "action", "reward", ...
        """
        return dict(self.columns).get(role, role)

    @property
    def cost(self) -> Hashable | None:
        """The column of costs that the rewards are minus; None: rewards are as logged."""
        return dict(self.columns).get("cost")

    @property
    def n_transitions(self) -> int:
        """Number of transitions, those apart of which it is not known what followed."""
        seen = self.transitions.next_observed
        return int(np.size(self.transitions.state) if seen is None else np.sum(seen))

    @property
    def ends(self) -> bool:
        """Whether a transition terminated."""
        return bool(np.any(self.transitions.terminated))

    def __str__(self) -> str:
        """Its size, its labels, that rewards are minus costs where they are, and what is no transition."""
        named = (("state", self.states), ("action", self.actions))
        sizes = ", ".join(f"{count_of(len(x), noun)} ({label_list(x)})" for noun, x in named)
        cost = "" if self.cost is None else f"; rewards are minus column {self.cost!r}"
        notes = "".join(f"; {note}" for note in self.notes)
        contexts = "" if self.covariates is None else f"; {self.covariates.contexts}"
        outcomes = f"; outcomes beside the reward: {', '.join(self.outcomes)}" if self.outcomes else ""
        read = f"{count_of(self.n_transitions, 'transition')} of {self.source}"
        return f"{read}: {sizes}{contexts}{cost}{outcomes}{notes}"

    def __check_init__(self) -> None:
        check_type("transitions", self.transitions, Transitions, "Transitions")
        check_names("states", self.states)
        check_names("actions", self.actions)
        check_type("source", self.source, str, "a string")
        if is_concrete(self.transitions):
            check_index("transitions.state", self.transitions.state, len(self.states), "state")
            check_index("transitions.action", self.transitions.action, len(self.actions), "action")
        for name, numbers in self.outcomes.items():
            check_shape(f"outcomes[{name!r}]", numbers, jnp.shape(self.transitions.state), "as transitions.state")


def _statistic(name: str, values: object) -> Any:
    if not is_concrete(values):
        return values
    array = as_real(f"counts.{name}", values)
    check_width(f"counts.{name}", array)
    return values if isinstance(values, jax.Array) else array


class Counts(Module):
    """Sufficient statistics of transitions; O outcomes are the next states and, where episodes can end, the end.

    The squared deviations are kept, not the sum of squares, which cancels in float32.

    Args:
        transitions: Float[*H S A O], how often each outcome was observed.
        reward_count, reward_mean, reward_ss: Float[*H S A], or Float[*H S A O] where rewards depend on the outcome:
            number, mean and sum of squared deviations of the observed rewards.

    Raises:
        ValueError: shapes that disagree; a count, or a squared deviation of observed rewards, that is negative or not
            finite in JAX's float width; their mean not finite. TypeError: an argument without real numbers.

    Example:
        >>> data = bm.Transitions([0, 0, 1], [0, 0, 0], [1.0, 3.0, 5.0], [1, 0, 1])
        >>> counts = bm.Counts.of(data, bm.StateActionSpace(2, 1))
        >>> print(counts.transitions[0, 0], counts.reward_mean[:, 0])
        [1. 1.] [2. 5.]
    """

    transitions: Float[AnyArray, "*H S A O"] = eqx.field(converter=partial(_statistic, "transitions"))
    reward_count: Float[AnyArray, "*cells"] = eqx.field(converter=partial(_statistic, "reward_count"))
    reward_mean: Float[AnyArray, "*cells"] = eqx.field(converter=partial(_statistic, "reward_mean"))
    reward_ss: Float[AnyArray, "*cells"] = eqx.field(converter=partial(_statistic, "reward_ss"))

    def __check_init__(self) -> None:
        full = jnp.shape(self.transitions)
        if len(full) < 3:
            raise ValueError(f"counts.transitions has shape {full}, expected (step,) state, action, outcome")
        if jnp.shape(self.reward_count) not in (full, full[:-1]):
            shapes = f"{full[:-1]} or {full} (as counts.transitions)"
            raise ValueError(f"counts.reward_count has shape {jnp.shape(self.reward_count)}, expected {shapes}")
        for name in ("reward_mean", "reward_ss"):
            check_shape(f"counts.{name}", getattr(self, name), jnp.shape(self.reward_count), "as reward_count")

    @classmethod
    def of(
        cls, transitions: Transitions, space: "StateActionSpace", *, by_outcome: bool = False, weight: ArrayLike = 1.0
    ) -> "Counts":
        """Count `transitions` in `space`. Traceable.

        Args:
            transitions: the data.
            space: of the data.
            by_outcome: whether reward statistics are kept for every outcome, [*H S A O].
            weight: scalar or [N]; masks (where it is zero) or weighs.

        Returns:
            Their statistics, of the shapes of the class.

        Raises:
            ValueError, TypeError: as `check_transitions`.
        """
        # Checked where the numbers are at hand.
        check_transitions(transitions, space, weight)
        if is_concrete(transitions, weight, space.successors):
            # By numpy, in float64: eager JAX would compile every operation. Rows of weight zero are left out: what they
            # hold is not looked at, not even as an index.
            xp, table = np, _HostTable
            weights = np.broadcast_to(np.asarray(weight, np.float64), np.shape(transitions.state))
            transitions, weights = jax.tree.map(lambda x: np.asarray(x)[weights != 0], (transitions, weights))
        else:
            xp, table = jnp, _Table
            weights = jnp.broadcast_to(jnp.asarray(weight, float), jnp.shape(transitions.state))
        cell, outcome = transitions.cell(space), transitions.outcome(space)
        # What was not observed to lead anywhere counts in one column more, which is left out at the end.
        width = space.n_outcomes + (transitions.next_observed is not None)
        outcomes = table((*space.shape, width), (*cell, outcome))
        cells = outcomes if by_outcome else table(space.shape, cell)
        moments = 3 * (xp.zeros(cells.shape),)
        if transitions.reward is not None:
            samples = (*transitions.observed_rewards(weights, by_outcome=by_outcome), xp.zeros_like(weights))
            moments = pool_moments(samples, cells.add, cells.expand)
        moments = tuple(x[..., : space.n_outcomes] for x in moments) if by_outcome else moments
        # The column of what was not observed is left out.
        counts = outcomes.add(weights)[..., : space.n_outcomes]
        return cls(*(jnp.asarray(part, dtype=float) for part in (counts, *moments)))

    @classmethod
    def from_table(
        cls,
        table: "pd.DataFrame",
        space: "StateActionSpace",
        *,
        state: Hashable,
        action: Hashable,
        next_state: Hashable,
        count: Hashable,
        step: Hashable | None = None,
    ) -> "Counts":
        """The statistics of a table in long form: a row for each transition that was seen, and how often. No rewards.

        Args:
            table: its columns are named below; rows of one transition are added.
            space: of the labels; where episodes can end, "end" is one of the next states.
            state, action, next_state: columns of labels of the space.
            count: column of numbers, zero or greater.
            step: column of steps, where the space has a horizon.

        Raises:
            ValueError: a column that is missing, a label that is none of the space, a number that is none: which row.
                As `check_transitions`.

        Example:
            >>> import pandas as pd
            >>> table = pd.DataFrame({"from": [0, 0], "do": [0, 0], "to": [0, 1], "n": [2, 3]})
            >>> space = bm.StateActionSpace(2, 1)
            >>> counts = bm.Counts.from_table(table, space, state="from", action="do", next_state="to", count="n")
            >>> print(counts.transitions[0, 0])
            [2. 3.]
        """
        page = see("how-to/read-a-log")
        named = {"state": state, "action": action, "next_state": next_state, "count": count, "step": step}
        for role, name in named.items():
            if name is not None and name not in table.columns:
                present = ", ".join(map(repr, table.columns))
                raise ValueError(
                    f"{role} is column {name!r}, which the table has not, expected one of {present} {page}"
                )
        outcomes = (*space.state_names, *(["end"] if space.ends else []))
        columns: list[np.ndarray] = []
        for role, labels in (("state", space.state_names), ("action", space.action_names), ("next_state", outcomes)):
            # By label, as the space has them.
            number = {label: i for i, label in enumerate(labels)}
            cells = table[named[role]].tolist()
            row = next((i for i, label in enumerate(cells) if label not in number), None)
            if row is not None:
                raise ValueError(
                    f"the table, row {row + 1}: {role} {named[role]!r} is {cells[row]!r}, expected one of the labels "
                    f"of the space ({label_list(labels)}) {page}"
                )
            columns.append(np.array([number[label] for label in cells], np.int32))
        weight = np.asarray(table[count], np.float64)
        row = first_index(~(np.isfinite(weight) & (weight >= 0)))
        if row is not None:
            raise ValueError(
                f"the table, row {row[0] + 1}: count {count!r} is {weight[row]}, expected a number, zero or greater "
                + page
            )
        states, taken, reached = columns
        # The end stands after all states.
        ended = reached == space.n_states
        steps = None if step is None else table[step].to_numpy()
        ends = ended if space.ends else None
        data = Transitions(states, taken, None, np.where(ended, 0, reached), ends, step=steps)
        return cls.of(data, space, weight=weight)

    def merge(self, other: "Counts") -> "Counts":
        """The statistics of this data set and `other` together, of the same shapes."""
        moments = merge_moments(self.reward_moments, other.reward_moments)
        return Counts(self.transitions + other.transitions, *moments)

    @property
    def reward_moments(self) -> tuple[AnyArray, AnyArray, AnyArray]:
        """`reward_count`, `reward_mean`, `reward_ss`: each [*H S A], or [*H S A O]."""
        return self.reward_count, self.reward_mean, self.reward_ss


Moments = tuple[Float[AnyArray, "*cells"], Float[AnyArray, "*cells"], Float[AnyArray, "*cells"]]
"""Count, mean and sum of squared deviations of the samples of each cell. A sum of squares would cancel in float32."""


def merge_moments(one: Moments, other: Moments) -> Moments:
    """The moments of both samples together, cell by cell; a mean without count must be finite.

    Source: Chan, Golub and LeVeque (1983), *Algorithms for computing the sample variance*.
    """
    (count, mean, ss), (their_count, their_mean, their_ss) = one, other
    # n = n1 + n2, mean = mean1 + shift n2 / n, ss = ss1 + ss2 + shift^2 n1 n2 / n.
    total = count + their_count
    share = their_count / xp.where(total > 0, total, 1.0)
    shift = their_mean - mean
    return total, mean + shift * share, ss + their_ss + shift**2 * count * share


def pool_moments(
    moments: Moments, add: Callable[[AnyArray], AnyArray], expand: Callable[[AnyArray], AnyArray]
) -> tuple[Float[AnyArray, "*groups"], Float[AnyArray, "*groups"], Float[AnyArray, "*groups"]]:
    """The moments of groups of samples.

    Args:
        moments: of the samples; a single number x is (1, x, 0).
        add: sums over the samples of each group.
        expand: gives the value of each group to its samples.
    """
    count, mean, ss = moments
    total = add(count)
    # Two passes: the mean of the group, then squares around it.
    centre = add(count * mean) / xp.where(total > 0, total, 1.0)
    return total, centre, add(ss + count * (mean - expand(centre)) ** 2)


class _Table(NamedTuple):
    """Samples in the cells of a table of this shape; `place` holds one index for each axis, [N] each."""

    shape: tuple[int, ...]
    place: tuple[AnyArray, ...]

    def add(self, x: AnyArray) -> AnyArray:
        """Sums of `x` over the samples of each cell; an index outside the table counts nowhere."""
        # Out of range: dropped by JAX.
        return jnp.zeros(self.shape).at[self.place].add(x)

    def expand(self, x: AnyArray) -> AnyArray:
        """The entry of each sample's cell; any entry where its index is outside."""
        return x[self.place]


class _HostTable(_Table):
    """The same by numpy; every index is inside."""

    def add(self, x: AnyArray) -> AnyArray:
        """Sums of `x` over the samples of each cell, in float64."""
        # `bincount` is the fastest sum by group in NumPy.
        total = np.bincount(np.ravel_multi_index(self.place, self.shape), x, math.prod(self.shape))
        return total.reshape(self.shape).astype(np.float64, copy=False)  # without samples they are integers


def check_transitions(transitions: Transitions, space: "StateActionSpace", weight: ArrayLike = 1.0) -> None:
    """Refuse data that `space` cannot hold.

    That is: columns of other lengths, indices out of range, illegal actions, unsupported outcomes, rewards that are not
    finite. Inside a trace the lengths alone are looked at.

    Args:
        transitions: the data.
        weight: scalar or [N], zero or greater; rows of weight zero are not looked at.

    Raises:
        ValueError, TypeError: one sentence: the argument, the first offending row, what was there and expected.
    """
    check_weighted(transitions, weight)
    if not hasattr(space, "n_outcomes"):  # a StateActionSpace, which this module cannot import
        raise TypeError(f"space is {described(space)}, expected a StateActionSpace")
    valid = without_masked_rows(transitions, weight) if is_concrete(transitions, weight) else None
    if valid is not None:
        _check_values(valid, space)


def check_log_labels(name: str, log: "Log | FoldedLog", space: "StateActionSpace") -> None:
    """The states and actions of a log are those of the space, in their order.

    Args:
        name: of the log, for the sentence.

    Raises:
        ValueError: other labels, or another order.
    """
    check_labels(f"{name}.states", log.states, space.logged_states)
    check_labels(f"{name}.actions", log.actions, space.action_names)


def check_weighted(data: object, weight: ArrayLike) -> None:
    """Refuse what a posterior cannot learn from at all: no data, weights that are neither one number nor one for each
    transition; those that are not traced are finite, zero or greater.

    Args:
        data: `Transitions` or `Counts`, which have one weight.

    Raises:
        ValueError, TypeError: one sentence.
    """
    if isinstance(data, Log):
        raise TypeError(
            "transitions is a Log, expected what read_log(..., space=, chunksize=) returns, whose labels are looked "
            "at, or log.transitions, if states and actions have the numbers of this space (read_log(..., states=, "
            "actions=))"
        )
    check_type("transitions", data, (Transitions, Counts), "Transitions")
    shape = jnp.shape(data.state) if isinstance(data, Transitions) else ()
    if is_concrete(weight):
        # A mask is a weight.
        weights = as_array("weight", weight, "numbers")
        check_not_negative("weight", weights if weights.dtype == bool else weight)
    if np.shape(weight) not in ((), shape):
        expected = f"() or {shape}" if shape else "()"
        raise ValueError(f"weight has shape {np.shape(weight)}, expected {expected}")


def without_masked_rows(transitions: Transitions, weight: ArrayLike) -> Transitions | None:
    """`transitions`, each row of weight zero replaced by the first other row (so that every row keeps its number).

    None: there is no other row. Host side.
    """
    # A mask is a weight of zero.
    keep = np.broadcast_to(np.asarray(weight) != 0, np.shape(transitions.state))
    if keep.all():
        return transitions
    first = first_index(keep)
    return None if first is None else jax.tree.map(lambda x: np.where(keep, x, np.asarray(x)[first]), transitions)


def _check_values(transitions: Transitions, space: "StateActionSpace") -> None:
    check_index("transitions.state", transitions.state, space.n_states, "state")
    check_index("transitions.action", transitions.action, space.n_actions, "action")
    reached = np.asarray(transitions.next_state)
    # Columns that are not there: nothing ended, everything was observed.
    ended = np.zeros(reached.shape, bool) if transitions.terminated is None else np.asarray(transitions.terminated)
    seen = np.ones(reached.shape, bool) if transitions.next_observed is None else np.asarray(transitions.next_observed)
    check_index("transitions.next_state", np.where(ended | ~seen, 0, reached), space.n_states, "state")
    if not space.ends:
        row = first_index(ended)
        if row is not None:
            raise ValueError(
                f"transitions.terminated{list(row)} is True, expected a space with ends=True {see('how-to/read-a-log')}"
            )
    if space.horizon is not None:
        if transitions.step is None:
            raise ValueError(
                "transitions.step is None, expected the step of each transition (the space has a horizon) "
                + see("how-to/read-a-log")
            )
        check_index("transitions.step", transitions.step, space.horizon, "step")
    if transitions.reward is not None:
        reward = np.asarray(transitions.reward, float)
        observed = transitions.reward_observed
        reward = reward if observed is None else np.where(np.asarray(observed), reward, 0.0)
        check_finite("transitions.reward", reward)
    _check_masks(transitions, space, np.where(ended, space.n_states, np.where(seen, reached, 0)), seen)


def _check_masks(
    transitions: Transitions, space: "StateActionSpace", reached: np.ndarray, seen: Bool[np.ndarray, "*N"]
) -> None:
    cell = tuple(np.asarray(i) for i in transitions.cell(space))
    if space.legal is not None:
        row = first_index(~space.legal[cell[-2:]])
        if row is not None:
            s, a = (int(i[row]) for i in cell[-2:])
            action, state = space.action_names[a], space.state_names[s]
            raise ValueError(
                f"transitions.action{list(row)} is {action!r}, expected a legal action of state {state!r} "
                + see("how-to/read-a-log")
            )
    if space.successors is not None:
        with jax.ensure_compile_time_eval():  # concrete data are looked into inside a trace too
            # Places of the list, for successors that are listed.
            place = np.asarray(space.place(cell, reached))
        row, among = first_index(seen & (place == space.n_outcomes)), "a listed successor"
    elif space.support is not None:
        support_index = cell if space.support.ndim == 4 else cell[-2:]
        row, among = first_index(seen & ~space.support[(*support_index, reached)]), "an outcome in the known support"
    else:
        return
    if row is not None:
        s, a = (int(i[row]) for i in cell[-2:])
        state, action = space.state_names[s], space.action_names[a]
        after = "the end" if reached[row] == space.n_states else repr(space.state_names[int(reached[row])])
        raise ValueError(
            f"transitions.next_state{list(row)} is {after}, expected {among} of state {state!r}, action {action!r} "
            + see("how-to/read-a-log")
        )


def without_rewards(data: Transitions | Counts) -> Transitions | Counts:
    """The same data, of whose rewards nothing was observed. Traceable."""
    if isinstance(data, Transitions):
        return replace(data, reward=None, reward_observed=None)
    # Zero of the same shape, traced or not.
    zero = 0.0 * data.reward_count
    return replace(data, reward_count=zero, reward_mean=zero, reward_ss=zero)
