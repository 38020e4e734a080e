"""Figures bring their picture to notebooks, without pyplot."""

import subprocess
import sys

from bayes_mdp.utils.notebook_figure import NotebookFigure

PLOT = """
import sys
import numpy as np
import bayes_mdp as bm
figure = bm.plot_values(np.zeros((3, 2)))
assert figure._repr_png_().startswith(b"\\x89PNG"), "no picture"
assert "matplotlib.pyplot" not in sys.modules, "pyplot was imported"
"""


def test_the_picture_is_a_png():
    figure = NotebookFigure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_what_is_drawn_leaves_pyplot_alone():
    subprocess.run([sys.executable, "-c", PLOT], check=True)
