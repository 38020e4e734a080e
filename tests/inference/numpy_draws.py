# pyright: reportArgumentType=false
"""Draws of rows and rewards of a conjugate posterior in plain numpy: an oracle for moments."""

import numpy as np

from bayes_mdp.inference.conjugate.rewards import KnownRewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.normal import NormalBelief, NormalGammaBelief

NUMBER = 40_000


def draw_leaves(belief, rng, number=NUMBER):
    """(mean reward, variance of a reward around it), each [N M], by numpy."""
    values = {name: np.asarray(x) for name, x in vars(belief).items()}
    shape = (number, *next(iter(values.values())).shape)
    if isinstance(belief, NormalGammaBelief):
        precision = rng.gamma(values["concentration"], 1 / values["rate"], shape)
        return rng.normal(values["loc"], (values["pseudo_count"] * precision) ** -0.5), 1 / precision
    if isinstance(belief, NormalBelief):
        return rng.normal(values["loc"], values["scale"], shape), np.broadcast_to(values["noise_scale"] ** 2, shape)
    if isinstance(belief, BetaBelief):
        p = rng.beta(values["concentration1"], values["concentration0"], shape)
        return p, p * (1 - p)
    rate = rng.gamma(values["concentration"], 1 / values["rate"], shape)
    return rate, rate


def draw_rows(rows, rng):
    """[N *H S A O]: independent site rows, selected pair by pair."""
    leaves = rng.gamma(np.broadcast_to(np.asarray(rows.site_concentration), (NUMBER, *rows.prior.shape)))
    leaves = leaves / leaves.sum(-1, keepdims=True)
    probs = np.zeros((NUMBER, *rows.shape))
    for cell in np.ndindex(*rows.shape[:-1]):
        row = np.ravel_multi_index(cell, rows.shape[:-1]) if rows.row is None else rows.row[cell]
        for outcome in range(rows.shape[-1]):
            column = outcome if rows.column is None else rows.column[(*cell, outcome)]
            if row < 0:
                probs[(slice(None), *cell, outcome)] = rows.known[(*cell, outcome)]
            elif column >= 0:
                probs[(slice(None), *cell, outcome)] = leaves[:, row, column]
    return probs


def draw_rewards(cells, rng):
    """Mean reward and noise of the cells of the law, [N *cells] each."""
    if isinstance(cells, KnownRewards):
        return (np.broadcast_to(x, (NUMBER, *cells.shape)) for x in (cells.known, np.zeros(cells.shape)))
    table = np.arange(len(cells.data)).reshape(cells.shape) if cells.cell is None else np.asarray(cells.cell)
    known = 0.0 if cells.known is None else cells.known
    mean, noise = draw_leaves(cells.site_belief, rng)
    return np.where(table < 0, known, mean[:, table]), np.where(table < 0, 0.0, noise[:, table])
