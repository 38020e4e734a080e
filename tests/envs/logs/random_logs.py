"""Random logs for tests of chunks: every combination of columns, episodes in one piece or spread."""

import numpy as np
import pandas as pd

STATES, ACTIONS = ("a", "b", "c", "d"), (0, 1, 2)
COLUMNS = {"state": "s", "action": "a", "reward": "r"}


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
