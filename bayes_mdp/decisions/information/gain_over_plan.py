"""What a better policy would gain over the present plan after new data, in the mean MDP after them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bayes_mdp.decisions.chunks import COPIES, MOST_AT_ONCE, NUMBERS_AT_ONCE
from bayes_mdp.decisions.information.updatable import Updatable
from bayes_mdp.decisions.perfect_information import why_not_mean_mdp
from bayes_mdp.decisions.policy_evaluation import describe_objective
from bayes_mdp.mdp import MDP, Episodic, Objective, SparseMDP, StateActionSpace, Validity
from bayes_mdp.planning import Solution, evaluate, solve
from bayes_mdp.planning.start_value import value_at_start
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.progress import bar_of
from bayes_mdp.utils.typing import AnyArray


def validity_after_data(posterior: Updatable) -> Validity:
    """Whether the gain in the mean MDP is the expected value of sample information. Host side."""
    # Data change neither which rows are unknown nor their independence: what holds now holds after every data set.
    why = why_not_mean_mdp(posterior)
    if why is None:
        return Validity("exact", "the EVSI over fixed policies (but for Monte Carlo error)")
    return Validity(
        "heuristic",
        "what planning anew in the mean MDP would gain there, where the value of a policy need not be its value "
        f"averaged over what is unknown: {why}",
    )


def present_plan(posterior: Updatable, objective: Objective) -> tuple[Solution, MDP | SparseMDP]:
    """The plan of the mean MDP, and that MDP."""
    mean = posterior.mean_mdp()
    plan = solve(mean, objective)
    if not np.isfinite(float(plan.gap)):
        raise ValueError(
            f"objective is {describe_objective(objective)}, expected one for which the mean MDP has a best policy of "
            "finite value"
        )
    return plan, mean


def best_value(
    mean: MDP | SparseMDP, objective: Objective, plan: Solution, start: Float[AnyArray, " S"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """V* of the mean MDP after data, and its error bound. Traceable; the present plan is where it starts."""
    near = None if isinstance(objective, Episodic) else plan
    found = solve(mean, objective, start=near)
    return value_at_start(found, objective, start), found.gap


def kept_value(
    mean: MDP | SparseMDP, objective: Objective, policy: Int[Array, "*H S"], start: Float[AnyArray, " S"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The value of the present plan in the mean MDP after data, and its error bound. Traceable.

    Never in one program with `best_value`: with independent linear systems in one, XLA's thread pool on few cores can
    deadlock.
    """
    found = evaluate(mean, policy, objective)
    return value_at_start(found, objective, start), found.gap


def gain_of(
    best: Float[np.ndarray, " D"], kept: Float[np.ndarray, " D"], error: Float[np.ndarray, " D"], objective: Objective
) -> Float[np.ndarray, " D"]:
    """What the best policy gains over the one that is kept. Host side.

    Raises:
        ValueError: a value is not finite.
    """
    if not np.isfinite(error).all():
        raise ValueError(
            f"objective is {describe_objective(objective)}, expected one for which the present plan and the "
            "best policy have a finite value after all data sets"
        )
    # The best policy is no worse: what lies within the numerical error is nothing.
    return np.where(best - kept > error, best - kept, 0.0)


def without_illegal(mean: MDP | SparseMDP, space: StateActionSpace) -> MDP | SparseMDP:
    """The mean MDP with rewards of zero where an action is illegal: there the mean need not exist. Traceable."""
    if space.legal is None:
        return mean
    return eqx.tree_at(lambda m: m.reward, mean, jnp.where(jnp.asarray(space.legal), mean.reward, 0.0))


def chunk_of(mean: MDP | SparseMDP, posterior: Updatable, number: int, width: int) -> int:
    """How many data sets are planned at once: a power of two, as many as memory allows. Host side.

    Raises:
        ValueError: one would not fit in memory.
    """
    n_states, n_actions = mean.reward.shape[-2:]
    size = sum(np.size(x) for x in jax.tree.leaves((mean, posterior))) + n_states**2 + width
    what = f"posterior has mean MDPs of {n_states} states and {n_actions} actions"
    check_memory(what, 8.0 * COPIES * size, "listed successors take less")
    most = max(1, min(MOST_AT_ONCE, NUMBERS_AT_ONCE // size))
    return min(1 << (most.bit_length() - 1), 1 << (max(number, 1) - 1).bit_length())


@contextmanager
def counter(total: int) -> Iterator[Callable[[int], object]]:
    """A progress bar."""
    with bar_of(total, " data sets", what="planning") as bar:
        yield bar.update
