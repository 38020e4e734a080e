"""Every function that takes a policy or a start takes it by label too: the same numbers, and one sentence if wrong."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.mdp import Discounted, Episodic

KEY = jax.random.key(1)
AIM = Discounted(0.5)
BY_LABEL: dict[Any, str] = {"worn": "service", "new": "run"}
RANDOM = {"worn": {"service": 0.5, "run": 0.5}, "new": "run"}


def _log() -> bm.mdp.Log:
    rng = np.random.default_rng(0)
    wear, did = rng.choice(["new", "worn"], size=121), rng.choice(["run", "service"], size=120)
    earned = rng.integers(2, size=120) * 1.0
    columns = {"s": wear[:-1], "a": did, "r": earned, "t": wear[1:], "over": np.arange(120) % 4 == 3}
    return bm.read_log(pd.DataFrame(columns), state="s", action="a", reward="r", next_state="t", terminated="over")


LOG = _log()
SPACE = bm.StateActionSpace.from_log(LOG)
ARRAY = np.array([SPACE.action_names.index(BY_LABEL[state]) for state in SPACE.state_names])
PRIOR = bm.models.dirichlet_bernoulli()
START = np.eye(2)[SPACE.state_names.index("worn")]
FIRST = SPACE.initial_probs(LOG)

DRAWS = bm.decisions.ChooseOptions(num_draws=100)
Door = Callable[[Any, Any, Any], Any]
"""(policy, start, objective) -> numbers."""


@pytest.fixture(scope="module")
def doors() -> dict[str, Door]:
    posterior: Any = bm.infer(KEY, PRIOR, LOG, space=SPACE)
    ours = {"initial": None, "num_draws": 100}
    more = lambda start: ours | {"initial": start}  # noqa: E731
    information = bm.information.expected_regret
    return {
        "policy_value": lambda p, i, o: bm.policy_value(KEY, posterior, p, o, **more(i)).draws,
        "compare_policies": lambda p, i, o: (
            bm.compare_policies(KEY, posterior, {"x": p}, o, **more(i)).values["x"].draws
        ),
        "anchored_values": lambda p, i, o: (
            bm.decisions.anchored_values(KEY, posterior, {"x": p}, LOG, o, **more(i))["x"].gain
        ),
        "perfect_information": lambda p, i, o: information(KEY, posterior, o, policy=p, **more(i)).draws,
        "split_return_variance": lambda p, i, o: (
            bm.decisions.split_return_variance(KEY, posterior, p, o, **more(i)).mean
        ),
        "choose": lambda p, i, o: bm.choose(KEY, posterior, o, baseline=p, initial=i, options=DRAWS).baseline.draws,  # type: ignore[union-attr] - given
        "next_experiment": lambda p, i, o: (
            bm.information.next_experiment(
                KEY, posterior, o, {"x": bm.information.PolicyStudy(p, 2, 3)}, initial=i, num_data_sets=4
            ).value
        ),
    }


NAMES = (
    "policy_value",
    "compare_policies",
    "anchored_values",
    "perfect_information",
    "split_return_variance",
    "choose",
    "next_experiment",
)


@pytest.mark.parametrize("name", NAMES)
def test_by_label_is_by_array(doors, name):
    door = doors[name]
    expected = door(ARRAY, START, AIM)
    np.testing.assert_array_equal(door(BY_LABEL, "worn", AIM), expected)
    np.testing.assert_array_equal(door(BY_LABEL, {"worn": 1.0}, AIM), expected)
    np.testing.assert_array_equal(door(RANDOM, LOG, AIM), door(SPACE.policy(RANDOM), FIRST, AIM))
    if name != "next_experiment":  # so small a study changes no plan: all its gains are zero
        assert not np.array_equal(door({"worn": "run", "new": "service"}, "worn", AIM), expected)
        assert not np.array_equal(door(BY_LABEL, "new", AIM), expected)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_labels_are_refused(doors, name):
    door = doors[name]
    with pytest.raises(ValueError, match=r"policy has no action for 'worn', expected one for every state"):
        door({"new": "run"}, None, AIM)
    with pytest.raises(ValueError, match=r"policy\['new'\] is 'rnu', expected an action .*; did you mean 'run'\?"):
        door({**BY_LABEL, "new": "rnu"}, None, AIM)
    with pytest.raises(ValueError, match=r"initial is 'nwe', expected .*; did you mean 'new'\?"):
        door(BY_LABEL, "nwe", AIM)
    with pytest.raises(ValueError, match=r"policy is a list of 2 mappings, expected one: Discounted.* has no steps"):
        door([BY_LABEL, BY_LABEL], None, AIM)


@pytest.mark.parametrize("name", ["policy_value", "choose"])
def test_steps(doors, name):
    """A list has a mapping for each step; one mapping is that of every step."""
    door = doors[name]
    other = {"new": "service", "worn": "run"}
    stacked = np.stack([ARRAY, 1 - ARRAY])
    np.testing.assert_array_equal(door([BY_LABEL, other], "new", Episodic(2)), door(stacked, "new", Episodic(2)))
    np.testing.assert_array_equal(door(BY_LABEL, "new", Episodic(2)), door(ARRAY, "new", Episodic(2)))
    with pytest.raises(ValueError, match="policy is a list of 3 mappings, expected 2, one for each step"):
        door([BY_LABEL] * 3, "new", Episodic(2))


def test_starts_of_functions_without_a_policy():
    """`bayes_optimal` and `criticise`."""
    value = lambda start: bm.decisions.bayes_optimal(PRIOR, SPACE, objective=Episodic(2), initial=start).value  # noqa: E731
    assert value("worn") == value(START) and value(LOG) == value(FIRST)
    with pytest.raises(ValueError, match="initial is 'nwe', expected"):
        value("nwe")
    posterior = bm.infer(KEY, PRIOR, LOG, space=SPACE)
    found = [
        bm.criticise(
            KEY, posterior, LOG, AIM, initial=start, options=bm.calibration.CriticiseOptions(num_replicates=159)
        )
        for start in ("worn", START)
    ]
    assert str(found[0]) == str(found[1])


def test_without_labels_there_is_nothing_to_read():
    class Draws:
        def sample(self, key, sample_shape=()):
            return bm.MDP(np.full((2, 1, 2), 0.5), np.zeros((2, 1)))

    with pytest.raises(TypeError, match="policy: policy is a mapping, expected an array or a Policy: there is no"):
        bm.policy_value(KEY, Draws(), {0: 0, 1: 0}, AIM, num_draws=2)


def test_one_policy_in_place_of_many():
    posterior: Any = bm.infer(KEY, PRIOR, LOG, space=SPACE)
    with pytest.raises(TypeError, match=r"policies\['worn'\] is 'service', expected a policy: policies is name"):
        bm.compare_policies(KEY, posterior, BY_LABEL, AIM)  # type: ignore[arg-type] - the mistake


def test_the_start_is_said():
    """In what is printed: where values are from."""
    posterior = bm.infer(KEY, PRIOR, LOG, space=SPACE)
    shown = lambda start: str(bm.compare_policies(KEY, posterior, {"x": ARRAY}, AIM, initial=start, num_draws=8))  # noqa: E731
    assert "  start: uniform over the 2 states (no initial distribution was given)\n" in shown(None)
    assert "  start: the given distribution (state worn)\n" in shown("worn")
    assert "  start: the first states of the log's 30 episodes (new " in shown(LOG)
    chosen = str(bm.choose(KEY, posterior, AIM, initial="worn", options=DRAWS))
    assert "  start: the given distribution (state worn)\n" in chosen


def test_two_names_of_policies_that_are_one_text_are_refused():
    posterior: Any = bm.infer(KEY, PRIOR, LOG, space=SPACE)
    named: dict[Any, Any] = {1: ARRAY, "1": 1 - ARRAY}
    with pytest.raises(ValueError, match=r"^policies has two names that are written '1', expected names that differ"):
        bm.compare_policies(KEY, posterior, named, AIM)
