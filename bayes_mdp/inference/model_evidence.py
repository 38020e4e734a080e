# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""Log evidences of posteriors of every route (`evidence`), and the Bayes factors of their priors (`bayes_factors`).

Bridge sampling, first: the log evidence of a NumPyro program from draws of its posterior, with its Monte Carlo error.

On the unconstrained scale let p be the density of latent sites and data, r its integral (the evidence), q a normal
density fitted to one half of the draws. For any function h, r = E_q[p h] / E_{p/r}[q h]; the best h is 1 / (s1 p +
s2 r q), which holds r itself: the estimate is the fixed point. With M posterior draws and N proposals, s1 : s2 = M : N.

    mean over q of  (p / q) / (s1 p / q + s2 r)   =   mean over p of  r / (s1 p / q + s2 r)

p is made symmetric around the centre of q first ("warp III"): the same integral, and never less overlap with q.
`Evidence`, first, is the record of this and of every other route to a log evidence.

Sources: [BRIDGE96] Meng and Wong, *Simulating ratios of normalizing constants via a simple identity* (estimator and
fixed point); [WARP02] Meng and Schilling, *Warp bridge sampling*; [BRIDGE04] Fruehwirth-Schnatter, *Estimating marginal
likelihoods for mixture and Markov switching models using bridge sampling techniques* (relative mean-squared error);
[BRIDGE17] Gronau et al., *A tutorial on bridge sampling* (autocorrelation; two halves).
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias, cast

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, PRNGKeyArray, PyTree
from scipy.linalg import solve_triangular
from scipy.optimize import brentq
from scipy.special import softmax

from bayes_mdp.inference.draws.chains import Chains, Model, SamplingWarning, effective_size, trace_latents
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.integrals.importance import Integration
from bayes_mdp.inference.integrals.unconstrained_model import UnconstrainedModel
from bayes_mdp.models.isolate import traced_alone
from bayes_mdp.models.reward_laws import unwrap
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.layout import Section, Table, as_html, as_text
from bayes_mdp.utils.progress import stage
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import check_key, check_type, described, first_index


class Evidence(eqx.Module):
    """log p(next states, rewards | states, actions) of all data under a prior; `print` shows it in one line.

    The density is that of the *sequence* of the data: no multinomial coefficient, every base measure included.

    Args:
        log_evidence: in nats.
        standard_error: of `log_evidence`, in nats, Monte Carlo error alone; 0 where it is exact. Of a quadrature it is
            how much the last halving of the grid's spacing changed it.
        method: "exact", "quadrature", "importance" or "bridge".
        dimension: number of unconstrained latent numbers that were integrated over.
        num_draws: draws of the posterior in the estimate; of a quadrature its nodes.
        effective_draws: number of independent draws that they are worth, their autocorrelation or weights considered.
        overlap: of the posterior (made symmetric) and the proposal, from 0 to 1: the integral of p q / (s1 p + s2 q),
            where s1 and s2 are the shares of the draws of either.
        problems: what is wrong with the estimate or the chains behind it, one sentence each; empty: nothing found.
    """

    log_evidence: float
    standard_error: float = 0.0
    method: str = "exact"
    dimension: int = 0
    num_draws: int = 0
    effective_draws: float = 0.0
    overlap: float = 1.0
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.method == "exact":
            return f"log evidence {self.log_evidence:.6g} (exact)"
        if self.method == "quadrature":
            error = f"changed by {self.standard_error:.1g} at the last halving of the grid"
            return f"log evidence {self.log_evidence:.9g} (quadrature: {self.num_draws} nodes, {error})"
        number = "one number" if self.dimension == 1 else f"{self.dimension} numbers"
        method_words = "importance sampling" if self.method == "importance" else "bridge sampling"
        overlap = "" if self.method == "importance" else f", overlap {self.overlap:.2f}"
        line = (
            f"log evidence {self.log_evidence:.{_decimals(self.standard_error)}f}, standard error "
            f"{self.standard_error:.2g} ({method_words}: {self.num_draws} draws of {number}, worth "
            f"{self.effective_draws:.0f} independent ones{overlap})"
        )
        return "\n".join([line, *(f"  unreliable: {problem}" for problem in self.problems)])


def _decimals(error: float) -> int:
    """Decimals that show an error to two digits; at most six."""
    decimals = 0
    while decimals < 6 and error * 10**decimals < 10:
        decimals += 1
    return decimals


DRAWS_PER_DIMENSION = 10
"""Draws of a half for each unconstrained number: fewer give no covariance matrix to build a proposal on."""
MIN_DRAWS = 100
"""Of a half, however few numbers there are: the error is an estimate too."""
MIN_OVERLAPPING = 50.0
"""Draws in the overlap of posterior and proposal, below which the stated error is not to be trusted."""
NO_OVERLAP = 1.0
"""Draws there, below which there is no estimate."""
MIN_ESS = 50.0
"""Effective draws behind the error, likewise."""
LOG_WIDEST = 1e4
"""Nats around the median density ratio within which the fixed point is looked for."""

Sites: TypeAlias = Mapping[str, AnyArray]
"""{site: values}, with the axes of a batch in front."""
ShapesOfSites: TypeAlias = tuple[tuple[str, jax.ShapeDtypeStruct], ...]
Points: TypeAlias = Float[np.ndarray, "N D"]
"""Unconstrained values, all sites in one row."""
Values: TypeAlias = Float[np.ndarray, " N"]


class Proposal(NamedTuple):
    """A normal density on the unconstrained scale: mean [D], lower Cholesky factor of the covariance [D D]."""

    mean: Float[np.ndarray, " D"]
    factor: Float[np.ndarray, "D D"]

    def standardised(self, rows: Points) -> Points:
        """x with rows = mean + factor x."""
        # By the Cholesky factor L: x = L^-1 (row - mean), a triangular solve in place of an inverse.
        return solve_triangular(self.factor, (rows - self.mean).T, lower=True).T

    def log_density(self, standardised: Points) -> Values:
        """log q, of the row behind a standardised one."""
        # log q(x) = -|x|^2 / 2 - log det L - (D / 2) log 2 pi.
        constant = np.log(np.diag(self.factor)).sum() + 0.5 * len(self.mean) * np.log(2 * np.pi)
        return -0.5 * (standardised**2).sum(1) - constant


class Solution(NamedTuple):
    """The fixed point: log r, its standard error, the overlap, and the effective number of posterior draws."""

    log_ratio: float
    error: float
    overlap: float
    effective_draws: float


def bridge_sampling(key: PRNGKeyArray, model: Model, data: PyTree, draws: Sites) -> Evidence:
    """The log evidence of `data`: the log of the integral of the density of `model(data)` over its latent sites.

    It is a log evidence where the prior of the model is normalised: a `factor` beside the data is integrated as it
    stands. A mode that no chain has visited is not in the estimate, nor in its error. Host side, in float64 (the model
    is traced under `jax.enable_x64(True)`); the density is compiled once for a model (the same object) and the shapes
    of data and sites, however many draws there are.

    Args:
        key: a typed key, of the draws from the proposal.
        model: a NumPyro program of one argument; all its latent sites are continuous and proper.
        data: its argument, any pytree of arrays.
        draws: {site: [C N ...]}, N draws of C chains from the posterior of every latent site. The first half of each
            chain gives the proposal, the second half the estimate.

    Raises:
        ValueError: a site that is discrete or improper; draws of other sites than the model has; fewer draws than the
            dimension needs; draws that do not vary, or lie where the density is not finite; a posterior with which the
            proposal does not overlap.
        TypeError: `key` is no typed key.
    """
    check_key("key", key)
    with jax.enable_x64(True):
        # Copies: JAX may hold 32-bit versions of the arrays themselves.
        data = jax.tree.map(np.array, data)
        # All sites have to be continuous and proper, else the integral is none over real numbers.
        draws = {name: np.array(x, np.float64) for name, x in draws.items()}
        sites = check_sites(model, data)
        _check_draws(tuple(name for name, _ in sites), draws)
        # Bridge and proposal live on the real line: all sites in one unconstrained row.
        leaves, tree = jax.tree.flatten(data)
        outline = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves)
        unconstrained = _unconstrained(model, sites, tree, outline)
        num_chains, num_samples = next(iter(draws.values())).shape[:2]
        flat = {name: x.reshape(num_chains * num_samples, *x.shape[2:]) for name, x in draws.items()}
        dimension, extreme = unconstrained.dimension, partial(_extreme, unconstrained)
        rows = unconstrained.unconstrained(flat, {}, data).reshape(num_chains, num_samples, dimension)

        def density(points: Points) -> Values:
            return unconstrained.place(points, {}, data, quick=False).log_density

        if not dimension:  # every site can have one value only
            return Evidence(float(density(rows[0, :1])[0]))
        # A covariance matrix of D numbers needs a multiple of D draws.
        check_enough(num_chains, num_samples, dimension)
        # Draws that shape the proposal would favour it: the other half of each chain judges.
        half = num_samples // 2
        proposal = fit_proposal(rows[:, :half].reshape(-1, dimension), extreme)
        return bridge_density(key, density, proposal, rows[:, half:], extreme)


def bridge_density(
    key: PRNGKeyArray,
    density: Callable[[Points], Values],
    proposal: Proposal,
    rows: Float[np.ndarray, "C N D"],
    extreme: Callable[[Float[np.ndarray, " D"]], str] | None = None,
) -> Evidence:
    """The log of the integral of a density over D real numbers, by a bridge from a normal one. Host side.

    Args:
        key: of as many draws of the proposal as there are rows.
        density: [N D] points -> [N] log densities.
        proposal: fitted to other draws than `rows`.
        rows: draws from the density, chain by chain.
        extreme: a row -> what lies furthest out in it, in words, for messages.

    Raises:
        ValueError: the density is not finite at some of `rows`; as `solve_bridge`.
    """
    num_chains, num_samples, dimension = rows.shape
    total = num_chains * num_samples
    rng = host_generator(key)
    # Both halves are judged by the same proposal, whose draws are standard normal in its coordinates.
    at_posterior = proposal.standardised(rows.reshape(total, dimension))
    at_proposal = rng.standard_normal((total, dimension))
    # Warp III: p becomes (p(m + L x) + p(m - L x)) / 2. Its draws are those of p with a random sign, which no function
    # here sees: p is even now, and so is q.
    standard = np.concatenate([at_posterior, at_proposal])
    offset = standard @ proposal.factor.T
    # Two densities for each point: at m + L x and at its mirror image m - L x.
    plus, minus = density(proposal.mean + offset), density(proposal.mean - offset)
    bad = ~np.isfinite(plus[:total])
    if bad.any():
        place = _first(rows.reshape(total, dimension)[bad], extreme)
        raise ValueError(
            f"the log density is not finite at {bad.sum()} of {total} draws of the posterior (on the edge of the "
            f"support of a site, or in float32{place}), expected draws inside it: reparametrise the site"
        )
    points = np.stack([plus, minus])
    lost = np.isnan(points) | (points == np.inf)
    # log p / q, where p is the mean of the density at the point and at its mirror image.
    ratio = np.logaddexp(*np.where(lost, -np.inf, points)) - np.log(2.0) - proposal.log_density(standard)
    solution = solve_bridge(ratio[:total].reshape(num_chains, num_samples), ratio[total:])
    problems = _problems(solution, total, int(lost.sum()))
    return Evidence(
        solution.log_ratio,
        solution.error,
        "bridge",
        dimension,
        total,
        solution.effective_draws,
        solution.overlap,
        problems,
    )


def solve_bridge(at_posterior: Float[np.ndarray, "C N"], at_proposal: Float[np.ndarray, " M"]) -> Solution:
    """The fixed point of Meng and Wong (1996) and its relative error, from log(p / q) at draws of both densities.

    Iterating the fixed point and finding it are the same: the left side falls in r and the right side rises, so that
    there is one, and a bracketed search finds it whatever the ratios are.

    Args:
        at_posterior: log(p / q) at draws of p, chain by chain.
        at_proposal: at independent draws of q; minus infinity where p is zero.

    Raises:
        ValueError: p is zero at all proposals, the fixed point is out of reach, or p and q do not overlap.
    """
    if not np.isfinite(at_proposal).any():
        raise ValueError(
            f"the density of the posterior is zero at all {len(at_proposal)} draws of the proposal, which a normal "
            "fitted to the posterior cannot bridge: reparametrise, or give more draws (NUTS(num_samples=...))"
        )
    # In units of the median ratio, so that exponentials stay within range.
    centre = float(np.median(at_posterior))
    posterior, proposal = at_posterior - centre, at_proposal - centre
    # Correlated draws count for what they are worth in the optimal shares (Gronau et al. 2017).
    # Meng and Wong's optimal bridge, h = 1 / (s1 p + s2 r q), which depends on the answer r: a root in log r.
    effective = _effective(posterior)
    share = effective / (effective + len(proposal))
    log_s1, log_s2 = np.log(share), np.log1p(-share)

    def functions(log_r: float) -> tuple[Float[np.ndarray, "C N"], Float[np.ndarray, " M"]]:
        """log of r / (s1 p / q + s2 r) at posterior draws, of (p / q) / (s1 p / q + s2 r) at proposals."""
        return (
            log_r - np.logaddexp(log_s1 + posterior, log_s2 + log_r),
            proposal - np.logaddexp(log_s1 + proposal, log_s2 + log_r),
        )

    def difference(log_r: float) -> float:
        # Both means are equal at the evidence; their difference is monotone in log r.
        left, right = functions(log_r)
        return _log_mean(left) - _log_mean(right)

    # The difference rises with r: widen the bracket until it changes sign.
    width = 1.0
    while width < LOG_WIDEST and not difference(-width) < 0 < difference(width):
        width *= 10.0
    if not difference(-width) < 0 < difference(width):
        raise ValueError(
            f"the bridge has no fixed point within {LOG_WIDEST:.0f} nats of the density of the draws: the draws are "
            "not those of this posterior, or a density is not a number"
        )
    log_r = cast(float, brentq(difference, -width, width, xtol=1e-12))
    # Without logs from here: the functions are bounded, by 1 / s1 and 1 / s2.
    left, right = (np.exp(x) for x in functions(log_r))
    # Fruehwirth-Schnatter (2004): relative variances of both means; the chains' by the effective size of that function.
    overlap = float(right.mean())
    worth = _effective(left)
    if not overlap * min(worth, len(right)) >= NO_OVERLAP:
        raise ValueError(
            f"posterior and normal proposal do not overlap ({overlap:.2g}, less than one draw of {len(right)}), "
            "expected a posterior that a normal on the unconstrained scale can stand in for: reparametrise, or give "
            "more draws (NUTS(num_samples=...))"
        )
    variance = right.var() / len(right) / overlap**2 + left.var() / worth / overlap**2
    # Where the two densities are almost the same, a few draws in a tail are all of the variance, and none may be there:
    # one more draw of either, where the other density is empty, is added.
    variance += len(right) ** -2.0 + worth**-2.0
    return Solution(log_r + centre, float(np.sqrt(variance)), overlap, worth)


def _effective(values: Float[np.ndarray, "C N"]) -> float:
    """Effective sample size of a function of the chains, at most the number of draws; that number where it is flat."""
    total = float(values.size)
    # A function that hardly varies has no autocorrelation to divide by.
    if np.ptp(values) <= 1e-12 * (1.0 + np.abs(values).max()):
        return total
    size = float(effective_size(values))
    return min(max(size, 1.0), total) if np.isfinite(size) else 1.0


def _log_mean(values: Float[np.ndarray, "..."]) -> float:
    return float(np.logaddexp.reduce(values, axis=None) - np.log(values.size))


def _problems(solution: Solution, total: int, lost: int) -> tuple[str, ...]:
    sentences = []
    # Draws that lie where both densities do: the estimate rests on these.
    overlapping = solution.overlap * min(solution.effective_draws, total)
    if not solution.effective_draws >= MIN_ESS:
        sentences.append(
            f"the stated error rests on {solution.effective_draws:.0f} effective draws of {total}, expected at least "
            f"{MIN_ESS:.0f}: give more draws (NUTS(num_samples=...))"
        )
    elif not overlapping >= MIN_OVERLAPPING:
        sentences.append(
            f"posterior and normal proposal overlap in {overlapping:.3g} draws (overlap {solution.overlap:.2g}), "
            f"expected at least {MIN_OVERLAPPING:.0f}: give more draws (NUTS(num_samples=...)), or reparametrise a "
            "posterior that is far from normal"
        )
    if lost:
        sentences.append(f"the density is not a number at {lost} of {4 * total} points, where it was taken for zero")
    return tuple(sentences)


def _first(rows: Points, extreme: Callable[[Float[np.ndarray, " D"]], str] | None) -> str:
    """What lies furthest out in the first of these rows."""
    return "" if extreme is None else f"; in the first of them {extreme(rows[0])}"


def fit_proposal(rows: Points, extreme: Callable[[Float[np.ndarray, " D"]], str] | None = None) -> Proposal:
    """The normal density with mean and covariance of `rows`; `extreme` as for `bridge_density`.

    Raises:
        ValueError: they are not finite, or vary in fewer than D directions.
    """
    if not np.isfinite(rows).all():
        bad = ~np.isfinite(rows).all(1)
        raise ValueError(
            f"{bad.sum()} of {len(rows)} draws of the posterior lie on the edge of the support of a site (not finite "
            f"on the unconstrained scale{_first(rows[bad], extreme)}), expected draws inside it: reparametrise the site"
        )
    # A proposal of full rank is needed: its density divides.
    covariance = np.atleast_2d(np.cov(rows, rowvar=False))
    try:
        return Proposal(rows.mean(0), np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        raise ValueError(
            f"the draws of the posterior vary in fewer than {rows.shape[1]} directions (a chain that did not move, or "
            "a site that is a function of another), expected a covariance matrix of full rank"
        ) from None


def check_enough(num_chains: int, num_samples: int, dimension: int) -> None:
    """Refuse fewer draws than a proposal of this dimension needs.

    Raises:
        ValueError: names the draws of a half, the dimension, and how many samples would do.
    """
    present, needed = num_chains * (num_samples // 2), max(MIN_DRAWS, DRAWS_PER_DIMENSION * dimension)
    # Two halves: one shapes the proposal, the other judges.
    if present < needed:
        rule = f"{DRAWS_PER_DIMENSION} for each" if needed > MIN_DRAWS else "whatever their number"
        raise ValueError(
            f"{num_chains} chains of {num_samples} draws leave {present} for each half, and there are {dimension} "
            f"unconstrained numbers, expected at least {needed} draws ({rule}): "
            f"NUTS(num_samples={2 * -(-needed // num_chains)})"
        )


@traced_alone
def check_sites(model: Model, data: PyTree) -> ShapesOfSites:
    """The latent sites, all of them continuous and proper, by name. Host side.

    Raises:
        ValueError: names the first site whose evidence is no integral over real numbers; no latent site at all.
    """
    latents = trace_latents(model, data)
    if not latents:
        raise ValueError("the program has no latent site, expected something to integrate over")
    for site in latents:
        refuse_site(site["name"], site["fn"])
    return tuple((s["name"], jax.ShapeDtypeStruct(s["value"].shape, s["value"].dtype)) for s in latents)


def _check_draws(names: tuple[str, ...], draws: Mapping[str, np.ndarray]) -> None:
    """Refuse draws of other sites, and draws that are not all [C N ...] of the same chains."""
    # Names in one of both, and not in the other.
    odd = sorted(set(names) ^ set(draws))
    if odd:
        origin = "a latent site without draws" if odd[0] in names else "no latent site of the program"
        raise ValueError(f"draws: {odd[0]!r} is {origin}, expected draws of {', '.join(sorted(names))}")
    shapes = {name: x.shape[:2] for name, x in draws.items()}
    if len(set(shapes.values())) > 1 or len(shapes[names[0]]) < 2:
        shown = ", ".join(f"{name!r} {draws[name].shape}" for name in names)
        raise ValueError(f"draws have shapes {shown}, expected [chains draws ...] alike for every site")


def refuse_site(name: str, law: dist.Distribution) -> None:
    """Refuse a discrete or an improper latent site.

    Raises:
        ValueError: it is one.
    """
    if law.is_discrete:
        raise ValueError(
            f"site {name!r} is discrete, over which bridge sampling does not integrate, expected continuous sites: "
            "method='mixture' sums a few discrete sites out and has the evidence in closed form"
        )
    if isinstance(unwrap(law), dist.ImproperUniform):
        raise ValueError(
            f"site {name!r} is ImproperUniform, whose density has no normalising constant, so that no evidence is "
            "defined, expected a proper prior"
        )


@lru_cache(maxsize=64)
def _unconstrained(
    model: Model, sites: ShapesOfSites, tree: Any, leaves: tuple[jax.ShapeDtypeStruct, ...]
) -> UnconstrainedModel:
    """What is compiled of a model: once for one object, and one outline of data."""
    return UnconstrainedModel(model, dict(sites), {}, {}, jax.tree.unflatten(tree, leaves))


def _extreme(model: UnconstrainedModel, row: Float[np.ndarray, " D"]) -> str:
    """The number of a row that lies furthest out, in words; the first one that is none, where there is one."""
    column = int(np.argmax(np.where(np.isfinite(row), np.abs(row), np.inf)))
    name, place = next((name, place) for name, place in model.places.items() if column in place)
    index = np.argwhere(place == column)[0].tolist()
    return f"site {name!r}{index if index else ''} is {row[column]:.4g} on the unconstrained scale"


EQUAL_WEIGHTS = 1e-8
"""Spread of the log weights of draws that is rounding."""
_LOADED = "posterior was loaded and has no program, expected one from infer"


def evidence(posterior: Fitted, key: PRNGKeyArray | None = None) -> Evidence:
    """The log marginal likelihood of all data that `posterior` has seen: log p(next states, rewards | states, actions).

    The density is that of the sequence of the data, base measures included, whatever the route; a site that the program
    holds at a known value, and that tells of no other, does not count. Exact posteriors and
    mixtures have it in closed form; an integral over hyperparameters, or over what is behind the rewards, states it
    with its error. Of the others it is estimated from the draws of their chains by bridge sampling, with a standard
    error (`bridge`): of the hyperparameters alone, or of what is behind the rewards alone, where the
    rest is in closed form. A problem that was found, of the chains or of the bridge, is a `SamplingWarning` and in
    `problems`. Host side.

    Args:
        posterior: as `infer` returns it, or a mixture.
        key: of the draws from the proposal; None: `jax.random.key(0)`.

    Raises:
        ValueError: a posterior without chains (by SVI or Laplace, loaded, thinned, after `update` without `refit`);
            discrete or improper latent sites; a prior with a factor, an observation, a scale or a mask; fewer draws
            than its dimension needs; data whose density is not known; an estimate that failed (see `bridge_sampling`).
        TypeError: another posterior; one of partial pooling, whose chains have no density that a bridge could use.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 1)
        >>> data = bm.Transitions([0] * 4, [0] * 4, [1.0] * 4, [0] * 4)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> print(bm.evidence(posterior))  # four rewards of 1 under a uniform prior: log(1 / 5)
        log evidence -1.60944 (exact)
    """
    key = jax.random.key(0) if key is None else key
    check_key("key", key)
    check_type("posterior", posterior, Fitted, "a posterior as infer returns it, or a mixture")
    if not posterior.keeps_density:
        raise TypeError(
            f"posterior is a {type(posterior).__name__}, whose evidence is not estimated: its Gibbs chains keep no "
            "density of what they draw; compare priors by held-out data instead (criticise)"
        )
    if posterior.is_batch:
        raise ValueError("posterior is a batch (its arrays have extra leading axes), expected one posterior")
    if posterior.density_facts.lacks_factorials:
        raise ValueError(_SUMS)
    with stage("evidence"):
        estimate = _exact(posterior) if posterior.in_closed_form else _estimate(key, posterior)
    # Warnings name the caller's line.
    for problem in estimate.problems:
        warnings.warn(f"evidence: {problem}", SamplingWarning, stacklevel=2)
    return estimate


_SUMS = (
    "posterior: the density of its data is not known (Counts of a law that needs every reward), expected one inferred "
    "from Transitions"
)


def _exact(posterior: Fitted) -> Evidence:
    value = float(posterior.log_evidence)  # pyright: ignore[reportAttributeAccessIssue] - all in closed form have it
    if np.isnan(value):
        raise ValueError(_SUMS)
    # A closed form is exact; what its rewards complain of is said.
    part = posterior.exact_part
    return Evidence(value, problems=() if part is None else tuple(part.reward_cells.problems()))


def _estimate(key: PRNGKeyArray, posterior: Fitted) -> Evidence:
    """That of the closed form in it, times an integral, or an estimate from chains, of all else."""
    integration = posterior.integration
    # An integral that states its error is taken; else the chains are asked.
    if integration is not None and np.isfinite(integration.error):
        estimate = _integrate(integration, posterior)
    else:
        estimate = _bridge(key, posterior)
    part = posterior.exact_part
    return (
        # log p(data) = log p(outcomes) + log p(rewards | ...), rows and rewards being independent.
        estimate if part is None else replace(estimate, log_evidence=float(part.log_evidence) + estimate.log_evidence)
    )


def _integrate(integration: Integration, posterior: Fitted) -> Evidence:
    """That of an integral over what has no closed form.

    Raises:
        ValueError: the prior has no normalising constant that is known.
    """
    value = float(integration.log_evidence)
    _refuse_bent(posterior.density_facts.is_bent or not np.isfinite(value))
    error, effective = float(integration.error), float(integration.effective)
    number = np.asarray(posterior.log_weights).size
    # Of a closed form of the rows, what is integrated over is behind the rewards: by importance sampling.
    method = posterior.method if posterior.exact_part is None else "importance"
    return Evidence(value, error, method, integration.numbers, number, effective)


def _bridge(key: PRNGKeyArray, posterior: Fitted) -> Evidence:
    """The estimate by bridge sampling, with what is wrong with the chains as well."""
    if posterior.program is None and (posterior.drawn_by is None or posterior.drawn_by.prior is None):
        raise ValueError(_LOADED)
    facts = posterior.density_facts
    _refuse_bent(facts.is_bent)
    if not np.asarray(posterior.visit_counts()).any() and not posterior.num_rewards_observed():
        return Evidence(0.0)  # it has seen nothing, which is certain under every prior
    model, data = posterior.density_of_draws()
    sites = posterior.site_draws
    try:
        # What more draws would not help comes first.
        with jax.enable_x64(True):
            check_sites(model, jax.tree.map(np.array, data))
        chains = _chains(posterior.chains, sites, np.asarray(posterior.log_weights))
        estimate = bridge_sampling(key, model, data, {name: chains.draws[name] for name in sites})
    except ValueError as error:
        raise ValueError(f"posterior: {error}") from error
    # What the prior observes and tells of nothing is no part of the data.
    value = estimate.log_evidence - facts.log_constant
    return replace(estimate, log_evidence=value, problems=(*chains.problems(), *estimate.problems))


def _chains(chains: Chains | None, sites: Mapping[str, AnyArray], log_weights: AnyArray) -> Chains:
    """The chains whose draws these are.

    Raises:
        ValueError: the draws have weights of their own, or there are no chains behind them.
    """
    weights = np.asarray(log_weights, np.float64)
    # Draws with weights are no sample of the posterior that bridges could use.
    if not np.ptp(weights) <= EQUAL_WEIGHTS:
        raise ValueError(
            "it has learnt since its chains were run (the weights of its draws differ), expected draws of the "
            "posterior itself: call refit(key) first"
        )
    if chains is None or not chains.are_those_of(sites, len(weights)):
        raise ValueError(
            "there are no chains behind its draws (they are of the prior, thinned or moved), expected one from "
            "infer(key, prior, data, space=space) with all of the data"
        )
    return chains


def _refuse_bent(is_bent: bool) -> None:
    if is_bent:
        raise ValueError(
            "prior: a factor, an observation, a scale or a mask bends its density, whose normalising constant is not "
            "known, expected a prior of sample sites alone"
        )


SAME = 1e-6
"""Relative difference of two counts that is rounding (of float32)."""


class LogBayesFactor(NamedTuple):
    """Log evidence of one prior minus that of another, in nats, and its standard error."""

    value: float
    standard_error: float


class BayesFactors(eqx.Module):
    """Priors compared on the same data; `print` shows a table, the largest evidence first.

    Args:
        evidences: name -> `Evidence`.
        probabilities: name -> posterior probability of the prior, all of them equally probable before the data.
        probability_errors: name -> standard error of that (to first order).
        not_estimated: name -> why the evidence of this prior could not be estimated; it is in none of the others.
    """

    evidences: dict[str, Evidence]
    probabilities: dict[str, float]
    probability_errors: dict[str, float]
    not_estimated: dict[str, str] = eqx.field(default_factory=dict)

    def log_bayes_factor(self, first: str, second: str) -> LogBayesFactor:
        """The log Bayes factor of `first` over `second`; the errors of the two evidences are independent.

        Raises:
            ValueError: a name that is none of the posteriors, or whose evidence could not be estimated.
        """
        for argument, name in (("first", first), ("second", second)):
            if name in self.not_estimated:
                raise ValueError(f"{argument} is {name!r}, whose evidence is not estimated: {self.not_estimated[name]}")
            if name not in self.evidences:
                known = ", ".join(map(repr, self.evidences))
                raise ValueError(f"{argument} is {described(name)}, expected one of {known}")
        # A prior against itself: no error, although each estimate has one.
        if first == second:
            return LogBayesFactor(0.0, 0.0)
        numerator, denominator = self.evidences[first], self.evidences[second]
        # Independent estimates: errors add in squares.
        error = float(np.hypot(numerator.standard_error, denominator.standard_error))
        return LogBayesFactor(numerator.log_evidence - denominator.log_evidence, error)

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """The table, and what is unreliable in it."""
        order = sorted(self.evidences, key=lambda name: -self.evidences[name].log_evidence)
        rows = []
        for name in order:
            estimate, factor = self.evidences[name], self.log_bayes_factor(name, order[0])
            rows.append(
                (
                    name,
                    f"{estimate.log_evidence:.3f}",
                    f"{estimate.standard_error:.2g}",
                    f"{factor.value:.3f}",
                    f"{factor.standard_error:.2g}",
                    f"{self.probabilities[name]:.4g}",
                    f"{self.probability_errors[name]:.2g}",
                )
            )
        notes = [f"{name}: unreliable: {x}" for name in order for x in self.evidences[name].problems]
        notes += [f"{name}: not estimated: {why}" for name, why in self.not_estimated.items()]
        if self.not_estimated:
            notes.append("Probabilities are among the priors whose evidence is there.")
        head = ("prior", "log evidence", "error", "log Bayes factor", "error", "probability", "error")
        return Section(
            "Priors compared on the same data, all equally probable before them (nats)", [Table(head, rows), *notes]
        )


def bayes_factors(posteriors: Mapping[str, Fitted], key: PRNGKeyArray | None = None) -> BayesFactors:
    """Compare priors by the evidence of the data that their posteriors have seen ([BF95] Kass and Raftery 1995).

    A Bayes factor compares the priors as they stand: a vaguer prior on the same sites has a smaller evidence. All must
    speak of the same data, and give a density of the same kind to the rewards. A prior whose evidence cannot be
    estimated is left out, with the reason (`BayesFactors.not_estimated`) and a `SamplingWarning`, where at least two
    are left. Host side.

    Args:
        posteriors: name -> posterior, at least two; what `evidence` takes.
        key: folded with the place of a posterior; None: `jax.random.key(0)`.

    Returns:
        The evidence of every prior, and its probability where all are equally probable before the data.

    Raises:
        ValueError: fewer than two posteriors; posteriors of different data (as far as counts of visits and rewards show
            it), or of reward laws of different kinds (known, discrete, continuous); fewer than two evidences can be
            estimated: as `evidence`, with the name.
        TypeError: likewise.

    Example:
        >>> data, space = bm.Transitions([0] * 4, [0] * 4, [1.0] * 4, [0] * 4), bm.StateActionSpace(1, 1)
        >>> open_minded, fair = bm.models.dirichlet_bernoulli(), bm.models.dirichlet_bernoulli(1.0, 1e4, 1e4)
        >>> posteriors = {
        ...     "open": bm.infer(jax.random.key(0), open_minded, data, space=space),
        ...     "fair": bm.infer(jax.random.key(0), fair, data, space=space),
        ... }
        >>> factors = bm.inference.bayes_factors(posteriors)  # four rewards of 1: evidence 1/5 against 1/16
        >>> round(factors.probabilities["open"], 2)
        0.76
    """
    key = jax.random.key(0) if key is None else key
    check_key("key", key)
    if not isinstance(posteriors, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller may err
        raise TypeError(f"posteriors is {described(posteriors)}, expected name -> posterior")
    if len(posteriors) < 2:
        raise ValueError(f"posteriors holds {len(posteriors)}, expected at least two by their names")
    posteriors = {str(name): posterior for name, posterior in posteriors.items()}
    for name, posterior in posteriors.items():
        check_type(f"posteriors[{name!r}]", posterior, Fitted, "a posterior as infer returns it")
        if not posterior.keeps_density:
            kind = type(posterior).__name__
            raise TypeError(f"posteriors[{name!r}] is a {kind}, whose evidence is not estimated, expected another one")
        if posterior.is_batch:
            raise ValueError(f"posteriors[{name!r}] is a batch, expected one posterior")
    # Each against the first: sameness is transitive.
    first = next(iter(posteriors))
    for name in list(posteriors)[1:]:
        _require_same_data(first, posteriors[first], name, posteriors[name])
    evidences: dict[str, Evidence] = {}
    failed: dict[str, ValueError] = {}
    # Keys by place: an added prior changes the estimate of none before it.
    for place, (name, posterior) in enumerate(posteriors.items()):
        try:
            evidences[name] = evidence(posterior, jax.random.fold_in(key, place))
        except ValueError as error:
            failed[name] = error
    if len(evidences) < 2:  # nothing is left to compare
        name, error = next(iter(failed.items()))
        raise ValueError(f"posteriors[{name!r}]: {error}") from error
    for name, error in failed.items():
        warnings.warn(f"posteriors[{name!r}] is left out: {error}", SamplingWarning, stacklevel=2)
    # Equal prior probabilities: posterior ones are the evidences, normalised (in logs).
    log_evidence = np.array([evidence_of_prior.log_evidence for evidence_of_prior in evidences.values()])
    if not np.isfinite(log_evidence).any():
        raise ValueError("posteriors: the data are impossible under every prior, expected one that allows them")
    probabilities = softmax(log_evidence)
    errors = probability_errors(
        probabilities, np.array([evidence_of_prior.standard_error for evidence_of_prior in evidences.values()])
    )
    return BayesFactors(
        evidences,
        dict(zip(evidences, map(float, probabilities), strict=True)),
        dict(zip(evidences, map(float, errors), strict=True)),
        {name: str(error) for name, error in failed.items()},
    )


def probability_errors(
    probabilities: Float[np.ndarray, " K"], errors: Float[np.ndarray, " K"]
) -> Float[np.ndarray, " K"]:
    """Standard errors of probabilities proportional to the evidences, given those of the log evidences."""
    # dP_i / d(log evidence_j) = P_i (1[i = j] - P_j).
    slopes = probabilities[:, None] * (np.eye(len(probabilities)) - probabilities)
    # To first order, the errors of the log evidences independent: sqrt(sum_j slope^2 error^2).
    return np.sqrt(slopes**2 @ errors**2)


def _require_same_data(one: str, first: Fitted, other: str, second: Fitted) -> None:
    """Refuse two posteriors whose evidences are no densities of the same data, as far as that can be seen."""
    names = f"posteriors[{one!r}] and posteriors[{other!r}]"
    visits = [_visits(posterior) for posterior in (first, second)]
    if visits[0].shape != visits[1].shape:
        shapes = " and ".join(str(x.shape) for x in visits)
        raise ValueError(f"{names} have pairs of shapes {shapes}, expected posteriors of the same data")
    # Relative and absolute: counts in float32 are rounded.
    place = first_index(np.abs(visits[0] - visits[1]) > SAME * (1.0 + visits[0]))
    if place is not None:
        raise ValueError(
            f"{names} have seen {visits[0][place]:g} and {visits[1][place]:g} transitions from pair "
            f"{tuple(int(i) for i in place)}, expected posteriors of the same data"
        )
    kinds = [posterior.rewards_are for posterior in (first, second)]
    numbers = [posterior.num_rewards_observed() for posterior in (first, second)]
    # Rewards known in one prior and unknown in the other: a density against none.
    if kinds[0] != kinds[1] and 0.0 not in numbers:
        raise ValueError(
            f"{names} have rewards that are {kinds[0]} and {kinds[1]}, whose densities cannot be compared (a "
            "probability, a density, or none), expected laws of one kind, or data without rewards (reward=None)"
        )
    one_number, other_number = numbers
    if one_number is None or other_number is None:  # rewards that are not learnt from are not counted
        return
    if abs(one_number - other_number) > SAME * (1.0 + one_number):
        raise ValueError(
            f"{names} have seen {one_number:g} and {other_number:g} rewards, expected posteriors of the same data"
        )


def _visits(posterior: Fitted) -> Float[np.ndarray, "S A"]:
    """Transitions from every pair of state and action, of all steps: a prior may look at the step or not."""
    visits = np.asarray(posterior.visit_counts(), np.float64)
    return visits.sum(0) if visits.ndim == 3 else visits
