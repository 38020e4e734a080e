"""Agents with the settings of the papers on Atari."""

from bayes_mdp.agents.neural import DQN, BonusDQN, Epsilon, NeuralUBE, QLearning, UncertaintyHead
from bayes_mdp.agents.neural.networks import NatureConv
from bayes_mdp.agents.neural.replay_learning import NeuralAgent
from bayes_mdp.utils.validation import check_name

REPLAY_SIZE = 1_000_000
"""Transitions that Mnih et al. (2015) remember."""

ATARI_AGENTS = ("dqn", "bonus_dqn", "ube_1_step", "ube_n_step")
"""The four of [UBE18] Table 1."""


def mnih_learning(learning_starts: int = 50_000) -> QLearning:
    """Learning as in Mnih et al. (2015), extended data table 1: batch 32 every fourth step, centred RMSProp 2.5e-4,
    errors clipped, target network copied every 10,000 gradient steps, discount .99."""
    return QLearning(
        discount=0.99,
        learning_rate=2.5e-4,
        optimizer="rmsprop",
        batch_size=32,
        learning_starts=learning_starts,
        train_every=4,
        target_every=10_000,
        huber=True,
    )


def atari_agent(name: str, *, beta: float = 0.01, learning_starts: int = 50_000) -> NeuralAgent:
    """An agent of [UBE18] section 5.1, on Mnih's network and learning.

    Args:
        name: "dqn"; "bonus_dqn", bonus 0.1 sqrt(phi' Sigma phi); "ube_1_step", "ube_n_step" with n = 150.
        beta: scale of the Thompson noise of UBE; .01, and .016 in figure 5.
        learning_starts: transitions before the first gradient step.

    Raises:
        ValueError: no such agent.
    """
    check_name("agent", name, ATARI_AGENTS)
    learning, trunk = mnih_learning(learning_starts), NatureConv()
    if name.startswith("ube"):
        head = UncertaintyHead(width=512, learning_rate=1e-3, num_steps=1 if name == "ube_1_step" else 150)
        return NeuralUBE(trunk=trunk, learning=learning, head=head, beta=beta)
    epsilon = Epsilon(1.0, 0.1, 1_000_000)
    made = DQN if name == "dqn" else BonusDQN
    return made(trunk=trunk, learning=learning, epsilon=epsilon)
