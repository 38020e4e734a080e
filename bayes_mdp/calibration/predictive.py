"""What the data could have been, and how likely they are under each draw. NumPy in float64, host-side."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import xlogy

from bayes_mdp.calibration.draws import Draws
from bayes_mdp.calibration.laws import Law, Moments
from bayes_mdp.calibration.observed import Cells, Rows

NUMBERS_AT_ONCE = 2**22


def replicate_rows(rng: np.random.Generator, draws: Draws, rows: Rows) -> dict[str, Any]:
    """Per draw and transition [N T], another outcome of the same pair, and another reward."""
    pairs, which = np.unique(np.stack(rows.cell), axis=1, return_inverse=True)
    probs = draws.transition_probs[(slice(None), *pairs)]
    made: dict[str, Any] = {"observed_next_state": _categorical(rng, probs, which.reshape(-1)).astype(np.int32)}
    if draws.law is not None:
        reward = draws.reward_total(rng, np.ones(rows.reward.shape), rows.reward_cell(draws.by_outcome))
        made["observed_reward"] = reward.astype(np.float32)
    return made


def replicate_cells(rng: np.random.Generator, draws: Draws, cells: Cells) -> dict[str, Any]:
    """Per draw and pair, the outcomes and the sum of the rewards of as many tries as were seen."""
    tried = cells.tried
    counts = np.zeros(draws.transition_probs.shape, np.int32)
    n = np.round(cells.transition_counts[tried].sum(-1)).astype(np.int64)
    probs = draws.transition_probs[(slice(None), *tried)].astype(np.float64)
    counts[(slice(None), *tried)] = rng.multinomial(n, probs / probs.sum(-1, keepdims=True))
    made: dict[str, Any] = {"transition_counts": counts}
    if draws.law is not None:
        made["reward_total"] = draws.reward_total(rng, cells.rewards.count, (...,)).astype(np.float32)
    return made


def observed_rows(rows: Rows, has_rewards: bool) -> dict[str, Any]:
    """The data beside `replicate_rows`."""
    made = {"observed_next_state": rows.outcome.astype(np.int32)}
    return {**made, "observed_reward": rows.reward} if has_rewards else made


def observed_cells(cells: Cells, has_rewards: bool) -> dict[str, Any]:
    """The data beside `replicate_cells`."""
    made = {"transition_counts": np.round(cells.transition_counts).astype(np.int32)}
    return {**made, "reward_total": cells.rewards.count * cells.rewards.mean} if has_rewards else made


def log_likelihood_rows(draws: Draws, rows: Rows) -> Float[np.ndarray, "N T"]:
    """log p(next state, reward | state, action) of each transition under each draw; a missing reward adds nothing."""
    probs = draws.transition_probs[(slice(None), *rows.cell, rows.outcome)].astype(np.float64)
    with np.errstate(divide="ignore"):
        outcome = np.log(probs)
    if draws.law is None:
        return outcome
    observed = np.isfinite(rows.reward)
    reward = np.where(observed, rows.reward, 0.0)
    where = rows.reward_cell(draws.by_outcome)
    owed = observed & ~draws.known[where]
    seen = Moments(owed.astype(float), reward, np.zeros(reward.shape))
    constant = np.where(owed, draws.law.log_base(reward), 0.0) if isinstance(draws.law, Law) else 0.0
    return outcome + constant + draws.reward_log_prob(seen, where)


def log_likelihood_cells(draws: Draws, cells: Cells) -> Float[np.ndarray, "N C"]:
    """The same summed over the transitions of each of the C pairs that were tried, in their order (no multinomials).

    What no parameter enters (- log r! of Poisson rewards) is left out: sums do not know it.
    """
    tried = cells.tried
    outcome = xlogy(cells.transition_counts[tried], draws.transition_probs[(slice(None), *tried)]).sum(-1)
    if draws.law is None:
        return outcome
    reward = draws.reward_log_prob(Moments(*(x[tried] for x in cells.rewards)), tried)
    return outcome + (reward.sum(-1) if draws.by_outcome else reward)


def _categorical(
    rng: np.random.Generator, probs: Float[np.ndarray, "N C O"], which: Int[np.ndarray, " T"]
) -> Int[np.ndarray, "N T"]:
    """Index drawn from row `which` of each draw: one search in the laid-out cumulative sums, row r in [r, r + 1].

    Some draws at a time: the sums take more memory than the draws.
    """
    n, c, o = probs.shape
    chance = rng.random((n, which.size))
    size = max(1, NUMBERS_AT_ONCE // (c * o))
    return np.concatenate([_search(probs[i : i + size], chance[i : i + size], which) for i in range(0, n, size)])


def _search(
    probs: Float[np.ndarray, "N C O"], chance: Float[np.ndarray, "N T"], which: Int[np.ndarray, " T"]
) -> Int[np.ndarray, "N T"]:
    n, c, o = probs.shape
    cumulative = np.cumsum(probs.astype(np.float64), axis=-1)
    cumulative /= cumulative[..., -1:]
    start = np.arange(n * c, dtype=np.float64).reshape(n, c)
    row = start[:, which]
    # Rounding may not carry a draw into the next row.
    target = np.minimum(row + chance, np.nextafter(row + 1.0, 0.0))
    found = np.searchsorted((cumulative + start[..., None]).reshape(-1), target, side="right")
    return found - (row * o).astype(np.int64)
