# pyright: reportArgumentType=false, reportOptionalSubscript=false
"""The uncertainty Bellman equation: forms, what bounds and what does not, cycles, ties, mixtures, tracing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import UBE
from bayes_mdp.agents.value_uncertainty import moment_matching, ube
from bayes_mdp.inference import mixture
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit, Problem, StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec
from tests.agents.value_problems import (
    absorbing,
    belief,
    chain,
    drawn_values,
    exact_layered,
    layered,
    layered_arrays,
    off_by,
    small,
    solve_ube,
)

FIRST = np.zeros(3, int)


def _zeros(posterior):
    return np.zeros(posterior.space.n_states, int)


@pytest.mark.parametrize("form", ube.FORMS)
@pytest.mark.parametrize("by_outcome", [False, True])
def test_local_uncertainty_is_its_formula(by_outcome, form, x64):
    """v + g^2 q_max^2 k, and without g^2 where rewards depend on the outcome."""
    posterior, discount, q_max = small(by_outcome), 0.8, 7.0
    c = np.asarray(posterior.transition_probs.concentration)
    pbar, total = c / c.sum(-1, keepdims=True), c.sum(-1)
    gini = 1 - (pbar**2).sum(-1)
    factor = {"ratio": 2.0, "count": 2.0, "dirichlet": 1.0, "twice": 2 * gini, "printed": gini}[form] / (total + 1)
    v = np.asarray(posterior.reward_cells.variance())
    expected = (pbar * v).sum(-1) + q_max**2 * factor if by_outcome else v + (discount * q_max) ** 2 * factor
    ours = ube.local_uncertainty(posterior, Discounted(discount), q_max=q_max, form=form)
    np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_default_q_max(x64):
    """max |mean reward| / (1 - g), H times it: over possible outcomes where rewards depend on them, legal pairs."""
    for by_outcome in (False, True):
        posterior = small(by_outcome)
        largest = np.abs(np.asarray(posterior.reward_cells.mean())).max()
        np.testing.assert_allclose(ube.default_q_max(posterior, Discounted(0.8)), largest / 0.2, rtol=1e-12)
        np.testing.assert_allclose(ube.default_q_max(posterior, Episodic(4)), 4 * largest, rtol=1e-12)
    legal = np.array([[True, False], [True, True], [True, True]])
    loc = np.array([[1.0, 50.0], [2.0, -3.0], [0.0, 0.0]])
    masked = belief(np.ones((3, 2, 3)), loc, 1.0, legal=legal)
    np.testing.assert_allclose(ube.default_q_max(masked, Discounted(0.5)), 6.0)
    assert ube.local_uncertainty(masked, Discounted(0.5))[0, 1] == 0
    answer = ube.solve(masked, np.zeros(3, int), Discounted(0.5))
    assert answer.q_variance[0, 1] == 0 and answer.q_mean[0, 1] == -np.inf and float(answer.q_max) == 6


def _two_doors(a, reward):
    """State 0 leads to an absorbing state of reward +-`reward` by an unknown Dirichlet(a, a) row."""
    known = np.stack([np.zeros(3), [0, 1, 0], [0, 0, 1]])[:, None]
    return belief(
        np.array([[[0, a, a]], [[0, 0, 0]], [[0, 0, 0]]]), np.array([[0], [reward], [-reward]]), 0.0, known=known
    )


def test_the_counterexample_of_spec_part_7(x64):
    """The truth is twice the printed term, whatever a; the printed form is marked as no bound."""
    a, reward, discount = 1.5, 2.0, 0.9
    posterior, objective, policy = _two_doors(a, reward), Discounted(0.9), np.zeros(3, int)
    truth = discount**2 * (reward / (1 - discount)) ** 2 / (2 * a + 1)
    answers = {form: ube.solve(posterior, policy, objective, form=form) for form in ube.FORMS}
    np.testing.assert_allclose(answers["printed"].v_variance[0], truth / 2, rtol=1e-10)
    assert answers["printed"].validity.kind == "heuristic"
    assert "interval" in answers["printed"].validity.reason
    for form in ("ratio", "dirichlet", "twice"):
        np.testing.assert_allclose(answers[form].v_variance[0], truth, rtol=1e-10)
        assert answers[form].validity.kind == "upper bound" and "q_max = 20" in answers[form].validity.reason
    wide = ube.solve(posterior, policy, objective, form="printed", q_max=40.0)  # the values lie in [-20, 20]
    assert wide.validity.kind == "upper bound" and wide.v_variance[0] >= truth


@pytest.mark.slow
def test_rewards_by_outcome_14_27(x64, key):
    """Dirichlet(3, 3), m = +-1, V = +-10. Truth 100 / 7; g^2 q_max^2 k + Var_P(P.m) is 11.71."""
    known = np.stack([np.zeros(3), [0, 1, 0], [0, 0, 1]])[:, None]
    loc = np.zeros((3, 1, 3))
    loc[:, 0, 1], loc[:, 0, 2] = 1.0, -1.0
    concentration = np.array([[[0, 3.0, 3.0]], [[0, 0, 0]], [[0, 0, 0]]])
    posterior, objective, policy = (
        belief(concentration, loc, 0.0, known=known, by_outcome=True),
        Discounted(0.9),
        [0, 0, 0],
    )
    answer = ube.solve(posterior, np.array(policy), objective)
    np.testing.assert_allclose(answer.v_variance[0], 100 / 7, rtol=1e-10)  # 14.29
    assert float(answer.q_max) == pytest.approx(10) and answer.validity.kind == "upper bound"
    q, _ = drawn_values(key, posterior, np.array(policy), objective, 20_000)
    assert off_by(q[:, 0], 100 / 7) < 6  # 14.27 by other draws; chance 1e-8, catches an error of 5 %
    broken = 0.81 * 100 / 7 + 1 / 7
    assert broken == pytest.approx(11.714, abs=1e-3)
    assert off_by(q[:, 0], broken) > 6


def test_the_truncated_chain_of_ube_figure_1(x64):
    """sigma^2 / n (1 - g^(2D)): every reward has the variance sigma^2 (1 - g^2) / n of a flat prior and n rewards."""
    sigma, discount, n = 2.0, 0.9, 5
    for depth in (2, 6):
        posterior = chain(depth, 0.0, sigma**2 * (1 - discount**2) / n)
        answer = solve_ube(posterior, _zeros(posterior), Discounted(discount))
        np.testing.assert_allclose(answer.v_variance[0], sigma**2 / n * (1 - discount ** (2 * depth)), rtol=1e-10)


def test_a_flat_prior_gives_the_noise_over_n(x64):
    """The variances of the test above from data: Normal(0, 1e6^2) prior, n rewards of known noise."""
    depth, sigma, discount, n = 2, 2.0, 0.9, 5
    noise = sigma * np.sqrt(1 - discount**2)
    rows = absorbing(np.eye(depth + 1, k=1), depth)[:, None]

    def prior(space):
        with space.plates():
            mean = numpyro.sample("reward", dist.Normal(0.0, 1e6))
        return MDPSpec(rows, dist.Normal(mean, noise))

    state = np.repeat(np.arange(depth), n)
    reward = np.random.default_rng(0).normal(size=depth * n)
    data = Transitions(state, np.zeros_like(state), reward, state + 1)
    posterior = bm.infer(jax.random.key(0), prior, data, space=StateActionSpace(depth + 1, 1))
    local = ube.local_uncertainty(posterior, Discounted(discount))
    # Beyond the chain the absorbing state's own reward is unknown and unseen: only what the chain adds is compared.
    chained = np.asarray(local)[:depth, 0] @ discount ** (2 * np.arange(depth))
    np.testing.assert_allclose(chained, sigma**2 / n * (1 - discount ** (2 * depth)), rtol=1e-6)


@pytest.mark.slow
def test_a_collapsed_self_loop_is_no_chain(x64, key):
    """Truth / UBE = (1 + g) / (1 - g) on a known self-loop with one unknown reward: 19 at g = .9."""
    discount, variance = 0.9, 0.5
    unknown = np.array([[variance], [0.0], [0.0]])
    posterior = belief(np.zeros((3, 1, 3)), np.zeros((3, 1)), unknown, known=np.eye(3)[:, None])
    answer = ube.solve(posterior, FIRST, Discounted(discount))
    truth = variance / (1 - discount) ** 2
    np.testing.assert_allclose(truth / answer.v_variance[0], 19.0, rtol=1e-10)
    assert answer.validity.kind == "heuristic" and "0 -> 0" in answer.validity.reason
    _, v = drawn_values(key, posterior, FIRST, Discounted(discount), 20_000)
    assert off_by(v[:, 0], truth) < 6


def test_bounds_on_ten_thousand_acyclic_beliefs(x64):
    """The forms that are bounds are never below the truth, by the default q_max and by the least that is allowed.

    The rewards are normal-gamma, so unbounded. The broken twin, half the least q_max, falls below somewhere.
    """
    number, discount = 10_000, 0.9
    concentration, loc, variance, probs = layered_arrays(np.random.default_rng(0), number)
    _, truth, v, v_truth = exact_layered(concentration, loc, variance, probs, discount)
    least = np.abs(v).max(-1)
    template = layered(concentration[0], loc[0], variance[0])
    where = lambda p: (p.transition_probs.prior, p.reward_cells.prior.loc, p.reward_cells.prior.rate)  # noqa: E731
    unknown = slice(None), slice(0, -1)
    leaves = tuple(x[unknown].reshape(number, -1) for x in (loc, 10 * variance))
    prior = concentration[unknown].reshape(number, -1, concentration.shape[-1])
    assert all(np.allclose(x[0], y) for x, y in zip((prior, *leaves), where(template), strict=True))

    def solved(prior, loc, rate, probs, q_max, form):
        answer = ube.solve(
            eqx.tree_at(where, template, (prior, loc, rate)), probs, Discounted(discount), q_max=q_max, form=form
        )
        return answer.q_variance, answer.v_variance

    batched = jax.jit(jax.vmap(solved, (0, 0, 0, 0, 0, None)), static_argnums=5)
    for form in ("dirichlet", "twice"):  # "ratio" is never below "dirichlet"
        u, u_v = batched(prior, *leaves, probs, least, form)
        assert np.all(np.asarray(u) >= truth * (1 - 1e-9)) and np.all(np.asarray(u_v) >= v_truth * (1 - 1e-9))
    default = np.asarray(
        batched(prior, *leaves, probs, np.abs(loc[:, :-1]).max((1, 2)) / (1 - discount), "dirichlet")[0]
    )
    assert np.all(default >= truth * (1 - 1e-9))
    broken, _ = batched(prior, *leaves, probs, least / 2, "dirichlet")
    assert np.mean(np.any(np.asarray(broken) < truth * (1 - 1e-9), axis=(1, 2))) > 0


def test_the_operator_contracts_by_the_square_of_the_discount_and_is_monotone(x64):
    """The answer is a fixed point; sup-norm gaps shrink by g^2 or more; larger local terms give larger answers."""
    posterior, discount, rng = small(), 0.9, np.random.default_rng(1)
    objective, policy = Discounted(discount), rng.dirichlet(np.ones(2), 3)
    low, high = (solve_ube(posterior, policy, objective, q_max=q) for q in (60.0, 61.0))
    rows = np.asarray(posterior.mean_mdp().transition_probs)

    def operator(u, local):
        return np.asarray(local) + discount**2 * rows @ (policy * u).sum(-1)

    for answer in (low, high):
        np.testing.assert_allclose(operator(np.asarray(answer.q_variance), answer.local), answer.q_variance, rtol=1e-9)
        np.testing.assert_allclose((policy * answer.q_variance).sum(-1), answer.v_variance, rtol=1e-9)
    u, w = rng.normal(size=(2, 50, 3, 2))
    for x, y in zip(u, w, strict=True):
        shrunk = np.abs(operator(x, low.local) - operator(y, low.local)).max()
        assert shrunk <= discount**2 * np.abs(x - y).max() * (1 + 1e-12)
        assert np.all(operator(np.maximum(x, y), low.local) >= operator(x, low.local))
    rise = np.asarray(high.local - low.local)
    assert np.all(rise > 0) and np.all(np.asarray(high.q_variance) > np.asarray(low.q_variance))
    assert np.asarray(high.q_variance - low.q_variance).max() <= rise.max() / (1 - discount**2) * (1 + 1e-9)


def test_q_max_must_bound_the_values(x64):
    """The state is named, as the space names it; with rewards by outcome the pair is; a traced one is not looked at."""
    posterior = belief(np.ones((3, 1, 3)), np.array([[2.0], [3.0], [1.0]]), 1.0)
    space = StateActionSpace(3, 1, states=("low", "high", "last"))
    posterior = eqx.tree_at(lambda p: p.space, posterior, space)
    objective, policy = Discounted(0.5), np.zeros(3, int)
    with pytest.raises(ValueError, match=r"q_max is 4, expected at least 5, .*\|value\|: that of state 'high'"):
        ube.solve(posterior, policy, objective, q_max=4.0)
    assert ube.solve(posterior, policy, objective, q_max=5.0).q_max == 5
    by_outcome = belief(
        np.ones((3, 1, 3)), np.array([[[1.0] * 3], [[0.0, 6.0, 0.0]], [[2.0] * 3]]), 1.0, by_outcome=True
    )
    with pytest.raises(ValueError, match=r"reward \+ discount value\|: that of state 1, action 0"):
        ube.solve(by_outcome, policy, objective, q_max=5.0)
    steps = belief(np.ones((2, 3, 1, 3)), np.array([[[1.0], [3.0], [0.0]]] * 2), 1.0, horizon=2)
    with pytest.raises(ValueError, match="that of state 1, step 0"):
        ube.solve(steps, policy, Episodic(2), q_max=4.0)
    traced = jax.jit(lambda q_max: ube.solve(steps, policy, Episodic(2), q_max=q_max))(1.0)
    assert traced.validity.kind == "heuristic" and "not compared" in traced.validity.reason


class Own:
    """A user's own belief, no pytree, that changes in place: one unknown row of two outcomes, known values."""

    independent_rows, rewards_by_outcome, reward = True, False, 1.0

    def mean_mdp(self):
        rows = np.stack([[0, 0.5, 0.5], [0, 1, 0], [0, 0, 1]])[:, None]
        return MDP(rows, self.reward * np.array([[0.0], [1.0], [-1.0]]))

    def expected_reward_variance(self):
        return jnp.zeros((3, 1))

    reward_variance = expected_reward_variance

    def variance_factor(self, form):
        del form
        return jnp.array([[0.25], [0.0], [0.0]])

    def bellman_variance(self, values, discount):
        mean = self.mean_mdp().expected_next(values)
        return self.variance_factor("") * discount**2 * (self.mean_mdp().expected_next(values**2) - mean**2)

    transition_variance = bellman_variance

    def row_bound(self, values, discount):
        return jnp.max(jnp.abs(values)) * discount * jnp.ones((3, 1))


def test_a_belief_with_the_abilities_alone(x64):
    """q_max^2 g^2 / 4 in state 0, and moment matching the same; a change in place is taken into account."""
    own, objective = Own(), Discounted(0.5)
    for reward in (1.0, 3.0):
        own.reward = reward
        for answer in (ube.solve(own, FIRST, objective), moment_matching.value_variance(own, FIRST, objective)):
            np.testing.assert_allclose(answer.v_variance, [(2 * reward) ** 2 / 16, 0, 0], rtol=1e-9)
            assert answer.validity.kind == "upper bound"


def test_bad_input(key):
    """One sentence each."""
    posterior, policy, objective = small(), np.zeros(3, int), Discounted(0.9)
    for q_max, words in ((-1.0, "zero or greater"), (np.nan, "finite"), (np.ones(2), "one number")):
        with pytest.raises(ValueError, match=f"q_max .*{words}"):
            ube.solve(posterior, policy, objective, q_max=q_max)
        with pytest.raises(ValueError, match=f"q_max .*{words}"):
            UBE(q_max=q_max)
    with pytest.raises(TypeError, match="q_max is '20', expected a finite number, zero or greater"):
        ube.solve(posterior, policy, objective, q_max="20")
    with pytest.raises(TypeError, match=r"objective is 0.9, expected Discounted, Episodic or FirstExit"):
        ube.local_uncertainty(posterior, 0.9)
    with pytest.raises(ValueError, match="form is 'other', expected one of ratio"):
        ube.local_uncertainty(posterior, objective, form="other")
    with pytest.raises(ValueError, match=r"q_max is None, expected a bound on \|values\| under FirstExit"):
        ube.local_uncertainty(posterior, FirstExit())
    with pytest.raises(ValueError, match="objective is AverageReward, expected Discounted, Episodic or FirstExit"):
        ube.solve(posterior, policy, AverageReward(), q_max=1.0)
    with pytest.raises(ValueError, match="policy has shape"):
        ube.solve(posterior, np.zeros(4, int), objective)
    with pytest.raises(TypeError, match=r"ube.solve needs a posterior that has mean_mdp"):
        ube.solve(object(), policy, objective)
    for scale in (-1.0, np.inf):
        with pytest.raises(ValueError, match="scale is"):
            UBE(scale=scale)
    with pytest.raises(ValueError, match="noise is 'loud', expected one of per_plan, per_step"):
        UBE(noise="loud")
    with pytest.raises(ValueError, match="objective is FirstExit, expected Discounted or Episodic"):
        UBE().init(key, Problem(posterior.space, FirstExit()))


def test_an_infinite_reward_variance_is_refused(key, x64):
    """By the posterior's own sentence, in a component of a mixture too."""
    prior = bm.models.dirichlet_normal_gamma(reward_concentration=1.0)
    space, policy = StateActionSpace(3, 1), np.zeros(3, int)
    posterior = bm.infer(key, prior, None, space=space)
    sentence = r"posterior.reward.concentration\[0, 0\] is 1.0, expected a number greater than 1"
    problem = Problem(space, Discounted(0.9))
    for belief_ in (posterior, mixture([posterior, posterior], weights=[1, 1])):
        with pytest.raises(ValueError, match=sentence):
            ube.solve(belief_, policy, Discounted(0.9))
        with pytest.raises(ValueError, match=sentence):
            UBE().plan(key, problem, UBE().init(key, problem), belief_)


def test_first_exit_takes_a_q_max(x64):
    """A chain that ends: local terms add up, undiscounted."""
    space = StateActionSpace(2, 1, ends=True)
    rows = np.array([[[0, 1.0, 0]], [[0, 0, 1.0]]])

    def prior(space):
        with space.plates():
            mean = numpyro.sample("reward", dist.Normal(0.0, 3.0))
        return MDPSpec(rows, dist.Normal(mean, 1.0))

    posterior = bm.infer(jax.random.key(0), prior, None, space=space)
    answer = solve_ube(posterior, np.zeros(2, int), FirstExit(), q_max=1.0)
    np.testing.assert_allclose(answer.v_variance, [18.0, 9.0], rtol=1e-6)


def test_traced_over_discounts_and_posteriors(key):
    """jit and vmap give what a loop gives."""
    posterior, policy = small(), np.zeros(3, int)
    discounts = jnp.array([0.5, 0.8, 0.9])
    together = jax.jit(jax.vmap(lambda g: ube.solve(posterior, policy, Discounted(g)).q_variance))(discounts)
    for one, discount in zip(together, discounts, strict=True):
        np.testing.assert_allclose(one, solve_ube(posterior, policy, Discounted(float(discount))).q_variance, rtol=2e-5)
    stacked = jax.tree.map(lambda x: np.stack([x, x]), posterior)
    both = jax.jit(jax.vmap(lambda p: ube.solve(p, policy, Discounted(0.8)).q_variance))(stacked)
    np.testing.assert_allclose(both[1], together[1], rtol=2e-5)
