"""Outcomes beside the reward: the same rows in each draw, what updates and files keep, and what is refused or told."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.pair_draws import pair_draws
from bayes_mdp.models.default_prior import default_prior
from tests.envs.logs.random_logs import fold_log

COLUMNS: dict[str, Any] = {"state": "s", "action": "a", "reward": "r", "outcomes": ["cost"], "next_state": "t"}
PRIORS = {
    "exact": lambda log: bm.models.dirichlet_normal_gamma(),
    "mixture": default_prior,
}


def table(number: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "s": rng.choice(list("abc"), number),
            "a": rng.choice(["x", "y"], number),
            "r": rng.normal(size=number),
            "cost": rng.gamma(4.0, 2.0, number),
            "t": rng.choice(list("abc"), number),
        }
    )


def fit(prior: Any, data: Any, log: Any) -> Any:
    return bm.infer(jax.random.key(0), prior, data, space=bm.StateActionSpace.from_log(log))


def value(posterior: Any, objective: Any = bm.Discounted(0.9), **options: Any) -> Any:
    return bm.policy_value(jax.random.key(1), posterior, [0, 1, 0], objective, num_draws=200, **options)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("objective", [bm.Discounted(0.9), bm.Episodic(3)])
def test_a_draw_of_an_outcome_is_of_the_rows_of_that_draw(prior, objective):
    """Rows by the key of the reward, costs by a key of their own, summed by hand."""
    frame = table()
    log = bm.read_log(frame, **COLUMNS)
    posterior = fit(PRIORS[prior](log), log, log)
    start = np.ones(3) / 3
    told = value(posterior, objective, initial=start)
    key, used, horizon = jax.random.key(1), np.array([[1, 0], [0, 1], [1, 0]], bool), 3
    rows = pair_draws(key, posterior, used).draw(200).probs.reshape(200, 3, 3)
    paid = posterior.outcomes["cost"].outcome_draws(key, "cost", used).draw(200).reward
    total = np.zeros((200, 3))
    for _ in range(2_000 if isinstance(objective, bm.Discounted) else horizon):
        rate = 0.9 if isinstance(objective, bm.Discounted) else 1.0
        total = paid + rate * np.einsum("nst,nt->ns", rows, total)
    np.testing.assert_allclose(told.outcomes["cost"].draws, total @ start, rtol=1e-6)
    # The same law as where the outcome is the reward of a log of its own.
    alone = value(posterior.outcomes["cost"], objective, initial=start)
    error = np.hypot(alone.sd, told.outcomes["cost"].sd) / np.sqrt(200)
    assert abs(told.outcomes["cost"].mean - alone.mean) < 5.5 * error
    # A known cost of one is the time in every draw, whatever was learnt beside it.
    ones = bm.decisions.Outcome(np.ones((3, 2)))
    time = value(posterior, objective, options=bm.decisions.ValueOptions({"time": ones})).outcomes["time"].draws
    np.testing.assert_allclose(time, 10.0 if isinstance(objective, bm.Discounted) else 3.0)


@pytest.mark.parametrize("prior", [bm.models.dirichlet_normal_gamma, bm.models.dirichlet_normal, "default"])
def test_reward_and_outcomes_are_independent_given_the_rows(prior):
    """In one step rows do not matter: no correlation of 4,000 draws above 5.5 / sqrt(4,000) (false alarms: 1e-7)."""
    frame = table()
    frame["bed days"] = np.random.default_rng(1).poisson(3.0, len(frame))
    columns: dict[str, Any] = {**COLUMNS, "outcomes": ["cost", "bed days"]}
    log = bm.read_log(frame, **columns)
    posterior = fit(default_prior(log) if prior == "default" else prior(), log, log)
    told = bm.policy_value(jax.random.key(1), posterior, [0, 1, 0], bm.Episodic(1), num_draws=4_000)
    draws = [told.draws, *(told.outcomes[name].draws for name in ("cost", "bed days"))]
    assert np.abs(np.corrcoef(draws) - np.eye(3)).max() < 5.5 / np.sqrt(4_000)
    # Under one key for all, they move together.
    twin = bm.policy_value(jax.random.key(1), posterior.outcomes["cost"], [0, 1, 0], bm.Episodic(1), num_draws=4_000)
    assert np.corrcoef(draws[0], twin.draws)[0, 1] > 0.5


class SamplesAlone:
    """A posterior of a user's own, which draws all by one key."""

    def __init__(self, posterior: Any) -> None:
        self.space, self._posterior = posterior.space, posterior

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        return self._posterior.sample(key, sample_shape)


def test_an_outcome_that_cannot_be_drawn_apart_is_refused():
    log = bm.read_log(table(), **COLUMNS)
    posterior = fit(bm.models.dirichlet_normal_gamma(), log, log)
    with pytest.raises(TypeError, match="outcome 'cost' was learnt by a SamplesAlone, which draws rows and rewards"):
        value(posterior, options=bm.decisions.ValueOptions({"cost": SamplesAlone(posterior.outcomes["cost"])}))


@pytest.mark.parametrize("prior", PRIORS)
def test_updates_files_merges_and_folds_keep_them(prior, tmp_path):
    frame = table()
    log = bm.read_log(frame, **COLUMNS)
    prior = PRIORS[prior](log)
    whole = fit(prior, log, log)
    space = bm.StateActionSpace.from_log(log)
    parts = [fold_log(part, **COLUMNS, space=space) for part in (frame[:50], frame[50:])]
    updated = fit(prior, parts[0], log).update(parts[1])
    bm.save(whole, tmp_path / "posterior.bm")
    loaded = bm.load(tmp_path / "posterior.bm")
    expected = value(whole)
    for other in (updated, loaded, fit(prior, parts[0].merge(parts[1]), log)):
        answer = value(other)
        np.testing.assert_allclose(answer.draws, expected.draws, rtol=1e-9)
        np.testing.assert_allclose(answer.outcomes["cost"].draws, expected.outcomes["cost"].draws, rtol=1e-9)
    # Transitions alone say nothing of the outcome: its rows learn, its law does not.
    more = bm.Transitions([0], [0], [0.5], [1])
    after = whole.update(more)
    assert "cost" in value(after).outcomes
    np.testing.assert_allclose(after.outcomes["cost"].visit_counts(), after.visit_counts())
    discounted = whole.discount_data(0.5)
    assert value(discounted).outcomes["cost"].sd > expected.outcomes["cost"].sd
    with pytest.raises(ValueError, match="no outcome 'cost'"):
        whole.update(fold_log(frame, state="s", action="a", reward="r", next_state="t", space=space))


def test_exact_posteriors_merge():
    frame = table()
    log = bm.read_log(frame, **COLUMNS)
    space = bm.StateActionSpace.from_log(log)
    prior = bm.models.dirichlet_normal_gamma()
    parts = [fit(prior, fold_log(part, **COLUMNS, space=space), log) for part in (frame[:50], frame[50:])]
    merged, whole = bm.inference.merge(parts), fit(prior, log, log)
    np.testing.assert_allclose(value(merged).outcomes["cost"].draws, value(whole).outcomes["cost"].draws, rtol=1e-9)
    alone = fit(prior, log.of_outcome("cost"), log)
    with pytest.raises(
        ValueError, match=r"posteriors\[1\] has learnt the outcomes \[\], expected those of posteriors\[0\]"
    ):
        bm.inference.merge([parts[0], alone])


def test_a_default_prior_has_the_size_of_each_outcome():
    """An outcome of thousands is not shrunk to a reward near zero."""
    frame = table()
    frame["cost"] *= 1000
    log = bm.read_log(frame, **COLUMNS)
    prior = default_prior(log)
    assert "cost: normal" in str(prior)
    posterior = fit(prior, log, log)
    mean = np.asarray(posterior.outcomes["cost"].mean_mdp().reward)
    assert abs(mean.mean() / frame["cost"].mean() - 1) < 0.1
    small = bm.models.dirichlet_normal_gamma(pseudo_count=30.0)
    with pytest.warns(
        UserWarning, match="outcome 'cost': the prior of the rewards, which it is learnt by, moves its mean"
    ):
        fit(small, log, log)


def test_a_law_that_an_outcome_has_not_is_refused_by_its_name():
    frame = table()
    frame["r"] = (frame["r"] > 0).astype(float)
    log = bm.read_log(frame, **COLUMNS)
    with pytest.raises(ValueError, match=r"outcome 'cost', learnt as the reward is: .*another prior for it"):
        fit(bm.models.dirichlet_bernoulli(), log, log)
    alone = bm.read_log(frame, state="s", action="a", reward="r", next_state="t")
    main = fit(bm.models.dirichlet_bernoulli(), alone, alone)
    cost = fit(bm.models.dirichlet_normal_gamma(), log.of_outcome("cost"), log)
    both = main.with_outcomes({"cost": cost})
    assert value(both).outcomes["cost"].mean == pytest.approx(value(cost).mean, rel=0.1)
    assert "outcomes learnt beside the reward: cost" in str(both)
    with pytest.raises(TypeError, match=r"outcomes\['cost'\] is"):
        main.with_outcomes({"cost": 3})


def test_other_rows_are_seen_and_refused():
    """A posterior of other rows: by another log, or by another prior of the rows."""
    frame = table()
    log = bm.read_log(frame, **COLUMNS)
    main = fit(bm.models.dirichlet_normal_gamma(), log.of_outcome("cost"), log)
    for other in (
        fit(bm.models.dirichlet_normal_gamma(concentration=2.0), log.of_outcome("cost"), log),
        main.update(bm.Transitions([0], [0], [0.5], [1])),
    ):
        with pytest.raises(ValueError, match="draws other rows than the one in use"):
            value(main.with_outcomes({"cost": other}))


def test_rows_and_rewards_that_share_a_site_are_refused():
    """There an outcome is no reward beside the reward: each would move the rows its own way."""

    def prior(space: bm.StateActionSpace) -> Any:
        shared = numpyro.sample("shared", dist.Beta(1.0, 1.0).expand(space.shape).to_event(2))
        rows = jax.numpy.stack([shared, 1.0 - shared], -1)
        return bm.models.MDPSpec(rows, dist.Normal(shared, 1.0))

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "s": rng.choice(list("ab"), 30),
            "a": "x",
            "r": rng.normal(size=30),
            "cost": rng.normal(5.0, 1.0, size=30),
            "t": rng.choice(list("ab"), 30),
        }
    )
    log = bm.read_log(frame, **COLUMNS)
    space = bm.StateActionSpace.from_log(log)
    sampler = bm.inference.NUTS(num_warmup=100, num_samples=100)
    posterior = bm.infer(jax.random.key(0), prior, log, space=space, sampler=sampler)
    with pytest.raises(ValueError, match="rows and rewards share no site"):
        bm.policy_value(jax.random.key(1), posterior, [0, 0], bm.Discounted(0.9), num_draws=20)
