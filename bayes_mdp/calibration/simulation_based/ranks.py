"""One simulation of simulation-based calibration, as a pure function of a key: truth, data, posterior, ranks."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Real
from numpyro import handlers

from bayes_mdp.calibration.simulation_based.quantities import Drawn, Quantity, default_quantities
from bayes_mdp.inference.collapsed.collapsed_posterior import LEAST_COMPONENTS, ComponentDraws
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.fitted import Fitted, Law
from bayes_mdp.mdp import MDP, Environment, Objective, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.protocols import CanThin, Policy, PolicyLike
from bayes_mdp.models.mdp_spec import Prior, environment, reward_table, transition_table
from bayes_mdp.planning import solve
from bayes_mdp.planning.policy_arrays import policy_probs

Sites = dict[str, Array]
Behaviour = Policy | Array | np.ndarray | None  # a policy; None: pairs at random
Parts = tuple[
    MDP | SparseMDP, Float[Array, "*H S A"], Float[Array, ""]
]  # an MDP, variance of its rewards, log-likelihood
Kept = TypeVar("Kept")
Indices = Int[Array, " N"]
Walk = tuple[Int[Array, ""], Int[Array, ""]]  # state and step
Outcome = tuple[Array, Array, Array]  # next state, reward, whether the episode ended


MOST_ELEMENTS = 8  # of a site, ranked one by one


class Rank(NamedTuple):
    """The rank of the truth among the draws, for one quantity.

    Args:
        rank: number of draws below the truth, ties broken at random, 0..num_draws.
        truth: the quantity of the truth.
        mean, sd: of the draws.
        finite: whether the truth and all draws are finite.
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
    """What is simulated and examined; the fields are the arguments of `sbc`.

    `draw_truth`, (key of the truth, key of the data) -> `Truth`, takes the place of the prior if it is given.
    With `chooses` the optimal policy of each posterior's mean MDP is there for the quantities.
    """

    prior: Prior
    space: StateActionSpace
    num_draws: int
    num_transitions: int
    quantities: Mapping[str, Quantity] | None
    behaviour: Behaviour
    objective: Objective
    draw_truth: Callable[[PRNGKeyArray, PRNGKeyArray], Truth] | None = None
    chooses: bool = False


class Simulated(NamedTuple):
    """A truth and its data, as arrays.

    Args:
        parts: of the truth.
        latent: its latent sites, by name.
        transitions: the data.
        data: the same as the inference takes them.
    """

    parts: Parts
    latent: Sites
    transitions: Transitions
    data: PyTree


class StagedSimulation(NamedTuple):
    """A simulation whose inference is not traceable: truth and data, then the posterior on the host, then its ranks.

    Args:
        simulate: key -> truth and data; traceable.
        infer: (key, data) -> the posterior, and of draws of equal weight what lies below these; on the host.
        examine: (key, truth and data, posterior, draws) -> ranks; traceable.
    """

    simulate: Callable[[PRNGKeyArray], Simulated]
    infer: Callable[[PRNGKeyArray, PyTree], tuple[Fitted, ComponentDraws | None]]
    examine: Callable[[PRNGKeyArray, Simulated, Fitted, ComponentDraws | None], dict[str, Rank]]


class _Keys(NamedTuple):
    truth: PRNGKeyArray
    data: PRNGKeyArray
    fit: PRNGKeyArray
    draws: PRNGKeyArray
    ties: PRNGKeyArray


def _keys(key: PRNGKeyArray) -> _Keys:
    return _Keys(*jax.random.split(key, 5))


def simulation(design: Design, fit: Fit) -> Callable[[PRNGKeyArray], dict[str, Rank]] | StagedSimulation:
    """key -> `Rank` of every quantity in one simulated data set. Traceable (vmap it over keys), but for its inference
    where that is an integral in NumPy.

    The SBC loop: truth and data, posterior given the data, draws of it, and the rank of the truth among the draws of
    every quantity.
    """

    def simulate(key: PRNGKeyArray) -> Simulated:
        # A truth near a log, or from the prior.
        keys, from_prior = _keys(key), partial(_draw_from_prior, design)
        law, latent, transitions = (design.draw_truth or from_prior)(keys.truth, keys.data)
        return Simulated(_observer(design, transitions)(law), latent, transitions, fit.summarise(transitions))

    def examine(
        key: PRNGKeyArray, simulated: Simulated, posterior: Fitted, below: ComponentDraws | None = None
    ) -> dict[str, Rank]:
        keys, (parts, latent, transitions, _) = _keys(key), simulated
        # Of each draw only what quantities need is kept: draws of whole laws would take more memory.
        look = _observer(design, transitions)
        if below is None:
            drawn, sites = look_at_draws(keys.draws, posterior, design, look)
        else:
            drawn, sites = _look_at_components(posterior, below, design, look)
        sites = {name: values for name, values in sites.items() if name in latent}
        # The truth comes first, followed by the L draws: quantities are computed for all of them in the same way.
        truth = parts, {name: latent[name] for name in sites}
        everything = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), truth, (drawn, sites))
        # A function of the data alone: given these, truth and draws stay exchangeable.
        # The choice knows the data, not the truth.
        chosen = solve(posterior.mean_mdp(), design.objective).policy if design.chooses else None
        values = jax.vmap(lambda parts, sites: _values(design, transitions, parts, sites, chosen))(*everything)
        ties = jax.random.split(keys.ties, len(values))
        # One small program for all quantities; of values in one dtype, that of most.
        ranks = jax.vmap(rank_of_truth)(ties, jnp.stack([value.astype(float) for value in values.values()]))
        # JAX sorts the names of a dict; it keeps the order of an OrderedDict.
        return OrderedDict((name, jax.tree.map(lambda x, i=i: x[i], ranks)) for i, name in enumerate(values))

    if fit.draws_on_host is not None:
        num, draws_on_host = max(design.num_draws, LEAST_COMPONENTS), fit.draws_on_host

        def infer(key: PRNGKeyArray, data: PyTree) -> tuple[Fitted, ComponentDraws | None]:
            key = _keys(key).fit
            posterior = draws_on_host(key, data, num)
            return posterior, posterior.draw_below(jax.random.fold_in(key, 2))

        return StagedSimulation(simulate, infer, examine)

    def one(key: PRNGKeyArray) -> dict[str, Rank]:
        simulated = simulate(key)
        return examine(key, simulated, fit.infer(_keys(key).fit, simulated.data))

    return one


def _draw_from_prior(design: Design, key_truth: PRNGKeyArray, key_data: PRNGKeyArray) -> Truth:
    # The program draws parameters; data are simulated below.
    with handlers.trace() as trace, handlers.seed(rng_seed=key_truth):
        spec = design.prior(design.space)
    sites = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
    # Where a behaviour starts; pairs at random do not ask for it.
    initial = jnp.full(design.space.n_states, 1.0 / design.space.n_states)
    truth = environment(spec, design.space, initial)
    transitions = simulate(key_data, truth, design.space, design.num_transitions, design.behaviour)
    law = Law(transition_table(spec, design.space), reward_table(spec, design.space))
    return Truth(law, sites, transitions)


def simulate(
    key: PRNGKeyArray, environment: Environment, space: StateActionSpace, num: int, behaviour: Behaviour
) -> Transitions:
    """`num` transitions. Traceable.

    Args:
        key: of all transitions.
        environment: to be simulated.
        space: of the environment.
        num: number of transitions.
        behaviour: None: (step,) state and action of each transition are uniform over the legal pairs, independently. A
            policy (as for `policy_probs`): it is followed from `environment.mdp.initial`, and restarts there after an
            end or the last step of an episode.
    """
    if behaviour is None:
        return _independent(key, environment, space, num)
    return _follow(key, environment, space, num, behaviour)


def uniform_policy(space: StateActionSpace) -> Float[np.ndarray, "S A"]:
    # The same in every state: 1 / number of legal actions.
    """Every legal action equally likely."""
    legal = np.ones(space.shape[-2:], bool) if space.legal is None else np.asarray(space.legal)
    return legal / legal.sum(-1, keepdims=True)


def _independent(key: PRNGKeyArray, environment: Environment, space: StateActionSpace, num: int) -> Transitions:
    key_pair, key_step = jax.random.split(key)
    # Uniform over the legal pairs by their list: no pair is drawn and thrown away.
    cells = np.argwhere(np.broadcast_to(True if space.legal is None else space.legal, space.shape))
    chosen = jnp.asarray(cells)[jax.random.randint(key_pair, (num,), 0, len(cells))]
    *step, state, action = chosen.T
    step = step[0] if step else jnp.zeros_like(state)
    outcome = jax.vmap(environment.step)(jax.random.split(key_step, num), state, action, step)
    return _transitions(space, state, action, step, outcome)


def _follow(
    key: PRNGKeyArray, environment: Environment, space: StateActionSpace, num: int, behaviour: PolicyLike
) -> Transitions:
    key_start, key_steps = jax.random.split(key)
    log_probs = jnp.log(policy_probs(behaviour, environment.mdp, horizon=space.horizon))

    def advance(carry: Walk, key: PRNGKeyArray) -> tuple[Walk, tuple[Array, Array, Array, Outcome]]:
        state, step = carry
        key_action, key_step, key_reset = jax.random.split(key, 3)
        # A stationary policy, or one of the step.
        probs_here = log_probs[state] if log_probs.ndim == 2 else log_probs[step, state]
        action = jax.random.categorical(key_action, probs_here)
        outcome = environment.step(key_step, state, action, step)
        episode_over = outcome[2] if space.horizon is None else outcome[2] | (step == space.horizon - 1)
        # A new episode begins where the last one is over.
        next_state = jnp.where(episode_over, environment.reset(key_reset), outcome[0])
        next_step = jnp.where(episode_over, 0, step + 1) if space.horizon is not None else step
        return (next_state, next_step), (state, action, step, outcome)

    start = (environment.reset(key_start), jnp.zeros((), int))
    _, (state, action, step, outcome) = jax.lax.scan(advance, start, jax.random.split(key_steps, num))
    return _transitions(space, state, action, step, outcome)


def _transitions(
    space: StateActionSpace, state: Indices, action: Indices, step: Indices, outcome: Outcome
) -> Transitions:
    next_state, reward, terminated = outcome
    return Transitions(
        state,
        action,
        reward,
        next_state,
        terminated if space.ends else None,
        step=None if space.horizon is None else step,
    )


def _observer(design: Design, transitions: Transitions) -> Callable[[Law], Parts]:
    def look(law: Law) -> Parts:
        return law.mdp(design.space), law.noise(), law.log_likelihood(transitions, design.space)

    return look


def look_at_draws(
    key: PRNGKeyArray, posterior: Fitted, design: Design, look: Callable[[Law], Kept]
) -> tuple[Kept, Sites]:
    """`look` of L draws, and the latent sites that the posterior holds by name; all arrays have a leading axis L.

    Args:
        key: of the draws.
        posterior: to be drawn from.
        design: number of draws, prior and space.
        look: what to keep of the law of one draw.
    """
    key_thin, key_draw = jax.random.split(key)
    num = design.num_draws
    keys = jax.random.split(key_draw, num)
    if not isinstance(posterior, CanThin):
        if posterior.log_weights is None or not posterior.site_draws:
            return jax.vmap(lambda key: look(posterior.sample_law(key)))(keys), {}

        def one(key: PRNGKeyArray) -> tuple[Kept, Sites]:
            # The draw of `sample_law`, with the values of the sites that made its component.
            key_component, key_draws = jax.random.split(key)
            k = jax.random.categorical(key_component, jnp.asarray(posterior.log_weights))
            return look(posterior.law_at(key_draws, k)), {
                name: jnp.asarray(values)[k] for name, values in posterior.site_draws.items()
            }

        return jax.vmap(one)(keys)
    # Weighted draws are resampled to equal weights, in random order.
    thin = posterior.thinned(key_thin, max(num, LEAST_COMPONENTS))
    draw_index = jax.random.permutation(key_draw, max(num, LEAST_COMPONENTS))[:num]
    sites = {name: values[draw_index] for name, values in thin.site_draws.items()}
    return jax.vmap(lambda key, k: look(thin.law_at(key, k)))(keys, draw_index), sites


def _look_at_components(
    posterior: Fitted, draws: ComponentDraws, design: Design, look: Callable[[Law], Kept]
) -> tuple[Kept, Sites]:
    """`look_at_draws` where the components are draws of equal weight, with one draw of what lies below each."""
    draw_index = jnp.arange(design.num_draws)
    sites = {name: jnp.asarray(values)[draw_index] for name, values in posterior.site_draws.items()}
    components: Any = posterior  # has some, as it draws below them
    return jax.vmap(lambda k: look(draws.law(components.component(k), k)))(draw_index), sites


def _values(
    design: Design, transitions: Transitions, parts: Parts, sites: Sites, chosen: Int[Array, "*H S"] | None
) -> OrderedDict[str, Float[Array, ""]]:
    # `chosen`: the actions whose values are ranked, the same for the truth and for every draw.
    mdp, noise, log_likelihood = parts
    policy = uniform_policy(design.space) if design.behaviour is None else design.behaviour
    drawn = Drawn(mdp, noise, log_likelihood, sites, transitions, policy, design.objective, chosen)
    quantities = default_quantities(design.space) if design.quantities is None else design.quantities
    values = OrderedDict((name, jnp.asarray(quantity(drawn))) for name, quantity in quantities.items())
    for name, value in values.items():
        if value.shape:
            raise ValueError(f"quantities[{name!r}] gives an array of shape {value.shape}, expected one number")
    if design.quantities is None:
        for name, value in sites.items():
            values.update(_numbers_of(name, jnp.asarray(value)))
    return values


def _numbers_of(name: str, value: Real[Array, "..."]) -> dict[str, Real[Array, ""]]:
    """What is ranked of a site: the number, each element of a few, the mean of many."""
    if not value.shape:
        return {name: value}
    if value.size > MOST_ELEMENTS:
        # A mean of many elements is one number: a rank for each would cost power.
        return {f"mean of {name} {list(value.shape)}": value.mean()}
    return {f"{name}[{', '.join(map(str, index))}]": value[index] for index in np.ndindex(value.shape)}


def rank_of_truth(key: PRNGKeyArray, values: Float[Array, " points"]) -> Rank:
    """Rank of the first value among the others. If it equals k of them, each of k + 1 ranks is equally likely."""
    truth, draws = values[0], values[1:]
    num_below, equal = (draws < truth).sum(), (draws == truth).sum()
    rank = num_below + jax.random.randint(key, (), 0, equal + 1)
    return Rank(rank, truth, draws.mean(), draws.std(), jnp.isfinite(values).all(), draws)
