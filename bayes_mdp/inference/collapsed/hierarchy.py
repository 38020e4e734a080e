"""`Hierarchy`: a program whose sites are conjugate given hyperparameters, found and proven on the trace.

Sites in the way of an exact posterior become hyperparameters, one after the other, until what is left is conjugate
given them. What is proven, on the data flow: hyperparameters enter parameters of conjugate sites (and known noise)
alone, never a law, so that the tables of the closed form (which element is where) are the same for all their values.
`prove_hierarchy` compares the closed form with the program at several values besides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import handlers

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.detection.certify import certify, invent, site_densities, summarise_for_program, tolerance
from bayes_mdp.inference.detection.detect import Detected, detect
from bayes_mdp.inference.detection.detect_rows import check_sites
from bayes_mdp.inference.detection.entries import Entries
from bayes_mdp.inference.detection.probe import NotConjugate, Probe, inside
from bayes_mdp.inference.detection.trace import Program, compiled, run_program
from bayes_mdp.inference.draws.chains import Site
from bayes_mdp.inference.families.family import RewardBelief
from bayes_mdp.inference.integrals.quadrature import NotIntegrableError
from bayes_mdp.inference.integrals.unconstrained_model import UnconstrainedModel, Values
from bayes_mdp.mdp.space import program_cache
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.joint import OBSERVED_NEXT_STATE, OBSERVED_REWARD
from bayes_mdp.utils.typing import AnyArray

EVIDENCE = "collapsed_evidence"
"""The factor of the data in a marginal model."""
NUM_VALUES = 3
"""Of the hyperparameters, at which a closed form is read."""
Forms: TypeAlias = list[tuple[dict[str, np.ndarray], Detected]]
"""Values of the hyperparameters, each with the closed form that it gives."""


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
    fixed = {name: program.values[name] for name in hyperparameters if name in discrete}
    return UnconstrainedModel(
        lambda data: hyperparameters_alone(program, hyperparameters), free, fixed, program.supports
    )


@dataclass(frozen=True)
class Hierarchy:
    """Conjugate sites under hyperparameters. Compares by what the program computes.

    Args:
        program: the whole program.
        hyperparameters: the latent sites that are not conjugate, in order.
        detected: the closed form at some values of the hyperparameters.
        symbols: for each parameter array of the stacked conjugate sites, a number for each entry: entries of one
            number are equal whatever the hyperparameters are.
        draws: {hyperparameter: values [N ...]}, all over the prior: where to look for a posterior first.
        hyper_prior: of the hyperparameters by themselves.
    """

    program: Program
    hyperparameters: tuple[str, ...]
    detected: Detected = field(compare=False)
    symbols: tuple[np.ndarray, ...] = field(compare=False)
    draws: Mapping[str, np.ndarray] = field(compare=False)
    hyper_prior: UnconstrainedModel = field(compare=False)

    @property
    def prior(self) -> ConjugatePosterior:
        """The belief before any data, given some values of the hyperparameters."""
        posterior = self.detected.posterior
        # The concentrations need not all be one at other values.
        return replace(posterior, transition_probs=replace(posterior.transition_probs, unit_prior=False))

    @property
    def draws_prior(self) -> bool:
        """Whether running the program draws from the prior: what it observes, if anything, are constants."""
        return self.program.draws_prior(self.detected.constants)

    @property
    def log_constant(self) -> float:
        """Of the marginal density beside prior and data: the density of what is observed and tells of nothing."""
        return sum(self.detected.constants.values())

    @traced_alone
    def parameters(self, values: Values) -> tuple[Float[Array, "M K"], RewardBelief | None]:
        """The parameters of the stacked conjugate sites at `values` of the hyperparameters. Traceable."""
        detected = self.detected
        # No parameter depends on a conjugate site (shown by `detect`), but for precisions that a Gamma site scales:
        # where that is one they are their factor. The sites stay inside their support: elsewhere gradients can be nan.
        with handlers.block():
            read = self.program.evaluate({**values, **conjugate_inside(self.program, self.hyperparameters)})
        concentration = jnp.asarray(detected.assembly.concentration(read["parameters"]), float)
        return concentration, detected.assembly.belief(read["parameters"], read["reward"].get("precision"))

    def at(self, values: Values) -> Detected:
        """The closed form at `values` of the hyperparameters, as numbers. Host side."""
        read = compiled(self.program.evaluate)({**values, **conjugate_inside(self.program, self.hyperparameters)})
        read = jax.tree.map(np.asarray, read)
        assembly = self.detected.assembly
        belief = assembly.belief(read["parameters"], read["reward"].get("precision"))
        prior = with_parameters(self.prior, assembly.concentration(read["parameters"]), belief)
        return self.detected._replace(posterior=prior)


def with_parameters(
    data_statistics: ConjugatePosterior, concentration: Float[AnyArray, "M K"], belief: RewardBelief | None
) -> ConjugatePosterior:
    """`data_statistics` with other prior parameters."""
    data_statistics = replace(
        data_statistics, transition_probs=data_statistics.transition_probs.with_prior(concentration)
    )
    if belief is None or not isinstance(data_statistics.reward_cells, RewardCells):
        return data_statistics
    return eqx.tree_at(lambda p: p.reward_cells.prior, data_statistics, belief)


def draw_sites(program: Program, names: tuple[str, ...], key: PRNGKeyArray) -> dict[str, Array]:
    """One draw of these sites from the prior program. Traceable; nothing else is computed once it is compiled."""
    _, trace = run_program(program.prior, program.space, key=key)
    return {name: jnp.asarray(trace[name]["value"]) for name in names}


@program_cache
def prove_hierarchy(program: Program) -> Hierarchy:
    """The hierarchy of a program, certified at several values of its hyperparameters. Host side.

    Raises:
        NotConjugate: there is none, or its densities are not those of the program.
        ValueError: a parameter of a conjugate site is out of its range.
    """
    if any(site.name == EVIDENCE for site in program.sites):
        raise NotConjugate(f"prior: site {EVIDENCE!r} has a name of the library's own, expected another name")
    # Structure by data flow, then numbers: at further hyperparameter values the closed form must match the program.
    rng = program.generator()
    hierarchy, forms = find_hierarchy(program, rng)
    # The first values only gave the tables; at the others the closed form is compared with the program.
    for values, detected in forms[1:]:
        certify(program, detected, rng, held=values)
        _check_prior(hierarchy, values, detected, rng)
    return hierarchy


def recheck(hierarchy: Hierarchy, draws: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """The certificate again, at draws [N ...] of the hyperparameters from the posterior: where it is about to be used.

    Raises:
        NotConjugate: the closed form is not that of the program there.
    """
    for n in range(len(next(iter(draws.values())))):
        values = {name: x[n] for name, x in draws.items()}
        certify(hierarchy.program, hierarchy.at(values), rng, held=values)


def _check_prior(hierarchy: Hierarchy, values: Values, detected: Detected, rng: np.random.Generator) -> None:
    """The marginal model without data has the density of the hyperparameters that the whole program has.

    With it and the certificate of the conjugate sites, every factor of p(h, conjugate sites, data) has been compared.
    """
    # Compare log p(h) of the marginal model without data with the densities of the h sites in the full program.
    program, transitions = hierarchy.program, invent(detected, rng)
    values_of_all = {**conjugate_inside(program, hierarchy.hyperparameters), **values}
    densities = site_densities(program, values_of_all, summarise_for_program(program, transitions))
    # Without the conjugate sites and the data, what is left is the density of the hyperparameters.
    not_hyper = {*detected.layout.shapes, OBSERVED_NEXT_STATE, OBSERVED_REWARD}
    expected = np.array([value for name, value in densities.items() if name not in not_hyper])
    prior = hierarchy.hyper_prior
    fixed = {name: values[name] for name in prior.held}
    points = prior.unconstrained({name: np.asarray(x)[None] for name, x in values.items()}, fixed)
    density = float(prior.place(points, fixed).without_jacobian[0])
    if not abs(density - expected.sum()) <= tolerance(program) * (1.0 + np.abs(expected).sum()):
        raise NotConjugate(
            f"prior: the density of {', '.join(map(repr, hierarchy.hyperparameters))} is {density:.12g} without the "
            f"conjugate sites and {expected.sum():.12g} with them, so that they cannot be integrated out"
        )


def find_hierarchy(program: Program, rng: np.random.Generator) -> tuple[Hierarchy, Forms]:
    """The hierarchy of a program, and its closed forms at several draws of the hyperparameters. Host side.

    Raises:
        NotConjugate: no site is conjugate given the others; names the last site in the way.
        ValueError: a parameter of a conjugate site is out of its range.
    """
    moved: dict[str, NotConjugate] = {}
    while True:
        try:
            return _hierarchy_given(program, set(moved), rng)
        except NotConjugate as error:
            # The site that the refusal names becomes a hyperparameter, and detection starts again.
            left = {site.name for site in program.latents} - set(moved)
            if error.site in moved:  # the reason why it became a hyperparameter is more useful
                raise moved[error.site] from None
            if error.site is None or error.site not in left or len(left) == 1:
                raise
            # The site in the way is drawn, not integrated out; what is left may be conjugate given it.
            moved[error.site] = error


def _hierarchy_given(program: Program, hyperparameters: set[str], rng: np.random.Generator) -> tuple[Hierarchy, Forms]:
    """The hierarchy with these hyperparameters, or what is in its way."""
    names = tuple(site.name for site in program.latents if site.name in hyperparameters)
    # Hyperparameters are inputs of the probe, as constants are: detection then asks about the other sites alone.
    probe = Probe(program, names)
    # Structure first, before anything is drawn or compiled.
    check_sites(probe, alone=False)
    if not names:
        detect(probe)
        raise NotConjugate(
            "prior: no conjugate site has a hyperparameter, expected one to collapse; it has an exact posterior"
        )
    _check_proper(program, names)
    hyper_prior = hyper_prior_of(program, names)
    draws = _some_values(program, hyper_prior, rng)
    numbers = compiled(program.evaluate)
    forms: Forms = []
    # The tables are read at several values: they come out the same (shown above), the parameters do not, and the
    # certificate compares each with the program.
    for k in range(NUM_VALUES):
        values = {name: np.asarray(x[k]) for name, x in draws.items()}
        probe.numbers = jax.tree.map(np.asarray, numbers({**values, **conjugate_inside(program, names)}))
        forms.append((values, detect(probe)))
    symbols = parameter_symbols(probe, forms[0][1])
    return Hierarchy(program, names, forms[0][1], symbols, draws, hyper_prior), forms


def _some_values(program: Program, hyper_prior: UnconstrainedModel, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Values all over the prior; few, drawn by running the program, where they cannot be had without."""
    if hyper_prior.is_listed:
        try:
            return hyper_prior.draws(rng)
        except NotIntegrableError:
            pass
    keys = jax.random.split(jax.random.key(rng.integers(2**31)), NUM_VALUES)
    draw = jax.jit(jax.vmap(lambda key: draw_sites(program, hyper_prior.names, key)))
    return jax.tree.map(np.asarray, draw(keys))


def parameter_symbols(probe: Probe, detected: Detected) -> tuple[np.ndarray, ...]:
    """For each parameter array of the stacked conjugate sites, a number for each entry (value numbering).

    Entries of one number are always equal, whatever the hyperparameters are.
    """
    ids = {
        site: {name: _symbols(entries) for name, entries in parameters.items()}
        for site, parameters in probe.parameters_of.items()
    }
    precision = probe.reward.get("precision")
    noise = None if precision is None or not precision.free else _symbols(precision)
    # Numbers are stacked as the parameters are; the arithmetic on the way keeps different ones different.
    assembly = detected.assembly._replace(stretch=None)
    with np.errstate(divide="ignore"):
        rewards = [np.asarray(x) for x in jax.tree.leaves(assembly.belief(ids, noise))]
    stretch = detected.assembly.stretch
    if stretch is not None:
        # Entries are equal where the numbers that are stretched and the factors both are.
        rewards = [np.unique(np.stack([x, stretch]), axis=1, return_inverse=True)[1].reshape(-1) for x in rewards]
    return np.asarray(assembly.concentration(ids)), *rewards


def _symbols(entries: Entries) -> np.ndarray:
    return np.asarray(entries.offset if entries.free else entries.coefficient)


def _check_proper(program: Program, hyperparameters: tuple[str, ...]) -> None:
    for site in program.latents:
        if site.name in hyperparameters and site.family == "ImproperUniform":
            raise NotConjugate(
                f"prior: site {site.name!r} (ImproperUniform) cannot be normalised, so that there is no prior to draw "
                "from; give it a proper distribution"
            )
