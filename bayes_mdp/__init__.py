"""Probabilistic programming for Bayesian reinforcement learning in Markov decision processes.

A belief about an unknown MDP is declared as a NumPyro program (`models`), inferred from data (`infer`), and consumed:
by judging policies (`compare_policies`), by ArviZ (`to_arviz`), by exploration agents (`agents`, `run`).

The names below are loaded when they are first used (PEP 562): importing this package loads no cvxpy, ArviZ, Gymnasium,
NumPyro or matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayes_mdp import agents, envs, inference, models, planning
    from bayes_mdp.calibration import (
        check,
        dataset,
        diagnose,
        loo_pit,
        plot_check,
        predictive_check,
        prior_sensitivity,
        sbc,
        to_arviz,
    )
    from bayes_mdp.envs import from_gymnasium, read_log, to_gymnasium
    from bayes_mdp.experiments import (
        Actor,
        compare,
        describe_compare,
        load_result,
        plot_compare,
        plot_env,
        plot_posterior,
        plot_regret,
        plot_trajectory,
        plot_values,
        run,
    )
    from bayes_mdp.experiments.deep import (
        Evaluation,
        Training,
        TrainOptions,
        evaluate_agent,
        load_training,
        plot_training,
        plot_visits,
        train,
    )
    from bayes_mdp.inference import (
        NUTS,
        SVI,
        BayesOptimal,
        Laplace,
        bayes_optimal,
        behaviour_policy,
        compare_policies,
        expected_value_of_perfect_information,
        explain,
        greedy,
        infer,
        load,
        merge,
        policy_value,
        probability_optimal,
        save,
        split_return_variance,
    )
    from bayes_mdp.mdp import (
        MDP,
        AverageReward,
        Counts,
        Discounted,
        Environment,
        Episodic,
        FirstExit,
        SparseMDP,
        StateActionSpace,
        Transitions,
        unroll,
    )
    from bayes_mdp.planning import evaluate, solve

__version__ = "0.1.0"

_ROOMS = ("agents", "calibration", "envs", "experiments", "inference", "mdp", "models", "planning")

_HOMES = {
    "bayes_mdp.mdp": (
        "MDP SparseMDP StateActionSpace Environment Transitions Counts "
        "Discounted Episodic AverageReward FirstExit unroll"
    ),
    "bayes_mdp.planning": "solve evaluate",
    "bayes_mdp.inference": (
        "infer explain NUTS SVI Laplace merge save load policy_value compare_policies greedy behaviour_policy "
        "BayesOptimal bayes_optimal probability_optimal expected_value_of_perfect_information split_return_variance"
    ),
    "bayes_mdp.envs": "read_log from_gymnasium to_gymnasium",
    "bayes_mdp.calibration": (
        "to_arviz dataset check plot_check sbc predictive_check loo_pit prior_sensitivity diagnose"
    ),
    "bayes_mdp.experiments": (
        "run Actor compare describe_compare load_result plot_compare plot_regret plot_values "
        "plot_posterior plot_env plot_trajectory"
    ),
    "bayes_mdp.experiments.deep": (
        "train Training TrainOptions Evaluation load_training evaluate_agent plot_training plot_visits"
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "MDP",
    "NUTS",
    "SVI",
    "Actor",
    "AverageReward",
    "BayesOptimal",
    "Counts",
    "Discounted",
    "Environment",
    "Episodic",
    "Evaluation",
    "FirstExit",
    "Laplace",
    "SparseMDP",
    "StateActionSpace",
    "TrainOptions",
    "Training",
    "Transitions",
    "agents",
    "bayes_optimal",
    "behaviour_policy",
    "check",
    "compare",
    "compare_policies",
    "dataset",
    "describe_compare",
    "diagnose",
    "envs",
    "evaluate",
    "evaluate_agent",
    "expected_value_of_perfect_information",
    "explain",
    "from_gymnasium",
    "greedy",
    "infer",
    "inference",
    "load",
    "load_result",
    "load_training",
    "loo_pit",
    "merge",
    "models",
    "planning",
    "plot_check",
    "plot_compare",
    "plot_env",
    "plot_posterior",
    "plot_regret",
    "plot_training",
    "plot_trajectory",
    "plot_values",
    "plot_visits",
    "policy_value",
    "predictive_check",
    "prior_sensitivity",
    "probability_optimal",
    "read_log",
    "run",
    "save",
    "sbc",
    "solve",
    "split_return_variance",
    "to_arviz",
    "to_gymnasium",
    "train",
    "unroll",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    elif name in _ROOMS:
        value = import_module(f"bayes_mdp.{name}")
    else:
        raise AttributeError(f"module 'bayes_mdp' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_ROOMS})
