"""The mazes of [OIM08] table 3: learning in all of them at once, tests of the greedy policies, the exact optimum.

All mazes run side by side in one compiled program. Learning hands out the greedy policies that are to be tested; they
are tested afterwards, many together.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from bayes_mdp.agents.model_based.empirical_planning import ListedTally, SweptState
from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.mdp import Environment, Problem, SparseMDP, Transitions
from bayes_mdp.planning.solution import best_action
from bayes_mdp.random.threefry import fused_key

Tested = Literal["model", "agent"]
TESTED_TOGETHER = 40  # policies
_FOLLOWED = 16  # sweeps for one policy, before the next
_SETTLED, _MOST_ROUNDS = 0.05, 500  # units of the reward


class Mazes(eqx.Module):
    """N mazes of S cells, and what replaces the A actions in all of them.

    Args:
        successor: the cell that each action leads to where it is not replaced.
        paid: what it pays.
        mix: mix[a, b], probability that b happens where a is meant.
        start: the first cell.
    """

    successor: Int[np.ndarray, "N S A"]
    paid: Float[np.ndarray, "N S A"]
    mix: Float[np.ndarray, "A A"]
    start: int = eqx.field(static=True)


def stack_mazes(envs: Sequence[Environment]) -> Mazes:
    """The tables of mazes of one size and one noise (see `maze_with_subgoals`). Host side, float64.

    Raises:
        ValueError: the rows of an environment are not those of such a maze.
    """
    tables = []
    for env in envs:
        mdp, law = env.mdp, env.reward_law
        if not (isinstance(mdp, SparseMDP) and isinstance(law, ListedReward)):
            raise ValueError(f"{env.name} has other tables, expected those of a maze")
        successor, probability, paid = (np.asarray(x) for x in (mdp.successor, mdp.probability, law.value))
        mix = probability[0].astype(np.float64)
        mix /= mix.sum(-1, keepdims=True)
        circulant = all(np.allclose(np.roll(row, -a), mix[0]) for a, row in enumerate(mix))
        if not circulant or any(
            np.any(x != first) for x, first in ((successor, successor[:, :1]), (paid, paid[:, :1]))
        ):
            raise ValueError(f"{env.name} has other rows, expected those of a maze")
        tables.append((successor[:, 0], paid[:, 0].astype(np.float64), mix, int(np.argmax(np.asarray(mdp.initial)))))
        size, first = successor.shape, tables[0]
        if size[0] != len(first[0]) or tables[-1][3] != first[3] or not np.allclose(mix, first[2]):
            raise ValueError(f"{env.name} has another size, start or noise, expected those of {envs[0].name}")
    successor, paid, mixes, starts = zip(*tables, strict=True)
    return Mazes(np.stack(successor), np.stack(paid), mixes[0], starts[0])


def optimal_totals(mazes: Mazes, num_steps: int) -> Float[np.ndarray, " N"]:
    """The largest expected undiscounted total of so many steps from the start: backward induction, in float64."""
    with jax.enable_x64(True):
        return np.asarray(_backward_induction(mazes, num_steps))[:, mazes.start]


def solved_totals(mazes: Mazes, discount: float, num_steps: int) -> Float[np.ndarray, " N"]:
    """The expected undiscounted total of the policy that is optimal for `discount`: what an agent can come to.

    It is a little below `optimal_totals`, .2 to .5 % at a discount of .995 and 10,000 steps.
    """
    with jax.enable_x64(True):
        best = _solve(mazes, discount)
        return np.asarray(_backward_induction(mazes, num_steps, best))[:, mazes.start]


def _one_step(mazes: Mazes, discount: Any, values: Any) -> Float[Array, "N S A"]:
    """Values of pairs."""
    return (mazes.paid + discount * jax.vmap(lambda v, there: v[there])(values, mazes.successor)) @ mazes.mix.T


@jax.jit
def _backward_induction(mazes: Mazes, num_steps: Any, policy: Any = None) -> Float[Array, "N S"]:
    mazes = jax.tree.map(jnp.asarray, mazes)

    def sweep(_: Any, values: Any) -> Any:
        q = _one_step(mazes, 1.0, values)
        return jnp.max(q, -1) if policy is None else jnp.take_along_axis(q, policy[..., None], -1)[..., 0]

    return lax.fori_loop(0, num_steps, sweep, jnp.zeros(mazes.paid.shape[:2]))


@jax.jit
def _solve(mazes: Mazes, discount: Any) -> Int[Array, "N S"]:
    """Value iteration, until nothing moves by more than 1e-8."""
    mazes = jax.tree.map(jnp.asarray, mazes)

    def sweep(loop: Any) -> Any:
        values, _ = loop
        new = jnp.max(_one_step(mazes, discount, values), -1)
        return new, jnp.max(jnp.abs(new - values))

    values = lax.while_loop(lambda loop: loop[1] > 1e-8, sweep, (jnp.zeros(mazes.paid.shape[:2]), jnp.inf))[0]
    return best_action(_one_step(mazes, discount, values))


class MazeRun(eqx.Module):
    """One maze: where the agent is, what it has learnt, and the values of the last policy that was tested."""

    state: Int[Array, ""]
    agent: Any
    values: Float[Array, " S"]


@jax.jit
def _begin(agent: Any, problem: Problem, mazes: Mazes, keys: Key[Array, " N"]) -> MazeRun:
    none = jnp.zeros(problem.space.n_states)
    return jax.vmap(lambda key: MazeRun(jnp.int32(mazes.start), agent.init(key, problem), none))(keys)


@partial(jax.jit, static_argnames=("num_steps", "tested"), donate_argnames="runs")
def _learn(
    setting: tuple[Any, Problem, Mazes],
    runs: MazeRun,
    keys: Key[Array, " N"],
    first: Any,
    *,
    num_steps: int,
    tested: str,
) -> tuple[MazeRun, Int[Array, "N S"], Float[Array, " N"]]:
    """`num_steps` steps in all mazes, from step `first` on; the policies to be tested; the mean reward of a step."""
    agent, problem, mazes = setting
    threshold = _thresholds(mazes)

    def one(time: Any, key: Any, run: MazeRun, there: Any, pays: Any) -> tuple[MazeRun, Any]:
        plan_key, act_key, env_key = jax.random.split(jax.random.fold_in(key, time), 3)
        policy, own = agent.plan(plan_key, problem, run.agent, None)
        action = policy.act(act_key, run.state, 0)
        happens = (action + jnp.sum(jax.random.uniform(env_key) >= threshold, dtype=jnp.int32)) % there.shape[-1]
        after, reward = there[run.state, happens], pays[run.state, happens]
        observed = Transitions(run.state, action, reward, after, None, None, None)
        return MazeRun(after, agent.observe(problem, own, observed), run.values), reward

    def step(carry: Any, time: Any) -> tuple[Any, None]:
        runs, total = carry
        runs, reward = jax.vmap(one, (None, 0, 0, 0, 0))(time, keys, runs, mazes.successor, mazes.paid)
        return (runs, total + reward), None

    none = jnp.zeros(len(mazes.successor))
    (runs, total), _ = lax.scan(step, (runs, none), first + jnp.arange(num_steps))
    if tested == "agent":
        greedy, values = jax.vmap(lambda own: agent.greedy(problem, own).best)(runs.agent), runs.values
    else:
        discount = problem.objective.discount  # pyright: ignore[reportAttributeAccessIssue]
        greedy, values = jax.vmap(lambda run: best_in_model(run.agent.tally, discount, run.values))(runs)
    return eqx.tree_at(lambda x: x.values, runs, values), greedy, total / num_steps


def best_in_model(
    tally: ListedTally, discount: Any, values: Float[Array, " S"]
) -> tuple[Int[Array, " S"], Float[Array, " S"]]:
    """The best policy of the model that was counted, by modified policy iteration, and its values.

    Pairs that were never tried are not used; a state in which nothing was tried has value 0.

    Args:
        tally: what was counted.
        discount: in [0, 1).
        values: to begin with.
    """
    stats, successor = tally.stats(jnp.arange(len(values)))
    probs, tried = stats.probs, stats.visits > 0
    known = jnp.any(tried, -1)

    def improve(values: Any) -> Any:
        q = stats.reward + discount * jnp.sum(probs * values[successor], -1)
        return jnp.where(tried, q, -jnp.inf)

    def again(loop: Any) -> Any:
        values, _, count = loop
        q = improve(values)
        new = jnp.where(known, jnp.max(q, -1), 0.0)
        moved = jnp.max(jnp.abs(new - values))
        best = best_action(q)[:, None]
        reward = jnp.where(known, jnp.take_along_axis(stats.reward, best, 1)[:, 0], 0.0)
        rows, there = (jnp.take_along_axis(x, best[..., None], 1)[:, 0] for x in (probs, successor))
        follow = lambda _, v: reward + discount * jnp.sum(rows * v[there], -1)  # noqa: E731
        return lax.fori_loop(0, _FOLLOWED, follow, new), moved, count + 1

    unsettled = lambda loop: (loop[1] > _SETTLED) & (loop[2] < _MOST_ROUNDS)  # noqa: E731
    values = lax.while_loop(unsettled, again, (values, jnp.inf, 0))[0]
    return best_action(improve(values)), values


def learn(
    agent: Any,
    problem: Problem,
    mazes: Mazes,
    *,
    key: PRNGKeyArray,
    num_steps: int,
    test_every: int,
    tested: Tested = "model",
) -> tuple[Int[np.ndarray, "tests N S"], Float[np.ndarray, "tests N"]]:
    """An agent learns in every maze; after every `test_every` steps, a policy without exploration.

    Args:
        agent: a `ModelBased` learner with a `PrioritizedSweeping` planner; asked for a plan before every step.
        problem: its space is that of the mazes, its objective `Discounted`.
        mazes: one run in each.
        key: a typed key; the random numbers of a maze depend on it and the number of the maze alone.
        num_steps, test_every: steps in every maze; the first a multiple of the second.
        tested: "model", the best policy of the model that was counted (`best_in_model`); "agent", `agent.greedy`.

    Returns:
        The actions of these policies, and the mean reward of a step while learning, since the test before.

    Raises:
        ValueError: the planner's lists are too short for these mazes.
    """
    first, own = jax.random.split(fused_key(key))
    number = len(mazes.successor)
    tables = jax.tree.map(jnp.asarray, mazes)
    runs, keys, found = _begin(agent, problem, tables, _keys(first, number)), _keys(own, number), []
    for done in range(0, num_steps, test_every):
        runs, policy, reward = _learn((agent, problem, tables), runs, keys, done, num_steps=test_every, tested=tested)
        found.append((np.asarray(policy, np.int8), np.asarray(reward)))
    listed = runs.agent.tally if isinstance(runs.agent, SweptState) else None
    if isinstance(listed, ListedTally) and (lost := int(np.sum(listed.lost))):
        raise ValueError(f"{lost} transitions found no place in the lists of the planner, expected longer ones")
    policies, rewards = zip(*found, strict=True)
    return np.stack(policies), np.stack(rewards)


def _keys(key: Any, number: int) -> Any:
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(number))


def _thresholds(mazes: Mazes) -> Any:
    """[A - 1]: cumulative probabilities of the action that happens, counted from the one that is meant."""
    return jnp.cumsum(mazes.mix[0])[:-1]


def totals_of_tests(
    mazes: Mazes, policies: Int[np.ndarray, "tests N S"], *, key: PRNGKeyArray, num_runs: int, num_steps: int
) -> Float[np.ndarray, "tests N runs"]:
    """Simulated undiscounted totals of `num_steps` steps from the start, by policies that do not learn."""
    tests, number, _ = policies.shape
    place = np.stack(np.meshgrid(np.arange(tests), np.arange(number), indexing="ij"), -1).reshape(-1, 2)
    pad = -len(place) % TESTED_TOGETHER if len(place) > TESTED_TOGETHER else 0
    place, totals, tables = np.pad(place, ((0, pad), (0, 0)), mode="edge"), [], jax.tree.map(jnp.asarray, mazes)
    batch = min(TESTED_TOGETHER, len(place))
    for i in range(0, len(place), batch):
        test, maze = place[i : i + batch].T
        keys = jax.random.fold_in(fused_key(key), i)
        totals.append(_simulate(tables, policies[test, maze].astype(np.int32), maze, keys, num_runs, num_steps))
    every = np.concatenate([np.asarray(x) for x in totals])
    return every[: tests * number].reshape(tests, number, num_runs)


@partial(jax.jit, static_argnames=("num_runs", "num_steps"))
def _simulate(
    mazes: Mazes, policies: Int[Array, "L S"], maze: Int[Array, " L"], key: Any, num_runs: int, num_steps: int
) -> Float[Array, "L runs"]:
    """All runs of all policies at once; a place in the tables is (policy, cell) as one number."""
    number, n_states = policies.shape
    n_actions = mazes.mix.shape[0]
    order = (policies[..., None] + jnp.arange(n_actions)) % n_actions  # the action that is meant comes first
    there, pays = (jnp.take_along_axis(x[maze], order, -1) for x in (mazes.successor, mazes.paid))
    first = jnp.arange(number, dtype=jnp.int32) * n_states
    there, pays = ((there + first[:, None, None]) * n_actions).ravel(), pays.ravel()
    threshold = _thresholds(mazes)

    def step(carry: Any, time: Any) -> tuple[Any, None]:
        place, total = carry
        u = jax.random.uniform(jax.random.fold_in(key, time), place.shape)
        at = place + sum((u >= threshold[j]).astype(jnp.int32) for j in range(n_actions - 1))
        return (there[at], total + pays[at]), None

    start = jnp.broadcast_to(((first + mazes.start) * n_actions)[:, None], (number, num_runs))
    return lax.scan(step, (start, jnp.zeros(start.shape)), jnp.arange(num_steps))[0][1]
