"""What an algorithm hands over: draws, and what shows whether they can be trusted."""

from collections.abc import Mapping

import equinox as eqx
import numpy as np
from jaxtyping import Float

from bayes_mdp.inference.draws.chains import NO_TABLES, Chains, Scalars
from bayes_mdp.utils.typing import AnyArray

WINDOW = 0.25
"""Share of the steps of an optimiser that is compared with the share before it."""
MIN_WINDOW = 25
"""Steps of such a share, below which their mean is too noisy."""
MAX_FALL = 0.1
"""Fall of the mean loss between the two, in nats, that counts as "still falling"."""
MAX_NOISE = 3.0
"""Standard errors that it must exceed."""


class Drawn(eqx.Module):
    """Draws of the latent sites from one run of one algorithm.

    Args:
        sites: site -> [N ...].
        mcmc: the chains, for MCMC; else None.
        losses: [K], the negative evidence lower bound (Laplace: the negative log density) at every step of the
            optimiser, for what optimises; else None.
    """

    sites: Mapping[str, AnyArray]
    mcmc: Chains | None
    losses: Float[AnyArray, " K"] | None

    def problems(self, tables: Mapping[str, Scalars] = NO_TABLES) -> list[str]:
        """Problems to know of before these draws are used, one sentence each. Host side.

        Args:
            tables: as for `Chains.problems`.
        """
        if self.mcmc is not None:
            return self.mcmc.problems(tables)
        return _optimiser(self.losses) + _degenerate(self.sites)


def _optimiser(losses: Float[AnyArray, " K"] | None) -> list[str]:
    if losses is None:
        return []
    losses = np.asarray(losses, np.float64)
    finite = np.isfinite(losses)
    if not finite.any():
        return [
            "the loss is not finite at any step: the data are impossible under the prior wherever it looked; compare "
            "the rewards with the support of the reward law, the transitions with rows that hold zeros"
        ]
    # The last two windows of the loss are compared: a fall larger than its noise means no convergence yet.
    width = int(WINDOW * len(losses))
    if width < MIN_WINDOW:
        return [f"the optimiser made {len(losses)} steps, too few to see whether it arrived: give more (num_steps=)"]
    before, after = losses[-2 * width : -width], losses[-width:]
    if not np.isfinite(after).all():
        bad = int((~np.isfinite(after)).sum())
        return [f"the loss is not finite at {bad} of the last {width} steps: give a smaller learning_rate"]
    fall = before.mean() - after.mean()
    noise = np.sqrt((before.var() + after.var()) / width)
    if fall > max(MAX_FALL, MAX_NOISE * noise):
        return [
            f"the loss is still falling (by {fall:.2g} over the last {width} of {len(losses)} steps): give more steps "
            "(num_steps=) or a larger learning_rate"
        ]
    return []


def _degenerate(sites: Mapping[str, AnyArray]) -> list[str]:
    """Sites whose draws are not finite, or one point."""
    for name, values in sites.items():
        array = np.asarray(values)
        if not np.isfinite(array).all():
            return [f"site {name!r} has draws that are not finite: give a smaller learning_rate, or method=NUTS()"]
        if len(array) > 1 and array.size and (array == array[:1]).all():
            return [
                f"the draws of site {name!r} are one point (the curvature at the mode is not positive, or the guide is "
                "a Delta): use SVI with AutoNormal, or NUTS"
            ]
    return []
