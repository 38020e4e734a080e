"""`LearningProblem`: a decision model, and what information will say of each of its sites (see `expected_gain`).

The answer is an `InformationValue`: what it is worth to know more before deciding, with its error and what kind of
number it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float

from bayes_mdp.decisions.strategies.decision_model import DecisionModel
from bayes_mdp.decisions.strategies.site_law import StudiedSite
from bayes_mdp.inference.detection.degrees import HIGHER

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
        condition = "" if self.wtp is None else f", willingness to pay {self.wtp:g}"
        error = "" if not self.standard_error else f" (Monte Carlo error {self.standard_error:.2g})"
        lines = [
            f"{self.kind} of {self.about}{condition}: {self.value:.6g}{error}",
            f"  {self.standing}: {self.reason}",
            f"  {self.unit}",
            f"  strategies {', '.join(self.strategies)}; best without it: {self.best}",
        ]
        if self.useless is not None:
            lines.append(f"  the same sites in random order, which are worth 0: {self.useless:.6g}")
        if self.warning:
            lines.append(f"  {self.warning}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Gain:
    """What `expected_gain` found; see `InformationValue`."""

    value: float
    standard_error: float
    numerical_error: float
    best: int
    standing: Standing
    reason: str


@dataclass(frozen=True)
class Learned:
    """What information there will be about the sites of a model.

    Args:
        perfect: sites whose value will be known.
        studied: sites of which there will be data.
    """

    perfect: frozenset[str] = frozenset()
    studied: Mapping[str, StudiedSite] | None = None


class LearningProblem:
    """A model with the state of each of its sites, as the module says.

    Args:
        model: the belief.
        weights: of the outcomes in the net benefit.
        learned: what information comes.
    """

    def __init__(self, model: DecisionModel, weights: Float[np.ndarray, " outcomes"], learned: Learned) -> None:
        self.model, self.weights = model, weights
        # A site of degree up to 1 in the net benefits counts by its mean alone: E NB = NB at the mean.
        self.degrees = model.degrees(weights)
        # A site that no net benefit depends on teaches nothing.
        studied = {name: x for name, x in (learned.studied or {}).items() if name in self.degrees}
        # Known sites are outer variables; studied ones too, by their posterior mean where that is enough.
        self.perfect = {n: model.laws[n] for n in model.laws if n in learned.perfect and n in self.degrees}
        self.means = {name: x for name, x in studied.items() if self.degrees[name] < HIGHER}
        self.data = {name: x for name, x in studied.items() if self.degrees[name] >= HIGHER}
        rest = [n for n in model.laws if n not in self.perfect and n not in studied]
        # Sites that the net benefits do not depend on stay at their mean too.
        self.fixed = {n: model.laws[n].mean() for n in rest if self.degrees.get(n, 0) < HIGHER}
        self.averaged = {n: model.laws[n] for n in rest if n not in self.fixed}
        # Sites without a closed form are drawn together: they may depend on each other.
        drawn = [n for n in model.sites if n not in model.laws]
        self.drawn_outside = any(n in learned.perfect for n in drawn)
        self.drawn_inside = not self.drawn_outside and any(n in self.degrees for n in drawn)
        self.drawn = drawn

    @property
    def nested(self) -> bool:
        """Whether net benefits have to be averaged for each outer point."""
        return bool(self.data or self.averaged or self.drawn_inside)

    @cached_property
    def affine(self) -> bool:
        """Whether averaged net benefits are affine in all that is learned."""
        if not self.nested or self.data or self.drawn_outside:
            return False
        # Products of learned sites would not be affine, though each alone is of degree one.
        learned = (*self.perfect, *self.means)
        return all(self.degrees[n] < HIGHER for n in learned) and self.model.jointly_affine(learned)

    def net_benefits(self, values: Mapping[str, np.ndarray], number: int) -> Float[np.ndarray, "number strategies"]:
        """At values [number, ...] of some sites, the others at their fixed values (zero: nothing depends on them)."""
        shapes = self.model.trace.shapes
        # Sites that are neither learned nor averaged stay where they are.
        rows = {
            name: values[name] if name in values else self.fixed.get(name, np.zeros(shapes[name]))
            for name in self.model.sites
        }
        full = {n: np.broadcast_to(x, (number, *shapes[n])) for n, x in rows.items()}
        # A model without any varying site gives one row for all.
        benefits = self.model.evaluate(full) @ self.weights
        return np.broadcast_to(benefits, (number, benefits.shape[1])) if len(benefits) != number else benefits
