"""Does the replay fit: asked before it is allocated."""

import os
from typing import Any

import jax

from bayes_mdp.agents.neural.replay import Row, replay_bytes

_GIB = 2**30


def available_bytes(device: Any = None) -> int | None:
    """Memory that is free on the device (of the machine, for a CPU); None where it cannot be told."""
    device = jax.devices()[0] if device is None else device
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else None
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def check_bytes_fit(needed: int, what: str, device: Any = None) -> None:
    """Refuse a replay that is larger than the free memory; `what` is said in brackets behind its size.

    Raises:
        ValueError: it does not fit; the sentence gives its size.
    """
    free = available_bytes(device)
    if free is not None and needed > free:
        raise ValueError(
            f"options.replay_size asks for {needed / _GIB:.1f} GiB ({what}), expected at most the "
            f"{free / _GIB:.1f} GiB that are free"
        )


def check_replay_fits(num_rows: int, row: Row, num_seeds: int, device: Any = None) -> None:
    """Refuse the replays of all seeds if they are larger than the free memory together.

    Raises:
        ValueError: they do not fit.
    """
    seeds = f"{num_seeds} seed{'s' if num_seeds > 1 else ''}"
    what = f"{num_rows * row.action.size:,} transitions, {seeds}"
    check_bytes_fit(num_seeds * replay_bytes(num_rows, row), what, device)
