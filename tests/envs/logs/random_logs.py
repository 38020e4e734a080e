"""Random logs for tests of chunks: every combination of columns, episodes in one piece or spread."""

import numpy as np
import pandas as pd

import bayes_mdp as bm

STATES, ACTIONS = ("a", "b", "c", "d"), (0, 1, 2)
COLUMNS = {"state": "s", "action": "a", "reward": "r"}


def fold_log(source, *, chunksize=10**6, **columns):
    """Logs as their sufficient statistics, as they are read in chunks."""
    return bm.read_log(source, chunksize=chunksize, **columns)


def random_log(seed, *, spread=None, holes=False):
    """(frame, arguments of `read_log`): 1 to 60 rows in episodes of 1 to 8."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, size=rng.integers(1, 12))
    episode = np.repeat(rng.permutation(len(lengths)), lengths)
    if spread if spread is not None else rng.random() < 0.5:
        rng.shuffle(episode)
    size = len(episode)
    frame = pd.DataFrame({"episode": episode, "s": rng.choice(STATES, size), "a": rng.choice(ACTIONS, size)})
    frame["r"] = rng.choice(np.array([0.1, -2.5, 1 / 3, 4.0]), size) if rng.random() < 0.5 else rng.normal(size=size)
    frame["n"] = rng.choice(STATES, size)
    frame["end"], frame["cut"] = rng.random(size) < 0.2, rng.random(size) < 0.2
    if holes:
        frame.loc[rng.random(size) < 0.2, "r"] = np.nan
    used = dict(COLUMNS)
    if rng.random() < 0.5:
        used["episode"] = "episode"
    if "episode" not in used or rng.random() < 0.5:
        used["next_state"] = "n"
        frame.loc[frame["end"] & (rng.random(size) < 0.5), "n"] = None if rng.random() < 0.5 else "elsewhere"
    used |= {name: column for name, column in (("terminated", "end"), ("truncated", "cut")) if rng.random() < 0.6}
    if "terminated" not in used:
        frame["n"] = rng.choice(STATES, size)
    return frame, used | ({"missing_reward": "ignore"} if holes else {})


def written(frame, path):
    """The path of the frame as a file, by the ending of `path`."""
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    return path


FAULTS = ("none", "offset", "gap", "swap", "shuffle", "repeat", "restart", "reused")


def random_steps(seed, fault):
    """(frame, arguments of `read_log`): episodes with steps, next states those of the next rows, with a fault or none.

    Faults: the first step is not zero (which is none), a row is missing, two rows of an episode change places, all rows
    do, a row is there twice, steps begin again, an episode has the label of one before.
    """
    rng = np.random.default_rng([seed, FAULTS.index(fault)])
    lengths = rng.integers(1, 7, size=rng.integers(2, 8))
    episode = np.repeat(rng.permutation(len(lengths)), lengths)
    if rng.random() < 0.5:
        episode = rng.permutation(episode)  # episodes interleaved, each in order
    step = pd.Series(episode).groupby(episode).cumcount()
    size = len(episode)
    frame = pd.DataFrame({"episode": episode, "t": step, "s": rng.choice(STATES, size), "a": rng.choice(ACTIONS, size)})
    frame["r"], frame["end"] = rng.normal(size=size), rng.random(size) < 0.2
    one = rng.choice(np.unique(episode))
    rows = np.flatnonzero(frame["episode"] == one)
    some = int(rng.choice(rows))
    if fault == "offset":
        frame.loc[rows, "t"] += 3
    elif fault == "gap":
        frame = frame.drop(some)
    elif fault == "swap":
        other = int(rng.choice(rows))
        frame.iloc[[some, other]] = frame.iloc[[other, some]].to_numpy()
    elif fault == "shuffle":
        frame = frame.sample(frac=1.0, random_state=seed)
    elif fault == "repeat":
        frame = pd.concat([frame.iloc[: some + 1], frame.iloc[some:]])
    elif fault == "restart":
        frame.loc[some, "t"] = 0
    elif fault == "reused":
        frame["episode"] = frame["episode"].replace(one, int(rng.choice(episode)))
    frame = frame.infer_objects().reset_index(drop=True)
    columns = {**COLUMNS, "episode": "episode", "step": "t"}
    return frame, columns | ({"terminated": "end"} if rng.random() < 0.7 else {})
