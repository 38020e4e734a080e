"""A posterior of the size of ICU-Sepsis: `infer`, and four policies compared in 1,000 draws. CPU seconds.

`python -m benchmarks.icu_sepsis_size [dense|listed] [draws]`. 715 states, 25 actions of which 1 to 13 (2,238 pairs in
all) are admissible, 3 to 189 successors a pair (42 on average), a log of 5,000 episodes: the sizes of the problem, with
random rows. `dense`: any state may follow; `listed`: the successors are known. The first figure of a call is cold
(compilation included, the import of the package's modules not), the second of a call with another key.
"""

import resource
import sys
import time

import jax
import numpy as np

import bayes_mdp as bm

STATES, ACTIONS, PAIRS, MOST, EPISODES = 715, 25, 2238, 189, 5000
DEATH, SURVIVAL = STATES - 2, STATES - 1


def random_problem(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(legal [S A], successors [S A K], probabilities [S A K]): the last two states end the episode at once."""
    legal = np.zeros((STATES, ACTIONS), bool)
    legal[np.arange(STATES), rng.integers(ACTIONS, size=STATES)] = True
    many = np.flatnonzero(rng.random(DEATH) < 2 / 3)
    while legal.sum() < PAIRS:
        state = rng.choice(many)
        if legal[state].sum() < 13:
            legal[state, rng.integers(ACTIONS)] = True
    # The successors of all actions of a state overlap: together they are about a hundred.
    near = [rng.permutation(DEATH)[: max(MOST, int(rng.lognormal(np.log(92), 0.5)))] for _ in range(STATES)]
    successors, probs = np.full((STATES, ACTIONS, MOST), -1), np.zeros((STATES, ACTIONS, MOST))
    for state, action in np.argwhere(legal):
        if state >= DEATH:
            successors[state, action, 0], probs[state, action, 0] = STATES, 1.0
            continue
        number = int(np.clip(rng.lognormal(np.log(36), 0.6), 3, MOST))
        others = rng.choice(near[state], size=number - 2, replace=False)
        listed = np.unique(np.append(others, [state, DEATH, SURVIVAL]))[-MOST:]
        successors[state, action, : len(listed)] = listed
        weights = rng.dirichlet(np.ones(len(listed)))
        weights[-2:] = 0.05 * rng.dirichlet([1.0, 4.0])
        weights[listed == state] = 0.5
        probs[state, action, : len(listed)] = weights / weights.sum()
    return legal, successors, probs


def random_log(
    rng: np.random.Generator, legal: np.ndarray, successors: np.ndarray, probs: np.ndarray
) -> bm.Transitions:
    """Episodes of random admissible actions, all at once."""
    state, rows = rng.integers(DEATH, size=EPISODES), []
    while len(state):
        choice = (rng.random((len(state), ACTIONS)) * legal[state]).argmax(-1)
        cumulative = probs[state, choice].cumsum(-1)
        place = (cumulative < rng.random((len(state), 1)) * cumulative[:, -1:]).sum(-1)
        after = successors[state, choice, place]
        ended = after == STATES
        rows.append((state, choice, (state == SURVIVAL).astype(float), np.where(ended, state, after), ended))
        state = after[~ended]
    return bm.Transitions(*(np.concatenate(column) for column in zip(*rows, strict=True)))


def cpu(name: str, function) -> object:
    """The answer of the first call; a line with CPU seconds of two calls and peak memory."""
    answers, seconds = [], []
    for key in (0, 1):
        start = time.process_time()
        answers.append(jax.block_until_ready(function(jax.random.key(key))))
        seconds.append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"  {name:<28} {seconds[0]:8.2f} {seconds[1]:8.2f} CPU-s   peak {peak:5.2f} GB", flush=True)
    return answers[0]


def main(kind: str, draws: int) -> None:
    """Both calls for one kind of space."""
    for name in ("infer", "compare_policies"):
        getattr(bm, name)  # its modules are imported when it is first asked for
    rng = np.random.default_rng(0)
    legal, successors, probs = random_problem(rng)
    data = random_log(rng, legal, successors, probs)
    reward = np.zeros((STATES, ACTIONS))
    reward[SURVIVAL] = 1.0
    lists = {"successors": successors} if kind == "listed" else {}
    space = bm.StateActionSpace(STATES, ACTIONS, ends=True, legal=legal, **lists)
    prior = bm.models.known_rewards(reward, 0.05)
    print(f"{kind}: {len(data.state):,} transitions, {int(legal.sum())} admissible pairs")
    posterior = cpu("infer", lambda key: bm.infer(key, prior, data, space=space, method="exact"))
    uniform = legal / legal.sum(-1, keepdims=True)
    objective = bm.Discounted(0.99)
    greedy = bm.solve(posterior.mean_mdp(), objective).policy
    noisy = 0.9 * np.eye(ACTIONS)[np.asarray(greedy)] + 0.1 * uniform
    policies = {"uniform": uniform, "greedy": greedy, "noisy": noisy, "first": legal.argmax(-1)}
    print(
        cpu("compare_policies", lambda key: bm.compare_policies(key, posterior, policies, objective, num_draws=draws))
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "listed", int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
