# pyright: reportArgumentType=false
"""Every answer that recommends an experiment, or values information, names what the prior alone promises.

One state, costs of 1 to 2 of action `old`, and `new`, which nobody tried and whose mean reward is the prior's 0.
"""

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from tests.test_cli import COLUMNS, run

KEY = jax.random.key(0)
SPACE = bm.StateActionSpace(1, 3, states=("shop",), actions=("old", "new", "bad"))
COSTS = np.random.default_rng(0).uniform(-2.0, -1.0, 12)
DATA = bm.Transitions([0] * 15, [0] * 12 + [2] * 3, [*COSTS, -9.0, -8.0, -7.0], [0] * 15)
AIM = bm.Episodic(1)


def posterior(loc=0.0, data=DATA):
    return bm.infer(KEY, bm.models.dirichlet_normal(loc=loc, scale=1.0, noise_scale=1.0), data, space=SPACE)


BEST = 12 / 13 * COSTS.mean()  # of the tried pairs: one pseudo-reward of 0
SENTENCE = (
    f"1 pair never tried, whose mean reward (0) lies above that of every pair that was tried (at most {BEST:.3g})"
)
"""What `fit` says."""


def said(answer):
    return " ".join(str(answer).split())


def test_fit_says_it():
    assert SENTENCE in said(posterior()) and "never tried, whose" not in said(posterior(loc=-5.0))


def test_next_experiment_marks_the_value_as_the_priors():
    answer = bm.information.next_experiment(KEY, posterior(), AIM, num_data_sets=400)
    assert answer.best == ("shop", "new")
    text = said(answer)
    assert SENTENCE in text and "the EVSI of observing them is the prior's" in text and 'legal="logged"' in text
    assert "the present plan spends 100 % of its time in these: its value is the prior's too" in text
    rows = [line for line in str(answer).splitlines() if line.startswith("  shop, ")]
    assert [row.split()[1] for row in rows if row.endswith("  the prior's")] == ["new"] and len(rows) == 3
    table = answer.to_dataset()
    assert table["from_prior"].values[table["action"].values == "new"].all() and table["from_prior"].sum() == 1
    assert table.attrs["untried"] == SENTENCE and table.attrs["untried_share"] == 1.0


def test_studies_that_may_try_such_pairs_are_marked():
    studies = {
        "as now": bm.information.PolicyStudy([0], 2),
        "sometimes": bm.information.PolicyStudy([[0.9, 0.1, 0.0]], 2),
    }
    answer = bm.information.next_experiment(KEY, posterior(), AIM, studies, num_data_sets=20)
    assert answer.from_prior is not None
    assert dict(zip(answer.pairs, answer.from_prior.tolist(), strict=True)) == {
        ("as now",): False,
        ("sometimes",): True,
    }
    assert SENTENCE in said(answer) and said(answer).count(" the prior's ") == 1 + str(answer).count("  the prior's")


@pytest.mark.parametrize("loc", [-5.0, -1.9])
def test_nothing_is_marked_where_the_prior_promises_no_more_than_the_data(loc):
    answer = bm.information.next_experiment(KEY, posterior(loc), AIM, num_data_sets=20)
    assert answer.untried is None and not np.any(answer.from_prior) and answer.untried_share == 0.0
    assert "the prior's" not in str(answer) and "untried" not in answer.to_dataset().attrs


def test_the_value_of_perfect_information_says_it_whatever_policy_is_in_use():
    for policy in (None, [0]):
        answer = bm.information.expected_regret(KEY, posterior(), AIM, policy=policy, num_draws=20)
        assert SENTENCE in said(answer) and "what it is worth to know of them is the prior's" in said(answer)
    low = bm.information.expected_regret(KEY, posterior(-5.0), AIM, num_draws=20)
    assert low.untried is None and "never tried, whose" not in str(low)


def test_evpi_of_compared_policies_says_it():
    compared = bm.compare_policies(KEY, posterior(), {"old": [0], "half": [[0.5, 0.5, 0.0]]}, AIM, num_draws=100)
    answer = bm.information.evpi(KEY, compared)
    assert SENTENCE in answer.warning and "(half 0.5 of its time)" in answer.warning and answer.warning in str(answer)
    compared = bm.compare_policies(KEY, posterior(), {"old": [0], "bad": [2]}, AIM, num_draws=100)
    assert bm.information.evpi(KEY, compared).warning == ""


def test_plans_that_learn_say_it():
    """Bernoulli rewards, never 1: the mean of what was not tried is 1/2, of the rest 1/12 at most."""
    data = bm.Transitions([0] * 10, [0] * 10, [0.0] * 10, [0] * 10)
    belief = bm.infer(KEY, bm.models.dirichlet_bernoulli(), data, space=bm.StateActionSpace(1, 2))
    sentence = (
        "1 pair never tried, whose mean reward (0.5) lies above that of every pair that was tried (at most 0.0833)"
    )
    for answer in (
        bm.decisions.bayes_optimal(belief, objective=bm.Episodic(2)),
        bm.decisions.plan_bayes_adaptive(KEY, belief, 0, bm.Episodic(2), num_simulations=20),
    ):
        assert answer.untried is not None and sentence in said(answer)
        assert "the plan may try them for what the prior alone says" in said(answer)
    every = bm.Transitions([0] * 10, [0, 1] * 5, [0.0] * 10, [0] * 10)
    belief = bm.infer(KEY, bm.models.dirichlet_bernoulli(), every, space=bm.StateActionSpace(1, 2))
    assert bm.decisions.bayes_optimal(belief, objective=bm.Episodic(2)).untried is None


def test_the_shell_prints_and_writes_it(capsys, tmp_path):
    log, table = tmp_path / "log.csv", tmp_path / "table.csv"
    frame = {"s": "shop", "a": np.array(SPACE.action_names)[np.asarray(DATA.action)], "r": DATA.reward, "s2": "shop"}
    pd.DataFrame(frame).to_csv(log, index=False)
    given = ("next-experiment", log, *COLUMNS, "--actions", "old,new,bad", "--horizon", 1, "--data-sets", 4)
    code, out, _ = run(capsys, *given, "--prior", "dirichlet_normal", "--csv", table)
    assert code == 0 and "1 pair never tried, whose mean reward (0) lies above" in out and "  the prior's\n" in out
    found = pd.read_csv(table)
    assert found["action"][found["from_prior"]].tolist() == ["new"]
