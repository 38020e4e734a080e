"""Programs that are almost of a conjugate form: each is refused, or has the evidence of the program itself.

Whether a program that detection accepts is right is not for its author to say: quadrature over NumPyro's log density
says so (`quadrature_judge`). That the judge sees a fault is shown on detection with one rule broken at a time.
"""

from collections import Counter

import jax
import numpy as np
import pytest

from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.detection import detect as detector
from bayes_mdp.inference.detection import detect_rows
from bayes_mdp.inference.detection.certify import certify
from bayes_mdp.inference.detection.detect import detect
from bayes_mdp.inference.detection.entries import Symbols
from bayes_mdp.inference.detection.probe import Probe
from bayes_mdp.inference.detection.trace import trace_program
from tests.inference.detection.near_misses import FORMS, SITES, VALUES, NearMiss, crossed, particular
from tests.inference.detection.quadrature_judge import draw_data, exact_evidence, log_evidence

REFUSED, RIGHT, WRONG = "refused", "right", "wrong"
PARTICULAR, CROSSED = list(particular()), list(crossed())
SHARE = 30
"""Of what is particular to a form, one in so many runs by default; of forms x mutations every other, one form each."""


def by_form():
    """{form: (programs of the default run, all others)}."""
    forms = {}
    mutations = len(VALUES) + len(SITES)
    for number, program in enumerate(PARTICULAR):
        default, others = forms.setdefault(program.name.split(":")[0], ([], []))
        (others if number % SHARE else default).append(program)
    for number, program in enumerate(CROSSED):
        default, others = forms.setdefault(program.name.split(":")[0], ([], []))
        form, mutation = divmod(number, mutations)
        (others if (form - mutation) % (2 * len(FORMS)) else default).append(program)
    return forms


PROGRAMS = by_form()


def closed_form(program: NearMiss, *, certified=True):
    """The belief before data, by the steps of the exact route; None: refused."""
    with jax.enable_x64(True):
        try:
            traced = trace_program(program.prior, program.space)
            detected = detect(Probe(traced))
            if certified:
                certify(traced, detected, np.random.default_rng(0))
        except ValueError:  # NotConjugate is one; others are about parameters out of their range
            return None
        return detected.posterior


def judged(program: NearMiss, *, certified=True, seed=3):
    """Refused, or accepted and right or wrong; and the two log evidences of a small data set."""
    posterior = closed_form(program, certified=certified)
    if posterior is None:
        return REFUSED, None, None
    data = draw_data(program.prior, program.space, seed)
    found = exact_evidence(posterior, data)
    expected = log_evidence(program.prior, program.space, data)
    right = abs(found - expected) <= program.tolerance * max(1.0, abs(expected))
    return RIGHT if right else WRONG, found, expected


def assert_none_is_wrong(programs):
    """Judge all; the message names those that are wrong."""
    count, wrong = Counter(), []
    for program in programs:
        verdict, found, expected = judged(program)
        count[verdict] += 1
        if verdict == WRONG:
            wrong.append(f"{program.name}: {found}, and quadrature gives {expected}")
    print(f"{dict(count)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.some(3)
@pytest.mark.parametrize("form", PROGRAMS)
def test_a_near_miss_is_not_taken_for_the_form(form):
    assert_none_is_wrong(PROGRAMS[form][0])


@pytest.mark.slow
@pytest.mark.parametrize("form", PROGRAMS)
def test_nor_is_any_other(form):
    assert_none_is_wrong(PROGRAMS[form][1])


def test_there_are_enough_of_them():
    assert sum(len(default) for default, _ in PROGRAMS.values()) >= 60
    names = [program.name for program in (*PARTICULAR, *CROSSED)]
    assert len(set(names)) == len(names) >= 1500


# --- the judge sees what is wrong ------------------------------------------------------------------------------------


def named(name):
    """The program of this name."""
    return next(program for program in (*PARTICULAR, *CROSSED) if program.name == name)


def absolute_rounding(self, ids, number):
    """`Symbols.equals` as it was: 1e-13 is zero."""
    return np.abs(self.values(ids) - number) <= 1e-12


BROKEN = {
    "cells of one mean may differ in noise": (
        "log-normal: one mean, two noises",
        detector,
        "first_index",
        lambda bad: None,
    ),
    "cells of one probability may differ in total_count": (
        "counts: binomial: one probability, two totals",
        detector,
        "first_index",
        lambda bad: None,
    ),
    "the density of r is that of x": (
        "normal: coefficient",
        RewardCells,
        "log_constant",
        lambda self, cell, outcome, reward, weight: np.zeros(np.shape(weight)),
    ),
    "1e-13 is zero": (
        "counts: exponential: offset of 1e-13, rates of 1e-13",
        Symbols,
        "equals",
        absolute_rounding,
    ),
    "a row may mix two sites": ("row: complement of the other", detect_rows, "_check_whole", lambda *_: None),
    "a site may be scaled": ("geometric: scaled site", detect_rows, "bent", lambda site: None),
    "a density may hold a conjugate site": ("exponential: survey site", detect_rows, "bent", lambda site: None),
    "every mean is affine": ("regression: tanh of the sum", detector, "is_affine", lambda *_: True),
    "every weight has the precision of the rewards": (
        "regression: tau in one weight",
        detector,
        "_weights_prior",
        lambda probe, weights, tau: (np.array([0.2, -0.1]), np.eye(2)),
    ),
}
"""What the rule would say, a program, and the name that is replaced where."""


@pytest.mark.some(2)
@pytest.mark.parametrize("rule", BROKEN)
def test_the_judge_sees_a_broken_rule(rule, monkeypatch):
    # Without the certificate, the second line: the judge alone has to see it.
    name, where, what, other = BROKEN[rule]
    assert judged(named(name), certified=False)[0] != WRONG
    monkeypatch.setattr(where, what, other)
    if rule == "a density may hold a conjugate site":
        monkeypatch.setattr(detect_rows, "check_above", lambda *_: None)
    assert judged(named(name), certified=False)[0] == WRONG


def test_the_certificate_sees_it_too(monkeypatch):
    program = named("log-normal: one mean, two noises")
    monkeypatch.setattr(detector, "first_index", lambda bad: None)
    assert closed_form(program, certified=False) is not None
    assert closed_form(program) is None
