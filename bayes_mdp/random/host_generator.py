"""NumPy's random numbers from a key of JAX, for what is drawn on the host: one generator, or one for each unknown."""

from functools import cached_property

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray


def host_generator(key: PRNGKeyArray) -> np.random.Generator:
    """A generator that the key seeds: the same key, the same numbers."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())


SHORT = 8
"""Width up to which small rows are made all at once: of longer ones the sums and logarithms take the time."""
SMALL = 0.1
"""Concentration below which all gamma variables of a row may be zero in float64 (at 0.1 with probability 1e-30)."""


class ElementStreams:
    """Random numbers of N elements, one generator each, seeded by a key, a purpose and the number of the element.

    What an element gets depends neither on which other elements are asked for nor on how many draws are made at a
    time: values of several policies share their draws, and any split of the draws into blocks gives the same ones.

    Args:
        key: JAX's, typed or raw.
        purpose: draws for different purposes are independent.
        elements: the numbers of the elements.

    Attributes:
        generators: of the elements, for numbers that no method makes.
    """

    def __init__(self, key: PRNGKeyArray, purpose: int, elements: Int[np.ndarray, " N"]) -> None:
        self._words = np.asarray(jax.random.key_data(key)).ravel().tolist()
        self._purpose, self._elements = purpose, elements.tolist()
        self.generators = [self._generator(number) for number in self._elements]

    def _generator(self, *path: int) -> np.random.Generator:
        seed = np.random.SeedSequence(self._words, spawn_key=(self._purpose, *path))
        return np.random.Generator(np.random.PCG64(seed))

    @cached_property
    def _boosts(self) -> list[np.random.Generator]:
        # A generator serves one kind of numbers: else blocks of other sizes would get other ones.
        return [self._generator(number, 1) for number in self._elements]

    def uniforms(self, num: int) -> Float[np.ndarray, "num N"]:
        """The next `num` numbers from [0, 1) of each element."""
        return self._stack(num, [generator.random(num) for generator in self.generators])

    def normals(self, num: int, width: int | None = None) -> Float[np.ndarray, "num N *width"]:
        """The next `num` standard normal numbers of each element; `width`: of each so many."""
        size = num if width is None else (num, width)
        return self._stack(num, [generator.standard_normal(size) for generator in self.generators])

    def log_gammas(self, num: int, concentration: Float[np.ndarray, "*num N"]) -> Float[np.ndarray, "num N"]:
        """Logarithms of the next `num` standard gamma variables of each element, however small `concentration` is.

        It may differ from draw to draw.
        """
        sizes = concentration + 1.0
        gammas = [generator.standard_gamma(sizes[..., n], num) for n, generator in enumerate(self.generators)]
        uniforms = [generator.random(num) for generator in self._boosts]
        return _log_gammas(self._stack(num, gammas), self._stack(num, uniforms), concentration)

    def dirichlets(
        self,
        num: int,
        concentration: Float[np.ndarray, "*num E"],
        first: Int[np.ndarray, " N1"],
        small: Bool[np.ndarray, " N"],
    ) -> Float[np.ndarray, "num E"]:
        """The next `num` Dirichlet rows of each element, one row beside the other.

        Args:
            num: how many.
            concentration: not negative; it may differ from draw to draw.
            first: [N + 1], where the row of each element begins, and E.
            small: rows of which all concentrations may be below `SMALL`: they are drawn by logarithms.
        """
        rows, width = np.empty((num, concentration.shape[-1])), np.diff(first)
        regular = bool((width == width[:1]).all())
        if regular and len(width) and width[0] <= SHORT and small.all():
            return self._short_rows(num, concentration, int(width[0]))
        for n, generator in enumerate(self.generators):
            columns = slice(first[n], first[n + 1])
            alpha, size = concentration[..., columns], (num, int(width[n]))
            if small[n]:
                # By logarithms less their largest, which is never lost.
                logs = log_gammas(generator, self._boosts[n], alpha, size)
                gammas = np.exp(logs - logs.max(-1, keepdims=True))
            else:
                gammas = generator.standard_gamma(alpha, size)
            # Divided while they are in the cache. (A sum along an axis and one of a segment differ in rounding.)
            total = gammas.sum(-1, keepdims=True) if regular else np.add.reduceat(gammas, [0], axis=-1)
            np.divide(gammas, total, out=rows[:, columns])
        return rows

    def _short_rows(
        self, num: int, concentration: Float[np.ndarray, "*num E"], width: int
    ) -> Float[np.ndarray, "num E"]:
        """Small rows of one short width: numbers one element after the other, their logarithms all at once."""
        # [num N width], or [1 N width] where all draws have one concentration.
        alpha = concentration.reshape(-1, len(self.generators), width)
        sizes = alpha + 1.0
        per_element = [sizes[0, n] if len(sizes) == 1 else sizes[:, n] for n in range(sizes.shape[1])]
        size = num, width
        drawn = [each.standard_gamma(a, size) for each, a in zip(self.generators, per_element, strict=True)]
        uniforms = [boost.random(size) for boost in self._boosts]
        logs = _log_gammas(np.stack(drawn, 1), np.stack(uniforms, 1), alpha)
        gammas = np.exp(logs - logs.max(-1, keepdims=True))
        return (gammas / gammas.sum(-1, keepdims=True)).reshape(num, -1)

    @staticmethod
    def _stack(num: int, columns: list[np.ndarray]) -> np.ndarray:
        return np.stack(columns, 1) if columns else np.empty((num, 0))


def log_gammas(
    generator: np.random.Generator,
    boost: np.random.Generator,
    concentration: Float[np.ndarray, "..."],
    size: tuple[int, ...],
) -> Float[np.ndarray, "..."]:
    """Logarithms of gamma variables, however small their concentration is; -inf where it is zero.

    Gamma(a) is Gamma(a + 1) U^(1/a) (Marsaglia and Tsang 2000, section 6).

    Args:
        generator: of the gamma variables.
        boost: of the uniform numbers.
        concentration: not negative.
        size: of the answer.
    """
    return _log_gammas(generator.standard_gamma(concentration + 1.0, size), boost.random(size), concentration)


def _log_gammas(
    gamma: Float[np.ndarray, "..."], uniform: Float[np.ndarray, "..."], concentration: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """The same from variables of a concentration that is larger by one, and uniform numbers."""
    logs = np.log(gamma) + np.log1p(-uniform) / np.where(concentration > 0, concentration, 1.0)
    return np.where(concentration > 0, logs, -np.inf)


def draw_dirichlet_rows(
    rng: np.random.Generator, concentration: Float[np.ndarray, "*M K"]
) -> Float[np.ndarray, "*M K"]:
    """Dirichlet rows, one of each; a row without a positive concentration stays zero.

    Args:
        rng: of all of them.
        concentration: not negative.
    """
    # By logarithms less their largest, which is never lost.
    logs = log_gammas(rng, rng, concentration, concentration.shape)
    largest = logs.max(-1, keepdims=True)
    rows = np.exp(logs - np.where(np.isneginf(largest), 0.0, largest))
    total = rows.sum(-1, keepdims=True)
    return rows / np.where(total == 0, 1.0, total)
