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
from bayes_mdp.experiments.resume import Cells, ComputeCell, Values
from bayes_mdp.numerics.numba_function import compile_loop
from bayes_mdp.random.host_generator import host_generator
from reproductions.reproduction import Reproduction, Row, mean_row
from reproductions.valdettaro.uniform_lanes import lanes_of, multiply_uniform

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATES, ACTIONS, DISCOUNT = 5, 5, 0.999
METHODS = {
    "frequencies": "best in the observed frequencies",
    "mean": "best in the posterior mean",
    "ascent": "posterior-mean ascent (the paper's)",
    "likeliest": "the likeliest actions of the ascent's policy",
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
    return _by_logits(_derivative(np.moveaxis(rows, 0, -1).copy(), reward, policy), policy)


def _by_logits(by_action: Float[np.ndarray, "S A"], policy: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
    """From the derivative by the probabilities to that by the logits."""
    return policy * (by_action - (policy * by_action).sum(1, keepdims=True))


@compile_loop
def _derivative(
    rows: Float[np.ndarray, "S A S N"], reward: Float[np.ndarray, " S"], policy: Float[np.ndarray, "S A"]
) -> Float[np.ndarray, "S A"]:
    """What the probability of each action is worth, in the mean over MDPs: visits(s) q(s, a) (policy gradient).

    Inner loops are over the MDPs, which lie side by side: the compiler turns them into vector instructions.
    """
    number = rows.shape[-1]
    # I - discount * chain, whose rows sum to .001 and whose other entries are negative: elimination needs no pivots.
    system, value = np.empty((STATES, STATES, number)), np.zeros((STATES, number))
    visits, mixed = np.full((STATES, number), 1 / STATES), np.empty(number)
    for s in range(STATES):
        for t in range(STATES):
            mixed[:] = 0.0
            for a in range(ACTIONS):
                for n in range(number):
                    mixed[n] += policy[s, a] * rows[s, a, t, n]
            same = 1.0 if s == t else 0.0
            for n in range(number):
                system[s, t, n] = same - DISCOUNT * mixed[n]
                value[s, n] += mixed[n] * reward[t]
    # One elimination for both: the value from the reward of a step, discounted visits from a uniform start.
    _eliminate(system)
    _solve(system, value)
    _solve_transposed(system, visits)
    by_action = np.zeros((STATES, ACTIONS))
    for s in range(STATES):
        for a in range(ACTIONS):
            q = mixed
            q[:] = 0.0
            for t in range(STATES):
                for n in range(number):
                    q[n] += rows[s, a, t, n] * (reward[t] + DISCOUNT * value[t, n])
            for n in range(number):
                by_action[s, a] += visits[s, n] * q[n]
    return by_action / number


@compile_loop
def _eliminate(system: Float[np.ndarray, "S S N"]) -> None:
    """system = L U in place, L below the diagonal, in every MDP."""
    for k in range(STATES):
        for i in range(k + 1, STATES):
            for n in range(system.shape[-1]):
                system[i, k, n] /= system[k, k, n]
            for j in range(k + 1, STATES):
                for n in range(system.shape[-1]):
                    system[i, j, n] -= system[i, k, n] * system[k, j, n]


@compile_loop
def _solve(system: Float[np.ndarray, "S S N"], right: Float[np.ndarray, "S N"]) -> None:
    """Solve L U x = right in place."""
    for i in range(STATES):
        for j in range(i):
            for n in range(right.shape[-1]):
                right[i, n] -= system[i, j, n] * right[j, n]
    for i in range(STATES - 1, -1, -1):
        for j in range(i + 1, STATES):
            for n in range(right.shape[-1]):
                right[i, n] -= system[i, j, n] * right[j, n]
        for n in range(right.shape[-1]):
            right[i, n] /= system[i, i, n]


@compile_loop
def _solve_transposed(system: Float[np.ndarray, "S S N"], right: Float[np.ndarray, "S N"]) -> None:
    """Solve U' L' x = right in place."""
    for i in range(STATES):
        for j in range(i):
            for n in range(right.shape[-1]):
                right[i, n] -= system[j, i, n] * right[j, n]
        for n in range(right.shape[-1]):
            right[i, n] /= system[i, i, n]
    for i in range(STATES - 1, -1, -1):
        for j in range(i + 1, STATES):
            for n in range(right.shape[-1]):
                right[i, n] -= system[j, i, n] * right[j, n]


def ascend(
    rng: np.random.Generator,
    concentration: Int[np.ndarray, "S A S"],
    reward: Float[np.ndarray, " S"],
    first: Int[np.ndarray, " S"],
    steps: int,
    batch: int,
) -> Float[np.ndarray, "S A"]:
    """The paper's policy: stochastic gradient ascent of the posterior mean of the value, new draws in every step.

    Args:
        rng: draws the MDPs.
        concentration: of the posterior, at most about 20: products of uniform variables must not underflow.
        reward: of the next state.
        first: the actions that the first policy prefers.
        steps, batch: how many steps, and draws in each.
    """
    policy = np.full((STATES, ACTIONS), SOFTNESS / (ACTIONS - 1))
    policy[np.arange(STATES), first] = 1 - SOFTNESS
    logits, drawn = np.log(policy), np.empty((STATES, ACTIONS, STATES, batch))
    length = int(concentration.sum())
    lanes = lanes_of(rng, batch, length)
    for _ in range(steps):
        # A gamma variable of a whole number is a sum of exponential ones: one logarithm for all of them.
        multiply_uniform(lanes, concentration, drawn)
        np.log(drawn, out=drawn)
        drawn /= drawn.sum(2, keepdims=True)
        logits = logits + LEARNING_RATE * _by_logits(_derivative(drawn, reward, policy), policy)
        policy = softmax(logits)
    rng.bit_generator.advance(steps * batch * length)  # pyright: ignore[reportAttributeAccessIssue] - of PCG64
    return policy


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
    *,
    key: PRNGKeyArray,
    runs: int = 250,
    visits: Sequence[int] = tuple(range(1, 11)),
    steps: int = 1000,
    batch: int = 256,
    num_eval: int = 10_000,
    cells: Cells | None = None,
) -> xr.Dataset:
    """Values of the policies under the posterior, and in the truth.

    Args:
        key: of everything.
        runs: worlds for each number of visits; each has a key of its own, so that more runs begin with the same ones.
        visits: of every pair.
        steps, batch: of the ascent.
        num_eval: draws by which policies are judged.
        cells: keeps every run, of all numbers of visits.
    """
    reward = host_generator(key).normal(size=STATES)

    def played(number: int) -> Values:
        here = jax.random.fold_in(key, number)
        worlds = [_world(jax.random.fold_in(here, m), reward, m, steps, batch, num_eval) for m in visits]
        names = ("posterior", "truth", "softness")
        return dict(zip(names, map(np.stack, zip(*worlds, strict=True)), strict=True))

    computes: dict[str, ComputeCell] = {f"run-{j}": lambda _, j=j: played(j) for j in range(runs)}
    all_runs = (cells or Cells()).get_all(computes)
    by_run = {name: np.stack([each[name] for each in all_runs.values()], 1) for name in ("posterior", "truth")}
    softness = np.stack([each["softness"] for each in all_runs.values()], 1)
    dims = ("visits", "run", "method")
    coordinates = {"visits": list(visits), "run": np.arange(runs), "method": list(METHODS)}
    variables = {name: (dims, values) for name, values in by_run.items()}
    return xr.Dataset({**variables, "softness": (dims[:2], softness)}, coordinates)


def _world(
    key: PRNGKeyArray, reward: Float[np.ndarray, " S"], number: int, steps: int, batch: int, num_eval: int
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"], float]:
    """One world: values of the methods under the posterior and in the truth, and how soft the ascent's policy is."""
    rng = host_generator(key)
    rows = draw_rows(rng, np.ones((STATES, ACTIONS, STATES)), 1)
    counts = rng.multinomial(number, rows[0])
    mean = optimum((counts + 1.0) / (number + STATES), reward)
    # The posterior of `infer` is that of these counts: a flat Dirichlet prior of every row, rewards known.
    prior = bm.models.known_rewards(np.broadcast_to(reward, (STATES, ACTIONS, STATES)), 1.0)
    seen = np.repeat(np.indices(counts.shape).reshape(3, -1), counts.ravel(), axis=1)
    data = bm.Transitions(seen[0], seen[1], None, seen[2])
    belief = bm.infer(key, prior, data, space=bm.StateActionSpace(STATES, ACTIONS))
    chosen = bm.choose(jax.random.fold_in(key, 1), belief, bm.Discounted(DISCOUNT))
    ascent, eye = ascend(rng, counts + 1, reward, mean, steps, batch), np.eye(ACTIONS)
    policies = {
        "frequencies": eye[optimum(counts / number, reward)],
        "mean": eye[mean],
        "ascent": ascent,
        "likeliest": eye[ascent.argmax(-1)],
        "choose": eye[chosen.policy],
    }
    drawn = draw_rows(rng, counts + 1.0, num_eval)
    # Methods often end at the same policy, which is judged once.
    distinct, method = np.unique(np.stack([policies[m] for m in METHODS]), axis=0, return_inverse=True)
    posterior, truth = (np.array([values(x, reward, p).mean() for p in distinct])[method] for x in (drawn, rows))
    return posterior, truth, float(1 - ascent.max(-1).mean())


BETTER = (0.0, float("inf"))
PAIRS = (
    ("ascent", "frequencies"),
    ("ascent", "mean"),
    ("likeliest", "ascent"),
    ("likeliest", "mean"),
    ("choose", "mean"),
    ("choose", "ascent"),
    ("choose", "likeliest"),
)
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
    {"runs": 50},
    {"quick": 500, "full": 2500},
    one_thread=True,
)
