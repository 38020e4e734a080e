"""Training of deep agents: the compiled loop, the host-stepped one, evaluation, checkpoints (face: `bm.deep`)."""

from typing import TYPE_CHECKING

from bayes_mdp.renamed import with_old_names

if not TYPE_CHECKING:  # a type checker takes no name of 0.2
    __getattr__ = with_old_names(__name__)
