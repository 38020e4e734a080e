"""`bayes_optimal`: the most that any agent can expect of an episode whose MDP is drawn from the prior. Host side.

An MDP whose rows and rewards are believed in is one whose state is a hyper-state (state and counts): it is known, and
solved by backward induction (Martin 1967, *Bayesian Decision Problems and Markov Chains*; Duff 2002, chapter 1).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import NamedTuple, overload

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

from bayes_mdp.decisions.hyperstates import (
    Branch,
    Codes,
    HyperProblem,
    Layer,
    Word,
    child,
    enumerate_hyperstates,
    hyper_problem,
    search_key,
)
from bayes_mdp.decisions.policy_evaluation import describe_objective
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.route import infer
from bayes_mdp.inference.untried_rewards import TRIED, UntriedRewards, untried_rewards
from bayes_mdp.mdp import Episodic, Objective, StateActionSpace
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils.messages import shown_as_html
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.typing import ArrayLike, InitialLike
from bayes_mdp.utils.validation import check_count

MAX_HYPERSTATES = 20_000_000
MOST_STATES = 5  # that are printed


class BayesOptimal(eqx.Module):
    """The Bayes-optimal value of an episode; `print` shows it in words.

    Args:
        value: expected reward of an episode, under the initial distribution and the prior.
        v: Float64[S], expected reward of an episode that starts in a state; nan where none can.
        q: Float64[S A], of one that starts with an action; -inf where it is illegal.
        num_hyperstates: different hyper-states in which a decision is taken, over all steps (counts that no later step
            uses are not distinguished).
        horizon: steps of an episode.
        initial: Float64[S], distribution of the first state.
        initial_given: whether it was given; if not it is uniform.
        space: sizes and names.
        discount: of the objective.
        untried: the pairs that were never tried and whose mean reward, the prior's, lies above that of every pair that
            was (see `untried_rewards`); None: there are none.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> best = bm.bayes_optimal(prior, space, objective=bm.Episodic(2))
        >>> print(best.q.round(3), best.horizon)
        [[1.083 1.083]] 2
    """

    value: float
    v: Float[np.ndarray, " S"]
    q: Float[np.ndarray, "S A"]
    num_hyperstates: int
    horizon: int
    initial: Float[np.ndarray, " S"]
    initial_given: bool
    space: StateActionSpace
    discount: float = 1.0
    untried: UntriedRewards | None = None

    @overload
    def share(self, value: float) -> float: ...

    @overload
    def share(self, value: ArrayLike) -> float | Float[np.ndarray, "*values"]: ...

    def share(self, value: ArrayLike) -> float | Float[np.ndarray, "*values"]:
        """The share of the optimum that `value` (a number or an array) is.

        Raises:
            ValueError: the optimum is not positive: a share of it has no meaning.
        """
        if not self.value > 0:
            raise ValueError(f"the optimum is {self.value:.9g}, expected a positive one to take a share of")
        share = np.asarray(value, np.float64) / self.value
        return float(share) if share.ndim == 0 else share

    _repr_html_ = shown_as_html

    def __str__(self) -> str:
        """A few lines for a person."""
        episodes = describe_objective(Episodic(self.horizon, self.discount))
        return "\n".join(
            [
                f"Bayes-optimal value, {episodes}: {self.value:.9g}",
                f"  {_describe_start(self)}",
                *(f"  {line}" for line in _describe_actions(self)),
                f"  {self.num_hyperstates} hyper-states (state and counts), solved exactly",
                *([] if self.untried is None else [f"  {self.untried.warning(TRIED)}"]),
            ]
        )


def bayes_optimal(
    prior: Prior | ConjugatePosterior,
    space: StateActionSpace | None = None,
    *,
    objective: Objective,
    initial: InitialLike | None = None,
    max_hyperstates: int = MAX_HYPERSTATES,
    max_bytes: int | None = None,
) -> BayesOptimal:
    """The Bayes-optimal value: the best expected reward of one episode, learning within it included. Host side.

    V_t(s, counts) = max_a sum over outcomes o and rewards r of their predictive probability times (r + discount
    V_{t+1}(s', counts after)); the value is zero after an end and after the last step. Exact up to rounding (float64).
    Rewards are known or Bernoulli.

    Args:
        prior: a NumPyro program with an exact posterior, or a `ConjugatePosterior` (with its data, if any).
        space: of a program; None with a posterior, which has one.
        objective: `Episodic(horizon)`, with a discount or without.
        initial: distribution of the first state: [S], a state's label, {label: probability}, or a log (as often as its
            episodes begin in each state); None: uniform (see `initial_given`).
        max_hyperstates: refuse problems with more of them: a matter of time.
        max_bytes: refuse problems that take more memory, by a forecast from the first steps, before it is taken. A
            hyper-state takes 8 bytes for every 64 bits of its counts (of all stacked rows: kilobytes where states are
            many), and a number for each action while its step is solved. None: half of the memory that is free.

    Raises:
        ValueError, TypeError: one sentence on the argument that cannot be used: another objective, rewards whose law
            has infinitely many outcomes, too many hyper-states or too much memory, a prior without an exact posterior.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> best = bm.bayes_optimal(prior, space, objective=bm.Episodic(2))
        >>> round(best.value, 4)  # the first pull is worth 1/2; thanks to it the second is worth 7/12
        1.0833
    """
    if space is not None:
        check_space(space)
        _start(initial, space)
    horizon, discount = _check_objective(objective)
    check_count("max_hyperstates", max_hyperstates)
    if max_bytes is not None:
        check_count("max_bytes", max_bytes)
    posterior = _posterior(prior, space)
    _check_posterior(posterior, horizon)
    start = _start(initial, posterior.space)
    problem = hyper_problem(posterior, horizon, discount)
    with _counter("counting") as report:
        layers = enumerate_hyperstates(problem, np.flatnonzero(start > 0), max_hyperstates, report, max_bytes)
    total = sum(len(codes) for layer in layers for codes in layer)
    with _counter("solving", total) as report:
        q = _first_q(problem, layers, report)
    v = q.max(-1)
    value = float(np.where(start > 0, v, 0.0) @ start)
    given, untried = initial is not None, untried_rewards(posterior)
    return BayesOptimal(value, v, q, total, horizon, start, given, posterior.space, discount, untried)


def _check_objective(objective: object) -> tuple[int, float]:
    if not isinstance(objective, Objective):
        raise TypeError(f"objective is {objective!r}, expected Episodic(horizon)")
    if not isinstance(objective, Episodic):
        raise ValueError(f"objective is {objective}, expected Episodic(horizon): without one, counts grow for ever")
    return objective.horizon, objective.discount


def _posterior(prior: Prior | ConjugatePosterior, space: StateActionSpace | None) -> ConjugatePosterior:
    if isinstance(prior, Fitted):
        if space is not None:
            raise ValueError("space is given, expected None: prior is a posterior, which has one")
        return _exact(prior)
    if not callable(prior):
        raise TypeError(
            f"prior is a {type(prior).__name__}, expected a function space -> MDPSpec or a ConjugatePosterior"
        )
    # The exact route draws nothing.
    return _exact(infer(jax.random.key(0), prior, None, space=space, method="exact"))  # type: ignore[arg-type]


def _exact(posterior: Fitted) -> ConjugatePosterior:
    part = posterior.exact_part if posterior.in_closed_form else None
    if part is None:
        raise TypeError(f"prior has a {type(posterior).__name__}, expected a ConjugatePosterior")
    return part


def _check_posterior(posterior: ConjugatePosterior, horizon: int) -> None:
    rewards, space = posterior.reward_cells, posterior.space
    bernoulli = rewards.in_closed_form and rewards.law is dist.BernoulliProbs
    if rewards.learns and not bernoulli:
        law = getattr(rewards.law, "__name__", "other")
        raise ValueError(
            f"prior has {law} rewards of unknown mean, expected known or Bernoulli ones: two outcomes each"
        )
    if space.horizon not in (None, horizon):
        raise ValueError(
            f"objective is Episodic({horizon}), expected Episodic({space.horizon}), the steps of the space"
        )


def _start(initial: InitialLike | None, space: StateActionSpace) -> Float[np.ndarray, " S"]:
    if initial is None:
        return np.full(space.n_states, 1 / space.n_states)
    start = space.initial_probs(initial)
    return start / start.sum()


@contextmanager
def _counter(what: str, total: int | None = None) -> Iterator[Callable[[int], object]]:
    """A progress bar."""
    with bar_of(total, " hyper-states", what=what) as bar:
        yield bar.update


class Ahead(NamedTuple):
    """What the backup of a step needs of the next: sorted codes and values of every state, and the bits kept."""

    keys: list[np.ndarray]
    values: list[np.ndarray]
    kept: Word | None

    def value(self, codes: Codes, next_state: int, increment: tuple[int, ...]) -> Float[np.ndarray, " N"]:
        """The values of the hyper-states that `codes` lead to."""
        wanted = search_key(child(codes, self.kept, increment))
        return self.values[next_state][np.searchsorted(self.keys[next_state], wanted)]


def _first_q(problem: HyperProblem, layers: list[Layer], report: Callable[[int], object]) -> Float[np.ndarray, "S A"]:
    """q of the first step, by backward induction; nan where an episode cannot start. Uses `layers` up."""
    ahead, q = Ahead([], [], None), []
    for step in reversed(range(problem.horizon)):
        # Only two layers are needed at a time; the codes of those behind are freed.
        layer = layers.pop()
        ahead = Ahead(ahead.keys, ahead.values, problem.counters.kept(step))
        q = [_action_values(problem, step, state, codes, ahead) for state, codes in enumerate(layer)]
        values = [np.maximum.reduce(list(each.values())) for each in q]
        ahead = Ahead([search_key(codes) for codes in layer], values, None)
        report(sum(map(len, layer)))
    first = np.where(problem.legal, np.nan, -np.inf)
    for state, each in enumerate(q):
        for action, value in each.items():
            first[state, action] = value[0] if value.size else np.nan
    return first


def _action_values(
    problem: HyperProblem, step: int, state: int, codes: Codes, ahead: Ahead
) -> dict[int, Float[np.ndarray, " N"]]:
    """The value of every legal action in the hyper-states of one state."""
    concentration = cache(partial(problem.counters.concentration, codes))
    value = cache(partial(ahead.value, codes))

    def branch_value(branch: Branch) -> float | Float[np.ndarray, " N"]:
        """The expected reward of an outcome and the value of the next hyper-state."""
        next_values = [value(branch.next_state, add) for add in problem.increments(step, branch)]
        if problem.discount != 1:
            next_values = [problem.discount * values for values in next_values]
        if branch.reward_counter < 0:
            return branch.reward + next_values[0] if next_values else branch.reward
        # A Bernoulli reward: its probability is paid / (paid + failed), and the counts after 0 and after 1 may differ.
        failed, paid = concentration(branch.reward_counter), concentration(branch.reward_counter + 1)
        if len(next_values) == 2:
            return (paid * (1.0 + next_values[1]) + failed * next_values[0]) / (paid + failed)
        return paid / (paid + failed) + (next_values[0] if next_values else 0.0)

    def action_value(action: int) -> float | Float[np.ndarray, " N"]:
        branches = problem.branches(step, state, action)
        if step == problem.horizon - 1 and not problem.by_outcome:
            return branch_value(branches[0])  # whatever the outcome
        counters = problem.row_counters(step, state, action)
        if not counters:
            return sum(branch.prob * branch_value(branch) for branch in branches)
        # Posterior predictive of an outcome: its concentration over the total of the row.
        weighted = sum(concentration(branch.row_counter) * branch_value(branch) for branch in branches)
        return weighted / sum(map(concentration, counters))

    return {action: np.broadcast_to(action_value(action), len(codes)) for action in problem.actions(state)}


def _describe_start(optimum: BayesOptimal) -> str:
    size, used = len(optimum.initial), int((optimum.initial > 0).sum())
    if not optimum.initial_given:
        return f"start: uniform over the {size} states (no initial distribution was given)"
    return f"start: the given distribution over {used} of {size} states"


def _describe_actions(optimum: BayesOptimal) -> list[str]:
    """The best first action of the first few states."""
    names, shown = optimum.space.action_names, np.flatnonzero(optimum.initial > 0)[:MOST_STATES]
    states = optimum.space.state_names
    lines = [
        f"from state {states[s]!r}: {optimum.v[s]:.9g}, first action {names[optimum.q[s].argmax()]!r}" for s in shown
    ]
    more = int((optimum.initial > 0).sum()) - len(shown)
    return lines + ([f"and {more} more states"] if more else [])
