"""Names and arguments of 0.2 that stand elsewhere in 0.3. Each works until 0.4 and warns (docs: "From 0.2 to 0.3").

`RENAMED` and `UNLISTED` are the tables of names, `MOVED` that of arguments; the page is made from them.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

RENAMED = {
    "acceptability": "strategies.acceptability",
    "anchored_values": "decisions.anchored_values",
    "bayes_factors": "inference.bayes_factors",
    "bayes_optimal": "decisions.bayes_optimal",
    "cohort_total": "strategies.cohort_total",
    "cohort_trace": "strategies.cohort_trace",
    "cost_effectiveness": "strategies.cost_effectiveness",
    "cycle_weights": "strategies.cycle_weights",
    "decision_model": "strategies.decision_model",
    "default_prior": "models.default_prior",
    "describe_compare": "experiments.describe_compare",
    "diagnose": "calibration.diagnose",
    "evaluate_agent": "deep.evaluate_agent",
    "Evaluation": "deep.Evaluation",
    "evpi": "information.evpi",
    "evppi": "information.evppi",
    "evsi": "information.evsi",
    "expected_value_of_perfect_information": "information.expected_regret",
    "FoldedLog": "mdp.FoldedLog",
    "from_gymnasium": "envs.from_gymnasium",
    "Laplace": "inference.Laplace",
    "load_result": "load",
    "load_sweep": "load",
    "load_training": "deep.load_training",
    "loo_pit": "calibration.loo_pit",
    "merge": "inference.merge",
    "net_benefit_of_sampling": "information.net_benefit_of_sampling",
    "next_experiment": "information.next_experiment",
    "NUTS": "inference.NUTS",
    "Outcome": "decisions.Outcome",
    "plan_bayes_adaptive": "decisions.plan_bayes_adaptive",
    "plot_acceptability": "plots.plot_acceptability",
    "plot_check": "plots.plot_check",
    "plot_cohort": "plots.plot_cohort",
    "plot_compare": "plots.plot_compare",
    "plot_cost_effectiveness": "plots.plot_cost_effectiveness",
    "plot_env": "plots.plot_env",
    "plot_expected_loss": "plots.plot_expected_loss",
    "plot_policies": "plots.plot_policies",
    "plot_posterior": "plots.plot_posterior",
    "plot_regret": "plots.plot_regret",
    "plot_training": "plots.plot_training",
    "plot_trajectory": "plots.plot_trajectory",
    "plot_values": "plots.plot_values",
    "plot_visits": "plots.plot_visits",
    "PolicyStudy": "information.PolicyStudy",
    "Posterior": "mdp.Posterior",
    "predictive_check": "calibration.predictive_check",
    "prior_sensitivity": "calibration.prior_sensitivity",
    "probability_optimal": "information.probability_optimal",
    "RunOptions": "experiments.RunOptions",
    "sbc": "calibration.sbc",
    "show_versions": "experiments.show_versions",
    "solve_soft": "planning.solve_soft",
    "split_log": "mdp.split_log",
    "split_return_variance": "decisions.split_return_variance",
    "Study": "information.Study",
    "SVI": "inference.SVI",
    "sweep": "sweeps.sweep",
    "sweep_status": "sweeps.sweep_status",
    "to_gymnasium": "envs.to_gymnasium",
    "train": "deep.train",
    "TrainOptions": "deep.TrainOptions",
    "unroll": "mdp.unroll",
    "calibration.plot_check": "plots.plot_check",
    "decisions.acceptability": "strategies.acceptability",
    "decisions.cohort_total": "strategies.cohort_total",
    "decisions.cohort_trace": "strategies.cohort_trace",
    "decisions.cost_effectiveness": "strategies.cost_effectiveness",
    "decisions.cycle_weights": "strategies.cycle_weights",
    "decisions.decision_model": "strategies.decision_model",
    "decisions.discounted_population": "information.discounted_population",
    "decisions.evpi": "information.evpi",
    "decisions.evppi": "information.evppi",
    "decisions.evsi": "information.evsi",
    "decisions.expected_value_of_perfect_information": "information.expected_regret",
    "decisions.net_benefit_of_sampling": "information.net_benefit_of_sampling",
    "decisions.next_experiment": "information.next_experiment",
    "decisions.PolicyStudy": "information.PolicyStudy",
    "decisions.probability_optimal": "information.probability_optimal",
    "decisions.StrategyDraws": "strategies.StrategyDraws",
    "decisions.Study": "information.Study",
    "decisions.trace_dataset": "strategies.trace_dataset",
    "experiments.load_result": "load",
    "experiments.load_sweep": "load",
    "experiments.plot_acceptability": "plots.plot_acceptability",
    "experiments.plot_cohort": "plots.plot_cohort",
    "experiments.plot_compare": "plots.plot_compare",
    "experiments.plot_cost_effectiveness": "plots.plot_cost_effectiveness",
    "experiments.plot_env": "plots.plot_env",
    "experiments.plot_expected_loss": "plots.plot_expected_loss",
    "experiments.plot_learning_curve": "plots.plot_learning_curve",
    "experiments.plot_policies": "plots.plot_policies",
    "experiments.plot_posterior": "plots.plot_posterior",
    "experiments.plot_regret": "plots.plot_regret",
    "experiments.plot_shrinkage": "plots.plot_shrinkage",
    "experiments.plot_trajectory": "plots.plot_trajectory",
    "experiments.plot_values": "plots.plot_values",
    "experiments.sweep": "sweeps.sweep",
    "experiments.sweep_status": "sweeps.sweep_status",
    "calibration.save_draws": "save",
    "experiments.save_result": "save",
    "inference.load": "load",
    "inference.save": "save",
    "experiments.training.evaluate_agent": "deep.evaluate_agent",
    "experiments.training.Evaluation": "deep.Evaluation",
    "experiments.training.host_env": "deep.host_env",
    "experiments.training.load_training": "deep.load_training",
    "experiments.training.plot_training": "plots.plot_training",
    "experiments.training.plot_visits": "plots.plot_visits",
    "experiments.training.TrainOptions": "deep.TrainOptions",
}
"""Name below `bayes_mdp` of 0.2 -> its place below `bayes_mdp` now."""

UNLISTED = {
    "agents.common.learner": "agents.ChecksBelief agents.ChecksLearnt agents.ChecksOptimism",
    "agents.common.replan": "agents.Doubling agents.EveryEpisode agents.EverySteps agents.When",
    "agents.common.table_policies": "agents.GaussianThompson",
    "agents.model_free.trial_learning": "agents.LearnsFromEpisodes",
    "agents.neural.features": "agents.neural.UnitBelief",
    "agents.neural.replay_learning": "agents.neural.Values",
    "agents.optimism.mean_mdp_plans": "agents.RegularisedIDS",
    "behaviour.fit_behaviour": "behaviour.BehaviourPosterior behaviour.subject_log_likelihood",
    "behaviour.likelihood": "behaviour.choice_log_probs",
    "calibration.arviz.diagnostics": (
        "calibration.Diagnosis calibration.Loo calibration.load_draws calibration.summary"
    ),
    "calibration.arviz.export": "dataset calibration.dataset",
    "calibration.arviz.sensitivity": "calibration.PriorSensitivity",
    "calibration.checks.check_result": "calibration.Check calibration.load_check",
    "calibration.criticism.criticise": "calibration.Criticism",
    "calibration.predictive.check_choices": "calibration.ChoiceCheck",
    "calibration.predictive.loo_pit": "calibration.LooPit",
    "calibration.predictive.predictive_check": "calibration.PredictiveCheck",
    "calibration.simulation_based.behaviour_sbc": "calibration.DrawnBehaviour",
    "calibration.simulation_based.sbc_result": "calibration.SBC",
    "decisions.bayes_adaptive_plan": "BayesAdaptivePlan decisions.BayesAdaptivePlan",
    "decisions.bayes_optimum": "BayesOptimal decisions.BayesOptimal",
    "decisions.behaviour": "decisions.AnchoredValue",
    "decisions.choosing.choose": "decisions.PolicyChoice",
    "decisions.information.learning_problem": "decisions.InformationValue",
    "decisions.information.next_experiment": "NextExperiment decisions.NextExperiment",
    "decisions.information.site_information": "decisions.SamplingBenefit",
    "decisions.outcomes": "decisions.OutcomeValue",
    "decisions.perfect_information": "decisions.PerfectInformation",
    "decisions.policy_comparison": "decisions.PolicyComparison",
    "decisions.policy_evaluation": "decisions.PolicyValue",
    "decisions.return_variance_split": "decisions.ReturnSplit",
    "decisions.strategies.cost_effectiveness": "decisions.CostEffectiveness",
    "decisions.strategies.decision_model": "decisions.DecisionModel",
    "decisions.verdict": "decisions.Verdict",
    "envs.gymnasium.from_gymnasium": "envs.ListedReward",
    "envs.logs.read_log": "fold_log envs.fold_log",
    "envs.observed.classic_control": "envs.CartPole envs.MountainCar",
    "envs.observed.gymnax_env": "envs.GymnaxEnv",
    "envs.observed.one_hot_observations": (
        "envs.DeepSeaObserved envs.OneHotObserved envs.deep_sea_stochastic_observed"
    ),
    "envs.papers.chain_mdps": "envs.reachable",
    "envs.papers.racetrack": "envs.MailRobot envs.RobotState envs.Track",
    "envs.sepsis": "envs.ICUSepsis",
    "experiments.compare_agents": "experiments.comparison_agents",
    "experiments.training.train": "Training experiments.training.Training",
    "experiments.training.vector_env": "experiments.training.HostEnv",
    "inference.compiled_fit": "inference.Fit",
    "inference.conjugate.conjugate_posterior": "inference.LayeredPosterior",
    "inference.draws.chains": "inference.Chains",
    "inference.draws.weighted_samples": "inference.CountedSamples inference.PosteriorSamples",
    "inference.explanation": "inference.Explanation",
    "inference.model_evidence": "inference.BayesFactors inference.Evidence",
    "inference.pooled_posterior": "inference.PooledPosterior",
    "inference.summary": "inference.describe",
    "inference.value.last_layer_laplace": "inference.value.LaplaceFit inference.value.LastLayerLaplace",
    "inference.value.linear_gaussian": "inference.value.CovarianceGaussian inference.value.LinearGaussian",
    "inference.value.returns": (
        "inference.value.ACCURATE inference.value.FAST inference.value.Quadrature "
        "inference.value.ReturnBelief inference.value.mixture_update inference.value.moment_update "
        "inference.value.target inference.value.value_of_perfect_information"
    ),
    "inference.mixtures": "inference.Mixture",
    "inference.value.student_t": "inference.value.StudentT",
    "mdp.agent": "agents.ReplanRule mdp.DecisionPoint mdp.ReplanRule",
    "mdp.data.folded_log": "mdp.Source",
    "mdp.data.transitions": "mdp.check_transitions",
    "mdp.environment": "mdp.HasCells",
    "mdp.protocols": (
        "mdp.CanBorrow mdp.CanCountPrior mdp.CanExpectNext mdp.CanInform mdp.CanPredict mdp.CanRefit "
        "mdp.CanSampleBackup mdp.CanSampleLazily mdp.CanSampleNext mdp.CanSplit mdp.CanThin "
        "mdp.CanWeighPrior mdp.NamesSharedParameters mdp.PriorWeight"
    ),
    "mdp.validity": "mdp.Validity",
    "models.joint": "models.observe models.summarise",
    "models.mdp_spec": (
        "models.RewardTable models.check_spec models.reward_table models.to_mdp models.transition_table"
    ),
    "models.sufficient_statistics": "models.CategoricalCounts models.RewardStatistics models.Statistics",
    "planning.episodic": "planning.backward_induction",
    "planning.policy_arrays": "planning.policy_probs",
    "planning.solution": "SoftSolution planning.PolicyEvaluation planning.SoftSolution planning.Solution",
    "planning.solve": "planning.policy_chain",
    "random.dirichlet_draws": "random.dirichlet random.dirichlet_expectation random.dirichlet_split",
    "random.gamma_draws": "random.exponential random.gamma random.loggamma random.normal_gamma",
    "random.threefry": "random.fused_key random.plain_key",
    "recommend.decision": "recommend.Decision",
}
"""Module below `bayes_mdp` -> names of 0.2 that are listed no longer, and that it defines.

Records that a function returns are documented below that function; the rest is what the package needs itself.
"""
PLACES = RENAMED | {
    name: f"{module}.{name.rpartition('.')[2]}" for module, names in UNLISTED.items() for name in names.split()
}
"""Of both tables: name of 0.2 -> where it stands now."""


def old_name(name: str, package: str = "") -> object:
    """What `bayes_mdp.NAME` was in 0.2, with a warning that says where it stands now.

    Args:
        name: the attribute that was asked for.
        package: below `bayes_mdp`, of which it was asked; "": of `bayes_mdp` itself.

    Raises:
        AttributeError: no such name then either.
    """
    old = f"{package}.{name}".lstrip(".")
    if old not in PLACES:
        raise AttributeError(f"module {f'bayes_mdp.{package}'.rstrip('.')!r} has no attribute {name!r}")
    module, _, attribute = f"bayes_mdp.{PLACES[old]}".rpartition(".")
    message = f"bm.{old} is not listed since 0.3 and goes in 0.4: import {attribute} from {module}"
    if old in RENAMED:
        message = f"bm.{old} is bm.{RENAMED[old]} since 0.3; the old name goes in 0.4"
    warnings.warn(message, FutureWarning, stacklevel=3)
    return getattr(import_module(module), attribute)


def with_old_names(package: str, listed: Callable[[str], object] | None = None) -> Callable[[str], object]:
    """The `__getattr__` of a package: its names of 0.2, and what it lists.

    Args:
        package: its `__name__`.
        listed: gets a name that is loaded when it is first used; None: the package has loaded all of its names.
    """
    below = package.removeprefix("bayes_mdp.")

    def get(name: str) -> object:
        if listed is not None and f"{below}.{name}" not in PLACES:
            return listed(name)
        return old_name(name, below)

    return get


def old_attribute(words: str, value: Callable[[Any], Any]) -> property:
    """An attribute of 0.2 that works until 0.4, with a warning.

    Args:
        words: what it is and what to write, as in "Diagnosis.trustworthy is not diagnosis.problems".
        value: its value, of the object.
    """

    def get(owner: object) -> Any:
        warnings.warn(f"{words} since 0.3; the old one goes in 0.4", FutureWarning, stacklevel=2)
        return value(owner)

    return property(get, doc=f"{words} since 0.3.")


class Moved(NamedTuple):
    """Arguments of a function that are fields of a record now, or have another name.

    Args:
        record: place of the record below `bayes_mdp`; "": they are arguments still.
        fields: old argument -> field of the record, or new argument.
        argument: of the function, that takes the record.
    """

    record: str
    fields: dict[str, str]
    argument: str = "options"


def _fields(record: str, same: str, **renamed: str) -> Moved:
    """The arguments `same` (words) under their old names, and `renamed` under new ones."""
    return Moved(record, {name: name for name in same.split()} | renamed)


MOVED = {
    "choose": _fields("decisions.ChooseOptions", "limits slack num_draws confidence"),
    "decide": _fields(
        "recommend.DecideOptions", "space criterion limits slack split initial value_range num_draws checks confidence"
    ),
    "check": _fields(
        "calibration.CheckOptions",
        "quantities num_draws num_transitions method behaviour false_alarm executor",
        quantity="quantities",
    ),
    "calibration.sbc": _fields(
        "calibration.SbcOptions", "num_draws num_transitions method quantities behaviour executor"
    ),
    "calibration.sbc_behaviour": _fields(
        "calibration.SbcBehaviourOptions", "num_subjects num_choices num_draws pooling horizon sampler quantities"
    ),
    "criticise": _fields("calibration.CriticiseOptions", "num_replicates false_alarm choose_by"),
    "compare_policies": _fields("decisions.VerdictOptions", "value_range held_out outcomes"),
    "policy_value": _fields("decisions.ValueOptions", "outcomes"),
    "decisions.plan_bayes_adaptive": _fields(
        "decisions.SearchOptions", "max_seconds max_depth exploration max_nodes num_draws reward_bins"
    ),
    "information.net_benefit_of_sampling": Moved(
        "information.StudyEconomics",
        {name: name for name in ("population", "fixed_cost", "cost_per_size")},
        "economics",
    ),
    "save": Moved("", {"posterior": "result"}),
    "behaviour.simulate": Moved("", {"num_persons": "subjects"}),
    "run": _fields("experiments.RunOptions", "regret"),
    "sweeps.sweep": _fields("experiments.SweepOptions", "num_blocks regret executor retries"),
    "deep.train": _fields("deep.TrainOptions", "evaluation_env"),
}
"""Function below `bayes_mdp` -> where its arguments of 0.2 stand now."""


def accepts_moved(door: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function take its arguments of 0.2, with a warning each that names the record and the field.

    They are put into the record that is given, or into one of defaults. A call without an old argument goes straight
    through.

    Args:
        door: the function's name in `MOVED`.
    """
    moved = MOVED[door]

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if not moved.fields.keys().isdisjoint(kwargs):
                return function(*args, **_with_new_places(door, moved, kwargs))
            return function(*args, **kwargs)

        return call

    return decorate


def new_argument(door: str, argument: str) -> str:
    """How an argument of 0.2 is given now, `options=bm.decisions.ChooseOptions(slack=...)`."""
    record, fields, name = MOVED[door]
    return f"{name}=bm.{record}({fields[argument]}=...)" if record else f"{fields[argument]}=..."


def _with_new_places(door: str, moved: Moved, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a call, those of 0.2 in their new places."""
    rest = dict(kwargs)
    fields: dict[str, Any] = {}
    for name in [name for name in kwargs if name in moved.fields]:
        message = f"bm.{door}({name}=...) is bm.{door}({new_argument(door, name)}) since 0.3; the old one goes in 0.4"
        warnings.warn(message, FutureWarning, stacklevel=3)
        field, value = moved.fields[name], rest.pop(name)
        # Two old arguments can have become one field: then None, the default of each, says nothing.
        if fields.get(field) is not None and value is not None:
            raise ValueError(f"{name} is {value!r} with {field}, expected one of them")
        fields[field] = value if fields.get(field) is None else fields[field]
    if not moved.record:
        for name in fields.keys() & rest.keys():
            raise ValueError(f"{name} is given under its old name too, expected it once")
        return {**rest, **fields}
    return {**rest, moved.argument: _record(moved, rest, fields)}


def _record(moved: Moved, given: dict[str, Any], fields: dict[str, Any]) -> object:
    """The record that a call gives, or one of defaults, with fields replaced.

    Raises:
        TypeError: the call gives something else, or leaves out a field without a default.
    """
    module, _, name = f"bayes_mdp.{moved.record}".rpartition(".")
    record = getattr(import_module(module), name)
    options = given.get(moved.argument)
    if options is None:
        return record(**fields)
    if type(options) not in record.__mro__[:-1]:  # the record, or one that it is derived from
        raise TypeError(f"{moved.argument} is {options!r}, expected {name}")
    # A record of the doors that share its fields (`RunOptions` for a sweep) is taken over.
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return record(**{**values, **fields})
