"""The groups: names, dimensions, options; and that both generations of ArviZ take them."""

from importlib.metadata import version
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.calibration import to_arviz
from bayes_mdp.calibration.arviz import export
from bayes_mdp.calibration.arviz.export import dataset
from bayes_mdp.inference.route import infer
from bayes_mdp.mdp import Counts, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.labels import labels
from bayes_mdp.models import dirichlet_normal_gamma
from tests.calibration.conftest import BUILDERS

NUM_DRAWS = 200
GENERATION = int(version("arviz").split(".")[0])


@pytest.fixture
def plots(arviz):
    """ArviZ on a backend without a screen; 0.23 asks matplotlib 3.11 for what it deprecates."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    yield arviz
    matplotlib.pyplot.close("all")


def _export(case, **options):
    names = [name for name in export.GROUPS if name != "sample_stats"]
    return {name: dataset(case.posterior, name, num_draws=NUM_DRAWS, **options) for name in names}


def test_dims_and_coordinates_are_those_of_the_space(cases):
    case = cases("normal_gamma")
    made = _export(case, log_likelihood="cell")
    probs = made["posterior"].transition_probs
    assert probs.dims == ("chain", "draw", "state", "action", "next_state")
    assert probs.shape == (4, NUM_DRAWS // 4, 3, 2, 4)
    assert list(probs.next_state.values) == ["low", "mid", "high", "end"]
    assert set(made["posterior"]) == set(made["prior"]) == {"transition_probs", "reward_mean", "reward_precision"}
    assert made["posterior"].reward_mean.dims == ("chain", "draw", "state", "action")
    assert set(made["observed_data"]) == set(made["posterior_predictive"]) == set(made["prior_predictive"])
    seen = made["observed_data"].transition_counts
    number = np.sum(
        (case.data.state == 1) & (case.data.action == 0) & (case.data.next_state == 2) & ~case.data.terminated
    )
    assert seen.sel(state="mid", action="stay", next_state="high") == number
    assert made["log_likelihood"].observed_cell.dims == ("chain", "draw", "cell")
    assert made["log_likelihood"].cell.values[0] == "low, stay"
    assert made["constant_data"].visit_counts.sum() == len(case.data.state)
    assert made["constant_data"].reward_count.sum() == case.data.reward_observed.sum()


@pytest.mark.slow
def test_steps_and_names_of_mixed_kinds(cases):
    made = _export(cases("horizon"), log_likelihood="cell")
    probs = made["posterior"].transition_probs
    assert probs.dims == ("chain", "draw", "step", "state", "action", "next_state")
    assert list(probs.state.values) == list(probs.next_state.values) == ["low", "1", "('t', 2)"]
    assert list(probs.action.values) == [0.5, 1.5]
    assert set(made["posterior"]) == {"transition_probs", "reward_mean"}
    assert "cell_step" in made["log_likelihood"].coords


@pytest.mark.slow
def test_rewards_by_outcome_and_known_rewards(cases):
    made = _export(cases("by_outcome"), log_likelihood="cell")
    assert made["posterior"].reward_mean.dims[-1] == "next_state"
    assert made["log_likelihood"].sizes["cell"] == 4
    made = _export(cases("known"), log_likelihood="cell")
    assert set(made["posterior"]) == {"transition_probs"}
    assert set(made["observed_data"]) == {"transition_counts"}
    np.testing.assert_array_equal(made["constant_data"].reward_mean, np.arange(6.0).reshape(3, 2))


@pytest.mark.parametrize(
    "name", ["normal_gamma", *(pytest.param(n, marks=pytest.mark.slow) for n in BUILDERS if n != "normal_gamma")]
)
def test_with_the_transitions_groups_are_per_transition(cases, name):
    case = cases(name)
    made = _export(case, data=case.data, log_likelihood="transition")
    observed, replicated = made["observed_data"], made["posterior_predictive"]
    assert observed.observed_next_state.dims == ("transition",)
    assert replicated.observed_next_state.dims == ("chain", "draw", "transition")
    np.testing.assert_array_equal(observed.observed_next_state, case.data.outcome(case.space))
    assert ("observed_reward" in observed) == (case.name != "known")
    names = labels(case.space.state_names)
    np.testing.assert_array_equal(observed.transition_state, names[case.data.state])
    likelihood = made["log_likelihood"].observed_transition
    assert likelihood.dims == ("chain", "draw", "transition") and np.isfinite(likelihood).all()


def test_missing_rewards_are_nan_and_still_predicted(cases):
    case = cases("normal_gamma")
    made = _export(case, data=case.data, log_likelihood="transition")
    np.testing.assert_array_equal(np.isnan(made["observed_data"].observed_reward), ~case.data.reward_observed)
    assert np.isfinite(made["posterior_predictive"].observed_reward).all()


def test_same_key_same_draws_in_a_group_and_in_the_tree(cases):
    case = cases("normal_gamma")
    tree = to_arviz(case.posterior, num_draws=NUM_DRAWS)
    for name in ("posterior", "prior", "posterior_predictive"):
        alone = dataset(case.posterior, name, num_draws=NUM_DRAWS)
        for variable in map(str, alone):
            np.testing.assert_array_equal(tree[name][variable], alone[variable])
    other = dataset(case.posterior, "posterior", num_draws=NUM_DRAWS, key=jax.random.key(1))
    assert not np.array_equal(other.transition_probs, tree["posterior"].transition_probs)
    assert "log_likelihood" in _names(tree)
    assert "log_likelihood" not in _names(to_arviz(case.posterior, num_draws=NUM_DRAWS, log_likelihood="none"))


def test_data_may_be_a_log_or_counts(cases):
    case = cases("normal_gamma")
    log = Log(case.data, case.space.state_names, case.space.action_names)
    rows = dataset(case.posterior, "observed_data", data=log)
    assert rows.sizes["transition"] == len(case.data.state)
    with jax.enable_x64(True):
        counts = Counts.of(case.data, case.space)
    cells = dataset(case.posterior, "observed_data", data=counts)
    np.testing.assert_array_equal(cells.transition_counts, counts.transitions)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_draws": 0}, "num_draws is 0, expected an integer of at least 1"),
        ({"log_likelihood": "pair"}, "log_likelihood is 'pair', expected 'transition', 'cell', 'none' or None"),
        ({"log_likelihood": "transition"}, "data holds no transitions, expected those that the posterior was inferred"),
        ({"num_draws": 10**8}, r"num_draws is 100000000, about .* GiB of memory, expected at most"),
    ],
)
def test_options_out_of_range(cases, options, message):
    with pytest.raises(ValueError, match=message):
        to_arviz(cases("normal_gamma").posterior, **options)


def test_data_of_another_posterior_are_refused(cases):
    case, empty = cases("normal_gamma"), np.zeros(0, int)
    none = Transitions(empty, empty, np.zeros(0), empty)
    with pytest.raises(ValueError, match=r"data has 0 transitions from state, action \(0, 0\), expected the \d+"):
        to_arviz(case.posterior, data=none)
    wrong: Any = [1]
    with pytest.raises(TypeError, match="data is a list, expected Transitions, a Log or Counts"):
        to_arviz(case.posterior, data=wrong)
    for name, changed, message in (
        (
            "normal_gamma",
            {"terminated": None},
            r"transitions from state, action, next_state \(",
        ),
        ("normal_gamma", {"reward_observed": None}, r"rewards of state, action \("),
        (
            "by_outcome",
            {"reward": cases("by_outcome").data.reward + 0.1},
            r"mean reward of state, action, next_state \(",
        ),
        ("tied", {"reward": cases("tied").data.reward + 1}, r"mean reward of state, action \("),
    ):
        other = Transitions(**{**vars(cases(name).data), **changed})
        with pytest.raises(ValueError, match=message):
            to_arviz(cases(name).posterior, data=other)
    with pytest.raises(ValueError, match="its sums do not tell pairs apart"):
        to_arviz(cases("tied").posterior, log_likelihood="cell")
    with pytest.raises(
        ValueError, match="group is 'posterior_predictive', expected another: it needs `data`: its sums"
    ):
        dataset(cases("tied").posterior, "posterior_predictive")
    with pytest.raises(ValueError, match="group is 'draws', expected one of posterior"):
        dataset(case.posterior, "draws")
    nothing: Any = object()
    with pytest.raises(TypeError, match="posterior is a object, expected one as infer returns it"):
        to_arviz(nothing)


def _names(tree):
    return list(tree.children) if GENERATION >= 1 else list(tree.groups())


@pytest.fixture(scope="module")
def inferred():
    """A posterior of a ready prior, by `infer`, and its transitions: two states, 80 transitions."""
    rng = np.random.default_rng(1)
    state, action = rng.integers(0, 2, 80), rng.integers(0, 2, 80)
    reward = state + rng.uniform(-1.0, 1.0, 80)
    data = Transitions(state, action, reward, (rng.random(80) < 0.3 + 0.4 * action).astype(int))
    space = StateActionSpace(2, 2, states=("in", "out"), actions=("a", "b"))
    return infer(jax.random.key(0), dirichlet_normal_gamma(), data, space=space), data


@pytest.fixture(scope="module")
def tree(inferred):
    """All groups."""
    posterior, data = inferred
    return to_arviz(posterior, num_draws=1000, log_likelihood="transition", data=data)


def test_summary_takes_the_tree_and_the_dataset(arviz, tree, inferred):
    alone = dataset(inferred[0], num_draws=1000)
    for table in (arviz.summary(tree), arviz.summary(alone)):
        # Rows, means and precisions; then the sites of the program: rows, and (mean, precision).
        assert len(table) == 8 + 4 + 4 + 8 + 8
        assert "transition_probs[in, a, out]" in table.index
        # Independent draws: fewer than half of them is beyond chance.
        assert table["ess_bulk"].astype(float).min() > 500


def test_loo_agrees_with_leaving_out_in_closed_form(arviz, tree, inferred):
    """Removing transition i from a cell leaves the prior and the others: c_o - 1 over c0 - 1, and a Student-t.

    The importance sampling error of 80 terms with 1,000 draws is below 0.5; forgetting the reward, or counting the
    transition twice, moves the sum by more than 5.
    """
    _, data = inferred
    expected = sum(_left_out(data, i) for i in range(len(data.state)))
    loo = arviz.loo(tree)
    assert abs(float(loo.elpd if GENERATION >= 1 else loo.elpd_loo) - expected) < 0.5


def _left_out(data, i):
    same = (data.state == data.state[i]) & (data.action == data.action[i])
    same[i] = False
    outcome = (1 + np.sum(data.next_state[same] == data.next_state[i])) / (2 + same.sum())
    rewards, n = data.reward[same], same.sum()
    mean = rewards.sum() / (1 + n)
    rate = 1.0 + 0.5 * (np.sum((rewards - rewards.mean()) ** 2) + n * rewards.mean() ** 2 / (1 + n))
    scale = np.sqrt(rate * (2 + n) / ((2 + n / 2) * (1 + n)))
    return np.log(outcome) + stats.t.logpdf(data.reward[i], 4 + n, mean, scale)


@pytest.mark.filterwarnings("ignore::matplotlib.MatplotlibDeprecationWarning")
def test_plots(plots, tree):
    plots.plot_forest(tree, var_names=["reward_mean"])
    plots.plot_trace(tree, var_names=["reward_mean"])
    predictive = plots.plot_ppc_dist if GENERATION >= 1 else plots.plot_ppc
    options = {"num_samples": 20} if GENERATION >= 1 else {"num_pp_samples": 20}
    predictive(tree, var_names=["observed_reward"], **options)


@pytest.mark.slow
def test_netcdf_through_h5netcdf_and_back(arviz, cases, tmp_path):
    case = cases("horizon")
    tree = to_arviz(case.posterior, num_draws=20, log_likelihood="cell")
    path = str(tmp_path / "posterior.nc")
    tree.to_netcdf(path, engine="h5netcdf")
    back = arviz.from_netcdf(path, engine="h5netcdf")
    for name in _names(tree):
        for variable in map(str, tree[name].data_vars):
            np.testing.assert_array_equal(back[name][variable], tree[name][variable])
        for coordinate in map(str, tree[name].coords):
            np.testing.assert_array_equal(back[name][coordinate], tree[name][coordinate])
    assert back["posterior"].attrs["log_evidence"] == case.posterior.log_evidence
