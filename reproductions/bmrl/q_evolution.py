"""What agents believe of Q while they learn: a run of steps, stopped at equal intervals to look (see `frames`)."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_mdp.agents import PSRL
from bayes_mdp.agents.common.table_policies import EpsilonGreedy, GaussianThompson
from bayes_mdp.agents.model_free.bql import StudentTThompson
from bayes_mdp.experiments.rollout.execute import Prepared, play_chunk, start_all
from bayes_mdp.experiments.rollout.time_loop import Carry, RunContext

if TYPE_CHECKING:
    import xarray as xr

NUM_TIMES = 20
NUM_DRAWS = 100  # of PSRL
QUANTILE = 1.959964


def played(prepared: Prepared, *, watch: bool = False) -> tuple[Float[np.ndarray, " N"], list[Any]]:
    """Play a run; compiled once, whether it is watched or not. Host side.

    Args:
        prepared: a run of steps without an end.
        watch: keep the state and belief of the first seed at the beginning of every row.

    Returns:
        The rewards of each seed, summed; for each row (agent's own state, belief), or nothing.
    """
    layout = replace(prepared.layout, chunk_rows=1)
    setting, keys = prepared.setting, prepared.keys
    carry = start_all(layout, (prepared.own_env, prepared.own_belief), setting, keys, prepared.belief)
    reward, recorded = np.zeros(len(keys)), []
    for row in range(layout.num_rows):
        if watch:
            recorded.append(_first_seed(carry))
        carry, rows = play_chunk(layout, prepared.own_env, setting, keys, carry, jnp.int32(row), jnp.int32(1))
        reward += np.asarray(rows.reward, np.float64).sum(1)
    if watch:
        recorded.append(_first_seed(carry))
    return reward, recorded


def _first_seed(carry: Carry) -> Any:
    """Copies: the next chunk takes the arrays of the carry as its own."""
    return jax.tree.map(lambda x: np.array(np.asarray(x)[0]), (carry.agent_state, carry.belief))


def laws_of_q(prepared: Prepared, recorded: list[Any]) -> dict[str, np.ndarray]:
    """The law of Q that the agent would act by at each time that was `recorded`: mean, standard deviation.

    Gaussian and Student-t agents: of their policy; PSRL: of `NUM_DRAWS` draws; Q-learning: its table, nan.

    Returns:
        `q_mean`, `q_sd` [time, state, action]; `time`, steps.
    """
    layout = prepared.layout
    stacked = jax.tree.map(lambda *x: np.stack(x), *recorded)
    num_draws = NUM_DRAWS if isinstance(prepared.setting.agent, PSRL) else 1
    mean, sd = _laws(num_draws, prepared.setting, prepared.keys[0], *stacked)
    time = np.minimum(layout.row_length * np.arange(len(recorded)), layout.num_steps)
    return {"q_mean": np.asarray(mean), "q_sd": np.asarray(sd), "time": time}


@partial(jax.jit, static_argnames="num_draws")
def _laws(num_draws: int, setting: RunContext, key: Any, states: Any, beliefs: Any) -> tuple[Array, Array]:
    def one(key: Any, state: Any, belief: Any) -> tuple[Array, Array]:
        whole = None if belief is None else eqx.combine(belief, setting.constants)
        return _law(setting.agent.plan(key, setting.problem, state, whole)[0])

    def law(state: Any, belief: Any) -> tuple[Array, Array]:
        keys = jax.random.split(key, num_draws)
        mean, sd = jax.vmap(one, in_axes=(0, None, None))(keys, state, belief)
        return mean.mean(0), jnp.sqrt(mean.var(0) + (sd**2).mean(0))

    return jax.vmap(law)(states, beliefs)


def _law(policy: Any) -> tuple[Array, Array]:
    """Mean and standard deviation of Q under which a policy acts; 0: it acts by one table of values."""
    if isinstance(policy, GaussianThompson):
        return policy.mean, jnp.asarray(policy.sd)
    if isinstance(policy, StudentTThompson):
        return policy.q, policy.sd
    return policy.q, jnp.full_like(policy.q, jnp.nan if isinstance(policy, EpsilonGreedy) else 0.0)


def draw_evolution(axes: Any, result: "xr.Dataset", agent: str, pairs: list[tuple[int, int]], label: str) -> None:
    """Mean and 95 % interval of Q of some pairs over time, the optimal q dashed."""
    time = result["time"].to_numpy()
    mean, sd = (result[name].sel(agent=agent).to_numpy() for name in ("q_mean", "q_sd"))
    for number, (state, action) in enumerate(pairs):
        colour = f"C{number}"
        centre, half = mean[:, state, action], QUANTILE * sd[:, state, action]
        axes.plot(time, centre, color=colour, linewidth=1.3, label=f"Q({state}, {action})")
        if np.isfinite(half).all():
            axes.fill_between(time, centre - half, centre + half, color=colour, alpha=0.2, linewidth=0)
        axes.axhline(float(result["q_optimal"][state, action]), color=colour, linestyle="--", linewidth=1.0)
    axes.set_title(label, fontsize=9)
    axes.set_xlabel("step")
