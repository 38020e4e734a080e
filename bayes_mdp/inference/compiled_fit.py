"""`Fit`: inference with the data as arguments, so that one compiled program serves many data sets and seeds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from jaxtyping import PRNGKeyArray, PyTree

from bayes_mdp.mdp import Counts, StateActionSpace, Transitions

PosteriorT_co = TypeVar("PosteriorT_co", covariant=True)


@dataclass(frozen=True, eq=False)
class Fit(Generic[PosteriorT_co]):
    """The inference of one prior by one method. Pure and traceable: jit it once, vmap it over keys and data.

    Args:
        method: the route.
        space: of the prior.
        summarise: transitions -> data, arrays whose shapes do not depend on what the transitions hold.
        infer: (key, data) -> the posterior after `data`, as `summarise` gives them. An exact fit does not use the key.
        on_host: (key, transitions or counts or None) -> posterior, what `bayes_mdp.infer` does: data are checked, and
            counted in float64; without data the prior. Compiles itself.
        draws_on_host: (key, data, num) -> the posterior by the inference that `on_host` makes, where that is not
            `infer`: an integral as `num` draws of equal weight, a mixture as it is; None: `infer` is it.
    """

    method: str
    space: StateActionSpace
    summarise: Callable[[Transitions], PyTree]
    infer: Callable[[PRNGKeyArray, PyTree], PosteriorT_co]
    on_host: Callable[[PRNGKeyArray, Transitions | Counts | None], PosteriorT_co]
    draws_on_host: Callable[[PRNGKeyArray, PyTree, int], PosteriorT_co] | None = None
