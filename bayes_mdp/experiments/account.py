"""The regret of a finished run, from its rows; the oracle run."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bayes_mdp.agents import Greedy
from bayes_mdp.agents.replan import EverySteps
from bayes_mdp.experiments.case import Case
from bayes_mdp.experiments.execute import Outcome, execute
from bayes_mdp.experiments.layout import Layout
from bayes_mdp.experiments.prepare import Prepared
from bayes_mdp.experiments.progress import Progress
from bayes_mdp.experiments.regret import optimal_plan, optimal_rate
from bayes_mdp.experiments.snapshot import Snapshots
from bayes_mdp.mdp import Problem, Transitions


class Oracle(eqx.Module):
    """The agent of an oracle run: an optimal policy, nothing to learn."""

    q: Float[Array, "*H S A"]
    best: Int[Array, "*H S"]

    def init(self, key: Any, problem: Problem) -> None:
        """No state."""
        del key, problem

    def plan(self, key: Any, problem: Problem, state: Any, belief: Any = None) -> tuple[Greedy, None]:
        """Greedy for the optimal q."""
        del key, problem, state, belief
        return Greedy(self.q, best=self.best), None

    def observe(self, problem: Problem, state: Any, transition: Transitions, weight: Any = 1.0) -> None:
        """Nothing."""
        del problem, state, transition, weight


def cumulative_regret(case: Case, prepared: Prepared, outcome: Outcome) -> Float[np.ndarray, "N rows"]:
    """Regret [seed, row], summed over rows, by the definition asked for (see `run`)."""
    if prepared.layout.values:
        return np.cumsum(outcome.regret, axis=1)
    if case.regret == "oracle_run":
        return np.cumsum(_oracle_rewards(case, prepared) - outcome.reward, axis=1)
    rate = optimal_rate(prepared.envs.mdp, case.objective, batched=prepared.own_world)
    each = np.broadcast_to(np.asarray(rate, np.float64)[..., None], (outcome.reward.shape[0], 1))
    return np.cumsum(each * units(prepared.layout) - outcome.reward, axis=1)


def units(layout: Layout) -> np.ndarray:
    """What the optimal rate is multiplied with: one for an episode, the number of steps for a checkpoint."""
    if layout.episodic:
        return np.ones(layout.num_rows)
    return np.diff(np.minimum(layout.row_length * np.arange(layout.num_rows + 1), layout.num_steps))


def _oracle_rewards(case: Case, prepared: Prepared) -> Float[np.ndarray, "N rows"]:
    """Rewards of an optimal policy under the keys of the run (the environment's numbers depend on them alone)."""
    plan = optimal_plan(prepared.envs.mdp, case.objective)
    oracle_agent = Oracle(jnp.asarray(plan.q, float), jnp.asarray(plan.policy))
    layout = replace(prepared.layout, always=True)
    setting = replace(prepared.setting, agent=oracle_agent, rule=EverySteps(1), constants=None)
    oracle = prepared._replace(layout=layout, setting=setting, belief=None)
    silent = Progress(layout.row_length, layout.num_rows, show=False)
    return execute(oracle, silent, Snapshots(None, {})).reward
