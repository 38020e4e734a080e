"""`bayes-mdp demo`: the whole workflow on Gymnasium's FrozenLake, from a log to a regret curve, in half a minute.

A log of random play is read; posteriors are inferred from it under a vague prior and under a prior of six lines; a
policy is evaluated under both, and compared with the true value, which is not known in practice; then agents explore
with both beliefs.
"""

import csv
import io
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents import PSRL, EpsilonGreedyQ
from bayes_mdp.decisions import compare_policies
from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.envs import from_gymnasium, read_log
from bayes_mdp.experiments.plots.result_plots import plot_regret, plot_values
from bayes_mdp.experiments.results import half_width
from bayes_mdp.experiments.run_agent import run
from bayes_mdp.inference import evidence, infer
from bayes_mdp.inference.route import InferredPosterior
from bayes_mdp.inference.storage import save
from bayes_mdp.mdp import Discounted, Environment, Log, SparseMDP, StateActionSpace
from bayes_mdp.models import MDPSpec
from bayes_mdp.models.mdp_spec import Prior
from bayes_mdp.utils.files import new_folder, write_beside
from bayes_mdp.utils.messages import see

ENV = "FrozenLake-v1"
SIDE, NUM_ACTIONS = 4, 4
DISCOUNT = 0.95
NUM_EPISODES, LONGEST_EPISODE = 300, 100
NUM_STEPS, NUM_SEEDS, REPLAN = 5000, 20, 20
# Left 0, down 1, right 2, up 3. The ice is slippery: two moves in three go astray, to either side.
POLICIES = {
    "shortest way": np.array([1, 2, 1, 0, 1, 0, 1, 0, 2, 1, 1, 0, 0, 2, 2, 0]),
    "careful": np.array([0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0]),
}
EVALUATED = "careful"


def vague(space: StateActionSpace) -> MDPSpec:
    """Any step may lead anywhere, any reward is as likely as not (Jeffreys' prior of each row and reward)."""
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(jnp.full(space.n_outcomes, 0.5)))
        reward = numpyro.sample("reward", dist.Beta(0.5, 0.5))
    return MDPSpec(probs, reward=dist.Bernoulli(reward))


def neighbours(space: StateActionSpace) -> MDPSpec:
    """A step reaches a neighbouring cell or ends the episode, and few steps pay."""
    adjacent = jnp.asarray(_adjacent_or_end())[:, None, :]
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(jnp.where(adjacent, 0.5, 0.001)))
        reward = numpyro.sample("reward", dist.Beta(0.05, 1.0))
    return MDPSpec(probs, reward=dist.Bernoulli(reward))


PRIORS: dict[str, Prior] = {"vague": vague, "neighbours": neighbours}


def _adjacent_or_end() -> np.ndarray:
    """Bool[S, O]: the cells next to each cell (itself too), and the end."""
    row, column = np.divmod(np.arange(SIDE**2), SIDE)
    distance = abs(row[:, None] - row) + abs(column[:, None] - column)
    return np.pad(distance <= 1, [(0, 0), (0, 1)], constant_values=True)


class Study(NamedTuple):
    """A posterior after the log under one prior, and the policies compared under it."""

    posterior: InferredPosterior
    comparison: PolicyComparison


def demo(folder: str | Path, *, seed: int = 0) -> None:
    """Run the demonstration, print the results, write a log, posteriors, results and a figure into `folder`."""
    with new_folder(folder):
        _demo(Path(folder), seed)


def _demo(folder: Path, seed: int) -> None:
    key_study, key_run = jax.random.split(jax.random.key(seed))
    env = from_gymnasium(ENV)

    _title(f"1. A log of {NUM_EPISODES} episodes of random play in {ENV}")
    log = _log(folder / "log.csv", seed)
    studies = {}
    for number, (name, prior) in enumerate(PRIORS.items(), start=2):
        _title(f"{number}. The prior {name!r}: {(prior.__doc__ or '').strip()}")
        studies[name] = _study(key_study, prior, log, env)
        print(studies[name].posterior)
        print()
        print(studies[name].comparison)
        save(studies[name].posterior, folder / f"posterior-{name}.bmdp")
    truth = _truth(env)
    _compare_priors(studies, truth)
    results = _explore(env, folder, key_run)
    _figure(studies, truth, results, folder / "demo.png")
    print(f"\nWritten to {folder}/: " + ", ".join(sorted(path.name for path in folder.iterdir())))


def _title(text: str) -> None:
    print(f"\n== {text}", flush=True)


def _log(path: Path, seed: int) -> Log:
    """Play at random, write a CSV file, and read it back."""
    import gymnasium

    env, rng = gymnasium.make(ENV), np.random.default_rng(seed)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["episode", "cell", "move", "reward", "next_cell", "over"])
    for episode in range(NUM_EPISODES):
        cell, _ = env.reset(seed=int(rng.integers(2**31)))
        for _ in range(LONGEST_EPISODE):
            move = int(rng.integers(NUM_ACTIONS))
            next_cell, reward, ended, cut, _ = env.step(move)
            writer.writerow([episode, cell, move, reward, next_cell, ended])
            cell = next_cell
            if ended or cut:
                break
    write_beside(path, lambda beside: beside.write_text(text.getvalue(), newline=""))
    log = read_log(
        path,
        state="cell",
        action="move",
        reward="reward",
        next_state="next_cell",
        terminated="over",
        states=range(SIDE**2),
        actions=range(NUM_ACTIONS),
    )
    reward = np.asarray(log.transitions.reward)
    print(f"{reward.size} transitions, the goal was reached {int(reward.sum())} times: {path}")
    return log


def _study(key: PRNGKeyArray, prior: Prior, log: Log, env: Environment) -> Study:
    """Infer, and evaluate both policies."""
    posterior = infer(key, prior, log, space=StateActionSpace.from_log(log))
    start = np.asarray(env.mdp.initial, np.float64)
    return Study(posterior, compare_policies(key, posterior, POLICIES, Discounted(DISCOUNT), initial=start))


def _truth(env: Environment) -> float:
    """The true value of the policy, v = reward + discount next v, from Gymnasium's table."""
    assert isinstance(env.mdp, SparseMDP)
    state, cells = np.arange(SIDE**2), (np.arange(SIDE**2), POLICIES[EVALUATED])
    follows = np.zeros((state.size, state.size))
    np.add.at(follows, (state[:, None], np.asarray(env.mdp.successor)[cells]), np.asarray(env.mdp.probability)[cells])
    value = np.linalg.solve(np.eye(state.size) - DISCOUNT * follows, np.asarray(env.mdp.reward)[cells])
    return float(np.asarray(env.mdp.initial) @ value)


def _compare_priors(studies: dict[str, Study], truth: float) -> None:
    """Intervals and the true value, and what is known without it: how likely either prior made the log."""
    _title(f"4. Which belief to trust? The true value of {EVALUATED!r} is {truth:.4f}")
    for name, study in studies.items():
        low, high = study.comparison.values[EVALUATED].interval
        verdict = "holds the truth" if low <= truth <= high else "MISSES the truth"
        density = f"without the truth: log evidence {evidence(study.posterior).log_evidence:.1f}"
        print(f"  {name:<12} 95 % interval [{low:.3f}, {high:.3f}] {verdict}; {density}")
    print(f"  More checks of a belief: prediction of left-out data, ArviZ {see('how-to/check-a-posterior')}")


def _explore(env: Environment, folder: Path, key: PRNGKeyArray) -> dict[str, xr.Dataset]:
    """PSRL under both beliefs against epsilon-greedy Q-learning."""
    _title(f"5. Agents that explore the lake: {NUM_STEPS} steps, {NUM_SEEDS} seeds, a new plan every {REPLAN} steps")
    cases = {
        "PSRL, prior neighbours": (PSRL(replan=REPLAN), neighbours),
        "PSRL, prior vague": (PSRL(replan=REPLAN), vague),
        "epsilon-greedy Q-learning": (EpsilonGreedyQ(), None),
    }
    results = {}
    print(f"  {'agent':<28} {'goals per 1000 steps':>22} {'regret':>16}")
    for name, (agent, prior) in cases.items():
        path = folder / f"run-{name.replace(',', '').replace(' ', '-')}.nc"
        results[name] = run(
            agent,
            env,
            prior=prior,
            objective=Discounted(DISCOUNT),
            num_steps=NUM_STEPS,
            num_seeds=NUM_SEEDS,
            key=key,
            path=path,
        )
        goals = 1000 * results[name].reward.sum("checkpoint").to_numpy() / NUM_STEPS
        regret = results[name].regret.to_numpy()[:, -1]
        print(f"  {name:<28} {_mean(goals):>22} {_mean(regret):>16}", flush=True)
    return results


def _mean(x: np.ndarray) -> str:
    return f"{x.mean():.2f} +- {half_width(x):.2f}"


def _figure(studies: dict[str, Study], truth: float, results: dict[str, xr.Dataset], path: Path) -> None:
    from bayes_mdp.utils.figures import NotebookFigure

    figure = NotebookFigure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draws = np.stack([study.comparison.values[EVALUATED].draws for study in studies.values()], axis=1)
    names = [f"prior {name}" for name in studies]
    plot_values(draws, truth=[truth] * len(names), names=names, axes=left)
    left.set_xlabel("")
    left.set_xlim(-0.6, len(names) - 0.4)
    left.set_title(f"How good is the policy {EVALUATED!r}, after {NUM_EPISODES} logged episodes?")
    plot_regret(results, axes=right)
    right.set_title("Agents that start from the same beliefs")
    write_beside(path, lambda beside: figure.savefig(beside, dpi=150))
