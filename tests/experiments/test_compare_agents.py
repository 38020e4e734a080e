"""`compare`: scores between two exact levels, what is refused, what is kept; one program for problems of one shape.

Agents are tables of Q-learning, which need no belief and share one compiled program.
"""

from importlib import import_module
from itertools import product
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS, PSRL, UCBVI, EpsilonGreedyQ
from bayes_mdp.experiments.compare_agents import DEFAULT_PROBLEMS, PROBLEMS, SCALED, Task, comparison_agents, levels_of
from bayes_mdp.experiments.ranking import describe_compare
from bayes_mdp.experiments.rollout import execute as execution
from bayes_mdp.experiments.rollout.simulator import simulator
from bayes_mdp.experiments.run_config import RunConfig, RunOptions
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Environment, Episodic, NormalReward

home: Any = import_module("bayes_mdp.experiments.compare_agents")
HORIZON, EPISODES, SEEDS = 4, 60, 3
FIRST, RANDOM = EpsilonGreedyQ(epsilon=0.0), EpsilonGreedyQ(epsilon=1.0)


def _env(pays: float = 1.0, ends: bool = False) -> Environment:
    """Two states in turn, whatever is done; action 0 pays. The first action is the best from the first step on."""
    rows = np.zeros((2, 2, 2))
    rows[0, :, 1], rows[1, :, 0] = 1.0, 1.0
    mdp = MDP(rows, np.array([[pays, 0.0], [2 * pays, 0.0]]), initial=[1.0, 0.0])
    return Environment(mdp, NormalReward(mdp.reward), name=f"turns {pays}")


def _compare(agents: Any, envs: Any, **options: Any) -> Any:
    arguments: dict[str, Any] = {"key": jax.random.key(0), "num_seeds": SEEDS, "objective": Episodic(HORIZON)}
    arguments |= {"length": EPISODES} | options
    return bm.compare(agents, envs, **arguments)


class Refuses(eqx.Module):
    """A table that takes nothing."""

    replan: Any = FIRST.replan

    def init(self, key, problem):
        """Refuse."""
        raise ValueError("objective is Episodic, expected another")

    def plan(self, key, problem, state, belief):
        """Never reached."""
        raise AssertionError

    observe = plan


def test_scores_curves_and_what_is_refused(tmp_path):
    """The best policy scores 1 in every twentieth; the random one 0 in the mean; the file holds all of it.

    A random episode of an env that pays 1 and 2 has mean 3 of 6 and variance 2 (1 + 4) / 4; the mean score of 3 runs of
    60 has standard deviation sqrt(2.5 / 180) / 3 = .039. Within 6 of them: a false alarm in 5e8; a level that is off by
    .9 of the episode's 6 is caught.
    """
    agents = {"first": FIRST, "refuses": Refuses(), "random": RANDOM}
    path = tmp_path / "compare.nc"
    result = _compare(agents, {"a": _env(), "b": _env(5.0)}, path=path)
    np.testing.assert_allclose(result["score"].sel(agent="first"), 1.0, atol=1e-6)
    np.testing.assert_allclose(result["curve"].sel(agent="first"), 1.0, atol=1e-6)
    random = result.sel(agent="random")
    assert (np.abs(random["score"].mean("seed")) < 6 * 0.039).all() and (random["score"].std("seed") > 0).all()
    np.testing.assert_allclose(random["curve"].mean("checkpoint"), random["score"], atol=1e-6)
    np.testing.assert_array_equal(result["time"][0], EPISODES / 20 * np.arange(1, 21))
    np.testing.assert_allclose(result["random"], [3.0, 15.0])
    np.testing.assert_allclose(result["optimal"], [6.0, 30.0])
    assert np.isnan(result["score"].sel(agent="refuses")).all()
    assert set(result["refused"].sel(agent="refuses").values) == {"objective is Episodic, expected another"}
    assert set(result["refused"].sel(agent="first").values) == {""}
    loaded = bm.load(path)
    assert loaded.equals(result) and loaded.attrs == result.attrs
    assert [file.name for file in tmp_path.iterdir()] == ["compare.nc"]
    shown = " ".join(describe_compare(loaded).split())
    assert shown.index("1 first") < shown.index("2 random") < shown.index("- refuses not ranked")
    assert "refused: refuses on a, b: objective is Episodic, expected another" in shown
    assert np.isnan(result["rank"].sel(agent="refuses")) and result["rank"].sel(agent="first") == 1
    alone = _compare({"random": RANDOM}, {"b": _env(5.0)})
    np.testing.assert_array_equal(alone["score"][0, 0], random["score"].sel(env="b"))


def test_a_killed_comparison_goes_on(tmp_path, monkeypatch):
    """The first pair is not run again; the scores are those of one that was not killed; another run is refused."""
    calls: list[Any] = []
    whole = home.run

    def killed(agent, env, **arguments):
        calls.append(agent)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(agent, env, **arguments)

    monkeypatch.setattr(home, "run", killed)
    agents, path = {"first": FIRST, "random": RANDOM}, tmp_path / "compare.nc"
    with pytest.raises(KeyboardInterrupt):
        _compare(agents, {"a": _env()}, path=path)
    with pytest.raises(ValueError, match=r"holds cells of another run: configuration.num_seeds is 3 there and 4 here"):
        _compare(agents, {"a": _env()}, path=path, num_seeds=4)
    result = _compare(agents, {"a": _env()}, path=path)
    assert [agent.epsilon for agent in calls] == [0.0, 1.0, 1.0]
    np.testing.assert_array_equal(result["score"], _compare(agents, {"a": _env()})["score"])
    assert not (tmp_path / "compare.nc.cells").exists()


def _by_hand(mdp: MDP, horizon: int, optimal: bool) -> float:
    """Backward recursion in plain Python."""
    rows, reward = (np.asarray(x, float).tolist() for x in (mdp.transition_probs, mdp.reward))
    legal = np.ones(mdp.reward.shape, bool) if mdp.legal is None else np.asarray(mdp.legal)
    v = [0.0] * mdp.n_states
    for _ in range(horizon):
        q = [
            [reward[s][a] + sum(p * x for p, x in zip(rows[s][a], v, strict=True)) for a in np.flatnonzero(legal[s])]
            for s in range(mdp.n_states)
        ]
        v = [max(each) if optimal else sum(each) / len(each) for each in q]
    return float(np.asarray(mdp.initial) @ np.array(v))


@pytest.mark.parametrize("name", ["riverswim", "wide_narrow"])
def test_levels_of_episodes_by_hand(name):
    """Backward recursion; "wide_narrow" has illegal actions, which the random policy does not take."""
    task: Any = PROBLEMS[name]()
    found = levels_of(task.env.mdp, task.objective)
    horizon = task.objective.horizon
    expected = [_by_hand(task.env.mdp, horizon, optimal) for optimal in (False, True)]
    np.testing.assert_allclose(found[:2], expected, rtol=1e-6)
    assert found.unknown == ""


def test_levels_without_episodes_are_gains():
    """.75 and 1.5 a step by hand. Two states that never meet: unknown; where nothing matters: nothing to learn."""
    for objective in (Discounted(0.9), AverageReward()):
        np.testing.assert_allclose(levels_of(_env().mdp, objective)[:2], [0.75, 1.5], rtol=1e-9)
    apart = MDP(np.broadcast_to(np.eye(2)[:, None], (2, 2, 2)), np.array([[1.0, 1.0], [3.0, 0.0]]), initial=[0.5, 0.5])
    unknown = levels_of(apart, Discounted(0.9))
    assert np.isnan(unknown.random) and unknown.unknown == "the optimal gain depends on the first state"
    assert "nothing to learn" in levels_of(_env(0.0).mdp, Episodic(2)).unknown


def test_runs_without_episodes():
    """205 steps, which twentieths and plans do not divide: the best policy scores 1 but for half a period."""
    task = Task(_env(), Discounted(0.5), 205)
    with_unknown = {"turns": task, "nothing": Task(_env(0.0), Discounted(0.5), 205)}
    result = bm.compare({"first": FIRST}, with_unknown, key=jax.random.key(0), num_seeds=2)
    np.testing.assert_allclose(result["score"].sel(env="turns"), 1.0, atol=0.01)
    assert np.isnan(result["score"].sel(env="nothing")).all() and result["refused"].sel(env="nothing") == ""
    assert "nothing to learn" in result["unscored"].sel(env="nothing").item()
    assert "not scored: nothing: " in " ".join(describe_compare(result).split())
    assert np.isfinite(result["aggregate"]).all()


def _shapes(tree: Any) -> Any:
    return [(np.shape(x), np.asarray(x).dtype) for x in jax.tree.leaves(tree)]


def test_problems_share_one_compiled_program():
    """All but "deep_sea": the same lengths and spaces, and the same structure and shapes of the compiled simulator.

    What a belief lists of the next states follows from these (see `beliefs.listed`).
    """
    parts = []
    for name in DEFAULT_PROBLEMS:
        task: Any = PROBLEMS[name]()
        simulated, options = simulator(task.env), RunOptions()
        key, length = jax.random.key(0), task.length
        space = RunConfig(PSRL(), task.env, task.objective, key, task.prior, None, length, 2, "average", options).space
        parts.append((space, task.objective, task.length, jax.tree.structure(simulated), _shapes(simulated)))
    assert DEFAULT_PROBLEMS[-1] == "deep_sea"
    assert all(part == parts[0] for part in parts[1:4]) and parts[4] != parts[0]


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_pay_between_0_and_1_and_can_be_learnt(name):
    """Rewards span [0, 1]; the optimum is at least twice what the random policy gets, but for "garnet" and "chain"."""
    task = PROBLEMS[name]()
    reward = np.asarray(task.env.mdp.reward)
    np.testing.assert_allclose([reward.min(), reward.max()], [0, 1], atol=1e-6)
    levels = levels_of(task.env.mdp, task.objective)
    assert levels.random < levels.optimal / (1.2 if name in ("garnet", "chain") else 2)


def test_agents_by_name():
    """All agents of the package, with the constants that were asked for."""
    assert list(comparison_agents()) == list(AGENTS) and set(SCALED) <= set(AGENTS)
    scaled, default = (comparison_agents(["ucbvi", "psrl"], constants=x) for x in ("scaled", "default"))
    one, other = scaled["ucbvi"], default["ucbvi"]
    assert isinstance(one, UCBVI) and isinstance(other, UCBVI) and (one.bonus_scale, other.bonus_scale) == (0.03, 1.0)
    assert scaled["psrl"] == default["psrl"] == AGENTS["psrl"]()


ENV = _env()
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"agents": ["prsl"]}, "agent is 'prsl', expected one of .*; did you mean 'psrl'?"),
    ({"agents": []}, "agents is empty"),
    ({"agents": {"x": 3}}, r"agents\['x'\] is 3, expected an agent"),
    ({"agents": {"x": PSRL}}, r"agents\['x'\] is the class PSRL, expected an agent"),
    ({"agents": [FIRST, RANDOM]}, "agents holds 'EpsilonGreedyQ' twice, expected a mapping"),
    ({"agents": [PSRL()]}, "prior is None, expected a prior or a posterior for agent 'PSRL' on 'turns 1.0'"),
    ({"envs": "riverswin"}, "env is 'riverswin', expected one of .*; did you mean 'riverswim'?"),
    ({"envs": {}}, "envs is empty"),
    ({"envs": {"x": 1}}, r"envs\['x'\] is 1, expected an Environment or a Task"),
    ({"objective": None}, r"objective is None, expected one for envs\['turns 1.0'\]"),
    ({"length": None}, r"length is None, expected a number of episodes for envs\['turns 1.0'\]"),
    ({"length": 0}, "length is 0"),
    ({"num_seeds": 1}, "num_seeds is 1, expected an integer of at least 2"),
    ({"key": 0}, "key is 0, expected a typed key"),
    ({"agents": [Refuses()]}, "every agent was refused on every problem, the first: objective is Episodic"),
]


@pytest.mark.parametrize(("wrong", "sentence"), WRONG)
def test_wrong_input_is_one_sentence(wrong, sentence):
    arguments = {"agents": [FIRST], "envs": [ENV]} | wrong
    with pytest.raises((ValueError, TypeError), match=sentence):
        _compare(arguments.pop("agents"), arguments.pop("envs"), **arguments)


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a file in a folder that exists"):
        _compare([FIRST], [ENV], path=tmp_path / "none" / "x.nc")


def test_problems_of_one_shape_compile_once():
    """Two tables on two problems: what is compiled for the first pair serves all four."""
    _compare({"first": FIRST}, {"a": _env()})
    compiled = getattr(execution.play_chunk, "_cache_size")()  # noqa: B009 - untyped in jax
    found = _compare({"first": FIRST, "random": RANDOM}, {"a": _env(), "b": _env(5.0)})
    assert getattr(execution.play_chunk, "_cache_size")() == compiled  # noqa: B009 - untyped in jax
    assert [found["score"].sel(agent=x, env=y).shape for x, y in product(("first", "random"), "ab")] == [(SEEDS,)] * 4


def test_figure_of_agents_with_and_without_rank():
    """Three panels; a legend of the ranked agents alone."""
    result = _compare({"first": FIRST, "refuses": Refuses(), "random": RANDOM}, {"a": _env()})
    figure = bm.plots.plot_compare(result)
    legend: Any = figure.axes[2].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["first", "random"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["first", "random", "refuses"]
