"""Gibbs sampling of `stick_rows` by Polya-Gamma variables [PG13]: exact conditionals, no tuning, no rejection.

A stick is a binary choice: of the n transitions that reach outcome k or a later one, y lead to k, with log odds x . b.
Given omega ~ PG(n, x . b) the coefficients are normal:

    V = (X' diag(omega) X + Lambda)^-1,    m = V (X' (y - n / 2) + Lambda mu),    b ~ Normal(m, V).

The sticks are independent given their data, and so are their chains. Random intercepts are further columns of precision
1 / tau^2, with tau ~ HalfNormal(1) drawn by a slice. The variables are drawn by the package `polyagamma`, always by
`method="devroye"`: its other methods are off by some percent in the variance, which no simulation-based check would
show (tests hold closed-form moments against it).
"""

from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, Int, PRNGKeyArray
from scipy.linalg import cho_solve, solve_triangular

from bayes_mdp.inference.draws.chains import Chains
from bayes_mdp.inference.draws.methods import Gibbs
from bayes_mdp.inference.integrals.row_density import VisitedCells, visited_cells
from bayes_mdp.models.regressions import RowLaw
from bayes_mdp.models.reward_laws import unwrap
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.random.slice_sampling import slice_step


class _Stick(NamedTuple):
    """The data of one stick, cell by cell.

    Args:
        columns: [M D], the design, then 0 and 1 of the groups.
        reached: [M], transitions that reach this stick.
        taken: [M], those that end here.
        mean, precision: [p], of the prior of the coefficients.
        num_groups: G.
    """

    columns: Float[np.ndarray, "M D"]
    reached: Float[np.ndarray, " M"]
    taken: Float[np.ndarray, " M"]
    mean: Float[np.ndarray, " p"]
    precision: Float[np.ndarray, " p"]
    num_groups: int


def draw_polya_gamma(
    rng: np.random.Generator, number: Float[np.ndarray, "*N"], tilt: Float[np.ndarray, "*N"]
) -> Float[np.ndarray, "*N"]:
    """PG(number, tilt), exactly, for whole numbers of 1 or more.

    Args:
        rng: of the draws.
        number: of transitions.
        tilt: x . b.

    Raises:
        ImportError: the package `polyagamma` is not installed.
    """
    try:
        from polyagamma import random_polyagamma
    except ImportError:
        raise ImportError("method='gibbs' needs the package polyagamma: pip install 'bayes-mdp[polyagamma]'") from None
    draw: Any = random_polyagamma
    return draw(number, tilt, method="devroye", random_state=rng)


def stick_draws(
    key: PRNGKeyArray, law: RowLaw, counts: Float[np.ndarray, "C S A O"] | None, options: Gibbs
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Draws of the sites of `stick_rows` after counts, and what is to be known of their chains.

    Args:
        key: of the chains.
        law: the record of `stick_rows`.
        counts: of each (context, state, action, outcome); None: there are no data.
        options: of the chains.

    Returns:
        {site: [N ...]} of all chains together, and problems, one sentence each.

    Raises:
        ValueError: coefficients that are not normal, counts that are no whole numbers. ImportError: the package
            `polyagamma` is not installed.
    """
    base = None if law.prior is None else unwrap(law.prior)
    if not isinstance(base, dist.Normal) or law.prior is None:
        prior_words = "shrink=" if law.prior is None else f"coefficients of {type(base).__name__}"
        raise ValueError(f"method is 'gibbs', and stick_rows has {prior_words}, expected dist.Normal, or method='nuts'")
    size, number = law.prior.batch_shape
    # Every stick has coefficients of its own: [p columns, K sticks].
    mean, scale = (np.broadcast_to(np.asarray(x, np.float64), (size, number)) for x in (base.loc, base.scale))
    if counts is not None and (counts != np.floor(counts)).any():
        raise ValueError("method is 'gibbs', and the counts of the log are no whole numbers, expected method='nuts'")
    generators = [host_generator(each) for each in jax.random.split(key, options.num_chains)]
    cells = visited_cells(law, counts)
    group = None if law.group is None else law.group[cells.context]
    # Stick j is a binomial: of those that reach it, how many end there.
    sticks = [_stick(law, cells, group, j, mean[:, j], scale[:, j] ** -2.0) for j in range(number)]
    # A generator for each chain; sticks of one chain draw from it in turn.
    chains = [[_chain(rng, stick, options) for stick in sticks] for rng in generators]
    names = law.sites if law.num_groups else law.sites[:1]
    # [chain, draw, ..., stick], by site.
    drawn = {
        name: np.stack([np.stack([stick[i] for stick in chain], -1) for chain in chains])
        for i, name in enumerate(names)
    }
    problems = Chains(dict(drawn)).problems() if options.num_chains > 1 and options.num_samples >= 4 else []
    return {name: x.reshape(-1, *x.shape[2:]) for name, x in drawn.items()}, problems


def _stick(
    law: RowLaw,
    cells: VisitedCells,
    group: Int[np.ndarray, " M"] | None,
    j: int,
    mean: Float[np.ndarray, " p"],
    precision: Float[np.ndarray, " p"],
) -> _Stick:
    """The data of stick `j`, of the cells that have some; `group` is that of each cell."""
    # Cells that no transition reached say nothing of the stick.
    used = cells.number[:, j] > 0
    flat = cells.columns[used]
    if group is not None:
        # Intercepts of groups are columns of zeros and ones.
        flat = np.concatenate([flat, np.eye(law.num_groups)[group[used]]], -1)
    return _Stick(flat, cells.number[used, j], cells.taken[used, j], mean, precision, law.num_groups)


def _chain(rng: np.random.Generator, stick: _Stick, options: Gibbs) -> tuple[np.ndarray, ...]:
    """One chain of one stick: coefficients [N p]; with groups the scales [N] and unit intercepts [N G]."""
    size, groups = len(stick.mean), stick.num_groups
    total = size + groups
    trace = np.empty((options.num_samples, total)), np.empty(options.num_samples)
    tau, b = 1.0, np.zeros(total)
    mean = np.concatenate([stick.mean, np.zeros(groups)])
    # X' (y - n / 2): what does not depend on omega.
    pull = stick.columns.T @ (stick.taken - stick.reached / 2)
    for sweep in range(-options.num_warmup, options.num_samples):
        # Lambda: the prior's precisions, and 1 / tau^2 for the intercepts.
        precision = np.concatenate([stick.precision, np.full(groups, tau**-2.0)])
        weighted = stick.columns.T
        if len(stick.reached):
            # omega ~ PG(n, x . b); then X' diag(omega) X is the precision that the data add.
            weighted = weighted * draw_polya_gamma(rng, stick.reached, stick.columns @ b)
        root = np.linalg.cholesky(weighted @ stick.columns + np.diag(precision))
        # m = V (X' (y - n / 2) + Lambda mu) by two triangular solves.
        centre = cho_solve((root, True), pull + precision * mean)
        # root'^-1 z has covariance V.
        b = centre + solve_triangular(root.T, rng.standard_normal(total), lower=False)
        if groups:
            tau = _draw_scale(rng, tau, float((b[size:] ** 2).sum()), groups)
        if sweep >= 0:
            trace[0][sweep], trace[1][sweep] = b, tau
    if not groups:
        return (trace[0],)
    # Intercepts are returned in units of tau, as the program draws them.
    return trace[0][:, :size], trace[1], trace[0][:, size:] / trace[1][:, None]


def _draw_scale(rng: np.random.Generator, tau: float, squares: float, number: int) -> float:
    """tau given intercepts Normal(0, tau^2), tau ~ HalfNormal(1): a slice in log tau."""

    def height(t: float) -> float:
        # log density of log tau: the Jacobian turns tau^-number into tau^-(number - 1).
        return -(number - 1) * t - 0.5 * squares * np.exp(-2 * t) - 0.5 * np.exp(2 * t)

    return float(np.exp(slice_step(rng, np.log(tau), height, 1.0, most=None)))
