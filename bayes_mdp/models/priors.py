"""Ready priors: each factory checks its hyperparameters and returns a NumPyro program, space -> MDPSpec.

Rows are independent Dirichlet (`supported_dirichlet`, site `transition`), rewards have the site `reward`. Every
hyperparameter is a number or an array that broadcasts to the cells of the reward law: [*H S A], or [*H S A O] with
`rewards_on="outcome"`.
"""

from typing import Literal, NamedTuple, TypeVar

import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike as SiteValue

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.labelled_tables import refuse_labels
from bayes_mdp.models.dirichlet_prior import OUTCOME_DIM, supported_dirichlet
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, broadcast_to_cells
from bayes_mdp.models.normal_gamma_distribution import NormalGamma, normal
from bayes_mdp.utils.typing import AnyArray, ArrayLike
from bayes_mdp.utils.validation import check_finite, check_name, check_not_negative, check_positive, is_concrete

RewardsOn = Literal["state_action", "outcome"]


class ClosedForm(NamedTuple):
    """What is conjugate in a ready prior, so that nobody has to find it in the program.

    Args:
        rewards: the law of the rewards and of its parameters, by the name of the factory.
        concentration: of the Dirichlet rows.
        hyperparameters: those of the site `reward` in order, and a known `noise_scale`; or the known rewards.
        by_outcome: whether rewards depend on the outcome; None: their shape says it.
        scale: by which the concentration is multiplied: forms that differ in it alone may share one array.
    """

    rewards: Literal["normal_gamma", "normal", "bernoulli", "poisson", "known"]
    concentration: ArrayLike
    hyperparameters: dict[str, ArrayLike]
    by_outcome: bool | None
    scale: float = 1.0

    @property
    def numbers(self) -> tuple[ArrayLike, ...]:
        """The concentration, its scale and the hyperparameters, in order."""
        return self.concentration, self.scale, *self.hyperparameters.values()


class ClosedForms(NamedTuple):
    """One closed form for each of equally likely values 0, 1, ... of a discrete site.

    Args:
        site: its name.
        forms: of one law.
    """

    site: str
    forms: tuple[ClosedForm, ...]


def closed_form_of(prior: object) -> ClosedForm | ClosedForms | None:
    """That of a ready prior; None: it is another program, or has traced hyperparameters."""
    known = getattr(prior, _CLOSED_FORM, None)
    if isinstance(known, ClosedForms):
        return known
    # Traced hyperparameters have no closed form that could be built before the trace.
    return known if isinstance(known, ClosedForm) and is_concrete(known[1:3]) else None


_CLOSED_FORM = "_closed_form"


ProgramT = TypeVar("ProgramT", bound=Prior)


def ready(program: ProgramT, form: ClosedForm | ClosedForms) -> ProgramT:
    """The program, which carries its closed form."""
    setattr(program, _CLOSED_FORM, form)
    return program


def dirichlet_normal_gamma(
    concentration: ArrayLike = 1.0,
    loc: ArrayLike = 0.0,
    pseudo_count: ArrayLike = 1.0,
    reward_concentration: ArrayLike = 2.0,
    rate: ArrayLike = 1.0,
    *,
    rewards_on: RewardsOn = "state_action",
) -> Prior:
    """Normal rewards of unknown mean and variance: (mean, precision) ~ NormalGamma(loc, pseudo_count, ...).

    Site `reward`: [..., 2], mean and precision.

    Args:
        concentration: of the Dirichlet rows; broadcasts to [*H S A O].
        loc: prior mean of the mean reward, in units of the reward. It and the others broadcast to [*H S A], or to
            [*H S A O].
        pseudo_count: prior weight of `loc`, in rewards; broadcasts.
        reward_concentration: shape of the Gamma prior of the precision.
        rate: of that prior, in squared units of the reward; broadcasts.
        rewards_on: "state_action" or "outcome": whether rewards depend on the outcome too.

    Raises:
        ValueError: a hyperparameter out of its range (which, and where); an unknown `rewards_on`.
        TypeError: a hyperparameter that is no number; a space in place of the first one.

    Example:
        >>> prior, space = bm.models.dirichlet_normal_gamma(), bm.StateActionSpace(1, 1)
        >>> data = bm.Transitions([0] * 3, [0] * 3, [1.0, 2.0, 3.0], [0] * 3)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> round(float(posterior.mean_mdp().reward[0, 0]), 3)  # 6 / (3 + 1): the prior mean 0 counts once
        1.5
    """
    # In the order of the parameters of `NormalGamma`.
    hyperparameters = {
        "loc": loc,
        "pseudo_count": pseudo_count,
        "reward_concentration": reward_concentration,
        "rate": rate,
    }
    _check_arguments(concentration, hyperparameters, rewards_on)

    def program(space: StateActionSpace) -> MDPSpec:
        probs = supported_dirichlet(concentration, space)
        # Parameters in every cell: one draw each.
        prior = NormalGamma(*_cells(hyperparameters, space, rewards_on))
        return MDPSpec(probs, _law(normal(_reward(prior, space, rewards_on, "mean_precision")), rewards_on))

    return ready(program, ClosedForm("normal_gamma", concentration, hyperparameters, rewards_on == "outcome"))


def dirichlet_normal(
    concentration: ArrayLike = 1.0,
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    noise_scale: ArrayLike = 1.0,
    *,
    rewards_on: RewardsOn = "state_action",
) -> Prior:
    """Normal rewards of unknown mean ~ Normal(loc, scale^2) and known standard deviation `noise_scale`.

    Site `reward`: the mean.

    Args:
        concentration: of the Dirichlet rows; broadcasts to [*H S A O].
        loc, scale: prior mean and standard deviation of the mean reward, in units of the reward; broadcast to [*H S A]
            (or [*H S A O]).
        noise_scale: known standard deviation of a reward around its mean; broadcasts likewise.
        rewards_on: "state_action" or "outcome": whether rewards depend on the outcome too.

    Raises:
        ValueError: as `dirichlet_normal_gamma`.
        TypeError: a hyperparameter that is no number; a space in place of the first one.

    Example:
        >>> prior, space = bm.models.dirichlet_normal(), bm.StateActionSpace(1, 1)
        >>> data = bm.Transitions([0] * 3, [0] * 3, [1.0, 2.0, 3.0], [0] * 3)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> round(float(posterior.mean_mdp().reward[0, 0]), 3)  # 6 / (3 + 1): the prior mean 0 counts once
        1.5
    """
    hyperparameters = {"loc": loc, "scale": scale, "noise_scale": noise_scale}
    _check_arguments(concentration, hyperparameters, rewards_on)

    def program(space: StateActionSpace) -> MDPSpec:
        probs = supported_dirichlet(concentration, space)
        # The noise is known: it stays out of the prior of the mean.
        mean, deviation, noise = _cells(hyperparameters, space, rewards_on)
        reward = _reward(dist.Normal(mean, deviation), space, rewards_on)
        return MDPSpec(probs, _law(dist.Normal(reward, noise), rewards_on))

    return ready(program, ClosedForm("normal", concentration, hyperparameters, rewards_on == "outcome"))


def dirichlet_bernoulli(
    concentration: ArrayLike = 1.0,
    concentration1: ArrayLike = 1.0,
    concentration0: ArrayLike = 1.0,
    *,
    rewards_on: RewardsOn = "state_action",
) -> Prior:
    """Rewards 1 with unknown probability ~ Beta(concentration1, concentration0), else 0.

    Site `reward`: the probability.

    Args:
        concentration: of the Dirichlet rows; broadcasts to [*H S A O].
        concentration1, concentration0: prior pseudo-counts of rewards 1 and 0; broadcast to [*H S A] (or [*H S A O]).
        rewards_on: "state_action" or "outcome": whether rewards depend on the outcome too.

    Raises:
        ValueError: as `dirichlet_normal_gamma`.
        TypeError: a hyperparameter that is no number; a space in place of the first one.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 1)
        >>> data = bm.Transitions([0] * 3, [0] * 3, [1.0, 1.0, 0.0], [0] * 3)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> round(float(posterior.mean_mdp().reward[0, 0]), 3)  # 3 / 5
        0.6
    """
    hyperparameters = {"concentration1": concentration1, "concentration0": concentration0}
    _check_arguments(concentration, hyperparameters, rewards_on)

    def program(space: StateActionSpace) -> MDPSpec:
        probs = supported_dirichlet(concentration, space)
        # Beta is conjugate to Bernoulli; the site is the probability of a one.
        reward = _reward(dist.Beta(*_cells(hyperparameters, space, rewards_on)), space, rewards_on)
        return MDPSpec(probs, _law(dist.Bernoulli(probs=reward), rewards_on))

    return ready(program, ClosedForm("bernoulli", concentration, hyperparameters, rewards_on == "outcome"))


def dirichlet_poisson(
    concentration: ArrayLike = 1.0,
    reward_concentration: ArrayLike = 1.0,
    rate: ArrayLike = 1.0,
    *,
    rewards_on: RewardsOn = "state_action",
) -> Prior:
    """Rewards 0, 1, 2, ... of unknown Poisson rate ~ Gamma(reward_concentration, rate).

    Site `reward`: the rate.

    Args:
        concentration: of the Dirichlet rows; broadcasts to [*H S A O].
        reward_concentration: prior sum of rewards (shape of the Gamma prior).
        rate: prior number of rewards. Both broadcast to [*H S A] (or [*H S A O]).
        rewards_on: "state_action" or "outcome": whether rewards depend on the outcome too.

    Raises:
        ValueError: as `dirichlet_normal_gamma`.
        TypeError: a hyperparameter that is no number; a space in place of the first one.

    Example:
        >>> prior, space = bm.models.dirichlet_poisson(), bm.StateActionSpace(1, 1)
        >>> data = bm.Transitions([0] * 3, [0] * 3, [1.0, 2.0, 3.0], [0] * 3)
        >>> posterior = bm.infer(jax.random.key(0), prior, data, space=space)
        >>> round(float(posterior.mean_mdp().reward[0, 0]), 3)  # (1 + 6) / (1 + 3)
        1.75
    """
    hyperparameters = {"reward_concentration": reward_concentration, "rate": rate}
    _check_arguments(concentration, hyperparameters, rewards_on)

    def program(space: StateActionSpace) -> MDPSpec:
        probs = supported_dirichlet(concentration, space)
        # Gamma is conjugate to Poisson.
        reward = _reward(dist.Gamma(*_cells(hyperparameters, space, rewards_on)), space, rewards_on)
        return MDPSpec(probs, _law(dist.Poisson(reward), rewards_on))

    return ready(program, ClosedForm("poisson", concentration, hyperparameters, rewards_on == "outcome"))


def known_rewards(reward: ArrayLike, concentration: ArrayLike = 1.0) -> Prior:
    """Known rewards, unknown rows. Observed rewards then carry no information; others than these are refused.

    Where rewards vary around a known mean, give their law: `MDPSpec(rows, dist.Normal(mean, scale))`.

    Args:
        reward: an array that broadcasts to [*H S A] or to [*H S A O]; see `MDPSpec`.
        concentration: of the rows; broadcasts to [*H S A O].

    Raises:
        ValueError: a reward that is not finite, a concentration out of its range.
        TypeError: no numbers; a space in place of the first argument.

    Example:
        >>> prior, space = bm.models.known_rewards([[0.0], [1.0]]), bm.StateActionSpace(2, 1)
        >>> posterior = bm.infer(jax.random.key(0), prior, space=space)
        >>> posterior.mean_mdp().reward.tolist()
        [[0.0], [1.0]]
    """
    _check_arguments(concentration, {}, "state_action")
    refuse_labels("reward", reward)
    check_finite("reward", reward)

    def program(space: StateActionSpace) -> MDPSpec:
        # No site: nothing of the rewards is unknown.
        return MDPSpec(supported_dirichlet(concentration, space), reward)

    return ready(program, ClosedForm("known", concentration, {"reward": reward}, None))


def _check_arguments(concentration: ArrayLike, hyperparameters: dict[str, ArrayLike], rewards_on: str) -> None:
    check_name("rewards_on", rewards_on, ("state_action", "outcome"))
    if isinstance(concentration, StateActionSpace):
        # `prior(space)` in place of `prior()(space)` would be read as a concentration.
        raise TypeError(
            "concentration is a StateActionSpace, expected a number or an array: call the factory first, prior()(space)"
        )
    refuse_labels("concentration", concentration)
    check_not_negative("concentration", concentration)
    for name, value in hyperparameters.items():
        refuse_labels(name, value)
        (check_finite if name == "loc" else check_positive)(name, value)


def _cells(hyperparameters: dict[str, ArrayLike], space: StateActionSpace, rewards_on: str) -> list[AnyArray]:
    return [broadcast_to_cells(name, value, space, rewards_on == "outcome") for name, value in hyperparameters.items()]


def _law(law: dist.Distribution, rewards_on: str) -> dist.Distribution:
    return law.to_event(1) if rewards_on == "outcome" else law


def _reward(prior: dist.Distribution, space: StateActionSpace, rewards_on: str, *event_dims: str) -> SiteValue:
    """The site `reward`, in the plates of the space."""
    # Where rewards depend on the outcome, outcomes are an event dimension, and so is any that the prior has.
    names = [OUTCOME_DIM, *event_dims] if rewards_on == "outcome" else list(event_dims)
    with space.plates():
        return numpyro.sample("reward", _law(prior, rewards_on), infer={"event_dims": names})
