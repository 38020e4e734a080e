"""A traced program evaluated at the points of the selection test: its leaves' parameters, and what its laws select."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from bayes_mdp.inference.refusals import NotConjugate, first, in_the_way
from bayes_mdp.inference.selection import POSITIVE, REAL, UNIT, Entries, Layout, entries
from bayes_mdp.inference.trace import Program, Site, compiled, compiled_laws
from bayes_mdp.mdp.validation import check_finite, check_positive, first_index

DOMAINS = {"Dirichlet": REAL, "NormalGamma": (REAL, POSITIVE), "Normal": REAL, "Gamma": POSITIVE, "Beta": UNIT}


class Probe:
    """A program all of whose latent sites are leaves, its arrays at the test points. Host side; compiles once.

    Args:
        program: the program.
        rng: draws the points.
    """

    def __init__(self, program: Program, rng: np.random.Generator) -> None:
        shapes = {site.name: site.shape for site in program.latents}
        domains = {site.name: DOMAINS[site.family] for site in program.latents}
        self.program, self.layout = program, Layout(shapes, domains)
        self._rng = rng
        self.answers = self._entries()

    def _entries(self, only: str | None = None) -> Any:
        points = self.layout.points(self._rng, only)
        values = [{**self.program.held, **self.layout.split(point)} for point in points.values()]
        if any(sites for leaf in self.program.parents.values() for sites in leaf.values()):
            answers = [compiled(self.program.evaluate)(value) for value in values]
        else:  # The parameters of the leaves are the same at every point.
            first = compiled(self.program.evaluate)(values[0])
            others = [compiled_laws(self.program.evaluate)(value) for value in values[1:]]
            answers = [first, *({**laws, "leaves": first["leaves"]} for laws in others)]
        return jax.tree.map(lambda *arrays: entries([np.asarray(x) for x in arrays], points), *answers)

    def sites(self, *families: str) -> tuple[Site, ...]:
        """The latent sites of these families, in order."""
        return tuple(site for site in self.program.latents if site.family in families)

    def parameters(self, site: Site) -> dict[str, np.ndarray]:
        """The parameters of a leaf, checked, in the shape of its rows.

        Raises:
            ValueError: a parameter that is not finite or, but for `loc`, not positive.
        """
        values = {}
        for name, array in self.answers["leaves"][site.name].items():
            values[name] = array.weight if self.program.parents[site.name][name] else array.zero
            (check_finite if name == "loc" else check_positive)(f"prior: {site.name}.{name}", values[name])
        return values

    def select(self, law: str, pick: Callable[[Any], Entries], parents: frozenset[str]) -> Int[np.ndarray, "*cells"]:
        """The element in each entry of a law (`pick` finds it in the answers), -1 where it is known.

        Raises:
            ValueError: the law is no selection; names the site by which it is none.
        """
        law_entries = pick(self.answers)
        index = first_index(~law_entries.selects())
        if index is None:
            return law_entries.index()
        alone = [
            name for name in self.layout.shapes if name in parents and not pick(self._entries(name)).selects().all()
        ]
        name = first(self.program, alone or parents)
        raise in_the_way(self.program, name, f"{law} of {self.cell(index)} is neither one element of it nor free of it")

    def cell(self, index: tuple[int, ...]) -> str:
        """Words for an index into [*H S A] or [*H S A O]."""
        space = self.program.space
        words = ("state", "action", "outcome") if space.horizon is None else ("step", "state", "action", "outcome")
        return ", ".join(f"{word} {i}" for word, i in zip(words, index, strict=False))

    def refuse(self, name: str, why: str) -> NotConjugate:
        """See `in_the_way`."""
        return in_the_way(self.program, name, why)
