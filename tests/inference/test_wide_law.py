"""Rewards of 0 and 1 (or counts) under a law that allows far more: said where values are printed, and nowhere else."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.wide_law import wide_law
from bayes_mdp.mdp import Episodic, Log, Transitions
from tests.test_cli import run

KEY = jax.random.key(0)
SPACE = bm.StateActionSpace(3, 2)
NORMAL = bm.models.dirichlet_normal_gamma()
BINARY = "if rewards can only be 0 or 1, use models.dirichlet_bernoulli"
COUNTS = "if rewards can only be 0, 1, 2, ..., use models.dirichlet_poisson"


def log_of(reward: Any, seed: int = 0) -> Transitions:
    rng, number = np.random.default_rng(seed), len(reward)
    state, action, after = (rng.integers(n, size=number) for n in (3, 2, 3))
    return Transitions(state, action, np.asarray(reward, float), after)


def ward(number: int = 60) -> pd.DataFrame:
    """Stays of two days: nothing on the first, 1 for who is alive at the end of the second (all but one)."""
    rows = [(e, day, e % 2, day * float(e != 7), 1 - day) for e in range(number) for day in range(2)]
    return pd.DataFrame(rows, columns=["stay", "s", "a", "alive", "s2"])


def expected(reward: np.ndarray, real: bool) -> str | None:
    """By the rewards themselves: the sentence that is due under a law of all numbers (else: of all counts)."""
    kinds = set(np.unique(reward).tolist())
    if kinds == {0.0, 1.0}:
        return BINARY
    counts = len(reward) >= 10 and all(r >= 0 and r == int(r) for r in kinds) and not kinds <= {0.0, 1.0}
    return COUNTS if counts and real else None


def _rewards(kind: str, rng: np.random.Generator, number: int) -> np.ndarray:
    return {
        "0 or 1": lambda: rng.integers(0, 2, number),
        "seldom 1": lambda: (np.arange(number) == 3).astype(float),
        "counts": lambda: rng.poisson(3.0, number),
        "nothing": lambda: np.zeros(number),
        "always 1": lambda: np.ones(number),
        "signs": lambda: rng.choice([-1.0, 1.0], number, p=[0.7, 0.3]),
        "halves": lambda: rng.integers(0, 3, number) / 2,
        "numbers": lambda: rng.normal(0.5, 0.5, number),
        "one that is none": lambda: np.where(np.arange(number) == 5, 0.3, rng.integers(0, 2, number)),
    }[kind]().astype(float)


KINDS = ("0 or 1", "seldom 1", "counts", "nothing", "always 1", "signs", "halves", "numbers", "one that is none")


@pytest.mark.parametrize("kind", KINDS)
def test_said_exactly_where_the_rewards_are_such(kind):
    """Normal, Student-t free of noise, Poisson and Bernoulli laws; 5 and 40 rewards; against the rewards themselves."""
    rng = np.random.default_rng(1)
    for number in (5, 40):
        reward = _rewards(kind, rng, number)
        laws = [(NORMAL, True), (bm.models.dirichlet_normal(rewards_on="outcome"), True)]
        if (reward >= 0).all() and (reward % 1 == 0).all():
            laws.append((bm.models.dirichlet_poisson(), False))
        for prior, real in laws:
            said, due = wide_law(bm.infer(KEY, prior, log_of(reward), space=SPACE)), expected(reward, real)
            assert (said is None) == (due is None) and (due is None or due in str(said)), (kind, number, said)
    if kind == "0 or 1":
        assert wide_law(bm.infer(KEY, bm.models.dirichlet_bernoulli(), log_of(reward), space=SPACE)) is None


def test_silent_without_rewards_and_where_rewards_are_known():
    data = log_of([0.0, 1.0] * 10)
    for prior, log in ((NORMAL, None), (NORMAL, Transitions(data.state, data.action, None, data.next_state))):
        assert wide_law(bm.infer(KEY, prior, log, space=SPACE)) is None
    assert wide_law(bm.infer(KEY, bm.models.known_rewards(0.0), space=SPACE)) is None
    assert wide_law(object()) is None


def test_on_draws_and_on_hyperparameters():
    """Draws of the whole program keep sums too; those of a hierarchical prior are those of its data."""
    data = log_of([0.0, 1.0, 1.0, 0.0] * 10)
    drawn = bm.infer(KEY, bm.models.dirichlet_normal(), data, space=SPACE, method="laplace")
    assert BINARY in str(wide_law(drawn)) and BINARY in " ".join(str(drawn).split())


def survival(prior: Any) -> Any:
    frame = ward()
    data = Transitions(frame.s, frame.a, frame.alive, frame.s2, truncated=frame.s == 1)
    return bm.infer(KEY, prior, data, space=bm.StateActionSpace(2, 2))


def test_a_probability_above_one_is_not_printed_without_the_sentence():
    """59 of 60 survive. Under the default law the mean reward of the second day, a probability, lies above 1 in some
    draws; under the law that the sentence names it never does, and nothing is said."""
    start, policy = np.array([1.0, 0.0]), np.full((2, 2), 0.5)
    for prior, beyond in ((NORMAL, True), (bm.models.dirichlet_bernoulli(), False)):
        posterior = survival(prior)
        value = bm.policy_value(KEY, posterior, policy, Episodic(2), initial=start, num_draws=50)
        paid = [posterior.reward_cells.sample(jax.random.key(k))[1] for k in range(20)]
        assert (np.max(paid) > 1.0) == beyond
        for printed in (posterior, value):
            assert " ".join(str(printed).split()).count(BINARY) == beyond


def test_a_stated_range_that_is_left_names_the_law():
    """What would decide is the law that keeps to the range; the comparison says it with the values too."""
    start, policy = np.array([1.0, 0.0]), [0, 0]
    options: Any = {"initial": start, "num_draws": 400, "options": bm.decisions.VerdictOptions(value_range=(0.0, 1.0))}
    compared = bm.compare_policies(KEY, survival(NORMAL), {"a": policy, "b": policy}, Episodic(2), **options)
    verdict = compared.verdict
    assert str(compared).count("\n  the 120 rewards have the sums of numbers that are 0 or 1") == 1
    assert any("outside the stated range" in reason for reason in verdict.reasons)
    assert any(BINARY in cure for cure in verdict.would_decide)


def test_fit_says_it(capsys, tmp_path):
    """The log of a ward in the shell: once with the posterior, once with the values."""
    path = tmp_path / "ward.csv"
    ward().to_csv(path, index=False)
    columns = ["--state", "s", "--action", "a", "--next-state", "s2", "--reward", "alive", "--episode", "stay"]
    code, out, _ = run(
        capsys, "fit", path, *columns, "--horizon", "2", "--draws", "20", "--prior", "dirichlet_normal_gamma"
    )
    assert code == 0 and " ".join(out.split()).count("use models.dirichlet_bernoulli (in the shell --prior dir") == 2


@pytest.mark.slow
def test_a_decision_says_it(tmp_path):
    path = tmp_path / "ward.csv"
    ward().to_csv(path, index=False)
    log = bm.read_log(path, state="s", action="a", next_state="s2", reward="alive", episode="stay")
    assert isinstance(log, Log)
    decision = bm.decide(KEY, NORMAL, log, Episodic(2), options=bm.recommend.DecideOptions(num_draws=100, checks=False))
    assert BINARY in " ".join(str(decision).split())
