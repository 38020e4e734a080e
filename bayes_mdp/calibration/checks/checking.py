"""`check`: calibration of a posterior for decisions in an MDP. Host-side; it compiles its own program.

With a log it is posterior SBC, calibration conditional on the log (Säilynoja, Schmitt, Bürkner and Vehtari 2025,
*Posterior SBC: simulation-based calibration checking conditional on data*): truths are drawn from the posterior given
the log, and new data from each truth. A truth is then distributed as a draw of the posterior given log and new data
together. This checks inference near the log, not all over the prior.
"""

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from bayes_mdp.calibration.belief.posterior_views import FittedPosterior
from bayes_mdp.calibration.belief.transition_law import Law
from bayes_mdp.calibration.checks.check_result import FORMAT, Check
from bayes_mdp.calibration.checks.check_scores import Simulated, numbers
from bayes_mdp.calibration.simulation_based.prior_sbc import identity_of, options_of, run_simulations, sampler
from bayes_mdp.calibration.simulation_based.quantities import (
    CHOSEN_POLICY,
    Quantity,
    chosen_policy,
    optimal_actions,
    values,
)
from bayes_mdp.calibration.simulation_based.ranks import Behaviour, Design, Truth, look_at_draws
from bayes_mdp.decisions.policy_evaluation import describe_objective
from bayes_mdp.inference.compiled_fit import Fit
from bayes_mdp.inference.draws.methods import Method
from bayes_mdp.inference.route import fit_for, infer
from bayes_mdp.mdp import (
    AverageReward,
    Discounted,
    Environment,
    Episodic,
    Log,
    Objective,
    StateActionSpace,
    Transitions,
)
from bayes_mdp.mdp.objectives import check_objective
from bayes_mdp.mdp.space import check_space
from bayes_mdp.models.mdp_spec import Prior, RewardTable, reward_law
from bayes_mdp.models.reward_laws import law_of_first
from bayes_mdp.parallel import ExecutorLike, check_executor
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.files import check_file
from bayes_mdp.utils.validation import check_count, check_functions, check_key, check_name, check_number

PER_PAIR = 10


class _Source(NamedTuple):
    """Where truths and data come from: the log, if there is one, and descriptions for the report."""

    log: Transitions | None
    name: str
    num_transitions: int
    behaviour: str


def check(  # noqa: PLR0913 - what is simulated, inferred and looked at
    key: PRNGKeyArray,
    prior: Prior,
    space: StateActionSpace,
    *,
    data: Log | Transitions | None = None,
    objective: Objective | None = None,
    quantities: Mapping[str, Quantity] | None = None,
    quantity: Literal["chosen policy"] | None = None,
    num_simulations: int = 200,
    num_draws: int = 200,
    num_transitions: int | None = None,
    method: str | Method = "auto",
    behaviour: Behaviour = None,
    false_alarm: float = 0.01,
    path: str | Path | None = None,
    executor: ExecutorLike = None,
) -> Check:
    """Simulation-based calibration of decisions: coverage, contraction, z-scores and a verdict; `print` shows it.

    Truths are drawn from the prior, or near `data` (see `truths_near`), and inferred from simulated transitions, all in
    one compiled program (see `sbc`). For every quantity the truth is compared with the draws of its posterior: ranks,
    coverage of intervals, z-scores. All quantities together are tested by the ranks of an energy score. Whether an
    action is optimal is an event, of which the posterior gives a probability forecast; it is tested by its Brier score
    (against that of every draw in the place of the truth), and shown as a reliability diagram.

    The verdict: exact tests of uniform ranks (see `ecdf`) of each quantity and of the joint score,
    and a bound on the tails of the Brier score; Bonferroni over all: a calibrated posterior is rejected with
    probability `false_alarm` at most. `Check.at` tests the same simulations at another one.

    The dataset of the result, with dims simulation, quantity, level, pair and bin: `truth`, `rank`, `posterior_mean`,
    `posterior_sd`, `interval_low`, `interval_high` (central 90 %), `z_score`, `contraction` [simulation, quantity];
    `coverage` [quantity, level]; `p_value`, `varies` [quantity]; `energy_score` (of the truth), `energy_score_draws`
    (mean of the draws in its place), `joint_rank` [simulation] and `joint_p_value`; `optimal`, `forecast`
    [simulation, pair]; `brier_score`, `brier_expected`, `brier_z`, `brier_p_value`; `reliability_forecast`,
    `reliability_frequency`, `reliability_error`, `reliability_count` [bin]. Attributes: the configuration, the key and
    the versions.

    Args:
        key: of all simulations.
        prior: a NumPyro program, space -> `MDPSpec`.
        space: of the prior.
        data: a log to check around; None: all over the prior.
        objective: of the values; None: `Discounted(0.9)`, or `Episodic(H)` in a space with a horizon.
        quantities: name -> function of a `Drawn` (its `mdp`, `solution`, ...) that gives a number. None: the optimal
            value of every state and of every pair (of the first step of an episode), and the probability that an
            action is optimal.
        quantity: "chosen policy" in place of `quantities`: the value (mean over first states) of the policy that is
            optimal in the mean of each simulated posterior. This tests whether its interval contains the true value as
            often as stated, although the policy was chosen with the same data. For posteriors of draws, whose mean is
            made of the draws that are ranked, the test is approximate.
        num_simulations: number of truths.
        num_draws: of each posterior.
        num_transitions: of each truth; None: ten for each pair. With `data`: as many as it holds.
        method: as for `sbc`.
        behaviour: as for `sbc`: None: pairs at random; or a policy. With `data`: the pairs of the log.
        false_alarm: probability that a calibrated posterior is called not calibrated.
        path: NetCDF file for the dataset (`load_check` reads it). Finished chunks are kept beside it: the same call
            resumes from them.
        executor: where the simulations are computed, as for `sbc`.

    Raises:
        ValueError, TypeError: an argument that cannot be used (as `infer`, `sbc`); a quantity that is not finite in
            some draw; no quantity that varies under the prior.

    Example:
        >>> prior, space = bm.models.dirichlet_bernoulli(), bm.StateActionSpace(1, 2)
        >>> result = bm.check(jax.random.key(0), prior, space, num_simulations=20, num_transitions=10)
        >>> result.calibrated
        True
    """
    check_key("key", key)
    kept = None if path is None else _kept_beside(path)
    for name, count in (("num_simulations", num_simulations), ("num_draws", num_draws)):
        check_count(name, count, 10)
    check_number("false_alarm", false_alarm, lambda x: 0 < x < 1, "a probability between 0 and 1")
    check_space(space)
    check_executor(executor)
    check_functions("quantities", quantities)
    if quantity is not None:
        check_name("quantity", quantity, (CHOSEN_POLICY,), ", or None")
        if quantities is not None:
            raise ValueError(f"quantity is {quantity!r} with quantities, expected one of them")
    if objective is not None:
        check_objective(objective)
    fit = fit_for(prior, space, method, sampler=sampler(num_draws))
    objective = _objective(objective, space)
    source = _source(data, space, num_transitions, behaviour)
    asked = values(space, objective) if quantities is None else dict(quantities)
    events = optimal_actions(space, objective) if quantities is None else {}
    if quantity is not None:
        asked, events = chosen_policy(space), {}
    design = Design(prior, space, num_draws, source.num_transitions, {**asked, **events}, behaviour, objective)
    design = design._replace(chooses=quantity is not None)
    key_posterior, key_simulations, key_ties = jax.random.split(key, 3)
    if source.log is not None:
        posterior = infer(key_posterior, prior, data, space=space, method=method)
        design = design._replace(draw_truth=truths_near(posterior, source.log, design))
    attributes = _configuration(key, prior, fit, objective, source, num_draws)
    program = identity_of((prior, space, quantities, quantity, behaviour, objective, method, source.log))
    shared = _shared(attributes, method) | {"program": program}
    simulated = run_simulations(key_simulations, design, fit, num_simulations, shared, kept, executor)
    rng = host_generator(key_ties)
    dataset = numbers(rng, _split(simulated, list(asked), list(events)))
    answer = Check(dataset.assign_attrs(attributes, false_alarm=false_alarm))
    if path is not None and kept is not None:
        answer.to_netcdf(path)
        kept.unlink(missing_ok=True)
    return answer


def _kept_beside(path: str | Path) -> Path:
    """The file of finished chunks. Both files are checked before any work.

    Raises:
        ValueError, OSError: one of them cannot be written.
    """
    check_file(path)
    return check_file(f"{path}.partial")


def _objective(objective: Objective | None, space: StateActionSpace) -> Objective:
    if objective is None:
        return Discounted(0.9) if space.horizon is None else Episodic(space.horizon)
    if isinstance(objective, AverageReward) and space.ends:
        raise ValueError("objective is AverageReward() and episodes can end, expected another objective")
    return objective


def _source(
    data: Log | Transitions | None, space: StateActionSpace, num_transitions: int | None, behaviour: Behaviour
) -> _Source:
    if data is None:
        cells = int(np.prod(space.shape)) if space.legal is None else int(np.sum(space.legal)) * (space.horizon or 1)
        number = PER_PAIR * cells if num_transitions is None else num_transitions
        check_count("num_transitions", number)
        return _Source(None, "the prior", number, "pairs at random" if behaviour is None else "a given policy")
    for name, value in (("num_transitions", num_transitions), ("behaviour", behaviour)):
        if value is not None:
            raise ValueError(f"{name} is given with data, expected None: the new data have the pairs of the log")
    if not isinstance(data, Log | Transitions):
        raise TypeError(f"data is a {type(data).__name__}, expected Transitions or a Log")
    log = data.transitions if isinstance(data, Log) else data
    name = f"the posterior of {data.source}" if isinstance(data, Log) else "the posterior of the data"
    return _Source(log, name, int(np.size(log.state)), "the pairs of the log once more")


def _split(simulated: xr.Dataset, asked: list[str], events: list[str]) -> Simulated:
    """The quantities, and the events of which action is optimal."""
    numbers, chances = simulated.sel(quantity=asked), simulated.sel(quantity=events)
    truth, draws = (numbers[name].to_numpy().astype(np.float64) for name in ("truth", "draws"))
    event, happened = (chances[name].to_numpy().astype(np.float64) for name in ("truth", "draws"))
    pairs = [name.removeprefix("optimal(").removesuffix(")") for name in events]
    return Simulated(asked, truth, draws, numbers["rank"].to_numpy(), pairs, event, happened)


def _configuration(
    key: PRNGKeyArray, prior: Prior, fit: Fit, objective: Objective, source: _Source, num_draws: int
) -> dict[str, str | int]:
    """The configuration of the check, as NetCDF attributes."""
    packages = ("bayes-mdp", "jax", "numpyro", "numpy")
    return {
        "format": FORMAT,
        "prior": getattr(prior, "__qualname__", type(prior).__name__).split(".")[0],
        "method": fit.method,
        "objective": describe_objective(objective),
        "source": source.name,
        "behaviour": source.behaviour,
        "num_draws": num_draws,
        "num_transitions": source.num_transitions,
        "precision": str(jax.dtypes.canonicalize_dtype(float)),
        "key": json.dumps([str(jax.random.key_impl(key)), np.asarray(jax.random.key_data(key)).tolist()]),
        "versions": json.dumps({"python": platform.python_version(), **{name: version(name) for name in packages}}),
        "created_at": datetime.now(UTC).isoformat(),
    }


def _shared(attributes: dict[str, str | int], method: str | Method) -> dict[str, str]:
    """The attributes that finished chunks must have in common with the call that resumes from them."""
    names = ("prior", "method", "objective", "source", "precision", "key", "versions")
    return {**{name: str(attributes[name]) for name in names}, "options": options_of(method)}


def truths_near(
    posterior: FittedPosterior, log: Transitions, design: Design
) -> Callable[[PRNGKeyArray, PRNGKeyArray], Truth]:
    """(key of the truth, key of the data) -> a draw of `posterior`, and the log followed by as many new transitions.

    The new transitions start from the pairs of the log, in its order, and their rewards are observed where its are. The
    likelihood is conditional on states and actions, so any choice of them is valid.
    """
    observed = _filled(log, design.space)

    def draw_truth(key_truth: PRNGKeyArray, key_data: PRNGKeyArray) -> Truth:
        one = design._replace(num_draws=1)
        laws, sites = look_at_draws(key_truth, posterior, one, lambda law: law)
        rewards = laws.rewards
        known = None if rewards.known is None else rewards.known[0]
        of_one = None if rewards.law is None else law_of_first(rewards.law)
        law = Law(laws.rows[0], RewardTable(of_one, known, rewards.by_outcome))
        sites = {name: values[0] for name, values in sites.items()}
        new = _again(key_data, law, observed, design.space)
        return Truth(law, sites, jax.tree.map(lambda *parts: jnp.concatenate(parts), observed, new))

    return draw_truth


def _filled(log: Transitions, space: StateActionSpace) -> Transitions:
    """The log with all columns that its replicates have."""
    number = np.size(log.state)
    zero, no = np.zeros(number, np.int32), np.zeros(number, bool)
    return Transitions(
        np.array(log.state, np.int32),
        np.array(log.action, np.int32),
        np.zeros(number) if log.reward is None else np.array(log.reward, np.float64),
        np.array(log.next_state, np.int32),
        (no if log.terminated is None else np.array(log.terminated)) if space.ends else None,
        step=None if space.horizon is None else (zero if log.step is None else np.array(log.step, np.int32)),
        reward_observed=no if log.reward is None else log.reward_observed,
        next_observed=log.next_observed,
    )


def _again(key: PRNGKeyArray, law: Law, log: Transitions, space: StateActionSpace) -> Transitions:
    """A new outcome and reward from the pair of every transition."""
    initial = jnp.full(space.n_states, 1.0 / space.n_states)
    environment = Environment(replace(law.mdp(space), initial=initial), reward_law(law.rewards, space))
    step = jnp.zeros_like(log.state) if log.step is None else log.step
    keys = jax.random.split(key, len(log.state))
    next_state, reward, terminated = jax.vmap(environment.step)(keys, log.state, log.action, step)
    if log.next_observed is not None:
        terminated = terminated & jnp.asarray(log.next_observed)
    return replace(log, next_state=next_state, reward=reward, terminated=terminated if space.ends else None)
