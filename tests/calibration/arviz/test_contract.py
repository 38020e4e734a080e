"""One contract on every route: the same script, the program's own sites, densities that NumPyro gives."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false

from importlib.metadata import version
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats

from bayes_mdp.calibration import prior_sensitivity, to_arviz
from tests.calibration.arviz.routes import SPACE, Route, route, transitions

NUM_DRAWS = 400
GENERATION = int(version("arviz").split(".")[0])
STANDARD = {"transition_probs", "reward_mean"}
MIXTURE, *SLOW = (
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("mixture", "importance", "collapsed", "factorised", "nuts", "sampled")
)
ROUTES = ["exact", MIXTURE, *SLOW]
NO_CHAINS = ("exact", "mixture", "importance")


@pytest.fixture(scope="module")
def exported():
    """A route and all its groups, made once."""
    made = {}

    def get(name: str) -> tuple[Route, Any]:
        if name not in made:
            made[name] = to_arviz(route(name).posterior, data=transitions(), num_draws=NUM_DRAWS)
        return route(name), made[name]

    return get


@pytest.fixture
def screenless():
    """Figures are drawn on no screen, and closed."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    yield
    matplotlib.pyplot.close("all")


def script(az: Any, tree: Any, other: Any) -> dict[str, Any]:
    """What a user does with a posterior, whatever the route: no name of a route or of its groups decides anything."""
    names = {"var_names": ["m", "best"]}
    found = {"summary": az.summary(tree), "loo": az.loo(tree), "compare": az.compare({"this": tree, "other": other})}
    for plot in (az.plot_trace, az.plot_forest, az.plot_rank):
        plot(tree, **names)
    az.plot_pair(tree, var_names=["best", "spread"])
    if GENERATION >= 1:
        az.plot_ppc_dist(tree, var_names=["observed_reward"], num_samples=20)
        az.plot_ppc_tstat(tree, var_names=["observed_reward"])
        found["psense"] = az.psense_summary(tree, **names)
    else:
        az.plot_ppc(tree, var_names=["observed_reward"], num_pp_samples=20)
        az.plot_bpv(tree, var_names=["observed_reward"])
        found["waic"] = az.waic(tree)
    if "sample_stats" in _groups(tree):
        az.plot_energy(tree)
        found["bfmi"] = az.bfmi(tree)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROUTES)
def test_one_script_on_every_route(arviz, exported, screenless, name):
    (_, tree), (_, other) = exported(name), exported("exact")
    found = script(arviz, tree, other)
    rows = found["summary"].index
    assert {"m[low, go]", "p[mid, stay, 2]", "odds[high, go]", "best[high]", "spread", "reward_mean[low, go]"} <= {
        *rows
    }
    assert "transition_probs[low, stay, high]" in rows
    # Chains: r-hat exists for what is unknown.
    assert np.isfinite(found["summary"].loc["m[low, go]", "r_hat"].astype(float))
    elpd = found["loo"].elpd if GENERATION >= 1 else found["loo"].elpd_loo
    assert np.isfinite(elpd) and set(found["compare"].index) == {"this", "other"}
    assert ("bfmi" in found) == (name not in NO_CHAINS)
    if GENERATION >= 1:
        assert np.isfinite(found["psense"]["prior"]).all()


@pytest.mark.parametrize("name", [r for r in ROUTES if r is not MIXTURE])
def test_prior_sensitivity_names_the_sites_without_parents(exported, name):
    """The same question in both generations; ArviZ 0.x has no psense."""
    where, tree = exported(name)
    found = prior_sensitivity(where.posterior, transitions(), num_draws=200)
    top = {"exact": {"p", "m"}, "factorised": {"p", "scale"}}.get(name, {"scale", "m"})
    assert set(found.scaled) == top == set(np.atleast_1d(tree["log_prior"].attrs["without_parents"]))


@pytest.mark.parametrize("name", ROUTES)
def test_names_dims_and_coordinates_are_those_of_the_program(exported, name):
    where, tree = exported(name)
    traced = handlers.trace(handlers.seed(where.program, 0)).get_trace(SPACE)
    sites = {n: s for n, s in traced.items() if s["type"] in ("sample", "deterministic")}
    latent = {n for n, s in sites.items() if s["type"] == "sample"}
    assert _groups(tree) >= {"posterior", "prior", "log_prior", "log_likelihood", "posterior_predictive"}
    assert ("sample_stats" in _groups(tree)) == (name not in NO_CHAINS)
    for group in ("posterior", "prior"):
        assert set(tree[group].data_vars) == STANDARD | set(sites)
    assert set(tree["log_prior"].data_vars) == latent
    posterior = tree["posterior"]
    assert posterior.attrs["inference_method"] == where.method
    assert dict(posterior.sizes)["chain"] == where.chains
    assert dict(posterior.sizes)["chain"] * dict(posterior.sizes)["draw"] == NUM_DRAWS
    dims = {
        "transition_probs": ("state", "action", "next_state"),
        "reward_mean": ("state", "action"),
        "p": ("state", "action", "p_dim_2"),
        "m": ("state", "action"),
        "odds": ("state", "action"),
        "best": ("state",),
        "spread": (),
        "scale": () if name == "factorised" else ("factor",),
        "sparse": (),
        "total": (),
    }
    for variable in map(str, posterior.data_vars):
        assert posterior[variable].dims[2:] == dims[variable], variable
        shape = np.shape(sites[variable]["value"]) if variable in sites else posterior[variable].shape[2:]
        assert posterior[variable].shape[2:] == shape, variable
    for variable in map(str, tree["log_prior"].data_vars):
        assert tree["log_prior"][variable].dims[2:] == dims[variable][: sites[variable]["fn"].batch_shape.__len__()]
    assert list(posterior["state"].values) == ["low", "mid", "high"] == list(posterior["next_state"].values)
    assert list(posterior["action"].values) == ["stay", "go"]


@pytest.mark.parametrize("name", ROUTES)
@pytest.mark.parametrize("group", ["posterior", "prior"])
def test_deterministics_follow_from_the_sites(exported, name, group):
    _, tree = exported(name)
    values = {str(n): np.asarray(x, np.float64) for n, x in tree[group].data_vars.items()}
    p, m = values["p"], values["m"]
    np.testing.assert_allclose(values["odds"], p[..., 0] / (1 - p[..., 0]), rtol=1e-4)
    np.testing.assert_allclose(values["best"], m.max(-1), rtol=1e-6)
    np.testing.assert_allclose(values["spread"], m.max((-1, -2)) - m.min((-1, -2)), rtol=1e-6)
    if "total" in values:
        np.testing.assert_allclose(values["total"], values["scale"].sum(-1), rtol=1e-6)
    # The sites are those behind the standard variables, draw by draw.
    np.testing.assert_allclose(values["transition_probs"], p, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(values["reward_mean"], m, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ROUTES)
def test_log_prior_is_the_density_of_the_program(exported, name):
    """Site by site summed, against NumPyro's own density of the program at the exported values."""
    where, tree = exported(name)
    posterior, group = tree["posterior"], tree["log_prior"]
    total = sum(np.asarray(x).reshape(*x.shape[:2], -1).sum(-1) for x in group.data_vars.values())
    with jax.enable_x64(True):
        for place in ((0, 0), (1, 3), (where.chains - 1, NUM_DRAWS // where.chains - 1)):
            values = {str(n): np.array(posterior[n])[place] for n in group.data_vars}
            values = {n: x.astype(np.float64) if x.dtype.kind == "f" else x for n, x in values.items()}
            expected = log_density(handlers.seed(where.program, 0), (SPACE,), {}, values)[0]
            assert total[place] == pytest.approx(float(expected), rel=1e-7)
    if name != "factorised":
        m = np.asarray(posterior["m"], np.float64)
        np.testing.assert_allclose(group["m"], stats.norm.logpdf(m, 0.0, 2.0), rtol=1e-6)


@pytest.mark.parametrize("name", ROUTES)
def test_log_likelihood_is_by_transition_where_the_transitions_are_at_hand(exported, name):
    _, tree = exported(name)
    data, posterior = transitions(), tree["posterior"]
    likelihood = tree["log_likelihood"]["observed_transition"]
    assert likelihood.dims == ("chain", "draw", "transition")
    probs = np.asarray(posterior["transition_probs"], np.float64)[:, :, data.state, data.action, data.next_state]
    mean = np.asarray(posterior["m"], np.float64)[:, :, data.state, data.action]
    expected = np.log(probs) + stats.norm.logpdf(np.asarray(data.reward), mean, 1.0)
    np.testing.assert_allclose(likelihood, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["exact", *SLOW])
def test_without_data_it_is_by_cell_and_nothing_fails(name):
    """The likelihood of a cell is that of its transitions, summed."""
    posterior = route(name).posterior
    tree = to_arviz(posterior, num_draws=NUM_DRAWS)
    with_data = to_arviz(posterior, num_draws=NUM_DRAWS, data=transitions())
    by_cell = tree["log_likelihood"]["observed_cell"]
    assert by_cell.dims == ("chain", "draw", "cell")
    each = with_data["log_likelihood"]["observed_transition"]
    np.testing.assert_allclose(by_cell.sum("cell"), each.sum("transition"), rtol=1e-6)
    assert set(tree["posterior_predictive"].data_vars) == {"transition_counts", "reward_total"}


def test_draws_of_sites_have_the_moments_of_the_closed_form():
    """Of 4,000 exact draws: means and variances of 18 + 6 numbers, |z| < 6.5, a false-alarm rate below 1e-8.

    A mean that is off by a tenth of a standard deviation is caught.
    """
    posterior = to_arviz(route("exact").posterior, num_draws=4000, log_likelihood="none")["posterior"]
    assert posterior.attrs["no_markov_chains"].startswith("independent draws: ")
    data = transitions()
    counts = np.zeros((3, 2, 3))
    np.add.at(counts, (data.state, data.action, data.next_state), 1.0)
    concentration = 1.5 + counts
    total = concentration.sum(-1, keepdims=True)
    mean = concentration / total
    _assert_moments(posterior["p"], mean, mean * (1 - mean) / (total + 1))
    number, rewards = counts.sum(-1), np.zeros((3, 2))
    np.add.at(rewards, (data.state, data.action), np.asarray(data.reward))
    variance = 1.0 / (1.0 / 4.0 + number)
    _assert_moments(posterior["m"], variance * rewards, variance)


def _assert_moments(draws: xr.DataArray, mean: np.ndarray, variance: np.ndarray) -> None:
    x = np.asarray(draws, np.float64).reshape(-1, *draws.shape[2:])
    error = np.sqrt(variance / len(x))
    assert np.abs((x.mean(0) - mean) / error).max() < 6.5
    square = (x - mean) ** 2
    assert np.abs((square.mean(0) - variance) / (square.std(0) / np.sqrt(len(x)))).max() < 6.5


def _groups(tree: Any) -> set[str]:
    return set(tree.children) if GENERATION >= 1 else set(tree.groups())
