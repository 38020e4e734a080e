"""Where episodes start: which distribution, whether someone stated it, and in words."""

import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions.policy_evaluation import read_start, start_of_log
from bayes_mdp.mdp import MDP, Log, StateActionSpace, Transitions

SPACE = StateActionSpace(4, 1, states=("a", "b", "c", "d"))
ROWS = np.full((4, 1, 4), 0.25)
PLAIN = MDP(ROWS, np.zeros((4, 1)))
MANY, LARGE = StateActionSpace(6, 1, states=tuple("abcdef")), MDP(np.full((6, 1, 6), 1 / 6), np.zeros((6, 1)))
STATED = MDP(ROWS, np.zeros((4, 1)), initial=np.array([0.0, 1.0, 0.0, 0.0]))
LOG = Log(Transitions([0, 1, 2, 0], [0] * 4, [0.0] * 4, [1, 2, 0, 3], truncated=[0, 1, 1, 1]), SPACE.state_names, (0,))


@pytest.mark.parametrize(
    ("mdp", "initial", "space", "probs", "words"),
    [
        (PLAIN, None, SPACE, [0.25] * 4, "uniform over the 4 states (no initial distribution was given)"),
        (STATED, None, SPACE, [0, 1, 0, 0], "the distribution of the drawn MDPs (state b)"),
        (STATED, "c", SPACE, [0, 0, 1, 0], "the given distribution (state c)"),
        (PLAIN, {"a": 0.75, "d": 0.25}, SPACE, [0.75, 0, 0, 0.25], "the given distribution (a 0.75, d 0.25)"),
        (PLAIN, np.eye(4)[3], SPACE, [0, 0, 0, 1], "the given distribution (state d)"),
        (PLAIN, [0.25] * 4, SPACE, [0.25] * 4, "the given distribution (a 0.25, b 0.25, c 0.25, d 0.25)"),
        (LARGE, [1 / 6] * 6, MANY, [1 / 6] * 6, "the given distribution over 6 of 6 states"),
        (PLAIN, LOG, SPACE, [2 / 3, 0, 1 / 3, 0], "the first states of the log's 3 episodes (a 0.667, c 0.333)"),
        (PLAIN, [0, 0, 1, 0], None, [0, 0, 1, 0], "the given distribution over 1 of 4 states"),
        (PLAIN, 2, None, [0, 0, 1, 0], "the given distribution over 1 of 4 states"),
    ],
)
def test_starts(mdp, initial, space, probs, words):
    start = read_start(mdp, initial, space)
    np.testing.assert_allclose(start.probs, probs, rtol=1e-12)
    assert start.words == words
    assert start.given == (initial is not None or mdp is STATED)


@pytest.mark.parametrize(
    ("more", "starts"),
    [({}, False), ({"truncated": [0, 1]}, False), ({"terminated": [0, 1]}, True), ({"truncated": [0, 0]}, False)],
)
def test_a_log_starts_where_its_episodes_begin_and_one_stretch_nowhere(more, starts):
    one = Log(Transitions([0, 1], [0, 0], [0.0, 0.0], [1, 0], **more), SPACE.state_names, (0,))
    assert start_of_log(one) is (one if starts else None)
    assert start_of_log(LOG) is LOG
    jump = Log(Transitions([0, 2], [0, 0], [0.0, 0.0], [1, 0], **more), SPACE.state_names, (0,))
    assert start_of_log(jump) is jump
    none = np.zeros(0, int)
    assert start_of_log(Log(Transitions(none, none, none + 0.0, none), SPACE.state_names, (0,))) is None


def test_what_is_no_start_is_refused():
    with pytest.raises(ValueError, match=r"initial is 'e', expected probabilities, .* a state of the space: 'a', "):
        read_start(PLAIN, "e", SPACE)
    with pytest.raises(ValueError, match=r"initial is 'a', expected probabilities, .* a state of the space: 0, 1"):
        read_start(PLAIN, "a")


def test_first_exit_without_an_end_is_refused_at_every_door(key):
    """No policy is at fault: nothing in the space ends."""
    columns = {"s": ["a", "b"] * 4, "a": ["x", "y"] * 4, "r": [0.0] * 8, "t": ["b", "a"] * 4, "e": [0] * 4 + [1] * 4}
    log = bm.read_log(
        pd.DataFrame(columns),
        state="s",
        action="a",
        reward="r",
        next_state="t",
        episode="e",
    )
    space, prior = bm.StateActionSpace.from_log(log), bm.models.dirichlet_normal_gamma()
    posterior = bm.infer(key, prior, log, space=space)
    for value in (
        lambda: bm.policy_value(key, posterior, {"a": "x", "b": "y"}, bm.FirstExit(), num_draws=100),
        lambda: bm.choose(key, posterior, bm.FirstExit(), options=bm.decisions.ChooseOptions(num_draws=100)),
        lambda: bm.decide(
            key,
            prior,
            log,
            bm.FirstExit(),
            options=bm.recommend.DecideOptions(space=space, checks=False, num_draws=100),
        ),
    ):
        with pytest.raises(ValueError, match=r"objective is FirstExit, and no transition .* ends an episode"):
            value()
