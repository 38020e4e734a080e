"""Memory and cores: what is free; what does not fit in it is refused before it is taken; how many may be used."""

import os
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jax

SHARE = 0.5  # of the free memory that one call may take
NEGLIGIBLE = 2**20  # bytes, a hundredth of what a process with JAX takes
ENDLESS = 10**6 * 2**30
UNKNOWN = 4 * 2**30  # bytes, where the system does not report what is free
_MEMINFO, _OWN_GROUPS, _GROUPS = Path("/proc/meminfo"), Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def free_bytes() -> int:
    """Bytes that this process can still take: what the system has, or its control group leaves, whichever is less.

    Where the system does not report it: all of its memory, or 4 GiB. It is asked ten times a second at most: reading
    what it says takes as long as evaluating a small policy in a thousand draws.
    """
    return _free_at(int(10 * time.monotonic()))


@lru_cache(maxsize=1)
def _free_at(tenth: int) -> int:
    """`free_bytes` in a tenth of a second."""
    del tenth
    left = [1024 * int(line.split()[1]) for line in _lines(_MEMINFO) if line.startswith("MemAvailable:")]
    if not left:
        try:
            left = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
        except (AttributeError, OSError, ValueError):
            left = [UNKNOWN]
    # What the control groups of this process leave (versions 2 and 1); nothing where there is no limit.
    groups = {controllers: path for _, controllers, path in (line.split(":", 2) for line in _lines(_OWN_GROUPS))}
    second = groups.get("", "/"), "memory.max", "memory.current"
    first = groups.get("memory", "/"), "memory.limit_in_bytes", "memory.usage_in_bytes"
    for root, (path, ceiling, used) in ((_GROUPS, second), (_GROUPS / "memory", first)):
        # Inside a container the root is often the group itself.
        for folder in {root, root / path.lstrip("/")}:
            limit, now = ("".join(_lines(folder / name)).strip() for name in (ceiling, used))
            if limit.isdigit() and now.isdigit():
                cached = [int(x.split()[1]) for x in _lines(folder / "memory.stat") if x.startswith("inactive_file ")]
                left.append(max(int(limit) - int(now) + sum(cached), 0))
    return min(left)


def device_bytes(device: "jax.Device") -> int | None:  # pyright: ignore[reportInvalidTypeForm]
    """Bytes that a device of JAX has left; None where it does not report them (a CPU does not: see `free_bytes`)."""
    stats = device.memory_stats() or {}
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if "bytes_limit" in stats else None


def check_memory(what: str, needed: float, remedy: str = "a smaller one takes less") -> None:
    """Refuse what would take more than half of the memory that is free, before it is made.

    Args:
        what: argument and value, as in "num_draws is 10".
        needed: bytes at the peak, an estimate.
        remedy: what takes less, in words.

    Raises:
        ValueError: it is more.
    """
    # Where the answer is plain the system is not asked, which takes as long as a small policy.
    if needed > NEGLIGIBLE and needed > (limit := memory_limit()):
        raise too_much(what, needed, limit, "half of what is free", remedy)


def too_much(what: str, needed: float, limit: float, whose: str, remedy: str) -> ValueError:
    """The refusal: `whose` names the source of the limit; the rest as in `check_memory`."""
    return ValueError(
        f"{what}, about {in_words(needed)} of memory, expected at most {in_words(limit)} ({whose}): {remedy}"
    )


def memory_limit() -> int:
    """Half of the memory that is free, in bytes."""
    return int(SHARE * free_bytes())


def in_words(size: float) -> str:
    """A number of bytes for a person."""
    if size >= ENDLESS:
        return "over a million GiB"
    unit, name = (2**30, "GiB") if size >= 2**30 else (2**20, "MiB")
    return f"{size / unit:.3g} {name}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def usable_cores() -> int:
    """Those that it is bound to; where the system does not say, all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
