"""The bus log: replacement from bin 45 against 60, by exact draws, by NUTS and by the delta method.

The log lies outside the project: in the folder BAYES_MDP_DATA, or in ../shared/data beside the checkout.
"""

import importlib.util
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy.stats import norm

import bayes_mdp as bm
from bayes_mdp.models.joint import summarise
from bayes_mdp.models.mdp_spec import to_mdp

ROOT = Path(__file__).resolve().parents[2]
LOG = Path(os.environ.get("BAYES_MDP_DATA", ROOT.parent / "shared" / "data")) / "bus_engine_replacement.csv"
pytestmark = pytest.mark.skipif(not LOG.is_file(), reason=f"{LOG.name} is absent (set BAYES_MDP_DATA to its folder)")
NUM_DRAWS = 2000
NAMES = ("from 45", "from 60")


@pytest.fixture(scope="module")
def bus():
    spec: Any = importlib.util.spec_from_file_location("bus_engine", ROOT / "examples" / "bus_engine.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def log(bus):
    return bus.read(LOG)


@pytest.fixture(scope="module")
def exact(bus, log):
    """Log, posterior and comparison under the prior of a row for every bin."""
    posterior = bm.infer(jax.random.key(0), bus.each_bin, log, space=bus.bus_space())
    return log, posterior, compare(bus, posterior, *bus.POLICIES.values())


def compare(bus, posterior, first, second, seed=1):
    """Two policies from a new engine."""
    policies: dict[str, Any] = {NAMES[0]: first, NAMES[1]: second}
    settings = {"initial": bus.NEW_ENGINE, "num_draws": NUM_DRAWS}
    return bm.compare_policies(jax.random.key(seed), posterior, policies, bus.MONTHLY, **settings)


def delta(bus, counts, mileage):
    """Mean (second order) and gradient of the value from a new engine, at the posterior mean, in numpy."""
    discount, state = bus.MONTHLY.discount, bus.STATE
    rows, total = keep_rows(bus, counts)
    keep = mileage > state
    chain = np.where(keep[:, None], rows, bus.NEW_ENGINE)
    inverse = np.linalg.inv(np.eye(len(state)) - discount * chain)
    v = inverse @ bus.REWARD[state, np.where(keep, 0, 1)]
    gradient = discount * np.where(keep, inverse[0], 0.0)[:, None] * v  # d value / d P(s' | s, keep)
    # A row that moves by d changes the value by gradient . d + (gradient . d) (discount inverse[:, s] . d) + ...
    return v[0] + covariance(rows, total, discount * inverse.T, gradient), gradient


def keep_rows(bus, counts):
    """Posterior mean rows of keep, and their total concentrations."""
    concentration = np.where(bus.bus_space().support[:, bus.KEEP], 1.0 + counts, 0.0)
    total = concentration.sum(-1)
    return concentration / total[:, None], total


def covariance(rows, total, first, second):
    """sum_s first_s' Cov(row_s) second_s for independent Dirichlet rows."""
    means = (rows * first).sum(-1) * (rows * second).sum(-1)
    return np.sum(((rows * first * second).sum(-1) - means) / (total + 1))


def keep_counts(log, n):
    data = log.transitions
    counts = np.zeros((n, n))
    kept = data.action == 0
    np.add.at(counts, (data.state[kept], data.next_state[kept]), 1.0)
    return counts


def check_against_delta(bus, log, answer, mileages, tolerance):
    rows, total = keep_rows(bus, keep_counts(log, bus.N_STATES))
    plans = [delta(bus, keep_counts(log, bus.N_STATES), mileage) for mileage in mileages]
    for name, (mean, gradient) in zip(NAMES, plans, strict=True):
        sd = covariance(rows, total, gradient, gradient) ** 0.5
        value = answer.values[name]
        assert value.sd == pytest.approx(sd, rel=0.09)
        assert value.mean == pytest.approx(mean, abs=0.13 * sd)
        np.testing.assert_allclose(value.interval, mean + norm.ppf([0.025, 0.975]) * sd, atol=0.45 * sd)
    (first, gradient_first), (second, gradient_second) = plans
    gradient = gradient_first - gradient_second
    sd_of_gain = covariance(rows, total, gradient, gradient) ** 0.5
    gain = answer.difference(*NAMES)
    assert gain.sd == pytest.approx(sd_of_gain, rel=tolerance)
    assert gain.mean == pytest.approx(first - second, abs=0.13 * sd_of_gain)
    assert answer.prob_best[NAMES[0]] == pytest.approx(norm.cdf((first - second) / sd_of_gain), abs=0.07)


@pytest.mark.slow
def test_draws_agree_with_the_delta_method(bus, exact):
    """2,000 draws give an sd to 1.6 % (bound 9 %), a mean to 0.022 sd (bound 0.13), a probability to 0.01 (bound 0.07).

    More than 5.6 errors each. Without the second-order term the mean would be 0.3 sd off.
    """
    check_against_delta(bus, exact[0], exact[2], (45, 60), tolerance=0.09)


@pytest.mark.slow
def test_draws_agree_with_the_delta_method_where_it_is_close(bus, exact):
    """66 against 68, P(66 better) about 1/4; the rows in question rest on 16 months each: sd of the gain to 20 %."""
    answer = compare(bus, exact[1], bus.replace_from(66), bus.replace_from(68))
    check_against_delta(bus, exact[0], answer, (66, 68), tolerance=0.2)
    assert 0.2 < answer.prob_best[NAMES[0]] < 0.35


@pytest.mark.slow
def test_from_60_is_better_and_the_data_say_so(exact):
    _, _, answer = exact
    assert answer.prob_best["from 45"] == 0.0
    assert answer.difference("from 60", "from 45").interval[0] > 100
    assert -1545 < answer.values["from 60"].interval[0] < answer.values["from 60"].interval[1] < -1515


@pytest.mark.slow
def test_the_output_says_which_states_were_never_visited(bus, exact):
    log, posterior, answer = exact
    never = set(range(bus.N_STATES)) - set(np.asarray(log.transitions.state).tolist())
    assert never == set(range(78, 90))
    # Both rows of the last bin are known: nothing about it is unknown.
    assert set(answer.values["from 60"].unvisited.states) == never - {89}
    assert "every pair that the policy uses was tried; states never visited: 78 (not reached)" in str(answer)
    anywhere: Any = bm.policy_value(
        jax.random.key(1), posterior, bus.replace_from(60), bus.MONTHLY, num_draws=NUM_DRAWS
    )
    # From there on it replaces: known rows, which no data need to try.
    assert not anywhere.unvisited.pairs
    assert "start: uniform over the 90 states" in str(anywhere)


def nuts(prior, space, log, num_samples):
    """A posterior of draws by NUTS, run by hand on `joint`."""
    with jax.enable_x64(True):
        kernel = numpyro.infer.NUTS(bm.models.joint(prior, space))
        chain = numpyro.infer.MCMC(kernel, num_warmup=300, num_samples=num_samples, progress_bar=False)
        chain.run(jax.random.key(2), summarise(prior, space, log))

        def world(draw):
            program: Any = numpyro.handlers.seed(numpyro.handlers.substitute(prior, draw), 0)
            return to_mdp(program(space), space)

        samples = chain.get_samples()
        if len(samples) > 1:  # the rows of shared increments are a function of these
            samples = {name: x for name, x in samples.items() if name != "transition"}
        mdps = jax.jit(jax.vmap(world))(samples)
        return bm.inference.posterior_samples(jax.tree.map(np.asarray, mdps))


def agree(first, second):
    """Two independent estimates: 6 Monte Carlo errors at an effective sample size of 300 (then false alarm < 1e-7)."""
    for name in NAMES:
        a, b = first.values[name], second.values[name]
        assert a.mean == pytest.approx(b.mean, abs=6 * b.sd * (1 / 300 + 1 / NUM_DRAWS) ** 0.5)
        assert a.sd == pytest.approx(b.sd, rel=0.27)
        np.testing.assert_allclose(a.interval, b.interval, atol=0.9 * b.sd)
        assert first.prob_best[name] == pytest.approx(second.prob_best[name], abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["alike", "each_bin"])
def test_draws_agree_with_nuts(bus, exact, prior):
    program, space = getattr(bus, prior), bus.bus_space()
    closed = bm.infer(jax.random.key(0), program, exact[0], space=space)
    by_nuts = nuts(program, space, exact[0], 800)
    answers = [compare(bus, belief, *bus.POLICIES.values(), seed=seed) for seed, belief in ((3, by_nuts), (1, closed))]
    agree(*answers)


@pytest.mark.slow
def test_the_example_runs(bus, capsys):
    bus.main(LOG)
    text = capsys.readouterr().out
    assert "All bins alike: log evidence" in text
    assert "P(from 60 better) 1.000" in text


def test_the_log_has_no_more_in_it_than_increments(bus, log):
    """The shared increments are Dirichlet(1 + counts): the tied posterior in one line."""
    data = log.transitions
    kept = data.action == 0
    counts = np.bincount(data.next_state[kept] - data.state[kept], minlength=3)
    posterior = bm.infer(jax.random.key(0), bus.alike, log, space=bus.bus_space())
    mean = np.asarray(posterior.mean_mdp().transition_probs)[10, 0, 10:13]
    np.testing.assert_allclose(mean, (1 + counts) / (3 + counts.sum()), rtol=1e-6)
    assert jnp.zeros(()).dtype == jnp.float32
