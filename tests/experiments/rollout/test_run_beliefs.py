"""The belief of a run before its first step."""

import jax

from bayes_mdp.agents import PSRL
from bayes_mdp.experiments.rollout.run_beliefs import initial_belief
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.models import dirichlet_bernoulli


def _structure(concentration):
    belief = initial_belief(
        jax.random.key(0), dirichlet_bernoulli(concentration=concentration), StateActionSpace(3, 2), PSRL()
    )
    return jax.tree.structure(belief), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(belief)]


def test_priors_of_one_structure_are_one_compiled_run():
    """What is static in a belief decides whether a compiled run serves it: of two priors it is the same."""
    assert _structure(0.5) == _structure(0.25)
    # All ones are drawn by other code (exponentials).
    assert _structure(0.5)[0] != _structure(1.0)[0]
