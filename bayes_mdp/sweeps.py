"""Grids of runs in a folder, on any executor: killed cells are run again, a finished grid is one Dataset.

Start with `sweep`; its options are `bm.experiments.SweepOptions`. `sweep_status` says what is done, `bm.load` reads the
folder.
"""

from bayes_mdp.experiments.run_sweep import sweep
from bayes_mdp.experiments.sweep_folder import sweep_status

__all__ = [
    "sweep",
    "sweep_status",
]
