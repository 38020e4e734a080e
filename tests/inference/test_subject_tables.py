"""The table of numbers of the simulated logs of subjects: maximum likelihood, and where the others are shown."""

# What `from_log` and `infer` return depends on whether the log has covariates, which a type checker cannot see.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.context_posterior import look_at, prior_of_coefficients, space_counts
from bayes_mdp.inference.integrals.mode_draws import find_mode
from bayes_mdp.inference.integrals.row_density import RowDensity, visited_cells
from tests.inference.test_context_posterior import closed_form
from tests.subjects import SHARED, clinic_log, golden, needs_clinic

TESTS = Path(__file__).parents[1]
DESIGNS = {
    "clinic5": "state + age + frail + action",
    "clinic7": "state + age + frail + action + state:action + age:state",
    "clinic12": "state + age + frail + action + site",
}
SHOWN = {
    **dict.fromkeys(("clinic5", "clinic7", "clinic12", "polya-gamma"), "inference/test_subject_tables.py"),
    **dict.fromkeys(("clinic5 posterior", "clinic5 sticks", "clinic sites"), "inference/test_context_posterior.py"),
    **dict.fromkeys(("ordinal", "hazard"), "models/test_regression_rows.py"),
    "value at ML": "inference/test_context_posterior.py",
    **dict.fromkeys(("value posterior", "test", "exogenous"), "decisions/test_for_whom.py"),
    "tipping": "decisions/test_confounding.py",
}
"""Name of the lines -> the file of tests that holds the package to them."""
ELSEWHERE = {"budget", "chance", "shadow", "certificate", "interval"}
"""First words of lines on budgets and interval MDPs, which no covariates are part of."""


def lines(name: str) -> list[tuple[str, float, float]]:
    """(quantity, value, tolerance) of all lines of a name."""
    if not (SHARED / "subject_tables.csv").exists():
        return []
    table = pd.read_csv(SHARED / "subject_tables.csv")
    some = table[table["name"] == name]
    return list(zip(some["quantity"], some["value"], some["tolerance"], strict=True))


@needs_clinic
def test_every_line_has_a_test():
    for name in {name for name, _ in golden()}:
        if name.split()[0] not in ELSEWHERE:
            assert name in (TESTS / SHOWN[name]).read_text(), name


@cache
def most_likely(name: str) -> tuple[RowDensity, np.ndarray, np.ndarray, float, np.ndarray]:
    """The density under a flat prior, its columns, its mode, the log likelihood there, and the covariance."""
    options = {"covariates": ["age", "frail"], "group": "site"} if "site" in DESIGNS[name] else {}
    log = clinic_log(**options)
    space = bm.StateActionSpace.from_log(log, ends=True)

    def program(space):
        rows = bm.models.logit_rows(
            space, DESIGNS[name], reference=0, options=bm.models.RegressionOptions(standardise=False)
        )
        return bm.models.MDPSpec(rows, np.zeros((2, 2)))

    law = look_at(program, space).laws[0]
    mean, sd = prior_of_coefficients(law)
    cells = visited_cells(law, space_counts(log, log.covariates, space))
    density = RowDensity(cells, mean, np.full_like(sd, np.inf))
    mode, height, hessian = find_mode(density, np.zeros(mean.size))
    return density, cells.columns, mode, -height, np.linalg.inv(hessian)


@needs_clinic
@pytest.mark.parametrize("name", DESIGNS)
def test_every_line_of_maximum_likelihood(name):
    density, _, mode, height, covariance = most_likely(name)
    b = mode.reshape(-1, 2)
    error = np.sqrt(np.diag(covariance)).reshape(-1, 2)
    for quantity, value, tolerance in lines(name):
        if quantity == "patterns":
            known = float(density.size)
        elif quantity == "loglik":
            known = height
        elif quantity == "loglik at zero":
            known = -density.slopes(np.zeros(mode.size))[0]
        elif quantity == "loglik at .1":
            known = -density.slopes(np.full(mode.size, 0.1))[0]
        else:
            i, k = map(int, quantity[quantity.index("[") + 1 : -1].split(","))
            known = (b if quantity.startswith("b") else error)[i, k]
        assert known == pytest.approx(value, abs=max(tolerance, 1e-9)), quantity


def softmax(predictors: np.ndarray) -> np.ndarray:
    """Rows, the reference first."""
    odds = np.exp(np.concatenate([np.zeros((len(predictors), 1)), predictors], 1))
    return odds / odds.sum(1, keepdims=True)


@needs_clinic
@pytest.mark.parametrize("name", DESIGNS)
def test_the_most_likely_rows_are_those_of_statsmodels(name):
    """Every visited row, at our mode and at the coefficients of the table."""
    _, columns, mode, _, _ = most_likely(name)
    b = np.array([[golden()[name, f"b[{i},{k}]"] for k in range(2)] for i in range(columns.shape[1])])
    np.testing.assert_allclose(softmax(columns @ mode.reshape(-1, 2)), softmax(columns @ b), rtol=0, atol=1e-9)


@needs_clinic
@pytest.mark.parametrize(("quantity", "value", "tolerance"), lines("polya-gamma"))
def test_every_line_of_polya_gamma_variables(quantity, value, tolerance):
    """The closed forms that draws are held to; counts of 3.5, of which there are no draws, are refused before."""
    what, rest = quantity.split(" ", 1)
    mean, variance = closed_form(*map(float, rest.split(",")))
    assert {"mean": mean, "variance": variance}[what] == pytest.approx(value, abs=tolerance)
