"""`MDPSpec`: what a prior program returns, its contract, and what follows: tables, MDPs, environments."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, PRNGKeyArray, Real
from numpyro import handlers
from numpyro.distributions import constraints

from bayes_mdp.mdp import MDP, Environment, RewardLaw, SparseMDP, StateActionSpace
from bayes_mdp.mdp.labelled_tables import refuse_labels
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.reward_laws import WITH_MEAN, WITHOUT_MEAN, law_at, law_mean, tabulate, unwrap
from bayes_mdp.random.threefry import plain_key
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Index, IntScalar, RealLike
from bayes_mdp.utils.validation import (
    as_real,
    broadcasts_to,
    check_finite,
    check_key,
    check_probability_rows,
    check_type,
    described,
    first_index,
    is_concrete,
)

ARRAYS = (jax.Array, np.ndarray, np.generic, int, float)
"""What rows and known rewards may be."""


def _array(name: str, x: object) -> Any:
    """Lists become arrays, everything else stays what it is; tables with labels are refused."""
    refuse_labels(name, x)
    if isinstance(x, list | tuple):
        return as_real(name, x) if is_concrete(x) else jnp.asarray(x)
    return x


class MDPSpec(eqx.Module):
    """What a prior program returns: the law of one transition.

    H is there only where the space has a horizon, and O counts the next states and, where episodes can end, the end.

    Args:
        transition_probs: broadcastable to Float[*H S A O]; rows sum to one.
        reward: the law of one reward: a NumPyro distribution of scalars with a batch shape broadcastable to [*H S A],
            or with event shape [O] (`.to_event(1)`) where rewards depend on the outcome; or an array, broadcastable
            to [*H S A] or to [*H S A O], where they are known.

    Raises:
        TypeError, ValueError: lists that hold no numbers, or are of unequal lengths.

    Example:
        >>> import numpyro.distributions as dist
        >>> space = bm.StateActionSpace(2, 1)
        >>> spec = bm.models.MDPSpec(np.full((2, 1, 2), 0.5), reward=dist.Normal(np.zeros((2, 1)), 1.0))
        >>> bm.models.environment(spec, space).mdp.reward.tolist()  # the means
        [[0.0], [0.0]]
    """

    transition_probs: Real[AnyArray, "..."] = eqx.field(converter=partial(_array, "transition_probs"))
    reward: dist.Distribution | RealLike = eqx.field(converter=partial(_array, "reward"))


Prior: TypeAlias = Callable[[StateActionSpace], MDPSpec]
"""A prior: a NumPyro program of the space."""


class RewardTable(eqx.Module):
    """The law of one reward in every cell of a space; itself the `RewardLaw` of an `Environment`.

    Args:
        law: a distribution of scalars whose parameters have the shape [*H S A], or [*H S A O] where `by_outcome`;
            None where rewards are known.
        known: Float[*cells], the known rewards, of that shape; None where there is a law.
        by_outcome: whether rewards depend on the outcome.

    Example:
        >>> from bayes_mdp.models.mdp_spec import reward_table
        >>> import numpyro.distributions as dist
        >>> space = bm.StateActionSpace(2, 1)
        >>> spec = bm.models.MDPSpec(np.full((2, 1, 2), 0.5), dist.Bernoulli(np.array([[0.25], [1.0]])))
        >>> reward_table(spec, space).mean.tolist()
        [[0.25], [1.0]]
    """

    law: dist.Distribution | None
    known: Float[Array, "*cells"] | None
    by_outcome: bool = eqx.field(static=True)

    @property
    def mean(self) -> Float[Array, "*cells"]:
        """Expected reward of every cell; nan where the law has none (see `check_mean`)."""
        return law_mean(self.law) if self.law is not None else self._known

    def at(self, cell: Index, outcome: IntScalar | Int[AnyArray, "*N"]) -> dist.Distribution | Float[Array, "..."]:
        """The law (or the known reward, a number or [N]) in one cell, or in a batch of N cells; see `law_at`.

        Args:
            cell: (step,) state, action: indices.
            outcome: index of the outcome, looked at where rewards depend on it.
        """
        # One index more where the law looks at the outcome.
        index = (*cell, outcome) if self.by_outcome else cell
        return law_at(self.law, index) if self.law is not None else self._known[index]

    @property
    def _known(self) -> Float[Array, "*cells"]:
        assert self.known is not None  # there is no law
        return self.known

    def sample(self, key: PRNGKeyArray, cell: Index, outcome: IntScalar) -> Float[Array, ""]:
        """One reward of one cell (see `bayes_mdp.mdp.RewardLaw`)."""
        law = self.at(cell, outcome)
        if not isinstance(law, dist.Distribution):
            return law
        # Counts without bound are drawn by jax.random.poisson, which takes JAX's own keys only.
        unbounded = isinstance(law.support, type(constraints.nonnegative_integer))
        return jnp.asarray(law.sample(plain_key(key) if unbounded else key), dtype=float)


class ListedRewards(eqx.Module):
    """The law of rewards by outcome where successors are listed, for an `Environment`: outcomes there are states."""

    table: RewardTable
    space: StateActionSpace

    def sample(self, key: PRNGKeyArray, cell: Index, outcome: IntScalar) -> Float[Array, ""]:
        """One reward of one cell (see `bayes_mdp.mdp.RewardLaw`)."""
        # An outcome of the environment is a state: its place in the list of successors.
        return self.table.sample(key, cell, self.space.place(cell, jnp.asarray(outcome)))


def reward_law(table: RewardTable, space: StateActionSpace) -> RewardLaw:
    """The law of an `Environment` whose rewards are those of the table."""
    return ListedRewards(table, space) if table.by_outcome and space.successors is not None else table


def check_spec(spec: object, space: StateActionSpace) -> None:
    """Refuse what is no `MDPSpec` of this space: one sentence. Values are looked into only where they are concrete.

    Args:
        spec: what a prior program returned.
        space: that it was called with.

    Raises:
        TypeError: not a `MDPSpec`, or a reward that is neither a distribution nor an array.
        ValueError: a shape that does not fit, a row that does not sum to one, a known reward that is not finite.

    Example:
        >>> from bayes_mdp.models.mdp_spec import check_spec
        >>> space = bm.StateActionSpace(2, 2)
        >>> spec = bm.models.MDPSpec(np.full((2, 2, 2), 0.5), np.zeros((2, 2)))
        >>> check_spec(spec, space)
    """
    check_space(space)
    if not isinstance(spec, MDPSpec):
        raise TypeError(f"the prior returned a {type(spec).__name__}, expected a MDPSpec(transition_probs, reward)")
    probs, full = spec.transition_probs, (*space.shape, space.n_outcomes)
    if not isinstance(probs, ARRAYS):
        # The last axis has to be there: a row is one object.
        raise TypeError(f"transition_probs is a {type(probs).__name__}, expected an array")
    if not broadcasts_to(jnp.shape(probs), full) or jnp.shape(probs)[-1:] != full[-1:]:
        raise ValueError(
            f"transition_probs has shape {jnp.shape(probs)}, expected one that broadcasts to {full} "
            f"({_axes(space, by_outcome=True)})"
        )
    # In a trace the numbers are not there: shapes alone are checked.
    if is_concrete(probs):
        check_probability_rows("transition_probs", _legal_rows(np.asarray(probs), space))
    if isinstance(spec.reward, dist.Distribution):
        _check_law(spec.reward, space)
    elif not isinstance(spec.reward, ARRAYS):
        raise TypeError(
            f"reward is a {type(spec.reward).__name__}, expected a NumPyro distribution over (state, action) "
            "or an array of known rewards"
        )
    else:
        # Refuses a shape that fits two readings.
        known_by_outcome(jnp.shape(spec.reward), space)
        check_finite("reward", spec.reward)


def _check_types(spec: object, space: object) -> None:
    check_type("spec", spec, MDPSpec, "a MDPSpec(transition_probs, reward)")
    check_space(space)


def transition_table(spec: MDPSpec, space: StateActionSpace) -> Float[Array, "*H S A O"]:
    """The transition probabilities of every row, broadcast. TypeError: no spec, no space.

    Args:
        spec: what a prior program returned.
        space: that it was called with.

    Example:
        >>> from bayes_mdp.models.mdp_spec import transition_table
        >>> space = bm.StateActionSpace(2, 1)
        >>> spec = bm.models.MDPSpec(np.array([0.5, 0.5]), 0.0)  # one row for all pairs
        >>> transition_table(spec, space).shape
        (2, 1, 2)
    """
    _check_types(spec, space)
    # A view that repeats, until it is written to.
    return jnp.broadcast_to(spec.transition_probs, (*space.shape, space.n_outcomes))


def reward_table(spec: MDPSpec, space: StateActionSpace) -> RewardTable:
    """The reward law of every cell, broadcast, `to_event` and `expand` undone. TypeError: no spec, no space.

    Args:
        spec: what a prior program returned.
        space: that it was called with.

    Example:
        >>> from bayes_mdp.models.mdp_spec import reward_table
        >>> space = bm.StateActionSpace(2, 1)
        >>> spec = bm.models.MDPSpec(np.full((2, 1, 2), 0.5), np.array([[0.0], [1.0]]))
        >>> reward_table(spec, space).mean.tolist()
        [[0.0], [1.0]]
    """
    _check_types(spec, space)
    if isinstance(spec.reward, dist.Distribution):
        # An event of one axis: the law of a vector over outcomes.
        by_outcome = len(spec.reward.event_shape) == 1
        return RewardTable(tabulate(spec.reward, _cells(space, by_outcome)), None, by_outcome)
    by_outcome = known_by_outcome(jnp.shape(spec.reward), space)
    known = jnp.broadcast_to(jnp.asarray(spec.reward, dtype=float), _cells(space, by_outcome))
    return RewardTable(None, known, by_outcome)


def to_mdp(spec: MDPSpec, space: StateActionSpace, initial: ArrayLike | None = None) -> MDP | SparseMDP:
    """The hypothesis that `spec` states: its rows, the mean of its reward law, `initial` (Float[S] or None).

    Args:
        space: that the program was called with.

    Raises:
        ValueError: as `MDP`; a law without a mean (see `check_mean`).

    Example:
        >>> from bayes_mdp.models.mdp_spec import to_mdp
        >>> space = bm.StateActionSpace(2, 1)
        >>> spec = bm.models.MDPSpec(np.full((2, 1, 2), 0.5), np.array([[0.0], [1.0]]))
        >>> to_mdp(spec, space).reward.tolist()
        [[0.0], [1.0]]
    """
    rows, rewards = transition_table(spec, space), reward_table(spec, space)
    check_mean(rewards, space)
    # E[r | s, a] = sum_o p(o | s, a) r(s, a, o).
    mean = jnp.sum(rows * rewards.mean, axis=-1) if rewards.by_outcome else rewards.mean
    return space.mdp(rows, mean, initial)


def check_mean(rewards: RewardTable, space: StateActionSpace, *, draws: bool = False) -> None:
    """Refuse a law without a mean, where a legal pair has one: Cauchy, StudentT with df <= 1, Pareto with alpha <= 1.

    A value is an expected reward: there is none. In a trace, where parameters have no values, only families that never
    have a mean are refused.

    Args:
        rewards: the table.
        space: of its cells.
        draws: whether the arrays of the law have an axis of draws in front of the cells.

    Raises:
        ValueError: names the law and the first pair.
    """
    if rewards.law is None or isinstance(unwrap(rewards.law), WITH_MEAN):
        return
    # A law of draws has the batch shape of one of them.
    mean = jax.vmap(lambda each: each.mean)(rewards) if draws else rewards.mean
    if is_concrete(mean):
        missing = np.isnan(np.asarray(mean))
    # In a trace a family that may have a mean gets the benefit of the doubt.
    elif isinstance(unwrap(rewards.law), WITHOUT_MEAN):
        missing, draws = np.ones((*space.shape, 1) if rewards.by_outcome else space.shape, bool), False
    else:
        return
    # One missing outcome is enough: the mean of the pair is a sum over them.
    missing = missing.any(-1) if rewards.by_outcome else missing
    # Of illegal pairs nobody asks.
    index = first_index(missing if space.legal is None else missing & np.asarray(space.legal))
    if index is not None:
        *step, state, action = index[1:] if draws else index
        pair = f"state {space.state_names[state]!r}, action {space.action_names[action]!r}"
        pair = pair + (f", step {step[0]}" if step else "") + (f", in draw {index[0]}" if draws else "")
        raise ValueError(
            f"reward of {pair} has a {type(unwrap(rewards.law)).__name__} law whose mean does not exist, or is not "
            "known, expected a law that has one (StudentT: df > 1): values are expected rewards"
        )


def broadcast_to_cells(
    name: str, values: ArrayLike, space: StateActionSpace, by_outcome: bool
) -> Float[AnyArray, "..."]:
    """`values` in every cell: Float[*H S A], or [*H S A O]. A numpy array where they are concrete, in a trace too.

    Args:
        name: of the argument, for the message.

    Raises:
        ValueError: the shape does not broadcast.
    """
    shape = _cells(space, by_outcome)
    if not broadcasts_to(np.shape(values), shape):
        raise ValueError(
            f"{name} has shape {np.shape(values)}, expected one that broadcasts to {shape} ({_axes(space, by_outcome)})"
        )
    dtype = jax.dtypes.canonicalize_dtype(float)
    # NumPy stays NumPy: inside a trace it is a constant that later checks can read.
    if is_concrete(values):
        return np.broadcast_to(np.asarray(values, dtype), shape)
    return jnp.broadcast_to(jnp.asarray(values, dtype), shape)


def _axes(space: StateActionSpace, by_outcome: bool) -> str:
    lead = "state, action" if space.horizon is None else "step, state, action"
    return lead + ", outcome" * by_outcome


def _cells(space: StateActionSpace, by_outcome: bool) -> tuple[int, ...]:
    return (*space.shape, space.n_outcomes) if by_outcome else space.shape


def _legal_rows(probs: np.ndarray, space: StateActionSpace) -> np.ndarray:
    """`probs` with every illegal row replaced by one that sums to one."""
    if space.legal is None:
        return probs
    # All probability on the first outcome: it passes the check of rows.
    certain = np.eye(1, space.n_outcomes, dtype=probs.dtype)[0]
    return np.where(space.legal[..., None], np.broadcast_to(probs, (*space.shape, space.n_outcomes)), certain)


def _check_law(law: dist.Distribution, space: StateActionSpace) -> None:
    if isinstance(unwrap(law), dist.MaskedDistribution):
        raise ValueError(
            "reward is a masked law (Distribution.mask), expected the law itself: which rewards count is said by the "
            "data, where those that were not observed are nan (or reward=None)"
        )
    if unwrap(law).event_shape or not broadcasts_to(law.batch_shape, space.shape) or len(law.event_shape) > 1:
        # An axis beyond state and action may be that of outcomes, not declared as an event.
        hint = "; where rewards depend on the outcome, call .to_event(1)" if len(law.batch_shape) > 2 else ""
        raise ValueError(
            f"reward has batch shape {law.batch_shape} and event shape {law.event_shape}, expected a law of one number "
            f"with a batch shape that broadcasts to {space.shape} ({_axes(space, by_outcome=False)}){hint}"
        )
    if law.event_shape not in ((), (1,), (space.n_outcomes,)):
        raise ValueError(f"reward has event shape {law.event_shape}, expected () or ({space.n_outcomes},) (outcome)")


def known_by_outcome(shape: tuple[int, ...], space: StateActionSpace) -> bool:
    """Whether known rewards of this shape depend on the outcome: read from the number of axes, then from the sizes."""
    lead = len(space.shape)
    fits = {
        # With two axes, state and action, or with all of them.
        by_outcome: broadcasts_to(shape, _cells(space, by_outcome))
        and len(shape) in (2 + by_outcome, lead + by_outcome)
        for by_outcome in (False, True)
    }
    fits[False] |= not shape
    if fits[False] and fits[True]:
        raise ValueError(
            f"reward has shape {shape}, which fits both ({_axes(space, False)}) and (state, action, outcome), "
            "expected one that fits one of them: give it all its axes, of size 1 where it does not vary"
        )
    if not (fits[False] or fits[True]):
        raise ValueError(
            f"reward has shape {shape}, expected one that broadcasts to {_cells(space, False)} ({_axes(space, False)}) "
            f"or to {_cells(space, True)} ({_axes(space, True)})"
        )
    return fits[True]


def environment(
    spec: MDPSpec, space: StateActionSpace, initial: ArrayLike, *, name: str = "environment"
) -> Environment:
    """The environment that `spec` states: its rows, and its reward law whatever its family. Traceable, vmappable.

    Args:
        spec: what a prior program returned, for instance under `numpyro.handlers.seed`.
        space: the space it was written for.
        initial: Float[S], distribution of the first state.
        name: for tables and files.

    Raises:
        TypeError, ValueError: not a `MDPSpec` of this space; `initial` is no distribution over states.

    Example:
        >>> space = bm.StateActionSpace(2, 1)
        >>> spec = bm.models.MDPSpec(np.full((2, 1, 2), 0.5), np.array([[0.0], [1.0]]))
        >>> env = bm.models.environment(spec, space, [1.0, 0.0], name="coin")
        >>> env.name, env.mdp.n_states
        ('coin', 2)
    """
    check_spec(spec, space)
    law = reward_law(reward_table(spec, space), space)
    return Environment(to_mdp(spec, space, initial), law, name=name)


@traced_alone
def random_environment(
    key: PRNGKeyArray,
    prior: Callable[[StateActionSpace], MDPSpec],
    space: StateActionSpace,
    *,
    initial: ArrayLike | None = None,
) -> Environment:
    """An environment drawn from a prior program. Traceable, vmappable.

    PriorMDP of [BMRL19] is `random_environment(key,
    dirichlet_normal_gamma(reward_concentration=4, rate=4, rewards_on="outcome"), StateActionSpace(4, 2))`.

    Args:
        key: a typed key; the same draw for the same key.
        prior: space -> MDPSpec, for instance one of `bayes_mdp.models`.
        space: its sizes, masks and ends.
        initial: Float[S], distribution of the first state; None: state 0.

    Raises:
        TypeError, ValueError: no typed key; `prior` is no program, or returns no `MDPSpec` of this space; `initial` is
            no distribution over states.

    Example:
        >>> prior, space = bm.models.dirichlet_normal_gamma(), bm.StateActionSpace(4, 2)
        >>> env = bm.models.random_environment(jax.random.key(0), prior, space)
        >>> env.mdp.transition_probs.shape
        (4, 2, 4)
    """
    check_key("key", key)
    check_space(space)
    if not callable(prior):
        raise TypeError(f"prior is {described(prior)}, expected a function space -> MDPSpec")
    # The program draws with the key: one sample of the prior.
    spec: Any = handlers.seed(prior, key)(space)
    return environment(spec, space, np.eye(1, space.n_states)[0] if initial is None else initial, name="random")
