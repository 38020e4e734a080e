"""`default_prior`: a prior for a log of which nothing else is known. What a log says about its own scale, it learns.

Rows ~ Dirichlet(c b) with one concentration c for all pairs, which is one of a list of values: a flat prior expects
that every outcome may follow, and most worlds are sparser. The base b is one of three, stated before the data: alike
for all outcomes, or falling with the distance from the state in the order of the states (`near_bases`), as where
something wears, fills or waits. Where the order means nothing, the data show it: a base gets the weight of its
evidence. Given c and b all is conjugate, so that the posterior is a mixture of closed forms. The law of the rewards is
chosen by what the rewards are, and centred at their mean, so that no answer depends on their unit or their zero.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Bool, Float, Int

from bayes_mdp.mdp import FoldedLog, Log, StateActionSpace
from bayes_mdp.mdp.data.folded_log import END, FIRST_STATE, UNKNOWN
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.mdp_spec import MDPSpec, Prior
from bayes_mdp.models.priors import (
    ClosedForm,
    ClosedForms,
    closed_form_of,
    dirichlet_bernoulli,
    dirichlet_normal_gamma,
    dirichlet_poisson,
    ready,
)
from bayes_mdp.utils.messages import amount, count_of
from bayes_mdp.utils.validation import check_name, check_type

RewardLaw = Literal["bernoulli", "poisson", "normal"]
LARGEST, LEAST_TOTAL = 4.0, 0.125
"""Concentrations go from 4 an outcome (rows are nearly alike) to 1/8 a row (nearly every row has one outcome)."""
STEP = 2.0
MOST_NUMBERS, MAX_VALUES = 2**25, 64
"""Concentrations that the mixture may hold (a large space has fewer components), and its components."""
DECAYS = 0.1, 0.5
"""By how much the base of an outcome falls with each place in the order of the states."""
ANYWHERE = 0.1
"""Share of such a base that is alike for all outcomes."""
DEGREES = 2.5
"""Shape of the Gamma prior of a precision: the variance of a pair weighs as five rewards."""
LEAST_NOISE = 1e-6
"""Of the variance of all rewards: what rewards of one pair vary at least, where the log has them all alike."""
WEIGHTS = 0.05, 100.0
"""Least and largest prior weight of a mean reward, in rewards."""
BY_OUTCOME, LEAST_FREE, MOST_CELLS = 0.5, 20, 2**22
"""Rewards depend on the outcome where they vary at most so much less within a pair and outcome than within a pair, by
at least so many degrees of freedom, in a space of at most so many such cells."""
ROUNDING = 1e-12
"""Of the squares of a cell's rewards, within which they are those of 0 and 1."""
POISSON = 0.5, 2.0
"""Counts are Poisson where their variance in a pair is so many times their mean."""


class RewardMoments(NamedTuple):
    """What a log says of its rewards. Variances are nan where the log cannot say.

    Args:
        mean: of the mean rewards of the cells (pairs, or pairs with an outcome) that it has.
        within: pooled variance of the rewards of a cell.
        between: variance of those means.
        overall: variance of all rewards.
        number, total: how many rewards there are, and their sum.
        free: degrees of freedom of `within`.
    """

    mean: float
    within: float
    between: float
    overall: float
    number: int
    total: float
    free: int


@dataclass(eq=False)
class DefaultPrior:
    """A prior program whose numbers come from a log; `print` says which they are.

    Args:
        program: space -> `MDPSpec`.
        concentrations: the values that the concentration of an outcome may have, on average over the outcomes.
        near: how many of the bases fall with the distance.
        rewards: the law of the rewards, in words.
        outcome_priors: name of an outcome of the log -> its own default prior: the same rows, and a law by its numbers.
    """

    program: Prior
    concentrations: tuple[float, ...]
    near: int
    rewards: str
    outcome_priors: "Mapping[str, DefaultPrior]" = field(default_factory=dict)

    def __call__(self, space: StateActionSpace) -> MDPSpec:
        """The program."""
        return self.program(space)

    def __str__(self) -> str:
        """Two lines."""
        low, high = min(self.concentrations), max(self.concentrations)
        near_words = ", and whether outcomes near the state are likelier" if self.near else ""
        return (
            f"rows: Dirichlet, one concentration for all pairs, learnt ({len(self.concentrations)} values from "
            f"{amount(low, 2)} to {amount(high, 2)} for an outcome){near_words}\nrewards: {self.rewards}"
            + "".join(f"\n{name}: {prior.rewards}" for name, prior in self.outcome_priors.items())
        )


def default_prior(
    log: Log | FoldedLog, *, space: StateActionSpace | None = None, rewards: RewardLaw | None = None
) -> DefaultPrior:
    """A prior for a log of which nothing else is known; see the module. Host-side.

    The concentration of the rows is learnt with its uncertainty, and so is whether outcomes near the state, in the
    order of the states, are likelier. Rewards depend on the outcome too where they vary at most half as much within a
    pair and outcome as within a pair. The numbers of the rewards' prior are moments of the log (empirical Bayes): the
    mean reward of a pair is centred at the mean over pairs, and weighs as many rewards as the variance within a pair is
    larger than that between pairs.

    Args:
        log: as a whole, or read in chunks; its labels, and its rewards. How often an outcome follows is not
            used.
        space: of the posterior; None: `StateActionSpace.from_log(log)`.
        rewards: "bernoulli" (0 or 1), "poisson" (counts), "normal" (unknown mean and variance); None: what fits: 0 and
            1 alone are Bernoulli, counts whose variance is near their mean Poisson (not of a folded log, which does not
            keep every reward), all others normal.

    Returns:
        A prior program, as those of `bayes_mdp.models`; its posterior is exact (route "mixture").

    Raises:
        ValueError: a log without rewards; rewards that the named law cannot give.
        TypeError: no log, no space.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": "a", "a": ["x", "y"] * 20, "r": [0.0, 1.0] * 20, "t": "a", "end": True})
        >>> log = bm.read_log(table, state="s", action="a", reward="r", next_state="t", terminated="end")
        >>> print(bm.models.default_prior(log))
        rows: Dirichlet, one concentration for all pairs, learnt (7 values from 0.062 to 4 for an outcome)
        rewards: 0 or 1, Bernoulli; a mean reward is 0.5 beforehand, which weighs as 0.05 rewards
    """
    if not isinstance(log, FoldedLog):
        check_type("log", log, Log, "a Log or a FoldedLog (see read_log)")
    # What of the prior depends on the log: the law of rewards and its numbers.
    space = StateActionSpace.from_log(log) if space is None else space
    check_space(space)
    factory, words = reward_law_of(log, rewards)
    concentrations, bases = concentrations_of(space), near_bases(space)
    # Every concentration with every base: the components of the mixture.
    number, values = len(concentrations), np.asarray(concentrations)
    table = np.stack(np.broadcast_arrays(1.0, *bases))
    components = number * len(table)

    def program(space: StateActionSpace) -> MDPSpec:
        equal: Any = dist.Categorical(probs=np.full(components, 1.0 / components))  # typed as perhaps None by NumPyro
        index: Any = numpyro.sample("concentration_index", equal)
        concentration = jnp.asarray(values)[index % number] * jnp.asarray(table)[index // number]
        return factory(concentration=concentration)(space)

    # Named outcomes have rewards of their own, and so laws of their own.
    outcome_priors = {name: default_prior(log.of_outcome(name), space=space) for name in log.outcomes}
    prior = DefaultPrior(program, concentrations, len(bases), words, outcome_priors)
    # The program in closed form, one for each component, where all of them have one.
    of_bases = [closed_form_of(factory(concentration=base)) for base in (1.0, *bases)]
    forms = tuple(form._replace(scale=c) for form in of_bases if isinstance(form, ClosedForm) for c in concentrations)
    return ready(prior, ClosedForms("concentration_index", forms)) if len(forms) == components else prior


def near_bases(space: StateActionSpace) -> list[Float[np.ndarray, "S 1 O"]]:
    """Concentrations that fall with the distance from the state, of mean one over the outcomes; the end is a neighbour.

    None for one state, for a space that lists successors, and where they, or the mixture, would be too large.

    Args:
        space: of the rows.
    """
    states, outcomes = space.n_states, space.n_outcomes
    number = len(concentrations_of(space)) * (1 + len(DECAYS))
    # Numbers of the whole mixture, not of one row; where rows repeat, of one action.
    held = states * outcomes * (1 + len(DECAYS)) if _repeat(space) else number * math.prod((*space.shape, outcomes))
    if states == 1 or space.successors is not None or number > MAX_VALUES or held > MOST_NUMBERS:
        return []
    distance = np.ones((states, outcomes))
    # Distance of an outcome from the state, in places of the order; the end counts as one.
    distance[:, :states] = np.abs(np.subtract.outer(np.arange(states), np.arange(states)))
    # Geometric in the distance, with a share that is alike for all outcomes; mean one over the outcomes.
    falling = [decay**distance for decay in DECAYS]
    return [
        outcomes * (ANYWHERE / outcomes + (1 - ANYWHERE) * x / x.sum(-1, keepdims=True))[:, None, :] for x in falling
    ]


def reward_law_of(log: Log | FoldedLog, rewards: RewardLaw | None = None) -> tuple[Callable[..., Prior], str]:
    """The law of the rewards: the prior of rows and rewards given a concentration, and the law in words.

    Args:
        log, rewards: as of `default_prior`.

    Raises:
        ValueError: as `default_prior`.
    """
    # The law by what rewards are: 0 and 1, counts near Poisson, or numbers.
    observed = _rewards_of(log)
    moments = _moments(observed, observed.pair)
    folded = isinstance(log, FoldedLog)
    law = _fitting(observed, moments, folded) if rewards is None else rewards
    check_name("rewards", law, get_args(RewardLaw))
    _check_law(law, observed, folded)
    outcomes, pairs = len(log.states) + 1, len(log.states) * len(log.actions)
    if outcomes * pairs <= MOST_CELLS:
        # A reward says nothing of its outcome where that was not observed.
        # Cells: a pair with an outcome.
        known = observed.take(observed.outcome < outcomes)
        by_outcome = _moments(known, known.pair * outcomes + known.outcome)
        # 0/1 at the end of an episode is the outcome's: alone by its pair, it would be uncertain beside it.
        if by_outcome.free >= LEAST_FREE and by_outcome.within < BY_OUTCOME * moments.within:
            factory, words = _reward_law(law, by_outcome)
            # The factory gets the outcomes from here on.
            return partial(factory, rewards_on="outcome"), f"of each outcome, {words}"
    return _reward_law(law, moments)


class Rewards(NamedTuple):
    """The rewards that were observed: one by one, or by cells of a folded log.

    Args:
        number, mean, ss: [M], number, mean and sum of squared deviations of the rewards behind each entry.
        pair: [M], number of the pair.
        outcome: [M], next state, S for the end, S + 1 where it was not observed.
    """

    number: Float[np.ndarray, " M"]
    mean: Float[np.ndarray, " M"]
    ss: Float[np.ndarray, " M"]
    pair: Int[np.ndarray, " M"]
    outcome: Int[np.ndarray, " M"]

    def take(self, chosen: Bool[np.ndarray, " M"]) -> "Rewards":
        """Some of them."""
        return self if chosen.all() else Rewards(*(x[chosen] for x in self))


def _rewards_of(log: Log | FoldedLog) -> Rewards:
    """Those of a log.

    Raises:
        ValueError: there are none.
    """
    has = log.has_rewards if isinstance(log, FoldedLog) else log.transitions.reward is not None
    if not has:
        raise ValueError("log holds no rewards, expected a column of them (read_log(reward=...))")
    if isinstance(log, FoldedLog):
        cells = log.cells
        # States are numbered behind the marks of what is not known and of the end.
        outcome = np.select(
            [cells.where.outcome == UNKNOWN, cells.where.outcome == END],
            [len(log.states) + 1, len(log.states)],
            cells.where.outcome - FIRST_STATE,
        )
        pair = cells.where.state.astype(np.int64) * len(log.actions) + cells.where.action
        rewards = Rewards(cells.reward_count.astype(np.float64), *cells.reward_moments(), pair, outcome)
    else:
        transitions = log.transitions
        # By pair: a reward that was seen counts, whether or not its outcome was.
        weight, reward = transitions.observed_rewards(np.ones(np.shape(transitions.state)), by_outcome=False)
        pair = np.asarray(transitions.state).astype(np.int64) * len(log.actions) + np.asarray(transitions.action)
        outcome, reward = np.asarray(transitions.outcome(len(log.states))), np.asarray(reward, np.float64)
        rewards = Rewards(np.asarray(weight, np.float64), reward, np.zeros(reward.shape), pair, outcome)
    rewards = rewards.take(rewards.number != 0)
    if not len(rewards.number):
        raise ValueError("log holds no reward that was observed, expected some")
    return rewards


def _moments(rewards: Rewards, cell: Int[np.ndarray, " M"]) -> RewardMoments:
    """Of rewards less their mean, whose squares keep their digits."""
    # Weighted means; the centre is taken off first.
    count, total = rewards.number, float(rewards.number.sum())
    centre = float((count * rewards.mean).sum() / total)
    deviation = rewards.mean - centre
    _, cell = np.unique(cell, return_inverse=True)
    number = np.bincount(cell, count)  # of each cell
    # One-way analysis of variance: within cells, and between their means.
    means = np.bincount(cell, count * deviation) / number
    squares = float((rewards.ss + count * (deviation - means[cell]) ** 2).sum())
    # Degrees of freedom within cells, sum (n - 1).
    free = int((number - 1).sum())
    return RewardMoments(
        centre + float(means.mean()),
        squares / free if free else np.nan,
        float(means.var()) if len(means) > 1 else np.nan,
        float((rewards.ss + count * deviation**2).sum() / total),
        int(total),
        float((count * rewards.mean).sum()),
        free,
    )


def _fitting(rewards: Rewards, moments: RewardMoments, folded: bool) -> RewardLaw:
    """The law that rewards like these may have; the evidence of Poisson needs every reward, which folding loses."""
    if _possible("bernoulli", rewards).all():
        return "bernoulli"
    mean = moments.total / moments.number
    # Folding keeps moments: a variance, but no factorials.
    poisson = not folded and _possible("poisson", rewards).all()
    return "poisson" if poisson and POISSON[0] * mean < moments.within < POISSON[1] * mean else "normal"


def _possible(law: str, rewards: Rewards) -> Bool[np.ndarray, " M"]:
    """Which rewards the law can give, as far as their moments show."""
    count, mean, ss = rewards.number, rewards.mean, rewards.ss
    if law == "bernoulli":
        # Of numbers in [0, 1] those of 0 and 1 alone have squares that add up to what they do themselves.
        spread = np.abs(ss - count * mean * (1.0 - mean)) <= ROUNDING * count
        return np.where(count == 1, np.isin(mean, (0.0, 1.0)), (mean >= 0) & (mean <= 1) & spread)
    return (mean >= 0) & (mean == np.round(mean)) if law == "poisson" else np.ones(len(mean), bool)


def _check_law(law: str, rewards: Rewards, folded: bool) -> None:
    """Refuse rewards that the law cannot give.

    Raises:
        ValueError: names the first one; counts of a folded log.
    """
    if law == "poisson" and folded:
        raise ValueError('rewards is "poisson" with a folded log, which does not keep every reward, expected "normal"')
    # A law that gives some reward density zero would refuse the log later, with a worse message.
    possible = _possible(law, rewards)
    if not possible.all():
        first = rewards.mean[np.flatnonzero(~possible)[0]]
        raise ValueError(f'rewards is "{law}", and the log has a reward of {amount(first)}, expected "normal" for it')


def concentrations_of(space: StateActionSpace) -> tuple[float, ...]:
    """The list of values that a concentration may have, geometric; wider steps in a large space of impossible outcomes.

    Args:
        space: of the rows.
    """
    outcomes = space.n_outcomes
    cells = math.prod((*space.shape, outcomes))
    # From LEAST_TOTAL a row to LARGEST an outcome in steps of about STEP.
    # Its logarithm in base STEP is the number of steps.
    ratio = LARGEST * outcomes / LEAST_TOTAL
    number = 1 + math.ceil(math.log(ratio) / math.log(STEP))
    if not _repeat(space):
        number = min(number, max(2, MOST_NUMBERS // cells))
    # Geometric, from small to large.
    return tuple((LARGEST * ratio ** (-np.arange(number)[::-1] / (number - 1))).tolist())


def _repeat(space: StateActionSpace) -> bool:
    """Whether the rows of all actions of a state have the same concentrations, which are then held once."""
    return space.possible is None and space.multiplicity is None


def _reward_law(law: str, moments: RewardMoments) -> tuple[Callable[..., Prior], str]:
    """The factory of the rows and rewards, given a concentration; and the law in words."""
    mean, overall = moments.mean, moments.overall
    if overall == 0:  # all rewards are one number: its size is the only scale there is
        overall = mean**2 if mean else 1.0
    # A log without replicates says nothing of the noise: the variance of all stands for it.
    within = max(overall if np.isnan(moments.within) else moments.within, LEAST_NOISE * overall)
    between = max(overall if np.isnan(moments.between) else moments.between, LEAST_NOISE * overall)
    # By how many rewards a mean reward is known beforehand: noise over spread of the means.
    weight = within / between
    if law == "normal":
        factory = partial(
            dirichlet_normal_gamma,
            loc=mean,
            pseudo_count=weight,
            reward_concentration=DEGREES,
            # The mean of the variance, rate / (concentration - 1), is that within pairs.
            rate=(DEGREES - 1.0) * within,
        )
        kind = "normal, of unknown mean and variance"
    else:
        # With half a reward of each kind beside: off 0 and 1.
        weight, mean = float(np.clip(weight, *WEIGHTS)), (moments.number * mean + 0.5) / (moments.number + 1.0)
        if law == "bernoulli":
            factory = partial(dirichlet_bernoulli, concentration1=weight * mean, concentration0=weight * (1.0 - mean))
            kind = "0 or 1, Bernoulli"
        else:
            factory = partial(dirichlet_poisson, reward_concentration=weight * mean, rate=weight)
            kind = "counts, Poisson"
    return (
        factory,
        f"{kind}; a mean reward is {amount(mean, 3)} beforehand, which weighs as "
        f"{count_of(amount(weight, 2), 'reward')}",
    )
