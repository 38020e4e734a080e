"""Names and arguments of 0.2 that stand elsewhere in 0.3. Each works until 0.4 and warns (docs: "From 0.2 to 0.3").

`RENAMED` is the table of names, `MOVED` that of arguments; the page is made from both.
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
    "BayesAdaptivePlan": "decisions.BayesAdaptivePlan",
    "BayesOptimal": "decisions.BayesOptimal",
    "cohort_total": "strategies.cohort_total",
    "cohort_trace": "strategies.cohort_trace",
    "cost_effectiveness": "strategies.cost_effectiveness",
    "cycle_weights": "strategies.cycle_weights",
    "dataset": "calibration.dataset",
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
    "fold_log": "envs.fold_log",
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
    "NextExperiment": "information.NextExperiment",
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
    "SoftSolution": "planning.SoftSolution",
    "solve_soft": "planning.solve_soft",
    "split_log": "mdp.split_log",
    "split_return_variance": "decisions.split_return_variance",
    "Study": "information.Study",
    "SVI": "inference.SVI",
    "sweep": "sweeps.sweep",
    "sweep_status": "sweeps.sweep_status",
    "to_gymnasium": "envs.to_gymnasium",
    "train": "deep.train",
    "Training": "deep.Training",
    "TrainOptions": "deep.TrainOptions",
    "unroll": "mdp.unroll",
}
"""Name in `bayes_mdp` of 0.2 -> its place below `bayes_mdp` now."""


def old_name(name: str) -> object:
    """What `bayes_mdp.NAME` was in 0.2, with a warning that says where it stands now.

    Raises:
        AttributeError: no such name then either.
    """
    if name not in RENAMED:
        raise AttributeError(f"module 'bayes_mdp' has no attribute {name!r}")
    module, _, attribute = f"bayes_mdp.{RENAMED[name]}".rpartition(".")
    message = f"bm.{name} is bm.{RENAMED[name]} since 0.3; the old name goes in 0.4"
    warnings.warn(message, FutureWarning, stacklevel=3)
    return getattr(import_module(module), attribute)


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
