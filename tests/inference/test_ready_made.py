"""Ready priors carry the closed form that detection would find in their programs, to the last bit."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false
# pyright: reportOptionalSubscript=false
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers

import bayes_mdp as bm
from bayes_mdp.inference import route
from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.inference.route import ready_made
from bayes_mdp.models import PRIORS
from bayes_mdp.models.isolate import tracing

RNG = np.random.default_rng(0)
SUPPORT = RNG.random((3, 2, 3)) < 0.6
SUPPORT[..., 0] = True
ONE = np.zeros((3, 2, 3), bool)
ONE[..., 1] = True
LEGAL = np.array([[True, True], [True, False], [False, True]])
LISTED = np.array([[[0, 1], [1, 2]], [[0, -1], [2, 1]], [[2, 0], [1, -1]]])
ENDING = np.where(LISTED == 2, 3, LISTED)
SPACES = {
    "plain": bm.StateActionSpace(3, 2),
    "one pair": bm.StateActionSpace(1, 1),
    "ends": bm.StateActionSpace(3, 2, ends=True),
    "horizon": bm.StateActionSpace(3, 2, horizon=2),
    "support": bm.StateActionSpace(3, 2, support=SUPPORT),
    "one outcome": bm.StateActionSpace(3, 2, support=ONE),
    "legal": bm.StateActionSpace(3, 2, legal=LEGAL),
    "legal and support": bm.StateActionSpace(3, 2, legal=LEGAL, support=SUPPORT),
    "successors": bm.StateActionSpace(3, 2, successors=LISTED),
    "successors and ends": bm.StateActionSpace(3, 2, successors=ENDING, ends=True),
}
CLOSED = {name: PRIORS[name] for name in list(PRIORS)[:5]}
"""The ready priors that are conjugate as a whole."""
ARGUMENTS = {"feature_dynamics": {"features": np.eye(3)}}
REWARDS = ("state_action", "outcome")


def positive(shape):
    return RNG.gamma(2.0, size=shape) + 0.01


def hyperparameters(name, cells):
    """Arrays for all hyperparameters of the rewards, in the order of the factory."""
    if name == "dirichlet_normal_gamma":
        return RNG.normal(size=cells), positive(cells), positive(cells) + 1, positive(cells)
    if name == "dirichlet_normal":
        return RNG.normal(size=cells), positive(cells), positive(cells)
    return positive(cells), positive(cells)


def priors(name, space, rewards_on):
    """The prior with its defaults, and with concentrations of all kinds and numbers of its own in every cell."""
    rows = (*space.shape, space.n_outcomes)
    cells = rows if rewards_on == "outcome" else space.shape
    full = positive(rows)
    without = np.where((RNG.random(space.shape) < 0.4)[..., None] & (np.arange(rows[-1]) == 1), 0.0, full)
    concentrations = [0.5, without, full[..., :1].tolist(), jnp.asarray(full, jnp.float32)]
    if name == "known_rewards":
        return [CLOSED[name](RNG.normal(size=cells), c) for c in concentrations] + [CLOSED[name](0)]
    options = {"rewards_on": rewards_on}
    many = [CLOSED[name](c, *hyperparameters(name, cells), **options) for c in concentrations]
    return [CLOSED[name](**options), CLOSED[name](2, np.float32(0.3), 3, **options), *many]


def detected(prior, space):
    with jax.enable_x64(True), tracing():
        return route._prove(trace_program(prior, space))[0]


def without_program(posterior):
    return replace(posterior, sites=replace(posterior.sites, program=None))


def bits(posterior):
    return [(type(x), x.dtype, x.shape, x.tobytes()) for x in jax.tree.leaves(posterior)]


@pytest.mark.some(7)
@pytest.mark.parametrize("rewards_on", REWARDS)
@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_it_is_what_detection_finds(space, name, rewards_on):
    compared = 0
    for prior in priors(name, space, rewards_on):
        try:
            found = detected(prior, space)
        except ValueError as error:
            # A row of which no outcome is left, say: refused in the same words.
            with pytest.raises(ValueError) as refusal:
                ready_made(prior, space)
            assert str(refusal.value) == str(error)
            continue
        belief = ready_made(prior, space)
        assert bits(belief) == bits(found)
        assert jax.tree.structure(without_program(belief)) == jax.tree.structure(without_program(found))
        compared += 1
    assert compared > 2


@pytest.mark.parametrize("name", list(PRIORS)[5:])
def test_other_ready_priors_have_none(name):
    assert ready_made(PRIORS[name](**ARGUMENTS.get(name, {})), SPACES["plain"]) is None


def test_a_program_around_one_and_traced_numbers_are_detected():
    prior, space = bm.models.dirichlet_bernoulli(), SPACES["plain"]
    assert ready_made(_around(prior), space) is None
    assert ready_made(handlers.scale(prior, scale=2.0), space) is None
    jax.eval_shape(lambda c: (_is_none(ready_made(bm.models.dirichlet_bernoulli(c), space)), c)[1], 2.0)


def _around(prior):
    """A user's program, which calls a ready one."""

    def program(space):
        return prior(space)

    return program


def _is_none(value):
    assert value is None


def test_equal_priors_make_one_belief_and_other_numbers_another():
    space = SPACES["plain"]
    one, same = (ready_made(bm.models.dirichlet_normal(np.full((3, 2, 3), 2.0)), space) for _ in range(2))
    assert one is same
    assert ready_made(bm.models.dirichlet_normal(np.full((3, 2, 3), 2.5)), space) is not one
    assert ready_made(bm.models.dirichlet_normal(np.full((3, 2, 3), 2.0), rewards_on="outcome"), space) is not one
    named = bm.StateActionSpace(3, 2, states=("a", "b", "c"))
    assert ready_made(bm.models.dirichlet_normal(np.full((3, 2, 3), 2.0)), named) is not one


def test_a_posterior_has_arrays_of_its_own():
    prior, space = bm.models.dirichlet_bernoulli(), SPACES["plain"]
    data = bm.Transitions([0], [1], [1.0], [2])
    for given in (None, data, bm.Counts.of(data, space)):
        posterior = bm.infer(jax.random.key(0), prior, given, space=space)
        for leaf in jax.tree.leaves((posterior.transition_probs, posterior.reward_cells)):
            leaf[...] = 7
        assert (ready_made(prior, space).transition_probs.prior == 1).all()


def test_the_posterior_of_a_ready_prior_is_that_of_its_program():
    prior, space = bm.models.dirichlet_normal_gamma(0.7, rate=2.0), SPACES["horizon"]
    size = 50
    state, action, step = (RNG.integers(n, size=size) for n in (3, 2, 2))
    data = bm.Transitions(state, action, RNG.normal(size=size), RNG.integers(3, size=size), step=step)
    ready, program = (bm.infer(jax.random.key(0), p, data, space=space) for p in (prior, _around(prior)))
    assert bits(ready) == bits(program) and ready.method == program.method == "exact"
    assert ready.log_evidence == program.log_evidence


@pytest.mark.parametrize("name", CLOSED)
def test_the_program_of_a_posterior_is_the_prior_again(name):
    # Of arrays it is a copy, which once had the hyperparameters in the order of the alphabet.
    space = SPACES["plain"]
    for prior in priors(name, space, "state_action"):
        belief = ready_made(prior, space)
        again = ready_made(belief.sites.program, space)
        assert jax.tree.map(np.shape, without_program(again)) == jax.tree.map(np.shape, without_program(belief))
        one, other = jax.tree.leaves(without_program(belief)), jax.tree.leaves(without_program(again))
        assert all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


def test_the_program_of_a_mixture_is_the_default_prior_again():
    transitions = bm.Transitions([0, 1, 2, 0], [0, 1, 0, 1], [1.0, 2.5, 0.3, 9.0], [1, 2, 0, 2])
    log = bm.mdp.Log(transitions, states=(0, 1, 2), actions=(0, 1))
    space, key = SPACES["plain"], jax.random.key(0)
    first: Any = bm.infer(key, bm.models.default_prior(log, space=space), transitions, space=space)
    again: Any = bm.infer(key, first.program, transitions, space=space)
    before, after = first.components.reward_cells.prior, again.components.reward_cells.prior
    assert np.ptp(first.components.transition_probs.prior, axis=(1, 2)).max() > 0  # it has bases that are arrays
    assert jax.tree.all(jax.tree.map(np.array_equal, before, after))


def test_no_program_is_run(monkeypatch):
    monkeypatch.setattr(route, "trace_program", None)
    prior, space = bm.models.known_rewards(np.zeros((3, 2))), SPACES["plain"]
    assert bm.infer(jax.random.key(0), prior, space=space).method == "exact"
    with pytest.raises(ValueError, match="reward"):
        bm.infer(jax.random.key(0), prior, bm.Transitions([0], [0], [1.0], [0]), space=space)
