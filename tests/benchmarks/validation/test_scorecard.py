"""The scorecard: its classes and simpler beliefs, the stored table, and (slow) the table measured again."""

import dataclasses
import sys
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.inference.mixtures import mixture
from bayes_mdp.mdp import MDP, Discounted, Episodic
from benchmarks.validation.random_beliefs import random_problem
from benchmarks.validation.scorecard import LEVELS, QUICK, scorecard
from benchmarks.validation.scorecard_methods import METHODS, SIMPLER_METHODS, component_at_mean, marginal_posterior
from benchmarks.validation.scorecard_problems import CLASSES, observe, scored_class
from benchmarks.validation.scorecard_report import (
    changed_scores,
    describe_scorecard,
    judge,
    plot_scorecard,
    scorecard_csv,
    scores_of,
    stored_scorecard,
)


def test_the_stored_table_is_complete():
    """A line for every class and method; the simpler beliefs of a mixture for the mixture alone."""
    stored = stored_scorecard()
    lines = [(kind, m) for kind in CLASSES for m in METHODS if kind == "hierarchical" or m not in SIMPLER_METHODS]
    assert [(line.problems, line.estimator) for line in stored] == lines
    assert scorecard_csv(stored).splitlines()[0].startswith("problems,estimator,verdict,says,sd_ratio,coverage_50")
    assert changed_scores(stored, stored) == []
    text = describe_scorecard(stored)
    for word in (*CLASSES, *METHODS, "too sure", "refused", "calibrated"):
        assert word in text


def test_what_the_stored_table_says():
    """Draws are calibrated everywhere; bounds cover where they are; what forgets a mixture is too sure."""
    stored = {(line.problems, line.estimator): line for line in stored_scorecard()}
    for (_, method), line in stored.items():
        assert (line.verdict == "refused") == np.isnan(line.sd_ratio) == (line.says == "")
        if method == "by draws":
            assert line.verdict == "calibrated" and line.coverage_95 == pytest.approx(0.95, abs=0.02)
        if line.says in ("exact", "upper bound") and method not in SIMPLER_METHODS:
            assert line.verdict != "too sure" and line.coverage_95 > 0.92, line
        assert (line.pair_gain > 0) == (method in ("by draws", "exact recursion") and line.verdict != "refused")
    for method in ("UBE dirichlet", "moment matching"):
        assert stored["hierarchical", method].coverage_95 > 0.95
        for how in ("mean hyper-parameter", "marginals"):
            line = stored["hierarchical", f"{method}, {how}"]
            assert line.verdict == "too sure" and line.coverage_95 < 0.9 and line.says == "upper bound"


@pytest.mark.parametrize(
    ("ratio", "error", "verdict"),
    [
        (1.0, 0.03, "calibrated"),
        (1.0, 0.04, "undecided"),
        (0.7, 0.05, "too sure"),
        (0.8, 0.05, "undecided"),
        (1.5, 0.1, "too wide"),
        (np.nan, np.nan, "refused"),
    ],
)
def test_the_judge(ratio, error, verdict):
    assert judge(ratio, error) == verdict


def test_a_changed_verdict_is_a_sentence():
    """Too few MDPs change nothing."""
    stored = stored_scorecard()
    first = dataclasses.replace(stored[0], verdict="too sure", says="exact")
    open_ = dataclasses.replace(stored[1], verdict="undecided")
    name = f"{stored[0].estimator}, {stored[0].problems}"
    assert changed_scores([first, open_, *stored[2:]], stored) == [
        f"{name}: verdict is too sure, stored is {stored[0].verdict}",
        f"{name}: says is 'exact', stored is {stored[0].says!r}",
    ]


def test_simpler_beliefs_of_a_mixture():
    """Marginal moments are those of the mixture, without the covariance; one component has its mean hyper-parameter."""
    parts = [random_problem("acyclic", "pair", seed)[0] for seed in (1, 2)]
    weights = np.array([0.3, 0.7])

    def simpler(posterior):
        beliefs = posterior, marginal_posterior(posterior)
        return [(p.mean_mdp(), p.reward_variance()) for p in beliefs], beliefs[1], component_at_mean(posterior)

    moments, marginal, single = jax.jit(simpler)(mixture(parts, weights=weights))
    (mean, variance), (other, other_variance) = moments
    assert np.allclose(mean.reward, other.reward, atol=1e-5) and np.allclose(variance, other_variance, rtol=1e-4)
    assert np.allclose(mean.transition_probs, other.transition_probs, atol=1e-5)
    rows = np.stack([np.asarray(part.transition_probs.site_concentration) for part in parts])
    total = rows.sum(-1, keepdims=True)
    probs = rows / total
    expected = np.tensordot(weights, probs, 1)
    spread = np.tensordot(weights, probs * (1 - probs) / (total + 1) + (probs - expected) ** 2, 1).sum(-1)
    concentration = np.asarray(marginal.transition_probs.site_concentration).sum(-1)
    assert np.allclose((expected * (1 - expected)).sum(-1) / (concentration + 1), spread, rtol=1e-4)
    assert marginal.independent_rows
    loc = np.stack([np.asarray(part.reward_cells.prior.loc) for part in parts])
    assert np.allclose(single.reward_cells.prior.loc, weights @ loc, atol=1e-5)
    prior = np.stack([np.asarray(part.transition_probs.prior) for part in parts])
    assert np.allclose(single.transition_probs.prior, np.tensordot(weights, prior, 1), rtol=1e-5)


def test_what_is_observed():
    """Transitions of the MDP: a known one is followed, episodes begin anew, rewards have noise 1 (1e-6, 5 %)."""
    rows = jnp.tile(jnp.roll(jnp.eye(3), 1, 1)[:, None], (1, 2, 1))

    def both(key):
        mdp, layered = MDP(rows, 7.0 * jnp.ones((3, 2))), MDP(jnp.stack([rows] * 4), jnp.zeros((4, 3, 2)))
        return observe(key, mdp, Discounted(0.9), 8000), observe(key, layered, Episodic(4), 8)

    data, episodes = jax.device_get(jax.jit(both)(jax.random.key(2)))
    assert np.array_equal(data.next_state, (data.state + 1) % 3)
    assert np.array_equal(data.state[1:], data.next_state[:-1])
    assert abs(data.reward.mean() - 7.0) < 5 / 8000**0.5 and abs(data.reward.std() - 1.0) < 0.04
    assert np.array_equal(episodes.step, np.tile(np.arange(4), 2))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"classes": ["cubic"]}, "classes holds 'cubic'"),
        ({"methods": []}, "methods is empty"),
        ({"num_mdps": 1}, "num_mdps is 1"),
        ({"num_draws": 1}, "num_draws is 1"),
    ],
)
def test_bad_input(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        scorecard(jax.random.key(0), **cast(dict[str, Any], changes))


@pytest.mark.slow
def test_the_scorecard_is_what_is_stored():
    """Verdicts as stored at quick scale, and the hierarchical story; a figure; key fixed.

    Coverage by draws is within 6 standard errors (of a mean over MDPs, half-width / 1.96) of what is claimed, unless
    the posterior or the simulation is wrong: 1e-8 a number; a coverage 10 % off is caught.
    """
    result = scorecard(jax.random.key(1), **QUICK)
    lines = scores_of(result)
    assert changed_scores(lines, stored_scorecard()) == []
    draws = result.sel(estimator="by draws")
    error = draws["coverage_half"] / 1.96
    assert (abs(draws["coverage"] - np.array(LEVELS)) < 6 * error + 0.01).all()
    hierarchical = result.sel(problems="hierarchical")["coverage"].sel(level=0.95)
    for method in ("UBE dirichlet", "moment matching"):
        assert hierarchical.sel(estimator=method) > 0.94
        assert hierarchical.sel(estimator=f"{method}, marginals") < 0.92
    assert len(plot_scorecard(result).axes) == len(CLASSES)


@pytest.mark.slow
def test_a_posterior_that_is_too_sure_is_seen(monkeypatch):
    """The broken twin: data counted four times. Draws then cover too seldom, and the verdict says so."""
    problem = scored_class("acyclic")

    def four_times(key, data):
        return problem.infer(key, jax.tree.map(lambda x: jnp.tile(x, 4), data))

    monkeypatch.setattr(
        sys.modules["benchmarks.validation.scorecard"], "scored_class", lambda kind: problem._replace(infer=four_times)
    )
    result = scorecard(jax.random.key(1), classes=["acyclic"], methods=["by draws"], num_mdps=200, num_draws=200)
    (line,) = scores_of(result)
    assert line.verdict == "too sure" and line.coverage_95 < 0.9
