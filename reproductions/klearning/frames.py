"""Pictures on the way: what an agent has visited, and what it would plan, after given numbers of episodes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.experiments.rollout.execute import play_chunk, prepare, start_all
from bayes_mdp.experiments.rollout.time_loop import Carry, RunContext, streams
from bayes_mdp.experiments.run_config import RunConfig, check_case
from bayes_mdp.mdp import Episodic
from bayes_mdp.utils.validation import require


class Frames(NamedTuple):
    """What `frames` recorded, for T numbers of episodes and N seeds.

    Args:
        policies: with leading axes [T N]: the plan of the episode that would follow.
        visits: of every pair so far.
        hits: whether each episode reached the target.
    """

    policies: Any
    visits: Float[np.ndarray, "T N *H S A"]
    hits: Bool[np.ndarray, "N episodes"]


def frames(case: RunConfig, times: Sequence[int]) -> Frames:
    """Play `times[-1]` episodes of a run and stop after each of `times` to look. Host side, compiled once.

    Args:
        case: a run under `Episodic` with one plan an episode, `options.target` and worlds that the seeds share; its
            number of episodes must be `times[-1]`.
        times: increasing numbers of episodes, from 1.

    Raises:
        ValueError: another objective, no target, `times` that do not increase or do not end with the run.
    """
    check_case(case)
    gaps = np.diff([0, *times])
    require(gaps < 1, "times", np.asarray(times), "increasing numbers, from 1")
    if not isinstance(case.objective, Episodic) or case.options.target is None or list(times)[-1:] != [case.length]:
        raise ValueError(f"case has {case.length} episodes, expected a target and episodes to the end of {list(times)}")
    prepared = prepare(case)
    layout = replace(prepared.layout, chunk_rows=int(gaps.max()))
    setting, keys = prepared.setting, prepared.keys
    carry = start_all(layout, (prepared.own_env, prepared.own_belief), setting, keys, prepared.belief)
    done, policies, visits, hits = 0, [], [], []
    for time, count in zip(times, gaps.tolist(), strict=True):
        carry, rows = play_chunk(layout, prepared.own_env, setting, keys, carry, jnp.int32(done), jnp.int32(count))
        hits.append(np.asarray(rows.target)[:, :count] > 0)
        visits.append(np.asarray(carry.visits))
        policies.append(jax.device_get(_plan(setting, keys, carry, jnp.int32(time * layout.row_length))))
        done = time
    return Frames(jax.tree.map(lambda *x: np.stack(x), *policies), np.stack(visits), np.concatenate(hits, 1))


@jax.jit
def _plan(setting: RunContext, keys: Any, carry: Carry, time: Any) -> Any:
    """The plans that the seeds would make now."""

    def one(key: Any, state: Any, belief: Any) -> Any:
        whole = eqx.combine(belief, setting.constants)
        return setting.agent.plan(jax.random.fold_in(streams(key).plan, time), setting.problem, state, whole)[0]

    return jax.vmap(one)(keys, carry.agent_state, carry.belief)
