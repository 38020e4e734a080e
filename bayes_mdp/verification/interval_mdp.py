"""`IntervalMDP`: an MDP whose probabilities are known to lie in intervals, and its least and greatest values.

First the model and how arrays become one (`interval_mdp`); then `robust_values`: the rows of every choice are the ones
within their intervals that make its value least, or greatest ([GIVAN00], [ROBUSTDP05]). At the end the
parts: the best row (`Rows`), who can stay away from the target, and the certificate of the error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.mdp import Discounted, Episodic, FirstExit, Objective, StateActionSpace
from bayes_mdp.mdp.space import check_space
from bayes_mdp.planning.extended_mdp import least_rows, solve_listed
from bayes_mdp.utils.layout import Section, as_html, as_text
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.messages import amount, count_of
from bayes_mdp.utils.typing import ArrayLike, IntScalar
from bayes_mdp.utils.validation import as_real, check_name, check_shape, check_type, first_index

DONE = "done"
"""The label of the state in which everything ends: episodes, and what a discount leaves."""
REWARD = "reward"
"""The name of the rewards of a model that was made here."""
ROUNDING = 1e-9
"""By how much the ends of the intervals of a row may miss one: files have so many digits."""


@dataclass(frozen=True, eq=False)
class IntervalMDP:
    """S states, C choices of a state, E entries of the rows (built by `interval_mdp`, `load_interval_mdp`).

    Args:
        first_choice: [S + 1], where the choices of each state begin, and C.
        first_entry: [C + 1], where the entries of each choice begin, and E.
        successor: [E], the state that an entry leads to.
        lower, upper: [E], the interval of its probability.
        rewards: name -> rewards of the choices, [C].
        labels: name -> which states have it, [S].
        initial: where the process starts.
        state_names: [S], for people.
        action_names: [C], the action of each choice.
        about: what the intervals are, a line each.
    """

    first_choice: Int[np.ndarray, " S1"]
    first_entry: Int[np.ndarray, " C1"]
    successor: Int[np.ndarray, " E"]
    lower: Float[np.ndarray, " E"]
    upper: Float[np.ndarray, " E"]
    rewards: Mapping[str, Float[np.ndarray, " C"]]
    labels: Mapping[str, Bool[np.ndarray, " S"]]
    initial: int
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    about: tuple[str, ...] = field(default=())

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.first_choice) - 1

    @property
    def n_choices(self) -> int:
        """C."""
        return len(self.first_entry) - 1

    @property
    def state(self) -> Int[np.ndarray, " C"]:
        """The state of each choice."""
        return np.repeat(np.arange(self.n_states), np.diff(self.first_choice))

    @property
    def choice(self) -> Int[np.ndarray, " E"]:
        """The choice of each entry."""
        return np.repeat(np.arange(self.n_choices), np.diff(self.first_entry))

    def in_words(self, choice: IntScalar) -> str:
        """A choice in a message.

        Args:
            choice: its number.
        """
        return f"state {self.state_names[self.state[choice]]!r}, action {self.action_names[choice]!r}"

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """What `print` and a notebook show of it."""
        width = self.upper - self.lower
        known = int((width <= ROUNDING).sum())
        return Section(
            f"Interval MDP of {count_of(self.n_states, 'state')}, {count_of(self.n_choices, 'choice')} and "
            f"{count_of(len(width), 'interval')}",
            [
                f"intervals: mean width {amount(width.mean(), 3)}, widest {amount(width.max(), 3)}, {known} known",
                f"starts in {self.state_names[self.initial]}",
                f"rewards: {', '.join(self.rewards) or 'none'}",
                *self.about,
            ],
        )


def checked(model: IntervalMDP) -> IntervalMDP:
    """The model, whose intervals each hold a row; ends that miss this by rounding are moved.

    Raises:
        ValueError: an interval that is empty or no part of [0, 1]; a row whose intervals hold no distribution; a choice
            without entries, or two to one state; a reward that is not finite.
    """
    choice = model.choice

    def refuse(bad: Bool[np.ndarray, " E"]) -> None:
        index = first_index(bad)
        if index is not None:
            (e,) = index
            target = model.state_names[model.successor[e]]
            raise ValueError(
                f"the interval of {model.in_words(choice[e])} to {target!r} is [{model.lower[e]:g}, "
                f"{model.upper[e]:g}], expected 0 <= lower end <= upper end <= 1"
            )

    refuse(~(np.isfinite(model.lower) & np.isfinite(model.upper)))
    refuse((model.lower < 0) | (model.upper > 1 + ROUNDING) | (model.lower > model.upper))
    if len(model.successor) and not ((model.successor >= 0) & (model.successor < model.n_states)).all():
        bad = int(np.flatnonzero((model.successor < 0) | (model.successor >= model.n_states))[0])
        raise ValueError(
            f"{model.in_words(choice[bad])} leads to state {model.successor[bad]}, expected one from 0 to "
            f"{model.n_states - 1}"
        )
    without = first_index(np.diff(model.first_choice) == 0)
    if without is not None:
        raise ValueError(f"state {model.state_names[without[0]]!r} has no choice, expected one at least")
    empty = first_index(np.diff(model.first_entry) == 0)
    if empty is not None:
        raise ValueError(f"{model.in_words(empty[0])} has no outcome, expected one at least")
    pair = choice * model.n_states + model.successor
    order = np.argsort(pair, kind="stable")
    twice = first_index(np.diff(pair[order]) == 0)
    if twice is not None:
        e = int(order[twice[0]])
        target = model.state_names[model.successor[e]]
        raise ValueError(f"{model.in_words(choice[e])} has two intervals to {target!r}, expected one")
    least, greatest = (np.add.reduceat(x, model.first_entry[:-1]) for x in (model.lower, model.upper))
    for total, bad, word, hint in (
        (least, least > 1 + ROUNDING, "lower", "at most 1"),
        (greatest, greatest < 1 - ROUNDING, "upper", "at least 1"),
    ):
        index = first_index(bad)
        if index is not None:
            raise ValueError(
                f"the intervals of {model.in_words(index[0])} hold no distribution: their {word} ends sum to "
                f"{total[index[0]]:.10g}, expected {hint}"
            )
    for name, reward in model.rewards.items():
        index = first_index(~np.isfinite(reward))
        if index is not None:
            raise ValueError(f"{name} of {model.in_words(index[0])} is {reward[index]}, expected a finite number")
    # Ends that miss one by rounding: those of the row are scaled, so that every row holds a distribution.
    lower = model.lower / np.maximum(least, 1.0)[choice]
    upper = np.maximum(np.minimum(model.upper / np.minimum(greatest, 1.0)[choice], 1.0), lower)
    return replace(model, lower=lower, upper=upper)


def interval_mdp(
    lower: ArrayLike,
    upper: ArrayLike,
    reward: ArrayLike,
    objective: Objective,
    *,
    space: StateActionSpace | None = None,
    initial: Float[np.ndarray, " S"] | None = None,
    about: Sequence[str] = (),
) -> IntervalMDP:
    """An interval MDP from lower and upper bounds of your own; from a posterior: `export_interval_mdp`.

    The objective is built in, as a sum of rewards that ends in `done`.

    A discount g multiplies every interval, and 1 - g leads to a state `done`; so does the end of an episode. Under
    `Episodic` there is a state for each step and state, and rows may differ from step to step.

    Args:
        lower, upper: [*H S A O], ends of the intervals; the last outcome is the end of an episode where there is one
            more than states. A probability whose upper end is zero is impossible.
        reward: [*H S A], mean rewards.
        objective: Discounted, FirstExit or Episodic.
        space: names, and actions that are legal. None: numbers, all legal.
        initial: distribution of the first state, [S]. None: uniform.
        about: what the intervals are, a line each.

    Raises:
        ValueError: shapes that do not fit; intervals that are empty (see `IntervalMDP`); `AverageReward`; `FirstExit`
            without an end. TypeError: arrays that hold no numbers, another objective.

    Example:
        >>> low, high = np.array([[[0.2, 0.6]]]), np.array([[[0.4, 0.8]]])  # a state, an action: go on, or end
        >>> known = bm.verification.interval_mdp(low, high, [[1.0]], bm.FirstExit())
        >>> bm.verification.robust_values(known, reward="reward", rows="least").initial
        1.25
    """
    low, high, paid = (as_real(n, x) for n, x in (("lower", lower), ("upper", upper), ("reward", reward)))
    low, high, paid = low.astype(np.float64), high.astype(np.float64), paid.astype(np.float64)
    if low.ndim not in (3, 4):
        raise ValueError(f"lower has shape {low.shape}, expected (step,) state, action, outcome")
    check_shape("upper", high, low.shape, "(step,) state, action, outcome")
    check_shape("reward", paid, low.shape[:-1], "(step,) state, action")
    n_states, n_actions, width = low.shape[-3:]
    if width not in (n_states, n_states + 1):
        raise ValueError(f"lower has {n_states} states and {width} outcomes, expected as many, or one more (the end)")
    if space is None:
        horizon = low.shape[0] if low.ndim == 4 else None
        space = StateActionSpace(n_states, n_actions, ends=width > n_states, horizon=horizon)
    check_space(space)
    check_shape("lower", low, (*space.shape, space.n_outcomes), "(step,) state, action, outcome of the space")
    steps, rate = _steps_and_rate(objective, low, space)
    start = np.full(n_states, 1 / n_states) if initial is None else np.asarray(initial, np.float64)
    check_shape("initial", start, (n_states,), "state")
    states = [str(name) for name in space.state_names]
    actions = [str(name) for name in space.action_names]
    legal = np.ones((n_states, n_actions), bool) if space.legal is None else np.asarray(space.legal)
    layers = range(1 if steps is None else steps)
    check_memory(
        f"an interval MDP of {len(layers)} x {n_states} states and {n_actions} actions",
        64.0 * len(layers) * n_states * n_actions * width,
        "fewer steps or states take less",
    )
    # Where the end and what the discount leaves lead: the last state.
    done = len(layers) * n_states
    listed, names, earned = Listed(), list[str](), list[float]()
    for layer in layers:
        step = layer if low.ndim == 4 else None
        base = 0 if steps is None else layer * n_states
        ahead = 0 if steps is None else base + n_states
        last = steps is not None and layer == steps - 1
        for s in range(n_states):
            names.append(states[s] if steps is None else f"{states[s]}, step {layer}")
            for a in np.flatnonzero(legal[s]):
                index = (s, a) if step is None else (step, s, a)
                listed.choice(base + s, actions[a])
                _add_row(listed, low[index], high[index], n_states, ahead, done, rate, last)
                earned.append(paid[index])
    listed.choice(done, "stay")
    listed.entries.append((done, 1.0, 1.0))
    names.append(DONE)
    (first,) = np.nonzero(start)
    if len(first) == 1:
        begin = int(first[0])
    else:
        # A checker starts in one state: of several, one that leads to them.
        begin = len(names)
        listed.choice(begin, "start")
        listed.entries.extend((int(s), float(start[s]), float(start[s])) for s in first)
        names.append("start")
    listed.rewards = {REWARD: [*earned, *[0.0] * (len(listed.actions) - len(earned))]}
    return checked(listed.model(begin, names, {DONE: np.arange(len(names)) == done}, about))


def _steps_and_rate(
    objective: Objective, low: Float[np.ndarray, "*H S A O"], space: StateActionSpace
) -> tuple[int | None, float]:
    """How many layers of states, and the factor of going on."""
    if isinstance(objective, Episodic):
        if low.ndim == 4 and len(low) < objective.horizon:
            raise ValueError(
                f"objective has {objective.horizon} steps, and lower has {len(low)}, expected no more steps than rows"
            )
        return objective.horizon, float(objective.discount)
    if low.ndim == 4:
        raise ValueError("lower depends on the step, expected an Episodic objective")
    if isinstance(objective, Discounted):
        return None, float(objective.discount)
    if isinstance(objective, FirstExit):
        if not space.ends:
            raise ValueError("objective is FirstExit, and nothing ends (ends=False), expected Discounted or Episodic")
        return None, 1.0
    raise ValueError("objective is AverageReward, expected Discounted, FirstExit or Episodic (sums that are finite)")


class Listed:
    """Choices and entries as they come, in the order of the states."""

    def __init__(self) -> None:
        self.choices: list[int] = []
        self.first_entry: list[int] = []
        self.entries: list[tuple[int, float, float]] = []
        self.actions: list[str] = []
        self.rewards: dict[str, list[float]] = {}

    def choice(self, state: int, action: str) -> None:
        """A choice of a state, whose entries follow."""
        self.choices.append(state)
        self.first_entry.append(len(self.entries))
        self.actions.append(action)

    def model(
        self,
        initial: int,
        names: Sequence[str],
        labels: Mapping[str, Bool[np.ndarray, " S"]],
        about: Sequence[str],
    ) -> IntervalMDP:
        """All of it, not yet checked.

        Args:
            initial: where the process starts.
            names: of the states.
            labels: name -> which states have it.
            about: what the intervals are, a line each.
        """
        counts = np.bincount(np.array(self.choices, int), minlength=len(names))
        successor, lower, upper = (np.array([entry[i] for entry in self.entries]) for i in range(3))
        return IntervalMDP(
            np.concatenate([[0], np.cumsum(counts)]),
            np.array([*self.first_entry, len(self.entries)]),
            successor.astype(int),
            lower.astype(float),
            upper.astype(float),
            {name: np.array(values, float) for name, values in self.rewards.items()},
            labels,
            initial,
            tuple(names),
            tuple(self.actions),
            tuple(about),
        )


def _add_row(
    listed: Listed,
    low: Float[np.ndarray, " O"],
    high: Float[np.ndarray, " O"],
    n_states: int,
    ahead: int,
    done: int,
    rate: float,
    last: bool,
) -> None:
    """The entries of a row: discounted, with the end, and what the discount leaves, as one entry to `done`."""
    if last:
        listed.entries.append((done, 1.0, 1.0))
        return
    for o in np.flatnonzero(high[:n_states] > 0):
        listed.entries.append((ahead + int(o), rate * float(low[o]), rate * float(high[o])))
    low_end, high_end = (float(x[n_states]) if len(x) > n_states else 0.0 for x in (low, high))
    if rate < 1 or high_end > 0:
        listed.entries.append((done, (1 - rate) + rate * low_end, min((1 - rate) + rate * high_end, 1.0)))


@dataclass(frozen=True, eq=False)
class RobustValues:
    """What `robust_values` returns.

    Args:
        values: [S], the value of every state.
        bound: [S], by how much each value may be off, at most (proven, rounding included).
        choice: Int[S], the choice that was best in each state, counted among those of the state.
        model: whose values.
        words: what the values are.
    """

    values: Float[np.ndarray, " S"]
    bound: Float[np.ndarray, " S"]
    choice: Int[np.ndarray, " S"]
    model: IntervalMDP
    words: str

    @property
    def initial(self) -> float:
        """The value where the process starts."""
        return float(self.values[self.model.initial])

    @property
    def actions(self) -> dict[str, str]:
        """State -> action, by name."""
        chosen = self.model.first_choice[:-1] + self.choice
        return {name: self.model.action_names[c] for name, c in zip(self.model.state_names, chosen, strict=True)}

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """What `print` and a notebook show of it."""
        start = self.model.state_names[self.model.initial]
        error = amount(self.bound[self.model.initial], 2)
        return Section(f"{self.words}: {self.initial:.10g} from {start} (off by {error} at most)")


def robust_values(
    model: IntervalMDP,
    *,
    reward: str | None = None,
    target: str = DONE,
    sense: Literal["max", "min"] = "max",
    rows: Literal["least", "most"] = "least",
) -> RobustValues:
    """The least or the greatest value that the intervals allow, of a policy that maximises or minimises it.

    In every choice the rows are those within their intervals that make the value least, or most; they may be others
    each time. With `sense="max"`, `rows="least"` is what a policy is sure of, and `rows="most"` what may be hoped for.

    Args:
        model: with its intervals.
        reward: the name of the rewards that are summed until the target. None: the probability to reach the target.
        target: a label.
        sense: whether the policy maximises or minimises.
        rows: the rows that make the value "least", or "most".

    Raises:
        ValueError: no such label or reward; a policy can stay away from the target for ever (then no bound is proven).
        TypeError: `model` is no IntervalMDP.
    """
    check_type("model", model, IntervalMDP, "an IntervalMDP")
    check_name("target", target, model.labels)
    if reward is not None:
        check_name("reward", reward, model.rewards)
    check_name("sense", sense, ("max", "min"))
    check_name("rows", rows, ("least", "most"))
    reached = np.asarray(model.labels[target], bool)
    possible = _can_reach(model, reached)
    if reward is None:
        # What can never reach the target has probability zero, and is as good as an end.
        fixed = reached | ~possible
        paid, ended = np.zeros(model.n_choices), np.where(reached, 1.0, 0.0)
    else:
        fixed, ended = reached, np.zeros(model.n_states)
        paid = np.asarray(model.rewards[reward], float)
    _require_end(model, fixed, target, reward)
    problem = _Problem.of(model, paid, ended, fixed)
    optimistic = rows == "most"
    values = problem.solve(sense == "max", optimistic)
    bound = problem.bound(values, sense == "max", optimistic)
    _, choice, _ = problem.sweep(values, sense == "max", optimistic)
    quantity = f"probability of {target!r}" if reward is None else f"{reward!r} until {target!r}"
    words = f"{'greatest' if sense == 'max' else 'least'} {quantity} under the rows that make it {rows}"
    return RobustValues(values, bound, choice, model, words)


def _can_reach(model: IntervalMDP, target: Bool[np.ndarray, " S"]) -> Bool[np.ndarray, " S"]:
    """From where the target can be reached at all."""
    possible = model.upper > 0
    source, reached = model.state[model.choice], target.copy()
    while True:
        extended = reached.copy()
        extended[source[possible & reached[model.successor]]] = True
        if (extended == reached).all():
            return reached
        reached = extended


def _require_end(model: IntervalMDP, fixed: Bool[np.ndarray, " S"], target: str, reward: str | None) -> None:
    """Refuse models in which some policy, under some rows, stays away from the end for ever.

    The largest set of states that can be kept for ever: a choice keeps it if a row within the intervals has all its
    mass there.
    """
    staying = ~fixed
    choice, state = model.choice, model.state
    while True:
        inside = staying[model.successor]
        mass = np.bincount(choice, np.where(inside, model.upper, 0.0), model.n_choices)
        leaves = np.bincount(choice, np.where(inside, 0.0, model.lower), model.n_choices) > 0
        keeps = (mass >= 1 - 1e-12) & ~leaves
        stays = staying & (np.bincount(state, keeps, model.n_states) > 0)
        if (stays == staying).all():
            break
        staying = stays
    if staying.any():
        s = int(np.flatnonzero(staying)[0])
        c = int(next(c for c in range(*model.first_choice[s : s + 2]) if keeps[c]))
        quantity = f"the probability of {target!r}" if reward is None else f"{reward!r} until {target!r}"
        raise ValueError(
            f"no bound on {quantity}: {model.in_words(c)} can stay away from it for ever, expected lower ends above "
            "zero on the way to it in every choice, or a discount"
        )


class _Sweep(NamedTuple):
    """One Bellman step.

    Args:
        values: [S].
        choice: [S], of each state.
        probs: [C K], the rows that were chosen.
    """

    values: Float[np.ndarray, " S"]
    choice: Int[np.ndarray, " S"]
    probs: Float[np.ndarray, "C K"]


_MOST_STEPS = 10_000


@dataclass(frozen=True, eq=False)
class _Problem:
    """A model as padded rows.

    Args:
        successor: [C K]; padding leads to state 0 with probability zero.
        lower: [C K].
        room: [C K], upper - lower.
        paid: [C], rewards.
        ended: [S], values of the states that are fixed.
        fixed: [S].
        first: [S + 1], where the choices of a state begin.
    """

    successor: Int[np.ndarray, "C K"]
    lower: Float[np.ndarray, "C K"]
    room: Float[np.ndarray, "C K"]
    paid: Float[np.ndarray, " C"]
    ended: Float[np.ndarray, " S"]
    fixed: Bool[np.ndarray, " S"]
    first: Int[np.ndarray, " S1"]

    @classmethod
    def of(
        cls,
        model: IntervalMDP,
        paid: Float[np.ndarray, " C"],
        ended: Float[np.ndarray, " S"],
        fixed: Bool[np.ndarray, " S"],
    ) -> "_Problem":
        """Of a model, with these rewards and ends."""
        width = int(np.diff(model.first_entry).max())
        check_memory(f"model has {model.n_choices} choices of up to {width} outcomes", 64.0 * model.n_choices * width)
        place = np.arange(len(model.successor)) - model.first_entry[model.choice]

        def padded(entries: np.ndarray) -> np.ndarray:
            table = np.zeros((model.n_choices, width), entries.dtype)
            table[model.choice, place] = entries
            return table

        room = np.maximum(model.upper - model.lower, 0.0)
        return cls(padded(model.successor), padded(model.lower), padded(room), paid, ended, fixed, model.first_choice)

    def rows(self, values: Float[np.ndarray, " S"], most: bool) -> Float[np.ndarray, "C K"]:
        """The rows that make sum p v least or most: lower ends, then the rest goes to the extreme values first."""
        ahead = values[self.successor]
        return least_rows(self.lower, self.room, -ahead if most else ahead)

    def sweep(self, values: Float[np.ndarray, " S"], maximise: bool, most: bool) -> _Sweep:
        """One Bellman step of every state."""
        probs = self.rows(values, most)
        q = self.paid + (probs * values[self.successor]).sum(-1)
        # The best choice of each state: sorted by state, then by value.
        state = np.repeat(np.arange(len(self.fixed)), np.diff(self.first))
        order = np.lexsort((-q if maximise else q, state))
        best = order[self.first[:-1]]
        return _Sweep(np.where(self.fixed, self.ended, q[best]), best - self.first[:-1], probs)

    def solve(self, maximise: bool, most: bool) -> Float[np.ndarray, " S"]:
        """Values up to rounding, by policy iteration ([HOFFMAN66]).

        For the choices of a policy, rows and values by turns, until the rows stay: then better choices. Both loops
        move values one way only, so that neither can turn in a circle.
        """
        values, total = self.ended.copy(), -np.inf
        for _ in range(_MOST_STEPS):
            policy = self._of_policy(self.sweep(values, maximise, most).choice)
            moved = policy._respond(values, most)
            # A better policy is nowhere worse: when the sum no longer moves that way, what is left is rounding.
            before, total = total, moved.sum() if maximise else -moved.sum()
            if total <= before:
                break
            values = moved
        return values

    def _of_policy(self, choice: Int[np.ndarray, " S"]) -> "_Problem":
        """The same states with one choice each."""
        taken = self.first[:-1] + choice
        tables = (self.successor[taken], self.lower[taken], self.room[taken], self.paid[taken])
        return _Problem(*tables, self.ended, self.fixed, np.arange(len(self.fixed) + 1))

    def _respond(self, values: Float[np.ndarray, " S"], most: bool) -> Float[np.ndarray, " S"]:
        """The values of the one policy under the rows that make them least, or most: Newton's method."""
        total = -np.inf
        for _ in range(_MOST_STEPS):
            moved = self._chain_values(self.rows(values, most))
            before, total = total, moved.sum() if most else -moved.sum()
            if total <= before:
                break
            values = moved
        return values

    def _chain_values(self, probs: Float[np.ndarray, "S K"]) -> Float[np.ndarray, " S"]:
        """The values of one choice a state under these rows: one linear system."""
        probs = np.where(self.fixed[:, None], 0.0, probs)
        return solve_listed(np.arange(len(probs)), self.successor, probs, np.where(self.fixed, self.ended, self.paid))

    def bound(self, values: Float[np.ndarray, " S"], maximise: bool, most: bool) -> Float[np.ndarray, " S"]:
        """A proven bound on |v - v*|.

        With w >= d + max over choices and rows of P w outside the end (w: the longest expected time to it, d about
        one), and c = max |T v - v| / d: T (v + c w) <= T v + c (w - d) <= v + c w, and likewise below. T is a
        contraction in the norm weighted by w, so v* is its only fixed point and lies within c w of v.
        """
        count = replace(self, paid=np.ones_like(self.paid), ended=np.zeros_like(self.ended))
        time = count.solve(maximise=True, most=True) * (1 + 1e-9)
        time = np.where(self.fixed, 0.0, time)
        later = count.sweep(time, maximise=True, most=True).values - 1.0
        # Rounding of a sweep: K products and sums, and the order of the rest.
        eps = (self.successor.shape[1] + 8) * np.finfo(float).eps
        drop = np.where(self.fixed, 1.0, time - later) - eps * (1 + np.abs(time).max())
        if not (drop > 0).all():
            return np.where(self.fixed, 0.0, np.inf)
        residual = np.abs(self.sweep(values, maximise, most).values - values).max()
        residual += eps * (np.abs(values).max() + np.abs(self.paid).max())
        return np.where(self.fixed, 0.0, residual / drop.min() * time)
