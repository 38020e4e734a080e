"""Calls that must be refused: a valid call of every public name, and what to put in place of one argument at a time.

`CALLS` is the table, `bad_calls` yields one call for each bad value of each argument. `EXEMPT` names what is not there,
and why. Values are made when they are asked for: nothing is compiled when this module is imported.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd

import bayes_mdp as bm
from bayes_mdp.behaviour.fit_behaviour import BehaviourPosterior
from bayes_mdp.inference.draws.chains import Chains

NAN, INF = float("nan"), float("inf")
RAGGED = [[1.0, 2.0], [3.0]]
DATE = np.datetime64("2020-01-01")
PROGRAMS = ("reproductions", "benchmarks")  # packages of the repository beside the library
MODULES = ("", ".mdp", ".models", ".envs", ".planning", ".inference", ".decisions")
MODULES += (
    ".information",
    ".strategies",
    ".plots",
    ".deep",
    ".sweeps",
    ".calibration",
    ".agents",
    ".experiments",
    ".behaviour",
    ".recommend",
)


class Call(NamedTuple):
    """A valid call.

    Args:
        name: of a public function or class, "models.normal", or of a function of `PROGRAMS` by its whole path.
        given: arguments of a call that is accepted (functions without arguments that make them).
        bad: argument -> values that are not.
        says: argument -> what the message calls it, where that is not its name.
    """

    name: str
    given: dict[str, Callable[[], Any]]
    bad: dict[str, list[Any]]
    says: dict[str, str] = {}  # noqa: RUF012 - never changed


class BadCall(NamedTuple):
    """One call with one bad argument."""

    name: str
    argument: str
    value: Any
    word: str
    make: Callable[[], Any]

    def __str__(self) -> str:
        return f"{self.name}({self.argument}={self.value!r:.60})".replace("\n", " ")


def target(name: str) -> Callable[..., Any]:
    """The function or class of a name."""
    module, _, attribute = name.rpartition(".")
    if module.partition(".")[0] not in PROGRAMS:
        module = f"bayes_mdp.{module}" if module else "bayes_mdp"
    return getattr(import_module(module), attribute)


def bad_calls() -> Iterator[BadCall]:
    """All of them."""
    for call in CALLS:
        for argument, values in call.bad.items():
            for value in values:
                word = call.says.get(argument, argument)
                yield BadCall(call.name, argument, value, word, partial(_make, call, argument, value))


def _make(call: Call, argument: str, value: Any) -> Any:
    arguments = {name: make() for name, make in call.given.items()}
    return target(call.name)(**{**arguments, argument: value})


def public_names() -> set[str]:
    """Every public name that can be called, at the first of `MODULES` that has it."""
    found: dict[int, str] = {}
    for suffix in MODULES:
        module = import_module(f"bayes_mdp{suffix}")
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and not getattr(thing, "_is_protocol", False):
                found.setdefault(id(thing), f"{suffix[1:]}.{name}".lstrip("."))
    return set(found.values())


# ---------------------------------------------------------------------------------------------------- bad values
COUNT = [0, -1, 2.5, True, "3", None, NAN, INF, [1], 1j]
MAYBE_COUNT = [x for x in COUNT if x is not None]
SEED = [-1, 2.5, True, "3", NAN]
NUMBER = [NAN, INF, "high", None, 1j, True, DATE, RAGGED]
POSITIVE = [0.0, -1.0, *NUMBER]
NOT_NEGATIVE = [-1.0, *NUMBER]
FRACTION = [-0.1, 1.5, *NUMBER]
INSIDE = [0.0, 1.0, *FRACTION]
DISCOUNT = [1.0, *FRACTION]
BOOL = ["no", NAN, 2, None, 0.5, [True]]
WORD = ["nosuch", 3, None, ["a"], NAN]
TYPED_KEY = [0, 3.5, None, "key", np.zeros(2, np.uint32)]
SPACE = [3, None, "space", (3, 2)]
OBJECTIVE = ["discounted", 0.9, None, 3]
MDPS = ["abc", None, 3, RAGGED, np.zeros((2, 2, 2))]
POSTERIOR = [3, None, "posterior", [1]]
PRIOR = [3, "dirichlet", [1]]
LAW = [3.0, None, "normal"]
ENVIRONMENT = [3, None, [1]]
DATA = [3, "log", [1, 2]]
INITIAL = [[1.0], [0.7, 0.7], [-1.0, 2.0], [NAN, 1.0], "first", 0, RAGGED, [1j, 0]]
STARTS = [[1.0], [NAN, 1.0], "first", {"first": 1.0}, {0: 0.5}, {0: "all"}, {0: -1.0, 1: 2.0}, 2.5]
BY_LABEL = [{}, {0: 0}, {0: 0, 1: 0, "no": 0}, {0: 0, 1: "no"}, {0: {0: 0.5}, 1: 0}, {0: [0], 1: 0}, [{0: 0, 1: 0}, 3]]
REPLAN = [0, -1, 2.5, True, "nosuch", [1]]
PATH = [3, 2.5, "no/such/folder/file.nc"]
RECORD = [3, None, {}, "options"]
EXECUTOR = [3, "process", "processes:0", "dask:x", ""]
LEGAL = ["no", NAN, RAGGED, [[1, 1]], [[2, 1], [1, 1]], [[0.5, 1], [1, 1]], [[0, 0], [1, 1]]]
DRAWS = [0, -1, 1, 2.5, True, "3", None, NAN, 10**12, 10**20]


def _rows_of_draws() -> dict[str, np.ndarray]:
    return {"P": np.full((4, 2, 1, 2), 0.5)}


def without(values: list[Any], *left_out: Any) -> list[Any]:
    """`values` but for those."""
    return [x for x in values if not any(x is y or (type(x) is type(y) and x == y) for y in left_out)]


def optional(values: list[Any]) -> list[Any]:
    """`values` of an argument that may be None."""
    return without(values, None)


# ------------------------------------------------------------------------------------------------- valid arguments
def rows() -> np.ndarray:
    """Of two states and two actions."""
    return np.full((2, 2, 2), 0.5)


def key() -> Any:
    """A typed key."""
    return jax.random.key(0)


@lru_cache
def mdp() -> Any:
    """Two states, two actions."""
    return target("MDP")(rows(), np.zeros((2, 2)), initial=[0.5, 0.5])


@lru_cache
def space() -> Any:
    """Two states, two actions."""
    return target("StateActionSpace")(2, 2)


@lru_cache
def transitions() -> Any:
    """Three."""
    return target("Transitions")([0, 1, 1], [0, 1, 0], [0.0, 1.0, 2.0], [1, 0, 1])


@lru_cache
def log() -> Any:
    """The same with labels."""
    return target("mdp.Log")(transitions(), ("s0", "s1"), ("a0", "a1"))


@lru_cache
def plain_log() -> Any:
    """The same with the labels of `space`."""
    return target("mdp.Log")(transitions(), (0, 1), (0, 1))


@lru_cache
def episodes() -> Any:
    """Twenty of one step."""
    one = target("Transitions")([0] * 20, [0] * 20, [0.0, 1.0] * 10, [1] * 20)
    return target("mdp.Log")(one, (0, 1), (0, 1))


@lru_cache
def counts() -> Any:
    """Of the same."""
    return bm.Counts.of(transitions(), space())


@lru_cache
def posterior() -> Any:
    """After the same."""
    return target("infer")(key(), prior(), transitions(), space=space())


@lru_cache
def drawn() -> Any:
    """Three hypotheses."""
    return posterior().sample(key(), (3,))


@lru_cache
def prior() -> Any:
    """A ready one."""
    return target("models.dirichlet_normal_gamma")()


@lru_cache
def spec() -> Any:
    """With normal rewards."""
    return target("models.MDPSpec")(rows(), dist.Normal(np.zeros((2, 2)), 1.0))


@lru_cache
def env() -> Any:
    """The chain."""
    return target("envs.chain")()


@lru_cache
def agent() -> Any:
    """PSRL."""
    return target("agents.PSRL")()


def one_step() -> Any:
    """An objective."""
    return target("Episodic")(1)


def discounted() -> Any:
    """An objective."""
    return target("Discounted")(0.9)


@lru_cache
def choices() -> Any:
    """Four choices of each of two persons."""
    return bm.behaviour.ChoiceLog(np.zeros((2, 4), int), [[0, 1, 1, 0], [1, 0, 1, 1]], np.ones((2, 4)))


@lru_cache
def behaviour_model() -> Any:
    """With parameters a, beta, pi, w."""
    return bm.behaviour.TwoStep(4)


@lru_cache
def behaviour_posterior() -> Any:
    """Three draws of each of two chains."""
    draws: dict[str, Any] = {
        f"{name}_{what}": np.full((2, 3), 0.5) for name in ("a", "beta", "pi", "w") for what in ("mean", "sd")
    }
    draws |= {f"{name}_z": np.zeros((2, 3, 2)) for name in ("a", "beta", "pi", "w")}
    params: dict[str, Any] = {name: np.full((2, 3, 2), 0.5) for name in ("a", "beta", "pi", "w")}
    chains = Chains(draws)
    return BehaviourPosterior(params, chains, behaviour_model(), choices(), "partial")


def behaviour_params() -> dict[str, float]:
    """Of `behaviour_model`."""
    return {"a": 0.5, "beta": 1.0, "pi": 0.2, "w": 0.5}


def value(thing: Any) -> Callable[[], Any]:
    """A function that returns it."""
    return lambda: thing


def study_of(policy: Any, max_steps: int | None = 5) -> Callable[[], Any]:
    """A function that returns one study, by its name."""
    return lambda: {"a": target("information.PolicyStudy")(policy, 2, max_steps)}


# ------------------------------------------------------------------------------------------------------- the table
_MDP = {"transition_probs": rows, "reward": value(np.zeros((2, 2)))}
_BAD_REWARDS = ["abc", None, 3, RAGGED, [[NAN, 0], [0, 0]], [[1j, 0], [0, 0]], [[DATE, DATE]] * 2, [[1e300, 0], [0, 0]]]
_BAD_HYPOTHESIS = {
    "reward": [*_BAD_REWARDS, np.zeros((0, 2)), np.zeros((2, 0)), np.zeros((0, 2, 2)), np.zeros(2)],
    "end_probs": ["no", NAN, RAGGED, [[-1.0, 0], [0, 0]], [[NAN, 0], [0, 0]], [[1j, 0], [0, 0]]],
    "legal": LEGAL,
    "initial": INITIAL,
}
_SPARSE = {**_MDP, "successor": value(np.zeros((2, 2, 1), int)), "probability": value(np.ones((2, 2, 1)))}
del _SPARSE["transition_probs"]
_HUGE = np.array([[[2**32], [0]], [[0], [0]]])
_COLUMN = ["abc", None, RAGGED, [0.0, 1.0, 1.0], [0, 1], [NAN, 0, 0], [0, 1, 2**40], [0, 1, 2**70], [True, False, True]]
_FLAGS = ["no", [NAN, 0, 0], [2, 0, 0], [0.3, 0, 0], [0, 1], [DATE] * 3, RAGGED, [None, 0, 1]]
_TRANSITIONS = {
    "state": value([0, 1, 1]),
    "action": value([0, 1, 0]),
    "reward": value([0.0, 1.0, 2.0]),
    "next_state": value([1, 0, 1]),
}
_STATISTIC = ["abc", None, RAGGED, np.zeros(3), [[1j, 0], [0, 0]], [[DATE, DATE]] * 2, [[1e300, 0], [0, 0]]]
_JUDGE = {"key": key, "posterior": posterior, "objective": discounted}
_BAD_JUDGE = {"key": TYPED_KEY, "posterior": POSTERIOR, "objective": OBJECTIVE, "num_draws": DRAWS}
_BAD_CHOOSE_OPTIONS = {
    "limits": [None, 3, "limits"],
    "slack": NOT_NEGATIVE,
    "num_draws": DRAWS,
    "confidence": INSIDE,
}
_BAD_SIMULATION = {
    "num_draws": COUNT,
    "method": WORD,
    "quantities": [3, "mean", {"a": 3}],
    "executor": EXECUTOR,
}


def _short_chain() -> Any:
    """Options of `sbc_behaviour` whose chain is shorter than the number of draws."""
    return bm.calibration.SbcBehaviourOptions(sampler=bm.inference.NUTS(1, 1, 1))


def _outcomes_of_another_size() -> Any:
    return bm.decisions.ValueOptions(outcomes={"cost": bm.decisions.Outcome([1.0] * 7)})


def _decide_from(start: Any) -> Callable[[], Any]:
    """Makes options of `decide` with first states that the log does not have."""
    return lambda: bm.recommend.DecideOptions(initial=start)


def _strategies() -> dict[str, Any]:
    """Two of unknown success."""
    p, q = numpyro.sample("p", dist.Beta(1.0, 2.0)), numpyro.sample("q", dist.Beta(2.0, 2.0))
    return {"a": p, "b": q}


@lru_cache
def _belief() -> Any:
    """Of these."""
    return bm.strategies.decision_model(_strategies)


def _study() -> Any:
    """Of one of them."""
    return bm.information.Study({"p": 2})


def _costed() -> Any:
    """Draws of costs and effects."""
    return bm.strategies.StrategyDraws(("a", "b"), ("cost", "effect"), np.arange(12.0).reshape(3, 2, 2))


_VALUED = {"key": key, "belief": _belief}
_STUDIED = {"key": key, "model": _belief, "study": _study}
_BAD_STUDIED: dict[str, list[Any]] = {
    "key": TYPED_KEY,
    "model": POSTERIOR,
    "study": [3, None, "x", {"p": 3}],
    "wtp": [3.0, "x"],
    "num_draws": optional(DRAWS),
    "num_inner": optional(DRAWS),
}
_POLICY = [
    "greedy",
    None,
    3,
    [0],
    [0, 2],
    [0, -1],
    [[0.5, 0.6], [0, 1]],
    [[NAN, 1], [0, 1]],
    RAGGED,
    [1j, 0],
    [True, False],
]
_RUN = {
    "agent": agent,
    "env": env,
    "objective": discounted,
    "key": key,
    "prior": prior,
    "num_steps": value(3),
    "options": lambda: target("experiments.RunOptions")(progress=False),
}
_NORMAL_GAMMA = {"loc": NUMBER, "pseudo_count": POSITIVE, "rate": POSITIVE}
_OUTCOME = {"rewards_on": WORD}

HALVES = [[0.5, 0.5], [0.5, 0.5]]


def sensitive_mdp():
    return bm.MDP([[[0.5, 0.5], [0.7, 0.3]], [[0.0, 1.0], [0.0, 1.0]]], [[1.0, 1.0], [0.0, 0.0]])


def log_in_contexts():
    rows = {"s": ["a", "a", "a"], "a": ["x", "y", "y"], "t": ["a", "a", "a"], "age": [1, 1, 2]}
    return bm.read_log(pd.DataFrame(rows), state="s", action="a", next_state="t", covariates=["age"])


def posterior_in_contexts():
    log = log_in_contexts()
    space = bm.StateActionSpace.from_log(log)
    return bm.infer(jax.random.key(0), bm.models.known_rewards(np.zeros((1, 2))), log, space=space)


def draws_in_contexts():
    log = log_in_contexts()
    space = bm.StateActionSpace.from_log(log)
    prior = lambda space: bm.models.MDPSpec(np.ones((1, 2, 1)), np.zeros((1, 2)))  # noqa: E731
    return bm.infer(jax.random.key(0), prior, log, space=space)


CALLS = [
    Call(
        "MDP",
        _MDP,
        {
            **_BAD_HYPOTHESIS,
            "transition_probs": ["abc", None, 3, RAGGED, -rows(), 2 * rows(), NAN * rows(), 1j * rows(), rows()[:1]],
        },
    ),
    Call(
        "SparseMDP",
        _SPARSE,
        {
            **_BAD_HYPOTHESIS,
            "reward": [x for x in _BAD_HYPOTHESIS["reward"]],
            "successor": [
                "abc",
                None,
                3,
                RAGGED,
                np.full((2, 2, 1), 2),
                np.full((2, 2, 1), -1),
                _HUGE,
                np.zeros((2, 2, 1)),
                np.zeros((2, 2, 0), int),
            ],
            "probability": [
                "abc",
                None,
                3,
                RAGGED,
                np.zeros((2, 2, 1)),
                np.full((2, 2, 1), NAN),
                np.ones((2, 2, 2)),
                1j * np.ones((2, 2, 1)),
            ],
        },
    ),
    Call(
        "StateActionSpace",
        {"n_states": value(2), "n_actions": value(2)},
        {
            "n_states": COUNT,
            "n_actions": COUNT,
            "horizon": MAYBE_COUNT,
            "ends": BOOL,
            "states": [3, "ab", ["a"], ["a", "a"], [[1], [2]], [1, True]],
            "actions": [3, "ab", ["a"], ["a", "a"], [[1], [2]], [1, 1.0]],
            "legal": LEGAL,
            "support": ["no", NAN, RAGGED, [[1, 1]], np.full((2, 2, 2), 0.5), np.zeros((2, 2, 2)), np.ones((2, 2, 3))],
        },
    ),
    Call(
        "Transitions",
        _TRANSITIONS,
        {
            "state": _COLUMN,
            "action": _COLUMN,
            "next_state": _COLUMN,
            "step": [x for x in _COLUMN if x is not None],
            "reward": [
                "abc",
                RAGGED,
                [1j, 0, 0],
                [DATE] * 3,
                [0.0, 1.0],
                [1e25, 0, 0],
                [1e300, 0, 0],
                [None, 0.0, 1.0],
                ["x", 0, 0],
            ],
            "terminated": _FLAGS,
            "truncated": _FLAGS,
            "reward_observed": _FLAGS,
        },
        {"reward": "transitions.reward"},
    ),
    Call(
        "mdp.Log",
        {"transitions": transitions, "states": value(("a", "b")), "actions": value((0, 1))},
        {
            "transitions": [3, None, "log", [0, 1]],
            "states": [3, None, "ab", ("a",), ("a", "a"), ([1], [2])],
            "actions": [3, None, "ab", ("a",), ("a", "a"), ([1], [2])],
            "source": [3, None],
        },
        {"states": "state", "actions": "action"},
    ),
    Call(
        "Counts",
        {
            "transitions": value(np.zeros((2, 2, 2))),
            **{name: value(np.zeros((2, 2))) for name in ("reward_count", "reward_mean", "reward_ss")},
        },
        {
            "transitions": _STATISTIC,
            "reward_count": _STATISTIC,
            "reward_mean": _STATISTIC,
            "reward_ss": _STATISTIC,
        },
        {"transitions": "counts."},
    ),
    Call(
        "Discounted", {"discount": value(0.9)}, {"discount": [*DISCOUNT, [0.9], np.array(["x"]), np.array([0.5, 2.0])]}
    ),
    Call(
        "Episodic",
        {"horizon": value(3)},
        {"horizon": COUNT, "discount": [0.0, 1.5, -1, NAN, INF, True, "3", None, [0.9], 1j]},
    ),
    Call(
        "Environment",
        {"mdp": mdp, "reward_law": lambda: target("mdp.NormalReward")(np.zeros((2, 2)))},
        {
            "mdp": [*MDPS, lambda: target("MDP")(rows(), np.zeros((2, 2)))],
            "reward_law": [3, None, "law"],
            "name": [3, None],
            "optimum": ["high", NAN, 1j, INF],
            "picture": [3, "picture"],
        },
    ),
    Call(
        "mdp.NormalReward",
        {"mean": value(np.zeros((2, 2)))},
        {
            "mean": ["abc", None, RAGGED, [[NAN]], [[1j]]],
            "scale": [-1.0, NAN, INF, "x", [1.0, 2.0, 3.0], RAGGED],
            "by_outcome": BOOL,
        },
    ),
    Call(
        "mdp.Picture",
        {"positions": value(((0.0, 1.0), (1.0, 1.0)))},
        {
            "positions": ["abc", None, 3, ((0.0,),), ((0.0, "x"),), ((0.0, NAN),), ((0.0, 1.0), (1.0,))],
            "cells": [3, "abc", (3,)],
        },
    ),
    Call(
        "mdp.Problem",
        {"space": space, "objective": discounted},
        {"space": SPACE, "objective": OBJECTIVE, "initial": INITIAL},
    ),
    Call(
        "mdp.validity.Validity", {"kind": value("exact"), "reason": value("why")}, {"kind": WORD, "reason": [3, None]}
    ),
    Call(
        "mdp.data.transitions.check_transitions",
        {"transitions": transitions, "space": space},
        {
            "transitions": [3, None, "log", lambda: target("Transitions")([0, 5], [0, 0], None, [0, 0])],
            "space": SPACE,
            "weight": [
                -1.0,
                NAN,
                INF,
                "x",
                None,
                [1.0],
                [1.0, -1.0, 1.0],
                [1.0, NAN, 1.0],
                RAGGED,
                1j,
                np.ones((3, 1)),
            ],
        },
    ),
    Call("mdp.restart_at_ends", {"mdp": mdp}, {"mdp": MDPS}),
    Call("mdp.unroll", {"mdp": mdp, "horizon": value(2)}, {"mdp": MDPS, "horizon": [*COUNT, 10**9]}),
    Call(
        "solve",
        {"mdp": mdp, "objective": discounted},
        {
            "mdp": MDPS,
            "objective": [*OBJECTIVE, lambda: target("Episodic")(10**12)],
            "start": [3, "start", [0.0]],
            "tolerance": [x for x in NOT_NEGATIVE if x is not None],
        },
        {},
    ),
    Call(
        "planning.solve_soft",
        {"mdp": mdp, "objective": discounted, "temperature": value(1.0)},
        {
            "mdp": MDPS,
            "objective": [*OBJECTIVE, lambda: target("Episodic")(10**12)],
            "temperature": [*POSITIVE, np.ones(2)],
            "start": [3, "start", [0.0]],
        },
    ),
    Call(
        "evaluate",
        {"mdp": mdp, "policy": value([0, 1]), "objective": discounted},
        {
            "mdp": MDPS,
            "objective": [*OBJECTIVE, lambda: target("Episodic")(10**12)],
            "policy": _POLICY,
        },
    ),
    Call(
        "planning.occupancy",
        {"mdp": mdp, "policy": value([0, 1]), "objective": discounted},
        {
            "mdp": MDPS,
            "objective": OBJECTIVE,
            "policy": _POLICY,
            "initial": INITIAL,
        },
    ),
    Call(
        "planning.policy_arrays.policy_probs",
        {"policy": value([0, 1]), "mdp": mdp},
        {"policy": _POLICY, "mdp": MDPS, "horizon": MAYBE_COUNT},
    ),
    Call("planning.solve.policy_chain", {"policy": value([0, 1]), "mdp": mdp}, {"policy": _POLICY, "mdp": MDPS}),
    Call(
        "planning.episodic.backward_induction",
        {"backup": value(lambda v, h: jnp.zeros((2, 2))), "horizon": value(2), "n_states": value(2)},
        {
            "backup": [3, None, "backup"],
            "horizon": COUNT,
            "n_states": COUNT,
            "legal": ["no", 3, RAGGED, [[2, 1], [1, 1]], [[1, 1]]],
            "policy": ["no", RAGGED, [[NAN, 1], [0, 1]], [[0.7, 0.7], [0, 1]], 3],
        },
    ),
    # models
    Call(
        "models.dirichlet_normal_gamma",
        {},
        {"concentration": NOT_NEGATIVE, "reward_concentration": POSITIVE, **_NORMAL_GAMMA, **_OUTCOME},
    ),
    Call(
        "models.dirichlet_normal",
        {},
        {"concentration": NOT_NEGATIVE, "loc": NUMBER, "scale": POSITIVE, "noise_scale": POSITIVE, **_OUTCOME},
    ),
    Call(
        "models.dirichlet_bernoulli",
        {},
        {"concentration": NOT_NEGATIVE, "concentration1": POSITIVE, "concentration0": POSITIVE, **_OUTCOME},
    ),
    Call(
        "models.dirichlet_poisson",
        {},
        {"concentration": NOT_NEGATIVE, "reward_concentration": POSITIVE, "rate": POSITIVE, **_OUTCOME},
    ),
    Call(
        "models.known_rewards", {"reward": value(np.zeros((2, 2)))}, {"reward": NUMBER, "concentration": NOT_NEGATIVE}
    ),
    Call(
        "models.unknown_concentration",
        {},
        {
            "concentration": [*LAW, dist.Normal(0, 1), dist.Gamma(np.ones(2), 1.0), dist.Poisson(1.0)],
            "rewards": [3, None, "x"],
        },
    ),
    Call(
        "models.sticky",
        {},
        {"stickiness": [*LAW, dist.Normal(0, 1)], "concentration": POSITIVE, "rewards": [3, None, "x"]},
    ),
    Call(
        "models.partial_pooling",
        {},
        {
            "rewards": [3, None, "x"],
            "usage": ["no", NAN, RAGGED, [[0.0, 1.0]], [[-1.0]], [[1j]]],
            "concentration": [*LAW, dist.Normal(0, 1), dist.LogNormal(np.zeros(2), 1.0)],
            "usage_power": [*LAW, dist.LogNormal(0, 1)],
            "state_concentration": [*LAW, dist.Normal(0, 1)],
        },
    ),
    Call(
        "models.shared_rewards",
        {},
        {"loc": LAW, "scale": [*LAW, dist.Normal(0, 1)], "noise_scale": LAW, "concentration": NOT_NEGATIVE, **_OUTCOME},
    ),
    Call(
        "models.clustered_states",
        {},
        {
            "num_clusters": COUNT,
            "concentration": LAW,
            "loc": LAW,
            "pseudo_count": POSITIVE,
            "reward_concentration": POSITIVE,
            "rate": POSITIVE,
        },
    ),
    Call(
        "models.feature_dynamics",
        {"features": value(np.ones((2, 2, 2, 1)))},
        {
            "features": [*NUMBER, 3.0, [1.0]],
            "strength": LAW,
            "scale": [*POSITIVE, [1.0, 1.0]],
            "rewards": [3, None, "x"],
        },
    ),
    Call(
        "models.robust_rewards",
        {},
        {"noise_scale": LAW, "excess_df": LAW, "concentration": NOT_NEGATIVE, "loc": NUMBER, "scale": POSITIVE},
    ),
    Call(
        "models.SupportedDirichlet",
        {"concentration": value(np.ones((2, 2))), "possible": value(np.ones((2, 2), bool))},
        {"concentration": [RAGGED, [["x", 1], [1, 1]], [[-1.0, 1], [1, 1]]], "possible": [RAGGED, [[0.5, 1], [1, 1]]]},
    ),
    Call("models.NormalGamma", {}, {"concentration": POSITIVE, **_NORMAL_GAMMA}),
    Call(
        "models.MDPSpec",
        {"transition_probs": rows, "reward": value(np.zeros((2, 2)))},
        {"transition_probs": [RAGGED, [["x", 1]], [[1j, 0]]], "reward": [RAGGED, [["x", 1]], [[1j, 0]]]},
    ),
    Call(
        "models.mdp_spec.check_spec",
        {"spec": spec, "space": space},
        {"spec": [3, None, "spec"], "space": SPACE},
        {"spec": "the prior returned"},
    ),
    Call(
        "models.mdp_spec.transition_table", {"spec": spec, "space": space}, {"spec": [3, None, "spec"], "space": SPACE}
    ),
    Call("models.mdp_spec.reward_table", {"spec": spec, "space": space}, {"spec": [3, None, "spec"], "space": SPACE}),
    Call(
        "models.mdp_spec.to_mdp",
        {"spec": spec, "space": space},
        {"spec": [3, None, "spec"], "space": SPACE, "initial": INITIAL},
    ),
    Call(
        "models.environment",
        {"spec": spec, "space": space, "initial": value([0.5, 0.5])},
        {
            "spec": [3, None, "spec"],
            "space": SPACE,
            "initial": [*INITIAL, None],
            "name": [3, None],
        },
        {"spec": "the prior returned"},
    ),
    Call(
        "models.random_environment",
        {"key": key, "prior": prior, "space": space},
        {
            "key": TYPED_KEY,
            "prior": [*PRIOR, None],
            "space": SPACE,
            "initial": INITIAL,
        },
    ),
    Call("models.joint", {"prior": prior, "space": space}, {"prior": [*PRIOR, None], "space": SPACE}),
    Call("models.predictive", {"prior": prior, "space": space}, {"prior": [*PRIOR, None], "space": SPACE}),
    Call(
        "models.joint.summarise",
        {"prior": prior, "space": space, "data": transitions},
        {"prior": [*PRIOR, None], "space": SPACE, "data": [*DATA, None]},
    ),
    Call(
        "models.joint.observe",
        {"spec": spec, "space": space, "data": transitions},
        {"spec": [3, None], "space": SPACE, "data": [*DATA, None]},
    ),
    Call(
        "models.supported_dirichlet",
        {"concentration": value(1.0), "space": space},
        {"concentration": NOT_NEGATIVE, "space": SPACE, "name": [3, None]},
    ),
    Call(
        "models.normal",
        {"mean_precision": value([0.0, 1.0])},
        {"mean_precision": ["x", None, 3.0, [1.0], [0.0, -1.0], [NAN, 1.0], RAGGED]},
    ),
    Call(
        "models.sufficient_statistics.CategoricalCounts",
        {"probs": rows},
        {"probs": ["x", None, 3.0, RAGGED, [-1.0, 2.0], [NAN, 1.0]]},
    ),
    Call(
        "models.sufficient_statistics.RewardStatistics",
        {"law": lambda: dist.Normal(0, 1)},
        {"law": [3, None, "normal", dist.StudentT(3.0)]},
    ),
    # envs
    Call("envs.bsuite_deep_sea", {}, {"size": [*COUNT, 1, 10**9], "stochastic": BOOL, "mapping_seed": SEED}),
    Call("envs.cartpole", {}, {"max_steps": COUNT}),
    Call("envs.mountain_car", {}, {"max_steps": COUNT}),
    Call("envs.observed.classic_control.CartPole", {}, {"max_steps": COUNT}),
    Call("envs.observed.classic_control.MountainCar", {}, {"max_steps": COUNT}),
    Call("envs.chain", {}, {"slip": FRACTION}),
    Call("envs.deep_sea", {}, {"size": [*COUNT, 1, 10**9], "noise": NOT_NEGATIVE}),
    Call("envs.deep_sea_continuing", {}, {"n_states": [*COUNT, 2, 10**9], "noise": WORD}),
    Call("envs.deep_sea_observed", {}, {"size": [*COUNT, 1], "stochastic": BOOL, "mapping_seed": SEED}),
    Call(
        "envs.observed.one_hot_observations.deep_sea_stochastic_observed",
        {},
        {"size": [*COUNT, 1], "mapping_seed": SEED},
    ),
    Call("envs.flag_maze", {}, {"slip": FRACTION, "layout": [3, None, "nosuch", "\n\n", "ab\ncd"]}),
    Call(
        "envs.garnet",
        {},
        {
            "n_states": [*COUNT, 10**9],
            "n_actions": COUNT,
            "branching": [*COUNT, 11],
            "seed": SEED,
            "noise": NOT_NEGATIVE,
        },
    ),
    Call("envs.icu_sepsis", {}, {"listed": BOOL, "admissible_only": BOOL}),
    Call(
        "envs.mail_robot",
        {},
        {
            "layout": [3, "nosuch", "ab\ncd"],
            "max_speed": COUNT,
            "arrival_interval": [0.5, *POSITIVE],
            "num_holders": COUNT,
            "delivery_reward": NUMBER,
            "gray_penalty": NUMBER,
        },
    ),
    Call(
        "envs.maze_with_subgoals",
        {},
        {"seed": [*SEED, None], "size": [*COUNT, 4], "blocked": FRACTION, "punishing": FRACTION, "slip": FRACTION},
    ),
    Call("envs.one_hot", {"env": env}, {"env": ENVIRONMENT, "num_steps": MAYBE_COUNT}),
    Call("envs.osband_chain", {}, {"n_states": [*COUNT, 1, 10**12], "horizon": MAYBE_COUNT, "stochastic": BOOL}),
    Call(
        "envs.prior_mdp",
        {},
        {
            "seed": [*SEED, None, 2**40],
            "n_states": [*COUNT, 10**9],
            "n_actions": COUNT,
            "pseudo_count": POSITIVE,
            "rewards_on": WORD,
        },
    ),
    Call(
        "envs.racetrack",
        {},
        {
            "track": [3, None, "nosuch", "ab\ncd"],
            "max_speed": MAYBE_COUNT,
            "slip": FRACTION,
            "crash": WORD,
            "gray_penalty": POSITIVE,
        },
    ),
    Call("envs.racetrack_space", {}, {"track": [3, None, "nosuch"], "max_speed": MAYBE_COUNT, "crash": WORD}),
    Call("envs.papers.chain_mdps.reachable", {"size": value(3)}, {"size": COUNT}),
    Call(
        "envs.read_track",
        {"source": value("corner")},
        {"source": [3, None, "nosuch", "ab\ncd"], "name": [3]},
        {"source": "track"},
    ),
    Call(
        "envs.papers.racetrack.Track",
        {"name": value("t"), "cells": value(("SF",))},
        {"name": [3, None], "cells": [3, None, "SF", (), ("S",), ("S", "FF"), (3,), ("S?F",)]},
        {"cells": "cells|track"},
    ),
    Call(
        "envs.seven_rooms",
        {},
        {"num_rooms": [*COUNT, 2, 10**12], "room_size": [*COUNT, 10**6], "slip": FRACTION, "per_row": COUNT},
    ),
    Call("envs.slippery_grid", {}, {"size": [*COUNT, 1, 10**9], "slip": FRACTION}),
    Call(
        "envs.two_action_chain",
        {},
        {
            "depth": [*COUNT, 1, 10**9],
            "discount": DISCOUNT,
            "mean_stop": NUMBER,
            "mean_chain": NUMBER,
            "scale": POSITIVE,
        },
    ),
    Call(
        "envs.wide_narrow",
        {},
        {
            "width": [*COUNT, 1],
            "num_pairs": [*COUNT, 10**9],
            "mean_high": NUMBER,
            "mean_low": NUMBER,
            "scale_high": NOT_NEGATIVE,
            "scale_low": NOT_NEGATIVE,
        },
    ),
    Call(
        "deep.host_env",
        {"env": value("CartPole-v1")},
        {"env": [3, None, "NoSuch-v1", [1]], "num_envs": without(COUNT, None)},
    ),
    Call(
        "envs.from_gymnasium",
        {"id_or_env": value("FrozenLake-v1")},
        {"id_or_env": [3, None, "NoSuch-v1", [1]], "initial": ["x", [1.0], np.zeros(16), RAGGED]},
    ),
    Call(
        "envs.to_gymnasium",
        {"env": env},
        {"env": [*ENVIRONMENT, "chain"], "seed": SEED, "max_episode_steps": MAYBE_COUNT},
    ),
    Call(
        "read_log",
        {"source": value("log.csv"), "state": value("s"), "action": value("a"), "next_state": value("s2")},
        {
            "source": [3, None, [1], "nosuch.csv"],
            "state": [None, ["s"]],
            "action": [["s"]],
            "reward": [["s"]],
            "cost": [["s"]],
            "next_state": [None, ["s"]],
            "episode": [["s"]],
            "missing_reward": [*WORD, "drop"],
            "reward_at": [*WORD, "drop"],
            "every": [3, "soon"],
            "count": [["s"], "nosuch"],
            "sep": [3, ";;"],
            "encoding": [3, "nosuch"],
            "decimal": [3, ";"],
            "chunksize": MAYBE_COUNT,
            "by_step": [True],
            "space": [3, "x"],
        },
    ),
    Call(
        "read_log",
        {
            "source": value("log.csv"),
            "state": value("s"),
            "action": value("a"),
            "next_state": value("s2"),
            "chunksize": value(10),
        },
        {
            "source": [3, None, [1], [], "nosuch.csv", ["log.csv", "log.csv"]],
            "by_step": [3, "yes"],
            "space": [3, "x"],
            "states": [["x", "x"], 3],
            "chunksize": MAYBE_COUNT,
            "allow_duplicates": [3, "yes"],
            "progress": [3, "yes"],
        },
        {"source": "source|has the content of"},
    ),
    Call(
        "envs.read_chunks",
        {
            "source": value("log.csv"),
            "state": value("s"),
            "action": value("a"),
            "next_state": value("s2"),
            "states": value(["x"]),
            "actions": value(["x"]),
            "chunksize": value(10),
        },
        {"source": [3, None, [1], "nosuch.csv"], "state": [None, ["s"]], "chunksize": COUNT, "states": [["x", "x"], 3]},
    ),
    # inference
    Call(
        "infer",
        {"key": key, "prior": prior, "data": transitions, "space": space},
        {
            "key": [*TYPED_KEY, lambda: jax.random.split(key(), 2)],
            "prior": [*PRIOR, None],
            "data": DATA,
            "space": SPACE,
            "method": WORD,
            "sampler": [3, None, "nuts"],
        },
    ),
    Call("explain", {"prior": prior, "space": space}, {"prior": [*PRIOR, None], "space": SPACE}),
    Call(
        "inference.fit_for",
        {"prior": prior, "space": space},
        {"prior": [*PRIOR, None], "space": SPACE, "method": WORD, "sampler": [3, None, "nuts"]},
    ),
    Call(
        "inference.NUTS",
        {},
        {"num_warmup": [-1, *MAYBE_COUNT[2:], None], "num_samples": COUNT, "num_chains": COUNT, "kernel": [3, "nuts"]},
    ),
    Call(
        "inference.Softmax",
        {"objective": lambda: bm.Discounted(0.9), "rationality": lambda: 2.0},
        {"objective": [3, "discounted", None], "rationality": POSITIVE, "max_hours": POSITIVE},
    ),
    Call(
        "inference.SVI",
        {},
        {"guide": [3, "guide"], "num_steps": COUNT, "learning_rate": POSITIVE, "num_samples": COUNT},
    ),
    Call("inference.Laplace", {}, {"num_steps": COUNT, "learning_rate": POSITIVE, "num_samples": COUNT}),
    Call(
        "inference.Gibbs", {}, {"num_warmup": [-1, *MAYBE_COUNT[2:], None], "num_samples": COUNT, "num_chains": COUNT}
    ),
    Call(
        "decisions.anchored_values",
        {**_JUDGE, "objective": one_step, "policies": lambda: {"a": [[0, 1]]}, "log": episodes},
        {
            **_BAD_JUDGE,
            "policies": [3, None, [0, 1], {"a": "greedy"}],
            "log": [3, None, "log"],
            "initial": [[1.0], [NAN, 1.0], "first"],
        },
        {"posterior": "policy_value|posterior", "policies": "polic|a:"},
    ),
    *(
        Call(
            f"decisions.{name}",
            {"mdp": sensitive_mdp, "policy": value([1, 1]), "logged": value(HALVES), "objective": discounted, **more},
            {
                "mdp": [3, None, "mdp"],
                "policy": ["greedy", None, [0, 2], RAGGED],
                "logged": [3, "half", [[0.5, 0.6]] * 2, [[0.5, 0.5]], RAGGED, [[NAN, 0.5]] * 2],
                "objective": [3, None, bm.AverageReward()],
                "initial": [[1.0], [NAN, 1.0]],
                "outcome_reward": [np.zeros(7), "x", [[NAN]]],
                **worse,
            },
            {"objective": "objective", "initial": "initial"},
        )
        for name, more, worse in (
            ("value_bounds", {"factor": value(1.5)}, {"factor": [0.5, NAN, INF, "2", None]}),
            ("tipping_point", {}, {}),
            ("confounding.tipping_tilt", {"score": value([0.0, 1.0])}, {"score": [[0.0] * 7, [NAN, 1.0], "x"]}),
        )
    ),
    Call(
        "decisions.tilted",
        {"mdp": sensitive_mdp, "logged": value(HALVES), "score": value([0.0, 1.0]), "delta": value(0.5)},
        {"mdp": [3, None, "mdp"], "logged": [3, [[0.5, 0.6]] * 2, RAGGED], "score": [[0.0] * 7, [NAN, 1.0], "x"]},
    ),
    Call(
        "decisions.tilted_draws",
        {
            "key": lambda: jax.random.key(0),
            "posterior": _JUDGE["posterior"],
            "logged": value([[0.5, 0.5]] * 2),
            "score": value([0.0, 1.0]),
            "num_draws": value(2),
        },
        {
            "key": TYPED_KEY,
            "posterior": [3, None],
            "logged": [3, [[0.5, 0.6]] * 2, RAGGED],
            "score": [[0.0] * 7, [NAN, 1.0], "x"],
            "delta": [3, "normal"],
            "num_draws": [0, 1, -1, 2.5, "3"],
        },
        {"posterior": "tilted_draws|posterior"},
    ),
    Call(
        "decisions.knowing",
        {"values": value([[1.0, 0.0], [0.0, 1.0]]), "weights": value([0.5, 0.5])},
        {
            "values": [RAGGED, "x", [[1j, 0.0]] * 2],
            "weights": [[0.5], [-1.0, 2.0], [NAN, 1.0], "x"],
            "results": [[[0.5, 0.5]], [[1.0]], RAGGED, "x"],
        },
    ),
    Call(
        "decisions.practice",
        {"log": log_in_contexts, "space": lambda: bm.StateActionSpace.from_log(log_in_contexts())},
        {"log": [3, None, "log"], "space": [3, None], "by": ["sex", ["sex"]]},
        {"space": "log or space", "by": "sex"},
    ),
    Call(
        "decisions.side_by_side",
        {"posterior": draws_in_contexts, "population": value([1.0, 1.0])},
        {
            "posterior": [3, None, "posterior"],
            "population": [None, "log", [1.0], [-1.0, 2.0], [0.0, 0.0]],
            "initial": [[0.5], "nosuch", {"a": 2.0}],
        },
    ),
    Call(
        "information.value_of_covariates",
        {
            "key": lambda: jax.random.key(0),
            "posterior": posterior_in_contexts,
            "objective": value(bm.Episodic(1)),
            "population": value([1.0, 1.0]),
            "num_draws": value(2),
        },
        {
            "objective": OBJECTIVE,
            "by": ["sex", ()],
            "population": ["rows", [1.0], [-1.0, 2.0], None],
            "num_draws": [0, 1, -1, 2.5, "3"],
        },
        {"by": "sex|by"},
    ),
    Call(
        "recommend.SubgroupOptions",
        {},
        {"confidence": INSIDE, "slack": NOT_NEGATIVE, "num_draws": [0, 1, 2.5, "3", None], "observational": BOOL},
    ),
    Call(
        "recommend.decide_by_subgroup",
        {
            "key": lambda: jax.random.key(0),
            "posterior": posterior_in_contexts,
            "log": log_in_contexts,
            "objective": value(bm.Episodic(1)),
            "policies": value({"x": [0]}),
            "subgroups": value(["age"]),
            "options": lambda: bm.recommend.SubgroupOptions(population=[1.0, 1.0], num_draws=64),
        },
        {
            "posterior": POSTERIOR,
            "log": [3, None, "log"],
            "objective": OBJECTIVE,
            "policies": [{}, {"baseline": [0]}],
            "subgroups": [["sex"], ()],
            "options": [3, None],
        },
        {"subgroups": "sex|by"},
    ),
    Call(
        "decisions.exogenous",
        {"mdps": lambda: [sensitive_mdp(), sensitive_mdp()], "moves": value([[0.5, 0.5]] * 2)},
        {"mdps": [[3, 4]], "moves": [[[0.5, 0.6]] * 2, [[1.0]], "x", RAGGED]},
    ),
    Call(
        "decisions.Outcome",
        {"reward": value([0.0, 1.0])},
        {
            "reward": [None, "x", 1.0, RAGGED, [NAN, 1.0], [1j], np.zeros((1,) * 5)],
            "discount": [0.0, 1.5, -1, NAN, INF, True, "3", [0.9], 1j],
            "half_cycle": BOOL,
        },
    ),
    Call(
        "policy_value",
        {**_JUDGE, "policy": value([0, 1])},
        {
            **_BAD_JUDGE,
            "policy": ["greedy", None, [0, 2], RAGGED, [1j, 0], *BY_LABEL],
            "initial": STARTS,
            "options": [*RECORD, _outcomes_of_another_size],
        },
        {"posterior": "policy_value", "options": "options|cost"},
    ),
    Call(
        "decisions.ValueOptions",
        {},
        {"outcomes": [3, {}, [0, 1], {"cost": [0.0, 1.0]}], "population_uncertainty": BOOL},
    ),
    Call(
        "compare_policies",
        {**_JUDGE, "policies": lambda: {"a": [0, 1]}},
        {
            **_BAD_JUDGE,
            "policies": [3, None, {}, [0, 1], {"a": "greedy"}, *({"a": bad} for bad in BY_LABEL)],
            "initial": STARTS,
            "options": RECORD,
        },
        {"posterior": "policy_value", "policies": "polic|a:"},
    ),
    Call(
        "decisions.VerdictOptions",
        {},
        {
            "value_range": [3, "x", (1, 0), (NAN, 1), (0, 1, 2)],
            "held_out": BOOL,
            "outcomes": [3, {}, {"cost": None}],
        },
    ),
    Call(
        "choose",
        _JUDGE,
        {
            **{name: bad for name, bad in _BAD_JUDGE.items() if name != "num_draws"},
            "criterion": ["nosuch", "cvar", "cvar:2", "cvar:x", "mean:1", None, 3],
            "baseline": ["greedy", [0, 2], RAGGED, [1j, 0], *BY_LABEL],
            "initial": STARTS,
            "options": RECORD,
        },
        {"posterior": "choose", "criterion": "criterion|level"},
    ),
    Call("decisions.ChooseOptions", {}, _BAD_CHOOSE_OPTIONS),
    Call(
        "decisions.Budget",
        {"limit": value(3.0)},
        {"limit": NUMBER, "probability": INSIDE},
    ),
    Call(
        "decisions.scenario_draws",
        {"variables": value(4), "allowed": value(0.05), "failure": value(0.001)},
        {"variables": COUNT, "allowed": INSIDE, "failure": INSIDE},
    ),
    Call(
        "decisions.budget_plan",
        {
            "mdp": mdp,
            "objective": discounted,
            "budgets": lambda: {"cost": target("decisions.Budget")(3.0, outcome=[[0.0, 1.0], [0.0, 1.0]])},
        },
        {
            "mdp": MDPS,
            "objective": [*OBJECTIVE, target("AverageReward")()],
            "budgets": [
                3,
                None,
                {},
                {"cost": 3.0},
                lambda: {"cost": target("decisions.Budget")(3.0)},
                lambda: {"cost": target("decisions.Budget")(-1.0, outcome=[[0.0, 1.0], [0.0, 1.0]])},
                lambda: {"cost": target("decisions.Budget")(3.0, outcome="dear")},
            ],
            "initial": STARTS,
            "limits": [3, None, "limits"],
        },
        {"budgets": "budget|outcome"},
    ),
    Call(
        "decisions.pareto_front",
        {
            "key": key,
            "posterior": posterior,
            "objective": discounted,
            "outcome": value({"cost": [[0.0, 1.0], [0.0, 1.0]]}),
        },
        {
            "key": TYPED_KEY,
            "posterior": POSTERIOR,
            "objective": [*OBJECTIVE, target("AverageReward")()],
            "outcome": [
                3,
                None,
                "dear",
                {},
                {3: [0.0, 1.0]},
                *({"cost": bad} for bad in ("dear", None, RAGGED, [1.0] * 7)),
            ],
            "options": RECORD,
            "initial": STARTS,
            "points": [1, *COUNT],
        },
        {"posterior": "pareto_front"},
    ),
    Call("plots.plot_pareto", {"front": value(None)}, {"front": [3, None, "x", {}]}),
    Call(
        "decisions.PolicyLimits",
        {},
        {
            "allowed": ["no", NAN, [[2, 1], [1, 1]]],
            "min_count": [-1, 2.5, "3", None],
            "bootstrap_below": [-1, 2.5, "3"],
            "max_change": [0.0, 1.5, *NUMBER],
            "stochastic": BOOL,
            "budgets": [3, "cost", {"cost": 3.0}, {3: None}],
        },
    ),
    Call("decisions.CVaR", {"level": value(0.1)}, {"level": [0.0, *FRACTION]}),
    Call("decisions.Percentile", {"level": value(0.1)}, {"level": [0.0, *FRACTION]}),
    Call("decisions.SoftRobust", {"level": value(0.1)}, {"level": [0.0, *FRACTION], "weight": FRACTION}),
    Call("decisions.Regret", {}, {"level": FRACTION}),
    Call("decisions.ProbabilityOptimal", {}, {"tolerance": NOT_NEGATIVE}),
    Call("decisions.Robust", {}, {"confidence": [0.0, *FRACTION]}),
    Call("mdp.split_log", {"key": key, "log": log}, {"key": TYPED_KEY, "log": DATA, "share": INSIDE}),
    Call(
        "criticise",
        {"key": key, "posterior": posterior, "log": plain_log, "objective": discounted},
        {
            "key": TYPED_KEY,
            "posterior": POSTERIOR,
            "log": DATA,
            "objective": OBJECTIVE,
            "initial": STARTS,
            "rivals": [3, "prior", {"a": 3}],
            "options": RECORD,
        },
    ),
    Call(
        "calibration.CriticiseOptions",
        {},
        {
            "num_replicates": [0, 50, 2.5, "x", None],
            "false_alarm": INSIDE,
            "choose_by": [3, "greedy"],
            "by_use": [1, "yes", None],
        },
    ),
    Call(
        "models.RegressionOptions",
        {},
        {"shrink": [word for word in WORD if word is not None], "standardise": BOOL, "name": [3, ["rows"]]},
    ),
    Call(
        "models.default_prior",
        {"log": log},
        {"log": DATA, "space": [3, "space"], "rewards": ["nosuch", 3, ["normal"]]},
    ),
    Call(
        "decide",
        {"key": key, "prior": prior, "log": log, "objective": discounted},
        {
            "key": TYPED_KEY,
            "prior": PRIOR,
            "log": DATA,
            "objective": OBJECTIVE,
            "baseline": ["greedy", [0, 2], *BY_LABEL],
            "policies": [3, "greedy", [[0, 0]], {"a": "greedy"}, {"a": [0, 2]}, {"chosen": [0, 0]}],
            "options": [*RECORD, *map(_decide_from, STARTS)],
        },
        {"options": "options|initial"},
    ),
    Call(
        "recommend.DecideOptions",
        {},
        {
            **_BAD_CHOOSE_OPTIONS,
            "space": [3, "space"],
            "criterion": ["nosuch", "cvar", None],
            "split": [1.0, *FRACTION],
            "value_range": [3, "x", (1, 0), (NAN, 1), (0, 1, 2)],
            "checks": BOOL,
        },
    ),
    Call("information.probability_optimal", _JUDGE, _BAD_JUDGE, {"posterior": "probability_optimal"}),
    Call("strategies.decision_model", {"program": value(_strategies)}, {"program": [3, None, "hiv", dict, list]}),
    Call(
        "information.Study",
        {"observations": value({"p": 3})},
        {"observations": [3, None, {}, {"p": -1}, {"p": NAN}, {"p": "x"}]},
    ),
    Call(
        "information.evpi",
        _VALUED,
        {"key": TYPED_KEY, "belief": POSTERIOR, "wtp": [3.0, "x"], "num_draws": optional(DRAWS)},
    ),
    Call(
        "information.evppi",
        {**_VALUED, "sites": value(["p", "q"])},
        {
            "key": TYPED_KEY,
            "belief": POSTERIOR,
            "sites": [["r"], "r", 3, None, [3]],
            "wtp": [3.0, "x"],
            "method": WORD,
            "num_draws": optional(DRAWS),
            "num_inner": optional(DRAWS),
        },
    ),
    Call("information.evsi", _STUDIED, _BAD_STUDIED),
    Call(
        "information.net_benefit_of_sampling",
        {**_STUDIED, "sizes": value([1, 2]), "economics": lambda: target("information.StudyEconomics")(10.0)},
        {**_BAD_STUDIED, "sizes": [[], [0], [-1.0], [NAN], ["x"], 3], "economics": RECORD},
    ),
    Call(
        "information.StudyEconomics",
        {"population": value(10.0)},
        {"population": NOT_NEGATIVE, "fixed_cost": NUMBER, "cost_per_size": NUMBER},
    ),
    Call(
        "information.discounted_population",
        {"incidence": value(3.0), "years": value(2)},
        {"incidence": NOT_NEGATIVE, "years": COUNT, "rate": [-1.0, *NUMBER]},
    ),
    Call("strategies.cost_effectiveness", {"draws": _costed}, {"draws": POSTERIOR}),
    Call(
        "strategies.acceptability",
        {"draws": _costed, "wtp": value([1.0, 2.0])},
        {"draws": POSTERIOR, "wtp": [[], -1.0, [1.0, NAN], "x", None, RAGGED]},
    ),
    Call(
        "strategies.StrategyDraws",
        {"strategies": value(("a",)), "outcomes": value(("value",)), "values": value(np.ones((3, 1, 1)))},
        {
            "strategies": [3, ["a"], ("a", "a"), ("a", "b")],
            "outcomes": [3, ("x", "y")],
            "values": [np.ones((3, 1)), np.full((3, 1, 1), NAN), "x", None, 3.0],
            "sites": [{"p": np.ones(2)}],
        },
        {"strategies": "strategies|values", "outcomes": "outcomes|values"},
    ),
    Call(
        "strategies.cohort_trace",
        {"transition": value(np.eye(2)), "initial": value([1.0, 0.0]), "n_cycles": value(3)},
        {"transition": [np.ones(2), np.ones((2, 3))], "initial": [[1.0], 1.0], "n_cycles": [-1, 2.5, "3", None]},
    ),
    Call(
        "strategies.cycle_weights",
        {"n_cycles": value(4)},
        {"n_cycles": COUNT, "rate": [-1.0, NAN, "x"], "counting": WORD},
    ),
    Call(
        "strategies.cohort_total",
        {"trace": value(np.ones((3, 2))), "per_state": value([1.0, 2.0]), "weights": value(np.ones(3))},
        {
            "per_state": [[1.0], np.ones((2, 2))],
            "weights": [np.ones(2), 1.0],
            "per_transition": [np.eye(2)],
            "once": [[1.0], [1.0, 0.0]],
            "event_weights": [np.ones(2)],
        },
        {"per_transition": "transition", "once": "once|event_weights"},
    ),
    Call(
        "strategies.trace_dataset",
        {"traces": value({"a": np.ones((3, 2))}), "states": value(("x", "y"))},
        {"traces": [{}, {"a": np.ones(3)}], "states": [("x", "x"), 3, ("x",)]},
        {"states": "states|traces"},
    ),
    Call(
        "plots.plot_cost_effectiveness",
        {"draws": _costed},
        {"draws": POSTERIOR, "reference": ["c"], "wtp": [-1.0, NAN]},
    ),
    Call("plots.plot_acceptability", {"table": value(None)}, {"table": [3, None, "x", {}]}),
    Call("plots.plot_expected_loss", {"table": value(None)}, {"table": [3, None, "x", {}]}),
    Call("plots.plot_policies", {"comparison": value(None)}, {"comparison": [3, None, "x", {}]}),
    Call("plots.plot_cohort", {"table": value(None)}, {"table": [3, None, "x", {}]}),
    Call(
        "information.expected_regret",
        _JUDGE,
        {**_BAD_JUDGE, "policy": ["greedy", [0, 2], *BY_LABEL], "initial": STARTS},
        {"posterior": "posterior"},
    ),
    Call(
        "information.next_experiment",
        _JUDGE,
        {
            **{argument: bad for argument, bad in _BAD_JUDGE.items() if argument != "num_draws"},
            "candidates": [3, "x", [], [0], [(0,)], [(0, 9)], [(9, 0)], [("x", 0)], [(0, True)], [(0, 0.5)]],
            "n": COUNT,
            "cost": [*POSITIVE, [1.0], [1.0, -1.0]],
            "initial": [[1.0], "first"],
            "num_data_sets": DRAWS,
        },
        {"posterior": "next_experiment", "num_data_sets": "num_data_sets|n is"},
    ),
    Call(
        "information.next_experiment",
        {**_JUDGE, "candidates": study_of([0, 1])},
        {
            "candidates": [
                {},
                {"a": 3},
                {"a": None},
                {"a": (0, 0)},
                [None],
                *map(study_of, _POLICY),
                study_of([0, 1], None),
            ],
            "n": COUNT,
            "cost": [*POSITIVE, [1.0, 1.0], [-1.0]],
        },
        {"candidates": "candidates|policy"},
    ),
    Call(
        "information.PolicyStudy",
        {"policy": value([0, 1]), "num_episodes": value(3)},
        {"policy": [RAGGED], "num_episodes": COUNT, "max_steps": without(COUNT, None)},
    ),
    Call(
        "decisions.split_return_variance",
        {**_JUDGE, "policy": value([0, 1])},
        {**_BAD_JUDGE, "policy": ["greedy", [0, 2], *BY_LABEL], "initial": STARTS},
        {"posterior": "posterior"},
    ),
    Call(
        "greedy",
        {"posterior": posterior, "objective": discounted},
        {"posterior": POSTERIOR, "objective": OBJECTIVE},
        {"posterior": "posterior"},
    ),
    Call("behaviour_policy", {"log": log}, {"log": [3, None, "log"], "space": optional(SPACE)}),
    Call(
        "decisions.bayes_optimal",
        {
            "prior": lambda: target("infer")(key(), target("models.dirichlet_bernoulli")(), space=space()),
            "objective": lambda: target("Episodic")(2),
        },
        {
            "prior": [*PRIOR, None],
            "objective": [*OBJECTIVE, target("Discounted")(0.9)],
            "initial": [bad for bad in INITIAL if bad != 0] + STARTS[2:],  # 0 is a state
            "max_hyperstates": COUNT,
        },
    ),
    Call(
        "decisions.plan_bayes_adaptive",
        {
            "key": key,
            "belief": lambda: target("infer")(key(), target("models.dirichlet_bernoulli")(), space=space()),
            "state": value(0),
            "objective": lambda: target("Episodic")(2),
        },
        {
            "key": TYPED_KEY,
            "belief": [3, None, "x", dict],
            "state": [-1, 10**6, 0.5, "x", None, NAN, [0]],
            "objective": [*OBJECTIVE, target("AverageReward")()],
            "step": [-1, 2, 0.5, "x", None, NAN],
            "num_simulations": optional(COUNT),
            "options": RECORD,
        },
    ),
    Call(
        "decisions.SearchOptions",
        {},
        {
            "max_seconds": optional(POSITIVE),
            "max_depth": optional(COUNT),
            "exploration": optional(NOT_NEGATIVE),
            "max_nodes": optional(COUNT),
            "num_draws": COUNT,
            "reward_bins": COUNT,
        },
    ),
    Call(
        "inference.posterior_samples",
        {"mdps": drawn},
        {
            "mdps": [*MDPS, mdp],
            "weights": ["x", [1.0], [-1.0, 1.0, 1.0], [NAN, 1, 1], [0.0, 0.0, 0.0], RAGGED, 1.0],
            "visits": ["x", [1.0], [[-1.0, 0], [0, 0]], RAGGED, 3],
        },
    ),
    Call(
        "inference.mixture",
        {"posteriors": lambda: [posterior(), posterior()]},
        {
            "posteriors": [3, None, "x", [], [1, 2]],
            "weights": ["x", [1.0], [-1.0, 1.0], [NAN, 1.0], RAGGED, 1.0],
        },
    ),
    Call(
        "inference.merge",
        {"posteriors": lambda: [posterior()]},
        {"posteriors": [3, None, [], "x", [1]], "allow_duplicates": [3, None, "yes"]},
    ),
    Call(
        "inference.log_predictive",
        {"posterior": posterior, "transitions": transitions},
        {"posterior": POSTERIOR, "transitions": [3, None, "log"]},
    ),
    Call("evidence", {"posterior": posterior, "key": key}, {"posterior": POSTERIOR, "key": optional(TYPED_KEY)}),
    Call(
        "inference.bayes_factors",
        {"posteriors": lambda: {"one": posterior(), "other": posterior()}, "key": key},
        {"posteriors": [3, None, "x", [1], {}, {"one": 3}, {"one": 3, "other": 3}], "key": optional(TYPED_KEY)},
    ),
    Call("inference.summary.describe", {"posterior": posterior}, {"posterior": POSTERIOR}),
    Call("inference.table", {"posterior": posterior}, {"posterior": POSTERIOR}),
    Call(
        "posterior_from_draws",
        {"draws": _rows_of_draws, "reward": value([[0.0], [1.0]])},
        {
            "draws": [3, None, "no/such/file.nc", {}, []],
            "transition": ["Q", {}],
            "reward": [3.0, "r", RAGGED],
            "space": SPACE[:1],
        },
        {"draws": "draws|transition", "transition": "transition"},
    ),
    Call("save", {"result": posterior, "path": value("nosuch/folder/p.bm")}, {"result": POSTERIOR}),
    Call(
        "load", {"path": value("p.bm")}, {"path": [3, None, ".", "no/such/file"]}, {"path": "path|file|holds no sweep"}
    ),
    # calibration
    Call(
        "to_arviz",
        {"posterior": posterior, "num_draws": value(5), "key": key},
        {
            "posterior": POSTERIOR,
            "num_draws": without(DRAWS, 1),
            "key": optional(TYPED_KEY),
            "data": DATA,
            "log_likelihood": ["no", 3],
        },
    ),
    Call(
        "calibration.arviz.export.dataset",
        {"posterior": posterior, "num_draws": value(5), "key": key},
        {
            "posterior": POSTERIOR,
            "group": WORD,
            "num_draws": without(DRAWS, 1),
            "key": optional(TYPED_KEY),
            "data": DATA,
        },
    ),
    Call(
        "calibration.loo_pit",
        {"posterior": posterior, "data": log, "key": key},
        {"posterior": POSTERIOR, "data": [*DATA, None], "num_draws": without(DRAWS, 1), "key": optional(TYPED_KEY)},
    ),
    Call(
        "calibration.predictive_check",
        {"posterior": posterior, "data": log, "key": key},
        {
            "posterior": POSTERIOR,
            "data": [*DATA, None],
            "num_draws": without(DRAWS, 1),
            "key": optional(TYPED_KEY),
            "statistics": [3, "mean", {"a": 3}],
            "group": WORD,
        },
    ),
    Call(
        "calibration.prior_sensitivity",
        {"posterior": posterior, "key": key},
        {
            "posterior": POSTERIOR,
            "data": DATA,
            "objective": optional(OBJECTIVE),
            "num_draws": without(DRAWS, 1),
            "key": optional(TYPED_KEY),
            "quantities": [3, "mean", {"a": 3}],
        },
    ),
    Call("calibration.diagnose", {"posterior": posterior}, {"posterior": POSTERIOR}),
    Call(
        "calibration.sbc",
        {"key": key, "prior": prior, "space": space},
        {
            "key": TYPED_KEY,
            "prior": [*PRIOR, None],
            "space": SPACE,
            "num_simulations": COUNT,
            "objective": optional(OBJECTIVE),
            "path": PATH,
            "options": RECORD,
        },
    ),
    Call("calibration.SbcOptions", {}, {**_BAD_SIMULATION, "num_transitions": COUNT}),
    Call(
        "check",
        {"key": key, "prior": prior, "space": space},
        {
            "key": TYPED_KEY,
            "prior": [*PRIOR, None],
            "space": SPACE,
            "data": DATA,
            "objective": optional(OBJECTIVE),
            "num_simulations": COUNT,
            "path": PATH,
            "options": RECORD,
        },
    ),
    Call("calibration.CheckOptions", {}, {**_BAD_SIMULATION, "num_transitions": MAYBE_COUNT, "false_alarm": INSIDE}),
    Call("plots.plot_check", {"check": value(None)}, {"check": [3, None, "check"]}),
    Call(
        "calibration.predictive_loo",
        {"posterior": posterior, "data": log, "key": key},
        {"posterior": POSTERIOR, "data": [*DATA, None], "num_draws": without(DRAWS, 1), "key": optional(TYPED_KEY)},
    ),
    # experiments
    Call(
        "run",
        _RUN,
        {
            "agent": [3, None, "psrl", [1]],
            "env": [*ENVIRONMENT, "NoSuch-v1"],
            "objective": OBJECTIVE,
            "key": [*TYPED_KEY, 3],
            "prior": [3, None, "dirichlet"],
            "num_steps": [*COUNT, 2**31],
            "num_episodes": [3, *MAYBE_COUNT],
            "num_seeds": COUNT,
            "path": PATH,
            "options": RECORD,
        },
        {"num_episodes": "num_steps", "prior": "prior|posterior"},
    ),
    Call(
        "experiments.RunOptions",
        {},
        {
            "regret": [3, "nosuch", ["a"]],
            "space": ["x", 3],
            "num_checkpoints": COUNT,
            "progress": BOOL,
            "snapshot_seconds": [-1.0, NAN, "x", None],
            "method": WORD,
            "num_particles": COUNT,
            "refit_every": MAYBE_COUNT,
            "table_rows": COUNT,
            "devices": [*MAYBE_COUNT, 10**6, [], ["cpu"]],
            "compiler": WORD,
        },
    ),
    Call(
        "experiments.Task",
        {"env": env, "objective": discounted, "length": value(3)},
        {"env": [*ENVIRONMENT, "chain"], "objective": OBJECTIVE, "length": COUNT},
    ),
    Call(
        "compare",
        {
            "agents": value(["psrl"]),
            "envs": lambda: [env()],
            "key": key,
            "objective": discounted,
            "length": value(3),
            "prior": prior,
        },
        {
            "agents": [3, None, [], "nosuch", ["psrl", "psrl"], {}, [3]],
            "envs": [3, None, [], "nosuch", {}, [3]],
            "key": TYPED_KEY,
            "num_seeds": [*COUNT, 1],
            "objective": OBJECTIVE,
            "length": COUNT,
            "path": PATH,
            "executor": EXECUTOR,
            "options": [3, None],
        },
        {"agents": "agent", "envs": "env"},
    ),
    Call(
        "sweeps.sweep",
        {
            "agents": value(["epsilon_greedy_q"]),
            "envs": value({"deep_sea": {"size": 3}}),
            "key": key,
            "num_episodes": value(3),
        },
        {
            "agents": [3, None, [], {}, [3], "nosuch", {"psrl": 3}, {"psrl": {"nosuch": 1}}, {"psrl": {"replan": []}}],
            "envs": [3, None, [], {}, [3], "nosuch", {"deep_sea": {"size": None}}, {"deep_sea": {"size": "x"}}],
            "priors": [3, "nosuch", {"dirichlet_normal": {"nosuch": 1}}],
            "key": TYPED_KEY,
            "objective": optional(OBJECTIVE),
            "num_steps": [3, *MAYBE_COUNT],
            "num_episodes": COUNT,
            "num_seeds": COUNT,
            "path": [3, 2.5],
            "options": [*RECORD, lambda: target("experiments.SweepOptions")(num_blocks=10**7)],
        },
        {"priors": "prior", "options": "options|blocks"},
    ),
    Call(
        "experiments.SweepOptions",
        {},
        {"num_blocks": COUNT, "regret": optional(WORD), "executor": EXECUTOR, "retries": [x for x in COUNT if x != 0]},
    ),
    Call(
        "sweeps.sweep_status",
        {"path": value(".")},
        {"path": [3, None, "no/such/folder"]},
        {"path": "path|holds no sweep"},
    ),
    Call(
        "Actor",
        {"agent": agent, "space": space, "objective": discounted, "key": key, "prior": prior},
        {
            "agent": [3, None, "psrl"],
            "space": SPACE,
            "objective": OBJECTIVE,
            "key": TYPED_KEY,
            "prior": [3, None, "x"],
            "initial": INITIAL,
        },
        {"prior": "prior|posterior"},
    ),
    Call(
        "reproductions.reproduce.reproduce",
        {"name": value("ube-fig2")},
        {
            "name": WORD,
            "scale": WORD,
            "key": optional(TYPED_KEY),
            "path": PATH,
            "options": [3, "x", {"nosuch": 1}],
            "executor": EXECUTOR,
        },
    ),
    Call("experiments.describe_compare", {"result": value(None)}, {"result": [3, None, "x"]}),
    Call("plots.plot_compare", {"result": value(None)}, {"result": [3, None, "x"]}),
    Call("plots.plot_regret", {"results": value(None)}, {"results": [3, None, "x", {}, {"a": 3}]}),
    Call("plots.plot_values", {"values": value(None)}, {"values": [3, None, "x", {}, {"a": 3}]}),
    Call("plots.plot_posterior", {"posterior": posterior}, {"posterior": POSTERIOR}),
    Call("plots.plot_env", {"env": env}, {"env": ENVIRONMENT, "step": [-1, 2.5, "x"], "states": ["x", [0], 3]}),
    Call(
        "plots.plot_trajectory",
        {"env": env, "states": value([0, 1])},
        {"env": ENVIRONMENT, "states": ["x", None, 3, [7], [0.5], []], "longest": [0, -1, "x", NAN, [1], 1j, True]},
    ),
    Call("plots.plot_training", {"results": value(None)}, {"results": [3, None, "x", {}, {"a": 3}]}),
    Call("plots.plot_visits", {"result": value(None)}, {"result": [3, None, "x"]}),
    Call(
        "deep.Evaluation",
        {"every": value(1), "steps": value(1)},
        {"every": COUNT, "steps": COUNT, "epsilon": optional(FRACTION), "num_envs": COUNT},
    ),
    Call(
        "deep.TrainOptions",
        {},
        {
            "num_envs": COUNT,
            "replay_size": [*COUNT, 1],
            "evaluation": [3, "x"],
            "checkpoint_seconds": NOT_NEGATIVE,
            "chunk": COUNT,
            "progress": BOOL,
            "device": ["nosuch", 3],
        },
    ),
    Call(
        "deep.train",
        {
            "agent": target("agents.neural.DQN"),
            "env": lambda: target("envs.deep_sea_observed")(4),
            "num_steps": value(3),
            "key": key,
        },
        {
            "agent": [3, None, "dqn"],
            "env": [3, None, "deep_sea"],
            "num_steps": COUNT,
            "num_seeds": COUNT,
            "key": optional(TYPED_KEY),
            "path": [3, 2.5],
            "options": [3, "x"],
        },
    ),
    Call(
        "deep.load_training",
        {"path": value("no/such"), "agent": agent, "env": env},
        {"path": ["no/such/folder"]},
        {"path": "no/such"},
    ),
    Call(
        "deep.evaluate_agent", {"training": value(None), "env": env, "how": value(None)}, {"training": [3, None, "x"]}
    ),
    Call(
        "experiments.compare_agents.comparison_agents",
        {},
        {"names": [3, "psrl", ["nosuch"], [3]], "constants": WORD},
        {"names": "agent|names"},
    ),
    Call("experiments.leaderboard", {"result": value(None), "key": key}, {"result": [3, None, "x"]}),
    Call("benchmarks.validation.reference_results.learning_levels", {}, {"num_seeds": COUNT, "seed": [*SEED, 2**70]}),
    Call("benchmarks.validation.scorecard_report.describe_scorecard", {"lines": value(None)}, {"lines": [3, None]}),
    Call("benchmarks.validation.scorecard_report.plot_scorecard", {"result": value(None)}, {"result": [3, None, "x"]}),
    Call("benchmarks.validation.scorecard_report.scores_of", {"result": value(None)}, {"result": [3, None, "x"]}),
    Call(
        "benchmarks.validation.scorecard.scorecard",
        {"key": key},
        {"key": TYPED_KEY, "classes": [3, None, ("nosuch",), "cyclic"], "methods": [3, None, ("nosuch",), "UBE ratio"]},
        {"classes": "class", "methods": "method"},
    ),
    # what agents are made of
    Call(
        "agents.Greedy",
        {"q": value(np.zeros((2, 2)))},
        {
            "q": ["x", None, 3.0, RAGGED, [[NAN, 0], [0, 0]], [[1j, 0], [0, 0]]],
            "legal": [x for x in LEGAL if x != [[0, 0], [1, 1]]],
            "best": ["x", [0], [0, 5], [0.5, 1.0], [-1, 0]],
        },
    ),
    Call(
        "agents.Boltzmann",
        {"q": value(np.zeros((2, 2))), "temperature": value(1.0)},
        {"q": ["x", None, 3.0, RAGGED], "temperature": without(POSITIVE, INF), "legal": ["no", RAGGED, [[1, 1]]]},
    ),
    Call(
        "agents.EpsilonGreedy",
        {"q": value(np.zeros((2, 2))), "epsilon": value(0.1)},
        {"q": ["x", None, 3.0, RAGGED], "epsilon": FRACTION, "legal": ["no", RAGGED, [[1, 1]]]},
    ),
    Call(
        "agents.common.table_policies.GaussianThompson",
        {"mean": value(np.zeros((2, 2))), "sd": value(np.ones((2, 2)))},
        {
            "mean": ["x", None, 3.0, RAGGED],
            "sd": ["x", None, 1.0, [1.0], RAGGED, -np.ones((2, 2)), np.full((2, 2), NAN)],
            "noise": ["x", 1.0, RAGGED],
            "factor": [np.ones((2, 2, 2)), "x"],
        },
        {"mean": "q|mean"},
    ),
    Call("agents.common.replan.EverySteps", {"num_steps": value(3)}, {"num_steps": COUNT}),
    Call("agents.Geometric", {"factor": value(2.0)}, {"factor": [1.0, 0.5, *without(NUMBER, DATE)]}),
    Call("agents.Reached", {"num_visits": value(3)}, {"num_visits": COUNT}),
    Call("agents.common.replan.When", {"function": value(lambda context: True)}, {"function": [3, None, "x"]}),
    Call(
        "agents.PrioritizedSweeping",
        {},
        {
            "num_pops": COUNT,
            "threshold": without(NOT_NEGATIVE, INF),
            "max_successors": MAYBE_COUNT,
            "max_predecessors": MAYBE_COUNT,
        },
    ),
]

_PLANNER = [3, None, "exact"]
_OPTIONS: dict[str, list[Any]] = {
    "replan": REPLAN,
    "planner": _PLANNER,
    "scale": NOT_NEGATIVE,
    "eta": NOT_NEGATIVE,
    "max_reward": without(NUMBER),
    "min_reward": NUMBER,
    "update": WORD,
    "choose": WORD,
    "loc": NUMBER,
    "pseudo_count": POSITIVE,
    "concentration": POSITIVE,
    "rate": POSITIVE,
    "num_visits": [0, -1, *NUMBER],
    "threshold": FRACTION,
    "num_explore": [0, -1, 2.5, *NUMBER],
    "reward_width": NOT_NEGATIVE,
    "transition_width": optional(NOT_NEGATIVE),
    "v_max": NUMBER,
    "beta": NOT_NEGATIVE,
    "z": NOT_NEGATIVE,
    "num_draws": COUNT,
    "pseudo_reward": NUMBER,
    "inflation": POSITIVE,
    "noise": NOT_NEGATIVE,
    "regularization": POSITIVE,
    "learning_rate": FRACTION,
    "falling_rate": without(FRACTION, None),
    "epsilon": FRACTION,
    "initial_q": NUMBER,
    "frozen": BOOL,
    "bootstrap": BOOL,
    "trial_steps": COUNT,
    "q_max": NOT_NEGATIVE,
    "form": WORD,
    "delta": INSIDE,
    "num_episodes": without(COUNT, [1]),
    "bonus": WORD,
    "bonus_scale": NOT_NEGATIVE,
    "span": NOT_NEGATIVE,
    "num_iterations": COUNT,
    "variance": WORD,
    "tolerance": POSITIVE,
    "half_life": without(POSITIVE, INF),
    "quantile": INSIDE,
    "temperature": POSITIVE,
    "schedule": WORD,
    "reward_sd": NOT_NEGATIVE,
    "unvisited": NOT_NEGATIVE,
    "joint": BOOL,
    "clip": BOOL,
    "bonus_discount": DISCOUNT,
    "explore_prob": FRACTION,
    "theta": INSIDE,
    "sigma_max": POSITIVE,
    "rate_power": NOT_NEGATIVE,
    "initial_value": NUMBER,
    "rewards": BOOL,
    "num_states": COUNT,
    "initial_bonus": NOT_NEGATIVE,
    "prior_sd": NOT_NEGATIVE,
    "freeze": BOOL,
    "num_tables": COUNT,
    "prior_transitions": POSITIVE,
    "sampled": BOOL,
    "trace_decay": FRACTION,
    "features": [3, "x", RAGGED, np.zeros((2, 2)), np.full((2, 2, 1), NAN)],
    "inverse_temperature": POSITIVE,
    "step_size": INSIDE,
    "num_steps": COUNT,
    "num_simulations": COUNT,
    "max_depth": COUNT,
    "episodes": COUNT,
    "exploration": NOT_NEGATIVE,
    "random_rollouts": FRACTION,
    "keep_tree": BOOL,
    "max_nodes": COUNT,
    "reward_bins": COUNT,
}
_WORDS_FOR_NOISE = ("UBE", "CovarianceThompson", "ExactUBE", "MomentMatching", "MonteCarloThompson")


def _agent_calls() -> Iterator[Call]:
    """Every agent of the registry, every one of its options."""
    for agent_class in dict.fromkeys(bm.agents.AGENTS.values()):
        bad = {}
        for name, parameter in inspect.signature(agent_class).parameters.items():
            values = WORD if name == "noise" and agent_class.__name__ in _WORDS_FOR_NOISE else _OPTIONS[name]
            if name == "pseudo_count" and agent_class.__name__ in ("BayesUCBVI", "OPSRL"):
                values = NOT_NEGATIVE
            bad[name] = optional(values) if parameter.default is None else values
        name = agent_class.__name__
        module = "agents" if name in dir(bm.agents) else agent_class.__module__.removeprefix("bayes_mdp.")
        yield Call(f"{module}.{name}", {}, bad)


CALLS.extend(_agent_calls())

_MODEL = [3, None, "two_step", dict]
_PARAMS = [{"a": 0.5}, {**behaviour_params(), "b": 1.0}, {**behaviour_params(), "a": 2.0}]
_LOG = [3, None, "log"]
_OF_CHOICES: dict[str, Callable[[], Any]] = {"model": behaviour_model, "params": behaviour_params, "log": choices}
_FITTED: dict[str, Callable[[], Any]] = {"key": key, "posterior": behaviour_posterior}
_TASK = [3, None, "task", dict]


def _first_agent(params: Any) -> Any:
    return bm.agents.SoftQ()


def _same_mdp(params: Any) -> Any:
    return mdp()


CALLS += [
    Call(
        "behaviour.ChoiceLog",
        {"state": value([[0, 1]]), "action": value([[0, 1]]), "reward": value([[1.0, 0.0]])},
        {
            "state": [[[0.5, 1.0]], [0, 1], "s", RAGGED, [[0, 1, 1]]],
            "action": [[[0.5, 1.0]], [0, 1], "s", [[0, -1]]],
            "reward": [[[NAN, 1.0]], ["a", "b"], [1.0, 2.0]],
            "next_state": [[[0.5, 1.0]], [[0, -1]], [0]],
            "terminated": [[[0.5, 1.0]], [True]],
            "observed": [[[0.5, 1.0]], [True]],
            "subjects": [["a", "b"], 3],
            "states": [[0], 3, [0, 0]],
            "actions": [[0], 3, [0, 0]],
        },
        {"state": "state|action", "action": "action", "states": "state", "actions": "action"},
    ),
    Call(
        "behaviour.Parameter",
        {},
        {"support": ["half", 3, (1.0, 0.0), (0.0, INF), None], "group_mean": LAW, "group_sd": LAW},
    ),
    Call(
        "behaviour.TwoStep",
        {},
        {
            "num_parameters": [5, "7", None],
            "reward_error": WORD,
            "common": FRACTION,
            "priors": [{"a1": 3}, {"speed": 3}],
        },
    ),
    Call(
        "behaviour.TwoStepTask",
        {},
        {"common": FRACTION, "drift": NOT_NEGATIVE, "low": FRACTION, "high": FRACTION},
    ),
    Call(
        "behaviour.two_step_log",
        {name: value([[0, 1]]) for name in ("first", "second", "reward")} | {"second_state": value([[1, 2]])},
        {
            "first": [[[0.5, 1.0]], "s"],
            "second_state": [[[0, 1]], [[1]]],
            "second": [[[0.5, 1.0]], [[1]]],
            "reward": [[[1.0]]],
            "observed": [[[0.5, 1.0]], [[True]]],
            "subjects": [["a", "b"]],
        },
    ),
    Call(
        "behaviour.LearnerChoices",
        {
            "make": value(_first_agent),
            "parameters": value({}),
            "problem": lambda: bm.mdp.Problem(space(), bm.Discounted(0.9)),
        },
        {"make": [3, None, "agent"], "problem": [3, None], "lapse": BOOL},
    ),
    Call(
        "behaviour.PlannerChoices",
        {"make": value(_same_mdp), "parameters": value({}), "objective": discounted},
        {"make": [3, None, "mdp"], "objective": OBJECTIVE},
    ),
    Call(
        "behaviour.read_choices",
        {
            "source": value(pd.DataFrame({"who": [1, 1], "what": [0, 1], "paid": [0.0, 1.0]})),
            "subject": value("who"),
            "action": value("what"),
            "reward": value("paid"),
        },
        {
            "source": [3, None, "no/such/file.csv"],
            **{name: ["nosuch", None, 3] for name in ("subject", "action", "reward")},
            **{name: ["nosuch", 3] for name in ("state", "next_state", "terminated", "trial")},
            "cost": ["paid"],
            "missing": WORD,
        },
    ),
    *(
        Call(f"behaviour.{name}", _OF_CHOICES, {"model": _MODEL, "params": _PARAMS, "log": _LOG})
        for name in ("log_likelihood", "likelihood.choice_log_probs")
    ),
    Call(
        "behaviour.numpyro_model",
        {"model": behaviour_model, "log": choices},
        {"model": _MODEL, "log": _LOG, "pooling": WORD},
    ),
    Call(
        "behaviour.ready_model",
        {"name": value("habit"), "log": choices},
        {"name": WORD, "log": _LOG, "objective": without(OBJECTIVE, None)},
    ),
    Call(
        "behaviour.fit",
        {"key": key, "model": behaviour_model, "log": choices},
        {"key": TYPED_KEY, "model": _MODEL, "log": _LOG, "pooling": WORD, "sampler": [3, "nuts"]},
    ),
    Call(
        "behaviour.simulate",
        {
            "key": key,
            "model": behaviour_model,
            "params": behaviour_params,
            "environment": value(bm.behaviour.TwoStepTask()),
            "num_choices": value(4),
        },
        {
            "key": TYPED_KEY,
            "model": _MODEL,
            "params": _PARAMS,
            "environment": _TASK,
            "num_choices": COUNT,
            "subjects": [0, -1, 2.5, True, "pqr"],
            "horizon": MAYBE_COUNT,
        },
    ),
    Call(
        "behaviour.predict_choices",
        _FITTED,
        {"key": TYPED_KEY, "posterior": POSTERIOR, "num_draws": COUNT},
    ),
    Call(
        "behaviour.predict_freely",
        {**_FITTED, "environment": value(bm.behaviour.TwoStepTask())},
        {"key": TYPED_KEY, "posterior": POSTERIOR, "environment": _TASK, "num_draws": COUNT, "horizon": MAYBE_COUNT},
    ),
    Call(
        "behaviour.fit_behaviour.subject_log_likelihood",
        _FITTED,
        {"key": TYPED_KEY, "posterior": POSTERIOR, "num_draws": MAYBE_COUNT, "num_proposals": COUNT},
    ),
    Call(
        "calibration.sbc_behaviour",
        {
            "key": key,
            "model": behaviour_model,
            "environment": value(bm.behaviour.TwoStepTask()),
            "num_simulations": value(1),
            "options": lambda: target("calibration.SbcBehaviourOptions")(num_choices=4, num_draws=2),
        },
        {
            "key": TYPED_KEY,
            "model": _MODEL,
            "environment": _TASK,
            "num_simulations": COUNT,
            "options": [*RECORD, _short_chain],
            "path": PATH,
        },
        {"options": "options|sampler"},
    ),
    Call(
        "calibration.SbcBehaviourOptions",
        {},
        {
            "num_subjects": COUNT,
            "num_choices": COUNT,
            "num_draws": COUNT,
            "pooling": WORD,
            "horizon": MAYBE_COUNT,
            "sampler": [3, "nuts"],
            "quantities": [3, "rate", {"rate": 3}],
        },
    ),
    Call(
        "calibration.check_choices",
        _FITTED,
        {
            "key": TYPED_KEY,
            "posterior": POSTERIOR,
            "environment": without(_TASK, None),
            "num_draws": COUNT,
            "statistics": [3, "stay", {"a": 3}],
        },
    ),
    Call(
        "calibration.compare_behaviour",
        {"posteriors": lambda: {"a": behaviour_posterior(), "b": behaviour_posterior()}},
        {"posteriors": [3, {}, {"a": 3}, {"a": 3, "b": 4}], "unit": ["trial", 3, None], "num_draws": COUNT},
    ),
    Call(
        "plots.plot_learning_curve",
        {"posterior": behaviour_posterior},
        {
            "posterior": POSTERIOR,
            "better": [3, {"nowhere": 0}],
            "key": without(TYPED_KEY, None),
            "num_blocks": COUNT,
            "num_draws": COUNT,
        },
    ),
    Call(
        "plots.plot_shrinkage",
        {"posterior": behaviour_posterior},
        {"posterior": POSTERIOR, "alone": without(POSTERIOR, None), "parameter": ["who", 3]},
    ),
]

EXEMPT = {
    "no arguments": "AverageReward FirstExit decisions.ExpectedValue agents.DynamicEpisodes agents.ExactPlanner "
    "envs.loop envs.riverswim envs.riverswim_episodic envs.six_arms experiments.show_versions",
    "needs gymnax, which need not be installed": "envs.gymnax_env",
    "a type": "agents.AgentClass",
    "a record that the library fills": "mdp.FoldedLog mdp.ReplanContext mdp.TimeStep "
    "agents.OneAction inference.CollapsedPosterior inference.ConjugatePosterior "
    "inference.FactorisedPosterior inference.SampledPosterior",
    "files are another matter": "recommend.write_report",
    "a warning": "inference.SamplingWarning",
    "they run inside a program: tests/models/test_regression_rows.py": "models.hazard_rows models.logit_rows "
    "models.ordinal_rows models.stick_rows",
    "they run inside a program: tests/models/test_regression_rewards.py": "models.linear_rewards "
    "models.logistic_rewards models.poisson_rewards",
}


# ------------------------------------------------------------------------------------------------- command lines
_BAD_COUNT = ["0", "-1", "2.5", "x", "", "nan", "1e12", str(2**70)]
_BAD_SEED = ["-1", "2.5", "x", "", str(2**32), str(2**70)]
_BAD_SHARE = ["-0.1", "1.5", "nan", "x", "", "inf"]
_NO_FOLDER = "no/such/folder/file.nc"
_BAD_OBJECTIVE = {"--discount": ["1", *_BAD_SHARE], "--horizon": _BAD_COUNT}
_BAD_PRIOR = ["nosuch", "known_rewards", "nosuch:prior", "json:nosuch", "json:__name__", ":"]
_COLUMNS = ("--state", "--action", "--next-state")
_FIT = ["fit", "log.csv", "--state", "s", "--action", "a", "--next-state", "s2"]

COMMANDS: list[tuple[list[str], dict[str, list[str]]]] = [
    (
        _FIT,
        {
            **_BAD_OBJECTIVE,
            **{
                name: ["nosuch", ""]
                for name in (*_COLUMNS, "--reward", "--terminated", "--truncated", "--episode", "--step")
            },
            "--prior": _BAD_PRIOR,
            "--method": ["nosuch", ""],
            "--seed": _BAD_SEED,
            "--draws": _BAD_COUNT,
            "--save": [_NO_FOLDER],
            "--netcdf": [_NO_FOLDER],
            "--figure": [_NO_FOLDER],
        },
    ),
    ([*_FIT, "--horizon", "2"], {"--draws": ["1", "2000000000"]}),
    (_FIT, {"--horizon": ["2000000000"]}),
    (
        ["calibrate", "dirichlet_bernoulli", "--states", "2", "--actions", "2"],
        {
            **_BAD_OBJECTIVE,
            "--states": _BAD_COUNT,
            "--actions": _BAD_COUNT,
            "--simulations": [*_BAD_COUNT, "9"],
            "--draws": [*_BAD_COUNT, "9"],
            "--transitions": _BAD_COUNT,
            "--false-alarm": ["0", "1", *_BAD_SHARE],
            "--seed": _BAD_SEED,
            "--method": ["nosuch"],
            "--out": [_NO_FOLDER],
            "--figure": [_NO_FOLDER],
            "--state": ["s"],
            "--log": ["log.csv"],
        },
    ),
    (
        ["evaluate-decision", "strategies.py:strategies"],
        {
            "--strategies": ["a,c", "", "a,a"],
            "--wtp": ["x", "-1", "5:1", "1:2:3", "nan", "", "3"],
            "--sites": ["r", "", "p;r"],
            "--study": ["p", "p=x", "r=3", "p=-1", "p=3/1", "p=2.5", ""],
            "--draws": _BAD_COUNT,
            "--points": _BAD_COUNT,
            "--inner": _BAD_COUNT,
            "--seed": _BAD_SEED,
            "--out": ["strategies.py"],
        },
    ),
    (
        ["next-experiment", *_FIT[1:], "--discount", "0.9"],
        {
            "--prior": [*_BAD_PRIOR, "sticky"],
            "--candidates": ["log.xyz", "strategies.py"],
            "--observations": _BAD_COUNT,
            "--data-sets": [*_BAD_COUNT, "1"],
            "--initial": ["nosuch", "0=x", "0=0.5"],
            "--seed": _BAD_SEED,
            "--csv": [_NO_FOLDER, "log.csv"],
        },
    ),
    (
        ["run", "psrl", "chain", "--steps", "3"],
        {
            **_BAD_OBJECTIVE,
            "--steps": _BAD_COUNT,
            "--seeds": _BAD_COUNT,
            "--seed": _BAD_SEED,
            "--prior": _BAD_PRIOR,
            "--replan": ["0", "-1", "2.5", "nosuch", "", "\u00b2"],
            "--regret": ["nosuch"],
            "--out": [_NO_FOLDER],
            "--figure": [_NO_FOLDER],
            "--episodes": ["3"],
        },
    ),
    (["run", "psrl", "chain", "--horizon", "3"], {"--episodes": [*_BAD_COUNT, "2000000000"]}),
    (
        ["deep.train", "dqn", "deep_sea:4", "--steps", "3"],
        {
            "--steps": _BAD_COUNT,
            "--seeds": _BAD_COUNT,
            "--seed": _BAD_SEED,
            "--envs": _BAD_COUNT,
            "--replay": [*_BAD_COUNT, "1"],
            "--set": ["nosuch=1", "learning", "learning.batch_size=x", "learning.batch_size=0", "=", "trunk=nosuch"],
            "--evaluate-every": _BAD_COUNT,
            "--device": ["nosuch"],
            "--out": ["no/such/folder"],
            "--figure": [_NO_FOLDER],
            "--film": [_NO_FOLDER],
        },
    ),
    (
        ["deep.train", "dqn", "deep_sea:4", "--steps", "3", "--evaluate-every", "1"],
        {
            "--evaluate-steps": _BAD_COUNT,
            "--evaluate-epsilon": _BAD_SHARE,
            "--evaluate-envs": _BAD_COUNT,
        },
    ),
    (["evaluate", "no/such/folder"], {"--seed": _BAD_SEED, "--evaluate-steps": _BAD_COUNT, "--out": [_NO_FOLDER]}),
    (
        ["compare"],
        {
            "--agents": ["nosuch", "", ",", "psrl,psrl"],
            "--envs": ["nosuch", "", ","],
            "--seeds": ["1", *_BAD_COUNT],
            "--seed": _BAD_SEED,
            "--constants": ["nosuch"],
        },
    ),
    (["sweeps.sweep", "no/such/file.toml"], {"--retries": ["x", "1e12"]}),
    (["results", "no/such/folder"], {"--out": [_NO_FOLDER]}),
    (
        ["reproductions", "ube-fig2"],
        {
            "--executor": ["serial", "nosuch"],
            "--seed": _BAD_SEED,
            "--frames": ["1", *_BAD_COUNT],
            "--games": ["pong"],
            "--agents": ["nosuch"],
        },
    ),
    (["validation", "scorecard"], {"--seed": _BAD_SEED, "--out": [_NO_FOLDER], "--figure": [_NO_FOLDER]}),
    (["demo"], {"--seed": _BAD_SEED}),
    (["validation", "levels"], {"--seeds": _BAD_COUNT}),
]
"""A command line that is accepted (or would be, with its files), and the bad values of its options."""

LINES = [
    [],
    ["nosuch"],
    ["run"],
    ["run", "psrl"],
    ["run", "nosuch", "chain", "--steps", "3"],
    ["run", "psrl", "nosuch", "--steps", "3"],
    ["run", "psrl", "chain"],
    ["run", "psrl", "chain:3", "--steps", "3"],
    ["run", "psrl", "deep_sea:x", "--steps", "3"],
    ["run", "psrl", "deep_sea:1", "--steps", "3"],
    ["run", "psrl", "deep_sea:1000000000", "--steps", "3"],
    ["run", "psrl", "garnet:99999999999999999999", "--steps", "3"],
    ["run", "psrl", "racetrack:nosuch", "--steps", "3"],
    ["run", "psrl", "NoSuch-v1", "--steps", "3"],
    ["run", "psrl", "chain", "--steps", "3", "--discount", "0.9", "--horizon", "3"],
    ["run", "psrl", "chain", "--steps", "3", "--discount", "0.9", "--first-exit"],
    ["run", "psrl", "chain", "--episodes", "3", "--discount", "0.9", "--horizon", "3"],
    ["fit"],
    ["fit", "nosuch.csv", *_FIT[2:]],
    ["fit", "log.csv"],
    ["fit", "junk.gz", *_FIT[2:]],
    ["fit", "junk.zip", *_FIT[2:]],
    ["fit", "junk.xz", *_FIT[2:]],
    ["fit", "junk.bz2", *_FIT[2:]],
    ["fit", "junk.csv", *_FIT[2:]],
    ["fit", "twice.csv", *_FIT[2:]],
    ["fit", "empty.csv", *_FIT[2:]],
    ["fit", "junk.parquet", *_FIT[2:]],
    ["fit", ".", *_FIT[2:]],
    [*_FIT, "--cost", "nosuch"],
    [*_FIT, "--reward", "s", "--cost", "s"],
    [*_FIT, "--states", "a,,b"],
    [*_FIT, "--states", '"a'],
    ["explain"],
    ["explain", "nosuch"],
    ["explain", "json:nosuch"],
    ["explain", "dirichlet_normal", "--states", "0"],
    ["explain", "dirichlet_normal", "--actions", "x"],
    ["explain", "dirichlet_normal", "--horizon", "-1"],
    ["calibrate"],
    ["calibrate", "nosuch", "--states", "2", "--actions", "2"],
    ["calibrate", "dirichlet_normal"],
    ["calibrate", "dirichlet_normal", "--log", "log.csv"],
    ["calibrate", "dirichlet_normal", "--states", "2", "--actions", "2", "--by-step"],
    ["deep.train"],
    ["deep.train", "nosuch", "deep_sea:4", "--steps", "3"],
    ["deep.train", "dqn", "nosuch", "--steps", "3"],
    ["deep.train", "dqn", "deep_sea:x", "--steps", "3"],
    ["deep.train", "dqn", "deep_sea:1", "--steps", "3"],
    ["deep.train", "dqn", "deep_sea:4"],
    ["evaluate"],
    ["evaluate", "no/such/folder"],
    ["reproduce"],
    ["reproduce", "ube-fig2", "--full", "--out=folder"],
    ["scorecard", "--quick"],
    ["levels", "-h"],
    ["reproductions"],
    ["reproductions", "nosuch"],
    ["validation"],
    ["validation", "nosuch"],
    ["validation", "accuracy", "nosuch"],
    ["validation", "prior-gain", "--seed=-1"],
    ["list", "--measure"],
    ["list", "nosuch"],
    ["validation", "scorecard", "nosuch"],
    ["demo", "nosuch"],
    ["validation", "levels", "nosuch"],
]


def bad_lines() -> Iterator[list[str]]:
    """Command lines that must be refused."""
    yield from LINES
    for base, bad in COMMANDS:
        for option, values in bad.items():
            for text in values:
                yield [*base, f"{option}={text}"]
