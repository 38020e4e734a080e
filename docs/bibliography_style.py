"""A BibTeX style whose labels are the keys, [UBE18], as docstrings cite them; sorted by key."""

from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style as UnsortedStyle
from pybtex.style.labels import BaseLabelStyle
from pybtex.style.sorting import BaseSortingStyle


class KeyLabels(BaseLabelStyle):
    """The label of an entry is its key."""

    def format_labels(self, sorted_entries):
        for entry in sorted_entries:
            yield entry.key


class KeyOrder(BaseSortingStyle):
    """Entries in the order of their keys."""

    def sorting_key(self, entry):
        return entry.key


class KeyStyle(UnsortedStyle):
    """The plain style with keys as labels."""

    default_label_style = "keys"
    default_sorting_style = "keys"


register_plugin("pybtex.style.labels", "keys", KeyLabels)
register_plugin("pybtex.style.sorting", "keys", KeyOrder)
register_plugin("pybtex.style.formatting", "keys", KeyStyle)
