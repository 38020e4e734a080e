"""`decide` within budgets: what is recommended, what the answer and the page say, and what is refused beforehand."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions import Budget, PolicyLimits
from bayes_mdp.mdp import Discounted, Log
from bayes_mdp.recommend import DecideOptions, write_report
from tests.recommend.shops import ACTIONS, STATES, easy_log, right_prior

COST = np.array([[1.0, 3.0], [2.0, 5.0]])
"""What pays costs more; per step."""


@cache
def log_with_costs(noise: float = 0.2) -> Log:
    log = easy_log()
    rng = np.random.default_rng(1)
    cost = COST[log.transitions.state, log.transitions.action] + noise * rng.normal(size=np.size(log.transitions.state))
    return replace(log, outcomes={"cost": cost})


@cache
def within(limit: float, probability: float = 0.95, **more: Any) -> Any:
    limits = PolicyLimits(budgets={"cost": Budget(limit, probability)})
    log = log_with_costs()
    return bm.decide(
        jax.random.key(0), "default", log, Discounted(0.5), options=DecideOptions(limits=limits, num_draws=200), **more
    )


def test_a_wide_budget_changes_nothing_and_a_tight_one_does():
    """Always acting costs 8 (two states, discount .5), the log's practice about 5.5."""
    free = bm.decide(jax.random.key(0), "default", easy_log(), Discounted(0.5), options=DecideOptions(num_draws=200))
    wide, tight = within(100.0), within(7.0)
    np.testing.assert_array_equal(wide.policy, free.policy)
    assert wide.recommended and wide.candidates["chosen"].spending["cost"].certified
    assert wide.shadow_prices["cost"].mean_world == 0.0
    assert tight.recommended
    spent = tight.candidates["chosen"].spending["cost"]
    assert spent.certified and spent.cost.mean < 7.0 < wide.candidates["chosen"].spending["cost"].cost.mean
    assert tight.shadow_prices["cost"].mean_world > 0
    assert tight.candidates["chosen"].mean < wide.candidates["chosen"].mean


def test_the_answer_says_what_is_spent(tmp_path):
    decision = within(7.0)
    told = " ".join(str(decision).split())
    assert "budget: chosen: cost: spends" in told and "of a budget of 7" in told
    assert (
        "budget: the baseline: cost: spends" in told and "price of cost: one more unit of the budget would add" in told
    )
    write_report(decision, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<h2>Budgets</h2>" in page and "Price of cost: one more unit" in page


def test_a_named_policy_over_the_budget_is_not_recommended():
    """Always acting gains most, and spends 8."""
    always = {state: ACTIONS[1] for state in STATES}
    decision = bm.decide(
        jax.random.key(0),
        "default",
        log_with_costs(),
        Discounted(0.5),
        policies={"always": always},
        options=DecideOptions(limits=PolicyLimits(budgets={"cost": Budget(7.0)}), num_draws=200),
    )
    assert any("the budget is not shown to be kept: cost" in reason for reason in decision.candidates["always"].reasons)
    assert decision.lead == "chosen" and decision.recommended


def test_known_costs_and_a_split_need_no_column():
    limits = PolicyLimits(budgets={"cost": Budget(7.0, outcome=COST)})
    decision = bm.decide(
        jax.random.key(0),
        right_prior(),
        easy_log(),
        Discounted(0.5),
        options=DecideOptions(limits=limits, num_draws=200, split=0.5),
    )
    assert decision.recommended and decision.candidates["chosen"].spending["cost"].certified


def test_episodes_have_budgets_by_step():
    """Three steps: acting costs 2 more a step in one state and 3 in the other."""
    limits = PolicyLimits(budgets={"cost": Budget(9.0, outcome=COST)})
    decision = bm.decide(
        jax.random.key(0), "default", easy_log(), bm.Episodic(3), options=DecideOptions(limits=limits, num_draws=200)
    )
    spent = decision.candidates["chosen"].spending["cost"]
    assert np.asarray(decision.candidates["chosen"].policy).shape[0] == 3 and spent.certified and spent.cost.mean <= 9.0


@pytest.mark.parametrize(
    ("limits", "objective", "message"),
    [
        (Budget(1.0), Discounted(0.5), "expected at least .*: no policy spends less on average"),
        (Budget(1.0), bm.AverageReward(), "objective is AverageReward with budgets"),
        (Budget(9.0, outcome=[[1.0]]), Discounted(0.5), r"outcomes\['cost'\].reward has shape \(1, 1\)"),
        (Budget(9.0, probability=0.999), Discounted(0.5), "expected at least 2995: fewer cannot show"),
    ],
)
def test_what_is_refused(limits, objective, message):
    with pytest.raises(ValueError, match=message):
        bm.decide(
            jax.random.key(0),
            "default",
            log_with_costs(),
            objective,
            options=DecideOptions(limits=PolicyLimits(budgets={"cost": limits})),
        )


def test_an_outcome_that_the_log_has_not_is_named():
    with pytest.raises(ValueError, match="a budget without outcome= is 'beds', expected"):
        bm.decide(
            jax.random.key(0),
            "default",
            log_with_costs(),
            Discounted(0.5),
            options=DecideOptions(limits=PolicyLimits(budgets={"beds": Budget(7.0)})),
        )
