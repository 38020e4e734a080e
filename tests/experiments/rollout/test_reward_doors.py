"""Rewards outside the support of the prior's law are refused at every door, and no others: infer, update, run, Actor,
sweep, compare. What an environment pays and what a law gives is stated in plain Python (`reward_worlds`)."""

from functools import lru_cache
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import PSRL
from bayes_mdp.experiments.rollout.execute import prepare
from bayes_mdp.experiments.run_config import RunConfig, space_of
from bayes_mdp.mdp import MDP, Discounted, Environment, Episodic
from tests.experiments.reward_worlds import LAWS, WORLDS, World, fits, transitions

KEY = jax.random.key(3)
AGENT: Any = PSRL(1000)
QUIET = bm.experiments.RunOptions(progress=False, num_checkpoints=2)
REFUSED = r"(the reward law is \w+\)|the prior fixes this reward at 1: expected the same)"


@lru_cache
def _world(name: str) -> World:
    return WORLDS[name]()


@lru_cache
def _prior(law: str) -> Any:
    return LAWS[law].prior()


@lru_cache
def _beliefs(law: str) -> dict[str, Any]:
    return {}


def _belief(law: str, name: str) -> Any:
    """Before any data; worlds of one size share it."""
    space, kept = space_of(_world(name).env.mdp), _beliefs(law)
    which = f"{space.shape} {space.ends} {space.legal is None}"
    if which not in kept:
        kept[which] = bm.infer(KEY, _prior(law), space=space)
    return kept[which]


def _refuses(name: str, law: str, door: Any) -> None:
    """The door is shut exactly where the law cannot give what is paid; the sentence names the law."""
    if fits(_world(name), LAWS[law]):
        door()
    else:
        with pytest.raises(ValueError, match=REFUSED):
            door()


def _config(name: str, prior: Any) -> RunConfig:
    return RunConfig(AGENT, _world(name).env, Discounted(0.9), KEY, prior, 10, None, 1, None, QUIET)


def _run(name: str, law: str) -> None:
    """Everything that `run` does before the first step."""
    prepared = prepare(_config(name, _belief(law, name)))
    assert prepared.setting.support is None, "known before the run: nothing is left to be compared at the steps"


def _infer(name: str, law: str) -> None:
    bm.infer(KEY, _prior(law), transitions(_world(name)), space=space_of(_world(name).env.mdp))


def _update(name: str, law: str) -> None:
    _belief(law, name).update(transitions(_world(name)))


def _act(name: str, law: str) -> None:
    """Each transition by itself: the first that cannot be is refused."""
    world = _world(name)
    space = space_of(world.env.mdp)
    actor = bm.Actor(AGENT, space, objective=Discounted(0.9), key=KEY, prior=_belief(law, name))
    rows = [(s, a, y, r) for (s, a, y), values in world.paid.items() for r in values]
    for s, a, y, reward in rows[:200]:
        actor.reset(s)
        ended = y == space.n_states
        actor.observe(s, a, reward, 0 if ended else y, ended, truncated=True)


class _AcceptedError(Exception):
    """Raised in place of the first step of a run."""


def _accept(*args: object) -> None:
    raise _AcceptedError


def _until_first_step(door: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("bayes_mdp.experiments.run_agent"), "play_case", _accept)
        # `sweep` tells of failed cells in a sentence of its own.
        with pytest.raises((_AcceptedError, ValueError)) as raised:
            door()
    if _AcceptedError.__name__ not in repr(raised.value):
        raise raised.value


def _sweep(name: str, law: str) -> None:
    options = {"objective": Discounted(0.9), "num_steps": 10, "key": KEY}
    envs, priors = {"world": _world(name).env}, {"p": _prior(law)}
    _until_first_step(lambda: bm.sweeps.sweep({"a": AGENT}, envs, priors=priors, num_seeds=1, **options))


def _compare(name: str, law: str) -> None:
    """Of one pair, which is raised where it is refused."""
    options = {"objective": Discounted(0.9), "length": 20, "num_seeds": 2, "options": QUIET, "key": KEY}
    envs = {"world": _world(name).env}
    _until_first_step(lambda: bm.compare({"a": AGENT}, envs, prior=_prior(law), **options))


DOORS = {"infer": _infer, "update": _update, "run": _run, "actor": _act, "sweep": _sweep, "compare": _compare}


def test_there_are_thirty_worlds_and_twelve_laws():
    assert len(WORLDS) >= 30 and len(LAWS) >= 12
    table = np.array([[fits(_world(name), law) for law in LAWS.values()] for name in WORLDS])
    assert (table.sum(0) > 0).all() and (table.sum(0) < len(WORLDS)).sum() == len(LAWS) - 2, "each fits some, not all"


@pytest.mark.some(2)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("door", DOORS)
def test_a_door_is_open_exactly_where_the_law_has_the_rewards(door, law):
    for name in WORLDS:
        _refuses(name, law, lambda name=name: DOORS[door](name, law))


def _quick(agent: Any = AGENT, env: Any = None, **changes: Any) -> Any:
    """Two steps: what is refused in a run is refused before it."""
    arguments: dict[str, Any] = {"objective": Discounted(0.9), "num_steps": 2, "key": KEY, "options": QUIET}
    return bm.run(agent, env, **{**arguments, **changes})


def test_cliff_walking_is_refused_before_the_first_step():
    """-1 and -100 are in its table: a Bernoulli law cannot give them. It was a run that ended without a word."""
    with pytest.raises(ValueError, match=r"env pays -1 in state \d+, action 0, expected 0 or 1 \(the rew"):
        _quick(PSRL(), "CliffWalking-v1", prior=bm.models.dirichlet_bernoulli())


def test_sweep_and_compare_refuse_what_run_refuses():
    """`sweep` raises; `compare` notes it for the pair, and the other pair is run."""
    cost, fair = _world("a cost").env, _world("zeros and ones").env
    prior = bm.models.dirichlet_bernoulli()
    with pytest.raises(ValueError, match=r"env pays -1 in state 1, action 0, expected 0 or 1"):
        bm.sweeps.sweep(
            {"a": AGENT}, {"cost": cost}, priors={"p": prior}, objective=Discounted(0.9), num_steps=2, key=KEY
        )
    options = {"objective": Discounted(0.9), "length": 20, "prior": prior, "num_seeds": 2, "options": QUIET}
    refused = bm.compare({"a": AGENT}, {"cost": cost, "fair": fair}, key=KEY, **options)["refused"]
    assert "env pays -1 in state 1, action 0, expected 0 or 1" in str(refused.sel(env="cost").item())
    assert not refused.sel(env="fair").item()


class _Odd(eqx.Module):
    """A law of one's own: 0.5 at the one step in ten, else the mean of the state. Its rewards are not known before."""

    mean: jax.Array

    def sample(self, key, cell, outcome):
        del outcome
        return jnp.where(jax.random.uniform(key) < 0.1, 0.5, self.mean[cell])


MDP2 = MDP(np.full((2, 1, 2), 0.5), [[0.0], [1.0]], initial=[1.0, 0.0])


def test_a_law_of_ones_own_is_refused_at_the_step():
    """After a chunk, by the first reward that the law cannot give; a law that gives all is accepted."""
    env = Environment(MDP2, _Odd(jnp.array([[0.0], [1.0]])))
    arguments = {"num_steps": 60, "num_seeds": 2, "prior": bm.models.dirichlet_bernoulli()}
    with pytest.raises(ValueError, match=r"env pays 0.5 to seed \d at step \d+, in state \d, action 0, expected 0"):
        _quick(PSRL(20), env, **arguments)
    sure = Environment(MDP2, _Odd(jnp.array([[0.5], [0.5]])))
    with pytest.raises(ValueError, match="seed 0 at step 0, in state 0"):
        _quick(PSRL(20), sure, **arguments)
    assert _quick(PSRL(20), sure, **{**arguments, "prior": bm.models.dirichlet_normal()}).sizes["seed"] == 2


def test_steps_are_compared_one_by_one_and_by_outcome():
    """Known rewards by outcome: the first contradiction is at the first move to state 1."""

    class ByOutcome(eqx.Module):
        def sample(self, key, cell, outcome):
            del key, cell
            return jnp.where(outcome == 1, 3.0, 0.0)

    known = np.broadcast_to([0.0, 2.0], (2, 1, 2))
    env = Environment(MDP(np.eye(2)[[1, 0]][:, None], [[0.0], [0.0]], initial=[0.0, 1.0]), ByOutcome())
    with pytest.raises(ValueError, match=r"env pays 3 to seed 0 at step 1, in state 0, .* fixes this reward at 2"):
        _quick(env=env, prior=bm.models.known_rewards(known), num_steps=5)


def test_bayes_regret_compares_drawn_environments_with_the_agents_prior():
    """Environments that are drawn from another program pay what the agent's law cannot give."""
    options = bm.experiments.RunOptions(progress=False, env_prior=bm.models.dirichlet_normal(), regret="bayes")
    arguments = {"objective": Episodic(2), "num_steps": None, "num_episodes": 2, "num_seeds": 2}
    with pytest.raises(ValueError, match=r"env pays Normal rewards \(a finite number\) in state 0, action 0, exp"):
        _quick(env=_world("zeros").env, prior=bm.models.dirichlet_bernoulli(), options=options, **arguments)


def test_update_refuses_what_contradicts_a_known_reward():
    """As `infer` does; moments of counts too. Without rewards, or with weight zero, nothing is asked."""
    space = bm.StateActionSpace(2, 1)
    belief: Any = bm.infer(KEY, bm.models.known_rewards(1.0), space=space)
    wrong = bm.Transitions([0, 1], [0, 0], [1.0, 2.0], [1, 0])
    with pytest.raises(ValueError, match=r"transitions.reward\[1\] is 2, and the prior fixes this reward at 1"):
        belief.update(wrong)
    with pytest.raises(ValueError, match=r"counts.reward_mean\[1, 0\] is 2, and the prior fixes this reward at 1"):
        belief.update(bm.Counts.of(wrong, space))
    belief.update(wrong, np.array([1.0, 0.0]))
    belief.update(bm.Transitions([1], [0], None, [0]))


def test_moments_that_a_law_cannot_have_are_refused():
    """A mean below zero under an exponential law, one above its number of trials under a binomial one."""
    for law, mean in (("exponential", -0.5), ("binomial of 3", 3.5)):
        belief: Any = bm.infer(KEY, _prior(law), space=bm.StateActionSpace(2, 1))
        counts = bm.Counts.of(bm.Transitions([0], [0], [mean], [1]), bm.StateActionSpace(2, 1))
        with pytest.raises(ValueError, match=r"counts.reward_mean\[0, 0\] is .*, expected a mean of rewards that are"):
            belief.update(counts)
