"""`sbc`, `check` and `compare` on worker processes: the same numbers as here.

Functions whose annotations are checked cannot be pickled: the tests run in a process without these checks.
"""

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm

SPACE = bm.StateActionSpace(2, 2)
KEY = jax.random.key(2)
OFF = os.environ.get("BAYES_MDP_TYPES", "off") == "off"
unchecked = pytest.mark.skipif(not OFF, reason="run by test_in_a_process_without_checks")


@pytest.mark.slow
@pytest.mark.skipif(OFF, reason="it runs the others")
def test_in_a_process_without_checks():
    words = [sys.executable, "-m", "pytest", "-q", "-m", "slow", __file__, "-p", "no:cacheprovider"]
    done = subprocess.run(
        words, env=os.environ | {"BAYES_MDP_TYPES": "off"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "3 passed, 1 skipped" in done.stdout, done.stdout[-3000:]


@pytest.mark.slow
@unchecked
def test_sbc_bit_for_bit(tmp_path):
    """Also where the first chunk is there already; under x64 the last bits depend on what a process traced before."""
    options = bm.calibration.SbcOptions(num_draws=10, num_transitions=10)
    here = bm.calibration.sbc(KEY, bm.models.dirichlet_normal(), SPACE, num_simulations=128, options=options)
    path = tmp_path / "x.nc"
    bm.calibration.sbc(KEY, bm.models.dirichlet_normal(), SPACE, num_simulations=64, path=path, options=options)
    options = replace(options, executor="processes:2")
    there = bm.calibration.sbc(
        KEY, bm.models.dirichlet_normal(), SPACE, num_simulations=128, path=path, options=options
    )
    assert here.dataset.identical(there.dataset)
    assert bm.calibration.sbc(
        KEY, bm.models.dirichlet_normal(), SPACE, num_simulations=128, options=options
    ).dataset.identical(here.dataset)
    with jax.enable_x64(True):
        wide = [
            bm.calibration.sbc(
                KEY, bm.models.dirichlet_normal(), SPACE, num_simulations=10, options=replace(options, executor=one)
            ).dataset
            for one in (None, "processes:1")
        ]
    assert wide[1]["truth"].dtype == np.float64
    np.testing.assert_allclose(wide[0]["truth"], wide[1]["truth"], rtol=1e-12)


@pytest.mark.slow
@unchecked
def test_check_bit_for_bit():
    """Around a log too: the program is then a function of a posterior."""
    log = bm.Transitions([0, 1, 0], [1, 0, 0], [0.5, 0.1, 0.2], [1, 0, 0])
    for data in (None, log):
        options = [bm.calibration.CheckOptions(num_draws=10, executor=one) for one in (None, "processes:2")]
        found = [
            bm.check(
                KEY, bm.models.dirichlet_normal(), SPACE, data=data, num_simulations=70, options=one
            ).dataset.drop_attrs()
            for one in options
        ]
        assert found[0].identical(found[1])


@pytest.mark.slow
@unchecked
def test_compare_bit_for_bit():
    """But for the seconds; programs as priors and refused pairs too."""
    agents = {
        "psrl": bm.agents.PSRL(),
        "q": bm.agents.EpsilonGreedyQ(),
        "bolt": bm.agents.BOLT(eta=1.0, max_reward=1.0),
    }
    options: dict[str, Any] = {"key": KEY, "num_seeds": 2, "length": 10}
    found = [bm.compare(agents, ["chain", "garnet"], executor=one, **options) for one in (None, "processes:2")]
    assert found[0].drop_vars("seconds").identical(found[1].drop_vars("seconds"))
