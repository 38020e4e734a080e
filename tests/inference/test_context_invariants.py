"""What changes nothing in a regression of rows: the order of rows and labels, covariates unread, the reference.

Random programs of `regression_programs`, by the density that draws come from; all equalities are to rounding.
"""

# What `from_log` and `infer` return depends on whether the log has covariates, which a type checker cannot see.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

from dataclasses import replace
from functools import cache, partial
from itertools import islice

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro import handlers

import bayes_mdp as bm
from bayes_mdp.decisions import ValueOptions, knowing
from bayes_mdp.decisions.for_whom import all_policies
from bayes_mdp.inference.context_posterior import (
    ContextPosterior,
    Tables,
    look_at,
    prior_of_coefficients,
    space_counts,
)
from bayes_mdp.inference.integrals.mode_draws import NoModeError, find_mode
from bayes_mdp.inference.integrals.row_density import RowDensity, visited_cells
from bayes_mdp.information import value_of_covariates
from tests.inference.regression_programs import Program, random_program


@cache
def plain() -> list[Program]:
    """The first eight of 60 random programs whose law is logit or stick, without faults and groups."""
    programs = (p for p in map(random_program, range(60)) if p.law in ("logit", "stick") and not (p.fault or p.group))
    return list(islice(programs, 8))


def density_of(program: Program, times: float = 1.0) -> RowDensity:
    """Of the coefficients, with every count so many times."""
    log = program.log()
    space = bm.StateActionSpace.from_log(log, ends=program.ends, support=program.support)
    law = look_at(program.prior, space).laws[0]
    counts = space_counts(log, log.covariates, space)
    return RowDensity(visited_cells(law, times * counts), *prior_of_coefficients(law))


def points_of(density: RowDensity) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(3, density.mean.size))


@pytest.mark.parametrize("number", range(8))
def test_neither_the_order_of_rows_nor_a_covariate_that_is_not_looked_at_counts(number):
    program = plain()[number]
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


@pytest.mark.parametrize("number", range(8))
def test_rows_twice_are_counts_twice(number):
    program = plain()[number]
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
    program = replace(plain()[0], sd=np.inf)
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


@pytest.mark.parametrize("seed", range(6))
def test_most_likely_rows_of_a_saturated_design_are_frequencies_of_product_states(seed):
    """A factor with coefficients of its own in every state and action has as many numbers as there are rows."""
    rng = np.random.default_rng(seed)
    size = 300
    frame = pd.DataFrame({"s": rng.choice(["s0", "s1"], size), "a": rng.choice(["a0", "a1"], size), "dead": False})
    frame = frame.assign(t=rng.choice(["s0", "s1", "s2"], size), z=rng.choice(["u", "v", "w"], size))
    options = {"reference": "s0", "standardise": bool(seed % 2)}
    about = {"covariates": ["z"], "group": None, "terms": "z", "by": ["state", "action"], "law": "logit"}
    program = Program(frame, ["s0", "s1", "s2"], ["a0", "a1"], False, options=options, sd=np.inf, **about)
    log = program.log()
    space = bm.StateActionSpace.from_log(log)
    law = look_at(program.prior, space).laws[0]
    counts = space_counts(log, log.covariates, space)
    assert (counts[:, :2] > 0).all()  # else there is no mode
    cells = visited_cells(law, counts)
    # Cells of the third state have no rows, and its columns no coefficients to find.
    visited = (cells.columns != 0).any(0)
    number = prior_of_coefficients(law)[0].shape[1]
    rows = _saturated(cells._replace(columns=cells.columns[:, visited]), number)
    frequency = counts[counts.any(-1)]
    np.testing.assert_allclose(rows, frequency / frequency.sum(-1, keepdims=True), rtol=0, atol=1e-9)


def _saturated(cells, number: int) -> np.ndarray:
    """Rows at the mode under a flat prior, the reference first."""
    shape = cells.columns.shape[1], number
    density = RowDensity(cells, np.zeros(shape), np.full(shape, np.inf))
    mode = find_mode(density, np.zeros(density.mean.size))[0]
    odds = np.exp(np.pad(cells.columns @ mode.reshape(shape), ((0, 0), (1, 0))))
    return odds / odds.sum(1, keepdims=True)


RATE, BEGINS = 0.9, np.array([0.3, 0.7])
PAID = np.array([[1.0, 0.6], [0.4, 0.2]])


def family(rows: np.ndarray) -> ContextPosterior:
    """Draws of rows [N C S A O] as a posterior in four contexts of two covariates, paid by state and action."""
    ages, sexes = np.tile([0, 1], 20), np.repeat(["f", "m"], 20)
    frame = pd.DataFrame({"s": [0, 1] * 20, "a": [0, 0, 1, 1] * 10, "t": 0, "end": [True, False] * 20})
    frame = frame.assign(age=ages, sex=sexes, id=range(40))
    roles = {"state": "s", "action": "a", "next_state": "t", "terminated": "end", "subject": "id"}
    space = bm.StateActionSpace.from_log(bm.read_log(frame, **roles, covariates=["age", "sex"]))
    tables = Tables(rows, np.broadcast_to(PAID, (*rows.shape[:2], 2, 2)))
    return ContextPosterior(space, lambda s: bm.models.MDPSpec(rows[0], PAID), "exact", together=tables)


def values_by_hand(rows: np.ndarray) -> np.ndarray:
    """[policy, draw, context] of the four deterministic policies, by dense solves."""
    values = []
    for policy in all_policies(2, 2):
        chain = np.stack([rows[:, :, s, policy[s], :2] for s in range(2)], 2)
        paid = np.broadcast_to(PAID[[0, 1], policy], chain.shape[:-1])
        values.append(np.linalg.solve(np.eye(2) - RATE * chain, paid[..., None])[..., 0] @ BEGINS)
    return np.array(values)


@pytest.mark.parametrize("seed", range(4))
def test_values_of_populations_and_of_covariates_are_those_of_random_draws_by_hand(key, seed):
    """One-hot weights: J_c. Knowing: 0 <= a covariate <= all of them <= the draw as well; 0 where rows do not vary."""
    rng = np.random.default_rng(seed)
    rows, weights = rng.dirichlet(np.ones(3), (64, 4, 2, 2)), rng.dirichlet(np.ones(4))
    posterior, values = family(rows), values_by_hand(rows)
    given = {"objective": bm.Discounted(RATE), "initial": BEGINS, "num_draws": 64}
    order = bm.policy_value(key, posterior, [0, 1], by="context", **given)
    for number, context in enumerate(order.values.values()):
        alone = bm.policy_value(key, posterior, [0, 1], options=ValueOptions(population=np.eye(4)[number]), **given)
        assert np.array_equal(alone.draws, context.draws)
        np.testing.assert_allclose(np.sort(alone.draws), np.sort(values[1, :, number]), rtol=1e-6)
    everybody = bm.policy_value(key, posterior, [0, 1], options=ValueOptions(population=weights), **given)
    np.testing.assert_allclose(np.sort(everybody.draws), np.sort(values[1] @ weights), rtol=1e-6)
    about = {"population": weights, **given}
    age, both = (value_of_covariates(key, posterior, by=by, **about) for by in ("age", "context"))
    mean = values.mean(1)
    expected = mean.max(0) @ weights - (mean @ weights).max()
    assert both == pytest.approx(expected, abs=1e-6)
    everything = values.max(0).mean(0) @ weights - (mean @ weights).max()
    assert -1e-9 <= age <= both + 1e-9 <= everything + 1e-6
    alike = family(np.repeat(rows[:, :1], 4, 1))
    assert value_of_covariates(key, alike, **about) == pytest.approx(0.0, abs=1e-9)


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
