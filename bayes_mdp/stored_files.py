# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""One door out and one in for all that the library stores: a file, or the folder of a sweep, says what it holds."""

import os
from pathlib import Path
from typing import Any

from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.validation import check_type

_HDF5 = b"\x89HDF\r\n\x1a\n"


@accepts_moved("save")
def save(result: Any, path: str | os.PathLike[str]) -> None:  # what it is decides the format
    """Write a posterior, a result or draws to a file that `load` reads; it appears whole (written beside and renamed).

    Args:
        result: a posterior, in a format of its own; what `run`, `compare`, `sweeps.sweep` or another function returned
            as a Dataset, or what `to_arviz` returned, as NetCDF with a checksum (`from_netcdf` of either ArviZ reads
            the draws).
        path: of the file.

    Raises:
        TypeError: nothing of these; in a posterior a state or action name that is no str, int, float, bool, None or
            tuple of those, or a reward law that is not NumPyro's own.
        ValueError: a Dataset that no function of this package returned; `path` is a folder, a device or a pipe.
        OSError: the file cannot be written.

    Example:
        >>> prior, space = bm.models.dirichlet_normal(), bm.StateActionSpace(2, 2)
        >>> bm.save(bm.infer(jax.random.key(0), prior, space=space), "posterior.bmdp")
        >>> bm.load("posterior.bmdp").method
        'exact'
    """
    check_type("path", path, (str, os.PathLike), "a path")
    # A tree of groups are draws, in ArviZ 0.x and 1.x; a Dataset says by its attribute what returned it.
    if hasattr(result, "to_netcdf") and hasattr(result, "groups"):
        from bayes_mdp.calibration.arviz.diagnostics import save_draws

        save_draws(result, Path(path))
    elif hasattr(result, "to_netcdf"):
        from bayes_mdp.experiments.results import FORMATS
        from bayes_mdp.utils.files import write_netcdf

        made = result.attrs.get("format")
        if made not in FORMATS:
            raise ValueError(f"result has the format {made!r}, expected a Dataset that this package returned")
        write_netcdf(result, Path(path))
    else:
        from bayes_mdp.inference.storage import save as save_posterior

        save_posterior(result, path)


def load(path: str | os.PathLike[str]) -> Any:  # what the file holds decides the type
    """Read what this package stored: a posterior, a result, a check, draws, or a sweep.

    Args:
        path: a file of `save`, or of `path=` of `run`, `compare`, `sbc`, `check` and others; or the folder of a
            `sweep`, also while it runs.

    Returns:
        A posterior, bit for bit as it was saved (arrays are NumPy's); a `Check`; the DataTree or InferenceData of
        draws; an `xarray.Dataset` of all else. Cells of a sweep that are not finished are nan, their `status` says why.

    Raises:
        ValueError: the file is cut, altered (its checksum does not fit), or nothing that this package wrote; a folder
            of `deep.train`, which `deep.load_training` reads, with its agent and environment.
        FileNotFoundError: there is nothing. OSError: it cannot be read. TypeError: `path` is no path.

    Example:
        >>> prior, space = bm.models.dirichlet_normal(), bm.StateActionSpace(2, 2)
        >>> bm.save(bm.infer(jax.random.key(0), prior, space=space), "posterior.bmdp")
        >>> bm.load("posterior.bmdp").space.shape
        (2, 2)
    """
    check_type("path", path, (str, os.PathLike), "a path")
    if os.path.isdir(path):
        return _load_folder(Path(path))
    path = Path(path)
    with open(path, "rb") as file:
        begins = file.read(len(_HDF5))
    # Posteriors have a format of their own; the rest is NetCDF, told apart by its attribute `format` and its groups.
    if begins != _HDF5:
        from bayes_mdp.inference.storage import load as load_posterior

        return load_posterior(path)
    form, has_groups = _netcdf_kind(path)
    if has_groups:
        from bayes_mdp.calibration.arviz.diagnostics import load_draws

        return load_draws(path)
    from bayes_mdp.calibration.checks.check_result import FORMAT, load_check
    from bayes_mdp.experiments.results import load_result

    return load_check(path) if form == FORMAT else load_result(path)


def _netcdf_kind(path: Path) -> tuple[object, bool]:
    """The attribute `format` of a NetCDF file and whether it has groups. A damaged file has neither: who reads it finds
    that its checksum does not fit."""
    import h5netcdf

    try:
        with h5netcdf.File(path, "r") as file:
            return file.attrs.get("format"), bool(file.groups)
    except Exception:  # HDF5 raises errors of many types
        return None, False


def _load_folder(folder: Path) -> Any:
    from bayes_mdp.experiments.resume import read_configuration
    from bayes_mdp.experiments.sweep_folder import load_sweep

    try:
        read_configuration(folder)
    except FileNotFoundError:
        return load_sweep(folder)
    raise ValueError(f"path is {str(folder)!r}, a training, expected deep.load_training(path, agent, env) for it")
