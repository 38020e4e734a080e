"""The certificate: Bayes' theorem, checked at random points on the conditioned model that NUTS would get.

For the exact posterior q, log joint(x, data) - log q(x) is the same number at every x, and it is the log evidence. The
joint density is NumPyro's, of `bayes_mdp.models.joint`; q is written out here from the tables alone; the evidence is
the closed form's. All three agree only if the tables are right: a bent density, a factor, a wrong tie show.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy.special import gammaln

from bayes_mdp.inference.detect import Detected
from bayes_mdp.inference.families import BetaBelief, GammaBelief, NormalBelief, NormalGammaBelief
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.refit import refit
from bayes_mdp.inference.refusals import NotConjugate
from bayes_mdp.inference.rewards import KnownRewards
from bayes_mdp.inference.selection import rounding
from bayes_mdp.inference.trace import Program
from bayes_mdp.mdp import Transitions
from bayes_mdp.models import joint

NUM_POINTS = 2
MANY = 2**17
TOLERANCE = 1e-9


def certify(
    program: Program,
    detected: Detected,
    rng: np.random.Generator,
    *,
    marginal: Callable[[ConjugatePosterior], float] | None = None,
) -> None:
    """Prove `detected` on invented transitions to the possible outcomes of all legal pairs. Host side, float64.

    Args:
        program: the program, the parents of its leaves held.
        detected: its closed form.
        rng: draws points and transitions.
        marginal: posterior -> log p(held sites, data) that is to be proven; None: the log evidence (nothing is held).

    Raises:
        NotConjugate: the closed form is not the posterior of the program.
    """
    transitions = invent(detected, rng)
    posterior = refit(detected.posterior, transitions)
    constants = log_evidences(program, detected, posterior, transitions, rng)
    expected = posterior.log_evidence if marginal is None else marginal(posterior)
    slack = _tolerance(program, detected) * (1.0 + np.abs(expected) + np.abs(constants).max())
    if not np.all(np.abs(constants - expected) <= slack):
        names = ", ".join(repr(site.name) for site in program.latents)
        raise NotConjugate(
            f"prior: its density is not that of conjugate leaves ({names}): log joint - log posterior is "
            f"{constants.min():.12g} to {constants.max():.12g} at random points, expected {expected:.12g} at all; "
            "a handler or a distribution of the program changes the density"
        )


def log_evidences(
    program: Program,
    detected: Detected,
    posterior: ConjugatePosterior,
    transitions: Transitions,
    rng: np.random.Generator,
) -> Float[np.ndarray, " P"]:
    """log joint - log posterior at random points: each is the log evidence, if `posterior` is right."""
    model = handlers.seed(joint(program.prior, program.space), 0)

    @jax.jit
    def log_joint(values: dict[str, Any], data: Transitions) -> Any:
        return log_density(model, (data,), {}, values)[0]

    points = [_draw(detected, rng) for _ in range(NUM_POINTS)]
    values = [{**program.held, **detected.layout.split(point)} for point in points]
    densities = [float(log_joint(value, transitions)) for value in values]
    return np.array(densities) - np.array([log_posterior(detected, posterior, point) for point in points])


def invent(detected: Detected, rng: np.random.Generator) -> Transitions:
    """Transitions to every possible outcome of every legal pair (of very many: to `MANY` of them, at random), a third
    of them twice, with possible rewards."""
    posterior, space = detected.posterior, detected.posterior.space
    possible = detected.possible
    if (number := possible.sum()) > MANY:
        possible = possible & (rng.random(possible.shape) < MANY / number)
    place = np.argwhere(possible)
    place = place[np.concatenate([np.arange(len(place)), rng.integers(len(place), size=len(place) // 3)])]
    *step, state, action, outcome = place.T
    ended = outcome == space.n_states
    prior = None if isinstance(posterior.reward_cells, KnownRewards) else posterior.reward_cells.prior
    if isinstance(prior, BetaBelief):
        reward = rng.integers(2, size=len(place)).astype(float)
    elif isinstance(prior, GammaBelief):
        reward = rng.poisson(3.0, size=len(place)).astype(float)
    else:
        reward = rng.normal(size=len(place))
    return Transitions(
        state, action, reward, np.where(ended, state, outcome), terminated=ended, step=step[0] if step else None
    )


def log_posterior(detected: Detected, posterior: ConjugatePosterior, point: Float[np.ndarray, " N"]) -> float:
    """Log density of the leaves under `posterior` at `point`, a vector of all elements (see `Detected.layout`)."""
    concentration = posterior.transition_probs.prior + posterior.transition_probs.counts
    rows = np.append(point, 1.0)[detected.rows]  # padding is 1
    total = ((concentration - 1.0) * np.log(rows)).sum()
    total += gammaln(concentration.sum(-1)).sum() - gammaln(concentration[detected.rows >= 0]).sum()
    if isinstance(posterior.reward_cells, KnownRewards):
        return float(total)
    belief = posterior.reward_cells.prior.after(posterior.reward_cells.data)
    return float(total + _DENSITY[type(belief)](belief, *(point[elements] for elements in detected.cells)).sum())


def _draw(detected: Detected, rng: np.random.Generator) -> Float[np.ndarray, " N"]:
    """A point well inside the support of every leaf."""
    used, point = detected.rows >= 0, np.empty(detected.layout.size)
    rows = np.where(used, rng.standard_exponential(used.shape) + 0.1, 0.0)
    point[detected.rows[used]] = (rows / np.maximum(rows.sum(-1, keepdims=True), 1e-9))[used]
    rewards = detected.posterior.reward_cells
    family = None if isinstance(rewards, KnownRewards) else type(rewards.prior)
    for k, elements in enumerate(detected.cells):
        if family in (NormalGammaBelief, NormalBelief) and k == 0:
            point[elements] = rng.normal(size=elements.shape)
        else:
            point[elements] = rng.uniform(0.2, 0.8, size=elements.shape)
    return point


def _tolerance(program: Program, detected: Detected) -> float:
    """float64 rounding, or that of the narrowest array of the program (a float32 constant in its laws)."""
    zeros = detected.layout.split(np.zeros(detected.layout.size))
    values = jax.eval_shape(program.evaluate, {**program.held, **zeros})
    return max(TOLERANCE, *(100.0 * rounding(x.dtype) for x in jax.tree.leaves(values)))


def _log_gamma(x: Any, concentration: Any, rate: Any) -> Any:
    return concentration * np.log(rate) - gammaln(concentration) + (concentration - 1.0) * np.log(x) - rate * x


def _log_normal(x: Any, loc: Any, scale: Any) -> Any:
    return -0.5 * ((x - loc) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2.0 * np.pi)


def _log_normal_gamma(belief: NormalGammaBelief, mean: Any, precision: Any) -> Any:
    scale = (belief.pseudo_count * precision) ** -0.5
    return _log_gamma(precision, belief.concentration, belief.rate) + _log_normal(mean, belief.loc, scale)


def _log_beta(belief: BetaBelief, x: Any) -> Any:
    one, zero = belief.concentration1, belief.concentration0
    kernel = (one - 1.0) * np.log(x) + (zero - 1.0) * np.log1p(-x)
    return kernel + gammaln(one + zero) - gammaln(one) - gammaln(zero)


_DENSITY = {
    NormalGammaBelief: _log_normal_gamma,
    NormalBelief: lambda belief, x: _log_normal(x, belief.loc, belief.scale),
    BetaBelief: _log_beta,
    GammaBelief: lambda belief, x: _log_gamma(x, belief.concentration, belief.rate),
}
