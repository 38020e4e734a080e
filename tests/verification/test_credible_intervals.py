"""The intervals hold the rows of a posterior as often as they say; what a floor cuts off is counted."""

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.stats import beta

import bayes_mdp as bm
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.verification import credible_intervals, export_interval_mdp, load_interval_mdp, robust_values
from bayes_mdp.verification.credible_intervals import _joint_intervals
from tests.text import unwrapped

SPACE = bm.StateActionSpace(3, 2, ends=True, states=("well", "ill", "worse"), actions=("wait", "treat"))
OBJECTIVE = bm.Discounted(0.9)
CONCENTRATION = np.random.default_rng(0).uniform(0.5, 30.0, (6, 4))
CONCENTRATION[1, 2] = 0.0  # one outcome is impossible


def posterior():
    """Dirichlet rows that 30 transitions from each pair have taught, rewards known."""
    rng = np.random.default_rng(1)
    state, action = np.repeat(np.arange(3), 60), np.tile([0, 1], 90)
    outcome = np.array([rng.choice(4, p=[0.4, 0.3, 0.2, 0.1]) for _ in state])
    data = bm.Transitions(state, action, None, np.where(outcome == 3, 0, outcome), outcome == 3)
    reward = np.array([[1.0, 0.8], [0.5, 0.3], [0.0, -0.2]])
    return bm.infer(jax.random.key(0), bm.models.known_rewards(reward, 1.0), data, space=SPACE)


class OnlyDraws(eqx.Module):
    """A belief that has its draws alone."""

    belief: bm.mdp.Posterior

    @property
    def space(self):
        return self.belief.space

    def sample(self, key, sample_shape=()):
        return self.belief.sample(key, sample_shape)


def test_the_tails_are_what_is_left():
    """All that lies outside, entry by entry (scipy's Beta), adds up to 1 - probability; with a floor too."""
    rows = dirichlet_rows(CONCENTRATION, (3, 2, 4))
    total = CONCENTRATION.sum(-1, keepdims=True)
    for floor in (0.0, 1e-6, 1e-4):
        found = rows.intervals(0.9, floor)
        low, high = (np.asarray(x).reshape(6, 4) for x in (found.lower, found.upper))
        law = beta(np.maximum(CONCENTRATION, 1e-300), total - CONCENTRATION)
        outside = np.where(CONCENTRATION > 0, law.cdf(low) + law.sf(high), 0.0)
        assert found.entries == 23 and outside.sum() == pytest.approx(0.1, abs=1e-10)
        assert high[1, 2] == low[1, 2] == 0 and (low[CONCENTRATION > 0] >= floor).all()


def test_known_rows_are_points_and_shared_rows_count_once():
    known = np.array([[[0.25, 0.75]], [[0.0, 0.0]]])
    mixed = dirichlet_rows(np.array([[2.0, 3.0]]), (2, 1, 2), row=np.array([[-1], [0]]), known=known)
    found = mixed.intervals(0.95, 0.0)
    assert found.lower[0, 0].tolist() == found.upper[0, 0].tolist() == [0.25, 0.75] and found.entries == 2
    shared = dirichlet_rows(np.array([[2.0, 3.0]]), (2, 1, 2), row=np.zeros((2, 1), int))
    assert shared.intervals(0.95, 0.0).entries == 2


def test_rows_and_values_lie_within_as_often_as_stated():
    """20,000 draws: fewer than .9 - 5 sd of them (.0106) would be a fault (chance < 3e-7); values in the same draws.

    A set for another probability is caught.
    """
    rows, rng = dirichlet_rows(CONCENTRATION, (3, 2, 4)), np.random.default_rng(2)
    drawn = rng.standard_gamma(CONCENTRATION, (20_000, 6, 4))
    drawn /= drawn.sum(-1, keepdims=True)

    def held(probability):
        found = rows.intervals(probability, 0.0)
        low, high = (np.asarray(x).reshape(6, 4) for x in (found.lower, found.upper))
        return ((drawn >= low) & (drawn <= high)).all((-1, -2)).mean()

    assert held(0.9) > 0.9 - 0.0106
    assert held(0.01) < 0.9 - 0.0106


def test_values_of_a_policy_lie_between_least_and_most():
    belief = posterior()
    model = credible_intervals(belief, OBJECTIVE, probability=0.9, initial="well")
    least, most = (robust_values(model, reward="reward", rows=rows, sense="max").initial for rows in ("least", "most"))
    worst = robust_values(model, reward="reward", rows="least", sense="min").initial
    for policy in ([0, 0, 0], [1, 1, 1], [0, 1, 0]):
        draws = bm.policy_value(jax.random.key(1), belief, policy, OBJECTIVE, initial="well", num_draws=1000).draws
        assert ((draws >= worst) & (draws <= most)).mean() > 0.9
    assert worst < least < most


@pytest.mark.parametrize("ends", [False, True])
def test_listed_successors_are_the_rows_of_a_mask(ends):
    # Three places for three states: a place that is taken for the state of its number fits in shape.
    listed = np.array([[[2, 0, -1], [1, 2, 0]], [[0, 1, -1], [2, 1, 0]], [[2, -1, -1], [1, 0, -1]]])
    if ends:
        listed[0, 0, 2] = listed[2, 1, 2] = 3  # the end
    support = np.zeros((3, 2, 3 + ends), bool)
    for s, a, k in np.argwhere(listed >= 0):
        support[s, a, listed[s, a, k]] = True
    rng = np.random.default_rng(0)
    state, action = rng.integers(3, size=80), rng.integers(2, size=80)
    led = np.array([rng.choice(np.flatnonzero(support[s, a])) for s, a in zip(state, action, strict=True)])
    data = bm.Transitions(state, action, None, np.where(led == 3, 0, led), terminated=led == 3)
    prior = bm.models.known_rewards(np.arange(6.0).reshape(3, 2))
    spaces = (
        bm.StateActionSpace(3, 2, ends=ends, support=support, actions=("x", "y")),
        bm.StateActionSpace(3, 2, ends=ends, successors=listed, actions=("x", "y")),
    )
    dense, sparse = (bm.infer(jax.random.key(0), prior, data, space=space) for space in spaces)
    for start in (None, [0.0, 1.0, 0.0]):
        one, two = (credible_intervals(each, bm.Discounted(0.9), initial=start) for each in (dense, sparse))
        for rows in ("least", "most"):
            values = [robust_values(model, reward="reward", rows=rows).initial for model in (one, two)]
            assert values[0] == pytest.approx(values[1], rel=1e-6)
        # The value of a policy lies between them.
        low, high = (robust_values(two, reward="reward", rows=rows).initial for rows in ("least", "most"))
        best = bm.greedy(sparse, bm.Discounted(0.9))
        value = bm.policy_value(jax.random.key(1), sparse, best, bm.Discounted(0.9), initial=start, num_draws=100)
        assert low < value.mean < high


def test_measured_intervals_hold_a_further_draw_as_often_as_stated():
    """2,000 times 100 draws and a further one: held in .9 - 5 sd (.0335) of them at least; a lower rank is caught."""
    rng, rank = np.random.default_rng(3), int(np.ceil(0.9 * 51))
    held = np.zeros((2000, 2), bool)
    for i in range(2000):
        drawn = rng.dirichlet([0.5, 2.0, 8.0], 101)
        for j, at in enumerate((rank, rank - 8)):
            low, high = _joint_intervals(drawn[:100].copy(), at, 0.0)
            held[i, j] = ((drawn[100] >= low) & (drawn[100] <= high)).all()
    assert held[:, 0].mean() > 0.9 - 0.0335
    assert held[:, 1].mean() < 0.9 - 0.0335


def test_a_belief_that_only_samples_is_measured():
    belief = posterior()
    measured = credible_intervals(OnlyDraws(belief), OBJECTIVE, initial="well", num_draws=1000)
    exact = credible_intervals(belief, OBJECTIVE, initial="well")
    assert "measured on 1,000 draws" in unwrapped(measured) and "Bonferroni over 24 entries" in unwrapped(exact)
    for rows in ("least", "most"):
        one, other = (robust_values(m, reward="reward", rows=rows).initial for m in (measured, exact))
        assert one == pytest.approx(other, rel=0.15)
    np.testing.assert_allclose(measured.rewards["reward"], exact.rewards["reward"], atol=1e-6)


def test_given_draws_and_a_file(tmp_path):
    rows = np.random.default_rng(0).dirichlet([3.0, 2.0, 5.0], (200, 3, 2))
    belief = bm.posterior_from_draws({"P": rows}, reward=np.ones((3, 2)))
    written = export_interval_mdp(belief, tmp_path / "x.drn", OBJECTIVE)
    again = load_interval_mdp(tmp_path / "x.drn")
    assert robust_values(again, reward="reward").initial == robust_values(written, reward="reward").initial
    assert robust_values(written, reward="reward").initial == pytest.approx(10.0)  # one each step
    with pytest.raises(ValueError, match=r"num_draws is 20, expected at least 38"):
        few = bm.posterior_from_draws({"P": rows[:20]}, reward=np.ones((3, 2)))
        credible_intervals(few, OBJECTIVE)


def test_a_floor_that_cuts_off_too_much_is_refused():
    sparse = dirichlet_rows(np.full((1, 4), 0.05), (1, 1, 4))
    with pytest.raises(ValueError, match=r"floor is 1e-06, and a transition probability .* is smaller"):
        sparse.intervals(0.95, 1e-6)
    drawn = np.random.default_rng(0).dirichlet(np.full(4, 0.05), 200)
    with pytest.raises(ValueError, match=r"floor is 1e-06, and .* of the draws have a smaller probability"):
        _joint_intervals(drawn, 96, 1e-6)


def test_other_arguments_that_are_wrong():
    belief = posterior()
    with pytest.raises(ValueError, match=r"probability is 1.0, expected a number between 0 and 1"):
        credible_intervals(belief, OBJECTIVE, probability=1.0)
    with pytest.raises(ValueError, match=r"floor is 0.5, expected a number from 0 to 0.1"):
        credible_intervals(belief, OBJECTIVE, floor=0.5)
    with pytest.raises(TypeError, match=r"credible_intervals needs a posterior that has sample"):
        credible_intervals(3, OBJECTIVE)  # type: ignore[arg-type] - a wrong one
