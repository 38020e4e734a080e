"""The hierarchical ready priors against densities written out in numpy and scipy."""

# scipy types a frozen law as any: discrete, continuous.
# pyright: reportAttributeAccessIssue=false

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats

from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import (
    PRIORS,
    clustered_states,
    dirichlet_bernoulli,
    dirichlet_normal,
    feature_dynamics,
    joint,
    known_rewards,
    robust_rewards,
    shared_rewards,
    sticky,
    unknown_concentration,
)
from bayes_mdp.models.mdp_spec import check_spec, to_mdp
from tests.models.test_priors import LEGAL, SPACES, SUPPORT, trace_shapes

NAMES = ("unknown_concentration", "sticky", "shared_rewards", "clustered_states", "feature_dynamics", "robust_rewards")
FEATURES = np.random.default_rng(0).normal(size=(3, 1, 1, 2))  # of the state alone: broadcasts to every space
PLAIN_FEATURES = np.random.default_rng(1).normal(size=(3, 2, 3, 2))
HYPER = {
    "unknown_concentration": {"concentration": ()},
    "sticky": {"stickiness": ()},
    "shared_rewards": {"reward_loc": (), "reward_scale": (), "noise_scale": ()},
    "clustered_states": {"cluster_concentration": (2,), "cluster_loc": (2,), "cluster": (3, 1)},
    "feature_dynamics": {"coefficients": (2,), "strength": ()},
    "robust_rewards": {"noise_scale": (), "excess_df": ()},
}


def make(name, features=FEATURES):
    return feature_dynamics(features) if name == "feature_dynamics" else PRIORS[name]()


@pytest.mark.parametrize("space", ["legal", "support_ends", "steps", "support_of_each_step"])
@pytest.mark.parametrize("name", NAMES)
def test_every_prior_traces_in_every_space(name, space):
    space = SPACES[space]
    sites, spec = trace_shapes(make(name), space)
    assert sites["transition"].shape == (*space.shape, space.n_outcomes)
    assert {k: sites[k].shape for k in HYPER[name]} == HYPER[name]
    event = () if name in ("shared_rewards", "robust_rewards") else (2,)
    assert sites["reward"].shape == space.shape + event
    jax.eval_shape(lambda spec: to_mdp(spec, space), spec)


def point(rng, name, space):
    """A value for every site of `name` in a space where every outcome is possible."""
    values = {
        "transition": rng.dirichlet(np.ones(space.n_outcomes), space.shape),
        "reward": np.stack([rng.normal(size=space.shape), rng.uniform(0.5, 2.0, space.shape)], -1),
        "concentration": rng.uniform(0.2, 3.0),
        "stickiness": rng.uniform(0.2, 3.0),
        "reward_loc": rng.normal(),
        "reward_scale": rng.uniform(0.2, 3.0),
        "noise_scale": rng.uniform(0.2, 3.0),
        "cluster_concentration": rng.uniform(0.2, 3.0, 2),
        "cluster_loc": rng.normal(size=2),
        "cluster": np.array([[1], [0], [1]]),
        "coefficients": rng.normal(size=2),
        "strength": rng.uniform(0.2, 3.0),
        "excess_df": rng.uniform(0.2, 3.0),
    }
    if name in ("shared_rewards", "robust_rewards"):
        values["reward"] = values["reward"][..., 0]
    return {k: values[k] for k in (*HYPER[name], "transition", "reward")}


def literal_concentration(name, v, features, support):
    """Concentrations of the rows, one by one; zero where an outcome is impossible."""
    rows = np.zeros((3, 2, 3))
    for s, a, o in np.argwhere(support):
        rows[s, a, o] = {
            "unknown_concentration": lambda s, a, o: v["concentration"],
            "sticky": lambda s, a, o: 0.5 + v["stickiness"] * (s == o),
            "clustered_states": lambda s, a, o: v["cluster_concentration"][v["cluster"][s, 0]],
            "feature_dynamics": lambda s, a, o: np.exp(features[s, a, o] @ v["coefficients"]),
        }.get(name, lambda s, a, o: 1.0)(s, a, o)
    if name == "feature_dynamics":
        return np.nan_to_num(v["strength"] * rows / np.maximum(rows.sum(-1, keepdims=True), 1e-300))
    return rows


def literal_hyper(name, v):
    """Log density of the hyperparameters under the default hyperpriors."""
    wide, weight, positive = stats.norm(0, 5).logpdf, stats.lognorm(1.0).logpdf, stats.halfnorm(scale=5).logpdf
    laws = {
        "concentration": weight,
        "stickiness": positive,
        "reward_loc": wide,
        "reward_scale": positive,
        "noise_scale": positive,
        "cluster_concentration": weight,
        "cluster_loc": wide,
        "cluster": lambda x: np.log(np.full(np.shape(x), 0.5)),
        "coefficients": stats.norm(0, 1).logpdf,
        "strength": weight,
        "excess_df": stats.gamma(2, scale=10).logpdf,
    }
    return sum(np.sum(laws[site](v[site])) for site in HYPER[name])


def literal_rewards(name, v, rewards):
    """Log density of the reward cells, and of the rewards [(state, action, reward)] given them."""
    leaf = v["reward"]
    if name == "shared_rewards":
        prior, noise = stats.norm.logpdf(leaf, v["reward_loc"], v["reward_scale"]), v["noise_scale"]
        return prior.sum() + sum(stats.norm.logpdf(r, leaf[s, a], noise) for s, a, r in rewards)
    if name == "robust_rewards":
        law, noise = stats.t(1.0 + v["excess_df"]), v["noise_scale"]
        seen = sum(law.logpdf((r - leaf[s, a]) / noise) - np.log(noise) for s, a, r in rewards)
        return stats.norm.logpdf(leaf).sum() + seen
    loc = v["cluster_loc"][v["cluster"]] if name == "clustered_states" else 0.0
    mean, precision = leaf[..., 0], leaf[..., 1]
    prior = stats.gamma.logpdf(precision, 2.0) + stats.norm.logpdf(mean, loc, precision**-0.5)
    return prior.sum() + sum(stats.norm.logpdf(r, mean[s, a], precision[s, a] ** -0.5) for s, a, r in rewards)


@pytest.mark.parametrize("name", NAMES)
def test_the_log_joint_is_the_one_written_out(name, x64):
    """Every density once: hyperpriors, rows, reward cells, next states, rewards."""
    space, rng = SPACES["plain"], np.random.default_rng(2)
    model = joint(make(name, PLAIN_FEATURES), space)
    data: Any = Transitions([0, 1, 2, 2, 0], [0, 1, 0, 0, 0], [0.3, -1.0, 2.0, 0.1, 0.4], [1, 2, 0, 0, 2])
    density = jax.jit(lambda values, data: log_density(model, (data,), {}, values)[0])
    v = point(rng, name, space)
    rows = literal_concentration(name, v, PLAIN_FEATURES, np.ones((3, 2, 3), bool))
    expected = literal_hyper(name, v)
    expected += sum(stats.dirichlet.logpdf(v["transition"][s, a], rows[s, a]) for s in range(3) for a in range(2))
    cells = list(zip(data.state, data.action, data.next_state, data.reward, strict=True))
    expected += sum(np.log(v["transition"][s, a, o]) for s, a, o, _ in cells)
    expected += literal_rewards(name, v, [(s, a, r) for s, a, _, r in cells])
    assert float(density(v, data)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", ["sticky", "clustered_states", "feature_dynamics"])
def test_the_support_chooses_the_columns_of_the_concentrations(name, x64):
    """Those of possible outcomes are those without a support; the others are zero."""
    space = SPACES["support"]
    v = point(np.random.default_rng(3), name, space)
    v: Any = {k: x for k, x in v.items() if k != "transition"}
    even = SUPPORT | (~SUPPORT.any(-1, keepdims=True) & np.eye(3, dtype=bool)[:, None])
    v["transition"] = even / even.sum(-1, keepdims=True)
    program: Any = handlers.substitute(make(name, PLAIN_FEATURES), v)

    def concentrations():
        return handlers.trace(program).get_trace(space)["transition"]["fn"].concentration

    found = np.asarray(jax.jit(concentrations)())
    rows = literal_concentration(name, v, PLAIN_FEATURES, SUPPORT)
    np.testing.assert_allclose(found[SUPPORT], rows[SUPPORT], rtol=1e-12)
    assert (found[~even] == 0).all()


def test_features_that_are_huge_leave_positive_concentrations(x64):
    """Also with a finite gradient, next to an illegal pair without an outcome."""
    space = SPACES["support"]
    program = feature_dynamics(PLAIN_FEATURES * 1e4)
    v: Any = point(np.random.default_rng(4), "feature_dynamics", space)
    v = {k: x for k, x in v.items() if k != "transition"}
    even = SUPPORT | (~SUPPORT.any(-1, keepdims=True) & np.eye(3, dtype=bool)[:, None])
    v |= {"transition": even / even.sum(-1, keepdims=True)}

    def density(coefficients):
        return log_density(program, (space,), {}, v | {"coefficients": coefficients})[0]

    value, gradient = jax.jit(jax.value_and_grad(density))(jnp.asarray(v["coefficients"]))
    assert np.isfinite(value) and np.isfinite(gradient).all()


@pytest.mark.parametrize(
    "name", ["clustered_states", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[:3] + NAMES[4:])]
)
def test_draws_are_worlds_that_keep_to_the_support(name, key):
    space = StateActionSpace(3, 2, support=SUPPORT, legal=LEGAL)
    spec = jax.jit(lambda key: handlers.seed(make(name), key)(space))(key)
    check_spec(spec, space)
    assert not np.asarray(spec.transition_probs)[~SUPPORT & LEGAL[..., None]].any()
    assert np.isfinite(to_mdp(spec, space).reward).all()


def test_another_factory_takes_the_rewards():
    for rewards, shape in (
        (partial(dirichlet_bernoulli, concentration1=2.0), (3, 2)),
        (partial(dirichlet_normal, rewards_on="outcome"), (3, 2, 3)),
    ):
        for program in (sticky(rewards=rewards), unknown_concentration(rewards=rewards)):
            assert trace_shapes(program, SPACES["plain"])[0]["reward"].shape == shape
    assert "reward" not in trace_shapes(sticky(rewards=partial(known_rewards, np.zeros((3, 2)))), SPACES["plain"])[0]
    shape = trace_shapes(shared_rewards(rewards_on="outcome"), SPACES["plain"])[0]["reward"].shape
    assert shape == (3, 2, 3)
    assert trace_shapes(clustered_states(3), SPACES["plain"])[0]["cluster_loc"].shape == (3,)


def test_event_axes_are_named_for_arviz():
    def hints(program):
        with handlers.trace() as sites, handlers.seed(rng_seed=0):
            jax.eval_shape(lambda: program(SPACES["plain"]).transition_probs)
        return {k: v["infer"].get("event_dims") for k, v in sites.items() if v["type"] == "sample"}

    assert hints(feature_dynamics(FEATURES))["coefficients"] == ["feature"]
    assert hints(clustered_states())["cluster_loc"] == ["cluster_number"]
    assert hints(clustered_states())["cluster"] is None


WRONG: Any = 0.5


@pytest.mark.parametrize(
    ("build", "error", "sentence"),
    [
        (lambda: unknown_concentration(WRONG), TypeError, "concentration is [0-9.]+, expected a NumPyro distribution"),
        (
            lambda: sticky(dist.Normal(1.0, 1.0)),
            ValueError,
            "stickiness is a Normal, which can be -1e-06, expected a hyperprior of positive numbers",
        ),
        (
            lambda: shared_rewards(scale=dist.HalfNormal(np.ones(2))),
            ValueError,
            r"scale has batch shape \(2,\) and event shape \(\), expected a hyperprior of one number",
        ),
        (lambda: unknown_concentration(dist.Poisson(2.0)), ValueError, "concentration is a Poisson, expected a hyper"),
        (lambda: sticky(concentration=0.0), ValueError, "concentration is 0.0, expected a finite number greater than"),
        (lambda: shared_rewards(rewards_on=WRONG), ValueError, "rewards_on is 0.5, expected"),
        (lambda: shared_rewards(concentration=-1.0), ValueError, "concentration is -1.0, expected a finite number"),
        (lambda: clustered_states(0), ValueError, "num_clusters is 0, expected an integer of at least 1"),
        (lambda: clustered_states(rate=-1.0), ValueError, "rate is -1.0, expected a finite number greater than zero"),
        (lambda: feature_dynamics(np.ones(3)), ValueError, r"features has shape \(3,\), expected \[\*H S A O F\]"),
        (lambda: feature_dynamics([[np.nan]]), ValueError, r"features\[0, 0\] is nan, expected a finite number"),
        (lambda: feature_dynamics(FEATURES, scale=np.ones(3)), ValueError, r"scale has shape \(3,\), expected \(\) or"),
        (
            lambda: trace_shapes(feature_dynamics(np.ones((4, 1, 1, 2))), SPACES["plain"]),
            ValueError,
            r"features \(without its last axis\) has shape \(4, 1, 1\), expected one that broadcasts to \(3, 2, 3\)",
        ),
        (lambda: robust_rewards(excess_df=WRONG), TypeError, "excess_df is [0-9.]+, expected a NumPyro distribution"),
        (lambda: robust_rewards(scale=0.0), ValueError, "scale is 0.0, expected a finite number greater than zero"),
    ],
)
def test_a_bad_hyper_parameter_gets_one_sentence(build, error, sentence):
    with pytest.raises(error, match=sentence):
        build()
