"""OIM with improved prioritized sweeping as a plain numba loop, one run at a time: the peer of `benchmarks/oim.py`.

The same rules as `bayes_mdp` (see `planning/prioritized_sweeping.py`), in float64: a binary heap with the
place of every state, lists of the observed successors and predecessors, no mask and no padding. Predecessors are backed
up one by one.
"""

import numba
import numpy as np


@numba.njit
def sift_up(heap: np.ndarray, place: np.ndarray, priority: np.ndarray, i: int) -> None:
    """Move an entry up to where it belongs."""
    s = heap[i]
    while i > 0:
        parent = (i - 1) // 2
        if priority[heap[parent]] >= priority[s]:
            break
        heap[i] = heap[parent]
        place[heap[i]] = i
        i = parent
    heap[i], place[s] = s, i


@numba.njit
def pop(heap: np.ndarray, place: np.ndarray, priority: np.ndarray, size: int) -> int:
    """The state of largest priority; the heap is one shorter afterwards."""
    first, s, i = heap[0], heap[size - 1], 0
    place[first] = -1
    while size > 1:
        child = 2 * i + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and priority[heap[child + 1]] > priority[heap[child]]:
            child += 1
        if priority[heap[child]] <= priority[s]:
            break
        heap[i] = heap[child]
        place[heap[i]] = i
        i = child
    if size > 1:
        heap[i], place[s] = s, i
    return first


@numba.njit
def back_up(
    s: int, model: tuple, values: np.ndarray, best: np.ndarray, v_max: float, discount: float
) -> tuple[float, float]:
    """Qr and Qe of all actions of a state; its values are those of the best action of the sum."""
    visits, total, successor, counts, number = model
    most, real, explore = -np.inf, 0.0, 0.0
    for a in range(visits.shape[1]):
        share = 1.0 / (visits[s, a] + 1.0)
        r, e = total[s, a] * share, v_max * share
        for k in range(number[s, a]):
            weight, y = discount * counts[s, a, k] * share, successor[s, a, k]
            r += weight * values[y, 0]
            e += weight * values[y, 1]
        if r + e > most:
            most, real, explore, best[s] = r + e, r, e, a
    values[s, 0], values[s, 1] = real, explore
    return real, explore


@numba.njit
def count(s: int, a: int, r: float, y: int, model: tuple, before: np.ndarray, num_before: np.ndarray) -> None:
    """One transition."""
    visits, total, successor, counts, number = model
    visits[s, a] += 1.0
    total[s, a] += r
    k = 0
    while k < number[s, a] and successor[s, a, k] != y:
        k += 1
    if k == number[s, a]:
        successor[s, a, k] = y
        number[s, a] += 1
    counts[s, a, k] += 1.0
    k = 0
    while k < num_before[y] and before[y, k] != s:
        k += 1
    if k == num_before[y]:
        before[y, k] = s
        num_before[y] += 1


@numba.njit
def play(
    env: tuple[np.ndarray, np.ndarray, np.ndarray, int],
    lists: tuple[int, int],
    agent: tuple[float, float, float, int],
    num_steps: int,
    seed: int,
) -> tuple[float, int, np.ndarray]:
    """(sum of the rewards, states backed up, final values) of one run.

    Args:
        env: outcome [S A E], threshold [S A E - 1], paid [S A E], first state.
        lists: longest lists of successors and predecessors.
        agent: v_max, discount, threshold, pops of a step.
        num_steps: of the environment, the model is swept after each.
        seed: of numba's generator.
    """
    np.random.seed(seed)
    outcome, cumulative, paid, s = env
    v_max, discount, threshold, num_pops = agent
    n, n_actions, n_entries = outcome.shape
    shape = (n, n_actions, lists[0])
    number = np.zeros((n, n_actions), np.int64)
    model = (np.zeros((n, n_actions)), np.zeros((n, n_actions)), np.zeros(shape, np.int64), np.zeros(shape), number)
    before, num_before = np.zeros((n, lists[1]), np.int64), np.zeros(n, np.int64)
    values, best = np.zeros((n, 2)), np.zeros(n, np.int64)
    values[:, 1] = v_max
    reference, priority = values.copy(), np.zeros(n)
    heap, place, size = np.zeros(n, np.int64), np.full(n, -1), 0
    rewards, backups = 0.0, 0
    for _ in range(num_steps):
        a, u, e = best[s], np.random.random(), 0
        while e < n_entries - 1 and u >= cumulative[s, a, e]:
            e += 1
        y = outcome[s, a, e]
        rewards += paid[s, a, e]
        count(s, a, paid[s, a, e], y, model, before, num_before)
        for pops in range(num_pops + 1):
            if pops > 0:
                if size == 0:
                    break
                j = pop(heap, place, priority, size)
                size -= 1
                priority[j], reference[j, 0], reference[j, 1] = 0.0, values[j, 0], values[j, 1]
            for k in range(1 if pops == 0 else num_before[j]):
                i = s if pops == 0 else before[j, k]
                real, explore = back_up(i, model, values, best, v_max, discount)
                backups += 1
                moved = max(abs(real - reference[i, 0]), abs(explore - reference[i, 1]))
                if moved > threshold and moved > priority[i]:
                    priority[i] = moved
                    if place[i] < 0:
                        heap[size] = i
                        size += 1
                        sift_up(heap, place, priority, size - 1)
                    else:
                        sift_up(heap, place, priority, place[i])
        s = y
    return rewards, backups, values
