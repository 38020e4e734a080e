"""Values for whom: golden values of the clinic, standardising, subgroups, what a covariate is worth to know."""

# What `from_log` and `infer` return depends on whether the log has covariates, which a type checker cannot see.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import itertools
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, kstest

import bayes_mdp as bm
from bayes_mdp.decisions import ValueOptions, exogenous, knowing, practice
from bayes_mdp.decisions.for_whom import all_policies, counted_practice
from bayes_mdp.inference import Laplace
from bayes_mdp.inference.context_posterior import ContextPosterior, Tables, tables_by_context
from bayes_mdp.information import value_of_covariates
from bayes_mdp.mdp.contexts import Column, Contexts, ContextSpace
from bayes_mdp.models import RegressionOptions
from bayes_mdp.recommend import SubgroupOptions, decide_by_subgroup
from bayes_mdp.recommend.decision import hidden_causes
from tests import subjects
from tests.options import fold
from tests.subjects import DISCOUNTED, OUTCOME_REWARD, POLICIES, START, clinic_log, golden, needs_clinic

ROWS = np.array(
    [
        [[[0.8, 0.15, 0.05], [0.85, 0.12, 0.03]], [[0.3, 0.55, 0.15], [0.45, 0.4, 0.15]]],
        [[[0.6, 0.3, 0.1], [0.5, 0.3, 0.2]], [[0.15, 0.55, 0.3], [0.3, 0.55, 0.15]]],
    ]
)
"""[context, state, action, outcome] of the example of a covariate that is worth knowing."""
REWARD = np.array([[1.0, 0.88], [0.4, 0.28]])
AS_READ = RegressionOptions(standardise=False)
BY_STATE = RegressionOptions(by="state")
WEIGHTS = [0.65, 0.35]
BEGINS = [0.6, 0.4]


def example_mdps():
    with jax.enable_x64(True):
        return [bm.MDP(rows[..., :2], REWARD, end_probs=rows[..., 2], initial=BEGINS) for rows in ROWS]


def example_values() -> np.ndarray:
    """[policy, context]."""
    with jax.enable_x64(True):
        evaluate = lambda mdp, policy: np.asarray(bm.evaluate(mdp, policy, bm.Discounted(0.9)).v) @ BEGINS  # noqa: E731
        return np.array([[evaluate(mdp, policy) for mdp in example_mdps()] for policy in all_policies(2, 2)])


@needs_clinic
def test_golden_values_of_knowing_a_covariate_and_of_tests_of_it():
    values = example_values()
    for p, c in itertools.product(range(4), range(2)):
        assert values[p, c] == pytest.approx(golden()["test", f"policy {p}, context {c}"], abs=1e-8)
    assert (values @ WEIGHTS).max() == pytest.approx(golden()["test", "blind"], abs=1e-8)
    assert knowing(values, WEIGHTS) == pytest.approx(golden()["test", "value"], abs=1e-8)
    for sensitivity, specificity in ((0.9, 0.8), (0.8, 0.9), (0.7, 0.7)):
        results = [[specificity, 1 - sensitivity], [1 - specificity, sensitivity]]
        expected = golden()["test", f"value, sensitivity {sensitivity}, specificity {specificity}"]
        assert knowing(values, WEIGHTS, results) == pytest.approx(expected, abs=1e-8)


@needs_clinic
def test_golden_value_of_a_covariate_that_moves_by_itself():
    with jax.enable_x64(True):
        mdps = example_mdps()
        whole = exogenous(mdps, [[0.9, 0.1], [0.2, 0.8]])
        best = np.asarray(bm.solve(whole, bm.Discounted(0.9)).v).reshape(2, 2) @ BEGINS
        assert best @ WEIGHTS == pytest.approx(golden()["exogenous", "best value"], abs=1e-8)
        # A covariate that never moves is a fixed one.
        still = np.asarray(bm.solve(exogenous(mdps, np.eye(2)), bm.Discounted(0.9)).v).reshape(2, 2) @ BEGINS
    assert still @ WEIGHTS == pytest.approx(golden()["test", "personal"], abs=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_knowing_is_worth_something_and_a_test_no_more(seed):
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=(5, 3)), rng.dirichlet(np.ones(3))
    whole = knowing(values, weights)
    result = rng.dirichlet(np.ones(4), 3).T
    assert 0.0 <= knowing(values, weights, result) <= whole + 1e-12
    assert knowing(values, weights, np.ones((1, 3))) == pytest.approx(0.0, abs=1e-12)
    assert knowing(np.repeat(values[:, :1], 3, 1), weights) == pytest.approx(0.0, abs=1e-12)
    assert knowing(values, np.eye(3)[0]) == pytest.approx(0.0, abs=1e-12)


@pytest.fixture(scope="module")
def posterior():
    log = clinic_log()
    space = bm.StateActionSpace.from_log(log, ends=True)

    def prior(space):
        rows = bm.models.logit_rows(space, "state + age + frail + action", reference=0, options=AS_READ)
        return bm.models.MDPSpec(rows, OUTCOME_REWARD)

    return bm.infer(jax.random.key(5), prior, log, space=space, method=Laplace(num_samples=20_000))


@needs_clinic
def test_golden_values_of_the_clinic(posterior, key):
    """20,000 draws, worth 12,000: .015 is four standard errors of both sides, as the golden tolerances."""
    space = posterior.space
    draws = {}
    every = {**POLICIES, "practice": practice(clinic_log(), space, ["frail"])}
    for name, policy in every.items():
        value = bm.policy_value(key, posterior, policy, DISCOUNTED, initial=START, num_draws=20_000)
        assert value.mean == pytest.approx(golden()["value posterior", f"{name}, mean"], abs=0.015)
        assert value.sd == pytest.approx(golden()["value posterior", f"{name}, sd"], abs=0.012)
        draws[name] = value.draws
    better = (draws["drug"] > draws["practice"]).mean()
    assert better == pytest.approx(golden()["value posterior", "P(drug > practice)"], abs=0.01)
    np.testing.assert_allclose(every["practice"], subjects.practice(), atol=1e-12)


@needs_clinic
def test_weights_are_subjects_not_rows_and_one_hot_weights_are_one_context(posterior, key):
    drug = {"key": key, "posterior": posterior, "policy": POLICIES["drug"], "objective": DISCOUNTED}
    drug |= {"initial": START, "num_draws": 500}
    by_subject = bm.policy_value(**drug)
    contexts = posterior.contexts
    np.testing.assert_allclose(contexts.subjects / contexts.subjects.sum(), subjects.subject_weights())
    by_row = bm.policy_value(**drug, options=ValueOptions(population=contexts.transitions))
    assert by_row.mean > by_subject.mean + 0.3  # who lives long has many rows
    each = bm.policy_value(**drug, by="context")
    for c in range(8):
        alone = bm.policy_value(**drug, options=ValueOptions(population=np.eye(8)[c]))
        assert np.allclose(alone.draws, each[subjects.TYPES[c]].draws, rtol=1e-12)
    groups = bm.policy_value(**drug, by=["frail"])
    shares = np.array([groups.weights[p] for p in groups.values])
    total = sum(share * value.draws for share, value in zip(shares, groups.values.values(), strict=True))
    np.testing.assert_allclose(total, by_subject.draws, rtol=1e-12)
    assert list(groups.table()["frail"]) == [0, 1]


@needs_clinic
def test_a_population_may_be_a_table_of_new_people(posterior, key):
    drug = {"posterior": posterior, "policy": [1, 1], "objective": DISCOUNTED, "initial": START, "num_draws": 300}
    people = pd.DataFrame({"age": [0, 0, 3, 5], "frail": [0, 0, 1, 1]})
    value = bm.policy_value(key, **drug, options=ValueOptions(population=people))
    each = bm.policy_value(key, **drug, by="context")
    new = bm.policy_value(key, posterior.at({"age": 5, "frail": 1}), [1, 1], DISCOUNTED, initial=START, num_draws=300)
    expected = (2 * each[0, 0].draws + each[3, 1].draws + new.draws) / 4
    np.testing.assert_allclose(value.draws, expected, rtol=1e-9)
    wide = bm.policy_value(key, **drug, options=ValueOptions(population=people, population_uncertainty=True))
    assert wide.sd > value.sd
    weights = ValueOptions(population=np.ones(8), population_uncertainty=True)
    with pytest.raises(ValueError, match="population_uncertainty is True with weights"):
        bm.policy_value(key, **drug, options=weights)


@needs_clinic
def test_policies_may_depend_on_the_pattern(posterior, key):
    shared = {"objective": DISCOUNTED, "initial": START, "num_draws": 200}
    by_array = bm.policy_value(key, posterior, POLICIES["drug if frail or ill"], **shared)
    by_rule = bm.policy_value(key, posterior, lambda who: {0: int(who["frail"]), 1: 1}, **shared)
    assert np.array_equal(by_array.draws, by_rule.draws)
    one = bm.policy_value(key, posterior, {0: 0, 1: 1}, **shared)
    assert np.array_equal(one.draws, bm.policy_value(key, posterior, POLICIES["drug if ill"], **shared).draws)


@needs_clinic
def test_knowing_covariates_of_the_clinic_is_worth_little(posterior, key):
    value = value_of_covariates(key, posterior, DISCOUNTED, initial=START, num_draws=400)
    frail = value_of_covariates(key, posterior, DISCOUNTED, by="frail", initial=START, num_draws=400)
    assert 0.0 <= frail <= value + 1e-12 < 0.01  # the drug is best for nearly all


@needs_clinic
def test_subgroups_are_decided_one_by_one(posterior, key):
    log, given = clinic_log(), {"initial": START, "num_draws": 20_000, "practice_by": ["frail"]}
    options = SubgroupOptions(**given)
    decision = decide_by_subgroup(key, posterior, log, DISCOUNTED, {"drug": [1, 1]}, "context", options=options)
    assert [verdict.recommended for verdict in decision.verdicts.values()] == ["drug"] * 7 + [None]
    for c, verdict in enumerate(decision.verdicts.values()):
        expected = golden()["value posterior", f"P(drug > practice), context {c}"]
        assert verdict.improvements["drug"].prob == pytest.approx(expected, abs=0.01)
    assert decision[3, 1].recommended is None and "abstain" in str(decision[3, 1])
    # At the posterior mean; at maximum likelihood it is 1.1761.
    assert decision.whole.tipping["drug"] == pytest.approx(golden()["tipping", "drug: Lambda"], abs=0.02)
    words = " ".join(str(decision).split())
    assert "everybody: 'drug'" in words and "by a factor of 1.18" in words
    assert "differ by the model, not by data" in words
    assert list(decision.table()["recommended"].isna()) == [False] * 7 + [True]
    options = SubgroupOptions(**given, observational=False)
    trial = decide_by_subgroup(key, posterior, log, DISCOUNTED, {"drug": [1, 1]}, ["frail"], options=options)
    assert not any(verdict.tipping for verdict in trial.verdicts.values())


@needs_clinic
def test_interactions_are_told_and_what_cannot_be_decided_is_refused(posterior, key):
    log = clinic_log()

    def prior(space):
        rows = bm.models.logit_rows(space, "age + frail + action + frail:action", options=BY_STATE)
        return bm.models.MDPSpec(rows, OUTCOME_REWARD)

    space, options = bm.StateActionSpace.from_log(log, ends=True), SubgroupOptions(initial=START)
    crossed = bm.infer(key, prior, log, space=space, method=Laplace(num_samples=500))
    policies = {"drug": [1, 1]}
    decision = decide_by_subgroup(key, crossed, log, DISCOUNTED, policies, ["frail"], options=options)
    assert len(decision.verdicts) == 2 and "subgroups may differ by data" in str(decision)
    with pytest.raises(ValueError, match="log has covariates, expected"):
        bm.decide(key, prior, log, DISCOUNTED)
    with pytest.raises(ValueError, match="policies is empty"):
        decide_by_subgroup(key, posterior, log, DISCOUNTED, {}, ["frail"], options=options)
    with pytest.raises(ValueError, match="policies has the name 'baseline'"):
        decide_by_subgroup(key, posterior, log, DISCOUNTED, {"baseline": [1, 1]}, ["frail"], options=options)
    people = SubgroupOptions(initial=START, population=pd.DataFrame({"age": [1], "frail": [0]}))
    with pytest.raises(ValueError, match="population is a table and baseline is None"):
        decide_by_subgroup(key, posterior, log, DISCOUNTED, policies, ["frail"], options=people)


def moving_log(process: str):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"s": rng.choice(["a", "b"], 80), "a": rng.choice(["x", "y"], 80)})
    frame = frame.assign(t=rng.choice(["a", "b"], 80), age=rng.integers(3, size=80), id=np.arange(80) // 8)
    roles = {"state": "s", "action": "a", "next_state": "t", "subject": "id"}
    return bm.read_log(frame, **roles, varying=["age"], process=process)


def moving_prior(space):
    reward = np.array([[0.0, 0.0], [1.0, 0.5]])
    return bm.models.MDPSpec(bm.models.logit_rows(space, "age + action", reference="a"), reward)


def test_a_known_path_is_looked_up_step_by_step(key):
    log = moving_log("known")
    space = bm.StateActionSpace.from_log(log)
    posterior = bm.infer(key, moving_prior, log, space=space, method=Laplace(num_samples=100))
    with pytest.raises(ValueError, match=r"covariate 'age' varies from row to row \(known\).*posterior.along"):
        bm.policy_value(key, posterior, [0, 0], bm.Episodic(3))
    path = posterior.along(pd.DataFrame({"age": [0, 1, 2]}))
    value = bm.policy_value(key, path, [0, 1], bm.Episodic(3), initial="a", num_draws=100)
    # By hand, backwards, in every draw.
    rows, policy, reward = posterior.tables.rows, [0, 1], np.array([0.0, 0.5])
    after = np.zeros((100, 2))
    for age in (2, 1, 0):
        taken = np.stack([rows[:, age, s, policy[s]] for s in range(2)], 1)
        after = reward + np.einsum("nst,nt->ns", taken, after)
    np.testing.assert_allclose(value.draws, after[:, 0], rtol=1e-9)


def test_what_moves_by_itself_is_refused_as_a_fixed_context(key):
    log = moving_log("exogenous")
    space = bm.StateActionSpace.from_log(log)
    posterior = bm.infer(key, moving_prior, log, space=space, method=Laplace(num_samples=100))
    with pytest.raises(ValueError, match=r"bm\.decisions\.exogenous"):
        bm.policy_value(key, posterior, [0, 0], bm.Discounted(0.9))


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"population": "rows"}, ValueError, "population is 'rows'"),
        ({"population": np.ones(3)}, ValueError, "population has shape"),
        ({"population": -np.ones(8)}, ValueError, "population"),
        ({"population": np.zeros(8)}, ValueError, "population sums to 0"),
        ({"by": "sex"}, ValueError, "'sex' is no covariate"),
        ({"by": ()}, ValueError, "by is empty"),
    ],
)
@needs_clinic
def test_populations_and_subgroups_that_are_none(posterior, key, options, kind, message):
    with pytest.raises(kind, match=message):
        bm.policy_value(key, posterior, [1, 1], DISCOUNTED, initial=START, num_draws=20, **fold(ValueOptions, options))


def test_an_ordinary_posterior_has_no_subgroups(key):
    posterior = bm.infer(key, bm.models.dirichlet_bernoulli(), space=bm.StateActionSpace(1, 2))
    with pytest.raises(TypeError, match="has no contexts"):
        bm.policy_value(key, posterior, [1], bm.Episodic(1), by="context")


def test_a_population_is_its_subjects_and_not_their_rows(key):
    """One old patient with nine rows, three young ones with a row each: the young weigh three quarters."""
    lengths, ages = (9, 1, 1, 1), ("old", "young", "young", "young")
    frame = pd.DataFrame(
        [
            (patient, age, ("ill", "well")[day % 2], "wait", float(age == "old"), ("well", "ill")[day % 2])
            for patient, (length, age) in enumerate(zip(lengths, ages, strict=True))
            for day in range(length)
        ],
        columns=["patient", "age", "state", "action", "reward", "next"],
    )
    roles = {"state": "state", "action": "action", "reward": "reward", "next_state": "next", "episode": "patient"}
    log = bm.read_log(frame, **roles, subject="patient", covariates=["age"])
    space = bm.StateActionSpace.from_log(log)
    posterior = bm.infer(key, bm.models.dirichlet_normal_gamma(), log, space=space)
    call = {"initial": [1.0, 0.0], "num_draws": 200}
    everybody = bm.policy_value(key, posterior, [0, 0], bm.Discounted(0.5), **call)
    each = bm.policy_value(key, posterior, [0, 0], bm.Discounted(0.5), by="context", **call)
    old, young = (each[name].draws for name in ("old", "young"))
    assert old.mean() > young.mean() + 0.1
    np.testing.assert_allclose(everybody.draws, 0.25 * old + 0.75 * young, rtol=1e-9)


def two_ages(ages, actions):
    """Four rows of each of two ages, in one state."""
    frame = pd.DataFrame({"s": "a", "a": list(actions), "t": "a", "age": np.repeat(ages, 4), "id": range(8)})
    return bm.read_log(frame, state="s", action="a", next_state="t", subject="id", covariates=["age"])


def test_practice_is_by_pattern_whatever_numbers_the_log_gives_its_contexts():
    """Ages 1, 2, 3 in the space; a log of 2 and 3, or of 3 alone, has others of its own under the same numbers."""
    frame = pd.DataFrame({"s": "a", "a": list("xyx"), "t": "a", "age": [1, 2, 3], "id": range(3)})
    roles = {"state": "s", "action": "a", "next_state": "t", "subject": "id"}
    space = bm.StateActionSpace.from_log(bm.read_log(frame, **roles, covariates=["age"]))
    log = two_ages([2, 3], "xxxyyyyy")
    # Age 1, which this log does not have, does as all others do.
    np.testing.assert_allclose(practice(log, space)[:, 0], [[3 / 8, 5 / 8], [3 / 4, 1 / 4], [0.0, 1.0]])
    np.testing.assert_allclose(practice(log, space, ())[:, 0], [[3 / 8, 5 / 8]] * 3)
    with pytest.raises(ValueError, match="log has the context age=4, which the space does not have"):
        practice(two_ages([2, 4], "xxxyyyyy"), space)
    other = two_ages([2, 3], "zzzyyyyy")
    with pytest.raises(ValueError, match=r"log\.actions are 'y', 'z', expected those of the space: 'x', 'y'"):
        practice(other, space)


def test_masks_and_ends_of_some_values_hold_beside_values_that_have_none():
    """Value 1 forbids action 1, which pays 5, and ends with probability .5: values by hand, whichever comes first."""
    rows, reward = np.array([[[1.0], [1.0]]]), [[1.0, 5.0]]
    free = bm.MDP(rows, reward)
    bound = bm.MDP(0.5 * rows, reward, end_probs=[[0.5, 0.5]], legal=[[True, False]])
    for order in (1, -1):
        with jax.enable_x64(True):
            best = np.asarray(bm.solve(exogenous([free, bound][::order], np.eye(2)), bm.Discounted(0.5)).v)[::order]
        np.testing.assert_allclose(best, [10.0, 1 / 0.75], rtol=1e-6)


def test_a_path_keeps_listed_outcomes_chains_and_what_was_learnt_beside_the_reward(key):
    """Draws of three ages by hand, backwards: costs follow the listed successors, whose order is not the states'."""
    rng = np.random.default_rng(1)
    contexts = Contexts([Column("age", np.arange(3.0), None, "varying")], np.ones(3), None, "known")
    listed = np.array([[[1, 0], [0, 1]], [[1, 0], [1, 0]]])
    space = ContextSpace(2, 2, contexts=contexts, successors=listed)
    rows, cost = rng.dirichlet(np.ones(2), (100, 3, 2, 2)), rng.normal(size=(100, 3, 2, 2))
    told = {"counts": rng.integers(9, size=rows.shape[1:]).astype(float), "num_chains": 2}
    beside = {"cost": ContextPosterior(space, None, "nuts", together=Tables(rows, cost))}
    posterior = ContextPosterior(space, None, "nuts", together=Tables(rows, 0 * cost), outcomes=beside, **told)
    path = posterior.along(pd.DataFrame({"age": [2, 0]}))
    value = bm.policy_value(key, path, [0, 1], bm.Episodic(2), initial=0, num_draws=100)
    last = cost[:, 0, [0, 1], [0, 1]]
    expected = cost[:, 2, 0, 0] + rows[:, 2, 0, 0, 0] * last[:, 1] + rows[:, 2, 0, 0, 1] * last[:, 0]
    np.testing.assert_allclose(value.outcomes["cost"].draws, expected, rtol=1e-9)
    assert path.num_chains == 2
    np.testing.assert_array_equal(path.visit_counts(), told["counts"][[2, 0]].sum(-1))


@pytest.fixture(scope="module")
def apart():
    """Beliefs by context: y pays for women and costs men, and its gain hangs on where it leads."""
    rng = np.random.default_rng(3)
    size = 400
    frame = pd.DataFrame({"s": rng.choice(["a", "b"], size), "a": rng.choice(["x", "y"], size), "id": range(size)})
    frame["sex"] = np.repeat(["f", "m"], size // 2)
    good = rng.random(size) < np.where((frame["a"] == "y") == (frame["sex"] == "f"), 0.8, 0.3)
    frame = frame.assign(t=np.where(good, "b", "a"), r=np.where(good, 1.0, 0.0))
    roles = {"state": "s", "action": "a", "next_state": "t", "reward": "r", "subject": "id"}
    return bm.read_log(frame, **roles, covariates=["sex"])


@pytest.mark.parametrize("by_outcome", [False, True])
def test_beliefs_by_context_have_a_tipping_point(key, apart, by_outcome):
    """That of the mean MDP of the subgroup's only context, and of everybody that of both contexts side by side."""
    space = bm.StateActionSpace.from_log(apart)
    prior = bm.models.known_rewards([0.0, 1.0] * np.ones((2, 2, 1))) if by_outcome else bm.models.dirichlet_bernoulli()
    posterior = bm.infer(key, prior, apart, space=space)
    objective, start = bm.Discounted(0.5), [0.4, 0.6]
    options = SubgroupOptions(initial=start, num_draws=500)
    decision = decide_by_subgroup(key, posterior, apart, objective, {"y": [1, 1]}, ["sex"], options=options)
    paid = np.broadcast_to([0.0, 1.0], (2, 2, 2)) if by_outcome else None
    with jax.enable_x64(True):
        mean = posterior.at({"sex": "f"}).mean_mdp()
        logged = practice(apart, space)[space.contexts.where({"sex": "f"})[0]]
        given = {"initial": start, "outcome_reward": paid}
        expected = bm.decisions.tipping_point(mean, [1, 1], logged, objective, **given)
    assert decision["f"].recommended == "y" and decision["m"].recommended is None
    assert decision["f"].tipping["y"] == pytest.approx(expected, rel=1e-6) and expected > 1.2
    assert hidden_causes(expected) in str(decision["f"])


def test_practice_of_subgroups_is_drawn(key):
    """Known rewards: a gain of 1 - b, b ~ Beta(20, 10) and Beta(2, 8), by KS tests at level 1e-6; apart, or as one."""
    frame = pd.DataFrame({"s": "a", "t": "a", "sex": ["f"] * 30 + ["m"] * 10, "id": range(40)})
    frame["a"] = ["y"] * 20 + ["x"] * 10 + ["y"] * 2 + ["x"] * 8
    columns = {"state": "s", "action": "a", "next_state": "t"}
    log = bm.read_log(frame, **columns, subject="id", covariates=["sex"], actions=["x", "y"])
    prior = bm.models.known_rewards([[0.0, 1.0]])
    posterior = bm.infer(key, prior, log, space=bm.StateActionSpace.from_log(log))
    asked = (key, posterior, log, bm.Episodic(1), {"y": [1]}, ["sex"])
    decided = decide_by_subgroup(*asked, options=SubgroupOptions(num_draws=5_000))
    gains = {sex: decided[sex].improvements["y"].gain for sex in "fm"}
    assert kstest(1 - gains["f"], beta(20, 10).cdf).pvalue > 1e-6 < kstest(1 - gains["m"], beta(2, 8).cdf).pvalue
    assert abs(np.corrcoef(gains["f"], gains["m"])[0, 1]) < 5 / 5_000**0.5
    assert "practice is what the log did; its frequencies are drawn as well" in " ".join(str(decided).split())
    together = decide_by_subgroup(*asked, options=SubgroupOptions(num_draws=5_000, practice_by=()))
    gain = together["f"].improvements["y"].gain
    assert kstest(1 - gain, beta(22, 18).cdf).pvalue > 1e-6
    np.testing.assert_array_equal(gain, together["m"].improvements["y"].gain)
    given = SubgroupOptions(num_draws=100, baseline=practice(log, posterior.space))
    assert decide_by_subgroup(*asked, options=given)["f"].improvements["y"].gain.std() < 1e-12
    # In all contexts together the part of the frequencies is the sum of theirs, so that what is left is known.
    staff = counted_practice(key, log, posterior.space)
    everybody = bm.policy_value(key, posterior, staff, bm.Episodic(1), num_draws=5_000)
    np.testing.assert_allclose(everybody.draws - everybody.by_frequencies, 22 / 40, rtol=1e-9)
    assert abs(everybody.sd / np.hypot(0.75 * beta(20, 10).std(), 0.25 * beta(2, 8).std()) - 1) < 0.05


@pytest.mark.parametrize("number", [1, 2])
def test_rows_of_contexts_side_by_side_come_back_as_they_were(number):
    """Dense, and with the end listed anywhere: outcome by outcome."""
    rng = np.random.default_rng(number)
    contexts = Contexts([Column("age", np.arange(float(number)), None)], np.ones(number))
    listed = np.array([[[2, 1, 0]], [[0, 2, 1]]])
    for more in ({"ends": True}, {"ends": False}, {"ends": True, "successors": listed}):
        space = ContextSpace(2, 1, contexts=contexts, **more)
        rows = rng.dirichlet(np.ones(space.n_outcomes), (4, number, 2, 1))
        with jax.enable_x64(True):
            build = jax.vmap(space.side_by_side.mdp)
            mdps = build(rows.reshape(4, 2 * number, 1, -1), np.zeros((4, 2 * number, 1)))
        np.testing.assert_array_equal(tables_by_context(mdps, space).rows, rows)


def test_a_posterior_in_contexts_says_how_to_learn_more(key, apart):
    posterior = bm.infer(key, bm.models.dirichlet_bernoulli(), apart, space=bm.StateActionSpace.from_log(apart))
    with pytest.raises(AttributeError, match=r"has no update: infer again .* or update posterior\.at\(pattern\)"):
        posterior.update(apart.transitions)
    with pytest.raises(AttributeError, match="nothing"):
        _ = posterior.nothing
    assert posterior.at(0).update(apart.transitions).visit_counts().sum() == 600


def test_covariates_that_a_plain_space_ignores_are_told(key, apart):
    plain = bm.StateActionSpace(2, 2, states=["a", "b"], actions=["x", "y"])
    with pytest.warns(UserWarning, match=r"data has 2 contexts of sex .* and space has none: they are ignored"):
        told = bm.infer(key, bm.models.dirichlet_bernoulli(), apart, space=plain)
    silent = bm.infer(key, bm.models.dirichlet_bernoulli(), replace(apart, covariates=None), space=plain)
    assert np.array_equal(told.visit_counts(), silent.visit_counts())
