"""`Search`: simulations for one decision, in one tree. Host side."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.mdp.lazy_belief import LazyBelief, LazyRewards, LazyRows
from bayes_mdp.planning.tree_search.limits import search_depth
from bayes_mdp.planning.tree_search.simulations import Model, Rules, Tree, Urns, run_simulations
from bayes_mdp.planning.tree_search.trees import RootAnswer, root_answer


class Decision(NamedTuple):
    """Where a decision is, and what is summed.

    Args:
        state, step: the state, and the step of the episode.
        horizon: steps of an episode; None: it goes on until it ends.
        discount: of the next step.
        episodes: that a simulation plays at most, this one included; None: as many as its steps reach.
    """

    state: int
    step: int
    horizon: int | None
    discount: float
    episodes: int | None = 1


def default_exploration(rewards: LazyRewards, depth: int, discount: float) -> float:
    """c of UCT: the range of the rewards of a step, zero included, times the square root of the number of steps.

    The range is over all cells, also those of illegal pairs; where values differ by component, of their means over
    components plus and minus a standard deviation. Steps are counted with their discounts. The bonus of UCT is meant
    for returns in [0, 1]; the scale of a return is its range. By the square root, as of sums of independent rewards, it
    is less for long simulations. Measured on 22 problems with exact values (`benchmarks/bayes_adaptive.py`).
    """
    mean, sd = rewards.value.mean(0), rewards.value.std(0)
    reach = float(max((mean + sd).max(), 0.0) - min((mean - sd).min(), 0.0)) or 1.0
    steps = depth if discount >= 1.0 else (1.0 - discount**depth) / (1.0 - discount)
    return reach * steps**0.5


class Search:
    """One decision: simulations from a state, as many as are asked for, in one tree.

    Args:
        belief: arrays of NumPy, as in `LazyBelief`.
        legal: Bool[S A]; None: all actions.
        initial: Float[S], distribution of the first state of the next episodes; None: not known, one episode is played.
        decision: where it is, and what is summed.
        exploration: c of UCT; None: see `default_exploration`.
        random_rollouts: probability that an action of a rollout is random.
        rollout_q: Float[S A], in which it is greedy otherwise.
        max_depth: steps of a simulation at most; None: see `search_depth`.
        rng: of the simulations.
        tree: to go on with; it is changed.
    """

    def __init__(
        self,
        belief: LazyBelief,
        legal: Bool[np.ndarray, "S A"] | None,
        initial: Float[np.ndarray, " S"] | None,
        decision: Decision,
        *,
        exploration: float | None,
        random_rollouts: float,
        rollout_q: Float[np.ndarray, "S A"],
        max_depth: int | None,
        rng: np.random.Generator,
        tree: Tree,
    ) -> None:
        episodes = 1 if initial is None else decision.episodes
        depth = search_depth(decision.horizon, decision.step, max_depth, decision.discount, episodes)
        if exploration is None:
            exploration = default_exploration(belief.rewards, depth, decision.discount)
        self._rules = Rules(
            decision.state,
            decision.step,
            decision.horizon or 0,
            episodes or depth,
            depth,
            decision.discount,
            float(exploration),
            float(random_rollouts),
        )
        self._model = _model(belief, legal, initial, rollout_q.shape)
        self._rows, self._rewards = _urns(belief.rows, depth), _urns(belief.rewards, depth)
        self._rollout_q = np.ascontiguousarray(rollout_q, np.float64)
        self._rng = rng
        self.tree = tree

    def run(self, num_simulations: int) -> None:
        """So many more simulations."""
        run_simulations(
            self.tree,
            self._model,
            self._rows,
            self._rewards,
            self._rules,
            self._rollout_q,
            num_simulations,
            self._rng,
        )

    def answer(self) -> RootAnswer:
        """What all simulations so far say."""
        return root_answer(self.tree)


def _model(
    belief: LazyBelief,
    legal: Bool[np.ndarray, "S A"] | None,
    initial: Float[np.ndarray, " S"] | None,
    shape: tuple[int, ...],
) -> Model:
    allowed = np.ones(shape, bool) if legal is None else np.asarray(legal)
    rows, rewards = belief.rows, belief.rewards
    row, tables = _whole(rows.row), (rows.row, rows.outcome, rows.successor, rewards.cell)
    steps = max(len(table) for table in tables if table is not None)
    return Model(
        weights=np.cumsum(np.asarray(belief.weights, np.float64)),
        row=np.ascontiguousarray(np.broadcast_to(row, (steps, *row.shape[1:]))),
        outcome=_whole(rows.outcome),
        successor=_whole(rows.successor),
        cell=_whole(rewards.cell),
        value=np.ascontiguousarray(rewards.value, np.float64),
        actions=np.argsort(~allowed, axis=1, kind="stable"),
        num_actions=allowed.sum(1),
        initial=np.cumsum(np.zeros(0) if initial is None else np.asarray(initial, np.float64)),
    )


def _whole(table: object) -> Int[np.ndarray, "..."]:
    return np.zeros((0, 0, 0, 0), np.int64) if table is None else np.ascontiguousarray(table, np.int64)


def _urns(part: LazyRows | LazyRewards, depth: int) -> Urns:
    cumulative = np.ascontiguousarray(part.cumulative, np.float64)
    number = cumulative.shape[1]
    learns = np.ascontiguousarray(part.learns, np.bool_)
    size, stamp = np.zeros((2, number), np.int64)
    # Memory of pages that are never written is never taken.
    drawn = np.zeros((number if learns.any() else 1, depth), np.int32)
    return Urns(cumulative, learns, size, stamp, drawn)
