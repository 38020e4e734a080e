"""Policies that differ in few states of large draws: the values are those of each policy by itself."""

import numpy as np

import bayes_mdp as bm
from bayes_mdp.decisions.host_values import LEAST_POLICIES, NearbyPolicies, PolicyPairs, proven
from bayes_mdp.inference.pair_draws import Drawn, PairRows

STATES, ACTIONS = 260, 2
DISCOUNT = 0.95
PAIRS = STATES * ACTIONS


def pair_rows(ends: bool) -> PairRows:
    """Every row has all states, and the end, in order."""
    width = STATES + ends
    outcomes = np.tile(np.arange(width), PAIRS)
    state, action = np.divmod(np.arange(PAIRS), ACTIONS)
    return PairRows(None, state, action, np.arange(PAIRS + 1) * width, outcomes, outcomes, STATES)


def policies(states: int) -> list[np.ndarray]:
    """A mixture, and some that do otherwise in so many states; the first two are one."""
    rng = np.random.default_rng(0)
    first = rng.dirichlet(np.ones(ACTIONS), STATES)
    others = []
    for _ in range(LEAST_POLICIES - 2):
        other = first.copy()
        changed = rng.choice(states, min(states, 3), replace=False)
        other[changed] = np.eye(ACTIONS)[rng.integers(ACTIONS, size=len(changed))]
        others.append(other)
    return [first, first.copy(), *others]


def drawn(rows: PairRows) -> Drawn:
    rng = np.random.default_rng(1)
    assert rows.width is not None
    probs = rng.dirichlet(np.full(rows.width, 0.05), size=(2, PAIRS))
    return Drawn(probs.reshape(2, -1), rng.normal(size=(2, PAIRS)))


def test_values_are_those_of_each_policy():
    for ends in (False, True):
        rows = pair_rows(ends)
        pairs, draws = [PolicyPairs(rows, policy) for policy in policies(20)], drawn(rows)
        nearby = NearbyPolicies.of(pairs)
        assert nearby is not None
        answers = nearby.values(draws, DISCOUNT)
        for mine, answer in zip(pairs, answers, strict=True):
            alone = proven(mine.chains(draws), bm.Discounted(DISCOUNT))
            np.testing.assert_allclose(answer.first, alone.first, atol=1e-12)
            # Both are proven: they differ by no more than the bounds.
            assert (np.abs(answer.first - alone.first).max(-1) <= answer.gap + alone.gap).all()
            assert answer.gap.max() < 1e-8
        np.testing.assert_array_equal(answers[0].first, answers[1].first)


def test_few_policies_and_those_that_differ_in_many_states_are_evaluated_by_themselves():
    rows = pair_rows(True)
    pairs = [PolicyPairs(rows, policy) for policy in policies(20)]
    assert NearbyPolicies.of(pairs[:-1]) is None
    many = np.eye(ACTIONS)[np.random.default_rng(2).integers(ACTIONS, size=(LEAST_POLICIES, STATES))]
    assert NearbyPolicies.of([PolicyPairs(rows, policy) for policy in many]) is None
