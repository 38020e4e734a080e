"""Compiled programs are kept between commands, in the user's cache folder: the second command starts sooner.

JAX writes and finds them by what they compute and by its own version. They hold machine code, so each kind of processor
has a folder of its own. Only the process of a command is changed, and the processes that it starts.
"""

import contextlib
import hashlib
import os
import platform
import sys
from pathlib import Path

VARIABLE = "BAYES_MDP_CACHE"
"""A folder, or "off"."""
LARGEST = 2**30
"""Bytes that are kept; the programs that were used least recently go first."""
SECONDS = 0.0
"""Programs that compile in less are not kept: all are, 400 of them take 4 MB."""
_FOLDER, _LEAST = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
_CPU = Path("/proc/cpuinfo")


def keep_compiled_programs() -> Path | None:
    """Switch JAX's compilation cache on for this process, before JAX is loaded; returns the folder.

    None: it is switched off, the user has set JAX's own variable, JAX is loaded already, or nothing can be written.
    """
    setting = os.environ.get(VARIABLE, "")
    if setting == "off" or _FOLDER in os.environ or "jax" in sys.modules:
        return None
    folder = _user_folder(setting) / _processor()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    trim(folder, LARGEST)
    os.environ[_FOLDER] = str(folder)
    os.environ.setdefault(_LEAST, str(SECONDS))
    return folder


def trim(folder: Path, largest: int) -> None:
    """Remove the files that were used least recently until the rest has at most `largest` bytes."""
    entries = []
    for path in folder.iterdir():
        # Another command may remove the same file: what is gone needs no removal.
        with contextlib.suppress(OSError):
            status = path.stat()
            entries.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= largest:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def _user_folder(given: str) -> Path:
    if given:
        return Path(given)
    import platformdirs

    return Path(platformdirs.user_cache_dir("bayes_mdp", appauthor=False))


def _processor() -> str:
    """A name for what machine code this processor can run."""
    features = ""
    with contextlib.suppress(OSError):
        features = next((line for line in _CPU.read_text().splitlines() if line.startswith(("flags", "Features"))), "")
    text = f"{platform.system()} {platform.machine()} {platform.processor()} {features}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
