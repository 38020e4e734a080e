"""One simulation of simulation-based calibration, as a pure function of a key: truth, data, posterior, ranks."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpyro import handlers

from bayes_mdp.calibration.quantities import Drawn, Quantity, default_quantities
from bayes_mdp.calibration.simulate import simulate, uniform_policy
from bayes_mdp.calibration.worlds import CanThin, HasSites, Law, law_of_sites, law_of_world, sample_law
from bayes_mdp.inference.fitting import Fit
from bayes_mdp.mdp import Objective, StateActionSpace, Transitions
from bayes_mdp.models.simulate import environment

Sites = dict[str, Array]
LEAST_COMPONENTS = 8  # that a thinned posterior has


class Rank(NamedTuple):
    """The truth among the draws, for one quantity.

    Args:
        rank: number of draws below the truth, ties broken at random, 0..num_draws.
        truth: the quantity of the truth.
        mean, sd: of the draws.
        finite: the truth and all draws are numbers.
        draws: the quantity of each draw.
    """

    rank: Int[Array, ""]
    truth: Float[Array, ""]
    mean: Float[Array, ""]
    sd: Float[Array, ""]
    finite: Bool[Array, ""]
    draws: Float[Array, " L"]


class Truth(NamedTuple):
    """A truth and its data.

    Args:
        law: of one transition.
        sites: latent sites of the prior program, by name.
        transitions: the data.
    """

    law: Law
    sites: Sites
    transitions: Transitions


class Design(NamedTuple):
    """What is simulated and looked at; the fields are the arguments of `sbc`.

    `draw_truth` (key of the truth, key of the data -> `Truth`) stands in for the prior where it is given.
    """

    prior: Any
    space: StateActionSpace
    num_draws: int
    num_transitions: int
    quantities: Mapping[str, Quantity] | None
    behaviour: Any
    objective: Objective
    draw_truth: Callable[[PRNGKeyArray, PRNGKeyArray], Truth] | None = None


def simulation(design: Design, fit: Fit) -> Callable[[PRNGKeyArray], dict[str, Rank]]:
    """key -> `Rank` of every quantity in one simulated data set. Traceable: vmap it over keys."""

    def one(key: PRNGKeyArray) -> dict[str, Rank]:
        key_world, key_data, key_fit, key_draws, key_ties = jax.random.split(key, 5)
        from_prior = partial(_draw_from_prior, design)
        law, latent, transitions = (design.draw_truth or from_prior)(key_world, key_data)
        posterior = fit(key_fit, fit.summarise(transitions))
        look = _observer(design, transitions)
        drawn, sites = look_at_draws(key_draws, posterior, design, look)
        seen = look(law), {name: latent[name] for name in sites}
        everything = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), seen, (drawn, sites))
        values = jax.vmap(lambda parts, sites: _values(design, transitions, parts, sites))(*everything)
        ties = jax.random.split(key_ties, len(values))
        # JAX keeps the order of an OrderedDict, and sorts the names of a dict.
        return OrderedDict((name, _rank(tie, values[name])) for tie, name in zip(ties, values, strict=True))

    return one


def _draw_from_prior(design: Design, key_world: PRNGKeyArray, key_data: PRNGKeyArray) -> Truth:
    with handlers.trace() as trace, handlers.seed(rng_seed=key_world):
        world = design.prior(design.space)
    sites = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
    initial = jnp.full(design.space.n_states, 1.0 / design.space.n_states)
    truth = environment(world, design.space, initial)
    transitions = simulate(key_data, truth, design.space, design.num_transitions, design.behaviour)
    return Truth(law_of_world(world, design.space), sites, transitions)


def _observer(design: Design, transitions: Transitions) -> Callable[[Law], Any]:
    def look(law: Law) -> Any:
        return law.mdp(design.space), law.noise(), law.log_likelihood(transitions, design.space)

    return look


def look_at_draws(key: PRNGKeyArray, posterior: Any, design: Design, look: Callable[[Law], Any]) -> Any:
    """What is seen of `num_draws` draws, and the latent sites that the posterior draws by name, leading axis L."""
    key_thin, key_draw = jax.random.split(key)
    num, space = design.num_draws, design.space
    keys = jax.random.split(key_draw, num)
    if not isinstance(posterior, CanThin):
        return jax.vmap(lambda key: look(sample_law(key, posterior, space)))(keys), {}
    thin = posterior.thinned(key_thin, max(num, LEAST_COMPONENTS))
    kept = jax.random.permutation(key_draw, max(num, LEAST_COMPONENTS))[:num]
    if isinstance(thin, HasSites):
        sites = {name: values[kept] for name, values in thin.sites.items()}
        return jax.vmap(lambda sites: look(law_of_sites(sites, design.prior, space)))(sites), sites
    sites = {name: values[kept] for name, values in thin.hyper.items()}
    return jax.vmap(lambda key, k: look(sample_law(key, thin.component(k), space)))(keys, kept), sites


def _values(design: Design, transitions: Transitions, parts: Any, sites: Sites) -> OrderedDict[str, Float[Array, ""]]:
    mdp, noise, log_likelihood = parts
    policy = uniform_policy(design.space) if design.behaviour is None else design.behaviour
    drawn = Drawn(mdp, noise, log_likelihood, sites, transitions, policy, design.objective)
    wanted = default_quantities(design.space) if design.quantities is None else design.quantities
    values = OrderedDict((name, jnp.asarray(quantity(drawn))) for name, quantity in wanted.items())
    for name, value in values.items():
        if value.shape:
            raise ValueError(f"quantities[{name!r}] gives an array of shape {value.shape}, expected one number")
    if design.quantities is None:
        values.update((name, value) for name, value in sites.items() if jnp.ndim(value) == 0)
    return values


def _rank(key: PRNGKeyArray, values: Float[Array, " 1+L"]) -> Rank:
    """The first value among the others. A truth that equals k draws has each of k + 1 ranks equally often."""
    truth, draws = values[0], values[1:]
    below, equal = (draws < truth).sum(), (draws == truth).sum()
    rank = below + jax.random.randint(key, (), 0, equal + 1)
    return Rank(rank, truth, draws.mean(), draws.std(), jnp.isfinite(values).all(), draws)
