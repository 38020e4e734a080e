"""The mean MDP after each of many data sets, and data sets that the posterior predicts, by NumPy.

Data of some pairs change the site rows and the elements of rewards that these pairs use, and so all pairs that share
them; the rest of the mean MDP is the same after all data sets. Sufficient statistics of D data sets lie side by side,
and everything follows from them by conjugacy: means, and the likelihood by which a mixture weighs its components.

Rewards without an element of their own (linear regression; known laws, which tell components apart) learn in JAX.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.special
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from bayes_mdp.decisions.information.updatable import Updatable, components, laws_tell
from bayes_mdp.inference.conjugate.conjugate_posterior import ROWS, ConjugatePosterior, pair_rows
from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.rewards import Rewards, SiteDraws
from bayes_mdp.inference.families.family import RewardBelief, RewardStreams, log_rising
from bayes_mdp.inference.pair_draws import Drawn, PairRows, draw_by_weight
from bayes_mdp.mdp.abilities import Sizes
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.numerics.array_forms import stack_trees
from bayes_mdp.random.host_generator import SMALL, ElementStreams
from bayes_mdp.utils.typing import AnyArray, Index

Cell = tuple[Int[np.ndarray, "D T"], ...]
"""(Step,) state, action of each observation."""
LEAST = 2.0**-54  # in place of a uniform number that is zero: the quantile of a normal variable is finite


class Observations(NamedTuple):
    """T transitions in each of D data sets.

    Args:
        cell: (step,) state, action.
        outcome: of the row.
        reward: observed or not.
        seen: false: the reward says nothing.
        weight: how often; 0: no observation.
    """

    cell: Cell
    outcome: Int[np.ndarray, "D T"]
    reward: Float[np.ndarray, "D T"]
    seen: Bool[np.ndarray, "D T"]
    weight: Float[np.ndarray, "D T"]


def concatenate(parts: list[Observations]) -> Observations:
    """Observations one after the other."""
    cell = tuple(np.concatenate(x, -1) for x in zip(*(part.cell for part in parts), strict=True))
    return Observations(cell, *(np.concatenate(x, -1) for x in zip(*(part[1:] for part in parts), strict=True)))


@dataclass(frozen=True, eq=False)
class Group:
    """K components of a posterior whose tables agree: which site row, and which element of rewards, a pair uses.

    Args:
        members: numbers of the components.
        tables: the rows of the first of them, for its tables.
        concentration: of the site rows, after the data so far.
        known: the known rows; None: there is none.
        rewards: the beliefs about the rewards, with a leading axis K on every array.
        tells: whether rewards say anything.
        in_jax: whether rewards learn in JAX.
    """

    members: Int[np.ndarray, " K"]
    tables: DirichletRows
    concentration: Float[np.ndarray, "K M C"]
    known: Float[np.ndarray, "K *H S A O"] | None
    rewards: Rewards
    tells: bool
    in_jax: bool

    @classmethod
    def of(cls, members: list[int], parts: list[ConjugatePosterior], told_by_law: bool) -> "Group":
        """Components `members` of all `parts`; `told_by_law`: rewards of a known law say which of them holds."""
        rows = [parts[k].transition_probs for k in members]
        known = None if rows[0].known is None else np.stack([np.asarray(x.known, np.float64) for x in rows])
        cells = [parts[k].reward_cells for k in members]
        rewards: Rewards = stack_trees(cells)
        return cls(
            np.array(members),
            rows[0],
            np.stack([np.asarray(x.site_concentration, np.float64) for x in rows]),
            known,
            rewards,
            cells[0].learns or told_by_law,
            told_by_law or (cells[0].learns and not isinstance(cells[0], RewardCells)),
        )

    @cached_property
    def row(self) -> Int[np.ndarray, "*H S A"]:
        """The site row of each pair, -1 where the row is known."""
        # Without tables every pair has a site row of its own, in order.
        shape = self.tables.shape[:-1]
        return np.arange(math.prod(shape)).reshape(shape) if self.tables.row is None else np.asarray(self.tables.row)

    def column(self, cell: tuple[AnyArray, ...], outcome: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
        """The column of outcomes in the site row of their pair, -1: none."""
        # Without a table the columns are the outcomes.
        table = self.tables.column
        return outcome if table is None else np.asarray(table)[(*cell, outcome)]

    @cached_property
    def cells(self) -> RewardCells | None:
        """The rewards, where they learn in NumPy."""
        return self.rewards if self.tells and not self.in_jax and isinstance(self.rewards, RewardCells) else None

    @cached_property
    def element(self) -> Int[np.ndarray, "*cells"] | None:
        """The element of the reward of each cell of the law, -1 where it is known; None: none is needed."""
        if self.cells is None:
            return None
        if self.cells.cell is None:
            return np.arange(math.prod(self.cells.shape)).reshape(self.cells.shape)
        # All components of a group share their tables: the first one's are those of all.
        return np.asarray(self.cells.cell)[0]


class Touched(NamedTuple):
    """The site rows and elements of rewards of a group that data can change, and the place of each of all in these.

    Args:
        rows, elements: which.
        row_place, element_place: -1: none; so is the last entry, for what is known.
    """

    rows: Int[np.ndarray, " R"]
    elements: Int[np.ndarray, " U"]
    row_place: Int[np.ndarray, " M1"]
    element_place: Int[np.ndarray, " M2"]

    @classmethod
    def by(cls, group: Group, cell: tuple[int, ...] | None) -> "Touched":
        """By data of one pair; None: of all."""
        row = np.asarray(group.row if cell is None else group.row[cell])
        element = np.empty(0, int) if group.element is None else group.element
        # A law of rewards by outcome has a cell for each outcome of the pair.
        element = np.asarray(element if cell is None or group.element is None else element[cell])
        size = 0 if group.cells is None else group.cells.data.shape[1]
        rows, row_place = _places(row, group.concentration.shape[1])
        elements, element_place = _places(element, size)
        # Numbers of the elements among those that are touched.
        return cls(rows, elements, row_place, element_place)


def _places(indices: Int[np.ndarray, "..."], size: int) -> tuple[Int[np.ndarray, " R"], Int[np.ndarray, " M1"]]:
    distinct = np.unique(indices[indices >= 0])
    # From a site row to its place among those that data can touch; the extra last entry serves -1, which is none.
    place = np.full(size + 1, -1)
    place[distinct] = np.arange(len(distinct))
    return distinct, place


class MeanMDPs:
    """The mean MDP of a posterior, as pairs with their possible outcomes, and what it is after data.

    Args:
        posterior: the belief, arrays of NumPy in float64.
    """

    def __init__(self, posterior: Updatable) -> None:
        parts, space = components(posterior), posterior.space
        log_weights = np.zeros(1) if posterior.log_weights is None else np.asarray(posterior.log_weights)
        # Weights that sum to one, on the log scale.
        self.log_weights = log_weights - np.logaddexp.reduce(log_weights)
        self.space, self.by_outcome = space, parts[0].rewards_by_outcome
        index = np.nonzero(Sizes.of(space).possible)
        rows = [np.asarray(part.transition_probs.mean(), np.float64)[index] for part in parts]
        # The entries of a pair are the outcomes that some component holds possible.
        pair, outcome = np.nonzero(np.any([row > 0 for row in rows], 0))
        self.rows = pair_rows(space, index, pair, outcome)
        self.probs = np.stack([row[pair, outcome] for row in rows])
        self.cells = np.stack([np.asarray(p.reward_cells.mean(), np.float64)[self.place(self.rows)] for p in parts])
        self.reward = self.pair_rewards(self.rows, self.probs, self.cells)
        # Components with the same tables learn together, as arrays with an axis K.
        alike: dict[tuple[bytes | None, ...], list[int]] = {}
        for k, part in enumerate(parts):
            cell = part.reward_cells.cell if isinstance(part.reward_cells, RewardCells) else None
            tables = (part.transition_probs.row, part.transition_probs.column, cell)
            alike.setdefault(tuple(None if x is None else np.asarray(x).tobytes() for x in tables), []).append(k)
        self.groups = [Group.of(members, parts, laws_tell(posterior)) for members in alike.values()]

    @property
    def numbers(self) -> int:
        """How many numbers a data set takes, about."""
        # Rows and rewards of the mean MDP, of all components.
        per_data_set = self.probs.size + self.reward.size
        in_jax = any(group.in_jax for group in self.groups)
        return per_data_set + (len(self.probs) * math.prod(self.groups[0].rewards.shape) if in_jax else 0)

    def place(self, rows: PairRows) -> tuple[Int[np.ndarray, "..."], ...]:
        """The cells of the law of rewards: of the entries where rewards depend on the outcome, else of the pairs."""
        return rows.cells(self.by_outcome)

    def pair_rewards(
        self, rows: PairRows, probs: Float[np.ndarray, "*K E"], cells: Float[np.ndarray, "*K _"]
    ) -> Float[np.ndarray, "*K Q"]:
        """Mean rewards of pairs from those of cells; an outcome of probability zero adds nothing, even nan."""
        return rows.expectation(probs, cells) if self.by_outcome else cells

    def mean_mdps(self, weights: Float[np.ndarray, "D K"]) -> Drawn:
        """The mean MDP for weights of the components."""
        return Drawn(weights @ self.probs, weights @ self.reward)

    @property
    def now(self) -> Drawn:
        """The mean MDP without further data."""
        return self.mean_mdps(np.exp(self.log_weights)[None])


@dataclass(frozen=True, eq=False)
class _Learnt:
    """What one group has learnt from D data sets; its arrays change.

    Args:
        counts: of the columns of the touched site rows.
        rewards: statistics of the touched elements, all data so far included; None: rewards are known.
        constant: log-likelihood of what no unknown enters.
        data: all observations, where rewards learn in JAX.
    """

    counts: Float[np.ndarray, "D R C"]
    rewards: Float[np.ndarray, "K D U _"] | None
    constant: Float[np.ndarray, "K D"]
    data: list[Observations]


class Learning:
    """D data sets of one pair, or of all, and the mean MDP after them.

    Args:
        means: of the posterior.
        cell: the pair; None: any.
        num: D.
    """

    def __init__(self, means: MeanMDPs, cell: tuple[int, ...] | None, num: int) -> None:
        self.means, self.num = means, num
        self.touched = [Touched.by(group, cell) for group in means.groups]
        self._learnt = [self._begin(*part) for part in zip(means.groups, self.touched, strict=True)]
        # Only pairs that data can change are computed anew; all others keep their present rows and rewards.
        changed = np.zeros(len(means.rows.state), bool)
        for group, touched in zip(means.groups, self.touched, strict=True):
            changed |= touched.row_place[group.row[means.rows.index]] >= 0
            changed |= group.in_jax
            if group.element is not None:
                is_touched = touched.element_place[group.element[means.place(means.rows)]] >= 0
                changed[means.rows.pair[is_touched] if means.by_outcome else is_touched] = True
        self.pairs = np.flatnonzero(changed)
        self.rows, self.entries = means.rows.take(self.pairs)

    def _begin(self, group: Group, touched: Touched) -> _Learnt:
        # Counts of data beside the concentrations: the prior is added where it is needed.
        # Columns of the touched rows, for each data set.
        counts = np.zeros((self.num, len(touched.rows), group.concentration.shape[2]))
        rewards = None
        if group.cells is not None:
            data = np.asarray(group.cells.data, np.float64)[:, None, touched.elements]
            rewards = np.broadcast_to(data, (len(data), self.num, *data.shape[2:])).copy()
        return _Learnt(counts, rewards, np.zeros((len(group.members), self.num)), [])

    def observe(self, data: Observations) -> None:
        """Learn from T more transitions in every data set."""
        for group, touched, learnt in zip(self.means.groups, self.touched, self._learnt, strict=True):
            self._observe_rows(group, touched, learnt, data)
            if group.in_jax:
                learnt.data.append(data)
            elif group.cells is not None and learnt.rewards is not None:
                self._observe_rewards(group, group.cells, touched, learnt, data)

    def _observe_rows(self, group: Group, touched: Touched, learnt: _Learnt, data: Observations) -> None:
        site, taken = group.row[data.cell], data.weight > 0
        column = np.where(taken, group.column(data.cell, data.outcome), 0)
        d = np.arange(self.num)[:, None]
        number, width = learnt.counts.shape[1:]
        # An outcome without a column is impossible under this group: log-likelihood -inf, below.
        counted = taken & (site >= 0) & (column >= 0)
        # Data sets one after the other.
        # One flat index for (data set, row, column).
        flat = ((d * number + touched.row_place[site]) * width + column)[counted]
        np.add.at(learnt.counts.reshape(-1), flat, data.weight[counted])
        with np.errstate(divide="ignore"):
            learnt.constant[:, (taken & (site >= 0) & (column < 0)).any(-1)] = -np.inf
            # Rows that are known learn nothing, but say how likely the data are under this component.
            if group.known is not None and (site < 0).any():
                log_known = np.log(group.known[(slice(None), *data.cell, data.outcome)])
                known = taken & (site < 0)
                learnt.constant[:] += np.where(known, np.where(known, log_known, 0.0) * data.weight, 0.0).sum(-1)

    def _observe_rewards(
        self, group: Group, cells: RewardCells, touched: Touched, learnt: _Learnt, data: Observations
    ) -> None:
        assert learnt.rewards is not None and group.element is not None
        place = (*data.cell, data.outcome) if self.means.by_outcome else data.cell
        # Where nothing is observed the outcome may be any number.
        element = group.element[place]
        used = np.nonzero((data.weight > 0) & data.seen & (element >= 0))
        if not len(used[0]):
            return
        parts, (_, _, number, width) = len(group.members), learnt.rewards.shape
        weight, cell_index = np.broadcast_to(data.weight[used], (parts, len(used[0]))), tuple(i[used] for i in place)
        reward = np.broadcast_to(data.reward[used], weight.shape)
        constant = np.zeros(weight.shape)
        if cells.coefficient is not None and cells.offset is not None:
            coefficient, offset = (np.asarray(x)[(slice(None), *cell_index)] for x in (cells.coefficient, cells.offset))
            # The density of r = c x + o is that of x over |c|.
            reward, constant = (reward - offset) / coefficient, -weight * np.log(np.abs(coefficient))
        if cells.prior.has_constant:
            laws = jax.tree.map(lambda x: x[:, element[used]], cells.prior)
            constant = constant + weight * np.asarray(laws.log_constant(reward))
        component = np.arange(parts)[:, None]
        # Sums over the observations of each (component, data set).
        set_number = component * self.num + used[0]
        learnt.constant[:] += np.bincount(set_number.ravel(), constant.ravel(), parts * self.num).reshape(parts, -1)
        flat = (set_number * number + touched.element_place[element[used]]).ravel()
        # Sufficient statistics of all observations in one call, absorbed element by element.
        added = cells.prior.statistics(weight.ravel(), reward.ravel())
        learnt.rewards[:] = np.asarray(cells.prior.absorb(learnt.rewards.reshape(-1, width), flat, added)).reshape(
            learnt.rewards.shape
        )

    @cached_property
    def _by_jax(self) -> list[tuple[np.ndarray, np.ndarray] | None]:
        """Of each group whose rewards learn in JAX: mean rewards of the changed cells, and the log-likelihood."""
        answers = []
        for group, learnt in zip(self.means.groups, self._learnt, strict=True):
            if not group.in_jax:
                answers.append(None)
                continue
            cell, outcome, reward, seen, weight = concatenate(learnt.data)
            learnt_values = _learn(
                group.rewards, cell, outcome, np.where(seen, reward, 0.0), np.where(seen, weight, 0.0)
            )
            mean, likelihood = map(np.asarray, learnt_values)
            answers.append((mean[(slice(None), slice(None), *self.means.place(self.rows))], likelihood))
        return answers

    def log_likelihood(self) -> Float[np.ndarray, "D K"]:
        """Of the data under each component, as a sequence."""
        answer = np.zeros((self.num, len(self.means.log_weights)))
        groups = zip(self.means.groups, self.touched, self._learnt, self._by_jax, strict=True)
        for group, touched, learnt, by_jax in groups:
            # Dirichlet-multinomial: prod_c rising(a_c, n_c) / rising(sum a, sum n).
            alpha = group.concentration[:, None, touched.rows]
            possible, counts = alpha > 0, np.broadcast_to(learnt.counts, (len(alpha), *learnt.counts.shape))
            rising = np.asarray(log_rising(np.where(possible, alpha, 1.0), counts))
            total = np.asarray(log_rising(alpha.sum(-1), counts.sum(-1)))
            log_prob = np.where(possible | (counts == 0), rising * possible, -np.inf).sum((-1, -2)) - total.sum(-1)
            log_prob = log_prob + learnt.constant
            if group.cells is not None and learnt.rewards is not None:
                prior = jax.tree.map(lambda x, at=touched.elements: x[:, None, at], group.cells.prior)
                before = np.asarray(group.cells.data, np.float64)[:, None, touched.elements]
                # Element by element: where nothing was observed the difference is zero, and nothing cancels.
                gain = np.asarray(prior.log_marginal(learnt.rewards)) - np.asarray(prior.log_marginal(before))
                log_prob = log_prob + gain.sum(-1)
            elif by_jax is not None:
                log_prob = log_prob + by_jax[1]
            answer[:, group.members] = log_prob.T
        return answer

    def log_probability(self) -> Float[np.ndarray, " D"]:
        """Of the observations, as a sequence."""
        # The evidence of all components, by their weights.
        return np.logaddexp.reduce(self.log_likelihood() + self.means.log_weights, axis=-1)

    def mean_mdps(self) -> Drawn:
        """The mean MDP after each data set."""
        means, parts = self.means, len(self.means.log_weights)
        weights = np.ones((self.num, 1))
        # Posterior weights of the components: prior times likelihood of the data.
        if parts > 1:
            logs = means.log_weights + self.log_likelihood()
            # What is impossible under all components changes none of their weights, and has probability zero.
            logs = np.where((logs == -np.inf).all(-1, keepdims=True), means.log_weights, logs)
            weights = scipy.special.softmax(logs, -1)
        answer = means.mean_mdps(weights)
        probs = np.zeros((self.num, len(self.entries)))
        reward = np.zeros((self.num, len(self.pairs)))
        for group, touched, learnt, by_jax in zip(means.groups, self.touched, self._learnt, self._by_jax, strict=True):
            rows = self._rows_after(group, touched, learnt)
            cells = self._cells_after(group, touched, learnt) if by_jax is None else by_jax[0]
            paid = means.pair_rewards(self.rows, rows, cells)
            # The mean MDP of a mixture is the weighted mean of those of its components.
            mine = weights[:, group.members]
            probs += np.einsum("dk,kde->de", mine, rows)
            reward += np.einsum("dk,kdq->dq", mine, paid)
        answer.probs[:, self.entries] = probs
        answer.reward[:, self.pairs] = reward
        return answer

    def _rows_after(self, group: Group, touched: Touched, learnt: _Learnt) -> Float[np.ndarray, "K D F"]:
        before = self.means.probs[group.members][:, None, self.entries]
        rows = np.broadcast_to(before, (len(before), self.num, before.shape[-1])).copy()
        index = tuple(i[self.rows.pair] for i in self.rows.index)
        place, column = touched.row_place[group.row[index]], group.column(index, self.rows.outcome)
        new = (place >= 0) & (column >= 0)
        # (a + n) / sum (a + n): the posterior mean of a Dirichlet row.
        after = group.concentration[:, None, touched.rows] + learnt.counts
        total = after.sum(-1)
        rows[:, :, new] = after[:, :, place[new], column[new]] / total[:, :, place[new]]
        return rows

    def _cells_after(self, group: Group, touched: Touched, learnt: _Learnt) -> Float[np.ndarray, "K D _"]:
        places = self.entries if self.means.by_outcome else self.pairs
        before = self.means.cells[group.members][:, None, places]
        if group.cells is None or group.element is None or learnt.rewards is None:
            return np.broadcast_to(before, (len(before), self.num, before.shape[-1]))
        cell_index = self.means.place(self.rows)
        place = touched.element_place[group.element[cell_index]]
        new = place >= 0
        cells = np.broadcast_to(before, (len(before), self.num, before.shape[-1])).copy()
        prior = jax.tree.map(lambda x: x[:, None, touched.elements], group.cells.prior)
        mean = np.broadcast_to(np.asarray(prior.after(learnt.rewards).mean()), learnt.rewards.shape[:3])[
            ..., place[new]
        ]
        # Location and scale of the pair's reward around the standardised law.
        if group.cells.coefficient is not None and group.cells.offset is not None:
            entry = (slice(None), None, *(i[new] for i in cell_index))
            mean = np.asarray(group.cells.coefficient)[entry] * mean + np.asarray(group.cells.offset)[entry]
        cells[:, :, new] = mean
        return cells


@eqx.filter_jit
def _learn(
    rewards: Rewards,
    cell: Index,
    outcome: Int[AnyArray, "D T"],
    reward: Float[AnyArray, "D T"],
    weight: Float[AnyArray, "D T"],
) -> tuple[Float[Array, "K D *cells"], Float[Array, "K D"]]:
    """Mean rewards after data, and their log-likelihood, under each of K beliefs."""

    def one(belief: Rewards, cell: Index, outcome: AnyArray, reward: AnyArray, weight: AnyArray) -> tuple[Array, Array]:
        after, constant = belief.observe(cell, outcome, reward, weight)
        # log p(new data | data so far).
        gain = after.log_evidence() - belief.log_evidence() + constant
        return jnp.asarray(after.mean()), jnp.asarray(gain)

    # Over data sets within, over components outside: the beliefs have axis K alone.
    in_sets = jax.vmap(one, (None, 0, 0, 0, 0))
    return jax.vmap(in_sets, (0, None, None, None, None))(
        jax.tree.map(jnp.asarray, rewards), cell, outcome, reward, weight
    )


class Environments:
    """A stream of environments: what the data of some pairs are made from, drawn from the posterior.

    Args:
        key: of the draws.
        means: of the posterior.
        cell: the pair that is observed; None: all are.
    """

    def __init__(self, key: PRNGKeyArray, means: MeanMDPs, cell: tuple[int, ...] | None) -> None:
        self._means, self._key, self._used = means, key, 0
        # The component first: rows and rewards are drawn given it.
        self._choose = draw_by_weight(key, np.exp(means.log_weights))
        self._groups = [_GroupStream(key, group, Touched.by(group, cell)) for group in means.groups]

    def draw(self, num: int) -> "Environment":
        """The next ones."""
        several = len(self._means.log_weights) > 1
        part = self._choose(num) if several else np.zeros(num, int)
        numbers = np.arange(self._used, self._used + num)
        self._used += num
        drawn = [stream.draw(num, part, numbers) for stream in self._groups]
        return Environment(self._means, part, drawn)


class _GroupDraw(NamedTuple):
    """What is drawn of one group: the component of each draw, rows and rewards of what is touched."""

    group: Group
    touched: Touched
    part: Int[np.ndarray, " D"]
    rows: Float[np.ndarray, "D R C"]
    belief: RewardBelief | None
    sites: tuple[Float[np.ndarray, "D U *V"], ...]
    table: RewardTable | None
    keys: Key[Array, " D"] | None


class _GroupStream:
    def __init__(self, key: PRNGKeyArray, group: Group, touched: Touched) -> None:
        self._key, self._group, self._touched = key, group, touched
        # By place: candidates that are simulated have common random numbers.
        self._rows = ElementStreams(key, ROWS, np.arange(len(touched.rows)))
        self._rewards = RewardStreams(key, np.arange(len(touched.elements)))
        self._alpha = group.concentration[:, touched.rows]

    def draw(self, num: int, component: Int[np.ndarray, " D"], numbers: Int[np.ndarray, " D"]) -> _GroupDraw:
        """Draws for components that may be those of other groups: these are not looked at."""
        group, touched = self._group, self._touched
        part = np.minimum(np.searchsorted(group.members, component), len(group.members) - 1)
        _, number, width = self._alpha.shape
        # Rows of the component that each environment has; one component needs no copies.
        alpha = self._alpha.reshape(len(group.members), -1)
        alpha = alpha[0] if len(alpha) == 1 else alpha[part]
        small = (self._alpha.max(-1) < SMALL).any(0)
        rows = self._rows.dirichlets(num, alpha, np.arange(0, number * width + 1, width), small)
        rows = rows.reshape(num, number, width)
        belief, sites, table, keys = None, (), None, None
        if group.cells is not None:
            prior = jax.tree.map(lambda x: x[:, touched.elements], group.cells.prior)
            after = prior.after(np.asarray(group.cells.data, np.float64)[:, touched.elements])
            belief = jax.tree.map(lambda x: np.asarray(x)[part], after)
            sites = tuple(np.asarray(x) for x in belief.draw(self._rewards, num))
        elif group.in_jax:
            keys = _keys(self._key, jnp.asarray(numbers))
            table = _tables(keys, group.rewards, part)
        return _GroupDraw(group, touched, part, rows, belief, sites, table, keys)


# A key by the number of the environment: the same environment in every chunk.
_keys = jax.jit(jax.vmap(jax.random.fold_in, (None, 0)))


@eqx.filter_jit
def _tables(keys: Key[Array, " D"], rewards: Rewards, part: Int[AnyArray, " D"]) -> RewardTable:
    """A drawn law of the rewards for each of D components."""

    def one(key: PRNGKeyArray, k: Array) -> RewardTable:
        belief: Rewards = jax.tree.map(lambda x: jnp.asarray(x)[k], rewards)
        sites: SiteDraws = belief.sample_sites(jax.random.split(key)[0])
        return belief.table_of(sites)

    return jax.vmap(one)(keys, jnp.asarray(part))


@eqx.filter_jit
def _sample_rewards(
    table: RewardTable, keys: Key[Array, " D"], step: Int[AnyArray, ""], cell: Index, outcome: Int[AnyArray, "D T"]
) -> Float[Array, "D T"]:
    def one(law_table: RewardTable, key: PRNGKeyArray, cell: Index, outcome: AnyArray) -> Array:
        law = law_table.at(cell, outcome)
        # A key for the law and one for its rewards; the latter by the number of times.
        of_law = jax.random.fold_in(jax.random.split(key)[1], step)
        reward = law.sample(of_law) if isinstance(law, dist.Distribution) else law
        return jnp.asarray(reward, float)

    return jax.vmap(one)(table, keys, cell, outcome)


class Environment:
    """D MDPs, known as far as data touch them.

    Args:
        means: of the posterior.
        part: the component of each.
        drawn: of each group.
    """

    def __init__(self, means: MeanMDPs, part: Int[np.ndarray, " D"], drawn: list[_GroupDraw]) -> None:
        self._means, self._drawn = means, drawn
        self._mine = [np.isin(part, draw.group.members) for draw in drawn]
        self._each = np.arange(len(part))

    def outcome_probs(self, cell: tuple[Int[np.ndarray, " D"], ...]) -> Float[np.ndarray, "D O"]:
        """The row of one pair of each MDP."""
        return self._choose([self._row(draw, cell) for draw in self._drawn])

    def _choose(self, answers: list[np.ndarray]) -> np.ndarray:
        """Of each MDP the answer of its group."""
        # Groups are drawn for all environments alike; each takes the answer of the group of its component.
        chosen = answers[0]
        for mine, answer in zip(self._mine[1:], answers[1:], strict=True):
            chosen = np.where(mine[:, None], answer, chosen)
        return chosen

    def _row(self, draw: _GroupDraw, cell: tuple[Int[np.ndarray, " D"], ...]) -> Float[np.ndarray, "D O"]:
        group, width = draw.group, draw.group.tables.shape[-1]
        site = group.row[cell]
        column = np.broadcast_to(np.arange(width), (len(site), width))
        if group.tables.column is not None:
            column = np.asarray(group.tables.column)[cell]
        row = np.zeros((len(site), width))
        unknown = site >= 0
        if unknown.any():
            place = draw.touched.row_place[site]
            # Clipped where there is none: those are masked in the next line.
            drawn_row = draw.rows[self._each[:, None], np.maximum(place, 0)[:, None], np.maximum(column, 0)]
            row = np.where(unknown[:, None] & (column >= 0), drawn_row, 0.0)
        if not unknown.all() and group.known is not None:
            row = np.where(unknown[:, None], row, group.known[(draw.part, *cell)])
        return row

    def rewards(
        self,
        cell: tuple[Int[np.ndarray, " D"], ...],
        outcome: Int[np.ndarray, "D T"],
        uniform: Float[np.ndarray, "D T"],
        step: int = 0,
    ) -> tuple[Float[np.ndarray, "D T"], Bool[np.ndarray, "D T"]]:
        """Rewards of one pair of each MDP, and whether they say anything.

        Args:
            cell: the pair.
            outcome: of each transition.
            uniform: a random number for each reward.
            step: how many times there were rewards before (their random numbers differ).
        """
        cells = tuple(np.broadcast_to(i[:, None], outcome.shape) for i in cell)
        answers = [self._reward(draw, cells, outcome, uniform, step) for draw in self._drawn]
        return self._choose([reward for reward, _ in answers]), self._choose([seen for _, seen in answers])

    def _reward(
        self,
        draw: _GroupDraw,
        cell: Cell,
        outcome: Int[np.ndarray, "D T"],
        uniform: Float[np.ndarray, "D T"],
        step: int,
    ) -> tuple[Float[np.ndarray, "D T"], Bool[np.ndarray, "D T"]]:
        group, cells = draw.group, draw.group.cells
        if draw.table is not None and draw.keys is not None:
            reward = np.asarray(_sample_rewards(draw.table, draw.keys, jnp.asarray(step), cell, outcome))
            return reward, np.ones(reward.shape, bool)
        if cells is None or group.element is None or draw.belief is None or not len(draw.touched.elements):
            return np.zeros(outcome.shape), np.zeros(outcome.shape, bool)
        cell_index = (*cell, outcome) if self._means.by_outcome else cell
        place = draw.touched.element_place[group.element[cell_index]]
        seen, entry = place >= 0, (self._each[:, None], np.maximum(place, 0))
        belief = jax.tree.map(lambda x: x[entry], draw.belief)
        # By inversion: common random numbers make candidates comparable. A uniform of 0 has no quantile.
        reward = belief.quantile(tuple(x[entry] for x in draw.sites), np.maximum(uniform, LEAST))
        if cells.coefficient is not None and cells.offset is not None:
            spot = (draw.part[:, None], *cell_index)
            reward = np.asarray(cells.coefficient)[spot] * reward + np.asarray(cells.offset)[spot]
        return np.where(seen, reward, 0.0), seen
