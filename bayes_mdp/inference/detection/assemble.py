"""`Assembly`: from the parameters of conjugate sites to the stacked arrays of a conjugate belief.

Which site goes where is found once, by `detect`; the arithmetic is the same for numbers and inside a trace, where the
parameters are functions of hyperparameters.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Real

from bayes_mdp.inference.detection.trace import Site
from bayes_mdp.inference.families.family import RewardBelief
from bayes_mdp.utils.typing import AnyArray

Parameters: TypeAlias = Mapping[str, Mapping[str, AnyArray]]
"""{site: {parameter: array}}."""


class Assembly(NamedTuple):
    """Where the parameters of the conjugate sites lie in a belief.

    Args:
        rows: Dirichlet and Beta sites, their rows one above the other, padded to the widest.
        known_width: outcomes of the one unused row that there is where no such site is.
        family: of the belief about rewards; None: they are known, or linear in their sites.
        joint: reward sites, their cells one after the other (normal-gamma: the joint sites).
        plain: means of the pairs of plain sites that make a normal-gamma.
        gammas: precisions of these pairs.
        order: [P], the element of `gammas` for each element of `plain`.
        noise_cell: [L], for normal rewards of known noise, a cell of the reward law for each element of the mean.
        stretch: [L], the precision of what an element is the mean of, over that of the rewards: the square of the
            coefficient of an affine mean, known; None: one.
        known: {parameter of the reward law that the family takes as known: [L]}.
    """

    rows: tuple[Site, ...]
    known_width: int
    family: type[RewardBelief] | None = None
    joint: tuple[Site, ...] = ()
    plain: tuple[Site, ...] = ()
    gammas: tuple[Site, ...] = ()
    order: Int[np.ndarray, " P"] | None = None
    noise_cell: Int[np.ndarray, " L"] | None = None
    stretch: Float[np.ndarray, " L"] | None = None
    known: Mapping[str, Float[np.ndarray, " L"]] | None = None

    def concentration(self, parameters: Parameters) -> Real[AnyArray, "M K"]:
        """Float[M K], the stacked Dirichlet rows, zero where padded."""
        if not self.rows:
            return np.eye(1, self.known_width)
        blocks = [_rows(site, parameters[site.name]) for site in self.rows]
        if len(blocks) == 1:
            return blocks[0]
        # A concentration of zero: no such outcome. Rows of fewer outcomes are padded with it.
        width = max(block.shape[-1] for block in blocks)
        xp = _library(blocks)
        return xp.concatenate([xp.pad(b, ((0, 0), (0, width - b.shape[1]))) for b in blocks])

    def belief(self, parameters: Parameters, precision: Real[AnyArray, "*cells"] | None) -> RewardBelief | None:
        """The belief about the stacked reward cells; None where no family serves them.

        Args:
            parameters: {site: {parameter: array}}.
            precision: [*cells] of the reward law; read for normal rewards of known noise alone.
        """
        if self.family is None:
            return None
        family: Any = self.family  # the fields differ from family to family
        stretch = 1.0 if self.stretch is None else self.stretch
        if len(self.family.sites) == 2:
            found = self._normal_gamma(parameters)
            # precision' = stretch * precision: of Normal(loc, k precision) and Gamma(a, b), k and b are divided.
            return family(
                found["loc"], found["pseudo_count"] / stretch, found["concentration"], found["rate"] / stretch
            )
        if self.family.is_vector():
            blocks = [_rows(site, parameters[site.name]) for site in self.joint]
            return family(_library(blocks).concatenate(blocks))
        stacked = _stacked(self.joint, parameters)
        if self.noise_cell is not None:
            assert precision is not None  # normal rewards whose noise is known have one
            with np.errstate(divide="ignore"):  # a precision of zero is refused later
                noise = (precision.ravel()[self.noise_cell] * stretch) ** -0.5
            return family(stacked["loc"], stacked["precision"] ** -0.5, noise)
        return family(**stacked, **(self.known or {}))

    def _normal_gamma(self, parameters: Parameters) -> dict[str, Real[AnyArray, " L"]]:
        """Joint sites first, then pairs of plain sites."""
        parts = [_stacked(self.joint, parameters)] if self.joint else []
        if self.plain:
            # Normal(loc, precision * pseudo_count): the factor that scales the Gamma site is the pseudo-count.
            means, rates = _stacked(self.plain, parameters), _stacked(self.gammas, parameters)
            pair = {"loc": means["loc"], "pseudo_count": means["precision"]}
            parts.append(pair | {name: value[self.order] for name, value in rates.items()})
        xp = _library([part["loc"] for part in parts])
        return {name: xp.concatenate([part[name] for part in parts]) for name in parts[0]}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all conjugate sites."""
        return tuple(site.name for site in (*self.rows, *self.joint, *self.plain, *self.gammas))


def _rows(site: Site, parameters: Mapping[str, AnyArray]) -> Real[AnyArray, "M K"]:
    """Concentrations of the rows of a site; of a Beta site those of an element and of its complement."""
    if site.family == "Dirichlet":
        return parameters["concentration"].reshape(-1, site.shape[-1])
    both = [parameters["concentration1"].ravel(), parameters["concentration0"].ravel()]
    return _library(both).stack(both, axis=-1)


def _stacked(sites: tuple[Site, ...], parameters: Parameters) -> dict[str, Real[AnyArray, " L"]]:
    """Parameters of sites of one family, one after the other."""
    names = tuple(parameters[sites[0].name])
    xp = _library([parameters[sites[0].name][names[0]]])
    return {name: xp.concatenate([parameters[site.name][name].ravel() for site in sites]) for name in names}


def _library(arrays: list[AnyArray]) -> ModuleType:
    """numpy for numpy arrays: eager JAX would compile every operation."""
    return np if all(isinstance(x, np.ndarray) for x in arrays) else jnp
