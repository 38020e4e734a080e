"""`label_list`: labels in a message, the first of many."""

from collections.abc import Hashable, Sequence

MOST = 6


def label_list(labels: Sequence[Hashable]) -> str:
    """Labels with commas between them, as Python writes them: "'idle', 'busy'". Of many the first six, and how many."""
    shown = ", ".join(map(repr, labels[:MOST]))
    return f"{shown}, ... ({len(labels)} in all)" if len(labels) > MOST else shown
