"""The posterior of a described hierarchy with NumPy and SciPy alone: dense grids, or tempered populations.

Discrete hyperparameters are summed over, rows and rewards integrated out by formulas written here. Up to two continuous
numbers: the trapezoid rule on a dense grid over where there is any density, its error the change by every other node
left out. More: sequential Monte Carlo from the prior (16 populations on their own, random-walk Metropolis moves), the
error from how these differ; sharpened by importance sampling where that agrees.
"""

# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportReturnType=false

import itertools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import betaln, expit, gammaln, logit, logsumexp, xlog1py, xlogy

from tests.inference.collapsed.hierarchy_generator import BASE, DISCRETE, TABLE, A, Above, Description, Hyper, S

Values: TypeAlias = dict[str, np.ndarray]


class Estimate(NamedTuple):
    """Numbers and their errors."""

    value: np.ndarray
    error: np.ndarray


class Truth(NamedTuple):
    """What is compared.

    Args:
        evidence: log p(data).
        points: means of the unconstrained hyperparameters [D].
        spread: their standard deviations [D].
        probs: of discrete hyperparameters, the means.
        rows, reward: posterior means [S A S], [S A].
        spread_rows, spread_reward: standard deviations of the conditional means over the hyperparameters.
        exact: whether it comes from a grid.
    """

    evidence: Estimate
    points: Estimate
    spread: np.ndarray
    probs: Estimate
    rows: Estimate
    reward: Estimate
    spread_rows: np.ndarray
    spread_reward: np.ndarray
    exact: bool


class NoTruthError(Exception):
    """The oracle cannot say."""


_SIGNALS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "itself": lambda x: x,
    "exp": lambda x: np.exp(np.minimum(0.5 * x, 300.0)),
    "square": lambda x: 0.2 + x**2,
    "table": lambda x: np.array(TABLE)[x.astype(int)],
    "widened": lambda x: 0.1 + 5.0 * x,
}


def _normal(x: np.ndarray, loc: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return -0.5 * ((x - loc) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2.0 * np.pi)


def _log_rising(x: np.ndarray, n: np.ndarray) -> np.ndarray:
    """log Gamma(x + n) - log Gamma(x); from 1e5 on by Stirling's formula, in which nothing cancels."""
    large = np.maximum(x, 1e5)
    stirling = (large - 0.5) * np.log1p(n / large) + n * (np.log(large + n) - 1.0)
    stirling = stirling + 1.0 / (12.0 * (large + n)) - 1.0 / (12.0 * large)
    small = np.minimum(x, 1e5)
    return np.where(x > 1e5, stirling, gammaln(small + n) - gammaln(small))


_LOG_DENSITY: dict[str, Callable[..., np.ndarray]] = {
    "HalfNormal": lambda x, scale: _normal(x, np.zeros(()), scale) + np.log(2.0),
    "LogNormal": lambda x, loc, scale: _normal(np.log(x), loc, scale) - np.log(x),
    "Gamma": lambda x, a, rate: xlogy(a, rate) + xlogy(a - 1.0, x) - rate * x - gammaln(a),
    "Beta": lambda x, a, b: xlogy(a - 1.0, x) + xlog1py(b - 1.0, -x) - betaln(a, b),
    "Uniform": lambda x, low, high: -np.log(high - low) + 0.0 * x,
    "Normal": _normal,
    "HalfCauchy": lambda x, scale: np.log(2.0 / np.pi) - np.log(scale) - np.log1p((x / scale) ** 2),
    "Exponential": lambda x, rate: np.log(rate) - rate * x,
}
_DRAW: dict[str, Callable[..., np.ndarray]] = {
    "HalfNormal": lambda rng, shape, scale: np.abs(rng.normal(0.0, scale, shape)),
    "LogNormal": lambda rng, shape, loc, scale: rng.lognormal(loc, scale, shape),
    "Gamma": lambda rng, shape, a, rate: rng.gamma(a, 1.0 / rate, shape),
    "Beta": lambda rng, shape, a, b: rng.beta(a, b, shape),
    "Uniform": lambda rng, shape, low, high: rng.uniform(low, high, shape),
    "Normal": lambda rng, shape, loc, scale: rng.normal(loc, scale, shape),
    "HalfCauchy": lambda rng, shape, scale: np.abs(scale * rng.standard_cauchy(shape)),
    "Exponential": lambda rng, shape, rate: rng.exponential(1.0 / rate, shape),
}


class _Joint(NamedTuple):
    """Everything at points [N D], the joint values of discrete hyperparameters [K] apart."""

    prior: np.ndarray  # [K N]
    both: np.ndarray  # [K N]
    rows: np.ndarray  # [K N S A S]
    reward: np.ndarray  # [K N S A]


class Oracle:
    """The density of a description.

    Args:
        description: of a program and its data.
    """

    def __init__(self, description: Description) -> None:
        self.description = description
        self.counts = np.zeros((S, A, S))
        np.add.at(self.counts, (description.state, description.action, description.next_state), 1.0)
        self.number, self.total, self.square, self.factorials = (np.zeros((S, A)) for _ in range(4))
        if description.reward is not None:
            at = description.state, description.action
            for table, values in (
                (self.number, np.ones(len(description.reward))),
                (self.total, description.reward),
                (self.square, description.reward**2),
                (self.factorials, gammaln(description.reward + 1.0) if description.rewards[0] == "poisson" else 0.0),
            ):
                np.add.at(table, at, values)
        discrete = [hyper for hyper in description.hypers if hyper.family in DISCRETE]
        each = [range(2 if hyper.family == "Bernoulli" else len(hyper.parameters)) for hyper in discrete]
        self.names = [hyper.name for hyper in discrete]
        self.joint_values = [dict(zip(self.names, values, strict=True)) for values in itertools.product(*each)]
        self.continuous = [hyper for hyper in description.hypers if hyper.family not in DISCRETE]

    def _signals(self, values: Values) -> Values:
        return {
            hyper.name: _SIGNALS[hyper.signal](values[hyper.name])
            for hyper in self.description.hypers
            if hyper.name in values
        }

    def _parameters(self, hyper: Hyper, signals: Values) -> list[np.ndarray]:
        """Numbers [N or 1 (1)], ready for the value of the site."""
        found = []
        for each in hyper.parameters:
            x = each.constant + each.slope * signals[each.of] if isinstance(each, Above) else np.asarray(float(each))
            found.append(x[..., None] if hyper.size and np.ndim(x) else x)
        return found

    def unconstrained(self, values: Values) -> np.ndarray:
        """Points [N D] of values [N ...] of the continuous hyperparameters, and of what their supports depend on."""
        signals, columns = self._signals(values), []
        for hyper in self.continuous:
            x = values[hyper.name]
            if hyper.family == "Normal":
                u = x
            elif hyper.family in ("Beta", "Uniform"):
                low, high = (0.0, 1.0) if hyper.family == "Beta" else self._parameters(hyper, signals)
                u = logit(np.clip((x - low) / (high - low), 1e-18, 1 - 1e-16))
            else:
                u = np.log(np.maximum(x, 1e-300))
            columns.append(u.reshape(len(x), -1))
        return np.concatenate(columns, 1)

    def draws(self, rng: np.random.Generator, num: int) -> np.ndarray:
        """Points drawn from the prior."""
        values: Values = {}
        for hyper in self.description.hypers:
            shape = (num, hyper.size) if hyper.size else (num,)
            if hyper.family in DISCRETE:
                probs = [float(p) for p in hyper.parameters]  # pyright: ignore[reportArgumentType]
                probs = [1.0 - probs[0], probs[0]] if hyper.family == "Bernoulli" else probs
                values[hyper.name] = rng.choice(len(probs), num, p=probs)
            else:
                drawn = _DRAW[hyper.family](rng, shape, *self._parameters(hyper, self._signals(values)))
                values[hyper.name] = drawn
        return np.clip(self.unconstrained(values), -300.0, 300.0)

    def joint(self, points: np.ndarray, *, means: bool = False) -> _Joint:
        """The densities at points, and with `means` the conditional means of rows and rewards."""
        parts = [self._given(points, held, means) for held in self.joint_values]
        return _Joint(*(np.stack([part[i] for part in parts]) for i in range(4)))

    def _given(self, points: np.ndarray, held: dict[str, int], means: bool) -> tuple[np.ndarray, ...]:
        with np.errstate(all="ignore"):
            values: Values = {name: np.full(len(points), x) for name, x in held.items()}
            prior, at = np.zeros(len(points)), 0
            for hyper in self.description.hypers:
                if hyper.family in DISCRETE:
                    probs = [float(p) for p in hyper.parameters]  # pyright: ignore[reportArgumentType]
                    probs = [1.0 - probs[0], probs[0]] if hyper.family == "Bernoulli" else probs
                    prior = prior + np.log(probs[held[hyper.name]])
                    continue
                width = max(hyper.size, 1)
                u = points[:, at : at + width] if hyper.size else points[:, at]
                at += width
                parameters = self._parameters(hyper, self._signals(values))
                if hyper.family == "Normal":
                    x, slope = u, np.zeros_like(u)
                elif hyper.family in ("Beta", "Uniform"):
                    low, high = (0.0, 1.0) if hyper.family == "Beta" else parameters
                    x = low + (high - low) * expit(u)
                    slope = np.log(high - low) - np.logaddexp(0.0, u) - np.logaddexp(0.0, -u)
                else:
                    x, slope = np.exp(u), u
                if hyper.family == "Beta":  # in u, where 1 - x does not cancel
                    a, b = parameters
                    term = -a * np.logaddexp(0.0, -u) - b * np.logaddexp(0.0, u) - betaln(a, b)
                elif hyper.family == "Gamma":
                    a, rate = parameters
                    term = xlogy(a, rate) + a * u - rate * x - gammaln(a)
                else:
                    term = _LOG_DENSITY[hyper.family](x, *parameters) + slope
                prior = prior + (term.sum(-1) if hyper.size else term)
                values[hyper.name] = x
            signals = self._signals(values)
            prior = np.where(np.isnan(prior), -np.inf, prior)
            concentration = self._concentration(signals, len(points))
            total = concentration.sum(-1)
            seen = _log_rising(concentration, self.counts).sum((-1, -2, -3))
            seen = seen - _log_rising(total, self.counts.sum(-1)).sum((-1, -2))
            evidence, reward = self._rewards(signals, len(points))
            both = prior + seen + evidence
            both = np.where(np.isnan(both), -np.inf, both)
            if not means:
                return prior, both, np.zeros(0), np.zeros(0)
            rows = (concentration + self.counts) / (total + self.counts.sum(-1))[..., None]
            # What has no expectation is compared by `missing_means` alone.
            reward = np.where(missing_means(self.description), 0.0, reward)
            return prior, both, np.nan_to_num(rows), np.nan_to_num(reward)

    def _concentration(self, signals: Values, number: int) -> np.ndarray:
        kind, names = self.description.rows
        given = [signals[name] for name in names]
        shape = (number, S, A, S)
        if kind == "known":
            return np.ones(shape)
        if kind == "state":
            return np.broadcast_to((0.1 + given[0])[:, :, None, None], shape)
        if kind == "action":
            return np.broadcast_to((0.1 + given[0])[:, None, :, None], shape)
        if kind == "state and action":
            return np.broadcast_to((0.1 + given[0][:, :, None] * given[1][:, None, :])[..., None], shape)
        if kind == "base":
            shares = np.concatenate([given[1], np.zeros((number, 1))], -1)
            shares = np.exp(shares - shares.max(-1, keepdims=True))
            shares = shares / shares.sum(-1, keepdims=True)
            return np.broadcast_to(((0.1 + given[0])[:, None] * shares)[:, None, None, :], shape)
        one = given[0][:, None, None, None]
        if kind == "one":
            return np.broadcast_to(0.3 + one, shape)
        if kind == "sticky":
            return 0.5 + np.broadcast_to(one * np.eye(S)[:, None, :], shape)
        if kind == "strength":
            return np.broadcast_to((0.1 + one) * np.array(BASE), shape)
        return np.broadcast_to(0.1 + one * given[1][:, None, None, None], shape)

    def _rewards(self, signals: Values, number: int) -> tuple[np.ndarray, np.ndarray]:
        """log p(rewards | hyperparameters), and posterior means of the cells."""
        kind, parameters = self.description.rewards

        def cells(name: str) -> np.ndarray:
            given = parameters[name]
            x = signals[given] if isinstance(given, str) else np.full(number, float(given))
            return np.broadcast_to(x[:, :, None] if x.ndim == 2 else x[:, None, None], (number, S, A))

        n, total = self.number, self.total
        if kind == "known":
            return np.zeros(number), np.zeros((number, S, A))
        if kind == "bernoulli":
            a, b = cells("a"), cells("b")
            log = _log_rising(a, total) + _log_rising(b, n - total) - _log_rising(a + b, n)
            return log.sum((-1, -2)), (a + total) / (a + b + n)
        if kind == "poisson":
            a, rate = cells("a"), cells("rate")
            log = _log_rising(a, total) - a * np.log1p(n / rate) - xlogy(total, rate + n) - self.factorials
            return log.sum((-1, -2)), (a + total) / (rate + n)
        mean = total / np.maximum(n, 1.0)
        within = np.maximum(self.square - n * mean**2, 0.0)
        if kind == "normal":
            loc, scale, noise = cells("loc"), cells("scale"), cells("noise")
            # The mean of the cell is N(loc, scale^2 + noise^2 / n); what is within it depends on the noise alone.
            spread = scale**2 + noise**2 / np.maximum(n, 1.0)
            log = _normal(mean, loc, np.sqrt(spread)) - 0.5 * (n - 1) * np.log(2.0 * np.pi * noise**2)
            log = log - 0.5 * within / noise**2 - 0.5 * np.log(np.maximum(n, 1.0))
            share = n * scale**2 / (n * scale**2 + noise**2)
            return np.where(n > 0, log, 0.0).sum((-1, -2)), share * mean + (1.0 - share) * loc
        loc, rate = cells("loc"), cells("rate")
        after, shape = 1.0 + n, 2.0 + 0.5 * n
        rate_after = rate + 0.5 * within + 0.5 * n * (mean - loc) ** 2 / after
        log = gammaln(shape) - gammaln(2.0) + 2.0 * np.log(rate) - shape * np.log(rate_after)
        log = log - 0.5 * np.log(after) - 0.5 * n * np.log(2.0 * np.pi)
        return np.where(n > 0, log, 0.0).sum((-1, -2)), (loc + n * mean) / after


_LEAST = {"Uniform": 0.05, "Beta": 0.1, "Normal": 0.2}
"""Of signals that do not reach zero ("Normal": of a square)."""


def missing_means(description: Description) -> np.ndarray:
    """Of which mean rewards [S, A] the posterior expectation is infinite: shape / rate of gamma cells without data.

    Near zero the density of a rate goes as rate^(c - 1), c = 1 for densities that are positive there; each of the m
    observed cells that share it makes a factor rate^shape. So E[1 / rate] is finite where c + m shape > 1, for the
    least shape too. The shape itself has no mean under a half-Cauchy law before any data.
    """
    kind, parameters = description.rewards
    if kind != "poisson":
        return np.zeros((S, A), bool)
    hypers = {hyper.name: hyper for hyper in description.hypers}
    seen = np.zeros((S, A))
    np.add.at(seen, (description.state, description.action), 1.0)
    shape, rate = parameters["a"], parameters["rate"]
    power, shared = np.inf, np.full((S, 1), (seen > 0).sum())
    if isinstance(rate, str):
        hyper = hypers[rate]
        if hyper.size:
            shared = (seen > 0).sum(1, keepdims=True)
        first = hyper.parameters[0]
        powers = {"Gamma": first, "HalfNormal": 1.0, "HalfCauchy": 1.0, "Exponential": 1.0}
        power = float(powers.get(hyper.family, np.inf))  # pyright: ignore[reportArgumentType]
    if isinstance(shape, str):
        hyper = hypers[shape]
        least = 0.0 if hyper.signal == "exp" else _LEAST.get(hyper.family, 0.0)
        least, never = (min(TABLE), False) if hyper.family in DISCRETE else (least, hyper.family == "HalfCauchy")
        # At the least shape itself there is no mass.
        infinite = np.where(shared > 0, power + shared * least < 1.0, power <= 1.0) | (never & (not seen.any()))
    else:
        infinite = power + shared * float(shape) <= 1.0
    return infinite & (seen == 0)


BLOCK = 20_000


def _summary(oracle: Oracle, points: np.ndarray, logs: np.ndarray) -> dict[str, np.ndarray]:
    """Weighted sums over points [N D] with log weights that are those of a density or of draws."""
    highest = logs.max()
    kept = logs > highest - 50.0
    points, weights = points[kept], np.exp(logs[kept] - highest)
    total = weights.sum()
    parts: dict[str, np.ndarray] = {"total": np.log(total) + highest}
    sums: dict[str, np.ndarray] = {}
    for i in range(0, len(points), BLOCK):
        p, w = points[i : i + BLOCK], weights[i : i + BLOCK] / total
        joint = oracle.joint(p, means=True)
        share = np.exp(joint.both - logsumexp(joint.both, axis=0))
        columns = {"points": p, "points2": p**2}
        columns["probs"] = (
            np.stack(
                [sum(share[k] * held[name] for k, held in enumerate(oracle.joint_values)) for name in oracle.names], -1
            )
            if oracle.names
            else np.zeros((len(p), 0))
        )
        for name, table in (("rows", joint.rows), ("reward", joint.reward)):
            flat = table.reshape(*table.shape[:2], -1)
            columns[name] = (share[..., None] * flat).sum(0)
            columns[name + "2"] = (share[..., None] * flat**2).sum(0)
        for name, x in columns.items():
            sums[name] = sums.get(name, np.zeros(())) + w @ x
    return parts | sums


def _truth(value: dict[str, np.ndarray], error: dict[str, np.ndarray], exact: bool) -> Truth:
    def sd(name: str) -> np.ndarray:
        return np.sqrt(np.maximum(value[name + "2"] - value[name] ** 2, 0.0))

    shape, cells = (S, A, S), (S, A)
    return Truth(
        Estimate(value["total"], error["total"]),
        Estimate(value["points"], error["points"]),
        sd("points"),
        Estimate(value["probs"], error["probs"]),
        Estimate(value["rows"].reshape(shape), error["rows"].reshape(shape)),
        Estimate(value["reward"].reshape(cells), error["reward"].reshape(cells)),
        sd("rows").reshape(shape),
        sd("reward").reshape(cells),
        exact,
    )


def _logs(oracle: Oracle, points: np.ndarray) -> np.ndarray:
    return np.concatenate(
        [logsumexp(oracle.joint(points[i : i + BLOCK]).both, axis=0) for i in range(0, len(points), BLOCK)]
    )


def by_grid(oracle: Oracle, finest: int = 601) -> Truth:
    """One or two numbers by the trapezoid rule, where the density is; in a plane `finest` nodes a side."""
    size = sum(max(hyper.size, 1) for hyper in oracle.continuous)
    low, high = np.full(size, -60.0), np.full(size, 60.0)
    axes, number, points, logs = [low], 0, low[None], low[:1]
    many = {1: (20_001, 20_001, 20_001, 20_001), 2: (401, 301, 301, finest)}[size]
    for number, threshold in zip(many, (5000.0, 500.0, 60.0, np.inf), strict=True):
        axes = [np.linspace(a, b, number) for a, b in zip(low, high, strict=True)]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, size)
        logs = _logs(oracle, points)
        if np.isfinite(threshold):
            held = points[logs > logs.max() - threshold]
            step = np.array([axis[1] - axis[0] for axis in axes])
            low, high = np.maximum(held.min(0) - step, low), np.minimum(held.max(0) + step, high)
    step = np.array([axis[1] - axis[0] for axis in axes])
    value = _summary(oracle, points, logs)
    value["total"] = value["total"] + np.log(step).sum()
    every_other = np.zeros([number] * size, bool)
    every_other[np.ix_(*[np.arange(0, number, 2)] * size)] = True
    chosen = every_other.reshape(-1)
    coarse = _summary(oracle, points[chosen], logs[chosen])
    coarse["total"] = coarse["total"] + np.log(2.0 * step).sum()
    error = {name: np.abs(value[name] - coarse[name]) for name in value}
    return _truth(value, error, True)


POPULATIONS, EACH, MOVES, MOST_STEPS = 16, 400, 12, 60


def by_populations(oracle: Oracle, rng: np.random.Generator) -> Truth:
    """More numbers: sequential Monte Carlo from the prior to the posterior."""
    points = oracle.draws(rng, POPULATIONS * EACH)

    def densities(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        joint = oracle.joint(at)
        prior, both = logsumexp(joint.prior, axis=0), logsumexp(joint.both, axis=0)
        with np.errstate(invalid="ignore"):
            gain = both - prior
        return prior, np.where(np.isnan(gain), -np.inf, gain)

    prior, gain = densities(points)
    evidence, power, scale, steps = np.zeros(POPULATIONS), 0.0, 1.0, 0
    shape = (POPULATIONS, EACH)
    while power < 1.0:
        # The next power leaves all draws worth at least half of their number.
        low, high = power, 1.0
        for turn in range(50):
            step = 1.0 if not turn else 0.5 * (low + high)
            logs = (step - power) * gain
            if np.exp(2 * logsumexp(logs) - logsumexp(2 * logs)) > 0.5 * len(gain):
                low = step
                if not turn:
                    break
            else:
                high = step
        steps += 1
        if low == power or steps > MOST_STEPS:
            raise NoTruthError("the powers do not come to one")
        logs = ((low - power) * gain).reshape(shape)
        evidence += logsumexp(logs, axis=1) - np.log(EACH)
        power = low
        chosen = []
        for r in range(POPULATIONS):
            weights = np.exp(logs[r] - logsumexp(logs[r]))
            places = np.minimum(np.searchsorted(np.cumsum(weights), (rng.random() + np.arange(EACH)) / EACH), EACH - 1)
            chosen.append(r * EACH + places)
        index = np.concatenate(chosen)
        points, prior, gain = points[index], prior[index], gain[index]
        points, prior, gain, scale = _moved(rng, densities, points, prior, gain, power, scale)
    for _ in range(6):
        points, prior, gain, scale = _moved(rng, densities, points, prior, gain, 1.0, scale)
    # Every population weighs as much as its evidence.
    weights = np.exp(evidence - logsumexp(evidence))
    parts = [_summary(oracle, points[r * EACH : (r + 1) * EACH], np.zeros(EACH)) for r in range(POPULATIONS)]
    value = {name: np.tensordot(weights, [part[name] for part in parts], 1) for name in parts[0]}
    error = {}
    for name, mean in value.items():
        away = np.array([part[name] for part in parts]) - mean
        error[name] = np.sqrt(np.tensordot(weights**2, away**2, 1) * POPULATIONS / (POPULATIONS - 1))
    scaled = np.exp(evidence - evidence.max())
    value["total"] = np.asarray(np.log(scaled.mean()) + evidence.max())
    error["total"] = np.asarray(scaled.std(ddof=1) / scaled.mean() / np.sqrt(POPULATIONS))
    if not error["total"] < 0.3:
        raise NoTruthError(f"populations differ: error of the log evidence {error['total']:.2f}")
    rough = _truth(value, error, False)
    return _sharpened(oracle, rng, points, rough)


def _moved(
    rng: np.random.Generator,
    densities: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    points: np.ndarray,
    prior: np.ndarray,
    gain: np.ndarray,
    power: float,
    scale: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Random-walk Metropolis steps: with the covariance of all, of one number alone, or along differences."""
    size = points.shape[1]
    for turn in range(MOVES):
        root = np.linalg.cholesky(np.cov(points.T).reshape(size, size) + 1e-12 * np.eye(size))
        length = scale * np.exp(rng.normal(0.0, 0.7, (len(points), 1)))
        if turn % 3 == 1:  # of one number alone
            step = rng.standard_normal(points.shape) * np.sqrt(np.diag(root @ root.T))
            step *= np.arange(size) == rng.integers(size, size=(len(points), 1))
            length = np.exp(rng.normal(-0.7, 1.2, (len(points), 1)))
        elif turn % 3 == 2:  # along the difference of two others, which lies along ridges
            first, second = rng.integers(len(points), size=(2, len(points)))
            step = points[first] - points[second]
            length = np.exp(rng.normal(-1.0, 1.2, (len(points), 1))) / np.sqrt(size)
        else:
            step = rng.standard_normal(points.shape) @ root.T * 2.0 / np.sqrt(size)
        proposed = points + length * step
        new_prior, new_gain = densities(proposed)
        with np.errstate(invalid="ignore"):
            ratio = new_prior - prior + np.where(power > 0, power * (new_gain - gain), 0.0)
        taken = np.log(rng.random(len(points))) < np.where(np.isnan(ratio), -np.inf, ratio)
        points = np.where(taken[:, None], proposed, points)
        prior, gain = np.where(taken, new_prior, prior), np.where(taken, new_gain, gain)
        if not turn % 3:
            scale = float(np.clip(scale * np.exp(taken.mean() - 0.25), 0.05, 3.0))
    return points, prior, gain, scale


DRAWS, DEGREES, BATCHES = 40_000, 4.0, 20


def _sharpened(oracle: Oracle, rng: np.random.Generator, points: np.ndarray, rough: Truth) -> Truth:
    """Importance sampling from a Student t at the moments of the populations; where it agrees and is better, it."""
    size = points.shape[1]
    centre, root = points.mean(0), np.linalg.cholesky(np.cov(points.T).reshape(size, size) + 1e-12 * np.eye(size))
    normal = rng.standard_normal((DRAWS, size))
    wide = np.sqrt(DEGREES / rng.chisquare(DEGREES, (DRAWS, 1)))
    drawn = centre + normal * wide @ root.T
    square = (normal * wide) ** 2
    density = gammaln((DEGREES + size) / 2) - gammaln(DEGREES / 2) - 0.5 * size * np.log(DEGREES * np.pi)
    density = density - np.log(np.diag(root)).sum() - 0.5 * (DEGREES + size) * np.log1p(square.sum(-1) / DEGREES)
    logs = _logs(oracle, drawn) - density
    weights = np.exp(logs - logs.max())
    worth = weights.sum() ** 2 / (weights**2).sum()
    evidence = logsumexp(logs) - np.log(DRAWS)
    error = np.sqrt(1.0 / worth)
    apart = abs(evidence - rough.evidence.value)
    if worth < 1500 or weights.max() / weights.sum() > 0.01 or apart > 5.0 * np.hypot(error, rough.evidence.error):
        return rough
    edges = np.linspace(0, DRAWS, BATCHES + 1).astype(int)
    parts = [_summary(oracle, drawn[a:b], logs[a:b]) for a, b in itertools.pairwise(edges)]
    totals = np.array([part["total"] for part in parts])
    shares = np.exp(totals - logsumexp(totals))
    value = {name: np.tensordot(shares, [part[name] for part in parts], 1) for name in parts[0]}
    errors = {}
    for name, mean in value.items():
        away = np.array([part[name] for part in parts]) - mean
        errors[name] = np.sqrt(np.tensordot(shares**2, away**2, 1) * BATCHES / (BATCHES - 1))
    value["total"], errors["total"] = np.asarray(evidence), np.asarray(error)
    sharp = _truth(value, errors, False)
    return sharp if error < rough.evidence.error else rough


def posterior(description: Description) -> Truth:
    """What the posterior of a description is.

    Raises:
        NoTruthError: this cannot say.
    """
    oracle = Oracle(description)
    if description.numbers <= 2:
        for finest in (601, 1601):
            truth = by_grid(oracle, finest)
            parts = (truth.evidence, truth.points, truth.rows, truth.reward)
            if all((part.error <= 1e-6 * np.maximum(np.abs(part.value), 1.0)).all() for part in parts):
                return truth
    return by_populations(oracle, np.random.default_rng([description.seed, 1]))
