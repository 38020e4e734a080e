"""`InformationValue`: what it is worth to know more before deciding, with its error and what kind of number it is."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["EVPI", "EVPPI", "EVSI"]
Standing = Literal["exact", "unbiased", "upper bound", "estimate"]
PER_DECISION = "in the unit of the net benefit, for one decision"


@dataclass(frozen=True)
class InformationValue:
    """An expected value of information; `print` shows it in words.

    Args:
        kind: "EVPI", "EVPPI" or "EVSI".
        about: sites, or the study.
        value: of the information, in the unit that `unit` says.
        standard_error: Monte Carlo error of `value`; 0 where nothing was drawn.
        numerical_error: of the integration, in the unit of `value`: how far two rules differ; 0 where none was used.
        strategies: the decision set. The number depends on it.
        best: the strategy with the highest mean net benefit without more information.
        wtp: willingness to pay; None: there is one outcome.
        standing: "exact" (but for rounding, and a numerical error of at most 1e-6 of it), "unbiased" (but for Monte
            Carlo error), "upper bound" (in expectation), "estimate" (none of these).
        reason: how it was computed, and why it stands so.
        useless: by regression, the value found for the same sites in random order, whose true value is 0.
        unit: of `value`, in words: for one decision, or of policies for one start.
        warning: of policies, how much of it is the prior's alone, in words; "": nothing to warn of, or not known.
    """

    kind: Kind
    about: str
    value: float
    standard_error: float
    numerical_error: float
    strategies: tuple[str, ...]
    best: str
    wtp: float | None
    standing: Standing
    reason: str
    useless: float | None = None
    unit: str = PER_DECISION
    warning: str = ""

    def __str__(self) -> str:
        """A few lines for a person."""
        at = "" if self.wtp is None else f", willingness to pay {self.wtp:g}"
        error = "" if not self.standard_error else f" (Monte Carlo error {self.standard_error:.2g})"
        lines = [
            f"{self.kind} of {self.about}{at}: {self.value:.6g}{error}",
            f"  {self.standing}: {self.reason}",
            f"  {self.unit}",
            f"  strategies {', '.join(self.strategies)}; best without it: {self.best}",
        ]
        if self.useless is not None:
            lines.append(f"  the same sites in random order, which are worth 0: {self.useless:.6g}")
        if self.warning:
            lines.append(f"  {self.warning}")
        return "\n".join(lines)
