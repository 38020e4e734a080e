"""A prior with an exact posterior, and the posteriors of seven ways to get it wrong.

The prior has a parent with two values, so that its posterior is a `Mixture` with weights that can go stale; each fault
is a function of the right posterior, all of one structure: one compiled program serves them all.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.families.normal import NormalGammaBelief
from bayes_mdp.inference.mixtures import Mixture, mixture
from bayes_mdp.mdp import StateActionSpace, Transitions

SPACE = StateActionSpace(2, 2)
CONCENTRATION = (0.8, 4.0)
LOC = (-1.0, 1.0)
PSEUDO_COUNT, SHAPE, RATE = 0.5, 3.0, 2.0


def draw_mdps(rng: np.random.Generator, num: int):
    """`num` truths by NumPy: an MDP is of one of two kinds, with extreme rows and low rewards or mixed and high.

    Rows [num S A S], mean and precision of the rewards [num S A].
    """
    kind = rng.integers(0, 2, num)
    weights = rng.gamma(np.array(CONCENTRATION)[kind][:, None, None, None], size=(num, 2, 2, 2))
    precision = rng.gamma(SHAPE, 1 / RATE, (num, 2, 2))
    mean = rng.normal(np.array(LOC)[kind][:, None, None], (PSEUDO_COUNT * precision) ** -0.5)
    return weights / weights.sum(-1, keepdims=True), mean, precision


def draw_transitions(rng: np.random.Generator, mdps, num: int) -> Transitions:
    """`num` transitions of each MDP, from pairs at random."""
    rows, mean, precision = mdps
    each = np.arange(len(rows))[:, None]
    state, action = rng.integers(0, 2, (2, len(rows), num))
    next_state = (rng.random(state.shape) < rows[each, state, action, 1]).astype(np.int32)
    reward = rng.normal(mean[each, state, action], precision[each, state, action] ** -0.5)
    return Transitions(state.astype(np.int32), action.astype(np.int32), reward.astype(np.float32), next_state)


def _component(concentration: float, loc: float):
    rows = dirichlet_rows(np.full((4, 2), concentration), (2, 2, 2))
    numbers: list[Any] = [np.full(4, x) for x in (loc, PSEUDO_COUNT, SHAPE, RATE)]
    belief = NormalGammaBelief(*numbers)
    return conjugate_posterior(rows, reward_cells(belief, (2, 2)), SPACE)


def prior_belief() -> Mixture:
    """The belief before data."""
    return mixture([_component(*kind) for kind in zip(CONCENTRATION, LOC, strict=True)], weights=[0.5, 0.5])


def _with_rows(belief: Mixture, prior, counts) -> Mixture:
    where = lambda b: (b.components.transition_probs.prior, b.components.transition_probs.counts)  # noqa: E731
    return eqx.tree_at(where, belief, (prior, counts))


def _with_rewards(belief: Mixture, after: NormalGammaBelief) -> Mixture:
    """`belief` with this belief about rewards after data."""
    cells = _cells(belief)
    where = lambda b: (b.components.reward_cells.prior, b.components.reward_cells.data)  # noqa: E731
    return eqx.tree_at(where, belief, (after, jnp.zeros_like(cells.data)))


def _cells(belief: Mixture) -> Any:
    return belief.components.reward_cells


def _rewards(belief: Mixture) -> tuple[NormalGammaBelief, NormalGammaBelief, jax.Array]:
    """The belief before and after data, and how often each conjugate site was observed."""
    cells = _cells(belief)
    return cells.prior, cells.prior.after(cells.data), cells.data[..., 0]


def counts_inflated(right: Mixture) -> Mixture:
    """Every datum counts 1.25 times."""
    rows = right.components.transition_probs
    right = _with_rows(right, rows.prior, 1.25 * rows.counts)
    data = _cells(right).data * jnp.array([1.25, 1.0, 1.25])
    return eqx.tree_at(lambda b: b.components.reward_cells.data, right, data)


def too_concentrated(right: Mixture) -> Mixture:
    """Rows are drawn with 10 % more concentration."""
    rows = right.components.transition_probs
    return _with_rows(right, 1.1 * jnp.asarray(rows.prior), 1.1 * rows.counts)


def divided_twice(right: Mixture) -> Mixture:
    """The variance of a mean reward is divided by the number of rewards once more."""
    _, after, count = _rewards(right)
    wrong = after.pseudo_count * jnp.maximum(count, 1.0)
    return _with_rewards(right, eqx.tree_at(lambda a: a.pseudo_count, after, wrong))


def wrong_rate(right: Mixture) -> Mixture:
    """The rate grows by the sum of squares, not by half of it."""
    before, after, _ = _rewards(right)
    return _with_rewards(right, eqx.tree_at(lambda a: a.rate, after, before.rate + 2 * (after.rate - before.rate)))


def stale_weights(right: Mixture) -> Mixture:
    """The components have learnt, their weights are those before data."""
    return eqx.tree_at(lambda b: b.log_weights, right, jnp.zeros(2))


def prior_ignored(right: Mixture) -> Mixture:
    """Vague priors in place of the true ones."""
    rows, cells = right.components.transition_probs, _cells(right)
    right = _with_rows(right, 0.1 * jnp.ones_like(rows.prior), rows.counts)
    one = jnp.ones_like(cells.prior.loc)
    vague = NormalGammaBelief(0 * one, 0.01 * one, 0.5 * one, 0.01 * one)
    return eqx.tree_at(lambda b: b.components.reward_cells.prior, right, vague)


def prior_returned(right: Mixture) -> Mixture:
    """Nothing is learnt."""
    rows, cells = right.components.transition_probs, _cells(right)
    right = stale_weights(_with_rows(right, rows.prior, 0 * rows.counts))
    return eqx.tree_at(lambda b: b.components.reward_cells.data, right, 0 * cells.data)


FAULTS: dict[str, Callable[[Mixture], Mixture]] = {
    "none": lambda right: right,
    "counts_inflated": counts_inflated,
    "too_concentrated": too_concentrated,
    "divided_twice": divided_twice,
    "wrong_rate": wrong_rate,
    "stale_weights": stale_weights,
    "prior_ignored": prior_ignored,
    "prior_returned": prior_returned,
}


def with_fault(number, right: Mixture) -> Mixture:
    """`right` with fault `number` of `FAULTS`; a traced number will do."""
    branches = [lambda belief, fault=fault: _as(fault(belief), belief) for fault in FAULTS.values()]
    return jax.lax.switch(number, branches, right)


def twin(number) -> Fit:
    """The fit with that fault."""
    prior = jax.tree.map(jnp.asarray, prior_belief())

    def infer(key, data):
        return with_fault(number, prior.update(data))

    return Fit("exact", SPACE, lambda transitions: transitions, infer, infer)


def _as(belief: Mixture, like: Mixture) -> Mixture:
    return jax.tree.map(lambda x, y: jnp.asarray(x, y.dtype), belief, like)
