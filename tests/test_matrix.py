"""Every agent and every function of judging with every kind of posterior works, or refuses it with one sentence.

By default the quick cells and all refusals; with `-m slow` every cell, compiled, and a run of every agent. The page
that shows the matrix is compared with the cells: `python -m tests.matrix` writes it anew.
"""

from functools import cache

import jax
import numpy as np
import pytest

from bayes_mdp.agents import AGENTS
from tests import matrix
from tests.matrix import (
    FUNCTIONS,
    KINDS,
    PAGE,
    ROUTES,
    Cell,
    agent_cell,
    function_cell,
    outcome,
    run_cell,
    takes_belief,
)

LONG_TO_TRACE = {"exact_ube", "monte_carlo_thompson", "variance_optimism"}
"""Seconds each, by shapes alone."""

BELIEVING = [name for name in AGENTS if takes_belief(name)]


@cache
def said() -> dict[tuple[str, str], bool]:
    """What the page says."""
    return matrix.verdicts(PAGE.read_text())


def _compare(row: str, kind: str, cell: Cell) -> None:
    page = PAGE.read_text()
    hint = "run `python -m tests.matrix` if that is meant"
    assert cell.works == said()[row, kind], f"{row} with {kind}: the page says otherwise ({cell.why}); {hint}"
    assert cell.why in page, f"{row} with {kind}: the page has another sentence; {hint}"


def test_the_page_has_every_cell():
    """All names, and no others."""
    assert {row for row, _ in said()} == {*BELIEVING, *FUNCTIONS, *ROUTES}
    assert {kind for _, kind in said()} == set(KINDS)
    assert all(f"`{name}`" in PAGE.read_text() for name in AGENTS)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [name for name in BELIEVING if name not in LONG_TO_TRACE])
def test_an_agent_plans_or_refuses(name):
    """By shapes alone, with every kind."""
    for kind in KINDS:
        _compare(name, kind, agent_cell(name, kind, compiled=False))


@pytest.mark.parametrize("name", [*FUNCTIONS, *ROUTES])
def test_a_function_answers_or_refuses(name):
    """With the kinds that it refuses, and if it is quick with all."""
    for kind in KINDS:
        if not said()[name, kind] or (name in FUNCTIONS and FUNCTIONS[name].quick):
            _compare(name, kind, function_cell(name, kind))


@pytest.mark.slow
@pytest.mark.parametrize("name", BELIEVING)
def test_an_agent_plans_with_finite_numbers(name):
    """Compiled."""
    for kind in KINDS:
        _compare(name, kind, agent_cell(name, kind))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FUNCTIONS, *ROUTES])
def test_a_function_gives_finite_numbers(name):
    for kind in KINDS:
        _compare(name, kind, function_cell(name, kind))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(AGENTS))
def test_an_agent_runs(name):
    """Three episodes of two seeds; what it refuses it refuses with the sentence of the page."""
    for kind in KINDS if takes_belief(name) else ["exact"]:
        cell = run_cell(name, kind)
        assert cell.works == (not takes_belief(name) or said()[name, kind]), cell.why


@pytest.mark.slow
def test_the_page_is_up_to_date():
    """Word for word."""
    assert matrix.render(*matrix.all_cells()) == PAGE.read_text()


def _wrong(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [AttributeError("x"), KeyError("x"), NotImplementedError("expected"), AssertionError(), ZeroDivisionError()],
)
def test_another_error_is_no_refusal(error):
    with pytest.raises(type(error)):
        outcome(lambda: _wrong(error))


@pytest.mark.parametrize("sentence", ["the posterior is bad", "one line, expected another\nand another"])
def test_a_sentence_that_says_nothing_is_seen(sentence):
    with pytest.raises(AssertionError):
        outcome(lambda: _wrong(ValueError(sentence)))


def test_a_number_that_is_not_finite_is_seen():
    with pytest.raises(AssertionError):
        outcome(lambda: [1.0, float("nan")])
    assert outcome(lambda: (1, "nan")).works and not outcome(lambda: _wrong(TypeError("expected x"))).works


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_belief_learns_from_known_data_inside_a_trace(kind):
    """A function that closes over a posterior and data is compiled like any other."""
    posterior, key = KINDS[kind].posterior, jax.random.key(0)
    found = jax.jit(lambda key: posterior.update(matrix.data()).sample(key).reward)(key)
    np.testing.assert_allclose(found, posterior.update(matrix.data()).sample(key).reward, rtol=1e-5)
