"""`Outcome`: something else that a policy brings, such as costs beside life years, with a discount of its own.

It is known, or learnt from the same log as the reward (`LearntReward`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.inference.pair_draws import CanDrawOutcome, Drawn, PairDraws, PairRows
from bayes_mdp.mdp import MDP, AverageReward, CanSample, Discounted, Episodic, FirstExit, Objective, SparseMDP
from bayes_mdp.mdp.labelled_tables import refuse_labels
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.typing import AnyArray, ArrayLike
from bayes_mdp.utils.validation import as_real, check_bool, check_finite, check_number, check_type, described

_RATE = "a number above 0 and at most 1, or None"


@dataclass(frozen=True, eq=False)
class Outcome:
    """A known cost or effect of each state and action, summed beside the reward in the same draws of the posterior.

    Args:
        reward: of a state [S], of a pair [S A], or of a pair and what follows [S A O] (O the next states and, where
            episodes can end, the end); any of these with an axis of steps in front, [H ...], under `Episodic(H)`. Where
            sizes leave open which axes are meant, give all of them. In units of the outcome.
        discount: of the next step, in (0, 1]; None: that of the objective.
        half_cycle: count a step by the mean of the rewards of the states at its start and at its end, each discounted
            to its own time (the trapezoidal rule): sum_t discount^t w_t reward(s_t) with w_0 = w_H = 1/2 and 1 between.
            The end is worth nothing. For rewards [S] (Briggs, Claxton and Sculpher 2006, chapter 2).

    Raises:
        ValueError: a discount outside (0, 1], a reward that is not finite or has no axis, or more than four; a reward
            of other axes with `half_cycle`.
        TypeError: no numbers.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> cost = bm.decisions.Outcome([[3.0, 5.0]])
        >>> options = bm.decisions.ValueOptions({"cost": cost})
        >>> value = bm.policy_value(jax.random.key(1), posterior, [1], bm.Episodic(2), num_draws=10, options=options)
        >>> value.outcomes["cost"].mean
        10.0
    """

    reward: ArrayLike
    discount: float | None = None
    half_cycle: bool = False

    def __post_init__(self) -> None:
        refuse_labels("reward", self.reward)
        reward = as_real("reward", self.reward).astype(np.float64)
        if not 1 <= reward.ndim <= 4:
            raise ValueError(f"reward has shape {reward.shape}, expected [S], [S A] or [S A O], or these by step")
        check_finite("reward", reward)
        # Frozen: the checked array takes the place of what was given.
        object.__setattr__(self, "reward", reward)
        check_bool("half_cycle", self.half_cycle)
        # Half a cycle before and half after a transition: of a number of the state.
        if self.half_cycle and reward.ndim > 1:
            raise ValueError(f"reward has shape {reward.shape}, expected one number a state with half_cycle")
        if self.discount is not None:
            check_number("discount", self.discount, lambda x: (x > 0) & (x <= 1), _RATE)
            object.__setattr__(self, "discount", float(self.discount))


class OutcomeValue(eqx.Module):
    """What a policy brings of one outcome.

    Args:
        draws: Float64[num_draws], in each draw of the MDP (`AverageReward`: per step).
        mean, sd: of the draws, in the unit of the outcome.
        interval: the central 95 % of the draws, in the unit of the outcome.
        gap: the largest bound on a draw's numerical error, for the expected rewards of pairs as they were computed.
        effective: number of independent draws that the mean is worth, a count; None: all of them.
    """

    draws: Float[np.ndarray, " num_draws"]
    mean: float
    sd: float
    interval: tuple[float, float]
    gap: float
    effective: float | None = None

    @property
    def error(self) -> float:
        """The Monte Carlo standard error of the mean, in the unit of the outcome."""
        return self.sd / (len(self.draws) if self.effective is None else self.effective) ** 0.5


class PairReward(eqx.Module):
    """The reward of an outcome: of a pair, and of what follows it.

    Args:
        pair: [*H S A].
        following: [O], or [*H S A O], beside it; None: nothing.
    """

    pair: Float[AnyArray, "*G S A"]
    following: Float[AnyArray, "*axes O"] | None = None

    def of_pairs(
        self, rows: PairRows, probs: Float[np.ndarray, "N E"], horizon: int | None
    ) -> Float[np.ndarray, "N *H Q"]:
        """The expected reward of pairs in draws of their rows, by step where there is a horizon. Host side.

        Args:
            rows, probs: the pairs.
            horizon: of the objective; None: it is stationary.
        """
        # Axes in front: the steps, where there is a horizon.
        steps = () if horizon is None else (slice(None),)
        lead = () if horizon is None else (horizon,)
        pair = np.broadcast_to(self.pair, (*lead, *np.shape(self.pair)[-2:]))
        # r(s, a), the same in every draw.
        expected = np.asarray(pair)[(*steps, rows.state, rows.action)]
        if self.following is None:
            # A view for all draws: nothing is copied.
            return np.broadcast_to(expected, (len(probs), *expected.shape))
        table = np.asarray(self.following)
        # By next state alone, or by pair and next state.
        if table.ndim == 1:
            after = table[rows.next_state]
        else:
            table = np.broadcast_to(table, (*lead, *table.shape[-3:]))
            after = table[(*steps, rows.state[rows.pair], rows.action[rows.pair], rows.next_state)]
        # E[r | s, a] = r(s, a) + sum_o P(o | s, a) r(s, a, o) in each draw, step by step.
        later = [rows.sums(probs * next_value) for next_value in np.atleast_2d(after)]
        if horizon is None:
            return expected + later[0]
        return expected + (np.stack(later, 1) if after.ndim == 2 else later[0][:, None])

    def expected(self, mdp: MDP | SparseMDP) -> Float[Array, "..."]:
        """The expected reward of the pairs of an MDP, [*H S A]. Traceable."""
        pair = jnp.asarray(self.pair, mdp.reward.dtype)
        pair = jnp.broadcast_to(pair, jnp.broadcast_shapes(pair.shape, mdp.reward.shape))
        if self.following is None:
            return pair
        table, n_states = jnp.asarray(self.following, mdp.reward.dtype), mdp.n_states
        # Dense rows: outcome o is state o; listed ones: the state that is listed there.
        if not isinstance(mdp, SparseMDP):
            after = table[..., :n_states]
        elif table.ndim == 1:
            after = table[mdp.successor]
        else:
            lead = jnp.broadcast_shapes(table.shape[:-1], mdp.successor.shape[:-1])
            listed = jnp.broadcast_to(mdp.successor, (*lead, mdp.successor.shape[-1]))
            after = jnp.take_along_axis(jnp.broadcast_to(table, (*lead, table.shape[-1])), listed, -1)
        # The end has a reward of its own, the last entry.
        total = pair + jnp.sum(mdp.row_probs * after, -1)
        return total if mdp.end_probs is None else total + mdp.end_probs * table[..., n_states]


@dataclass(frozen=True, eq=False)
class LearntReward:
    """The rewards of another posterior, drawn beside the rows of the one in use: an outcome learnt from the same log.

    Its own rows are drawn too: they have to be those of the posterior in use, number by number, so that a draw of the
    outcome belongs to the draw of the rows. That is seen, draw by draw, and not assumed. Given the rows, outcome and
    reward are independent: their random numbers are.

    Args:
        name: of the outcome, for errors.
        draws: of the other posterior, under the key of the rows.
    """

    name: str
    draws: PairDraws

    @classmethod
    def of(
        cls, key: PRNGKeyArray, name: str, posterior: CanSample, needed: Bool[np.ndarray, "*H S A"]
    ) -> "LearntReward":
        """Draws of what a posterior has learnt.

        Args:
            key: of the draws of the posterior in use.
            name: of the outcome.
            posterior: that learnt it.
            needed: which pairs.

        Raises:
            TypeError: a posterior whose rewards cannot be told from those of the one in use.
        """
        if isinstance(posterior, CanDrawOutcome):
            return cls(name, posterior.outcome_draws(key, name, needed))
        raise TypeError(
            f"outcome {name!r} was learnt by a {type(posterior).__name__}, which draws rows and rewards from one key: "
            "under the key of the reward the outcome would repeat its errors, expected a posterior with "
            "`outcome_draws` (as infer returns it), given draws, or known numbers (Outcome) " + see("how-to/budgets")
        )

    def of_pairs(self, drawn: Drawn) -> Float[np.ndarray, "N Q"]:
        """The mean outcome of the pairs in the next draws.

        Args:
            drawn: the draws of the posterior in use.

        Raises:
            ValueError: the rows differ.
        """
        paid = self.draws.draw(len(drawn.probs))
        # The same key must give the same rows, number by number: else draws of two worlds would be paired.
        if not np.array_equal(paid.probs, drawn.probs):
            raise ValueError(
                f"outcome {self.name!r}: the posterior that learnt it draws other rows than the one in use, expected "
                "one of the same prior of rows, by the same log, in which rows and rewards share no site (or known "
                "numbers: Outcome) " + see("how-to/budgets")
            )
        return paid.reward


def check_outcomes(outcomes: object) -> None:
    """Refuse what is neither None nor outcomes by name.

    Raises:
        ValueError: there are none. TypeError: other objects.
    """
    if outcomes is None:
        return
    if not isinstance(outcomes, Mapping):
        raise TypeError(f"outcomes is {described(outcomes)}, expected name -> Outcome")
    if not outcomes:
        raise ValueError("outcomes is empty, expected at least one outcome by its name, or None")
    for name, outcome in outcomes.items():
        check_type("a name of outcomes", name, str, "text")
        check_type(f"outcomes[{name!r}]", outcome, (Outcome, CanSample), "an Outcome, or a posterior that learnt it")


def read_outcome(
    name: str, outcome: Outcome, shape: tuple[int, ...], ends: bool, objective: Objective
) -> tuple[PairReward, Objective]:
    """The rewards of a known outcome and the objective that they are summed by.

    Args:
        name: of the outcome.
        outcome: as it was given.
        shape: (*H, S, A), of the MDPs.
        ends: whether these can end.
        objective: of the policy.

    Raises:
        ValueError: one sentence on what does not fit.
    """
    argument = f"outcomes[{name!r}]"
    # Its own discount, the horizon of the objective.
    summed = _objective(argument, outcome, objective)
    steps = objective.horizon
    return _pair_reward(argument, outcome, shape[-2:], ends, steps, float(summed.discount)), summed


def _objective(what: str, outcome: Outcome, objective: Objective) -> Objective:
    rate = outcome.discount
    if rate is None:
        return objective
    if isinstance(objective, AverageReward):
        raise ValueError(f"{what}.discount is {rate:g}, expected None with AverageReward")
    # A horizon stays, whatever the rate.
    if isinstance(objective, Episodic):
        return Episodic(objective.horizon, rate)
    if isinstance(objective, FirstExit) and rate == 1:
        return objective
    if rate == 1:
        raise ValueError(f"{what}.discount is 1, expected less with Discounted: its sum has no end")
    return Discounted(rate)


def _pair_reward(
    what: str, outcome: Outcome, pairs: tuple[int, ...], ends: bool, steps: int | None, rate: float
) -> PairReward:
    reward, (n_states, n_actions) = np.asarray(outcome.reward), pairs
    # The end is an outcome, where episodes can end.
    n_outcomes = n_states + ends
    shapes = {"S": (n_states,), "S A": (n_states, n_actions), "S A O": (n_states, n_actions, n_outcomes)}
    by_step = {} if steps is None else {f"H {axes}": (steps, *size) for axes, size in shapes.items()}
    sizes = {**shapes, **by_step}
    # Sizes decide which axes are meant; where two readings fit, neither is taken.
    fits = [axes for axes, size in sizes.items() if size == reward.shape]
    if not fits:
        expected = " or ".join(f"{size} [{axes}]" for axes, size in sizes.items())
        raise ValueError(f"{what}.reward has shape {reward.shape}, expected {expected}")
    if len(fits) > 1:
        raise ValueError(
            f"{what}.reward has shape {reward.shape}, which may be [{fits[0]}] or [{fits[1]}], expected all axes, "
            f"{sizes['H S A O']} [H S A O]"
        )
    axes = fits[0]
    # By outcome: nothing is known of the pair itself.
    if axes.endswith("O"):
        return PairReward(np.zeros(reward.shape[:-1]), reward)
    if axes.endswith("A"):
        return PairReward(reward)
    # A number of the state is the same for all of its actions.
    pair = np.repeat(reward[..., None], n_actions, -1)
    if not outcome.half_cycle:
        return PairReward(pair)
    # Half-cycle correction: half of the reward at the start of a step, half (discounted) at its end.
    return PairReward(pair / 2, rate / 2 * np.concatenate([reward, np.zeros(int(ends))]))
