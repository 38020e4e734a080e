"""The worlds of [BAMCP12]: total reward, undiscounted, in the double loop, two slippery grids and the flag maze.

The published numbers are recalled: the paper was not at hand. No row has a verdict. Also as recalled, the paper prints
the best of several settings within a limit of time, so that its simulations a decision may be many more than 1000.

Settings, recalled from the authors' program: discount .95, 1000 simulations a decision, at most 100 steps each,
exploration 2, 1, 1 and 3, rollouts at random, a new tree at every step. Rewards are known. Chosen here: rows
Dirichlet(1 / S) over all S states in the double loop and the grids; in the maze Dirichlet(1 / K) over the K states
that some action can lead to (the neighbours, with the flags that follow), where the paper has a prior that learns which
successors there are.

BEB's beta is the best of .02, .05, .1, .2, .5, 1, 2 by the summed shares of the optimum in the double loop and the
grids, in 20 runs of each with `jax.random.key(0)`, which no reported run uses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents import BAMCP, BEB, PSRL
from bayes_mdp.envs import flag_maze, loop, slippery_grid
from bayes_mdp.envs.gymnasium.from_gymnasium import ListedReward
from bayes_mdp.experiments.results import half_width
from bayes_mdp.experiments.resume import Cells, ComputeCell, Values
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.mdp import Agent, Discounted, Environment, SparseMDP, StateActionSpace
from bayes_mdp.models import known_rewards
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils.validation import check_count, check_key, check_name
from reproductions.reproduction import Reproduction, Row, mean_row

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

DISCOUNT, MAX_DEPTH, BETA = 0.95, 100, 0.05
REPLAN = 20
"""Steps between two plans of PSRL."""


@dataclass(frozen=True)
class World:
    """A problem.

    Args:
        label: for table and figure.
        env: makes the environment.
        exploration: c of UCT.
        num_steps: of a run in the paper.
        recalled: method -> mean total of the paper, as recalled.
    """

    label: str
    env: Callable[[], Environment]
    exploration: float
    num_steps: int
    recalled: Mapping[str, float]


WORLDS = {
    "loop": World("double loop", loop, 2.0, 1000, {"bamcp": 387.6, "beb": 386.0}),
    "grid5": World("Grid5", lambda: slippery_grid(5), 1.0, 1000, {"bamcp": 72.9, "beb": 67.5}),
    "grid10": World("Grid10", lambda: slippery_grid(10), 1.0, 2000, {"bamcp": 32.7, "beb": 10.0}),
    "maze": World("maze", flag_maze, 3.0, 20_000, {"bamcp": 965.0, "beb": 185.0}),
}


def _search(world: World, num_simulations: int, *, random: float = 1.0, keep: bool = False) -> BAMCP:
    return BAMCP(
        num_simulations,
        max_depth=MAX_DEPTH,
        exploration=world.exploration,
        random_rollouts=random,
        keep_tree=keep,
    )


METHODS: dict[str, tuple[str, Callable[[World, int], Agent]]] = {
    "bamcp": ("BAMCP", _search),
    "bamcp_greedy": ("BAMCP, half of the rollout greedy", lambda world, k: _search(world, k, random=0.5)),
    "bamcp_kept": ("BAMCP, tree kept", lambda world, k: _search(world, k, keep=True)),
    "psrl": (f"PSRL, every {REPLAN} steps", lambda world, k: PSRL(replan=REPLAN)),
    "beb": (f"BEB, beta {BETA:g}, every step", lambda world, k: BEB(BETA, replan=1)),
}
"""Name -> (label, agent by world and number of simulations)."""


def belief(env: Environment) -> tuple[Prior, StateActionSpace]:
    """The prior of an agent, rewards known, and the space that it is given.

    Where rewards depend on the outcome (the maze), the space lists for each state the states that some action can lead
    to, the same for all four actions; they fix the reward.
    """
    n_states, n_actions = env.mdp.n_states, env.mdp.n_actions
    law = env.reward_law
    if not isinstance(law, ListedReward):
        return known_rewards(env.mdp.reward, 1.0 / n_states), StateActionSpace(n_states, n_actions)
    assert isinstance(env.mdp, SparseMDP)
    after, value = np.asarray(env.mdp.successor), np.asarray(law.value)
    # What a step pays is a function of the two states, see the test.
    paid = [dict(zip(after[s].ravel().tolist(), value[s].ravel().tolist(), strict=True)) for s in range(n_states)]
    width = max(len(each) for each in paid)
    successors = np.full((n_states, n_actions, width), -1)
    reward, concentration = np.zeros((2, n_states, n_actions, width))
    for s, each in enumerate(paid):
        successors[s, :, : len(each)] = list(each)
        reward[s, :, : len(each)] = list(each.values())
        concentration[s, :, : len(each)] = 1.0 / len(each)
    return known_rewards(reward, concentration), StateActionSpace(n_states, n_actions, successors=successors)


PLAN = {
    "loop": tuple(METHODS),
    "grid5": ("bamcp", "bamcp_greedy", "psrl", "beb"),
    "grid10": ("bamcp", "bamcp_greedy", "psrl", "beb"),
    "maze": ("bamcp", "psrl", "beb"),
}
"""World -> methods: about 20 minutes of one core."""


def play(
    *,
    key: PRNGKeyArray,
    plan: Mapping[str, Sequence[str]] = PLAN,
    num_seeds: Mapping[str, int] = {"loop": 10, "grid5": 10, "grid10": 5, "maze": 3},
    num_simulations: Mapping[str, int] = {"loop": 1000, "grid5": 1000, "grid10": 1000, "maze": 200},
    num_steps: Mapping[str, int] = {name: world.num_steps for name, world in WORLDS.items()},
    cells: Cells | None = None,
) -> "xr.Dataset":
    """Total reward of runs in the four worlds, undiscounted.

    Args:
        key: a typed key. The methods of a world meet the same random numbers.
        plan: world -> methods.
        num_seeds: world -> runs of each method; fewer than in the paper.
        num_simulations: world -> simulations a decision; 1000 is the default of the program.
        num_steps: world -> steps of a run; the defaults are those of the paper.
        cells: keeps every finished world and method.

    Returns:
        A Dataset: `total` [world, method, seed], nan where nothing was played; `steps`, `simulations` [world].

    Raises:
        ValueError, TypeError: an unknown world or method, a count below 1, no typed key.
    """
    import xarray as xr

    check_key("key", key)
    for world, methods in plan.items():
        check_name("world", world, WORLDS)
        for name in methods:
            check_name("method", name, METHODS)
        for what, number in (
            ("num_seeds", num_seeds),
            ("num_simulations", num_simulations),
            ("num_steps", num_steps),
        ):
            check_name(f"world of {what}", world, number)
            check_count(what, number[world])
    computes: dict[str, ComputeCell] = {}
    for world, methods in plan.items():
        for name in methods:
            numbers = num_seeds[world], num_simulations[world], num_steps[world]
            computes[f"{world}-{name}"] = lambda path, case=(world, name, key, *numbers): _cell(*case)
    played = (cells or Cells()).get_all(computes)
    found = [name for name in METHODS if any(name in methods for methods in plan.values())]
    total = np.full((len(plan), len(found), max(num_seeds[world] for world in plan)), np.nan)
    for i, world in enumerate(plan):
        for j, name in enumerate(found):
            if name in plan[world]:
                total[i, j, : num_seeds[world]] = played[f"{world}-{name}"]["total"]
    variables = {
        "total": (("world", "method", "seed"), total, {"long_name": "total reward of a run"}),
        "steps": (("world",), [num_steps[world] for world in plan]),
        "simulations": (("world",), [num_simulations[world] for world in plan]),
    }
    coords = {"world": list(plan), "method": found, "seed": np.arange(total.shape[-1])}
    return xr.Dataset(variables, coords=coords)


def _cell(world: str, method: str, key: PRNGKeyArray, num_seeds: int, num_simulations: int, num_steps: int) -> Values:
    env = WORLDS[world].env()
    prior, space = belief(env)
    result = run(
        METHODS[method][1](WORLDS[world], num_simulations),
        env,
        prior=prior,
        objective=Discounted(DISCOUNT),
        # A key of each world, none of them the one that BEB was tuned with.
        key=jax.random.fold_in(key, list(WORLDS).index(world)),
        num_steps=num_steps,
        num_seeds=num_seeds,
        options=RunOptions(space=space, num_checkpoints=1, progress=False),
    )
    return {"total": result["reward"].to_numpy().sum(1, dtype=float)}


def totals(result: "xr.Dataset", world: str, method: str) -> np.ndarray:
    """Totals of the runs of a method in a world; none where it was not played."""
    values = result["total"].sel({"world": world, "method": method}).to_numpy()
    return values[~np.isnan(values)]


def rows(result: "xr.Dataset") -> list[Row]:
    """Mean totals beside those of the paper as recalled, without a verdict; what an optimal policy earns."""
    table = []
    for name in map(str, result["world"].to_numpy()):
        world, steps = WORLDS[name], int(result["steps"].sel(world=name))
        optimum = world.env().optimum
        assert optimum is not None
        table.append(Row(f"{world.label}: optimal gain times {steps}", None, steps * optimum))
        for method in map(str, result["method"].to_numpy()):
            values = totals(result, name, method)
            # A total of fewer steps is no number of the paper.
            recalled = world.recalled.get(method) if steps == world.num_steps else None
            quantity = f"{world.label}: {METHODS[method][0]}{' (recalled)' if recalled is not None else ''}"
            if len(values):
                table.append(mean_row(quantity, recalled, values))
    return table


def figure(result: "xr.Dataset") -> "Figure":
    """Mean totals with 95 % intervals; lines: the optimal gain times the steps; crosses: the paper, as recalled."""
    from matplotlib.figure import Figure

    names = list(map(str, result["world"].to_numpy()))
    drawing = Figure(figsize=(2.0 + 2.6 * len(names), 3.6), layout="constrained")
    panels = np.atleast_1d(drawing.subplots(1, len(names), sharey=True))
    methods = list(map(str, result["method"].to_numpy()))
    at = np.arange(len(methods))[::-1]
    for axes, name in zip(panels, names, strict=True):
        steps = int(result["steps"].sel(world=name))
        optimum = steps * float(WORLDS[name].env().optimum or np.nan)
        for y, method in zip(at, methods, strict=True):
            values = totals(result, name, method)
            if len(values):
                half = float(half_width(values)) if len(values) > 1 else 0.0
                axes.errorbar(values.mean(), y, xerr=half, fmt="o", color="tab:blue", capsize=3)
            recalled = WORLDS[name].recalled.get(method)
            if recalled is not None and steps == WORLDS[name].num_steps:
                axes.plot(recalled, y, "x", color="0.4")
        axes.axvline(optimum, color="0.7", linewidth=1)
        axes.set_title(f"{WORLDS[name].label}, {steps} steps", fontsize=9)
        axes.set_xlabel("total reward")
    panels[0].set_yticks(at, [METHODS[method][0] for method in methods])
    return drawing


REPRODUCTION = Reproduction(
    source="[BAMCP12]: total reward in four worlds, published numbers recalled",
    run=play,
    rows=rows,
    figure=figure,
    quick={
        "plan": {"loop": ("bamcp", "psrl", "beb"), "grid5": ("bamcp", "beb"), "maze": ("bamcp",)},
        "num_seeds": dict.fromkeys(WORLDS, 3),
        "num_simulations": dict.fromkeys(WORLDS, 50),
        "num_steps": {"loop": 1000, "grid5": 1000, "grid10": 500, "maze": 500},
    },
    seconds={"quick": 50.0, "full": 1300.0},
    one_thread=True,
)
