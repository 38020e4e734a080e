"""Random hierarchical programs as descriptions, and the NumPyro program of a description.

A description lists hyperparameters (each a family whose parameters are numbers, or grow with the signal of one before
it), how they enter concentrations of rows and parameters of rewards, and data. `program` runs it as a prior;
`hierarchy_oracle` computes the posterior of the same description with NumPy and SciPy alone.
"""

# pyright: reportCallIssue=false

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import bayes_mdp as bm
from bayes_mdp.models import MDPSpec, NormalGamma, normal

S, A = 3, 2
SPACE = bm.StateActionSpace(S, A)
TABLE = (0.4, 3.0, 1.5)
"""What the values of a discrete hyperparameter stand for."""
BASE = (0.5, 0.2, 0.3)
"""A base measure that is known."""


@dataclass(frozen=True)
class Above:
    """A parameter that is `constant` + `slope` * the signal of the hyperparameter `of`, one number."""

    constant: float
    slope: float
    of: str


Parameter: TypeAlias = float | Above


@dataclass(frozen=True)
class Hyper:
    """A hyperparameter.

    Args:
        name: of its site.
        family: a key of `WRITTEN`.
        parameters: in the order of that table.
        signal: how it enters others: a key of `SIGNALS`.
        size: of a vector; 0: one number.
        plate: whether a vector is written with a plate, not as an event.
    """

    name: str
    family: str
    parameters: tuple[Parameter, ...]
    signal: str = "itself"
    size: int = 0
    plate: bool = False


@dataclass(frozen=True)
class Description:
    """A program and its data.

    Args:
        seed: of the description.
        hypers: in the order of the program.
        rows: kind of the concentrations, and the hyperparameters in it, in order.
        rewards: family of the rewards, and {parameter: number or hyperparameter}.
        state, action, next_state: the data.
        reward: of the data; None: rewards are known.
        features: what was chosen.
    """

    seed: int
    hypers: tuple[Hyper, ...]
    rows: tuple[str, tuple[str, ...]]
    rewards: tuple[str, dict[str, float | str]]
    state: np.ndarray
    action: np.ndarray
    next_state: np.ndarray
    reward: np.ndarray | None
    features: tuple[str, ...] = ()

    @property
    def numbers(self) -> int:
        """How many continuous hyperparameters."""
        return sum(max(hyper.size, 1) for hyper in self.hypers if hyper.family not in DISCRETE)

    @property
    def data(self) -> bm.Transitions:
        """The transitions."""
        return bm.Transitions(self.state, self.action, self.reward, self.next_state)


DISCRETE = ("Bernoulli", "Categorical")
WRITTEN: dict[str, Callable[..., Any]] = {
    "HalfNormal": dist.HalfNormal,
    "LogNormal": dist.LogNormal,
    "Gamma": dist.Gamma,
    "Beta": dist.Beta,
    "Uniform": dist.Uniform,
    "Normal": dist.Normal,
    "HalfCauchy": dist.HalfCauchy,
    "Exponential": dist.Exponential,
    "Bernoulli": dist.Bernoulli,
    "Categorical": lambda *probs: dist.Categorical(jnp.stack(jnp.broadcast_arrays(*probs))),
}
SIGNALS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "exp": lambda x: jnp.exp(0.5 * x),
    "square": lambda x: 0.2 + x**2,
    "table": lambda x: jnp.array(TABLE)[x],
    "widened": lambda x: 0.1 + 5.0 * x,
}


def program(description: Description) -> Callable[[bm.StateActionSpace], MDPSpec]:
    """The prior of a description."""

    def prior(space: bm.StateActionSpace) -> MDPSpec:
        signals: dict[str, Any] = {}

        def value(parameter: float | Above | str) -> Any:
            if isinstance(parameter, Above):
                return parameter.constant + parameter.slope * signals[parameter.of]
            return signals[parameter] if isinstance(parameter, str) else parameter

        for hyper in description.hypers:
            law = WRITTEN[hyper.family](*(value(each) for each in hyper.parameters))
            if hyper.size and hyper.plate:
                with numpyro.plate(f"plate of {hyper.name}", hyper.size):
                    drawn = numpyro.sample(hyper.name, law)
            else:
                law = law.expand([hyper.size]).to_event(1) if hyper.size else law
                drawn = numpyro.sample(hyper.name, law)
            signals[hyper.name] = SIGNALS[hyper.signal](drawn)
        with space.plates():
            probs = numpyro.sample("transition", dist.Dirichlet(_concentration(description, signals)))
            kind, parameters = description.rewards
            given = {name: _by_cell(value(each)) for name, each in parameters.items()}
            if kind == "known":
                return MDPSpec(probs, jnp.zeros(()))
            if kind == "normal":
                mean = numpyro.sample("mean", dist.Normal(given["loc"], given["scale"]))
                return MDPSpec(probs, dist.Normal(mean, given["noise"]))
            if kind == "normal gamma":
                reward = numpyro.sample("reward", NormalGamma(given["loc"], 1.0, 2.0, given["rate"]))
                return MDPSpec(probs, normal(reward))
            if kind == "bernoulli":
                paid = numpyro.sample("paid", dist.Beta(given["a"], given["b"]))
                return MDPSpec(probs, dist.Bernoulli(paid))
            rate = numpyro.sample("rate", dist.Gamma(given["a"], given["rate"]))
            return MDPSpec(probs, dist.Poisson(rate))

    return prior


def _by_cell(x: Any) -> Any:
    """A vector of states as [S 1]."""
    return x[:, None] if jnp.ndim(x) == 1 else x


def _concentration(description: Description, signals: dict[str, Any]) -> Any:
    kind, names = description.rows
    given = [signals[name] for name in names]
    if kind == "one":
        return (0.3 + given[0]) * jnp.ones(S)
    if kind == "state":
        return (0.1 + given[0])[:, None, None] * jnp.ones(S)
    if kind == "action":
        return (0.1 + given[0])[:, None] * jnp.ones(S)
    if kind == "sticky":
        return 0.5 + given[0] * jnp.eye(S)[:, None, :]
    if kind == "strength":
        return (0.1 + given[0]) * jnp.array(BASE)
    if kind == "base":
        shares = jnp.exp(jnp.concatenate([given[1], jnp.zeros(1)]))
        return (0.1 + given[0]) * shares / shares.sum()
    if kind == "product":
        return (0.1 + given[0] * given[1]) * jnp.ones(S)
    if kind == "state and action":
        return (0.1 + given[0][:, None, None] * given[1][:, None]) * jnp.ones(S)
    return jnp.ones(S)


class _Maker:
    """Hyperparameters of a description in the making."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.hypers = rng, list[Hyper]()
        self.features: list[str] = []

    def _add(self, family: str, parameters: tuple[Parameter, ...], signal: str = "itself", size: int = 0) -> str:
        name = f"h{len(self.hypers)}"
        plate = bool(size) and bool(self.rng.random() < 0.5)
        self.hypers.append(Hyper(name, family, parameters, signal, size, plate))
        return name

    def _number(self, value: float) -> Parameter:
        """A positive parameter: a number, or under a hyperparameter of its own."""
        if self.rng.random() > 0.2 or len(self.hypers) > 8:
            return value
        self.features.append("above")
        if self.rng.random() < 0.3:
            return Above(value, 1.0, self._discrete())
        above = str(self.rng.choice(["HalfNormal", "Gamma", "Exponential"]))
        return Above(0.5 * value, 0.5 * value, self._add(above, (2.0, 2.0) if above == "Gamma" else (1.0,)))

    def _discrete(self) -> str:
        self.features.append("discrete")
        if self.rng.random() < 0.5:
            return self._add("Bernoulli", (float(self.rng.choice([0.1, 0.5, 0.7])),), "table")
        return self._add("Categorical", (0.2, 0.3, 0.5), "table")

    def positive(self, size: int = 0, *, wide: bool = False) -> str:
        """A hyperparameter whose signal is positive."""
        families = ["HalfNormal", "LogNormal", "Gamma", "Beta", "Uniform", "Normal", "HalfCauchy", "Exponential"]
        family = str(self.rng.choice(families))
        if family == "LogNormal":
            return self._add(family, (0.0, self._number(1.0)), size=size)
        if family == "Gamma":
            shape = float(self.rng.choice([0.5, 1.0, 3.0]))
            return self._add(family, (shape, self._number(0.5 if wide else 1.0)), size=size)
        if family == "Beta":
            return self._add(family, (float(self.rng.choice([0.5, 2.0])), self._number(1.5)), "widened", size)
        if family == "Uniform":
            high = self._number(5.0)
            # A support that depends on a discrete value is another chart for each: left to its own tests.
            if isinstance(high, Above) and self.hypers[-1].family in DISCRETE:
                high = 5.0
            return self._add(family, (0.05, high), size=size)
        if family == "Normal":
            signal = "square" if self.rng.random() < 0.4 else "exp"
            self.features.append("bimodal") if signal == "square" else None
            return self._add(family, (0.0, self._number(1.5)), signal, size)
        scale = float(self.rng.choice([0.1, 1.0, 5.0]))
        return self._add(family, (self._number(1.0 / scale if family == "Exponential" else scale),), size=size)

    def real(self, size: int = 0) -> str:
        """A hyperparameter whose signal may be of any sign."""
        if not size and self.rng.random() < 0.15:
            return self._discrete()
        signal = "square" if self.rng.random() < 0.2 else "itself"
        self.features.append("bimodal") if signal == "square" else None
        location: Parameter = 0.0
        if self.rng.random() < 0.2:
            location = Above(0.0, 1.0, self._add("Normal", (0.0, 2.0)))
        if self.rng.random() < 0.15:
            self.features.append("funnel")
            above = self._add("Normal", (0.0, 3.0), "exp")
            return self._add("Normal", (location, Above(0.0, 1.0, above)), signal, size)
        return self._add("Normal", (location, self._number(float(self.rng.choice([0.1, 2.0, 5.0])))), signal, size)

    def rows(self, kind: str) -> tuple[str, ...]:
        """The hyperparameters of this kind of concentrations."""
        if kind == "known":
            return ()
        if kind == "base":
            return self.positive(wide=True), self.real(S - 1)
        if kind == "product":
            return self.positive(), self.positive()
        if kind == "state and action":
            return self.positive(S), self.positive(A)
        if kind in ("one", "sticky", "strength") and self.rng.random() < 0.1:
            return (self._discrete(),)
        return (self.positive({"state": S, "action": A}.get(kind, 0), wide=True),)

    def rewards(self, kind: str) -> dict[str, float | str]:
        """The parameters of this family of rewards."""
        some = self.rng.random(3) < 0.5
        by_state = S if self.rng.random() < 0.3 else 0
        if kind == "normal":
            loc: float | str = self.real(by_state) if some[0] else 0.5
            return {"loc": loc, "scale": self.positive() if some[1] else 1.0, "noise": self._noise(bool(some[2]))}
        if kind == "normal gamma":
            return {"loc": self.real(by_state) if some[0] else 0.0, "rate": self.positive() if some[1] else 1.0}
        if kind == "bernoulli":
            return {"a": self.positive(by_state) if some[0] else 1.0, "b": self.positive() if some[1] else 2.0}
        if kind == "poisson":
            return {"a": self.positive() if some[0] else 2.0, "rate": self.positive(by_state) if some[1] else 1.0}
        return {}

    def _noise(self, unknown: bool) -> float | str:
        return self.positive() if unknown else 0.7


ROWS = ("known", "one", "state", "action", "sticky", "strength", "base", "product", "state and action")
REWARDS = ("known", "normal", "normal gamma", "bernoulli", "poisson")
MOST_JOINT = 4
"""Joint values of discrete hyperparameters."""


def describe(seed: int) -> Description:
    """A description: of 1 + seed % 12 continuous hyperparameters (1 or 2 for every fourth seed)."""
    rng = np.random.default_rng([44, seed])
    wanted = 1 + seed % 12 if seed % 4 else 1 + seed // 4 % 2
    while True:
        maker = _Maker(rng)
        rows, rewards = str(rng.choice(ROWS)), str(rng.choice(REWARDS))
        entering, parameters = maker.rows(rows), maker.rewards(rewards)
        description = Description(
            seed,
            tuple(maker.hypers),
            (rows, entering),
            (rewards, parameters),
            *(np.zeros(0, int) for _ in range(3)),
            None if rewards == "known" else np.zeros(0),
            tuple(maker.features),
        )
        values = [len(h.parameters) if h.family == "Categorical" else 2 for h in maker.hypers if h.family in DISCRETE]
        if description.numbers == wanted and np.prod(values) <= MOST_JOINT:
            return _with_data(description, rng)


def _with_data(description: Description, rng: np.random.Generator) -> Description:
    """Data of a world that the prior expects, or does not."""
    number = int(rng.choice([0, 1, 5, 50, 300, 3000], p=[0.1, 0.1, 0.2, 0.25, 0.2, 0.15]))
    kind = str(rng.choice(["expected", "sticky", "spread"], p=[0.5, 0.25, 0.25]))
    concentration = {"expected": 1.0, "spread": 20.0, "sticky": 0.1}[kind] * np.ones((S, A, S))
    if kind == "sticky":
        concentration += 20.0 * np.eye(S)[:, None]
    probs = np.array([[rng.dirichlet(concentration[s, a]) for a in range(A)] for s in range(S)])
    state, action = rng.integers(S, size=number), rng.integers(A, size=number)
    following = np.array([rng.choice(S, p=probs[s, a]) for s, a in zip(state, action, strict=True)], int)
    reward, features = None, [*description.features, kind, f"{number} transitions"]
    family = description.rewards[0]
    if family in ("normal", "normal gamma"):
        far = float(rng.choice([0.0, 0.0, 12.0]))
        mean = far + rng.normal(size=(S, A))
        reward = mean[state, action] + float(rng.choice([0.1, 1.0])) * rng.normal(size=number)
        features += ["contradicts"] if far else []
    elif family == "bernoulli":
        reward = (rng.random(number) < rng.beta(1.0, 1.0, (S, A))[state, action]).astype(float)
    elif family == "poisson":
        far = float(rng.choice([1.0, 1.0, 20.0]))
        reward = rng.poisson(far * rng.gamma(2.0, 1.0, (S, A))[state, action]).astype(float)
        features += ["contradicts"] if far > 1 else []
    return Description(
        description.seed,
        description.hypers,
        description.rows,
        description.rewards,
        state,
        action,
        following,
        reward,
        tuple(features),
    )
