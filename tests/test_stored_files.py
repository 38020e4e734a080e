"""`load` reads whatever was stored, and says what it is that it cannot read."""

import jax
import numpy as np
import pytest
import xarray as xr

import bayes_mdp as bm

KEY, QUIET = jax.random.key(0), bm.experiments.RunOptions(progress=False)
PRIOR, SPACE = bm.models.dirichlet_normal(), bm.StateActionSpace(2, 2)


def test_a_posterior_and_its_draws(tmp_path):
    posterior = bm.infer(KEY, PRIOR, space=SPACE)
    bm.save(posterior, tmp_path / "p.bmdp")
    assert type(bm.load(tmp_path / "p.bmdp")) is type(posterior)
    tree = bm.to_arviz(posterior, num_draws=3, key=KEY)
    bm.save(tree, tmp_path / "draws.nc")
    assert set(bm.load(tmp_path / "draws.nc")["posterior"].data_vars) == set(tree["posterior"].data_vars)


def test_a_run_a_check_and_a_sweep(tmp_path):
    agent, env = bm.agents.EpsilonGreedyQ(), bm.envs.chain()
    more = {"objective": bm.Discounted(0.9), "num_steps": 5, "key": KEY, "options": QUIET}
    ran = bm.run(agent, env, path=tmp_path / "run.nc", **more)
    assert bm.load(tmp_path / "run.nc").identical(ran)
    path = tmp_path / "check.nc"
    checked = bm.check(
        KEY, PRIOR, SPACE, path=path, options=bm.calibration.CheckOptions(num_transitions=10), num_simulations=20
    )
    again = bm.load(path)
    assert type(again) is type(checked) and again.dataset.identical(checked.dataset)
    swept = bm.sweeps.sweep({"q": agent}, {"chain": env}, path=tmp_path / "sweep", **more)
    assert bm.load(tmp_path / "sweep").sizes == swept.sizes
    assert np.array_equal(bm.load(tmp_path / "sweep" / "results.nc")["regret"], swept["regret"])


def test_one_save_for_results_too(tmp_path):
    more = {"objective": bm.Discounted(0.9), "num_steps": 5, "key": KEY, "options": QUIET}
    ran = bm.run(bm.agents.EpsilonGreedyQ(), bm.envs.chain(), **more)
    bm.save(ran, str(tmp_path / "run.nc"))
    assert bm.load(tmp_path / "run.nc").identical(ran)
    posterior = bm.infer(KEY, PRIOR, space=SPACE)
    with pytest.warns(FutureWarning, match=r"bm.save\(posterior=...\) is bm.save\(result=...\) since 0.3"):
        bm.save(posterior=posterior, path=tmp_path / "p.bmdp")  # type: ignore[call-arg] - as in 0.2
    bm.save(posterior, tmp_path / "again.bmdp")
    assert (tmp_path / "p.bmdp").read_bytes() == (tmp_path / "again.bmdp").read_bytes()


@pytest.mark.parametrize(
    ("result", "error", "says"),
    [
        (3, TypeError, "result is 3, expected a posterior"),
        (xr.Dataset({"x": 1.0}), ValueError, "result has the format None, expected a Dataset that this package"),
        (xr.DataArray(1.0), ValueError, "result has the format None"),
    ],
)
def test_what_cannot_be_saved(tmp_path, result, error, says):
    with pytest.raises(error, match=says):
        bm.save(result, tmp_path / "x")
    with pytest.raises(TypeError, match="path is 3, expected a path"):
        bm.save(result, 3)  # type: ignore[arg-type] - a wrong one
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "does not begin with"),
        (b"state,action\n0,0\n", "does not begin with"),
        (b"\x89HDF\r\n\x1a\n and no more", "expected a whole NetCDF file"),
    ],
)
def test_what_is_no_stored_file(tmp_path, content, says):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=says):
        bm.load(tmp_path / "x")


def test_what_is_not_there_or_is_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        bm.load(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="holds no sweep"):
        bm.load(tmp_path)
    with pytest.raises(TypeError, match="path is 3, expected a path"):
        bm.load(3)  # type: ignore[arg-type] - a wrong one


def test_a_training_names_its_own_door(tmp_path):
    from bayes_mdp.agents.neural import DQN

    options = bm.deep.TrainOptions(num_envs=4, replay_size=64, progress=False)
    bm.deep.train(DQN(), bm.envs.deep_sea_observed(4), num_steps=16, options=options, path=tmp_path / "training")
    with pytest.raises(ValueError, match=r"a training, expected deep\.load_training\(path, agent, env\)"):
        bm.load(tmp_path / "training")
