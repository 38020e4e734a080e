"""Off-policy estimators beside posteriors on FrozenLake: `python -m benchmarks.off_policy_table [--logs 100]`.

A log of episodes of the 4x4 lake, slippery, discount .95; the behaviour takes an optimal action or, half of the time
(`--uniform`), any. The policy to judge is greedy in the posterior mean of the same log under a Dirichlet prior of 1/16
on each of 16 outcomes, so its value is likely to be claimed too high. All 90 % intervals are of that policy's value
from the first cell: percentiles over 500 resamples of episodes, or over 500 posterior draws. Printed over logs: the
share of intervals that hold the true value, mean error, root mean squared error and mean width; the mean effective
sample size (where some weight is not zero); and in how many logs there was no estimate (which counts as no cover, and
is in no mean).

In "posterior, neighbours" the prior knows that a step reaches an adjacent cell; the policy is the same. Rewards are
known to the posteriors and to nobody else. "behaviour estimated": Dirichlet(1) on the actions of each cell, a draw of
it with each resample.
"""

import argparse
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

import bayes_mdp as bm
from benchmarks.validation import off_policy as ope

MAP = "SFFFFHFHFFFHHFFG"
SIDE, STATES, ACTIONS = 4, 16, 4
HOLES, GOAL = np.array([c == "H" for c in MAP]), MAP.index("G")
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
DISCOUNT, LONGEST, RESAMPLES, DRAWS, LEVEL = 0.95, 100, 500, 500, 0.9
OBJECTIVE = bm.Discounted(DISCOUNT)
START = np.eye(STATES)[0]


class Found(NamedTuple):
    """What one method says of one log."""

    value: float
    low: float
    high: float
    effective_sample_size: float = float("nan")


def lake() -> tuple[Float[np.ndarray, "S A O"], Float[np.ndarray, "S A O"]]:
    """Probabilities and rewards by outcome; reaching the goal is the end, outcome 16; who is in a hole stays there."""
    rows = np.zeros((STATES, ACTIONS, STATES + 1))
    for state, action in np.ndindex(STATES, ACTIONS):
        if HOLES[state] or state == GOAL:
            rows[state, action, state] = 1.0
            continue
        for way in (action - 1, action, action + 1):
            down, right = MOVES[way % ACTIONS]
            row, column = np.clip([state // SIDE + down, state % SIDE + right], 0, SIDE - 1)
            after = row * SIDE + column
            rows[state, action, STATES if after == GOAL else after] += 1 / 3
    reward = np.zeros_like(rows)
    reward[~HOLES, :, STATES] = 1.0
    return rows, reward


ROWS, REWARD = lake()


def play(rng: np.random.Generator, behaviour: Float[np.ndarray, "S A"], number: int) -> dict[str, np.ndarray]:
    """Episodes until the goal, a hole, or 100 steps, as arguments of `episodes_of`."""
    states, actions = np.zeros((2, number, LONGEST), int)
    rewards, mask = np.zeros((number, LONGEST)), np.zeros((number, LONGEST), bool)
    state, alive = np.zeros(number, int), np.ones(number, bool)
    for t in range(LONGEST):
        here = np.where(alive, state, 0)  # what is drawn after an end is padding
        action = _pick(rng, behaviour[here])
        after = _pick(rng, ROWS[here, action])
        mask[:, t], states[:, t], actions[:, t] = alive, here, action
        rewards[:, t] = alive & (after == STATES)
        state = np.where(alive, after, state)
        alive &= (state != STATES) & ~np.append(HOLES, False)[state]
        if not alive.any():
            break
    steps = int(mask.sum(1).max())
    cut = {"states": states, "actions": actions, "rewards": rewards, "mask": mask}
    return {name: x[:, :steps] for name, x in cut.items()} | {"reached": np.where(state == STATES, ope.ENDED, state)}


def _pick(rng: np.random.Generator, probs: Float[np.ndarray, "N K"]) -> np.ndarray:
    """An index for each row."""
    return (rng.random(len(probs))[:, None] >= np.cumsum(probs, 1)[:, :-1]).sum(1)


def spaces() -> dict[str, bm.StateActionSpace]:
    """What is known: nothing but that holes hold, or adjacent cells too. The goal is no state that one is in."""
    anywhere = np.ones((STATES, ACTIONS, STATES + 1), bool)
    anywhere[..., GOAL] = False
    row, column = np.divmod(np.arange(STATES), SIDE)
    near = abs(row[:, None] - row) + abs(column[:, None] - column) <= 1
    near = np.concatenate([near & (np.arange(STATES) != GOAL), near[:, [GOAL]]], 1)
    neighbours = np.repeat(near[:, None], ACTIONS, 1)
    stuck = HOLES | (np.arange(STATES) == GOAL)
    for mask in (anywhere, neighbours):
        mask[stuck] = (np.arange(STATES + 1) == np.arange(STATES)[:, None])[stuck][:, None]
    return {
        name: bm.StateActionSpace(STATES, ACTIONS, ends=True, support=mask)
        for name, mask in (("1/16", anywhere), ("neighbours", neighbours))
    }


SPACES = spaces()
PRIORS = {
    "1/16": bm.models.known_rewards(REWARD, 1 / STATES),
    "neighbours": bm.models.known_rewards(REWARD, 0.5),
}


@jax.jit
def true_values(mdp: bm.MDP, policy: Int[Array, " S"]) -> Float[Array, " S"]:
    """Of every state, compiled once."""
    return bm.evaluate(mdp, policy, OBJECTIVE).v


def posterior_of(name: str, log: dict[str, np.ndarray]) -> bm.inference.ConjugatePosterior:
    """`infer`, from counts."""
    after = np.full(log["mask"].shape, ope.ENDED)
    after[:, :-1] = log["states"][:, 1:]
    after[np.arange(len(after)), log["mask"].sum(1) - 1] = log["reached"]
    state, action, after = (x[log["mask"]] for x in (log["states"], log["actions"], after))
    counts = np.zeros(ROWS.shape)
    np.add.at(counts, (state, action, np.where(after == ope.ENDED, STATES, after)), 1.0)
    nothing = np.zeros(ROWS.shape)
    data = bm.Counts(counts, nothing, nothing, nothing)
    return bm.infer(jax.random.key(0), PRIORS[name], data, space=SPACES[name], method="exact")


def judge(
    rng: np.random.Generator, behaviour: Float[np.ndarray, "S A"], number: int, mdp: bm.MDP
) -> tuple[float, dict[str, Found]]:
    """The true value of the greedy policy of one log, and what every method says of it."""
    log = play(rng, behaviour, number)
    posteriors = {name: posterior_of(name, log) for name in SPACES}
    chosen = bm.greedy(posteriors["1/16"], OBJECTIVE)
    policy = np.eye(ACTIONS)[chosen]
    truth = float(true_values(mdp, chosen)[0])
    found = {}
    for name, posterior in posteriors.items():
        key = jax.random.key(int(rng.integers(2**31)))
        value = bm.policy_value(key, posterior, chosen, OBJECTIVE, initial=START, num_draws=DRAWS)
        low, high = np.quantile(value.draws, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
        found[f"posterior, {name}"] = Found(value.mean, low, high)
    episodes = ope.episodes_of(**log, behaviour=behaviour, policy=policy)
    resamples = ope.bootstrap(rng, episodes, RESAMPLES)
    estimators: dict[str, ope.Estimator] = {
        "IS": ope.importance_sampling,
        "WIS": ope.weighted_importance_sampling,
        "PDIS": ope.per_decision,
        "PDWIS": ope.per_decision_weighted,
        "DR": partial(ope.doubly_robust, policy=policy),
        "FQE": partial(ope.fitted_q_evaluation, policy=policy),
    }
    estimators = {name: partial(estimator, discount=DISCOUNT) for name, estimator in estimators.items()}
    for name, estimator in estimators.items():
        found[name] = read(estimator(episodes, resamples=resamples))
    alpha = ope.behaviour_posterior(episodes, STATES, ACTIONS)
    for name in ("WIS", "PDIS", "DR"):
        estimate = ope.with_unknown_behaviour(estimators[name], episodes, alpha, rng)
        found[f"{name}, behaviour estimated"] = read(estimate)
    return truth, found


def read(estimate: ope.Estimate) -> Found:
    """An estimate with its interval; NaN where there is none."""
    if not np.isfinite(estimate.value):
        return Found(*[float("nan")] * 4)
    return Found(estimate.value, *estimate.interval(LEVEL), estimate.effective_sample_size)


def describe(truths: list[float], found: list[dict[str, Found]]) -> str:
    """The table of one size."""
    truth = np.array(truths)
    lines = [f"{'':26} {'coverage':>8} {'bias':>8} {'RMSE':>8} {'width':>8} {'ESS':>8} {'none':>5}"]
    for name in found[0]:
        value, low, high, size = np.array([one[name] for one in found]).T
        defined = np.isfinite(value)
        covered = ((low <= truth) & (truth <= high)).mean()
        if not defined.any():
            lines.append(f"{name:26} {'no estimate of any log':>8}")
            continue
        error, width = (value - truth)[defined], (high - low)[defined]
        weighed = size[np.isfinite(size)]
        shown = f"{weighed.mean():8.1f}" if len(weighed) else f"{'-':>8}"
        numbers = f"{covered:8.2f} {error.mean():+8.3f} {np.sqrt((error**2).mean()):8.3f} {width.mean():8.3f}"
        lines.append(f"{name:26} {numbers} {shown} {(~defined).sum():5}")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=100)
    parser.add_argument("--episodes", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--uniform", type=float, default=0.5, help="share of steps in which the behaviour is uniform")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    mdp = bm.MDP(ROWS[..., :STATES], (ROWS * REWARD).sum(-1), end_probs=ROWS[..., STATES])
    best = bm.solve(mdp, OBJECTIVE)
    uniform = np.full((STATES, ACTIONS), 1 / ACTIONS)
    behaviour = arguments.uniform * uniform + (1 - arguments.uniform) * np.eye(ACTIONS)[np.asarray(best.policy)]
    played = float(np.asarray(bm.evaluate(mdp, behaviour, OBJECTIVE).v)[0])
    print(f"value of the optimum {float(best.v[0]):.3f}, of the behaviour {played:.3f}")
    for number in arguments.episodes:
        rng = np.random.default_rng([arguments.seed, number])
        truths, found = zip(*(judge(rng, behaviour, number, mdp) for _ in range(arguments.logs)), strict=True)
        print(
            f"\n{arguments.logs} logs of {number} episodes; the greedy policy is worth {np.mean(truths):.3f} on average"
        )
        print(describe(list(truths), list(found)), flush=True)


if __name__ == "__main__":
    main()
