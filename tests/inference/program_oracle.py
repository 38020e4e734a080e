"""The posterior of a described program by importance sampling, with NumPy and SciPy alone.

The density of a program is that of NumPyro's `log_density`, in the space of the values: a scale is an exponent of the
density of its sites (no Jacobian), a mask takes it away, a factor multiplies. Values are drawn from the same families
with the exponent put into their parameters (and the counts of the data, where sites are Dirichlet or Beta), which is
only a proposal: the weight is the whole density over that of the proposal.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import stats
from scipy.special import betaln, expit, gammaln, logit, xlog1py, xlogy

from tests.inference.program_generator import TABLE, Affine, Description, Extra, Site, Spread, describe

Values: TypeAlias = dict[str, np.ndarray]
"""Draws: name of a site -> [N *lead *event]."""

SIZE = 40_000
"""Draws of one batch."""
MOST = 30
"""Batches, at most."""
ENOUGH = 10_000
"""Effective draws that a truth needs."""
BROKEN = ("power of the Jacobian", "no scale", "no mask", "value is drawn", "no factor", "no observation")
"""Faults that the comparison has to find; see `posterior`."""


class Estimate(NamedTuple):
    """An array of numbers and their standard errors."""

    value: np.ndarray
    error: np.ndarray


class Truth(NamedTuple):
    """What is compared.

    Args:
        rows: [S A S], posterior means of transition probabilities.
        reward: [S A], of expected rewards.
        sd_rows, sd_reward: their posterior standard deviations.
        backup: [S A], posterior variance of reward + sum_s' P(s') * s' (the index of the state as its value).
        fourth: [S A], fourth central moment of the same.
        evidence: log p(data); 0 without data.
        effective: effective number of draws.
    """

    rows: Estimate
    reward: Estimate
    sd_rows: np.ndarray
    sd_reward: np.ndarray
    backup: Estimate
    fourth: np.ndarray
    evidence: Estimate
    effective: float


_SIGNALS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "plus": lambda x: 0.5 + x,
    "exp": lambda x: np.exp(0.4 * x),
    "table": lambda x: np.array(TABLE)[x.astype(int)],
    "stop": lambda x: 0.5 + x,
    "callback up": lambda x: 0.5 + x,
    "callback down": lambda x: 2.5 / (0.5 + x),
    "cond": lambda x: np.where(x > 1, 0.5 + 2.0 * x, 0.5 + x),
    "last": lambda x: np.exp(0.4 * x),
}


class Family(NamedTuple):
    """A family of sites, with parameters [N *lead] (and [K]).

    Args:
        log_density: (value, *parameters).
        draw: (generator, shape, *parameters).
        power: (e, *parameters) -> the parameters of the density to the power e, up to a constant; None: the family has
            no such member, its own parameters are proposed.
    """

    log_density: Callable[..., np.ndarray]
    draw: Callable[..., np.ndarray]
    power: Callable[..., tuple[np.ndarray, ...]] | None = None


def _normal(x: np.ndarray, loc: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return -0.5 * ((x - loc) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)


def _inside(x: np.ndarray, low: np.ndarray, high: np.ndarray, width: np.ndarray) -> np.ndarray:
    return np.where((x >= low) & (x <= high), -np.log(width), -np.inf)


def _narrowed(e: np.ndarray, loc: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, ...]:
    e = np.where(e > 0, e, 0.5)
    return loc, scale / np.sqrt(e)


def _narrowed_log(e: np.ndarray, loc: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, ...]:
    # x^-e exp(-e (log x - loc)^2 / 2 scale^2) is log-normal too, with another mean.
    e = np.where(e > 0, e, 0.5)
    return loc + (1 - e) * scale**2 / e, scale / np.sqrt(e)


def _dirichlet(rng: np.random.Generator, shape: tuple[int, ...], concentration: np.ndarray) -> np.ndarray:
    whole = np.broadcast_to(concentration, (*shape, concentration.shape[-1]))
    weights = np.maximum(rng.standard_gamma(whole), 1e-300)
    return weights / weights.sum(-1, keepdims=True)


def _unit(x: np.ndarray) -> np.ndarray:
    """Inside the unit interval, where rounding has left it."""
    return np.clip(x, 1e-300, 1 - 1e-16)


NORMAL = Family(_normal, lambda rng, shape, loc, scale: rng.normal(loc, scale, shape), _narrowed)
LOG_NORMAL = Family(
    lambda x, loc, scale: _normal(np.log(x), loc, scale) - np.log(x),
    lambda rng, shape, loc, scale: np.exp(rng.normal(loc, scale, shape)),
    _narrowed_log,
)
FAMILIES = {
    "Normal": NORMAL,
    "Affine normal": NORMAL,
    "LogNormal": LOG_NORMAL,
    "Exp normal": LOG_NORMAL,
    "Logistic normal": Family(
        lambda x, loc, scale: _normal(logit(x), loc, scale) - np.log(x) - np.log1p(-x),
        lambda rng, shape, loc, scale: _unit(expit(rng.normal(loc, scale, shape))),
        _narrowed,
    ),
    "HalfNormal": Family(
        lambda x, scale: -0.5 * (x / scale) ** 2 - np.log(scale) + 0.5 * np.log(2 / np.pi),
        lambda rng, shape, scale: np.abs(rng.normal(0.0, scale, shape)),
        lambda e, scale: (scale / np.sqrt(e),),
    ),
    "Gamma": Family(
        lambda x, a, rate: a * np.log(rate) - gammaln(a) + xlogy(a - 1, x) - rate * x,
        lambda rng, shape, a, rate: rng.gamma(a, 1 / rate, shape),
        lambda e, a, rate: (e * (a - 1) + 1, e * rate),
    ),
    "Exponential": Family(
        lambda x, rate: np.log(rate) - rate * x,
        lambda rng, shape, rate: rng.exponential(1 / rate, shape),
        lambda e, rate: (e * rate,),
    ),
    "Beta": Family(
        lambda x, a, b: xlogy(a - 1, x) + xlog1py(b - 1, -x) - betaln(a, b),
        lambda rng, shape, a, b: _unit(rng.beta(a, b, shape)),
        lambda e, a, b: (e * (a - 1) + 1, e * (b - 1) + 1),
    ),
    "Dirichlet": Family(
        lambda x, a: gammaln(a.sum(-1)) - gammaln(a).sum(-1) + xlogy(a - 1, x).sum(-1),
        _dirichlet,
        lambda e, a: (e[..., None] * (a - 1) + 1,),
    ),
    "Uniform": Family(
        lambda x, low, high: _inside(x, low, high, high - low),
        lambda rng, shape, low, high: rng.uniform(low, high, shape),
    ),
    "Bernoulli": Family(
        lambda x, p: np.where(x == 1, np.log(p), np.log1p(-p)),
        lambda rng, shape, p: (rng.random(shape) < p).astype(float),
    ),
    "Categorical": Family(
        lambda x, p: np.log(np.take_along_axis(p, x[..., None].astype(int), -1)[..., 0]),
        lambda rng, shape, p: (rng.random(shape)[..., None] > np.cumsum(p, -1)[..., :-1]).sum(-1).astype(float),
    ),
    "DiscreteUniform": Family(
        lambda x, low, high: _inside(x, low, high, high - low + 1),
        lambda rng, shape, low, high: np.floor(low + rng.random(shape) * (high - low + 1)),
    ),
    "Poisson": Family(
        lambda x, rate: xlogy(x, rate) - rate - gammaln(x + 1),
        lambda rng, shape, rate: rng.poisson(np.broadcast_to(rate, shape)).astype(float),
    ),
    "Geometric": Family(
        lambda x, p: np.log(p) + x * np.log1p(-p),
        lambda rng, shape, p: rng.geometric(np.broadcast_to(p, shape)).astype(float) - 1,
    ),
    # Normal(1, 1/2) under one, Normal(0, 1) under zero.
    "Branch": Family(
        lambda x, which: _normal(x, which, np.where(which == 1, 0.5, 1.0)),
        lambda rng, shape, which: rng.normal(which, np.where(which == 1, 0.5, 1.0), shape),
    ),
    "Flat unit": Family(lambda x: np.zeros(x.shape), lambda rng, shape: rng.random(shape)),
}


def _jacobian(family: str, x: np.ndarray) -> np.ndarray:
    """log |d value / d unconstrained value| of NumPyro's transform."""
    if family in ("Gamma", "HalfNormal", "Exponential", "LogNormal", "Exp normal"):
        return np.log(x)
    if family in ("Beta", "Logistic normal", "Uniform"):
        return np.log(np.clip(x * (1 - x), 1e-300, None)) if family != "Uniform" else np.log((x - 0.2) * (2.5 - x))
    return np.log(x).sum(-1) if family == "Dirichlet" else np.zeros(x.shape)


# Sites.


def _parameter(parameter: object, values: Values, signals: Values, site: Site, axes: int) -> np.ndarray:
    """[N or 1, *lead (or ones), *event]."""
    if isinstance(parameter, Spread):
        return (parameter.count * values[parameter.of]) ** -0.5
    assert isinstance(parameter, Affine)
    event = int(site.family in ("Dirichlet", "Categorical"))
    constant, slope = (np.asarray(x, float) for x in (parameter.constant, parameter.slope))
    pad = (1,) * (axes + event - constant.ndim)
    constant = constant.reshape((1, *pad, *constant.shape))
    if not parameter.of:
        return constant
    # The bound of a discrete site is another site itself, every other parameter a signal.
    other = values[parameter.of] if site.family in ("DiscreteUniform", "Branch") else signals[parameter.of]
    pad = (1,) * (axes + event - slope.ndim)
    return constant + slope.reshape((1, *pad, *slope.shape)) * other.reshape(-1, *(1,) * (axes + event))


def _exponent(program: Description, site: Site, signals: Values, broken: str) -> np.ndarray:
    """[N or 1, *lead]: the product of the scales around it, zero where masked."""
    lead = program.lead(site)
    power = np.ones((1, *lead))
    if broken != "no scale":
        for scale in site.scale:
            if isinstance(scale, str):
                power = power * signals[scale].reshape(-1, *(1,) * len(lead))
            else:
                power = power * np.broadcast_to(np.asarray(scale, float), lead)
        power = (
            power
            * (2.0 if "scale" in program.around else 1.0)
            * (2.0 if {"first half", "subsample"} & site.writing else 1.0)
        )
    if site.mask is not None and broken != "no mask":
        power = power * np.broadcast_to(np.asarray(site.mask, float), lead)
    return power


def _weighted(power: np.ndarray, log_density: np.ndarray) -> np.ndarray:
    """sum power * log density over all but the first axis; a power of zero is nothing."""
    with np.errstate(invalid="ignore"):
        each = np.where(power == 0, 0.0, power * log_density)
    return each.reshape(each.shape[0], -1).sum(-1)


def _first(program: Description, values: Values, name: str) -> np.ndarray:
    """The first element of a site, [N]."""
    return values[name].reshape(values[name].shape[0], -1)[:, 0]


def _counts(program: Description) -> np.ndarray:
    """Float[S A S], transitions of the data."""
    counts = np.zeros((program.n_states, program.n_actions, program.n_states))
    np.add.at(counts, (program.state, program.action, program.next_state), 1.0)
    return counts


def _by_lead(site: Site, counts: np.ndarray) -> np.ndarray:
    """Counts [S A K] of the rows of a site."""
    return {"pairs": counts, "state": counts.sum(1), "shared": counts.sum((0, 1))}[site.lead]


def _learnt(program: Description, site: Site) -> tuple[np.ndarray, ...]:
    """What the data add to the parameters of a proposal: counts; no site else learns."""
    if not program.state.size:
        return ()
    if site.family == "Dirichlet" and program.rows.site == site.name:
        return (_by_lead(site, _counts(program)),)
    if site.family == "Beta" and program.rows.site == site.name and program.rows.kind == "moves":
        moved = np.stack([(_counts(program) * table).sum(-1) for table in program.rows.tables], -1)
        counts = _by_lead(site, moved)
        return counts[..., 0], counts[..., 1]
    if site.family == "Beta" and (program.rewards.kind, program.rewards.site) == ("bernoulli", site.name):
        assert program.reward is not None
        paid = np.zeros((program.n_states, program.n_actions, 2))
        np.add.at(paid, (program.state, program.action, 1 - program.reward.astype(int)), 1.0)
        counts = _by_lead(site, paid)
        return counts[..., 0], counts[..., 1]
    return ()


def draws(
    program: Description, rng: np.random.Generator, size: int, broken: str = "", *, learn: bool = True
) -> tuple[Values, Values, np.ndarray]:
    """Values and signals of all sites, and the log density of the prior over that of the proposal, [N]."""
    values: Values = {}
    signals: Values = {}
    bend = np.zeros(size)
    for site in program.sites:
        shape = (size, *program.lead(site))
        parameters = tuple(_parameter(x, values, signals, site, len(shape) - 1) for x in site.parameters)
        power = _exponent(program, site, signals, broken)
        fixed = site.fixed and broken != "value is drawn"
        if site.family == "Delta":
            value = np.full(shape, float(np.asarray(parameters[0]).flat[0]))
        elif fixed:
            assert site.value is not None
            event = (program.n_states,) if site.family == "Dirichlet" else ()
            value = np.broadcast_to(np.asarray(site.value, float), (*shape, *event))
            if site.fixed == "condition":
                bend += _weighted(power, FAMILIES[site.family].log_density(value, *parameters))
        elif site.family == "Flat" or (site.mask is False and site.family == "Normal"):
            # An improper mean of rewards: heavy tails about what was seen.
            centre = 0.0 if program.reward is None else float(np.mean(program.reward))
            value = centre + 1.5 * rng.standard_t(3, size=shape)
            bend += -stats.t.logpdf(value, 3, centre, 1.5).reshape(size)
        else:
            family = FAMILIES[site.family]
            proposal = parameters if family.power is None else family.power(power, *parameters)
            more = _learnt(program, site) if learn else ()
            proposal = tuple(p + m for p, m in zip(proposal, more, strict=True)) if more else proposal
            value = family.draw(rng, shape, *proposal)
            log_density = family.log_density(value, *parameters)
            bend += _weighted(power, log_density) - _weighted(
                np.ones((1,) * len(shape)), family.log_density(value, *proposal)
            )
            if broken == "power of the Jacobian":
                bend += _weighted(power - 1.0, _jacobian(site.family, value))
        values[site.name] = value
        if site.signal:
            signals[site.name] = _SIGNALS[site.signal](value)
    for extra in program.extras:
        bend += _extra(program, extra, values, signals, broken)
    return values, signals, bend


def _extra(program: Description, extra: Extra, values: Values, signals: Values, broken: str) -> np.ndarray:
    if extra.kind in ("deterministic", "random") or "uncondition" in program.around or extra.mask is False:
        return np.zeros(1)
    if broken == ("no factor" if extra.kind == "factor" else "no observation"):
        return np.zeros(1)
    power = float(np.prod(extra.scale)) * (2.0 if "scale" in program.around else 1.0)
    power = 1.0 if broken == "no scale" else power
    looked = signals[extra.of] if extra.signal else _first(program, values, extra.of)
    if extra.kind == "factor":
        return power * extra.number * looked
    if extra.kind == "binomial":
        return power * stats.binom.logpmf(extra.number, 12, _unit(looked))
    return power * stats.norm.logpdf(extra.number, looked, 0.4)


# Laws and data.


def _of_pairs(program: Description, values: Values, name: str) -> np.ndarray:
    """The values of a site, [N S A] (and [S])."""
    site = program.site(name)
    x = values[name]
    if site.lead == "state":
        x = x[:, :, None]
    elif site.lead == "shared":
        x = x[:, None, None]
    event = x.shape[3:]
    return np.broadcast_to(x, (x.shape[0], program.n_states, program.n_actions, *event))


def rows_of(program: Description, values: Values, size: int) -> np.ndarray:
    """The transition law of every draw, [N S A S]."""
    rows = program.rows
    if rows.kind == "known":
        return np.broadcast_to(rows.tables[0], (size, *rows.tables[0].shape))
    if rows.kind == "dirichlet":
        return _of_pairs(program, values, rows.site)
    if rows.kind == "choice":
        return np.stack(rows.tables)[values[rows.site].astype(int)]
    probability = _of_pairs(program, values, rows.site)
    probability = expit(probability) if rows.kind == "logistic" else probability
    return probability[..., None] * rows.tables[0] + (1 - probability[..., None]) * rows.tables[1]


class Paid(NamedTuple):
    """The parameters of the reward law of every draw, [N S A]."""

    mean: np.ndarray
    parameter: np.ndarray
    spread: np.ndarray


def rewards_of(program: Description, values: Values, signals: Values, size: int) -> Paid:
    """The reward law of every draw."""
    rewards, shape = program.rewards, (size, program.n_states, program.n_actions)
    one = np.ones(shape)
    if rewards.kind == "known":
        return Paid(np.broadcast_to(rewards.known, shape), one, one)
    if rewards.kind == "direct":
        mean = rewards.known * signals[rewards.site][:, None, None]
        return Paid(mean, mean, one)
    x = _of_pairs(program, values, rewards.site)
    if rewards.kind == "logits":
        return Paid(expit(x), expit(x), one)
    if rewards.kind == "exponential":
        return Paid(1 / x, x, one)
    if rewards.kind == "ordered":
        # P(reward > k) = expit(x - cut_k); the mean is the sum of both.
        return Paid(expit(x + 0.5) + expit(x - 1.0), x, one)
    if rewards.kind == "mixture":
        return Paid(x + 1.4, x, one)
    if rewards.kind == "normal gamma":
        return Paid(x, x, _of_pairs(program, values, rewards.precision) ** -0.5)
    return Paid(x, x, float(rewards.known) * one)


def _log_reward(kind: str, r: np.ndarray, x: np.ndarray, spread: np.ndarray) -> np.ndarray:
    if kind in ("bernoulli", "logits"):
        return FAMILIES["Bernoulli"].log_density(r, _unit(x))
    if kind in ("normal", "normal gamma", "direct"):
        return FAMILIES["Normal"].log_density(r, x, spread)
    if kind == "poisson":
        return FAMILIES["Poisson"].log_density(r, x)
    if kind == "exponential":
        return FAMILIES["Exponential"].log_density(r, x)
    if kind == "student":
        return stats.t.logpdf(r, 5.0, x, spread)
    if kind == "ordered":
        above = [np.ones_like(x), expit(x + 0.5), expit(x - 1.0), np.zeros_like(x)]
        return np.log(
            np.choose(r.astype(int)[None, :] + np.zeros(x.shape, int), [above[k] - above[k + 1] for k in range(3)])
        )
    assert kind == "mixture", kind
    return np.logaddexp(
        np.log(0.3) + FAMILIES["Normal"].log_density(r, x, spread),
        np.log(0.7) + FAMILIES["Normal"].log_density(r, x + 2.0, spread),
    )


def log_likelihood(program: Description, rows: np.ndarray, paid: Paid) -> np.ndarray:
    """log p(next states, rewards | states, actions) of the data, [N]."""
    at = (slice(None), program.state, program.action)
    with np.errstate(divide="ignore"):
        total = np.log(rows[(*at, program.next_state)]).sum(-1)
    if program.reward is None:
        return total
    mask = program.rewards.mask
    power = np.ones(program.state.shape) if mask is None else mask[program.state, program.action].astype(float)
    each = _log_reward(program.rewards.kind, program.reward, paid.parameter[at], paid.spread[at])
    return total + (power * each).sum(-1)


def with_data(program: Description, rng: np.random.Generator, number: int) -> Description:
    """The program with transitions that one draw of its prior gives."""
    values, signals, _ = draws(program, rng, 1, learn=False)
    rows = rows_of(program, values, 1)[0]
    paid = rewards_of(program, values, signals, 1)
    state, action = rng.integers(program.n_states, size=number), rng.integers(program.n_actions, size=number)
    next_state = np.array(
        [rng.choice(program.n_states, p=rows[s, a] / rows[s, a].sum()) for s, a in zip(state, action, strict=True)], int
    )
    x, spread = paid.parameter[0, state, action], paid.spread[0, state, action]
    kind = program.rewards.kind
    noise = rng.normal(size=number)
    reward = {
        "bernoulli": lambda: (rng.random(number) < x).astype(float),
        "logits": lambda: (rng.random(number) < x).astype(float),
        "poisson": lambda: rng.poisson(x).astype(float),
        "exponential": lambda: rng.exponential(1 / x),
        "ordered": lambda: (rng.random(number) < expit(x + 0.5)).astype(float) + (rng.random(number) < 0.3),
        "mixture": lambda: x + 2.0 * (rng.random(number) < 0.7) + noise,
    }.get(kind, lambda: x + spread * noise)()
    reward = np.minimum(reward, 2.0) if kind == "ordered" else reward
    # As a log on disk would have them: floats of a few digits.
    reward = None if kind == "known" else np.round(reward, 3)
    if kind == "exponential" and reward is not None:
        reward = np.maximum(reward, 0.01)
    return replace(program, state=state, action=action, next_state=next_state, reward=reward)


# The posterior.


def _estimate(x: np.ndarray, weights: np.ndarray) -> Estimate:
    """Weighted mean over the first axis, and the standard error of importance sampling."""
    value = np.tensordot(weights, x, 1)
    error = np.sqrt(np.tensordot(weights**2, (x - value) ** 2, 1))
    return Estimate(value, error)


def posterior(program: Description, seed: int = 0, broken: str = "", batches: int = MOST) -> Truth:
    """The posterior by self-normalised importance sampling, in batches until there are `ENOUGH` effective draws.

    Args:
        program: with its data, or without any.
        seed: of the draws.
        broken: a fault of `BROKEN`: the density that a library with this fault would have; empty: none.
        batches: at most.
    """
    rng = np.random.default_rng((program.seed, seed, 7))
    log_prior, log_all, rows, mean = [], [], [], []
    total, weights, effective = np.zeros(0), np.zeros(0), 0.0
    while effective < 1.2 * ENOUGH and len(rows) < batches:
        values, signals, bend = draws(program, rng, SIZE, broken)
        rows.append(rows_of(program, values, SIZE))
        paid = rewards_of(program, values, signals, SIZE)
        mean.append(np.array(paid.mean))
        log_prior.append(bend + np.zeros(SIZE))
        log_all.append(bend + log_likelihood(program, rows[-1], paid))
        total = np.concatenate(log_all)
        weights = np.exp(total - total.max())
        effective = weights.sum() ** 2 / (weights**2).sum()
    weights = weights / weights.sum()
    p, r = np.concatenate(rows), np.concatenate(mean)
    row, reward = _estimate(p, weights), _estimate(r, weights)
    backup = r + (p * np.arange(program.n_states)).sum(-1)
    centred = backup - np.tensordot(weights, backup, 1)
    prior = np.concatenate(log_prior)
    before = np.exp(prior - prior.max())
    evidence = Estimate(np.zeros(()), np.zeros(()))
    if program.state.size:
        # log sum w_data - log sum w_prior; the error by the delta method.
        value = np.log(np.exp(total - total.max()).sum()) + total.max() - np.log(before.sum()) - prior.max()
        influence = weights - before / before.sum()
        evidence = Estimate(np.asarray(value), np.asarray(np.sqrt((influence**2).sum())))
    return Truth(
        row,
        reward,
        np.sqrt(_estimate((p - row.value) ** 2, weights).value),
        np.sqrt(_estimate((r - reward.value) ** 2, weights).value),
        _estimate(centred**2, weights),
        _estimate(centred**4, weights).value,
        evidence,
        min(float(effective), 1.0 / float(weights.max()) * 10),
    )


NUMBERS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12)
"""Numbers of transitions; none: the prior."""


def problem(seed: int) -> tuple[Description, Truth | None]:
    """A random program with data, and its posterior; None: it has none, it has to be refused."""
    for attempt in range(50):
        program = describe(seed, attempt)
        rng = np.random.default_rng((seed, attempt, 1))
        number = int(rng.choice(NUMBERS, p=[0.2, *[0.8 / 9] * 9]))
        if program.refused:
            return _some_data(program, rng, number), None
        if number:
            program = with_data(program, rng, number)
        if improper(program):
            return replace(program, refused="a prior that is no distribution, and no rewards"), None
        truth = posterior(program)
        if truth.effective >= ENOUGH:
            return program, truth
    raise AssertionError(f"no data for program {seed} whose posterior the oracle can compute")


def improper(program: Description) -> bool:
    """Whether an improper mean of rewards sees no reward."""
    flat = any(s.family in ("Flat", "Flat unit") or (s.mask is False and s.family == "Normal") for s in program.sites)
    if not flat:
        return False
    mask = program.rewards.mask
    seen = program.state.size if mask is None else int(mask[program.state, program.action].sum())
    return not program.state.size if any(s.family == "Flat unit" for s in program.sites) else not seen


def _some_data(program: Description, rng: np.random.Generator, number: int) -> Description:
    """Data for a program that has to be refused: pairs and next states at random, rewards as they come."""
    state, action = rng.integers(program.n_states, size=number), rng.integers(program.n_actions, size=number)
    next_state = rng.integers(program.n_states, size=number)
    reward = None if program.rewards.kind == "known" else np.ones(number)
    return replace(program, state=state, action=action, next_state=next_state, reward=reward)


__all__ = ["BROKEN", "ENOUGH", "Estimate", "Truth", "draws", "posterior", "problem", "with_data"]
