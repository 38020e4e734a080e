"""`PossibleOutcomes`: transitions of the data that a program gives probability zero are refused before it is sampled.

A chain that starts where the data are impossible sees a log density of minus infinity wherever it looks, and its draws
mean nothing. Whether a probability is zero for all parameters cannot be read from values: it is looked at in draws of
the prior, and a transition is refused that has probability zero, in double precision, in all of them. That is a
heuristic. Probabilities below 1e-308 are rounded to zero, and a program may allow a transition for rare parameters
alone: a kernel of one's own (`NUTS(kernel=...)`), which may start where the data are possible, is not checked.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.mdp import Counts, StateActionSpace, Transitions, check_transitions
from bayes_mdp.mdp.space import END
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.validation import first_index

BATCHES = 16
"""Batches of draws at most; one is enough where every observed transition is possible in one of its draws."""


class PossibleOutcomes:
    """Which outcomes have a positive probability in some draw of the prior. Host-side; draws are made when needed.

    Args:
        space: of the program.
        rows: number of a batch -> [N *H S A O], transition probabilities in N draws of the prior.
    """

    def __init__(self, space: StateActionSpace, rows: Callable[[int], Float[np.ndarray, "N *H S A O"]]) -> None:
        self.space, self._rows = space, rows
        self._possible: Bool[np.ndarray, "*H S A O"] | None = None
        self._batches = self._draws = 0

    def check(self, data: Transitions | Counts) -> None:
        """Refuse data with a transition that is impossible in all draws.

        Args:
            data: of the space.

        Raises:
            ValueError: names the first such row (of counts: the first cell) by its labels; data that the space cannot
                hold. TypeError: likewise.
        """
        if isinstance(data, Transitions):
            check_transitions(data, self.space)
            index = tuple(np.atleast_1d(np.asarray(x)) for x in (*data.cell(self.space), data.outcome(self.space)))
        else:
            index = np.nonzero(np.asarray(data.transitions))
        while True:
            possible = np.ones(index[0].shape, bool) if self._possible is None else self._possible[index]
            if self._possible is not None and (possible.all() or self._batches == BATCHES):
                break
            self._look_again()
        place = first_index(~possible)
        if place is not None:
            cell = tuple(int(x[place]) for x in index)
            name = f"data[{place[0]}]" if isinstance(data, Transitions) else f"data.transitions{list(cell)}"
            raise ValueError(self._sentence(name, cell))

    def _look_again(self) -> None:
        rows = self._rows(self._batches)
        self._batches, self._draws = self._batches + 1, self._draws + len(rows)
        # What is not a number is another fault, and is reported as such.
        seen = ~(rows == 0).all(0)
        self._possible = seen if self._possible is None else self._possible | seen

    def _sentence(self, name: str, index: tuple[int, ...]) -> str:
        """The refusal of one transition, by its labels."""
        space = self.space
        *step, state, action, outcome = index
        if space.successors is not None:
            outcome = int(np.broadcast_to(space.successors, (*space.shape, space.n_outcomes))[index])
        reached = (*space.state_names, END)[outcome]
        where = f"step {step[0]}, " if step else ""
        where += f"state {space.state_names[state]!r}, action {space.action_names[action]!r}, next {reached!r}"
        return (
            f"{name} ({where}) has probability zero in each of {self._draws} draws of the prior, expected a program "
            "that allows it, or data without it; if rare parameters allow it, start there: NUTS(kernel=lambda model: "
            f"numpyro.infer.NUTS(model, init_strategy=...)) {see('how-to/write-a-prior')}"
        )
