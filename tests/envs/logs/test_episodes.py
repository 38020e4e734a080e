# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Steps that do not follow each other are refused alike by every reader, whatever the chunks."""

import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.envs.logs.episodes import OpenEpisodes
from tests.envs.logs.random_logs import ACTIONS, FAULTS, STATES, fold_log, random_steps, written
from tests.envs.logs.test_fold_log import assert_same, independent
from tests.envs.logs.test_transition_chunks import rows

LABELS = {"states": STATES, "actions": ACTIONS}


def first_gap_by_loop(frame):
    """(row, the row before it in its episode), both from 1, of the first step that does not follow: one Python loop."""
    before = {}
    for i, (episode, step) in enumerate(zip(frame["episode"], frame["t"], strict=True)):
        if episode in before and step != before[episode][1] + 1:
            return i + 1, before[episode][0] + 1
        before[episode] = (i, step)
    return None


def outcome(read, source, columns, **options):
    """What was read, or the sentence with which it was refused."""
    try:
        found = read(source, **columns, **LABELS, **options)
        return list(found) if read is bm.envs.read_chunks else found
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seeds", [4, pytest.param(25, marks=pytest.mark.slow)])
def test_all_readers_refuse_the_same_logs_with_the_same_sentence(fault, seeds, tmp_path):
    refused = 0
    for seed in range(seeds):
        frame, columns = random_steps(seed, fault)
        source = frame if seed % 2 else written(frame, tmp_path / "log.csv")
        whole = outcome(bm.read_log, source, columns)
        gap = first_gap_by_loop(frame)
        assert (gap is not None) == (isinstance(whole, str) and "step" in whole), (seed, whole)
        if gap is not None:
            refused += 1
            after, again = f"the step after that of row {gap[1]} of its episode", f"once: row {gap[1]} has it too"
            assert f"row {gap[0]}" in whole and (after in whole or again in whole)
        for chunksize in (1, 2, 5, 1000):
            chunked = outcome(bm.envs.read_chunks, source, columns, chunksize=chunksize)
            folded = [
                outcome(fold_log, source, columns, chunksize=chunksize, by_step=by_step) for by_step in (False, True)
            ]
            if isinstance(whole, str):
                assert chunked == folded[0] == folded[1] == whole, (seed, chunksize)
                continue
            assert sorted(rows(chunked), key=repr) == sorted(rows([whole]), key=repr)
            horizon = int(whole.transitions.step.max()) + 1
            for log, steps in zip(folded, (None, horizon), strict=True):
                space = bm.StateActionSpace.from_log(whole, ends=True, horizon=steps)
                assert_same(log.counts(space), independent(whole, space, False))
    if seeds > 4:
        assert (refused == 0) if fault in ("none", "offset") else (refused > seeds // 10), refused


def test_a_gap_behind_a_terminated_row_in_an_earlier_chunk_is_found():
    """The last row of an episode that terminated is kept for this."""
    frame = pd.DataFrame({"episode": [1, 1, 2, 1], "t": [0, 1, 0, 1], "s": list("abca"), "a": 0})
    frame["end"] = [False, True, True, False]
    columns = {"state": "s", "action": "a", "episode": "episode", "step": "t", "terminated": "end"}
    for chunksize in (1, 2, 3):
        with pytest.raises(
            ValueError, match="row 4: step 't' is 1, expected each step of an episode once: row 2 has it"
        ):
            fold_log(frame, **columns, chunksize=chunksize)


def test_rows_of_finished_episodes_are_kept_only_where_steps_are_checked():
    held = {}
    for checks in (False, True):
        episodes = OpenEpisodes(looks_ahead=True, counts_places=False, checks_steps=checks)
        codes = np.arange(5)
        columns = {
            "state": codes,
            "action": codes,
            "terminated": np.ones(5, bool),
            "step": np.zeros(5, int),
            "row": codes,
        }
        episodes.advance(codes, range(5), columns)
        held[checks] = len(episodes._labels)
    assert held == {False: 0, True: 5}


def test_steps_of_rows_with_next_states_may_be_anything():
    frame = pd.DataFrame({"e": [1, 1, 1], "t": [4, 9, 1], "s": list("aba"), "a": 0, "n": list("bab")})
    columns = {"state": "s", "action": "a", "episode": "e", "step": "t", "next_state": "n"}
    assert fold_log(frame, **columns, chunksize=2).n_transitions == 3
    with pytest.raises(ValueError, match="row 2: step 't' is -1, expected a whole number"):
        fold_log(frame.assign(t=[0, -1, 2]), **columns, by_step=False)
