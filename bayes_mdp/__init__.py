"""Probabilistic programming for Bayesian decision making in Markov decision processes (MDPs).

From a log to an answer: `read_log`, `infer`, then `policy_value` or `decide`. A belief about an unknown MDP is a
NumPyro program (`models`); its posterior serves to judge policies, and agents to explore. What a posterior, a policy,
an agent and a reward law are, with shapes: `bayes_mdp.mdp.protocols`. Names stand here without `bm.`. A pair is a state
and an action; its transition row holds the probabilities of what follows; a site is an unknown of the program.

Data and beliefs

* read a log of transitions: load a table of states and actions from disk (CSV, Parquet) or a DataFrame: `read_log`;
  larger than memory: `read_log(..., chunksize=)`
* fit a posterior to transitions, that is, learn a belief about the MDP from data: `infer`; a prior to begin with:
  `models.default_prior`; MDPs drawn from a prior: `infer(key, prior, space=space).sample(key)`
* the posterior as an ArviZ object, and from there its numbers as a DataFrame: `to_arviz`
* write a policy by the labels of states and actions, also one for each step (week) of an episode: `space.policy`
* use posterior samples (draws) that another program made, such as Stan: `posterior_from_draws`
* why inference is slow: how `infer` would compute a posterior (in closed form, by an integral, by chains), and why no
  faster way: `explain`; how it did: `posterior.method`
* which of two or more priors explains the data better: `inference.bayes_factors`; the marginal likelihood of one:
  `evidence`
* write a posterior, or the result of a run, to a file: `save`; read it back: `load`; as an interval MDP for the model
  checkers Storm and PRISM: `verification.export_interval_mdp`

Policies

* how good one policy is: its value (expected return) with an interval that says how sure this is: `policy_value`; what
  was done in the log, as action probabilities: `behaviour_policy`
* which of several policies is best, and the difference between two: `compare_policies`
* whether a log supports a change of what is done today: `decide`, which recommends a policy or says why it does not;
  a decision for each subgroup, such as old and young: `recommend.decide_by_subgroup` (one policy's value in each:
  `policy_value(..., by=)`)
* how strong a hidden confounder would have to be to change an answer: `decisions.tipping_point`
* choose a policy by a criterion, such as the mean of the worst 5 % of the draws (conditional value at risk,
  "cvar:0.05"), the value in the 10th percentile ("percentile:0.1") or the worst case ("robust"): `choose`; the optimum
  of the mean MDP: `greedy`
* keep the expected cost within a budget, with a probability that you state: `choose` with a `decisions.Budget` in its
  `decisions.PolicyLimits`
* the probability that an action is optimal: `information.probability_optimal`
* how much of the variance of a return is luck, how much not knowing the MDP: `decisions.split_return_variance`
* the optimal policy of an MDP whose transition probabilities are given (value iteration, dynamic programming): `solve`;
  the value of a policy there: `evaluate`
* what one more patient, or one more observation of a state and action, is worth: `information.next_experiment`; a
  study of a given size: `information.evsi`; all that could be known: `information.evpi`
* whether a fact about a patient, such as the result of a test, is worth its cost: `information.value_of_covariates`
* cost-effectiveness of strategies (treatments with costs and effects): `strategies.cost_effectiveness`; the curve by
  willingness to pay: `strategies.acceptability`

Trust

* whether inference under a prior is calibrated, tested on simulated truths: values and best actions: `check`; each site
  of the program, by ranks: `calibration.sbc`
* whether the model could have produced the log: `calibration.predictive_check`; whether it contradicts held-out parts
  of the log so much that the choice of a policy is misled: `criticise`
* how much an answer depends on the prior instead of the data: `calibration.prior_sensitivity`
* whether the chains of a sampler have converged (r-hat, effective sample size): `calibration.diagnose`
* pictures: `plots`, such as the regret curves of several agents, `plots.plot_regret` of the results of `run` by name

Agents and people

* one agent that explores an environment (your own Gymnasium environment too), its reward and regret: `run`; step by
  step in a loop of your own: `Actor`; a Gymnasium environment's table as an MDP: `envs.from_gymnasium`
* which of several agents explores faster, on one or several problems: `compare`
* a grid of agents, settings and seeds, on many processes or a cluster: `sweeps.sweep`
* train a deep agent (a neural network with a replay): `deep.train`
* how people learn, from their choices (a reinforcement learning model fitted to subjects): `behaviour.fit`; two such
  models compared: `to_arviz` of each, then ArviZ's `compare`
* what experts' choices tell about the MDP, together with its transitions: `infer(..., choices=inference.Softmax(...))`

The how-to guide "Which function?" (docs/how-to/which-function.md) runs one example through functions with similar
names.
"""

import os
from importlib import import_module

import lazy_loader

from bayes_mdp.renamed import old_name

__version__ = "0.3.0"

# XLA writes to the screen that a compilation is slow, which a user cannot act upon; what fails is an exception as well.
# JAX reads this when it is loaded: it counts where this package is imported first, and nobody has set it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# The names are listed in __init__.pyi and loaded when they are first used: `import bayes_mdp` alone loads no NumPyro,
# cvxpy, ArviZ, Gymnasium or matplotlib.
_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """A listed name, a package that the front page does not list, or a name of 0.2."""
    if name in ("mdp", "recommend", "verification"):
        return import_module(f"{__name__}.{name}")
    return _listed(name) if name in __all__ else old_name(name)
