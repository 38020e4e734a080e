"""From what was asked to what is compiled: layout, simulator, truth, belief, keys."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from bayes_mdp.agents import ChecksOptimism, Learner
from bayes_mdp.experiments.beliefs import changing, initial_belief, listed, on_device, split_constants, thins
from bayes_mdp.experiments.case import Case
from bayes_mdp.experiments.layout import Layout, layout_of
from bayes_mdp.experiments.loop import Setting
from bayes_mdp.experiments.regret import Truth, needs_values, truth_of
from bayes_mdp.experiments.simulator import Simulator, simulator
from bayes_mdp.inference.sampling import fused_key, plain_key
from bayes_mdp.mdp import Environment, Problem, StateActionSpace, Transitions
from bayes_mdp.mdp.protocols import CanRefit
from bayes_mdp.models.tracing import traced_alone


class Prepared(NamedTuple):
    """A run, ready to be executed.

    `envs` is the environment, or one for every seed (`own_world`); `belief` the belief of all, or one for every seed
    (`own_belief`).
    """

    layout: Layout
    own_world: bool
    own_belief: bool
    envs: Environment
    setting: Setting
    keys: Key[Array, " N"]
    belief: Any
    space: StateActionSpace


def prepare(case: Case) -> Prepared:
    """Make everything that a run needs (host side: the prior is inferred here, the truth is solved)."""
    key_seeds, key_belief, key_worlds = jax.random.split(fused_key(case.key), 3)
    if isinstance(case.agent, ChecksOptimism) and not case.own_world:
        case.agent.check_optimism(_largest_reward(case.env))
    numbers = jnp.arange(case.num_seeds)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key_seeds, numbers)
    space, envs = case.space, case.env
    if case.own_world:
        envs = _draw_worlds(jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key_worlds, numbers), case, space)
    sim, values = simulator(envs), needs_values(case.regret, case.objective)
    truth = truth_of(envs.mdp, case.objective, batched=case.own_world) if values else Truth()
    belief, constants, own_belief = None, None, False
    if not isinstance(case.agent, Learner):
        belief, constants, own_belief = _belief(key_belief, case, space, sim)
    wears = isinstance(belief, CanRefit)
    layout = layout_of(case, ends=envs.mdp.end_probs is not None, values=values, wears=wears)
    problem = Problem(space, case.objective, case.env.mdp.initial)
    setting = on_device(Setting(case.agent, case.rule, problem, sim, truth, constants, case.options.target))
    return Prepared(layout, case.own_world, own_belief, envs, setting, keys, belief, space)


def _largest_reward(env: Environment) -> float:
    reward, legal = np.asarray(env.mdp.reward), env.mdp.legal
    return float(np.max(reward if legal is None else np.where(legal, reward, -np.inf)))


def _belief(key: Any, case: Case, space: StateActionSpace, sim: Simulator) -> tuple[Any, Any, bool]:
    """What a run changes of the belief (with an axis of seeds, if they have draws of their own), the rest, whether."""
    key = plain_key(key)
    whole = initial_belief(key, case.prior, space, case.agent, case.options.method)
    own, number = thins(whole, case.prior), case.options.num_particles
    if not case.own_world:
        whole = listed(whole, sim.outcome, space)
    parts = split_constants(on_device(whole.thinned(key, number) if own else whole), _example(space))
    if not own:
        return *parts, False
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(case.num_seeds))
    each = jax.jit(jax.vmap(lambda key: changing(whole.thinned(key, number), parts[0])))(keys)
    return each, parts[1], True


def _example(space: StateActionSpace) -> Transitions:
    number, index = jnp.zeros(()), jnp.zeros((), jnp.int32)
    ended = jnp.zeros((), bool) if space.ends else None
    return Transitions(index, index, number, index, ended, None, index)


@traced_alone
def _draw_worlds(keys: Key[Array, " N"], case: Case, space: StateActionSpace) -> Environment:
    """One environment for every seed, drawn from a program."""
    from numpyro import handlers

    from bayes_mdp.models import environment

    def draw(key: Any) -> Environment:
        world: Any = handlers.seed(case.worlds, rng_seed=key)(space)
        return environment(world, space, case.env.mdp.initial, name=case.env.name)

    return jax.jit(jax.vmap(draw))(keys)
