"""The compiled programs of a training, all seeds side by side, for an environment in JAX."""

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents.neural.contract import NeuralAgent, Spec
from bayes_mdp.experiments.deep.checkpoint import fill, named_arrays
from bayes_mdp.experiments.deep.evaluate import play_seeds
from bayes_mdp.experiments.deep.loop import Now, Seen, begin, run_chunk, spec_of
from bayes_mdp.experiments.deep.memory import check_replay_fits
from bayes_mdp.experiments.deep.options import Evaluation, TrainOptions
from bayes_mdp.mdp import HasCells, ObservedEnvironment


class Engine(Protocol):
    """What `train` drives; `state` is its own affair, [seed ...]."""

    @property
    def spec(self) -> Spec:
        """What the agent is told."""
        ...

    @property
    def map_shape(self) -> tuple[int, ...] | None:
        """(rows, columns) of an environment with a map."""
        ...

    def begin(self) -> Any:
        """Everything before the first iteration."""
        ...

    def chunk(self, state: Any, first: int, number: int) -> tuple[Any, Seen]:
        """So many iterations, from `first` on; what is seen is [seed, iteration, ...]. `state` is used up."""
        ...

    def evaluate(self, state: Any, number: int) -> list[np.ndarray]:
        """The scores of the episodes of the evaluation with this number, of each seed."""
        ...

    def learner(self, state: Any) -> Any:
        """What was learnt."""
        ...

    def arrays(self, state: Any) -> dict[str, Any]:
        """All of the state by name."""
        ...

    def restore(self, arrays: Mapping[str, Any], where: str) -> Any:
        """The state that `arrays` gave; `where` is for the sentence of an error."""
        ...


class CompiledEngine:
    """Iterations in one compiled scan, seeds vmapped.

    Args:
        agent, env: see `train`.
        num_seeds, options: see `train`.
        key: of everything.
    """

    def __init__(
        self, agent: NeuralAgent, env: ObservedEnvironment, num_seeds: int, options: TrainOptions, key: PRNGKeyArray
    ) -> None:
        self._agent, self._env, self._options = agent, env, options
        self._num_seeds = num_seeds
        key_begin, key_run, self._key_play = jax.random.split(key, 3)
        self._begin_keys, self._run_keys = (jax.random.split(k, num_seeds) for k in (key_begin, key_run))
        self._chunk = jax.jit(jax.vmap(run_chunk, in_axes=(0, None, None, 0, None)), donate_argnums=3)

    @property
    def spec(self) -> Spec:
        """What the agent is told."""
        return spec_of(self._env, self._options.num_envs)

    @property
    def map_shape(self) -> tuple[int, ...] | None:
        """(rows, columns) of an environment with a map."""
        return self._env.map_shape if isinstance(self._env, HasCells) else None

    def begin(self) -> Now:
        """Everything before the first iteration; refuses a replay that does not fit."""
        shapes = self._shapes()
        row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), shapes.replay.rows)
        check_replay_fits(self._options.num_rows, row, self._num_seeds)
        return jax.jit(self._begin)(self._begin_keys)

    def chunk(self, state: Now, first: int, number: int) -> tuple[Now, Seen]:
        """So many iterations, from `first` on."""
        return self._chunk(self._run_keys, self._agent, self._env, state, first + jnp.arange(number))

    def evaluate(self, state: Now, number: int) -> list[np.ndarray]:
        """The scores of the episodes of the evaluation with this number, of each seed."""
        plan = self._options.evaluation
        assert isinstance(plan, Evaluation)
        keys = jax.random.split(jax.random.fold_in(self._key_play, number), self._num_seeds)
        return play_seeds(keys, self._agent, state.learner, self._env, plan)

    def learner(self, state: Now) -> Any:
        """What was learnt."""
        return state.learner

    def arrays(self, state: Now) -> dict[str, Any]:
        """All of the state by name."""
        return named_arrays(state)

    def restore(self, arrays: Mapping[str, Any], where: str) -> Now:
        """The state that `arrays` gave."""
        # Copies in buffers of their own: what is donated must not be shared.
        return jax.jit(lambda state: jax.tree.map(jnp.copy, state))(fill(self._shapes(), arrays, where))

    def _begin(self, keys: Any) -> Now:
        options = self._options
        return jax.vmap(lambda key: begin(key, self._agent, self._env, options.num_envs, options.num_rows))(keys)

    def _shapes(self) -> Now:
        return jax.eval_shape(self._begin, self._begin_keys)
