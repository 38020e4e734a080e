"""Posteriors that are called exact against quadrature over the program's density, and what must not be called so."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

from bayes_mdp.decisions.strategies.model_trace import law_in_closed_form, trace_model
from bayes_mdp.models.isolate import isolated

sample: Any = numpyro.sample  # its annotation knows no operators


def middles(low, high, number=40_000):
    return low + (np.arange(number) + 0.5) * (high - low) / number


PRIORS = {
    "Beta": (lambda: dist.Beta(2.0, 3.0), middles(0, 1)),
    "Gamma": (lambda: dist.Gamma(2.0, 1.5), middles(0, 20)),
    "Exponential": (lambda: dist.Exponential(0.7), middles(0, 40)),
    "Normal": (lambda: dist.Normal(0.5, 1.5), middles(-12, 12)),
    "LogNormal": (lambda: dist.LogNormal(0.0, 0.5), middles(0, 20)),
    "Uniform": (lambda: dist.Uniform(0.1, 0.9), middles(0.1, 0.9)),
}
SEEN = np.array([1.0, 0.0, 1.0, 1.0])
# family -> data -> (law of the data given the site, the data, whether there is a closed form)
DATA = {
    "Beta": {
        "binomial": (lambda x: dist.Binomial(12, x), 4, True),
        "several binomials": (lambda x: dist.Binomial(np.array([3, 9]), x), np.array([1, 5]), True),
        "bernoulli": (lambda x: dist.Bernoulli(jnp.broadcast_to(x, (4,))), SEEN, True),
        "in a vector": (lambda x: dist.Binomial(12, jnp.stack([x, x])[1]), 4, True),
        "logits": (lambda x: dist.Binomial(12, logits=jnp.log(x) - jnp.log1p(-x)), 4, False),
        "half": (lambda x: dist.Binomial(12, x / 2), 4, False),
        "complement": (lambda x: dist.Binomial(12, 1 - x), 4, False),
        "square": (lambda x: dist.Binomial(12, x**2), 4, False),
        "where": (lambda x: dist.Binomial(12, jnp.where(x > 0.5, x, 0.5 * x)), 4, False),
        "normal": (lambda x: dist.Normal(x, 0.2), 0.4, False),
    },
    "Gamma": {
        "poisson": (dist.Poisson, 3, True),
        "exposure": (lambda x: dist.Poisson(x * np.array([0.5, 4.0])), np.array([1, 3]), True),
        "times": (lambda x: dist.Exponential(jnp.broadcast_to(x, (4,))), np.array([0.2, 1.0, 0.4, 3.0]), True),
        "scaled times": (lambda x: dist.Exponential(2.0 * x), 0.3, True),
        "shifted": (lambda x: dist.Poisson(x + 1.0), 3, False),
        "scale": (lambda x: dist.Normal(0.0, x), 0.4, False),
        "risk": (lambda x: dist.Binomial(10, 1 - jnp.exp(-x)), 4, False),
    },
    "Normal": {
        "mean": (lambda x: dist.Normal(x, 0.7), 1.2, True),
        "coefficients": (lambda x: dist.Normal(x * np.array([1.0, -2.0, 0.5]), 0.7), np.array([1.0, -1.0, 2.0]), True),
        "own sd": (lambda x: dist.Normal(x, np.array([0.5, 2.0])), np.array([1.0, -1.0]), True),
        "offset": (lambda x: dist.Normal(x + 1.0, 0.7), 1.2, False),
        "sd too": (lambda x: dist.Normal(x, 0.5 + x**2), 1.2, False),
        "log": (lambda x: dist.LogNormal(x, 0.7), 1.2, False),
        "student": (lambda x: dist.StudentT(3.0, x, 0.7), 1.2, False),
    },
    "Exponential": {"poisson": (dist.Poisson, 3, True)},
    "LogNormal": {"poisson": (dist.Poisson, 3, False)},
    "Uniform": {"binomial": (lambda x: dist.Binomial(12, x), 4, False)},
}
CASES = [(family, name) for family, each in DATA.items() for name in each]


def one_site(family, names):
    def program():
        x = sample("x", PRIORS[family][0]())
        for name in names:
            law, seen, _ = DATA[family][name]
            sample(f"data {name}", law(x), obs=seen)
        return {"a": x}

    return program


def moments(program, grid):
    """Mean and sd by quadrature over the density of the program."""
    with jax.enable_x64(True):
        density = jax.vmap(lambda x: log_density(program, (), {}, {"x": x})[0])(jnp.asarray(grid))
        density = np.asarray(density)
    weights = np.exp(density - density.max())
    mean = weights @ grid / weights.sum()
    return mean, np.sqrt(weights @ (grid - mean) ** 2 / weights.sum())


def check_exact(program, family, expected):
    trace = trace_model(isolated(program))
    law = law_in_closed_form(trace, "x")
    assert (law is not None) == expected
    if law is None:
        return
    mean, sd = moments(program, PRIORS[family][1])
    u = (np.arange(20_000) + 0.5) / 20_000
    draws = law.quantiles(u[:, None])
    np.testing.assert_allclose(law.mean(), mean, rtol=1e-5)
    np.testing.assert_allclose(draws.std(), sd, rtol=2e-3)


@pytest.mark.parametrize(("family", "name"), CASES)
def test_one_kind_of_data(family, name):
    check_exact(one_site(family, [name]), family, DATA[family][name][2])


@pytest.mark.parametrize("seed", range(5))
def test_several_kinds_of_data(seed):
    rng = np.random.default_rng(seed)
    family = str(rng.choice(["Beta", "Gamma", "Normal"]))
    names = [str(x) for x in rng.choice(list(DATA[family]), rng.integers(2, 4), replace=False)]
    check_exact(one_site(family, names), family, all(DATA[family][name][2] for name in names))


@pytest.mark.parametrize("family", list(PRIORS))
def test_no_data(family):
    check_exact(one_site(family, []), family, True)


def test_rows_by_any_selection_of_whole_rows():
    counts = np.array([[5, 1, 0], [2, 2, 9]])

    def program():
        rows = sample("x", dist.Dirichlet(np.full((2, 3), 0.5)))
        sample("all", dist.Multinomial(counts.sum(-1), rows), obs=counts)
        sample("second", dist.Multinomial(4, rows[1]), obs=np.array([0, 3, 1]))
        sample("drawn", dist.Categorical(rows[np.array([1, 0, 1])]), obs=np.array([2, 0, 2]))
        return {"a": rows[0, 0]}

    law = law_in_closed_form(trace_model(isolated(program)), "x")
    assert law is not None
    wanted = 0.5 + counts + np.array([[1, 0, 0], [0, 3, 3]])
    np.testing.assert_array_equal(law.parameters["concentration"], wanted)


@pytest.mark.parametrize("turn", [lambda r: r[..., ::-1], lambda r: r.T, lambda r: jnp.sqrt(r) / jnp.sqrt(r).sum(-1)])
def test_rows_in_another_order_have_no_closed_form(turn):
    def program():
        rows = sample("x", dist.Dirichlet(np.full((2, 2), 0.5)))
        sample("y", dist.Multinomial(np.array([3, 3]), turn(rows)), obs=np.array([[1, 2], [3, 0]]))
        return {"a": rows[0, 0]}

    assert law_in_closed_form(trace_model(isolated(program)), "x") is None


def blocks(program):
    trace = trace_model(isolated(program))
    return trace.blocks(), {name: law_in_closed_form(trace, name) is not None for name in trace.shapes}


def test_dependent_sites_are_one_block():
    def hierarchy():
        top = sample("top", dist.Normal(0.0, 1.0))
        low = sample("low", dist.Normal(top, 1.0))
        free = sample("free", dist.Normal(0.0, 1.0))
        sample("y", dist.Normal(low, 1.0), obs=0.3)
        return {"a": low + free}

    assert blocks(hierarchy) == ([("top", "low"), ("free",)], {"top": False, "low": False, "free": True})

    def common_data():
        a, b = sample("a", dist.Normal(0.0, 1.0)), sample("b", dist.Normal(0.0, 1.0))
        sample("y", dist.Normal(a + b, 1.0), obs=0.3)
        return {"a": a}

    assert blocks(common_data) == ([("a", "b")], {"a": False, "b": False})

    def other_in_the_scale():
        a, b = sample("a", dist.Normal(0.0, 1.0)), sample("b", dist.Gamma(2.0, 1.0))
        sample("y", dist.Normal(a, b), obs=0.3)
        return {"a": a}

    assert blocks(other_in_the_scale) == ([("a", "b")], {"a": False, "b": False})

    def factor():
        a, b = sample("a", dist.Normal(0.0, 1.0)), sample("b", dist.Normal(0.0, 1.0))
        numpyro.factor("f", -((a - b) ** 2))
        return {"a": a}

    assert blocks(factor) == ([("a", "b")], {"a": False, "b": False})

    def number_of_trials():
        p = sample("p", dist.Beta(1.0, 1.0))
        sample("y", dist.Binomial(jnp.where(p > 0.5, 10, 5), p), obs=3)
        return {"a": p}

    assert blocks(number_of_trials) == ([("p",)], {"p": False})

    def masked():
        p = sample("p", dist.Beta(1.0, 1.0))
        with handlers.mask(mask=np.array([True, False])):
            sample("y", dist.Binomial(10, jnp.stack([p, p])), obs=np.array([3, 9]))
        return {"a": p}

    assert blocks(masked) == ([("p",)], {"p": False})


def test_plates_and_events():
    def program():
        with numpyro.plate("sites", 3):
            p = sample("p", dist.Beta(1.0, 2.0))
            sample("y", dist.Binomial(10, p), obs=np.array([1, 5, 9]))
        m = sample("m", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        return {"a": p.sum() + m.sum()}

    trace = trace_model(isolated(program))
    law = law_in_closed_form(trace, "p")
    assert law is not None
    np.testing.assert_array_equal(law.parameters["concentration1"], [2, 6, 10])
    np.testing.assert_array_equal(law.parameters["concentration0"], [11, 7, 3])
    assert law_in_closed_form(trace, "m") is not None


def sample_x():
    return sample("x", dist.Beta(1.0, 1.0))


def two(first, second):
    def program():
        x = sample_x()
        return {"a": first(x), "b": second(x)}

    return program


def scaled():
    with handlers.scale(scale=2.0):
        sample("x", dist.Beta(1.0, 1.0))
    return {"a": 1.0}


def subsampled():
    with numpyro.plate("n", 10, subsample_size=2):
        sample("x", dist.Beta(1.0, 1.0))
    return {"a": 1.0}


def branching():
    return {"a": 1.0 if sample_x() > 0.5 else 0.0}


def impossible():
    sample("y", dist.Binomial(3, sample_x()), obs=7)
    return {"a": 1.0}


@pytest.mark.parametrize(
    ("program", "error", "says"),
    [
        (sample_x, TypeError, "program returns .*, expected strategy -> outcomes"),
        (dict, TypeError, "program returns .*, expected strategy -> outcomes"),
        (lambda: {1: 2.0}, TypeError, "the strategy 1, expected names"),
        (lambda: {"a": {}}, ValueError, "'a' has the outcomes none"),
        (
            two(lambda x: {"cost": x, "effect": x}, lambda x: {"cost": x}),
            ValueError,
            "'b' has the outcomes 'cost', exp",
        ),
        (two(lambda x: x, lambda x: jnp.stack([x, x])), ValueError, r"'value' of 'b' has shape \(2,\)"),
        (branching, TypeError, "branches in Python"),
        (scaled, ValueError, "'x' is scaled"),
        (subsampled, ValueError, "'n' is subsampled"),
        (lambda: {"a": numpyro.param("p", 1.0)}, ValueError, "'p' is a param"),
        (lambda: {"a": sample("n", dist.Poisson(2.0)) * 1.0}, ValueError, "'n' is discrete"),
    ],
)
def test_programs_that_are_refused(program, error, says):
    with pytest.raises(error, match=says):
        trace_model(isolated(program))


def test_impossible_data_are_refused():
    with pytest.raises(ValueError, match="the data of 'y' are 7, expected successes of the trials"):
        law_in_closed_form(trace_model(isolated(impossible)), "x")
