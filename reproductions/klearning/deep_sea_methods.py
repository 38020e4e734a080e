"""[KL21] (O'Donoghue 2021) section 4: DeepSea, what is believed of it, and the methods that are compared.

The paper prints neither the noise of the rewards nor its priors nor the constants of the rival methods. Ours: noise .1,
mean rewards N(0, 1), and unknown transitions with a Dirichlet prior over the cells of the next layer that can be
reached, of total concentration 1, the least that the paper's assumption 1 allows. With the printed constants of
K-learning its figure 2 does not come out; with known transitions and the posterior variance of the mean rewards it
does. Both are here. The bonuses of the rivals are those of their theorems and, "scaled",
those times round numbers of ours that were not tuned.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, PRNGKeyArray

from bayes_mdp.agents.model_free.episodic_q import UCBH
from bayes_mdp.agents.model_free.soft_q import SoftQ, SoftQMean
from bayes_mdp.agents.model_free.tabular_q import EpsilonGreedyQ
from bayes_mdp.agents.optimism.k_learning import KLearning
from bayes_mdp.agents.optimism.mean_mdp_plans import BEB, BOLT, EpsilonGreedyMean
from bayes_mdp.agents.optimism.ucbvi import UCBVI
from bayes_mdp.agents.optimism.ucrl2 import UCFH, UCRL2
from bayes_mdp.agents.psrl import PSRL
from bayes_mdp.agents.rlsvi import RLSVI
from bayes_mdp.envs.papers.chain_mdps import RIGHT, deep_sea, reachable
from bayes_mdp.experiments.run_config import RunConfig, RunOptions
from bayes_mdp.mdp import Environment, Episodic, StateActionSpace

if TYPE_CHECKING:
    from bayes_mdp.models import MDPSpec

NOISE = 0.1
Dynamics = Literal["known", "unknown", "model-free"]


@dataclass(frozen=True)
class Method:
    """An agent of the comparison.

    Args:
        label: for the figure.
        agent: L -> the agent.
        dynamics: what it believes of the transitions; "model-free": it has no belief.
        scaled: its bonus is scaled down by us.
    """

    label: str
    agent: Callable[[int], Any]
    dynamics: Dynamics
    scaled: bool = False


def _k_learning(size: int, temperature: str, bonus: str = "paper", span: float | None = None) -> KLearning:
    num_states = int(reachable(size).sum())
    return KLearning(temperature, bonus=bonus, span=span, noise=NOISE, num_states=num_states)  # pyright: ignore[reportArgumentType]


def _each(agent: Callable[[], Any]) -> Callable[[int], Any]:
    """The same agent for every L."""
    return lambda size: agent()


METHODS: dict[str, Method] = {
    "psrl": Method("PSRL", _each(PSRL), "unknown"),
    "psrl_known": Method("PSRL, known P", _each(PSRL), "known"),
    "k_optimal": Method("K-learning, optimal", partial(_k_learning, temperature="optimal"), "unknown"),
    "k_schedule": Method("K-learning, schedule", partial(_k_learning, temperature="schedule"), "unknown"),
    "k_optimal_span1": Method(
        "K-l., optimal, span 1", partial(_k_learning, temperature="optimal", span=1.0), "unknown"
    ),
    "k_schedule_span1": Method(
        "K-l., schedule, span 1", partial(_k_learning, temperature="schedule", span=1.0), "unknown"
    ),
    "k_optimal_known": Method(
        "K-l., optimal, known P", partial(_k_learning, temperature="optimal", bonus="posterior"), "known"
    ),
    "k_schedule_known": Method(
        "K-l., schedule, known P", partial(_k_learning, temperature="schedule", bonus="posterior", span=0.0), "known"
    ),
    "k_optimal_known_counts": Method(
        "K-l., optimal, known P, counts", partial(_k_learning, temperature="optimal"), "known"
    ),
    "rlsvi": Method("RLSVI", _each(lambda: RLSVI(noise=NOISE)), "model-free"),
    "ucbvi": Method("UCBVI", _each(UCBVI), "unknown"),
    "ucbvi_scaled": Method("UCBVI, scaled", _each(lambda: UCBVI(bonus_scale=0.001)), "unknown", scaled=True),
    "ucb_h": Method("UCB-H", _each(lambda: UCBH(1.0)), "model-free"),
    "ucb_h_scaled": Method("UCB-H, scaled", _each(lambda: UCBH(0.01)), "model-free", scaled=True),
    "beb": Method("BEB", _each(BEB), "unknown"),
    "beb_scaled": Method("BEB, scaled", _each(lambda: BEB(1.0)), "unknown", scaled=True),
    "bolt": Method("BOLT", _each(BOLT), "unknown"),
    "ucrl2": Method("UCRL2", _each(lambda: UCRL2(replan="episode")), "unknown"),
    "ucfh": Method("UCFH", _each(UCFH), "unknown"),
    "epsilon_greedy_q": Method("epsilon-greedy Q", _each(lambda: EpsilonGreedyQ(replan="episode")), "model-free"),
    "epsilon_greedy_mean": Method("epsilon-greedy on the mean model", _each(EpsilonGreedyMean), "unknown"),
    "soft_q": Method("soft Q", _each(lambda: SoftQ(replan="episode")), "model-free"),
    "soft_q_mean": Method("soft Q on the mean model", _each(SoftQMean), "unknown"),
    "soft_q_known": Method("soft Q, known P", _each(SoftQMean), "known"),
}


def goal(size: int) -> Bool[np.ndarray, "L L 2"]:
    """The pair that pays: right in the bottom-right cell."""
    target = np.zeros((size, size, 2), bool)
    target[-1, -1, RIGHT] = True
    return target


def known_transitions(env: Environment, *, noise: float = NOISE) -> Any:
    """A prior program: known transitions of `env`, mean rewards N(0, 1), known noise."""
    rows = np.asarray(env.mdp.to_dense().transition_probs)  # type: ignore[union-attr]

    def prior(space: StateActionSpace) -> "MDPSpec":
        import numpyro
        import numpyro.distributions as dist

        from bayes_mdp.models import MDPSpec

        with space.plates():
            mean = numpyro.sample("reward", dist.Normal(0.0, 1.0))
        return MDPSpec(rows, dist.Normal(mean, noise))

    return prior


def next_layer(size: int) -> Bool[np.ndarray, "L L 2 L"]:
    """Whether a cell of the next layer can be reached at all; after the last layer, which nothing follows, all."""
    cells = np.vstack([reachable(size)[1:], np.ones((1, size), bool)])
    return np.broadcast_to(cells[:, None, None, :], (size, size, 2, size))


def unknown_transitions(size: int, *, noise: float = NOISE) -> Any:
    """A prior program: a Dirichlet of total 1 over `next_layer`, mean rewards N(0, 1), known noise."""
    from bayes_mdp.models import dirichlet_normal

    return dirichlet_normal(1.0 / next_layer(size).sum(-1, keepdims=True), 0.0, 1.0, noise)


def case(name: str, size: int, key: PRNGKeyArray, num_episodes: int, num_seeds: int) -> RunConfig:
    """A method on DeepSea of L = `size`, the visits of the goal counted. All methods meet the same random numbers."""
    method, env = METHODS[name], deep_sea(size, noise=NOISE)
    support = next_layer(size) if method.dynamics == "unknown" else None
    space = StateActionSpace(size, 2, horizon=size, support=support)
    prior = None
    if method.dynamics != "model-free":
        prior = known_transitions(env) if method.dynamics == "known" else unknown_transitions(size)
    options = RunOptions(space=space, progress=False, target=goal(size))
    agent = method.agent(size)
    return RunConfig(agent, env, Episodic(size), key, prior, None, num_episodes, num_seeds, "average", options)
