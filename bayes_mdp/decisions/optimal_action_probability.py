"""`probability_optimal`: how sure the posterior is of which action is optimal. Host-side."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.decisions.chunks import Keys, in_chunks, over_chunks, row_faults
from bayes_mdp.decisions.policy_evaluation import check_num_draws, describe_objective, require_endless, require_usable
from bayes_mdp.mdp import AverageReward, CanSample, Objective
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.labels import pair_axes
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.numerics.products import tensordot
from bayes_mdp.numerics.to_float64 import to_float64
from bayes_mdp.planning import solve
from bayes_mdp.planning.outline import outline
from bayes_mdp.planning.solve import check_problem
from bayes_mdp.utils.validation import check_key

if TYPE_CHECKING:
    import xarray as xr

TIE = 1e-12  # share of the largest value by which values may differ and still be equal but for rounding


def probability_optimal(
    key: PRNGKeyArray, posterior: CanSample, objective: Objective, *, num_draws: int = 2000
) -> "xr.DataArray":
    """The posterior probability that an action is optimal in a state: its share of `num_draws` draws.

    These are the action probabilities of Thompson sampling (PSRL) in each state. Actions whose values agree but for
    rounding share a draw equally; an illegal action has probability zero. Host-side: compiles itself, works in float64.

    Args:
        key: the draws; they are those of `policy_value` with this key.
        posterior: anything that can `sample`.
        objective: Discounted, Episodic, AverageReward or FirstExit.
        num_draws: number of draws, at least 2.

    Returns:
        dims `step` (`Episodic` only), `state`, `action`, labelled by the names of the posterior's space where it has
        one. Attributes: `num_draws`, `monte_carlo_error` (the largest standard error of an entry), `objective`.

    Raises:
        ValueError, TypeError: as `policy_value`, of the best policy of each draw.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> data = bm.Transitions([0] * 60, [0, 1] * 30, [0.0, 1.0] * 30, [0] * 60)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> optimal = bm.probability_optimal(jax.random.key(1), posterior, bm.Discounted(0.9), num_draws=100)
        >>> optimal.values.round(2).tolist()
        [[0.0, 1.0]]
    """
    import xarray as xr

    require_ability(posterior, CanSample, "probability_optimal")
    check_key("key", key)
    check_num_draws(num_draws)
    check_objective(objective)
    with jax.enable_x64(True):
        wide, aim = to_float64(posterior), to_float64(objective)
        keys = jax.random.split(key, num_draws)
        draw = eqx.filter_eval_shape(wide.sample, keys[0])
        check_problem(outline(keys[0], wide, draw.reward.shape), objective)
        chunks = in_chunks(keys, draw)
        weight = (np.arange(chunks.size) < num_draws).reshape(chunks.shape)
        parts = over_chunks(lambda keys, weight: _share(keys, weight, wide, aim), chunks, weight.astype(float))
        sums, squares, *checks = parts
        _require_solved([x.reshape(-1, x.shape[-1])[:num_draws] for x in checks], objective)
        mean, square = (x.sum(0) / num_draws for x in (sums, squares))
    error = float(np.sqrt(np.maximum(square - mean**2, 0.0) / (num_draws - 1)).max())
    attributes = {
        "num_draws": num_draws,
        "monte_carlo_error": error,
        "objective": describe_objective(objective),
    }
    dims, coords = pair_axes(mean.shape, getattr(posterior, "space", None))
    return xr.DataArray(mean, coords, dims, name="probability_optimal", attrs=attributes)


@eqx.filter_jit
def _share(keys: Keys, weight: Float[Array, " C"], posterior: CanSample, objective: Objective) -> tuple[Array, ...]:
    """Sums over the draws of a chunk of the shares and of their squares; then checks of every draw."""

    def one(key: PRNGKeyArray) -> tuple[Array, ...]:
        mdp = posterior.sample(key)
        solution = solve(mdp, objective)
        value = solution.gain if isinstance(objective, AverageReward) else jnp.min(solution.v)
        return shared_out(solution.q), value[None], solution.gap[None], *row_faults(mdp)

    shares, *checks = jax.vmap(one)(keys)
    return tensordot(weight, shares, axes=1), tensordot(weight, shares**2, axes=1), *checks


def shared_out(q: Float[Array, "*H S A"]) -> Float[Array, "*H S A"]:
    """One over the number of best actions for each of them, zero for the others; equal is what agrees but for rounding.

    Args:
        q: values, -inf where an action is illegal.
    """
    size = jnp.max(jnp.where(jnp.isfinite(q), jnp.abs(q), 0.0))
    best = q >= jnp.max(q, -1, keepdims=True) - TIE * size
    return best / best.sum(-1, keepdims=True)


def _require_solved(checks: list[np.ndarray], objective: Objective) -> None:
    values, gaps, excess, ends = checks
    if isinstance(objective, AverageReward):
        require_endless(ends)
    require_usable(values, gaps, excess, ["the best policy"], objective)
