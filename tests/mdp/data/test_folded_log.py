"""Rows of a log by cell, against NumPy's unique rows."""

import numpy as np
import pytest

from bayes_mdp.mdp.data.folded_log import group_rows


# Dense keys are counted in a table; sparse ones are sorted with their places; wide ones leave no room for these.
@pytest.mark.parametrize("widths", [(3, 2), (1,), (10_000, 40, 9_000), (2**30, 2**25), (2**31 - 2,) * 4])
@pytest.mark.parametrize("rows", [1, 2, 500])
def test_rows_are_grouped_where_all_columns_agree(widths, rows):
    rng = np.random.default_rng(rows)
    for _ in range(20):
        # Some rows twice and more, the largest number of a column among them.
        distinct = np.stack([rng.integers(0, width, 200) for width in widths])
        distinct[:, 0] = np.array(widths) - 1
        columns = distinct[:, rng.integers(0, 200, rows)].astype(np.int32)
        expected, group = np.unique(columns, axis=1, return_inverse=True)
        number, size = group_rows(list(columns))
        assert size == expected.shape[1]
        np.testing.assert_array_equal(number, group.ravel())
