"""Inference: a prior program and data to a posterior, by the best route that can be proven.

Start with `infer`; `explain` says which route it takes and why, `evidence` and `bayes_factors` compare priors.
`NUTS`, `SVI`, `Laplace` and `Gibbs` ask for a way that draws; `mixture` and `posterior_samples` make a posterior of
posteriors and of MDPs; `table` is one as a table.
"""

import lazy_loader

from bayes_mdp.renamed import with_old_names

# Listed in __init__.pyi, loaded when first used: `bayes_mdp.inference.value`, which is plain arrays, loads no NumPyro.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__name__, _listed)
