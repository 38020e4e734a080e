"""LOO-PIT: leave-one-out probability integral transform of each transition. Host-side.

u = P(y < y_i | others) + v P(y = y_i | others), v uniform on [0, 1]. If the model is calibrated, u is uniform (Vehtari
et al. 2017; randomised for discrete outcomes as in Czado, Gneiting and Held 2009). The posterior given the others is
obtained by Pareto-smoothed importance sampling from the posterior given all (ArviZ); a transition is left out together
with its reward.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from bayes_mdp.calibration.arviz.diagnostics import LARGE_PARETO_K
from bayes_mdp.calibration.arviz.generation import smooth_weights
from bayes_mdp.calibration.belief import replicates as predictive
from bayes_mdp.calibration.belief.draws import Draws, key_or_first
from bayes_mdp.calibration.belief.observed_data import Data, Rows
from bayes_mdp.calibration.simulation_based import ecdf
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.layout import Section, Table, as_html, as_text
from bayes_mdp.utils.messages import see

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HIGH, LOW = "too high: predictions are too low", "too low: predictions are too high"
NARROW, WIDE = "too many near 0 and 1: predictions are too narrow", "too many in the middle: too wide"
NEXT_STEPS = {
    "next_state": {
        HIGH: "rows of their own for pairs that share one, or a weaker prior of the rows",
        LOW: "rows of their own for pairs that share one, or a weaker prior of the rows",
        NARROW: "a larger concentration of the rows, or rows that depend on more than state and action",
        WIDE: "a smaller concentration of the rows, or possible outcomes alone (support=, successors=; in the "
        "shell --support FILE)",
    },
    "reward": {
        HIGH: "a mean reward of its own for each pair, or a prior mean where rewards lie",
        LOW: "a mean reward of its own for each pair, or a prior mean where rewards lie",
        NARROW: "a reward law with heavier tails or more noise (dist.StudentT, dirichlet_normal_gamma)",
        WIDE: "a weaker prior of the rewards, less noise, or noise that is learnt (dirichlet_normal_gamma)",
    },
}
"""Variable -> how its predictions are off -> what to try."""
UNRELIABLE = "compare with criticise(), which holds half of the episodes out and needs no weights"
LEVEL = 0.01
NUM_BINS = 100
Values = Float[np.ndarray, " T"]


class Pit(NamedTuple):
    """PIT values of one variable.

    Args:
        values: [T'], of the transitions that have the variable.
        p: p-value of the exact simultaneous ECDF test of uniformity, on a grid of 100 cells (Säilynoja, Bürkner and
            Vehtari 2022).
    """

    values: Values
    p: float

    @property
    def uniform(self) -> bool:
        """Whether the test does not reject at the 1 % level."""
        return self.p >= LEVEL

    @property
    def fault(self) -> str:
        """How the predictions are off, in words."""
        if self.uniform:
            return "uniform"
        # A uniform number has mean 1/2 and variance 1/12.
        width, shift = self.values.std() * np.sqrt(12.0), self.values.mean() - 0.5
        # The standard error of the mean of n uniform numbers is 1 / sqrt(12 n).
        if abs(shift) * np.sqrt(12.0 * self.values.size) > 3.0:
            return HIGH if shift > 0 else LOW
        return NARROW if width > 1 else WIDE


class LooPit(NamedTuple):
    """Result of `loo_pit`; print it.

    Args:
        variables: `next_state` (outcomes in the order of their indices) and `reward`, if it is unknown.
        share_unreliable: share of the transitions whose Pareto k is above 0.7.
    """

    variables: dict[str, Pit]
    share_unreliable: float

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """A row for each variable."""
        rows = [(name, str(pit.values.size), f"{pit.p:.3g}", pit.fault) for name, pit in self.variables.items()]
        notes = [
            f"{name}, what to try: {NEXT_STEPS[name][pit.fault]} {see('how-to/check-a-posterior')}"
            for name, pit in self.variables.items()
            if not pit.uniform
        ]
        if self.share_unreliable:
            share = f"{self.share_unreliable:.1%}"
            notes.append(f"unreliable at {share} of the transitions (Pareto k above 0.7): {UNRELIABLE}")
        return Section(
            "LOO-PIT: where each transition falls in its prediction from all the others",
            [Table(("variable", "values", "p", "verdict"), rows, (0, 3)), *notes],
        )

    def plot(self) -> "Figure":
        """ECDF minus the diagonal, with the 99 % simultaneous band of uniform numbers."""
        from bayes_mdp.utils.figures import NotebookFigure

        figure = NotebookFigure(figsize=(4 * len(self.variables), 3), layout="constrained")
        axes = figure.subplots(1, len(self.variables), squeeze=False)
        grid = np.arange(1, NUM_BINS + 1) / NUM_BINS
        for axis, (name, pit) in zip(axes[0], self.variables.items(), strict=True):
            number = pit.values.size
            band = ecdf.simultaneous_band(number, NUM_BINS - 1, LEVEL)
            axis.fill_between(grid, band.low / number - grid, band.high / number - grid, color="0.85")
            # Both are shown as a difference from the diagonal, where they can be told apart.
            counts = np.cumsum(np.bincount(_ranks(pit.values), minlength=NUM_BINS))
            axis.plot(grid, counts / number - grid, color="C0")
            axis.set_title(f"{name}: p = {pit.p:.3g}", fontsize=9)
            axis.set_xlabel("PIT")
        axes[0, 0].set_ylabel("ECDF - PIT")
        return figure


def loo_pit(posterior: Fitted, data: Data, *, num_draws: int = 1000, key: PRNGKeyArray | None = None) -> LooPit:
    """Calibration of the predictions of next states and rewards.

    Args:
        posterior: as `infer` returns it, or a mixture.
        data: the `Transitions` or `Log` that it was inferred from.
        num_draws: draws of the posterior.
        key: of draws and randomisation; None: `jax.random.key(0)`.

    Raises:
        ValueError, TypeError: as `to_arviz`; data that are sums.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 1)
        >>> data = bm.Transitions([0] * 20, [0] * 20, [0.0, 1.0] * 10, [0] * 20)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> print(bm.calibration.loo_pit(posterior, data))
        LOO-PIT: where each transition falls in its prediction from all the others
        ...
    """
    key_draws, key_numbers = jax.random.split(key_or_first(key))
    draws, rows = predictive.draws_and_rows(key_draws, posterior, data, num_draws, "posterior")
    # Leaving transition t out divides the weight of a draw by the likelihood of t under it.
    log_weights, pareto_k = smooth_weights(-predictive.log_likelihood_rows(draws, rows).T)
    weights = np.exp(log_weights)
    rng = host_generator(key_numbers)
    variables = {"next_state": _pit(_next_state(rng, draws, rows, weights))}
    rewards = draws.rewards
    if rewards.law is not None:
        # Only rewards with a law, and that were observed, have a place in their prediction.
        observed = ~np.isnan(rows.reward) & ~rewards.known[rows.reward_cell(rewards.by_outcome)]
        if observed.any():
            variables["reward"] = _pit(_reward(rng, draws, rows, weights)[observed])
    return LooPit(variables, float(np.mean(pareto_k > LARGE_PARETO_K)))


def _next_state(rng: np.random.Generator, draws: Draws, rows: Rows, weights: Float[np.ndarray, "T N"]) -> Values:
    """PIT of the outcomes, from their probabilities under each draw: less noise than from replicates."""
    pairs, pair_of_row = np.unique(np.stack(rows.cell), axis=1, return_inverse=True)
    pair_of_row = pair_of_row.reshape(-1)
    # Of each draw: the probability up to the outcome, and of the outcome itself.
    prob_up_to, prob_equal = np.zeros((2, len(draws.transition_probs), pair_of_row.size))
    for n, probs in enumerate(draws.transition_probs):  # one draw at a time, to save memory
        tried = probs[tuple(pairs)].astype(np.float64)
        prob_up_to[n], prob_equal[n] = (
            np.cumsum(tried, axis=-1)[pair_of_row, rows.outcome],
            tried[pair_of_row, rows.outcome],
        )
    # Leave-one-out: probabilities under the weighted draws [T N].
    prob_below, prob_equal = ((weights * x.T).sum(1) for x in (prob_up_to - prob_equal, prob_equal))
    return prob_below + rng.random(prob_equal.shape) * prob_equal


def _reward(rng: np.random.Generator, draws: Draws, rows: Rows, weights: Float[np.ndarray, "T N"]) -> Values:
    """PIT of the rewards, from one replicate of each draw."""
    replicated = draws.rewards.total(rng, np.ones(rows.reward.shape), rows.reward_cell(draws.rewards.by_outcome)).T
    reward = rows.reward[:, None]
    prob_below, equal = ((weights * x).sum(1) for x in (replicated < reward, replicated == reward))
    # A reward below, or above, all replicates lies within 1 / N of the end.
    share = np.where((prob_below == 0) | (prob_below + equal >= 1), 1.0 / weights.shape[1], 0.0)
    # Of equal replicates a uniform part, as of discrete outcomes.
    low, high = np.clip(prob_below - share, 0.0, 1.0), np.clip(prob_below + equal + share, 0.0, 1.0)
    return low + rng.random(prob_below.shape) * (high - low)


def _pit(values: Values) -> Pit:
    values = np.clip(values, 0.0, 1.0)
    # Values become ranks among a hundred cells: the test of ranks serves.
    return Pit(values, ecdf.p_value(_ranks(values), NUM_BINS - 1))


def _ranks(values: Values) -> Int[np.ndarray, " T"]:
    return np.minimum((values * NUM_BINS).astype(int), NUM_BINS - 1)
