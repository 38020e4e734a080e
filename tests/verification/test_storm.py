"""Storm, where it is installed (`pip install bayes-mdp[verify]`), finds the same values in the files."""

import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.verification import interval_mdp, load_interval_mdp, robust_values, write_interval_mdp

stormpy = pytest.importorskip("stormpy")


def random_posterior(number):
    """Credible intervals of random Dirichlet rows, under one of three objectives."""
    rng = np.random.default_rng(number)
    states, actions, ends = int(rng.integers(2, 6)), int(rng.integers(1, 4)), bool(rng.integers(2))
    size = (states * actions, states + ends)
    rows = dirichlet_rows(rng.uniform(0.5, 2.0, size) + rng.integers(0, 20, size), (states, actions, states + ends))
    found = rows.intervals(0.95, 1e-6)
    objective = (bm.Discounted(0.9), bm.FirstExit() if ends else bm.Discounted(0.5), bm.Episodic(3))[number % 3]
    return interval_mdp(found.lower, found.upper, rng.normal(size=(states, actions)), objective)


def of_storm(model, formula, most):
    """Values of all states, at the precision that is needed: the default was off by up to 7e-5."""
    environment = stormpy.Environment()
    environment.solver().min_max().precision = stormpy.Rational(1e-12)
    modes = stormpy.UncertaintyResolutionMode
    found = stormpy.model_checking(
        model,
        stormpy.parse_properties(formula)[0],
        uncertainty_resolution_mode=modes.MAXIMIZE if most else modes.MINIMIZE,
        environment=environment,
    )
    return np.array([float(found.get_value(s)) for s in range(model.nr_states)])


@pytest.mark.parametrize("form", ["drn", "umb"])
def test_hundred_random_posteriors(form, tmp_path):
    """Least and most, for policies that maximise and that minimise: to 1e-6."""
    for number in range(100):
        model = random_posterior(number)
        path = tmp_path / f"x.{form}"
        write_interval_mdp(model, path)
        read = stormpy.build_model_from_umb if form == "umb" else stormpy.build_model_from_drn[stormpy.Interval]
        theirs = read(str(path))
        for sense in ("max", "min"):
            for rows in ("least", "most"):
                found = of_storm(theirs, f'R{{"reward"}}{sense}=? [F "done"]', rows == "most")
                ours = robust_values(model, reward="reward", sense=sense, rows=rows).values
                np.testing.assert_allclose(found, ours, rtol=0, atol=1e-6, err_msg=f"{number} {sense} {rows}")


@pytest.mark.parametrize("form", ["drn", "umb"])
def test_what_storm_writes_is_read(form, tmp_path):
    model = random_posterior(1)
    write_interval_mdp(model, tmp_path / "x.drn")
    theirs = stormpy.build_model_from_drn[stormpy.Interval](str(tmp_path / "x.drn"))
    write = stormpy.io.export_to_umb if form == "umb" else stormpy.io.export_to_drn
    write(theirs, str(tmp_path / f"y.{form}"))
    again = load_interval_mdp(tmp_path / f"y.{form}")
    one, other = (robust_values(m, reward="reward").values for m in (model, again))
    np.testing.assert_allclose(one, other, rtol=1e-4)  # a text of Storm has six digits


def test_umbi_reads_the_archive(tmp_path):
    umbi = pytest.importorskip("umbi")
    model = random_posterior(2)
    write_interval_mdp(model, tmp_path / "x.umb")
    theirs = umbi.ats.read(str(tmp_path / "x.umb"))
    theirs.validate()
    assert (theirs.num_states, theirs.num_choices) == (model.n_states, model.n_choices)
    umbi.ats.write(theirs, str(tmp_path / "y.umb"))
    again = load_interval_mdp(tmp_path / "y.umb")
    assert np.array_equal(again.lower, model.lower) and np.array_equal(again.upper, model.upper)
    assert np.array_equal(again.rewards["reward"], model.rewards["reward"])
