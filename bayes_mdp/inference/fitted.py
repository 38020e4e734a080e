"""`Fitted`: what every posterior of `infer` says of itself, so that nobody has to ask of which class it is.

A posterior is one closed form (`ConjugatePosterior`), K closed forms with weights (mixtures), a closed form for the
rows beside N draws of the rewards (`FactorisedPosterior`), or N draws of all (`SampledPosterior`). Beside the abilities
of `bayes_mdp.mdp.protocols` each has `program` (the prior, None: not at hand), `log_weights` ([K] or [N], None: one
closed form), `rewards_by_outcome`, `problems()`, `notes()`, and the members below; a class that does not override one
has the answer that stands here.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import equinox as eqx
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, Shaped

from bayes_mdp.utils.typing import AnyArray

if TYPE_CHECKING:
    from bayes_mdp.inference.conjugate.site_table import SiteTable
    from bayes_mdp.inference.draws.chains import Chains, Scalars
    from bayes_mdp.inference.draws.methods import NUTS
    from bayes_mdp.inference.sampled.conditioned_program import DataStatistics
    from bayes_mdp.inference.sampled.recipe import Recipe


NO_PROGRAM = "the posterior was built without a program, or loaded from a file, which holds none"
BENT = "the program has a factor, an observation, a scale or a mask: running it does not draw from the prior"


class Fitted(eqx.Module):
    """A belief about an MDP, with its origin. All host side."""

    @property
    def reference(self) -> Self:
        """What stands for all components in what they share (data, laws, tables): of K closed forms the first."""
        return self

    @property
    def in_closed_form(self) -> bool:
        """Whether it is a closed form, or finitely many of known weights: exact, its prior one of the same kind."""
        return False

    @property
    def reward_law(self) -> type[dist.Distribution] | None:
        """The type of the law of one reward; None: rewards are known numbers."""
        return None if self.reference is self else self.reference.reward_law

    @property
    def known_reward(self) -> Float[np.ndarray, "*cells"] | None:
        """Mean rewards, [*H S A] or [*H S A O], where they are known; None: they are not."""
        return None if self.reference is self else self.reference.known_reward

    @property
    def site_tables(self) -> "tuple[SiteTable, ...]":
        """Where the elements of the program's sites lie in the arrays of the closed forms; (): not known."""
        return ()

    @property
    def site_draws(self) -> Mapping[str, Shaped[AnyArray, "N ..."]]:
        """Draws of latent sites of the program that it holds: {site: [N ...]}."""
        return {}

    @property
    def chains(self) -> "Chains | None":
        """The Markov chains behind its draws, [C N ...]; None: there are none."""
        return None

    def derived_tables(self) -> "dict[str, Scalars]":
        """Tables that follow from the draws of its chains, to be diagnosed as these: {name: scalars [C N e]}."""
        return {}

    @property
    def chain_options(self) -> "NUTS | None":
        """How its chains were run; None: there are none."""
        return None

    @property
    def drawn_by(self) -> "Recipe | None":
        """How its draws were made, of a whole program or of the rewards; None: by no such recipe."""
        return None

    @property
    def reward_data(self) -> "DataStatistics | None":
        """What it keeps of the observed rewards beside a closed form; None: they are in the closed form."""
        return None

    def why_no_prior(self) -> str | None:
        """Why its prior cannot be drawn from, in words; None: it can."""
        return None
