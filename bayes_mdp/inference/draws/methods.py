"""How `infer` may sample: records of options, one for each family of algorithms."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from bayes_mdp.utils.validation import check_callable, check_count, check_number, check_type

if TYPE_CHECKING:
    from numpyro.infer.mcmc import MCMCKernel

Program: TypeAlias = Callable[..., object]
"""A NumPyro program."""
_RATE = "a finite number greater than zero"


@dataclass(frozen=True)
class NUTS:
    """Hamiltonian Monte Carlo by NumPyro (Hoffman and Gelman 2014), several chains side by side.

    Args:
        num_warmup: steps of adaptation of each chain, not kept.
        num_samples: draws kept of each chain.
        num_chains: chains; r-hat needs two.
        kernel: model -> a NumPyro `MCMCKernel` of your own. None: `numpyro.infer.NUTS`, inside `DiscreteHMCGibbs` where
            the program has discrete sites.

    Raises:
        ValueError: a number that is no positive integer (`num_warmup` may be 0).
        TypeError: a number of another type, a kernel that is no function.

    Example:
        >>> sampler = bm.inference.NUTS(num_warmup=500, num_samples=500, num_chains=4)
        >>> sampler.num_chains * sampler.num_samples  # draws; `infer(..., sampler=sampler)` makes them
        2000
    """

    num_warmup: int = 500
    num_samples: int = 500
    num_chains: int = 4
    kernel: "Callable[[Program], MCMCKernel] | None" = None

    def __post_init__(self) -> None:
        check_count("num_warmup", self.num_warmup, 0)
        check_count("num_samples", self.num_samples)
        check_count("num_chains", self.num_chains)
        check_callable("kernel", self.kernel)


@dataclass(frozen=True)
class SVI:
    """Stochastic variational inference by NumPyro (Hoffman et al. 2013).

    Args:
        guide: model -> a guide, a NumPyro autoguide or a program of your own with the sites of the prior. None:
            `AutoNormal`.
        num_steps: of the optimiser (Adam).
        learning_rate: of the optimiser.
        num_samples: draws from the fitted guide.

    Raises:
        ValueError: a number out of its range.
        TypeError: a number of another type, a guide that is no function.

    Example:
        >>> prior, space = bm.models.robust_rewards(), bm.StateActionSpace(1, 1)
        >>> data = bm.Transitions([0] * 5, [0] * 5, [0.0, 0.1, -0.1, 0.2, 9.0], [0] * 5)
        >>> method = bm.inference.SVI(num_steps=300, num_samples=50)
        >>> bm.infer(jax.random.key(0), prior, data, space=space, method=method).method
        'svi'
    """

    guide: "Callable[[Program], Program] | None" = None
    num_steps: int = 5000
    learning_rate: float = 0.01
    num_samples: int = 1000

    def __post_init__(self) -> None:
        check_callable("guide", self.guide)
        check_count("num_steps", self.num_steps)
        check_number("learning_rate", self.learning_rate, lambda x: 0 < x < math.inf, _RATE)
        check_count("num_samples", self.num_samples)


@dataclass(frozen=True)
class Laplace:
    """A normal distribution at the mode of the unconstrained posterior (NumPyro's `AutoLaplaceApproximation`).

    Args:
        num_steps: of the optimiser (Adam) that looks for the mode.
        learning_rate: of the optimiser.
        num_samples: draws from the normal.

    Raises:
        ValueError: a number out of its range.
        TypeError: a number of another type.

    Example:
        >>> prior, space = bm.models.robust_rewards(), bm.StateActionSpace(1, 1)
        >>> data = bm.Transitions([0] * 5, [0] * 5, [0.0, 0.1, -0.1, 0.2, 9.0], [0] * 5)
        >>> method = bm.inference.Laplace(num_steps=300, num_samples=50)
        >>> bm.infer(jax.random.key(0), prior, data, space=space, method=method).method
        'laplace'
    """

    num_steps: int = 5000
    learning_rate: float = 0.01
    num_samples: int = 1000

    def __post_init__(self) -> None:
        check_count("num_steps", self.num_steps)
        check_number("learning_rate", self.learning_rate, lambda x: 0 < x < math.inf, _RATE)
        check_count("num_samples", self.num_samples)


@dataclass(frozen=True)
class Gibbs:
    """Gibbs sampling of what the rows of `models.partial_pooling` share; of no other prior.

    Args:
        num_warmup: sweeps of each chain that are not kept.
        num_samples: sweeps kept of each chain; each is one draw of the rows of all states.
        num_chains: chains; r-hat needs two.

    Raises:
        ValueError: a number that is no positive integer (`num_warmup` may be 0).
        TypeError: no integer.
    """

    num_warmup: int = 200
    num_samples: int = 200
    num_chains: int = 2

    def __post_init__(self) -> None:
        check_count("num_warmup", self.num_warmup, 0)
        check_count("num_samples", self.num_samples)
        check_count("num_chains", self.num_chains)


Method = NUTS | SVI | Laplace | Gibbs


def check_sampler(sampler: object) -> None:
    """Raise a TypeError unless it is the options of chains."""
    check_type("sampler", sampler, NUTS, "NUTS(...)")
