"""Posteriors of MDPs in contexts: one ordinary posterior for every pattern of covariates, from one inference.

A program with covariates returns rows [C S A O]. Put side by side the MDPs of all contexts are one MDP whose states are
(context, state), which every route of `infer` serves. What comes out is a `ContextPosterior`: its `at` gives the
ordinary posterior of one context, in which draw i has the same parameters as draw i in every other, so that values add
up draw by draw. Parameters that were drawn say what rows a new pattern has: the program runs again with them.

A ready prior (`dirichlet_normal`, ...) has rows of their own in every context: C separate posteriors, each as exact as
without covariates.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpyro import handlers

from bayes_mdp.inference.detection.degrees import flows_of, union_of
from bayes_mdp.inference.detection.trace import improper_value, trace_program
from bayes_mdp.inference.draws.given_draws import GivenDraws
from bayes_mdp.inference.draws.methods import Gibbs, Laplace, Method
from bayes_mdp.inference.fitted import MEAN_DRAWS, Fitted
from bayes_mdp.inference.integrals.mode_draws import ModeDraws, NoModeError, TracedDensity, draw_about_mode, find_mode
from bayes_mdp.inference.integrals.row_density import MANY, RowDensity, visited_cells
from bayes_mdp.inference.polya_gamma import stick_draws
from bayes_mdp.inference.sampled.recipe import recipe_for, unconstrained_model
from bayes_mdp.inference.sampled.sampled_fit import no_transitions, statistics_on_host
from bayes_mdp.mdp import Counts, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.abilities import mean_in_float64
from bayes_mdp.mdp.contexts import Contexts, ContextSpace, LoggedContexts
from bayes_mdp.mdp.data.transitions import check_log_labels, check_transitions
from bayes_mdp.mdp.space import mdps_of_tables
from bayes_mdp.models.isolate import isolated_prior, traced_alone, tracing
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, RewardTable
from bayes_mdp.models.priors import closed_form_of
from bayes_mdp.models.regressions import RowLaw, row_laws
from bayes_mdp.models.reward_laws import reshape_law, tabulate, unwrap
from bayes_mdp.numerics.array_forms import stack_trees
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.layout import Section, as_html, as_text
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.messages import see, warn_user
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import broadcasts_to, described

if TYPE_CHECKING:
    import pandas as pd

DRAWS = 4000
"""Of a belief in closed form over all contexts together, of which a posterior of one context is made."""
LARGE = 200_000
"""Cells (context, state, action) above which "auto" draws about the mode, where the weights are good."""
FLAT = 1e4
"""Standard deviation of a coefficient from which on its prior is as good as flat."""
AT_ONCE = 2**24
"""Probabilities of draws in contexts that are worked out at once."""

Trace: TypeAlias = dict[str, dict[str, Any]]
"""What NumPyro records of a program."""
Answer = TypeVar("Answer")


@runtime_checkable
class Infer(Protocol):
    """`infer`, for a space without contexts."""

    def __call__(
        self, key: PRNGKeyArray, prior: Prior, data: Any = None, *, space: StateActionSpace, method: str | Method
    ) -> Fitted:
        """The posterior."""
        ...


class ContextDraws(GivenDraws):
    """The posterior of one context by draws, which know how often its pairs were visited.

    Args:
        visits: Float64[*H S A], transitions of the log in this context; along a path in that of each step.
        outcomes: name -> the same rows, whose rewards are that outcome; None: there are none.
    """

    visits: Float[AnyArray, "*H S A"] | None = None
    outcomes: "dict[str, ContextDraws] | None" = None

    def visit_counts(self) -> Float[AnyArray, "*H S A"]:
        """How often every pair was visited in this context; other contexts inform its rows too."""
        return np.zeros(self.space.shape) if self.visits is None else self.visits


class Tables(NamedTuple):
    """Rows and mean rewards of draws in contexts.

    Args:
        rows: Float64[N C S A O].
        reward: Float64[N C S A].
    """

    rows: Float[np.ndarray, "N C S A O"]
    reward: Float[np.ndarray, "N C S A"]


@dataclass(frozen=True, eq=False)
class ContextPosterior:
    """A family of posteriors, one for each context (built by `infer` for a space with contexts).

    Args:
        space: with the contexts.
        program: the prior.
        method: how it was inferred, in one word.
        counts: Float64[C S A O], transitions of the log; None: there are no data.
        sites: {site: [N ...]}, draws of the latent sites, of equal weight; None: the belief is in closed form.
        parts: context -> its posterior, where each context is a belief of its own; None: contexts share parameters.
        together: draws of rows and rewards of all contexts, where the belief is in closed form and shared.
        base: the posterior of all contexts side by side, where there is one.
        laplace: how the draws about the mode were weighted; None: they are others.
        laws: the row laws that the program calls.
        doubts: problems to know of, one sentence each.
        num_chains: behind the draws, one after the other.
        mean_by_outcome: Float64[C S A O], mean reward of every outcome, where no program says it (of a stored one).
        outcomes: name -> posterior of the same contexts whose rewards are that outcome, learnt from the same log.
        worth_each: how many independent draws each draw is worth at most, below 1 where they were picked by weights.
    """

    space: ContextSpace
    program: Prior | None
    method: str
    counts: Float[np.ndarray, "C S A O"] | None = None
    sites: Mapping[str, AnyArray] | None = None
    parts: "Callable[[Contexts], Fitted] | None" = None
    together: Tables | None = None
    base: Fitted | None = None
    laplace: ModeDraws | None = None
    laws: tuple[RowLaw, ...] = ()
    doubts: tuple[str, ...] = ()
    num_chains: int = 1
    mean_by_outcome: Float[np.ndarray, "C S A O"] | None = None
    outcomes: "Mapping[str, ContextPosterior]" = field(default_factory=dict)
    worth_each: float = 1.0
    _kept: dict[int, Any] = field(default_factory=dict, repr=False)

    @property
    def contexts(self) -> Contexts:
        """The patterns of covariates."""
        return self.space.contexts

    @property
    def num_draws(self) -> int | None:
        """N, which all contexts share; None: each context is drawn on its own."""
        if self.together is not None:
            return len(self.together.rows)
        return None if self.sites is None else len(next(iter(self.sites.values())))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """What other posteriors have is missed in one sentence."""
            if name == "update":
                raise AttributeError(
                    "a posterior in contexts has no update: infer again with the rows of both logs in one, or update "
                    f"posterior.at(pattern), where each context is a belief of its own {see('how-to/covariates')}"
                )
            # The ordinary error.
            return object.__getattribute__(self, name)

    def problems(self) -> list[str]:
        """Problems to know of before it is used, one sentence each; empty: none is known."""
        return list(self.doubts)

    def at(self, context: "int | Mapping[str, Hashable] | pd.DataFrame") -> Any:
        """The posterior of one context, or of other contexts.

        Args:
            context: the number of one; a pattern {covariate: value}, of the log or new; or a table of patterns.

        Returns:
            An ordinary posterior of one context, in the space without contexts; of a table a `ContextPosterior` whose
            contexts are its rows.

        Raises:
            ValueError: no such context; a covariate that is missing; a label that the log does not have.
            TypeError: another type.
        """
        if isinstance(context, (int, np.integer)):
            if not -len(self.contexts) <= context < len(self.contexts):
                raise ValueError(f"context is {context}, expected a number below {len(self.contexts)}")
            return self._of(int(context) % len(self.contexts))
        asked_contexts = self.contexts.read(context)
        if isinstance(context, Mapping):
            # A pattern of the log has its own posterior already; a new one runs the program again with the drawn
            # parameters.
            known = self.contexts.place(asked_contexts)
            return self._in_new_contexts(asked_contexts).at(0) if known is None else self._of(known)
        return self._in_new_contexts(asked_contexts)

    def _in_new_contexts(self, contexts: Contexts) -> "ContextPosterior":
        """The family of other contexts: of the log, or new ones where what contexts share says what happens there."""
        space, places = ContextSpace.over(self.space, contexts), _places(contexts, self.contexts)
        known = places >= 0
        # Counts of a new pattern are zero; -1 takes the last row, which the mask throws away.
        counts = None if self.counts is None else np.where(known[:, None, None, None], self.counts[places], 0.0)
        common: dict[str, Any] = {"counts": counts, "laws": self.laws, "doubts": self.doubts}
        common |= {"num_chains": self.num_chains, "worth_each": self.worth_each}
        common["outcomes"] = {name: outcome._in_new_contexts(contexts) for name, outcome in self.outcomes.items()}
        # Three cases, from the most to the least that can be said of a new pattern: separate beliefs (its prior),
        # common parameters (the program runs there), fixed tables (nothing but what they hold).
        if self.parts is not None:
            if not known.all() and self.program is not None:
                warn_user(
                    "rows of each context are a belief of their own, and of a context that the log does not have there "
                    f"is only the prior {see('how-to/covariates')}"
                )
            return ContextPosterior(space, self.program, self.method, parts=self.parts, **common)
        if self.sites is not None and self.program is not None and not self.own_sites:
            return ContextPosterior(space, self.program, self.method, sites=self.sites, **common)
        if not known.all():
            why = "the posterior has no draws of the sites of the program"
            if self.program is None:
                why = "a posterior that was read from a file has no program that could make rows of others"
            elif self.own_sites:
                why = f"site {self.own_sites[0]!r} has a value for each context, which says nothing of others"
            raise ValueError(
                f"the log does not have the context {contexts.label(int(np.argmin(known)))}, expected one that it has: "
                f"{why} {see('how-to/covariates')}"
            )
        # Known patterns alone: draw i stays draw i, so the contexts are taken out of the tables as they are.
        rows, reward = self.tables
        taken = Tables(rows[:, places], reward[:, places])
        return ContextPosterior(space, self.program, self.method, together=taken, **common)

    @cached_property
    def own_sites(self) -> tuple[str, ...]:
        """Drawn sites with a value for each context, which say nothing of a context that the log does not have."""
        if self.sites is None or self.program is None:
            return ()
        number = len(self.contexts)
        # A site that grows with the number of contexts: the program is looked at with one more of them.
        larger_space = ContextSpace.over(self.space, self.contexts.take(np.arange(number + 1) % number))
        return tuple(
            name for name, shape in _site_shapes(self.program, larger_space).items() if shape != self._shape(name)
        )

    def _shape(self, name: str) -> tuple[int, ...] | None:
        assert self.sites is not None
        return np.shape(self.sites[name])[1:] if name in self.sites else None

    def _of(self, place: int) -> Any:
        # Inferred once and remembered: planners ask for the same context many times.
        if place not in self._kept:
            if self.parts is not None:
                self._kept[place] = self.parts(self.contexts.take(np.array([place])))
            else:
                self._kept[place] = self._draws(self.space.alone, place)
        return self._kept[place]

    def _draws(self, space: StateActionSpace, place: int | slice) -> ContextDraws:
        """The draws of one context, or of all of them as the steps of a path."""
        tables = self.tables
        mdps = mdps_of_tables(space, tables.rows[:, place], tables.reward[:, place])
        # Draws of chains have equal weight; those about the mode were resampled by theirs.
        weights = np.full(len(tables.rows), 1.0 / len(tables.rows))
        visits = None if self.counts is None else self.counts[place].sum(-1)
        outcomes = {name: outcome._draws(space, place) for name, outcome in self.paired.items()}
        return ContextDraws(mdps, weights, space, self.num_chains, self.worth_each, visits, outcomes or None)

    @cached_property
    def paired(self) -> "dict[str, ContextPosterior]":
        """The outcomes, with the rows of this posterior: draw i of an outcome belongs to draw i of the rows."""
        if not self.outcomes:
            return {}
        rows, number = self.tables.rows, len(self.tables.rows)
        paired = {}
        for name, outcome in self.outcomes.items():
            num_draws = outcome.num_draws
            assert num_draws is not None  # with_outcomes has looked
            # Evenly spaced where there are more or fewer of them.
            reward = outcome.reward_given(rows, np.arange(number) * num_draws // number)
            paired[name] = ContextPosterior(
                self.space,
                None,
                outcome.method,
                self.counts,
                together=Tables(rows, reward),
                num_chains=self.num_chains,
                worth_each=min(self.worth_each, outcome.worth_each),
            )
        return paired

    def reward_given(
        self, rows: Float[np.ndarray, "N C S A O"], index: Int[np.ndarray, " N"]
    ) -> Float[np.ndarray, "N C S A"]:
        """The mean rewards of some draws, of outcomes that follow by other rows.

        Args:
            rows: by which outcomes follow.
            index: of the draws.
        """
        # Rewards by state and action alone do not care which rows are followed; their tables serve as they are.
        if self.sites is None or self.program is None or not by_outcome(self.program, self.space):
            return self.tables.reward[index]
        sites = {name: np.asarray(x)[index] for name, x in self.sites.items()}
        return tables_of(self.program, self.space, sites, rows).reward

    def with_outcomes(self, outcomes: "Mapping[str, ContextPosterior]") -> "ContextPosterior":
        """The same posterior, with outcomes learnt beside its reward from the same log.

        Rows and rewards share no site, so that they are independent given the log: draw i of an outcome's rewards goes
        with draw i of these rows, whatever rows it was learnt with. Looked for in the data flow of both programs.

        Args:
            outcomes: name -> posterior in the same contexts, whose rewards are that outcome.

        Raises:
            TypeError: one is no posterior in contexts. ValueError: one has other contexts, or belongs to rows of which
                it is not independent.
        """
        for name, outcome in outcomes.items():
            if not isinstance(outcome, ContextPosterior):
                raise TypeError(f"outcomes[{name!r}] is {described(outcome)}, expected a posterior in contexts")
            if outcome.space.shape != self.space.shape or outcome.contexts.labels != self.contexts.labels:
                raise ValueError(f"outcomes[{name!r}] has other contexts or states, expected those of the same log")
            if (outcome.parts is None) != (self.parts is None):
                raise ValueError(
                    f"outcomes[{name!r}] and the reward are not both beliefs of each context, expected both or neither"
                )
        # Separate beliefs stay lazy: outcomes are joined context by context when one is asked for.
        if self.parts is not None:
            return replace(self, parts=_PartsWithOutcomes(self, dict(outcomes)), _kept={})
        # Independence given the log is what lets draw i of the one go with draw i of the other: it is proven, not
        # assumed.
        for name, outcome in {"the reward": self, **outcomes}.items():
            if outcome.program is None:
                raise ValueError(
                    f"{name!r} was read from a file, which holds no program, expected posteriors as infer returns them"
                )
            _refuse_common(name, outcome.program, outcome.space)
        for name, outcome in outcomes.items():
            if outcome.sites is None and outcome.program is not None and by_outcome(outcome.program, outcome.space):
                raise ValueError(
                    f"outcomes[{name!r}] depends on what follows and has no draws of sites, expected method='nuts'"
                )
        return replace(self, outcomes=dict(outcomes), _kept={})

    @cached_property
    def tables(self) -> Tables:
        """Rows and mean rewards of every draw in every context.

        Raises:
            ValueError: contexts are beliefs of their own, without common draws; they would not fit in memory.
        """
        if self.together is not None:
            return self.together
        if self.sites is None or self.program is None:
            raise ValueError("each context is a belief of its own, without common draws, expected at(context)")
        return tables_of(self.program, self.space, self.sites)

    def draw_tables(self, key: PRNGKeyArray, num: int) -> tuple[Tables, Int[np.ndarray, " M"]]:
        """Rows and mean rewards of at most so many draws, as many of each chain, and the places of these draws.

        Args:
            key: of the draws, where each context is a belief of its own.
            num: how many.
        """
        if self.parts is None:
            # As many draws of each chain, evenly spaced within it: R-hat and effective sizes of what follows stay
            # meaningful.
            num_draws, chains = len(self.tables.rows), self.num_chains
            per_chain = min(num_draws // chains, max(1, num // chains))
            within = np.arange(per_chain) * (num_draws // chains) // per_chain
            index = (num_draws // chains * np.arange(chains)[:, None] + within).ravel()
            return Tables(self.tables.rows[index], self.tables.reward[index]), index
        # Separate beliefs: a key for each context, because contexts are independent of each other here.
        with jax.enable_x64(True):
            keys = jax.random.split(key, len(self.contexts))
            drawn = [
                tables_by_context(self.at(c).sample(keys[c], (num,)), self._one) for c in range(len(self.contexts))
            ]
        # Axis 1 is the context.
        rows, reward = (np.concatenate(blocks, 1) for blocks in zip(*drawn, strict=True))
        return Tables(rows, reward), np.arange(num)

    @property
    def _one(self) -> ContextSpace:
        """The space with the first context alone."""
        return ContextSpace.over(self.space, self.contexts.take(np.array([0])))

    def mean_tables(
        self, places: Int[np.ndarray, " n"]
    ) -> tuple[Float[np.ndarray, "n S A O"], Float[np.ndarray, "n S A"]]:
        """The posterior mean of rows and rewards in some contexts.

        Args:
            places: of the contexts.
        """
        if self.parts is None:
            return self.tables.rows[:, places].mean(0), self.tables.reward[:, places].mean(0)
        # Beliefs by context know their means without draws.
        mean_mdps = stack_trees([mean_in_float64(self.at(int(c))) for c in places])
        rows, reward = tables_by_context(mean_mdps, self._one)
        return rows[:, 0], reward[:, 0]

    def outcome_reward(self, places: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n S A O"] | None:
        """The mean reward of every outcome in some contexts; None: rewards do not depend on the outcome.

        Args:
            places: of the contexts.
        """
        if self.mean_by_outcome is not None:
            return self.mean_by_outcome[places]
        if self.parts is not None:
            # A fixed key: the same posterior has the same numbers each time.
            key, parts = jax.random.key(0), [self.at(int(c)) for c in places]
            means = [x.mean_outcome_reward(key) for x in parts]
            return None if means[0] is None else np.stack(means)
        if self.sites is None or self.program is None:
            return None
        mean = outcome_rewards(self.program, self.space, self.sites)
        return None if mean is None else mean[places]

    def along(self, path: "pd.DataFrame") -> Any:
        """The posterior of a subject whose covariates follow a known path: the rows of step h are those of row h.

        Args:
            path: a row for each step, with a column for each covariate.

        Returns:
            An ordinary posterior in a space with a horizon, for `Episodic(H)`, with the outcomes that were learnt
            beside the reward.

        Raises:
            ValueError: as `at`; contexts without common draws.
        """
        # Row h of the path is a context, and its rows become those of step h: an MDP with a horizon as long as the
        # path. All else is as in one context: masks, listed successors, outcomes.
        moved = self._in_new_contexts(self.contexts.read(path))
        return moved._draws(replace(self.space.alone, horizon=len(moved.contexts)), slice(None))

    def coefficients(self, name: str | None = None) -> "pd.DataFrame":
        """The coefficients of a law of rows or rewards on the scale of its columns: mean, sd, and 95 % interval.

        Args:
            name: of the law, where the program calls several: "rows", "hazard".

        Returns:
            A row for each column of the design and each outcome.

        Raises:
            ValueError: the program calls no such law, or was not inferred by draws.
        """
        import pandas as pd

        law = self.law(name)
        draws = self.coefficient_draws(name)
        low, high = np.quantile(draws, (0.025, 0.975), axis=0)
        # Column first, outcome second: the order in which ravel reads [p K].
        index = [(column, outcome) for column in law.design.names for outcome in law.outcomes]
        names = pd.MultiIndex.from_tuples(index, names=["column", "outcome"])
        columns = {"mean": draws.mean(0), "sd": draws.std(0), "low": low, "high": high}
        return pd.DataFrame({key: x.ravel() for key, x in columns.items()}, index=names)

    def coefficient_draws(self, name: str | None = None) -> Float[np.ndarray, "N p K"]:
        """Draws of the coefficients of a row law, on the scale of its columns: those of its linear predictor.

        Args:
            name: of the law.

        Raises:
            ValueError: as `coefficients`.
        """
        law = self.law(name)
        site = law.sites[0]
        if self.sites is None or site not in self.sites:
            raise ValueError(f"the posterior has no draws of {site!r}, expected one by draws, without shrink=")
        draws = np.asarray(self.sites[site], np.float64)
        # Coefficients were drawn for standardised columns; a reader wants them per unit of the column.
        return law.design.on_own_scale(draws) if law.standardised else draws

    def law(self, name: str | None = None) -> RowLaw:
        """The record of a row law of the program.

        Args:
            name: of its sites; None: the only one.

        Raises:
            ValueError: there is none of this name, or there are several.
        """
        fits = [law for law in self.laws if name in (None, law.name)]
        if len(fits) != 1:
            names = ", ".join(repr(law.name) for law in self.laws) or "none"
            raise ValueError(f"name is {name!r}, expected one of the laws of the program: {names}")
        return fits[0]

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """What it is, how it was inferred, and what its contexts share."""
        states, actions = self.space.shape
        shared = "contexts share their parameters" if self.parts is None else "each context is a belief of its own"
        number = "" if self.num_draws is None else f", {self.num_draws} draws"
        parts = [f"method: {self.method}{number}; {shared}"]
        if self.laplace is not None:
            parts.append(
                f"weights: {self.laplace.proposals} draws about the mode, worth {self.laplace.effective:.0f} "
                f"(Pareto k {self.laplace.pareto_k:.2f})"
            )
        parts += [f"{law.name}: {line}" for law in self.laws for line in describe_law(law)]
        parts += [f"outcomes learnt beside the reward: {', '.join(self.outcomes)}"] if self.outcomes else []
        parts += [f"warning: {line}" for line in self.doubts]
        return Section(f"Posterior over {states} states x {actions} actions in {self.contexts}", parts)


def describe_law(law: RowLaw) -> list[str]:
    """What a row law shares, and what its prior hangs on, one line each.

    Args:
        law: its record.
    """
    free = [name for name in ("state", "action") if name not in law.by]
    named = [
        name for name in dict.fromkeys(column.split(" | ")[0] for column in law.design.names) if name != "constant"
    ]
    lines = [
        f"{law.kind}, {law.fixed}: with a prior the rows depend on it"
        if law.possible is not None
        else f"{law.kind} regression"
    ]
    if "state" in free and named:
        lines.append(f"{', '.join(named)}: one coefficient for all states")
    if law.kind == "stick":
        lines.append("sticks are another model than logit_rows, not a sampler of it")
    return lines


def in_contexts(
    infer: Infer,
    key: PRNGKeyArray,
    prior: Prior,
    data: Transitions | Log | Counts | Any | None,
    space: ContextSpace,
    method: str | Method,
) -> ContextPosterior:
    """`infer` in a space with contexts.

    Args:
        infer: that of a space without.
        key: of draws.
        prior: a program of the space, or a ready prior.
        data: a log with the same covariates; None: the prior as a posterior.
        space: with contexts.
        method: as for `infer`; "gibbs" draws `stick_rows` by Polya-Gamma variables, "laplace" about the mode, by
            weights.

    Raises:
        ValueError, TypeError: as `infer`; data without covariates, or with others.
    """
    if (
        isinstance(data, Log)
        and data.outcomes
        and not (closed_form_of(prior) is not None and method in ("auto", "exact"))
    ):
        # The reward first, then each outcome in its place, by the same program.
        # Keys of their own: under one key the errors of reward and outcomes would go up and down together.
        key, *keys = jax.random.split(key, 1 + len(data.outcomes))
        learnt = {
            name: _learn_outcome(name, infer, outcome_key, prior, data, space, method)
            for name, outcome_key in zip(data.outcomes, keys, strict=True)
        }
        return in_contexts(infer, key, prior, replace(data, outcomes={}), space, method).with_outcomes(learnt)
    # From the cheapest route to the most general: closed form, Gibbs on sticks, draws about the mode, all of infer.
    about = _read_data(data, space)
    log = data if isinstance(data, Log) else None
    counts = None if about is None or log is None else space_counts(log, about, space)
    if closed_form_of(prior) is not None and method in ("auto", "exact"):
        return ContextPosterior(space, prior, "exact", counts, parts=_Parts(infer, key, prior, log, about, space))
    seen = look_at(prior, space)
    laws = seen.laws
    # Polya-Gamma augmentation makes the logits of a stick conditionally normal (Polson, Scott and Windle 2013).
    if isinstance(method, Gibbs) or method == "gibbs":
        options = method if isinstance(method, Gibbs) else Gibbs(num_warmup=500, num_samples=1000, num_chains=4)
        sites, doubts = stick_draws(key, _only_law(seen), counts, options)
        common = {"laws": laws, "doubts": tuple(doubts), "num_chains": options.num_chains}
        return ContextPosterior(space, prior, "gibbs", counts, sites, **common)
    if isinstance(method, Laplace) or method == "laplace":
        options = method if isinstance(method, Laplace) else Laplace()
        return _about_the_mode(key, prior, log, about, space, counts, seen, options)
    if method == "auto" and seen.plain and space.n_contexts * np.prod(space.shape) > LARGE:
        # Chains would work out every cell in every step of every trajectory.
        try:
            return _about_the_mode(key, prior, log, about, space, counts, seen, Laplace(), doubtful=False)
        except ValueError:
            pass
    # Under a flat prior a separated outcome sends the chains to infinity: Newton's method finds that out in a second.
    if seen.plain:
        _refuse_no_mode(laws[0], counts)
    # The general way: all contexts side by side are one MDP of C S states, which every route of infer can take.
    wide, program = space.side_by_side, side_by_side(prior, space)
    moved = None if about is None or log is None else about.moved(log.transitions, space.n_states)
    base = infer(key, program, moved, space=wide, method=method)
    doubts = tuple(base.problems())
    # Draws of every site: what the program makes of them in a new context follows.
    if base.drawn_by is not None and not base.drawn_by.rewards_only:
        sites, common = base.site_draws, {"laws": laws, "doubts": doubts, "num_chains": _chains_behind(base)}
        return ContextPosterior(space, prior, base.method, counts, sites, base=base, **common)
    key = jax.random.fold_in(key, 1)
    # A closed form whose sites are known can be drawn from exactly, and the program runs again with these.
    sites = _exact_sites(key, base, prior, space)
    if sites is not None:
        return ContextPosterior(space, prior, base.method, counts, sites, base=base, laws=laws, doubts=doubts)
    # No draws of sites: rows and rewards are drawn themselves, and serve the contexts of the log alone.
    with jax.enable_x64(True):
        mdps = base.sample(key, (DRAWS,))
    # Picks from what the posterior of all contexts holds: weighted draws, perhaps.
    worth_each = min(1.0, base.worth_of_picks() / DRAWS)
    together = tables_by_context(mdps, space)
    common = {"base": base, "laws": laws, "doubts": doubts, "worth_each": worth_each}
    return ContextPosterior(space, prior, base.method, counts, together=together, **common)


def _chains_behind(base: Fitted) -> int:
    """Chains of draws of equal weight, one after the other; 1: there are none, or draws have been chosen by weight."""
    # Draws chosen by weight are no longer in the order of their chains: they count as one chain.
    chains = base.chains
    number = len(next(iter(base.site_draws.values())))
    return chains.num_chains if chains is not None and chains.num_chains * chains.num_samples == number else 1


def _learn_outcome(
    name: str, infer: Infer, key: PRNGKeyArray, prior: Prior, log: Log, space: ContextSpace, method: str | Method
) -> "ContextPosterior":
    """An outcome in the place of the reward, by the same prior."""
    try:
        return in_contexts(infer, key, prior, log.of_outcome(name), space, method)
    except (ValueError, TypeError) as error:
        raise type(error)(
            f"outcome {name!r}, learnt as the reward is: {error} (another prior for it: infer with "
            f"log.of_outcome({name!r}), and posterior.with_outcomes) {see('how-to/covariates')}"
        ) from None


def _exact_sites(
    key: PRNGKeyArray, base: Fitted, prior: Prior, space: ContextSpace
) -> dict[str, Float[np.ndarray, "N ..."]] | None:
    """Independent draws of the sites of one closed form, of which the program makes rows in any context.

    None: it is a mixture, or not every site of the program is among what it draws.
    """
    if base.log_weights is not None:
        return None
    # Zeros: there is one component only, of which every draw is.
    sites = dict(base.draw_laws(key, np.zeros(DRAWS, int)).sites)
    shapes = _site_shapes(prior, space)
    if not shapes or any(name not in sites or np.shape(sites[name])[1:] != shape for name, shape in shapes.items()):
        return None
    return {name: np.asarray(sites[name], np.float64) for name in shapes}


def _about_the_mode(
    key: PRNGKeyArray,
    prior: Prior,
    log: Log | None,
    about: LoggedContexts | None,
    space: ContextSpace,
    counts: Float[np.ndarray, "C S A O"] | None,
    seen: "Seen",
    options: Laplace,
    *,
    doubtful: bool = True,
) -> ContextPosterior:
    """The posterior by weighted draws about the mode; refused too, where doubtful weights are not asked for."""
    # One softmax has its gradient and Hessian in closed form; any other program has them by tracing.
    if seen.plain:
        made, sites = _plain_rows_about_mode(key, seen.laws[0], counts, options.num_samples)
    else:
        moved = None if about is None or log is None else about.moved(log.transitions, space.n_states)
        program = side_by_side(prior, space)
        made, sites = about_mode(key, program, space.side_by_side, moved, options.num_samples, seen.laws)
    problems = tuple(made.problems())
    if problems and not doubtful:
        raise ValueError(problems[0])
    worth_each = min(1.0, made.effective / len(made.points))
    common = {"laplace": made, "laws": seen.laws, "doubts": problems, "worth_each": worth_each}
    return ContextPosterior(space, prior, "laplace", counts, sites, **common)


def _plain_rows_about_mode(
    key: PRNGKeyArray, law: RowLaw, counts: Float[np.ndarray, "C S A O"] | None, num_draws: int
) -> tuple[ModeDraws, dict[str, np.ndarray]]:
    """Draws of the coefficients of one softmax or of sticks, on the cells that the log visited."""
    mean, sd = prior_of_coefficients(law)
    # More proposals than draws, because resampling by weight leaves some of them out.
    density, site = RowDensity(visited_cells(law, counts), mean, sd), law.sites[0]
    per_draw = 4 if density.size <= MANY else 2
    try:
        made = draw_about_mode(host_generator(key), density, np.zeros(mean.size), num_draws, per_draw)
    except NoModeError as error:
        raise ValueError(_runs_away("laplace", error, lambda x: {site: x.reshape(mean.shape)}, (law,))) from None
    return made, {site: made.points.reshape(-1, *mean.shape)}


def prior_of_coefficients(law: RowLaw) -> tuple[Float[np.ndarray, "p K"], Float[np.ndarray, "p K"]]:
    """Means and standard deviations of the coefficients of a law, whose prior is normal or flat (infinite deviations).

    Args:
        law: of a program that is plain.
    """
    assert law.prior is not None
    base, shape = unwrap(law.prior), law.prior.batch_shape
    if not isinstance(base, dist.Normal):
        return np.zeros(shape), np.full(shape, np.inf)
    # An independent Normal for every coefficient, [p columns, K outcomes], broadcast from what the program gave.
    mean, sd = (np.broadcast_to(np.asarray(x, np.float64), shape) for x in (base.loc, base.scale))
    return mean, sd


def _refuse_no_mode(law: RowLaw, counts: Float[np.ndarray, "C S A O"] | None) -> None:
    """Refuse chains under a flat prior, or one as good as flat, where the likelihood has no maximum: they run away.

    Raises:
        ValueError: an outcome that a column separates, or columns that the log cannot tell apart.
    """
    mean, sd = prior_of_coefficients(law)
    if not (sd >= FLAT).any():
        return
    site = law.sites[0]
    try:
        # At the mode the Hessian tells: an eigenvalue of zero is a direction along which the posterior is flat.
        _, _, hessian = find_mode(RowDensity(visited_cells(law, counts), mean, sd), np.zeros(mean.size))
        values, vectors = np.linalg.eigh(hessian)
        if values[0] <= 1e-12 * values[-1]:
            raise NoModeError("the log says nothing of a direction", vectors[:, 0])
    except NoModeError as error:
        raise ValueError(_runs_away("nuts", error, lambda x: {site: x.reshape(mean.shape)}, (law,))) from None


class _Parts:
    """The posteriors of contexts that are beliefs of their own, inferred when they are asked for."""

    def __init__(
        self,
        infer: Infer,
        key: PRNGKeyArray,
        prior: Prior,
        log: Log | None,
        about: LoggedContexts | None,
        space: ContextSpace,
    ) -> None:
        self._infer, self._key, self._prior, self._log, self._about = infer, key, prior, log, about
        self._alone, self._contexts = space.alone, space.contexts
        self(space.contexts.take(np.array([0])))  # arguments that do not fit are refused now

    def __call__(self, one: Contexts) -> Fitted:
        place = _places(one, self._contexts)[0]
        data: Any = None
        if self._log is not None and self._about is not None and place >= 0:
            # Rows of the log in this context only; all of them where it is the only context.
            rows = self._about.index == place
            whole = self._log.transitions
            data = whole if rows.all() else jax.tree.map(lambda x: np.asarray(x)[rows], whole)
            if self._log.outcomes:
                outcomes = {name: np.asarray(x)[rows] for name, x in self._log.outcomes.items()}
                data = replace(self._log, transitions=data, outcomes=outcomes, covariates=None)
            data = data if rows.any() else None
        return self._infer(self._key, self._prior, data, space=self._alone, method="auto")


@dataclass(eq=False)
class _PartsWithOutcomes:
    """Posteriors of contexts that are beliefs of their own, each with outcomes learnt beside its reward."""

    whole: ContextPosterior
    outcomes: dict[str, ContextPosterior]

    def __call__(self, one: Contexts) -> Fitted:
        parts = self.whole.parts
        assert parts is not None
        learnt = {}
        for name, outcome in self.outcomes.items():
            assert outcome.parts is not None  # with_outcomes has looked
            learnt[name] = outcome.parts(one)
        return parts(one).with_outcomes(learnt)


def _places(some: Contexts, among: Contexts) -> np.ndarray:
    """The place of each context among others of the same covariates; -1: it is not there."""
    if some is among:
        return np.arange(len(some))
    number = {label: i for i, label in enumerate(among.labels)}
    return np.array([number.get(label, -1) for label in some.labels])


def _read_data(data: object, space: ContextSpace) -> LoggedContexts | None:
    if data is None:
        return None
    about = contexts_of_log(data, space, "data")
    if not len(about.index):
        raise ValueError("data holds no transitions, expected at least one (or data=None for the prior)")
    return about


def contexts_of_log(log: object, space: ContextSpace, name: str) -> LoggedContexts:
    """The contexts of a log by the numbers of a space, which may have them in another order, and more of them.

    Args:
        log: any object.
        space: with contexts.
        name: of the log, for errors.

    Raises:
        TypeError: a log without covariates, or none. ValueError: other labels or covariates, or a context that the
            space does not have.
    """
    if not isinstance(log, Log) or log.covariates is None:
        log_words = "a Log without covariates" if isinstance(log, Log) else f"a {type(log).__name__}"
        raise TypeError(
            f"{name} is {log_words}, and space has contexts, expected a log that was read with the same covariates= "
            f"{see('how-to/covariates')}"
        )
    about = log.covariates
    if not isinstance(about, LoggedContexts):
        raise TypeError(f"{name}.covariates is a {type(about).__name__}, expected those of read_log")
    check_log_labels(name, log, space)
    if about.contexts.names != space.contexts.names:
        raise ValueError(
            f"{name} has the covariates {', '.join(about.contexts.names)}, expected {', '.join(space.contexts.names)}"
        )
    # The contexts of the log may be numbered differently in the space: by their labels, not their numbers.
    moved = _places(about.contexts, space.contexts)
    unknown = np.flatnonzero((moved < 0) & (about.contexts.transitions > 0))
    if len(unknown):
        raise ValueError(f"{name} has the context {about.contexts.label(unknown[0])}, which the space does not have")
    return LoggedContexts(space.contexts, moved[about.index], about.subject)


def space_counts(log: Log, about: LoggedContexts, space: ContextSpace) -> Float[np.ndarray, "C S A O"]:
    """How often a log has each (context, state, action, outcome): all that a law of rows needs of it.

    Args:
        log: of the space.
        about: its contexts.
        space: with these contexts.
    """
    alone, data = space.alone, log.transitions
    check_transitions(data, alone)
    # The outcomes are those of one context; what was not seen to lead anywhere has a place more.
    full = (space.n_contexts, *space.shape, alone.n_outcomes + (data.next_observed is not None))
    check_memory(
        f"counts of {space.n_contexts} contexts", 16.0 * np.prod(full, dtype=float), "fewer contexts take less"
    )
    state, action = data.cell(alone)
    # One flat number for each (context, state, action, outcome): a single bincount counts the whole log.
    cell = np.ravel_multi_index((about.index, np.asarray(state), np.asarray(action)), full[:-1])
    flat = cell * full[-1] + np.asarray(data.outcome(alone))
    counted = np.bincount(flat, minlength=int(np.prod(full))).reshape(full)
    # The last column holds transitions whose next state was not observed: they tell nothing of rows.
    return counted[..., : alone.n_outcomes].astype(np.float64)


def side_by_side(prior: Prior, space: ContextSpace) -> Prior:
    """A program of a space with contexts as one of all contexts side by side.

    Args:
        prior: its rows are [C S A O] (or broadcast to that), its rewards [S A], [S A O], [C S A], [C S A O], or laws.
        space: with contexts.
    """
    # State (c, s) has the number c S + s: a reshape, no copy of any row.
    states = space.n_contexts * space.n_states

    def program(wide: StateActionSpace) -> MDPSpec:
        del wide
        spec = prior(space)
        rows = rows_in_contexts(spec, space)
        table = rewards_in_contexts(spec, space)
        flat = rows.reshape(states, *rows.shape[2:])
        if table.law is None:
            known = table.known
            assert known is not None
            return MDPSpec(flat, known.reshape(states, *known.shape[2:]))
        # The leading two axes [C S] of the law become one, as those of the rows have.
        law = reshape_law(table.law, (states, *table.law.batch_shape[2:]))
        return MDPSpec(flat, law.to_event(1) if table.by_outcome else law)

    return program


def rows_in_contexts(spec: MDPSpec, space: ContextSpace) -> Float[Array, "C S A O"]:
    """The rows of a program in every context.

    Args:
        spec: what it returned.
        space: with contexts.

    Raises:
        ValueError: another shape. TypeError: no `MDPSpec`.
    """
    if not isinstance(spec, MDPSpec):
        raise TypeError(f"the prior returned a {type(spec).__name__}, expected a MDPSpec(transition_probs, reward)")
    full = (space.n_contexts, *space.shape, space.n_outcomes)
    shape = jnp.shape(spec.transition_probs)
    if not broadcasts_to(shape, full) or shape[-1:] != full[-1:]:
        raise ValueError(
            f"transition_probs has shape {shape}, expected one that broadcasts to {full} (context, state, action, "
            "outcome)"
        )
    return jnp.broadcast_to(jnp.asarray(spec.transition_probs), full)


def rewards_in_contexts(spec: MDPSpec, space: ContextSpace) -> RewardTable:
    """The rewards of a program in every context: a law, or known numbers, [C S A] or [C S A O].

    Args:
        spec: what it returned.
        space: with contexts.

    Raises:
        ValueError: a shape that fits none of these, or two.
    """
    cells = (space.n_contexts, *space.shape)
    reward = spec.reward
    if isinstance(reward, dist.Distribution):
        by_outcome = len(reward.event_shape) == 1
        return RewardTable(tabulate(reward, (*cells, space.n_outcomes) if by_outcome else cells), None, by_outcome)
    shape, alone = jnp.shape(reward), cells[1:]
    by_outcome_too = (*cells, space.n_outcomes)
    # By the number of axes first: a table [S A] is (state, action) whatever the sizes of the contexts are.
    fits = {
        False: len(shape) in (0, 2, 3) and broadcasts_to(shape, cells),
        True: len(shape) in (3, 4) and broadcasts_to(shape, by_outcome_too),
    }
    if fits[False] and fits[True]:
        raise ValueError(
            f"reward has shape {shape}, which fits both (context, state, action) and (state, action, outcome), "
            "expected all axes: (context, state, action, outcome), of size 1 where it does not vary"
        )
    if not (fits[False] or fits[True]):
        raise ValueError(
            f"reward has shape {shape}, expected one that broadcasts to {alone} (state, action), {cells} (context, "
            f"state, action) or {by_outcome_too} (context, state, action, outcome)"
        )
    full = by_outcome_too if fits[True] else cells
    return RewardTable(None, jnp.broadcast_to(jnp.asarray(reward, float), full), fits[True])


@traced_alone
def tables_of(
    program: Prior,
    space: ContextSpace,
    sites: Mapping[str, AnyArray],
    follow: Float[np.ndarray, "N C S A O"] | None = None,
) -> Tables:
    """Rows and mean rewards of a program in every context, at draws of its sites: it runs again with these.

    Args:
        program: of the space.
        space: with contexts, which need not be those of the log.
        sites: {site: [N ...]}.
        follow: by which outcomes follow, where these are other rows than the program's; None: its own.
    """

    def one(values: Mapping[str, Array], block_rows: Array | None) -> tuple[Array, Array]:
        # Sites are replaced by the draws; seed 0 serves only sites that have been substituted all.
        spec: Any = handlers.seed(handlers.substitute(program, data=dict(values)), 0)(space)
        rows, table = rows_in_contexts(spec, space), rewards_in_contexts(spec, space)
        rows = rows if block_rows is None else block_rows
        # E[r | c, s, a] = sum_o p(o) r(o): a mean over outcomes where the reward depends on them.
        return rows, (rows * table.mean).sum(-1) if table.by_outcome else table.mean

    number = len(next(iter(sites.values())))
    # In blocks: a vmap over all draws would hold N C S A O probabilities at once.
    size = max(1, AT_ONCE // int(np.prod((space.n_contexts, *space.shape, space.n_outcomes))))
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    with jax.enable_x64(True):
        for first in range(0, number, size):
            block = {name: jnp.asarray(np.asarray(x)[first : first + size]) for name, x in sites.items()}
            block_rows = None if follow is None else jnp.asarray(follow[first : first + size])
            parts.append(jax.tree.map(np.asarray, jax.vmap(one)(block, block_rows)))
    rows, reward = (np.concatenate(blocks).astype(np.float64) for blocks in zip(*parts, strict=True))
    return Tables(rows, reward)


@traced_alone
def outcome_rewards(
    program: Prior, space: ContextSpace, sites: Mapping[str, AnyArray]
) -> Float[np.ndarray, "C S A O"] | None:
    """The mean over draws of the mean reward of every outcome; None: rewards do not depend on the outcome.

    Args:
        program, space, sites: as of `tables_of`.
    """

    def one(values: Mapping[str, Array]) -> Array:
        spec: Any = handlers.seed(handlers.substitute(program, data=dict(values)), 0)(space)
        # Rewards that do not depend on the outcome give a scalar zero, which is recognised below by its lack of axes.
        table = rewards_in_contexts(spec, space)
        return table.mean if table.by_outcome else jnp.zeros(())

    with jax.enable_x64(True):
        first_draws = {name: jnp.asarray(np.asarray(x)[:MEAN_DRAWS]) for name, x in sites.items()}
        mean = np.asarray(jax.vmap(one)(first_draws)).mean(0)
    return mean if mean.ndim else None


def tables_by_context(mdps: Any, space: ContextSpace) -> Tables:
    """Draws of all contexts side by side, context by context, with the outcomes of the space.

    Args:
        mdps: of `space.side_by_side`, with a leading axis N.
        space: with contexts.
    """
    shape = (len(mdps.reward), space.n_contexts, *space.shape)
    rows = np.asarray(mdps.row_probs, np.float64)
    rows = rows.reshape(*shape, rows.shape[-1])
    # The end is one of the outcomes: it is put back where the MDP keeps it apart.
    if mdps.end_probs is not None:
        end = np.asarray(mdps.end_probs, np.float64).reshape(*shape, 1)
        if space.successors is not None:
            # The place that lists it holds no state.
            rows = np.where(space.successors == space.n_states, end, rows)
        else:
            # Last of all outcomes; side by side they are listed, and its place holds no state.
            rows = np.concatenate([rows[..., : space.n_states], end], -1)
    return Tables(rows, np.asarray(mdps.reward, np.float64).reshape(shape))


def _site_shapes(program: Prior, space: ContextSpace) -> dict[str, tuple[int, ...]]:
    """The shapes of the latent sites of a program in a space with contexts."""

    def shapes(spec: MDPSpec, trace: Trace) -> dict[str, tuple[int, ...]]:
        del spec
        latent = (s for s in trace.values() if s["type"] == "sample" and not s["is_observed"])
        return {site["name"]: jnp.shape(site["value"]) for site in latent}

    return _on_shapes(program, space, shapes)


@traced_alone
def _on_shapes(program: Prior, space: ContextSpace, look: Callable[[MDPSpec, Trace], Answer]) -> Answer:
    """What is seen of what a program returns, and of its trace, by shapes alone: nothing is computed."""
    seeded: Any = handlers.seed(handlers.substitute(program, substitute_fn=improper_value), 0)
    answers: list[Answer] = []

    def run() -> None:
        with handlers.trace() as trace:
            spec = seeded(space)
        answers.append(look(spec, trace))

    with jax.enable_x64(True):
        jax.eval_shape(run)
    return answers[0]


class Seen(NamedTuple):
    """What a program of a space with contexts does, by its shapes alone.

    Args:
        laws: the row laws that it calls.
        other: what it does beside the rows of one law, in words; "": nothing.
    """

    laws: tuple[RowLaw, ...]
    other: str

    @property
    def plain(self) -> bool:
        """Whether it is one softmax, or sticks, with normal or flat coefficients and nothing else."""
        if self.other or len(self.laws) != 1:
            return False
        law = self.laws[0]
        known = law.prior is not None and isinstance(unwrap(law.prior), (dist.Normal, dist.ImproperUniform))
        return law.kind in ("logit", "stick") and known and law.group is None


def by_outcome(program: Prior, space: ContextSpace) -> bool:
    """Whether the rewards of a program depend on what follows.

    Args:
        program: of the space.
        space: with contexts.
    """
    return _on_shapes(program, space, lambda spec, _: rewards_in_contexts(spec, space).by_outcome)


def _refuse_common(name: str, program: Prior, space: ContextSpace) -> None:
    """Refuse a program whose rows and rewards hang together, by a common site or through the prior of one.

    Read from the data flow: sites, factors and observations whose density depends on other sites belong together with
    these.
    """
    with jax.enable_x64(True), tracing():
        flows = flows_of(trace_program(side_by_side(program, space), space.side_by_side))
    together = [union_of(parts) | {site} for site, parts in flows.densities.items()]
    # Close the set of sites behind the rows under "share a density"; a site of the rewards in it is a common one.
    reach = union_of(flows.laws["transition"])
    while any(group & reach and not group <= reach for group in together):
        reach |= frozenset().union(*(group for group in together if group & reach))
    common = sorted(reach & union_of(flows.laws["reward"]))
    if common:
        raise ValueError(
            f"rows and rewards of {name} both depend on site {common[0]!r}, so that an outcome cannot be learnt apart "
            f"from the rows, expected rewards with sites of their own {see('how-to/covariates')}"
        )


def look_at(prior: Prior, space: ContextSpace) -> Seen:
    """The row laws that a program calls, and whether it does more than return the rows of one.

    Args:
        prior: of the space.
        space: with contexts.

    Raises:
        ValueError, TypeError: rows or rewards that do not fit the space.
    """
    with row_laws() as met:
        return _on_shapes(prior, space, lambda spec, trace: _see(tuple(met), spec, trace, space))


def _see(laws: tuple[RowLaw, ...], spec: MDPSpec, trace: Trace, space: ContextSpace) -> Seen:
    rows_in_contexts(spec, space)
    rewards_in_contexts(spec, space)
    allowed = set(laws[0].sites) if laws else set()
    # Sites beside those of the law, or rows that were changed after it, rule out the samplers of one law.
    extra = [name for name, site in trace.items() if site["type"] == "sample" and name not in allowed]
    other = ""
    if len(laws) != 1:
        other = f"calls {len(laws)} laws, expected one"
    elif laws[0].rows is not spec.transition_probs:
        other = f"changes the rows of {laws[0].kind}_rows, expected them as they are"
    elif extra or isinstance(spec.reward, dist.Distribution):
        what = f"site {extra[0]!r}" if extra else "unknown rewards"
        other = f"has {what} too, expected one law of rows and known rewards"
    return Seen(laws, other)


def _only_law(seen: Seen) -> RowLaw:
    laws = seen.laws
    if len(laws) != 1 or laws[0].kind != "stick":
        there = ", ".join(law.kind for law in laws) or "none"
        raise ValueError(
            f"method is 'gibbs', and the laws of the program are: {there}, expected stick_rows alone, whose "
            "posterior Polya-Gamma variables draw; a softmax (logit_rows) is another model: method='nuts'"
        )
    if seen.other:
        raise ValueError(f"method is 'gibbs', and the program {seen.other}")
    return laws[0]


def about_mode(
    key: PRNGKeyArray,
    program: Prior,
    space: StateActionSpace,
    data: Transitions | None,
    num_draws: int,
    laws: tuple[RowLaw, ...] = (),
) -> tuple[ModeDraws, dict[str, np.ndarray]]:
    """Draws of the sites of any program without discrete ones: about the mode of its unconstrained density, by weights.

    Args:
        key: of the draws.
        program: of the space.
        space: without contexts.
        data: of the space; None: there are none.
        num_draws: N.
        laws: row laws of the program, for the name of a column whose coefficient runs away.

    Returns:
        The weighted draws, and {site: [N ...]}.

    Raises:
        ValueError: no mode (an outcome that a column separates), or weights that cannot be relied on.
    """
    # In float64: the Hessian at the mode is factored, and weights are ratios of densities.
    with jax.enable_x64(True):
        recipe = recipe_for(isolated_prior(program), space, Laplace())
        statistics = statistics_on_host(recipe, no_transitions() if data is None else data)
        # Newton steps run on the unconstrained scale, where every site is a vector of reals.
        model = unconstrained_model(recipe)
        if model.held:
            site = next(iter(model.held))
            raise ValueError(f"prior: site {site!r} is discrete, which has no mode to draw about, expected 'nuts'")
        density = TracedDensity(lambda point: -model.place_one(point, {}, statistics)[0])
        try:
            made = draw_about_mode(host_generator(key), density, np.zeros(model.dimension), num_draws)
        except NoModeError as error:
            raise ValueError(_runs_away("laplace", error, model.split, laws)) from None
        # Back to the support of each site, all draws at once.
        sites = model.place(made.points, {}, statistics).values
        return made, {name: sites[name] for name in recipe.latents}


def _runs_away(method: str, error: NoModeError, unravel: Callable, laws: tuple[RowLaw, ...]) -> str:
    """Why there is no mode, with the column whose coefficient has none."""
    text = f"method is {method!r}, and the posterior has no mode: {error}"
    if error.direction is None:
        return f"{text}; expected method='nuts'"
    # The largest entry of the direction in which the density keeps growing names the coefficient at fault.
    moved = {name: np.abs(x) for name, x in unravel(error.direction).items()}
    name = max(moved, key=lambda each: moved[each].max())
    law = next((law for law in laws if law.sites[0] == name), None)
    where = f"site {name!r}"
    if law is not None:
        column, outcome = np.unravel_index(moved[name].argmax(), moved[name].shape)
        where = f"the coefficient of {law.design.names[column]!r} for outcome {law.outcomes[outcome]!r}"
    return (
        f"{text}, in {where}: an outcome that this column separates, or a column that the log cannot tell from others, "
        "needs a proper prior (Normal(0, 2.5))"
    )
