"""CPU seconds from a cold process to the first answer of each door, and of a second process that finds programs kept.

    python benchmarks/first_answer.py [DOOR ...] [--programs] [--one-thread]

Each door runs in two fresh processes: with an empty cache of compiled programs, and with what the first one left there.
CPU seconds are of the whole process, all threads, imports apart (also those that a call makes when it needs them); the
seconds of tracing, lowering and compiling are JAX's own, by the clock. `--programs` prints the longest compilations by
name, and how many programs of one name there were; `--one-thread` gives XLA a pool of one thread (NPROC=1).
"""

import argparse
import builtins
import collections
import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TRACING, LOWERING, COMPILING = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)
STATES, ACTIONS, ROWS = 6, 2, 400


class Meter:
    """CPU seconds of imports, wherever they are made, and what JAX reports of its programs."""

    def __init__(self) -> None:
        self.imports = 0.0
        self.seconds: dict[str, float] = {}
        self.programs: list[tuple[float, str]] = []
        self._depth = 0

    def install(self) -> None:
        """Time every import from now on, nested ones once."""
        builtins.__import__ = self._timed(builtins.__import__)
        importlib.import_module = self._timed(importlib.import_module)

    def listen(self) -> None:
        """Hear what JAX says of tracing, lowering and compiling."""
        import jax

        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return function(*args, **kwargs)
            self._depth, start = 1, time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self._depth = 0
                self.imports += time.process_time() - start

        return call

    def _heard(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        self.seconds[event] = self.seconds.get(event, 0.0) + duration_secs
        if event == COMPILING:
            self.programs.append((duration_secs, str(kwargs.get("fun_name", "?"))))


def small_log() -> Any:
    """Transitions of random play in a river of six states, made by NumPy alone."""
    import numpy as np

    import bayes_mdp as bm

    rng = np.random.default_rng(0)
    state, action = rng.integers(STATES, size=ROWS), rng.integers(ACTIONS, size=ROWS)
    follows = np.clip(state + np.where(rng.random(ROWS) < 0.6, 2 * action - 1, 0), 0, STATES - 1)
    paid = (follows == STATES - 1) * rng.normal(1.0, 0.1, ROWS)
    return bm.Transitions(state, action, paid, follows, np.zeros(ROWS, bool))


def fitted() -> Any:
    """The posterior that other doors start from."""
    import jax

    import bayes_mdp as bm

    space = bm.StateActionSpace(STATES, ACTIONS)
    return bm.infer(jax.random.key(0), bm.models.dirichlet_normal_gamma(), small_log(), space=space)


def infer() -> None:
    """A prior and data: the table of what is known."""
    print(fitted())


def policy_value() -> None:
    """A value with its interval."""
    import jax
    import numpy as np

    import bayes_mdp as bm

    print(bm.policy_value(jax.random.key(1), fitted(), np.ones(STATES, int), bm.Discounted(0.95)))


def compare_policies() -> None:
    """Two policies, a verdict."""
    import jax
    import numpy as np

    import bayes_mdp as bm

    policies = {"right": np.ones(STATES, int), "left": np.zeros(STATES, int)}
    print(bm.compare_policies(jax.random.key(1), fitted(), policies, bm.Discounted(0.95)))


def run() -> None:
    """PSRL, twenty seeds."""
    import jax

    import bayes_mdp as bm

    result = bm.run(
        bm.agents.PSRL(),
        bm.envs.riverswim_episodic(),
        prior=bm.models.dirichlet_normal_gamma(),
        objective=bm.Episodic(20),
        num_episodes=200,
        num_seeds=20,
        key=jax.random.key(0),
    )
    print(float(result.regret[:, -1].mean()))


def check() -> None:
    """Whether an inference is calibrated."""
    import jax

    import bayes_mdp as bm

    space = bm.StateActionSpace(STATES, ACTIONS)
    print(bm.check(jax.random.key(0), bm.models.dirichlet_normal_gamma(), space, data=small_log()))


def fit() -> None:
    """`bayes-mdp fit LOG --discount 0.95`."""
    from bayes_mdp.cli import main

    log = small_log()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        columns = (log.state, log.action, log.reward, log.next_state, log.terminated)
        rows = [",".join(str(x) for x in row) for row in zip(*columns, strict=True)]
        path.write_text("\n".join(["s,a,r,t,over", *rows]) + "\n")
        names = ["--state", "s", "--action", "a", "--reward", "r", "--next-state", "t", "--terminated", "over"]
        if main(["fit", str(path), *names, "--discount", "0.95"]):
            raise SystemExit("fit failed")


def demo() -> None:
    """`bayes-mdp demo`."""
    from bayes_mdp.cli import main

    with tempfile.TemporaryDirectory() as folder:
        if main(["demo", "--out", str(Path(folder) / "demo")]):
            raise SystemExit("demo failed")


DOORS: dict[str, Callable[[], None]] = {
    door.__name__: door for door in (infer, policy_value, compare_policies, run, check, fit, demo)
}


def measured(door: str) -> dict[str, Any]:
    """Run a door in this process, which has done nothing else; its output goes to stderr."""
    meter = Meter()
    meter.install()
    import bayes_mdp  # noqa: F401

    meter.listen()
    clock = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        DOORS[door]()
    clock = time.perf_counter() - clock
    sys.stderr.write(said.getvalue())
    return {
        "cpu": time.process_time() - meter.imports,
        "imports": meter.imports,
        "clock": clock,
        "programs": meter.programs,
        **{name: meter.seconds.get(event, 0.0) for name, event in zip(STAGES, EVENTS, strict=True)},
    }


STAGES, EVENTS = ("tracing", "lowering", "compiling"), (TRACING, LOWERING, COMPILING)


def fresh(door: str, cache: Path, one_thread: bool) -> dict[str, Any]:
    """What `measured` says in a new process that keeps its programs in `cache`."""
    settings = {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    settings |= {"NPROC": "1"} if one_thread else {}
    command = [sys.executable, __file__, "--inside", door]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{door}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def both(door: str, one_thread: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """A first process, and a second one with its cache."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first", "second"):
            yield name, fresh(door, Path(folder), one_thread)


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("doors", nargs="*", default=list(DOORS), metavar="DOOR", help=", ".join(DOORS))
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--one-thread", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(measured(arguments.doors[0])))
        return
    print(f"{'door':<18}{'process':<8}{'CPU s':>7}{'imports':>9}{'clock':>7}{'programs':>10}", end="")
    print("".join(f"{name:>11}" for name in STAGES))
    for door in arguments.doors:
        for name, found in both(door, arguments.one_thread):
            print(f"{door:<18}{name:<8}{found['cpu']:7.2f}{found['imports']:9.2f}{found['clock']:7.1f}", end="")
            print(f"{len(found['programs']):10d}" + "".join(f"{found[stage]:11.2f}" for stage in STAGES), flush=True)
            if arguments.programs and name == "first":
                _print_programs(found["programs"])


def _print_programs(programs: list[tuple[float, str]]) -> None:
    """The longest programs, and the names that were compiled most often."""
    for seconds, name in sorted(map(tuple, programs), reverse=True)[:10]:
        print(f"    {seconds:6.2f} s  {name}")
    often = collections.Counter(name for _, name in programs)
    total = {one: sum(seconds for seconds, name in programs if name == one) for one in often}
    for name in sorted(total, key=lambda name: -total[name])[:25]:
        print(f"    {total[name]:6.2f} s in {often[name]:3d}  {name}")


if __name__ == "__main__":
    main()
