"""Replicates of the data, and the log-likelihood of the data, under each draw. NumPy in float64, host-side."""

import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray
from scipy.special import xlogy

from bayes_mdp.calibration.belief.draws import Draws, Moments, check_draws, check_posterior, draw, draw_prior
from bayes_mdp.calibration.belief.observed_data import Cells, Data, Rows, observe
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.mdp import Log, Transitions
from bayes_mdp.utils.validation import check_name

NUMBERS_AT_ONCE = 2**22


def draws_and_rows(key: PRNGKeyArray, posterior: Fitted, data: Data, num_draws: int, group: str) -> tuple[Draws, Rows]:
    """Draws, and the transitions one by one.

    Args:
        key: of the draws.
        posterior: as `infer` returns it, or a mixture.
        data: the transitions that it was inferred from.
        num_draws: number of draws.
        group: what is drawn from, "posterior" or "prior".

    Raises:
        ValueError, TypeError: as `to_arviz`; data that are sums.
    """
    check_posterior(posterior, num_draws)
    check_name("group", group, ("posterior", "prior"))
    check_draws(posterior, num_draws, _number_of(data))
    rows, _ = observe(posterior.reference, data)
    if rows is None:
        raise ValueError("data holds no transitions, expected those that the posterior was inferred from")
    return (draw if group == "posterior" else draw_prior)(key, posterior, num_draws), rows


def _number_of(data: object) -> int:
    """Number of transitions; 0 if `data` are sums, or no data."""
    data = data.transitions if isinstance(data, Log) else data
    return int(np.size(data.state)) if isinstance(data, Transitions) else 0


def replicate_rows(rng: np.random.Generator, draws: Draws, rows: Rows) -> dict[str, np.ndarray]:
    """Per draw and transition [N T], another outcome of the same pair, and another reward."""
    # Rows of the pairs in the data alone, however large the space is.
    pairs, pair_of_row = np.unique(np.stack(rows.cell), axis=1, return_inverse=True)
    probs = draws.transition_probs[(slice(None), *pairs)]
    made: dict[str, np.ndarray] = {
        "observed_next_state": _categorical(rng, probs, pair_of_row.reshape(-1)).astype(np.int32)
    }
    rewards = draws.rewards
    if rewards.law is not None:
        # One reward each: a sum of one.
        reward = rewards.total(rng, np.ones(rows.reward.shape), rows.reward_cell(rewards.by_outcome))
        made["observed_reward"] = reward.astype(np.float32)
    return made


def replicate_cells(rng: np.random.Generator, draws: Draws, cells: Cells) -> dict[str, np.ndarray]:
    """Per draw and pair, outcomes and the sum of the rewards, with as many visits of each pair as in the data."""
    tried = cells.pairs_with_data
    counts = np.zeros(draws.transition_probs.shape, np.int32)
    # Sums of weights may be off whole numbers by rounding.
    n = np.round(cells.transition_counts[tried].sum(-1)).astype(np.int64)
    # In double precision a row sums to one closely enough for a multinomial law.
    probs = draws.transition_probs[(slice(None), *tried)].astype(np.float64)
    counts[(slice(None), *tried)] = rng.multinomial(n, probs / probs.sum(-1, keepdims=True))
    made: dict[str, np.ndarray] = {"transition_counts": counts}
    if draws.rewards.law is not None:
        made["reward_total"] = draws.rewards.total(rng, cells.rewards.count, (...,)).astype(np.float32)
    return made


def rows_by_name(rows: Rows, has_rewards: bool) -> dict[str, np.ndarray]:
    """The data, under the names of `replicate_rows`."""
    made = {"observed_next_state": rows.outcome.astype(np.int32)}
    return {**made, "observed_reward": rows.reward} if has_rewards else made


def cells_by_name(cells: Cells, has_rewards: bool) -> dict[str, np.ndarray]:
    """The data, under the names of `replicate_cells`."""
    made = {"transition_counts": np.round(cells.transition_counts).astype(np.int32)}
    return {**made, "reward_total": cells.rewards.count * cells.rewards.mean} if has_rewards else made


def log_likelihood_rows(draws: Draws, rows: Rows) -> Float[np.ndarray, "N T"]:
    """log p(next state, reward | state, action) of each transition under each draw; a missing reward adds nothing."""
    # A probability of zero makes a transition impossible: minus infinity.
    probs = draws.transition_probs[(slice(None), *rows.cell, rows.outcome)].astype(np.float64)
    with np.errstate(divide="ignore"):
        outcome = np.log(probs)
    rewards = draws.rewards
    if rewards.law is None:
        return outcome
    return outcome + rewards.log_prob(rows.reward, np.isfinite(rows.reward), rows.reward_cell(rewards.by_outcome))


def log_likelihood_cells(draws: Draws, cells: Cells) -> Float[np.ndarray, "N C"]:
    """The same, summed over the transitions of each of the C visited pairs, as a sequence (no multinomial factors).

    Terms without parameters (- log r! of Poisson rewards) are left out: they do not follow from sums.
    """
    tried = cells.pairs_with_data
    outcome = xlogy(cells.transition_counts[tried], draws.transition_probs[(slice(None), *tried)]).sum(-1)
    if draws.rewards.law is None:
        return outcome
    # Rewards of a pair as a sequence, by their moments.
    moments = Moments(*(x[tried] for x in cells.rewards))
    if not draws.rewards.by_outcome:
        # Rewards by outcome: a cell for every outcome, added over them.
        return outcome + draws.rewards.log_prob_of_sums(moments, tried)
    index = (*(i[:, None] for i in tried), np.arange(cells.transition_counts.shape[-1]))
    return outcome + draws.rewards.log_prob_of_sums(moments, index).sum(-1)


def _categorical(
    rng: np.random.Generator, probs: Float[np.ndarray, "N C O"], which: Int[np.ndarray, " T"]
) -> Int[np.ndarray, "N T"]:
    """An index drawn from row `which` of each draw.

    A block of draws at a time, as their cumulative sums take more memory than the draws.
    """
    num_draws, num_pairs, num_outcomes = probs.shape
    uniform = rng.random((num_draws, which.size))
    size = max(1, NUMBERS_AT_ONCE // (num_pairs * num_outcomes))
    return np.concatenate(
        [_search(probs[i : i + size], uniform[i : i + size], which) for i in range(0, num_draws, size)]
    )


def _search(
    probs: Float[np.ndarray, "N C O"], uniform: Float[np.ndarray, "N T"], which: Int[np.ndarray, " T"]
) -> Int[np.ndarray, "N T"]:
    """Inversion of all rows by one binary search: the cumulative sums of row r are laid out in [r, r + 1]."""
    num_draws, num_pairs, num_outcomes = probs.shape
    cumulative = np.cumsum(probs.astype(np.float64), axis=-1)
    # The last entry is one to the last bit.
    cumulative /= cumulative[..., -1:]
    start = np.arange(num_draws * num_pairs, dtype=np.float64).reshape(num_draws, num_pairs)
    row = start[:, which]
    # Rounding must not carry a draw into the next row.
    target = np.minimum(row + uniform, np.nextafter(row + 1.0, 0.0))
    places = np.searchsorted((cumulative + start[..., None]).reshape(-1), target, side="right")
    return places - (row * num_outcomes).astype(np.int64)
