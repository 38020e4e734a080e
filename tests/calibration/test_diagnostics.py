"""ArviZ's answers through one call on both generations."""

import jax
import numpy as np
import pytest
import xarray as xr

from bayes_mdp.calibration import load_draws, predictive_loo, save_draws, summary, to_arviz
from bayes_mdp.inference import infer
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import dirichlet_bernoulli
from tests.flips import NUMBER, refused_flips

SPACE = StateActionSpace(3, 1)


@pytest.fixture(scope="module")
def data():
    state = np.arange(120) % 3
    return Transitions(state, np.zeros(120, int), (state == 2).astype(float), (state + 1) % 3)


def posterior(data, concentration):
    return infer(jax.random.key(0), dirichlet_bernoulli(concentration), data, space=SPACE)


def test_summary_of_draws_has_a_row_per_variable():
    draws = xr.Dataset({"v": (("chain", "draw"), np.random.default_rng(0).normal(3.0, 1.0, (2, 500)))})
    assert float(summary(draws).loc["v", "mean"]) == pytest.approx(3.0, abs=0.2)


@pytest.mark.slow
def test_loo_prefers_the_prior_that_predicts_and_matches_the_closed_form(data):
    """Deterministic data: a sparse Dirichlet predicts better; leaving one out has a closed form here."""
    sparse, wide = (posterior(data, c) for c in (0.1, 5.0))
    better, worse = (predictive_loo(p, data, key=jax.random.key(1)) for p in (sparse, wide))
    exact = 120 * (np.log((39 + 5) / (39 + 15)) + np.log(40 / 41))  # transition and Bernoulli reward, Beta(1, 1)
    assert better.elpd > worse.elpd + 10
    assert worse.elpd == pytest.approx(exact, abs=2.0)
    assert 0 <= worse.share_unreliable <= 1
    assert "LOO" in str(worse)


def test_saved_draws_are_read_back(cases, tmp_path):
    tree = to_arviz(cases("known").posterior, num_draws=50)
    save_draws(tree, tmp_path / "draws.nc")
    with xr.open_dataset(tmp_path / "draws.nc", group="posterior", engine="h5netcdf") as back:
        assert np.array_equal(back["transition_probs"], tree["posterior"]["transition_probs"])
    assert [p.name for p in tmp_path.iterdir()] == ["draws.nc"]
    rows = lambda found: found["posterior"]["transition_probs"].to_numpy()  # noqa: E731
    same = lambda found: np.array_equal(rows(found), rows(tree))  # noqa: E731
    assert refused_flips(tmp_path / "draws.nc", lambda: load_draws(tmp_path / "draws.nc"), same) == NUMBER
    tree.to_netcdf(str(tmp_path / "other.nc"), engine="h5netcdf")
    with pytest.raises(ValueError, match="which has no checksum, expected a whole NetCDF file that save_draws wrote"):
        load_draws(tmp_path / "other.nc")
