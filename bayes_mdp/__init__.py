"""Probabilistic programming for Bayesian decision making in Markov decision processes (MDPs).

From a log to an answer: `read_log`, `infer`, then `policy_value` or `decide`. A belief about an unknown MDP is a
NumPyro program (`models`); its posterior serves to judge policies, and agents to explore. What a posterior, a policy,
an agent and a reward law are, with shapes: `bayes_mdp.mdp.protocols`. Names with a dot stand in the module before it.

Data and beliefs

* read a log of transitions: load a table of states and actions from disk (CSV, Parquet) or a DataFrame: `read_log`;
  logs that are larger than memory: `envs.fold_log`
* fit a posterior to transitions, that is, learn a belief about the MDP from data: `infer`; a prior to begin with:
  `models.default_prior`
* use posterior samples (draws) that another program made, such as Stan: `posterior_from_draws`
* why inference has no closed form, and which route it takes: `explain`
* which prior or model explains the data better (its marginal likelihood): `evidence`; the Bayes factor of two:
  `inference.bayes_factors`
* write a posterior to a file: `save`; read it again, or any other stored file: `load`

Policies

* how good one policy is: its value (expected return) with an interval that says how sure this is: `policy_value`; what
  was done in the log, as action probabilities: `behaviour_policy`
* which of several policies is best, and the difference between two: `compare_policies`
* whether to change what is done today, by a log, safely: `decide`, which recommends a policy or says why not
* choose a policy by a criterion, such as the worst tenth of the draws (conditional value at risk) or the worst case
  (robust): `choose`; by the mean alone: `greedy`
* the optimal policy of an MDP whose transition probabilities are given (value iteration, dynamic programming): `solve`;
  the value of a policy there: `evaluate`
* what one more patient, or further observations of a pair, are worth before deciding: `information.next_experiment`; a
  study of a given size: `information.evsi`; all that could be known: `information.evpi`
* cost-effectiveness of strategies (treatments with costs and effects): `strategies.cost_effectiveness`; the curve by
  willingness to pay: `strategies.acceptability`

Trust

* whether a prior is calibrated, and inference right if the prior is true, by simulated truths: `check`; a test of each
  unknown: `calibration.sbc`
* whether the fitted model contradicts the log, tested on held-out data, in a way that misleads a choice: `criticise`;
  whether it could have produced the data at all: `calibration.predictive_check`
* whether the chains of a sampler have converged (r-hat, effective sample size): `calibration.diagnose`; pictures by
  ArviZ: `to_arviz`

Agents and people

* one agent that explores an environment, its reward and regret: `run`; step by step in a loop of your own: `Actor`
* which of several agents explores faster, on one or several problems: `compare`
* a grid of agents, settings and seeds, on many processes or a cluster: `sweeps.sweep`
* train a deep agent (a neural network with a replay): `deep.train`
* how people learn, from their choices (a reinforcement learning model fitted to subjects): `behaviour.fit`

"Which function?" in the how-to guides runs one example through those that sound alike.
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
