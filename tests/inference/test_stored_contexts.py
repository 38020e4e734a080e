"""Posteriors in contexts leave the process and come back; outcomes beside the reward; what has no new contexts."""

# What `from_log` and `infer` return depends on whether the log has covariates, which a type checker cannot see.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import os
from dataclasses import replace

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions import Budget, ChooseOptions, PolicyLimits, side_by_side
from bayes_mdp.inference.context_posterior import ContextPosterior, Tables, look_at
from bayes_mdp.models import MDPSpec, linear_rewards, logit_rows
from bayes_mdp.recommend import SubgroupOptions, decide_by_subgroup

OBJECTIVE = bm.Discounted(0.9)


def read(outcomes=None, number: int = 40):
    rng = np.random.default_rng(5)
    cells = {"s": rng.choice(["i", "w"], number), "a": rng.choice(["x", "y"], number), "id": np.arange(number)}
    table = pd.DataFrame(cells | {"t": rng.choice(["i", "w"], number), "end": rng.random(number) < 0.2})
    table = table.assign(
        age=rng.integers(3, size=number), sex=rng.choice(["f", "m"], number), r=rng.normal(size=number)
    )
    table = table.assign(cost=10.0 + rng.normal(size=number), next=table["t"])
    columns = {"state": "s", "action": "a", "next_state": "next", "reward": "r", "terminated": "end", "subject": "id"}
    return bm.read_log(table, **columns, outcomes=outcomes, covariates=["age", "sex"])


def program(space):
    rows = logit_rows(space, "age + action", reference="w")
    return MDPSpec(rows, linear_rewards(space, "sex + action", coefficients=dist.Normal(0, 2), noise=1.0))


def drawn(prior=program, number: int = 60, seed: int = 0) -> ContextPosterior:
    """A posterior of draws of the prior, as chains would leave it: two of them."""
    space = bm.StateActionSpace.from_log(read())
    rng = np.random.default_rng(seed)
    sites = {
        "rows_coefficients": rng.normal(size=(number, 3, 2)),
        "reward_coefficients": rng.normal(size=(number, 3, 1)),
    }
    counts = np.ones((space.n_contexts, *space.shape, 3))
    return ContextPosterior(space, prior, "nuts", counts, sites, laws=look_at(prior, space).laws, num_chains=2)


@pytest.fixture
def saved(tmp_path):
    def keep(posterior):
        bm.save(posterior, tmp_path / "kept.bm")
        return bm.load(tmp_path / "kept.bm")

    return keep


def test_draws_in_contexts_come_back_number_by_number(saved, key, tmp_path):
    first = drawn().with_outcomes({"cost": drawn(seed=1, number=50)})
    second = saved(first)
    assert str(second) == str(first)
    pd.testing.assert_frame_equal(second.coefficients("reward"), first.coefficients("reward"))
    for by in (None, ["sex"]):
        values = [bm.policy_value(key, x, [1, 0], OBJECTIVE, num_draws=60, by=by) for x in (first, second)]
        values = values if by is None else [value["f"] for value in values]
        assert np.array_equal(values[0].draws, values[1].draws)
        assert np.array_equal(values[0].outcomes["cost"].draws, values[1].outcomes["cost"].draws)
    part = second.at({"age": 1, "sex": "m"})
    assert part.num_chains == 2 and (part.visit_counts() == 3).all()
    bm.save(second, tmp_path / "again.bm")
    assert (tmp_path / "again.bm").read_bytes() == (tmp_path / "kept.bm").read_bytes()


def test_a_stored_posterior_has_the_contexts_of_the_log_alone(saved):
    kept = saved(drawn())
    assert len(kept.at(pd.DataFrame({"age": [2, 0], "sex": ["m", "f"]})).contexts) == 2
    with pytest.raises(ValueError, match=r"the log does not have the context age=7.*read from a file has no program"):
        kept.at({"age": 7, "sex": "m"})
    with pytest.raises(ValueError, match="'the reward' was read from a file"):
        kept.with_outcomes({"cost": kept})


@pytest.mark.filterwarnings("ignore:outcome 'cost':UserWarning")  # of so few rows the prior moves means
def test_beliefs_by_context_come_back_with_their_outcomes(saved, key):
    log = read(["cost"])
    prior = bm.models.dirichlet_normal_gamma()
    first = bm.infer(key, prior, log, space=bm.StateActionSpace.from_log(log))
    second = saved(first)
    values = [bm.policy_value(key, x, [1, 0], OBJECTIVE, num_draws=50, by="context") for x in (first, second)]
    for pattern, value in values[0].values.items():
        assert np.array_equal(value.draws, values[1].values[pattern].draws)
        assert np.array_equal(value.outcomes["cost"].draws, values[1].values[pattern].outcomes["cost"].draws)
    with pytest.raises(ValueError, match="the log does not have the context age=7"):
        second.at({"age": 7, "sex": "m"})


@pytest.mark.skipif(os.environ.get("BAYES_MDP_TYPES", "off") != "off", reason="the checks stand before the function")
def test_a_file_whose_parts_do_not_fit_is_refused(saved, monkeypatch):
    first = drawn()
    broken = replace(first, together=Tables(first.tables.rows[:, :2], first.tables.reward), sites=None)
    with pytest.raises(ValueError, match="its rows have shape"):
        saved(broken)


def test_arviz_has_every_context_by_its_covariates():
    posterior = drawn()
    made = bm.to_arviz(posterior, num_draws=20)["posterior"]
    assert made["transition_probs"].dims == ("chain", "draw", "context", "state", "action", "next_state")
    assert made.sizes["chain"] == 2 and made.sizes["draw"] == 10
    # Every third draw of each chain of 30.
    expected = posterior.tables.rows[np.r_[0:30:3, 30:60:3]].reshape(2, 10, *posterior.tables.rows.shape[1:])
    assert np.array_equal(made["transition_probs"], expected)
    place = posterior.contexts.where({"age": 1, "sex": "m"})[0]
    assert (
        made["age"][place] == 1 and made["sex"][place] == "m" and str(made["context"][place].item()) == "age=1, sex=m"
    )
    own = made["reward_columns"].sel(reward_column="sex=m").to_numpy().ravel()
    np.testing.assert_allclose(own, posterior.coefficient_draws("reward")[np.r_[0:30:3, 30:60:3], 1, 0])


def test_arviz_draws_beliefs_by_context_each_on_its_own(key):
    log = read()
    posterior = bm.infer(key, bm.models.dirichlet_normal(), log, space=bm.StateActionSpace.from_log(log))
    made = bm.to_arviz(posterior, num_draws=30)["posterior"]
    np.testing.assert_allclose(made["transition_probs"].sum("next_state"), 1.0, atol=1e-6)
    assert made["transition_probs"].shape == (1, 30, len(posterior.contexts), 2, 2, 3)


def test_outcomes_go_with_the_rows_of_the_posterior_draw_by_draw(key):
    """The cost of a policy in each draw: the rows of the posterior, the rewards of the one that learnt the cost."""
    posterior, cost = drawn(), drawn(seed=1)
    value = bm.policy_value(key, posterior.with_outcomes({"cost": cost}), [1, 0], OBJECTIVE, num_draws=60)
    weights = posterior.contexts.subjects / posterior.contexts.subjects.sum()
    pairs = (np.arange(2), np.array([1, 0]))
    rows = posterior.tables.rows[:, :, pairs[0], pairs[1]]
    paid = {"r": posterior.tables.reward, "cost": cost.tables.reward}
    start = np.full(2, 0.5)
    for name, draws in (("r", value.draws), ("cost", value.outcomes["cost"].draws)):
        j = np.linalg.solve(np.eye(2) - 0.9 * rows[..., :2], paid[name][:, :, pairs[0], pairs[1]][..., None])[..., 0]
        np.testing.assert_allclose(draws, (j @ start) @ weights, rtol=1e-5)


@pytest.mark.parametrize("route", ["laplace", "exact"])
def test_reward_and_outcome_of_one_log_are_drawn_apart(key, route):
    """Their errors are independent given the log: 1,000 draws correlate by .17 with probability 1e-7."""
    log = read(["cost"])

    def prior(space):
        law = linear_rewards(space, "action", coefficients=dist.Normal(0, 20), noise=1.0)
        return MDPSpec(
            logit_rows(space, "action", reference="w") if route == "laplace" else np.full((2, 2, 3), 1 / 3), law
        )

    method = bm.inference.Laplace(num_samples=1000) if route == "laplace" else "auto"
    posterior = bm.infer(key, prior, log, space=bm.StateActionSpace.from_log(log), method=method)
    assert posterior.method == route
    value = bm.policy_value(key, posterior, [1, 1], bm.Episodic(1), num_draws=1000)
    assert abs(np.corrcoef(value.draws, value.outcomes["cost"].draws)[0, 1]) < 0.17
    assert value.outcomes["cost"].mean == pytest.approx(10.0, abs=1.0) and abs(value.mean) < 1.0


def test_outcomes_that_hang_on_the_rows_are_refused():
    def common(space):
        level = numpyro.sample("level", dist.Normal())
        return MDPSpec(logit_rows(space, "age + action", reference="w"), dist.Normal(level, 1.0))

    def behind(space):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        prior = dist.Normal(0.0, scale)
        rows = logit_rows(space, "age + action", reference="w", coefficients=prior)
        return MDPSpec(rows, linear_rewards(space, "action", coefficients=prior, noise=1.0))

    def of_the_rows(space):
        rows = logit_rows(space, "age + action", reference="w")
        return MDPSpec(rows, dist.Normal(rows[..., 0], 1.0))

    space = drawn().space
    for prior, site in ((behind, "'(reward_coefficients|scale)'"), (of_the_rows, "'rows_coefficients'")):
        family = ContextPosterior(space, prior, "nuts", sites={"x": np.zeros(3)})
        with pytest.raises(ValueError, match=f"rows and rewards of .* both depend on site {site}"):
            drawn().with_outcomes({"cost": family})
    apart = ContextPosterior(
        space, common, "nuts", sites={"level": np.zeros(3), "rows_coefficients": np.zeros((3, 3, 2))}
    )
    assert drawn().with_outcomes({"cost": apart}).outcomes
    with pytest.raises(TypeError, match=r"outcomes\['cost'\] is .*expected a posterior in contexts"):
        drawn().with_outcomes({"cost": 3.0})


def test_one_budget_for_all_contexts_has_the_golden_value_and_price(key):
    """Section 6 of the specification: two contexts of weight .65 and .35, one budget of 1.5 for both."""
    rows = np.array(
        [
            [[[0.8, 0.15, 0.05], [0.85, 0.12, 0.03]], [[0.3, 0.55, 0.15], [0.45, 0.4, 0.15]]],
            [[[0.6, 0.3, 0.1], [0.5, 0.3, 0.2]], [[0.15, 0.55, 0.3], [0.3, 0.55, 0.15]]],
        ]
    )
    table = pd.DataFrame({"s": [0, 1] * 20, "a": [0, 0, 1, 1] * 10, "t": 0, "end": [True, False] * 20, "id": range(40)})
    table["c"] = np.repeat([0, 1], 20)
    log = bm.read_log(table, state="s", action="a", next_state="t", terminated="end", subject="id", covariates=["c"])
    space = bm.StateActionSpace.from_log(log)

    def family(reward):
        draws = Tables(np.tile(rows, (64, 1, 1, 1, 1)), np.tile(np.broadcast_to(reward, (2, 2, 2)), (64, 1, 1, 1)))
        return ContextPosterior(space, lambda space: MDPSpec(rows, np.zeros((2, 2))), "exact", together=draws)

    whole = family([[1.0, 1.0], [0.4, 0.4]]).with_outcomes({"cost": family([[0.0, 1.0], [0.0, 1.0]])})
    posterior = side_by_side(whole, initial=[0.6, 0.4], population=[0.65, 0.35])
    limits = PolicyLimits(stochastic=True, budgets={"cost": Budget(1.5, probability=0.5)})
    choice = bm.choose(key, posterior, OBJECTIVE, options=ChooseOptions(limits=limits, num_draws=32))
    assert choice.value.mean == pytest.approx(4.3985124959, abs=1e-6)
    assert choice.shadow_prices["cost"].mean_world == pytest.approx(0.2276798475, abs=1e-6)
    assert choice.policy[1, 1] == pytest.approx(0.7001856744, abs=1e-6)


def test_verdicts_by_subgroup_say_what_more_of_an_outcome_a_policy_brings(key):
    """In each subgroup, draw by draw, the difference of the two policies' outcomes."""
    posterior = drawn().with_outcomes({"cost": drawn(seed=1)})
    about = {"initial": [0.5, 0.5], "num_draws": 64}
    decided = decide_by_subgroup(
        key, posterior, read(), OBJECTIVE, {"y": [1, 1]}, ["sex"], options=SubgroupOptions(baseline=[0, 0], **about)
    )
    new, old = (bm.policy_value(key, posterior, policy, OBJECTIVE, by=["sex"], **about) for policy in ([1, 1], [0, 0]))
    for sex, verdict in decided.verdicts.items():
        expected = new[sex].outcomes["cost"].draws - old[sex].outcomes["cost"].draws
        np.testing.assert_allclose(verdict.changes["y"]["cost"], expected, rtol=1e-9)
        assert "; cost " in str(verdict) and " more, 95 % interval [" in str(verdict)
    table = decided.table().set_index("sex")
    assert table.loc["f", "more cost"] == pytest.approx(decided["f"].changes["y"]["cost"].mean())


def test_a_site_by_context_says_nothing_of_new_contexts(key):
    """Rows with a site of C rows: other contexts are refused by name, also as many of them as the log has."""

    def prior(space):
        shape = (space.n_contexts, *space.shape, space.n_outcomes)
        logits = numpyro.sample("logits", dist.Normal().expand(shape).to_event(4))
        return MDPSpec(jax.nn.softmax(logits), np.zeros(space.shape))

    space = drawn().space
    draws = {"logits": np.random.default_rng(0).normal(size=(20, space.n_contexts, 2, 2, 3))}
    posterior = ContextPosterior(space, prior, "nuts", sites=draws)
    assert posterior.own_sites == ("logits",)
    known = posterior.contexts.table()[["age", "sex"]].iloc[::-1]
    moved = posterior.at(known)
    assert np.array_equal(moved.tables.rows, posterior.tables.rows[:, ::-1])
    with pytest.raises(ValueError, match=r"the log does not have the context age=8, sex=m.*site 'logits' has a value"):
        posterior.at(known.assign(age=8, sex="m"))
