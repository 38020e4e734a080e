"""Figures of trainings show the numbers of the dataset."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import bayes_mdp as bm


@pytest.fixture
def result():
    score = np.array([[np.nan, 1.0, 3.0], [np.nan, 2.0, 5.0]])
    visits = np.zeros((2, 8, 3, 3), int)
    visits[:, :4, 0, 0] = [[1, 2, 3, 4], [3, 2, 3, 4]]
    return xr.Dataset(
        {
            "score": (("seed", "checkpoint"), score),
            "loss": (("seed", "checkpoint"), score + 1),
            "evaluation_score": (("seed", "evaluation"), np.array([[4.0], [6.0]])),
            "visits": (("seed", "frame", "row", "column"), visits),
        },
        coords={"step": ("checkpoint", [10, 20, 30]), "evaluation_step": ("evaluation", [20])},
    )


def test_learning_curves(result):
    axes = bm.plots.plot_training({"a": result}).axes[0]
    line, points = axes.lines
    np.testing.assert_array_equal(line.get_xydata(), [[20, 1.5], [30, 4.0]])
    np.testing.assert_array_equal(points.get_xydata(), [[20, 5.0]])
    assert axes.get_xlabel() == "environment steps" and "score" in axes.get_ylabel()
    loss = bm.plots.plot_training(result, show="loss").axes[0]
    assert len(loss.lines) == 1 and loss.get_title() == "mean of 2 seeds, 95 % interval"
    plt.close("all")


def test_a_film_strip_has_a_frame_for_every_part_that_was_played(result):
    figure = bm.plots.plot_visits(result)
    assert _first_cells(figure) == [2.0, 2.0, 3.0, 4.0]
    assert _first_cells(bm.plots.plot_visits(result, seed=0)) == [1.0, 2.0, 3.0, 4.0]
    plt.close("all")


def _first_cells(figure) -> list[float]:
    """The number drawn at the top left of every frame."""
    return [float(np.asarray(axes.images[0].get_array())[0, 0]) for axes in figure.axes if axes.images]


def test_wrong_input(result):
    with pytest.raises(ValueError, match="show is 'scor', expected one of score, loss; did you mean 'score'"):
        bm.plots.plot_training(result, show="scor")
    with pytest.raises(ValueError, match="results is empty"):
        bm.plots.plot_training({})
    with pytest.raises(ValueError, match="result has no visits"):
        bm.plots.plot_visits(result.drop_vars("visits"))
    with pytest.raises(ValueError, match="seed is 2, expected an index from 0 to 1"):
        bm.plots.plot_visits(result, seed=2)
