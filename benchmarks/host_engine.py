"""What a user waits for: CPU-seconds and memory of a first and of a later call, each in a fresh process.

    python -m benchmarks.host_engine [ROW ...] [--repeats 5]

A row is measured in processes of its own, imports apart, one BLAS thread, and beside it, in the same process, the lines
of NumPy that a user would write where there are such (`numpy_values`). Printed: medians.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from bayes_mdp.decisions import ChooseOptions
from bayes_mdp.recommend import DecideOptions

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """CPU-seconds and the result."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def case(states: int, actions: int, successors: int = 0, visits: int = 20) -> Any:
    """A posterior after `visits` transitions of every pair, to one of its own successors (0: to any state)."""
    import jax
    import numpy as np

    import bayes_mdp as bm

    rng = np.random.default_rng(0)
    width = min(successors or states, states)
    places = np.argsort(rng.random((states, actions, states)), -1)[..., :width]
    state, action = (
        np.repeat(np.arange(states), actions * visits),
        np.tile(np.repeat(np.arange(actions), visits), states),
    )
    reached = places[state, action, rng.integers(width, size=state.size)]
    log = bm.Transitions(state, action, rng.normal(size=state.size), reached)
    space = bm.StateActionSpace(states, actions, successors=places if successors else None)
    return rng, bm.infer(jax.random.key(0), bm.models.dirichlet_normal_gamma(), log, space=space)


def numpy_values(posterior: Any, policy: Any, discount: float, draws: int, entries: int = 2**21) -> Any:
    """The fifteen lines: values over uniform first states in draws of Dirichlet rows and normal-gamma rewards."""
    import numpy as np

    rng, states = np.random.default_rng(3), len(policy)
    pairs = np.arange(states), policy
    alpha = np.asarray(posterior.transition_probs.concentration, float)[pairs]
    fields = ("loc", "pseudo_count", "concentration", "rate")
    loc, count, shape, rate = (np.asarray(getattr(posterior.reward, field), float)[pairs] for field in fields)
    reached = None if posterior.space.successors is None else np.asarray(posterior.space.successors)[pairs]
    values, block = np.empty(draws), max(1, entries // states**2)
    for start in range(0, draws, block):
        n = min(block, draws - start)
        probs = rng.standard_gamma(np.broadcast_to(alpha, (n, *alpha.shape)))
        probs /= probs.sum(-1, keepdims=True)
        if reached is not None:
            rows = np.zeros((n, states, states))
            np.put_along_axis(rows, np.broadcast_to(reached, probs.shape), probs, -1)
            probs = rows
        precision = rng.standard_gamma(np.broadcast_to(shape, (n, states))) / rate
        reward = loc + rng.standard_normal((n, states)) / np.sqrt(count * precision)
        system = np.eye(states) - discount * probs
        values[start : start + n] = np.linalg.solve(system, reward[..., None])[..., 0].mean(-1)
    return values


def value_row(states: int, actions: int, successors: int = 0, draws: int = 2000) -> dict[str, float]:
    """`policy_value`, first and later call, beside the lines of NumPy."""
    import jax

    import bayes_mdp as bm

    rng, posterior = case(states, actions, successors)
    policy = rng.integers(actions, size=states)
    ask = lambda seed: bm.policy_value(jax.random.key(seed), posterior, policy, bm.Discounted(0.95), num_draws=draws)  # noqa: E731
    bm.policy_value  # noqa: B018 - imports apart
    first, _ = timed(lambda: ask(1))
    later, value = timed(lambda: ask(2))
    plain, by_numpy = timed(lambda: numpy_values(posterior, policy, 0.95, draws))
    off = abs(value.mean - by_numpy.mean()) / (value.sd * (2 / draws) ** 0.5)
    return {"first": first, "later": later, "numpy": plain, "ratio": later / plain, "off in standard errors": off}


def small_row() -> dict[str, float]:
    """`compare_policies` of three, `greedy`, `print` at S = 4, each first, and again."""
    import jax

    import bayes_mdp as bm

    _, posterior = case(4, 3)
    bm.compare_policies, bm.greedy  # noqa: B018
    policies = {name: [a] * 4 for a, name in enumerate("abc")}
    asked = {
        "print": lambda: str(posterior),
        "greedy": lambda: bm.greedy(posterior, bm.Discounted(0.95)),
        "compare": lambda: bm.compare_policies(jax.random.key(1), posterior, policies, bm.Discounted(0.95)),
    }
    return {f"{name}, {when}": timed(function)[0] for name, function in asked.items() for when in ("first", "again")}


def infer_row() -> dict[str, float]:
    """`infer` of a ready-made prior at S = 4, first and again."""
    import jax
    import numpy as np

    import bayes_mdp as bm

    bm.infer  # noqa: B018
    rng = np.random.default_rng(0)
    log = bm.Transitions(*(rng.integers(n, size=240) for n in (4, 3)), rng.normal(size=240), rng.integers(4, size=240))
    prior, space = bm.models.dirichlet_normal_gamma(), bm.StateActionSpace(4, 3)
    key = jax.random.key(0)  # which starts JAX, in .15 CPU-seconds
    return {when: timed(lambda: bm.infer(key, prior, log, space=space))[0] for when in ("first", "again")}


def evpi_row() -> dict[str, float]:
    """EVPI by 10,000 draws, S = 20, first and again."""
    import jax

    import bayes_mdp as bm

    _, posterior = case(20, 4)
    ask = bm.information.expected_regret
    times = ("first", "again")
    return {
        x: timed(lambda: ask(jax.random.key(1), posterior, bm.Discounted(0.95), num_draws=10_000))[0] for x in times
    }


def evppi_row() -> dict[str, float]:
    """EVPPI of one row among all, S = 20: three policies, 10,000 draws, the row's entries regressed on."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import numpyro
    import numpyro.distributions as dist

    import bayes_mdp as bm

    rng, posterior = case(20, 4)
    alpha, reward = np.asarray(posterior.transition_probs.concentration), np.asarray(posterior.reward.loc)
    policies = {name: rng.integers(4, size=20) for name in "abc"}

    def program() -> dict[str, Any]:
        row = numpyro.sample("row", dist.Dirichlet(alpha[0, 0]))
        rows = jnp.asarray(numpyro.sample("rows", dist.Dirichlet(alpha).to_event(2))).at[0, 0].set(row)
        values = {}
        for name, policy in policies.items():
            system = jnp.eye(20) - 0.95 * rows[jnp.arange(20), policy]
            values[name] = jnp.linalg.solve(system, reward[np.arange(20), policy]).mean()
        return values

    bm.information.evppi  # noqa: B018
    modelling, model = timed(lambda: bm.strategies.decision_model(program))
    ask = lambda: bm.information.evppi(jax.random.key(1), model, ["row"], method="regression", num_draws=10_000)  # noqa: E731
    return {"decision model": modelling} | {when: timed(ask)[0] for when in ("first", "again")}


def information_row() -> dict[str, float]:
    """`next_experiment` and `probability_optimal`, S = 4."""
    import jax

    import bayes_mdp as bm

    objective = bm.Discounted(0.95)
    _, small = case(4, 3)
    bm.information.next_experiment, bm.information.probability_optimal  # noqa: B018
    asked = {
        "next experiment": lambda: bm.information.next_experiment(jax.random.key(1), small, objective),
        "probability optimal": lambda: bm.information.probability_optimal(jax.random.key(1), small, objective),
    }
    return {f"{name}, {when}": timed(function)[0] for name, function in asked.items() for when in ("first", "again")}


def machine_log(episodes: int = 60, steps: int = 30) -> Any:
    """A log of a machine with 4 states and 3 actions."""
    import numpy as np
    import pandas as pd

    import bayes_mdp as bm

    rng = np.random.default_rng(0)
    rows, reward = rng.dirichlet(np.ones(4), size=(4, 3)), rng.normal(size=(4, 3))
    table = []
    for episode in range(episodes):
        state = rng.integers(4)
        for _ in range(steps):
            action = rng.choice(3, p=[0.6, 0.3, 0.1])
            after = rng.choice(4, p=rows[state, action])
            table.append((episode, f"s{state}", f"a{action}", reward[state, action] + rng.normal(), f"s{after}"))
            state = after
    frame = pd.DataFrame(table, columns=["episode", "state", "action", "reward", "after"])
    return bm.read_log(frame, state="state", action="action", reward="reward", next_state="after", episode="episode")


def timed_decisions(prior: Any, log: Any, objective: Any, space: Any = None, calls: int = 2) -> dict[str, float]:
    """`decide`, as often as asked for: CPU-seconds in all, and by stage."""
    import jax

    import bayes_mdp as bm
    from bayes_mdp.recommend import decide as stages

    bm.decide  # noqa: B018
    row: dict[str, float] = {"rows": len(log.transitions.state)}
    name = ""

    @contextlib.contextmanager
    def stage(text: str) -> Iterator[None]:
        start = time.process_time()
        yield
        row[f"{name}, {text.removeprefix('decide: ')}"] = time.process_time() - start

    sys.modules[stages.__module__].stage = stage  # type: ignore[attr-defined] - the progress line of each stage
    for name in ("first", "again")[:calls]:
        row[name] = timed(
            lambda: bm.decide(jax.random.key(1), prior, log, objective, options=DecideOptions(space=space))
        )[0]
    return row


def decide_row() -> dict[str, float]:
    """`decide` on 1,800 rows of 4 states and 3 actions, first and again."""
    import bayes_mdp as bm

    return timed_decisions(bm.models.dirichlet_normal_gamma(), machine_log(), bm.Discounted(0.95))


def lake_row() -> dict[str, float]:
    """`decide` on the log of `bayes-mdp demo`: 300 episodes of random moves in FrozenLake, by its better prior."""
    import io
    import tempfile
    from pathlib import Path

    import bayes_mdp as bm
    from bayes_mdp.experiments import demo

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        log = demo._log(Path(folder) / "log.csv", 0)
    return timed_decisions(demo.neighbours, log, bm.Discounted(demo.DISCOUNT))


def million_row() -> dict[str, float]:
    """`decide` on 10^6 rows of 50 states and 4 actions, one stretch, once with a flat prior."""
    import numpy as np

    import bayes_mdp as bm

    rng, size = np.random.default_rng(0), 10**6
    rows, reward = rng.dirichlet(np.full(50, 0.1), (50, 4)).cumsum(-1), rng.normal(size=(50, 4))
    states, actions, uniform = np.zeros(size + 1, int), rng.integers(4, size=size), rng.random(size)
    for i in range(size):
        states[i + 1] = min(int(np.searchsorted(rows[states[i], actions[i]], uniform[i])), 49)
    paid = reward[states[:-1], actions] + rng.normal(size=size)
    transitions = bm.Transitions(states[:-1], actions, paid, states[1:])
    log = bm.mdp.Log(transitions, tuple(range(50)), tuple(range(4)), "drawn")
    return timed_decisions(bm.models.dirichlet_normal_gamma(), log, bm.Discounted(0.95), calls=1)


def sepsis_row(episodes: int = 2000) -> dict[str, float]:
    """`decide` on a log of ICU-Sepsis by its expert (extra `health`), rewards known, the prior 1 / S, once."""
    import jax
    import numpy as np

    import bayes_mdp as bm

    env = bm.envs.icu_sepsis()
    prior = bm.models.known_rewards(np.asarray(env.mdp.reward), 1 / env.space.n_outcomes)
    log = env.log(jax.random.key(0), episodes, env.expert)
    return timed_decisions(prior, log, bm.FirstExit(), env.space, calls=1)


def icu_row() -> dict[str, float]:
    """Four policies of 716 states and 25 actions with 20 listed successors, 1,000 draws."""
    import jax

    import bayes_mdp as bm

    rng, posterior = case(716, 25, 20, visits=5)
    policies = {f"p{i}": rng.integers(25, size=716) for i in range(4)}
    bm.compare_policies  # noqa: B018
    seconds, _ = timed(
        lambda: bm.compare_policies(jax.random.key(1), posterior, policies, bm.Discounted(0.99), num_draws=1000)
    )
    return {"first": seconds}


def choose_row(criterion: str) -> dict[str, float]:
    """`choose` by a criterion on 716 states, 25 actions, 20 listed successors, 1,000 draws."""
    import jax

    import bayes_mdp as bm
    from bayes_mdp import decisions

    _, posterior = case(716, 25, 20, visits=5)
    decisions.choose  # noqa: B018
    form = {
        "cvar": decisions.CVaR(0.1),
        "percentile": decisions.Percentile(0.1),
        "soft": decisions.SoftRobust(0.5, 0.1),
        "regret": decisions.Regret(),
    }[criterion]
    seconds, choice = timed(
        lambda: decisions.choose(
            jax.random.key(1), posterior, bm.Discounted(0.99), criterion=form, options=ChooseOptions(num_draws=1000)
        )
    )
    return {"first": seconds, "score": choice.score}


ROWS: dict[str, Callable[[], dict[str, float]]] = {
    "infer S=4": infer_row,
    "small S=4": small_row,
    "values S=4": lambda: value_row(4, 3),
    "values S=20": lambda: value_row(20, 4),
    "values S=50": lambda: value_row(50, 4),
    "values S=200": lambda: value_row(200, 4),
    "listed S=50": lambda: value_row(50, 4, 6),
    "listed S=200": lambda: value_row(200, 4, 6),
    "listed S=714": lambda: value_row(714, 4, 6),
    "information": information_row,
    "EVPI": evpi_row,
    "EVPPI": evppi_row,
    "decide": decide_row,
    "decide lake": lake_row,
    "icu": icu_row,
    "decide million": million_row,
    "decide sepsis": sepsis_row,
    **{f"choose {name}": lambda name=name: choose_row(name) for name in ("cvar", "percentile", "soft", "regret")},
}
QUICK = 14
"""Rows that are measured if none is named: the first ones, which take minutes in all."""


def measured(name: str, repeats: int) -> dict[str, float]:
    """Medians over fresh processes."""
    runs = []
    for _ in range(repeats):
        command = [sys.executable, "-m", "benchmarks.host_engine", name, "--here"]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        runs.append(json.loads(output.splitlines()[-1]))
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def main() -> None:
    """Measure the rows that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--here", action="store_true", help="one measurement, in this process")
    options = parser.parse_args()
    if options.here:
        row = ROWS[options.rows[0]]()
        row["MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(row))
        return
    for name in options.rows or list(ROWS)[:QUICK]:
        row = measured(name, options.repeats)
        print(f"{name}: " + "; ".join(f"{key} {value:.3g}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
