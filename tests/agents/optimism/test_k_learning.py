"""K-learning: the recursion, what it bounds, the policy, the agent."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import Boltzmann, KLearning
from bayes_mdp.agents.optimism.k_learning import k_values, schedule, value
from bayes_mdp.agents.optimism.k_model import Bonus, k_model
from bayes_mdp.envs import deep_sea
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.draws.weighted_samples import posterior_samples
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.normal import NormalGammaBelief
from bayes_mdp.mdp import MDP, Discounted, Episodic, Problem, StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec
from tests.agents.believed import Case, layered
from tests.agents.k_reference import Plain

Z = 6.0  # one-sided false-alarm rate 1e-9
LEGAL = np.array([[True, True], [True, False], [True, True]])


def history(shape, number=40, legal=None):
    """Random transitions of a space [H S A]."""
    rng = np.random.default_rng(5)
    step, state, action, following = (rng.integers(0, n, number) for n in (*shape, shape[1]))
    action = action if legal is None else np.where(legal[state, action], action, 0)
    return Transitions(state, action, rng.normal(size=number), following, step=step)


def found_and_facts(posterior, data, tau, bonus, span, noise, horizon=None):
    """K after data, and the statistics of the posterior. Numbers are traced: another one compiles nothing."""
    tau, noise, span = (x if x is None else jnp.asarray(float(x)) for x in (tau, noise, span))
    return _found_and_facts(posterior, data, tau, bonus, span, noise, horizon)


@eqx.filter_jit
def _found_and_facts(posterior, data, tau, bonus, span, noise, horizon):
    posterior = posterior if data is None else posterior.update(data)
    k = k_values(posterior, tau, bonus=bonus, span=span, noise=noise, horizon=horizon)
    facts = posterior.mean_mdp(), posterior.visit_counts(), posterior.reward_variance()
    return k, (*facts, posterior.transition_probs.concentration)


def plain(facts, *, bonus, span, noise, horizon):
    """The same problem in numpy."""
    mean, visits, variance, concentration = jax.tree.map(np.asarray, facts)
    unknown = (concentration > 0).sum(-1) > 1
    later = (np.arange(horizon - 1, -1, -1.0) if span is None else np.full(horizon, span))[:, None, None]
    n = np.maximum(visits, 1)
    numerator = (variance if bonus == "posterior" else noise**2 / n) + later**2 * unknown / n
    full = (horizon, *visits.shape[-2:])
    legal = np.ones(full[1:], bool) if mean.legal is None else mean.legal
    rows = np.broadcast_to(mean.transition_probs, (*full, full[1]))
    reward = np.broadcast_to(mean.reward, full)
    return Plain(reward, np.broadcast_to(0.5 * numerator, full), rows, np.eye(full[1])[0], legal)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("case", "bonus", "span"),
    [
        pytest.param(layered(1, by_outcome=True, ends=True), "posterior", 1.5, marks=pytest.mark.slow),
        pytest.param(layered(2)._replace(legal=LEGAL), "posterior", None, marks=pytest.mark.slow),
        (layered(2)._replace(legal=LEGAL), "paper", None),
    ],
)
def test_the_values_are_the_recursion(case, bonus, span):
    data = history((4, 3, 2), legal=case.legal)
    found, facts = found_and_facts(case.posterior, data, 0.4, bonus, span, 0.7)
    right = plain(facts, bonus=bonus, span=span, noise=0.7, horizon=4)
    np.testing.assert_allclose(found, right.k(0.4), rtol=1e-10)
    assert np.all(np.isneginf(found) == ~np.broadcast_to(right.legal, found.shape))


@pytest.mark.usefixtures("x64")
def test_rows_shared_by_all_steps_and_known_rows():
    """A posterior without a step axis; the row of state 0, action 0 is known: no span there, whatever `span` is."""
    rng = np.random.default_rng(0)
    c = rng.uniform(0.5, 2.0, (3, 2, 3))
    c[0, 0] = [0.0, 1.0, 0.0]
    posterior = Case(c, rng.normal(size=(3, 2)), np.full((3, 2), 0.3), np.full((3, 2), 0.5)).posterior
    wide, facts = found_and_facts(posterior, None, 0.4, "paper", 3.0, 1.0, horizon=5)
    none, _ = found_and_facts(posterior, None, 0.4, "paper", 0.0, 1.0, horizon=5)
    np.testing.assert_allclose(wide, plain(facts, bonus="paper", span=3.0, noise=1.0, horizon=5).k(0.4), rtol=1e-10)
    np.testing.assert_allclose(wide[-1, 0, 0], none[-1, 0, 0], rtol=1e-14)
    np.testing.assert_allclose(wide[-1, 0, 1] - none[-1, 0, 1], 9 / 0.8, rtol=1e-12)


def test_draws_are_planned_with_too():
    """They have no variance factor of a Dirichlet. A row on which they agree is known: no span there."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(3), (50, 3, 2)).astype(np.float32)
    rows[:, 0, 1] = [0.25, 0.25, 0.5]
    visits = np.array([[0.0, 5.0], [1.0, 2.0], [4.0, 10.0]])
    belief = posterior_samples(MDP(rows, np.zeros((50, 3, 2), np.float32)), visits=visits)
    numerator = jax.jit(lambda b: k_model(b, Bonus(span=2.0, noise=0.5), horizon=4).numerator)(belief)
    unknown = np.array([[1, 0], [1, 1], [1, 1]])
    right = 0.5 * (0.25 + 4.0 * unknown) / np.maximum(visits, 1)
    np.testing.assert_allclose(numerator, np.broadcast_to(right, (4, 3, 2)), rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_without_uncertainty_it_is_the_bellman_operator():
    """n to infinity, tau to 0: the optimal q of the mean MDP. The last step has no tau log A at any tau."""
    case = layered(2)._replace(legal=LEGAL)
    index = [x.ravel() for x in np.indices((4, 3, 2, 3))]
    keep = LEGAL[index[1], index[2]]
    step, state, action, following = (np.tile(x[keep], 2) for x in index)
    data = Transitions(state, action, np.random.default_rng(0).normal(size=len(step)), following, step=step)
    posterior = jax.jit(lambda p, d: p.update(d, 1e14))(case.posterior, data)
    k, facts = found_and_facts(posterior, history((4, 3, 2), legal=LEGAL), 1e-6, "paper", None, 0.7)
    best = plain(facts, bonus="paper", span=None, noise=0.7, horizon=4).bellman()
    np.testing.assert_allclose(k, best, atol=1e-5)
    warm, _ = found_and_facts(posterior, history((4, 3, 2), legal=LEGAL), 1.0, "paper", None, 0.7)
    np.testing.assert_allclose(warm[-1], best[-1], atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_the_softmax_is_the_variational_maximum_and_the_policy_attains_it():
    """Identity (8), at 1000 random policies and at the policy (9)."""
    rng = np.random.default_rng(0)
    k, tau = rng.normal(size=(2, 3, 4)), 0.3
    k[:, 1, 2] = -np.inf
    found = Boltzmann(k, tau)
    top = value(k, tau)
    probs = np.asarray(probabilities(found))
    np.testing.assert_allclose(free_energy(probs, k, tau), top, rtol=1e-12)
    others = rng.dirichlet(np.ones(4), size=(1000, 2, 3)) * np.isfinite(k)
    others = others / others.sum(-1, keepdims=True)
    assert np.all(free_energy(others, k, tau) <= top + 1e-12)


@jax.jit
def probabilities(found):
    """[H S A]."""
    step, state, action = jnp.indices(found.q.shape)
    return jnp.exp(jnp.vectorize(found.log_prob)(state, action, step))


def free_energy(probs, k, tau):
    """sum pi K + tau H(pi)."""
    terms = np.where(
        probs > 0, probs * (np.where(probs > 0, k, 0.0) - tau * np.log(np.where(probs > 0, probs, 1.0))), 0
    )
    return terms.sum(-1)


def bernoulli_world(number=30):
    """A belief that fits assumption 1 (2 steps, states, actions) before data, data, and optimal q of 40 000 draws."""
    space, cells = StateActionSpace(2, 2, horizon=2), (2, 2, 2)
    belief = BetaBelief(jnp.ones(8), jnp.ones(8))
    posterior = conjugate_posterior(dirichlet_rows(np.ones((8, 2)), (*cells, 2)), reward_cells(belief, cells), space)
    rng = np.random.default_rng(1)
    step, state, action, following = (rng.integers(0, 2, number) for _ in range(4))
    rewards = (rng.random(number) < 0.5).astype(float)
    data = Transitions(state, action, rewards, following, step=step)
    wins, tries, counts = np.zeros((2, 2, 2)), np.zeros((2, 2, 2)), np.ones((2, 2, 2, 2))
    np.add.at(wins, (step, state, action), rewards)
    np.add.at(tries, (step, state, action), 1.0)
    np.add.at(counts, (step, state, action, following), 1.0)
    draws = 40_000
    reward = rng.beta(1 + wins, 1 + tries - wins, size=(draws, 2, 2, 2))
    gamma = rng.standard_gamma(counts, size=(draws, 2, 2, 2, 2))
    rows = gamma / gamma.sum(-1, keepdims=True)
    last = reward[:, 1]
    first = reward[:, 0] + np.einsum("nsaz,nz->nsa", rows[:, 0], last.max(-1))
    return posterior, data, np.stack([first, last], 1)


@pytest.mark.usefixtures("x64")
def test_k_bounds_the_certainty_equivalents_and_the_expected_maximum():
    """(7) and (13) against draws; with half of the bonus (7) fails.

    24 one-sided comparisons at 6 standard errors: false alarm below 3e-8.
    """
    posterior, data, q = bernoulli_world()
    best, error = q.max(-1).mean(0), Z * q.max(-1).std(0) / np.sqrt(len(q))
    for tau in (0.1, 0.5):
        k, facts = found_and_facts(posterior, data, tau, "paper", None, 0.5)
        utility = np.exp(q / tau)
        mean, slack = utility.mean(0), Z * utility.std(0) / np.sqrt(len(q))
        assert np.all(np.asarray(k) >= tau * np.log(mean + slack))
        assert np.all(tau * np.log(utility.mean(0).sum(-1)) >= best - error)  # the middle of (13)
        assert np.all(value(np.asarray(k), tau) >= best + error)
        right = plain(facts, bonus="paper", span=None, noise=0.5, horizon=2)
        half = right._replace(numerator=0.5 * right.numerator).k(tau)
        assert np.any(half < tau * np.log(mean - slack))


@pytest.mark.slow
def test_listed_counts_build_no_rows():
    """The temporary memory of a plan stays below half of the rows [H S A S]."""
    size = 24
    space, cells = StateActionSpace(size, 2, horizon=size), (size, size, 2)
    rewards = NormalGammaBelief(*np.broadcast_to([[0.0], [1.0], [2.0], [1.0]], (4, 2 * size**2)))
    rows = dirichlet_rows(np.ones((2 * size**2, size)), (*cells, size))
    belief: Any = conjugate_posterior(rows, reward_cells(rewards, cells), space)
    mdp: Any = deep_sea(size).mdp
    arrays = jax.tree.map(lambda x: np.asarray(x, np.float32) if x.dtype.kind == "f" else x,
                          belief.listed(np.asarray(mdp.successor)))  # fmt: skip
    task = Problem(space, Episodic(size), jnp.eye(size)[0])
    agent = KLearning(bonus="posterior")
    state = agent.init(jax.random.key(0), task)
    plan = jax.jit(lambda belief: agent.plan(jax.random.key(0), task, state, belief)[0].q)
    memory: Any = plan.lower(arrays).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 0.5 * 4 * size**3 * 2


@jax.jit
def plan(agent, task, state, belief):
    """A plan."""
    return agent.plan(jax.random.key(0), task, state, belief)


def test_a_plan_is_the_temperature_and_its_values():
    """Optimal: Brent's, also from a warm start; 0 and greedy without bonus. Schedule: by the number of the plan."""
    case = layered(0)
    task = Problem(StateActionSpace(3, 2, horizon=4), Episodic(4), jnp.eye(3)[0])
    rows = case.concentration / case.concentration.sum(-1, keepdims=True)
    right = Plain(case.loc, np.full((4, 3, 2), 0.5 * (0.7**2 + 1.0)), rows, np.eye(3)[0], np.ones((3, 2), bool))
    agent = KLearning(span=1.0, noise=0.7)
    state, tau = agent.init(jax.random.key(0), task), right.brent()
    for number in (1, 2):
        shown, state = plan(agent, task, state, case.posterior)
        np.testing.assert_allclose(shown.temperature, tau, rtol=1e-3)
        np.testing.assert_allclose(shown.q, right.k(tau), rtol=1e-3)
        np.testing.assert_allclose(value(shown.q, shown.temperature)[0, 0], right.objective(tau), rtol=1e-5)
        assert int(state.num_plans) == number and float(state.temperature) == float(shown.temperature)
    certain, after = plan(KLearning(span=0.0, noise=0.0), task, state, case.posterior)
    greedy = right.bellman()
    np.testing.assert_allclose(certain.k, greedy, rtol=1e-4, atol=1e-4)
    assert float(after.temperature) == 0.0
    np.testing.assert_array_equal(probabilities(certain), np.eye(2)[greedy.argmax(-1)])
    agent = KLearning("schedule", span=1.0, noise=0.7, num_states=7)
    shown, state = plan(agent, task, state, case.posterior)
    expected = schedule(3, noise=0.7, horizon=4, num_states=7, num_actions=2, span=1.0)
    np.testing.assert_allclose(shown.temperature, expected, rtol=1e-6)
    np.testing.assert_allclose(value(shown.q, shown.temperature)[0, 0], right.objective(expected), rtol=1e-5)


def known_moves(size):
    """DeepSea's prior: known moves, normal rewards of unknown mean, noise 0.1."""
    import numpyro
    import numpyro.distributions as dist

    rows = np.asarray(cast(Any, deep_sea(size).mdp).to_dense().transition_probs)

    def prior(space):
        with space.plates():
            reward = numpyro.sample("reward", dist.Normal(0.0, 1.0))
        return MDPSpec(rows, dist.Normal(reward, 0.1))

    return prior


@pytest.mark.slow
def test_it_learns_deep_sea_with_known_moves(key):
    """Optimal temperature, posterior variances: the first policy that earns half of the optimum, median of 20 seeds.

    At L = 10 uniform play earns it with probability 2^-10 an episode. Expected are 6 and 36 episodes at L = 5 and 10
    by another rule (10 % of hits). A temperature far too high is shown to fail.
    """
    for size, most in ((5, 25), (10, 110)):
        assert np.median(solved_at(KLearning(bonus="posterior"), size, most, key)) <= most
    assert np.all(np.isinf(solved_at(KLearning(1e3), 10, 110, key)))


def solved_at(agent, size, number, key):
    """The first episode whose policy is less than 0.5 behind the optimum, exact."""
    objective = Episodic(size)
    result = bm.run(
        agent,
        deep_sea(size),
        prior=known_moves(size),
        objective=objective,
        num_episodes=number,
        num_seeds=20,
        key=key,
    )
    behind = np.diff(result["regret"].to_numpy(), axis=1, prepend=0.0) < 0.5
    return np.where(behind.any(1), behind.argmax(1) + 1, np.inf)


class Mean(eqx.Module):
    """A belief with a mean alone."""

    def mean_mdp(self) -> MDP:
        """Never called."""
        raise NotImplementedError


TASK = Problem(StateActionSpace(3, 2, horizon=4), Episodic(4))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: KLearning("best"), ValueError, "temperature is 'best', expected 'optimal', 'schedule' or a number"),
        (lambda: KLearning(0.0), ValueError, r"temperature is 0\.0, expected a finite number greater than zero"),
        (lambda: KLearning(bonus="none"), ValueError, "bonus is 'none', expected one of paper, posterior"),
        (lambda: KLearning(span=-1.0), ValueError, r"span is -1\.0, expected a finite number, zero or greater"),
        (lambda: KLearning(noise=np.nan), ValueError, "noise is nan, expected a finite number, zero or greater"),
        (lambda: KLearning(num_states=0), ValueError, "num_states is 0, expected an integer of at least 1"),
        (lambda: KLearning().init(cast(Any, None), TASK), ValueError, "initial is None, expected a distribution over"),
        (
            lambda: KLearning(1.0).init(cast(Any, None), Problem(StateActionSpace(3, 2), Discounted(0.9))),
            ValueError,
            "objective is Discounted, expected Episodic for KLearning",
        ),
        (
            lambda: KLearning("schedule").init(cast(Any, None), Problem(StateActionSpace(3, 1), Episodic(2))),
            ValueError,
            "num_actions is 1, expected at least 2: with a single action log A is 0",
        ),
        (lambda: KLearning().check_belief(Mean()), TypeError, "KLearning needs a posterior that has visit_counts, got"),
        (lambda: k_values(Mean(), 1.0), TypeError, "k_values needs a posterior that has visit_counts, got a Mean"),
        (lambda: k_values(layered().posterior, -1.0), ValueError, r"tau is -1\.0, expected a finite number greater"),
        (lambda: k_values(layered().posterior, 1.0, horizon=7), ValueError, "horizon is 7, expected 4, that of the"),
        (
            lambda: Boltzmann(np.zeros((2, 2)), 0.0),
            ValueError,
            r"temperature is 0\.0, expected a number greater than 0",
        ),
        (lambda: value(np.zeros((2, 2)), np.inf), ValueError, "tau is inf, expected a finite number greater than zero"),
    ],
)
def test_bad_input_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_bonus_knows_how_many_steps_remain():
    """(noise^2 + span^2) / (2 n) with the rewards of 2, 1 and 0 further steps, of a belief with 4 visits."""
    state, action, _ = np.indices((2, 2, 4)).reshape(3, -1)
    belief = conjugate_posterior(
        dirichlet_rows(np.full((4, 2), 2.0), (2, 2, 2)),
        reward_cells(NormalGammaBelief(*np.ones((4, 4)) * [[0.0], [1.0], [2.0], [1.0]]), (2, 2)),
        StateActionSpace(2, 2),
    ).update(Transitions(state, action, np.zeros(16), np.zeros(16, int)))
    model = k_model(belief, Bonus(noise=0.5), horizon=3)
    np.testing.assert_allclose(
        model.numerator, (0.25 + np.array([4.0, 1.0, 0.0])[:, None, None]) / 8 + np.zeros((3, 2, 2))
    )
