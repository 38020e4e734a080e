"""`consequences`: whether a check that failed matters to a decision. The gain is judged again under other beliefs.

A check says that a belief does not fit the log somewhere; it does not say that this place matters to the decision. So
for each check that failed the policies are compared again under the beliefs that it points to: rows of a concentration
that is learnt, rows that lead where the log leads, rows that the actions of a state share, the earlier and the later
half of the episodes alone, and, where the check is about the choice itself, the choice made with one half of the
episodes and judged by the other. Where actions depend on the step, the baseline is what the log did at its earlier
steps, or at its later ones. If the promise is broken there, by more than the draws may err, the check is a reason not
to recommend; if not, a note. Where the check is about rows or the choice, the interval of a gain holds those of the
other answers too: that it failed leaves open which of them is right. What none of these
beliefs can hold (an unseen cause of actions and outcomes, rewards that are missing for a reason) no such comparison can
show.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.calibration.criticism.criticise import CHOSEN, NEW, RETURNS, WHERE
from bayes_mdp.decisions.policy_evaluation import policy_values
from bayes_mdp.decisions.value_basis import PRIOR_SHARE, ValueBasis
from bayes_mdp.inference import Gibbs
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.pair_draws import Worth, central_interval
from bayes_mdp.inference.route import fit_for, infer
from bayes_mdp.mdp import Log, Objective, PolicyLike, StateActionSpace
from bayes_mdp.mdp.data.log_split import halves_in_time, split_log
from bayes_mdp.mdp.labels import behaviour_in_halves
from bayes_mdp.models.default_prior import DefaultPrior, concentrations_of, reward_law_of
from bayes_mdp.models.hierarchical import unknown_concentration
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.models.partial_pooling import PartialPooling, partial_pooling, pooled_outcomes
from bayes_mdp.models.priors import known_rewards
from bayes_mdp.utils.messages import amount, amounts, see
from bayes_mdp.utils.progress import stage
from bayes_mdp.utils.typing import ArrayLike, InitialLike

Rule = Callable[[Fitted], PolicyLike]
"""How a policy is chosen from a posterior."""
Gain = Float[np.ndarray, " num_draws"]


class Answer(NamedTuple):
    """The gain of a policy under another belief.

    Args:
        gain: in each draw.
        worth: how many independent draws a draw is worth, in (0, 1]: fewer than one where chains made them.
    """

    gain: Gain
    worth: float = 1.0


SHARE, BY_STEP = "the prior's share", "behaviour by step"
ROUNDING = 1e-9
"""Of a gain: less is none."""
ERRORS = 2.0
"""A promise is broken where P(no worse) is less than it must be by more than so many Monte Carlo errors."""
SIGN = 0.5
"""What P(no worse) must be by half of the data, which cannot be asked for more than the sign."""
WARM_UP, SWEEPS = 50, 100
"""Of the chain that draws what the rows of a state share."""
MOST_NUMBERS, LEAST_DRAWS = 2**27, 100
"""Numbers of all draws of a gain together, beyond which `decide` makes no more of them, and other beliefs are asked in
fewer draws, at least so many."""


class Consequence(NamedTuple):
    """What a failed check changes for one policy.

    Args:
        check: that failed.
        belief: the other one, in words.
        before: mean gain of the policy under the belief of the decision.
        gain: Float64[num_draws], under the other one.
        slack: as of the decision.
        confidence: what P(gain >= -slack) must be; 0.5 where the other belief has half of the data: the sign.
        worth: of a draw, see `Answer`.
    """

    check: str
    belief: str
    before: float
    gain: Gain
    slack: float
    confidence: float
    worth: float = 1.0

    @property
    def prob(self) -> float:
        """Share of the draws in which the policy is no worse."""
        return float(np.mean(self.gain >= -self.slack))

    @property
    def in_doubt(self) -> bool:
        """Whether P(no worse) is less than it must be, by no more than the draws may err."""
        # Binomial, of so many independent draws.
        error = (self.prob * (1.0 - self.prob) / (len(self.gain) * self.worth)) ** 0.5
        return self.confidence - ERRORS * error <= self.prob < self.confidence

    @property
    def stops(self) -> bool:
        """Whether the promise is broken, or nothing is gained that would be worth a change.

        The other belief is nobody's; what it has to show is that the answer hangs on the one that is asked.
        """
        broken = self.prob < self.confidence and not self.in_doubt
        return broken or float(self.gain.mean()) <= ROUNDING * abs(self.before) - self.slack

    @property
    def widens(self) -> bool:
        """Whether the interval of the gain allows for it: what the check is about are rows, or the choice."""
        return self.check in (NEW, WHERE, CHOSEN)

    @property
    def what(self) -> str:
        """The check in words."""
        if self.check == BY_STEP:
            return "what the log did depends on the step of the episode, given the state"
        return "the prior weighs much" if self.check == SHARE else f"the check {self.check!r} failed"

    @property
    def answer(self) -> str:
        """What the other belief says, in words."""
        interval = amounts(*central_interval(self.gain))
        moved = f"the gain of {amount(self.before)} is {amount(float(self.gain.mean()))}, 95 % interval {interval}"
        verdict = f"the answer changes {see('how-to/decide-from-a-log')}" if self.stops else "the answer stays"
        doubt = f", {self.confidence:g} up to Monte Carlo error" if self.in_doubt else ""
        return f"{self.belief} {moved}, P(no worse) {self.prob:.3f}{doubt}: {verdict}"

    def __str__(self) -> str:
        """One sentence."""
        return f"{self.what}; {self.answer}"


def sentences(told: Iterable[Consequence]) -> list[str]:
    """Consequences in words; checks that have the same one are named together.

    Args:
        told: of one policy.
    """
    causes: dict[str, list[str]] = {}
    for consequence in told:
        causes.setdefault(consequence.answer, []).append(consequence.what)
    return [f"{' and '.join(whats)}; {answer}" for answer, whats in causes.items()]


class Question(NamedTuple):
    """What is decided, for another belief to answer.

    Args:
        key: of splits and draws.
        prior: of the decision.
        log, space, objective, initial: of the decision.
        rule: how its policy was chosen.
        baseline: the policy in use.
        policies: name -> policy that would be recommended but for the checks.
        chosen: the one of them that the rule chose; None: all were named.
        slack, confidence, num_draws: of the decision.
    """

    key: PRNGKeyArray
    prior: Prior
    log: Log
    space: StateActionSpace
    objective: Objective
    initial: InitialLike | None
    rule: Rule
    baseline: PolicyLike
    policies: Mapping[str, PolicyLike]
    chosen: str | None
    slack: float
    confidence: float
    num_draws: int

    def gains(self, prior: Prior, log: Log, policies: Mapping[str, PolicyLike]) -> dict[str, Answer]:
        """The gains of policies under a prior after a log."""
        return self.gains_under(infer(self.key, prior, log, space=self.space), policies)

    def gains_under(self, posterior: Fitted, policies: Mapping[str, PolicyLike]) -> dict[str, Answer]:
        """The gains of policies under a posterior."""
        # The baseline beside the policies, in the same draws.
        compared = {"": self.baseline, **policies}
        cells = int(np.prod((*self.space.shape, self.space.n_outcomes)))
        num_draws = min(self.num_draws, max(LEAST_DRAWS, MOST_NUMBERS // cells))
        with stage("policies in common draws"):
            values = policy_values(self.key, posterior, compared, self.objective, self.initial, num_draws)
        gains = {name: values[name].draws - values[""].draws for name in policies}
        worth = Worth.of(posterior, self.key)
        return {name: Answer(gain, worth.of_gain(gain, self.slack)) for name, gain in gains.items()}


def rests_on_prior(basis: ValueBasis | None) -> bool:
    """Whether the prior's share of the rows or the rewards of a value is large enough to ask what it changes.

    Args:
        basis: of the value.
    """
    if basis is None:
        return False
    paid = 0.0 if basis.rewards is None else basis.rewards.share
    return max(basis.prior_share or 0.0, paid) > PRIOR_SHARE


def consequences(
    question: Question, checks: Sequence[str], before: Mapping[str, float]
) -> dict[str, list[Consequence]]:
    """What each failed check changes: name of a policy -> consequences.

    Args:
        question: what is decided.
        checks: that failed; `SHARE`: the prior weighs much; `BY_STEP`: the baseline is the log's, which depends on the
            step.
        before: name -> mean gain under the belief of the decision.
    """
    answers: dict[str, list[Consequence]] = {name: [] for name in question.policies}
    told: dict[str, dict[str, Answer]] = {}
    for check in checks:
        for belief, (ask, confidence) in _beliefs(check, question).items():
            # A belief that several checks point to is inferred once.
            if belief not in told:
                told[belief] = ask()
            for name, (gain, worth) in told[belief].items():
                answers[name].append(Consequence(check, belief, before[name], gain, question.slack, confidence, worth))
    return answers


Ask = Callable[[], dict[str, Answer]]


def _beliefs(check: str, question: Question) -> dict[str, tuple[Ask, float]]:
    """The beliefs that a check points to, in words -> how to ask them, and what P(no worse) must be."""
    if check == CHOSEN:
        return {"chosen by one half of the episodes and judged by the other": (partial(_cross_halves, question), SIGN)}
    asks: dict[str, Ask] = {}
    if check == BY_STEP:
        # The baseline is what is in doubt: it is replaced, not the belief.
        halves = behaviour_in_halves(question.log, np.asarray(question.baseline, np.float64))
        for name, half in zip(("earlier", "later"), halves, strict=True):
            halved = question._replace(baseline=half)
            asks[f"over what the log did at its {name} steps,"] = partial(
                halved.gains, halved.prior, halved.log, halved.policies
            )
        return {words: (ask, question.confidence) for words, ask in asks.items()}
    # The default prior learns its concentration already.
    if not isinstance(question.prior, DefaultPrior):
        asks["with rows whose concentration is learnt"] = lambda: _under(question, 1.0)
    # With listed successors it is known where rows may lead.
    if question.space.successors is None:
        asks["with rows that lead where the log leads"] = lambda: _under(question, _arrivals(question))
    if check in (NEW, WHERE) and _can_pool(question):
        asks["with rows that the actions of a state share"] = lambda: _pooled(question)
    if check == SHARE:
        asks["with rows whose prior weighs one transition"] = lambda: _under(question, None)
    beliefs = {words: (ask, question.confidence) for words, ask in asks.items()}
    if check == RETURNS:
        # Half of the data can be asked for the sign alone.
        for name, half in zip(("earlier", "later"), halves_in_time(question.log), strict=True):
            ask = partial(question.gains, question.prior, half, question.policies)
            beliefs[f"by the {name} half of the episodes alone"] = ask, SIGN
    return beliefs


def _under(question: Question, weights: ArrayLike | None) -> dict[str, Answer]:
    """The gains with rows ~ Dirichlet(c * weights), c learnt, and rewards of the law that the log suggests.

    Without weights the concentration of a row is one, that of an outcome the same for all.
    """
    log, space, rewards = question.log, question.space, _rewards(question)
    if weights is None:
        # The total of a row is one.
        prior = rewards(concentration=1.0 / space.n_outcomes)
    else:
        prior = unknown_concentration(concentrations_of(space), weights=weights, rewards=rewards)
    return question.gains(prior, log, question.policies)


def _rewards(question: Question) -> Callable[..., Prior]:
    """A factory of priors, given the concentration of the rows, with the law of the rewards that the log suggests."""
    if question.log.transitions.reward is not None:
        return reward_law_of(question.log)[0]
    # Rewards as the prior has them on average: the log says nothing of them. How uncertain they are is left out.
    known = infer(question.key, question.prior, None, space=question.space).mean_mdp().reward
    return partial(known_rewards, np.asarray(known))


def _can_pool(question: Question) -> bool:
    """Whether rows can borrow from each other, and do not under the belief of the decision."""
    if isinstance(question.prior, PartialPooling) or question.space.n_actions == 1:
        return False
    try:
        pooled_outcomes(question.space)
    except ValueError:
        return False
    return True


def _pooled(question: Question) -> dict[str, Answer]:
    """The gains where the rows of a state's actions, and the states, are as alike as the log shows (see
    `partial_pooling`)."""
    # One short chain: what is asked for is the interval of a gain, not the law of each row.
    method = Gibbs(num_chains=1, num_warmup=WARM_UP, num_samples=SWEEPS)
    fit = fit_for(partial_pooling(_rewards(question)), question.space, method)
    # In double precision, as `infer`; without its warnings of short chains.
    with jax.enable_x64(True):
        posterior = fit.on_host(question.key, question.log.transitions)
    return question.gains_under(posterior, question.policies)


def _arrivals(question: Question) -> Float[np.ndarray, " O"]:
    """How often each outcome came, as if it had come once more, relative to the mean."""
    outcome = np.asarray(question.log.transitions.with_next_state().outcome(question.space))
    # Once more than observed: no outcome is ruled out.
    arrivals = np.bincount(outcome, minlength=question.space.n_outcomes) + 1.0
    return arrivals / arrivals.mean()


def _cross_halves(question: Question) -> dict[str, Answer]:
    """The gain of the rule: each half of the episodes chooses, the other one judges."""
    if question.chosen is None:
        return {}
    first, second = split_log(question.key, question.log, 0.5)
    answers: list[Answer] = []
    for chooses, judges in ((first, second), (second, first)):
        policy = question.rule(infer(question.key, question.prior, chooses, space=question.space))
        answers.append(question.gains(question.prior, judges, {question.chosen: policy})[question.chosen])
    # The mean of both directions.
    gain = np.mean([answer.gain for answer in answers], axis=0)
    return {question.chosen: Answer(gain, min(answer.worth for answer in answers))}
