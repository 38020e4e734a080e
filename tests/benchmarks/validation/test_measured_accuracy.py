"""The table of claims: a small measurement gives the stored verdicts; the printed table; the judge itself."""

import dataclasses
from itertools import product

import numpy as np
import pytest

from benchmarks.validation.__main__ import main
from benchmarks.validation.measured_accuracy import (
    METHODS,
    accuracy_csv,
    changed_verdicts,
    describe_accuracy,
    judge,
    measure_accuracy,
    stored_accuracy,
)
from benchmarks.validation.random_beliefs import CLASSES, REWARDS, random_problem

pytestmark = pytest.mark.numerics

SAID = {"exact": ("exact",), "upper bound": ("upper bound", "exact")}  # what is stated -> what may be measured


def test_the_stored_table_is_complete():
    stored = stored_accuracy()
    assert [(c.problems, c.rewards, c.method) for c in stored] == list(product(CLASSES, REWARDS, METHODS))
    assert accuracy_csv(stored).splitlines()[0].startswith("method,problems,rewards,verdict,says,least,median,largest")
    for claim in stored:
        assert (claim.verdict == "refused") == np.isnan(claim.median) == (claim.says == "refused")


def test_nothing_that_is_stated_was_measured_otherwise():
    """A method that says exact is exact, one that says upper bound never under-estimates; draws serve every class."""
    for claim in stored_accuracy():
        assert claim.verdict in SAID.get(claim.says, (claim.verdict,)), claim
        if claim.method == "by draws":
            assert claim.verdict == "exact"
        if claim.problems == "cyclic" and claim.method != "by draws":
            assert claim.verdict in ("under-estimates", "refused")
        if claim.problems == "tied" and claim.method != "by draws":
            assert claim.verdict in ("under-estimates", "refused")


@pytest.mark.slow
def test_a_small_measurement_gives_the_stored_verdicts():
    """Acyclic, rewards on the pair: closed forms and draws, the printed form on its counterexample. Seeds fixed."""
    methods = [method for method in METHODS if not method.startswith("exact UBE")]  # two more programs to compile
    size = {"num_problems": 3, "num_draws": 8000, "method_draws": 4000}
    ours = measure_accuracy(**size, classes=["acyclic"], rewards=["pair"], methods=methods)
    assert [c.method for c in ours] == methods
    assert changed_verdicts(ours, stored_accuracy()) == []
    printed = next(c for c in ours if c.method == "UBE printed")
    assert printed.least == pytest.approx(0.5, rel=0.05), "half of the truth"


@pytest.mark.slow
def test_all_classes_give_the_stored_verdicts():
    ours = measure_accuracy(num_problems=4, num_draws=20_000, method_draws=20_000)
    assert changed_verdicts(ours, stored_accuracy()) == []
    loops = next(c for c in ours if (c.method, c.problems, c.rewards) == ("UBE ratio", "cyclic", "pair"))
    assert loops.least == pytest.approx((1 - 0.8) / (1 + 0.8), rel=0.05)


def test_a_changed_verdict_is_a_sentence():
    stored = stored_accuracy()
    other = [dataclasses.replace(stored[0], verdict="exact"), dataclasses.replace(stored[1], says="exact"), *stored[2:]]
    assert changed_verdicts(other, stored) == [
        "UBE ratio, acyclic, rewards on the pair: verdict is exact, stored is upper bound",
        "UBE dirichlet, acyclic, rewards on the pair: says is exact, stored is upper bound",
    ]


def test_the_judge():
    error = np.full(3, 0.01)
    assert judge(np.array([0.96, 1.0, 1.05]), error) == "exact"
    assert judge(np.array([0.96, 1.0, 1.5]), error) == "upper bound"
    assert judge(np.array([0.9, 1.0, 1.5]), error) == "under-estimates"


def test_the_command_prints_the_table(capsys):
    assert main(["accuracy"]) == 0
    out = capsys.readouterr().out
    assert out.strip() == describe_accuracy(stored_accuracy())
    for word in (*METHODS, *CLASSES, "under-estimates", "refused"):
        assert word in out


@pytest.mark.parametrize("kind", CLASSES)
def test_problems_are_of_their_class(kind):
    for law in REWARDS:
        posterior, _ = random_problem(kind, law, 3)
        again, other = random_problem(kind, law, 3)[0], random_problem(kind, law, 4)[0]
        rows = [getattr(p, "components", p).transition_probs.prior for p in (posterior, again, other)]
        assert np.array_equal(rows[0], rows[1]) and not np.array_equal(rows[0], rows[2])
        assert (posterior.shared_parameters is None) == (kind != "tied")
        assert hasattr(posterior, "components") == (kind == "mixture")
        assert (posterior.space.horizon is None) == (kind == "cyclic")
