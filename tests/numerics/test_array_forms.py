import numpy as np

from bayes_mdp.numerics.array_forms import stack_trees


def test_arrays_that_all_trees_share_are_repeated_without_a_copy():
    shared, apart = np.arange(3.0), [np.full(2, float(k)) for k in range(4)]
    both, number = stack_trees([(shared, x) for x in apart]), stack_trees([2.0, 2.0])
    np.testing.assert_array_equal(both[0], np.tile(shared, (4, 1)))
    np.testing.assert_array_equal(both[1], np.stack(apart))
    assert both[0].strides[0] == 0 and not both[0].flags.writeable
    np.testing.assert_array_equal(number, [2.0, 2.0])
    assert stack_trees([shared])[0] is not shared and stack_trees([shared]).flags.writeable
