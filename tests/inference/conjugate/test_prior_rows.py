"""Rows that are held once answer as their table does, and so does a mixture of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.inference import enumerated, route
from bayes_mdp.inference.conjugate.prior_rows import RepeatedRows, RowTable, prior_rows
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.mdp import Log
from bayes_mdp.numerics.array_forms import stack_trees

KEY = jax.random.key(0)
OBJECTIVE = bm.Discounted(0.9)


def walk(states: int = 6, steps: int = 150) -> Log:
    """A random walk of three actions, in episodes of ten steps; the reward is where it is, and noise."""
    rng = np.random.default_rng(0)
    action, state = rng.integers(3, size=steps), [0]
    for a in action:
        state.append(int(np.clip(state[-1] + rng.choice([-1, 0, a - 1, 1]), 0, states - 1)))
    columns = {"s": state[:-1], "a": action, "t": state[1:], "r": state[:-1] + rng.normal(size=steps)}
    table = pd.DataFrame(columns | {"e": np.arange(steps) // 10})
    return bm.read_log(
        table,
        state="s",
        action="a",
        reward="r",
        next_state="t",
        episode="e",
        states=range(states),
        actions=range(3),
    )


def infer(log: Log, data: Log | None, space: bm.StateActionSpace) -> Mixture:
    belief = bm.infer(KEY, bm.models.default_prior(log, space=space), data, space=space)
    assert isinstance(belief, Mixture)
    return belief


def repeated(belief: Mixture) -> RepeatedRows:
    """The priors of its rows."""
    prior = belief.components.transition_probs.prior
    assert isinstance(prior, RepeatedRows)
    return prior


def both_of(monkeypatch: pytest.MonkeyPatch, data: Log | None) -> tuple[Mixture, Mixture]:
    """Rows of each component, and rows that are held once."""
    log = walk()
    space, found = bm.StateActionSpace.from_log(log), []
    for many in (2**60, 0):
        monkeypatch.setattr(route, "MANY", many)
        enumerated.fit_of.cache_clear()
        found.append(infer(log, data, space))
    enumerated.fit_of.cache_clear()
    each, once = found
    assert repeated(once) is not None and not isinstance(each.components.transition_probs.prior, RepeatedRows)
    return each, once


def test_rows_answer_as_their_table(key):
    """Of one component and of a stack; some concentrations are zero."""
    rng = np.random.default_rng(0)
    rows = rng.gamma(1.0, size=(3, 5)) * (rng.random((3, 5)) < 0.7)
    each = [RepeatedRows(np.float64(k), rows, rng.integers(3, size=7)) for k in (0.5, 2.0)]
    counts = rng.integers(3, size=(7, 5)).astype(float)
    for one in each:
        table = RowTable(np.asarray(one))
        assert isinstance(prior_rows(table.table), RowTable) and prior_rows(one) is one
        np.testing.assert_allclose(one.totals(), table.totals(), rtol=1e-12)
        np.testing.assert_array_equal(one.num_positive(), table.num_positive())
        place = rng.integers(7, size=4), rng.integers(5, size=4)
        np.testing.assert_array_equal(one.at(*place), table.at(*place))
        evidence = table.log_evidence(counts)
        assert one.log_evidence(counts) == pytest.approx(evidence, abs=1e-12)
        assert one.log_evidences(counts, each)[each.index(one)] == one.log_evidence(counts)
        assert jax.jit(lambda x, one=one: one.log_evidence(x))(counts) == pytest.approx(evidence, rel=1e-4)
        assert table.log_evidences(counts, [table]) is None
    stack, tables = stack_trees(each), RowTable(np.stack([np.asarray(one) for one in each]))
    chosen, element = np.array([1, 0, 1]), rng.integers(35, size=6)
    np.testing.assert_array_equal(stack.components_at(chosen, element), tables.components_at(chosen, element))
    assert stack.differ() and tables.differ()
    assert not RowTable(np.stack([tables.table[0]] * 2)).differ() and not stack_trees([each[0]] * 2).differ()
    kinds, signs = stack.signs().ravel(), tables.signs().reshape(14, 5)
    np.testing.assert_array_equal(kinds[:, None] == kinds, (signs[:, None] == signs).all(-1))
    np.testing.assert_array_equal(stack.likely(np.array([1.0, 1e-19])), [0])
    assert tables.likely(np.ones(2)) is None


def test_beliefs_are_the_same(monkeypatch):
    each, once = both_of(monkeypatch, walk())
    np.testing.assert_allclose(once.weights, each.weights, atol=1e-12)
    assert once.log_evidence == pytest.approx(each.log_evidence, abs=1e-9)
    before = np.asarray(each.components.transition_probs.prior)
    np.testing.assert_allclose(np.asarray(repeated(once)), before, rtol=1e-12)
    for name in ("prior_share", "expected_information", "visit_counts", "reward_variance", "data_reward"):
        np.testing.assert_allclose(getattr(once, name)(), getattr(each, name)(), rtol=1e-6)
    for one, other in zip(once.prior_weight(), each.prior_weight(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    means = [belief.mean_mdp().row_probs for belief in (each, once)]
    np.testing.assert_allclose(means[1], means[0], rtol=1e-6)


def test_draws_are_the_same(monkeypatch):
    each, once = both_of(monkeypatch, walk())
    policy = np.full((6, 3), 1 / 3)
    values = [bm.policy_value(KEY, belief, policy, OBJECTIVE, num_draws=50).draws for belief in (each, once)]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-9)
    whole = [jax.jit(lambda belief: belief.sample(KEY))(belief).row_probs for belief in (each, once)]
    np.testing.assert_allclose(whole[1], whole[0], rtol=1e-4, atol=1e-6)


def test_what_is_learnt_later_is_the_same(monkeypatch):
    each, once = both_of(monkeypatch, walk())
    log = walk(steps=40).transitions
    pairs = [(belief.update(log), belief.discount_data(0.5), belief.before_data()) for belief in (each, once)]
    for other, one in zip(*pairs, strict=True):
        assert len(np.shape(repeated(one).rows)) == 3
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-12)
        np.testing.assert_allclose(one.mean_mdp().row_probs, other.mean_mdp().row_probs, rtol=1e-6)
    one_more = jax.tree.map(jnp.asarray, bm.Transitions(0, 1, 2.0, 3))
    weights = [jax.jit(lambda belief, data: belief.update(data).weights)(belief, one_more) for belief in (each, once)]
    np.testing.assert_allclose(weights[1], weights[0], atol=1e-6)


def test_without_data_and_from_a_file(monkeypatch, tmp_path):
    each, once = both_of(monkeypatch, None)
    np.testing.assert_allclose(once.mean_mdp().row_probs, each.mean_mdp().row_probs, rtol=1e-6)
    learnt = once.update(walk().transitions)
    bm.save(learnt, tmp_path / "belief.bmdp")
    loaded = bm.load(tmp_path / "belief.bmdp")
    assert isinstance(loaded, Mixture)
    np.testing.assert_array_equal(loaded.weights, learnt.weights)
    np.testing.assert_array_equal(loaded.update(walk().transitions).weights, learnt.update(walk().transitions).weights)


def test_components_share_what_they_have_in_common(monkeypatch):
    """Counts and rows are views without a stride, also after data: memory does not grow with the components."""
    _, once = both_of(monkeypatch, walk())
    for belief in (once, once.update(walk().transitions)):
        counts, rows = np.asarray(belief.components.transition_probs.counts), np.asarray(repeated(belief).rows)
        assert counts.strides[0] == 0 and rows.strides[0] == 0 and rows.shape[1:] == (1 + 2 * 6, 6)


def test_rows_that_cannot_be_held_once_are_held_one_by_one(monkeypatch):
    """Where some outcome is impossible."""
    monkeypatch.setattr(route, "MANY", 0)
    log, support = walk(), np.ones((6, 3, 6), bool)
    support[0, 0, 5] = False
    space = bm.StateActionSpace.from_log(log, support=support)
    belief = infer(log, log, space)
    assert not isinstance(belief.components.transition_probs.prior, RepeatedRows)
    assert belief.mean_mdp().row_probs[0, 0, 5] == 0
