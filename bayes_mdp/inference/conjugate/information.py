"""Expected information of one more transition about Dirichlet rows, in nats.

With c the concentrations of a row, c0 their sum and pbar = c / c0, the expected information of one outcome is

    I = E_i KL(Dir(c + e_i) || Dir(c)) = H(pbar) - E[H(p)] = sum_i pbar_i g(c_i) - g(c0),    g(x) = psi(x + 1) - log x,

the mutual information of outcome and row: the expected divergence of the belief after from the belief before, and the
expected surprise less the part of it that is noise (E[H(p)] = psi(c0 + 1) - sum pbar_i psi(c_i + 1)). It is about
(K - 1) / (2 c0) after many visits, K the number of possible outcomes. Storck, Hochreiter and Schmidhuber 1995; Sun,
Gomez and Schmidhuber, *Planning to be surprised*, AGI 2011.
"""

from jaxtyping import Float

from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.numerics.numpy_or_jax import pick, xp
from bayes_mdp.utils.typing import AnyArray

_SERIES_FROM = 20.0  # from here on five terms of the series are exact to 1e-13


def surplus(x: Float[AnyArray, "*n"]) -> Float[AnyArray, "*n"]:
    """g(x) = psi(x + 1) - log x for x > 0, accurate where it is the small difference of large numbers."""
    # Asymptotic series of psi(x + 1) - log x from 20 on; each branch of the `where` gets a safe argument.
    large = x > _SERIES_FROM
    small = xp.where(large, 1.0, x)
    inverse = 1.0 / xp.where(large, x, _SERIES_FROM)
    square = inverse**2
    series = inverse * (0.5 - inverse * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240))))
    return xp.where(large, series, xp.digamma(small + 1.0) - xp.log(small))


def _weighted(concentration: Float[AnyArray, "*n"]) -> Float[AnyArray, "*n"]:
    """c g(c), zero where c is."""
    possible = concentration > 0
    return xp.where(possible, concentration * surplus(xp.where(possible, concentration, 1.0)), 0.0)


def expected_information(rows: DirichletRows) -> Float[AnyArray, "*H S A"]:
    """Expected information of one more transition from a pair about its row, in nats; zero for known rows.

    Rows that share parameters: about the site row that they share. Listed counts under a prior of ones build no rows.
    """
    prior, counts = xp.asarray(rows.prior), xp.asarray(rows.counts)
    if rows.successor is None:
        # sum_i c_i g(c_i), to be divided by c0.
        total = _weighted(prior + counts).sum(-1)
    else:
        listed = xp.take_along_axis(prior, xp.asarray(rows.successor), -1)
        # Only listed columns have counts: start from the prior alone and exchange their terms.
        before = rows.prior.shape[-1] * _weighted(xp.ones(())) if rows.unit_prior else _weighted(prior).sum(-1)
        total = before + (_weighted(listed + counts) - _weighted(listed)).sum(-1)
    # I = sum_i pbar_i g(c_i) - g(c0); rounding can make it slightly negative.
    size = prior.sum(-1) + counts.sum(-1)
    unknown = (prior > 0).sum(-1) > 1
    rows_of_sites = xp.where(unknown, xp.maximum(total / size - surplus(size), 0.0), 0.0)
    if rows.row is None:
        return rows_of_sites.reshape(rows.shape[:-1])
    return xp.where(rows.is_known, 0.0, pick(rows_of_sites, rows.row))


def divergence(rows: Float[AnyArray, "*H S A O"], mean: Float[AnyArray, "*H S A O"]) -> Float[AnyArray, "*H S A"]:
    """KL(row || mean) in nats: averaged over components, the information of an outcome about which of them holds."""
    possible = rows > 0
    ratio = xp.where(possible, rows, 1.0) / xp.where(possible, mean, 1.0)
    return xp.where(possible, rows * xp.log(ratio), 0.0).sum(-1)
