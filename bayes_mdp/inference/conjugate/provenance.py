"""Which logs a posterior has learnt from: the SHA-256 of the content of each, so that none is counted twice."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from bayes_mdp.mdp.data.folded_log import Source
from bayes_mdp.utils.typing import AnyArray

Digests = UInt8[AnyArray, "... 32"]


def digests_of(sources: Sequence[Source]) -> UInt8[np.ndarray, "N 32"]:
    """One row for each source."""
    return np.array([list(bytes.fromhex(source.digest)) for source in sources], np.uint8).reshape(-1, 32)


def after_sources(known: Digests | None, sources: Sequence[Source], *, allow_duplicates: bool) -> Digests:
    """The digests after more sources.

    Raises:
        ValueError: one of them is known (names it), and duplicates are not allowed.
    """
    new = digests_of(sources)
    if known is None:
        return new
    if not allow_duplicates:
        seen = {bytes(row) for row in np.asarray(known)}
        for source, row in zip(sources, new, strict=True):
            if bytes(row) in seen:
                raise ValueError(
                    f"{source.name} was learnt from already (SHA-256 {source.digest[:12]}...), expected every log once "
                    "(allow_duplicates=True counts it again; in the shell --allow-duplicates)"
                )
    return np.concatenate([np.asarray(known), new])


def merged_sources(parts: Sequence[Digests | None], *, allow_duplicates: bool) -> Digests | None:
    """The digests of all posteriors; None: none knows of any.

    Raises:
        ValueError: two of them learnt from one log (names both), and duplicates are not allowed.
    """
    first: dict[bytes, int] = {}
    known = [(i, bytes(row)) for i, part in enumerate(parts) if part is not None for row in np.asarray(part)]
    for i, row in known:
        earlier = first.setdefault(row, i)
        if earlier != i and not allow_duplicates:
            raise ValueError(
                f"posteriors[{i}] and posteriors[{earlier}] learnt from the same log (SHA-256 {row.hex()[:12]}...), "
                "expected disjoint data (allow_duplicates=True counts it again; in the shell --allow-duplicates)"
            )
    if all(part is None for part in parts):
        return None
    return np.array([list(row) for _, row in known], np.uint8).reshape(-1, 32)
