"""Chains: their diagnostics against numpy, and one sentence for everything that can be wrong with them."""

# pyright: reportArgumentType=false, reportOperatorIssue=false

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from bayes_mdp.inference.draws.chains import (
    MAX_R_HAT,
    Chains,
    SamplingWarning,
    Scalars,
    latent_sites,
    run_chains,
    warn_of,
)
from bayes_mdp.inference.draws.methods import NUTS

C, N = 4, 500


def healthy(**fields):
    """Independent draws; one element is constant by construction, as a structural zero is."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(C, N, 2, 3))
    rows[..., 0, 0] = 0.0
    return Chains({"rows": rows, "scale": rng.gamma(2.0, size=(C, N))}, **fields)


def test_r_hat_and_ess():
    """Split r-hat from its definition (Gelman et al. 2013, (11.4)); independent draws count in full."""
    chains = healthy(diverging=np.zeros((C, N), bool), log_density=np.zeros((C, N)))
    halves = np.asarray(chains.draws["scale"]).reshape(2 * C, N // 2)
    within = halves.var(1, ddof=1).mean()
    total = within * (1 - 2 / N) + halves.mean(1).var(ddof=1)
    np.testing.assert_allclose(chains.r_hat()["scale"], np.sqrt(total / within), rtol=1e-12)
    assert np.isnan(chains.r_hat()["rows"][0, 0]) and np.isnan(chains.ess()["rows"][0, 0])
    assert np.nanmin(chains.ess()["rows"]) > 0.7 * C * N
    assert chains.problems() == []
    assert (chains.num_chains, chains.num_samples) == (C, N)


def test_samples_as_numpyro_has_them():
    """The same arrays as `MCMC.get_samples` of the same run, flat and by chain."""
    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(_pair),
        num_warmup=5,
        num_samples=7,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), 1.0)
    chains = Chains(mcmc.get_samples(group_by_chain=True))
    for grouped in (False, True):
        found, expected = chains.get_samples(group_by_chain=grouped), mcmc.get_samples(group_by_chain=grouped)
        assert list(found) == ["x"] and found["x"].shape == ((2, 7, 2) if grouped else (14, 2))
        np.testing.assert_array_equal(found["x"], expected["x"])
    with pytest.raises(TypeError, match="group_by_chain is 'x', expected True or False"):
        chains.get_samples("x")


def test_slow_mixing_is_told_from_modes():
    """A drift within every chain, and chains that have settled on two values (as swapped labels do)."""
    drift = healthy().draws["scale"] + np.linspace(0, 4, N)
    (unmixed, few) = Chains({"scale": drift}).problems()
    assert "r-hat of site 'scale' is" in unmixed and "have not yet mixed" in unmixed and "num_warmup=" in unmixed
    assert "effective sample size of site 'scale'" in few
    modes = healthy().draws["rows"].copy()
    modes[:, :, 1, 2] += 10.0 * np.array([0, 1, 0, 1])[:, None]
    several = Chains({"rows": modes}).problems()[0]
    assert "r-hat of site 'rows'[1, 2] is" in several and f"1 of 6 elements above {MAX_R_HAT}" in several
    assert "several modes" in several and "order them" in several


def test_an_effective_sample_size_of_one():
    """Chains that each repeat one value for most of their length."""
    rng = np.random.default_rng(2)
    stuck = np.repeat(rng.normal(size=(C, 2)), N // 2, axis=1)
    assert any("effective sample size of site 'x' is" in problem for problem in Chains({"x": stuck}).problems())


def test_divergences_and_chains_that_did_not_move():
    diverging = np.zeros((C, N), bool)
    diverging[1, :50] = True
    (sentence,) = healthy(diverging=diverging).problems()
    assert sentence.startswith("50 of 2000 draws diverged (2.5%)") and "target_accept_prob" in sentence
    draws = {name: values.copy() for name, values in healthy().draws.items()}
    for values in draws.values():
        values[2] = values[2, :1]
    assert "1 of 4 chains did not move (chains [2])" in Chains(draws).problems()[0]


def test_impossible_data():
    """A log density that is nowhere finite hides what else is wrong: all of it follows."""
    lost = np.full((C, N), -np.inf)
    (everywhere,) = healthy(log_density=lost, diverging=np.ones((C, N), bool)).problems()
    assert "not finite at any draw of every chain" in everywhere and "impossible under the prior" in everywhere
    lost[1:] = 0.0
    assert "at any draw of chains [0]" in healthy(log_density=lost).problems()[0]
    (nan,) = Chains({"x": np.full((C, N), np.nan)}).problems()
    assert "site 'x' has draws that are not finite" in nan


def labels(*probs):
    """Independent draws of a label, each chain with its own probability of 1."""
    return np.random.default_rng(3).random((C, N)) < np.array(probs)[:, None]


def test_discrete_sites():
    """One that is stuck on one value everywhere is told, on different values it is a problem."""
    label = np.broadcast_to(np.array([0, 1, 1, 1])[:, None], (C, N))
    same = Chains({"label": np.ones((C, N), int)}, discrete=("label",))
    assert same.problems() == [] and np.isnan(same.r_hat()["label"])
    (note,) = same.notes()
    assert note.startswith("discrete site 'label' did not move: it is 1 in all 2000 draws (1 of 1 elements did not)")
    (sentence,) = Chains({"label": label}, discrete=("label",)).problems()
    assert "'label' never changed" in sentence and "[0, 1, 1, 1]" in sentence
    assert Chains({"label": label}, discrete=("label",)).notes() == []


def test_discrete_sites_of_chains_that_disagree():
    """Chain means of .39 to .50: the standard error of one is .022. Where they agree there is nothing to say."""
    agree = Chains({"label": labels(0.45, 0.45, 0.45, 0.45).astype(int)}, discrete=("label",))
    assert agree.problems() == [] and agree.notes() == []
    assert 0.99 < agree.r_hat()["label"] < MAX_R_HAT and agree.ess()["label"] > 0.7 * C * N
    differ = Chains({"label": labels(0.36, 0.42, 0.46, 0.52)}, discrete=("label",))
    (sentence,) = differ.problems()
    assert "r-hat of site 'label' is 1.0" in sentence and "the chains disagree on how probable" in sentence


def test_labels_are_no_numbers():
    """Values 0 and 2 in half of the chains, 1 in the others: the means agree, the shares do not."""
    apart = np.where(labels(0.5, 0.5, 0.5, 0.5), 2, 0)
    apart[:2] = np.where(labels(0.98, 0.98, 0.98, 0.98)[:2], 1, apart[:2])
    assert any("r-hat of site 'label'" in text for text in Chains({"label": apart}, discrete=("label",)).problems())


def test_a_label_that_hardly_moves_has_few_effective_draws():
    slow = np.repeat(labels(0.5, 0.5, 0.5, 0.5)[:, : N // 50], 50, axis=1)
    (*_, few) = Chains({"label": slow.astype(int)}, discrete=("label",)).problems()
    assert "effective sample size of site 'label'" in few


def test_a_known_constant_is_no_statement():
    """An integer site that is not discrete has one value only."""
    chains = healthy(discrete=())
    chains.draws["only"] = np.full((C, N), 7)
    assert chains.problems() == [] and chains.notes() == []


def test_what_follows_from_the_draws_is_looked_at():
    """Both sites agree in all chains; their product does not."""
    rng = np.random.default_rng(0)
    one, sign = rng.normal(size=(C, N)), np.array([1, 1, -1, -1])[:, None]
    chains = Chains({"one": one, "other": sign * one + 0.1 * rng.normal(size=(C, N))})
    assert chains.problems() == []
    product = chains.draws["one"] * chains.draws["other"]
    still = 1 / 3 + 1e-9 * rng.normal(size=(C, N))
    both = np.stack([still, product], axis=-1)
    table = Scalars(np.arange(2), lambda places: both[..., places], lambda place: (0, place))
    found = chains.problems({"transition_probs": table})
    assert "r-hat of transition_probs[0, 1] is" in found[0] and "1 of 4 elements above" in found[0]
    assert table.steady(np.arange(2))[..., 0].any() == np.False_


def test_warnings():
    with pytest.warns(SamplingWarning, match="did not move"):
        chains = Chains({"x": np.ones((C, N))})
        warn_of(chains.problems(), chains)
    warn_of(healthy().problems(), healthy())


def _one(data):
    numpyro.sample("x", dist.Normal(0, 1))


def _none(data):
    numpyro.sample("x", dist.Normal(0, 1), obs=data)


def _twice(data):
    _one(data)
    _one(data)


def _endless(data):
    numpyro.sample("count", dist.Poisson(3.0))


@pytest.mark.parametrize(
    ("model", "method", "error", "words"),
    [
        (_none, NUTS(), ValueError, "no latent site"),
        (_twice, NUTS(), ValueError, "two sites called 'x'"),
        (_endless, NUTS(), ValueError, "'count' is discrete"),
        (_one, NUTS(kernel=lambda model: 3), TypeError, "method.kernel returned a int"),
    ],
)
def test_refusals(model, method, error, words):
    with pytest.raises(error, match=words):
        run_chains(jax.random.key(0), model, 0.0, method)


def _coin(data):
    """A fair prior over two biases; `data` are (ones, zeros)."""
    bias = numpyro.sample("bias", dist.Categorical(probs=np.array([0.5, 0.5])))
    probs = np.array([0.3, 0.6])
    numpyro.factor("seen", data[0] * jax.numpy.log(probs)[bias] + data[1] * jax.numpy.log(1 - probs)[bias])


def _one_value(data):
    numpyro.sample("only", dist.Categorical(probs=np.array([1.0])))
    numpyro.sample("coin", dist.Bernoulli(0.5))
    numpyro.sample("die", dist.DiscreteUniform(1, 6))


def test_a_site_of_one_value_is_told_apart():
    discrete, continuous, fixed = latent_sites(_one_value, 0.0)
    assert list(discrete) == ["only", "coin", "die"] and continuous == () and fixed == {"only"}


@pytest.mark.slow
def test_discrete_sites_alone(key):
    """Metropolised Gibbs on one label against Bayes' rule: six standard errors, false-alarm rate 2e-9.

    It must catch a proposal that is always accepted (a share of one half, 20 standard errors off).
    """
    data = np.array([3.0, 2.0])
    method = NUTS(num_warmup=50, num_samples=2000, num_chains=2)
    chains = jax.jit(lambda key, data: run_chains(key, _coin, data, method))(key, data)
    odds = np.prod(np.array([[0.3, 0.7], [0.6, 0.4]]) ** data, axis=1)
    expected = odds[1] / odds.sum()
    label = np.asarray(chains.draws["bias"], float)
    assert chains.discrete == ("bias",) and chains.problems() == []
    # Draws that alternate are worth more than independent ones: their number is a cautious sample size.
    error = np.sqrt(expected * (1 - expected) / label.size)
    assert abs(label.mean() - expected) < 6 * error
    assert abs(0.5 - expected) > 10 * error


def _pair(data):
    numpyro.sample("x", dist.Normal(data, 2.0).expand([2]).to_event(1))


def _pair_and_coin(data):
    coin = numpyro.sample("coin", dist.Bernoulli(0.5))
    numpyro.sample("x", dist.Normal(data + coin, 2.0).expand([2]).to_event(1))


def test_energy_is_potential_and_kinetic_energy():
    """The kinetic energy of two momenta is Exponential(1) at every draw: its mean over 800 draws, seven standard errors
    of draws that count a fourth: false-alarm rate below 1e-6. It must catch the potential alone (a mean of 0).
    """
    run = jax.jit(lambda key: run_chains(key, _pair, 1.0, NUTS(200, 400, 2)))
    chains = run(jax.random.key(0))
    kinetic = np.asarray(chains.energy, float) + np.asarray(chains.log_density, float)
    assert kinetic.shape == (2, 400) and kinetic.min() > -1e-5
    error = np.sqrt(4 / kinetic.size)
    assert abs(kinetic.mean() - 1.0) < 7 * error < 1.0


@pytest.mark.slow
def test_energy_beside_gibbs_steps():
    run = jax.jit(lambda key: run_chains(key, _pair_and_coin, 1.0, NUTS(20, 50, 2)))
    chains = run(jax.random.key(0))
    assert (np.asarray(chains.energy) + np.asarray(chains.log_density)).min() > -1e-4
