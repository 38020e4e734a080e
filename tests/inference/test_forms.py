"""Every conjugate form, in three styles: recognised, its evidence that of scipy, and through all that a posterior does.

Evidence to 1e-9 of its size; a missing constant, a wrong power or a base measure left out is off by far more.
"""

# pyright: reportIndexIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalMemberAccess=false

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.mixtures import log_predictive
from tests.inference.form_programs import FORMS, SPACE, STYLES, advance, advance_evidence, program

KEY = jax.random.key(0)
NUMBER = 24
NO_MEAN = {"log-normal, noise unknown"}


def data_for(name):
    rng = np.random.default_rng(5)
    state, action, next_state = (rng.integers(2, size=NUMBER) for _ in range(3))
    return bm.Transitions(state, action, FORMS[name].rewards(rng, NUMBER), next_state)


def part(data, at):
    return bm.Transitions(*(np.asarray(x)[at] for x in (data.state, data.action, data.reward, data.next_state)))


def expected_evidence(name, data):
    reward = np.asarray(data.reward)
    own = FORMS[name].evidence(np.asarray(data.state), np.asarray(data.action), reward)
    return own + len(reward) * np.log(0.5)  # of the known rows


SLOW_STYLES = [STYLES[0], STYLES[1], pytest.param(STYLES[2], marks=pytest.mark.slow)]


@pytest.mark.some(4)
@pytest.mark.parametrize("style", SLOW_STYLES)
@pytest.mark.parametrize("name", FORMS)
def test_evidence_and_predictive_are_those_of_scipy(name, style):
    data = data_for(name)
    posterior = bm.infer(KEY, program(name, style), data, space=SPACE, method="exact")
    truth = expected_evidence(name, data)
    assert abs(posterior.log_evidence - truth) < 1e-9 * abs(truth)
    # The predictive density of one more transition raises the evidence by itself.
    more = part(data_for(name), slice(3, 4))
    with jax.enable_x64(True):
        found = float(log_predictive(posterior, more)[0])
    both = bm.Transitions(
        *(
            np.append(np.asarray(getattr(data, f)), np.asarray(getattr(more, f)))
            for f in ("state", "action", "reward", "next_state")
        )
    )
    assert abs(found - (expected_evidence(name, both) - truth)) < 1e-8


@pytest.mark.some(1)
@pytest.mark.parametrize("style", STYLES)
def test_rows_that_advance_or_stay(style):
    rng = np.random.default_rng(6)
    state, action = rng.integers(2, size=(2, NUMBER))
    next_state = np.where(state == 1, 1, rng.integers(2, size=NUMBER))
    data = bm.Transitions(state, action, None, next_state)
    posterior = bm.infer(KEY, advance(style), data, space=SPACE, method="exact")
    truth = advance_evidence(state, action, next_state)
    assert abs(posterior.log_evidence - truth) < 1e-9 * abs(truth)
    with pytest.raises(ValueError, match="expected an outcome of positive probability"):
        bm.infer(KEY, advance(style), bm.Transitions([1], [0], None, [0]), space=SPACE)


@pytest.mark.some(2)
@pytest.mark.parametrize("name", FORMS)
def test_updates_and_shards_are_the_whole(name):
    """One by one, in a block, and merged from two shards: the posterior of `infer`."""
    data, prior = data_for(name), program(name, "plates")
    whole = bm.infer(KEY, prior, data, space=SPACE)
    half = np.arange(NUMBER) < NUMBER // 2
    shards = [bm.infer(KEY, prior, part(data, at), space=SPACE) for at in (half, ~half)]
    merged = bm.inference.merge(shards)
    assert abs(merged.log_evidence - whole.log_evidence) < 1e-9 * abs(whole.log_evidence)
    with jax.enable_x64(True):
        block = shards[0].update(part(data, ~half))
        single = shards[0]
        for i in range(NUMBER // 2, NUMBER):
            single = single.update(part(data, slice(i, i + 1)))
        twice = shards[0].update(part(data, half), 2.0).update(part(data, half), 0.0)
        thrice = shards[0].update(part(data, half)).update(part(data, half))
        for found in (block, single):
            assert abs(float(found.log_evidence) - whole.log_evidence) < 1e-9 * abs(whole.log_evidence)
            np.testing.assert_allclose(found.reward_cells.mean(), whole.reward_cells.mean(), rtol=1e-9, atol=1e-9)
    assert abs(float(twice.log_evidence) - float(thrice.log_evidence)) < 1e-9 * abs(float(thrice.log_evidence))


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_draws_have_the_moments_of_the_closed_form(name):
    """20,000 draws of mean and noise in float64: within 6 standard errors (false alarm 2e-8)."""
    posterior = bm.infer(KEY, program(name, "plates"), data_for(name), space=SPACE)
    rewards = posterior.reward_cells
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(2), 20_000)
        draw = lambda key, rewards=rewards: rewards.gather_from_draw(rewards.sample_sites(key))  # noqa: E731
        mean, noise = map(np.asarray, jax.jit(jax.vmap(draw))(keys))
        expected, variance, spread = (np.asarray(x) for x in (rewards.mean(), rewards.variance(), rewards.noise()))
    if name in NO_MEAN:
        assert np.isnan(expected).all() and np.isinf(variance).all()
        return
    error = mean.std(0) / np.sqrt(len(keys))
    assert (np.abs(mean.mean(0) - expected) <= 6 * error + 1e-12).all()
    assert (np.abs(noise.mean(0) - spread) <= 6 * noise.std(0) / np.sqrt(len(keys)) + 1e-12).all()
    # Of the variance: its own standard error from the fourth moment, as drawn.
    fourth = ((mean - mean.mean(0)) ** 4).mean(0)
    of_variance = np.sqrt(np.maximum(fourth - mean.var(0) ** 2, 0.0) / len(keys))
    assert (np.abs(mean.var(0) - variance) <= 6 * of_variance + 1e-12).all()


QUICK = ("partly known",)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in FORMS])
def test_through_everything(name, tmp_path):
    """Saved and loaded, exported, judged, and learnt from by an agent in a compiled run."""
    data = data_for(name)
    posterior = bm.infer(KEY, program(name, "plates"), data, space=SPACE)
    bm.save(posterior, tmp_path / "p")
    loaded = bm.load(tmp_path / "p")
    assert loaded.log_evidence == posterior.log_evidence
    objective = bm.Discounted(0.9)
    policy = np.full((2, 2), 0.5)
    if name in NO_MEAN:
        with pytest.raises(
            ValueError, match="LogNormal rewards under which the expectation of the mean reward of state"
        ):
            posterior.mean_mdp()
        return
    value = bm.policy_value(KEY, posterior, policy, objective, num_draws=20)
    assert np.isfinite(value.mean)
    tree = bm.to_arviz(posterior, num_draws=40, data=data)
    shown = tree["posterior"] if isinstance(tree, dict) else tree.posterior
    assert {"transition_probs", *(site for site, _ in posterior.sites.shapes)} <= set(shown.data_vars)
    env = bm.models.random_environment(jax.random.key(4), program(name, "plates"), SPACE, initial=np.array([1.0, 0.0]))
    result = bm.run(
        bm.agents.PSRL(), env, prior=program(name, "plates"), objective=objective, num_steps=6, num_seeds=2, key=KEY
    )
    assert np.isfinite(np.asarray(result.regret)).all()


def test_moments_serve_where_they_are_sufficient():
    """`Counts` give the posterior of the transitions; log-normal and categorical rewards refuse them."""
    for name in ("exponential", "geometric", "affine", "precision", "regression", "partly known"):
        data, prior = data_for(name), program(name, "plates")
        whole = bm.infer(KEY, prior, data, space=SPACE)
        counted = bm.infer(KEY, prior, bm.Counts.of(data, SPACE), space=SPACE)
        np.testing.assert_allclose(counted.reward_cells.mean(), whole.reward_cells.mean(), rtol=1e-5)
        np.testing.assert_allclose(counted.reward_cells.variance(), whole.reward_cells.variance(), rtol=1e-4)
    for name in ("log-normal", "categorical"):
        with pytest.raises(TypeError, match=r"is a Counts, expected Transitions: a \w+ law needs every reward"):
            bm.infer(KEY, program(name, "plates"), bm.Counts.of(data_for(name), SPACE), space=SPACE)
