"""Check that a posterior has the methods that a caller needs; the error is one sentence."""

from typing import Protocol, TypeGuard

from bayes_mdp.mdp.protocols import CanSplit, Posterior


class SplitPosterior(CanSplit, Posterior, Protocol):
    """A posterior that is a mixture."""


def require_ability(posterior: object, protocol: type, who: str) -> None:
    """Refuse a posterior without the members of `protocol`, one of the runtime-checkable protocols of `bayes_mdp.mdp`.

    Args:
        posterior: any object.
        protocol: for instance `CanSampleBackup`.
        who: the caller, for the message: "PSRL".

    Raises:
        TypeError: "PSRL needs a posterior that has sample_backup, got a ConjugatePosterior without sample_backup".
    """
    members, missing = _members(posterior, protocol)
    if missing:
        raise TypeError(
            f"{who} needs a posterior that has {', '.join(members)}, "
            f"got a {type(posterior).__name__} without {', '.join(missing)}"
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
