"""The problems of `compare`: small environments in episodes, that every agent of the package but `TSDE` can play.

Each is the tables of a named environment with its mean rewards mapped onto [0, 1] by one affine function, which changes
neither the best policies nor a normalised score, and rewards that are normal around them with standard deviation .1
(`NOISE`): what agents assume of rewards (theorems want them in [0, 1]) then holds for all problems alike. Levels are
therefore not those of the papers that the environments come from.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs import chain, deep_sea, garnet, osband_chain, riverswim_episodic, wide_narrow
from bayes_mdp.experiments.run_config import PriorLike
from bayes_mdp.mdp import MDP, Environment, Episodic, NormalReward, Objective, SparseMDP
from bayes_mdp.mdp.objectives import check_objective, require_undiscounted
from bayes_mdp.utils.validation import check_count

NOISE = 0.1
N_STATES, HORIZON, NUM_EPISODES = 8, 10, 500


@dataclass(frozen=True)
class Task:
    """What agents are compared on.

    Args:
        env: an `Environment`.
        objective: what agents plan for.
        length: number of episodes under `Episodic`, otherwise of steps.
        prior: as in `run`; None: for agents that need none.

    Raises:
        ValueError: `length` is below 1, episodes with a discount.
        TypeError: no `Environment`, no objective, no integer.
    """

    env: Environment
    objective: Objective
    length: int
    prior: PriorLike = None

    def __post_init__(self) -> None:
        if not isinstance(self.env, Environment):
            raise TypeError(f"env is a {type(self.env).__name__}, expected an Environment")
        check_objective(self.objective)
        require_undiscounted(self.objective, "runs of agents")
        check_count("length", self.length)

    @property
    def num_steps(self) -> int | None:
        """For `run`: the length, where it is measured in steps."""
        return None if isinstance(self.objective, Episodic) else self.length

    @property
    def num_episodes(self) -> int | None:
        """For `run`: the length, where it is measured in episodes."""
        return self.length if isinstance(self.objective, Episodic) else None


def _riverswim() -> Task:
    """RiverSwim of TabulaRL, 6 states: the large reward is upstream, a small one downstream."""
    return _shared(riverswim_episodic())


def _osband_chain() -> Task:
    """The stochastic chain of TabulaRL, 7 states: what pays is at the far end."""
    return _shared(osband_chain(7, stochastic=True))


def _chain() -> Task:
    """Chain of Strens, 5 states, slip .2: a small reward is near."""
    return _shared(chain())


def _garnet() -> Task:
    """A random MDP of 8 states with 3 successors of every pair: no exploration problem by design."""
    return _shared(garnet(N_STATES, 2, 3))


def _deep_sea() -> Task:
    """DeepSea of depth 8, rows that depend on the step: a random policy meets the goal once in 256 episodes."""
    return _task(deep_sea(8), 8)


def _wide_narrow() -> Task:
    """WideNarrow, 6 actions in one of 3 states: exploration that goes on costs."""
    return _task(wide_narrow(6), HORIZON)


PROBLEMS: dict[str, Callable[[], Task]] = {
    "riverswim": _riverswim,
    "chain": _chain,
    "osband_chain": _osband_chain,
    "garnet": _garnet,
    "deep_sea": _deep_sea,
    "wide_narrow": _wide_narrow,
}
"""Name -> factory of the task."""

DEFAULT_PROBLEMS = ("riverswim", "chain", "osband_chain", "garnet", "deep_sea")
QUICK_PROBLEMS = ("riverswim", "osband_chain", "garnet")


def _shared(env: Environment) -> Task:
    """The task padded to `N_STATES` states with states that nothing leads to and whose rows have 3 next states.

    All these tasks then have arrays of the same shapes, and an agent is compiled once for all of them.
    """
    mdp = _dense(env)
    n, more = mdp.n_states, N_STATES - mdp.n_states
    rows = np.zeros((N_STATES, mdp.n_actions, N_STATES))
    rows[:n, :, :n] = mdp.transition_probs
    rows[n:, :, :3] = 1 / 3
    reward = np.concatenate([mdp.reward, np.full((more, mdp.n_actions), np.min(mdp.reward))])
    padded = MDP(rows, reward, initial=np.pad(np.asarray(mdp.initial), (0, more)))
    return _task(Environment(padded, NormalReward(padded.reward), name=env.name), HORIZON)


def _task(env: Environment, horizon: int) -> Task:
    """The environment with rewards in [0, 1] and noise, and a prior with the true standard deviation of the noise."""
    from bayes_mdp.models import dirichlet_normal

    mdp = _dense(env)
    reward = np.asarray(mdp.reward, np.float64)
    reward = (reward - reward.min()) / (reward.max() - reward.min())
    unit = MDP(mdp.transition_probs, reward, legal=mdp.legal, initial=mdp.initial)
    law = NormalReward(unit.reward, jnp.asarray(NOISE, unit.reward.dtype))
    # Total concentration 1: a flat Dirichlet over all states would outweigh the data of a short run.
    prior = dirichlet_normal(1.0 / mdp.n_states, 0.0, 1.0, NOISE)
    return Task(Environment(unit, law, name=env.name), Episodic(horizon), NUM_EPISODES, prior)


def _dense(env: Environment) -> MDP:
    return env.mdp.to_dense() if isinstance(env.mdp, SparseMDP) else env.mdp
