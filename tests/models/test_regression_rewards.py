"""Regressions of rewards on covariates: least squares and likelihoods worked out apart from the package."""

# What `from_log` and `infer` return depends on whether the log has covariates, which a type checker cannot see.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers
from scipy.optimize import minimize
from scipy.special import expit, gammaln

import bayes_mdp as bm
from bayes_mdp.inference import Laplace
from bayes_mdp.models import RegressionOptions, linear_rewards, logistic_rewards, poisson_rewards

TERMS = "age + action"
ROWS = np.full((2, 2, 2), 0.5)


def table(number: int = 300) -> pd.DataFrame:
    """Rewards of three kinds with the predictor 1 + .5 age - 1 (action y)."""
    rng = np.random.default_rng(3)
    cells = {
        "s": rng.choice(["i", "w"], number),
        "a": rng.choice(["x", "y"], number),
        "age": rng.integers(4, size=number),
    }
    rows = pd.DataFrame(cells | {"t": rng.choice(["i", "w"], number), "id": np.arange(number)})
    eta = 1.0 + 0.5 * rows["age"] - (rows["a"] == "y")
    rows["number"] = eta + rng.normal(size=number)
    rows["flag"] = (rng.random(number) < expit(eta)).astype(float)
    return rows.assign(count=rng.poisson(np.exp(0.4 * eta)).astype(float))


def read(rows: pd.DataFrame, reward: str):
    return bm.read_log(rows, state="s", action="a", reward=reward, next_state="t", subject="id", covariates=["age"])


def columns(rows: pd.DataFrame) -> np.ndarray:
    return np.stack([np.ones(len(rows)), rows["age"], rows["a"] == "y"], 1).astype(float)


def program(law, **options):
    def prior(space):
        return bm.models.MDPSpec(ROWS, law(space, TERMS, options=RegressionOptions(standardise=False), **options))

    return prior


def test_linear_rewards_with_known_noise_are_the_conjugate_regression(key):
    """Mean and covariance of the coefficients are those of ridge regression; rows of a new age follow from them."""
    rows = table()
    log = read(rows, "number")
    space = bm.StateActionSpace.from_log(log)
    posterior = bm.infer(key, program(linear_rewards, coefficients=dist.Normal(0.0, 2.0), noise=1.5), log, space=space)
    assert posterior.method == "exact" and posterior.num_draws == 4000
    x, y = columns(rows), rows["number"].to_numpy()
    precision = x.T @ x / 1.5**2 + np.eye(3) / 4.0
    mean, covariance = np.linalg.solve(precision, x.T @ y / 1.5**2), np.linalg.inv(precision)
    draws = posterior.coefficient_draws()[..., 0]
    # 4,000 independent draws: a mean off by 5.5 standard errors has a false-alarm rate of 1e-7 for three of them.
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(0) - mean) < 5.5 * sd / 4000**0.5).all()
    np.testing.assert_allclose(draws.std(0), sd, rtol=0.07)
    new = posterior.at({"age": 9})
    np.testing.assert_allclose(
        np.asarray(new.mean_mdp().reward)[0], (draws @ np.array([[1, 9, 0], [1, 9, 1.0]]).T).mean(0), rtol=1e-5
    )
    value = bm.policy_value(key, new, [1, 1], bm.Episodic(1), num_draws=4000)
    np.testing.assert_allclose(np.sort(value.draws), np.sort(draws @ np.array([1, 9, 1.0])), rtol=1e-5)


LIKELIHOODS = {
    "flag": lambda eta, y: y * eta - np.logaddexp(0.0, eta),
    "count": lambda eta, y: y * eta - np.exp(eta) - gammaln(y + 1),
}


@pytest.mark.parametrize(("law", "reward"), [(logistic_rewards, "flag"), (poisson_rewards, "count")])
def test_weighted_draws_of_coefficients_lie_about_the_mode_worked_out_by_scipy(key, law, reward):
    rows = table()
    log = read(rows, reward)
    posterior = bm.infer(
        key,
        program(law, coefficients=dist.Normal(0.0, 2.5)),
        log,
        space=bm.StateActionSpace.from_log(log),
        method=Laplace(num_samples=2000),
    )
    x, y = columns(rows), rows[reward].to_numpy()
    mode = minimize(
        lambda b: -LIKELIHOODS[reward](x @ b, y).sum() + (b**2).sum() / (2 * 2.5**2), np.zeros(3), tol=1e-12
    )
    draws = posterior.coefficient_draws("reward")[..., 0]
    at_mode = x @ mode.x
    curvature = expit(at_mode) * expit(-at_mode) if reward == "flag" else np.exp(at_mode)
    sd = np.sqrt(np.diag(np.linalg.inv((x.T * curvature) @ x + np.eye(3) / 2.5**2)))
    # Mean and mode of so many rows are within .1 sd of each other; a wrong link would be off by several.
    assert (np.abs(draws.mean(0) - mode.x) < 0.25 * sd).all()
    np.testing.assert_allclose(draws.std(0), sd, rtol=0.15)
    mean = np.asarray(posterior.at({"age": 2}).mean_mdp().reward)[0, 1]
    eta = draws @ np.array([1.0, 2.0, 1.0])
    assert mean == pytest.approx((expit(eta) if reward == "flag" else np.exp(eta)).mean(), rel=1e-5)


def test_rows_and_rewards_are_regressed_side_by_side(key):
    log = read(table(120), "flag")

    def prior(space):
        rows = bm.models.logit_rows(space, TERMS, reference="w")
        return bm.models.MDPSpec(rows, logistic_rewards(space, "age:action", options=RegressionOptions(by="state")))

    space = bm.StateActionSpace.from_log(log)
    posterior = bm.infer(key, prior, log, space=space, method=Laplace(num_samples=400))
    assert [law.name for law in posterior.laws] == ["rows", "reward"]
    assert "reward: logistic regression" in str(posterior)
    assert list(posterior.coefficients("rows").index.names) == ["column", "outcome"]
    with pytest.raises(ValueError, match="name is None, expected one of the laws of the program: 'rows', 'reward'"):
        posterior.coefficients()
    value = bm.policy_value(key, posterior, [1, 1], bm.Discounted(0.9), num_draws=200)
    assert 0 < value.mean < 10
    assert "logistic regression" in str(bm.explain(prior, space))


def test_group_intercepts_of_rewards_are_added_to_the_predictor():
    log = bm.read_log(
        table(60).assign(site=lambda x: x["id"] % 3), state="s", action="a", reward="number", next_state="t",
        covariates=["age"], group="site",
    )  # fmt: skip
    space = bm.StateActionSpace.from_log(log)
    run = lambda: poisson_rewards(space, TERMS, options=RegressionOptions(group="site"))  # noqa: E731
    with jax.enable_x64(True), handlers.trace() as sites:
        law = handlers.seed(run, 1)()
    b, scale, own = (np.asarray(sites[f"reward_{x}"]["value"]) for x in ("coefficients", "group_scale", "group"))
    eta = space.design(TERMS).standardised @ b[:, 0] + (scale * own)[space.contexts.group.values, 0][:, None, None]
    np.testing.assert_allclose(np.log(law.rate), eta, rtol=1e-9)


def test_a_space_without_contexts_and_one_that_lists_successors_have_rewards_too():
    space = bm.StateActionSpace(3, 2, successors=[[[0, 1], [1, 2]], [[0, 2], [1, 2]], [[0, 1], [1, 2]]])
    law = handlers.seed(
        lambda: linear_rewards(space, "state", coefficients=dist.Normal(0, 3), noise=dist.HalfNormal(1)), 0
    )()
    assert law.batch_shape == (3, 2)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"noise": 0.0}, ValueError, "noise is 0.0, expected a positive number, or its prior"),
        ({"noise": dist.Normal(0, 1)}, ValueError, "noise is a Normal .* expected a law of one positive number"),
        ({"noise": dist.HalfNormal(np.ones(2))}, ValueError, "noise is a HalfNormal with batch shape"),
        ({"noise": 1.0, "coefficients": 2.5}, TypeError, "coefficients is 2.5, expected a NumPyro distribution"),
        (
            {"noise": 1.0, "options": RegressionOptions(group="site")},
            ValueError,
            "group is 'site', expected the column",
        ),
        ({"noise": 1.0, "terms": "agee"}, ValueError, "terms has 'agee', expected one of .*did you mean"),
    ],
)
def test_what_a_regression_of_rewards_refuses(options, error, words):
    space = bm.StateActionSpace.from_log(read(table(30), "number"))
    given = {"terms": TERMS, "coefficients": dist.Normal(0, 1), **options}
    with pytest.raises(error, match=words):
        handlers.seed(lambda: linear_rewards(space, given.pop("terms"), **given), 0)()
