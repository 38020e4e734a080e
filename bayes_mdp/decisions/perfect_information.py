"""How sure the posterior is of which action is optimal, and how much better one would do if the MDP were known.

`probability_optimal` and `expected_regret`, on the host.

Source: Howard (1966), *Information value theory*; for decisions in draws Brennan, Kharroubi, O'Hagan and Chilcott
(2007), *Calculating partial expected value of perfect information via Monte Carlo sampling algorithms*.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.decisions.behaviour import greedy
from bayes_mdp.decisions.choosing.common_draws import draws_of
from bayes_mdp.decisions.for_whom import (
    all_policies,
    groups_of,
    knowing,
    read_population,
    values_in_contexts,
)
from bayes_mdp.decisions.host_optima import TIE
from bayes_mdp.decisions.policy_evaluation import (
    PolicyValue,
    check_num_draws,
    describe_basis,
    describe_law,
    describe_objective,
    describe_start,
    describe_unit,
    policy_value,
    policy_values,
)
from bayes_mdp.inference.pair_draws import Worth, limit_draws
from bayes_mdp.inference.untried_rewards import UntriedRewards, untried_rewards
from bayes_mdp.mdp import CanMean, CanSample, HasVariances, Objective, PolicyOrLabels
from bayes_mdp.mdp.abilities import InContexts, can_split, require_ability, sizes_of
from bayes_mdp.mdp.labels import pair_axes
from bayes_mdp.mdp.objectives import check_fit
from bayes_mdp.mdp.validity import Validity
from bayes_mdp.planning.occupancy import find_cycle
from bayes_mdp.utils.layout import Section, as_html, as_text
from bayes_mdp.utils.typing import AnyArray, InitialLike
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
        >>> objective = bm.Discounted(0.9)
        >>> optimal = bm.information.probability_optimal(jax.random.key(1), posterior, objective, num_draws=100)
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
    posterior, num_draws = limit_draws(posterior, num_draws)
    # The start does not matter to which action is optimal; blocks are not kept.
    draws = draws_of(key, posterior, objective, num_draws, initial=uniform, keep=False)
    total, squares, best = np.zeros(draws.policy_shape), np.zeros(draws.policy_shape), np.empty(num_draws)
    for part, answer in draws.optima():
        best[part] = answer.values.at_start(objective, uniform)
        # Share of every action in the optimum of each draw, summed with squares for the error.
        shares = share_among_best(answer.table(draws.rows, sizes.n_actions))
        total, squares = total + shares.sum(0), squares + (shares**2).sum(0)
    mean, square = total / num_draws, squares / num_draws
    # The largest standard error over all pairs, of as many draws as their values are worth.
    worth = Worth.of(posterior, key).number(best)
    variance = np.maximum(square - mean**2, 0.0) * num_draws / (num_draws - 1)
    error = float(np.sqrt(variance / worth).max())
    attributes = {
        "num_draws": num_draws,
        "monte_carlo_error": error,
        "objective": describe_objective(objective),
    }
    dims, coords = pair_axes(mean.shape, getattr(posterior, "space", None))
    return xr.DataArray(mean, coords, dims, name="probability_optimal", attrs=attributes)


def share_among_best(q: Float[AnyArray, "N *H S A"]) -> Float[AnyArray, "N *H S A"]:
    """One over the number of best actions for each of them, zero for the others; equal is what agrees but for rounding.

    Args:
        q: values of every draw, -inf where an action is illegal.
    """
    xp = q.__array_namespace__()
    # Equal up to TIE of the largest value of the draw.
    size = xp.where(xp.isfinite(q), abs(q), 0.0).max(tuple(range(1, q.ndim)), keepdims=True)
    # Ties share the draw.
    best = q >= q.max(-1, keepdims=True) - TIE * size
    return best / best.sum(-1, keepdims=True)


NORMAL_95 = 1.959963984540054


class PerfectInformation(eqx.Module):
    """What knowing the MDP would add to the value of a policy; `print` shows it in words.

    Args:
        value: mean over the draws of V*(draw) - V^pi(draw), in units of the value (AverageReward: per step).
        standard_error: Monte Carlo error of `value`.
        interval: 95 % confidence interval of `value` (Monte Carlo).
        in_use: the value of the policy in use, in the same draws.
        value_with_information: mean over the draws of the value V*(draw).
        draws: Float64[num_draws], V*(draw) - V^pi(draw), values.
        gap: the largest bound on a draw's numerical error.
        validity: what `value` is of the expected value of perfect information, E max_pi V - max_pi E V.
        untried: the pairs that were never tried and whose mean reward, the prior's, lies above that of every pair that
            was (see `untried_rewards`); None: there are none, or it is not known.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    in_use: PolicyValue
    value_with_information: float
    draws: Float[np.ndarray, " num_draws"]
    gap: float
    validity: Validity
    untried: UntriedRewards | None = None

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """The value, its unit, and what it rests on."""
        low, high = self.interval
        title = f"Expected regret of the policy in use, {describe_objective(self.in_use.objective)}"
        parts = [
            f"{self.value:.6g} (Monte Carlo error {self.standard_error:.2g}, 95 % interval [{low:.6g}, {high:.6g}])",
            describe_unit(self.in_use.objective),
            f"policy in use {self.in_use.mean:.6g}, with perfect information {self.value_with_information:.6g}",
            str(self.validity),
            describe_start(self.in_use),
            *describe_basis(self.in_use.basis),
            *describe_law(self.in_use.basis),
        ]
        if self.untried is not None:
            parts.append(self.untried.warning("what it is worth to know of them is the prior's"))
        return Section(f"{title}, {len(self.draws)} draws", parts)


def expected_regret(
    key: PRNGKeyArray,
    posterior: CanSample,
    objective: Objective,
    *,
    policy: PolicyOrLabels | None = None,
    initial: InitialLike | None = None,
    num_draws: int = 2000,
) -> PerfectInformation:
    """How much better one would do, on average, if the MDP were known: the mean over draws of V* - V of a policy.

    It bounds the value of any experiment. With V^pi of a policy that maximises E V^pi (over policies that do not
    learn) it is exactly the expected value of perfect information; with another policy it is larger. The greedy policy
    of the mean MDP is such a policy where no row is unknown, or rows are independent and no unknown row can be met
    twice: then E V^pi is the value in the mean MDP for every policy. See `validity`.

    On the host, by NumPy, in float64.

    Args:
        key, objective, num_draws: as in `policy_value`, with the same draws.
        posterior: anything that can `sample`; without a `policy` also `mean_mdp`.
        policy: the policy in use, as in `policy_value`. None: `greedy(posterior, objective)`.
        initial: as in `policy_value`.

    Raises:
        ValueError, TypeError: as `policy_value` and `greedy`.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> loss = bm.information.expected_regret(jax.random.key(1), posterior, bm.Episodic(1))
        >>> bool(abs(loss.value - 1 / 6) < 0.03)  # the larger of two uniform numbers is 2/3 on average
        True
    """
    require_ability(posterior, CanSample, "expected_regret")
    believed: Any = posterior  # `greedy` itself checks for the mean
    chosen = greedy(believed, objective) if policy is None else policy
    # As many draws as the posterior holds.
    posterior, num_draws = limit_draws(posterior, num_draws)
    in_use = policy_value(key, posterior, chosen, objective, initial=initial, num_draws=num_draws)
    # The same draws for both values: the difference has far less Monte Carlo noise than either.
    best, gap = _optimal_values(key, posterior, objective, in_use.initial, num_draws)
    # Never negative: V* is the largest in every draw.
    draws = best - in_use.draws
    # Draws of chains, or by weights, count for their effective number.
    mean, error = float(draws.mean()), float(draws.std(ddof=1) / np.sqrt(Worth.of(posterior, key).number(draws)))
    interval = (mean - NORMAL_95 * error, mean + NORMAL_95 * error)
    # Whether V* - V^pi is the value of information or only bounds it.
    verdict = validity_of(posterior, policy is None)
    with_information, untried = float(best.mean()), untried_rewards(posterior)
    return PerfectInformation(
        mean, error, interval, in_use, with_information, draws, gap + in_use.gap, verdict, untried
    )


def _optimal_values(
    key: PRNGKeyArray, posterior: CanSample, objective: Objective, start: np.ndarray, num_draws: int
) -> tuple[Float[np.ndarray, " num_draws"], float]:
    """V*(draw) of the draws of `policy_value`, and the largest bound on its error."""
    draws = draws_of(key, posterior, objective, num_draws, initial=start, keep=False)
    values, gap = np.empty(num_draws), 0.0
    for part, answer in draws.optima():
        values[part], gap = answer.values.at_start(objective, start), max(gap, float(answer.values.gap.max()))
    return values, gap


def validity_of(posterior: CanSample, is_greedy: bool) -> Validity:
    """Whether the policy in use (`is_greedy`: for the mean MDP) is proven to maximise the posterior mean of V."""
    if not is_greedy:
        return Validity("upper bound", "it is measured from the policy given, which another fixed policy may beat")
    # Greedy for the mean MDP: proven best if no unknown row can be met twice.
    why = why_not_mean_mdp(posterior)
    if why is None:
        return Validity(
            "exact",
            "it is measured from the policy that is best in the mean MDP, whose value averaged over the draws is the "
            "largest of all fixed policies (but for Monte Carlo error)",
        )
    return Validity(
        "upper bound",
        "it is measured from the policy that is best in the mean MDP, whose value averaged over the draws need not be "
        f"the largest of all fixed policies: {why}",
    )


def why_not_mean_mdp(posterior: CanSample) -> str | None:
    """Why the mean value of a policy need not be its value in the mean MDP; None: it is, for every policy. Host side.

    Args:
        posterior: anything that can `sample`.
    """
    if can_split(posterior):
        return "rows of a mixture are not independent"
    if not (isinstance(posterior, HasVariances) and isinstance(posterior, CanMean)):
        return "the posterior has no closed-form variances"
    # E V^pi = V^pi of the mean MDP if no unknown row can be met twice and rows are independent.
    unknown = np.asarray(posterior.variance_factor("ratio")) > 0
    if not unknown.any():
        return None
    if not posterior.independent_rows:
        return "rows are not independent"
    mdp = posterior.mean_mdp()
    # With steps no state of a step is met again.
    if mdp.horizon is not None:
        return None
    # A cycle through an unknown row makes its factors dependent: E[p^2] is not E[p]^2.
    legal = np.ones(unknown.shape, bool) if mdp.legal is None else np.asarray(mdp.legal)
    cycle = find_cycle(mdp, legal.astype(float), unknown)
    if cycle is None:
        return None
    space = getattr(posterior, "space", None)
    names = range(mdp.n_states) if space is None else space.state_names
    path = " -> ".join(str(names[s]) for s in (*cycle, cycle[0]))
    return f"a process can come back to states whose transition probabilities are not known ({path})"


def value_of_covariates(
    key: PRNGKeyArray,
    posterior: InContexts,
    objective: Objective,
    *,
    by: str | Sequence[str] = "context",
    policies: Mapping[str, Any] | None = None,
    population: Any = None,
    initial: InitialLike | None = None,
    num_draws: int = 400,
) -> float:
    """What it is worth to know covariates of a subject, such as a test result, before a policy is chosen.

    The best policy for each pattern, less the best that is the same for all (see `bayes_mdp.decisions.knowing`): an
    upper bound where covariates show in the course of things.

    Args:
        key: of the draws.
        posterior: in contexts (see `infer`).
        objective: of the values.
        by: the covariates that become known; "context": all of them.
        policies: name -> policy that may be chosen; None: all deterministic ones, of few states.
        population: as in `policy_value`: who is meant.
        initial: distribution of the first state, as in `policy_value`.
        num_draws: number of draws.

    Raises:
        ValueError, TypeError: as `policy_value`; more than 4,096 deterministic policies.

    Example:
        >>> import pandas as pd
        >>> rows = {"s": "a", "a": ["x", "y"] * 20, "t": "a", "sex": ["f"] * 20 + ["m"] * 20, "id": range(40)}
        >>> rows["r"] = [0.0, 1.0] * 10 + [1.0, 0.0] * 10  # y is better for one half, x for the other
        >>> columns = {"state": "s", "action": "a", "next_state": "t", "reward": "r"}
        >>> log = bm.read_log(pd.DataFrame(rows), **columns, subject="id", covariates=["sex"])
        >>> space = bm.StateActionSpace.from_log(log)
        >>> posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), log, space=space)
        >>> 0.3 < bm.information.value_of_covariates(jax.random.key(1), posterior, bm.Episodic(1)) < 0.5
        True
    """
    weights = read_population(posterior, population)
    weighted = weights.posterior
    named = policies
    if named is None:
        # Few deterministic policies can all be tried; otherwise they are given by name.
        listed = all_policies(weighted.space.n_states, weighted.space.n_actions)
        named = {str(i): policy for i, policy in enumerate(listed)}
    by_context = values_in_contexts(policy_values, key, weighted, named, objective, initial, num_draws)
    # Table of means [policy, context].
    table = np.array([[value[name].mean for value in by_context] for name in named])
    _, group, patterns = groups_of(weighted.contexts, by)
    # A pattern is a test result that tells the context's group with certainty.
    results = (group == np.arange(len(patterns))[:, None]).astype(float)
    return knowing(table, weights.shares, results)
