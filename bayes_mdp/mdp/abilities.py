"""Check that a posterior has the methods that a caller needs; the error is one sentence."""

from typing import Protocol, TypeGuard

from bayes_mdp.mdp.protocols import (
    CanExpectNext,
    CanInform,
    CanPredict,
    CanSampleBackup,
    CanSampleLazily,
    CanSampleNext,
    CanSplit,
    HasVariances,
    Posterior,
)


class SplitPosterior(CanSplit, Posterior, Protocol):
    """A posterior that is a mixture."""


_CLOSED = "a posterior in closed form (infer with method='exact')"
_HAVE_IT = {
    CanSampleNext: _CLOSED,
    CanSampleLazily: "one that infer or posterior_samples returns",
    CanSampleBackup: _CLOSED,
    CanExpectNext: _CLOSED,
    CanPredict: f"{_CLOSED}, or a mixture of such",
    CanInform: f"{_CLOSED}, or a mixture of such",
    HasVariances: _CLOSED,
}
"""Protocol -> the posteriors that have its members; of the others: all that `infer` returns."""


def require_ability(posterior: object, protocol: type, who: str, *, instead: str | None = None) -> None:
    """Refuse a posterior without the members of `protocol`, one of the runtime-checkable protocols of `bayes_mdp.mdp`.

    Args:
        posterior: any object.
        protocol: for instance `CanSampleBackup`.
        who: the caller, for the message: "OPSRL".
        instead: what needs less: "PSRL".

    Raises:
        TypeError: "OPSRL needs a posterior that has sample_next, got a Mixture without sample_next: use a posterior in
            closed form (infer with method='exact'), or PSRL".
    """
    members, missing = _members(posterior, protocol)
    if missing:
        have_it = _HAVE_IT.get(protocol, "one that infer returns")
        raise TypeError(
            f"{who} needs a posterior that has {', '.join(members)}, "
            f"got a {type(posterior).__name__} without {', '.join(missing)}: use {have_it}"
            + (f", or {instead}" if instead else "")
        )


def can_split(posterior: object) -> TypeGuard[SplitPosterior]:
    """Whether it is a mixture of posteriors. (`isinstance` would build all components of some to find out.)"""
    return not _members(posterior, CanSplit)[1]


def _members(posterior: object, protocol: type) -> tuple[list[str], list[str]]:
    """The members of a protocol, and those that are missing."""
    members = sorted(name for name in vars(protocol) if not name.startswith("_"))
    # Looked up on the class too: a property need not be computed to know that it is there.
    own = getattr(posterior, "__dict__", {})
    return members, [name for name in members if name not in own and not hasattr(type(posterior), name)]
