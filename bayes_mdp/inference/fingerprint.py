"""A digest of what a traced program computes: equal programs share proofs and compiled code, others never."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from bayes_mdp.mdp import StateActionSpace

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def fingerprint(closed: ClosedJaxpr, space: StateActionSpace, facts: Any) -> str:
    """Equal for programs that compute the same; the text of a jaxpr leaves out the values of arrays."""
    text = f"{space!r}\n{facts!r}\n{closed.jaxpr}"
    digest = hashlib.sha256(_ADDRESS.sub("", text).encode())
    for constant in (*jax.tree.leaves(space), *constants(closed)):
        array = np.asarray(constant)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def constants(closed: ClosedJaxpr) -> Iterator[Any]:
    """The arrays that a jaxpr holds: its constants, those of closed inner jaxprs, and array literals."""
    yield from closed.consts
    yield from _inner(closed.jaxpr)


def _inner(jaxpr: Jaxpr) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield from (v.val for v in equation.invars if isinstance(v, Literal))
        for x in jax.tree.leaves(equation.params, is_leaf=lambda x: isinstance(x, (ClosedJaxpr, Jaxpr))):
            if isinstance(x, ClosedJaxpr):
                yield from constants(x)
            elif isinstance(x, Jaxpr):
                yield from _inner(x)
