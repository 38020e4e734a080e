"""The content of a file as a number, by which it is known again under any name."""

import hashlib
import os
from pathlib import Path

_BLOCK = 2**18


def file_digest(source: object) -> str | None:
    """SHA-256 of the bytes of a file, as hexadecimal digits; None where `source` is no path."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    sha = hashlib.sha256()
    with Path(source).open("rb") as file:
        while block := file.read(_BLOCK):
            sha.update(block)
    return sha.hexdigest()
