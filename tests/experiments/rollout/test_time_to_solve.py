"""Time to solve: the rules against plain loops; runs that count the goal, end when solved, and go on after a kill."""

from dataclasses import replace

import numpy as np
import pytest

from bayes_mdp.agents import EpsilonGreedyQ
from bayes_mdp.envs import deep_sea
from bayes_mdp.experiments import RunOptions, run
from bayes_mdp.experiments.rollout import execute as execution
from bayes_mdp.experiments.rollout import execute as solving
from bayes_mdp.experiments.run_config import RunConfig
from bayes_mdp.mdp import Discounted, Episodic
from reproductions.klearning.deep_sea_methods import goal
from tests.experiments.toy import two_states

pytestmark = pytest.mark.numerics

AGENT = EpsilonGreedyQ(0.5, 0.3, replan="episode")


def by_hand(hits, share, first):
    """The literal rule, the sustained one and the first visit of one seed, in plain loops."""
    holds = [sum(hits[: t + 1]) >= share * (t + 1) - 1e-12 for t in range(len(hits))]
    literal = next((t + 1 for t in range(len(hits)) if holds[t]), np.nan)
    sustained = next((t + 1 for t in range(first - 1, len(hits)) if all(holds[t:])), np.nan)
    return literal, sustained, next((t + 1 for t in range(len(hits)) if hits[t]), np.nan)


@pytest.mark.parametrize(("share", "first"), [(0.1, 100), (0.1, 1), (0.25, 7)])
def test_the_rules_are_those_of_plain_loops(share, first):
    """60 random sequences around the share, of which some are solved, unsolved, and solved by luck only."""
    random = np.random.default_rng(0)
    rate = random.choice([0.0, 0.3, 0.8, 1.2, 3.0], (60, 1)) * share
    hits = random.random((60, 160)) < rate
    hits[:20] &= np.arange(160) < 30
    expected = np.array([by_hand(row, share, first) for row in hits])
    found = (
        solving.time_to_solve(hits, share=share),
        solving.sustained_time_to_solve(hits, share=share, first=first),
        solving.first_visit(hits),
    )
    for one, other in zip(found, expected.T, strict=True):
        np.testing.assert_array_equal(one, other)
    assert 0 < np.isnan(found[1]).sum() < 60 and (np.isfinite(found[0]) & np.isnan(found[1])).any()


def test_a_share_is_exact():
    """The rule holds at exactly one in ten, whatever the number."""
    for number in (10, 30, 70, 1000):
        hits = np.zeros(number, bool)
        hits[-number // 10 :] = True
        assert solving.time_to_solve(hits) == number
    assert np.isnan(solving.sustained_time_to_solve(np.ones((2, 50), bool))).all()


def test_bad_rules_are_refused():
    with pytest.raises(ValueError, match="share is 0, expected a number greater than 0"):
        solving.time_to_solve([True], share=0)
    with pytest.raises(ValueError, match="first is 0"):
        solving.sustained_time_to_solve([True], first=0)


def _case(key, num_episodes=600, size=3):
    options = RunOptions(target=goal(size), progress=False, snapshot_seconds=0.0)
    return RunConfig(AGENT, deep_sea(size), Episodic(size), key, None, None, num_episodes, 3, "average", options)


def _run(key, target):
    options = RunOptions(target=target, progress=False, regret="average")
    arguments = {"objective": Episodic(3), "num_episodes": 60, "num_seeds": 3}
    return run(AGENT, deep_sea(3), key=key, options=options, **arguments)


def test_a_run_counts_the_visits_of_its_target(key):
    """The sum over episodes is the visits at the end."""
    result = _run(key, goal(3))
    assert result["target_visits"].dims == ("seed", "episode")
    assert np.array_equal(result["target_visits"].sum("episode"), result["visits"].to_numpy()[:, -1, -1, 1])
    assert np.array_equal(result["target_visits"], result["reward"] > 0.5)


@pytest.mark.slow
def test_a_target_changes_nothing_else(key):
    plain = _run(key, None)
    assert "target_visits" not in plain
    assert np.array_equal(plain["reward"], _run(key, goal(3))["reward"])


def test_a_target_must_fit(key):
    arguments = {"objective": Discounted(0.9), "key": key, "num_steps": 4}
    for target in (np.ones((3, 2)), np.ones((2, 3), bool)):
        with pytest.raises(ValueError, match=r"options\.target is .* expected bool of shape"):
            run(AGENT, two_states(), options=RunOptions(target=target), **arguments)
    with pytest.raises(ValueError, match=r"options\.target is None"):
        solving.play_until_solved(replace(_case(key), options=RunOptions()))


class Killed(Exception):
    """Stands for a kill signal."""


def test_a_run_ends_when_solved_and_resumes_to_the_same_answer(key, tmp_path, monkeypatch):
    """All seeds solve L = 3 long before 600 episodes; one that never does, killed after a chunk, goes on to the end."""
    solved = solving.play_until_solved(_case(key))
    assert solved.episodes == solving.CHUNK_EPISODES
    assert np.isfinite(solved.sustained).all() and (solved.first_visit <= solved.literal).all()
    never = replace(_case(key), agent=EpsilonGreedyQ(0.0, 0.0, replan="episode"))
    whole = solving.play_until_solved(never)
    assert whole.episodes == 600 and np.isnan([*whole.literal, *whole.sustained, *whole.first_visit]).all()
    play, calls = execution.play_chunk, []

    def killed(*arguments):
        calls.append(0)
        if len(calls) == 2:
            raise Killed
        return play(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(execution, "play_chunk", killed)
        solving.play_until_solved(never, tmp_path / "cell")
    assert (tmp_path / "cell.partial").exists()
    resumed = solving.play_until_solved(never, tmp_path / "cell")
    assert not (tmp_path / "cell.partial").exists()
    for one, other in zip(whole, resumed, strict=True):
        np.testing.assert_array_equal(one, other)
