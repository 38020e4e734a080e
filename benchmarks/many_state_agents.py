"""Agents in many states with few successors: rewards of a step as they learn, CPU seconds, peak memory.

`python -m benchmarks.many_state_agents [environment agent]` runs one pair in this process. Without arguments: all of
them, each in a process of its own, since peak memory is that of a process.

* `ring`: a Garnet of 10^5 states, 4 actions, 8 successors a pair, all within 20 places on a ring: an agent can learn
  its surroundings long before it has seen every state.
* `garnet`: `envs.garnet(10**5, 4, 5)`, whose successors lie anywhere; 4 10^5 pairs, of which most are never used.
* `maze`: the maze of 50 x 50 cells, 2,500 states. Agents with a prior know what it pays to enter a cell, and not to
  which of its neighbours an action leads; the others know neither.

`optimal` is the mean reward of a step of an optimal policy that meets the same random numbers. `share` is what an agent
gained over uniform play in the last tenth of the run, of what the optimal policy gains.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import bayes_mdp as bm
from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.experiments.rollout.simulator import simulator
from bayes_mdp.mdp import Agent, NormalReward, Objective, SparseMDP
from bayes_mdp.models.mdp_spec import Prior

STATES, ACTIONS, SUCCESSORS, REACH = 100_000, 4, 8, 20


class Task(NamedTuple):
    """An environment and how it is played.

    `every`: steps of a plan; `v_max`: optimism of the learners; `scale` and `noise`: of moment matching.
    """

    make: Callable[[], bm.Environment]
    objective: Objective
    num_steps: int
    every: int
    v_max: float
    prior: Callable[[bm.Environment], Prior]
    scale: float = 1.0
    noise: str = "per_plan"


def ring(states: int = STATES, seed: int = 0) -> bm.Environment:
    """A Garnet whose pairs lead to 8 different states within 20 places on a ring, mean rewards N(0, 1)."""
    rng, pairs = np.random.default_rng(seed), (states, ACTIONS)
    away = rng.random((*pairs, 2 * REACH + 1)).argsort(-1)[..., :SUCCESSORS] - REACH
    successor = (np.arange(states)[:, None, None] + away) % states
    cuts = np.sort(rng.random((*pairs, SUCCESSORS - 1)), -1)
    probability = np.diff(cuts, axis=-1, prepend=0.0, append=1.0)
    mdp = SparseMDP(successor, probability, rng.standard_normal(pairs), initial=np.eye(1, states)[0])
    return bm.Environment(mdp, NormalReward(mdp.reward, jnp.asarray(0.1)), name=f"ring_{states}_seed_{seed}")


def _known_noise(env: bm.Environment) -> Prior:
    """Unknown rows and mean rewards N(0, 1); the noise of a reward is known."""
    del env
    return bm.models.dirichlet_normal(noise_scale=0.1)


def _known_payments(env: bm.Environment) -> Prior:
    """Unknown rows; what a pair and its listed next state pay is known."""
    law = env.reward_law
    assert isinstance(law, ListedReward)
    same = (
        np.asarray(listed_space(env).successors)[..., :, None] == np.asarray(law.outcome)[..., None, :]
    )  # [S, A, place, entry]
    paid = np.take_along_axis(np.asarray(law.value), same.argmax(-1), -1)
    return bm.models.known_rewards(np.where(same.any(-1), paid, 0.0), 0.25)


TASKS = {
    "ring": Task(ring, bm.Discounted(0.9), 200_000, 4_000, 10.0, _known_noise),
    "garnet": Task(lambda: bm.envs.garnet(STATES, 4, 5), bm.Discounted(0.9), 400_000, 10_000, 10.0, _known_noise),
    "maze": Task(bm.envs.maze_with_subgoals, bm.Discounted(0.995), 100_000, 500, 200.0, _known_payments, 0.3, "single"),
}


def agents(task: Task) -> dict[str, Agent]:
    """The agents of a task."""
    sweeping = bm.agents.PrioritizedSweeping(num_pops=2)
    return {
        "PSRL": bm.agents.PSRL(replan=task.every),
        "MomentMatching": bm.agents.MomentMatching(task.scale, task.noise, replan=task.every),
        "OIM": bm.agents.OIM(task.v_max, planner=sweeping, replan=min(10, task.every // 500)),
        "OIM, exact plans": bm.agents.OIM(task.v_max, replan=task.every),
        "RMax": bm.agents.RMax(task.v_max, 2, planner=sweeping, replan=min(10, task.every // 500)),
    }


def listed_space(env: bm.Environment) -> bm.StateActionSpace:
    """The successors of every pair of an environment, as knowledge."""
    assert isinstance(env.mdp, SparseMDP)
    listed = np.sort(np.where(np.asarray(env.mdp.probability) > 0, np.asarray(env.mdp.successor), -1), -1)
    listed[..., 1:][listed[..., 1:] == listed[..., :-1]] = -1
    return bm.StateActionSpace(*env.mdp.reward.shape, successors=listed)


def uniform_play(env: bm.Environment, num_steps: int) -> float:
    """Mean reward of a step under the uniform policy, from the first state on."""
    sim, n_actions = simulator(env), env.mdp.n_actions

    def step(state: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        act, move = jax.random.split(key)
        cell = (state, jax.random.randint(act, (), 0, n_actions))
        return sim.next_outcome(sim.uniform(move), cell), env.mdp.reward[cell]

    keys = jax.random.split(jax.random.key(1), num_steps)
    return float(jax.jit(lambda keys: jax.lax.scan(step, sim.reset(keys[0]), keys)[1].mean())(keys))


def played(name: str, agent: Agent, *, num_steps: int | None = None) -> tuple[np.ndarray, float]:
    """Mean reward of a step in every tenth of a run, and of an optimal policy."""
    task = TASKS[name]
    env, number = task.make(), num_steps or task.num_steps
    options = bm.experiments.RunOptions(
        space=listed_space(env), num_checkpoints=10, progress=False, regret="oracle_run"
    )
    result = bm.run(
        agent,
        env,
        objective=task.objective,
        key=jax.random.key(0),
        prior=task.prior(env),
        num_steps=number,
        options=options,
    )
    reward = result.reward.values[0]
    optimal = (result.regret.values[0, -1] + reward.sum()) / number
    return reward / (number / len(reward)), float(optimal)


def one(name: str, agent: str) -> None:
    """A line for an agent."""
    task = TASKS[name]
    start = time.process_time()
    rewards, optimal = played(name, agents(task)[agent])
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    chance = uniform_play(task.make(), 50_000)
    share = (rewards[-1] - chance) / (optimal - chance)
    print(
        f"{name:<7} {agent:<17} {seconds:7.1f} CPU-s  peak {peak:5.2f} GB  uniform {chance:7.3f}  first tenth "
        f"{rewards[0]:7.3f}  last tenth {rewards[-1]:7.3f}  optimal {optimal:7.3f}  share {share:5.2f}",
        flush=True,
    )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        one(sys.argv[1], sys.argv[2])
    else:
        for chosen in sys.argv[1:] or TASKS:
            for which in agents(TASKS[chosen]):
                subprocess.run([sys.executable, "-m", "benchmarks.many_state_agents", chosen, which], check=True)
