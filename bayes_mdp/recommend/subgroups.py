"""`decide_by_subgroup`: one verdict for each subgroup of a log with covariates, on policies that were named beforehand.

Subgroups are named before the log is seen, and so are the policies: nothing is chosen by the data, so that a verdict is
the posterior's. In each subgroup a policy is recommended if it is no worse than practice with the probability asked
for; where that is not shown, the verdict abstains. For every recommendation the tipping point says how strong an
unrecorded cause of the log's actions would have to be to undo it.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray

from bayes_mdp.decisions.choosing.criteria import Improvement
from bayes_mdp.decisions.confounding import outcomes_of_mdp, tipping_point
from bayes_mdp.decisions.for_whom import (
    counted_practice,
    groups_of,
    policies_for,
    practice,
    read_population,
    shares_within,
    values_in_contexts,
)
from bayes_mdp.decisions.policy_evaluation import (
    AS_DRAWN,
    PolicyValue,
    policy_values,
    read_action_probs,
    start_of_log,
)
from bayes_mdp.inference.context_posterior import ContextPosterior
from bayes_mdp.inference.pair_draws import Worth, central_interval, limit_draws
from bayes_mdp.mdp import Discounted, Episodic, Log, Objective
from bayes_mdp.mdp.abilities import Sizes
from bayes_mdp.mdp.contexts import ContextSpace
from bayes_mdp.recommend.decision import BASELINE, hidden_causes
from bayes_mdp.utils.layout import Section, as_html, as_text
from bayes_mdp.utils.messages import amount, amounts
from bayes_mdp.utils.typing import InitialLike, RealLike
from bayes_mdp.utils.validation import check_bool, check_count, check_number, check_type

if TYPE_CHECKING:
    import pandas as pd

EVERYBODY = "everybody"


@dataclass(frozen=True, eq=False)
class SubgroupVerdict:
    """What is recommended for one subgroup.

    Args:
        pattern: the values of its covariates.
        share: of the population.
        improvements: policy -> its gain over practice, draw by draw.
        tipping: policy -> the factor of unrecorded causes that undoes it; None: not known, or no observation.
        changes: policy -> outcome learnt beside the reward -> Float64[N], what more of it than practice brings.
    """

    pattern: Hashable
    share: float
    improvements: Mapping[str, Improvement]
    tipping: Mapping[str, float | None] = field(default_factory=dict)
    changes: Mapping[str, Mapping[str, Float[np.ndarray, " N"]]] = field(default_factory=dict)

    @property
    def recommended(self) -> str | None:
        """Of the policies that are as sure as was asked for, the one that gains most; None: the verdict abstains."""
        # As sure as was asked for, and better on average.
        sure = [
            name
            for name, improvement in self.improvements.items()
            if improvement.accepted and improvement.gain.mean() > 0
        ]
        return max(sure, key=lambda name: self.improvements[name].gain.mean(), default=None)

    @property
    def lead(self) -> str:
        """The policy to speak of: that which is recommended, else the surest."""
        return self.recommended or max(self.improvements, key=lambda name: self.improvements[name].prob)

    def __str__(self) -> str:
        """One sentence."""
        name = self.lead
        improvement = self.improvements[name]
        gain = improvement.gain
        worth = f"gain {amount(gain.mean())}, 95 % interval {amounts(*central_interval(gain))}"
        sure = f"P(no worse) {improvement.prob:.3f}"
        for outcome, change in self.changes.get(name, {}).items():
            sure += f"; {outcome} {amount(change.mean())} more, 95 % interval {amounts(*central_interval(change))}"
        if self.recommended is None:
            return f"{self.pattern}: abstain; {name!r}: {worth}, {sure}, {improvement.confidence:.3g} was asked for"
        factor = self.tipping.get(name)
        hidden = "" if factor is None else f"; {hidden_causes(factor)}"
        return f"{self.pattern}: {name!r}: {worth}, {sure}{hidden}"


@dataclass(frozen=True, eq=False)
class SubgroupDecision:
    """Verdicts for all subgroups (returned by `decide_by_subgroup`); `print` shows them.

    Args:
        by: the covariates that make the subgroups.
        whole: the verdict on one policy for everybody.
        verdicts: {pattern: verdict}.
        posterior: that judges.
        practice: Float64[C S A], probabilities of the actions of the log.
        differ: how subgroups can differ, in words.
        source, columns, digest, num_transitions: of the log.
        objective: of the values.
        has_baseline: whether a policy in use was given; else practice is what the log did.
    """

    by: tuple[str, ...]
    whole: SubgroupVerdict
    verdicts: Mapping[tuple[Hashable, ...], SubgroupVerdict]
    posterior: ContextPosterior
    practice: Float[np.ndarray, "C S A"]
    differ: str
    source: str
    columns: Mapping[str, Hashable]
    digest: str | None
    num_transitions: int
    objective: Objective
    has_baseline: bool

    def __getitem__(self, pattern: Hashable) -> SubgroupVerdict:
        """The verdict of a subgroup, by its pattern: a tuple of values, or the value where there is one covariate."""
        return self.verdicts[pattern if isinstance(pattern, tuple) else (pattern,)]

    def table(self) -> "pd.DataFrame":
        """A row for each subgroup: `share`, `recommended` (None: abstain), `policy`, `gain`, `prob`, `tipping`.

        Of every outcome learnt beside the reward, `more OUTCOME`: its mean change over practice.
        """
        import pandas as pd

        rows = []
        for key, verdict in self.verdicts.items():
            improvement = verdict.improvements[verdict.lead]
            row: dict[str, Any] = dict(zip(self.by, key, strict=True))
            row |= {"share": verdict.share, "recommended": verdict.recommended, "policy": verdict.lead}
            row |= {"gain": improvement.gain.mean(), "prob": improvement.prob}
            row |= {"tipping": verdict.tipping.get(verdict.lead)}
            changes = verdict.changes.get(verdict.lead, {})
            rows.append(row | {f"more {outcome}": change.mean() for outcome, change in changes.items()})
        return pd.DataFrame(rows)

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """The verdicts, and how subgroups can differ."""
        recommended = sum(verdict.recommended is not None for verdict in self.verdicts.values())
        return Section(
            f"Decision from {self.source} for {len(self.verdicts)} subgroups by {', '.join(self.by)}: a policy is "
            f"recommended for {recommended}",
            [
                *(str(verdict) for verdict in (self.whole, *self.verdicts.values())),
                self.differ,
                *([] if self.has_baseline else [f"practice is what the log did; {AS_DRAWN}"]),
                "each verdict has the probability that was asked for on its own, not all of them together",
            ],
        )


@dataclass(frozen=True)
class SubgroupOptions:
    """Options of `decide_by_subgroup` that seldom change.

    Args:
        baseline: the policy in use; None: what the log did, given the state and `practice_by`, whose frequencies are
            drawn with the values.
        confidence: probability of being no worse than the baseline that is asked for in each subgroup, in (0, 1).
        slack: by how much a value below the baseline's still counts as no worse, in units of the value.
        initial: distribution of the first state; None: that of the log's episodes.
        population: who is in a subgroup, as in `policy_value`.
        num_draws: N, of `policy_value`; no more are used than the posterior has.
        observational: whether those who chose the log's actions may have known more than it holds.
        practice_by: covariates that practice looked at; None: all of them.

    Raises:
        ValueError, TypeError: one sentence about the option at fault.

    Example:
        >>> bm.recommend.SubgroupOptions(practice_by=["frail"]).observational
        True
    """

    baseline: Any = None
    confidence: RealLike = 0.95
    slack: RealLike = 0.0
    initial: InitialLike | None = None
    population: Any = None
    num_draws: int = 4000
    observational: bool = True
    practice_by: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_number("confidence", self.confidence, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")
        check_number("slack", self.slack, lambda x: (x >= 0) & np.isfinite(x), "a number, zero or greater")
        check_count("num_draws", self.num_draws, 64)
        check_bool("observational", self.observational)


def decide_by_subgroup(
    key: PRNGKeyArray,
    posterior: ContextPosterior,
    log: Log,
    objective: Objective,
    policies: Mapping[str, Any],
    subgroups: str | Sequence[str],
    *,
    options: SubgroupOptions = SubgroupOptions(),
) -> SubgroupDecision:
    """One verdict for each subgroup of a log with covariates, on policies that were named beforehand.

    Args:
        key: of the draws.
        posterior: of the log, in contexts (see `infer`).
        log: with covariates.
        objective: of the values.
        policies: name -> policy that was named before anyone saw these data (see `policy_value` for its forms).
        subgroups: "context", or covariates, that were named beforehand too.
        options: the policy in use, confidence, slack, first states, population, draws (see `SubgroupOptions`).

    Raises:
        ValueError, TypeError: as `policy_value`; no policies, or one of the name "baseline"; a posterior without
            contexts.

    Example:
        >>> import pandas as pd
        >>> rows = {"s": "a", "a": ["x", "y"] * 40, "t": "a", "sex": ["f"] * 40 + ["m"] * 40, "id": range(80)}
        >>> rows["r"] = [0.0, 1.0] * 20 + [1.0, 0.0] * 20  # y is better for one half, x for the other
        >>> columns = {"state": "s", "action": "a", "next_state": "t", "reward": "r"}
        >>> log = bm.read_log(pd.DataFrame(rows), **columns, subject="id", covariates=["sex"])
        >>> space = bm.StateActionSpace.from_log(log)
        >>> posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), log, space=space)
        >>> decided = bm.recommend.decide_by_subgroup(
        ...     jax.random.key(1), posterior, log, bm.Episodic(1), {"always y": [1]}, ["sex"]
        ... )
        >>> decided["f"].recommended, decided["m"].recommended
        ('always y', None)
    """
    check_type("log", log, Log, "a Log (see read_log)")
    check_type("options", options, SubgroupOptions, "SubgroupOptions")
    check_type("posterior", posterior, ContextPosterior, "what infer returns in a space with contexts")
    if not policies:
        raise ValueError("policies is empty, expected those to judge, named beforehand: subgroups choose none")
    if BASELINE in policies:
        raise ValueError(f"policies has the name {BASELINE!r}, which the answer uses itself, expected another one")
    space, baseline = posterior.space, options.baseline
    # What the log did in each context.
    logged = practice(log, space, options.practice_by)
    begins = start_of_log(log) if options.initial is None else options.initial
    weights = read_population(posterior, options.population)
    weighted = weights.posterior
    # Another population than the log's has no practice of its own.
    moved = weighted is not posterior
    if moved and baseline is None:
        raise ValueError("population is a table and baseline is None, expected one: practice is of the log")
    if baseline is None:
        baseline = counted_practice(jax.random.fold_in(key, 1), log, space, options.practice_by)
    compared = {BASELINE: baseline, **policies}
    by_context = values_in_contexts(policy_values, key, weighted, compared, objective, begins, options.num_draws)
    # [C, draws]: the gain in every context.
    draws = {name: np.stack([value[name].draws for value in by_context]) for name in compared}
    names, group, patterns = groups_of(weighted.contexts, subgroups)
    verdicts = {}
    # Everybody first, then one subgroup after the other.
    for g, pattern in enumerate([EVERYBODY, *patterns]):
        inside = group == g - 1 if g else np.ones(len(group), bool)
        share = weights.shares[inside]
        # Within the subgroup shares sum to one.
        inner = shares_within(share)
        gains = {n: inner @ (draws[n][inside] - draws[BASELINE][inside]) for n in policies}
        # Draws that contexts share are those of one of them.
        worth = Worth.of(limit_draws(weighted.at(int(np.flatnonzero(inside)[0])), options.num_draws)[0], key)
        slack = float(options.slack)
        improvements = {
            n: Improvement(gain, slack, float(options.confidence), worth=worth.of_gain(gain, slack))
            for n, gain in gains.items()
        }
        changes = {n: _changes(by_context, n, inside, inner) for n in policies}
        verdict = SubgroupVerdict(pattern, float(share.sum()), improvements, changes=changes)
        name = verdict.recommended
        # The tipping point is of observed practice: another baseline, or population, has none.
        if options.observational and name is not None and options.baseline is None and not moved:
            factor = _tipping(posterior, policies[name], logged, objective, begins, inside, inner)
            verdict = replace(verdict, tipping={name: factor})
        verdicts[pattern] = verdict
    whole = verdicts.pop(EVERYBODY)
    return SubgroupDecision(
        names,
        whole,
        verdicts,
        posterior,
        logged,
        _differ(posterior, names),
        log.source,
        dict(log.columns),
        log.digest,
        int(np.size(log.transitions.state)),
        objective,
        options.baseline is not None,
    )


def _changes(
    by_context: Sequence[Mapping[str, PolicyValue]],
    name: str,
    inside: Bool[np.ndarray, " C"],
    inner: Float[np.ndarray, " c"],
) -> dict[str, Float[np.ndarray, " N"]]:
    """What more a policy brings of each outcome than the baseline in a subgroup, in the draws of the values."""
    pairs = [(by_context[c][name].outcomes, by_context[c][BASELINE].outcomes) for c in np.flatnonzero(inside).tolist()]
    return {
        outcome: inner @ np.stack([new[outcome].draws - old[outcome].draws for new, old in pairs])
        for outcome in pairs[0][0]
    }


def _tipping(
    posterior: ContextPosterior,
    policy: Any,
    logged: Float[np.ndarray, "C S A"],
    objective: Objective,
    initial: InitialLike | None,
    inside: np.ndarray,
    inner: Float[np.ndarray, " c"],
) -> float | None:
    """The tipping point of a policy in a subgroup, by the mean rows of its contexts side by side."""
    if not isinstance(objective, Discounted | Episodic):
        return None
    space, places = posterior.space, np.flatnonzero(inside)
    part = ContextSpace.over(space, posterior.contexts.take(places))
    # All contexts of the subgroup as one MDP, nothing leading from one to another.
    joint = part.side_by_side
    rows, reward = posterior.mean_tables(places)
    outcome = posterior.outcome_reward(places)
    reward = reward if outcome is None else (rows * outcome).sum(-1)
    # Uniform, where the log does not say where episodes begin.
    start = space.alone.initial_probs(initial) if initial is not None else np.full(space.n_states, 1 / space.n_states)
    states = joint.n_states
    with jax.enable_x64(True):
        whole = joint.mdp(rows.reshape(states, *rows.shape[2:]), reward.reshape(states, -1))
        policies = policies_for(policy, space, objective)
        sizes = Sizes.of(space.alone)
        probs = [read_action_probs("policy", policies[c], sizes, objective, space.alone) for c in places]
        together = np.concatenate(probs, axis=-2)
        paid = None if outcome is None else outcomes_of_mdp(outcome.reshape(states, *outcome.shape[2:]), joint)
        # Contexts by their share, states by where episodes begin.
        begins = (inner[:, None] * start).ravel()
        taken = logged[places].reshape(states, -1)
        return tipping_point(whole, together, taken, objective, initial=begins, outcome_reward=paid)


def _differ(posterior: ContextPosterior, by: Sequence[str]) -> str:
    """How subgroups can differ: by interactions that the model has, or through it alone."""
    crossed = [law for law in posterior.laws if _has_interaction(law.design.names, by) or "action" in law.by]
    if posterior.laws and not crossed:
        return f"subgroups differ by the model, not by data: no term crosses action with {', '.join(by)}"
    return "subgroups may differ by data: the model has interactions; shrink them (shrink=), or few data decide"


def _has_interaction(names: Sequence[str], by: Sequence[str]) -> bool:
    """Whether a column is a product of an action and one of the covariates."""
    for name in names:
        factors = [factor.split("=")[0] for factor in name.split(" | ")[0].split(":")]
        if "action" in factors and set(factors) & set(by):
            return True
    return False
