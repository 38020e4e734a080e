"""The learning levels of SPEC Part 7."""

import pytest

from bayes_mdp.experiments import learning_levels


@pytest.mark.slow
def test_riverswim_is_inside_the_joint_interval(capsys):
    """Both lines of RiverSwim; the key is fixed, so the verdict is."""
    levels = learning_levels()
    assert all(level.agrees for level in levels if level.task.startswith("RiverSwim"))
    assert "inside" in capsys.readouterr().out
