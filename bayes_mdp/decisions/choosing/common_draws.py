"""`CommonDraws`: values of many policies in the same draws of an unknown MDP, and how they change with the policy.

Pairs that no policy of the search can use are never drawn. The draws are held in memory where they fit into a share of
it, since a search passes over them many times; else each pass draws them anew, the same ones. Host side: linear systems
and error bounds in double precision; the draws of a large problem are rounded to single precision.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.decisions.host_optima import Optima, best_policies, episodic_values, policy_slopes
from bayes_mdp.decisions.host_values import NearbyPolicies, PolicyPairs, proven, row_faults
from bayes_mdp.decisions.policy_evaluation import (
    COPIES,
    DRAWN_AT_ONCE,
    NUMBERS_AT_ONCE,
    read_start,
    require_endless,
    require_rows,
    require_usable,
)
from bayes_mdp.inference.pair_draws import (
    Drawn,
    PairDraws,
    PairRows,
    limit_draws,
    pair_draws,
)
from bayes_mdp.mdp import AverageReward, CanSample, Discounted, Episodic, FirstExit, Objective
from bayes_mdp.mdp.abilities import Sizes, sizes_of
from bayes_mdp.mdp.labels import labels_of
from bayes_mdp.utils.memory import check_memory, free_bytes
from bayes_mdp.utils.typing import AnyArray, InitialLike

BATCH = 4  # policies that are evaluated at once in a large problem
MANY = 16  # and in a small one
SMALL = 4096  # pairs times outcomes of a small one

LARGE = 2**16  # possible outcomes of the pairs, from which draws are rounded to single precision

ROUNDED = 1e-9
"""Share of values at which iterations stop in draws of single precision."""

SEARCHED = 2**26  # numbers of draws that a search passes over, unless it needs more draws

MOST_KEPT, KEPT_SHARE = 2.0**31, 0.25  # bytes of draws that are held, at most, and share of the free memory

Policies = Float[AnyArray, "P *H S A"]
Which = slice | Int[np.ndarray, " V"]
"""Which of the draws."""

EVERY = slice(None)
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class CommonDraws:
    """Draws of a belief about an MDP (built by `draws_of`).

    Args:
        stream: starts the draws anew.
        kept: the draws, where they are held in memory.
        num: W, how many there are.
        sizes: of the belief.
        objective: of the values.
        start: distribution of the first state.
        initial_given: whether someone stated `start`.
        rows: the pairs that are drawn.
        known: digest of a policy -> its values, where draws are large: a search asks for some again.
    """

    stream: Callable[[], PairDraws]
    kept: Drawn | None
    num: int
    sizes: Sizes
    objective: Objective
    start: Float[np.ndarray, " S"]
    initial_given: bool
    rows: PairRows
    known: dict[bytes, Float[np.ndarray, " W"]] = field(default_factory=dict)

    @property
    def numbers(self) -> int:
        """How many numbers a draw holds."""
        return len(self.rows.pair) + len(self.rows.state)

    @property
    def is_rounded(self) -> bool:
        """Whether the draws are in single precision."""
        return len(self.rows.pair) > LARGE

    @property
    def policy_shape(self) -> tuple[int, ...]:
        """(*H, S, A), the shape of a policy for the objective."""
        pairs = self.sizes.shape[-2:]
        return (self.objective.horizon, *pairs) if isinstance(self.objective, Episodic) else pairs

    @property
    def batch(self) -> int:
        """How many policies a search tries at a time."""
        # Small problems are evaluated many policies at a time; large ones few, as their chains fill the memory.
        return MANY if self.numbers <= SMALL else BATCH

    def blocks(self, which: Which = EVERY, numbers: int | None = None) -> Iterator[tuple[Int[np.ndarray, " N"], Drawn]]:
        """Some of the draws as they are held, block by block, with their numbers.

        Args:
            which: of the draws.
            numbers: how many numbers are made of a draw that is held; None: all in double precision.
        """
        # Draws by their numbers, in order.
        selected = np.arange(self.num)[which]
        size = max(1, NUMBERS_AT_ONCE // (self.numbers if numbers is None else numbers))
        # Not held: the stream starts anew, and makes the same draws.
        number = int(selected.max(initial=-1)) + 1
        made = [(0, self.kept)] if self.kept is not None else _draw_blocks(self.stream(), number, self.objective)
        for first, drawn in made:
            inside = selected[(selected >= first) & (selected < first + len(drawn.probs))]
            # Made by the thousand, passed on by fewer: what is computed of a draw is a multiple of it.
            for start in range(0, len(inside), size):
                part = inside[start : start + size]
                yield part, _pick(drawn, part - first)

    def values(self, policies: Policies) -> Float[np.ndarray, "W P"]:
        """The value of every policy in every draw, for a search: -inf as of `evaluations`.

        Args:
            policies: action probabilities.

        Raises:
            ValueError: as `evaluations`.
        """
        policies = np.asarray(policies, np.float64)
        if len(self.rows.pair) <= LARGE or not len(policies):
            return self.evaluations(policies)[0]
        digests = [hashlib.sha256(policy.tobytes()).digest() for policy in policies]
        new = [i for i, digest in enumerate(digests) if digest not in self.known]
        if new:
            self.known.update(zip([digests[i] for i in new], self.evaluations(policies[new])[0].T, strict=True))
        return np.stack([self.known[digest] for digest in digests], -1)

    def evaluations(
        self, policies: Policies, precision: float = 0.0, names: Sequence[str] | None = None
    ) -> tuple[Float[np.ndarray, "W P"], Float[np.ndarray, "W P"]]:
        """The value of every policy in every draw, and the bounds on their numerical errors.

        Args:
            policies: action probabilities.
            precision: share of the values at which iterations may stop; zero: as near as rounding lets them.
            names: of policies that have to have finite values; None: of a search under `FirstExit`, in which a policy
                that need not end in some draw has -inf in all of them.

        Raises:
            ValueError: a value that is not finite in some draw, as `policy_value`.
        """
        policies = np.asarray(policies, np.float64)
        values, gaps = np.empty((2, self.num, len(policies)))
        objective = self.objective
        searched = names is None and isinstance(objective, FirstExit)
        names = [f"policy {i}" for i in range(len(policies))] if names is None else list(names)
        # By step: backward recursion, block by block.
        if isinstance(objective, Episodic):
            for part, drawn in self.blocks():
                for i, policy in enumerate(policies):
                    answer = episodic_values(self.rows, _in_double(self.rows, drawn), policy, objective)
                    values[part, i], gaps[part, i] = answer.at_start(objective, self.start), answer.gap
                require_usable(values[part], gaps[part], None, names, objective, int(part[0]))
            return values, gaps
        # Which pairs each policy takes does not depend on the draw.
        pairs = [PolicyPairs(self.rows, policy) for policy in policies]
        if self.is_rounded:
            # What rounding to single precision has lost no iterations bring back.
            precision = max(precision, ROUNDED)
        nearby = NearbyPolicies.of(pairs) if self.is_rounded and isinstance(objective, Discounted) else None
        for part, drawn in self.blocks(numbers=max((policy_pairs.numbers for policy_pairs in pairs), default=1)):
            drawn = _in_double(self.rows, drawn)
            near = None if nearby is None else nearby.values(drawn, float(objective.discount))
            for i, policy_pairs in enumerate(pairs):
                answer = proven(policy_pairs.chains(drawn), objective, max(precision, EPS)) if near is None else near[i]
                values[part, i], gaps[part, i] = answer.at_start(objective, self.start), answer.gap
            if not searched:
                require_usable(values[part], gaps[part], None, names, objective, int(part[0]))
        if searched:
            endless = ~(np.isfinite(values) & np.isfinite(gaps)).all(0)
            values[:, endless], gaps[:, endless] = -np.inf, 0.0
        return values, gaps

    def gradient(
        self, policy: Float[AnyArray, "*H S A"], weights: Float[np.ndarray, " W"]
    ) -> Float[np.ndarray, "*H S A"]:
        """Derivative by the action probabilities of sum_w weights_w value_w (see `policy_slopes`).

        Zero where the action is illegal, or not needed.
        """
        weights, total = np.asarray(weights), np.zeros(self.policy_shape)
        # A criterion of the tail weighs few of the draws.
        for part, slopes in self._slopes(policy, np.flatnonzero(weights)):
            total += np.tensordot(weights[part], slopes, axes=1)
        return total

    def gradients(self, policy: Float[AnyArray, "*H S A"]) -> Float[np.ndarray, "W *H S A"]:
        """The derivative of every draw's value by the action probabilities."""
        slopes = np.empty((self.num, *self.policy_shape))
        for part, block in self._slopes(policy, EVERY):
            slopes[part] = block
        return slopes

    def _slopes(
        self, policy: Float[AnyArray, "*H S A"], which: Which
    ) -> Iterator[tuple[Int[np.ndarray, " N"], Float[np.ndarray, "N *H S A"]]]:
        """`policy_slopes` of some of the draws."""
        policy, objective, rows = np.asarray(policy, np.float64), self.objective, self.rows
        pairs = None if isinstance(objective, Episodic) else PolicyPairs(rows, policy)
        for part, drawn in self.blocks(which):
            drawn = _in_double(rows, drawn) if pairs is None else drawn
            yield part, policy_slopes(rows, drawn, policy, objective, self.start, pairs=pairs)

    def best(self, near: Float[AnyArray, "*H S A"] | None = None) -> Float[np.ndarray, " W"]:
        """The optimal value of every draw, over all policies that know the draw (and use needed pairs alone).

        Args:
            near: a deterministic policy that is optimal in an MDP like the draws, such as their mean, to start from.

        Raises:
            ValueError: as `values`.
        """
        best = np.empty(self.num)
        for part, answer in self.optima(near=near):
            best[part] = answer.values.at_start(self.objective, self.start)
        return best

    def optimal_policies(self, number: int) -> Float[np.ndarray, "N *H S A"]:
        """The optimal policies of the first draws."""
        # Actions as one-hot rows: a deterministic policy.
        actions = [self._actions(answer.chosen) for _, answer in self.optima(slice(number))]
        return np.eye(self.sizes.n_actions)[np.concatenate(actions)]

    def _actions(self, chosen: Int[np.ndarray, "N *H S"]) -> Int[np.ndarray, "N *H S"]:
        action, step = self.rows.action, self.rows.step
        # `chosen` numbers pairs: back to their actions, step by step.
        if step is None:
            return action[chosen]
        return np.stack([action[step == h][chosen[:, h]] for h in range(chosen.shape[1])], 1)

    def optima(
        self, which: Which = EVERY, near: Float[AnyArray, "*H S A"] | None = None
    ) -> Iterator[tuple[Int[np.ndarray, " N"], Optima]]:
        """The best policies of some draws, block by block, with their numbers (see `best`).

        Raises:
            ValueError: as `values`.
        """
        policy = None if near is None else np.asarray(near, np.float64)
        for part, drawn in self.blocks(which):
            # Policy iteration in each draw, with a bound on its error.
            answer = best_policies(self.rows, _in_double(self.rows, drawn), self.objective, policy)
            values, gaps = answer.values.at_start(self.objective, self.start)[:, None], answer.values.gap[:, None]
            require_usable(values, gaps, None, ["the best policy"], self.objective, int(part[0]))
            yield part, answer


def draws_of(
    key: PRNGKeyArray,
    posterior: CanSample,
    objective: Objective,
    num_draws: int,
    *,
    initial: InitialLike | None = None,
    needed: Bool[np.ndarray, "S A"] | None = None,
    keep: bool = True,
    fewest: int | None = None,
) -> CommonDraws:
    """Draws of a posterior.

    Args:
        key, posterior, objective, initial, num_draws: as in `policy_value`.
        needed: the pairs that the policies to come may use; None: all legal ones.
        keep: hold the draws in memory, if they fit: there will be several passes.
        fewest: draws that are enough where all of them would have more than 2^26 numbers, which are then the limit.

    Raises:
        ValueError: `initial` is no distribution; one draw does not fit in memory.
    """
    posterior, num_draws = limit_draws(posterior, num_draws)
    sizes = sizes_of(posterior)
    used = sizes.possible if needed is None else np.broadcast_to(needed, sizes.shape)
    start, has_initial, _ = read_start(sizes, initial, labels_of(posterior))

    # The key is fixed: each pass over the stream makes the same draws. The first one has the stream that gave the rows.
    draws = pair_draws(key, posterior, used)
    unread = [draws]

    def stream() -> PairDraws:
        return unread.pop() if unread else pair_draws(key, posterior, used)

    numbers = len(draws.rows.pair) + len(draws.rows.state)
    # As many draws as a search can pass over, but never fewer than the criterion rests on.
    num = num_draws if fewest is None else min(num_draws, max(fewest, SEARCHED // max(numbers, 1)))
    check_memory(sizes.in_words, 8.0 * COPIES * numbers, "lists of successors take less")
    stored, rows = None, draws.rows
    # A quarter of the free memory at most; beyond it each pass draws anew.
    dtype = np.dtype(np.float64 if len(rows.pair) <= LARGE else np.float32)
    if keep and dtype.itemsize * num * numbers <= min(MOST_KEPT, KEPT_SHARE * free_bytes()):
        stored = Drawn(np.empty((num, len(rows.pair)), dtype), np.empty((num, len(rows.state)), dtype))
        for first, drawn in _draw_blocks(stream(), num, objective):
            for column, part in zip(stored, drawn, strict=True):
                column[first : first + len(part)] = part
    return CommonDraws(stream, stored, num, sizes, objective, start, has_initial, draws.rows)


def _draw_blocks(draws: PairDraws, num: int, objective: Objective) -> Iterator[tuple[int, Drawn]]:
    """So many draws, block by block as they are held, with the number of the first; rows that are none are refused."""
    rows = draws.rows
    # As many at once as fit, whatever the blocks of later passes are.
    size = max(1, DRAWN_AT_ONCE // (len(rows.pair) + len(rows.state)))
    for first in range(0, num, size):
        drawn = draws.draw(min(size, num - first))
        excess, ends = row_faults(rows, drawn)
        if isinstance(objective, AverageReward):
            require_endless(ends, first)
        require_rows(excess, first)
        yield first, drawn if len(rows.pair) <= LARGE else Drawn(*(x.astype(np.float32) for x in drawn))


def _pick(drawn: Drawn, which: Int[np.ndarray, " M"]) -> Drawn:
    """Some of the draws; those that lie side by side are not copied."""
    # A slice is a view, an index a copy.
    side_by_side = which[-1] - which[0] + 1 == len(which)
    index = slice(which[0], which[-1] + 1) if side_by_side else which
    return Drawn(*(x[index] for x in drawn))


def _in_double(rows: PairRows, drawn: Drawn) -> Drawn:
    """Draws in double precision, in which rows sum to one."""
    return Drawn(rows.in_double(drawn.probs), drawn.reward.astype(np.float64, copy=False))
