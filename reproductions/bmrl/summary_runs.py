"""[BMRL19] (Markou and Rasmussen 2019): the methods that are compared, one run of one of them, all runs of a summary.

Settings that the paper leaves open are those of its published code: noise drawn afresh at every step; noise of moment
matching of standard deviation zeta sqrt(s2) / discount; the q_max of the uncertainty Bellman equation from the largest
true mean reward. The local term of that equation is ours: the form "ratio" for rewards on (s, a, s'), pbar . v plus
q_max^2 (K - 1) / (c0 + 1), with the discount squared in the operator alone. That code has the same operator, and adds
Var_P(P . m) to the term, which the form covers already and which is below 1 % of it here.
Three further differences: that code takes variances over 100 draws of P, ours are exact; it projects BQL by 1000 draws,
ours by quadrature; of actions of equal value it takes one at random, ours the first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents import BQL, PSRL, UBE, EpsilonGreedyQ, MomentMatching
from bayes_mdp.agents.common.replan import EverySteps
from bayes_mdp.experiments.resume import Cells, ComputeCell
from bayes_mdp.experiments.rollout.execute import Oracle, Prepared, prepare
from bayes_mdp.experiments.rollout.regret import optimal_plan
from bayes_mdp.experiments.run_config import RunConfig, RunOptions, check_case
from bayes_mdp.mdp import Discounted, Environment, StateActionSpace
from bayes_mdp.utils.validation import check_count, check_key, check_name
from reproductions.bmrl.batch_error import with_batch_error
from reproductions.bmrl.q_evolution import NUM_TIMES, laws_of_q, played

if TYPE_CHECKING:
    import xarray as xr

DISCOUNT = 0.9
OBJECTIVE = Discounted(DISCOUNT)
UBE_SCALE, MM_SCALE = 0.1, 1.0 / DISCOUNT


@dataclass(frozen=True)
class Task:
    """An environment and how long it is played.

    Args:
        env: rewards are normal.
        space: what the agents are given.
        period: steps between two plans of the agents with a model.
        num_steps: of a run.
    """

    env: Environment
    space: StateActionSpace
    period: int
    num_steps: int

    @property
    def q_max(self) -> float:
        """The largest true mean reward over 1 - discount: what the published code gives to UBE."""
        law: Any = self.env.reward_law
        return float(np.max(np.asarray(law.mean))) / (1 - DISCOUNT)


@dataclass(frozen=True)
class Method:
    """An agent of the comparison.

    Args:
        label: for table and figure.
        agent: task -> the agent.
        beside: the published method that it is compared with.
        error: 1: with the error of the published code; 0: without; None: it has no model.
        held: noise held for the length of a plan, for orientation.
    """

    label: str
    agent: Callable[[Task], Any]
    beside: str
    error: float | None = None
    held: bool = False


def _psrl(task: Task) -> PSRL:
    return PSRL(task.period)  # pyright: ignore[reportArgumentType]


def _ube(task: Task, noise: str = "per_step") -> UBE:
    return UBE(UBE_SCALE, task.q_max, noise=noise, replan=task.period)  # pyright: ignore[reportArgumentType]


def _mm(task: Task, noise: str = "per_step") -> MomentMatching:
    return MomentMatching(MM_SCALE, noise, task.period)  # pyright: ignore[reportArgumentType]


METHODS: dict[str, Method] = {
    "q_learning": Method("Q-learning", lambda task: EpsilonGreedyQ(0.1, 0.5), "q_learning"),
    "bql": Method("BQL", lambda task: BQL(), "bql"),
    "psrl_error": Method("PSRL, with the error", _psrl, "psrl", 1.0),
    "psrl": Method("PSRL", _psrl, "psrl", 0.0),
    "ube_error": Method("UBE, with the error", _ube, "ube", 1.0),
    "ube": Method("UBE", _ube, "ube", 0.0),
    "mm_error": Method("MM, with the error", _mm, "mm", 1.0),
    "mm": Method("MM", _mm, "mm", 0.0),
    "ube_held": Method("UBE, noise held", lambda task: _ube(task, "per_plan"), "ube", 0.0, held=True),
    "mm_held": Method("MM, noise held", lambda task: _mm(task, "per_plan"), "mm", 0.0, held=True),
}
QUICK = tuple(name for name, method in METHODS.items() if not method.held)


def agents_prior() -> Any:
    """What the agents with a model believe at first: Dirichlet(1), NG(0, 4, 3, 3) on (s, a, s')."""
    from bayes_mdp.models import dirichlet_normal_gamma

    return dirichlet_normal_gamma(1.0, 0.0, 4.0, 3.0, 3.0, rewards_on="outcome")


def summary(
    tasks: Mapping[int, Task],
    *,
    key: PRNGKeyArray,
    size_name: str,
    methods: Sequence[str] = tuple(METHODS),
    num_seeds: int = 10,
    watched: int | None = None,
    cells: Cells | None = None,
) -> "xr.Dataset":
    """Regret at the end over the reward of the oracle. The same key for all: they meet the same random numbers.

    Args:
        tasks: by size.
        key: a typed key.
        size_name: what a size is: the name of the dimension.
        methods: names of `METHODS`.
        num_seeds: 10 in the paper.
        watched: the size of which what is believed of Q is kept (the first seed; every action must be legal).
        cells: keeps every finished run.

    Returns:
        A Dataset: `regret` [agent, size, seed], of `agent_reward`, and `oracle_reward` [size, seed]. With `watched`:
        `q_mean`, `q_sd` [agent, time, state, action], the law of Q that each agent acts by (PSRL: of its draws; nan:
        none), and `q_optimal` [state, action].

    Raises:
        ValueError, TypeError: an unknown method, a count below 1, no typed key.
    """
    check_key("key", key)
    check_count("num_seeds", num_seeds)
    for name in methods:
        check_name("method", name, METHODS)
    priors: dict[int, Any] = {}
    if any(METHODS[name].error is not None for name in methods):
        priors = {size: _posterior(task, key) for size, task in tasks.items()}
    computes: dict[str, ComputeCell] = {}
    for size, task in tasks.items():
        computes[f"oracle-{size}"] = lambda path, task=task: _oracle(task, key, num_seeds)
        for name in methods:
            computes[f"{name}-{size}"] = lambda path, name=name, task=task, size=size: _play(
                name, task, priors.get(size), key, num_seeds, watch=size == watched
            )
    families = [["oracle"], *_families(methods)]
    groups = [[f"{name}-{size}" for name in names for size in tasks] for names in families]
    played = (cells or Cells()).get_all(computes, groups)
    found = {(name, size): played[f"{name}-{size}"] for name in ("oracle", *methods) for size in tasks}
    return _dataset(found, tasks, methods, size_name, watched)


def _families(methods: Sequence[str]) -> list[list[str]]:
    """Methods that share a compiled program, the slowest to compile first."""
    kinds: dict[tuple[str, bool], list[str]] = {}
    for name in methods:
        kinds.setdefault((METHODS[name].beside, METHODS[name].held), []).append(name)
    slow = ("psrl", "ube", "mm", "bql", "q_learning")
    return [kinds[kind] for kind in sorted(kinds, key=lambda kind: slow.index(kind[0]))]


def _posterior(task: Task, key: PRNGKeyArray) -> Any:
    from bayes_mdp.inference.route import infer

    return infer(key, agents_prior(), None, space=task.space)


def case(name: str, task: Task, posterior: Any, key: PRNGKeyArray, num_seeds: int, *, agent: Any = None) -> RunConfig:
    """One run of a method (or of another `agent` in its place)."""
    method = METHODS[name]
    prior = None if method.error is None else with_batch_error(posterior, method.error)
    options = RunOptions(space=task.space, num_checkpoints=NUM_TIMES, progress=False)
    agent = method.agent(task) if agent is None else agent
    return RunConfig(agent, task.env, OBJECTIVE, key, prior, task.num_steps, None, num_seeds, "oracle_run", options)


def _play(name: str, task: Task, posterior: Any, key: Any, num_seeds: int, *, watch: bool) -> dict[str, Any]:
    asked = case(name, task, posterior, key, num_seeds)
    check_case(asked)
    prepared = prepare(asked)
    reward, recorded = played(prepared, watch=watch)
    return {"reward": reward, **(laws_of_q(prepared, recorded) if watch else {})}


def _oracle(task: Task, key: Any, num_seeds: int) -> dict[str, Any]:
    """Rewards of an optimal policy that meets the same random numbers, and its q."""
    plan = optimal_plan(task.env.mdp, OBJECTIVE)
    prepared: Prepared = prepare(case("q_learning", task, None, key, num_seeds))
    agent = Oracle(jnp.asarray(plan.q, float), jnp.asarray(plan.policy))
    setting = replace(prepared.setting, agent=agent, rule=EverySteps(1))
    return {"reward": played(prepared._replace(setting=setting))[0], "q": plan.q}


def _dataset(
    found: Mapping[tuple[str, int], Any],
    tasks: Mapping[int, Task],
    methods: Sequence[str],
    size_name: str,
    watched: int | None,
) -> "xr.Dataset":
    import xarray as xr

    sizes = list(tasks)
    oracle = np.array([found["oracle", size]["reward"] for size in sizes])
    reward = np.array([[found[name, size]["reward"] for size in sizes] for name in methods])
    cells = ("agent", size_name, "seed")
    data: dict[str, Any] = {
        "regret": (cells, (oracle - reward) / oracle, {"long_name": "regret over the reward of the oracle"}),
        "agent_reward": (cells, reward),
        "oracle_reward": (cells[1:], oracle),
    }
    coords = {"agent": list(methods), size_name: sizes, "seed": np.arange(oracle.shape[-1])}
    if watched is not None and watched in sizes:
        for name in ("q_mean", "q_sd"):
            data[name] = (("agent", "time", "state", "action"), np.array([found[m, watched][name] for m in methods]))
        data["q_optimal"] = (("state", "action"), found["oracle", watched]["q"])
        coords["time"] = found[methods[0], watched]["time"]
        coords["watched"] = watched
    return xr.Dataset(data, coords=coords)
