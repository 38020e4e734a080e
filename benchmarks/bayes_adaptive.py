"""Bayes-adaptive tree search judged by exact Bayes-optimal values: `python -m benchmarks.bayes_adaptive PART`.

problems: what an episode is worth that is played by a search before every step, as a share of the Bayes optimum, on the
22 problems of `next_experiment.py`. The share is 1 - E[sum of the losses of the actions] / optimum, with the loss
V*(h) - Q*(h, a) of the action in its hyper-state (state and counts) exact: nothing is measured by rewards. In brackets
the share of the first action alone.

rivals: the same of agents of the library that plan before every step, of one step of lookahead and of planning in the
mean MDP (both exact).

speed: simulations per CPU second beside `numba_peers/bamcp.py`, a plain program for Dirichlet rows.

tree: memory and time by number of simulations.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

import bayes_mdp as bm
from bayes_mdp.agents import PSRL, UBE, InformationGain, KLearning, MomentMatching
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.mdp import Agent, Problem
from bayes_mdp.mdp.lazy_belief import LazyBelief, LazyRewards, LazyRows
from bayes_mdp.planning.tree_search import Decision, Search, new_tree
from benchmarks.next_experiment import (
    CountedMDP,
    Layer,
    as_posterior,
    concentrations,
    layers,
    mines,
    river,
    two_arms,
    two_arms_posterior,
    values,
)
from benchmarks.numba_peers.bamcp import search as plain_search


class Case(NamedTuple):
    """A problem, its horizon and the posterior of the library before any data."""

    name: str
    horizon: int
    problem: CountedMDP
    posterior: ConjugatePosterior


def cases() -> list[Case]:
    """The 22 problems."""
    found = []
    for known in (False, True):
        name = f"two arms, {'one of .5' if known else 'both unknown'}"
        found += [Case(name, h, two_arms(known), two_arms_posterior(known)) for h in (2, 5, 10, 20, 50)]
    found += [Case("river of 5 states", h, river(), as_posterior(river())) for h in (6, 8, 9, 10)]
    for stay in (False, True):
        dug = mines(0.2 if stay else 0.4, stay)
        name = f"mines, work {'.2, staying' if stay else '.4'}"
        found += [Case(name, h, dug, as_posterior(dug)) for h in (8, 12, 16, 20)]
    return found


class Solved(NamedTuple):
    """All hyper-states and the exact values of the actions in them: `q` [N A] for each step."""

    layers: list[Layer]
    q: list[Float[np.ndarray, "N A"]]

    @property
    def optimum(self) -> float:
        """The value of the episode."""
        return float(self.q[0].max())


def solve(problem: CountedMDP, horizon: int) -> Solved:
    """Backward induction over the hyper-states."""
    every = layers(problem, horizon)
    ahead, found = np.zeros(len(every[-1].state)), []
    for layer in reversed(every[:-1]):
        number = np.arange(len(layer.state))
        weight = concentrations(problem, layer.counts)[number, layer.state]
        probs = weight / weight.sum(-1, keepdims=True)
        found.append((probs * (problem.reward[layer.state] + ahead[layer.child])).sum(-1))
        ahead = found[-1].max(-1)
    return Solved(every, found[::-1])


Chooser = Callable[[int, Int[np.ndarray, " N"], Int[np.ndarray, "N S A K"]], Int[np.ndarray, " N"]]
"""(step, state, counts) of N episodes -> their actions."""


def played(case: Case, solved: Solved, choose: Chooser, number: int, seed: int) -> tuple[float, float, float]:
    """(share of the optimum, its standard error, share of the first action) over `number` episodes."""
    rng = np.random.default_rng(seed)
    at, lost, first = np.zeros(number, int), np.zeros(number), 1.0
    for step in range(case.horizon):
        layer, q = solved.layers[step], solved.q[step]
        state, counts = layer.state[at], layer.counts[at]
        action = choose(step, state, counts)
        loss = q[at].max(-1) - q[at, action]
        lost += loss
        if step == 0:
            first = 1.0 - float(loss.mean()) / solved.optimum
        weight = concentrations(case.problem, counts)[np.arange(number), state, action]
        below = (weight / weight.sum(-1, keepdims=True)).cumsum(-1) < rng.random((number, 1))
        at = layer.child[at, action, np.minimum(below.sum(-1), weight.shape[-1] - 1)]
    return (
        1.0 - float(lost.mean()) / solved.optimum,
        float(lost.std(ddof=1)) / number**0.5 / solved.optimum,
        first,
    )


def belief_of(problem: CountedMDP, counts: Int[np.ndarray, "S A K"]) -> LazyBelief:
    """The arrays of a hyper-state; where there is one state, its outcomes are rewards."""
    n_states, n_actions, width = problem.prior.shape
    pairs = n_states * n_actions
    table = concentrations(problem, counts[None])[0].reshape(pairs, width).cumsum(-1)[None]
    number = np.arange(pairs).reshape(1, n_states, n_actions)
    learns = problem.learns.ravel()
    if n_states == 1:
        rows = LazyRows(np.ones((1, pairs, 1)), np.zeros(pairs, bool), number)
        rewards = LazyRewards(table, learns, problem.reward.reshape(1, pairs, width), number[..., None])
        return LazyBelief(np.ones(1), rows, rewards)
    rows = LazyRows(table, learns, number, problem.next_state[None])
    paid = problem.reward[..., 0].reshape(1, pairs, 1)
    return LazyBelief(
        np.ones(1), rows, LazyRewards(np.ones((1, pairs, 1)), np.zeros(pairs, bool), paid, number[..., None])
    )


def by_search(case: Case, num_simulations: int, scale: float | None, seed: int) -> Chooser:
    """A search before every step, with c = `scale` times the range of the rewards; None: the default."""
    rng = np.random.default_rng(seed)
    _, n_actions, _ = case.problem.prior.shape
    reach = max(case.problem.reward.max(), 0.0) - min(case.problem.reward.min(), 0.0)

    def choose(step: int, state: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return np.array([one(step, int(s), n) for s, n in zip(state, counts, strict=True)])

    def one(step: int, state: int, counts: np.ndarray) -> int:
        found = Search(
            belief_of(case.problem, counts),
            None,
            None,
            Decision(state, step, case.horizon, 1.0),
            exploration=None if scale is None else scale * reach,
            random_rollouts=1.0,
            rollout_q=np.zeros(case.problem.prior.shape[:2]),
            max_depth=None,
            rng=rng,
            tree=new_tree(num_simulations + 1, n_actions),
        )
        found.run(num_simulations)
        return found.answer().action

    return choose


def by_agent(case: Case, agent: Agent, seed: int) -> Chooser:
    """An agent of the library that plans before every step."""
    problem = Problem(case.posterior.space, bm.Episodic(case.horizon), np.eye(case.posterior.space.n_states)[0])

    @jax.jit
    def act(keys: jax.Array, step: jax.Array, state: jax.Array, counts: jax.Array) -> jax.Array:
        def one(key: jax.Array, s: jax.Array, n: jax.Array) -> jax.Array:
            key_init, key_plan, key_act = jax.random.split(key, 3)
            belief = with_counts(case, n)
            policy, _ = agent.plan(key_plan, problem, agent.init(key_init, problem), belief)
            return policy.act(key_act, s, step)

        return jax.vmap(one)(keys, state, counts)

    def choose(step: int, state: np.ndarray, counts: np.ndarray) -> np.ndarray:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), step), len(state))
        return np.asarray(act(keys, jnp.asarray(step), jnp.asarray(state), jnp.asarray(counts, jnp.float32)))

    return choose


def with_counts(case: Case, counts: jax.Array) -> ConjugatePosterior:
    """The posterior after data with these counts. Traceable."""
    problem, posterior = case.problem, case.posterior
    if problem.prior.shape[0] == 1:
        cells = posterior.reward_cells
        assert isinstance(cells, RewardCells)
        seen = counts[0][: len(cells.data)]
        total = seen.sum(-1)
        mean = jnp.where(total > 0, seen[:, 1] / jnp.maximum(total, 1.0), 0.0)
        data = jnp.stack([total, mean, total * mean * (1 - mean)], -1)
        return replace(posterior, reward_cells=replace(cells, data=data))
    rows = posterior.transition_probs
    where = [
        [*np.argwhere(problem.learns).tolist()[m], k] for m in range(int(problem.learns.sum())) for k in
        range(problem.prior.shape[-1])
    ]  # fmt: skip
    table = jnp.zeros(np.shape(rows.counts))
    number = np.cumsum(problem.learns).reshape(problem.learns.shape) - 1
    for s, a, k in where:
        if problem.prior[s, a, k] > 0:
            table = table.at[int(number[s, a]), int(problem.next_state[s, a, k])].set(counts[s, a, k])
    return replace(posterior, transition_probs=replace(rows, counts=table))


AGENTS: dict[str, Agent] = {
    "PSRL": PSRL(replan=1),
    "IDS": InformationGain(replan=1),
    "K-learning": KLearning(replan=1),
    "moment m.": MomentMatching(replan=1),
    "UBE": UBE(replan=1),
}


def problems(sizes: tuple[int, ...], scales: tuple[float | None, ...], episodes: dict[int, int]) -> None:
    """The tables."""
    head = [f"{k:>8d}" for k in sizes]
    for scale in scales:
        c = "the default" if scale is None else f"{scale:g} times the range of the rewards"
        print(f"\nc = {c}: per cent of the optimum (of the first action)")
        print(f"{'problem':26s} {'H':>3s} {'optimum':>9s} " + " ".join(f"{x:>15s}" for x in head), flush=True)
        total = {k: [] for k in sizes}
        for case in cases():
            solved, cells = solve(case.problem, case.horizon), []
            for k in sizes:
                share, error, first = played(case, solved, by_search(case, k, scale, 1), episodes[k], 2)
                total[k].append(share)
                cells.append(f"{100 * share:6.2f}±{196 * error:4.2f} ({100 * first:.0f})")
            print(
                f"{case.name:26s} {case.horizon:3d} {solved.optimum:9.5f} " + " ".join(f"{x:>15s}" for x in cells),
                flush=True,
            )
        for k in sizes:
            print(f"{k:>8d} simulations: mean {100 * np.mean(total[k]):.2f}, least {100 * min(total[k]):.2f}, "
                  f"{sum(x >= 0.98 for x in total[k])} of {len(total[k])} at .98 or above")  # fmt: skip


def rivals(number: int) -> None:
    """The same of agents of the library and of two exact rules."""
    print(f"\n{'problem':26s} {'H':>3s} " + " ".join(f"{name:>12s}" for name in (*AGENTS, "lookahead", "mean MDP")))
    total: dict[str, list[float]] = {}
    for case in cases():
        solved, cells = solve(case.problem, case.horizon), []
        for name, agent in AGENTS.items():
            share, error, _ = played(case, solved, by_agent(case, agent, 3), number, 4)
            total.setdefault(name, []).append(share)
            cells.append(f"{100 * share:6.2f}±{196 * error:4.2f}")
        exact = values(case.problem, case.horizon)
        for rule in ("lookahead", "mean"):
            total.setdefault(rule, []).append(exact[rule] / exact["optimum"])
            cells.append(f"{100 * total[rule][-1]:6.2f}")
        print(f"{case.name:26s} {case.horizon:3d} " + " ".join(f"{x:>12s}" for x in cells), flush=True)
    for name, shares in total.items():
        print(f"{name:12s} mean {100 * np.mean(shares):.2f}, least {100 * min(shares):.2f}, "
              f"{sum(x >= 0.98 for x in shares)} of {len(shares)} at .98 or above")  # fmt: skip


def random_rows(n_states: int, n_actions: int) -> tuple[np.ndarray, np.ndarray]:
    """Concentrations 1 / S and random rewards."""
    rng = np.random.default_rng(0)
    return np.full((n_states, n_actions, n_states), 1.0 / n_states), rng.random((n_states, n_actions))


def ours(concentration: np.ndarray, reward: np.ndarray, number: int, seed: int) -> None:
    """A search of `number` simulations of 50 steps."""
    n_states, n_actions = reward.shape
    pairs = n_states * n_actions
    table = np.arange(pairs).reshape(1, n_states, n_actions)
    sums = concentration.reshape(1, pairs, n_states).cumsum(-1)
    paid = LazyRewards(np.ones((1, pairs, 1)), np.zeros(pairs, bool), reward.reshape(1, pairs, 1), table[..., None])
    belief = LazyBelief(np.ones(1), LazyRows(sums, np.ones(pairs, bool), table), paid)
    Search(
        belief, None, None, Decision(0, 0, None, 0.95), exploration=1.0, random_rollouts=1.0,
        rollout_q=np.zeros((n_states, n_actions)), max_depth=50, rng=np.random.default_rng(seed),
        tree=new_tree(number + 1, n_actions),
    ).run(number)  # fmt: skip


def theirs(concentration: np.ndarray, reward: np.ndarray, number: int, seed: int) -> None:
    """The plain program."""
    plain_search(concentration, reward, 0, 50, 0.95, 1.0, number, np.random.default_rng(seed))


def cpu_seconds(call: Callable[[int], None], repeats: int) -> float:
    """Median CPU seconds of a call with a seed, the first one left out."""
    call(0)
    taken = []
    for seed in range(repeats):
        began = time.process_time()
        call(seed)
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def speed(number: int = 10_000) -> None:
    """Simulations per CPU second."""
    print(f"{'S':>4s} {'A':>3s} {'ours':>10s} {'plain':>10s} {'ratio':>6s}   simulations of 50 steps per CPU second")
    for n_states, n_actions in ((2, 2), (9, 2), (25, 4), (100, 4), (264, 4)):
        parts = random_rows(n_states, n_actions)
        one = number / cpu_seconds(lambda seed, parts=parts: ours(*parts, number, seed), 5)
        few = min(number, 2000)
        other = few / cpu_seconds(lambda seed, parts=parts, few=few: theirs(*parts, few, seed), 5)
        print(f"{n_states:4d} {n_actions:3d} {one:10,.0f} {other:10,.0f} {one / other:6.2f}", flush=True)


def tree() -> None:
    """Memory and time by number of simulations, on the grid of 100 states."""
    parts = random_rows(100, 4)
    print(f"{'simulations':>12s} {'CPU s':>8s} {'us each':>8s} {'MiB':>8s} {'bytes a node':>13s}")
    for number in (100, 1000, 10_000, 100_000, 1_000_000):
        taken = cpu_seconds(lambda seed, number=number: ours(*parts, number, seed), 3)
        size = sum(x.nbytes for x in new_tree(number + 1, 4))
        print(
            f"{number:12,d} {taken:8.4f} {1e6 * taken / number:8.2f} {size / 2**20:8.2f} {size / number:13.0f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("problems", "rivals", "speed", "tree"))
    parser.add_argument("--scales", type=float, nargs="+", default=[])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    chosen = parser.parse_args()
    if chosen.part == "problems":
        problems(tuple(chosen.sizes), (None, *chosen.scales), {100: 200, 1000: 100, 10_000: 30, 100_000: 6})
    elif chosen.part == "rivals":
        rivals(2000)
    elif chosen.part == "speed":
        speed()
    else:
        tree()
