"""Warnings that name the line of the user's program, however deep in the package they arise."""

import sys
import warnings

_INSIDE = (__name__.partition(".")[0], "jaxtyping", "beartype")
"""Packages whose frames are passed over; the latter two where types are checked."""


def warn_user(message: str) -> None:
    """A `UserWarning` at the first caller that is not of this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
