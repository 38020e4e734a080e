"""`bayes_factors`: several priors compared by the evidence of the same data."""

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.special import softmax

from bayes_mdp.inference.draws.chains import SamplingWarning
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.model_evidence.bridge import Evidence
from bayes_mdp.inference.model_evidence.evidence import evidence
from bayes_mdp.utils.layout import Section, Table, as_html, as_text
from bayes_mdp.utils.validation import check_key, check_type, described, first_index

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
    if not isinstance(posteriors, Mapping):
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
