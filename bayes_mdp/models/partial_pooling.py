"""`partial_pooling`: the actions of a state are alike, and states are alike; how much, is learnt from all of them.

A pair with few data borrows from the other actions of its state, a state with few data from the other states. What is
learnt is how strongly: with many data each row follows its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.labelled_tables import refuse_labels
from bayes_mdp.models.mdp_spec import MDPSpec, Prior
from bayes_mdp.models.priors import dirichlet_normal_gamma
from bayes_mdp.utils.typing import AnyArray, ArrayLike
from bayes_mdp.utils.validation import as_real, at, check_positive, check_shape, check_type, described, is_concrete

RewardFactory: TypeAlias = Callable[..., Prior]
"""A factory of priors that takes `concentration`, that of the rows."""
LEAST = 1e-30
"""Smallest probability of an outcome of a state: it keeps concentrations positive in single precision."""


class PooledOutcomes(NamedTuple):
    """The outcomes of a space, in groups.

    Args:
        open: the states whose rows are unknown.
        closed: the other outcomes that follow from them: the end, and states whose rows are known (such as "death").
        levels: name of each level of a row -> number of its alternatives: "end", to leave the open states or not;
            "which", to which closed outcome; "stay", to stay or to move; "move", to which open state.
    """

    open: Int[np.ndarray, " n"]
    closed: Int[np.ndarray, " Z"]
    levels: dict[str, int]


def pooled_outcomes(space: StateActionSpace) -> PooledOutcomes:
    """The groups of a space's outcomes. Host side.

    Raises:
        ValueError: rows that depend on the step, listed successors, fewer than two states with unknown rows, pairs
            whose possible outcomes differ.
    """
    if space.horizon is not None or space.successors is not None:
        structure = f"rows for each of {space.horizon} steps" if space.horizon is not None else "listed successors"
        raise ValueError(f"space has {structure}, expected rows over all states that do not depend on the step")
    shape = (space.n_states, space.n_actions, space.n_outcomes)
    possible = np.ones(shape, bool) if space.support is None else np.asarray(space.support)
    legal = np.ones(shape[:2], bool) if space.legal is None else np.asarray(space.legal)
    # Open: some legal action of the state has an unknown row.
    is_open = ((possible.sum(-1) > 1) & legal).any(-1)
    opened = np.flatnonzero(is_open)
    if len(opened) < 2:
        raise ValueError(f"space has {len(opened)} states with unknown rows, expected at least two to pool")
    # Which outcomes can follow is known of all open states alike: what is pooled are probabilities, not supports.
    state, action = np.nonzero(legal & is_open[:, None])
    first = possible[state[0], action[0]]
    differs = (possible[state, action] != first).any(-1)
    if differs.any() or not first[opened].all():
        i = int(np.argmax(differs)) if differs.any() else 0
        raise ValueError(
            f"{at('space.support', (int(state[i]), int(action[i])))} differs from that of other pairs, or leaves out "
            "states with unknown rows, expected the same possible outcomes for every legal pair with an unknown row"
        )
    # Where one level has a single alternative it is left out.
    closed = np.flatnonzero(first & ~np.isin(np.arange(shape[-1]), opened))
    # The order of the levels is that of the program's sites.
    levels = {"end": 2} if len(closed) else {}
    levels |= {"which": len(closed)} if len(closed) > 1 else {}
    return PooledOutcomes(opened, closed, levels | {"stay": 2, "move": len(opened)})


def state_rows(
    groups: PooledOutcomes, alternatives: Mapping[str, Float[AnyArray, "n _"]], n_states: int, n_outcomes: int
) -> Float[Array, "S O"]:
    """The row of each state from its levels; ones in states that are not open.

    Args:
        groups: of the space.
        alternatives: level -> [n J], the probabilities of its alternatives in each open state. Those of "move" have the
            state itself among them, which is left out.
        n_states, n_outcomes: S and O.
    """
    # n, the states that are pooled.
    number = len(groups.open)
    numbers = jnp.arange(number)
    ends = jnp.asarray(alternatives["end"])[:, 0] if "end" in alternatives else jnp.zeros(number)
    # A Dirichlet row without one of its alternatives, normalised, is Dirichlet again.
    # Normalised over the other states.
    move = jnp.asarray(alternatives["move"]).at[numbers, numbers].set(0.0)
    move = move / jnp.maximum(move.sum(-1, keepdims=True), LEAST)
    stay = jnp.asarray(alternatives["stay"])
    # To move: the share that does not stay; all of it but the share that leaves the open states.
    inside = (move * stay[:, 1:]).at[numbers, numbers].set(stay[:, 0]) * (1.0 - ends)[:, None]
    rows = jnp.ones((n_states, n_outcomes), inside.dtype)
    opened, closed = groups.open, groups.closed
    # Open states by their levels; the end and closed states share what "end" gives them.
    rows = rows.at[opened].set(0.0).at[opened[:, None], opened[None]].set(inside)
    if len(closed):
        shares = jnp.asarray(alternatives["which"]) if "which" in alternatives else jnp.ones((number, 1))
        rows = rows.at[opened[:, None], closed[None]].set(ends[:, None] * shares)
    # Off zero, so that rows can be the base of a Dirichlet law.
    return jnp.maximum(rows, LEAST)


@dataclass(frozen=True, eq=False)
class PartialPooling:
    """The prior that `partial_pooling` returns: a NumPyro program, space -> `MDPSpec`.

    Args:
        rewards, concentration, usage_power, state_concentration: as of `partial_pooling`.
        usage: likewise, [S A], relative numbers of observations.
    """

    rewards: RewardFactory
    usage: Float[np.ndarray, "S A"] | Literal["data"] | None
    concentration: dist.LogNormal
    usage_power: dist.Normal
    state_concentration: dist.LogNormal

    def usage_of(self, space: StateActionSpace, counts: Float[np.ndarray, "S A"] | None) -> Float[np.ndarray, "S A"]:
        """How often each pair is used, relative to the geometric mean over legal pairs of open states.

        Args:
            space: of the pairs.
            counts: transitions of each pair, read where usage is "data"; None: every pair alike.

        Raises:
            ValueError: `usage` has another shape.
        """
        shape = (space.n_states, space.n_actions)
        if self.usage is None or (isinstance(self.usage, str) and counts is None):
            return np.ones(shape)
        # One more than the count: a pair without data is used less than one with a single transition, not never.
        usage = np.asarray(counts) + 1.0 if isinstance(self.usage, str) else self.usage
        check_shape("usage", usage, shape, "state, action")
        # Rows that are known have no usage that matters.
        inside = np.zeros(shape, bool)
        inside[pooled_outcomes(space).open] = True
        inside &= True if space.legal is None else np.asarray(space.legal)
        # Relative to the geometric mean: log usage is centred, and c keeps its meaning for every power.
        return np.where(inside, usage / np.exp(np.log(np.where(inside, usage, 1.0)).sum() / inside.sum()), 1.0)

    def __call__(self, space: StateActionSpace) -> MDPSpec:
        """The program."""
        groups = pooled_outcomes(space)
        number = len(groups.open)
        total = numpyro.sample("concentration", self.concentration)
        # Without usage the power would be a site that no data reach.
        power = 0.0 if self.usage is None else numpyro.sample("usage_power", self.usage_power)
        alternatives = {}
        for name, size in groups.levels.items():
            # How alike the states are at this level, and the row that is common to them.
            own_concentration = numpyro.sample(f"state_concentration_{name}", self.state_concentration)
            common = numpyro.sample(f"common_{name}", dist.Dirichlet(jnp.ones(size)))
            law = (
                dist.Dirichlet(jnp.maximum(own_concentration * jnp.asarray(common), LEAST))
                .expand((number,))
                .to_event(1)
            )
            alternatives[name] = jnp.asarray(numpyro.sample(f"state_{name}", law))
        rows = state_rows(groups, alternatives, space.n_states, space.n_outcomes)
        # c u^b: what is used often follows its state more closely.
        weight = jnp.asarray(total) * jnp.asarray(self.usage_of(space, None), rows.dtype) ** jnp.asarray(power)
        # Concentrations are weight times the row of the state, for each of its actions.
        return self.rewards(concentration=weight[..., None] * rows[:, None, :])(space)


def partial_pooling(
    rewards: RewardFactory = dirichlet_normal_gamma,
    *,
    usage: ArrayLike | Literal["data"] | None = "data",
    concentration: dist.LogNormal = dist.LogNormal(4.0, 2.0),
    usage_power: dist.Normal = dist.Normal(0.5, 0.5),
    state_concentration: dist.LogNormal = dist.LogNormal(4.0, 2.0),
) -> PartialPooling:
    """Rows of a state's actions are alike, and states are alike: each row borrows from those, as far as they agree.

    Row of pair (s, a) ~ Dirichlet(c u(s, a)^b m_s): m_s is the row of the state, c how alike its actions are (in
    transitions), and u(s, a) how often the pair is used, relative to other pairs. What is done often in a state is
    close to what usually follows from it; what is done rarely may differ more, and b says by how much. Frequencies of a
    log that had few of a pair are the case b = 1. The row of a state has levels: to leave the states with unknown rows
    or not, where to ("end", "which"), to stay or to move ("stay"), where to ("move"); on each level
    m_s ~ Dirichlet(c_level g_level), with the common g_level ~ Dirichlet(1, ..., 1).

    `infer` draws c, b, c_level, g_level and m_s by Gibbs sampling (`bayes_mdp.inference.Gibbs`); given them rows and
    rewards are in closed form. Rewards are those of the factory, and have to be conjugate.

    Sites: `concentration`, `usage_power`; `state_concentration_LEVEL`, `common_LEVEL`, `state_LEVEL` for each level;
    those of `rewards`.

    Args:
        rewards: a factory of priors that takes `concentration`, such as `dirichlet_bernoulli`; for known rewards
            `functools.partial(known_rewards, reward)`.
        usage: u, positive [S A]; "data": one more than the number of transitions of the pair in the data, which the
            prior is then conditioned on, as a regression is on its regressors (without data: 1); None: 1, and no b.
        concentration: hyperprior of c.
        usage_power: hyperprior of b.
        state_concentration: hyperprior of each c_level.

    Raises:
        TypeError: a hyperprior of another family, no factory. ValueError: `usage` that is not positive; of the program:
            a space with listed successors, steps, or a support that differs between pairs.

    Example:
        >>> prior = bm.models.partial_pooling()
        >>> print(bm.explain(prior, bm.StateActionSpace(2, 2)))
        route: gibbs (chains draw what rows share, rows and rewards in closed form)
        ...
    """
    if not callable(rewards):
        raise TypeError(f"rewards is {described(rewards)}, expected a factory of priors that takes `concentration`")
    for name, law, family in (
        ("concentration", concentration, dist.LogNormal),
        ("usage_power", usage_power, dist.Normal),
        ("state_concentration", state_concentration, dist.LogNormal),
    ):
        check_type(name, law, family, f"a numpyro.distributions.{family.__name__} of one number")
        if law.batch_shape or not is_concrete(law.loc, law.scale):
            raise ValueError(f"{name} has batch shape {law.batch_shape}, expected a hyperprior of one number")
    if isinstance(usage, str):
        if usage != "data":
            raise ValueError(f'usage is {usage!r}, expected "data", an array [state, action] or None')
        return PartialPooling(rewards, "data", concentration, usage_power, state_concentration)
    if usage is not None:
        refuse_labels("usage", usage)
        usage = as_real("usage", usage, "positive numbers [state, action]").astype(np.float64)
        check_positive("usage", usage)
    return PartialPooling(rewards, usage, concentration, usage_power, state_concentration)
