"""Transitions and their statistics: two routes, merging, masks, refusals row by row."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.mdp import Counts, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import check_transitions, merge_moments, pool_moments

SPACE = StateActionSpace(3, 2, ends=True)


def make(n=200, seed=0, **changes):
    rng = np.random.default_rng(seed)
    fields = {
        "state": rng.integers(0, 3, n),
        "action": rng.integers(0, 2, n),
        "reward": rng.normal(1e4, 1.0, n),
        "next_state": rng.integers(0, 3, n),
        "terminated": rng.uniform(size=n) < 0.2,
    }
    return Transitions(**{**fields, **changes})


def by_hand(transitions, by_outcome=False):
    """A dictionary of rewards and outcome counts, one transition at a time."""
    counts, rewards = np.zeros((3, 2, 4)), {}
    for i in range(len(transitions.state)):
        cell = int(transitions.state[i]), int(transitions.action[i])
        outcome = 3 if transitions.terminated[i] else int(transitions.next_state[i])
        counts[(*cell, outcome)] += 1
        rewards.setdefault((*cell, outcome) if by_outcome else cell, []).append(transitions.reward[i])
    return counts, rewards


@pytest.mark.parametrize("by_outcome", [False, True])
def test_counts_by_hand(by_outcome, x64):
    data = make()
    counts = Counts.of(data, SPACE, by_outcome=by_outcome)
    expected, rewards = by_hand(data, by_outcome)
    np.testing.assert_array_equal(counts.transitions, expected)
    for cell, values in rewards.items():
        assert counts.reward_count[cell] == len(values)
        np.testing.assert_allclose(counts.reward_mean[cell], np.mean(values), rtol=1e-13)
        np.testing.assert_allclose(counts.reward_ss[cell], np.var(values) * len(values), rtol=1e-9, atol=1e-9)


def test_deviations_do_not_cancel_in_float32():
    """Rewards 10^4 +- 1: a sum of squares in float32 would lose the variance altogether."""
    data = make(n=1000)
    counts, (_, rewards) = Counts.of(data, SPACE), by_hand(data)
    for cell, values in rewards.items():
        np.testing.assert_allclose(counts.reward_ss[cell], np.var(values) * len(values), rtol=1e-2)


def test_merging_is_counting_together(x64):
    whole = make()
    cut = lambda part: jax.tree.map(lambda x: x[part], whole)  # noqa: E731
    for at in (0, 70, 200):
        merged = Counts.of(cut(slice(at)), SPACE).merge(Counts.of(cut(slice(at, None)), SPACE))
        for left, right in zip(jax.tree.leaves(merged), jax.tree.leaves(Counts.of(whole, SPACE)), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-8)


def test_weights_mask(x64):
    data, keep = make(), np.arange(200) < 50
    masked = Counts.of(data, SPACE, weight=keep)
    cut = Counts.of(jax.tree.map(lambda x: x[:50], data), SPACE)
    for left, right in zip(jax.tree.leaves(masked), jax.tree.leaves(cut), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("index", [0, 50])
def test_what_a_masked_row_holds_is_not_looked_at(index, x64):
    """Padding may be anything: nan, an index out of range."""
    keep = np.arange(200) != index
    data: Any = make()
    data = Transitions(
        np.where(keep, data.state, 99),
        np.where(keep, data.action, -7),
        np.where(keep, data.reward, np.nan),
        np.where(keep, data.next_state, 99),
        data.terminated,
    )
    masked = Counts.of(data, SPACE, weight=keep)
    cut = Counts.of(jax.tree.map(lambda x: x[keep], data), SPACE)
    for left, right in zip(jax.tree.leaves(masked), jax.tree.leaves(cut), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-9)
    with pytest.raises(ValueError, match=rf"transitions.state\[{index}\] is 99"):
        Counts.of(data, SPACE)
    worse = eqx.tree_at(lambda t: t.reward, data, np.where(np.arange(200) == 60, np.inf, data.reward))
    with pytest.raises(ValueError, match=r"transitions.reward\[60\] is inf"):
        check_transitions(worse, SPACE, keep)
    check_transitions(worse, SPACE, 0.0)


def test_counting_on_the_host_in_single_precision():
    """Added up in float64, and as float32 as before."""
    log = Transitions(np.zeros(3, int), np.zeros(3, int), np.array([0.1, 0.2, 0.4]), np.array([1, 1, 2]))
    space = StateActionSpace(3, 1)
    ours, traced = Counts.of(log, space), jax.jit(lambda log: Counts.of(log, space))(log)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(traced), strict=True):
        assert isinstance(one, jax.Array) and one.dtype == other.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.some(8)
@pytest.mark.parametrize("seed", range(30))
def test_counting_on_the_host_is_counting_in_a_program(seed, x64):
    """Random spaces, logs with missing rewards and masked rows that hold anything, also with no row, or one."""
    rng = np.random.default_rng(seed)
    s, a, ends = map(int, rng.integers((2, 1, 0), (5, 4, 2)))
    number = int(rng.choice([0, 1, 40]))
    successors = None
    if rng.integers(2):
        successors = np.argsort(rng.random((s, a, s + ends)), -1)[..., : int(rng.integers(1, s + ends + 1))]
    space = StateActionSpace(s, a, ends=bool(ends), horizon=[None, 3][int(rng.integers(2))], successors=successors)
    state, action = rng.integers(s, size=number), rng.integers(a, size=number)
    outcome = rng.integers(space.n_outcomes, size=number)
    step = None if space.horizon is None else rng.integers(3, size=number)
    next_state, ended = space.reached((state, action), outcome)
    weight = rng.integers(3, size=number) / 2
    if number > 1:
        state, next_state = np.where(weight == 0, 99, state), np.where(weight == 0, -7, next_state)
    seen = [None, rng.random(number) < 0.7][int(rng.integers(2))]
    log = Transitions(
        state, action, rng.normal(size=number), next_state, terminated=ended, step=step, reward_observed=seen
    )
    by_outcome = bool(rng.integers(2))
    count = lambda log, weight: Counts.of(log, space, by_outcome=by_outcome, weight=weight)  # noqa: E731
    ours, traced = count(log, weight), jax.jit(count)(log, weight)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(traced), strict=True):
        assert isinstance(one, jax.Array) and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_missing_rewards_are_no_rewards(x64):
    seen = np.arange(200) % 2 == 0
    reward = np.where(seen, 1e4 + np.arange(200.0), np.nan)
    counts = Counts.of(make(reward=reward, reward_observed=seen), SPACE)
    assert counts.reward_count.sum() == 100
    assert counts.transitions.sum() == 200
    assert np.isfinite(counts.reward_mean).all()
    assert Counts.of(make(reward=None), SPACE).reward_count.sum() == 0


def test_one_transition_and_steps(x64):
    stepped = StateActionSpace(3, 2, horizon=4)
    one = Transitions(1, 0, 2.5, 2, step=3)
    counts = Counts.of(one, stepped)
    assert counts.transitions.shape == (4, 3, 2, 3)
    assert counts.transitions[3, 1, 0, 2] == counts.transitions.sum() == 1
    assert counts.reward_mean[3, 1, 0] == 2.5
    with pytest.raises(ValueError, match=r"transitions\.step is None"):
        Counts.of(Transitions(1, 0, 2.5, 2), stepped)


def bad(index, value, name, **changes):
    data = make(**changes)
    column = np.array(getattr(data, name), dtype=float if name == "reward" else None)
    column[index] = value
    return make(**{**changes, name: column})


LEGAL = StateActionSpace(3, 2, ends=True, legal=np.array([[1, 1], [1, 0], [1, 1]]))
SUPPORT = np.ones((3, 2, 4), bool)
SUPPORT[2, 1, 0] = False


@pytest.mark.parametrize(
    ("data", "space", "message"),
    [
        (bad(7, 3, "state"), SPACE, r"transitions.state\[7\] is 3, expected a state index from 0 to 2"),
        (bad(7, -1, "action"), SPACE, r"transitions.action\[7\] is -1, expected an action index from 0 to 1"),
        (bad(7, 9, "next_state", terminated=None), SPACE, r"transitions.next_state\[7\] is 9, expected a state index"),
        (bad(7, np.nan, "reward"), SPACE, r"transitions.reward\[7\] is nan, expected a finite number"),
        (bad(7, np.inf, "reward"), SPACE, r"transitions.reward\[7\] is inf, expected a finite number"),
        (make(), StateActionSpace(3, 2), r"transitions.terminated\[\d+\] is True, expected a space with ends=True"),
        (make(terminated=None), StateActionSpace(3, 2, horizon=2), "transitions.step is None, expected the step"),
        (
            make(terminated=None, step=np.full(200, 2)),
            StateActionSpace(3, 2, horizon=2),
            r"transitions.step\[0\] is 2, expected a step index from 0 to 1",
        ),
        (make(), LEGAL, r"transitions.action\[\d+\] is 1, expected a legal action of state 1"),
        (
            make(),
            StateActionSpace(3, 2, ends=True, support=SUPPORT),
            r"transitions.next_state\[\d+\] is 0, expected an outcome in the known support of state 2, action 1",
        ),
    ],
)
def test_check_refuses(data, space, message):
    with pytest.raises(ValueError, match=message):
        check_transitions(data, space)


@pytest.mark.parametrize("name", ["action", "reward", "next_state", "terminated", "reward_observed"])
def test_columns_of_another_length_are_refused(name):
    short: dict[str, Any] = {name: np.zeros(1, float if name == "reward" else bool if name[0] in "tr" else int)}
    with pytest.raises(ValueError, match=rf"transitions.{name} has shape \(1,\), expected \(200,\) \(as transitions"):
        check_transitions(make(**short), SPACE)
    with pytest.raises(ValueError, match=rf"transitions.{name} has shape"):
        jax.eval_shape(lambda t: Counts.of(t, SPACE), make(**short))


def test_counting_checks():
    with pytest.raises(ValueError, match=r"transitions.state\[7\] is 3, expected a state index from 0 to 2"):
        Counts.of(bad(7, 3, "state"), SPACE)
    with pytest.raises(ValueError, match=r"transitions.reward\[7\] is nan"):
        Counts.of(bad(7, np.nan, "reward"), SPACE)


def test_the_next_state_of_an_end_is_not_looked_at():
    terminated = np.zeros(200, bool)
    terminated[7] = True
    check_transitions(bad(7, 99, "next_state", terminated=terminated), SPACE)


def test_next_state_equal_to_n_states_is_no_end():
    """S is the index of "end" in a row, not a state: a row that was not terminated must not carry it."""
    with pytest.raises(ValueError, match=r"transitions.next_state\[7\] is 3, expected a state index"):
        check_transitions(bad(7, 3, "next_state", terminated=None), SPACE)


def test_floats_are_no_indices():
    with pytest.raises(TypeError, match=r"transitions\.state has dtype float64, expected integers"):
        check_transitions(make(state=np.zeros(200)), SPACE)


def test_check_accepts_good_data_and_tracers():
    check_transitions(make(), SPACE)
    jax.eval_shape(lambda t: check_transitions(t, SPACE), make())


def test_a_log_names_its_columns():
    """As pairs or a mapping; roles without a column are left out, and are their own names."""
    data = Transitions([0], [0], [0.0], [0])
    log = Log(data, ("a",), ("x",), columns={"state": "wear", "reward": None})
    assert log.columns == (("state", "wear"),) and hash(log.columns)
    assert log.column("state") == "wear" and log.column("reward") == "reward"
    assert Log(data, ("a",), ("x",), columns=log.columns).columns == log.columns
    assert Log(data, ("a",), ("x",)).column("action") == "action"


def test_a_log_in_place_of_transitions_is_refused():
    """Its labels may have other numbers than those of the space: nothing would look at them."""
    log = Log(make(), tuple("cba"), (0, 1))
    with pytest.raises(TypeError, match=r"transitions is a Log, expected what read_log\(\.\.\., space=, chunksize=\)"):
        check_transitions(log, SPACE)  # type: ignore[arg-type] - that is the point


VALUES = np.random.default_rng(0).normal(1e4, 1.0, 60)


def moments(values):
    mean = values.mean()
    return jnp.asarray(float(len(values))), jnp.asarray(mean), jnp.asarray(((values - mean) ** 2).sum())


@pytest.mark.parametrize("cut", [1, 20, 59])
def test_merged(cut, x64):
    merged = merge_moments(moments(VALUES[:cut]), moments(VALUES[cut:]))
    np.testing.assert_allclose(merged, moments(VALUES), rtol=1e-10)


def test_pooled(x64):
    parts = [moments(part) for part in np.split(VALUES, [5, 30])]
    count, mean, ss = (jnp.stack(x) for x in zip(*parts, strict=True))
    pooled = pool_moments((count, mean, ss), lambda x: x.sum(), lambda x: x)
    np.testing.assert_allclose(pooled, moments(VALUES), rtol=1e-10)


def test_nothing_and_something(x64):
    nothing = (jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))
    np.testing.assert_array_equal(merge_moments(nothing, nothing), nothing)
    np.testing.assert_allclose(merge_moments(nothing, moments(VALUES)), moments(VALUES), rtol=1e-15)
    np.testing.assert_array_equal(pool_moments(nothing, lambda x: x, lambda x: x), nothing)
