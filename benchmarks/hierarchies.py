"""Hierarchies without chains, and with: CPU-seconds, each row in a fresh process, imports apart.

    python -m benchmarks.hierarchies [ROW ...] [--repeats 3]

`sticky`: README's prior after 300 transitions of 4 states: `infer`, again, `update` with 50 rows, and the error of its
evidence (adaptive quadrature by SciPy). `ready NAME [chains]`: the ready priors with hyperparameters, S = 10, A = 2,
1,000 transitions; `per second` is the smallest effective number of independent draws among the hyperparameters (of
weighted draws what the weights are worth) in a second of a later `infer`; of a grid that number does not exist, and its
nodes are given. `large [chains]`: the sticky one, 500 states, 10^6 transitions. `rewards NAME [chains]`: rewards
without a conjugate, S = 4, A = 3, 300 transitions. `sbc NUMBER`: simulation-based calibration of a sticky hierarchy of
8 states, that number of simulations. `psrl PRIOR`: 6 seeds x 40 episodes x 20 steps on RiverSwim.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bayes_mdp.calibration import SbcOptions

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.host_engine import timed

S, A, NUMBER = 10, 2, 1000


def readme_prior() -> Callable[..., Any]:
    """The prior that README shows."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import bayes_mdp as bm

    def sticky(space: bm.StateActionSpace) -> bm.models.MDPSpec:
        stickiness = numpyro.sample("stickiness", dist.HalfNormal(5.0))
        with space.plates():
            rows = 0.5 + stickiness * jnp.eye(space.n_states, space.n_outcomes)[:, None, :]
            probs = numpyro.sample("transition", dist.Dirichlet(rows))
            paid = numpyro.sample("reward", dist.Beta(1.0, 1.0))
        return bm.models.MDPSpec(probs, reward=dist.Bernoulli(paid))

    return sticky


def readme_log_evidence(states: int, actions: int, data: Any) -> float:
    """Of that prior, by adaptive quadrature over its one number."""
    import numpy as np
    from scipy import integrate, stats
    from scipy.special import betaln, gammaln

    counts, paid = np.zeros((states, actions, states)), np.zeros((2, states, actions))
    np.add.at(counts, (data.state, data.action, data.next_state), 1.0)
    np.add.at(paid, (data.reward.astype(int), data.state, data.action), 1.0)
    rewards = betaln(1.0 + paid[1], 1.0 + paid[0]).sum()

    def log_joint(stickiness: float) -> float:
        rows = 0.5 + stickiness * np.eye(states)[:, None, :] + np.zeros(counts.shape)
        of_rows = (
            gammaln(rows.sum(-1)) - gammaln((rows + counts).sum(-1)) + (gammaln(rows + counts) - gammaln(rows)).sum(-1)
        )
        return stats.halfnorm.logpdf(stickiness, scale=5.0) + of_rows.sum() + rewards

    top = max(log_joint(x) for x in np.linspace(0.0, 20.0, 400))
    pieces = [
        integrate.quad(lambda x: np.exp(log_joint(x) - top), a, b, epsabs=0, epsrel=1e-11)[0]
        for a, b in ((0, 3), (3, 6), (6, 60))
    ]
    return top + float(np.log(sum(pieces)))


def readme_row() -> dict[str, float]:
    """`infer` first and again, `update` with 50 rows, the evidence."""
    import jax
    import numpy as np

    import bayes_mdp as bm

    bm.infer  # noqa: B018 - imports apart
    rng, prior, space = np.random.default_rng(0), readme_prior(), bm.StateActionSpace(4, 2)

    def log(number: int) -> bm.Transitions:
        state, action = rng.integers(4, size=number), rng.integers(2, size=number)
        after = np.where(rng.random(number) < 0.6, state, rng.integers(4, size=number))
        return bm.Transitions(state, action, (rng.random(number) < 0.3).astype(float), after)

    data, more, key = log(300), log(50), jax.random.key(0)
    first, posterior = timed(lambda: bm.infer(key, prior, data, space=space))
    again, _ = timed(lambda: bm.infer(key, prior, data, space=space))
    update, after = timed(lambda: posterior.update(more))
    update_again, _ = timed(lambda: after.update(log(50)))
    off = bm.evidence(posterior).log_evidence - readme_log_evidence(4, 2, data)
    return {
        "first": first,
        "again": again,
        "update": update,
        "update again": update_again,
        "evidence off": abs(off),
        "nodes": posterior.num_components,
    }


def simulate(size: int, actions: int, number: int, stickiness: float = 3.0) -> Any:
    """Sticky rows; rewards high in every other state."""
    import numpy as np

    import bayes_mdp as bm

    rng = np.random.default_rng(0)
    rows = rng.gamma(0.5 + stickiness * np.eye(size)[:, None, :], size=(size, actions, size))
    cumulative = (rows / rows.sum(-1, keepdims=True)).cumsum(-1)
    state, action = rng.integers(size, size=number), rng.integers(actions, size=number)
    uniform, after = rng.random(number), np.empty(number, int)
    for part in np.array_split(np.arange(number), max(number // 20_000, 1)):
        after[part] = np.minimum((cumulative[state[part], action[part]] < uniform[part, None]).sum(-1), size - 1)
    return bm.Transitions(state, action, 2.0 * (state % 2) + rng.normal(size=number), after)


def ready_prior(name: str) -> Any:
    """A ready prior with hyperparameters."""
    import numpy as np

    import bayes_mdp as bm

    distance = np.arange(S)[None, :] - np.arange(S)[:, None]
    features = np.stack([np.abs(distance), distance], -1)[:, None] / S
    return bm.models.feature_dynamics(features) if name == "feature_dynamics" else getattr(bm.models, name)()


READY = ("unknown_concentration", "sticky", "shared_rewards", "feature_dynamics", "clustered_states", "robust_rewards")


def ready_row(name: str, *, by_chains: bool) -> dict[str, float]:
    """`infer` first and again, and effective draws a second of the second call."""
    import jax

    import bayes_mdp as bm

    bm.infer  # noqa: B018
    prior, space, data = ready_prior(name), bm.StateActionSpace(S, A), simulate(S, A, NUMBER)
    chains = "factorised" if name == "robust_rewards" else "collapsed"
    return inferred(bm.infer, prior, space, data, chains if by_chains else "auto", jax.random.key(1))


def inferred(infer: Callable[..., Any], prior: Any, space: Any, data: Any, method: str, key: Any) -> dict[str, Any]:
    """What every row of `infer` says."""
    import jax

    import bayes_mdp as bm

    first, _ = timed(lambda: infer(jax.random.key(0), prior, data, space=space, method=method))
    again, posterior = timed(lambda: infer(key, prior, data, space=space, method=method))
    # Rewards without a conjugate have draws of their own beside rows in closed form.
    draws = posterior if posterior.method != "factorised" else posterior.rewards
    row = {"first": first, "again": again, "by": posterior.method}
    record = getattr(draws, "integration", None)
    if record is None:
        effective = smallest_effective(draws.mcmc)
        row |= {"effective": effective, "per second": effective / again}
    elif posterior.method == "quadrature":
        row |= {"nodes": posterior.num_components, "nodes per second": posterior.num_components / again}
    else:
        row |= {"effective": float(record.effective), "per second": float(record.effective) / again}
        row |= {"k": float(record.pareto_k), "by": f"{posterior.method}, weighted draws"}
    try:
        found = bm.evidence(posterior, key)
    except ValueError:  # chains with discrete sites have none
        return row
    return row | {"log evidence": found.log_evidence, "its error": found.standard_error}


def smallest_effective(chains: Any) -> float:
    """Among all numbers that move, but labels of clusters, which have no meaning."""
    import numpy as np
    from numpyro.diagnostics import effective_sample_size

    sizes = []
    for name, draws in chains.get_samples(group_by_chain=True).items():
        if name.startswith("cluster"):
            continue
        flat = np.asarray(draws, float).reshape(*draws.shape[:2], -1)
        sizes += [effective_sample_size(flat[..., i]) for i in range(flat.shape[-1]) if np.ptp(flat[..., i]) > 0]
    return float(min(sizes, default=np.nan))


def large_row(*, by_chains: bool) -> dict[str, float]:
    """The sticky prior over 500 states (dense rows), 4 actions, a million transitions."""
    import jax

    import bayes_mdp as bm

    bm.infer  # noqa: B018
    data, space = simulate(500, 4, 10**6, 20.0), bm.StateActionSpace(500, 4)
    method = "collapsed" if by_chains else "auto"
    return inferred(bm.infer, bm.models.sticky(), space, data, method, jax.random.key(1))


def reward_prior(name: str) -> Callable[..., Any]:
    """A program whose rewards have no conjugate prior."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import bayes_mdp as bm

    def cells(space: bm.StateActionSpace) -> tuple[Any, Any]:
        with space.plates():
            rows = numpyro.sample("transition", dist.Dirichlet(jnp.ones(space.n_outcomes)))
            mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
        return rows, mean

    def student(space: bm.StateActionSpace) -> bm.models.MDPSpec:
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        rows, mean = cells(space)
        return bm.models.MDPSpec(rows, dist.StudentT(4.0, mean, scale))

    def contaminated(space: bm.StateActionSpace) -> bm.models.MDPSpec:
        share = numpyro.sample("share", dist.Beta(1.0, 9.0))
        rows, mean = cells(space)
        shares = jnp.broadcast_to(jnp.stack([1.0 - share, share]), (*mean.shape, 2))
        law = dist.MixtureSameFamily(
            dist.Categorical(probs=shares), dist.Normal(mean[..., None], jnp.array([0.5, 3.0]))
        )
        return bm.models.MDPSpec(rows, law)

    def spread_by_action(space: bm.StateActionSpace) -> bm.models.MDPSpec:
        with numpyro.plate("number", space.n_actions):
            spread = numpyro.sample("spread", dist.HalfNormal(2.0))
        rows, mean = cells(space)
        return bm.models.MDPSpec(rows, dist.Laplace(mean, spread))

    return {"student": student, "contaminated": contaminated, "by action": spread_by_action}[name]


def rewards_row(name: str, *, by_chains: bool) -> dict[str, float]:
    """`infer` of rewards with outliers."""
    import jax
    import numpy as np

    import bayes_mdp as bm

    bm.infer  # noqa: B018
    rng = np.random.default_rng(0)
    state, action, after = (rng.integers(n, size=300) for n in (4, 3, 4))
    reward = np.arange(4.0)[state] + 0.3 * action + 0.5 * rng.standard_t(4, size=300)
    data, space = bm.Transitions(state, action, reward, after), bm.StateActionSpace(4, 3)
    return inferred(bm.infer, reward_prior(name), space, data, "factorised" if by_chains else "auto", jax.random.key(1))


def sbc_row(number: int) -> dict[str, float]:
    """Simulations of 100 transitions each."""
    import jax

    import bayes_mdp as bm

    bm.calibration.sbc, bm.infer  # noqa: B018
    space = bm.StateActionSpace(8, 2)
    simulate_all = lambda: bm.calibration.sbc(  # noqa: E731
        jax.random.key(0), bm.models.sticky(), space, num_simulations=number, options=SbcOptions(num_transitions=100)
    )
    return {"all": timed(simulate_all)[0]}


def psrl_row(prior: str) -> dict[str, float]:
    """A whole run, compilation with it."""
    import jax

    import bayes_mdp as bm

    bm.run, bm.infer  # noqa: B018
    belief = bm.models.sticky() if prior == "sticky" else bm.models.dirichlet_normal_gamma()
    run = lambda: bm.run(  # noqa: E731
        bm.agents.PSRL(),
        bm.envs.riverswim_episodic(),
        prior=belief,
        objective=bm.Episodic(20),
        num_episodes=40,
        num_seeds=6,
        key=jax.random.key(0),
    )
    seconds, result = timed(run)
    return {"all": seconds, "regret": float(result.regret.sum(result.regret.dims[1:]).mean())}


ROWS: dict[str, Callable[[], dict[str, float]]] = {
    "sticky": readme_row,
    "large": lambda: large_row(by_chains=False),
    "large chains": lambda: large_row(by_chains=True),
    **{
        f"ready {name}{' chains' * chains}": lambda name=name, chains=chains: ready_row(name, by_chains=chains)
        for name in READY
        for chains in (False, True)
    },
    **{
        f"rewards {name}{' chains' * chains}": lambda name=name, chains=chains: rewards_row(name, by_chains=chains)
        for name in ("student", "contaminated", "by action")
        for chains in (False, True)
    },
    **{f"sbc {number}": lambda number=number: sbc_row(number) for number in (32, 1000)},
    **{f"psrl {prior}": lambda prior=prior: psrl_row(prior) for prior in ("flat", "sticky")},
}


def measured(name: str, repeats: int) -> dict[str, Any]:
    """Medians over fresh processes; words as they are."""
    runs = []
    for _ in range(repeats):
        command = [sys.executable, "-m", "benchmarks.hierarchies", name, "--here"]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        runs.append(json.loads(output.splitlines()[-1]))
    first = runs[0]
    return {k: x if isinstance(x, str) else statistics.median(run[k] for run in runs) for k, x in first.items()}


def main() -> None:
    """Measure the rows that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one of {', '.join(ROWS)}; none: all of them")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--here", action="store_true", help="one measurement, in this process")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(ROWS[options.rows[0]]()))
        return
    for name in options.rows or list(ROWS):
        row = measured(name, options.repeats)
        said = (f"{key} {value if isinstance(value, str) else format(value, '.4g')}" for key, value in row.items())
        print(f"{name}: {'; '.join(said)}", flush=True)


if __name__ == "__main__":
    main()
