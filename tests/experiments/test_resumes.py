"""Nothing goes on as something else: priors, rules and environments are told apart by what they do, not by name."""

import json
import types
from importlib import import_module
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import HMC

from bayes_mdp.agents import PSRL, EpsilonGreedyQ
from bayes_mdp.agents.common.replan import When
from bayes_mdp.calibration import SbcOptions, sbc
from bayes_mdp.envs import to_gymnasium
from bayes_mdp.experiments import RunOptions, compare, run
from bayes_mdp.experiments.describe import describe, why_not_identifying
from bayes_mdp.experiments.resume import Cells, Checkpoints
from bayes_mdp.experiments.rollout import execute as execution
from bayes_mdp.experiments.training.train import describe_env
from bayes_mdp.experiments.training.vector_env import host_env
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.mdp import Discounted, StateActionSpace
from bayes_mdp.models import dirichlet_normal_gamma
from tests.experiments.toy import ToyBelief, two_states

KEY = jax.random.key(7)
QUIET = RunOptions(num_checkpoints=20, progress=False, snapshot_seconds=0.0)
home: Any = import_module("bayes_mdp.experiments.compare_agents")


class Killed(Exception):
    """Stands for a kill signal."""


def a_prior(scale):
    """A program that is never run: the agent learns without one."""

    def prior(space):
        return dist.Normal(scale, jnp.ones(space.n_states))

    return prior


def _run(path=None, **changes):
    arguments: dict[str, Any] = {"agent": EpsilonGreedyQ(), "env": two_states(), "prior": a_prior(1.0)} | changes
    agent, env = arguments.pop("agent"), arguments.pop("env")
    return run(agent, env, objective=Discounted(0.9), num_steps=2000, key=KEY, path=path, options=QUIET, **arguments)


def _killed(monkeypatch, path, **changes):
    """Leaves a snapshot of the first chunk."""
    play, calls = execution.play_chunk, []

    def killed(*arguments):
        calls.append(0)
        if len(calls) == 2:
            raise Killed
        return play(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(execution, "play_chunk", killed)
        _run(path, **changes)
    assert path.with_name("run.nc.partial").exists()


def _replans(k):
    return When(lambda moment: moment.time % k == 0)


class Method:
    """A prior that is a method."""

    def __init__(self, scale):
        self.scale = scale

    def prior(self, space):
        """A program that is never run."""
        return dist.Normal(self.scale, jnp.ones(space.n_states))


CHANGES = {
    "a closure": ("prior", lambda: {"prior": a_prior(1.0)}, lambda: {"prior": a_prior(50.0)}),
    "a closed array": ("prior", lambda: {"prior": a_prior(np.ones(40))}, lambda: {"prior": a_prior(np.zeros(40))}),
    "a method": ("prior", lambda: {"prior": Method(1.0).prior}, lambda: {"prior": Method(2.0).prior}),
    "a rule": (
        "agent.replan.function",
        lambda: {"agent": PSRL(_replans(5)), "prior": ToyBelief.of(3, 2)},
        lambda: {"agent": PSRL(_replans(6)), "prior": ToyBelief.of(3, 2)},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_goes_on_with_the_same_function_and_with_no_other(name, tmp_path, monkeypatch):
    """Functions of one name and place; the same one, made again, ends in the bits of a run that was not killed."""
    place, same, other = CHANGES[name]
    path = tmp_path / "run.nc"
    _killed(monkeypatch, path, **same())
    with pytest.raises(
        ValueError, match=rf"snapshot of another run: configuration\.{place} has other contents \(values or code\)"
    ):
        _run(path, **other())
    assert _run(path, **same()).identical(_run(**same()))


def test_a_global_that_was_changed_is_noticed(tmp_path, monkeypatch):
    module: Any = types.ModuleType("a_module_of_mine")
    exec("SCALE = 1.0\ndef prior(space):\n  return SCALE", module.__dict__)
    _killed(monkeypatch, tmp_path / "run.nc", prior=module.prior)
    module.SCALE = 50.0
    with pytest.raises(ValueError, match=r"configuration\.prior has other contents"):
        _run(tmp_path / "run.nc", prior=module.prior)
    module.SCALE = 1.0
    _run(tmp_path / "run.nc", prior=module.prior)


def test_what_cannot_be_identified_runs_but_does_not_go_on(tmp_path, monkeypatch):
    numbers = (i for i in range(3))
    prior = a_prior(numbers)
    path = tmp_path / "run.nc"
    assert _run(prior=prior).identical(_run(path, prior=prior))
    _killed(monkeypatch, path, prior=prior)
    with pytest.raises(
        ValueError,
        match=r"partial may hold a snapshot of another run, as prior\.scale is a generator, which does not show",
    ):
        _run(path, prior=prior)
    path.with_name("run.nc.partial").unlink()
    _run(path, prior=prior)


def test_a_comparison_goes_on_with_the_same_functions_only(tmp_path, monkeypatch):
    """The rule of an agent, the prior of a problem."""

    def played(k, scale):
        agents = {"asked": EpsilonGreedyQ(replan=_replans(k)), "plain": EpsilonGreedyQ()}
        arguments: dict[str, Any] = {"objective": Discounted(0.9), "length": 40, "prior": a_prior(scale)}
        return compare(agents, {"a": two_states()}, key=KEY, num_seeds=2, path=tmp_path / "c.nc", **arguments)

    play, calls = home._play, []

    def killed(*arguments):
        calls.append(0)
        if len(calls) == 2:
            raise Killed
        return play(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(home, "_play", killed)
        played(5, 1.0)
    for changed, place in (((6, 1.0), r"agents\.asked\.replan\.function"), ((5, 50.0), r"envs\.a\.prior")):
        with pytest.raises(ValueError, match=rf"cells of another run: configuration\.{place} has other contents"):
            played(*changed)
    played(5, 1.0)


@pytest.mark.parametrize("keep", [Cells, Checkpoints])
def test_trainings_and_cells_go_on_with_the_same_functions_only(tmp_path, keep):
    for value, other in (
        (a_prior(1.0), a_prior(2.0)),
        (Method(1.0), Method(2.0)),
        (NUTS(kernel=lambda model: HMC(model, step_size=1.0)), NUTS(kernel=lambda model: HMC(model, step_size=2.0))),
        ([_replans(5)], [_replans(6)]),
        ({"a": _replans(5)}, {"a": _replans(6)}),
    ):
        folder = tmp_path / str(id(value))
        keep(folder, {"agent": describe(value)})
        keep(folder, {"agent": describe(value)})
        with pytest.raises(ValueError, match=r"of another run|another training"):
            keep(folder, {"agent": describe(other)})
    hidden = {"agent": describe(a_prior(i for i in range(3)), "agent")}
    keep(tmp_path / "hidden", hidden)
    with pytest.raises(ValueError, match=r"may hold .*, as agent\.scale is a generator"):
        keep(tmp_path / "hidden", hidden)


class Walk(gymnasium.Env):
    """Pays what it was told to."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, pay=1.0):
        self.pay, self.steps = pay, 0

    def reset(self, *, seed=None, options=None):
        """State 0."""
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        """See the class."""
        self.steps += 1
        return int(action), self.pay, False, False, {}


def _making(pay):
    return lambda: Walk(pay)


def test_environments_of_gymnasium_are_told_apart(tmp_path):
    """By what a function makes, by the state in which an environment was first seen, by the code of its class."""
    arguments: dict[str, Any] = {"objective": Discounted(0.9), "num_steps": 8, "num_seeds": 2, "key": KEY}

    def described(env):
        result = run(EpsilonGreedyQ(), env, options=QUIET, **arguments)
        return json.loads(result.attrs["configuration"])["environment"]

    assert described(_making(1.0)) == described(_making(1.0)) != described(_making(2.0))
    fresh, other = Walk(1.0), Walk(2.0)
    before = described(fresh)
    assert fresh.steps > 0 and described(fresh) == before == described(Walk(1.0)) != described(other)
    walk = to_gymnasium(two_states())
    assert described(walk) == described(walk) == described(to_gymnasium(two_states()))


def test_environments_on_the_host_are_told_apart():
    class Seen(Walk):
        observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,))  # type: ignore[assignment]

    def made(pay):
        return describe_env(host_env([lambda: Seen(pay)]))

    assert made(1.0) == made(1.0) != made(2.0)
    assert describe_env(host_env("CartPole-v1", 2))["source"] == "CartPole-v1"

    def side_by_side(pay, limit=None):
        vector = gymnasium.vector.SyncVectorEnv([lambda: Seen(pay)] * 2)
        if limit is not None:
            vector = gymnasium.wrappers.vector.ClipReward(vector, max_reward=limit)
        return describe_env(host_env(vector))

    assert side_by_side(1.0) == side_by_side(1.0) != side_by_side(2.0)
    assert side_by_side(1.0, 3.0) == side_by_side(1.0, 3.0) != side_by_side(1.0, 4.0)
    assert why_not_identifying(side_by_side(1.0, 3.0)) is None


def test_simulations_go_on_with_the_same_functions_only(tmp_path, monkeypatch):
    """Quantities of one name, options of one kind: the truth of the first simulation does not tell them apart."""
    space, path = StateActionSpace(2, 1), tmp_path / "sbc.nc"

    def simulated(power):
        quantities = {"reward": lambda drawn: drawn.mdp.reward[0, 0] ** power}
        prior = dirichlet_normal_gamma()
        return sbc(
            KEY,
            prior,
            space,
            num_simulations=2,
            options=SbcOptions(num_draws=4, num_transitions=4, quantities=quantities),
            path=path,
        )

    simulated(1)
    with pytest.raises(ValueError, match="path holds simulations of another prior, space"):
        simulated(2)
    stream = iter([1.0])
    with pytest.raises(ValueError, match=r"may hold other simulations|of another prior"):
        simulated(stream)
