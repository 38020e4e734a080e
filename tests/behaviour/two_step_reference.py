"""The two-step model as a plain loop, and the golden trials: shares no code with the package."""

import numpy as np

TIMES = np.arange(24)
FIRST = (7 * TIMES % 5 < 2).astype(int)
RARE = (TIMES % 10 < 3).astype(int)
SECOND_STATE = FIRST ^ RARE
SECOND = (3 * TIMES % 7 < 3).astype(int)
REWARD = (5 * TIMES % 8 < 4).astype(float)
PAR7 = {"a1": 0.4, "beta1": 3.0, "a2": 0.6, "beta2": 2.5, "pi": 0.3, "w": 0.6, "lambda": 0.7}


def logistic(x):
    return 1.0 / (1.0 + np.exp(-x))


def log_probs(p, first, state, second, reward, *, after, common=0.7):
    """Log-probability of both choices of every trial, [N 2]."""
    q1, q2, last, found = np.zeros(2), np.zeros((2, 2)), 0.0, []
    for a, s, j, r in zip(first, state, second, reward, strict=True):
        best = q2.max(1)
        planned = np.array([common * best[0] + (1 - common) * best[1], common * best[1] + (1 - common) * best[0]])
        value = p["w"] * planned + (1 - p["w"]) * q1
        right = logistic(p["beta1"] * (value[1] - value[0]) + p["pi"] * last)
        chosen = logistic(p["beta2"] * (q2[s, j] - q2[s, 1 - j]))
        found.append((np.log(right if a else 1 - right), np.log(chosen)))
        old = q2[s, j]
        q1[a] += p["a1"] * (old - q1[a])
        q2[s, j] += p["a2"] * (r - old)
        error = r - q2[s, j] if after else r - old
        q1[a] += p["lambda"] * p["a1"] * error
        last = 1.0 if a else -1.0
    return np.array(found)
