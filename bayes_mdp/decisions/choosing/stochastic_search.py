"""Stochastic policies for a criterion over common draws: a sequence of linear programs.

The value of a draw is a smooth function of the action probabilities; with each draw's own linearisation around the
present policy, a mean, a CVaR and a worst case are linear programs (Rockafellar and Uryasev 2000), also where the
criterion has a kink: at the best mixture two draws often tie. A trust region keeps the linearisation true. What comes
out is a local optimum.
"""

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from bayes_mdp.decisions.choosing.criteria import Percentile, TailMean
from bayes_mdp.decisions.choosing.deterministic_search import Found, Problem
from bayes_mdp.utils.memory import check_memory

MOST_STEPS = 80
LARGE_STEPS = 12  # in a large problem, where a step takes a pass over all draws
SMALLEST_REGION = 1e-8
SMALLEST_GAIN = 1e-10  # promised by a linear program, as a share of the largest value


def climb(problem: Problem, start: Found) -> Found:
    """The best stochastic policy that is found from `start`; `start` itself where nothing improves.

    Raises:
        ValueError: the derivatives of all draws do not fit in memory.
    """
    policies, draws = problem.policies, problem.draws
    if not isinstance(problem.criterion, (TailMean, Percentile)) or not policies.open_states.any():
        return start
    open_pairs = policies.open_states[..., None] & policies.free
    what = f"num_draws is {draws.num}"
    check_memory(what, 8.0 * 3 * draws.num * policies.fixed.size, "fewer draws, or stochastic=False, take less")
    policy, values, score = start.policy, start.values, start.score
    region, fresh, slopes = 0.5, True, np.zeros((0, 0))
    scale = max(float(np.abs(values).max()), 1e-300)
    steps = 0
    for _ in range(MOST_STEPS if draws.numbers <= 2**16 else LARGE_STEPS):
        if fresh:
            slopes = (draws.gradients(policy) * policies.mass[..., None])[:, open_pairs]
        now = _choice(problem, policy)
        wanted, promised = _program(problem, now[open_pairs], values, slopes, region)
        if promised - score <= SMALLEST_GAIN * scale or region < SMALLEST_REGION:
            break
        trial = now.copy()
        trial[open_pairs] = wanted
        trial = trial / np.maximum(trial.sum(-1, keepdims=True), 1e-300)
        new = policies.mixed(trial)
        found = draws.values(new[None])
        reached = problem.scores(found)[0]
        fresh = reached > score
        if fresh:
            # As good as promised: the linearisation holds further out.
            good = reached - score > 0.75 * (promised - score)
            policy, values, score = new, found[:, 0], float(reached)
            region, steps = min(1.0, 2 * region) if good else region, steps + 1
        else:
            region /= 4
    if not steps:
        return start
    how = f"{start.how}; then a mixture of actions, by {steps} linear programs (a local optimum)"
    return Found(policy, values, score, how, False)


def _choice(problem: Problem, policy: Float[np.ndarray, "*H S A"]) -> Float[np.ndarray, "*H S A"]:
    """The free part of a policy as probabilities of actions."""
    policies = problem.policies
    rest = np.where(policies.free, policy - policies.fixed, 0.0)
    mass = np.maximum(policies.mass, 1e-300)[..., None]
    return np.where(policies.mass[..., None] > 0, np.clip(rest / mass, 0.0, 1.0), 0.0)


def _program(
    problem: Problem,
    now: Float[np.ndarray, " n"],
    values: Float[np.ndarray, " W"],
    slopes: Float[np.ndarray, "W n"],
    region: float,
) -> tuple[Float[np.ndarray, " n"], float]:
    """The linear program around `now`: the new probabilities of the open pairs, and the score that it promises."""
    from scipy import sparse

    criterion, number, size = problem.criterion, len(values), len(now)
    assert isinstance(criterion, (TailMean, Percentile))
    gains = values - problem.best if isinstance(criterion, TailMean) and criterion.regret else values
    constant = gains - slopes @ now
    # One equation for each open state: its probabilities sum to one.
    groups = np.argwhere(problem.policies.open_states[..., None] & problem.policies.free)[:, :-1]
    state = np.unique(groups, axis=0, return_inverse=True)[1].reshape(-1)
    number_open = int(state.max()) + 1
    sums = sparse.csr_array((np.ones(size), (state, np.arange(size))), shape=(number_open, size))
    bounds = np.stack([np.maximum(now - region, 0.0), np.minimum(now + region, 1.0)], -1)
    if isinstance(criterion, TailMean):
        tail = 1.0 - criterion.weight
        share = max(criterion.level * number, 1.0)
        mean = criterion.weight * slopes.mean(0)
        if tail == 0.0:
            cost, rows, limit, extra = -mean, None, np.zeros(0), np.zeros((0, 2))
        else:
            # max weight * mean + tail * (y - sum z / share), z_w >= y - u_w(x), z >= 0; columns: x, y, z.
            cost = np.concatenate([-mean, [-tail], np.full(number, tail / share)])
            rows = sparse.hstack([-slopes, np.ones((number, 1)), -sparse.eye_array(number)], format="csr")
            limit = constant
            extra = np.concatenate([[[-np.inf, np.inf]], np.tile([0.0, np.inf], (number, 1))])
        offset = criterion.weight * constant.mean()
    else:
        # The draws above the percentile stay above: max y, y <= u_w(x) for these.
        above = np.argsort(-values, kind="stable")[: criterion.rank(number)]
        cost = np.concatenate([np.zeros(size), [-1.0]])
        rows = np.concatenate([-slopes[above], np.ones((len(above), 1))], 1)
        limit, extra, offset = constant[above], np.array([[-np.inf, np.inf]]), 0.0
    equations = sparse.hstack([sums, sparse.csr_array((number_open, len(extra)))], format="csr")
    found = linprog(
        cost,
        A_ub=rows,
        b_ub=None if rows is None else limit,
        A_eq=equations,
        b_eq=np.ones(number_open),
        bounds=np.concatenate([bounds, extra]),
        method="highs",
    )
    if not found.success:
        return now, -np.inf
    return np.clip(found.x[:size], 0.0, 1.0), float(offset - found.fun)
