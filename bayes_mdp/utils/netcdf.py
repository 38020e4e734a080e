"""Datasets in NetCDF files that any program opens, and that we read as they were written or not at all."""

import io
from typing import TYPE_CHECKING

from bayes_mdp.utils.files import AnyPath, read_sealed, write_sealed

if TYPE_CHECKING:
    import xarray as xr

_ENGINE = "h5netcdf"


def write_netcdf(dataset: "xr.Dataset", path: AnyPath) -> None:
    """Write NetCDF with a checksum at its end, beside and then renamed: never half a file under `path`.

    Raises:
        ValueError, OSError: see `bayes_mdp.utils.files.check_file`.
    """
    write_sealed(path, lambda beside: dataset.to_netcdf(beside, engine=_ENGINE))


def read_netcdf(path: AnyPath, expected: str = "a whole NetCDF file, as this package wrote it") -> "xr.Dataset":
    """What `write_netcdf` wrote.

    Raises:
        ValueError: the file is cut, altered, or not ours. OSError: it cannot be read.
    """
    import xarray as xr

    content = read_sealed(path, expected)
    try:
        return xr.load_dataset(io.BytesIO(content), engine=_ENGINE)
    except Exception as error:  # HDF5 raises what it likes
        raise ValueError(f"path is {str(path)!r}, which is no NetCDF, expected {expected}") from error
