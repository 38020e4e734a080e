"""MBIE and MBIE-EB: optimism by confidence intervals of the empirical model; MBIE(WS), for the best successor alone.

Strehl and Littman, *An analysis of model-based interval estimation for Markov decision processes*, JCSS 74, 2008;
Wiering and Schmidhuber, *Efficient model-based exploration*, 1998 (a row of [OIM08] table 3). MBIE(WS) is
reconstructed: the original and its constants were not available, results may differ.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bayes_mdp.agents.model_based.empirical_optimism import OptimisticModel
from bayes_mdp.agents.model_based.empirical_planning import (
    BellmanEquations,
    ExactPlanner,
    Local,
    OnePolicy,
    OwnRows,
    Stats,
)
from bayes_mdp.planning.extended_mdp import L1Ball
from bayes_mdp.utils.typing import Numbers, Scalar
from bayes_mdp.utils.validation import check_count, check_inside, check_not_negative, is_concrete


def interval_bonus(stats: Stats, width: Scalar, v_max: Scalar) -> Float[Array, "*pairs"]:
    """width / sqrt(n), in units of the reward; `v_max` where n = 0.

    Args:
        stats: of the pairs.
        width: of the interval after one visit, units of the return.
    """
    # No division by zero under `where`: its derivative would be nan.
    visited = stats.visits > 0
    return jnp.where(visited, width / jnp.sqrt(jnp.where(visited, stats.visits, 1.0)), jnp.asarray(v_max, float))


class MBIEEB(OptimisticModel):
    """MBIE with an exploration bonus (section 2.3 of the paper): the empirical model and a bonus of width / sqrt(n).

        Q = v_max                                                        n = 0
        Q = Rhat + beta / sqrt(n) + discount sum_y phat(y) V(y)          n > 0

    Args:
        beta: units of the reward; in the tables of [OIM08] .4 R_max (RiverSwim) and .8 R_max (SixArms). 0: the
            empirical plan, in which an untried pair has value `v_max`.
        v_max: R_max / (1 - discount); units of the return. Under `Episodic` the same at every step.
        planner, replan: as in `ModelBased`.

    Raises:
        ValueError: `beta` is negative or not finite, `v_max` is not finite.
        TypeError: no number.

    Example:
        >>> result = bm.run(
        ...     bm.agents.MBIEEB(beta=0.5, v_max=100.0),
        ...     bm.envs.chain(),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=50,
        ...     key=jax.random.key(0),
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> float(result.visits.sum())
        50.0
    """

    beta: float | Array = 1.0
    v_max: float | Array = 100.0

    def __check_init__(self) -> None:
        check_not_negative("beta", self.beta)

    def local(self, stats: Stats) -> Local:
        """The equations above."""
        return Local(stats.reward, interval_bonus(stats, self.beta, self.v_max), stats.probs)


def _none_where_zero(width: Any) -> Any:
    """None for a width known to be zero: then no optimistic row is computed."""
    zero = width is None or (isinstance(width, (int, float, np.ndarray, np.generic, Array)) and is_concrete(width))
    zero = zero and (width is None or (np.ndim(width) == 0 and np.asarray(width) == 0))
    return None if zero else width


class MBIE(OptimisticModel):
    """MBIE (section 2.2 of the paper): the best MDP whose rewards and rows lie in sets that shrink as 1 / sqrt(n).

        Q = v_max                                                                n = 0
        Q = Rhat + eR + discount max { p . V : ||p - phat||_1 <= eT }            n > 0
        eR = reward_width / sqrt(n),      eT = transition_width / sqrt(n)

    The tuned form in the tables of [OIM08] has reward_width = .3 R_max and transition_width 0 (RiverSwim) or .08
    (SixArms); `theory_widths` gives those of the theorem. A row may lead to every state (every listed one, where the
    space lists successors), and to an end where one was observed. Rows and values are found together, by policy
    iteration over both.

    Args:
        reward_width: units of the reward.
        transition_width: a number; None or 0: the empirical rows; the equation is then that of `MBIEEB`, at the
            same cost.
        v_max: R_max / (1 - discount); units of the return. Under `Episodic` the same at every step.
        planner: `ExactPlanner()`; where `transition_width` is 0 also `PrioritizedSweeping(...)`, which lists
            observed successors only.
        replan: as in `ModelBased`.

    Raises:
        ValueError: a width is negative or not finite, `v_max` is not finite, `PrioritizedSweeping` with a
            `transition_width`.
        TypeError: no number.
    """

    reward_width: float | Array = 1.0
    transition_width: float | Array | None = eqx.field(default=None, converter=_none_where_zero)
    v_max: float | Array = 100.0

    def __check_init__(self) -> None:
        check_not_negative("reward_width", self.reward_width)
        if self.transition_width is None:
            return
        check_not_negative("transition_width", self.transition_width)
        if not isinstance(self.planner, ExactPlanner):
            kind = type(self.planner).__name__
            raise ValueError(f"planner is {kind}, expected ExactPlanner for MBIE with a transition_width")

    def local(self, stats: Stats) -> Local:
        """Rhat and phat, and the bonus eR (`v_max` where n = 0)."""
        return Local(stats.reward, interval_bonus(stats, self.reward_width, self.v_max), stats.probs)

    @property
    def equations(self) -> BellmanEquations:
        """One policy where rows are the empirical ones; else the sum is the optimum of the best rows of the sets."""
        return OnePolicy(self.local) if self.transition_width is None else OwnRows(self.local, self.best_rows)

    def best_rows(self, stats: Stats, values: Float[Array, "*pairs K"]) -> Float[Array, "*pairs K"]:
        """The rows of probabilities that attain the maximum over the L1 balls; zero where n = 0.

        Args:
            stats: of the pairs [S A].
            values: of the K successors of each pair, in units of the return.
        """
        assert self.transition_width is not None
        visited, n = stats.visits > 0, jnp.maximum(stats.visits, 1.0)
        # The end is one more outcome, possible only where one was observed.
        # Visits without a next state were ends.
        ended = jnp.maximum(stats.visits - jnp.sum(stats.counts, -1), 0.0) / n
        centre = jnp.concatenate([stats.probs, ended[..., None]], -1)
        states = jnp.ones(stats.counts.shape, bool) if stats.possible is None else jnp.asarray(stats.possible)
        possible = jnp.concatenate([states, (ended > 0)[..., None]], -1)
        # ||p - phat||_1 <= width / sqrt(n) (section 2.2): the ball within which the best row is taken.
        radius = jnp.asarray(self.transition_width, float) / jnp.sqrt(n)
        if stats.possible is None:  # `ExactPlanner` gives all pairs the same values
            rows = L1Ball(centre, radius, possible).best_rows(values[0, 0])[..., :-1]
        else:
            rows = jax.vmap(jax.vmap(_best_row))(centre, radius, possible, values)[..., :-1]
        return jnp.where(visited[..., None], rows, 0.0)


def _best_row(
    centre: Float[Array, " O"], radius: Float[Array, ""], possible: Bool[Array, " O"], values: Float[Array, " K"]
) -> Float[Array, " O"]:
    """The best row of one pair, whose next states are its own."""
    return L1Ball(centre[None, None], radius[None, None], possible[None, None]).best_rows(values)[0, 0]


def theory_widths(
    n_states: int, *, max_reward: Scalar = 1.0, reward_delta: Scalar = 0.05, transition_delta: Scalar = 0.05
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(reward_width, transition_width) of the theorem, for rewards from 0 to `max_reward`.

        eR = max_reward sqrt(ln(2 / reward_delta) / (2 n)),     eT = sqrt(2 (ln(2^S - 2) - ln transition_delta) / n)

    (Hoeffding; Weissman et al. 2003). Each set misses the truth with probability at most its delta, for one pair at one
    n.

    Args:
        n_states: S; with one state eT is 0.
        max_reward: units of the reward.
        reward_delta, transition_delta: strictly between 0 and 1.

    Raises:
        ValueError, TypeError: a number outside its range.
    """
    check_count("n_states", n_states)
    check_not_negative("max_reward", max_reward)
    check_inside("reward_delta", reward_delta)
    check_inside("transition_delta", transition_delta)
    # Hoeffding: P(|Rhat - R| > w / sqrt(n)) <= 2 exp(-2 w^2 / Rmax^2) = delta.
    reward = jnp.asarray(max_reward, float) * jnp.sqrt(jnp.log(2.0 / jnp.asarray(reward_delta, float)) / 2)
    if n_states == 1:
        return reward, jnp.zeros_like(reward)
    # ln(2^S - 2) without overflow
    subsets = n_states * np.log(2.0) + np.log1p(-(2.0 ** (1 - n_states)))
    # Weissman et al. 2003: P(||phat - p||_1 > w / sqrt(n)) <= (2^S - 2) exp(-w^2 / 2) = delta.
    return reward, jnp.sqrt(2 * (subsets - jnp.log(jnp.asarray(transition_delta, float))))


def wilson_upper(share: Numbers, n: Numbers, z: Scalar) -> Float[Array, "..."]:
    """Upper end of Wilson's score interval: the larger root p of n (p - share)^2 = z^2 p (1 - p).

    `share` and `n` broadcast.

    Args:
        share: observed, in [0, 1].
        n: observations, greater than 0.
        z: quantile of a standard normal law.
    """
    # p^2 (1 + z^2/n) - p (2 share + z^2/n) + share^2 = 0: its larger root.
    part = z * z / n
    root = z * jnp.sqrt(share * (1.0 - share) / n + part / (4.0 * n))
    return (share + part / 2.0 + root) / (1.0 + part)


def favour_best_successor(
    probs: Float[Array, "*pairs K"], visits: Float[Array, "*pairs"], values: Float[Array, "*pairs K"], z: Scalar
) -> Float[Array, "*pairs K"]:
    """Rows in which the most valuable observed successor has Wilson's upper limit; the others are rescaled.

    An end (the mass missing in `probs`) is one more successor, of value 0. Where several are equally valuable, the
    first is favoured. Rows without visits stay as they are.

    Args:
        visits: of the pairs.
        values: of the K successors of each pair.
        z: quantile of a standard normal law.
    """
    ends = jnp.maximum(1.0 - jnp.sum(probs, -1, keepdims=True), 0.0)
    ends = jnp.where(ends > 4 * float(jnp.finfo(probs.dtype).eps), ends, 0.0)  # rounding is no end
    share = jnp.concatenate([probs, ends], -1)
    # Only observed successors compete; of several equal ones the first.
    outcomes = jnp.concatenate([values, jnp.zeros_like(ends)], -1)
    outcomes = jnp.where(share > 0, outcomes, -jnp.inf)
    top = outcomes == jnp.max(outcomes, -1, keepdims=True)
    first = top & (jnp.cumsum(top, -1) == 1)
    favourite = jnp.sum(jnp.where(first, share, 0.0), -1, keepdims=True)
    n = jnp.maximum(visits, 1.0)[..., None]
    upper = wilson_upper(favourite, n, z)
    # Mass 1 - upper is shared by the others in the old proportions.
    rest = jnp.where(favourite < 1.0, (1.0 - upper) / jnp.where(favourite < 1.0, 1.0 - favourite, 1.0), 0.0)
    rows = jnp.where(first, upper, share * rest)[..., :-1]
    return jnp.where(visits[..., None] > 0, rows, probs)


class MBIEWS(OptimisticModel):
    """The model of the plan increases the probability of every pair's most valuable successor ([WS98], after [OIM08]).

        Q+(x, a) = mean reward + discount sum_y p+(y) max Q+(y, .)

    p+ of the most valuable observed successor is Wilson's upper limit at `z`; those of the others are rescaled to
    the rest. The agent is greedy for Q+. Qr is the optimum of the empirical model, Qe = Q+ - Qr, so that `greedy` is
    the empirical model's own policy. A row with one observed successor is not changed; a pair that was never tried
    has Q+ = `v_max`, as in MBIE. Where the most valuable successor changes, Q+ jumps, so a fixed point need not exist;
    planning stops after a fixed number of rounds.

    Args:
        z: of the interval, zero or greater; 0: the empirical model.
        v_max: Q+ of a pair never tried; units of the return. Qr is 0 there. Under `Episodic` the same at every step.
        planner, replan: as in `ModelBased`.

    Raises:
        ValueError: a number outside its range.
        TypeError: no number.
    """

    z: float | Array = 1.96
    v_max: float | Array = 100.0

    def __check_init__(self) -> None:
        check_not_negative("z", self.z)

    def local(self, stats: Stats) -> Local:
        """The empirical model; Q+ of a pair never tried is all bonus."""
        # No row and no reward where n = 0: the bonus alone makes Q+ = v_max, and Qr = 0.
        return Local(stats.reward, jnp.where(stats.visits > 0, 0.0, self.v_max), stats.probs)

    @property
    def equations(self) -> BellmanEquations:
        """Q+ is the optimum of the rows p+, Qr that of the empirical rows."""
        return OwnRows(
            self.local, lambda stats, values: favour_best_successor(stats.probs, stats.visits, values, self.z)
        )
