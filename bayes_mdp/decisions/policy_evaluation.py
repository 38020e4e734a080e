# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`policy_value`: how good a policy is and how sure one may be: it is evaluated in draws of the posterior.

`Start`, first: the distribution of the first state that values are for, and where it is from, in words.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, overload

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from bayes_mdp.decisions.for_whom import ValuesBy, value_for
from bayes_mdp.decisions.host_optima import episodic_values, policy_slopes
from bayes_mdp.decisions.host_values import PolicyPairs, proven, row_faults, used_pairs
from bayes_mdp.decisions.outcomes import (
    LearntReward,
    Outcome,
    OutcomeValue,
    PairReward,
    check_outcomes,
    read_outcome,
)
from bayes_mdp.decisions.value_basis import Unvisited, ValueBasis, value_bases
from bayes_mdp.inference.pair_draws import (
    Drawn,
    HoldsDraws,
    PairDraws,
    PairRows,
    Worth,
    key_of_outcome,
    limit_draws,
    pair_draws,
    summarise_draws,
)
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    CanSample,
    Discounted,
    Episodic,
    FirstExit,
    Log,
    Objective,
    PolicyOrLabels,
    SparseMDP,
    StateActionSpace,
)
from bayes_mdp.mdp.abilities import InContexts, Sizes, learnt_outcomes, require_ability, sizes_of
from bayes_mdp.mdp.data.log_split import first_rows, has_episodes
from bayes_mdp.mdp.labels import (
    CountedPolicy,
    labels_of,
    log_behind,
    log_in_words,
    logged_counts,
    logged_steps,
    policy_of,
)
from bayes_mdp.mdp.objectives import check_fit
from bayes_mdp.planning.policy_arrays import policy_probs
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.layout import Section, as_html, as_text
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.messages import NAMED, amount, amounts, count_of, see
from bayes_mdp.utils.typing import ArrayLike, InitialLike, IntScalar, RealScalar
from bayes_mdp.utils.validation import (
    ROW_SUM_TOLERANCE,
    check_bool,
    check_count,
    check_initial,
    check_key,
    check_name,
    check_number,
    check_type,
    first_index,
)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


class Start(NamedTuple):
    """A distribution of the first state.

    Args:
        probs: Float64[S].
        given: whether someone stated it; if not it is uniform.
        words: where it is from, for a person.
    """

    probs: Float[np.ndarray, " S"]
    given: bool
    words: str


def start_of_log(log: Log) -> Log | None:
    """What `initial` is where a log is at hand and nothing was given: the log, if it has episodes; else uniform (None).

    Args:
        log: as a whole.
    """
    return log if has_episodes(log) else None


def read_start(
    mdp: MDP | SparseMDP | Sizes, initial: InitialLike | None, space: StateActionSpace | None = None
) -> Start:
    """The distribution of the first state: what was given, or that of the drawn MDPs, or uniform.

    Args:
        mdp: a draw, or what has the sizes of one.
        initial: what a caller gave (see `StateActionSpace.initial_probs`); None: nothing.
        space: whose labels are meant; None: there are none, states have numbers.

    Raises:
        TypeError, ValueError: one sentence: as `StateActionSpace.initial_probs`.
    """
    size = mdp.n_states
    # What was given goes before what the drawn MDPs have, and that before a uniform start.
    if initial is None and mdp.initial is None:
        words = f"uniform over the {count_of(size, 'state')} (no initial distribution was given)"
        return Start(np.full(size, 1 / size), False, words)
    if initial is None:
        check_initial(mdp.initial, size)
        probs, source = np.asarray(mdp.initial, np.float64), "the distribution of the drawn MDPs"
    else:
        names = StateActionSpace(size, mdp.n_actions) if space is None else space
        probs = names.initial_probs(initial)
        source = "the given distribution"
        # A log's first states are counts: each episode is one start.
        if isinstance(initial, Log):
            number = len(first_rows(initial.transitions))
            source = f"the first states of the log's {number} episodes" if number > 1 else "the first state of the log"
    # Weights need not add up to one.
    probs = probs / probs.sum()
    return Start(probs, True, f"{source} {_which(probs, space)}")


def _which(probs: Float[np.ndarray, " S"], space: StateActionSpace | None) -> str:
    """The states, where they are few and have names."""
    possible = np.flatnonzero(probs > 0)
    if space is None or len(possible) > NAMED:
        return f"over {len(possible)} of {len(probs)} states"
    names = [str(space.state_names[s]) for s in possible]
    if len(names) == 1:
        return f"(state {names[0]})"
    return f"({', '.join(f'{name} {probs[s]:.3g}' for name, s in zip(names, possible, strict=True))})"


DRAWN_AT_ONCE = 2**24  # numbers of draws that are made at once: 128 MiB
NUMBERS_AT_ONCE = 2**21  # float64 numbers of draws, and of their chains, that are held at once: 16 MiB
COPIES = 8  # of the numbers of a draw that its drawing and planning hold at once


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class LateBasis:
    """One of `value_bases`, which are worked out together when the first of them is asked for.

    A pickled one is worked out before: the posterior, whose program may be any function, is not pickled.

    Args:
        bases: works them out, once.
        index: which one.
    """

    bases: Callable[[], list[ValueBasis | None]]
    index: int

    def found(self) -> ValueBasis | None:
        """The basis."""
        return self.bases()[self.index]

    def __reduce__(self) -> tuple[Callable[..., ValueBasis | None], tuple[ValueBasis | None]]:
        return _itself, (self.found(),)


def _itself(basis: ValueBasis | None) -> ValueBasis | None:
    return basis


def late_bases(
    posterior: CanSample, policies: Float[np.ndarray, "P *H S A"], objective: Objective, start: Float[np.ndarray, " S"]
) -> list[LateBasis]:
    """`value_bases`, worked out when they are looked at: it takes as long as drawing the values of few states."""
    # One computation for all policies of a call, at the first look at any of them.
    bases = cache(partial(value_bases, posterior, policies, objective, start))
    return [LateBasis(bases, index) for index in range(len(policies))]


class PolicyValue(eqx.Module):
    """The value of a policy under a posterior; `print` shows it in words.

    Args:
        draws: Float64[num_draws], the value in each draw of the MDP (AverageReward: the gain).
        mean: of the draws of the value.
        sd: standard deviation of the draws: what the data leave open, not the Monte Carlo error of `mean`.
        interval: the central 95 % of the draws of the value.
        gap: the largest bound on a draw's numerical error that the planner proved (see `PolicyEvaluation`).
        initial: Float64[S], distribution of the first state.
        initial_given: whether it was given; if not it is uniform.
        rests_on: `basis`, or what works it out.
        objective: what was evaluated.
        outcomes: name -> `OutcomeValue` in the same draws, of the outcomes that were asked for.
        start: where `initial` is from, in words; "": not known.
        policy: what the policy is, in words, where it was a log; else "".
        effective: number of independent draws that the mean is worth, a count (chains are autocorrelated, weights
            uneven); None: all.
        by_frequencies: Float64[num_draws], what of `draws` is there because the frequencies of a log are drawn (see
            `BehaviourDraws`); None: the policy is no log.
    """

    draws: Float[np.ndarray, " num_draws"]
    mean: float
    sd: float
    interval: tuple[float, float]
    gap: float
    initial: Float[np.ndarray, " S"]
    initial_given: bool
    rests_on: ValueBasis | LateBasis | None
    objective: Objective
    outcomes: dict[str, OutcomeValue] = eqx.field(default_factory=dict)
    start: str = eqx.field(static=True, default="")
    policy: str = eqx.field(static=True, default="")
    effective: float | None = eqx.field(static=True, default=None)
    by_frequencies: Float[np.ndarray, " num_draws"] | None = None

    @property
    def error(self) -> float:
        """The Monte Carlo standard error of `mean`, in units of the value."""
        # sd / sqrt(n), n the effective number where draws are not independent.
        return self.sd / (len(self.draws) if self.effective is None else self.effective) ** 0.5

    def net_benefit(
        self, wtp: RealScalar, effect: str = "effect", cost: str = "cost"
    ) -> Float[np.ndarray, " num_draws"]:
        """wtp * effect - cost in each draw.

        Args:
            wtp: willingness to pay: what a unit of the effect is worth, in units of the cost.
            effect, cost: names of the outcomes.

        Raises:
            ValueError: `wtp` is negative or not finite; there is no such outcome. TypeError: `wtp` is no number.
        """
        expected = "a finite number, zero or greater"
        check_number("wtp", wtp, lambda x: np.isfinite(x) & (x >= 0), expected)
        if not self.outcomes:
            raise ValueError("there are no outcomes, expected those of ValueOptions(outcomes=...) for a net benefit")
        for argument, name in (("effect", effect), ("cost", cost)):
            check_name(argument, name, self.outcomes)
        # Draw by draw: effect and cost of a draw are of one world.
        return float(wtp) * self.outcomes[effect].draws - self.outcomes[cost].draws

    def to_dataset(self) -> "xr.Dataset":
        """`value` [draw] and, where outcomes were asked for, `outcomes` [outcome, draw], labelled by their names."""
        import xarray as xr

        dataset = xr.Dataset({"value": ("draw", self.draws)}, {"draw": np.arange(len(self.draws))})
        if not self.outcomes:
            return dataset
        stacked = np.stack([outcome.draws for outcome in self.outcomes.values()])
        return dataset.assign(outcomes=(("outcome", "draw"), stacked)).assign_coords(outcome=list(self.outcomes))

    @property
    def basis(self) -> ValueBasis | None:
        """What it rests on (data, prior, own choice); None where the posterior has no data counts, or no mean.

        Worked out when it is first looked at, or printed.
        """
        return self.rests_on.found() if isinstance(self.rests_on, LateBasis) else self.rests_on

    @property
    def unvisited(self) -> Unvisited | None:
        """The pairs that the policy uses and the data never tried; None where the posterior has no data counts."""
        return None if self.basis is None else self.basis.unvisited

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """What `print` and a notebook show of it."""
        low, high = self.interval
        return Section(
            f"Value of the policy, {describe_objective(self.objective)}, {len(self.draws)} draws",
            [
                *([f"policy: {self.policy}"] if self.policy else []),
                f"mean {amount(self.mean, 6)} (Monte Carlo error {amount(self.error, 2)}), sd {amount(self.sd, 3)}, "
                f"95 % interval {amounts(low, high, 6)}",
                *describe_effective(self),
                *describe_outcomes(self),
                describe_start(self),
                *describe_basis(self.basis),
                *describe_law(self.basis),
                *describe_gap(self),
            ],
        )


@dataclass(frozen=True, eq=False)
class ValueOptions:
    """Options of `policy_value` that seldom change.

    Args:
        outcomes: name -> `Outcome`: what else is summed in the same draws of the rows, costs and effects for instance;
            or a posterior whose rewards it is, learnt from the same log. What the posterior has learnt beside its
            reward (`read_log(outcomes=...)`) is summed too, unless one of these has its name.
        population: of a posterior with contexts, who is meant: "log" (None) the subjects of the log at their first row,
            a DataFrame with a row for each person, or Float[C], weights of the contexts (see
            `bayes_mdp.decisions.for_whom`).
        population_uncertainty: whether these weights are uncertain too: Dirichlet(people in each context).

    Raises:
        TypeError, ValueError: one sentence about the option at fault.

    Example:
        >>> bm.decisions.ValueOptions(outcomes={"cost": bm.decisions.Outcome([0.0, 100.0])}).population_uncertainty
        False
    """

    outcomes: Mapping[str, Outcome | CanSample] | None = None
    population: "Literal['log'] | pd.DataFrame | ArrayLike | None" = None
    population_uncertainty: bool = False

    def __post_init__(self) -> None:
        check_outcomes(self.outcomes)
        check_bool("population_uncertainty", self.population_uncertainty)


@overload
def policy_value(
    key: PRNGKeyArray,
    posterior: CanSample | InContexts,
    policy: PolicyOrLabels | Callable[..., Any],
    objective: Objective,
    *,
    by: None = None,
    initial: InitialLike | None = None,
    num_draws: int = 2000,
    options: ValueOptions = ValueOptions(),
) -> PolicyValue: ...
@overload
def policy_value(
    key: PRNGKeyArray,
    posterior: InContexts,
    policy: PolicyOrLabels | Callable[..., Any],
    objective: Objective,
    *,
    by: str | Sequence[str],
    initial: InitialLike | None = None,
    num_draws: int = 2000,
    options: ValueOptions = ValueOptions(),
) -> ValuesBy: ...
@accepts_moved("policy_value")
def policy_value(
    key: PRNGKeyArray,
    posterior: CanSample | InContexts,
    policy: Any,
    objective: Objective,
    *,
    by: str | Sequence[str] | None = None,
    initial: InitialLike | None = None,
    num_draws: int = 2000,
    options: ValueOptions = ValueOptions(),
) -> PolicyValue | ValuesBy:
    """The value of a policy with an interval: its expected return in `num_draws` draws of the posterior. Host-side.

    Only the pairs that the policy takes are drawn. Rows of a posterior that only samples whole MDPs are drawn by JAX.

    Args:
        key: the draws; the same key gives a pair the same draws under every policy. It seeds NumPy's generators (see
            `bayes_mdp.random.host_generator`).
        posterior: anything that can `sample`, or posteriors in contexts (see `infer`). Pairs never visited are
            named if it also has `visit_counts` and `mean_mdp`.
        policy: Int[*H S], Float[*H S A] (action probabilities), a `Policy` object, or by the labels of the posterior's
            space: state -> action, or state -> {action: probability} (see `StateActionSpace.policy`). A log: what it
            did (`behaviour_policy`), by step where the objective is `Episodic` and the space has a horizon, or the
            actions depend on the step; the answer says which. Its action probabilities are then drawn too, to first
            order, since the log shows them only by so many visits (near the least or the largest value that rewards
            allow, the interval may reach beyond it); those of an array count as known. In contexts it may depend on
            these: an array with a first axis of contexts, or a function {covariate: value} -> policy.
        objective: Discounted, Episodic, AverageReward or FirstExit.
        by: of a posterior with contexts: "context", or the covariates that make subgroups, each with a value of its
            own; None: one value, standardised over the population.
        initial: distribution of the first state: [S], a state's label, {label: probability}, or a log (as often as its
            episodes begin in each state); None: that of the drawn MDPs, or else uniform (see `initial_given`).
        num_draws: number of draws, at least 2; of `GivenDraws` no more than there are, each once.
        options: costs and effects to be summed too, the population that a value is for (see `ValueOptions`).

    Returns:
        A `PolicyValue`; with `by` a `ValuesBy`, one for each subgroup.

    Raises:
        ValueError, TypeError: one sentence on the argument that cannot be used; also a value that is infinite in some
            draw (FirstExit with a policy that need not end), a gain that depends on the start or draws that can end
            (AverageReward; see `restart_at_ends`).

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> data = bm.Transitions([0] * 20, [0, 1] * 10, [0.0, 1.0] * 10, [0] * 20)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> value = bm.policy_value(jax.random.key(1), posterior, [1], bm.Episodic(1), num_draws=200)
        >>> bool(abs(value.mean - 11 / 12) < 0.05)  # ten rewards of 1, a uniform prior
        True
    """
    check_type("options", options, ValueOptions, "ValueOptions")
    outcomes, population = options.outcomes, options.population
    if isinstance(posterior, InContexts):
        if outcomes is not None:
            raise ValueError("outcomes is given for a posterior with contexts, expected posterior.at(context)")
        # Contexts have values of their own, which a population then weighs.
        who = (by, population, options.population_uncertainty)
        return value_for(policy_values, key, posterior, policy, objective, initial, num_draws, *who)
    if by is not None or population is not None or options.population_uncertainty:
        raise TypeError(
            f"by or population is given, and the posterior ({type(posterior).__name__}) has no contexts, expected that "
            f"of a log read with covariates= {see('how-to/covariates')}"
        )
    return policy_values(key, posterior, {"policy": policy}, objective, initial, num_draws, outcomes)["policy"]


def policy_values(
    key: PRNGKeyArray,
    posterior: CanSample,
    policies: Mapping[str, PolicyOrLabels],
    objective: Objective,
    initial: InitialLike | None,
    num_draws: int,
    outcomes: Mapping[str, Outcome | CanSample] | None = None,
) -> dict[str, PolicyValue]:
    """`policy_value` of several policies in common draws."""
    require_ability(posterior, CanSample, "policy_value")
    check_key("key", key)
    # What the caller gives goes before what was learnt under the same name.
    outcomes = {**learnt_outcomes(posterior), **(outcomes or {})}
    check_num_draws(num_draws, 16 * max(len(policies), 1) * (1 + len(outcomes)))
    # A posterior of given draws uses each once.
    posterior, num_draws = limit_draws(posterior, num_draws)
    sizes, space = sizes_of(posterior), labels_of(posterior)
    check_fit(objective, sizes.shape)
    start, has_initial, words = read_start(sizes, initial, space)
    tables = [read_action_probs(name, policy, sizes, objective, space) for name, policy in policies.items()]
    # Side by side; one that does not depend on the step is repeated where another does.
    probs = np.stack(np.broadcast_arrays(*tables))
    require_end(sizes.ends, objective)
    # Pairs that some policy takes: of all others nothing is drawn.
    used = used_pairs(probs, sizes.horizon)
    draws = pair_draws(key, posterior, used)
    # The reward under None, then every outcome: one pass over the draws serves all.
    jobs: Jobs = {None: (None, objective)}
    for name, outcome in outcomes.items():
        if isinstance(outcome, Outcome):
            jobs[name] = read_outcome(name, outcome, sizes.shape, sizes.ends, objective)
        else:  # under the same key, so that it draws the same rows
            jobs[name] = LearntReward.of(key, name, limit_draws(outcome, num_draws)[0], used), objective
    # The policy of a log is known by frequencies only: its probabilities are drawn too.
    logs = {name: log for name, policy in policies.items() if (log := log_behind(policy)) is not None}
    behaviours: dict[int, BehaviourDraws] = {}
    for i, (name, policy) in enumerate(policies.items()):
        if isinstance(policy, CountedPolicy):
            behaviours[i] = BehaviourDraws(policy.key, policy.counts)
        elif name in logs:
            counts, _ = logged_counts(logs[name], space, logged_steps(logs[name], space, objective))
            behaviours[i] = BehaviourDraws(key, counts)
    values, gaps, effects = _values_in_draws(
        draws, probs, behaviours, num_draws, jobs, start, list(policies), sizes.in_words
    )
    bases = late_bases(posterior, probs, objective, start)
    worth, results = Worth.of(posterior, key), {}
    # Rewards of a learnt outcome are drawn apart from the rows.
    beside = {
        name: Worth.of(limit_draws(outcome, num_draws)[0], key_of_outcome(key, name))
        for name, outcome in outcomes.items()
        if not isinstance(outcome, Outcome)
    }
    for i, (name, basis) in enumerate(zip(policies, bases, strict=True)):
        outcome_values = {
            outcome: OutcomeValue(
                # Columns of `values` are policies, entries jobs.
                values[j][:, i],
                *summarise_draws(values[j][:, i]),
                float(gaps[j][:, i].max()),
                effective_of(worth, values[j][:, i], beside.get(outcome)),
            )
            for j, outcome in enumerate(jobs)
            if outcome is not None
        }
        values_of_policy = values[0][:, i]
        in_words = log_in_words(logs[name], space, objective) if name in logs else "what the log did"
        results[name] = PolicyValue(
            values_of_policy,
            *summarise_draws(values_of_policy),
            float(gaps[0][:, i].max()),
            start,
            has_initial,
            basis,
            objective,
            outcome_values,
            words,
            f"{in_words}; {AS_DRAWN}" if i in behaviours else "",
            effective_of(worth, values_of_policy),
            effects[:, i] if i in behaviours else None,
        )
    return results


Jobs: TypeAlias = dict[str | None, tuple[PairReward | LearntReward | None, Objective]]
"""Name of an outcome (None: the reward) -> its rewards (None: those of the draws), and how they are summed."""


AS_DRAWN = "its frequencies are drawn as well"


class BehaviourDraws:
    """Draws of the action probabilities behind a log: they are known only from how often each action was taken.

    The likelihood of a log is a product of a factor of the actions and one of what followed, so that the two are
    independent in the posterior too. Each row is Dirichlet with the counts themselves (Rubin 1981, *The Bayesian
    bootstrap*): its mean is the frequency, and an action that was never taken in a state stays so. A row that rests on
    one visit thus counts as known.

    They enter a value to first order, V(f) + dV(f)[b - f] with the frequencies f, a draw b and the derivative in the
    mean of the drawn MDPs, so that its mean is that of the frequencies. V(b) itself would be biased where states were
    left a few times: it has terms like the mean number of visits before an action ends a loop, 1 / b, which has no
    finite mean if that action was taken once; while 1 / f, the number of visits to one such action, is unbiased.

    What is linear in b is not kept in the range that rewards allow, and is not cut off there, which would move the
    mean. Of random play on FrozenLake, worth .014 of at most 1, a tenth of the draws from logs of 10 to 50 episodes lie
    below 0, and the lower end of an interval by up to .3 standard deviations; none from logs of play worth .2 from 50
    episodes on.

    Args:
        key: of the draws of the MDP; these are independent of them.
        counts: how many times each action was taken.
    """

    def __init__(self, key: PRNGKeyArray, counts: Float[np.ndarray, "*H S A"]) -> None:
        # NumPy's generator from the bits of the key, with a word that no other stream uses.
        words = np.asarray(jax.random.key_data(key)).ravel()
        self._generator = np.random.default_rng([*words.tolist(), _BEHAVIOUR])
        # Actions never taken have no gamma: their probability stays zero.
        self._shape, self._taken = counts.shape, np.nonzero(counts)
        self._counts = counts[self._taken]
        # Where the row of each state begins among the positive counts.
        row = np.ravel_multi_index(self._taken[:-1], counts.shape[:-1])
        self._first, self._row = np.unique(row, return_index=True, return_inverse=True)[1:]

    @property
    def numbers(self) -> int:
        """How many there are in a draw."""
        return int(np.prod(self._shape))

    def draw(self, number: int) -> Float[np.ndarray, "N *H S A"]:
        """The next draws; any split of them into blocks gives the same ones."""
        # Rubin's bootstrap: the row is Dirichlet(counts), drawn as gammas over their sum.
        gammas = self._generator.standard_gamma(self._counts, (number, len(self._counts)))
        probs = np.zeros((number, *self._shape))
        probs[:, *self._taken] = gammas / np.add.reduceat(gammas, self._first, axis=-1)[:, self._row]
        return probs


_BEHAVIOUR = 0x6C6F67
"""Keeps these draws apart from others of the same key."""


def _values_in_draws(
    draws: PairDraws,
    policies: Float[np.ndarray, "P *H S A"],
    behaviours: Mapping[int, BehaviourDraws],
    num_draws: int,
    jobs: Jobs,
    start: Float[np.ndarray, " S"],
    names: list[str],
    in_words: str,
) -> tuple[list[Float[np.ndarray, "N P"]], list[Float[np.ndarray, "N P"]], Float[np.ndarray, "N P"]]:
    """Values and error bounds of every policy in every draw, for each of some rewards and objectives, block by block;
    and what of the values of the first is from drawn frequencies.

    Args:
        draws: of the pairs that the policies use.
        policies: action probabilities.
        behaviours: index of a policy -> its draws, where it is what a log did.
        num_draws: how many.
        jobs: name of an outcome (None: the reward of the draws) -> its rewards (None: those of the draws), and the
            objective that they are summed by.
        start: distribution of the first state.
        names: of the policies, for errors.
        in_words: what the belief is, likewise.
    """
    rows = draws.rows
    # All jobs share rows and policy; the reward's objective says whether there are steps.
    objective = jobs[None][1]
    # What a policy takes does not depend on the draw, so that its pairs are looked up once for all of them.
    taken = None if isinstance(objective, Episodic) else [PolicyPairs(rows, policy) for policy in policies]
    numbers = len(rows.pair) + max((pairs.numbers for pairs in taken or ()), default=0)
    numbers += max((behaviour.numbers for behaviour in behaviours.values()), default=0)
    # Refused before anything is drawn, with what could make it smaller.
    check_memory(in_words, 8.0 * COPIES * numbers, "lists of successors take less")
    # So many draws at a time that they and the systems made of them fit into memory. Every policy sees the same draws:
    # a difference between two has none of the noise that they share.
    block = max(1, NUMBERS_AT_ONCE // max(numbers, 1))
    values = [np.empty((num_draws, len(policies))) for _ in jobs]
    gaps = [np.empty((num_draws, len(policies))) for _ in jobs]
    effects, sums = np.zeros((num_draws, len(policies))), _Sums()
    for first, drawn in _drawn(draws, num_draws, block):
        block_draws = slice(first, first + len(drawn.probs))
        # Rows that do not sum to one are reported with the draw in which they were met.
        excess, ends = row_faults(rows, drawn)
        if isinstance(objective, AverageReward):
            require_endless(ends, first)
        horizons = [summed.horizon for _, summed in jobs.values()]
        each_paid = [  # None: the reward of the draws themselves
            None if reward is None else _paid(reward, rows, drawn, horizon)
            for (reward, _), horizon in zip(jobs.values(), horizons, strict=True)
        ]
        for i, policy in enumerate(policies):
            pairs = None if taken is None else taken[i]
            # The chain of a policy in the draws, P_pi and r_pi: outcomes share it, other rewards are other right sides.
            chains = None if pairs is None else pairs.chains(drawn)
            for j, ((_, summed), paid) in enumerate(zip(jobs.values(), each_paid, strict=True)):
                if isinstance(summed, Episodic):
                    # By step: V_H = 0, backwards.
                    steps = (len(drawn.probs), summed.horizon, len(rows.state))
                    by_step = None if paid is None else np.broadcast_to(paid, steps)
                    answer = episodic_values(rows, drawn, policy, summed, by_step)
                else:
                    assert pairs is not None and chains is not None
                    # Stationary: a linear system, with a proven bound on its error.
                    answer = proven(chains if paid is None else pairs.with_reward(chains, paid), summed)
                # J = start . V for each draw.
                values[j][block_draws, i] = answer.at_start(summed, start)
                gaps[j][block_draws, i] = answer.gap
        if behaviours:
            sums.add(drawn, each_paid)
        for j, (outcome, (_, summed)) in enumerate(jobs.items()):
            titles = [name if outcome is None else f"{name}, outcome {outcome!r}" for name in names]
            require_usable(values[j][block_draws], gaps[j][block_draws], excess, titles, summed, first)
    for i, behaviour in behaviours.items():
        gradients = [sums.gradient(j, rows, policies[i], summed, start) for j, (_, summed) in enumerate(jobs.values())]
        require_derivative(gradients, names[i], objective)
        for first in range(0, num_draws, block):
            # b - f for each draw, at every step where values have steps.
            moved = behaviour.draw(min(block, num_draws - first))
            moved = (moved[:, None] if moved.ndim == 3 and isinstance(objective, Episodic) else moved) - policies[i]
            added = [(moved * gradient).reshape(len(moved), -1).sum(-1) for gradient in gradients]
            effects[first : first + block, i] = added[0]
            for of_job, effect in zip(values, added, strict=True):
                of_job[first : first + block, i] += effect
    return values, gaps, effects


class _Sums:
    """The draws added up, of which the means are an MDP: where the derivative of the value of a policy is taken."""

    def __init__(self) -> None:
        self._number = 0
        self._sums: list[np.ndarray] = []

    def add(self, drawn: Drawn, each_paid: Sequence[Float[np.ndarray, "N *H Q"] | None]) -> None:
        """Some draws more.

        Args:
            drawn: rows and rewards.
            each_paid: rewards of the jobs; None: those of the draws.
        """
        arrays = [drawn.probs, *(drawn.reward if paid is None else paid for paid in each_paid)]
        sums = [array.sum(0, np.float64) for array in arrays]
        self._sums = sums if not self._sums else [a + b for a, b in zip(self._sums, sums, strict=True)]
        self._number += len(drawn.probs)

    def gradient(
        self,
        job: int,
        rows: PairRows,
        policy: Float[np.ndarray, "*H S A"],
        objective: Objective,
        start: Float[np.ndarray, " S"],
    ) -> Float[np.ndarray, "*steps S A"]:
        """The derivative of the value by each action probability.

        Args:
            job: whose reward.
            rows, policy, objective, start: of the value.
        """
        probs, paid = self._sums[0] / self._number, self._sums[1 + job] / self._number
        mean, by_step = Drawn(probs[None], (paid[0] if paid.ndim > 1 else paid)[None]), None
        if isinstance(objective, Episodic):
            # Rewards of an outcome may go by step.
            by_step = np.broadcast_to(paid, (1, objective.horizon, len(rows.state)))
        return policy_slopes(rows, mean, policy, objective, start, reward=by_step)[0]


def _drawn(draws: PairDraws, num: int, block: int) -> Iterator[tuple[int, Drawn]]:
    """So many draws in blocks, with the number of the first of each."""
    # Of a large problem sixteen are made at once: each row has a generator of its own, and calls take their time.
    # Whole blocks at a time, so that any block size gives the same draws.
    at_once = max(block, min(16, DRAWN_AT_ONCE // max(len(draws.rows.pair), 1)) // block * block)
    for made in range(0, num, at_once):
        drawn = draws.draw(min(at_once, num - made))
        for first in range(0, len(drawn.probs), block):
            yield made + first, Drawn(*(x[first : first + block] for x in drawn))


def _paid(
    reward: PairReward | LearntReward, rows: PairRows, drawn: Drawn, horizon: int | None
) -> Float[np.ndarray, "N *H Q"]:
    """What the pairs bring of an outcome in some draws."""
    if isinstance(reward, PairReward):
        return reward.of_pairs(rows, drawn.probs, horizon)
    paid = reward.of_pairs(drawn)
    return paid if horizon is None else paid[:, None]


def check_num_draws(num_draws: IntScalar, bytes_each: float = 24) -> None:
    """An integer, 2 or greater, of draws that fit into the memory, at `bytes_each` and the key.

    Raises:
        TypeError, ValueError: one sentence.
    """
    check_count("num_draws", num_draws, 2)
    check_memory(f"num_draws is {num_draws}", float(num_draws) * (bytes_each + 8), "fewer draws take less")


def describe_objective(objective: Objective) -> str:
    """The objective in words."""
    if isinstance(objective, Discounted):
        return f"discount {float(objective.discount):g}"
    if isinstance(objective, Episodic):
        rate = "" if objective.discount == 1 else f", discount {objective.discount:g}"
        return f"episodes of {count_of(objective.horizon, 'step')}{rate}"
    return "reward per step" if isinstance(objective, AverageReward) else "undiscounted until the end"


def describe_value(objective: Objective) -> str:
    """What a value is, in terms of rewards."""
    if isinstance(objective, Discounted):
        return "discounted sum of rewards"
    if isinstance(objective, Episodic):
        return f"{'sum' if objective.discount == 1 else 'discounted sum'} of rewards of an episode"
    return "reward per step" if isinstance(objective, AverageReward) else "sum of rewards until the end"


def describe_unit(objective: Objective) -> str:
    """What a difference of values counts: of one start, or of one step."""
    if isinstance(objective, AverageReward):
        return "per step, in units of the reward"
    start = "a process" if isinstance(objective, Discounted) else "an episode"
    return f"per start of {start}, in units of the value ({describe_value(objective)})"


def effective_of(worth: Worth, values: Float[np.ndarray, " N"], beside: Worth | None = None) -> float | None:
    """`effective` of a value: None, but where the draws are worth fewer independent ones.

    Args:
        worth: of the draws.
        values: one for each draw.
        beside: of what was drawn beside the rows, where that was another belief.
    """
    number = worth.number(values)
    # Two beliefs, two errors: their variances add up, and each counts the picking.
    if beside is not None and not isinstance(beside.belief, HoldsDraws):
        number = 1.0 / (1.0 / number + 1.0 / beside.number(values) - 1.0 / len(values))
    return number if number < len(values) else None


def describe_effective(value: PolicyValue) -> list[str]:
    """A line on draws that are worth fewer independent ones."""
    if value.effective is None:
        return []
    return [f"draws are not independent: the error is that of {value.effective:.0f} that are"]


def describe_start(value: PolicyValue) -> str:
    """Where episodes start, in words."""
    if value.start:
        return f"start: {value.start}"
    if not value.initial_given:
        return f"start: uniform over the {count_of(len(value.initial), 'state')} (no initial distribution was given)"
    return f"start: the given distribution over {int((value.initial > 0).sum())} of {len(value.initial)} states"


def describe_outcomes(value: PolicyValue) -> list[str]:
    """A line for each outcome."""
    lines = []
    for name, outcome in value.outcomes.items():
        low, high = outcome.interval
        lines.append(
            f"{name}: mean {outcome.mean:.6g} (Monte Carlo error {outcome.error:.2g}), "
            f"sd {outcome.sd:.3g}, 95 % interval [{low:.6g}, {high:.6g}]"
        )
        lines.extend(f"{name}: {line}" for line in describe_gap(outcome))
    return lines


def describe_basis(basis: ValueBasis | None) -> list[str]:
    """What the value rests on, in words."""
    if basis is None:
        return ["data: the posterior has no data counts"]
    lines = [f"data: {basis.unvisited}; {basis}"]
    if basis.untried is not None:
        lines.append(f"{basis.untried_share:.2g} of its time in {basis.untried}")
    if basis.own_optimum:
        lines.append(
            "it is the optimum of this posterior's own mean: if the same data chose it, its value is too high wherever "
            "the prior is wrong"
        )
    return lines


def describe_law(basis: ValueBasis | None) -> list[str]:
    """That the reward law reaches beyond all rewards seen (see `wide_law`), once for all policies of a posterior."""
    return [] if basis is None or basis.wide_law is None else [basis.wide_law]


def describe_gap(value: PolicyValue | OutcomeValue) -> list[str]:
    """A line on the numerical error, where it shows in the printed digits and beside the standard deviation."""
    # More than a hundredth of the posterior's own spread, or in the printed digits.
    shows = value.gap > max(0.01 * value.sd, 1e-6 * abs(value.mean))
    return [f"numerical error: up to {value.gap:.2g}"] if shows else []


def read_action_probs(
    name: str,
    policy: PolicyOrLabels,
    mdp: MDP | SparseMDP | Sizes,
    objective: Objective,
    space: StateActionSpace | None = None,
) -> Float[np.ndarray, "*H S A"]:
    """`policy` as action probabilities; `space` has the labels, where there are any; errors name it by `name`.

    Host side, in float64 whatever the caller's precision.
    """
    horizon = objective.horizon
    # Labels, logs and `Policy` objects become one array.
    try:
        with jax.enable_x64(True):
            array = policy_of(policy, space, objective)
            return np.asarray(policy_probs(array, mdp, horizon=horizon), np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def require_end(can_end: bool, objective: Objective) -> None:
    """Refuse MDPs in which no transition ends an episode, where values are sums of rewards until the end."""
    if isinstance(objective, FirstExit) and not can_end:
        raise ValueError(
            "objective is FirstExit, and no transition of the posterior ends an episode (ends=False), expected another "
            "objective, or a space with ends=True (that of a log read with terminated=)"
        )


def require_endless(ends: Float[np.ndarray, " N"], first: int = 0) -> None:
    """Refuse draws that can end, where the objective is the average reward; the first of these is draw `first`."""
    draw = first_index(ends > 0)
    if draw is not None:
        raise ValueError(
            f"posterior gave an MDP with end probability {ends[draw]:.2g} in draw {first + draw[0]}, expected MDPs "
            "that never end (AverageReward): let it draw restart_at_ends(mdp)"
        )


def require_rows(excess: Float[np.ndarray, " N"], first: int = 0) -> None:
    """Refuse rows that do not sum to one; the first of these is draw `first`."""
    bad_rows = first_index(excess > ROW_SUM_TOLERANCE["float32"])
    if bad_rows is not None:
        raise ValueError(
            f"posterior gave a row that is {excess[bad_rows]:.2g} off in draw {first + bad_rows[0]}, expected rows "
            "that sum to 1"
        )


def require_derivative(gradients: Sequence[Float[np.ndarray, "*steps S A"]], name: str, objective: Objective) -> None:
    """Refuse what a log did where the derivative of its value by its frequencies is not known."""
    if not all(np.isfinite(gradient).all() for gradient in gradients):
        # Of an average reward: the time in a state is that of one recurrent class.
        raise ValueError(
            f"{name}: what was done ends in one of several sets of states that it never leaves, so that the derivative "
            "of its value by its frequencies is not known, expected behaviour_policy(...), whose frequencies count as "
            f"known, or another objective than {describe_objective(objective)}"
        )


def require_usable(
    values: np.ndarray,
    gaps: np.ndarray,
    excess: Float[np.ndarray, " N"] | None,
    names: list[str],
    objective: Objective,
    first: int = 0,
) -> None:
    """Refuse rows that do not sum to one, and values that are not finite; the first of these is draw `first`."""
    if excess is not None:
        require_rows(excess, first)
    index = first_index(~np.isfinite(values) | ~np.isfinite(gaps))
    if index is not None:
        # A value that is not finite under FirstExit: the policy may never end.
        draw, policy = index
        expected = "a policy that ends with probability one" if isinstance(objective, FirstExit) else "a finite value"
        if isinstance(objective, AverageReward):
            expected = "one gain, whatever the start"
        raise ValueError(
            f"{names[policy]}: its value in draw {first + draw} is {values[index]:g} with error bound {gaps[index]:g}, "
            f"expected {expected} ({describe_objective(objective)})"
        )
