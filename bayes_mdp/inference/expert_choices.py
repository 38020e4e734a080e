"""`Softmax`: the choices in a log tell of the MDP too, where whoever made them planned well.

A clinician who treats the ill and not the well knows something of the transition probabilities. With a likelihood for
the choices, that of an agent who knows the MDP and takes action a in state s with probability
softmax(rationality q*(s, .))[a] [BIRL07], they are data beside the transitions.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Float

from bayes_mdp.inference.draws.methods import NUTS, SVI, Method
from bayes_mdp.mdp import (
    AverageReward,
    Counts,
    Episodic,
    FirstExit,
    FoldedLog,
    Log,
    Objective,
    StateActionSpace,
    Transitions,
)
from bayes_mdp.mdp.data.transitions import check_transitions
from bayes_mdp.mdp.objectives import check_fit, check_objective
from bayes_mdp.models.mdp_spec import MDPSpec, Prior, to_mdp
from bayes_mdp.planning import solve
from bayes_mdp.utils.validation import check_number

CHOICES, RATIONALITY = "choices", "rationality"
"""Sites of the program: the likelihood of the choices, and how rational they are."""
LEAPFROGS = 20
"""Steps of the integrator for a draw, about."""
FLOPS = 1e9
"""Operations a second of one core, on small systems."""


@dataclass(frozen=True)
class Softmax:
    """For `infer(..., choices=)`: who acted in the log knew the MDP, and chose by softmax(rationality q*).

    Args:
        objective: what whoever chose was after: Discounted, Episodic or FirstExit.
        rationality: how near to optimal, in 1 / units of the value: zero is random, infinity always optimal. A NumPyro
            distribution over positive numbers (it becomes the site `rationality`), or a number that is known.
        max_hours: refuse what would take longer, by a rough estimate (planning anew in every step of the sampler).

    Raises:
        ValueError: a rationality that is not positive, or a law of negative numbers; `AverageReward`.
        TypeError: arguments of another type.

    Example:
        >>> import numpyro.distributions as dist
        >>> bm.inference.Softmax(bm.Discounted(0.9), rationality=dist.Gamma(4.0, 1.0)).max_hours
        1.0
    """

    objective: Objective
    rationality: "dist.Distribution | float"
    max_hours: float = 1.0

    def __post_init__(self) -> None:
        check_objective(self.objective)
        if isinstance(self.objective, AverageReward):
            raise ValueError("objective is AverageReward, expected Discounted, Episodic or FirstExit (q-values differ)")
        check_number("max_hours", self.max_hours, lambda x: (x > 0) & np.isfinite(x), "a finite number above 0")
        if not isinstance(self.rationality, dist.Distribution):
            expected = "a finite number greater than 0, or a NumPyro distribution over such"
            check_number("rationality", self.rationality, lambda x: (x > 0) & np.isfinite(x), expected)
        elif self.rationality.batch_shape or self.rationality.event_shape:
            shape = (*self.rationality.batch_shape, *self.rationality.event_shape)
            raise ValueError(f"rationality is a law of shape {shape}, expected one of a single number")
        elif float(jnp.min(self.rationality.sample(jax.random.key(0), (1000,)))) <= 0:
            raise ValueError("rationality is a law that gives numbers of zero or less, expected positive numbers alone")


def program_with_choices(prior: Prior, choices: Softmax, counts: Float[Any, "S A"]) -> Prior:
    """The program with the likelihood of the choices beside its own sites.

    Args:
        prior: a NumPyro program, space -> `MDPSpec`.
        choices: how they were made.
        counts: how often each action was chosen in each state.
    """

    def program(space: StateActionSpace) -> MDPSpec:
        spec = prior(space)
        rational = choices.rationality
        # Unknown rationality is a site like any other.
        if isinstance(rational, dist.Distribution):
            rational = numpyro.sample(RATIONALITY, rational)
        # What is planned in is the mean reward of each pair, as the law has it.
        q = solve(to_mdp(spec, space), choices.objective).q
        # p(a | s) is proportional to exp(rationality q*(s, a)).
        logits = jnp.asarray(rational) * q
        # Illegal pairs have q of -inf, and no choices: a product with zero would be nan, and so would its gradient.
        if space.legal is not None:
            logits = jnp.where(jnp.asarray(space.legal), logits, -1e30)
        # A factor: sum over pairs of n(s, a) log p(a | s).
        numpyro.factor(CHOICES, jnp.sum(jnp.asarray(counts) * jax.nn.log_softmax(logits, -1)))
        return spec

    return program


def prior_with_choices(
    prior: Prior,
    choices: Softmax,
    data: Transitions | Log | Counts | FoldedLog | None,
    space: StateActionSpace,
    method: str | Method,
    sampler: NUTS,
) -> tuple[Prior, str | Method]:
    """What `infer` conditions on the transitions, and how: no route in closed form has such a likelihood. Host side.

    Args:
        prior, space, method, sampler: as of `infer`.
        choices: as of `infer`.
        data: whose pairs are the choices.

    Raises:
        ValueError: no data; a space with a horizon; episodes, which would need the step of each row; a route in closed
            form; hours of planning. TypeError: `choices` is no `Softmax`.
    """
    if not isinstance(choices, Softmax):
        raise TypeError(f"choices is a {type(choices).__name__}, expected Softmax(...) or None")
    if data is None:
        raise ValueError("choices is given without data, expected the log in which they were made")
    if isinstance(data, Log | FoldedLog) and data.outcomes:
        raise ValueError(
            f"data has the outcome {next(iter(data.outcomes))!r} beside the reward, which choices do not serve, "
            "expected log.of_outcome(name) without choices, and posterior.with_outcomes"
        )
    if space.horizon is not None or isinstance(choices.objective, Episodic):
        raise ValueError(
            "choices are those of a log without steps, and the space or the objective has a horizon, expected "
            "Discounted or FirstExit and a space without a horizon"
        )
    check_fit(choices.objective, space.shape)
    if isinstance(choices.objective, FirstExit) and not space.ends:
        raise ValueError("objective of choices is FirstExit, and nothing ends (ends=False), expected Discounted")
    # No closed form has such a likelihood: chains, or an approximation by name.
    method = sampler if method in ("auto", "nuts") else method
    if isinstance(method, str) and method not in ("svi", "laplace"):
        raise ValueError(f"method is {method!r} with choices, expected 'auto', 'nuts', 'svi', 'laplace' or a record")
    # Planning stands inside every gradient: the time is estimated before it is spent.
    hours = hours_of(choices.objective, space, method)
    if hours > choices.max_hours:
        raise ValueError(
            f"choices: planning in {space.n_states} states at every step of the sampler would take about {hours:.2g} "
            f"hours, more than max_hours={choices.max_hours:g}, expected fewer states, or fewer draws "
            "(NUTS(num_samples=...)), or method='laplace'"
        )
    return program_with_choices(prior, choices, choice_counts(data, space)), method


def choice_counts(data: Transitions | Log | Counts | FoldedLog, space: StateActionSpace) -> Float[np.ndarray, "S A"]:
    """How often each action was chosen in each state; when does not matter.

    A row whose next state was not observed is a choice all the same; of `Counts` it is not known.

    Args:
        data: checked or not.
        space: of the data, without a horizon.

    Raises:
        ValueError, TypeError: as `check_transitions`, or `FoldedLog.check`.
    """
    if isinstance(data, Counts):
        return np.asarray(data.transitions, np.float64).sum(-1)
    if isinstance(data, FoldedLog):
        data.check(space)
        columns, weight = data.cells.where, data.cells.count
    else:
        columns, weight = data.transitions if isinstance(data, Log) else data, 1.0
        check_transitions(columns, space)
    counts = np.zeros(space.shape)
    np.add.at(counts, (np.asarray(columns.state), np.asarray(columns.action)), weight)
    return counts


def hours_of(objective: Objective, space: StateActionSpace, method: str | Method) -> float:
    """About how long the sampler plans, in hours of one core.

    Args:
        objective: what is planned for.
        space: its sizes.
        method: "svi", "laplace" or a record.
    """
    del objective  # some iterations of policy iteration, whatever it is
    size = space.n_states
    # A plan and its derivative: five systems of S equations and as many passes over the rows, and overhead.
    seconds_a_step = (5 * (size**3 + 4 * size**2 * space.n_actions)) / FLOPS + 2e-5
    if isinstance(method, NUTS):
        steps = LEAPFROGS * method.num_chains * (method.num_warmup + method.num_samples)
    else:
        steps = method.num_steps if isinstance(method, SVI) else 5_000
    return seconds_a_step * steps / 3600
