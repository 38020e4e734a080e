"""One cell of a sweep: `run`, and of its result what depends on seed and time, as arrays."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.experiments.describe import Json, describe
from bayes_mdp.experiments.resume import Values
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.experiments.run_config import RunOptions
from bayes_mdp.experiments.sweeps.grid import Cell, Variant
from bayes_mdp.mdp import Environment, Episodic, Objective

if TYPE_CHECKING:
    import xarray as xr

_KEPT = 16  # agents, environments and priors that a process keeps
ROWS = ("checkpoint", "episode")


@dataclass(frozen=True)
class RunSettings:
    """The arguments of `run` that all cells share.

    Args:
        objective: None: episodes of as many steps as the environment has.
        num_steps, num_episodes, num_seeds, regret, options: as in `run`.
    """

    objective: Objective | None
    num_steps: int | None
    num_episodes: int | None
    num_seeds: int
    regret: str | None
    options: RunOptions

    @property
    def description(self) -> dict[str, Json]:
        """JSON values that identify it; what shows progress changes no number."""
        options = replace(self.options, progress=False)
        return {
            "objective": describe(self.objective),
            "num_steps": self.num_steps,
            "num_episodes": self.num_episodes,
            "num_seeds": self.num_seeds,
            "regret": self.regret,
            "options": describe(options, "options"),
        }


class CellRunner:
    """(cell, key) -> arrays. What a cell is made of is kept for the next cells of the same process.

    Args:
        settings: of all cells.
    """

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._built: dict[Variant, Any] = {}

    def __call__(self, cell: Cell, key: PRNGKeyArray) -> Values:
        """`reward`, `regret` and what else `run` has [seed, row], `time` [row], `rows` (their name), `regret_unknown`.

        Args:
            cell: of the grid.
            key: of the sweep.

        Raises:
            ValueError, TypeError: as `run`.
        """
        settings, env = self._settings, self._build(cell.env)
        result = run(
            self._build(cell.agent),
            env,
            objective=_objective(settings.objective, env, cell.env.name),
            key=cell.key(key),
            prior=None if cell.prior is None else self._build(cell.prior),
            num_steps=settings.num_steps,
            num_episodes=settings.num_episodes,
            num_seeds=settings.num_seeds,
            regret=settings.regret,
            options=replace(settings.options, progress=False),
        )
        return cell_values(result)

    def _build(self, variant: Variant) -> Any:
        if variant not in self._built:
            if len(self._built) >= _KEPT:
                del self._built[next(iter(self._built))]
            self._built[variant] = variant.build()
        return self._built[variant]


def _objective(objective: Objective | None, env: object, name: str) -> Objective:
    if objective is not None:
        return objective
    horizon = env.mdp.horizon if isinstance(env, Environment) else None
    if horizon is None:
        raise ValueError(f"objective is None, expected one for envs.{name}, which has no horizon of its own")
    return Episodic(horizon)


def cell_values(result: "xr.Dataset") -> Values:
    """What a sweep keeps of the result of `run`."""
    rows = next(name for name in ROWS if name in result.dims)
    values = {str(name): np.asarray(array) for name, array in result.data_vars.items() if array.dims == ("seed", rows)}
    # The end of every row: steps or episodes so far.
    ends = next((result[name] for name in ("time", "episode") if name in result.coords and name != rows), None)
    values["time"] = np.arange(1, result.sizes[rows] + 1) if ends is None else np.asarray(ends)
    values["rows"] = np.array(rows)
    values["regret_unknown"] = np.array(result.attrs.get("regret_unknown", ""))
    return values
