"""The reproductions of [TDBMA10]: agents and plans, cells that resume, tables and figures from made-up curves."""

import json
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

import bayes_mdp as bm
from bayes_mdp.experiments.resume import Cells
from bayes_mdp.experiments.run_config import RunOptions
from reproductions.reproduce import reproduce
from reproductions.tdbma import returns_fig2 as tdbma_fig2
from reproductions.tdbma import trainings as tdbma
from reproductions.tdbma import variations_fig3 as tdbma_fig3
from reproductions.tdbma.trainings import BMA, FIXED, FROZEN, Training
from reproductions.verdicts import expected_verdicts

pytestmark = pytest.mark.numerics

PLANS = {
    "fig2": (tdbma_fig2, tdbma_fig2.FULL, tdbma_fig2.QUICK),
    "fig3": (tdbma_fig3, tdbma_fig3.FULL, tdbma_fig3.QUICK),
}
TINY = {"corner": Training({"sarsa_0.2": (0.15,)}, 60, 2)}


def made_up(plan, rewards, decays: Any = 0.3, *, noise=0.5, seeds=12, seed=0):
    """Curves of a plan: level + noise of a seed (its mean over seeds is zero), the same at all checkpoints.

    Args:
        rewards: (domain, agent) -> level, or levels of the ten tenths; others are -50.
        decays: levels of lambda of TD-BMA in the ten tenths.
    """
    rng = np.random.default_rng(seed)
    result = tdbma._empty({name: replace(training, num_seeds=seeds) for name, training in plan.items()})
    for domain, training in plan.items():
        for agent, alphas in training.alphas.items():
            for alpha in alphas:
                offset = rng.normal(0.0, noise, seeds)
                offset -= offset.mean()
                curve = np.repeat(np.broadcast_to(rewards.get((domain, agent), -50.0), tdbma.STAGES), 6)
                at = {"domain": domain, "agent": agent, "alpha": alpha}
                result["reward"].loc[at] = curve + offset[:, None]
                own = FIXED[agent] if agent in FIXED else np.repeat(np.broadcast_to(decays, tdbma.STAGES), 6)
                result["trace_decay"].loc[at] = own + 0.001 * offset[:, None]
    return result


def test_agents_of_the_paper():
    for name, decay in FIXED.items():
        agent = tdbma.make_agent(name, 0.25, 300)
        assert isinstance(agent, bm.agents.SarsaLambda)
        assert (agent.trace_decay, agent.learning_rate, agent.epsilon, agent.trial_steps) == (decay, 0.25, 0.05, 300)
    for name, frozen in ((BMA, False), (FROZEN, True)):
        agent = tdbma.make_agent(name, 0.15, 200)
        assert isinstance(agent, bm.agents.TDBMA) and agent.frozen == frozen and not agent.bootstrap


@pytest.mark.parametrize("figure", PLANS)
def test_both_scales_have_the_same_rows_and_all_have_an_expected_verdict(figure):
    module, full, quick = PLANS[figure]
    expected = expected_verdicts(f"tdbma-{figure}")
    for plan in (full, quick):
        table = module.rows(made_up(plan, {}))
        assert [row.quantity for row in table if row.verdict is not None] == list(expected)
        assert len({row.quantity for row in table}) == len(table)
        assert all(training.num_trials % tdbma.CHECKPOINTS == 0 for training in plan.values())


def test_means_over_tenths_and_the_best_fixed_lambda():
    """It is chosen anew in every tenth, among those that were played."""
    turned = {("cliff", "sarsa_0.4"): [-9.0] * 9 + [-30.0], ("cliff", "sarsa_0.6"): [-20.0] * 10}
    result = made_up(tdbma_fig2.FULL, turned)
    assert tdbma.best_fixed(result, "cliff", 0.15, stage=0) == "sarsa_0.4"
    assert tdbma.best_fixed(result, "cliff", 0.15) == "sarsa_0.6"
    assert tdbma.stages(result, "cliff", "sarsa_0.4", 0.15).mean(0) == pytest.approx([-9.0] * 9 + [-30.0])
    gone = result.copy(deep=True)
    gone["reward"].loc[{"domain": "cliff", "agent": "sarsa_0.6"}] = np.nan
    assert tdbma.best_fixed(gone, "cliff", 0.15) == "sarsa_0.4"
    assert not tdbma.played(gone, "cliff", "sarsa_0.6", 0.15) and not tdbma.played(gone, "curves", BMA, 0.15)


def test_the_table_of_figure_2():
    """Levels of 60,000 trials; TD-BMA gains .4 in the end on Cliff, loses .3 at first; loses 1 on Corner at the end."""
    rewards = {("cliff", BMA): [-10.3, *[-9.1] * 9], ("cliff", "sarsa_0.2"): [-10.0, *[-9.5] * 9]}
    rewards |= {
        ("corner", BMA): -9.6,
        ("corner", "sarsa_0.8"): -8.6,
        ("mail", BMA): -20.0,
        ("mail", "sarsa_0.6"): -30.0,
    }
    result = made_up(tdbma_fig2.FULL, rewards)
    table = {row.quantity: row for row in tdbma_fig2.rows(result)}
    level = table["cliff, alpha 0.15: TD-BMA, mean return"]
    assert (level.published, level.verdict) == (-9.05, "agrees") and level.ours == pytest.approx(-9.1)
    assert level.band == pytest.approx((-9.955, -8.145))
    spread = result["reward"].sel(domain="cliff", agent=BMA).isel(checkpoint=-1).to_numpy().std(ddof=1)
    assert level.half == pytest.approx(1.959964 * spread / np.sqrt(12))
    best = table["cliff, alpha 0.15: best fixed lambda, mean return"]
    assert best.ours == pytest.approx(-9.5) and best.published == -9.98
    gain = table["cliff, alpha 0.15: TD-BMA less best fixed lambda, last tenth"]
    assert gain.ours == pytest.approx(0.4) and gain.verdict == "agrees"
    worst = table["cliff, alpha 0.15: TD-BMA less best fixed lambda, worst tenth"]
    assert worst.ours == pytest.approx(-0.3) and worst.verdict == "undecided"
    assert worst.half == pytest.approx(gain.half * NormalDist().inv_cdf(1 - 0.05 / 20) / NormalDist().inv_cdf(0.975))
    lost = table["corner, alpha 0.15: TD-BMA less best fixed lambda, last tenth"]
    assert lost.ours == pytest.approx(-1.0) and lost.verdict == "differs"
    assert table["mail, alpha 0.15: TD-BMA less best fixed lambda, worst tenth"].verdict == "agrees"
    assert table["mail: SARSA(0.6), last tenth"].ours == pytest.approx(-30.0)


def test_levels_are_those_of_as_many_trials():
    """60,000 of 90,000: the tenth before them, not the last; fewer than any level: nothing is decided."""
    result = made_up(tdbma_fig3.FULL, {("curves", BMA): [-99.0] * 6 + [-45.0, -45.0, -45.0, -12.0]})
    result["reward"].loc[{"domain": "curves", "agent": BMA, "checkpoint": slice(36, 39)}] = -49.3
    levels = tdbma_fig3.LEVELS[0.15]
    first = tdbma.level_rows(result, "curves", 0.15, levels)[0]
    assert first.ours == pytest.approx(-49.3) and first.published == -49.3 and first.verdict == "agrees"
    quick = made_up(tdbma_fig3.QUICK, {("curves", BMA): -65.0})
    assert tdbma.level_rows(quick, "curves", 0.15, levels)[0].published == -65.1
    few = made_up({"curves": Training(tdbma.of_all(0.15), 600, 2)}, {})
    assert [row.half for row in tdbma.level_rows(few, "curves", 0.15, levels)] == [np.inf, np.inf]


def test_the_table_of_figure_3():
    """TD-BMA below the best fixed lambda: what the paper says of alpha .05, and not of the others; lambda rises."""
    rewards = {("curves", BMA): -49.0, ("curves", "sarsa_0.2"): -42.0, ("curves", FROZEN): -63.0, ("mail", BMA): -30.0}
    rising = np.linspace(0.3, 0.45, 10)
    result = made_up(tdbma_fig3.FULL, rewards, rising)
    table = {row.quantity: row for row in tdbma_fig3.rows(result)}
    claim = "TD-BMA less best fixed lambda, last tenth"
    verdicts = {alpha: table[f"curves, alpha {alpha}: {claim}"].verdict for alpha in (0.05, 0.15, 0.25)}
    assert verdicts == {0.05: "agrees", 0.15: "differs", 0.25: "differs"}
    assert [table[f"mail, alpha {alpha}: {claim}"].verdict for alpha in (0.15, 0.25, 0.35)] == ["agrees"] * 3
    for domain in ("cliff", "corner", "curves"):
        rise = table[f"{domain}: mean lambda, highest tenth less first"]
        assert rise.ours == pytest.approx(0.15) and rise.verdict == "differs"
        assert table[f"{domain}: mean lambda, last tenth"].ours == pytest.approx(0.45)
    assert table["mail: mean lambda, last tenth"].verdict == "agrees"
    assert table["curves, alpha 0.15: TD-BMA, frozen sweeps, last tenth"].published == -62.8
    worst = table["mail: worst TD-BMA less best SARSA, of all alpha and lambda, last tenth"]
    assert worst.ours == pytest.approx(20.0) and worst.verdict is None
    falling = {row.quantity: row for row in tdbma_fig3.rows(made_up(tdbma_fig3.FULL, rewards, rising[::-1]))}
    assert falling["curves: mean lambda, highest tenth less first"].verdict == "agrees"
    assert falling["curves: mean lambda, last tenth less highest"].ours == pytest.approx(-0.15)


def test_one_seed_has_no_interval():
    gain = tdbma.gain_row(made_up(tdbma_fig2.FULL, {}, seeds=1, noise=0.0), "cliff", 0.15)
    assert gain.half == np.inf


def test_figures_show_every_curve():
    second = tdbma_fig2.figure(made_up(tdbma_fig2.QUICK, {}))
    assert [len(axes.collections) for axes in second.axes] == [5, 5, 5]
    labels = [text.get_text() for text in second.axes[2].get_legend().get_texts()]  # pyright: ignore[reportOptionalMemberAccess]
    assert labels == ["TD-BMA", "SARSA(0.8)", "SARSA(0.6)", "SARSA(0.4)", "SARSA(0.2)"]
    longer = tdbma_fig2.figure(made_up(tdbma_fig2.FULL, {}))
    assert [len(axes.lines) for axes in longer.axes] == [6, 6, 5]  # where the paper's axis ends
    third = tdbma_fig3.figure(made_up(tdbma_fig3.QUICK, {("mail", "sarsa_0.8"): -20.0}))
    assert [len(axes.collections) for axes in third.axes] == [6, 6, 4]
    labels = [text.get_text() for text in third.axes[1].get_legend().get_texts()]  # pyright: ignore[reportOptionalMemberAccess]
    assert labels[1] == "SARSA(0.8), alpha = 0.15"
    middle = third.axes[1].lines[0].get_xdata()
    assert np.asarray(middle)[[0, -1]].tolist() == [5.0, 595.0]


def test_training_is_made_of_runs_and_resumes(key, tmp_path, monkeypatch):
    """Two batches of one seed, each a run with a key of its own; what is kept is not played again."""
    asked = []

    def drawn(agent, env, *, key, num_episodes, num_seeds, path, options, objective):
        asked.append((agent, env.name, objective, num_episodes, num_seeds, options.num_checkpoints))
        path.write_text("a result that only this run needs")
        values = np.asarray(jax.random.normal(key, (num_seeds, 60)))
        return xr.Dataset({measure: (("seed", "checkpoint"), values) for measure in tdbma.MEASURES})

    monkeypatch.setitem(tdbma.DOMAINS, "corner", replace(tdbma.DOMAINS["corner"], batch=1))
    monkeypatch.setattr(tdbma, "run", drawn)
    result = tdbma.train(key=key, plan=TINY, cells=Cells(tmp_path / "cells", {}))
    agent = tdbma.make_agent("sarsa_0.2", 0.15, 200)
    assert asked == [(agent, "racetrack_corner", bm.FirstExit(), 60, 1, 60)] * 2
    assert result["reward"].dims == ("domain", "agent", "alpha", "seed", "checkpoint")
    assert result["trials"].to_numpy()[0].tolist() == [*range(1, 61)]
    expected = [jax.random.normal(jax.random.fold_in(key, batch), (60,)) for batch in range(2)]
    for measure in tdbma.MEASURES:
        assert np.array_equal(result[measure][0, 0, 0], expected)
    assert np.isnan(result["overflow"]).all()
    files = sorted(file.name for file in (tmp_path / "cells").iterdir())
    assert files == ["configuration.json", "corner-sarsa_0.2-0.15-0.npz", "corner-sarsa_0.2-0.15-1.npz"]
    monkeypatch.setattr(tdbma, "run", None)
    xr.testing.assert_identical(tdbma.train(key=key, plan=TINY, cells=Cells(tmp_path / "cells", {})), result)


@pytest.mark.slow
def test_training_plays_the_runs_it_says(key):
    result = tdbma.train(key=key, plan=TINY)
    one = bm.run(
        tdbma.make_agent("sarsa_0.2", 0.15, 200),
        bm.envs.racetrack("corner"),
        objective=bm.FirstExit(),
        key=jax.random.fold_in(key, 0),
        num_episodes=60,
        num_seeds=2,
        options=RunOptions(num_checkpoints=60),
    )
    for measure in tdbma.MEASURES:
        assert np.array_equal(result[measure][0, 0, 0], one[measure], equal_nan=True)
    assert result["reward"].to_numpy().std() > 0


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"corners": TINY["corner"]}, "domain is 'corners', expected one of .*; did you mean 'corner'"),
        ({"corner": Training({"sarsa": (0.15,)}, 60)}, "agent is 'sarsa', expected one of"),
        ({"corner": replace(TINY["corner"], num_trials=100)}, "num_trials is 100, expected a multiple of 60"),
        ({"corner": replace(TINY["corner"], num_seeds=0)}, "num_seeds is 0, expected an integer of at least 1"),
        ({"corner": Training({BMA: (1.5,)}, 60)}, "learning_rate is 1.5, expected a number from 0 to 1"),
    ],
)
def test_bad_plans_are_refused(plan, message, key):
    with pytest.raises(ValueError, match=message):
        tdbma.train(key=key, plan=plan)


@pytest.mark.slow
def test_mail_robot_is_trained(key):
    """Every trial has its 300 steps, and every state a row of its own."""
    result = tdbma.train(key=key, plan={"mail": Training({BMA: (0.15,)}, 60, 2)})
    assert np.isfinite(result["reward"]).all() and (result["length"] == 300).all()
    assert result["overflow"].item() == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tdbma-fig2", "tdbma-fig3"])
def test_tdbma_has_its_verdicts(name):
    found, _ = reproduce(name)
    assert json.loads(found.attrs["unexpected"]) == []
