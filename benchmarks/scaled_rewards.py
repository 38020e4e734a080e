"""An environment with its rewards in another unit."""

from typing import Any

from bayes_mdp.mdp import MDP, Environment, NormalReward


def scaled(env: Environment, factor: float) -> Environment:
    """`env` with its rewards multiplied; for reward laws that are `NormalReward`."""
    mdp: Any = env.mdp
    law: Any = env.reward_law
    scale = None if law.scale is None else law.scale * factor
    reward_law = NormalReward(law.mean * factor, scale, by_outcome=law.by_outcome)
    optimum = None if env.optimum is None else env.optimum * factor
    scaled_mdp = MDP(mdp.transition_probs, mdp.reward * factor, initial=mdp.initial)
    return Environment(scaled_mdp, reward_law, name=env.name, optimum=optimum)
