"""What it is worth to know all, or some, of a decision model's sites (`evpi`, `evppi`), or to learn of them (`evsi`).

EVPI = E max_d NB_d - max_d E NB_d, the first mean over all that is unknown; EVPPI(S) = E_S max_d E[NB_d | S] minus the
same. Both depend on the decision set, which is printed with them.

Source: Howard (1966), *Information value theory*.

EVPPI by regression is that of net benefits on the sites' values over one set of draws, by splines. It needs no
structure, and so it is the way for sites that depend on others, and for draws that somebody else made. It is an
estimate of no known direction: a useless site gets a positive value. The value of the same sites in random order, which
is 0 in truth, is computed beside it.

Source: Strong, Oakley and Brennan (2014), *Estimating multiparameter partial expected value of perfect information*.

`evsi` is what a `Study` is worth before deciding, `net_benefit_of_sampling` what it is worth after paying for it. A
`Study` is data that one could collect about the sites of a decision model. The model itself simulates the data, and its
posterior is exact: no metamodel is fitted. Where net benefits are of degree one in the studied sites only their
posterior means matter, whose law is summed over data sets (binomial, multinomial, Poisson counts), or is normal.

Source: Raiffa and Schlaifer (1961), *Applied Statistical Decision Theory*, chapters 4 and 5.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np
import xarray as xr
from jaxtyping import Float, PRNGKeyArray
from scipy.interpolate import BSpline

from bayes_mdp.decisions.information.expected_gain import DECIDED, check_sizes, value_of_learning
from bayes_mdp.decisions.information.learning_problem import PER_DECISION, InformationValue, Learned
from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import describe_unit
from bayes_mdp.decisions.strategies.cost_effectiveness import StrategyDraws
from bayes_mdp.decisions.strategies.decision_model import DecisionModel, check_known
from bayes_mdp.decisions.strategies.model_trace import VALUE
from bayes_mdp.decisions.strategies.site_law import CONJUGATE_DATA, StudiedSite
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.renamed import accepts_moved
from bayes_mdp.utils.layout import Section, Table, as_html, as_text
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import (
    as_names,
    as_real,
    check_count,
    check_finite,
    check_key,
    check_name,
    check_names,
    check_number,
    check_type,
    described,
    require,
)

Method = Literal["auto", "regression"]
REGRESSION_DRAWS = 1 << 14


def evpi(
    key: PRNGKeyArray,
    belief: DecisionModel | StrategyDraws | PolicyComparison,
    wtp: float | None = None,
    *,
    num_draws: int | None = None,
) -> InformationValue:
    """The expected value of perfect information: no study can be worth more.

    Args:
        key: of the draws.
        belief: a decision model; draws of strategies; or policies in common draws (`compare_policies`), whose net
            benefit is their value.
        wtp: willingness to pay for a unit of effect, where there are costs and effects.
        num_draws: of a decision model (None: 65,536); others have their own.

    Raises:
        ValueError: see `net_benefit_weights`. TypeError: another belief.

    Example:
        >>> values = np.array([[[1.0], [0.0]], [[0.0], [4.0]]])  # draw, strategy, outcome
        >>> draws = bm.strategies.StrategyDraws(("a", "b"), ("net benefit",), values)
        >>> bm.information.evpi(jax.random.key(0), draws).value  # the better one of each draw, 2.5; b in both, 2
        0.5
    """
    check_key("key", key)
    check_sizes(num_draws, None)
    if isinstance(belief, DecisionModel):
        # Perfect information is learning the value of every site.
        everything = Learned(perfect=frozenset(belief.sites))
        return value_of_learning(key, belief, everything, "EVPI", "everything", wtp, (num_draws, None))
    # Of draws alone: mean of the best in each draw, less the best of the means.
    draws = as_draws(belief)
    benefit = draws.net_benefit(wtp)
    best = int(np.argmax(benefit.mean(0)))
    # max_d NB_d - NB_best in each draw: never negative.
    gain = benefit.max(1) - benefit[:, best]
    error = float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else float("inf")
    gaps = benefit[:, [best]] - np.delete(benefit, best, axis=1)
    # max over d of sample means is too high where it is open which is the best: the difference is too low then.
    open_ = len(gain) < 2 or np.any(gaps.mean(0) <= DECIDED * gaps.std(0, ddof=1) / np.sqrt(len(gaps)))
    standing = "estimate" if open_ or not draws.independent else "unbiased"
    reason = f"{len(gain)} {'independent' if draws.independent else 'dependent'} draws"
    reason += "; which strategy is best now is not decided by them: it may be too low" if open_ else ""
    return InformationValue(
        "EVPI",
        "everything",
        float(gain.mean()),
        error,
        0.0,
        draws.strategies,
        draws.strategies[best],
        wtp,
        standing,
        reason,
        unit=_unit_of(belief),
        warning=_warning_of(belief),
    )


def evppi(
    key: PRNGKeyArray,
    belief: DecisionModel | StrategyDraws,
    sites: Iterable[str],
    wtp: float | None = None,
    *,
    method: Method = "auto",
    num_draws: int | None = None,
    num_inner: int | None = None,
) -> InformationValue:
    """The expected value of perfect information about some unknowns (sites of the prior), the others left open.

    Where the sites are independent of all others given the data (read from the program), the others are averaged over
    as they are: at their means where net benefits are of degree one in them, by common inner points else. Otherwise,
    and for draws alone, net benefits are regressed on the sites.

    Args:
        key: of the draws.
        belief: a decision model, or draws of strategies with the values of their sites.
        sites: names; all elements of a site are learned.
        wtp: willingness to pay, as in `evpi`.
        method: "regression" always regresses.
        num_draws: outer points (None: 65,536; 16,384 where slopes are averaged; 4,096 with inner points for each), or
            draws of a regression (None: 16,384).
        num_inner: inner points for each outer one, where some are needed (None: 64).

    Raises:
        ValueError: a site that there is not, with the nearest; see `net_benefit_weights`. TypeError: another belief.

    Example:
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> model = bm.strategies.decision_model(lambda: {"a": numpyro.sample("p", dist.Beta(1.0, 1.0)), "b": 0.5})
        >>> round(bm.information.evppi(jax.random.key(0), model, ["p"]).value, 2)  # E max(p, 1/2) - 1/2
        0.12
    """
    check_key("key", key)
    check_sizes(num_draws, num_inner)
    check_name("method", method, get_args(Method))
    names = as_names((sites,) if isinstance(sites, str) else sites)
    check_names("sites", names)
    names = tuple(map(str, names))
    about = ", ".join(names) or "nothing"
    if isinstance(belief, DecisionModel):
        belief.check_sites("sites", names)
        # Closed forms for whole blocks; splitting a block would need its conditional laws.
        if method == "auto" and _is_of_blocks(belief, frozenset(names)):
            learned = Learned(perfect=frozenset(names))
            return value_of_learning(key, belief, learned, "EVPPI", about, wtp, (num_draws, num_inner))
        draws = belief.sample(key, belief.at_most(REGRESSION_DRAWS if num_draws is None else num_draws))
    else:
        draws = as_draws(belief)
        check_known("sites", names, draws.sites, "sites of the draws")
    # Regression (Strong, Oakley and Brennan 2014): E[NB | sites] as a function of the sites, fitted to the draws.
    benefit = draws.net_benefit(wtp)
    best = draws.strategies[int(np.argmax(benefit.mean(0)))]
    columns = [np.reshape(draws.sites[name], (draws.num_draws, -1)) for name in names]
    # Elements of vectors are columns of their own.
    values = np.concatenate([np.zeros((draws.num_draws, 0)), *columns], axis=1).astype(float)
    fit = regression_value(host_generator(key), values, benefit)
    reason = f"net benefits regressed on the sites in {draws.num_draws} draws, by splines"
    return InformationValue(
        "EVPPI", about, fit.value, fit.standard_error, 0.0, draws.strategies, best, wtp, "estimate", reason, fit.useless
    )


def as_draws(belief: StrategyDraws | PolicyComparison) -> StrategyDraws:
    """Draws of strategies, of which policies in common draws are some.

    Raises:
        TypeError: anything else.
    """
    if isinstance(belief, PolicyComparison):
        values = list(belief.values.values())
        # Draws of chains, or by weights, are worth fewer.
        independent = all(value.effective is None for value in values)
        draws = np.stack([value.draws for value in values], axis=1)[..., None]
        return StrategyDraws(tuple(belief.values), (VALUE,), draws, independent=independent)
    check_type("belief", belief, StrategyDraws, "a decision model, draws of strategies, or compared policies")
    return belief


def _unit_of(belief: StrategyDraws | PolicyComparison) -> str:
    """What a number of this belief counts: of policies what is gained from one start on."""
    if not isinstance(belief, PolicyComparison):
        return PER_DECISION
    return describe_unit(next(iter(belief.values.values())).objective)


def _warning_of(belief: StrategyDraws | PolicyComparison) -> str:
    """Which compared policies spend time in untried pairs that the prior makes look better than all tried ones."""
    if not isinstance(belief, PolicyComparison):
        return ""
    bases = {name: value.basis for name, value in belief.values.items() if value.basis is not None}
    shares = {name: basis.untried_share for name, basis in bases.items() if basis.untried is not None}
    if not shares:
        return ""
    longest = max(shares, key=lambda name: shares[name])
    untried = bases[longest].untried
    assert untried is not None
    times = ", ".join(f"{name} {share:.2g} of its time" for name, share in shares.items())
    return untried.warning(f"what it is worth to know of them is the prior's ({times})")


def _is_of_blocks(model: DecisionModel, names: frozenset[str]) -> bool:
    """Whether the named sites are independent of all others: sites of closed form, or all that have none together."""
    without = frozenset(model.sites) - frozenset(model.laws)
    # Sites without a closed form are drawn together: all of them, or none.
    return not names & without or without <= names


MOST_INTERACTING = 4
"""Elements up to which pairs of splines are multiplied; more enter as a sum of splines."""
KNOTS, DEGREE = 6, 3
RIDGES = np.logspace(-6, 3, 10)
"""Weights that are tried."""
FOLDS = 10
"""Parts of the draws; the error is that of the mean over them."""


class Fit(NamedTuple):
    """What the regression found.

    Args:
        value: mean over draws of the largest fitted net benefit, minus that of the best strategy.
        standard_error: by `FOLDS` parts of the draws.
        useless: the value for the sites in random order.
    """

    value: float
    standard_error: float
    useless: float


def regression_value(
    rng: np.random.Generator, sites: Float[np.ndarray, "draws elements"], benefit: Float[np.ndarray, "draws strategies"]
) -> Fit:
    """EVPPI of the sites.

    Args:
        rng: for the random order.
        sites: values of all elements of the sites.
        benefit: net benefits.
    """
    best = int(np.argmax(benefit.mean(0)))
    # Differences to the best strategy: what all have in common need not be fitted.
    gain = benefit - benefit[:, [best]]
    # The same regression on permuted sites, which are worth nothing: what it finds is the bias of overfitting. Sites in
    # another order are gains in the inverse order, on the same columns.
    inverse = np.argsort(rng.permutation(len(sites)))
    fitted, useless = _fit_ridge(_spline_columns(sites), (gain, gain[inverse]))
    top = fitted.max(1) - fitted[:, best]
    # The error is that of a mean over random parts of the draws.
    parts = np.array([part.mean() for part in np.array_split(top[rng.permutation(len(top))], FOLDS)])
    floor = useless.max(1) - useless[:, best]
    return Fit(float(top.mean()), float(parts.std(ddof=1) / np.sqrt(FOLDS)), float(floor.mean()))


def _spline_columns(x: Float[np.ndarray, "draws elements"]) -> Float[np.ndarray, "draws columns"]:
    """Cubic splines of each site, and products of pairs where sites are few, standardised."""
    # Constant columns predict nothing.
    varying = x[:, x.std(0) > 0]
    if not varying.shape[1]:
        return np.zeros((len(x), 0))
    columns = np.concatenate([_splines(column) for column in varying.T], -1)
    if 1 < varying.shape[1] <= MOST_INTERACTING:
        columns = _with_products(columns)
    mean, variance, eps = columns.mean(0), columns.var(0), float(np.finfo(np.float64).eps)
    # A column that varies by rounding alone says nothing.
    constant = variance <= len(x) * eps * variance + (len(x) * eps * mean) ** 2
    columns -= mean
    columns /= np.where(constant, 1.0, np.sqrt(variance))
    columns[:, constant] = 0.0
    return columns


def _with_products(columns: Float[np.ndarray, "draws K"]) -> Float[np.ndarray, "draws more"]:
    """Columns, and the product of each with every later one."""
    number = columns.shape[1]
    answer = np.empty((len(columns), number * (number + 1) // 2))
    answer[:, :number], place = columns, number
    for i in range(number - 1):  # in place: all products at once would be held three times
        later = number - 1 - i
        np.multiply(columns[:, i : i + 1], columns[:, i + 1 :], out=answer[:, place : place + later])
        place += later
    return answer


def _splines(x: Float[np.ndarray, " draws"]) -> Float[np.ndarray, "draws splines"]:
    """Cubic B-splines over `KNOTS` quantiles, but for the last: all of them add up to one."""
    # Knots at quantiles: as many draws between each two.
    inside = np.percentile(x, np.linspace(0.0, 100.0, KNOTS))
    # Three knots more on either side, as far apart as the outermost ones inside.
    before = inside[0] - (inside[1] - inside[0]) * np.arange(DEGREE, 0, -1)
    after = inside[-1] + (inside[-1] - inside[-2]) * np.arange(1, DEGREE + 1)
    knots = np.concatenate([before, inside, after])
    return BSpline.design_matrix(np.clip(x, inside[0], inside[-1]), knots, DEGREE).toarray()[:, :-1]


def _fit_ridge(
    x: Float[np.ndarray, "draws columns"], targets: Sequence[Float[np.ndarray, "draws strategies"]]
) -> list[Float[np.ndarray, "draws strategies"]]:
    """E[y | x] for each y by a ridge, against too many columns; its weight is chosen by the leave-one-out error.

    Args:
        x: columns of mean zero.
        targets: several y, which share the decomposition of x.
    """
    # x'x = V diag(root) V'. In the coordinates x V the ridge divides by root + weight.
    root, axes = np.linalg.eigh(x.T @ x)
    rotated = x @ axes
    # [columns ridges]; rounding may make eigenvalues slightly negative.
    shrink = 1.0 / (np.maximum(root, 0.0)[:, None] + RIDGES)
    # Left out, a draw is missed by residual / (1 - leverage) (Allen 1974, PRESS); 1 / n is that of the mean.
    kept = np.maximum(1.0 - (rotated**2 @ shrink + 1.0 / len(x)), 1e-12)
    answers = []
    for y in targets:
        mean, scale = y.mean(0), np.where(y.std(0) > 0, y.std(0), 1.0)
        # One weight serves all strategies: they are brought to one scale first.
        centred = (y - mean) / scale
        moments, fits = rotated.T @ centred, []
        for k in range(len(RIDGES)):
            fit = rotated @ (shrink[:, [k]] * moments)
            missed = ((centred - fit) / kept[:, [k]]) ** 2
            fits.append((float(missed.mean()), fit))
        # The ridge with the least leave-one-out error, back in the units of y.
        answers.append(mean + scale * min(fits, key=lambda each: each[0])[1])
    return answers


@dataclass(frozen=True)
class Study:
    """A proposed study: so many observations of named sites, all independent given the sites.

    Beta sites are seen by binomial trials, rows of Dirichlet sites by multinomial ones, gamma sites by Poisson counts
    (the number is the exposure, such as person-years), normal sites by measurements of known sd.

    Args:
        observations: site -> number of observations of each element (row); a number for all, or an array.
        sd: normal site -> standard deviation of one measurement.

    Raises:
        TypeError: no mapping. ValueError: numbers that are negative, or no integers.

    Example:
        >>> study = bm.information.Study({"cured": 10})  # ten persons, of whom each is cured or not
        >>> float(study.scaled(2).observations["cured"])
        20.0
    """

    observations: Mapping[str, ArrayLike]
    sd: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.observations, Mapping) or not self.observations:
            raise TypeError(f"observations is {described(self.observations)}, expected site -> number of observations")
        for name, number in self.observations.items():
            check_finite(f"observations[{name!r}]", number)
            require(np.asarray(number) < 0, f"observations[{name!r}]", number, "a number of at least 0")
        for name, sd in self.sd.items():
            check_number(f"sd[{name!r}]", sd, lambda x: x > 0, "a positive number")
            if name not in self.observations:
                raise ValueError(f"sd has {name!r}, expected sites of observations")

    def __str__(self) -> str:
        """Sites with their numbers."""
        return ", ".join(f"{_number(n)} of {name}" for name, n in self.observations.items())

    def scaled(self, factor: float) -> "Study":
        """The same study with `factor` times as many observations, rounded to integers."""
        # Whole observations: binomial and multinomial sites take no parts.
        rounded = {name: np.rint(np.asarray(n, float) * factor) for name, n in self.observations.items()}
        return Study(rounded, self.sd)

    def sites_of(self, model: DecisionModel) -> dict[str, StudiedSite]:
        """What it sees of each site of a model.

        Args:
            model: whose sites are observed.

        Raises:
            ValueError: a site that the program does not have, that has no conjugate data, or whose elements the numbers
                do not fit; a normal site without sd.
        """
        model.check_sites("observations", self.observations)
        studied = {}
        # Only sites of closed form have exact posteriors of simulated data.
        for name, number in self.observations.items():
            law = model.laws.get(name)
            if law is None or law.family not in CONJUGATE_DATA:
                family = model.trace.families[name]
                kinds = ", ".join(f"{key} ({data})" for key, data in CONJUGATE_DATA.items())
                why = (
                    f"a {family} site" if law is not None or family not in CONJUGATE_DATA else "no site of closed form"
                )
                raise ValueError(f"observations has {name!r}, which is {why}, expected exact sites of {kinds}")
            # A row of a Dirichlet site is observed as a whole.
            rows = law.shape[:-1] if law.family == "Dirichlet" else law.shape
            try:
                numbers = np.broadcast_to(np.asarray(number, float), rows)
            except ValueError:
                raise ValueError(
                    f"observations[{name!r}] has shape {np.shape(number)}, expected a number, or shape {rows}"
                ) from None
            if law.family in ("Beta", "Dirichlet"):
                require(numbers != np.rint(numbers), f"observations[{name!r}]", numbers, "an integer")
            # A normal site is measured with a known sd, and no other site is.
            if (law.family == "Normal") != (name in self.sd):
                expected = "the sd of one measurement" if law.family == "Normal" else f"none: it is a {law.family} site"
                raise ValueError(f"sd[{name!r}] is {self.sd.get(name, 'missing')}, expected {expected}")
            studied[name] = StudiedSite(law, numbers, self.sd.get(name))
        return studied


def _number(n: ArrayLike) -> str:
    array = np.asarray(n)
    return f"{array:g}" if array.ndim == 0 else str(array.tolist())


def evsi(
    key: PRNGKeyArray,
    model: DecisionModel,
    study: Study,
    wtp: float | None = None,
    *,
    num_draws: int | None = None,
    num_inner: int | None = None,
) -> InformationValue:
    """The expected value of sample information: what a study of a given size is worth to the choice of a strategy.

    Args:
        key: of the simulated data, where they are simulated.
        model: the belief.
        study: what would be observed.
        wtp: willingness to pay, as in `evpi`.
        num_draws: simulated data sets (None: 65,536; 16,384 where slopes are averaged; 4,096 with inner points for
            each).
        num_inner: inner points for each, where net benefits have to be averaged (None: 64).

    Raises:
        ValueError, TypeError: as `Study.sites_of` and `net_benefit_weights`.

    Example:
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> model = bm.strategies.decision_model(lambda: {"a": numpyro.sample("p", dist.Beta(1.0, 1.0)), "b": 0.5})
        >>> answer = bm.information.evsi(jax.random.key(0), model, bm.information.Study({"p": 1}))
        >>> round(answer.value, 3)  # one observation moves the mean of p to 1/3 or 2/3
        0.083
    """
    check_key("key", key)
    check_type("model", model, DecisionModel, "a decision model")
    check_type("study", study, Study, "a Study")
    check_sizes(num_draws, num_inner)
    # The study's data are what will be learned.
    learned = Learned(studied=study.sites_of(model))
    return value_of_learning(key, model, learned, "EVSI", str(study), wtp, (num_draws, num_inner))


@dataclass(frozen=True)
class SamplingBenefit:
    """Studies of several sizes, and which pays most; `print` shows a table.

    Args:
        table: `evsi`, `standard_error` (of one decision), `population_evsi`, `cost`, `enbs` (of the population) by
            `size`.
        population: number of decisions, discounted.
    """

    table: xr.Dataset
    population: float

    @property
    def best_size(self) -> float:
        """The number of observations with the largest expected net benefit of sampling; 0: no study of these pays."""
        # Zero is always possible: no study at all.
        enbs = self.table["enbs"].values
        return float(self.table["size"].values[int(np.argmax(enbs))]) if np.max(enbs) > 0 else 0.0

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """A row for each size."""
        columns = {"size": "g", "evsi": ".6g", "standard_error": ".2g", "population_evsi": ".6g"}
        columns |= {"cost": ".6g", "enbs": ".6g"}
        rows = zip(*([f"{x:{form}}" for x in self.table[name].values] for name, form in columns.items()), strict=True)
        best = self.best_size
        # The largest size that was tried may not be the best there is.
        largest = ", the largest: larger ones may pay more" if best == float(self.table["size"].max()) else ""
        return Section(
            f"Expected net benefit of sampling, {self.population:g} decisions",
            [
                "in the unit of the net benefit: EVSI and its error for one decision, the rest for all of them",
                Table(("size", "EVSI", "error", "population", "cost", "ENBS"), list(rows), words=()),
                f"best of these: {best:g}{largest}" if best else "none of these pays",
            ],
        )


@dataclass(frozen=True)
class StudyEconomics:
    """What a study serves and what it costs, for `net_benefit_of_sampling`.

    Args:
        population: number of decisions that the answer will serve, see `discounted_population`.
        fixed_cost: of a study of any size, in units of the net benefit.
        cost_per_size: of one observation more, in the same units.

    Raises:
        TypeError, ValueError: one sentence about the number at fault.

    Example:
        >>> bm.information.StudyEconomics(population=1000, cost_per_size=2.0).fixed_cost
        0.0
    """

    population: float
    fixed_cost: float = 0.0
    cost_per_size: float = 0.0

    def __post_init__(self) -> None:
        check_number(
            "population", self.population, lambda x: (x >= 0) & np.isfinite(x), "a finite number of at least 0"
        )
        check_number("fixed_cost", self.fixed_cost, np.isfinite, "a finite number")
        check_number("cost_per_size", self.cost_per_size, np.isfinite, "a finite number")


@accepts_moved("information.net_benefit_of_sampling")
def net_benefit_of_sampling(
    key: PRNGKeyArray,
    model: DecisionModel,
    study: Study,
    sizes: Sequence[float],
    wtp: float | None = None,
    *,
    economics: StudyEconomics,
    num_draws: int | None = None,
    num_inner: int | None = None,
) -> SamplingBenefit:
    """Expected net benefit of sampling: population * EVSI(n) - fixed cost - n * cost, for studies of several sizes.

    Args:
        key, model, wtp, num_draws, num_inner: as in `evsi`; all sizes have the same key.
        study: of size 1; size n has n times its observations (rounded).
        sizes: n, numbers of observations, positive.
        economics: how many decisions the study serves, what it costs.

    Raises:
        ValueError: no sizes, or one that is not positive; otherwise as `evsi`.
        TypeError: no `Study`, a size that is no number.

    Example:
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> model = bm.strategies.decision_model(lambda: {"a": numpyro.sample("p", dist.Beta(1.0, 1.0)), "b": 0.5})
        >>> study, sizes = bm.information.Study({"p": 1}), [1, 10]
        >>> benefit = bm.information.net_benefit_of_sampling(
        ...     jax.random.key(0), model, study, sizes, economics=bm.information.StudyEconomics(1000, cost_per_size=2.0)
        ... )
        >>> print(benefit)
        Expected net benefit of sampling, 1000 decisions
        ...
    """
    check_type("study", study, Study, "a Study")
    check_type("economics", economics, StudyEconomics, "StudyEconomics")
    population = economics.population
    numbers = np.atleast_1d(as_real("sizes", sizes, "positive numbers"))
    if numbers.ndim != 1 or not numbers.size or np.ndim(sizes) == 0:
        raise ValueError(f"sizes is {described(sizes)}, expected a list of at least one size")
    # A study of size zero is worth nothing, and costs its fixed part.
    require(~(numbers > 0) | np.isinf(numbers), "sizes", numbers, "a positive number")
    results = []
    with bar_of(len(sizes), " studies") as bar:
        for size in sizes:
            scaled = study.scaled(size)
            # The same key for all sizes: the curve is smooth in the size.
            results.append(evsi(key, model, scaled, wtp, num_draws=num_draws, num_inner=num_inner))
            bar.update()
    values = np.array([x.value for x in results])
    # ENBS(n) = population EVSI(n) - fixed cost - n cost.
    costs = economics.fixed_cost + economics.cost_per_size * np.asarray(sizes, float)
    table = xr.Dataset(
        {
            "evsi": ("size", values),
            "standard_error": ("size", np.array([x.standard_error for x in results])),
            "population_evsi": ("size", population * values),
            "cost": ("size", costs),
            "enbs": ("size", population * values - costs),
        },
        {"size": np.asarray(sizes, float)},
    )
    return SamplingBenefit(table, float(population))


def discounted_population(incidence: float, years: int, rate: float = 0.0) -> float:
    """Discounted number of decisions over the life of a technology: incidence * sum_{t < years} (1 + rate)^-t.

    Args:
        incidence: number of decisions per year.
        years: that the technology is in use.
        rate: discount rate per year, no unit.

    Raises:
        ValueError: a negative incidence, no years, a rate of -1 or less.
        TypeError: no number.
    """
    check_number("incidence", incidence, lambda x: (x >= 0) & np.isfinite(x), "a finite number of at least 0")
    check_count("years", years)
    check_number("rate", rate, lambda x: (x > -1) & np.isfinite(x), "a finite number above -1")
    # The first year counts in full.
    return float(incidence * np.sum((1.0 + rate) ** -np.arange(years)))
