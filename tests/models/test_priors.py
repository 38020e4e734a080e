"""Every ready prior is a program that traces to a valid spec of every kind of space."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro import handlers
from numpyro.infer.util import log_density

from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import (
    PRIORS,
    MDPSpec,
    NormalGamma,
    dirichlet_bernoulli,
    dirichlet_normal,
    dirichlet_normal_gamma,
    dirichlet_poisson,
    joint,
    known_rewards,
    supported_dirichlet,
)
from bayes_mdp.models.mdp_spec import check_spec, reward_table, to_mdp

LEGAL = np.array([[1, 1], [1, 0], [1, 1]], bool)
# rows with 1, 2 and 3 possible outcomes; the illegal pair (1, 1) has none
SUPPORT = np.array([[[1, 1, 0], [1, 0, 0]], [[1, 1, 1], [0, 0, 0]], [[0, 1, 1], [0, 0, 1]]], bool)
STEPWISE = np.stack([SUPPORT, np.roll(SUPPORT, 1, -1)])


def with_end(support):
    return np.concatenate([support, support[..., :1]], -1)


SPACES: dict[str, Any] = {
    "plain": StateActionSpace(3, 2),
    "ends": StateActionSpace(3, 2, ends=True),
    "legal": StateActionSpace(3, 2, legal=LEGAL),
    "steps": StateActionSpace(3, 2, horizon=2),
    "support": StateActionSpace(3, 2, support=SUPPORT, legal=LEGAL),
    "support_ends": StateActionSpace(3, 2, support=with_end(SUPPORT), legal=LEGAL, ends=True),
    "support_of_all_steps": StateActionSpace(3, 2, support=SUPPORT, legal=LEGAL, horizon=2),
    "support_of_each_step": StateActionSpace(3, 2, support=with_end(STEPWISE), legal=LEGAL, horizon=2, ends=True),
}
WRONG: Any = "next_state"
LAWS = {
    "dirichlet_normal_gamma": (dist.Normal, (2,)),
    "dirichlet_normal": (dist.Normal, ()),
    "dirichlet_bernoulli": (dist.BernoulliProbs, ()),
    "dirichlet_poisson": (dist.Poisson, ()),
}


def trace_shapes(program, space):
    """Shape of the value of every site, and the spec, traced without a number being computed."""

    def run(key):
        traced = handlers.trace(handlers.seed(joint(program, space), key))
        sites = traced.get_trace()
        drawn = {k: v["value"] for k, v in sites.items() if v["type"] == "sample"}
        substituted: Any = handlers.substitute(program, drawn)
        spec = joint(substituted, space)()
        return {k: v["value"] for k, v in sites.items() if v["type"] != "plate"}, spec

    return jax.eval_shape(run, jax.random.key(0))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("name", LAWS)
def test_every_prior_traces_in_every_space(name, space):
    law, event = LAWS[name]
    for rewards_on, lead in (("state_action", space.shape), ("outcome", (*space.shape, space.n_outcomes))):
        sites, spec = trace_shapes(PRIORS[name](rewards_on=rewards_on), space)
        assert sites["transition"].shape == (*space.shape, space.n_outcomes)
        assert sites["reward"].shape == lead + event
        rewards = jax.eval_shape(lambda spec: reward_table(spec, space), spec)
        assert type(rewards.law) is law and rewards.law.batch_shape == lead
        assert rewards.by_outcome == (rewards_on == "outcome")


@pytest.mark.parametrize("name", ["legal", "support_of_each_step"])
def test_draws_are_worlds_that_keep_to_the_support(name, key):
    space, program = SPACES[name], known_rewards(0.0)
    spec = jax.jit(lambda key: handlers.seed(program, key)(space))(key)
    check_spec(spec, space)
    probs = np.asarray(to_mdp(spec, space).transition_probs)
    if space.support is not None:
        possible = np.broadcast_to(space.support, (*space.shape, space.n_outcomes))[..., :3]
        stay = np.eye(3)[1]  # the illegal pair (1, 1) has no possible outcome
        assert not probs[~possible & space.legal[..., None]].any() and probs[possible].all()
        np.testing.assert_array_equal(probs[..., 1, 1, :], np.broadcast_to(stay, (*probs.shape[:-3], 3)))


def test_known_rewards_are_returned_as_they_are():
    space, reward = SPACES["steps"], np.arange(6.0).reshape(3, 2)
    sites, spec = trace_shapes(known_rewards(reward), space)
    assert set(sites) == {"transition"} and spec.reward.shape == (3, 2)
    assert "reward" not in trace_shapes(known_rewards(np.ones((2, 3, 2, 3))), space)[0]


def test_a_known_support_keeps_one_site():
    sites, _ = trace_shapes(dirichlet_normal(), SPACES["support"])
    assert {k: v.shape for k, v in sites.items()} == {"transition": (3, 2, 3), "reward": (3, 2)}
    certain = StateActionSpace(3, 1, support=np.eye(3, dtype=bool)[:, None])
    assert set(trace_shapes(dirichlet_normal(), certain)[0]) == {"transition", "reward"}
    assert set(trace_shapes(dirichlet_normal(), StateActionSpace(1, 2))[0]) == {"transition", "reward"}


def test_a_supported_row_is_a_dirichlet_on_its_outcomes(x64):
    """Log joint by hand, row by row, over the possible outcomes alone."""
    space, concentration = SPACES["support"], np.arange(1.0, 19.0).reshape(3, 2, 3)
    rows = np.array(supported_rows(np.random.default_rng(0)))
    sites = {"transition": rows}

    def program(space):
        return MDPSpec(supported_dirichlet(concentration, space), np.zeros((3, 2)))

    data = Transitions([0, 1, 2, 2], [0, 0, 0, 1], None, [1, 2, 1, 2])
    expected = scipy.stats.dirichlet.logpdf(rows[0, 0, :2], [1.0, 2.0])
    expected += scipy.stats.dirichlet.logpdf(rows[2, 0, 1:], [14.0, 15.0])
    expected += scipy.stats.dirichlet.logpdf(rows[1, 0], [7.0, 8.0, 9.0])
    assert float(log_density(joint(program, space), (), {}, sites)[0]) == pytest.approx(expected, rel=1e-10)
    expected += np.log([rows[0, 0, 1], rows[1, 0, 2], rows[2, 0, 1]]).sum()
    assert float(log_density(joint(program, space), (data,), {}, sites)[0]) == pytest.approx(expected, rel=1e-10)


def supported_rows(rng):
    """Rows on the outcomes of `SUPPORT`; the illegal pair without any stays where it is."""
    rows = rng.uniform(0.2, 1.0, SUPPORT.shape) * SUPPORT
    rows[1, 1, 1] += not SUPPORT[1, 1].any()
    return rows / rows.sum(-1, keepdims=True)


def test_a_zero_concentration_is_an_impossible_outcome():
    concentration = np.where(SUPPORT, 0.5, 0.0)
    concentration[1, 1, 2] = 1.0
    sites, _ = trace_shapes(dirichlet_normal(concentration), SPACES["plain"])
    assert sites["transition"].shape == (3, 2, 3)
    drawn = handlers.trace(handlers.seed(dirichlet_normal(concentration), 0)).get_trace(SPACES["plain"])
    np.testing.assert_array_equal(np.asarray(drawn["transition"]["value"]) > 0, concentration > 0)
    empty = np.where(np.arange(3) == 1, 0.0, 1.0)[:, None, None]
    with pytest.raises(ValueError, match=r"concentration\[1, 0\] is 0.0, expected a row with at least one positive"):
        trace_shapes(dirichlet_normal(empty * np.ones(3)), SPACES["plain"])


def test_hyper_parameters_reach_their_sites(x64):
    """Log density of the site `reward` against scipy, with a different number in every cell."""
    rng = np.random.default_rng(1)
    a, b, c, d = rng.uniform(0.5, 3.0, (4, 3, 2))
    space, mean, shape = SPACES["plain"], rng.normal(size=(3, 2)), rng.uniform(0.1, 0.9, (3, 2))
    rows = rng.dirichlet(np.ones(3), (3, 2))
    cases = [
        (dirichlet_normal(1.0, a, b, c), mean, scipy.stats.norm.logpdf(mean, a, b)),
        (dirichlet_bernoulli(1.0, a, b), shape, scipy.stats.beta.logpdf(shape, a, b)),
        (dirichlet_poisson(1.0, a, b), shape, scipy.stats.gamma.logpdf(shape, a, scale=1 / b)),
        (
            dirichlet_normal_gamma(1.0, a, b, c, d),
            np.stack([mean, shape], -1),
            scipy.stats.gamma.logpdf(shape, c, scale=1 / d) + scipy.stats.norm.logpdf(mean, a, (b * shape) ** -0.5),
        ),
    ]
    flat = 6 * scipy.stats.dirichlet.logpdf([0.2, 0.3, 0.5], np.ones(3))
    for program, value, expected in cases:
        actual = log_density(program, (space,), {}, {"transition": rows, "reward": jnp.asarray(value)})[0]
        assert float(actual) == pytest.approx(flat + expected.sum(), rel=1e-10)


def test_noise_scale_is_that_of_the_law():
    substituted = {"transition": jnp.full((3, 2, 3), 1 / 3), "reward": jnp.zeros((3, 2))}
    spec: Any = handlers.substitute(dirichlet_normal(noise_scale=np.array([0.1, 2.0])), substituted)(SPACES["plain"])
    np.testing.assert_allclose(spec.reward.scale, np.broadcast_to([0.1, 2.0], (3, 2)), rtol=1e-6)


def test_traced_hyper_parameters_are_allowed():
    def hierarchical(space):
        stickiness = numpyro.sample("stickiness", dist.HalfNormal(5.0))
        return dirichlet_normal(0.5 + stickiness * jnp.eye(3)[:, None, :], scale=1.0 + stickiness)(space)

    for name in ("plain", "support", "support_ends"):
        space = SPACES[name] if name != "support_ends" else StateActionSpace(3, 2, support=SUPPORT, legal=LEGAL)
        sites, _ = trace_shapes(hierarchical, space)
        assert sites["stickiness"].shape == () and sites["transition"].shape == (3, 2, 3)


def test_event_axes_are_named_for_arviz():
    def hints(program, space):
        found = {}

        def run(key):
            sites = handlers.trace(handlers.seed(program, key)).get_trace(space)
            found.update({k: v["infer"]["event_dims"] for k, v in sites.items() if v["type"] == "sample"})

        jax.eval_shape(run, jax.random.key(0))
        return found

    assert hints(dirichlet_normal(rewards_on="outcome"), SPACES["plain"]) == {
        "transition": ["next_state"],
        "reward": ["next_state"],
    }
    assert hints(dirichlet_normal_gamma(), SPACES["support"]) == {
        "transition": ["next_state"],
        "reward": ["mean_precision"],
    }


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: dirichlet_normal(-1.0), "concentration is -1.0, expected a finite number, zero or greater"),
        (
            lambda: dirichlet_poisson(0.0)(SPACES["plain"]),
            r"concentration\[0, 0\] is 0.0, expected a row with at least",
        ),
        (
            lambda: dirichlet_bernoulli([[1.0, np.nan, 1.0]]),
            r"concentration\[0, 1\] is nan, expected a finite number, zero or greater",
        ),
        (
            lambda: dirichlet_normal_gamma(pseudo_count=[[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]]),
            r"pseudo_count\[1, 1\] is 0.0, expected a finite number greater than zero",
        ),
        (lambda: dirichlet_normal_gamma(reward_concentration=-2), "reward_concentration is -2, expected a finite"),
        (lambda: dirichlet_normal_gamma(rate=np.inf), "rate is inf, expected a finite number greater than zero"),
        (lambda: dirichlet_normal(loc=np.nan), "loc is nan, expected a finite number"),
        (lambda: dirichlet_normal(noise_scale=0.0), "noise_scale is 0.0, expected a finite number greater than zero"),
        (lambda: dirichlet_poisson(rewards_on=WRONG), "rewards_on is 'next_state', expected one of state_action"),
        (lambda: known_rewards([[0.0, np.nan]]), r"reward\[0, 1\] is nan, expected a finite number"),
        (lambda: known_rewards(np.zeros((3, 2)), -0.1), "concentration is -0.1, expected a finite number"),
        (
            lambda: dirichlet_normal(np.ones(4))(SPACES["plain"]),
            r"concentration has shape \(4,\), expected one that broadcasts to \(3, 2, 3\) \(state, action, outcome\)",
        ),
        (
            lambda: trace_shapes(dirichlet_normal(scale=np.ones(3)), SPACES["steps"]),
            r"scale has shape \(3,\), expected one that broadcasts to \(2, 3, 2\) \(step, state, action\)",
        ),
    ],
)
def test_a_bad_hyper_parameter_gets_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_factory_is_not_a_program():
    for name in LAWS:
        factory: Any = PRIORS[name]
        with pytest.raises(TypeError, match="concentration is a StateActionSpace, expected a number or an array: call"):
            joint(factory, SPACES["plain"])()


def test_the_registry_holds_documented_factories_with_defaults():
    for name, factory in PRIORS.items():
        assert factory.__name__ == name and inspect.getdoc(factory)
        assert len(inspect.signature(factory).parameters) <= 6
    assert NormalGamma.__doc__
