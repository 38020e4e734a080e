"""MBIE(WS): interval estimation for the most valuable successor (Wiering and Schmidhuber 1998, *Efficient model-based
exploration*; a row of [OIM08] table 3).

Reconstructed: the original and its constants were not available, results may differ.
"""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_mdp.agents.model_based.empirical import Local, Stats
from bayes_mdp.agents.model_based.empirical_optimism import OptimisticModel
from bayes_mdp.utils.typing import Numbers, Scalar
from bayes_mdp.utils.validation import check_not_negative


def wilson_upper(share: Numbers, n: Numbers, z: Scalar) -> Float[Array, "..."]:
    """Upper end of Wilson's score interval: the larger root p of n (p - share)^2 = z^2 p (1 - p).

    `share` and `n` broadcast.

    Args:
        share: observed, in [0, 1].
        n: observations, greater than 0.
        z: quantile of a standard normal law.
    """
    part = z * z / n
    root = z * jnp.sqrt(share * (1.0 - share) / n + part / (4.0 * n))
    return (share + part / 2.0 + root) / (1.0 + part)


def favoured(
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
    joint: ClassVar[bool] = False
    own_rows: ClassVar[bool] = True

    @property
    def first_value(self) -> Scalar:
        """`v_max`."""
        return self.v_max

    def __check_init__(self) -> None:
        check_not_negative("z", self.z)

    def local(self, stats: Stats, values: Float[Array, "*pairs K"]) -> Local:
        """The equation above."""
        bonus = jnp.where(stats.visits > 0, 0.0, self.v_max)
        return Local(stats.reward, bonus, stats.probs, favoured(stats.probs, stats.visits, values, self.z))
