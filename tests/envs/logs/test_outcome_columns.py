"""Columns beside the reward: read as rewards are, whole, in chunks and folded, and the bad cells of them."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.mdp.data.log_split import split_log
from tests.envs.logs.random_logs import fold_log

COLUMNS: dict[str, Any] = {"state": "s", "action": "a", "reward": "r", "outcomes": ["cost", "bed days"]}


def table(number: int = 60, seed: int = 0) -> pd.DataFrame:
    """Episodes of five steps, some costs missing."""
    rng = np.random.default_rng(seed)
    cost = rng.gamma(2.0, 3.0, number)
    cost[rng.random(number) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "s": rng.choice(list("abc"), number),
            "a": rng.choice(["x", "y"], number),
            "r": rng.normal(size=number),
            "cost": cost,
            "bed days": rng.integers(0, 9, number),
            "e": np.arange(number) // 5,
        }
    )


def read(source: Any, **options: Any) -> Any:
    return bm.read_log(source, **COLUMNS, episode="e", missing_reward="ignore", **options)


def test_they_are_the_rewards_of_logs_of_their_own(tmp_path):
    """The same numbers and masks as reading each column as the reward; from a file too."""
    frame = table()
    frame.to_csv(tmp_path / "log.csv", index=False)
    for source in (frame, tmp_path / "log.csv"):
        log = read(source)
        assert set(log.outcomes) == {"cost", "bed days"} and "outcomes beside the reward: cost, bed days" in str(log)
        assert "cost" not in dict(log.columns)  # which would say that rewards are minus costs
        for name in log.outcomes:
            alone = bm.read_log(source, state="s", action="a", reward=name, episode="e", missing_reward="ignore")
            shown = log.of_outcome(name)
            for field in ("state", "reward", "reward_observed", "next_observed"):
                np.testing.assert_array_equal(getattr(shown.transitions, field), getattr(alone.transitions, field))
            assert shown.column("reward") == name and not shown.outcomes
    with pytest.raises(ValueError, match="name is 'beds', expected"):
        read(frame).of_outcome("beds")


def test_chunks_are_the_whole():
    frame = table()
    whole = read(frame)
    for size in (1, 7, 60):
        options: dict[str, Any] = {**COLUMNS, "episode": "e", "missing_reward": "ignore", "states": list("abc")}
        parts = list(bm.envs.read_chunks(frame, **options, actions=["x", "y"], chunksize=size))
        for name in whole.outcomes:
            joined = np.concatenate([part.outcomes[name] for part in parts])
            np.testing.assert_array_equal(np.sort(joined), np.sort(whole.outcomes[name]))
        assert all("cost" not in dict(part.columns) for part in parts)


def test_folds_merge_to_one_fold():
    """The statistics of an outcome are those of a fold with that column as the reward, merged or not."""
    frame = table()
    options: dict[str, Any] = {"episode": "e", "missing_reward": "ignore"}
    whole = fold_log(frame, **COLUMNS, **options)
    merged = fold_log(frame[:35], **COLUMNS, **options).merge(fold_log(frame[35:], **COLUMNS, **options))
    space = bm.StateActionSpace.from_log(whole)
    for name in ("cost", "bed days"):
        alone = fold_log(frame, state="s", action="a", reward=name, **options).counts(space)
        for folded in (whole, merged):
            for one, two in zip(
                jax.tree.leaves(folded.of_outcome(name).counts(space)), jax.tree.leaves(alone), strict=True
            ):
                np.testing.assert_array_equal(one, two)
    with pytest.raises(ValueError, match="outcome 'cost' is in one of the folded logs alone"):
        whole.merge(fold_log(table(seed=1), state="s", action="a", reward="r", outcomes=["bed days"], **options))


def test_parts_of_a_log_keep_them():
    log = read(table())
    for part in split_log(jax.random.key(0), log):
        assert part.outcomes["cost"].shape == part.transitions.state.shape


def test_rewards_of_the_next_row_move_them_too():
    frame = table().fillna(1.0)
    log = read(frame, reward_at="next")
    alone = bm.read_log(
        frame, state="s", action="a", reward="cost", episode="e", missing_reward="ignore", reward_at="next"
    )
    shown = log.of_outcome("cost").transitions
    np.testing.assert_array_equal(shown.reward, alone.transitions.reward)
    np.testing.assert_array_equal(shown.reward_observed, alone.transitions.reward_observed)


@pytest.mark.parametrize(
    ("outcomes", "error", "message"),
    [
        ("cost", TypeError, "outcomes is 'cost', expected a list of names of columns"),
        ([1], TypeError, "outcomes is .*, expected a list of names"),
        (["cost", "cost"], ValueError, r"outcomes\[1\] is column 'cost', which is there twice"),
        (["r"], ValueError, r"outcomes\[0\] is column 'r', which is that of reward too"),
        (["beds"], ValueError, "no column 'beds'|'beds'"),
    ],
)
def test_what_is_refused(outcomes, error, message):
    with pytest.raises(error, match=message):
        bm.read_log(table(), state="s", action="a", reward="r", outcomes=outcomes, episode="e")


def test_bad_cells_of_all_columns_are_told_at_once():
    frame = table().astype({"cost": object, "r": object})
    frame.loc[3, "cost"], frame.loc[4, "r"] = "dear", "much"
    with pytest.raises(ValueError, match=r"row 4: outcomes\[0\] 'cost' is 'dear'.*row 5: reward 'r' is 'much'"):
        read(frame)
    with pytest.raises(ValueError, match=r"outcomes\[0\] 'cost' is empty, expected a number \(missing_reward='ignore'"):
        bm.read_log(table(), **COLUMNS, episode="e")
    for bad in ("inf", "1e400"):
        frame = table().astype({"bed days": object})
        frame.loc[0, "bed days"] = bad
        with pytest.raises(ValueError, match=r"outcomes\[1\] 'bed days' is"):
            read(frame)
        with pytest.raises(ValueError, match=r"outcomes\[1\] 'bed days' is"):
            fold_log(frame, **COLUMNS, episode="e", missing_reward="ignore")
