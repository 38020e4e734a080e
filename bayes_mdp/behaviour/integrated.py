"""The likelihood of all choices of a person, with the person's parameters integrated out under the group's law."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.behaviour.fit_behaviour import BehaviourPosterior
from bayes_mdp.behaviour.likelihood import chosen_log_probs
from bayes_mdp.numerics.products import einsum
from bayes_mdp.utils.validation import check_count, check_key, check_type

_INFLATION = 1.2


def subject_log_likelihood(
    key: PRNGKeyArray, posterior: BehaviourPosterior, *, num_draws: int | None = None, num_proposals: int = 32
) -> Float[np.ndarray, "D P"]:
    """log p(choices of a person | group), for draws of the group's mean and spread: not given the person's parameters.

    It is what leaving a person out asks for: how well the group predicts somebody new. Importance sampling, for every
    draw and person: the proposal is the group's law times a normal approximation of the person's likelihood (two
    derivatives of it at the person's posterior mean), a fifth wider. The likelihood is estimated without bias, its
    logarithm with an error of a few hundredths of a nat with some hundred proposals.

    Args:
        key: of the proposals.
        posterior: with partial pooling (otherwise persons have no common law).
        num_draws: D, draws of the group, thinned evenly; None: all.
        num_proposals: of each person and draw; the cost is D times this many evaluations of the likelihood.

    Raises:
        ValueError, TypeError: another pooling, a number that is no positive integer.
    """
    check_key("key", key)
    check_type("posterior", posterior, BehaviourPosterior, "what bayes_mdp.behaviour.fit returns")
    check_count("num_proposals", num_proposals)
    if posterior.pooling != "partial":
        raise ValueError(f"posterior.pooling is {posterior.pooling!r}, expected 'partial': persons of one group")
    index = posterior.thinned(num_draws)

    def site(what: str) -> np.ndarray:
        """[N K] or [N P K], of all draws."""
        each = [np.asarray(posterior.mcmc.draws[f"{name}_{what}"]) for name in posterior.model.parameters]
        return np.stack([x.reshape(posterior.num_draws, *x.shape[2:]) for x in each], axis=-1)

    mean, spread = site("mean"), site("sd")
    centre = (mean[:, None] + spread[:, None] * site("z")).mean(axis=0)
    groups = tuple(jnp.asarray(x[index], float) for x in (mean, spread))
    return np.asarray(_integrated(key, posterior, jnp.asarray(centre, float), groups, num_proposals))


@eqx.filter_jit
def _integrated(
    key: PRNGKeyArray,
    posterior: BehaviourPosterior,
    centre: Float[Array, "P K"],
    groups: tuple[Float[Array, "D K"], ...],
    num_proposals: int,
) -> Float[Array, "D P"]:
    parameters = posterior.model.parameters
    persons, size = centre.shape

    def of_log(line: Float[Array, "P K"]) -> Float[Array, " P"]:
        params = {name: p.constrain(line[:, i]) for i, (name, p) in enumerate(parameters.items())}
        return jnp.sum(chosen_log_probs(posterior.model, params, posterior.log), axis=1)

    # Normal approximation of each likelihood at `centre`: gradient and precision (negative curvature is left out).
    slope = jax.grad(lambda line: jnp.sum(of_log(line)))
    along = lambda e: jax.jvp(slope, (centre,), (jnp.broadcast_to(e, centre.shape),))[1]  # noqa: E731
    gradient, hessian = slope(centre), jnp.moveaxis(jax.lax.map(along, jnp.eye(size, dtype=centre.dtype)), 0, -1)
    usable = jnp.all(jnp.isfinite(hessian), (1, 2)) & jnp.all(jnp.isfinite(gradient), 1)
    symmetric = -0.5 * (hessian + jnp.swapaxes(hessian, 1, 2))
    values, vectors = jnp.linalg.eigh(jnp.where(usable[:, None, None], symmetric, 0.0))
    precision = einsum("pik,pk,pjk->pij", vectors, jnp.maximum(values, 0.0), vectors)
    gradient = jnp.where(usable[:, None], gradient, 0.0)

    def of_group(x: tuple[Array, Float[Array, " K"], Float[Array, " K"]]) -> Float[Array, " P"]:
        key, mean, spread = x
        # In units of the group's spread around its mean: prior N(0, 1), likelihood precision S L S.
        factor = jnp.linalg.cholesky(jnp.eye(size) + precision * spread[:, None] * spread)
        # Slope of the approximation at the group's mean.
        pull = spread * (gradient + einsum("pij,pj->pi", precision, centre - mean))
        middle = jax.vmap(lambda f, b: cho_solve((f, True), b))(factor, pull)
        e = jax.random.normal(key, (num_proposals, persons, size))
        draw = lambda f, e: solve_triangular(f, e, lower=True, trans=1)  # noqa: E731
        z = middle + _INFLATION * jax.vmap(jax.vmap(draw), in_axes=(None, 0))(factor, e)
        log_scale = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)), axis=1) - size * jnp.log(_INFLATION)
        log_ratio = 0.5 * jnp.sum(e**2 - z**2, axis=-1) - log_scale
        found = jax.vmap(of_log)(mean + spread * z)
        return logsumexp(found + log_ratio, axis=0) - jnp.log(num_proposals)

    return jax.lax.map(of_group, (jax.random.split(key, len(groups[0])), *groups))
