"""The belief and the plans of [EUBE23]: stationary, discounted, made before every episode; data may count repeatedly.

Settings, read from the authors' public program: discount .99; rows Dirichlet(1 / sqrt(S)) over all S states and an end
state; mean rewards N(0, 1), rewards of standard deviation .001 around them; 5 sampled MDPs a plan, scale 1, at most 40
evaluations a plan; in DeepSea of size L every transition counts as L observations.
"""

from dataclasses import replace
from typing import Any, TypeAlias

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents import PSRL, UBE, ExactUBE, MonteCarloThompson
from bayes_mdp.agents.value_uncertainty.exact_ube import VarianceOptimism
from bayes_mdp.experiments.rollout.run_beliefs import on_device
from bayes_mdp.inference import infer
from bayes_mdp.mdp import Agent, CanUpdate, Discounted, Environment, Policy, Problem, StateActionSpace, Transitions
from bayes_mdp.models import dirichlet_normal
from bayes_mdp.utils.typing import Scalar

DISCOUNT, NUM_DRAWS, NOISE = 0.99, 5, 1e-3
State: TypeAlias = tuple[CanUpdate, Any]
"""The belief, and the state of the agent that plans."""

METHODS: dict[str, Agent] = {
    "psrl": PSRL(),
    "ensemble": VarianceOptimism("ensemble", num_draws=NUM_DRAWS),
    "bound": VarianceOptimism("bound", num_draws=NUM_DRAWS),
    "exact": VarianceOptimism("exact", num_draws=NUM_DRAWS),
    "ube_thompson": UBE(),
    "draws_thompson": MonteCarloThompson(NUM_DRAWS, joint=False),
    "exact_thompson": ExactUBE(NUM_DRAWS),
}
"""The four of [EUBE23], and the agents of the package that draw from variances of the plan of the mean MDP."""

PUBLISHED = ("psrl", "ensemble", "bound", "exact")


class DiscountedEpisodes(eqx.Module):
    """An agent that plans for discounted rewards, stationary, in a run of episodes; it keeps its own belief.

    Args:
        agent: what plans.
        belief: before data.
        repeats: as how many observations a transition counts.
    """

    agent: Agent
    belief: CanUpdate
    repeats: float = 1.0
    replan: str = eqx.field(default="episode", static=True)

    def init(self, key: PRNGKeyArray, problem: Problem) -> State:
        """The belief before data, and the agent's own state."""
        return self.belief, self.agent.init(key, _discounted(problem))

    def plan(self, key: PRNGKeyArray, problem: Problem, state: State, belief: None) -> tuple[Policy, State]:
        """A stationary policy from the belief so far."""
        del belief
        mine, own = state
        policy, own = self.agent.plan(key, _discounted(problem), own, mine)
        return policy, (mine, own)

    def observe(self, problem: Problem, state: State, transition: Transitions, weight: Scalar = 1.0) -> State:
        """The belief after one transition that counts `repeats` times."""
        del problem
        mine, own = state
        return mine.update(replace(transition, step=None), weight * self.repeats), own


def _discounted(problem: Problem) -> Problem:
    return Problem(problem.space, Discounted(DISCOUNT), problem.initial)


def discounted_episodes(
    name: str, env: Environment, repeats: float = 1.0
) -> tuple[DiscountedEpisodes, StateActionSpace]:
    """A method by its name with the prior of [EUBE23], and the space that it is given: every pair may end.

    Args:
        name: one of `METHODS`.
        env: for its sizes.
        repeats: as how many observations a transition counts.
    """
    space = StateActionSpace(env.mdp.n_states, env.mdp.n_actions, ends=True)
    prior = dirichlet_normal(env.mdp.n_states**-0.5, 0.0, 1.0, NOISE)
    belief = on_device(infer(jax.random.key(0), prior, None, space=space))
    assert isinstance(belief, CanUpdate)
    return DiscountedEpisodes(METHODS[name], belief, repeats), space
