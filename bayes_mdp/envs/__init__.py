"""Environments of the papers as arrays, Gymnasium's transition tables in, logs in (CSV, Parquet, DataFrame)."""

from bayes_mdp.envs.chain import chain
from bayes_mdp.envs.deep_sea import deep_sea, reachable
from bayes_mdp.envs.deep_sea_continuing import deep_sea_continuing
from bayes_mdp.envs.gymnasium_tables import ListedReward, from_gymnasium
from bayes_mdp.envs.logs import read_log
from bayes_mdp.envs.riverswim import riverswim, riverswim_episodic
from bayes_mdp.envs.to_gymnasium import to_gymnasium
from bayes_mdp.envs.two_action_chain import two_action_chain
from bayes_mdp.envs.wide_narrow import wide_narrow

ENVS = {
    "chain": chain,
    "deep_sea": deep_sea,
    "deep_sea_continuing": deep_sea_continuing,
    "riverswim": riverswim,
    "riverswim_episodic": riverswim_episodic,
    "two_action_chain": two_action_chain,
    "wide_narrow": wide_narrow,
}
"""Name -> factory that can be called without arguments."""

__all__ = [
    "ENVS",
    "ListedReward",
    "chain",
    "deep_sea",
    "deep_sea_continuing",
    "from_gymnasium",
    "reachable",
    "read_log",
    "riverswim",
    "riverswim_episodic",
    "to_gymnasium",
    "two_action_chain",
    "wide_narrow",
]
