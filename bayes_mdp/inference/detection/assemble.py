"""`Assembly`: from the parameters of conjugate sites to the stacked arrays of a conjugate belief.

Which site goes where is found once, by `detect`; the arithmetic is the same for numbers and inside a trace, where the
parameters are functions of hyperparameters.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Real

from bayes_mdp.inference.conjugate.families import (
    BetaBelief,
    GammaBelief,
    NormalBelief,
    NormalGammaBelief,
    RewardBelief,
)
from bayes_mdp.inference.detection.trace import Site
from bayes_mdp.mdp.typing import AnyArray

Parameters: TypeAlias = Mapping[str, Mapping[str, AnyArray]]
"""{site: {parameter: array}}."""


class Assembly(NamedTuple):
    """Where the parameters of the conjugate sites lie in a belief.

    Args:
        rows: Dirichlet sites, their rows one above the other, padded to the widest.
        known_width: outcomes of the one unused row that there is where no Dirichlet site is.
        family: of the belief about rewards; None: they are known.
        joint: reward sites, their cells one after the other (normal-gamma: the joint sites).
        plain: means of the pairs of plain sites that make a normal-gamma.
        gammas: precisions of these pairs.
        order: [P], the element of `gammas` for each element of `plain`.
        noise_cell: [L], for normal rewards of known noise, a cell of the reward law for each element of the mean.
    """

    rows: tuple[Site, ...]
    known_width: int
    family: type[RewardBelief] | None = None
    joint: tuple[Site, ...] = ()
    plain: tuple[Site, ...] = ()
    gammas: tuple[Site, ...] = ()
    order: Int[np.ndarray, " P"] | None = None
    noise_cell: Int[np.ndarray, " L"] | None = None

    def concentration(self, parameters: Parameters) -> Real[AnyArray, "M K"]:
        """Float[M K], the stacked Dirichlet rows, zero where padded."""
        if not self.rows:
            return np.eye(1, self.known_width)
        # A concentration of zero: no such outcome. Rows of fewer outcomes are padded with it.
        width = max(site.shape[-1] for site in self.rows)
        blocks = [parameters[site.name]["concentration"].reshape(-1, site.shape[-1]) for site in self.rows]
        xp = _library(blocks)
        return xp.concatenate([xp.pad(b, ((0, 0), (0, width - b.shape[1]))) for b in blocks])

    def belief(self, parameters: Parameters, precision: Real[AnyArray, "*cells"] | None) -> RewardBelief | None:
        """The belief about the stacked reward cells; None where rewards are known.

        Args:
            parameters: {site: {parameter: array}}.
            precision: [*cells] of the reward law; read for normal rewards of known noise alone.
        """
        if self.family is None:
            return None
        if self.family is NormalGammaBelief:
            parts = [_stacked(self.joint, parameters)] if self.joint else []
            if self.plain:
                # Normal(loc, precision * pseudo_count): the factor that scales the Gamma site is the pseudo-count.
                means, rates = _stacked(self.plain, parameters), _stacked(self.gammas, parameters)
                pair = {"loc": means["loc"], "pseudo_count": means["precision"]}
                parts.append(pair | {name: value[self.order] for name, value in rates.items()})
            xp = _library([part["loc"] for part in parts])
            return NormalGammaBelief(**{name: xp.concatenate([part[name] for part in parts]) for name in parts[0]})
        stacked = _stacked(self.joint, parameters)
        if self.family is NormalBelief:
            assert precision is not None  # normal rewards whose noise is known have one
            noise = precision.ravel()[self.noise_cell] ** -0.5
            normal: Any = NormalBelief
            return normal(stacked["loc"], stacked["precision"] ** -0.5, noise)
        family: Any = BetaBelief if self.family is BetaBelief else GammaBelief
        return family(**stacked)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all conjugate sites."""
        return tuple(site.name for site in (*self.rows, *self.joint, *self.plain, *self.gammas))


def _stacked(sites: tuple[Site, ...], parameters: Parameters) -> dict[str, Real[AnyArray, " L"]]:
    """Parameters of sites of one family, one after the other."""
    names = tuple(parameters[sites[0].name])
    xp = _library([parameters[sites[0].name][names[0]]])
    return {name: xp.concatenate([parameters[site.name][name].ravel() for site in sites]) for name in names}


def _library(arrays: list[AnyArray]) -> ModuleType:
    """numpy for numpy arrays: eager JAX would compile every operation."""
    return np if all(isinstance(x, np.ndarray) for x in arrays) else jnp
