"""Probabilistic programming for Bayesian decision making in Markov decision processes.

A belief about an unknown MDP is declared as a NumPyro program (`models`) and inferred from data (`infer`). The
posterior serves to compare policies (`compare_policies`), to diagnose (`check`, `to_arviz`) and to explore (`run`).
"""

import lazy_loader

__version__ = "0.2.0"

# The names are listed in __init__.pyi and loaded when they are first used: `import bayes_mdp` alone loads no NumPyro,
# cvxpy, ArviZ, Gymnasium or matplotlib.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
