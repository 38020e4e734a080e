"""`bayes_factors`: the two priors of README against quadrature, and what cannot be compared."""

# `numpyro.sample` is typed to return any ArrayLike: too narrow for tests.
# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false

from dataclasses import replace
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats
from scipy.special import betaln, gammaln, logsumexp

import bayes_mdp as bm
from bayes_mdp.inference import SamplingWarning
from bayes_mdp.inference.model_evidence import BayesFactors, Evidence, bayes_factors, probability_errors
from bayes_mdp.models import MDPSpec, dirichlet_bernoulli, dirichlet_normal_gamma
from tests.inference.model_evidence.evidence_problems import ACTION, COINS, HEAVY, NEXT, SPACE, STATE, data, normal

ACTIONS = 4


def play():
    """Random play on slippery ice, as README's log: 300 episodes of at most 100 steps."""
    env, rng, rows = gymnasium.make("FrozenLake-v1"), np.random.default_rng(0), []
    for episode in range(300):
        cell, _ = env.reset(seed=episode)
        for _ in range(100):
            move = int(rng.integers(ACTIONS))
            next_cell, reward, over, cut, _ = env.step(move)
            rows.append((cell, move, reward, next_cell, over))
            cell = next_cell
            if over or cut:
                break
    return pd.DataFrame(rows, columns=["cell", "move", "reward", "next_cell", "over"])


def sticky(space):
    """As README has it."""
    stickiness = numpyro.sample("stickiness", dist.HalfNormal(5.0))
    with space.plates():
        rows = 0.5 + stickiness * jnp.eye(space.n_states, space.n_outcomes)[:, None, :]
        probs = numpyro.sample("transition", dist.Dirichlet(rows))
        paid = numpyro.sample("reward", dist.Beta(1.0, 1.0))
    return MDPSpec(probs, reward=dist.Bernoulli(paid))


def truths(table):
    """Log evidence of the default prior and of `sticky`: Dirichlet-multinomial rows, by the trapezoidal rule.

    The states are the cells that an episode goes on from; the last outcome is its end.
    """
    names = sorted(set(table.cell))
    size = len(names)
    cell = np.searchsorted(names, table.cell)
    outcome = np.where(table.over, size, np.searchsorted(names, np.where(table.over, 0, table.next_cell)))
    counts, rewards = np.zeros((size, ACTIONS, size + 1)), np.zeros((size, ACTIONS, 2))
    np.add.at(counts, (cell, table.move, outcome), 1.0)
    np.add.at(rewards, (cell, table.move, table.reward.astype(int)), 1.0)
    paid = betaln(1 + rewards[..., 1], 1 + rewards[..., 0]).sum()

    def rows(concentration):
        total = gammaln(concentration.sum(-1)) - gammaln((concentration + counts).sum(-1))
        return total.sum() + (gammaln(concentration + counts) - gammaln(concentration)).sum()

    line = np.linspace(-18.0, 4.0, 1101)
    eye = np.broadcast_to(np.eye(size, size + 1)[:, None, :], counts.shape)
    each = [rows(0.5 + x * eye) + stats.halfnorm(scale=5).logpdf(x) + np.log(x) for x in np.exp(line)]
    return paid + rows(np.ones_like(counts)), paid + logsumexp(each) + np.log(line[1] - line[0])


@pytest.mark.slow
def test_the_two_priors_of_readme(key):
    """One exact, one collapsed: the log Bayes factor within 5 of its stated errors (one false alarm in 1.7 million)."""
    table = play()
    log = bm.read_log(table, state="cell", action="move", reward="reward", next_state="next_cell", terminated="over")
    space = bm.StateActionSpace.from_log(log)
    assert space.n_states == len(set(table.cell)) and space.ends
    posteriors = {
        "default": bm.infer(key, dirichlet_bernoulli(), log, space=space),
        "sticky": bm.infer(key, sticky, log, space=space, sampler=bm.inference.NUTS(200, 200, 4)),
    }
    assert [posterior.method for posterior in posteriors.values()] == ["exact", "collapsed"]
    found, (default, of_sticky) = bm.inference.bayes_factors(posteriors, key), truths(table)
    assert found.evidences["default"].log_evidence == pytest.approx(default, rel=1e-10)
    factor = found.log_bayes_factor("sticky", "default")
    assert abs(factor.value - (of_sticky - default)) <= 5 * factor.standard_error
    assert 1e-4 < factor.standard_error < 0.1
    assert factor.standard_error == found.evidences["sticky"].standard_error  # the other one is exact
    assert abs(factor.value) > 20 and found.probabilities["sticky" if factor.value > 0 else "default"] > 0.999
    assert sum(found.probabilities.values()) == pytest.approx(1.0)


def record(log_evidence, errors):
    """As `bayes_factors` makes it, of evidences that are given."""
    probabilities = np.exp(np.array(log_evidence) - logsumexp(log_evidence))
    spread = probability_errors(probabilities, np.array(errors))
    names = "abc"[: len(errors)]
    each = {n: Evidence(x, e, "bridge", 1, 100, 90.0) for n, x, e in zip(names, log_evidence, errors, strict=True)}
    as_dict = [dict(zip(names, map(float, x), strict=True)) for x in (probabilities, spread)]
    return BayesFactors(each, *as_dict)


def test_errors_of_factors_and_probabilities():
    """To first order, against draws of the log evidences."""
    values, errors = np.array([-10.0, -10.5, -12.0]), np.array([0.02, 0.03, 0.01])
    found = record(list(values), list(errors))
    drawn = values + errors * np.random.default_rng(0).standard_normal((20_000, 3))
    shares = np.exp(drawn - logsumexp(drawn, axis=1, keepdims=True))
    np.testing.assert_allclose(list(found.probability_errors.values()), shares.std(0), rtol=0.05)
    factor = found.log_bayes_factor("b", "c")
    assert factor.value == 1.5 and factor.standard_error == pytest.approx(np.hypot(0.03, 0.01))
    assert found.log_bayes_factor("a", "a") == (0.0, 0.0)
    with pytest.raises(ValueError, match="second is 'd', expected one of 'a', 'b', 'c'"):
        found.log_bayes_factor("a", "d")


def test_the_table_names_what_is_unreliable():
    found = record([-10.0, -9.0], [0.02, 0.0])
    bad = replace(found, evidences={**found.evidences, "a": replace(found.evidences["a"], problems=("no overlap",))})
    lines = str(bad).splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["b", "a"]  # the best one first
    assert lines[3].split()[1:] == ["-10.000", "0.02", "-1.000", "0.02", "0.2689", "0.0039"]
    assert lines[-1] == "  a: unreliable: no overlap"


def exact(prior, transitions, space=SPACE):
    return bm.infer(jax.random.key(0), prior, transitions, space=space)


def test_what_cannot_be_compared_is_refused(key):
    coins = exact(dirichlet_bernoulli(), data(COINS))
    fewer = jax.tree.map(lambda x: x[1:], data(COINS))
    unseen = bm.Transitions(STATE, ACTION, COINS, NEXT, reward_observed=np.arange(60) > 0)
    large = bm.StateActionSpace(3, 2)
    cases = {
        "have seen": exact(dirichlet_bernoulli(), fewer),
        "have seen 60 and 59 rewards": exact(dirichlet_bernoulli(), unseen),
        "rewards that are discrete and continuous": exact(dirichlet_normal_gamma(), data(COINS)),
        "pairs of shapes (2, 2) and (3, 2)": exact(dirichlet_bernoulli(), data(COINS), large),
        "posteriors['two'] is a batch": jax.tree.map(lambda x: np.stack([x, x]), coins),
        "posteriors['two']: posterior: the density of its data is not known": replace(coins, constant=np.array(np.nan)),
    }
    for sentence, other in cases.items():
        with pytest.raises(ValueError) as caught:
            bayes_factors({"one": coins, "two": other}, key)
        assert sentence in str(caught.value) and "\n" not in str(caught.value)
    impossible = replace(coins, constant=np.array(-np.inf))
    with pytest.raises(ValueError, match="the data are impossible under every prior"):
        bayes_factors({"one": impossible, "two": impossible})
    assert bayes_factors({"one": impossible, "two": coins}).probabilities == {"one": 0.0, "two": 1.0}
    with pytest.raises(ValueError, match="posteriors holds 1, expected at least two"):
        bayes_factors({"one": coins})


def test_a_prior_without_an_estimate_is_marked(posterior_of):
    """Two are left and compared as without it; with one left nothing is compared."""
    two = {"normal": posterior_of("normal"), "exact": exact(normal, data(HEAVY))}
    with pytest.warns(SamplingWarning):
        few = bm.infer(jax.random.key(0), normal, data(HEAVY), space=SPACE, method=bm.inference.NUTS(20, 20, 2))
    with pytest.warns(
        bm.inference.SamplingWarning, match=r"posteriors\['few'\] is left out: posterior: 2 chains of 20"
    ):
        found = bm.inference.bayes_factors({**two, "few": few})
    assert found.probabilities == bm.inference.bayes_factors(two).probabilities and list(found.evidences) == list(two)
    assert sum(found.probabilities.values()) == pytest.approx(1.0)
    assert found.not_estimated["few"].startswith("posterior: 2 chains of 20 draws leave 20 for each half")
    parts: Any = found.layout().parts
    assert parts[-2].startswith("few: not estimated: posterior: 2 chains") and "among the priors" in parts[-1]
    assert len(bm.inference.bayes_factors(two).layout().parts) == len(parts) - 2
    with pytest.raises(ValueError, match="second is 'few', whose evidence is not estimated: posterior: 2 chains"):
        found.log_bayes_factor("exact", "few")
    with pytest.raises(ValueError, match=r"posteriors\['few'\]: posterior: 2 chains of 20"):
        bm.inference.bayes_factors({"exact": two["exact"], "few": few})


def test_data_without_rewards_compare_laws_of_all_kinds():
    """Nothing is said of rewards: only the rows differ, here by nothing."""
    silent = bm.Transitions(STATE, ACTION, None, NEXT)
    found = bayes_factors({"a": exact(dirichlet_bernoulli(), silent), "b": exact(dirichlet_normal_gamma(), silent)})
    assert found.log_bayes_factor("a", "b").value == pytest.approx(0.0, abs=1e-9)


def test_rows_of_each_step_against_rows_of_all_steps():
    """A prior that looks at the step and one that does not, on the same data: visits of all steps are compared."""
    steps = bm.StateActionSpace(2, 2, horizon=2)
    stepped = bm.Transitions(STATE, ACTION, HEAVY, NEXT, step=np.arange(60) % 2)
    posteriors = {
        "each": exact(dirichlet_normal_gamma(), stepped, steps),
        "all": exact(dirichlet_normal_gamma(), data(HEAVY)),
    }
    found = bayes_factors(posteriors)
    expected = posteriors["each"].log_evidence - posteriors["all"].log_evidence
    assert found.log_bayes_factor("each", "all") == (pytest.approx(expected), 0.0)
