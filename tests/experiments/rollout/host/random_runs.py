"""Small random MDPs, agents and settings, on which both compilers are to play the same run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.agents import MBIE, MBIEEB, OIM, TDBMA, FrequencyBonus, RecencyBonus, RMax, SarsaLambda
from bayes_mdp.agents.model_based.empirical_planning import PrioritizedSweeping
from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.experiments import RunOptions
from bayes_mdp.experiments.run_config import RunConfig
from bayes_mdp.mdp import MDP, Discounted, Environment, FirstExit, NormalReward, SparseMDP

QUIET = RunOptions(progress=False, num_checkpoints=5)


def random_environment(rng: np.random.Generator, *, ends: bool | None = None) -> Environment:
    """Dense or listed rows, deterministic or not; ends or none; some actions illegal or none; rewards of several kinds.

    Rewards are normal draws: values of two actions are equal where nothing is known of either, and hardly elsewhere.
    """
    s, a = int(rng.integers(1, 7)), int(rng.choice([1, 2, 3, 4, 18]))
    ends = bool(rng.random() < 0.7) if ends is None else ends
    width = s + ends
    rows = rng.dirichlet(np.full(width, 0.5), size=(s, a))
    if rng.random() < 0.3:  # deterministic
        rows = np.eye(width)[rows.argmax(-1)]
    elif rng.random() < 0.5:  # outcomes that cannot be
        rows = np.where(rows < 0.2, 0.0, rows)
        rows /= rows.sum(-1, keepdims=True)
    legal = None
    if a > 1 and rng.random() < 0.5:
        legal = rng.random((s, a)) < 0.6
        legal[np.arange(s), rng.integers(0, a, s)] = True
    end_probs = rows[..., s] if ends else None
    first = rng.dirichlet(np.ones(s))
    kind = rng.integers(0, 3)
    value = rng.normal(size=(s, a, width))
    reward = (rows * value).sum(-1) if kind else rng.normal(size=(s, a))
    if rng.random() < 0.5:
        mdp: Any = MDP(rows[..., :s], reward, end_probs=end_probs, legal=legal, initial=first)
    else:
        listed = np.broadcast_to(np.arange(s), (s, a, s))
        mdp = SparseMDP(listed, rows[..., :s], reward, end_probs=end_probs, legal=legal, initial=first)
    law: Any = NormalReward(mdp.reward)
    if kind == 1:
        law = NormalReward(jnp.asarray(value, float), by_outcome=True)
    elif kind == 2:  # every outcome pays one of two rewards
        outcome = np.broadcast_to(np.arange(width), rows.shape)
        share = rng.uniform(0.1, 0.9, size=rows.shape)
        share[..., 0] = 1.0
        both = [np.concatenate(pair, -1) for pair in ([outcome] * 2, [rows * share, rows * (1 - share)])]
        law = ListedReward(
            jnp.asarray(both[0]), jnp.asarray(both[1], float), jnp.asarray(rng.normal(size=(s, a, 2 * width)))
        )
    return Environment(mdp, law)


def random_trials(number: int) -> RunConfig:
    """A run in whole episodes: TD-BMA or SARSA(lambda) with any options, cut or not, discounted or not."""
    rng = np.random.default_rng(number)
    env = random_environment(rng)
    more: dict[str, Any] = {
        "frozen": bool(rng.random() < 0.5),
        "bootstrap": bool(rng.random() < 0.5),
        "trial_steps": int(rng.integers(1, 9)),
        "epsilon": float(rng.choice([0.0, 0.05, 0.4, 1.0])),
        "learning_rate": float(rng.choice([0.0, 0.15, 1.0])),
        "initial_q": float(rng.choice([0.0, 2.0, -1.0])),
    }
    agent = TDBMA(**more) if number % 2 else SarsaLambda(float(rng.choice([0.0, 0.6, 1.0])), **more)
    discounted = env.mdp.end_probs is None or rng.random() < 0.5
    objective = Discounted(float(rng.uniform(0.5, 0.99))) if discounted else FirstExit()
    episodes, seeds = int(rng.integers(20, 60)), int(rng.integers(1, 4))
    return RunConfig(agent, env, objective, jax.random.key(number), None, None, episodes, seeds, None, QUIET)


def random_sweeps(number: int) -> RunConfig:
    """A run in steps of a learner with prioritized sweeping: every kind of it, with lists long enough and too short."""
    rng = np.random.default_rng(1000 + number)
    env = random_environment(rng)
    lists: dict[str, Any] = {"max_successors": 2, "max_predecessors": 3} if rng.random() < 0.3 else {}
    planner = PrioritizedSweeping(int(rng.integers(1, 6)), float(rng.choice([0.0, 1e-3, 0.3])), **lists)
    v_max = float(rng.uniform(3.0, 30.0))
    bonus_discount = float(rng.uniform(0.3, 0.9)) if rng.random() < 0.5 else None
    agent: Any = [
        OIM(v_max=v_max, planner=planner),
        RMax(v_max=v_max, num_visits=int(rng.integers(1, 5)), planner=planner),
        MBIEEB(beta=float(rng.uniform(0.0, 2.0)), v_max=v_max, planner=planner),
        MBIE(reward_width=float(rng.uniform(0.0, 2.0)), v_max=v_max, planner=planner),
        FrequencyBonus(scale=3.0, v_max=v_max, bonus_discount=bonus_discount, planner=planner),
        RecencyBonus(scale=30.0, v_max=v_max, bonus_discount=bonus_discount, planner=planner),
    ][number % 6]
    objective = Discounted(float(rng.uniform(0.5, 0.95)))
    steps, seeds = int(rng.integers(50, 400)), int(rng.integers(1, 4))
    return RunConfig(agent, env, objective, jax.random.key(number), None, steps, None, seeds, None, QUIET)
