"""`draw_chains`: Gibbs sampling of what is behind the rows of a `PartialPooling` prior. Host side, float64.

The rows themselves are integrated out. A sweep draws the total and the power of the pairs; how many tables the
transitions of every pair occupy; then, level by level, the concentration of the states, their tables, what is common
to them, and the rows of the states. Totals are drawn with tables integrated out, and these right after them: a draw of
both at once.

Counts n of a Dirichlet row with concentration a m_j at outcome j have, given a number of tables t_j for each outcome,
the density prod_j S(n_j, t_j) (a m_j)^t_j Gamma(a) / Gamma(a + n), S the Stirling numbers: in m it is that of t_j draws
of outcome j, so that a Dirichlet prior of m is conjugate (Teh, Jordan, Beal and Blei 2006).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

from bayes_mdp.models.partial_pooling import LEAST, PartialPooling, PooledOutcomes
from bayes_mdp.utils.progress import bar_of

_TINY = 1e-300


class PairCounts(NamedTuple):
    """Transitions of the pairs whose rows are unknown.

    Args:
        state: [Q], the place of each pair's state among the open ones.
        log_usage: [Q], of the prior.
        total: [Q], transitions of each pair.
        pair, outcome, seen: [E], outcomes that were seen and how often, in the order of the pairs.
    """

    state: Int[np.ndarray, " Q"]
    log_usage: Float[np.ndarray, " Q"]
    total: Float[np.ndarray, " Q"]
    pair: Int[np.ndarray, " E"]
    outcome: Int[np.ndarray, " E"]
    seen: Int[np.ndarray, " E"]


class PooledDraws(NamedTuple):
    """Draws of the chains, [C N ...].

    Args:
        scalars: site -> [C N].
        rows: [C N n O], the rows of the open states; single precision.
        base: [C N n], the prior's part of each of these rows (`_Chain.base`).
    """

    scalars: dict[str, Float[np.ndarray, "C N"]]
    rows: Float[np.ndarray, "C N n O"]
    base: Float[np.ndarray, "C N n"]


class _Level:
    """One level of the rows of the states: m_s ~ Dirichlet(c g), g ~ Dirichlet(1, ..., 1).

    Args:
        rng: random.
        law: mean and standard deviation of log c.
        shape: (n, J), states and alternatives.
        without_own: whether the alternative of a state's own number cannot be seen in that state ("move").

    After a sweep `of_data` has c, the tables of the states, and those of the level.
    """

    def __init__(
        self, rng: np.random.Generator, law: tuple[float, float], shape: tuple[int, int], *, without_own: bool
    ) -> None:
        self.rng, self.law, self.without_own = rng, law, without_own
        self.log_total = 3.0
        self.common = np.full(shape[1], 1.0 / shape[1])
        self.rows = np.broadcast_to(self.common, shape).copy()
        self.of_data = 1.0, np.zeros(shape, np.int64), np.zeros(shape[1])

    def sweep(self, seen: Int[np.ndarray, "n J"]) -> None:
        """New rows, given how often each alternative was drawn from each state's row."""
        rng, common, truly = self.rng, self.common, seen
        state, alternative = np.nonzero(seen)
        counts, draws = seen[state, alternative], seen.sum(1)
        # The alternatives that a state can have; without its own they have less of the total.
        inside = np.maximum(1.0 - common, _TINY) if self.without_own else np.ones(len(seen))
        mean, sd = self.law

        def density(log_total: float) -> float:
            total = np.exp(log_total)
            of_pair = np.maximum(total * common[alternative], _TINY)
            return log_counts_density(of_pair, counts, total * inside, draws) - 0.5 * ((log_total - mean) / sd) ** 2

        # The total without the rows and without tables: beside either it would move in small steps only.
        self.log_total = slice_step(rng, self.log_total, density, 0.5)
        total = np.exp(self.log_total)
        if self.without_own:
            # Draws that were refused because they were the state itself are put back: those that are left out of a
            # sequence of draws have a negative binomial number. The row with its own alternative is then conjugate.
            own_prob = rng.beta(np.maximum(total * common, _TINY), total * inside)
            refused = rng.negative_binomial(np.maximum(draws, 1), np.clip(1.0 - own_prob, 1e-12, 1.0))
            seen = seen + np.diag(np.where(draws > 0, refused, 0))
            state, alternative = np.nonzero(seen)
        tables = table_numbers(rng, seen[state, alternative], np.maximum(total * common[alternative], _TINY))
        self.common = _dirichlet(rng, 1.0 + np.bincount(alternative, tables, seen.shape[1]))
        self.rows = _dirichlet(rng, total * self.common + seen)
        # Draws that were put back are no data: their tables do not count.
        tables = np.where(truly[state, alternative] > 0, tables, 0)
        self.of_data = float(total), truly, np.bincount(alternative, tables, seen.shape[1]).astype(float)

    def by_data(self) -> Float[np.ndarray, "n J"]:
        """The part of each row's mean that data have put there, alternative by alternative.

        Given the tables t_sj of the states (`seen`) and those of the level, u_j, the mean of g_j is (1 + u_j) / (J + u)
        and that of m_sj is (c g_j + t_sj) / (c + t_s): a mean of counts and of the base 1 / J, linear in both. Without
        the base it is (c u_j / (J + u) + t_sj) / (c + t_s); what is missing to one is c / (c + t_s) J / (J + u).
        """
        total, seen, tables = self.of_data
        scale = total / (len(tables) + tables.sum())
        parts, whole = scale * tables + seen, np.full(len(seen), total)
        if self.without_own:
            # The row without its own alternative, normalised: the concentration of the others is what is left of c.
            parts[np.arange(len(seen)), np.arange(len(seen))] = 0.0
            whole = total - scale * (1.0 + tables)
        return parts / (whole + seen.sum(1))[:, None]


class _Chain:
    """The state of one chain."""

    def __init__(
        self, rng: np.random.Generator, prior: PartialPooling, groups: PooledOutcomes, data: PairCounts, outcomes: int
    ) -> None:
        self.rng, self.prior, self.groups, self.data = rng, prior, groups, data
        number = len(groups.open)
        law = _normal(prior.state_concentration)
        self.levels = {
            name: _Level(rng, law, (number, size), without_own=name == "move") for name, size in groups.levels.items()
        }
        self.total_law, self.power_law = _normal(prior.concentration), _normal(prior.usage_power)
        self.log_total, self.power = self.total_law[0], 0.0 if prior.usage is None else self.power_law[0]
        # Mean log usage of what tells of the totals: pairs count by the outcomes that were seen there.
        weight = np.bincount(data.pair, minlength=len(data.state)).astype(float)
        self.middle = float(weight @ data.log_usage / max(weight.sum(), 1.0))
        self.outcomes = outcomes
        # Where the chain starts: rows of the states as if every transition had been drawn from them.
        tables = np.zeros((number, outcomes), np.int64)
        np.add.at(tables, (data.state[data.pair], data.outcome), data.seen)
        self._draw_levels(tables)

    def sweep(self) -> None:
        """One pass over everything."""
        data = self.data
        of_state = self.rows[data.state[data.pair], data.outcome]

        def density(log_total: float, power: float) -> float:
            """Of the counts of all pairs, given the rows of the states."""
            total = np.exp(log_total + power * data.log_usage)
            return log_counts_density(total[data.pair] * of_state, data.seen, total, data.total)

        def prior(x: float, law: tuple[float, float]) -> float:
            return -0.5 * ((x - law[0]) / law[1]) ** 2

        position, power = self.log_total, self.power
        position = slice_step(self.rng, position, lambda x: density(x, power) + prior(x, self.total_law), 0.3)
        if self.prior.usage is not None:
            # Along the line on which the totals of pairs of middling usage stay as they are: log totals are a line in
            # the two numbers, and with usage far from its mean they would be hard to tell apart.
            start, middle = power, self.middle

            def along(x: float) -> float:
                moved = position - (x - start) * middle
                return density(moved, x) + prior(moved, self.total_law) + prior(x, self.power_law)

            power = slice_step(self.rng, start, along, 0.15)
            position -= (power - start) * middle
        self.log_total, self.power = position, power
        pair_total = np.exp(self.log_total + self.power * data.log_usage)[data.pair] * of_state
        tables = table_numbers(self.rng, data.seen, np.maximum(pair_total, _TINY))
        seen = np.zeros((len(self.groups.open), self.outcomes), np.int64)
        np.add.at(seen, (data.state[data.pair], data.outcome), tables)
        self._draw_levels(seen)

    def _draw_levels(self, seen: Int[np.ndarray, "n O"]) -> None:
        """New rows of the states, given the outcomes that were drawn from them."""
        opened, closed = self.groups.open, self.groups.closed
        numbers = np.arange(len(opened))
        # The outcomes as decisions of the tree: end or not, which end, stay or move, where to.
        left, moved = seen[:, closed], seen[:, opened]
        # The diagonal of the open states is what stayed; without it, what moved.
        stayed = moved[numbers, numbers].copy()
        moved[numbers, numbers] = 0
        counts = {
            "end": np.stack([left.sum(1), stayed + moved.sum(1)], 1),
            "which": left,
            "stay": np.stack([stayed, moved.sum(1)], 1),
            "move": moved,
        }
        for name, level in self.levels.items():
            level.sweep(counts[name])
        self.rows = self._rows()

    def _rows(self) -> Float[np.ndarray, "n O"]:
        """`state_rows` of the open states, in numpy."""
        opened, closed, number = self.groups.open, self.groups.closed, len(self.groups.open)
        numbers, rows = np.arange(number), np.zeros((number, self.outcomes))
        ends = self.levels["end"].rows[:, 0] if "end" in self.levels else np.zeros(number)
        move, stay = self.levels["move"].rows.copy(), self.levels["stay"].rows
        move[numbers, numbers] = 0.0
        move *= ((1.0 - ends) * stay[:, 1] / np.maximum(move.sum(1), _TINY))[:, None]
        move[numbers, numbers] = (1.0 - ends) * stay[:, 0]
        rows[:, opened] = move
        if len(closed):
            shares = self.levels["which"].rows if "which" in self.levels else np.ones((number, 1))
            rows[:, closed] = ends[:, None] * shares
        return np.maximum(rows, LEAST)

    def base(self) -> Float[np.ndarray, " n"]:
        """The prior's part of the row of each open state: what no data at any of its levels has put there.

        A new outcome is drawn level by level, at each from the data or from the base; the means of the levels multiply,
        as they are independent given tables. The product of the parts by data is the probability that every level of
        the outcome is drawn from the data; the rest counts as the prior's, also where one level alone is the base's.
        """
        numbers = np.ones(len(self.groups.open))
        by_level = {name: level.by_data() for name, level in self.levels.items()}
        shares = by_level["which"].sum(1) if "which" in by_level else numbers
        # With two open states there is one place to move to, and nothing to learn.
        move = by_level["move"].sum(1) if len(numbers) > 2 else numbers
        inside = by_level["stay"][:, 0] + by_level["stay"][:, 1] * move
        whole = by_level["end"][:, 0] * shares + by_level["end"][:, 1] * inside if "end" in by_level else inside
        return np.clip(1.0 - whole, 0.0, 1.0)

    def scalars(self) -> dict[str, float]:
        """The draws of the sites that are numbers."""
        drawn = {"concentration": float(np.exp(self.log_total))}
        if self.prior.usage is not None:
            drawn["usage_power"] = self.power
        levels = {f"state_concentration_{name}": float(np.exp(x.log_total)) for name, x in self.levels.items()}
        return drawn | levels


def draw_chains(
    rngs: list[np.random.Generator],
    prior: PartialPooling,
    groups: PooledOutcomes,
    data: PairCounts,
    outcomes: int,
    num_warmup: int,
    num_samples: int,
) -> PooledDraws:
    """Chains, one after the other.

    Args:
        rngs: one for each chain.
        prior, groups, data: what is sampled.
        outcomes: O.
        num_warmup: sweeps of each chain that are not kept.
        num_samples: sweeps that are.
    """
    shape = (len(rngs), num_samples)
    rows = np.zeros((*shape, len(groups.open), outcomes), np.float32)
    base = np.zeros((*shape, len(groups.open)))
    scalars: dict[str, np.ndarray] = {}
    with bar_of(len(rngs) * (num_warmup + num_samples), " sweeps") as bar:
        for c, rng in enumerate(rngs):
            chain = _Chain(rng, prior, groups, data, outcomes)
            for sweep in range(-num_warmup, num_samples):
                chain.sweep()
                bar.update()
                if sweep < 0:
                    continue
                rows[c, sweep], base[c, sweep] = chain.rows, chain.base()
                for name, value in chain.scalars().items():
                    scalars.setdefault(name, np.zeros(shape))[c, sweep] = value
    return PooledDraws(scalars, rows, base)


def _normal(law: object) -> tuple[float, float]:
    """Mean and standard deviation of a normal law, or of the logarithm of a log-normal one."""
    return float(law.loc), float(law.scale)  # type: ignore[attr-defined]


def _dirichlet(rng: np.random.Generator, concentration: Float[np.ndarray, "*n J"]) -> Float[np.ndarray, "*n J"]:
    drawn = np.maximum(rng.standard_gamma(np.maximum(concentration, _TINY)), _TINY)
    return drawn / drawn.sum(-1, keepdims=True)


EARLY = 4096  # customers of a restaurant that are seated one by one
_MOST_STEPS = 50  # of a slice, to both sides


def table_numbers(
    rng: np.random.Generator, counts: Int[np.ndarray, " E"], concentration: Float[np.ndarray, " E"]
) -> Int[np.ndarray, " E"]:
    """Numbers of tables of Chinese restaurants: a sum of Bernoulli(c / (c + i)), i = 0 to the count less one.

    Args:
        rng: random.
        counts: customers; whole numbers.
        concentration: c, positive.
    """
    # One Bernoulli variable for each customer, all restaurants at once, but for the late customers of large ones.
    early = np.minimum(counts, EARLY)
    restaurant = np.repeat(np.arange(len(counts)), early)
    before = np.arange(len(restaurant)) - np.repeat(np.cumsum(early) - early, early)
    concentrations = concentration[restaurant]
    opened = rng.random(len(restaurant)) * (concentrations + before) < concentrations
    # The first customer always opens a table, also where the concentration underflows.
    opened[before == 0] = True
    tables = np.bincount(restaurant, opened, len(counts)).astype(np.int64)
    for large in np.flatnonzero(counts > EARLY):
        tables[large] += _late_tables(rng, float(concentration[large]), int(counts[large]))
    return tables


def _late_tables(rng: np.random.Generator, concentration: float, customers: int) -> int:
    """Tables that are opened by customers from number `EARLY` on: from one such customer straight to the next."""
    now, num_tables = float(EARLY), 0
    while True:
        # None of the customers i = now to j - 1 opens a table with probability prod i / (c + i), a ratio of gammas.
        at_now = gammaln(concentration + now) - gammaln(now)
        level = -rng.exponential()
        low, high = now, float(customers)
        if at_now + gammaln(high) - gammaln(concentration + high) > level:
            return num_tables
        while high - low > 1.0:
            middle = np.floor((low + high) / 2)
            none = at_now + gammaln(middle) - gammaln(concentration + middle) > level
            low, high = (middle, high) if none else (low, middle)
        now, num_tables = high, num_tables + 1
        if now >= customers:
            return num_tables


def log_counts_density(
    own: Float[np.ndarray, " E"],
    counts: Int[np.ndarray, " E"],
    total: Float[np.ndarray, " R"],
    total_counts: Float[np.ndarray, " R"] | Int[np.ndarray, " R"],
) -> float:
    """The density of counts of Dirichlet rows, the rows integrated out; tables have no part in it.

    sum_e log Gamma(a_e + n_e) / Gamma(a_e) - sum_r log Gamma(a_r + n_r) / Gamma(a_r), e the outcomes that were seen.

    Args:
        own: concentrations of the outcomes that were seen, positive.
        counts: how often, one or more.
        total: concentrations of the rows.
        total_counts: all their transitions.
    """
    # Most outcomes of sparse data were seen once, and Gamma(a + 1) / Gamma(a) = a.
    seen_once = counts == 1
    repeated, number = own[~seen_once], counts[~seen_once]
    outcomes = np.log(own[seen_once]).sum() + (gammaln(repeated + number) - gammaln(repeated)).sum()
    return float(outcomes - (gammaln(total + total_counts) - gammaln(total)).sum())


def slice_step(rng: np.random.Generator, start: float, log_density: Callable[[float], float], width: float) -> float:
    """A draw that leaves a density of one number invariant, by stepping out and shrinkage (Neal 2003).

    Args:
        rng: random.
        start: where the chain is.
        log_density: up to a constant; finite at `start`.
        width: of a step, about the size of the density's bulk.
    """
    height = log_density(start) - rng.exponential()
    low = start - width * rng.random()
    high = low + width
    # The steps are shared between both sides at random, which keeps the density where they run out.
    left = int(rng.integers(_MOST_STEPS))
    right = _MOST_STEPS - 1 - left
    while left > 0 and log_density(low) > height:
        low, left = low - width, left - 1
    while right > 0 and log_density(high) > height:
        high, right = high + width, right - 1
    while True:
        value = low + (high - low) * rng.random()
        if log_density(value) > height:
            return value
        low, high = (value, high) if value < start else (low, value)
