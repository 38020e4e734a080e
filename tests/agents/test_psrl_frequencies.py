"""PSRL: the frequencies of its first action against plain numpy draws of the same posterior."""

import jax
import numpy as np
import pytest

from bayes_mdp.agents import PSRL, psrl
from bayes_mdp.mdp import Episodic, Problem
from tests.agents.believed import layered

NUMBER = 1_000_000


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("by_layers", [False, True])
def test_the_frequencies_of_the_first_action_are_those_of_numpy(by_layers, key, monkeypatch):
    """The best action of every state of step 0 in 2e5 draws, drawn at once or layer by layer, against 1e6 of numpy.

    Threshold 5.5 standard errors of the difference of two frequencies, three entries: false alarm 1e-7. Caught: a
    frequency off by .007. The twin plans with mean rows (its rewards alone are drawn).
    """
    monkeypatch.setattr(psrl, "_LAYERED_ABOVE", 0 if by_layers else 10**9)
    case = layered(horizon=3)
    posterior, task = case.posterior, Problem(case.posterior.space, Episodic(3))
    draw = jax.jit(jax.vmap(lambda key: PSRL().plan(key, task, None, posterior)[0].best[0]))
    ours = np.asarray(draw(jax.random.split(key, 200_000))).mean(0)
    mean = case.concentration / case.concentration.sum(-1, keepdims=True)

    def off(draw_rows):
        best = []
        for seed in range(10):
            rows, reward = case.draw(seed, NUMBER // 10)
            value, q = np.zeros((NUMBER // 10, 3)), np.zeros((NUMBER // 10, 3, 2))
            for h in reversed(range(3)):
                ahead = (
                    np.einsum("nsaz,nz->nsa", rows[:, h], value)
                    if draw_rows
                    else (value @ mean[h].reshape(-1, 3).T).reshape(-1, 3, 2)
                )
                q = reward[:, h] + ahead
                value = q.max(-1)
            best.append((q[..., 1] > q[..., 0]).mean(0))
        theirs = np.mean(best, 0)
        return np.max(np.abs(ours - theirs) / np.sqrt(theirs * (1 - theirs) * (1 / 200_000 + 1 / NUMBER)))

    assert off(True) < 5.5
    assert off(False) > 5.5
