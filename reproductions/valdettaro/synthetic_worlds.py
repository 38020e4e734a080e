"""[VALDETTARO24] figures 3 and 4: policies by their value under the posterior and in the truth, on synthetic MDPs.

Five states, five actions, rows from a flat Dirichlet, rewards of the next state from a standard normal, discount .999,
m visits of every pair. Policies: the best in the MDP of the observed frequencies, the best in the posterior mean, the
paper's ascent of the posterior mean of the value (softmax policy, stochastic gradients), and `bm.choose`, which tries
all 3,125 deterministic policies in 400 draws. The settings are those of the authors' program; the paper shows figures
and prints no numbers, so that what is tested is what it says in words.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float, Int, PRNGKeyArray

import bayes_mdp as bm
from bayes_mdp.random.host_generator import host_generator
from reproductions.reproduction import Reproduction, Row, mean_row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATES, ACTIONS, DISCOUNT = 5, 5, 0.999
METHODS = {
    "frequencies": "best in the observed frequencies",
    "mean": "best in the posterior mean",
    "ascent": "posterior-mean ascent (the paper's)",
    "choose": "bm.choose",
}
LEARNING_RATE, SOFTNESS = 0.01, 0.5
"""Of the ascent; and the probability that its first policy gives to other actions than the best of the mean."""

Rows = Float[np.ndarray, "N S A S"]


def draw_rows(rng: np.random.Generator, concentration: Float[np.ndarray, "S A S"], number: int) -> Rows:
    """Draws of Dirichlet rows.

    Args:
        rng: makes them.
        concentration: of the rows.
        number: how many.
    """
    gammas = rng.standard_gamma(np.broadcast_to(concentration, (number, *concentration.shape)))
    return gammas / gammas.sum(-1, keepdims=True)


def values(rows: Rows, reward: Float[np.ndarray, " S"], policy: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "N S"]:
    """The values of a policy in many MDPs.

    Args:
        rows: of the MDPs.
        reward: of the next state.
        policy: action probabilities.
    """
    chain = np.einsum("nsat,sa->nst", rows, policy)
    return np.linalg.solve(np.eye(STATES) - DISCOUNT * chain, (chain @ reward)[..., None])[..., 0]


def gradient(rows: Rows, reward: Float[np.ndarray, " S"], policy: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
    """The derivative of the mean value, over MDPs and first states, by the logits of a softmax policy.

    Args:
        rows: of the MDPs.
        reward: of the next state.
        policy: softmax of the logits.
    """
    chain = np.einsum("nsat,sa->nst", rows, policy)
    system = np.eye(STATES) - DISCOUNT * chain
    value = np.linalg.solve(system, (chain @ reward)[..., None])[..., 0]
    # Visits from a uniform start, discounted: what a change of the policy in a state is worth (policy gradient).
    visits = np.linalg.solve(np.swapaxes(system, -1, -2), np.full((len(rows), STATES, 1), 1 / STATES))[..., 0]
    q = np.einsum("nsat,nt->nsa", rows, reward + DISCOUNT * value)
    by_action = (visits[..., None] * q).mean(0)
    return policy * (by_action - (policy * by_action).sum(-1, keepdims=True))


def ascend(
    rng: np.random.Generator,
    concentration: Float[np.ndarray, "S A S"],
    reward: Float[np.ndarray, " S"],
    first: Int[np.ndarray, " S"],
    steps: int,
    batch: int,
) -> Float[np.ndarray, "S A"]:
    """The paper's policy: stochastic gradient ascent of the posterior mean of the value, new draws in every step.

    Args:
        rng: draws the MDPs.
        concentration: of the posterior.
        reward: of the next state.
        first: the actions that the first policy prefers.
        steps, batch: how many steps, and draws in each.
    """
    start = np.full((STATES, ACTIONS), SOFTNESS / (ACTIONS - 1))
    start[np.arange(STATES), first] = 1 - SOFTNESS
    logits = np.log(start)
    for _ in range(steps):
        logits = logits + LEARNING_RATE * gradient(draw_rows(rng, concentration, batch), reward, softmax(logits))
    return softmax(logits)


def softmax(logits: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
    """Action probabilities.

    Args:
        logits: of the actions.
    """
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def optimum(rows: Float[np.ndarray, "S A S"], reward: Float[np.ndarray, " S"]) -> Int[np.ndarray, " S"]:
    """The best actions in one MDP, by policy iteration.

    Args:
        rows: of the MDP.
        reward: of the next state.
    """
    policy = np.zeros(STATES, int)
    while True:
        value = values(rows[None], reward, np.eye(ACTIONS)[policy])[0]
        q = rows @ (reward + DISCOUNT * value)
        better = np.where(q.max(-1) > q[np.arange(STATES), policy] + 1e-9, q.argmax(-1), policy)
        if (better == policy).all():
            return policy
        policy = better


def run(
    key: PRNGKeyArray,
    *,
    runs: int = 250,
    visits: Sequence[int] = tuple(range(1, 11)),
    steps: int = 1000,
    batch: int = 256,
    num_eval: int = 10_000,
) -> xr.Dataset:
    """Values of the policies under the posterior, and in the truth.

    Args:
        key: of everything.
        runs: worlds for each number of visits.
        visits: of every pair.
        steps, batch: of the ascent.
        num_eval: draws by which policies are judged.
    """
    rng = host_generator(key)
    reward = rng.normal(size=STATES)
    shape = (len(visits), runs, len(METHODS))
    posterior, truth = np.empty(shape), np.empty(shape)
    space, objective = bm.StateActionSpace(STATES, ACTIONS), bm.Discounted(DISCOUNT)
    prior = bm.models.known_rewards(np.broadcast_to(reward, (STATES, ACTIONS, STATES)), 1.0)
    state, action = (x.ravel() for x in np.indices((STATES, ACTIONS)))
    for i, number in enumerate(visits):
        for j in range(runs):
            rows = draw_rows(rng, np.ones((STATES, ACTIONS, STATES)), 1)
            counts = np.stack([rng.multinomial(number, rows[0, s, a]) for s, a in zip(state, action, strict=True)])
            after = np.concatenate([np.repeat(np.arange(STATES), n) for n in counts])
            pairs = np.repeat(state, number), np.repeat(action, number)
            counts = counts.reshape(STATES, ACTIONS, STATES)
            belief = bm.infer(key, prior, bm.Transitions(*pairs, None, after), space=space)
            mean = optimum((counts + 1.0) / (number + STATES), reward)
            chosen = bm.choose(jax.random.fold_in(key, i * runs + j), belief, objective)
            eye = np.eye(ACTIONS)
            policies = [
                eye[optimum(counts / number, reward)],
                eye[mean],
                ascend(rng, counts + 1.0, reward, mean, steps, batch),
                eye[chosen.policy],
            ]
            drawn = draw_rows(rng, counts + 1.0, num_eval)
            posterior[i, j] = [values(drawn, reward, policy).mean() for policy in policies]
            truth[i, j] = [values(rows, reward, policy).mean() for policy in policies]
    dims = ("visits", "run", "method")
    coordinates = {"visits": list(visits), "run": np.arange(runs), "method": list(METHODS)}
    return xr.Dataset({"posterior": (dims, posterior), "truth": (dims, truth)}, coordinates)


BETTER = (0.0, float("inf"))
PAIRS = (("ascent", "frequencies"), ("ascent", "mean"), ("choose", "mean"), ("choose", "ascent"))
"""Methods that are compared."""


def rows(result: xr.Dataset) -> list[Row]:
    """Differences in posterior value, relative to the spread of worlds; and in the truth, for orientation.

    Args:
        result: of `run`.
    """
    table = []
    for number in result["visits"].values:
        here = result.sel(visits=number)
        for kind, verdict in (("posterior", True), ("truth", False)):
            each = here[kind]
            for name, other in PAIRS:
                # By a mapping: `method=` is an argument of `sel` itself.
                gain = (each.sel({"method": name}) - each.sel({"method": other})).values
                # The paper says that its policies have the higher posterior value; of ours it says nothing.
                band = BETTER if verdict and name == "ascent" else None
                table.append(mean_row(f"m = {number}, {kind} value: {name} less {other}", None, gain, band))
    return table


def figure(result: xr.Dataset) -> "Figure":
    """Two panels: posterior and true value over the visits, less those of the posterior mean's optimum.

    Args:
        result: of `run`.
    """
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(11.0, 4.2), layout="constrained")
    for axes, kind in zip(drawing.subplots(1, 2), ("posterior", "truth"), strict=True):
        for name, label in METHODS.items():
            gain = result[kind].sel({"method": name}) - result[kind].sel({"method": "mean"})
            error = 1.96 * gain.std("run") / gain.sizes["run"] ** 0.5
            axes.errorbar(result["visits"], gain.mean("run"), error, label=label)
        axes.set_xlabel("visits of every pair")
        axes.set_title({"posterior": "value under the posterior", "truth": "value in the truth"}[kind])
    drawing.axes[0].set_ylabel("less that of the posterior mean's optimum")
    drawing.axes[0].legend(fontsize=8)
    return drawing


REPRODUCTION = Reproduction(
    "[VALDETTARO24] figures 3 and 4",
    run,
    rows,
    figure,
    {"runs": 6, "visits": (1, 10), "num_eval": 4000},
    {"quick": 120, "full": 20_000},
)
