# pyright: reportArgumentType=false
"""Mean MDPs and likelihoods of many data sets by NumPy, against `posterior.update` of each; data against their laws."""

from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions.information.data_sets import Environments, Learning, MeanMDPs, Observations
from bayes_mdp.decisions.information.gain_over_plan import simulate_data
from bayes_mdp.inference import mixture
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.pair_draws import pairs_of_mdp
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.numerics.array_forms import to_host_float64
from tests.inference.test_pair_draws import LAWS, SPACE, SPACES, data

pytestmark = pytest.mark.numerics

KEY = jax.random.key(0)
NUM = 3
MANY = 4000
Z = 5.0
"""Standard errors: a false alarm has probability 6e-7 for each of about 100 comparisons."""


def other_tables():
    """A mixture of which the components share rows and rewards between other pairs."""
    rng = np.random.default_rng(1)

    def one(row, cell):
        rows = dirichlet_rows(rng.uniform(0.3, 2.0, (2, 3)), (3, 2, 3), row=np.array(row))
        belief = BetaBelief(*rng.uniform(0.5, 2.0, (2, 2)))
        return conjugate_posterior(rows, reward_cells(belief, (3, 2), cell=np.array(cell)), SPACE)

    parts = [one([[0, 1]] * 3, [[0, 0], [0, 1], [1, 1]]), one([[0, 0], [1, 1], [0, 1]], [[0, 1]] * 3)]
    return mixture(parts, weights=[0.3, 0.7])


def known_laws():
    """A mixture of two known laws of rewards, which tell the components apart."""
    rng = np.random.default_rng(2)
    parts = []
    for _ in range(2):
        mean = rng.normal(size=(3, 2))
        law = known_rewards(mean, law=dist.Normal(mean, np.ones((3, 2))))
        parts.append(conjugate_posterior(dirichlet_rows(rng.uniform(0.3, 2.0, (6, 3)), (3, 2, 3)), law, SPACE))
    return mixture(parts, weights=[0.5, 0.5])


def posterior_of(name):
    if name in ("other tables", "known laws"):
        return other_tables() if name == "other tables" else known_laws()
    law, _, kind = name.partition(", ")
    space = SPACES.get(kind, SPACE)
    if law in ("known", "shared rows", "mixture"):  # their rewards are known
        return bm.infer(KEY, LAWS[law], space=space)
    rewards = np.linspace(0.5, 2.0, 12) if law in ("exponential", "log-normal") else None
    return bm.infer(KEY, LAWS[law], data(space, rewards), space=space)


NAMES = [*LAWS, *(f"{law}, {kind}" for law in ("normal-gamma", "by outcome") for kind in SPACES)]
NAMES += ["other tables", "known laws"]


def transitions(space, seen, d):
    """Data set `d` as the library's transitions."""
    cell, outcome = tuple(i[d] for i in seen.cell), seen.outcome[d]
    reached, ended = space.reached(cell, outcome)
    step = None if space.horizon is None else cell[0]
    ends = ended if space.ends else None
    return bm.Transitions(cell[-2], cell[-1], seen.reward[d], reached, ends, step=step, reward_observed=seen.seen[d])


def dense(rows, drawn, d):
    """Rows and rewards of one MDP as tables."""
    probs = np.zeros((len(rows.state), rows.n_states + 1))
    np.add.at(probs, (rows.pair, rows.next_state), drawn.probs[d])
    return probs, drawn.reward[d]


def require_equal(posterior, means, learning, seen):
    found, log_probs = learning.mean_mdps(), learning.log_probability()
    for d in range(NUM):
        after = posterior.update(transitions(posterior.space, seen, d), seen.weight[d])
        rows, drawn = pairs_of_mdp(after.mean_mdp())
        for one, other in zip(dense(means.rows, found, d), dense(rows, drawn, 0), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
        if hasattr(posterior, "log_prior") and posterior.log_prior is None:
            continue  # there is no evidence to compare with
        gain = float(after.log_evidence) - float(posterior.log_evidence)
        assert log_probs[d] == pytest.approx(gain, abs=1e-9)


@pytest.mark.some(8)
@pytest.mark.parametrize("name", NAMES)
def test_means_and_probabilities_are_those_of_updates(name):
    with jax.enable_x64(True):
        posterior = to_host_float64(posterior_of(name))
        means = MeanMDPs(posterior)
        pairs = list(zip(*means.rows.index, strict=True))
        # Data of one pair, with observations of weight zero and of half a transition.
        pair = tuple(int(i) for i in pairs[2])
        seen = simulate_data(KEY, means, pair, 4, NUM).observations
        seen = seen._replace(weight=np.array([[1.0, 0.0, 2.0, 1.0], [0.0] * 4, [1.0, 1.0, 1.0, 0.5]]))
        learning = Learning(means, pair, NUM)
        learning.observe(seen)
        require_equal(posterior, means, learning, seen)
        # Of several pairs, in two parts.
        learning, parts = Learning(means, None, NUM), []
        for n, pair in enumerate(pairs[:2]):
            part = simulate_data(jax.random.key(n), means, tuple(int(i) for i in pair), 2, NUM).observations
            learning.observe(part)
            parts.append(part)
        cell = tuple(np.concatenate(x, -1) for x in zip(*(part.cell for part in parts), strict=True))
        both = Observations(cell, *(np.concatenate(x, -1) for x in zip(*(part[1:] for part in parts), strict=True)))
        require_equal(posterior, means, learning, both)


@pytest.mark.some(8)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("normal-gamma", "log-normal")])
def test_predicted_data_have_their_means(name):
    """Outcomes and rewards of one pair, whichever are observed; of heavy tails the mean says too little."""
    with jax.enable_x64(True):
        posterior = to_host_float64(posterior_of(name))
        means = MeanMDPs(posterior)
        pair = tuple(int(i[3]) for i in means.rows.index)
        seen = simulate_data(KEY, means, pair, 2, MANY)
        here = means.rows.pair == 3
        wanted = np.bincount(means.rows.outcome[here], means.now.probs[0, here], seen.outcome.max() + 1)
        for i in range(2):
            share = np.bincount(seen.outcome[:, i], minlength=len(wanted)) / MANY
            assert (np.abs(share - wanted) <= Z * np.sqrt(wanted * (1 - wanted) / MANY)).all()
        if seen.seen.any():
            error = seen.reward.std(0) / np.sqrt(MANY)
            assert (np.abs(seen.reward.mean(0) - means.now.reward[0, 3]) <= Z * error).all()


@pytest.mark.parametrize("name", ["normal", "Bernoulli", "Poisson", "binomial", "categorical", "affine", "regression"])
def test_rewards_of_one_data_set_share_what_is_unknown(name):
    """Two rewards of a pair: variance of the mean in common, and independent noise."""
    with jax.enable_x64(True):
        posterior: Any = to_host_float64(posterior_of(name))
        reward = simulate_data(KEY, MeanMDPs(posterior), (1, 1), 2, MANY).reward
        cells = posterior.reward_cells
        common, noise = (float(np.asarray(x)[1, 1]) for x in (cells.variance(), cells.noise()))
    away = reward - reward.mean(0)
    for one, other, wanted in ((0, 1, common), (0, 0, common + noise), (1, 1, common + noise)):
        product = away[:, one] * away[:, other]
        assert abs(product.mean() - wanted) < Z * product.std() / np.sqrt(MANY)


def test_a_mixture_weighs_data_that_one_component_excludes():
    """Outcome 1 is impossible under the first component: after it the second one holds, with its probability."""
    space = StateActionSpace(2, 1)
    parts = []
    for prior in ([[1.0, 0.0], [1.0, 1.0]], [[2.0, 1.0], [1.0, 1.0]]):
        rows = dirichlet_rows(np.array(prior), (2, 1, 2))
        parts.append(conjugate_posterior(rows, known_rewards(np.zeros((2, 1))), space))
    none = np.zeros((2, 1))
    cell, outcome = (none.astype(int), none.astype(int)), np.array([[0], [1]])
    with jax.enable_x64(True):
        means = MeanMDPs(to_host_float64(mixture(parts, weights=[0.5, 0.5])))
        learning = Learning(means, (0, 0), 2)
        learning.observe(Observations(cell, outcome, none, none > 0, none + 1))
        np.testing.assert_allclose(np.exp(learning.log_probability()), [5 / 6, 1 / 6])
    # Of state 0: weights .6 and .4 with means 1 and 3/4; then the second alone, with mean 1/2.
    here = (means.rows.pair == 0) & (means.rows.next_state == 0)
    np.testing.assert_allclose(learning.mean_mdps().probs[:, here][:, 0], [0.9, 0.5])


def test_environments_do_not_depend_on_blocks():
    with jax.enable_x64(True):
        means = MeanMDPs(to_host_float64(posterior_of("mixture")))
        cell = tuple(np.zeros(6, int) for _ in means.rows.index)
        whole = Environments(KEY, means, None).draw(6).outcome_probs(cell)
        stream = Environments(KEY, means, None)
        parts = [stream.draw(n).outcome_probs(tuple(i[:n] for i in cell)) for n in (1, 3, 2)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.some(2)
@pytest.mark.parametrize("name", ["regression", "known laws", "mixture of rewards", "by outcome", "affine"])
def test_episodes_of_one_step_are_observations_of_one_pair(name):
    """Whatever learns from the rewards: both are worth the same, but for the error of simulation."""
    posterior, first = posterior_of(name), [0.0, 0.0, 1.0]
    pair = bm.information.next_experiment(
        KEY, posterior, bm.Episodic(1), [(2, 1)], n=3, initial=first, num_data_sets=MANY
    )
    study = {"second": bm.information.PolicyStudy([1, 1, 1], 3)}
    other = jax.random.key(1)
    played = bm.information.next_experiment(other, posterior, bm.Episodic(1), study, initial=first, num_data_sets=MANY)
    error = np.hypot(pair.standard_error[0], played.standard_error[0])
    assert abs(pair.value[0] - played.value[0]) < Z * error and played.value[0] > Z * played.standard_error[0] > 0
