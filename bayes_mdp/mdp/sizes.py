"""`Sizes`: what all draws of a belief have in common; `sizes_of` any belief."""

from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.mdp.hypothesis import MDP, SparseMDP
from bayes_mdp.mdp.protocols import CanSample
from bayes_mdp.mdp.space import StateActionSpace
from bayes_mdp.numerics.array_forms import to_float64


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
    legal, initial = (None if x is None else np.asarray(x) for x in (mdp.legal, mdp.initial))
    initial = None if initial is None else initial.astype(np.float64)
    return Sizes(mdp.reward.shape, mdp.end_probs is not None, legal, initial)


@eqx.filter_jit
def _sample(posterior: CanSample) -> MDP | SparseMDP:
    return posterior.sample(jax.random.key(0))
