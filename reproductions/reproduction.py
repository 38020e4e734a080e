"""What an experiment of `reproduce` consists of, and the rows of its table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

Verdict = Literal["agrees", "undecided", "differs"]
Scale = Literal["quick", "full"]
SCALES: tuple[Scale, ...] = ("quick", "full")


@dataclass(frozen=True)
class Row:
    """One number of a published experiment, and ours.

    Args:
        quantity: what it is; names the row in `expected_verdicts.toml`.
        published: the number of the paper or of its specification; None: it prints none.
        ours: our number.
        half: half the width of its 95 % interval; 0 where it is exact.
        band: (low, high), where ours must lie to agree; None: the row is shown for orientation, without a verdict.
    """

    quantity: str
    published: float | None
    ours: float
    half: float = 0.0
    band: tuple[float, float] | None = None

    @property
    def verdict(self) -> Verdict | None:
        """ "agrees": ours lies in the band; "undecided": only a part of its interval does; "differs": none of it."""
        if self.band is None:
            return None
        low, high = self.band
        if low <= self.ours <= high:
            return "agrees"
        return "undecided" if self.ours + self.half >= low and self.ours - self.half <= high else "differs"


@dataclass(frozen=True)
class Reproduction:
    """A published experiment.

    Args:
        source: paper and figure or table.
        run: key -> a Dataset; the defaults of its other arguments, keywords all, are full scale, that of the paper. One
            of many parts takes `cells` too, a `Cells` that keeps them.
        rows: the table of a Dataset.
        figure: the figure of a Dataset.
        quick: the options that differ at quick scale.
        seconds: about how long each scale takes on two cores, compilation included.
        one_thread: its kernels are so small that XLA's pool of threads only hands them around (two cores: three times
            the CPU time); the command line then asks for a pool of one, before JAX starts.
    """

    source: str
    run: "Callable[..., xr.Dataset]"
    rows: "Callable[[xr.Dataset], list[Row]]"
    figure: "Callable[[xr.Dataset], Figure]"
    quick: Mapping[str, Any]
    seconds: Mapping[str, float]
    one_thread: bool = False

    @property
    def in_cells(self) -> bool:
        """Whether `run` takes `cells`."""
        return "cells" in signature(self.run).parameters

    def options(self, scale: Scale) -> dict[str, Any]:
        """The arguments of `run` at a scale, but for the key and the cells."""
        parameters = signature(self.run).parameters
        full = {name: parameter.default for name, parameter in parameters.items() if name not in ("key", "cells")}
        return full | dict(self.quick) if scale == "quick" else full
