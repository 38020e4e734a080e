"""Files that appear whole or not at all."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4


def write_beside(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Call `write` with the path of a temporary file beside `path` (same ending), and rename it to `path`.

    The content is on the disk before the file has its name. If anything fails, the temporary file is removed and what
    was under `path` stays.

    Raises:
        OSError: the file cannot be written (a full device: the sentence names `path`); whatever `write` raises.
    """
    path = Path(path)
    beside = path.with_name(f".{uuid4().hex}.{path.name}")
    try:
        write(beside)
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(error.errno, "no space left on the device for", str(path)) from error
        raise
