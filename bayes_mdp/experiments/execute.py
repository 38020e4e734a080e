"""The compiled program and the host loop over its chunks: progress, snapshots, interruption."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bayes_mdp.agents import ChecksLearnt
from bayes_mdp.experiments.layout import Layout
from bayes_mdp.experiments.loop import SEEDS, Carry, Row, Setting, play, start
from bayes_mdp.experiments.prepare import Prepared
from bayes_mdp.experiments.progress import Progress
from bayes_mdp.experiments.refits import Refits
from bayes_mdp.experiments.snapshot import Snapshots, join


class Outcome(NamedTuple):
    """What a run leaves: [seed, row] rewards and regrets, [seed, *H S A] visits; of beliefs that wear out, the refits.

    `refits` [seed]: how many; `refit_cost`: see `Refits.cost`. `target`: visits of the target pairs, [seed, row].
    """

    reward: Float[np.ndarray, "N rows"]
    regret: Float[np.ndarray, "N rows"]
    visits: Float[np.ndarray, "N *H S A"]
    refits: Int[np.ndarray, " N"] | None = None
    refit_cost: dict[str, float] | None = None
    target: Float[np.ndarray, "N rows"] | None = None


@partial(jax.jit, static_argnames=("layout", "own"))
def start_all(layout: Layout, own: tuple[bool, bool], setting: Setting, keys: Key[Array, " N"], belief: Any) -> Carry:
    """The carries of all seeds before the first step; `own`: whether each has a world, a belief of its own."""
    own_world, own_belief = own
    axes = _axes(own_world), 0, 0 if own_belief else None
    return jax.vmap(partial(start, layout), in_axes=axes, axis_name=SEEDS)(setting, keys, belief)


@partial(jax.jit, static_argnames=("layout", "own_world"), donate_argnames=("carry",))
def play_chunk(
    layout: Layout,
    own_world: bool,
    setting: Setting,
    keys: Key[Array, " N"],
    carry: Carry,
    first_row: Any,
    num_rows: Any,
) -> tuple[Carry, Row]:
    """One chunk for all seeds; compiled once for a layout, whatever the rows."""
    axes = _axes(own_world)
    seeds = jax.vmap(partial(play, layout), in_axes=(axes, 0, 0, None, None), axis_name=SEEDS)
    return seeds(setting, keys, carry, first_row, num_rows)


def execute(
    prepared: Prepared,
    progress: Progress,
    snapshots: Snapshots,
    *,
    stop: Callable[[Row], bool] | None = None,
) -> Outcome:
    """Play all rows, chunk by chunk, from the last snapshot where there is one.

    A run that is interrupted leaves a snapshot of its last chunk, and the interruption goes on to the caller. `stop`
    is asked between two chunks, with the rows so far [seed, row]: where it says so, no more is played.
    """
    layout, own_world, setting, keys = prepared.layout, prepared.own_world, prepared.setting, prepared.keys
    carry = start_all(layout, (own_world, prepared.own_belief), setting, keys, prepared.belief)
    refits = Refits(keys, prepared.belief, setting.constants)
    done, carry, chunks = snapshots.restore(carry)
    with progress as bar, snapshots as saved:
        bar.advance(done)
        for first, count in _chunks(layout, done):
            if stop is not None and chunks and stop(join(chunks, first)):
                break
            # Before the chunk, not after it: the snapshot is then older than the refit, which takes long.
            carry, anew = _renewed(refits, carry, first)
            carry, chunk = play_chunk(layout, own_world, setting, keys, carry, jnp.int32(first), jnp.int32(count))
            chunks.append(_noted(chunk, anew))
            saved.keep(first + count, carry, chunks)
            jax.block_until_ready(chunk)
            saved.write_if_old()
            done = first + count
            bar.advance(done)
    if isinstance(setting.agent, ChecksLearnt):
        setting.agent.check_learnt(carry.agent_state)
    rows = join(chunks, done)
    outcome = Outcome(np.asarray(rows.reward), np.asarray(rows.regret), np.asarray(carry.visits), target=rows.target)
    if rows.refits is None:
        return outcome
    return outcome._replace(refits=rows.refits.sum(1).astype(int), refit_cost=refits.cost)


def _renewed(refits: Refits, carry: Carry, row: int) -> tuple[Carry, Any]:
    if not refits.needed:
        return carry, None
    belief, anew = refits.renew(carry.belief, row)
    return replace(carry, belief=belief), anew


def _noted(chunk: Row, anew: Any) -> Row:
    """The chunk, with the refits before its first row."""
    if anew is None:
        return chunk
    refits = np.zeros(chunk.reward.shape)
    refits[:, 0] = anew
    return chunk._replace(refits=refits)


def _chunks(layout: Layout, done: int) -> Iterator[tuple[int, int]]:
    for first in range(done, layout.num_rows, layout.chunk_rows):
        yield first, min(layout.chunk_rows, layout.num_rows - first)


def _axes(own_world: bool) -> Setting:
    """Which axis of the setting runs over seeds: none, but for worlds of their own."""
    shared: Any = None
    each: Any = 0 if own_world else None
    return Setting(shared, shared, shared, each, each, shared, shared)
