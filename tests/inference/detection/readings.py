"""Functions of six elements read by the data flow, and the two checks of what is read."""

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.inference.detection.dataflow import Reader
from bayes_mdp.inference.detection.entries import NONE, OPAQUE, Domain, Entries, elements_of, symbols_of

SIZE = 6
POSITIVE = np.array([False, False, True, True, True, True])
"""Two real elements, two positive ones, two between zero and one."""
UNIT = np.array([False, False, False, False, True, True])


def read(function, *, hyper=0, known=()):
    """The entries of function(x [6], hyper ..., known ...), and their domain."""
    with jax.enable_x64(True):
        parents = [jax.ShapeDtypeStruct((), np.float64)] * hyper
        closed = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((SIZE,), np.float64), *parents, *known)
        domain = Domain(POSITIVE, UNIT)
        inputs = [elements_of(np.arange(SIZE), "x", domain.symbols)]
        inputs += [symbols_of((), f"h{i}", domain.symbols) for i in range(hyper)]
        found = Reader(domain).read(closed, [*inputs, *map(np.asarray, known)])[0]
        assert found is not None
        return domain.entries(found), domain


def numbers(entries: Entries, domain: Domain, x):
    """The entries at a value of the elements; nan where opaque or not known."""
    symbols = domain.symbols
    element = np.append(x, 1.0)[np.where(entries.element < 0, SIZE, entries.element)]
    with np.errstate(invalid="ignore"):
        monomial = symbols.values(entries.coefficient) * element**entries.power + symbols.values(entries.offset)
    value = np.where(entries.element == NONE, symbols.values(entries.offset), monomial)
    return np.where(entries.element == OPAQUE, np.nan, value)


def check_exact(function, rtol=1e-12):
    """No entry is opaque, and at any point the form has the value of the program."""
    entries, domain = read(function)
    assert (entries.element != OPAQUE).all() and entries.transform is None
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = np.where(
            UNIT, rng.uniform(size=SIZE), np.where(POSITIVE, rng.exponential(size=SIZE), rng.normal(size=SIZE))
        )
        with jax.enable_x64(True):
            expected = np.asarray(function(jnp.asarray(x)))
        np.testing.assert_allclose(numbers(entries, domain, x), expected, rtol=rtol)


def check_opaque(function):
    """Some entry is opaque, and depends on the site."""
    entries, _ = read(function)
    assert (entries.element == OPAQUE).any()
    assert entries.sites == {"x"}
