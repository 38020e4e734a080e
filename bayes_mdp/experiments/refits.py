"""Beliefs by weighted draws wear out: those that have are inferred anew between the chunks of a run, in one call.

A refit is computed in the precision of the run. float64 in a float32 run is not to be had: of numpy arrays that a prior
program holds, JAX keeps the 32-bit copies as long as the compiled run lives, and fails to lower a mixture of both. In
float32 the error of a log density reaches one unit after some 10^6 transitions: beyond, enable x64 for the whole run.
"""

import logging
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from bayes_mdp.experiments.beliefs import changing
from bayes_mdp.experiments.loop import Streams
from bayes_mdp.inference.sampling import plain_key
from bayes_mdp.mdp.protocols import CanRefit

_STREAM = len(Streams._fields) + 1  # the one before it starts the belief of an `Actor`
COSTS = ("seconds", "calls", "compilations")
_LOG = logging.getLogger(__name__)


class Refits:
    """Renews the beliefs of a run, and keeps account of what that costs. Host side.

    Args:
        keys: of the seeds.
        belief: before any data, the leaves that change.
        constants: the leaves that do not.

    Attributes:
        needed: whether the belief is one that wears out.
    """

    def __init__(self, keys: Key[Array, " N"], belief: Any, constants: Any) -> None:
        self.needed = isinstance(belief, CanRefit)
        self._keys, self._constants = plain_key(keys), constants
        self._seconds, self._calls, self._sizes = 0.0, 0, set[int]()

    def renew(self, belief: Any, row: int) -> tuple[Any, Bool[np.ndarray, " N"]]:
        """The beliefs [N ...] before a row (for an `Actor`: a time), the worn ones inferred anew, and which were.

        Draws depend on the seed and the row alone: a run that is resumed here ends in the same bits.
        """
        worn = np.asarray(_worn(belief, self._constants))
        seeds = np.flatnonzero(worn)
        if not seeds.size:
            return belief, worn
        began = time.perf_counter()
        size = 1 << (seeds.size - 1).bit_length()
        padded = np.concatenate([seeds, np.repeat(seeds[:1], size - seeds.size)])
        belief = self._write(belief, seeds, refitted(self._keys[padded], _take(belief, padded), self._constants, row))
        self._seconds, self._calls = self._seconds + time.perf_counter() - began, self._calls + 1
        self._sizes.add(size)
        _LOG.info("%d: %d of %d beliefs inferred anew, %.1f s so far", row, seeds.size, worn.size, self._seconds)
        return belief, worn

    def _write(self, belief: Any, seeds: np.ndarray, fresh: Any) -> Any:
        def one(old: Any, new: Any) -> Array:
            array = np.array(old)
            array[seeds] = new[: seeds.size]
            return jnp.asarray(array)

        return jax.tree.map(one, belief, fresh)

    @property
    def cost(self) -> dict[str, float]:
        """Seconds (compilation included), calls and programs compiled (or taken from those of a run before)."""
        return dict(zip(COSTS, (round(self._seconds, 3), self._calls, len(self._sizes)), strict=True))


def refitted(keys: Key[Array, " n"], belief: Any, constants: Any, row: int) -> Any:
    """The beliefs [n ...] inferred anew, as numpy arrays."""
    return jax.device_get(_refit_all(keys, belief, constants, np.uint32(row)))


@jax.jit
def _worn(belief: Any, constants: Any) -> Bool[Array, " N"]:
    return jax.vmap(lambda one: eqx.combine(one, constants).needs_refit())(belief)


@jax.jit
def _refit_all(keys: Key[Array, " n"], belief: Any, constants: Any, row: Any) -> Any:
    def one(key: Key[Array, ""], part: Any) -> Any:
        key = jax.random.fold_in(jax.random.fold_in(key, _STREAM), row)
        return changing(eqx.combine(part, constants).refit(key), part)

    return jax.vmap(one)(keys, belief)


def _take(belief: Any, seeds: np.ndarray) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[seeds], belief)
