"""Judging policies, against dense solves in numpy of the very same draws."""

import pickle
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.decisions.policy_comparison import compare_policies
from bayes_mdp.decisions.policy_evaluation import policy_value
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    Discounted,
    Episodic,
    FirstExit,
    StateActionSpace,
)
from bayes_mdp.utils import memory
from tests.inference.policy_problems import (
    ACTIONS,
    ISLANDS,
    N_ACTIONS,
    N_STATES,
    NUM_DRAWS,
    START,
    ExponentialRows,
    OnlySamples,
    dense_value,
    posterior,
)
from tests.text import unwrapped

pytestmark = pytest.mark.numerics


def drawn(belief, key):
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), belief)
        mdps = jax.jit(jax.vmap(wide.sample))(jax.random.split(key, NUM_DRAWS))
        return np.asarray(mdps.transition_probs), None if mdps.end_probs is None else np.asarray(mdps.end_probs)


RANDOM = np.random.default_rng(0).dirichlet(np.ones(N_ACTIONS), N_STATES)
CASES = [
    (posterior(), Discounted(0.999), RANDOM),
    (posterior(), Episodic(5), np.random.default_rng(1).dirichlet(np.ones(N_ACTIONS), (5, N_STATES))),
    (posterior(), Episodic(5, 0.7), np.random.default_rng(2).integers(0, N_ACTIONS, (5, N_STATES))),
    (posterior(horizon=5), Episodic(5), RANDOM),
    (posterior(horizon=5), Episodic(5, 0.7), RANDOM),
    (posterior(), AverageReward(), RANDOM),
    (posterior(ends=True), FirstExit(), RANDOM),
]


@pytest.mark.few(3)
@pytest.mark.parametrize(("belief", "objective", "probs"), CASES)
def test_every_draw_is_the_dense_solve_of_that_draw(belief, objective, probs, key):
    value = policy_value(key, belief, probs, objective, initial=START, num_draws=NUM_DRAWS)
    rows, _ = drawn(belief, key)
    known = np.eye(N_ACTIONS)[probs] if probs.dtype == int else probs
    expected = [dense_value(r, belief.reward, known, objective) for r in rows]
    np.testing.assert_allclose(value.draws, expected, rtol=1e-9, atol=1e-9)
    assert value.gap < 1e-8
    assert value.mean == pytest.approx(np.mean(expected))
    assert value.sd == pytest.approx(np.std(expected, ddof=1))
    np.testing.assert_allclose(value.interval, np.quantile(expected, [0.025, 0.975]))
    assert value.draws.dtype == np.float64


def test_draws_are_common_and_those_of_policy_value(key):
    belief, objective = posterior(), Discounted(0.9)
    policies = {"ints": ACTIONS, "probs": np.eye(2)[ACTIONS], "other": 1 - ACTIONS}
    answer = compare_policies(key, belief, policies, objective, initial=START, num_draws=NUM_DRAWS)
    alone = policy_value(key, belief, 1 - ACTIONS, objective, initial=START, num_draws=NUM_DRAWS)
    np.testing.assert_allclose(answer.values["other"].draws, alone.draws, rtol=1e-12)
    np.testing.assert_array_equal(answer.values["ints"].draws, answer.values["probs"].draws)
    other = np.mean(alone.draws > answer.values["ints"].draws)
    assert answer.prob_best == pytest.approx({"ints": (1 - other) / 2, "probs": (1 - other) / 2, "other": other})
    assert answer.difference("ints", "probs").prob_better == 0.5
    gain = answer.difference("other", "ints")
    np.testing.assert_allclose(gain.draws, alone.draws - answer.values["ints"].draws, rtol=1e-9, atol=1e-12)
    assert gain.prob_better == pytest.approx(other)
    assert gain.interval[0] < gain.mean < gain.interval[1]
    with pytest.raises(ValueError, match="second is 'none', expected one of 'ints', 'probs', 'other'"):
        answer.difference("ints", "none")


@pytest.mark.parametrize("numbers", [7 * 40, 1])
def test_draws_in_chunks_are_the_same_draws(key, monkeypatch, numbers):
    """Made and valued seven at a time; made eight at a time and valued one by one, as those of a large problem."""
    whole = policy_value(key, posterior(), ACTIONS, Discounted(0.9), num_draws=NUM_DRAWS)
    monkeypatch.setattr(import_module("bayes_mdp.decisions.policy_evaluation"), "NUMBERS_AT_ONCE", numbers)
    chunked = policy_value(key, posterior(), ACTIONS, Discounted(0.9), num_draws=NUM_DRAWS)
    np.testing.assert_allclose(chunked.draws, whole.draws, rtol=1e-12)


def test_a_policy_object_counts_as_its_probabilities(key):
    class Fixed(eqx.Module):
        probs: jax.Array

        def act(self, key, state, step):
            return jax.random.categorical(key, jnp.log(self.probs[state]))

        def log_prob(self, state, action, step):
            return jnp.log(self.probs[state, action])

    values = [
        policy_value(key, posterior(), policy, Discounted(0.9), num_draws=NUM_DRAWS).draws
        for policy in (Fixed(jnp.asarray(RANDOM)), RANDOM.astype(np.float32))
    ]
    np.testing.assert_allclose(*values, rtol=1e-6)


def test_a_float32_posterior_is_judged_in_float64(key):
    narrow = posterior(dtype=np.float32)
    narrow = jax.tree.map(jnp.asarray, narrow)
    value = policy_value(key, narrow, ACTIONS, Discounted(0.9999), initial=START, num_draws=NUM_DRAWS)
    rows, _ = drawn(narrow, key)
    reward, probs = np.asarray(narrow.reward, np.float64), np.eye(2)[ACTIONS]
    expected = [dense_value(r, reward, probs, Discounted(0.9999)) for r in rows]
    np.testing.assert_allclose(value.draws, expected, rtol=1e-9)
    assert jnp.zeros(()).dtype == jnp.float32


def test_any_object_that_samples_will_do(key):
    belief = posterior()
    plain = policy_value(key, OnlySamples(belief), ACTIONS, Discounted(0.9), num_draws=NUM_DRAWS)
    assert plain.unvisited is None
    assert "the posterior has no data counts" in str(plain)
    full = policy_value(key, belief, ACTIONS, Discounted(0.9), num_draws=NUM_DRAWS)
    np.testing.assert_allclose(plain.draws, full.draws, rtol=1e-6)


def test_one_compilation_for_new_data_and_discounts(key):
    traces = []

    class Counted(ExponentialRows):
        def sample(self, key, sample_shape=()):
            traces.append(None)
            return super().sample(key, sample_shape)

    def judge(scale, discount):
        base = posterior()
        belief = Counted(scale * base.weight, base.reward, base.visits, False)
        policy_value(key, belief, ACTIONS, Discounted(discount), num_draws=NUM_DRAWS)
        return len(traces)

    first = judge(1.0, 0.9)
    assert judge(2.0, 0.8) == first  # neither the shapes of a draw nor a program are traced again


def path(visits, names=None):
    """0 -> 1 -> 2 -> 3 -> 3 under action 0; action 1 stays. Nearly certain."""
    rows = np.zeros((4, 2, 4))
    rows[np.arange(4), 0, np.minimum(np.arange(4) + 1, 3)] = 1e9
    rows[np.arange(4), 1, np.arange(4)] = 1e9
    space = None if names is None else StateActionSpace(4, 2, states=names, actions=("go", "stay"))
    return ExponentialRows(rows + 1e-3, np.ones((4, 2)), np.asarray(visits, float), False, space)


def test_what_was_never_visited_is_named_with_its_share(key):
    visits = [[5, 5], [0, 3], [0, 0], [1, 0]]
    belief = path(visits, names=("a", "b", "c", "d"))
    policy = np.array([[1.0, 0.0], [0.5, 0.5], [1.0, 0.0], [1.0, 0.0]])
    value: Any = policy_value(key, belief, policy, Episodic(3), initial=np.eye(4)[0], num_draws=2)
    assert value.unvisited.pairs == (("b", "go"), ("c", "go"))
    np.testing.assert_allclose(value.unvisited.share[:2], [0.75 / 3, 0.5 / 3], rtol=1e-6)
    assert value.unvisited.states == ("c",)
    np.testing.assert_allclose(value.unvisited.state_share, [0.5 / 3], rtol=1e-6)
    assert value.unvisited.total == pytest.approx(1.25 / 3)
    text = unwrapped(value)
    assert "0.42 of its time in pairs never tried: b go (0.25), c go (0.17)" in text
    assert "states never visited: c (0.17)" in text
    assert "start: the given distribution (state a)" in text


def test_what_was_visited_is_said_too(key):
    policies = {"go": np.zeros(4, int), "stay": np.ones(4, int)}
    answer = compare_policies(key, path(np.ones((4, 2))), policies, Discounted(0.5), num_draws=4)
    text = str(answer)
    assert "start: uniform over the 4 states (no initial distribution was given)" in text
    assert "go: data: every pair that the policy uses was tried" in text
    assert "P(best)" in text
    assert "go minus stay" in text or "stay minus go" in text
    np.testing.assert_array_equal(answer.values["go"].initial, np.full(4, 0.25))


def test_steps_are_named_where_the_belief_has_them(key):
    belief = posterior(horizon=5)
    visits = np.ones((5, N_STATES, N_ACTIONS))
    visits[4, 2] = 0
    belief = eqx.tree_at(lambda b: b.visits, belief, visits)
    value: Any = policy_value(key, belief, ACTIONS, Episodic(5), num_draws=NUM_DRAWS)
    assert value.unvisited.pairs == ((4, 2, 1),)


def test_an_initial_distribution_of_the_draws_is_used(key):
    class Starts(ExponentialRows):
        def sample(self, key, sample_shape=()):
            mdp = super().sample(key, sample_shape)
            return MDP(mdp.transition_probs, mdp.reward, initial=jnp.asarray(START))

    base = posterior()
    belief = Starts(base.weight, base.reward, base.visits, False)
    given = policy_value(key, base, ACTIONS, Discounted(0.9), initial=START, num_draws=NUM_DRAWS)
    np.testing.assert_allclose(
        policy_value(key, belief, ACTIONS, Discounted(0.9), num_draws=NUM_DRAWS).draws, given.draws
    )


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"posterior": 3}, TypeError, "policy_value needs a posterior that has sample, got a int without sample"),
        ({"num_draws": 1}, ValueError, "num_draws is 1, expected an integer of at least 2"),
        ({"num_draws": 2.5}, TypeError, "num_draws is 2.5, expected an integer of at least 2"),
        ({"key": np.zeros(2, np.uint32)}, TypeError, "key is an array of dtype uint32, expected a typed key"),
        ({"initial": np.ones(3) / 3}, ValueError, r"initial has shape \(3,\), expected \(4,\)"),
        ({"initial": np.ones(4)}, ValueError, "initial sums to 4"),
        (
            {"policy": np.array([0, 2, 0, 0])},
            ValueError,
            r"policy: policy\[1\] is 2, expected an action index from 0 to 1",
        ),
        ({"policy": np.full((4, 2), 0.4)}, ValueError, r"policy: policy\[0\] sums to 0.8"),
        ({"policy": np.zeros(3, int)}, ValueError, r"policy: policy has shape \(3,\), expected \(4,\)"),
    ],
)
def test_bad_arguments_are_refused(key, changes, kind, message):
    arguments = {
        "key": key,
        "posterior": posterior(),
        "policy": ACTIONS,
        "objective": Discounted(0.9),
        "num_draws": NUM_DRAWS,
        **changes,
    }
    with pytest.raises(kind, match=message):
        policy_value(**arguments)
    with pytest.raises(ValueError, match="policies is empty"):
        compare_policies(key, posterior(), {}, Discounted(0.9))


def test_first_exit_refuses_a_policy_that_need_not_end(key):
    belief = posterior(ends=True)
    stuck = belief.weight.copy()
    stuck[0, 0], stuck[0, 0, 0] = 1e-30, 1e30
    belief = eqx.tree_at(lambda b: b.weight, belief, stuck)
    with pytest.raises(ValueError, match="expected a policy that ends with probability one"):
        policy_value(key, belief, ACTIONS, FirstExit(), num_draws=4)


def test_a_gain_that_depends_on_the_start_is_refused(key):
    with pytest.raises(ValueError, match=r"policy: its value in draw 0 .* inf, expected one gain, whatever the start"):
        policy_value(key, ISLANDS, np.zeros(2, int), AverageReward(), num_draws=2)


def test_the_average_reward_of_what_can_end_is_refused(key):
    belief = posterior(ends=True)
    with pytest.raises(
        ValueError, match=r"end probability .* in draw 0, expected MDPs that never end.*restart_at_ends"
    ):
        policy_value(key, belief, ACTIONS, AverageReward(), num_draws=NUM_DRAWS)


def test_a_numerical_error_that_matters_is_printed(key):
    value = policy_value(key, posterior(), ACTIONS, Discounted(0.9), num_draws=NUM_DRAWS)
    assert "numerical error" not in str(value)
    rough = eqx.tree_at(lambda v: v.gap, value, 0.1 * value.sd)
    assert f"\n  numerical error: up to {0.1 * value.sd:.2g}" in str(rough)


def test_a_draw_that_does_not_fit_is_refused(monkeypatch, key):
    monkeypatch.setattr(memory, "NEGLIGIBLE", 0)
    monkeypatch.setattr(memory, "free_bytes", lambda: 3500)
    with pytest.raises(ValueError, match=r"posterior has draws of 4 states and 2 actions, about .* MiB of memory"):
        policy_value(key, posterior(), ACTIONS, Discounted(0.9), num_draws=NUM_DRAWS)


def test_what_a_value_rests_on_is_worked_out_once_and_only_when_it_is_looked_at(monkeypatch, key):
    module, calls = import_module("bayes_mdp.decisions.policy_evaluation"), []
    work_out = module.value_bases
    monkeypatch.setattr(module, "value_bases", lambda *arguments: calls.append(1) or work_out(*arguments))
    policies = {"one": np.zeros(N_STATES, int), "other": np.ones(N_STATES, int)}
    values = module.policy_values(key, posterior(), policies, Discounted(0.9), START, 10)
    assert not calls
    expected = work_out(
        posterior(), np.stack([np.eye(N_ACTIONS)[p] for p in policies.values()]), Discounted(0.9), START
    )
    for value, other in zip(values.values(), expected, strict=True):
        assert str(value.basis) == str(other) and value.basis is value.basis
        assert str(other) in unwrapped(value)
    assert len(calls) == 1


def test_a_pickled_value_has_what_it_rests_on_and_no_posterior(key):
    value = policy_value(key, posterior(), np.zeros(N_STATES, int), Discounted(0.9), num_draws=10)
    copy = pickle.loads(pickle.dumps(value))
    assert str(copy) == str(value) and str(copy.rests_on) == str(value.basis)
    assert str(jax.tree.map(np.asarray, value).basis) == str(value.basis)
