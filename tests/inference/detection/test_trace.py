"""Programs share proofs and compiled code if they compute the same, and only then; how long what is known is kept."""

import functools
import math
import os
import threading

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from bayes_mdp.inference.detection import trace
from bayes_mdp.inference.detection.trace import Program, trace_program
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.sampled.recipe import recipe_for
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.space import CELLS, PROGRAMS, program_cache
from bayes_mdp.models import MDPSpec, sticky, unknown_concentration
from tests.inference.hierarchies import SPACE


def under(hyper, function=jnp.asarray):
    """Sticky rows under a hyperprior, through a function."""

    def prior(space):
        stickiness = function(numpyro.sample("stickiness", hyper))
        with space.plates():
            probs = numpyro.sample("transition", dist.Dirichlet(0.5 + stickiness * jnp.eye(3)[:, None, :]))
        return MDPSpec(probs, jnp.zeros(()))

    return prior


def clipped():
    """A new function with a derivative of its own, as each import of a module would make it."""

    @jax.custom_jvp
    def clip(x):
        return jnp.maximum(x, 0.1)

    clip.defjvp(lambda primals, tangents: (clip(*primals), tangents[0]))
    return clip


def improper(support):
    """A density of one on a support that NumPyro does not check."""
    return dist.ImproperUniform(support, (), (), validate_args=False)


def recipe(prior, space):
    """The sampled route's own digest."""
    return recipe_for(prior, space, NUTS())


@pytest.mark.parametrize("trace", [trace_program, recipe])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (dist.HalfNormal(5.0), dist.HalfNormal(2.0)),
        (dist.Gamma(2.0, 1.0), dist.LogNormal(2.0, 1.0)),
        # The same log density, on another support.
        (dist.Uniform(0.0, 1.0, validate_args=False), dist.Uniform(1.0, 2.0, validate_args=False)),
        (improper(dist.constraints.positive), improper(dist.constraints.real)),
    ],
    ids=["scale", "family", "support", "improper"],
)
def test_programs_that_differ_in_the_hyper_prior_alone(trace, one, other):
    assert trace(under(one), SPACE) == trace(under(one), SPACE)
    assert trace(under(one), SPACE) != trace(under(other), SPACE)


@pytest.mark.parametrize("trace", [trace_program, recipe])
@pytest.mark.parametrize("make", [clipped, lambda: jax.nn.relu, lambda: jax.nn.softplus])
def test_functions_with_derivatives_of_their_own_are_stable(trace, make):
    first, second = (trace(under(dist.HalfNormal(5.0), make()), SPACE) for _ in range(2))
    assert first == second and hash(first) == hash(second)
    assert first != trace(under(dist.HalfNormal(5.0)), SPACE)


class Stand(Program):
    """A program by its fingerprint, over a space of so many cells (a square, about)."""

    def __init__(self, name: object, cells: int = 1) -> None:
        object.__setattr__(self, "fingerprint", str(name))
        object.__setattr__(self, "space", StateActionSpace(math.isqrt(cells), 1))


def counted():
    """A cached function that answers with the fingerprint, and what it was really asked for."""
    calls: list[str] = []

    def fingerprint(program: Program) -> str:
        calls.append(program.fingerprint)
        return program.fingerprint

    return program_cache(fingerprint), calls


def test_equal_programs_are_one():
    found, calls = counted()
    assert found(Stand("a")) == found(Stand("a")) == "a" and calls == ["a"]


def test_the_oldest_of_many_is_forgotten():
    found, calls = counted()
    for i in range(PROGRAMS + 1):
        found(Stand(i))
    found(Stand(1))
    found(Stand(0))
    assert calls == [*map(str, range(PROGRAMS + 1)), "0"]


def test_large_programs_are_forgotten_by_size_and_the_last_one_is_kept():
    found, calls = counted()
    found(Stand("small"))
    for name in ("a", "b", "b", "a", "c", "a"):
        found(Stand(name, CELLS // 2))
    assert calls == ["small", "a", "b", "c"]  # b was the oldest when c came
    found(Stand("huge", 3 * CELLS))
    found(Stand("huge", 3 * CELLS))
    found(Stand("a", CELLS // 2))
    assert calls == ["small", "a", "b", "c", "huge", "a"]


def test_threads():
    found, calls = counted()
    names = [i % 80 for i in range(2000)]
    threads = [threading.Thread(target=lambda: [found(Stand(i)) for i in names]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(calls) == set(map(str, range(80))) and found(Stand(5)) == "5"


@pytest.mark.skipif(os.environ.get("BAYES_MDP_TYPES", "off") != "off", reason="the checks hide what a function does")
def test_a_ready_prior_is_known_by_its_arguments(monkeypatch):
    """By all of them, and by the precision and the families of the moment."""
    concentration, first = np.ones(3), trace_program(sticky(), SPACE)
    assert trace_program(sticky(), SPACE) is first
    others = [sticky(dist.HalfNormal(2.0)), sticky(concentration=concentration), unknown_concentration()]
    found = [trace_program(prior, SPACE).fingerprint for prior in others]
    found += [first.fingerprint, trace_program(sticky(), StateActionSpace(4, 2)).fingerprint]
    with jax.enable_x64(True):
        found.append(trace_program(sticky(), SPACE).fingerprint)
    before = trace_program(others[1], SPACE)
    concentration[0] = 2.0
    assert len(set(found)) == 6
    assert trace_program(others[1], SPACE).fingerprint != before.fingerprint
    monkeypatch.setattr(trace, "registrations", lambda law=None: "a family of the user's")
    assert trace_program(sticky(), SPACE) is not first


def test_a_program_that_holds_code_of_the_user_is_traced_again(tmp_path):
    """It may look at what cannot be read: here a file."""
    file = tmp_path / "scale"

    def scale():
        return dist.HalfNormal(float(file.read_text()))

    def prior(space):
        return sticky(scale())(space)

    class Scaled(dist.HalfNormal):
        def log_prob(self, value, intermediates=None):
            return float(file.read_text()) * super().log_prob(value)

    for program in (
        prior,
        functools.partial(prior),
        sticky(Scaled(1.0)),
        handlers.condition(prior, data={"none": 0.0}),
    ):
        found = []
        for text in ("1.0", "2.0"):
            file.write_text(text)
            found.append(trace_program(program, SPACE).fingerprint)  # pyright: ignore[reportArgumentType]
        assert found[0] != found[1]
