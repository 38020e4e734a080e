"""What changes nothing in a regression of rows: the order of rows and labels, covariates unread, the reference.

Random programs of `regression_programs`, by the density that draws come from; all equalities are to rounding.
"""

# What `from_log` and `infer` return depends on whether the log has covariates, which a type checker cannot see.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro import handlers

import bayes_mdp as bm
from bayes_mdp.decisions import knowing
from bayes_mdp.inference.context_posterior import look_at, prior_of_coefficients, space_counts
from bayes_mdp.inference.integrals.mode_draws import NoModeError, find_mode
from bayes_mdp.inference.integrals.row_density import RowDensity, visited_cells
from tests.inference.regression_programs import Program, random_program

PLAIN = [p for p in map(random_program, range(60)) if p.law in ("logit", "stick") and not (p.fault or p.group)][:8]


def density_of(program: Program, times: float = 1.0) -> RowDensity:
    """Of the coefficients, with every count so many times."""
    log = program.log()
    space = bm.StateActionSpace.from_log(log, ends=program.ends, support=program.support)
    law = look_at(program.prior, space).laws[0]
    counts = space_counts(log, log.covariates, space)
    return RowDensity(visited_cells(law, times * counts), *prior_of_coefficients(law))


def points_of(density: RowDensity) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(3, density.mean.size))


@pytest.mark.parametrize("program", PLAIN)
def test_neither_the_order_of_rows_nor_a_covariate_that_is_not_looked_at_counts(program):
    density = density_of(program)
    points = points_of(density)
    expected = density.minus_log(points)
    rng = np.random.default_rng(1)
    frame = program.frame
    shuffled = replace(program, frame=frame.sample(frac=1.0, random_state=1))
    # A column more: as many contexts as rows.
    finer = replace(program, frame=frame.assign(y=rng.normal(size=len(frame))), covariates=["y", *program.covariates])
    for other in (shuffled, finer):
        np.testing.assert_allclose(density_of(other).minus_log(points), expected, rtol=1e-12)


@pytest.mark.parametrize("program", PLAIN)
def test_rows_twice_are_counts_twice(program):
    twice = replace(program, frame=pd.concat([program.frame, program.frame], ignore_index=True))
    density = density_of(twice)
    points = points_of(density)
    np.testing.assert_allclose(density.minus_log(points), density_of(program, 2.0).minus_log(points), rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_most_likely_rows_depend_on_no_reference_and_no_order_of_labels(seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"s": rng.choice(["s0", "s1"], 80), "a": rng.choice(["a0", "a1"], 80), "dead": False})
    frame = frame.assign(t=rng.choice(["s0", "s1", "s2"], 80), x=rng.normal(size=80).round(1))
    common = {"ends": False, "covariates": ["x"], "group": None, "terms": "x + action", "by": None, "law": "logit"}
    heights = []
    for states in (["s0", "s1", "s2"], ["s2", "s0", "s1"]):
        for reference in states:
            options = {"reference": reference, "standardise": True}
            program = Program(frame, states, ["a0", "a1"], options=options, sd=np.inf, **common)
            density = density_of(program)
            heights.append(find_mode(density, np.zeros(density.mean.size))[1])
    np.testing.assert_allclose(heights, heights[0], rtol=1e-11)


def test_a_flat_prior_without_data_has_no_mode():
    program = replace(PLAIN[0], sd=np.inf)
    with pytest.raises((NoModeError, ValueError), match=r"no mode|not finite|curvature"):
        log = program.log()
        space = bm.StateActionSpace.from_log(log, ends=program.ends, support=program.support)
        bm.infer(jax.random.key(0), program.prior, space=space, method="laplace")


def test_one_context_has_the_rows_of_a_space_without():
    frame = pd.DataFrame({"s": ["a", "b"] * 4, "a": ["x", "x", "y", "y"] * 2, "t": ["b", "a", "a", "b"] * 2, "age": 1})
    roles = {"state": "s", "action": "a", "next_state": "t"}
    plain, about = bm.read_log(frame, **roles), bm.read_log(frame, **roles, covariates=["age"])
    drawn = []
    for log in (plain, about):
        space = bm.StateActionSpace.from_log(log)
        with jax.enable_x64(True):
            law = partial(bm.models.logit_rows, options=bm.models.RegressionOptions(by="state"))
            rows = handlers.seed(lambda s=space, law=law: law(s, "action", reference="a"), 1)()
        drawn.append(np.asarray(rows))
    assert drawn[1].shape == (1, 2, 2, 2) and np.array_equal(drawn[0], drawn[1][0])


@pytest.mark.parametrize("seed", range(20))
def test_a_test_is_worth_no_more_than_the_covariate_and_that_no_more_than_all(seed):
    """Values [draw, policy, context]: knowing the context beside knowing the draw as well."""
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=(50, 4, 3)), rng.dirichlet(np.ones(3))
    mean = values.mean(0)
    result = rng.dirichlet(np.ones(4), 3).T
    test, covariate = knowing(mean, weights, result), knowing(mean, weights)
    everything = (values.max(1).mean(0) @ weights) - (mean @ weights).max()
    assert -1e-12 <= test <= covariate + 1e-12 <= everything + 2e-12
