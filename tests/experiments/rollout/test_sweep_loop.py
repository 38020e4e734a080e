"""The loop of trials beside plain Python that replays its random words; Episodic runs; tables are updated in place."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bayes_mdp.agents import TDBMA, SarsaLambda
from bayes_mdp.agents.model_free.trial_learning import Swept
from bayes_mdp.experiments import RunOptions, run
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.sweep_loop import CHUNK, begin_all, play
from bayes_mdp.experiments.run_agent import PreparedEpisodes, play_episodes, prepare_episodes
from bayes_mdp.experiments.run_config import RunConfig
from bayes_mdp.mdp import MDP, Discounted, Environment, Episodic, NormalReward
from bayes_mdp.utils.progress import Progress
from tests.agents.trial_reference import Learner
from tests.experiments.generator import DEFAULT_GENERATOR

pytestmark = pytest.mark.numerics

S, A, SEEDS, TRIALS, MOST = 4, 3, 3, 40, 6
LEGAL = np.array([[True, True, False], [True, True, True], [False, True, True], [True, False, True]])
DISCOUNT = 0.75


def world(*, masked: bool) -> Environment:
    """Rows of quarters (exact in any precision), outcomes in order; ends from states 2 and 3; rewards by pair."""
    rng = np.random.default_rng(5)
    ends = np.zeros((S, A))
    ends[2:] = 0.25
    rows = np.stack([rng.multinomial(4 if s < 2 else 3, np.full(S, 1 / S), size=A) / 4 for s in range(S)])
    legal = LEGAL if masked else None
    mdp = MDP(rows, rng.normal(size=(S, A)).round(2), end_probs=ends, legal=legal, initial=[0.5, 0.25, 0.25, 0.0])
    return Environment(mdp, NormalReward(mdp.reward))


def _case(agent: Any, *, masked: bool) -> RunConfig:
    options = RunOptions(progress=False, num_checkpoints=7, compiler="xla")
    arguments = (Discounted(DISCOUNT), jax.random.key(1), None, None, TRIALS, SEEDS, None, options)
    return RunConfig(agent, world(masked=masked), *arguments)


def _words(key: Any):
    """The uniform numbers (for the action, for the world) of every iteration of a lane."""
    number = 1
    while True:
        bits = np.asarray(jax.random.bits(jax.random.fold_in(key, number), (CHUNK, 2), np.uint32))
        yield from (bits >> 9) * 2.0**-23
        number += 1


def _drawn(u: float, probs: np.ndarray) -> int:
    """By inversion."""
    return int(np.sum(u >= np.cumsum(probs)[:-1]))


def _replay(agent: Any, key: Any, *, masked: bool) -> tuple[np.ndarray, Learner]:
    """Sums of every trial (rewards, steps, weights, steps that have one) and the learner after them, of one seed."""
    mdp: Any = world(masked=masked).mdp
    rows = np.concatenate([np.asarray(mdp.transition_probs), np.asarray(mdp.end_probs)[..., None]], -1)
    reward, legal = np.asarray(mdp.reward, float), LEGAL if masked else np.ones((S, A), bool)
    learner = Learner(
        np.where(legal, float(agent.initial_q), -np.inf),
        float(agent.learning_rate),
        DISCOUNT,
        float(agent.trace_decay) if isinstance(agent, SarsaLambda) else None,
        agent.frozen,
    )
    first = jax.random.uniform(jax.random.split(jax.random.fold_in(key, 0))[1])
    words, state, log = _words(key), _drawn(float(first), np.asarray(mdp.initial)), []
    for _ in range(TRIALS):
        trial, ended = [], False
        while len(trial) < MOST and not ended:
            u, v = next(words)
            known = np.flatnonzero(legal[state])
            explores = u < float(agent.epsilon)
            action = known[int(u / agent.epsilon * len(known))] if explores else int(np.argmax(learner.q[state]))
            trial.append(((state, int(action)), reward[state, action]))
            state = _drawn(v, rows[state, action])
            ended = state == S
        beyond = learner.q[state].max() if agent.bootstrap and not ended else 0.0
        decays = learner.sweep(trial, beyond)[1][:-1]
        log.append([sum(r for _, r in trial), len(trial), sum(decays), len(decays)])
        v = [next(words) for _ in trial][-1][1]  # an iteration for every step of the sweep
        state = _drawn(v, np.asarray(mdp.initial))
    return np.array(log), learner


def _compare(agent: Any, prepared: PreparedEpisodes, *, masked: bool) -> np.ndarray:
    """All seeds to 1e-9, float64; the sums of every trial."""
    lanes = play_episodes(prepared, Progress(1, 1, show=False), Snapshots(None, {}))
    sums = []
    for seed, key in enumerate(prepared.keys):
        log, learner = _replay(agent, key, masked=masked)
        per_row = prepared.layout.per_row
        rows = [log[i : i + per_row].sum(0) for i in range(0, TRIALS, per_row)]
        np.testing.assert_allclose(lanes.log[seed], rows, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(lanes.tables.q[seed].reshape(S, A), learner.q, rtol=1e-9)
        if lanes.tables.statistics is not None:
            found = np.asarray(lanes.tables.statistics[seed]).reshape(S, A, 3)
            np.testing.assert_allclose(found, learner.table((S, A)), rtol=1e-8, atol=1e-12)
        sums.append(log)
    return np.array(sums)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "free"])
def test_loop_is_the_algorithm(masked):
    """Every decision, return and table; ends and cuts, with and without what is beyond; all greedy, and all random.

    TD-BMA in place, bootstrapped, with illegal actions; SARSA(lambda) frozen, without either.
    """
    with jax.enable_x64(True):
        for epsilon in (0.3, 1e-9, 1.0):
            agent: Any = TDBMA(trial_steps=MOST, epsilon=epsilon, bootstrap=True, initial_q=0.5)
            if not masked:
                agent = SarsaLambda(0.6, trial_steps=MOST, epsilon=epsilon, frozen=True, learning_rate=0.3)
            sums = _compare(agent, prepare_episodes(_case(agent, masked=masked)), masked=masked)
            cut = sums[..., 1] == MOST
            assert cut.any() and not cut.all()


class OneByOne(eqx.Module):
    """A trial learner that keeps to itself that it is one: the loop then calls `observe` step by step."""

    agent: Any
    replan: Any = None

    def init(self, key: Any, problem: Any) -> Any:
        """As the agent."""
        return self.agent.init(key, problem)

    def plan(self, key: Any, problem: Any, state: Any, belief: Any = None) -> Any:
        """As the agent."""
        return self.agent.plan(key, problem, state, belief)

    def observe(self, problem: Any, state: Any, transition: Any, weight: Any = 1.0) -> Any:
        """As the agent."""
        return self.agent.observe(problem, state, transition, weight)


@pytest.mark.slow
def test_episodes_as_a_whole_and_step_by_step():
    """Under `Episodic`, whole episodes at once: the same run as `observe` one by one, early ends among them."""
    agent = TDBMA(epsilon=0.2, learning_rate=0.5)
    options = RunOptions(progress=False)
    whole, stepped = (
        run(a, world(masked=True), objective=Episodic(MOST), num_episodes=60, key=jax.random.key(2), options=options)
        for a in (agent, OneByOne(agent))
    )
    np.testing.assert_array_equal(whole["reward"], stepped["reward"])
    np.testing.assert_array_equal(whole["visits"], stepped["visits"])
    assert whole["visits"].values.sum() < 60 * MOST
    other = run(
        TDBMA(epsilon=0.2, learning_rate=0.0),
        world(masked=True),
        objective=Episodic(MOST),
        num_episodes=60,
        key=jax.random.key(2),
        options=options,
    )
    assert not np.array_equal(whole["reward"], other["reward"])  # what was learnt mattered


def _written(prepared: PreparedEpisodes) -> set[str]:
    """The operations inside the compiled program that make a whole new table."""
    trials, setting, keys = prepared[:3]
    lanes = begin_all(trials, setting, keys)
    lowered = play.lower(trials, setting, keys, lanes, jnp.array([0, 1], jnp.int32))
    text: Any = lowered.compile(DEFAULT_GENERATOR).as_text()
    shapes = "|".join(re.escape(f"f32[{SEEDS},{size}]") for size in (f"{S * A}", f"{S * A},3"))
    found = set()
    for line in re.findall(rf"= (?:{shapes})\S* ([\w-]+)\((.*)", text):
        operation, rest = line
        called = re.search(r"calls=(%?[\w.-]+)", rest)
        if operation == "fusion" and called:
            body = text[text.index(f"\n{called[1]} ") :]
            body = body[: body.index("\n}")]
            operation = "scatter" if " scatter(" in body else "fusion"
        found.add(operation)
    return found - {"parameter", "get-tuple-element", "bitcast"}


class KeepsOld(TDBMA):
    """A twin whose sweep needs the table before it beside the one after it."""

    def sweep_step(self, tables: Any, step: Any, weight: Any = 1.0) -> Swept:
        """Without effect on the numbers, in a branch."""
        swept = super().sweep_step(tables, step, weight)
        keeps = lax.cond(jnp.asarray(weight) != 0, lambda: swept.tables, lambda: tables)
        return swept._replace(tables=keeps)


def test_tables_are_updated_in_place():
    """Nothing in the compiled loop writes a table but scatters of single entries; a twin that would is caught."""
    found = _written(prepare_episodes(_case(TDBMA(trial_steps=MOST, bootstrap=True), masked=True)))
    assert found == {"scatter"}
    assert _written(prepare_episodes(_case(KeepsOld(trial_steps=MOST, bootstrap=True), masked=True))) - {"scatter"}
