"""What each difference between two policies adds, by how much actions lead, and what the value hangs on."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit, StateActionSpace, Transitions
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.planning import evaluate
from bayes_mdp.recommend.decide import differences, variance_shares

KEY = jax.random.key(0)
S, A, H = 4, 2, 3
START = np.array([0.4, 0.3, 0.2, 0.1])
NAMES: Any = {"states": tuple("abcd"), "actions": ("go", "stay")}
RNG = np.random.default_rng(0)
REWARD = RNG.normal(size=(S, A))
CHOSEN, BASELINE = np.array([0, 1, 1, 0]), RNG.dirichlet(np.ones(A), S)


def posterior_of(*, ends: bool) -> Any:
    rng = np.random.default_rng(1)
    state, action, reached = rng.integers(S, size=40), rng.integers(A, size=40), rng.integers(S, size=40)
    data = Transitions(state, action, None, reached, rng.random(40) < 0.2 if ends else None)
    space = StateActionSpace(S, A, ends=ends, **NAMES)
    return bm.infer(KEY, bm.models.known_rewards(REWARD, 0.5), data, space=space)


@pytest.fixture(scope="module")
def posterior() -> Any:
    return posterior_of(ends=True)


def in_mean(posterior: Any, policy: np.ndarray, objective: Any) -> float:
    """The value of a policy in the mean MDP."""
    probs = policy if np.issubdtype(policy.dtype, np.floating) else np.eye(A)[policy]
    with jax.enable_x64(True):
        mdp, aim = to_float64(posterior.mean_mdp()), to_float64(objective)
        found = evaluate(mdp, jnp.asarray(probs, jnp.float64), aim)
        if isinstance(objective, AverageReward):
            return float(found.gain)
        return float((found.v[0] if isinstance(objective, Episodic) else found.v) @ START)


@pytest.mark.parametrize(
    "objective", [Discounted(0.9), Episodic(H), Episodic(H, 0.6), FirstExit(), AverageReward()], ids=str
)
def test_gains_add_up_to_the_difference_of_the_values(posterior, objective):
    belief = posterior_of(ends=False) if isinstance(objective, AverageReward) else posterior
    frame = differences(belief, CHOSEN, BASELINE, objective, START)
    expected = in_mean(belief, CHOSEN, objective) - in_mean(belief, BASELINE, objective)
    assert frame["gain"].to_numpy().sum() == pytest.approx(expected, rel=1e-6)
    assert list(np.abs(frame["gain"])) == sorted(np.abs(frame["gain"]), reverse=True)
    assert set(frame["state"]) == set("abcd") and frame["time"].to_numpy().sum() == pytest.approx(1)
    counts, row = np.asarray(belief.visit_counts()), frame[frame["state"] == "b"].iloc[0]
    assert row["chosen"] == "stay" and row["count"] == counts[1, 1]
    assert row["today"] == NAMES["actions"][BASELINE[1].argmax()]
    assert row["today_prob"] == pytest.approx(BASELINE[1].max())


def test_gains_of_steps_are_added(posterior):
    """Policies that differ in two of three steps."""
    still = np.full((H, S, A), 0.5)
    chosen = still.copy()
    chosen[0], chosen[1] = [1.0, 0.0], [0.0, 1.0]
    frame = differences(posterior, chosen, still, Episodic(H), START)
    expected = in_mean(posterior, chosen, Episodic(H)) - in_mean(posterior, still, Episodic(H))
    assert frame["gain"].to_numpy().sum() == pytest.approx(expected, rel=1e-6)


def test_steps_that_swap_their_actions_in_a_loop():
    """One state for ever: on average the policies are the same, and yet they differ at every step."""
    space = StateActionSpace(1, 2)
    prior = bm.models.known_rewards([[1.0, 0.0]])
    belief: Any = bm.infer(KEY, prior, Transitions([0], [0], None, [0]), space=space)
    chosen = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    frame = differences(belief, chosen, chosen[::-1].copy(), Episodic(2), np.ones(1))
    assert list(frame["state"]) == [0] and frame["gain"].to_numpy().sum() == pytest.approx(0.0, abs=1e-12)


def test_only_states_that_differ_are_listed(posterior):
    one = CHOSEN.copy()
    one[2] = 0
    frame = differences(posterior, one, CHOSEN, Discounted(0.9), START)
    assert list(frame["state"]) == ["c"] and list(frame["today"]) == ["stay"] and list(frame["chosen"]) == ["go"]
    assert not len(differences(posterior, CHOSEN, np.eye(A)[CHOSEN], Discounted(0.9), START))


@pytest.mark.parametrize("objective", [Discounted(0.9), FirstExit()], ids=str)
def test_leads_over_the_next_best_action(objective):
    """By dense numpy: one step of each action, then the chosen policy."""
    actions = ("go", "stay", "turn")
    rng = np.random.default_rng(2)
    reward, legal = rng.normal(size=(S, 3)), np.ones((S, 3), bool)
    legal[1, 0], legal[3] = False, [True, False, False]
    state = rng.integers(S - 1, size=60)
    action = np.where(state == 1, 1 + rng.integers(2, size=60), rng.integers(3, size=60))
    data = Transitions(state, action, None, rng.integers(S, size=60), rng.random(60) < 0.3)
    space = StateActionSpace(S, 3, ends=True, legal=legal, states=tuple("abcd"), actions=actions)
    posterior: Any = bm.infer(KEY, bm.models.known_rewards(np.where(legal, reward, 0.0), 0.5), data, space=space)
    chosen, today = np.array([0, 1, 2, 0]), np.array([1, 2, 0, 0])
    frame: Any = differences(posterior, chosen, today, objective, START)
    assert set(frame["state"]) == set("abc")
    rate, where = float(getattr(objective, "discount", 1.0)), np.arange(S)
    rows = np.asarray(posterior.mean_mdp().transition_probs, float)
    value = np.linalg.solve(np.eye(S) - rate * rows[where, chosen], reward[where, chosen])
    q = np.where(legal, reward + rate * rows @ value, -np.inf)
    for _, row in frame.iterrows():
        s = "abcd".index(row["state"])
        others = {a: q[s, a] for a in range(3) if a != chosen[s]}
        best = max(others, key=lambda a: others[a])
        assert row["next"] == actions[best]
        assert row["lead"] == pytest.approx(q[s, chosen[s]] - q[s, best], rel=1e-5, abs=1e-6)
    # Also of a choice that this posterior does not prefer.
    assert (frame["lead"] < 0).any() and (frame["lead"] > 0).any()


def test_leads_of_steps_are_means_by_time(posterior):
    """Two steps: the values of the last one are the rewards, those of the first one by hand."""
    chosen, today = np.tile(CHOSEN, (2, 1)), np.tile(1 - CHOSEN, (2, 1))
    frame = differences(posterior, chosen, today, Episodic(2), START).set_index("state")
    rows, where = np.asarray(posterior.mean_mdp().transition_probs, float), np.arange(S)
    later = REWARD[where, CHOSEN]
    q = np.stack([REWARD + rows @ later, REWARD])
    time = np.stack([START, START @ rows[where, CHOSEN]])
    lead = q[:, where, CHOSEN] - q[:, where, 1 - CHOSEN]
    expected = (lead * time).sum(0) / time.sum(0)
    np.testing.assert_allclose([frame.loc[name, "lead"] for name in "abcd"], expected, rtol=1e-5)


def test_rounding_is_no_difference(posterior):
    """Probabilities of a log are in float32."""
    base = BASELINE.astype(np.float32)
    assert not len(differences(posterior, BASELINE, base / base.sum(-1, keepdims=True), Discounted(0.9), START))


@pytest.mark.parametrize("objective", [Discounted(0.9), FirstExit()], ids=str)
def test_what_the_value_is_uncertain_about(posterior, objective):
    """Parts of the first-order variance, by dense numpy."""
    frame: Any = variance_shares(posterior, CHOSEN, objective, START)
    assert frame["share"].sum() <= 1 + 1e-9
    assert list(frame["share"]) == sorted(frame["share"], reverse=True)
    rate = float(getattr(objective, "discount", 1.0))
    where, mdp = np.arange(S), posterior.mean_mdp()
    rows = np.asarray(mdp.transition_probs, float)[where, CHOSEN]
    value = np.linalg.solve(np.eye(S) - rate * rows, REWARD[where, CHOSEN])
    time = np.linalg.solve(np.eye(S) - rate * rows.T, START)
    visits = np.asarray(posterior.visit_counts(), float)[where, CHOSEN]
    second = rows @ value**2 - (rows @ value) ** 2
    part = time**2 * rate**2 * second / (0.5 * (S + 1) + visits + 1)
    order = np.argsort(-part)
    assert list(frame["state"]) == [NAMES["states"][s] for s in order]
    np.testing.assert_allclose(frame["share"], part[order] / part.sum(), rtol=1e-4)
    np.testing.assert_array_equal(frame["count"], visits[order])


def test_where_it_is_not_known(posterior):
    assert variance_shares(posterior, CHOSEN, Episodic(H), START) is None
    assert variance_shares(posterior, CHOSEN, AverageReward(), START) is None
    one = jax.tree.map(jnp.asarray, posterior)
    both: Any = bm.inference.mixture([one, one], weights=[0.5, 0.5])
    assert variance_shares(both, CHOSEN, Discounted(0.9), START) is None
