"""Beliefs that wear out: refitted between chunks for the seeds that need it, to the same bits after a kill."""

import json
import logging
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import PSRL
from bayes_mdp.envs import to_gymnasium
from bayes_mdp.experiments import Actor, RunOptions, run
from bayes_mdp.experiments.rollout import execute as execution
from bayes_mdp.experiments.rollout import run_beliefs as refitting
from bayes_mdp.experiments.rollout.execute import prepare
from bayes_mdp.experiments.rollout.run_beliefs import Refits, changing, split_constants
from bayes_mdp.experiments.rollout.time_loop import layout_of
from bayes_mdp.experiments.run_config import RunConfig, check_case
from bayes_mdp.inference import route
from bayes_mdp.mdp import Discounted, StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec
from tests.experiments.toy import ManyDraws, WornDraws, two_states

pytestmark = pytest.mark.numerics

KEY = jax.random.key(5)
NUM_DRAWS = 16
QUIET = RunOptions(num_checkpoints=20, progress=False, snapshot_seconds=0.0)


@lru_cache
def _belief(num_draws: int = NUM_DRAWS) -> WornDraws:
    return WornDraws.of(3, 2, num_draws, KEY)


def _toy(env: Any = None, **changes: Any):
    arguments: dict[str, Any] = {
        "prior": _belief(),
        "objective": Discounted(0.9),
        "num_steps": 400,
        "num_seeds": 3,
        "key": KEY,
        "options": QUIET,
    }
    return run(PSRL(5), two_states() if env is None else env, **{**arguments, **changes})


@lru_cache
def _result():
    return _toy()


def _without_cost(result):
    attrs = {name: value for name, value in result.attrs.items() if name != "refit_cost"}
    return result.drop_attrs().assign_attrs(attrs)


def test_worn_beliefs_are_inferred_anew():
    """It learns, says how often and at what cost, and gives the same bits again."""
    result = _result()
    assert result["refits"].dims == ("seed",) and (result["refits"].values > 2).all()
    cost = json.loads(result.attrs["refit_cost"])
    assert set(cost) == {"seconds", "calls", "compilations"} and cost["calls"] >= result["refits"].values.max()
    assert 1 <= cost["compilations"] <= 3 and cost["seconds"] > 0, "1, 2 or 4 beliefs at once"
    assert result["reward"].values[:, -5:].mean() / 20 > 0.6
    assert _without_cost(_toy()).identical(_without_cost(result))
    assert not np.array_equal(_toy(key=jax.random.key(6))["refits"], result["refits"])


def test_how_often_it_is_asked():
    """About a hundred checks, or as often as asked for; one call for all where nothing wears out."""
    case = RunConfig(PSRL(5), two_states(), Discounted(0.9), KEY, _belief(), 400, None, 5, None, RunOptions())
    assert layout_of(case, ends=False, values=False, refits=True).chunk_rows == 1
    every = replace(case, options=RunOptions(refit_every=7))
    assert layout_of(every, ends=False, values=False, refits=True).chunk_rows == 7
    assert layout_of(every, ends=False, values=False).chunk_rows == 64


class Killed(Exception):
    """Stands for a kill signal."""


@pytest.mark.parametrize("where", ["play_chunk", "refit_by_jax"])
def test_a_killed_run_resumes_bit_for_bit(tmp_path, monkeypatch, where):
    """Killed in the ninth chunk, or in the fifth refit, when the last chunk is safe already."""
    module: Any = execution if where == "play_chunk" else refitting
    path, calls, original = tmp_path / "run.nc", [], getattr(module, where)

    def killed(*arguments):
        calls.append(0)
        if len(calls) == {"play_chunk": 9, "refit_by_jax": 5}[where]:
            raise Killed
        return original(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(module, where, killed)
        _toy(path=path)
    assert path.with_name("run.nc.partial").exists() and not path.exists()
    resumed = _toy(path=path)
    assert _without_cost(resumed).identical(_without_cost(_result()))
    assert json.loads(resumed.attrs["refit_cost"])["calls"] < json.loads(_result().attrs["refit_cost"])["calls"]


def _worn(beliefs: Any, log_weights: Any) -> Any:
    return WornDraws(beliefs.rows, log_weights, beliefs.counts, beliefs.reward_sum, beliefs.prior)


def test_only_the_worn_are_renewed():
    """Three of five seeds (four in the call); what neither update nor refit changes is not carried."""
    index = jnp.zeros((), jnp.int32)
    part, constants = split_constants(_belief(), Transitions(index, index, jnp.zeros(()), index))
    assert constants.prior is not None and constants.rows is None and constants.counts is None
    assert part.prior is None
    weights = jnp.zeros((5, NUM_DRAWS)).at[np.array([0, 2, 3]), 0].set(50.0)
    lifted = jax.tree.map(lambda x: jnp.stack([x] * 5), changing(_belief(), part))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(KEY, jnp.arange(5))
    refits = Refits(keys, part, constants)
    fresh, worn = refits.renew(_worn(lifted, weights), 7)
    assert worn.tolist() == [True, False, True, True, False] and refits.cost["calls"] == 1
    same = [np.array_equal(fresh.rows[i], lifted.rows[i]) for i in range(5)]
    assert same == [False, True, False, False, True] and fresh.rows.dtype == lifted.rows.dtype
    assert np.array_equal(fresh.log_weights, np.zeros((5, NUM_DRAWS)))
    assert len(np.unique(np.asarray(fresh.rows)[:, 0, 0, 0, 0])) == 4, "every seed draws for itself"
    assert np.array_equal(fresh.rows, refits.renew(_worn(lifted, weights), 7)[0].rows)
    assert not np.array_equal(fresh.rows, refits.renew(_worn(lifted, weights), 8)[0].rows)


def test_an_actor_refits_before_a_plan(caplog):
    """A log message says so; the new draws know all that was observed, what waited in the buffer too."""
    actor = Actor(PSRL(10), StateActionSpace(3, 2), objective=Discounted(0.9), key=KEY, prior=_belief())
    with caplog.at_level(logging.INFO):
        actor.reset(0)
        for _ in range(5):
            actor.act(0)
            actor.observe(0, 0, 0.0, 2, False, False)
            actor.observe(2, 0, 0.3, 0, False, False)
        assert not caplog.records
        actor.act(0)
    assert "10: 1 of 1 beliefs inferred anew" in caplog.text and actor.refits is not None
    assert actor.refits.cost["calls"] == 1
    assert actor.belief.counts.sum() == 10 and np.array_equal(actor.belief.log_weights, np.zeros(NUM_DRAWS))
    assert float(actor.belief.rows[:, 0, 0, 2].mean()) > 0.55, "6 / 8 expected, 1 / 3 before"


def _many() -> ManyDraws:
    """As if inferred: 200 draws."""
    many = _belief(200)
    return ManyDraws(many.rows, many.log_weights, many.counts, many.reward_sum, many.prior)


@pytest.mark.slow
def test_gymnasium_runs_refit(monkeypatch):
    """Through the Actor of every seed; a program that is inferred by draws is thinned for each."""
    monkeypatch.setattr(route, "infer", lambda key, prior, data, *, space, method: _many())
    options = RunOptions(num_checkpoints=5, progress=False, num_particles=NUM_DRAWS)
    gym = lambda: to_gymnasium(two_states())  # noqa: E731
    result = _toy(gym, prior=lambda space: None, num_steps=60, num_seeds=2, options=options)
    assert (result["refits"].values > 0).all() and json.loads(result.attrs["refit_cost"])["calls"] > 1


@pytest.mark.slow
def test_a_program_is_thinned_for_every_seed(monkeypatch):
    """Seeds begin with draws of their own, and with worlds of their own from another program."""
    asked = []
    monkeypatch.setattr(route, "infer", lambda key, prior, data, *, space, method: asked.append(method) or _many())

    def stays(space):
        return MDPSpec(jnp.broadcast_to(jnp.eye(3)[:, None], (3, 2, 3)), reward=jnp.ones((3, 2)))

    options = RunOptions(num_particles=NUM_DRAWS, method="collapsed", env_prior=stays)
    case = RunConfig(PSRL(5), two_states(), Discounted(0.9), KEY, stays, 400, None, 5, "bayes", options)
    check_case(case)
    prepared = prepare(case)
    assert asked == ["collapsed"] and prepared.own_belief and prepared.layout.chunk_rows == 1
    assert prepared.belief.rows.shape == (5, NUM_DRAWS, 3, 2, 3) and prepared.belief.log_weights.shape == (5, NUM_DRAWS)
    assert len(np.unique(prepared.belief.rows[:, 0, 0, 0, 0])) > 3
    mdp: Any = prepared.envs.mdp
    assert np.array_equal(mdp.transition_probs[3, :, 0], np.eye(3)), "of the worlds, not of the prior"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"refit_every": 0}, "refit_every is 0"),
        ({"num_particles": 0}, "num_particles is 0"),
        ({"env_prior": len}, "options.env_prior is given for regret='average'"),
    ],
)
def test_bad_options(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        _toy(options=RunOptions(**options))
