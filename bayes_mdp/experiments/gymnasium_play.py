"""One seed in a Gymnasium environment: the loops over steps."""

import numpy as np

from bayes_mdp.experiments.actor import Actor
from bayes_mdp.experiments.gymnasium_envs import ParallelEnvs, SingleEnv, Step
from bayes_mdp.experiments.layout import Layout
from bayes_mdp.experiments.progress import Progress


class Diary:
    """Rewards of the rows of one seed.

    Args:
        layout: rows are episodes, or the steps between two checkpoints.
        bar: told of every row that is finished.
        first_row: of this seed, among those of all seeds.
    """

    def __init__(self, layout: Layout, bar: Progress, first_row: int) -> None:
        self.layout, self.reward = layout, np.zeros(layout.num_rows)
        self._bar, self._first_row = bar, first_row

    def finished(self, rows: int) -> None:
        """So many rows are."""
        self._bar.advance(self._first_row + rows)


def play(opened: SingleEnv | ParallelEnvs, actor: Actor, diary: Diary, *, seed: int) -> None:
    """All rows, whether of one environment or of parallel ones."""
    if isinstance(opened, ParallelEnvs):
        _play_lanes(opened, actor, diary, seed)
    else:
        _play_one(opened, actor, diary, seed)


def _play_one(opened: SingleEnv, actor: Actor, diary: Diary, seed: int) -> None:
    """One environment: rows of steps, or episodes."""
    layout, begins = diary.layout, True
    observation, given = -1, seed
    for row in range(layout.num_rows):
        total, begins = 0.0, begins or layout.episodic
        steps = min(layout.row_length, layout.num_steps - row * layout.row_length)
        for _ in range(steps):
            if begins:
                observation, given = opened.reset(given), None
                actor.reset(observation)
            action = actor.act(observation)
            following, reward, terminated, truncated = opened.step(action)
            actor.observe(observation, action, reward, following, terminated, truncated)
            total += reward
            observation, begins = following, terminated or truncated
            if begins and layout.episodic:
                break
        diary.reward[row] = total
        diary.finished(row + 1)


def _play_lanes(opened: ParallelEnvs, actor: Actor, diary: Diary, seed: int) -> None:
    """Parallel environments, whose transitions are counted one after the other; what follows the last is dropped."""
    count = (Episodes if diary.layout.episodic else Steps)(opened.lanes, diary.layout)
    observation = opened.reset(seed)
    actor.reset(observation, mask=count.plays)
    while count.goes_on:
        action = actor.act(observation)
        step = opened.step(action, count.last)
        counted, rows = count.take(step)
        ends = (step.terminated, step.truncated)
        actor.observe(observation, action, step.reward, step.following, *ends, mask=counted)
        np.add.at(diary.reward, rows[counted], step.reward[counted])
        actor.reset(step.observation, mask=step.fresh & count.plays)
        observation = step.observation
        diary.finished(count.rows_over)


class Steps:
    """Which transitions count in a run of `num_steps`, and in which row."""

    def __init__(self, lanes: int, layout: Layout) -> None:
        self._layout, self._taken = layout, 0
        self.plays, self.last = np.ones(lanes, bool), np.zeros(lanes, bool)

    @property
    def goes_on(self) -> bool:
        """Whether steps are left."""
        return self._taken < self._layout.num_steps

    @property
    def rows_over(self) -> int:
        """Rows that are finished."""
        return min(self._taken // self._layout.row_length, self._layout.num_rows)

    def take(self, step: Step) -> tuple[np.ndarray, np.ndarray]:
        """Which environments count, and their rows."""
        when = self._taken + np.cumsum(step.happened) - 1
        counted = step.happened & (when < self._layout.num_steps)
        self._taken += int(counted.sum())
        return counted, when // self._layout.row_length


class Episodes:
    """Which transitions count in a run of episodes, numbered in the order in which they begin."""

    def __init__(self, lanes: int, layout: Layout) -> None:
        self._layout, self._next = layout, lanes
        self._row, self._step = np.arange(lanes), np.zeros(lanes, int)
        self.rows_over = 0

    @property
    def plays(self) -> np.ndarray:
        """Bool[B], the environments whose episode counts (no other is begun beyond the last)."""
        return self._row < self._layout.num_rows

    @property
    def last(self) -> np.ndarray:
        """Bool[B], whether the next step is the last of an episode that counts."""
        return self.plays & (self._step == self._layout.row_length - 1)

    @property
    def goes_on(self) -> bool:
        """Whether episodes are left."""
        return self.rows_over < self._layout.num_rows

    def take(self, step: Step) -> tuple[np.ndarray, np.ndarray]:
        """Which environments count, and their episodes."""
        counted, rows = step.happened & self.plays, self._row.copy()
        over = counted & (step.terminated | step.truncated | self.last)
        self._step += counted
        self._step[over] = 0
        self._row[over] = self._next + np.arange(over.sum())
        self._next += int(over.sum())
        self.rows_over += int(over.sum())
        return counted, rows
