"""What a training reports: curves, episodes, evaluations, visits; as arrays while it runs, as a Dataset afterwards."""

import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bayes_mdp.experiments.results import TRAIN_FORMAT
from bayes_mdp.experiments.training.training_loop import StepReport

if TYPE_CHECKING:
    import xarray as xr

FRAMES = 8
_EPISODE = ("seed", "iteration", "env", "score", "length")


class Log:
    """The report so far.

    Args:
        num_seeds, num_envs: of the training.
        num_iterations: of the whole of it.
        num_cells: of an environment that has a map (`HasCells`), else 0.
    """

    def __init__(self, num_seeds: int, num_envs: int, num_iterations: int, num_cells: int = 0) -> None:
        self._num_seeds, self._num_envs, self._num_iterations = num_seeds, num_envs, num_iterations
        self._rows: dict[str, list[np.ndarray]] = {}
        self._episodes: list[np.ndarray] = []
        self._evaluations: list[np.ndarray] = []
        self.visits = np.zeros((num_seeds, FRAMES, num_cells), np.int64) if num_cells else None

    def add(self, report: StepReport, first: int) -> None:
        """A chunk: arrays [seed, iteration, ...] of the iterations from `first` on.

        Raises:
            ValueError: a reward was not finite; names seed, environment and step.
        """
        ended, score = np.asarray(report.ended), np.asarray(report.score)
        bad = ~np.isfinite(score)
        if bad.any():
            seed, t, env = (int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))
            raise ValueError(
                f"reward of environment {env} is {score[seed, t, env]} at its step {first + t} (seed {seed}), "
                "expected a finite number"
            )
        length = np.asarray(report.length)
        where = np.nonzero(ended)
        events = np.stack([where[0], where[1] + first, where[2], score[where], length[where]], 1).astype(np.float64)
        self._episodes.append(events)
        self._add_row(report, events, first + ended.shape[1])
        if self.visits is not None:
            self._count(np.asarray(report.cell), first)

    def _add_row(self, report: StepReport, events: np.ndarray, iteration: int) -> None:
        row = {"step": np.full(self._num_seeds, iteration * self._num_envs, float)}
        for name, column in (("score", 3), ("length", 4)):
            row[name] = _means(events[:, 0].astype(int), events[:, column], self._num_seeds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # all nan where these iterations trained nothing
            row |= {name: np.nanmean(np.asarray(x, np.float64), 1) for name, x in report.watched.items()}
        for name, value in row.items():
            self._rows.setdefault(name, []).append(value)

    def _count(self, cells: np.ndarray, first: int) -> None:
        assert self.visits is not None
        frame = (first + np.arange(cells.shape[1])) * FRAMES // self._num_iterations
        seed = np.arange(self._num_seeds)
        np.add.at(self.visits, (seed[:, None, None], frame[None, :, None], cells), 1)

    def evaluated(self, step: int, scores: list[np.ndarray]) -> None:
        """The scores of the episodes of an evaluation, of each seed."""
        each = [(step, seed, x.mean() if x.size else np.nan, x.size) for seed, x in enumerate(scores)]
        self._evaluations.append(np.asarray(each, np.float64))

    def latest(self) -> dict[str, float]:
        """The newest score and loss, means over the seeds that have one."""
        newest = {name: self._rows[name][-1] for name in ("score", "loss") if name in self._rows}
        known = {name: row[np.isfinite(row)] for name, row in newest.items()}
        return {name: float(row.mean()) for name, row in known.items() if row.size}

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        kept = {f"row {name}": np.stack(x) for name, x in self._rows.items()}
        kept["episodes"] = np.concatenate([np.zeros((0, len(_EPISODE))), *self._episodes])
        kept["num_iterations"] = np.asarray(self._num_iterations)
        kept["evaluations"] = np.reshape(self._evaluations, (-1, self._num_seeds, 4))
        return kept if self.visits is None else kept | {"visits": self.visits}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take up what `arrays` gave."""
        named = {name: np.asarray(x) for name, x in arrays.items()}
        self._rows = {name[4:]: list(x) for name, x in named.items() if name.startswith("row ")}
        self._episodes = [named["episodes"]]
        self._evaluations = list(named["evaluations"])
        if "visits" in named:
            self.visits = self._refilmed(named["visits"], int(named["num_iterations"]))

    def _refilmed(self, visits: np.ndarray, num_iterations: int) -> np.ndarray:
        """The frames of a training that was to be shorter or longer, as frames of this one."""
        frames = np.zeros_like(visits)
        for frame in range(FRAMES):
            frames[:, min(frame * num_iterations // self._num_iterations, FRAMES - 1)] += visits[:, frame]
        return frames

    def dataset(self, attributes: Mapping[str, object], map_shape: tuple[int, ...] | None = None) -> "xr.Dataset":
        """Curves [seed, checkpoint]; episodes [seed, episode], padded with nan; evaluations; visits."""
        import xarray as xr

        result = xr.Dataset(
            coords={"seed": np.arange(self._num_seeds)},
            attrs={"format": TRAIN_FORMAT, **{name: json.dumps(value) for name, value in attributes.items()}},
        )
        rows = {name: np.stack(x, 1) for name, x in self._rows.items()}
        if rows:
            result = result.assign_coords(step=("checkpoint", rows.pop("step")[0], {"long_name": "environment steps"}))
            result = result.assign({name: (("seed", "checkpoint"), x) for name, x in rows.items()})
        return self._with_visits(self._with_evaluations(self._with_episodes(result)), map_shape)

    def _with_episodes(self, result: "xr.Dataset") -> "xr.Dataset":
        events = np.concatenate([np.zeros((0, len(_EPISODE))), *self._episodes])
        each = [events[events[:, 0] == seed] for seed in range(self._num_seeds)]
        most = max(map(len, each))
        padded = np.stack([np.pad(x, ((0, most - len(x)), (0, 0)), constant_values=np.nan) for x in each])
        step = (padded[..., 1] + 1) * self._num_envs
        columns = {"episode_score": padded[..., 3], "episode_length": padded[..., 4], "episode_step": step}
        return result.assign({name: (("seed", "episode"), x) for name, x in columns.items()})

    def _with_evaluations(self, result: "xr.Dataset") -> "xr.Dataset":
        if not self._evaluations:
            return result
        table = np.stack(self._evaluations)  # evaluation, seed, column
        result = result.assign_coords(evaluation_step=("evaluation", table[:, 0, 0]))
        return result.assign(
            evaluation_score=(("seed", "evaluation"), table[:, :, 2].T),
            evaluation_episodes=(("seed", "evaluation"), table[:, :, 3].T),
        )

    def _with_visits(self, result: "xr.Dataset", map_shape: tuple[int, ...] | None) -> "xr.Dataset":
        if self.visits is None or map_shape is None:
            return result
        dims = ("seed", "frame", *("row", "column")[: len(map_shape)])
        return result.assign(visits=(dims, self.visits.reshape(*self.visits.shape[:2], *map_shape)))


def _means(group: np.ndarray, values: np.ndarray, number: int) -> np.ndarray:
    total = np.bincount(group, values, number)
    count = np.bincount(group, minlength=number)
    return np.where(count, total / np.maximum(count, 1), np.nan)
