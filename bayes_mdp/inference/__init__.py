"""Prior and data to a posterior object (`infer`), and what is asked of it: policies judged, merged, saved.

Names are loaded when they are first used: `bayes_mdp.inference.value`, a leaf of plain arrays, costs no NumPyro.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayes_mdp.inference.bayes_optimum import BayesOptimal, bayes_optimal
    from bayes_mdp.inference.behaviour import behaviour_policy, greedy
    from bayes_mdp.inference.chains import Chains, SamplingWarning
    from bayes_mdp.inference.collapsed import CollapsedPosterior
    from bayes_mdp.inference.compare import PolicyComparison, compare_policies
    from bayes_mdp.inference.explanation import Explanation, explain
    from bayes_mdp.inference.fitting import Fit
    from bayes_mdp.inference.judge import PolicyValue, policy_value
    from bayes_mdp.inference.layered import LayeredPosterior
    from bayes_mdp.inference.methods import NUTS, SVI, Laplace
    from bayes_mdp.inference.mixtures import Mixture, mixture
    from bayes_mdp.inference.optimal_actions import probability_optimal
    from bayes_mdp.inference.perfect_information import PerfectInformation, expected_value_of_perfect_information
    from bayes_mdp.inference.posterior import ConjugatePosterior
    from bayes_mdp.inference.predictive import log_predictive
    from bayes_mdp.inference.return_split import ReturnSplit, split_return_variance
    from bayes_mdp.inference.route import fit_for, infer
    from bayes_mdp.inference.sampled.posterior import SampledPosterior
    from bayes_mdp.inference.shards import merge
    from bayes_mdp.inference.storage import load, save
    from bayes_mdp.inference.summary import describe, table
    from bayes_mdp.inference.weighted import CountedDraws, Draws, draws

_HOMES = {
    "bayes_optimum": "BayesOptimal bayes_optimal",
    "behaviour": "behaviour_policy greedy",
    "chains": "Chains SamplingWarning",
    "collapsed": "CollapsedPosterior",
    "compare": "PolicyComparison compare_policies",
    "weighted": "CountedDraws Draws draws",
    "route": "fit_for infer",
    "layered": "LayeredPosterior",
    "shards": "merge",
    "explanation": "Explanation explain",
    "fitting": "Fit",
    "judge": "PolicyValue policy_value",
    "methods": "NUTS SVI Laplace",
    "mixtures": "Mixture mixture",
    "optimal_actions": "probability_optimal",
    "perfect_information": "PerfectInformation expected_value_of_perfect_information",
    "posterior": "ConjugatePosterior",
    "return_split": "ReturnSplit split_return_variance",
    "predictive": "log_predictive",
    "sampled.posterior": "SampledPosterior",
    "storage": "load save",
    "summary": "describe table",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "NUTS",
    "SVI",
    "BayesOptimal",
    "Chains",
    "CollapsedPosterior",
    "ConjugatePosterior",
    "CountedDraws",
    "Draws",
    "Explanation",
    "Fit",
    "Laplace",
    "LayeredPosterior",
    "Mixture",
    "PerfectInformation",
    "PolicyComparison",
    "PolicyValue",
    "ReturnSplit",
    "SampledPosterior",
    "SamplingWarning",
    "bayes_optimal",
    "behaviour_policy",
    "compare_policies",
    "describe",
    "draws",
    "expected_value_of_perfect_information",
    "explain",
    "fit_for",
    "greedy",
    "infer",
    "load",
    "log_predictive",
    "merge",
    "mixture",
    "policy_value",
    "probability_optimal",
    "save",
    "split_return_variance",
    "table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'bayes_mdp.inference' has no attribute {name!r}")
    value = getattr(import_module(f"bayes_mdp.inference.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
