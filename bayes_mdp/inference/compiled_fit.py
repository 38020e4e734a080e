"""`Fit`: inference with the data as arguments, so that one compiled program serves many data sets and seeds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import PRNGKeyArray

from bayes_mdp.mdp import Counts, StateActionSpace, Transitions


@dataclass(frozen=True, eq=False)
class Fit:
    """The inference of one prior by one method. Pure and traceable: jit it once, vmap it over keys and data.

    Args:
        method: "exact", "collapsed", "nuts", "svi" or "laplace".
        space: of the prior.
        summarise: transitions -> data, arrays whose shapes do not depend on what the transitions hold.
        infer: (key, data) -> posterior.
        on_host: (key, transitions or counts or None) -> posterior, what `bayes_mdp.infer` does: data are checked, and
            counted in float64; without data the prior. Compiles itself.
    """

    method: str
    space: StateActionSpace
    summarise: Callable[[Transitions], Any]
    infer: Callable[[PRNGKeyArray, Any], Any]
    on_host: Callable[[PRNGKeyArray, Transitions | Counts | None], Any]

    def __call__(self, key: PRNGKeyArray, data: Any) -> Any:
        """The posterior after `data`, as `summarise` gives them. An exact fit does not use the key."""
        return self.infer(key, data)
