"""What a reproduction consists of, and the rows of its table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayes_mdp.experiments.results import half_width

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
        published: the number of the paper; None: it prints none.
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


def mean_row(
    quantity: str, published: float | None, samples: Any, band: tuple[float, float] | None = None, *, widen: float = 1.0
) -> Row:
    """The row of a mean over seeds: infinite interval where there is one seed, or one that is infinite; nan of none.

    Args:
        quantity, published, band: as in `Row`.
        samples: one number a seed.
        widen: factor of the interval, for one that was chosen among several.
    """
    if not len(samples):
        return Row(quantity, published, float("nan"), float("inf"), band)
    known = len(samples) > 1 and np.isfinite(samples).all()
    half = widen * float(half_width(samples)) if known else float("inf")
    return Row(quantity, published, float(np.mean(samples)), half, band)


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
        one_thread: its kernels are so small that XLA's thread pool costs more than it gains (three times the CPU time
            on two cores); the command line then sets a pool of one, before JAX starts.
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
