"""`split_return_variance`: how much of the variance of the return data could remove, and how much is chance. Host-side.

With M the MDP: Var(return) = Var_M[V_M] (epistemic) + E_M[Var(return | M)] (aleatoric). Given M, Var(return) solves the
recursion of Sobel (1982), *The variance of discounted Markov decision processes*: with target t = reward + discount V
of the next state (zero at an end),

    w(s) = Var_{action, outcome, reward}[t] + discount^2 E[w(next state)].

It is solved in every draw, so cycles and shared parameters need no correction.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.decisions.chunks import Keys, in_chunks, over_chunks, row_faults
from bayes_mdp.decisions.policy_evaluation import (
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
from bayes_mdp.mdp import AverageReward, Objective, PolicyOrLabels, StateActionSpace
from bayes_mdp.mdp.abilities import Sizes
from bayes_mdp.mdp.objectives import check_objective, step_discount
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning import evaluate
from bayes_mdp.planning.solve import propagate
from bayes_mdp.utils.typing import AnyArray, InitialLike
from bayes_mdp.utils.validation import check_key


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
        start: where `initial` is from, in words; "": not known.
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
    start: str = eqx.field(static=True, default="")

    def __str__(self) -> str:
        """A few lines for a person."""
        stated = "the given distribution" if self.initial_given else f"uniform over the {len(self.initial)} states"
        share = self.epistemic / self.total if self.total > 0 else 0.0
        return "\n".join(
            [
                f"Variance of the return, {describe_objective(self.objective)}, {self.num_draws} draws "
                f"(mean {self.mean:.6g})",
                f"  total {self.total:.6g} (Monte Carlo error {self.total_error:.2g})",
                f"  epistemic {self.epistemic:.6g} (+- {self.epistemic_error:.2g}), {share:.0%}: more data would "
                "remove it",
                f"  aleatoric {self.aleatoric:.6g} (+- {self.aleatoric_error:.2g}): transitions and rewards by chance",
                f"  start: {self.start or stated}",
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
    if isinstance(objective, AverageReward):
        raise ValueError("objective is AverageReward, expected Discounted, Episodic or FirstExit for a return")
    check_key("key", key)
    check_num_draws(num_draws)
    check_objective(objective)
    _require_noise(posterior)
    with jax.enable_x64(True):
        posterior64, objective64 = to_float64(posterior), to_float64(objective)
        # One key for each draw: any chunks give the same draws.
        keys = jax.random.split(key, num_draws)
        sizes = Sizes.of(posterior.space)
        start = read_start(sizes, initial, posterior.space)
        probs = read_action_probs("policy", policy, sizes, objective, posterior.space)
        # As many draws at once as fit into memory.
        chunks = in_chunks(keys, eqx.filter_eval_shape(draw_law, keys[0], posterior64))
        answers = over_chunks(lambda chunk: _split_draws(chunk, posterior64, probs, objective64, start.probs), chunks)
        values, chance, gaps, excess = (x.reshape(-1)[:num_draws] for x in answers)
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
    mean, noise = belief.reward_cells.sample_with_noise(key_rewards)
    return belief.transition_probs.sample(key_rows), mean, noise


@eqx.filter_jit
def _split_draws(
    keys: Keys,
    posterior: ConjugatePosterior | Mixture,
    policy: Float[Array, "*H S A"],
    objective: Objective,
    start: Float[AnyArray, " S"],
) -> tuple[Array, ...]:
    """V and Var(return) of every draw from the start, a bound on the error of V, and how far rows are off."""

    def one(key: PRNGKeyArray) -> tuple[Array, ...]:
        rows, mean, noise = draw_law(key, posterior)
        space = posterior.space
        # By outcome E[r | s, a] = sum_o p(o) r(o).
        by_outcome = mean.ndim == rows.ndim
        mdp = space.mdp(rows, (rows * mean).sum(-1) if by_outcome else mean)
        answer = evaluate(mdp, policy, objective)
        # Var(return | MDP) solves the recursion; then the chance of the first state is added.
        local = one_step_variance(rows, mean, noise, next_values(answer.v, space, objective))
        # discount^2 E[w'] of the same chain: `propagate` solves it.
        chance = propagate(mdp, local + choice_variance(answer.q, policy), policy, objective).v
        first, scatter = (x[0] if x.ndim == 2 else x for x in (answer.v, chance))
        value = matmul(first, start)
        # Law of total variance over the first state: mean of the scatter, and scatter of the means.
        return value, matmul(scatter, start) + matmul((first - value) ** 2, start), answer.gap, row_faults(mdp)[0][0]

    return jax.vmap(one)(keys)


def next_values(values: Float[Array, "*H S"], space: StateActionSpace, objective: Objective) -> Float[AnyArray, "..."]:
    """discount V of the outcomes of a step: of the step after it where values depend on the step, zero at an end."""
    discount = step_discount(objective)
    if values.ndim == 2:
        # Step h leads to states of step h + 1; after the last nothing comes.
        values = jnp.concatenate([values[1:], jnp.zeros_like(values[:1])])
    return discount * space.outcome_values(values)


def one_step_variance(
    rows: Float[Array, "*H S A O"],
    mean: Float[Array, "*cells"],
    noise: Float[Array, "*cells"],
    values: Float[AnyArray, "..."],
) -> Float[Array, "... S A"]:
    """Variance of reward + values(outcome) given the rows and the law of the rewards."""
    by_outcome = mean.ndim == rows.ndim
    target = values + (mean if by_outcome else 0.0)
    # Var over outcomes of reward + discount V.
    centred = target - (rows * target).sum(-1, keepdims=True)
    # The noise of a reward around its own mean adds to it.
    return (rows * centred**2).sum(-1) + ((rows * noise).sum(-1) if by_outcome else noise)


def choice_variance(q: Float[Array, "*#H S A"], policy: Float[Array, "*#H S A"]) -> Float[Array, "... S 1"]:
    """Variance of q over the actions of the policy; an illegal action (-inf) has probability zero."""
    # -inf times zero would be nan.
    safe = jnp.where(policy > 0, q, 0.0)
    centred = safe - (policy * safe).sum(-1, keepdims=True)
    return (policy * centred**2).sum(-1, keepdims=True)


def _require_noise(posterior: ConjugatePosterior | Mixture) -> None:
    """Refuse rewards whose expected variance is infinite."""
    # Infinite noise makes the aleatoric part infinite: refused with the pair.
    for k in range(posterior.num_components):
        posterior.component(k).expected_reward_variance()


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
