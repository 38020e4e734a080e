"""What to try depends on the direction, and on how the rows of the posterior are believed."""

from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.calibration.criticism.criticise import (
    ALIKE,
    CHOSEN,
    INFORMED,
    KINDS,
    LEARNT,
    NEW,
    RETURNS,
    SHARED,
    UNKNOWN,
    WHERE,
    criticise,
    kind_of_rows,
    next_step,
)
from bayes_mdp.inference import NUTS
from bayes_mdp.mdp import Log, StateActionSpace, Transitions
from tests.inference.bayes_problems import tied

KEY = jax.random.key(0)
S, A = 4, 2
SPACE = StateActionSpace(S, A)
DATA = Transitions([0, 1, 2, 3] * 5, [0, 1] * 10, None, [1, 2, 3, 0] * 5, None)
POOL, POSSIBLE, LEARN, APART = "partial_pooling", "--support FILE", "unknown_concentration", "independent ones"


def fitted(prior: Any, space: StateActionSpace = SPACE) -> Any:
    return bm.infer(KEY, prior, DATA, space=space)


def test_kinds_of_rows():
    known = bm.models.known_rewards(0.0)
    assert kind_of_rows(fitted(known)) == ALIKE
    limited = StateActionSpace(S, A, support=np.repeat((np.eye(S) + np.roll(np.eye(S), 1, 1))[:, None], A, 1))
    assert kind_of_rows(fitted(known, limited)) == ALIKE
    listed = StateActionSpace(S, A, successors=np.tile(np.arange(S), (S, A, 1)))
    assert kind_of_rows(fitted(known, listed)) == ALIKE
    counts = np.tile([1.0, 2.0, 3.0, 4.0], (S, A, 1))
    assert kind_of_rows(fitted(bm.models.known_rewards(0.0, counts))) == INFORMED
    three = StateActionSpace(3, 2)
    few = Transitions([0, 1, 2] * 5, [0, 1, 0] * 5, [0.0, 1.0, 1.0] * 5, [1, 2, 0] * 5)
    assert kind_of_rows(bm.infer(KEY, tied, few, space=three)) == SHARED


@pytest.mark.slow  # chains
@pytest.mark.filterwarnings("ignore")
def test_rows_whose_hyperparameters_are_learnt():
    known_given = partial(bm.models.known_rewards, 0.0)
    learnt = fitted(bm.models.unknown_concentration(dist.LogNormal(0.0, 1.0), rewards=known_given))
    assert kind_of_rows(learnt) == LEARNT
    pooled = bm.infer(KEY, bm.models.partial_pooling(known_given), DATA, space=SPACE)
    assert kind_of_rows(pooled) == SHARED
    method = NUTS(num_warmup=20, num_samples=20)
    assert kind_of_rows(bm.infer(KEY, bm.models.known_rewards(0.0), DATA, space=SPACE, method=method)) == UNKNOWN


@pytest.mark.parametrize("above", [True, False])
def test_independent_rows_are_never_told_to_be_independent(above):
    for name in (NEW, WHERE, CHOSEN, RETURNS):
        for kind in (ALIKE, INFORMED):
            assert APART not in next_step(name, above=above, kind=kind)
    said = next_step(WHERE, above=above, kind=ALIKE)
    assert POSSIBLE in said and (POOL in said) == above and (LEARN in said) != above


def test_rows_that_share():
    assert APART in next_step(WHERE, above=False, kind=SHARED)
    assert POOL not in next_step(WHERE, above=True, kind=SHARED) and POSSIBLE in next_step(
        WHERE, above=True, kind=SHARED
    )
    both = next_step(WHERE, above=False, kind=UNKNOWN)
    assert APART in both and POSSIBLE in both


@pytest.mark.parametrize("kind", KINDS)
def test_where_no_outcome_was_new_too_many_were_expected(kind):
    """Whatever the rows share: none leads anywhere."""
    assert next_step(WHERE, above=False, kind=kind, none_new=True) == next_step(NEW, above=False, kind=kind)


def test_a_log_without_new_outcomes_under_a_flat_prior():
    """A ring: each pair has one outcome; the flat prior expects others, and the advice is not about sharing."""
    states, number = 12, 1200
    rng = np.random.default_rng(0)
    action = rng.integers(2, size=number)
    state = np.arange(number) % states
    cut = np.arange(number) % 24 == 23
    log = Log(Transitions(state, action, None, (state + 1) % states, None, cut), tuple(range(states)), (0, 1))
    space, prior = StateActionSpace.from_log(log), bm.models.known_rewards(0.0)
    posterior: Any = bm.infer(KEY, prior, log, space=space)
    found = criticise(
        KEY, posterior, log, bm.Discounted(0.9), options=bm.calibration.CriticiseOptions(num_replicates=159)
    )
    assert {NEW, WHERE} <= set(found.alarms)
    finding = found.findings[WHERE]
    assert finding.text.startswith("no held-out outcome was new in its row; the belief expects new ones")
    assert POSSIBLE in found.said(WHERE) and APART not in found.said(WHERE) and POOL not in found.said(WHERE)
    assert found.threshold == pytest.approx(0.05 / len(found.findings))
    assert f"(failed, p = {finding.p_value:.3g}; fails at {found.threshold:.3g} or less)" in str(found)
