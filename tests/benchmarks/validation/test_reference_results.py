"""Agents beside published learning levels."""

import pytest

from benchmarks.validation.reference_results import learning_levels


@pytest.mark.slow
def test_riverswim_is_inside_the_joint_interval(capsys):
    """All lines of RiverSwim: PSRL, moment matching, UBE; the key is fixed, so the verdict is."""
    levels = learning_levels()
    swim = [level for level in levels if level.task.startswith("RiverSwim")]
    assert len(swim) == 4 and all(level.agrees for level in swim)
    assert "inside" in capsys.readouterr().out
