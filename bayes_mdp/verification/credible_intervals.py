"""Intervals that hold the rows of a posterior, all at once, with a stated probability: for a model checker.

Rows of Dirichlet distributions have intervals in closed form (Bonferroni over the entries); of any other posterior they
are measured on its draws. There the shape of the set, how wide the intervals of different entries are, is that of one
half of the draws. Its size is one factor for all entries: an order statistic, over the other half, of the largest
distance of a draw in these units. A further draw is exchangeable with that half, so it lies in all intervals at once
with at least the stated probability (split conformal prediction: Vovk, Gammerman and Shafer 2005).
"""

import math

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.decisions.policy_evaluation import read_start
from bayes_mdp.inference.pair_draws import PairRows, limit_draws, pair_draws
from bayes_mdp.mdp import CanMean, CanSample, Objective
from bayes_mdp.mdp.abilities import Sizes, require_ability, sizes_of
from bayes_mdp.mdp.labels import labels_of
from bayes_mdp.mdp.protocols import CanBoundRows
from bayes_mdp.mdp.space import StateActionSpace
from bayes_mdp.utils.files import AnyPath
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import AnyArray, InitialLike
from bayes_mdp.utils.validation import check_count, check_key, check_number
from bayes_mdp.verification.interval_files import write_interval_mdp
from bayes_mdp.verification.interval_mdp import IntervalMDP, interval_mdp

FLOOR = 1e-6
"""The least lower end: model checkers want to know which transitions are possible at all."""
_WIDER = 1e-9  # for rounding: a draw on the edge lies inside


def export_interval_mdp(
    posterior: CanSample,
    path: AnyPath,
    objective: Objective,
    *,
    probability: float = 0.95,
    initial: InitialLike | None = None,
    num_draws: int = 4000,
    key: PRNGKeyArray | None = None,
) -> IntervalMDP:
    """Write credible intervals of the rows of a posterior as a file that Storm, PRISM and other model checkers read.

    The objective is in the file: ask for the reward `reward` until `done` ('Rmax=? [F "done"]').

    Args:
        posterior, objective, probability, initial, num_draws, key: as of `credible_intervals`.
        path: ends in .drn, .umb or .tra (see `write_interval_mdp`).

    Returns:
        What was written.

    Raises:
        ValueError, TypeError: as `credible_intervals` and `write_interval_mdp`.

    Example:
        >>> space = bm.StateActionSpace(2, 2)
        >>> posterior = bm.infer(jax.random.key(0), bm.models.known_rewards(np.eye(2), 1.0), space=space)
        >>> written = bm.verification.export_interval_mdp(posterior, "posterior.drn", bm.Discounted(0.9))
        >>> written.n_states  # two, the end, and one that starts in either
        4
    """
    model = credible_intervals(
        posterior, objective, probability=probability, initial=initial, num_draws=num_draws, key=key
    )
    write_interval_mdp(model, path)
    return model


def credible_intervals(
    posterior: CanSample,
    objective: Objective,
    *,
    probability: float = 0.95,
    initial: InitialLike | None = None,
    floor: float = FLOOR,
    num_draws: int = 4000,
    key: PRNGKeyArray | None = None,
) -> IntervalMDP:
    """An interval for every transition probability, which hold the rows all at once with the stated probability.

    Then so lies, with at least that probability, the value of every policy between its least and its greatest value
    over the set (`robust_values`), and the best value between the best of both. The set is rectangular: rows of
    different pairs may be at their ends together, which a posterior hardly ever is, so the values lie within the ends
    far more often.

    **Dirichlet rows** (`infer` with an exact route): Bonferroni over the entries, in closed form. **Others**: measured
    on draws, half of which give the shape of the set and half its size; what is stated is the probability that a
    further draw lies in it (exact draws; draws of chains are nearly so).

    **Rewards are posterior means**: that they are unknown is not in the set.

    Args:
        posterior: anything that can `sample`; its mean rewards are those of `mean_mdp`, or of the draws.
        objective: Discounted, FirstExit or Episodic; built into the rows (see `interval_mdp`).
        probability: that all rows lie in their intervals.
        initial: distribution of the first state, as of `policy_value`.
        floor: the least lower end of a transition that is possible. What it cuts off is counted in `probability`.
        num_draws: number of draws, where they are needed.
        key: random key of the draws. None: `jax.random.key(0)`.

    Raises:
        ValueError: `probability` is not between 0 and 1; too few draws for it; a floor that cuts off more than the
            rest; rows that depend on the step without `Episodic`; `AverageReward`. TypeError: it cannot `sample`.

    Example:
        >>> space = bm.StateActionSpace(2, 2)
        >>> posterior = bm.infer(jax.random.key(0), bm.models.known_rewards(np.eye(2), 1.0), space=space)
        >>> model = bm.verification.credible_intervals(posterior, bm.Discounted(0.9))
        >>> bm.verification.write_interval_mdp(model, "posterior.drn")  # ask for 'Rmax=? [F "done"]'
        >>> model.n_states  # two, the end, and one that starts in either
        4
    """
    require_ability(posterior, CanSample, "credible_intervals")
    check_number("probability", probability, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")
    check_number("floor", floor, lambda x: (x >= 0) & (x < 0.1), "a number from 0 to 0.1")
    check_count("num_draws", num_draws, 2)
    key = jax.random.key(0) if key is None else key
    check_key("key", key)
    sizes, space = sizes_of(posterior), labels_of(posterior)
    if space is None:
        shape = sizes.shape
        space = StateActionSpace(*shape[-2:], ends=sizes.ends, horizon=sizes.horizon, legal=sizes.legal)
    start = read_start(sizes, initial, labels_of(posterior))
    width = space.n_states + sizes.ends
    check_memory(sizes.in_words, 40.0 * math.prod(sizes.shape) * width, "fewer states take less")
    reward = np.asarray(posterior.mean_mdp().reward, np.float64) if isinstance(posterior, CanMean) else None
    if isinstance(posterior, CanBoundRows):
        bounds = posterior.row_intervals(probability, floor)
        lower, upper = (_by_next_state(ends, space, sizes) for ends in (bounds.lower, bounds.upper))
        about = (
            f"all rows lie in their intervals with posterior probability {probability:g} at least "
            f"(Bonferroni over {int(bounds.entries):,} entries of Dirichlet rows)"
        )
        if reward is None:
            raise TypeError("posterior has row_intervals and no mean_mdp, expected both")
    else:
        lower, upper, drawn, number = _from_draws(key, posterior, sizes, probability, floor, num_draws)
        reward = drawn if reward is None else reward
        about = (
            f"a further draw of the posterior lies in all intervals with probability {probability:g} at least "
            f"(measured on {number:,} draws, taken as exchangeable)"
        )
    reward = np.where(sizes.possible, np.broadcast_to(reward, sizes.shape), 0.0)
    remarks = (about, "rewards are posterior means, and no part of the set", f"first state: {start.words}")
    if space.successors is not None:  # the intervals have a column for every next state
        known = {"ends": sizes.ends, "horizon": space.horizon, "legal": space.legal}
        space = StateActionSpace(*sizes.shape[-2:], states=space.states, actions=space.actions, **known)
    return interval_mdp(lower, upper, reward, objective, space=space, initial=start.probs, about=remarks)


def _by_next_state(
    values: Float[AnyArray, "*H S A K"], space: StateActionSpace, sizes: Sizes
) -> Float[np.ndarray, "*H S A O"]:
    """Ends of intervals with a column for every next state, where the columns of a space are its listed successors."""
    listed_ends = np.asarray(values, np.float64)
    if space.successors is None:
        return listed_ends
    # Places that are not filled (-1) go to one column more, the last, which is left out.
    table = np.zeros((*sizes.shape, sizes.n_states + sizes.ends + 1))
    np.put_along_axis(table, np.broadcast_to(space.successors, listed_ends.shape), listed_ends, -1)
    return table[..., :-1]


def _from_draws(
    key: PRNGKeyArray, posterior: CanSample, sizes: Sizes, probability: float, floor: float, num_draws: int
) -> tuple[Float[np.ndarray, "*H S A O"], Float[np.ndarray, "*H S A O"], Float[np.ndarray, "*H S A"], int]:
    """Lower and upper ends, mean rewards, and how many draws they are from."""
    posterior, num_draws = limit_draws(posterior, num_draws)
    second = num_draws // 2
    rank = math.ceil(probability * (second + 1) - 1e-9)
    if rank > second:
        least = 2 * math.ceil(probability / (1 - probability) - 1e-9)
        raise ValueError(
            f"num_draws is {num_draws}, expected at least {least}: a set of probability {probability:g} is measured on "
            "half of the draws"
        )
    draws = pair_draws(key, posterior, sizes.possible)
    check_memory(sizes.in_words, 32.0 * num_draws * len(draws.rows.pair), "fewer draws take less")
    drawn = draws.draw(num_draws)
    low, high = _joint_intervals(drawn.probs, rank, floor)
    return (
        _table(draws.rows, low, sizes),
        _table(draws.rows, high, sizes),
        _of_pairs(draws.rows, drawn.reward.mean(0), sizes),
        num_draws,
    )


def _joint_intervals(
    probs: Float[np.ndarray, "N E"], rank: int, floor: float
) -> tuple[Float[np.ndarray, " E"], Float[np.ndarray, " E"]]:
    """Intervals of the entries that hold `rank` of every second draw at once."""
    low, high = probs.min(0), probs.max(0)
    unknown = high - low > 1e-12
    # On the scale of angles, p = sin^2 x, where entries near zero or one vary as others do.
    angle = np.arcsin(np.sqrt(np.clip(probs[:, unknown], 0.0, 1.0)))
    shape, judged = angle[0::2], angle[1::2]
    middle, spread = shape.mean(0), np.maximum(shape.std(0), 1e-9)
    largest = np.max(np.abs(judged - middle) / spread, axis=-1, initial=0.0)
    # A draw with a probability below the floor is outside, whatever the factor.
    beyond_floor = (probs[1::2][:, unknown] < floor).any(-1)
    factor = float(np.sort(np.where(beyond_floor, np.inf, largest))[rank - 1])
    if not np.isfinite(factor):
        raise ValueError(
            f"floor is {floor:g}, and {beyond_floor.mean():.3g} of the draws have a smaller probability, expected a "
            "smaller floor (0: none) or probability"
        )
    ends = np.clip(middle + factor * spread * np.array([[-1.0], [1.0]]), 0.0, np.pi / 2)
    low[unknown] = np.maximum(np.sin(ends[0]) ** 2 * (1 - _WIDER), floor)
    high[unknown] = np.minimum(np.sin(ends[1]) ** 2 * (1 + _WIDER), 1.0)
    return low, high


def _table(rows: PairRows, values: Float[np.ndarray, " E"], sizes: Sizes) -> Float[np.ndarray, "*H S A O"]:
    """Values of entries by pair and next state; zero elsewhere."""
    table = np.zeros((*sizes.shape, sizes.n_states + sizes.ends))
    table[(*(i[rows.pair] for i in rows.index), rows.next_state)] = values
    return table


def _of_pairs(rows: PairRows, values: Float[np.ndarray, " Q"], sizes: Sizes) -> Float[np.ndarray, "*H S A"]:
    table = np.zeros(sizes.shape)
    table[rows.index] = values
    return table
