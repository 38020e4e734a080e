# pyright: reportArgumentType=false
"""Outcomes beside the value of a policy: recursions in numpy of the very same draws, and a published model of HIV."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions.outcomes import Outcome, OutcomeValue, read_outcome
from bayes_mdp.decisions.policy_comparison import VerdictOptions, compare_policies
from bayes_mdp.decisions.policy_evaluation import ValueOptions, policy_value
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit, SparseMDP
from bayes_mdp.planning import solve
from tests.inference.policy_problems import N_ACTIONS, N_STATES, START, dense_value, posterior

pytestmark = pytest.mark.numerics

H, NUM = 5, 20
S, A = N_STATES, N_ACTIONS
KEY = jax.random.key(0)
OPTIONS: dict[str, Any] = {"initial": START, "num_draws": NUM}
RNG = np.random.default_rng(5)
POLICY = RNG.dirichlet(np.ones(A), (H, S))
SHAPES = {
    "S": (S,),
    "S A": (S, A),
    "S A O": (S, A, S + 1),
    "H S": (H, S),
    "H S A": (H, S, A),
    "H S A O": (H, S, A, S + 1),
}


def drawn(belief, num=NUM):
    """Rows [N *H S A O] of the draws, the end as the last outcome."""
    with jax.enable_x64(True):
        mdps = jax.vmap(belief.sample)(jax.random.split(KEY, num))
        mdps = mdps.to_dense() if isinstance(mdps, SparseMDP) else mdps
        rows = np.asarray(mdps.transition_probs)
        ends = np.zeros(rows.shape[:-1]) if mdps.end_probs is None else np.asarray(mdps.end_probs)
        return np.concatenate([rows, ends[..., None]], -1)


def recursion(rows, reward, probs, discount):
    """The value of an episode: rows [H S A O], reward [H S A O], probs [H S A]."""
    v = np.zeros(S + 1)
    for h in reversed(range(len(reward))):
        q = (rows[h] * (reward[h] + discount * v)).sum(-1)
        v[:S] = (probs[h] * q).sum(-1)
    return START @ v[:S]


def everywhere(reward, axes):
    """With all axes [H S A O]."""
    for place, axis in enumerate("HSAO"):
        if axis not in axes.split():
            reward = np.repeat(np.expand_dims(reward, place), {"H": H, "S": S, "A": A, "O": S + 1}[axis], place)
    return reward


class Listed(eqx.Module):
    """The draws of another belief as lists of successors, in a scrambled order."""

    belief: Any

    def sample(self, key, sample_shape=()):
        mdp = self.belief.sample(key, sample_shape)
        order = np.array([2, 0, 3, 1])
        rows = mdp.transition_probs
        return SparseMDP(jnp.broadcast_to(order, rows.shape), rows[..., order], mdp.reward, end_probs=mdp.end_probs)


@pytest.mark.some(2)
@pytest.mark.some(4)
@pytest.mark.parametrize("kind", ["rows for all steps", "rows by step", "listed"])
@pytest.mark.parametrize("axes", SHAPES)
def test_rewards_of_every_shape_by_the_recursion(axes, kind):
    """With a discount of its own, ends, a policy that depends on the step."""
    belief: Any = posterior(ends=True, horizon=H if kind == "rows by step" else None)
    belief = Listed(belief) if kind == "listed" else belief
    reward = np.random.default_rng(7).normal(size=SHAPES[axes])
    found = policy_value(
        KEY,
        belief,
        POLICY,
        Episodic(H, 0.9),
        options=ValueOptions({"own": Outcome(reward, 0.6), "of the objective": Outcome(reward)}),
        **OPTIONS,
    )
    rows = drawn(belief)
    rows = rows if rows.ndim == 5 else np.repeat(rows[:, None], H, 1)
    for name, discount in (("own", 0.6), ("of the objective", 0.9)):
        expected = [recursion(r, everywhere(reward, axes), POLICY, discount) for r in rows]
        np.testing.assert_allclose(found.outcomes[name].draws, expected, rtol=1e-10)
        assert found.outcomes[name].gap < 1e-9
        assert found.outcomes[name].mean == pytest.approx(np.mean(expected))
        assert found.outcomes[name].sd == pytest.approx(np.std(expected, ddof=1))


@pytest.mark.some(2)
@pytest.mark.parametrize("objective", [Discounted(0.95), Episodic(H), AverageReward(), FirstExit()], ids=repr)
def test_the_draws_are_those_of_the_value(objective):
    """The posterior's own reward as an outcome is its value, to the last bit; without outcomes it is as good."""
    belief = posterior(ends=isinstance(objective, FirstExit))
    policy = POLICY[0]
    found = policy_value(
        KEY, belief, policy, objective, options=ValueOptions({"again": Outcome(belief.reward)}), **OPTIONS
    )
    np.testing.assert_array_equal(found.outcomes["again"].draws, found.draws)
    plain = policy_value(KEY, belief, policy, objective, **OPTIONS)
    np.testing.assert_array_equal(found.draws, plain.draws)
    assert plain.outcomes == {}


def test_a_posterior_in_closed_form_draws_the_same_rows():
    """It can draw the pairs of a policy alone: with outcomes whole draws, the same but for rounding."""
    belief: Any = bm.infer(KEY, bm.models.known_rewards(np.eye(3)[:, :2]), space=bm.StateActionSpace(3, 2))
    policy = np.array([0, 1, 1])
    options: Any = {"num_draws": 40}
    outcomes = {"reward": Outcome(np.eye(3)[:, :2]), "time in 2": Outcome([0, 0, 1])}
    found = policy_value(KEY, belief, policy, Discounted(0.9), options=ValueOptions(outcomes), **options)
    plain = policy_value(KEY, belief, policy, Discounted(0.9), **options)
    np.testing.assert_allclose(found.draws, plain.draws, rtol=1e-9)
    np.testing.assert_allclose(found.outcomes["reward"].draws, found.draws, rtol=1e-9)


def test_discounts_without_a_horizon():
    """`Discounted` by another factor; until the end with a discount."""
    belief, policy, reward = posterior(ends=True), POLICY[0], RNG.normal(size=(S, A))
    rows = drawn(belief)[..., :S]
    for objective in (Discounted(0.95), FirstExit()):
        found = policy_value(
            KEY, belief, policy, objective, options=ValueOptions({"x": Outcome(reward, 0.5)}), **OPTIONS
        )
        expected = [dense_value(r, reward, policy, Discounted(0.5)) for r in rows]
        np.testing.assert_allclose(found.outcomes["x"].draws, expected, rtol=1e-10)
    one = policy_value(KEY, belief, policy, FirstExit(), options=ValueOptions({"x": Outcome(reward, 1)}), **OPTIONS)
    expected = [dense_value(r, reward, policy, FirstExit()) for r in rows]
    np.testing.assert_allclose(one.outcomes["x"].draws, expected, rtol=1e-10)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("discount", [0.8, 1.0])
def test_half_cycles_are_the_trapezoidal_rule(discount, listed):
    """Occupancies in numpy, half of the first and half of the last."""
    belief: Any = posterior(ends=True)
    reward = np.array([1.0, -2.0, 3.0, 0.5])
    outcomes = {"half": Outcome(reward, discount, half_cycle=True), "start": Outcome(reward, discount)}
    belief = Listed(belief) if listed else belief
    found = policy_value(KEY, belief, POLICY, Episodic(H), options=ValueOptions(outcomes), **OPTIONS)
    for name, weights in (("half", [0.5, 1, 1, 1, 1, 0.5]), ("start", [1, 1, 1, 1, 1, 0])):
        expected = []
        for rows in drawn(belief):
            time, total = START, 0.0
            for t, weight in enumerate(weights):
                total += weight * discount**t * time @ reward
                time = np.einsum("s,sa,saz->z", time, POLICY[t], rows[..., :S]) if t < H else time
            expected.append(total)
        np.testing.assert_allclose(found.outcomes[name].draws, expected, rtol=1e-10)


def test_policies_side_by_side():
    """Net benefits in common draws, a labelled export, a printed line each; `policy_value` has the same draws."""
    belief = posterior()
    outcomes = {"cost": Outcome(RNG.uniform(1, 2, (S, A)), 0.9), "effect": Outcome(np.arange(4.0))}
    policies = {"first": np.zeros(S, int), "by step": np.ones((H, S), int)}
    found = compare_policies(KEY, belief, policies, Episodic(H), options=VerdictOptions(outcomes=outcomes), **OPTIONS)
    for name, benefit in found.net_benefit(3.0).items():
        alone = policy_value(KEY, belief, policies[name], Episodic(H), options=ValueOptions(outcomes), **OPTIONS)
        parts = found.values[name].outcomes
        np.testing.assert_array_equal(benefit, 3.0 * parts["effect"].draws - parts["cost"].draws)
        np.testing.assert_allclose(benefit, alone.net_benefit(3.0), rtol=1e-12)
        np.testing.assert_array_equal(found.net_benefit(0, "cost", "effect")[name], -parts["effect"].draws)
    draws = found.strategy_draws()
    assert (draws.strategies, draws.outcomes) == (("first", "by step"), ("cost", "effect"))
    np.testing.assert_array_equal(draws.net_benefit(3.0), np.stack(list(found.net_benefit(3.0).values()), -1))
    table = found.to_dataset()
    assert table["outcomes"].dims == ("policy", "outcome", "draw") and table["value"].dims == ("policy", "draw")
    cost = table["outcomes"].sel(policy="by step", outcome="cost")
    np.testing.assert_array_equal(cost, found.values["by step"].outcomes["cost"].draws)
    alone = found.values["first"].to_dataset()
    assert alone["outcomes"].dims == ("outcome", "draw") and list(alone["outcome"].values) == ["cost", "effect"]
    cost = found.values["first"].outcomes["cost"]
    line = f"first, cost: mean {cost.mean:.6g} (Monte Carlo error "
    assert line in str(found) and f"\n  cost: mean {cost.mean:.6g}" in str(found.values["first"])
    plain = policy_value(KEY, belief, policies["first"], Episodic(H), **OPTIONS)
    assert "outcomes" not in plain.to_dataset() and plain.to_dataset()["value"].dims == ("draw",)


def test_a_numerical_error_that_shows_is_printed():
    parts = {"draws": np.ones(2), "mean": 1.0, "sd": 0.1, "interval": (1.0, 1.0)}
    value = policy_value(KEY, posterior(), np.zeros(S, int), Episodic(2), num_draws=2)
    for gap, shown in ((0.05, True), (1e-9, False)):
        both = replace(value, outcomes={"cost": OutcomeValue(gap=gap, **parts)})
        assert ("cost: numerical error: up to 0.05" in str(both)) is shown


def test_what_has_no_net_benefit():
    belief, outcomes = posterior(), {"cost": Outcome(np.ones(S)), "life years": Outcome(np.ones(S))}
    value = policy_value(KEY, belief, np.zeros(S, int), Episodic(2), options=ValueOptions(outcomes), num_draws=2)
    with pytest.raises(ValueError, match="effect is 'effect', expected one of cost, life years"):
        value.net_benefit(1.0)
    assert np.isfinite(value.net_benefit(1.0, effect="life years")).all()
    for wtp in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"wtp is .*, expected a finite number, zero or greater"):
            value.net_benefit(wtp, effect="life years")
    plain = policy_value(KEY, belief, np.zeros(S, int), Episodic(2), num_draws=2)
    with pytest.raises(ValueError, match="there are no outcomes, expected those of ValueOptions"):
        plain.net_benefit(1.0)
    without = compare_policies(KEY, belief, {"a": np.zeros(S, int)}, Episodic(2), num_draws=2)
    with pytest.raises(ValueError, match="there are no outcomes, expected those of VerdictOptions"):
        without.strategy_draws()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1.0,), ValueError, r"reward has shape \(\), expected \[S\]"),
        ((np.zeros((1,) * 5),), ValueError, "reward has shape"),
        (([1.0, np.nan],), ValueError, r"reward\[1\] is nan"),
        ((["a"],), TypeError, "reward"),
        (([1.0], 0.0), ValueError, "discount is 0.0, expected a number above 0 and at most 1, or None"),
        (([1.0], 1.06), ValueError, "discount is 1.06, expected a number above 0 and at most 1, or None"),
        (([1.0], "half"), TypeError, "discount is 'half'"),
        (([1.0], None, 1), TypeError, "half_cycle is 1, expected True or False"),
        (([[1.0]], None, True), ValueError, r"reward has shape \(1, 1\), expected one number a state with half_cycle"),
    ],
)
def test_what_is_no_outcome(arguments, error, message):
    with pytest.raises(error, match=message):
        Outcome(*arguments)


@pytest.mark.parametrize(
    ("outcomes", "objective", "error", "message"),
    [
        (3, Episodic(H), TypeError, "outcomes is 3, expected name -> Outcome"),
        ({1: Outcome(np.zeros(S))}, Episodic(H), TypeError, "a name of outcomes is 1, expected text"),
        ({}, Episodic(H), ValueError, "outcomes is empty, expected at least one outcome by its name, or None"),
        ({"x": np.zeros(S)}, Episodic(H), TypeError, r"outcomes\['x'\] is .*, expected an Outcome"),
        (
            {"x": Outcome(np.zeros(3))},
            Episodic(H),
            ValueError,
            r"outcomes\['x'\].reward has shape \(3,\), expected \(4",
        ),
        ({"x": Outcome(np.zeros((H, S)))}, Discounted(0.9), ValueError, r"shape \(5, 4\), expected \(4,\) \[S\] or"),
        ({"x": Outcome(np.zeros((S, A)))}, Episodic(2), None, ""),
        ({"x": Outcome(np.zeros((2, S)))}, Episodic(2), None, ""),
        ({"x": Outcome(np.zeros(S), 1)}, Discounted(0.9), ValueError, "discount is 1, expected less with Discounted"),
        ({"x": Outcome(np.zeros(S), 0.9)}, AverageReward(), ValueError, "discount is 0.9, expected None with Average"),
    ],
)
def test_what_does_not_fit_the_posterior(outcomes, objective, error, message):
    call = lambda: policy_value(KEY, posterior(), POLICY[0], objective, options=ValueOptions(outcomes), num_draws=2)  # noqa: E731
    if error is None:
        assert isinstance(call().outcomes["x"], OutcomeValue)
        return
    with pytest.raises(error, match=message):
        call()


def test_axes_that_could_be_others_are_refused():
    """As many steps as states, as many states as actions: [S A] or [H S]; with all axes it is known."""
    belief = Known(MDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2))))
    value = lambda reward: policy_value(  # noqa: E731
        KEY, belief, np.zeros(2, int), Episodic(2), options=ValueOptions({"x": Outcome(reward)}), num_draws=2
    )
    said = r"shape \(2, 2\), which may be \[S A\] or \[H S\], expected all axes, \(2, 2, 2, 2\) \[H S A O\]"
    with pytest.raises(ValueError, match=said):
        value(np.eye(2))
    assert value(np.ones((2, 2, 2, 2))).outcomes["x"].mean == pytest.approx(2.0)


class Known(eqx.Module):
    """A belief that is sure of one MDP."""

    mdp: MDP

    def sample(self, key, sample_shape=()):
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (*sample_shape, *jnp.shape(x))), self.mdp)


# Zidovudine with or without lamivudine, Chancellor et al. 1997, in Briggs, Claxton and Sculpher 2006, exercise 2.5.
CYCLES, B_COST = 20, 1 / 1.06
COUNTS = np.array([[1251, 350, 116, 17], [0, 731, 512, 15], [0, 0, 1312, 437], [0, 0, 0, 1]], float)
MONO = COUNTS / COUNTS.sum(-1, keepdims=True)
MOVES = 0.509 * MONO * (1 - np.eye(4))
COMBINATION = MOVES + np.diag(1 - MOVES.sum(-1))
ALIVE = np.array([1.0, 1, 1, 0])
CARE = ALIVE * (np.array([2756.0, 3052, 9007, 0]) + 2278)
HIV_ROWS = np.stack([MONO, COMBINATION], 1)  # [state, action, next state]
PAID = np.broadcast_to((CARE + ALIVE * np.array([0, 2086.5])[:, None]), (4, 2, 4))  # by the state at the end of a cycle
HIV_OUTCOMES = {"cost": Outcome(B_COST * PAID, B_COST), "effect": Outcome(np.broadcast_to(ALIVE, (4, 2, 4)), 1.0)}
"""Counted at the end of a cycle: the cost of cycle t, from 1 on, at 1.06^-t; effects are not discounted."""


def for_cycles(number):
    """Combination in so many cycles, then monotherapy."""
    return np.repeat((np.arange(CYCLES) < number)[:, None], 4, 1).astype(int)


@pytest.fixture(scope="module")
def durations():
    with jax.enable_x64(True):
        belief = Known(MDP(HIV_ROWS, np.zeros((4, 2))))
    policies = {str(number): for_cycles(number) for number in range(CYCLES + 1)}
    start = {"initial": np.eye(4)[0], "num_draws": 2}
    return compare_policies(
        KEY, belief, policies, Episodic(CYCLES), options=VerdictOptions(outcomes=HIV_OUTCOMES), **start
    )


def test_the_published_costs_and_life_years(durations):
    for name, cost, effect in (("0", 44663.4535637, 7.9912066), ("2", 50601.6513312, 8.9373889)):
        found = durations.values[name].outcomes
        assert found["cost"].mean == pytest.approx(cost, abs=6e-8)
        assert found["effect"].mean == pytest.approx(effect, abs=6e-8)
        assert found["cost"].sd < 1e-9
    two = replace(durations, values={name: durations.values[name] for name in "02"})
    assert bm.strategies.cost_effectiveness(two.strategy_draws()).icer("2") == pytest.approx(6275.95560, abs=6e-6)


@pytest.mark.parametrize(
    ("wtp", "values", "best", "of_best"),
    [
        (5000, (-4707.42, -5914.71, -10456.39), 0, -4707.42),
        (6000, (3283.79, 3022.68, 3421.62), 18, 3577.776),
        (7000, (11274.99, 11960.07, 17299.62), 19, 17379.730),
        (10000, (35248.61, 38772.24, 58933.64), 20, 58933.643),
    ],
)
def test_the_best_number_of_cycles(durations, wtp, values, best, of_best):
    benefit = {name: draws.mean() for name, draws in durations.net_benefit(wtp).items()}
    for number, value in zip((0, 2, 20), values, strict=True):
        assert benefit[str(number)] == pytest.approx(value, abs=6e-3)
    assert max(benefit, key=lambda name: benefit[name]) == str(best)
    assert benefit[str(best)] == pytest.approx(of_best, abs=6e-3 if best == 0 else 6e-4)


@pytest.mark.parametrize(
    ("wtp", "value", "cycles"),
    [
        (5000, -4068.812, None),
        (6000, 6722.411, {"A": (1, 16), "B": (2, 19), "C": (17, 17)}),
        (7000, 19047.731, {"A": (1, 16), "B": (1, 19), "C": (11, 19)}),
        (10000, 59033.098, {"A": (1, 17), "B": (1, 19), "C": (4, 20)}),
    ],
)
def test_the_best_policy_by_state_and_cycle(wtp, value, cycles, x64):
    """`solve` knows no outcomes: their net benefit is the reward of an MDP with an axis of steps."""
    cycle = np.arange(1, CYCLES + 1)[:, None, None, None]
    by_step = wtp * ALIVE - B_COST**cycle * PAID  # [cycle, state, action, next state]
    rows = np.broadcast_to(HIV_ROWS, (CYCLES, 4, 2, 4))
    found = solve(MDP(rows, (rows * by_step).sum(-1)), Episodic(CYCLES))
    assert float(found.v[0, 0]) == pytest.approx(value, abs=6e-4) and found.gap < 1e-6
    # The same policy by its outcomes, and by the net benefit as one outcome that depends on the step.
    outcomes = {**HIV_OUTCOMES, "benefit": Outcome(by_step)}
    policy = np.asarray(found.policy)
    belief = Known(MDP(HIV_ROWS, np.zeros((4, 2))))
    judged = policy_value(
        KEY, belief, policy, Episodic(CYCLES), options=ValueOptions(outcomes), initial=np.eye(4)[0], num_draws=2
    )
    assert judged.net_benefit(wtp).mean() == pytest.approx(float(found.v[0, 0]), rel=1e-10)
    assert judged.outcomes["benefit"].mean == pytest.approx(float(found.v[0, 0]), rel=1e-10)
    for state, (first, last) in (cycles or {}).items():
        taken = np.flatnonzero(policy[:, "ABC".index(state)]) + 1
        assert (taken.min(), taken.max(), len(taken)) == (first, last, last - first + 1)


def test_the_argument_of_the_last_version_is_the_field_of_the_record():
    """With a warning; the numbers are the same."""
    belief, outcomes = posterior(), {"time": Outcome(np.ones(S))}
    call: Any = {"policy": POLICY, "objective": Episodic(H), **OPTIONS}
    new = policy_value(KEY, belief, **call, options=ValueOptions(outcomes=outcomes))
    with pytest.warns(FutureWarning, match="ValueOptions"):
        old = policy_value(KEY, belief, **{**call, "outcomes": outcomes})
    np.testing.assert_array_equal(old.outcomes["time"].draws, new.outcomes["time"].draws)


def test_half_cycles_of_two_states_in_turn():
    """States 0 and 1 in turn: sum of 0.9^t reward(s_t), of which the first counts half."""
    reward = np.array([3.0, 5.0])
    outcome, _ = read_outcome("cost", Outcome(reward, half_cycle=True), (2, 1), False, Discounted(0.9))
    rows = np.eye(2)[[1, 0]]
    paid = np.asarray(outcome.expected(MDP(rows[:, None], np.zeros((2, 1)))))[:, 0]
    values = np.linalg.solve(np.eye(2) - 0.9 * rows, paid)
    series = [sum(0.9**t * reward[(s + t) % 2] for t in range(400)) - reward[s] / 2 for s in range(2)]
    np.testing.assert_allclose(values, series, rtol=1e-5)
