"""Every conjugate form under hyperparameters, with the marginal density of data by numpy and scipy alone.

What is unknown in a cell is integrated out by the trapezoidal rule over its logarithm, logit or asinh: the oracle
knows the prior and the law of one reward as they are written in a textbook, and no conjugate update. Where two numbers
of a cell are unknown its rewards are a multivariate t; of Dirichlet rows it has the probability of a sequence.
"""

# pyright: reportIndexIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import betaln, gammaln, log_expit, logsumexp

import bayes_mdp as bm
from bayes_mdp.inference.collapsed.collapse import hyperparameter_model
from bayes_mdp.models import MDPSpec, NormalGamma
from bayes_mdp.models.isolate import traced_alone

SPACE = bm.StateActionSpace(2, 2)
ROW = np.array([0.3, 0.7])
"""The known row of every pair, where rows are known."""
SCALE = np.array([[1.0, 2.0], [0.5, 1.5]])
SLOPE = np.array([[-2.0, 0.5], [3.0, 1.0]])
SHIFT = np.array([[0.5, -1.0], [0.0, 2.0]])
TRIALS = np.array([[3, 5], [4, 6]])
"""Of each pair: what would go wrong if cells were taken for one another."""
BASE = np.array([1.0, 2.0, 0.5])
OUTCOME = np.array([1.0, 3.0])

HYPER = {
    "a": (dist.Gamma(3.0, 1.5), stats.gamma(3.0, scale=1 / 1.5)),
    "b": (dist.LogNormal(0.2, 0.5), stats.lognorm(0.5, scale=np.exp(0.2))),
    "loc": (dist.Normal(0.3, 1.0), stats.norm(0.3, 1.0)),
}
"""Hyperparameters: their laws in NumPyro and in scipy. Gamma and Normal ones look like conjugate sites."""


class Data(NamedTuple):
    """Transitions as numpy arrays, the power of each in the likelihood, and that of its reward (zero: not observed)."""

    state: np.ndarray
    action: np.ndarray
    next_state: np.ndarray
    reward: np.ndarray
    weight: np.ndarray
    reward_weight: np.ndarray


class Form(NamedTuple):
    """A program and its oracle.

    Args:
        hyper: names of its hyperparameters in `HYPER`.
        spec: (space, hyperparameters) -> MDPSpec.
        rewards: (rng, states, actions) -> rewards that the law can give.
        log_marginal: (hyperparameters, data) -> log density of the data, rows included.
        small: states and actions of a program of at most three unknown numbers.
        powers: whether the oracle takes weights other than one.
        space: of the data of the oracle.
    """

    hyper: tuple[str, ...]
    spec: Callable
    rewards: Callable
    log_marginal: Callable
    small: tuple[int, int] = (1, 2)
    powers: bool = True
    space: bm.StateActionSpace = SPACE


@traced_alone
def log_collapsed(hierarchy, values, data_statistics):
    """log p(hyperparameters, data) by the marginal model, for values in their own supports (no Jacobian)."""
    model = handlers.seed(hyperparameter_model(hierarchy), 0)
    return log_density(model, (data_statistics,), {}, dict(values))[0]


def program(name):
    """The prior of a form, in any space of at most two states and two actions."""
    form = FORMS[name]

    def prior(space):
        return form.spec(space, {h: numpyro.sample(h, HYPER[h][0]) for h in form.hyper})

    return prior


def log_prior(name, values):
    """Log density of the hyperparameters of a form."""
    return float(sum(HYPER[h][1].logpdf(values[h]) for h in FORMS[name].hyper))


# --- integrals over one unknown number of a cell ----------------------------------------------------------------------

WIDE = np.linspace(-160.0, 160.0, 32001)
"""Logarithms and logits."""
ASINH = np.linspace(-8.5, 8.5, 12001)
REAL = np.sinh(ASINH)
"""Numbers that may be negative, and the line of their inverse hyperbolic sines: fine near zero, and far out."""


def integral(line, log_integrand):
    """Log of the integral; the ends of the line do not matter, which is checked."""
    top = log_integrand.max()
    assert max(log_integrand[0], log_integrand[-1]) < top - 36.0
    return logsumexp(log_integrand) + np.log(line[1] - line[0])


def gamma_density(t, concentration, rate):
    """Of t = log x, x ~ Gamma."""
    return concentration * (t + np.log(rate)) - rate * np.exp(t) - gammaln(concentration)


def beta_density(t, one, zero):
    """Of t = logit p, p ~ Beta."""
    return one * log_expit(t) + zero * log_expit(-t) - betaln(one, zero)


def of_pair(data):
    """What cells are told apart by."""
    return data.state, data.action


def by_cell(line, log_prior, log_law, index=of_pair):
    """Oracle of independent unknown numbers, one for each value of `index`.

    Args:
        line: points of the unknown number.
        log_prior: (hyperparameters, cell) -> its log density on the line.
        log_law: (hyperparameters, cell, reward) -> log density of a reward there.
        index: (data) -> arrays that tell the cells apart.
    """

    def log_marginal(v, data):
        total, parts = log_known_rows(data), index(data)
        for cell in set(zip(*(x.tolist() for x in parts), strict=True)):
            own = np.all([x == c for x, c in zip(parts, cell, strict=True)], axis=0) & (data.reward_weight > 0)
            density = log_prior(v, cell)
            for r, w in zip(data.reward[own], data.reward_weight[own], strict=True):
                density = density + w * log_law(v, cell, r)
            total += integral(line, density)
        return float(total)

    return log_marginal


def log_known_rows(data):
    """Log probability of the next states where all rows are known."""
    return float(np.sum(data.weight * np.log(ROW[data.next_state])))


def at_once(log_law):
    """Oracle of independent cells from (hyperparameters, cell, rewards) -> log density of all its rewards."""

    def log_marginal(v, data):
        assert (data.reward_weight == 1).all()
        total = log_known_rows(data)
        for cell in np.ndindex(2, 2):
            own = data.reward[(data.state == cell[0]) & (data.action == cell[1])]
            total += log_law(v, cell, own) if len(own) else 0.0
        return float(total)

    return log_marginal


def student(rewards, loc, count, concentration, rate, slope=1.0):
    """Rewards loc + slope deviations, of one normal-gamma: a multivariate t."""
    ones = np.ones((len(rewards), len(rewards)))
    shape = rate / concentration * (np.eye(len(rewards)) + slope**2 * ones / count)
    return stats.multivariate_t(np.full(len(rewards), loc), shape, df=2 * concentration).logpdf(rewards)


def sequence(concentration, number):
    """Log probability of one sequence of outcomes of a Dirichlet row, seen `number` times each."""
    total, seen = concentration.sum(), number.sum()
    return gammaln(total) - gammaln(total + seen) + (gammaln(concentration + number) - gammaln(concentration)).sum()


# --- programs ---------------------------------------------------------------------------------------------------------


def _cells(space, table):
    return table[: space.n_states, : space.n_actions]


def _site(space, name, law):
    with space.plates():
        return numpyro.sample(name, law)


def _rewards(law):
    """A program of known rows and this law, (space, hyperparameters) -> law of the reward."""

    def spec(space, h):
        return MDPSpec(jnp.asarray(ROW[: space.n_states] / ROW[: space.n_states].sum()), law(space, h))

    return spec


def _gamma(space, h):
    return _site(space, "rate", dist.Gamma(h["a"] * _cells(space, SCALE), h["b"]))


def _beta(space, h):
    return _site(space, "p", dist.Beta(h["a"] * _cells(space, SCALE), h["b"]))


def _normal(space, h):
    return _site(space, "mean", dist.Normal(h["loc"] + _cells(space, SHIFT), h["a"] * _cells(space, SCALE)))


def _gamma_prior(v, cell):
    return gamma_density(WIDE, v["a"] * SCALE[cell[:2]], v["b"])


def _beta_prior(v, cell):
    return beta_density(WIDE, v["a"] * SCALE[cell], v["b"])


def _normal_prior(v, cell):
    """Of asinh x."""
    return stats.norm.logpdf(REAL, v["loc"] + SHIFT[cell], v["a"] * SCALE[cell]) + np.log(np.cosh(ASINH))


def _choose(n, r):
    return gammaln(n + 1) - gammaln(r + 1) - gammaln(n - r + 1)


def _counts(rng, state, action):
    return rng.poisson(2.0, size=len(state)).astype(float)


def _positive(rng, state, action):
    return rng.gamma(2.0, size=len(state))


def _reals(rng, state, action):
    return rng.normal(size=len(state))


def _known_state(space, h):
    """State 0 has a known mean and noise; the noise of the others is a hyperparameter."""
    mean = _normal(space, h).at[0].set(1.5)
    return dist.Normal(mean, jnp.where(np.arange(space.n_states)[:, None] == 0, 0.5, h["b"]))


def _pairs(space, h):
    tau = _site(space, "tau", dist.Gamma(2.0 * _cells(space, SCALE), h["b"]))
    mean = _site(space, "mean", dist.Normal(h["loc"] + _cells(space, SHIFT), (h["a"] * tau) ** -0.5))
    return mean, tau


def _affine_pairs(space, h):
    mean, tau = _pairs(space, h)
    return dist.Normal(_cells(space, SLOPE) * mean + _cells(space, SHIFT), tau**-0.5)


def _joint(space, h):
    cells = _cells(space, SCALE)
    site = _site(space, "reward", NormalGamma(h["loc"] + _cells(space, SHIFT), h["a"], 2.0 * cells, h["b"]))
    return dist.LogNormal(site[..., 0], site[..., 1] ** -0.5)


def _known_state_marginal(v, data):
    known = (data.state == 0) & (data.reward_weight > 0)
    total = np.sum(data.reward_weight[known] * stats.norm.logpdf(data.reward[known], 1.5, 0.5))
    others = data._replace(reward_weight=np.where(data.state == 0, 0.0, data.reward_weight))
    return total + by_cell(ASINH, _normal_prior, lambda v, cell, r: stats.norm.logpdf(r, REAL, v["b"]))(v, others)


def _by_outcome(space, h):
    """A rate for each state and outcome, whatever the action."""
    with space.plates("state"):
        scale = SCALE[: space.n_states, None, : space.n_states]
        rate = numpyro.sample("rate", dist.Gamma(h["a"] * scale, h["b"]).to_event(1))
    return dist.Poisson(jnp.broadcast_to(rate, (*space.shape, space.n_states))).to_event(1)


def _categorical(space, h):
    return dist.Categorical(_site(space, "p", dist.Dirichlet(h["a"] * _cells(space, SCALE)[..., None] * BASE)))


def _categorical_marginal(v, data):
    total = log_known_rows(data)
    for cell in np.ndindex(2, 2):
        own = (data.state == cell[0]) & (data.action == cell[1])
        number = np.array([data.reward_weight[own & (data.reward == k)].sum() for k in range(3)])
        total += sequence(v["a"] * SCALE[cell] * BASE, number)
    return total


def _advance(space, h):
    """State 0 advances to state 1 with an unknown probability, or stays; the row of state 1 is known."""
    with space.plates("action"):
        p = numpyro.sample("p", dist.Beta(h["a"] * SCALE[1, : space.n_actions], h["b"]))
    ahead = jnp.stack([1 - p, p], axis=-1)
    return MDPSpec(jnp.stack([ahead.reshape(space.n_actions, 2), jnp.broadcast_to(ROW, (space.n_actions, 2))]), 0.0)


def _advance_marginal(v, data):
    total = np.sum(data.weight * np.where(data.state == 1, np.log(ROW[data.next_state]), 0.0))
    for action in range(2):
        own = (data.state == 0) & (data.action == action)
        ahead, here = (data.weight[own & (data.next_state == s)].sum() for s in (1, 0))
        prior = beta_density(WIDE, v["a"] * SCALE[1, action], v["b"])
        total += integral(WIDE, prior + ahead * log_expit(WIDE) + here * log_expit(-WIDE))
    return float(total)


LAST_ROW = np.array([0.2, 0.3, 0.5])


def _two_widths(space, h):
    """State 0 advances or stays (Beta), state 1 goes anywhere (Dirichlet), the row of state 2 is known."""
    with space.plates("action"):
        p = numpyro.sample("p", dist.Beta(h["a"] * SCALE[1, : space.n_actions], h["b"])).reshape(-1, 1)
        anywhere = numpyro.sample("anywhere", dist.Dirichlet(h["b"] * SCALE[0, : space.n_actions, None] * BASE))
    first = jnp.concatenate([1 - p, p, jnp.zeros_like(p)], axis=-1)
    return MDPSpec(jnp.stack([first, anywhere.reshape(-1, 3), jnp.broadcast_to(LAST_ROW, first.shape)]), 0.0)


def _two_widths_marginal(v, data):
    last = data.state == 2
    total = data.weight[last] @ np.log(LAST_ROW[data.next_state[last]])
    for state, action in np.ndindex(2, 2):
        own = (data.state == state) & (data.action == action)
        number = np.array([data.weight[own & (data.next_state == s)].sum() for s in range(3)])
        if state == 1:
            total += sequence(v["b"] * SCALE[0, action] * BASE, number)
            continue
        prior = beta_density(WIDE, v["a"] * SCALE[1, action], v["b"])
        total += integral(WIDE, prior + number[1] * log_expit(WIDE) + number[0] * log_expit(-WIDE))
    return float(total)


def _known_row(space, h):
    """Dirichlet rows under hyperparameters, but for the first action of state 0; rewards are Gamma-exponential."""
    rows = _site(space, "rows", dist.Dirichlet(h["b"] * _cells(space, SCALE)[..., None] * OUTCOME[: space.n_states]))
    rows = rows.at[0, 0].set(ROW[: space.n_states] / ROW[: space.n_states].sum())
    return MDPSpec(rows, dist.Exponential(_gamma(space, h)))


def _exponential(v, cell, r):
    return WIDE - np.exp(WIDE) * r


def _known_row_marginal(v, data):
    total = by_cell(WIDE, _gamma_prior, _exponential)(v, data) - log_known_rows(data)
    for cell in np.ndindex(2, 2):
        own = (data.state == cell[0]) & (data.action == cell[1])
        number = np.array([data.weight[own & (data.next_state == s)].sum() for s in range(2)])
        total += number @ np.log(ROW) if cell == (0, 0) else sequence(v["b"] * SCALE[cell] * OUTCOME, number)
    return float(total)


FORMS = {
    "exponential": Form(
        ("a", "b"),
        _rewards(lambda space, h: dist.Exponential(_gamma(space, h))),
        _positive,
        by_cell(WIDE, _gamma_prior, _exponential),
    ),
    "poisson": Form(
        ("a", "b"),
        _rewards(lambda space, h: dist.Poisson(_gamma(space, h))),
        _counts,
        by_cell(WIDE, _gamma_prior, lambda v, cell, r: r * WIDE - np.exp(WIDE) - gammaln(r + 1)),
    ),
    "poisson by outcome": Form(
        ("a", "b"),
        _rewards(_by_outcome),
        _counts,
        by_cell(
            WIDE,
            _gamma_prior,
            lambda v, cell, r: r * WIDE - np.exp(WIDE) - gammaln(r + 1),
            lambda data: (data.state, data.next_state),
        ),
    ),
    "binomial": Form(
        ("a", "b"),
        _rewards(lambda space, h: dist.Binomial(_cells(space, TRIALS), _beta(space, h))),
        lambda rng, state, action: rng.binomial(TRIALS[state, action], 0.4).astype(float),
        by_cell(
            WIDE,
            _beta_prior,
            lambda v, cell, r: _choose(TRIALS[cell], r) + r * log_expit(WIDE) + (TRIALS[cell] - r) * log_expit(-WIDE),
        ),
    ),
    "geometric": Form(
        ("a", "b"),
        _rewards(lambda space, h: dist.Geometric(_beta(space, h))),
        _counts,
        by_cell(WIDE, _beta_prior, lambda v, cell, r: log_expit(WIDE) + r * log_expit(-WIDE)),
    ),
    "categorical": Form(
        ("a",),
        _rewards(_categorical),
        lambda rng, state, action: rng.integers(3, size=len(state)).astype(float),
        _categorical_marginal,
        small=(1, 1),
    ),
    "log-normal": Form(
        ("a", "b", "loc"),
        _rewards(lambda space, h: dist.LogNormal(_normal(space, h), h["b"])),
        _positive,
        by_cell(ASINH, _normal_prior, lambda v, cell, r: stats.norm.logpdf(np.log(r), REAL, v["b"]) - np.log(r)),
    ),
    "log-normal, noise unknown": Form(
        ("a", "b", "loc"),
        _rewards(_joint),
        _positive,
        at_once(
            lambda v, cell, r: (
                student(np.log(r), v["loc"] + SHIFT[cell], v["a"], 2.0 * SCALE[cell], v["b"]) - np.log(r).sum()
            )
        ),
        small=(1, 1),
        powers=False,
    ),
    "precision": Form(
        ("a", "b"),
        _rewards(
            lambda space, h: dist.Normal(_cells(space, SHIFT), (_cells(space, TRIALS) * _gamma(space, h)) ** -0.5)
        ),
        _reals,
        by_cell(
            WIDE,
            _gamma_prior,
            lambda v, cell, r: (
                0.5 * (np.log(TRIALS[cell] / (2 * np.pi)) + WIDE)
                - 0.5 * TRIALS[cell] * np.exp(WIDE) * (r - SHIFT[cell]) ** 2
            ),
        ),
    ),
    "affine": Form(
        ("a", "b", "loc"),
        _rewards(lambda space, h: dist.Normal(_cells(space, SLOPE) * _normal(space, h) + _cells(space, SHIFT), h["b"])),
        _reals,
        by_cell(
            ASINH,
            _normal_prior,
            lambda v, cell, r: stats.norm.logpdf(r, SLOPE[cell] * REAL + SHIFT[cell], v["b"]),
        ),
    ),
    "affine, noise unknown": Form(
        ("a", "b", "loc"),
        _rewards(_affine_pairs),
        _reals,
        at_once(
            lambda v, cell, r: student(
                r,
                SLOPE[cell] * (v["loc"] + SHIFT[cell]) + SHIFT[cell],
                v["a"],
                2.0 * SCALE[cell],
                v["b"],
                slope=SLOPE[cell],
            )
        ),
        small=(1, 1),
        powers=False,
    ),
    "known state": Form(("a", "b", "loc"), _rewards(_known_state), _reals, _known_state_marginal, small=(2, 1)),
    "advance or stay": Form(
        ("a", "b"), _advance, lambda rng, state, action: np.zeros(len(state)), _advance_marginal, small=(2, 2)
    ),
    "rows of two widths": Form(
        ("a", "b"),
        _two_widths,
        lambda rng, state, action: np.zeros(len(state)),
        _two_widths_marginal,
        small=(3, 1),
        space=bm.StateActionSpace(3, 2),
    ),
    "known row": Form(("a", "b"), _known_row, _positive, _known_row_marginal, small=(1, 2)),
}
