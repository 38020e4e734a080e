"""The optimal temperature of K-learning beside Brent's method on a numpy recursion: `python -m benchmarks.temperature`.

(With OPENBLAS_NUM_THREADS=1: threads of OpenBLAS that wait spin, which would count as the CPU time of numpy.)

DeepSea, unknown transitions and rewards, float64, after 500 episodes that go right with a probability of their own.
CPU time of the process from the posterior to temperature, K and certificate: median over repeats after a warm-up,
compilation apart. "warm" starts from the temperature before the last episode. The peer (scipy's `brentq`, on J' in
log tau) is given the mean rows, mean rewards and numerators of the bonus, and a bracket of a factor of 30 around the
answer; its answer is checked against ours.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq

import bayes_mdp as bm
from bayes_mdp.agents.optimism.k_learning import minimise
from bayes_mdp.agents.optimism.k_model import Bonus, k_model
from bayes_mdp.envs import deep_sea
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import dirichlet_normal
from benchmarks.planning import compiled, cpu, show
from benchmarks.record.turns import Measured, Size, in_turns

SIZES, EPISODES = (10, 20, 50), 500


def data(size: int) -> Transitions:
    """Episodes from the first state."""
    rng = np.random.default_rng(size)
    mdp: Any = deep_sea(size).mdp
    successor, reward = np.asarray(mdp.successor)[..., 0], np.asarray(mdp.reward)
    right = rng.random(EPISODES)
    state, rows = np.zeros(EPISODES, int), []
    for step in range(size):
        action = (rng.random(EPISODES) < right).astype(int)
        next_state = successor[step, state, action]
        paid = reward[step, state, action] + 0.1 * rng.standard_normal(EPISODES)
        rows.append((state, action, paid, next_state, np.full(EPISODES, step)))
        state = next_state
    flat = [np.stack(part, 1).ravel() for part in zip(*rows, strict=True)]
    return Transitions(flat[0], flat[1], flat[2], flat[3], step=flat[4])


def brent(reward: np.ndarray, numerator: np.ndarray, rows: np.ndarray, near: float) -> float:
    """The root of tau J'(tau) by Brent's method."""

    def gradient(log_tau: float) -> float:
        tau = np.exp(log_tau)
        value = turn = np.zeros(rows.shape[-1])
        for h in reversed(range(len(rows))):
            bonus = numerator[h] / tau
            k, first = reward[h] + bonus + rows[h] @ value, rows[h] @ turn - bonus
            best = k.max(-1, keepdims=True)
            weight = np.exp((k - best) / tau)
            total = weight.sum(-1)
            value = best[:, 0] + tau * np.log(total)
            turn = value + ((first - k) * weight).sum(-1) / total
        return turn[0]

    root: Any = brentq(gradient, np.log(near / 30), np.log(near * 30), xtol=1e-14)
    return float(np.exp(root))


def beliefs_of(size: int) -> tuple[dict[str, tuple[Any, Any]], np.ndarray]:
    """Dense and listed counts, each after all episodes and without the last one; and the first state."""
    env, space = deep_sea(size), StateActionSpace(size, 2, horizon=size)
    prior = bm.infer(jax.random.key(0), dirichlet_normal(1.0, 0.0, 1.0, 0.1), None, space=space)
    observed = data(size)
    before: Any = prior.update(jax.tree.map(lambda x: x[:-size], observed))
    dense: Any = prior.update(observed)
    mdp: Any = env.mdp
    successor = np.asarray(mdp.successor)
    beliefs = {"dense": (dense, before), "listed": (dense.listed(successor), before.listed(successor))}
    return beliefs, np.eye(size)[0]


def wide(x: Any) -> Any:
    """In float64, on the device."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.array(leaf)), x)


def program_of(initial: np.ndarray) -> Callable[[Any, Any], Any]:
    """From the posterior and a first temperature to the answer."""
    return lambda p, start: minimise(k_model(p, Bonus()), jnp.asarray(initial), start)


def peer_of(dense: Any, tau: float) -> Callable[[], float]:
    """Brent's method on what the posterior says, checked against our answer."""
    model = jax.jit(lambda p: (p.mean_mdp(), k_model(p, Bonus())))(wide(dense))
    arrays = [np.asarray(x) for x in (model[0].reward, model[1].numerator, model[0].transition_probs)]
    np.testing.assert_allclose(brent(*arrays, near=tau), tau, rtol=1e-12)
    return lambda: brent(*arrays, near=tau)


def compare(size: int) -> None:
    """One size: dense and listed counts, cold and warm, and the peer."""
    beliefs, initial = beliefs_of(size)
    answer: Any = None
    with jax.enable_x64(True):
        program = program_of(initial)
        for form, (now, last) in beliefs.items():
            task = f"temperature, L = {size}, {form} counts"
            call, compile_s = compiled(program, wide(now), jnp.zeros(()))
            answer = call()
            show(f"{task}, cold, {int(answer.iterations)} it.", "bayes_mdp", cpu(call, 51), "ms", 1e3, compile_s)
            start = jax.jit(program)(wide(last), jnp.zeros(())).tau
            call, _ = compiled(program, wide(now), start)
            answer = call()
            show(f"{task}, warm, {int(answer.iterations)} it.", "bayes_mdp", cpu(call, 51), "ms", 1e3)
        peer = peer_of(beliefs["dense"][0], float(answer.tau))
    show(f"temperature, L = {size}", "scipy brentq on numpy", cpu(peer, 9), "ms", 1e3)


def lines(length: int, size: Size) -> list[Measured]:
    """Lines of the record: a cold start."""
    beliefs, initial = beliefs_of(length)
    found = []
    with jax.enable_x64(True):
        for form in ("listed",) if size == "check" else beliefs:
            call, _ = compiled(program_of(initial), wide(beliefs[form][0]), jnp.zeros(()))
            peer = peer_of(beliefs["dense"][0], float(call().tau))
            name = f"DeepSea L = {length}, {form} counts, cold start, float64"
            found.append(in_turns(name, "temperature", call, "scipy's brentq on numpy", peer, size))
    return found


def measure(size: Size) -> Iterator[Measured]:
    """Lines of the record."""
    for length in (20,) if size == "check" else SIZES:
        yield from lines(length, size)


if __name__ == "__main__":
    for size in SIZES:
        compare(size)
