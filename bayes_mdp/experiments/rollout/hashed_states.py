"""`HashedStates`: an environment without tables in the loop of episodes; a hash table finds the rows of its states.

Two hashes of a state's code name two buckets of a cache line each, and a new code goes to the emptier one: both are
full only when the whole table nearly is. Practically no code goes without a row until 80 % of the rows are taken, one
in 10^4 until 90 % are. No entry is ever moved or deleted, and no probe depends on another: a look-up is two slices, an
insertion one scatter.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from bayes_mdp.experiments.rollout.sweep_loop import EnvState
from bayes_mdp.mdp import SimulatedEnvironment
from bayes_mdp.utils.typing import BoolScalar, IntScalar, RealScalar
from bayes_mdp.utils.validation import check_count

BUCKET = 16  # codes of four bytes: a cache line
EMPTY = -1
MOST_ROWS = 2**30


class HashIndex(NamedTuple):
    """The keys of a hash table.

    Args:
        codes: the code of the state that each row belongs to, -1: free.
        lost: look-ups, of those that may insert, that found no row and shared that of another state.
        made: all look-ups that may insert.
    """

    codes: Int[Array, " rows"]
    lost: Int[Array, ""]
    made: Int[Array, ""]


class HashedStates(eqx.Module):
    """An environment whose states are too many to list: a state gets a row of the tables at its first visit.

    A state without a free row in either of its buckets shares the last row of one of them: that of the state that came
    last, as a rule the rarest. `overflow` is the share of such look-ups.

    Args:
        env: any `SimulatedEnvironment`.
        num_rows: of the tables, a power of two from 16 to 2^30; more than the number of states that are visited.

    Raises:
        TypeError: `num_rows` is no integer.
        ValueError: it is no power of two, or out of range.
    """

    env: SimulatedEnvironment
    num_rows: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_count("num_rows", self.num_rows, BUCKET)
        if self.num_rows & (self.num_rows - 1) or self.num_rows > MOST_ROWS:
            raise ValueError(f"num_rows is {self.num_rows}, expected a power of two from {BUCKET} to 2^30")

    def index(self) -> HashIndex:
        """All rows are free."""
        return HashIndex(jnp.full(self.num_rows, EMPTY, jnp.int32), jnp.int32(0), jnp.int32(0))

    def overflow(self, index: HashIndex) -> Float[Array, ""]:
        """The share of look-ups whose state had no row of its own."""
        return index.lost / jnp.maximum(index.made, 1)

    def locate(self, index: HashIndex, state: EnvState, acts: BoolScalar) -> tuple[HashIndex, Int[Array, ""]]:
        """The index, and the row of a state; a new state gets a row where `acts`.

        Where `acts` is false and the state is new the row is one that it might get, or share.
        """
        code = jnp.asarray(self.env.code(state), jnp.int32)
        starts = self._buckets(code)
        codes = jnp.stack([lax.dynamic_slice(index.codes, (start,), (BUCKET,)) for start in starts])
        known = codes == code
        free = jnp.sum(codes == EMPTY, axis=1, dtype=jnp.int32)
        # Buckets are filled from the left: the first free row of the emptier one is BUCKET - free rows from its start.
        there = jnp.where(free[1] > free[0], starts[1], starts[0]) + BUCKET - jnp.maximum(free[0], free[1])
        # A code is in one row at most, so the maximum over the matches is the match.
        position = jnp.max(jnp.where(known, starts[:, None] + jnp.arange(BUCKET), -1))
        new, full = position < 0, jnp.max(free) == 0
        row = jnp.where(new, jnp.where(full, starts[0] + BUCKET - 1, there), position)
        # No branch: where nothing is inserted the scatter goes beyond the table and is dropped.
        entry = jnp.where(acts & new & ~full, row, self.num_rows)
        after = index.codes.at[entry].set(code, mode="drop")
        return HashIndex(after, index.lost + (acts & new & full), index.made + acts), row

    def reset(self, key: Key[Array, ""], u: RealScalar) -> EnvState:
        """The first state of an episode."""
        del u
        return self.env.reset(key)

    def step(
        self, key: Key[Array, ""], u: RealScalar, state: EnvState, action: IntScalar
    ) -> tuple[EnvState, Float[Array, ""], Bool[Array, ""]]:
        """One transition."""
        del u
        return self.env.step(key, state, action)

    def _buckets(self, code: Int[Array, ""]) -> Int[Array, " 2"]:
        """The first rows of the two buckets of a code."""
        bits = (self.num_rows // BUCKET).bit_length() - 1
        if not bits:
            return jnp.zeros(2, jnp.int32)
        # The high bits of the mixed code, and of its product with 2^32 / golden ratio (Fibonacci hashing).
        mixed = _mixed(code.astype(jnp.uint32))
        both = jnp.stack([mixed, mixed * jnp.uint32(0x9E3779B1)]) >> (32 - bits)
        return both.astype(jnp.int32) * BUCKET


def _mixed(x: UInt32[Array, ""]) -> UInt32[Array, ""]:
    """A bijection that makes codes which differ little differ in half of their bits (the last step of MurmurHash3)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
