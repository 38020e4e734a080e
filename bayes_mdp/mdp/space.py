"""`StateActionSpace`: sizes, names, masks and known successors of an MDP whose dynamics are unknown."""

from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Bool

from bayes_mdp.mdp.data import Log
from bayes_mdp.mdp.typing import ArrayLike
from bayes_mdp.mdp.validation import (
    as_int,
    as_mask,
    as_names,
    check_bool,
    check_count,
    check_names,
    check_shape,
    check_type,
    require,
)

END = "end"
PLATE_NAMES = ("step", "state", "action")


def check_space(space: object, name: str = "space") -> None:
    """Raise a TypeError unless it is a `StateActionSpace`."""
    check_type(name, space, StateActionSpace, "a StateActionSpace")


def _mask(name: str, values: object) -> np.ndarray | None:
    return None if values is None else np.asarray(as_mask(name, values))


def _bool(value: object) -> Any:
    return bool(value) if isinstance(value, np.bool_) else value


class StateActionSpace(eqx.Module):
    """What is known of an MDP before any data: S, A, whether episodes can end, names, masks.

    Args:
        n_states, n_actions: S and A.
        horizon: H where rows depend on the step of an episode; None for a stationary MDP.
        ends: whether a transition can end an episode. "end" is then one more outcome, the last, of every row.
        states, actions: names (any hashable); they become coordinates. None: 0, 1, ...
        legal: Bool[S A], which actions exist in which state; None: all.
        support: Bool[S A O] (or [H S A O]), which outcomes (next states, then the end where `ends`) are possible;
            None: all.

    Raises:
        ValueError: a size below 1, names that repeat or do not fit, a state called "end" where episodes can end, masks
            of another shape, a state without a legal action, a legal pair without a possible outcome.
        TypeError: a size that is no integer, `ends` that is no bool, a name that cannot be hashed, a mask that does
            not consist of booleans.
    """

    n_states: int = eqx.field(static=True, converter=as_int)
    n_actions: int = eqx.field(static=True, converter=as_int)
    horizon: int | None = eqx.field(default=None, static=True, kw_only=True, converter=as_int)
    ends: bool = eqx.field(default=False, static=True, kw_only=True, converter=_bool)
    states: tuple[Hashable, ...] | None = eqx.field(default=None, static=True, kw_only=True, converter=as_names)
    actions: tuple[Hashable, ...] | None = eqx.field(default=None, static=True, kw_only=True, converter=as_names)
    legal: Bool[np.ndarray, "S A"] | None = eqx.field(default=None, kw_only=True, converter=partial(_mask, "legal"))
    support: Bool[np.ndarray, "*H S A O"] | None = eqx.field(
        default=None, kw_only=True, converter=partial(_mask, "support")
    )

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
        if self.legal is not None:
            check_shape("legal", self.legal, (self.n_states, self.n_actions), "state, action")
            require(~self.legal.any(-1), "legal", self.legal.any(-1), "at least one legal action in every state")
        if self.support is not None:
            lead = self.shape if self.support.ndim == 4 else self.shape[-2:]
            check_shape("support", self.support, (*lead, self.n_outcomes), "state, action, outcome")
            possible = self.support.any(-1)
            empty = ~possible if self.legal is None else ~possible & self.legal
            require(empty, "support", possible, "at least one possible outcome")

    @property
    def n_outcomes(self) -> int:
        """O: the number of outcomes of a row, S and, where episodes can end, the end."""
        return self.n_states + self.ends

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
    def action_names(self) -> tuple[Hashable, ...]:
        """The names of the actions."""
        return self.actions or tuple(range(self.n_actions))

    @property
    def outcome_names(self) -> tuple[Hashable, ...]:
        """The names of the outcomes of a row: the states and, where episodes can end, "end"."""
        return self.state_names + ((END,) if self.ends else ())

    @classmethod
    def from_log(
        cls,
        log: Log,
        *,
        horizon: int | None = None,
        ends: bool | None = None,
        legal: ArrayLike | None = None,
        support: ArrayLike | None = None,
    ) -> "StateActionSpace":
        """The space of a log: its labels, and what else is known (see the class).

        Args:
            log: as `read_log` returns it.
            ends: None: whether an episode of the log terminated.

        Raises:
            TypeError: `log` is no `Log`.
            ValueError: as the class.
        """
        if not isinstance(log, Log):
            raise TypeError(f"log is a {type(log).__name__}, expected a Log, which has the labels (see read_log)")
        ends = bool(np.any(log.transitions.terminated)) if ends is None else ends
        return cls(
            len(log.states),
            len(log.actions),
            horizon=horizon,
            ends=ends,
            states=log.states,
            actions=log.actions,
            legal=legal,
            support=support,
        )

    @contextmanager
    def plates(self, *names: str) -> Iterator[None]:
        """Open the NumPyro plates `step` (-3, if there is a horizon), `state` (-2) and `action` (-1), or those named.

        A site in fewer plates has size 1 along the others: it is shared there, and broadcasts.

        Raises:
            ValueError: a name that is no plate of this space.
        """
        import numpyro

        sizes = dict(zip(PLATE_NAMES[-len(self.shape) :], self.shape, strict=True))
        unknown = [name for name in names if name not in sizes]
        if unknown:
            raise ValueError(f"plates got {unknown[0]!r}, expected one of {', '.join(sizes)}")
        with ExitStack() as stack:
            for name, dim in zip(PLATE_NAMES, (-3, -2, -1), strict=True):
                if name in (names or sizes):
                    stack.enter_context(numpyro.plate(name, sizes[name], dim=dim))
            yield
