"""Policies and first states by label: there and back, and what is refused, in one sentence."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.mdp import FoldedLog, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.by_label import is_by_label

POOL = ["new", "worn", "broken", 0, 1, 7, "7", (0, 1), (1, 0), 2.5, None, frozenset({"a"})]
MACHINE = StateActionSpace(
    3,
    2,
    states=("new", "worn", "broken"),
    actions=("run", "service"),
    legal=[[True, True], [True, True], [False, True]],
)
GOOD = {"new": "run", "worn": "service", "broken": "service"}


def random_space(rng: np.random.Generator) -> StateActionSpace:
    """Up to six states and four actions with labels of all kinds, or without; a part of the pairs is illegal."""
    states, actions = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    legal = rng.random((states, actions)) < 0.7
    legal[np.arange(states), rng.integers(actions, size=states)] = True
    named = rng.random() < 0.8
    pick = lambda n: tuple(POOL[i] for i in rng.permutation(len(POOL))[:n]) if named else None  # noqa: E731
    return StateActionSpace(states, actions, states=pick(states), actions=pick(actions), legal=legal)


def random_policy(rng: np.random.Generator, space: StateActionSpace) -> dict[Any, Any]:
    """An action, or probabilities of two and more, for every state, in any order."""
    found: dict[Any, Any] = {}
    for s in rng.permutation(space.n_states):
        allowed = [a for a in range(space.n_actions) if space.legal is None or space.legal[s, a]]
        used = rng.permutation(allowed)[: int(rng.integers(1, len(allowed) + 1))]
        chances = rng.dirichlet(np.ones(len(used)))
        one = len(used) == 1 or rng.random() < 0.5
        found[space.state_names[s]] = (
            space.action_names[used[0]]
            if one
            else {space.action_names[a]: float(chance) for a, chance in zip(used, chances, strict=True)}
        )
    return found


def by_loop(space: StateActionSpace, policy: dict[Any, Any]) -> np.ndarray:
    """The probabilities, one pair at a time."""
    probs = np.zeros((space.n_states, space.n_actions))
    for s, state in enumerate(space.state_names):
        for a, action in enumerate(space.action_names):
            given = policy[state]
            probs[s, a] = given.get(action, 0.0) if isinstance(given, dict) else float(given == action)
    return probs


@pytest.mark.parametrize("seed", range(100))
def test_a_policy_comes_back_as_it_was(seed):
    """Mapping -> array -> mapping -> array, on random spaces; the array is that of a loop over the pairs."""
    rng = np.random.default_rng(seed)
    space = random_space(rng)
    policy = random_policy(rng, space)
    array = space.policy(policy)
    expected = by_loop(space, policy)
    random = any(isinstance(given, dict) for given in policy.values())
    assert array.dtype.kind == ("f" if random else "i")
    np.testing.assert_array_equal(array if random else np.eye(space.n_actions)[array], expected)
    assert space.describe_policy(array) == policy
    np.testing.assert_array_equal(space.policy(space.describe_policy(array)), array)


@pytest.mark.parametrize("seed", range(20))
def test_a_policy_with_steps_comes_back_as_it_was(seed):
    rng = np.random.default_rng(seed)
    space = random_space(rng)
    steps = [random_policy(rng, space) for _ in range(3)]
    array = space.policy(steps)
    assert array.shape[:2] == (3, space.n_states)
    each = np.stack([by_loop(space, step) for step in steps])
    np.testing.assert_array_equal(array if array.ndim == 3 else np.eye(space.n_actions)[array], each)
    assert space.describe_policy(array) == steps


@pytest.mark.parametrize("seed", range(50))
def test_a_start_comes_back_as_it_was(seed):
    rng = np.random.default_rng(seed)
    space = random_space(rng)
    used = rng.permutation(space.n_states)[: int(rng.integers(1, space.n_states + 1))]
    chances = rng.dirichlet(np.ones(len(used)))
    start = {space.state_names[s]: float(chance) for s, chance in zip(used, chances, strict=True)}
    probs = space.initial_probs(start)
    expected = np.zeros(space.n_states)
    expected[used] = chances
    np.testing.assert_array_equal(probs, expected)
    assert space.describe_initial(probs) == start
    np.testing.assert_array_equal(space.initial_probs(probs), probs)
    s = int(used[0])
    np.testing.assert_array_equal(space.initial_probs(space.state_names[s]), np.eye(space.n_states)[s])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nwe": "run"}, r"policy has 'nwe', expected a state of the space: 'new', .*'broken'; did you mean 'new'\?$"),
        ({"new": "rnu"}, r"policy\['new'\] is 'rnu', expected an action of the space: .*; did you mean 'run'\?$"),
        ({"new": None}, r"policy\['new'\] is None, expected an action of the space: 'run', 'service'$"),
        (
            {"new": {"rnu": 1.0}},
            r"policy\['new'\] has 'rnu', expected an action of .*; did you mean 'run'\?$",
        ),
        ({"broken": "run"}, r"policy\['broken'\] is 'run', expected an action that is legal in this state: 'service'$"),
        (
            {"broken": {"run": 0.5, "service": 0.5}},
            r"policy\['broken'\] has 'run', expected an action that is legal",
        ),
        ({"new": {"run": 0.5, "service": 0.4}}, r"policy\['new'\] sums to 0.9, expected probabilities that sum to 1$"),
        ({"new": {}}, r"policy\['new'\] sums to 0, expected probabilities that sum to 1$"),
        (
            {"new": {"run": -0.5, "service": 1.5}},
            r"policy\['new'\]\['run'\] is -0.5, expected a probability from 0",
        ),
        ({"new": {"run": float("nan")}}, r"policy\['new'\]\['run'\] is nan, expected a probability from 0 to 1$"),
    ],
)
def test_wrong_policies_are_refused(change, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        MACHINE.policy({**GOOD, **change})
    with pytest.raises(ValueError, match=f"^{message}".replace("policy", r"policy\[1\]")):
        MACHINE.policy([GOOD, {**GOOD, **change}])


def test_states_without_an_action_are_named():
    with pytest.raises(ValueError, match=r"^policy has no action for 'worn', 'broken', expected one for every state$"):
        MACHINE.policy({"new": "run"})
    many = StateActionSpace(9, 2)
    with pytest.raises(
        ValueError, match=r"has no action for 1, 2, 3, 4, 5, 6, ... \(8 in all\), expected one for every"
    ):
        many.policy({0: 1})


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (3, "policy is 3, expected a mapping from states to actions, or a list of them"),
        ([0, 1, 1], "policy is a list, expected a mapping from states to actions, or a list of them"),
        ([GOOD, 3], r"policy\[1\] is 3, expected a mapping from states to actions"),
        ({**GOOD, "new": ["run"]}, r"policy\['new'\] is a list, expected an action or a mapping action -> probability"),
        ({**GOOD, "new": {"run": "all"}}, r"policy\['new'\]\['run'\] is 'all', expected a probability from 0 to 1"),
        ({**GOOD, "new": {"run": True}}, r"policy\['new'\]\['run'\] is True, expected a probability from 0 to 1"),
    ],
)
def test_what_is_no_policy_by_label_is_refused(policy, message):
    with pytest.raises(TypeError, match=f"^{message}$"):
        MACHINE.policy(policy)


def test_numbers_are_labels_not_indices():
    """Actions called 1 and 0: the label counts, and text is not a number."""
    space = StateActionSpace(2, 2, states=(10, 20), actions=(1, 0))
    np.testing.assert_array_equal(space.policy({10: 1, 20: 0}), [0, 1])
    np.testing.assert_array_equal(space.policy({np.int64(10): np.int64(1), 20: 0}), [0, 1])
    with pytest.raises(ValueError, match=r"has 0, expected a state of the space: 10, 20"):
        space.policy({0: 1, 1: 0})
    with pytest.raises(ValueError, match=r"has '10', expected a state of the space: 10, 20; did you mean 10\?$"):
        space.policy({"10": 1, 20: 0})


def test_the_unseen_state_may_be_left_out():
    """Its actions are equally likely, as in `behaviour_policy`; all others are needed."""
    data = Transitions([0, 1], [0, 1], [0.0, 1.0], [1, 0])
    space = StateActionSpace.from_log(Log(data, ("a", "b"), ("x", "y")), successors="observed")
    np.testing.assert_array_equal(space.policy({"a": "x", "b": "y"}), [[1, 0], [0, 1], [0.5, 0.5]])
    np.testing.assert_array_equal(space.policy({"a": "x", "b": "y", "unseen": "y"}), [0, 1, 1])
    with pytest.raises(ValueError, match="policy has no action for 'b', expected"):
        space.policy({"a": "x", "unseen": "y"})


def test_what_is_told_apart():
    assert is_by_label(GOOD) and is_by_label([GOOD]) and is_by_label((GOOD, 3))
    for other in ([0, 1], [], np.zeros(2), "run", None, 3, [[0.5, 0.5]]):
        assert not is_by_label(other)


@pytest.mark.parametrize(
    ("policy", "error", "message"),
    [
        ([0, 1], ValueError, r"policy has shape \(2,\), expected \(3,\) \(state\)"),
        (np.zeros((2, 2), int), ValueError, r"policy has shape \(2, 2\), expected \(2, 3\) \(step, state\)"),
        (np.ones((3, 3)) / 3, ValueError, r"policy has shape \(3, 3\), expected \(3, 2\) \(state, action\)"),
        (
            np.ones((4, 3, 3)) / 3,
            ValueError,
            r"policy has shape \(4, 3, 3\), expected \(4, 3, 2\) \(step, state",
        ),
        ([0, 1, 2], ValueError, r"policy\[2\] is 2, expected an action index from 0 to 1"),
        (np.ones((3, 2)), ValueError, r"policy\[0\] sums to 2, expected a row that sums to 1"),
        ("run", TypeError, "policy is 'run', expected integers"),
        (["run"] * 3, TypeError, "policy has dtype <U3, expected integers"),
    ],
)
def test_arrays_that_no_policy_has_are_refused(policy, error, message):
    with pytest.raises(error, match=f"^{message}"):
        MACHINE.describe_policy(policy)


def test_arrays_of_the_device_are_described():
    assert MACHINE.describe_policy(jnp.array([0, 1, 1])) == GOOD
    assert MACHINE.describe_policy(jnp.eye(2)[jnp.array([0, 1, 1])]) == GOOD
    assert MACHINE.describe_initial(jnp.array([0.25, 0.0, 0.75])) == {"new": 0.25, "broken": 0.75}


@pytest.mark.parametrize(
    ("initial", "error", "message"),
    [
        (
            "nwe",
            ValueError,
            "initial is 'nwe', expected probabilities, .* a state of .*; did you mean 'new'",
        ),
        (
            3,
            ValueError,
            "initial is 3, expected probabilities, a mapping state -> probability, or a state of",
        ),
        (None, ValueError, "initial is None, expected probabilities, "),
        ({"nwe": 1.0}, ValueError, "initial has 'nwe', expected a state of the space: .*; did you mean 'new'"),
        ({"new": 0.5}, ValueError, "initial sums to 0.5, expected probabilities that sum to 1"),
        ({"new": 1.5, "worn": -0.5}, ValueError, r"initial\['new'\] is 1.5, expected a probability from 0 to 1"),
        ({"new": "1"}, TypeError, r"initial\['new'\] is '1', expected a probability from 0 to 1"),
        ([0.5, 0.5], ValueError, r"initial has shape \(2,\), expected \(3,\)"),
        (np.ones(3), ValueError, "initial sums to 3"),
        (("new", "worn", "broken"), TypeError, r"initial\[0\] is 'new', expected probabilities"),
    ],
)
def test_wrong_starts_are_refused(initial, error, message):
    with pytest.raises(error, match=f"^{message}"):
        MACHINE.initial_probs(initial)


def test_a_tuple_that_is_a_state():
    """A state, unless it could be probabilities too: then it is neither."""
    grid = StateActionSpace(3, 1, states=((0, 0), (0, 1), (1, 1)))
    np.testing.assert_array_equal(grid.initial_probs((0, 1)), [0, 1, 0])
    np.testing.assert_array_equal(grid.initial_probs((0.5, 0.5, 0.0)), [0.5, 0.5, 0])
    two = StateActionSpace(2, 1, states=((0, 1), (1, 1)))
    np.testing.assert_array_equal(two.initial_probs((1, 1)), [0, 1])
    np.testing.assert_array_equal(two.initial_probs([0, 1]), [0, 1])
    np.testing.assert_array_equal(two.initial_probs({(0, 1): 1.0}), [1, 0])
    with pytest.raises(ValueError, match=r"initial is \(0, 1\), which is a state and could be the probabilities of 2"):
        two.initial_probs((0, 1))


def test_the_start_of_a_log():
    """As often as its episodes begin in each state; "unseen" is no start."""
    data = Transitions([0, 1, 1, 0, 1], [0] * 5, [0.0] * 5, [1, 0, 0, 1, 0], truncated=[0, 1, 1, 0, 1])
    log = Log(data, ("a", "b"), ("x",))
    for successors, expected in ((None, [2 / 3, 1 / 3]), ("observed", [2 / 3, 1 / 3, 0])):
        space = StateActionSpace.from_log(log, successors=successors)  # type: ignore[arg-type] - one of two words
        np.testing.assert_allclose(space.initial_probs(log), expected)
    with pytest.raises(ValueError, match=r"initial\.states are 'a', 'b', expected those of the space: 'new'"):
        MACHINE.initial_probs(log)
    folded: Any = object.__new__(FoldedLog)
    with pytest.raises(TypeError, match="initial is a FoldedLog, which has no episodes, expected a Log"):
        MACHINE.initial_probs(folded)
    none = np.zeros(0, int)
    with pytest.raises(ValueError, match="initial is a log without rows"):
        space.initial_probs(Log(Transitions(none, none, none * 0.0, none), ("a", "b"), ("x",)))
