"""Spaces whose lists come from a log: the posterior is that of all outcomes, with those never seen put together."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.mdp import Log
from tests.envs.logs.random_logs import fold_log

KEY = jax.random.key(0)


def random_log(seed, *, ends):
    """A log of up to 7 states of which few are reached from a pair, some pairs never tried."""
    rng = np.random.default_rng(seed)
    n_states, n_actions, number = int(rng.integers(2, 8)), int(rng.integers(1, 4)), int(rng.integers(1, 60))
    state, action = rng.integers(n_states, size=number), rng.integers(n_actions, size=number)
    after = (state * 3 + action + rng.integers(2, size=number)) % n_states
    over = (rng.random(number) < 0.2) & ends
    data = bm.Transitions(state, action, rng.normal(size=number), after, over if ends else None)
    return Log(data, tuple(f"s{i}" for i in range(n_states)), tuple(range(n_actions)))


@pytest.mark.few(1)
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_it_is_the_dense_posterior_with_the_rest_put_together(seed, ends, x64):
    log = random_log(seed, ends=ends)
    prior = bm.models.dirichlet_normal(0.3)
    dense_space = bm.StateActionSpace.from_log(log, ends=ends)
    space = bm.StateActionSpace.from_log(log, ends=ends, successors="observed")
    dense: Any = bm.infer(KEY, prior, log, space=dense_space, method="exact")
    listed: Any = bm.infer(KEY, prior, log, space=space, method="exact")
    n, unseen = dense_space.n_states, space.unseen
    assert unseen == n and space.states == (*log.states, "unseen")
    concentration, found = np.asarray(dense.transition_probs.concentration), listed.transition_probs.concentration
    for s, a in np.ndindex(dense_space.shape):
        reached = np.asarray(space.successors)[s, a]
        # The dense outcome of each place: the end is the last one there.
        seen = (reached >= 0) & (reached != unseen)
        outcome = np.where(reached[seen] > n, n, reached[seen])
        np.testing.assert_allclose(found[s, a][seen], concentration[s, a][outcome], rtol=1e-12)
        rest = np.delete(concentration[s, a], outcome).sum()
        np.testing.assert_allclose(found[s, a][reached == unseen].sum(), rest, rtol=1e-12)
        assert (reached == unseen).sum() == (rest > 0)
    # Nothing of the data lies in the rest: both evidences are of the same sequence.
    assert listed.log_evidence == pytest.approx(dense.log_evidence, rel=1e-10)


def test_new_outcomes_count_as_unseen(x64):
    """Against the dense posterior of both logs, whose outcomes outside the lists are added up."""
    log = random_log(3, ends=False)
    prior, n = bm.models.dirichlet_normal(0.3), len(log.states)
    rng = np.random.default_rng(7)
    later = bm.Transitions(
        rng.integers(n, size=40), rng.integers(len(log.actions), size=40), None, rng.integers(n, size=40)
    )
    space = bm.StateActionSpace.from_log(log, successors="observed")
    listed: Any = bm.infer(KEY, prior, log, space=space, method="exact").update(later)
    dense: Any = bm.infer(KEY, prior, log, space=bm.StateActionSpace.from_log(log), method="exact").update(later)
    concentration = np.asarray(dense.transition_probs.concentration)
    for s, a in np.ndindex(n, len(log.actions)):
        reached = np.asarray(space.successors)[s, a]
        seen = (reached >= 0) & (reached < n)
        rest = np.delete(concentration[s, a], reached[seen]).sum()
        mass = np.asarray(listed.transition_probs.concentration)[s, a][reached == n].sum()
        np.testing.assert_allclose(mass, rest, rtol=1e-12)
    inside = jax.jit(lambda p, t: p.update(t))(listed, later)
    np.testing.assert_allclose(
        inside.visit_counts()[:n], np.asarray(dense.visit_counts()) + _counts(later, dense), 1e-9
    )


def _counts(data, posterior):
    counts = np.zeros(np.shape(posterior.visit_counts()))
    np.add.at(counts, (np.asarray(data.state), np.asarray(data.action)), 1)
    return counts


@pytest.mark.few(1)
@pytest.mark.parametrize("ends", [False, True])
def test_a_policy_is_worth_what_the_unseen_is_said_to_be(ends):
    """A pair without data leads to "unseen" with certainty; its reward decides."""
    data = bm.Transitions([0, 0, 1], [0, 0, 0], [1.0, 1.0, 0.0], [1, 1, 0], [False, False, ends] if ends else None)
    log = Log(data, ("a", "b"), ("stay", "go"))
    space = bm.StateActionSpace.from_log(log, successors="observed")
    reward = np.zeros(space.shape)
    reward[space.unseen] = -3.0
    rewards = np.where(np.arange(3)[:, None] == space.unseen, reward, [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    known = bm.Transitions(data.state, data.action, None, data.next_state, data.terminated)
    posterior = bm.infer(KEY, bm.models.known_rewards(rewards, 0.5), known, space=space)
    value = bm.evaluate(posterior.mean_mdp(), np.ones(3, int), bm.Discounted(0.5))
    assert float(value.v[0]) == pytest.approx(0.5 * (-3.0 if ends else -6.0), rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"successors": "seen"}, r"""successors is 'seen', expected "observed" """),
        ({"successors": "observed", "horizon": 3}, "without horizon and support"),
    ],
)
def test_wrong_arguments(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        bm.StateActionSpace.from_log(random_log(0, ends=False), **arguments)


def test_a_next_state_without_label_is_refused():
    """A negative index, too: it is not the end."""
    for wrong in (-1, 2):
        log = Log(bm.Transitions([0, 1], [0, 0], None, [1, wrong]), ("a", "b"), ("stay",))
        with pytest.raises(ValueError, match=rf"transitions.next_state\[1\] is {wrong}, expected a state index"):
            bm.StateActionSpace.from_log(log, successors="observed")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"multiplicity": [[[1]], [[1]]]}, "multiplicity is given without successors"),
        ({"unseen": 1}, "unseen is given without successors"),
        ({"unseen": 0, "successors": [[[0]], [[1]]]}, "unseen is 0, expected the last state, 1"),
        ({"multiplicity": [[[0]], [[1]]], "successors": [[[0]], [[1]]]}, r"multiplicity\[0, 0, 0\] is 0"),
        ({"multiplicity": [[1], [1]], "successors": [[[0]], [[1]]]}, r"multiplicity has shape \(2, 1\)"),
    ],
)
def test_wrong_fields(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        bm.StateActionSpace(2, 1, **arguments)


def test_a_folded_log_gives_the_same_lists(x64):
    """And what it has of later outcomes counts as unseen, as rows do."""
    log = random_log(5, ends=True)
    data = log.transitions
    frame = pd.DataFrame(
        {
            "s": [log.states[i] for i in data.state],
            "a": data.action,
            "r": data.reward,
            "z": [log.states[i] for i in data.next_state],
            "over": data.terminated,
        }
    )
    columns: Any = {"state": "s", "action": "a", "reward": "r", "next_state": "z", "terminated": "over"}
    folded = fold_log(frame, **columns, states=log.states, actions=log.actions)
    space = bm.StateActionSpace.from_log(log, successors="observed")
    again = bm.StateActionSpace.from_log(folded, successors="observed")
    np.testing.assert_array_equal(again.successors, space.successors)
    np.testing.assert_array_equal(again.multiplicity, space.multiplicity)
    few = bm.StateActionSpace.from_log(
        Log(jax.tree.map(lambda x: x[:5], data), log.states, log.actions), ends=True, successors="observed"
    )
    prior = bm.models.dirichlet_normal(0.3)
    by_rows: Any = bm.infer(KEY, prior, log, space=few, method="exact")
    by_counts: Any = bm.infer(KEY, prior, folded, space=few, method="exact")
    np.testing.assert_array_equal(by_counts.transition_probs.counts, by_rows.transition_probs.counts)


def test_it_is_saved_with_the_posterior(tmp_path):
    log = random_log(4, ends=True)
    space = bm.StateActionSpace.from_log(log, successors="observed")
    posterior: Any = bm.infer(KEY, bm.models.dirichlet_normal(), log, space=space)
    bm.save(posterior, tmp_path / "posterior.bin")
    loaded: Any = bm.load(tmp_path / "posterior.bin")
    assert loaded.space.unseen == space.unseen
    np.testing.assert_array_equal(loaded.space.multiplicity, space.multiplicity)
    np.testing.assert_array_equal(loaded.mean_mdp().probability, posterior.mean_mdp().probability)
