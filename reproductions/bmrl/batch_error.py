"""The error of the published code of [BMRL19] (Markou and Rasmussen 2019) in the rewards of a batch, to be measured.

Between two plans that code collects the rewards r_1 .. r_n of a (state, action, next state). For their second moment it
takes (sum r)^2 / n in place of sum r^2 / n, so that the rate of the normal-gamma law grows too much wherever n exceeds
one, in PSRL, UBE and moment matching alike. It is an option of these experiments, and of
nothing else in the library.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.families.normal import NormalGammaBelief
from bayes_mdp.mdp import MDP, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.utils.typing import AnyArray

Pairs = Float[AnyArray, "S A"]


class BatchError(eqx.Module):
    """A posterior that learns with the error. One call of `update` is one batch, as it is between two plans of a run.

    After the true update, (sum r)^2 - sum r^2 is added to the sum of squared deviations of each conjugate site, the
    sums over the batch: the batch's own deviations are then ((n - 1) / n) (sum r)^2, as in that code, and everything
    else is true.

    Args:
        posterior: with normal-gamma rewards (built by `with_batch_error`, which checks it).
        amount: 1, the error; 0, none. An array, so that both are one compiled program.
    """

    posterior: ConjugatePosterior
    amount: float | Float[Array, ""] = 1.0

    def update(self, transitions: Transitions, weight: Any = 1.0) -> "BatchError":
        """The belief after one batch, of which a weight of zero masks a part. Traceable."""
        learnt = self.posterior.update(transitions, weight)
        cells: Any = learnt.reward_cells
        data = jnp.asarray(cells.data)
        leaf = cells.element(transitions.cell(self.space), transitions.outcome(self.space))
        weights = jnp.broadcast_to(jnp.asarray(weight, float), jnp.shape(leaf))
        seen, reward = transitions.observed_rewards(weights, by_outcome=False)
        sums, squares = (
            jnp.zeros(len(data), data.dtype).at[leaf].add((seen * x).astype(data.dtype), mode="drop")
            for x in (reward, reward**2)
        )
        wrong = data.at[:, 2].add(self.amount * (sums**2 - squares))
        return BatchError(eqx.tree_at(lambda p: p.reward_cells.data, learnt, wrong), self.amount)

    def listed(self, successor: Any) -> "BatchError":
        """The same belief, with counts for the outcomes `successor` [S A L] only."""
        return BatchError(self.posterior.listed(successor), self.amount)

    @property
    def space(self) -> StateActionSpace:
        """Sizes and masks."""
        return self.posterior.space

    @property
    def independent_rows(self) -> bool:
        """Whether the rows of different pairs are independent."""
        return self.posterior.independent_rows

    @property
    def rewards_by_outcome(self) -> bool:
        """Whether rewards depend on the next state."""
        return self.posterior.rewards_by_outcome

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> MDP | SparseMDP:
        """Draws of hypotheses."""
        return self.posterior.sample(key, sample_shape)

    def mean_mdp(self) -> MDP | SparseMDP:
        """The posterior mean, which the error leaves as it is."""
        return self.posterior.mean_mdp()

    def visit_counts(self) -> Pairs:
        """Observed transitions of every pair."""
        return self.posterior.visit_counts()

    def reward_variance(self) -> Pairs:
        """Epistemic variance of the expected reward."""
        return self.posterior.reward_variance()

    def expected_reward_variance(self) -> Pairs:
        """Epistemic variance of the mean reward given the outcome, averaged over outcomes."""
        return self.posterior.expected_reward_variance()

    def bellman_variance(self, values: Float[Array, " S"], discount: Any) -> Pairs:
        """Variance of a backup."""
        return self.posterior.bellman_variance(values, discount)

    def transition_variance(self, values: Float[Array, " S"], discount: Any) -> Pairs:
        """The part of it that unknown rows cause."""
        return self.posterior.transition_variance(values, discount)

    def variance_factor(self, form: str) -> Pairs:
        """The factor of the uncertainty Bellman equation."""
        return self.posterior.variance_factor(form)

    def row_bound(self, values: Float[Array, " S"], discount: Any) -> Pairs:
        """The largest number that a row multiplies."""
        return self.posterior.row_bound(values, discount)


def with_batch_error(posterior: Any, amount: float = 1.0) -> BatchError:
    """`posterior`, learning with the error of the published code.

    Args:
        posterior: exact, with normal-gamma rewards.
        amount: 1, the error; 0, none.

    Raises:
        TypeError: another posterior, or other rewards. ValueError: `amount` is neither 0 nor 1.
    """
    if not isinstance(posterior, ConjugatePosterior):
        raise TypeError(f"posterior is a {type(posterior).__name__}, expected a ConjugatePosterior")
    cells = posterior.reward_cells
    if not (isinstance(cells, RewardCells) and isinstance(cells.prior, NormalGammaBelief)):
        law = type(cells.prior if isinstance(cells, RewardCells) else cells).__name__
        raise TypeError(f"posterior has rewards of {law}, expected normal-gamma rewards (NormalGammaBelief)")
    if amount not in (0, 1):
        raise ValueError(f"amount is {amount}, expected 0 (no error) or 1")
    return BatchError(posterior, float(amount))
