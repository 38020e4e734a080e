"""SARSA(lambda) against closed forms: the mixture of n-step returns, one step, the whole return."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import SarsaLambda
from bayes_mdp.agents.model_free.trial_learning import Tables, sweep
from bayes_mdp.experiments.rollout.run_beliefs import on_device
from bayes_mdp.mdp import Discounted, Problem, StateActionSpace, Transitions

S, A, DISCOUNT = 3, 2, 0.9
PROBLEM = Problem(StateActionSpace(S, A, ends=True), Discounted(DISCOUNT))
_sweep = jax.jit(sweep)


def _returns(trace_decay: float, *, frozen: bool = True) -> tuple[Any, Any, Any]:
    """Rewards, Q(s_t, a_t) before the sweep, returns: of one trial whose pairs are all different, float64."""
    rng = np.random.default_rng(2)
    reward, q = rng.normal(size=S * A), rng.normal(size=(S, A))
    state, action = (x.ravel() for x in np.indices((S, A)))
    with jax.enable_x64(True):
        agent = on_device(SarsaLambda(trace_decay, frozen=frozen))
        tables = Tables(jnp.asarray(q))
        trial = Transitions(state, action, reward, np.append(state[1:], 0), np.arange(S * A) == S * A - 1)
        returns = _sweep(agent, PROBLEM, tables, jax.tree.map(jnp.asarray, trial))[1]
        return reward, q.ravel(), np.asarray(returns)


def test_frozen_returns_mix_those_of_n_steps():
    """R_t = sum_n (1 - lambda) lambda^(n-1) G_t^(n), the whole return with all the weight that is left."""
    reward, q, found = _returns(0.7)
    n = len(reward)
    for t in range(n):
        mixture = 0.0
        for steps in range(1, n - t + 1):
            whole = t + steps == n
            ret = DISCOUNT ** np.arange(steps) @ reward[t : t + steps] + (
                0.0 if whole else DISCOUNT**steps * q[t + steps]
            )
            mixture += 0.7 ** (steps - 1) * (1.0 if whole else 0.3) * ret
        assert found[t] == pytest.approx(mixture, rel=1e-12)


def test_lambda_zero_and_one():
    """One step, from Q as it was or as the sweep has just made it; the whole return."""
    reward, q, found = _returns(0.0)
    np.testing.assert_allclose(found, reward + DISCOUNT * np.append(q[1:], 0.0), rtol=1e-12)
    _, _, moved = _returns(0.0, frozen=False)
    after = q + 0.15 * (moved - q)
    np.testing.assert_allclose(moved, reward + DISCOUNT * np.append(after[1:], 0.0), rtol=1e-12)
    whole = [DISCOUNT ** np.arange(len(reward) - t) @ reward[t:] for t in range(len(reward))]
    for frozen in (True, False):
        np.testing.assert_allclose(_returns(1.0, frozen=frozen)[2], whole, rtol=1e-12)
