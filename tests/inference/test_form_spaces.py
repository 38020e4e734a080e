"""The conjugate forms where rewards depend on the outcome, under a horizon, with ends, illegal actions, in a mixture.

The evidence is that of quadrature over NumPyro's own density (`quadrature_judge`); the variances are those of draws.
"""

# `numpyro.sample` is typed to return any ArrayLike, and records as JAX arrays: too narrow for tests.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportOptionalMemberAccess=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.models import MDPSpec, NormalGamma
from tests.inference.detection.quadrature_judge import draw_data, exact_evidence, log_evidence

KEY = jax.random.key(0)
PLAIN = bm.StateActionSpace(2, 1)
LAYERED = bm.StateActionSpace(2, 1, horizon=2)
ENDING = bm.StateActionSpace(2, 1, ends=True)
LEGAL = bm.StateActionSpace(2, 2, legal=np.array([[True, False], [True, True]]))
ROWS = np.array([0.4, 0.6])
OUTCOMES = np.array([1.0, -2.0])


def by_outcome(name, law):
    """An element for each outcome of a transition, [2]; all pairs share it."""
    return numpyro.sample(name, law.expand([2]).to_event(1))


def law_by_outcome(law):
    """A law of shape [2] for every pair."""
    return MDPSpec(ROWS, law.expand([2, 1, 2]).to_event(1))


def by_step(name, law):
    """An element for each step, [2 1 1]."""
    with numpyro.plate("own", 2):
        return numpyro.sample(name, law)[:, None, None]


def _regression_by_outcome(space):
    weights = numpyro.sample("w", dist.Normal(0.0, 0.8).expand([2]).to_event(1))
    features = jnp.arange(8.0).reshape(2, 1, 2, 2) / 4 - 0.7
    return MDPSpec(ROWS, dist.Normal(features @ weights, 0.5).to_event(1))


def _categorical_by_outcome(space):
    probs = numpyro.sample("p", dist.Dirichlet(jnp.array([[1.0, 2.0], [2.0, 0.5]])).to_event(1))
    return MDPSpec(ROWS, dist.Categorical(jnp.broadcast_to(probs, (2, 1, 2, 2))).to_event(1))


def _binomial_by_outcome(space):
    probs = by_outcome("p", dist.Beta(2.0, 1.5))
    return MDPSpec(ROWS, dist.Binomial(np.array([4, 2]), probs).expand([2, 1, 2]).to_event(1))


def _affine_by_outcome(space):
    """One mean behind both outcomes, of opposite signs and different noise: a regression."""
    mean = numpyro.sample("m", dist.Normal(0.3, 0.8))
    return law_by_outcome(dist.Normal(1.0 + OUTCOMES * mean, OUTCOMES**2))


def _partly_by_outcome(space):
    mean = jnp.where(jnp.arange(2) == 0, by_outcome("m", dist.Normal(0.3, 0.8)), 0.7)
    return law_by_outcome(dist.Normal(mean, 0.5))


def _ending_rows(space):
    """Advance, and from the last state end, or stay."""
    with numpyro.plate("place", 2):
        p = numpyro.sample("advance", dist.Beta(2.0, 1.5))
    rows = jnp.stack([jnp.stack([1 - p[0], p[0], 0.0]), jnp.stack([0.0, 1 - p[1], p[1]])])
    return MDPSpec(rows[:, None], dist.Normal(0.5, 1.0))


def _legal_rates(space):
    """Three legal pairs; the law of the illegal one is no law."""
    rate = numpyro.sample("rate", dist.Gamma(3.0, 2.0).expand([3]).to_event(1))
    table = jnp.ones((2, 2)).at[np.array([0, 1, 1]), np.array([0, 0, 1])].set(rate)
    return MDPSpec(ROWS, dist.Exponential(table))


def _legal_regression(space):
    """The features of the illegal pair are not finite."""
    weights = numpyro.sample("w", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    features = np.array([[[1.0, 0.5], [np.inf, -np.inf]], [[0.0, 1.0], [1.0, -1.0]]])
    return MDPSpec(ROWS, dist.Normal(features @ weights, 0.5, validate_args=False))


PROGRAMS = {
    "exponential by outcome": (
        PLAIN,
        lambda space: law_by_outcome(dist.Exponential(by_outcome("rate", dist.Gamma(3.0, 2.0)))),
    ),
    "binomial by outcome": (PLAIN, _binomial_by_outcome),
    "categorical by outcome": (PLAIN, _categorical_by_outcome),
    "geometric by outcome": (
        PLAIN,
        lambda space: law_by_outcome(dist.Geometric(by_outcome("p", dist.Beta(2.0, 1.5)))),
    ),
    "log-normal by outcome": (
        PLAIN,
        lambda space: law_by_outcome(dist.LogNormal(by_outcome("m", dist.Normal(0.3, 0.8)), 0.5)),
    ),
    "precision by outcome": (
        PLAIN,
        lambda space: law_by_outcome(dist.Normal(OUTCOMES, by_outcome("tau", dist.Gamma(3.0, 2.0)) ** -0.5)),
    ),
    "affine by outcome": (PLAIN, _affine_by_outcome),
    "regression by outcome": (PLAIN, _regression_by_outcome),
    "known by outcome": (PLAIN, lambda space: law_by_outcome(dist.Laplace(OUTCOMES, 0.5))),
    "partly known by outcome": (PLAIN, _partly_by_outcome),
    "affine by step": (
        LAYERED,
        lambda space: MDPSpec(ROWS, dist.Normal(1.0 - 2.0 * by_step("m", dist.Normal(0.3, 0.8)), 0.5)),
    ),
    "geometric by step": (
        LAYERED,
        lambda space: MDPSpec(ROWS, dist.Geometric(by_step("p", dist.Beta(2.0, 1.5)) * jnp.ones((2, 2, 1)))),
    ),
    "known by step": (LAYERED, lambda space: MDPSpec(ROWS, dist.Normal(np.arange(2.0)[:, None, None], 0.5))),
    "partly known by step": (
        LAYERED,
        lambda space: MDPSpec(
            ROWS,
            dist.Poisson(jnp.where(np.arange(2)[:, None, None] == 0, numpyro.sample("x", dist.Gamma(3.0, 2.0)), 0.7)),
        ),
    ),
    "advance or end": (ENDING, _ending_rows),
    "exponential, legal": (LEGAL, _legal_rates),
    "regression, legal": (LEGAL, _legal_regression),
}


QUICK = ("affine by outcome", "exponential, legal")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS])
def test_evidence_is_that_of_quadrature(name):
    space, program = PROGRAMS[name]
    data = draw_data(program, space, seed=2)
    found = exact_evidence(bm.infer(KEY, program, space=space, method="exact"), data)
    expected = log_evidence(program, space, data)
    assert abs(found - expected) <= 1e-7 * max(1.0, abs(expected))


# --- variances -------------------------------------------------------------------------------------------------------

DRAWS = 20_000
VALUES = np.array([0.3, -1.2])


def _unknown_rows(reward):
    """Unknown rows beside a law by outcome."""

    def program(space):
        with space.plates():
            rows = numpyro.sample("transition", dist.Dirichlet(jnp.array([1.5, 2.5])))
        return MDPSpec(rows, reward(space).reward)

    return program


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "affine by outcome",
        "regression by outcome",
        *(
            pytest.param(f"{law} by outcome", marks=pytest.mark.slow)
            for law in ("exponential", "categorical", "known", "partly known")
        ),
    ],
)
def test_the_variance_of_a_backup_is_that_of_draws(name):
    """Mean and variance of sum_o p_o (r_o + .9 V_o) over draws: within 6 standard errors (false alarm 4e-9 a number).

    A covariance between outcomes that is left out, or has the wrong sign, is off by far more.
    """
    program = _unknown_rows(PROGRAMS[name][1])
    data = draw_data(program, PLAIN, seed=4, number=30)
    posterior = bm.infer(KEY, program, data, space=PLAIN, method="exact")
    with jax.enable_x64(True):
        drawn = jax.jit(lambda key: posterior.sample(key, (DRAWS,)))(jax.random.key(7))
        backup = np.asarray(drawn.reward) + 0.9 * np.asarray(drawn.transition_probs) @ VALUES
        expected = np.asarray(posterior.bellman_variance(VALUES, 0.9))
        mean = posterior.mean_mdp()
        average = np.asarray(mean.reward) + 0.9 * np.asarray(mean.transition_probs) @ VALUES
    away = backup - backup.mean(0)
    error = np.sqrt(((away**4).mean(0) - away.var(0) ** 2) / DRAWS)
    assert (np.abs(backup.mean(0) - average) <= 6.0 * backup.std(0) / np.sqrt(DRAWS)).all()
    assert (np.abs(backup.var(0) - expected) <= 6.0 * error).all()


# --- mixtures --------------------------------------------------------------------------------------------------------


def switched(branches, weights):
    """(program, [program with the switch at each value]): a discrete site chooses among `branches` of the unknown."""

    def program(space, value=None):
        chosen = numpyro.sample("switch", dist.Categorical(jnp.array(weights))) if value is None else value
        return branches(chosen)

    return program, [lambda space, k=k: branches(jnp.asarray(k)) for k in range(len(weights))]


def _known_or_not(chosen):
    mean = numpyro.sample("m", dist.Normal(0.3, 0.8))
    return MDPSpec(ROWS, dist.Normal(jnp.where(chosen == 0, mean, 0.7) * jnp.ones((2, 1)), 0.5))


def _two_coefficients(chosen):
    mean = numpyro.sample("m", dist.Normal(0.3, 0.8))
    return MDPSpec(ROWS, dist.Normal(jnp.array([2.0, -1.0])[chosen] * mean + chosen * jnp.ones((2, 1)), 0.5))


def _two_totals(chosen):
    p = numpyro.sample("p", dist.Beta(2.0, 1.5))
    return MDPSpec(ROWS, dist.Binomial(jnp.array([6, 9])[chosen], p * jnp.ones((2, 1))))


def _cell_or_cell(chosen):
    tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
    known = jnp.arange(2)[:, None] == chosen
    return MDPSpec(ROWS, dist.Normal(0.5, jnp.where(known, 2.0, tau) ** -0.5))


def _two_known_laws(chosen):
    return MDPSpec(ROWS, dist.Laplace(jnp.array([0.0, 1.0])[chosen], jnp.ones((2, 1))))


def _row_or_row(chosen):
    p = numpyro.sample("p", dist.Beta(2.0, 1.5))
    row = jnp.where(chosen == 0, jnp.stack([p, 1 - p]), jnp.stack([1 - p, p]))
    return MDPSpec(jnp.broadcast_to(row, (2, 1, 2)), dist.Exponential(jnp.where(chosen == 0, 1.0, 2.0)))


MIXED = {
    "known or not": _known_or_not,
    "coefficients": _two_coefficients,
    "totals": _two_totals,
    "one cell or the other": _cell_or_cell,
    "known laws": _two_known_laws,
    "rows": _row_or_row,
}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [n if n in ("totals", "rows") else pytest.param(n, marks=pytest.mark.slow) for n in MIXED]
)
def test_a_mixture_has_the_evidence_of_its_branches(name):
    weights = (0.3, 0.7)
    program, branches = switched(MIXED[name], weights)
    data = draw_data(branches[0], PLAIN, seed=3)
    posterior = bm.infer(KEY, program, data, space=PLAIN, method="mixture")
    each = np.array([log_evidence(branch, PLAIN, data) for branch in branches]) + np.log(weights)
    assert abs(posterior.log_evidence - np.logaddexp.reduce(each)) <= 1e-7 * abs(each).max()
    np.testing.assert_allclose(posterior.weights, np.exp(each - np.logaddexp.reduce(each)), rtol=1e-5)


def test_a_reward_that_one_branch_cannot_give_rules_it_out():
    program, _ = switched(_two_totals, (0.3, 0.7))
    data = bm.Transitions([0, 1], [0, 0], [8.0, 3.0], [1, 0])
    posterior = bm.infer(KEY, program, data, space=PLAIN, method="mixture")
    np.testing.assert_allclose(posterior.weights, [0.0, 1.0], atol=1e-12)
    # The same inside a loop, one transition after the other.
    prior = bm.infer(KEY, program, space=PLAIN, method="mixture")
    after = jax.jit(lambda belief, block: belief.update(block))(prior, data)
    np.testing.assert_allclose(after.weights, [0.0, 1.0], atol=1e-6)


# --- rewards that a cell cannot give ---------------------------------------------------------------------------------


def _two_cells(space):
    p = numpyro.sample("p", dist.Beta(2.0, 1.5))
    return MDPSpec(ROWS, dist.Binomial(np.array([[4], [9]]), jnp.where(jnp.arange(2)[:, None] == 0, p, 0.8)))


def test_each_cell_has_its_own_most():
    prior = bm.infer(KEY, _two_cells, space=PLAIN, method="exact")
    assert np.isfinite(prior.update(bm.Transitions([1], [0], [8.0], [0])).log_evidence)
    with pytest.raises(ValueError, match=r"transitions.reward\[0\] is 8.0, expected 0, 1, ..., 4 "):
        prior.update(bm.Transitions([0], [0], [8.0], [0]))
    # A reward that is not looked at may be anything.
    seen = bm.Transitions([0, 0], [0, 0], [8.0, 2.0], [0, 1], reward_observed=[False, True])
    assert np.isfinite(prior.update(seen).log_evidence)
    assert np.isfinite(prior.update(bm.Transitions([0], [0], [8.0], [0]), 0.0).log_evidence)


def test_a_known_law_has_a_support():
    prior = bm.infer(KEY, lambda space: MDPSpec(ROWS, dist.Uniform(0.0, 2.0)), space=PLAIN, method="exact")
    assert abs(prior.update(bm.Transitions([0], [0], [1.5], [0])).log_evidence - np.log(0.2)) < 1e-6
    with pytest.raises(ValueError, match=r"is 2\.5, expected a number from 0 to 2 \(the reward law is Uniform\)"):
        prior.update(bm.Transitions([0], [0], [2.5], [0]))


# --- float32 ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "regression by outcome",
        "known by outcome",
        pytest.param("partly known by outcome", marks=pytest.mark.slow),
        pytest.param("exponential, legal", marks=pytest.mark.slow),
    ],
)
def test_single_precision_in_a_compiled_loop(name):
    """2,000 transitions one by one in float32: the posterior of float64 to four digits."""
    space, program = PROGRAMS[name]
    data = draw_data(program, space, seed=5, number=2000)
    prior = bm.infer(KEY, program, space=space, method="exact")
    columns = (data.state, data.action, data.reward, data.next_state)

    @jax.jit
    def loop(belief, columns):
        return jax.lax.scan(lambda b, row: (b.update(bm.Transitions(*row)), None), belief, columns)[0]

    after = loop(jax.tree.map(jnp.asarray, prior), tuple(map(jnp.asarray, columns)))
    exact = bm.infer(KEY, program, data, space=space, method="exact")
    assert after.constant.dtype == jnp.float32
    np.testing.assert_allclose(after.reward_cells.mean(), exact.reward_cells.mean(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(after.reward_cells.variance(), exact.reward_cells.variance(), rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(float(after.log_evidence), exact.log_evidence, rtol=1e-4)


# --- normal-gamma through a joint site --------------------------------------------------------------------------------


def test_offsets_of_a_joint_site():
    """One normal-gamma behind two cells, each with an offset of its own."""

    def program(space):
        pair = numpyro.sample("pair", NormalGamma(0.3, 2.0, 3.0, 1.5))
        return MDPSpec(ROWS, dist.Normal(-2.0 * pair[0] + jnp.arange(2.0)[:, None], pair[1] ** -0.5))

    data = draw_data(program, PLAIN, seed=2)
    posterior = bm.infer(KEY, program, data, space=PLAIN, method="exact")
    assert abs(posterior.log_evidence - log_evidence(program, PLAIN, data)) < 1e-7
    # The site itself, not what the table stretches: E m and E tau to 6 standard errors (false alarm 2e-9).
    rows = jnp.zeros(np.shape(posterior.transition_probs.prior))
    keys = jax.random.split(jax.random.key(3), 4000)
    draw = jax.vmap(lambda key: posterior.site_tables[0].values(rows, posterior.reward_cells.sample_sites(key))["pair"])
    site = np.asarray(jax.jit(draw)(keys))
    belief = posterior.reward_cells.site_belief
    mean, tau = float(belief.loc[0]), float(belief.concentration[0] / belief.rate[0]) / 4.0
    assert abs(site[:, 0].mean() - mean) < 6.0 * site[:, 0].std() / np.sqrt(len(site))
    assert abs(site[:, 1].mean() - tau) < 6.0 * site[:, 1].std() / np.sqrt(len(site))
