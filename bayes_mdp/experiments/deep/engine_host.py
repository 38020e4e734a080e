"""A training in environments that are stepped on the host (Gymnasium, Atari), for `train`: one seed."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents.neural.contract import NeuralAgent, Spec
from bayes_mdp.agents.neural.replay import replay_bytes
from bayes_mdp.experiments.deep.checkpoint import fill, named_arrays
from bayes_mdp.experiments.deep.evaluate import play_host
from bayes_mdp.experiments.deep.host import begin_host, restore_host, row_of, run_chunk_host
from bayes_mdp.experiments.deep.loop import Now, Seen
from bayes_mdp.experiments.deep.memory import check_bytes_fit
from bayes_mdp.experiments.deep.options import Evaluation, TrainOptions
from bayes_mdp.experiments.deep.vector_env import HostEnv


class HostEngine:
    """Iterations one by one, the environments on the host, the learning compiled.

    Args:
        agent: see `train`.
        env: where it learns.
        evaluation_env: where it is tried.
        options: see `train`; environments are those of `env`.
        key: of everything.
    """

    def __init__(
        self,
        agent: NeuralAgent,
        env: HostEnv,
        evaluation_env: HostEnv | None,
        options: TrainOptions,
        key: PRNGKeyArray,
    ) -> None:
        self._agent, self._env, self._evaluation_env, self._options = agent, env, evaluation_env, options
        self._begin_key, self._run_key, self._key_play = jax.random.split(key, 3)
        self._num_rows = options.replay_size // env.num_envs

    @property
    def spec(self) -> Spec:
        """What the agent is told."""
        return self._env.spec

    @property
    def map_shape(self) -> tuple[int, ...] | None:
        """There is no map."""
        return None

    def begin(self) -> Now:
        """Everything before the first iteration; refuses a replay that does not fit."""
        stack = self._env.rules.stack
        row = row_of(self._agent, self._env.spec, stack)
        size = replay_bytes(self._num_rows, row, stack)
        check_bytes_fit(size, f"{self._num_rows * self._env.num_envs:,} transitions")
        return begin_host(self._begin_key, self._agent, self._env, self._num_rows)

    def chunk(self, state: Now, first: int, number: int) -> tuple[Now, Seen]:
        """So many iterations, from `first` on."""
        state, seen = run_chunk_host(self._run_key, self._agent, self._env, state, range(first, first + number))
        return state, jax.tree.map(lambda x: np.asarray(x)[None], seen)

    def evaluate(self, state: Now, number: int) -> list[np.ndarray]:
        """The scores of the episodes of the evaluation with this number."""
        plan = self._options.evaluation
        assert isinstance(plan, Evaluation) and self._evaluation_env is not None
        key = jax.random.fold_in(self._key_play, number)
        return [play_host(key, self._agent, state.learner, self._evaluation_env, plan.epsilon, plan.steps)]

    def learner(self, state: Now) -> Any:
        """What was learnt."""
        return jax.tree.map(lambda x: x[None], state.learner)

    def arrays(self, state: Now) -> dict[str, Any]:
        """All of the state by name; what was learnt has an axis of seeds, as in `CompiledEngine`."""
        return named_arrays(state._replace(learner=self.learner(state)))

    def restore(self, arrays: Mapping[str, Any], where: str) -> Now:
        """The state that `arrays` gave; the environments are played to where they were."""
        fresh = begin_host(self._begin_key, self._agent, self._env, self._num_rows)
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), fresh)
        del fresh
        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), shapes.learner)
        filled: Now = fill(shapes._replace(learner=one), arrays, where)
        state = filled._replace(
            learner=jax.tree.map(lambda x: x[0], filled.learner),
            **{name: jax.tree.map(np.array, getattr(filled, name)) for name in _ON_HOST},
        )
        restore_host(self._env, state)
        return state


_ON_HOST = ("world", "observation", "started", "episode")
