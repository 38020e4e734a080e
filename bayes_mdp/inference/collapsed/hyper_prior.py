"""The hyperparameters of a program by themselves: its conjugate sites hidden."""

import jax.numpy as jnp
from jaxtyping import Array
from numpyro import handlers

from bayes_mdp.inference.detection.probe import inside
from bayes_mdp.inference.detection.trace import Program
from bayes_mdp.inference.draws.chains import Site
from bayes_mdp.inference.integrals.unconstrained_model import UnconstrainedModel


def conjugate_inside(program: Program, hyperparameters: tuple[str, ...]) -> dict[str, Array]:
    """A value inside its support for every latent site that is no hyperparameter."""
    return {site.name: inside(site) for site in program.latents if site.name not in hyperparameters}


def hyperparameters_alone(program: Program, hyperparameters: tuple[str, ...]) -> dict[str, Array]:
    """Run the program with its conjugate sites hidden; the values of the hyperparameters."""
    dummies = conjugate_inside(program, hyperparameters)

    def hidden(message: Site) -> bool:
        return message.get("name") in dummies or message["type"] == "deterministic"

    # A conjugate site at any value of its support: hidden, it adds no density, and nothing below reads it.
    with handlers.trace() as trace, handlers.block(hide_fn=hidden), handlers.substitute(data=dummies):
        program.prior(program.space)
    return {name: jnp.asarray(trace[name]["value"]) for name in hyperparameters}


def hyper_prior_of(program: Program, hyperparameters: tuple[str, ...]) -> UnconstrainedModel:
    """The density of the hyperparameters before any data.

    Args:
        program: traced.
        hyperparameters: the latent sites that are not conjugate.
    """
    discrete = {site.name for site in program.latents if site.discrete}
    free = {name: program.values[name] for name in hyperparameters if name not in discrete}
    held = {name: program.values[name] for name in hyperparameters if name in discrete}
    return UnconstrainedModel(
        lambda data: hyperparameters_alone(program, hyperparameters), free, held, program.supports
    )
