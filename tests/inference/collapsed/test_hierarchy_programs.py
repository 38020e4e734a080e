"""Random hierarchies: their posterior is right by an oracle without the package, or the route says why it is not given.

200 programs (`hierarchy_generator`), each by the route of its number of hyperparameters, against `hierarchy_oracle`:
log evidence, means of hyperparameters (on the unconstrained scale), rows and rewards. Where both are quadratures they
agree to 1e-5. Otherwise within 6.5 standard errors, those of the oracle and of the weights; an estimate of an error
from 16 populations makes that a false alarm of 1e-5 for each number.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from tests.inference.collapsed.hierarchy_generator import DISCRETE, SPACE, Description, describe, program
from tests.inference.collapsed.hierarchy_oracle import Estimate, NoTruthError, Oracle, Truth, posterior

NUMBER, LEVEL = 200, 6.5
QUADRATURE_LEVEL = 1e-5


class Outcome(NamedTuple):
    """What became of a program: "agrees", "handed on", "unknown" (to the oracle) or "wrong"; its route; why."""

    kind: str
    route: str
    words: str


@lru_cache(maxsize=256)
def truth_of(seed: int) -> Truth:
    """The posterior of a description, once."""
    return posterior(describe(seed))


def judge(description: Description, truth: Truth | None = None) -> Outcome:
    """Infer a program by quadrature or importance and compare."""
    route = "quadrature" if description.numbers <= 2 else "importance"
    try:
        data = description.data if description.state.size else None
        belief = bm.infer(jax.random.key(0), program(description), data, space=SPACE, method=route)
    except ValueError as error:
        said = re.search(r"and (.*), expected 'collapsed'", str(error))
        if said is None:
            raise
        return Outcome("handed on", route, said.group(1))
    try:
        truth = truth_of(description.seed) if truth is None else truth
    except NoTruthError as error:
        return Outcome("unknown", route, str(error))
    wrong = differences(description, belief, truth)
    return Outcome("wrong" if wrong else "agrees", route, "; ".join(wrong))


def differences(description: Description, belief: Any, truth: Truth) -> list[str]:
    """What of a posterior is not as it must be."""
    weights, oracle = np.asarray(belief.weights, np.float64), Oracle(description)
    values = {name: np.asarray(x) for name, x in belief.hyperparameters.items()}
    points = oracle.unconstrained({name: x.astype(np.float64) for name, x in values.items()})
    discrete = [h.name for h in description.hypers if h.family in DISCRETE]
    probs = np.array([weights @ values[name] for name in discrete])
    mean, evidence = belief.mean_mdp(), bm.evidence(belief, jax.random.key(1))
    by_grid = belief.integration is not None and belief.method == "quadrature"  # without data: draws of the prior
    worth = np.inf if by_grid else 1.0 / (weights**2).sum()
    wrong: list[str] = []

    def compare(name: str, got: np.ndarray, right: Estimate, spread: np.ndarray, stated: float = 0.0) -> None:
        error = np.hypot(np.hypot(right.error, spread / np.sqrt(worth)), stated)
        # Rows and rewards are kept in single precision.
        allowed = LEVEL * error + QUADRATURE_LEVEL * np.maximum(np.abs(right.value), 1.0)
        off = ~(np.abs(got - right.value) <= allowed)
        if off.any():
            at = tuple(int(i) for i in np.argwhere(off)[0])
            wrong.append(
                f"{name}{list(at)}: got {np.asarray(got)[at]:.6g}, right {right.value[at]:.6g} +- "
                f"{np.broadcast_to(right.error, np.shape(off))[at]:.2g}, allowed {allowed[at]:.2g}"
            )

    log_evidence, stated = np.asarray(evidence.log_evidence), 0.0 if by_grid else evidence.standard_error
    compare("log evidence", log_evidence, truth.evidence, np.zeros(()), stated)
    compare("hyperparameters", weights @ points, truth.points, truth.spread)
    compare("discrete", probs, truth.probs, np.ones(()))
    compare("rows", np.asarray(mean.transition_probs, np.float64), truth.rows, truth.spread_rows)
    compare("rewards", np.asarray(mean.reward, np.float64), truth.reward, truth.spread_reward)
    return wrong


@pytest.mark.some(12)
@pytest.mark.parametrize("seed", range(NUMBER))
def test_right_or_handed_on(seed):
    outcome = judge(describe(seed))
    assert outcome.kind != "wrong", f"seed {seed}, {outcome.route}: {outcome.words}"
