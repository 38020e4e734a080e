"""Continuous parameters of every agent that can be replayed, and what choices tell about them on a grid."""

import zlib
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS, Learner
from bayes_mdp.behaviour import ChoiceLog, LearnerChoices, Parameter, log_likelihood, simulate
from bayes_mdp.mdp import Problem
from tests import matrix
from tests.behaviour.replays import OBJECTIVE, START


class Own(NamedTuple):
    """Parameters of an agent.

    Args:
        ranges: name -> (low, high) of the true values.
        options: what else the agent is made with.
        greedy: its choices have a lapse, known, of `LAPSE`.
    """

    ranges: dict[str, tuple[float, float]]
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed
    greedy: bool = False


LAPSE = 0.15
RATE, START_VALUE = (0.02, 0.9), (0.0, 1.5)
EPSILON = (0.05, 0.9)
Q = {"learning_rate": RATE, "initial_q": START_VALUE}
OWN: dict[str, Own] = {
    "epsilon_greedy_q": Own({**Q, "epsilon": EPSILON}),
    "bql": Own(
        {"loc": (-1.0, 2.0), "pseudo_count": (0.5, 10.0), "concentration": (1.5, 8.0), "rate": (0.3, 8.0)},
        {"update": "moment"},
    ),
    "ube": Own({"scale": (0.1, 4.0), "q_max": (0.3, 6.0)}, {"noise": "per_step"}),
    "moment_matching": Own({"scale": (0.1, 4.0)}, {"noise": "per_step"}),
    "count_bonus": Own({"scale": (0.02, 2.0), "unvisited": (0.0, 3.0)}, greedy=True),
    "covariance_thompson": Own({"scale": (0.1, 4.0)}, {"noise": "per_step"}),
    "k_learning": Own({"noise": (0.2, 3.0), "span": (0.3, 4.0)}),
    "information_gain": Own({"scale": (0.02, 3.0)}, greedy=True),
    "regularised_ids": Own({"scale": (0.02, 3.0)}, greedy=True),
    "vapor": Own({"noise": (0.2, 3.0), "span": (0.3, 4.0)}),
    "beb": Own({"scale": (0.02, 5.0)}, greedy=True),
    "bolt": Own({"eta": (0.1, 8.0), "max_reward": (0.2, 3.0)}, greedy=True),
    "ucbvi": Own({"bonus_scale": (0.01, 1.0), "delta": (0.01, 0.9)}, {"num_episodes": 20}, greedy=True),
    "ucb_h": Own({"scale": (0.005, 1.0), "delta": (0.01, 0.9)}, {"num_episodes": 20}, greedy=True),
    "soft_q": Own({**Q, "temperature": (0.05, 1.0)}),
    "soft_q_mean": Own({"temperature": (0.05, 1.0)}),
    "boltzmann_q": Own({**Q, "temperature": (0.05, 1.0)}),
    "epsilon_greedy_mean": Own({"epsilon": EPSILON}),
    "ucrl2": Own({"scale": (0.01, 1.0), "delta": (0.01, 0.9), "max_reward": (0.3, 2.0)}, greedy=True),
    "ucfh": Own(
        {"scale": (0.01, 1.0), "delta": (0.01, 0.9), "epsilon": (0.02, 0.9), "max_reward": (0.3, 2.0)}, greedy=True
    ),
    "sarsa_lambda": Own({**Q, "epsilon": EPSILON, "trace_decay": (0.0, 1.0)}, {"trial_steps": 6}),
    "td_bma": Own({**Q, "epsilon": EPSILON}, {"trial_steps": 6}),
    "oim": Own({"v_max": (0.3, 4.0)}, greedy=True),
    "r_max": Own({"v_max": (0.3, 4.0)}, greedy=True),
    "mbie": Own({"reward_width": (0.05, 3.0), "transition_width": (0.05, 2.0), "v_max": (0.3, 4.0)}, greedy=True),
    "mbie_eb": Own({"beta": (0.02, 3.0), "v_max": (0.3, 4.0)}, greedy=True),
    "e3": Own({"threshold": (0.01, 0.9)}, greedy=True),
    "mbie_ws": Own({"z": (0.1, 4.0), "v_max": (0.3, 4.0)}, greedy=True),
    "frequency_bonus": Own({"scale": (0.02, 5.0), "v_max": (0.3, 4.0), "bonus_discount": (0.1, 0.95)}, greedy=True),
    "recency_bonus": Own({"scale": (0.02, 5.0), "v_max": (0.3, 4.0), "bonus_discount": (0.1, 0.95)}, greedy=True),
    "epsilon_greedy_model": Own({"epsilon": EPSILON}),
    "optimistic_q": Own({"v_max": (0.3, 4.0), "learning_rate": RATE}, greedy=True),
    "ieql_plus": Own(
        {"theta": (0.01, 0.9), "learning_rate": RATE, "rate_power": (0.0, 1.0), "initial_value": START_VALUE,
         "sigma_max": (0.1, 2.0), "max_reward": (0.3, 2.0)}, greedy=True
    ),
    "variance_bonus_q": Own(
        {**Q, "scale": (0.05, 3.0), "half_life": (3.0, 60.0), "initial_bonus": (0.0, 2.0), "prior_sd": (0.1, 3.0)},
        greedy=True,
    ),
    "error_bonus_q": Own(
        {**Q, "scale": (0.05, 3.0), "half_life": (3.0, 60.0), "initial_bonus": (0.0, 2.0)}, greedy=True
    ),
    "annealed_q": Own({**Q, "epsilon": EPSILON, "half_life": (3.0, 60.0)}),
}  # fmt: skip

MDP_ROWS = np.array(
    [[[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], [[0.1, 0.1, 0.8], [0.5, 0.4, 0.1]]]
)
PAID = np.array([[0.3, 0.1], [0.1, 0.4], [0.8, 0.4]])


def environment() -> bm.Environment:
    """Three states, the best rewards far away."""
    return bm.Environment(bm.MDP(MDP_ROWS, PAID, initial=START), dist.Bernoulli(PAID))


def base(name: str) -> dict[str, float]:
    """A value of every parameter, a third of the way up its range."""
    return {key: low + (high - low) / 3 for key, (low, high) in OWN[name].ranges.items()}


def model_of(name: str) -> LearnerChoices:
    """The agent with all its parameters."""
    own = OWN[name]

    def make(params: Any) -> Any:
        return AGENTS[name](**{key: params[key] for key in own.ranges}, **own.options)

    parameters = {key: Parameter((low - 1e-6, high + 1e-6)) for key, (low, high) in own.ranges.items()}
    agent = AGENTS[name]
    prior = None if isinstance(agent(**own.options), Learner) else matrix.KINDS["exact"].posterior
    return LearnerChoices(make, parameters, Problem(matrix.SPACE, OBJECTIVE, START), prior=prior, lapse=own.greedy)


class Recovered(NamedTuple):
    """Of one parameter.

    Args:
        pit: of each truth, its probability integral transform, randomised over its grid point.
        mean, sd: of each posterior.
        truth: true values.
        prior_sd: of the prior.
    """

    pit: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    truth: np.ndarray
    prior_sd: float


def recovered(name: str, *, num: int = 96, points: int = 12, num_choices: int = 60) -> dict[str, Recovered]:
    """Posterior of each parameter on a grid of `points` values, all equally likely, the other parameters known.

    True values are drawn from the same grid: the posterior is exact, no discretisation. One program simulates and one
    filters the persons of all parameters of the agent.
    """
    own, model = OWN[name], model_of(name)
    seed = zlib.crc32(name.encode())
    rng = np.random.default_rng(seed)
    names = list(own.ranges)
    grids = {key: np.linspace(*own.ranges[key], points) for key in names}
    index = rng.integers(points, size=(len(names), num))
    known = {**base(name), **({"lapse": LAPSE} if own.greedy else {})}

    def varied(values: dict[str, np.ndarray], shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        """Parameters of persons [name, ...]: each as known, but that of the first axis."""
        made = {key: np.full((len(names), *shape), known[key]) for key in known}
        for i, key in enumerate(names):
            made[key][i] = values[key]
        return {key: x.reshape(-1) for key, x in made.items()}

    truth = varied({key: grids[key][index[i]] for i, key in enumerate(names)}, (num,))
    log = simulate(jax.random.key(seed), model, truth, environment(), num_choices, horizon=OBJECTIVE.horizon)
    each = varied({key: np.broadcast_to(grids[key], (num, points)) for key in names}, (num, points))
    repeat = lambda x: np.repeat(np.asarray(x), points, axis=0)  # noqa: E731
    tiled = ChoiceLog(*(repeat(x) for x in (log.state, log.action, log.reward, log.next_state)), states=log.states,
                      actions=log.actions)  # fmt: skip
    total = np.asarray(log_likelihood(model, each, tiled), float).sum(1).reshape(len(names), num, points)
    weight = np.exp(total - total.max(-1, keepdims=True))
    weight /= weight.sum(-1, keepdims=True)
    found = {}
    for i, key in enumerate(names):
        grid, w, at = grids[key], weight[i], index[i]
        mass = w[np.arange(num), at]
        below = w.cumsum(-1)[np.arange(num), at] - mass
        mean = w @ grid
        sd = np.sqrt(np.maximum(w @ grid**2 - mean**2, 0.0))
        found[key] = Recovered(below + rng.random(num) * mass, mean, sd, grid[at], float(grid.std()))
    return found
