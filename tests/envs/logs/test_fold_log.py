# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""`fold_log` against the log read as a whole, and rewards summed as fractions."""

import tracemalloc
from fractions import Fraction
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.envs.logs import read_log as reading
from tests.envs.logs.random_logs import ACTIONS, STATES, fold_log, random_log, written

pytestmark = pytest.mark.filterwarnings("ignore:.*next_state is not the state")  # random ones


def independent(log, space, by_outcome):
    """Counts of a log by one Python loop: whole numbers and fractions, rounded once."""
    t, moments = log.transitions, {}
    n = np.zeros((*space.shape, space.n_outcomes))
    ends = np.zeros(len(t.state), bool) if t.terminated is None else t.terminated
    observed = np.ones(len(t.state), bool) if t.reward_observed is None else t.reward_observed
    for i in range(len(t.state)):
        step = () if space.horizon is None else (int(t.step[i]),)
        cell = (*step, int(t.state[i]), int(t.action[i]))
        outcome = space.n_states if ends[i] else int(t.next_state[i])
        led = t.next_observed is None or bool(t.next_observed[i])
        if led:
            n[(*cell, outcome)] += 1
        if observed[i] and (led or not by_outcome):
            moments.setdefault((*cell, outcome) if by_outcome else cell, []).append(Fraction(float(t.reward[i])))
    count, mean, ss = (np.zeros(n.shape if by_outcome else n.shape[:-1]) for _ in range(3))
    for cell, rewards in moments.items():
        centre = sum(rewards) / len(rewards)
        count[cell], mean[cell] = len(rewards), float(centre)
        ss[cell] = float(sum((r - centre) ** 2 for r in rewards))
    return bm.Counts(n, count, mean, ss)


def assert_same(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))


def assert_same_log(one, two):
    """Bit for bit, but for the places where cells were seen first."""
    assert (one.states, one.actions, one.by_step, one.has_rewards) == (
        two.states,
        two.actions,
        two.by_step,
        two.has_rewards,
    )
    a, b = one.cells, two.cells
    pairs = [*zip(a.where, b.where, strict=True), (a.count, b.count), (a.reward_count, b.reward_count)]
    pairs += [(x.digits, y.digits) for x, y in ((a.total, b.total), (a.squares, b.squares))]
    assert (a.total.lowest, a.squares.lowest) == (b.total.lowest, b.squares.lowest)
    assert all(np.array_equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("seeds", [10, pytest.param(400, marks=pytest.mark.slow)])
def test_any_chunks_give_the_counts_of_the_log(seeds):
    for seed in range(seeds):
        frame, columns = random_log(seed, holes=seed % 4 == 0)
        has_steps = "episode" in columns
        try:
            log = bm.read_log(frame, **columns)
        except ValueError:
            continue
        folds = [fold_log(frame, **columns, by_step=has_steps, chunksize=size) for size in (1, 4, 1000)]
        horizon = int(log.transitions.step.max()) + 1 if has_steps else None
        space = bm.StateActionSpace.from_log(folds[0], horizon=horizon, ends=True)
        assert (space.states, space.actions, folds[0].ends) == (log.states, log.actions, log.ends)
        for by_outcome in (False, True):
            expected = independent(log, space, by_outcome)
            assert_same(folds[0].counts(space, by_outcome=by_outcome), expected)
        flat = bm.StateActionSpace.from_log(log, ends=True)
        assert_same(folds[0].counts(flat), independent(log, flat, False))
        for other in folds[1:]:
            assert_same_log(folds[0], other)
        assert folds[0].n_transitions == log.n_transitions and folds[0].n_rows == len(frame)
        with pytest.warns(FutureWarning, match="log.n_steps is one more than"):  # of 0.2
            assert folds[0].n_steps == int(folds[0].cells.where.step.max()) + 1


@pytest.mark.parametrize("ending", ["csv", "parquet", "tsv.gz"])
def test_a_file_is_read_as_read_log_does(ending, tmp_path):
    for seed in range(8):
        frame, columns = random_log(seed)
        frame["s"], frame["n"] = frame["s"].map("abcd".index), frame["n"].map({**{s: i for i, s in enumerate("abcd")}})
        frame["n"] = frame["n"].astype("Int64")
        path = tmp_path / f"{seed}.{ending}"
        frame.to_csv(path, index=False, sep="\t") if "tsv" in ending else written(frame, path)
        try:
            log = bm.read_log(path, **columns)
        except ValueError:
            continue
        folded = fold_log(path, **columns, chunksize=5, by_step=False)
        space = bm.StateActionSpace.from_log(log, ends=True)
        assert (folded.states, folded.actions) == (log.states, log.actions)
        assert_same(folded.counts(space), independent(log, space, False))


@pytest.mark.filterwarnings("ignore:.*two spellings of one")
@pytest.mark.some(6)
@pytest.mark.parametrize(
    "labels",
    [
        ["007", "7", "8"],
        ["1", "2", "10"],
        ["1.5", "2", "1e1"],
        ["1", "x", "2"],
        ["-0", "3", "4"],
        [" 3", "3", "4"],
        ["True", "False", "true"],
        ["+1", "1", "2"],
        ["0.1", "0.10", "0.2"],
        ["99999999999999999999", "3", "-5"],
        ["s10", "s9", "s1"],
        ["a,b", 'q"q', "c"],
    ],
)
def test_labels_are_those_of_read_log_whatever_the_chunks(labels, tmp_path):
    rng = np.random.default_rng(0)
    state, reached = (rng.choice(labels, 30) for _ in range(2))
    frame = pd.DataFrame({"s": state, "a": rng.choice(labels, 30), "n": reached, "end": rng.random(30) < 0.3})
    frame.loc[frame["end"], "n"] = ""
    columns = {"state": "s", "action": "a", "next_state": "n", "terminated": "end"}
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.to_parquet(tmp_path / "log.parquet")
    for path in (tmp_path / "log.csv", tmp_path / "log.parquet"):
        log = bm.read_log(path, **columns)
        space = bm.StateActionSpace.from_log(log)
        for chunksize in (1, 7, 100):
            folded = fold_log(path, **columns, chunksize=chunksize)
            assert (folded.states, folded.actions) == (log.states, log.actions)
            assert [type(x) for x in folded.states] == [type(x) for x in log.states]
            n = np.zeros((*space.shape, space.n_outcomes))
            t = log.transitions
            np.add.at(n, (t.state, t.action, np.where(t.terminated, space.n_states, t.next_state)), 1)
            assert np.array_equal(folded.counts(space).transitions, n)


SPELLINGS = ["1", "1.0", "1.00", "2", "2.5", "2.50", "1e1", "10", "-0", "-0.0", "0", "007", "x", "9007199254740993",
             "9007199254740992.0", "9007199254740992", "True", "²", " 3", "3"]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*two spellings of one")
def test_spellings_of_numbers_are_the_same_labels_in_chunks_of_any_size(tmp_path):
    """Random columns of numbers written in one way or another: `fold_log` of any chunks finds what `read_log` does."""
    rng = np.random.default_rng(5)
    columns = {"state": "s", "action": "a", "next_state": "n", "terminated": "end"}
    path, texts = tmp_path / "log.csv", 0
    for _ in range(25):
        pool = rng.choice(SPELLINGS, size=rng.integers(1, 5), replace=False)
        size = int(rng.integers(1, 12))
        frame = pd.DataFrame({"s": rng.choice(pool, size), "a": "go", "n": rng.choice(pool, size)})
        frame["end"] = rng.random(size) < 0.4
        frame.loc[frame["end"], "n"] = ""
        frame.to_csv(path, index=False)
        log = bm.read_log(path, **columns)
        texts += isinstance(log.states[0], str)
        n = bm.Counts.of(log.transitions, bm.StateActionSpace.from_log(log)).transitions
        for chunksize in (1, 3, 100):
            folded = fold_log(path, **columns, chunksize=chunksize)
            assert (folded.states, [*map(type, folded.states)]) == (log.states, [*map(type, log.states)]), list(pool)
            assert np.array_equal(folded.counts(bm.StateActionSpace.from_log(log)).transitions, n)
    assert 5 < texts < 20


def shards(seed, number, tmp_path, n_states=12):
    """A log of continuous rewards in `number` CSV files, and its columns."""
    rng = np.random.default_rng(seed)
    size = 40 * number
    frame = pd.DataFrame(
        {"s": rng.integers(0, n_states, size), "a": rng.choice(list("xyz"), size), "n": rng.integers(0, n_states, size)}
    )
    frame["r"] = rng.normal(size=size) * 10.0 ** rng.integers(-8, 8, size)
    frame["end"] = rng.random(size) < 0.1
    paths = []
    for i in range(number):
        paths.append(tmp_path / f"{seed}-{i}.csv")
        frame.iloc[i * 40 : (i + 1) * 40].to_csv(paths[-1], index=False)
    return paths, {"state": "s", "action": "a", "reward": "r", "next_state": "n", "terminated": "end"}


def test_eight_shards_merged_are_one_pass_bit_for_bit(tmp_path):
    for seed in range(3):
        paths, columns = shards(seed, 8, tmp_path, 60)
        whole = fold_log(paths, **columns)
        apart = [fold_log(path, **columns, chunksize=9) for path in paths]
        # Labels differ from shard to shard: they are found again in the merged log.
        assert len({log.states for log in apart}) > 1
        order = np.random.default_rng(seed).permutation(8)
        merged = apart[order[0]]
        for i in order[1:]:
            merged = merged.merge(apart[i])
        assert_same_log(merged, whole)
        space = bm.StateActionSpace.from_log(whole)
        assert_same(merged.counts(space, by_outcome=True), whole.counts(space, by_outcome=True))
        assert {s.name for s in merged.sources} == {s.name for s in whole.sources}


class Parts:
    """What `fold_log` uses of a Dask dataframe."""

    def __init__(self, frame, number):
        self.frames = [frame.iloc[i] for i in np.array_split(np.arange(len(frame)), number)]
        self.npartitions = number

    def get_partition(self, n):
        frame = self.frames[n]

        class Lazy:
            def compute(self):
                return frame

        return Lazy()


def test_frames_partitions_and_iterables_of_them():
    frame, columns = random_log(3, spread=True)
    columns |= {"episode": "episode"}
    columns.pop("next_state", None)
    whole = fold_log(frame, **columns)
    # An episode goes on in the next partition.
    parted = fold_log(Parts(frame, 4), **columns, chunksize=3)
    assert_same_log(whole, parted)
    assert whole.sources == parted.sources
    # One without rows, at the beginning too, leaves no trace.
    parts = Parts(frame, 4)
    parts.frames, parts.npartitions = [frame.iloc[:0], *parts.frames, frame.iloc[:0]], 6
    assert fold_log(parts, **columns, chunksize=3).sources == whole.sources
    other, _ = random_log(5)
    with_next = {"state": "s", "action": "a", "reward": "r", "next_state": "same"}
    both = fold_log((one.assign(same=one["s"]) for one in (frame, other)), **with_next)
    assert [source.name for source in both.sources] == ["DataFrame 0", "DataFrame 1"]
    assert both.n_rows == len(frame) + len(other)


def test_the_same_log_twice_is_noticed(tmp_path):
    paths, columns = shards(0, 2, tmp_path)
    copy = tmp_path / "copy.csv"
    copy.write_bytes(paths[0].read_bytes())
    with pytest.raises(ValueError, match=r"copy\.csv has the content of 0-0\.csv, which is in already"):
        fold_log([*paths, copy], **columns)
    twice = fold_log([*paths, copy], **columns, allow_duplicates=True)
    assert twice.n_transitions == 120
    one, two = (fold_log(path, **columns) for path in (paths[0], copy))
    with pytest.raises(ValueError, match=r"copy\.csv has the content of 0-0\.csv"):
        one.merge(two)
    assert one.merge(two, allow_duplicates=True).n_transitions == 80
    frame = pd.read_csv(paths[0])
    with pytest.raises(ValueError, match="DataFrame 1 has the content of DataFrame 0"):
        fold_log([frame, frame.copy()], **columns)


def test_what_contradicts_the_space_is_named_by_file_and_row(tmp_path):
    paths, columns = shards(1, 3, tmp_path)
    frame = pd.read_csv(paths[1])
    folded = fold_log(paths, **columns, chunksize=17)
    # The rows of the second file from (s, a) that lead to n: forbid that outcome, and it is found there or earlier.
    s, a, n = frame.loc[frame["end"].eq(False), ["s", "a", "n"]].iloc[5]
    every = pd.concat([pd.read_csv(path).assign(file=path.name, row=range(1, 41)) for path in paths])
    first = every[(every.s == s) & (every.a == a) & (every.n == n) & ~every.end].iloc[0]
    support = np.ones((12, 3, 13), bool)
    support[s, "xyz".index(a), n] = False
    space = bm.StateActionSpace.from_log(folded, support=support)
    said = f"{first.file}, row {first.row}: action '{a}' in state {s} leads to next state {n}, expected an outcome in"
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        folded.counts(space)
    listed = np.where(support, np.arange(13), -1)
    space = bm.StateActionSpace(12, 3, ends=True, states=range(12), actions=["x", "y", "z"], successors=listed)
    with pytest.raises(ValueError, match=f"row {first.row}: .* expected a listed successor"):
        folded.counts(space)
    space = bm.StateActionSpace.from_log(folded, ends=False)
    with pytest.raises(ValueError, match="leads to the end of the episode, expected a space with ends=True"):
        folded.counts(space)
    legal = np.ones((12, 3), bool)
    legal[s, "xyz".index(a)] = False
    with pytest.raises(ValueError, match=f"action '{a}' in state {s} leads .* expected a legal action of the state"):
        folded.counts(bm.StateActionSpace.from_log(folded, legal=legal))
    with pytest.raises(ValueError, match=r"folded has no steps, expected a log folded with by_step=True"):
        folded.counts(bm.StateActionSpace.from_log(folded, horizon=3))


def test_counts_of_listed_successors_are_those_of_the_dense_space(tmp_path):
    paths, columns = shards(2, 4, tmp_path)
    folded = fold_log(paths, **columns)
    dense = bm.StateActionSpace.from_log(folded)
    rng = np.random.default_rng(0)
    listed = np.array([[rng.permutation(13) for _ in range(3)] for _ in range(12)])
    space = bm.StateActionSpace(12, 3, ends=True, states=folded.states, actions=folded.actions, successors=listed)
    full, few = (folded.counts(one, by_outcome=True) for one in (dense, space))
    for name in ("transitions", "reward_count", "reward_mean", "reward_ss"):
        there = np.take_along_axis(getattr(full, name), listed, -1)
        assert np.array_equal(there, getattr(few, name))


def test_a_space_gives_the_labels_and_a_label_that_it_has_not_is_refused(tmp_path):
    frame = pd.DataFrame({"s": ["a", "b", "z"], "a": [0, 1, 2], "n": ["b", "a", "a"]})
    frame.to_csv(tmp_path / "log.csv", index=False)
    columns = {"state": "s", "action": "a", "next_state": "n"}
    space = bm.StateActionSpace(4, 3, states=STATES, actions=ACTIONS)
    with pytest.raises(ValueError, match=r"log\.csv, row 3 \(line 4\): state 's' is 'z', expected one of the labels"):
        fold_log(tmp_path / "log.csv", **columns, space=space, chunksize=2)
    folded = fold_log(frame.iloc[:2], **columns, space=space)
    assert folded.states == STATES and folded.counts(space).transitions.sum() == 2
    with pytest.raises(ValueError, match="space and states are both given"):
        fold_log(frame, **columns, space=space, states=STATES)


def test_shards_that_cannot_be_one_log_are_refused(tmp_path):
    frame = pd.DataFrame({"s": [1, 2], "a": [0, 0], "n": [2, 1], "r": [0.0, 1.0], "t": [0, 1]})
    columns = {"state": "s", "action": "a", "next_state": "n"}
    log = fold_log(frame, **columns)
    text = frame.assign(s=["x", "1"], n=["1", "x"])
    with pytest.raises(ValueError, match="the states of the DataFrame are numbers and those of the DataFrame are not"):
        log.merge(fold_log(text, **columns))
    with pytest.raises(ValueError, match="folded without rewards"):
        log.merge(fold_log(frame, **columns, reward="r"))
    with pytest.raises(ValueError, match="folded without steps"):
        log.merge(fold_log(frame, **columns, step="t"))
    with pytest.raises(TypeError, match=r"other is .* expected a FoldedLog"):
        log.merge(frame)


def test_progress_is_told(tmp_path):
    paths, columns = shards(0, 2, tmp_path)
    told = []
    fold_log(paths, **columns, chunksize=25, progress=lambda *said: told.append(said))
    assert told == [("0-0.csv", 25), ("0-0.csv", 40), ("0-1.csv", 25), ("0-1.csv", 40)]


def test_nothing_to_read(tmp_path):
    columns = {"state": "s", "action": "a", "next_state": "n"}
    with pytest.raises(ValueError, match="source is empty, expected at least one log"):
        fold_log([], **columns)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        fold_log([tmp_path / "nowhere.csv"], **columns)
    (tmp_path / "log.csv").write_text("s,a,n\n")
    with pytest.raises(ValueError, match=r"log\.csv has no rows"):
        fold_log(tmp_path / "log.csv", **columns)
    (tmp_path / "log.csv").write_text("")
    with pytest.raises(ValueError, match=r"log\.csv is empty"):
        fold_log(tmp_path / "log.csv", **columns)
    (tmp_path / "log.parquet").write_text("no parquet")
    with pytest.raises(ValueError, match=r"log\.parquet cannot be read as a Parquet file"):
        fold_log(tmp_path / "log.parquet", **columns)
    with pytest.raises(TypeError, match="source is 3, expected a path, a DataFrame or a Dask dataframe"):
        fold_log(3, **columns)
    with pytest.raises(ValueError, match="next_state and episode are both None"):
        fold_log(tmp_path / "log.csv", state="s", action="a")
    with pytest.raises(ValueError, match="step and episode are both None"):
        fold_log(tmp_path / "log.csv", **columns, by_step=True)


@pytest.mark.parametrize("ending", [None, "csv", "parquet"])
def test_a_shard_without_transitions_is_passed_over_where_others_have_some(ending, tmp_path):
    columns = {"state": "s", "action": "a", "episode": "e", "terminated": "end"}
    frame = pd.DataFrame({"e": [0, 0, 1], "s": ["x", "y", "x"], "a": "go", "end": [0, 1, 0]})
    single, nothing = frame.assign(e=[7, 8, 9], end=0), frame.iloc[:0]

    def fold(*frames):
        if ending is None:
            return fold_log(frames, **columns)
        return fold_log([written(x, tmp_path / f"{i}.{ending}") for i, x in enumerate(frames)], **columns)

    for frames in ((frame, nothing, nothing), (nothing, nothing, frame)):
        log = fold(*frames)
        assert_same_log(log, fold(frame))
        assert len(log.sources) == 1
    log = fold(single, nothing, frame)
    assert (log.n_transitions, log.n_rows, len(log.sources)) == (2, 6, 2)
    lacks = r"(DataFrame 0|0\.\w+) has no episode of two rows; (DataFrame 1|1\.\w+) has no rows, expected at least one"
    with pytest.raises(ValueError, match=lacks):
        fold(single, nothing)
    with pytest.raises(ValueError, match=r"2(\.\w+)? has no rows; \.\.\., expected at least one transition"):
        fold(*[nothing] * 5)


@pytest.mark.few(1)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_memory_does_not_grow_with_rows(ending, tmp_path):
    """Four times the rows in chunks of the same size: about the same peak (of what Python and numpy allocate)."""
    rng, peaks = np.random.default_rng(0), []
    for i, size in enumerate((20_000, 80_000)):
        frame = pd.DataFrame({"s": rng.integers(0, 20, size), "a": 0, "n": rng.integers(0, 20, size)})
        frame["r"] = rng.normal(size=size)
        path = written(frame, tmp_path / f"{i}.{ending}")
        columns = {"state": "s", "action": "a", "reward": "r", "next_state": "n", "chunksize": 1000}
        fold_log(frame.iloc[:10], **columns)
        tracemalloc.start()
        assert fold_log(path, **columns).n_transitions == size
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.6 * peaks[0]


def test_the_logged_policy_is_that_of_the_log(tmp_path):
    paths, columns = shards(3, 2, tmp_path)
    log = bm.read_log(pd.concat([pd.read_csv(path) for path in paths]), **columns)
    folded = fold_log(paths, **columns)
    np.testing.assert_array_equal(bm.behaviour_policy(folded), bm.behaviour_policy(log))
    legal = np.ones((len(log.states), 3), bool)
    legal[0, 0] = False
    with pytest.raises(ValueError, match="expected a legal action of the state"):
        bm.behaviour_policy(folded, space=bm.StateActionSpace.from_log(folded, legal=legal))


def test_the_old_name_and_what_belongs_to_chunks():
    frame = pd.DataFrame({"s": ["a", "b"], "a": "go", "n": ["b", "a"]})
    columns: Any = {"state": "s", "action": "a", "next_state": "n"}
    with pytest.warns(FutureWarning, match=r"fold_log\(\.\.\.\) is read_log\(\.\.\., chunksize=1_000_000\) since 0.3"):
        assert reading.fold_log([frame], **columns).n_transitions == 2
    for name, value in (("by_step", False), ("allow_duplicates", True), ("progress", print)):
        more: Any = {name: value}
        with pytest.raises(ValueError, match=f"{name} is .* without chunksize, expected chunksize too"):
            bm.read_log(frame, **columns, **more)
    with pytest.raises(TypeError, match=r"source is of type list, expected a path .* \(several: chunksize=\)"):
        bm.read_log([frame], **columns)
    unknown: Any = {"rewards": "r"}
    with pytest.raises(TypeError, match="read_chunks has no argument 'rewards', expected those of read_log"):
        bm.envs.read_chunks(frame, **columns, **unknown, chunksize=1)


def test_a_log_with_the_labels_of_a_space():
    """Whole and in chunks: also those that it does not have."""
    frame = pd.DataFrame({"s": ["a", "b"], "a": "go", "n": ["b", "a"]})
    columns: Any = {"state": "s", "action": "a", "next_state": "n"}
    space = bm.StateActionSpace(3, 2, states=["c", "b", "a"], actions=["stay", "go"])
    whole, folded = (bm.read_log(frame, **columns, space=space, chunksize=size) for size in (None, 1))
    (chunk, _) = bm.envs.read_chunks(frame, **columns, space=space, chunksize=1)
    for log in (whole, folded, chunk):
        assert (log.states, log.actions) == (("c", "b", "a"), ("stay", "go"))
    with pytest.raises(ValueError, match="space and states are both given"):
        bm.read_log(frame, **columns, space=space, states=["a", "b"])


def parts(*episodes):
    """One frame a log, of (label, number of rows) an episode; steps begin at 0, or at a third number."""
    frames = []
    for each in episodes:
        rows = [(label, sum(first) + step) for label, size, *first in each for step in range(size)]
        frames.append(pd.DataFrame(rows, columns=["e", "t"]).assign(s=lambda x: np.where(x["t"] % 2, "p", "q")))
    return frames


@pytest.mark.parametrize("chunksize", [1, 3, 100])
def test_an_episode_that_goes_on_in_a_later_log_is_told(chunksize):
    def fold(frames, **options):
        columns = {"state": "s", "action": "a", "reward": "r", "episode": "e"} | options
        return fold_log([frame.assign(a="x", r=1.0) for frame in frames], chunksize=chunksize, **columns)

    said = (
        r"DataFrame 2, row {}: episode {} neither terminated nor was truncated in an earlier log, and counts as another"
    )
    one = [("a", 3), ("b", 2)], [("c", 2), ("d", 1)]
    for goes_on, row in (("a", 3), ("d", 3)):
        with pytest.warns(UserWarning, match=said.format(row, f"'{goes_on}'")) as told:
            fold(parts(*one, [("f", 2), (goes_on, 2), ("b", 1)]))
        assert len(told) == 1
    # By its steps: one that goes on, not one that begins again.
    with pytest.warns(UserWarning, match=said.format(3, "'b'")):
        fold(parts(*one, [("a", 2), ("b", 2, 2)]), step="t")
    fold(parts(*one, [("a", 2), ("b", 2)]), step="t")
    # Other labels, episodes that ended, and a label that is met again in its own log.
    fold(parts(*one, [("f", 2), ("g", 5), ("f", 1, 2)]), step="t")
    fold(parts([("a", 4), ("b", 2)], [("a", 2), ("b", 2)]), step="t", by_step=True)
    for flag in ("terminated", "truncated"):
        ended = [frame.assign(end=~frame["e"].duplicated(keep="last")) for frame in parts([("a", 3)], [("a", 2)])]
        fold(ended, **{flag: "end"})
    known = [frame.assign(n="p") for frame in parts([("a", 3)], [("a", 2, 3)])]
    assert fold(known, next_state="n").n_transitions == 5
