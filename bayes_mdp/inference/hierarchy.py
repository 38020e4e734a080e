"""`Hierarchy`: a program whose leaves are conjugate once their latent parents are held, found and proven on the trace.

Sites in the way of an exact posterior become parents, one after the other, until what is left is conjugate given them.
The tables of the closed form (which leaf element is where) must be the same for all values of the parents; its
parameters are functions of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import handlers

from bayes_mdp.inference.detect import Detected, detect
from bayes_mdp.inference.families import RewardBelief
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.refusals import NotConjugate, check_sites
from bayes_mdp.inference.rewards import RewardCells
from bayes_mdp.inference.trace import Program, compiled

NUM_VALUES = 3
Values = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Conjugate leaves under latent parents. Compares by what the program computes.

    Args:
        program: the whole program.
        parents: the latent sites that are no leaves, in order.
        detected: the closed form at some values of the parents.
    """

    program: Program
    parents: tuple[str, ...]
    detected: Detected

    def __hash__(self) -> int:
        return hash((self.program, self.parents))

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Hierarchy) and self.program == other.program
        return same and self.parents == other.parents  # type: ignore[union-attr]

    @property
    def prior(self) -> ConjugatePosterior:
        """The belief before any data, given some values of the parents."""
        posterior = self.detected.posterior
        # The concentrations need not all be one at other values.
        return replace(posterior, transition_probs=replace(posterior.transition_probs, unit_prior=False))

    def draw(self, key: PRNGKeyArray) -> dict[str, Array]:
        """One draw of the parents from the prior. Traceable."""
        return draw_sites(self.program, self.parents, key)

    def parameters(self, values: Values) -> tuple[Float[Array, "M K"], RewardBelief | None]:
        """The parameters of the stacked leaves at `values` of the parents. Traceable."""
        detected, evaluate = self.detected, compiled(self.program.evaluate)
        shapes, parents = detected.layout.shapes, self.program.given(values).parents
        with handlers.block():
            zero = evaluate({**values, **{name: jnp.zeros(shape) for name, shape in shapes.items()}})
            one: Any = None
            if any(sites for leaf in parents.values() for sites in leaf.values()):
                one = evaluate({**values, **{name: jnp.ones(shape) for name, shape in shapes.items()}})["leaves"]
        # A precision that a Gamma leaf scales is read off as its multiple.
        read = {
            leaf: {
                name: one[leaf][name] - array if parents[leaf][name] else array
                for name, array in zero["leaves"][leaf].items()
            }
            for leaf in detected.assembly.leaves
        }
        concentration = jnp.asarray(detected.assembly.concentration(read), float)
        return concentration, detected.assembly.belief(read, zero["reward"].get("precision"))

    def given(self, values: Values, seen: ConjugatePosterior) -> ConjugatePosterior:
        """The posterior of the leaves after what `seen` has seen, given the parents. Traceable."""
        return with_parameters(seen, *self.parameters(values))


def with_parameters(
    seen: ConjugatePosterior, concentration: Float[Array, "M K"], belief: RewardBelief | None
) -> ConjugatePosterior:
    """`seen` with other prior parameters of its leaves."""
    seen = replace(seen, transition_probs=seen.transition_probs.with_prior(concentration))
    if belief is None or not isinstance(seen.reward_cells, RewardCells):
        return seen
    return eqx.tree_at(lambda p: p.reward_cells.prior, seen, belief)


def draw_sites(program: Program, names: tuple[str, ...], key: PRNGKeyArray) -> dict[str, Array]:
    """One draw of these sites from the prior program. Traceable; nothing else is computed once it is compiled."""
    with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=key):
        program.prior(program.space)
    return {name: jnp.asarray(trace[name]["value"]) for name in names}


def find_hierarchy(program: Program, rng: np.random.Generator) -> tuple[Hierarchy, list[tuple[Program, Detected]]]:
    """The hierarchy of a program, not yet proven, and the closed forms at several draws of its parents. Host side.

    Raises:
        NotConjugate: no leaf is conjugate given the other sites; names the last site in the way.
        ValueError: a parameter of a leaf is out of its range.
    """
    parents: set[str] = set()
    while True:
        try:
            return _with_parents(program, _ordered(program, parents), rng)
        except NotConjugate as error:
            left = {site.name for site in program.latents} - parents
            if error.site is None or error.site not in left or len(left) == 1:
                raise
            parents.add(error.site)


def _with_parents(
    program: Program, parents: tuple[str, ...], rng: np.random.Generator
) -> tuple[Hierarchy, list[tuple[Program, Detected]]]:
    check_sites(program.given(dict.fromkeys(parents)))
    if not parents:
        detect(program, rng)
        raise NotConjugate("prior: no leaf has a latent parent, expected one to collapse; it has an exact posterior")
    _check_proper(program, parents)
    draw = jax.jit(lambda key: draw_sites(program, parents, key))
    forms = []
    for _ in range(NUM_VALUES):
        values = jax.tree.map(np.asarray, draw(jax.random.key(rng.integers(2**31))))
        held = program.given(values)
        forms.append((held, detect(held, rng)))
    for _, other in forms[1:]:
        _check_same(forms[0][1], other, parents)
    return Hierarchy(program, parents, forms[0][1]), forms


def _check_proper(program: Program, parents: tuple[str, ...]) -> None:
    for site in program.latents:
        if site.name in parents and site.family == "ImproperUniform":
            raise NotConjugate(
                f"prior: site {site.name!r} (ImproperUniform) cannot be normalised, so that there is no prior to draw "
                "from; give it a proper distribution"
            )


def _check_same(one: Detected, other: Detected, parents: tuple[str, ...]) -> None:
    """The tables, and what is known, do not depend on the parents."""

    def tables(detected: Detected) -> Any:
        rows, rewards = detected.posterior.transition_probs, detected.posterior.reward_cells
        rewards_table = (rewards.cell, rewards.known) if isinstance(rewards, RewardCells) else (rewards.known,)
        return (rows.row, rows.column, rows.known, *rewards_table)

    for a, b in zip(tables(one), tables(other), strict=True):
        if (a is None) != (b is None) or (a is not None and not np.array_equal(a, b)):
            names = ", ".join(repr(name) for name in parents)
            raise NotConjugate(
                f"prior: which leaf element a law holds, or what is known beside it, depends on the values of {names}, "
                "so that the leaves have no common statistics to collapse"
            )


def _ordered(program: Program, names: set[str]) -> tuple[str, ...]:
    return tuple(site.name for site in program.latents if site.name in names)
