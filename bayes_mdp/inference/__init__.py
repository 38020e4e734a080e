"""Inference: a prior program and data to a posterior, by the best route that can be proven (`infer`).

`conjugate`, `mixture`, `collapsed` and `sampled` hold the posteriors, `detection` the proofs that one of them is exact.
"""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used: `bayes_mdp.inference.value`, which is plain arrays, loads no NumPyro.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
