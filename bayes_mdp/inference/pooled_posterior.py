"""`PooledPosterior`: draws of what is behind the rows of a `PartialPooling` prior; given them, rows in closed form.

`fit_of` is its route: counts of the data, Gibbs sampling of what rows share (`draw_chains`), the posterior.

The rows themselves are integrated out. A sweep draws the total and the power of the pairs; how many tables the
transitions of every pair occupy; then, level by level, the concentration of the states, their tables, what is common
to them, and the rows of the states. Totals are drawn with tables integrated out, and these right after them: a draw of
both at once.

Counts n of a Dirichlet row with concentration a m_j at outcome j have, given a number of tables t_j for each outcome,
the density prod_j S(n_j, t_j) (a m_j)^t_j Gamma(a) / Gamma(a + n), S the Stirling numbers: in m it is that of t_j draws
of outcome j, so that a Dirichlet prior of m is conjugate (Teh, Jordan, Beal and Blei 2006).
"""

from dataclasses import replace
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from scipy.special import gammaln

from bayes_mdp.inference.collapsed.collapsed_posterior import as_prior, forgotten
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.conjugate.conjugate_posterior import Components, ConjugatePosterior
from bayes_mdp.inference.detection.trace import run_program
from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.draws.methods import Gibbs
from bayes_mdp.inference.fitted import NO_PROGRAM
from bayes_mdp.inference.mixtures import HyperparameterMixture
from bayes_mdp.inference.pair_draws import draw_by_weight
from bayes_mdp.inference.summary import PairMoments
from bayes_mdp.mdp import MDP, Counts, SparseMDP, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import check_weighted
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.models.partial_pooling import LEAST, PartialPooling, PooledOutcomes, pooled_outcomes, state_rows
from bayes_mdp.numerics.products import einsum
from bayes_mdp.random.slice_sampling import slice_step
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.typing import AnyArray, ArrayLike, IntScalar
from bayes_mdp.utils.validation import first_index, is_concrete

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


Pairs = Float[AnyArray, "*H S A"]


class PooledPosterior(HyperparameterMixture):
    """A mixture of conjugate posteriors, one for each draw of what their rows share (built by `infer`).

    Given the row m_s of every state and the totals c_sa, row (s, a) is Dirichlet(c_sa m_s + counts): exact. New data
    move the rows by conjugacy and the weights of the draws by predictive likelihood.

    Args:
        data_statistics: counts of all data, and the belief about rewards; the prior of its rows is not read.
        state_rows: [K S O], m_s in each draw.
        totals: [K S A], c_sa, concentrations.
        log_weights: [K], up to a constant.
        hyperparameters: {site: [K]}, draws of the sites that are numbers.
        mcmc: the chains behind the draws; None: draws from the prior.
        prior: the program.
        options: of the chains.
        base_shares: [K S], the prior's part of m_s: what it has from no data of any state, at some level (by the tables
            of the same sweep, see `draw_chains`); None: all of it, as before data.
    """

    data_statistics: ConjugatePosterior
    state_rows: Float[AnyArray, "K S O"]
    totals: Float[AnyArray, "K S A"]
    log_weights: Float[AnyArray, " K"]
    hyperparameters: dict[str, AnyArray]
    mcmc: Chains | None = None
    prior: PartialPooling | None = eqx.field(static=True, default=None)
    options: Gibbs = eqx.field(static=True, default=Gibbs())
    base_shares: Float[AnyArray, "K S"] | None = None

    keeps_density: ClassVar[bool] = False
    """Gibbs chains keep no density of what they draw."""

    @property
    def method(self) -> str:
        """How it was inferred."""
        return "gibbs"

    @property
    def program(self) -> Prior | None:
        """The prior program."""
        return self.prior

    def component_priors(self, key: PRNGKeyArray) -> Components:
        """The priors of all components, and a stream of draws of these. Host side.

        Args:
            key: of the draws.
        """
        totals, state_rows = (np.asarray(x, np.float64) for x in (self.totals, self.state_rows))
        known, outcomes = np.asarray(self.data_statistics.transition_probs.prior), state_rows.shape[-1]

        def places(element: Int[np.ndarray, " U"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            # An element of the flattened table [S A O] back to its state, action and outcome.
            pair, outcome = np.divmod(element, outcomes)
            state, action = np.divmod(pair, totals.shape[-1])
            return state, action, outcome

        def row_prior(k: Int[np.ndarray, " N"], element: Int[np.ndarray, " U"]) -> Float[np.ndarray, "N U"]:
            state, action, outcome = places(element)
            # Concentrations c_sa m_s of draw k; outcomes that the known prior excludes stay excluded.
            prior = totals[k[:, None], state, action] * state_rows[k[:, None], state, outcome]
            return np.where(known.reshape(-1)[element] > 0, prior, 0.0)

        return Components(draw_by_weight(key, np.asarray(self.weights)), row_prior, None, self.num_components)

    @property
    def rows_vary(self) -> bool:
        """True: what is pooled are the rows."""
        return True

    def component(self, k: IntScalar) -> ConjugatePosterior:
        """Component `k`, an integer or a traced one."""
        rows = self.data_statistics.transition_probs
        known = jnp.asarray(rows.prior)
        # Dirichlet(c_sa m_s): the row of the state, as strong as the total of the pair.
        prior = jnp.asarray(self.totals)[k][..., None] * jnp.asarray(self.state_rows)[k][:, None, :]
        prior = jnp.where(known > 0, prior.reshape(known.shape), 0.0).astype(known.dtype)
        return replace(self.data_statistics, transition_probs=rows.with_prior(prior))

    def mean_mdp(self) -> MDP | SparseMDP:
        """Posterior mean of the transition probabilities and of the expected rewards.

        Raises:
            ValueError: that of a reward does not exist (normal-gamma concentration <= 1/2); inside a trace it is nan.
        """
        if self.rewards_by_outcome:
            return super().mean_mdp()
        # With rewards by outcome means of rewards and rows multiply: the general way over components.
        # Rewards do not depend on the component: those of any one are those of all.
        reward = self.component(0).mean_rows()[1]
        return self.space.mdp(self._mean_probs(), reward)

    def _mean_probs(self) -> Float[Array, "S A O"]:
        """Means of the rows over all components, without making the rows of any.

        The mean of row (s, a) in component k is (c m_s + n) / (c + N): in m_s a product of matrices over k, state by
        state.
        """
        rows = self.data_statistics.transition_probs
        known = jnp.asarray(rows.prior).reshape(*self.totals.shape[1:], -1)
        counts = jnp.asarray(rows.dense_counts).reshape(known.shape)
        possible = known > 0
        total = jnp.asarray(self.totals, counts.dtype)
        m = jnp.asarray(self.state_rows, counts.dtype)
        # Impossible outcomes are left out of a row's total, which differs from c where m_s has them.
        inside = einsum("kso,sao->ksa", m, possible.astype(m.dtype))
        # weight_k / (c inside + N): common to all outcomes of a pair.
        share = self.weights.astype(m.dtype)[:, None, None] / (total * inside + counts.sum(-1))
        # sum_k share_k c_k m_k: the part of the prior; the counts' part needs the sum of the shares alone.
        prior = einsum("ksa,kso->sao", share * total, m)
        mean = jnp.where(possible, prior, 0.0) + counts * share.sum(0)[..., None]
        return mean / mean.sum(-1, keepdims=True)

    def why_no_prior(self) -> str | None:
        """Why its prior cannot be drawn from, in words; None: it can."""
        if self.prior is None:
            return NO_PROGRAM
        by_data = isinstance(self.prior.usage, str)
        return 'usage is "data": the prior is conditioned on how often pairs were used' if by_data else None

    def problems(self) -> list[str]:
        """Problems to know of before this is used, one sentence each; empty: none found. Host side."""
        return [] if self.mcmc is None else self.mcmc.problems()

    def method_lines(self) -> dict[str, str]:
        """How it was inferred, and how many draws carry the weight, for `print`."""
        drawn = "draws from the prior" if self.mcmc is None else self.mcmc.described()
        size = float(self.effective_sample_size())
        return {
            "method": f"gibbs (rows of the states by {drawn}, those of the pairs in closed form)",
            "weights": f"effective sample size {size:.4g} of {self.num_components}",
        }

    def prior_share(self) -> Pairs:
        """The part of each row's mean that comes from the prior and from no data (`CanWeighPrior`).

        In draw k the mean of row (s, a) is (c m_s + n) / (c + N): a share c / (c + N) of it is m_s, and of that one the
        part `base_shares` is the prior's. What is left is borrowed: data of other actions and of other states.
        """
        return self._shares()[0]

    def borrowed_share(self) -> Pairs:
        """The part of each row's mean that data have put there through the row of its state (`CanBorrow`).

        At most that much is from other pairs, which the prior takes to be alike: data of the pair itself are among
        those of its state. With `prior_share` and N / (c + N) it sums to one; nan where nothing about the
        row is unknown.
        """
        return self._shares()[1]

    def reward_share(self) -> Pairs | None:
        """The prior's part in the mean reward of each pair (`CanWeighRewards`)."""
        return super().reward_share() if self.rewards_by_outcome else self.data_statistics.reward_share()

    def data_reward(self) -> Pairs | None:
        """The mean reward of each pair by data alone (`CanWeighRewards`)."""
        return super().data_reward() if self.rewards_by_outcome else self.data_statistics.data_reward()

    def _shares(self) -> tuple[Pairs, Pairs]:
        known = jnp.isnan(self.data_statistics.transition_probs.prior_share())
        # Share c / (c + N) of a row is its state's, and of that base_shares the prior's.
        total = jnp.asarray(self.totals)
        weighted = self.weights.astype(total.dtype)[:, None, None] * total
        of_state = weighted / (total + self.visit_counts())
        base = jnp.ones(total.shape[:2]) if self.base_shares is None else jnp.asarray(self.base_shares)
        prior = einsum("ksa,ks->sa", of_state, base.astype(total.dtype))
        borrowed = einsum("ksa,ks->sa", of_state, 1.0 - base.astype(total.dtype))
        share = self.data_statistics.share_with_rewards(jnp.where(known, jnp.nan, prior))
        return share, jnp.where(known, jnp.nan, borrowed)

    def pair_moments(self) -> PairMoments:
        """As that of every mixture; `prior_share` is that of this posterior, not the mean over components."""
        return super().pair_moments()._replace(prior_share=self.prior_share())

    def update(self, transitions: Transitions | Counts, weight: ArrayLike = 1.0) -> "PooledPosterior":
        """The posterior after one transition, a block, or `Counts`: components by conjugacy, weights by likelihood.

        The usage that the prior was conditioned on stays that of the data that `infer` saw.

        Args:
            transitions: data.
            weight: scalar or [N]; zero masks a transition of a fixed buffer.

        Raises:
            ValueError, TypeError: data that the space or the prior cannot hold (not inside a trace).
        """
        check_weighted(transitions, weight)
        if isinstance(transitions, Transitions) and is_concrete(transitions, weight, self.log_weights):
            self.check(transitions, weight)
        # Under the belief of a component so far as the prior, the evidence of new data is their predictive density.
        # Rewards do not depend on the component, and change no weight.
        block = forgotten(self.data_statistics).update(transitions, weight)

        def gain(k: Int[Array, ""]) -> Float[Array, ""]:
            before = as_prior(self.component(k)).transition_probs.prior
            rows = block.transition_probs.with_prior(jnp.asarray(before))
            return jnp.asarray(rows.log_evidence())

        log_weights = jnp.asarray(self.log_weights) + jax.lax.map(gain, jnp.arange(self.num_components))
        return replace(
            self,
            data_statistics=self.data_statistics.update(transitions, weight),
            log_weights=log_weights - jnp.max(log_weights),
        )


def fit_of(
    prior: PartialPooling, space: StateActionSpace, rewards: Fit[ConjugatePosterior], options: Gibbs
) -> Fit[PooledPosterior]:
    """Inference of the prior, as a function of the data; on the host alone.

    Args:
        prior: the program.
        space: of the prior.
        rewards: inference of the rewards, beside rows in closed form that are only counted.
        options: of the chains.

    Raises:
        ValueError: a space that cannot be pooled (see `pooled_outcomes`).
    """
    # States with more than one possible outcome for some action: the rows that can be pooled.
    groups = pooled_outcomes(space)

    def on_host(key: PRNGKeyArray, data: Transitions | Counts | None) -> PooledPosterior:
        # Draws of whole rows are held for all states: refused before memory runs out.
        _check_size(space, options.num_chains * options.num_samples)
        statistics = rewards.on_host(key, data)
        if data is None:
            return _from_prior(key, prior, groups, statistics, options)
        return _from_data(key, prior, groups, statistics, options)

    def infer(key: PRNGKeyArray, data: PyTree) -> PooledPosterior:
        raise TypeError(
            "partial_pooling is inferred on the host (infer), expected another prior inside a compiled program: one "
            "of a factory with fixed or learnt concentrations"
        )

    return Fit("gibbs", space, rewards.summarise, infer, on_host)


def _from_data(
    key: PRNGKeyArray,
    prior: PartialPooling,
    groups: PooledOutcomes,
    statistics: ConjugatePosterior,
    options: Gibbs,
) -> PooledPosterior:
    space, number = statistics.space, options.num_chains * options.num_samples
    rows = np.asarray(statistics.transition_probs.dense_counts).reshape(space.n_states, space.n_actions, -1)
    usage = prior.usage_of(space, rows.sum(-1))
    # Chains run in NumPy: an independent stream for each, seeded by the bits of the JAX key.
    bits = np.asarray(jax.random.key_data(key)).ravel()
    rngs = [np.random.default_rng(seed) for seed in np.random.SeedSequence(bits.tolist()).spawn(options.num_chains)]
    data = _pair_counts(groups, space, rows, usage)
    drawn = draw_chains(rngs, prior, groups, data, rows.shape[-1], options.num_warmup, options.num_samples)
    # Chains one after the other, as everywhere.
    flat = {name: x.reshape(number) for name, x in drawn.scalars.items()}
    # States that are not open have known rows, and ones say nothing there: `component` masks what is impossible.
    full = np.ones((number, *rows.shape[::2]), np.float32)
    full[:, groups.open] = drawn.rows.reshape(number, len(groups.open), -1)
    base = np.ones((number, len(full[0])), np.float32)
    base[:, groups.open] = drawn.base.reshape(number, -1)
    return _posterior(prior, statistics, options, full, flat, usage, Chains(dict(drawn.scalars)), base)


def _from_prior(
    key: PRNGKeyArray,
    prior: PartialPooling,
    groups: PooledOutcomes,
    statistics: ConjugatePosterior,
    options: Gibbs,
) -> PooledPosterior:
    """Draws of the program's sites, without data."""
    space, number = statistics.space, options.num_chains * options.num_samples

    @jax.jit
    def draw(key: PRNGKeyArray) -> dict[str, jax.Array]:
        _, trace = run_program(prior, space, key=key)
        # Levels (to end or not, to stay or move, to which state) make up the rows of the states; scalars are diagnosed.
        latent = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
        levels = {name: latent[f"state_{name}"] for name in groups.levels}
        scalars = {name: x for name, x in latent.items() if name.startswith(("concentration", "usage", "state_conc"))}
        return {**scalars, "rows": state_rows(groups, levels, space.n_states, space.n_outcomes)}

    # One at a time: vmap would hold all levels of all draws at once.
    draws = [jax.tree.map(np.asarray, draw(draw_key)) for draw_key in jax.random.split(key, number)]
    flat = {name: np.stack([x[name] for x in draws]) for name in draws[0]}
    rows = flat.pop("rows").astype(np.float32)
    return _posterior(prior, statistics, options, rows, flat, prior.usage_of(space, None), None)


def _posterior(
    prior: PartialPooling,
    statistics: ConjugatePosterior,
    options: Gibbs,
    state_rows: Float[np.ndarray, "K S O"],
    drawn: dict[str, np.ndarray],
    usage: Float[np.ndarray, "S A"],
    chains: Chains | None,
    base: Float[np.ndarray, "K S"] | None = None,
) -> PooledPosterior:
    """The posterior of K draws, equally weighted."""
    # c_sa = concentration usage_sa^power: pairs that are used more may vary less, or more, about their state's row.
    power = drawn.get("usage_power", np.zeros(len(state_rows)))[:, None, None]
    return PooledPosterior(  # pyright: ignore[reportCallIssue] (it takes abstract variables for fields)
        data_statistics=statistics,
        state_rows=state_rows,
        totals=(drawn["concentration"][:, None, None] * usage**power).astype(np.float32),
        log_weights=np.zeros(len(state_rows)),
        hyperparameters=drawn,
        mcmc=chains,
        prior=prior,
        options=options,
        base_shares=base,
    )


def _pair_counts(
    groups: PooledOutcomes, space: StateActionSpace, rows: Float[np.ndarray, "S A O"], usage: Float[np.ndarray, "S A"]
) -> PairCounts:
    """The counts of legal pairs of open states.

    Raises:
        ValueError: counts that are no whole numbers.
    """
    # Pairs that are legal, in states that are open: all other rows are known.
    legal = np.ones(usage.shape, bool) if space.legal is None else np.asarray(space.legal)
    inside = np.zeros(usage.shape, bool)
    inside[groups.open] = legal[groups.open]
    state, action = np.nonzero(inside)
    counts = rows[state, action]
    # Gibbs draws numbers of tables, which are whole: weighted data have none.
    index = first_index(counts != np.round(counts))
    if index is not None:
        raise ValueError(
            f"data has {counts[index]:g} transitions of state {space.state_names[state[index[0]]]!r}, action "
            f"{space.action_names[action[index[0]]]!r} to one outcome, expected whole numbers: partial_pooling takes "
            "no weighted data"
        )
    # Sparse: most counts of a row are zero.
    pair, outcome = np.nonzero(counts)
    number = np.full(space.n_states, -1)
    number[groups.open] = np.arange(len(groups.open))
    return PairCounts(
        number[state],
        np.log(usage[state, action]),
        counts.sum(-1),
        pair,
        outcome,
        counts[pair, outcome].astype(np.int64),
    )


def _check_size(space: StateActionSpace, draws: int) -> None:
    label = f"space has {space.n_states} states, in {draws} draws of their rows"
    check_memory(
        label, 4.0 * 3 * draws * space.n_states * space.n_outcomes, "fewer draws (Gibbs(num_samples=)) take less"
    )
