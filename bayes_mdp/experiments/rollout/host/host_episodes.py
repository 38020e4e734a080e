"""A run in whole episodes by the numba loop: the arrays of `SeedState`, advanced in place between two looks of Python.

What an iteration does is in `episode_kernel`. A state can be handed over to the compiled loop of XLA and back at any
chunk: both read and write the same arrays, and draw the same random numbers.
"""

import jax
import numpy as np
from jaxtyping import Array, Int, Key

from bayes_mdp.agents import TDBMA, SarsaLambda
from bayes_mdp.experiments.rollout.host.episode_kernel import Learnt, Numbers, Sizes, play_all_seeds
from bayes_mdp.experiments.rollout.host.listed_environment import ListedEnvironment
from bayes_mdp.experiments.rollout.sweep_loop import EpisodeContext, EpisodeLayout, SeedState


class HostEpisodes:
    """All seeds of a run, played by numba.

    Args:
        layout: the shape of the run.
        setting: what does not change (see `host_choice.why_not_episodes` for what is supported).
        env: the environment.
        keys: of the seeds.
        seeds: their states.
        done: chunks that were played.

    Attributes:
        seeds: the states; `play` writes into their arrays.
        done: Int[]: chunks that were played, written together with the states.
    """

    def __init__(
        self,
        layout: EpisodeLayout,
        setting: EpisodeContext,
        env: ListedEnvironment,
        keys: Key[Array, " N"],
        seeds: SeedState,
        done: int,
    ) -> None:
        agent = setting.agent
        assert isinstance(agent, (SarsaLambda, TDBMA))
        self.seeds: SeedState = jax.tree.map(np.array, seeds)  # copies, that can be written
        self.done = np.array(done)
        self._keys = np.asarray(jax.random.key_data(keys))
        self._env = env
        averages = isinstance(agent, TDBMA)
        self._sizes = Sizes(*layout, frozen=agent.frozen, bootstrap=agent.bootstrap, averages=averages)
        kind = self.seeds.tables.q.dtype.type
        trace_decay = 0.0 if isinstance(agent, TDBMA) else agent.trace_decay
        numbers = agent.epsilon, agent.learning_rate, trace_decay, setting.discount, np.finfo(kind).tiny, 1.0
        self._numbers = Numbers(*(kind(x) for x in numbers))

    def play(self, num_chunks: int) -> None:
        """Some more chunks of every seed that has not finished."""
        first = int(self.done)
        chunks = first, first + num_chunks
        play_all_seeds(self._sizes, self._numbers, self._env, self._arrays, self._keys, chunks, self.done.reshape(1))

    @property
    def phase(self) -> Int[np.ndarray, " N"]:
        """FORWARD, BACKWARD or FINISHED."""
        return np.asarray(self.seeds.phase)

    @property
    def episode(self) -> Int[np.ndarray, " N"]:
        """Finished episodes."""
        return np.asarray(self.seeds.episode)

    @property
    def _arrays(self) -> Learnt:
        """The arrays of the states, without copies."""
        seeds, steps = self.seeds, self.seeds.steps
        none = np.zeros((1, 0), self.seeds.tables.q.dtype)  # not used
        statistics = np.zeros((1, 0, 3), none.dtype) if seeds.tables.statistics is None else seeds.tables.statistics
        frozen_q = none if steps.frozen_q is None else steps.frozen_q
        tables, message = (seeds.tables.q, statistics), seeds.message
        where = seeds.state, seeds.phase, seeds.at, seeds.episode
        episode = steps.pair, steps.reward, frozen_q
        sweep = message.ret, message.next_q, message.last, message.cut
        return Learnt._make(np.asarray(x) for x in (*tables, *where, *episode, *sweep, seeds.sums, seeds.log))
