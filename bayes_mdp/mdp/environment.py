# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`Environment`: an MDP that can be simulated, the laws of its rewards, and how it is drawn (`Picture`).

A NumPyro distribution is a law of rewards too; NumPyro is not imported: its methods are used. What can be simulated and
has too many states to list is a `SimulatedEnvironment`. An `ObservedEnvironment` gives an observation in place of a
state: there a deep agent is trained.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.mdp.hypothesis import MDP, SparseMDP, check_mdp
from bayes_mdp.mdp.protocols import RewardLaw
from bayes_mdp.utils.layout import Facts, Section, as_html, as_text
from bayes_mdp.utils.messages import count_of
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index, IntScalar, RealLike
from bayes_mdp.utils.validation import (
    as_real,
    broadcasts_to,
    check_bool,
    check_finite,
    check_not_negative,
    check_type,
    described,
    first_index,
    is_concrete,
)

MEAN_TOLERANCE = 1e-5
"""Relative difference of two mean rewards that is rounding, of sums in float32 too."""


@dataclass(frozen=True)
class Picture:
    """Where the states of an environment stand on paper. Hashable: it rides on an environment as a static field.

    Args:
        positions: (x, y) of every state, y downwards; several states may stand on one spot (a car at two speeds).
        cells: the lines of a text map beneath them, the character in column x of line y; None: there is none.

    Raises:
        TypeError, ValueError: positions that are no pairs of finite numbers, lines that are no text.
    """

    positions: tuple[tuple[float, float], ...]
    cells: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_type("positions", self.positions, tuple, "a tuple of (x, y)")
        spots = as_real("positions", self.positions, "(x, y) of every state")
        if spots.shape != (0,) and (spots.ndim != 2 or spots.shape[1] != 2):  # a map alone has none
            raise ValueError(f"positions has shape {spots.shape}, expected (x, y) of every state")
        check_finite("positions", spots)
        if self.cells is not None:
            check_type("cells", self.cells, tuple, "a tuple of the lines of a map")
            for i, line in enumerate(self.cells):
                check_type(f"cells[{i}]", line, str, "a line of a map")


@runtime_checkable
class RewardDistribution(Protocol):
    """What is used of a NumPyro distribution."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Its axes: (step,) state, action, or what broadcasts to them."""
        ...

    @property
    def event_shape(self) -> tuple[int, ...]:
        """(), or (O,) after `.to_event(1)`: an entry for each outcome."""
        ...

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> ArrayLike:
        """A reward in every cell."""
        ...


class DistributionReward(eqx.Module):
    """Rewards with the law `law` in every cell; a `RewardLaw`.

    Every draw is one of all cells, of which one is used: `run` makes a table of parameters of it, and looks them up.

    Args:
        law: a distribution of numbers. Its batch shape broadcasts to (*H, S, A); with event shape (O,) (`.to_event(1)`)
            rewards depend on the outcome: a next state, or S for an end.
    """

    law: RewardDistribution

    @property
    def by_outcome(self) -> bool:
        """Whether rewards depend on the outcome."""
        return bool(self.law.event_shape)

    @property
    def mean(self) -> Float[Array, "..."]:
        """Mean rewards, in the shape of `law`: it broadcasts to [*H S A], or to [*H S A O] where `by_outcome`.

        nan where there is none, or NumPyro knows none.
        """
        shape = (*self.law.batch_shape, *self.law.event_shape)
        # Not all distributions have a mean in closed form.
        try:
            mean = jnp.asarray(self.law.mean, float)  # type: ignore[attr-defined] - not all have one, see below
        except (NotImplementedError, AttributeError):
            mean = jnp.full(shape, jnp.nan)
        if getattr(self.law, "has_enumerate_support", False) and not self.by_outcome:
            # Categories 0 .. K - 1 have no mean in NumPyro; as rewards they are numbers: sum_x x p(x).
            values = self.law.enumerate_support()  # type: ignore[attr-defined] - as `has_enumerate_support` says
            sums = jnp.sum(values * jnp.exp(self.law.log_prob(values)), axis=0)  # type: ignore[attr-defined] - likewise
            mean = jnp.where(jnp.isnan(mean), sums, mean)
        return jnp.broadcast_to(jnp.where(jnp.isfinite(mean), mean, jnp.nan), shape)

    def sample(self, key: PRNGKeyArray, cell: Index, outcome: IntScalar) -> Float[Array, ""]:
        """One reward of one cell (see `RewardLaw`)."""
        draws = jnp.asarray(self.law.sample(key), float)
        # Indices of the axes that the draw has; a number has none.
        index = ((*cell, outcome) if self.by_outcome else cell)[-draws.ndim :] if draws.ndim else ()
        # An axis of size 1 broadcasts: the same law at every index.
        return draws[tuple(0 if size == 1 else i for size, i in zip(draws.shape, index, strict=True))]


def check_distribution(law: DistributionReward, mdp: MDP | SparseMDP) -> None:
    """Refuse a distribution that does not fit an MDP, in shape or in mean.

    Args:
        law: of the rewards.
        mdp: its `reward` must be the mean of `law`, up to rounding, where actions are legal: the optimum of an
            environment follows from it.

    Raises:
        ValueError: a shape that does not broadcast; a mean that does not exist; another one, naming the first pair.
    """
    batch, event, pairs = law.law.batch_shape, law.law.event_shape, mdp.reward.shape
    outcomes = mdp.n_states + (mdp.end_probs is not None)
    axes = "step, state, action" if mdp.horizon is not None else "state, action"
    if not broadcasts_to(batch, pairs) or event not in ((), (1,), (outcomes,)):
        raise ValueError(
            f"reward_law has batch shape {batch} and event shape {event}, expected a law of one number for each pair, "
            f"of a shape that broadcasts to {pairs} ({axes}), or to {(*pairs, outcomes)} and .to_event(1) where "
            "rewards depend on the outcome"
        )
    if not is_concrete(law, mdp):
        return
    mean, reward = np.asarray(law.mean, np.float64), np.asarray(mdp.reward, np.float64)
    # Rounding is measured by the size of what is added.
    size = np.abs(mean)
    if law.by_outcome:
        mean, size = _average(mean, mdp), _average(size, mdp)
    mean, size = np.broadcast_to(mean, pairs), np.maximum(np.broadcast_to(size, pairs), np.abs(reward))
    legal = True if mdp.legal is None else np.asarray(mdp.legal)
    index = first_index(legal & ~(np.abs(mean - reward) <= MEAN_TOLERANCE * size))  # nan is refused too
    if index is not None:
        actual = "no mean" if np.isnan(mean[index]) else f"mean {mean[index]:.6g}"
        raise ValueError(
            f"reward_law has {actual} at {list(index)} ({axes}), expected mdp.reward{list(index)}, "
            f"{reward[index]:.6g}: the mean of the rewards, from which optimal values follow"
        )


def _average(values: Float[np.ndarray, "..."], mdp: MDP | SparseMDP) -> Float[np.ndarray, "*H S A"]:
    """sum_o P(o | s, a) values(s, a, o); an outcome of probability zero counts nothing, even nan."""
    pairs, last = mdp.reward.shape, mdp.n_states
    listed = isinstance(mdp, SparseMDP)
    probs = np.asarray(mdp.probability if listed else mdp.transition_probs, np.float64)
    # Outcomes are the next states, and the end.
    full = np.broadcast_to(values, (*pairs, last + (mdp.end_probs is not None)))
    at_next = np.take_along_axis(full, np.asarray(mdp.successor), -1) if listed else full[..., :last]
    total = np.where(probs > 0, probs * at_next, 0.0).sum(-1)
    if mdp.end_probs is None:
        return total
    ends = np.asarray(mdp.end_probs, np.float64)
    return total + np.where(ends > 0, ends * full[..., last], 0.0)


class NormalReward(eqx.Module):
    """Rewards N(mean, scale^2); `scale` None: the reward is its mean, no random number is drawn.

    Args:
        mean: Float[*H S A], or Float[*H S A O] where the reward depends on the outcome (`by_outcome`).
        scale: standard deviation. None, a number, or an array of the shape of `mean`; zero or greater.

    Raises:
        ValueError, TypeError: a mean that is not finite, a scale that is negative or of another shape.
    """

    mean: Float[AnyArray, "*cells"]
    scale: RealLike | None = None
    by_outcome: bool = eqx.field(default=False, static=True)

    def __check_init__(self) -> None:
        check_bool("by_outcome", self.by_outcome)
        check_finite("mean", self.mean)
        if self.scale is not None:
            check_not_negative("scale", self.scale)
            if np.shape(self.scale) not in ((), np.shape(self.mean)):
                raise ValueError(f"scale has shape {np.shape(self.scale)}, expected () or {np.shape(self.mean)}")

    def sample(self, key: PRNGKeyArray, cell: Index, outcome: IntScalar) -> Float[Array, ""]:
        """One reward of a cell.

        Args:
            key, cell, outcome: as of `RewardLaw.sample`.
        """
        index = (*cell, outcome) if self.by_outcome else cell
        mean = jnp.asarray(self.mean)[index]
        if self.scale is None:
            return mean
        scale = jnp.asarray(self.scale)
        return mean + (scale[index] if scale.ndim else scale) * jax.random.normal(key, dtype=mean.dtype)


def as_reward_law(law: RewardLaw | RewardDistribution) -> RewardLaw:
    """`law` itself, or a distribution as a law.

    Raises:
        TypeError: neither.
    """
    if not isinstance(law, type) and isinstance(law, RewardDistribution):
        return DistributionReward(law)
    if isinstance(law, type) or not callable(getattr(law, "sample", None)):
        expected = "a NumPyro distribution, or a law with sample (see RewardLaw)"
        raise TypeError(f"reward_law is {described(law)}, expected {expected}")
    return law  # it is no distribution


class Environment(eqx.Module):
    """What can be simulated: the true MDP and the law of its rewards. Pure functions of a key.

    Args:
        mdp: the truth; `mdp.reward` is the mean of `reward_law`, `mdp.initial` must be given.
        reward_law: how one reward is drawn: a NumPyro distribution of numbers, a `NormalReward`, or any `RewardLaw`.
            The batch shape of a distribution broadcasts to (*H, S, A) and its mean is `mdp.reward`; where rewards
            depend on the outcome it has event shape (O,) (`.to_event(1)`): next states and, where there are ends, the
            end.
        name: for tables and files.
        optimum: optimal gain (continuing) or optimal value of an episode (episodic), where it is known.
        picture: how it is drawn; None: its states in a ring.

    Raises:
        TypeError: no MDP, a law without `sample`, a name that is no string, an optimum that is no number.
        ValueError: an MDP without initial distribution; a distribution of another shape, or whose mean is not
            `mdp.reward` (up to rounding, where the action is legal).

    Example:
        >>> mdp = bm.MDP([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [1.0]], initial=[1.0, 0.0])
        >>> env = bm.Environment(mdp, bm.mdp.NormalReward(mdp.reward, 0.1), name="coin")
        >>> int(env.reset(jax.random.key(0)))
        0
    """

    mdp: MDP | SparseMDP
    reward_law: RewardLaw = eqx.field(converter=as_reward_law)
    name: str = eqx.field(default="environment", static=True)
    optimum: float | None = eqx.field(default=None, static=True)
    picture: Picture | None = eqx.field(default=None, static=True)

    def __check_init__(self) -> None:
        check_mdp(self.mdp)
        if isinstance(self.reward_law, DistributionReward):
            check_distribution(self.reward_law, self.mdp)
        check_type("name", self.name, str, "a string")
        if self.optimum is not None:
            check_finite("optimum", self.optimum)
        check_type("picture", self.picture, (Picture, type(None)), "a Picture or None")
        if self.mdp.initial is None:
            raise ValueError("mdp.initial is None, expected a distribution over the first state")

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """Sizes, where it begins, whether episodes end, and the law of the rewards."""
        mdp = self.mdp
        title = f"{self.name}: {count_of(mdp.n_states, 'state')}, {count_of(mdp.n_actions, 'action')}"
        if not is_concrete(mdp):
            return Section(title)
        begins, ends = np.flatnonzero(np.asarray(mdp.initial) > 0), mdp.end_probs is not None
        start = f"state {begins[0]}" if len(begins) == 1 else f"one of {len(begins)} states"
        reward = np.asarray(mdp.reward)
        legal = reward if mdp.legal is None else reward[np.broadcast_to(np.asarray(mdp.legal), reward.shape)]
        facts = {
            "start": start,
            "episodes": "some steps end them" if ends else "no step ends them",
            "rewards": f"{_describe_law(self.reward_law)}, means from {legal.min():g} to {legal.max():g}",
        }
        if mdp.horizon is not None:
            facts["horizon"] = f"{count_of(mdp.horizon, 'step')}, a table for each"
        if self.optimum is not None:
            facts["optimum"] = f"{float(self.optimum):g}"
        return Section(title, [Facts(facts)])

    def reset(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """The first state of an episode.

        Args:
            key: of the draw.
        """
        initial = jnp.asarray(self.mdp.initial)
        return _pick(jax.random.uniform(key, dtype=initial.dtype), initial)

    def step(
        self, key: PRNGKeyArray, state: IntScalar, action: IntScalar, step: IntScalar = 0
    ) -> tuple[Int[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """One transition: (next_state, reward, terminated). Where it terminates, next_state is the state it left.

        Args:
            key: of this transition.
            state, action: their indices.
            step: of the episode; read where the MDP has a table for every step.
        """
        key_next, key_reward = jax.random.split(key)
        mdp = self.mdp
        cell = (state, action) if mdp.horizon is None else (step, state, action)
        row = mdp.row_probs[cell]
        end_prob = None if mdp.end_probs is None else mdp.end_probs[cell]
        # One uniform picks a successor or, as index K, the end.
        pick = _pick(jax.random.uniform(key_next, dtype=row.dtype), row, end_prob)
        terminated = pick >= row.shape[-1]
        listed = jnp.minimum(pick, row.shape[-1] - 1)
        next_state = mdp.successor[cell][listed] if isinstance(mdp, SparseMDP) else listed
        outcome = jnp.where(terminated, mdp.n_states, next_state)
        reward = self.reward_law.sample(key_reward, cell, outcome)
        return jnp.where(terminated, state, next_state), reward, terminated


def _describe_law(law: RewardLaw) -> str:
    """Its name, and what is the same in every cell: "normal, standard deviation 0.1"."""
    if isinstance(law, DistributionReward):
        inner: object = law.law
        while hasattr(inner, "base_dist"):  # expanded, or with event axes: the law is inside
            inner = inner.base_dist  # type: ignore[attr-defined] - asked for in the line above
        name = type(inner).__name__.removesuffix("Probs").removesuffix("Logits")
    elif not isinstance(law, NormalReward):
        name = type(law).__name__
    elif law.scale is None:
        name = "always the mean"
    else:
        scale = np.unique(np.asarray(law.scale))
        name = "normal, standard deviation " + " to ".join(f"{x:g}" for x in scale[[0, -1][: len(scale)]])
    return name + (", by outcome" if getattr(law, "by_outcome", False) else "")


def _pick(u: Float[Array, ""], row: Float[Array, " K"], end_prob: Float[Array, ""] | None = None) -> Int[Array, ""]:
    """Index drawn from `row` by inversion; K is the end. An entry of probability zero is never drawn."""
    # The number of cumulative sums at or below u times the total: rows that sum to one only nearly are normalised.
    cumulative = jnp.cumsum(row)
    if end_prob is None:
        cumulative, total = cumulative[:-1], cumulative[-1]
    else:
        total = cumulative[-1] + end_prob
    return jnp.sum(u * total >= cumulative, dtype=int)


@runtime_checkable
class _WithActions(Protocol):
    """An environment that has a name and actions."""

    @property
    def name(self) -> str:
        """For tables and files."""
        ...

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""
        ...


@runtime_checkable
class SimulatedEnvironment(_WithActions, Protocol):
    """An environment without tables. A state is any tree of arrays; every function is pure and traceable."""

    @property
    def num_codes(self) -> int:
        """Codes of states are integers from 0 to below it; at most 2^31 - 1."""
        ...

    @property
    def picture(self) -> Picture | None:
        """Its map, or None."""
        ...

    def reset(self, key: PRNGKeyArray) -> PyTree:
        """The first state of an episode.

        Args:
            key: of the first state.
        """
        ...

    def step(
        self, key: PRNGKeyArray, state: PyTree, action: IntScalar
    ) -> tuple[PyTree, Float[Array, ""], Bool[Array, ""]]:
        """One transition: (next state, reward, terminated).

        Args:
            key: of the transition.
            state: from `reset` or the last `step`.
            action: its index.
        """
        ...

    def code(self, state: PyTree) -> Int[Array, ""]:
        """The number of a state: states that an agent can tell apart have different ones.

        Args:
            state: from `reset` or `step`.
        """
        ...


class TimeStep(NamedTuple):
    """What one action leads to.

    Args:
        state: of the environment, any tree of arrays.
        observation: what the agent sees of it, an array of the same shape at every step.
        reward: what the agent learns from.
        terminated: values beyond are zero.
        truncated: the episode is cut off; values beyond count.
        score: what is reported: the reward without clipping or noise.
    """

    state: PyTree
    observation: Array
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    score: Float[Array, ""]


@runtime_checkable
class ObservedEnvironment(_WithActions, Protocol):
    """An environment with observations. Every function is pure and traceable; episodes are not restarted."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        ...

    @property
    def observation_dtype(self) -> np.dtype:
        """Type of its entries: the replay keeps them as they are."""
        ...

    def reset(self, key: PRNGKeyArray) -> tuple[PyTree, Array]:
        """The state, any tree of arrays, and the observation, of one fixed shape, at the start of an episode.

        Args:
            key: of the first state.
        """
        ...

    def step(self, key: PRNGKeyArray, state: PyTree, action: Int[Array, ""]) -> TimeStep:
        """What the action leads to.

        Args:
            key: of the transition.
            state: of the environment, from `reset` or the last `step`.
            action: its index.
        """
        ...


@runtime_checkable
class HasCells(Protocol):
    """An environment with a map: where its visits can be drawn."""

    @property
    def map_shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        ...

    def cell(self, state: PyTree) -> Int[Array, ""]:
        """The number of the place, row after row.

        Args:
            state: of the environment.
        """
        ...
