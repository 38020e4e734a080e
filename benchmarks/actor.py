"""Speed of an `Actor` in a Gymnasium loop, beside the environment alone and an agent of eager JAX calls.

    python -m benchmarks.actor

Microseconds of CPU time of the process (all threads) a step, warm, the median over repeats and the least.
"environment": random actions, nothing else. "host": what the actor does between two plans. "one plan": the compiled
call (learn, draw, plan, table), which happens once in 20 steps. The peer draws and plans with the same library, as one
would write it at a prompt: an update a step, `act` of the policy with a key of its own, a plan every 20 steps, nothing
compiled as a whole.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import bayes_mdp as bm
from bayes_mdp.agents import PSRL, EpsilonGreedyQ
from bayes_mdp.agents.common.replan import EverySteps
from bayes_mdp.envs import riverswim
from bayes_mdp.mdp import Discounted, Problem, StateActionSpace, Transitions
from bayes_mdp.models import dirichlet_normal_gamma
from benchmarks.record.turns import Measured, Size, in_turns
from benchmarks.scaled_rewards import scaled

REPEATS, STEPS, PERIOD = 7, 4000, 20


def timed(loop: Callable[[int], Any], steps: int, repeats: int = REPEATS) -> tuple[float, float]:
    """Median and least microseconds a step, the first repeat left out."""
    loop(max(steps // 10, PERIOD))
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        loop(steps)
        seconds.append((time.process_time() - began) / steps * 1e6)
    return statistics.median(seconds), min(seconds)


def show(task: str, who: str, figures: tuple[float, float]) -> None:
    """One line."""
    print(f"{task:28s} {who:44s} {figures[0]:9.2f} us {figures[1]:9.2f} us", flush=True)


def environment(env: Any) -> Callable[[int], None]:
    """The environment alone."""
    actions = np.random.default_rng(0).integers(env.action_space.n, size=STEPS).tolist()

    def loop(steps: int) -> None:
        env.reset(seed=0)
        for i in range(steps):
            _, _, terminated, truncated, _ = env.step(actions[i])
            if terminated or truncated:
                env.reset()

    return loop


def acting(env: Any, actor: bm.Actor) -> Callable[[int], None]:
    """The environment and an actor."""

    def loop(steps: int) -> None:
        observation, _ = env.reset(seed=0)
        actor.reset(observation)
        for _ in range(steps):
            action = actor.act(observation)
            next_state, reward, terminated, truncated, _ = env.step(action)
            actor.observe(observation, action, reward, next_state, terminated, truncated)
            observation = next_state
            if terminated or truncated:
                observation, _ = env.reset()
                actor.reset(observation)

    return loop


def eager(env: Any, agent: Any, problem: Problem, belief: Any) -> Callable[[int], None]:
    """The same agent without a compiled step: the peer."""
    key = jax.random.key(0)

    def loop(steps: int) -> None:
        state, now = agent.init(key, problem), belief
        policy: Any = None
        observation, _ = env.reset(seed=0)
        for i in range(steps):
            if i % PERIOD == 0:
                policy, state = agent.plan(jax.random.fold_in(key, i), problem, state, now)
            action = int(policy.act(jax.random.fold_in(key, i), observation))
            next_state, reward, terminated, truncated, _ = env.step(action)
            now = now.update(Transitions(observation, action, reward, next_state, terminated))
            observation = env.reset()[0] if terminated or truncated else next_state

    return loop


def parts(task: str, actor: bm.Actor) -> None:
    """The actor's own work: between two plans, and one plan."""
    mind, action = actor._core, actor.act(0)
    actor.observe(0, action, 0.0, 0, False, False)

    def host(steps: int) -> None:
        for i in range(steps):
            if i % (PERIOD - 1) == 0:
                mind._empty()
                actor._news = False
                actor._times[0] = actor._table_times[0]
            chosen = actor.act(0)
            actor.observe(0, chosen, 0.0, 0, False, False)
            actor._news = False

    show(task, "host, a step", timed(host, STEPS))

    def plans(steps: int) -> None:
        for i in range(steps):
            mind.plan(i, [i])

    show(task, "one plan (every 20 steps)", timed(plans, 500))


def case(task: str, env: Any, space: StateActionSpace) -> None:
    """One environment: alone, with actors, with the peer."""
    prior, objective = dirichlet_normal_gamma(1.0), Discounted(0.95)
    show(task, "environment", timed(environment(env), STEPS))
    for name, agent in (
        ("PSRL(20)", PSRL(PERIOD)),
        ("Q-learning, a plan every 20 steps", EpsilonGreedyQ(replan=EverySteps(PERIOD))),
    ):
        actor = bm.Actor(agent, space, objective=objective, key=jax.random.key(0), prior=prior)
        show(task, f"environment + Actor, {name}", timed(acting(env, actor), STEPS))
        parts(f"{task}, {name[:6]}", actor)
    belief = bm.infer(jax.random.key(0), prior, None, space=space)
    show(
        task,
        "environment + eager PSRL(20)",
        timed(eager(env, PSRL(PERIOD), Problem(space, objective), belief), PERIOD, 3),
    )


def main() -> None:
    """The table."""
    print(f"{'':28s} {'':44s} {'median':>12s} {'least':>12s}")
    for task, (env, space) in environments().items():
        case(task, env, space)


def environments() -> dict[str, tuple[Any, StateActionSpace]]:
    """By name."""
    import gymnasium

    return {
        "RiverSwim (to_gymnasium)": (bm.envs.to_gymnasium(scaled(riverswim(), 1e-4)), StateActionSpace(6, 2)),
        "FrozenLake-v1": (gymnasium.make("FrozenLake-v1"), StateActionSpace(16, 4, ends=True)),
        "FrozenLake8x8-v1": (gymnasium.make("FrozenLake8x8-v1"), StateActionSpace(64, 4, ends=True)),
    }


def measure(size: Size) -> Iterator[Measured]:
    """Lines of the record: environment and agent, a step."""
    prior, objective = dirichlet_normal_gamma(1.0), Discounted(0.95)
    for task, (env, space) in environments().items():
        actor = bm.Actor(PSRL(PERIOD), space, objective=objective, key=jax.random.key(0), prior=prior)
        belief = bm.infer(jax.random.key(0), prior, None, space=space)
        ours, peer = acting(env, actor), eager(env, PSRL(PERIOD), Problem(space, objective), belief)
        yield in_turns(
            f"{task}, Actor with PSRL({PERIOD})",
            "step",
            lambda ours=ours: ours(STEPS),
            "the same in eager JAX",
            lambda peer=peer: peer(PERIOD),
            size,
            units=(STEPS, PERIOD),
        )


if __name__ == "__main__":
    main()
