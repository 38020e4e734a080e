"""Sites of a program as variables of ArviZ: names that collide with nothing, and what their axes are."""

from collections.abc import Collection, Mapping

from bayes_mdp.calibration.belief.program_run import SiteFacts

SUFFIX = "_site"


class SiteVariables:
    """The names and dimensions of sites among other variables.

    A site keeps its name, but for "/", which names no variable ("." takes its place), and for a name that is taken,
    which gets the suffix "_site". An axis has the name of its plate (or event) where that is free, else
    `{variable}_dim_{i}`.

    Args:
        taken: names of the other variables.
        sizes: of the coordinates that there are, by name; a plate of such a name is that coordinate, if it has its
            size.
        reserved: names that no variable and no plate of the user can have.
        sites: to be named.
    """

    def __init__(
        self,
        taken: Collection[str],
        sizes: Mapping[str, int],
        reserved: Collection[str],
        sites: Mapping[str, SiteFacts],
    ) -> None:
        self._sizes = dict(sizes)
        self._used = {*taken, *reserved}
        self._names: dict[str, str] = {}
        for site in sites:
            name = site.replace("/", ".")
            while name in self._used or name in sizes:
                name += SUFFIX
            self._used.add(name)
            self._names[site] = name
        # Dimensions after all names, as a plate must not have the name of a variable.
        self._dims = {site: self._dims_of(self._names[site], facts) for site, facts in sites.items()}

    def name(self, site: str) -> str:
        """The variable of a site."""
        return self._names[site]

    def dims(self, site: str) -> tuple[str, ...]:
        """The dimensions of its value."""
        return self._dims[site]

    def _dims_of(self, name: str, facts: SiteFacts) -> tuple[str, ...]:
        dims: list[str] = []
        for i, (plate, size) in enumerate(zip(facts.axes, facts.shape, strict=True)):
            kept = plate is not None and plate not in dims and self._is_free(plate, size)
            dims.append(plate if kept and plate is not None else f"{name}_dim_{i}")
        return tuple(dims)

    def _is_free(self, plate: str, size: int) -> bool:
        """Whether a plate can be a dimension; the size that it is first seen with is kept."""
        if plate in self._used or "/" in plate:
            return False
        return self._sizes.setdefault(plate, size) == size
