# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`compare_policies`: several policies in common draws of the posterior, so that differences are sharp."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import equinox as eqx
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.decisions.outcomes import Outcome, check_outcomes
from bayes_mdp.decisions.policy_evaluation import (
    PolicyValue,
    describe_basis,
    describe_gap,
    describe_law,
    describe_objective,
    describe_outcomes,
    describe_start,
    policy_values,
)
from bayes_mdp.decisions.verdict import (
    ChosenBy,
    Range,
    Verdict,
    check_value_range,
    prob_better,
    shares_of_best,
    verdict_on,
)
from bayes_mdp.inference.pair_draws import summarise_draws
from bayes_mdp.mdp import CanSample, Objective, PolicyLike, PolicyOrLabels
from bayes_mdp.mdp.labels import labels_of, policy_of
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.layout import Section, Table, as_html, as_text
from bayes_mdp.utils.messages import amount, amounts
from bayes_mdp.utils.progress import stage
from bayes_mdp.utils.typing import InitialLike, RealScalar
from bayes_mdp.utils.validation import check_bool, check_type

if TYPE_CHECKING:
    import xarray as xr

    from bayes_mdp.decisions.strategies.cost_effectiveness import StrategyDraws


class PolicyDifference(eqx.Module):
    """Value of one policy minus that of another.

    Args:
        draws: Float64[num_draws], the difference in each draw of the MDP.
        mean, sd: of the draws.
        interval: the central 95 % of the draws.
        prob_better: share of the draws in which the first is better; equal values count one half.
    """

    draws: Float[np.ndarray, " num_draws"]
    mean: float
    sd: float
    interval: tuple[float, float]
    prob_better: float


@dataclass(frozen=True, eq=False)
class Compared:
    """What a comparison was made of.

    Args:
        policies: name -> policy; those by label as arrays.
        posterior: that judges.
        key: of the draws.
    """

    policies: Mapping[str, PolicyLike]
    posterior: CanSample
    key: PRNGKeyArray

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Pickled as None: the program of a prior cannot be."""
        # Values are pickled; what could make them anew is not.
        return type(None), ()


class PolicyComparison(eqx.Module):
    """Policies under one posterior; `print` shows a table, best mean first.

    Args:
        values: name -> `PolicyValue`, draws in common.
        prob_best: name -> share of the draws in which the policy is the best (equal values share a draw). Printed only
            where `verdict.decided`.
        verdict: whether these probabilities may be acted on.
        compared: the policies, the posterior and the key; None: it was not made by `compare_policies`, or pickled.
    """

    values: dict[str, PolicyValue]
    prob_best: dict[str, float]
    verdict: Verdict
    compared: Compared | None = eqx.field(static=True, default=None)

    def difference(self, first: str, second: str) -> PolicyDifference:
        """Value of `first` minus value of `second`, draw by draw.

        Raises:
            ValueError: a name that is none of the policies.
        """
        for argument, name in (("first", first), ("second", second)):
            if name not in self.values:
                raise ValueError(f"{argument} is {name!r}, expected one of {', '.join(map(repr, self.values))}")
        # Common draws: the difference has only the noise that the policies do not share.
        draws = self.values[first].draws - self.values[second].draws
        return PolicyDifference(draws, *summarise_draws(draws), prob_better(draws))

    def net_benefit(
        self, wtp: RealScalar, effect: str = "effect", cost: str = "cost"
    ) -> dict[str, Float[np.ndarray, " num_draws"]]:
        """wtp * effect - cost of every policy, name -> draws in common. Errors: as there.

        Args:
            wtp, effect, cost: as of `PolicyValue.net_benefit`.
        """
        return {name: value.net_benefit(wtp, effect, cost) for name, value in self.values.items()}

    def strategy_draws(self) -> "StrategyDraws":
        """The outcomes of all policies, for `cost_effectiveness`, `acceptability` and the value of information.

        Raises:
            ValueError: no outcomes were asked for.
        """
        values = list(self.values.values())
        outcomes = tuple(values[0].outcomes)
        if not outcomes:
            raise ValueError("there are no outcomes, expected those of VerdictOptions(outcomes=...) for strategies")
        # Outcomes of policies are strategies to those who compare costs and effects.
        draws = [[value.outcomes[name].draws for name in outcomes] for value in values]  # [policy, outcome, draw]
        from bayes_mdp.decisions.strategies.cost_effectiveness import StrategyDraws  # xarray and scipy.stats: a second

        # Draws of chains, or by weights, are worth fewer.
        independent = all(value.outcomes[name].effective is None for value in values for name in outcomes)
        table = np.moveaxis(np.array(draws), -1, 0)
        return StrategyDraws(tuple(self.values), outcomes, table, independent=independent)

    def to_dataset(self) -> "xr.Dataset":
        """`value` [policy, draw] and, where outcomes were asked for, `outcomes` [policy, outcome, draw], labelled."""
        import xarray as xr

        datasets = [value.to_dataset() for value in self.values.values()]
        return xr.concat(datasets, xr.IndexVariable("policy", list(self.values)))

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """The table, the differences to the best, what the answer rests on, and the verdict."""
        # Best mean first; probabilities only where the verdict lets them stand.
        order = sorted(self.values, key=lambda name: -self.values[name].mean)
        best, decided = order[0], self.verdict.decided
        first = self.values[best]
        rows = []
        for name in order:
            value = self.values[name]
            row = (name, amount(value.mean, 6), amount(value.sd, 3), amounts(*value.interval, 6))
            rows.append((*row, f"{self.prob_best[name]:.3f}") if decided else row)
        head = ("policy", "mean", "sd", "95 % interval", *(["P(best)"] if decided else []))
        differences = []
        for name in order[1:]:
            gain = self.difference(best, name)
            # The probability of being better is shown only with a verdict.
            probability = f", P({best} better) {gain.prob_better:.3f}" if decided else ""
            differences.append(
                f"{best} minus {name}: {amount(gain.mean)}, 95 % interval {amounts(*gain.interval)}{probability}"
            )
        notes = [f"{name}, {line}" for name in order for line in describe_outcomes(self.values[name])]
        notes += [f"{name}: {self.values[name].policy}" for name in order if self.values[name].policy]
        # What each value rests on, and its numerical error where that shows.
        for name in order:
            notes += [f"{name}: {line}" for line in describe_basis(self.values[name].basis)]
            notes += [f"{name}: {line}" for line in describe_gap(self.values[name])]
        return Section(
            f"Policies in {len(first.draws)} common draws, {describe_objective(first.objective)}",
            [
                describe_start(first),
                Table(head, rows),
                *differences,
                *notes,
                *describe_law(first.basis),
                self.verdict.layout(),
            ],
        )


@dataclass(frozen=True)
class VerdictOptions:
    """Options of `compare_policies` that seldom change: what its verdict rests on, and what else is summed.

    Args:
        value_range: the lowest and the highest value that any policy can have, if known: there is no verdict if a draw
            lies outside.
        held_out: whether the policies were chosen without the data of this posterior. If not, there is no verdict if a
            policy is optimal in the mean MDP of this posterior.
        outcomes: name -> `Outcome`, as of `ValueOptions`.

    Raises:
        TypeError, ValueError: one sentence about the option at fault.

    Example:
        >>> bm.decisions.VerdictOptions(value_range=(0, 1)).held_out
        False
    """

    value_range: Range | None = None
    held_out: bool = False
    outcomes: Mapping[str, Outcome | CanSample] | None = None

    def __post_init__(self) -> None:
        check_value_range(self.value_range)
        check_bool("held_out", self.held_out)
        check_outcomes(self.outcomes)


@accepts_moved("compare_policies")
def compare_policies(
    key: PRNGKeyArray,
    posterior: CanSample,
    policies: Mapping[str, PolicyOrLabels],
    objective: Objective,
    *,
    initial: InitialLike | None = None,
    num_draws: int = 2000,
    options: VerdictOptions = VerdictOptions(),
) -> PolicyComparison:
    """Which policy is best, and by how much: every policy in the same draws of the posterior. Host-side.

    Args:
        key, posterior, objective, num_draws: see `policy_value`; the draws are those of
            `policy_value` with this key.
        policies: name -> policy, each as in `policy_value`.
        initial: as in `policy_value`; `decide` takes the log by default.
        options: what the verdict rests on: the range of values, whether the policies were fixed beforehand;
            costs and effects to be summed too (see `VerdictOptions`).

    Returns:
        Values of every policy, draw by draw (`.values`); the difference of any two, with the probability that the
        first is better (`.difference("b", "a").prob_better`); a verdict on them.

    Raises:
        ValueError, TypeError: as `policy_value`, with the name of the policy; no policies; a range that is none.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> data = bm.Transitions([0] * 20, [0, 1] * 10, [0.0, 1.0] * 10, [0] * 20)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> policies = {"first": [0], "second": [1]}
        >>> print(bm.compare_policies(jax.random.key(1), posterior, policies, bm.Episodic(1), num_draws=100))
        Policies in 100 common draws, episodes of 1 step
        ...
    """
    check_type("options", options, VerdictOptions, "VerdictOptions")
    policies = read_names(policies)
    if not policies:
        raise ValueError("policies is empty, expected at least one policy by its name")
    with stage("policies in common draws"):
        values = policy_values(key, posterior, policies, objective, initial, num_draws, options.outcomes)
    # Nobody says how the policies were chosen unless the caller does.
    chosen_by: ChosenBy = "other data" if options.held_out else ""
    return comparison_of(values, key, posterior, policies, objective, options.value_range, chosen_by)


def read_names(policies: Mapping[str, PolicyOrLabels]) -> dict[str, PolicyOrLabels]:
    """Policies by their names as text.

    Raises:
        TypeError: no mapping, or a text in place of a policy. ValueError: two names that are written alike.
    """
    check_type("policies", policies, Mapping, "name -> policy")
    for name, policy in policies.items():
        if isinstance(policy, str):
            raise TypeError(
                f"policies[{name!r}] is {policy!r}, expected a policy: policies is name -> policy, and a policy by "
                "label is state -> action"
            )
    # Names become text: they are written into tables and files.
    names = [str(name) for name in policies]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise ValueError(f"policies has two names that are written {twice!r}, expected names that differ as text")
    return dict(zip(names, policies.values(), strict=True))


def comparison_of(
    values: dict[str, PolicyValue],
    key: PRNGKeyArray,
    posterior: CanSample,
    policies: Mapping[str, PolicyOrLabels],
    objective: Objective,
    value_range: Range | None,
    chosen_by: ChosenBy,
) -> PolicyComparison:
    """The comparison of `policy_values`, whose other arguments are as there, with what chose the policies."""
    # Draws side by side [N, D].
    draws = np.stack([value.draws for value in values.values()], axis=-1)
    probs = dict(zip(values, map(float, shares_of_best(draws)), strict=True))
    space = labels_of(posterior)
    # Labels are resolved once, so that the origin is plain arrays.
    origin = Compared({name: policy_of(x, space, objective) for name, x in policies.items()}, posterior, key)
    return PolicyComparison(values, probs, verdict_on(values, value_range, chosen_by), origin)
