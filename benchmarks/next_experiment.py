"""One step of lookahead as a decision rule, as a share of the Bayes optimum: `python benchmarks/next_experiment.py`.

The rule values an action by the data that it brings, as `next_experiment` values a pair: Q(s, a) = sum over outcomes of
predictive probability x (reward + V* of the mean MDP after the outcome, from the next state on). In a bandit that is
the mean of the arm + the best mean x steps left + EVSI of one pull for the steps left (knowledge gradient; Frazier,
Powell and Dayanik 2008). Values of an episode are exact, over all hyper-states (state and counts); PSRL, which plans
with a new draw before every step, is simulated (+- 1.0 at most). Where actions tie the first is taken: the unknown arm.

Optimum, and shares of it in per cent:

    problem                            H    optimum  lookahead  mean MDP     PSRL
    two arms, Beta(1, 1) each          2   1.083333     100.00    100.00     95.5
    two arms, Beta(1, 1) each          5   2.888889     100.00     99.71     94.8
    two arms, Beta(1, 1) each         10   6.021786      99.68     99.47     95.3
    two arms, Beta(1, 1) each         20  12.431265      99.75     99.19     96.6
    two arms, Beta(1, 1) each         50  31.996712      99.78     98.71     98.1
    two arms, Beta(1, 1) and .5        2   1.083333     100.00    100.00     94.1
    two arms, Beta(1, 1) and .5        5   2.850000     100.00    100.00     93.5
    two arms, Beta(1, 1) and .5       10   5.823719     100.00    100.00     95.1
    two arms, Beta(1, 1) and .5       20  11.912179      98.92     98.92     96.2
    two arms, Beta(1, 1) and .5       50  30.349819      97.79     97.79     97.6
    river of 5 states                  6   0.300000     100.00    100.00     98.0
    river of 5 states                  8   0.400000     100.00    100.00     93.1
    river of 5 states                  9   0.450000      98.20     98.20     91.8
    river of 5 states                 10   0.520286     100.00    100.00     86.4
    mines, work .4                     8   1.666667      99.00     96.00     94.0
    mines, work .4                    12   2.629167      98.10     91.28     92.4
    mines, work .4                    16   3.612751      95.52     88.58     91.7
    mines, work .4                    20   4.632599      94.63     86.34     91.6
    mines, work .2, staying there      8   1.731944      98.16     98.16     95.5
    mines, work .2, staying there     12   2.853349      94.74     95.78     92.5
    mines, work .2, staying there     16   3.937178      92.52     94.86     91.7
    mines, work .2, staying there     20   4.997271      91.41     95.00     92.0

One step of lookahead sees what one observation changes. It loses where several are needed before the plan changes, or
where the place to observe is some steps away: in the mines where one stays it is behind planning in the mean MDP.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

import bayes_mdp as bm
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.mdp import StateActionSpace

AT_ONCE = 2**16  # hyper-states that are planned together
EPISODES = 20_000  # of PSRL
HOME, WORKSHOP, MINE, SILVER, GOLD = range(5)


class CountedMDP(NamedTuple):
    """An MDP whose outcomes are counted, in plain numpy.

    Args:
        prior: Float64[S A K], concentrations of the outcomes; 0: it is none.
        learns: Bool[S A], false: the row is known, `prior` over its sum.
        reward: Float64[S A K], of each outcome.
        next_state: Int[S A K], of each outcome.
    """

    prior: Float[np.ndarray, "S A K"]
    learns: Bool[np.ndarray, "S A"]
    reward: Float[np.ndarray, "S A K"]
    next_state: Int[np.ndarray, "S A K"]


def two_arms(known: bool = False) -> CountedMDP:
    """Two Bernoulli arms, Beta(1, 1) each; with `known` the second pays with probability .5, for certain."""
    paid = np.zeros((1, 2, 2)) + np.array([0.0, 1.0])
    return CountedMDP(np.ones((1, 2, 2)), np.array([[True, not known]]), paid, np.zeros((1, 2, 2), int))


def two_arms_posterior(known: bool = False) -> ConjugatePosterior:
    """The same as the library's posterior."""
    rows, space = dirichlet_rows(np.ones((2, 1)), (1, 2, 1)), StateActionSpace(1, 2)
    arms = BetaBelief(np.ones(1 if known else 2), np.ones(1 if known else 2))
    cell = np.array([[0, -1]]) if known else None
    return conjugate_posterior(rows, reward_cells(arms, (1, 2), cell=cell, known=np.full((1, 2), 0.5)), space)


def river(n_states: int = 5, near: float = 0.05) -> CountedMDP:
    """Right leads on, nowhere or back, Dirichlet(1, 1, 1), and pays 1 in the last state; left is known.

    In the first state, where left pays `near`, right cannot lead back; in the last it cannot lead on.
    """
    prior, reward = np.zeros((n_states, 2, 3)), np.zeros((n_states, 2, 3))
    state = np.arange(n_states)
    next_state = np.clip(state[:, None, None] + np.array([-1, 0, 1]), 0, n_states - 1).repeat(2, axis=1)
    prior[:, 0, 0], prior[:, 1] = 1.0, 1.0
    prior[0, 1, 0] = prior[-1, 1, 2] = 0.0
    reward[0, 0], reward[-1, 1] = near, 1.0
    return CountedMDP(prior, np.stack([state < 0, state >= 0], -1), reward, next_state)


def mines(work: float = 0.4, stay: bool = False) -> CountedMDP:
    """From home to a workshop or to a mine. In the workshop one works for `work`, or digs; the mine has two shafts.

    Each of the three places to dig is found out by digging, Beta(1, 1): silver or gold, which is sold for 1 on the way
    home, or nothing. After nothing, and after work, one is at home; with `stay` where one was.
    """
    prior, reward = np.zeros((5, 2, 2)), np.zeros((5, 2, 2))
    next_state, learns = np.zeros((5, 2, 2), int), np.zeros((5, 2), bool)
    prior[:, :, 0] = 1.0
    next_state[HOME] = [[WORKSHOP] * 2, [MINE] * 2]
    next_state[WORKSHOP, 0], reward[WORKSHOP, 0] = (WORKSHOP if stay else HOME), work
    for place, shaft, found in ((WORKSHOP, 1, SILVER), (MINE, 0, GOLD), (MINE, 1, GOLD)):
        prior[place, shaft], learns[place, shaft] = 1.0, True
        next_state[place, shaft] = [place if stay else HOME, found]
    reward[[SILVER, GOLD]] = 1.0
    return CountedMDP(prior, learns, reward, next_state)


def as_posterior(problem: CountedMDP) -> ConjugatePosterior:
    """The same as the library's posterior, where rewards do not depend on the outcome."""
    n_states, n_actions, _ = problem.prior.shape
    shape = (n_states, n_actions, n_states)
    concentration, known = np.zeros(shape), np.zeros(shape)
    for s, a, k in np.argwhere(problem.prior > 0):
        where = s, a, problem.next_state[s, a, k]
        (concentration if problem.learns[s, a] else known)[where] = problem.prior[s, a, k]
    row = np.where(problem.learns, np.cumsum(problem.learns).reshape(problem.learns.shape) - 1, -1)
    rows = dirichlet_rows(concentration[problem.learns], shape, row=row, known=known)
    return conjugate_posterior(rows, known_rewards(problem.reward[..., 0]), StateActionSpace(n_states, n_actions))


class Layer(NamedTuple):
    """The hyper-states of a step.

    Args:
        state: Int[N].
        counts: Int[N S A K].
        child: Int[N A K], the hyper-state of the next step after each outcome.
    """

    state: Int[np.ndarray, " N"]
    counts: Int[np.ndarray, "N S A K"]
    child: Int[np.ndarray, "N A K"]


def layers(problem: CountedMDP, horizon: int, start: int = 0) -> list[Layer]:
    """All hyper-states of an episode, step by step; the last has no children."""
    shape = problem.prior.shape
    state, counts = np.array([start]), np.zeros((1, *shape), np.int8)
    found = []
    for _ in range(horizon):
        child_state, child_counts = [], []
        number = np.arange(len(state))
        for a, k in np.ndindex(shape[1:]):
            after = counts.copy()
            after[number, state, a, k] += problem.learns[state, a]
            child_state.append(problem.next_state[state, a, k])
            child_counts.append(after)
        # A hyper-state is its state and its counts: equal ones are one.
        flat = np.concatenate(child_counts).reshape(-1, counts[0].size)
        codes = np.ascontiguousarray(np.column_stack([np.concatenate(child_state).astype(np.int8), flat]))
        _, first, inverse = np.unique(codes.view(f"V{codes.shape[1]}"), return_index=True, return_inverse=True)
        child = inverse.reshape(*shape[1:], len(state)).transpose(2, 0, 1)
        found.append(Layer(state, counts, child))
        state, counts = codes[first, 0].astype(int), codes[first, 1:].reshape(-1, *shape)
    return [*found, Layer(state, counts, np.zeros((len(state), *shape[1:]), int))]


def concentrations(problem: CountedMDP, counts: Int[np.ndarray, "N S A K"]) -> Float[np.ndarray, "N S A K"]:
    """After data; zero of impossible outcomes, which the enumeration has among the children too."""
    return problem.prior + counts * (problem.prior > 0)


def plan(problem: CountedMDP, rows: Float[np.ndarray, "N S A K"], left: int) -> Float[np.ndarray, "N S A"]:
    """The value of each pair in MDPs with these rows, with `left` steps to go."""
    q = np.zeros(rows.shape[:-1])
    for _ in range(left):
        q = (rows * (problem.reward + q.max(-1)[:, problem.next_state])).sum(-1)
    return q


def values(problem: CountedMDP, horizon: int, start: int = 0) -> dict[str, float]:
    """The value of an episode: the "optimum", of one step of "lookahead", of planning in the "mean" MDP, learning on.

    "hyper-states" is their number.
    """
    every = layers(problem, horizon, start)
    rules = ("lookahead", "mean")
    ahead = {name: np.zeros(len(every[-1].state)) for name in ("optimum", *rules)}
    planned = np.zeros(len(every[-1].state))  # V* of the mean MDP, from here on
    for step in reversed(range(horizon)):
        layer = every[step]
        number = np.arange(len(layer.state))
        weight = concentrations(problem, layer.counts)
        rows = weight / weight.sum(-1, keepdims=True)
        parts = [plan(problem, rows[at : at + AT_ONCE], horizon - step) for at in range(0, len(rows), AT_ONCE)]
        in_mean = np.concatenate(parts)[number, layer.state]
        probs, reward = rows[number, layer.state], problem.reward[layer.state]
        # The rule: what planning will be worth after each outcome, weighted by its probability.
        lookahead = (probs * (reward + planned[layer.child])).sum(-1)
        after = {name: (probs * (reward + value[layer.child])).sum(-1) for name, value in ahead.items()}
        chosen = dict(zip(rules, (lookahead.argmax(-1), in_mean.argmax(-1)), strict=True))
        ahead = {name: after[name][number, chosen[name]] for name in rules} | {"optimum": after["optimum"].max(-1)}
        planned = in_mean.max(-1)
    found = {name: float(value[0]) for name, value in ahead.items()}
    return {**found, "hyper-states": float(sum(len(layer.state) for layer in every[:-1]))}


def psrl(problem: CountedMDP, horizon: int, seed: int = 0, start: int = 0) -> tuple[float, float]:
    """The mean reward of an episode of PSRL that plans with a new draw before every step, and its standard error."""
    rng, number = np.random.default_rng(seed), np.arange(EPISODES)
    known = problem.prior / problem.prior.sum(-1, keepdims=True)

    def draw(counts: Int[np.ndarray, "N S A K"]) -> Float[np.ndarray, "N S A K"]:
        gammas = rng.standard_gamma(concentrations(problem, counts))
        return np.where(problem.learns[..., None], gammas / gammas.sum(-1, keepdims=True), known)

    counts, state, total = np.zeros((EPISODES, *problem.prior.shape), int), np.full(EPISODES, start), np.zeros(EPISODES)
    truth = draw(counts)
    for step in range(horizon):
        action = plan(problem, draw(counts), horizon - step)[number, state].argmax(-1)
        below = truth[number, state, action].cumsum(-1) < rng.random((EPISODES, 1))
        outcome = np.minimum(below.sum(-1), problem.prior.shape[-1] - 1)
        counts[number, state, action, outcome] += problem.learns[state, action]
        total += problem.reward[state, action, outcome]
        state = problem.next_state[state, action, outcome]
    return float(total.mean()), float(total.std(ddof=1) / EPISODES**0.5)


def show(name: str, horizon: int, problem: CountedMDP, posterior: ConjugatePosterior) -> None:
    """One line: shares of the optimum, which `bayes_optimal` must confirm."""
    found, start = values(problem, horizon), np.eye(posterior.space.n_states)[0]
    best = bm.decisions.bayes_optimal(posterior, objective=bm.Episodic(horizon), initial=start)
    assert abs(best.value - found["optimum"]) < 1e-10 * best.value
    shares = " ".join(f"{100 * best.share(found[rule]):9.2f}" for rule in ("lookahead", "mean"))
    mean, error = psrl(problem, horizon)
    played = f"{100 * best.share(mean):8.1f} +- {196 * best.share(error):.1f}"
    print(f"{name:32s} {horizon:3d} {best.value:10.6f}  {shares} {played}", flush=True)


if __name__ == "__main__":
    print(f"{'problem':32s} {'H':>3s} {'optimum':>10s}  {'lookahead':>9s} {'mean MDP':>9s} {'PSRL':>8s}")
    for certain in (False, True):
        for length in (2, 5, 10, 20, 50):
            label = f"two arms, Beta(1, 1) {'and .5' if certain else 'each'}"
            show(label, length, two_arms(certain), two_arms_posterior(certain))
    for length in (6, 8, 9, 10):
        show("river of 5 states", length, river(), as_posterior(river()))
    for stay in (False, True):
        dug = mines(0.2 if stay else 0.4, stay)
        for length in (8, 12, 16, 20):
            show("mines, work .2, staying there" if stay else "mines, work .4", length, dug, as_posterior(dug))
