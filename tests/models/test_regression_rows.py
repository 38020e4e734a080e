"""Laws of rows by regression: formulas cell by cell, maximum likelihood of statsmodels, masks, what is refused."""

# What `from_log` and `infer` return depends on whether the log has covariates, which a type checker cannot see.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import itertools

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers
from scipy.special import expit
from scipy.stats import norm

import bayes_mdp as bm
from bayes_mdp.inference.context_posterior import about_mode, look_at, side_by_side
from bayes_mdp.inference.integrals.mode_draws import TracedDensity, find_mode
from bayes_mdp.mdp.contexts import ContextSpace
from bayes_mdp.models import RegressionOptions, hazard_rows, logit_rows, ordinal_rows, stick_rows
from bayes_mdp.models.regressions import row_laws
from tests.subjects import SHARED, clinic_log, golden, needs_clinic

FLAT = dist.Normal(0.0, 1e7)
AS_READ = RegressionOptions(standardise=False)


def small_space(support=None, legal=None, ends=True) -> ContextSpace:
    """Three states, two actions, four contexts of a number and a label, two groups."""
    rng = np.random.default_rng(0)
    rows = {"s": rng.choice(list("abc"), 40), "a": rng.choice(["x", "y"], 40), "t": rng.choice(list("abc"), 40)}
    rows |= {
        "age": rng.integers(2, size=40) + 1.5,
        "sex": rng.choice(["f", "m"], 40),
        "site": rng.choice(["u", "v"], 40),
    }
    log = bm.read_log(
        pd.DataFrame(rows), state="s", action="a", next_state="t", covariates=["age", "sex"], group="site"
    )
    space = bm.StateActionSpace.from_log(log, ends=ends, legal=legal, support=support)
    assert isinstance(space, ContextSpace)
    return space


def drawn(program, seed=0):
    """Rows of a program, and the values of its sites."""
    with jax.enable_x64(True):
        trace = handlers.trace(handlers.seed(program, seed))
        with trace as sites:
            rows = handlers.seed(program, seed)()
        return np.asarray(rows), {name: np.asarray(site["value"]) for name, site in sites.items()}


def test_softmax_rows_are_those_of_the_formula():
    space = small_space()
    terms = "age + sex + action"
    options = RegressionOptions(by="state", group="site")
    rows, sites = drawn(lambda: logit_rows(space, terms, reference="b", options=options))
    x = space.design(terms, by="state").standardised
    own = sites["rows_group_scale"] * sites["rows_group"]
    for c, s, a in itertools.product(range(space.n_contexts), range(3), range(2)):
        eta = x[c, s, a] @ sites["rows_coefficients"] + own[space.contexts.group.values[c]]
        odds = np.exp(np.array([eta[0], 0.0, eta[1], eta[2]]))
        np.testing.assert_allclose(rows[c, s, a], odds / odds.sum(), rtol=1e-12)


def test_a_reference_that_stays_is_the_state_itself():
    space = small_space()
    rows, sites = drawn(lambda: logit_rows(space, "age"))
    x = space.design("age").standardised
    for c, s in itertools.product(range(space.n_contexts), range(3)):
        eta = x[c, s, 0] @ sites["rows_coefficients"]
        eta[s] = 0.0
        np.testing.assert_allclose(rows[c, s, 0], np.exp(eta) / np.exp(eta).sum(), rtol=1e-12)


def test_sticks_are_binary_choices_in_their_order():
    space = small_space()
    rows, sites = drawn(lambda: stick_rows(space, "age + action", order=["c", "end", "a", "b"]))
    x = space.design("age + action").standardised
    for c, s, a in itertools.product(range(space.n_contexts), range(3), range(2)):
        p = expit(x[c, s, a] @ sites["rows_coefficients"])
        expected = {"c": p[0], "end": (1 - p[0]) * p[1], "a": (1 - p[0]) * (1 - p[1]) * p[2]}
        for outcome, prob in expected.items():
            assert rows[c, s, a, space.outcome_names.index(outcome)] == pytest.approx(prob, rel=1e-12)
        assert rows[c, s, a].sum() == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_ordinal_rows_are_differences_of_the_link_at_the_cuts(link):
    space = small_space()
    rows, sites = drawn(lambda: ordinal_rows(space, "age + action", link=link))
    design = space.design("0 + age + action")
    cumulative = expit if link == "logit" else norm.cdf
    assert (np.diff(sites["rows_cuts"]) > 0).all() and (rows[..., 3] == 0).all()
    for c, a in itertools.product(range(space.n_contexts), range(2)):
        eta = design.standardised[c, 0, a] @ sites["rows_coefficients"][:, 0]
        steps = np.concatenate([[0.0], cumulative(sites["rows_cuts"] - eta), [1.0]])
        np.testing.assert_allclose(rows[c, 1, a, :3], np.diff(steps), atol=1e-12)


def test_far_cuts_keep_the_digits_of_small_probabilities():
    space = small_space()

    def program():
        values = {"rows_coefficients": np.zeros((1, 1)), "rows_cuts": np.array([30.0, 40.0])}
        return handlers.substitute(lambda: ordinal_rows(space, "age"), data=values)()

    rows, _ = drawn(program)
    assert rows[0, 0, 0, 2] == pytest.approx(expit(-40.0), rel=1e-10)
    assert rows[0, 0, 0, 1] == pytest.approx(expit(-30.0) - expit(-40.0), rel=1e-10)


@pytest.mark.parametrize("event", ["leave", "end"])
def test_hazard_rows_have_their_event_with_the_hazard(event):
    space = small_space()
    rows, sites = drawn(lambda: hazard_rows(space, "age", logit_rows(space, "action", reference="a"), event=event))
    to = logit_rows_of(space, sites["rows_coefficients"])
    x = space.design("age").standardised
    for c, s, a in itertools.product(range(space.n_contexts), range(3), range(2)):
        hazard = 1 - np.exp(-np.exp(x[c, s, a] @ sites["hazard_coefficients"][:, 0]))
        here = s if event == "leave" else 3
        others = np.delete(to[c, s, a], here)
        others = others / others.sum()
        kept, moved = (1 - hazard, hazard) if event == "leave" else (hazard, 1 - hazard)
        assert rows[c, s, a, here] == pytest.approx(kept, rel=1e-10)
        np.testing.assert_allclose(np.delete(rows[c, s, a], here), moved * others, rtol=1e-9)


def logit_rows_of(space, b):
    eta = space.design("action").standardised @ b
    odds = np.exp(np.concatenate([np.zeros((*eta.shape[:-1], 1)), eta], -1))
    return odds / odds.sum(-1, keepdims=True)


def masked_support():
    support = np.ones((3, 2, 4), bool)
    support[0, 0, 2] = support[1, :, 3] = False
    support[2, 1] = [False, False, True, False]
    return support


@pytest.mark.parametrize("law", [logit_rows, stick_rows, ordinal_rows])
def test_impossible_outcomes_are_masked_before_the_rows_are_normalised(law):
    space = small_space(support=masked_support())
    rows, _ = drawn(lambda: law(space, "age + action"))
    assert (rows[:, ~masked_support()] == 0).all()
    np.testing.assert_allclose(rows.sum(-1), 1.0, atol=1e-12)
    np.testing.assert_allclose(rows[:, 2, 1, 2], 1.0, atol=1e-12)
    free, _ = drawn(lambda: law(small_space(), "age + action"))
    if law is not stick_rows:  # what is left of a row keeps its proportions
        kept = free[:, 0, 0] * masked_support()[0, 0]
        np.testing.assert_allclose(rows[:, 0, 0], kept / kept.sum(-1, keepdims=True), rtol=1e-9)


@pytest.mark.parametrize("shrink", ["normal", "horseshoe"])
def test_shrinkage_spares_the_constants(shrink):
    """Scales near zero take all coefficients but the constants with them."""
    space = small_space()
    options = RegressionOptions(by="state", shrink=shrink)
    names = {"rows_shrink": np.array(1e-9)}

    def program():
        return handlers.substitute(lambda: logit_rows(space, "age + sex", options=options), data=names)()

    rows, sites = drawn(program)
    assert np.ptp(rows, axis=0).max() < 1e-5 < np.ptp(rows, axis=1).max()
    assert {"rows_constants", "rows_unit", "rows_shrink"} <= sites.keys()
    assert ("rows_slab" in sites) == (shrink == "horseshoe")


def test_without_contexts_rows_have_no_axis_of_contexts():
    space = bm.StateActionSpace(3, 2)
    rows, sites = drawn(lambda: logit_rows(space, "state + action", reference=0))
    assert rows.shape == (3, 2, 3) and sites["rows_coefficients"].shape == (4, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: logit_rows(s, "age", reference="nowhere"), "'nowhere' is no outcome"),
        (lambda s: logit_rows(s, "age", reference="end"), "reference is outcome 'end' in state 'b', action 'x'"),
        (lambda s: logit_rows(s, "age", reference="b"), "reference is outcome 'b' in state 'c', action 'y'"),
        (lambda s: logit_rows(s, "age", options=RegressionOptions(group="age")), "expected the column that read_log"),
        (lambda s: logit_rows(s, "age", coefficients=dist.Normal(0, np.ones(7))), "coefficients has batch shape"),
        (lambda s: logit_rows(s, "age", options=RegressionOptions(shrink="lasso")), "shrink is 'lasso'"),
        (lambda s: stick_rows(s, "age", order=["a", "b"]), "expected each outcome once"),
        (lambda s: ordinal_rows(s, "age", options=RegressionOptions(by="state")), "by is 'state', expected None"),
        (lambda s: ordinal_rows(s, "age", outcomes=["a", "a"]), "expected at least two labels, each once"),
        (lambda s: hazard_rows(s, "age", np.ones((2, 2))), "to has shape"),
        (lambda s: hazard_rows(s, "age", np.ones(4) / 4, link="probit"), "link is 'probit'"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        handlers.seed(call, 0)(small_space(support=masked_support()))


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("age + one", "column 'one' is 1 everywhere in the log"),
        ("age + reversed", "column 'reversed' is a sum of multiples of 'constant', 'age'"),
    ],
)
def test_columns_that_the_cuts_already_say_are_refused(terms, message):
    """A design without a constant may have full rank, and none beside the cuts: all of them up, one column down."""
    frame = pd.DataFrame({"s": list("abc") * 4, "a": "x", "t": list("bcab") * 3, "age": np.arange(12.0), "one": 1.0})
    frame = frame.assign(reversed=3.0 - 2.0 * frame["age"])
    covariates = ["age", "one", "reversed"]
    space = bm.StateActionSpace.from_log(
        bm.read_log(frame, state="s", action="a", next_state="t", covariates=covariates)
    )
    with pytest.raises(ValueError, match=message):
        handlers.seed(lambda: ordinal_rows(space, terms), 0)()


def test_lists_of_successors_are_refused():
    space = bm.StateActionSpace(2, 1, successors=[[[0]], [[1]]])
    with pytest.raises(ValueError, match="space lists successors"):
        handlers.seed(lambda: logit_rows(space, "state"), 0)()


def test_a_record_is_kept_of_every_law():
    space = small_space()

    def prior(space):
        return bm.models.MDPSpec(hazard_rows(space, "age", logit_rows(space, "sex", reference="a")), np.zeros((3, 2)))

    laws = look_at(prior, space).laws
    assert [law.kind for law in laws] == ["logit", "hazard"] and laws[0].fixed == "reference 'a'"
    with row_laws() as met:
        pass
    assert met == []


def most_likely(program, space, log):
    """(log likelihood, sites) at the mode under a prior that is as good as flat."""
    from bayes_mdp.inference.draws.methods import Laplace
    from bayes_mdp.inference.sampled.recipe import recipe_for, unconstrained_model
    from bayes_mdp.inference.sampled.sampled_fit import statistics_on_host

    wide = space.side_by_side
    with jax.enable_x64(True):
        recipe = recipe_for(side_by_side(program, space), wide, Laplace())
        statistics = statistics_on_host(recipe, log.covariates.moved(log.transitions, space.n_states))
        model = unconstrained_model(recipe)
        density = TracedDensity(lambda point: -model.place_one(point, {}, statistics)[0])
        point, _, _ = find_mode(density, np.zeros(model.dimension))
        sites = {name: x[0] for name, x in model.place(point[None], {}, statistics).values.items()}
        rows = handlers.seed(handlers.substitute(program, data=sites), 0)(space).transition_probs
        counts = np.asarray(statistics.counts.transitions).reshape(rows.shape)
        rows = np.asarray(rows)
    return float((counts * np.log(np.where(counts > 0, rows, 1.0))).sum()), sites


@needs_clinic
@pytest.mark.parametrize(
    ("name", "terms", "columns"),
    [
        ("clinic5", "state + age + frail + action", [0, 1, 2, 3, 4]),
        ("clinic7", "state + age + frail + action + state:action + age:state", [0, 1, 2, 3, 4, 5, 6]),
        ("clinic12", "state + age + frail + action + site", list(range(12))),
    ],
)
def test_maximum_likelihood_of_the_clinic_is_that_of_statsmodels(name, terms, columns):
    options = {"covariates": ["age", "frail"], "group": "site"} if "site" in terms else {}
    log = clinic_log(**options)
    space = bm.StateActionSpace.from_log(log, ends=True)

    def program(space):
        rows = logit_rows(space, terms, reference=0, coefficients=FLAT, options=AS_READ)
        return bm.models.MDPSpec(rows, np.zeros((2, 2)))

    likelihood, sites = most_likely(program, space, log)
    assert likelihood == pytest.approx(golden()[name, "loglik"], abs=1e-9)
    b = sites["rows_coefficients"]
    for i, k in itertools.product(columns, range(2)):
        assert b[i, k] == pytest.approx(golden()[name, f"b[{i},{k}]"], abs=1e-8)


@needs_clinic
def test_maximum_likelihood_rows_do_not_depend_on_the_reference():
    log = clinic_log()
    space = bm.StateActionSpace.from_log(log, ends=True)
    found = []
    for reference in (0, 1, "end"):

        def program(space, reference=reference):
            rows = logit_rows(space, "state + age + frail + action", reference=reference, coefficients=FLAT)
            return bm.models.MDPSpec(rows, np.zeros((2, 2)))

        found.append(most_likely(program, space, log)[0])
    np.testing.assert_allclose(found, golden()["clinic5", "loglik"], atol=1e-8)


@needs_clinic
def test_maximum_likelihood_of_grades_is_that_of_statsmodels(monkeypatch):
    table = pd.read_csv(SHARED / "data" / "subjects_grades.csv").assign(level=lambda x: x["grade"])
    table = table.assign(failed=table["fails"] == 1)
    roles = {"state": "grade", "action": "action", "next_state": "next_grade", "terminated": "failed"}
    about = {"subject": "subject", "varying": ["load", "dwell", "level"], "process": "known"}
    whole = table[table["fails"] == 0].drop(columns="failed").assign(failed=False)
    log = bm.read_log(whole, **roles, **about, states=[0, 1, 2, 3])
    space = bm.StateActionSpace.from_log(log)

    def grades(space):
        rows = ordinal_rows(space, "level + load + action", coefficients=FLAT, options=AS_READ)
        return bm.models.MDPSpec(rows, 0.0)

    # The prior of the cuts is made flat.
    wide = dist.Normal
    monkeypatch.setattr("bayes_mdp.models.regressions.CUTS", wide(0.0, 1e7))
    likelihood, sites = most_likely(grades, space, log)
    assert likelihood == pytest.approx(golden()["ordinal", "loglik"], abs=1e-7)
    names = [golden()["ordinal", name] for name in ("grade", "load", "action")]
    np.testing.assert_allclose(sites["rows_coefficients"][:, 0], names, atol=1e-5)
    np.testing.assert_allclose(sites["rows_cuts"], [golden()["ordinal", f"cut{i}"] for i in range(3)], atol=1e-5)

    log = bm.read_log(table, **roles, **about, states=[0, 1, 2, 3])
    space = bm.StateActionSpace.from_log(log)
    even = np.full((4, 2, 5), 0.25) * [1, 1, 1, 1, 0]

    def hazards(space):
        rows = hazard_rows(
            space, "level + load + dwell + action", even, event="end", coefficients=FLAT, options=AS_READ
        )
        return bm.models.MDPSpec(rows, 0.0)

    likelihood, sites = most_likely(hazards, space, log)
    # The others are equally likely: their part of the log likelihood is known.
    others = (table["fails"] == 0).sum() * np.log(0.25)
    assert likelihood - others == pytest.approx(golden()["hazard", "loglik"], abs=1e-7)
    names = [golden()["hazard", name] for name in ("constant", "grade", "load", "dwell", "action")]
    np.testing.assert_allclose(sites["hazard_coefficients"][:, 0], names, atol=1e-5)


def test_separation_without_a_proper_prior_names_the_column(key):
    """All treated recover: under a flat prior the coefficient of the treatment runs away."""
    rows = pd.DataFrame({"s": "ill", "a": ["x", "y"] * 30, "t": ["ill", "well", "well", "well"] * 15, "age": 1.0})
    log = bm.read_log(rows, state="s", action="a", next_state="t", covariates=["age"])
    space = bm.StateActionSpace.from_log(log)
    assert isinstance(space, ContextSpace)

    def program(space):
        return bm.models.MDPSpec(logit_rows(space, "action", reference="ill", coefficients=FLAT), 0.0)

    data = log.covariates.moved(log.transitions, 2)
    with pytest.raises(ValueError, match=r"no mode: .*'action=y' for outcome 'well'"):
        about_mode(key, side_by_side(program, space), space.side_by_side, data, 100, look_at(program, space).laws)
