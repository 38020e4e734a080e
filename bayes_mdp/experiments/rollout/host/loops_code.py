"""`CODE`: a number of the text of the loops of this folder, and of the files whose constants they use."""

from pathlib import Path

from bayes_mdp.numerics.numba_function import code_of

_PACKAGE = Path(__file__).parents[3]
CODE = code_of(
    Path(__file__).parent,
    _PACKAGE / "numerics/numba_function.py",
    _PACKAGE / "experiments/rollout/sweep_loop.py",
    _PACKAGE / "planning/sweeping/prioritized_sweeping.py",
)
