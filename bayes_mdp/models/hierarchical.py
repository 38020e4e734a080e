"""Ready priors that learn how alike the pairs are: latent hyperparameters above the rows and the rewards.

Each factory checks its hyperparameters and returns a NumPyro program, space -> MDPSpec, as `priors` does. A
hyperprior is a NumPyro distribution of one number. Outcomes that are impossible belong in the space's `support`, not in
zeros of a concentration. Concentrations count transitions: one of 3 weighs as much as three that were observed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models.dirichlet_prior import supported_dirichlet
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, broadcast_to_cells
from bayes_mdp.models.priors import (
    ClosedForm,
    ClosedForms,
    RewardsOn,
    closed_form_of,
    dirichlet_normal,
    dirichlet_normal_gamma,
    ready,
)
from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import AnyArray, ArrayLike
from bayes_mdp.utils.validation import as_real, check_count, check_finite, check_positive, described

WIDE, WEIGHT, POSITIVE = dist.Normal(0.0, 5.0), dist.LogNormal(0.0, 1.0), dist.HalfNormal(5.0)
"""Default hyperpriors of a reward, of a concentration, and of a scale."""


def unknown_concentration(
    concentration: dist.Distribution | Sequence[float] = WEIGHT,
    *,
    weights: ArrayLike = 1.0,
    rewards: Callable[..., Prior] = dirichlet_normal_gamma,
) -> Prior:
    """Rows ~ Dirichlet(c, ..., c) with one c for all pairs: how deterministic the MDP is, is learnt from all of them.

    Sites: `concentration`, c, of each outcome of each row (in transitions); of a list of values the site is
    `concentration_index`, and `concentration` is a deterministic one; those of `rewards`.

    Args:
        concentration: hyperprior of c, positive; or a list of values that are equally likely: the posterior is then a
            mixture of closed forms, exact, and quick for the ready priors.
        weights: of the outcomes: rows are Dirichlet(c * weights); positive, broadcasts to [*H S A O].
        rewards: the prior given c: a factory that takes `concentration` (`functools.partial` sets its other arguments).

    Raises:
        TypeError, ValueError: a hyperprior that is no continuous law of one positive number; values that are not
            positive, equal ones, fewer than two.

    Example:
        >>> print(bm.explain(bm.models.unknown_concentration(), bm.StateActionSpace(2, 1)))
        route: quadrature (a grid over the hyperparameters, the rest in closed form)
        ...
        >>> print(bm.explain(bm.models.unknown_concentration([0.1, 1.0]), bm.StateActionSpace(2, 1)))
        route: mixture (one closed form for each value of the discrete sites)
        ...
    """
    _check_factory(rewards)
    check_positive("weights", weights)
    if not isinstance(concentration, dist.Distribution) and np.ndim(concentration):
        return _concentration_from_list(concentration, weights, rewards)
    law: Any = concentration  # of what is no law, the check says so
    _check_hyper_prior("concentration", law)

    def program(space: StateActionSpace) -> MDPSpec:
        # Flat by default; `weights` tilt it.
        return rewards(concentration=numpyro.sample("concentration", law) * _own(weights))(space)

    return program


def _concentration_from_list(values: Sequence[float], weights: ArrayLike, rewards: Callable[..., Prior]) -> Prior:
    """Rows of a concentration that is one of a few values, with the closed form of each where `rewards` has one."""
    array = np.asarray(as_real("concentration", values, "positive numbers"), np.float64)
    if array.ndim != 1 or len(array) < 2:
        raise ValueError(
            f"concentration is {described(values)}, expected a hyperprior or a list of at least two values"
        )
    # As many programs as values, each conjugate: the mixture of their posteriors is exact.
    check_positive("concentration", array)
    if len(np.unique(array)) < len(array):
        raise ValueError(f"concentration is {described(values)}, expected values that differ")

    def program(space: StateActionSpace) -> MDPSpec:
        equal: Any = dist.Categorical(probs=np.full(len(array), 1.0 / len(array)))  # typed as perhaps None by NumPyro
        index = numpyro.sample("concentration_index", equal)
        chosen = numpyro.deterministic("concentration", jnp.asarray(array)[index])
        return rewards(concentration=chosen * _own(weights))(space)

    # What `rewards` is for each value, without a site above it.
    rewards_by_value = [rewards(concentration=value * np.asarray(weights)) for value in array.tolist()]
    forms = tuple(form for form in map(closed_form_of, rewards_by_value) if isinstance(form, ClosedForm))
    return ready(program, ClosedForms("concentration_index", forms)) if len(forms) == len(rewards_by_value) else program


def sticky(
    stickiness: dist.Distribution = POSITIVE,
    concentration: ArrayLike = 0.5,
    *,
    rewards: Callable[..., Prior] = dirichlet_normal_gamma,
) -> Prior:
    """States tend to stay where they are; how much is learnt, from all pairs at once.

    Sites: `stickiness`, added to the concentration of the state itself in each of its rows (in transitions); those of
    `rewards`.

    Args:
        stickiness: hyperprior; positive.
        concentration: of the rows before that; positive, broadcasts to [*H S A O].
        rewards: as for `unknown_concentration`.

    Raises:
        TypeError, ValueError: as `unknown_concentration`; a concentration that is not positive.

    Example:
        >>> print(bm.explain(bm.models.sticky(), bm.StateActionSpace(2, 1)))
        route: quadrature (a grid over the hyperparameters, the rest in closed form)
        ...
    """
    _check_hyper_prior("stickiness", stickiness)
    check_positive("concentration", concentration)
    # Refused here, not in the first program that runs.
    _check_factory(rewards)

    def program(space: StateActionSpace) -> MDPSpec:
        # In transitions that stay, beside those of `concentration`.
        bonus = numpyro.sample("stickiness", stickiness)
        stay = space.stays.astype(float)
        return rewards(concentration=_own(concentration) + bonus * stay)(space)

    return program


def shared_rewards(
    loc: dist.Distribution = WIDE,
    scale: dist.Distribution = POSITIVE,
    noise_scale: dist.Distribution = POSITIVE,
    *,
    concentration: ArrayLike = 1.0,
    rewards_on: RewardsOn = "state_action",
) -> Prior:
    """Mean rewards ~ Normal(m, s^2) around a shared mean, observed with shared noise: cells borrow from each other.

    Sites (in units of the reward): `reward_loc`, m; `reward_scale`, s; `noise_scale`, the standard deviation of a
    reward around its mean; `reward`, the means; `transition`, as `supported_dirichlet`, with nothing shared.

    Args:
        loc: hyperprior of m.
        scale, noise_scale: hyperpriors; positive.
        concentration, rewards_on: as for `dirichlet_normal`; the concentration broadcasts to [*H S A O].

    Raises:
        TypeError, ValueError: a hyperprior that is no continuous law of one number, or of one positive number; as
            `dirichlet_normal`.

    Example:
        >>> print(bm.explain(bm.models.shared_rewards(), bm.StateActionSpace(2, 1)))
        route: importance (weighted draws of the hyperparameters, the rest in closed form)
        ...
    """
    _check_hyper_prior("loc", loc, positive=False)
    for name, law in (("scale", scale), ("noise_scale", noise_scale)):
        _check_hyper_prior(name, law)
    # Made once for its checks alone.
    dirichlet_normal(concentration, rewards_on=rewards_on)

    def program(space: StateActionSpace) -> MDPSpec:
        # Centred: means about their own mean, which data on every cell inform.
        mean = numpyro.sample("reward_loc", loc)
        deviation, noise = numpyro.sample("reward_scale", scale), numpyro.sample("noise_scale", noise_scale)
        return dirichlet_normal(concentration, mean, deviation, noise, rewards_on=rewards_on)(space)

    return program


def clustered_states(
    num_clusters: int = 2,
    concentration: dist.Distribution = WEIGHT,
    loc: dist.Distribution = WIDE,
    pseudo_count: ArrayLike = 1.0,
    reward_concentration: ArrayLike = 2.0,
    rate: ArrayLike = 1.0,
) -> Prior:
    """Every state is of one of a few unknown kinds; its rows are as deterministic, its rewards as high as its kind's.

    In a state of kind k rows are Dirichlet(c_k, ..., c_k), and (mean, precision) of a reward is
    NormalGamma(m_k, pseudo_count, reward_concentration, rate). Kinds are equally probable, and exchangeable: their
    numbers mean nothing, so read what does not depend on them (whether two states are of one kind, the rows).

    Sites: `cluster`, Int[S 1], the kind of each state; `cluster_concentration`, c_k, of each outcome (in transitions);
    `cluster_loc`, m_k (in units of the reward); `transition`, `reward` as for `dirichlet_normal_gamma`.

    Args:
        num_clusters: kinds.
        concentration: hyperprior of each c_k; positive.
        loc: hyperprior of each m_k.
        pseudo_count, reward_concentration, rate: as for `dirichlet_normal_gamma`; each is one number, or broadcasts to
                [*H S A].

    Raises:
        TypeError, ValueError: as `shared_rewards`; fewer than one kind.

    Example:
        >>> prior = bm.models.clustered_states(num_clusters=2)
        >>> print(bm.explain(prior, bm.StateActionSpace(3, 1)))  # 2^3 joint values of `cluster` are summed over
        route: importance (weighted draws of the hyperparameters, the rest in closed form)
        ...
        >>> print(bm.explain(prior, bm.StateActionSpace(7, 1)))  # 2^7 are too many
        route: collapsed (chains draw the hyperparameters, the rest is in closed form)
        ...
    """
    check_count("num_clusters", num_clusters)
    _check_hyper_prior("concentration", concentration)
    _check_hyper_prior("loc", loc, positive=False)
    # A normal-gamma law about the mean of the kind.
    rewards = partial(
        dirichlet_normal_gamma, pseudo_count=pseudo_count, reward_concentration=reward_concentration, rate=rate
    )
    rewards()
    named = {"event_dims": ["cluster_number"]}

    def program(space: StateActionSpace) -> MDPSpec:
        weights, means = (
            jnp.asarray(numpyro.sample(f"cluster_{name}", law.expand([num_clusters]).to_event(1), infer=named))
            for name, law in (("concentration", concentration), ("loc", loc))
        )
        with space.plates("state"):
            # One kind a state: the plate of states alone, without that of actions.
            cluster = numpyro.sample("cluster", dist.CategoricalProbs(jnp.full(num_clusters, 1.0 / num_clusters)))
        # [S 1]: all actions of a state are of its kind.
        return rewards(weights[cluster][..., None], means[cluster])(space)

    return program


def feature_dynamics(
    features: ArrayLike,
    strength: dist.Distribution = WEIGHT,
    scale: ArrayLike = 1.0,
    *,
    rewards: Callable[..., Prior] = dirichlet_normal_gamma,
) -> Prior:
    """Rows ~ Dirichlet(strength softmax_o(features . coefficients)): a logistic regression that each row may leave.

    The coefficients are those of all pairs. Features that differ between outcomes only, such as the distance between
    state and next state, give dynamics that look alike from every state; a feature that is the same for all outcomes
    of a row changes nothing there. The softmax is over the outcomes that the space's `support` leaves.

    Sites: `coefficients`, [F], in log-odds per unit of a feature; `strength`, the total concentration of a row (in
    transitions); those of `rewards`.

    Args:
        features: array whose leading axes broadcast to [*H S A O], and whose last is F.
        strength: hyperprior; positive.
        scale: standard deviation of the coefficients, which are normal around 0; broadcasts to [F].
        rewards: as for `unknown_concentration`.

    Raises:
        TypeError, ValueError: as `unknown_concentration`; features or a scale of another shape, or out of range.

    Example:
        >>> prior = bm.models.feature_dynamics(np.eye(2))  # a feature for every state
        >>> print(bm.explain(prior, bm.StateActionSpace(2, 1)))
        route: importance (weighted draws of the hyperparameters, the rest in closed form)
        ...
    """
    features = as_real("features", features)
    if features.ndim < 2:
        raise ValueError(f"features has shape {features.shape}, expected [*H S A O F]: a last axis of features")
    check_finite("features", features)
    check_positive("scale", scale)
    _check_hyper_prior("strength", strength)
    _check_factory(rewards)
    # F: number of features of an outcome.
    size = features.shape[-1]
    if np.ndim(scale) and np.shape(scale) != (size,):
        raise ValueError(f"scale has shape {np.shape(scale)}, expected () or ({size},), one for each feature")

    def program(space: StateActionSpace) -> MDPSpec:
        law: Any = dist.Normal(0.0, _own(scale)).expand([size])
        coefficients = jnp.asarray(numpyro.sample("coefficients", law.to_event(1), infer={"event_dims": ["feature"]}))
        total = numpyro.sample("strength", strength)
        # x . b of every outcome, [*H S A O].
        linear = matmul(_own(features), coefficients)
        logits = broadcast_to_cells("features (without its last axis)", linear, space, True)
        # The softmax says which outcomes are likely, `strength` how much data would say otherwise.
        return rewards(concentration=total * _softmax(logits, space))(space)

    return program


def robust_rewards(
    noise_scale: dist.Distribution = POSITIVE,
    excess_df: dist.Distribution = dist.Gamma(2.0, 0.1),
    concentration: ArrayLike = 1.0,
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
) -> Prior:
    """Student-t rewards: outliers do not move the means. Not conjugate: `infer` draws what is behind the rewards.

    Rewards are StudentT(1 + excess_df, mean, noise_scale), so that the mean exists; the default hyperprior is that of
    Juarez and Steel (2010), shifted by one.

    Sites: `noise_scale`, in units of the reward, and `excess_df`, both of all pairs; `reward`, the means ~
    Normal(loc, scale^2); `transition`, as `supported_dirichlet`.

    Args:
        noise_scale, excess_df: hyperpriors; positive.
        concentration, loc, scale: as for `dirichlet_normal`; they broadcast to [*H S A O] and [*H S A].

    Raises:
        TypeError, ValueError: as `unknown_concentration` and `dirichlet_normal`.

    Example:
        >>> print(bm.explain(bm.models.robust_rewards(), bm.StateActionSpace(2, 1)))
        route: factorised (rows in closed form, what is behind the rewards by weighted draws or chains)
        ...
    """
    _check_hyper_prior("noise_scale", noise_scale)
    _check_hyper_prior("excess_df", excess_df)
    # Made once for its checks alone.
    dirichlet_normal(concentration, loc, scale)

    def program(space: StateActionSpace) -> MDPSpec:
        noise, excess = numpyro.sample("noise_scale", noise_scale), numpyro.sample("excess_df", excess_df)
        probs = supported_dirichlet(concentration, space)
        mean, deviation = (broadcast_to_cells(name, x, space, False) for name, x in (("loc", loc), ("scale", scale)))
        with space.plates():
            reward = numpyro.sample("reward", dist.Normal(mean, deviation))
        # One degree of freedom more than the excess: the mean exists.
        return MDPSpec(probs, dist.StudentT(1.0 + excess, reward, noise))

    return program


def _own(values: ArrayLike) -> np.ndarray:
    """A numpy array in JAX's current float, so that one of 64 bits never meets a 32-bit trace, which would keep it."""
    return np.asarray(values, jax.dtypes.canonicalize_dtype(float))


def _softmax(logits: Float[AnyArray, "*H S A O"], space: StateActionSpace) -> Float[Array, "*H S A O"]:
    """Over the possible outcomes, positive for each; over all for an illegal pair that has none."""
    # A row without any possible outcome is illegal: all of it counts, so that it sums to one.
    support = np.True_ if space.possible is None else space.possible | ~space.possible.any(-1, keepdims=True)
    probs = jax.nn.softmax(jnp.where(support, logits, -jnp.inf), axis=-1)
    return jnp.maximum(probs, jnp.finfo(probs.dtype).tiny)


def _check_factory(rewards: object) -> None:
    if not callable(rewards):
        raise TypeError(f"rewards is {described(rewards)}, expected a factory of priors that takes `concentration`")


def _check_hyper_prior(name: str, law: dist.Distribution, *, positive: bool = True) -> None:
    if not isinstance(law, dist.Distribution):
        raise TypeError(f"{name} is {described(law)}, expected a NumPyro distribution, its hyperprior")
    shapes = f"{name} has batch shape {law.batch_shape} and event shape {law.event_shape}"
    if law.batch_shape or law.event_shape:
        raise ValueError(f"{shapes}, expected a hyperprior of one number")
    if law.is_discrete:
        raise ValueError(f"{name} is a {type(law).__name__}, expected a hyperprior with a density")
    support: Any = law.support
    # Negative numbers of three sizes: supports have no common way to ask for their lower end.
    negative = [x for x in (-1e-6, -1.0, -1e6) if bool(support(x))]
    if positive and negative:
        raise ValueError(
            f"{name} is a {type(law).__name__}, which can be {negative[0]}, expected a hyperprior of positive numbers"
        )
