"""Seconds that `infer` takes to prove a prior: `OPENBLAS_NUM_THREADS=1 python benchmarks/detector.py`.

Dense Dirichlet rows and normal-gamma rewards, A = 4. Tracing, reading the data flow, detection and certificate of a
first program, and of a second one of the same shape (other constants, so that it is compiled too). CPU time of the
process; what JAX spent on compilation is stated apart. Floors beyond compilation: 0.3 s for the detector, 1 s for the
certificate.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from bayes_mdp.inference.detection.certify import certify
from bayes_mdp.inference.detection.detect import detect
from bayes_mdp.inference.detection.probe import Probe
from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models import dirichlet_normal_gamma

SIZES, ACTIONS = (20, 200, 1000), 4
COMPILING = "/jax/core/compile/"
compiling = [0.0]


def listen(event: str, duration_secs: float, **_: Any) -> None:
    """Add up what JAX reports of tracing, lowering and compiling (wall time; they run one after the other)."""
    if event.startswith(COMPILING):
        compiling[0] += duration_secs


def timed(task: str, call: Callable[[], Any]) -> Any:
    """The result of a call; prints its seconds without compilation, and those of compilation."""
    compiling[0], began = 0.0, time.process_time()
    result = call()
    total = time.process_time() - began
    print(f"{task:34s} {max(total - compiling[0], 0.0):8.3f} s   compiled in {compiling[0]:6.3f} s", flush=True)
    return result


def prove(size: int, which: str, concentration: float) -> None:
    """The three steps for one program."""
    space, prior = StateActionSpace(size, ACTIONS), dirichlet_normal_gamma(concentration, loc=concentration)
    program = timed(f"trace, S = {size}, {which}", lambda: trace_program(prior, space))
    probe = timed(f"data flow, S = {size}, {which}", lambda: Probe(program))
    detected = timed(f"detect, S = {size}, {which}", lambda: detect(probe))
    timed(f"certify, S = {size}, {which}", lambda: certify(program, detected, np.random.default_rng(0)))


if __name__ == "__main__":
    jax.monitoring.register_event_duration_secs_listener(listen)
    with jax.enable_x64(True):
        for size in SIZES:
            prove(size, "first", 0.5)
            prove(size, "second", 0.7)
