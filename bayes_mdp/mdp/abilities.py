"""What a caller asks of a posterior before it uses it: the methods that it needs, and what all draws have in common.

`require_ability`: the error is one sentence. `Sizes`: of a belief; `sizes_of` any belief. `learnt_outcomes`: those
beside its reward.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.mdp.contexts import Contexts, ContextSpace
from bayes_mdp.mdp.hypothesis import MDP, SparseMDP
from bayes_mdp.mdp.protocols import (
    CanExpectNext,
    CanInform,
    CanMean,
    CanPredict,
    CanSample,
    CanSampleBackup,
    CanSampleLazily,
    CanSampleNext,
    CanSplit,
    HasVariances,
    Posterior,
)
from bayes_mdp.mdp.space import StateActionSpace
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.utils.messages import see


@runtime_checkable
class InContexts(Protocol):
    """A family of posteriors, one for each context."""

    @property
    def contexts(self) -> Contexts:
        """The patterns of covariates."""
        ...

    @property
    def space(self) -> ContextSpace:
        """Sizes, names, contexts."""
        ...

    @property
    def num_draws(self) -> int | None:
        """Draws that all contexts share; None: each context is drawn on its own."""
        ...

    def at(self, context: Any) -> Any:
        """The posterior of one context, or of other contexts."""
        ...


@runtime_checkable
class SplitPosterior(CanSplit, Posterior, Protocol):
    """A posterior that is a mixture."""


@runtime_checkable
class HasOutcomes(Protocol):
    """A posterior that has learnt other outcomes beside its reward, from the same log."""

    @property
    def outcomes(self) -> Mapping[str, CanSample] | None:
        """Name -> posterior whose rewards are the outcome; None: there are none."""
        ...


def learnt_outcomes(posterior: object) -> Mapping[str, CanSample]:
    """The outcomes that a posterior has learnt; empty: none."""
    learnt = posterior.outcomes if isinstance(posterior, HasOutcomes) else None
    return {} if learnt is None else learnt


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
    # By name alone: whether a method works shows when it is called.
    members, missing = _members(posterior, protocol)
    if missing:
        have_it = by_pattern(posterior) or _HAVE_IT.get(protocol, "one that infer returns")
        raise TypeError(
            f"{who} needs a posterior that has {', '.join(members)}, "
            f"got a {type(posterior).__name__} without {', '.join(missing)}: use {have_it}"
            + (f", or {instead}" if instead else "")
        )


def by_pattern(posterior: object) -> str | None:
    """What to use in place of posteriors in contexts; None: it is no such family.

    Args:
        posterior: any object.
    """
    if _members(posterior, InContexts)[1]:
        return None
    return f"posterior.at(pattern), the posterior of one pattern of covariates {see('how-to/covariates')}"


def can_split(posterior: object) -> TypeGuard[SplitPosterior]:
    """Whether it is a mixture of posteriors. (`isinstance` would build all components of some to find out.)"""
    return not _members(posterior, CanSplit)[1]


def _members(posterior: object, protocol: type) -> tuple[list[str], list[str]]:
    """The members of a protocol, and those that are missing."""
    members = sorted({name for kind in protocol.__mro__ for name in vars(kind) if not name.startswith("_")})
    # Looked up on the class too: a property need not be computed to know that it is there.
    instance_dict = getattr(posterior, "__dict__", {})
    return members, [name for name in members if name not in instance_dict and not hasattr(type(posterior), name)]


class Sizes(NamedTuple):
    """What all draws of a belief have in common.

    Args:
        shape: (*H, S, A), of the MDPs.
        ends: whether episodes can end.
        legal: which actions exist; None: all.
        initial: distribution of the first state; None: not known.
    """

    shape: tuple[int, ...]
    ends: bool
    legal: Bool[np.ndarray, "S A"] | None = None
    initial: Float[np.ndarray, " S"] | None = None

    @classmethod
    def of(cls, space: StateActionSpace) -> "Sizes":
        """Of beliefs over this space."""
        return cls(space.shape, bool(space.ends), space.legal)

    @property
    def n_states(self) -> int:
        """S."""
        return self.shape[-2]

    @property
    def n_actions(self) -> int:
        """A."""
        return self.shape[-1]

    @property
    def in_words(self) -> str:
        """For an error."""
        return f"posterior has draws of {self.n_states} states and {self.n_actions} actions"

    @property
    def horizon(self) -> int | None:
        """H; None: the same MDP at every step."""
        return self.shape[0] if len(self.shape) == 3 else None

    @property
    def possible(self) -> Bool[np.ndarray, "*H S A"]:
        """The pairs that exist."""
        return np.ones(self.shape, bool) if self.legal is None else np.broadcast_to(self.legal, self.shape)


@runtime_checkable
class CanSize(Protocol):
    """Says what all its draws have in common."""

    def sizes(self) -> Sizes:
        """What all draws have in common. Host side."""
        ...


def sizes_of(posterior: CanSample) -> Sizes:
    """What all draws of any belief have in common: as it says, or from one of them."""
    if isinstance(posterior, CanSize):
        return posterior.sizes()
    with jax.enable_x64(True):
        mdp = _sample(to_float64(posterior))
    # Masks and the first state are the same in all draws.
    legal, initial = (None if x is None else np.asarray(x) for x in (mdp.legal, mdp.initial))
    initial = None if initial is None else initial.astype(np.float64)
    return Sizes(mdp.reward.shape, mdp.end_probs is not None, legal, initial)


def mean_in_float64(posterior: CanMean) -> MDP | SparseMDP:
    """The posterior mean as one MDP, in float64 whatever the caller's precision. Host side."""
    with jax.enable_x64(True):
        # A belief in NumPy's float64, as `infer` makes it, is not copied to the device: it may be large.
        is_wide = all(
            isinstance(leaf, np.ndarray) and (leaf.dtype == np.float64 or leaf.dtype.kind in "iub")
            for leaf in jax.tree.leaves(posterior)
        )
        return (posterior if is_wide else to_float64(posterior)).mean_mdp()


@eqx.filter_jit
def _sample(posterior: CanSample) -> MDP | SparseMDP:
    return posterior.sample(jax.random.key(0))
