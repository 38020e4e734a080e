"""`choice_spread`: how much wider the interval of a gain must be because the same data chose the policy. A heuristic.

Of many policies the one that looks best in the data looks better there than it is. Its posterior interval is right for
a policy that was named beforehand and, if prior and model are right, on average over worlds; where those in charge do
well already, it holds the truth too seldom. Had the data been others, another policy would have been chosen, which adds
variance that the interval does not have. Other data are imitated by draws of the posterior: in each the best policy of
the same set is found, and its gain over the candidate there is compared with the one that it has on average over the
draws. The variance of this difference is added to that of the gain. How often such intervals hold the truth is measured
(docs/measured/decisions.md), not proven.
"""

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.decisions.choosing.common_draws import draws_of
from bayes_mdp.decisions.choosing.mean_plan import improve
from bayes_mdp.decisions.choosing.policy_set import PolicySet
from bayes_mdp.inference.pair_draws import Drawn
from bayes_mdp.mdp import CanSample, Objective
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.typing import InitialLike

NUM_CHOICES, FEW_CHOICES = 40, 20
"""Draws in which the choice is repeated; in a large problem."""
LARGE = 2**16
"""Numbers of a draw from which on a problem is large."""


def choice_spread(
    key: PRNGKeyArray,
    posterior: CanSample,
    objective: Objective,
    policies: PolicySet,
    candidate: Float[np.ndarray, "*H S A"],
    gain: Float[np.ndarray, " num_draws"],
    *,
    initial: InitialLike | None = None,
) -> float:
    """By which factor the interval of a gain is widened about its mean; 1: nothing else could have been chosen.

    Args:
        key: of the draws.
        posterior: that chose the candidate.
        objective, initial: of the values.
        policies: the set from which it was chosen.
        candidate: its action probabilities.
        gain: of the candidate over the baseline, in draws of the posterior that judges.
    """
    if not policies.open_states.any() or gain.var() == 0:
        return 1.0
    needed = policies.used | (candidate > 0).reshape(-1, *policies.free.shape).any(0)
    draws = draws_of(key, posterior, objective, NUM_CHOICES, initial=initial, needed=needed, fewest=FEW_CHOICES)
    start = np.where(policies.free, candidate - policies.fixed, -np.inf).argmax(-1)
    others = []
    number = min(draws.num, NUM_CHOICES if draws.numbers < LARGE else FEW_CHOICES)
    with bar_of(number, " choices") as bar:
        for which, drawn in draws.blocks(slice(number)):
            for i in range(len(which)):
                one = Drawn(drawn.probs[i : i + 1].astype(np.float64), drawn.reward[i : i + 1].astype(np.float64))
                others.append(policies.policy(improve(draws.rows, one, objective, policies, start)))
                bar.update(1)
    own = np.arange(number)
    # ahead[w, i]: the policy that is best in draw i, over the candidate, in draw w.
    values = draws.values(np.stack([candidate, *others]))
    ahead = values[:, 1:] - values[:, :1]
    optimism = ahead[own, own] - ahead.mean(0)
    return float(np.sqrt(1.0 + optimism.var() / gain.var()))
