"""What was learnt, from the folder of a training; and how well it plays."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from bayes_mdp.agents.neural.contract import NeuralAgent
from bayes_mdp.experiments.describe import describe, describe_key, first_difference, versions
from bayes_mdp.experiments.results import EVALUATION_FORMAT, load_result
from bayes_mdp.experiments.resume import checkpoint_path, fill, finished, load_checkpoint, read_configuration
from bayes_mdp.experiments.training.host_training import play_host
from bayes_mdp.experiments.training.train import CURVES, Training, describe_env
from bayes_mdp.experiments.training.train_options import Evaluation
from bayes_mdp.experiments.training.training_loop import play_seeds, spec_of
from bayes_mdp.experiments.training.vector_env import HostEnv
from bayes_mdp.mdp import ObservedEnvironment
from bayes_mdp.utils.validation import check_key, check_type

if TYPE_CHECKING:
    import xarray as xr

_LEARNER = ".learner"
_READ = ("agent", "env", "num_seeds", "options")


def load_training(path: str | Path, agent: NeuralAgent, env: ObservedEnvironment | HostEnv) -> Training:
    """What `train` has kept in a folder, from its newest checkpoint.

    Args:
        path: the folder.
        agent, env: those that were trained.

    Raises:
        FileNotFoundError: no training, or no checkpoint yet.
        ValueError: another agent or environment was trained there, by another version; a checkpoint of another
            architecture; a file that is cut or altered.
        TypeError: `path` is no path.

    Example:
        >>> from bayes_mdp.agents.neural import DQN
        >>> agent, env = DQN(), bm.envs.deep_sea_observed(4)
        >>> options = bm.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> training = bm.train(agent, env, num_steps=16, options=options, path="training")
        >>> bm.load_training("training", agent, env).dataset.identical(training.dataset)
        True
    """
    check_type("path", path, (str, os.PathLike), "a path")
    configuration = read_configuration(path)
    missing = next((name for name in _READ if name not in configuration), None)
    if missing is not None:
        raise ValueError(f"{path} holds the training of another version, without {missing!r} in its configuration")
    for name, mine in (("agent", describe(agent, "agent")), ("env", describe_env(env))):
        difference = first_difference(configuration[name], json.loads(json.dumps(mine)), name)
        if difference is not None:
            raise ValueError(f"{path} holds another training: {difference}")
    folder = Path(path) / "checkpoints"
    # Shapes come from `agent.init` without running it; the checkpoint fills them.
    newest = max(finished(folder), default=None)
    if newest is None:
        raise FileNotFoundError(f"{path} holds no checkpoint yet")
    arrays = load_checkpoint(folder, newest)
    learnt = {name[len(_LEARNER) :]: x for name, x in arrays.items() if name.startswith(_LEARNER)}
    num_envs = configuration["options"]["num_envs"]
    spec = env.spec if isinstance(env, HostEnv) else spec_of(env, num_envs)
    keys = jax.random.split(jax.random.key(0), configuration["num_seeds"])
    shapes = jax.eval_shape(jax.vmap(lambda key: agent.init(key, spec)), keys)
    learner = fill(shapes, learnt, str(checkpoint_path(folder, newest)))
    return Training(load_result(Path(path) / CURVES), learner, agent, finished=False)


def evaluate_agent(
    training: Training, env: "ObservedEnvironment | HostEnv", *, how: Evaluation, key: PRNGKeyArray | None = None
) -> "xr.Dataset":
    """Play without learning.

    Args:
        training: of `train` or `load_training`.
        env: where to play.
        how: steps, epsilon, environments side by side (their number is that of `env` on the host; `every` has no
            meaning here).
        key: a typed key; None: `jax.random.key(0)`.

    Returns:
        `score` [seed, episode] of the episodes that ended, padded with nan; `mean_score` and `episodes` [seed].

    Raises:
        TypeError: `key` is no typed key.
        ValueError: `key` holds several keys. TypeError: no `Training`, no `Evaluation`.

    Example:
        >>> from bayes_mdp.agents.neural import DQN
        >>> env = bm.envs.deep_sea_observed(4)
        >>> options = bm.TrainOptions(num_envs=4, replay_size=64, progress=False)
        >>> training = bm.train(DQN(), env, num_steps=16, options=options)
        >>> result = bm.evaluate_agent(training, env, how=bm.Evaluation(every=1, steps=8, num_envs=2))
        >>> sorted(result.sizes)
        ['episode', 'seed']
    """
    check_type("training", training, Training, "a Training")
    check_type("how", how, Evaluation, "an Evaluation")
    import xarray as xr

    key = jax.random.key(0) if key is None else key
    check_key("key", key)
    each = _scores(training, env, how, key)
    most = max(map(len, each))
    padded = np.stack([np.pad(x.astype(float), (0, most - len(x)), constant_values=np.nan) for x in each])
    means = np.array([x.mean() if x.size else np.nan for x in each])
    about = {"agent": training.agent, "how": how}
    described = {**describe(about), "env": describe_env(env)}
    attributes = {"configuration": described, "versions": versions(), "key": describe_key(key)}
    return xr.Dataset(
        {
            "score": (("seed", "episode"), padded),
            "mean_score": ("seed", means),
            "episodes": ("seed", np.array([x.size for x in each])),
        },
        coords={"seed": np.arange(len(each))},
        attrs={"format": EVALUATION_FORMAT, **{name: json.dumps(x) for name, x in attributes.items()}},
    )


def _scores(
    training: Training, env: ObservedEnvironment | HostEnv, how: Evaluation, key: PRNGKeyArray
) -> list[np.ndarray]:
    """Of the episodes that ended, of each seed."""
    keys = jax.random.split(key, training.dataset.sizes["seed"])
    if isinstance(env, HostEnv):
        # One seed after the other: a host environment has no axis of seeds.
        learners = [jax.tree.map(lambda x, i=i: x[i], training.learner) for i in range(len(keys))]
        return [
            play_host(one, training.agent, learner, env, how.epsilon, how.steps)
            for one, learner in zip(keys, learners, strict=True)
        ]
    return play_seeds(keys, training.agent, training.learner, env, how)
