"""Posterior draws that are exact, and fast on CPU under `jit` and `vmap`: gamma, Dirichlet, normal-gamma."""

from typing import TYPE_CHECKING

from bayes_mdp.renamed import with_old_names

if not TYPE_CHECKING:  # a type checker takes no name of 0.2
    __getattr__ = with_old_names(__name__)
