"""`from_gymnasium` against the table itself, solved by value iteration in numpy."""

from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

from bayes_mdp.envs import from_gymnasium
from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.mdp import NormalReward
from tests.planted_module import ID, Planted


class Tabulated(gymnasium.Env):
    """An environment that is only its table."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, table, initial=(1.0, 0.0)):
        self.P = table
        self.initial_state_distrib = initial


def table_of(name) -> Any:
    inner: Any = gymnasium.make(name).unwrapped
    return inner.P


def value_iteration(mdp, discount):
    rows, successor, reward = (np.asarray(x) for x in (mdp.probability, mdp.successor, mdp.reward))
    v = np.zeros(mdp.n_states)
    for _ in range(800):
        v = np.max(reward + discount * np.sum(rows * v[successor], -1), -1)
    return v


def table_iteration(table, discount, honour_terminated):
    """Value iteration on the table as Gymnasium states it."""
    longest = max(len(table[s][a]) for s in table for a in table[s])
    pad = [(0.0, 0, 0.0, False)] * longest
    entries = np.array([[[*table[s][a], *pad][:longest] for a in table[s]] for s in table], float)  # [S A E 4]
    probability, next_state, reward, ends = np.moveaxis(entries, -1, 0)
    live = 1 - ends if honour_terminated else np.ones_like(ends)
    v = np.zeros(len(table))
    for _ in range(800):
        v = np.sum(probability * (reward + discount * live * v[next_state.astype(int)]), -1).max(-1)
    return v


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "value", "without_ends"), [("Taxi-v4", 5.4522, 117.05), ("CliffWalking-v1", -6.1050, -20.0)]
)
def test_terminated_is_honoured(name, value, without_ends):
    mdp = from_gymnasium(name).mdp
    assert value_iteration(mdp, 0.95).mean() == pytest.approx(value, abs=5e-5)
    dropped = table_iteration(table_of(name), 0.95, honour_terminated=False)
    assert dropped.mean() == pytest.approx(without_ends, abs=5e-3)


@pytest.mark.usefixtures("x64")
def test_repeated_entries_are_added():
    mdp: Any = from_gymnasium("FrozenLake-v1").mdp
    table = table_of("FrozenLake-v1")
    dense = np.asarray(mdp.to_dense().transition_probs)
    for s, a in np.ndindex(16, 4):
        row, end = np.zeros(16), 0.0
        for p, z, _, terminated in table[s][a]:
            row[z] += 0 if terminated else p
            end += p if terminated else 0
        np.testing.assert_allclose(dense[s, a], row, atol=1e-15)
        assert mdp.end_probs[s, a] == pytest.approx(end, abs=1e-15)
        listed = np.asarray(mdp.successor[s, a])[np.asarray(mdp.probability[s, a]) > 0]
        assert len(set(listed)) == len(listed)
    np.testing.assert_allclose(value_iteration(mdp, 0.95), table_iteration(table, 0.95, True), atol=1e-12)


def test_name_initial_and_law():
    env = from_gymnasium(gymnasium.make("Taxi-v4"))
    assert env.name == "Taxi-v4"
    assert isinstance(env.reward_law, NormalReward)
    assert np.asarray(env.mdp.initial).sum() == pytest.approx(1.0, abs=1e-5)
    assert isinstance(from_gymnasium("FrozenLake-v1").reward_law, ListedReward)


MIXED = {
    0: {
        0: [(0.1, 1, 5.0, False), (0.3, 1, -1.0, False), (0.4, 1, 2.0, True), (0.2, 0, 0.0, False)],
        1: [(1.0, 0, 1.0, False)],
    },
    1: {0: [(1.0, 1, 0.0, True)], 1: []},
}


def test_one_next_state_with_several_rewards_and_ends():
    """Joint frequencies of (next state, reward, terminated) over 200,000 steps: sd <= 0.0012, bound 0.009 (7 sd)."""
    env: Any = from_gymnasium(Tabulated(MIXED))
    np.testing.assert_allclose(env.mdp.reward, [[0.5 - 0.3 + 0.8, 1.0], [0.0, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(env.mdp.end_probs, [[0.4, 0.0], [1.0, 0.0]], rtol=1e-6)
    np.testing.assert_array_equal(env.mdp.legal, [[True, True], [True, False]])
    keys = jax.random.split(jax.random.key(0), 200_000)
    next_state, paid, terminated = map(np.asarray, jax.jit(jax.vmap(lambda k: env.step(k, 0, 0)))(keys))
    for p, z, reward, ends in MIXED[0][0]:
        seen = (paid == reward) & (terminated == ends) & (ends | (next_state == z))
        assert seen.mean() == pytest.approx(p, abs=0.009)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: "NoSuchThing-v0", "id_or_env is 'NoSuchThing-v0', expected an id that Gymnasium can make"),
        (lambda: Tabulated(MIXED, initial=(1.0,)), r"initial has shape \(1,\), expected \(2,\) \(state\)"),
        (lambda: "CartPole-v1", r"CartPole-v1 has no table unwrapped\.P"),
        (lambda: Tabulated(MIXED, initial=None), "initial is None and Tabulated has no initial_state_distrib"),
        (
            lambda: Tabulated({0: {0: [(1.0, 7, 0.0, False)]}, 1: {0: []}}),
            r"P\[0\]\[0\] lists next state 7, expected 0 to 1",
        ),
        (
            lambda: Tabulated({0: {0: [(0.9, 1, 0.0, False)]}, 1: {0: [(1.0, 1, 0.0, True)]}}),
            r"probability\[0, 0\] sums to 0\.8999",
        ),
    ],
)
def test_bad_tables_are_refused(env, message):
    with pytest.raises(ValueError, match=message):
        from_gymnasium(env())


def test_initial_can_be_given():
    env = from_gymnasium(Tabulated(MIXED, initial=None), initial=np.array([0.5, 0.5]))
    np.testing.assert_array_equal(env.mdp.initial, [0.5, 0.5])


def test_an_id_imports_a_module_only_where_that_is_asked_for(tmp_path, monkeypatch):
    planted = Planted(tmp_path, monkeypatch)
    with pytest.raises(
        ValueError, match=r"would import the module 'a_planted_module', expected a registered id, or import_module=True"
    ):
        from_gymnasium(ID)
    assert not planted.imported
    try:
        assert from_gymnasium(ID, import_module=True).mdp.n_states == 16 and planted.imported
    finally:
        planted.forget()
    with pytest.raises(ValueError, match="id_or_env is 'no_such_module:X-v0', expected an id that Gymnasium can make"):
        from_gymnasium("no_such_module:X-v0", import_module=True)
