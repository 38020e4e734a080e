"""Intervals, choices, abstentions and harm on FrozenLake, Taxi and the bus data.

`python -m benchmarks.decision_tables [FrozenLake-v1|Taxi-v4|PATH of the bus CSV] [logs] [episodes, comma separated]`.
Needs gymnasium for the first two. Logs: the optimal action or, half of the time, any; episodes of at most 200 steps,
discount .95. Beliefs: known rewards of the pairs, Dirichlet rows of total concentration one ("1/S"), and rows over the
true successors, one each ("successors"). Behaviour (as counted), optimum and greedy policy are judged by the posterior
of the whole log; the chosen one by a half that did not choose it: `choose` with the behaviour as baseline, in Taxi the
best policy that keeps to the behaviour where an action was seen less than 5 times. It is recommended where it is no
worse with probability .95 in that half, else the log abstains; harm: recommended and truly worse. Intervals are the
central 90 % of the draws. The bus data: what `decide` says under two priors, from README's words alone and with what
is known of buses.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bayes_mdp as bm
from bayes_mdp.decisions.choosing.common_draws import draws_of
from bayes_mdp.decisions.choosing.criteria import Improvement
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, best_in, policy_set
from bayes_mdp.envs.sepsis import simulate_episodes
from bayes_mdp.numerics.array_forms import to_float64

OBJECTIVE, LONGEST, DRAWS, BELOW, LARGE = bm.Discounted(0.95), 200, 200, 5, 100


def row_support(mdp: bm.MDP | bm.SparseMDP) -> np.ndarray:
    """The outcomes that can be, [S A S + 1], the end last."""
    probs = np.asarray(mdp.row_probs)
    states, actions = mdp.reward.shape
    after = np.asarray(mdp.successor) if isinstance(mdp, bm.SparseMDP) else np.arange(states)
    can = np.zeros((states, actions, states + 1), bool)
    where = np.nonzero(probs > 0)
    can[where[0], where[1], np.broadcast_to(after, probs.shape)[where]] = True
    can[..., -1] = False if mdp.end_probs is None else np.asarray(mdp.end_probs) > 0
    return can


def true_value(mdp: bm.MDP | bm.SparseMDP, policy: np.ndarray) -> float:
    """start' (I - discount P)^-1 r of the policy's chain."""
    dense = mdp.to_dense() if isinstance(mdp, bm.SparseMDP) else mdp
    rows = np.einsum("sa,sak->sk", policy, np.asarray(dense.transition_probs, np.float64))
    reward = (policy * np.asarray(mdp.reward, np.float64)).sum(-1)
    values = np.linalg.solve(np.eye(len(rows)) - OBJECTIVE.discount * rows, reward)
    return float(np.asarray(mdp.initial, np.float64) @ values)


def one_log(
    mdp: bm.MDP | bm.SparseMDP, nothing: bm.inference.ConjugatePosterior, episodes: int, number: int
) -> pd.DataFrame:
    """A row for each policy."""
    rng, keys = np.random.default_rng([episodes, number]), jax.random.split(jax.random.key(number), 5)
    start, actions = np.asarray(mdp.initial, np.float64), mdp.reward.shape[-1]
    one_hot = lambda policy: np.eye(actions)[np.asarray(policy)]  # noqa: E731
    best = one_hot(bm.solve(mdp, OBJECTIVE).policy)
    data = simulate_episodes(rng, mdp, 0.5 * best + 0.5 / actions, episodes, LONGEST)
    log = bm.mdp.Log(data, tuple(range(len(start))), tuple(range(actions)))
    parts = (log, *bm.mdp.split_log(keys[0], log))
    whole, first, second = (nothing.update(bm.Counts.of(part.transitions, nothing.space)) for part in parts)
    today = bm.behaviour_policy(log, space=nothing.space)
    if len(start) < LARGE:
        chosen = bm.choose(
            keys[1],
            first,
            OBJECTIVE,
            baseline=today,
            initial=start,
            options=bm.decisions.ChooseOptions(num_draws=DRAWS),
        ).candidate
        chosen = chosen if np.ndim(chosen) == 2 else one_hot(chosen)
    else:
        with jax.enable_x64(True):
            mean = to_float64(first.mean_mdp())
        near = policy_set(PolicyLimits(bootstrap_below=BELOW), None, today.shape, first.visit_counts(), today)
        chosen = near.policy(best_in(mean, OBJECTIVE, near))
    # All pairs are drawn for every log: arrays of one shape, one compiled program.
    judge = lambda key, belief, some: draws_of(key, belief, OBJECTIVE, DRAWS, initial=start).values(np.stack(some)).T  # noqa: E731
    whole_best = one_hot(bm.greedy(whole, OBJECTIVE))
    judged = [*judge(keys[2], whole, [today, best, whole_best]), *judge(keys[3], second, [chosen, today])]
    taken = Improvement(judged[3] - judged[4], 0.0, 0.95).accepted and not np.array_equal(chosen, today)
    rows, policies = [], {"behaviour": today, "optimum": best, "greedy": whole_best, "chosen": chosen}
    for (name, policy), values in zip(policies.items(), judged, strict=False):
        low, high = np.quantile(values, [0.05, 0.95])
        true = true_value(mdp, policy)
        harm = name == "chosen" and taken and true < true_value(mdp, today) - 1e-9
        abstains = name == "chosen" and not taken
        rows.append((name, low <= true <= high, values.mean() - true, high - low, true, abstains, harm))
    return pd.DataFrame(rows, columns=["policy", "covers", "bias", "width", "truth", "abstains", "harm"])


def of_world(name: str, logs: int, sizes: list[int]) -> None:
    """The table of a world of gymnasium."""
    mdp = bm.envs.from_gymnasium(name).mdp
    support, reward = row_support(mdp), np.asarray(mdp.reward)
    states, actions = reward.shape
    anywhere = bm.StateActionSpace(states, actions, ends=True)
    known = bm.StateActionSpace(states, actions, ends=True, support=support)
    beliefs: dict[str, Callable[[], object]] = {
        "1/S": lambda: bm.infer(jax.random.key(0), bm.models.known_rewards(reward, 1 / states), space=anywhere),
        "successors": lambda: bm.infer(jax.random.key(0), bm.models.known_rewards(reward, 1.0), space=known),
    }
    for title, make in beliefs.items():
        nothing = make()
        for size in sizes:
            every = pd.concat([one_log(mdp, nothing, size, number) for number in range(logs)])  # type: ignore[arg-type]
            answer = pd.DataFrame(every.groupby("policy", sort=False).mean()).round(3)
            print(f"{name}, {title}, {size} episodes, {logs} logs\n{answer.to_string()}\n")
            sys.stdout.flush()


def of_buses(path: str) -> None:
    """What `decide` says of the bus data."""
    from examples.bus_engine import MONTHLY, N_STATES, NEW_ENGINE, alike, bus_space, each_bin, read

    log = read(path)
    bare = bm.StateActionSpace.from_log(log)
    wide = np.zeros((N_STATES, 2))
    wide[:] = -np.stack([0.001 * 2.293 * np.arange(N_STATES), np.full(N_STATES, 10.075)], 1)
    flat = bm.models.known_rewards(wide)
    for title, prior, space in (
        ("flat rows over all bins", flat, bare),
        ("0 to 2 bins a month, each bin for itself", each_bin, bus_space()),
        ("0 to 2 bins a month, all bins alike", alike, bus_space()),
    ):
        told = bm.decide(
            jax.random.key(0),
            prior,
            log,
            MONTHLY,
            options=bm.recommend.DecideOptions(space=space, initial=NEW_ENGINE, num_draws=100),
        )
        print(f"{title}\n{told.headline}")
        print("".join(f"  because {reason}\n" for reason in told.reasons))
        print("".join(f"  would decide: {cure}\n" for cure in told.comparison.verdict.would_decide))
        sys.stdout.flush()


def main(what: str, logs: int, sizes: list[int]) -> None:
    """One world."""
    if Path(what).suffix == ".csv":
        of_buses(what)
    else:
        of_world(what, logs, sizes)


if __name__ == "__main__":
    given = sys.argv[1:] + ["FrozenLake-v1", "50", "200,1000"][len(sys.argv) - 1 :]
    main(given[0], int(given[1]), [int(x) for x in given[2].split(",")])
