"""Files, descriptions and figures of results."""

import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import PSRL, EpsilonGreedyQ
from bayes_mdp.experiments import RunOptions, run
from bayes_mdp.experiments.describe import describe, describe_key, first_difference, key_from
from bayes_mdp.experiments.results import load_result
from bayes_mdp.mdp import MDP, Discounted, Episodic, StateActionSpace
from bayes_mdp.plots import plot_posterior, plot_regret, plot_values
from bayes_mdp.utils.files import write_netcdf
from tests.experiments.toy import two_states

KEY = jax.random.key(3)


def _run(**changes):
    space = StateActionSpace(3, 2, states=("low", "high", 7), actions=("stay", "go"))
    options = RunOptions(space=space, num_checkpoints=5, progress=False)
    arguments = {"objective": Discounted(0.9), "num_steps": 50, "num_seeds": 3, "key": KEY, "options": options}
    return run(EpsilonGreedyQ(), two_states(), **{**arguments, **changes})


def test_round_trip(tmp_path):
    """What is loaded is what was saved, names and attributes included; nothing is left beside it."""
    result, path = _run(), tmp_path / "run.nc"
    write_netcdf(result, path)
    loaded = load_result(path)
    assert loaded.identical(result) and list(tmp_path.iterdir()) == [path]
    assert loaded["state"].values.tolist() == ["low", "high", "7"]
    configuration = json.loads(loaded.attrs["configuration"])
    assert configuration["agent"]["epsilon"] == 0.1 and configuration["num_steps"] == 50
    assert json.loads(loaded.attrs["versions"])["jax"] == jax.__version__
    words = jax.random.key_data(key_from(json.loads(loaded.attrs["key"])))
    assert np.array_equal(words, jax.random.key_data(KEY))


def test_damaged_files(tmp_path):
    """A cut file, another format, no file: one sentence."""
    path = tmp_path / "run.nc"
    write_netcdf(_run(), path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="whole NetCDF file"):
        load_result(path)
    write_netcdf(_run().assign_attrs(format="other"), path)
    with pytest.raises(ValueError, match="of format 'other'"):
        load_result(path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_result(tmp_path / "none.nc")


def test_descriptions():
    """JSON for anything; the first difference by name."""
    here, there = (json.loads(json.dumps(describe(PSRL(k)))) for k in (5, 6))
    assert first_difference(here, there) == "replan.num_steps is 5 there and 6 here"
    assert first_difference(here, here) is None
    assert describe(np.zeros(100))["shape"] == [100] and describe(describe)[-8:] == "describe"
    assert describe_key(KEY)["words"] == [0, 3]


def test_an_episode_without_discount_is_described_as_before():
    """Results, snapshots and sweeps that were stored before episodes had a discount are those of the same run."""
    before = {"type": "bayes_mdp.mdp.objectives.Episodic", "horizon": 7}
    assert describe(Episodic(7)) == describe(Episodic(7, discount=1)) == before
    assert describe(Episodic(7, 0.9)) == {**before, "discount": 0.9}
    assert first_difference(before, describe(Episodic(7, 0.9))) == "discount is None there and 0.9 here"
    assert describe(replace(Episodic(7, 0.9), discount=1.0)) == before


class Seen:
    """Enough of a posterior for a figure."""

    space = StateActionSpace(2, 2, states=("a", "b"))

    def mean_mdp(self):
        """A mean."""
        return MDP(np.full((2, 2, 2), 0.5), np.eye(2))

    def visit_counts(self):
        """Visits."""
        return jnp.ones((2, 2))


def test_figures():
    """Axes are named; bad input is refused."""
    steps = plot_regret({"a": _run(), "b": _run(key=jax.random.key(1))})
    assert steps.axes[0].get_xlabel() == "time (steps)" and steps.axes[0].get_ylabel() == "cumulative regret"
    episodes = plot_regret(_run(objective=Episodic(4), num_steps=None, num_episodes=6, num_seeds=1))
    assert episodes.axes[0].get_xlabel() == "episode"
    values = plot_values(np.random.default_rng(0).normal(size=(50, 3)), truth=np.zeros(3))
    assert values.axes[0].get_xlabel() == "state"
    posterior = plot_posterior(Seen())
    assert [axes.get_title() for axes in posterior.axes[:4]][-2:] == ["mean reward", "visits"]
    for bad in (lambda: plot_values(np.zeros(3)), lambda: plot_regret({}), lambda: plot_regret(_run(), level=0.5)):
        with pytest.raises(ValueError, match="expected"):
            bad()


def test_regret_that_is_not_known_is_refused_with_the_reason():
    result = _run()
    unknown = result.assign(regret=result["regret"] * np.nan).assign_attrs(regret_unknown='"the env lists no states"')
    with pytest.raises(
        ValueError, match=r"results\['a'\] has no known regret \(the env lists no states\), expected runs"
    ):
        plot_regret({"b": result, "a": unknown})
    assert plot_regret(_run(num_seeds=1)).axes[0].get_title() == "1 seed"


def test_a_posterior_shows_its_end_and_how_sure_it_is():
    """The numbers drawn are those of the posterior; listed successors stand in their columns."""
    data = bm.Transitions([0, 0, 1, 0], [0, 0, 0, 1], None, [0, 1, 1, 0], [False, False, True, False])
    prior = bm.models.known_rewards(np.eye(2))
    dense = bm.infer(KEY, prior, data, space=StateActionSpace(2, 2, ends=True))
    lists = [[[0, 1, 2], [0, -1, -1]], [[1, 2, -1], [0, 1, 2]]]
    listed = bm.infer(KEY, prior, data, space=StateActionSpace(2, 2, successors=lists, ends=True))
    for posterior in (dense, listed):
        figure = plot_posterior(posterior)
        drawn: dict[str, Any] = {axes.get_title(): axes for axes in figure.axes if axes.get_xlabel()}
        assert list(drawn) == [
            *(f"{words}\naction {a}" for words in ("P(next)",) for a in (0, 1)), "mean reward", "visits",
            *(f"sd of P(next)\naction {a}" for a in (0, 1)), "sd of the mean reward"]  # fmt: skip
        draws: Any = posterior.sample(KEY, (20_000,))
        draws = draws.to_dense() if posterior is listed else draws
        rows = np.concatenate([draws.transition_probs, np.asarray(draws.end_probs)[..., None]], axis=-1)
        for a in (0, 1):
            mean, sd = (
                drawn[f"{words}\naction {a}"].images[0].get_array().data for words in ("P(next)", "sd of P(next)")
            )
            np.testing.assert_allclose(mean, rows.mean(0)[:, a], atol=0.01)
            np.testing.assert_allclose(sd, rows.std(0)[:, a], atol=0.01)
        assert not np.any(drawn["sd of the mean reward"].images[0].get_array().data)  # they are known
        np.testing.assert_array_equal(drawn["visits"].images[0].get_array().data, [[2, 1], [1, 0]])
