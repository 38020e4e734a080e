"""`log_chunks`: a log as a sequence of smaller ones, whose transitions together are exactly those of the whole."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from bayes_mdp.envs.logs.chunked_tables import ChunkedLog, open_log
from bayes_mdp.envs.logs.label_book import LabelBook
from bayes_mdp.envs.logs.transition_chunks import Rows, Wanted, transition_chunks
from bayes_mdp.mdp import Log, Transitions
from bayes_mdp.utils.validation import check_count


def log_chunks(
    source: object,
    roles: dict[str, Any],
    states: Sequence[Hashable] | None,
    actions: Sequence[Hashable] | None,
    chunksize: int,
    ignore_missing: bool,
) -> Iterator[Log]:
    """The chunks of a log; arguments and errors as for `read_log`, which checks them.

    Raises:
        ValueError: states or actions are None: labels that are found on the way have no numbers before the end.
    """
    check_count("chunksize", chunksize)
    for name, labels in (("states", states), ("actions", actions)):
        if labels is None:
            raise ValueError(
                f"{name} is None, expected all labels in order, where chunksize is given: labels are numbered in "
                "natural order, which is known at the end of a log (fold_log finds them)"
            )
    books = LabelBook("state", states), LabelBook("action", actions)
    log = open_log(source, roles, chunksize)
    steps = roles.get("step") is not None or roles.get("episode") is not None
    rows = transition_chunks(log, *books, Wanted(steps, True, ignore_missing))
    return (_log(some, books, log) for some in rows)


def _log(rows: Rows, books: tuple[LabelBook, LabelBook], source: ChunkedLog) -> Log:
    reward, observed = rows.reward, None
    if reward is not None and np.isnan(reward).any():
        reward, observed = np.where(np.isnan(reward), 0.0, reward), ~np.isnan(reward)
    # The next state of a transition that ended is not looked at.
    reached = np.maximum(rows.next_state, 0)
    step = None if rows.step is None else rows.step.astype(np.int32)
    columns = (rows.state, rows.action, reward, reached, rows.terminated, rows.truncated, step)
    states, actions = (book.finish()[0] for book in books)
    transitions = Transitions(*columns, reward_observed=observed)
    return Log(transitions, states, actions, source.name, columns=source.columns)
