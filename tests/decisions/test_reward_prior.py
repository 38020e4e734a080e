"""What the prior of the rewards adds to a value, by plain numpy, and where that is a reason to distrust."""

from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions.policy_evaluation import PolicyValue
from bayes_mdp.decisions.value_basis import PRIOR_SHARE, RewardPrior, Unvisited, ValueBasis
from bayes_mdp.decisions.verdict import verdict_on
from bayes_mdp.mdp import Discounted, Episodic, Log, Transitions
from tests.text import unwrapped

pytestmark = pytest.mark.numerics

KEY = jax.random.key(0)
CONTEXTS, OFTEN, RARELY = 40, 3000, 70
NOBODY = Unvisited((), np.zeros(0), (), np.zeros(0))


def campaign() -> tuple[Log, np.ndarray, np.ndarray]:
    """Rows and successes of each context and action: old .0050, new .0030 where it was shown often, else .0029."""
    shown, won = np.full((CONTEXTS, 2), OFTEN), np.zeros((CONTEXTS, 2), int)
    shown[1:, 1] = RARELY
    won[:, 0], won[0, 1], won[1:9, 1] = 15, 9, 1
    context, action = (np.repeat(x.ravel(), shown.ravel()) for x in np.indices(shown.shape))
    paid = np.concatenate([np.arange(n) < k for n, k in zip(shown.ravel(), won.ravel(), strict=True)]).astype(float)
    ended = np.ones(len(context), bool)
    return Log(Transitions(context, action, paid, context, ended), tuple(range(CONTEXTS)), ("old", "new")), shown, won


def compared(prior: Any) -> Any:
    log, *_ = campaign()
    support = np.zeros((CONTEXTS, 2, CONTEXTS + 1), bool)
    support[..., -1] = True
    space = bm.StateActionSpace.from_log(log, support=support)
    posterior = bm.infer(KEY, prior, log, space=space)
    policies = {"old": np.zeros(CONTEXTS, int), "new": np.ones(CONTEXTS, int)}
    return bm.compare_policies(
        KEY, posterior, policies, Episodic(1), num_draws=2000, options=bm.decisions.VerdictOptions(held_out=True)
    )


def test_a_flat_prior_of_rare_successes():
    """Two pseudo-observations beside 70 rewards: a small share of the prior, which alone makes the worse action better.

    The mean of 39 x 2,000 draws has an error of .00005, the bounds are far from it.
    """
    _, shown, won = campaign()
    after, data = (won + 1) / (shown + 2), won / shown
    share, pull = (2 / (shown + 2)).mean(0), (after - data).mean(0)
    result = compared(bm.models.dirichlet_bernoulli())
    for number, name in enumerate(("old", "new")):
        basis = result.values[name].basis
        assert basis.prior_share == 0.0  # all rows are known
        np.testing.assert_allclose([basis.rewards.share, basis.rewards.pull], [share[number], pull[number]], rtol=1e-6)
        assert f"prior's share of its rewards {share[number]:.2g}, which moves the value by +" in unwrapped(result)
    assert share.max() < PRIOR_SHARE
    gain = after.mean(0) @ [-1, 1]
    assert result.prob_best["new"] == 1.0 and gain > 0 > data.mean(0) @ [-1, 1]
    (reason,) = result.verdict.reasons
    assert not result.verdict.decided and "P(best)" not in str(result)
    assert reason.startswith(f"new: the prior of the rewards moves its difference to old by +{pull @ [-1, 1]:.2g}")
    without = float(reason.split("better with probability ")[1].split(",")[0])
    draws = result.difference("new", "old").draws
    assert without == pytest.approx(np.mean(draws > pull @ [-1, 1]), abs=1e-3) and without < 0.5
    assert result.verdict.would_decide[0].startswith("rewards of 9 new (")


def test_the_same_data_under_a_prior_that_lies_where_rewards_lie():
    """As many pseudo-observations with the mean of the log: the worse action is said to be worse, without a reason."""
    result = compared(bm.models.dirichlet_bernoulli(1.0, 0.01, 1.99))
    assert result.values["new"].basis.rewards.share == pytest.approx((2 / 3002 + 39 * 2 / 72) / 40, rel=1e-6)
    assert result.verdict.decided and result.prob_best["old"] > 0.7
    assert "that of the rewards is at most 0.027; it moves the difference to new by " in unwrapped(result.verdict)


def test_a_choice_says_it_too():
    """The candidate takes the worse action, which the prior raises."""
    log, *_ = campaign()
    support = np.zeros((CONTEXTS, 2, CONTEXTS + 1), bool)
    support[..., -1] = True
    space = bm.StateActionSpace.from_log(log, support=support)
    posterior = bm.infer(KEY, bm.models.dirichlet_bernoulli(), log, space=space)
    old = np.zeros(CONTEXTS, int)
    choice = bm.choose(KEY, posterior, Episodic(1), baseline=old, options=bm.decisions.ChooseOptions(num_draws=100))
    assert choice.improvement is not None and choice.improvement.accepted
    assert "candidate: the prior of the rewards moves its difference to the baseline by +0.01" in str(choice)


STATES, DISCOUNT, START = 3, 0.9, np.array([0.5, 0.25, 0.25])
SCALE, LOC = 2.0, 1.0


@pytest.fixture(scope="module")
def posterior() -> Any:
    """Normal rewards of noise 1; the pair (2, 1) was never tried."""
    rng = np.random.default_rng(0)
    pairs = np.array([(s, a) for s in range(STATES) for a in range(2) if (s, a) != (2, 1)])
    state, action = pairs[rng.integers(len(pairs), size=40)].T
    data = Transitions(state, action, rng.normal(-3.0, 2.0, 40), rng.integers(STATES, size=40))
    prior = bm.models.dirichlet_normal(loc=LOC, scale=SCALE, noise_scale=1.0)
    return bm.infer(KEY, prior, data, space=bm.StateActionSpace(STATES, 2)), data


@pytest.mark.parametrize("horizon", [None, 4])
def test_time_weighs_both(posterior, horizon):
    """Share and pull of policies by linear algebra; in a pair without rewards the mean of all."""
    belief, data = posterior
    count, total = np.zeros((STATES, 2)), np.zeros((STATES, 2))
    np.add.at(count, (data.state, data.action), 1.0)
    np.add.at(total, (data.state, data.action), data.reward)
    weight = 1.0 / SCALE**2
    after = (weight * LOC + total) / (weight + count)
    alone = np.where(count > 0, total / np.maximum(count, 1), np.mean(data.reward))
    rows = np.asarray(belief.mean_mdp().transition_probs, float)
    policies = np.random.default_rng(1).dirichlet(np.ones(2), (3, STATES))
    objective = Discounted(DISCOUNT) if horizon is None else Episodic(horizon)
    for policy in policies:
        time, now = np.zeros((STATES, 2)), START
        for _ in range(500 if horizon is None else horizon):
            time, now = time + now[:, None] * policy, np.einsum("s,sa,saz->z", now, policy, rows)
            now = now * (DISCOUNT if horizon is None else 1.0)
        value = bm.policy_value(KEY, belief, policy, objective, initial=START, num_draws=16)
        found: Any = value.basis
        share = time * weight / (weight + count) / time.sum()
        assert found.rewards.share == pytest.approx(share.sum(), rel=1e-5)
        assert found.rewards.pull == pytest.approx((time * (after - alone)).sum(), rel=1e-5)
        assert f"; {found.rewards}" in unwrapped(value)
        first = np.unravel_index(share.argmax(), share.shape)
        assert found.rewards.weakest[0] == (tuple(map(int, first)), pytest.approx(share.max(), rel=1e-5))
        moved = time * (after - alone) * np.sign(found.rewards.pull)
        assert found.rewards.moved[0][0] == np.unravel_index(moved.argmax(), moved.shape)


def value(gain: float, pull: float | None = 0.0, share: float = 0.01) -> PolicyValue:
    """400 draws about `gain` of standard deviation one, moved by `pull`."""
    rewards = None if pull is None else RewardPrior(share, pull, ((("s", "a"), share),), ((("s", "a"), pull),))
    basis = ValueBasis(NOBODY, 0.05, ((("s", "a"), 0.05),), 20.0, False, rewards=rewards)
    normal = np.random.default_rng(0).normal(size=400)
    draws = gain + (normal - normal.mean()) / normal.std(ddof=1)
    return PolicyValue(draws, gain, 1.0, (0.0, 1.0), 0.0, np.ones(1), True, basis, Discounted(0.9))


def flat(pull: float | None = 0.0) -> PolicyValue:
    """The same in every draw."""
    fixed = value(0.0, pull)
    return PolicyValue(0.0 * fixed.draws, 0.0, 0.0, (0.0, 0.0), 0.0, np.ones(1), True, fixed.basis, Discounted(0.9))


@pytest.mark.parametrize(
    ("gain", "ahead", "behind", "doubted"),
    [
        (2.5, 0.4, 0.0, False),  # a small pull
        (2.5, 0.7, 0.0, True),  # 1.8 standard deviations are left
        (2.5, 0.0, -0.7, True),  # it pulls the other one down
        (2.5, 0.4, 0.4, False),  # both alike
        (2.5, -5.0, 0.0, False),  # against the better one
        (20.0, 5.0, 0.0, False),  # 15 standard deviations are left
        (20.0, 25.0, 0.0, True),
        (2.5, None, 0.0, False),
        (2.5, 0.7, None, False),  # not known
    ],
)
def test_where_the_pull_is_a_reason(gain, ahead, behind, doubted):
    verdict = verdict_on({"a": flat(behind), "b": value(gain, ahead)}, None, "")
    assert [reason.split(":")[0] for reason in verdict.reasons] == (["b"] if doubted else [])
    if doubted:
        assert "b: the prior of the rewards moves its difference to a by +" in verdict.reasons[0]
        assert "rewards of s a (" in verdict.would_decide[0]
    elif ahead is None or behind is None:
        assert "what it weighs in the rewards is not known" in unwrapped(verdict)
    else:
        assert "that of the rewards is at most 0.01; it moves the difference to a by " in unwrapped(verdict)


@pytest.mark.parametrize(("share", "doubted"), [(PRIOR_SHARE, False), (PRIOR_SHARE + 1e-6, True)])
def test_where_the_share_is_a_reason(share, doubted):
    verdict = verdict_on({"a": flat(), "b": value(20.0, 0.0, share)}, None, "")
    assert verdict.decided is not doubted
    if doubted:
        assert verdict.reasons == ("b: the prior's share of its rewards is 0.1, above 0.1",)
        assert verdict.would_decide == ("rewards of s a (0.1), or a prior that is known to fit",)


def test_known_rewards_are_not_mentioned():
    assert str(RewardPrior(0.0, 0.0)) == ""
    assert "unknown amount" in str(RewardPrior(0.5, np.nan))


def test_criticise_says_it_too():
    """A log of 60 steps from 10 pairs, rows known: the prior has a quarter of the rewards."""
    rng = np.random.default_rng(0)
    state, action = rng.integers(5, size=60), rng.integers(2, size=60)
    log = Log(
        Transitions(state, action, (rng.random(60) < 0.5).astype(float), state, np.ones(60, bool)),
        tuple(range(5)),
        (0, 1),
    )
    support = np.zeros((5, 2, 6), bool)
    support[..., -1] = True
    space = bm.StateActionSpace.from_log(log, support=support)
    posterior = bm.infer(KEY, bm.models.dirichlet_bernoulli(), log, space=space)
    found = bm.criticise(KEY, posterior, log, Episodic(1), options=bm.calibration.CriticiseOptions(num_replicates=159))
    basis: Any = found.bases["greedy"]
    assert basis.rewards.share > PRIOR_SHARE and not found.alarms
    assert "the prior's share of the rewards of a policy is 0." in found.headline
    assert "greedy rests on the prior of the rewards most at" in str(found)
