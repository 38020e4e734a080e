"""[KL21] (O'Donoghue 2021) figure 4: soft Q-learning on DeepSea, L = 50, as a film strip.

Whether the paper's learns a model is not said. The strip shows the tabular rule without one; the table has K-learning
at temperature .05 without the bonus as well: the mean model, transitions known as in our figure 3.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from reproductions.klearning.film_strip import figure, mean_row, part, share_visited, strips
from reproductions.reproduction import Reproduction, Row

if TYPE_CHECKING:
    import xarray as xr

METHODS = {"": "soft_q", "_mean": "soft_q_known"}
NAMES = {"": "no model", "_mean": "mean model"}


def rows(result: "xr.Dataset") -> list[Row]:
    """The table: how far across the grid the agent has come, by both readings, and how much its values change."""
    size, times = result.sizes["row"], result["time"].to_numpy().tolist()
    table = []
    for ending, name in NAMES.items():
        one = part(result, ending)
        columns = (one["visits"].to_numpy()[-1] > 0).any(-2)
        furthest = (columns * np.arange(1, size + 1)).max(-1) / size
        value = one["value"].to_numpy()[..., 0, 0]
        table += [
            mean_row(f"{name}: furthest column, share of L, t = {times[-1]}", None, furthest, (0.0, 0.5)),
            mean_row(f"{name}: visits of the goal, t = {times[-1]}", 0.0, one["hit"].to_numpy().sum(1), (0.0, 0.0)),
            mean_row(f"{name}: value of the first state, last frame less first", None, value[-1] - value[0]),
        ]
        table += [
            mean_row(f"{name}: share of the bottom row visited, t = {time}", None, share)
            for time, share in zip(times, share_visited(one), strict=True)
        ]
    return table


REPRODUCTION = Reproduction(
    source="[KL21] figure 4, SPEC 1.8",
    run=partial(strips, methods=METHODS),
    rows=rows,
    figure=figure,
    quick={},
    seconds={"quick": 20.0, "full": 20.0},
)
