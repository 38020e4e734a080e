"""Which ArviZ is installed: 0.x (InferenceData) or 1.x (DataTree)."""

import warnings
from importlib.metadata import version
from types import ModuleType


def generation() -> int:
    """0 or 1."""
    return int(version("arviz").split(".")[0])


def arviz() -> ModuleType:
    """ArviZ, imported when it is first needed."""
    with warnings.catch_warnings():
        # ArviZ 0.23 announces 1.0 whenever it is imported.
        warnings.simplefilter("ignore", FutureWarning)
        import arviz as module
    return module
