"""Which compiler plays a run: numba where it can and is there, XLA else; refusals in one sentence."""

import sys
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from bayes_mdp.agents import OIM, PSRL, TDBMA, FrequencyBonus, RMax
from bayes_mdp.agents.model_based.empirical_planning import ExactPlanner, PrioritizedSweeping
from bayes_mdp.envs import riverswim_episodic, six_arms
from bayes_mdp.experiments import RunOptions, run
from bayes_mdp.experiments.rollout.execute import prepare
from bayes_mdp.experiments.rollout.host.host_choice import chooses_numba
from bayes_mdp.experiments.run_agent import prepare_episodes
from bayes_mdp.experiments.run_config import RunConfig
from bayes_mdp.mdp import MDP, Discounted, Environment, Episodic, FirstExit, NormalReward, StateActionSpace
from bayes_mdp.models import dirichlet_normal_gamma

pytestmark = [pytest.mark.numerics, pytest.mark.filterwarnings("ignore:v_max is")]
SWEEPING = PrioritizedSweeping(2)
AGENT = OIM(planner=SWEEPING)


def steps(agent: Any = AGENT, env: Any = None, regret: Any = None, compiler: str = "auto", **options: Any) -> RunConfig:
    """A run in steps."""
    env, more = six_arms() if env is None else env, RunOptions(progress=False, compiler=compiler, **options)
    prior = dirichlet_normal_gamma() if isinstance(agent, PSRL) else None
    return RunConfig(agent, env, Discounted(0.9), jax.random.key(0), prior, 20, None, 1, regret, more)


def trials(**options: Any) -> RunConfig:
    """A run in whole episodes."""
    mdp = MDP(np.zeros((1, 2, 1)), -np.ones((1, 2)), end_probs=np.ones((1, 2)), initial=[1.0])
    env, more = Environment(mdp, NormalReward(mdp.reward)), RunOptions(progress=False, **options)
    return RunConfig(TDBMA(), env, FirstExit(), jax.random.key(0), None, None, 5, 1, None, more)


@pytest.fixture
def no_numba(monkeypatch):
    """As where it is not installed."""
    for name in [name for name in sys.modules if name.split(".")[0] == "numba" or ".rollout.host." in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)


def test_numba_plays_what_it_can():
    """By itself, and where it is asked for; never where XLA is."""
    pytest.importorskip("numba")
    for compiler, chosen in (("auto", True), ("numba", True), ("xla", False)):
        assert (prepare(steps(compiler=compiler)).listed is not None) == chosen
        assert (prepare_episodes(trials(compiler=compiler)).listed is not None) == chosen


def listed() -> StateActionSpace:
    """A space that lists the successors of SixArms."""
    env = six_arms()
    n, a = env.mdp.n_states, env.mdp.n_actions
    return StateActionSpace(n, a, successors=np.broadcast_to(np.arange(n), (n, a, n)))


def noisy() -> Environment:
    """SixArms with normal rewards."""
    mdp = six_arms().mdp
    return Environment(mdp, NormalReward(mdp.reward, 1.0))


OTHERS = [
    (steps(OIM(planner=ExactPlanner())), "agent.planner is not PrioritizedSweeping"),
    (steps(PSRL()), "agent is a PSRL, not one of OIM, RMax"),
    (steps(OIM(planner=SWEEPING, replan=5)), "the agent does not plan at every step"),
    (steps(FrequencyBonus(explore_prob=0.1, planner=SWEEPING)), "agent.explore_prob is given"),
    (steps(regret="objective"), "its regret needs values of policies"),
    (steps(target=np.ones((7, 6), bool)), "options.target or options.devices is given"),
    (steps(devices=1), "options.target or options.devices is given"),
    (steps(space=listed()), "a space that lists no successors"),
    (steps(RMax(planner=SWEEPING), noisy()), "the rewards of env are drawn from a law"),
]


@pytest.mark.parametrize(("case", "why"), OTHERS, ids=[why for _, why in OTHERS])
def test_others_are_left_to_xla(case, why):
    """By itself without a word; where numba is asked for, the refusal says why."""
    assert prepare(case).listed is None
    with pytest.raises(ValueError, match=f"options.compiler is 'numba', expected 'auto' or 'xla': .*{why}") as error:
        prepare(replace(case, options=replace(case.options, compiler="numba")))
    assert "\n" not in str(error.value)


def test_a_derived_agent_is_left_to_xla():
    """It may learn otherwise."""

    class Other(TDBMA):
        pass

    assert prepare_episodes(replace(trials(), agent=Other())).listed is None


def test_without_numba(no_numba):
    """ "auto" is XLA and runs; "numba" names the extra."""
    assert prepare(steps()).listed is None
    assert not chooses_numba("auto", None)
    for ready, case in ((prepare, steps(compiler="numba")), (prepare_episodes, trials(compiler="numba"))):
        with pytest.raises(
            ImportError, match=r"options.compiler is 'numba', which is missing: pip install 'numba.*the extra 'fast'"
        ):
            ready(case)
    case = trials()
    found = run(case.agent, case.env, objective=case.objective, num_episodes=5, key=case.key, options=case.options)
    np.testing.assert_array_equal(found["reward"], -1.0)


def test_episodic_and_gymnasium_runs_are_left_to_xla():
    """An episodic run is no run in steps; a Gymnasium environment is stepped by an `Actor`."""
    case = replace(steps(env=riverswim_episodic()), objective=Episodic(20), num_steps=None, num_episodes=2)
    with pytest.raises(ValueError, match=r"expected 'auto' or 'xla'|prioritized sweeping"):
        prepare(replace(case, options=RunOptions(compiler="numba")))
    options = RunOptions(compiler="numba")
    with pytest.raises(ValueError, match=r"options.compiler is 'numba'.* Gymnasium"):
        run(TDBMA(), "FrozenLake-v1", objective=Discounted(0.9), num_steps=5, key=jax.random.key(0), options=options)


def test_bad_names():
    """One sentence."""
    with pytest.raises(ValueError, match=r"options.compiler is 'nmba', expected one of auto, xla, numba; did you mean"):
        RunOptions(compiler="nmba")
