"""Names along an axis, so that they do not overlap: shortened, turned or thinned."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axis import Axis

CHARACTER, LINE = 0.08, 0.18
"""Inches of a character of tick labels, about, and of a line of them."""
LONGEST = 24
"""Characters of a name that is shown as a whole."""
_SHORT = 4
_EVERY = (1, 2, 5)


def shorten(name: Hashable) -> str:
    """The name as text; of a long one its beginning and its end."""
    text = " ".join(str(name).split())
    keep = LONGEST - 1
    return text if len(text) <= LONGEST else f"{text[: keep - keep // 3]}…{text[len(text) - keep // 3 :]}"


def label_axis(axis: "Axis", names: Sequence[Hashable], inches: float) -> float:
    """Names at 0, 1, ... of an axis; every second, fifth, ... of them where there is no room for all.

    Args:
        axis: x or y.
        names: of the places.
        inches: length of the axis, about.

    Returns:
        How many inches the names need across the axis, about.
    """
    from matplotlib.axis import YAxis

    shown = [shorten(name) for name in names]
    longest = max(map(len, shown), default=0)
    upright = isinstance(axis, YAxis)
    label_width = CHARACTER * (longest + 1.5)
    # Short names along x are thinned, long ones are turned first.
    turned = not upright and longest > _SHORT and len(shown) * label_width > inches
    stride = _stride(len(shown), int(inches / (LINE if upright or turned else label_width)))
    axis.set_ticks(range(0, len(shown), stride), shown[::stride])
    if turned:
        axis.set_tick_params(rotation=90)
    return label_width if upright or turned else LINE


def _stride(number: int, room: int) -> int:
    """1, 2, 5, 10, 20, ...: the least of which at most `room` are shown."""
    power = 1
    while True:
        for digit in _EVERY:
            if -(-number // (digit * power)) <= max(room, 1):
                return digit * power
        power *= 10
