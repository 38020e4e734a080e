"""Sensitivity of conclusions to the prior and to the data, by power-scaling each of them. Host-side.

Raising the prior (or the likelihood) to a power alpha near 1 multiplies the weight of each draw by its density to the
power alpha - 1; these weights are Pareto-smoothed. The sensitivity of a quantity is the rate, per doubling of alpha, at
which its distribution changes (cumulative Jensen-Shannon distance). Kallioinen, Paananen, Bürkner and Vehtari (2023),
*Detecting and diagnosing prior and likelihood sensitivity with power-scaling*; the threshold .05 is theirs.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.calibration.arviz.generation import arviz, generation, smooth_weights
from bayes_mdp.calibration.belief import replicates as predictive
from bayes_mdp.calibration.belief.draws import Draws, check_draws, check_posterior, draw, key_or_first
from bayes_mdp.calibration.belief.observed_data import Data, observe
from bayes_mdp.calibration.belief.program_run import log_prior_of
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.mdp import MDP, SparseMDP, StateActionSpace
from bayes_mdp.mdp.objectives import AverageReward, Objective, check_objective
from bayes_mdp.planning import solve
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.layout import Part, Section, Table, as_html, as_text
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.validation import check_functions

ALPHAS = (0.99, 1.01)
THRESHOLD = 0.05
NUM_NULL = 40
SHOWN = 12
ON_PRIOR, IN_CONFLICT = "rests on the prior", "prior and data may disagree"
VERDICTS = {
    (False, False): "moves with neither",
    (False, True): "rests on the data",
    (True, False): ON_PRIOR,
    (True, True): IN_CONFLICT,
}
"""Whether the prior matters, and the likelihood -> the verdict."""
NEXT_STEPS = {
    ON_PRIOR: "more data of these quantities, or a prior that you would defend: compare several by bayes_factors",
    IN_CONFLICT: "see whether the prior allows what data say (predictive_check(group='prior')), and widen it if not",
}
"""Verdict -> what to try."""
Quantity = Callable[[MDP], Array]


class PriorSensitivity(NamedTuple):
    """Result of `prior_sensitivity`; print it.

    Args:
        table: a row for each number: `quantity`, `prior` and `likelihood` (sensitivities), `verdict`.
        scaled: names of the parameters without latent parents, whose prior was scaled.
        thresholds: of `prior` and of `likelihood`, below which they cannot be distinguished from zero: .05, or the 95 %
            quantile of pure noise with this number of draws.
        num_draws: of the posterior.
    """

    table: pd.DataFrame
    scaled: tuple[str, ...]
    thresholds: tuple[float, float]
    num_draws: int

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """The quantities that depend most on the prior, and how many there are of each verdict."""
        # Those that rest on the prior most come first.
        shown = self.table.sort_values("prior", ascending=False).head(SHOWN)
        rows = [
            (str(name), f"{prior:.2f}", f"{likelihood:.2f}", str(verdict))
            for name, prior, likelihood, verdict in shown.to_numpy()
        ]
        parts: list[Part] = [Table(("quantity", "prior", "likelihood", "verdict"), rows, (0, 3))]
        parts += [f"and {len(self.table) - SHOWN} more"] if len(self.table) > SHOWN else []
        counted = self.table["verdict"].value_counts()
        parts.append("; ".join(f"{number} {verdict}" for verdict, number in counted.items()) + ".")
        parts += [
            f"{verdict}, what to try: {step} {see('how-to/check-a-posterior')}"
            for verdict, step in NEXT_STEPS.items()
            if verdict in counted
        ]
        if max(self.thresholds) > THRESHOLD:
            chance = "{:.2f} and {:.2f}".format(*self.thresholds)
            parts.append(
                f"Sensitivities below {chance} cannot be distinguished from chance; "
                "more draws (num_draws=) show smaller ones."
            )
        scaled = ", ".join(self.scaled)
        return Section(f"Power-scaling sensitivity: {self.num_draws} draws, prior of {scaled}", parts)


def prior_sensitivity(
    posterior: Fitted,
    data: Data = None,
    *,
    objective: Objective | None = None,
    quantities: Mapping[str, Quantity] | None = None,
    num_draws: int = 1000,
    key: PRNGKeyArray | None = None,
) -> PriorSensitivity:
    """How much conclusions would change with a slightly stronger or weaker prior, and with more or less data.

    The prior that is scaled is that of all parameters without latent parents: the rows and rewards of an exact
    posterior, the top of a hierarchy. Verdicts, by the sensitivities that exceed their thresholds: "rests on the data"
    (likelihood only), "rests on the prior" (prior only), "prior and data may disagree" (both), "moves with neither". A
    flat prior (a Dirichlet of ones) does not change with the power, so no quantity is sensitive to it.

    Args:
        posterior: as `infer` returns it.
        data: as for `to_arviz`; needed if the posterior's own sums are not those of each pair.
        objective: if given, optimal values and Q (and the gain) are examined, beside the latent sites.
        quantities: name -> function of one drawn `MDP` (traceable), examined as well. Without these and without an
            objective: the transition probabilities and the mean rewards.
        num_draws: number of draws, at most; the thresholds of the verdicts fall with it.
        key: of the draws; None: `jax.random.key(0)`.

    Raises:
        ValueError: as `to_arviz`; a posterior that was loaded; a mixture of given ones; no draws.
        TypeError: as `to_arviz`; a posterior of partial pooling.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(1.0, 2.0, 2.0), bm.StateActionSpace(1, 1)
        >>> data = bm.Transitions([0] * 20, [0] * 20, [0.0, 1.0] * 10, [0] * 20)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> print(bm.calibration.prior_sensitivity(posterior, data))
        Power-scaling sensitivity: 1000 draws, prior of reward
        ...
    """
    check_posterior(posterior, num_draws)
    if not posterior.keeps_density:
        raise TypeError(
            f"posterior is a {type(posterior).__name__}, which keeps no prior density of its draws, expected one of "
            "another route"
        )
    check_functions("quantities", quantities)
    if objective is not None:
        check_objective(objective)
    # Draws and thresholds have keys of their own.
    key_draws, key_null = jax.random.split(key_or_first(key))
    rows, cells = observe(posterior.reference, data)
    table = float(np.prod((*posterior.space.shape, posterior.space.n_outcomes)))
    # Sorting needs ranks of every quantity, under each of two powers of each of two densities.
    check_draws(posterior, num_draws, 0 if rows is None else rows.outcome.size, 8 * 4 * table)
    draws = draw(key_draws, posterior, num_draws)
    terms = log_prior_of(posterior, draws)
    if rows is None:
        likelihood = predictive.log_likelihood_cells(draws, cells).sum(1)
    else:
        likelihood = predictive.log_likelihood_rows(draws, rows).sum(1)
    # Log prior of the top of the hierarchy, and log likelihood, each [N].
    densities = (np.sum(list(terms.values()), axis=0), likelihood)
    looked = _quantities(draws, posterior.site_draws, posterior.space, objective, quantities)
    names = [label for name, x in looked.items() for label in _labels(name, x.shape[1:], posterior.space)]
    values = np.concatenate([x.reshape(len(x), -1) for x in looked.values()], axis=1)
    # Every element of every quantity is a column.
    chains = draws.run.markov_chains
    sensitivities = [sensitivity(values, density, chains) for density in densities]
    # The thresholds: sensitivities of pure noise, which depends on neither density.
    null = host_generator(key_null).standard_normal((len(values), NUM_NULL))
    chance = [float(np.quantile(sensitivity(null, density, chains), 0.95)) for density in densities]
    thresholds = max(THRESHOLD, chance[0]), max(THRESHOLD, chance[1])
    return PriorSensitivity(_table(names, sensitivities, thresholds), tuple(terms), thresholds, len(values))


def sensitivity(
    values: Float[np.ndarray, "N M"], log_density: Float[np.ndarray, " N"], num_chains: int = 1
) -> Float[np.ndarray, " M"]:
    """Sensitivity of each of M quantities to power-scaling a density of the model; nan where it is constant.

    The mean over alpha = .99 and 1.01 of the cumulative Jensen-Shannon distance, over |log2 alpha| (Kallioinen et al.
    2023, equations 6 to 9).

    Args:
        values: draws, chain by chain.
        log_density: of each draw, up to a constant: the density that is scaled.
        num_chains: number of chains in the N draws.
    """
    # Of a constant no distribution changes.
    varies = np.ptp(values, axis=0) > 0
    sensitivities = np.full(values.shape[1], np.nan)
    if varies.any():
        method = _by_arviz if generation() >= 1 else by_formula
        sensitivities[varies] = method(values[:, varies], log_density, num_chains)
    return sensitivities


def _by_arviz(values: np.ndarray, log_density: np.ndarray, num_chains: int) -> Float[np.ndarray, " M"]:
    dims = ("chain", "draw")
    posterior = xr.Dataset({"x": ((*dims, "item"), values.reshape(num_chains, -1, values.shape[1]))})
    prior = xr.Dataset({"density": (dims, log_density.reshape(num_chains, -1))})
    tree = xr.DataTree.from_dict({"/posterior": posterior, "/log_prior": prior})
    return np.asarray(arviz().psense(tree, group="prior", alphas=ALPHAS)["x"])


def by_formula(values: np.ndarray, log_density: np.ndarray, num_chains: int = 1) -> Float[np.ndarray, " M"]:
    """As `sensitivity`, without ArviZ 1.x: by the published formulas."""
    del num_chains
    rates = []
    for alpha in ALPHAS:
        # One power above and one below 1: the mean of both is a central difference.
        # Importance weights p(theta)^(alpha - 1); the distance is not symmetric in the sign of the quantity.
        weights = np.exp(smooth_weights((alpha - 1.0) * log_density)[0])
        distance = np.maximum(_distance(values, weights), _distance(-values, weights))
        rates.append(distance / abs(np.log2(alpha)))
    return np.mean(rates, axis=0)


def _distance(values: Float[np.ndarray, "N M"], weights: Float[np.ndarray, " N"]) -> Float[np.ndarray, " M"]:
    """Cumulative Jensen-Shannon distance, 0 to 1, between equally weighted draws and the same draws by weight.

    With the ECDFs P and Q and their mean M, it is the root of the integral of P log2(P / M) + Q log2(Q / M), over its
    upper bound, the integral of P + Q. Both ECDFs are steps between the sorted draws.
    """
    # Integrals of step functions between sorted draws: sums of heights times widths.
    order = np.argsort(values, axis=0)
    width = np.diff(np.take_along_axis(values, order, 0), axis=0)
    number = len(values)
    plain = np.broadcast_to(np.linspace(1 / number, 1 - 1 / number, number - 1)[:, None], width.shape)
    weighted = np.cumsum((weights / weights.sum())[order], axis=0)[:-1]
    # The mixture M = (P + Q) / 2.
    middle = 0.5 * (plain + weighted)
    divergence = sum((width * _log_ratio(p, middle)).sum(0) for p in (plain, weighted))
    bound = (width * plain).sum(0) + (width * weighted).sum(0)
    return np.sqrt(np.maximum(divergence, 0.0) / bound)


def _log_ratio(p: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """p log2(p / middle), zero where p is zero."""
    # Where p is zero, so is p log p; the ratio there does not matter.
    ratio = np.divide(p, middle, out=np.ones_like(middle), where=p > 0)
    return p * np.log2(ratio)


def _table(names: list[str], both: list[np.ndarray], thresholds: tuple[float, float]) -> pd.DataFrame:
    table = pd.DataFrame({"quantity": names, "prior": both[0], "likelihood": both[1]})
    # Constant quantities are left out.
    table = pd.DataFrame(table[np.isfinite(both[0]) & np.isfinite(both[1])].reset_index(drop=True))
    # Both, either or none exceed their thresholds.
    exceeds = zip(table["prior"] >= thresholds[0], table["likelihood"] >= thresholds[1], strict=True)
    table["verdict"] = [VERDICTS[bool(prior), bool(likelihood)] for prior, likelihood in exceeds]
    return table


def _quantities(
    draws: Draws,
    sites: Collection[str],
    space: StateActionSpace,
    objective: Objective | None,
    asked: Mapping[str, Quantity] | None,
) -> dict[str, Float[np.ndarray, "N ..."]]:
    # The conjugate sites of a closed form are the elements of its rows and rewards.
    values_by_name = {name: np.asarray(draws.run.sites[name], np.float64) for name in sites}
    if objective is None and asked is None:
        values_by_name["transition_probs"] = draws.transition_probs.astype(np.float64)
        return values_by_name | (
            {"reward_mean": draws.rewards.mean} if "reward_mean" in draws.rewards.variables() else {}
        )
    # A plan is made once for all of its numbers.
    functions: dict[str, Callable[[MDP], Array | dict[str, Array]]] = dict(asked or {})
    if objective is not None:
        functions = {"": lambda mdp: _plan(mdp, objective), **functions}
    mdps = _mdps(draws, space)
    for name, function in functions.items():
        answer = jax.jit(jax.vmap(function))(mdps)
        values_by_name |= answer if name == "" else {name: answer}
    return {name: np.asarray(x, np.float64) for name, x in values_by_name.items()}


def _plan(mdp: MDP, objective: Objective) -> dict[str, Array]:
    solution = solve(mdp, objective)
    named = {"value": solution.v, "q": solution.q}
    return {**named, "gain": solution.gain} if isinstance(objective, AverageReward) else named


def _mdps(draws: Draws, space: StateActionSpace) -> MDP | SparseMDP:
    probs, reward = draws.transition_probs, draws.rewards.mean
    if draws.rewards.by_outcome:
        reward = (probs * reward).sum(-1)
    reward = np.broadcast_to(reward, probs.shape[:-1])
    return jax.vmap(space.mdp)(probs, reward)


def _labels(name: str, shape: tuple[int, ...], space: StateActionSpace) -> list[str]:
    """name[state, action, ...] where the shape is that of the space, else name[index]."""
    pair = [*([range(space.horizon)] if space.horizon is not None else []), space.state_names, space.action_names]
    known = {tuple(map(len, axes)): axes for axes in (pair[:-1], pair, [*pair, space.outcome_names])}
    axes = known.get(shape, [range(size) for size in shape])
    indices = np.ndindex(shape)
    return [
        name + (f"[{', '.join(str(axis[i]) for axis, i in zip(axes, index, strict=True))}]" if index else "")
        for index in indices
    ]
