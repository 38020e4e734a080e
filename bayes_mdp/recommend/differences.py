"""Where a chosen policy differs from today's practice, what each difference is worth, and what its value hangs on."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bayes_mdp.calibration.belief.posterior_views import FittedPosterior
from bayes_mdp.decisions.host_optima import action_values, pair_time, policy_mean
from bayes_mdp.decisions.policy_evaluation import read_action_probs
from bayes_mdp.inference.pair_draws import pairs_of_mdp
from bayes_mdp.mdp import AverageReward, Episodic, HasVariances, Objective, PolicyLike
from bayes_mdp.mdp.objectives import step_discount
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.utils.typing import ArrayLike

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 10
SAME = 1e-6  # difference of action probabilities that is rounding: those of a log are in float32


def differences(
    posterior: FittedPosterior, chosen: PolicyLike, baseline: PolicyLike, objective: Objective, start: ArrayLike
) -> "pd.DataFrame":
    """A row for each state in which the policies differ, the most valuable first.

    Columns: `state`; `today`, the baseline's likeliest action, and `today_prob`; `chosen`, the other's likeliest
    action; `next`, the next best one (None: no other is legal), and `lead`; `time`, the part of the chosen policy's
    time that it spends there; `count`, transitions of the posterior from that state with the chosen action; `gain`,
    what the difference adds to the value. All values are those of the mean MDP. Gains add up to the difference of the
    policies' values there (Kakade and Langford 2002, lemma 6.1), in the average reward to that of the gains; steps of
    `Episodic` are added. The lead is the value of one step of the chosen action less that of one step of the next best,
    following the chosen policy afterwards; near zero: a near tie; negative: this posterior prefers the other. Leads of
    `Episodic` are means over its steps, by the time that the chosen policy spends there.

    Args:
        posterior: that judges.
        chosen, baseline: policies.
        objective, start: of the values.
    """
    import pandas as pd

    space = posterior.space
    time, gain, both, q = _in_mean(posterior, chosen, baseline, objective, start)
    first, other = both
    counts = np.asarray(posterior.visit_counts())
    # Of steps any: means over them may be the same.
    different = np.abs(first - other).max(-1) > SAME
    weights = np.maximum(time, 1e-300)
    # Steps are added: the likeliest actions are those over all of the time.
    mean = lambda probs: (probs * weights[..., None]).sum(0) / weights.sum(0)[:, None]  # noqa: E731
    stacked = time.ndim == 2
    first, other, q = (mean(x) if stacked else x for x in (first, other, q))
    gain, time = (x.sum(0) if stacked else x for x in (gain, time))
    counts = counts.sum(0) if counts.ndim == 3 else counts
    apart = np.flatnonzero(different.any(0) if stacked else different)
    apart = apart[np.argsort(-np.abs(gain[apart]), kind="stable")]
    new, old = first.argmax(-1), other.argmax(-1)
    # Of the other actions the best one; what is illegal has no value.
    rest = np.where(np.arange(q.shape[-1]) == new[:, None], -np.inf, q)
    following = rest.argmax(-1)
    alone = np.isneginf(rest.max(-1))
    return pd.DataFrame(
        {
            "state": [space.state_names[s] for s in apart],
            "today": [space.action_names[old[s]] for s in apart],
            "today_prob": other[apart, old[apart]],
            "chosen": [space.action_names[new[s]] for s in apart],
            "next": [None if alone[s] else space.action_names[following[s]] for s in apart],
            "lead": [np.nan if alone[s] else q[s, new[s]] - q[s, following[s]] for s in apart],
            "time": time[apart] / max(time.sum(), 1e-300),
            "count": counts[apart, new[apart]],
            "gain": gain[apart],
        }
    )


def _in_mean(
    posterior: FittedPosterior, chosen: PolicyLike, baseline: PolicyLike, objective: Objective, start: ArrayLike
) -> tuple[
    Float[np.ndarray, "*H S"], Float[np.ndarray, "*H S"], Float[np.ndarray, "2 *H S A"], Float[np.ndarray, "*H S A"]
]:
    """Time of the chosen policy, what its differences add, both policies, and the chosen one's values of actions."""
    mdp, first = posterior.mean_mdp(), np.asarray(start, np.float64)
    with jax.enable_x64(True):
        named = (("chosen", chosen), ("baseline", baseline))
        both = [np.asarray(read_action_probs(name, policy, mdp, objective), np.float64) for name, policy in named]
    if isinstance(objective, Episodic):
        both = [np.broadcast_to(x, (objective.horizon, *x.shape[-2:])) for x in both]
    rows, drawn = pairs_of_mdp(mdp)
    time = pair_time(rows, drawn, both[0], objective, first).sum(-1)
    q = np.nan_to_num(action_values(rows, drawn, both[1], objective), posinf=0.0, neginf=0.0)
    after = action_values(rows, drawn, both[0], objective)
    gain = time * np.sum((both[0] - both[1]) * q, -1)
    return time, gain, np.stack(both), np.where(np.isnan(after), -np.inf, after)


def variance_shares(
    posterior: FittedPosterior, chosen: PolicyLike, objective: Objective, start: ArrayLike
) -> "pd.DataFrame | None":
    """The pairs that the value of the chosen policy is most uncertain about: `state`, `action`, `count`, `share`.

    What data of a pair are worth for the decision is another question: `next_experiment` answers it.

    `share` is the pair's part of the first-order variance of the value, time^2 times the variance of its row's
    expectation (exact for rows met at most once). None: the posterior has dependent rows, or no variances; rows for
    every step; the objective is `AverageReward`.

    Args:
        posterior: that judges.
        chosen: the policy.
        objective, start: of the value.
    """
    import pandas as pd

    if isinstance(objective, AverageReward | Episodic) or posterior.space.horizon is not None:
        return None
    if not isinstance(posterior, HasVariances) or not posterior.independent_rows:
        return None
    first = np.asarray(start, np.float64)
    with jax.enable_x64(True):
        believed = to_float64(posterior)
        mdp = believed.mean_mdp()
        probs = np.asarray(read_action_probs("chosen", chosen, mdp, objective), np.float64)
        rows, drawn = pairs_of_mdp(mdp)
        values = policy_mean(probs, action_values(rows, drawn, probs, objective))
        spread = np.asarray(believed.bellman_variance(jnp.asarray(values), float(step_discount(objective))))
    time = pair_time(rows, drawn, probs, objective, first)
    part = np.where(time > 0, time**2 * spread, 0.0)
    if not np.isfinite(part).all() or part.sum() <= 0:
        return None
    order = np.argsort(-part, axis=None, kind="stable")[:SHOWN]
    pairs = [np.unravel_index(i, part.shape) for i in order if part.flat[i] > 0]
    counts, space = np.asarray(posterior.visit_counts()), posterior.space
    return pd.DataFrame(
        {
            "state": [space.state_names[s] for s, _ in pairs],
            "action": [space.action_names[a] for _, a in pairs],
            "count": [counts[pair] for pair in pairs],
            "share": [float(part[pair] / part.sum()) for pair in pairs],
        }
    )
