"""Ask a posterior for an ability: what it cannot do, it does not have, and the answer is one sentence."""

from typing import Any


def require_ability(posterior: Any, protocol: type, who: str) -> None:
    """Refuse a posterior without the members of `protocol`, one of the runtime-checkable protocols of `bayes_mdp.mdp`.

    Args:
        posterior: any object.
        protocol: for instance `CanSampleBackup`.
        who: who asks, for the sentence: "PSRL".

    Raises:
        TypeError: "PSRL needs a posterior that has sample_backup, got a ConjugatePosterior without sample_backup".
    """
    members = sorted(name for name in vars(protocol) if not name.startswith("_"))
    # Looked up on the class too: a property need not be computed to know that it is there.
    own = getattr(posterior, "__dict__", {})
    missing = [name for name in members if name not in own and not hasattr(type(posterior), name)]
    if missing:
        raise TypeError(
            f"{who} needs a posterior that has {', '.join(members)}, "
            f"got a {type(posterior).__name__} without {', '.join(missing)}"
        )
