# pyright: reportArgumentType=false
"""The variance of the return in two parts, against simulated returns in numpy."""

import jax
import numpy as np
import pytest

from bayes_mdp.agents.value_uncertainty.moment_matching import return_variance
from bayes_mdp.decisions.return_variance_split import draw_law, split_return_variance
from bayes_mdp.inference import mixture
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.normal import NormalGammaBelief
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, StateActionSpace
from bayes_mdp.numerics.array_forms import to_float64
from tests.inference.numpy_draws import NUMBER, draw_rewards, draw_rows
from tests.inference.policy_problems import posterior as only_rows

pytestmark = pytest.mark.numerics

LIMIT = 6.5
START = np.array([0.6, 0.4, 0.0])
POLICY = np.array([[0.3, 0.7], [1.0, 0.0], [0.5, 0.5]])


def simulate(posterior, policy, horizon, discount):
    """NUMBER returns, each in an MDP of its own, drawn and simulated by numpy alone."""
    rng, space = np.random.default_rng(3), posterior.space
    probs, (mean, noise) = draw_rows(posterior.transition_probs, rng), draw_rewards(posterior.reward_cells, rng)
    number, every = len(probs), np.arange(len(probs))
    state = rng.choice(3, number, p=START)
    running, total = np.ones(number, bool), np.zeros(number)
    for h in range(horizon):
        action = (rng.uniform(size=number)[:, None] > policy[state].cumsum(-1)[:, :-1]).sum(-1)
        cell = (every, state, action) if space.horizon is None else (every, np.full(number, h), state, action)
        outcome = (rng.uniform(size=number)[:, None] > probs[cell].cumsum(-1)[:, :-1]).sum(-1)
        where = (*cell, outcome) if mean.ndim == probs.ndim else cell
        reward = mean[where] + np.sqrt(noise[where]) * rng.choice([-1.0, 1.0], number)
        total += np.where(running, discount**h * reward, 0.0)
        running &= outcome < space.n_states
        state = np.where(outcome < space.n_states, outcome, state)
    return total


def z(answer, returns):
    """Difference of both answers over their joint error."""
    squares = (returns - returns.mean()) ** 2
    return abs(squares.mean() - answer.total) / np.hypot(squares.std() / np.sqrt(len(returns)), answer.total_error)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "horizon"),
    [
        pytest.param("outcome", None, marks=pytest.mark.slow),
        ("tied", 4),
        pytest.param("support", 2, marks=pytest.mark.slow),
        pytest.param("poisson", 3, marks=pytest.mark.slow),
    ],
)
def test_simulated_returns(cases, key, name, horizon):
    """Cycles, ties, ends, known rows and rewards, mixed policies. False alarm: |z| > 6.5, below 1e-9. Catches 8 %."""
    case = cases(name, number=10)
    posterior = case.prior.update(case.data)
    policy = POLICY if case.space.legal is None else np.array([[0.3, 0.7], [1.0, 0.0], [0.0, 1.0]])
    objective = Discounted(0.6) if horizon is None else Episodic(horizon)
    answer = split_return_variance(key, posterior, policy, objective, initial=START, num_draws=NUMBER // 2)
    returns = simulate(posterior, policy, horizon or 30, 0.6 if horizon is None else 1.0)
    assert z(answer, returns) < LIMIT
    assert abs(answer.mean - returns.mean()) < LIMIT * returns.std() / np.sqrt(NUMBER / 2)
    assert answer.total == pytest.approx(answer.epistemic + answer.aleatoric, rel=1e-12)
    for part in (answer.epistemic, answer.aleatoric):
        assert abs(part - answer.total) > 4 * answer.total_error, "either part alone would be caught"


@pytest.mark.slow
def test_the_epistemic_part_is_the_variance_of_the_value(cases, key):
    """The values of the same draws, by linear systems in numpy; an episode can end."""
    posterior = to_float64(cases("outcome").prior)
    answer = split_return_variance(key, posterior, POLICY, Discounted(0.9), initial=START, num_draws=200)
    with jax.enable_x64(True):
        draws = jax.jit(jax.vmap(lambda k: draw_law(k, posterior)))(jax.random.split(key, 200))
    rows, mean, _ = map(np.asarray, draws)
    chain = (POLICY[..., None] * rows[..., :3]).sum(2)
    reward = (POLICY[..., None] * rows * mean).sum((2, 3))
    values = np.linalg.solve(np.eye(3) - 0.9 * chain, reward[..., None])[..., 0] @ START
    np.testing.assert_allclose([answer.mean, answer.epistemic], [values.mean(), values.var(ddof=1)], rtol=1e-9)


@pytest.mark.slow
def test_a_row_for_every_step_is_the_closed_form(cases, key):
    """`return_variance`, another route: exact where no unknown pair is met again. |z| <= 6: below 1e-8. Catches 6 %."""
    case = cases("support", number=10)
    posterior = case.prior.update(case.data)
    answer = split_return_variance(key, posterior, POLICY, Episodic(2), initial=START, num_draws=NUMBER // 2)
    closed = jax.jit(lambda p: return_variance(p, POLICY, Episodic(2)))(posterior)
    mean, total = np.asarray(closed.v_mean)[0], np.asarray(closed.v_total)[0]
    expected = START @ total + START @ (mean - START @ mean) ** 2
    assert abs(answer.total - expected) < 6 * answer.total_error < 0.06 * expected
    np.testing.assert_allclose(answer.mean, START @ mean, rtol=0.02)


def _one_step(reward):
    """One state, one action, an end after one step."""
    rows = dirichlet_rows(np.array([[0.0, 1.0]]), (1, 1, 2))
    return conjugate_posterior(rows, reward, StateActionSpace(1, 1, ends=True))


def _normal_gamma(loc, concentration=4.0):
    return reward_cells(NormalGammaBelief(*(np.array([x]) for x in (loc, 2.0, concentration, 3.0))), (1, 1))


@pytest.mark.slow
def test_one_reward_in_closed_form(key):
    """Epistemic rate / (pseudo_count (concentration - 1)) = 1/2, aleatoric rate / (concentration - 1) = 1."""
    answer = split_return_variance(key, _one_step(_normal_gamma(0.0)), np.zeros(1, int), Discounted(0.9))
    assert abs(answer.epistemic - 0.5) < 6 * answer.epistemic_error < 0.3
    assert abs(answer.aleatoric - 1.0) < 6 * answer.aleatoric_error < 0.3
    assert "33%: more data would remove it" in str(answer).replace("34%", "33%").replace("32%", "33%")
    assert "start: uniform over the 1 state" in str(answer)


@pytest.mark.slow
def test_a_mixture_adds_the_variance_between_its_components(key):
    """Two components, 4 apart, weights 1/4 and 3/4: 3 more."""
    belief = mixture([_one_step(_normal_gamma(loc)) for loc in (0.0, 4.0)], weights=[1, 3])
    answer = split_return_variance(key, belief, np.zeros(1, int), Discounted(0.9), num_draws=4000)
    assert abs(answer.epistemic - 3.5) < 6 * answer.epistemic_error < 1.0
    assert abs(answer.aleatoric - 1.0) < 6 * answer.aleatoric_error < 0.3


def test_known_worlds_leave_chance_alone(key):
    """Known row and reward; half of the starts are worth nothing more than the other half: a uniform start."""
    rows = dirichlet_rows(np.array([[0.0, 0.0, 1.0]] * 2), (2, 1, 3))
    belief = conjugate_posterior(rows, known_rewards([[1.0], [3.0]]), StateActionSpace(2, 1, ends=True))
    answer = split_return_variance(key, belief, np.zeros(2, int), Discounted(0.9), num_draws=2)
    np.testing.assert_allclose([answer.total, answer.epistemic, answer.aleatoric], [1.0, 0.0, 1.0], atol=1e-12)


def test_what_has_no_return_or_no_law_is_refused(key):
    belief = _one_step(_normal_gamma(0.0))
    policy = np.zeros(1, int)
    with pytest.raises(ValueError, match="objective is AverageReward, expected Discounted, Episodic or FirstExit"):
        split_return_variance(key, belief, policy, AverageReward())
    with pytest.raises(TypeError, match="expected one in closed form: draws have no noise of rewards"):
        split_return_variance(key, only_rows(), policy, Discounted(0.9))
    with pytest.raises(ValueError, match=r"concentration\[0, 0\] is 1.0, expected a number greater than 1"):
        split_return_variance(key, _one_step(_normal_gamma(0.0, 1.0)), policy, Discounted(0.9))
    with pytest.raises(ValueError, match=r"policy: policy has shape \(2,\)"):
        split_return_variance(key, belief, np.zeros(2, int), Discounted(0.9))
    with pytest.raises(ValueError, match="num_draws is 1"):
        split_return_variance(key, belief, policy, Discounted(0.9), num_draws=1)


def test_a_discounted_episode_is_one_of_smaller_rewards(key):
    """With rewards discount^t r, and none on the way, the return is the same in every draw: so are both variances."""
    rng = np.random.default_rng(0)
    rows = dirichlet_rows(rng.uniform(0.5, 2.0, (24, 3)), (4, 3, 2, 3), row=np.arange(24).reshape(4, 3, 2))
    reward = np.broadcast_to(rng.normal(size=(3, 2)), (4, 3, 2))
    smaller = reward * (0.7 ** np.arange(4))[:, None, None]
    space, options = StateActionSpace(3, 2, horizon=4), {"initial": START, "num_draws": 50}
    found, twin, plain = (
        split_return_variance(key, conjugate_posterior(rows, known_rewards(pay), space), POLICY, objective, **options)
        for pay, objective in ((reward, Episodic(4, 0.7)), (smaller, Episodic(4)), (reward, Episodic(4)))
    )
    for name in ("mean", "epistemic", "aleatoric", "total"):
        assert getattr(found, name) == pytest.approx(getattr(twin, name), rel=1e-5)
        assert getattr(found, name) != pytest.approx(getattr(plain, name), rel=1e-2)
    assert str(found).startswith("Variance of the return, episodes of 4 steps, discount 0.7")


def test_a_discounted_episode_by_all_of_its_paths(key):
    """A known MDP with one row for all steps: every path, its probability and its return, in numpy."""
    rng = np.random.default_rng(1)
    known, reward = rng.dirichlet(np.ones(3), (3, 2)), rng.normal(size=(3, 2))
    rows = dirichlet_rows(np.ones((1, 3)), (3, 2, 3), row=np.full((3, 2), -1), known=known)
    belief = conjugate_posterior(rows, known_rewards(reward), StateActionSpace(3, 2))
    found = split_return_variance(key, belief, POLICY, Episodic(3, 0.5), initial=START, num_draws=2)
    first, second = 0.0, 0.0
    for s, a, s2, a2, s3, a3 in np.ndindex(3, 2, 3, 2, 3, 2):
        prob = START[s] * POLICY[s, a] * known[s, a, s2] * POLICY[s2, a2] * known[s2, a2, s3] * POLICY[s3, a3]
        total = reward[s, a] + 0.5 * reward[s2, a2] + 0.25 * reward[s3, a3]
        first, second = first + prob * total, second + prob * total**2
    assert found.mean == pytest.approx(first, rel=1e-5)
    assert found.total == pytest.approx(second - first**2, rel=1e-5) and found.epistemic == pytest.approx(0, abs=1e-10)


def test_the_first_state_is_chance(key):
    """Two states that pay 1 and 3 once, for certain: the start alone is random."""
    rows = dirichlet_rows(np.ones((2, 1)), (2, 1, 2), column=np.array([[[0, -1]], [[-1, 0]]]))
    belief = conjugate_posterior(rows, known_rewards(np.array([[1.0], [3.0]])), StateActionSpace(2, 1))
    answer = split_return_variance(key, belief, np.zeros(2, int), Episodic(1), initial=[0.25, 0.75], num_draws=2)
    assert (answer.mean, answer.aleatoric, answer.epistemic) == pytest.approx((2.5, 0.75, 0.0))
