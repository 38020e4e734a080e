"""The conjugate families of rewards: one file each, registered once. A new one: CONTRIBUTING.md, "Add a reward law"."""

import bayes_mdp.inference.families.bernoulli
import bayes_mdp.inference.families.binomial
import bayes_mdp.inference.families.categorical
import bayes_mdp.inference.families.exponential
import bayes_mdp.inference.families.geometric
import bayes_mdp.inference.families.log_normal
import bayes_mdp.inference.families.normal
import bayes_mdp.inference.families.poisson  # noqa: F401 (each registers its families)
