"""Limits on policies, as sets of policies: every promise of `PolicyLimits`, entry by entry."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, PolicySet, policy_set

pytestmark = pytest.mark.numerics

S, A = 4, 3
LEGAL = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 0, 1]], bool)
COUNTS = np.array([[9, 2, 0], [1, 1, 0], [0, 4, 7], [0, 0, 0]], float)


def some(rng: np.random.Generator, policies: PolicySet, number: int = 20) -> np.ndarray:
    """Policies of the set, deterministic and mixed choices."""
    options = [np.flatnonzero(row) for row in policies.free]
    choices = np.array([[rng.choice(o) for o in options] for _ in range(number)])
    mixed = rng.random((number, *policies.free.shape)) * policies.free
    return np.concatenate([policies.policy(choices), policies.mixed(mixed / mixed.sum(-1, keepdims=True))])


@pytest.fixture
def baseline() -> np.ndarray:
    """Legal, mixed."""
    probs = np.random.default_rng(0).uniform(0.1, 1, (S, A)) * LEGAL
    return probs / probs.sum(-1, keepdims=True)


def made(limits: PolicyLimits, baseline: np.ndarray | None = None, counts: np.ndarray | None = COUNTS) -> PolicySet:
    """The set over the legal actions."""
    return policy_set(limits, LEGAL, (S, A), counts, baseline)


@pytest.mark.parametrize("change", [0.2, 1.0])
@pytest.mark.parametrize("below", [0, 2, 5, 100])
@pytest.mark.parametrize("least", [0, 1, 3])
def test_all_policies_keep_all_promises(change, below, least, baseline):
    """Distributions over legal actions; each limit as it is written."""
    policies = made(PolicyLimits(max_change=change, bootstrap_below=below, min_count=least), baseline)
    probs = some(np.random.default_rng(0), policies)
    np.testing.assert_allclose(probs.sum(-1), 1.0, atol=1e-12)
    assert (probs >= -1e-15).all() and (probs[:, ~LEGAL] == 0).all()
    assert (0.5 * np.abs(probs - baseline).sum(-1) <= change + 1e-12).all()
    assert all(policies.contains(policy) for policy in probs)
    assert (probs[:, ~policies.used] == 0).all()
    none = ~(LEGAL & (least <= COUNTS)).any(-1)
    if least:
        np.testing.assert_allclose(probs[:, none], np.broadcast_to(baseline[none], probs[:, none].shape))
    if least and change == 1.0 and not below:
        rare = (least > COUNTS) & ~none[:, None]
        assert (probs[:, rare] == 0).all()
    if below and not least:
        rare = LEGAL & (below > COUNTS)
        np.testing.assert_allclose(probs[:, rare], np.broadcast_to(baseline[rare], probs[:, rare].shape), atol=1e-12)
    if below == 100:
        np.testing.assert_allclose(probs, np.broadcast_to(baseline, probs.shape), atol=1e-12)


def test_the_set_is_as_large_as_promised(baseline):
    """Half way from the baseline to any legal deterministic policy."""
    policies = made(PolicyLimits(max_change=0.5), baseline)
    for choice in product(*(np.flatnonzero(row) for row in LEGAL)):
        assert policies.contains(0.5 * baseline + 0.5 * np.eye(A)[list(choice)])
        assert not policies.contains(0.49 * baseline + 0.51 * np.eye(A)[list(choice)])
    assert policies.count == 3 * 2 * 2 * 1
    assert policies.open_states.tolist() == [True, True, True, False]


def test_few_data_without_a_baseline(baseline):
    """Where no action was seen often enough, those seen most often are left."""
    policies = made(PolicyLimits(min_count=5))
    np.testing.assert_array_equal(policies.free, [[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1]])
    assert policies.whole and policies.count == 2
    kept = made(PolicyLimits(min_count=5), baseline)
    assert kept.mass.tolist() == [1, 0, 1, 0] and kept.count == 1


def test_counts_of_steps_are_added():
    """A policy for three steps; data of each step."""
    counts = np.stack([COUNTS, 0 * COUNTS, COUNTS])
    policies = policy_set(PolicyLimits(min_count=8), LEGAL, (3, S, A), counts, None)
    np.testing.assert_array_equal(policies.free, [[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1]])
    assert policies.fixed.shape == (3, S, A) and policies.count == 4**3
    assert policies.open_states.shape == (3, S)


def test_an_allowed_mask():
    """With the legal actions; `best` stays inside."""
    allowed = np.array([[0, 1, 1], [1, 1, 1], [0, 1, 0], [0, 0, 1]], bool)
    policies = made(PolicyLimits(allowed=allowed))
    np.testing.assert_array_equal(policies.free, allowed & LEGAL)
    best = policies.best(np.broadcast_to([3.0, 1.0, 2.0], (S, A)))
    np.testing.assert_array_equal(best, [2, 0, 1, 2])
    np.testing.assert_array_equal(policies.used, allowed & LEGAL)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"min_count": -1}, ValueError, "min_count is -1"),
        ({"bootstrap_below": -1}, ValueError, "bootstrap_below is -1"),
        ({"min_count": 1.5}, TypeError, "min_count is 1.5"),
        ({"max_change": 0.0}, ValueError, "max_change is 0.0, expected a number greater than 0, at most 1"),
        ({"max_change": 1.1}, ValueError, "max_change is 1.1"),
        ({"stochastic": 1}, TypeError, "stochastic is 1"),
        ({"allowed": [[0.5, 0], [1, 1]]}, ValueError, r"allowed\[0, 0\] is 0.5, expected True or False"),
    ],
)
def test_bad_limits_are_refused(arguments: dict[str, Any], kind, message):
    """In one sentence."""
    with pytest.raises(kind, match=message):
        PolicyLimits(**arguments)


def test_limits_that_do_not_fit_are_refused(baseline):
    """Shapes, states without an action, and what is missing."""
    with pytest.raises(ValueError, match=r"allowed has shape \(2, 2\), expected \(4, 3\)"):
        made(PolicyLimits(allowed=np.ones((2, 2), bool)))
    with pytest.raises(ValueError, match=r"allowed\[3\] .* expected at least one legal action in every state"):
        made(PolicyLimits(allowed=np.tile([True, True, False], (S, 1))))
    with pytest.raises(ValueError, match="max_change is given without a baseline"):
        made(PolicyLimits(max_change=0.5))
    with pytest.raises(ValueError, match="bootstrap_below is given without a baseline"):
        made(PolicyLimits(bootstrap_below=5))
    with pytest.raises(ValueError, match="min_count is given, and the posterior does not count its data"):
        made(PolicyLimits(min_count=5), counts=None)
    with pytest.raises(ValueError, match="bootstrap_below is given, and the posterior does not count its data"):
        made(PolicyLimits(bootstrap_below=5), baseline, counts=None)
