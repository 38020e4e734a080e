"""What depends on the prior, what on the data: sensitivity to power-scaling each of them. Host-side.

The prior (or the likelihood) raised to a power alpha near 1 weighs the draws by its density to the power alpha - 1,
Pareto-smoothed. The sensitivity of a quantity is the rate, per doubling of alpha, at which its distribution moves away
(cumulative Jensen-Shannon distance). Kallioinen, Paananen, Bürkner and Vehtari (2023), *Detecting and diagnosing prior
and likelihood sensitivity with power-scaling*; the threshold .05 is theirs.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.calibration import predictive
from bayes_mdp.calibration.beliefs import check_posterior, key_or_first
from bayes_mdp.calibration.draws import Draws, check_draws, draw, generator, reference
from bayes_mdp.calibration.observed import Data, observe
from bayes_mdp.calibration.power import sensitivity
from bayes_mdp.calibration.priors import log_prior_of
from bayes_mdp.mdp import MDP, StateActionSpace
from bayes_mdp.mdp.objectives import AverageReward, Objective, check_objective
from bayes_mdp.mdp.validation import check_functions
from bayes_mdp.planning import solve

if TYPE_CHECKING:
    import pandas as pd

THRESHOLD = 0.05
NUM_NULL = 40
SHOWN = 12
Quantity = Callable[[MDP], Any]


class PriorSensitivity(NamedTuple):
    """What `prior_sensitivity` found; print it.

    Args:
        table: a row for each number: `quantity`, `prior` and `likelihood` (sensitivities), `verdict`.
        scaled: what the prior that was scaled is about: sites, or leaves, without latent parents.
        thresholds: of `prior` and of `likelihood`, below which they are not told from zero: .05, or what chance yields
            with so many draws.
        num_draws: of the posterior.
    """

    table: "pd.DataFrame"
    scaled: tuple[str, ...]
    thresholds: tuple[float, float]
    num_draws: int

    def __str__(self) -> str:
        """In words: the quantities that depend on the prior most, and how many of each kind there are."""
        head = f"Power-scaling sensitivity: {self.num_draws} draws, prior of {', '.join(self.scaled)}"
        shown = self.table.sort_values("prior", ascending=False).head(SHOWN)
        width = max(len("quantity"), *map(len, shown["quantity"]))
        lines = [head, f"  {'quantity':<{width}}  prior  likelihood"]
        for name, prior, likelihood, verdict in shown.to_numpy():
            lines.append(f"  {name:<{width}}  {prior:5.2f}  {likelihood:10.2f}  {verdict}")
        lines += [f"  and {len(self.table) - SHOWN} more"] if len(self.table) > SHOWN else []
        counted = self.table["verdict"].value_counts()
        lines.append("; ".join(f"{number} {verdict}" for verdict, number in counted.items()) + ".")
        if max(self.thresholds) > THRESHOLD:
            chance = "{:.2f} and {:.2f}".format(*self.thresholds)
            lines.append(
                f"Told from chance are sensitivities above {chance}; more draws (num_draws=) show smaller ones."
            )
        return "\n".join(lines)


def prior_sensitivity(
    posterior: Any,
    data: Data = None,
    *,
    objective: Objective | None = None,
    quantities: Mapping[str, Quantity] | None = None,
    num_draws: int = 1000,
    key: PRNGKeyArray | None = None,
) -> PriorSensitivity:
    """How much conclusions would change with a slightly stronger or weaker prior, and with more or less data.

    Scaled is the prior of what has no latent parents: all rows and rewards of an exact posterior, the top of a
    hierarchy. Verdicts, by which sensitivities exceed the threshold: "rests on the data" (likelihood only), "rests on
    the prior" (prior only), "prior and data may disagree" (both), "moves with neither". A flat prior (a Dirichlet of
    ones) stays what it is at every power: nothing is said to rest on it.

    Args:
        posterior: as `infer` returns it.
        data: as for `to_arviz`; needed where the posterior's own sums do not tell.
        objective: look at optimal values and Q (and the gain) under it, beside the latent sites.
        quantities: name -> function of one drawn `MDP` (traceable) to look at as well. None and no objective: the
            transition probabilities and the mean rewards.
        num_draws: at most so many draws; the thresholds of the verdicts fall with their number.
        key: None: `jax.random.key(0)`.

    Raises:
        ValueError: as `to_arviz`; a posterior that was loaded; no draws.
        TypeError: as `to_arviz`; a mixture.
    """
    check_posterior(posterior, num_draws)
    check_functions("quantities", quantities)
    if objective is not None:
        check_objective(objective)
    key_draws, key_null = jax.random.split(key_or_first(key))
    rows, cells = observe(reference(posterior), data)
    table = float(np.prod((*posterior.space.shape, posterior.space.n_outcomes)))
    # Ranks of every quantity, under every power.
    check_draws(posterior, num_draws, 0 if rows is None else rows.outcome.size, 8 * 4 * table)
    draws = draw(key_draws, posterior, num_draws)
    terms = log_prior_of(posterior, draws)
    if rows is None:
        likelihood = predictive.log_likelihood_cells(draws, cells).sum(1)
    else:
        likelihood = predictive.log_likelihood_rows(draws, rows).sum(1)
    densities = (np.sum(list(terms.values()), axis=0), likelihood)
    looked = _quantities(draws, posterior.space, objective, quantities)
    names = [label for name, x in looked.items() for label in _labels(name, x.shape[1:], posterior.space)]
    values = np.concatenate([x.reshape(len(x), -1) for x in looked.values()], axis=1)
    chains = draws.run.num_chains
    both = [sensitivity(values, density, chains) for density in densities]
    null = generator(key_null).standard_normal((len(values), NUM_NULL))
    chance = [float(np.quantile(sensitivity(null, density, chains), 0.95)) for density in densities]
    thresholds = max(THRESHOLD, chance[0]), max(THRESHOLD, chance[1])
    return PriorSensitivity(_table(names, both, thresholds), tuple(terms), thresholds, len(values))


def _table(names: list[str], both: list[np.ndarray], thresholds: tuple[float, float]) -> "pd.DataFrame":
    import pandas as pd

    table: Any = pd.DataFrame({"quantity": names, "prior": both[0], "likelihood": both[1]})
    # What does not vary is no quantity to ask about.
    table = table[np.isfinite(both[0]) & np.isfinite(both[1])].reset_index(drop=True)
    verdicts = {
        (False, False): "moves with neither",
        (False, True): "rests on the data",
        (True, False): "rests on the prior",
        (True, True): "prior and data may disagree",
    }
    above = zip(table["prior"] >= thresholds[0], table["likelihood"] >= thresholds[1], strict=True)
    table["verdict"] = [verdicts[bool(prior), bool(likelihood)] for prior, likelihood in above]
    return table


def _quantities(
    draws: Draws, space: StateActionSpace, objective: Objective | None, asked: Mapping[str, Quantity] | None
) -> dict[str, Float[np.ndarray, "N ..."]]:
    found = {name: np.asarray(x, np.float64) for name, x in draws.run.sites.items()}
    if objective is None and asked is None:
        found["transition_probs"] = draws.transition_probs.astype(np.float64)
        if draws.names:
            found["reward_mean"] = draws.parameters[0]
        return found
    functions: dict[str, Quantity] = dict(asked or {})
    if objective is not None:
        functions = {"": lambda mdp: _planned(mdp, objective), **functions}
    mdps = _mdps(draws, space)
    for name, function in functions.items():
        answer = jax.jit(jax.vmap(function))(mdps)
        found |= answer if name == "" else {name: answer}
    return {name: np.asarray(x, np.float64) for name, x in found.items()}


def _planned(mdp: MDP, objective: Objective) -> dict[str, Any]:
    solution = solve(mdp, objective)
    named = {"value": solution.v, "q": solution.q}
    return {**named, "gain": solution.gain} if isinstance(objective, AverageReward) else named


def _mdps(draws: Draws, space: StateActionSpace) -> MDP:
    probs, reward = draws.transition_probs, draws.parameters[0]
    if draws.by_outcome:
        reward = (probs * reward).sum(-1)
    reward = np.broadcast_to(reward, probs.shape[:-1])
    ends = probs[..., -1] if space.ends else None
    mdps = MDP(probs[..., : space.n_states], reward, end_probs=ends)
    if space.legal is None:
        return mdps
    legal = np.broadcast_to(space.legal, (len(probs), *np.shape(space.legal)))
    return MDP(mdps.transition_probs, mdps.reward, end_probs=ends, legal=legal)


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
