"""What to try where a check of `criticise` fails: by the direction of the difference, and by the kind of rows."""

import numpy as np

from bayes_mdp.calibration.belief.posterior_views import FittedPosterior
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.mixtures import MixturePosterior
from bayes_mdp.mdp import CanBorrow

NEW, WHERE, CHOSEN, RETURNS = "new outcomes", "where they lead", "chosen policy", "returns"
ALIKE, LEARNT, INFORMED, SHARED, UNKNOWN = "alike", "learnt", "informed", "shared", "unknown"
KINDS = (ALIKE, LEARNT, INFORMED, SHARED, UNKNOWN)
"""Rows that share nothing, whose prior takes the outcomes of a pair as alike (or so with a concentration that is learnt
from all), or not as alike; rows that share where they lead; not known."""

_POSSIBLE = "say which transitions are possible (support= or successors= of the space; --support FILE in the shell)"
_LESS = "take a smaller concentration of the rows, or one that is learnt (bm.models.unknown_concentration)"
_POOL = "take rows that share where they lead (bm.models.partial_pooling)"
_APART = "take rows that share less of where they lead, such as independent ones (bm.models.dirichlet_normal and kin)"
_COUNTS = "take prior counts that weigh less, or that lead where the log does"
_OBJECTIVE = (
    "is the objective (discount, horizon, ends) that of the log, and does the state hold all that matters for what "
    "follows? bm.predictive_check, its serial_dependence, tests the latter"
)

NEXT_STEPS = {
    NEW: (
        "take a larger concentration of the rows, or one that is learnt (bm.models.unknown_concentration)",
        f"{_POSSIBLE}, or {_LESS}",
    ),
    CHOSEN: (
        "take a prior that expects such values: compare its rows and rewards with the first half (bm.predictive_check)",
        "choose among policies of what was tried often (PolicyLimits(bootstrap_below=...) or (min_count=...); "
        "--bootstrap-below, --min-count in the shell), "
        "collect more data, or take a prior that expects less of what was hardly tried",
    ),
    RETURNS: (_OBJECTIVE, _OBJECTIVE),
}
"""Check -> what to try where the log is above what the belief expects, and where it is below."""

NEXT_STEPS_WHERE = {
    ALIKE: (f"{_POSSIBLE}, or {_POOL}", f"{_POSSIBLE}, or {_LESS}"),
    LEARNT: (f"{_POSSIBLE}, or {_POOL}", _POSSIBLE),
    INFORMED: (_COUNTS, _COUNTS),
    SHARED: (_POSSIBLE, _APART),
    UNKNOWN: (
        f"{_POSSIBLE}, or {_POOL}",
        f"where rows share parameters: {_APART}; where they do not: {_POSSIBLE}, or {_LESS}",
    ),
}
"""The same for "where they lead", by kind of rows. Above: new outcomes lead to states that are reached more often."""


def next_step(check: str, *, above: bool, kind: str, none_new: bool = False) -> str:
    """What to try.

    Args:
        check: its name.
        above: whether the log is above what the belief expects.
        kind: of the rows, see `kind_of_rows`.
        none_new: whether no held-out outcome was new: too many were expected, wherever they lead.
    """
    if check == WHERE and none_new:
        check = NEW
    above_step, below_step = NEXT_STEPS_WHERE[kind] if check == WHERE else NEXT_STEPS[check]
    return above_step if above else below_step


def kind_of_rows(posterior: FittedPosterior) -> str:
    """How the rows are believed: one of `KINDS`.

    Args:
        posterior: any; of a mixture of closed forms, the first is looked at.
    """
    if isinstance(posterior, CanBorrow):
        return SHARED
    is_mixture = isinstance(posterior, MixturePosterior)
    closed = posterior.component(0) if isinstance(posterior, MixturePosterior) else posterior
    if not isinstance(closed, ConjugatePosterior):
        return UNKNOWN
    rows = closed.transition_probs
    if not rows.independent:
        return SHARED
    prior = np.asarray(rows.prior, np.float64)
    possible = prior > 0
    most, least = np.where(possible, prior, 0.0).max(-1), np.where(possible, prior, np.inf).min(-1)
    alike = (most <= least * (1 + 1e-5))[possible.any(-1)].all()
    if is_mixture:
        return LEARNT if alike else SHARED
    return ALIKE if alike else INFORMED
