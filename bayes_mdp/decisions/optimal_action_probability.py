"""`probability_optimal`: how sure the posterior is of which action is optimal. Host-side."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.decisions.choosing.common_draws import draws_of
from bayes_mdp.decisions.host_optima import TIE
from bayes_mdp.decisions.policy_evaluation import check_num_draws, describe_objective
from bayes_mdp.mdp import CanSample, Objective
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.labels import pair_axes
from bayes_mdp.mdp.objectives import check_fit
from bayes_mdp.mdp.sizes import sizes_of
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_key

if TYPE_CHECKING:
    import xarray as xr


def probability_optimal(
    key: PRNGKeyArray, posterior: CanSample, objective: Objective, *, num_draws: int = 2000
) -> "xr.DataArray":
    """The posterior probability that an action is optimal in a state: its share of `num_draws` draws.

    These are the action probabilities of Thompson sampling (PSRL) in each state. Actions whose values agree but for
    rounding share a draw equally; an illegal action has probability zero. On the host, in float64.

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
    sizes = sizes_of(posterior)
    check_fit(objective, sizes.shape)
    uniform = np.full(sizes.n_states, 1 / sizes.n_states)
    draws = draws_of(key, posterior, objective, num_draws, initial=uniform, keep=False)
    total, squares = np.zeros(draws.policy_shape), np.zeros(draws.policy_shape)
    for _, answer in draws.optima():
        shares = shared_out(answer.table(draws.rows, sizes.n_actions))
        total, squares = total + shares.sum(0), squares + (shares**2).sum(0)
    mean, square = total / num_draws, squares / num_draws
    error = float(np.sqrt(np.maximum(square - mean**2, 0.0) / (num_draws - 1)).max())
    attributes = {
        "num_draws": num_draws,
        "monte_carlo_error": error,
        "objective": describe_objective(objective),
    }
    dims, coords = pair_axes(mean.shape, getattr(posterior, "space", None))
    return xr.DataArray(mean, coords, dims, name="probability_optimal", attrs=attributes)


def shared_out(q: Float[AnyArray, "N *H S A"]) -> Float[AnyArray, "N *H S A"]:
    """One over the number of best actions for each of them, zero for the others; equal is what agrees but for rounding.

    Args:
        q: values of every draw, -inf where an action is illegal.
    """
    xp = q.__array_namespace__()
    size = xp.where(xp.isfinite(q), abs(q), 0.0).max(tuple(range(1, q.ndim)), keepdims=True)
    best = q >= q.max(-1, keepdims=True) - TIE * size
    return best / best.sum(-1, keepdims=True)
