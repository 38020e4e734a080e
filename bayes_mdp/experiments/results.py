"""The result of a run: an `xarray.Dataset`, its NetCDF file, and confidence intervals of means over its seeds."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Shaped

from bayes_mdp.experiments.describe import Json
from bayes_mdp.experiments.rollout.execute import Outcome
from bayes_mdp.experiments.rollout.time_loop import Layout
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.labels import labels
from bayes_mdp.mdp.space import PLATE_NAMES
from bayes_mdp.utils.files import read_netcdf
from bayes_mdp.utils.typing import AnyArray

if TYPE_CHECKING:
    import xarray as xr


FORMAT = "bayes_mdp run 1"
REPRODUCTION_FORMAT = "bayes_mdp reproduction 1"
COMPARE_FORMAT = "bayes_mdp compare 1"
TRAIN_FORMAT = "bayes_mdp train 1"
EVALUATION_FORMAT = "bayes_mdp evaluation 1"
SCORECARD_FORMAT = "bayes_mdp scorecard 1"
SWEEP_FORMAT = "bayes_mdp sweep 1"
DECISION_FORMAT = "bayes_mdp decision 1"
FORMATS = (FORMAT, REPRODUCTION_FORMAT, COMPARE_FORMAT, TRAIN_FORMAT, EVALUATION_FORMAT, SCORECARD_FORMAT)
FORMATS += (SWEEP_FORMAT, DECISION_FORMAT)


def to_dataset(
    outcome: Outcome,
    regret: Float[np.ndarray, "N rows"],
    layout: Layout,
    space: StateActionSpace,
    attributes: Mapping[str, Json],
) -> "xr.Dataset":
    """The Dataset of a run.

    Variables: `reward` [seed, checkpoint | episode], the sum of the rewards since the checkpoint before (of the
    episode); `regret`, same dims, cumulative; `visits` [seed, *step, state, action]. Coordinate `time` of a checkpoint:
    steps so far.

    Where the belief is refitted: `refits` [seed], how often; the attribute `refit_cost`, the seconds, calls and
    compilations of that in this process. Where pairs are a target: `target_visits`, dims as `reward`.

    Args:
        outcome: rewards and visits.
        regret: cumulative, [seed, row].
        layout: the static shape of the run.
        space: names of states and actions.
        attributes: kept as JSON.
    """
    import xarray as xr

    rows = "episode" if layout.episodic else "checkpoint"
    plates = PLATE_NAMES[-len(space.shape) :]
    result = xr.Dataset(
        {
            "reward": (("seed", rows), outcome.reward, {"long_name": f"reward of the {rows}"}),
            "regret": (("seed", rows), regret, {"long_name": "cumulative regret"}),
            "visits": (("seed", *plates), outcome.visits, {"long_name": "visits"}),
        },
        coords={
            "seed": np.arange(outcome.reward.shape[0]),
            rows: np.arange(layout.num_rows),
            "state": labels(space.state_names),
            "action": labels(space.action_names),
        },
        attrs=json_attributes(FORMAT, attributes),
    )
    if outcome.target is not None:
        result["target_visits"] = (("seed", rows), outcome.target, {"long_name": "visits of the target"})
    if outcome.refits is not None:
        result["refits"] = ("seed", outcome.refits, {"long_name": "refits of the belief"})
        result.attrs["refit_cost"] = json.dumps(outcome.refit_cost)
    if not layout.episodic:
        times = np.minimum(layout.row_length * np.arange(1, layout.num_rows + 1), layout.num_steps)
        result = result.assign_coords(time=("checkpoint", times))
    return result


def json_attributes(form: str, attributes: Mapping[str, object]) -> dict[str, str]:
    """The attributes of a result: its format, and everything else as JSON."""
    return {"format": form, **{name: json.dumps(value) for name, value in attributes.items()}}


def load_result(path: str | Path) -> "xr.Dataset":
    """Read a result of `run`, `compare`, `sweep`, `train`, `evaluate_agent`, a reproduction, a scorecard, a decision.

    Args:
        path: of the file.

    Returns:
        The dataset, as it was written.

    Raises:
        ValueError: the file is cut, altered (its checksum does not fit), or no result of this package.
        FileNotFoundError: there is no such file. OSError: it cannot be read.

    Example:
        >>> result = bm.run(
        ...     bm.agents.EpsilonGreedyQ(),
        ...     bm.envs.chain(),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=10,
        ...     key=jax.random.key(0),
        ...     path="run.nc",
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> bm.load("run.nc").identical(result)
        True
    """
    result = read_netcdf(path, "a whole NetCDF file that save or run(path=...) wrote")
    if result.attrs.get("format") not in FORMATS:
        raise ValueError(f"path is {str(path)!r} of format {result.attrs.get('format')!r}, expected {FORMAT!r}")
    return result


NORMAL_QUANTILE = {0.9: 1.6448536, 0.95: 1.959964, 0.99: 2.5758293}


def half_width(samples: Shaped[AnyArray, "N *shape"], level: float = 0.95) -> Float[np.ndarray, "*shape"]:
    """Half the width of the normal interval of the mean over the first axis, of at least two samples.

    Args:
        samples: [N ...], numbers or booleans.
        level: a key of `NORMAL_QUANTILE`.
    """
    return np.asarray(NORMAL_QUANTILE[level] * np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples)))
