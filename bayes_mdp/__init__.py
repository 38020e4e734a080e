"""Probabilistic programming for Bayesian decision making in Markov decision processes.

A belief about an unknown MDP is declared as a NumPyro program (`models`) and inferred from data (`infer`). The
posterior serves to compare policies (`compare_policies`), to diagnose (`check`, `to_arviz`) and to explore (`run`).
"""

from importlib import import_module

import lazy_loader

from bayes_mdp.renamed import old_name

__version__ = "0.2.0"

# The names are listed in __init__.pyi and loaded when they are first used: `import bayes_mdp` alone loads no NumPyro,
# cvxpy, ArviZ, Gymnasium or matplotlib.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """A listed name, a package that the front page does not list, or a name of 0.2."""
    if name in ("mdp", "recommend", "verification"):
        return import_module(f"{__name__}.{name}")
    return _listed(name) if name in __all__ else old_name(name)
