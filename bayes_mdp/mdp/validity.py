"""`Validity`: what a variance is, exact, an upper bound or a heuristic, and why."""

from typing import Literal, get_args

import equinox as eqx

from bayes_mdp.utils.validation import check_name, check_type

Kind = Literal["exact", "upper bound", "heuristic"]


class Validity(eqx.Module):
    """What a variance of a value is. Static: it is decided before anything is compiled.

    Args:
        kind: "exact" (the posterior variance, but for rounding and a stated Monte Carlo error), "upper bound" (proven
            for this belief, policy and objective), "heuristic" (neither: it may be too small).
        reason: why, as the end of a sentence.

    Raises:
        ValueError: `kind` is none of the three. TypeError: `reason` is no string.
    """

    kind: Kind = eqx.field(static=True)
    reason: str = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_name("kind", self.kind, get_args(Kind))
        check_type("reason", self.reason, str, "the end of a sentence")

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"
