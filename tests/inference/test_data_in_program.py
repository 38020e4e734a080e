"""Data that a program observes itself: said on every route, and a warning where they look like the log."""

# pyright: reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.inference.data_in_program import warn_counted_twice
from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.inference.draws.chains import SamplingWarning
from bayes_mdp.models import MDPSpec

KEY = jax.random.key(0)
SPACE = bm.StateActionSpace(2, 2)
TRIAL = np.array([1.0, 0.0, 1.0, 1.0, 0.0])
SHORT = bm.inference.NUTS(num_warmup=20, num_samples=20, num_chains=1)
PAID = np.array([1.0, 0.0, 1.0])
FEW = bm.Transitions([0, 1, 0], [0, 1, 1], PAID, [1, 0, 0])


def rows(space):
    with space.plates():
        return numpyro.sample("transition", dist.Dirichlet(jnp.ones(space.n_outcomes)))


def collapsed(space):
    """An earlier trial informs about the mean that pairs share."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.sample("trial", dist.Normal(mean, 1.0).expand([5]).to_event(1), obs=TRIAL)
    with space.plates():
        reward = numpyro.sample("reward", dist.Normal(mean, 1.0))
    return MDPSpec(rows(space), dist.Normal(reward, 1.0))


def mixture(space):
    kind = numpyro.sample("kind", dist.Bernoulli(0.5))
    with numpyro.plate("patients", 5):
        numpyro.sample("trial", dist.Bernoulli(jnp.where(kind == 1, 0.7, 0.2)), obs=TRIAL)
    with space.plates():
        paid = numpyro.sample("reward", dist.Beta(1.0 + kind, 1.0))
    return MDPSpec(rows(space), dist.Bernoulli(paid))


def factorised(space):
    with space.plates():
        paid = numpyro.sample("reward", dist.Beta(1.0, 1.0))
    numpyro.sample("trial", dist.Bernoulli(paid[0, 0]).expand([5]).to_event(1), obs=TRIAL)
    return MDPSpec(rows(space), dist.Bernoulli(paid))


def sampled(space):
    stay = numpyro.sample("stay", dist.Beta(1.0, 1.0))
    numpyro.sample("trial", dist.Bernoulli(stay).expand([5]).to_event(1), obs=TRIAL)
    numpyro.factor("penalty", -stay)  # a factor has no data
    square = jnp.array([stay**2, 1 - stay**2])
    return MDPSpec(jnp.stack([square, square[::-1]])[:, None].repeat(2, 1), np.zeros(()))


ROUTES = [(collapsed, "quadrature"), (mixture, "mixture"), (factorised, "factorised"), (sampled, "nuts")]


@pytest.mark.parametrize(("prior", "route"), ROUTES)
def test_every_route_says_what_the_program_observes(prior, route, tmp_path):
    said = "the program itself observes site 'trial' (5 values): they count on top of the"
    found = bm.explain(prior, SPACE)
    assert found.route == route and found.observed == (("trial", 5),) and said in str(found)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", SamplingWarning)
        data = FEW if route != "nuts" else bm.Transitions(FEW.state, FEW.action, None, FEW.next_state)
        posterior = bm.infer(KEY, prior, data, space=SPACE, sampler=SHORT)
    assert posterior.method == route
    assert said in " ".join(str(posterior).split()) and "('trial', 5)" in repr(posterior)
    # A saved posterior holds no program, and still says so.
    bm.save(posterior, tmp_path / "belief")
    assert said in " ".join(str(bm.load(tmp_path / "belief")).split())


def test_a_closed_form_is_refused_and_others_are_silent():
    with pytest.raises(ValueError, match=r"site 'trial' .* is observed inside the prior; hand transitions and rewards"):
        bm.infer(KEY, factorised, FEW, space=SPACE, method="exact")
    plain = bm.models.dirichlet_bernoulli()
    assert bm.explain(plain, SPACE).observed == ()
    assert "program data" not in str(bm.infer(KEY, plain, FEW, space=SPACE))


def test_observations_of_the_program_count_on_top_of_the_data():
    """The two weights of the mixture by hand: prior times evidence of the trial times that of the log."""
    posterior = bm.infer(KEY, mixture, FEW, space=SPACE)
    ones = TRIAL.sum()
    trial = np.array([0.2**ones * 0.8 ** (5 - ones), 0.7**ones * 0.3 ** (5 - ones)])
    # Rewards 1, 0, 1 of three different pairs: means of Beta(1 + k, 1) are 1/2 and 2/3.
    log = np.array([(1 / 2) ** 3, (2 / 3) ** 2 / 3])
    expected = trial * log / (trial * log).sum()
    np.testing.assert_allclose(np.exp(posterior.log_weights), expected, rtol=1e-6)
    assert abs(expected[1] - (log / log.sum())[1]) > 0.1  # the trial matters
    # They belong to the prior: the evidence is that of the log given them. Three first visits of pairs of two outcomes.
    given = (1 / 2) ** 3 * (trial / trial.sum() * log).sum()
    assert posterior.log_evidence == pytest.approx(np.log(given), rel=1e-6)
    assert np.exp(posterior.log_prior).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["quadrature", "importance", "collapsed", "nuts"])
def test_what_the_program_observes_moves_the_posterior_alike_on_every_route(method):
    """Of a normal mean: its prior, five values of the trial, three rewards of pairs whose means lie about it."""
    precision = 1.0 + 5.0 + 3.0 / 2.0
    mean, spread = (TRIAL.sum() + PAID.sum() / 2.0) / precision, precision**-0.5
    posterior: Any = bm.infer(KEY, collapsed, FEW, space=SPACE, method=method)
    values, weights = np.asarray(posterior.latent_sites().draws["mean"]), np.asarray(posterior.weights)
    away = 1e-6 if method == "quadrature" else 5.0 * spread / np.sqrt(500.0)
    assert weights @ values == pytest.approx(mean, abs=away)
    assert np.sqrt(weights @ (values - mean) ** 2) == pytest.approx(spread, abs=away)
    assert abs(mean - PAID.sum() / 2.0 / (1.0 + 3.0 / 2.0)) > 0.1  # the trial matters


def normal_hierarchy(space):
    """Beside its rows and rewards a site that tells of nothing."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfNormal(2.0))
    with numpyro.plate("both", 2), handlers.scale(scale=3.0):
        numpyro.sample("apart", dist.Normal(1.0, 2.0), obs=np.array([0.5, 4.0]))
    with space.plates():
        reward = numpyro.sample("reward", dist.Normal(mean, spread))
    return MDPSpec(rows(space), dist.Normal(reward, 1.0))


@pytest.mark.parametrize(
    ("method", "known"),
    [
        ("exact", {"mean": 0.5, "spread": 1.0}),
        ("quadrature", {"spread": 1.0}),
        ("importance", {"spread": 1.0}),
        ("collapsed", {"spread": 1.0}),
        ("nuts", {"spread": 1.0}),
    ],
)
def test_a_site_that_is_known_counts_in_the_evidence_of_no_route(method, known):
    prior = handlers.condition(normal_hierarchy, data=known)
    # Three first visits of rows of two outcomes; rewards whose means have variance 1 about the mean that they share.
    shared = 0.0 if "mean" in known else 1.0
    law = stats.multivariate_normal(np.full(3, known.get("mean", 0.0)), 2.0 * np.eye(3) + shared)
    expected = law.logpdf(PAID) - 3.0 * np.log(2.0)
    posterior = bm.infer(KEY, prior, FEW, space=SPACE, method=method)
    found = bm.evidence(posterior)
    assert found.log_evidence == pytest.approx(expected, abs=max(5.0 * found.standard_error, 1e-7))
    assert found.standard_error < 0.05


def test_a_known_site_behind_rewards_without_a_conjugate():
    """Their evidence, by weighted draws, is that of the program without it."""

    def prior(space):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        with space.plates():
            mean = numpyro.sample("reward", dist.Normal(0.0, 1.0))
        return MDPSpec(rows(space), dist.StudentT(4.0, mean, scale))

    def observing(space):
        numpyro.sample("apart", dist.Normal(0.0, 1.0), obs=3.0)
        return prior(space)

    rng = np.random.default_rng(0)
    state, action, after = rng.integers(2, size=(3, 60))
    data = bm.Transitions(state, action, rng.standard_t(4, size=60), after)
    found = [bm.evidence(bm.infer(KEY, each, data, space=SPACE)) for each in (prior, observing)]
    assert {each.method for each in found} == {"importance"}
    assert found[1].log_evidence == pytest.approx(found[0].log_evidence, abs=5.0 * found[0].standard_error)
    assert max(each.standard_error for each in found) < 0.05


def test_draws_of_a_prior_with_a_known_site():
    """Nothing has to be integrated before data: the program draws from its prior."""
    prior = handlers.condition(normal_hierarchy, data={"spread": 1.0})
    drawn = np.asarray(bm.infer(KEY, prior, space=SPACE).hyperparameters["mean"])
    assert stats.kstest(drawn, stats.norm.cdf).pvalue > 1e-3 and len(np.unique(drawn)) > 1000


def observing(law, values, **options):
    """Of a program that observes `values`: its trace, once it is asked for."""

    def program(space):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        numpyro.sample("seen", law(mean), obs=values, **options)
        with space.plates():
            reward = numpyro.sample("reward", dist.Normal(mean, 1.0))
        return MDPSpec(rows(space), dist.Normal(reward, 1.0))

    return lambda: trace_program(program, SPACE)


def normal(size):
    return lambda mean: dist.Normal(mean, 1.0).expand([size]).to_event(1)


COUNTS = np.asarray(bm.Counts.of(FEW, SPACE).transitions)


@pytest.mark.parametrize(
    ("program", "data", "like"),
    [
        (observing(normal(3), np.array([5.0, 6.0, 7.0])), FEW, "it has 3 values, as many as data has rows"),
        (observing(normal(3), jnp.array([1.0, 0.0, 1.0])), FEW, "its values are the rewards of data"),
        (observing(normal(3), np.array([1.0, 0.0, 0.0])), FEW, "its values are the next states of data"),
        (observing(normal(4), np.array([5.0] * 4)), FEW, ""),
        (observing(lambda m: dist.Multinomial(3, jax.nn.softmax(m * jnp.arange(8.0))), COUNTS.ravel()), FEW, "counts"),
        (observing(lambda m: dist.Normal(m, 1.0).expand([2, 2]), COUNTS.sum(-1)), FEW, "numbers of visits"),
        (observing(normal(3), np.array([5.0, 6.0, 7.0])), bm.Counts.of(FEW, SPACE), "as many as data has rows"),
        # Of three rows, two have a reward: two values of vectors are two rows, one vector is one.
        (
            observing(lambda m: dist.MultivariateNormal(jnp.ones((2, 3)) * m, jnp.eye(3)), np.ones((2, 3))),
            bm.Transitions(FEW.state, FEW.action, FEW.reward, FEW.next_state, reward_observed=[True, True, False]),
            "it has 2 values, as many as data has rewards",
        ),
        (observing(lambda m: dist.MultivariateNormal(jnp.ones(3) * m, jnp.eye(3)), np.ones(3)), FEW, ""),
        # One value is like a log of one row only where it is the same value.
        (observing(lambda m: dist.Normal(m, 1.0), 5.0), bm.Transitions([0], [0], [1.0], [1]), ""),
        (observing(lambda m: dist.Normal(m, 1.0), 1.0), bm.Transitions([0], [0], [1.0], [1]), "the rewards of data"),
    ],
)
def test_a_warning_where_they_look_like_the_log(program, data, like):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_counted_twice(program(), data)
    if not like:
        assert not caught
        return
    (message,) = (str(each.message) for each in caught)
    assert message.startswith("prior: site 'seen' is observed in the program, and ") and like in message
    assert "may be counted twice" in message and message.endswith("(see how-to/write-a-prior in the documentation)")


def test_a_run_of_the_rewards_is_noticed():
    """A prefix, an inner run, in float32; not a shuffled one, too short a one, or what chance explains."""
    rng = np.random.default_rng(0)
    paid, coins = rng.normal(size=800), (rng.random(800) < 0.5).astype(float)
    zeros, unseen = np.where(np.arange(800) < 790, 0.0, 1.0), np.arange(800) % 2 == 0
    cases = [
        (paid, paid[:500], None, True),
        (paid, paid[300:321].astype(np.float32), None, True),
        (coins, coins[100:150], None, True),
        (paid, paid[unseen][10:40], unseen, True),
        (paid, rng.permutation(paid[:500]), None, False),
        (paid, paid[:19], None, False),
        (coins, coins[100:120], None, False),  # one log of this length in 1,300 has these twenty coins
        (zeros, np.zeros(30), None, False),
        (paid, np.r_[paid[:499], 9.0], None, False),
    ]
    for rewards, values, observed, noticed in cases:
        log = bm.Transitions(
            rng.integers(2, size=800),
            rng.integers(2, size=800),
            rewards,
            rng.integers(2, size=800),
            reward_observed=observed,
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_counted_twice(observing(normal(values.size), values)(), log)
        said = [
            f"its {values.size} values are rewards of data that follow each other" in str(x.message) for x in caught
        ]
        assert said == [True] * noticed, (values.size, noticed)


def test_infer_warns_once():
    five = bm.Transitions([0, 1, 0, 1, 1], [0, 1, 1, 0, 0], TRIAL, [1, 0, 0, 1, 1])
    with pytest.warns(UserWarning, match="site 'trial' .* its values are the rewards of data") as caught:
        bm.infer(KEY, mixture, five, space=SPACE)
    assert sum("counted twice" in str(each.message) for each in caught) == 1
    assert "counted twice" in str(caught[0].message)
    with pytest.raises(ValueError, match="state"):  # what the space cannot hold is said first
        bm.infer(KEY, mixture, bm.Transitions([7] * 5, [0] * 5, TRIAL, [0] * 5), space=SPACE)
