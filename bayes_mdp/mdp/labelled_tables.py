"""Tables of pandas and xarray in place of arrays: read by their labels, in the order of a space, never by place.

`log.frame["state"].value_counts(normalize=True)` has the commonest state first, `DataFrame.pivot` sorts: as arrays they
would give the numbers of one state to another. Host-side.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from bayes_mdp.utils.messages import did_you_mean
from bayes_mdp.utils.typing import Names
from bayes_mdp.utils.validation import label_list


def in_order(name: str, values: Any, **axes: Names) -> Any:
    """The numbers of a labelled table in the order of the axes; anything else (Any) as it is.

    Args:
        name: of the argument, for messages.
        values: an axis that is labelled 0, 1, 2, ..., or not at all, is taken as it stands.
        axes: name of the axis -> its labels: rows then columns of pandas; of xarray the last dimensions, or those of
            these names.

    Raises:
        ValueError: a label that the axis does not have, one twice, a label that is missing.

    Example:
        >>> from bayes_mdp.mdp.labelled_tables import in_order
        >>> import pandas as pd
        >>> in_order("cost", pd.Series({"worn": 5.0, "new": 1.0}), state=("new", "worn"))
        array([1., 5.])
    """
    if _is_xarray(values) and set(axes) <= set(values.dims):
        values = values.transpose(..., *axes)  # by name, whatever the order of its dimensions
    labelled = _labels(values)
    if not labelled:
        return values
    array = np.asarray(values)
    if len(labelled) < len(axes):
        return array  # of another shape, which is refused where the array is looked into
    for place, (axis, names) in enumerate(axes.items(), start=len(labelled) - len(axes)):
        labels = labelled[place]
        if labels is not None:
            array = np.take(array, _places(name, axis, labels, names), axis=place)
    return array


def by_label(name: str, values: Any) -> Any:
    """A Series, or a DataArray of one dimension, as {label: value}, if it is labelled; anything else (Any) as it is.

    Args:
        name: of the argument, for messages.
        values: what a caller gave.

    Raises:
        ValueError: a label twice.
    """
    named = _named(values)
    if not named or np.ndim(values) != 1:
        return values
    (labels,) = named
    mapping = dict(zip(labels, np.asarray(values).tolist(), strict=True))
    if len(mapping) < len(labels):
        twice = next(label for i, label in enumerate(labels) if label in labels[:i])
        raise ValueError(f"{name} has the label {twice!r} twice, expected every label once")
    return mapping


def refuse_labels(name: str, values: Any, order_of: str = "the space") -> None:
    """Refuse a labelled table where nothing is known of the labels, in whose order it could be put.

    Args:
        name: of the argument, for messages.
        values: what a caller gave.
        order_of: what has the order that is meant.

    Raises:
        TypeError: what there is, and what to write.
    """
    named = _named(values)
    if named:
        order = "list(space.state_names)" + (", list(space.action_names)" if np.ndim(values) > 1 else "")
        example = f", such as {name}.loc[{order}].to_numpy()" if order_of == "the space" else ""
        raise TypeError(
            f"{name} is a {type(values).__name__} with the labels {label_list(named[0])}, expected an array in the "
            f"order of {order_of}{example}"
        )


def _places(name: str, axis: str, labels: Sequence[Hashable], names: Names) -> list[int]:
    """Where the table has each name of the axis."""
    places = {label: i for i, label in enumerate(labels)}
    known = list(names)
    if set(places) != set(known) and set(places) == set(map(str, known)):
        known = [str(label) for label in known]  # coordinates of xarray hold text, where labels are of several kinds
    if set(places) != set(known) and labels == list(range(len(known))):
        return list(range(len(known)))  # no labels: places
    twice = next((label for i, label in enumerate(labels) if places[label] != i), None)
    if twice is not None:
        raise ValueError(f"{name} has the {axis} {twice!r} twice, expected every {axis} once")
    unknown = next((label for label in labels if label not in set(known)), None)
    if unknown is not None:
        raise ValueError(
            f"{name} has the {axis} {unknown!r}, expected those of the space: {label_list(names)}"
            f"{did_you_mean(unknown, names)}"
        )
    missing = [label for label in known if label not in places]
    if missing:
        raise ValueError(f"{name} has no {axis} {label_list(missing)}, expected every {axis} once")
    return [places[label] for label in known]


def _named(values: Any) -> list[list[Any]]:
    """The labels of the axes that have other ones than 0, 1, 2, ...; empty: no labelled table."""
    return [labels for labels in _labels(values) if labels is not None and labels != list(range(len(labels)))]


def _labels(values: Any) -> list[list[Any] | None]:
    """The labels along each axis of a Series, DataFrame or DataArray; None: an axis without. Of anything else empty."""
    if hasattr(values, "iloc"):  # pandas is not imported for it
        axes = (values.index, values.columns) if hasattr(values, "columns") else (values.index,)
        return [axis.tolist() for axis in axes]
    if _is_xarray(values):
        return [values.coords[dim].values.tolist() if dim in values.coords else None for dim in values.dims]
    return []


def _is_xarray(values: object) -> bool:
    return hasattr(values, "dims") and hasattr(values, "coords") and hasattr(values, "transpose")
