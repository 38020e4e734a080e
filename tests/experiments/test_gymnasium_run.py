"""`run` in Gymnasium environments: as the compiled run, step for step; autoreset, truncation, resumption, learning."""

import json
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

from bayes_mdp.agents import PSRL, EpsilonGreedyQ, Geometric
from bayes_mdp.envs import to_gymnasium
from bayes_mdp.experiments import RunOptions, run
from bayes_mdp.experiments.actor import ActorCore
from bayes_mdp.experiments.results import load_result
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Environment, Episodic, NormalReward, StateActionSpace
from bayes_mdp.plots import plot_regret
from tests.experiments.toy import ToyBelief, two_states, walk_that_ends
from tests.options import fold

KEY = jax.random.key(21)
QUIET = RunOptions(num_checkpoints=10, progress=False, snapshot_seconds=0.0)
TOY, ENDING = ToyBelief.of(3, 2), ToyBelief.of(3, 2, ends=True)


def _run(env, agent: Any = PSRL(10), **changes):
    arguments: dict[str, Any] = {
        "prior": ENDING,
        "objective": Discounted(0.9),
        "num_steps": 100,
        "num_seeds": 2,
        "key": KEY,
        "options": QUIET,
    }
    return run(agent, env, **fold(RunOptions, {**arguments, **changes}))


def sure_walk():
    """The walk that ends, from state 0: no random number of the environment decides anything."""
    mdp: Any = walk_that_ends().mdp
    sure = MDP(mdp.transition_probs, mdp.reward, end_probs=mdp.end_probs, initial=[1.0, 0.0, 0.0])
    return Environment(sure, NormalReward(sure.reward), name="sure walk")


def _seldom(moment):
    return (moment.time % 7 == 3) | (moment.visits.sum() > 2 * moment.planned_visits.sum())


STEPS = {"objective": Discounted(0.9), "num_steps": 203}
EPISODES = {"objective": Episodic(6), "num_steps": None, "num_episodes": 40}


RULES = {
    "7": PSRL(7),
    "1": PSRL(1),
    "episode": PSRL("episode"),
    "doubling": PSRL("doubling"),
    "geometric": PSRL(Geometric(1.4)),
    "function": PSRL(_seldom),
    "q": EpsilonGreedyQ(0.5, 0.3),
}
FAST = ("function-episodes", "q-episodes")
CASES = [
    pytest.param(agent, length, id=f"{rule}-{name}", marks=[] if f"{rule}-{name}" in FAST else pytest.mark.slow)
    for rule, agent in RULES.items()
    for name, length in (("steps", STEPS), ("episodes", EPISODES))
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("agent", "length"), CASES)
def test_the_compiled_run_step_for_step(agent, length):
    """Where the environment is deterministic, the same key gives the same plans and actions: equal to the bit.

    So the first plan, the times of the others, what was learnt by then (the last transition too), episodes that end
    early, the keys of plans and actions, rows and visits are those of the compiled run.
    """
    changes = {**length, "num_seeds": 3}
    compiled, stepped = _run(sure_walk(), agent, **changes), _run(to_gymnasium(sure_walk()), agent, **changes)
    for name in ("reward", "visits"):
        np.testing.assert_array_equal(stepped[name], compiled[name])
    assert stepped["visits"].values.sum() > 200 and len(np.unique(stepped["visits"].values)) > 4
    assert stepped.sizes == compiled.sizes and list(stepped.coords) == list(compiled.coords)
    assert set(stepped.attrs) == set(compiled.attrs)


@pytest.mark.slow
@pytest.mark.usefixtures("lost_block")
def test_a_lost_transition_is_seen_in_the_comparison():
    """The broken twin: the last transition before every plan is not learnt."""
    compiled, stepped = (_run(env, PSRL(7), num_seeds=3, **STEPS) for env in (sure_walk(), to_gymnasium(sure_walk())))
    assert not np.array_equal(stepped["visits"], compiled["visits"])


@pytest.fixture
def lost_block(monkeypatch):
    """`ActorCore.plan` that forgets the last buffered transition."""
    plan = ActorCore.plan

    def forgetful(self, *arguments):
        self._count = max(self._count - 1, 0)
        plan(self, *arguments)

    monkeypatch.setattr(ActorCore, "plan", forgetful)


def _totals(env):
    result = _run(env, PSRL(10), prior=TOY, num_steps=200, num_seeds=200)
    return result["reward"].values.sum(1), result["regret"].values[:, -1]


def _difference(one, other):
    """Standardized difference of two means."""
    return (one.mean() - other.mean()) / np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other))


@pytest.mark.slow
def test_same_law_as_the_compiled_run(monkeypatch):
    """200 seeds each, noisy rewards: totals of 200 steps agree in mean and in spread.

    |z| < 5.5 for the mean, and a ratio of standard deviations within 1.8: false alarms below 1e-7 + 1e-9. A shift of
    the mean by .8 standard deviations of a total is caught with probability above .99. The twin that learns from
    nothing is caught.
    """
    compiled, stepped = _totals(two_states(0.5)), _totals(to_gymnasium(two_states(0.5)))
    assert abs(_difference(compiled[0], stepped[0])) < 5.5
    assert 1 / 1.8 < compiled[0].std() / stepped[0].std() < 1.8
    np.testing.assert_allclose(stepped[0] + stepped[1], compiled[0] + compiled[1], rtol=1e-5)  # gain times steps
    monkeypatch.setattr(ActorCore, "add", lambda self, *transition: None)
    assert abs(_difference(compiled[0], _totals(to_gymnasium(two_states(0.5)))[0])) > 5.5


class Odd(gymnasium.Env):
    """States 5, 6; actions -1, 0; action 0 pays 1 and leads to 6. After `resets` resets it has three actions."""

    observation_space = gymnasium.spaces.Discrete(2, start=5)
    action_space = gymnasium.spaces.Discrete(2, start=-1)

    def __init__(self, resets=10**6, spaces=None):
        self.left = resets
        if spaces is not None:
            self.observation_space, self.action_space = spaces

    def reset(self, *, seed=None, options=None):
        """State 5."""
        super().reset(seed=seed)
        self.left -= 1
        if self.left < 0:
            self.action_space = gymnasium.spaces.Discrete(3, start=-1)
        return 5, {}

    def step(self, action):
        """See the class."""
        assert action in (-1, 0)
        return (6, 1.0, False, False, {}) if action == 0 else (5, 0.0, False, True, {})


def test_spaces_that_start_elsewhere():
    """States and actions are numbered from 0 in the result; nothing is known of the regret."""
    result = _run(Odd, prior=ToyBelief.of(2, 2, ends=True), num_steps=60)
    assert result["visits"].values[:, 0].sum() > 0 and result["visits"].values.sum() == 120
    np.testing.assert_array_equal(result["reward"].values.sum(1), result["visits"].values[:, :, 1].sum(1))
    assert "no table" in json.loads(result.attrs["regret_unknown"])


BOX, TWO = gymnasium.spaces.Box(0.0, 1.0, (2,)), gymnasium.spaces.Discrete(2)


@pytest.mark.parametrize(
    ("env", "changes", "message"),
    [
        (lambda: Odd(spaces=(BOX, TWO)), {}, r"env.observation_space is Box\(.*\), expected Discrete"),
        (lambda: Odd(spaces=(TWO, BOX)), {}, r"env.action_space is Box\(.*\), expected Discrete"),
        (lambda: Odd(resets=3), {}, r"env.action_space is Discrete\(3, start=-1\) after a reset, expected Discrete\(2"),
        ("CartPole-v1", {}, r"env.observation_space is Box\(.*\), expected Discrete"),
        ("NoSuchThing-v0", {}, "env is 'NoSuchThing-v0', expected an id that Gymnasium can make"),
        (lambda: 3, {}, r"env\(\) is a int, expected an Environment, or a Gymnasium environment"),
        (3, {}, "env is a int, expected an Environment, or a Gymnasium environment"),
        (Odd, {"regret": "objective"}, "regret is 'objective', expected 'average' or None for a Gymnasium environment"),
        (Odd, {"num_steps": None}, "Discounted runs are measured in num_steps"),
        (Odd, {"prior": None}, "prior is None, expected a prior or a posterior for PSRL"),
        (Odd, {"options": RunOptions(space=StateActionSpace(3, 2))}, r"space has \(3, 2\) states and actions"),
        ("FrozenLake-v1", {"objective": AverageReward()}, "objective is AverageReward, expected another"),
        (
            to_gymnasium(walk_that_ends()),
            {"options": RunOptions(space=StateActionSpace(3, 2)), "prior": TOY},
            "ends=True",
        ),
    ],
)
def test_bad_input(env, changes, message):
    """One sentence."""
    with pytest.raises((ValueError, TypeError), match=message):
        _run(env, **{"prior": ToyBelief.of(2, 2, ends=True), **changes})


def test_seeds_are_reproducible_and_do_not_depend_on_their_number():
    """An environment that is used again by every seed gives what fresh ones give; the first seeds stay."""
    fresh = _run(lambda: to_gymnasium(walk_that_ends(), max_episode_steps=7), num_seeds=3)
    reused = _run(to_gymnasium(walk_that_ends(), max_episode_steps=7), num_seeds=2)
    np.testing.assert_array_equal(fresh["reward"].values[:2], reused["reward"].values)
    assert not np.array_equal(fresh["visits"].values[0], fresh["visits"].values[1])
    other = _run(to_gymnasium(walk_that_ends(), max_episode_steps=7), key=jax.random.key(3))
    assert not np.array_equal(other["visits"], reused["visits"])


def test_a_killed_run_goes_on_from_its_last_finished_seed(tmp_path, tmp_path_factory):
    """Ctrl-C in the third seed: the first two are kept, the same call ends in the same bits."""
    made, path = tmp_path_factory.mktemp("made") / "made", tmp_path / "run.nc"

    def stubborn():
        with made.open("a") as file:  # a list that grows would make it another function
            file.write("1")
        env = to_gymnasium(walk_that_ends(), max_episode_steps=7)
        if made.stat().st_size == 3:
            env.step = _interrupt  # type: ignore[method-assign]
        return env

    with pytest.raises(KeyboardInterrupt):
        _run(stubborn, num_seeds=4, path=path)
    assert path.with_name("run.nc.partial").exists() and not path.exists()
    with pytest.raises(ValueError, match="num_steps is 100 there and 90 here"):
        _run(stubborn, num_seeds=4, path=path, num_steps=90)
    opened = made.stat().st_size
    result = _run(stubborn, num_seeds=4, path=path)
    assert made.stat().st_size - opened == 3  # one is looked at, two are played
    assert result.identical(_run(stubborn, num_seeds=4)) and load_result(path).identical(result)
    assert [p.name for p in tmp_path.iterdir()] == ["run.nc"]
    figure = plot_regret(load_result(path))
    assert figure.axes[0].get_ylabel() == "cumulative regret"


def _interrupt(action):
    raise KeyboardInterrupt


def test_what_is_truncated_bootstraps():
    """A walk cut after two steps never shows its end; its worth is learnt all the same.

    Q-learning by hand: states 0, 1, 2; cut before the end, so every return of an episode is zero but the last of three.
    Truncated transitions are in the counts as ordinary ones: none in the column of the end.
    """
    env = to_gymnasium(two_states(), max_episode_steps=2)
    options = RunOptions(space=StateActionSpace(3, 2, ends=True), num_checkpoints=10, progress=False)
    result = _run(env, PSRL(5), num_steps=400, options=options)
    without = _run(env, PSRL(5), num_steps=400, prior=TOY)
    # The optimum of a cut run: 0 -> 1 pays nothing, 1 -> 1 pays one: half a reward a step, less the slips.
    assert result["reward"].values[:, 5:].mean() / 40 > 0.35
    assert without["reward"].values[:, 5:].mean() / 40 > 0.35
