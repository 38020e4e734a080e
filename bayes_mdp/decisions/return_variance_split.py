"""`split_return_variance`: how much of the variance of the return data could remove, and how much is chance. Host-side.

With M the MDP: Var(return) = Var_M[V_M] (epistemic) + E_M[Var(return | M)] (aleatoric). Given M, Var(return) solves the
recursion of Sobel (1982), *The variance of discounted Markov decision processes*: with target t = reward + discount V
of the next state (zero at an end),

    w(s) = Var_{action, outcome, reward}[t] + discount^2 E[w(next state)].

It is solved in every draw, so cycles and shared parameters need no correction.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from bayes_mdp.decisions.host_optima import backward, episodic_values, expected_values
from bayes_mdp.decisions.host_values import PolicyPairs, proven, row_faults, solve, used_pairs
from bayes_mdp.decisions.policy_evaluation import (
    COPIES,
    Start,
    check_num_draws,
    describe_objective,
    read_action_probs,
    read_start,
    require_usable,
)
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.pair_draws import Drawn, PairRows, pair_draws
from bayes_mdp.mdp import Discounted, Episodic, FirstExit, Objective, PolicyOrLabels
from bayes_mdp.mdp.abilities import Sizes
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import InitialLike
from bayes_mdp.utils.validation import check_key

NUMBERS_AT_ONCE = 2**23  # float64 numbers of draws, and of their chains, that are held at once: 64 MiB
MOST_AT_ONCE = 256  # draws in a chunk: any larger number of draws is made by one compiled program


class ReturnSplit(eqx.Module):
    """The variance of the return in its two parts; `print` shows it in words. All in squared units of the return.

    Args:
        total, epistemic, aleatoric: variances; `total` is the sum of the other two.
        total_error, epistemic_error, aleatoric_error: Monte Carlo standard errors.
        mean: expected return.
        num_draws: number of draws.
        gap: the largest bound on a draw's numerical error of the value.
        initial: Float64[S], distribution of the first state, whose chance counts as aleatoric.
        initial_given: whether it was given; if not it is uniform.
        start: where `initial` is from, in words.
        objective: what was evaluated.
    """

    total: float
    epistemic: float
    aleatoric: float
    total_error: float
    epistemic_error: float
    aleatoric_error: float
    mean: float
    num_draws: int
    gap: float
    initial: Float[np.ndarray, " S"]
    initial_given: bool
    objective: Objective
    start: str = eqx.field(static=True)

    def __str__(self) -> str:
        """A few lines for a person."""
        share = self.epistemic / self.total if self.total > 0 else 0.0
        return "\n".join(
            [
                f"Variance of the return, {describe_objective(self.objective)}, {self.num_draws} draws "
                f"(mean {self.mean:.6g})",
                f"  total {self.total:.6g} (Monte Carlo error {self.total_error:.2g})",
                f"  epistemic {self.epistemic:.6g} (+- {self.epistemic_error:.2g}), {share:.0%}: more data would "
                "remove it",
                f"  aleatoric {self.aleatoric:.6g} (+- {self.aleatoric_error:.2g}): transitions and rewards by chance",
                f"  start: {self.start}",
            ]
        )


def split_return_variance(
    key: PRNGKeyArray,
    posterior: ConjugatePosterior | Mixture,
    policy: PolicyOrLabels,
    objective: Objective,
    *,
    initial: InitialLike | None = None,
    num_draws: int = 2000,
) -> ReturnSplit:
    """The variance of the return of `policy`, split in two: what is not known of the MDP, and luck.

    Exact but for the Monte Carlo error, which is stated, on cycles and with shared rows too; the chance of the first
    state and the noise of rewards are in the aleatoric part. Host-side: compiles itself, works in float64.

    Args:
        key: the draws.
        posterior: in closed form (draws have no noise of rewards around their mean).
        policy: Int[*H S], Float[*H S A] (action probabilities), a `Policy` object, or by label, as in `policy_value`.
        objective: Discounted, Episodic or FirstExit.
        initial: distribution of the first state, as in `policy_value`; None: uniform (see `initial_given`).
        num_draws: number of draws, at least 2.

    Raises:
        ValueError, TypeError: one sentence on the argument that cannot be used; AverageReward, whose return is endless;
            noise of infinite expected variance (normal-gamma with concentration <= 1).

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 1)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> split = bm.decisions.split_return_variance(jax.random.key(1), posterior, [0], bm.Episodic(1))
        >>> bool(abs(split.epistemic - 1 / 12) < 0.01), bool(abs(split.aleatoric - 1 / 6) < 0.01)
        (True, True)
    """
    # Draws of a posterior by draws have means alone: the noise of a reward is lost.
    if not (isinstance(posterior, Fitted) and (posterior.in_closed_form or posterior.exact_part is not None)):
        kind = type(posterior).__name__
        raise TypeError(f"posterior is a {kind}, expected one in closed form: draws have no noise of rewards")
    objective = require_objective(objective, "a return", Discounted, Episodic, FirstExit)
    check_key("key", key)
    check_num_draws(num_draws)
    # Infinite noise makes the aleatoric part infinite: refused with the pair.
    for k in range(posterior.num_components):
        posterior.component(k).expected_reward_variance()
    space, sizes = posterior.space, Sizes.of(posterior.space)
    with jax.enable_x64(True):
        posterior64 = to_float64(posterior)
        start = read_start(sizes, initial, space)
        probs = np.asarray(read_action_probs("policy", policy, sizes, objective, space), np.float64)
        # One key for each draw: any chunks give the same draws.
        keys = jax.random.split(key, num_draws)
        numbers = (
            sum(math.prod(x.shape) for x in eqx.filter_eval_shape(draw_law, keys[0], posterior64)) + sizes.n_states**2
        )
    check_memory(sizes.in_words, 8.0 * COPIES * numbers, "listed successors take less")
    chunk = min(MOST_AT_ONCE, max(1, NUMBERS_AT_ONCE // numbers), num_draws)
    # Of all pairs that are drawn only those that the policy takes are looked at.
    rows = pair_draws(key, posterior, used_pairs(probs[None], sizes.horizon)).rows
    parts = []
    for first in range(0, num_draws, chunk):
        with jax.enable_x64(True):
            # Draws are repeated to fill the last chunk: one compiled program.
            draws = _draw_laws(keys[np.arange(first, first + chunk) % num_draws], posterior64)
        parts.append(_split_draws(rows, Laws.of_pairs(rows, draws), probs, objective, start.probs))
    values, chance, gaps, excess = (np.concatenate(x)[:num_draws] for x in zip(*parts, strict=True))
    require_usable(values[:, None], gaps[:, None], excess, ["policy"], objective)
    return _summarise(values, chance, float(gaps.max()), start, objective)


def draw_law(
    key: PRNGKeyArray, posterior: ConjugatePosterior | Mixture
) -> tuple[Float[Array, "*H S A O"], Float[Array, "*cells"], Float[Array, "*cells"]]:
    """One draw of the rows, of the mean rewards and of the variance of one reward around them, together."""
    # A component by weight, then rows and rewards of it: one joint draw.
    k = 0
    if posterior.log_weights is not None:
        key, key_component = jax.random.split(key)
        k = jax.random.categorical(key_component, jnp.asarray(posterior.log_weights))
    belief: Any = posterior.component(k)
    key_rows, key_rewards = jax.random.split(key)
    rewards = belief.reward_cells
    mean, noise = rewards.gather_from_draw(rewards.sample_sites(key_rewards))
    return belief.transition_probs.sample(key_rows), mean, noise


@eqx.filter_jit
def _draw_laws(keys: Key[Array, " N"], posterior: ConjugatePosterior | Mixture) -> tuple[Array, Array, Array]:
    return jax.vmap(lambda key: draw_law(key, posterior))(keys)


class Laws(NamedTuple):
    """N draws of the laws of some pairs, outcome by outcome.

    Args:
        probs: of the entries.
        mean, noise: of one reward and variance around it.
    """

    probs: Float[np.ndarray, "N E"]
    mean: Float[np.ndarray, "N E"]
    noise: Float[np.ndarray, "N E"]

    @classmethod
    def of_pairs(cls, rows: PairRows, draws: tuple[Array, Array, Array]) -> "Laws":
        """Those of `rows` among all pairs; rewards that do not depend on the outcome have the same law at each."""
        table, mean, noise = map(np.asarray, draws)
        if mean.ndim < table.ndim:
            mean, noise = (np.broadcast_to(x[..., None], table.shape) for x in (mean, noise))
        return cls(*(x[(slice(None), *rows.cells(by_outcome=True))] for x in (table, mean, noise)))

    def chance(
        self, rows: PairRows, entries: slice | Int[np.ndarray, " F"], values: Float[np.ndarray, "N S1"]
    ) -> Float[np.ndarray, "N Q"]:
        """Variance of reward + values(next state) of the pairs `rows`, whose entries are these, given the laws."""
        probs, mean, noise = (x[:, entries] for x in self)
        # Var over outcomes of reward + discount V; the noise of a reward around its own mean adds to it.
        target = mean + values[:, rows.next_state]
        centred = target - rows.sums(probs * target)[:, rows.pair]
        return rows.sums(probs * (centred**2 + noise))


def _split_draws(
    rows: PairRows,
    laws: Laws,
    policy: Float[np.ndarray, "*H S A"],
    objective: Objective,
    start: Float[np.ndarray, " S"],
) -> tuple[Float[np.ndarray, " N"], ...]:
    """V and Var(return) of every draw from the start, a bound on the error of V, and how far rows are off."""
    drawn, rate = Drawn(laws.probs, rows.expectation(laws.probs, laws.mean)), float(objective.discount)
    end = np.zeros((len(drawn.probs), 1))
    if isinstance(objective, Episodic):
        answer = episodic_values(rows, drawn, policy, objective)
        # Values and variances of the step after; after the last step nothing comes.
        later = scatter = np.zeros((len(drawn.probs), rows.n_states + 1))
        for step, h in zip(backward(rows, drawn, policy, objective), reversed(range(objective.horizon)), strict=True):
            part, _, entries = rows.at_step(h)
            # Var(return | MDP) from here on: what this step adds, and discount^2 that of the next step.
            variance = laws.chance(part, entries, rate * later)
            variance += rate**2 * expected_values(part, drawn.probs[:, entries], scatter)
            # Over the actions of the policy: the mean of the variances, and the variance of the values.
            weight = (policy[h] if policy.ndim == 3 else policy)[part.state, part.action]
            variance += (step.q - step.values[:, part.state]) ** 2
            first = np.searchsorted(part.state, np.arange(rows.n_states))
            scatter = np.append(np.add.reduceat(variance * weight, first, -1), end, -1)
            later = np.append(step.values, end, -1)
        scatter = scatter[:, :-1]
    else:
        pairs = PolicyPairs(rows, policy)
        chains = pairs.chains(drawn)
        answer = proven(chains, objective)
        later = np.append(answer.first, end, -1)
        q = drawn.reward + rate * expected_values(rows, drawn.probs, later)
        local = laws.chance(rows, slice(None), rate * later) + (q - pairs.by_state(q)[:, rows.state]) ** 2
        # Var(return | MDP) solves the same recursion with discount^2 and what each step adds.
        scatter = solve(chains, rate**2, pairs.by_state(local))
    value = answer.first @ start
    # Law of total variance over the first state: mean of the scatter, and scatter of the means.
    return value, scatter @ start + (answer.first - value[:, None]) ** 2 @ start, answer.gap, row_faults(rows, drawn)[0]


def _summarise(values: np.ndarray, chance: np.ndarray, gap: float, start: Start, objective: Objective) -> ReturnSplit:
    """Moments, and their errors from the variance of what is averaged."""
    number = len(values)
    # (x - mean)^2 n / (n - 1) averages to the sample variance.
    # The unbiased sample variance as a mean, so that its standard error is that of a mean.
    squares = (values - values.mean()) ** 2 * (number / (number - 1))
    parts = squares + chance, squares, chance
    total, epistemic, aleatoric = (float(part.mean()) for part in parts)
    errors = [float(part.std(ddof=1) / np.sqrt(number)) for part in parts]
    return ReturnSplit(
        total=total,
        epistemic=epistemic,
        aleatoric=aleatoric,
        total_error=errors[0],
        epistemic_error=errors[1],
        aleatoric_error=errors[2],
        mean=float(values.mean()),
        num_draws=number,
        gap=gap,
        initial=start.probs,
        initial_given=start.given,
        objective=objective,
        start=start.words,
    )
