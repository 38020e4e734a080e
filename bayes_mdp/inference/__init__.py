"""Prior and data to a posterior object (`infer`), and what is asked of it: policies judged, merged, saved.

Names are loaded when they are first used: `bayes_mdp.inference.value`, a leaf of plain arrays, costs no NumPyro.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayes_mdp.inference.behaviour import behaviour_policy, greedy
    from bayes_mdp.inference.compare import PolicyComparison, compare_policies
    from bayes_mdp.inference.draws import CountedDraws, Draws, draws
    from bayes_mdp.inference.infer import infer
    from bayes_mdp.inference.layered import LayeredPosterior
    from bayes_mdp.inference.merge import merge
    from bayes_mdp.inference.policy_value import PolicyValue, policy_value
    from bayes_mdp.inference.posterior import ConjugatePosterior
    from bayes_mdp.inference.predictive import log_predictive
    from bayes_mdp.inference.storage import load, save
    from bayes_mdp.inference.summary import describe, table

_HOMES = {
    "behaviour": "behaviour_policy greedy",
    "compare": "PolicyComparison compare_policies",
    "draws": "CountedDraws Draws draws",
    "infer": "infer",
    "layered": "LayeredPosterior",
    "merge": "merge",
    "policy_value": "PolicyValue policy_value",
    "posterior": "ConjugatePosterior",
    "predictive": "log_predictive",
    "storage": "load save",
    "summary": "describe table",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "ConjugatePosterior",
    "CountedDraws",
    "Draws",
    "LayeredPosterior",
    "PolicyComparison",
    "PolicyValue",
    "behaviour_policy",
    "compare_policies",
    "describe",
    "draws",
    "greedy",
    "infer",
    "load",
    "log_predictive",
    "merge",
    "policy_value",
    "save",
    "table",
]


class _Room(ModuleType):
    """Some functions share the name of their module: loading the module must not hide the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Room


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'bayes_mdp.inference' has no attribute {name!r}")
    value = getattr(import_module(f"bayes_mdp.inference.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
