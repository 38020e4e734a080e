"""Posteriors in contexts: one context is today's, exact by context, golden posteriors of the clinic on three routes."""

# What `from_log` and `infer` return depends on whether the log has covariates, which a type checker cannot see.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import itertools

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.inference import NUTS, Gibbs, Laplace, SamplingWarning
from bayes_mdp.inference.context_posterior import look_at
from bayes_mdp.inference.integrals.mode_draws import draw_about_mode
from bayes_mdp.inference.polya_gamma import draw_polya_gamma, stick_draws
from bayes_mdp.models import RegressionOptions
from tests.subjects import DISCOUNTED, OUTCOME_REWARD, START, TYPES, clinic_log, golden, needs_clinic

TERMS = "state + age + frail + action"


def toy_table(seed: int = 0, rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    cells = {name: rng.choice(["well", "ill"], rows) for name in ("s", "t")}
    cells |= {"a": rng.choice(["wait", "treat"], rows), "r": rng.normal(size=rows)}
    return pd.DataFrame(cells | {"age": rng.integers(3, size=rows), "id": np.arange(rows)})


def read(table: pd.DataFrame, **options):
    return bm.read_log(table, state="s", action="a", reward="r", next_state="t", subject="id", **options)


def logits(space):
    return bm.models.MDPSpec(bm.models.logit_rows(space, "age + action", reference="well"), np.zeros((2, 2)))


def clinic_prior(law, group=None, **settings):
    def prior(space):
        return bm.models.MDPSpec(
            law(space, TERMS, options=RegressionOptions(standardise=False, group=group), **settings), OUTCOME_REWARD
        )

    return prior


def test_one_context_is_todays_posterior_bit_for_bit(key):
    table = toy_table().assign(age=1.0)
    plain, about = read(table), read(table, covariates=["age"])
    prior = bm.models.dirichlet_normal_gamma()
    today = bm.infer(key, prior, plain, space=bm.StateActionSpace.from_log(plain))
    one = bm.infer(key, prior, about, space=bm.StateActionSpace.from_log(about)).at(0)
    assert type(one) is type(today)
    for x, y in zip(jax.tree.leaves(today), jax.tree.leaves(one), strict=True):
        assert np.array_equal(x, y)
    value = [bm.policy_value(key, post, [0, 1], bm.Discounted(0.9), num_draws=50) for post in (today, one)]
    assert np.array_equal(value[0].draws, value[1].draws)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(5))
def test_dirichlet_rows_by_context_are_those_of_product_states(key, seed):
    """Every context has the posterior of its own part of the log, as the states (context, state) have."""
    log = read(toy_table(seed), covariates=["age"])
    space = bm.StateActionSpace.from_log(log)
    prior = bm.models.dirichlet_normal()
    posterior = bm.infer(key, prior, log, space=space)
    assert posterior.method == "exact" and posterior.num_draws is None
    wide = bm.infer(key, prior, log.covariates.moved(log.transitions, 2), space=space.side_by_side)
    mean = np.asarray(wide.mean_mdp().probability)
    for c in range(3):
        part = np.asarray(posterior.at(c).mean_mdp().transition_probs)
        np.testing.assert_allclose(part, mean[2 * c : 2 * c + 2], atol=1e-6)
    assert "each context is a belief of its own" in str(posterior)
    with pytest.warns(UserWarning, match="there is only the prior"):
        new = posterior.at({"age": 9})
    np.testing.assert_allclose(new.mean_mdp().transition_probs, 0.5)


def test_a_program_with_rows_by_context_is_proven_exact(key):
    log = read(toy_table(), covariates=["age"])
    space = bm.StateActionSpace.from_log(log)

    def prior(space):
        rows = numpyro.sample("rows", dist.Dirichlet(np.ones(2)).expand([3, 2, 2]).to_event(3))
        return bm.models.MDPSpec(rows, np.zeros((2, 2)))

    posterior = bm.infer(key, prior, read(toy_table().assign(r=0.0), covariates=["age"]), space=space)
    assert posterior.method == "exact" and posterior.num_draws == 4000
    ready = bm.infer(
        key, bm.models.known_rewards(np.zeros((2, 2))), read(toy_table().assign(r=0.0), covariates=["age"]), space=space
    )
    for c in range(3):
        mean = np.asarray(posterior.at(c).mean_mdp().transition_probs)
        # 4,000 draws of a number in [0, 1]: .05 is more than six standard errors.
        np.testing.assert_allclose(mean, ready.at(c).mean_mdp().transition_probs, atol=0.05)


@needs_clinic
def test_the_mode_the_evidence_and_the_moments_of_the_clinic_by_weighted_draws(key):
    """Means within .06 sd, sds within 6 %: 20,000 draws worth 60 %, golden tolerances included (false alarm < 1e-6)."""
    log = clinic_log()
    space = bm.StateActionSpace.from_log(log, ends=True)
    prior = clinic_prior(bm.models.logit_rows, reference=0)
    posterior = bm.infer(key, prior, log, space=space, method=Laplace(num_samples=20_000))
    made = posterior.laplace
    assert made.laplace_evidence == pytest.approx(golden()["clinic5 posterior", "log evidence by laplace"], abs=1e-6)
    assert made.log_evidence == pytest.approx(golden()["clinic5 posterior", "log evidence"], abs=0.02)
    assert made.pareto_k < 0.5 and made.effective > 0.4 * made.proposals
    draws = posterior.coefficient_draws()
    for i, k in itertools.product(range(5), range(2)):
        assert made.mode.reshape(5, 2)[i, k] == pytest.approx(golden()["clinic5 posterior", f"mode[{i},{k}]"], abs=1e-6)
        sd = golden()["clinic5 posterior", f"sd[{i},{k}]"]
        assert draws[:, i, k].mean() == pytest.approx(golden()["clinic5 posterior", f"mean[{i},{k}]"], abs=0.06 * sd)
        assert draws[:, i, k].std() == pytest.approx(sd, rel=0.06)
    table = posterior.coefficients()
    assert table.loc[("action=1", "1"), "mean"] == pytest.approx(-0.575, abs=0.01)
    assert "reference 0: with a prior the rows depend on it" in str(posterior)
    assert "age, frail, action=1: one coefficient for all states" in str(posterior)


@needs_clinic
def test_polya_gamma_draws_have_the_moments_of_the_clinic(key):
    """As above; 5,000 sweeps of autocorrelation time below 2.5."""
    pytest.importorskip("polyagamma")
    log = clinic_log()
    space = bm.StateActionSpace.from_log(log, ends=True)
    options = Gibbs(num_warmup=100, num_samples=1250, num_chains=4)
    posterior = bm.infer(key, clinic_prior(bm.models.stick_rows), log, space=space, method=options)
    draws = posterior.coefficient_draws()
    for i, k in itertools.product(range(5), range(2)):
        sd = golden()["clinic5 sticks", f"sd[{i},{k}]"]
        assert draws[:, i, k].mean() == pytest.approx(golden()["clinic5 sticks", f"mean[{i},{k}]"], abs=0.16 * sd)
        assert draws[:, i, k].std() == pytest.approx(sd, rel=0.1)


@pytest.mark.slow
@needs_clinic
def test_chains_with_sites_find_every_golden_number(key):
    """Constants, shared by 3,000 rows of eight sites, mix slowest: worth 2,600 of 12,000 draws, .02 sd on both sides.

    .15 sd is then more than five standard errors: a false alarm in 28 numbers has a probability of some 1e-6.
    """
    log = clinic_log(group="site")
    space = bm.StateActionSpace.from_log(log, ends=True)
    prior = clinic_prior(bm.models.logit_rows, reference=0, group="site")
    posterior = bm.infer(key, prior, log, space=space, method=NUTS(num_warmup=800, num_samples=3000, num_chains=4))
    scale = posterior.sites["rows_group_scale"]
    drawn = {"mean": posterior.coefficient_draws(), "u": scale[:, None, :] * posterior.sites["rows_group"]}
    known = {quantity: value for (name, quantity), value in golden().items() if name == "clinic sites"}
    assert len(known) == 28
    for quantity, value in known.items():
        if quantity.startswith("tau"):
            draws = scale[:, int(quantity[3:])]
        else:
            kind, place = quantity[:-1].split("[")
            i, k = map(int, place.split(","))
            draws = drawn[kind][:, i, k]
        assert draws.mean() == pytest.approx(value, abs=0.15 * draws.std()), quantity


@pytest.mark.slow
@needs_clinic
def test_with_sites_weights_are_refused_and_chains_and_sweeps_of_sticks_agree(key):
    log = clinic_log(group="site")
    space = bm.StateActionSpace.from_log(log, ends=True)
    prior = clinic_prior(bm.models.logit_rows, reference=0, group="site")
    with pytest.raises(ValueError, match=r"Pareto k = .*, above 0.7\), expected method='nuts'"):
        bm.infer(key, prior, log, space=space, method="laplace")
    # Sticks with sites: Polya-Gamma and chains of the same program agree.
    pytest.importorskip("polyagamma")
    sticks = clinic_prior(bm.models.stick_rows, group="site")
    gibbs = bm.infer(key, sticks, log, space=space, method=Gibbs(num_warmup=1000, num_samples=6000, num_chains=4))
    nuts = bm.infer(key, sticks, log, space=space, method=NUTS(num_warmup=600, num_samples=1000, num_chains=4))
    for one, other in zip(
        (gibbs.coefficient_draws(), gibbs.sites["rows_group_scale"]),
        (nuts.coefficient_draws(), nuts.sites["rows_group_scale"]),
        strict=True,
    ):
        assert (np.abs(one.mean(0) - other.mean(0)) < 0.2 * other.std(0)).all()
        np.testing.assert_allclose(one.std(0), other.std(0), rtol=0.15)


def closed_form(number: float, tilt: float) -> tuple[float, float]:
    """Mean and variance of PG(number, tilt)."""
    mean = number / (2 * tilt) * np.tanh(tilt / 2)
    return mean, number / (4 * tilt**3) * (np.sinh(tilt) - tilt) / np.cosh(tilt / 2) ** 2


@pytest.mark.parametrize(("number", "tilt"), [(1, 0.5), (3, 1.7), (250, 0.4)])
def test_polya_gamma_variables_have_their_closed_form_moments(number, tilt):
    """Six standard errors: in 400,000 draws a variance that is 3 % off is caught (of PG(250), 100,000: 4 %)."""
    pytest.importorskip("polyagamma")
    size = 400_000 if number < 100 else 100_000
    x = draw_polya_gamma(np.random.default_rng(0), np.full(size, float(number)), np.full(size, tilt))
    mean, variance = closed_form(number, tilt)
    assert abs(x.mean() - mean) < 6 * np.sqrt(variance / size)
    kurtosis = ((x - x.mean()) ** 4).mean() / x.var() ** 2
    assert abs(x.var() / variance - 1) < 6 * np.sqrt((kurtosis - 1) / size)
    assert 6 * np.sqrt((kurtosis - 1) / size) < 0.04


def test_parts_of_a_transition_have_no_polya_gamma_variables(key):
    space = bm.StateActionSpace.from_log(read(toy_table(), covariates=["age"]))
    law = look_at(lambda s: bm.models.MDPSpec(bm.models.stick_rows(s, "age"), np.zeros((2, 2))), space).laws[0]
    with pytest.raises(ValueError, match="counts of the log are no whole numbers, expected method='nuts'"):
        stick_draws(key, law, np.full((3, 2, 2, 2), 3.5), Gibbs(num_samples=4))


def test_contexts_share_their_draws_and_a_new_pattern_runs_the_program_again(key):
    log = read(toy_table().assign(r=0.0), covariates=["age"])
    space = bm.StateActionSpace.from_log(log)
    posterior = bm.infer(key, logits, log, space=space, method=Laplace(num_samples=200))
    rows = posterior.tables.rows
    assert rows.shape == (200, 3, 2, 2, 2)
    for c in range(3):
        assert np.array_equal(posterior.at(c).mdps.transition_probs, rows[:, c])
    assert posterior.at({"age": 2}) is posterior.at(2)
    # A new age on the line of the others: log odds of a draw are linear in age.
    odds = np.log(rows[..., 0]) - np.log(rows[..., 1])
    new = posterior.at({"age": 4.0})
    there = np.asarray(new.mdps.transition_probs)
    np.testing.assert_allclose(np.log(there[..., 0]) - np.log(there[..., 1]), 2 * odds[:, 2] - odds[:, 0], atol=1e-9)
    table = posterior.at(pd.DataFrame({"age": [0, 4.0]}))
    np.testing.assert_allclose(table.tables.rows[:, 0], rows[:, 0], atol=1e-12)
    np.testing.assert_allclose(table.at(1).mdps.transition_probs, there, atol=1e-12)
    assert posterior.at(0).visit_counts().sum() == (toy_table()["age"] == 0).sum()


def test_rewards_of_a_program_may_be_by_context_and_unknown(key):
    log = read(toy_table(), covariates=["age"])
    space = bm.StateActionSpace.from_log(log)

    def prior(space):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        age = np.array(space.contexts["age"], float)[:, None, None]
        return bm.models.MDPSpec(
            bm.models.logit_rows(space, "action"), dist.Normal(mean[0] + mean[1] * age * np.ones((1, 2, 2)), 1.0)
        )

    posterior = bm.infer(key, prior, log, space=space, method=Laplace(num_samples=4000))
    table = toy_table()
    x = np.stack([np.ones(60), table["age"]], 1)
    exact = np.linalg.solve(x.T @ x + np.eye(2), x.T @ table["r"])
    spread = np.sqrt(np.diag(np.linalg.inv(x.T @ x + np.eye(2))))
    # 4,000 draws: six standard errors are .1 sd.
    assert (np.abs(posterior.sites["mean"].mean(0) - exact) < 0.12 * spread).all()
    reward = posterior.tables.reward
    np.testing.assert_allclose(reward[:, 2, 0, 0], posterior.sites["mean"] @ [1.0, 2.0], atol=1e-9)


class Cauchy:
    """A density with heavier tails than a proposal about its mode can have."""

    def minus_log(self, points):
        return np.log1p(points[:, 0] ** 4) * 0.26

    def slopes(self, point):
        x = point[0]
        gradient = 0.26 * 4 * x**3 / (1 + x**4)
        return float(0.26 * np.log1p(x**4) + 0.5 * x**2 * 0), np.array([gradient]), np.array([[1.0]])


def test_weights_that_cannot_be_relied_on_are_refused():
    with pytest.raises(ValueError, match=r"Pareto k = .*expected method='nuts'"):
        draw_about_mode(np.random.default_rng(0), Cauchy(), np.zeros(1), 500)


def test_doubtful_weights_are_warned_of(key, monkeypatch):
    monkeypatch.setattr("bayes_mdp.inference.integrals.mode_draws.WARN", -10.0)
    log = read(toy_table().assign(r=0.0), covariates=["age"])
    space = bm.StateActionSpace.from_log(log)
    with pytest.warns(SamplingWarning, match="heavy tail"):
        posterior = bm.infer(key, logits, log, space=space, method=Laplace(num_samples=100))
    assert len(posterior.problems()) == 1 and "warning" in str(posterior)


def more_than_sticks(space):
    rows = bm.models.stick_rows(space, "age")
    return bm.models.MDPSpec(0.9 * rows + 0.05, np.zeros((2, 2)))


def shrunk_sticks(space):
    return bm.models.MDPSpec(
        bm.models.stick_rows(space, "age", options=RegressionOptions(shrink="normal")), np.zeros((2, 2))
    )


def rewarded_sticks(space):
    rows = bm.models.stick_rows(space, "age")
    return bm.models.MDPSpec(rows, numpyro.sample("r", dist.Normal(0, 1)) * np.ones((2, 2)))


@pytest.mark.parametrize(
    ("prior", "method", "message"),
    [
        (logits, "gibbs", "expected stick_rows alone"),
        (more_than_sticks, "gibbs", "changes the rows of stick_rows"),
        (shrunk_sticks, "gibbs", "rows_constants|shrink"),
        (rewarded_sticks, "gibbs", "the program has site 'r' too"),
        (lambda space: bm.models.MDPSpec(np.ones((2, 3)) / 3, 0.0), "laplace", "transition_probs has shape"),
        (
            lambda space: bm.models.MDPSpec(bm.models.logit_rows(space, "age"), np.zeros((2, 5))),
            "laplace",
            "reward has shape",
        ),
    ],
)
def test_programs_that_a_route_cannot_take(key, prior, method, message):
    log = read(toy_table().assign(r=0.0), covariates=["age"])
    space = bm.StateActionSpace.from_log(log)
    with pytest.raises(ValueError, match=message):
        bm.infer(key, prior, log, space=space, method=method)


def test_data_without_the_covariates_are_refused(key):
    log = read(toy_table(), covariates=["age"])
    space = bm.StateActionSpace.from_log(log)
    prior = bm.models.dirichlet_normal()
    with pytest.raises(TypeError, match="a Log without covariates"):
        bm.infer(key, prior, read(toy_table()), space=space)
    with pytest.raises(TypeError, match="data is a Transitions"):
        bm.infer(key, prior, log.transitions, space=space)
    other = read(toy_table().assign(sex="f"), covariates=["age", "sex"])
    with pytest.raises(ValueError, match="data has the covariates age, sex, expected age"):
        bm.infer(key, prior, other, space=space)
    older = read(toy_table().assign(age=lambda x: x["age"] + 5), covariates=["age"])
    with pytest.raises(ValueError, match="data has the context age=5, which the space does not have"):
        bm.infer(key, prior, older, space=space)


def test_rows_in_any_order_and_labels_in_any_order_say_the_same(key):
    table = toy_table().assign(r=0.0)
    modes = []
    for frame, states in ((table, None), (table.sample(frac=1, random_state=2), None), (table, ["ill", "well"])):
        log = read(frame, covariates=["age"], states=states)
        space = bm.StateActionSpace.from_log(log)
        posterior = bm.infer(key, logits, log, space=space, method=Laplace(num_samples=100))
        modes.append(posterior.laplace)
    assert modes[0].laplace_evidence == pytest.approx(modes[1].laplace_evidence, abs=1e-9)
    assert modes[0].laplace_evidence == pytest.approx(modes[2].laplace_evidence, abs=1e-9)


@needs_clinic
def test_values_at_maximum_likelihood_by_context():
    from tests.subjects import POLICIES, practice, rows_at_ml, subject_weights, wide

    with jax.enable_x64(True):
        mdp = wide(rows_at_ml(), subject_weights())
        for name, policy in {**POLICIES, "practice": practice()}.items():
            flat = policy.reshape(16, *policy.shape[2:])
            values = np.asarray(bm.evaluate(mdp, flat, DISCOUNTED).v).reshape(8, 2) @ START
            for c in range(len(TYPES)):
                assert values[c] == pytest.approx(golden()["value at ML", f"{name}, context {c}"], abs=1e-7)
            whole = values @ subject_weights()
            assert whole == pytest.approx(golden()["value at ML", f"{name}, standardised"], abs=1e-7)


def test_explain_says_what_coefficients_share_and_which_methods_serve(key):
    log = read(toy_table(), covariates=["age"])
    space = bm.StateActionSpace.from_log(log)

    def sticks(space):
        return bm.models.MDPSpec(bm.models.stick_rows(space, "age + action"), np.zeros((2, 2)))

    words = str(bm.explain(sticks, space))
    assert "route: nuts" in words and "age, action=wait: one coefficient for all states" in words
    assert "method='gibbs'" in words and "sticks are another model than logit_rows" in words
    assert "method='laplace'" in words and "approximate" in words
    words = str(bm.explain(logits, space))
    assert "reference 'well': with a prior the rows depend on it" in words and "gibbs" not in words
    exact = bm.explain(bm.models.dirichlet_normal(), space)
    assert exact.route == "exact" and "a belief of their own" in str(exact)


def test_what_is_not_made_for_contexts_says_what_to_use(key):
    log = read(toy_table(), covariates=["age"])
    space, prior = bm.StateActionSpace.from_log(log), bm.models.dirichlet_normal()
    posterior, objective = bm.infer(key, prior, log, space=space), bm.Discounted(0.9)
    of_posteriors = (
        lambda each: bm.choose(key, each, objective, options=bm.decisions.ChooseOptions(num_draws=20)),
        lambda each: bm.greedy(each, objective),
        lambda each: bm.compare_policies(key, each, {"a": [0, 0], "b": [1, 1]}, objective, num_draws=20),
        lambda each: bm.information.next_experiment(key, each, objective, [(0, 0)], num_data_sets=2),
        bm.calibration.diagnose,
        bm.inference.table,
    )
    for ask in of_posteriors:
        with pytest.raises(TypeError, match=r"posterior\.at\(pattern\), the posterior of one pattern"):
            ask(posterior)
        ask(posterior.at({"age": 1}))  # as the sentence says
    # What takes a prior and a space draws MDPs without contexts, and would judge another model.
    of_programs = (
        lambda: bm.check(key, prior, space, num_simulations=10),
        lambda: bm.calibration.sbc(key, prior, space, num_simulations=10),
        lambda: bm.decisions.bayes_optimal(prior, space, objective=bm.Episodic(2)),
    )
    for ask in of_programs:
        with pytest.raises(ValueError, match="space has contexts of age, expected one without"):
            ask()
