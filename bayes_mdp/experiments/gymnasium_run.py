"""`run` in a Gymnasium environment: seeds one after the other, step by step through an `Actor`, the same Dataset."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bayes_mdp.agents import Learner
from bayes_mdp.experiments.account import units
from bayes_mdp.experiments.actor import Actor
from bayes_mdp.experiments.beliefs import initial_belief, listed, thins
from bayes_mdp.experiments.case import Case, check_request
from bayes_mdp.experiments.describe import describe_case
from bayes_mdp.experiments.execute import Outcome
from bayes_mdp.experiments.gymnasium_envs import ParallelEnvs, SingleEnv, is_made_anew, open_env
from bayes_mdp.experiments.gymnasium_play import Diary, play
from bayes_mdp.experiments.gymnasium_truth import Known, describe_env, known_mdp
from bayes_mdp.experiments.layout import Layout, layout_of
from bayes_mdp.experiments.loop import Row, streams
from bayes_mdp.experiments.progress import Progress
from bayes_mdp.experiments.refits import COSTS, Refits
from bayes_mdp.experiments.regret import optimal_rate
from bayes_mdp.experiments.results import to_dataset
from bayes_mdp.experiments.simulator import simulator
from bayes_mdp.experiments.snapshot import Snapshots, join
from bayes_mdp.inference.sampling import plain_key
from bayes_mdp.mdp import AverageReward, Environment, NormalReward, StateActionSpace

if TYPE_CHECKING:
    import xarray as xr


class Trial(NamedTuple):
    """A run, ready to be played: as `Prepared`, but for one environment that is already open."""

    case: Case
    opened: SingleEnv | ParallelEnvs
    known: Known
    layout: Layout
    belief: Any
    belief_keys: Any
    keys: Any

    def belief_of(self, seed: int) -> Any:
        """Before any data; a belief that was inferred by draws is thinned for every seed by itself."""
        if self.belief_keys is None:
            return self.belief
        return self.belief.thinned(self.belief_keys[seed], self.case.options.num_particles)


def run_gymnasium(case: Case, path: str | Path | None) -> "xr.Dataset":
    """What `run` does for a Gymnasium environment (see there). Host side.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """
    opened = open_env(case.env)
    try:
        return _run(case, opened, path)
    finally:
        if is_made_anew(case.env):
            opened.env.close()


def _run(case: Case, opened: SingleEnv | ParallelEnvs, path: str | Path | None) -> "xr.Dataset":
    known = known_mdp(opened.env)
    space = _space(case, opened, known)
    case = replace(case, asked_regret=case.asked_regret or "average", options=replace(case.options, space=space))
    check_request(case)
    _check(case, opened)
    trial = _prepare(case, opened, known)
    regret_rate, why = _rate(case, known)
    environment = describe_env(case.env, opened.env, opened.lanes)
    attributes = describe_case(case, environment=environment, space=space, belief=trial.belief)
    outcome = _play_all(trial, Snapshots(path, attributes, seconds=case.options.snapshot_seconds))
    regret = np.cumsum(regret_rate * units(trial.layout) - outcome.reward, axis=1)
    if why:
        attributes["regret_unknown"] = why
    return to_dataset(outcome, regret, trial.layout, space, attributes)


def _space(case: Case, opened: SingleEnv | ParallelEnvs, known: Known) -> StateActionSpace:
    """What was given (as the space of the run, of the posterior), or what is known of the environment."""
    given = case.options.space or getattr(case.prior, "space", None)
    if isinstance(given, StateActionSpace):
        return given
    if known.mdp is None:
        ends = not isinstance(case.objective, AverageReward)
        return StateActionSpace(opened.n_states, opened.n_actions, ends=ends)
    mdp = known.mdp
    legal = None if mdp.legal is None else np.asarray(mdp.legal)
    ends = mdp.end_probs is not None
    return StateActionSpace(opened.n_states, opened.n_actions, horizon=mdp.horizon, ends=ends, legal=legal)


def _check(case: Case, opened: SingleEnv | ParallelEnvs) -> None:
    if case.regret != "average":
        raise ValueError(f"regret is {case.regret!r}, expected 'average' or None for a Gymnasium environment")
    if case.options.target is not None:
        raise ValueError("options.target is given, expected None for a Gymnasium environment")
    sizes, expected = (case.space.n_states, case.space.n_actions), (opened.n_states, opened.n_actions)
    if sizes != expected:
        raise ValueError(f"space has {sizes} states and actions, expected {expected}, those of env")


def _prepare(case: Case, opened: SingleEnv | ParallelEnvs, known: Known) -> Trial:
    # The keys are those of a compiled run (see `prepare`).
    key_seeds, key_belief, _ = jax.random.split(plain_key(case.key), 3)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key_seeds, jnp.arange(case.num_seeds))
    belief = belief_keys = None
    if not isinstance(case.agent, Learner):
        belief = initial_belief(key_belief, case.prior, case.space, case.agent, case.options.method)
        if thins(belief, case.prior):
            belief_keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key_belief, jnp.arange(case.num_seeds))
        if known.ours:
            assert known.mdp is not None
            outcome = simulator(Environment(known.mdp, NormalReward(known.mdp.reward))).outcome
            belief = listed(belief, outcome, case.space)
    layout = layout_of(case, ends=case.space.ends, values=False)
    return Trial(case, opened, known, layout, belief, belief_keys, keys)


def _rate(case: Case, known: Known) -> tuple[float, str]:
    """The optimal reward of a step or episode; where it is not known, nan and why."""
    if known.mdp is None:
        return float("nan"), known.why
    try:
        return float(optimal_rate(known.mdp, case.objective)), ""
    except ValueError as error:
        return float("nan"), str(error)


def _play_all(trial: Trial, snapshots: Snapshots) -> Outcome:
    """All seeds. A snapshot holds the seeds that are finished: to it, they are what rows are in a compiled run."""
    layout, shape, num_seeds = trial.layout, trial.case.space.shape, trial.case.num_seeds
    done, visits, seeds = snapshots.restore(jnp.zeros((num_seeds, *shape)))
    cost = dict.fromkeys(COSTS, 0.0)
    progress = Progress(layout.row_length, layout.num_rows * num_seeds, show=trial.case.options.progress)
    with progress as bar, snapshots as saved:
        for seed in range(done, num_seeds):
            reward, actor = _play_seed(trial, seed, bar)
            seeds.append(_column(reward, actor.refits))
            visits = visits.at[seed].set(actor.visits)
            cost = {name: cost[name] + actor.refits.cost[name] for name in COSTS}
            saved.keep(seed + 1, visits, seeds)
            saved.write_if_old()
    rows = join(seeds, num_seeds)
    outcome = Outcome(rows.reward.T, np.zeros_like(rows.reward.T), np.asarray(visits))
    return outcome if rows.refits is None else outcome._replace(refits=rows.refits.sum(0).astype(int), refit_cost=cost)


def _column(reward: Float[np.ndarray, " rows"], refits: Refits) -> Row:
    """The rows of one seed; the number of its refits stands in the last one."""
    nothing = np.zeros((reward.size, 1))
    if not refits.needed:
        return Row(reward[:, None], nothing)
    number = nothing.copy()
    number[-1] = refits.cost["calls"]
    return Row(reward[:, None], nothing, number)


def _play_seed(trial: Trial, seed: int, bar: Progress) -> tuple[Float[np.ndarray, " rows"], Any]:
    """Rewards of the rows, and the actor at the end."""
    case, key = trial.case, trial.keys[seed]
    own = is_made_anew(case.env) and seed > 0
    opened = open_env(case.env) if own else trial.opened
    belief = trial.belief_of(seed)
    initial = None if trial.known.mdp is None else trial.known.mdp.initial
    actor = Actor(case.agent, case.space, objective=case.objective, key=key, prior=belief, initial=initial)
    words = jax.random.key_data(streams(key).env)
    diary = Diary(trial.layout, bar, first_row=seed * trial.layout.num_rows)
    try:
        play(opened, actor, diary, seed=int(words[1]) >> 1)
    finally:
        if own:
            opened.env.close()
    return diary.reward, actor
