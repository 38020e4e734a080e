"""Laws of rewards by regression on covariates: what a program returns as `reward`, as rows come from `logit_rows`.

`linear_rewards`: normal about a linear predictor. `logistic_rewards`: 0 or 1. `poisson_rewards`: counts.

    eta[c, s, a] = x[c, s, a] . b + u[group of c]

x is a row of the design (see `bayes_mdp.mdp.design`). Rewards are those of a pair: they do not depend on the outcome.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models.regression_rows import RegressionOptions, keep_law, predictors, read_case
from bayes_mdp.utils.validation import check_number, check_type

REWARD = "reward"
COLUMNS = (REWARD,)
"""What each column of coefficients is of: there is one, of the reward."""


def linear_rewards(
    space: StateActionSpace,
    terms: str,
    *,
    coefficients: dist.Distribution,
    noise: float | dist.Distribution,
    options: RegressionOptions = RegressionOptions(),
) -> dist.Normal:
    """A reward ~ Normal(eta, noise): linear regression.

    Coefficients and noise have the unit of the rewards, which no default can know. With a number as noise, normal
    coefficients, and rows in closed form the posterior is exact (a conjugate linear regression). Sites:
    `reward_coefficients` [p 1], `reward_noise` where noise has a prior; groups as in `logit_rows`.

    Args:
        space: of the rewards, with contexts or without.
        terms, options: as of `logit_rows`.
        coefficients: prior, broadcast to [p, 1], in units of the reward (for one standard deviation of a column).
        noise: standard deviation of one reward about its mean: a number, or its prior, a law of one positive number.

    Returns:
        A law with batch shape [C S A]; [S A] in a space without contexts.

    Raises:
        ValueError, TypeError: as `logit_rows`; a noise that is not positive.

    Example:
        >>> import numpyro.distributions as dist
        >>> space = bm.StateActionSpace(3, 2)
        >>> def prior(space):
        ...     reward = bm.models.linear_rewards(space, "state + action", coefficients=dist.Normal(0, 10), noise=1.0)
        ...     return bm.models.MDPSpec(np.full((3, 2, 3), 1 / 3), reward)
        >>> bm.explain(prior, space).route
        'exact'
    """
    check_type("coefficients", coefficients, dist.Distribution, "a NumPyro distribution, in units of the reward")
    if isinstance(noise, dist.Distribution):
        law: Any = noise
        if law.event_shape or law.batch_shape or law.support.is_discrete or not _is_positive(law.support):
            raise ValueError(
                f"noise is a {type(law).__name__} with batch shape {law.batch_shape}, expected a law of one positive "
                "number, such as dist.HalfNormal(1.0)"
            )
    else:
        check_number("noise", noise, lambda x: (x > 0) & np.isfinite(x), "a positive number, or its prior")
    # One predictor a pair; all laws below put their own link on it.
    eta = _predictor("linear", space, terms, coefficients, options)
    scale = numpyro.sample(f"{options.name or REWARD}_noise", noise) if isinstance(noise, dist.Distribution) else noise
    return dist.Normal(eta, jnp.asarray(scale, eta.dtype))


def logistic_rewards(
    space: StateActionSpace,
    terms: str,
    *,
    coefficients: dist.Distribution | None = None,
    options: RegressionOptions = RegressionOptions(),
) -> dist.Distribution:
    """A reward is 1 with probability 1 / (1 + exp(-eta)), else 0: logistic regression.

    Sites: `reward_coefficients` [p 1]; groups as in `logit_rows`.

    Args:
        space: of the rewards, with contexts or without.
        terms, coefficients, options: as of `logit_rows`.

    Returns:
        A law with batch shape [C S A]; [S A] in a space without contexts.

    Raises:
        ValueError, TypeError: as `logit_rows`.

    Example:
        >>> space = bm.StateActionSpace(3, 2)
        >>> import numpyro
        >>> numpyro.handlers.seed(lambda: bm.models.logistic_rewards(space, "state:action"), 0)().batch_shape
        (3, 2)
    """
    # The logit link, inside the law: no probability is rounded to one.
    return dist.Bernoulli(logits=_predictor("logistic", space, terms, coefficients, options))


def poisson_rewards(
    space: StateActionSpace,
    terms: str,
    *,
    coefficients: dist.Distribution | None = None,
    options: RegressionOptions = RegressionOptions(),
) -> dist.Poisson:
    """A reward is a count ~ Poisson(exp(eta)): log-linear regression of visits, falls, days in bed.

    Sites: `reward_coefficients` [p 1]; groups as in `logit_rows`.

    Args:
        space: of the rewards, with contexts or without.
        terms, coefficients, options: as of `logit_rows`.

    Returns:
        A law with batch shape [C S A]; [S A] in a space without contexts.

    Raises:
        ValueError, TypeError: as `logit_rows`.

    Example:
        >>> space = bm.StateActionSpace(3, 2)
        >>> import numpyro
        >>> numpyro.handlers.seed(lambda: bm.models.poisson_rewards(space, "state"), 0)().batch_shape
        (3, 2)
    """
    # The log link: coefficients multiply the rate.
    return dist.Poisson(jnp.exp(_predictor("poisson", space, terms, coefficients, options)))


def _predictor(
    kind: str,
    space: StateActionSpace,
    terms: str,
    coefficients: dist.Distribution | None,
    options: RegressionOptions,
) -> Float[Array, "*C S A"]:
    """The linear predictor of a reward law, which is recorded by it."""
    case = read_case(space, terms, options, REWARD, of_rows=False)
    eta, prior = predictors(case, COLUMNS, coefficients, options.shrink)
    # One column of coefficients; its axis goes.
    return keep_law(kind, case, eta[..., 0], COLUMNS, "", prior, (), None)


def _is_positive(support: Any) -> bool:
    """Whether a support holds positive numbers alone, but perhaps zero."""
    # The two that have no bound to ask for.
    if support in (constraints.positive, constraints.nonnegative):
        return True
    low = getattr(support, "lower_bound", None)
    return low is not None and bool(np.all(np.asarray(low) >= 0))
