"""Methods of `Module`: what Equinox binds, and quickly."""

import inspect
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.utils.modules import Module


class _Plain(eqx.Module):
    x: jax.Array
    n: int = eqx.field(static=True)

    def times(self, y: float) -> jax.Array:
        """x times n times y."""
        return self.x * self.n * y

    @property
    def double(self) -> jax.Array:
        return 2 * self.x

    @classmethod
    def one(cls) -> "_Plain":
        return cls(jnp.ones(2), 1)

    @staticmethod
    def zero() -> float:
        return 0.0


class _Quick(Module):
    x: jax.Array
    n: int = eqx.field(static=True)

    times, double, one, zero = _Plain.times, _Plain.double, _Plain.__dict__["one"], _Plain.__dict__["zero"]


class _Child(_Quick):
    def times(self, y: float) -> jax.Array:
        """One more."""
        return super().times(y) + 1


def test_a_bound_method_is_that_of_equinox():
    plain, quick = _Plain(jnp.arange(3.0), 2), _Quick(jnp.arange(3.0), 2)
    for _ in range(2):  # made by Equinox the first time, copied the second
        bound, expected = quick.times, plain.times
        assert type(bound) is type(expected)
        ours, theirs = vars(bound), vars(expected)
        assert set(ours) == set(theirs)
        assert all(ours[name] == theirs[name] for name in theirs if name != "__self__")
        assert bound.__self__ is quick
        assert (bound.__name__, bound.__doc__) == ("times", "x times n times y.")
        assert inspect.signature(bound) == inspect.signature(expected)
        leaves, tree = jax.tree.flatten(bound)
        assert len(leaves) == 1
        np.testing.assert_array_equal(jax.tree.unflatten(tree, [3 * leaves[0]])(1.0), [0.0, 6.0, 12.0])


def test_each_object_has_its_method():
    one, two = _Quick(jnp.ones(1), 1), _Quick(jnp.ones(1), 5)
    first, second = one.times, two.times
    assert float(first(1.0)[0]) == 1.0
    assert float(second(1.0)[0]) == 5.0
    assert float(_Child(jnp.ones(1), 5).times(1.0)[0]) == 6.0
    np.testing.assert_array_equal(one.double, [2.0])
    assert one.zero() == 0.0
    assert type(_Quick.one()) is _Quick
    assert isinstance(one.one(), _Quick)


def test_a_method_is_an_argument_of_a_compiled_function():
    traces = []

    @jax.jit
    def run(function, y):
        traces.append(0)
        return function(y)

    for x in (1.0, 2.0, 3.0):
        assert float(run(_Quick(jnp.array([x]), 2).times, 10.0)[0]) == 20.0 * x
    assert len(traces) == 1  # objects of one shape share a program
    assert float(jax.grad(lambda q: q.times(3.0).sum())(_Quick(jnp.ones(1), 2)).x[0]) == 6.0


def test_a_method_is_looked_up_many_times_faster():
    plain, quick = _Plain(jnp.ones(1), 1), _Quick(jnp.ones(1), 1)
    _ = quick.times

    def seconds(module):
        began = time.process_time()
        for _ in range(300):
            _ = module.times
        return time.process_time() - began

    # Four times at least; 40 on a quiet machine.
    assert min(seconds(quick) for _ in range(5)) < min(seconds(plain) for _ in range(5)) / 4
