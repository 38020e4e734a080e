"""`ValueUncertainty`: mean and variance of Q and V under a posterior, and whether the variance is exact."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.mdp import StateActionSpace, Validity
from bayes_mdp.utils.typing import AnyArray

if TYPE_CHECKING:
    import xarray as xr


class ValueUncertainty(eqx.Module):
    """Mean and variance of the values of a policy under a posterior.

    Args:
        q_mean: [*H S A], expected value of a pair (exact where `validity` is, else that of the mean MDP); -inf where
            the action is illegal.
        v_mean: [*H S], the same of the policy.
        q_variance: [*H S A], variance of the value of a pair, in squared units of the value; 0 where illegal.
        v_variance: [*H S], of the policy.
        local: [*H S A], the local variance of each pair (without H where that of all steps is one); None where no
            equation was solved.
        q_max: the bound on |values| that the local variance uses, where it does; else None.
        converged, iterations, gap: of the solver of the variance (see `PolicyEvaluation`); `gap` bounds its numerical
            error; over sampled MDPs it is the largest of their evaluations.
        validity: whether the variance is exact, an upper bound or a heuristic, and why.
    """

    q_mean: Float[Array, "*H S A"]
    v_mean: Float[Array, "*H S"]
    q_variance: Float[Array, "*H S A"]
    v_variance: Float[Array, "*H S"]
    local: Float[Array, "*G S A"] | None
    q_max: Float[Array, ""] | None
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    gap: Float[Array, ""]
    validity: Validity

    @property
    def q_sd(self) -> Float[Array, "*H S A"]:
        """Standard deviation of the value of a pair."""
        return jnp.sqrt(jnp.maximum(self.q_variance, 0.0))

    @property
    def v_sd(self) -> Float[Array, "*H S"]:
        """Standard deviation of the value of the policy."""
        return jnp.sqrt(jnp.maximum(self.v_variance, 0.0))

    def mean(self) -> Float[Array, "*H S A"]:
        """Expected q."""
        return self.q_mean

    def variance(self) -> Float[Array, "*H S A"]:
        """Variance of q."""
        return self.q_variance

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*H S A"]:
        """A Gaussian draw of q, pairs independent."""
        return self.q_mean + self.q_sd * jax.random.normal(key, self.q_mean.shape, self.q_mean.dtype)

    def __str__(self) -> str:
        sd = np.asarray(self.v_sd)
        used = "" if self.q_max is None else f", q_max {float(np.asarray(self.q_max)):.6g}"
        return (
            f"Uncertainty of the values of a policy: sd of V from {sd.min():.3g} to {sd.max():.3g}{used}\n"
            f"  {self.validity}"
        )

    def to_dataset(self, space: StateActionSpace | None = None) -> "xr.Dataset":
        """As xarray: dims `step` (where there is a horizon), `state`, `action`, labelled by the names of `space`."""
        return uncertainty_dataset(self, space)


@runtime_checkable
class ValueVariance(Protocol):
    """A posterior variance of values, however it was computed."""

    @property
    def q_variance(self) -> Float[Array, "*H S A"]:
        """Of the values of pairs, squared units of the value."""
        ...

    @property
    def v_variance(self) -> Float[Array, "*H S"]:
        """Of the values of states."""
        ...

    @property
    def validity(self) -> Validity:
        """Whether it is exact, an upper bound or a heuristic, and why."""
        ...


def uncertainty_dataset(answer: ValueVariance, space: StateActionSpace | None) -> "xr.Dataset":
    """The four arrays of an answer as a Dataset; `validity` and `q_max` are attributes. Host side.

    Args:
        answer: of a variance equation or of draws.
        space: whose names become coordinates; None: indices.
    """
    arrays = {name: getattr(answer, name) for name in ("q_mean", "q_variance", "v_mean", "v_variance")}
    attributes: dict[str, str | float] = {"validity": answer.validity.kind, "reason": answer.validity.reason}
    q_max = getattr(answer, "q_max", None)
    if q_max is not None:
        attributes["q_max"] = float(np.asarray(q_max))
    return labelled(arrays, space, attributes)


def labelled(
    arrays: Mapping[str, Float[AnyArray, "..."]], space: StateActionSpace | None, attributes: Mapping[str, str | float]
) -> "xr.Dataset":
    """Arrays of pairs or states as a Dataset with the names of `space`. Host side.

    Args:
        arrays: name -> values or variances [*H S A], the first one such, or [*H S].
        attributes: of the dataset, in any unit.
    """
    import xarray as xr

    from bayes_mdp.mdp.labels import pair_axes

    pairs, coords = pair_axes(next(iter(arrays.values())).shape, space)
    data = {name: (pairs[: x.ndim], np.asarray(x)) for name, x in arrays.items()}
    return xr.Dataset(data, coords, dict(attributes))
