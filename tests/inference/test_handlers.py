"""What may stand around a site, by route: every handler and primitive of NumPyro times every role of a site.

A program has one site `x`, in one of five roles, and something around it. What is right is computed on a grid of x by
numpy and scipy: density of x, changed as the handler says, times likelihood. What has no posterior is refused in one
sentence before anything is sampled. Closed forms are compared to 1e-6; chains by the mean, within 6 standard errors (by
the effective sample size of the chain), so that one cell alarms falsely with a probability below 1e-8. 8,000 draws
catch a shift of the mean by about .1 of the posterior's standard deviation: the square of a Beta(2, 3) with a squared
Jacobian is off by .13.
"""

# `numpyro.sample` is typed to return any ArrayLike: too narrow for tests.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportCallIssue=false, reportReturnType=false

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import cond, scan
from numpyro.distributions import constraints, transforms
from numpyro.infer.reparam import TransformReparam
from scipy import stats
from scipy.special import betaln

import bayes_mdp as bm

SPACE = bm.StateActionSpace(2, 1)
CHAINS = bm.inference.NUTS(num_warmup=500, num_samples=2000, num_chains=4)
MOVES = bm.Transitions([0, 0, 0], [0, 0, 0], None, [0, 1, 1])
STAYS = bm.Transitions([0, 0, 0], [0, 0, 0], None, [0, 0, 0])
PAID = bm.Transitions([0, 0], [0, 0], [1.0, 2.0], [0, 1])
UNIT = np.linspace(0.0, 1.0, 20_001)[1:-1]
POSITIVE = np.exp(np.linspace(-14.0, 7.0, 40_001))


class Role(NamedTuple):
    """What the site `x` is in a program.

    Args:
        program: its draw -> the program.
        law: its law in NumPyro; `transformed` another one, a `TransformedDistribution`.
        log_prior, log_transformed: their densities at `grid`, by scipy.
        grid, width: values of x, and what each stands for.
        log_likelihood: at the grid.
        target: what is compared, at the grid: a probability of the row of state 0, or its reward.
        data: the observations.
        known: a value that handlers give it.
        improper: a law of constant density; None: it leaves no posterior.
        route: of the program with nothing around x.
    """

    program: Callable
    law: Callable
    transformed: Callable | None
    log_prior: np.ndarray
    log_transformed: np.ndarray | None
    grid: np.ndarray
    width: np.ndarray
    log_likelihood: np.ndarray
    target: np.ndarray
    data: bm.Transitions
    known: float
    improper: Callable | None
    route: str


def _rows(first):
    return jnp.stack([jnp.stack([first, 1.0 - first]), jnp.array([0.0, 1.0])])[:, None, :]


def row_program(draw):
    return lambda space: bm.models.MDPSpec(_rows(draw()), 0.0)


def square_program(draw):
    return lambda space: bm.models.MDPSpec(_rows(draw() ** 2), 0.0)


def hyper_program(draw):
    def program(space):
        strength = draw()
        row = numpyro.sample("row", dist.Dirichlet(strength * jnp.ones(2)))
        return bm.models.MDPSpec(jnp.stack([row, jnp.array([0.0, 1.0])])[:, None, :], 0.0)

    return program


def reward_program(draw):
    def program(space):
        mean = draw()
        with space.plates():
            rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(2)))
        return bm.models.MDPSpec(rows, dist.StudentT(5.0, mean * jnp.ones((2, 1)), 1.0))

    return program


def kind_program(draw):
    def program(space):
        turned = draw()
        first = numpyro.sample("first", dist.Beta(2.0, 3.0))
        return bm.models.MDPSpec(jnp.where(turned == 1, _rows(1.0 - first), _rows(first)), 0.0)

    return program


def _sigmoid():
    return dist.TransformedDistribution(dist.Normal(0.0, 1.0), transforms.SigmoidTransform())


def _exponential():
    return dist.TransformedDistribution(dist.Normal(0.0, 1.0), transforms.ExpTransform())


LOGIT = np.log(UNIT) - np.log1p(-UNIT)
LOG_SIGMOID = stats.norm.logpdf(LOGIT) - np.log(UNIT) - np.log1p(-UNIT)
LOG_EXP = stats.norm.logpdf(np.log(POSITIVE)) - np.log(POSITIVE)
KINDS = np.array([0.0, 1.0])
ROLES = {
    "row": Role(
        row_program,
        lambda: dist.Beta(2.0, 3.0),
        _sigmoid,
        stats.beta.logpdf(UNIT, 2, 3),
        LOG_SIGMOID,
        UNIT,
        np.full(UNIT.shape, 1.0),
        np.log(UNIT) + 2 * np.log1p(-UNIT),
        UNIT,
        MOVES,
        0.4,
        lambda: dist.ImproperUniform(constraints.unit_interval, (), ()),
        "exact",
    ),
    "square": Role(
        square_program,
        lambda: dist.Beta(2.0, 3.0),
        _sigmoid,
        stats.beta.logpdf(UNIT, 2, 3),
        LOG_SIGMOID,
        UNIT,
        np.full(UNIT.shape, 1.0),
        2 * np.log(UNIT) + 2 * np.log1p(-(UNIT**2)),
        UNIT**2,
        MOVES,
        0.4,
        lambda: dist.ImproperUniform(constraints.unit_interval, (), ()),
        "nuts",
    ),
    "hyperparameter": Role(
        hyper_program,
        lambda: dist.Gamma(2.0, 1.0),
        _exponential,
        stats.gamma.logpdf(POSITIVE, 2.0),
        LOG_EXP,
        POSITIVE,
        POSITIVE,  # the grid is even on the log scale
        betaln(POSITIVE + 3, POSITIVE) - betaln(POSITIVE, POSITIVE),
        (POSITIVE + 3) / (2 * POSITIVE + 3),
        STAYS,
        2.0,
        None,
        "collapsed",
    ),
    "reward": Role(
        reward_program,
        lambda: dist.HalfNormal(1.0),
        _exponential,
        stats.halfnorm.logpdf(POSITIVE),
        LOG_EXP,
        POSITIVE,
        POSITIVE,
        stats.t.logpdf(1.0 - POSITIVE, 5) + stats.t.logpdf(2.0 - POSITIVE, 5),
        POSITIVE,
        PAID,
        0.7,
        lambda: dist.ImproperUniform(constraints.positive, (), ()),
        "factorised",
    ),
    "kind": Role(
        kind_program,
        lambda: dist.Bernoulli(0.3),
        None,
        np.log([0.7, 0.3]),
        None,
        KINDS,
        np.ones(2),
        np.array([betaln(3, 5), betaln(4, 4)]),
        np.array([3 / 8, 1 / 2]),
        MOVES,
        1,
        None,
        "mixture",
    ),
}


class Cell(NamedTuple):
    """One thing around the site of one role: how x is drawn, and the log density that x has then; or the refusal."""

    draw: Callable
    log_prior: np.ndarray | None
    refusal: str = ""


def _plain(role):
    return lambda: numpyro.sample("x", role.law())


def _at(role):
    """Log density of a known value: all at the point of the grid next to it."""
    return np.where(np.arange(role.grid.size) == np.abs(role.grid - role.known).argmin(), 0.0, -np.inf)


def _scaled(role):
    return Cell(handlers.scale(_plain(role), scale=2.0), 2.0 * role.log_prior)


def _scaled_by_less(role):
    return Cell(handlers.scale(_plain(role), scale=0.5), 0.5 * role.log_prior)


def _flat(role, draw):
    bounded = role.grid is UNIT or role.grid is KINDS
    return Cell(draw, np.zeros(role.grid.size)) if bounded else Cell(draw, None, "site 'x' is masked")


def _masked(role):
    return _flat(role, handlers.mask(_plain(role), mask=False))


def _masked_law(role):
    return _flat(role, lambda: numpyro.sample("x", role.law().mask(False)))


def _conditioned(role):
    return Cell(handlers.condition(_plain(role), data={"x": role.known}), _at(role))


def _substituted(role):
    return Cell(handlers.substitute(_plain(role), data={"x": role.known}), _at(role))


def _intervened(role):
    return Cell(handlers.do(_plain(role), data={"x": role.known}), _at(role))


def _delta(role):
    return Cell(lambda: numpyro.sample("x", dist.Delta(role.known)), _at(role))


def _impossible(role):
    return Cell(handlers.condition(_plain(role), data={"x": -3.0}), None, "'x' is observed, conditioned")


def _hidden(role):
    return Cell(handlers.block(_plain(role)), None, "belong to no site")


def _lifted(role):
    lifted = handlers.lift(lambda: numpyro.param("x", 0.5), prior={"x": role.law()})
    return Cell(lifted, role.log_prior)


def _param(role):
    return Cell(lambda: numpyro.param("x", 0.5), None, "param 'x' has no prior")


def _transformed(role):
    if role.transformed is None:
        return None
    return Cell(lambda: numpyro.sample("x", role.transformed()), role.log_transformed)


def _reparametrised(role):
    if role.transformed is None:
        return None
    draw = handlers.reparam(lambda: numpyro.sample("x", role.transformed()), config={"x": TransformReparam()})
    return Cell(draw, role.log_transformed)


def _configured(role):
    return Cell(handlers.infer_config(_plain(role), config_fn=lambda site: {"note": 1}), role.log_prior)


def _unconditioned(role):
    if not hasattr(handlers, "uncondition"):  # older than NumPyro 0.20
        return None
    return Cell(handlers.uncondition(handlers.condition(_plain(role), data={"x": role.known})), role.log_prior)


def _seeded(role):
    def draw():
        with handlers.seed(rng_seed=3):
            return _plain(role)()

    return Cell(draw, role.log_prior)


def _keyed(role):
    return Cell(lambda: numpyro.sample("x", role.law(), rng_key=jax.random.key(3)), role.log_prior)


def _scoped(role):
    return Cell(handlers.scope(_plain(role), prefix="in"), role.log_prior)


def _factored(role):
    def draw():
        x = _plain(role)()
        numpyro.factor("f", -1.0 * x)
        return x

    return Cell(draw, role.log_prior - role.grid)


def _observed_below(role):
    def draw():
        x = _plain(role)()
        numpyro.sample("seen", dist.Normal(x, 1.0), obs=0.5)
        return x

    return Cell(draw, role.log_prior + stats.norm.logpdf(0.5, role.grid))


def _noted(role):
    return Cell(lambda: numpyro.deterministic("noted", _plain(role)()), role.log_prior)


def _in_plates(role):
    def draw():
        with numpyro.plate_stack("plates", [1]):
            return numpyro.sample("x", role.law())[0]

    return Cell(draw, role.log_prior)


def _subsampled(role):
    def draw():
        with numpyro.plate("places", 4, subsample_size=2):
            return numpyro.sample("x", role.law()).mean()

    return Cell(draw, None, "plate 'places' draws 2 of its 4 elements")


def _scanned(role):
    def draw():
        return scan(lambda carry, _: (carry, numpyro.sample("x", role.law())), 0.0, None, length=1)[1][0]

    return Cell(draw, role.log_prior)


def _scaled_in_scan(role):
    def draw():
        return scan(lambda carry, _: (carry, handlers.scale(_plain(role), scale=2.0)()), 0.0, None, length=1)[1][0]

    return Cell(draw, 2.0 * role.log_prior)


def _in_a_branch(role):
    def draw():
        where = numpyro.sample("where", dist.Bernoulli(0.5))
        return cond(where == 1, lambda _: 1.0 * _plain(role)(), lambda _: 0.5, None)

    return Cell(draw, None, "site 'x' is sampled in a branch of cond")


def _beside_a_branch(role):
    def draw():
        x = _plain(role)()
        return x * cond(jnp.asarray(True), lambda _: 1.0, lambda _: 0.5, None)

    return Cell(draw, role.log_prior)


def _improper(role):
    if role.improper is None:
        return None
    return Cell(lambda: numpyro.sample("x", role.improper()), np.zeros(role.grid.size))


def _called_back(role):
    def draw():
        x = _plain(role)()
        return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), x)

    return Cell(draw, None, "calls back to Python")


def _stopped(role):
    return Cell(lambda: jax.lax.stop_gradient(_plain(role)()), role.log_prior)


def _random(role):
    def draw():
        return handlers.scale(_plain(role), scale=1.0)() * jax.random.uniform(numpyro.prng_key())

    return Cell(draw, None, "random numbers that belong to no site")


AROUND: dict[str, Callable[[Role], Cell | None]] = {
    "nothing": lambda role: Cell(_plain(role), role.log_prior),
    "scale 2": _scaled,
    "scale 1/2": _scaled_by_less,
    "mask": _masked,
    "masked law": _masked_law,
    "condition": _conditioned,
    "condition outside the support": _impossible,
    "substitute": _substituted,
    "do": _intervened,
    "Delta": _delta,
    "block": _hidden,
    "lift": _lifted,
    "param": _param,
    "transformed law": _transformed,
    "reparam": _reparametrised,
    "infer_config": _configured,
    "uncondition": _unconditioned,
    "seed": _seeded,
    "rng_key": _keyed,
    "scope": _scoped,
    "factor": _factored,
    "observed site below": _observed_below,
    "deterministic": _noted,
    "plate_stack": _in_plates,
    "plate with subsample": _subsampled,
    "scan": _scanned,
    "scale inside scan": _scaled_in_scan,
    "site in a branch of cond": _in_a_branch,
    "cond without sites": _beside_a_branch,
    "ImproperUniform": _improper,
    "callback": _called_back,
    "stop_gradient": _stopped,
    "random numbers of no site beside a scale": _random,
}
CELLS = {
    f"{around} / {role}": (cell, ROLES[role])
    for around, make in AROUND.items()
    for role in ROLES
    if (cell := make(ROLES[role])) is not None
}
REFUSED = [name for name, (cell, _) in CELLS.items() if cell.log_prior is None]
RIGHT = [name for name, (cell, _) in CELLS.items() if cell.log_prior is not None]


def moments(cell, role, log_likelihood):
    """Mean and standard deviation of the target, on the grid."""
    log_density = cell.log_prior + log_likelihood
    weight = np.exp(log_density - log_density.max()) * role.width
    weight /= weight.sum()
    mean = weight @ role.target
    return mean, np.sqrt(weight @ (role.target - mean) ** 2)


def inferred(key, cell, role, data):
    return bm.infer(key, role.program(cell.draw), data, space=SPACE, sampler=CHAINS)


def looked_at(mdp, role):
    return mdp.reward[..., 0, 0] if role is ROLES["reward"] else mdp.transition_probs[..., 0, 0, 0]


def check(key, posterior, mean, sd, role):
    got = float(looked_at(posterior.mean_mdp(), role))
    if posterior.method in ("exact", "mixture"):
        assert got == pytest.approx(mean, abs=2e-4)  # the value next to a known one on the grid
        return
    chains = posterior.mcmc
    worth = 8000.0 if chains is None else min(float(np.nanmin(x)) for x in chains.ess().values())
    assert worth > 400
    # The standard deviation of the target is that of what is averaged over draws, or more.
    assert abs(got - mean) < 6 * sd / np.sqrt(min(worth, 8000.0)) + 2e-4


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:Out-of-support values:UserWarning")  # NumPyro's own
def test_what_has_no_posterior_is_refused(name, key):
    cell, role = CELLS[name]
    for data in (role.data, None):
        with pytest.raises((ValueError, TypeError), match=cell.refusal) as refusal:
            inferred(key, cell, role, data)
        assert "\n" not in str(refusal.value)
    with pytest.raises((ValueError, TypeError), match=cell.refusal):
        bm.explain(role.program(cell.draw), SPACE)


@pytest.mark.some(12)
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.filterwarnings("ignore::bayes_mdp.inference.SamplingWarning")
def test_the_posterior_is_that_of_a_grid(name, key):
    cell, role = CELLS[name]
    mean, sd = moments(cell, role, role.log_likelihood)
    check(key, inferred(key, cell, role, role.data), mean, sd, role)


@pytest.mark.some(4)
@pytest.mark.parametrize("name", [name for name in RIGHT if not name.startswith("ImproperUniform")])
@pytest.mark.filterwarnings("ignore::bayes_mdp.inference.SamplingWarning")
def test_the_prior_is_that_of_a_grid(name, key):
    """Without data; of the hyperparameter nothing shows in the mean of the row, which is one half."""
    cell, role = CELLS[name]
    prior = role._replace(target=np.array([0.4, 0.6])) if role is ROLES["kind"] else role
    prior = role._replace(target=np.full(role.grid.size, 0.5)) if role is ROLES["hyperparameter"] else prior
    mean, sd = moments(cell, prior, 0.0)
    posterior = inferred(key, cell, role, None)
    if role is ROLES["hyperparameter"]:
        assert float(looked_at(posterior.mean_mdp(), role)) == pytest.approx(0.5, abs=1e-5)
        return
    check(key, posterior, mean, sd, role)
