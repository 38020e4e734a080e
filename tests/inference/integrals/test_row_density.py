"""The density of regressions of rows on visited cells: that of the program, its derivatives, what it never makes."""

# What `from_log` and `infer` return depends on whether the log has covariates, which a type checker cannot see.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import warnings

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.inference import Laplace
from bayes_mdp.inference.context_posterior import _about_the_mode, look_at, space_counts
from bayes_mdp.inference.integrals import row_density
from bayes_mdp.inference.integrals.row_density import RowDensity, visited_cells
from bayes_mdp.mdp.contexts import ContextSpace
from tests.models.test_regression_rows import masked_support


def small_log(rows: int = 60) -> bm.mdp.Log:
    """Three states, two actions, a number and a label; what `masked_support` rules out does not happen."""
    rng = np.random.default_rng(0)
    cells = {"s": rng.integers(3, size=rows), "a": rng.integers(2, size=rows), "age": rng.normal(size=rows).round(1)}
    reached = np.array([[[0, 1, 3], [0, 1, 2]], [[0, 1, 2], [0, 1, 2]], [[0, 1, 2], [2, 2, 2]]])
    t = reached[cells["s"], cells["a"], rng.integers(3, size=rows)]
    names = np.array(["a", "b", "c", "a"])
    frame = pd.DataFrame(cells | {"sex": rng.choice(["f", "m"], rows)}).assign(t=names[t], dead=t == 3)
    frame = frame.assign(s=names[cells["s"]], a=np.array(["x", "y"])[cells["a"]])
    roles = {"state": "s", "action": "a", "next_state": "t", "terminated": "dead", "states": ["a", "b", "c"]}
    return bm.read_log(frame, **roles, covariates=["age", "sex"])


def logits(space: ContextSpace) -> bm.models.MDPSpec:
    law = dist.Normal(np.linspace(-1, 1, 7)[:, None], np.array([1.0, 2.0, 0.5]))
    rows = bm.models.logit_rows(space, "age + sex + action + state + age:action", reference="b", coefficients=law)
    return bm.models.MDPSpec(rows, np.zeros((3, 2)))


def stays(space: ContextSpace) -> bm.models.MDPSpec:
    options = bm.models.RegressionOptions(by="state", standardise=False)
    return bm.models.MDPSpec(bm.models.logit_rows(space, "age", options=options), np.zeros((3, 2)))


def sticks(space: ContextSpace) -> bm.models.MDPSpec:
    options = bm.models.RegressionOptions(by="action")
    rows = bm.models.stick_rows(space, "age + sex", order=["c", "end", "a", "b"], options=options)
    return bm.models.MDPSpec(rows, np.zeros((3, 2)))


def whole(prior, masked: bool):
    """The posterior density of a program, and its counts."""
    log = small_log()
    support = masked_support() if masked else None
    space = bm.StateActionSpace.from_log(log, ends=True, support=support)
    assert isinstance(space, ContextSpace)
    law = look_at(prior, space).laws[0]
    counts = space_counts(log, log.covariates, space)
    normal = law.prior.base_dist if hasattr(law.prior, "base_dist") else law.prior
    shape = law.prior.batch_shape
    mean, sd = (np.broadcast_to(np.asarray(x, float), shape) for x in (normal.loc, normal.scale))
    return space, counts, RowDensity(visited_cells(law, counts), mean, sd)


def by_the_program(prior, space, counts, points):
    """Minus the log of prior times likelihood, by running the program at each point."""
    from numpyro import handlers

    out = []
    with jax.enable_x64(True):
        for point in points:
            sites = handlers.trace(handlers.seed(lambda: prior(space), 0)).get_trace()
            shape = sites["rows_coefficients"]["value"].shape
            given = handlers.substitute(prior, data={"rows_coefficients": point.reshape(shape)})
            with handlers.trace() as trace:
                rows = np.asarray(handlers.seed(given, 0)(space).transition_probs)
            site = trace["rows_coefficients"]
            likelihood = (counts * np.log(np.where(counts > 0, rows, 1.0))).sum()
            out.append(-likelihood - float(np.sum(site["fn"].log_prob(site["value"]))))
    return np.array(out)


@pytest.mark.parametrize(
    ("prior", "masked"), [(logits, False), (stays, False), (sticks, False), (stays, True), (sticks, True)]
)
def test_the_density_is_that_of_the_program(prior, masked, monkeypatch):
    monkeypatch.setattr(row_density, "CELLS", 16)  # several blocks
    monkeypatch.setattr(row_density, "NUMBERS", 128)
    monkeypatch.setattr(row_density, "STEEP", 24)
    space, counts, density = whole(prior, masked)
    points = np.random.default_rng(1).normal(0, 2.0, (5, density.mean.size))
    expected = by_the_program(prior, space, counts, points)
    np.testing.assert_allclose(density.minus_log(points), expected, rtol=1e-11)
    np.testing.assert_allclose([density.slopes(each)[0] for each in points], expected, rtol=1e-11)


@pytest.mark.parametrize("prior", [logits, sticks])
def test_its_derivatives_are_those_of_differences(prior):
    """Central differences of step 1e-5: errors of 1e-8 of the heights."""
    _, _, density = whole(prior, masked=False)
    size, step = density.mean.size, 1e-5
    point = np.random.default_rng(2).normal(size=size)
    _, gradient, hessian = density.slopes(point)
    for i, direction in enumerate(np.eye(size)):
        (up, slope_up, _), (down, slope_down, _) = (density.slopes(point + x * step * direction) for x in (1, -1))
        assert (up - down) / (2 * step) == pytest.approx(gradient[i], rel=1e-6, abs=1e-6)
        np.testing.assert_allclose((slope_up - slope_down) / (2 * step), hessian[i], rtol=1e-6, atol=1e-6)


def test_large_predictors_neither_overflow_nor_lose_their_digits():
    _, _, density = whole(logits, masked=False)
    far = np.full((2, density.mean.size), 400.0)
    heights = density.minus_log(far)
    assert np.isfinite(heights).all() and heights[0] == pytest.approx(density.slopes(far[0])[0], rel=1e-12)


def test_draws_are_those_of_the_program_looked_at_as_any_other(key):
    """The same mode, evidence and draws by the program's own density, which sees all cells."""
    log = small_log()
    space = bm.StateActionSpace.from_log(log, ends=True)
    assert isinstance(space, ContextSpace)
    seen, counts = look_at(logits, space), space_counts(log, log.covariates, space)
    assert seen.plain
    case = key, logits, log, log.covariates, space, counts
    fast = _about_the_mode(*case, seen, Laplace(num_samples=50))
    slow = _about_the_mode(*case, seen._replace(other="is not looked at"), Laplace(num_samples=50))
    np.testing.assert_allclose(fast.laplace.mode, slow.laplace.mode, atol=1e-9)
    assert fast.laplace.log_evidence == pytest.approx(slow.laplace.log_evidence, abs=1e-9)
    np.testing.assert_allclose(fast.sites["rows_coefficients"], slow.sites["rows_coefficients"], atol=1e-7)


def test_without_data_the_density_is_the_prior():
    log = small_log()
    space = bm.StateActionSpace.from_log(log, ends=True)
    law = look_at(sticks, space).laws[0]
    density = RowDensity(visited_cells(law, None), np.zeros((6, 3)), np.ones((6, 3)))
    points = np.random.default_rng(3).normal(size=(4, 18))
    np.testing.assert_allclose(density.minus_log(points), -dist.Normal(0, 1).log_prob(points).sum(1), rtol=1e-6)


def test_many_contexts_are_never_put_into_one_table(key, monkeypatch):
    """50,000 patterns: neither the design of all cells nor the space of all contexts is made."""
    from bayes_mdp.mdp.design import Design

    def refused(*args):
        raise AssertionError("made for all cells")

    rng, rows = np.random.default_rng(0), 50_000
    frame = pd.DataFrame({"s": rng.integers(2, size=rows), "a": 0, "x": rng.normal(size=rows)})
    frame["t"] = (rng.random(rows) < 1 / (1 + np.exp(1 - frame["x"]))).astype(int)
    log = bm.read_log(frame, state="s", action="a", next_state="t", covariates=["x"])
    monkeypatch.setattr(Design, "values", property(refused))
    monkeypatch.setattr(ContextSpace, "side_by_side", property(refused))
    space = bm.StateActionSpace.from_log(log)

    def program(space):
        rows = bm.models.logit_rows(space, "x", reference=0, options=bm.models.RegressionOptions(standardise=False))
        return bm.models.MDPSpec(rows, np.zeros((2, 1)))

    posterior = bm.infer(key, program, log, space=space, method=Laplace(num_samples=100))
    draws = posterior.coefficient_draws()[..., 0]
    # Standard errors of .01: six of them, in both coefficients.
    np.testing.assert_allclose(draws.mean(0), [-1.0, 1.0], atol=0.07)
    assert posterior.laplace.pareto_k < 0.5


def test_auto_draws_about_the_mode_where_chains_would_see_many_cells(key, monkeypatch):
    from bayes_mdp.inference import context_posterior, explanation

    log = small_log()
    space = bm.StateActionSpace.from_log(log, ends=True)
    for module in (context_posterior, explanation):
        monkeypatch.setattr(module, "LARGE", 100)
    assert bm.infer(key, logits, log, space=space).method == "laplace"
    told = bm.explain(logits, space)
    assert told.route == "laplace" and "cells are many for chains" in str(told)
    # Weights that are doubtful are not taken unasked: chains run.
    monkeypatch.setattr("bayes_mdp.inference.integrals.mode_draws.WARN", -10.0)
    few = bm.inference.NUTS(num_warmup=50, num_samples=50, num_chains=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of chains as short as these
        assert bm.infer(key, logits, log, space=space, sampler=few).method == "nuts"
