"""SARSA(lambda), offline: learnt from whole trials, swept backwards ([TDBMA10] Algorithm 2)."""

from typing import Any

from jaxtyping import Array, Float

from bayes_mdp.agents.trial import TrialLearner
from bayes_mdp.mdp.validation import check_fraction


class SarsaLambda(TrialLearner):
    """SARSA(lambda) after Downey and Sanner (2010), Algorithm 2, inside generalised policy iteration (Algorithm 1).

    A sweep from the last step of a trial to the first: R_T = r_{T+1},

        R_t = r_{t+1} + discount ((1 - lambda) Q(s_{t+1}, a_{t+1}) + lambda R_{t+1}),

    and Q(s_t, a_t) moves by learning_rate (R_t - Q(s_t, a_t)). lambda = 0: TD; 1: Monte Carlo. Actions are
    epsilon-greedy; what was learnt is taken up after each trial. Under `Episodic(H)` a trial is an episode and the
    table has a row for every step.

    Args:
        trace_decay: lambda, in [0, 1].
        learning_rate: in [0, 1].
        epsilon: in [0, 1].
        initial_q: every entry at first.
        frozen: False, as printed: Q(s_{t+1}, a_{t+1}) is what the same sweep has just made of it. True: it is Q as it
            was during the trial, and R_t the true lambda-return; each step still moves from the present entry.
        bootstrap: a trial that is cut (by `trial_steps`, or truncated) and does not end: False, as printed, nothing is
            worth anything beyond; True: max_a Q(s_{T+1}, a) is.
        trial_steps: a trial is cut after so many steps (not under `Episodic`).
        replan: when the policy takes up what was learnt; nothing is learnt inside a trial.

    Raises:
        ValueError, TypeError: a number outside its range.
    """

    trace_decay: float | Array = 0.8

    def __check_init__(self) -> None:
        check_fraction("trace_decay", self.trace_decay)

    @property
    def keeps_statistics(self) -> bool:
        """No."""
        return False

    def trace_decay_at(self, statistics: Any, q_mc: Any, q_td: Any) -> Float[Array, ""]:
        """lambda, the same everywhere."""
        del statistics, q_mc, q_td
        return self.trace_decay  # pyright: ignore[reportReturnType]
