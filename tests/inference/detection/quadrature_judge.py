"""The evidence of any small program by quadrature over NumPyro's own log density: nothing of detection enters.

`log_evidence` is that of the data given what the program itself observes: the integral with the data over the one
without. It integrates exp(log density of `bm.models.joint`) over all latent sites, in NumPyro's unconstrained
coordinates (`biject_to`), by the trapezoidal rule after the change of variables z = sinh(t). For integrands that are
analytic the error falls exponentially with the number of points; two axes take a second, three some seconds.
"""

# NumPyro's handlers are typed too narrowly for tests.
# pyright: reportArgumentType=false, reportIndexIssue=false, reportAttributeAccessIssue=false

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.util import log_density
from scipy.special import logsumexp

from bayes_mdp.mdp import Transitions
from bayes_mdp.models import joint
from bayes_mdp.models.as_prior import as_prior
from bayes_mdp.models.mdp_spec import reward_table, transition_table

BATCH = 4096
"""Points of one call of the compiled density."""
REACH = 4.6
"""Of t: sinh(4.6) is 50 standard deviations."""
POINTS = {1: 801, 2: 121, 3: 61}
"""Points of an axis, for each number of axes."""
ROUNDS = 8
"""Times that the grid is laid again."""
DRAWS = 12
"""Draws from the prior that say where to look first."""


class Density:
    """The log density of a program and data in unconstrained coordinates.

    Args:
        prior, space: the program.
    """

    def __init__(self, prior, space):
        self._model = joint(prior, space)
        # What the program substitutes is known, as `joint` has it.
        self._draw = lambda seed: handlers.trace(handlers.seed(as_prior(prior), seed)).get_trace(space)
        sites = {name: m for name, m in self._draw(0).items() if m["type"] == "sample"}
        latents = {name: m for name, m in sites.items() if not m["is_observed"]}
        self.observes = len(latents) < len(sites)
        self._transforms = {name: biject_to(m["fn"].support) for name, m in latents.items()}
        self._shapes = {
            name: np.shape(self._transforms[name].inv(jnp.asarray(m["value"], float))) for name, m in latents.items()
        }
        self.size = sum(int(np.prod(shape)) for shape in self._shapes.values())
        self._compiled = jax.jit(jax.vmap(self._at, in_axes=(0, None)))

    def _at(self, flat, data):
        values, start, volume = {}, 0, 0.0
        for name, shape in self._shapes.items():
            stop = start + int(np.prod(shape))
            free, transform = flat[start:stop].reshape(shape), self._transforms[name]
            values[name] = transform(free)
            volume = volume + jnp.sum(transform.log_abs_det_jacobian(free, values[name]))
            start = stop
        # The seed serves what is drawn beside the sites: nothing.
        return log_density(handlers.seed(self._model, 0), (data,), {}, values)[0] + volume

    def start(self):
        """Mean of a few draws from the prior, and twice their deviation on the diagonal of a matrix."""
        draws = []
        for seed in range(DRAWS):
            trace = self._draw(seed)
            parts = [self._transforms[name].inv(jnp.asarray(trace[name]["value"], float)) for name in self._shapes]
            draws.append(np.concatenate([np.ravel(x) for x in parts]))
        return np.mean(draws, axis=0), np.diag(2.0 * np.std(draws, axis=0))

    def __call__(self, points, data):
        """Log density at points [N D]; -inf where it is nan."""
        found = []
        for start in range(0, len(points), BATCH):
            block = points[start : start + BATCH]
            padded = np.concatenate([block, np.repeat(block[-1:], BATCH - len(block), axis=0)])
            found.append(np.asarray(self._compiled(padded, data))[: len(block)])
        values = np.concatenate(found)
        return np.where(np.isnan(values), -np.inf, values)


def log_evidence(prior, space, data):
    """log p(data) of a program of at most three unknown numbers, given what it observes. Host side, in float64."""
    # A program that observes nothing is normalised.
    observes = Density(prior, space).observes
    return log_integral(prior, space, data) - (log_integral(prior, space, None) if observes else 0.0)


def log_integral(prior, space, data):
    """Of the joint density of all sites and data, over the latent ones: at most three numbers."""
    with jax.enable_x64(True):
        density = Density(prior, space)
        if density.size == 0:
            return float(density(np.zeros((1, 0)), data)[0])
        # Draws from the prior say where to look; each grid is laid where the last one saw the mass.
        size, centre, root = density.size, *density.start()
        line = np.linspace(-REACH, REACH, int(BATCH ** (1.0 / size)) // 2 * 2 - 1)
        for _ in range(ROUNDS):
            centre, root = _moments(*_around(density, data, centre, root, line))
        line = np.linspace(-REACH, REACH, POINTS[size])
        return float(logsumexp(_around(density, data, centre, root, line)[1]) + size * np.log(line[1] - line[0]))


def _grid(axes):
    return np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=-1)


def _moments(points, log_weights):
    """Mean and root of the covariance of the mass; one that lies on few points is as wide as their neighbours."""
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    centre = weights @ points
    away = points - centre
    covariance = (away * weights[:, None]).T @ away
    # Of the points next to the centre, in units of what all of them span.
    near = np.sort(np.abs(away), axis=0)[len(points) // 50]
    return centre, np.linalg.cholesky(covariance + np.diag((0.1 * near) ** 2))


def _around(density, data, centre, root, line):
    """Points centre + root sinh(t), and the log of the integrand over t there."""
    t = _grid([line] * len(centre))
    points = centre + np.sinh(t) @ root.T
    # dz = |det root| prod cosh(t) dt
    return points, density(points, data) + np.log(np.cosh(t)).sum(-1) + np.log(np.diagonal(root)).sum()


def draw_data(prior, space, seed, number=8):
    """Transitions from all legal pairs in turn, drawn from one hypothesis of the program."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        spec = handlers.seed(prior, seed)(space)
        table, rewards = np.asarray(transition_table(spec, space)), reward_table(spec, space)
        pairs = np.argwhere(np.ones(space.shape) if space.legal is None else np.broadcast_to(space.legal, space.shape))
        pairs = pairs[np.arange(number) % len(pairs)]
        outcome = np.array([rng.choice(table.shape[-1], p=table[tuple(p)] / table[tuple(p)].sum()) for p in pairs])
        reward = np.zeros(number)
        if rewards.law is not None:
            drawn = np.asarray(rewards.law.sample(jax.random.key(100 + seed), (number,)), float)
            place = (*pairs.T, outcome) if rewards.by_outcome else tuple(pairs.T)
            reward = drawn[(np.arange(number), *place)]
        elif rewards.known is not None:
            reward = np.asarray(rewards.known, float)[(*pairs.T, outcome) if rewards.by_outcome else tuple(pairs.T)]
        *step, state, action = pairs.T
        ended = outcome == space.n_states
        return Transitions(
            state,
            action,
            reward,
            np.where(ended, state, outcome),
            terminated=ended if space.ends else None,
            step=step[0] if step else None,
        )


def exact_evidence(posterior, data):
    """Log evidence of a closed form after `data`; -inf where it cannot hold them. Host side, in float64."""
    with jax.enable_x64(True):
        try:
            return float(replace(posterior, sites=None).update(data).log_evidence)
        except ValueError:
            return -np.inf
