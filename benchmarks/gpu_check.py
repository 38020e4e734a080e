"""The same computations on the CPU and on a GPU, and how far apart they are.

    python -m benchmarks.gpu_check [--parts products planners posteriors decisions plans runs deep] [--seconds 250]
        [--tight] [--out FOLDER]
    python -m benchmarks.gpu_check --parts deep [--emulate-tf32]

Every part is computed by several processes at once, some on the CPU and some on the GPU. For every computation one
line: the largest difference of an array of the result, divided by the largest number in that array on the CPU; seconds
of the first call (with compilation) and of the second, on each device. In float32, unless the name says otherwise. A
line whose name ends in "=" shows a number itself, on each device.

* products: a matrix product, and products of matrices and vectors, as JAX computes them by default and with
  `Precision.HIGHEST`: where the default is TF32 they differ from float64 by 1e-4 or more.
* planners: `solve`, `evaluate`, `solve_soft`, one problem and eight that share rows; and how far v is from the truth in
  float64, divided by the bound that the planner states (`gap`): above 1 the bound is false.
* posteriors: `infer`, what posteriors say, draws, beliefs about a last layer.
* decisions: `policy_value`, `compare_policies`, `choose` and others, which work in float64.
* plans: four plans of every tabular agent, compiled as one program with the posterior of a log of 40 states.
* runs: `run` of every tabular agent, 2 seeds. A run is chaotic: where rounding changes one action, all that follows
  differs. The column is then the difference of the regret.

* deep: tests of deep agents, of beliefs about a last layer and of Student's t, beside NumPy, SciPy and mpmath. One line
  a test: the largest error that it measured, seconds, passed or FAILED. The part runs on a CPU, too, and says so; with
  `--emulate-tf32` products are then those of a GPU (`tests/tf32.py`).

`--tight` adds the GPU under `JAX_DEFAULT_MATMUL_PRECISION=highest`, which shows what of a difference is of products.
Ends with status 2 where JAX finds no GPU (and another part than `deep` is asked for), and with 1 where a computation
failed on one of the devices alone, or a test of `deep` failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bayes_mdp.decisions import ChooseOptions

Work: TypeAlias = tuple[str, Callable[[], Any]]
PARTS = ("products", "planners", "posteriors", "decisions", "plans", "runs", "deep")
SHARES = {"planners": 3, "posteriors": 2, "decisions": 2, "plans": 4, "runs": 4}
"""Processes that share a part, on each device."""
S, A, HORIZON = 200, 4, 20


def products() -> Iterator[Work]:
    """Differences from float64, not between devices."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 8, 512, 512))
    shapes = {
        "matrix @ matrix": ("ij,jk->ik", a[0], b[0]),
        "matrix @ vector": ("ij,j->i", a[0], b[0, 0]),
        "vector @ vector": ("i,i->", a[0, 0], b[0, 0]),
        "8 matrices @ 8 matrices": ("nij,njk->nik", a, b),
        "8 matrices @ 8 vectors": ("nij,nj->ni", a, b[:, 0]),
        "matrix @ 8 vectors": ("ij,nj->ni", a[0], b[:, 0]),
        "8 x (vector @ vector)": ("ni,ni->n", a[:, 0], b[:, 0]),
        "[200 4 200] rows @ vector": ("sat,t->sa", a.ravel()[:160000].reshape(200, 4, 200), b[0, 0, :200]),
        "[200 4 200] rows @ 8 vectors": ("sat,nt->nsa", a.ravel()[:160000].reshape(200, 4, 200), b[:, 0, :200]),
    }
    for name, (letters, *operands) in shapes.items():
        right = np.einsum(letters, *operands)
        for title, precision in (("default", None), ("HIGHEST", "highest")):

            def off(letters: str = letters, operands: Any = operands, right: Any = right, how: Any = precision) -> Any:
                product = jax.jit(lambda *x: jnp.einsum(letters, *x, precision=how))
                found = product(*(jnp.asarray(x, jnp.float32) for x in operands))
                return np.abs(np.asarray(found) - right).max() / np.abs(right).max()

            yield f"product {name}, {title}: off by =", off


def _rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(n, 0.2), (n, A)), rng.normal(size=(n, A))


def planners() -> Iterator[Work]:
    """One problem, and eight with the same rows."""
    import jax
    import jax.numpy as jnp

    import bayes_mdp as bm

    rows, reward = (np.asarray(x, np.float32) for x in _rows(S))
    rewards = np.random.default_rng(1).normal(size=(8, S, A)).astype(np.float32)
    policy = np.random.default_rng(2).dirichlet(np.ones(A), S).astype(np.float32)
    start = np.full(S, 1 / S, np.float32)
    for objective in (bm.Episodic(HORIZON), bm.Discounted(0.95), bm.Discounted(0.99), bm.AverageReward()):
        calls: dict[str, Callable[[Any, Any], Any]] = {
            "solve": lambda p, r, o=objective: bm.solve(bm.MDP(p, r, initial=start), o),
            "evaluate": lambda p, r, o=objective: bm.evaluate(bm.MDP(p, r, initial=start), policy, o),
            "solve_soft": lambda p, r, o=objective: bm.planning.solve_soft(
                bm.MDP(p, r, initial=start), o, temperature=0.1
            ),
        }
        for name, call in calls.items():
            for many in (False, True):
                if name == "solve_soft" and (many or isinstance(objective, bm.AverageReward)):
                    continue
                program = jax.jit(jax.vmap(call, (None, 0)) if many else call)
                title = f"{name} {_word(objective)}{', 8 rewards' if many else ''}"
                given = rewards if many else reward
                kept: dict[str, Any] = {}

                def answer(program: Any = program, given: Any = given, kept: dict[str, Any] = kept) -> Any:
                    found = kept["found"] = program(jnp.asarray(rows), jnp.asarray(given))
                    return [x for x in (found.q, found.v, getattr(found, "gain", None)) if x is not None]

                yield title, answer
                if name == "solve_soft" or not isinstance(objective, bm.Discounted):
                    continue

                def proof(
                    given: Any = given,
                    kept: dict[str, Any] = kept,
                    discount: Any = objective.discount,
                    fixed: Any = policy if name == "evaluate" else None,
                ) -> Any:
                    found = kept["found"]
                    off = [
                        np.abs(np.asarray(v, float) - _values(rows, r, float(discount), fixed)).max()
                        for v, r in zip(found.v.reshape(-1, S), np.reshape(given, (-1, S, A)), strict=True)
                    ]
                    return np.max(off / np.ravel(found.gap))

                yield f"{title}: |v - truth| / gap =", proof

    def wide() -> Any:
        with jax.enable_x64(True):
            return bm.solve(bm.MDP(*_rows(S)), bm.Discounted(0.99))

    yield "solve Discounted(0.99), float64", wide

    def slope() -> Any:
        value = lambda r: bm.solve(bm.MDP(jnp.asarray(rows), r, initial=start), bm.Discounted(0.95)).v.sum()  # noqa: E731
        return jax.jit(jax.grad(value))(jnp.asarray(reward))

    yield "gradient of solve Discounted(0.95)", slope


def _values(rows: Any, reward: Any, discount: float, policy: Any) -> np.ndarray:
    """Optimal values, or those of a policy, by many sweeps of NumPy in float64."""
    flat, v = rows.astype(float).reshape(-1, S), np.zeros(S)
    for _ in range(int(40 / (1 - discount))):
        q = reward + discount * (flat @ v).reshape(S, A)
        v = q.max(-1) if policy is None else (policy * q).sum(-1) / policy.astype(float).sum(-1)
    return v


def _word(objective: Any) -> str:
    numbers = [str(x) for x in vars(objective).values() if isinstance(x, int | float)]
    return f"{type(objective).__name__}({', '.join(numbers[:1])})"


def _log(n: int, number: int, horizon: int | None = None) -> Any:
    import bayes_mdp as bm

    rng = np.random.default_rng(3)
    rows, _ = _rows(n)
    state, action, later, now = [], [], [], 0
    for _ in range(number):
        state.append(now)
        action.append(int(rng.integers(A)))
        now = int(rng.choice(n, p=rows[now, action[-1]]))
        later.append(now)
    step = None if horizon is None else np.arange(number) % horizon
    reward = rng.normal(size=number).astype(np.float32)
    return bm.Transitions(np.array(state), np.array(action), reward, np.array(later), None, None, step)


def posteriors() -> Iterator[Work]:
    """Closed forms, pooled rows, draws, last layers."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import bayes_mdp as bm

    log, space, key = _log(50, 3000), bm.StateActionSpace(50, A), jax.random.key(0)
    values = np.random.default_rng(4).normal(size=(8, 50)).astype(np.float32)

    def program(space: Any) -> Any:
        k = numpyro.sample("stickiness", dist.HalfNormal(5.0))
        with space.plates():
            rows = 0.5 + k * jnp.eye(space.n_states, space.n_outcomes)[:, None, :]
            p = numpyro.sample("transition", dist.Dirichlet(rows))
            q = numpyro.sample("reward", dist.Normal(0.0, 1.0))
        return bm.models.MDPSpec(p, reward=dist.Normal(q, 1.0))

    for name, prior in {"normal_gamma": bm.models.dirichlet_normal_gamma(), "sticky": program}.items():

        def fit(prior: Any = prior) -> Any:
            posterior = bm.infer(key, prior, log, space=space)
            drawn = posterior.sample(jax.random.key(1), (20,))
            q = jax.vmap(lambda mdp: bm.solve(mdp, bm.Discounted(0.95)).q)(drawn)
            expected = jax.vmap(lambda v: posterior.mean_mdp().expected_next(v))(jnp.asarray(values))
            variance = jax.vmap(lambda v: posterior.bellman_variance(v, 0.95))(jnp.asarray(values))
            return drawn.transition_probs.mean(0), q, expected, variance

        yield f"infer {name}: draws, their q, expectations, variances", fit
    rng = np.random.default_rng(5)
    features = rng.normal(size=(64, 32)).astype(np.float32)
    action, target = rng.integers(0, 3, 64), rng.normal(size=64).astype(np.float32)

    def layer() -> Any:
        from bayes_mdp.inference.value import linear_gaussian as algebra

        shrinks = (algebra.shrink_root_one, algebra.shrink_root_block)
        matrix = jnp.broadcast_to(10.0 * jnp.eye(32), (3, 32, 32))
        program = jax.jit(lambda m, rows: algebra.learn(shrinks, m, jnp.zeros((3, 32)), rows))  # pyright: ignore
        matrix, mean = program(matrix, (*(jnp.asarray(x) for x in (features, action, target)), None))
        square = np.asarray(matrix, float)
        return square @ square.swapaxes(1, 2), mean

    yield "last layer of 32 features, 64 rows at once", layer


def decisions() -> Iterator[Work]:
    """Values of policies over the posterior of a log."""
    import jax

    import bayes_mdp as bm

    log, space, key = _log(30, 1500), bm.StateActionSpace(30, A), jax.random.key(1)
    posterior: Any = bm.infer(jax.random.key(0), bm.models.dirichlet_normal_gamma(), log, space=space)
    objective, uniform = bm.Discounted(0.95), np.full((30, A), 1 / A)
    greedy = bm.greedy(posterior, objective)
    start = np.full(30, 1 / 30)
    both = {"greedy": greedy, "uniform": uniform}
    yield "policy_value Discounted", lambda: bm.policy_value(key, posterior, greedy, objective, initial=start)
    yield "policy_value Episodic", lambda: bm.policy_value(key, posterior, greedy, bm.Episodic(20), initial=start)
    yield "policy_value average", lambda: bm.policy_value(key, posterior, greedy, bm.AverageReward(), initial=start)
    yield "compare_policies", lambda: bm.compare_policies(key, posterior, both, objective, initial=start)
    yield "probability_optimal", lambda: bm.information.probability_optimal(key, posterior, objective).values
    yield (
        "expected_regret",
        lambda: bm.information.expected_regret(key, posterior, objective, initial=start),
    )
    yield (
        "split_return_variance",
        lambda: bm.decisions.split_return_variance(key, posterior, greedy, objective, initial=start),
    )
    for criterion in ("mean", "percentile:0.1", "cvar:0.1"):
        yield (
            f"choose {criterion}",
            lambda c=criterion: bm.choose(
                key, posterior, objective, c, initial=start, options=ChooseOptions(num_draws=200)
            ),
        )


WITHOUT_END = {"tsde"}
NEEDS: dict[str, dict[str, Any]] = {
    "bamcp": {"num_simulations": 50, "max_depth": 12},
    "bolt": {"eta": 1.0, "max_reward": 1.0},
    "k_learning": {"noise": 0.1},
    "oim": {"v_max": 2.0},
    "optimistic_q": {"v_max": 1.5},
    "vapor": {"noise": 0.1},
}


def plans() -> Iterator[Work]:
    """Four keys of every agent with a belief, in one program."""
    import jax
    import jax.numpy as jnp

    import bayes_mdp as bm
    from bayes_mdp.agents import AGENTS, Learner
    from bayes_mdp.agents.common.learner import ChecksBelief
    from bayes_mdp.experiments.rollout.run_beliefs import on_device
    from bayes_mdp.mdp import PlansFromState, Problem

    n, posteriors = 40, {}
    start = jnp.full(n, 1 / n)

    def belief_of(endless: bool) -> Any:
        if endless not in posteriors:
            space = bm.StateActionSpace(n, A, support=np.ones((n, A, n), bool))
            posteriors[endless] = (
                bm.infer(jax.random.key(0), bm.models.dirichlet_normal(noise_scale=0.1), _log(n, 2000), space=space),
                space,
            )
        return posteriors[endless]

    for name in sorted(AGENTS):
        agent: Any = AGENTS[name](**NEEDS.get(name, {}))
        if isinstance(agent, Learner | PlansFromState):
            continue
        endless = name in WITHOUT_END

        @jax.jit
        def program(agent: Any, problem: Any, belief: Any, keys: Any) -> Any:
            def one(key: Any) -> Any:
                return agent.plan(key, problem, agent.init(key, problem), belief)[0]

            return jax.vmap(one)(keys)

        def plan(agent: Any = agent, endless: bool = endless, program: Any = program) -> Any:
            belief, space = belief_of(endless)
            if isinstance(agent, ChecksBelief):
                agent.check_belief(belief)
            problem = Problem(space, bm.AverageReward() if endless else bm.Episodic(HORIZON), start)
            parts = on_device((agent, problem, belief))
            return program(*parts, jax.random.split(jax.random.key(2), 4))

        yield f"plan {name}", plan


def runs() -> Iterator[Work]:
    """Every agent in a small river."""
    import jax

    import bayes_mdp as bm
    from bayes_mdp.agents import AGENTS

    quiet = bm.experiments.RunOptions(progress=False)
    for name in sorted(AGENTS):
        agent: Any = AGENTS[name](**NEEDS.get(name, {}))

        def play(agent: Any = agent, name: str = name) -> Any:
            given: dict[str, Any] = {"num_seeds": 2, "key": jax.random.key(0), "options": quiet}
            prior = bm.models.dirichlet_normal_gamma()
            if name in WITHOUT_END:
                env = bm.envs.riverswim()
                return bm.run(
                    agent, env, prior=prior, objective=bm.AverageReward(), num_steps=100, **given
                ).regret.values
            env = bm.envs.deep_sea(5)
            return bm.run(agent, env, prior=prior, objective=bm.Episodic(5), num_episodes=20, **given).regret.values

        if name != "bayesian_dp":  # it needs lists of the possible successors
            yield f"run {name}", play


PART: dict[str, Callable[[], Iterator[Work]]] = {
    "products": products,
    "planners": planners,
    "posteriors": posteriors,
    "decisions": decisions,
    "plans": plans,
    "runs": runs,
}


DEEP = {
    "agents/neural/test_bonus_dqn.py": ("bonus_by_the_inverse", "values"),
    "agents/neural/test_bootstrapped.py": ("loss_by_a_loop", "priors_are_never_trained", "values"),
    "agents/neural/test_convolutions.py": ("nature_is_numpys_convolution", "minatar_is_numpys_convolution"),
    "agents/neural/test_dqn.py": ("loss_and_slope",),
    "agents/neural/test_hashed_features.py": ("one_hot_mlp",),
    "agents/neural/test_networks.py": ("mlp",),
    "agents/neural/test_neural_ube.py": ("fixed_point_is_the_tabular_one", "sigma_is_the_inverse", "targets"),
    "agents/neural/test_deep_ube.py": ("u_is_that_of_counts", "targets_by_a_loop", "with_a_full_covariance"),
    "inference/value/test_linear_gaussian.py": ("blocks_of_128_rows_with_a_wide_prior",),
    "inference/value/test_last_layer_laplace.py": ("fit_finds_the_mode_and_the_curvature",),
    "inference/value/test_student_t.py": ("any_degrees_of_freedom_at_any_distance", "excess_over_any_gap"),
    "agents/model_free/test_bql.py": (
        "probabilities_of_extreme_laws",
        "probabilities_where_numbers_end",
        "known_returns_among_others",
        "regret_is_a_number",
    ),
}
"""Tests below `tests`. Where TF32 is emulated, fifteen of the first seven files failed once."""


def deep(folder: Path, env: dict[str, str], *, emulate: bool, seconds: float) -> int:
    """Run the tests of `DEEP`, print a line for each; 1 where one failed or was not reached."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", *(["--tf32"] if emulate else [])]
    started, of = [], max(1, min(6, (os.cpu_count() or 1) // 2))
    for share in range(of):
        report = folder / f"deep-{share}.xml"
        report.unlink(missing_ok=True)
        names = [f"tests/{path}::test_{name}" for path in list(DEEP)[share::of] for name in DEEP[path]]
        with report.with_suffix(".txt").open("w") as told:
            words = [*command, f"--junitxml={report}", *names]
            process = subprocess.Popen(words, env=env, stdout=told, stderr=subprocess.STDOUT)
        started.append((report, process))
    deadline, status = time.monotonic() + seconds, 0
    for report, process in started:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
        status |= process.poll() != 0
        if not report.exists():
            print(f"FAILED  no report, or not in time: {report.with_suffix('.txt')}")
            continue
        for case in ET.parse(report).getroot().iter("testcase"):
            errors = [float(p.attrib["value"]) for p in case.iter("property") if p.attrib["name"] == "error"]
            failed = case.find("failure") is not None or case.find("error") is not None
            word = "FAILED" if failed else "skipped" if case.find("skipped") is not None else "passed"
            shown = f"{errors[0]:.1e}" if errors else "   -   "
            name = f"{case.attrib['classname'].rpartition('.')[2]}::{case.attrib['name']}"
            print(f"{word:8s}{shown}  {float(case.attrib['time']):6.1f} s  {name}")
    return status


def numbers(result: Any) -> list[np.ndarray]:
    """The arrays of numbers in a result."""
    import jax
    import jax.numpy as jnp

    if hasattr(result, "__dataclass_fields__") and len(jax.tree.leaves(result)) == 1:
        result = vars(result)
    if hasattr(result, "_asdict"):
        result = result._asdict()
    if isinstance(result, dict):
        return [x for value in result.values() for x in numbers(value)]
    found = []
    for leaf in jax.tree.leaves(result):
        if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            continue
        if isinstance(leaf, bool | int | float | np.ndarray | jax.Array | np.generic):
            value = np.asarray(leaf)
            if value.dtype.kind in "biuf":
                found.append(value.astype(float))
    return found


def child(part: str, share: int, of: int, out: Path, seconds: float) -> None:
    """One process: computes its share of a part and writes what it found."""
    import jax

    began, found = time.perf_counter(), {}
    arrays: dict[str, np.ndarray] = {}
    last = ""
    for name, call in PART[part]():
        last = (name == f"{last}: |v - truth| / gap =" and last) or name
        if zlib.crc32(last.encode()) % of != share:
            continue
        if time.perf_counter() - began > seconds:
            found[name] = {"failed": "no time left"}
            continue
        try:
            times, leaves = [], list[np.ndarray]()
            for _ in range(2):
                start = time.perf_counter()
                leaves = numbers(jax.block_until_ready(call()))
                times.append(time.perf_counter() - start)
            arrays.update({f"{name}|{j}": x for j, x in enumerate(leaves)})
            found[name] = {"seconds": times, "leaves": len(leaves)}
        except Exception as error:  # any: the table says which
            found[name] = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
            (out.parent / f"{out.name}.err").open("a").write(f"{name}\n{traceback.format_exc()}\n")
        out.with_suffix(".json").write_text(json.dumps(found))
        np.savez(out.with_suffix(".npz"), **arrays)  # pyright: ignore[reportArgumentType]


def gap(one: np.ndarray, two: np.ndarray) -> float:
    """The largest difference over the largest number of `one`; infinite where shapes or places of nan differ."""
    if one.shape != two.shape or not np.array_equal(np.isfinite(one), np.isfinite(two)):
        return np.inf
    kept = np.isfinite(one)
    if not kept.any():
        return 0.0
    return float(np.abs(one - two)[kept].max() / max(np.abs(one[kept]).max(), 1e-9))


def main() -> None:
    """Start the processes, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seconds", type=float, default=250.0, help="after which a process starts no computation")
    parser.add_argument("--tight", action="store_true", help="also the GPU with products in full precision")
    parser.add_argument("--emulate-tf32", action="store_true", help="of `deep` on a CPU: products as on a GPU")
    parser.add_argument("--out", type=Path, help="keep the numbers in this folder")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        part, share, of = given.child
        child(part, int(share), int(of), given.out, given.seconds)
        return
    find = "import jax; print(jax.__version__, jax.devices('gpu')[0].device_kind)"
    seen = subprocess.run([sys.executable, "-c", find], capture_output=True, text=True, check=False)
    others = [part for part in given.parts if part != "deep"]
    if seen.returncode and others and "GPU_CHECK_TRY" not in os.environ:
        sys.stderr.write(
            "JAX finds no GPU here: install jax for it, or check `--parts deep --emulate-tf32` on the CPU\n"
        )
        raise SystemExit(2)
    folder = given.out or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    base = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "NPROC": "2"}
    kinds = {"cpu": {**base, "JAX_PLATFORMS": "cpu"}, "gpu": base}
    if given.tight:
        kinds["tight"] = {**base, "JAX_DEFAULT_MATMUL_PRECISION": "highest"}
    started = []
    for part in others:
        for kind, env in kinds.items():
            if kind == "tight" and part == "runs":
                continue
            of = SHARES.get(part, 1)
            for share in range(of):
                out = folder / f"{kind}-{part}-{share}"
                words = ["--child", part, str(share), str(of), "--out", str(out), "--seconds", str(given.seconds)]
                started.append(subprocess.Popen([sys.executable, "-m", "benchmarks.gpu_check", *words], env=env))
    deadline = time.monotonic() + given.seconds + 60
    for process in started:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    print(seen.stdout.strip() or "no GPU: all that follows is of the CPU")
    status = table(folder, list(kinds), others)
    if "deep" in given.parts:
        print(f"\ndeep{', TF32 emulated' if given.emulate_tf32 else ''}: the largest error that a test measured")
        env = {**base, "BAYES_MDP_TYPES": "off"}
        status |= deep(folder, env, emulate=given.emulate_tf32, seconds=given.seconds + 200)
    raise SystemExit(status)


def table(folder: Path, kinds: list[str], parts: list[str]) -> int:
    """Print what the processes wrote; 1 where a computation failed on one device and not on the other."""
    status = 0
    for part in parts:
        told: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
        arrays: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in kinds}
        for kind in kinds:
            for path in sorted(folder.glob(f"{kind}-{part}-*.json")):
                told[kind] |= json.loads(path.read_text())
                arrays[kind] |= dict(np.load(path.with_suffix(".npz")))
        print(
            f"\n{part}: {'; '.join(('difference ' + k) for k in kinds[1:])}; seconds first/again on {', '.join(kinds)}"
        )
        for name in dict.fromkeys(x for kind in kinds for x in told[kind]):
            every = [told[kind].get(name, {"failed": "not reached"}) for kind in kinds]
            gaps = []
            for kind, one in zip(kinds[1:], every[1:], strict=True):
                if "failed" in one or "failed" in every[0]:
                    gaps.append("   -   ")
                    continue
                count = every[0]["leaves"] if every[0]["leaves"] == one["leaves"] else 0
                pairs = [(arrays["cpu"][f"{name}|{i}"], arrays[kind][f"{name}|{i}"]) for i in range(count)]
                gaps.append(f"{max((gap(*pair) for pair in pairs), default=np.nan):.1e}")
            if name.endswith("="):
                gaps = [f"{arrays[kind].get(name + '|0', np.nan):.1e}" for kind in kinds]
            took = ["{:.2f}/{:.3f}".format(*x["seconds"]) if "seconds" in x else x["failed"][:150] for x in every]
            status |= len({"failed" in x for x in every[:2]}) - 1
            print(f"{name[:58]:58s} {' '.join(gaps)}  {'  '.join(took)}")
    return status


if __name__ == "__main__":
    main()
