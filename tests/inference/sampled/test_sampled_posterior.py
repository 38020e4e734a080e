"""Weighted draws learn: against closed forms and quadrature, in blocks and one by one; what they can do and refuse.

Draws from the prior by numpy serve: independent, exact, no sampler is compiled. Errors of weighted means are
compared in units of their standard error (delta method: sum of squared weights times squared deviations, Owen 2013,
*Monte Carlo theory, methods and examples*, (9.8)).
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from bayes_mdp.decisions.policy_evaluation import policy_value
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.sampled.algorithms import Drawn
from bayes_mdp.inference.sampled.recipe import recipe_for
from bayes_mdp.inference.sampled.sampled_posterior import from_draws
from bayes_mdp.mdp import CanCount, CanMean, CanSample, CanUpdate, Discounted, HasVariances, Transitions
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.protocols import CanRefit, NamesSharedParameters
from bayes_mdp.models.mdp_spec import RewardTable

N = 20_000
learn = jax.jit(lambda belief, data, weight: belief.update(data, weight))
mean_of = jax.jit(lambda belief: belief.mean_mdp())
thin_of = jax.jit(lambda belief, key, num: belief.thinned(key, num), static_argnums=2)
fifty_of = jax.jit(lambda belief, key: belief.sample(key, (50, 1)))
one_by_one = jax.jit(
    lambda belief, data, weight: jax.lax.scan(lambda b, x: (b.update(*x), None), belief, (data, weight))[0]
)


def prior_draws(small, prior, rows, reward):
    """Draws of a Dirichlet(1) and a standard normal, by numpy."""
    rng = np.random.default_rng(11)
    sites = {rows: rng.dirichlet(np.ones(2), (N, 2, 2)), reward: rng.normal(size=(N, 2, 2))}
    recipe = recipe_for(prior, small.space, NUTS())
    drawn = Drawn({name: sites[name] for name in recipe.latents}, None, None)
    seen = jax.eval_shape(lambda: recipe.summarise(small.first(small.transitions(1, 0), 0)))
    empty = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), seen)
    return jax.tree.map(np.asarray, jax.jit(lambda drawn, seen: from_draws(recipe, drawn, seen))(drawn, empty))


@pytest.fixture(scope="module")
def normal(small):
    """The conjugate program before data."""
    return prior_draws(small, small.prior, "transition", "reward")


@pytest.fixture(scope="module")
def student(small):
    """The program without sufficient statistics, with room for eight rewards."""
    return prior_draws(small, small.student, "probs", "loc").reserve(8)


def errors(weights, draws, expected):
    """Errors of weighted means, in standard errors."""
    mean = np.tensordot(weights, draws, 1)
    spread = np.sqrt(np.tensordot(weights**2, (draws - mean) ** 2, 1))
    return np.abs(mean - expected) / spread


def moment_errors(belief, draws, mean, deviation):
    weights, draws = np.asarray(belief.weights, np.float64), np.asarray(draws, np.float64)
    first = errors(weights, draws, mean)
    return max(first.max(), errors(weights, (draws - mean) ** 2, deviation**2).max())


def test_reweighted_draws_have_the_exact_moments(small, normal):
    """Means and variances of rows and rewards of a conjugate prior after 8 transitions; 24 numbers at six standard
    errors: false-alarm rate 5e-8. It must catch a transition that is left out (more than ten).
    """
    data = small.transitions(8, 3)
    belief, exact = learn(normal, data, np.ones(8)), small.normal_oracle(data)
    short = learn(normal, data, (np.arange(8) != 4).astype(float))
    worst = {}
    for name, after in (("all", belief), ("short", short)):
        worst[name] = max(
            moment_errors(after, after.transition_probs, exact["transition"], exact["transition_sd"]),
            moment_errors(after, after.sites["reward"], exact["reward"], exact["reward_sd"]),
        )
    assert belief.effective_sample_size() > 300
    assert worst["all"] < 6.0 and worst["short"] > 10.0
    mean = np.tensordot(belief.weights, belief.sites["reward"], 1)
    np.testing.assert_allclose(mean_of(belief).reward, mean, rtol=1e-4, atol=1e-5)


def test_any_reward_law(small, student):
    """Student-t rewards against quadrature: 8 numbers at six standard errors, false-alarm rate 2e-8. It must catch a
    likelihood that takes the rewards for normal (outliers count too much: more than ten).
    """
    data = small.transitions(8, 3, spread=2.0)
    belief = learn(student, data, np.ones(8))
    assert moment_errors(belief, belief.sites["loc"], *small.student_oracle(data)) < 6.0
    gain = -0.5 * ((data.reward - np.asarray(student.sites["loc"])[:, data.state, data.action]) / 0.5) ** 2
    twin = replace(belief, log_weights=gain.sum(1))
    assert moment_errors(twin, twin.sites["loc"], *small.student_oracle(data)) > 10.0


@pytest.mark.parametrize("name", [pytest.param("normal", marks=pytest.mark.slow), "student"])
def test_a_block_is_one_by_one(small, request, name):
    """In a compiled loop, with masked entries and powers; the host's own update is the same, and makes room."""
    belief, data = request.getfixturevalue(name), small.transitions(8, 4)
    weight = np.where(np.arange(8) % 3 == 0, 0.0, 0.5)
    block, single = learn(belief, data, weight), one_by_one(belief, data, weight)
    for a, b in zip(jax.tree.leaves(block), jax.tree.leaves(single), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert float(block.visit_counts().sum()) == pytest.approx(0.5 * 5)
    if name == "student":
        block = replace(block, data_statistics=replace(block.data_statistics, used=np.int32(8)))
        assert block.update(data, weight).data_statistics.capacity == 16


def test_weight_zero_may_hold_anything(small, student):
    nothing = jax.tree.map(lambda x: np.full_like(x, 7 if x.dtype == int else np.nan), small.transitions(8, 4))
    after = learn(student, nothing, np.zeros(8))
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(student), strict=True):
        np.testing.assert_array_equal(a, b)


def test_abilities(small, normal):
    for ability in (CanSample, CanMean, CanCount, HasVariances, CanUpdate, CanRefit, NamesSharedParameters):
        require_ability(normal, ability, "the test")
    assert not normal.independent_rows and normal.method == "nuts" and normal.space == small.space
    mdps = jax.eval_shape(lambda belief, key: belief.sample(key, (2, 3)), normal, jax.random.key(0))
    assert mdps.transition_probs.shape == (2, 3, 2, 2, 2) and mdps.reward.shape == (2, 3, 2, 2)


def test_variances(small, normal):
    """Of one backup, over the weighted draws, in numpy."""
    belief = learn(normal, small.transitions(8, 3), np.ones(8))
    values = np.array([1.0, 3.0])
    ours = jax.jit(lambda b: b.bellman_variance(values, 0.9))(belief)
    backup = np.asarray(belief.sites["reward"]) + 0.9 * np.asarray(belief.transition_probs) @ values
    weights = np.asarray(belief.weights)
    expected = np.tensordot(weights, (backup - np.tensordot(weights, backup, 1)) ** 2, 1)
    np.testing.assert_allclose(ours, expected, rtol=1e-3)


def test_draws_of_weight_zero_are_neither_sampled_nor_kept(small, normal):
    """Thinning is systematic: every draw within one of its expected number."""
    weights = np.full(N, -1e3)
    weights[:4] = np.log([0.5, 1e-30, 0.25, 0.25])
    few, rewards = replace(normal, log_weights=weights), np.asarray(normal.sites["reward"])[:4, 0, 0]
    thin = thin_of(few, jax.random.key(1), 8)
    number = [(np.asarray(thin.sites["reward"])[:, 0, 0] == reward).sum() for reward in rewards]
    assert number == [4, 0, 2, 2] and not np.any(thin.log_weights)
    drawn = np.asarray(fifty_of(few, jax.random.key(2)).reward)[:, 0, 0, 0]
    assert set(drawn) == set(rewards[[0, 2, 3]])


def test_when_to_refit(normal):
    """Half of the draws by default; weights that are no numbers ask for it too."""
    number = normal.num_draws
    for share, asks in ((0.6, False), (0.4, True)):
        weights = np.where(np.arange(number) < share * number, 0.0, -1e3)
        belief = replace(normal, log_weights=weights)
        assert float(belief.effective_sample_size()) == pytest.approx(share * number, rel=1e-3)
        assert bool(belief.needs_refit()) == asks
    assert bool(replace(normal, log_weights=np.full(number, np.nan)).needs_refit())


def test_refusals(small, normal, student):
    """Data that the space, the law or the rows rule out; a buffer that is full."""
    with pytest.raises(ValueError, match=r"transitions.state is 2, expected a state index from 0 to 1"):
        normal.update(Transitions(2, 0, 1.0, 0))
    with pytest.raises(ValueError, match=r"transitions.reward\[1\] is nan"):
        normal.update(Transitions([0, 0], [0, 0], [1.0, np.nan], [0, 0]))
    never = replace(normal, transition_probs=np.asarray(normal.transition_probs) * np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match=r"transitions\[1\] has likelihood zero under each of the 20000 draws"):
        never.update(Transitions([0, 0], [0, 0], [1.0, 1.0], [0, 1]))
    full = replace(student, data_statistics=replace(student.data_statistics, used=np.int32(9)))
    with pytest.raises(ValueError, match="is for 8 rewards and holds 9"):
        full.check(Transitions([0], [0], [1.0], [0]))
    assert "a StudentT law keeps each one" in full.problems()[-1] and "reserve(" in full.problems()[-1]


def test_problems_and_text(normal):
    assert normal.problems() == []
    one = replace(normal, log_weights=np.where(np.arange(normal.num_draws) == 3, 0.0, -1e3))
    (sentence,) = one.problems()
    assert "effective sample size of 1 of 20000" in sentence and "refit(key)" in sentence
    text = str(one).splitlines()
    assert text[0] == "Posterior over 2 states x 2 actions" and "effective sample size 1 of 20000" in str(one)
    assert "call refit(key)" in " ".join(map(str.strip, text))


def under_law(student, law, *parameters):
    """Few draws, with another law of rewards, as a program gives it."""
    few = student.thinned(jax.random.key(0), 20)
    rewards = jax.vmap(lambda *each: RewardTable(law(*each), None, False))(*parameters, few.sites["loc"])
    return replace(few, rewards=jax.tree.map(np.asarray, rewards))


def test_a_law_without_a_mean_is_refused_where_a_mean_is_needed(student, key):
    """It was nan, or infinite, in silence; what has been learnt can still be printed."""
    cauchy = under_law(student, lambda loc: dist.Cauchy(loc, jnp.ones((2, 2))))
    for needs in (
        cauchy.mean_mdp,
        cauchy.reward_variance,
        lambda: cauchy.sample(key),
        lambda: jax.jit(lambda belief: belief.sample(key))(cauchy),
    ):
        with pytest.raises(
            ValueError, match=r"^reward of state 0, action 0.* has a Cauchy law whose mean does not exist"
        ):
            needs()
    with pytest.raises(ValueError, match="Cauchy law whose mean does not exist"):
        policy_value(key, cauchy, np.zeros(2, int), Discounted(0.9), num_draws=2)
    assert "4 pairs whose mean reward does not exist" in str(cauchy)

    def student_t(df, loc):
        return dist.StudentT(df, loc, jnp.ones((2, 2)))

    df = np.full((20, 2, 2), 3.0, np.float32)
    df[7, 1, 0] = 1.0
    with pytest.raises(ValueError, match="state 1, action 0, in draw 7 has a StudentT law"):
        under_law(student, student_t, df).mean_mdp()
    assert np.isfinite(np.asarray(under_law(student, student_t, df + 1).mean_mdp().reward)).all()
