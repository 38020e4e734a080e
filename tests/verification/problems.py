"""Interval MDPs for tests: random ones, and the values of one by a plain loop of linear programs."""

from typing import Literal

import numpy as np
from scipy.optimize import linprog

import bayes_mdp as bm
from bayes_mdp.verification import interval_mdp

SENSES: tuple[Literal["max", "min"], ...] = ("max", "min")
EXTREMES: tuple[Literal["least", "most"], ...] = ("least", "most")


def random_problem(number):
    """Intervals around random rows, rewards, an objective: lower [S A O], upper, reward, objective."""
    rng = np.random.default_rng(number)
    states, actions, ends = int(rng.integers(2, 5)), int(rng.integers(1, 4)), bool(rng.integers(2))
    rows = rng.dirichlet(np.full(states + ends, 0.7), (states, actions))
    width = rng.uniform(0, 0.3, rows.shape)
    lower, upper = np.maximum(rows - width, 1e-3 * rows), np.minimum(rows + width, 1.0)
    objective = bm.FirstExit() if ends and number % 2 else bm.Discounted(float(rng.uniform(0.3, 0.95)))
    return lower, upper, rng.normal(size=(states, actions)), objective


def random_model(number):
    """`random_problem` as a model."""
    return interval_mdp(*random_problem(number))


def worst_row(lower, upper, values, most):
    """The least or greatest sum of p v over the rows within the intervals, by a linear program."""
    sign = -1.0 if most else 1.0
    solved = linprog(sign * values, A_eq=np.ones((1, len(values))), b_eq=[1.0], bounds=np.stack([lower, upper], -1))
    assert solved.success
    return sign * solved.fun


def sweep(model, values, paid, fixed, sense, most):
    """One Bellman step, choice by choice."""
    out = values.copy()
    for s in np.flatnonzero(~fixed):
        each = []
        for c in range(*model.first_choice[s : s + 2]):
            e = slice(*model.first_entry[c : c + 2])
            each.append(paid[c] + worst_row(model.lower[e], model.upper[e], values[model.successor[e]], most))
        out[s] = max(each) if sense == "max" else min(each)
    return out
