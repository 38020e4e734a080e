"""A traced program as its data flow shows it: what its laws, parameters and densities are made of.

Every latent site is one of three things here: *conjugate* (of a family that can be; its elements are followed one by
one), a *hyperparameter* (free: only what depends on it matters), or *held* at a value (then branches on it are
known). `detect` uses it; what it cannot prove raises `NotConjugate`, which names the site in the way. `check_proper`
uses it too: it refuses sites that a mask or a scale leaves without a distribution.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from bayes_mdp.inference.conjugate.site_table import split_sites
from bayes_mdp.inference.detection.dataflow import Reader
from bayes_mdp.inference.detection.entries import NONE, OPAQUE, Domain, Entries, Symbols, Value, elements_of, symbols_of
from bayes_mdp.inference.detection.trace import KEY, KNOWN, Laws, Outputs, Program, Site
from bayes_mdp.numerics.array_forms import compact
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import check_finite, check_positive, first_index

POSITIVE: dict[str, bool | tuple[bool, bool]] = {
    "Dirichlet": True,
    "NormalGamma": (False, True),
    "Normal": False,
    "Gamma": True,
    "Beta": True,
    "MultivariateNormal": False,
}
"""Conjugate families, and whether their elements are positive (the last axis of a normal-gamma: mean, precision)."""


class NotConjugate(ValueError):
    """There is no closed form.

    Args:
        message: one sentence.
        site: what is in the way, where it is one site.
    """

    def __init__(self, message: str, site: str | None = None) -> None:
        super().__init__(message)
        self.site = site


IN_THE_WAY = " does not allow an exact posterior: "


def in_the_way(program: Program, name: str, why: str) -> NotConjugate:
    """The error for site `name`; `why` continues "does not allow an exact posterior: "."""
    family = next((site.family for site in program.sites if site.name == name), "random numbers of no site")
    message = f"prior: site {name!r} ({family}){IN_THE_WAY}{why}. method='auto' samples what has no closed form"
    return NotConjugate(message, name)


def first(program: Program, names: Iterable[str]) -> str:
    """The first of `names` in the order of the program."""
    return next((site.name for site in program.sites if site.name in set(names)), next(iter(names)))


class Layout(NamedTuple):
    """All elements of the conjugate sites in one vector: site after site, each row-major.

    Args:
        shapes: shape of the value of each site.
    """

    shapes: Mapping[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """N, the number of elements."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def elements(self, name: str) -> Int[np.ndarray, "..."]:
        """Numbers of the elements of a site, in its shape."""
        start = 0
        for site, shape in self.shapes.items():
            if site == name:
                return np.arange(start, start + int(np.prod(shape))).reshape(shape)
            start += int(np.prod(shape))
        raise KeyError(name)

    def split(self, flat: Shaped[np.ndarray, "..."]) -> dict[str, np.ndarray]:
        """{site: value} of one vector (views)."""
        return split_sites(flat, self.shapes)

    def site(self, element: int) -> str:
        """The site of an element."""
        stops = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        return list(self.shapes)[int(np.searchsorted(stops, element, side="right"))]


class Probe:
    """The data flow of a program whose sites are conjugate, but for `hyperparameters` and `held`. Host side, float64.

    Args:
        program: the program.
        hyperparameters: latent sites that do not count as conjugate; sites of other families do not anyway.
        held: values of sites that count as known.
        numbers: what `Program.evaluate` gives for the conjugate sites at `inside` and some values of the
            hyperparameters, where there are some: parameters that are functions of them have no other numbers.
        kept, kept_rows: sites of rewards and of rows that belong to the tables, used or not.

    `constants` are the observed sites that leave the posterior as it is, with their log density: a known number.

    Raises:
        ValueError: a law or a density depends on random numbers of no site, or a known reward on a latent site.
    """

    def __init__(
        self,
        program: Program,
        hyperparameters: tuple[str, ...] = (),
        held: Mapping[str, ArrayLike] | None = None,
        numbers: Laws | None = None,
        kept: frozenset[str] = frozenset(),
        kept_rows: frozenset[str] = frozenset(),
    ) -> None:
        self.program, self.held, self.numbers = program, dict(held or {}), numbers
        self.kept, self.kept_rows = kept, kept_rows
        self.hyperparameters = tuple(site.name for site in program.latents if site.name in hyperparameters)
        # Neither is followed element by element.
        fixed = {*self.hyperparameters, *self.held}
        self.sites = tuple(site for site in program.latents if site.name not in fixed)
        conjugate = {site.name: site for site in self.sites if site.family in POSITIVE}
        self.layout = Layout({name: site.shape for name, site in conjugate.items()})
        self._depends: dict[int, tuple[Entries, frozenset[str]]] = {}
        # Supports give signs and ranges: rules such as sqrt(x^2) = x need no more.
        positive = [np.broadcast_to(POSITIVE[site.family], site.shape).ravel() for site in conjugate.values()]
        unit = [np.full(int(np.prod(s.shape)), s.family in ("Dirichlet", "Beta")) for s in conjugate.values()]
        none = np.zeros(0, bool)
        # Run the program on descriptions: elements for conjugate sites, symbols for hyperparameters, numbers for held.
        domain = Domain(np.concatenate([none, *positive]), np.concatenate([none, *unit]))
        self.symbols: Symbols = domain.symbols
        # In the order in which the traced program takes its inputs.
        inputs = [self._input(name) for name in sorted(program.values)]
        # The densities of conjugate sites are those of their families: they are not read.
        shown: Outputs = program.outputs
        needed = [True] * len(jax.tree.leaves(shown.laws))
        for name in sorted(shown.densities):  # the order of a tree
            needed += [name not in conjugate] * len(jax.tree.leaves(shown.densities[name]))
        needed += [True] * len(shown.powers)
        flat = Reader(domain).read(program.closed, [*inputs, symbols_of((), KEY, self.symbols)], needed)
        read = [None if x is None else domain.entries(x) for x in flat]
        outputs: Any = jax.tree.unflatten(jax.tree.structure(shown), read)
        self.parameters_of: dict[str, dict[str, Entries]] = outputs.laws["parameters"]
        self.transition: Entries = outputs.laws["transition"]
        self.reward: dict[str | int, Entries] = outputs.laws["reward"]
        self.densities: dict[str, tuple[Entries, Entries | None, Entries]] = {
            name: parts for name, parts in outputs.densities.items() if name not in conjugate
        }
        self.powers: dict[str, Entries] = outputs.powers
        observed = [site.name for site in program.sites if site.observed]
        known = {name: self.log_number(name) for name in observed if name in self.densities}
        self.constants = {name: number for name, number in known.items() if number is not None}
        impossible = next((name for name, number in self.constants.items() if not np.isfinite(number)), None)
        if impossible is not None and not self.held:
            raise ValueError(
                f"prior: site {impossible!r} is observed, conditioned or substituted at a value that its law cannot "
                "give, expected one in its support"
            )
        self._check_any_latent()

    def log_number(self, name: str) -> float | None:
        """The log density of a site (or factor) that is one known number, whatever the sites are; None: it is not.

        Minus infinity: its value is impossible.
        """
        logs, scale, possible = self.densities[name]
        parts = [x for x in (logs, scale, possible) if x is not None]
        if not all(x.free and self.symbols.known(compact(x.offset)).all() for x in parts):
            return None
        # A scale is a power of the density.
        power = 1.0 if scale is None else self.symbols.values(scale.offset)
        with np.errstate(all="ignore"):
            total = float(np.sum(power * np.asarray(self.symbols.values(logs.offset))))
        return total if np.isfinite(total) and np.all(self.symbols.values(possible.offset)) else -np.inf

    def _check_any_latent(self) -> None:
        """Refuse what no route infers rightly: draws of no site, rewards from which nothing would be learnt."""
        laws = {"the transition law": (self.transition,), "the reward law": tuple(self.reward.values())}
        parameters = {f"site {name!r}": tuple(entries.values()) for name, entries in self.parameters_of.items()}
        densities = {f"site {n!r}": tuple(x for x in parts if x is not None) for n, parts in self.densities.items()}
        powers = {f"site {name!r}": (entries,) for name, entries in self.powers.items()}
        for name, arrays in (*laws.items(), *parameters.items(), *densities.items(), *powers.items()):
            # Random numbers of no site have no density: no route can infer them.
            if any(KEY in self.depends(x) for x in arrays):
                raise ValueError(
                    f"prior: {name} depends on random numbers that belong to no site (numpyro.prng_key, or a site "
                    "that handlers.block hides), expected numpyro.sample for every draw"
                )
        depends = self.depends(self.reward["mean"]) - {KEY} if self.program.law.family == KNOWN else frozenset()
        if depends and not self.held:
            raise ValueError(
                f"prior: the reward is an array that depends on site {first(self.program, depends)!r}, so that nothing "
                "would be learnt from rewards; expected the law of one reward, such as dist.Normal(mean, scale), or "
                "known numbers"
            )

    def _input(self, name: str) -> Value:
        value = self.program.values[name]
        if name in self.held:
            # A held value is a number like any other.
            return np.asarray(self.held[name], value.dtype)
        if name in self.layout.shapes:
            return elements_of(self.layout.elements(name), name, self.symbols)
        return symbols_of(value.shape, name, self.symbols)

    def of(self, *families: str) -> tuple[Site, ...]:
        """The conjugate sites of these families, in order."""
        return tuple(site for site in self.sites if site.family in families)

    def depends(self, entries: Entries) -> frozenset[str]:
        """The latent sites that an array depends on."""
        if id(entries) not in self._depends:
            self._depends[id(entries)] = entries, self._sites_in(entries)
        return self._depends[id(entries)][1]

    def _sites_in(self, entries: Entries) -> frozenset[str]:
        # Sites of the elements that are there, and those behind symbols.
        # Exact where every entry has the known form; an opaque entry may depend on all that went in.
        element = compact(entries.element).ravel()
        if element.min(initial=0) <= OPAQUE:
            return entries.sites
        symbols = (entries.offset, entries.coefficient)
        known = all(self.symbols.known(compact(ids)).all() for ids in symbols)
        not_conjugate = frozenset() if known else entries.sites - frozenset(self.layout.shapes)
        if len(self.layout.shapes) <= 1:
            return not_conjugate | (frozenset(self.layout.shapes) if (element >= 0).any() else frozenset())
        used = np.zeros(self.layout.size + 1, bool)
        used[element] = True  # the last place is for "none"
        return not_conjugate | {name for name, part in self.layout.split(used).items() if part.any()}

    def parameters(self, site: Site) -> dict[str, np.ndarray]:
        """Checked parameters of a conjugate site, in the shape of its rows; of one that an element scales, the factor.

        Raises:
            ValueError: a parameter that is not finite or, but for `loc`, not positive.
        """
        values = {}
        for name, entries in self.parameters_of[site.name].items():
            values[name] = self.number(entries, "parameters", site.name, name)
            real = name in ("loc", "scale_tril")
            # An outcome that is known to be impossible has a concentration of zero.
            checked = values[name] if site.rows is None else np.where(site.rows.possible, values[name], 1.0)
            (check_finite if real else check_positive)(f"prior: {site.name}.{name}", checked)
        return values

    def number(self, entries: Entries, *place: str) -> Float[np.ndarray, "..."]:
        """The numbers of an array, or of its coefficients: known, or those at the values of the hyperparameters."""
        # Known by itself, or a multiple of an element.
        ids = entries.offset if entries.free else entries.coefficient
        if self.symbols.known(compact(ids)).all():
            return np.array(self.symbols.values(ids))
        if self.numbers is None:
            label = " ".join(place[1:])
            raise NotConjugate(f"prior: what {label} is made of cannot be read as known numbers")
        value: Any = self.numbers
        for key in place:
            value = value[key]
        return np.asarray(value, np.float64)

    def selects(self, entries: Entries) -> Bool[np.ndarray, "..."]:
        """Where an entry is one element itself, or a known number."""
        known = (entries.element == NONE) & self.symbols.known(entries.offset) & (entries.transform is None)
        return np.asarray(self.symbols.affine_in_element(entries, 1.0, 0.0) | known)

    def affine(self, entries: Entries) -> Bool[np.ndarray, "..."]:
        """Where an entry is offset + coefficient times one element, both known, or a known number."""
        symbols = self.symbols
        element = (entries.element >= 0) & (entries.power == 1.0) & symbols.known(entries.coefficient)
        # Zero and infinity are what underflow and overflow leave of a coefficient.
        size = np.abs(symbols.values(entries.coefficient))
        element &= (size > 0) & (size < np.inf)
        known = (entries.element == NONE) | element
        return np.asarray(known & symbols.known(entries.offset) & (entries.transform is None))

    def multiples(self, entries: Entries) -> Bool[np.ndarray, "..."]:
        """Where an entry is a factor, free of conjugate sites, times one element."""
        return np.asarray(
            (entries.element >= 0)
            & (entries.power == 1.0)
            & (entries.transform is None)
            & self.symbols.known(entries.offset)
            & self.symbols.equals(entries.offset, 0.0)
        )

    def select(self, law: str, entries: Entries) -> Int[np.ndarray, "*cells"]:
        """The element in each entry of a law, -1 where it is known.

        Raises:
            NotConjugate: the law is no selection; names the site by which it is none.
        """
        # Where all are elements or known, the law is a selection.
        index = first_index(~self.selects(entries))
        if index is None:
            return entries.element
        depends = self.depends(entries)
        not_conjugate = depends - frozenset(self.layout.shapes)
        if not_conjugate and entries.free:
            raise in_the_way(self.program, first(self.program, not_conjugate), f"{law} depends on it")
        name = first(self.program, not_conjugate or depends)
        raise in_the_way(self.program, name, f"{law} of {self.cell(index)} is neither one element of it nor free of it")

    def select_or_complement(self, law: str, entries: Entries) -> Int[np.ndarray, "*cells"]:
        """As `select`; one less an element e (of a Beta site) counts as the element N + e, its complement."""
        # Where an entry is one less one element.
        turned = self.symbols.affine_in_element(entries, -1.0, 1.0)
        if not turned.any():
            return self.select(law, entries)
        symbols, shape = self.symbols, entries.shape
        # Complements read as the elements that they are made of, everything else as it is.
        plain = replace(
            entries,
            coefficient=np.where(turned, np.broadcast_to(symbols.one, shape), entries.coefficient),
            offset=np.where(turned, np.broadcast_to(symbols.zero, shape), entries.offset),
        )
        return np.where(turned, entries.element + self.layout.size, self.select(law, plain))

    def known(self, entries: Entries) -> Float[np.ndarray, "..."]:
        """The known numbers of a law; zero in place of elements."""
        known = entries.element == NONE
        return np.where(known, self.symbols.values(entries.offset), 0.0) if known.any() else np.zeros(known.shape)

    def cell(self, index: tuple[int, ...]) -> str:
        """Words for an index into [*H S A] or [*H S A O]."""
        space = self.program.space
        # As many words as the index has axes.
        words = ("state", "action", "outcome") if space.horizon is None else ("step", "state", "action", "outcome")
        return ", ".join(f"{word} {i}" for word, i in zip(words, index, strict=False))

    def refuse(self, name: str, why: str) -> NotConjugate:
        """See `in_the_way`."""
        return in_the_way(self.program, name, why)


def inside(site: Site) -> Float[Array, "..."]:
    """A value inside the support of a conjugate site; a precision is one, so that what it scales shows its factor."""
    if site.rows is not None:
        return site.rows.feasible_like(jnp.zeros(site.shape))
    if site.family == "Dirichlet":
        return jnp.full(site.shape, 1.0 / site.shape[-1])
    if site.family == "NormalGamma":
        return jnp.broadcast_to(jnp.array([0.0, 1.0]), site.shape)
    return jnp.full(site.shape, {"Normal": 0.0, "MultivariateNormal": 0.0, "Beta": 0.5}.get(site.family, 1.0))


# Is a scaled or masked site still a distribution? A mask leaves a constant, which is a density on a bounded support
# alone. A scale leaves a power c of the density, of which it is asked whether its integral is finite, by family:
#
#   density x^(a - 1) ... near zero:                     c (a - 1) + 1 > 0;
#   bounded density whose tails fall exponentially:      c > 0.
#
# What cannot be shown is refused: another family, and parameters that depend on other sites (the integral is a function
# of these, which need not have a mean). `ImproperUniform` says itself that it is improper, and is accepted with data.
EXPONENTS = {"Dirichlet": ("concentration",), "Beta": ("concentration1", "concentration0"), "Gamma": ("concentration",)}
"""Families of the first kind, and the parameters that are an a."""
LIGHT = frozenset({"Normal", "HalfNormal", "LogNormal", "Laplace", "Exponential", "MultivariateNormal", "Logistic"})
"""Families of the second kind (a log-normal is one on the log scale, whatever the power)."""


def check_proper(program: Program) -> None:
    """Refuse latent sites that a scale or a mask may leave without a distribution.

    Raises:
        ValueError: names the first one.
    """
    # The probe traces the program: only where a power of a density is in question.
    bent = [site for site in program.latents if site.scaled or site.masked]
    probe = Probe(program) if any(site.name in program.outputs.powers for site in bent) else None
    for site in bent:
        if site.masked and not site.bounded:
            raise ValueError(
                f"prior: site {site.name!r} is masked (handlers.mask) and unbounded, so that nothing is left of its "
                "prior, expected it without the mask, or dist.ImproperUniform where that is meant"
            )
        if probe is not None and site.name in probe.powers and not _power_is_proper(probe, site):
            raise ValueError(
                f"prior: site {site.name!r} ({site.family}) is scaled (handlers.scale), and this power of its density "
                "is not known to be a distribution, expected the law that is meant, or the power in words: "
                f"numpyro.factor(..., (power - 1) * law.log_prob({site.name}))"
            )


def _power_is_proper(probe: Probe, site: Site) -> bool:
    power = _numbers(probe, probe.powers[site.name])
    # A power of zero is flat: proper on a bounded support alone.
    if power is None or np.min(power) < 0 or (np.min(power) == 0 and not site.bounded):
        return False
    if np.all(power == 1.0):
        return True
    parameters = probe.parameters_of[site.name].values()  # of the families that have a closed form
    dependences = [*parameters, *(x for x in probe.densities.get(site.name, ()) if x is not None)]
    # Parameters that depend on other sites: the constant would depend on them.
    if frozenset().union(*map(probe.depends, dependences)) - {site.name}:
        return False
    if site.family not in EXPONENTS:
        return site.family == "Uniform" or site.family in LIGHT
    exponents = [_numbers(probe, probe.parameters_of[site.name][name]) for name in EXPONENTS[site.family]]
    if any(a is None for a in exponents):
        return bool(np.max(power) <= 1.0)  # c (a - 1) + 1 > 0 whatever a > 0 is
    possible = [np.where(a > 0, a, 1.0) for a in exponents if a is not None]  # zero: an outcome that cannot be
    return all(bool(np.all(np.max(power) * (a - 1.0) + 1.0 > 0)) for a in possible)


def _numbers(probe: Probe, entries: Entries) -> np.ndarray | None:
    """The numbers of an array that depends on no site; None: it depends on some, or cannot be read."""
    if probe.depends(entries) or not entries.free or not probe.symbols.known(compact(entries.offset)).all():
        return None
    return np.asarray(probe.symbols.values(entries.offset))
