"""The type of what the steps of a program take and give."""

from typing import Any, TypeAlias

Array: TypeAlias = Any
"""An array of NumPy, or a number of it, which it gives in the place of an array without axes."""
