"""The face: light to import, complete, lazy."""

import subprocess
import sys

import bayes_mdp as bm

HEAVY = ("cvxpy", "arviz", "gymnasium", "numpyro", "matplotlib", "pandas", "xarray")


def test_importing_the_package_loads_nothing_heavy():
    code = f"import sys, bayes_mdp; print([m for m in {HEAVY} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_agents_and_planning_load_neither_numpyro_nor_arviz_nor_cvxpy():
    code = "import sys, bayes_mdp.agents, bayes_mdp.planning; print([m for m in %r if m in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", code % (HEAVY[:4],)], capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == "[]"


def test_every_public_name_is_there():
    assert [name for name in bm.__all__ if not hasattr(bm, name)] == []
    assert set(bm.__all__) <= set(dir(bm))
