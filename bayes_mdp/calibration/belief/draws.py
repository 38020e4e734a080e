"""`Draws`: N draws of the law of a transition, with the sites of the program, as NumPy arrays; `Run`: their source."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Shaped

from bayes_mdp.calibration.belief.reward_density import RewardDraws, mean_of
from bayes_mdp.models.mdp_spec import RewardTable

Attributes = Mapping[str, str | float]
NOTHING: Mapping[str, np.ndarray] = MappingProxyType({})
NO_ATTRIBUTES: Attributes = MappingProxyType({})
MAX_CHAINS = 4
LEAST_IN_CHAIN = 4  # below it split r-hat does not exist


class Run(NamedTuple):
    """Where N draws come from.

    Args:
        sites: latent sites of the program -> [N ...].
        num_chains: number of chains, which follow one another in the N draws.
        stats: statistics of the sampler -> [N]; empty if the draws are not those of Markov chains.
        attributes: notes for the reader: what the chains are, how weighted draws became equally weighted ones.
        exchangeable: whether the draws have no order; then the chains are parts of them, and no Markov chains.
    """

    sites: Mapping[str, Shaped[np.ndarray, "N ..."]] = NOTHING
    num_chains: int = 1
    stats: Mapping[str, Shaped[np.ndarray, " N"]] = NOTHING
    attributes: Attributes = NO_ATTRIBUTES
    exchangeable: bool = False

    @property
    def markov_chains(self) -> int:
        """The number of groups of draws that may differ by more than chance."""
        return 1 if self.exchangeable else self.num_chains


class Draws(NamedTuple):
    """N draws.

    Args:
        transition_probs: [N *H S A O], rows of probabilities.
        rewards: the law of one reward in every cell.
        run: where the draws come from.
    """

    transition_probs: Float[np.ndarray, "N *H S A O"]
    rewards: RewardDraws
    run: Run = Run()

    def shown(self) -> dict[str, np.ndarray]:
        """The standard variables of a posterior: rows, and what is unknown of the rewards."""
        return {"transition_probs": self.transition_probs, **self.rewards.shown()}


def run_in_parts(
    num_draws: int,
    sites: Mapping[str, np.ndarray] = NOTHING,
    what: str = "independent draws",
    attributes: Attributes = NO_ATTRIBUTES,
) -> Run:
    """Draws without an order, in as many equal chains as their number divides into: four, three or two, or one.

    Args:
        num_draws: number of draws.
        sites: see `Run`.
        what: the draws, in words.
        attributes: see `Run`.
    """
    # Plots and statistics of ArviZ ask for several chains, of at least as many draws as split r-hat needs.
    parts = (n for n in range(MAX_CHAINS, 0, -1) if n == 1 or (num_draws % n == 0 and num_draws // n >= LEAST_IN_CHAIN))
    note = {"no_markov_chains": f"{what}: the chains are equal parts of them, and r-hat says nothing"}
    return Run(sites, next(parts), attributes={**note, **attributes}, exchangeable=True)


def of_tables(probs: Float[Array | np.ndarray, "N *H S A O"], rewards: RewardTable, run: Run) -> Draws:
    """`Draws` from existing tables: rows, and a reward law whose arrays have a leading axis N."""
    rewards = jax.tree.map(np.asarray, rewards)
    cells = probs.shape[1:] if rewards.by_outcome else probs.shape[1:-1]
    known = np.full(cells, rewards.law is None)
    return Draws(np.asarray(probs), RewardDraws(rewards.law, mean_of(rewards), known, rewards.by_outcome), run)
