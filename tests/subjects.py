"""The simulated clinic: its log, golden numbers, rows at maximum likelihood. Tests skip where it is absent."""

# What `from_log` and `infer` return depends on whether the log has covariates, which a type checker cannot see.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm

SHARED = Path(__file__).parents[2] / "shared"
AGES, FRAIL = (0, 1, 2, 3), (0, 1)
TYPES = tuple(itertools.product(AGES, FRAIL))
OUTCOME_REWARD = np.array([[[1.0, 0.5, 0.0], [0.95, 0.45, -0.05]]])
"""[1, action, outcome]: well, ill, dead; the drug costs .05."""
START = np.array([0.7, 0.3])
DISCOUNTED = bm.Discounted(0.95)
POLICIES = {
    "usual": np.zeros((8, 2), int),
    "drug": np.ones((8, 2), int),
    "drug if ill": np.tile([0, 1], (8, 1)),
    "drug if frail or ill": np.array([[frail, 1] for _, frail in TYPES]),
}

needs_clinic = pytest.mark.skipif(not (SHARED / "subject_tables.csv").exists(), reason="the shared files are absent")


@cache
def golden() -> dict[tuple[str, str], float]:
    """(name, quantity) -> value."""
    table = pd.read_csv(SHARED / "subject_tables.csv")
    return dict(zip(zip(table["name"], table["quantity"], strict=True), table["value"], strict=True))


@cache
def clinic() -> pd.DataFrame:
    """The log, with the flag that the next state is none: the third outcome, death."""
    table = pd.read_csv(SHARED / "data" / "subjects_clinic.csv")
    dead = table["next_state"] == 2
    return table.assign(dead=dead, next_state=table["next_state"].where(~dead, 0))


def clinic_log(**options):
    """The log as `read_log` reads it, by subject."""
    columns = {"covariates": ["age", "frail"], "subject": "subject", **options}
    roles = {"state": "state", "action": "action", "next_state": "next_state", "terminated": "dead"}
    return bm.read_log(clinic(), episode="subject", step="step", **roles, **columns)


def rows_at(coefficients: np.ndarray) -> np.ndarray:
    """[type, state, action, outcome] of the softmax on (1, ill, age, frail, action), coefficients [5, 2]."""
    rows = np.zeros((8, 2, 2, 3))
    for place, (age, frail) in enumerate(TYPES):
        for ill, action in itertools.product(range(2), range(2)):
            odds = np.exp(np.append(0.0, np.array([1.0, ill, age, frail, action]) @ coefficients))
            rows[place, ill, action] = odds / odds.sum()
    return rows


def rows_at_ml() -> np.ndarray:
    """Likewise, at the maximum of the likelihood."""
    return rows_at(np.array([[golden()["clinic5", f"b[{i},{k}]"] for k in range(2)] for i in range(5)]))


def wide(rows: np.ndarray, weights: np.ndarray | None = None) -> bm.SparseMDP:
    """One MDP of all types, side by side; it begins by the weights of the types."""
    successor = np.broadcast_to(np.arange(16).reshape(8, 1, 1, 2), (8, 2, 2, 2)).reshape(16, 2, 2)
    paid = (rows * OUTCOME_REWARD).sum(-1).reshape(16, 2)
    start = None if weights is None else (weights[:, None] * START).ravel()
    flat = rows.reshape(16, 2, 3)
    return bm.SparseMDP(successor, flat[..., :2], paid, end_probs=flat[..., 2], initial=start)


def subject_weights() -> np.ndarray:
    """[type], share of the subjects."""
    first = clinic().groupby("subject").first()
    return np.array([((first["age"] == age) & (first["frail"] == frail)).mean() for age, frail in TYPES])


def practice() -> np.ndarray:
    """[type, state, action], how often the log has the action given state and frailty."""
    share = clinic().groupby(["frail", "state"])["action"].mean()
    drug = np.array([[share[frail, ill] for ill in range(2)] for _, frail in TYPES])
    return np.stack([1.0 - drug, drug], -1)
